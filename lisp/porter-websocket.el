;;; porter-websocket.el --- WebSockets  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; `porter-web-socket-connect' checks the opening handshake of RFC 6455
;; section 4.2, and from then on the `process' of the request is a WebSocket.
;; Frames, masks, pings, UTF-8, compression and the closing handshake are the
;; loop thread's; what arrives here are whole messages.  A socket on which
;; nothing happens costs no Lisp at all.

;;; Code:

(require 'porter-dispatch)

(porter-module--declare)

(define-error 'porter-closed "The WebSocket is closed" 'porter-error)

;;;; Options

(defcustom porter-web-socket-max-message 67108864
  "The largest message in bytes that a WebSocket takes; beyond it, 1009.
Nil means no limit.  `porter-web-socket-connect' takes it as `:max-message'."
  :type '(choice (const :tag "No limit" nil) natnum)
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-web-socket-ping-interval 30
  "The seconds without a byte after which a WebSocket's client is pinged.
Nil means never.  `porter-web-socket-connect' takes it as `:ping-interval'."
  :type '(choice (const :tag "Never" nil) number)
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-web-socket-ping-timeout 20
  "The seconds without a byte after a ping, before a client counts as gone.
`porter-web-socket-connect' takes it as `:ping-timeout'."
  :type 'number
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-web-socket-close-timeout 5
  "The seconds that a client has to answer when its WebSocket is closed.
`porter-web-socket-connect' takes it as `:close-timeout'."
  :type 'number
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-web-socket-high-water 1048576
  "The unsent bytes from which on `porter-web-socket-send' returns `full'.
`porter-web-socket-connect' takes it as `:high-water'."
  :type 'natnum
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-web-socket-max-unsent 134217728
  "The unsent bytes beyond which a client that does not read is given up.
`porter-web-socket-connect' takes it as `:max-unsent'."
  :type 'natnum
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-web-socket-strict nil
  "Non-nil means that sending to a closed WebSocket signals `porter-closed'.
Otherwise what is sent to it is dropped, and nil returned."
  :type 'boolean
  :group 'porter
  :package-version '(porter . "1.0"))

;;;; The handshake

;; A plain vector: a record's accessors look at its type each time, and these are
;; used for every message.
(cl-defstruct (porter--socket (:constructor porter--socket-make) (:copier nil)
                              (:type vector))
  process handler typed on-close on-error on-drain on-pong protocol topics)

(defvar porter--sockets (make-hash-table)
  "The WebSockets that are open, or whose end Lisp was not told yet, by id.")

(defconst porter--socket-guid "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
  "What is hashed together with a client's key (RFC 6455 section 1.3).")

(defconst porter--token-regexp "\\`[-!#$%&'*+.^_`|~0-9A-Za-z]+\\'"
  "A token of RFC 9110 section 5.6.2.")

(defun porter--header-values (id name)
  "The values of all lines of header NAME, a string, of request ID."
  (let (values)
    (pcase-dolist (`(,field . ,value) (porter--mod-headers id nil))
      (when (eq t (compare-strings field nil nil name nil nil t))
        (push value values)))
    (nreverse values)))

(defun porter--header-list (id name)
  "The elements of the comma-separated header NAME of request ID."
  (delete "" (mapcar (lambda (element) (string-trim element "[ \t]+" "[ \t]+"))
                     (split-string (string-join (porter--header-values id name) ",")
                                   ","))))

(defun porter--header-token-p (id name token)
  "Is TOKEN, in lower case, an element of header NAME of request ID?"
  (let ((case-fold-search nil))
    (member token (mapcar #'downcase (porter--header-list id name)))))

(defun porter--loopback-name-p (host)
  "Does HOST, a name in lower case or a number, mean this machine?"
  (let ((case-fold-search nil))
    (or (equal host "[::1]")
        (string-match-p "\\`\\(?:.*\\.\\)?localhost\\'" host)
        (string-match-p "\\`127\\.[0-9]+\\.[0-9]+\\.[0-9]+\\'" host))))

(defun porter--split-authority (authority default-port)
  "AUTHORITY, HOST or HOST:PORT, as (HOST . PORT) in lower case.
DEFAULT-PORT, a string, is taken where it has none."
  (let ((case-fold-search nil)
        (authority (downcase authority)))
    (if (string-match ":\\([0-9]*\\)\\'" authority)
        (cons (substring authority 0 (match-beginning 0))
              (if (equal (match-string 1 authority) "")
                  default-port
                (match-string 1 authority)))
      (cons authority default-port))))

(defun porter--own-origin-p (id origin)
  "Is ORIGIN that of the server that request ID came to?
It is if it has the name and port of Host, or if both are names of this
machine and have the same port."
  (let ((case-fold-search t))
    (when (string-match "\\`\\(https?\\)://\\([^/?#@]+\\)\\'" origin)
      (let* ((port (if (eq t (compare-strings (match-string 1 origin) nil nil
                                              "https" nil nil t))
                       "443"
                     "80"))
             (theirs (porter--split-authority (match-string 2 origin) port))
             (ours (porter--split-authority (or (porter--mod-header id "host") "")
                                            port)))
        (and (equal (cdr theirs) (cdr ours))
             (or (equal (car theirs) (car ours))
                 (and (porter--loopback-name-p (car theirs))
                      (porter--loopback-name-p (car ours)))))))))

(defun porter--origin-allowed-p (id allowed)
  "May the page that sent request ID open a WebSocket?
ALLOWED is a list of origins besides the server's own, t for all, or a
function of the origin.  Only browsers send an origin; others may be let in,
since nobody's browser acts on their behalf."
  (let ((origins (porter--header-values id "origin")))
    (or (null origins)
        (eq allowed t)
        (and (null (cdr origins))
             (if (functionp allowed)
                 (funcall allowed (car origins))
               (or (porter--own-origin-p id (car origins))
                   (cl-member (car origins) allowed
                              :test (lambda (a b) (equal (downcase a) (downcase b))))))))))

(defun porter--socket-key-valid-p (key)
  "Is KEY the base64 of sixteen bytes?"
  (let ((case-fold-search nil))
    (and (string-match-p "\\`[A-Za-z0-9+/]\\{22\\}==\\'" key)
         (eql 16 (length (ignore-errors (base64-decode-string key)))))))

(defun porter--socket-refusal (id allowed)
  "Why the opening handshake ID is refused: (CODE TEXT . HEADERS), or nil.
ALLOWED is as for `porter--origin-allowed-p'."
  (let ((keys (porter--header-values id "sec-websocket-key"))
        (protocols (porter--header-list id "sec-websocket-protocol")))
    (cond
     ((not (eq (porter--mod-method id) :GET))
      (list 405 "A WebSocket is opened with GET" '("Allow" . "GET")))
     ((not (and (porter--mod-upgrade id)
                (porter--header-token-p id "upgrade" "websocket")))
      (list 400 "Not a WebSocket handshake"))
     ((not (equal (porter--header-values id "sec-websocket-version") '("13")))
      (list 426 "WebSocket version 13 only"
            '("Sec-WebSocket-Version" . "13") '("Upgrade" . "websocket")
            '("Connection" . "Upgrade")))
     ((not (and keys (null (cdr keys)) (porter--socket-key-valid-p (car keys))))
      (list 400 "A bad Sec-WebSocket-Key"))
     ((or (not (equal (porter--mod-body id) ""))
          (porter--mod-header id "transfer-encoding"))
      (list 400 "A WebSocket handshake has no body"))
     ((or (cl-notevery (lambda (protocol)
                         (let ((case-fold-search nil))
                           (string-match-p porter--token-regexp protocol)))
                       protocols)
          (not (equal protocols (delete-dups (copy-sequence protocols)))))
      (list 400 "A bad Sec-WebSocket-Protocol"))
     ((not (porter--origin-allowed-p id allowed))
      (list 403 "Pages of that origin may not open a WebSocket here")))))

(defun porter--socket-choose-protocol (id protocols)
  "The subprotocol for handshake ID, or nil.
PROTOCOLS are those of the server, the one it likes best first, or a function
of what the client offers."
  (let ((offered (porter--header-list id "sec-websocket-protocol")))
    (if (functionp protocols)
        (let ((protocol (and offered (funcall protocols offered))))
          (and (member protocol offered) protocol))
      (cl-find-if (lambda (protocol) (member protocol offered)) protocols))))

(defun porter--deflate-offer (offer)
  "What OFFER of the client asks of us: the bits of our window, or nil.
OFFER is one element of Sec-WebSocket-Extensions.  Nil means that it is none
that we can agree to (RFC 7692 section 7.1)."
  (let* ((parts (mapcar (lambda (part) (string-trim part "[ \t]+" "[ \t]+"))
                        (split-string offer ";")))
         (bits 15)
         (case-fold-search t)
         seen)
    (when (eq t (compare-strings (car parts) nil nil "permessage-deflate" nil nil t))
      (catch 'no
        (dolist (part (cdr parts))
          (unless (string-match "\\`\\([a-z_]+\\)[ \t]*\\(?:=[ \t]*\"?\\([0-9]+\\)\"?\\)?\\'" part)
            (throw 'no nil))
          (let ((name (downcase (match-string 1 part)))
                (value (match-string 2 part)))
            (when (member name seen) (throw 'no nil))
            (push name seen)
            (pcase name
              ((or "server_no_context_takeover" "client_no_context_takeover")
               (when value (throw 'no nil)))
              ("client_max_window_bits"
               (when (and value
                          (not (string-match-p "\\`\\(?:[89]\\|1[0-5]\\)\\'" value)))
                 (throw 'no nil)))
              ("server_max_window_bits"
               ;; zlib has no window of 8 bits.
               (unless (and value
                            (string-match-p "\\`\\(?:9\\|1[0-5]\\)\\'" value))
                 (throw 'no nil))
               (setq bits (string-to-number value)))
              (_ (throw 'no nil)))))
        (cons bits (member "server_max_window_bits" seen))))))

(defun porter--deflate-agree (id)
  "The first offer of compression in handshake ID that suits: (BITS . VALUE).
VALUE is our answer to it.  Nil when there is none."
  (let ((agreed (cl-some #'porter--deflate-offer
                         (porter--header-list id "sec-websocket-extensions"))))
    (when agreed
      ;; Neither side remembers earlier messages: a compressor that does takes
      ;; 300 kB for each socket.
      (cons (car agreed)
            (concat "permessage-deflate; server_no_context_takeover; "
                    "client_no_context_takeover"
                    (and (cdr agreed)
                         (format "; server_max_window_bits=%d" (car agreed))))))))

(defun porter--socket-value-p (keyword value)
  "Is VALUE one for KEYWORD of `porter-web-socket-connect'?
Signal `porter-error' if there is no such KEYWORD."
  (pcase keyword
    ((or :on-open :on-close :on-error :on-drain :on-pong)
     (or (null value) (functionp value)))
    (:protocols (or (functionp value) (porter--strings-p value)))
    (:origins (or (eq value t) (functionp value) (porter--strings-p value)))
    (:types (and (listp value) (cl-subsetp value '(text binary))))
    (:compress t)
    ((or :compress-min :high-water :max-unsent) (natnump value))
    (:max-message (or (null value) (natnump value)))
    ((or :ping-interval :ping-timeout :close-timeout)
     (or (null value) (and (numberp value) (> value 0))))
    (_ (signal 'porter-error (list "Unknown keyword" keyword)))))

(defun porter--strings-p (value)
  "Is VALUE a list of strings?"
  (and (listp value) (cl-every #'stringp value)))

(defun porter--socket-check-options (options)
  "Signal `porter-error' unless OPTIONS are for `porter-web-socket-connect'."
  (cl-loop for (keyword . rest) on options by #'cddr
           unless (and rest (porter--socket-value-p keyword (car rest)))
           do (signal 'porter-error (list "Not a value for" keyword (car rest)))))

(defun porter--socket-option (options keyword default)
  "The value of KEYWORD in OPTIONS, a plist, or else DEFAULT."
  (if (plist-member options keyword) (plist-get options keyword) default))

(defun porter--socket-options (options agreed)
  "OPTIONS, a plist, as a vector for the module; AGREED on compression."
  (cl-flet ((get (keyword default) (porter--socket-option options keyword default))
            (ms (seconds) (if seconds (max 1 (round (* 1000 seconds))) 0)))
    (let ((types (get :types '(text binary))))
      (vector (or (get :max-message porter-web-socket-max-message) 0)
              (ms (get :ping-interval porter-web-socket-ping-interval))
              (ms (or (get :ping-timeout porter-web-socket-ping-timeout) 20))
              (ms (or (get :close-timeout porter-web-socket-close-timeout) 5))
              (get :high-water porter-web-socket-high-water)
              (get :max-unsent porter-web-socket-max-unsent)
              (get :compress-min 256)
              (if agreed (car agreed) 0)
              (if agreed 1 0)
              (+ (if (memq 'text types) 0 1)
                 (if (memq 'binary types) 0 2)
                 (if (plist-get options :on-pong) 4 0))))))

(defun porter--takes-type-p (function)
  "Does FUNCTION take a third argument?"
  (let ((most (if (fboundp 'func-arity)
                  (cdr (func-arity function))
                'many)))
    (or (eq most 'many) (and (integerp most) (>= most 3)))))

(defun porter-web-socket-connect (request handler &rest options)
  "Make the connection of REQUEST a WebSocket, and return its process.
HANDLER is called with the process and each message, a string: multibyte for
a text message, unibyte for a binary one.  If it takes a third argument it also
gets the type, `text' or `binary'.

Return nil, and do nothing, if REQUEST does not ask for a WebSocket.  If it asks
in a way that has to be refused, send the refusal and leave the handler of
REQUEST.  OPTIONS is a plist:

`:on-open' FUNCTION    called with the process, before this returns
`:on-close' FUNCTION   called with the process, the close code and the
                     reason, once, whatever ends it; the code is 1006 if
                     the client just vanished
`:on-error' FUNCTION   called with the process and an error of HANDLER or
                     of one of these functions; it is logged in any case
`:on-drain' FUNCTION   called with the process when the client has read half
                     of what had made `porter-web-socket-send' return `full'
`:on-pong' FUNCTION    called with the process and the data of a pong
`:protocols' LIST      subprotocols, best first, or a function of what the
                     client offers; see `porter-web-socket-protocol'
`:origins' LIST        origins such as \"https://example.org\" whose pages may
                     connect besides the server's own; t for all, or a
                     function of the origin; see `porter-allowed-origins'
`:types' LIST          the types taken, by default (text binary); others
                     end the WebSocket with 1003
`:compress' BOOL       agree to permessage-deflate
`:compress-min' BYTES  what is smaller is not compressed; 256 by default

and `:max-message', `:ping-interval', `:ping-timeout', `:close-timeout',
`:high-water' and `:max-unsent', for which see the options with the prefix
`porter-web-socket-'."
  (let* ((id (porter--id request))
         (process (if (porter-process-p request)
                      request
                    (aref request porter--request-process-index)))
         (server (aref porter--server-table (logand id 255))))
    (unless (functionp handler)
      (signal 'wrong-type-argument (list 'functionp handler)))
    (porter--socket-check-options options)
    (when (or (porter--header-token-p id "upgrade" "websocket")
              (porter--mod-header id "sec-websocket-key"))
      (let ((refusal (porter--socket-refusal
                      id (porter--socket-option
                          options :origins
                          (and server (porter-server-origins server))))))
        (if (null refusal)
            (porter--socket-open process handler options)
          (porter--answer-plain id (car refusal) (concat (cadr refusal) "\n")
                                (cddr refusal))
          (when (eq id porter--running)
            (throw 'close-connection nil)))))))

(defun porter--socket-open (process handler options)
  "Send the 101 to PROCESS and remember HANDLER and OPTIONS.
Return PROCESS, or nil when its client has gone."
  (let* ((id (porter-process-id process))
         (agreed (and (plist-get options :compress) (porter--deflate-agree id)))
         (protocol (porter--socket-choose-protocol id (plist-get options :protocols)))
         (accept (base64-encode-string
                  (secure-hash 'sha1
                               (concat (porter--mod-header id "sec-websocket-key")
                                       porter--socket-guid)
                               nil nil t))))
    (when (porter--mod-socket-open
           id
           `(("Sec-WebSocket-Accept" . ,accept)
             ,@(and protocol `(("Sec-WebSocket-Protocol" . ,protocol)))
             ,@(and agreed `(("Sec-WebSocket-Extensions" . ,(cdr agreed)))))
           (porter--socket-options options agreed))
      (puthash id (porter--socket-make
                   :process process :handler handler
                   :typed (porter--takes-type-p handler)
                   :protocol protocol
                   :on-close (plist-get options :on-close)
                   :on-error (plist-get options :on-error)
                   :on-drain (plist-get options :on-drain)
                   :on-pong (plist-get options :on-pong))
               porter--sockets)
      (porter--forget-close-functions id)
      (when (plist-get options :on-open)
        (funcall (plist-get options :on-open) process))
      process)))

(defun porter-web-socket-protocol (process)
  "The subprotocol that was agreed on for WebSocket PROCESS, or nil."
  (let ((socket (gethash (porter--id process) porter--sockets)))
    (and socket (porter--socket-protocol socket))))

;;;; Sending

;; Inline, as what is done for every message is mostly calls of functions.

(defsubst porter--socket-opcode (type)
  "The opcode for messages of TYPE."
  (if (memq type '(nil text)) 1
    (if (eq type 'binary) 2
      (signal 'porter-error (list "Not a type of message" type)))))

(defsubst porter--socket-sent (process result)
  "RESULT of sending to PROCESS, or the error for it."
  (if (or result (not porter-web-socket-strict))
      result
    (signal 'porter-closed (list process))))

(defun porter-web-socket-send (process string &optional type)
  "Send STRING as one message to PROCESS, a WebSocket.
TYPE is `text', the default, or `binary'.  A multibyte STRING goes out as
UTF-8, a unibyte one as it is; for text it must be UTF-8.

Return t; `full' when so much waits for the client to read that more should
wait, see `:on-drain' of `porter-web-socket-connect'; nil when PROCESS is not
open any more, see `porter-web-socket-strict'."
  (porter--socket-sent
   process
   (porter--mod-socket-send (porter--id process) string
                            (porter--socket-opcode type))))

(defun porter-web-socket-ping (process &optional string)
  "Send a ping with STRING, of 125 bytes at most, to PROCESS, a WebSocket.
`:on-pong' of `porter-web-socket-connect' gets the answer.  Return as
`porter-web-socket-send' does."
  (porter--socket-sent
   process (porter--mod-socket-send (porter--id process) (or string "") 9)))

(defun porter-web-socket-close (process &optional code reason)
  "Close PROCESS, a WebSocket, with CODE, 1000 by default, and REASON.
REASON is a string of 123 bytes at most.  `:on-close' is called when the client
has answered.  Return nil when it was closed before."
  (porter--mod-socket-close (porter--id process) (or code 1000) (or reason "")))

(defun porter-broadcast (processes string &optional type)
  "Send STRING to all of PROCESSES, a list of WebSockets.
TYPE is as for `porter-web-socket-send'.  The message is framed once, all
share its memory, and writing is left to the loop thread.  Those that are closed
are passed over.  Return how many it was sent to."
  (unless (listp processes)
    (signal 'wrong-type-argument (list 'listp processes)))
  (porter--mod-socket-broadcast (vconcat (mapcar #'porter--id processes))
                                string (porter--socket-opcode type)))

;;;; Topics

(defvar porter--topics (make-hash-table :test #'equal)
  "The WebSockets of each topic that has any: a hash table with their ids as keys.")

(defun porter-subscribe (process topic)
  "From now on PROCESS, a WebSocket, gets what `porter-publish' sends to TOPIC.
TOPIC is a string or anything else that `equal' compares.  All servers share
the topics.  A WebSocket leaves its topics when it closes.
Return t, or nil when PROCESS is not open any more; see also
`porter-web-socket-strict'."
  (let* ((id (porter--id process))
         (socket (gethash id porter--sockets)))
    (when socket
      (puthash id t (or (gethash topic porter--topics)
                        (puthash topic (make-hash-table) porter--topics)))
      (cl-pushnew topic (porter--socket-topics socket) :test #'equal))
    (porter--socket-sent process (and socket t))))

(defun porter-unsubscribe (process topic)
  "PROCESS, a WebSocket, no longer gets what is sent to TOPIC.
Return t if it did."
  (let* ((id (porter--id process))
         (socket (gethash id porter--sockets)))
    (when (and socket (member topic (porter--socket-topics socket)))
      (setf (porter--socket-topics socket)
            (remove topic (porter--socket-topics socket)))
      (porter--topic-leave id topic)
      t)))

(defun porter--topic-leave (id topic)
  "Take WebSocket ID out of TOPIC, and forget TOPIC if it was the last one."
  (let ((ids (gethash topic porter--topics)))
    (remhash id ids)
    (when (zerop (hash-table-count ids))
      (remhash topic porter--topics))))

(defun porter-publish (topic string &optional type)
  "Send STRING to the WebSockets that have subscribed to TOPIC.
TYPE is as for `porter-web-socket-send', and STRING is sent as
`porter-broadcast' does.  Return how many it was sent to."
  (let ((members (gethash topic porter--topics))
        ids)
    (when members
      (maphash (lambda (id _) (push id ids)) members))
    (porter--mod-socket-broadcast (vconcat ids) string (porter--socket-opcode type))))

;;;; What comes

(defun porter--socket-failed (err)
  "A function of the WebSocket that is being served signalled ERR."
  (let* ((socket (gethash porter--running porter--sockets))
         (on-error (and socket (porter--socket-on-error socket))))
    (porter--log (aref porter--server-table (logand porter--running 255))
                 "WebSocket: %s" (error-message-string err))
    (when on-error
      (let ((inhibit-quit nil))
        (with-demoted-errors "Porter: on-error function: %S"
          (funcall on-error (porter--socket-process socket) err))))
    nil))

(defmacro porter--socket-call (id &rest body)
  "Run BODY, a call of the user's function for WebSocket ID."
  (declare (indent 1))
  `(let ((porter--running ,id))
     (catch 'close-connection
       (porter--protect #'porter--socket-failed ,@body))))

(defun porter--socket-message (event)
  "Deal with EVENT, (ID . STRING) or (-1 - ID . STRING): a text or binary message."
  (let* ((binary (< (car event) 0))
         (id (if binary (lognot (car event)) (car event)))
         (socket (gethash id porter--sockets)))
    (when socket
      (porter--socket-call id
        (if (porter--socket-typed socket)
            (funcall (porter--socket-handler socket) (porter--socket-process socket)
                     (cdr event) (if binary 'binary 'text))
          (funcall (porter--socket-handler socket) (porter--socket-process socket)
                   (cdr event)))))))

(defun porter--socket-closed (id code reason)
  "WebSocket ID is closed, with CODE and REASON."
  (let* ((socket (gethash id porter--sockets))
         (on-close (and socket (porter--socket-on-close socket))))
    (when on-close
      ;; Once, also if all ends while it waits for something.
      (setf (porter--socket-on-close socket) nil)
      (porter--socket-call id
        (funcall on-close (porter--socket-process socket) code reason)))
    ;; Last, for the function may have subscribed it to something.
    (when socket
      (dolist (topic (porter--socket-topics socket))
        (porter--topic-leave id topic)))
    (remhash id porter--sockets)))

(defun porter--socket-event (event)
  "Deal with EVENT of a WebSocket that is no message; see `porter--mod-take'."
  (let ((id (car event))
        (what (cdr event)))
    (if (integerp (car what))
        (porter--socket-closed id (car what) (cdr what))
      (let* ((socket (gethash id porter--sockets))
             (pong (eq (car what) 'pong))
             (function (and socket (if pong
                                       (porter--socket-on-pong socket)
                                     (porter--socket-on-drain socket)))))
        (when function
          (porter--socket-call id
            (if pong
                (funcall function (porter--socket-process socket) (cdr what))
              (funcall function (porter--socket-process socket)))))))))

(defun porter--sockets-shutdown ()
  "The loop thread has ended, and all WebSockets with it."
  (let (ids)
    (maphash (lambda (id _socket) (push id ids)) porter--sockets)
    (dolist (id ids)
      (porter--socket-closed id 1001 "the server stops"))))

(provide 'porter-websocket)
;;; porter-websocket.el ends here
