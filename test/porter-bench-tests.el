;;; porter-bench-tests.el --- The driver of the notebooks gives no wrong figures  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Peers that answer wrongly now and then, hang up, or die in the middle, asked by each of the
;; clients of bench/driver.el: the table must say "no figure", and why.  And the one that answers
;; well must have one, or the tests would be content with a driver that never measures.

;;; Code:

(require 'porter-test-helper)

(defvar bench-peers)
(declare-function bench-launch "driver" (names handler &optional path))
(declare-function bench-rounds "driver" (peers levels rounds function))
(declare-function bench-table "driver" (runs columns &optional base))
(declare-function bench-wrk-once "driver"
                  (peer path threads connections seconds &optional depth fields check))
(declare-function bench-curl-once "driver" (peer jobs requests))
(declare-function bench-ab-once "driver" (peer connections requests))
(declare-function bench-httperf-once "driver" (peer conns calls))
(declare-function bench-slope "driver" (numbers))
(declare-function bench-figure "driver" (runs peer level key))

(load (expand-file-name "bench/driver" porter-test-root) nil t)

(defun porter-bench--server (fault port fill)
  "A command for a server on PORT that adds 1, with a header of FILL bytes.
From the fiftieth answer on, each fiftieth has FAULT."
  (list "sh" "-c" "trap '' PIPE; exec \"$@\"" "sh"
        (expand-file-name invocation-name invocation-directory) "-Q" "--batch" "--eval"
        (prin1-to-string
         `(let ((count 0))
            (make-network-process
             :name "peer" :server 500 :host "127.0.0.1" :service ,port :family 'ipv4
             :coding 'binary :noquery t
             :filter
             (lambda (process bytes)
               (let ((from 0))
                 (while (string-match
                         "n=\\([0-9]+\\) HTTP/1.\\([01]\\)\r\n\\(.+\r\n\\)*\r\n" bytes from)
                   (setq from (match-end 0) count (1+ count))
                   (let* ((body (number-to-string
                                 (1+ (string-to-number (match-string 1 bytes)))))
                          (old (equal "0" (match-string 2 bytes)))
                          (fault (and (= 0 (% count 50)) ',fault))
                          (status (if (eq fault 'status) "500 Error" "200 OK")))
                     (when (eq fault 'death) (kill-emacs))
                     (when (eq fault 'value)
                       (setq body (make-string (length body) ?0)))
                     (when (eq fault 'length) (setq body (concat body (make-string 100 ?0))))
                     (if (eq fault 'end) (delete-process process)
                       (process-send-string
                        process
                        (concat "HTTP/1.1 " status "\r\nContent-Length: "
                                (number-to-string (length body))
                                (if (= ,fill 0) ""
                                  (concat "\r\nX-Fill: " (make-string ,fill ?0)))
                                "\r\n\r\n" body))
                       (when old (delete-process process))))))))
            (while t (sleep-for 60))))))

(defun porter-bench--row (fault client)
  "The row of the table for a peer with FAULT, asked by CLIENT in two rounds.
CLIENT is a function as for `bench-rounds'."
  (let ((bench-peers `(("peer" ignore ,(lambda (port _handler fill)
                                         (porter-bench--server fault port fill))))))
    (bench-run
      (let ((peers (bench-launch '("peer") "plus")))
        (should-not (bench-peer-absent (car peers)))
        (car (last (bench-table (bench-rounds peers '(1) 2 client) nil)))))))

(defun porter-bench--judge (faults client)
  "CLIENT gives a figure to a peer without fault, and none with any of FAULTS."
  (should (numberp (nth 2 (porter-bench--row nil client))))
  (dolist (fault faults)
    (ert-info ((format "fault: %s" fault))
      (should (string-prefix-p "no figure: " (format "%s" (nth 2 (porter-bench--row
                                                                  fault client))))))))

(ert-deftest porter-bench-wrk-refuses-a-figure ()
  "Every fault is seen by wrk, wrong values by the round that does not count."
  (porter-test-need "wrk")
  (porter-bench--judge '(value length status end death)
                       (lambda (peer _level round)
                         (bench-wrk-once peer "/?n=7" 1 4 1 nil nil (< round 0)))))

(ert-deftest porter-bench-curl-refuses-a-figure ()
  "Every fault is seen by the checksum of what the curls print."
  (porter-test-need "curl" "parallel" "sha1sum")
  (porter-bench--judge '(value length status end death)
                       (lambda (peer _level _round) (bench-curl-once peer 4 60))))

(ert-deftest porter-bench-ab-refuses-a-figure ()
  "All but wrong values of the right length are seen by ab."
  (porter-test-need "ab")
  (porter-bench--judge '(length status end death)
                       (lambda (peer _level _round) (bench-ab-once peer 4 200))))

(ert-deftest porter-bench-httperf-refuses-a-figure ()
  "All but wrong values of the right length are seen by httperf."
  (porter-test-need "httperf")
  (porter-bench--judge '(length status end death)
                       (lambda (peer _level _round) (bench-httperf-once peer 2 100))))

(ert-deftest porter-bench-a-dead-peer-does-not-stop-the-others ()
  "The rounds go on without it, and say of it that its server died."
  (porter-test-need "wrk")
  (let* ((bench-peers (mapcar (lambda (entry)
                                (list (car entry) #'ignore
                                      (lambda (port _handler fill)
                                        (porter-bench--server (cdr entry) port fill))))
                              '(("mortal" . death) ("lasting" . nil))))
         (runs (bench-run
                 (bench-rounds (bench-launch '("mortal" "lasting") "plus") '(1) 2
                               (lambda (peer _level _round)
                                 (bench-wrk-once peer "/?n=7" 1 4 1)))))
         (rows (cl-remove-if-not #'consp (bench-table runs nil "mortal"))))
    (should (equal 4 (length runs)))
    (should (string-prefix-p "no figure: " (nth 2 (assoc 1 (cl-remove "lasting" rows
                                                                      :key #'cadr :test #'equal)))))
    (should (cl-find "its server died" (mapcar (lambda (run) (plist-get run :failed)) runs)
                     :test #'equal))
    (should (numberp (nth 2 (cl-find "lasting" rows :key #'cadr :test #'equal))))))

(ert-deftest porter-bench-one-failed-round-takes-the-figure ()
  "Neither table, nor ratios, nor pictures use what the other rounds gave."
  (let ((runs '((:peer "a" :level 1 :round 0 :rate 10) (:peer "b" :level 1 :round 0 :rate 5)
                (:peer "a" :level 1 :round 1 :rate 10)
                (:peer "b" :level 1 :round 1 :rate 5 :failed "1 errors"))))
    (should (= 10 (bench-figure runs "a" 1 :rate)))
    (should-not (bench-figure runs "b" 1 :rate))
    (should (equal '((1 "a" 10 "10 - 10" "")
                     (1 "b" "no figure: 1 errors (1 of 2 rounds)"))
                   (cddr (bench-table runs nil "b"))))))

(ert-deftest porter-bench-absent-peers-are-named ()
  "What is not there has a row that says so."
  (let ((bench-peers `(("nowhere" ,(lambda () "nowhere is not installed") ignore))))
    (should (equal '("" "nowhere" "absent: nowhere is not installed")
                   (car (last (bench-table
                               (bench-run (bench-rounds (bench-launch '("nowhere") "plus")
                                                        '(1) 1 #'ignore))
                               nil)))))))

(ert-deftest porter-bench-slope-and-its-error ()
  "A line has its slope and no error, a zigzag about none and a large one."
  (should (equal '(2.0 . 0.0) (bench-slope '(1 3 5 7))))
  (let ((slope (bench-slope '(1 9 1 9 1 9))))
    (should (< (abs (car slope)) (* 2 (cdr slope))))))

(provide 'porter-bench-tests)
;;; porter-bench-tests.el ends here
