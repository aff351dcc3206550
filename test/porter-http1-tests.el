;;; porter-http1-tests.el --- HTTP/1.x on the wire, in RFC 9112 order  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Raw bytes in, exact answers out.  The case files (porter-cases-tests.el) hold many more.

;;; Code:

(require 'porter-test-helper)

(defun porter-http1--echo (request)
  "A handler: say what REQUEST was, as a Lisp list."
  (porter-test-answer
   request
   (encode-coding-string
    (prin1-to-string (list (porter-request-method request)
                           (porter-request-path request)
                           (porter-request-query request)
                           (porter-request-header request "x-a")
                           (porter-request-body request)))
    'utf-8-unix)))

(defmacro porter-http1--with (spec &rest body)
  "Run BODY with a server of HANDLER and a client of it.
SPEC is (CLIENT HANDLER &rest ARGS)."
  (declare (indent 1) (debug ((symbolp &rest form) body)))
  (let ((server (make-symbol "server")))
    `(porter-test-with-server (,server ,@(cdr spec))
       (porter-test-with-client (,(car spec) ,server)
         ,@body))))

(defun porter-http1--exchange (client bytes &optional method)
  "Send BYTES over CLIENT and return the response, to a request of METHOD."
  (porter-test-write client bytes)
  (porter-test-read client method))

(defun porter-http1--status (client bytes)
  "Send BYTES over CLIENT and return the status of the response."
  (porter-test-response-status (porter-http1--exchange client bytes)))

(defconst porter-http1--hello "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
  "A plain request.")

;;;; 2: messages

(ert-deftest porter-http1-9112-2.2-empty-lines-before-a-request ()
  "RFC 9112 2.2: empty lines before the request line are skipped."
  (porter-http1--with (client #'porter-test-hello)
    (should (= 200 (porter-http1--status client (concat "\r\n\r\n" porter-http1--hello))))
    (should (= 200 (porter-http1--status client (concat "\r\n" porter-http1--hello))))))

(defun porter-http1--split-everywhere (bytes)
  "Check that BYTES, a request, means the same however it is cut.
On a socket of the local family, where what is sent in two writes
arrives in two pieces."
  (let ((file (make-temp-name (expand-file-name "porter-test" temporary-file-directory))))
    (unwind-protect
        (porter-test-with-server (server #'porter-http1--echo :port file :family 'local)
          (let ((whole (porter-test-with-client (client file)
                         (porter-test-response-body (porter-http1--exchange client bytes)))))
            (porter-test-with-client (client file)
              (cl-loop for cut from 1 below (length bytes)
                       do (porter-test-write client (substring bytes 0 cut))
                       (porter-test-pause 0.001)
                       (porter-test-write client (substring bytes cut))
                       (should (equal (list cut whole)
                                      (list cut (porter-test-response-body
                                                 (porter-test-read client))))))
              ;; And every byte alone.
              (porter-test-write-slowly client bytes)
              (should (equal whole (porter-test-response-body (porter-test-read client)))))))
      (ignore-errors (delete-file file)))))

(ert-deftest porter-http1-9112-2.2-split-get ()
  "A request without a body, cut at every offset and byte by byte."
  (porter-http1--split-everywhere
   (concat "GET /a%20b/%C3%BC?x=1&y=%26+z HTTP/1.1\r\nHost: localhost\r\n"
           "X-A:  some value \r\nAccept: */*\r\n\r\n")))

(ert-deftest porter-http1-9112-2.2-split-length ()
  "A request with a Content-Length, cut at every offset and byte by byte."
  (porter-http1--split-everywhere
   (concat "POST /p HTTP/1.1\r\nHost: localhost\r\nX-A: v\r\nContent-Length: 13\r\n\r\n"
           "\r\n\000\377 body\r\n\r\n")))

(ert-deftest porter-http1-9112-2.2-split-chunked ()
  "A request with a chunked body, cut at every offset and byte by byte."
  (porter-http1--split-everywhere
   (concat "POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
           "5\r\nhello\r\nB;x=\"y\"\r\n 0\r\n\r\nworld\r\n0\r\nX-T: v\r\n\r\n")))

(ert-deftest porter-http1-9112-2.2-two-requests-byte-by-byte ()
  "Two requests, sent byte by byte over TCP, get two answers."
  (porter-http1--with (client #'porter-http1--echo)
    (porter-test-write-slowly client (concat porter-http1--hello
                                             "GET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    (should (string-match-p "\"/\"" (porter-test-response-body (porter-test-read client))))
    (should (string-match-p "\"/2\"" (porter-test-response-body (porter-test-read client))))))

(ert-deftest porter-http1-9112-2.3-version-of-the-answer ()
  "RFC 9112 2.3: the answer's version is 1.1, to a 1.0 request as well."
  (porter-test-with-server (server #'porter-test-hello)
    (dolist (request (list porter-http1--hello "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"))
      (porter-test-with-client (client server)
        (should (equal "1.1" (porter-test-response-version
                              (porter-http1--exchange client request))))))))

(ert-deftest porter-http1-9112-2.3-other-versions ()
  "RFC 9112 2.3: 505 or 400 for other versions, and the connection is closed."
  (porter-test-with-server (server (lambda (_) (error "Called")))
    (dolist (version '("HTTP/2.0" "HTTP/0.9" "HTTP/1.2.3" "HTTP/11" "http/1.1" "HTTPS/1.1"))
      (porter-test-with-client (client server)
        (should (memq (porter-http1--status
                       client (format "GET / %s\r\nHost: localhost\r\n\r\n" version))
                      '(400 505)))
        (porter-test-should-close client)))))

;;;; 3: the request line

(ert-deftest porter-http1-9112-3-bad-request-lines ()
  "RFC 9112 3: malformed request lines get 400, then the close."
  (porter-test-with-server (server (lambda (_) (error "Called")))
    (dolist (line '("GET  / HTTP/1.1" "GET /a b HTTP/1.1" "GET" " GET / HTTP/1.1"
                    "G@T / HTTP/1.1" "GET /\000 HTTP/1.1" "GET / HTTP/1.1 x"
                    "\026\003\001\002" ))
      (porter-test-with-client (client server)
        (should (memq (porter-http1--status client (concat line "\r\nHost: localhost\r\n\r\n"))
                      '(400 501 505)))
        (porter-test-should-close client)))))

(ert-deftest porter-http1-9112-3-methods ()
  "RFC 9110 9: methods reach the handler as keywords."
  (porter-test-with-server (server #'porter-http1--echo)
    (dolist (method '("GET" "POST" "PUT" "DELETE" "PATCH" "OPTIONS"))
      (should (string-prefix-p (concat "(:" method " ")
                               (porter-test-response-body
                                (porter-test-fetch server method "/")))))))

(ert-deftest porter-http1-9112-3.2-target-too-long ()
  "A target beyond :max-target gets 414, one within it is served."
  (porter-test-with-server (server #'porter-test-hello :max-target 1000)
    (should (= 200 (porter-test-response-status
                    (porter-test-get server (concat "/" (make-string 900 ?a))))))
    (porter-test-with-client (client server)
      (should (= 414 (porter-test-response-status
                      (porter-test-ask client "GET" (concat "/" (make-string 1100 ?a))))))
      (porter-test-should-close client))))

(ert-deftest porter-http1-9112-3.2-host-rules ()
  "RFC 9112 3.2: no Host, two, and an invalid one get 400."
  (porter-test-with-server (server (lambda (_) (error "Called")))
    (dolist (fields '("" "Host: localhost\r\nHost: localhost\r\n" "Host: a b\r\n"
                      "Host: localhost:x\r\n"))
      (porter-test-with-client (client server)
        (should (= 400 (porter-http1--status
                        client (concat "GET / HTTP/1.1\r\n" fields "\r\n"))))
        (porter-test-should-close client)))))

(ert-deftest porter-http1-9112-3.2-http-1.0-needs-no-host ()
  "RFC 9112 3.2: HTTP/1.0 has no Host."
  (porter-http1--with (client #'porter-test-hello)
    (should (= 200 (porter-http1--status client "GET / HTTP/1.0\r\n\r\n")))))

(ert-deftest porter-http1-9112-3.2.2-absolute-form ()
  "RFC 9112 3.2.2: a target in absolute form means its path, and its host counts."
  (porter-test-with-server (server #'porter-http1--echo)
    (let ((port (porter-port server)))
      (porter-test-with-client (client server)
        (should (string-match-p
                 "\\`(:GET \"/p/q\" ((\"a\" \\. \"1\"))"
                 (porter-test-response-body
                  (porter-http1--exchange
                   client (format "GET http://127.0.0.1:%d/p/q?a=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                  port)))))
        (should (string-match-p
                 "\\`(:GET \"/\" "
                 (porter-test-response-body
                  (porter-http1--exchange
                   client (format "GET http://localhost:%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                  port))))))
      (porter-test-with-client (client server)
        (should (memq (porter-http1--status
                       client "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
                      '(400 403 421)))))))

(ert-deftest porter-http1-9112-3.2.4-options-star ()
  "RFC 9112 3.2.4: OPTIONS * is answered and the connection stays in step."
  (porter-http1--with (client #'porter-test-hello)
    (should (memq (porter-http1--status client "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")
                  '(200 204)))
    (should (= 200 (porter-http1--status client porter-http1--hello)))))

(ert-deftest porter-http1-9110-7.4-foreign-host-is-421 ()
  "A server on a loopback address answers to loopback names only."
  (porter-test-with-server (server #'porter-test-hello)
    (dolist (host '("evil.example" "127.0.0.1.evil.example" "localhost.evil.example"))
      (should (= 421 (porter-test-response-status
                      (porter-test-get server "/" (cons "Host" host))))))
    (dolist (host '("localhost" "127.0.0.1" "[::1]" "LOCALHOST:1"))
      (should (= 200 (porter-test-response-status
                      (porter-test-get server "/" (cons "Host" host))))))))

(ert-deftest porter-http1-9110-7.4-allowed-hosts ()
  "`:allowed-hosts' lets further names in."
  (porter-test-with-server (server #'porter-test-hello :allowed-hosts '("box.example"))
    (should (= 200 (porter-test-response-status
                    (porter-test-get server "/" '("Host" . "box.example:80")))))
    (should (= 421 (porter-test-response-status
                    (porter-test-get server "/" '("Host" . "other.example")))))))

;;;; 5: fields

(ert-deftest porter-http1-9112-5-bad-fields ()
  "RFC 9112 5: malformed field lines get 400, the close, and no handler call."
  (porter-test-with-server (server (lambda (_) (error "Called")))
    (dolist (field '("X-A : v" ": v" "X A: v" "X-A: a\000b" "X-A: a\rb" " X-A: v" "X-A" "X\177: v"
                     "X-A: v\r\n folded"))
      (porter-test-with-client (client server)
        (should (equal (list field 400)
                       (list field
                             (porter-http1--status
                              client (concat "GET / HTTP/1.1\r\nHost: localhost\r\n" field
                                             "\r\n\r\n")))))
        (porter-test-should-close client)))))

(ert-deftest porter-http1-9112-5-too-large-head ()
  "Too many fields and too large ones get 431."
  (porter-test-with-server (server #'porter-test-hello :max-fields 20 :max-head 2000)
    (let ((fields (lambda (n value)
                    (cl-loop for i below n collect (cons (format "X-%d" i) value)))))
      (should (= 200 (porter-test-response-status
                      (apply #'porter-test-get server "/" (funcall fields 15 "v")))))
      (should (= 431 (porter-test-response-status
                      (apply #'porter-test-get server "/" (funcall fields 30 "v")))))
      (should (= 431 (porter-test-response-status
                      (porter-test-get server "/" (cons "X-A" (make-string 3000 ?v)))))))))

;;;; 6: bodies

(ert-deftest porter-http1-9112-6.2-length ()
  "RFC 9112 6.2: a body of Content-Length bytes reaches the handler whole."
  (porter-http1--with (client (lambda (request)
                                (porter-test-answer request (porter-request-body request))))
    (let ((bytes (apply #'unibyte-string (number-sequence 0 255))))
      (dolist (body (list "" "x" bytes (apply #'concat (make-list 1000 bytes))))
        (should (equal body (porter-test-response-body
                             (porter-test-ask client "POST" "/" nil body))))))))

(ert-deftest porter-http1-9112-6.3-length-with-chunked-is-400 ()
  "RFC 9112 6.3: both framings at once may be smuggling; refuse and close."
  (let ((calls 0))
    (porter-http1--with (client (lambda (request) (cl-incf calls) (porter-test-hello request)))
      (should (= 400 (porter-http1--status
                      client (concat "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
                                     "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                                     porter-http1--hello))))
      (porter-test-should-close client)
      (should (= calls 0)))))

(ert-deftest porter-http1-9112-6.3-bad-lengths ()
  "RFC 9112 6.3: what is no one length gets 400, the close, and no handler call."
  (porter-test-with-server (server (lambda (_) (error "Called")))
    (dolist (length '("-1" "+1" "0x1" "1 1" "1,1" "1, 2" "a" "" "1\r\nContent-Length: 2"
                      "99999999999999999999"))
      (porter-test-with-client (client server)
        (should (memq (porter-http1--status
                       client (format "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\nx"
                                      length))
                      '(400 413)))
        (porter-test-should-close client)))))

(ert-deftest porter-http1-9112-6.3-cut-body ()
  "RFC 9112 8: a request whose body ends early reaches no handler."
  (let ((calls 0))
    (porter-http1--with (client (lambda (request) (cl-incf calls) (porter-test-hello request)))
      (porter-test-write client (concat "POST / HTTP/1.1\r\nHost: localhost\r\n"
                                        "Content-Length: 10\r\n\r\nabc"))
      (porter-test-half-close client)
      (let ((response (porter-test-read-maybe client nil 3)))
        (when response
          (should (memq (porter-test-response-status response) '(400 408)))))
      (should (porter-test-await-close client 3))
      (should (= calls 0)))))

(ert-deftest porter-http1-9110-15.5.14-too-large-body ()
  "A body over :max-body gets 413 before it is read; a chunked one as soon as it is over."
  (porter-test-with-server (server #'porter-test-hello :max-body 1000)
    (should (= 200 (porter-test-response-status
                    (porter-test-post server "/" (make-string 1000 ?x)))))
    (porter-test-with-client (client server)
      (should (= 413 (porter-http1--status
                      client "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n")))
      (porter-test-should-close client))
    (porter-test-with-client (client server)
      (should (= 413 (porter-http1--status
                      client (concat "POST / HTTP/1.1\r\nHost: localhost\r\n"
                                     "Transfer-Encoding: chunked\r\n\r\n400\r\n"
                                     (make-string 1024 ?x) "\r\n"))))
      (porter-test-should-close client))))

;;;; 7: transfer codings

(ert-deftest porter-http1-9112-7.1-chunked-request ()
  "RFC 9112 7.1: chunks, extensions and trailers make one body."
  (porter-http1--with (client (lambda (request)
                                (porter-test-answer request (porter-request-body request))))
    (pcase-dolist
        (`(,sent . ,body)
         '(("0\r\n\r\n" . "")
           ("5\r\nhello\r\n0\r\n\r\n" . "hello")
           ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n" . "hello world")
           ("00005\r\nhello\r\n000\r\n\r\n" . "hello")
           ("a;name=value;other=\"q;\\\"x\"\r\n0123456789\r\n0;last\r\nX-T: v\r\n\r\n"
            . "0123456789")
           ("2\r\n\r\n\r\n1\r\n0\r\n0\r\n\r\n" . "\r\n0")))
      (should (equal body
                     (porter-test-response-body
                      (porter-http1--exchange
                       client (concat "POST / HTTP/1.1\r\nHost: localhost\r\n"
                                      "Transfer-Encoding: chunked\r\n\r\n" sent))))))))

(ert-deftest porter-http1-9112-7.1-bad-chunks ()
  "RFC 9112 7.1: broken chunk framing gets 400, the close, and no handler call."
  (porter-test-with-server (server (lambda (_) (error "Called")))
    (dolist (sent '("g\r\n" "-1\r\n" "5\r\nhelloX\r\n0\r\n\r\n" "5\nhello\r\n" " 5\r\nhello\r\n"
                    "0x5\r\nhello\r\n" "ffffffffffffffffff\r\n" "5 5\r\nhello\r\n" ";x\r\n"))
      (porter-test-with-client (client server)
        (should (memq (porter-http1--status
                       client (concat "POST / HTTP/1.1\r\nHost: localhost\r\n"
                                      "Transfer-Encoding: chunked\r\n\r\n" sent))
                      '(400 413)))
        (porter-test-should-close client)))))

(ert-deftest porter-http1-9112-7.1-chunked-answer ()
  "A flushed answer is chunked for HTTP/1.1, and its framing is exact."
  (porter-http1--with (client (lambda (request)
                                (let ((process (porter-test-process request)))
                                  (porter-response-header process 200)
                                  (dolist (piece '("one" "" "two" "three"))
                                    (porter-send process piece)
                                    (porter-flush process)))))
    (dotimes (_ 3)
      (let ((response (porter-http1--exchange client porter-http1--hello)))
        (should (eq 'chunked (porter-test-response-framing response)))
        (should (equal "onetwothree" (porter-test-response-body response)))))))

(ert-deftest porter-http1-9112-7.1-stream-to-1.0-ends-by-close ()
  "A flushed answer to HTTP/1.0 has neither length nor chunks and ends by the close."
  (porter-http1--with (client (lambda (request)
                                (let ((process (porter-test-process request)))
                                  (porter-response-header process 200)
                                  (porter-send process "one")
                                  (porter-flush process)
                                  (porter-send process "two"))))
    (porter-test-write client
                       "GET / HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
    (let ((response (porter-test-read client)))
      (should (eq 'close (porter-test-response-framing response)))
      (should (equal "onetwo" (porter-test-response-body response))))))

(ert-deftest porter-http1-9112-7.1-large-answers ()
  "Answers of all sizes come whole, at once or streamed."
  (porter-http1--with (client (lambda (request)
                                (let ((process (porter-test-process request))
                                      (size (string-to-number
                                             (porter-request-param request "size")))
                                      (flush (porter-request-param request "flush")))
                                  (porter-response-header process 200)
                                  (when flush (porter-flush process))
                                  (porter-send process (make-string size ?x)))))
    (dolist (size '(0 1 100 4095 4096 4097 65535 65536 65537 1000000 5000000))
      (dolist (flush '("" "&flush=1"))
        (let ((response (porter-test-ask client "GET" (format "/?size=%d%s" size flush)
                                         nil nil 20)))
          (should (equal size (length (porter-test-response-body response))))
          (should (string-match-p "\\`x*\\'" (porter-test-response-body response))))))))

;;;; 9: connections

(ert-deftest porter-http1-9112-9.3-keep-alive ()
  "RFC 9112 9.3: a connection serves one request after another."
  (porter-http1--with (client #'porter-test-hello)
    (dotimes (_ 200)
      (let ((response (porter-http1--exchange client porter-http1--hello)))
        (should (equal "hello" (porter-test-response-body response)))
        (should-not (porter-test-says-close-p response))))
    (porter-test-should-stay-open client)))

(ert-deftest porter-http1-9112-9.3-http-1.0-closes ()
  "RFC 9112 9.3: HTTP/1.0 closes unless asked to keep the connection."
  (porter-test-with-server (server #'porter-test-hello)
    (porter-test-with-client (client server)
      (should (= 200 (porter-http1--status client "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")))
      (porter-test-should-close client))
    (porter-test-with-client (client server)
      (dotimes (_ 3)
        (let ((response
               (porter-http1--exchange
                client "GET / HTTP/1.0\r\nHost: localhost\r\nConnection: Keep-Alive\r\n\r\n")))
          (should (equal "hello" (porter-test-response-body response)))
          (should (string-match-p "keep-alive"
                                  (downcase (or (porter-test-header response "connection")
                                                ""))))))
      (porter-test-should-stay-open client))))

(ert-deftest porter-http1-9112-9.6-close ()
  "RFC 9112 9.6: Connection: close is said, done, and what follows it is not served."
  (let ((calls 0))
    (porter-http1--with (client (lambda (request) (cl-incf calls) (porter-test-hello request)))
      (porter-test-write client (concat "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                                        porter-http1--hello))
      (should (porter-test-says-close-p (porter-test-read client)))
      (porter-test-should-close client)
      (should (= calls 1)))))

;; Where a reset throws away what the client has not read, the answer is lost with it.
(ert-deftest porter-http1-9112-9.6-close-is-no-reset ()
  "RFC 9112 9.6: what comes behind Connection: close does not break the connection off."
  (let ((calls 0))
    (porter-test-with-server (server (lambda (request)
                                       (cl-incf calls)
                                       (porter-test-hello request)))
      (porter-test-with-client (client server)
        (cl-flet ((open-p () (= 1 (plist-get (porter-server-statistics server) :connections))))
          (porter-test-hold client)
          (porter-test-write client
                             "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
          (porter-test-wait (lambda () (= calls 1)) 3 "The request is not handled")
          (dotimes (_ 5)
            (porter-test-pause 0.02)
            (should (open-p))
            (porter-test-write client porter-http1--hello))
          (porter-test-unhold client)
          (should (porter-test-says-close-p (porter-test-read client)))
          (porter-test-should-close client)
          (porter-test-wait (lambda () (not (open-p))) 1 "The connection stays")
          (should (= calls 1)))))))

(ert-deftest porter-http1-9112-9.6-close-by-the-handler ()
  "A handler's Connection: close ends the connection after the answer."
  (porter-http1--with (client (lambda (request)
                                (porter-test-answer request "bye" 200
                                                    '("Connection" . "close"))))
    (let ((response (porter-http1--exchange client porter-http1--hello)))
      (should (equal "bye" (porter-test-response-body response)))
      (should (porter-test-says-close-p response)))
    (porter-test-should-close client)))

(ert-deftest porter-http1-9112-9.3.2-pipelining ()
  "RFC 9112 9.3.2: 16 requests of one write are answered in order, round after round."
  (porter-http1--with (client #'porter-http1--echo)
    (dotimes (round 10)
      (porter-test-write client (mapconcat (lambda (i)
                                             (format "GET /%d/%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                                     round i))
                                           (number-sequence 0 15) ""))
      (dotimes (i 16)
        (should (string-match-p (format "\\`(:GET \"/%d/%d\" " round i)
                                (porter-test-response-body (porter-test-read client))))))))

(ert-deftest porter-http1-9112-9.3.2-pipelining-with-a-deferred-one ()
  "A deferred answer holds back those behind it on its own connection, and no other."
  (let ((finish nil))
    (porter-test-with-server
        (server (lambda (request)
                  (if (equal (porter-request-path request) "/8")
                      (progn (setq finish (lambda () (porter-test-answer request "late")))
                             :keep-alive)
                    (porter-test-answer request (porter-request-path request)))))
      (porter-test-with-client (client server)
        (porter-test-write client (mapconcat (lambda (i)
                                               (format "GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" i))
                                             (number-sequence 0 15) ""))
        (dotimes (i 8)
          (should (equal (format "/%d" i)
                         (porter-test-response-body (porter-test-read client)))))
        (porter-test-wait (lambda () finish) 5 "Request 8 did not come")
        (porter-test-should-stay-open client)
        (should (equal "/x" (porter-test-get-body server "/x")))
        (funcall finish)
        (should (equal "late" (porter-test-response-body (porter-test-read client))))
        (cl-loop for i from 9 to 15
                 do (should (equal (format "/%d" i)
                                   (porter-test-response-body (porter-test-read client)))))))))

(ert-deftest porter-http1-9112-9.3.2-pipelining-answered-backwards ()
  "Deferred answers finished in any order go out in the order of the requests.
Many rounds: the last answer goes to the socket at once, and those behind
it, which the loop has already, must not wait for some later event."
  (let ((waiting nil))
    (porter-test-with-server (server (lambda (request) (push request waiting) :keep-alive))
      (porter-test-with-client (client server)
        (dotimes (_ 100)
          (porter-test-write client (mapconcat (lambda (i)
                                                 (format "GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                                         i))
                                               (number-sequence 0 7) ""))
          (porter-test-wait (lambda () (= 8 (length waiting))) 5 "Not all requests came")
          (dolist (request waiting)       ; the last first
            (porter-test-answer request (porter-request-path request)))
          (setq waiting nil)
          (dotimes (i 8)
            (should (equal (format "/%d" i)
                           (porter-test-response-body (porter-test-read client nil 2))))))))))

(ert-deftest porter-http1-9112-9.3.2-pipelining-beyond-the-limit ()
  "More requests than :max-pipelined at once: the rest waits in the socket and is served."
  (porter-http1--with (client #'porter-http1--echo :max-pipelined 4)
    (porter-test-write client (mapconcat (lambda (i)
                                           (format "GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" i))
                                         (number-sequence 0 499) ""))
    (dotimes (i 500)
      (should (string-match-p (format "\"/%d\"" i)
                              (porter-test-response-body (porter-test-read client)))))))

(ert-deftest porter-http1-9112-9.6-half-close ()
  "A client that ends its side after the request still gets the answer, then the close."
  (porter-http1--with (client (lambda (request)
                                (run-at-time 0.05 nil #'porter-test-hello request)
                                :keep-alive))
    (porter-test-write client porter-http1--hello)
    (porter-test-half-close client)
    (should (equal "hello" (porter-test-response-body (porter-test-read client))))
    (porter-test-should-close client)))

(ert-deftest porter-http1-max-requests-per-connection ()
  "The last request of :max-requests-per-connection is answered with close."
  (porter-http1--with (client #'porter-test-hello :max-requests-per-connection 3)
    (dotimes (i 3)
      (should (eq (and (= i 2) t)
                  (and (porter-test-says-close-p
                        (porter-http1--exchange client porter-http1--hello))
                       t))))
    (porter-test-should-close client)))

;;;; RFC 9110: what the answers say

(ert-deftest porter-http1-9110-6.6.1-date ()
  "RFC 9110 6.6.1: every answer has a Date, once, and it is now."
  (porter-test-with-server (server `(((:GET . "^/ok$") . porter-test-hello)
                                     ((:GET . "^/boom$") . ,(lambda (_) (error "Boom")))))
    (dolist (path '("/ok" "/boom" "/none"))
      (should (porter-test-header (porter-test-get server path) "date")))
    ;; The reader has checked its form and that it is now.
    (porter-test-with-client (client server)
      (porter-test-write client "BAD\r\n\r\n")
      (should (porter-test-header (porter-test-read client) "date")))))

(ert-deftest porter-http1-9110-6.6.1-date-of-the-handler ()
  "A Date or Server that the handler gives replaces Porter's."
  (porter-test-with-server
      (server (lambda (request)
                (porter-test-answer
                 request "x" 200
                 (cons "Date" (let ((system-time-locale "C"))
                                (format-time-string "%a, %d %b %Y %T GMT" nil t))))))
    (should (porter-test-header (porter-test-get server "/") "date"))))

(ert-deftest porter-http1-9110-8.6-length ()
  "RFC 9110 8.6: an answer that is whole when the handler returns has a Content-Length."
  (porter-test-with-server
      (server `(((:GET . "^/sends$")
                 . ,(lambda (request)
                      (let ((process (porter-test-process request)))
                        (porter-response-header process 200 '("Content-Type" . "text/plain"))
                        (dolist (piece '("a" "b\u00fc" "c")) (porter-send process piece)))))
                ((:GET . "^/empty$")
                 . ,(lambda (request)
                      (porter-response-header (porter-test-process request) 200)))))
    (let ((response (porter-test-get server "/sends")))
      (should (eq 'length (porter-test-response-framing response)))
      (should (equal "ab\303\274c" (porter-test-response-body response))))
    (should (equal "0" (porter-test-header (porter-test-get server "/empty")
                                           "content-length")))))

(ert-deftest porter-http1-9110-8.6-length-by-the-handler ()
  "A handler's own Content-Length is not doubled."
  (porter-test-with-server
      (server (lambda (request)
                (porter-test-answer request "hello" 200 '("Content-Length" . "5"))))
    (should (equal "5" (porter-test-header (porter-test-get server "/") "content-length")))))

(ert-deftest porter-http1-9110-9.3.2-head ()
  "RFC 9110 9.3.2: HEAD gets the head of the answer to GET and no body."
  (porter-http1--with (client (lambda (request)
                                (if (equal (porter-request-path request) "/stream")
                                    (let ((process (porter-test-process request)))
                                      (porter-response-header process 200)
                                      (porter-flush process)
                                      (porter-send process "hello"))
                                  (porter-test-hello request))))
    (dolist (path '("/" "/stream" "/"))
      (let ((response (porter-test-ask client "HEAD" path)))
        (should (= 200 (porter-test-response-status response)))
        (should (equal "" (porter-test-response-body response)))
        (when (equal path "/")
          (should (equal "5" (porter-test-header response "content-length")))))
      ;; Stray body bytes would be taken for the start of this one.
      (should (equal "hello" (porter-test-response-body (porter-test-ask client "GET" path)))))))

(ert-deftest porter-http1-9110-10.1.1-expect-continue ()
  "RFC 9110 10.1.1: 100 comes when the body is wanted, and the answer after it."
  (porter-http1--with (client (lambda (request)
                                (porter-test-answer request (porter-request-body request))))
    (porter-test-write client (concat "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                                      "Expect: 100-continue\r\n\r\n"))
    (should (= 100 (porter-test-response-status (porter-test-read-any client))))
    (porter-test-write client "hello")
    (should (equal "hello" (porter-test-response-body (porter-test-read client))))))

(ert-deftest porter-http1-9110-10.1.1-expect-with-body-at-once ()
  "A body that is sent without waiting for the 100 is fine."
  (porter-http1--with (client (lambda (request)
                                (porter-test-answer request (porter-request-body request))))
    (should (equal "hello"
                   (porter-test-response-body
                    (porter-http1--exchange
                     client (concat "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                                    "Expect: 100-continue\r\n\r\nhello")))))
    (porter-test-should-stay-open client)))

(ert-deftest porter-http1-9110-10.1.1-other-expectations ()
  "RFC 9110 10.1.1: another expectation gets 417."
  (porter-http1--with (client (lambda (_) (error "Called")))
    (should (= 417 (porter-http1--status
                    client (concat "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                                   "Expect: something-else\r\n\r\nhello"))))))

(ert-deftest porter-http1-9110-15-no-body ()
  "RFC 9110 15: 204 and 304 carry no body, whatever the handler sends."
  (porter-http1--with (client (lambda (request)
                                (porter-test-answer
                                 request "unwanted"
                                 (string-to-number (substring (porter-request-path request) 1)))))
    (dolist (status '(204 304 200 204))
      (let ((response (porter-test-ask client "GET" (format "/%d" status))))
        (should (= status (porter-test-response-status response)))
        (should (equal (if (= status 200) "unwanted" "")
                       (porter-test-response-body response)))))))

(ert-deftest porter-http1-9110-15-reasons ()
  "Usual statuses come with their usual reasons."
  (porter-http1--with (client (lambda (request)
                                (porter-test-answer
                                 request ""
                                 (string-to-number (substring (porter-request-path request) 1)))))
    (pcase-dolist (`(,status . ,reason)
                   '((200 . "OK") (201 . "Created") (204 . "No Content") (304 . "Not Modified")
                     (400 . "Bad Request") (404 . "Not Found") (418 . nil) (503 . "Service Unavailable")
                     (599 . nil)))
      (let ((response (porter-test-ask client "GET" (format "/%d" status))))
        (should (= status (porter-test-response-status response)))
        (when reason (should (equal reason (porter-test-response-reason response))))))))

(ert-deftest porter-http1-no-banner ()
  "No version is told to strangers."
  (porter-test-with-server (server #'porter-test-hello)
    (let ((banner (porter-test-header (porter-test-get server "/") "server")))
      (should-not (and banner (string-match-p "[0-9]" banner))))))

;;;; Timeouts

(ert-deftest porter-http1-head-timeout ()
  "A head that does not end within :head-timeout gets 408 and the close."
  (porter-http1--with (client #'porter-test-hello :head-timeout 1)
    (porter-test-write client "GET / HTTP/1.1\r\nHo")
    (should (= 408 (porter-test-response-status (porter-test-read client nil 4))))
    (porter-test-should-close client)))

(ert-deftest porter-http1-body-timeout ()
  "A body without progress for :body-timeout gets 408 and the close."
  (porter-http1--with (client #'porter-test-hello :body-timeout 1)
    (porter-test-write client "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc")
    (should (= 408 (porter-test-response-status (porter-test-read client nil 4))))
    (porter-test-should-close client)))

(ert-deftest porter-http1-idle-timeout ()
  "A connection without a request for :idle-timeout is closed without a word."
  (porter-http1--with (client #'porter-test-hello :idle-timeout 1)
    (should (= 200 (porter-http1--status client porter-http1--hello)))
    (porter-test-should-close client 4)))

(provide 'porter-http1-tests)
;;; porter-http1-tests.el ends here
