;;; porter-dispatch.el --- Choose and call the handler  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What a user gives as HANDLERS is checked and turned into one function of a
;; request when a server starts, so that mistakes show there and not with the
;; first client.
;;
;; `porter--dispatch' runs it: an error becomes a 500 and a line in the log, a
;; quit a 503, and nothing of it gets out.

;;; Code:

(require 'porter-log)
(require 'porter-response)

(porter-module--declare)

(defcustom porter-show-backtrace nil
  "Non-nil means that the answer to a request shows the error of its handler.
That tells strangers about your code; use it while you write handlers."
  :type 'boolean
  :group 'porter
  :package-version '(porter . "1.0"))

(defconst porter--methods
  '(:GET :HEAD :POST :PUT :DELETE :OPTIONS :TRACE :PATCH :COPY :LOCK :MKCOL
    :MOVE :PROPFIND :PROPPATCH :SEARCH :UNLOCK :BIND :REBIND :UNBIND :ACL
    :REPORT :MKACTIVITY :CHECKOUT :MERGE :MKCALENDAR :LINK :UNLINK :PURGE)
  "The methods that Porter knows.
A matcher with another keyword is about the header of that name.")

(cl-defstruct (porter-server
               (:constructor porter--server-make)
               (:copier nil))
  "A running server, or one that has run."
  (name nil :read-only t)
  (number nil :documentation "Its number in C; nil when it is gone.")
  (route-list nil :documentation "HANDLERS as given to `porter-start'.")
  (host nil :documentation "The host as given, or a socket's file name.")
  (port nil :documentation "The port it listens on; nil for a Unix socket.")
  (local nil :documentation "Non-nil for a Unix-domain socket.")
  (started nil :documentation "When it was started, a Lisp time.")
  (origins nil :documentation "Whose pages may open WebSockets.")
  (log-buffer nil :documentation "Where its log goes, a buffer or a name.")
  (listening nil :documentation "Non-nil until it is stopped.")
  (last-statistics nil :documentation "Its statistics when it went.")
  (function nil :documentation "What HANDLERS were made into.")
  (compiled-entries nil :documentation "Those of HANDLERS that C answers.")
  (route-entries nil :documentation "Their numbers.")
  (named-entries nil :documentation "Entries by ((KIND . PATH) . NUMBER).")
  (reload-directories nil :documentation "Directories whose pages are loaded anew.")
  (last-entry 0 :documentation "The number that an entry got last."))

(declare-function porter--enter-routes "porter-static" (server))

(defvar porter--in-front nil
  "Non-nil while no route in Lisp has come, of the handlers being compiled.")

(defvar porter--entries nil
  "The vectors of routes that C answers, of the handlers being compiled.
The last comes first.")

(defun porter-server-handlers (server)
  "The handlers of SERVER, as `porter-start' takes them.
They may be set; requests that come from then on get the new ones."
  (porter-server-route-list server))

(gv-define-setter porter-server-handlers (handlers server)
  `(porter--set-handlers ,server ,handlers))

(defun porter--set-handlers (server handlers)
  "Let SERVER answer by HANDLERS from now on."
  (let* ((porter--entries nil)
         (function (porter--compile-handlers handlers)))
    (setf (porter-server-function server) function)
    (setf (porter-server-compiled-entries server) (nreverse porter--entries))
    (setf (porter-server-route-list server) handlers)
    (when (porter-server-listening server)
      (porter--enter-routes server))
    handlers))

(defvar porter--server-table (make-vector 256 nil)
  "The servers by their number in C, also stopped ones with open answers.")

;;;; Matchers

(defvar byte-compile-warnings)
(defvar byte-compile-verbose)

(defun porter--compile-function (function)
  "FUNCTION, made fast where that does not change what it means.
A quoted lambda would have its macros expanded again at each call."
  (cond
   ((eq (car-safe function) 'lambda)
    (let ((lexical-binding nil)
          (byte-compile-warnings nil)
          (byte-compile-verbose nil)
          (inhibit-message t))
      (or (ignore-errors (byte-compile function)) function)))
   ((or (functionp function)
        ;; May be defined later, and over again.
        (and (symbolp function) function (not (keywordp function))))
    function)
   (t (signal 'porter-bad-handlers (list "Not a function" function)))))

(defun porter--methods-test (methods)
  "Return a predicate: is its argument one of METHODS?
METHODS is a method keyword, t or a list of keywords."
  (dolist (method (if (listp methods) methods (list methods)))
    (unless (or (eq method t) (memq method porter--methods))
      (signal 'porter-bad-handlers (list "Not a method" method))))
  (let ((methods (if (listp methods) methods (list methods))))
    (cond ((memq t methods) (lambda (_method) t))
          ((memq :GET methods)
           (lambda (method) (or (memq method methods) (eq method :HEAD))))
          (t (lambda (method) (memq method methods))))))

(defun porter--route-regexp (pattern)
  "The regexp for route PATTERN, and the list of its names: (REGEXP . NAMES)."
  (let ((at 0) (regexp "\\`") names)
    (while (string-match "\\([:*]\\)\\([[:alnum:]_-]+\\)" pattern at)
      (setq regexp (concat regexp
                           (regexp-quote (substring pattern at (match-beginning 0)))
                           (if (equal (match-string 1 pattern) ":")
                               "\\([^/]+\\)"
                             "\\(\\(?:.\\|\n\\)*\\)")))
      (push (match-string 2 pattern) names)
      (setq at (match-end 0)))
    (cons (concat regexp (regexp-quote (substring pattern at)) "\\'")
          (nreverse names))))

