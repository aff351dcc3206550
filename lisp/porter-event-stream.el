;;; porter-event-stream.el --- Event streams  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What a browser's EventSource reads: an answer of type text/event-stream
;; that stays open, and to which `porter-event-send' adds one event after the
;; other, at once.  The loop thread keeps it alive with comments while nothing
;; is said, also while Lisp is stuck.

;;; Code:

(require 'porter-response)

(porter-module--declare)

(defcustom porter-event-stream-heartbeat 15
  "The seconds without an event after which a stream gets a comment.
It keeps proxies from giving the stream up, and shows whether the client is
still there.  Nil means never.  `porter-event-stream' takes it as
`:heartbeat'."
  :type '(choice (const :tag "Never" nil) number)
  :group 'porter
  :package-version '(porter . "1.0"))

(defun porter-event-stream (request &rest options)
  "Answer REQUEST with an event stream, and return its process.
Send events to it with `porter-event-send', from wherever you like, and end it
with `porter-event-close'.  The handler must return `:keep-alive' if it is to
stay open.  OPTIONS is a plist:

`:headers' ALIST       more header lines, (NAME . VALUE)
`:retry' MS            the milliseconds that the client is to wait before it
                     connects again
`:heartbeat' SECONDS   see `porter-event-stream-heartbeat'
`:on-close' FUNCTION   called with the process, once, when the stream ends:
                     the client has left, or `porter-event-close' was called

What the client got last before it connected again is the value of
`porter-request-last-event-id'.  To a HEAD request the headers are the whole
answer; return nil then."
  (let* ((id (porter--id request))
         (process (if (porter-process-p request)
                      request
                    (aref request porter--request-process-index)))
         (heartbeat (if (plist-member options :heartbeat)
                        (plist-get options :heartbeat)
                      porter-event-stream-heartbeat))
         (on-close (plist-get options :on-close)))
    (cl-loop for (keyword value) on options by #'cddr
             unless (pcase keyword
                      (:headers (listp value))
                      (:retry (or (null value) (natnump value)))
                      (:heartbeat (or (null value) (and (numberp value) (> value 0))))
                      (:on-close (or (null value) (functionp value)))
                      (_ (signal 'porter-error (list "Unknown keyword" keyword))))
             do (signal 'porter-error (list "Not a value for" keyword value)))
    (apply #'porter-response-header process 200
           '("Content-Type" . "text/event-stream")
           '("Cache-Control" . "no-cache")
           ;; Tells nginx not to gather.
           '("X-Accel-Buffering" . "no")
           (plist-get options :headers))
    (if (eq (porter--mod-method id) :HEAD)
        (progn (porter-finish process) nil)
      (porter--mod-heartbeat id (if heartbeat
                                    (max 1 (round (* 1000 heartbeat)))
                                  0))
      (porter-send process (if (plist-get options :retry)
                               (format "retry: %d\n\n" (plist-get options :retry))
                             ":\n\n"))
      (porter-flush process)
      (when on-close
        (porter-on-close process (lambda () (funcall on-close process))))
      process)))

(defun porter--event-line (field value)
  "The line that gives FIELD the VALUE, which must not contain a newline."
  (let ((value (format "%s" value)))
    (when (string-match-p "[\r\n\0]" value)
      (signal 'porter-error (list "Not in one line" field value)))
    (concat field ": " value "\n")))

(cl-defun porter-event-send (process data &key event id retry)
  "Send an event with DATA, a string of any lines, to PROCESS, an event stream.
EVENT is its name; the client takes it for \"message\" without one.  ID is what
the client says after it has connected again, see
`porter-request-last-event-id'.  RETRY is the milliseconds to wait before that.
DATA nil sends only the others.

Return t, or nil when the stream is closed."
  (porter-send process
               (concat (and event (porter--event-line "event" event))
                       (and id (porter--event-line "id" id))
                       (and retry (format "retry: %d\n" retry))
                       (and data
                            (mapconcat (lambda (line) (concat "data: " line "\n"))
                                       (split-string data "\r\n\\|[\r\n]") ""))
                       "\n")))

(defun porter-event-close (process)
  "End PROCESS, an event stream.  Browsers connect again after a while.
To keep them from it, answer their next request with status 204."
  (let* ((id (porter--id process))
         (functions (gethash id porter--close-functions)))
    (prog1 (porter-finish process)
      (mapc #'funcall (nreverse functions)))))

(defun porter-request-last-event-id (request)
  "The id of the last event that the client of REQUEST got, or nil."
  (porter--mod-header (porter--id request) "last-event-id"))

(provide 'porter-event-stream)
;;; porter-event-stream.el ends here
