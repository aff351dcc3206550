;;; porter-states-tests.el --- What happens between the threads  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; States that a client, or an unlucky moment, can force: bells that ring into a drain that may
;; not nest, answers on their way while another handler waits, clients that leave while nobody
;; reads from them, memory and descriptors that run out.

;;; Code:

(require 'porter-test-helper)

(defun porter-states--wait-until (predicate seconds)
  "Wait as a handler may, until PREDICATE is non-nil or SECONDS are over."
  (let ((end (+ (float-time) (* seconds porter-test-patience))))
    (while (and (not (funcall predicate)) (< (float-time) end))
      (accept-process-output nil 0.01))))

(defun porter-states--request (target &optional version headers)
  "The bytes of a GET of TARGET in HTTP/VERSION (1.1) with the lines HEADERS."
  (format "GET %s HTTP/%s\r\nHost: localhost\r\n%s\r\n" target (or version "1.1")
          (or headers "")))

;;;; The bell

;; Everything here runs in one thread: what the innermost handler does not do, nobody does.
(ert-deftest porter-states-bell-beyond-the-depth ()
  "A ring while no drain may nest any more does not leave the bell dumb."
  (let ((depth 0) (released nil) (clients nil) server ask)
    (porter-test-with-server
        (s (lambda (request)
             (when (equal (porter-request-path request) "/deep")
               (cl-incf depth)
               (if (< depth 8)
                   (progn (funcall ask "/deep")
                          (porter-states--wait-until (lambda () released) 2))
                 ;; The deepest drain: another request comes, is rung for in vain, and is
                 ;; then taken by this drain itself, since its time is not over.
                 (let ((end (+ (float-time) 0.0055)))
                   (funcall ask "/ninth")
                   (while (< (float-time) end) (accept-process-output nil 0.001)))
                 (setq released t)))
             (porter-test-answer request "x")))
      (setq server s
            ask (lambda (path)
                  (push (porter-test-open server) clients)
                  (porter-test-write (car clients) (porter-states--request path))))
      (unwind-protect
          (dotimes (_ 10)
            (setq depth 0 released nil)
            (funcall ask "/deep")
            (porter-test-wait (lambda () released) 5 "Only %d drains nested" (lambda () depth))
            (should (equal "x" (porter-test-get-body server "/"))))
        (mapc #'porter-test-close clients)))))

(ert-deftest porter-states-waiting-handler-lets-the-rest-of-its-batch-in ()
  "Of two requests that came together the first may wait for what the second's handler does."
  (let (second waited)
    (porter-test-with-server
        (server (lambda (request)
                  (if (equal (porter-request-path request) "/second")
                      (setq second t)
                    (let ((start (float-time)))
                      (porter-states--wait-until (lambda () second) 3)
                      (setq waited (- (float-time) start))))
                  (porter-test-answer request (porter-request-path request))))
      (porter-test-with-client (client server)
        (porter-test-write client (concat (porter-states--request "/first")
                                          (porter-states--request "/second")))
        (should (equal "/first" (porter-test-response-body (porter-test-read client))))
        (should (equal "/second" (porter-test-response-body (porter-test-read client))))
        (should (< waited 1))))))

;;;; Answers on their way

(ert-deftest porter-states-stream-ends-while-another-handler-waits ()
  "The end of a growing answer, given by a timer, does not wait for a handler below it."
  (let (stream)
    (porter-test-with-server
        (server (lambda (request)
                  (let ((process (porter-test-process request)))
                    (if (equal (porter-request-path request) "/stream")
                        (progn (setq stream process)
                               (porter-response-header process 200)
                               (porter-send process "begin")
                               :keep-alive)
                      (run-at-time 0.1 nil #'porter-finish stream)
                      (porter-states--wait-until #'ignore (/ 2.0 porter-test-patience))
                      (porter-test-answer request "waited")))))
      (porter-test-with-client (one server)
        (porter-test-with-client (two server)
          (porter-test-write one (porter-states--request "/stream"))
          (porter-test-wait (lambda () stream) 3 "No request")
          (porter-test-write two (porter-states--request "/wait"))
          ;; The handler of the second answers inside this read.
          (let (at)
            (add-function :after (process-filter (porter-test-client-process one))
                          (lambda (&rest _)
                            (when (string-match-p "\r\n0\r\n\r\n" (porter-test-bytes one))
                              (setq at (or at (float-time))))))
            (let ((start (float-time)))
              (should (equal "waited" (porter-test-response-body (porter-test-read two))))
              (should at)
              (should (< (- at start) 1)))))))))

;;;; Clients that leave

(ert-deftest porter-states-client-of-a-closing-connection-leaves ()
  "A client that waits for a deferred answer on a connection to be closed is missed when it goes.
Nothing more is read from it, but its leaving is seen."
  (dolist (request (list (porter-states--request "/" "1.0")
                         (porter-states--request "/" "1.1" "Connection: close\r\n")))
    (let (process gone)
      (porter-test-with-server
          (server (lambda (request)
                    (setq process (porter-test-process request))
                    (porter-on-close process (lambda () (setq gone t)))
                    :keep-alive))
        (porter-test-with-client (client server)
          (porter-test-write client request)
          (porter-test-wait (lambda () process) 3 "No request"))
        (porter-test-wait (lambda () gone) 5 "The client is not missed")
        (should-not (porter-live-p process))
        (porter-test-wait (lambda () (= 0 (plist-get (porter-test-counts) :connections)))
                          3 "The counts are %S" #'porter-test-counts)))))

(ert-deftest porter-states-refused-upload-can-be-read ()
  "Who is refused in the middle of a slow upload reads the answer, not a reset."
  (porter-test-with-server (server #'porter-test-hello :max-body 1000)
    (porter-test-with-client (client server)
      (porter-test-write client "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n")
      (porter-test-hold client)
      (porter-test-pause 0.3)
      (dotimes (_ 3)
        (should (porter-test-write client (make-string 100 ?x)))
        (porter-test-pause 0.05))
      (should (= 413 (porter-test-response-status (porter-test-read client)))))))

(ert-deftest porter-states-nothing-behind-a-close-is-handled ()
  "RFC 9112 9.6: no request behind an answer with \"Connection: close\" is processed."
  (let (paths)
    (porter-test-with-server
        (server (lambda (request)
                  (push (porter-request-path request) paths)
                  (if (equal (porter-request-path request) "/close")
                      (porter-test-answer request "bye" 200 '("Connection" . "close"))
                    (porter-test-hello request))))
      (porter-test-with-client (client server)
        (porter-test-write client (concat (porter-states--request "/first")
                                          (porter-states--request "/close")
                                          (porter-states--request "/second")
                                          (porter-states--request "/third")))
        (should (equal "hello" (porter-test-response-body (porter-test-read client))))
        (should (equal "bye" (porter-test-response-body (porter-test-read client))))
        (porter-test-should-close client)
        (porter-test-pause 0.1)
        (should (equal '("/close" "/first") paths))))))

;;;; What runs out

(ert-deftest porter-states-nothing-behind-two-closes-is-handled ()
  "The same for two connections whose requests come to Lisp together."
  (let ((seen (list nil)))
    (porter-test-with-server
        (server (byte-compile
                 (lambda (request)
                   (when (equal (porter-request-path request) "/second") (setcar seen t))
                   (porter-respond (slot-value request 'process) 200
                                   '(("Connection" . "close")) "bye"))))
      ;; Many times: usually the loop revokes the second ones before Lisp comes by.
      (dotimes (_ 50)
        (porter-test-with-client (one server)
          (porter-test-with-client (two server)
            ;; Alternately, so that the second of ONE comes behind the first of TWO.
            (dolist (path '("/first" "/second"))
              (dolist (client (list one two))
                (porter-test-write client (porter-states--request path))))
            (dolist (client (list one two))
              (should (equal "bye" (porter-test-response-body (porter-test-read client))))
              (porter-test-should-close client))))))
    (porter-test-should-come-to-rest)
    (should-not (car seen))))

(ert-deftest porter-states-descriptors-are-left-for-emacs ()
  "Where client sockets cannot be moved out of Emacs's way they leave some descriptors to it."
  (porter-test-with-child
      (child (list "sh" "-c"
                   (concat "ulimit -n 160 && "
                           ;; A sanitizer's runtime is for Emacs, not for the shell.
                           (let ((preload porter-test-preload))
                             (and preload
                                  (format "LD_PRELOAD=%s " (shell-quote-argument preload))))
                           "exec "
                           (mapconcat
                            #'shell-quote-argument
                            (porter-test-batch-command
                             '(require 'porter)
                             '(let ((server
                                     (porter-start
                                      (lambda (request)
                                        (porter-respond
                                         (slot-value request 'process) 200 nil
                                         (format "%S" (call-process "echo" nil t nil "x"))))
                                      0)))
                                (message "PORT %d" (porter-port server))
                                (while t (accept-process-output nil 60))))
                            " "))))
    (let* ((port (string-to-number (porter-test-child-await child "^PORT \\([0-9]+\\)$" 20)))
           (first (porter-test-open port))
           clients)
      (unwind-protect
          (progn
            (should (equal "0" (porter-test-response-body (porter-test-ask first "GET" "/"))))
            (dotimes (_ 200)
              (push (porter-test-open port) clients))
            (porter-test-pause 0.3)
            (should (equal "0" (porter-test-response-body (porter-test-ask first "GET" "/"))))
            ;; Those who wait get their turn when others leave.
            (let ((waiting (car clients)))
              (porter-test-write waiting (porter-states--request "/"))
              (mapc #'porter-test-close (cdr clients))
              (should (equal "0" (porter-test-response-body (porter-test-read waiting))))))
        (mapc #'porter-test-close (cons first clients))))))

(ert-deftest porter-states-too-many-parameters ()
  "A form of very many parameters is 413 when they are looked at, not a long freeze."
  (let (seconds)
    (porter-test-with-server
        (server (lambda (request)
                  (setq seconds
                        (porter-test-seconds
                          (when (equal (porter-request-path request) "/catch")
                            (should-error (slot-value request 'headers) :type 'porter-too-large))
                          (when (equal (porter-request-path request) "/look")
                            (slot-value request 'headers))))
                  (porter-test-hello request)))
      (pcase-dolist (`(,path ,count ,status)
                     '(("/look" 10000 200) ("/look" 400000 413) ("/catch" 400000 200)
                       ("/ignore" 400000 200)))
        (should (= status (porter-test-response-status
                           (porter-test-post server path (apply #'concat (make-list count "a&"))
                                             '("Content-Type" . "application/x-www-form-urlencoded")))))
        (should (< seconds (* 3 porter-test-patience)))))))

(ert-deftest porter-states-error-after-the-handler ()
  "An error while the answer is made does not get out of the drain, and the server goes on."
  (porter-test-with-server
      (server (lambda (request)
                (if (equal (porter-request-path request) "/")
                    (porter-test-hello request)
                  ;; The fields fit, but not what Porter adds to them.
                  (let ((process (porter-test-process request)))
                    (porter-response-header
                     process 200 (cons "X" (make-string (- (* 256 1024) 25) ?x)))
                    (unless (equal (porter-request-path request) "/large")
                      :keep-alive)))))
    (dolist (path '("/large" "/later"))
      (porter-test-with-client (client server)
        (porter-test-write client (porter-states--request path))
        (porter-test-should-close client))
      (porter-test-should-serve server))))

(ert-deftest porter-states-no-stop-timeout ()
  "With a nil :stop-timeout a stopped server waits for its answers without limit."
  (let (process)
    (porter-test-with-server (server (lambda (request)
                                       (setq process (porter-test-process request))
                                       :keep-alive)
                                     :stop-timeout nil)
      (porter-test-with-client (client server)
        (porter-test-write client (porter-states--request "/"))
        (porter-test-wait (lambda () process) 3 "No request")
        (porter-stop server)
        (porter-test-should-stay-open client 0.2)
        (porter-respond process 200 nil "late")
        (should (equal "late" (porter-test-response-body (porter-test-read client))))))))

(provide 'porter-states-tests)
;;; porter-states-tests.el ends here
