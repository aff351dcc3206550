;;; porter-interactive-tests.el --- Porter under a user's hands, in a terminal  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Emacs in a terminal of its own (tmux) with an empty HOME: what is asked and shown, C-g, and
;; whether typing stays smooth.

;;; Code:

(require 'porter-test-helper)

(defun porter-interactive--meta-x (terminal command)
  "Run COMMAND by name in TERMINAL."
  (porter-test-keys terminal "M-x")
  (porter-test-terminal-await terminal "^M-x" 10)
  (porter-test-keys terminal command "Enter"))

(defun porter-interactive--ready (terminal)
  "Wait until the Emacs in TERMINAL has started."
  (porter-test-terminal-await terminal "\\*scratch\\*" 20))

(defun porter-interactive--serve (terminal form)
  "Have TERMINAL evaluate FORM, which starts a server, and return its port."
  (let* ((file (make-temp-file "porter-test"))
         (form `(progn (with-temp-file ,file
                         (prin1 (porter-port ,form) (current-buffer)))
                       "started")))
    (unwind-protect
        (progn
          (porter-test-terminal-eval terminal form)
          (porter-test-wait (lambda ()
                              (with-temp-buffer
                                (insert-file-contents file)
                                (and (> (buffer-size) 0) (read (current-buffer)))))
                            10 "No server in the terminal:\n%s"
                            (lambda () (porter-test-screen terminal))))
      (delete-file file))))

(ert-deftest porter-interactive-start-list-stop-quit ()
  "M-x porter-start, the page, M-x porter-list, stop, and C-x C-c without a question."
  (porter-test-with-terminal (terminal "-l" "porter")
    (porter-interactive--ready terminal)
    (porter-interactive--meta-x terminal "porter-start")
    (porter-test-terminal-await terminal "^Serve (" 10)
    (porter-test-keys terminal "demo" "Enter")
    (porter-test-terminal-await terminal "^Port (" 10)
    (porter-test-keys terminal "C-a" "C-k" "0" "Enter")
    (let ((port (string-to-number
                 (porter-test-terminal-await terminal "http://127\\.0\\.0\\.1:\\([0-9]+\\)/" 20))))
      (should (string-match-p "<html" (porter-test-get-body port "/")))
      (porter-interactive--meta-x terminal "porter-list")
      (porter-test-terminal-await terminal "\\*Porter\\*" 10)
      (porter-test-terminal-await terminal (format "127\\.0\\.0\\.1:%d" port) 10)
      ;; The counts are live.
      (dotimes (_ 3) (porter-test-get port "/hello"))
      (porter-test-terminal-await terminal (format "127\\.0\\.0\\.1:%d.* 0 +4 +0" port) 10)
      (porter-test-keys terminal "k")
      (porter-test-terminal-await terminal "Stopped http://" 10)
      (porter-test-wait (lambda () (not (porter-test-port-open-p port))) 5
                        "The port is still open"))
    (porter-test-keys terminal "C-x" "C-c")
    (porter-test-wait (lambda () (not (porter-test-terminal-live-p terminal))) 10
                      "C-x C-c does not end Emacs:\n%s"
                      (lambda () (porter-test-screen terminal)))))

(ert-deftest porter-interactive-quit-emacs-with-a-live-server ()
  "C-x C-c with a live server and a connected client ends Emacs without a question."
  (porter-test-with-terminal (terminal "-l" "porter")
    (porter-interactive--ready terminal)
    (let ((port (porter-interactive--serve terminal `(porter-start ',porter-test-hello-form 0))))
      (porter-test-with-client (client port)
        (should (= 200 (porter-test-response-status (porter-test-ask client "GET" "/"))))
        (porter-test-keys terminal "C-x" "C-c")
        (porter-test-wait (lambda () (not (porter-test-terminal-live-p terminal))) 10
                          "C-x C-c does not end Emacs:\n%s"
                          (lambda () (porter-test-screen terminal)))
        (should (porter-test-port-bindable-p port))))))

(ert-deftest porter-interactive-c-g-ends-a-runaway-handler ()
  "C-g stops a handler that runs (while t): its client gets 503, the next request is served."
  ;; C-g is a signal here, and TSan holds signals back until the next system call.
  (when (string-match-p "tsan" (or porter-test-preload ""))
    (ert-skip "ThreadSanitizer delays the signal"))
  (porter-test-with-terminal (terminal "-l" "porter")
    (porter-interactive--ready terminal)
    (let ((port (porter-interactive--serve
                 terminal
                 `(porter-start '(((:GET . "^/loop$") . (lambda (_request) (while t)))
                                  ((:GET . "*") . ,porter-test-hello-form))
                                0))))
      (should (equal "hello" (porter-test-get-body port "/")))
      (dotimes (_ 2)
        (porter-test-with-client (client port)
          (porter-test-with-client (other port)
            (porter-test-write client "GET /loop HTTP/1.1\r\nHost: localhost\r\n\r\n")
            (porter-test-pause 0.3)
            (porter-test-write other "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            (porter-test-should-stay-open client 0.3)
            (porter-test-keys terminal "C-g")
            (should (= 503 (porter-test-response-status (porter-test-read client))))
            ;; What waited behind it was not lost.
            (should (equal "hello" (porter-test-response-body (porter-test-read other)))))))
      (should (equal "hello" (porter-test-get-body port "/")))
      ;; Emacs listens to its user.
      (porter-test-terminal-eval terminal '(concat "still" "here"))
      (porter-test-terminal-await terminal "stillhere" 5))))

(ert-deftest porter-interactive-handler-does-not-disturb-the-minibuffer ()
  "Requests are served while the user is asked something, and the question stays."
  (porter-test-with-terminal (terminal "-l" "porter")
    (porter-interactive--ready terminal)
    (let ((port (porter-interactive--serve terminal `(porter-start ',porter-test-hello-form 0))))
      (porter-test-keys terminal "M-x")
      (porter-test-terminal-await terminal "^M-x" 5)
      (porter-test-keys terminal "emacs-ver")
      (dotimes (_ 20) (should (equal "hello" (porter-test-get-body port "/"))))
      (porter-test-terminal-await terminal "^M-x emacs-ver" 5)
      (porter-test-keys terminal "sion" "Enter")
      (porter-test-terminal-await terminal "GNU Emacs [0-9]" 5))))

(ert-deftest porter-interactive-typing-under-load ()
  "Keys typed while wrk runs are echoed soon."
  (porter-test-need "wrk")
  (let ((porter-test-module-assertions nil))
    (porter-test-with-terminal (terminal "-l" "porter")
      (porter-interactive--ready terminal)
      (let ((port (porter-interactive--serve terminal
                                             `(porter-start ',porter-test-hello-form 0)))
            (slowest 0) (typed ""))
        (porter-test-keys terminal "M-<" "Enter" "Up")
        (porter-test-with-child
            (wrk (list "wrk" "-t1" "-c50" "-d4s" (format "http://127.0.0.1:%d/" port)))
          (porter-test-pause 0.5)
          (dotimes (i 15)
            (setq typed (concat typed (string (+ ?a i))))
            (let ((start (porter-test-now)))
              (porter-test-keys terminal (string (+ ?a i)))
              (porter-test-terminal-await terminal (concat "^" typed) 5)
              (setq slowest (max slowest (- (porter-test-now) start)))))
          (should (process-live-p (porter-test-child-process wrk)))
          ;; Most of it is tmux's and ours; an Emacs that starves its keyboard takes seconds.
          (should (< slowest (* 0.5 porter-test-patience)))
          (should (= 0 (porter-test-child-finish wrk 20)))
          (should-not (string-match-p "Socket errors\\|Non-2xx"
                                      (porter-test-child-output wrk))))))))

(ert-deftest porter-interactive-typing-under-bursts ()
  "A key is echoed within 20 ms at p99 while WebSocket messages come a thousand at once.
The best of three runs counts: other programs can only add to it."
  (porter-test-need "python3")
  (let* ((porter-test-module-assertions nil)
         (command
          `("python3" "-B" ,(expand-file-name "porter-typing.py" porter-test-directory)
            ,(if porter-test-slow "300" "60") "1000"
            ,@(porter-test-emacs-command
               "-nw" "-l" "porter" "--eval"
               (prin1-to-string
                '(let ((server (porter-start
                                (lambda (request)
                                  (porter-web-socket-connect
                                   request (lambda (process message)
                                             (porter-web-socket-send process
                                                                     (upcase message)))))
                                0)))
                   (with-temp-file (getenv "PORT_FILE")
                     (insert (number-to-string (porter-port server))))
                   (switch-to-buffer "*scratch*")
                   (erase-buffer))))))
         (limit (* 20 porter-test-patience))
         said)
    (while (pcase-let ((`(,status . ,output)
                        (porter-test-run command 120 (porter-test-preload-environment command))))
             (push output said)
             (should (equal status 0))
             (should (string-match "p99 \\([0-9.]+\\) .* \\([0-9]+\\) messages" output))
             ;; There was a load.
             (should (> (string-to-number (match-string 2 output)) 10000))
             (and (>= (string-to-number (match-string 1 output)) limit)
                  (or (< (length said) 3) (ert-fail (nreverse said))))))))

(ert-deftest porter-interactive-debug-on-error ()
  "With `debug-on-error' a handler's error shows the debugger, and the server lives on after it."
  (porter-test-with-terminal (terminal "-l" "porter")
    (porter-interactive--ready terminal)
    (let ((port (porter-interactive--serve
                 terminal
                 `(progn (setq debug-on-error t)
                         (porter-start '(((:GET . "^/boom$") . (lambda (_request)
                                                                 (error "Kaboom")))
                                         ((:GET . "*") . ,porter-test-hello-form))
                                       0)))))
      (porter-test-with-client (client port)
        (porter-test-write client "GET /boom HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (porter-test-terminal-await terminal "Debugger entered" 10)
        (porter-test-keys terminal "q")
        ;; An answer or the end of the connection; its client must not wait for ever.
        (let ((response (porter-test-read-maybe client nil 5)))
          (if response
              (should (memq (porter-test-response-status response) '(500 503)))
            (should (porter-test-closed-p client)))))
      (should (equal "hello" (porter-test-get-body port "/"))))))

(provide 'porter-interactive-tests)
;;; porter-interactive-tests.el ends here
