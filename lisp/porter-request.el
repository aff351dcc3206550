;;; porter-request.el --- Read a request  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A request object is a few words: what the client sent stays in C until
;; somebody looks at it.  The slots `headers' and `body' are unbound until
;; then, and keep what they got.
;;
;; A request can be read while its handler runs, and as long as its answer is
;; not finished.  Later the functions here return nil for what was not looked
;; at before.

;;; Code:

(require 'cl-lib)
(require 'eieio)
(require 'porter-module)

(porter-module--declare)

(cl-defstruct (porter-process
               (:constructor porter--process-make (id))
               (:copier nil))
  "The handle of one answer: what a handler sends to."
  (id nil :read-only t :documentation "The request's number in C."))

(defclass porter-request ()
  ((process :documentation "What to answer to, a `porter-process'.")
   (headers :documentation "Alist: (METHOD . PATH), parameters, header lines.")
   (body :documentation "The body's bytes, a unibyte string.")
   (context :initform nil :documentation "For the handler's own use.")
   (parameters :initform nil
               :documentation "Alist of the route's named parameters."))
  :documentation "A request, as a handler gets it.")

(defconst porter--request-prototype (make-instance 'porter-request)
  "What new requests are copies of.
`make-instance' takes longer than all else Porter does for a request.")

(defun porter--request-slot-index (slot)
  "The place of SLOT in a request, for `aref'."
  (let ((request (clone porter--request-prototype))
        (index 0))
    (setf (slot-value request slot) 'here)
    (while (not (eq (aref request index) 'here))
      (setq index (1+ index)))
    index))

;; Slots by index: `slot-value' takes half a microsecond, and these are looked
;; at for every request.
(defconst porter--request-process-index (porter--request-slot-index 'process))
(defconst porter--request-headers-index (porter--request-slot-index 'headers))
(defconst porter--request-body-index (porter--request-slot-index 'body))
(defconst porter--request-parameters-index
  (porter--request-slot-index 'parameters))

(defconst porter--headers-look 64
  "After so many requests it is looked whether handlers still want `headers'.")

(defvar porter--headers-wanted 0
  "So many of the next requests get their slot `headers' at once.
A handler that looks at it will do so again, and an unbound slot costs more
than what is in it.")

(defsubst porter--request-make (process)
  "A request for PROCESS."
  (let ((request (copy-sequence porter--request-prototype)))
    (aset request porter--request-process-index process)
    (unless (eql 0 porter--headers-wanted)
      (setq porter--headers-wanted (1- porter--headers-wanted))
      (let ((headers (porter--mod-alist (porter-process-id process) t)))
        (when headers
          (aset request porter--request-headers-index headers))))
    request))

(defsubst porter--request-id (request)
  "The id of REQUEST, which is known to be a `porter-request'."
  (porter-process-id (aref request porter--request-process-index)))

(defsubst porter--request-line (request)
  "(METHOD . PATH) of REQUEST if that is at hand already, else nil."
  (car-safe (aref request porter--request-headers-index)))

(defun porter--id-of-other (object)
  "The id of OBJECT, a `porter-request' or what includes a `porter-process'.
Signal `wrong-type-argument' for anything else."
  (cond ((porter-process-p object) (porter-process-id object))
        ((or (and (eq (type-of object) (type-of porter--request-prototype))
                  (eq (aref object 0) (aref porter--request-prototype 0)))
             (cl-typep object 'porter-request))
         (porter--request-id object))
        (t (signal 'wrong-type-argument (list 'porter-process-p object)))))

(defsubst porter--id (object)
  "The id of OBJECT, a `porter-process' or a `porter-request'.
Signal `wrong-type-argument' for anything else."
  ;; Inline, as far as handlers call it: `porter-send' and its likes.
  (if (eq (type-of object) 'porter-process)
      (aref object 1)
    (porter--id-of-other object)))

(cl-defmethod slot-unbound ((request porter-request) _class slot _function)
  "Fetch the value of SLOT of REQUEST, and keep it there."
  (pcase slot
    ('headers (setq porter--headers-wanted porter--headers-look)
              (aset request porter--request-headers-index
                    (porter--mod-alist (porter--request-id request) nil)))
    ('body (aset request porter--request-body-index
                 (or (porter--mod-body (porter--request-id request)) "")))
    (_ (cl-call-next-method))))

(defun porter-request-method (request)
  "The method of REQUEST, a keyword such as `:GET'."
  (porter--mod-method (porter--id request)))

(defun porter-request-path (request)
  "The path of REQUEST, percent-decoded once; \"*\" for OPTIONS of the server."
  (porter--mod-path (porter--id request)))

(defun porter-request-target (request)
  "The target of REQUEST as the client sent it."
  (porter--mod-target (porter--id request)))

(defun porter-request-version (request)
  "The HTTP version of REQUEST, \"1.1\" or \"1.0\"."
  (porter--mod-version (porter--id request)))

(defun porter-request-query (request)
  "The parameters in the query of REQUEST, an alist of strings in order."
  (porter--mod-parameters (porter--id request) nil))

(defun porter-request-form (request)
  "The parameters in the form that is REQUEST's body, an alist of strings.
The form may be urlencoded or multipart; see `porter-request-files' for the
files in the latter."
  (porter--mod-parameters (porter--id request) t))

(defun porter-request-param (request name &optional default)
  "The first parameter NAME of REQUEST, of its query, then of a form.
A file in a multipart form is no parameter, see `porter-request-files'.
Return DEFAULT when there is none."
  (or (porter--mod-parameter (porter--id request) name) default))

(defun porter-request-header (request name)
  "The value of the first header line NAME of REQUEST, or nil.
NAME is a string in any case, or a keyword such as `:HOST'."
  (porter--mod-header (porter--id request)
                      (if (symbolp name) (symbol-name name) name)))

(defun porter-request-headers (request)
  "All header lines of REQUEST in order, an alist of strings."
  (porter--mod-headers (porter--id request) nil))

(defun porter-request-trailers (request)
  "The trailer lines behind a chunked body of REQUEST, an alist of strings."
  (porter--mod-headers (porter--id request) t))

(defun porter-request-body (request)
  "The body of REQUEST, a unibyte string; \"\" when it has none.
A large body is read from its file, see `porter-request-body-file'.  Of a
large multipart form only the parts are kept, and this is \"\"."
  (slot-value request 'body))

(defun porter-request-body-file (request)
  "The name of the temporary file with the body of REQUEST, or nil.
Bodies from `porter-spool-threshold' on are in a file; smaller ones, and
multipart forms, are not.  The file is deleted when the handler has returned
and the answer is finished, unless it was renamed or `porter-request-keep-file'
was called."
  (porter--mod-body-file (porter--id request)))

(defvar porter--body-functions (make-hash-table)
  "By request number: a `porter--body-waiting' for each body that comes.")

(cl-defstruct (porter--body-waiting
               (:constructor porter--body-waiting-make (function))
               (:copier nil))
  "Who gets a body as it comes."
  (function nil :documentation "Called with each piece.")
  (running nil :documentation "Non-nil while it is called.")
  (pieces nil :documentation "What has come meanwhile."))

(defun porter-request-on-body (request function)
  "Call FUNCTION with the body of REQUEST, piece by piece as it comes.
Each piece is a unibyte string; nil follows the last one.  Return `:keep-alive',
for the handler to return: FUNCTION answers, at the latest when called with nil,
and what it returns then is as from a handler.

The pieces come while the client sends them if the path of REQUEST begins with
one of its server's `:stream-bodies', and the client waits when FUNCTION is
slower than it.  Otherwise the body is there already, and FUNCTION gets it
before this returns.  If the client leaves, nothing more comes, see
`porter-on-close'.  Once the answer is finished the rest is not looked at."
  (let ((id (porter--id request)))
    (if (porter--mod-body-streams id)
        (progn (puthash id (porter--body-waiting-make function)
                        porter--body-functions)
               :keep-alive)
      (let ((file (porter-request-body-file request))
            (at 0)
            piece)
        (if (null file)
            (unless (equal "" (porter-request-body request))
              (funcall function (porter-request-body request)))
          (while (not (equal "" (setq piece (porter--file-piece file at 65536))))
            (setq at (+ at (length piece)))
            (funcall function piece)))
        (funcall function nil)))))

(defun porter--file-piece (file from len)
  "LEN bytes of FILE from FROM on, or fewer at its end."
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (insert-file-contents-literally file nil from (+ from len))
    (buffer-string)))

(defun porter-request-files (request)
  "The files in the multipart form that is REQUEST's body, in order.
Each is (NAME (content . BYTES) (filename . STRING) (content-type . STRING)
\(size . N)), with (file . FILE) in the place of the content when it is large:
FILE is a temporary file, deleted like that of `porter-request-body-file'.
The file name is as the client sent it, do not trust it.  It is \"\" when the
user chose no file."
  (porter--mod-parts (porter--id request) t))

(defun porter-request-parts (request)
  "All parts of the multipart form that is REQUEST's body, in order.
Each is as from `porter-request-files', also those that are no files: their
file name is nil.  So this tells what type the client said a parameter has."
  (porter--mod-parts (porter--id request) nil))

(defun porter-request-keep-file (request file)
  "Do not delete FILE, a temporary file of REQUEST; return FILE.
FILE is what `porter-request-body-file' or `porter-request-files' say.  It is
yours from now on.  Return nil when it is no file of REQUEST."
  (and (porter--mod-keep-file (porter--id request) file) file))

(defun porter--header-parameter (value name)
  "The parameter NAME of VALUE, a header value such as \"text/html; a=b\"."
  (let ((case-fold-search t))
    (when (and value
               (string-match
                (concat ";[ \t]*" (regexp-quote name)
                        "=\\(?:\"\\(\\(?:[^\"\\]\\|\\\\.\\)*\\)\"\\|\\([^; \t]*\\)\\)")
                value))
      (if (match-beginning 1)
          (replace-regexp-in-string "\\\\\\(.\\)" "\\1" (match-string 1 value))
        (match-string 2 value)))))

(defun porter-request-text (request)
  "The body of REQUEST, decoded.
By the charset that its Content-Type names, or else as UTF-8."
  (let* ((charset (porter--header-parameter
                   (porter-request-header request "content-type") "charset"))
         (coding (and charset (intern-soft (downcase charset)))))
    (decode-coding-string (porter-request-body request)
                          (if (and coding (coding-system-p coding))
                              coding
                            'utf-8))))

(defvar json-array-type)
(defvar json-false)
(declare-function json-parse-string "ext:json.c" (string &rest args))
(declare-function json-read-from-string "json" (string))

(defun porter-request-json (request)
  "The body of REQUEST, read as JSON.
Objects are alists with symbols as keys, arrays are lists, null and false are
nil and `:false'.  Signal a JSON error when it is none."
  (let ((text (decode-coding-string (porter-request-body request) 'utf-8)))
    (if (fboundp 'json-parse-string)
        (json-parse-string text :object-type 'alist :array-type 'list
                           :null-object nil :false-object :false)
      (require 'json)
      (let ((json-array-type 'list) (json-false :false))
        (json-read-from-string text)))))

(defun porter-request-cookies (request)
  "The cookies of REQUEST, an alist of strings in the order they came."
  (let (cookies)
    (dolist (header (porter-request-headers request))
      (when (eq t (compare-strings (car header) nil nil "cookie" nil nil t))
        (dolist (pair (split-string (cdr header) ";" t "[ \t]+"))
          ;; Quotes are taken off when there are two.
          (when (string-match (concat "\\`\\([^=]+?\\)[ \t]*=[ \t]*"
                                      "\\(?:\"\\(.*\\)\"\\|\\(.*\\)\\)\\'")
                              pair)
            (push (cons (match-string 1 pair)
                        (or (match-string 2 pair) (match-string 3 pair)))
                  cookies)))))
    (nreverse cookies)))

(defun porter-request-cookie (request name)
  "The value of the first cookie NAME of REQUEST, or nil."
  (cdr (assoc name (porter-request-cookies request))))

(defvar porter--trusted-proxies (make-vector 256 nil)
  "By server number: nil, or (HEADER . NETWORKS) of the proxies to believe.")

(defun porter--forwarded-for (request header)
  "The addresses that proxies say REQUEST came from, the nearest first.
HEADER is the field that they say it in, `forwarded' (RFC 7239) or
`x-forwarded-for'."
  (let (addresses)
    (dolist (field (porter-request-headers request))
      (when (eq t (compare-strings (car field) nil nil
                                   (symbol-name header) nil nil t))
        ;; The quoted strings here hold addresses, and these no commas.
        (dolist (hop (split-string (cdr field) "," t "[ \t]+"))
          (push (if (eq header 'forwarded)
                    (porter--header-parameter (concat ";" hop) "for")
                  hop)
                addresses))))
    (mapcar (lambda (address)
              (cond ((null address) "unknown")
                    ((string-match "\\`\\[\\([^]]*\\)\\]\\(?::[0-9]*\\)?\\'" address)
                     (match-string 1 address))
                    ((string-match "\\`\\([0-9.]+\\):[0-9]+\\'" address)
                     (match-string 1 address))
                    (t address)))
            addresses)))

(defun porter-request-remote (request)
  "The address of REQUEST's client, a string.
Nil for a client on a Unix-domain socket.  If the connection comes from one of
the server's `:trusted-proxies', it is the nearest address that these say the
request came from and that is not one of them."
  (let* ((id (porter--id request))
         (address (car-safe (porter--mod-remote id)))
         (trust (aref porter--trusted-proxies (logand id 255))))
    (when trust
      (let ((hops (porter--forwarded-for request (car trust)))
            (trusted (lambda (address)
                       (cl-some (lambda (network)
                                  (if (equal network "unix")
                                      (null address)
                                    (and address
                                         (porter--mod-network-has network address))))
                                (cdr trust)))))
        (while (and hops (funcall trusted address))
          (setq address (pop hops)))))
    address))

(defun porter-request-route-param (request name)
  "The value of parameter NAME in the route that matched REQUEST, or nil."
  (cdr (assoc name (aref request porter--request-parameters-index))))

(provide 'porter-request)
;;; porter-request.el ends here
