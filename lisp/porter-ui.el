;;; porter-ui.el --- What people see of Porter: the list, prompts, announcements  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; `porter-list' shows the running servers, live.  `porter-browse' opens one.  The functions
;; `porter-ui-read-start', `porter-ui-read-server' and `porter-ui-announce' are what the commands
;; in porter.el ask and say with.
;;
;; Nothing here serves anything, and nothing here requires porter.el: it is loaded when a command
;; needs it.  Written for Emacs 25.1 and later.

;;; Code:

(require 'tabulated-list)
(eval-when-compile (require 'subr-x))

(declare-function porter-servers "porter")
(declare-function porter-stop "porter")
(declare-function porter-url "porter")
(declare-function porter-port "porter")
(declare-function porter-server-statistics "porter")
(declare-function porter-server-p "porter-dispatch" t t)
(declare-function porter-server-host "porter-dispatch" t t)
(declare-function porter-server-name "porter-dispatch" t t)
(declare-function porter-server-started "porter-dispatch" t t)
(declare-function porter-server-log-buffer "porter-dispatch" t t)

(defvar porter-demo-handlers)
;; Also for those who only say (require 'porter).
(autoload 'porter-demo "porter-demo" "Serve a page of examples, and tell its URL." t)

(defcustom porter-list-refresh-seconds 1
  "Seconds between two refreshes of a visible `porter-list' buffer.
nil means refresh only when asked to."
  :type '(choice (number :tag "Seconds") (const :tag "Only when asked" nil))
  :group 'porter)

(defconst porter-ui-default-port 8080
  "The port offered first when a command asks for one.")

(defface porter-list-address
  '((t :inherit link))
  "Face for the address of a server in `porter-list'."
  :group 'porter)

(defface porter-list-errors
  '((t :inherit error))
  "Face for a number of errors that is not zero."
  :group 'porter)

(defface porter-list-quiet
  '((t :inherit shadow))
  "Face for zeros and remarks in `porter-list'."
  :group 'porter)

;;; Asking

(defun porter-ui--label (server)
  "Return what stands for SERVER in a completion list."
  (let ((url (porter-url server))
        (name (porter-server-name server)))
    (if (or (null name) (string-empty-p (format "%s" name)))
        url
      (format "%s  (%s)" url name))))

(defun porter-ui-read-server (prompt)
  "Ask with PROMPT for a running server and return it.
The only one is returned without asking.  Signal `user-error'
when none runs."
  (require 'porter)
  (let ((servers (porter-servers)))
    (cond
     ((null servers)
      (user-error "No Porter server is running; `M-x porter-start' starts one"))
     ((null (cdr servers)) (car servers))
     (t
      (let* ((choices (mapcar (lambda (server) (cons (porter-ui--label server) server)) servers))
             (answer (completing-read prompt choices nil t nil nil (caar choices))))
        (cdr (assoc answer choices)))))))

(defun porter-ui--free-port-p (port)
  "Non-nil when nothing listens on PORT of the loopback address."
  (condition-case nil
      (let ((probe (make-network-process :name "porter-probe" :server t :noquery t
                                         :family 'ipv4 :host "127.0.0.1" :service port)))
        (delete-process probe)
        t)
    (file-error nil)))

(defun porter-ui-free-port (&optional port)
  "Return PORT, default 8080, or the next port above it that is free.
Look at a hundred ports at most; 0, which means any, is the answer
when all of them are taken."
  (let* ((first (or port porter-ui-default-port))
         (end (min 65536 (+ first 100)))
         (at first))
    (while (and (< at end) (not (porter-ui--free-port-p at)))
      (setq at (1+ at)))
    (if (< at end) at 0)))

(defun porter-ui--read-port ()
  "Ask for a port to listen on; offer 8080 or the next free one."
  (let ((port nil)
        (offered (porter-ui-free-port)))
    (while (not (and (integerp port) (<= 0 port 65535)))
      (setq port (read-number "Port (0 for any free one): " offered)))
    port))

(defun porter-ui--directory-handlers (directory)
  "Return the handlers that serve the files below DIRECTORY."
  (list (list "/" :directory (expand-file-name directory))))

(defun porter-ui--read-function ()
  "Ask for the name of a handler, a function of one argument."
  (let* ((here (let ((symbol (function-called-at-point)))
                 (and symbol (fboundp symbol) (symbol-name symbol))))
         (name (completing-read
                (if here (format "Handler function (default %s): " here) "Handler function: ")
                obarray
                (lambda (symbol)
                  (and (fboundp symbol)
                       (not (macrop symbol))
                       (not (special-form-p symbol))))
                t nil nil here))
         (function (intern name)))
    (when (string-empty-p name)
      (user-error "A handler function is needed"))
    function))

(defun porter-ui-read-start ()
  "Ask what to serve and on which port.
Return a list (HANDLERS PORT), the arguments of `porter-start'."
  (let* ((what (completing-read "Serve (demo, directory, function): "
                                '("demo" "directory" "function") nil t nil nil "demo"))
         (handlers
          (pcase what
            ("directory"
             (porter-ui--directory-handlers
              (read-directory-name "Directory to serve: " nil nil t)))
            ("function" (porter-ui--read-function))
            (_ (require 'porter-demo)
               porter-demo-handlers))))
    (list handlers (porter-ui--read-port))))

;;; Saying

(defun porter-ui--web-url (server)
  "Return the URL of SERVER for a browser, or signal `user-error'."
  (let ((url (porter-url server)))
    (unless (string-match-p "\\`https?://" url)
      (user-error "No browser opens %s" url))
    url))

(defun porter-ui-announce (server)
  "Show the URL of SERVER, copy it, and open it after \\[universal-argument].
Return SERVER."
  (let ((url (porter-url server)))
    (unless noninteractive
      (kill-new url))
    (when (and current-prefix-arg (not noninteractive))
      (browse-url (porter-ui--web-url server)))
    (message "Porter serves %s (copied)" url)
    server))

;;;###autoload
(defun porter-browse (server)
  "Open SERVER, one of those running, in a browser."
  (interactive (list (porter-ui-read-server "Browse server: ")))
  (browse-url (porter-ui--web-url server)))

;;; The list

(defvar-local porter-list--timer nil
  "The timer that refreshes this buffer, nil while it is out of sight.")

(defvar-local porter-list--text 'none
  "What the buffer shows now, a list of cells for each line.")

(defvar porter-list-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map tabulated-list-mode-map)
    (define-key map "k" #'porter-list-stop)
    (define-key map "b" #'porter-list-browse)
    (define-key map (kbd "RET") #'porter-list-browse)
    (define-key map "w" #'porter-list-copy)
    (define-key map "l" #'porter-list-log)
    (define-key map "+" 'porter-start)
    map)
  "Keymap of `porter-list-mode'.")

(defun porter-list--since (time)
  "Return TIME, when a server was started, in a few characters."
  (if (equal (format-time-string "%F" time) (format-time-string "%F"))
      (format-time-string "%H:%M:%S" time)
    (format-time-string "%d %b %H:%M" time)))

(defun porter-list--number (number &optional face)
  "Return NUMBER as text, in FACE unless it is zero."
  (cond ((not (integerp number)) (propertize "-" 'face 'porter-list-quiet))
        ((zerop number) (propertize "0" 'face 'porter-list-quiet))
        (face (propertize (number-to-string number) 'face face))
        (t (number-to-string number))))

(defun porter-list--address (server)
  "Return where SERVER listens, for people."
  (let ((url (porter-url server)))
    (cond ((member (porter-server-host server) '("0.0.0.0" "::"))
           (format "*:%d" (porter-port server))) ; who is in the network reaches it too
          ((string-match "\\`https?://\\([^/]+\\)/?\\'" url)
           (match-string 1 url))
          (t url))))

(defun porter-list--entry (server)
  "Return the line of the list for SERVER."
  (let ((statistics (porter-server-statistics server)))
    (list server
          (vector (list (porter-list--address server)
                        'face 'porter-list-address
                        'follow-link t
                        'help-echo "Open this server in a browser"
                        'action (lambda (_button) (browse-url (porter-ui--web-url server))))
                  (format "%s" (or (porter-server-name server) ""))
                  (porter-list--since (porter-server-started server))
                  (porter-list--number (plist-get statistics :connections))
                  (porter-list--number (plist-get statistics :requests))
                  (porter-list--number (plist-get statistics :errors) 'porter-list-errors)))))

(defun porter-list--entries ()
  "Return the lines of the list, one for each running server."
  (mapcar #'porter-list--entry (porter-servers)))

(defun porter-list--by-number (column)
  "Return a predicate for lines of the list: less by the number in COLUMN."
  (lambda (one other)
    (< (string-to-number (aref (cadr one) column))
       (string-to-number (aref (cadr other) column)))))

(defun porter-list--by-start (one other)
  "Non-nil when the server of line ONE was started before that of OTHER."
  (time-less-p (porter-server-started (car one)) (porter-server-started (car other))))

;; Cells are compared, not servers: `equal' on a server would walk through its handlers.
(defun porter-list--text (entries)
  "Return what ENTRIES show, to compare it with what they showed before."
  (mapcar (lambda (entry)
            (mapcar (lambda (cell) (if (consp cell) (car cell) cell)) (cadr entry)))
          entries))

(defun porter-list--print (&optional force)
  "Show the servers as they are now.
Redraw only when something changed, or with FORCE; every window
on the buffer keeps its place."
  (let* ((entries (porter-list--entries))
         (text (porter-list--text entries)))
    (when (or force (not (equal text porter-list--text)))
      (let ((places (mapcar (lambda (window)
                              (save-excursion
                                (goto-char (window-point window))
                                (list window (line-number-at-pos) (current-column))))
                            (get-buffer-window-list nil nil t))))
        (setq porter-list--text text
              tabulated-list-entries entries)
        (tabulated-list-print t)
        (unless entries
          (let ((inhibit-read-only t))
            (insert (propertize "No server is running; + starts one.\n"
                                'face 'porter-list-quiet))
            (goto-char (point-min))))
        (dolist (place places)
          (unless (eq (car place) (selected-window))
            (save-excursion
              (goto-char (point-min))
              (forward-line (1- (nth 1 place)))
              (move-to-column (nth 2 place))
              (set-window-point (car place) (point)))))))))

(defun porter-list--revert (&rest _)
  "Show the servers as they are now, for `revert-buffer'."
  (porter-list--print t))

(defun porter-list--stop-timer ()
  "Stop refreshing this buffer."
  (when porter-list--timer
    (cancel-timer porter-list--timer)
    (setq porter-list--timer nil)))

(defun porter-list--tick (buffer timer-cell)
  "Refresh BUFFER, or end the timer in TIMER-CELL when nobody sees it."
  (if (and (buffer-live-p buffer) (get-buffer-window buffer 'visible))
      (with-current-buffer buffer
        ;; Not under the hands of somebody who marks a region or answers a question.
        (unless (or (region-active-p) (active-minibuffer-window))
          (porter-list--print)))
    (cancel-timer (car timer-cell))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer (setq porter-list--timer nil)))))

(defun porter-list--start-timer ()
  "Refresh this buffer from now on for as long as it is visible."
  (when (and porter-list-refresh-seconds
             (null porter-list--timer)
             (get-buffer-window nil 'visible))
    (let ((cell (list nil)))
      (setcar cell (run-at-time porter-list-refresh-seconds porter-list-refresh-seconds
                                #'porter-list--tick (current-buffer) cell))
      (setq porter-list--timer (car cell)))))

(define-derived-mode porter-list-mode tabulated-list-mode "Porter"
  "Major mode of the list of running Porter servers.
The list is live while it is visible, see
`porter-list-refresh-seconds'.

\\{porter-list-mode-map}"
  ;; 78 columns in all.
  (setq tabulated-list-format
        (vector '("Address" 22 t)
                '("Name" 12 t)
                '("Since" 12 porter-list--by-start)
                (list "Connections" 11 (porter-list--by-number 3) :right-align t)
                (list "Requests" 9 (porter-list--by-number 4) :right-align t)
                (list "Errors" 6 (porter-list--by-number 5) :right-align t)))
  (setq tabulated-list-padding 1)
  (setq-local revert-buffer-function #'porter-list--revert)
  (add-hook 'kill-buffer-hook #'porter-list--stop-timer nil t)
  ;; The timer ends when the buffer is buried; this brings it back with the buffer.
  (add-hook 'window-configuration-change-hook #'porter-list--start-timer nil t)
  (tabulated-list-init-header))

(defun porter-list--server ()
  "Return the server of this line, or signal `user-error'."
  (let ((server (tabulated-list-get-id)))
    (unless (porter-server-p server)
      (user-error "No server on this line"))
    server))

(defun porter-list-stop ()
  "Stop the server of this line.
Ask first when clients are connected to it."
  (interactive)
  (let* ((server (porter-list--server))
         (open (or (plist-get (porter-server-statistics server) :connections) 0)))
    (when (or (zerop open)
              (yes-or-no-p (format "%s has %d open connection%s; stop it? "
                                   (porter-list--address server) open (if (= open 1) "" "s"))))
      (porter-stop server)
      (porter-list--print t)
      (message "Stopped %s" (porter-url server)))))

(defun porter-list-browse ()
  "Open the server of this line in a browser."
  (interactive)
  (browse-url (porter-ui--web-url (porter-list--server))))

(defun porter-list-copy ()
  "Copy the URL of the server of this line."
  (interactive)
  (let ((url (porter-url (porter-list--server))))
    (kill-new url)
    (message "Copied %s" url)))

(defun porter-list-log ()
  "Show the log of the server of this line."
  (interactive)
  (let* ((log (porter-server-log-buffer (porter-list--server)))
         (buffer (and log (get-buffer log))))
    (if buffer
        (pop-to-buffer buffer)
      (user-error "This server keeps no log"))))

;;;###autoload
(defun porter-list ()
  "Show the running Porter servers in a list that is kept up to date."
  (interactive)
  (require 'porter)
  (let ((buffer (get-buffer-create "*Porter*")))
    (with-current-buffer buffer
      (unless (derived-mode-p 'porter-list-mode)
        (porter-list-mode))
      (porter-list--print t))
    (pop-to-buffer buffer)
    (porter-list--start-timer)))

(provide 'porter-ui)
;;; porter-ui.el ends here
