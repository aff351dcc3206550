;;; porter.el --- Web server on a background thread  -*- lexical-binding: t; -*-

;; Author: The Porter developers
;; Version: 1.0
;; Package-Requires: ((emacs "25.1"))
;; Keywords: comm, hypermedia, processes

;; This program is free software: you can redistribute it and/or modify
;; it under the terms of the GNU General Public License as published by
;; the Free Software Foundation, either version 3 of the License, or
;; (at your option) any later version.
;;
;; This program is distributed in the hope that it will be useful,
;; but WITHOUT ANY WARRANTY; without even the implied warranty of
;; MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
;; GNU General Public License for more details.
;;
;; You should have received a copy of the GNU General Public License
;; along with this program.  If not, see <https://www.gnu.org/licenses/>.
;;
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A C module runs sockets and HTTP on a thread of its own; handlers written
;; in Lisp answer:
;;
;;     (porter-start (lambda (request)
;;                     (with-slots (process) request
;;                       (porter-response-header
;;                        process 200 '("Content-Type" . "text/plain"))
;;                       (porter-send process "hello")))
;;                   8080)
;;
;; Principles: nothing happens until a server is started, and all of it is
;; undone when the last one stops.  Nothing blocks Lisp.  What C can refuse
;; it refuses without Lisp.  Whatever a client or a handler does, the editor
;; and the other clients go on.

;;; Code:

(require 'porter-bridge)
(require 'porter-guard)
(require 'porter-event-stream)
(require 'porter-static)
(require 'porter-ui)

(porter-module--declare)

;;;; Options

(defcustom porter-host "localhost"
  "The host that servers listen on unless told otherwise.
\"localhost\" stands for the loopback addresses of IPv4 and IPv6.  Nil
stands for all addresses of this machine: anyone in the network can then
reach your Emacs."
  :type '(choice (const :tag "This machine only" "localhost")
                 (const :tag "All addresses" nil)
                 string)
  :risky t
  :group 'porter
  :package-version '(porter . "1.0"))

(defmacro porter--define-limits (&rest limits)
  "Define an option for each of LIMITS, (KEYWORD DEFAULT KIND DOC).
KIND is `count' for an integer or `time' for seconds."
  (declare (indent 0))
  `(progn
     ,@(mapcar
        (pcase-lambda (`(,keyword ,default ,kind ,doc))
          `(defcustom ,(intern (concat "porter-" (substring (symbol-name keyword) 1)))
             ,default
             ,(format "%s\nNil means no limit.  `porter-start' takes it as `%s'." doc keyword)
             :type '(choice (const :tag "No limit" nil)
                            ,(if (eq kind 'time) 'number 'natnum))
             :group 'porter
             :package-version '(porter . "1.0")))
        limits)
     (defconst porter--limits
       ',(mapcar (lambda (limit) (list (car limit) (nth 2 limit))) limits)
       "The limits in the order of `struct limits' in limits.h: (KEYWORD KIND).")))

(porter--define-limits
  (:max-target 8192 count
   "The longest request target in bytes; beyond it 414.")
  (:max-head 16384 count
   "The largest request head in bytes; beyond it 431.")
  (:max-fields 100 count
   "The most header lines of a request; beyond it 431.")
  (:max-body 67108864 count
   "The largest request body in bytes; beyond it 413.")
  (:spool-threshold 1048576 count
   "The size in bytes from which on a body goes to a temporary file.")
  (:head-timeout 10 time
   "The seconds that a request's head may take; beyond it 408.")
  (:body-timeout 15 time
   "The seconds without a byte of a body after which it is given up: 408.")
  (:idle-timeout 60 time
   "The seconds that a connection may wait for a next request.")
  (:write-timeout 30 time
   "The seconds without progress after which sending an answer is given up.")
  (:handler-timeout nil time
   "The seconds that a handler has to answer; beyond it 504.")
  (:stop-timeout 5 time
   "The seconds that answers under way get when their server stops.")
  (:max-connections 4096 count
   "The most connections of a server; others wait until one leaves.")
  (:max-connections-per-address nil count
   "The most connections from one address; beyond it 503.")
  (:max-requests-per-connection nil count
   "The most requests on one connection; then it is closed.")
  (:max-pipelined 64 count
   "The most unanswered requests on one connection; beyond it reading stops.")
  (:max-queue 1024 count
   "The most requests that wait for Lisp; beyond it 503.")
  (:queue-timeout 10 time
   "The seconds that a request waits for Lisp; beyond it 503.")
  (:max-open-files 1024 count
   "The most files that are open at once because they are being sent; beyond it 503."))

(defcustom porter-allowed-hosts nil
  "Names that the Host of a request may have besides loopback ones.
A server on loopback addresses answers 421 to all others, since a page in
the user's own browser can reach it under any name that its author has
pointed to 127.0.0.1.  For other servers nil means any Host.
A name with a port must be matched with it.  `porter-start' takes the list as
`:allowed-hosts'."
  :type '(repeat string)
  :risky t
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-allowed-origins nil
  "Origins, such as \"https://example.org\", whose pages may open WebSockets.
They are allowed besides the server's own; t means all.  To all others the
answer is 403, since any page that the user visits can try.  `porter-start'
takes the list as `:allowed-origins'."
  :type '(choice (const :tag "All" t) (repeat string))
  :risky t
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-spool-directory nil
  "The directory for the temporary files of large bodies.
Nil means the value of variable `temporary-file-directory'.
`porter-start' takes it as `:spool-directory'."
  :type '(choice (const :tag "The usual one" nil) directory)
  :risky t
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-trusted-proxies nil
  "Addresses of proxies that are believed when they say who a client is.
Each is an address, a network such as \"10.0.0.0/8\", or \"unix\" for
connections on a Unix-domain socket.  See `porter-request-remote' and
`porter-forwarded-header'.  `porter-start' takes it as `:trusted-proxies'."
  :type '(repeat string)
  :risky t
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-forwarded-header 'x-forwarded-for
  "The header in which trusted proxies say who a client is.
Choose the one that yours sets: another one it may let through from the
client.  `porter-start' takes it as `:forwarded-header'."
  :type '(choice (const x-forwarded-for) (const :tag "Forwarded (RFC 7239)" forwarded))
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-proxy-protocol nil
  "Non-nil means that connections begin with a header of the PROXY protocol.
Version 1 or 2; it says who the client is, and a connection without it is
refused.  Anyone who can connect can make one up, so let only the proxy connect.
`porter-start' takes it as `:proxy-protocol'."
  :type 'boolean
  :risky t
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-compress t
  "Non-nil means to compress answers for clients that can read gzip.
That is for text, JSON and the like of at least `porter-compress-min' bytes that
are sent whole.  Answers in pieces, such as event streams, are compressed only
when their handler says Content-Encoding: gzip, which it may do for any answer:
it sends plain strings all the same, and Porter compresses them if the client
can read that.  `porter-start' takes it as `:compress'."
  :type 'boolean
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-compress-min 1024
  "The size in bytes from which on answers are compressed.
`porter-start' takes it as `:compress-min'."
  :type 'natnum
  :group 'porter
  :package-version '(porter . "1.0"))

;;;; Arguments

(defun porter--compress-min (args)
  "The size from which on answers are compressed by ARGS, a plist; or nil."
  (let ((min (if (plist-member args :compress-min)
                 (plist-get args :compress-min)
               porter-compress-min)))
    (unless (natnump min)
      (signal 'porter-error (list "Invalid size" :compress-min min)))
    (and (if (plist-member args :compress)
             (plist-get args :compress)
           porter-compress)
         (max 1 min))))

(defconst porter--network-keywords
  '(:name :buffer :nowait :reuseaddr :noquery :log :sentinel :filter
    :filter-multibyte :plist :coding :type :server :service :keepalive :linger
    :dontroute :priority :stop :broadcast :bindtodevice)
  "Arguments of `make-network-process' that have no meaning here.
They are accepted, so that calls written for other servers work; the name is
even used.")

(defun porter--limits-vector (args)
  "The limits in ARGS, a plist, or else their defaults, for the module."
  (apply #'vector
         (mapcar
          (pcase-lambda (`(,keyword ,kind))
            (let ((value (if (plist-member args keyword)
                             (plist-get args keyword)
                           (symbol-value
                            (intern (concat "porter-" (substring (symbol-name keyword) 1)))))))
              (unless (or (null value)
                          (and (numberp value) (> value 0) (< value 1.0e+15)
                               (or (eq kind 'time) (integerp value))))
                (signal 'porter-error (list "Invalid limit" keyword value)))
              (cond ((null value) 0)
                    ((eq kind 'time) (max 1 (round (* 1000 value))))
                    (t value))))
          porter--limits)))

(defun porter--own-keyword-p (keyword)
  "Non-nil if KEYWORD is an argument of `porter-start' that is Porter's alone."
  (or (memq keyword '(:allowed-hosts :allowed-origins :log-format :log-file
                      :compress :compress-min :spool-directory :stream-bodies
                      :trusted-proxies :forwarded-header :proxy-protocol))
      (assq keyword porter--limits)))

(defun porter--check-keywords (args)
  "Signal `porter-error' for a keyword in ARGS that means nothing."
  (let ((rest args))
    (while rest
      (let ((keyword (pop rest)))
        (unless (or (memq keyword '(:host :family :backlog))
                    (porter--own-keyword-p keyword)
                    (memq keyword porter--network-keywords))
          (signal 'porter-error (list "Unknown keyword" keyword)))
        (unless rest
          (signal 'porter-error (list "Keyword without a value" keyword)))
        (pop rest)))))

(defun porter--trusted-proxies (args)
  "The proxies that ARGS, a plist, trust: (HEADER . NETWORKS), or nil."
  (let ((networks (if (plist-member args :trusted-proxies)
                      (plist-get args :trusted-proxies)
                    porter-trusted-proxies))
        (header (if (plist-member args :forwarded-header)
                    (plist-get args :forwarded-header)
                  porter-forwarded-header)))
    (unless (memq header '(x-forwarded-for forwarded))
      (signal 'porter-error (list "Invalid header" header)))
    (dolist (network networks)
      (unless (or (equal network "unix")
                  (porter--mod-network-has
                   network (replace-regexp-in-string "/.*" "" network)))
        (signal 'porter-error (list "Invalid network" network))))
    (and networks (cons header networks))))

(defun porter--listen (port log-buffer args)
  "Listen on PORT as ARGS, a plist, say; return (NUMBER PORT HOST LOCAL).
LOG-BUFFER is that of `porter-start'."
  (let* ((family (plist-get args :family))
         (local (eq family 'local))
         (host (if (plist-member args :host) (plist-get args :host) porter-host))
         (hosts (if (plist-member args :allowed-hosts)
                    (plist-get args :allowed-hosts)
                  porter-allowed-hosts))
         (backlog (or (plist-get args :backlog) 511))
         (trusted (porter--trusted-proxies args))
         listening)
    (when (eq host 'local) (setq host "localhost"))
    (when (eq port t) (setq port 0))
    (cond
     (local (unless (stringp port)
              (signal 'wrong-type-argument (list 'stringp port)))
            (setq host (expand-file-name port)))
     ((not (and (integerp port) (<= 0 port 65535)))
      (signal 'porter-error (list "Invalid port" port)))
     ((not (memq family '(nil ipv4 ipv6)))
      (signal 'porter-error (list "Invalid family" family)))
     ((not (or (null host) (stringp host)))
      (signal 'porter-error (list "Invalid host" host)))
     ((not (and (listp hosts) (cl-every #'stringp hosts)))
      (signal 'porter-error (list "Not a list of strings" :allowed-hosts hosts)))
     ((not (integerp backlog))
      (signal 'porter-error (list "Not an integer" :backlog backlog))))
    (setq listening
          (porter--mod-listen
           (and (not local) host)
           (pcase family ('ipv4 4) ('ipv6 6) (_ 0))
           (if local 0 port)
           (and local host)
           backlog
           (porter--limits-vector args)
           (apply #'vector (mapcar #'downcase hosts))
           (porter--log-vector log-buffer args)
           (directory-file-name
            (expand-file-name (or (plist-get args :spool-directory)
                                  porter-spool-directory
                                  temporary-file-directory)))
           (if (plist-member args :proxy-protocol)
               (plist-get args :proxy-protocol)
             porter-proxy-protocol)
           (porter--compress-min args)
           (apply #'vector (plist-get args :stream-bodies))))
    (aset porter--trusted-proxies (car listening) trusted)
    (list (car listening) (and (not local) (cdr listening))
          (or host "0.0.0.0") local)))

;;;; Start and stop

(defvar porter--servers nil "The servers that listen, newest first.")

(defun porter-servers ()
  "The servers that run, newest first."
  (copy-sequence porter--servers))

;;;###autoload
(defun porter-start (handlers port &optional log-buffer &rest network-args)
  "Start a server on PORT and return it, a `porter-server'.

HANDLERS is a function of one argument, the request, or an alist of
\(MATCHER . FUNCTION); the first match wins.  MATCHER is one of

  (METHOD . REGEXP)         METHOD such as `:GET', t for any, or a list;
                            REGEXP for the decoded path, \"*\" for any
  (HEADER . REGEXP)         HEADER such as `:HOST'
  \"/users/:id\"              a path with named parameters, any method;
                            \"*rest\" takes the rest of the path
  (METHOD :route \"/users/:id\")
  a function                of the request

Instead of (MATCHER . FUNCTION) there may be, served without Lisp,

  (PREFIX :directory DIRECTORY . OPTIONS)   see `porter-mount'
  (PATH :fixed BODY . OPTIONS)              see `porter-fix'

which work even while Lisp is busy if no other route is before them.

PORT is an integer; 0 or t for any free port, see `porter-port'; a file name
with `:family' `local'.  LOG-BUFFER, a buffer or its name, gets a line for
each answer and for each error of a handler, see `porter-log-format'; without
one errors go to *Messages*.

NETWORK-ARGS is a plist: `:host' (see `porter-host'; nil for all addresses),
`:family' (`ipv4', `ipv6', `local'), `:name', `:backlog', `:allowed-hosts',
`:allowed-origins', `:log-format', `:log-file' (a file to append the log to),
`:stream-bodies' (see `porter-request-on-body'), `:spool-directory',
`:trusted-proxies', `:forwarded-header', `:proxy-protocol', and the limits:
`:max-body' in bytes, `:idle-timeout' in seconds, and so on, see
`porter-max-body' and the other options.

Return at once; handlers run later, one at a time, whenever Emacs waits.
Signal `file-error' with the address if it cannot be bound, and
`porter-bad-handlers' if HANDLERS cannot be right.

Interactively, ask for what to serve and for the port, show the URL and put it
on the kill ring; with a prefix argument, open it in a browser."
  (interactive (porter-ui-read-start))
  (porter--check-keywords network-args)
  (let* ((porter--entries nil)
         (function (porter--compile-handlers handlers))
         server)
    (porter-module-load)
    (porter--let-stopped-go)
    (porter--bell-open)
    (add-hook 'kill-emacs-hook #'porter--shutdown)
    (pcase-let ((`(,number ,port ,host ,local)
                 (condition-case err
                     (porter--listen port log-buffer network-args)
                   (error (porter--close-if-unused)
                          (signal (car err) (cdr err))))))
      (setq server (porter--server-make
                    :name (or (plist-get network-args :name) "porter")
                    :number number :route-list handlers :host host :port port
                    :local local :started (current-time)
                    :log-buffer log-buffer :listening t
                    :origins (if (plist-member network-args :allowed-origins)
                                 (plist-get network-args :allowed-origins)
                               porter-allowed-origins)
                    :function function
                    :compiled-entries (reverse porter--entries)))
      (aset porter--server-table number server))
    (push server porter--servers)
    (condition-case err
        (porter--enter-routes server)
      (error (porter-stop server)
             (signal (car err) (cdr err))))
    (when (called-interactively-p 'any)
      (porter-ui-announce server))
    server))

(defun porter--let-stopped-go ()
  "When all numbers for servers are in use, wait a moment for stopped ones.
They are let go when Emacs waits, which a loop that starts and stops does not."
  (let ((tries 20))
    (while (and (> tries 0) (cl-every #'identity porter--server-table))
      (setq tries (1- tries))
      (accept-process-output porter--bell 0.05 nil t))))

(defun porter--close-if-unused ()
  "End the loop thread when no server needs it."
  (unless (or porter--servers (cl-some #'identity porter--server-table))
    (porter--bridge-close)
    (remove-hook 'kill-emacs-hook #'porter--shutdown)))

(defun porter--server-gone (number)
  "Server NUMBER, which was stopped, has no connections any more."
  (let ((server (aref porter--server-table number)))
    (when server
      (setf (porter-server-number server) nil)
      (aset porter--server-table number nil))
    ;; Not from here: the drain goes on in the module.
    (run-at-time 0 nil #'porter--close-if-unused)))

(defun porter-stop (server)
  "Stop SERVER.
It is not listening any more when this returns.  Answers under way are
finished first, within `porter-stop-timeout'."
  (interactive (list (porter-ui-read-server "Stop server: ")))
  (when (porter-server-listening server)
    (setf (porter-server-last-statistics server)
          (porter-server-statistics server))
    (setf (porter-server-listening server) nil)
    (setq porter--servers (delq server porter--servers))
    (porter--mod-stop (porter-server-number server))
    (when (called-interactively-p 'any)
      (message "Stopped %s" (porter-url server))))
  nil)

(defun porter-stop-all ()
  "Stop all servers."
  (interactive)
  (mapc #'porter-stop (porter-servers)))

(defun porter--shutdown ()
  "Stop everything, now: Emacs ends, or Porter is unloaded."
  (dolist (server (porter-servers))
    (setf (porter-server-listening server) nil))
  (setq porter--servers nil)
  (porter--bridge-close)
  (fillarray porter--server-table nil)
  (remove-hook 'kill-emacs-hook #'porter--shutdown))

(defun porter-unload-function ()
  "Stop everything before the feature `porter' is unloaded."
  (porter--shutdown)
  (dolist (buffer (buffer-list))
    (when (eq (buffer-local-value 'major-mode buffer) 'porter-list-mode)
      (kill-buffer buffer)))
  nil)

;;;; About servers

(defun porter-port (server)
  "The port that SERVER listens on; nil for a Unix-domain socket."
  (porter-server-port server))

(defun porter-url (server &optional path)
  "The URL of SERVER, with PATH, \"/\" by default.
For a Unix-domain socket \"unix:\" and its file name."
  (let ((host (porter-server-host server)))
    (if (porter-server-local server)
        (concat "unix:" host)
      (format "http://%s:%d%s"
              (cond ((member host '("0.0.0.0" "::" "localhost")) "127.0.0.1")
                    ((string-match-p ":" host) (format "[%s]" host))
                    (t host))
              (porter-server-port server)
              (or path "/")))))

(defun porter-server-statistics (server)
  "What SERVER has done, a plist.
`:connections' are open now; `:requests' were answered, of which `:errors'
with a status from 500 on or were refused; `:waiting' requests wait for Lisp."
  (let ((numbers (and (porter-server-number server)
                      (porter--mod-statistics (porter-server-number server)))))
    (if numbers
        (cl-mapcan #'list '(:connections :requests :errors :waiting) numbers)
      (or (porter-server-last-statistics server)
          '(:connections 0 :requests 0 :errors 0 :waiting 0)))))

(defun porter-live-p (object)
  "Is OBJECT alive?
A server while it listens; a request's process while its client is there and
its answer is not finished."
  (if (porter-server-p object)
      (porter-server-listening object)
    (porter--mod-live (porter--id object))))

(provide 'porter)
;;; porter.el ends here
