;;; porter-test-helper.el --- What Porter's tests share  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A server on a free port that is always stopped, a client that speaks raw bytes, a strict
;; reader of responses, child Emacsen (batch, and in a terminal by tmux), and waiting with a
;; deadline.  Nothing here sleeps for a fixed time in the hope that something has happened by
;; then: one waits for the thing itself, or, where the point is that nothing happens, for a
;; stated short while.
;;
;; All deadlines are multiplied by the number in the environment variable PORTER_TEST_PATIENCE
;; (default 1), for sanitizers and slow machines.  PORTER_SLOW=1 asks for the long forms of
;; the tests that have one.

;;; Code:

(require 'cl-lib)
(require 'ert)
(require 'subr-x)

(defconst porter-test-directory
  (file-name-directory (or load-file-name buffer-file-name))
  "The directory of the tests.")

(defconst porter-test-root
  (file-name-directory (directory-file-name porter-test-directory))
  "The directory of the repository.")

(defconst porter-test-lisp-directory (expand-file-name "lisp/" porter-test-root)
  "The directory of Porter's Lisp files.")

(add-to-list 'load-path porter-test-lisp-directory)
(add-to-list 'load-path porter-test-directory)

(require 'porter)

;; Tests never ask: the module is there, or building it is part of the test.
(defvar porter-module-build)

(defvar porter-test-patience
  (let ((n (string-to-number (or (getenv "PORTER_TEST_PATIENCE") "1"))))
    (if (> n 0) n 1))
  "Factor on all deadlines.")

(defvar porter-test-slow (member (getenv "PORTER_SLOW") '("1" "t" "yes"))
  "Non-nil to run the long forms of the tests.")

(defun porter-test-need (&rest programs)
  "Skip the running test, naming it, if one of PROGRAMS is not installed."
  (dolist (program programs)
    (unless (executable-find program)
      (ert-skip (format "%s is not installed" program)))))

;;;; Waiting

(defun porter-test-now ()
  "Return the time as a float, in seconds."
  (float-time))

(defmacro porter-test-quietly (&rest body)
  "Run BODY as outside of ERT, with `debug-on-error' nil.
ERT binds it to t, so that a handler's error, which Porter reports to
the client, would count as the failure of the test.  An error of BODY
itself, a failed `should' among them, is signaled again to ERT."
  (declare (indent 0) (debug t))
  (let ((err (make-symbol "err")) (value (make-symbol "value")))
    `(let (,err ,value)
       (condition-case e
           (let ((debug-on-error nil) (debug-on-quit nil) (debug-on-signal nil))
             (setq ,value (progn ,@body)))
         ((error quit) (setq ,err e)))
       (when ,err (signal (car ,err) (cdr ,err)))
       ,value)))

(defun porter-test-accept (&optional process seconds)
  "Let output of PROCESS (nil: any) in, for SECONDS at most; servers and timers run."
  (let ((debug-on-error nil) (debug-on-quit nil))
    (accept-process-output process (or seconds 0.01))))

(defun porter-test-wait (predicate seconds message &rest args)
  "Wait until PREDICATE returns non-nil, and return that.
Fail after SECONDS with MESSAGE, formatted with ARGS.  An ARG that is a
function is called for its value then."
  (let ((deadline (+ (porter-test-now) (* seconds porter-test-patience)))
        value)
    (while (and (not (setq value (funcall predicate)))
                (< (porter-test-now) deadline))
      (porter-test-accept nil 0.01))
    (or value
        (ert-fail (list (apply #'format message
                               (mapcar (lambda (a) (if (functionp a) (funcall a) a)) args))
                        :after-seconds seconds)))))

(defun porter-test-pause (seconds)
  "Let servers, clients and timers run for SECONDS.
Only for showing that something does not happen meanwhile."
  (let ((end (+ (porter-test-now) seconds)))
    (while (< (porter-test-now) end)
      (porter-test-accept nil (max 0.001 (- end (porter-test-now)))))))

(defmacro porter-test-seconds (&rest body)
  "Run BODY and return how long it took, in seconds."
  (declare (indent 0) (debug t))
  (let ((start (make-symbol "start")))
    `(let ((,start (porter-test-now)))
       ,@body
       (- (porter-test-now) ,start))))

;;;; Servers

(defmacro porter-test-with-server (spec &rest body)
  "Run BODY with a server, which is stopped in any case.
SPEC is (VARIABLE HANDLERS &rest ARGS).  The port is a free one, there
is no log; ARGS are further arguments of `porter-start', and a :port or
a :log among them stands for the argument of that name.
\(fn (SERVER HANDLERS &rest ARGS) BODY...)"
  (declare (indent 1) (debug ((symbolp form &rest form) body)))
  (pcase-let ((`(,server ,handlers . ,args) spec))
    `(porter-test-quietly
       (let ((,server (porter-test-start ,handlers ,@args)))
         (unwind-protect
             (progn ,@body)
           (porter-stop ,server))))))

(defun porter-test-start (handlers &rest args)
  "Start a server of HANDLERS on a free port; see `porter-test-with-server' for ARGS."
  (let ((port 0) (log nil) rest)
    (while args
      (let ((key (pop args)) (value (pop args)))
        (pcase key
          (:port (setq port value))
          (:log (setq log value))
          (_ (setq rest (append rest (list key value)))))))
    (apply #'porter-start handlers port log rest)))

(defun porter-test-process (request)
  "Return the process of REQUEST."
  (slot-value request 'process))

(defun porter-test-answer (request body &optional code &rest headers)
  "Answer REQUEST with BODY as text, status CODE and more HEADERS."
  (porter-respond (porter-test-process request) (or code 200)
                  (cons '("Content-Type" . "text/plain") headers) body))

(defun porter-test-hello (request)
  "A handler: answer REQUEST with \"hello\"."
  (porter-test-answer request "hello"))

(defun porter-test-free-port ()
  "Return the number of a TCP port that was free a moment ago."
  (let ((process (make-network-process :name "porter-test-port" :server t :noquery t
                                       :host "127.0.0.1" :service t :family 'ipv4)))
    (unwind-protect
        (process-contact process :service)
      (delete-process process))))

(defun porter-test-port-open-p (port &optional host)
  "Return non-nil if something accepts connections on PORT of HOST."
  (condition-case nil
      (let ((process (make-network-process :name "porter-test-probe" :noquery t
                                           :host (or host "127.0.0.1") :service port)))
        (delete-process process)
        t)
    (file-error nil)))

(defun porter-test-port-bindable-p (port)
  "Return non-nil if PORT of 127.0.0.1 can be listened on now."
  (condition-case nil
      (let ((process (make-network-process :name "porter-test-bind" :server t :noquery t
                                           :host "127.0.0.1" :service port :family 'ipv4
                                           :reuseaddr t)))
        (delete-process process)
        t)
    (file-error nil)))

;;;; The raw client

(cl-defstruct (porter-test-client (:constructor porter-test--make-client) (:copier nil))
  "A connection that sends and receives bytes and adds nothing of its own."
  process
  buffer                                ; unibyte; what came and was not read yet
  (eof nil)                             ; t once the peer closed, `reset' if it broke off
  (broken nil)                          ; non-nil once a write failed
  (authority "localhost"))              ; for a Host field

(defun porter-test-open (where &optional port)
  "Connect to WHERE: a server, a port of 127.0.0.1, or a socket's file name.
With PORT, WHERE is a host."
  (let* ((buffer (generate-new-buffer " *porter-test-client*"))
         (client (porter-test--make-client :buffer buffer))
         (contact
          (cond (port (list :host where :service port))
                ((integerp where) (list :host "127.0.0.1" :service where))
                ((stringp where) (list :family 'local :service where))
                ((integerp (porter-port where))
                 (list :host (let ((host (porter-server-host where)))
                               (if (member host '(nil "0.0.0.0" "::" "localhost"))
                                   "127.0.0.1"
                                 host))
                       :service (porter-port where)))
                (t (list :family 'local :service (porter-server-host where)))))
         (process-adaptive-read-buffering nil))
    (with-current-buffer buffer
      (set-buffer-multibyte nil)
      (buffer-disable-undo))
    (when (plist-get contact :host)
      (setf (porter-test-client-authority client)
            (format (if (string-match-p ":" (plist-get contact :host)) "[%s]:%d" "%s:%d")
                    (plist-get contact :host) (plist-get contact :service))))
    (condition-case err
        (setf (porter-test-client-process client)
              (apply #'make-network-process
                     :name "porter-test-client" :noquery t :buffer nil
                     :coding '(binary . binary)
                     :filter (lambda (_process bytes)
                               (when (buffer-live-p buffer)
                                 (with-current-buffer buffer
                                   (goto-char (point-max))
                                   (insert bytes))))
                     :sentinel (lambda (process event)
                                 (unless (memq (process-status process) '(open connect run))
                                   (unless (porter-test-client-eof client)
                                     (setf (porter-test-client-eof client)
                                           (if (string-match-p "broken" event) t 'closed)))))
                     ;; Nagle's algorithm would join what is to arrive in pieces (Emacs 29+).
                     (append (and (featurep 'make-network-process :nodelay) '(:nodelay t))
                             contact)))
      (error (kill-buffer buffer)
             (signal (car err) (cdr err))))
    client))

(defun porter-test-close (client)
  "Close CLIENT's connection and forget what it received."
  (let ((process (porter-test-client-process client)))
    (setf (porter-test-client-eof client) (or (porter-test-client-eof client) 'closed))
    (when process
      (set-process-sentinel process #'ignore)
      (delete-process process))
    (when (buffer-live-p (porter-test-client-buffer client))
      (kill-buffer (porter-test-client-buffer client)))))

(defun porter-test-reset (client)
  "Break CLIENT's connection off with a TCP reset, where Emacs can."
  (let ((process (porter-test-client-process client)))
    (when (and (process-live-p process)
               (featurep 'make-network-process :linger))
      (ignore-errors (set-network-process-option process :linger 0)))
    (porter-test-close client)))

(defun porter-test-half-close (client)
  "Tell CLIENT's peer that nothing more comes; it can still answer."
  (ignore-errors (process-send-eof (porter-test-client-process client))))

(defun porter-test-hold (client)
  "Read nothing from CLIENT's connection until `porter-test-unhold'."
  (let ((process (porter-test-client-process client)))
    (unless (eq (process-filter process) t)
      (process-put process 'porter-test-filter (process-filter process))
      (set-process-filter process t))))

(defun porter-test-unhold (client)
  "Read from CLIENT's connection again."
  (let ((process (porter-test-client-process client)))
    (when (and process (eq (process-filter process) t))
      (set-process-filter process (process-get process 'porter-test-filter)))))

(defun porter-test-bytes (client)
  "Return what CLIENT has received and not read."
  (with-current-buffer (porter-test-client-buffer client)
    (buffer-string)))

(defun porter-test-closed-p (client)
  "Return non-nil if CLIENT's peer has closed the connection."
  (or (porter-test-client-eof client)
      (not (process-live-p (porter-test-client-process client)))))

(defun porter-test-write (client bytes)
  "Send BYTES, a unibyte string, over CLIENT.  Return nil if the peer has closed.
Takes in what arrives between pieces of 32 KiB: Emacs forgets what a
connection still had to say when writing to it fails."
  (let ((process (porter-test-client-process client))
        (start 0) (end (length bytes)))
    (cl-assert (not (multibyte-string-p (string-to-unibyte bytes))))
    (while (and (< start end) (not (porter-test-client-broken client)))
      (if (porter-test-closed-p client)
          (setf (porter-test-client-broken client) t)
        (condition-case nil
            (let ((debug-on-error nil) (next (min end (+ start 32768))))
              (process-send-string process (substring bytes start next))
              (setq start next)
              (when (< start end) (accept-process-output process 0)))
          (error (setf (porter-test-client-broken client) t)))))
    (not (porter-test-client-broken client))))

(defun porter-test-write-slowly (client bytes &optional piece seconds)
  "Send BYTES over CLIENT in pieces of PIECE (1) bytes, SECONDS (0.001) apart.
Stop when the peer closes.  Pieces stay apart on a socket of the local
family, and on TCP from Emacs 29 on."
  (let ((i 0) (piece (or piece 1)))
    (while (and (< i (length bytes)) (not (porter-test-closed-p client)))
      (porter-test-write client (substring bytes i (min (length bytes) (+ i piece))))
      (setq i (+ i piece))
      (when (< i (length bytes)) (porter-test-pause (or seconds 0.001))))))

(defun porter-test-await (client predicate seconds)
  "Wait until PREDICATE, called in CLIENT's buffer, is non-nil; return its value.
Return nil if the peer closes first or SECONDS pass."
  (let ((deadline (+ (porter-test-now) (* seconds porter-test-patience)))
        value)
    (while (and (not (setq value (with-current-buffer (porter-test-client-buffer client)
                                   (goto-char (point-min))
                                   (funcall predicate))))
                (not (porter-test-closed-p client))
                (< (porter-test-now) deadline))
      (porter-test-accept (porter-test-client-process client)
                          (max 0.001 (min 0.05 (- deadline (porter-test-now))))))
    (or value
        ;; The end may have come with the last bytes.
        (and (porter-test-closed-p client)
             (with-current-buffer (porter-test-client-buffer client)
               (goto-char (point-min))
               (funcall predicate))))))

(defun porter-test-await-close (client &optional seconds)
  "Return non-nil if CLIENT's peer closes within SECONDS (1.5)."
  (let ((deadline (+ (porter-test-now) (* (or seconds 1.5) porter-test-patience))))
    (while (and (not (porter-test-closed-p client))
                (< (porter-test-now) deadline))
      (porter-test-accept (porter-test-client-process client) 0.02))
    (porter-test-closed-p client)))

(defun porter-test-should-close (client &optional seconds)
  "Fail unless CLIENT's peer closes within SECONDS, having said nothing more."
  (unless (porter-test-await-close client (or seconds 3))
    (ert-fail (list "The server keeps the connection open" :unread (porter-test-bytes client))))
  (should (equal (porter-test-bytes client) "")))

(defun porter-test-should-stay-open (client &optional seconds)
  "Fail if CLIENT's peer closes or says anything within SECONDS (0.1)."
  (let ((deadline (+ (porter-test-now) (or seconds 0.1))))
    (while (and (not (porter-test-closed-p client)) (< (porter-test-now) deadline))
      (porter-test-accept (porter-test-client-process client) 0.02)))
  (should-not (porter-test-closed-p client))
  (should (equal (porter-test-bytes client) "")))

(defmacro porter-test-with-client (spec &rest body)
  "Run BODY with a raw connection, which is closed in any case.
SPEC is (VARIABLE WHERE &optional PORT), see `porter-test-open'."
  (declare (indent 1) (debug ((symbolp &rest form) body)))
  `(let ((,(car spec) (porter-test-open ,@(cdr spec))))
     (unwind-protect (progn ,@body)
       (porter-test-close ,(car spec)))))

;;;; The strict reader of responses

(cl-defstruct (porter-test-response (:conc-name porter-test-response-) (:copier nil))
  "One response as it came."
  version                               ; "1.1"
  status                                ; integer
  reason
  headers                               ; ((lower-case name . value) ...) in order
  body                                  ; unibyte
  framing                               ; none, length, chunked or close
  chunks                                ; number of data chunks, when chunked
  trailers                              ; like headers
  interim)                              ; statuses of 1xx responses before it

(define-error 'porter-test-bad-response "Malformed response" 'error)

(defun porter-test--bad (format-string &rest args)
  "Signal that the response breaks the rule named by FORMAT-STRING and ARGS."
  (signal 'porter-test-bad-response
          (list (apply #'format format-string args)
                :near (buffer-substring (max (point-min) (- (point) 80))
                                        (min (point-max) (+ (point) 200))))))

(defconst porter-test--field
  (concat "\\([!#$%&'*+.^_`|~0-9A-Za-z-]+\\):[ \t]*"
          "\\(\\(?:[^\000-\040\177]\\(?:[^\000-\010\012-\037\177]*[^\000-\040\177]\\)?\\)?\\)"
          "[ \t]*\r\n")
  "A header field line.")

(defconst porter-test--date
  (concat "\\`\\(?:Mon\\|Tue\\|Wed\\|Thu\\|Fri\\|Sat\\|Sun\\), [0-9][0-9] "
          "\\(?:Jan\\|Feb\\|Mar\\|Apr\\|May\\|Jun\\|Jul\\|Aug\\|Sep\\|Oct\\|Nov\\|Dec\\) "
          "[0-9]\\{4\\} [0-9][0-9]:[0-9][0-9]:[0-9][0-9] GMT\\'")
  "RFC 9110 5.6.7: an IMF-fixdate.")

(defun porter-test--fields ()
  "Read field lines at point up to and with the empty line; return the alist."
  (let (fields)
    (while (looking-at porter-test--field)
      (push (cons (downcase (match-string 1)) (match-string 2)) fields)
      (goto-char (match-end 0)))
    (unless (looking-at "\r\n") (porter-test--bad "not a field line"))
    (goto-char (match-end 0))
    (nreverse fields)))

(defun porter-test--check-fields (status fields)
  "Check what holds for FIELDS of every response of STATUS."
  (let ((count (lambda (name) (cl-count name fields :key #'car :test #'equal)))
        (date (cdr (assoc "date" fields))))
    (when (> (funcall count "content-length") 1) (porter-test--bad "two Content-Length"))
    (when (> (funcall count "transfer-encoding") 1) (porter-test--bad "two Transfer-Encoding"))
    (when (and (assoc "content-length" fields) (assoc "transfer-encoding" fields))
      (porter-test--bad "both framings"))
    (when (and (or (< status 200) (= status 204))
               (or (assoc "content-length" fields) (assoc "transfer-encoding" fields)))
      (porter-test--bad "framing on %d" status))
    (when (> (funcall count "date") 1) (porter-test--bad "two Date"))
    (when date
      (let ((case-fold-search nil))
        (unless (string-match-p porter-test--date date)
          (porter-test--bad "Date %S is no IMF-fixdate" date)))
      (unless (< (abs (- (float-time (date-to-time date)) (float-time))) 10)
        (porter-test--bad "Date %S is not now" date)))
    (pcase (cl-find status '((405 . "allow") (401 . "www-authenticate") (426 . "upgrade"))
                    :key #'car)
      (`(,_ . ,name) (unless (assoc name fields)
                       (porter-test--bad "%d without %s" status name))))))

(defun porter-test--chunked ()
  "Read a chunked body at point.
Return (BODY CHUNKS TRAILERS), or nil if it is not whole yet."
  (catch 'incomplete
    (let (pieces (chunks 0))
      (while (progn
               (unless (looking-at "\\([0-9A-Fa-f]+\\)\\(;[^\r\n]*\\)?\r\n")
                 (if (save-excursion (search-forward "\n" nil t))
                     (porter-test--bad "bad chunk size")
                   (throw 'incomplete nil)))
               (let ((size (string-to-number (match-string 1) 16)))
                 (goto-char (match-end 0))
                 (when (> size 0)
                   (when (> (+ (point) size 2) (point-max)) (throw 'incomplete nil))
                   (push (buffer-substring (point) (+ (point) size)) pieces)
                   (cl-incf chunks)
                   (goto-char (+ (point) size))
                   (unless (looking-at "\r\n") (porter-test--bad "chunk without CRLF"))
                   (goto-char (match-end 0))
                   t))))
      ;; The last chunk was read; trailers and an empty line follow.
      (unless (save-excursion (or (looking-at-p "\r\n") (search-forward "\r\n\r\n" nil t)))
        (throw 'incomplete nil))
      (let ((trailers (porter-test--fields)))
        (list (apply #'concat (nreverse pieces)) chunks trailers)))))

(defun porter-test--parse (method eof)
  "Parse the response at the start of the current buffer, to a request of METHOD.
EOF tells that nothing more comes.  Return the response and move point
behind it, or return nil if it is not whole.  Signal
`porter-test-bad-response' when it is malformed."
  (goto-char (point-min))
  (when (and (> (buffer-size) 0)
             (not (string-prefix-p (buffer-substring 1 (min 8 (point-max))) "HTTP/1.")))
    (porter-test--bad "not a status line"))
  (let ((head-end (save-excursion (search-forward "\r\n\r\n" nil t))))
    (when head-end
      (let ((case-fold-search nil) response status headers)
        (unless (looking-at
                 "HTTP/\\(1\\.[01]\\) \\([1-5][0-9][0-9]\\) \\([^\000-\010\012-\037\177]*\\)\r\n")
          (porter-test--bad "bad status line"))
        (setq status (string-to-number (match-string 2)))
        (setq response (make-porter-test-response
                        :version (match-string 1) :status status
                        :reason (match-string 3) :body "" :framing 'none))
        (goto-char (match-end 0))
        (setq headers (porter-test--fields))
        (setf (porter-test-response-headers response) headers)
        (porter-test--check-fields status headers)
        (let ((length (cdr (assoc "content-length" headers)))
              (coding (cdr (assoc "transfer-encoding" headers))))
          (when (and length (not (string-match-p "\\`[0-9]+\\'" length)))
            (porter-test--bad "bad Content-Length"))
          (cond
           ((or (equal method "HEAD") (< status 200) (memq status '(204 304)))
            response)
           (coding
            (unless (equal (downcase coding) "chunked")
              (porter-test--bad "unknown transfer coding %S" coding))
            (when (equal (porter-test-response-version response) "1.0")
              (porter-test--bad "chunked in HTTP/1.0"))
            (pcase (porter-test--chunked)
              (`(,body ,chunks ,trailers)
               (setf (porter-test-response-framing response) 'chunked
                     (porter-test-response-body response) body
                     (porter-test-response-chunks response) chunks
                     (porter-test-response-trailers response) trailers)
               response)))
           (length
            (let ((end (+ (point) (string-to-number length))))
              (when (<= end (point-max))
                (setf (porter-test-response-framing response) 'length
                      (porter-test-response-body response) (buffer-substring (point) end))
                (goto-char end)
                response)))
           (eof
            (setf (porter-test-response-framing response) 'close
                  (porter-test-response-body response)
                  (buffer-substring (point) (point-max)))
            (goto-char (point-max))
            response)))))))

(defun porter-test-read-any (client &optional method seconds)
  "Read one response of any status from CLIENT, to a request of METHOD.
Return nil if none comes within SECONDS (5) or before the peer closes."
  (porter-test-unhold client)
  (let* ((seen -1)
         (eof nil)
         (parse (lambda ()
                  ;; Look again only when there is news.
                  (when (or (/= seen (buffer-size))
                            (not (eq eof (and (porter-test-closed-p client) t))))
                    (setq seen (buffer-size)
                          eof (and (porter-test-closed-p client) t))
                    (let ((response (porter-test--parse method eof)))
                      (when response
                        (delete-region (point-min) (point))
                        response))))))
    (porter-test-await client parse (or seconds 5))))

(defun porter-test-read-maybe (client &optional method seconds)
  "Like `porter-test-read', but return nil when no whole response comes."
  (let (response interim (deadline (+ (porter-test-now) (or seconds 5))))
    (while (and (setq response (porter-test-read-any
                                client method (max 0.001 (- deadline (porter-test-now)))))
                (< (porter-test-response-status response) 200)
                (/= (porter-test-response-status response) 101))
      (push (porter-test-response-status response) interim))
    (when response
      (setf (porter-test-response-interim response) (nreverse interim)))
    response))

(defun porter-test-read (client &optional method seconds)
  "Read one final response from CLIENT to a request of METHOD (\"GET\").
Fail if it does not come whole within SECONDS (5), or is malformed."
  (or (porter-test-read-maybe client method seconds)
      (ert-fail (list (if (porter-test-closed-p client)
                          "The connection was closed before a whole response"
                        "No whole response came in time")
                      :received (porter-test-bytes client)))))

(defun porter-test-header (response name)
  "Return RESPONSE's header NAME, lines joined by \", \", or nil."
  (let ((values (cl-loop for (n . v) in (porter-test-response-headers response)
                         when (equal n (downcase name)) collect v)))
    (and values (mapconcat #'identity values ", "))))

(defun porter-test-says-close-p (response)
  "Return non-nil if RESPONSE announces the end of the connection."
  (let ((case-fold-search t))
    (string-match-p "\\(\\`\\|[ \t,]\\)close\\([ \t,]\\|\\'\\)"
                    (or (porter-test-header response "connection") ""))))

(defun porter-test-request-bytes (method target &optional headers body host)
  "Return the bytes of a request of METHOD for TARGET.
HEADERS is an alist of strings; Host (HOST, default localhost) and
Content-Length of BODY are added unless there."
  (let ((has (lambda (name) (assoc-string name headers t))))
    (string-to-unibyte
     (concat method " " target " HTTP/1.1\r\n"
             (unless (funcall has "host") (format "Host: %s\r\n" (or host "localhost")))
             (mapconcat (lambda (h) (concat (car h) ": " (cdr h) "\r\n")) headers "")
             (when (and body (not (funcall has "transfer-encoding"))
                        (not (funcall has "content-length")))
               (format "Content-Length: %d\r\n" (length body)))
             "\r\n"
             body))))

(defun porter-test-ask (client method target &optional headers body seconds)
  "Send a request over CLIENT and return the response.
METHOD, TARGET, HEADERS and BODY as in `porter-test-request-bytes',
SECONDS as in `porter-test-read'."
  (porter-test-write client (porter-test-request-bytes
                             method target headers body (porter-test-client-authority client)))
  (porter-test-read client method seconds))

(defun porter-test-fetch (where method target &optional headers body seconds)
  "Ask WHERE (see `porter-test-open') over a connection of its own.
METHOD, TARGET, HEADERS, BODY and SECONDS as in `porter-test-ask'."
  (porter-test-with-client (client where)
    (porter-test-ask client method target headers body seconds)))

(defun porter-test-get (where target &rest headers)
  "GET TARGET with HEADERS (conses) from WHERE and return the response."
  (porter-test-fetch where "GET" target headers))

(defun porter-test-get-body (where target &rest headers)
  "GET TARGET with HEADERS from WHERE, which has to be a 200, and return its body."
  (let ((response (porter-test-fetch where "GET" target headers)))
    (should (equal (porter-test-response-status response) 200))
    (porter-test-response-body response)))

(defun porter-test-post (where target body &rest headers)
  "POST BODY to TARGET of WHERE with HEADERS and return the response."
  (porter-test-fetch where "POST" target headers body))

(defun porter-test-should-serve (server)
  "Fail unless SERVER answers a request for / with 200."
  (should (equal 200 (porter-test-response-status (porter-test-get server "/")))))

;;;; Programs and child Emacsen

(defconst porter-test-emacs (expand-file-name invocation-name invocation-directory)
  "The Emacs that runs the tests.")

(defconst porter-test-preload (getenv "LD_PRELOAD")
  "The runtime of a sanitizer that the module is built with, or nil.
Memory that is given back is then kept for a while, and signals may come late.")

;; It is for child Emacsen; other programs, and the thousands a shell may start,
;; can do without.
(setenv "LD_PRELOAD" nil)

(defun porter-test-preload-environment (command)
  "Return what the environment of COMMAND, a list of strings, needs in addition."
  (and porter-test-preload (equal (car command) porter-test-emacs)
       (list (concat "LD_PRELOAD=" porter-test-preload))))

(cl-defstruct (porter-test-child (:constructor porter-test--make-child) (:copier nil))
  "A running program and what it has said."
  process buffer)

(defun porter-test-spawn (command &optional environment)
  "Start COMMAND, a list of strings, with ENVIRONMENT, a list of VAR=VALUE.
Return a `porter-test-child', whose buffer gets both outputs."
  (let* ((buffer (generate-new-buffer " *porter-test-child*"))
         (process-environment
          (append environment (porter-test-preload-environment command)
                  process-environment))
         (process-adaptive-read-buffering nil))
    (porter-test--make-child
     :buffer buffer
     :process (make-process :name "porter-test-child" :buffer buffer :command command
                            :connection-type 'pipe :noquery t :sentinel #'ignore
                            :coding 'utf-8-unix))))

(defun porter-test-child-output (child)
  "Return all that CHILD has said."
  (with-current-buffer (porter-test-child-buffer child)
    (buffer-string)))

(defun porter-test-child-await (child regexp seconds)
  "Wait until CHILD has said what matches REGEXP; return its first group, or all of it.
Fail after SECONDS, or when CHILD ends without saying it."
  (let (case-fold-search)
    (porter-test-wait
     (lambda ()
       (with-current-buffer (porter-test-child-buffer child)
         (goto-char (point-min))
         (cond ((re-search-forward regexp nil t) (or (match-string 1) (match-string 0)))
               ((process-live-p (porter-test-child-process child)) nil)
               ;; Its end may be known before its last words are read.
               ((progn (accept-process-output (porter-test-child-process child) 0.1)
                       (goto-char (point-min))
                       (re-search-forward regexp nil t))
                (or (match-string 1) (match-string 0)))
               (t
                (ert-fail (list "The program ended without saying what was awaited"
                                :awaited regexp :said (buffer-string)))))))
     seconds "A program did not say %S but %S" regexp
     (lambda () (porter-test-child-output child)))))

(defun porter-test-child-finish (child seconds)
  "Wait for the end of CHILD within SECONDS and return its exit status."
  (let ((process (porter-test-child-process child)))
    (porter-test-wait (lambda () (not (process-live-p process))) seconds
                      "A program did not end; it said %S"
                      (lambda () (porter-test-child-output child)))
    (while (accept-process-output process 0))
    (process-exit-status process)))

(defun porter-test-child-kill (child)
  "End CHILD and forget it."
  (let ((process (porter-test-child-process child)))
    (when (process-live-p process)
      (signal-process process 'KILL)
      (while (process-live-p process) (accept-process-output process 0.01)))
    (delete-process process))
  (when (buffer-live-p (porter-test-child-buffer child))
    (kill-buffer (porter-test-child-buffer child))))

(defmacro porter-test-with-child (spec &rest body)
  "Run BODY with a program, which is ended in any case.
SPEC is (VARIABLE COMMAND &optional ENVIRONMENT), see `porter-test-spawn'."
  (declare (indent 1) (debug ((symbolp &rest form) body)))
  `(porter-test-quietly
     (let ((,(car spec) (porter-test-spawn ,@(cdr spec))))
       (unwind-protect (progn ,@body)
         (porter-test-child-kill ,(car spec))))))

(defun porter-test-run (command seconds &optional environment)
  "Run COMMAND with ENVIRONMENT to its end, within SECONDS, while servers here go on.
Return (EXIT-STATUS . OUTPUT)."
  (porter-test-with-child (child command environment)
    (let ((status (porter-test-child-finish child seconds)))
      (cons status (porter-test-child-output child)))))

(defvar porter-test-module-assertions
  (let ((arguments (ignore-errors
                     (with-temp-buffer
                       (set-buffer-multibyte nil)
                       (insert-file-contents-literally "/proc/self/cmdline")
                       (split-string (buffer-string) "\0" t)))))
    (and (cl-some (lambda (a) (string-match-p "\\`--?module-assertions\\'" a)) arguments) t))
  "Non-nil if this Emacs runs with module assertions; child Emacsen then do so too.")

(defun porter-test-emacs-command (&rest arguments)
  "Return the command of a child Emacs with Porter on its load path and ARGUMENTS."
  (append (list porter-test-emacs "-Q")
          (and porter-test-preload '("--eval" "(setenv \"LD_PRELOAD\" nil)"))
          (and porter-test-module-assertions '("--module-assertions"))
          (list "-L" porter-test-lisp-directory "-L" porter-test-directory)
          arguments))

(defun porter-test-batch-command (&rest forms)
  "Return the command of a batch Emacs that evaluates FORMS."
  (apply #'porter-test-emacs-command "--batch"
         (cl-mapcan (lambda (form)
                      (list "--eval" (let (print-length print-level) (prin1-to-string form))))
                    forms)))

(defun porter-test-batch (seconds &rest forms)
  "Evaluate FORMS in a batch Emacs, within SECONDS; return (EXIT-STATUS . OUTPUT)."
  (porter-test-run (apply #'porter-test-batch-command forms) seconds))

(defun porter-test-batch-value (seconds &rest forms)
  "Evaluate FORMS in a batch Emacs, within SECONDS; return the value of the last."
  (let* ((result (porter-test-batch
                  seconds
                  `(let ((value (progn ,@forms)))
                     (princ (concat "\n@value " (let (print-length print-level)
                                                  (prin1-to-string value))
                                    "\n")))))
         (output (cdr result)))
    (unless (and (equal (car result) 0)
                 (string-match "^@value \\(.*\\(?:\n.*\\)*\\)\\'" output))
      (ert-fail (list "The child Emacs failed" :status (car result) :said output)))
    (car (read-from-string (match-string 1 output)))))

(defmacro porter-test-with-child-server (spec &rest body)
  "Run BODY with a server in a child Emacs.
SPEC is (PORT FORM &rest OPTIONS): PORT is a variable, and FORM, evaluated there, starts
a server with `porter-test-options', which are OPTIONS, and says \"PORT n\"."
  (declare (indent 1) (debug ((symbolp form &rest form) body)))
  (pcase-let ((`(,port ,form . ,options) spec) (child (make-symbol "child")))
    `(let ((porter-test-module-assertions nil))
       (porter-test-with-child
           (,child (porter-test-batch-command
                    '(require 'eieio)
                    (list 'defvar 'porter-test-options (list 'quote (list ,@options)))
                    ,form))
         (let ((,port (string-to-number
                       (porter-test-child-await ,child "^PORT \\([0-9]+\\)$" 20))))
           ,@body)))))

(defconst porter-test-hello-form
  '(lambda (request)
     (porter-respond (slot-value request 'process) 200 '(("Content-Type" . "text/plain")) "hello"))
  "A handler for child Emacsen.")

;;;; A browser

(defun porter-test-browser ()
  "Return the browser, or skip the test."
  (or (executable-find "chromium") (executable-find "chromium-browser")
      (ert-skip "chromium is not installed")))

(defmacro porter-test-with-browser (url &rest body)
  "Run BODY while a browser shows URL."
  (declare (indent 1) (debug (form body)))
  (let ((profile (make-symbol "profile")))
    `(let ((,profile (make-temp-file "porter-browser" t)))
       (unwind-protect
           (porter-test-with-child
               (_browser (list (porter-test-browser) "--headless" "--no-sandbox"
                               "--disable-gpu" "--disable-dev-shm-usage" "--no-first-run"
                               "--disable-background-networking" "--remote-debugging-port=0"
                               "--autoplay-policy=no-user-gesture-required"
                               (concat "--user-data-dir=" ,profile) ,url)
                         (list (concat "HOME=" ,profile)))
             ,@body)
         ;; Its helpers may write for a moment more.
         (porter-test-wait (lambda ()
                             (ignore-errors (delete-directory ,profile t))
                             (not (file-exists-p ,profile)))
                           10 "The browser's profile cannot be deleted")))))

;;;; An interactive Emacs in a terminal

(cl-defstruct (porter-test-terminal (:constructor porter-test--make-terminal) (:copier nil))
  "An Emacs in a tmux of its own."
  directory socket)

(defun porter-test--tmux (terminal &rest arguments)
  "Run tmux for TERMINAL with ARGUMENTS and return its output."
  (let ((process-environment (append (list "LC_ALL=C.UTF-8" "TMUX=" "TMUX_PANE=")
                                     process-environment))
        (coding-system-for-read 'utf-8-unix)
        (coding-system-for-write 'utf-8-unix))
    (with-temp-buffer
      (let ((status (apply #'call-process "tmux" nil t nil
                           "-S" (porter-test-terminal-socket terminal) "-f" "/dev/null"
                           arguments)))
        (unless (equal status 0)
          (error "Cannot run tmux %S: %s" arguments (buffer-string))))
      (buffer-string))))

(defun porter-test-terminal-open (&rest arguments)
  "Start an Emacs with ARGUMENTS in a terminal, with a clean HOME."
  (porter-test-need "tmux")
  (let* ((directory (make-temp-file "porter-test-tmux" t))
         (terminal (porter-test--make-terminal
                    :directory directory :socket (expand-file-name "s" directory)))
         (command (apply #'porter-test-emacs-command "-nw" arguments)))
    (porter-test--tmux terminal "new-session" "-d" "-x" "120" "-y" "30"
                       (mapconcat #'shell-quote-argument
                                  `("env" ,(concat "HOME=" directory) "TERM=screen"
                                    ,@(porter-test-preload-environment command)
                                    ,@command)
                                  " "))
    terminal))

(defun porter-test-terminal-close (terminal)
  "End TERMINAL and the Emacs in it."
  (ignore-errors (porter-test--tmux terminal "kill-server"))
  (ignore-errors (delete-directory (porter-test-terminal-directory terminal) t)))

(defun porter-test-screen (terminal)
  "Return what TERMINAL shows."
  (condition-case nil
      (porter-test--tmux terminal "capture-pane" "-p")
    (error "")))

(defun porter-test-keys (terminal &rest keys)
  "Type KEYS, in tmux's notation (\"M-x\", \"C-c\", \"Enter\", or text), in TERMINAL."
  (dolist (key keys)
    (if (string-match-p "\\`\\(?:[CM]-.\\|C-M-.\\|Enter\\|Escape\\|Tab\\|Space\\|BSpace\\|Up\\|Down\\)\\'"
                        key)
        (porter-test--tmux terminal "send-keys" key)
      (porter-test--tmux terminal "send-keys" "-l" key))))

(defun porter-test-terminal-await (terminal regexp seconds)
  "Wait until TERMINAL shows what matches REGEXP; return its first group, or all of it.
Fail after SECONDS with the screen."
  (let (case-fold-search)
    (porter-test-wait
     (lambda ()
       (let ((screen (porter-test-screen terminal)))
         (when (string-match regexp screen)
           (or (match-string 1 screen) (match-string 0 screen)))))
     seconds "The terminal does not show %S but:\n%s" regexp
     (lambda () (porter-test-screen terminal)))))

(defun porter-test-terminal-live-p (terminal)
  "Return non-nil while the Emacs in TERMINAL runs."
  (condition-case nil
      (progn (porter-test--tmux terminal "has-session") t)
    (error nil)))

(defun porter-test-terminal-eval (terminal form)
  "Have the Emacs in TERMINAL evaluate FORM by M-:."
  (porter-test-keys terminal "M-:")
  (porter-test-terminal-await terminal "^Eval:" 5)
  (porter-test-keys terminal (let (print-length print-level) (prin1-to-string form)) "Enter"))

(defmacro porter-test-with-terminal (spec &rest body)
  "Run BODY with an Emacs in a terminal, which is ended in any case.
SPEC is (VARIABLE &rest ARGUMENTS), see `porter-test-terminal-open'."
  (declare (indent 1) (debug ((symbolp &rest form) body)))
  `(porter-test-quietly
     (let ((,(car spec) (porter-test-terminal-open ,@(cdr spec))))
       (unwind-protect (progn ,@body)
         (porter-test-terminal-close ,(car spec))))))

(declare-function porter--mod-counts "porter-module" ())

(defun porter-test-counts ()
  "Return Porter's counts in C, the spare exchanges kept for reuse taken off."
  (let ((counts (copy-sequence (porter--mod-counts))))
    (plist-put counts :exchanges (- (plist-get counts :exchanges)
                                    (or (plist-get counts :spare) 0)))))

(defun porter-test-should-come-to-rest (&optional seconds)
  "Fail unless C holds no exchange, connection or server within SECONDS (3)."
  (porter-test-wait
   (lambda ()
     (garbage-collect)
     (let ((counts (porter-test-counts)))
       (cl-every (lambda (key) (= 0 (or (plist-get counts key) 0)))
                 '(:exchanges :connections :listeners :servers))))
   (or seconds 3) "The counts are %S" #'porter-test-counts))

;;;; wrk

(defun porter-test-wrk (port seconds connections &optional path)
  "Load PORT with wrk for SECONDS over CONNECTIONS, asking for PATH.
Return a plist :requests :per-second :errors :output.  Servers in this
Emacs go on meanwhile."
  (porter-test-need "wrk")
  (pcase-let* ((`(,status . ,output)
                (porter-test-run (list "wrk" "-t1" (format "-c%d" connections)
                                       (format "-d%ds" seconds)
                                       (format "http://127.0.0.1:%d%s" port (or path "/")))
                                 (+ seconds 15))))
    (should (equal status 0))
    (let ((number (lambda (regexp)
                    (if (string-match regexp output)
                        (string-to-number (match-string 1 output))
                      0))))
      (list :requests (funcall number "\\([0-9]+\\) requests in")
            :per-second (funcall number "Requests/sec: *\\([0-9.]+\\)")
            :errors (+ (if (string-match-p "Socket errors" output) 1 0)
                       (funcall number "Non-2xx or 3xx responses: *\\([0-9]+\\)"))
            :output output))))

(defun porter-test-memory (&optional pid)
  "Return the resident memory of process PID (this Emacs) in bytes, or skip the test."
  (let ((file (format "/proc/%s/status" (or pid "self"))))
    (unless (file-readable-p file) (ert-skip "no /proc here"))
    (with-temp-buffer
      (insert-file-contents file)
      (re-search-forward "^VmRSS:[ \t]+\\([0-9]+\\) kB")
      (* 1024 (string-to-number (match-string 1))))))

(provide 'porter-test-helper)
;;; porter-test-helper.el ends here
