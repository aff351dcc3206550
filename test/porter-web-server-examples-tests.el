;;; porter-web-server-examples-tests.el --- How packages use the ws- names  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; First, one test for each of the examples that come with web-server, of what the example
;; shows.  Then one for each way in which published packages use it: what they ask of the
;; process, of the listener, of the classes.  The handlers here are our own.

;;; Code:

(require 'porter-web-server-helper)
(require 'json)

(defun porter-ws-need-json ()
  "Skip the running test where Emacs was built without JSON."
  (unless (fboundp 'json-serialize) (ert-skip "this Emacs has no json-serialize")))

(defmacro porter-ws-with-directory (variable &rest body)
  "Run BODY with VARIABLE as the name of a temporary directory, with a few files."
  (declare (indent 1))
  `(let ((,variable (file-name-as-directory
                     (file-truename (make-temp-file "porter-ws" t)))))
     (unwind-protect
         (progn
           (make-directory (expand-file-name "sub" ,variable))
           (dolist (file '(("a.txt" . "a text\n") (".hidden" . "no") ("c.el" . "(defun x ())\n")
                           ("b.org" . "* Head\nsome *bold* text\n")))
             (write-region (cdr file) nil (expand-file-name (car file) ,variable) nil 'quiet))
           ,@body)
       (delete-directory ,variable t))))

;;;; The examples

(ert-deftest porter-web-server-example-hello ()
  "Text, with the length known and the connection kept; also to HEAD and POST."
  (porter-ws-test (server (lambda (request)
                            (with-slots (process) request
                              (ws-response-header process 200 '("Content-type" . "text/plain"))
                              (process-send-string process "hello world"))))
    (porter-test-with-client (client (porter-ws-port server))
      (dolist (method '("GET" "POST" "HEAD" "GET"))
        (let ((response (porter-test-ask client method "/" nil
                                         (and (equal method "POST") "a=1"))))
          (should (equal 200 (porter-test-response-status response)))
          (should (equal "11" (porter-test-header response "content-length")))
          (should (equal "text/plain" (porter-test-header response "content-type")))
          (should (equal (if (equal method "HEAD") "" "hello world")
                         (porter-test-response-body response))))))))

(ert-deftest porter-web-server-example-hello-in-many-scripts ()
  "Multibyte strings leave as UTF-8, with their length in bytes."
  (let ((hellos '("こんにちは" "안녕하세요" "góðan dag" "Γεια σας" "नमस्ते" "𝄞")))
    (porter-ws-test
        (server (lambda (request)
                  (with-slots (process headers) request
                    (ws-response-header process 200
                                        '("Content-type" . "text/plain; charset=utf-8"))
                    (process-send-string
                     process (nth (string-to-number (cdr (assoc "n" headers))) hellos)))))
      (dotimes (n (length hellos))
        (should (equal (nth n hellos) (porter-ws-body server (format "/?n=%d" n))))))))

(ert-deftest porter-web-server-example-hello-html ()
  "A page in several lines arrives as it was written."
  (let ((page "<html>\n  <body>\n    <b>hello world</b>\n  </body>\n</html>"))
    (porter-ws-test (server (lambda (request)
                              (with-slots ((proc process)) request
                                (ws-response-header proc 200 '("Content-type" . "text/html"))
                                (process-send-string proc page))))
      (should (equal page (porter-ws-body server "/"))))))

(ert-deftest porter-web-server-example-file-server ()
  "Files and directories below a root, and nothing beside it."
  (porter-ws-with-directory root
    (let ((sibling (concat (directory-file-name root) "x")))
      (unwind-protect
          (porter-ws-test
              (server (lambda (request)
                        (with-slots (process headers) request
                          (let ((path (substring (cdr (assoc :GET headers)) 1)))
                            (cond
                             ((not (ws-in-directory-p root path)) (ws-send-404 process))
                             ((file-directory-p (expand-file-name path root))
                              (ws-send-directory-list
                               process (expand-file-name path root) "^[^.]"))
                             (t (ws-send-file process (expand-file-name path root))))))))
            (write-region "secret" nil sibling nil 'quiet)
            (should (equal "a text\n" (porter-ws-body server "/a.txt")))
            (let ((page (porter-ws-body server "/")))
              (should (string-match-p "<a href=\"a.txt\">a.txt</a>" page))
              (should (string-match-p "<a href=\"sub/\">sub" page))
              (should-not (string-match-p "hidden" page)))
            (should (equal 404 (porter-ws-status server "/../x")))
            (should (equal 404 (porter-ws-status server "/~/x")))
            (should (equal "404 Not Found"
                           (porter-ws-body
                            server (concat "/../" (file-name-nondirectory sibling)))))
            ;; No such file is an error of the handler; no :GET in a POST is another.
            (should (equal 500 (porter-ws-status server "/nope")))
            (should (string-match-p "Caught Error: (wrong-type-argument"
                                    (porter-ws-post server "/a.txt" "text/plain" "x"))))
        (ignore-errors (delete-file sibling))))))

(ert-deftest porter-web-server-example-parameters ()
  "Those of the query are the entries of `headers' whose names are strings."
  (porter-ws-test
      (server '(((:GET . ".*") .
                 (lambda (request)
                   (with-slots (process headers) request
                     (ws-response-header process 200 '("Content-type" . "text/html"))
                     (process-send-string
                      process
                      (mapconcat (lambda (pair) (format "%s=%s" (car pair) (cdr pair)))
                                 (cl-remove-if-not (lambda (entry) (stringp (car entry)))
                                                   headers)
                                 ",")))))))
    (should (equal "foo=bar,n=5" (porter-ws-body server "/?n=5&foo=bar")))
    (should (equal "" (porter-ws-body server "/")))
    (should (equal "z=a b,y=a&b,x=é" (porter-ws-body server "/?x=%C3%A9&y=a%26b&z=a+b")))))

(ert-deftest porter-web-server-example-post-echo ()
  "A field of a multipart form, and a matcher for each method."
  (porter-ws-test
      (server '(((:POST . ".*") .
                 (lambda (request)
                   (with-slots (process headers) request
                     (let ((message (cdr (assoc "message" headers))))
                       (ws-response-header process 200 '("Content-type" . "text/plain"))
                       (process-send-string
                        process (if message
                                    (format "said %S" (cdr (assoc 'content message)))
                                  "nothing said"))))))
                ((:GET . ".*") .
                 (lambda (request)
                   (ws-response-header (ws-process request) 200)
                   (process-send-string (ws-process request) "a GET")))))
    (should (equal "a GET" (porter-ws-body server "/")))
    (should (equal "said \"foo\""
                   (porter-ws-post server "/" porter-ws-form-type
                                   (porter-ws-form '("name=\"message\"" "foo")))))
    (should (equal "nothing said"
                   (porter-ws-post server "/" porter-ws-form-type
                                   (porter-ws-form '("name=\"other\"" "foo")))))))

(ert-deftest porter-web-server-example-basic-authentication ()
  "The handler finds the user as the third of the entry; guards answer otherwise."
  (porter-ws-test
      (server (ws-with-authentication
               (lambda (request)
                 (with-slots (process headers) request
                   (ws-response-header process 200)
                   (process-send-string
                    process (format "welcome %s" (cl-caddr (assoc :AUTHORIZATION headers))))))
               '(("foo" . "bar") ("baz" . "q:x") ("ü" . "pä")) "my realm" nil
               (lambda (process)
                 (ws-response-header process 403)
                 (process-send-string process "go away"))))
    (let ((basic (lambda (text)
                   (list (cons "Authorization" (concat "Basic " (base64-encode-string text)))))))
      (should (equal "Basic realm=\"my realm\""
                     (porter-test-header (porter-ws-fetch server "GET" "/")
                                         "www-authenticate")))
      (should (equal "welcome foo" (porter-ws-body server "/" (funcall basic "foo:bar"))))
      (should (equal "welcome baz" (porter-ws-body server "/" (funcall basic "baz:q:x"))))
      (should (equal "welcome ü" (porter-ws-body server "/" (funcall basic "\303\274:p\303\244"))))
      (should (equal "go away" (porter-ws-body server "/" (funcall basic "foo:baz"))))
      (should (equal "go away" (porter-ws-body server "/" (funcall basic "nobody:"))))
      (should (equal 401 (porter-ws-status server "/" '(("Authorization" . "Bearer x"))))))))

(ert-deftest porter-web-server-example-org-files ()
  "`ws-send-404' and `ws-error' end the handler from within an expression."
  (porter-ws-with-directory root
    (porter-ws-test
        (server (lambda (request)
                  (with-slots (process headers) request
                    (let ((path (ws-in-directory-p
                                 root (substring (cdr (assoc :GET headers)) 1))))
                      (unless path (ws-send-404 process))
                      (let* ((format (pcase (file-name-extension path)
                                       ("html" "<b>%s</b>")
                                       ("txt" "%s")
                                       (type (ws-error process "no export to %s" type))))
                             (source (concat (file-name-sans-extension path) ".org")))
                        (unless (file-exists-p source) (ws-send-404 process))
                        (save-window-excursion
                          (find-file source)
                          (write-region (format format (buffer-string)) nil path nil 'quiet)
                          (kill-buffer))
                        (ws-send-file process path))))))
      (should (equal "<b>* Head\nsome *bold* text\n</b>" (porter-ws-body server "/b.html")))
      (should (equal 404 (porter-ws-status server "/none.txt")))
      (should (equal 404 (porter-ws-status server "/../b.txt")))
      (let ((response (porter-ws-fetch server "GET" "/b.pdf")))
        (should (equal 500 (porter-test-response-status response)))
        (should (equal "no export to pdf" (porter-test-response-body response)))))))

(ert-deftest porter-web-server-example-upload ()
  "A file's bytes as they were, its name beside them."
  (porter-ws-test
      (server '(((:POST . ".*") .
                 (lambda (request)
                   (with-slots (process headers) request
                     (let ((file (cdr (assoc "file" headers))))
                       (ws-response-header process 200 '("Content-type" . "text/plain"))
                       (process-send-string
                        process (concat (sha1 (cdr (assoc 'content file))) "  "
                                        (cdr (assoc 'filename file)) "\n"))))))))
    (let ((bytes (apply #'concat (make-list 300 (apply #'unibyte-string
                                                       (number-sequence 0 255))))))
      (should (equal (concat (sha1 bytes) "  x y.bin\n")
                     (porter-ws-post server "/" porter-ws-form-type
                                     (porter-ws-form
                                      (list "name=\"file\"; filename=\"x y.bin\"" bytes))))))))

(ert-deftest porter-web-server-example-web-socket ()
  "One handler for the page and the socket, whose process is kept and used from outside."
  (let (connection)
    (porter-ws-test
        (server (lambda (request)
                  (with-slots (process) request
                    (if (ws-web-socket-connect
                         request
                         (lambda (proc string)
                           (process-send-string
                            proc (ws-web-socket-frame (concat "you said: " string)))))
                        (prog1 :keep-alive (setq connection process))
                      (ws-response-header process 200 '("Content-type" . "text/html"))
                      (process-send-string process "<html>...</html>")))))
      (should (equal "<html>...</html>" (porter-ws-body server "/")))
      (should-not connection)
      (porter-ws-with-socket (client server)
        (porter-ws-send-frame client #x81 "foo")
        (porter-ws-should-hear client #x81 "you said: foo")
        (process-send-string connection (ws-web-socket-frame "from outside"))
        (porter-ws-should-hear client #x81 "from outside")))))

(ert-deftest porter-web-server-example-current-buffer ()
  "The handler finds itself in the buffer of the selected window."
  (let ((buffer (generate-new-buffer "porter-ws-shown")))
    (unwind-protect
        (save-window-excursion
          (switch-to-buffer buffer)
          (insert "what I look at")
          (porter-ws-test (server (lambda (request)
                                    (porter-ws-text request
                                                    (concat (buffer-name) ": "
                                                            (buffer-string)))))
            (with-temp-buffer           ; where this test is, is not where the user is
              (should (equal "porter-ws-shown: what I look at"
                             (porter-ws-body server "/"))))))
      (kill-buffer buffer))))

(ert-deftest porter-web-server-example-agenda ()
  "The head first, then code that goes to other buffers and windows, then the body."
  (porter-ws-test
      (server (lambda (request)
                (with-slots (process) request
                  (ws-response-header process 200 '("Content-type" . "text/plain"))
                  (process-send-string
                   process
                   (save-window-excursion
                     (pop-to-buffer (get-buffer-create " *porter-ws-agenda*"))
                     (erase-buffer)
                     (insert "the agenda")
                     (prog1 (buffer-string) (kill-buffer)))))))
    (let ((here (current-buffer)))
      (should (equal "the agenda" (porter-ws-body server "/")))
      (should (equal "the agenda" (porter-ws-body server "/")))
      (should (eq here (current-buffer))))))

(ert-deftest porter-web-server-example-search ()
  "A handler that goes to a buffer and stays there; a 404 of its own."
  (with-temp-buffer
    (insert "Ann 123\n")
    (let ((people (current-buffer)))
      (porter-ws-test
          (server (lambda (request)
                    (with-slots (process headers) request
                      (let ((name (cdr (assoc "name" headers))))
                        (unless name (ws-error process "Who?"))
                        (set-buffer people)
                        (goto-char (point-min))
                        (if (search-forward name nil t)
                            (progn (ws-response-header process 200)
                                   (process-send-string process (buffer-string)))
                          (ws-response-header process 404 '("Content-type" . "text/plain"))
                          (process-send-string process "no matches found"))))))
        (should (equal "Ann 123\n" (porter-ws-body server "/?name=Ann")))
        (let ((response (porter-ws-fetch server "GET" "/?name=Bob")))
          (should (equal 404 (porter-test-response-status response)))
          (should (equal "no matches found" (porter-test-response-body response))))
        (should (equal "Who?" (porter-ws-body server "/")))))))

(ert-deftest porter-web-server-example-export-service ()
  "Two fields of a form; the file that is sent is deleted at once."
  (porter-ws-with-directory root
    (porter-ws-test
        (server (lambda (request)
                  (with-slots (process headers) request
                    (let ((file (cdr (assoc "file" headers)))
                          (type (cdr (assoc 'content (cdr (assoc "type" headers))))))
                      (if (not (and file type))
                          (porter-ws-text request "a form")
                        (unless (equal type "txt") (ws-error process "no %s here" type))
                        (let ((path (expand-file-name (cdr (assoc 'filename file)) root)))
                          (write-region (upcase (cdr (assoc 'content file))) nil path
                                        nil 'quiet)
                          (ws-send-file process path)
                          (delete-file path)))))))
      (should (equal "a form" (porter-ws-body server "/")))
      (let ((form (lambda (type)
                    (porter-ws-form (list "name=\"type\"" type)
                                    '("name=\"file\"; filename=\"x.txt\"" "some text")))))
        (should (equal "SOME TEXT" (porter-ws-post server "/" porter-ws-form-type
                                                   (funcall form "txt"))))
        (should (equal "no doc here" (porter-ws-post server "/" porter-ws-form-type
                                                     (funcall form "doc"))))))))

(ert-deftest porter-web-server-example-json ()
  "A long answer in one string."
  (let ((numbers (number-sequence 0 200000)))
    (porter-ws-test
        (server (lambda (request)
                  (with-slots (process) request
                    (ws-response-header process 200 '("Content-type" . "application/json"))
                    (process-send-string process (json-encode numbers)))))
      (let ((response (porter-ws-fetch server "GET" "/")))
        (should (equal (json-encode numbers) (porter-test-response-body response)))
        (should (equal "application/json" (porter-test-header response "content-type")))))))

(ert-deftest porter-web-server-example-auto-mode ()
  "A file is shown in a temporary buffer of the handler's."
  (porter-ws-with-directory root
    (porter-ws-test
        (server (lambda (request)
                  (with-slots (process headers) request
                    (let ((path (ws-in-directory-p
                                 root (substring (cdr (assoc :GET headers)) 1))))
                      (if (file-directory-p path)
                          (ws-send-directory-list process path "\\.el\\'")
                        (ws-response-header process 200)
                        (process-send-string
                         process (with-temp-buffer
                                   (insert-file-contents-literally path)
                                   (emacs-lisp-mode)
                                   (format "%s %s" major-mode (buffer-string)))))))))
      (should (equal "emacs-lisp-mode (defun x ())\n" (porter-ws-body server "/c.el")))
      (should (equal "<ul><li><a href=\"c.el\">c.el</a></li></ul>"
                     (porter-ws-body server "/"))))))

(ert-deftest porter-web-server-example-gzip ()
  "An old name of the coding, too; the length is that of the compressed body."
  (porter-test-need "gzip")
  (let ((text (apply #'concat (make-list 50 "lorem ipsum é "))))
    (dolist (coding '("gzip" "x-gzip"))
      (porter-ws-test
          (server (lambda (request)
                    (with-slots (process) request
                      (ws-response-header process 200
                                          '("Content-type" . "text/plain; charset=utf-8")
                                          (cons "Content-Encoding" coding))
                      (ws-send process text))))
        (let ((response (porter-ws-fetch server "GET" "/")))
          (should (equal coding (porter-test-header response "content-encoding")))
          (should (< (length (porter-test-response-body response)) 200)))
        (should (equal text (decode-coding-string
                             (porter-ws-curl server "--compressed" "/") 'utf-8)))))))

(ert-deftest porter-web-server-example-chunks ()
  "Each piece leaves while the handler waits, and others are served meanwhile."
  (porter-test-need "curl")
  (let (reader early other)
    (porter-ws-test
        (server `(((:GET . "other") . ,(lambda (request) (porter-ws-text request "other")))
                  ((:GET . ".*") .
                   ,(lambda (request)
                      (with-slots (process) request
                        (ws-response-header process 200 '("Content-type" . "text/plain")
                                            '("Transfer-Encoding" . "chunked"))
                        (ws-send process "one\n")
                        (porter-test-child-await reader "one\n" 10)
                        (setq early (porter-test-child-output reader))
                        (setq other (porter-ws-curl (process-get process :server) "/other"))
                        (ws-send process "two\n"))))))
      (porter-test-with-child
          (curl (list "curl" "-sN" "--raw" (format "http://127.0.0.1:%d/"
                                                   (porter-ws-port server))))
        (setq reader curl)
        (should (eql 0 (porter-test-child-finish curl 20)))
        (should (equal "4\r\none\n\r\n" early))
        (should (equal "other" other))
        (should (equal "4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n"
                       (porter-test-child-output curl)))))))

(defvar porter-ws-shell-socket nil "Where what a hook hears goes.")
(defvar porter-ws-shell-hook nil "A hook that has nothing to do with servers.")

(defun porter-ws-shell-respond (string)
  "Send STRING to the browser, as long as Emacs lives."
  (when porter-ws-shell-socket
    (process-send-string porter-ws-shell-socket (ws-web-socket-frame string))))

(defun porter-ws-shell-hear (_process string)
  "What the browser says, STRING, is done later."
  (run-at-time 0 nil (lambda () (run-hook-with-args 'porter-ws-shell-hook
                                                    (concat "$ " string)))))

(defun porter-ws-shell-handler (request)
  "Connect REQUEST to the hook, or send the page."
  (with-slots (process) request
    (if (ws-web-socket-connect request 'porter-ws-shell-hear)
        (prog1 :keep-alive
          (setq porter-ws-shell-socket process)
          (add-hook 'porter-ws-shell-hook 'porter-ws-shell-respond))
      (porter-ws-text request "the page"))))

(ert-deftest porter-web-server-example-shell ()
  "A hook writes to the socket, also when the browser has gone."
  (let (porter-ws-shell-socket porter-ws-shell-hook)
    (porter-ws-test (server 'porter-ws-shell-handler)
      (should (equal "the page" (porter-ws-body server "/")))
      (porter-ws-with-socket (client server)
        (porter-ws-send-frame client #x81 "ls")
        (porter-ws-should-hear client #x81 "$ ls"))
      (porter-test-wait (lambda () (not (process-live-p porter-ws-shell-socket))) 5
                        "the browser's leaving was not noticed")
      ;; What a dead process does, and no more.
      (should-error (run-hook-with-args 'porter-ws-shell-hook "x"))
      (should (equal "the page" (porter-ws-body server "/"))))))

;;;; WebSockets, beyond the examples

(defmacro porter-ws-with-echo (spec &rest body)
  "Run BODY with a socket; SPEC is (CLIENT PROCESS MESSAGES).
PROCESS is the server's side, MESSAGES what it has heard, the last first."
  (declare (indent 1))
  `(let (,(nth 1 spec) ,(nth 2 spec))
     (porter-ws-test (server (lambda (request)
                               (setq ,(nth 1 spec)
                                     (ws-web-socket-connect
                                      request (lambda (_process string)
                                                (push string ,(nth 2 spec)))))
                               :keep-alive))
       (porter-ws-with-socket (,(car spec) server)
         ,@body))))

(ert-deftest porter-web-server-socket-fragments-and-pings ()
  "A message in fragments, with a ping between them, is one message."
  (porter-ws-with-echo (client _process messages)
    (porter-ws-send-frame client #x01 "f\303")
    (porter-ws-send-frame client #x89 "are you there")
    (porter-ws-send-frame client #x00 "\251")
    (porter-ws-send-frame client #x80 "te")
    (porter-ws-should-hear client #x8a "are you there")
    (porter-test-wait (lambda () messages) 5 "no message")
    (should (equal messages '("féte")))
    ;; Two in one packet, and a binary one.
    (porter-test-write client (concat (unibyte-string #x81 #x81 0 0 0 0 ?a #x81 #x81 0 0 0 0 ?b)
                                      (unibyte-string #x82 #x81 0 0 0 0 255)))
    (porter-test-wait (lambda () (nthcdr 3 messages)) 5 "only %S" (lambda () messages))
    (should (equal messages '("\377" "b" "a" "féte")))))

(ert-deftest porter-web-server-socket-split-at-every-byte ()
  "A frame that comes byte by byte."
  (porter-ws-with-echo (client _process messages)
    (porter-test-write-slowly client (concat (unibyte-string #x81 #xfe 0 200 0 0 0 0)
                                             (make-string 200 ?x)))
    (porter-test-wait (lambda () messages) 5 "no message")
    (should (equal messages (list (make-string 200 ?x))))))

(ert-deftest porter-web-server-socket-close-codes ()
  "The client's code comes back, its process ends; wrong frames are told why."
  (dolist (case `((#x88 "\003\350bye" "\003\350")       ; 1000
                  (#x88 "\017\240" "\017\240")          ; 4000
                  (#x88 "" "")
                  (#xc1 "x" "\003\352")                 ; a reserved bit: 1002
                  (#xa1 "x" "\003\352")
                  (#x83 "x" "\003\352")                 ; an opcode that is none
                  (#x81 "\377" "\003\357")))            ; no UTF-8: 1007
    (porter-ws-with-echo (client process messages)
      (porter-ws-send-frame client (nth 0 case) (nth 1 case))
      (porter-test-wait
       (lambda ()
         (string-prefix-p (concat (unibyte-string #x88) ) (porter-test-bytes client)))
       5 "no close frame for %S" case)
      (let ((bytes (porter-test-bytes client)))
        (should (string-equal (substring bytes 2 (min (length bytes) 4)) (nth 2 case))))
      (porter-test-wait (lambda () (not (process-live-p process))) 5
                        "the process outlives %S" case)
      (should-not messages))))

(ert-deftest porter-web-server-socket-unmasked-frame-is-refused ()
  "RFC 6455 5.1: what a client does not mask ends the connection."
  (porter-ws-with-echo (client process messages)
    (porter-test-write client (unibyte-string #x81 1 ?x))
    (porter-test-wait (lambda () (not (process-live-p process))) 5 "it lives on")
    (should (porter-test-await-close client 5))
    (should-not messages)))

(ert-deftest porter-web-server-socket-closed-by-the-server ()
  "`delete-process', a close frame by hand, and `ws-stop' each close the client's."
  (dolist (how '(delete frame stop))
    (porter-ws-with-echo (client process _messages)
      (pcase how
        ('delete (delete-process process))
        ('frame (process-send-string process (ws-web-socket-frame "\003\351" :CLOSE)))
        ('stop (ws-stop (car ws-servers))))
      (porter-test-wait (lambda () (string-prefix-p (unibyte-string #x88)
                                                    (porter-test-bytes client)))
                        5 "no close frame after %s" how)
      (porter-ws-send-frame client #x88 "\003\350")
      (should (porter-test-await-close client 5)))))

(ert-deftest porter-web-server-socket-error-in-its-handler ()
  "An error while a message is handled does not end the socket."
  (let (heard)
    (porter-ws-test (server (lambda (request)
                              (ws-web-socket-connect
                               request (lambda (_process string)
                                         (push string heard)
                                         (when (equal string "bad") (error "Boo"))))
                              :keep-alive))
      (porter-ws-with-socket (client server)
        (porter-ws-send-frame client #x81 "bad")
        (porter-ws-send-frame client #x81 "good")
        (porter-test-wait (lambda () (equal heard '("good" "bad"))) 5 "only %S"
                          (lambda () heard))))))

;;;; Packages: servers of tools, who find their port afterwards

(ert-deftest porter-web-server-package-tool-server ()
  "Port 0, a JSON body, `ws-send', a throw out of the handler, a sentinel on the listener."
  (porter-ws-need-json)
  (let (events stopped)
    (porter-ws-test
        (server
         `(((:POST . "^/mcp/") .
            ,(lambda (request)
               (let* ((process (ws-process request))
                      (session (substring (cdr (assoc :POST (ws-headers request))) 5))
                      (json (json-parse-string (ws-body request) :object-type 'alist))
                      (answer (encode-coding-string
                               (json-serialize `((id . ,(alist-get 'id json))
                                                 (session . ,session)
                                                 (text . ,(alist-get 'text json))))
                               'utf-8)))
                 (ws-response-header process 200
                                     '("Content-Type" . "application/json")
                                     (cons "Content-Length" (length answer)))
                 (ws-send process answer)
                 (throw 'close-connection nil))))
           ((:GET . ".*") . ,(lambda (request) (ws-send-404 (ws-process request)))))
         :host "127.0.0.1")
      (let* ((listener (ws-process server))
             (port (process-contact listener :service)))
        (should (and (integerp port) (> port 0)))
        (should (process-live-p listener))
        (set-process-sentinel listener (lambda (process event)
                                         (push (cons (process-status process) event) events)
                                         (setq stopped t)))
        (let ((answer (porter-ws-post server "/mcp/s1" "application/json"
                                      (encode-coding-string
                                       "{\"id\":7,\"text\":\"grüß\"}" 'utf-8))))
          (should (equal "{\"id\":7,\"session\":\"s1\",\"text\":\"grüß\"}" answer)))
        (should (equal 404 (porter-ws-status server "/x")))
        (ws-stop server)
        (porter-test-wait (lambda () stopped) 5 "the listener's sentinel did not run")
        (should (eq 'closed (caar events)))
        (should-not (porter-test-port-open-p port))))))

(ert-deftest porter-web-server-package-named-host-and-log ()
  "`:host' local, a log buffer by name, slots by `oref', headers with their nil, HEAD."
  (let* ((ws-servers nil) (log " *porter-ws-log*")
         (server (ws-start
                  (lambda (request)
                    (let* ((process (oref request process))
                           (headers (oref request headers))
                           (agent (cdr (seq-find (lambda (entry) (eq (car entry) :X-AGENT))
                                                 headers))))
                      (if (assoc :HEAD headers)
                          (ws-response-header process 204)
                        (ws-response-header process 200)
                        (process-send-string process (or agent "nobody")))))
                  0 log :host 'local :name "tools" :nowait t :reuseaddr nil :noquery t)))
    (unwind-protect
        (porter-test-quietly
          (should (equal "nobody" (porter-ws-body server "/")))
          (should (equal "me" (porter-ws-body server "/x" '(("X-Agent" . "me")))))
          (should (equal 204 (porter-test-response-status
                              (porter-ws-fetch server "HEAD" "/"))))
          (with-current-buffer log
            (should (eql 3 (count-lines (point-min) (point-max))))
            (goto-char (point-min))
            (should (looking-at "[0-9.]+\t127\\.0\\.0\\.1\t[0-9]+\t"))))
      (ws-stop server)
      (kill-buffer log))))

(ert-deftest porter-web-server-package-own-frames ()
  "A socket whose filter and sentinel are replaced, the old sentinel being called on."
  (let (frames left server-seen connection)
    (porter-ws-test
        (server (lambda (request)
                  (setq server-seen (process-get (ws-process request) :server))
                  (setq connection (ws-web-socket-connect request #'ignore))
                  (process-put connection 'mine 7)
                  (set-process-filter connection
                                      (lambda (_process bytes) (push bytes frames)))
                  (let ((before (process-sentinel connection)))
                    (set-process-sentinel connection
                                          (lambda (process event)
                                            (setq left (process-get process 'mine))
                                            (funcall before process event))))
                  :keep-alive)
                :host "127.0.0.1")
      (porter-ws-with-socket (client server)
        (should (eq server server-seen))
        (should-not (multibyte-string-p (ws-web-socket-frame "x")))
        (porter-ws-send-frame client #x81 "raw")
        (porter-test-wait (lambda () frames) 5 "no frame")
        ;; A frame as clients make them: final, text, masked.
        (let ((frame (apply #'concat (reverse frames))))
          (should (equal #x81 (aref frame 0)))
          (should (equal (logior 128 3) (aref frame 1)))
          (should (equal "raw" (ws-web-socket-mask (substring frame 2 6)
                                                   (substring frame 6)))))
        (process-send-string connection (unibyte-string #x81 2 ?o ?k))
        (porter-ws-should-hear client #x81 "ok"))
      (porter-test-wait (lambda () left) 5 "the sentinel did not run")
      (should (equal 7 left)))))

(ert-deftest porter-web-server-package-pushes-on-connect ()
  "The first message leaves from the handler that connects; slots under other names."
  (porter-ws-test (server (lambda (request)
                            (with-slots ((connection process) (fields headers)) request
                              (when (ws-web-socket-connect request #'ignore)
                                (process-send-string
                                 connection (ws-web-socket-frame
                                             (cdr (assoc :ORIGIN fields))))
                                :keep-alive))))
    (let ((origin (format "http://127.0.0.1:%d" (porter-ws-port server))))
      (porter-ws-with-socket (client server (list (cons "Origin" origin)))
        (porter-ws-should-hear client #x81 origin)))))

(ert-deftest porter-web-server-package-talks-to-an-extension ()
  "An origin that is not the server's is refused unless it is allowed."
  (let ((handler (lambda (request) (ws-web-socket-connect request #'ignore) :keep-alive))
        (origin '("Origin" . "chrome-extension://abc")))
    (porter-ws-test (server handler)
      (porter-test-with-client (client (porter-ws-port server))
        (should-error (porter-ws-shake-hands client (list origin)))))
    (porter-ws-test (server handler :allowed-origins '("chrome-extension://abc"))
      (porter-ws-with-socket (client server (list origin))
        (porter-ws-send-frame client #x89 "x")
        (porter-ws-should-hear client #x8a "x")))))

;;;; Packages: streams

(defun porter-ws-ticker (seconds noted)
  "A handler of an event stream that ticks every SECONDS, by a timer.
NOTED is called with the process at its start, and with the event at its end."
  (lambda (request)
    (with-slots (process) request
      (let ((n 0) (before (process-sentinel process)) timer)
        (ws-response-header process 200 '("Content-Type" . "text/event-stream")
                            '("Cache-Control" . "no-cache"))
        (setq timer (run-at-time
                     0 seconds
                     (lambda ()
                       (process-send-string process (format "id: %d\ndata: tick é %d\n\n" n n))
                       (setq n (1+ n)))))
        (set-process-sentinel process (lambda (process event)
                                        (cancel-timer timer)
                                        (funcall before process event)
                                        (funcall noted event)))
        (funcall noted process)
        :keep-alive))))

(defun porter-ws-check-ticks (server seconds period await stop)
  "Let a client have ticks of SERVER's for SECONDS, one every PERIOD of them.
AWAIT is called with a number and waits until the client has as many; STOP makes
the client leave."
  (let ((wanted (max 3 (ceiling (/ seconds period)))))
    (should (< (porter-test-seconds (funcall await wanted)) (+ 20 (* 2 seconds))))
    (should (eql 1 (length (ws-requests server))))
    (funcall stop)))

(defmacro porter-ws-with-ticker (spec &rest body)
  "Run BODY with a server of ticks, then fail unless it notices that the client left.
SPEC is (SERVER PERIOD)."
  (declare (indent 1))
  `(let* (process event
          (ticker (porter-ws-ticker ,(nth 1 spec)
                                    (lambda (what)
                                      (if (processp what) (setq process what)
                                        (setq event what))))))
     (porter-ws-test (,(car spec)
                      (lambda (request)
                        (if (equal (cdr (assoc :GET (ws-headers request))) "/ticks")
                            (funcall ticker request)
                          (porter-ws-page request))))
       ,@body
       (porter-test-wait (lambda () event) 10 "the client's leaving was not noticed")
       (should (equal event "connection broken by remote peer\n"))
       (should-not (process-live-p process))
       (porter-test-wait (lambda () (null (cl-delete-if-not
                                           (lambda (request)
                                             (process-live-p (ws-process request)))
                                           (copy-sequence (ws-requests ,(car spec))))))
                         5 "a request is left"))))

(defvar porter-ws-reports nil "What the page in the browser has said, the last first.")

(defun porter-ws-page (request)
  "A page that listens to /ticks and reports to /report; answer REQUEST, whichever it is."
  (with-slots (process headers) request
    (let ((report (assoc "report" headers)))
      (if report
          (progn (push (cdr report) porter-ws-reports)
                 (ws-response-header process 204))
        (ws-response-header process 200 '("Content-type" . "text/html; charset=utf-8"))
        (process-send-string
         process
         (concat "<!DOCTYPE html><link rel=icon href='data:,'><script>"
                 "const source = new EventSource('/ticks');"
                 "source.onmessage = e => fetch('/x?report=' + encodeURIComponent("
                 "e.lastEventId + ':' + e.data));"
                 "source.onerror = e => fetch('/x?report=error');"
                 "</script>"))))))

(ert-deftest porter-web-server-event-stream-to-curl ()
  "A timer writes to the kept process; curl reads each event, and its leaving is noticed."
  (porter-test-need "curl")
  (let* ((seconds (if porter-test-slow 60 3)) (period (if porter-test-slow 0.5 0.1)))
    (porter-ws-with-ticker (server period)
      (porter-test-with-child
          (curl (list "curl" "-sN" (format "http://127.0.0.1:%d/ticks"
                                           (porter-ws-port server))))
        (porter-ws-check-ticks
         server seconds period
         (lambda (n)
           (porter-test-child-await curl (format "id: %d\ndata: tick é %d\n\n" n n)
                                    (+ 15 (* 2 seconds))))
         (lambda () (porter-test-child-kill curl)))))))

(ert-deftest porter-web-server-event-stream-to-a-browser ()
  "The same for the EventSource of Chromium."
  (let* ((seconds (if porter-test-slow 60 3)) (period (if porter-test-slow 0.5 0.1))
         (program (or (cl-find-if #'executable-find '("chromium" "chromium-browser"))
                      (ert-skip "chromium is not installed")))
         (profile (make-temp-file "porter-chromium" t))
         (porter-ws-reports nil))
    (unwind-protect
        (porter-ws-with-ticker (server period)
          (porter-test-with-child
              (browser (list program "--headless" "--no-sandbox" "--disable-gpu"
                             "--no-first-run" "--disable-dev-shm-usage"
                             "--remote-debugging-port=0"
                             (concat "--user-data-dir=" profile)
                             (format "http://127.0.0.1:%d/" (porter-ws-port server))))
            (porter-ws-check-ticks
             server seconds period
             (lambda (n)
               (porter-test-wait (lambda () (member (format "%d:tick é %d" n n)
                                                    porter-ws-reports))
                                 (+ 30 (* 2 seconds)) "The page says %S"
                                 (lambda () porter-ws-reports)))
             (lambda () (porter-test-child-kill browser))))
          (should-not (member "error" porter-ws-reports)))
      (ignore-errors (delete-directory profile t)))))

(ert-deftest porter-web-server-package-streams-and-counts-them ()
  "The server is found by the process's plist; requests are taken off its list by hand."
  (let (process body listed)
    (porter-ws-test
        (server (lambda (request)
                  (setq process (ws-process request)
                        body (ws-trim (ws-body request))
                        listed (memq request
                                     (ws-requests (plist-get (process-plist process)
                                                             :server))))
                  (process-send-string
                   process (concat "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                   "Connection: keep-alive\r\n\r\n"))
                  (process-send-string process "data: hi\n\n")
                  :keep-alive))
      (porter-test-with-client (client (porter-ws-port server))
        (porter-test-write client (porter-test-request-bytes "POST" "/" nil "\r\n{}\r\n"))
        (should (porter-test-await client (lambda () (search-forward "data: hi\n\n" nil t)) 5))
        (should (equal "{}" body))
        (should listed)
        (process-send-string process "data: more\n\n")
        (should (porter-test-await client (lambda () (search-forward "data: more" nil t)) 5))
        (let ((server (process-get process :server)))
          (setf (ws-requests server)
                (cl-remove-if (lambda (request) (eq process (ws-process request)))
                              (ws-requests server)))
          (should-not (ws-requests server)))
        (delete-process process)
        (let ((response (porter-test-read client)))
          (should (equal "data: hi\n\ndata: more\n\n"
                         (porter-test-response-body response))))))))

(ert-deftest porter-web-server-package-stops-while-streams-are-open ()
  "`ws-stop' ends the streams, and the next server can have the port."
  (let* ((ws-servers nil) stream
         (handler (lambda (request)
                    (setq stream (ws-process request))
                    (ws-response-header stream 200)
                    (process-send-string stream "x")
                    :keep-alive)))
    (porter-test-quietly
      (let* ((server (ws-start handler 0)) (port (porter-ws-port server)))
        (porter-test-with-client (client port)
          (porter-test-write client (porter-test-request-bytes "GET" "/"))
          (porter-test-wait (lambda () stream) 5 "no request")
          (ws-stop server)
          (should-not (process-live-p stream))
          (should (porter-test-await-close client 5))
          (let ((again (ws-start handler port)))
            (should (eql port (porter-ws-port again)))
            (ws-stop again)))))))

;;;; Packages: forms, files, redirections

(ert-deftest porter-web-server-package-uploads-several ()
  "Predicates as matchers, the slot `context', several parts of one name, a redirection."
  (let ((post (lambda (request) (assoc :POST (ws-headers request)))))
    (porter-ws-test
        (server
         `((,(lambda (request)
               (and (funcall post request)
                    (eq (ws-context request) 'multipart/form-data)))
            . ,(lambda (request)
                 (with-slots (process headers) request
                   (ws-response-header process 200 '("Content-Type" . "text/plain"))
                   (process-send-string
                    process
                    (mapconcat (lambda (entry)
                                 (format "%s:%d" (cdr (assoc 'filename (cdr entry)))
                                         (length (cdr (assoc 'content (cdr entry))))))
                               (cl-remove-if-not (lambda (entry) (equal (car entry) "file"))
                                                 headers)
                               " ")))))
           (,post . ,(lambda (request)
                       (with-slots (process headers) request
                         (ws-response-header process 302 '("Location" . "/")
                                             (cons "Set-Cookie"
                                                   (concat "user="
                                                           (cdr (assoc "user" headers))))))))
           (,(lambda (_request) t)
            . ,(lambda (request)
                 (with-slots (process headers) request
                   (ws-send-404 process "%s: no such thing" (cdr (assoc :GET headers))))))))
      (should (ws-server-p server))
      (should (equal "a:1 b ü:3"
                     (porter-ws-post server "/" porter-ws-form-type
                                     (porter-ws-form
                                      '("name=\"file\"; filename=\"a\"" "1")
                                      (list (encode-coding-string
                                             "name=\"file\"; filename=\"b ü\"" 'utf-8)
                                            "\0\r\n")))))
      (let ((response (porter-ws-fetch server "POST" "/login"
                                       '(("Content-Type" . "application/x-www-form-urlencoded"))
                                       "user=me&x=1")))
        (should (equal 302 (porter-test-response-status response)))
        (should (equal "/" (porter-test-header response "location")))
        (should (equal "user=me" (porter-test-header response "set-cookie"))))
      (should (equal "/what: no such thing" (porter-ws-body server "/what"))))))

(ert-deftest porter-web-server-package-saves-a-page ()
  "Parameters of a form, decoded once more by the package; a file with a type; `ws-send-500'."
  (porter-ws-with-directory root
    (porter-ws-test
        (server
         `(((:POST . ".*") .
            ,(lambda (request)
               (with-slots (process headers) request
                 (let ((org (decode-coding-string (cdr (assoc "org" headers)) 'utf-8-unix)))
                   (when (equal org "") (ws-send-500 process "nothing to save in %s" "it"))
                   (ws-response-header process 200)
                   (process-send-string process (format "%d %s" (length org) org))))))
           ((:GET . ".*") .
            ,(lambda (request)
               (with-slots (process) request
                 (ws-send-file process (expand-file-name "b.org" root) "text/x-org"))))))
      (let ((type "application/x-www-form-urlencoded; charset=UTF-8"))
        (should (equal "7 - città" (porter-ws-post server "/b.org" type "org=-+citt%C3%A0&b=1")))
        (should (equal "nothing to save in it" (porter-ws-post server "/b.org" type "org="))))
      (should (equal "text/x-org"
                     (porter-test-header (porter-ws-fetch server "GET" "/b.org")
                                         "content-type"))))))

(ert-deftest porter-web-server-package-pastes ()
  "A field of a multipart form with text that is no UTF-8, saved as raw text."
  (let (pasted)
    (porter-ws-test
        (server (lambda (request)
                  (setq pasted (decode-coding-string
                                (cdr (assoc 'content (cdr (assoc "paste" (ws-headers request)))))
                                'raw-text))
                  (porter-ws-text request "http://example/1\n")))
      (should (equal "http://example/1\n"
                     (porter-ws-post server "/" porter-ws-form-type
                                     (porter-ws-form '("name=\"paste\"" "a\377\nb")))))
      (should (equal 4 (length pasted))))))

(ert-deftest porter-web-server-package-previews ()
  "Paths as matchers, the first match winning; port t; a handler with a catch of its own."
  (porter-ws-with-directory root
    (porter-test-quietly
      (let* ((ws-servers nil)
             (server (ws-start
                      (lambda (request)
                        (catch 'close-connection
                          (let ((path (cdr (assoc :GET (ws-headers request)))))
                            (if (string-match "\\`/\\(.*\\.txt\\)\\'" path)
                                (ws-send-file (ws-process request)
                                              (expand-file-name (match-string 1 path) root))
                              (ws-send-404 (ws-process request))))))
                      t nil :name "preview" :host "127.0.0.1")))
        (unwind-protect
            (progn
              (should (eq t (ws-port server)))
              (should (equal "a text\n" (porter-ws-body server "/a.txt")))
              (should (equal "404 Not Found" (porter-ws-body server "/b")))
              ;; Packages note there what they have found.
              (setf (ws-port server) (porter-ws-port server))
              (oset server port (porter-ws-port server))
              (should (eql (porter-ws-port server) (ws-port server)))
              (should (cl-find (porter-ws-port server) ws-servers :key #'ws-port)))
          (ws-stop server))))))

;;;; Packages: short-lived servers, blocking handlers

(ert-deftest porter-web-server-package-awaits-a-redirection ()
  "The list of servers let-bound, all of it stopped by the handler's timer."
  (porter-test-quietly
    (let* ((others (list 'other)) code port)
      (let ((ws-servers others))
        (let* ((ws-servers nil)
               (server (ws-start
                        (lambda (request)
                          (with-slots (process headers) request
                            (ws-response-header process 200)
                            (process-send-string process "You may close this window.")
                            (setq code (cdr (assoc "code" headers)))))
                        0)))
          (setq port (porter-ws-port server))
          (unwind-protect
              (should (equal "You may close this window."
                             (porter-ws-body server "/?state=1&code=a%2Fb")))
            (ws-stop-all)))
        (should (eq ws-servers others)))
      (should (equal "a/b" code))
      (should-not (porter-test-port-open-p port)))))

(ert-deftest porter-web-server-package-stops-in-its-handler ()
  "A handler that stops its own server; its client gets the answer."
  (porter-test-quietly
    (let* ((ws-servers nil) server)
      (setq server (ws-start (lambda (request)
                               (porter-ws-text request "bye")
                               (run-at-time 0.05 nil #'ws-stop server))
                             0))
      (should (equal "bye" (porter-ws-body server "/")))
      (porter-test-wait (lambda () (not (porter-test-port-open-p (porter-ws-port server)))) 5
                        "it listens on")
      (should-not ws-servers)
      (setq server (ws-start (lambda (request)
                               (porter-ws-text request "bye")
                               (ws-stop server))
                             0))
      (let ((port (porter-ws-port server)))
        ;; web-server deletes the connection there and then: no answer need come.
        (ignore-errors (porter-ws-body server "/"))
        (porter-test-wait (lambda () (not (porter-test-port-open-p port))) 5 "it listens on")
        (should-not ws-servers)))))

(ert-deftest porter-web-server-package-asks-while-it-answers ()
  "A handler that waits for an answer of another server, here of its own."
  (porter-ws-test
      (server `(((:GET . "inner") . ,(lambda (request) (porter-ws-text request "inner")))
                ((:GET . ".*") .
                 ,(lambda (request)
                    (let ((inhibit-quit nil))
                      (porter-ws-text request
                                      (concat "outer "
                                              (porter-ws-body
                                               (process-get (ws-process request) :server)
                                               "/inner"))))))))
    (should (equal "outer inner" (porter-ws-body server "/")))))

(ert-deftest porter-web-server-package-rpc ()
  "Authentication around a POST of JSON, whose errors the package answers itself."
  (porter-ws-need-json)
  (porter-ws-test
      (server (ws-with-authentication
               (lambda (request)
                 (with-slots (process body) request
                   (condition-case err
                       (let ((call (json-parse-string body :array-type 'list)))
                         (ws-response-header process 200
                                             '("Content-Type" . "application/json"))
                         (process-send-string
                          process (json-serialize
                                   (list :result (apply (intern (gethash "method" call))
                                                        (gethash "params" call))))))
                     (error
                      (ws-response-header process 400)
                      (process-send-string process (format "%S" (car err)))))))
               '(("user" . "pass")))
              :nowait t :reuseaddr nil)
    (let ((headers `(("Content-Type" . "application/json")
                     ("Authorization" . ,(concat "Basic "
                                                 (base64-encode-string "user:pass"))))))
      (should (equal "{\"result\":5}"
                     (porter-test-response-body
                      (porter-ws-fetch server "POST" "/" headers
                                       "{\"method\":\"+\",\"params\":[2,3]}"))))
      (should (equal 400 (porter-test-response-status
                          (porter-ws-fetch server "POST" "/" headers "{")))))))

(ert-deftest porter-web-server-package-answers-by-hand ()
  "Status lines and heads as people write them, with and without a length."
  (dolist (case '(("HTTP/1.1 200 OK\r\n\r\nbody" 200 "body")
                  ("HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nbody" 200 "body")
                  ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody" 200 "body")
                  ("HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-length: 0\r\n\r\n" 301 "")
                  ("HTTP/1.1 200 OK\nContent-Type: text/plain\n\nbody" 200 "body")
                  ("HTTP/1.1 418 I'm a teapot\r\nX: a: b\r\n\r\n" 418 "")
                  ("HTTP/1.1 200\r\n\r\nbody" 200 "body")
                  ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"
                   200 "body")))
    (porter-ws-test (server (lambda (request)
                              (process-send-string (ws-process request) (car case))))
      (let ((response (porter-ws-fetch server "GET" "/")))
        (should (equal (cons (nth 1 case) (nth 2 case))
                       (cons (porter-test-response-status response)
                             (porter-test-response-body response))))))))

(ert-deftest porter-web-server-package-answers-in-pieces ()
  "A head cut anywhere, by several sends; the body by several ways of sending."
  (porter-ws-test
      (server (lambda (request)
                (let ((process (ws-process request)))
                  (mapc (lambda (char) (process-send-string process (string char)))
                        "HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n")
                  (ws-send process "one ")
                  (with-temp-buffer
                    (insert "two ")
                    (process-send-region process (point-min) (point-max)))
                  (process-send-string (process-name process) "three"))))
    (let ((response (porter-ws-fetch server "GET" "/")))
      (should (equal "b" (porter-test-header response "x-a")))
      (should (equal "one two three" (porter-test-response-body response))))))

(ert-deftest porter-web-server-obsolete-names-are-opt-in ()
  "`process', `body' and the like are defined by a command only, and never over others."
  (let ((value (porter-test-batch-value
                30
                `(add-to-list 'load-path ,porter-test-lisp-directory)
                '(require 'porter-web-server)
                '(let ((before (mapcar #'fboundp '(process headers body port requests))))
                   (defalias 'port (lambda (_) 'mine))
                   (porter-web-server-define-aliases)
                   (let ((request (make-instance 'ws-request :process 1 :body "b")))
                     (list before (mapcar #'fboundp '(process headers body port requests))
                           (process request) (body request) (port request)))))))
    (should (equal value '((nil nil nil nil nil) (t t t t t) 1 "b" mine)))))

;;;; The manual

(defun porter-ws-manual-blocks ()
  "The Lisp of the manual's chapter on moving from web-server, in one string."
  (with-temp-buffer
    (insert-file-contents (expand-file-name "doc/manual.org" porter-test-root))
    (re-search-forward "^\\* Moving from web-server$")
    (let ((end (save-excursion (re-search-forward "^\\* ") (point)))
          (case-fold-search nil)
          blocks)
      (while (re-search-forward "^#\\+begin_src elisp\n\\(\\(?:.*\n\\)*?\\)#\\+end_src" end t)
        (push (match-string 1) blocks))
      (mapconcat #'identity (nreverse blocks) "\n"))))

(ert-deftest porter-web-server-manual-says-what-happens ()
  "In a fresh Emacs, each form of that chapter has the value that the manual gives."
  (let ((values
         (porter-test-batch-value
          60
          `(add-to-list 'load-path ,porter-test-lisp-directory)
          `(with-temp-buffer
             (insert ,(porter-ws-manual-blocks))
             (goto-char (point-min))
             (let (pairs)
               (while (re-search-forward "^(\\|^[a-z]" nil t)
                 (goto-char (match-beginning 0))
                 (let ((value (eval (read (current-buffer)) t)))
                   (when (looking-at "\n;; => ")
                     (goto-char (match-end 0))
                     (push (cons (read (current-buffer)) value) pairs))
                   (forward-line)))
               pairs)))))
    (should (eql 3 (length values)))
    (dolist (pair values)
      (should (equal (car pair) (cdr pair))))))

(provide 'porter-web-server-examples-tests)
;;; porter-web-server-examples-tests.el ends here
