;;; porter-clients-tests.el --- What browsers, curl and wget make of files  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Pages report to the server what they see.  A test whose program is not installed skips
;; itself, naming it.

;;; Code:

(require 'porter-test-helper)
(require 'url-util)

;;;; The browser

(defvar porter-clients--directory nil "The directory that is served at /.")
(defvar porter-clients--reports nil "What pages have said, the last first.")

(defun porter-clients--write (name content)
  "Write CONTENT to the file NAME of the directory; return its name."
  (let ((file (expand-file-name name porter-clients--directory))
        (coding-system-for-write (if (multibyte-string-p content) 'utf-8-unix 'binary)))
    (write-region content nil file nil 'silent)
    file))

(defun porter-clients--page (script &optional body)
  "Return a page with BODY that runs SCRIPT, which may call report(TEXT)."
  (concat "<!DOCTYPE html><html><head><title>x</title><link rel=\"icon\" href=\"data:,\">"
          "<link rel=\"stylesheet\" href=\"style.css\"></head><body>" (or body "")
          "<script>function report(text) {"
          "fetch('/report?text=' + encodeURIComponent(text)); }\n"
          script "</script></body></html>"))

(defun porter-clients--handle (request)
  "Note what the page of REQUEST says."
  (push (porter-request-param request "text") porter-clients--reports)
  (porter-respond (porter-test-process request) 204 '(("Cache-Control" . "no-store")) nil))

(defmacro porter-clients--with (server options &rest body)
  "Run BODY with SERVER, which serves a directory with OPTIONS, and a log.
The log is in the current buffer."
  (declare (indent 2) (debug (symbolp form body)))
  `(let ((porter-clients--directory
          (file-name-as-directory (file-truename (make-temp-file "porter-clients" t))))
         (porter-clients--reports nil))
     (unwind-protect
         (with-temp-buffer
           (porter-test-with-server
               (,server `(((:GET . "\\`/report") . porter-clients--handle)
                          ("/" :directory ,porter-clients--directory ,@,options))
                        :log (current-buffer))
             (porter-clients--write "style.css" "body { color: red }")
             ,@body))
       (delete-directory porter-clients--directory t))))

(defun porter-clients--await (report seconds)
  "Wait SECONDS for a page to say REPORT, a regexp; return all of it."
  (porter-test-wait (lambda ()
                      (cl-find-if (lambda (text) (string-match-p report text))
                                  porter-clients--reports))
                    seconds "No page says %s, but %S" report
                    (lambda () porter-clients--reports)))

(defun porter-clients--logged (regexp)
  "How many lines of the log in the current buffer match REGEXP."
  (how-many regexp (point-min) (point-max)))

(ert-deftest porter-clients-second-load-asks-and-keeps ()
  "A page loaded again, with what belongs to it, is 304 for all of it."
  (porter-test-browser)
  (porter-clients--with server nil
    (porter-clients--write "code.js" "report(document.title + performance.timeOrigin);")
    (porter-clients--write
     "page.html"
     (porter-clients--page
      "addEventListener('load', () => { let n = +(sessionStorage.n || 0); sessionStorage.n = n + 1;
       report('load ' + n); if (n < 1) setTimeout(() => location.reload(), 50); });"
      "<script src=\"code.js\" defer></script>"))
    (porter-test-with-browser (porter-url server "/page.html")
      (porter-clients--await "load 1" 20)
      (porter-test-wait (lambda () (>= (porter-clients--logged " 304 ") 3)) 5
                        "The log is %s" #'buffer-string)
      (dolist (name '("page.html" "style.css" "code.js"))
        (should (equal (list name 1 1)
                       (list name
                             (porter-clients--logged (format "GET /%s\" 200 " name))
                             (porter-clients--logged (format "GET /%s\" 304 " name)))))))))

