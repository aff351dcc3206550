;;; porter-bridge.el --- Take requests when the doorbell rings  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The loop thread rings by writing a byte to a pipe process (or, before
;; Emacs 28, to a connection on a local socket).  The filter of that process
;; takes requests one by one and runs their handlers, for a few milliseconds;
;; then the keyboard gets its turn, and the rest is rung for again.
;;
;; A handler may wait.  Then the bell may ring again inside, and drains nest.

;;; Code:

(require 'porter-websocket)

(porter-module--declare)

(defcustom porter-doorbell nil
  "How the loop thread wakes Emacs.
The value `channel' means a pipe process (Emacs 28 and later), `socket' a
connection on a local socket, nil the first that this Emacs has."
  :type '(choice (const :tag "The best there is" nil)
                 (const :tag "Pipe process" channel)
                 (const :tag "Local socket" socket))
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-linger 100
  "How long to look for a next request before going back to sleep.
In microseconds, 0 for not at all.  To wake Emacs takes the system about this
long, so a client that asks again at once is answered twice as fast."
  :type 'natnum
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-busy-gc-cons-threshold (* 32 1024 1024)
  "The least value of `gc-cons-threshold' while requests come thick and fast.
In bytes; nil means to leave it alone.  It is restored when the load has
passed.  Larger values make fewer but longer pauses."
  :type '(choice (const :tag "Leave it alone" nil) natnum)
  :group 'porter
  :package-version '(porter . "1.0"))

(defconst porter--drain-usec 8000
  "The time for one drain, half a frame of a 60 Hz display.
The same as LIMIT_DRAIN_US in limits.h.")

(defconst porter--look-mask 7
  "Whenever the number of requests has none of these bits, look for a key.")

(defvar porter--bell nil "The doorbell, a process, or nil.")

(defvar porter--work-buffer nil
  "The buffer that handlers find themselves in, so that none edits another.")

(declare-function porter--server-gone "porter" (number))

;;;; Garbage

(defvar porter--gc-saved nil "The user's `gc-cons-threshold' while raised.")
(defvar porter--gc-raised nil "What we raised `gc-cons-threshold' to.")
(defvar porter--gc-timer nil "Looks whether the load has passed.")
(defvar porter--busy nil "Non-nil when a drain since the last look was busy.")

(defconst porter--busy-requests 32
  "A drain with so many requests is busy.")

(defun porter--gc-restore ()
  "Give the user's `gc-cons-threshold' back, unless someone else changed it."
  (when porter--gc-timer
    (cancel-timer porter--gc-timer)
    (setq porter--gc-timer nil))
  (when (and porter--gc-saved (eql gc-cons-threshold porter--gc-raised))
    (setq gc-cons-threshold porter--gc-saved))
  (setq porter--gc-saved nil))

(defun porter--gc-look ()
  "Restore `gc-cons-threshold' when the load has passed."
  (if porter--busy
      (setq porter--busy nil)
    (porter--gc-restore)))

(defun porter--gc-raise ()
  "Raise `gc-cons-threshold' while the load is high."
  (setq porter--busy t)
  (when (and porter-busy-gc-cons-threshold (null porter--gc-saved)
             (< gc-cons-threshold porter-busy-gc-cons-threshold))
    (setq porter--gc-saved gc-cons-threshold)
    (setq gc-cons-threshold
          (setq porter--gc-raised porter-busy-gc-cons-threshold))
    (setq porter--gc-timer (run-at-time 1 1 #'porter--gc-look))))

;; A collection takes some 12 ms, and under load one is due each second.  Someone
;; who types is least likely to notice it right after a key was echoed.

(defconst porter--gc-requests 40000
  "After so many requests a collection is worth its time.
They leave some 16 MB.")

(defvar porter--gc-count 0 "Requests since the last collection, about.")
(defvar porter--gc-seen 0 "`gcs-done' when that was counted.")
(defvar porter--gc-keys 0 "`num-nonmacro-input-events' at the last drain.")

(defun porter--gc-after-key ()
  "Collect garbage if there is much, and a key was just dealt with."
  (when (and (/= porter--gc-keys num-nonmacro-input-events)
             (> porter--gc-count porter--gc-requests))
    (when (and porter--gc-saved (= porter--gc-seen gcs-done))
      (garbage-collect))
    (setq porter--gc-count 0)
    (setq porter--gc-seen gcs-done))
  (setq porter--gc-keys num-nonmacro-input-events))

;;;; The drain

(defun porter--work-buffer ()
  "Make the work buffer current; a handler may have killed it."
  (unless (buffer-live-p porter--work-buffer)
    (setq porter--work-buffer (get-buffer-create " *porter*"))
    (with-current-buffer porter--work-buffer
      (setq default-directory (expand-file-name "~/"))))
  (set-buffer porter--work-buffer))

(defvar porter--relay-function #'ignore
  "Called with the number of a relay that was watched and holds something.")

(defun porter--handle (event)
  "Deal with EVENT, what `porter--mod-take' returned."
  (cond ((consp event)
         (if (stringp (car event))
             (porter--log-lines (aref porter--server-table (cdr event))
                                (car event))
           (cond ((eq (car event) t)
                  (porter--server-gone (cdr event)))
                 ((eq (car event) 'relay)
                  (funcall porter--relay-function (cdr event)))
                 ((eq (car-safe (cdr event)) 'body)
                  (porter--body-came (car event) (cddr event)))
                 (t (porter--socket-event event)))))
        ((< event 0)
         (porter--client-gone (lognot event))
         (porter--socket-closed (lognot event) 1006 ""))
        (t (porter--dispatch event))))

(defvar porter--drain-held nil
  "Non-nil while no other handler may run inside what runs.
What rings meanwhile makes it `missed', to be rung for afterwards.")

(defun porter--drain (&rest _)
  "Take what has come and deal with it, within the time for one drain."
  (when porter--drain-held (setq porter--drain-held 'missed))
  (porter--gc-after-key)
  (when (and porter--mod-abi (not porter--drain-held)
             (porter--mod-begin porter--drain-usec))
    (let ((inhibit-quit t)
          (throw-on-input nil)
          (deactivate-mark nil)
          (count 0)
          (event nil)
          (more nil))
      (unwind-protect
          (save-current-buffer
            (porter--work-buffer)
            (while (progn
                     (while (and (not (and (eql 0 (logand count porter--look-mask))
                                           (> count 0)
                                           (input-pending-p)))
                                 (setq event (porter--mod-take)))
                       (setq count (1+ count))
                       (if (stringp (cdr-safe event))
                           (porter--socket-message event)
                         (porter--handle event))
                       ;; It has returned; see below.
                       (setq event nil)
                       (unless (eq (current-buffer) porter--work-buffer)
                         (porter--work-buffer)))
                     (and (> count 0)
                          (> porter-linger 0)
                          (not (input-pending-p))
                          (porter--mod-linger porter-linger)))))
        (when (and (natnump event) (porter--mod-phase event))
          ;; A handler was left by a throw to somewhere outside, as by `q' in
          ;; the debugger.
          (porter--answer-plain event 500 "Internal Server Error\n"))
        (setq more (porter--mod-end))
        (setq porter--gc-count (+ porter--gc-count count))
        (when (>= count porter--busy-requests) (porter--gc-raise))
        (when more (porter--mod-ring))))))

;;;; The bell

(defun porter--bell-sentinel (process _event)
  "Someone deleted PROCESS, the doorbell: hang up a new one."
  (when (and (eq process porter--bell) (not (process-live-p process)))
    (setq porter--bell nil)
    (condition-case err
        (progn (porter--bell-open)
               ;; The old one may have taken an unread byte along.
               (porter--mod-ring))
      (error (message "Porter: cannot restore its doorbell, stop its servers: %s"
                      (error-message-string err))))))

(defun porter--bell-socket ()
  "A connection to a socket that the module listens on."
  (let* ((directory (file-name-as-directory
                     (make-temp-file (expand-file-name
                                      "porter-" (or small-temporary-file-directory
                                                    temporary-file-directory))
                                     t)))
         (path (expand-file-name "bell" directory)))
    (unwind-protect
        (progn
          (porter--mod-bell-listen path)
          (make-network-process
           :name " *porter-bell*" :family 'local :service path :noquery t
           :coding 'binary :filter #'porter--drain
           :sentinel #'porter--bell-sentinel))
      (ignore-errors (delete-file path))
      (ignore-errors (delete-directory directory)))))

(defvar read-process-output-max)        ; Emacs 27

(defun porter--bell-pipe ()
  "A pipe process for the module to write to."
  (let ((process-adaptive-read-buffering nil)
        (read-process-output-max 4096))
    (make-pipe-process
     :name " *porter-bell*" :buffer nil :noquery t :coding 'binary
     :filter #'porter--drain :sentinel #'porter--bell-sentinel)))

(defun porter--bell-open ()
  "Hang up the doorbell, and start the loop thread if it does not run."
  (unless (process-live-p porter--bell)
    (let* ((channel (and porter--mod-channels (not (eq porter-doorbell 'socket))))
           (process (if channel (porter--bell-pipe) (porter--bell-socket))))
      (when (fboundp 'set-process-thread)
        ;; Started from another thread, it would ring for that one only.
        (set-process-thread process nil))
      (setq porter--bell process)
      (condition-case err
          (porter--mod-bell (if channel process t))
        (error (porter--bell-close)
               (signal (car err) (cdr err)))))))

(defun porter--bell-close ()
  "Take the doorbell down."
  (let ((process porter--bell))
    (setq porter--bell nil)
    (when process (delete-process process))))

(defun porter--bridge-close ()
  "End the loop thread and all that belongs to it."
  (porter--gc-restore)
  (when porter--mod-abi (porter--mod-stop-loop 300))
  (porter--bell-close)
  (clrhash porter--close-functions)
  (porter--sockets-shutdown))

(provide 'porter-bridge)
;;; porter-bridge.el ends here
