;; Settings for editing Porter in Emacs; the layout of C is that of .clang-format.

((nil . ((indent-tabs-mode . nil)
         (require-final-newline . t)
         (sentence-end-double-space . t)))
 (emacs-lisp-mode . ((fill-column . 79)
                     (checkdoc-package-keywords-flag . nil)))
 (c-mode . ((c-file-style . "k&r")
            (c-basic-offset . 4)
            (fill-column . 100)))
 (c-ts-mode . ((c-ts-mode-indent-offset . 4)
               (fill-column . 100)))
 (makefile-mode . ((indent-tabs-mode . t)
                   (fill-column . 100))))
