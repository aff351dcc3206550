;;; porter-proxy-tests.el --- Who the client is, behind proxies  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'porter-test-helper)

(defun porter-proxy--handler (request)
  "Answer REQUEST with where it is from."
  (porter-test-answer request (format "%s" (porter-request-remote request))))

(defun porter-proxy--ask (server &rest headers)
  "Ask SERVER with HEADERS for who it thinks we are."
  (apply #'porter-test-get-body server "/" headers))

(ert-deftest porter-proxy-nobody-is-trusted-by-default ()
  "What a client says of itself does not count."
  (porter-test-with-server (server #'porter-proxy--handler)
    (should (equal "127.0.0.1" (porter-proxy--ask server
                                                  '("X-Forwarded-For" . "192.0.2.1")
                                                  '("Forwarded" . "for=192.0.2.1"))))))

(ert-deftest porter-proxy-x-forwarded-for ()
  "From right to left, the first address that is no trusted proxy."
  (porter-test-with-server (server #'porter-proxy--handler
                                   :trusted-proxies '("127.0.0.0/8" "10.0.0.1"))
    (pcase-dolist (`(,expected . ,values)
                   '(("127.0.0.1")
                     ("192.0.2.1" "192.0.2.1")
                     ("192.0.2.1" "203.0.113.9, 192.0.2.1")
                     ("192.0.2.1" "192.0.2.1, 10.0.0.1")
                     ("192.0.2.1" "192.0.2.1" "10.0.0.1 , 127.0.0.5")
                     ("10.0.0.2" "192.0.2.1, 10.0.0.2")
                     ("10.0.0.1" "10.0.0.1")
                     ("2001:db8::1" "2001:db8::1")
                     ("2001:db8::1" "[2001:db8::1]:443")
                     ("192.0.2.1" "192.0.2.1:5000")
                     ("unknown" "192.0.2.1, unknown")))
      (should (equal expected
                     (apply #'porter-proxy--ask server
                            (mapcar (lambda (v) (cons "X-Forwarded-For" v)) values)))))
    ;; The other header is the client's.
    (should (equal "127.0.0.1" (porter-proxy--ask server '("Forwarded" . "for=192.0.2.1"))))))

(ert-deftest porter-proxy-forwarded ()
  "RFC 7239."
  (porter-test-with-server (server #'porter-proxy--handler
                                   :trusted-proxies '("127.0.0.1") :forwarded-header 'forwarded)
    (pcase-dolist (`(,expected . ,value)
                   '(("192.0.2.1" . "for=192.0.2.1")
                     ("192.0.2.1" . "proto=http; For=\"192.0.2.1:80\";by=203.0.113.43")
                     ("192.0.2.2" . "for=192.0.2.1, for=192.0.2.2;proto=https")
                     ("2001:db8::1" . "for=\"[2001:db8::1]:4711\"")
                     ("_hidden" . "for=192.0.2.1, for=_hidden")
                     ("unknown" . "for=192.0.2.1, by=203.0.113.43")))
      (should (equal expected (porter-proxy--ask server (cons "Forwarded" value)))))
    (should (equal "127.0.0.1" (porter-proxy--ask server '("X-Forwarded-For" . "192.0.2.1"))))))

(ert-deftest porter-proxy-bad-options ()
  "Networks that are none, and headers that nobody sets, are errors at the start."
  (porter-test-quietly
    (dolist (args '((:trusted-proxies ("localhost")) (:trusted-proxies ("10.0.0.0/64"))
                    (:forwarded-header via)))
      (should-error (apply #'porter-start #'porter-proxy--handler 0 nil args)
                    :type 'porter-error))))

(ert-deftest porter-proxy-protocol ()
  "The header says who the client is, once for a connection, cut anywhere."
  (porter-test-with-server (server #'porter-proxy--handler :proxy-protocol t :head-timeout 1)
    (dolist (header (list "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"
                          "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\300\0\2\1\300\0\2\2\334\4\1\273"))
      (porter-test-with-client (client server)
        (porter-test-write client (concat header "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        (should (equal "192.0.2.1" (porter-test-response-body (porter-test-read client))))
        (should (equal "192.0.2.1" (porter-test-response-body (porter-test-ask client "GET" "/")))))
      (porter-test-with-client (client server)
        (porter-test-write-slowly client header)
        (should (equal "192.0.2.1" (porter-test-response-body
                                    (porter-test-ask client "GET" "/"))))))
    ;; Without it, with half of it, with too much time for it.
    (porter-test-with-client (client server)
      (porter-test-write client "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
      (should (equal 400 (porter-test-response-status (porter-test-read client))))
      (porter-test-should-close client))
    (porter-test-with-client (client server)
      (porter-test-write-slowly client "PROXY TCP4 192.0.2.1" 1 0.15)
      (porter-test-should-close client)))
  (porter-test-with-server (server #'porter-proxy--handler)
    (porter-test-with-client (client server)
      (porter-test-write client "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n")
      (should (equal 400 (porter-test-response-status (porter-test-read client))))))
  (porter-test-should-come-to-rest))

;; The addresses count that proxies name, not theirs, which all connections have.
(ert-deftest porter-proxy-protocol-connections-per-address ()
  "Beyond the limit an address that a proxy names gets 503; others do not suffer."
  (porter-test-with-server (server #'porter-proxy--handler
                                   :proxy-protocol t :max-connections-per-address 2)
    (cl-flet ((ask (client address)
                (porter-test-write
                 client (format "PROXY TCP4 %s 192.0.2.2 56324 443\r\n" address))
                (porter-test-response-status (porter-test-ask client "GET" "/"))))
      (porter-test-with-client (one server)
        (porter-test-with-client (two server)
          (porter-test-with-client (three server)
            (porter-test-with-client (other server)
              (should (equal 200 (ask one "192.0.2.1")))
              (should (equal 200 (ask two "192.0.2.1")))
              (should (equal 503 (ask three "192.0.2.1")))
              (porter-test-should-close three)
              (should (equal 200 (ask other "192.0.2.7"))))))
        ;; One has left.
        (porter-test-wait (lambda ()
                            (porter-test-with-client (next server)
                              (equal 200 (ask next "192.0.2.1"))))
                          3 "No room after a connection has left")))))

(provide 'porter-proxy-tests)
;;; porter-proxy-tests.el ends here
