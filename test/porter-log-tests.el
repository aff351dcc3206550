;;; porter-log-tests.el --- The log of a server  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'porter-test-helper)

(defmacro porter-log-with (spec &rest body)
  "Run BODY with a server that logs to a buffer.
SPEC is (SERVER BUFFER HANDLERS &rest ARGS)."
  (declare (indent 1) (debug ((symbolp symbolp form &rest form) body)))
  (pcase-let ((`(,server ,buffer ,handlers . ,args) spec))
    `(let ((,buffer (generate-new-buffer " *porter-test-log*")))
       (unwind-protect
           (porter-test-with-server (,server ,handlers :log ,buffer ,@args)
             ,@body)
         (kill-buffer ,buffer)))))

(defun porter-log-lines (buffer)
  "The lines in BUFFER."
  (with-current-buffer buffer
    (split-string (buffer-substring-no-properties (point-min) (point-max)) "\n" t)))

(defun porter-log-await (buffer count)
  "Wait for COUNT lines in BUFFER and return them."
  (porter-test-wait (lambda () (>= (length (porter-log-lines buffer)) count))
                    4 "The log is %S" (lambda () (porter-log-lines buffer)))
  (let ((lines (porter-log-lines buffer)))
    (should (= count (length lines)))
    lines))

(defconst porter-log-readable
  "\\`[0-9]\\{4\\}-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9] 127\\.0\\.0\\.1 ")

(ert-deftest porter-log-readable-line ()
  "One line for each answer: when, who, what, status, bytes of the body, how long."
  (porter-log-with (server log #'porter-test-hello)
    (porter-test-get server "/a?b=c")
    (let ((line (car (porter-log-await log 1))))
      (should (string-match-p
               (concat porter-log-readable "\"GET /a\\?b=c\" 200 5 [0-9]+ms\\'") line)))))

(ert-deftest porter-log-common-and-combined ()
  "The formats that log analyzers read."
  (let ((common (concat "\\`127\\.0\\.0\\.1 - - \\[[0-9][0-9]/[A-Z][a-z][a-z]/[0-9]\\{4\\}:"
                        "[0-9][0-9]:[0-9][0-9]:[0-9][0-9] [-+][0-9]\\{4\\}\\] "
                        "\"GET /x HTTP/1\\.1\" 200 5")))
    (porter-log-with (server log #'porter-test-hello :log-format 'common)
      (porter-test-get server "/x" '("User-Agent" . "me"))
      (should (string-match-p (concat common "\\'") (car (porter-log-await log 1)))))
    (porter-log-with (server log #'porter-test-hello :log-format 'combined)
      (porter-test-get server "/x" '("User-Agent" . "me \"too\"\\") '("Referer" . "http://r/"))
      (porter-test-get server "/x")
      (let ((lines (porter-log-await log 2)))
        (should (string-match-p (concat common " \"http://r/\" \"me \\\\\"too\\\\\"\\\\\\\\\"\\'")
                                (car lines)))
        (should (string-match-p (concat common " \"-\" \"-\"\\'") (cadr lines)))))))

(ert-deftest porter-log-user ()
  "The third field is the user by Basic authentication, and never more than one field."
  (pcase-dolist (`(,authorization ,user)
                 '(("Basic dTpw" "u") ("basic  dTpw" "u") ("Basic YSBiOg==" "a\\x09b")
                   ("Basic Ig06" "\\\"\\x0d") ("Basic dQ==" "-") ("Basic OnA=" "-")
                   ("Basic" "-") ("Bearer dTpw" "-") ("Basic !" "-")))
    (porter-log-with (server log #'porter-test-hello :log-format 'common)
      (porter-test-get server "/" (cons "Authorization" authorization))
      (should (string-prefix-p (format "127.0.0.1 - %s [" user)
                               (car (porter-log-await log 1)))))))

(ert-deftest porter-log-format-option ()
  "The option is the default of the keyword; nonsense is refused."
  (let ((porter-log-format 'common))
    (porter-log-with (server log #'porter-test-hello)
      (porter-test-get server "/")
      (should (string-match-p "\\`127" (car (porter-log-await log 1))))))
  (should-error (porter-start #'ignore 0 nil :log-format 'fancy) :type 'porter-error)
  (should-error (porter-start #'ignore 0 7) :type 'porter-error)
  (should-error (porter-start #'ignore 0 nil :log-file 'x) :type 'porter-error))

(ert-deftest porter-log-nil-format-logs-errors-only ()
  "Without a format errors are logged, and nothing else."
  (porter-log-with (server log (lambda (request)
                                 (if (equal (porter-request-path request) "/bad")
                                     (error "Oh %%s no")
                                   (porter-test-hello request)))
                           :log-format nil)
    (porter-test-get server "/good")
    (porter-test-get server "/bad")
    (porter-test-pause 0.4)
    (should (string-match-p "GET /bad: error: Oh %s no" (car (porter-log-await log 1))))))

(ert-deftest porter-log-error-before-its-answer ()
  "What a handler did wrong stands in front of the line of its 500."
  (porter-log-with (server log (lambda (_) (error "First\nSecond\t\e[2J\0%%n%%s")))
    (porter-test-get server "/%25s")
    (pcase-let ((`(,error ,answer) (porter-log-await log 2)))
      (should (string-suffix-p "GET /%25s: error: First\\nSecond\\t\\x1b[2J\\x00%n%s" error))
      (should (string-match-p "\"GET /%25s\" 500 [0-9]+" answer)))))

(ert-deftest porter-log-refusals ()
  "What no handler sees is logged as well, as it came but escaped."
  (porter-log-with (server log #'porter-test-hello)
    (dolist (bytes '("GET /x HTTP/3.7\r\n\r\n"
                     "\x16\x03\x01\x02\e[31m%n\"\r\n\r\n"
                     "BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n"
                     "GET /evil HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
      (porter-test-with-client (client server)
        (porter-test-write client bytes)
        (porter-test-await-close client)))
    (let ((text (mapconcat #'identity (porter-log-await log 4) "\n")))
      (should (string-match-p "\"GET /x HTTP/3\\.7\" 505 " text))
      (should (string-match-p (regexp-quote "\"\\x16") text))
      (should-not (string-match-p "[^ -~\n]" text))
      (should (string-match-p "\"BREW /pot\" 501 " text))
      (should (string-match-p "\"GET /evil\" 421 " text)))))

(ert-deftest porter-log-pipelined-in-order ()
  "Answers that Emacs writes itself, many in one write, are logged one by one in order."
  (porter-log-with (server log #'porter-test-hello)
    (porter-test-with-client (client server)
      (porter-test-write client (mapconcat (lambda (n)
                                             (porter-test-request-bytes "GET" (format "/%d" n)))
                                           (number-sequence 1 20) ""))
      (dotimes (_ 20) (porter-test-read client "GET"))
      (cl-loop for line in (porter-log-await log 20)
               for n from 1
               do (should (string-match-p (format "\"GET /%d\" 200 5 " n) line))))))

(ert-deftest porter-log-kept-request ()
  "A handler that finishes its answer and goes on does not take the line away."
  (porter-log-with (server log (lambda (request)
                                 (let ((process (porter-test-process request)))
                                   (porter-response-header process 201)
                                   (porter-send process "abc")
                                   (porter-finish process)
                                   (sit-for 0.1)
                                   (porter-request-path request))))
    (porter-test-get server "/kept")
    (should (string-match-p "\"GET /kept\" 201 3 " (car (porter-log-await log 1))))))

(ert-deftest porter-log-growing-answers ()
  "Chunked answers count their body's bytes; of one that is cut off, what had left."
  (let (process)
    (porter-log-with (server log (lambda (request)
                                   (setq process (porter-test-process request))
                                   (porter-response-header process 200)
                                   (porter-send process "12345")
                                   (porter-flush process)
                                   (when (equal (porter-request-path request) "/more")
                                     :keep-alive)))
      (porter-test-get server "/whole")
      (should (string-match-p "\"GET /whole\" 200 5 " (car (porter-log-await log 1))))
      (porter-test-with-client (client server)
        (porter-test-write client (porter-test-request-bytes "GET" "/more"))
        (porter-test-await client (lambda () (string-match-p "12345" (porter-test-bytes client)))
                           3))
      (should (string-match-p "\"GET /more\" 200 5 " (cadr (porter-log-await log 2)))))))

(ert-deftest porter-log-client-that-left ()
  "A client that left before its answer got no status."
  (let (later)
    (porter-log-with (server log (lambda (request)
                                   (setq later (porter-test-process request))
                                   :keep-alive))
      (porter-test-with-client (client server)
        (porter-test-write client (porter-test-request-bytes "GET" "/left"))
        (porter-test-wait (lambda () later) 3 "No call")
        (porter-test-reset client))
      (should (string-match-p "\"GET /left\" - 0 " (car (porter-log-await log 1))))
      (porter-respond later 200 nil "late")
      ;; The late answer adds no line.
      (porter-test-pause 0.4)
      (should (= 1 (length (porter-log-lines log)))))))

(ert-deftest porter-log-timeouts ()
  "What the loop answers in the place of a handler has the request's line, once."
  (porter-log-with (server log (lambda (_) :keep-alive) :handler-timeout 0.1)
    (porter-test-get server "/slow")
    (should (string-match-p "\"GET /slow\" 504 " (car (porter-log-await log 1))))))

(ert-deftest porter-log-long-targets-are-cut ()
  "A line stays within bounds."
  (porter-log-with (server log #'porter-test-hello)
    (porter-test-get server (concat "/" (make-string 8000 ?a)))
    (let ((line (car (porter-log-await log 1))))
      (should (< (length line) 2500))
      (should (string-match-p "aaa\\.\\.\\.\" 200 5 " line)))))

(ert-deftest porter-log-buffer-is-capped ()
  "The log buffer has no undo list and does not grow without bound."
  (let ((porter-log-max-size 4000))
    (porter-log-with (server log #'porter-test-hello)
      (porter-test-with-client (client server)
        (dotimes (n 300)
          (porter-test-ask client "GET" (format "/%d" n))))
      (porter-test-wait (lambda () (with-current-buffer log
                                     (goto-char (point-min))
                                     (search-forward "/299\"" nil t)))
                        4 "The log does not get there")
      (with-current-buffer log
        (should (eq buffer-undo-list t))
        (should (< (buffer-size) 4001))
        (goto-char (point-min))
        (should (looking-at porter-log-readable))
        (should-not (buffer-modified-p))))))

(ert-deftest porter-log-follows-in-windows ()
  "A window at the end of the log stays there; one elsewhere stays where it is."
  (porter-log-with (server log #'porter-test-hello)
    (porter-test-get server "/1")
    (porter-log-await log 1)
    (save-window-excursion
      (switch-to-buffer log)
      (goto-char (point-max))
      (porter-test-get server "/2")
      (porter-log-await log 2)
      (should (= (window-point) (point-max)))
      (goto-char (point-min))
      (porter-test-get server "/3")
      (porter-log-await log 3)
      (should (= (window-point) (point-min))))))

(ert-deftest porter-log-named-buffer ()
  "A log buffer given by name is made, and made anew after it was killed."
  (let ((name " *porter-test-named-log*"))
    (unwind-protect
        (porter-test-with-server (server #'porter-test-hello :log name)
          (porter-test-get server "/1")
          (porter-test-wait (lambda () (get-buffer name)) 3 "No buffer")
          (kill-buffer name)
          (porter-test-get server "/2")
          (porter-test-wait (lambda () (get-buffer name)) 3 "No new buffer")
          (should (string-match-p "/2" (car (porter-log-lines name)))))
      (when (get-buffer name) (kill-buffer name)))))

(ert-deftest porter-log-files-and-sockets ()
  "What C answers alone is logged like the rest, a WebSocket when it has ended."
  (let ((directory (make-temp-file "porter-test" t)))
    (unwind-protect
        (porter-log-with (server log `(("/sent" . ,(lambda (request)
                                                     (porter-send-file
                                                      (porter-test-process request)
                                                      (expand-file-name "a.txt" directory))))
                                       ("/ws" . ,(lambda (request)
                                                   (porter-add-header
                                                    (porter-test-process request) "X-A" "1")
                                                   (porter-web-socket-connect
                                                    request #'ignore)))))
          (write-region (make-string 3000 ?a) nil (expand-file-name "a.txt" directory) nil 'silent)
          (porter-mount server "/m/" directory)
          (porter-test-get server "/m/a.txt")
          (should (string-match-p "\"GET /m/a.txt\" 200 3000 " (car (porter-log-await log 1))))
          (porter-test-get server "/m/none")
          (should (string-match-p "\"GET /m/none\" 404 " (cadr (porter-log-await log 2))))
          (porter-test-get server "/sent")
          (should (string-match-p "\"GET /sent\" 200 3000 " (nth 2 (porter-log-await log 3))))
          (porter-test-with-client (client server)
            (porter-test-write client
                               (porter-test-request-bytes
                                "GET" "/ws"
                                '(("Upgrade" . "websocket") ("Connection" . "Upgrade")
                                  ("Sec-WebSocket-Version" . "13")
                                  ("Sec-WebSocket-Key" . "dGhlIHNhbXBsZSBub25jZQ=="))))
            (porter-test-await client (lambda ()
                                        (string-match-p "\r\n\r\n" (porter-test-bytes client)))
                               3)
            (should (string-match-p "\\`HTTP/1\\.1 101 \\(?:.\\|\n\\)*\nX-A: 1\r"
                                    (porter-test-bytes client)))
            (porter-test-reset client))
          (should (string-match-p "\"GET /ws\" 101 " (nth 3 (porter-log-await log 4)))))
      (delete-directory directory t))))

(ert-deftest porter-log-file ()
  "A log file is appended to; it has what is pending when the server is gone."
  (let ((file (make-temp-file "porter-test-log")))
    (unwind-protect
        (progn
          (write-region "old\n" nil file nil 'silent)
          (porter-test-with-server (server (lambda (request)
                                             (if (equal (porter-request-path request) "/bad")
                                                 (error "Bad %%d")
                                               (porter-test-hello request)))
                                           :log-file file)
            (porter-test-get server "/1")
            (porter-test-get server "/bad"))
          ;; Stopped at once, before the batch was due.
          (let ((read (lambda () (with-temp-buffer
                                   (insert-file-contents file)
                                   (split-string (buffer-string) "\n" t)))))
            (porter-test-wait (lambda () (= 4 (length (funcall read)))) 4
                              "The file has %S" read)
            (pcase-let ((`(,old ,one ,error ,bad) (funcall read)))
              (should (equal old "old"))
              (should (string-match-p "\"GET /1\" 200 5 " one))
              (should (string-match-p "error: Bad %d" error))
              (should (string-match-p "\"GET /bad\" 500 " bad)))))
      (delete-file file))))

(ert-deftest porter-log-file-and-buffer ()
  "A server may log to both."
  (let ((file (make-temp-file "porter-test-log")))
    (unwind-protect
        (porter-log-with (server log #'porter-test-hello :log-file file)
          (porter-test-get server "/both")
          (let ((line (car (porter-log-await log 1))))
            (porter-test-wait (lambda () (with-temp-buffer
                                           (insert-file-contents file)
                                           (equal (buffer-string) (concat line "\n"))))
                              3 "The file has something else")))
      (delete-file file))))

(ert-deftest porter-log-file-that-cannot-be-opened ()
  "That is an error where the server is started, and no server is left over."
  (let ((before (porter-servers)))
    (should-error (porter-start #'ignore 0 nil :log-file "/nonexistent/porter/log")
                  :type 'file-error)
    (should (equal before (porter-servers)))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-log-file-at-exit ()
  "Emacs writes what is pending when it ends."
  (let ((file (make-temp-file "porter-test-log")))
    (unwind-protect
        (progn
          (porter-test-batch
           20
           '(require 'porter)
           `(let ((server (porter-start (lambda (r) (porter-respond (oref r process) 200 nil "x"))
                                        0 nil :log-file ,file)))
              (let ((url (porter-url server "/last")))
                (require 'url)
                (kill-buffer (url-retrieve-synchronously url)))))
          (with-temp-buffer
            (insert-file-contents file)
            (should (string-match-p "\"GET /last\" 200 1 " (buffer-string)))))
      (delete-file file))))

(ert-deftest porter-log-while-lisp-is-busy ()
  "What the loop does while Lisp is stuck is in the log afterwards."
  (porter-log-with (server log #'porter-test-hello)
    (porter-test-with-client (client server)
      (porter-test-write client (porter-test-request-bytes "GET" "/" nil nil "evil.example"))
      (let ((end (+ (float-time) 0.8)))
        (while (< (float-time) end)))
      (porter-test-await-close client))
    (should (string-match-p "421" (car (porter-log-await log 1))))))

(ert-deftest porter-log-full-queue ()
  "Who finds the queue full is in the log as well, whether answered soon or refused."
  (porter-log-with (server log #'porter-test-hello :max-queue 2)
    (let ((clients (cl-loop repeat 6 collect (porter-test-open server))))
      (unwind-protect
          (progn
            (dolist (client clients)
              (porter-test-write client (porter-test-request-bytes "GET" "/full")))
            (let ((end (+ (float-time) 1.2)))
              (while (< (float-time) end)))
            (dolist (client clients)
              (porter-test-read client))
            (let ((text (mapconcat #'identity (porter-log-await log 6) "\n")))
              (should-not (string-match-p "lost" text))
              (dolist (status '(("200" . 2) ("503" . 4)))
                (should (= (cdr status)
                           (cl-count-if (lambda (line)
                                          (string-match-p (format "\"GET /full\" %s " (car status))
                                                          line))
                                        (split-string text "\n")))))))
        (mapc #'porter-test-close clients)))))

(ert-deftest porter-log-costs-batches-not-lines ()
  "The buffer is touched a few times a second, whatever the load."
  (let ((calls 0) (count 400))
    (porter-log-with (server log #'porter-test-hello)
      (advice-add 'porter--log-insert :before (lambda (&rest _) (cl-incf calls))
                  '((name . porter-test-count)))
      (unwind-protect
          (let ((seconds (porter-test-seconds
                           (porter-test-with-client (client server)
                             (dotimes (n count)
                               (porter-test-ask client "GET" (format "/%d" n)))))))
            (porter-log-await log count)
            (should (<= calls (+ 3 (* 4.5 seconds)))))
        (advice-remove 'porter--log-insert 'porter-test-count)))))

(ert-deftest porter-log-leaves-nothing ()
  "When the server is gone all of its log in C is freed."
  (porter-test-should-come-to-rest)
  (let ((before (porter-test-counts)))
    (porter-log-with (server log #'porter-test-hello)
      (dotimes (_ 5) (porter-test-get server "/")))
    (porter-test-should-come-to-rest)
    (should (equal (plist-get before :servers) (plist-get (porter-test-counts) :servers)))))

(provide 'porter-log-tests)
;;; porter-log-tests.el ends here