(defun porter-clients--wave (seconds)
  "Return SECONDS of silence as a WAV file, 44100 samples of two channels a second."
  (let* ((size (* seconds 44100 4))
         (little (lambda (n bytes)
                   (apply #'unibyte-string
                          (mapcar (lambda (i) (logand (ash n (* -8 i)) 255))
                                  (number-sequence 0 (1- bytes)))))))
    (concat "RIFF" (funcall little (+ 36 size) 4) "WAVEfmt "
            (funcall little 16 4) (funcall little 1 2) (funcall little 2 2)
            (funcall little 44100 4) (funcall little (* 44100 4) 4)
            (funcall little 4 2) (funcall little 16 2)
            "data" (funcall little size 4) (make-string size 0))))

(ert-deftest porter-clients-video-seeks ()
  "A video element jumps far into its file, and gets that part alone."
  (porter-test-browser)
  (porter-clients--with server nil
    (porter-clients--write "long.wav" (porter-clients--wave 600))
    (porter-clients--write
     "page.html"
     (porter-clients--page
      "let v = document.querySelector('video');
       v.onerror = () => report('error ' + v.error.message);
       v.onloadedmetadata = () => { report('duration ' + v.duration); v.currentTime = 500; };
       v.onseeked = () => report('seeked ' + Math.round(v.currentTime) + ' ' + v.readyState);"
      "<video src=\"long.wav\" preload=\"metadata\"></video>"))
    (porter-test-with-browser (porter-url server "/page.html")
      (should (equal (porter-clients--await "duration\\|error" 20) "duration 600"))
      (should (string-match-p "\\`seeked 500 [234]\\'" (porter-clients--await "seeked\\|error" 10)))
      (porter-test-wait (lambda () (>= (porter-clients--logged "GET /long.wav\" 206 ") 2)) 5
                        "The log is %s" #'buffer-string))
    (should (= 0 (porter-clients--logged "GET /long.wav\" \\(200\\|416\\) ")))))

(ert-deftest porter-clients-saved-page-shows ()
  "A page that is edited and saved in Emacs shows in the browser within 200 ms."
  (porter-test-browser)
  (porter-clients--with server '(:reload t)
    (let* ((page (lambda (text)
                   (porter-clients--page "report(document.querySelector('p').textContent);"
                                         (format "<p>%s</p>" text))))
           (file (porter-clients--write "page.html" (funcall page "version 0")))
           (inhibit-message t)
           times)
      (porter-test-with-browser (porter-url server "/page.html")
        (porter-clients--await "version 0" 20)
        (with-current-buffer (find-file-noselect file)
          (unwind-protect
              (dotimes (i 7)
                ;; The stream opens when the page has been shown.
                (porter-test-wait
                 (lambda () (>= (plist-get (porter-server-statistics server) :connections) 2))
                 5 "The page does not listen")
                (porter-test-pause 0.3)
                (erase-buffer)
                (insert (funcall page (format "version %d" (1+ i))))
                (push (porter-test-seconds
                        (save-buffer)
                        (porter-clients--await (format "version %d\\'" (1+ i)) 5))
                      times))
            (set-buffer-modified-p nil)
            (kill-buffer))))
      (let ((inhibit-message nil))
        (message "Shown after %s ms"
                 (mapconcat (lambda (s) (format "%.0f" (* 1000 s))) (reverse times) ", ")))
      (should (< (nth 3 (sort times #'<)) (* 0.2 porter-test-patience))))))

(ert-deftest porter-clients-saved-style-is-swapped ()
  "A style sheet that is saved is taken over without loading the page anew."
  (porter-test-browser)
  (porter-clients--with server '(:reload t)
    (porter-clients--write
     "page.html"
     (porter-clients--page
      "report('loaded'); let last = '';
       setInterval(() => { let color = getComputedStyle(document.body).color;
                           if (color !== last) report('color ' + (last = color)); }, 20);"))
    (porter-test-with-browser (porter-url server "/page.html")
      (porter-clients--await "color rgb(255, 0, 0)" 20)
      (porter-test-pause 0.3)
      (porter-clients--write "style.css" "body { color: rgb(1, 2, 3) }")
      (porter-clients--await "color rgb(1, 2, 3)" 5)
      (should (= 1 (cl-count "loaded" porter-clients--reports :test #'equal))))))

(ert-deftest porter-clients-reload-keeps-the-place ()
  "A page that loads itself anew is scrolled to where it was."
  (porter-test-browser)
  (porter-clients--with server '(:reload t)
    (porter-clients--write
     "page.html"
     (porter-clients--page
      "addEventListener('load', () => setTimeout(() => {
         report('at ' + Math.round(scrollY)); scrollTo(0, 700); report('ready'); }, 100));"
      "<div style=\"height: 5000px\">x</div>"))
    (porter-test-with-browser (porter-url server "/page.html")
      (porter-clients--await "ready" 20)
      (should (member "at 0" porter-clients--reports))
      (porter-test-pause 0.3)
      (porter-clients--write "other.html" "x")
      (porter-clients--await "at 700" 5))))

;;;; Other programs

(defun porter-clients--status (directory &rest command)
  "Run COMMAND in DIRECTORY while servers run; return its exit status."
  (let ((default-directory directory))
    (car (porter-test-run command 20))))

(ert-deftest porter-clients-curl-resumes ()
  "`curl -C -' fetches the rest of a file, and nothing when it has all."
  (porter-test-need "curl")
  (porter-clients--with server nil
    (let* ((bytes (apply #'concat (mapcar (lambda (i) (format "%08d\n" i))
                                          (number-sequence 1 50000))))
           (there (file-name-as-directory (make-temp-file "porter-curl" t)))
           (file (expand-file-name "file" there))
           (resume (lambda ()
                     (porter-clients--status there "curl" "-s" "-C" "-" "-o" "file"
                                             (porter-url server "/large.bin"))))
           (content (lambda ()
                      (with-temp-buffer
                        (set-buffer-multibyte nil)
                        (insert-file-contents-literally file)
                        (buffer-string)))))
      (unwind-protect
          (progn
            (porter-clients--write "large.bin" bytes)
            (write-region (substring bytes 0 123457) nil file nil 'silent)
            (should (= 0 (funcall resume)))
            (should (equal (funcall content) bytes))
            (funcall resume)
            (should (equal (funcall content) bytes)))
        (delete-directory there t))
      (porter-test-wait (lambda () (= 1 (porter-clients--logged " 416 "))) 5
                        "The log is %s" #'buffer-string)
      (should (= 1 (porter-clients--logged " 206 "))))))

(ert-deftest porter-clients-wget-keeps-what-is-not-newer ()
  "`wget -N' fetches a file once, and again when it has changed."
  (porter-test-need "wget")
  (porter-clients--with server nil
    (let* ((there (file-name-as-directory (make-temp-file "porter-wget" t)))
           (fetch (lambda ()
                    (porter-clients--status there "wget" "-q" "-N"
                                            (porter-url server "/file.txt"))))
           (content (lambda ()
                      (with-temp-buffer
                        (insert-file-contents (expand-file-name "file.txt" there))
                        (buffer-string)))))
      (unwind-protect
          (let ((file (porter-clients--write "file.txt" "one")))
            (set-file-times file (time-subtract nil 100))
            (should (= 0 (funcall fetch)))
            (should (equal (funcall content) "one"))
            (should (= 0 (funcall fetch)))
            (porter-test-wait (lambda () (= 1 (porter-clients--logged " 304 "))) 5
                              "The log is %s" #'buffer-string)
            (porter-clients--write "file.txt" "two")
            (should (= 0 (funcall fetch)))
            (should (equal (funcall content) "two")))
        (delete-directory there t)))))

(provide 'porter-clients-tests)
;;; porter-clients-tests.el ends here
