;;; porter-api-tests.el --- The Lisp interface  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Starting and stopping, matchers, requests, answers, and what happens when handlers fail.

;;; Code:

(require 'porter-test-helper)
(require 'eieio)
(require 'url)

(defun porter-api--value (handler-value where target &optional method headers body)
  "Ask WHERE for TARGET and return what HANDLER-VALUE returned for the request.
HANDLER-VALUE is the cell of `porter-api-with-request'."
  (setcar handler-value 'none)
  (porter-test-fetch where (or method "GET") target headers body)
  (car handler-value))

(defmacro porter-api-with-request (spec form &rest body)
  "Run BODY, in which (ask TARGET &optional METHOD HEADERS BODY) returns FORM of a request.
SPEC is (REQUEST), the variable bound around FORM in the handler."
  (declare (indent 2) (debug (sexp form body)))
  (let ((cell (make-symbol "cell")) (server (make-symbol "server")))
    `(let ((,cell (list nil)))
       (porter-test-with-server
           (,server (lambda (,(car spec))
                      (setcar ,cell (condition-case err ,form (error (list 'error err))))
                      (porter-test-answer ,(car spec) "")))
         (cl-flet ((ask (target &optional method headers body)
                        (porter-api--value ,cell ,server target method headers body)))
           ,@body)))))

;;;; Start and stop

(ert-deftest porter-api-start-and-stop ()
  "A started server is listed, live and served; a stopped one is none of that."
  (porter-test-quietly
    (let* ((server (porter-start #'porter-test-hello 0))
           (port (porter-port server)))
      (unwind-protect
          (progn
            (should (porter-server-p server))
            (should (integerp port))
            (should (> port 0))
            (should (equal port (porter-server-port server)))
            (should (memq server (porter-servers)))
            (should (porter-live-p server))
            (should (stringp (porter-server-name server)))
            (should (member (porter-server-host server) '("127.0.0.1" "localhost")))
            (should (eq (porter-server-handlers server) #'porter-test-hello))
            (should (< (abs (float-time (time-since (porter-server-started server)))) 60))
            (should (equal (format "http://127.0.0.1:%d/" port) (porter-url server)))
            (should (equal (format "http://127.0.0.1:%d/a/b?c" port)
                           (porter-url server "/a/b?c")))
            (should (equal "hello" (porter-test-get-body server "/"))))
        (porter-stop server))
      (should-not (porter-live-p server))
      (should-not (memq server (porter-servers)))
      (should-not (porter-test-port-open-p port))
      ;; Twice is once.
      (porter-stop server))))

(ert-deftest porter-api-any-port ()
  "Port t is any free one, as 0 is."
  (porter-test-with-server (server #'porter-test-hello :port t)
    (should (> (porter-port server) 0))
    (porter-test-should-serve server)))

(ert-deftest porter-api-given-port ()
  "A port that is asked for is the one."
  (let ((port (porter-test-free-port)))
    (porter-test-with-server (server #'porter-test-hello :port port)
      (should (equal port (porter-port server)))
      (porter-test-should-serve server))))

(ert-deftest porter-api-taken-port-signals ()
  "A taken port signals `file-error' in the caller, with the port in the message."
  (let* ((other (make-network-process :name "porter-test-other" :server t :noquery t
                                      :host "127.0.0.1" :service t :family 'ipv4))
         (port (process-contact other :service))
         (before (length (porter-servers))))
    (unwind-protect
        (let ((err (should-error (porter-start #'porter-test-hello port) :type 'file-error)))
          (should (string-match-p (number-to-string port) (error-message-string err)))
          (should (= before (length (porter-servers)))))
      (delete-process other))
    ;; And it is to be had once it is free.
    (porter-test-with-server (server #'porter-test-hello :port port)
      (porter-test-should-serve server))))

(ert-deftest porter-api-own-port-signals ()
  "A port taken by another of Porter's servers signals too, and that one serves on."
  (porter-test-with-server (server #'porter-test-hello)
    (should-error (porter-start #'porter-test-hello (porter-port server)) :type 'file-error)
    (porter-test-should-serve server)))

(ert-deftest porter-api-bad-arguments ()
  "What is no handler, port or keyword signals at once, and leaves nothing behind."
  (let ((before (length (porter-servers))))
    (dolist (handlers '(5 "x" ((1 . ignore)) (((:GET . "^/")))))
      (should-error (porter-start handlers 0) :type 'porter-bad-handlers))
    (dolist (port '(-1 65536 1.5 nil))
      (should-error (porter-start #'ignore port)))
    (should-error (porter-start #'ignore 0 nil :max-body "much"))
    (should (= before (length (porter-servers))))))

(ert-deftest porter-api-errors-are-porter-errors ()
  "Porter's errors have one parent."
  (dolist (condition '(porter-module-error porter-invalid-header porter-invalid-status
                                           porter-bad-handlers))
    (should (memq 'porter-error (get condition 'error-conditions)))))

(ert-deftest porter-api-unix-socket ()
  "A server on a Unix-domain socket."
  (let* ((directory (make-temp-file "porter-test" t))
         (file (expand-file-name "s" directory)))
    (unwind-protect
        (progn
          (porter-test-with-server (server #'porter-test-hello :port file :family 'local)
            (should (file-exists-p file))
            (should (equal (concat "unix:" file) (porter-url server)))
            (should (equal "hello" (porter-test-get-body file "/"))))
          (should-not (file-exists-p file))
          ;; Again on the same name.
          (porter-test-with-server (server #'porter-test-hello :port file :family 'local)
            (should (equal "hello" (porter-test-get-body file "/")))))
      (delete-directory directory t))))

(ert-deftest porter-api-unix-socket-keeps-files ()
  "A file that is no socket is never replaced by one."
  (let ((file (make-temp-file "porter-test" nil nil "precious")))
    (unwind-protect
        (progn
          (should-error (porter-start #'porter-test-hello file nil :family 'local)
                        :type 'file-error)
          (should (equal "precious" (with-temp-buffer (insert-file-contents file)
                                                      (buffer-string)))))
      (delete-file file))))

(ert-deftest porter-api-ipv6 ()
  "A server on the IPv6 loopback address."
  (unless (ignore-errors
            (delete-process (make-network-process :name "porter-test-six" :server t :noquery t
                                                  :host "::1" :service t :family 'ipv6))
            t)
    (ert-skip "no IPv6 here"))
  (porter-test-with-server (server #'porter-test-hello :host "::1")
    (should (equal (format "http://[::1]:%d/" (porter-port server)) (porter-url server)))
    (porter-test-with-client (client "::1" (porter-port server))
      (should (= 200 (porter-test-response-status (porter-test-ask client "GET" "/")))))))

(ert-deftest porter-api-localhost ()
  "A server of localhost answers on the IPv4 address, and on the IPv6 one where there is one."
  (porter-test-with-server (server #'porter-test-hello :host "localhost")
    (porter-test-with-client (client "127.0.0.1" (porter-port server))
      (should (= 200 (porter-test-response-status (porter-test-ask client "GET" "/")))))
    (when (ignore-errors
            (delete-process (make-network-process :name "porter-test-six" :server t :noquery t
                                                  :host "::1" :service t :family 'ipv6))
            t)
      (porter-test-with-client (client "::1" (porter-port server))
        (should (= 200 (porter-test-response-status (porter-test-ask client "GET" "/"))))))))

(ert-deftest porter-api-several-servers ()
  "Servers live side by side, and stopping one leaves the others."
  (porter-test-quietly
    (let ((servers (mapcar (lambda (i)
                             (porter-start (lambda (request)
                                             (porter-test-answer request (format "%d" i)))
                                           0))
                           (number-sequence 0 4))))
      (unwind-protect
          (progn
            (should (eq (car (last servers)) (car (porter-servers))))
            (cl-loop for server in servers for i from 0
                     do (should (equal (format "%d" i) (porter-test-get-body server "/"))))
            (porter-stop (nth 2 servers))
            (cl-loop for server in servers for i from 0
                     unless (= i 2)
                     do (should (equal (format "%d" i) (porter-test-get-body server "/")))))
        (mapc #'porter-stop servers)))))

(ert-deftest porter-api-stop-all ()
  "`porter-stop-all' stops every server."
  (porter-test-quietly
    (let ((servers (list (porter-start #'porter-test-hello 0)
                         (porter-start #'porter-test-hello 0))))
      (porter-stop-all)
      (should-not (porter-servers))
      (dolist (server servers)
        (should-not (porter-live-p server))
        (should-not (porter-test-port-open-p (porter-server-port server)))))))

(ert-deftest porter-api-stop-lets-answers-finish ()
  "Stopping closes the listener, and an answer under way is still finished."
  (porter-test-quietly
    (let* (pending
           (server (porter-start (lambda (request) (setq pending request) :keep-alive) 0))
           (port (porter-port server)))
      (unwind-protect
          (porter-test-with-client (client server)
            (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            (porter-test-wait (lambda () pending) 5 "No request")
            (run-at-time 0.1 nil (lambda () (porter-test-answer pending "finished")))
            (porter-stop server)
            (should-not (porter-test-port-open-p port))
            (should (equal "finished" (porter-test-response-body (porter-test-read client))))
            (porter-test-should-close client))
        (porter-stop server)))))

(ert-deftest porter-api-stop-closes-idle-connections ()
  "Stopping closes connections that wait for a next request."
  (porter-test-quietly
    (let ((server (porter-start #'porter-test-hello 0)))
      (unwind-protect
          (porter-test-with-client (client server)
            (porter-test-ask client "GET" "/")
            (porter-stop server)
            (porter-test-should-close client))
        (porter-stop server)))))

(ert-deftest porter-api-stop-in-a-handler ()
  "A handler may stop its own server; its answer still arrives."
  (let (server)
    (porter-test-quietly
      (setq server (porter-start (lambda (request)
                                   (porter-test-answer request "bye")
                                   (porter-stop server))
                                 0))
      (unwind-protect
          (progn
            (should (equal "bye" (porter-test-get-body server "/")))
            (should-not (porter-live-p server)))
        (porter-stop server)))))

(ert-deftest porter-api-statistics ()
  "Connections, requests and errors are counted."
  (porter-test-with-server (server `(((:GET . "^/ok$") . porter-test-hello)
                                     ((:GET . "^/boom$") . ,(lambda (_) (error "Boom")))))
    (porter-test-with-client (client server)
      (dotimes (_ 3) (porter-test-ask client "GET" "/ok"))
      (porter-test-ask client "GET" "/boom")
      (porter-test-wait (lambda ()
                          (let ((statistics (porter-server-statistics server)))
                            (and (= 1 (plist-get statistics :connections))
                                 (= 4 (plist-get statistics :requests))
                                 (= 1 (plist-get statistics :errors)))))
                        2 "Statistics are %S"
                        (lambda () (porter-server-statistics server))))
    (porter-test-wait (lambda ()
                        (= 0 (plist-get (porter-server-statistics server) :connections)))
                      2 "A closed connection is still counted")))

;;;; Matchers

(defun porter-api--say (word)
  "Return a handler that answers WORD."
  (lambda (request) (porter-test-answer request word)))

(ert-deftest porter-api-single-function ()
  "HANDLERS may be one function, for all requests."
  (porter-test-with-server (server #'porter-test-hello)
    (dolist (method '("GET" "POST" "DELETE"))
      (should (= 200 (porter-test-response-status (porter-test-fetch server method "/x/y")))))))

(ert-deftest porter-api-matchers ()
  "Each kind of matcher, and the first match wins."
  (porter-test-with-server
      (server `((,(lambda (request) (equal (porter-request-path request) "/predicate"))
                 . ,(porter-api--say "predicate"))
                ((:X-COLOUR . "^blue$") . ,(porter-api--say "header"))
                ((:GET . "^/get") . ,(porter-api--say "get"))
                ((:POST . "^/post") . ,(porter-api--say "post"))
                (((:PUT :PATCH) . "^/list") . ,(porter-api--say "list"))
                ((t . "^/any$") . ,(porter-api--say "any"))
                ("/users/:id" . ,(lambda (request)
                                   (porter-test-answer
                                    request (porter-request-route-param request "id"))))
                ("/files/*rest" . ,(lambda (request)
                                     (porter-test-answer
                                      request (porter-request-route-param request "rest"))))
                ((:DELETE :route "/things/:a/:b")
                 . ,(lambda (request)
                      (porter-test-answer
                       request (concat (porter-request-route-param request "a") "+"
                                       (porter-request-route-param request "b")))))
                (((:GET :PUT) :route "/both/:x") . ,(porter-api--say "both"))
                ((:GET . "^/get") . ,(porter-api--say "never"))))
    (pcase-dolist
        (`(,method ,target ,status ,body . ,headers)
         '(("GET" "/predicate" 200 "predicate")
           ("PUT" "/predicate" 200 "predicate")
           ("GET" "/get" 200 "get")
           ("GET" "/getting/more?x=1" 200 "get")
           ("GET" "/nowhere" 200 "header" ("X-Colour" . "blue"))
           ("GET" "/get" 200 "header" ("x-cOLOUR" . "blue"))
           ("GET" "/nowhere" 404 nil ("X-Colour" . "blueish"))
           ("POST" "/posting" 200 "post")
           ("PUT" "/list" 200 "list")
           ("PATCH" "/list" 200 "list")
           ("GET" "/any" 200 "any")
           ("OPTIONS" "/any" 200 "any")
           ("GET" "/any/more" 404 nil)
           ("GET" "/users/7" 200 "7")
           ("DELETE" "/users/a%20b" 200 "a b")
           ("GET" "/users/" 404 nil)
           ("GET" "/users/7/8" 404 nil)
           ("GET" "/files/a/b/c.txt" 200 "a/b/c.txt")
           ("DELETE" "/things/1/2" 200 "1+2")
           ("PUT" "/both/1" 200 "both")))
      (let ((response (porter-test-fetch server method target headers)))
        (should (equal (list method target status)
                       (list method target (porter-test-response-status response))))
        (when body (should (equal body (porter-test-response-body response))))))))

(ert-deftest porter-api-no-match-is-404 ()
  "Nothing matches: 404, and the page does not echo what was asked unescaped."
  (porter-test-with-server (server `(((:GET . "^/a$") . ,(porter-api--say "a"))))
    (let ((response (porter-test-get server "/%3Cscript%3E")))
      (should (= 404 (porter-test-response-status response)))
      (should-not (string-match-p "<script>" (porter-test-response-body response))))))

(ert-deftest porter-api-only-method-differs-is-405 ()
  "Only the method differs: 405, and Allow names the methods that would do."
  (porter-test-with-server (server `(((:GET . "^/a$") . ,(porter-api--say "a"))
                                     (((:PUT :POST) . "^/a$") . ,(porter-api--say "a"))
                                     ((:DELETE :route "/a") . ,(porter-api--say "a"))
                                     ((:PATCH . "^/b$") . ,(porter-api--say "b"))))
    (let* ((response (porter-test-fetch server "PATCH" "/a"))
           (allow (split-string (or (porter-test-header response "allow") "") "[ ,]+" t)))
      (should (= 405 (porter-test-response-status response)))
      (dolist (method '("GET" "PUT" "POST" "DELETE"))
        (should (member method allow)))
      (should-not (member "PATCH" allow)))
    (should (= 404 (porter-test-response-status (porter-test-fetch server "PATCH" "/c"))))))

(ert-deftest porter-api-regexps-are-case-sensitive ()
  "Paths are matched with their case, whatever `case-fold-search' is."
  (let ((case-fold-search t))
    (porter-test-with-server (server `(((:GET . "^/a$") . ,(porter-api--say "a"))))
      (should (= 404 (porter-test-response-status (porter-test-get server "/A")))))))

(ert-deftest porter-api-handlers-keep-the-match-data ()
  "A request does not disturb the match data of what it interrupts."
  (porter-test-with-server (server `(((:GET . "\\(x\\)y") . ,(porter-api--say "a"))))
    (porter-test-with-client (client server)
      (porter-test-write client "GET /xy HTTP/1.1\r\nHost: localhost\r\n\r\n")
      (string-match "b\\(c\\)" "abcd")
      (let ((data (match-data)))
        (while (accept-process-output nil 0.2))
        (should (equal data (match-data)))))))

(ert-deftest porter-api-replace-handlers ()
  "The handlers of a running server can be replaced."
  (porter-test-with-server (server (porter-api--say "old"))
    (porter-test-with-client (client server)
      (should (equal "old" (porter-test-response-body (porter-test-ask client "GET" "/"))))
      (setf (porter-server-handlers server) `(((:GET . "*") . ,(porter-api--say "new"))))
      (should (equal "new" (porter-test-response-body (porter-test-ask client "GET" "/")))))))

;;;; Requests

(ert-deftest porter-api-request-accessors ()
  "The accessors say what was asked."
  (porter-api-with-request (request)
      (list (porter-request-method request)
            (porter-request-path request)
            (porter-request-target request)
            (porter-request-query request)
            (porter-request-param request "x")
            (porter-request-param request "none")
            (porter-request-param request "none" "default")
            (porter-request-header request "x-a")
            (porter-request-header request "X-A")
            (porter-request-header request :X-A)
            (porter-request-header request :x-a)
            (porter-request-header request "none")
            (porter-request-body request))
    (should (equal (ask "/a%20b/%C3%BC?x=1&y=2" "GET" '(("X-a" . "v w")))
                   '(:GET "/a b/\u00fc" "/a%20b/%C3%BC?x=1&y=2" (("x" . "1") ("y" . "2"))
                          "1" nil "default" "v w" "v w" "v w" "v w" nil "")))))

(ert-deftest porter-api-request-headers-alist ()
  "The `headers' slot: method and path, then the parameters, then the header lines."
  (porter-api-with-request (request) (slot-value request 'headers)
    (should (equal (ask "/a%20b?x=1&y=%C3%BC&x=3" "GET"
                        '(("Host" . "localhost") ("X-A" . "v") ("Accept" . "*/*")))
                   '((:GET . "/a b") ("x" . "1") ("y" . "\u00fc") ("x" . "3")
                     (:HOST . "localhost") (:X-A . "v") (:ACCEPT . "*/*"))))
    (should (equal (ask "/?q=1" "POST" '(("Host" . "localhost")
                                         ("Content-Type" . "application/x-www-form-urlencoded"))
                        "a=b+c&q=2")
                   '((:POST . "/") ("q" . "1") ("a" . "b c") ("q" . "2")
                     (:HOST . "localhost") (:CONTENT-TYPE . "application/x-www-form-urlencoded")
                     (:CONTENT-LENGTH . "9"))))))

(ert-deftest porter-api-request-headers-are-lazy ()
  "The alist is made when looked at, once."
  (porter-api-with-request (request)
      (eq (slot-value request 'headers) (slot-value request 'headers))
    (should (eq t (ask "/")))))

;; Once somebody has looked at the slot it is filled beforehand for a while.
(ert-deftest porter-api-headers-of-each-request ()
  "Whatever was asked before, the slot `headers' is that of its request, forms and all."
  (let (look)
    (porter-test-with-server
        (server (lambda (request)
                  (porter-test-answer
                   request (if look
                               (cdr (assoc "n" (slot-value request 'headers)))
                             "not looked"))))
      (porter-test-with-client (client server)
        (dotimes (i 300)
          (setq look (/= 1 (% i 3)))
          (let ((n (number-to-string i)))
            (should (equal (if look n "not looked")
                           (porter-test-response-body
                            (if (= 0 (% i 5))
                                (porter-test-ask
                                 client "POST" "/"
                                 '(("Content-Type" . "application/x-www-form-urlencoded"))
                                 (concat "n=" n))
                              (porter-test-ask client "GET" (concat "/?n=" n))))))))))))

(ert-deftest porter-api-request-with-slots ()
  "The slots can be read by `with-slots' and `oref', and `context' be set."
  (porter-api-with-request (request)
      (with-slots (process headers body context) request
        (setf (slot-value request 'context) '(1 2))
        (list (porter-live-p process) (caar headers) body (oref request context)))
    (should (equal (ask "/" "PUT" nil "bytes") '(t :PUT "bytes" (1 2))))))

(ert-deftest porter-api-request-is-an-object ()
  "Requests are of the class `porter-request'."
  (porter-api-with-request (request) (cl-typep request 'porter-request)
    (should (ask "/"))))

(ert-deftest porter-api-request-header-lines ()
  "All header lines are there, in order, also those of one name."
  (porter-api-with-request (request)
      (list (cl-remove-if-not (lambda (field)
                                (string-match-p "x-a\\'" (downcase (format "%s" (car field)))))
                              (porter-request-headers request))
            (porter-request-header request "x-a"))
    (pcase (ask "/" "GET" '(("X-A" . "1") ("X-B" . "2") ("X-A" . "3")))
      (`(,lines ,value)
       (should (equal '("1" "3") (mapcar #'cdr lines)))
       (should (member value '("1" "1, 3")))))))

(ert-deftest porter-api-request-parameters ()
  "How queries are decoded."
  (porter-api-with-request (request) (porter-request-query request)
    (pcase-dolist
        (`(,query . ,parameters)
         '(("" . nil)
           ("a" ("a" . ""))
           ("a=" ("a" . ""))
           ("=b" ("" . "b"))
           ("a=1&b=2&a=3" ("a" . "1") ("b" . "2") ("a" . "3"))
           ("a=1&&b=2&" ("a" . "1") ("b" . "2"))
           ("a=b=c=d" ("a" . "b=c=d"))
           ("a=b+c%20d" ("a" . "b c d"))
           ("a%20b+c=1" ("a b c" . "1"))
           ("a=%2B" ("a" . "+"))
           ("a=x%26b%3Dy&c=z" ("a" . "x&b=y") ("c" . "z"))
           ("a=%2541" ("a" . "%41"))
           ("a=%C3%BC%e2%82%ac" ("a" . "\u00fc\u20ac"))
           ("a=%F0%9F%98%80" ("a" . "\U0001f600"))
           ("a=%" ("a" . "%"))
           ("a=%4" ("a" . "%4"))
           ("a=%zz" ("a" . "%zz"))
           ("a=1;b=2" ("a" . "1;b=2"))
           ("?a=1" ("?a" . "1"))
           ("a=/path?x" ("a" . "/path?x"))
           ("a=%0D%0A" ("a" . "\r\n"))))
      (should (equal (cons query parameters)
                     (cons query (ask (concat "/?" query))))))))

(ert-deftest porter-api-request-bad-utf-8-parameter ()
  "Bytes that are no UTF-8 do not make a handler fail, and are not lost."
  (porter-api-with-request (request)
      (let ((value (porter-request-param request "a")))
        (list (stringp value) (encode-coding-string value 'utf-8-unix)))
    (should (equal (ask "/?a=x%FFy") '(t "x\377y")))
    (should (equal (ask "/?a=%E2%82") '(t "\342\202")))))

(ert-deftest porter-api-request-param-order ()
  "`porter-request-param': the query comes first, then the form."
  (porter-api-with-request (request)
      (list (porter-request-param request "a") (porter-request-param request "b")
            (porter-request-param request "c"))
    (should (equal (ask "/?a=1&a=2" "POST"
                        '(("Content-Type" . "application/x-www-form-urlencoded; charset=UTF-8"))
                        "a=3&b=4")
                   '("1" "4" nil)))
    ;; A body of another type is no form.
    (should (equal (ask "/?a=1" "POST" '(("Content-Type" . "text/plain")) "a=3&b=4")
                   '("1" nil nil)))))

(ert-deftest porter-api-request-cookies ()
  "Cookies are an alist, and one is to be had by name."
  (porter-api-with-request (request)
      (list (porter-request-cookies request) (porter-request-cookie request "b")
            (porter-request-cookie request "none"))
    (should (equal (ask "/" "GET" '(("Cookie" . "a=1; b=x=y; c=\"q\"; d=")))
                   '((("a" . "1") ("b" . "x=y") ("c" . "q") ("d" . "")) "x=y" nil)))
    (should (equal (ask "/") '(nil nil nil)))))

(ert-deftest porter-api-request-body-text-json ()
  "The body as bytes, as text by its charset, and as JSON."
  (porter-api-with-request (request)
      (list (porter-request-body request)
            (multibyte-string-p (porter-request-body request))
            (porter-request-text request))
    (should (equal (ask "/" "POST" nil "\303\274") '("\303\274" nil "\u00fc")))
    (should (equal (ask "/" "POST" '(("Content-Type" . "text/plain; charset=iso-8859-1")) "\374")
                   '("\374" nil "\u00fc"))))
  (porter-api-with-request (request)
      (let ((json (porter-request-json request)))
        (if (hash-table-p json) (gethash "a" json)
          (cdr (or (assq 'a json) (assoc "a" json)))))
    (should (equal "\u00fc" (ask "/" "POST" '(("Content-Type" . "application/json"))
                                 "{\"a\":\"\303\274\"}")))
    (should (eq 'error (car-safe (ask "/" "POST" '(("Content-Type" . "application/json"))
                                      "{\"a\":"))))))

(ert-deftest porter-api-request-remote ()
  "The client's address."
  (porter-api-with-request (request) (porter-request-remote request)
    (should (string-match-p "\\`127\\.0\\.0\\.1\\(:[0-9]+\\)?\\'" (format "%s" (ask "/"))))))

(ert-deftest porter-api-request-outlives-its-answer ()
  "What was looked at stays with a request; the rest is nil after its answer, and harmless."
  (let (kept)
    (porter-test-with-server (server (lambda (request)
                                       (unless kept (setq kept request))
                                       (slot-value request 'headers)
                                       (porter-request-body request)
                                       (porter-test-hello request)))
      (porter-test-post server "/p?x=1" "body" '("X-A" . "v"))
      ;; Others in its place in C.
      (dotimes (_ 3) (porter-test-should-serve server)))
    (garbage-collect)
    (should (equal "/p" (cdar (slot-value kept 'headers))))
    (should (equal "1" (cdr (assoc "x" (slot-value kept 'headers)))))
    (should (equal "v" (cdr (assq :X-A (slot-value kept 'headers)))))
    (should (equal "body" (porter-request-body kept)))
    (dolist (accessor '(porter-request-method porter-request-path porter-request-target
                        porter-request-query porter-request-headers porter-request-remote))
      (should-not (funcall accessor kept)))
    (should-not (porter-live-p (porter-test-process kept)))))

;;;; Answers

(ert-deftest porter-api-n-plus-one ()
  "The handler that answers n+1."
  (porter-test-quietly
    (let ((server
           (porter-start
            '(((:GET . "*") .
               (lambda (request)
                 (with-slots (process headers) request
                   (porter-response-header process 200 '("Content-type" . "text/plain"))
                   (porter-send process
                     (number-to-string (1+ (string-to-number (cdr (assoc "n" headers))))))))))
            0)))
      (unwind-protect
          (progn
            (should (equal "42" (porter-test-get-body server "/?n=41")))
            (when (executable-find "curl")
              (should (equal '(0 . "43")
                             (porter-test-run
                              (list "curl" "-s" "-G" "-d" "n=42"
                                    (format "http://localhost:%d" (porter-port server)))
                              10)))))
        (porter-stop server)))))

(ert-deftest porter-api-send-characters-and-bytes ()
  "Multibyte strings go out as UTF-8, unibyte ones as they are."
  (let ((bytes (apply #'unibyte-string (number-sequence 0 255))))
    (porter-test-with-server
        (server (lambda (request)
                  (let ((process (porter-test-process request)))
                    (porter-response-header process 200)
                    (should (eq t (porter-send process "a\u00fc\u20ac\U0001f600")))
                    (porter-send process bytes)
                    (porter-send process ""))))
      (should (equal (concat "a\303\274\342\202\254\360\237\230\200" bytes)
                     (porter-test-get-body server "/"))))))

(ert-deftest porter-api-send-raw-bytes-among-characters ()
  "Raw bytes in a multibyte string go out as bytes or are refused; nothing in between."
  (let (value)
    (porter-test-with-server
        (server (lambda (request)
                  (let ((process (porter-test-process request)))
                    (porter-response-header process 200)
                    (setq value (condition-case err
                                    (porter-send process (concat "\u00fc"
                                                                 (string-to-multibyte "\377")))
                                  (wrong-type-argument err))))))
      (should (equal (porter-test-get-body server "/")
                     (if (eq value t) "\303\274\377" ""))))))

(ert-deftest porter-api-send-many-strings ()
  "Ten thousand small strings make one body."
  (porter-test-with-server (server (lambda (request)
                                     (let ((process (porter-test-process request)))
                                       (porter-response-header process 200)
                                       (dotimes (i 10000)
                                         (porter-send process (format "%d\n" i))))))
    (should (equal (mapconcat (lambda (i) (format "%d\n" i)) (number-sequence 0 9999) "")
                   (porter-test-get-body server "/")))))

(ert-deftest porter-api-respond ()
  "`porter-respond' says all in one."
  (porter-test-with-server
      (server (lambda (request)
                (porter-respond (porter-test-process request) 201
                                '(("Content-Type" . "text/x") ("X-A" . "1") ("X-A" . "2"))
                                "b\u00fc")))
    (let ((response (porter-test-get server "/")))
      (should (= 201 (porter-test-response-status response)))
      (should (equal "text/x" (porter-test-header response "content-type")))
      (should (equal "1, 2" (porter-test-header response "x-a")))
      (should (equal "b\303\274" (porter-test-response-body response))))))

(ert-deftest porter-api-helpers ()
  "404, 500, redirects and JSON in one call each."
  (porter-test-with-server
      (server (lambda (request)
                (let ((process (porter-test-process request)))
                  (pcase (porter-request-path request)
                    ("/404" (porter-send-404 process "No %s here" "tea")
                     (error "Still running"))
                    ("/500" (porter-send-500 process "Broken: %s" "pot"))
                    ("/redirect" (porter-redirect process "/there?a=b"))
                    ("/moved" (porter-redirect process "/there" 301))
                    ("/json" (porter-send-json process '((a . 1) (b . "\u00fc"))))
                    ("/json-201" (porter-send-json process [1 2] 201))))))
    (let ((response (porter-test-get server "/404")))
      (should (= 404 (porter-test-response-status response)))
      (should (string-match-p "No tea here" (porter-test-response-body response))))
    (let ((response (porter-test-get server "/500")))
      (should (= 500 (porter-test-response-status response)))
      (should (string-match-p "Broken: pot" (porter-test-response-body response))))
    (let ((response (porter-test-get server "/redirect")))
      (should (memq (porter-test-response-status response) '(302 303 307)))
      (should (equal "/there?a=b" (porter-test-header response "location"))))
    (should (= 301 (porter-test-response-status (porter-test-get server "/moved"))))
    (let ((response (porter-test-get server "/json")))
      (should (= 200 (porter-test-response-status response)))
      (should (string-match-p "\\`application/json" (porter-test-header response "content-type")))
      (should (member (replace-regexp-in-string " " "" (porter-test-response-body response))
                      '("{\"a\":1,\"b\":\"\303\274\"}" "{\"a\":1,\"b\":\"\\u00fc\"}"))))
    (should (= 201 (porter-test-response-status (porter-test-get server "/json-201"))))))

(ert-deftest porter-api-bad-headers-are-refused ()
  "Header names and values that would split the answer signal, and nothing of them is sent."
  (let (seen)
    (porter-test-with-server
        (server (lambda (request)
                  (setq seen nil)
                  (dolist (header '(("X-A" . "v\r\nX-Evil: 1") ("X-A" . "v\nX-Evil: 1")
                                    ("X-A" . "v\r") ("X-A" . "v\0w") ("X-A\r\nX-Evil" . "1")
                                    ("X A" . "v") ("" . "v") ("X-A:" . "v")))
                    (condition-case err
                        (progn (porter-response-header (porter-test-process request) 200 header)
                               (push (list 'no-error header) seen))
                      (porter-invalid-header (push (car err) seen))))
                  (porter-test-hello request)))
      (let ((response (porter-test-get server "/")))
        (should (equal seen (make-list 8 'porter-invalid-header)))
        (should (equal "hello" (porter-test-response-body response)))
        (should-not (porter-test-header response "x-evil"))
        (should-not (porter-test-header response "x-a"))))))

(ert-deftest porter-api-bad-header-unhandled-is-500 ()
  "A handler that passes on a bad header value gets its client a 500."
  (porter-test-with-server
      (server (lambda (request)
                (porter-test-answer request "x" 200
                                    (cons "X-A" (porter-request-param request "v")))))
    (let ((response (porter-test-get server "/?v=1%0D%0AX-Evil:1")))
      (should (= 500 (porter-test-response-status response)))
      (should-not (porter-test-header response "x-evil")))))

(ert-deftest porter-api-bad-statuses-are-refused ()
  "What is no final status signals."
  (let (seen)
    (porter-test-with-server
        (server (lambda (request)
                  (setq seen nil)
                  (dolist (status (list 0 99 600 1000 -200 most-positive-fixnum "200" nil 200.5))
                    (condition-case nil
                        (progn (porter-response-header (porter-test-process request) status)
                               (push (list 'no-error status) seen))
                      ((porter-invalid-status wrong-type-argument) (push t seen))))
                  (porter-test-hello request)))
      (should (equal "hello" (porter-test-get-body server "/")))
      (should (equal seen (make-list 9 t))))))

(ert-deftest porter-api-header-values-may-be-utf-8 ()
  "A header value with characters beyond ASCII does not break the answer."
  (porter-test-with-server (server (lambda (request)
                                     (porter-test-answer request "x" 200 '("X-A" . "\u00fc"))))
    (let ((response (porter-test-get server "/")))
      (should (memq (porter-test-response-status response) '(200 500))))))

(ert-deftest porter-api-throw-ends-the-handler ()
  "Throwing to `close-connection' ends the handler and finishes its answer."
  (porter-test-with-server (server (lambda (request)
                                     (porter-test-hello request)
                                     (throw 'close-connection nil)
                                     (error "Still running")))
    (should (equal "hello" (porter-test-get-body server "/"))))
  (porter-test-with-server (server (lambda (request)
                                     (let ((process (porter-test-process request)))
                                       (porter-response-header process 200)
                                       (porter-send process "part")
                                       (throw 'close-connection 'value))))
    (should (equal "part" (porter-test-get-body server "/")))))

(ert-deftest porter-api-deferred-answers ()
  "A handler that returns :keep-alive answers later: from a timer, or another request."
  (let (waiting)
    (porter-test-with-server
        (server (lambda (request)
                  (pcase (porter-request-path request)
                    ("/timer"
                     (run-at-time 0.05 nil
                                  (lambda ()
                                    (let ((process (porter-test-process request)))
                                      (porter-response-header process 200)
                                      (porter-send process "timer")
                                      (porter-finish process))))
                     :keep-alive)
                    ("/wait" (push request waiting) :keep-alive)
                    ("/go" (dolist (other waiting) (porter-test-answer other "went"))
                     (porter-test-answer request (number-to-string (length waiting)))))))
      (porter-test-with-client (client server)
        (dotimes (_ 2)
          (let ((response (porter-test-ask client "GET" "/timer")))
            (should (equal "timer" (porter-test-response-body response))))))
      (let ((clients (mapcar (lambda (_) (porter-test-open server)) (number-sequence 1 20))))
        (unwind-protect
            (progn
              (dolist (client clients)
                (porter-test-write client "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"))
              (porter-test-wait (lambda () (= 20 (length waiting))) 5 "Not all requests came")
              (should (equal "20" (porter-test-get-body server "/go")))
              (dolist (client clients)
                (should (equal "went" (porter-test-response-body (porter-test-read client))))))
          (mapc #'porter-test-close clients))))))

(ert-deftest porter-api-streaming ()
  "What was flushed arrives while the rest is still to come."
  (let (process)
    (porter-test-with-server (server (lambda (request)
                                       (setq process (porter-test-process request))
                                       (porter-response-header process 200)
                                       (porter-send process "first\n")
                                       (porter-flush process)
                                       :keep-alive))
      (porter-test-with-client (client server)
        (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (should (porter-test-await client (lambda () (search-forward "first\n" nil t)) 3))
        (porter-send process "second\n")
        (porter-flush process)
        (should (porter-test-await client (lambda () (search-forward "second\n" nil t)) 3))
        (should (porter-live-p process))
        (porter-finish process)
        (should-not (porter-live-p process))
        (should-not (porter-send process "late"))
        (should (equal "first\nsecond\n"
                       (porter-test-response-body (porter-test-read client))))
        ;; The connection goes on.
        (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (should (porter-test-await client (lambda () (search-forward "first\n" nil t)) 3))))))

(ert-deftest porter-api-finish-twice ()
  "Finishing and sending after the end do nothing."
  (porter-test-with-server (server (lambda (request)
                                     (let ((process (porter-test-process request)))
                                       (porter-test-hello request)
                                       (porter-finish process)
                                       (porter-finish process)
                                       (should-not (porter-send process "late")))))
    (porter-test-with-client (client server)
      (dotimes (_ 3)
        (should (equal "hello" (porter-test-response-body
                                (porter-test-ask client "GET" "/"))))))))

;;;; Handlers that fail

(ert-deftest porter-api-handler-error-is-500 ()
  "A handler's error is a 500 for the client, a line for the log, and nothing else."
  (let ((log (generate-new-buffer " *porter-test-log*"))
        (calls 0))
    (unwind-protect
        (porter-test-with-server (server (lambda (request)
                                           (cl-incf calls)
                                           (if (equal (porter-request-path request) "/boom")
                                               (error "Boom %s" "100%s<b>")
                                             (porter-test-hello request)))
                                         :log log)
          (porter-test-with-client (client server)
            (let ((response (porter-test-ask client "GET" "/boom")))
              (should (= 500 (porter-test-response-status response)))
              (should (string-match-p "\\`text/plain"
                                      (porter-test-header response "content-type")))
              (should-not (string-match-p "porter-test-hello\\|lambda\\|closure"
                                          (porter-test-response-body response))))
            ;; The connection is in step or closed; the server lives.
            (unless (porter-test-await-close client 0.1)
              (should (= 200 (porter-test-response-status
                              (porter-test-ask client "GET" "/fine"))))))
          (porter-test-should-serve server)
          (porter-test-wait (lambda ()
                              (with-current-buffer log
                                (save-excursion
                                  (goto-char (point-min))
                                  (search-forward "Boom 100%s<b>" nil t))))
                            3 "The log says %S"
                            (lambda () (with-current-buffer log (buffer-string)))))
      (kill-buffer log))))

(ert-deftest porter-api-show-backtrace ()
  "With `porter-show-backtrace' the client sees the backtrace."
  (let ((porter-show-backtrace t))
    (ignore porter-show-backtrace)
    (porter-test-with-server (server (lambda (_) (error "Boom")))
      (let ((body (porter-test-response-body (porter-test-get server "/"))))
        (should (string-match-p "Boom" body))
        (should (string-match-p "error(" body))))))

(ert-deftest porter-api-handler-error-and-debug-on-error ()
  "With `debug-on-error' a handler's error enters the debugger; the client gets its 500 then."
  (let ((entered 0) response)
    (porter-test-with-server (server (lambda (_) (error "Boom")))
      (porter-test-with-client (client server)
        (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (let ((debug-on-error t)
              (inhibit-debugger nil)
              ;; Emacs enters the debugger once per input event, and ERT needs it next.
              (debugger (lambda (&rest _)
                          (cl-incf entered)
                          (cl-incf num-nonmacro-input-events)
                          nil))
              (deadline (+ (float-time) 5)))
          (while (and (= entered 0) (< (float-time) deadline))
            (accept-process-output nil 0.05)))
        (setq response (porter-test-read client))))
    (should (= entered 1))
    (should (= 500 (porter-test-response-status response)))))

(ert-deftest porter-api-handler-signals-of-all-kinds ()
  "Errors of any kind and unknown throws end in a 500, and the server goes on."
  (porter-test-with-server
      (server (lambda (request)
                (pcase (porter-request-path request)
                  ("/signal" (signal 'wrong-type-argument '(x)))
                  ("/void" (funcall 'no-such-function))
                  ("/user" (user-error "User"))
                  ("/throw" (throw 'nobody-catches 1))
                  ("/deep" (let ((max-lisp-eval-depth 500))
                             (cl-labels ((f (x) (1+ (f x)))) (f 1))))
                  (_ (porter-test-hello request)))))
    (dolist (path '("/signal" "/void" "/user" "/throw" "/deep"))
      (should (equal (list path 500)
                     (list path (porter-test-response-status (porter-test-get server path)))))
      (porter-test-should-serve server))))

(ert-deftest porter-api-handler-signals-an-undefined-condition ()
  "A signal that is no error by its definition is a 500 as well, and ends nothing else."
  ;; In a child: such a signal goes past the handlers for `error' of Emacs's own loops.
  (should
   (equal '(500 "hello")
          (porter-test-batch-value
           20 '(require 'porter-test-helper)
           '(let ((server (porter-start
                           (lambda (request)
                             (if (equal (porter-request-path request) "/odd")
                                 (signal 'no-such-condition '("x"))
                               (porter-test-hello request)))
                           0)))
              (prog1 (list (porter-test-response-status (porter-test-get server "/odd"))
                           (porter-test-get-body server "/"))
                (porter-stop server)))))))

(ert-deftest porter-api-handler-quit-is-503 ()
  "A quit in a handler is a 503 for its client, and the next request is served."
  (porter-test-with-server (server (lambda (request)
                                     (if (equal (porter-request-path request) "/quit")
                                         (signal 'quit nil)
                                       (porter-test-hello request))))
    (should (= 503 (porter-test-response-status (porter-test-get server "/quit"))))
    (should-not quit-flag)
    (porter-test-should-serve server)))

(ert-deftest porter-api-handler-without-answer-is-500 ()
  "A handler that returns having sent nothing: 500, and the log says so."
  (let ((log (generate-new-buffer " *porter-test-log*")))
    (unwind-protect
        (porter-test-with-server (server #'ignore :log log)
          (should (= 500 (porter-test-response-status (porter-test-get server "/"))))
          (porter-test-wait (lambda () (with-current-buffer log
                                         (> (count-lines (point-min) (point-max)) 0)))
                            3 "Nothing is logged"))
      (kill-buffer log))))

(ert-deftest porter-api-error-after-the-head ()
  "An error after part of the answer is out ends the connection: never two status lines."
  (porter-test-with-server (server (lambda (request)
                                     (let ((process (porter-test-process request)))
                                       (porter-response-header process 200)
                                       (porter-send process "part")
                                       (porter-flush process)
                                       (error "Boom"))))
    (porter-test-with-client (client server)
      (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
      (should (porter-test-await-close client 3))
      (let ((bytes (porter-test-bytes client)))
        (should (string-match-p "\\`HTTP/1.1 200 " bytes))
        (should-not (string-match-p "HTTP/1.1 500" bytes))
        ;; And it does not look whole.
        (should-not (string-match-p "\r\n0\r\n\r\n\\'" bytes))))))

(ert-deftest porter-api-error-before-anything-is-out ()
  "An error after `porter-response-header' but before a flush is a plain 500."
  (porter-test-with-server (server (lambda (request)
                                     (let ((process (porter-test-process request)))
                                       (porter-response-header process 200 '("X-A" . "1"))
                                       (porter-send process "part")
                                       (error "Boom"))))
    (let ((response (porter-test-get server "/")))
      (should (= 500 (porter-test-response-status response)))
      (should-not (porter-test-header response "x-a"))
      (should-not (string-match-p "part" (porter-test-response-body response))))))

(ert-deftest porter-api-error-in-a-deferred-answer ()
  "An error in a timer of a deferred answer is the timer's; the server goes on."
  (let (request)
    (porter-test-with-server (server (lambda (r) (setq request r) :keep-alive))
      (porter-test-with-client (client server)
        (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (porter-test-wait (lambda () request) 3 "No request")
        (should-error (porter-test-answer request "x" 200 '("X" . "\n")))
        (porter-test-answer request "after all")
        (should (equal "after all" (porter-test-response-body (porter-test-read client))))))))

;;;; Clients that leave

(ert-deftest porter-api-client-gone ()
  "An answer to a client that has left is dropped quietly, and on-close is called, once."
  (let (process (closed 0))
    (porter-test-with-server (server (lambda (request)
                                       (if (equal (porter-request-path request) "/wait")
                                           (progn
                                             (setq process (porter-test-process request))
                                             (porter-on-close process
                                                              (lambda () (cl-incf closed)))
                                             :keep-alive)
                                         (porter-test-hello request))))
      (dolist (leave (list #'porter-test-close #'porter-test-reset))
        (setq process nil closed 0)
        (let ((client (porter-test-open server)))
          (porter-test-write client "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
          (porter-test-wait (lambda () process) 3 "No request")
          (should (porter-live-p process))
          (funcall leave client))
        ;; A plain close may be that of a client that still reads: only sending can tell.
        (when (eq leave #'porter-test-close)
          (porter-response-header process 200)
          (porter-test-wait (lambda ()
                              (porter-flush process)
                              (not (porter-send process "x")))
                            3 "Sending to a client that has left succeeds for ever"))
        (porter-test-wait (lambda () (not (porter-live-p process))) 3
                          "The leaving of the client was not noticed")
        (porter-test-wait (lambda () (= closed 1)) 3 "on-close was not called")
        (should-not (porter-send process "x"))
        (porter-finish process)
        (porter-test-should-serve server)
        (should (= closed 1))
        ;; Too late to wait for it: at once.
        (let ((called nil))
          (porter-on-close process (lambda () (setq called t)))
          (porter-test-wait (lambda () called) 1 "on-close of a gone client was not called"))))))

(ert-deftest porter-api-on-close-not-after-an-answer ()
  "On-close is not called for an answer that was finished."
  (let ((closed 0))
    (porter-test-with-server (server (lambda (request)
                                       (porter-on-close (porter-test-process request)
                                                        (lambda () (cl-incf closed)))
                                       (porter-test-hello request)))
      (porter-test-should-serve server)
      (porter-test-pause 0.1)
      (should (= closed 0)))))

(ert-deftest porter-api-client-gone-while-streaming ()
  "A stream to a client that left ends when `porter-send' says so."
  (let ((sent 0) (running nil))
    (porter-test-with-server
        (server (lambda (request)
                  (let ((process (porter-test-process request)) timer)
                    (porter-response-header process 200)
                    (setq running t
                          timer (run-at-time 0 0.01
                                             (lambda ()
                                               (if (and (porter-send process "tick\n")
                                                        (progn (porter-flush process)
                                                               (porter-live-p process)))
                                                   (cl-incf sent)
                                                 (setq running nil)
                                                 (cancel-timer timer)))))
                    :keep-alive)))
      (porter-test-with-client (client server)
        (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (should (porter-test-await client (lambda () (search-forward "tick" nil t)) 3)))
      (porter-test-wait (lambda () (not running)) 5 "The stream goes on into nothing")
      (should (> sent 0)))))

;;;; Handlers that wait

(ert-deftest porter-api-handler-may-wait ()
  "While a handler waits, others are served."
  (porter-test-with-server (server (lambda (request)
                                     (when (equal (porter-request-path request) "/wait")
                                       (let ((end (+ (float-time) 0.5)))
                                         (while (< (float-time) end)
                                           (accept-process-output nil 0.05))))
                                     (porter-test-answer request (porter-request-path request))))
    (porter-test-with-client (slow server)
      (porter-test-write slow "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
      (porter-test-pause 0.05)
      (dotimes (_ 5)
        (should (equal "/quick" (porter-test-get-body server "/quick"))))
      (should (equal "/wait" (porter-test-response-body (porter-test-read slow)))))))

(ert-deftest porter-api-handler-fetches-from-its-own-server ()
  "A handler fetches a page of its own server, synchronously."
  (let (server)
    (porter-test-with-server
        (s (lambda (request)
             (if (equal (porter-request-path request) "/inner")
                 (porter-test-answer request "inner")
               (let* ((url-show-status nil)
                      (url-request-noninteractive t)
                      (buffer (url-retrieve-synchronously (porter-url server "/inner") t t 10)))
                 (unwind-protect
                     (porter-test-answer request
                                         (with-current-buffer buffer
                                           (goto-char (point-min))
                                           (re-search-forward "\r?\n\r?\n")
                                           (concat "outer+"
                                                   (buffer-substring (point) (point-max)))))
                   (kill-buffer buffer))))))
      (setq server s)
      (dotimes (_ 3)
        (should (equal "outer+inner" (porter-test-get-body server "/outer")))))))

(ert-deftest porter-api-handler-fetches-deep ()
  "Nested fetches to a depth of three work, or are refused, but never hang."
  (let (server)
    (porter-test-with-server
        (s (lambda (request)
             (let ((n (string-to-number (porter-request-param request "n" "0"))))
               (porter-test-answer
                request
                (if (= n 0) "x"
                  (concat "(" (porter-test-response-body
                               (porter-test-get server (format "/?n=%d" (1- n))))
                          ")"))))))
      (setq server s)
      (should (equal "(x)" (porter-test-get-body server "/?n=1")))
      (should (equal "(((x)))" (porter-test-get-body server "/?n=3"))))))

(ert-deftest porter-api-handlers-environment ()
  "Handlers run in a buffer that is not the user's, and cannot leave one current."
  (let ((buffer (generate-new-buffer " *porter-test-current*")))
    (unwind-protect
        (with-current-buffer buffer
          (porter-test-with-server (server (lambda (request)
                                             (porter-test-hello request)
                                             (set-buffer (get-buffer-create "*scratch*"))))
            (porter-test-should-serve server)
            (should (eq (current-buffer) buffer))))
      (kill-buffer buffer))))

(ert-deftest porter-api-handler-works-in-a-killed-buffer ()
  "A server started in a buffer that is gone serves on."
  (let (server)
    (porter-test-quietly
      (with-temp-buffer (setq server (porter-start #'porter-test-hello 0)))
      (unwind-protect (porter-test-should-serve server)
        (porter-stop server)))))

;;;; The log

(ert-deftest porter-api-log-takes-any-text ()
  "What failed is logged with its request, and a request's bytes are never a format."
  (let ((log (generate-new-buffer " *porter-test-log*")))
    (unwind-protect
        (porter-test-with-server (server (lambda (_) (error "Failed")) :log log :log-format nil)
          (dolist (path '("/plain" "/%25s%25d%n" "/%C3%BC" "/%0A%0D"))
            (porter-test-get server path))
          (porter-test-wait (lambda () (with-current-buffer log
                                         (>= (count-lines (point-min) (point-max)) 4)))
                            4 "The log is %S"
                            (lambda () (with-current-buffer log (buffer-string))))
          (with-current-buffer log
            (should (= 4 (count-lines (point-min) (point-max))))
            (goto-char (point-min))
            (should (re-search-forward "/plain.*Failed" nil t))
            (should (re-search-forward "%n\\|%25n\\|%%n" nil t))))
      (kill-buffer log))))

(ert-deftest porter-api-log-buffer-killed ()
  "Killing the log buffer does not disturb the server."
  (let ((log (generate-new-buffer " *porter-test-log*")))
    (porter-test-with-server (server #'porter-test-hello :log log)
      (porter-test-should-serve server)
      (kill-buffer log)
      (dotimes (_ 3) (porter-test-should-serve server)))))

(ert-deftest porter-api-limits-have-options ()
  "Each limit is an option, and the keyword of `porter-start' goes before it."
  (dolist (option '(porter-max-target porter-max-head porter-max-fields porter-max-body
                    porter-spool-threshold porter-head-timeout porter-body-timeout
                    porter-idle-timeout porter-write-timeout porter-handler-timeout
                    porter-max-connections porter-max-connections-per-address
                    porter-max-requests-per-connection porter-max-pipelined porter-max-queue
                    porter-queue-timeout porter-max-open-files porter-allowed-hosts))
    (should (custom-variable-p option)))
  (defvar porter-max-body)
  (let ((porter-max-body 10))
    (porter-test-with-server (server #'porter-test-hello)
      (should (= 413 (porter-test-response-status
                      (porter-test-post server "/" (make-string 11 ?x))))))
    (porter-test-with-server (server #'porter-test-hello :max-body 20)
      (should (= 200 (porter-test-response-status
                      (porter-test-post server "/" (make-string 11 ?x))))))))

(ert-deftest porter-api-handler-timeout ()
  "With :handler-timeout a deferred answer that does not come is a 504; a late one is dropped."
  (let (request)
    (porter-test-with-server (server (lambda (r)
                                       (if (equal (porter-request-path r) "/ok")
                                           (porter-test-hello r)
                                         (setq request r)
                                         :keep-alive))
                                     :handler-timeout 1)
      (porter-test-with-client (client server)
        (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (should (= 504 (porter-test-response-status (porter-test-read client nil 4))))
        (porter-test-answer request "late"))
      (should (equal "hello" (porter-test-get-body server "/ok"))))))

(ert-deftest porter-api-head-of-an-endless-answer ()
  "A HEAD is complete with the head; what sends on is told that its client has left."
  (let (process closed)
    (porter-test-with-server
        (server `(((:GET . "^/endless$")
                   . ,(lambda (request)
                        (setq process (porter-test-process request))
                        (porter-on-close process (lambda () (setq closed t)))
                        (porter-response-header process 200)
                        (porter-send process "a piece")
                        :keep-alive))
                  ((:GET . "*") . porter-test-hello)))
      (porter-test-with-client (client server)
        (let ((response (porter-test-ask client "HEAD" "/endless")))
          (should (= 200 (porter-test-response-status response)))
          (should-not (porter-test-header response "content-length")))
        (should (equal "hello" (porter-test-response-body
                                (porter-test-ask client "GET" "/")))))
      (should closed)
      (should-not (porter-live-p process))
      (should-not (porter-send process "more")))))

(ert-deftest porter-api-handler-kills-its-buffer ()
  "A handler that kills the buffer it finds itself in harms nobody."
  (porter-test-with-server (server (lambda (request)
                                     (kill-buffer (current-buffer))
                                     (porter-test-hello request)))
    (let ((start (porter-test-now)))
      (dotimes (_ 3) (porter-test-should-serve server))
      ;; An error that gets out of a filter costs two seconds.
      (should (< (- (porter-test-now) start) (* 1.5 porter-test-patience))))))

(ert-deftest porter-api-quits-of-all-kinds-are-503 ()
  "Also `minibuffer-quit', which C-g at a prompt is since Emacs 28."
  (porter-test-with-server (server (lambda (_) (signal 'minibuffer-quit nil)))
    (should (= (if (get 'minibuffer-quit 'error-conditions) 503 500)
               (porter-test-response-status (porter-test-get server "/"))))))

(ert-deftest porter-api-send-404-later ()
  "From a timer `porter-send-404' answers, and the timer goes on."
  (let (went-on)
    (porter-test-with-server
        (server (lambda (request)
                  (let ((process (porter-test-process request)))
                    (run-at-time 0 nil (lambda ()
                                         (porter-send-404 process "nothing here")
                                         (setq went-on t))))
                  :keep-alive))
      (should (= 404 (porter-test-response-status (porter-test-get server "/"))))
      (porter-test-wait (lambda () went-on) 2 "The timer was cut off"))))

(ert-deftest porter-api-many-starts-in-one-go ()
  "Starting and stopping without ever waiting does not run out of servers."
  (porter-test-quietly
    (dotimes (_ 270)
      (porter-stop (porter-start #'porter-test-hello 0)))))

(ert-deftest porter-api-odd-arguments ()
  "What cannot be right is said in the caller, with the keyword."
  (dolist (args '((:max-body 0) (:head-timeout 1.0e+INF) (:head-timeout 0)
                  (:allowed-hosts "example.org") (:backlog "x")))
    (should (memq (car args)
                  (cdr (should-error (apply #'porter-start #'porter-test-hello 0 nil args)
                                     :type 'porter-error)))))
  (should-error (porter-start '(("/" . ignore) . x) 0) :type 'porter-bad-handlers))

(ert-deftest porter-api-files-compile-alone ()
  "What is bound is declared before, also for native compilation of one file."
  (let ((file (locate-library "porter-dispatch.el"))
        (target (make-temp-file "porter" nil ".elc")))
    (unwind-protect
        (with-temp-buffer
          (call-process (expand-file-name invocation-name invocation-directory) nil t nil
                        "-Q" "--batch" "-L" (file-name-directory file) "-l" "bytecomp" "--eval"
                        (format "(let ((byte-compile-dest-file-function (lambda (_) %S)))
                                   (princ (byte-compile-file %S)))" target file))
          (should (equal "t" (buffer-string))))
      (delete-file target))))

(provide 'porter-api-tests)
;;; porter-api-tests.el ends here
