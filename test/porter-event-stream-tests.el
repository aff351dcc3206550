;;; porter-event-stream-tests.el --- Event streams  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What is on the wire, as the HTML standard's section on server-sent events reads it.

;;; Code:

(require 'porter-test-helper)

(defmacro porter-es--with (spec &rest body)
  "Run BODY with a client of an event stream.
SPEC is (CLIENT PROCESS &rest OPTIONS): PROCESS gets the stream's, OPTIONS are those of
`porter-event-stream'."
  (declare (indent 1) (debug ((symbolp symbolp &rest form) body)))
  (pcase-let ((`(,client ,process . ,options) spec))
    `(let (,process)
       (porter-test-with-server
           (server (lambda (request)
                     (setq ,process (porter-event-stream request ,@options))
                     :keep-alive))
         (porter-test-with-client (,client server)
           (porter-test-write ,client (porter-test-request-bytes
                                       "GET" "/" '(("Accept-Encoding" . "gzip")) nil
                                       (porter-test-client-authority ,client)))
           (porter-test-wait (lambda () ,process) 5 "No stream")
           ,@body)))))

(defun porter-es--await (client regexp)
  "Fail unless CLIENT gets something that matches REGEXP."
  (let ((case-fold-search nil))
    (porter-test-wait (lambda () (string-match-p regexp (porter-test-bytes client))) 5
                      "%S is not in %S" regexp (lambda () (porter-test-bytes client)))))

(ert-deftest porter-event-stream-events ()
  "Events leave at once, each field in its line, data of many lines in many."
  (porter-es--with (client process :retry 1500 :headers '(("X-A" . "b")))
    (porter-es--await client "retry: 1500\n\n")
    (dolist (line '("^Content-Type: text/event-stream\r" "^Cache-Control: no-cache\r" "^X-A: b\r"))
      (porter-es--await client line))
    (should-not (string-match-p "Content-Encoding" (porter-test-bytes client)))
    (should (porter-event-send process "one"))
    (porter-es--await client "\r\ndata: one\n\n\r\n")
    (should (porter-event-send process "a\nb\r\nc\rd\n" :event "tick" :id 7 :retry 10))
    (porter-es--await client (concat "event: tick\nid: 7\nretry: 10\n"
                                     "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"))
    (should (porter-event-send process "hä"))
    (porter-es--await client "data: h\303\244\n\n")
    (should-error (porter-event-send process "x" :event "a\nb") :type 'porter-error)
    (should-error (porter-event-send process "x" :id "a\0") :type 'porter-error)))

(ert-deftest porter-event-stream-options ()
  "A wrong option is told by name before anything is sent."
  (dolist (options '((:beat 1) (:heartbeat 0) (:heartbeat "1") (:retry 1.5) (:retry -1)
                     (:on-close 7) (:headers "X")))
    (let (told)
      (porter-test-with-server
          (server (lambda (request)
                    (condition-case err (apply #'porter-event-stream request options)
                      (porter-error (setq told err)
                                    (porter-respond request 200 nil "told")))))
        (should (equal "told" (porter-test-get-body server "/"))))
      (should (memq (car options) told)))))

(ert-deftest porter-event-stream-heartbeat ()
  "The loop says something when Lisp does not, also while Lisp is stuck."
  (porter-es--with (client process :heartbeat 0.2)
    (porter-es--await client "\r\n:\n\n\r\n")
    (porter-test-read-region client)
    (let ((end (+ 1.3 (float-time)))) (while (< (float-time) end)))
    (should (porter-event-send process "after"))
    (porter-es--await client "data: after")
    (let ((got (porter-test-read-region client)))
      (should (string-match-p "\\`\\(?:3\r\n:\n\n\r\n\\)\\{3,9\\}d\r\ndata: after\n\n\r\n" got)))))

(defun porter-test-read-region (client)
  "Take all that CLIENT has received."
  (with-current-buffer (porter-test-client-buffer client)
    (prog1 (buffer-string) (erase-buffer))))

(ert-deftest porter-event-stream-on-close-by-client ()
  "`:on-close' is called once when the client leaves; sending then gives nil."
  (let (closed)
    (porter-es--with (client process :on-close (lambda (p) (push p closed)))
      (porter-es--await client ":\n\n")
      (porter-test-close client)
      (porter-test-wait (lambda () closed) 5 "Not noticed")
      (should-not (porter-event-send process "x"))
      (porter-event-close process)
      (porter-test-pause 0.05)
      (should (equal closed (list process)))))
  (porter-test-should-come-to-rest))

(defun porter-es--seconds-until (predicate)
  "Wait for PREDICATE to be true; return the seconds it took."
  (let ((start (float-time)))
    (porter-test-wait predicate 10 "Never")
    (- (float-time) start)))

