;;; porter-answers-tests.el --- What leaves, and how it is framed  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'porter-test-helper)

(defun porter-answers-raw (server bytes)
  "Send BYTES to SERVER and return all that comes until it closes."
  (porter-test-with-client (client server)
    (porter-test-write client bytes)
    (porter-test-await-close client 4)
    (porter-test-bytes client)))

(defun porter-answers-request (method &optional version headers)
  "The bytes of a request of METHOD that asks to close; VERSION is 1.1 by default."
  (format "%s / HTTP/%s\r\nHost: localhost\r\n%sConnection: close\r\n\r\n"
          method (or version "1.1") (or headers "")))

(defun porter-answers-of (handler method &optional version headers &rest keywords)
  "All bytes with which HANDLER's server answers METHOD, VERSION, HEADERS.
KEYWORDS are for the server."
  (let ((port-server (apply #'porter-test-start handler keywords)))
    (unwind-protect
        (porter-test-quietly
          (porter-answers-raw port-server (porter-answers-request method version headers)))
      (porter-stop port-server))))

(defun porter-answers-head (bytes)
  "The head in BYTES."
  (substring bytes 0 (string-match "\r\n\r\n" bytes)))

(defun porter-answers-body (bytes)
  "What is behind the head in BYTES."
  (substring bytes (+ 4 (string-match "\r\n\r\n" bytes))))

(defun porter-answers-count (regexp string)
  "How often REGEXP occurs in STRING."
  (let ((case-fold-search t))
    (1- (length (split-string string regexp)))))

(defun porter-answers-handler (code headers body &optional flush)
  "A handler that says CODE, HEADERS and BODY; with FLUSH in pieces."
  (lambda (request)
    (let ((process (porter-test-process request)))
      (apply #'porter-response-header process code headers)
      (when flush (porter-flush process))
      (when body (porter-send process body)))))

;;;; Framing

(ert-deftest porter-answers-one-framing ()
  "RFC 9112 6: a length or chunks, never both, whatever the handler claims."
  (dolist (flush '(nil t))
    (dolist (headers '(nil (("Content-Length" . "5")) (("Transfer-Encoding" . "chunked"))
                           (("Content-Length" . "5") ("Transfer-Encoding" . "chunked"))
                           (("content-length" . "5") ("CONTENT-LENGTH" . "5"))))
      (let* ((bytes (porter-answers-of (porter-answers-handler 200 headers "hello" flush) "GET"))
             (head (porter-answers-head bytes)))
        (should (= 1 (+ (porter-answers-count "^content-length:" head)
                        (porter-answers-count "^transfer-encoding:" head))))
        (should (= 1 (porter-answers-count "^HTTP/1" bytes)))))))

(ert-deftest porter-answers-bodiless-statuses ()
  "RFC 9110 6.4.1, 15.3.6: 204, 205, 304 and answers to HEAD have no body."
  (dolist (flush '(nil t))
    (dolist (code '(204 205 304))
      (let ((bytes (porter-answers-of (porter-answers-handler code nil "dropped" flush) "GET")))
        (should (equal "" (porter-answers-body bytes)))
        (should-not (string-match-p "transfer-encoding" bytes))
        (when (= code 204) (should-not (string-match-p "Content-Length" bytes)))
        (when (= code 205) (should (string-match-p "^Content-Length: 0\r" bytes)))))
    (let ((bytes (porter-answers-of (porter-answers-handler 200 nil "hello" flush) "HEAD")))
      (should (equal "" (porter-answers-body bytes)))
      (unless flush (should (string-match-p "^Content-Length: 5\r" bytes))))))

(ert-deftest porter-answers-connection-field ()
  "RFC 9112 9.3: 1.0 closes unless asked otherwise, 1.1 stays, and both are told."
  (porter-test-with-server (server #'porter-test-hello)
    (pcase-dolist (`(,version ,field ,says ,stays)
                   '(("1.1" nil nil t) ("1.1" "close" "close" nil) ("1.1" "keep-alive" nil t)
                     ("1.0" nil "close" nil) ("1.0" "keep-alive" "keep-alive" t)
                     ("1.0" "close" "close" nil)))
      (porter-test-with-client (client server)
        (porter-test-write client (format "GET / HTTP/%s\r\nHost: localhost\r\n%s\r\n" version
                                          (if field (format "Connection: %s\r\n" field) "")))
        (let ((response (porter-test-read client "GET")))
          (should (equal says (porter-test-header response "connection")))
          (if stays
              (porter-test-should-stay-open client 0.05)
            (porter-test-should-close client)))))))

(ert-deftest porter-answers-growing-on-1.0-ends-by-close ()
  "A client of HTTP/1.0 gets no chunks: the close ends a body of unknown length."
  (let ((bytes (porter-answers-of (porter-answers-handler 200 nil "hello" t) "GET" "1.0")))
    (should (equal "hello" (porter-answers-body bytes)))
    (should-not (string-match-p "chunked" bytes))
    (should (string-match-p "^Connection: close\r" bytes))))

(ert-deftest porter-answers-declared-length-that-is-wrong ()
  "The true length is sent; where the head is out already, neither more nor a lie."
  ;; All there: counted.
  (dolist (claim '("3" "9"))
    (let ((bytes (porter-answers-of
                  (porter-answers-handler 200 `(("Content-Length" . ,claim)) "hello") "GET")))
      (should (string-match-p "^Content-Length: 5\r" bytes))
      (should (equal "hello" (porter-answers-body bytes)))))
  ;; Too much: cut at what was declared.
  (let ((bytes (porter-answers-of
                (porter-answers-handler 200 '(("Content-Length" . "3")) "hello" t) "GET")))
    (should (equal "hel" (porter-answers-body bytes))))
  ;; Too little: the connection ends, also one that was to stay.
  (porter-test-with-server (server (porter-answers-handler
                                    200 '(("Content-Length" . "9")) "hello" t))
    (porter-test-with-client (client server)
      (porter-test-write client (porter-test-request-bytes "GET" "/"))
      (porter-test-await-close client)
      (should (string-suffix-p "\r\n\r\nhello" (porter-test-bytes client)))))
  ;; No number at all.
  (dolist (claim '("-1" "+5" "5, 5" "0x5" "" "five" "99999999999999999999"))
    (should (string-prefix-p "HTTP/1.1 500 "
                             (porter-answers-of
                              (porter-answers-handler 200 `(("Content-Length" . ,claim)) "hello")
                              "GET")))))

(ert-deftest porter-answers-error-after-the-head-cuts ()
  "What cannot be completed ends in a way that no client takes for complete."
  (let ((bytes (porter-answers-of (lambda (request)
                                    (let ((process (porter-test-process request)))
                                      (porter-response-header process 200)
                                      (porter-send process "part")
                                      (porter-flush process)
                                      (error "Too late")))
                                  "GET")))
    (should (= 1 (porter-answers-count "^HTTP/1" bytes)))
    (should (string-suffix-p "4\r\npart\r\n" bytes))
    (should-not (string-match-p "Too late" bytes))))

(ert-deftest porter-answers-one-status ()
  "A second status is an error; one that was not out yet gives way to the 500."
  (let ((bytes (porter-answers-of (lambda (request)
                                    (porter-response-header (porter-test-process request) 200)
                                    (porter-response-header (porter-test-process request) 201))
                                  "GET")))
    (should (= 1 (porter-answers-count "^HTTP/1" bytes)))
    (should (string-prefix-p "HTTP/1.1 500 " bytes)))
  (dolist (code '(0 99 100 101 103 199 600 1000 -1))
    (should (string-prefix-p "HTTP/1.1 500 "
                             (porter-answers-of (porter-answers-handler code nil "x") "GET")))))

(ert-deftest porter-answers-close-connection ()
  "(throw \\='close-connection) ends a handler; what it said is its answer."
  (should (equal "said" (porter-answers-body
                         (porter-answers-of (lambda (request)
                                              (porter-test-answer request "said")
                                              (throw 'close-connection nil))
                                            "GET"))))
  (should (string-prefix-p "HTTP/1.1 404 "
                           (porter-answers-of (lambda (request)
                                                (porter-send-404 (porter-test-process request)
                                                                 "No %s" "%s")
                                                (error "Not reached"))
                                              "GET"))))

(ert-deftest porter-answers-no-line-breaks-in-fields ()
  "A value with a line break, a name that is no token: an error, and nothing of it leaves."
  (dolist (header '(("X" . "a\r\nSet-Cookie: b") ("X" . "a\nb") ("X" . "a\0") ("X: y" . "z")
                    ("" . "z") ("X\r\nY" . "z") ("X Y" . "z")))
    (let ((bytes (porter-answers-of (porter-answers-handler 200 (list header) "x") "GET")))
      (should (string-prefix-p "HTTP/1.1 500 " bytes))
      (should-not (string-match-p "Set-Cookie" bytes)))))

;;;; Interim answers and trailers

(ert-deftest porter-answers-early-hints ()
  "103 comes before the final answer, which comes right behind."
  (let ((link '("Link" . "</a.css>; rel=preload; as=style")) sent)
    (porter-test-with-server (server (lambda (request)
                                       (let ((process (porter-test-process request)))
                                         (setq sent (porter-early-hints process link))
                                         (sit-for 0.05)
                                         (porter-early-hints process link)
                                         (porter-test-answer request "final"))))
      (let ((bytes (porter-answers-raw server (porter-answers-request "GET"))))
        (should (eq sent t))
        (should (string-match-p
                 (concat "\\`\\(?:HTTP/1\\.1 103 Early Hints\r\nLink: [^\r]*\r\n\r\n\\)\\{2\\}"
                         "HTTP/1\\.1 200 OK\r\n")
                 bytes))
        (should (string-suffix-p "\r\n\r\nfinal" bytes)))
      ;; RFC 9110 15.2: none to HTTP/1.0.
      (let ((bytes (porter-answers-raw server (porter-answers-request "GET" "1.0"))))
        (should-not sent)
        (should (string-prefix-p "HTTP/1.1 200 " bytes)))
      ;; In the middle of a pipeline, in order.
      (porter-test-with-client (client server)
        (dotimes (_ 3) (porter-test-write client (porter-test-request-bytes "GET" "/")))
        (porter-test-await client
                           (lambda () (= 3 (porter-answers-count "final"
                                                                 (porter-test-bytes client))))
                           4)
        (should (equal '("103" "103" "200" "103" "103" "200" "103" "103" "200")
                       (let ((bytes (porter-test-bytes client)) (at 0) found)
                         (while (string-match "HTTP/1.1 \\([0-9]+\\)" bytes at)
                           (push (match-string 1 bytes) found)
                           (setq at (match-end 0)))
                         (nreverse found))))))))

(ert-deftest porter-answers-early-hints-and-a-timeout ()
  "The loop's answer in the place of a late one stands behind its hints."
  (porter-test-with-server (server (lambda (request)
                                     (porter-early-hints (porter-test-process request)
                                                         '("Link" . "</x>"))
                                     :keep-alive)
                                   :handler-timeout 0.2)
    (let ((bytes (porter-answers-raw server (porter-answers-request "GET"))))
      (should (string-match-p "\\`HTTP/1\\.1 103 \\(?:.\\|\n\\)*\r\n\r\nHTTP/1\\.1 504 " bytes))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-answers-trailers ()
  "RFC 9112 7.1.2: fields behind a chunked body."
  (let ((handler (lambda (request)
                   (let ((process (porter-test-process request)))
                     (porter-response-header process 200 '("Trailer" . "X-Sum"))
                     (porter-send process "hello")
                     (porter-trailers process '("X-Sum" . "5d41")))))
        bytes)
    (setq bytes (porter-answers-of handler "GET"))
    (should (string-match-p "^Transfer-Encoding: chunked\r" bytes))
    (should (string-suffix-p "\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 5d41\r\n\r\n" bytes))
    (setq bytes (porter-answers-of handler "GET" "1.0"))
    (should (string-suffix-p "\r\n\r\nhello" bytes))
    (setq bytes (porter-answers-of handler "HEAD"))
    (should (string-suffix-p "\r\n\r\n" bytes))
    (should-not (string-match-p "5d41" bytes)))
  (dolist (name '("Content-Length" "transfer-encoding" "Set-Cookie" "Host" "Trailer" "a b"))
    (should (string-prefix-p
             "HTTP/1.1 500 "
             (porter-answers-of (lambda (request)
                                  (porter-response-header (porter-test-process request) 200)
                                  (porter-trailers (porter-test-process request)
                                                   (cons name "1")))
                                "GET")))))

(ert-deftest porter-answers-added-headers ()
  "A header added beforehand is in the answer, whoever gives it, even an error."
  (dolist (code '(200 500))
    (let ((bytes (porter-answers-of (lambda (request)
                                      (porter-add-header (porter-test-process request) "X-A" "1")
                                      (porter-add-header (porter-test-process request) "X-B" "2")
                                      (if (= code 500) (error "No")
                                        (porter-test-answer request "hello")))
                                    "GET")))
      (should (string-prefix-p (format "HTTP/1.1 %d " code) bytes))
      (should (= 1 (porter-answers-count "^X-A: 1\r" bytes)))
      (should (= 1 (porter-answers-count "^X-B: 2\r" bytes)))))
  (dolist (name '("Content-Length" "Transfer-Encoding" "Connection" "Content-Encoding" "a b" ""))
    (should (string-prefix-p
             "HTTP/1.1 500 "
             (porter-answers-of (lambda (request)
                                  (porter-add-header (porter-test-process request) name "1")
                                  (porter-test-answer request "hello"))
                                "GET")))))

;;;; Redirects and cookies

(ert-deftest porter-answers-redirects ()
  "The statuses of redirects; targets cannot break out of their field."
  (dolist (code '(301 302 303 307 308))
    (should (string-match-p (format "\\`HTTP/1\\.1 %d \\(?:.\\|\n\\)*\nLocation: /there\r" code)
                            (porter-answers-of
                             (lambda (request)
                               (porter-redirect (porter-test-process request) "/there" code))
                             "GET"))))
  (should (string-match-p "^Location: /%C3%BC%20%22\\?q=%20\r"
                          (porter-answers-of
                           (lambda (request)
                             (porter-redirect (porter-test-process request) "/ü \"?q=%20"))
                           "GET")))
  (dolist (bad '(("/a\r\nX: y") ("/a\nb") ("/a" 200) ("/a" 304)
                 ("//evil.example" nil t) ("/\\evil.example" nil t) ("https://evil.example" nil t)
                 ("/\t/evil.example" nil t) ("" nil t) ("evil" nil t)))
    (should (string-prefix-p
             "HTTP/1.1 500 "
             (porter-answers-of (lambda (request)
                                  (apply #'porter-redirect (porter-test-process request) bad))
                                "GET"))))
  (dolist (good '("/" "/a" "/a//b" "/?x"))
    (should (string-prefix-p
             "HTTP/1.1 303 "
             (porter-answers-of (lambda (request)
                                  (porter-redirect (porter-test-process request) good 303 t))
                                "GET")))))

(ert-deftest porter-answers-cookies-set ()
  "What `porter-set-cookie' makes, and what it refuses (RFC 6265 4.1)."
  (should (equal (porter-set-cookie "a" "1")
                 '("Set-Cookie" . "a=1; Path=/; HttpOnly; SameSite=Lax")))
  (should (equal (cdr (porter-set-cookie "a" nil))
                 "a=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"))
  (should (equal (cdr (porter-set-cookie "__Host-s" "x/y+z=[]" :secure t :max-age 60
                                         :same-site 'strict :expires 0))
                 (concat "__Host-s=x/y+z=[]; Path=/; Max-Age=60; "
                         "Expires=Thu, 01 Jan 1970 00:00:00 GMT; Secure; HttpOnly; "
                         "SameSite=Strict")))
  (should (equal (cdr (porter-set-cookie "a" "1" :path "/x" :domain "example.org"
                                         :http-only nil :same-site nil))
                 "a=1; Path=/x; Domain=example.org"))
  (dolist (bad '(("a b" "1") ("" "1") ("a=" "1") ("a" "1;2") ("a" "1 2") ("a" "\"1\"") ("a" "1,2")
                 ("a" "ü") ("a" "1\r\nX: y") ("a" "\\") ("a" "1" :path "/;x") ("a" "1" :domain "\n")
                 ("a" "1" :max-age "1; x") ("a" "1" :same-site none) ("a" "1" :same-site odd)
                 ("a" "1" :expire 1) ("__Host-a" "1") ("__Secure-a" "1")
                 ("__Host-a" "1" :secure t :path "/x") ("__Host-a" "1" :secure t :domain "x")))
    (should-error (apply #'porter-set-cookie bad) :type 'porter-invalid-header)))

(ert-deftest porter-answers-cookies-both-ways ()
  "A cookie that is set comes back, and several are several lines."
  (porter-test-with-server (server (lambda (request)
                                     (porter-respond
                                      (porter-test-process request) 200
                                      (list (porter-set-cookie "a" "1") (porter-set-cookie "b" "2"))
                                      (or (porter-request-cookie request "b") "none"))))
    (let ((bytes (porter-answers-raw server (porter-answers-request
                                             "GET" nil "Cookie: a=x; b=two\r\n"))))
      (should (= 2 (porter-answers-count "^Set-Cookie: " bytes)))
      (should (equal "two" (porter-answers-body bytes))))))

;;;; Guards

(defun porter-answers-basic (user-password)
  "The Authorization line for USER-PASSWORD."
  (format "Authorization: Basic %s\r\n"
          (base64-encode-string (encode-coding-string user-password 'utf-8) t)))

(ert-deftest porter-answers-authentication ()
  "RFC 7617: without the right credentials 401 and a challenge, and no handler call."
  (let* ((calls 0)
         (handler (porter-with-authentication
                   (lambda (request) (cl-incf calls) (porter-test-answer request "secret"))
                   '(("u" . "p") ("ü" . "p:ä") ("e" . "")) "My \"realm\""))
         (ask (lambda (headers) (porter-answers-of handler "GET" nil headers))))
    (dolist (good (list (porter-answers-basic "u:p") (porter-answers-basic "ü:p:ä")
                        (porter-answers-basic "e:")
                        "authorization: bAsIc dTpw\r\n"))
      (should (string-suffix-p "\r\n\r\nsecret" (funcall ask good))))
    (should (= calls 4))
    (dolist (bad (list "" (porter-answers-basic "u:q") (porter-answers-basic "u:pp")
                       (porter-answers-basic "u:") (porter-answers-basic "U:p")
                       (porter-answers-basic "u") (porter-answers-basic ":")
                       (porter-answers-basic "e:p") "Authorization: Basic\r\n"
                       "Authorization: Basic %%%\r\n" "Authorization: Basic dTpw x\r\n"
                       "Authorization: Bearer dTpw\r\n" "Authorization: dTpw\r\n"))
      (let ((bytes (funcall ask bad)))
        (should (string-prefix-p "HTTP/1.1 401 " bytes))
        (should (string-match-p
                 "^WWW-Authenticate: Basic realm=\"My \\\\\"realm\\\\\"\", charset=\"UTF-8\"\r"
                 bytes))))
    (should (= calls 4))))

(ert-deftest porter-answers-authentication-functions ()
  "Credentials by a function, other refusals, and routes inside."
  (let ((handler (porter-with-authentication
                  `(((:GET . "^/$") . porter-test-hello))
                  (lambda (user password) (and (equal user "f") (equal password "g")))
                  nil
                  (lambda (request) (porter-test-answer request "who" 403))
                  (lambda (request) (porter-test-answer request "wrong" 403)))))
    (should (string-suffix-p "hello" (porter-answers-of handler "GET" nil
                                                        (porter-answers-basic "f:g"))))
    (should (string-suffix-p "who" (porter-answers-of handler "GET")))
    (should (string-suffix-p "wrong" (porter-answers-of handler "GET" nil
                                                        (porter-answers-basic "f:h")))))
  (should-error (porter-with-authentication #'ignore nil))
  (should-error (porter-with-authentication #'ignore '(("u" . "p")) "a\r\nb")))

(ert-deftest porter-answers-cors ()
  "Pages of allowed origins may read answers, errors too; others may not."
  (let* ((handler (porter-with-cors '(((:GET . "^/$") . porter-test-hello))
                                    '("https://Good.example") :methods '("GET" "PUT")
                                    :headers '("X-A") :expose '("X-B") :credentials t :max-age 60))
         (bytes (porter-answers-of handler "GET" nil "Origin: https://good.example\r\n")))
    (should (string-match-p "^Access-Control-Allow-Origin: https://good.example\r" bytes))
    (should (string-match-p "^Access-Control-Allow-Credentials: true\r" bytes))
    (should (string-match-p "^Access-Control-Expose-Headers: X-B\r" bytes))
    (should (string-match-p "^Vary: Origin\r" bytes))
    (should (string-suffix-p "hello" bytes))
    (dolist (origin '("" "Origin: https://evil.example\r\n" "Origin: null\r\n"
                      "Origin: https://good.example.evil\r\n"))
      (setq bytes (porter-answers-of handler "GET" nil origin))
      (should-not (string-match-p "Access-Control" bytes))
      (should (string-match-p "^Vary: Origin\r" bytes))
      (should (string-suffix-p "hello" bytes)))
    (setq bytes (porter-answers-of handler "OPTIONS" nil
                                   (concat "Origin: https://good.example\r\n"
                                           "Access-Control-Request-Method: PUT\r\n")))
    (should (string-prefix-p "HTTP/1.1 204 " bytes))
    (should (string-match-p "^Access-Control-Allow-Methods: GET, PUT\r" bytes))
    (should (string-match-p "^Access-Control-Allow-Headers: X-A\r" bytes))
    (should (string-match-p "^Access-Control-Max-Age: 60\r" bytes))
    (setq bytes (porter-answers-of handler "OPTIONS" nil
                                   (concat "Origin: https://evil.example\r\n"
                                           "Access-Control-Request-Method: PUT\r\n")))
    (should (string-prefix-p "HTTP/1.1 204 " bytes))
    (should-not (string-match-p "Access-Control" bytes)))
  (let ((bytes (porter-answers-of (porter-with-cors (lambda (_) (error "No")) t) "GET" nil
                                  "Origin: https://any.example\r\n")))
    (should (string-prefix-p "HTTP/1.1 500 " bytes))
    (should (string-match-p "^Access-Control-Allow-Origin: \\*\r" bytes))
    (should-not (string-match-p "^Vary" bytes)))
  (should-error (porter-with-cors #'ignore t :credentials t) :type 'porter-error))

;;;; Porter's own pages

(ert-deftest porter-answers-own-pages-say-no-more-than-needed ()
  "Plain text that is not sniffed, no version, and nothing echoed as markup."
  (porter-test-with-server (server '(((:GET . "^/error$") . (lambda (_) (error "<b>%s</b>" 1)))
                                     ((:GET . "^/404$") . (lambda (r)
                                                            (porter-send-404 (oref r process)
                                                                             "<b>")))))
    (dolist (bytes '("GET /error HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                     "GET /404 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                     "GET /<script> HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                     "GET /none?%3Cscript%3E HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                     "PUT /error HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                     "GET / HTTP/1.1\r\nHost: <script>.example\r\n\r\n"
                     "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"
                     "<script> / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
      (let ((answer (porter-answers-raw server bytes)))
        (should (string-match-p "^Content-Type: text/plain; charset=utf-8\r" answer))
        (should (string-match-p "^X-Content-Type-Options: nosniff\r" answer))
        (should-not (string-match-p "script" (porter-answers-body answer)))
        (should-not (string-match-p "^Server:\\|^X-Powered-By:" answer))))))

;;;; Which Host is answered

(defun porter-answers-host-statuses (hosts &rest keywords)
  "The statuses for requests with each of HOSTS to a server with KEYWORDS."
  (let ((server (apply #'porter-test-start #'porter-test-hello keywords)))
    (unwind-protect
        (porter-test-quietly
          (mapcar (lambda (host)
                    (string-to-number
                     (substring (porter-answers-raw
                                 server (format "GET / HTTP/1.1\r\nHost: %s\r\n%s\r\n" host
                                                "Connection: close\r\n"))
                                9 12)))
                  hosts))
      (porter-stop server))))

(ert-deftest porter-answers-hosts-of-loopback ()
  "A loopback server answers for loopback names alone: DNS rebinding gets 421."
  (let ((good '("localhost" "LocalHost" "localhost:80" "localhost:65535" "localhost."
                "localhost.:8080" "127.0.0.1" "127.0.0.1:1" "127.1.2.3" "[::1]" "[::1]:8080"
                "app.localhost" "A.b.LOCALHOST:1"))
        (bad '("evil.example" "evil.example:8080" "localhost.evil.example" "127.0.0.1.evil.example"
               "evillocalhost" "128.0.0.1" "0.0.0.0" "[::2]" "[::ffff:1.2.3.4]" "169.254.169.254"
               "127.0.0.1.nip.io" "example.org.")))
    (should (equal (mapcar (lambda (_) 200) good) (porter-answers-host-statuses good)))
    (should (equal (mapcar (lambda (_) 421) bad) (porter-answers-host-statuses bad)))))

(ert-deftest porter-answers-hosts-allowed ()
  "`:allowed-hosts' adds names; one with a port is for that port alone."
  (should (equal '(200 200 200 200 421 200 421 421 200 200 200)
                 (porter-answers-host-statuses
                  '("my.example" "MY.example" "my.example:99" "my.example." "other.example"
                    "port.example:8080" "port.example" "port.example:8081"
                    "localhost" "[fe80::1]" "[FE80::1]:80")
                  :allowed-hosts '("My.Example" "port.example:8080" "[fe80::1]")))))

(ert-deftest porter-answers-hosts-absolute-form ()
  "RFC 9112 3.2.2: the target's authority counts, whatever Host says."
  (porter-test-with-server (server #'porter-test-hello)
    (pcase-dolist (`(,target ,host ,status)
                   '(("http://localhost/" "evil.example" "200")
                     ("http://evil.example/" "localhost" "421")))
      (should (equal status
                     (substring (porter-answers-raw
                                 server (format "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" target host
                                                "Connection: close\r\n"))
                                9 12))))))

(ert-deftest porter-answers-hosts-not-loopback ()
  "A server for all addresses answers any Host, unless given a list."
  (should (equal '(200 200) (porter-answers-host-statuses '("any.example" "localhost") :host nil)))
  (should (equal '(200 421) (porter-answers-host-statuses
                             '("my.example" "any.example")
                             :host nil :allowed-hosts '("my.example")))))

(provide 'porter-answers-tests)
;;; porter-answers-tests.el ends here
