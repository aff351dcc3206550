;;; porter-pressure-tests.el --- Many at once, and an Emacs that is busy  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The servers are in child Emacsen here, so that clients and server do not take turns.
;; PORTER_SLOW=1 runs the long forms.

;;; Code:

(require 'porter-test-helper)

(defconst porter-pressure--form
  '(progn
     (require 'porter)
     (let ((server
            (apply #'porter-start
                   '(((:GET . "^/busy$")
                      . (lambda (request)
                          (let ((end (+ (float-time)
                                        (string-to-number (porter-request-param request "s")))))
                            (while (< (float-time) end)))
                          (porter-respond (slot-value request 'process) 200 nil "was busy")))
                     ((:GET . "*")
                      . (lambda (request)
                          (with-slots (process headers) request
                            (porter-response-header process 200 '("Content-type" . "text/plain"))
                            (porter-send process
                                         (number-to-string
                                          (1+ (string-to-number
                                               (or (cdr (assoc "n" headers)) "0")))))))))
                   0 nil porter-test-options)))
       (message "PORT %d" (porter-port server))
       (while t (accept-process-output nil 60))))
  "A form for child Emacsen: the n+1 handler, and one that loops for a while.")

(defun porter-pressure--ask (client n)
  "Send request N over CLIENT."
  (porter-test-write client (format "GET /?n=%d HTTP/1.1\r\nHost: localhost\r\n\r\n" n)))

;; A drain that stops for a key has not lost the handler it called last.
(ert-deftest porter-pressure-key-while-answers-are-deferred ()
  "Answers that come later come, also when a key was pressed right after their handlers."
  (let (processes)
    (porter-test-with-server
        (server (lambda (request)
                  (push (porter-test-process request) processes)
                  :keep-alive))
      (let ((clients (cl-loop repeat 16 collect (porter-test-open server))))
        (unwind-protect
            (progn
              (dolist (client clients)
                (porter-test-write client (porter-test-request-bytes "GET" "/")))
              (let ((unread-command-events (list ?x)))
                (porter-test-wait (lambda () (= 16 (length processes))) 5
                                  "Handlers wait for a key to be read"))
              (dolist (process processes)
                (should (porter-live-p process))
                (porter-respond process 200 nil "later"))
              (dolist (client clients)
                (let ((response (porter-test-read client)))
                  (should (equal 200 (porter-test-response-status response)))
                  (should (equal "later" (porter-test-response-body response))))))
          (mapc #'porter-test-close clients))))))

(ert-deftest porter-pressure-busy-emacs-answers-afterwards ()
  "What arrives while Lisp loops is accepted, queued, and answered within a second after."
  (porter-test-with-child-server (port porter-pressure--form)
    (let ((seconds (if porter-test-slow 5 2)) clients)
      (porter-test-with-client (busy port)
        (unwind-protect
            (let ((start (porter-test-now)) end)
              (porter-test-write busy (format "GET /busy?s=%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                              seconds))
              (porter-test-pause 0.2)
              (dotimes (i 100)
                (should (< (porter-test-seconds (push (porter-test-open port) clients)) 0.5))
                (porter-pressure--ask (car clients) i))
              (should (< (- (porter-test-now) start) seconds))
              ;; Nobody is turned away and nobody served yet.
              (dolist (client clients)
                (should (equal "" (porter-test-bytes client)))
                (should-not (porter-test-closed-p client)))
              (should (equal "was busy" (porter-test-response-body
                                         (porter-test-read busy nil (+ 5 seconds)))))
              (setq end (porter-test-now))
              (cl-loop for client in (reverse clients) for i from 0
                       do (should (equal (number-to-string (1+ i))
                                         (porter-test-response-body (porter-test-read client)))))
              (should (< (- (porter-test-now) end) (* 1.0 porter-test-patience))))
          (mapc #'porter-test-close clients))))))

(ert-deftest porter-pressure-full-queue-is-503-at-once ()
  "Beyond :max-queue the loop itself says 503 and Retry-After, while Lisp is stuck."
  (porter-test-with-child-server (port porter-pressure--form :max-queue 5)
    (let (clients)
      (porter-test-with-client (busy port)
        (unwind-protect
            (let (refused)
              (porter-test-write busy "GET /busy?s=2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
              (porter-test-pause 0.2)
              (dotimes (i 20)
                (push (porter-test-open port) clients)
                (porter-pressure--ask (car clients) i))
              (porter-test-pause 0.5)
              (setq refused (cl-remove-if (lambda (c) (equal "" (porter-test-bytes c))) clients))
              (should (>= (length refused) 10))
              (dolist (client refused)
                (let ((response (porter-test-read client)))
                  (should (= 503 (porter-test-response-status response)))
                  (should (porter-test-header response "retry-after"))))
              (should (equal "" (porter-test-bytes busy)))
              (dolist (client clients)
                (unless (memq client refused)
                  (should (= 200 (porter-test-response-status (porter-test-read client)))))))
          (mapc #'porter-test-close clients))))))

(ert-deftest porter-pressure-clients-that-left-count-as-queued ()
  "Clients that ask and leave while Lisp is stuck do not fill the memory beyond :max-queue."
  (porter-test-with-child-server (port porter-pressure--form :max-queue 5)
    (porter-test-with-client (busy port)
      (porter-test-write busy "GET /busy?s=2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
      (porter-test-pause 0.2)
      (dotimes (i 8)
        (let ((client (porter-test-open port)))
          (porter-pressure--ask client i)
          (porter-test-pause 0.02)
          (porter-test-reset client)))
      (porter-test-with-client (client port)
        (porter-pressure--ask client 9)
        (should (= 503 (porter-test-response-status (porter-test-read client))))
        (should (equal "" (porter-test-bytes busy))))
      (should (equal "was busy" (porter-test-response-body (porter-test-read busy))))
      ;; Once Lisp has come by they count no more.
      (porter-test-wait (lambda ()
                          (equal "11" (porter-test-response-body
                                       (porter-test-get port "/?n=10"))))
                        5 "The queue stays full"))))

(ert-deftest porter-pressure-old-requests-are-503 ()
  "A request that waited in the queue for :queue-timeout gets 503 while Lisp is stuck."
  (porter-test-with-child-server (port porter-pressure--form :queue-timeout 1)
    (porter-test-with-client (busy port)
      (porter-test-with-client (client port)
        (porter-test-write busy "GET /busy?s=4 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (porter-test-pause 0.2)
        (let ((start (porter-test-now)))
          (porter-pressure--ask client 1)
          (should (= 503 (porter-test-response-status (porter-test-read client nil 8))))
          (should (< (- (porter-test-now) start) 3)))))))

(ert-deftest porter-pressure-wrk ()
  "A hundred connections for some seconds: no error, no refusal."
  (porter-test-with-child-server (port porter-pressure--form)
    (let ((result (porter-test-wrk port (if porter-test-slow 10 4) 100 "/?n=1")))
      (should (equal '(0 nil) (list (plist-get result :errors)
                                    (and (/= 0 (plist-get result :errors))
                                         (plist-get result :output)))))
      (should (> (plist-get result :requests) 1000))
      (message "wrk, 100 connections: %d requests/s" (plist-get result :per-second)))))

(ert-deftest porter-pressure-wrk-in-this-emacs ()
  "The same against a server in the Emacs that runs the tests."
  (porter-test-with-server (server #'porter-test-hello)
    (let ((result (porter-test-wrk (porter-port server) 1 20)))
      (should (= 0 (plist-get result :errors)))
      (should (> (plist-get result :requests) 100)))))

(defun porter-pressure--curl-loop (port jobs last)
  "Ask PORT for n+1 of 0 to LAST by curl, JOBS at a time; return the sorted answers."
  (pcase-let ((`(,status . ,output)
               (porter-test-run
                (list "sh" "-c"
                      (format "for i in $(seq 0 %d); do echo \"curl -s -G -d n=$i http://localhost:%d; echo\"; done | parallel -j %d 2>/dev/null"
                              last port jobs))
                (if porter-test-slow 600 60))))
    (should (equal 0 status))
    (sort (mapcar #'string-to-number (split-string output "\n" t)) #'<)))

(ert-deftest porter-pressure-curl-loop ()
  "Right answers for each of many curls, none lost: 1, 10 and 500 at a time."
  (porter-test-need "curl" "parallel")
  (porter-test-with-child-server (port porter-pressure--form)
    (pcase-dolist (`(,jobs ,normal) '((1 60) (10 300) (500 500)))
      (let ((last (if porter-test-slow 5000 normal)))
        (dotimes (_ (if porter-test-slow 3 1))
          (should (equal (cons jobs (number-sequence 1 (1+ last)))
                         (cons jobs (porter-pressure--curl-loop port jobs last)))))))))

(ert-deftest porter-pressure-pipelined-rounds ()
  "Twenty connections with 16 requests in each write: all right, all in order."
  (porter-test-with-child-server (port porter-pressure--form)
    (let ((clients (mapcar (lambda (_) (porter-test-open port)) (number-sequence 1 20))))
      (unwind-protect
          (dotimes (round 10)
            (dolist (client clients)
              (porter-test-write
               client (mapconcat (lambda (i)
                                   (format "GET /?n=%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                           (+ i (* 100 round))))
                                 (number-sequence 0 15) "")))
            (dolist (client clients)
              (dotimes (i 16)
                (should (equal (number-to-string (+ 1 i (* 100 round)))
                               (porter-test-response-body (porter-test-read client)))))))
        (mapc #'porter-test-close clients)))))

(ert-deftest porter-pressure-many-connections ()
  "Three hundred open connections each get their own answers."
  (porter-test-with-child-server (port porter-pressure--form)
    (let ((clients (mapcar (lambda (_) (porter-test-open port)) (number-sequence 1 300))))
      (unwind-protect
          (dotimes (_ 2)
            (cl-loop for client in clients for i from 0
                     do (porter-pressure--ask client i))
            (cl-loop for client in clients for i from 0
                     do (should (equal (number-to-string (1+ i))
                                       (porter-test-response-body
                                        (porter-test-read client nil 10))))))
        (mapc #'porter-test-close clients)))))

(ert-deftest porter-pressure-max-connections ()
  "Beyond :max-connections a client waits until another leaves."
  (porter-test-with-child-server (port porter-pressure--form :max-connections 2)
    (let ((one (porter-test-open port)) (two (porter-test-open port)) three)
      (unwind-protect
          (progn
            (should (= 200 (porter-test-response-status (porter-test-ask one "GET" "/"))))
            (should (= 200 (porter-test-response-status (porter-test-ask two "GET" "/"))))
            (setq three (porter-test-open port))
            (porter-pressure--ask three 7)
            (porter-test-should-stay-open three 0.3)
            (porter-test-close one)
            (should (equal "8" (porter-test-response-body (porter-test-read three)))))
        (mapc #'porter-test-close (delq nil (list one two three)))))))

(ert-deftest porter-pressure-slow-reader ()
  "A client that does not read its large answer holds up nobody, and gets it whole later."
  (porter-test-with-server (server (lambda (request)
                                     (if (equal (porter-request-path request) "/large")
                                         (porter-test-answer request (make-string 20000000 ?x))
                                       (porter-test-hello request))))
    (porter-test-with-client (client server)
      (porter-test-write client "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
      (porter-test-hold client)
      (dotimes (_ 50) (porter-test-should-serve server))
      (porter-test-unhold client)
      (should (= 20000000 (length (porter-test-response-body
                                   (porter-test-read client nil 30))))))))

(ert-deftest porter-pressure-large-upload ()
  "A body of 20 MB arrives whole, from several clients at once."
  (porter-test-with-server (server (lambda (request)
                                     (let ((body (porter-request-body request)))
                                       (porter-test-answer
                                        request (format "%d %s" (length body)
                                                        (secure-hash 'sha1 body))))))
    (let* ((body (let ((bytes (make-string 20000000 0)))
                   (dotimes (i 2000) (aset bytes (* i 9973) (mod i 128)))
                   (string-to-unibyte bytes)))
           (expected (format "20000000 %s" (secure-hash 'sha1 body))))
      (should (equal expected (porter-test-response-body
                               (porter-test-fetch server "POST" "/" nil body 30)))))))

(ert-deftest porter-pressure-answers-to-nobody ()
  "A thousand large deferred answers to clients that left use no memory for long."
  (let (waiting)
    (porter-test-with-server (server (lambda (request) (push request waiting) :keep-alive))
      (dotimes (_ 10)
        (let ((clients (mapcar (lambda (_) (porter-test-open server)) (number-sequence 1 20))))
          (dolist (client clients)
            (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
          (porter-test-wait (lambda () (= 20 (length waiting))) 5 "Not all requests came")
          (mapc #'porter-test-reset clients)
          (dolist (request waiting)
            (porter-test-answer request (make-string 100000 ?x)))
          (setq waiting nil)))
      (porter-test-wait (lambda ()
                          (garbage-collect)
                          (let ((counts (porter-test-counts)))
                            (and (= 0 (plist-get counts :exchanges))
                                 (= 0 (plist-get counts :connections))
                                 (< (plist-get counts :buffer-bytes) 1000000))))
                        5 "The counts are %S" #'porter-test-counts))))

(provide 'porter-pressure-tests)
;;; porter-pressure-tests.el ends here
