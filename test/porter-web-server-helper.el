;;; porter-web-server-helper.el --- What the tests of the ws- names share  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A server of the ws- names that is always stopped, and clients for it: curl, the strict
;; reader of `porter-test-helper', and a WebSocket's raw bytes.

;;; Code:

(require 'porter-test-helper)
(require 'porter-web-server)

(defmacro porter-ws-test (spec &rest body)
  "Run BODY with a server; SPEC is (VARIABLE HANDLERS &rest NETWORK-ARGS)."
  (declare (indent 1))
  `(porter-test-quietly
     (let* ((ws-servers nil)
            (,(car spec) (ws-start ,(nth 1 spec) 0 nil ,@(nthcdr 2 spec))))
       (unwind-protect (progn ,@body)
         (ws-stop ,(car spec))))))

(defun porter-ws-port (server)
  "The port that SERVER listens on, as packages ask for it."
  (process-contact (ws-process server) :service))

(defun porter-ws-curl (server &rest args)
  "What curl with ARGS, the last one a path, gets of SERVER, as bytes."
  (porter-test-need "curl")
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (let* ((coding-system-for-read 'binary) (process-connection-type nil)
           (process (apply #'start-process "curl" (current-buffer) "curl" "-s"
                           (append (butlast args)
                                   (list (format "http://127.0.0.1:%d%s"
                                                 (porter-ws-port server)
                                                 (car (last args))))))))
      (set-process-sentinel process #'ignore)
      (porter-test-wait (lambda () (not (process-live-p process))) 10 "curl hangs")
      (porter-test-accept process 0.01)
      (buffer-string))))

(defun porter-ws-text (request text)
  "Answer REQUEST with TEXT, by hand."
  (with-slots (process) request
    (ws-response-header process 200 '("Content-type" . "text/plain"))
    (process-send-string process text)))

(defun porter-ws-fetch (server method target &optional headers body)
  "The answer of SERVER to a request of METHOD for TARGET, read strictly."
  (porter-test-fetch (porter-ws-port server) method target headers body))

(defun porter-ws-status (server target &optional headers)
  "The status of a GET of TARGET from SERVER."
  (porter-test-response-status (porter-ws-fetch server "GET" target headers)))

(defun porter-ws-body (server target &optional headers)
  "The body of a GET of TARGET from SERVER, as text."
  (decode-coding-string
   (porter-test-response-body (porter-ws-fetch server "GET" target headers)) 'utf-8))

(defun porter-ws-post (server target type body)
  "The body of the answer to a POST of BODY, of the media TYPE, to TARGET."
  (decode-coding-string
   (porter-test-response-body
    (porter-ws-fetch server "POST" target (list (cons "Content-Type" type)) body))
   'utf-8))

(defun porter-ws-form (&rest parts)
  "A body of multipart/form-data; each of PARTS is (FIELDS BYTES).
FIELDS is what follows the word form-data."
  (concat (mapconcat (lambda (part)
                       (concat "--xYz\r\nContent-Disposition: form-data; " (car part)
                               "\r\n\r\n" (cadr part) "\r\n"))
                     parts "")
          "--xYz--\r\n"))

(defconst porter-ws-form-type "multipart/form-data; boundary=xYz"
  "The media type of what `porter-ws-form' makes.")

;;;; Raw WebSockets

(defmacro porter-ws-with-socket (spec &rest body)
  "Run BODY with a WebSocket; SPEC is (CLIENT SERVER &optional HEADERS)."
  (declare (indent 1))
  `(porter-test-with-client (,(car spec) (porter-ws-port ,(nth 1 spec)))
     (porter-ws-shake-hands ,(car spec) ,(nth 2 spec))
     ,@body))

(defun porter-ws-shake-hands (client headers)
  "Ask over CLIENT for a WebSocket, with HEADERS, an alist, too."
  (porter-test-write
   client
   (porter-test-request-bytes
    "GET" "/" (append '(("Connection" . "Upgrade") ("Upgrade" . "websocket")
                        ("Sec-WebSocket-Version" . "13")
                        ("Sec-WebSocket-Key" . "dGhlIHNhbXBsZSBub25jZQ=="))
                      headers)
    nil (porter-test-client-authority client)))
  (let ((response (porter-test-read client)))
    (should (equal 101 (porter-test-response-status response)))
    (should (equal "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
                   (porter-test-header response "sec-websocket-accept")))))

(defun porter-ws-send-frame (client first payload)
  "Send over CLIENT a frame with the byte FIRST and PAYLOAD, masked."
  (let* ((key (unibyte-string 17 202 3 99)) (length (length payload))
         (masked (ws-web-socket-mask key payload)))
    (porter-test-write
     client (concat (unibyte-string first)
                    (if (< length 126)
                        (unibyte-string (logior 128 length))
                      (unibyte-string 254 (ash length -8) (logand length 255)))
                    key masked))))

(defun porter-ws-should-hear (client first payload)
  "Fail unless a frame with the byte FIRST and PAYLOAD comes over CLIENT."
  (let* ((length (length payload))
         (frame (concat (unibyte-string first)
                        (if (< length 126)
                            (unibyte-string length)
                          (unibyte-string 126 (ash length -8) (logand length 255)))
                        payload)))
    (porter-test-wait
     (lambda ()
       (with-current-buffer (porter-test-client-buffer client)
         (goto-char (point-min))
         (when (and (>= (buffer-size) (length frame))
                    (string-equal (buffer-substring 1 (1+ (length frame))) frame))
           (delete-region 1 (1+ (length frame)))
           t)))
     5 "Not the frame %S but %S" frame (lambda () (porter-test-bytes client)))))

(provide 'porter-web-server-helper)
;;; porter-web-server-helper.el ends here
