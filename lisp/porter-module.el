;;; porter-module.el --- Find, build and load Porter's C module  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Loading this file does nothing but define.  `porter-module-load' is called
;; by the first start of a server; it looks for the shared object and builds
;; it when it is not there, if the user agrees.
;;
;; All functions of the module are declared here.  A request is known to them
;; by its id, a fixnum whose low eight bits are the number of its server.

;;; Code:

(require 'cl-lib)
(require 'subr-x)

(define-error 'porter-error "Porter error")
(define-error 'porter-module-error "Porter's module" 'porter-error)
(define-error 'porter-bad-handlers "Bad handlers" 'porter-error)
(define-error 'porter-invalid-status "Invalid status" 'porter-error)
(define-error 'porter-too-large "The request is too large" 'porter-error)
(define-error 'porter-invalid-header "Invalid header" 'porter-error)

(defgroup porter nil
  "A web server inside Emacs."
  :group 'comm
  :prefix "porter-"
  :link '(info-link "(porter)"))

(defcustom porter-module-build 'ask
  "Whether to build Porter's module when the first server starts without it.
The value `ask' means to ask, t to build without asking, nil never to
build.  A batch Emacs does not ask, it builds for t only."
  :group 'porter
  :type '(choice (const :tag "Ask" ask)
                 (const :tag "Build" t)
                 (const :tag "Never" nil))
  :package-version '(porter . "1.0"))

(defcustom porter-module-file nil
  "The file name of Porter's module, or nil to look for it.
The environment variable PORTER_MODULE comes before this option."
  :group 'porter
  :type '(choice (const :tag "Look for it" nil) file)
  :risky t
  :package-version '(porter . "1.0"))

(defconst porter-module--abi 3
  "The version of the module's functions that these files call.
The same number as ABI in module.c.")

(defvar porter--mod-abi nil
  "The version of the functions of the loaded module, nil before it is.")

(defvar porter--mod-channels nil
  "Non-nil if the module can write to pipe processes (Emacs 28 and later).")

(defconst porter-module--source-directory
  (file-name-directory (or load-file-name buffer-file-name default-directory))
  "The directory of Porter's Lisp files.")

(defconst porter-module--build-buffer "*porter-build*"
  "The name of the buffer with the words of compiler and linker.")

(eval-and-compile
  (defconst porter-module--functions
    '((porter--mod-abort id)
      (porter--mod-alist id small)
      (porter--mod-begin usec)
      (porter--mod-bell process)
      (porter--mod-bell-listen path)
      (porter--mod-body id)
      (porter--mod-body-file id)
      (porter--mod-body-streams id)
      (porter--mod-body-taken id len)
      (porter--mod-counts)
      (porter--mod-end)
      (porter--mod-extra id name value)
      (porter--mod-parts id files)
      (porter--mod-finish id returned)
      (porter--mod-fix server number rank front path body options)
      (porter--mod-flush id)
      (porter--mod-forget id)
      (porter--mod-head id code fields)
      (porter--mod-header id name)
      (porter--mod-headers id trailers)
      (porter--mod-interim id code fields)
      (porter--mod-keep-file id file)
      (porter--mod-heartbeat id ms)
      (porter--mod-linger usec)
      (porter--mod-listen host family port path backlog limits hosts log
                          directory proxied gzip streams)
      (porter--mod-live id)
      (porter--mod-log number lines)
      (porter--mod-method id)
      (porter--mod-mime pairs)
      (porter--mod-mount server number rank front prefix directory options)
      (porter--mod-defer id)
      (porter--mod-network-has network address)
      (porter--mod-own id)
      (porter--mod-parameter id name)
      (porter--mod-parameters id form)
      (porter--mod-path id)
      (porter--mod-phase id)
      (porter--mod-relay-accept)
      (porter--mod-relay-clean number)
      (porter--mod-relay-drop number)
      (porter--mod-relay-hang-up number)
      (porter--mod-relay-head number id code fields)
      (porter--mod-relay-listen path)
      (porter--mod-relay-pass number id)
      (porter--mod-relay-read number max)
      (porter--mod-relay-watch number)
      (porter--mod-reload server style)
      (porter--mod-remote id)
      (porter--mod-respond id code fields body)
      (porter--mod-ring)
      (porter--mod-send id string)
      (porter--mod-send-file id file type cache-control fields)
      (porter--mod-serve id number)
      (porter--mod-socket-broadcast ids string opcode)
      (porter--mod-socket-close id code reason)
      (porter--mod-socket-open id fields options)
      (porter--mod-socket-send id string opcode)
      (porter--mod-statistics number)
      (porter--mod-stop number)
      (porter--mod-stop-loop ms)
      (porter--mod-take)
      (porter--mod-target id)
      (porter--mod-trailers id fields)
      (porter--mod-unmount server number)
      (porter--mod-unsent id)
      (porter--mod-upgrade id)
      (porter--mod-version id)
      (porter--mod-ws-alist id raw))
    "The functions of the module, (NAME ARG...).
`porter-module-tests' compares this list with what the module defines."))

(defmacro porter-module--declare ()
  "Tell the compiler about the module's functions.
Each file that calls some has this once at its top."
  `(progn
     ,@(mapcar (lambda (function)
                 `(declare-function ,(car function) "ext:porter-core"
                                    ,(cdr function)))
               porter-module--functions)))

(defun porter-module--locate ()
  "The file name of the module, or nil.
Signal `porter-module-error' when a file that the user named is missing."
  (let ((named (or (let ((file (getenv "PORTER_MODULE")))
                     (unless (equal file "") file))
                   porter-module-file))
        (name (concat "porter-core" module-file-suffix)))
    (cond
     (named
      (unless (file-readable-p named)
        (signal 'porter-module-error (list "No such file" named)))
      (expand-file-name named))
     ((locate-file name load-path))
     (t
      (let ((file (expand-file-name (concat "../module/" name)
                                    porter-module--source-directory)))
        (and (file-readable-p file) file))))))

(defun porter-module--root ()
  "The directory with Porter's Makefile, or nil."
  (let ((root (expand-file-name ".." porter-module--source-directory)))
    (and (file-exists-p (expand-file-name "module/module.c" root))
         (file-name-as-directory root))))

(defun porter-module--may-build (root)
  "Signal `porter-module-error' unless the module may be built in ROOT."
  (let ((command (format "make -C %s module"
                         (shell-quote-argument
                          (or root porter-module--source-directory)))))
    (cond
     ((null root)
      (signal 'porter-module-error
              '("The module is missing, and so are its sources")))
     ((eq porter-module-build t))
     ((or noninteractive (null porter-module-build)
          (not (yes-or-no-p "Porter's C module is not built yet.  Build it? ")))
      (signal 'porter-module-error
              (list "The module is not built.  Run this" command))))))

(defun porter-module-build ()
  "Build Porter's module from its sources, and wait for it.
The words of the compiler are in the buffer `*porter-build*'.  Signal
`porter-module-error' with their end when it fails."
  (interactive)
  (let* ((root (or (porter-module--root)
                   (signal 'porter-module-error '("No sources to build"))))
         (buffer (get-buffer-create porter-module--build-buffer))
         (emacs (expand-file-name invocation-name invocation-directory))
         (default-directory root)
         process)
    (with-current-buffer buffer
      (setq default-directory root)
      (let ((inhibit-read-only t)) (erase-buffer)))
    (message "Porter: building its module...")
    (setq process
          (start-process "porter-build" buffer "make" "--no-print-directory"
                         "module" (concat "EMACS=" emacs)))
    (set-process-query-on-exit-flag process nil)
    (unwind-protect
        (while (process-live-p process)
          (accept-process-output process 0.2))
      (when (process-live-p process) (delete-process process)))
    (unless (eql 0 (process-exit-status process))
      (unless noninteractive (display-buffer buffer))
      (signal 'porter-module-error
              (list "Building the module failed"
                    (with-current-buffer buffer
                      (string-trim (buffer-substring-no-properties
                                    (max (point-min) (- (point-max) 2000))
                                    (point-max)))))))
    (message "Porter: building its module...done")))

(defun porter-module-load ()
  "Load Porter's module unless it is loaded; build it first if need be.
Signal `porter-module-error' if that cannot be done."
  (unless porter--mod-abi
    (unless (bound-and-true-p module-file-suffix)
      (signal 'porter-module-error '("This Emacs has no dynamic modules")))
    (let ((file (porter-module--locate)))
      (unless file
        (porter-module--may-build (porter-module--root))
        (porter-module-build)
        (setq file (or (porter-module--locate)
                       (signal 'porter-module-error
                               '("The module was built, but is not there")))))
      (condition-case err
          (module-load file)
        (error (signal 'porter-module-error
                       (list (error-message-string err) file))))))
  (unless (eql porter--mod-abi porter-module--abi)
    (signal 'porter-module-error
            (list (format-message
                   "The loaded module has version %s, these files need %s: restart Emacs"
                   porter--mod-abi porter-module--abi)))))

(provide 'porter-module)
;;; porter-module.el ends here
