;;; porter-static-tests.el --- Files, trees and fixed answers  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; In the order of the features: plain files and their conditions, ranges, ways out of the
;; directory, directories and their lists, routes, fixed answers, files sent by handlers.

;;; Code:

(require 'porter-test-helper)

(defvar porter-ui-default-port)

(defvar porter-static--directory nil "The tree of the running test.")

(defun porter-static--write (name content)
  "Write CONTENT, bytes or text, to the file NAME of the tree; return its name."
  (let ((file (expand-file-name name porter-static--directory))
        (coding-system-for-write (if (multibyte-string-p content) 'utf-8-unix 'binary)))
    (make-directory (file-name-directory file) t)
    (write-region content nil file nil 'silent)
    file))

(defun porter-static--bytes (n)
  "Return N bytes, byte i being i mod 251."
  (let ((period (apply #'unibyte-string (number-sequence 0 250))))
    (substring (apply #'concat (make-list (1+ (/ n 251)) period)) 0 n)))

(defun porter-static--tree ()
  "Fill the tree."
  (porter-static--write "tree/hello.txt" "hello static\n")
  (porter-static--write "tree/empty.txt" "")
  (porter-static--write "tree/page.html" "<!DOCTYPE html><title>x</title>\n")
  (porter-static--write "tree/sub/index.html" "<p>index</p>\n")
  (porter-static--write "tree/sub/inner.txt" "inner\n")
  (porter-static--write "tree/plain/a.txt" "a\n")
  (porter-static--write "tree/.secret" "no\n")
  (porter-static--write "tree/.git/config" "no\n")
  (porter-static--write "tree/sp ace.txt" "space\n")
  (porter-static--write "tree/big.bin" (porter-static--bytes 300000))
  (porter-static--write "outside.txt" "OUTSIDE\n")
  (porter-static--write "tree-sibling/secret.txt" "OUTSIDE\n"))

(defmacro porter-static--with (spec &rest body)
  "Run BODY with a server and a tree.
SPEC is (SERVER &rest OPTIONS), the options of the mount at /s/."
  (declare (indent 1) (debug ((symbolp &rest form) body)))
  `(let ((porter-static--directory (file-name-as-directory (make-temp-file "porter-static" t))))
     (unwind-protect
         (porter-test-with-server (,(car spec) (lambda (request)
                                                 (porter-test-answer request "lisp")))
           (porter-static--tree)
           (porter-mount ,(car spec) "/s/"
                         (expand-file-name "tree" porter-static--directory) ,@(cdr spec))
           ,@body)
       (delete-directory porter-static--directory t))))

(defun porter-static--status (where target &rest headers)
  "The status of GET TARGET with HEADERS from WHERE."
  (porter-test-response-status (apply #'porter-test-get where target headers)))

;;;; Plain files

(ert-deftest porter-static-file ()
  "A file comes with its type, its length, its tag and its date."
  (porter-static--with (server)
    (let ((response (porter-test-get server "/s/hello.txt")))
      (should (equal (porter-test-response-status response) 200))
      (should (equal (porter-test-response-body response) "hello static\n"))
      (should (equal (porter-test-header response "content-type") "text/plain; charset=utf-8"))
      (should (equal (porter-test-header response "content-length") "13"))
      (should (equal (porter-test-header response "x-content-type-options") "nosniff"))
      (should (equal (porter-test-header response "accept-ranges") "bytes"))
      (should (equal (porter-test-header response "cache-control") "no-cache"))
      (should (string-match-p "\\`\"[!-~]+\"\\'" (porter-test-header response "etag")))
      (should (string-match-p porter-test--date (porter-test-header response "last-modified"))))
    (should (equal (porter-test-get-body server "/s/big.bin") (porter-static--bytes 300000)))
    (should (equal (porter-test-get-body server "/s/empty.txt") ""))
    (should (equal (porter-test-get-body server "/s/sp%20ace.txt") "space\n"))
    (should (equal (porter-test-get-body server "/%73/sub/%69nner.txt?x=1") "inner\n"))
    (should (equal (porter-test-get-body server "/other") "lisp"))))

(ert-deftest porter-static-types ()
  "What the web needs has the type that browsers want."
  (porter-static--with (server)
    (pcase-dolist (`(,name . ,type)
                   '(("a.html" . "text/html; charset=utf-8") ("a.CSS" . "text/css; charset=utf-8")
                     ("a.js" . "text/javascript; charset=utf-8")
                     ("a.mjs" . "text/javascript; charset=utf-8")
                     ("a.wasm" . "application/wasm") ("a.json" . "application/json")
                     ("a.webmanifest" . "application/manifest+json")
                     ("a.svg" . "image/svg+xml") ("a.woff2" . "font/woff2")
                     ("a.png" . "image/png") ("a.tar.gz" . "application/gzip")
                     ("README" . "text/plain; charset=utf-8")
                     ("a.unheard-of" . "application/octet-stream")
                     ("noextension" . "application/octet-stream")))
      (porter-static--write (concat "tree/" name) "x")
      (should (equal (list name (porter-test-header
                                 (porter-test-get server (concat "/s/" name)) "content-type"))
                     (list name type))))))

(ert-deftest porter-static-head ()
  "HEAD says what GET would, without the body."
  (porter-static--with (server)
    (dolist (name '("hello.txt" "big.bin" "empty.txt" ""))
      (let ((get (porter-test-get server (concat "/s/" name)))
            (head (porter-test-fetch server "HEAD" (concat "/s/" name))))
        (should (equal (porter-test-response-body head) ""))
        (dolist (field '("content-length" "content-type" "etag" "last-modified"))
          (should (equal (list name field (porter-test-header head field))
                         (list name field (porter-test-header get field)))))))))

(ert-deftest porter-static-methods ()
  "Other methods are refused with Allow, on a connection that goes on."
  (porter-static--with (server)
    (porter-test-with-client (client server)
      (dolist (method '("POST" "PUT" "DELETE" "PATCH"))
        (let ((response (porter-test-ask client method "/s/hello.txt" nil "x")))
          (should (equal (porter-test-response-status response) 405))
          (should (equal (porter-test-header response "allow") "GET, HEAD, OPTIONS"))))
      (let ((response (porter-test-ask client "OPTIONS" "/s/hello.txt")))
        (should (equal (porter-test-response-status response) 204))
        (should (equal (porter-test-header response "allow") "GET, HEAD, OPTIONS"))))))

(ert-deftest porter-static-conditions ()
  "RFC 9110 section 13: the conditions, alone and in their order."
  (porter-static--with (server)
    (let* ((first (porter-test-get server "/s/hello.txt"))
           (etag (porter-test-header first "etag"))
           (date (porter-test-header first "last-modified"))
           (past "Sun, 06 Nov 1994 08:49:37 GMT")
           (future "Wed, 08 Jul 2037 22:53:52 GMT"))
      (pcase-dolist
          (`(,status . ,headers)
           `((304 ("If-None-Match" . ,etag))
             (304 ("If-None-Match" . ,(concat "W/" etag)))
             (304 ("If-None-Match" . ,(concat "\"a\", W/\"b\" ,, " etag)))
             (304 ("If-None-Match" . "*"))
             (200 ("If-None-Match" . "\"a\""))
             (200 ("If-None-Match" . ,(substring etag 1 -1)))
             (304 ("If-None-Match" . "\"a\"") ("If-None-Match" . ,etag))
             (304 ("If-Modified-Since" . ,date))
             (304 ("If-Modified-Since" . ,future))
             (200 ("If-Modified-Since" . ,past))
             (200 ("If-Modified-Since" . "Sunday, 06-Nov-94 08:49:37 GMT"))
             (200 ("If-Modified-Since" . "Sun Nov  6 08:49:37 1994"))
             (304 ("If-Modified-Since" . "Wed Jul  8 22:53:52 2037"))
             (200 ("If-Modified-Since" . "last tuesday"))
             (200 ("If-None-Match" . "\"a\"") ("If-Modified-Since" . ,future))
             (304 ("If-None-Match" . ,etag) ("If-Modified-Since" . ,past))
             (200 ("If-Match" . ,etag))
             (200 ("If-Match" . "*"))
             (200 ("If-Match" . ,(concat "\"a\", " etag)))
             (412 ("If-Match" . "\"a\""))
             (412 ("If-Match" . ,(concat "W/" etag)))
             (412 ("If-Unmodified-Since" . ,past))
             (200 ("If-Unmodified-Since" . ,date))
             (200 ("If-Unmodified-Since" . "garbage"))
             (200 ("If-Match" . ,etag) ("If-Unmodified-Since" . ,past))
             (412 ("If-Match" . "\"a\"") ("If-None-Match" . ,etag))
             (304 ("If-None-Match" . ,etag) ("Range" . "bytes=0-1"))))
        (let ((response (apply #'porter-test-get server "/s/hello.txt" headers)))
          (should (equal (cons (porter-test-response-status response) headers)
                         (cons status headers)))
          (when (eql status 304)
            (should (equal (porter-test-header response "etag") etag))
            (should-not (porter-test-header response "content-type"))))))))

;;;; Ranges

(ert-deftest porter-static-ranges ()
  "RFC 9110 section 14: one range of any form, or what is answered instead."
  (porter-static--with (server)
    (let* ((bytes (porter-static--bytes 300000))
           (etag (porter-test-header (porter-test-get server "/s/big.bin") "etag"))
           (date (porter-test-header (porter-test-get server "/s/big.bin") "last-modified")))
      (pcase-dolist
          (`(,range ,from ,to . ,headers)
           `(("bytes=0-0" 0 1) ("bytes=0-299999" 0 300000) ("bytes=5-" 5 300000)
             ("bytes=-7" 299993 300000) ("bytes=-999999999" 0 300000)
             ("bytes=299999-299999999999999999999999" 299999 300000)
             ("Bytes=65530-65545" 65530 65546) ("bytes= 3-4 " 3 5) ("bytes=,3-4,," 3 5)
             ("bytes=0-9,5-19" 0 20) ("bytes=10-19,0-9" 0 20)
             ("bytes=0-4,999999-" 0 5)
             ("bytes=0-4" 0 5 ("If-Range" . ,etag))
             ("bytes=0-4" 0 5 ("If-Range" . ,date))))
        (let ((response (apply #'porter-test-get server "/s/big.bin" (cons "Range" range)
                               headers)))
          (should (equal (list range (porter-test-response-status response)
                               (porter-test-header response "content-range")
                               (porter-test-response-body response))
                         (list range 206 (format "bytes %d-%d/300000" from (1- to))
                               (substring bytes from to))))))
      (dolist (headers `((("Range" . "bytes=5-3")) (("Range" . "bytes=a-b")) (("Range" . "bytes=-"))
                         (("Range" . "bytes=")) (("Range" . "lines=1-2")) (("Range" . "0-4"))
                         (("Range" . "bytes=1-2;3-4")) (("Range" . "bytes=0x0-4"))
                         (("Range" . "bytes=0-4") ("Range" . "bytes=0-4"))
                         (("Range" . ,(concat "bytes=" (mapconcat (lambda (i) (format "%d-%d" (* 9 i) (* 9 i)))
                                                                  (number-sequence 0 40) ","))))
                         (("Range" . "bytes=0-4") ("If-Range" . "\"other\""))
                         (("Range" . "bytes=0-4") ("If-Range" . ,(concat "W/" etag)))
                         (("Range" . "bytes=0-4") ("If-Range" . "Sun, 06 Nov 1994 08:49:37 GMT"))))
        (let ((response (apply #'porter-test-get server "/s/big.bin" headers)))
          (should (equal (list headers (porter-test-response-status response)
                               (length (porter-test-response-body response)))
                         (list headers 200 300000)))))
      (dolist (range '("bytes=300000-" "bytes=300000-300001" "bytes=-0" "bytes=999999-,400000-"))
        (let ((response (porter-test-get server "/s/big.bin" (cons "Range" range))))
          (should (equal (porter-test-response-status response) 416))
          (should (equal (porter-test-header response "content-range") "bytes */300000"))))
      (should (equal 200 (porter-test-response-status
                          (porter-test-fetch server "HEAD" "/s/big.bin"
                                             '(("Range" . "bytes=0-4")))))))))

(ert-deftest porter-static-several-ranges ()
  "Several ranges come as multipart/byteranges, of small files and of large ones."
  (porter-static--with (server)
    (porter-static--write "tree/small.bin" (porter-static--bytes 1000))
    (pcase-dolist (`(,name ,size) '(("small.bin" 1000) ("big.bin" 300000)))
      (let* ((bytes (porter-static--bytes size))
             (response (porter-test-get server (concat "/s/" name)
                                        '("Range" . "bytes=-10,0-4,100-199")))
             (type (porter-test-header response "content-type"))
             (case-fold-search nil))
        (should (equal (porter-test-response-status response) 206))
        (should-not (porter-test-header response "content-range"))
        (should (string-match "\\`multipart/byteranges; boundary=\\([0-9a-f]+\\)\\'" type))
        (let ((boundary (match-string 1 type))
              (part (lambda (from to)
                      (format "Content-Type: application/octet-stream\r\nContent-Range: bytes %d-%d/%d\r\n\r\n%s\r\n"
                              from (1- to) size (substring bytes from to)))))
          (should (equal (porter-test-response-body response)
                         (concat "--" boundary "\r\n" (funcall part (- size 10) size)
                                 "--" boundary "\r\n" (funcall part 0 5)
                                 "--" boundary "\r\n" (funcall part 100 200)
                                 "--" boundary "--\r\n"))))))))

;;;; No way out

(defconst porter-static--ways-out
  (let* ((dots '(".." "%2e%2e" ".%2e" "%2E." "%252e%252e" "%c0%ae%c0%ae" "%e0%80%ae%e0%80%ae"
                 "%u002e%u002e" "..%00" "..;" "..%20" "..%09" "...." "%ef%bc%8e%ef%bc%8e"
                 ".%00." "..%0d%0a"))
         (slashes '("/" "%2f" "%2F" "%5c" "\\" "%252f" "%c0%af" "//"))
         ways)
    (dolist (dot dots)
      (dolist (slash slashes)
        (push (concat dot slash "outside.txt") ways)
        (push (concat "sub" slash dot slash dot slash "outside.txt") ways)))
    (append (nreverse ways)
            '("/etc/passwd" "//etc/passwd" "%2fetc%2fpasswd" "/:/etc/passwd" "~/outside.txt"
              "~root/.bashrc" "$HOME/outside.txt" "./../outside.txt" "sub/./../../outside.txt"
              "../tree-sibling/secret.txt" "..%2ftree-sibling/secret.txt" "-sibling/secret.txt"
              "hello.txt%00.html" "hello.txt%00" "%00" "hello.txt/" "hello.txt/." "hello.txt/.."
              ".secret" "%2esecret" "sub/../.secret" ".git/config" "%2egit/config" ".git/"
              "." ".." "./" "../" "link-out" "link-out-directory/outside.txt" "link-proc"
              "file:///etc/passwd" "c:/windows/win.ini" "hello.txt::$DATA" "sub//inner.txt"
              "sub/%2e/inner.txt" "fifo" "big.bin/../../outside.txt"
              ;; Decoded once, and UTF-8 then.
              "%2568ello.txt" "hello%252etxt" "%ff.txt" "sub%252finner.txt")))
  "Paths below the mount that must not give anything.")

(ert-deftest porter-static-no-way-out ()
  "No path leads out of the directory, or to what is hidden."
  (porter-static--with (server)
    (let ((default-directory (expand-file-name "tree/" porter-static--directory)))
      (make-symbolic-link "../outside.txt" "link-out")
      (make-symbolic-link (expand-file-name "../outside.txt") "link-out-absolute")
      (make-symbolic-link ".." "link-out-directory")
      (make-symbolic-link "/proc/self/root/etc/passwd" "link-proc")
      (call-process "mkfifo" nil nil nil "fifo")
      (let ((file-name-coding-system 'binary))
        (write-region "no\n" nil (expand-file-name "\377.txt") nil 'silent)))
    (should (> (length porter-static--ways-out) 250))
    (dolist (where (list server))
      (dolist (way (append '("link-out-absolute") porter-static--ways-out))
        (porter-test-with-client (client where)
          (let ((response (porter-test-ask client "GET" (concat "/s/" way))))
            (should (equal (list way (not (memq (porter-test-response-status response)
                                                '(400 403 404)))
                                 (porter-test-response-status response))
                           (list way nil (porter-test-response-status response))))
            (should-not (string-match-p "OUTSIDE\\|root:\\|^no$"
                                        (porter-test-response-body response)))))))
    (should (memq (porter-static--status server "http://localhost/s/../../outside.txt")
                  '(400 404 421)))))

(ert-deftest porter-static-long-paths ()
  "Paths longer than any file's are not there."
  (porter-static--with (server)
    (dolist (path (list (make-string 300 ?a) (make-string 4090 ?a) (make-string 5000 ?a)
                        (concat (apply #'concat (make-list 2000 "a/")) "x")))
      (should (memq (porter-static--status server (concat "/s/" path)) '(404 414))))))

(ert-deftest porter-static-links ()
  "Symbolic links are followed as the option says."
  (pcase-dolist (`(,links ,inside ,outside) '((inside 200 404) (nil 404 404) (t 200 200)))
    (porter-static--with (server :links links)
      (let ((default-directory (expand-file-name "tree/" porter-static--directory)))
        (make-symbolic-link "sub/inner.txt" "relative")
        (make-symbolic-link (expand-file-name "sub/inner.txt") "absolute")
        (make-symbolic-link "sub" "directory")
        (make-symbolic-link "../outside.txt" "outside"))
      (pcase-dolist (`(,path . ,status)
                     `(("relative" . ,inside) ("absolute" . ,inside)
                       ("directory/inner.txt" . ,inside) ("outside" . ,outside)))
        (should (equal (list links path (porter-static--status server (concat "/s/" path)))
                       (list links path status))))
      (let ((list (porter-test-get-body server "/s/")))
        (should (eq (and (string-match-p "\"relative\"" list) t) (eql inside 200)))
        (should (eq (and (string-match-p "\"outside\"" list) t) (eql outside 200)))))))

(ert-deftest porter-static-dotfiles ()
  "Names with a period in front are served only when that is asked for."
  (porter-static--with (server :dotfiles t)
    (should (equal (porter-test-get-body server "/s/.secret") "no\n"))
    (should (equal (porter-test-get-body server "/s/.git/config") "no\n"))
    (should (string-match-p "\\.secret" (porter-test-get-body server "/s/")))
    (should (equal (porter-static--status server "/s/../outside.txt") 404))
    (should (equal (porter-static--status server "/s/./hello.txt") 404))))

(ert-deftest porter-static-forbidden ()
  "A file that may not be read is 403."
  (skip-unless (not (equal (user-uid) 0)))
  (porter-static--with (server)
    (set-file-modes (porter-static--write "tree/locked" "x") 0)
    (should (equal (porter-static--status server "/s/locked") 403))))

(defconst porter-static--large 64000000
  "More bytes than the kernel takes for a client that does not read.")

(defun porter-static--write-large (name)
  "Write the file NAME, `porter-static--large' bytes; return its name."
  (let ((file (porter-static--write name "")))
    (write-region "x" nil file (1- porter-static--large) 'silent)
    file))

(defun porter-static--stalled (server act)
  "How many bytes of a file of SERVER reach a client that waits before it reads on.
ACT is called meanwhile, with the file's name."
  (let ((file (porter-static--write-large "tree/large.bin"))
        (go (expand-file-name "go" porter-static--directory)))
    (porter-test-with-child
        (child (list "sh" "-c"
                     "curl -s \"$0\" | { head -c 1 | wc -c; while ! test -e \"$1\"; do sleep 0.02; done; wc -c; }"
                     (porter-url server "/s/large.bin") go))
      (porter-test-child-await child "1\n" 5)
      (porter-test-pause 0.2)
      (funcall act file)
      (write-region "" nil go nil 'silent)
      (porter-test-child-finish child 20)
      (delete-file go)
      ;; head may have read more than it said, but not past one block.
      (string-to-number (nth 1 (split-string (porter-test-child-output child) "\n" t))))))

(ert-deftest porter-static-file-changes-under-way ()
  "A file that is replaced, deleted or added to is sent as it was; one written anew is given up."
  (porter-test-need "curl")
  (porter-static--with (server)
    (pcase-dolist
        (`(,whole ,name . ,act)
         `((t delete . ,#'delete-file)
           (t replace . ,(lambda (file)
                           (rename-file (porter-static--write "tree/new" "new") file t)))
           (t add . ,(lambda (file) (write-region "more" nil file t 'silent)))
           (nil change . ,(lambda (file) (write-region "y" nil file 5 'silent)))
           (nil shorten . ,(lambda (file) (write-region "less" nil file nil 'silent)))))
      (should (equal (list name (> (porter-static--stalled server act)
                                   (- porter-static--large 100000)))
                     (list name whole))))))

(ert-deftest porter-static-open-files-are-bounded ()
  "Beyond `:max-open-files' the answer is 503, until one of the files is sent."
  (let ((porter-static--directory (file-name-as-directory (make-temp-file "porter-static" t))))
    (unwind-protect
        (porter-test-with-server
            (server `(("/s/" :directory ,porter-static--directory)
                      ("/send" . ,(lambda (request)
                                    (porter-send-file (porter-test-process request)
                                                      (expand-file-name
                                                       "large.bin" porter-static--directory)))))
                    :max-open-files 2)
          (porter-static--write-large "large.bin")
          (porter-static--write "small.txt" "small")
          (let ((clients (mapcar (lambda (_) (porter-test-open server)) '(1 2)))
                (status (lambda (path)
                          (porter-test-response-status
                           (porter-test-get server path '("Range" . "bytes=0-99999"))))))
            (dolist (client clients)
              (porter-test-hold client)
              (porter-test-write client (porter-test-request-bytes "GET" "/s/large.bin")))
            (porter-test-wait (lambda () (equal 503 (funcall status "/s/large.bin")))
                              3 "There is no bound")
            (dolist (path '("/s/large.bin" "/send"))
              (let ((response (porter-test-get server path)))
                (should (equal (list path (porter-test-response-status response)
                                     (porter-test-header response "retry-after"))
                               (list path 503 "1")))))
            ;; What does not stay open is not concerned.
            (should (equal (porter-test-get-body server "/s/small.txt") "small"))
            (should (equal 200 (porter-test-response-status
                                (porter-test-fetch server "HEAD" "/s/large.bin"))))
            (porter-test-close (pop clients))
            (porter-test-wait (lambda () (equal 206 (funcall status "/s/large.bin")))
                              3 "The file still counts")
            (should (equal 206 (funcall status "/send")))
            (porter-test-close (pop clients))))
      (delete-directory porter-static--directory t))))

(ert-deftest porter-static-descriptors-are-left-to-emacs ()
  "When there are few file descriptors, files that are sent leave Emacs enough of them."
  (porter-test-need "sh")
  (let* ((directory (make-temp-file "porter-static" t))
         (emacs (mapconcat
                 #'shell-quote-argument
                 (porter-test-batch-command
                  '(require 'porter)
                  `(let* ((server (porter-start '(("/" :directory ,directory)) 0))
                          (clients (mapcar (lambda (_)
                                             (make-network-process
                                              :name "c" :host "127.0.0.1" :stop t
                                              :service (porter-port server)))
                                           (make-list 6 nil)))
                          (end (+ (float-time) 2)))
                     ;; A client that is refused would end a batch Emacs by SIGPIPE.
                     (while (< (plist-get (porter-server-statistics server) :connections) 6)
                       (accept-process-output nil 0.01))
                     (dolist (client clients)
                       (process-send-string
                        client (apply #'concat
                                      (make-list 8 "GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n"))))
                     (while (< (float-time) end) (accept-process-output nil 0.1))
                     (princ (list :file (with-temp-buffer
                                          (insert-file-contents ,(concat directory "/small.txt"))
                                          (buffer-string))
                                  :process (with-temp-buffer
                                             (call-process "echo" nil t nil "-n" "works")
                                             (buffer-string))))
                     (kill-emacs 0)))
                 " ")))
    (unwind-protect
        (progn
          (write-region "x" nil (concat directory "/large.bin") porter-static--large 'silent)
          (with-temp-file (concat directory "/small.txt") (insert "small"))
          (let ((result (porter-test-run (list "sh" "-c" (concat "ulimit -n 60; exec " emacs)) 30
                                         (porter-test-preload-environment
                                          (list porter-test-emacs)))))
            (should (string-match-p "(:file small :process works)" (cdr result)))))
      (delete-directory directory t))))

(ert-deftest porter-static-shrinking-file ()
  "A file that becomes shorter under way ends the connection."
  (porter-test-need "truncate" "curl")
  (porter-static--with (server)
    (let ((file (porter-static--write "tree/huge.bin" ""))
          (open (lambda () (plist-get (porter-server-statistics server) :connections)))
          curl)
      (call-process "truncate" nil nil nil "-s" "1G" file)
      ;; Too slow to ever have all of it.
      (setq curl (start-process "curl" nil "curl" "-s" "-o" "/dev/null" "--limit-rate" "1M"
                                (porter-url server "/s/huge.bin")))
      (unwind-protect
          (progn
            (porter-test-wait (lambda () (= 1 (funcall open))) 3 "No connection")
            (porter-test-pause 0.5)
            (call-process "truncate" nil nil nil "-s" "5" file)
            (porter-test-wait (lambda () (= 0 (funcall open))) 20
                              "The connection stays open"))
        (delete-process curl)))))

;;;; Directories

(ert-deftest porter-static-directory-redirects ()
  "A directory without its slash is redirected to the one with it, query and all."
  (porter-static--with (server)
    (pcase-dolist (`(,target . ,location)
                   '(("/s" . "/s/") ("/s/sub" . "/s/sub/") ("/s/sub?x=1&y" . "/s/sub/?x=1&y")
                     ("/s/%73ub" . "/s/sub/")))
      (let ((response (porter-test-get server target)))
        (should (equal (porter-test-response-status response) 301))
        (should (equal (porter-test-header response "location") location))))
    (porter-mount server "/" (expand-file-name "tree" porter-static--directory))
    (make-directory (expand-file-name "tree/example.com" porter-static--directory))
    (dolist (target '("//example.com" "/%2fexample.com" "/\\example.com" "/%5cexample.com"))
      (should-not (porter-test-header (porter-test-get server target) "location")))))

(ert-deftest porter-static-index ()
  "The index stands for its directory; without one there is a list, or nothing."
  (porter-static--with (server)
    (should (equal (porter-test-get-body server "/s/sub/") "<p>index</p>\n"))
    (should (string-match-p "a\\.txt" (porter-test-get-body server "/s/plain/"))))
  (porter-static--with (server :listing nil :index "inner.txt")
    (should (equal (porter-test-get-body server "/s/sub/") "inner\n"))
    (should (equal (porter-static--status server "/s/plain/") 404))))

(ert-deftest porter-static-listing ()
  "The list escapes what names contain, sorts, and is plain for who wants that."
  (porter-static--with (server)
    (make-directory (expand-file-name "tree/l" porter-static--directory))
    (make-directory (expand-file-name "tree/l/zdir" porter-static--directory))
    (porter-static--write "tree/l/<b>&\"'.txt" "1")
    (porter-static--write "tree/l/javascript:x" "22")
    (porter-static--write "tree/l/file10" "333")
    (porter-static--write "tree/l/file9" "4444")
    (porter-static--write "tree/l/\u00fcml" "5555555555")
    (let* ((list (porter-test-get-body server "/s/l/"))
           (names (lambda (query)
                    (split-string
                     (porter-test-get-body server (concat "/s/l/" query) '("Accept" . "text/plain"))
                     "\n" t)))
           (utf8 (encode-coding-string "\u00fcml" 'utf-8)))
      (should (string-match-p "&lt;b&gt;&amp;&quot;&#39;\\.txt" list))
      (should-not (string-match-p "<b>" list))
      (should (string-match-p "href=\"javascript%3Ax\"" list))
      (should (string-match-p "href=\"%C3%BCml\"" list))
      (should (string-match-p "href=\"zdir/\"" list))
      (should (string-match-p "href=\"\\.\\./\"" list))
      (should (equal (funcall names "")
                     (list "zdir/" "<b>&\"'.txt" "file9" "file10" "javascript:x" utf8)))
      (should (equal (funcall names "?sort=size")
                     (list "zdir/" "<b>&\"'.txt" "javascript:x" "file10" "file9" utf8)))
      (should (equal (funcall names "?sort=size&order=desc")
                     (list "zdir/" utf8 "file9" "file10" "javascript:x" "<b>&\"'.txt"))))))

(ert-deftest porter-static-large-listing ()
  "While ten thousand names are listed other clients do not wait."
  (porter-static--with (server)
    (let ((directory (expand-file-name "tree/many" porter-static--directory))
          times)
      (call-process "sh" nil nil nil "-c"
                    (format "mkdir %s && cd %s && seq 1 10000 | xargs touch" directory directory))
      (porter-test-with-client (other server)
        (dotimes (_ 5)
          (porter-test-with-client (one server)
            (porter-test-write one (porter-test-request-bytes "GET" "/s/many/"))
            (while (string= (porter-test-bytes one) "")
              (push (porter-test-seconds
                      (should (equal (porter-test-response-body
                                      (porter-test-ask other "GET" "/s/hello.txt"))
                                     "hello static\n")))
                    times))
            (should (string-match-p "10000 names"
                                    (porter-test-response-body
                                     (porter-test-read one "GET" 10)))))))
      ;; Each list takes tens of milliseconds of a pool's thread.
      (should (> (length times) 10))
      (should (< (nth (/ (length times) 2) (sort times #'<)) (* 0.01 porter-test-patience)))
      (should (< (car (last times)) (* 0.1 porter-test-patience))))))

(ert-deftest porter-static-fallback ()
  "What is not there can be one page."
  (porter-static--with (server :fallback "page.html")
    (should (string-match-p "<title>x" (porter-test-get-body server "/s/no/such/page")))
    (should (equal (porter-test-get-body server "/s/hello.txt") "hello static\n"))
    (should (equal (porter-static--status server "/s/..%2foutside.txt") 404))))

(ert-deftest porter-static-compressed-siblings ()
  "FILE.gz goes out for FILE to who takes it."
  (porter-static--with (server)
    (let ((file (porter-static--write "tree/app.js" (make-string 5000 ?x))))
      (call-process "gzip" nil nil nil "-k" file)
      (let ((response (porter-test-get server "/s/app.js" '("Accept-Encoding" . "br, gzip;q=0.8"))))
        (should (equal (porter-test-header response "content-encoding") "gzip"))
        (should (equal (porter-test-header response "content-type")
                       "text/javascript; charset=utf-8"))
        (should (equal (porter-test-header response "vary") "Accept-Encoding"))
        (should (< (length (porter-test-response-body response)) 200)))
      (dolist (accept '("identity" "gzip;q=0" "x-gzipped" "br"))
        (let ((response (porter-test-get server "/s/app.js" (cons "Accept-Encoding" accept))))
          (should-not (porter-test-header response "content-encoding"))
          (should (equal (length (porter-test-response-body response)) 5000))))
      ;; One that is older than the file is of an earlier file; the file is compressed itself.
      (write-region "not gzip" nil (concat file ".gz") nil 'silent)
      (set-file-times (concat file ".gz") '(10000 0))
      (let* ((get (lambda (&rest headers)
                    (apply #'porter-test-get server "/s/app.js"
                           '("Accept-Encoding" . "gzip") headers)))
             (response (funcall get)))
        (should (equal (porter-test-header response "content-encoding") "gzip"))
        (should (equal (porter-test-header response "vary") "Accept-Encoding"))
        (should (< 20 (length (porter-test-response-body response)) 200))
        (should (equal 304 (porter-test-response-status
                            (funcall get (cons "If-None-Match"
                                               (porter-test-header response "etag"))))))))
    (porter-static--write "tree/photo.png" (make-string 5000 ?x))
    (should-not (porter-test-header
                 (porter-test-get server "/s/photo.png" '("Accept-Encoding" . "gzip"))
                 "content-encoding"))))

(ert-deftest porter-static-compressed-once ()
  "A file that stays as it is is compressed once; one that changes is compressed anew."
  (porter-static--with (server)
    (let* ((line (lambda (i) (format "%d %s\n" i (secure-hash 'md5 (number-to-string i)))))
           (text (mapconcat line (number-sequence 1 25000) ""))
           (file (porter-static--write "tree/data.json" text))
           (get (lambda ()
                  (porter-test-response-body
                   (porter-test-get server "/s/data.json" '("Accept-Encoding" . "gzip")))))
           (unzip (lambda (bytes)
                    (with-temp-buffer
                      (set-buffer-multibyte nil)
                      (insert bytes)
                      (zlib-decompress-region (point-min) (point-max))
                      (buffer-string))))
           ;; HEAD has to know the length.
           (cpu (lambda ()
                  (let ((start (porter-static--cpu)))
                    (porter-test-fetch server "HEAD" "/s/data.json"
                                       '(("Accept-Encoding" . "gzip")))
                    (- (porter-static--cpu) start))))
           first)
      (skip-unless (and (fboundp 'zlib-available-p) (zlib-available-p)))
      ;; One that has just changed is not kept yet.
      (setq first (min (funcall cpu) (funcall cpu)))
      (set-file-times file (time-subtract nil 60))
      (call-process "mv" nil nil nil file (concat file "-"))
      (call-process "mv" nil nil nil (concat file "-") file)
      (porter-test-wait (lambda () (< (funcall cpu) (/ first 3.0))) 10
                        "It is compressed again and again")
      (should (equal (funcall unzip (funcall get)) text))
      (porter-static--write "tree/data.json" (upcase text))
      (should (equal (funcall unzip (funcall get)) (upcase text))))))

(defun porter-static--cpu ()
  "The processor time that this Emacs has used, all threads together, in seconds."
  (float-time (get-internal-run-time)))

(ert-deftest porter-static-replaced-directory ()
  "A directory that was removed and made anew is served again."
  (porter-static--with (server)
    (should (equal (porter-test-get-body server "/s/hello.txt") "hello static\n"))
    (delete-directory (expand-file-name "tree" porter-static--directory) t)
    (should (equal (porter-static--status server "/s/hello.txt") 404))
    (porter-static--write "tree/hello.txt" "again\n")
    (porter-test-wait (lambda () (equal 200 (porter-static--status server "/s/hello.txt")))
                      3 "The new directory is not served")
    (should (equal (porter-test-get-body server "/s/hello.txt") "again\n"))))

;;;; Routes

(ert-deftest porter-static-routes ()
  "In one list of routes the first match wins, whoever answers."
  (let ((porter-static--directory (file-name-as-directory (make-temp-file "porter-static" t))))
    (unwind-protect
        (let* ((say (lambda (text) (lambda (request) (porter-test-answer request text))))
               (tree (expand-file-name "tree" porter-static--directory)))
          (porter-static--tree)
          (porter-test-with-server
              (server `(("/front/" :directory ,tree)
                        ("/ok" :fixed "fixed" :type "text/x-ok")
                        ((:GET . "\\`/mixed/hello.txt") . ,(funcall say "lisp"))
                        ("/mixed/" :directory ,tree)
                        ((:GET . "\\`/mixed/") . ,(funcall say "never"))
                        ("/late" :fixed "late")
                        ((:GET . "*") . ,(funcall say "rest"))))
            (pcase-dolist (`(,path . ,body)
                           '(("/front/hello.txt" . "hello static\n") ("/ok" . "fixed")
                             ("/mixed/hello.txt" . "lisp") ("/mixed/sub/inner.txt" . "inner\n")
                             ("/late" . "late") ("/x" . "rest")))
              (should (equal (cons path (porter-test-get-body server path)) (cons path body))))
            (should (equal (porter-static--status server "/mixed/none") 404))
            (should (equal (porter-static--status server "/mixed/sub") 301))
            ;; In order when pipelined.
            (porter-test-with-client (client server)
              (let ((paths '("/x" "/front/hello.txt" "/mixed/hello.txt" "/mixed/sub/inner.txt"
                             "/front/big.bin" "/x" "/ok" "/mixed/big.bin" "/late")))
                (porter-test-write client
                                   (mapconcat (lambda (path)
                                                (porter-test-request-bytes "GET" path))
                                              paths ""))
                (should (equal (mapcar (lambda (_)
                                         (length (porter-test-response-body
                                                  (porter-test-read client))))
                                       paths)
                               '(4 13 4 6 300000 4 5 300000 4)))))
            ;; Other handlers, at once.
            (setf (porter-server-handlers server)
                  `(("/new/" :directory ,tree) ((:GET . "*") . ,(funcall say "new"))))
            (should (equal (porter-test-get-body server "/new/hello.txt") "hello static\n"))
            (should (equal (porter-test-get-body server "/front/hello.txt") "new"))))
      (delete-directory porter-static--directory t))))

(ert-deftest porter-static-bad-routes ()
  "What cannot be right is an error of `porter-start'."
  (should-error (porter-test-start '(("no-slash" :directory "/tmp"))) :type 'porter-bad-handlers)
  (should-error (porter-test-start '(("/x" :directory))) :type 'porter-bad-handlers)
  (should-error (porter-test-start '(("/x" :directory "/no/such/directory"))) :type 'file-error)
  (should-error (porter-test-start '(("/x" :fixed "x" :nonsense t))) :type 'porter-error))

(ert-deftest porter-static-pass ()
  "With `:pass', what is not there is left to the handlers."
  (porter-static--with (server :pass t)
    (should (equal (porter-test-get-body server "/s/hello.txt") "hello static\n"))
    (should (equal (porter-test-get-body server "/s/none") "lisp"))
    (should (equal (porter-test-get-body server "/s/plain/none") "lisp"))))

(ert-deftest porter-static-longest-prefix ()
  "Among mounts the longest prefix wins; unmounting ends one."
  (porter-static--with (server)
    (porter-mount server "/s/sub" (expand-file-name "tree/plain" porter-static--directory))
    (should (equal (porter-test-get-body server "/s/sub/a.txt") "a\n"))
    (should (porter-unmount server "/s/sub"))
    (should-not (porter-unmount server "/s/sub"))
    (should (equal (porter-test-get-body server "/s/sub/inner.txt") "inner\n"))))

(ert-deftest porter-static-while-lisp-is-stuck ()
  "Files are served while Lisp computes."
  (porter-static--with (server)
    (porter-fix server "/fixed" "fixed")
    (let* ((port (porter-port server))
           (curl (start-process "curl" nil "curl" "-s" "-o" "/dev/null"
                                (format "http://127.0.0.1:%d/s/big.bin" port)
                                (format "http://127.0.0.1:%d/fixed" port)))
           (end (+ (porter-test-now) 3))
           (before (plist-get (porter-server-statistics server) :requests)))
      ;; No waiting here: only the statistics of C are looked at.
      (while (and (< (porter-test-now) end)
                  (< (plist-get (porter-server-statistics server) :requests) (+ before 2))))
      (should (equal (plist-get (porter-server-statistics server) :requests) (+ before 2)))
      (delete-process curl))))

;;;; Fixed answers

(ert-deftest porter-static-fixed ()
  "A fixed answer has a type, a tag, and a compressed form; it is replaced at once."
  (porter-static--with (server)
    (porter-fix server "/f" (make-string 4000 ?x) :type "text/x-f" :headers '(("X-A" . "b")))
    (let* ((response (porter-test-get server "/f"))
           (etag (porter-test-header response "etag"))
           (gzip (porter-test-get server "/f" '("Accept-Encoding" . "gzip"))))
      (should (equal (porter-test-response-body response) (make-string 4000 ?x)))
      (should (equal (porter-test-header response "content-type") "text/x-f"))
      (should (equal (porter-test-header response "x-a") "b"))
      (should (equal (porter-test-header response "vary") "Accept-Encoding"))
      (should (equal (porter-test-header gzip "content-encoding") "gzip"))
      (should (< (length (porter-test-response-body gzip)) 200))
      (should-not (equal (porter-test-header gzip "etag") etag))
      (should (equal 304 (porter-static--status server "/f" (cons "If-None-Match" etag))))
      (should (equal 405 (porter-test-response-status (porter-test-post server "/f" "x"))))
      (porter-fix server "/f" "\u00fc" :status 503)
      (setq response (porter-test-get server "/f" (cons "If-None-Match" etag)))
      (should (equal (porter-test-response-status response) 503))
      (should (equal (porter-test-response-body response) "\303\274"))
      (should (porter-unmount server "/f"))
      (should (equal (porter-test-get-body server "/f") "lisp")))))

;;;; From handlers

(ert-deftest porter-static-send-file ()
  "A handler's file is sent whole though it is deleted at once, with ranges and conditions."
  (let* ((file (make-temp-file "porter-static"))
         (bytes (porter-static--bytes 3000000)))
    (porter-test-with-server
        (server (lambda (request)
                  (let ((coding-system-for-write 'binary))
                    (write-region bytes nil file nil 'silent))
                  (prog1 (porter-send-file (porter-test-process request) file "text/x-f")
                    (delete-file file))))
      (let ((response (porter-test-get server "/")))
        (should (equal (porter-test-response-body response) bytes))
        (should (equal (porter-test-header response "content-type") "text/x-f")))
      (let ((response (porter-test-get server "/" '("Range" . "bytes=10-19"))))
        (should (equal (porter-test-response-status response) 206))
        (should (equal (porter-test-response-body response) (substring bytes 10 20))))
      (porter-test-with-client (client server)
        (dotimes (_ 3)
          (porter-test-write client (porter-test-request-bytes "GET" "/")))
        (dotimes (_ 3)
          (should (equal (length (porter-test-response-body (porter-test-read client "GET" 5)))
                         3000000)))))))

(ert-deftest porter-static-send-file-missing ()
  "A file that is not there is 404, a directory too."
  (porter-test-with-server
      (server (lambda (request)
                (porter-send-file (porter-test-process request)
                                  (concat "/tmp" (porter-request-path request)))))
    (should (equal (porter-static--status server "/no-such-file") 404))
    (should (equal (porter-static--status server "/") 404))))

(ert-deftest porter-static-in-directory-p ()
  "What is below a directory, and what only looks so."
  (let ((porter-static--directory (file-name-as-directory
                                   (file-truename (make-temp-file "porter-static" t)))))
    (unwind-protect
        (let* ((tree (expand-file-name "tree" porter-static--directory))
               (in (lambda (path) (porter-in-directory-p tree path))))
          (porter-static--tree)
          (make-symbolic-link "../outside.txt" (expand-file-name "link" tree))
          (should (equal (funcall in "/hello.txt") (expand-file-name "hello.txt" tree)))
          (should (equal (funcall in "sub/inner.txt") (expand-file-name "sub/inner.txt" tree)))
          (should (funcall in "not-there"))
          (should (funcall in ""))
          (dolist (path (list "../outside.txt" "/../outside.txt" "sub/../../outside.txt" "/link"
                              "../tree-sibling/secret.txt" "a\0b"
                              (expand-file-name "../tree-sibling/../outside.txt" (concat tree "/x"))))
            (should-not (porter-static--outside-p in path)))
          (should-not (equal (funcall in "~/x") (expand-file-name "~/x"))))
      (delete-directory porter-static--directory t))))

(defun porter-static--outside-p (in path)
  "Does IN, a test, let PATH pass to something outside of the tree?"
  (let ((file (funcall in path)))
    (and file (not (string-prefix-p (expand-file-name "tree/" porter-static--directory) file)))))

;;;; Commands

(ert-deftest porter-static-serve-directory ()
  "`porter-serve-directory' takes a free port, and one server for one directory."
  (let ((porter-static--directory (file-name-as-directory (make-temp-file "porter-static" t)))
        (inhibit-message t) server)
    (unwind-protect
        (porter-test-quietly
          (porter-static--tree)
          (let ((tree (expand-file-name "tree" porter-static--directory)))
            (setq server (porter-serve-directory tree))
            (should (equal (porter-test-get-body server "/hello.txt") "hello static\n"))
            (should (eq server (porter-serve-directory tree)))
            (with-current-buffer (find-file-noselect (expand-file-name "sp ace.txt" tree))
              (should (eq server (porter-serve-this-file)))
              (kill-buffer))))
      (when server (porter-stop server))
      (delete-directory porter-static--directory t))))

(ert-deftest porter-static-send-directory-list ()
  "A handler lists a directory, with names escaped."
  (let ((porter-static--directory (file-name-as-directory (make-temp-file "porter-static" t))))
    (unwind-protect
        (porter-test-with-server
            (server (lambda (request)
                      (porter-send-directory-list (porter-test-process request)
                                                  porter-static--directory)))
          (porter-static--write "<a>&b" "x")
          (porter-static--write "sub/c" "x")
          (let ((list (porter-test-get-body server "/")))
            (should (string-match-p "href=\"%3Ca%3E%26b\">&#60;a&#62;&#38;b<" list))
            (should (string-match-p "href=\"sub/\">sub/<" list))))
      (delete-directory porter-static--directory t))))

;;;; Pages that load themselves anew

(defun porter-static--event (client regexp)
  "Wait for REGEXP to come to CLIENT; return how long that took."
  (porter-test-seconds
    (should (porter-test-await client (lambda () (re-search-forward regexp nil t)) 5))))

(ert-deftest porter-static-reload ()
  "Pages get a script; what changes beside them is told to their streams."
  (porter-static--with (server :reload t)
    (porter-static--write "tree/page.html" "<body><p>x</p></BODY>\n</html>")
    (porter-static--write "tree/part.html" "<p>no body")
    (let ((page (porter-test-get-body server "/s/page.html"))
          (part (porter-test-get-body server "/s/part.html")))
      (should (string-match-p "\\`<body><p>x</p><script>[^<]*\"/s/\\.porter-reload\"" page))
      (should (string-match-p "</script>\n</BODY>\n</html>\\'" page))
      (should (string-match-p "\\`<p>no body<script>.*" part)))
    (should (equal (porter-test-get-body server "/s/hello.txt") "hello static\n"))
    (porter-test-with-client (client server)
      (porter-test-write client (porter-test-request-bytes "GET" "/s/.porter-reload"))
      (porter-static--event client "text/event-stream")
      (porter-static--event client "retry: 500")
      ;; By another program.
      (porter-static--write "tree/part.html" "<p>changed")
      (should (< (porter-static--event client "data: page") (* 0.5 porter-test-patience)))
      (porter-test-pause 0.3)
      (porter-static--write "tree/style.css" "p {}")
      (should (< (porter-static--event client "data: style") (* 0.5 porter-test-patience)))
      ;; In Emacs, anywhere below the directory.
      (porter-test-pause 0.3)
      (with-current-buffer (porter-test-client-buffer client) (erase-buffer))
      (with-current-buffer (find-file-noselect
                            (expand-file-name "tree/plain/a.txt" porter-static--directory))
        (insert "x")
        (let ((inhibit-message t)) (save-buffer))
        (kill-buffer))
      (should (< (porter-static--event client "data: page") (* 0.2 porter-test-patience))))
    (porter-test-wait (lambda () (= 0 (plist-get (porter-server-statistics server) :connections)))
                      5 "A stream outlives its client")))

(ert-deftest porter-static-serve-refuses ()
  "What would be a dead URL, or another machine's, is refused, and nothing is started."
  (require 'porter)
  (let ((before (porter-servers)))
    (should-error (porter-serve-directory "/ssh:porter-test-nowhere:/tmp/") :type 'user-error)
    (with-temp-buffer
      (should-error (porter-serve-this-file) :type 'user-error)
      (setq buffer-file-name (expand-file-name ".hidden" temporary-file-directory))
      (should-error (porter-serve-this-file) :type 'user-error)
      (setq buffer-file-name nil))
    (should (equal before (porter-servers)))))

(ert-deftest porter-static-serve-says-when-the-port-was-taken ()
  "The commands that serve files say which port they wanted, and the URL."
  (let* ((porter-static--directory (file-name-as-directory (make-temp-file "porter-static" t)))
         (file (porter-static--write "a b.html" "x"))
         (said nil)
         (what (lambda (served path server)
                 (should (string-match-p
                          (format "\\`%s is served at http://127.0.0.1:%d%s; [0-9]+ was taken\\'"
                                  (regexp-quote (abbreviate-file-name served))
                                  (porter-port server) path)
                          said))))
         server)
    (unwind-protect
        (porter-test-with-server (other #'porter-test-hello)
          (let ((porter-ui-default-port (porter-port other)))
            (cl-letf (((symbol-function 'message)
                       (lambda (format &rest args)
                         (setq said (and format (apply #'format format args))))))
              (with-current-buffer (find-file-noselect file)
                (setq server (porter-serve-this-file))
                (kill-buffer))
              (funcall what file "/a%20b\\.html" server)
              ;; Used again, it did not want another port.
              (should (eq server (porter-serve-directory porter-static--directory)))
              (should (string-match-p " is served at http://127.0.0.1:[0-9]+/\\'" said)))))
      (when server (porter-stop server))
      (delete-directory porter-static--directory t))))

;;;; Nothing is left

(ert-deftest porter-static-nothing-is-left ()
  "Clients that leave in the middle of a file leave nothing behind."
  (porter-static--with (server)
    (porter-static--write "tree/huge.bin" (make-string (* 16 1024 1024) ?x))
    (dotimes (_ 5)
      (porter-test-with-client (client server)
        (porter-test-write client (porter-test-request-bytes "GET" "/s/huge.bin"))
        (porter-test-write client (porter-test-request-bytes "GET" "/s/plain/"))
        (porter-test-await client (lambda () (> (buffer-size) 100)) 3)
        (porter-test-reset client)))
    (porter-test-wait (lambda () (= 0 (plist-get (porter-server-statistics server) :connections)))
                      3 "Connections are left")
    (when (file-directory-p "/proc/self/fd")
      (porter-test-wait (lambda ()
                          (cl-notany (lambda (fd) (string-match-p "huge" (or (file-symlink-p fd) "")))
                                     (directory-files (format "/proc/%d/fd" (emacs-pid)) t "[0-9]")))
                        3 "Files are left open"))))

(provide 'porter-static-tests)
;;; porter-static-tests.el ends here
