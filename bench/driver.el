;;; driver.el --- What the benchmark notebooks share  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A notebook loads this file and calls, from blocks of Emacs Lisp,
;;
;;   (bench-machine)                     what the numbers were made on
;;   (bench-wrk ...)                     rounds of wrk, or of another client
;;   (bench-table RUNS)                  their medians and quartiles as a table
;;   (bench-plot FILE TABLE SCRIPT)      an SVG picture of a table
;;
;; How it measures:
;;
;; - A peer is started on a free port, asked until it answers, and its answer
;;   compared with what it must be.  Peers that are not installed are named in
;;   the table; peers whose server dies or answers wrongly get no figure.
;; - Each peer is started twice: once to see how long its answer is, then with
;;   a header X-Fill that makes all answers equally long.  The tables print
;;   the length that was received.
;; - All peers run at once, but only one is asked at a time; rounds are
;;   interleaved (A B C A B C ...), so that what the machine does meanwhile
;;   falls on all of them.  A first, shorter round is not counted.
;; - The figure is the median of the rounds, with the quartiles.
;; - A round in which the client saw an error, or in which the number of bytes
;;   is not that of so many right answers, has no figure, and neither has the
;;   row of the table it belongs to.  By value answers are compared after each
;;   round, and all of them in the first one: doing so in every round would
;;   cost wrk more than it costs a server to answer.
;; - Raw numbers are written to data/, one Lisp form per round.
;; - Only processes that were started here are ended.
;;
;; In the environment: BENCH_LOAD_PATH, directories separated by colons, where
;; web-server and elnode, with the packages elnode needs, are found in them or
;; one below (as in ~/.emacs.d/elpa); QUICK=1, for the shape of the results in short time;
;; CURLS, the requests in a round of curls; EMACS,
;; the Emacs for the peers.

;;; Code:

