;;; porter-lifecycle-tests.el --- Loading, starting, stopping, ending Emacs  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What is left behind, by whom, and when: nothing before the first start, nothing after the
;; last stop.  Most tests use a child Emacs, which is known to be fresh.

;;; Code:

(require 'porter-test-helper)

(defun porter-lifecycle--open-files (&optional pid)
  "Return the open descriptors of process PID (this Emacs), or skip."
  (let ((directory (format "/proc/%s/fd" (or pid "self"))))
    (unless (file-directory-p directory) (ert-skip "no /proc here"))
    (directory-files directory nil "\\`[0-9]")))

(defun porter-lifecycle--module-file ()
  "Return the file name of the built module, or skip."
  (let ((file (or (getenv "PORTER_MODULE")
                  (car (file-expand-wildcards
                        (concat porter-test-root "module/*porter*" module-file-suffix)))
                  (car (file-expand-wildcards
                        (concat porter-test-root "**/*porter*" module-file-suffix))))))
    (unless (and file (file-exists-p file)) (ert-skip "the module is not built"))
    file))

(defconst porter-lifecycle--probe
  '(progn
     (require 'cl-lib)
     (defun porter-probe ()
       (list :tasks (length (directory-files "/proc/self/task" nil "\\`[0-9]"))
             ;; Read by another program: a sanitizer's maps are too many for Emacs.
             :module (eql 0 (call-process "grep" nil nil nil "-q" "/porter-[^/]*[.]so$"
                                          (format "/proc/%d/maps" (emacs-pid))))
             :processes (mapcar #'process-name (process-list))
             :threads (if (fboundp 'all-threads) (length (all-threads)) 1)
             :timers (+ (length timer-list) (length timer-idle-list)))))
  "A form for child Emacsen: define `porter-probe', which says what there is.")

;;;; Loading

(ert-deftest porter-lifecycle-threads-take-no-signals ()
  "All threads but Emacs's hold all signals, those of libuv's pool from the start."
  (skip-unless (file-directory-p "/proc/self/task"))
  (let ((form '(let (masks)
                 (dolist (task (directory-files "/proc/self/task" t "[0-9]"))
                   (unless (equal (file-name-nondirectory task) (number-to-string (emacs-pid)))
                     (with-temp-buffer
                       (insert-file-contents-literally (expand-file-name "status" task))
                       (re-search-forward "^SigBlk:[ \t]*\\([0-9a-f]+\\)")
                       (push (match-string 1) masks))))
                 masks)))
    (let ((masks (porter-test-batch-value
                  30 '(require 'porter)
                  '(porter-start #'ignore 0)
                  `(let ((end (+ 10 (float-time))) masks)
                     (while (and (< (length (setq masks ,form)) 3) (< (float-time) end))
                       (accept-process-output nil 0.05))
                     masks))))
      (should (> (length masks) 2))
      (dolist (mask masks)
        ;; SIGINT 2, SIGPIPE 13, SIGALRM 14, SIGTERM 15, SIGCHLD 17, from bit 0 on.
        (dolist (signal '(2 13 14 15 17))
          (should (= 1 (logand 1 (ash (string-to-number (substring mask -8) 16)
                                      (- 1 signal))))))))))

(ert-deftest porter-lifecycle-require-does-nothing ()
  "`require' defines: no module, thread, process or timer."
  (pcase-let ((`(,before ,after)
               (porter-test-batch-value
                20 porter-lifecycle--probe
                '(let ((before (porter-probe)))
                   (require 'porter)
                   (list before (porter-probe))))))
    (should (equal before after))
    (should-not (plist-get after :module))))

(ert-deftest porter-lifecycle-all-files-load-alone ()
  "Each Lisp file loads in an Emacs without anything else, and silently."
  (dolist (file (directory-files porter-test-lisp-directory nil "\\.el\\'"))
    (unless (string-match-p "\\`\\.\\|-autoloads\\|-pkg\\|web-server" file)
      (pcase-let ((`(,status . ,output)
                   (porter-test-run
                    (porter-test-emacs-command "--batch" "-l" (file-name-sans-extension file)
                                               "--eval" "(princ \"loaded\")")
                    20)))
        (should (equal (list file 0 "loaded")
                       (list file status (and (string-match "loaded\\'" output)
                                              (match-string 0 output)))))
        (should-not (string-match-p "[Ww]arning\\|[Ee]rror" output))))))

(ert-deftest porter-lifecycle-start-adds-a-thread-and-stop-leaves-no-process ()
  "What a start adds, and what is left when the last server has stopped."
  (pcase-let ((`(,before ,live ,after)
               (porter-test-batch-value
                20 porter-lifecycle--probe
                '(progn
                   (require 'porter)
                   (let ((before (porter-probe)) live)
                     (let ((server (porter-start #'ignore 0)))
                       (setq live (porter-probe))
                       (porter-stop server))
                     (sleep-for 0.3)
                     (list before live (porter-probe)))))))
    (should (plist-get live :module))
    (should (>= (plist-get live :tasks) (1+ (plist-get before :tasks))))
    (should (= (plist-get live :threads) (plist-get before :threads)))
    (should (<= (length (plist-get live :processes)) 1))
    (should (<= (plist-get after :timers) (plist-get live :timers)))))

(ert-deftest porter-lifecycle-load-twice ()
  "Loading everything again does no harm to a running server, nor to the next."
  (should
   (equal '("hello" "hello")
          (porter-test-batch-value
           30 '(require 'porter-test-helper)
           '(let ((server (porter-start #'porter-test-hello 0)))
              (dolist (library '("porter-module" "porter-request" "porter-response"
                                 "porter-dispatch" "porter-bridge" "porter"))
                (load library nil t))
              (let ((other (porter-start #'porter-test-hello 0)))
                (prog1 (list (porter-test-get-body server "/") (porter-test-get-body other "/"))
                  (porter-stop-all))))))))

(ert-deftest porter-lifecycle-unload ()
  "`unload-feature' stops everything; loading again works."
  (should
   (equal '(nil nil "hello")
          (porter-test-batch-value
           30 '(require 'porter-test-helper)
           '(let* ((server (porter-start #'porter-test-hello 0))
                   (port (porter-port server)))
              (porter-test-get-body server "/")
              (unload-feature 'porter t)
              (list (porter-test-port-open-p port)
                    (fboundp 'porter-start)
                    (progn
                      (require 'porter)
                      (let ((again (porter-start #'porter-test-hello 0)))
                        (prog1 (porter-test-get-body again "/") (porter-stop-all))))))))))

;;;; Start and stop

(ert-deftest porter-lifecycle-start-and-stop-200-times ()
  "Two hundred starts and stops on one port: it is free each time, and nothing piles up."
  (porter-test-quietly
    (let ((port (porter-test-free-port)) files buffers processes)
      (dotimes (i 200)
        (let ((server (porter-start #'porter-test-hello port)))
          (unwind-protect
              (when (< (mod i 20) 3) (porter-test-should-serve server))
            (porter-stop server)))
        (when (= i 20)
          (setq files (length (porter-lifecycle--open-files))
                buffers (length (buffer-list))
                processes (length (process-list)))))
      (should-not (porter-test-port-open-p port))
      ;; Connections that were closed last may take a moment.
      (porter-test-wait (lambda () (<= (length (porter-lifecycle--open-files)) files)) 3
                        "Open files grew from %d" files)
      (should (<= (length (buffer-list)) buffers))
      (should (<= (length (process-list)) processes)))))

(ert-deftest porter-lifecycle-stop-with-clients-and-start-again ()
  "A port is free at once, also with clients connected and requests under way."
  (porter-test-quietly
    (let ((port (porter-test-free-port)) clients)
      (unwind-protect
          (dotimes (_ 5)
            (let ((server (porter-start (lambda (request)
                                          (if (equal (porter-request-path request) "/wait")
                                              :keep-alive
                                            (porter-test-hello request)))
                                        port)))
              (unwind-protect
                  (progn
                    (dotimes (i 4)
                      (let ((client (porter-test-open server)))
                        (push client clients)
                        (porter-test-write
                         client (if (= (mod i 2) 0)
                                    "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                  "GET / HTTP/1.1\r\nHo"))))
                    (porter-test-should-serve server))
                (should (< (porter-test-seconds (porter-stop server)) 5)))))
        (mapc #'porter-test-close clients)))))

(ert-deftest porter-lifecycle-counts-are-zero-after-stop ()
  "In C, nothing of a stopped server is left, whatever its last requests were."
  (porter-test-quietly
    (let ((server (porter-start (lambda (request)
                                  (if (equal (porter-request-path request) "/wait")
                                      :keep-alive
                                    (porter-test-hello request)))
                                0 nil :stop-timeout 1)))
      (porter-test-with-client (idle server)
        (porter-test-with-client (half server)
          (porter-test-with-client (waits server)
            (porter-test-ask idle "GET" "/")
            (porter-test-write half "GET / HTTP/1.1\r\nHo")
            (porter-test-write waits "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
            (porter-test-pause 0.05)
            (porter-stop server)
            (setq server nil)
            (porter-test-should-come-to-rest 4)))))))

(ert-deftest porter-lifecycle-forgotten-answers ()
  "Deferred answers that never come are no leak once C has ended them."
  (pcase-dolist (`(,leave . ,limits)
                 '((porter-test-reset)
                   (porter-test-close :handler-timeout 1)
                   (ignore :handler-timeout 1)))
    (porter-test-quietly
      (let ((server (apply #'porter-start (lambda (_request) :keep-alive) 0 nil limits))
            clients)
        (unwind-protect
            (progn
              (dotimes (_ 10) (push (porter-test-open server) clients))
              (dolist (client clients)
                (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
              (porter-test-wait (lambda () (= 10 (plist-get (porter-test-counts) :exchanges)))
                                3 "Not all requests came: %S" #'porter-test-counts)
              (mapc leave clients)
              (porter-test-wait (lambda ()
                                  (garbage-collect)
                                  (= 0 (plist-get (porter-test-counts) :exchanges)))
                                3 "After %S %S the counts are %S"
                                leave limits #'porter-test-counts))
          (porter-stop server)
          (mapc #'porter-test-close clients)))
      (porter-test-should-come-to-rest))))

;;;; The doorbell

(defconst porter-lifecycle--doorbell-form
  '(let ((server (porter-start #'porter-test-hello 0)) (answers 0))
     (porter-test-with-client (client server)
       (dotimes (_ 200)
         (when (equal "hello" (porter-test-response-body (porter-test-ask client "GET" "/")))
           (setq answers (1+ answers))))
       (porter-test-write client (apply #'concat
                                        (make-list 64 "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")))
       (dotimes (_ 64)
         (when (equal "hello" (porter-test-response-body (porter-test-read client)))
           (setq answers (1+ answers)))))
     (porter-stop server)
     answers)
  "A form for child Emacsen: 264 requests, and how many were answered.")

(ert-deftest porter-lifecycle-doorbell-channel ()
  "The doorbell by `open_channel', Emacs 28 and later."
  (when (< emacs-major-version 28) (ert-skip "needs Emacs 28"))
  (should (equal 264 (porter-test-batch-value
                      30 '(require 'porter-test-helper) '(setq porter-doorbell 'channel)
                      porter-lifecycle--doorbell-form))))

(ert-deftest porter-lifecycle-doorbell-socket ()
  "The doorbell by a local socket, for Emacs 25 to 27."
  (should (equal 264 (porter-test-batch-value
                      30 '(require 'porter-test-helper) '(setq porter-doorbell 'socket)
                      porter-lifecycle--doorbell-form))))

(ert-deftest porter-lifecycle-doorbell-socket-leaves-no-file ()
  "The socket of the doorbell is unlinked as soon as it is connected."
  (let ((directory (make-temp-file "porter-test" t)))
    (unwind-protect
        (progn
          (porter-test-batch-value
           30 '(require 'porter-test-helper)
           `(setq temporary-file-directory ,(file-name-as-directory directory))
           '(setenv "TMPDIR" temporary-file-directory)
           '(setq porter-doorbell 'socket)
           '(let ((server (porter-start #'porter-test-hello 0)))
              (porter-test-get-body server "/")
              (porter-stop server)
              nil))
          (should-not (directory-files-recursively directory "." t)))
      (delete-directory directory t))))

(ert-deftest porter-lifecycle-killed-doorbell-comes-back ()
  "Deleting the doorbell's process is mended: the next request is served."
  (dolist (kind (if (< emacs-major-version 28) '(socket) '(channel socket)))
    (should
     (equal (list kind '("hello" t "hello" "hello"))
            (list kind
                  (porter-test-batch-value
                   40 '(require 'porter-test-helper) `(setq porter-doorbell ',kind)
                   '(let* ((server (porter-start #'porter-test-hello 0))
                           (first (porter-test-get-body server "/"))
                           (bells (cl-remove-if
                                   (lambda (p) (string-match-p "porter-test" (process-name p)))
                                   (process-list))))
                      (mapc #'delete-process bells)
                      (prog1 (list first (and bells t)
                                   (porter-test-get-body server "/")
                                   (porter-test-get-body server "/"))
                        (porter-stop-all)))))))))

;;;; The end of Emacs

(ert-deftest porter-lifecycle-kill-emacs-frees-the-port ()
  "After `kill-emacs' the port is free at once, even if a child process lives on."
  (let (sleeper)
    (unwind-protect
        (porter-test-with-child
            (child (porter-test-batch-command
                    '(require 'porter)
                    `(let ((server (porter-start ',porter-test-hello-form 0)))
                       (with-temp-buffer
                         (call-process "sh" nil t nil "-c"
                                       "sleep 60 >/dev/null 2>&1 </dev/null & echo $!")
                         (message "PID %s" (string-trim (buffer-string))))
                       (message "PORT %d" (porter-port server))
                       (run-at-time 1 nil #'kill-emacs)
                       (while t (accept-process-output nil 1)))))
          (setq sleeper (string-to-number (porter-test-child-await child "^PID \\([0-9]+\\)$" 20)))
          (let ((port (string-to-number (porter-test-child-await child "^PORT \\([0-9]+\\)$" 5))))
            (should (equal "hello" (porter-test-get-body port "/")))
            (should (equal 0 (porter-test-child-finish child 10)))
            (should (process-attributes sleeper))
            (should (porter-test-port-bindable-p port))))
      (when (and sleeper (> sleeper 1)) (signal-process sleeper 'KILL)))))

(ert-deftest porter-lifecycle-kill-emacs-with-requests-under-way ()
  "`kill-emacs' with open answers and clients takes no longer than a bounded time."
  (porter-test-with-child
      (child (porter-test-batch-command
              '(require 'porter)
              '(let ((server (porter-start
                              (lambda (request)
                                (if (equal (porter-request-path request) "/kill")
                                    (kill-emacs 7)
                                  :keep-alive))
                              0)))
                 (message "PORT %d" (porter-port server))
                 (while t (accept-process-output nil 1)))))
    (let ((port (string-to-number (porter-test-child-await child "^PORT \\([0-9]+\\)$" 20))))
      (porter-test-with-client (one port)
        (porter-test-with-client (two port)
          (porter-test-with-client (three port)
            (porter-test-write one "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
            (porter-test-write two "GET /wa")
            (porter-test-write three "GET /kill HTTP/1.1\r\nHost: localhost\r\n\r\n")
            (should (< (porter-test-seconds
                         (should (equal 7 (porter-test-child-finish child 15))))
                       (* 6 porter-test-patience)))
            (should (porter-test-port-bindable-p port))))))))

(ert-deftest porter-lifecycle-sigterm ()
  "SIGTERM ends a serving batch Emacs, and the port is free."
  (porter-test-with-child
      (child (porter-test-batch-command
              '(require 'porter)
              `(let ((server (porter-start ',porter-test-hello-form 0)))
                 (message "PORT %d" (porter-port server))
                 (while t (accept-process-output nil 60)))))
    (let ((port (string-to-number (porter-test-child-await child "^PORT \\([0-9]+\\)$" 20))))
      (should (equal "hello" (porter-test-get-body port "/")))
      (signal-process (porter-test-child-process child) 'TERM)
      (porter-test-child-finish child 10)
      (should (porter-test-port-bindable-p port)))))

(ert-deftest porter-lifecycle-daemon ()
  "A daemon serves, started in its init, and ends when told."
  (porter-test-need "emacsclient")
  (let* ((directory (make-temp-file "porter-test" t))
         (said (expand-file-name "said" directory))
         (environment (list (concat "XDG_RUNTIME_DIR=" directory) (concat "HOME=" directory)
                            (concat "TMPDIR=" directory)))
         pid)
    (unwind-protect
        (progn
          (should
           (equal 0 (car (porter-test-run
                          (porter-test-emacs-command
                           "--daemon=porter-test" "-l" "porter" "--eval"
                           (prin1-to-string
                            `(let ((server (porter-start ',porter-test-hello-form 0)))
                               (with-temp-file ,said
                                 (prin1 (list (emacs-pid) (porter-port server))
                                        (current-buffer))))))
                          30 environment))))
          (pcase-let ((`(,the-pid ,port)
                       (with-temp-buffer (insert-file-contents said)
                                         (read (current-buffer)))))
            (setq pid the-pid)
            (dotimes (_ 3) (should (equal "hello" (porter-test-get-body port "/"))))
            (should (equal '(0 . "t\n")
                           (porter-test-run
                            '("emacsclient" "-s" "porter-test" "-e"
                              "(porter-live-p (car (porter-servers)))")
                            10 environment)))
            (porter-test-run '("emacsclient" "-s" "porter-test" "-e" "(kill-emacs)") 10
                             environment)
            (porter-test-wait (lambda () (null (process-attributes pid))) 10
                              "The daemon lives on")
            (should (porter-test-port-bindable-p port))))
      (when (and pid (process-attributes pid)) (signal-process pid 'KILL))
      (delete-directory directory t))))

;;;; What children of Emacs inherit

(ert-deftest porter-lifecycle-descriptors-are-close-on-exec ()
  "Every descriptor that a start and its connections open is close-on-exec."
  (unless (file-directory-p "/proc/self/fdinfo") (ert-skip "no /proc here"))
  (should
   (equal nil
          (porter-test-batch-value
           30 '(require 'porter-test-helper)
           '(let* ((files (lambda () (directory-files "/proc/self/fd" nil "\\`[0-9]")))
                   (before (funcall files))
                   (server (porter-start #'porter-test-hello 0))
                   (open nil))
              (porter-test-with-client (client server)
                (porter-test-ask client "GET" "/")
                (dolist (fd (funcall files))
                  (unless (member fd before)
                    (with-temp-buffer
                      (when (ignore-errors
                              (insert-file-contents (concat "/proc/self/fdinfo/" fd)) t)
                        (goto-char (point-min))
                        (when (and (re-search-forward "^flags:[ \t]+\\([0-7]+\\)" nil t)
                                   (= 0 (logand #o2000000
                                                (string-to-number (match-string 1) 8))))
                          (push (list fd (file-symlink-p (concat "/proc/self/fd/" fd)))
                                open)))))))
              (porter-stop server)
              open)))))

(ert-deftest porter-lifecycle-children-signals-are-as-before ()
  "Children of Emacs get the same blocked and ignored signals as without Porter."
  (unless (file-readable-p "/proc/self/status") (ert-skip "no /proc here"))
  (pcase-let ((`(,before ,after)
               (porter-test-batch-value
                30 '(require 'porter-test-helper)
                '(let* ((look (lambda ()
                                (with-temp-buffer
                                  (call-process "grep" nil t nil "^Sig[BI]" "/proc/self/status")
                                  (buffer-string))))
                        (before (funcall look))
                        (server (porter-start #'porter-test-hello 0)))
                   (porter-test-get-body server "/")
                   (prog1 (list before (funcall look)) (porter-stop server))))))
    (should (equal before after))))

(ert-deftest porter-lifecycle-subprocesses-work-while-serving ()
  "Emacs's own subprocesses and their endings are noticed while the loop runs."
  (porter-test-with-server (server #'porter-test-hello)
    (dotimes (_ 10)
      (should (equal '(3 . "out\n") (porter-test-run '("sh" "-c" "echo out; exit 3") 10)))
      (porter-test-should-serve server))))

;;;; The module file

(ert-deftest porter-lifecycle-module-exports ()
  "The module exports what Emacs needs and nothing else."
  (porter-test-need "nm")
  (pcase-let ((`(,status . ,output)
               (porter-test-run (list "nm" "-D" "--defined-only" "--format=posix"
                                      (porter-lifecycle--module-file))
                                10)))
    (should (equal 0 status))
    (should (equal '("emacs_module_init" "plugin_is_GPL_compatible")
                   (sort (cl-remove-if
                          (lambda (name) (string-match-p "\\`__?\\(?:asan\\|tsan\\|ubsan\\)" name))
                          (mapcar (lambda (line) (car (split-string line)))
                                  (split-string output "\n" t)))
                         #'string<)))))

(ert-deftest porter-lifecycle-missing-module-says-so ()
  "A module that is not there or is none gives `porter-module-error', in batch without a question."
  (dolist (file (list "/nonexistent/porter-module.so" (locate-library "porter.el")))
    (pcase-let ((`(,status . ,output)
                 (let ((process-environment
                        (cons (concat "PORTER_MODULE=" file) process-environment)))
                   (porter-test-batch
                    20 '(require 'porter)
                    '(condition-case err
                         (porter-start #'ignore 0)
                       (porter-module-error
                        (princ (format "SIGNALED %s" (error-message-string err)))))))))
      (should (equal 0 status))
      (should (string-match-p "SIGNALED " output)))))

;;;; Leaks

;; Closures in quoted forms are dynamically bound: hence the global variable.
(defconst porter-lifecycle--server-form
  '(progn
     (require 'porter-test-helper)
     (defvar porter-lifecycle-ended nil)
     ;; Garbage that may wait for the load to pass is no leak, but hides one.
     (setq porter-busy-gc-cons-threshold nil)
     (let ((server (porter-start
                    (lambda (request)
                      (when (equal (porter-request-path request) "/end")
                        (setq porter-lifecycle-ended t))
                      (porter-respond (slot-value request 'process) 200
                                      '(("Content-Type" . "text/plain"))
                                      (if (equal (porter-request-path request) "/globals")
                                          (format "%S" (plist-get (porter--mod-counts) :globals))
                                        (number-to-string
                                         (1+ (string-to-number
                                              (porter-request-param request "n" "0")))))))
                    0)))
       (message "PORT %d" (porter-port server))
       (while (not porter-lifecycle-ended) (accept-process-output nil 1))
       (porter-stop server)
       (setq server nil)
       (porter-test-should-come-to-rest)
       (message "GLOBALS %S" (plist-get (porter--mod-counts) :globals))))
  "A form for child Emacsen: serve until /end is asked for, then stop and count.")

(ert-deftest porter-lifecycle-100000-requests-leave-nothing ()
  "After 100,000 requests nothing is counted as live in C, and Emacs has not grown."
  (porter-test-need "wrk")
  (let ((porter-test-module-assertions nil)
        (wanted (if (or porter-test-slow (= porter-test-patience 1)) 100000 10000)))
    (porter-test-with-child (child (porter-test-batch-command
                                    porter-lifecycle--server-form))
      (let* ((port (string-to-number (porter-test-child-await child "^PORT \\([0-9]+\\)$" 20)))
             (pid (process-id (porter-test-child-process child)))
             (total 0) (rounds 0) before files globals)
        ;; The first round fills free lists and lets the collector find its size.
        (should (= 0 (plist-get (porter-test-wrk port 1 50 "/?n=1") :errors)))
        (setq before (porter-test-memory pid)
              globals (porter-test-get-body port "/globals")
              files (length (porter-lifecycle--open-files pid)))
        (while (and (< total wanted) (< rounds 20))
          (let ((result (porter-test-wrk port 2 50 "/?n=1")))
            (should (equal (list 0 nil)
                           (list (plist-get result :errors)
                                 (and (/= 0 (plist-get result :errors))
                                      (plist-get result :output)))))
            (cl-incf total (plist-get result :requests))
            (cl-incf rounds)))
        (should (>= total wanted))
        (porter-test-wait (lambda () (<= (length (porter-lifecycle--open-files pid)) files)) 3
                          "Open files grew from %d" files)
        (let ((growth (- (porter-test-memory pid) before)))
          (should (or porter-test-preload (< growth (* 12 1024 1024)))))
        (porter-test-get port "/end")
        ;; Symbols that C knows stay; nothing of a request does.
        (should (equal globals (porter-test-child-await child "^GLOBALS \\(.*\\)$" 15)))
        (should (equal 0 (porter-test-child-finish child 10)))))))

(ert-deftest porter-lifecycle-1000-connections-leave-nothing ()
  "A thousand connections of one request each leave no descriptor, buffer or process."
  (porter-test-with-server (server #'porter-test-hello)
    (porter-test-should-serve server)
    (let ((files (length (porter-lifecycle--open-files)))
          (buffers (length (buffer-list)))
          (processes (length (process-list))))
      (dotimes (i 1000)
        (let ((client (porter-test-open server)))
          (pcase (mod i 4)
            (0 (porter-test-ask client "GET" "/"))
            (1 (porter-test-write client "GET / HTTP/1.1\r\nHost: loc"))
            (2 (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")))
          (if (= (mod i 8) 2) (porter-test-reset client) (porter-test-close client))))
      (porter-test-should-serve server)
      (porter-test-wait (lambda () (<= (length (porter-lifecycle--open-files)) files)) 5
                        "Open files grew from %d to %d" files
                        (lambda () (length (porter-lifecycle--open-files))))
      (should (<= (length (buffer-list)) buffers))
      (should (<= (length (process-list)) processes)))))

(ert-deftest porter-lifecycle-garbage-collection-anywhere ()
  "Collecting garbage in handlers, between the parts of an answer and after, breaks nothing."
  (porter-test-with-server (server (lambda (request)
                                     (let ((process (porter-test-process request)))
                                       (garbage-collect)
                                       (porter-response-header process 200)
                                       (porter-send process (porter-request-path request))
                                       (garbage-collect)
                                       (porter-flush process)
                                       (porter-send process (porter-request-body request)))
                                     (setq request nil)
                                     (garbage-collect)))
    (porter-test-with-client (client server)
      (dotimes (i 20)
        (should (equal (format "/%dbody" i)
                       (porter-test-response-body
                        (porter-test-ask client "POST" (format "/%d" i) nil "body"))))))))

;;;; At rest

(ert-deftest porter-lifecycle-idle-costs-nothing ()
  "A server that nobody asks uses no processor time."
  (unless (file-readable-p "/proc/self/stat") (ert-skip "no /proc here"))
  (porter-test-with-child
      (child (porter-test-batch-command
              '(require 'porter)
              `(let ((server (porter-start ',porter-test-hello-form 0)))
                 (message "PORT %d" (porter-port server))
                 (while t (accept-process-output nil 60)))))
    (let* ((port (string-to-number (porter-test-child-await child "^PORT \\([0-9]+\\)$" 20)))
           (pid (process-id (porter-test-child-process child)))
           (ticks (lambda ()
                    (with-temp-buffer
                      (insert-file-contents (format "/proc/%d/stat" pid))
                      (let ((fields (split-string (buffer-string))))
                        (+ (string-to-number (nth 13 fields))
                           (string-to-number (nth 14 fields))))))))
      (porter-test-with-client (client port)
        (porter-test-ask client "GET" "/")
        (porter-test-pause 0.3)
        (let ((before (funcall ticks)))
          (porter-test-pause 1.5)
          (should (<= (- (funcall ticks) before) 2)))))))

(provide 'porter-lifecycle-tests)
;;; porter-lifecycle-tests.el ends here
