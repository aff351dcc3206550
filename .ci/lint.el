;;; lint.el --- checks of the Lisp files, for make compile and make lint  -*- lexical-binding: t -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; emacs -Q --batch -L lisp -l .ci/lint.el -f FUNCTION FILE...
;; Prints findings as FILE:LINE: TEXT; the status is 1 if there were any.

;;; Code:

(require 'bytecomp)
(require 'check-declare)
(require 'checkdoc)

(defun lint-locate-declared (file)
  "Return FILE for check-declare, optional if it is a C source of Emacs.
An installed Emacs comes without those."
  (if (string-match-p "/[^/:]+\\.c\\'" file)
      (concat "ext:" file)
    file))

(advice-add 'check-declare-locate :filter-return #'lint-locate-declared)

(defun lint-take-files ()
  "Return the files on the command line; Emacs shall not visit them."
  (prog1 command-line-args-left
    (setq command-line-args-left nil)))

(defun lint-compile ()
  "Byte-compile; warnings are errors, also those about `declare-function'."
  (let ((byte-compile-error-on-warn t)
        (bad nil)
        (files (lint-take-files)))
    (dolist (file files)
      (unless (eq (byte-compile-file file) t)
        (setq bad t)))
    (when (let ((jka-compr-verbose nil))
            (apply #'check-declare-files files))
      (setq bad t)
      (with-current-buffer check-declare-warning-buffer
        (princ (buffer-string))))
    (kill-emacs (if bad 1 0))))

(defun lint-checkdoc ()
  "Check the style of documentation strings."
  (let ((bad nil))
    (dolist (file (lint-take-files))
      (with-current-buffer (find-file-noselect file)
        (hack-local-variables)
        (let ((checkdoc-create-error-function
               (lambda (text start _end &optional _unfixable)
                 (setq bad t)
                 (princ (format "%s:%d: %s\n" file
                                (line-number-at-pos (or start 1)) text))
                 nil)))
          (checkdoc-current-buffer t))))
    (kill-emacs (if bad 1 0))))

(provide 'lint)
;;; lint.el ends here
