;;; porter-static.el --- Files, trees and fixed answers, served by C  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What is mounted or fixed is answered by the loop thread alone: Lisp is not
;; asked, and may be busy.  This file only tells the loop what there is.
;;
;; The loop has one table for each server.  What was mounted or fixed while
;; the server runs comes first, longer prefixes before shorter ones, then what
;; is at the front of the server's handlers, and then Lisp is asked.  An entry
;; that stands behind a handler in Lisp is known to the loop too, but it is
;; Lisp that finds it and sends the request back.

;;; Code:

(require 'porter-dispatch)
(require 'url-util)
(eval-when-compile (require 'subr-x))

(porter-module--declare)

(declare-function mailcap-parse-mimetypes "mailcap" (&optional path force))
(defvar mailcap-mime-extensions)

(defcustom porter-cache-control "no-cache"
  "The Cache-Control of files, or nil for none.
\"no-cache\" lets clients keep a file, but ask each time whether it is still
the same.  `:cache-control' in the options of a mount comes before this."
  :type '(choice (const :tag "None" nil) string)
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-mime-types nil
  "Types of files by extension, an alist like ((\"org\" . \"text/plain\")).
They come before those that Porter and Emacs know."
  :type '(alist :key-type (string :tag "Extension") :value-type (string :tag "Type"))
  :group 'porter
  :package-version '(porter . "1.0"))

;;;; Types

(defconst porter--web-types
  '(("html" . "text/html") ("htm" . "text/html") ("xhtml" . "application/xhtml+xml")
    ("css" . "text/css") ("js" . "text/javascript") ("mjs" . "text/javascript")
    ("cjs" . "text/javascript") ("json" . "application/json")
    ("map" . "application/json") ("jsonl" . "application/jsonl")
    ("webmanifest" . "application/manifest+json") ("wasm" . "application/wasm")
    ("xml" . "application/xml") ("rss" . "application/rss+xml")
    ("atom" . "application/atom+xml") ("svg" . "image/svg+xml")
    ("svgz" . "image/svg+xml") ("png" . "image/png") ("apng" . "image/apng")
    ("jpg" . "image/jpeg") ("jpeg" . "image/jpeg") ("gif" . "image/gif")
    ("webp" . "image/webp") ("avif" . "image/avif") ("bmp" . "image/bmp")
    ("ico" . "image/vnd.microsoft.icon") ("woff" . "font/woff")
    ("woff2" . "font/woff2") ("ttf" . "font/ttf") ("otf" . "font/otf")
    ("eot" . "application/vnd.ms-fontobject") ("mp4" . "video/mp4")
    ("m4v" . "video/mp4") ("webm" . "video/webm") ("ogv" . "video/ogg")
    ("mov" . "video/quicktime") ("mkv" . "video/x-matroska")
    ("mp3" . "audio/mpeg") ("m4a" . "audio/mp4") ("ogg" . "audio/ogg")
    ("oga" . "audio/ogg") ("opus" . "audio/ogg") ("flac" . "audio/flac")
    ("wav" . "audio/wav") ("aac" . "audio/aac") ("vtt" . "text/vtt")
    ("pdf" . "application/pdf") ("epub" . "application/epub+zip")
    ("zip" . "application/zip") ("gz" . "application/gzip")
    ("tgz" . "application/gzip") ("br" . "application/octet-stream")
    ("xz" . "application/x-xz") ("zst" . "application/zstd")
    ("tar" . "application/x-tar") ("7z" . "application/x-7z-compressed")
    ("txt" . "text/plain") ("text" . "text/plain") ("log" . "text/plain")
    ("md" . "text/markdown") ("markdown" . "text/markdown") ("csv" . "text/csv")
    ("tsv" . "text/tab-separated-values") ("ics" . "text/calendar")
    ("org" . "text/plain") ("el" . "text/plain") ("rst" . "text/plain")
    ("yaml" . "text/plain") ("yml" . "text/plain") ("toml" . "text/plain")
    ("ini" . "text/plain") ("conf" . "text/plain") ("diff" . "text/plain")
    ("patch" . "text/plain") ("c" . "text/plain") ("h" . "text/plain")
    ("cc" . "text/plain") ("cpp" . "text/plain") ("rs" . "text/plain")
    ("go" . "text/plain") ("py" . "text/plain") ("rb" . "text/plain")
    ("sh" . "text/plain") ("lisp" . "text/plain") ("scm" . "text/plain")
    ("ts" . "text/plain") ("tex" . "text/plain") ("bib" . "text/plain")
    ("elc" . "application/octet-stream") ("so" . "application/octet-stream")
    ;; Whole names.
    ("readme" . "text/plain") ("license" . "text/plain") ("copying" . "text/plain")
    ("news" . "text/plain") ("changelog" . "text/plain") ("authors" . "text/plain")
    ("todo" . "text/plain") ("install" . "text/plain") ("makefile" . "text/plain")
    ("dockerfile" . "text/plain"))
  "The types of files that the web needs.
They come before the ones of Emacs, whose tables are made for mail.")

(defun porter--mime-pairs ()
  "All types of files, a vector of extensions, each followed by its type."
  (require 'mailcap)
  (ignore-errors (mailcap-parse-mimetypes))
  (let ((seen (make-hash-table :test #'equal)) pairs)
    (dolist (table (list porter-mime-types porter--web-types mailcap-mime-extensions))
      (pcase-dolist (`(,extension . ,type) table)
        (let ((type (if (symbolp type) (symbol-name type) type))
              (key (downcase (string-remove-prefix "." extension))))
          (unless (or (equal key "") (gethash key seen)
                      (not (string-match-p "\\`[^ \t\r\n]+/[^\r\n]+\\'" type)))
            (puthash key t seen)
            (push key pairs)
            (push (if (and (string-prefix-p "text/" type)
                           (not (string-match-p ";" type)))
                      (concat type "; charset=utf-8")
                    type)
                  pairs)))))
    (vconcat (nreverse pairs))))

