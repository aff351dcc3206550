;;; porter-web-server.el --- The API of web-server, on Porter  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Packages written for web-server run on Porter when this file is loaded
;; before they ask for it:
;;
;;     (require 'porter-web-server)
;;
;; It provides the feature `web-server' and all public names of that package.
;;
;; The `process' of a request is a genuine Emacs process here: a connection on
;; a local socket, whose other end the module holds, see relay.h.  What a handler
;; writes there, status line and all, is read when the handler has returned; so
;; Porter knows the length, and the client's connection can stay open.  A handler that returns
;; `:keep-alive' owns the stream from then on: what it writes goes to the
;; client at once, what the client sends comes to the process's filter, and
;; either side ends it by closing.
;;
;; Where web-server went wrong on what a client sent, this does not: bodies
;; come whole, methods beyond the six reach handlers, parameters are split
;; before they are decoded, messages of a WebSocket are put together again.

;;; Code:

;; Two packages under the same names would be neither.
(when (and (featurep 'web-server) (not (get 'ws-start 'porter-web-server)))
  (error "The package web-server is loaded already; load porter-web-server \
before it, in a fresh Emacs"))

(require 'cl-lib)
(require 'eieio)
(require 'url-util)
(require 'porter)
(require 'porter-websocket)

(porter-module--declare)

(declare-function mailcap-extension-to-mime "mailcap" (extn))

(defgroup porter-web-server nil
  "Packages written for web-server, running on Porter."
  :group 'porter)

(defcustom porter-web-server-raw-text nil
  "Non-nil means that handlers get parameters and messages as bytes.
That is what web-server gave them.  Otherwise those that are well-formed UTF-8
are decoded; to decode them once more does no harm."
  :type 'boolean
  :package-version '(porter . "1.0"))

(defcustom porter-web-server-inhibit-quit t
  "Non-nil means that handlers run with `inhibit-quit' non-nil.
That is what they know from web-server, where they ran in a process filter.
With nil, \\[keyboard-quit] ends a handler, and its client gets 503."
  :type 'boolean
  :package-version '(porter . "1.0"))

(defcustom porter-web-server-log-size 1000000
  "The size, in characters, from which on a log buffer loses its older half."
  :type 'natnum
  :package-version '(porter . "1.0"))

;;;; The names that users know

(defvar ws-servers nil
  "The servers that were started, newest first.")

(defvar ws-log-time-format "%Y.%m.%d.%H.%M.%S.%N"
  "The format of times in log buffers, see `format-time-string'.")

(defvar ws-guid "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
  "What RFC 6455 section 1.3 appends to the key of a handshake.")

(defvar ws-http-common-methods '(GET HEAD POST PUT DELETE TRACE)
  "The methods that web-server knows; Porter knows more.")

(defvar ws-http-method-rx
  (format "^\\(%s\\) \\([^[:space:]]+\\) \\([^[:space:]]+\\)$"
          (mapconcat #'symbol-name ws-http-common-methods "\\|"))
  "A regexp for request lines with one of `ws-http-common-methods'.")

(defvar ws-compress-cmd "compress"
  "The command for the encoding \"compress\".")

(defvar ws-deflate-cmd "zlib-flate -compress"
  "The command for the encoding \"deflate\".")

(defvar ws-gzip-cmd "gzip"
  "The command for the encoding \"gzip\".")

(defvar ws-status-codes
  '((100 . "Continue") (101 . "Switching Protocols") (102 . "Processing")
    (103 . "Early Hints")
    (200 . "OK") (201 . "Created") (202 . "Accepted")
    (203 . "Non-Authoritative Information") (204 . "No Content")
    (205 . "Reset Content") (206 . "Partial Content") (207 . "Multi-Status")
    (208 . "Already Reported") (226 . "IM Used")
    (300 . "Multiple Choices") (301 . "Moved Permanently") (302 . "Found")
    (303 . "See Other") (304 . "Not Modified") (305 . "Use Proxy")
    (307 . "Temporary Redirect") (308 . "Permanent Redirect")
    (400 . "Bad Request") (401 . "Unauthorized") (402 . "Payment Required")
    (403 . "Forbidden") (404 . "Not Found") (405 . "Method Not Allowed")
    (406 . "Not Acceptable") (407 . "Proxy Authentication Required")
    (408 . "Request Timeout") (409 . "Conflict") (410 . "Gone")
    (411 . "Length Required") (412 . "Precondition Failed")
    (413 . "Content Too Large") (414 . "URI Too Long")
    (415 . "Unsupported Media Type") (416 . "Range Not Satisfiable")
    (417 . "Expectation Failed") (418 . "I'm a teapot")
    (421 . "Misdirected Request") (422 . "Unprocessable Content")
    (423 . "Locked") (424 . "Failed Dependency") (425 . "Too Early")
    (426 . "Upgrade Required") (428 . "Precondition Required")
    (429 . "Too Many Requests") (431 . "Request Header Fields Too Large")
    (451 . "Unavailable For Legal Reasons")
    (500 . "Internal Server Error") (501 . "Not Implemented")
    (502 . "Bad Gateway") (503 . "Service Unavailable")
    (504 . "Gateway Timeout") (505 . "HTTP Version Not Supported")
    (506 . "Variant Also Negotiates") (507 . "Insufficient Storage")
    (508 . "Loop Detected") (510 . "Not Extended")
    (511 . "Network Authentication Required"))
  "Alist of status codes and their reason phrases.")

;;;; Classes

(defclass ws-server ()
  ((handlers :initarg :handlers :accessor ws-handlers :initform nil)
   (process :initarg :process :accessor ws-process :initform nil)
   (port :initarg :port :accessor ws-port :initform nil)
   (requests :initarg :requests :accessor ws-requests :initform nil)
   (porter :initform nil :documentation "The `porter-server' behind it.")
   (idle :initform nil
         :documentation "Relays that wait for a request, or `never'."))
  :documentation "A server.")

;; The accessors of a request are written out below: those that `:accessor'
;; makes return nil for a slot that is filled when somebody looks.
(defclass ws-request ()
  ((process :initarg :process :initform nil)
   (pending :initarg :pending :accessor ws-pending :initform "")
   (context :initarg :context :initform nil)
   (boundary :initarg :boundary :accessor ws-boundary :initform nil)
   (index :initarg :index :accessor ws-index :initform 0)
   (active :initarg :active :accessor ws-active :initform nil)
   (headers :initarg :headers :initform (list nil))
   (body :initarg :body :initform "")
   (porter :initform nil :documentation "The `porter-request' behind it.")
   (server :initform nil :documentation "Its `ws-server'."))
  :documentation "A request.")

(defclass ws-message ()
  ((process :initarg :process :accessor ws-process :initform "")
   (pending :initarg :pending :accessor ws-pending :initform "")
   (active :initarg :active :accessor ws-active :initform nil)
   (new :initarg :new :accessor ws-new :initform nil)
   (data :initarg :data :accessor ws-data :initform "")
   (handler :initarg :handler :accessor ws-handler :initform ""))
  :documentation "The messages of one WebSocket.
PENDING is what was received and not read yet, a list of strings, the last
first; ACTIVE how many bytes it must hold before another look is worth it.
NEW is the opcode of a message whose fragments so far are DATA.")

(defmacro porter-web-server--define-accessors (class &rest slots)
  "Define accessors of CLASS for SLOTS that fill themselves."
  `(progn
     ,@(mapcan
        (lambda (slot)
          (let ((name (intern (format "ws-%s" slot))))
            `((cl-defmethod ,name ((object ,class))
                ,(format "The slot `%s' of OBJECT." slot)
                (slot-value object ',slot))
              (cl-defmethod (setf ,name) (value (object ,class))
                ,(format "Set the slot `%s' of OBJECT to VALUE." slot)
                (setf (slot-value object ',slot) value)))))
        slots)))

(porter-web-server--define-accessors ws-request process context headers body)

(defconst porter-web-server--prototype
  (let ((request (make-instance 'ws-request)))
    (dolist (slot '(process context headers body))
      (slot-makeunbound request slot))
    request)
  "What the requests of clients are copies of.")

(defun porter-web-server--index (slot &optional object)
  "The place of SLOT in OBJECT, by default a `ws-request', for `aref'."
  (let ((object (copy-sequence (or object porter-web-server--prototype)))
        (index 0))
    (setf (slot-value object slot) 'here)
    (while (not (eq (aref object index) 'here))
      (setq index (1+ index)))
    index))

(defconst porter-web-server--requests-index
  (porter-web-server--index 'requests (make-instance 'ws-server)))
(defconst porter-web-server--idle-index
  (porter-web-server--index 'idle (make-instance 'ws-server)))
(defconst porter-web-server--handlers-index
  (porter-web-server--index 'handlers (make-instance 'ws-server)))
(defconst porter-web-server--listener-index
  (porter-web-server--index 'process (make-instance 'ws-server)))
(defconst porter-web-server--process-index (porter-web-server--index 'process))
(defconst porter-web-server--context-index (porter-web-server--index 'context))
(defconst porter-web-server--headers-index (porter-web-server--index 'headers))
(defconst porter-web-server--body-index (porter-web-server--index 'body))
(defconst porter-web-server--porter-index (porter-web-server--index 'porter))
(defconst porter-web-server--server-index (porter-web-server--index 'server))

(defsubst porter-web-server--request-process (request)
  "The process of REQUEST if it has one already, else nil."
  (let ((process (aref request porter-web-server--process-index)))
    (and (processp process) process)))

(defsubst porter-web-server--id (request)
  "The number in C of REQUEST, a client's."
  (porter--request-id (aref request porter-web-server--porter-index)))

(defconst porter-web-server--wanted-look 64
  "After so many requests it is looked whether handlers still want a slot.")

(defvar porter-web-server--process-wanted 0
  "So many of the next requests get their slot `process' at once.
A handler that looks at it will do so again, and an unbound slot costs more
than what is in it.")

(defvar porter-web-server--headers-wanted 0
  "So many of the next requests get their slot `headers' at once.")

(cl-defmethod slot-unbound ((request ws-request) _class slot _function)
  "Fill SLOT of REQUEST, as it is wanted now."
  (if (null (aref request porter-web-server--porter-index))
      (cl-call-next-method)
    ;; Handlers look at slots between a match and its groups.
    (save-match-data
      (pcase slot
        ('process (setq porter-web-server--process-wanted
                        porter-web-server--wanted-look)
                  (porter-web-server--connect request))
        ('headers (setq porter-web-server--headers-wanted
                        porter-web-server--wanted-look)
                  (aset request porter-web-server--headers-index
                        (porter-web-server--headers request)))
        ('body (aset request porter-web-server--body-index
                     (porter-request-body
                      (aref request porter-web-server--porter-index))))
        ('context (aset request porter-web-server--context-index
                        (porter-web-server--context
                         (porter-request-header
                          (aref request porter-web-server--porter-index)
                          "content-type"))))
        (_ (cl-call-next-method))))))

;;;; Reading requests

(defun ws-trim (string)
  "STRING without the line ends around it."
  (let ((start 0) (end (length string)))
    (while (and (< start end) (memq (aref string start) '(?\r ?\n)))
      (setq start (1+ start)))
    (while (and (< start end) (memq (aref string (1- end)) '(?\r ?\n)))
      (setq end (1- end)))
    (substring string start end)))

(defun porter-web-server--text (bytes)
  "BYTES as text, unless `porter-web-server-raw-text' or they are no UTF-8."
  (let ((bytes (if (multibyte-string-p bytes)
                   (encode-coding-string bytes 'utf-8)
                 bytes)))
    (if (or porter-web-server-raw-text
            (not (string-match-p "[^[:ascii:]]" bytes)))
        bytes
      (let ((text (decode-coding-string bytes 'utf-8 t)))
        ;; Bytes that are no UTF-8 are decoded to characters that say so.
        (if (cl-find-if (lambda (char) (> char #x10ffff)) text) bytes text)))))

(defun porter-web-server--unhex (string)
  "The bytes of STRING, which is urlencoded."
  (url-unhex-string (subst-char-in-string ?+ ?\s string) t))

(defun ws-parse-query-string (string)
  "The parameters in STRING, an alist of strings, the last one first.
Parameters are split at \"&\", names from values at the first \"=\", and then
decoded; a parameter without a value has an empty one."
  (let (parameters)
    (dolist (pair (split-string string "&" t))
      (let ((equal-sign (string-match "=" pair)))
        (push (cons (porter-web-server--text
                     (porter-web-server--unhex (substring pair 0 equal-sign)))
                    (if equal-sign
                        (porter-web-server--text
                         (porter-web-server--unhex
                          (substring pair (1+ equal-sign))))
                      ""))
              parameters)))
    parameters))

(defun porter-web-server--target (target)
  "The path of TARGET as sent, and its parameters: (PATH . PARAMETERS)."
  (let ((mark (string-match "\\?" target)))
    (cons (substring target 0 mark)
          (and mark (ws-parse-query-string (substring target (1+ mark)))))))

(defun porter-web-server--authorization (value)
  "What the header Authorization with VALUE is in an alist of headers.
For Basic the value is (:BASIC USER . PASSWORD), else the string."
  (let ((case-fold-search t))
    (or (when (string-match "\\`basic[ \t]+\\([^ \t]+\\)[ \t]*\\'" value)
          (let* ((encoded (match-string 1 value))
                 (decoded (ignore-errors (base64-decode-string encoded)))
                 (colon (and decoded (string-match ":" decoded))))
            (when colon
              (cons :BASIC (cons (substring decoded 0 colon)
                                 (substring decoded (1+ colon)))))))
        value)))

(defun porter-web-server--context (type)
  "The media type in TYPE, a Content-Type or nil, as a symbol."
  (when (and type (string-match "\\`[ \t]*\\([^ \t;]+\\)" type))
    (intern (downcase (match-string 1 type)))))

(defun ws-parse (proc string)
  "Parse STRING, the first line or a header of a request, into an alist.
PROC is answered 500 when STRING makes no sense."
  (let ((case-fold-search nil))
    (cond
     ((string-match "\\`\\([A-Z][A-Z-]*\\) \\([^ \t]+\\) HTTP/[0-9.]+\\'" string)
      (let* ((method (intern (concat ":" (match-string 1 string))))
             (target (porter-web-server--target (match-string 2 string))))
        (cons (cons method (car target)) (cdr target))))
     ((string-match "\\`\\([^][ \t\r\n:(){}\"/?=@,;<>\\]+\\):[ \t]*" string)
      (let* ((name (intern (concat ":" (upcase (match-string 1 string)))))
             (value (substring string (match-end 0))))
        (list (cons name (if (eq name :AUTHORIZATION)
                             (porter-web-server--authorization value)
                           value)))))
     (t (ws-error proc "bad header: %S" string)))))

(defun porter-web-server--split-head (string start)
  "The lines of the head in STRING from START on, and where the body begins.
Return (LINES . POSITION), or nil when the head is not complete."
  (let ((end (string-match "\r\n\r\n" string start)))
    (when end
      (cons (split-string (substring string start end) "\r\n")
            (+ end 4)))))

(defun ws-parse-multipart/form (_proc string)
  "STRING, one part of a form, as (NAME (content . BYTES) . FIELDS).
FIELDS begin with what Content-Disposition says, such as
\(filename . \"...\"); the part's other headers follow."
  (let ((start (if (string-prefix-p "\r\n" string) 2 0))
        name disposition fields content)
    (pcase (if (string-prefix-p "\r\n" (substring string start))
               (cons nil (+ start 2))
             (porter-web-server--split-head string start))
      (`(,lines . ,position)
       (setq content (substring string position))
       (dolist (line lines)
         (pcase (car (ignore-errors (ws-parse nil line)))
           (`(:CONTENT-DISPOSITION . ,value)
            (setq disposition (porter-web-server--disposition value)))
           ('nil nil)
           (field (push field fields))))))
    (setq name (cdr (assq 'name disposition)))
    (when name
      (cons name (cons (cons 'content content)
                       (append disposition (nreverse fields)))))))

(defun porter-web-server--disposition (value)
  "The parameters of VALUE, a Content-Disposition, as an alist of symbols.
The last one comes first."
  (let ((at 0) parameters)
    (while (string-match
            "; *\\([^ =;]+\\)=\\(?:\"\\(\\(?:[^\"\\]\\|\\\\.\\)*\\)\"\\|\\([^ ;]*\\)\\)"
            value at)
      (setq at (match-end 0))
      (push (cons (intern (downcase (match-string 1 value)))
                  (porter-web-server--text
                   (if (match-beginning 2)
                       (replace-regexp-in-string "\\\\\\([\"\\]\\)" "\\1"
                                                 (match-string 2 value))
                     (match-string 3 value))))
            parameters))
    parameters))

(defun porter-web-server--boundary (type)
  "The boundary that TYPE, a Content-Type, names, or nil."
  (porter--header-parameter type "boundary"))

(defun porter-web-server--parts (body boundary)
  "The parts of BODY, a form with BOUNDARY; and whether its end was seen.
Return (COMPLETE . PARTS), each part as from `ws-parse-multipart/form'."
  (let* ((delimiter (concat "--" boundary))
         (rx (concat "\\(?:\\`\\|\r\n\\)" (regexp-quote delimiter)
                     "\\(--\\)?[ \t]*\\(?:\r\n\\|\\'\\)"))
         (case-fold-search nil)
         (start nil) (at 0) (complete nil) parts)
    (while (and (not complete) (string-match rx body at))
      (let ((from (match-beginning 0))
            (end-mark (match-beginning 1)))
        ;; The line end behind a delimiter is the next one's, too.
        (setq at (if (eq (match-end 0) (length body))
                     (match-end 0)
                   (- (match-end 0) 2)))
        (when (<= at from) (setq at (1+ from)))
        (let ((next (match-end 0)))
          (when start
            (let ((part (ws-parse-multipart/form
                         nil (substring body start (max start from)))))
              (when part (push part parts))))
          (setq start next)
          (when end-mark (setq complete t)))))
    (cons complete (nreverse parts))))

(defun ws-parse-request (request)
  "Read REQUEST from its slot `pending', as much as there is.
Return non-nil when it is complete.  Fill the slots `headers', `body',
`context', `boundary' and `index'.

This is for requests that a program has made; what clients send is read by
Porter's module.  It is lenient: a body ends with what there is, whatever
Content-Length says."
  (let* ((pending (ws-pending request))
         (head (porter-web-server--split-head pending 0)))
    (when head
      (let ((headers (list nil)) type body boundary)
        (dolist (line (car head))
          (setq headers (nconc headers
                               (ws-parse (porter-web-server--request-process request)
                                         line))))
        (setq type (cdr (assq :CONTENT-TYPE headers)))
        (setq body (substring pending (cdr head)))
        (setf (ws-context request) (porter-web-server--context type))
        (setf (ws-index request) (cdr head))
        (pcase (ws-context request)
          ('multipart/form-data
           (setq boundary (porter-web-server--boundary type))
           (setf (ws-boundary request) boundary)
           (let ((parts (and boundary (porter-web-server--parts body boundary))))
             ;; More may come.
             (if (not (car parts))
                 (setq body nil)
               (setq headers (nconc headers (cdr parts))))))
          ('application/x-www-form-urlencoded
           (setq headers (nconc headers (ws-parse-query-string (ws-trim body))))))
        (setf (ws-headers request) headers)
        (when body
          (setf (ws-body request) body)
          t)))))

(defun porter-web-server--headers (request)
  "The slot `headers' of REQUEST, a client's.
A nil, (METHOD . PATH) with the path as sent, the query's parameters, the
headers, then what a form has."
  (or (porter--mod-ws-alist (porter-web-server--id request)
                            porter-web-server-raw-text)
      (porter-web-server--headers-and-form request)))

(defun porter-web-server--headers-and-form (request)
  "As `porter-web-server--headers', for a REQUEST with more than headers."
  (let* ((porter (aref request porter-web-server--porter-index))
         (id (porter--request-id porter))
         (alist (porter--mod-alist id nil))
         (target (or (porter--mod-target id) "/"))
         (mark (string-match "\\?" target))
         (lines (cdr alist))
         type form)
    ;; What is between the first and the first header are parameters.
    (while (stringp (car-safe (car lines))) (setq lines (cdr lines)))
    (dolist (line lines)
      (pcase (car line)
        (:CONTENT-TYPE (setq type (cdr line)))
        (:AUTHORIZATION
         (setcdr line (porter-web-server--authorization (cdr line))))))
    (when type
      (pcase (porter-web-server--context type)
        ('application/x-www-form-urlencoded
         (setq form (ws-parse-query-string (slot-value request 'body))))
        ('multipart/form-data
         (let ((boundary (porter-web-server--boundary type)))
           (when boundary
             (setf (ws-boundary request) boundary)
             (setq form (cdr (porter-web-server--parts
                              (slot-value request 'body) boundary))))))))
    (cons nil
          (cons (cons (caar alist) (substring target 0 mark))
                (nconc (and mark (ws-parse-query-string
                                  (substring target (1+ mark))))
                       lines form)))))

;;;; Relays: the process of a request

(cl-defstruct (porter-web-server--relay
               (:constructor porter-web-server--relay-make
                             (number process server plist contact))
               (:copier nil))
  "A genuine process, whose other end the module holds.
It serves one request after the other as long as nobody can tell."
  (number nil :read-only t :documentation "Of its other end, in C.")
  (process nil :read-only t)
  (server nil :read-only t)
  (plist nil :read-only t :documentation "Of PROCESS, when nobody has changed it.")
  (contact nil :read-only t :documentation "Of PROCESS.")
  (host nil :documentation "Of the client that CONTACT tells.")
  (port nil)
  (request nil :documentation "The `ws-request' that it serves.")
  (id nil :documentation "Its number in C.")
  (input "" :documentation "Bytes that were read and not used yet.")
  (state nil :documentation "Nil: the head is due; `body', `chunks', `frames', `end'.")
  (codings nil :documentation "What `ws-send' is to do, a list of names.")
  (streaming nil :documentation "Non-nil if what comes leaves at once.")
  (over nil :documentation "Non-nil when PROCESS was deleted."))

(defconst porter-web-server--idle-max 8
  "So many processes of a server wait for the next request at most.")

(defconst porter-web-server--unsent-max 134217728
  "The unsent bytes beyond which the client of a stream is given up.")

(defvar porter-web-server--relays (make-hash-table :test 'eq :weakness 'key)
  "Relays by their processes.")

(defvar porter-web-server--kept (make-hash-table)
  "The relays of streams that handlers own, by number.")

(defvar porter-web-server--directory nil
  "The private directory of the sockets.")

(defvar porter-web-server--socket nil
  "The file name of the socket that the module listens on for relays, or nil.")

(defun porter-web-server--socket-name ()
  "The file name of a new local socket."
  (unless (and porter-web-server--directory
               (file-directory-p porter-web-server--directory))
    (setq porter-web-server--directory (make-temp-file "porter-ws-" t))
    (add-hook 'kill-emacs-hook #'porter-web-server--clean-up))
  (make-temp-name (expand-file-name "s" porter-web-server--directory)))

(defun porter-web-server--clean-up ()
  "Take the sockets for relays away."
  (when porter-web-server--socket
    (setq porter-web-server--socket nil)
    (when porter--mod-abi (porter--mod-relay-listen nil)))
  (when porter-web-server--directory
    (ignore-errors (delete-directory porter-web-server--directory t))
    (setq porter-web-server--directory nil)))

(defun porter-web-server--listen ()
  "Make sure that the module listens for relays, and return the socket's name."
  (unless (and porter-web-server--socket
               (file-exists-p porter-web-server--socket))
    (let ((name (porter-web-server--socket-name)))
      (porter--mod-relay-listen name)
      (setq porter--relay-function #'porter-web-server--relay-event)
      (setq porter-web-server--socket name)))
  porter-web-server--socket)

(defun porter-web-server--address (host port)
  "HOST and PORT as `process-contact' has them in `:remote'."
  (if (and (stringp host) (string-match-p "\\`[0-9.]+\\'" host))
      (vconcat (mapcar #'string-to-number (split-string host "\\.")) (list port))
    (vector 127 0 0 1 port)))

(defun porter-web-server--set-contact (contact host port local-port)
  "Let CONTACT, of a process, say that its client is at HOST and PORT.
LOCAL-PORT is the server's.  The plist is changed in place."
  (plist-put contact :family 'ipv4)
  (plist-put contact :service port)
  (plist-put contact :host host)
  (plist-put contact :local (porter-web-server--address "127.0.0.1" local-port))
  (when host
    (plist-put contact :remote (porter-web-server--address host port))))

(defun porter-web-server--tell-client (relay remote)
  "Let the process of RELAY say that its client is at REMOTE, (HOST . PORT)."
  (let ((host (or (car-safe remote) "127.0.0.1"))
        (port (or (cdr-safe remote) 0))
        (contact (porter-web-server--relay-contact relay)))
    (cond
     ((not (equal host (porter-web-server--relay-host relay)))
      (porter-web-server--set-contact
       contact host port
       (porter-port (slot-value (porter-web-server--relay-server relay) 'porter))))
     ((not (eql port (porter-web-server--relay-port relay)))
      (plist-put contact :service port)
      (let ((address (copy-sequence (plist-get contact :remote))))
        (aset address (1- (length address)) port)
        (plist-put contact :remote address))))
    (setf (porter-web-server--relay-host relay) host)
    (setf (porter-web-server--relay-port relay) port)))

(defun porter-web-server--relay-new (server)
  "A new relay for SERVER."
  (let* ((listener (ws-process server))
         (sentinel (process-sentinel listener))
         (process (let ((process-adaptive-read-buffering nil))
                    (make-network-process
                     :name "ws-server <client>" :family 'local
                     :service (porter-web-server--listen)
                     :filter #'ws-filter :coding 'no-conversion :noquery t
                     :plist (process-plist listener)))) ; a copy of that
         (number (porter--mod-relay-accept))
         relay)
    (unless number
      (delete-process process)
      (error "Cannot make the process of a request"))
    (unless (eq sentinel #'porter-web-server--listener-sentinel)
      (set-process-sentinel process sentinel))
    (setq relay (porter-web-server--relay-make
                 number process server (process-plist process)
                 (process-contact process t)))
    (puthash process relay porter-web-server--relays)
    relay))

;; To make and delete a process takes longer than all else that is done for a
;; request.  So one that nobody has changed serves the next request.  Somebody
;; might have put it away, though, to use it later without owning the stream,
;; and must not write into the answer of another client.  Lisp does one thing at
;; a time, so that can only happen while a handler waits or owns a stream: the
;; first that does so ends the reuse for its server.  What is written
;; between two requests is noticed, and ends it too.

(defun porter-web-server--untouched-p (relay)
  "Is the process of RELAY as it was made?"
  (let* ((process (porter-web-server--relay-process relay))
         (plist (porter-web-server--relay-plist relay))
         (coding (process-coding-system process)))
    (and (eq (process-status process) 'open)
         (eq (process-filter process) #'ws-filter)
         (eq (process-plist process) plist)
         (null (nthcdr (if (plist-get plist :log-buffer) 4 2) plist))
         (eq (process-sentinel process) 'internal-default-process-sentinel)
         (null (process-buffer process))
         (eq (car coding) 'no-conversion)
         (eq (cdr coding) 'no-conversion))))

(defun porter-web-server--end-reuse (server)
  "From now on the processes of SERVER serve one request each."
  (let ((idle (aref server porter-web-server--idle-index)))
    (aset server porter-web-server--idle-index 'never)
    (when (listp idle) (mapc #'porter-web-server--relay-drop idle))))

(defun porter-web-server--relay-get (server)
  "A relay for a request of SERVER."
  (let* ((idle (aref server porter-web-server--idle-index))
         (relay (car-safe idle)))
    (cond
     ((null relay) (porter-web-server--relay-new server))
     ((porter--mod-relay-clean (porter-web-server--relay-number relay))
      (aset server porter-web-server--idle-index (cdr idle))
      relay)
     (t (porter-web-server--end-reuse server)
        (porter-web-server--relay-new server)))))

(defun porter-web-server--relay-put (relay)
  "RELAY has served its request."
  (let* ((server (porter-web-server--relay-server relay))
         (idle (aref server porter-web-server--idle-index)))
    (if (or (eq idle 'never)
            (porter-web-server--relay-over relay)
            (nthcdr porter-web-server--idle-max idle)
            (not (porter-web-server--untouched-p relay))
            (not (eq (process-sentinel
                      (aref server porter-web-server--listener-index))
                     #'porter-web-server--listener-sentinel)))
        (porter-web-server--relay-drop relay)
      (setf (porter-web-server--relay-request relay) nil)
      (aset server porter-web-server--idle-index (cons relay idle)))))

(defun porter-web-server--connect (request)
  "Give REQUEST its process, and return it."
  (let* ((id (porter-web-server--id request))
         (relay (porter-web-server--relay-get
                 (aref request porter-web-server--server-index))))
    (porter-web-server--tell-client relay (porter--mod-remote id))
    (setf (porter-web-server--relay-request relay) request)
    (setf (porter-web-server--relay-id relay) id)
    (setf (porter-web-server--relay-input relay) "")
    (setf (porter-web-server--relay-state relay) nil)
    (setf (porter-web-server--relay-codings relay) nil)
    (setf (porter-web-server--relay-streaming relay) nil)
    (aset request porter-web-server--process-index
          (porter-web-server--relay-process relay))))

(defun porter-web-server--relay-of (request)
  "The relay of REQUEST, or nil."
  (let ((process (porter-web-server--request-process request)))
    (and process (gethash process porter-web-server--relays))))

(defun porter-web-server--relay-porter (relay)
  "The `porter-process' that RELAY answers to."
  (slot-value (aref (porter-web-server--relay-request relay)
                    porter-web-server--porter-index)
              'process))

(defun porter-web-server--relay-drop (relay)
  "Be done with RELAY."
  (setf (porter-web-server--relay-state relay) 'end)
  (remhash (porter-web-server--relay-number relay) porter-web-server--kept)
  (remhash (porter-web-server--relay-id relay) porter--body-functions)
  ;; In this order: nobody may write to a process without other end, since a
  ;; batch Emacs dies of a broken pipe.
  (unwind-protect
      (when (process-live-p (porter-web-server--relay-process relay))
        (delete-process (porter-web-server--relay-process relay)))
    (porter--mod-relay-drop (porter-web-server--relay-number relay))))

(defun porter-web-server--relay-hang-up (relay)
  "The client of RELAY has gone: let its process know.
What it still sends is read until it is deleted, too."
  (setf (porter-web-server--relay-state relay) 'end)
  (porter--mod-relay-hang-up (porter-web-server--relay-number relay)))

(defun porter-web-server--relay-keep (relay)
  "The handler of RELAY has returned, and owns the stream."
  (porter-web-server--end-reuse (porter-web-server--relay-server relay))
  (setf (porter-web-server--relay-streaming relay) t)
  (let ((number (porter-web-server--relay-number relay)))
    (puthash number relay porter-web-server--kept)
    (porter--mod-relay-watch number)))

(defun porter-web-server--remove-request (server request)
  "REQUEST is not under way any more at SERVER."
  (aset server porter-web-server--requests-index
        (delq request (aref server porter-web-server--requests-index))))

(defun porter-web-server--relay-close (relay)
  "The process of RELAY, of a stream, was deleted: so the stream ends."
  (let ((porter (porter-web-server--relay-porter relay))
        (state (porter-web-server--relay-state relay)))
    (porter-web-server--relay-drop relay)
    (porter-web-server--remove-request (porter-web-server--relay-server relay)
                                       (porter-web-server--relay-request relay))
    (pcase state
      ('end)
      ('frames (porter-web-socket-close porter 1000))
      (_ (unless (porter-finish porter)
           (porter--mod-abort (porter--id porter)))))))

(defun porter-web-server--relay-event (number)
  "Relay NUMBER, of a stream, has something to read, or its process was deleted."
  (let ((relay (gethash number porter-web-server--kept)))
    (when relay
      (porter-web-server--take-in-safely relay)
      (cond
       ((porter-web-server--relay-over relay) (porter-web-server--relay-close relay))
       ((and (memq (porter-web-server--relay-state relay) '(body chunks))
             (> (porter-unsent-bytes (porter-web-server--relay-porter relay))
                porter-web-server--unsent-max))
        (porter--mod-abort (porter-web-server--relay-id relay))
        (porter-web-server--relay-hang-up relay)
        (porter--mod-relay-watch number))
       (t (porter--mod-relay-watch number))))))

;; A handler may wait between two pieces of its answer; or it has sent more at
;; once than the kernel takes, and waits for someone to read it.

(defconst porter-web-server--look 0.01
  "In so many seconds it is looked what handlers that wait have sent.")

(defvar porter-web-server--under-way nil
  "The requests whose handlers run, the innermost first.")

(defvar porter-web-server--looking nil
  "Non-nil when `porter-web-server--look-around' is going to be called.")

(defun porter-web-server--look-around ()
  "Send what handlers that wait have said so far."
  (setq porter-web-server--looking nil)
  (when porter-web-server--under-way
    (dolist (request porter-web-server--under-way)
      (porter-web-server--end-reuse (aref request porter-web-server--server-index))
      (let ((relay (porter-web-server--relay-of request)))
        (when (and relay (not (eq (porter-web-server--relay-state relay) 'end)))
          (setf (porter-web-server--relay-streaming relay) t)
          (save-match-data
            (porter-web-server--take-in-safely relay)))))
    (porter-web-server--look-soon)))

(defun porter-web-server--look-soon ()
  "Call `porter-web-server--look-around' soon, if a handler waits then."
  (unless porter-web-server--looking
    (setq porter-web-server--looking t)
    (run-at-time porter-web-server--look nil #'porter-web-server--look-around)))

;;;; From what a process was sent to an answer

(defun porter-web-server--take-in (relay)
  "Read what there is in RELAY, and make it its answer."
  (let ((number (porter-web-server--relay-number relay))
        (id (porter-web-server--relay-id relay))
        (bytes ""))
    (while
        (if (eq (porter-web-server--relay-state relay) 'body)
            (progn (setq bytes (and (porter--mod-relay-pass number id) ""))
                   nil)
          (setq bytes (porter--mod-relay-read number 1048576))
          (unless (member bytes '(nil ""))
            (setf (porter-web-server--relay-input relay)
                  (concat (porter-web-server--relay-input relay) bytes))
            (porter-web-server--advance relay)
            t)))
    (unless bytes (setf (porter-web-server--relay-over relay) t))
    (when (and (porter-web-server--relay-streaming relay)
               (memq (porter-web-server--relay-state relay) '(body chunks)))
      (porter-flush (porter-web-server--relay-porter relay)))))

(defun porter-web-server--take-in-safely (relay)
  "As `porter-web-server--take-in'; an error cuts the answer of RELAY off."
  (condition-case err
      (catch 'close-connection (porter-web-server--take-in relay))
    (error
     (porter--log nil "answer of a ws- handler: %s" (error-message-string err))
     (porter--mod-abort (porter-web-server--relay-id relay))
     (porter-web-server--relay-hang-up relay))))

(defun porter-web-server--advance (relay)
  "Use what RELAY has read, all that can be."
  (unless (porter-web-server--relay-state relay)
    (porter-web-server--advance-head relay))
  (let ((input (porter-web-server--relay-input relay)))
    (unless (equal input "")
      (pcase (porter-web-server--relay-state relay)
        ('body
         (setf (porter-web-server--relay-input relay) "")
         (porter--mod-send (porter-web-server--relay-id relay) input))
        ('chunks (porter-web-server--advance-chunks relay))
        ('frames (porter-web-server--advance-frames relay))
        ('end (setf (porter-web-server--relay-input relay) ""))))))

(defconst porter-web-server--framing
  '("Transfer-Encoding" "Content-Encoding" "Connection" "Keep-Alive" "Upgrade"
    "Sec-WebSocket-Accept")
  "The headers that Porter says in its own way.")

(defun porter-web-server--fields (headers)
  "HEADERS, an alist of strings, as Porter takes them: (CHUNKED . HEADERS)."
  (let (chunked fields)
    (pcase-dolist (`(,name . ,value) headers)
      (pcase (assoc-string name porter-web-server--framing t)
        ("Transfer-Encoding"
         (dolist (coding (split-string (downcase value) "[ \t]*,[ \t]*" t))
           ;; A transfer coding other than chunks is between two neighbours; the
           ;; client understands it better like this.
           (if (equal coding "chunked")
               (setq chunked t)
             (push (cons "Content-Encoding" coding) fields))))
        ((or "Keep-Alive" "Upgrade" "Sec-WebSocket-Accept"))
        ("Connection"
         (when (string-match-p "close" (downcase value))
           (push (cons name "close") fields)))
        (_ (push (cons name value) fields))))
    (cons chunked (nreverse fields))))

(defun porter-web-server--advance-head (relay)
  "Take the head of RELAY's answer, if it is complete."
  (let* ((input (porter-web-server--relay-input relay))
         (end (string-match "\r?\n\r?\n" input))
         (after (and end (match-end 0)))
         code headers fields)
    (when end
      (let ((lines (split-string (substring input 0 end) "\r?\n")))
        (unless (string-match "\\`HTTP/[0-9.]+ +\\([0-9]+\\)" (car lines))
          (error "No status line: %S" (car lines)))
        (setq code (string-to-number (match-string 1 (car lines))))
        (dolist (line (cdr lines))
          (when (string-match "\\`\\([^: \t]+\\)[ \t]*:[ \t]*\\(.*?\\)[ \t]*\\'" line)
            (push (cons (match-string 1 line) (match-string 2 line)) headers))))
      (setq headers (nreverse headers))
      (setf (porter-web-server--relay-input relay) (substring input after))
      (if (eql code 101)
          (porter-web-server--upgrade relay headers)
        (setq fields (porter-web-server--fields headers))
        (porter--mod-head (porter-web-server--relay-id relay) code (cdr fields))
        (setf (porter-web-server--relay-state relay)
              (if (car fields) 'chunks 'body))))))

(defun porter-web-server--advance-chunks (relay)
  "Undo the chunks of RELAY's handler; Porter frames the answer itself."
  (let ((input (porter-web-server--relay-input relay)) (at 0) (more t))
    (while (and more (eq (string-match "\\([[:xdigit:]]+\\)[^\r\n]*\r\n" input at) at))
      (let ((size (string-to-number (match-string 1 input) 16))
            (from (match-end 0)))
        (cond ((eql size 0)
               (setq at (length input) more nil))
              ((< (length input) (+ from size 2)) (setq more nil))
              (t (porter--mod-send (porter-web-server--relay-id relay)
                                   (substring input from (+ from size)))
                 (setq at (+ from size 2))))))
    (setf (porter-web-server--relay-input relay) (substring input at))))

;;;; Frames

(defun porter-web-server--next-frame (input)
  "The first frame in INPUT: (FIN OPCODE PAYLOAD MASKED REST RSV), or nil."
  (let ((length (length input)))
    (when (>= length 2)
      (let* ((first (aref input 0))
             (second (aref input 1))
             (masked (/= 0 (logand second 128)))
             (size (logand second 127))
             (extended (pcase size (126 2) (127 8) (_ 0)))
             (from (+ 2 extended (if masked 4 0))))
        (when (>= length from)
          (when (> extended 0)
            (setq size 0)
            (dotimes (i extended)
              (setq size (+ (* 256 size) (aref input (+ 2 i))))))
          (when (>= length (+ from size))
            (let ((payload (substring input from (+ from size))))
              (when masked
                (setq payload (ws-web-socket-mask
                               (substring input (- from 4) from) payload)))
              (list (/= 0 (logand first 128)) (logand first 15) payload masked
                    (substring input (+ from size)) (logand first 112)))))))))

(defun ws-web-socket-mask (masking-key data)
  "DATA masked, or unmasked, with MASKING-KEY, four bytes."
  (let ((result (string-to-unibyte (copy-sequence data)))
        (key (vconcat masking-key)))
    (dotimes (i (length result))
      (aset result i (logxor (aref result i) (aref key (logand i 3)))))
    result))

(defun ws-web-socket-frame (string &optional opcode)
  "A frame with STRING, as a server sends it.
OPCODE is `:TEXT' (the default), `:BINARY', `:CONTINUATION', `:CLOSE', `:PING'
or `:PONG'."
  (unless (stringp string) (signal 'wrong-type-argument (list 'stringp string)))
  (let* ((bytes (if (multibyte-string-p string)
                    (encode-coding-string string 'utf-8)
                  string))
         (length (length bytes)))
    (concat (unibyte-string
             (+ 128 (cl-ecase (or opcode :TEXT)
                      (:CONTINUATION 0) (:TEXT 1) (:BINARY 2)
                      (:CLOSE 8) (:PING 9) (:PONG 10))))
            (cond ((< length 126) (unibyte-string length))
                  ((< length 65536)
                   (unibyte-string 126 (ash length -8) (logand length 255)))
                  (t (apply #'unibyte-string 127
                            (mapcar (lambda (shift)
                                      (logand 255 (ash length (- shift))))
                                    '(56 48 40 32 24 16 8 0)))))
            bytes)))

(defun ws-web-socket-handshake (key)
  "What answers KEY in a handshake, RFC 6455 section 4.2.2."
  (base64-encode-string (sha1 (concat (ws-trim key) ws-guid) nil nil t)))

(defun porter-web-server--give (relay string)
  "Let the process of RELAY receive STRING, bytes from its client."
  (let* ((process (porter-web-server--relay-process relay))
         (filter (process-filter process))
         (coding (car (process-coding-system process))))
    (when (and (process-live-p process) (functionp filter))
      ;; In Emacs an error in a filter does not end the connection either.
      (condition-case-unless-debug err
          (funcall filter process
                   (if (memq coding '(nil binary no-conversion))
                       string
                     (decode-coding-string string coding)))
        (error (porter--log nil "filter of a ws- process: %s"
                            (error-message-string err)))))))

(defun porter-web-server--own (relay)
  "What the client of RELAY's stream sends is for the filter of its process.
Without a filter nobody waits for it, and it may be the next request."
  (let ((id (porter-web-server--relay-id relay)))
    (unless (or (eq (porter-web-server--relay-state relay) 'frames)
                (eq (process-filter (porter-web-server--relay-process relay))
                    #'ws-filter))
      (puthash id (porter--body-waiting-make
                   (lambda (bytes)
                     (when bytes (porter-web-server--give relay bytes))))
               porter--body-functions)
      (porter--mod-own id))))

(defun porter-web-server--give-frame (relay string opcode)
  "Let the process of RELAY receive STRING in a frame with OPCODE.
As a client's it is masked: with zeros, which change nothing."
  (let* ((frame (ws-web-socket-frame string opcode))
         (length (aref frame 1))
         (at (pcase length (126 4) (127 10) (_ 2))))
    (aset frame 1 (logior 128 length))
    (porter-web-server--give
     relay (concat (substring frame 0 at) "\0\0\0\0" (substring frame at)))))

(defun porter-web-server--upgrade (relay headers)
  "The handler of RELAY has answered 101 with HEADERS: now it speaks frames.
Porter's module reads the client's frames, and answers its pings; what arrives
whole is put into a frame again for the process."
  (let* ((request (porter-web-server--relay-request relay))
         (protocol (cdr (assoc-string "sec-websocket-protocol" headers t))))
    (setf (porter-web-server--relay-state relay) 'frames)
    (unless (apply #'porter-web-socket-connect
                   (aref request porter-web-server--porter-index)
                   (lambda (_process message type)
                     (porter-web-server--give-frame
                      relay message (if (eq type 'text) :TEXT :BINARY)))
                   :on-close
                   (lambda (_process code _reason)
                     (unless (eq (porter-web-server--relay-state relay) 'end)
                       (porter-web-server--give-frame
                        relay (unibyte-string (ash (or code 1000) -8)
                                              (logand (or code 1000) 255))
                        :CLOSE)
                       (porter-web-server--relay-hang-up relay)))
                   (and protocol (list :protocols (list protocol))))
      (error "An answer 101 to what is no WebSocket"))))

(defun porter-web-server--advance-frames (relay)
  "Send the frames that RELAY's handler has made."
  (let ((porter (porter-web-server--relay-porter relay)) frame)
    (while (setq frame (porter-web-server--next-frame
                        (porter-web-server--relay-input relay)))
      (pcase-let ((`(,_fin ,opcode ,payload ,_masked ,rest . ,_) frame))
        (setf (porter-web-server--relay-input relay) rest)
        (pcase opcode
          (1 (porter-web-socket-send porter payload 'text))
          (2 (porter-web-socket-send porter payload 'binary))
          (8 (porter-web-socket-close porter 1000)))))))

(defun ws-web-socket-connect (request handler)
  "Make the connection of REQUEST a WebSocket and return its process.
HANDLER is called with the process and each message.  Return nil if REQUEST does
not ask for a WebSocket.  The handler of REQUEST is to return `:keep-alive'."
  (let* ((headers (ws-headers request))
         (key (cdr (assq :SEC-WEBSOCKET-KEY headers))))
    (when (and key (assq :UPGRADE headers))
      (let ((process (ws-process request)))
        (set-process-coding-system process 'binary 'binary)
        (set-process-plist
         process (list :message (make-instance 'ws-message :process process
                                               :handler handler)))
        (set-process-filter process #'ws-web-socket-filter)
        (process-send-string
         process
         (concat "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                 "Connection: Upgrade\r\nSec-WebSocket-Accept: "
                 (ws-web-socket-handshake key) "\r\n\r\n"))
        process))))

(defun ws-web-socket-filter (process string)
  "PROCESS, a WebSocket, has received STRING."
  (let ((message (plist-get (process-plist process) :message)))
    (setf (ws-pending message) (concat (ws-pending message) string))
    (ws-web-socket-parse-messages message)))

(defun ws-web-socket-parse-messages (message)
  "Give the handler of MESSAGE what is complete in its slot `pending'."
  (let ((process (ws-process message)) frame)
    (while (setq frame (porter-web-server--next-frame (ws-pending message)))
      (pcase-let ((`(,_fin ,opcode ,payload ,_masked ,rest . ,_) frame))
        (setf (ws-pending message) rest)
        (pcase opcode
          ((or 1 2)
           (condition-case-unless-debug err
               (funcall (ws-handler message) process
                        (if (eql opcode 1) (porter-web-server--text payload) payload))
             (error (porter--log nil "web socket handler: %s"
                                 (error-message-string err)))))
          (8 (when (process-live-p process) (delete-process process))))))))

;;;; Handlers

(defun ws-filter (_process _string)
  "What the client of a stream that its handler owns sends: nothing asks for it.")

(defvar porter-web-server--functions (make-hash-table :test 'eq :weakness 'key)
  "Quoted lambdas, byte-compiled.")

(defun porter-web-server--function (function)
  "FUNCTION, fast: a quoted lambda would have its macros expanded at each call."
  (if (not (eq (car-safe function) 'lambda))
      function
    (or (gethash function porter-web-server--functions)
        (puthash function (porter--compile-function function)
                 porter-web-server--functions))))

(defun porter-web-server--matches (matcher request)
  "Does MATCHER, of an alist of handlers, match REQUEST?"
  (if (functionp matcher)
      (funcall (porter-web-server--function matcher) request)
    (let* ((headers (aref request porter-web-server--headers-index))
           (value (cdr (assoc (car matcher) (if (consp headers)
                                                headers
                                              (ws-headers request))))))
      (and (stringp value) (string-match (cdr matcher) value)))))

(defun porter-web-server--call (request handlers)
  "Call the function in HANDLERS that REQUEST is for."
  (if (functionp handlers)
      (funcall (porter-web-server--function handlers) request)
    (while (and handlers
                (not (porter-web-server--matches (caar handlers) request)))
      (setq handlers (cdr handlers)))
    (if handlers
        (funcall (porter-web-server--function (cdar handlers)) request)
      (ws-send-404 (ws-process request) "no handler matched request"))))

(defun ws-call-handler (request handlers)
  "Call the function in HANDLERS that REQUEST is for; an error is answered 500.
Return what it returns, or throws to `close-connection'."
  (catch 'close-connection
    (condition-case-unless-debug err
        (porter-web-server--call request handlers)
      (error (ws-error (ws-process request) "Caught Error: %S" err)))))

(defun porter-web-server--finish (request relay value)
  "The handler of REQUEST has returned VALUE; RELAY is its relay."
  (porter-web-server--take-in relay)
  (cond
   ((not (eq value :keep-alive))
    (unless (or (porter-web-server--relay-state relay)
                (equal "" (porter-web-server--relay-input relay)))
      (error "No status line"))
    (when (eq 'frames (porter-web-server--relay-state relay))
      (porter-web-socket-close (porter-web-server--relay-porter relay) 1000))
    (porter-web-server--relay-put relay)
    value)
   ((porter-web-server--relay-over relay)
    (porter-web-server--relay-drop relay)
    nil)
   (t
    (let ((server (aref request porter-web-server--server-index)))
      (setf (ws-requests server)
            (cons request
                  (cl-delete-if-not
                   (lambda (other)
                     (process-live-p (porter-web-server--request-process other)))
                   (delq request (ws-requests server))))))
    (porter-web-server--relay-keep relay)
    (porter-web-server--own relay)
    (unless (eq 'frames (porter-web-server--relay-state relay))
      (porter-on-close (porter-web-server--relay-porter relay)
                       (lambda () (porter-web-server--relay-hang-up relay))))
    :keep-alive)))

(defun porter-web-server--request-make (server porter)
  "A `ws-request' for PORTER, a `porter-request' to SERVER."
  (let ((request (copy-sequence porter-web-server--prototype)))
    (aset request porter-web-server--porter-index porter)
    (aset request porter-web-server--server-index server)
    (unless (eql 0 porter-web-server--headers-wanted)
      (setq porter-web-server--headers-wanted
            (1- porter-web-server--headers-wanted))
      (aset request porter-web-server--headers-index
            (porter-web-server--headers request)))
    (unless (eql 0 porter-web-server--process-wanted)
      (setq porter-web-server--process-wanted
            (1- porter-web-server--process-wanted))
      (porter-web-server--connect request))
    request))

(defun porter-web-server--run (server request)
  "Let the handlers of SERVER answer REQUEST.
Return (VALUE . nil), or (nil . ERROR) of what was signalled."
  (save-current-buffer
    ;; Where a process filter would find itself.
    (set-buffer (window-buffer (selected-window)))
    (let* ((failure nil)
           (value (catch 'close-connection
                    (condition-case-unless-debug err
                        (let ((inhibit-quit porter-web-server-inhibit-quit))
                          (porter-web-server--call
                           request
                           (aref server porter-web-server--handlers-index)))
                      (error (setq failure err) nil)))))
      (cons value failure))))

(defun porter-web-server--serve (server porter)
  "Let SERVER handle PORTER, a `porter-request'."
  (let* ((request (porter-web-server--request-make server porter))
         (porter-web-server--under-way (cons request porter-web-server--under-way))
         (result nil) (done nil) (relay nil))
    (porter-web-server--look-soon)
    (porter-web-server--log server porter)
    (aset server porter-web-server--requests-index
          (cons request (aref server porter-web-server--requests-index)))
    (unwind-protect
        (let (value)
          (setq result (porter-web-server--run server request))
          (setq value (car result))
          (when (and (eq value :keep-alive)
                     (not (porter-web-server--request-process request)))
            (porter-web-server--connect request))
          (setq relay (porter-web-server--relay-of request))
          (cond
           ((cdr result)
            (porter--answer-plain (porter--id porter) 500
                                  (format "Caught Error: %S" (cdr result)))
            (setq value nil))
           (relay
            (setq value (porter-web-server--finish request relay value))
            (setq done t)))
          (unless (eq value :keep-alive)
            (porter-web-server--remove-request server request))
          value)
      (unless (or done (and result (null (porter-web-server--relay-of request))))
        (porter-web-server--remove-request server request)
        (setq relay (porter-web-server--relay-of request))
        (when relay (porter-web-server--relay-drop relay))))))

;;;; Servers

(defun porter-web-server--write-log (server host port text)
  "Write a line with HOST, PORT and TEXT into the log of SERVER, if it has one."
  (let ((buffer (and (processp (ws-process server))
                     (process-get (ws-process server) :log-buffer))))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer
        (buffer-disable-undo)
        (save-excursion
          (let ((inhibit-read-only t))
            (when (> (buffer-size) porter-web-server-log-size)
              (delete-region (point-min) (/ (point-max) 2)))
            (goto-char (point-max))
            (insert (format "%s\t%s\t%s\t%s\n"
                            (format-time-string ws-log-time-format)
                            host port text))))))))

(defun porter-web-server--log (server porter)
  "Write a line for PORTER, a request, into the log of SERVER."
  (when (process-get (aref server porter-web-server--listener-index) :log-buffer)
    (let ((remote (porter--mod-remote (porter--id porter))))
      (porter-web-server--write-log
       server (car-safe remote) (cdr-safe remote)
       (porter--describe (porter--id porter))))))

(defun porter-web-server--listener-sentinel (process _event)
  "PROCESS stands for a server: when it is deleted the server stops."
  (unless (process-live-p process)
    (let ((server (process-get process :server)))
      (when server (ws-stop server)))))

(defun porter-web-server--porter-args (args)
  "Of ARGS, those of `make-network-process', what `porter-start' is to know."
  (let ((host (or (plist-get args :host) porter-host)) result)
    (when (or (eq host 'local) (equal host "127.0.0.1")) (setq host "localhost"))
    (while args
      (when (porter--own-keyword-p (car args))
        (setq result (append result (list (car args) (cadr args)))))
      (setq args (cddr args)))
    (append (list :name "ws-server" :host host) result)))

;;;###autoload
(defun ws-start (handlers port &optional log-buffer &rest network-args)
  "Start a server with HANDLERS on PORT and return it.
HANDLERS is a function of a request, or an alist of (MATCHER . FUNCTION), where
MATCHER is a function of a request or (KEYWORD . REGEXP).  PORT 0 or t is any
free port; (process-contact (ws-process SERVER) :service) tells which.
LOG-BUFFER, a buffer or its name, gets a line for each request.  NETWORK-ARGS
are those of `make-network-process'; `:host' counts, others are accepted, and
so are Porter's own, the limits and lists of `porter-start'."
  ;; One whose process was deleted must not hold its port.
  (dolist (server ws-servers)
    (unless (process-live-p (ws-process server)) (ws-stop server)))
  (let* ((server (make-instance 'ws-server :handlers handlers :port port))
         (porter (apply #'porter-start
                        (lambda (request) (porter-web-server--serve server request))
                        port nil (porter-web-server--porter-args network-args)))
         (log (and log-buffer (get-buffer-create log-buffer)))
         process)
    (setf (slot-value server 'porter) porter)
    (setq process
          (make-network-process
           :name "ws-server" :server t :family 'local :noquery t
           :service (porter-web-server--socket-name) :filter #'ws-filter :coding 'no-conversion
           :sentinel (or (plist-get network-args :sentinel)
                         #'porter-web-server--listener-sentinel)
           :plist (append (list :server server)
                          (and log (list :log-buffer log)))))
    ;; Nobody is to find it: it only stands for the server.
    (ignore-errors (delete-file (process-contact process :service)))
    (porter-web-server--set-contact
     (process-contact process t)
     (let ((host (plist-get network-args :host)))
               (and (stringp host) host))
     (porter-port porter) (porter-port porter))
    (setf (ws-process server) process)
    (push server ws-servers)
    server))

(defun ws-stop (server)
  "Stop SERVER, and end the streams that its handlers own."
  (setq ws-servers (delq server ws-servers))
  (dolist (request (ws-requests server))
    (let ((relay (porter-web-server--relay-of request)))
      (cond
       ((null relay))
       ((gethash (porter-web-server--relay-number relay) porter-web-server--kept)
        (porter-web-server--relay-close relay))
       ;; Its handler runs, or is called by us.
       (t (delete-process (porter-web-server--relay-process relay))))))
  (setf (ws-requests server) nil)
  (porter-web-server--end-reuse server)
  (when (process-live-p (ws-process server)) (delete-process (ws-process server)))
  (when (slot-value server 'porter) (porter-stop (slot-value server 'porter)))
  (unless ws-servers (porter-web-server--clean-up))
  nil)

(defun ws-stop-all ()
  "Stop all servers in `ws-servers'."
  (interactive)
  (mapc #'ws-stop ws-servers))

;;;; Answers

(defun ws-chunk (string)
  "STRING as a chunk; a multibyte one as UTF-8."
  (let ((bytes (if (multibyte-string-p string)
                   (encode-coding-string string 'utf-8)
                 string)))
    (format "%x\r\n%s\r\n" (length bytes) bytes)))

(defmacro ws-encoding-cmd-to-fn (cmd)
  "A function that passes a string through the command CMD."
  `(lambda (string) (porter-web-server--filter ,cmd string)))

(defun porter-web-server--filter (command string)
  "Run STRING, bytes, through COMMAND and return its output, bytes."
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (insert (if (multibyte-string-p string)
                (encode-coding-string string 'utf-8)
              string))
    (let ((coding-system-for-read 'binary) (coding-system-for-write 'binary)
          (default-directory "/"))
      (unless (eql 0 (call-process-region (point-min) (point-max) shell-file-name
                                          t '(t nil) nil shell-command-switch
                                          command))
        (error "The command %S failed" command)))
    (buffer-string)))

(defun porter-web-server--encode (string codings)
  "STRING as it is after CODINGS, a list of names."
  (dolist (coding codings)
    (setq string
          (pcase coding
            ((or "gzip" "x-gzip") (porter-web-server--filter ws-gzip-cmd string))
            ("deflate" (porter-web-server--filter ws-deflate-cmd string))
            ((or "compress" "x-compress")
             (porter-web-server--filter ws-compress-cmd string))
            ("chunked" (ws-chunk string))
            (_ string))))
  string)

(defun porter-web-server--codings (headers)
  "What HEADERS, conses (NAME . VALUE), ask `ws-send' to do."
  (let (codings)
    (dolist (header headers)
      (when (assoc-string (car header) '("Content-Encoding" "Transfer-Encoding") t)
        (setq codings (append codings
                              (split-string (downcase (format "%s" (cdr header)))
                                            "[ \t]*,[ \t]*" t)))))
    codings))

(defun porter-web-server--plain-p (headers)
  "Can Porter take HEADERS, conses (NAME . VALUE), as they are?"
  (while (and headers
              (stringp (caar headers))
              (not (assoc-string (caar headers) porter-web-server--framing t)))
    (setq headers (cdr headers)))
  (null headers))

(defun porter-web-server--begin (relay code headers plain)
  "Give RELAY's answer CODE and HEADERS, as if they had been sent to its process.
PLAIN non-nil means that Porter can take HEADERS as they are.
Return nil if that is what has to be done, since something has been sent."
  (let ((fields (unless plain
                  (save-match-data
                    (porter-web-server--fields
                     (mapcar (lambda (header)
                               (cons (format "%s" (car header))
                                     (format "%s" (cdr header))))
                             headers))))))
    (when (porter--mod-relay-head (porter-web-server--relay-number relay)
                                  (porter-web-server--relay-id relay)
                                  code (if plain headers (cdr fields)))
      (setf (porter-web-server--relay-state relay) (if (car fields) 'chunks 'body)))))

(defun ws-response-header (proc code &rest headers)
  "Send PROC a status line with CODE, and HEADERS, conses (NAME . VALUE).
Content-Encoding and Transfer-Encoding are carried out by `ws-send'."
  (let* ((relay (gethash proc porter-web-server--relays))
         (plain (porter-web-server--plain-p headers))
         (codings (unless plain
                    (save-match-data (porter-web-server--codings headers)))))
    (if relay
        (setf (porter-web-server--relay-codings relay) codings)
      (process-put proc 'porter-codings codings))
    (unless (and relay
                 (null (porter-web-server--relay-state relay))
                 (not (eql code 101))
                 (process-live-p proc)
                 (porter-web-server--begin relay code headers plain))
      (dolist (header headers)
        (when (string-match-p "[\r\n]" (format "%s%s" (car header) (cdr header)))
          (signal 'porter-invalid-header (list "Line end in a header" header))))
      (process-send-string
       proc (format "HTTP/1.1 %d %s\r\n%s\r\n" code
                    (or (cdr (assq code ws-status-codes)) "Unknown")
                    (mapconcat (lambda (header)
                                 (format "%s: %s\r\n" (car header) (cdr header)))
                               headers ""))))))

(defun porter-web-server--send (proc string)
  "Send STRING to PROC, without the detour by the kernel where that can be.
It takes a fifth of a megabyte at once, and then Emacs waits for some time."
  (let ((relay (gethash proc porter-web-server--relays)))
    (if (or (null relay)
            (multibyte-string-p string)
            (not (process-live-p proc))
            (not (eq (cdr (process-coding-system proc)) 'no-conversion))
            (not (eq (porter-web-server--relay-state relay) 'body)))
        (process-send-string proc string)
      ;; What was sent before is before it.
      (porter-web-server--take-in relay)
      (porter--mod-send (porter-web-server--relay-id relay) string))))

(defun ws-send (proc string)
  "Send STRING to PROC, encoded as `ws-response-header' was told."
  (let* ((relay (gethash proc porter-web-server--relays))
         (codings (if relay
                      (porter-web-server--relay-codings relay)
                    (process-get proc 'porter-codings))))
    ;; A chunk of nothing would be the last one.
    (unless (equal string "")
      (porter-web-server--send proc (if codings
                                        (porter-web-server--encode string codings)
                                      string)))))

(defun porter-web-server--send-error (proc code default args)
  "Answer PROC with CODE and DEFAULT, or ARGS for `format'; leave the handler."
  (when proc
    (let ((text (if args (apply #'format args) default)))
      (ws-response-header proc code '("Content-type" . "text/plain; charset=utf-8"))
      (process-send-string proc text)))
  (throw 'close-connection nil))

(defun ws-send-500 (proc &rest msg-and-args)
  "Answer PROC with 500 and MSG-AND-ARGS, for `format'; leave the handler."
  (porter-web-server--send-error proc 500 "500 Internal Server Error" msg-and-args))

(defun ws-send-404 (proc &rest msg-and-args)
  "Answer PROC with 404 and MSG-AND-ARGS, for `format'; leave the handler."
  (porter-web-server--send-error proc 404 "404 Not Found" msg-and-args))

(defun ws-error (proc msg &rest args)
  "Log MSG, formatted with ARGS, answer PROC with 500 and leave the handler."
  (let ((server (and (processp proc) (plist-get (process-plist proc) :server))))
    (when server
      (porter-web-server--write-log
       server (process-contact proc :host) (process-contact proc :service)
       (concat "WS-ERROR: " (apply #'format msg args))))
    (apply #'ws-send-500 proc msg args)))

(defun ws-send-file (proc path &optional mime-type)
  "Answer PROC with the file PATH, which may be deleted right afterwards.
MIME-TYPE is guessed from its name otherwise."
  (require 'mailcap)
  (let* ((extension (file-name-extension path))
         (type (or mime-type
                   (and extension (mailcap-extension-to-mime extension))
                   "application/octet-stream"))
         (bytes (with-temp-buffer
                  (set-buffer-multibyte nil)
                  (insert-file-contents-literally path)
                  (buffer-string))))
    (ws-response-header proc 200 (cons "Content-type" type)
                        (cons "Content-length" (length bytes)))
    (porter-web-server--send proc bytes)))

(defun ws-send-directory-list (proc directory &optional match)
  "Answer PROC with a list of the files in DIRECTORY whose names MATCH."
  (ws-response-header proc 200 '("Content-type" . "text/html; charset=utf-8"))
  (process-send-string
   proc
   (concat
    "<ul>"
    (mapconcat
     (lambda (name)
       (format "<li><a href=\"%s%s\">%s</a></li>"
               (url-hexify-string name)
               (if (file-directory-p (expand-file-name name directory)) "/" "")
               (replace-regexp-in-string
                "[&<>\"]" (lambda (char)
                            (cdr (assoc char '(("&" . "&amp;") ("<" . "&lt;")
                                               (">" . "&gt;") ("\"" . "&quot;")))))
                name t t)))
     (directory-files directory nil match) "\n")
    "</ul>")))

(defun ws-in-directory-p (parent path)
  "PATH below the directory PARENT, expanded, or nil if it leads out of there."
  (unless (string-prefix-p "~" path)
    (let* ((parent (directory-file-name (expand-file-name parent)))
           (expanded (expand-file-name path parent)))
      (and (or (equal expanded parent)
               (string-prefix-p (file-name-as-directory parent) expanded))
           expanded))))

(defun ws-with-authentication (handler credentials
                                       &optional realm unauth invalid)
  "Make a handler that passes requests of users in CREDENTIALS to HANDLER.
CREDENTIALS is an alist (USER . PASSWORD), REALM the name shown to users.
UNAUTH and INVALID are functions of the process that answer otherwise."
  (lambda (request)
    (let* ((auth (cdr (assq :AUTHORIZATION (ws-headers request))))
           (given (cdr-safe auth))
           (process (ws-process request)))
      (cond
       ((not (and (consp auth) (eq (car auth) :BASIC)))
        (if unauth
            (funcall unauth process)
          (ws-response-header
           process 401
           (cons "WWW-Authenticate"
                 (format "Basic realm=\"%s\"" (or realm "restricted")))
           '("Content-type" . "text/plain"))
          (process-send-string process "authentication required")))
       ((let ((known (cl-assoc (car given) credentials
                               :test #'porter-equal-in-constant-time)))
          (and known (porter-equal-in-constant-time (cdr given) (cdr known))))
        (funcall handler request))
       (invalid (funcall invalid process))
       (t (ws-response-header process 403 '("Content-type" . "text/plain"))
          (process-send-string process "invalid credentials"))))))

;;;; The names without a prefix

(defun porter-web-server-define-aliases ()
  "Define the accessors under the names they had before they got a prefix.
They are common words, such as `process' and `body': only for old code."
  (interactive)
  (dolist (name '(active body boundary context data handler handlers headers
                         index new pending port process requests))
    (unless (fboundp name)
      (defalias name (intern (format "ws-%s" name))))))

(put 'ws-start 'porter-web-server t)

(provide 'porter-web-server)
(provide 'web-server)
(provide 'web-server-status-codes)
;;; porter-web-server.el ends here