(ert-deftest porter-event-stream-a-closed-page-is-noticed-soon ()
  "A client that closes is gone for Lisp long before one that only sends no more."
  (let (closed)
    (porter-es--with (client process :on-close (lambda (p) (push p closed)))
      (porter-es--await client ":\n\n")
      (porter-test-close client)
      (should (< (porter-es--seconds-until (lambda () closed)) (* 1.0 porter-test-patience)))
      (should (equal closed (list process)))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-event-stream-reset ()
  "A reset is noticed at once, and told once."
  (let (closed)
    (porter-es--with (client process :heartbeat nil :on-close (lambda (p) (push p closed)))
      (porter-es--await client ":\n\n")
      (porter-test-reset client)
      (should (< (porter-es--seconds-until (lambda () closed)) (* 1.0 porter-test-patience)))
      (porter-test-pause 0.05)
      (should (equal closed (list process)))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-event-stream-half-closed ()
  "A client that sends no more gets what comes for two seconds, then the stream ends."
  (let (closed)
    (porter-es--with (client process :on-close (lambda (p) (push p closed)))
      (porter-es--await client ":\n\n")
      (porter-test-half-close client)
      (porter-es--await client "\n:\n\n\r\n\\(?:.\\|\n\\)*\n:\n\n")
      (should (porter-event-send process "still there"))
      (porter-es--await client "data: still there\n\n")
      (should-not closed)
      (should (porter-test-await-close client 5))
      (porter-test-wait (lambda () closed) 3 "Not told")
      (should (equal closed (list process)))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-event-stream-ends-with-its-server ()
  "`porter-stop', and closing twice, end a stream and call `:on-close' once."
  (dolist (end (list (lambda (_process server) (porter-stop server))
                     (lambda (process _server) (porter-event-close process)
                       (porter-event-close process))))
    (let ((porter-stop-timeout 0.2) closed process)
      (porter-test-with-server
          (server (lambda (request)
                    (setq process (porter-event-stream
                                   request :on-close (lambda (p) (push p closed))))
                    :keep-alive))
        (porter-test-with-client (client server)
          (porter-test-write client (porter-test-request-bytes
                                     "GET" "/" nil nil (porter-test-client-authority client)))
          (porter-es--await client ":\n\n")
          (funcall end process server)
          (porter-test-wait (lambda () closed) 5 "Not told")
          (porter-test-pause 0.05)
          (should (equal closed (list process)))
          (should-not (porter-event-send process "late"))))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-event-stream-on-close-by-server ()
  "`porter-event-close' ends the stream properly and calls `:on-close' once."
  (let (closed)
    (porter-es--with (client process :on-close (lambda (p) (push p closed)))
      (porter-event-send process "last")
      (porter-event-close process)
      (porter-es--await client "data: last\n\n\r\n0\r\n\r\n\\'")
      (should (equal closed (list process)))
      (porter-test-close client)
      (porter-test-pause 0.05)
      (should (equal closed (list process)))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-event-stream-last-event-id ()
  "Last-Event-ID is read; HEAD gets the headers and no stream."
  (let (got)
    (porter-test-with-server
        (server (lambda (request)
                  (push (porter-request-last-event-id request) got)
                  (let ((process (porter-event-stream request)))
                    (push (and process t) got)
                    (when process (porter-event-close process)))
                  :keep-alive))
      (should (equal ":\n\n" (porter-test-get-body server "/" '("Last-Event-ID" . "x 7"))))
      (should (equal 200 (porter-test-response-status (porter-test-fetch server "HEAD" "/"))))
      (should (equal got '(nil nil t "x 7"))))))

(ert-deftest porter-event-stream-http-1.0 ()
  "Without chunks, until the connection closes; also the loop's comments."
  (let (process)
    (porter-test-with-server
        (server (lambda (request)
                  (setq process (porter-event-stream request :heartbeat 0.1))
                  :keep-alive))
      (porter-test-with-client (client server)
        (porter-test-write client "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        (porter-es--await client "\r\n\r\n:\n\n:\n\n")
        (should-not (string-match-p "Transfer-Encoding" (porter-test-bytes client)))
        (porter-event-send process "one")
        (porter-event-close process)
        (porter-es--await client "\n\ndata: one\n\n\\'")
        (should (porter-test-await-close client)))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-event-stream-request-behind ()
  "A request that comes behind that of a stream is answered when the stream has ended."
  (let (process)
    (porter-test-with-server
        (server (lambda (request)
                  (if (equal (porter-request-path request) "/next")
                      (porter-respond request 200 nil "next")
                    (setq process (porter-event-stream request))
                    :keep-alive)))
      (porter-test-with-client (client server)
        (let ((authority (porter-test-client-authority client)))
          (porter-test-write client (concat
                                     (porter-test-request-bytes "GET" "/" nil nil authority)
                                     (porter-test-request-bytes "GET" "/next" nil nil authority))))
        (porter-es--await client ":\n\n")
        (should (porter-event-send process "one"))
        (porter-es--await client "data: one\n\n\r\n\\'")
        (porter-event-close process)
        (should (equal ":\n\ndata: one\n\n" (porter-test-response-body (porter-test-read client))))
        (should (equal "next" (porter-test-response-body (porter-test-read client))))))))

(provide 'porter-event-stream-tests)
;;; porter-event-stream-tests.el ends here
