;;; porter-web-server-tests.el --- Packages written for web-server  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What the examples and tests of web-server show it to do, one test each, and the
;; points where packages depend on its process being a process.

;;; Code:

(require 'porter-web-server-helper)

(defun porter-ws-parsed (&rest lines)
  "The request of LINES, joined by CRLF, parsed, and whether it is complete."
  (let ((request (make-instance 'ws-request)))
    (setf (ws-pending request) (mapconcat #'identity lines "\r\n"))
    (cons (ws-parse-request request) request)))

;;;; Without a server

(ert-deftest porter-web-server-parses-many-headers ()
  (let ((request (cdr (porter-ws-parsed "GET /a%20b?x=1&y=%26 HTTP/1.1" "Host: h"
                                        "Accept: a, b" "DNT:1" "" ""))))
    (should (equal (ws-headers request)
                   '(nil (:GET . "/a%20b") ("y" . "&") ("x" . "1") (:HOST . "h")
                         (:ACCEPT . "a, b") (:DNT . "1"))))
    (should-not (car (porter-ws-parsed "GET / HTTP/1.1" "Host: h" "")))))

(ert-deftest porter-web-server-parses-forms ()
  (let ((request (cdr (porter-ws-parsed
                       "POST / HTTP/1.1"
                       "Content-Type: application/x-www-form-urlencoded; charset=UTF-8"
                       "" "a=1%2B1&b=x+y&&c&d=%0A"))))
    (should (equal (cdr (assoc "a" (ws-headers request))) "1+1"))
    (should (equal (cdr (assoc "b" (ws-headers request))) "x y"))
    (should (equal (cdr (assoc "c" (ws-headers request))) ""))
    (should (equal (cdr (assoc "d" (ws-headers request))) "\n"))
    (should-not (assoc "" (ws-headers request)))
    (should (equal (ws-body request) "a=1%2B1&b=x+y&&c&d=%0A"))))

(ert-deftest porter-web-server-parses-multipart ()
  (pcase-let ((`(,done . ,request)
               (porter-ws-parsed
                "POST / HTTP/1.1" "Content-Type: multipart/form-data; boundary=xx"
                "Content-Length: 99999" "" "--xx"
                "Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\""
                "Content-Type: text/plain" "" "one\ntwo" "--xx"
                "Content-Disposition: form-data; name=\"n\"" "" "" "--xx--" "")))
    (should done)
    (should (eq (ws-context request) 'multipart/form-data))
    (let ((file (cdr (assoc "f" (ws-headers request)))))
      (should (equal (cdr (assoc 'content file)) "one\ntwo"))
      (should (equal (cdr (assoc 'filename file)) "a.txt"))
      (should (equal (cdr (assoc :CONTENT-TYPE file)) "text/plain")))
    (should (equal (cdr (assoc 'content (cdr (assoc "n" (ws-headers request))))) ""))))

(ert-deftest porter-web-server-parses-json-of-wrong-length ()
  (pcase-let ((`(,done . ,request)
               (porter-ws-parsed "POST / HTTP/1.1" "Content-Type: application/json"
                                 "Content-Length: 33" "" "{\"a\":1}")))
    (should done)
    (should (eq (ws-context request) 'application/json))
    (should (equal (oref request body) "{\"a\":1}"))))

(ert-deftest porter-web-server-parses-authorization ()
  (let ((headers (ws-headers (cdr (porter-ws-parsed
                                   "GET / HTTP/1.1"
                                   (concat "Authorization: Basic "
                                           (base64-encode-string "u:p:q"))
                                   "" "")))))
    (should (equal (cdr (assoc :AUTHORIZATION headers)) '(:BASIC "u" . "p:q"))))
  (should (equal (ws-parse nil "Authorization: Bearer x")
                 '((:AUTHORIZATION . "Bearer x")))))

(ert-deftest porter-web-server-stays-in-a-directory ()
  (should (equal (ws-in-directory-p "/tmp/a" "b") "/tmp/a/b"))
  (should (equal (ws-in-directory-p "/tmp/a" "") "/tmp/a"))
  (should (equal (ws-in-directory-p "/tmp/a" "b/../c") "/tmp/a/c"))
  (should (equal (ws-in-directory-p "/tmp/a" "../a/c") "/tmp/a/c"))
  (dolist (path '("../ab/x" "../.." "/etc" "~/x" "~root"))
    (should-not (ws-in-directory-p "/tmp/a" path))))

(ert-deftest porter-web-server-shakes-hands-as-in-rfc-6455 ()
  (should (equal (ws-web-socket-handshake "dGhlIHNhbXBsZSBub25jZQ==")
                 "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")))

(ert-deftest porter-web-server-makes-frames ()
  (should (equal (ws-web-socket-frame "hello") "\x81\5hello"))
  (should (equal (ws-web-socket-frame "é") (unibyte-string 129 2 195 169)))
  (should (equal (substring (ws-web-socket-frame (make-string 126 ?a)) 0 4)
                 (unibyte-string 129 126 0 126)))
  (should (equal (substring (ws-web-socket-frame (make-string 65536 ?a)) 0 10)
                 (unibyte-string 129 127 0 0 0 0 0 1 0 0)))
  (should-error (ws-web-socket-frame nil) :type 'wrong-type-argument))

;;;; Handlers

(ert-deftest porter-web-server-keyword-handlers ()
  (porter-ws-test (server `(((:GET . "a") . (lambda (request)
                                              (porter-ws-text request "got a")))
                            ((:POST . ".*") . ,(lambda (request)
                                                 (porter-ws-text request "posted")))))
    (should (equal (porter-ws-curl server "/a") "got a"))
    (should (equal (porter-ws-curl server "-d" "x=1" "/q") "posted"))
    (should (string-match-p "\\`HTTP/1.1 404" (porter-ws-curl server "-i" "/q")))))

(ert-deftest porter-web-server-predicate-handlers ()
  (porter-ws-test (server '(((lambda (_) t) . (lambda (request)
                                                (porter-ws-text request "any")))))
    (should (equal (porter-ws-curl server "/") "any"))))

(ert-deftest porter-web-server-lists-its-servers ()
  (let* ((ws-servers nil) (server (ws-start nil t)) (port (ws-port server)))
    (should (eq port t))
    (should (memq server ws-servers))
    (should (ws-server-p server))
    (should (eq (process-status (ws-process server)) 'listen))
    (should (integerp (process-contact (ws-process server) :service)))
    (should-error (ws-start nil (process-contact (ws-process server) :service))
                  :type 'file-error)
    (ws-stop server)
    (should-not ws-servers)
    (should-not (process-live-p (ws-process server)))))

(ert-deftest porter-web-server-listener-runs-its-sentinel ()
  (let* ((ws-servers nil) (server (ws-start #'ignore 0)) (seen nil)
         (port (process-contact (ws-process server) :service)))
    (set-process-sentinel (ws-process server) (lambda (_ event) (push event seen)))
    (ws-stop server)
    (porter-test-wait (lambda () seen) 2 "no sentinel")
    (should-not (porter-test-port-open-p port))))

(ert-deftest porter-web-server-deleting-the-listener-stops ()
  (let* ((ws-servers nil) (server (ws-start #'ignore 0))
         (port (process-contact (ws-process server) :service)))
    (delete-process (ws-process server))
    (porter-test-wait (lambda () (not (porter-test-port-open-p port))) 2 "still open")
    (should-not ws-servers)))

(ert-deftest porter-web-server-utf-8-and-keep-alive ()
  (porter-ws-test (server (lambda (request) (porter-ws-text request "hé")))
    (let ((client (porter-test-open (process-contact (ws-process server) :service))))
      (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
      (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
      (porter-test-wait
       (lambda ()
         (with-current-buffer (porter-test-client-buffer client)
           (goto-char (point-min))
           (eql 2 (how-many "\r\n\r\nh\303\251" (point-min)))))
       5 "two answers on one connection")
      (delete-process (porter-test-client-process client)))))

(ert-deftest porter-web-server-answers-by-hand ()
  (porter-ws-test (server (lambda (request)
                            (process-send-string
                             (ws-process request)
                             "HTTP/1.1 201 Made by Hand\r\nX-A: b\r\n\r\nbody")))
    (let ((answer (porter-ws-curl server "-i" "/")))
      (should (string-match-p "\\`HTTP/1.1 201 " answer))
      (should (string-match-p "\r\nX-A: b\r\n" answer))
      (should (string-match-p "\r\nContent-Length: 4\r\n" answer))
      (should (string-suffix-p "\r\n\r\nbody" answer)))))

(ert-deftest porter-web-server-errors ()
  (let ((handlers `(((:GET . "early") . ,(lambda (_) (error "Boo")))
                    ((:GET . "late") . ,(lambda (request)
                                          (porter-ws-text request "half")
                                          (error "Boo")))
                    ((:GET . "said") . ,(lambda (request)
                                          (ws-error (ws-process request) "no %d" 3)))
                    ((:GET . "gone") . ,(lambda (request)
                                          (ws-send-404 (ws-process request) "no %s" "x")
                                          (porter-ws-text request "not here"))))))
    (porter-ws-test (server handlers)
      (dolist (path '("/early" "/late"))
        (let ((answer (porter-ws-curl server "-i" path)))
          (should (string-match-p "\\`HTTP/1.1 500" answer))
          (should (string-match-p "Caught Error: (error \"Boo\")" answer))
          (should-not (string-match-p "half" answer))))
      (should (equal (porter-ws-curl server "/said") "no 3"))
      (should (equal (porter-ws-curl server "/gone") "no x")))))

(ert-deftest porter-web-server-handler-sees-what-it-saw ()
  (porter-ws-test
      (server (lambda (request)
                (with-slots (process headers body context) request
                  (porter-ws-text
                   request
                   (format "%S" (list (car headers) (cadr headers)
                                      (cdr (assoc "a" headers)) body context inhibit-quit
                                      (process-type process) (process-live-p process)
                                      (process-contact process :host)
                                      (length (process-contact process))
                                      (eq (current-buffer)
                                          (window-buffer (selected-window)))
                                      (memq request
                                            (ws-requests
                                             (plist-get (process-plist process)
                                                        :server)))))))))
    (should (string-match-p
             (regexp-quote "(nil (:PATCH . \"/x%20y\") \"1\" \"{}\" application/json t network (open run listen connect stop) \"127.0.0.1\" 2 t (")
             (replace-regexp-in-string
              "network ([^)]*)\\|network t" "network (open run listen connect stop)"
              (porter-ws-curl server "-X" "PATCH" "-H" "Content-Type: application/json"
                              "-d" "{}" "/x%20y?a=1"))))))

(ert-deftest porter-web-server-upload ()
  (let ((file (make-temp-file "porter-ws-test"))
        (bytes (apply #'unibyte-string (number-sequence 0 255))))
    (unwind-protect
        (porter-ws-test
            (server (lambda (request)
                      (let ((part (cdr (assoc "f" (ws-headers request)))))
                        (porter-ws-text request
                                        (sha1 (cdr (assoc 'content part)))))))
          (let ((coding-system-for-write 'binary))
            (write-region bytes nil file nil 'quiet))
          (should (equal (porter-ws-curl server "-F" (concat "f=@" file) "/")
                         (sha1 bytes))))
      (delete-file file))))

(ert-deftest porter-web-server-basic-authentication ()
  (porter-ws-test (server (ws-with-authentication
                           (lambda (request) (porter-ws-text request "in"))
                           '(("u" . "p"))))
    (should (string-match-p "\\`HTTP/1.1 401" (porter-ws-curl server "-i" "/")))
    (should (string-match-p "\\`HTTP/1.1 403" (porter-ws-curl server "-i" "-u" "u:q" "/")))
    (should (string-match-p "\\`HTTP/1.1 403" (porter-ws-curl server "-i" "-u" "v:" "/")))
    (should (equal (porter-ws-curl server "-u" "u:p" "/") "in"))))

(ert-deftest porter-web-server-files-and-directories ()
  (let* ((directory (make-temp-file "porter-ws-test" t))
         (file (expand-file-name "a&b.html" directory)))
    (unwind-protect
        (porter-ws-test (server (lambda (request)
                                  (if (equal "/" (cdr (assq :GET (ws-headers request))))
                                      (ws-send-directory-list (ws-process request)
                                                              directory "^[^.]")
                                    (ws-send-file (ws-process request) file)
                                    (delete-file file))))
          (with-temp-file file (insert (make-string 400000 ?x)))
          (should (string-match-p "<a href=\"a%26b.html\">a&amp;b.html</a>"
                                  (porter-ws-curl server "/")))
          (let ((answer (porter-ws-curl server "-i" "/f")))
            (should (string-match-p "Content-[Tt]ype: text/html" answer))
            (should (string-match-p "xxxx\\'" answer))
            (should (> (length answer) 400000))))
      (delete-directory directory t))))

(ert-deftest porter-web-server-chunks ()
  (porter-ws-test (server (lambda (request)
                            (with-slots (process) request
                              (ws-response-header process 200
                                                  '("transfer-encoding" . "chunked"))
                              (dotimes (i 3)
                                (ws-send process (format "é%d" i))
                                (ws-send process "")
                                (sit-for 0.05)))))
    (should (equal (decode-coding-string (porter-ws-curl server "/") 'utf-8)
                   "é0é1é2"))
    (should (string-match-p "Transfer-Encoding: chunked"
                            (porter-ws-curl server "-i" "/")))))

(ert-deftest porter-web-server-gzip ()
  (porter-test-need "gzip")
  (dolist (name '("Content-Encoding" "Transfer-Encoding"))
    (porter-ws-test (server (lambda (request)
                              (with-slots (process) request
                                (ws-response-header process 200 (cons name "gzip"))
                                (ws-send process "hello"))))
      (should (equal (porter-ws-curl server "--compressed" "/") "hello")))))

;;;; Streams that the handler owns

(ert-deftest porter-web-server-answers-later ()
  (porter-ws-test (server (lambda (request)
                            (let ((process (ws-process request)))
                              (run-at-time 0.05 nil
                                           (lambda ()
                                             (ws-response-header process 200)
                                             (ws-send process "late")
                                             (delete-process process)))
                              (throw 'close-connection :keep-alive))))
    (should (equal (porter-ws-curl server "/") "late"))))

(ert-deftest porter-web-server-event-stream-and-its-end ()
  (let (stream events)
    (porter-ws-test (server (lambda (request)
                              (with-slots (process) request
                                (setq stream process)
                                (set-process-sentinel
                                 process (lambda (_ event) (push event events)))
                                (ws-response-header
                                 process 200 '("Content-Type" . "text/event-stream"))
                                :keep-alive)))
      (let ((client (porter-test-open (process-contact (ws-process server) :service))))
        (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (porter-test-wait (lambda () stream) 5 "no request")
        (dotimes (i 3)
          (porter-test-pause 0.02)
          (process-send-string stream (format "data: %d\n\n" i)))
        (porter-test-wait
         (lambda () (with-current-buffer (porter-test-client-buffer client)
                      (goto-char (point-min))
                      (search-forward "data: 2" nil t)))
         5 "no events")
        (should (eql 1 (length (ws-requests server))))
        (delete-process (porter-test-client-process client))
        (porter-test-wait (lambda () events) 5 "the client's leaving was not noticed")
        (should-not (process-live-p stream))
        (porter-test-wait (lambda () (null (ws-requests server))) 5
                          "a request is left")))))

(defun porter-ws-should-be-alone (server)
  "Fail unless SERVER comes to be without a connection."
  (let ((count (lambda () (plist-get (porter-server-statistics (slot-value server 'porter))
                                     :connections))))
    (porter-test-wait (lambda () (eql 0 (funcall count))) 5 "%d connections are left" count)))

(defun porter-ws-open-files ()
  "The number of file descriptors of this Emacs, or 0 where nobody tells."
  (length (ignore-errors (directory-files "/proc/self/fd" nil "\\`[0-9]" t))))

(ert-deftest porter-web-server-leaves-nothing-behind ()
  "A thousand requests: no process, buffer or descriptor more than before."
  (porter-ws-test (server (lambda (request) (porter-ws-text request "x")))
    (porter-ws-curl server "/")
    (porter-ws-should-be-alone server)
    (let ((processes (length (process-list)))
          (buffers (length (buffer-list)))
          (files (porter-ws-open-files)))
      (dotimes (_ 10)
        (porter-test-with-client (client (porter-ws-port server))
          (dotimes (_ 100)
            (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
          (dotimes (_ 100)
            (should (equal "x" (porter-test-response-body (porter-test-read client)))))))
      (porter-ws-should-be-alone server)
      (should (equal (length (process-list)) processes))
      (should (equal (length (buffer-list)) buffers))
      (should-not (ws-requests server))
      (porter-test-wait (lambda () (<= (porter-ws-open-files) files)) 5
                        "%d descriptors were %d" #'porter-ws-open-files files))))

(defun porter-ws-crowd (server count)
  "A command whose child connects COUNT times to SERVER and asks once each time.
It says \"all\" when all have an answer, and stays connected."
  (porter-test-batch-command
   `(let ((answers 0))
      (dotimes (_ ,count)
        (let ((process
               (make-network-process
                :name "client" :noquery t :host "127.0.0.1" :service ,(porter-ws-port server)
                :coding 'binary
                :filter (lambda (process bytes)
                          (unless (process-get process 'seen)
                            (process-put process 'seen t)
                            (when (string-match-p "\\`HTTP/1.1 200" bytes)
                              (setq answers (1+ answers))))))))
          (process-send-string process "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")))
      (while (< answers ,count) (accept-process-output nil 0.05))
      (message "all")
      (while t (accept-process-output nil 1)))))

(ert-deftest porter-web-server-five-hundred-clients ()
  "They stay connected, and Emacs can still open files and make processes."
  (porter-ws-test (server (lambda (request) (porter-ws-text request "x")))
    (porter-test-with-child (crowd (porter-ws-crowd server 500))
      (porter-test-child-await crowd "^all" 30)
      (should (>= (plist-get (porter-server-statistics (slot-value server 'porter))
                             :connections)
                  500))
      (should (equal "x" (porter-ws-curl server "/"))))))

(ert-deftest porter-web-server-hundreds-of-streams ()
  "So it is while the handler owns them all."
  (let (streams)
    (porter-ws-test (server (lambda (request)
                              (if (equal (cdr (assq :GET (ws-headers request))) "/plain")
                                  (porter-ws-text request "x")
                                (push (ws-process request) streams)
                                (ws-response-header (car streams) 200)
                                (process-send-string (car streams) "data: 1\n\n")
                                :keep-alive)))
      (porter-test-with-child (crowd (porter-ws-crowd server 500))
        (porter-test-child-await crowd "^all" 30)
        (should (eql 500 (cl-count-if #'process-live-p streams)))
        (should (equal "x" (porter-ws-curl server "/plain"))))
      (porter-test-wait (lambda () (not (cl-find-if #'process-live-p streams))) 10
                        "%d streams outlive their clients"
                        (lambda () (cl-count-if #'process-live-p streams))))))

;;;; The process is one

(ert-deftest porter-web-server-process-contact ()
  "Each form of `process-contact', on the connection and on the listener."
  (let (seen)
    (porter-ws-test (server (lambda (request)
                              (let ((process (ws-process request)))
                                (setq seen
                                      (list (process-contact process)
                                            (process-contact process :host)
                                            (process-contact process :service)
                                            (process-contact process :remote)
                                            (process-contact process :local)
                                            (plist-get (process-contact process t) :family)
                                            (process-type process)
                                            (process-status process)
                                            (process-buffer process)
                                            (process-query-on-exit-flag process)
                                            (process-coding-system process))))
                              (porter-ws-text request "x")))
      (porter-test-with-client (client (porter-ws-port server))
        (let ((port (aref (process-contact (porter-test-client-process client) :local) 4)))
          (should (equal "x" (porter-test-response-body (porter-test-ask client "GET" "/"))))
          (should (equal seen (list (list "127.0.0.1" port) "127.0.0.1" port
                                    (vector 127 0 0 1 port)
                                    (vector 127 0 0 1 (porter-ws-port server))
                                    'ipv4 'network 'open nil nil
                                    '(no-conversion . no-conversion))))))
      (should (equal (aref (process-contact (ws-process server) :local) 4)
                     (porter-ws-port server)))
      (should (eq 'network (process-type (ws-process server)))))))

(ert-deftest porter-web-server-process-codes-and-ends ()
  "Its coding system counts; a handler may delete it, or end its sending, itself."
  (porter-ws-test
      (server (lambda (request)
                (let ((process (ws-process request)))
                  (pcase (cdr (assq :GET (ws-headers request)))
                    ("/latin" (set-process-coding-system process 'latin-1 'latin-1)
                     (porter-ws-text request "\u00e9"))
                    ("/deleted" (porter-ws-text request "gone")
                     (delete-process process)
                     (process-status process))
                    ("/deleted-later" (porter-ws-text request "gone later")
                     (delete-process process)
                     :keep-alive)
                    ("/eof" (porter-ws-text request "that's all")
                     (process-send-eof process)
                     :keep-alive)))))
    (should (equal "\351" (porter-ws-curl server "/latin")))
    (should (equal "gone" (porter-ws-curl server "/deleted")))
    (should (equal "gone later" (porter-ws-curl server "/deleted-later")))
    (should (equal "that's all" (porter-ws-curl server "/eof")))))

(ert-deftest porter-web-server-bytes-for-those-who-want-them ()
  "`porter-web-server-raw-text' gives parameters as web-server gave them."
  (let ((porter-web-server-raw-text t))
    (should (equal '(("q" . "\303\251")) (ws-parse-query-string "q=%C3%A9"))))
  (should (equal '(("q" . "\u00e9")) (ws-parse-query-string "q=%C3%A9")))
  (should (equal '(("q" . "\351")) (ws-parse-query-string "q=%E9"))))

;;;; Processes and their reuse

(defun porter-ws-get (client &optional path)
  "Have CLIENT ask for PATH, and return its next answer, with its head."
  (let ((before (length (porter-test-bytes client))))
    (porter-test-write client (format "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                      (or path "/")))
    (let (answer)
      (porter-test-wait
       (lambda ()
         (setq answer (substring (porter-test-bytes client) before))
         (and (string-match "Content-Length: \\([0-9]+\\)\r\n" answer)
              (let ((length (string-to-number (match-string 1 answer))))
                (and (string-match "\r\n\r\n" answer)
                     (>= (- (length answer) (match-end 0)) length)))))
       5 "no answer: %S" (lambda () (porter-test-bytes client)))
      answer)))

(ert-deftest porter-web-server-reuses-processes ()
  (let (processes)
    (porter-ws-test (server (lambda (request)
                              (push (ws-process request) processes)
                              (porter-ws-text request "x")))
      (let ((client (porter-test-open (process-contact (ws-process server) :service))))
        (dotimes (_ 3) (porter-ws-get client))
        (should (eql 1 (length (delete-dups (copy-sequence processes)))))
        (should (eql (process-contact (car processes) :service)
                     (aref (process-contact (porter-test-client-process client) :local)
                           4)))))
    (should-not (cl-some #'process-live-p processes))))

(ert-deftest porter-web-server-touched-processes-are-not-reused ()
  (dolist (touch (list (lambda (process) (set-process-filter process #'ignore))
                       (lambda (process) (set-process-sentinel process #'ignore))
                       (lambda (process) (process-put process 'mine t))
                       (lambda (process) (set-process-plist process nil))
                       (lambda (process)
                         (set-process-coding-system process 'utf-8 'utf-8))))
    (let (processes)
      (porter-ws-test (server (lambda (request)
                                (push (ws-process request) processes)
                                (porter-ws-text request "x")
                                (funcall touch (ws-process request))))
        (let ((client (porter-test-open (process-contact (ws-process server) :service))))
          (dotimes (_ 3) (porter-ws-get client))
          (should (eql 3 (length (delete-dups (copy-sequence processes)))))
          (should-not (cl-some #'process-live-p processes)))))))

(ert-deftest porter-web-server-late-bytes-reach-nobody ()
  "Who writes to a process that is not his any more must not reach another client."
  (let (first processes)
    (porter-ws-test (server (lambda (request)
                              (unless first (setq first (ws-process request)))
                              (push (ws-process request) processes)
                              (porter-ws-text request "x")))
      (let ((client (porter-test-open (process-contact (ws-process server) :service))))
        (porter-ws-get client)
        (ignore-errors (process-send-string first "late"))
        (should-not (string-match-p "late" (porter-ws-get client)))
        (should-not (process-live-p first))
        (porter-ws-get client)
        (should (eql 3 (length (delete-dups processes))))))))

(ert-deftest porter-web-server-no-reuse-once-handlers-wait-or-keep ()
  (let (processes)
    (porter-ws-test (server (lambda (request)
                              (push (ws-process request) processes)
                              (if (equal (cdr (assq :GET (ws-headers request))) "/keep")
                                  (progn (porter-ws-text request "k") :keep-alive)
                                (porter-ws-text request "x"))))
      (let* ((port (process-contact (ws-process server) :service))
             (client (porter-test-open port))
             (keeper (porter-test-open port)))
        (porter-ws-get client)
        (porter-test-write keeper "GET /keep HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (porter-test-wait (lambda () (string-match-p "k" (porter-test-bytes keeper)))
                          5 "no stream")
        (dotimes (_ 2) (porter-ws-get client))
        (should (eql 3 (length (delete-dups processes))))))))

(ert-deftest porter-web-server-large-answer-by-process-send-string ()
  "More than the kernel takes at once."
  (porter-ws-test (server (lambda (request)
                            (porter-ws-text request (make-string 3000000 ?x))))
    (should (equal (length (porter-ws-curl server "/")) 3000000))))

(ert-deftest porter-web-server-order-of-what-is-sent ()
  "Whichever way it takes."
  (porter-ws-test (server (lambda (request)
                            (let ((process (ws-process request)))
                              (ws-response-header process 200)
                              (process-send-string process "1")
                              (ws-send process "2")
                              (process-send-string process "3")
                              (ws-send process "é")
                              (ws-send process "5"))))
    (should (equal (porter-ws-curl server "/") (encode-coding-string "123é5" 'utf-8)))))

(ert-deftest porter-web-server-a-head-by-hand-first ()
  (porter-ws-test (server (lambda (request)
                            (let ((process (ws-process request)))
                              (process-send-string process "HTTP/1.1 404 No\r\n\r\n")
                              (ws-response-header process 200)
                              (process-send-string process "x"))))
    (should (string-match-p "\\`HTTP/1.1 404 .*\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx\\'"
                            (replace-regexp-in-string
                             "\\(?:Date\\|Content-Length\\): .*\r\n" ""
                             (porter-ws-curl server "-i" "/"))))))

(ert-deftest porter-web-server-what-the-client-sends-on-a-stream ()
  "It comes to the filter, as bytes, also when it looks like a request."
  (let (got)
    (porter-ws-test (server (lambda (request)
                              (let ((process (ws-process request)))
                                (set-process-filter
                                 process
                                 (lambda (process bytes)
                                   (setq got (concat got bytes))
                                   (when (equal bytes "error") (error "Not so"))
                                   (process-send-string process (upcase bytes))))
                                (process-send-string
                                 process "HTTP/1.1 200 OK\r\n\r\nready")
                                :keep-alive)))
      (porter-test-with-client (client (porter-ws-port server))
        (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (let ((heard (lambda (text)
                       (porter-test-wait
                        (lambda () (string-match-p text (porter-test-bytes client)))
                        5 "no %s" text))))
          (funcall heard "ready")
          (porter-test-write client "hello\303\251")
          (funcall heard "HELLO")
          (porter-test-write client "error")
          (porter-test-wait (lambda () (string-suffix-p "error" got)) 5 "no error")
          (porter-test-write client "GET / HTTP/1.1\r\n\r\n")
          (funcall heard "GET / HTTP/1.1\r\n\r\n")
          (porter-test-write client "last")
          (funcall heard "LAST")
          (should (equal got "hello\303\251errorGET / HTTP/1.1\r\n\r\nlast")))))))

(ert-deftest porter-web-server-answering-leaves-match-data ()
  (porter-ws-test (server (lambda (request)
                            (let ((process (ws-process request)) (path "/abc"))
                              (string-match "b" path)
                              (ws-response-header process 200 '("Connection" . "close")
                                                  '("Content-Encoding" . "identity"))
                              (process-send-string process (match-string 0 path)))))
    (should (equal (porter-ws-curl server "/") "b"))))

(ert-deftest porter-web-server-parameters-in-order ()
  (let (headers)
    (porter-ws-test (server (lambda (request)
                              (setq headers (ws-headers request))
                              (porter-ws-text request "x")))
      (porter-ws-curl server "-H" "X-Y: z" "/a%20b?x=1&y=%26+&x=%C3%A9&z")
      (should (equal (seq-take headers 6)
                     '(nil (:GET . "/a%20b") ("z" . "") ("x" . "é") ("y" . "& ")
                           ("x" . "1"))))
      (should (equal (cdr (assq :X-Y headers)) "z"))
      (let ((porter-web-server-raw-text t))
        (porter-ws-curl server "/?x=%C3%A9"))
      (should (equal (cdr (assoc "x" headers)) "\303\251")))))

(ert-deftest porter-web-server-web-sockets ()
  (let (open)
    (porter-ws-test (server (lambda (request)
                              (or (and (setq open
                                             (ws-web-socket-connect
                                              request
                                              (lambda (process string)
                                                (process-send-string
                                                 process (ws-web-socket-frame
                                                          (concat "you said " string))))))
                                       :keep-alive)
                                  (porter-ws-text request "no web socket"))))
      (should (equal (porter-ws-curl server "/") "no web socket"))
      (let ((client (porter-test-open (process-contact (ws-process server) :service))))
        (porter-test-write client (concat "GET / HTTP/1.1\r\nHost: localhost\r\n"
                                         "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                                         "Sec-WebSocket-Version: 13\r\n"
                                         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"))
        (porter-test-wait
         (lambda () (with-current-buffer (porter-test-client-buffer client)
                      (goto-char (point-min))
                      (search-forward "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" nil t)))
         5 "no handshake")
        ;; In two fragments.
        (porter-test-write client (unibyte-string #x01 #x82 0 0 0 0 ?h ?i))
        (porter-test-write client (unibyte-string #x80 #x81 0 0 0 0 ?!))
        (porter-test-wait
         (lambda () (with-current-buffer (porter-test-client-buffer client)
                      (goto-char (point-min))
                      (search-forward "\201\14you said hi!" nil t)))
         3 "no answer to a message: %S" (lambda () (porter-test-bytes client)))
        (should (process-live-p open))
        (delete-process (porter-test-client-process client))
        (porter-test-wait (lambda () (not (process-live-p open))) 5
                          "the client's leaving was not noticed")))))

(ert-deftest porter-web-server-refuses-to-be-second ()
  (let ((file (expand-file-name "porter-web-server.el" porter-test-lisp-directory)))
    (with-temp-buffer
      (should-not (eql 0 (call-process
                          (expand-file-name invocation-name invocation-directory)
                          nil t nil "-Q" "--batch" "-L" porter-test-lisp-directory
                          "--eval" "(provide 'web-server)" "-l" file)))
      (should (string-match-p "loaded already" (buffer-string))))))

(provide 'porter-web-server-tests)
;;; porter-web-server-tests.el ends here
