;;; porter-response.el --- Answer a request  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Every function takes the `process' slot of a request.  What a handler says
;; is gathered in C; when it returns, the answer leaves in one write, with its
;; length.  An answer that grows later leaves in pieces.
;;
;; An answer to a client that has gone is dropped quietly.

;;; Code:

(require 'porter-request)

(porter-module--declare)

(defvar porter--running nil
  "The id of the request whose handler runs, or nil.")

(defvar porter--close-functions (make-hash-table)
  "The functions of `porter-on-close', a list by the id of the request.")

(defvar porter--flush-ids nil
  "Answers that grow outside their handler, to be flushed when Emacs waits.")

(defun porter-response-header (process code &rest headers)
  "Begin the answer to PROCESS with status CODE and HEADERS.
Each of HEADERS is a cons (NAME . VALUE) of strings; VALUE may be a number.
Date, Content-Length, Transfer-Encoding and Connection are Porter's to say;
\(\"Connection\" . \"close\") is heard as a wish.

Signal `porter-invalid-status' or `porter-invalid-header' with what is wrong,
and `porter-error' when the answer has a status already.  Return nil when it
is finished."
  (porter--mod-head (porter--id process) code headers))

(defun porter--flush-waiting ()
  "Flush the answers of `porter--flush-ids'."
  (let ((ids porter--flush-ids))
    (setq porter--flush-ids nil)
    (mapc #'porter--mod-flush ids)))

(defun porter-send (process string)
  "Send STRING as a part of the body of the answer to PROCESS.
A multibyte STRING goes out as UTF-8, a unibyte one as it is.  Return t, or
nil when the client has gone or the answer is finished."
  (let* ((id (porter--id process))
         (state (porter--mod-send id string)))
    (when (and (eq state 'open) (not (eq id porter--running)))
      ;; Sent from a timer or the like.  If the answer is finished before
      ;; Emacs waits again it has a length, else it goes out in pieces.
      (unless porter--flush-ids
        (run-at-time 0 nil #'porter--flush-waiting))
      (cl-pushnew id porter--flush-ids))
    (and state t)))

(defun porter-flush (process)
  "Send what there is of the answer to PROCESS now; more may follow.
From then on every `porter-send' leaves at once."
  (porter--mod-flush (porter--id process)))

(defun porter--forget-close-functions (id)
  "Answer ID is finished: its client may go."
  (unless (eql 0 (hash-table-count porter--close-functions))
    (remhash id porter--close-functions)))

(defun porter-finish (process)
  "Complete the answer to PROCESS.
Needed only when its handler returned `:keep-alive'; done for all others when
they return.  Return nil when it was finished before, or has no status."
  (let ((id (porter--id process)))
    (porter--forget-close-functions id)
    (porter--mod-finish id nil)))

(defun porter-respond (process code headers &optional body)
  "Answer PROCESS with status CODE, HEADERS, an alist, and BODY, a string.
That is the whole answer.  As `porter-response-header', `porter-send' and
`porter-finish' would, with their errors."
  (let ((id (porter--id process)))
    (porter--forget-close-functions id)
    (porter--mod-respond id code headers body)))

(defun porter--answer-plain (id code text &optional headers)
  "Answer request ID with CODE, HEADERS and TEXT, whatever was said before.
An answer that is partly out already is cut off instead.  Return what
`porter--mod-respond' returns."
  (porter--forget-close-functions id)
  (pcase (porter--mod-phase id)
    ('nil nil)
    (2 (porter--mod-abort id))
    (_ (porter--mod-forget id)
       (porter--mod-respond
        id code `(("Content-Type" . "text/plain; charset=utf-8")
                  ("X-Content-Type-Options" . "nosniff")
                  ,@headers)
        text))))

(defun porter--send-error (process code default args)
  "Answer PROCESS with CODE and DEFAULT, or ARGS as for `format'; throw."
  (porter--answer-plain (porter--id process) code
                        (concat (if args (apply #'format args) default) "\n"))
  (throw 'close-connection nil))

(defun porter-send-404 (process &rest format-args)
  "Answer PROCESS with 404 and leave the handler.
FORMAT-ARGS are those of `format', for the text."
  (porter--send-error process 404 "Not Found" format-args))

(defun porter-send-500 (process &rest format-args)
  "Answer PROCESS with 500 and leave the handler.
FORMAT-ARGS are those of `format', for the text."
  (porter--send-error process 500 "Internal Server Error" format-args))

(defun porter-redirect (process location &optional code)
  "Answer PROCESS with a redirect to LOCATION, a URL or a path.
CODE is the status, 302 by default."
  (porter-respond process (or code 302) (list (cons "Location" location))))

(defvar json-false)
(defvar json-null)
(declare-function json-serialize "ext:json.c" (object &rest args))
(declare-function json-encode "json" (object))

(defun porter-send-json (process object &optional code)
  "Answer PROCESS with OBJECT as JSON, with status CODE, 200 by default.
OBJECT is what `json-serialize' takes: alists, plists and hash tables for
objects, vectors for arrays, t, `:false' and `:null'."
  (porter-respond process (or code 200)
                  '(("Content-Type" . "application/json"))
                  (if (fboundp 'json-serialize)
                      (json-serialize object)
                    (require 'json)
                    (let ((json-false :false) (json-null :null))
                      (encode-coding-string (json-encode object) 'utf-8)))))

(defun porter-unsent-bytes (process)
  "How many bytes of the growing answer to PROCESS its client has to read yet.
What sends faster than its client reads should wait while this is large."
  (porter--mod-unsent (porter--id process)))

(defun porter-on-close (process function)
  "Call FUNCTION if the client of PROCESS is gone before its answer is finished.
FUNCTION gets no arguments and is called once; at once if the client has gone."
  (let ((id (porter--id process)))
    (if (porter--mod-live id)
        (push function (gethash id porter--close-functions))
      (funcall function))
    nil))

(provide 'porter-response)
;;; porter-response.el ends here