(defun porter--path-test (pattern route)
  "A function of a request and its path: does PATTERN match?
ROUTE non-nil means that PATTERN is a route, else it is a regexp or \"*\"."
  (cond
   ((not (stringp pattern))
    (signal 'porter-bad-handlers (list "Not a string" pattern)))
   ((equal pattern "*") (lambda (_request _path) t))
   (route
    (let* ((parsed (porter--route-regexp pattern))
           (regexp (car parsed))
           (names (cdr parsed)))
      (lambda (request path)
        (when (string-match regexp path)
          (let ((group 0))
            (aset request porter--request-parameters-index
                  (mapcar (lambda (name)
                            (cons name (match-string (cl-incf group) path)))
                          names)))
          t))))
   (t
    (condition-case err (string-match-p pattern "")
      (invalid-regexp
       (signal 'porter-bad-handlers
               (list "Invalid regexp" pattern (cadr err)))))
    (lambda (_request path) (string-match pattern path)))))

(defun porter--entry-p (handler)
  "Is HANDLER a route that C answers?"
  (and (stringp (car handler)) (memq (car-safe (cdr handler)) '(:directory :fixed))))

(defun porter--compile-entry (handler front)
  "HANDLER, a route that C answers, as a vector for `porter--compile-route'.
FRONT non-nil means that no route in Lisp comes before it.
The vector is [entry TEST HANDLER FRONT NUMBER]."
  (let* ((path (car handler))
         (prefix (if (string-suffix-p "/" path) path (concat path "/")))
         (bare (directory-file-name prefix))
         (entry (vector 'entry
                        (if (eq (cadr handler) :fixed)
                            (lambda (_request given) (string= path given))
                          (lambda (_request given)
                            (or (string-prefix-p prefix given) (string= bare given))))
                        handler front nil)))
    (unless (and (string-prefix-p "/" path) (stringp (nth 2 handler)))
      (signal 'porter-bad-handlers (list "Not a route for C" handler)))
    (push entry porter--entries)
    entry))

(defun porter--compile-route (handler)
  "HANDLER, one (MATCHER . FUNCTION), as a vector.
The vector is [KIND TEST METHODS-TEST METHODS FUNCTION].  KIND is `request'
with a TEST of the request, or `path' with a TEST of request and path; for
`entry' see `porter--compile-entry'."
  (unless (consp handler)
    (signal 'porter-bad-handlers (list "Not (MATCHER . FUNCTION)" handler)))
  (if (porter--entry-p handler)
      (porter--compile-entry handler porter--in-front)
    (setq porter--in-front nil)
    (porter--compile-lisp-route handler)))

(defun porter--compile-lisp-route (handler)
  "HANDLER, one (MATCHER . FUNCTION), as a vector: see `porter--compile-route'."
  (let* ((matcher (car handler))
         (function (porter--compile-function (cdr handler)))
         (key (car-safe matcher))
         (methods (and (consp matcher)
                       (or (eq key t) (memq key porter--methods)
                           (and (consp key) (not (functionp key)))))))
    (cond
     ((stringp matcher)
      (vector 'path (porter--path-test matcher t) (porter--methods-test t)
              '(t) function))
     ((and methods (eq (car-safe (cdr matcher)) :route))
      (vector 'path (porter--path-test (nth 2 matcher) t)
              (porter--methods-test key) (if (listp key) key (list key))
              function))
     (methods
      (vector 'path (porter--path-test (cdr matcher) nil)
              (porter--methods-test key) (if (listp key) key (list key))
              function))
     ((and (keywordp key) (stringp (cdr matcher)))
      (let ((regexp (cdr matcher)))
        (porter--path-test regexp nil)
        (vector 'request
                (if (equal regexp "*")
                    (lambda (request) (porter-request-header request key))
                  (lambda (request)
                    (let ((value (porter-request-header request key))
                          (case-fold-search t))
                      (and value (string-match regexp value)))))
                nil nil function)))
     ((or (functionp matcher) (and matcher (symbolp matcher)
                                   (not (keywordp matcher))))
      (vector 'request (porter--compile-function matcher) nil nil function))
     (t (signal 'porter-bad-handlers (list "Not a matcher" matcher))))))

(defun porter--allow (methods)
  "The value of Allow for METHODS, a list of keywords."
  (when (memq :GET methods) (push :HEAD methods))
  (mapconcat (lambda (method) (substring (symbol-name method) 1))
             (sort (delete-dups (cons :OPTIONS methods)) #'string<)
             ", "))

(defun porter--no-route (request method allowed)
  "Answer REQUEST, which no route takes.
METHOD is its method, ALLOWED the methods that routes to its path take."
  (let ((id (porter--id request)))
    (cond
     ((and (eq method :OPTIONS)
           (or allowed (equal (porter-request-path request) "*")))
      (porter--mod-respond
       id 204 (list (cons "Allow" (porter--allow (or allowed '(:GET :POST)))))
       nil))
     (allowed
      (porter--answer-plain id 405 "Method Not Allowed\n"
                            (list (cons "Allow" (porter--allow allowed)))))
     (t (porter--answer-plain id 404 "Not Found\n")))))

(defun porter--compile-handlers (handlers)
  "HANDLERS as one function of a request.
Signal `porter-bad-handlers' with what is wrong."
  (if (or (functionp handlers) (and handlers (symbolp handlers)))
      (porter--compile-function handlers)
    (unless (and (consp handlers) (null (cdr (last handlers))))
      (signal 'porter-bad-handlers (list "Not a function or an alist" handlers)))
    (let ((routes (let ((porter--in-front t))
                    (mapcar #'porter--compile-route handlers))))
      (lambda (request)
        (let* ((id (porter--request-id request))
               (line (porter--request-line request))
               (method (if line (car line) (porter--mod-method id)))
               (path (cdr line))
               (rest routes)
               (case-fold-search nil)
               function allowed)
          (while rest
            (let ((route (pop rest)))
              (pcase (aref route 0)
                ('request
                 (when (funcall (aref route 1) request)
                   (setq function (aref route 4))))
                ('entry
                 ;; One in front that lets pass what it does not have has been asked.
                 (when (and (funcall (aref route 1) request
                                     (or path (setq path (porter--mod-path id))))
                            (not (and (aref route 3)
                                      (plist-get (nthcdr 3 (aref route 2)) :pass))))
                   (setq function (lambda (_request)
                                    (porter--mod-serve id (aref route 4))))))
                (_
                 (when (funcall (aref route 1) request
                               (or path (setq path (porter--mod-path id))))
                   (if (funcall (aref route 2) method)
                       (setq function (aref route 4))
                     (setq allowed (append (aref route 3) allowed))))))
              (when function (setq rest nil))))
          (if function
              (progn
                (setq case-fold-search t)
                (funcall function request))
            (porter--no-route request method allowed)))))))

(defsubst porter--server-run (server request)
  "Give REQUEST to the handlers of SERVER, and return what they do."
  (funcall (porter-server-function server) request))

;;;; One request

(defvar porter--backtrace nil "The backtrace of the last error, a string.")

(defun porter--record-backtrace (_condition _data)
  "Keep the backtrace of what is just being signalled."
  (let ((signal-hook-function nil))
    (setq porter--backtrace
          (with-temp-buffer
            (let ((standard-output (current-buffer)))
              (backtrace))
            (buffer-string)))))

(defmacro porter--protect (on-error &rest body)
  "Run BODY, which may be quit, and let nothing but a throw out.
What it signals is given to ON-ERROR, a function, whose value is returned then.
With `debug-on-error' an error enters the debugger first."
  (declare (indent 1))
  `(condition-case err
       (condition-case-unless-debug err
           (let ((inhibit-quit nil)) ,@body)
         (error (funcall ,on-error err)))
     ;; A quit, or a condition that is no error by its definition.
     (t (funcall ,on-error err))))

(defun porter--describe (id)
  "Method and target of request ID, for the log."
  (format "%s %s" (substring (symbol-name (or (porter--mod-method id) '\??)) 1)
          (or (porter--mod-target id) "")))

(defun porter--handler-error (server id err)
  "The handler of request ID of SERVER signalled ERR."
  (let ((text (error-message-string err)))
    (porter--log server "%s: error: %s" (porter--describe id) text)
    (cond ((eq (car err) 'porter-too-large)
           ;; Found when the handler looked at it; it is the client's mistake.
           (porter--answer-plain id 413 "Content Too Large\n"))
          (porter-show-backtrace
           (porter--answer-plain id 500
                                 (format "Internal Server Error\n%s\n\n%s" text
                                         (or porter--backtrace ""))))
          (t (porter--answer-plain id 500 "Internal Server Error\n")))
    nil))

(defun porter--handler-quit (server id)
  "The handler of request ID of SERVER was quit."
  (porter--log server "%s: quit" (porter--describe id))
  (porter--answer-plain id 503 "The handler was interrupted\n"
                        '(("Retry-After" . "1")))
  nil)

(defsubst porter--handler-returned (server id value)
  "The handler of request ID of SERVER has returned VALUE."
  (cond
   ((eq value :keep-alive)
    ;; What was said so far goes out; with nothing said yet nothing happens.
    (porter--flush-growing id)
    (porter--mod-defer id))
   ((porter--mod-finish id t)
    (porter--forget-close-functions id))
   ((eql 0 (porter--mod-phase id))
    (porter--log server "%s: the handler sent no answer" (porter--describe id))
    (porter--answer-plain id 500 "The handler sent no answer\n"))))

(defun porter--run (id function argument)
  "Call FUNCTION with the server of request ID and ARGUMENT; see ID answered.
Called with `inhibit-quit' non-nil; FUNCTION can be quit.  Its value is that of
a handler.  It is no closure, which would be garbage for every request."
  (let* ((server (aref porter--server-table (logand id 255)))
         (porter--running id)
         (value (catch 'close-connection
                  (porter--protect (lambda (err)
                                     (if (memq 'quit (get (car err) 'error-conditions))
                                         (porter--handler-quit server id)
                                       (porter--handler-error server id err)))
                    (let ((signal-hook-function (if porter-show-backtrace
                                                    #'porter--record-backtrace
                                                  signal-hook-function)))
                      (funcall function server argument))))))
    (condition-case err
        (porter--handler-returned server id value)
      ;; Such as a head that got too large, or a log that cannot be written.  In a
      ;; batch Emacs an error that gets out of a filter is the end.
      (error (porter--mod-abort id)
             (let ((inhibit-message t))
               (message "Porter: %s" (error-message-string err)))))))

(defsubst porter--dispatch (id)
  "Run the handler for request ID."
  (porter--run id #'porter--server-run
               (porter--request-make (porter--process-make id))))

(defun porter--body-came (id piece)
  "PIECE of the body of request ID has come, a string; nil when it was the last."
  (let ((waiting (gethash id porter--body-functions)))
    (cond
     ((null waiting) (porter--mod-body-taken id (length piece)))
     ;; Its function waits for something: the pieces wait for it.
     ((porter--body-waiting-running waiting)
      (setf (porter--body-waiting-pieces waiting)
            (nconc (porter--body-waiting-pieces waiting) (list piece))))
     (t
      (setf (porter--body-waiting-running waiting) t)
      (porter--body-give id waiting piece)
      (while (porter--body-waiting-pieces waiting)
        (porter--body-give id waiting
                           (pop (porter--body-waiting-pieces waiting))))
      (setf (porter--body-waiting-running waiting) nil)))))

(defun porter--body-give (id waiting piece)
  "Give PIECE of the body of request ID to the function in WAITING.
Nothing if the answer is finished."
  (when (eq waiting (gethash id porter--body-functions))
    (unless piece (remhash id porter--body-functions))
    (porter--run id
                 (lambda (_server piece)
                   (let ((value (funcall (porter--body-waiting-function waiting)
                                         piece)))
                     ;; Before the end it does not matter what it returns.
                     (if piece :keep-alive value)))
                 piece))
  (porter--mod-body-taken id (length piece)))

(defun porter--client-gone (id)
  "Call the functions that wait for the client of request ID to leave."
  (remhash id porter--body-functions)
  (let ((functions (gethash id porter--close-functions)))
    (remhash id porter--close-functions)
    (dolist (function (nreverse functions))
      (porter--protect (lambda (err)
                         (porter--log nil "on-close function: %s"
                                      (error-message-string err)))
        (funcall function)))))

(provide 'porter-dispatch)
;;; porter-dispatch.el ends here