(require 'cl-lib)
(require 'lisp-mnt)
(require 'subr-x)

(defconst bench-directory
  (file-name-directory (or load-file-name buffer-file-name default-directory))
  "The directory of this file.")

(defconst bench-root (locate-dominating-file bench-directory "lisp/porter.el")
  "The directory of Porter.")

(defvar bench-quick (not (member (getenv "QUICK") '(nil "" "0")))
  "Non-nil for few and short rounds: the shape, not the figures.")

(defvar bench-load-path
  (append (cl-loop for directory in (split-string (or (getenv "BENCH_LOAD_PATH") "") ":" t)
                   for name = (expand-file-name directory)
                   when (file-directory-p name)
                   append (cons name
                                (cl-remove-if-not #'file-directory-p
                                                  (directory-files name t "\\`[^.]"))))
          ;; Where Debian puts packages.
          (file-expand-wildcards "/usr/share/emacs/site-lisp/elpa*/simple-httpd*")
          (file-expand-wildcards "~/.emacs.d/elpa/simple-httpd*"))
  "Where Emacs packages that are peers, and what they need, may be.")

(setq exec-path (append exec-path '("/usr/sbin" "/sbin")))

(defun bench-or-quick (full quick)
  "FULL, or QUICK when there is no time."
  (if bench-quick quick full))

(defun bench-say (format &rest args)
  "Show progress: FORMAT with ARGS."
  (let ((message-log-max nil))
    (apply #'message (concat "  " format) args))
  (redisplay))

;;;; Other programs

(defvar bench--scratch nil "A directory for the time of one run.")
(defvar bench--started nil "The processes of one run, newest first.")

(defun bench-output (program &rest args)
  "The output of PROGRAM with ARGS, trimmed."
  (with-temp-buffer
    (let ((default-directory bench-directory))
      (apply #'call-process program nil t nil args))
    (string-trim (buffer-string))))

(defun bench-start (name command &optional environment directory pty)
  "Start COMMAND, a list, as process NAME and return it.
ENVIRONMENT is a list of \"VARIABLE=VALUE\", DIRECTORY where to run it;
with PTY it gets a terminal."
  (let* ((process-environment (append environment process-environment))
         (default-directory (file-name-as-directory (or directory bench-directory)))
         (process-adaptive-read-buffering nil)
         (process (make-process :name name :command command :noquery t
                                :buffer (generate-new-buffer (format " *bench %s*" name))
                                :connection-type (if pty 'pty 'pipe)
                                :coding 'binary :sentinel #'ignore)))
    (push process bench--started)
    process))

(defun bench--parents ()
  "An alist of (PID . PARENT) of all processes, by one look at each."
  (let (parents)
    (dolist (pid (list-system-processes) parents)
      (with-temp-buffer
        (when (ignore-errors
                (insert-file-contents-literally (format "/proc/%d/stat" pid)) t)
          (goto-char (point-max))
          (when (search-backward ")" nil t)
            (push (cons pid (string-to-number (nth 1 (split-string (buffer-substring
                                                                    (1+ (point)) (point-max))))))
                  parents)))))))

(defun bench-family (pid)
  "PID and the processes below it."
  (let ((parents (bench--parents)) (family (list pid)) (rest (list pid)))
    (while rest
      (let ((parent (pop rest)))
        (dolist (entry parents)
          (when (eql (cdr entry) parent)
            (push (car entry) family)
            (push (car entry) rest)))))
    family))

(defun bench-end (process)
  "End PROCESS, which was started here, and what it started."
  (let ((family (and (process-live-p process) (bench-family (process-id process))))
        (deadline (+ (float-time) 3)))
    (when family
      (signal-process process 'TERM)
      (while (and (process-live-p process) (< (float-time) deadline))
        (accept-process-output process 0.02))
      ;; The ones it left behind, by their ids.
      (let ((alive (mapcar #'car (bench--parents))))
        (dolist (pid family)
          (when (memq pid alive) (signal-process pid 'KILL)))))
    (delete-process process)
    (when (buffer-live-p (process-buffer process))
      (kill-buffer (process-buffer process))))
  (setq bench--started (delq process bench--started)))

(defmacro bench-run (&rest body)
  "Run BODY with a scratch directory; end all that was started when it is left."
  (declare (indent 0) (debug t))
  `(let ((bench--scratch (file-name-as-directory (make-temp-file "porter-bench-" t)))
         (bench--started nil))
     (unwind-protect (progn ,@body)
       (mapc #'bench-end (copy-sequence bench--started))
       (delete-directory bench--scratch t))))

(defun bench-wait (seconds predicate)
  "Wait for PREDICATE, for SECONDS at most, and return its value."
  (let ((deadline (+ (float-time) seconds)) value)
    (while (not (or (setq value (funcall predicate)) (> (float-time) deadline)))
      (accept-process-output nil 0.05))
    value))

;;;; Peers

(cl-defstruct (bench-peer (:copier nil))
  "A server that runs, or the reason why it does not."
  name process port path answer bytes absent)

(defun bench--free-port ()
  "The number of a TCP port that was free a moment ago."
  (let ((process (make-network-process :name "bench-port" :server t :noquery t
                                       :host "127.0.0.1" :service t :family 'ipv4)))
    (prog1 (process-contact process :service)
      (delete-process process))))

(defun bench--library (name)
  "The directory of the Emacs package NAME, or nil."
  (let ((file (locate-file (concat name ".el") (append bench-load-path load-path)
                           '("" ".gz"))))
    (and file (file-name-directory file))))

(defun bench--emacs () "The Emacs for the peers." (or (getenv "EMACS") "emacs"))

(defun bench-emacs-args (name port handler fill)
  "Arguments that make an Emacs the peer NAME; see `bench-serve' for the others."
  `("-Q" ,@(cl-loop for directory in (if (string-prefix-p "porter" name)
                                         (list (expand-file-name "lisp" bench-root))
                                       bench-load-path)
                    collect "-L" collect directory)
    "-l" ,(expand-file-name "peers/in-emacs.el" bench-directory)
    "--eval" ,(format "(bench-serve %S %d %S %d)" name port handler fill)))

(defun bench--emacs-command (name port handler fill)
  "How to start the peer NAME in a batch Emacs; see `bench-serve'."
  (cons (bench--emacs) (cons "--batch" (bench-emacs-args name port handler fill))))

(defun bench--daemon-command (name port handler fill)
  "How to start the peer NAME in an Emacs in the background.
These die of SIGPIPE in batch.  See `bench-serve'."
  (cons (bench--emacs)
        (cons (format "--fg-daemon=porter-bench-%d" port)
              (bench-emacs-args name port handler fill))))

(defun bench--nginx (workers)
  "How to start nginx with so many WORKERS."
  (lambda (port handler fill)
    (let ((directory (expand-file-name (format "nginx-%d/" port) bench--scratch)))
      (make-directory directory)
      (set-file-modes bench--scratch #o755)
      (with-temp-file (expand-file-name "nginx.conf" directory)
        (insert-file-contents (expand-file-name "peers/nginx.conf" bench-directory))
        (pcase-dolist
            (`(,mark . ,value)
             `(("@WORKERS@" . ,workers) ("@PORT@" . ,port)
               ("@FILL@" . ,(if (= fill 0) ""
                              (format "add_header X-Fill %s;" (make-string fill ?0))))
               ("@BODY@" . ,(if (equal handler "plus") "$arg_n" "ok"))))
          (goto-char (point-min))
          (while (search-forward mark nil t)
            (replace-match (format "%s" value) t t))))
      (list "nginx" "-p" directory "-c" "nginx.conf" "-e" "stderr"))))

(defun bench--node (workers)
  "How to start Node with so many WORKERS."
  (lambda (port handler fill)
    (list "node" (expand-file-name "peers/node.js" bench-directory)
          (number-to-string port) handler (number-to-string fill)
          (number-to-string workers))))

(defun bench--erlang (port handler fill)
  "How to start Erlang's inets on PORT with HANDLER and FILL."
  (call-process "erlc" nil nil nil "-o" bench--scratch
                (expand-file-name "peers/bench.erl" bench-directory))
  (list "erl" "-noshell" "-pa" bench--scratch "-s" "bench" "start"
        (number-to-string port) handler (number-to-string fill)))

(defun bench--thin (port handler fill)
  "How to start Thin on PORT; HANDLER and FILL are those of `bench-serve'."
  (list "env" (concat "BENCH_HANDLER=" handler) (format "BENCH_FILL=%d" fill)
        "thin" "-a" "127.0.0.1" "-p" (number-to-string port) "-e" "production" "-q"
        "--max-conns" "16000" "--max-persistent-conns" "16000"
        "-R" (expand-file-name "peers/thin.ru" bench-directory) "start"))

(defun bench--ceiling-program ()
  "The bare C server, built if need be; nil if it cannot be."
  (let ((file (expand-file-name "build/release/bench/ceiling" bench-root))
        (default-directory bench-root))
    (call-process "make" nil nil nil "-s" "ceiling")
    (and (file-executable-p file) file)))

(defun bench--ceiling (port handler fill)
  "How to start the bare C server on PORT; HANDLER and FILL as in `bench-serve'."
  (list (bench--ceiling-program) (number-to-string port) handler (number-to-string fill)))

(defun bench--needs (&rest programs)
  "Nil if PROGRAMS are there, else which is not."
  (let ((missing (cl-find-if-not #'executable-find programs)))
    (and missing (format "%s is not installed" missing))))

(defun bench--needs-library (name)
  "Nil if the Emacs package NAME is there, else how to give it."
  (unless (bench--library name)
    (format "%s.el is not in BENCH_LOAD_PATH" name)))

(defvar bench-peers
  `(,@(mapcar (lambda (name)
                (list name (lambda () nil)
                      (lambda (&rest args) (apply #'bench--emacs-command name args))))
              '("porter" "porter-session"))
    ;; The same n + 1 by `porter-request-param'.
    ("porter-param" ,(lambda () nil)
     ,(lambda (port handler fill)
        (bench--emacs-command "porter" port (if (equal handler "plus") "param" handler) fill)))
    ("nginx" ,(lambda () (bench--needs "nginx")) ,(bench--nginx 1))
    ("nginx-2" ,(lambda () (bench--needs "nginx")) ,(bench--nginx 2))
    ("node" ,(lambda () (bench--needs "node")) ,(bench--node 1))
    ("node-cluster" ,(lambda () (bench--needs "node")) ,(bench--node 2))
    ("erlang" ,(lambda () (bench--needs "erl" "erlc")) bench--erlang)
    ("thin" ,(lambda () (bench--needs "thin")) bench--thin)
    ("ceiling" ,(lambda () (unless (bench--ceiling-program) "it could not be built"))
     bench--ceiling)
    ,@(mapcar (lambda (name)
                (list name (lambda () (bench--needs-library name))
                      (lambda (&rest args) (apply #'bench--daemon-command name args))))
              '("simple-httpd" "web-server" "elnode")))
  "The peers: (NAME ABSENT COMMAND).
ABSENT is a function that returns why the peer cannot run, or nil.  COMMAND is
one of a port, a handler's name and a number of bytes (see `bench-serve') that
returns a list.")

;; The value of a field is sought, not parsed: the peers are known.
(defun bench--whole-p ()
  "Is there a whole answer in this buffer?"
  (let ((case-fold-search t) size)
    (goto-char (point-min))
    (and (search-forward "\r\n\r\n" nil t)
         (save-excursion
           (cond ((re-search-backward "^content-length: *\\([0-9]+\\)" nil t)
                  (setq size (string-to-number (match-string 1))))
                 ((re-search-backward "^transfer-encoding: *chunked" nil t)
                  (setq size 'chunked)))
           t)
         (if (eq size 'chunked)
             (progn (goto-char (point-max))
                    (looking-back "\r\n0\r\n\r\n" (max (point-min) (- (point) 7))))
           (and (>= (- (point-max) (point)) (or size 0))
                (> (point-max) (point)))))))

(defun bench-ask (port path &optional seconds method)
  "The answer of 127.0.0.1:PORT to a GET of PATH, as bytes; nil if there is none.
It must be whole within SECONDS, 5 by default.  METHOD may be another than GET."
  (condition-case nil
      (with-temp-buffer
        (set-buffer-multibyte nil)
        (let* ((buffer (current-buffer))
               (process (make-network-process
                         :name "bench-ask" :host "127.0.0.1" :service port :noquery t
                         :coding 'binary :sentinel #'ignore
                         :filter (lambda (_ bytes)
                                   (with-current-buffer buffer (insert bytes))))))
          (unwind-protect
              (progn
                (process-send-string
                 process (format "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
                                 (or method "GET") path port))
                (bench-wait (or seconds 5) #'bench--whole-p)
                (and (> (buffer-size) 0) (buffer-string)))
            (delete-process process))))
    (error nil)))

(defun bench-right-p (bytes body)
  "Are BYTES a whole answer with status 200 and with BODY, in one chunk or none?"
  (and bytes
       (string-match-p "\\`HTTP/1\\.1 200 " bytes)
       (or (string-suffix-p (concat "\r\n\r\n" body) bytes)
           (string-suffix-p (format "\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" (length body) body) bytes))))

(defun bench-wrong (peer)
  "Why PEER is not to be given a figure, judged by one answer; nil if it is."
  (cond ((not (process-live-p (bench-peer-process peer))) "its server died")
        ((not (bench-right-p (bench-ask (bench-peer-port peer) (bench-peer-path peer))
                             (bench-peer-answer peer)))
         "a wrong answer")))

(defun bench--body (name handler path)
  "What the peer NAME with HANDLER must answer to a GET of PATH."
  (cond ((string-prefix-p "size-" handler)
         (make-string (string-to-number (substring handler 5)) ?x))
        ((member handler '("plus" "param"))
         (string-match "n=\\([0-9]+\\)" path)
         (number-to-string (+ (string-to-number (match-string 1 path))
                              ;; nginx cannot add; it gives n.
                              (if (string-prefix-p "nginx" name) 0 1))))
        (t "ok")))

(defun bench--many-files (command)
  "COMMAND, a list, with as many open files as the user may have."
  (append '("sh" "-c" "ulimit -n $(ulimit -Hn) 2>/dev/null; exec \"$@\"" "sh") command))

(defun bench--launch (name handler fill path)
  "Start the peer NAME; HANDLER, FILL and PATH are those of `bench-launch'."
  (pcase-let* ((`(,_ ,absent ,command) (assoc name bench-peers))
               (reason (if absent (funcall absent) "no such peer")))
    (if reason
        (make-bench-peer :name name :absent (concat "absent: " reason))
      (let* ((port (bench--free-port))
             (process (bench-start name (bench--many-files
                                         (funcall command port handler fill))
                                   nil bench--scratch))
             (body (bench--body name handler path))
             answer)
        (bench-wait 20 (lambda ()
                         (or (not (process-live-p process))
                             (setq answer (bench-ask port path)))))
        (if (bench-right-p answer body)
            (make-bench-peer :name name :process process :port port :path path
                             :answer body :bytes (length answer))
          (let ((output (with-current-buffer (process-buffer process) (buffer-string))))
            (bench-say "%s: %S %s" name answer output)
            (bench-end process)
            (make-bench-peer
             :name name
             :absent (cond (answer "it answers wrongly")
                           (t "it does not answer")))))))))

(defun bench-launch (names handler &optional path)
  "Start the peers NAMES with HANDLER (see `bench-serve') and equally long answers.
PATH is what is asked.  Return a list of `bench-peer'."
  (setq path (or path "/?n=7"))
  (let* ((first (mapcar (lambda (name)
                          (bench-say "Starting %s" name)
                          (prog1 (bench--launch name handler 0 path)
                            (mapc #'bench-end (copy-sequence bench--started))))
                        names))
         ;; "X-Fill: " and the end of its line are 10 bytes, and its value at least one.
         (bytes (+ 11 (apply #'max 0 (delq nil (mapcar #'bench-peer-bytes first))))))
    (mapcar (lambda (peer)
              (if (bench-peer-absent peer) peer
                (let ((again (bench--launch (bench-peer-name peer) handler
                                            (- bytes (bench-peer-bytes peer) 10) path)))
                  (unless (or (bench-peer-absent again) (= bytes (bench-peer-bytes again)))
                    (bench-end (bench-peer-process again))
                    (setf (bench-peer-absent again) "its answer is not as long as asked for"))
                  again)))
            first)))

;;;; What a process costs

(defun bench-cpu (peer)
  "The CPU time of PEER so far, all its threads and children, in seconds."
  (let ((ns 0))
    (dolist (pid (bench-family (process-id (bench-peer-process peer))))
      (dolist (task (file-expand-wildcards (format "/proc/%d/task/[0-9]*/schedstat" pid)))
        (with-temp-buffer
          (when (ignore-errors (insert-file-contents-literally task) t)
            (setq ns (+ ns (string-to-number (buffer-string))))))))
    (/ ns 1e9)))

(defun bench-memory (peer)
  "The resident memory of PEER and its children in KiB."
  (let ((kib 0))
    (dolist (pid (bench-family (process-id (bench-peer-process peer))))
      (with-temp-buffer
        (when (and (ignore-errors
                     (insert-file-contents-literally (format "/proc/%d/status" pid)) t)
                   (re-search-forward "^VmRSS:[ \t]*\\([0-9]+\\)" nil t))
          (setq kib (+ kib (string-to-number (match-string 1)))))))
    kib))

(defun bench--ticks ()
  "(BUSY . ALL) of all processors so far, in ticks."
  (with-temp-buffer
    (insert-file-contents-literally "/proc/stat")
    (let* ((numbers (mapcar #'string-to-number
                            (cdr (split-string (buffer-substring 1 (line-end-position))))))
           (all (apply #'+ (cl-subseq numbers 0 8))))
      ;; Waiting for a disk is idle.
      (cons (- all (nth 3 numbers) (nth 4 numbers)) all))))

(defun bench-others ()
  "The share of the processors in use now, of 1, looking for a second."
  (let ((before (bench--ticks)))
    (sleep-for 1)
    (let ((after (bench--ticks)))
      (/ (float (- (car after) (car before))) (max 1 (- (cdr after) (cdr before)))))))

(defun bench-revision ()
  "The commit of Porter that is measured."
  (or (ignore-errors
        (bench-output "git" "-C" bench-root "describe" "--always" "--dirty" "--exclude=*"))
      "?"))

(defun bench-machine ()
  "A table: when, on what, with which versions, and how busy it was already."
  (let ((others (bench-others)))
    `(("Date (UTC)" ,(format-time-string "%F %R" nil t))
      ("Kind of run" ,(if bench-quick "QUICK: the shape, not the figures" "full"))
      ("Processor" ,(format "%s, %s of it"
                            (bench-output "sh" "-c" "sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1")
                            (bench-output "nproc")))
      ("Kernel" ,(bench-output "uname" "-sr"))
      ("Load before" ,(format "%s; others used %d %% of the processors%s"
                              (bench-output "cut" "-d" " " "-f1-3" "/proc/loadavg")
                              (* 100 others)
                              (if (> others 0.05) ": BUSY, the figures are too low and scatter" "")))
      ("Porter" ,(bench-revision))
      ("Emacs" ,(bench-output (bench--emacs) "-Q" "--batch" "--eval" "(princ emacs-version)"))
      ,@(cl-loop for (name program . args)
                 in '(("nginx" "nginx" "-v") ("Node" "node" "--version")
                      ("Thin" "thin" "--version")
                      ("Erlang" "sh" "-c" "erl -noshell -eval 'io:format(erlang:system_info(otp_release)), halt().'")
                      ("wrk" "sh" "-c" "wrk --version | head -n 1"))
                 ;; The runtimes of Thin and Erlang take a while only to say their name.
                 unless (and bench-quick (member name '("Thin" "Erlang")))
                 collect (list name
                               (cond ((not (executable-find (if (equal name "Erlang") "erl" program)))
                                      "absent")
                                     (t (replace-regexp-in-string
                                         "\\`.*version: \\| Copyright.*\\'" ""
                                         (apply #'bench-output program args))))))
      ,@(mapcar (lambda (name)
                  (list name (let ((directory (bench--library name)))
                               (cond ((not directory) "absent")
                                     ((lm-version (expand-file-name (concat name ".el")
                                                                    directory)))
                                     (t "of unknown version")))))
                '("simple-httpd" "web-server" "elnode")))))

;;;; Numbers

(defun bench-quantile (numbers q)
  "The quantile Q of NUMBERS, interpolated; nil for none."
  (when numbers
    (let* ((sorted (sort (copy-sequence numbers) #'<))
           (at (* q (1- (length sorted))))
           (below (nth (floor at) sorted)) (above (nth (ceiling at) sorted)))
      (+ below (* (- at (floor at)) (- above below))))))

(defun bench-median (numbers) "The median of NUMBERS." (bench-quantile numbers 0.5))

(defun bench-mean (numbers) "The mean of NUMBERS." (/ (apply #'+ 0.0 numbers) (length numbers)))

(defun bench-error (numbers)
  "The standard error of the mean of NUMBERS."
  (let ((mean (bench-mean numbers)) (n (length numbers)))
    (if (< n 2) 0.0
      (sqrt (/ (cl-loop for x in numbers sum (expt (- x mean) 2)) (* n (1- n)))))))

(defun bench-slope (numbers)
  "(SLOPE . STANDARD-ERROR) of a line through NUMBERS at 0, 1, 2..."
  (let* ((n (length numbers)) (middle (/ (1- n) 2.0)) (mean (bench-mean numbers))
         (sxx (cl-loop for i below n sum (expt (- i middle) 2)))
         (slope (if (> n 1) (/ (cl-loop for x in numbers for i from 0
                                        sum (* (- i middle) (- x mean)))
                               sxx)
                  0.0)))
    (cons slope
          (if (< n 3) 0.0
            (sqrt (/ (cl-loop for x in numbers for i from 0
                              sum (expt (- x mean (* slope (- i middle))) 2))
                     (* (- n 2) sxx)))))))

(defun bench-round (number digits)
  "NUMBER with DIGITS after the point, as a number; nil stays nil."
  (and number
       (if (= digits 0) (round number)
         (string-to-number (format (format "%%.%df" digits) number)))))

(defun bench-save (name runs)
  "Write RUNS, plists, to data/NAME.eld, one a line."
  (unless (file-directory-p (expand-file-name "data" bench-directory))
    (make-directory (expand-file-name "data" bench-directory)))
  (with-temp-file (expand-file-name (concat "data/" name ".eld") bench-directory)
    (insert (format ";; %s, %s, Porter %s: a plist for each round, in order\n" name
                    (format-time-string "%F %R UTC" nil t) (bench-revision)))
    (let ((print-length nil) (print-level nil))
      (dolist (run runs) (prin1 run (current-buffer)) (insert "\n"))))
  runs)

(defun bench-load (name)
  "The runs that `bench-save' wrote to data/NAME.eld."
  (with-temp-buffer
    (insert-file-contents (expand-file-name (concat "data/" name ".eld") bench-directory))
    (car (read-from-string (concat "(" (buffer-string) "\n)")))))

;;;; Rounds

(defun bench-rounds (peers levels rounds function)
  "Call FUNCTION for each of PEERS at each of LEVELS, ROUNDS times, interleaved.
FUNCTION gets the peer, the level and the number of the round, which is -1 for
the one that is not counted.  It returns a plist, with `:failed' and a reason
when there is no figure.  Return the plists, with `:peer', `:level' and
`:round' added, and one with `:failed' for each peer that is absent."
  (let ((total (* rounds (length levels) (cl-count-if-not #'bench-peer-absent peers)))
        (start (float-time)) (done 0) wrong runs)
    (dolist (peer peers)
      (when (bench-peer-absent peer)
        (push (list :peer (bench-peer-name peer) :failed (bench-peer-absent peer)) runs)))
    (dolist (level levels)
      (setq wrong nil)
      (cl-loop
       for round from -1 below rounds do
       (dolist (peer (cl-remove-if #'bench-peer-absent peers))
         (let* ((name (bench-peer-name peer))
                (run (if (process-live-p (bench-peer-process peer))
                         (funcall function peer level round)
                       (list :failed "its server died")))
                ;; What the first round saw holds for all.
                (run (if (plist-get run :failed) run
                       (append (cdr (assoc name wrong)) run)))
                (failed (plist-get run :failed)))
           (if (< round 0)
               (when failed (push (list name :failed failed) wrong))
             (setq done (1+ done))
             (bench-say "%d/%d %s, %s: %s; %d min left" done total level name
                        (or failed (bench-round (plist-get run :rate) 0))
                        (/ (* (- (float-time) start) (- total done)) done 60))
             (push (append (list :peer name :level level :round round) run) runs))))))
    (nreverse runs)))

(defun bench-wrk-once (peer path threads connections seconds &optional depth fields check)
  "Let wrk ask PEER for PATH, and return a plist with `:rate' and so on.
DEPTH is the number of requests sent at once, FIELDS that of added headers.
With CHECK, wrk compares each body (if it is short), which slows it down."
  (let* ((porter (string-prefix-p "porter" (bench-peer-name peer)))
         (memory (and porter (bench-lisp-memory peer)))
         (cpu (bench-cpu peer))
         (body (bench-peer-answer peer))
         (output (bench-output
                  "sh" "-c"
                  (format "ulimit -n %d; exec wrk -t%d -c%d -d%ds -s load.lua 'http://127.0.0.1:%d%s' -- %d %d %s"
                          (max 1024 (+ 100 connections)) threads connections (max 1 seconds)
                          (bench-peer-port peer) path (or depth 1) (or fields 0)
                          (if (and check body (< 0 (length body) 100)) body ""))))
         (cpu (and (process-live-p (bench-peer-process peer)) (- (bench-cpu peer) cpu)))
         (wrong (bench-wrong peer))
         (run (and (string-match "^BENCH \\(.*\\)" output)
                   (car (read-from-string (match-string 1 output)))))
         (requests (or (plist-get run :requests) 0))
         (bytes (/ (or (plist-get run :bytes) 0) (max 1.0 requests))))
    (append
     (cond ((null run) (list :failed (concat "wrk: " (car (last (split-string output "\n"))))))
           ((> (plist-get run :errors) 0)
            (list :failed (format "%d errors" (plist-get run :errors))))
           ((> (plist-get run :wrong) 0)
            (list :failed (format "%d wrong answers" (plist-get run :wrong))))
           ((= requests 0) (list :failed "no answers"))
           (wrong (list :failed wrong))
           ;; At the end a connection may have part of an answer, or more than wrk has counted.
           ((> (abs (- bytes (bench-peer-bytes peer)))
               (* (bench-peer-bytes peer) (+ 0.001 (/ (* connections (or depth 1) 1.0) requests))))
            (list :failed (format "%.1f bytes an answer, not %d" bytes (bench-peer-bytes peer)))))
     (list :rate (/ requests (max 1e-6 (/ (or (plist-get run :us) 1) 1e6)))
           :answer-bytes (bench-peer-bytes peer)
           :cpu-us (and cpu (/ (* cpu 1e6) (max 1 requests))))
     (and memory (not wrong)
          (list :consed (/ (float (- (car (bench-lisp-memory peer)) (car memory)))
                           (max 1 requests))))
     run)))

(cl-defun bench-wrk (name peers levels &key (handler "plus") (path "/?n=7") (seconds 2)
                          (rounds 5) (depth 1))
  "Measure PEERS (names) with wrk at LEVELS, (THREADS CONNECTIONS) each.
NAME is that of the file in data/.  HANDLER is that of `bench-serve'; SECONDS,
ROUNDS, DEPTH of pipelining and PATH are those of the requests.  Return the
rounds."
  (when bench-quick (setq seconds 1 rounds 1))
  (bench-run
    (bench-save
     name
     (bench-rounds (bench-launch peers handler path) levels rounds
                   (lambda (peer level round)
                     (bench-wrk-once peer path (nth 0 level) (nth 1 level)
                                     (if (< round 0) 1 seconds) depth nil (< round 0)))))))

(defun bench-select (runs peer &optional level)
  "Those of RUNS that are PEER's, at LEVEL or at any."
  (cl-remove-if-not (lambda (run) (and (equal (plist-get run :peer) peer)
                                       (or (null level)
                                           (equal (plist-get run :level) level))))
                    runs))

(defun bench-values (runs key)
  "The values of KEY in RUNS, of those with a figure."
  (cl-loop for run in runs
           unless (plist-get run :failed)
           when (plist-get run key) collect it))

(defun bench-figure (runs peer level key)
  "The median of KEY in those of RUNS that are PEER's at LEVEL.
Nil if one of them failed: a figure of the rounds that went well is none."
  (let ((mine (bench-select runs peer level)))
    (unless (cl-some (lambda (run) (plist-get run :failed)) mine)
      (bench-median (bench-values mine key)))))

(defun bench--distinct (runs key)
  "The values of KEY in RUNS, each once."
  (delete-dups (delq nil (mapcar (lambda (run) (plist-get run key)) runs))))

(defun bench-table (runs columns &optional base)
  "A table of RUNS, a row for each level and peer.
COLUMNS are (TITLE KEY QUANTILE DIGITS).  With BASE, the name of a peer, the
column after the rate is the ratio of its median to that of BASE.  A peer that
is absent, or failed in any round of a level, has words instead of figures."
  (let ((titles (append '("level" "peer" "requests/s" "quartiles")
                        (and base (list (concat "/ " base)))
                        (mapcar #'car columns)))
        rows)
    (dolist (level (bench--distinct runs :level))
      (push 'hline rows)
      (dolist (peer (bench--distinct runs :peer))
        (let* ((mine (bench-select runs peer level))
               (failed (delq nil (mapcar (lambda (run) (plist-get run :failed)) mine)))
               (rates (bench-values mine :rate))
               (other (and base (bench-figure runs base level :rate)))
               (label (if (consp level) (mapconcat (lambda (x) (format "%s" x)) level "/")
                        level)))
          (cond
           (failed (push (list label peer
                               (format "no figure: %s (%d of %d rounds)" (car failed)
                                       (length failed) (length mine)))
                         rows))
           (rates
            (push (append (list label peer (round (bench-median rates))
                                (format "%d - %d" (bench-quantile rates 0.25)
                                        (bench-quantile rates 0.75)))
                          (and base (list (if other
                                              (bench-round (/ (bench-median rates) other) 2)
                                            "")))
                          (cl-loop for (_ key quantile digits) in columns
                                   collect (or (bench-round
                                                (bench-quantile (bench-values mine key)
                                                                quantile)
                                                digits)
                                               "")))
                  rows))))))
    (let ((absent (cl-remove-if (lambda (run) (plist-get run :level)) runs)))
      (when absent
        (push 'hline rows)
        (dolist (run absent)
          (push (list "" (plist-get run :peer) (plist-get run :failed)) rows))))
    (cons titles (nreverse rows))))

(defun bench-drift (runs base)
  "A table of the seconds of RUNS: mean, drift over the rounds, ratio to BASE.
The ratio is that of the rates, of each round to BASE's of the same round, so
that what the machine does in one round falls out.  Rows with a failed round
are left out; `bench-table' says why."
  (cons '("level" "peer" "rounds" "mean s" "its error" "slope s/round" "its error"
          "/ base" "its error")
        (cl-loop
         for level in (bench--distinct runs :level)
         collect 'hline append
         (cl-loop
          for peer in (bench--distinct runs :peer)
          for mine = (bench-select runs peer level)
          for seconds = (bench-values mine :seconds)
          for others = (bench-values (bench-select runs base level) :seconds)
          when (and seconds (= (length seconds) (length mine))) collect
          (let ((slope (bench-slope seconds))
                (ratios (and (= (length others) (length seconds))
                             (cl-mapcar (lambda (mine other) (/ other mine)) seconds others))))
            (append (list level peer (length seconds)
                          (bench-round (bench-mean seconds) 3)
                          (bench-round (bench-error seconds) 3)
                          (bench-round (car slope) 4)
                          (bench-round (cdr slope) 4))
                    (if ratios (list (bench-round (bench-mean ratios) 3)
                                     (bench-round (bench-error ratios) 3))
                      '("" ""))))))))

(defconst bench-wrk-columns
  '(("p50 us" :p50 0.5 0) ("p99 us" :p99 0.5 0) ("max us" :max 0.5 0)
    ("CPU us/request" :cpu-us 0.5 1) ("consed/request" :consed 0.5 0)
    ("bytes/answer" :answer-bytes 0.5 0))
  "The usual columns after the rate, for `bench-table'.")

(defun bench-plain (table)
  "TABLE without its rules, and with only the rows that have figures."
  (cl-remove-if-not (lambda (row) (and (consp row) (numberp (nth 2 row)))) (cdr table)))

;;;; Other clients

(defun bench-curls (name peers levels rounds)
  "Ask PEERS by curls, LEVELS of them at once, in ROUNDS; save the runs as NAME.
A round has 5000 requests, or CURLS in the environment."
  (let ((requests (if bench-quick 100 (string-to-number (or (getenv "CURLS") "5000")))))
    (bench-run
      (bench-save
       name
       (bench-rounds (bench-launch peers "plus") levels rounds
                     (lambda (peer jobs round)
                       (bench-curl-once peer jobs (if (< round 0) (min requests 500)
                                                    requests))))))))

(defun bench-curl-once (peer jobs requests)
  "Ask PEER for n + 1 with curl, REQUESTS times, JOBS at once; return a plist.
Each is a process and a connection of its own.  The answers are compared by
the checksum of all of them, sorted."
  (let* ((commands (expand-file-name "curls" bench--scratch))
         (before (progn
                   (with-temp-file commands
                     (dotimes (n requests)
                       (insert (format "curl -sf -w '\\n' -G -d n=%d http://127.0.0.1:%d/\n"
                                       n (bench-peer-port peer)))))
                   (float-time)))
         (output (bench-output
                  "sh" "-c" (format "%s <'%s' | sort -n | sha1sum"
                                    (if (= jobs 1) "sh"
                                      ;; A shell that starts quickly for each of the commands.
                                      (format "PARALLEL_SHELL=/bin/sh parallel --will-cite -j %d 2>/dev/null"
                                              jobs))
                                    commands)))
         (seconds (- (float-time) before))
         (first (if (string-prefix-p "nginx" (bench-peer-name peer)) 0 1))
         (right (sha1 (mapconcat (lambda (n) (format "%d\n" n))
                                 (number-sequence first (+ first requests -1)) ""))))
    (append (unless (string-match-p right output)
              (list :failed "the checksum of the answers is wrong"))
            (list :requests requests :seconds seconds :rate (/ requests seconds)
                  :answer-bytes (bench-peer-bytes peer)))))

(defun bench-ab-once (peer connections requests)
  "Let ab ask PEER, with REQUESTS new connections, CONNECTIONS at once."
  (let* ((cpu (bench-cpu peer))
         (output (bench-output "ab" "-q" "-c" (number-to-string connections)
                               "-n" (number-to-string requests)
                               (format "http://127.0.0.1:%d/?n=7" (bench-peer-port peer))))
         (cpu (- (bench-cpu peer) cpu))
         (wrong (bench-wrong peer))
         (number (lambda (regexp)
                   (if (string-match regexp output) (string-to-number (match-string 1 output))
                     -1)))
         (seconds (funcall number "Time taken for tests: *\\([0-9.]+\\)"))
         (bytes (/ (funcall number "Total transferred: *\\([0-9]+\\)") (float requests))))
    (append
     (cond ((/= requests (funcall number "Complete requests: *\\([0-9]+\\)"))
            (list :failed "not all answered"))
           ((or (/= 0 (funcall number "Failed requests: *\\([0-9]+\\)"))
                (string-match-p "Non-2xx" output))
            (list :failed "errors"))
           (wrong (list :failed wrong))
           ;; Other bytes than those of the peer's answer to HTTP/1.1, but as many each time.
           ((/= bytes (ffloor bytes)) (list :failed "answers of different lengths")))
     (list :rate (/ requests (max 1e-6 seconds)) :answer-bytes bytes
           :cpu-us (/ (* 1e6 cpu) requests)))))

(defun bench-httperf-once (peer conns calls)
  "Let httperf ask PEER, CALLS times on each of CONNS connections in turn."
  (let* ((cpu (bench-cpu peer))
         (output (bench-output "httperf" "--server" "127.0.0.1" "--port"
                               (number-to-string (bench-peer-port peer)) "--uri" "/?n=7"
                               "--num-conns" (number-to-string conns)
                               "--num-calls" (number-to-string calls)))
         (cpu (- (bench-cpu peer) cpu))
         (wrong (bench-wrong peer))
         (number (lambda (regexp)
                   (if (string-match regexp output)
                       (string-to-number (match-string 1 output))
                     -1)))
         (total (* conns calls))
         (bytes (funcall number "(total \\([0-9.]+\\))")))
    (append
     (cond ((/= 0 (funcall number "Errors: total \\([0-9]+\\)")) (list :failed "errors"))
           ((/= total (funcall number "2xx=\\([0-9]+\\)")) (list :failed "not all answered"))
           (wrong (list :failed wrong))
           ((/= bytes (bench-peer-bytes peer))
            (list :failed (format "%s bytes an answer, not %d" bytes (bench-peer-bytes peer)))))
     (list :rate (/ total (max 1e-6 (funcall number "test-duration \\([0-9.]+\\) s")))
           :requests total
           :us (/ (* 1e6 (funcall number "test-duration \\([0-9.]+\\) s")) total)
           :answer-bytes bytes :cpu-us (/ (* 1e6 cpu) total)))))

(defun bench-hold (peer count)
  "Open COUNT connections to PEER, ask once on each, and hold them.
Return a process to end, or nil if they cannot be opened."
  (let ((process (bench-start
                  "hold" (bench--many-files
                          (list (bench--ceiling-program) "--hold"
                                (number-to-string (bench-peer-port peer))
                                (number-to-string count))))))
    (if (bench-wait 60 (lambda ()
                         (or (not (process-live-p process))
                             (with-current-buffer (process-buffer process)
                               (string-match-p "held" (buffer-string))))))
        (if (process-live-p process) process
          (bench-end process)
          nil)
      (bench-end process)
      nil)))

(defun bench-lisp-memory (peer)
  "(BYTES-EVER-CONSED GC-COUNT GC-SECONDS) of PEER, which is Porter."
  (let ((answer (bench-ask (bench-peer-port peer) "/" 5 "POST")))
    (and answer (string-match "\r\n\r\n\\(.*\\)" answer)
         (car (read-from-string (match-string 1 answer))))))

;;;; Typing

(defun bench--echo (text)
  "What of TEXT, sent to a terminal, are characters and not its commands."
  (replace-regexp-in-string "\e[[()][0-9;?]*[A-Za-z]?\\|\e." "" text))

(defun bench-type (process count)
  "Type COUNT keys into PROCESS, an Emacs in a terminal; return echo times.
In milliseconds.  About 20 a second, not evenly, as a steady pace could fall
into step.  Return nil if a key is not echoed within 5 seconds."
  (let ((alive t) times)
    (cl-loop
     for i below count
     while (setq alive (and alive (process-live-p process))) do
      (let* ((key (string (+ ?a (% (* i 7) 26)))) (output "") start end)
        (set-process-filter process (lambda (_ bytes)
                                      (setq output (concat output bytes))
                                      (when (and (not end)
                                                 (string-match-p key (bench--echo output)))
                                        (setq end (float-time)))))
        (setq start (float-time))
        (process-send-string process key)
        (let ((deadline (+ start 5)))
          (while (and (not end) (< (float-time) deadline))
            (accept-process-output process 0.5)))
        (if end (push (* 1000 (- end start)) times)
          (setq alive nil))
        (let ((pause (+ (float-time) 0.03 (/ (random 40) 1000.0))))
          (while (< (float-time) pause)
            (accept-process-output process (max 0.001 (- pause (float-time))))))
        (when (and alive (= 59 (% i 60)))
          (bench-say "%d/%d keys" (1+ i) count)
          (process-send-string process "\r")
          (accept-process-output process 0.2))))
    (and alive times)))

(defun bench-launch-terminal (name handler)
  "Start the peer NAME with HANDLER in an Emacs with a terminal; return it."
  (let ((reason (and (not (equal name "porter")) (bench--needs-library name))))
    (if reason
        (make-bench-peer :name name :absent (concat "absent: " reason))
      (let* ((port (bench--free-port))
             (process
              (bench-start name
                           (append (list (bench--emacs) "-nw")
                                   (bench-emacs-args name port handler 0)
                                   '("--eval" "(progn (switch-to-buffer \"typing\") (delete-other-windows))"))
                           '("TERM=linux") nil t))
             (answer nil) (path (if (equal handler "sink") "/" "/?n=7")))
        (set-process-window-size process 24 80)
        (bench-wait 20 (lambda ()
                         (or (not (process-live-p process))
                             (setq answer (bench-ask port path nil
                                                     (and (equal handler "sink") "PUT"))))))
        (sleep-for 0.5)
        (if answer
            (make-bench-peer :name name :process process :port port
                             :path path :answer (and (equal handler "plus") "8")
                             :bytes (length answer))
          (bench-end process)
          (make-bench-peer :name name :absent "it does not answer"))))))

(defun bench-typing (names keys)
  "Type KEYS keys into an Emacs that serves as each of NAMES, in three conditions.
Return a run for each: idle; while wrk asks on 50 connections; while two
curls send 8 MB bodies, one after another."
  (let (runs (seconds (+ 3 (/ keys 15))))
    (dolist (name names)
      (dolist (condition '("idle" "50 connections" "uploads"))
        (unless (and (equal condition "uploads") (equal name "web-server"))
          (bench-run
            (let ((peer (bench-launch-terminal
                         name (if (equal condition "uploads") "sink" "plus")))
                  (load nil) (count nil) (file (expand-file-name "body" bench--scratch)))
              (if (bench-peer-absent peer)
                  (push (list :peer name :failed (bench-peer-absent peer)) runs)
                (pcase condition
                  ("50 connections"
                   (setq load (bench-start
                               "wrk" (list "wrk" "-t1" "-c50" (format "-d%ds" seconds)
                                           "-s" "load.lua"
                                           (format "http://127.0.0.1:%d/?n=7"
                                                   (bench-peer-port peer))
                                           "--" "1" "0"))))
                  ("uploads"
                   (with-temp-file file (set-buffer-multibyte nil)
                                   (insert (make-string (* 8 1024 1024) ?x)))
                   (setq load (bench-start
                               "uploads"
                               (list "timeout" (number-to-string seconds) "sh" "-c"
                                     ;; One write per line, as two of them share the pipe.
                                     (format "up() { while r=$(curl -s -H Expect: -w ' %%{http_code}' -T '%s' http://127.0.0.1:%d/); do echo \"$r\"; done; }; up & up"
                                             file (bench-peer-port peer)))))))
                (bench-say "%s, %s: typing" name condition)
                (sleep-for 1)
                (let ((times (bench-type (bench-peer-process peer) keys)))
                  (when load
                    (bench-wait (+ 10 seconds) (lambda () (not (process-live-p load))))
                    (with-current-buffer (process-buffer load)
                      (goto-char (point-min))
                      (if (equal condition "uploads")
                          (setq count (list :rate (/ (how-many "^8388608 200$") (float seconds))
                                            :errors (- (count-lines 1 (point-max))
                                                       (how-many "^8388608 200$"))))
                        (when (search-forward "BENCH " nil t)
                          (let ((run (read (current-buffer))))
                            (setq count
                                  (list :rate (/ (plist-get run :requests)
                                                 (/ (plist-get run :us) 1e6))
                                        :errors (plist-get run :errors))))))))
                  (push (append (list :peer name :level condition :keys times)
                                (cond ((null times)
                                       (list :failed "a key was not echoed for 5 s"))
                                      ((> (or (plist-get count :errors) 0) 0)
                                       (list :failed (format "%d errors"
                                                             (plist-get count :errors))))
                                      ((and load (= 0 (or (plist-get count :rate) 0)))
                                       (list :failed "the load was not answered")))
                                count)
                        runs))))))))
    (nreverse runs)))

;;;; Pictures

(defun bench-plot (file data script)
  "Draw FILE, SVG in data/, with gnuplot, and return its name for Org.
DATA is an alist of names and rows; in SCRIPT, $NAME is the data block of that
name.  Elements of a row are separated by tabs."
  (let ((name (concat "data/" file)))
    (if (not (executable-find "gnuplot"))
        nil
      (with-temp-buffer
        (pcase-dolist (`(,block . ,rows) data)
          (insert (format "$%s << EOD\n" block))
          (dolist (row rows)
            (insert (mapconcat (lambda (x) (format "%s" x)) row "\t") "\n"))
          (insert "EOD\n"))
        (insert "set datafile separator '\\t'\n"
                "set terminal svg size 760,420 font 'sans,13' background '#ffffff'\n"
                (format "set output '%s'\n" (expand-file-name name bench-directory))
                "set grid ytics lc rgb '#dddddd'\nset border 3\nset tics nomirror\n"
                "set key outside right top\n"
                ;; gnuplot has eight colors of its own.
                "set linetype 9 lc rgb '#888888'\nset linetype cycle 9\n"
                script "\n")
        (let* ((input (buffer-string))
               (output (with-temp-buffer
                         (insert input)
                         (call-process-region nil nil "gnuplot" t t nil "-")
                         (string-trim (buffer-string)))))
          (unless (string-empty-p output) (bench-say "gnuplot: %s" output))))
      (and (file-exists-p (expand-file-name name bench-directory)) name))))

(defun bench-plot-rates (file runs title)
  "Draw FILE: the median rates of RUNS by level, with TITLE above."
  (let* ((levels (bench--distinct runs :level))
         (peers (cl-remove-if-not (lambda (peer) (bench-values (bench-select runs peer) :rate))
                                  (bench--distinct runs :peer)))
         (rows (mapcar (lambda (level)
                         (cons (mapconcat (lambda (x) (format "%s" x))
                                          (if (consp level) level (list level)) "/")
                               (mapcar (lambda (peer)
                                         (or (bench-figure runs peer level :rate) "NaN"))
                                       peers)))
                       levels)))
    (and peers
         (bench-plot file (list (cons "rates" rows))
                     (concat
                      "set style data histogram\nset style histogram cluster gap 1\n"
                      "set style fill solid 0.9 noborder\nset yrange [0:*]\n"
                      (format "set title '%s'\nset ylabel 'requests/s'\nset format y '%%.0s%%c'\n" title)
                      "plot "
                      (mapconcat (lambda (i)
                                   (format "$rates using %d:xtic(1) title '%s'"
                                           (+ i 2) (nth i peers)))
                                 (number-sequence 0 (1- (length peers))) ", "))))))

;;;; Notebooks in batch, and README.org

(defvar org-confirm-babel-evaluate)
(declare-function org-babel-map-src-blocks "ob-core")
(declare-function org-babel-execute-src-block "ob-core")
(declare-function org-babel-get-src-block-info "ob-core")
(declare-function org-babel-remove-result "ob-core")
(declare-function org-table-align "org-table")

(defun bench-notebook (file blocks)
  "Execute BLOCKS of the notebook FILE, or all if nil; save after each.
BLOCKS are names; \"driver\" and \"machine\" are always executed.  Return
non-nil if none failed."
  (require 'org)
  (let* ((org-confirm-babel-evaluate nil) (make-backup-files nil) (fine t)
         (buffer (find-file-noselect file)) names)
    (with-current-buffer buffer
      (org-babel-map-src-blocks nil
        (push (nth 4 (org-babel-get-src-block-info t)) names)
        ;; The shape must not stand beside figures.
        (when bench-quick (org-babel-remove-result)))
      (dolist (name blocks)
        (unless (member name names)
          (error "%s has no block %s; there are: %s" file name
                 (mapconcat #'identity (reverse names) ", "))))
      (dolist (name (nreverse names) fine)
        (when (or (null blocks) (member name (append '("driver" "machine") blocks)))
          (bench-say "%s: %s" (file-name-nondirectory file) name)
          (goto-char (point-min))
          (re-search-forward (format "^#\\+name: %s\n#\\+begin_src" (regexp-quote name)))
          (condition-case problem
              (org-babel-execute-src-block)
            (error (setq fine nil)
                   (message "%s: %s" name (error-message-string problem))))
          (save-buffer))))))

(defun bench-readme ()
  "Make the table and the plot of README.org from data/wrk-plus.eld."
  (require 'org)
  (let* ((runs (bench-load "wrk-plus"))
         (rate (lambda (peer level)
                 (let ((rate (bench-figure runs peer level :rate))
                       (node (bench-figure runs "node" level :rate)))
                   (cond ((null rate) "no figure")
                         ((or (null node) (equal peer "node")) (format "%.1f k" (/ rate 1e3)))
                         (t (format "%.1f k (%.1f)" (/ rate 1e3) (/ rate node)))))))
         (late (lambda (peer level)
                 (let ((us (bench-figure runs peer level :p99)))
                   (if us (format "%.1f" (/ us 1e3)) ""))))
         (peers (cl-remove-if-not (lambda (peer) (bench-select runs (car peer)))
                                  '(("porter" . "Porter") ("porter-param" . "Porter, one parameter")
                                    ("node" . "Node") ("nginx" . "nginx"))))
         (rows (mapcar (lambda (level)
                         `(,(format "%s" (nth 1 level))
                           ,@(mapcar (lambda (peer) (funcall rate (car peer) level)) peers)
                           ,(funcall late "porter" level) ,(funcall late "node" level)))
                       (bench--distinct runs :level)))
         (line (lambda (cells) (format "| %s |\n" (mapconcat #'identity cells " | ")))))
    (bench-plot-rates "wrk-plus.svg" runs "n + 1, by threads/connections of wrk")
    (with-current-buffer (find-file-noselect (expand-file-name "README.org" bench-root))
      (goto-char (point-min))
      (re-search-forward "^#\\+name: speed\n")
      (delete-region (point) (progn (while (looking-at-p "|") (forward-line)) (point)))
      (insert (funcall line `("connections" ,@(mapcar #'cdr peers) "p99 ms, Porter" "p99 ms, Node"))
              "|-\n"
              (mapconcat line rows ""))
      (forward-line -1)
      (org-table-align)
      (let ((make-backup-files nil)) (save-buffer)))))

(provide 'driver)
;;; driver.el ends here
