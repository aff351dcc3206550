;;; fixture-app.el --- The application that the case files are run against  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Run it alone, on a free port or on PORTER_FIXTURE_PORT, until it is killed:
;;
;;     emacs -Q --batch -L lisp -L test -l fixture-app -f porter-fixture-batch
;;
;; It prints "PORT n" and "FEATURES a b ...".  Routes:
;;
;;     ANY  /hello            200 text/plain "hello"
;;     ANY  /echo[/...]       200 JSON: what was asked
;;     GET  /count            200 number of handler calls so far, those of /count apart
;;     GET  /features         200 JSON list of optional parts that this Porter has
;;     POST /form             200 JSON [[name, value], ...], query first, then the body
;;     POST /upload           200 JSON [{name, filename, type, len, sha1}, ...]
;;     GET  /stream?n=N&size=S   N pieces of S bytes of "x", length not known beforehand
;;     GET  /slow?ms=M        200 "slow" after M ms, others served meanwhile
;;     GET  /error            the handler fails
;;     GET  /nothing          the handler returns without an answer
;;     GET  /status?code=N    an empty answer with that status
;;     GET  /cookies          200 JSON [[name, value], ...]
;;     GET  /basic            user "u", password "p": 200 "secret", else 401
;;     GET  /static/...       a directory
;;     WS   /ws               sends back what it gets
;;
;; Multipart, static files, WebSockets and authentication are there as soon as Porter has the
;; functions.

;;; Code:

