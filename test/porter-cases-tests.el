;;; porter-cases-tests.el --- Bytes in, answers out: the case files  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Each line of vectors/*.jsonl is a case and becomes one test, `porter-case-ID'.  They run
;; against the application of fixture-app.el in an Emacs of its own.  vectors/README.md says
;; what the keys of a case mean.

;;; Code:

(require 'porter-test-helper)
(require 'json)

;;;; Reading the files

(defun porter-cases--json (string)
  "Parse STRING: objects as alists with string keys, arrays as vectors, null as :null."
  (let* ((json-object-type 'alist) (json-array-type 'vector) (json-key-type 'string)
         (json-null :null) (json-false :false))
    (json-read-from-string string)))

(defun porter-cases--json-fast (string)
  "Parse STRING as `porter-cases--json' does, natively where possible."
  ;; NUL is more than the native parser of Emacs 27 to 29 takes.
  (if (and (fboundp 'json-parse-string) (not (string-match-p "u0000" string)))
      (porter-cases--stringify
       (json-parse-string string :object-type 'alist :array-type 'array
                          :null-object :null :false-object :false))
    (porter-cases--json string)))

(defun porter-cases--stringify (value)
  "Make the keys of the alists in VALUE strings."
  (cond ((consp value)
         (mapcar (lambda (pair)
                   (cons (symbol-name (car pair)) (porter-cases--stringify (cdr pair))))
                 value))
        ((vectorp value) (vconcat (mapcar #'porter-cases--stringify value)))
        (t value)))

(defun porter-cases--get (key object &optional default)
  "Return the value of KEY in OBJECT, or DEFAULT."
  (let ((pair (assoc key object)))
    (if pair (cdr pair) default)))

(defun porter-cases--read (file)
  "Return the cases of FILE."
  (with-temp-buffer
    (let ((coding-system-for-read 'utf-8-unix)) (insert-file-contents file))
    (mapcar #'porter-cases--json-fast (split-string (buffer-string) "\n" t))))

;;;; The application under test

(defvar porter-cases--fixture nil
  "The child Emacs that runs the application: (CHILD PORT FEATURES).")

(defvar porter-cases--directory nil
  "The directory with the socket file that the application listens on as well.")

(defun porter-cases--socket ()
  "Return the name of that socket file."
  (unless porter-cases--directory
    (setq porter-cases--directory (file-name-as-directory (make-temp-file "porter-cases" t))))
  (concat porter-cases--directory "socket"))

(defun porter-cases--stop ()
  "End the application."
  (when porter-cases--fixture
    (porter-test-child-kill (car porter-cases--fixture))
    (setq porter-cases--fixture nil))
  (when porter-cases--directory
    (delete-directory porter-cases--directory t)
    (setq porter-cases--directory nil)))

(add-hook 'kill-emacs-hook #'porter-cases--stop)

(defun porter-cases--fixture ()
  "Return (CHILD PORT FEATURES), starting the application if need be."
  (unless (and (nth 1 porter-cases--fixture)
               (process-live-p (porter-test-child-process (car porter-cases--fixture))))
    (porter-cases--stop)
    (let ((child (porter-test-spawn
                  (porter-test-emacs-command "--batch" "-l" "fixture-app"
                                             "-f" "porter-fixture-batch")
                  (list (concat "PORTER_FIXTURE_SOCKET=" (porter-cases--socket))))))
      ;; Known before it answers, so that it is ended also if it never does.
      (setq porter-cases--fixture (list child nil nil))
      (setq porter-cases--fixture
            (list child
                  (string-to-number (porter-test-child-await child "^PORT \\([0-9]+\\)$" 20))
                  (split-string (porter-test-child-await child "^FEATURES\\(.*\\)$" 1))))))
  porter-cases--fixture)

(defun porter-cases--count (port)
  "Return the number of handler calls so far."
  (string-to-number (porter-test-get-body port "/count")))

;;;; Regular expressions, as the case files write them

(defun porter-cases--regexp (pattern)
  "Translate PATTERN, in the notation of Perl and Python, to Emacs's, without lookahead.
\".\" matches line ends, \"^\" and \"$\" the ends of the whole."
  (let ((i 0) (out nil) (n (length pattern)) c)
    (cl-flet ((next () (prog1 (aref pattern i) (setq i (1+ i))))
              (escape (c)
                (pcase c
                  (?n "\n") (?r "\r") (?t "\t")
                  (?x (prog1 (string (string-to-number (substring pattern i (+ i 2)) 16))
                        (setq i (+ i 2))))
                  (_ (string c)))))
      (while (< i n)
        (setq c (next))
        (push
         (pcase c
           ((or ?\( ?\) ?| ?\{ ?\}) (string ?\\ c))
           (?. "[\000-\x3fffff]")
           (?^ "\\`")
           (?$ "\\'")
           (?\\ (setq c (next))
                (pcase c
                  (?b "\\b")
                  (?A "\\`")
                  ((or ?n ?r ?t ?x) (regexp-quote (escape c)))
                  (_ (regexp-quote (string c)))))
           (?\[ (let ((set "["))
                  (when (eq (aref pattern i) ?^) (next) (setq set "[^"))
                  (while (not (eq (setq c (next)) ?\]))
                    (setq set (concat set (if (eq c ?\\) (escape (next)) (string c)))))
                  (concat set "]")))
           (_ (string c)))
         out)))
    (apply #'concat (nreverse out))))

(defun porter-cases--match-p (pattern string)
  "Return non-nil if PATTERN (see `porter-cases--regexp') is found in STRING.
A negative lookahead over the whole string is understood: (?!.*X)."
  (let ((case-fold-search nil))
    (when (string-prefix-p "(?i)" pattern)
      (setq case-fold-search t pattern (substring pattern 4)))
    (if (string-match "\\`\\(?:\\^\\|\\\\A\\)(\\?!\\.\\*\\(\\(?:.\\|\n\\)*?\\))\\(?:\\.\\*\\$\\)?\\'"
                      pattern)
        (not (string-match-p (porter-cases--regexp (match-string 1 pattern)) string))
      (string-match-p (porter-cases--regexp pattern) string))))

(ert-deftest porter-cases-regexps-are-translated ()
  "The notation of the case files is read right."
  (should (porter-cases--match-p "(?i)\\bclose\\b" "Keep, Close"))
  (should-not (porter-cases--match-p "(?i)\\bclose\\b" "disclosed"))
  (should (porter-cases--match-p "^(W/)?\"[\\x21\\x23-\\x7e\\x80-\\xff]*\"$" "W/\"a-b\""))
  (should-not (porter-cases--match-p "^(W/)?\"[\\x21\\x23-\\x7e\\x80-\\xff]*\"$" "\"a b\""))
  (should (porter-cases--match-p "^(?!.*gzip).*$" "a\nb"))
  (should-not (porter-cases--match-p "^(?!.*gzip).*$" "a\nbgzip"))
  (should-not (porter-cases--match-p "\\A(?!.*root:)" "x\nroot:"))
  (should (porter-cases--match-p "sub/(\\?x=1)?$" "/sub/?x=1"))
  (should-not (porter-cases--match-p "sub/(\\?x=1)?$" "/sub/?x=2")))

;;;; Running a case

(cl-defstruct (porter-cases--run (:constructor porter-cases--make-run) (:copier nil))
  "A case under way and what was seen."
  case port
  (split nil)                           ; how the bytes are cut, see `porter-cases--cut'
  (connections nil)                     ; alist of name and client
  (current "main")
  (responses nil)                       ; in order of reading, last first
  (interim nil)                         ; last first
  (problems nil)                        ; rules broken that hold whatever the case says
  (captured nil)                        ; alist for {{etag}} and {{lm}}
  start end closed called)

(defun porter-cases--subst (run text)
  "Replace {{host}} and its kind in TEXT and return bytes."
  (let ((port (number-to-string (porter-cases--run-port run))))
    (dolist (pair (append `(("{{host}}" . ,(concat "127.0.0.1:" port)) ("{{port}}" . ,port))
                          (porter-cases--run-captured run)))
      (when (string-match-p (regexp-quote (car pair)) text)
        (setq text (replace-regexp-in-string (regexp-quote (car pair)) (or (cdr pair) "")
                                             text t t))))
    (encode-coding-string text 'iso-8859-1-unix)))

(defun porter-cases--client (run)
  "Return the current client of RUN, opened if need be."
  (let ((name (porter-cases--run-current run)))
    (or (cdr (assoc name (porter-cases--run-connections run)))
        ;; Only on a socket of the local family small pieces stay apart before Emacs 29.
        (let ((client (porter-test-open (if (porter-cases--run-split run)
                                            (porter-cases--socket)
                                          (porter-cases--run-port run)))))
          (push (cons name client) (porter-cases--run-connections run))
          client))))

(defun porter-cases--write-cut (client bytes split)
  "Send BYTES over CLIENT in pieces.
SPLIT is their size, or (at N) for one cut behind the first N bytes."
  (let ((at 0) (end (length bytes)) next)
    (while (and (< at end) (not (porter-test-closed-p client)))
      (setq next (min end (if (consp split)
                              (if (= at 0) (max 1 (cadr split)) end)
                            (+ at split))))
      (porter-test-write client (substring bytes at next))
      ;; A moment for the server, so that it sees what has come so far alone.
      (when (< next end)
        (accept-process-output (porter-test-client-process client) 0))
      (setq at next))))

(defun porter-cases--drop (run how)
  "End the current connection of RUN by calling HOW."
  (let* ((name (porter-cases--run-current run))
         (pair (assoc name (porter-cases--run-connections run))))
    (when pair
      (setf (porter-cases--run-connections run)
            (delq pair (porter-cases--run-connections run)))
      (funcall how (cdr pair)))))

(defun porter-cases--ms (value)
  "Return VALUE, a number of milliseconds or \"limit\", in seconds."
  (if (equal value "limit") 15.0 (/ value 1000.0)))

(defun porter-cases--read-one (run seconds &optional interim-counts)
  "Read one response of RUN within SECONDS and note it; return it, or nil.
Interim ones are set apart and, unless INTERIM-COUNTS, read on."
  (let* ((case (porter-cases--run-case run))
         (client (porter-cases--client run))
         (methods (porter-cases--get "methods" case []))
         (n (length (porter-cases--run-responses run)))
         (method (if (< n (length methods)) (aref methods n) "GET"))
         (go-on t) response)
    (while go-on
      (setq go-on nil)
      (condition-case err
          (setq response (porter-test-read-any client method seconds))
        (porter-test-bad-response
         (push (format "%S" err) (porter-cases--run-problems run))
         (setq response nil)))
      (when response
        (setf (porter-cases--run-end run) (porter-test-now))
        (let ((status (porter-test-response-status response)))
          (if (and (< status 200) (/= status 101))
              (progn (push status (porter-cases--run-interim run))
                     (setq go-on (not interim-counts)))
            (push response (porter-cases--run-responses run))))))
    response))

(defun porter-cases--step (run step)
  "Do STEP of RUN."
  (pcase (car (cl-find-if (lambda (pair)
                            (member (car pair) '("raw" "repeat" "sleep_ms" "half_close" "reset"
                                                 "close" "conn" "read_response" "read_interim"
                                                 "capture")))
                          step))
    ("raw"
     (let ((bytes (porter-cases--subst run (porter-cases--get "raw" step)))
           (split (porter-cases--get "split" step)))
       (cond (split
              (porter-test-write-slowly (porter-cases--client run) bytes split
                                        (/ (porter-cases--get "split_ms" step 1) 1000.0)))
             ((porter-cases--run-split run)
              (porter-cases--write-cut (porter-cases--client run) bytes
                                       (porter-cases--run-split run)))
             (t (porter-test-write (porter-cases--client run) bytes)))))
    ("repeat"
     (let ((bytes (porter-cases--subst run (porter-cases--get "repeat" step)))
           (client (porter-cases--client run))
           (left (porter-cases--get "times" step)))
       ;; Many at a time, and nothing more once the peer has closed.
       (while (> left 0)
         (let ((n (min left (max 1 (/ 65536 (length bytes))))))
           (setq left (if (porter-test-write client (apply #'concat (make-list n bytes)))
                          (- left n)
                        0))))))
    ("sleep_ms" (porter-test-pause (/ (porter-cases--get "sleep_ms" step) 1000.0)))
    ("half_close" (porter-test-half-close (porter-cases--client run)))
    ("reset" (porter-cases--drop run #'porter-test-reset))
    ("close" (porter-cases--drop run #'porter-test-close))
    ("conn"
     ;; A connection left for another one is not read meanwhile.
     (let ((old (cdr (assoc (porter-cases--run-current run)
                            (porter-cases--run-connections run)))))
       (when (and old (process-live-p (porter-test-client-process old)))
         (porter-test-hold old)))
     (setf (porter-cases--run-current run) (porter-cases--get "conn" step))
     (porter-test-unhold (porter-cases--client run)))
    ("read_response"
     (let* ((max-ms (porter-cases--get "max_ms" step))
            (interim (length (porter-cases--run-interim run)))
            (start (porter-test-now))
            (response (porter-cases--read-one run (porter-cases--timeout run))))
       (when (and max-ms response
                  (> (- (porter-test-now) start)
                     (* porter-test-patience (porter-cases--ms max-ms))))
         (push (format "a response took longer than %s ms" max-ms)
               (porter-cases--run-problems run)))
       (when (and (eq (porter-cases--get "no_interim" step) t)
                  (/= interim (length (porter-cases--run-interim run))))
         (push "an interim response came" (porter-cases--run-problems run)))))
    ("read_interim" (porter-cases--read-one run (porter-cases--timeout run) t))
    ("capture"
     (let ((response (porter-test-get (porter-cases--run-port run)
                                      (porter-cases--get "capture" step))))
       (setf (porter-cases--run-captured run)
             `(("{{etag}}" . ,(porter-test-header response "etag"))
               ("{{lm}}" . ,(porter-test-header response "last-modified"))))))
    (_ (error "Unknown step: %S" step))))

(defun porter-cases--timeout (run)
  "Return how long one response of RUN may take to begin."
  (porter-cases--ms (porter-cases--get "timeout_ms" (porter-cases--run-case run) 3000)))

(defun porter-cases--alternatives (case)
  "Return what CASE may end in: a list of expectations, each an alist."
  (let ((expect (porter-cases--get "expect" case)))
    (if (assoc "any_of" expect)
        (mapcar (lambda (alternative) (append alternative expect))
                (porter-cases--get "any_of" expect))
      (list expect))))

;;;; Judging it

(defun porter-cases--json-match-p (expected actual)
  "Return non-nil if ACTUAL is what EXPECTED says, objects as subsets."
  (cond
   ((and (vectorp expected) (vectorp actual))
    (and (= (length expected) (length actual))
         (cl-every #'porter-cases--json-match-p expected actual)))
   ((and (consp expected) (listp actual))
    (cl-every
     (lambda (pair)
       (let ((other (assoc (car pair) actual)))
         (and other
              (if (equal (car pair) "headers")
                  (cl-every (lambda (field) (cl-find field (cdr other) :test #'equal))
                            (cdr pair))
                (porter-cases--json-match-p (cdr pair) (cdr other))))))
     expected))
   ((and (numberp expected) (numberp actual)) (= expected actual))
   (t (equal expected actual))))

(defun porter-cases--header-problem (run response name wanted)
  "Say what is wrong with RESPONSE's header NAME, of which WANTED holds, or return nil."
  (let ((value (porter-test-header response name)))
    (unless (cond ((eq wanted :null) (null value))
                  ((null value) nil)
                  ((string-prefix-p "re:" wanted)
                   (porter-cases--match-p (substring wanted 3) value))
                  (t (equal value (porter-cases--subst run wanted))))
      (format "header %s is %S, not %S" name value wanted))))

(defun porter-cases--judge (run expect)
  "Return a list of what of RUN is not as EXPECT says."
  (let* ((responses (reverse (porter-cases--run-responses run)))
         (statuses (mapcar #'porter-test-response-status responses))
         (wanted (porter-cases--get "statuses" expect))
         (problems nil))
    (cl-flet ((problem (&rest args) (push (apply #'format args) problems))
              (each (key function)
                (pcase-dolist (`(,index . ,value) (porter-cases--get key expect))
                  (let ((response (if (equal index "-1")
                                      (car (last responses))
                                    (nth (string-to-number index) responses))))
                    (when response (funcall function response value))))))
      (unless (or (and (null responses) (porter-cases--run-closed run)
                       (eq (porter-cases--get "no_response_ok" expect) t))
                  (and (= (length wanted) (length statuses))
                       (cl-every (lambda (set status) (cl-find status set)) wanted statuses)))
        (problem "statuses are %S, not %S" statuses wanted))
      (pcase (porter-cases--get "final" expect "any")
        ("close" (unless (porter-cases--run-closed run) (problem "the connection stays open")))
        ("open" (when (porter-cases--run-closed run) (problem "the connection is closed"))))
      (let ((interim (porter-cases--get "interim" expect 'any)))
        (unless (or (eq interim 'any)
                    (let ((seen (reverse (porter-cases--run-interim run))))
                      (and (= (length interim) (length seen))
                           (cl-every (lambda (set status) (cl-find status set)) interim seen))))
          (problem "interim responses are %S, not %S" (porter-cases--run-interim run) interim)))
      (each "body"
            (lambda (response value)
              (unless (equal (porter-test-response-body response)
                             (encode-coding-string value 'iso-8859-1-unix))
                (problem "body is %S, not %S" (porter-test-response-body response) value))))
      (each "body_len"
            (lambda (response value)
              (unless (= (length (porter-test-response-body response)) value)
                (problem "body has %d bytes, not %d"
                         (length (porter-test-response-body response)) value))))
      (each "body_re"
            (lambda (response value)
              (unless (porter-cases--match-p
                       value
                       (decode-coding-string (porter-test-response-body response)
                                             'iso-8859-1-unix))
                (problem "body %S does not match %S"
                         (porter-test-response-body response) value))))
      (each "json"
            (lambda (response value)
              (let ((actual (condition-case err
                                (porter-cases--json-fast
                                 (decode-coding-string (porter-test-response-body response)
                                                       'utf-8-unix))
                              (error (list 'no-json err)))))
                (unless (porter-cases--json-match-p value actual)
                  (problem "JSON is %S, not %S" actual value)))))
      (each "header"
            (lambda (response fields)
              (pcase-dolist (`(,name . ,value) fields)
                (let ((wrong (porter-cases--header-problem run response name value)))
                  (when wrong (problem "%s" wrong))))))
      (let ((called (if (eq (porter-cases--get "not_called" expect) t)
                        0
                      (porter-cases--get "called" expect))))
        (when (and called (/= called (porter-cases--run-called run)))
          (problem "%d handler calls, not %d" (porter-cases--run-called run) called)))
      (let ((ms (* 1000 (- (porter-cases--run-end run) (porter-cases--run-start run))))
            (max-ms (porter-cases--get "max_ms" expect))
            (min-ms (porter-cases--get "min_ms" expect)))
        (when (and max-ms (> ms (* porter-test-patience 1000 (porter-cases--ms max-ms))))
          (problem "took %d ms, at most %s allowed" ms max-ms))
        (when (and min-ms (< ms min-ms))
          (problem "took only %d ms" ms))))
    (nreverse problems)))

(defun porter-cases--await-end (run seconds)
  "See whether the peer closes RUN's current connection within SECONDS."
  (let ((client (porter-cases--client run)))
    (unless (porter-cases--run-closed run)
      (let ((deadline (+ (porter-test-now) seconds)))
        (while (and (not (porter-test-closed-p client)) (< (porter-test-now) deadline))
          (porter-test-accept (porter-test-client-process client) 0.01)))
      (when (porter-test-closed-p client)
        (unless (porter-cases--run-responses run)
          (setf (porter-cases--run-end run) (porter-test-now)))
        (setf (porter-cases--run-closed run) t)))))

(defvar porter-cases--calm 0.02
  "Seconds after which a connection that should stay open is taken for one.")

(defun porter-cases--perform (case port &optional split)
  "Run CASE against PORT; return a list of problems, nil when all is well.
SPLIT says how the bytes are cut, see `porter-cases--write-cut'."
  (let* ((run (porter-cases--make-run :case case :port port :split split))
         (alternatives (porter-cases--alternatives case))
         (lengths (mapcar (lambda (e) (length (porter-cases--get "statuses" e))) alternatives))
         (counting (cl-some (lambda (e) (or (assoc "called" e) (assoc "not_called" e)))
                            alternatives))
         (before (if counting (porter-cases--count port) 0))
         (finals (mapcar (lambda (e) (porter-cases--get "final" e "any")) alternatives)))
    (setf (porter-cases--run-start run) (porter-test-now)
          (porter-cases--run-end run) (porter-test-now)
          (porter-cases--run-called run) 0)
    (unwind-protect
        (cl-block nil
          (cl-map nil (lambda (step)
                        (porter-cases--step run step)
                        (when (and (assoc "capture" step)
                                   (equal (porter-cases--get "when" case) "strong")
                                   (string-prefix-p
                                    "W/" (or (cdr (assoc "{{etag}}"
                                                         (porter-cases--run-captured run)))
                                             "W/")))
                          (ert-skip "the entity tag is weak")))
                  (porter-cases--get "send" case))
          ;; The rest of the responses, as many as there may be.
          (let ((most (apply #'max lengths)) (go-on t))
            (while (and go-on (< (length (porter-cases--run-responses run)) most))
              (setq go-on
                    (porter-cases--read-one
                     run
                     (if (and (null (porter-cases--run-responses run)) (memq 0 lengths))
                         0.4
                       (porter-cases--timeout run))))))
          ;; The end.  An open connection is believed in soon, a close is waited for.
          (let* ((last (car (porter-cases--run-responses run)))
                 (announced (and last (porter-test-says-close-p last)))
                 (patient (* 1.5 porter-test-patience)))
            (porter-cases--await-end run
                                     (if (or announced
                                             (and (member "close" finals)
                                                  (not (member "open" finals))
                                                  (not (member "any" finals))))
                                         patient
                                       porter-cases--calm))
            (when counting
              (setf (porter-cases--run-called run) (- (porter-cases--count port) before)))
            (let ((judge (lambda () (mapcar (lambda (e) (porter-cases--judge run e))
                                            alternatives)))
                  verdicts)
              (setq verdicts (funcall judge))
              (when (and (not (memq nil verdicts)) (member "close" finals)
                         (not (porter-cases--run-closed run)))
                (porter-cases--await-end run patient)
                (setq verdicts (funcall judge)))
              (when (and announced (not (porter-cases--run-closed run)))
                (push "Connection: close was said and not done" (porter-cases--run-problems run)))
              (let ((client (porter-cases--client run)))
                (unless (or (equal (porter-test-bytes client) "")
                            (porter-cases--run-problems run))
                  (push (format "bytes after the last response: %S"
                                (porter-test-bytes client))
                        (porter-cases--run-problems run))))
              (append (porter-cases--run-problems run)
                      (unless (memq nil verdicts)
                        (if (cdr verdicts) verdicts (car verdicts)))))))
      (dolist (pair (porter-cases--run-connections run))
        (porter-test-close (cdr pair))))))

(defun porter-cases--test (case)
  "Run CASE as a test."
  (porter-test-quietly
    (pcase-let* ((`(,_child ,port ,features) (porter-cases--fixture))
                 (needs (car (member (porter-cases--get "area" case)
                                     '("multipart" "static" "websocket")))))
      (when (and needs (not (member needs features)))
        (ert-skip (format "Porter has no %s yet" needs)))
      (let ((problems (porter-cases--perform case port)))
        (when problems
          (ert-fail (list (porter-cases--get "why" case)
                          :rfc (porter-cases--get "rfc" case)
                          :problems problems)))))))

;;;; The same in pieces

(defun porter-cases--all ()
  "Return all cases."
  (apply #'append
         (mapcar #'porter-cases--read
                 (directory-files (expand-file-name "vectors" porter-test-directory) t
                                  "\\.jsonl\\'"))))

(defun porter-cases--cuttable-p (case)
  "Return the number of bytes of CASE, or nil if it is long or waits on purpose."
  (let ((bytes 0) (good t))
    (cl-map nil (lambda (step)
                  (setq bytes (+ bytes (length (porter-cases--get "raw" step ""))))
                  (when (or (assoc "repeat" step) (assoc "split" step) (assoc "sleep_ms" step)
                            (assoc "reset" step) (assoc "capture" step))
                    (setq good nil)))
             (porter-cases--get "send" case))
    (and good (< bytes 2500) (not (assoc "timeout_ms" case)) bytes)))

(defun porter-cases--cut (splits)
  "Run all cases that are short, cut in each way that SPLITS, of their length, returns.
Fail with what went differently."
  (pcase-let ((`(,_child ,port ,_features) (porter-cases--fixture))
              (porter-cases--calm 0.002)
              (count 0)
              (bad nil))
    (dolist (case (porter-cases--all))
      (let ((bytes (porter-cases--cuttable-p case)))
        (dolist (split (and bytes (funcall splits bytes)))
          (cl-incf count)
          (let ((problems (porter-cases--perform case port split)))
            (when problems
              (push (list (porter-cases--get "id" case) split problems) bad))))))
    (should (> count 100))
    (when bad (ert-fail (nreverse bad)))))

(ert-deftest porter-cases-byte-by-byte ()
  "Cases come out the same when their bytes come one by one."
  (porter-test-quietly (porter-cases--cut (lambda (_bytes) '(1)))))

(ert-deftest porter-cases-cut-anywhere ()
  "Cases come out the same wherever their bytes are cut, at some hundred places of each."
  :tags '(slow)
  (unless porter-test-slow (ert-skip "PORTER_SLOW is not set"))
  (porter-test-quietly
    (porter-cases--cut (lambda (bytes)
                         (append '(2 3 7)
                                 (mapcar (lambda (at) (list 'at at))
                                         (number-sequence 1 (1- bytes)
                                                          (ceiling bytes 100))))))))

;;;; One test per case

(dolist (file (directory-files (expand-file-name "vectors" porter-test-directory) t
                               "\\.jsonl\\'"))
  (dolist (case (porter-cases--read file))
    (let ((case case))
      (ert-set-test
       (intern (concat "porter-case-" (porter-cases--get "id" case)))
       (make-ert-test
        :name (intern (concat "porter-case-" (porter-cases--get "id" case)))
        :documentation (format "%s: %s" (porter-cases--get "rfc" case "")
                               (porter-cases--get "why" case))
        :tags (list 'case (intern (file-name-base file)))
        :body (lambda () (porter-cases--test case)))))))

(provide 'porter-cases-tests)
;;; porter-cases-tests.el ends here
