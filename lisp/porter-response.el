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

(defun porter-add-header (process name value)
  "Give the answer to PROCESS the header NAME with VALUE, strings.
That may be before `porter-response-header' and its likes, by another function
than calls those, and it stays when an error is answered instead.  Return nil
when a part of the answer is out."
  (porter--mod-extra (porter--id process) name value))

(defun porter-early-hints (process &rest headers)
  "Send an interim answer 103 with HEADERS to PROCESS, before the final one.
So a browser can load what `(\"Link\" . \"</a.css>; rel=preload; as=style\")'
names while the handler still works.  Return nil, and send nothing, when a part
of the final answer is out or the client speaks HTTP/1.0."
  (porter--mod-interim (porter--id process) 103 headers))

(defun porter-trailers (process &rest headers)
  "Let HEADERS stand behind the body of the answer to PROCESS.
To be called before the answer is finished.  The client gets them when it speaks
HTTP/1.1 and no Content-Length was declared; else they are dropped.  Signal
`porter-invalid-header' for what must not be there, such as Content-Type."
  (porter--mod-trailers (porter--id process) headers))

(declare-function porter--client-gone "porter-dispatch" (id))

(defun porter--flush-growing (id)
  "Send what there is of the answer to request ID, which may grow.
To a HEAD that is all: the client waits for nothing more, and whoever goes on
sending is told that it has left."
  (when (and (porter--mod-flush id) (eq (porter--mod-method id) :HEAD))
    (porter--mod-finish id nil)
    (porter--client-gone id)))

(defun porter--flush-waiting ()
  "Flush the answers of `porter--flush-ids'."
  (let ((ids porter--flush-ids))
    (setq porter--flush-ids nil)
    (mapc #'porter--flush-growing ids)))

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

(defsubst porter--forget-close-functions (id)
  "Answer ID is finished: its client may go."
  (unless (eql 0 (hash-table-count porter--body-functions))
    (remhash id porter--body-functions))
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
  "Answer PROCESS with CODE and DEFAULT, or ARGS as for `format'.
Leave its handler, if that is what runs: a timer has no handler to leave."
  (let ((id (porter--id process)))
    (porter--answer-plain id code
                          (concat (if args (apply #'format args) default) "\n"))
    (when (eql id porter--running)
      (throw 'close-connection nil))))

(defun porter-send-404 (process &rest format-args)
  "Answer PROCESS with 404 and leave its handler.
FORMAT-ARGS are those of `format', for the text."
  (porter--send-error process 404 "Not Found" format-args))

(defun porter-send-500 (process &rest format-args)
  "Answer PROCESS with 500 and leave its handler.
FORMAT-ARGS are those of `format', for the text."
  (porter--send-error process 500 "Internal Server Error" format-args))

(defun porter--url-encode (url)
  "URL with what may not stand in a header percent-encoded as UTF-8.
Signal `porter-invalid-header' for control characters."
  (when (string-match-p "[\0-\x1f\x7f]" url)
    (signal 'porter-invalid-header (list "Control character in a URL" url)))
  (mapconcat (lambda (byte)
               (if (or (> byte 126) (memq byte '(?\s ?\" ?< ?> ?\\ ?^ ?` ?{ ?|  ?})))
                   (format "%%%02X" byte)
                 (char-to-string byte)))
             (if (multibyte-string-p url) (encode-coding-string url 'utf-8) url)
             ""))

(defun porter-redirect (process location &optional code local)
  "Answer PROCESS with a redirect to LOCATION, a URL or a path.
CODE is the status, 302 by default: 303 to make a GET of a POST, 307 or 308 to
repeat the request as it is, 301 or 308 for ever.

With LOCAL non-nil LOCATION has to be a path on this server.  Say so when it
comes from the request, as from a parameter \"next\": else anyone can make
links that begin at your server and end at another.  Signal `porter-error' when
it is something else."
  (unless (memq code '(nil 301 302 303 307 308))
    (signal 'porter-invalid-status (list "Not a redirect" code)))
  ;; Browsers take a backslash for a slash, and skip tabs and line breaks.
  (when (and local (not (string-match-p "\\`/\\(?:[^/\\\0-\x20]\\|\\'\\)" location)))
    (signal 'porter-error (list "Not a path on this server" location)))
  (porter-respond process (or code 302)
                  (list (cons "Location" (porter--url-encode location)))))

;;;; Cookies

(defun porter--cookie-attribute (name value)
  "The attribute NAME of a cookie with VALUE, a string; \"\" for nil."
  (cond ((null value) "")
        ((string-match-p "\\`[\x20-\x3a\x3c-\x7e]*\\'" value)
         (format "; %s=%s" name value))
        (t (signal 'porter-invalid-header
                   (list "Invalid attribute of a cookie" name value)))))

(defconst porter--days ["Sun" "Mon" "Tue" "Wed" "Thu" "Fri" "Sat"])
(defconst porter--months ["Jan" "Feb" "Mar" "Apr" "May" "Jun"
                          "Jul" "Aug" "Sep" "Oct" "Nov" "Dec"])

(defun porter-http-date (time)
  "TIME, a Lisp time, as HTTP writes it: \"Tue, 01 Dec 2026 00:08:16 GMT\"."
  (pcase-let ((`(,second ,minute ,hour ,day ,month ,year ,weekday)
               (decode-time time t)))
    (format "%s, %02d %s %04d %02d:%02d:%02d GMT" (aref porter--days weekday)
            day (aref porter--months (1- month)) year
            hour minute (truncate second))))

(defun porter-set-cookie (name value &rest attributes)
  "Return a header (\"Set-Cookie\" . ...) for a cookie NAME of VALUE.
It is an argument for `porter-response-header', or its car and cdr are some for
`porter-add-header'.  VALUE nil deletes the cookie.

ATTRIBUTES is a plist: `:path' (default \"/\"), `:domain', `:max-age' in
seconds, `:expires' (a Lisp time), `:secure', `:http-only' (default t: hidden
from scripts), `:same-site' (`lax' by default, `strict', `none', or nil to leave
it to the browser).

Signal `porter-invalid-header' for what browsers would refuse or misread:
blanks, quotes, commas, semicolons, backslashes and what is not ASCII in VALUE,
for which `url-hexify-string' is a remedy."
  (let* ((get (lambda (key default)
                (if (plist-member attributes key)
                    (plist-get attributes key)
                  default)))
         (path (funcall get :path "/"))
         (domain (funcall get :domain nil))
         (max-age (if value (funcall get :max-age nil) 0))
         (expires (funcall get :expires nil))
         (same-site (funcall get :same-site 'lax))
         (secure (funcall get :secure nil)))
    (cl-loop for (key) on attributes by #'cddr
             unless (memq key '(:path :domain :max-age :expires :secure
                                      :http-only :same-site))
             do (signal 'porter-invalid-header
                        (list "Unknown attribute of a cookie" key)))
    (unless (string-match-p "\\`[-!#$%&'*+.^_`|~0-9A-Za-z]+\\'" name)
      (signal 'porter-invalid-header (list "Invalid name of a cookie" name)))
    (unless (or (null value)
                (string-match-p "\\`[!#-+--:<-[^-~]*\\'"
                                (replace-regexp-in-string "]" "" value)))
      (signal 'porter-invalid-header (list "Invalid value of a cookie" value)))
    (unless (memq same-site '(nil lax strict none))
      (signal 'porter-invalid-header (list "Invalid same-site" same-site)))
    (unless (or (null max-age) (integerp max-age))
      (signal 'porter-invalid-header (list "Invalid max-age" max-age)))
    ;; Browsers drop such cookies without a word.
    (when (and (not secure)
               (or (eq same-site 'none)
                   (let ((case-fold-search t))
                     (string-match-p "\\`__\\(?:Host\\|Secure\\)-" name))))
      (signal 'porter-invalid-header (list "This cookie has to be secure" name)))
    (when (and (let ((case-fold-search t)) (string-match-p "\\`__Host-" name))
               (or domain (not (equal path "/"))))
      (signal 'porter-invalid-header
              (list "A __Host- cookie has the path \"/\" and no domain" name)))
    (cons "Set-Cookie"
          (concat name "=" (or value "")
                  (porter--cookie-attribute "Path" path)
                  (porter--cookie-attribute "Domain" domain)
                  (and max-age (format "; Max-Age=%d" max-age))
                  (and expires (concat "; Expires=" (porter-http-date expires)))
                  (and secure "; Secure")
                  (and (funcall get :http-only t) "; HttpOnly")
                  (and same-site
                       (concat "; SameSite="
                               (capitalize (symbol-name same-site))))))))

;;;; JSON

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
