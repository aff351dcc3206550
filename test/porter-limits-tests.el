;;; porter-limits-tests.el --- Limits and timeouts, kept while Lisp is stuck  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The server is in a child Emacs, and in most tests that Emacs computes and
;; computes: what is refused here the loop refuses alone.  PORTER_SLOW=1 runs the long forms.

;;; Code:

(require 'porter-test-helper)

(defconst porter-limits--form
  '(progn
     (require 'porter)
     (require 'eieio)
     (let ((server
            (apply #'porter-start
                   (lambda (request)
                     (let ((process (slot-value request 'process)))
                       (pcase (porter-request-path request)
                         ("/busy"
                          (let ((end (+ (float-time)
                                        (string-to-number (porter-request-param request "s")))))
                            (while (< (float-time) end)))
                          (porter-respond process 200 nil "was busy"))
                         ("/later" (run-at-time 0.8 nil
                                                (lambda () (porter-respond process 200 nil "later")))
                          :keep-alive)
                         ("/large" (porter-respond process 200 nil (make-string 20000000 ?x)))
                         ("/medium" (porter-respond process 200 nil (make-string 5000000 ?x)))
                         ((or "/memory" "/peak")
                          (porter-respond process 200 nil
                                          (with-temp-buffer
                                            (insert-file-contents "/proc/self/status")
                                            (re-search-forward
                                             (if (equal (porter-request-path request) "/peak")
                                                 "^VmHWM:[ \t]+\\([0-9]+\\)"
                                               "^VmRSS:[ \t]+\\([0-9]+\\)"))
                                            (match-string 1))))
                         ("/process"
                          (with-temp-buffer
                            (insert-file-contents "/etc/passwd")
                            (porter-respond process 200 nil
                                            (number-to-string (call-process "true")))))
                         ("/length" (porter-respond
                                     process 200 nil
                                     (number-to-string (length (porter-request-body request)))))
                         (_ (porter-respond process 200 nil "ok")))))
                   0 nil porter-test-options)))
       (message "PORT %d" (porter-port server))
       (while t (accept-process-output nil 60))))
  "A form for child Emacsen: a server that can be made to compute.")

(defmacro porter-limits--stuck (spec &rest body)
  "Run BODY with a server in a child Emacs whose Lisp computes all the while.
SPEC is (PORT &rest OPTIONS), as for `porter-test-with-child-server'."
  (declare (indent 1) (debug ((symbolp &rest form) body)))
  `(porter-test-with-child-server (,(car spec) porter-limits--form ,@(cdr spec))
     (porter-test-with-client (busy ,(car spec))
       (porter-test-write busy (porter-test-request-bytes "GET" "/busy?s=30"))
       (porter-test-pause 0.1)
       ,@body
       (should-not (porter-test-closed-p busy)))))

(defun porter-limits--status (client &optional seconds)
  "Read the status of an answer to CLIENT, and see that the connection ends after it."
  (let ((response (porter-test-read client nil seconds)))
    (should (porter-test-says-close-p response))
    (porter-test-should-close client)
    (porter-test-response-status response)))

(defun porter-limits--answer (port &rest strings)
  "Send STRINGS to PORT and return the status, the last on the connection."
  (porter-test-with-client (client port)
    (dolist (string strings) (porter-test-write client string))
    (porter-limits--status client)))

(defconst porter-limits--head "GET / HTTP/1.1\r\nHost: localhost\r\n")
(defconst porter-limits--post "POST / HTTP/1.1\r\nHost: localhost\r\n")

(ert-deftest porter-limits-sizes-while-stuck ()
  "414, 431 for bytes and for fields, 413 for known and unknown lengths, 421."
  (porter-limits--stuck (port :max-target 100 :max-head 500 :max-fields 5 :max-body 1000)
    (should (equal 414 (porter-limits--answer
                        port (concat "GET /" (make-string 100 ?x) " HTTP/1.1\r\n"
                                     "Host: localhost\r\n\r\n"))))
    (should (equal 431 (porter-limits--answer
                        port porter-limits--head "X: " (make-string 500 ?x) "\r\n\r\n")))
    (should (equal 431 (porter-limits--answer
                        port porter-limits--head "a: b\r\nc: d\r\ne: f\r\ng: h\r\ni: j\r\n\r\n")))
    ;; Nothing of the body is sent, or asked for.
    (should (equal 413 (porter-limits--answer
                        port porter-limits--post "Content-Length: 1001\r\n\r\n")))
    (should (equal 413 (porter-limits--answer
                        port porter-limits--post
                        "Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")))
    (should (equal 413 (porter-limits--answer
                        port porter-limits--post "Transfer-Encoding: chunked\r\n\r\n"
                        "1f4\r\n" (make-string 500 ?x) "\r\n" "1f5\r\n" (make-string 501 ?x))))
    (should (equal 413 (porter-limits--answer
                        port porter-limits--post "Transfer-Encoding: chunked\r\n\r\n"
                        "ffffffff\r\n" (make-string 1001 ?x))))
    (should (equal 421 (porter-limits--answer
                        port "POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 10\r\n"
                        "Expect: 100-continue\r\n\r\n")))))

(ert-deftest porter-limits-body-of-exactly-max ()
  "A body of just the allowed size is taken, whatever its framing."
  (porter-test-with-child-server (port porter-limits--form :max-body 1000)
    (should (equal "1000" (porter-test-response-body
                           (porter-test-post port "/length" (make-string 1000 ?x)))))
    (porter-test-with-client (client port)
      (porter-test-write client (concat "POST /length HTTP/1.1\r\nHost: localhost\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n"
                                        "3e8\r\n" (make-string 1000 ?x) "\r\n0\r\n\r\n"))
      (should (equal "1000" (porter-test-response-body (porter-test-read client)))))))

(ert-deftest porter-limits-head-timeout-while-stuck ()
  "A head that drips is answered 408; a connection that says nothing is closed."
  (porter-limits--stuck (port :head-timeout 0.6)
    (porter-test-with-client (silent port)
      (porter-test-with-client (client port)
        (let ((seconds
               (porter-test-seconds
                (porter-test-write-slowly client (concat porter-limits--head "X: "
                                                         (make-string 200 ?x))
                                          1 0.05)
                (should (equal 408 (porter-test-response-status (porter-test-read client)))))))
          (should (< 0.5 seconds (* 2.5 porter-test-patience)))))
      (porter-test-should-close silent))))

(ert-deftest porter-limits-body-timeout-while-stuck ()
  "A body that stops is answered 408, one that goes on is not, one that crawls is in the end."
  (porter-limits--stuck (port :body-timeout 0.5)
    (porter-test-with-client (client port)
      (porter-test-write client (concat porter-limits--post "Content-Length: 10\r\n\r\nabc"))
      (should (equal 408 (porter-limits--status client 4))))
    (porter-test-with-client (client port)
      (porter-test-write client (concat porter-limits--post "Content-Length: 1000\r\n\r\n"))
      (let ((seconds
             (porter-test-seconds
              (porter-test-write-slowly client (make-string 100 ?x) 1 0.2)
              (should (equal 408 (porter-test-response-status (porter-test-read client)))))))
        (should (< 1.5 seconds (* 6 porter-test-patience)))))))

(ert-deftest porter-limits-slow-body-is-taken ()
  "What matters is progress, not the time for the whole."
  (porter-test-with-child-server (port porter-limits--form :body-timeout 0.5)
    (porter-test-with-client (client port)
      (porter-test-write client
                         "POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
      (porter-test-write-slowly client "abcde" 1 0.2)
      (should (equal "5" (porter-test-response-body (porter-test-read client)))))))

(ert-deftest porter-limits-idle-timeout ()
  "A connection between requests is closed without a word, also while Lisp is stuck."
  (porter-test-with-child-server (port porter-limits--form :idle-timeout 0.5 :head-timeout 20)
    (porter-test-with-client (client port)
      (should (equal "ok" (porter-test-response-body (porter-test-ask client "GET" "/"))))
      (porter-test-with-client (busy port)
        (porter-test-write busy (porter-test-request-bytes "GET" "/busy?s=3"))
        (porter-test-should-stay-open client 0.2)
        (porter-test-should-close client 2)))))

(ert-deftest porter-limits-write-timeout ()
  "A client that does not read its answer is given up, and one that reads is not."
  (porter-test-with-child-server (port porter-limits--form :write-timeout 1)
    (porter-test-with-client (client port)
      (porter-test-hold client)
      (porter-test-write client (porter-test-request-bytes "GET" "/large"))
      (porter-test-pause 2.5)
      (porter-test-unhold client)
      (should (porter-test-await-close client 4))
      (should (< (length (porter-test-bytes client)) 20000000)))
    (porter-test-with-client (client port)
      (should (equal 20000000 (length (porter-test-response-body
                                       (porter-test-ask client "GET" "/large" nil nil 20))))))))

(ert-deftest porter-limits-requests-per-connection ()
  "The last request that a connection may bring says so in its answer."
  (porter-test-with-child-server (port porter-limits--form :max-requests-per-connection 3)
    (porter-test-with-client (client port)
      (dotimes (_ 2)
        (should-not (porter-test-says-close-p (porter-test-ask client "GET" "/"))))
      (should (porter-test-says-close-p (porter-test-ask client "GET" "/")))
      (porter-test-should-close client))
    (porter-test-with-client (client port)
      (porter-test-write client (mapconcat #'identity
                                           (make-list 5 (concat porter-limits--head "\r\n")) ""))
      (dotimes (_ 3) (should (equal 200 (porter-test-response-status (porter-test-read client)))))
      (porter-test-should-close client))))

(ert-deftest porter-limits-pipelined ()
  "Beyond the limit requests are not read, and are answered in the end all the same."
  (porter-test-with-child-server (port porter-limits--form :max-pipelined 4)
    (porter-test-with-client (client port)
      (porter-test-write client (mapconcat (lambda (_) (concat porter-limits--head "\r\n"))
                                           (number-sequence 1 1000) ""))
      (dotimes (_ 1000)
        (should (equal 200 (porter-test-response-status (porter-test-read client))))))))

(ert-deftest porter-limits-connections-in-all ()
  "Beyond the limit connections wait in the kernel until one leaves."
  (porter-test-with-child-server (port porter-limits--form :max-connections 3)
    (let ((clients (mapcar (lambda (_) (porter-test-open port)) '(1 2 3 4 5))))
      (unwind-protect
          (progn
            (dolist (client clients)
              (porter-test-write client (porter-test-request-bytes "GET" "/")))
            (dotimes (i 3)
              (should (equal 200 (porter-test-response-status
                                  (porter-test-read (nth i clients))))))
            (porter-test-should-stay-open (nth 3 clients) 0.3)
            (should (equal "" (porter-test-bytes (nth 4 clients))))
            (porter-test-close (nth 0 clients))
            (should (equal 200 (porter-test-response-status (porter-test-read (nth 3 clients)))))
            (porter-test-close (nth 1 clients))
            (should (equal 200 (porter-test-response-status
                                (porter-test-read (nth 4 clients))))))
        (mapc #'porter-test-close clients)))))

(ert-deftest porter-limits-connections-per-address ()
  "Beyond the limit an address gets 503; others do not suffer."
  (porter-limits--stuck (port :max-connections-per-address 2 :host "0.0.0.0" :queue-timeout 0.3)
    (porter-test-with-client (_second port)
      (porter-test-with-client (third port)
        (should (equal 503 (porter-limits--status third))))
      (porter-test-with-client (other "127.0.0.2" port)
        ;; All of these are from 127.0.0.1, whatever they connect to.
        (should (equal 503 (porter-limits--status other)))))))

(ert-deftest porter-limits-queue-length-while-stuck ()
  "Beyond the limit requests get 503 at once, with Retry-After, and the connection lives."
  (porter-limits--stuck (port :max-queue 3 :queue-timeout nil)
    (let ((waiting (mapcar (lambda (_) (porter-test-open port)) '(1 2 3))))
      (unwind-protect
          (progn
            (dolist (client waiting)
              (porter-test-write client (porter-test-request-bytes "GET" "/")))
            (porter-test-pause 0.1)
            (porter-test-with-client (client port)
              (let ((response (porter-test-ask client "GET" "/")))
                (should (equal 503 (porter-test-response-status response)))
                (should (porter-test-header response "retry-after"))
                (should-not (porter-test-says-close-p response)))
              (should (equal 503 (porter-test-response-status
                                  (porter-test-ask client "GET" "/"))))))
        (mapc #'porter-test-close waiting)))))

(ert-deftest porter-limits-queue-age-while-stuck ()
  "A request that Lisp does not take in time gets 503 with Retry-After."
  (porter-limits--stuck (port :queue-timeout 0.5)
    (porter-test-with-client (client port)
      (let* (response
             (seconds (porter-test-seconds
                       (setq response (porter-test-ask client "GET" "/")))))
        (should (equal 503 (porter-test-response-status response)))
        (should (porter-test-header response "retry-after"))
        (should (< 0.4 seconds (* 2 porter-test-patience)))))))

(ert-deftest porter-limits-handler-timeout ()
  "A handler that computes, or waits, for too long: 504, and its late answer is dropped."
  (porter-test-with-child-server (port porter-limits--form :handler-timeout 0.4)
    (porter-test-with-client (client port)
      (should (equal 504 (porter-test-response-status
                          (porter-test-ask client "GET" "/later"))))
      (porter-test-pause 0.8)
      (should (equal "ok" (porter-test-response-body (porter-test-ask client "GET" "/"))))
      (let ((seconds (porter-test-seconds
                      (should (equal 504 (porter-test-response-status
                                          (porter-test-ask client "GET" "/busy?s=2")))))))
        (should (< seconds (* 1.5 porter-test-patience)))))
    (porter-test-pause 2)
    (should (equal "ok" (porter-test-get-body port "/")))))

(ert-deftest porter-limits-continue-only-when-the-body-is-wanted ()
  "100 Continue before the body; not when it is there already, nor for HTTP/1.0."
  (porter-test-with-child-server (port porter-limits--form)
    (porter-test-with-client (client port)
      (porter-test-write client (concat "POST /length HTTP/1.1\r\nHost: localhost\r\n"
                                        "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"))
      (should (equal 100 (porter-test-response-status (porter-test-read-any client))))
      (porter-test-write client "abc")
      (should (equal "3" (porter-test-response-body (porter-test-read client)))))
    (porter-test-with-client (client port)
      (porter-test-write client (concat "POST /length HTTP/1.1\r\nHost: localhost\r\n"
                                        "Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabc"))
      (should (equal 200 (porter-test-response-status (porter-test-read-any client)))))
    (porter-test-with-client (client port)
      (porter-test-write client (concat "POST /length HTTP/1.0\r\nHost: localhost\r\n"
                                        "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"))
      (porter-test-pause 0.1)
      (porter-test-write client "abc")
      (should (equal 200 (porter-test-response-status (porter-test-read-any client)))))
    (should (equal 417 (porter-limits--answer port porter-limits--post
                                              "Content-Length: 3\r\nExpect: else\r\n\r\n")))))

(ert-deftest porter-limits-stop-is-graceful ()
  "Stop: no more connections, idle ones go at once, answers and requests under way are finished."
  (let (process)
    (porter-test-with-server
        (server (lambda (request)
                  (pcase (porter-request-path request)
                    ("/later" (setq process (porter-test-process request)) :keep-alive)
                    (_ (porter-test-answer request (porter-request-body request)))))
                :stop-timeout 3)
      (porter-test-with-client (idle server)
        (porter-test-ask idle "GET" "/")
        (porter-test-with-client (later server)
          (porter-test-write later (porter-test-request-bytes "GET" "/later"))
          (porter-test-wait (lambda () process) 3 "No request")
          (porter-test-with-client (half server)
            (porter-test-write half "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nabc")
            (porter-test-pause 0.1)
            (let ((port (porter-port server)))
              (porter-stop server)
              (should-not (porter-test-port-open-p port)))
            (porter-test-should-close idle 0.5)
            (porter-test-should-stay-open later 0.2)
            (porter-test-write half "def")
            (let ((response (porter-test-read half)))
              (should (equal "abcdef" (porter-test-response-body response)))
              (should (porter-test-says-close-p response)))
            (porter-test-should-close half)
            (porter-respond process 200 nil "late")
            (let ((response (porter-test-read later)))
              (should (equal "late" (porter-test-response-body response))))
            (porter-test-should-close later)))))
    (porter-test-should-come-to-rest)))

(ert-deftest porter-limits-stop-is-bounded ()
  "What does not end in time after a stop is cut off."
  (porter-test-with-server (server (lambda (_request) :keep-alive) :stop-timeout 0.5)
    (porter-test-with-client (client server)
      (porter-test-write client (porter-test-request-bytes "GET" "/"))
      (porter-test-pause 0.1)
      (porter-stop server)
      (porter-test-should-stay-open client 0.2)
      (porter-test-should-close client 2)))
  (porter-test-should-come-to-rest))

;;;; Crowds

(defconst porter-limits--crowd
  "use strict; use Socket;
my ($port, $n, $what) = @ARGV;
my $to = sockaddr_in($port, inet_aton('127.0.0.1'));
my @all;
$| = 1;
for my $i (1 .. $n) {
  socket(my $s, PF_INET, SOCK_STREAM, 0) or die \"socket $i: $!\";
  connect($s, $to) or die \"connect $i: $!\";
  push @all, $s;
}
sub say_it { my ($s) = @_; syswrite($s, \"GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n\") }
sub hear { my ($s) = @_; my $in = '';
  while ($in !~ /ok\\z|busy|waiting/) { sysread($s, $in, 4096, length $in) or return 0 }
  return $in =~ / 200 / }
if ($what eq 'post') {
  my $body = 'ok' x 450000;
  for (@all) {
    my $text = \"POST / HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 900000\\r\\n\\r\\n$body\";
    while (length $text) { my $n = syswrite($_, $text); $text = substr($text, $n) }
  }
  my $good = 0;
  for (@all) { my $in = ''; while ($in !~ /ok\\z/) { sysread($_, $in, 4096, length $in) or last }
               $good++ if $in =~ / 200 / }
  print \"POSTED $good\\n\";
} elsif ($what eq 'idle') {
  my $good = 0; for (@all) { say_it($_); $good += hear($_) }
  print \"ASKED $good\\n\";
  <STDIN>;
  say_it($_) for @all;
  $good = 0; $good += hear($_) for @all;
  print \"AGAIN $good\\n\";
  <STDIN>;
  $good = 0; for (@all) { $good++ unless sysread($_, my $in, 1) }
  print \"CLOSED $good\\n\";
} else {
  my $text = $what eq 'head' ? \"GET / HTTP/1.1\\r\\nHost: localhost\\r\\nX: \"
           : $what eq 'body' ? \"POST / HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 1000000\\r\\n\\r\\n\"
           : \"GET /medium HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n\";
  $SIG{PIPE} = 'IGNORE';
  syswrite($_, $text) for @all;
  print \"SENT\\n\";
  while (1) { sleep 1; if ($what ne 'read') { syswrite($_, 'x') for @all } }
}"
  "A client in Perl: (PORT N WHAT) opens N connections.")

(defun porter-limits--crowd (n)
  "The command of a client with N connections, without its last two arguments."
  (porter-test-need "perl")
  (unless (equal 0 (call-process "sh" nil nil nil "-c" (format "ulimit -n %d" (+ n 50))))
    (ert-skip "Not so many open files are allowed"))
  (list "sh" "-c" (format "ulimit -n %d; exec perl -e \"$0\" \"$@\"" (+ n 50))
        porter-limits--crowd))

(defun porter-limits--few-mib (mib)
  "Fail if MIB is more than answers may take, and Emacs with them.
A sanitizer keeps what was freed."
  (unless (> porter-test-patience 1)
    (should (< mib 600))))

(ert-deftest porter-limits-many-idle-connections ()
  "Ten thousand idle connections: all answer, also asked all at once, memory stays,
and Emacs opens files and processes."
  (let ((n (if porter-test-slow 10000 2000)) before after)
    (porter-test-with-child-server (port porter-limits--form :max-connections nil :idle-timeout nil :head-timeout nil)
      (porter-test-get-body port "/")
      (setq before (string-to-number (porter-test-get-body port "/memory")))
      (porter-test-with-child (crowd (append (porter-limits--crowd n)
                                             (list (number-to-string port) (number-to-string n)
                                                   "idle")))
        (should (equal (number-to-string n)
                       (porter-test-child-await crowd "^ASKED \\([0-9]+\\)$" 60)))
        (setq after (string-to-number (porter-test-get-body port "/memory")))
        (message "%d idle connections: %d KiB more" n (- after before))
        (should (< (- after before) (* 40 1024)))
        (should (equal "0" (porter-test-get-body port "/process")))
        (process-send-string (porter-test-child-process crowd) "\n")
        (should (equal (number-to-string n)
                       (porter-test-child-await crowd "^AGAIN \\([0-9]+\\)$" 60)))))))

(ert-deftest porter-limits-slow-crowds ()
  "Clients that send or read slowly stop nobody else and do not outlive the timeouts."
  (let ((n (if porter-test-slow 1000 200)))
    (dolist (what '("head" "body" "read"))
      (porter-test-with-child-server (port porter-limits--form
                                           :head-timeout 2 :body-timeout 1 :write-timeout 2
                                           :queue-timeout 120)
        (porter-test-with-child (crowd (append (porter-limits--crowd n)
                                               (list (number-to-string port)
                                                     (number-to-string n) what)))
          (porter-test-child-await crowd "^\\(SENT\\)$" 30)
          (let ((seconds (porter-test-seconds
                          (should (equal "ok" (porter-test-response-body
                                               (porter-test-fetch port "GET" "/" nil nil 120)))))))
            ;; Before it comes to others Lisp makes five megabytes for each who reads slowly.
            (unless (equal what "read")
              (should (< seconds (* 1 porter-test-patience)))))
          (should (equal "0" (porter-test-get-body port "/process")))
          ;; All of them are gone in the end: their sockets say so.
          (porter-test-wait
           (lambda ()
             (with-temp-buffer
               (call-process "sh" nil t nil "-c"
                             (format "grep -c ':%04X 0100007F:.* 01 ' /proc/net/tcp" port))
               (< (string-to-number (buffer-string)) 3)))
           15 "Slow clients live on"))
        (let ((mib (/ (string-to-number (porter-test-get-body port "/peak")) 1024)))
          (message "%d clients with a slow %s: %d MiB at most" n what mib)
          (porter-limits--few-mib mib))))))

(ert-deftest porter-limits-stuck-for-long ()
  "Emacs stuck for long: all are answered, by Lisp or by C, and memory is bounded."
  (let ((seconds (if porter-test-slow 30 5)) before after)
    (porter-test-with-child-server (port porter-limits--form :max-queue 300 :queue-timeout (* 0.6 seconds))
      (porter-test-get-body port "/")
      (setq before (string-to-number (porter-test-get-body port "/memory")))
      (porter-test-with-client (busy port)
        (porter-test-write busy (porter-test-request-bytes
                                 "GET" (format "/busy?s=%d" seconds)))
        (porter-test-pause 0.2)
        (let ((clients (mapcar (lambda (_) (porter-test-open port)) (number-sequence 1 200)))
              (counts nil))
          (unwind-protect
              (progn
                (dolist (client clients)
                  (porter-test-write client (porter-test-request-bytes
                                             "POST" "/" nil (make-string 10000 ?x))))
                ;; The last first: the helper wants to see a Date of now.
                (dolist (client (reverse clients))
                  (let ((status (porter-test-response-status
                                 (porter-test-read client nil (* 2 seconds)))))
                    (cl-incf (alist-get status counts 0))))
                (should (equal counts '((503 . 200)))))
            (mapc #'porter-test-close clients)))
        (should (equal "was busy" (porter-test-response-body
                                   (porter-test-read busy nil (+ 5 seconds))))))
      ;; Lisp takes what has aged out off the queue, and others are answered.
      (porter-test-wait (lambda ()
                          (equal "ok" (porter-test-response-body (porter-test-get port "/"))))
                        5 "The queue stays full")
      (setq after (string-to-number (porter-test-get-body port "/memory")))
      (unless (> porter-test-patience 1) ; a sanitizer keeps what was freed
        (should (< (- after before) (* 8 1024)))))))

(ert-deftest porter-limits-many-bodies-while-stuck ()
  "Bodies that wait for Lisp go to files when together they would take much memory."
  (let (before after)
    (porter-test-with-child-server (port porter-limits--form)
      (setq before (string-to-number (porter-test-get-body port "/memory")))
      (porter-test-with-client (busy port)
        (porter-test-write busy (porter-test-request-bytes "GET" "/busy?s=3"))
        (porter-test-pause 0.1)
        (porter-test-with-child (crowd (append (porter-limits--crowd 400)
                                               (list (number-to-string port) "400" "post")))
          (should (equal "400" (porter-test-child-await crowd "^POSTED \\([0-9]+\\)$" 60)))
          (setq after (string-to-number (porter-test-get-body port "/memory")))
          (message "400 bodies of 900 kB: %d KiB more" (- after before))
          ;; Of 343 MiB.
          (unless (> porter-test-patience 1) ; a sanitizer keeps what was freed
            (should (< (- after before) (* 150 1024)))))))))

(ert-deftest porter-limits-slow-readers-of-large-answers ()
  "Many ask for 20 MB and do not read: memory is bounded, and others are served soon."
  (let ((n (if porter-test-slow 100 40)) clients)
    (porter-test-with-child-server (port porter-limits--form :queue-timeout 120)
      (unwind-protect
          (progn
            (dotimes (_ n)
              (let ((client (porter-test-open port)))
                (porter-test-hold client)
                (push client clients)
                (porter-test-write client (porter-test-request-bytes "GET" "/large"))))
            ;; Behind all of them.
            (should (equal "ok" (porter-test-response-body
                                 (porter-test-fetch port "GET" "/" nil nil 60))))
            (let ((mib (/ (string-to-number (porter-test-get-body port "/peak")) 1024)))
              (message "%d answers of 20 MB that nobody reads: %d MiB at most" n mib)
              (porter-limits--few-mib mib)))
        (mapc #'porter-test-close clients)))))

(ert-deftest porter-limits-many-readers-of-large-answers ()
  "Many ask for 20 MB at once and read: they wait for each other, and all get it."
  (porter-test-need "curl" "xargs")
  (porter-test-with-child-server (port porter-limits--form)
    (with-temp-buffer
      (insert (mapconcat (lambda (_) (format "http://127.0.0.1:%d/large" port))
                         (make-list 60 nil) "\n"))
      (call-process-region (point-min) (point-max) "xargs" t t nil "-P" "60" "-n" "1"
                           "curl" "-s" "-o" "/dev/null" "-w" "%{http_code} %{size_download}\n")
      (should (equal (apply #'concat (make-list 60 "200 20000000\n")) (buffer-string))))
    (let ((mib (/ (string-to-number (porter-test-get-body port "/peak")) 1024)))
      (message "60 at once with 20 MB each: %d MiB at most" mib)
      (porter-limits--few-mib mib))))

(provide 'porter-limits-tests)
;;; porter-limits-tests.el ends here
