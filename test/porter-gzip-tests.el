;;; porter-gzip-tests.el --- Compressed answers  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'porter-test-helper)

(defun porter-gzip-text (size)
  "A text of SIZE bytes that compresses, but not to nothing."
  (let ((text (make-string size ?\s t)) (n 7))
    (dotimes (i size text)
      (setq n (mod (+ (* n 1103515245) 12345) 2147483648))
      (aset text i (+ ?a (mod (/ n 65536) 16))))))

(defun porter-gzip-unzip (bytes)
  "BYTES, decompressed."
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (insert bytes)
    (should (zlib-decompress-region (point-min) (point-max)))
    (buffer-string)))

(defun porter-gzip-zip (bytes)
  "BYTES, compressed by gzip."
  (porter-test-need "gzip")
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (insert bytes)
    (let ((coding-system-for-read 'binary) (coding-system-for-write 'binary))
      (call-process-region (point-min) (point-max) "gzip" t t nil "-c"))
    (buffer-string)))

(defun porter-gzip-handler (body &optional headers flush)
  "A handler that answers BODY as text with HEADERS; with FLUSH in pieces."
  (lambda (request)
    (let ((process (porter-test-process request)))
      (apply #'porter-response-header process 200
             (if (assoc-string "Content-Type" headers t)
                 headers
               (cons '("Content-Type" . "text/plain") headers)))
      (dolist (piece (if (listp body) body (list body)))
        (when flush (porter-flush process))
        (porter-send process piece)))))

(defmacro porter-gzip-with (spec &rest body)
  "Run BODY with FETCH, a function of Accept-Encoding (nil: none) and a method.
SPEC is (FETCH HANDLER &rest KEYWORDS)."
  (declare (indent 1) (debug ((symbolp form &rest form) body)))
  (pcase-let ((`(,fetch ,handler . ,keywords) spec))
    `(porter-test-with-server (server ,handler ,@keywords)
       (cl-flet ((,fetch (accept &optional method)
                   (porter-test-fetch server (or method "GET") "/"
                                      (and accept (list (cons "Accept-Encoding" accept))))))
         ,@body))))

(defun porter-gzip-p (response)
  "Is RESPONSE compressed?"
  (equal "gzip" (porter-test-header response "content-encoding")))

(ert-deftest porter-gzip-negotiation ()
  "RFC 9110 12.5.3: who gets gzip, and that caches are told."
  (let ((text (porter-gzip-text 3000)))
    (porter-gzip-with (fetch (porter-gzip-handler text))
      (dolist (yes '("gzip" "GZIP" "x-gzip" "deflate, gzip" "gzip;q=0.5" "gzip; q=1.0, *;q=0" "*"
                     "br;q=1, *;q=0.1" "identity;q=0, gzip;q=0.001" "gzip ; q=1"
                     "gzip, deflate, br, zstd"))
        (let ((response (fetch yes)))
          (should (porter-gzip-p response))
          (should (equal text (porter-gzip-unzip (porter-test-response-body response))))
          (should (equal "Accept-Encoding" (porter-test-header response "vary")))))
      (dolist (no '(nil "" "identity" "br" "gzip;q=0" "gzip;q=0.000" "gzip;Q=0, *" "*;q=0" "gzipped"
                    "gzip;q=nonsense" "deflate" "gzip;q=0.1, identity" "*;q=0.5, identity;q=0.7"))
        (let ((response (fetch no)))
          (should-not (porter-gzip-p response))
          (should (equal text (porter-test-response-body response)))
          (should (equal "Accept-Encoding" (porter-test-header response "vary"))))))))

(ert-deftest porter-gzip-what-is-compressed ()
  "Text of some size, not coded yet, and whole."
  (pcase-dolist (`(,type ,zips)
                 '(("text/html; charset=utf-8" t) ("TEXT/CSS" t) ("application/json" t)
                   ("application/problem+json;x=y" t) ("image/svg+xml" t)
                   ("application/javascript" t) ("text/event-stream" nil) ("image/png" nil)
                   ("application/octet-stream" nil) ("application/zip" nil) ("" nil)))
    (porter-gzip-with (fetch (porter-gzip-handler (porter-gzip-text 3000)
                                                  `(("Content-Type" . ,type))))
      (should (eq zips (porter-gzip-p (fetch "gzip"))))))
  (dolist (header '(("Content-Encoding" . "br") ("Cache-Control" . "private, no-transform")
                    ("Content-Range" . "bytes 0-2999/9000")))
    (porter-gzip-with (fetch (porter-gzip-handler (porter-gzip-text 3000) (list header)))
      (should-not (porter-gzip-p (fetch "gzip")))))
  ;; In pieces, only who asks for it.
  (porter-gzip-with (fetch (porter-gzip-handler (porter-gzip-text 3000) nil t))
    (should-not (porter-gzip-p (fetch "gzip"))))
  ;; What does not get smaller stays as it is.
  (let ((noise (apply #'unibyte-string (cl-loop repeat 1100 collect (random 256)))))
    (porter-gzip-with (fetch (porter-gzip-handler noise))
      (let ((response (fetch "gzip")))
        (should-not (porter-gzip-p response))
        (should (equal noise (porter-test-response-body response)))))))

(ert-deftest porter-gzip-options ()
  "`:compress' and `:compress-min', and their options."
  (let ((handler (porter-gzip-handler (make-string 1000 ?a))))
    (porter-gzip-with (fetch handler) (should-not (porter-gzip-p (fetch "gzip"))))
    (porter-gzip-with (fetch handler :compress-min 1000) (should (porter-gzip-p (fetch "gzip"))))
    (porter-gzip-with (fetch handler :compress-min 1001)
      (should-not (porter-gzip-p (fetch "gzip"))))
    (porter-gzip-with (fetch handler :compress-min 1 :compress nil)
      (should-not (porter-gzip-p (fetch "gzip"))))
    (let ((porter-compress-min 500))
      (porter-gzip-with (fetch handler) (should (porter-gzip-p (fetch "gzip"))))
      (let ((porter-compress nil))
        (porter-gzip-with (fetch handler) (should-not (porter-gzip-p (fetch "gzip")))))))
  (should-error (porter-start #'ignore 0 nil :compress-min 'many) :type 'porter-error))

(ert-deftest porter-gzip-large ()
  "Large bodies are compressed in the pool: byte for byte, in order, Lisp going on."
  (let ((text (porter-gzip-text 600000)))
    (porter-test-with-server
        (server (lambda (request)
                  (if (equal (porter-request-path request) "/large")
                      (porter-test-answer request text)
                    (porter-test-hello request))))
      (porter-test-with-client (client server)
        (dolist (path '("/small" "/large" "/small" "/large" "/small"))
          (porter-test-write client (porter-test-request-bytes
                                     "GET" path '(("Accept-Encoding" . "gzip")))))
        (dolist (large '(nil t nil t nil))
          (let* ((response (porter-test-read client "GET" 10))
                 (body (porter-test-response-body response)))
            (should (eq large (porter-gzip-p response)))
            (should (equal (if large text "hello") (if large (porter-gzip-unzip body) body))))))
      ;; The client leaves while the pool is at it; the server stops meanwhile.
      (dotimes (_ 5)
        (porter-test-with-client (client server)
          (porter-test-write client (porter-test-request-bytes
                                     "GET" "/large" '(("Accept-Encoding" . "gzip"))))
          (porter-test-pause 0.005)
          (porter-test-reset client)))
      (porter-test-should-serve server)
      (porter-test-with-client (client server)
        (porter-test-write client (porter-test-request-bytes
                                   "GET" "/large" '(("Accept-Encoding" . "gzip"))))
        (porter-test-pause 0.005)
        (porter-stop server)
        (should (equal text (porter-gzip-unzip
                             (porter-test-response-body (porter-test-read client "GET" 10)))))))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-gzip-head ()
  "HEAD has the header that GET would have."
  (dolist (size '(3000 100000))
    (porter-gzip-with (fetch (porter-gzip-handler (porter-gzip-text size)))
      (let ((get (fetch "gzip")) (head (fetch "gzip" "HEAD")))
        (should (porter-gzip-p head))
        (should (equal (porter-test-header get "content-length")
                       (porter-test-header head "content-length")))))))

(ert-deftest porter-gzip-etag ()
  "RFC 9110 8.8.1: a strong validator does not name two codings."
  (pcase-dolist (`(,etag ,zipped) '(("\"abc\"" "W/\"abc\"") ("W/\"abc\"" "W/\"abc\"")))
    (porter-gzip-with (fetch (porter-gzip-handler (porter-gzip-text 3000) `(("ETag" . ,etag))))
      (should (equal etag (porter-test-header (fetch nil) "etag")))
      (should (equal zipped (porter-test-header (fetch "gzip") "etag"))))
    ;; Also one that something around the handler has added.
    (let ((handler (porter-gzip-handler (porter-gzip-text 3000))))
      (porter-gzip-with (fetch (lambda (request)
                                 (porter-add-header (porter-test-process request) "X-A" "b")
                                 (porter-add-header (porter-test-process request) "ETag" etag)
                                 (funcall handler request)))
        (should (equal etag (porter-test-header (fetch nil) "etag")))
        (should (equal zipped (porter-test-header (fetch "gzip") "etag")))
        (should (equal "b" (porter-test-header (fetch "gzip") "x-a")))))))

(ert-deftest porter-gzip-by-hand ()
  "A handler says Content-Encoding: gzip and sends plain strings; it just works."
  (let ((headers '(("Content-Encoding" . "gzip") ("Content-Type" . "image/png")
                   ("Content-Length" . "12"))))
    (dolist (flush '(nil t))
      (dolist (body (list "hello, hello" (list "hello, " "hello") (porter-gzip-text 100000)))
        (porter-gzip-with (fetch (porter-gzip-handler body headers flush) :compress nil)
          (let ((plain (if (listp body) (apply #'concat body) body)))
            (dolist (accept '(nil "gzip"))
              (let ((response (fetch accept)))
                (should (porter-gzip-p response))
                (should (equal plain (porter-gzip-unzip (porter-test-response-body response))))))
            ;; A client that says it cannot read it gets what it can read.
            (unless (and flush (> (length plain) 12))
              (let ((response (fetch "identity")))
                (should-not (porter-gzip-p response))
                (should (equal plain (porter-test-response-body response)))))))))))

(ert-deftest porter-gzip-by-hand-compressed-already ()
  "What is gzip already is not compressed once more."
  (let ((zipped (porter-gzip-zip "hello, hello")))
    (dolist (flush '(nil t))
      (porter-gzip-with (fetch (lambda (request)
                                 (let ((process (porter-test-process request)))
                                   (porter-response-header process 200
                                                           '("Content-Encoding" . "gzip"))
                                   (porter-send process zipped)
                                   (when flush (porter-flush process)))))
        (let ((response (fetch "gzip")))
          (should (porter-gzip-p response))
          (should (equal zipped (porter-test-response-body response))))))))

(ert-deftest porter-gzip-streams-flush ()
  "A compressed stream is readable as far as it was flushed."
  (let (process)
    (porter-test-with-server
        (server (lambda (request)
                  (setq process (porter-test-process request))
                  (porter-response-header process 200 '("Content-Encoding" . "gzip")
                                          '("Content-Type" . "text/event-stream"))
                  (porter-send process "data: 1\n\n")
                  :keep-alive))
      (porter-test-with-client (client server)
        (porter-test-write client (porter-test-request-bytes
                                   "GET" "/" '(("Accept-Encoding" . "gzip"))))
        (porter-test-wait (lambda () process) 3 "No call")
        (dolist (n '("2" "3"))
          (porter-send process (format "data: %s\n\n" n))
          (porter-flush process))
        (porter-finish process)
        (should (equal "data: 1\n\ndata: 2\n\ndata: 3\n\n"
                       (porter-gzip-unzip
                        (porter-test-response-body (porter-test-read client "GET")))))))))

(ert-deftest porter-gzip-curl ()
  "Another implementation reads it."
  (porter-test-need "curl")
  (let ((text (porter-gzip-text 50000)))
    (porter-test-with-server (server (porter-gzip-handler text))
      (should (equal text (cdr (porter-test-run (list "curl" "-s" "--compressed"
                                                      (porter-url server))
                                                10)))))))

(ert-deftest porter-gzip-leaves-nothing ()
  "Whatever became of them, nothing of compressed answers stays."
  (porter-test-should-come-to-rest)
  (porter-test-with-server
      (server (lambda (request)
                (let ((process (porter-test-process request)))
                  (porter-response-header process 200 '("Content-Encoding" . "gzip"))
                  (porter-send process (make-string 20000 ?a))
                  (pcase (porter-request-path request)
                    ("/error" (porter-flush process) (error "No"))
                    ("/later" (porter-flush process) :keep-alive)))))
    (dolist (path '("/" "/error"))
      (porter-test-with-client (client server)
        (porter-test-write client (porter-test-request-bytes
                                   "GET" path '(("Connection" . "close"))))
        (porter-test-await-close client)))
    (porter-test-with-client (client server)
      (porter-test-write client (porter-test-request-bytes "GET" "/later"))
      (porter-test-await client (lambda () (> (length (porter-test-bytes client)) 0)) 3)))
  (porter-test-should-come-to-rest))

(provide 'porter-gzip-tests)
;;; porter-gzip-tests.el ends here
