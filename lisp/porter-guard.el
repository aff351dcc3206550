;;; porter-guard.el --- Handlers around handlers  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Functions that take what `porter-start' takes as HANDLERS, and return a
;; handler that lets a request through to it, or not: basic authentication
;; (RFC 7617), and sharing with pages of other origins (the Fetch standard's
;; CORS protocol).

;;; Code:

(require 'porter-dispatch)

;;;; Basic authentication

(defvar porter--compare-key nil
  "A secret of this session, made when it is first needed.")

(defun porter--compare-key ()
  "The secret of this session."
  (or porter--compare-key
      (setq porter--compare-key
            (secure-hash
             'sha256
             (concat (format "%s %s %s" (random) (current-time) (emacs-pid))
                     (ignore-errors
                       (with-temp-buffer
                         (set-buffer-multibyte nil)
                         (insert-file-contents-literally "/dev/urandom"
                                                         nil 0 32)
                         (buffer-string))))))))

(defun porter-equal-in-constant-time (a b)
  "Are strings A and B equal?
How long it takes does not tell how much of them is: what is compared are
hashes that nobody outside can foresee."
  (let ((hash (lambda (string)
                (secure-hash 'sha256
                             (concat (porter--compare-key)
                                     (encode-coding-string string 'utf-8))))))
    (equal (funcall hash a) (funcall hash b))))

(defun porter-request-credentials (request)
  "The (USER . PASSWORD) of REQUEST, or nil.
That is what it gave by the Basic scheme in its Authorization header."
  (let ((value (porter-request-header request "authorization"))
        (case-fold-search t))
    (when (and value
               (string-match
                "\\`basic +\\([-A-Za-z0-9+/]+=*\\)[ \t]*\\'" value))
      (let* ((bytes (ignore-errors
                      (base64-decode-string (match-string 1 value))))
             (text (and bytes (decode-coding-string bytes 'utf-8)))
             (colon (and text (string-match-p ":" text))))
        (when colon
          (cons (substring text 0 colon) (substring text (1+ colon))))))))

(defun porter--credentials-known-p (given credentials)
  "Is GIVEN, (USER . PASSWORD), among CREDENTIALS?
CREDENTIALS is an alist of such, or a predicate of user and password."
  (if (functionp credentials)
      (funcall credentials (car given) (cdr given))
    (let (known)
      ;; All of them, each in full: time tells neither names nor passwords.
      (pcase-dolist (`(,user . ,password) credentials)
        (let ((same-user (porter-equal-in-constant-time (car given) user))
              (same-password (porter-equal-in-constant-time
                              (cdr given) password)))
          (when (and same-user same-password) (setq known t))))
      known)))

(defun porter-with-authentication (handler credentials
                                           &optional realm unauthorized invalid)
  "Return a handler that gives HANDLER those requests that bring CREDENTIALS.
HANDLER is a function or an alist, as for `porter-start'.  CREDENTIALS is an
alist of (USER . PASSWORD), or a function of user and password.  Others are
answered 401, and asked for a password for REALM, a string.

UNAUTHORIZED, a function of the request, answers those without credentials
instead, INVALID those with wrong ones.

Passwords travel as they are: beyond this machine that needs a proxy with TLS."
  (let* ((handler (porter--compile-handlers handler))
         (challenge (list (cons "WWW-Authenticate"
                                (format "Basic realm=%S, charset=\"UTF-8\""
                                        (or realm "Porter")))))
         (refuse (lambda (text)
                   (lambda (request)
                     (porter--answer-plain (porter--id request) 401 text
                                           challenge)))))
    (unless (or (functionp credentials) (consp credentials))
      (signal 'porter-error (list "No credentials" credentials)))
    (when (string-match-p "[^ -~]" (or realm ""))
      (signal 'porter-invalid-header (list "Invalid realm" realm)))
    (setq unauthorized
          (or unauthorized (funcall refuse "Authentication required\n"))
          invalid (or invalid (funcall refuse "Invalid credentials\n")))
    (lambda (request)
      (let ((given (porter-request-credentials request)))
        (funcall (cond ((null given) unauthorized)
                       ((porter--credentials-known-p given credentials) handler)
                       (t invalid))
                 request)))))

;;;; Pages of other origins

(defun porter--cors-origin (origin origins)
  "The Access-Control-Allow-Origin for ORIGIN, a string; nil for none.
ORIGINS as for `porter-with-cors'."
  (cond ((eq origins t) "*")
        ((functionp origins) (and (funcall origins origin) origin))
        ((member (downcase origin) origins) origin)))

(defun porter-with-cors (handler origins &rest options)
  "Return a handler like HANDLER whose answers pages of ORIGINS may read.
HANDLER is a function or an alist, as for `porter-start'.  ORIGINS is a list of
strings such as \"https://example.org\", a predicate of such a string, or t for
all.

OPTIONS is a plist: `:methods' and `:headers' that such pages may send beyond
the plain ones, lists of strings; `:expose', names of headers that they may
read; `:credentials' non-nil to let them send cookies (not with t for ORIGINS);
`:max-age', seconds for which a browser may remember that.

Pages of other origins get answers without permission: then their browser does
not show them.  That keeps nobody from sending requests."
  (let* ((handler (porter--compile-handlers handler))
         (origins (if (consp origins) (mapcar #'downcase origins) origins))
         (credentials (plist-get options :credentials))
         (expose (plist-get options :expose))
         (max-age (plist-get options :max-age))
         (join (lambda (strings) (mapconcat #'identity strings ", ")))
         (methods (funcall join (or (plist-get options :methods)
                                    '("GET" "HEAD" "POST"))))
         (headers (funcall join (plist-get options :headers))))
    (when (and credentials (eq origins t))
      (signal 'porter-error '("Credentials need a list of origins")))
    (lambda (request)
      (let* ((process (slot-value request 'process))
             (origin (porter-request-header request :ORIGIN))
             (allow (and origin (porter--cors-origin origin origins)))
             (preflight (and origin
                             (eq (porter-request-method request) :OPTIONS)
                             (porter-request-header
                              request :ACCESS-CONTROL-REQUEST-METHOD))))
        (unless (eq origins t)
          (porter-add-header process "Vary" "Origin"))
        (when allow
          (porter-add-header process "Access-Control-Allow-Origin" allow)
          (when credentials
            (porter-add-header process "Access-Control-Allow-Credentials"
                               "true"))
          (when (and expose (not preflight))
            (porter-add-header process "Access-Control-Expose-Headers"
                               (funcall join expose))))
        (if (not preflight)
            (funcall handler request)
          (when allow
            (porter-add-header process "Access-Control-Allow-Methods" methods)
            (unless (equal headers "")
              (porter-add-header process "Access-Control-Allow-Headers"
                                 headers))
            (when max-age
              (porter-add-header process "Access-Control-Max-Age"
                                 (number-to-string max-age))))
          (porter-respond process 204 nil))))))

(provide 'porter-guard)
;;; porter-guard.el ends here