(require 'cl-lib)
(require 'json)
(require 'porter)

(declare-function porter-mount "porter")
(declare-function porter-request-parts "porter-request")
(declare-function porter-web-socket-connect "porter")
(declare-function porter-web-socket-send "porter")
(declare-function porter-with-authentication "porter")

(defvar porter-fixture-calls 0
  "Number of handler calls so far.")

(defvar porter-fixture-directory nil
  "The static tree, a temporary directory.")

;;;; JSON

(defun porter-fixture--text (string)
  "Return STRING, bytes or characters, as text that JSON can hold."
  (let ((text (if (multibyte-string-p string) string
                (decode-coding-string string 'utf-8-unix))))
    ;; What is no UTF-8 has become raw bytes.
    (if (string-match-p "[\x3fff80-\x3fffff]" text)
        (replace-regexp-in-string "[\x3fff80-\x3fffff]" "\xfffd" text t t)
      text)))

(defun porter-fixture--json-string (string)
  "Return STRING in JSON."
  (concat "\""
          (replace-regexp-in-string
           "[\"\\\\[:cntrl:]]"
           (lambda (c)
             (pcase c ("\"" "\\\"") ("\\" "\\\\") (_ (format "\\u%04x" (aref c 0)))))
           (porter-fixture--text string) t t)
          "\""))

(defun porter-fixture--json (object)
  "Return OBJECT in JSON, as UTF-8.
Vectors are arrays, alists with symbols objects, nil is null."
  (cond ((null object) "null")
        ((stringp object) (porter-fixture--json-string object))
        ((numberp object) (number-to-string object))
        ((vectorp object) (concat "[" (mapconcat #'porter-fixture--json object ",") "]"))
        (t (concat "{"
                   (mapconcat (lambda (pair)
                                (concat (porter-fixture--json-string (symbol-name (car pair)))
                                        ":" (porter-fixture--json (cdr pair))))
                              object ",")
                   "}"))))

(defun porter-fixture--pairs (alist)
  "Return ALIST of strings as an array of arrays."
  (vconcat (mapcar (lambda (pair) (vector (car pair) (cdr pair))) alist)))

(defun porter-fixture--send (request code type body)
  "Answer REQUEST with CODE and BODY of TYPE."
  (porter-respond (slot-value request 'process) code (list (cons "Content-Type" type)) body))

(defun porter-fixture--send-json (request object)
  "Answer REQUEST with OBJECT in JSON."
  (porter-fixture--send request 200 "application/json"
                        (encode-coding-string (porter-fixture--json object) 'utf-8-unix)))

(defun porter-fixture--number (request name)
  "Return REQUEST's parameter NAME as a number, 0 if it is none."
  (string-to-number (porter-request-param request name "0")))

;;;; Handlers

(defun porter-fixture-hello (request)
  "Answer REQUEST with hello."
  (porter-fixture--send request 200 "text/plain" "hello"))

(defun porter-fixture--header-name (name)
  "Return header NAME, a string or keyword, as a lower-case string."
  (downcase (if (keywordp name) (substring (symbol-name name) 1) (format "%s" name))))

(defun porter-fixture-echo (request)
  "Answer REQUEST with what it was."
  (let ((body (porter-request-body request)))
    (porter-fixture--send-json
     request
     `((method . ,(substring (symbol-name (porter-request-method request)) 1))
       (path . ,(porter-request-path request))
       (target . ,(porter-request-target request))
       (query . ,(porter-fixture--pairs (porter-request-query request)))
       (headers . ,(porter-fixture--pairs
                    (mapcar (lambda (field)
                              (cons (porter-fixture--header-name (car field)) (cdr field)))
                            (porter-request-headers request))))
       (body_b64 . ,(base64-encode-string body t))
       (body_len . ,(length body))))))

(defun porter-fixture--parameters (request)
  "Return the parameters of REQUEST, query, form and multipart, in order."
  (cl-remove-if-not (lambda (pair) (stringp (car pair))) (slot-value request 'headers)))

(defun porter-fixture-form (request)
  "Answer REQUEST with its parameters."
  (porter-fixture--send-json request
                             (porter-fixture--pairs (porter-fixture--parameters request))))

(defun porter-fixture--part (part)
  "Describe PART, one of `porter-request-parts'."
  (let* ((field (lambda (key) (cdr (assq key (cdr part)))))
         (content (or (funcall field 'content)
                      (with-temp-buffer
                        (set-buffer-multibyte nil)
                        (insert-file-contents-literally (funcall field 'file))
                        (buffer-string)))))
    `((name . ,(car part))
      (filename . ,(funcall field 'filename))
      (type . ,(funcall field 'content-type))
      (len . ,(length content))
      (sha1 . ,(secure-hash 'sha1 content)))))

(defun porter-fixture-upload (request)
  "Answer REQUEST with a description of its parts."
  (porter-fixture--send-json
   request
   (vconcat (mapcar #'porter-fixture--part (porter-request-parts request)))))

(defun porter-fixture-stream (request)
  "Answer REQUEST in pieces."
  (let ((process (slot-value request 'process))
        (piece (make-string (max 0 (min 10000000 (porter-fixture--number request "size"))) ?x)))
    (porter-response-header process 200 '("Content-Type" . "text/plain"))
    (porter-flush process)
    (cl-loop repeat (porter-fixture--number request "n")
             while (porter-send process piece)
             do (porter-flush process))))

(defun porter-fixture-slow (request)
  "Answer REQUEST later."
  (run-at-time (/ (porter-fixture--number request "ms") 1000.0) nil
               (lambda ()
                 (porter-fixture--send request 200 "text/plain" "slow")))
  :keep-alive)

(defun porter-fixture-status (request)
  "Answer REQUEST with the status that it names, and with the fields that go with it."
  (let ((code (porter-fixture--number request "code")))
    (porter-respond (slot-value request 'process) code
                    (pcase code
                      (401 '(("WWW-Authenticate" . "Basic realm=\"status\"")))
                      (405 '(("Allow" . "POST")))
                      (426 '(("Upgrade" . "websocket") ("Connection" . "Upgrade"))))
                    "")))

(defun porter-fixture-cookies (request)
  "Answer REQUEST with its cookies."
  (porter-fixture--send-json request (porter-fixture--pairs (porter-request-cookies request))))

(defun porter-fixture-ws (request)
  "Open a WebSocket for REQUEST that sends back what it gets."
  (or (porter-web-socket-connect
       request
       (lambda (process message type) (porter-web-socket-send process message type)))
      (porter-send-404 (slot-value request 'process))))

;;;; The whole

(defun porter-fixture--counted (function)
  "Return FUNCTION with its calls counted."
  (lambda (request)
    (cl-incf porter-fixture-calls)
    (funcall function request)))

(defun porter-fixture-features ()
  "Return the names of the optional parts that this Porter has."
  (append (and (fboundp 'porter-request-parts) '("multipart"))
          (and (fboundp 'porter-mount) '("static"))
          (and (fboundp 'porter-web-socket-connect) '("websocket"))
          (and (fboundp 'porter-with-authentication) '("basic"))))

(defun porter-fixture-handlers ()
  "Return the routes."
  (let ((get '(:GET :HEAD)))
    (append
     (mapcar
      (pcase-lambda (`(,methods ,regexp ,function))
        (cons (cons methods regexp) (porter-fixture--counted function)))
      `((t "\\`/hello\\'" porter-fixture-hello)
        (t "\\`/echo\\(?:/\\|\\'\\)" porter-fixture-echo)
        (:POST "\\`/form\\'" porter-fixture-form)
        (:POST "\\`/upload\\'" porter-fixture-upload)
        (,get "\\`/stream\\'" porter-fixture-stream)
        (,get "\\`/slow\\'" porter-fixture-slow)
        (,get "\\`/error\\'" ,(lambda (_request) (error "This handler fails: %s" "<&>%s")))
        (,get "\\`/nothing\\'" ignore)
        (,get "\\`/status\\'" porter-fixture-status)
        (,get "\\`/cookies\\'" porter-fixture-cookies)
        ,@(and (fboundp 'porter-with-authentication)
               `((,get "\\`/basic\\'"
                       ,(porter-with-authentication
                         (lambda (request)
                           (porter-fixture--send request 200 "text/plain" "secret"))
                         '(("u" . "p"))))))
        ,@(and (fboundp 'porter-web-socket-connect)
               `((:GET "\\`/ws\\'" porter-fixture-ws)))))
     `(((,get . "\\`/count\\'")
        . ,(lambda (request)
             (porter-fixture--send request 200 "text/plain"
                                   (number-to-string porter-fixture-calls))))
       ((,get . "\\`/features\\'")
        . ,(lambda (request)
             (porter-fixture--send-json request (vconcat (porter-fixture-features)))))))))

(defun porter-fixture--tree ()
  "Make the static tree and return its directory."
  (let ((directory (file-name-as-directory (make-temp-file "porter-fixture" t)))
        (coding-system-for-write 'utf-8-unix)
        (file-name-coding-system 'utf-8-unix))
    (make-directory (expand-file-name "sub" directory))
    (pcase-dolist (`(,name . ,content)
                   `(("hello.txt" . "hello static\n")
                     ("empty.txt" . "")
                     ("sub/index.html" . "<p>index</p>\n")
                     ("sub/inner.txt" . "inner\n")
                     ("sp ace.txt" . "space\n")
                     ("\u00fcn\u00ef.txt" . "uni\n")
                     (".secret" . "no\n")
                     ("big.bin" . ,(let ((bytes (string-to-unibyte (make-string 300000 0))))
                                     (dotimes (i 300000) (aset bytes i (mod i 251)))
                                     bytes))))
      (let ((coding-system-for-write (if (equal name "big.bin") 'iso-8859-1-unix 'utf-8-unix)))
        (write-region content nil (expand-file-name name directory) nil 'silent)))
    (ignore-errors (make-symbolic-link "/etc/hostname" (expand-file-name "link-out" directory)))
    directory))

(defun porter-fixture-start (&optional port &rest network-args)
  "Start the application on PORT (0) with NETWORK-ARGS and return the server."
  (let ((server (apply #'porter-start (porter-fixture-handlers) (or port 0) nil
                       network-args)))
    (when (fboundp 'porter-mount)
      (unless porter-fixture-directory
        (setq porter-fixture-directory (porter-fixture--tree)))
      (add-hook 'kill-emacs-hook #'porter-fixture--clean)
      (porter-mount server "/static/" porter-fixture-directory))
    server))

(defun porter-fixture--clean ()
  "Delete the static tree."
  (when porter-fixture-directory
    (delete-directory porter-fixture-directory t)
    (setq porter-fixture-directory nil)))

(defconst porter-fixture-timeouts '(:head-timeout 3 :body-timeout 3 :idle-timeout 6)
  "Short, so that cases that wait for them end soon.")

(defun porter-fixture-batch ()
  "Start the application, say where, and serve until killed.
On a socket file as well, if PORTER_FIXTURE_SOCKET names one."
  (let ((server (apply #'porter-fixture-start
                       (string-to-number (or (getenv "PORTER_FIXTURE_PORT") "0"))
                       porter-fixture-timeouts))
        (socket (getenv "PORTER_FIXTURE_SOCKET")))
    (when socket
      (apply #'porter-fixture-start socket
             :family 'local :allowed-hosts '("localhost" "127.0.0.1" "[::1]")
             porter-fixture-timeouts))
    ;; Not `princ': standard output waits in a buffer when it is a pipe.
    (message "FEATURES %s\nPORT %d"
             (mapconcat #'identity (porter-fixture-features) " ")
             (porter-port server))
    (while t (accept-process-output nil 60))))

(provide 'fixture-app)
;;; fixture-app.el ends here
