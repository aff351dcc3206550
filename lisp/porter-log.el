;;; porter-log.el --- The log of a server  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Lines about answers are made in C, on the loop thread, when the answer has
;; left, and come here in batches, a few times a second at most.  What Lisp has
;; to say goes through C, so that a handler's error stands before the line of
;; the 500 that it caused.
;;
;; Nothing that came from outside is ever a format string, and control
;; characters are escaped, in Lisp's lines as in those of C.

;;; Code:

(require 'porter-module)

(porter-module--declare)

(declare-function porter-server-log-buffer "porter-dispatch" t t)
(declare-function porter-server-number "porter-dispatch" t t)

(defcustom porter-log-format 'readable
  "What a server's log says about each answer.
The value `readable' means lines such as

  2026-12-01 00:08:16 127.0.0.1 \"GET /hello\" 200 5 1ms

with the size of the body in bytes and how long the answer took; `common' the
Common Log Format; `combined' the same with Referer and User-Agent.  Nil means
that only errors are logged.  A \"-\" in the place of the status means that the
client left, or was cut off, before it got one.

It matters to servers that are started with a log buffer or a log file.
`porter-start' takes it as `:log-format'."
  :type '(choice (const :tag "Readable" readable)
                 (const :tag "Common Log Format" common)
                 (const :tag "Combined Log Format" combined)
                 (const :tag "Only errors" nil))
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-log-max-size (* 1024 1024)
  "The size of a log buffer, in characters, beyond which its beginning goes.
Nil means no limit."
  :type '(choice (const :tag "No limit" nil) natnum)
  :group 'porter
  :package-version '(porter . "1.0"))

(defconst porter--log-formats '(nil readable common combined)
  "The values of `porter-log-format', in the order of `enum log_format'.")

(defun porter--log-vector (buffer args)
  "What `porter--mod-listen' is to know about a log, or nil.
BUFFER is a log buffer or nil, ARGS the keywords of `porter-start'."
  (let* ((format (if (plist-member args :log-format)
                     (plist-get args :log-format)
                   porter-log-format))
         (number (or (cl-position format porter--log-formats)
                     (signal 'porter-error (list "Invalid log format" format))))
         (file (plist-get args :log-file)))
    (unless (or (null buffer) (bufferp buffer) (stringp buffer))
      (signal 'porter-error (list "Not a log buffer" buffer)))
    (unless (or (null file) (stringp file))
      (signal 'porter-error (list "Not a log file" file)))
    (when (or file (and buffer (> number 0)))
      (vector number (and buffer t)
              (and file (encode-coding-string
                         (expand-file-name file)
                         (or file-name-coding-system
                             default-file-name-coding-system 'utf-8)))))))

(defun porter--log-trim ()
  "Keep the current buffer within `porter-log-max-size'."
  (when (and porter-log-max-size (> (buffer-size) porter-log-max-size))
    ;; A quarter more than needed: not at each batch again.
    (goto-char (- (point-max) (/ (* 3 porter-log-max-size) 4)))
    (forward-line 1)
    (delete-region (point-min) (point))))

(defun porter--log-insert (buffer lines)
  "Append LINES, a string, to BUFFER, a buffer or its name.
Windows that show its end go on showing it.  A buffer that was killed is gone,
a name makes a new one."
  (when (or (stringp buffer) (buffer-live-p buffer))
    (with-current-buffer (get-buffer-create buffer)
      (let* ((inhibit-read-only t)
             (inhibit-modification-hooks t)
             (deactivate-mark nil)
             (end (point-max))
             (follow (= (point) end))
             (windows (cl-remove-if-not
                       (lambda (window) (= (window-point window) end))
                       (get-buffer-window-list nil nil t))))
        (buffer-disable-undo)
        (save-restriction
          (widen)
          (save-excursion
            (goto-char (point-max))
            (insert lines)
            (porter--log-trim)))
        (set-buffer-modified-p nil)
        (when follow (goto-char (point-max)))
        (dolist (window windows)
          (set-window-point window (point-max)))))))

(defun porter--log-lines (server lines)
  "LINES, a string, are for the log buffer of SERVER, or nil if it is gone."
  (when server
    (porter--log-insert (porter-server-log-buffer server) lines)))

(defun porter--log-escape (text)
  "TEXT with what could end its line or move a cursor in backslash notation."
  (replace-regexp-in-string
   "[\0-\x1f\x7f-\x9f\x3fff80-\x3fffff]"
   (lambda (char)
     (let ((char (aref char 0)))
       (cond ((eq char ?\n) "\\n")
             ((eq char ?\t) "\\t")
             (t (format "\\x%02x" (logand char 255))))))
   text t t))

(defun porter--log (server format &rest args)
  "Write a line into the log of SERVER, if it has one, else into *Messages*.
FORMAT and ARGS are those of `format'."
  (let* ((text (porter--log-escape (apply #'format format args)))
         (line (concat (format-time-string "%F %T ") text "\n"))
         (buffer (and server (porter-server-log-buffer server)))
         (number (and server (porter-server-number server))))
    (cond ((and number (porter--mod-log number line))
           (unless buffer (let ((inhibit-message t)) (message "Porter: %s" text))))
          (buffer (porter--log-insert buffer line))
          (t (let ((inhibit-message t)) (message "Porter: %s" text))))))

(provide 'porter-log)
;;; porter-log.el ends here
