;;; porter-browser-tests.el --- What browsers send  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; With a headless Chromium, where there is one.

;;; Code:

(require 'porter-test-helper)

(defconst porter-browser--upload "<!doctype html>
<meta charset=utf-8>
<form method=post action=/upload enctype=multipart/form-data>
<textarea name='題'>a
b \"c\" 100%</textarea>
<input type=file name=file>
<input type=file name=none>
</form>
<script>
const bytes = new Uint8Array(5000000);
for (let i = 0; i < bytes.length; i++) bytes[i] = i * 7 + (i >> 8) * 13 + (i >> 16);
const files = new DataTransfer();
files.items.add(new File([bytes], '写真 \\\"1\\\".bin', {type: 'application/x-test'}));
document.querySelector('[name=file]').files = files.files;
document.forms[0].submit();
</script>"
  "A page that sends a form with a file of 5 MB.")

(defun porter-browser--bytes ()
  "Return the same bytes as the page makes."
  (let ((bytes (string-to-unibyte (make-string 5000000 0))))
    (dotimes (i 5000000 bytes)
      (aset bytes i (logand 255 (+ (* i 7) (* (ash i -8) 13) (ash i -16)))))))

(ert-deftest porter-browser-form-with-a-large-file ()
  "A file of 5 MB with a Japanese name arrives to the byte, the other fields too."
  (porter-test-browser)
  (let (parts title sha1)
    (porter-test-with-server
        (server
         (lambda (request)
           (pcase (porter-request-path request)
             ("/" (porter-test-answer request porter-browser--upload 200
                                      '("Content-Type" . "text/html; charset=utf-8")))
             ("/upload"
              (setq parts (porter-request-files request)
                    title (porter-request-param request "題"))
              (let ((file (assq 'file (cdr (assoc "file" parts)))))
                (setq sha1 (with-temp-buffer
                             (set-buffer-multibyte nil)
                             (insert-file-contents-literally (cdr file))
                             (secure-hash 'sha1 (current-buffer)))))
              (porter-test-answer request "thanks"))
             (_ (porter-send-404 (porter-test-process request))))))
      (porter-test-with-browser (format "http://127.0.0.1:%d/" (porter-port server))
        (porter-test-wait (lambda () sha1) 30 "The form does not come")))
    (should (equal title "a\r\nb \"c\" 100%"))
    (pcase-let ((`(,file ,none) parts))
      ;; The quotes are escaped by the URL standard's rules, and so they arrive.
      (should (equal (cdr (assq 'filename (cdr file))) "写真 %221%22.bin"))
      (should (equal (cdr (assq 'content-type (cdr file))) "application/x-test"))
      (should (equal (cdr (assq 'size (cdr file))) 5000000))
      (should (equal sha1 (secure-hash 'sha1 (porter-browser--bytes))))
      (should (equal (cdr (assq 'filename (cdr none))) "")))))

(provide 'porter-browser-tests)
;;; porter-browser-tests.el ends here
