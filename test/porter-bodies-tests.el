;;; porter-bodies-tests.el --- Forms with files, and large bodies  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'porter-test-helper)

(defconst porter-bodies--type "multipart/form-data; boundary=fence7")

(defun porter-bodies--part (disposition content &optional type)
  "A part with DISPOSITION, CONTENT and TYPE."
  (concat "--fence7\r\nContent-Disposition: form-data; " disposition "\r\n"
          (and type (concat "Content-Type: " type "\r\n")) "\r\n" content "\r\n"))

(defun porter-bodies--form (&rest parts)
  "A form of PARTS, as bytes."
  (encode-coding-string (concat (apply #'concat parts) "--fence7--\r\n") 'utf-8-unix))

(defmacro porter-bodies--with (spec &rest body)
  "Run BODY with a server; spooled files are in a directory of their own.
SPEC is (SERVER DIRECTORY FUNCTION &rest ARGS)."
  (declare (indent 1) (debug ((symbolp symbolp form &rest form) body)))
  (pcase-let ((`(,server ,directory ,function . ,args) spec))
    `(let ((,directory (make-temp-file "porter-bodies" t)))
       (unwind-protect
           (porter-test-with-server (,server ,function :spool-directory ,directory ,@args)
             ,@body)
         (delete-directory ,directory t)))))

(defun porter-bodies--files (directory)
  "The names of the files in DIRECTORY."
  (directory-files directory t directory-files-no-dot-files-regexp))

(defun porter-bodies--should-be-empty (directory)
  "Fail unless DIRECTORY is soon empty."
  (porter-test-wait (lambda () (null (porter-bodies--files directory)))
                    3 "Left: %S" (lambda () (porter-bodies--files directory))))

(defun porter-bodies--bytes (file)
  "The bytes of FILE."
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (insert-file-contents-literally file)
    (buffer-string)))

(defun porter-bodies--noise (len)
  "LEN bytes, all values among them, with many line ends and dashes."
  (let ((bytes (make-string len 0)) (state 1))
    (dotimes (i len)
      (setq state (logand (+ (* state 1103515245) 12345) #x7fffffff))
      (aset bytes i (pcase (logand (ash state -16) 7)
                      (0 ?\r) (1 ?\n) (2 ?-) (_ (logand (ash state -8) 255)))))
    bytes))

(ert-deftest porter-bodies-form-with-files ()
  "Fields are strings in headers, files are alists."
  (let (headers files parts param missing form raw)
    (porter-test-with-server
        (server (lambda (request)
                  (setq headers (slot-value request 'headers)
                        files (porter-request-files request)
                        parts (porter-request-parts request)
                        param (porter-request-param request "title")
                        missing (porter-request-param request "f" 'none)
                        form (porter-request-form request)
                        raw (porter-request-body request))
                  (porter-test-answer request "ok")))
      (let ((body (porter-bodies--form
                   (porter-bodies--part "name=\"title\"" "Grüße" "text/x; a=b")
                   (porter-bodies--part "name=\"f\"; filename=\"名前.txt\"" "a\r\nb" "text/plain")
                   (porter-bodies--part "name=\"empty\"; filename=\"\"" ""))))
        (should (equal 200 (porter-test-response-status
                            (porter-test-post server "/x?q=1" body
                                              (cons "Content-Type" porter-bodies--type)))))
        (should (equal body raw))
        (should (equal param "Grüße"))
        (should (equal missing 'none))
        (should (equal form '(("title" . "Grüße"))))
        (should (equal files '(("f" (content . "a\r\nb") (filename . "名前.txt")
                                (content-type . "text/plain") (size . 4))
                               ("empty" (content . "") (filename . "")
                                (content-type) (size . 0)))))
        (should (equal parts `(("title" (content . ,(encode-coding-string "Grüße" 'utf-8))
                                (filename) (content-type . "text/x; a=b") (size . 7))
                               ,@files)))
        (should (equal (butlast headers (- (length headers) 5))
                       `((:POST . "/x") ("q" . "1") ("title" . "Grüße") ,@files)))))))

(ert-deftest porter-bodies-bad-form-is-400-without-a-handler ()
  "A form without its last boundary, or with a part that cannot be, calls nobody."
  (let ((calls 0))
    (porter-test-with-server
        (server (lambda (request) (cl-incf calls) (porter-test-answer request "ok")))
      (dolist (body '("" "--fence7\r\n" "no form at all"
                      "--fence7\r\nContent-Disposition: form-data; name=a\r\n\r\nx"
                      "--fence7\r\nX: y\r\n\r\nx\r\n--fence7--"))
        (should (equal (if (equal body "") 200 400)
                       (porter-test-response-status
                        (porter-test-post server "/" body
                                          (cons "Content-Type" porter-bodies--type))))))
      (should (equal calls 1))
      (should (equal 400 (porter-test-response-status
                          (porter-test-post server "/" "--x--"
                                            '("Content-Type" . "multipart/form-data"))))))))

(ert-deftest porter-bodies-large-body-is-a-file ()
  "A body from the threshold on is in a file that goes when the answer is finished."
  (let ((noise (porter-bodies--noise 300000)) seen)
    (porter-bodies--with
        (server directory
                (lambda (request)
                  (let ((file (porter-request-body-file request)))
                    (setq seen (list (and file (equal noise (porter-bodies--bytes file)))
                                     (and file (file-modes file))
                                     (equal noise (porter-request-body request))))
                    (porter-test-answer request (if file "file" "memory"))
                    ;; Finished, but the handler still runs.
                    (push (and file (file-exists-p file)) seen)))
                :spool-threshold 100000)
      (should (equal "file" (porter-test-response-body (porter-test-post server "/" noise))))
      (should (equal seen (list t t #o600 t)))
      (porter-bodies--should-be-empty directory)
      ;; Chunked: the length is not known before.
      (porter-test-with-client (client server)
        (porter-test-write client "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        (dotimes (i 30)
          (porter-test-write client (concat "2710\r\n" (substring noise (* i 10000) (* (1+ i) 10000))
                                            "\r\n")))
        ;; Another one right behind it.
        (porter-test-write client "0\r\n\r\nPOST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc")
        (setq seen nil)
        (should (equal "file" (porter-test-response-body (porter-test-read client))))
        (should (equal "memory" (porter-test-response-body (porter-test-read client)))))
      (porter-bodies--should-be-empty directory)
      (setq noise (substring noise 0 99999))
      (should (equal "memory" (porter-test-response-body (porter-test-post server "/" noise)))))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-bodies-files-can-be-kept ()
  "A file that was taken over or renamed stays; one of an answer that is deferred too, until then."
  (let (file process)
    (porter-bodies--with
        (server directory
                (lambda (request)
                  (setq file (porter-request-body-file request)
                        process (porter-test-process request))
                  (pcase (porter-request-path request)
                    ("/keep" (should (equal file (porter-request-keep-file request file)))
                     (should-not (porter-request-keep-file request "/no/such"))
                     (porter-test-answer request "ok"))
                    ("/rename" (rename-file file (concat file ".mine"))
                     (porter-test-answer request "ok"))
                    ("/later" :keep-alive)))
                :spool-threshold 1000)
      (let ((body (make-string 5000 ?x)))
        (porter-test-post server "/keep" body)
        (porter-test-pause 0.2)
        (should (equal body (porter-bodies--bytes file)))
        (delete-file file)
        (porter-test-post server "/rename" body)
        (porter-test-pause 0.2)
        (should (equal body (porter-bodies--bytes (concat file ".mine"))))
        (delete-file (concat file ".mine"))
        (porter-test-with-client (client server)
          (setq file nil)
          (porter-test-write client (porter-test-request-bytes "POST" "/later" nil body))
          (porter-test-wait (lambda () file) 3 "No request")
          (porter-test-pause 0.1)
          (should (equal body (porter-bodies--bytes file)))
          (porter-respond process 200 nil "late")
          (should (equal "late" (porter-test-response-body (porter-test-read client))))
          (porter-bodies--should-be-empty directory))))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-bodies-large-form ()
  "Of a large form the large parts are files, the small ones are as ever."
  (let ((noise (porter-bodies--noise 200000)) (parts nil) raw file)
    (porter-bodies--with
        (server directory
                (lambda (request)
                  (setq parts (cl-remove-if-not (lambda (p) (stringp (car p)))
                                                (slot-value request 'headers))
                        raw (porter-request-body request)
                        file (cdr (assq 'file (cdr (assoc "big" parts)))))
                  (should (equal noise (porter-bodies--bytes file)))
                  (should (equal "after" (porter-request-param request "after")))
                  (should (equal noise (encode-coding-string
                                        (porter-request-param request "text") 'raw-text-unix)))
                  (porter-test-answer request "ok"))
                :spool-threshold 50000)
      (let ((response
             (porter-test-fetch
              server "POST" "/" (list (cons "Content-Type" porter-bodies--type))
              (concat (encode-coding-string
                       (concat (porter-bodies--part "name=before" "before")
                               (porter-bodies--part "name=small; filename=s" "small"))
                       'utf-8-unix)
                      (porter-bodies--part "name=big; filename=b" noise)
                      (porter-bodies--part "name=small2; filename=s" "small2")
                      (porter-bodies--part "name=text" noise)
                      (porter-bodies--part "name=after" "after")
                      "--fence7--\r\n"))))
        (should (equal 200 (porter-test-response-status response))))
      (should (equal raw ""))
      (should (equal (mapcar #'car parts) '("before" "small" "big" "small2" "text" "after")))
      (should (equal "before" (cdr (assoc "before" parts))))
      (should (equal "small" (cdr (assq 'content (cdr (assoc "small" parts))))))
      (should (equal "small2" (cdr (assq 'content (cdr (assoc "small2" parts))))))
      (should (equal 200000 (cdr (assq 'size (cdr (assoc "big" parts))))))
      (porter-bodies--should-be-empty directory))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-bodies-every-threshold ()
  "Where a form is when it becomes large makes no difference to its parts."
  (let* ((body (porter-bodies--form
                (porter-bodies--part "name=a" "first")
                (porter-bodies--part "name=f; filename=x" "1\r\n--fence\r\n2")
                (porter-bodies--part "name=b" "")))
         (parts (lambda (request)
                  (mapcar (lambda (p)
                            (cons (car p)
                                  (cond ((stringp (cdr p)) (cdr p))
                                        ((cdr (assq 'content (cdr p))))
                                        (t (porter-bodies--bytes (cdr (assq 'file (cdr p))))))))
                          (append (porter-request-form request)
                                  (porter-request-files request)))))
         seen)
    (cl-loop
     for threshold from 1 to (1+ (length body)) by 3 do
     (porter-bodies--with
         (server directory
                 (lambda (request)
                   (setq seen (funcall parts request))
                   (porter-test-answer request "ok"))
                 :spool-threshold threshold)
       (porter-test-with-client (client server)
         (let ((bytes (porter-test-request-bytes
                       "POST" "/" (list (cons "Content-Type" porter-bodies--type)) body)))
           (porter-test-write client (substring bytes 0 (- (length bytes) (/ (length body) 2))))
           (porter-test-pause 0.005)
           (porter-test-write client (substring bytes (- (length bytes) (/ (length body) 2)))))
         (should (equal 200 (porter-test-response-status (porter-test-read client)))))
       (should (equal seen '(("a" . "first") ("b" . "") ("f" . "1\r\n--fence\r\n2"))))
       (porter-bodies--should-be-empty directory)))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-bodies-large-urlencoded-form ()
  "An urlencoded form that went to a file has its parameters."
  (porter-bodies--with
      (server directory
              (lambda (request)
                (porter-test-answer
                 request (format "%s %s %d" (and (porter-request-body-file request) t)
                                 (porter-request-param request "b")
                                 (length (porter-request-form request)))))
              :spool-threshold 1000)
    (should (equal "t yes 3"
                   (porter-test-response-body
                    (porter-test-post server "/"
                                      (concat "a=" (make-string 5000 ?x) "&b=yes&c=")
                                      '("Content-Type" . "application/x-www-form-urlencoded")))))))

(ert-deftest porter-bodies-client-leaves-during-upload ()
  "What a client that leaves has sent is deleted."
  (let ((noise (porter-bodies--noise 400000)) (calls 0))
    (porter-bodies--with
        (server directory
                (lambda (request) (cl-incf calls) (porter-test-answer request "ok"))
                :spool-threshold 1000)
      (porter-test-with-client (client server)
        (porter-test-write client (concat "POST / HTTP/1.1\r\nHost: localhost\r\n"
                                          "Content-Length: 1000000\r\n\r\n" noise))
        (porter-test-wait (lambda () (porter-bodies--files directory)) 3 "No file"))
      (porter-bodies--should-be-empty directory)
      ;; Refused in the middle of it.
      (porter-test-with-client (client server)
        (porter-test-write client (concat "POST / HTTP/1.1\r\nHost: localhost\r\n"
                                          "Transfer-Encoding: chunked\r\n\r\n"
                                          "61a80\r\n" noise "\r\nxyz\r\n"))
        (should (equal 400 (porter-test-response-status (porter-test-read client)))))
      (porter-bodies--should-be-empty directory)
      (should (equal calls 0)))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-bodies-no-place-to-store ()
  "When the file cannot be written the client hears so, and the connection ends."
  (porter-test-with-server (server #'porter-test-hello :spool-threshold 1000
                                   :spool-directory "/nonexistent/porter")
    (porter-test-with-client (client server)
      (porter-test-write client (porter-test-request-bytes "POST" "/" nil (make-string 5000 ?x)))
      (should (equal 507 (porter-test-response-status (porter-test-read client))))
      (porter-test-should-close client))
    (porter-test-should-serve server))
  (porter-test-should-come-to-rest))

(defun porter-bodies--seconds (server kilobytes)
  "Seconds of CPU time for so many KILOBYTES of urlencoded data in pieces of one.
SERVER is in this Emacs, and so is the client, whose part is linear.  The time
on the clock would mostly be that of delayed acknowledgements, 40 ms each."
  (porter-test-with-client (client server)
    (let ((piece (concat "k=" (make-string 1021 ?v) "&"))
          (start (float-time (get-internal-run-time))))
      (porter-test-write
       client (format "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n"
                      (* 1024 kilobytes)))
      (dotimes (_ kilobytes) (porter-test-write client piece))
      (should (equal 200 (porter-test-response-status (porter-test-read client nil 10))))
      (- (float-time (get-internal-run-time)) start))))

(ert-deftest porter-bodies-urlencoded-is-linear ()
  "Twice as much urlencoded data in pieces of a kilobyte takes at most 2.3 times as long."
  (porter-test-with-server
      (server (lambda (request)
                (porter-request-param request "last")
                (porter-test-answer request "ok"))
              ;; Both in memory: one that goes to a file and one that does not are two things.
              :spool-threshold (* 16 1024 1024))
    ;; The least of several rounds, as many as that needs when others use the machine too.
    (let ((gc-cons-threshold most-positive-fixnum) one two)
      (cl-loop repeat 12
               do (let ((a (porter-bodies--seconds server 2048))
                        (b (porter-bodies--seconds server 4096)))
                    (setq one (if one (min one a) a)
                          two (if two (min two b) b)))
               until (< two (* 2.3 one))
               finally (should (< two (* 2.3 one)))))))

(ert-deftest porter-bodies-as-they-come ()
  "A function gets a body while the client sends it, and answers at its end."
  (let (pieces request)
    (porter-bodies--with
        (server directory
                (lambda (r)
                  (setq request r)
                  (porter-request-on-body
                   r (lambda (piece)
                       (push piece pieces)
                       (unless piece
                         (porter-test-answer r (number-to-string
                                                (apply #'+ (mapcar #'length pieces))))))))
                :stream-bodies '("/in/") :spool-threshold 1000)
      (porter-test-with-client (client server)
        (porter-test-write client "POST /in/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        (should (equal 100 (porter-test-response-status (porter-test-read-any client))))
        (porter-test-wait (lambda () request) 3 "No request")
        (should (equal "/in/a" (porter-request-path request)))
        (dolist (piece '("abc" "def" "ghi"))
          (porter-test-write client piece)
          (porter-test-wait (lambda () (equal (car pieces)
                                              (if (equal piece "ghi") nil piece)))
                            3 "No piece"))
        (should (equal "9" (porter-test-response-body (porter-test-read client))))
        (should (equal pieces '(nil "ghi" "def" "abc")))
        ;; Chunked, all at once, with another request behind it.
        (setq pieces nil)
        (porter-test-write client "POST /in/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\nX: y\r\n\r\nPOST /in/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nConnection: close\r\n\r\nxyz")
        (should (equal "5" (porter-test-response-body (porter-test-read client))))
        (should (equal "8" (porter-test-response-body (porter-test-read client))))
        (porter-test-should-close client))
      ;; Where it does not come so, in memory or in a file.
      (setq pieces nil)
      (should (equal "3" (porter-test-response-body (porter-test-post server "/" "abc"))))
      (should (equal pieces '(nil "abc")))
      (setq pieces nil)
      (should (equal "200000" (porter-test-response-body
                               (porter-test-post server "/" (make-string 200000 ?x)))))
      (should (equal 5 (length pieces)))
      (setq pieces nil)
      (should (equal "0" (porter-test-response-body (porter-test-post server "/in/" "")))))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-bodies-as-they-come-slowly-taken ()
  "A client that sends faster than Lisp takes has to wait, and memory stays."
  (let ((sum 0) busy most)
    (porter-test-with-server
        (server (lambda (request)
                  (porter-request-on-body
                   request
                   (lambda (piece)
                     (setq most (max (or most 0) (plist-get (porter--mod-counts) :buffer-bytes)))
                     (when piece
                       ;; Others come meanwhile, and have to wait for this one.
                       (should-not busy)
                       (setq busy t)
                       (sleep-for 0.0005)
                       (setq busy nil)
                       (setq sum (+ sum (length piece))))
                     (unless piece (porter-test-answer request (number-to-string sum))))))
                :stream-bodies '("/") :max-body nil)
      (porter-test-with-child
          (curl (list "sh" "-c" (format "head -c 50000000 /dev/zero | curl -s -T - http://127.0.0.1:%d/"
                                        (porter-port server))))
        (should (equal "50000000" (porter-test-child-await curl "^\\([0-9]+\\)$" 60)))))
    (should (< most 4000000))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-bodies-as-they-come-and-go-wrong ()
  "Bad chunks, a client that leaves, an early answer, an error, a busy Lisp."
  (let ((gone 0) pieces)
    (porter-test-with-server
        (server (lambda (request)
                  (porter-on-close (porter-test-process request) (lambda () (cl-incf gone)))
                  (pcase (porter-request-path request)
                    ("/early" (porter-test-answer request "early"))
                    ("/error" (porter-request-on-body request (lambda (_) (error "No"))))
                    (_ (porter-request-on-body request (lambda (piece) (push piece pieces))))))
                :stream-bodies '("/") :max-body 100000 :body-timeout 0.5)
      (let ((post (lambda (path rest)
                    (concat "POST " path " HTTP/1.1\r\nHost: localhost\r\n" rest))))
        (pcase-dolist (`(,status . ,rest)
                       '((400 . "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxyz\r\n")
                         (413 . "Transfer-Encoding: chunked\r\n\r\nfffff\r\n")
                         (408 . "Content-Length: 10\r\n\r\nabc")))
          (porter-test-with-client (client server)
            (porter-test-write client (funcall post "/" rest))
            (when (equal status 413)
              (porter-test-write client (make-string 110000 ?x)))
            (should (equal status (porter-test-response-status (porter-test-read client))))
            (porter-test-should-close client)))
        (should-not (memq nil pieces))
        ;; The others may have been refused before Lisp looked.
        (porter-test-wait (lambda () (>= gone 1)) 3 "Not told")
        (setq gone 0)
        (porter-test-with-client (client server)
          (porter-test-write client (funcall post "/" "Content-Length: 10\r\n\r\nabc"))
          (porter-test-pause 0.1))
        (porter-test-wait (lambda () (= gone 1)) 3 "Not told")
        (porter-test-with-client (client server)
          (porter-test-write client (funcall post "/early" "Content-Length: 10\r\n\r\nabc"))
          (should (equal "early" (porter-test-response-body (porter-test-read client))))
          ;; The rest belongs to it all the same.
          (porter-test-write client "GET /ea")
          (should (equal "early" (porter-test-response-body
                                  (porter-test-ask client "GET" "/early")))))
        (porter-test-with-client (client server)
          (porter-test-write client (funcall post "/error" "Content-Length: 3\r\n\r\nabc"))
          (should (equal 500 (porter-test-response-status (porter-test-read client)))))))
    (should (equal 0 (hash-table-count porter--body-functions)))
    (porter-test-should-come-to-rest)))

(provide 'porter-bodies-tests)
;;; porter-bodies-tests.el ends here