(defvar porter--mime-given nil
  "The value of `porter-mime-types' that the module knows, in a list.")

(defun porter--need-mime ()
  "Tell the module the types of files, unless it knows."
  (unless (and porter--mime-given (eq (car porter--mime-given) porter-mime-types))
    (porter--mod-mime (porter--mime-pairs))
    (setq porter--mime-given (list porter-mime-types))))

;;;; Entries

(defun porter--file-name (name)
  "NAME, a file, as the absolute name that the system knows, in bytes."
  (let ((file (expand-file-name name)))
    (when (file-remote-p file)
      (signal 'porter-error (list "Not a file of this machine" name)))
    (encode-coding-string (file-name-unquote file)
                          (or file-name-coding-system
                              default-file-name-coding-system 'utf-8))))

(defun porter--check-options (options known)
  "Signal `porter-error' for what in OPTIONS, a plist, is not in KNOWN."
  (let ((rest options))
    (while rest
      (unless (memq (car rest) known)
        (signal 'porter-error (list "Unknown option" (car rest))))
      (unless (cdr rest)
        (signal 'porter-error (list "Option without a value" (car rest))))
      (setq rest (cddr rest)))))

(defun porter--option (options keyword default)
  "What OPTIONS, a plist, say about KEYWORD, else DEFAULT."
  (if (plist-member options keyword) (plist-get options keyword) default))

(defun porter--cache-control (options)
  "The value of Cache-Control that OPTIONS ask for, or nil."
  (let ((value (porter--option options :cache-control porter-cache-control)))
    (cond ((integerp value) (format "max-age=%d" value))
          ((member value '(nil "")) nil)
          ((stringp value) value)
          (t (signal 'porter-error (list "Invalid option" :cache-control value))))))

(defun porter--mount-prefix (prefix)
  "PREFIX with a slash at both ends."
  (unless (and (stringp prefix) (string-prefix-p "/" prefix))
    (signal 'porter-error (list "Not a path" prefix)))
  (if (string-suffix-p "/" prefix) prefix (concat prefix "/")))

(defun porter--enter-directory (server number rank front prefix directory options)
  "Tell the loop of SERVER that entry NUMBER serves DIRECTORY at PREFIX.
RANK and FRONT say when it is asked; OPTIONS are those of `porter-mount'."
  (porter--check-options
   options '(:index :listing :dotfiles :links :cache-control :headers :fallback
                    :compressed :pass :reload))
  (unless (file-directory-p directory)
    (signal 'file-missing (list "Serving a directory" "No such directory" directory)))
  (porter--need-mime)
  (let ((index (porter--option options :index '("index.html" "index.htm"))))
    (porter--mod-mount
     (porter-server-number server) number rank front
     (encode-coding-string (porter--mount-prefix prefix) 'utf-8)
     (directory-file-name (porter--file-name directory))
     (vector (porter--cache-control options)
             (plist-get options :headers)
             (vconcat (if (listp index) index (list index)))
             (plist-get options :fallback)
             (pcase (porter--option options :links 'inside)
               ('nil 1) ('inside 2) ('t 3)
               (value (signal 'porter-error (list "Invalid option" :links value))))
             (plist-get options :dotfiles)
             (porter--option options :listing t)
             (porter--option options :compressed t)
             (plist-get options :pass)
             (plist-get options :reload)))
    (when (plist-get options :reload)
      (add-hook 'after-save-hook #'porter--reload-after-save)
      (push (porter--file-name (file-name-as-directory (file-truename directory)))
            (porter-server-reload-directories server)))))

(defun porter--reload-after-save ()
  "Have pages loaded anew that may be made of the file that was just saved."
  (let ((live nil)
        (file (and buffer-file-name (not (file-remote-p buffer-file-name))
                   (porter--file-name (file-truename buffer-file-name)))))
    (dolist (server (append porter--server-table nil))
      (when (and server (porter-server-listening server)
                 (porter-server-reload-directories server))
        (setq live t)
        (when (and file (cl-some (lambda (directory) (string-prefix-p directory file))
                                 (porter-server-reload-directories server)))
          (porter--mod-reload (porter-server-number server)
                              (string-suffix-p ".css" file t)))))
    (unless live
      (remove-hook 'after-save-hook #'porter--reload-after-save))))

(defun porter--enter-fixed (server number rank front path body options)
  "Tell the loop of SERVER that entry NUMBER answers PATH with BODY.
RANK and FRONT say when it is asked; OPTIONS are those of `porter-fix'."
  (porter--check-options options '(:type :status :headers :cache-control :compressed))
  (unless (and (stringp path) (string-prefix-p "/" path))
    (signal 'porter-error (list "Not a path" path)))
  (unless (stringp body)
    (signal 'wrong-type-argument (list 'stringp body)))
  (let ((status (porter--option options :status 200))
        (bytes (if (multibyte-string-p body) (encode-coding-string body 'utf-8) body)))
    (unless (and (integerp status) (<= 200 status 599) (not (memq status '(204 206 304))))
      (signal 'porter-invalid-status (list "Not for a fixed answer" status)))
    (porter--mod-fix
     (porter-server-number server) number rank front
     (encode-coding-string path 'utf-8) bytes
     (vector (porter--cache-control options)
             (plist-get options :headers)
             status
             (porter--option options :type "text/plain; charset=utf-8")
             ;; Of an error nobody keeps a copy.
             (and (< status 300)
                  (format "\"%s\"" (substring (secure-hash 'sha256 bytes) 0 24)))
             (porter--option options :compressed t)))))

(defun porter--enter (server number rank front spec)
  "Tell the loop of SERVER about SPEC, entry NUMBER.
SPEC is (PATH :directory DIRECTORY . OPTIONS) or (PATH :fixed BODY . OPTIONS).
RANK and FRONT say when it is asked."
  (pcase spec
    (`(,prefix :directory ,directory . ,options)
     (porter--enter-directory server number rank front prefix directory options))
    (`(,path :fixed ,body . ,options)
     (porter--enter-fixed server number rank front path body options))))

(defconst porter--rank-of-routes (ash 1 20)
  "The rank of the first entry of a server's handlers.
What was mounted or fixed by name has lower ones.")

(defun porter--enter-routes (server)
  "Tell the loop what it answers of the handlers of SERVER.
What it answered of earlier ones is taken away."
  (let ((old (porter-server-route-entries server))
        (rank porter--rank-of-routes)
        numbers)
    (dolist (entry (porter-server-compiled-entries server))
      (let ((number (cl-incf (porter-server-last-entry server))))
        (porter--enter server number rank (aref entry 3) (aref entry 2))
        (push number numbers)
        (aset entry 4 number)
        (cl-incf rank)))
    (setf (porter-server-route-entries server) numbers)
    (dolist (number old)
      (porter--mod-unmount (porter-server-number server) number))))

(defun porter--named-entry (server path kind)
  "The number for the entry of KIND at PATH of SERVER, a new one if need be."
  (let ((key (cons kind path)))
    (or (cdr (assoc key (porter-server-named-entries server)))
        (let ((number (cl-incf (porter-server-last-entry server))))
          (push (cons key number) (porter-server-named-entries server))
          number))))

(defun porter--check-listening (server)
  "Signal `porter-error' unless SERVER listens."
  (unless (and (porter-server-p server) (porter-server-listening server))
    (signal 'porter-error (list "Not a running server" server))))

(defun porter--named-rank (path kind)
  "The rank of the entry of KIND at PATH: the longest path is tried first."
  (- (ash 1 18) (* 2 (string-bytes path)) (if (eq kind :fixed) 1 0)))

;;;###autoload
(defun porter-mount (server prefix directory &rest options)
  "Serve the files below DIRECTORY at PREFIX of SERVER, a path.
The loop thread does it alone, also while Lisp is busy.  It comes before the
handlers of SERVER; among mounts the longest prefix wins.  Mounting at the
same PREFIX again replaces the mount, and `porter-unmount' ends it.

OPTIONS is a plist:
  `:index'          names of files that stand for their directory
                    (default (\"index.html\" \"index.htm\"))
  `:listing'        list directories without one (default t)
  `:dotfiles'       serve names that begin with a period, too
  `:links'          symbolic links: `inside' (default) follows those that
                    stay below DIRECTORY, nil none, t all
  `:cache-control'  a string, or seconds (default `porter-cache-control')
  `:headers'        an alist of further header lines
  `:compressed'     send FILE.br or FILE.gz for FILE to who takes it (default t)
  `:fallback'       a file below DIRECTORY, sent for what is not there
  `:pass'           non-nil leaves what is not there to the handlers
  `:reload'         non-nil has pages in browsers load themselves anew when
                    a file beside them changes, or is saved in Emacs

In HANDLERS of `porter-start' write (PREFIX :directory DIRECTORY . OPTIONS)."
  (porter--check-listening server)
  (setq prefix (porter--mount-prefix prefix))
  (porter--enter server (porter--named-entry server prefix :directory)
                 (porter--named-rank prefix :directory) t
                 `(,prefix :directory ,directory ,@options))
  nil)

(defun porter-unmount (server prefix)
  "End what `porter-mount' or `porter-fix' began at PREFIX of SERVER.
Return nil if there was nothing."
  (let (found)
    (pcase-dolist (`(,kind . ,path) (list (cons :directory (porter--mount-prefix prefix))
                                          (cons :fixed prefix)))
      (let ((entry (assoc (cons kind path) (porter-server-named-entries server))))
        (when entry
          (setq found t)
          (setf (porter-server-named-entries server)
                (delq entry (porter-server-named-entries server)))
          (when (porter-server-number server)
            (porter--mod-unmount (porter-server-number server) (cdr entry))))))
    found))

(defun porter-fix (server path body &rest options)
  "Answer PATH of SERVER with BODY, a string, from now on.
The loop thread does it alone, also while Lisp is busy.  It comes before the
handlers of SERVER.  Fixing the same PATH again replaces the answer at once
and as a whole, and `porter-unmount' ends it.

OPTIONS is a plist:
  `:type'           the Content-Type (default text/plain in UTF-8)
  `:status'         the status (default 200)
  `:cache-control'  a string, or seconds (default `porter-cache-control')
  `:headers'        an alist of further header lines
  `:compressed'     keep a form for clients that take gzip (default t)

In HANDLERS of `porter-start' write (PATH :fixed BODY . OPTIONS)."
  (porter--check-listening server)
  (porter--enter server (porter--named-entry server path :fixed)
                 (porter--named-rank path :fixed) t
                 `(,path :fixed ,body ,@options))
  nil)

;;;; From a handler

(defun porter-in-directory-p (directory path)
  "Is PATH below DIRECTORY?  Return its true name then, else nil.
PATH may be absolute, or relative to DIRECTORY; a \"/\" at its beginning, as
that of a request has, is taken for DIRECTORY itself.  Neither \"..\", nor
symbolic links, nor a sibling whose name begins like that of DIRECTORY lead
out of it.  The file need not exist."
  (let* ((top (file-name-as-directory (file-truename directory)))
         (name (if (string-prefix-p top path)
                   path
                 (concat top (replace-regexp-in-string "\\`/+" "" path))))
         ;; No ~, no /: and no $: what is a name for Emacs alone, is none here.
         (file (let ((file-name-handler-alist nil))
                 (and (not (string-match-p "\0" path))
                      (file-truename name)))))
    (and file
         (or (string-prefix-p top file)
             (equal top (file-name-as-directory file)))
         file)))

(defun porter-send-file (process file &optional type &rest options)
  "Answer PROCESS with FILE, of TYPE, a MIME type, or else by its name.
FILE is opened at once and not read; the loop thread sends it.  It may be
deleted as soon as this returns.  Conditions and ranges in the request are
honoured.  When FILE is not there the answer is 404, when it may not be read,
403, and when too many files are open, 503.

OPTIONS is a plist of `:cache-control' and `:headers' as for `porter-mount'.
Return t if FILE is on its way."
  (porter--check-options options '(:cache-control :headers))
  (porter--need-mime)
  (let* ((id (porter--id process))
         (result (porter--mod-send-file
                  id (porter--file-name file) type (porter--cache-control options)
                  (plist-get options :headers))))
    (cond
     ((integerp result)
      (porter--answer-plain id result (pcase result
                                        (403 "Forbidden\n")
                                        (503 "Service Unavailable\n")
                                        (_ "Not Found\n")))
      nil)
     (result (porter--forget-close-functions id)
             t))))

(defun porter-send-directory-list (process directory &optional match)
  "Answer PROCESS with a list of what is in DIRECTORY, as an HTML page.
The links are relative, so the path of the request has to end in a slash.
MATCH is a regexp for the names, or nil for all that do not begin with a
period.  `porter-mount' lists directories without Lisp, and sorts them."
  (let* ((directory (file-name-as-directory (expand-file-name directory)))
         (names (sort (directory-files directory nil (or match "\\`[^.]") t) #'string<))
         (escape (lambda (text)
                   (replace-regexp-in-string
                    "[&<>\"']" (lambda (c) (format "&#%d;" (aref c 0))) text t t)))
         (row (lambda (name)
                (let ((name (if (file-directory-p (expand-file-name name directory))
                                (concat name "/")
                              name)))
                  (format "<li><a href=\"%s\">%s</a></li>\n"
                          (concat (url-hexify-string (directory-file-name name))
                                  (and (string-suffix-p "/" name) "/"))
                          (funcall escape name))))))
    (porter-respond
     process 200
     '(("Content-Type" . "text/html; charset=utf-8") ("X-Content-Type-Options" . "nosniff"))
     (let ((title (funcall escape (file-name-nondirectory (directory-file-name directory)))))
       (format "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>%s</title>\n<h1>%s</h1>\n<ul>\n%s</ul>\n"
               title title
               (mapconcat row (delete "." (delete ".." names)) ""))))))

;;;; Commands

(declare-function porter-start "porter")
(declare-function porter-servers "porter")
(declare-function porter-url "porter")
(declare-function porter-port "porter")
(declare-function porter-ui-free-port "porter-ui")
(defvar porter-ui-default-port)

(defcustom porter-serve-browse nil
  "Non-nil means that the commands that serve files open the browser.
A prefix argument does the same for once."
  :type 'boolean
  :group 'porter
  :package-version '(porter . "1.0"))

(defcustom porter-serve-reload t
  "Non-nil means that pages served by a command reload when they change."
  :type 'boolean
  :group 'porter
  :package-version '(porter . "1.0"))

(defun porter--network-address ()
  "An address of this machine in its network, or nil."
  (let (found)
    (dolist (interface (network-interface-list) found)
      (let ((address (cdr interface)))
        (when (and (not found) (vectorp address) (= (length address) 5)
                   (not (= (aref address 0) 127)))
          (setq found (format-network-address address t)))))))

(defun porter--serving (directory lan)
  "The running server that a command has started for DIRECTORY, or nil.
LAN says whether it is for the network."
  (cl-find-if (lambda (server)
                (and (equal (porter-server-route-list server)
                            (porter--serve-routes directory))
                     (eq (null (porter--for-all-p server)) (null lan))))
              (porter-servers)))

(defun porter--for-all-p (server)
  "Does SERVER listen on all addresses?"
  (member (porter-server-host server) '("0.0.0.0" "::")))

(defun porter--serve-routes (directory)
  "The handlers that serve DIRECTORY."
  `(("/" :directory ,directory :reload ,(and porter-serve-reload t))))

(defun porter--serve (directory lan)
  "The server that serves DIRECTORY, perhaps a new one; for the network with LAN."
  (require 'porter)
  (or (porter--serving directory lan)
      (porter-start (porter--serve-routes directory) (porter-ui-free-port) nil
                    :host (if lan nil "localhost")
                    :name (file-name-nondirectory (directory-file-name directory)))))

(defun porter--serve-refuse (file)
  "Signal `user-error' when FILE is on another machine."
  ;; Before anything looks at it, and so waits for a connection.
  (when (file-remote-p file)
    (user-error "Only files of this machine can be served, not %s" file)))

(defun porter--show-served (what server url browse new)
  "Say that SERVER serves WHAT at URL, which is copied.
With BROWSE, or if `porter-serve-browse' is non-nil, open it in a browser.  NEW
says that SERVER was started for it."
  (unless noninteractive (kill-new url))
  (when (or browse porter-serve-browse) (browse-url url))
  (message "%s is served at %s%s%s" (abbreviate-file-name what) url
           (if noninteractive "" " (copied)")
           (if (or (not new) (= (porter-port server) porter-ui-default-port))
               ""
             (format "; %d was taken" porter-ui-default-port))))

;;;###autoload
(defun porter-serve-directory (directory &optional browse lan)
  "Serve the files below DIRECTORY, show the URL and put it on the kill ring.
The port is 8080, or the next one that is free.  With BROWSE, interactively
the prefix argument, or if `porter-serve-browse' is non-nil, open a browser.
With LAN, the whole network can read the files: interactively two prefix
arguments ask for that.  Return the server; one that serves DIRECTORY already
is used again."
  (interactive (list (read-directory-name "Serve directory: " nil nil t)
                     (equal current-prefix-arg '(4))
                     (and (equal current-prefix-arg '(16))
                          (or (yes-or-no-p "Everyone in your network can read these files then.  Go on? ")
                              (user-error "Nothing is served")))))
  (porter--serve-refuse directory)
  (let* ((directory (file-name-as-directory (expand-file-name directory)))
         (before (and (featurep 'porter) (porter-servers)))
         (server (porter--serve directory lan))
         (address (and lan (porter--network-address))))
    (porter--show-served directory server
                         (if address
                             (format "http://%s:%d/" address (porter-port server))
                           (porter-url server))
                         browse (not (memq server before)))
    server))

;;;###autoload
(defun porter-serve-this-file (&optional browse)
  "Serve the directory of the visited file, and show the URL of the file.
With BROWSE, the prefix argument, or if `porter-serve-browse' is non-nil, open
it in a browser.  Return the server."
  (interactive "P")
  (unless buffer-file-name
    (user-error "This buffer visits no file"))
  (porter--serve-refuse buffer-file-name)
  (when (string-prefix-p "." (file-name-nondirectory buffer-file-name))
    (user-error "Files whose names begin with a dot are not served"))
  (let* ((name (file-name-nondirectory buffer-file-name))
         (before (and (featurep 'porter) (porter-servers)))
         (server (porter--serve (expand-file-name (file-name-directory buffer-file-name)) nil)))
    (porter--show-served buffer-file-name server
                         (porter-url server (concat "/" (url-hexify-string name)))
                         browse (not (memq server before)))
    server))

(provide 'porter-static)
;;; porter-static.el ends here
