;;; in-emacs.el --- The peers that run in an Emacs  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; emacs ... -l in-emacs.el --eval (bench-serve NAME PORT HANDLER FILL)
;;
;; HANDLER is a string: "plus" answers the parameter n plus one, "param" too but
;; by another accessor (Porter only), "ok" answers "ok", "sink" the length of the
;; body, "size-N" N bytes.  FILL is the length of the header that makes all peers'
;; answers equally long, 0 for none.
;;
;; The answers are made in the way that each server's own manual shows; only
;; logs are switched off where a server keeps one by default.  Handlers are
;; byte-compiled here, since loading a .el file does not do that.

;;; Code:

(require 'cl-lib)
(require 'eieio)

(defvar bench-headers nil "The headers of an answer: an alist.")
(defvar bench-handler nil "What is served, a string.")
(defvar bench-large nil "The body of \"size-N\".")

(defvar byte-compile-warnings)
(defvar byte-compile-dest-file-function)

(defun bench-require (library)
  "Load LIBRARY, a string, as byte code, also where there is only its source.
Packages are compiled when users install them; a copy of a repository is not.
Nothing is written beside it."
  (unless (locate-library (concat library ".elc") t)
    (let* ((file (make-temp-file "porter-bench-" nil ".elc"))
           (byte-compile-warnings nil)
           (byte-compile-dest-file-function (lambda (_) file)))
      (unwind-protect
          (and (byte-compile-file (locate-library (concat library ".el") t))
               (load file nil t t))
        (delete-file file))))
  (require (intern library)))

;;;; Porter

(declare-function porter-start "porter" (handlers port &optional log &rest args))
(declare-function porter-response-header "porter-response" (process code &rest headers))
(declare-function porter-send "porter-response" (process string))
(declare-function porter-respond "porter-response" (process code headers body))
(declare-function porter-request-param "porter-request" (request name &optional default))
(declare-function porter-request-body-file "porter-request" (request))
(declare-function porter-request-body "porter-request" (request))

(defun bench-porter-plus (request)
  "Answer REQUEST with n + 1, as in the README."
  (with-slots (process headers) request
    (apply #'porter-response-header process 200 bench-headers)
    (porter-send process
                 (number-to-string
                  (1+ (string-to-number (cdr (assoc "n" headers))))))))

(defun bench-porter-param (request)
  "Answer REQUEST with n + 1, without the alist of all headers."
  (with-slots (process) request
    (porter-respond process 200 bench-headers
                    (number-to-string
                     (1+ (string-to-number (porter-request-param request "n")))))))

(defun bench-porter-ok (request)
  "Answer REQUEST with \"ok\"."
  (with-slots (process) request
    (porter-respond process 200 bench-headers "ok")))

(defun bench-porter-sink (request)
  "Answer REQUEST with the length of its body."
  (with-slots (process) request
    (let ((file (porter-request-body-file request)))
      (porter-respond process 200 bench-headers
                      (number-to-string
                       (if file (nth 7 (file-attributes file))
                         (length (porter-request-body request))))))))

(defun bench-porter-size (request)
  "Answer REQUEST with a large body."
  (with-slots (process) request
    (porter-respond process 200 bench-headers bench-large)))

(defun bench-porter-memory (request)
  "Answer REQUEST with (BYTES-EVER-CONSED GC-COUNT GC-SECONDS)."
  (with-slots (process) request
    (porter-respond
     process 200 nil
     (format "%S" (list (cl-loop for n in (memory-use-counts)
                                 ;; conses, floats, vector cells, symbols,
                                 ;; string chars, intervals, strings
                                 for size in '(16 8 8 48 1 56 32)
                                 sum (* n size))
                        gcs-done gc-elapsed)))))

(defun bench-serve-porter (port)
  "Start Porter on PORT.
What is not a GET, nor a PUT for \"sink\", asks for the counts of memory."
  (require 'porter)
  (porter-start `(((,(if (equal bench-handler "sink") :PUT :GET) . "*")
                   . ,(intern (concat "bench-porter-" bench-handler)))
                  ((:POST . "*") . bench-porter-memory))
                port nil :max-connections nil :max-queue nil))

(defvar bench-session nil "What keeps the heap large.")

(defun bench-serve-porter-session (port)
  "Start Porter on PORT in an Emacs that has been in use."
  (require 'org)
  (with-current-buffer (get-buffer-create "large")
    (dotimes (_ (/ (* 20 1024 1024) 64)) (insert (make-string 63 ?x) "\n")))
  (dotimes (i 200000) (push (cons i i) bench-session))
  (bench-serve-porter port))

;;;; simple-httpd

(defvar httpd-port)
(defvar httpd-host)
(defvar httpd-serve-files)
(declare-function httpd-start "simple-httpd" ())
(declare-function httpd-send-header "simple-httpd" (process mime status &rest headers))

(defun bench-httpd-answer (process _path query request)
  "Answer a REQUEST with parameters QUERY to PROCESS."
  (with-temp-buffer
    (insert (pcase bench-handler
              ("plus" (number-to-string
                       (1+ (string-to-number (cadr (assoc "n" query))))))
              ("sink" (number-to-string
                       (length (cadr (assoc "Content" request)))))
              ("ok" "ok")
              (_ bench-large)))
    (apply #'httpd-send-header process "text/plain" 200
           (let ((fill (cdr (assoc "X-Fill" bench-headers))))
             (and fill (list :X-Fill fill))))))

(defun bench-serve-simple-httpd (port)
  "Start simple-httpd on PORT."
  (bench-require "simple-httpd")
  ;; It prints each request into a buffer, which would be most of its work.
  (fset 'httpd-log #'ignore)
  (defalias 'httpd/ #'bench-httpd-answer)
  (setq httpd-port port httpd-host "127.0.0.1" httpd-serve-files nil)
  (httpd-start))

;;;; web-server

(declare-function ws-start "web-server" (handlers port &optional log &rest args))
(declare-function ws-response-header "web-server" (process code &rest headers))

(defun bench-ws-answer (request)
  "Answer REQUEST."
  (with-slots (process headers) request
    (let ((body (pcase bench-handler
                  ("plus" (number-to-string
                           (1+ (string-to-number (cdr (assoc "n" headers))))))
                  (_ "ok"))))
      ;; It closes each time but does not say so, which clients count as an error.
      (apply #'ws-response-header process 200 '("Connection" . "close")
             (cons "Content-Length" (number-to-string (length body)))
             bench-headers)
      (process-send-string process body))))

(defun bench-serve-web-server (port)
  "Start web-server on PORT."
  (bench-require "web-server")
  ;; Not \"*\", which `string-match' takes for a star.
  (ws-start '(((:GET . ".*") . bench-ws-answer)) port nil :host "127.0.0.1"))

;;;; elnode

(declare-function elnode-start "elnode" (handler &rest args))
(declare-function elnode-http-param "elnode" (process name))
(declare-function elnode-http-start "elnode" (process status &rest headers))
(declare-function elnode-http-return "elnode" (process string))
(defvar elnode-error-log-to-messages)

(defun bench-elnode-answer (process)
  "Answer the request of PROCESS."
  ;; As with web-server.
  (apply #'elnode-http-start process 200 '("Connection" . "close") bench-headers)
  (elnode-http-return
   process (if (equal bench-handler "plus")
               (number-to-string
                (1+ (string-to-number (elnode-http-param process "n"))))
             "ok")))

(defun bench-serve-elnode (port)
  "Start elnode on PORT."
  (defvar elnode-do-init)
  (setq elnode-do-init nil)
  (mapc #'bench-require '("noflet" "kv" "s" "dash" "elnode"))
  (setq elnode-error-log-to-messages nil)
  ;; It asks for a listening socket with `:nowait', an error since Emacs 26.
  (advice-add 'make-network-process :filter-args #'bench-elnode-wait)
  (elnode-start #'bench-elnode-answer :port port :host "localhost"))

(defun bench-elnode-wait (args)
  "ARGS of `make-network-process', without `:nowait' where a server is made."
  (if (plist-get args :server)
      (cl-loop for (key value) on args by #'cddr
               unless (eq key :nowait) append (list key value))
    args))

;;;; All

(defun bench-serve (name port handler fill)
  "Serve as the peer NAME on PORT; see the commentary for HANDLER and FILL."
  (setq bench-headers
        (cons '("Content-Type" . "text/plain")
              (and (> fill 0) (list (cons "X-Fill" (make-string fill ?0))))))
  (when (string-prefix-p "size-" handler)
    (setq bench-large (make-string (string-to-number (substring handler 5)) ?x)
          handler "size"))
  (setq bench-handler handler)
  (dolist (function '(bench-porter-plus bench-porter-param bench-porter-ok bench-porter-sink
                      bench-porter-size bench-httpd-answer bench-ws-answer
                      bench-elnode-answer))
    (let ((byte-compile-warnings nil)) (byte-compile function)))
  (funcall (intern (concat "bench-serve-" name)) port)
  (when noninteractive
    (while t (sleep-for 3600))))

(provide 'in-emacs)
;;; in-emacs.el ends here
