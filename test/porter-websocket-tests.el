;;; porter-websocket-tests.el --- WebSockets, frame by frame  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Raw frames in, exact frames out, in the order of RFC 6455.  What a peer may send wrong is in
;; one table; each line of it runs with all frames in one write, and byte by byte.

;;; Code:

(require 'porter-test-helper)

;;;; A raw WebSocket client

(defconst porter-ws--key "dGhlIHNhbXBsZSBub25jZQ==" "The key of RFC 6455 section 1.3.")

(defun porter-ws--handshake (client &rest headers)
  "The bytes of an opening handshake of CLIENT.
HEADERS replace the usual ones of the same name; a nil value drops one."
  (let ((all `(("Upgrade" . "websocket") ("Connection" . "Upgrade")
               ("Sec-WebSocket-Version" . "13") ("Sec-WebSocket-Key" . ,porter-ws--key))))
    (dolist (header headers)
      (setq all (cl-remove (car header) all :key #'car :test #'equal)))
    (porter-test-request-bytes
     "GET" "/ws" (append all (cl-remove nil headers :key #'cdr)) nil
     (porter-test-client-authority client))))

(defun porter-ws--frame (opcode payload &rest options)
  "The bytes of a masked frame of OPCODE with PAYLOAD.
OPTIONS: :fin, :rsv (1 to 7), :mask (nil for none), :len (the length claimed), :size (of the
length field, 0, 2 or 8)."
  (cl-flet ((get (key default) (if (plist-member options key) (plist-get options key) default)))
    (let* ((bytes (string-to-unibyte payload))
           (len (get :len (length bytes)))
           (size (get :size (cond ((< len 126) 0) ((< len 65536) 2) (t 8))))
           (mask (get :mask t))
           (key [#x37 #xfa #x21 #x3d]))
      (concat
       (unibyte-string (logior (if (get :fin t) 128 0) (ash (get :rsv 0) 4) opcode)
                       (logior (if mask 128 0) (pcase size (0 len) (2 126) (8 127))))
       (apply #'unibyte-string
              (cl-loop for i from (1- size) downto 0 collect (logand 255 (ash len (* -8 i)))))
       (if (not mask)
           bytes
         (let ((masked (copy-sequence bytes)))
           (dotimes (i (length masked))
             (aset masked i (logxor (aref masked i) (aref key (% i 4)))))
           (concat (apply #'unibyte-string (append key nil)) masked)))))))

(defun porter-ws--text (string &rest options)
  "A text frame of STRING with OPTIONS."
  (apply #'porter-ws--frame 1 (encode-coding-string string 'utf-8-unix) options))

(defun porter-ws--close (code &optional reason)
  "A close frame with CODE and REASON; nil for none."
  (porter-ws--frame 8 (if code
                          (concat (unibyte-string (ash code -8) (logand code 255)) reason)
                        "")))

(defun porter-ws--parse ()
  "Take one unmasked frame off the front of the buffer: (OPCODE PAYLOAD RSV), or nil."
  (when (>= (buffer-size) 2)
    (let* ((first (char-after 1))
           (len (logand 127 (char-after 2)))
           (size (pcase len (126 2) (127 8) (_ 0))))
      (should (zerop (logand 128 (char-after 2))))
      (should-not (zerop (logand 128 first)))
      (when (>= (buffer-size) (+ 2 size))
        (when (> size 0)
          (setq len 0)
          (dotimes (i size) (setq len (+ (* 256 len) (char-after (+ 3 i))))))
        (when (>= (buffer-size) (+ 2 size len))
          (prog1 (list (logand 15 first)
                       (buffer-substring (+ 3 size) (+ 3 size len))
                       (logand 7 (ash first -4)))
            (delete-region 1 (+ 3 size len))))))))

(defun porter-ws--read (client &optional seconds)
  "The next frame that CLIENT gets: (OPCODE . PAYLOAD), (close CODE REASON) or nil."
  (let ((frame (porter-test-await client #'porter-ws--parse (or seconds 5))))
    (pcase frame
      ('nil nil)
      (`(8 "" . ,_) '(close nil ""))
      (`(8 ,payload . ,_)
       (list 'close (+ (* 256 (aref payload 0)) (aref payload 1)) (substring payload 2)))
      (`(,opcode ,payload . ,_) (cons opcode payload)))))

(defun porter-ws--open (where &rest headers)
  "A client of WHERE behind its handshake with HEADERS."
  (let ((client (porter-test-open where)))
    (porter-test-write client (apply #'porter-ws--handshake client headers))
    (should (equal 101 (porter-test-response-status (porter-test-read client))))
    client))

(defun porter-ws--echo (&rest options)
  "A handler that sends back what comes; OPTIONS for `porter-web-socket-connect'."
  (lambda (request)
    (or (apply #'porter-web-socket-connect request
               (lambda (process message type) (porter-web-socket-send process message type))
               options)
        (porter-test-answer request "no upgrade"))))

(defmacro porter-ws--with (spec &rest body)
  "Run BODY with a client of a server of HANDLER; SPEC is (CLIENT HANDLER &rest ARGS)."
  (declare (indent 1) (debug ((symbolp &rest form) body)))
  (let ((server (make-symbol "server")))
    `(porter-test-with-server (,server ,@(cdr spec))
       (let ((,(car spec) (porter-ws--open ,server)))
         (unwind-protect (progn ,@body)
           (porter-test-close ,(car spec)))))))

;;;; Section 4: the handshake

(ert-deftest porter-websocket-handshake-accept ()
  "RFC 6455 4.2.2: the accept value of the RFC's example; no body, nothing of HTTP behind it."
  (porter-test-with-server (server (porter-ws--echo))
    (porter-test-with-client (client server)
      (porter-test-write client (porter-ws--handshake client))
      (let ((response (porter-test-read client)))
        (should (equal 101 (porter-test-response-status response)))
        (should (equal "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
                       (porter-test-header response "sec-websocket-accept")))
        (should-not (porter-test-header response "sec-websocket-extensions"))
        (should-not (porter-test-header response "transfer-encoding")))
      (porter-test-should-stay-open client))))

(ert-deftest porter-websocket-handshake-rules ()
  "RFC 6455 4.2.1: what each field must say, and what is answered when it does not."
  (porter-test-with-server (server (porter-ws--echo :origins '("https://good.example")))
    (pcase-dolist
        (`(,status . ,headers)
         `((101 ("Connection" . "keep-alive, upGRADE") ("Upgrade" . "WebSocket"))
           (101 ("Upgrade" . "foo, websocket"))
           (200 ("Upgrade" . nil) ("Connection" . nil) ("Sec-WebSocket-Key" . nil))
           (200 ("Upgrade" . "h2c") ("Sec-WebSocket-Key" . nil))
           (400 ("Connection" . "keep-alive"))
           (400 ("Upgrade" . nil))
           (426 ("Sec-WebSocket-Version" . "8"))
           (426 ("Sec-WebSocket-Version" . nil))
           (400 ("Sec-WebSocket-Key" . nil))
           (400 ("Sec-WebSocket-Key" . "dGhlIHNhbXBsZQ=="))
           (400 ("Sec-WebSocket-Key" . "!!!!IHNhbXBsZSBub25jZQ=="))
           (400 ("Content-Length" . "3"))
           (400 ("Sec-WebSocket-Protocol" . "a, b, a"))
           (400 ("Sec-WebSocket-Protocol" . "a b"))
           (426 ("Sec-WebSocket-Version" . "13, 8"))
           (400 ("Sec-WebSocket-Key" . ,(concat porter-ws--key "\r\nSec-WebSocket-Key: "
                                                porter-ws--key)))
           (400 ("Transfer-Encoding" . "chunked"))
           (421 ("Host" . "evil.example"))
           (403 ("Origin" . "http://evil.example"))
           (403 ("Origin" . "null"))
           (403 ("Origin" . "http://localhost:1"))
           (101 ("Origin" . "https://good.example"))
           (101 ("Origin" . ,(format "http://localhost:%d" (porter-port server))))
           (101 ("Origin" . ,(format "http://127.0.0.1:%d" (porter-port server))))))
      (porter-test-with-client (client server)
        (porter-test-write client (apply #'porter-ws--handshake client headers))
        (when (equal headers '(("Content-Length" . "3"))) (porter-test-write client "abc"))
        (when (assoc "Transfer-Encoding" headers) (porter-test-write client "0\r\n\r\n"))
        (let ((response (porter-test-read client)))
          (should (equal (list headers status)
                         (list headers (porter-test-response-status response))))
          (when (eql status 426)
            (should (equal "13" (porter-test-header response "sec-websocket-version")))))))
    (should (equal 405 (porter-test-response-status
                        (porter-test-fetch server "POST" "/ws"
                                           `(("Upgrade" . "websocket") ("Connection" . "Upgrade")
                                             ("Sec-WebSocket-Version" . "13")
                                             ("Sec-WebSocket-Key" . ,porter-ws--key))
                                           ""))))))

(ert-deftest porter-websocket-handshake-case-fold-search ()
  "The user's `case-fold-search' decides nothing."
  (dolist (case-fold-search '(nil t))
    (porter-ws--with (client (porter-ws--echo))
      (should client))))

(ert-deftest porter-websocket-handshake-protocol ()
  "RFC 6455 4.2.2: the server's first choice among what the client offers."
  (let (got)
    (porter-test-with-server
        (server (porter-ws--echo :protocols '("b" "c")
                                 :on-open (lambda (process)
                                            (push (porter-web-socket-protocol process) got))))
      (pcase-dolist (`(,offer ,protocol) '(("a, c, b" "b") ("c" "c") ("x" nil)))
        (porter-test-with-client (client server)
          (porter-test-write client (porter-ws--handshake
                                     client (cons "Sec-WebSocket-Protocol" offer)))
          (should (equal protocol (porter-test-header (porter-test-read client)
                                                      "sec-websocket-protocol")))))
      (should (equal got '(nil "c" "b"))))))

(ert-deftest porter-websocket-frames-with-the-handshake ()
  "Frames that come in one packet with the handshake are not lost, and not taken for requests."
  (porter-test-with-server (server (porter-ws--echo))
    (porter-test-with-client (client server)
      (porter-test-write client (concat (porter-ws--handshake client)
                                        (porter-ws--text "early") (porter-ws--frame 9 "p")))
      (should (equal 101 (porter-test-response-status (porter-test-read client))))
      (should (equal (cl-sort (list (porter-ws--read client) (porter-ws--read client))
                              #'< :key #'car)
                     '((1 . "early") (10 . "p")))))))

;;;; Sections 5 to 8: frames

(defun porter-ws--bytes (hex)
  "The bytes that HEX, such as \"ce ba\", stands for."
  (apply #'unibyte-string (mapcar (lambda (byte) (string-to-number byte 16))
                                  (split-string hex))))

(defconst porter-ws--good-utf-8
  `((2 "ce ba e1 bd b9 cf 83 ce bc ce b5")
    (7 "00" "c2 80" "e0 a0 80" "f0 90 80 80")
    (9 "7f" "df bf" "ef bf bf" "f4 8f bf bf")
    (11 "ed 9f bf" "ee 80 80" "ef bf bd" "f4 8f bf bf")
    (22 ,@(cl-loop for plane from 0 to 16 append
                   (cl-loop for low in '(#xfffe #xffff)
                            collect (mapconcat (lambda (byte) (format "%02x" byte))
                                               (encode-coding-string
                                                (string (+ (* plane 65536) low)) 'utf-8)
                                               " "))))
    (23 "ef bf b9" "ef bf ba" "ef bf bb" "ef bf bc" "ef bf bd" "ef bf be" "ef bf bf"))
  "By section of group 6: text that is UTF-8.")

(defconst porter-ws--bad-utf-8
  '((3 "ce ba e1 bd b9 cf 83 ce bc ce b5 ed a0 80 65 64 69 74 65 64")
    (4 "ce ba e1 bd b9 cf 83 ce bc ce b5 f4 90 80 80 65 64 69 74 65 64")
    (6 "ce" "ce ba e1" "ce ba e1 bd" "ce ba e1 bd b9 cf" "ce ba e1 bd b9 cf 83 ce"
       "ce ba e1 bd b9 cf 83 ce bc ce")
    (8 "f8 88 80 80 80" "fc 84 80 80 80 80")
    (10 "f7 bf bf bf" "fb bf bf bf bf" "fd bf bf bf bf bf")
    (11 "f4 90 80 80")
    (12 "80" "bf" "80 bf" "80 bf 80" "80 bf 80 bf" "80 bf 80 bf 80" "80 bf 80 bf 80 bf"
        "80 81 82 83 84 85 86 87 88 89 8a 8b 8c 8d 8e 8f 90 a0 b0 be")
    (13 "c0 20 c1 20 c2 20 df 20" "e0 20 e1 20 ef 20" "f0 20 f1 20 f7 20" "f8 20 f9 20 fb 20"
        "fc 20 fd 20")
    (14 "c0" "e0 80" "f0 80 80" "f8 80 80 80" "fc 80 80 80 80" "df" "ef bf" "f7 bf bf"
        "fb bf bf bf" "fd bf bf bf bf")
    (15 "c0 e0 80 f0 80 80 f8 80 80 80 fc 80 80 80 80 df ef bf f7 bf bf fb bf bf bf fd bf bf bf bf")
    (16 "fe" "ff" "fe fe ff ff")
    (17 "c0 af" "e0 80 af" "f0 80 80 af" "f8 80 80 80 af" "fc 80 80 80 80 af")
    (18 "c1 bf" "e0 9f bf" "f0 8f bf bf" "f8 87 bf bf bf" "fc 83 bf bf bf bf")
    (19 "c0 80" "e0 80 80" "f0 80 80 80" "f8 80 80 80 80" "fc 80 80 80 80 80")
    (20 "ed a0 80" "ed ad bf" "ed ae 80" "ed af bf" "ed b0 80" "ed be 80" "ed bf bf")
    (21 "ed a0 80 ed b0 80" "ed a0 80 ed bf bf" "ed ad bf ed b0 80" "ed ad bf ed bf bf"
        "ed ae 80 ed b0 80" "ed ae 80 ed bf bf" "ed af bf ed b0 80" "ed af bf ed bf bf"))
  "By section of group 6: text that is not.")

(defconst porter-ws--cases
  (cl-flet* ((f (&rest args) (apply #'porter-ws--frame args))
             (text (&rest args) (apply #'porter-ws--text args))
             (close (&rest args) (apply #'porter-ws--close args))
             (x (n) (make-string n ?x))
             (fe (n) (encode-coding-string (make-string n #xfe) 'latin-1))
             ;; Every byte a fragment of its own.
             (single (bytes)
               (cl-loop for i from 0 below (length bytes) concat
                        (f (if (= i 0) 1 0) (substring bytes i (1+ i))
                           :fin (= i (1- (length bytes)))))))
    `(,@(cl-loop for n in '(0 125 126 127 128 65535 65536) for i from 1 append
                 `((,(format "1.1.%d" i) ,(text (x n)) (1 . ,(x n)))
                   (,(format "1.2.%d" i) ,(f 2 (fe n)) (2 . ,(fe n)))))
      ("2.1" ,(f 9 "") (10 . ""))
      ("2.2" ,(f 9 "Hello, world!") (10 . "Hello, world!"))
      ("2.3" ,(f 9 "\0\377\376\375\374\373\0\377") (10 . "\0\377\376\375\374\373\0\377"))
      ("2.4, 2.6" ,(f 9 (fe 125)) (10 . ,(fe 125)))
      ("2.5" ,(f 9 (fe 126)) (close 1002))
      ("2.7" ,(f 10 ""))
      ("2.8" ,(f 10 "unasked"))
      ("2.9" ,(concat (f 10 "unasked") (f 9 "ping")) (10 . "ping"))
      ("2.10, 2.11" ,(mapconcat (lambda (i) (f 9 (format "payload-%d" i))) (number-sequence 0 9) "")
       ,@(cl-loop for i from 0 to 9 collect `(10 . ,(format "payload-%d" i))))
      ("3.1" ,(text "small" :rsv 1) (close 1002))
      ("3.2" ,(concat (text "small") (text "small" :rsv 2) (f 9 "")) (close 1002))
      ("3.3" ,(concat (text "small") (text "small" :rsv 3) (f 9 "")) (close 1002))
      ("3.4" ,(concat (text "small") (text "small" :rsv 4) (f 9 "")) (close 1002))
      ("3.5" ,(f 2 "\0\377" :rsv 5) (close 1002))
      ("3.6" ,(f 9 "ping" :rsv 6) (close 1002))
      ("3.7" ,(f 8 "" :rsv 7) (close 1002))
      ,@(cl-loop for rsv from 1 to 7
                 collect `(,(format "3, a text with %d" rsv) ,(text "abc" :rsv rsv) (close 1002)))
      ("3, a good ping, then a bad text" ,(concat (f 9 "a") (text "b" :rsv 2))
       (10 . "a") (close 1002))
      ,@(cl-loop for group from 1 to 2 append
                 (cl-loop for i from 1 to 5
                          for opcode = (+ i (if (= group 1) 2 10)) collect
                          `(,(format "4.%d.%d" group i)
                            ,(if (< i 3)
                                 (f opcode (if (= i 1) "" "reserved"))
                               (concat (text "small") (f opcode (if (= i 3) "" "reserved"))
                                       (f 9 "")))
                            (close 1002))))
      ("4, opcode 13, 14, 15 alone" ,(concat (f 13 "") (f 14 "") (f 15 "")) (close 1002))
      ("5.1" ,(concat (f 9 "frag" :fin nil) (f 0 "ment")) (close 1002))
      ("5.2" ,(concat (f 10 "frag" :fin nil) (f 0 "ment")) (close 1002))
      ("5, a fragmented close" ,(f 8 "" :fin nil) (close 1002))
      ("5.3, 5.4, 5.5" ,(concat (text "ab" :fin nil) (f 0 "cd")) (1 . "abcd"))
      ("5.6, 5.7, 5.8" ,(concat (text "ab" :fin nil) (f 9 "ping") (f 0 "cd"))
       (10 . "ping") (1 . "abcd"))
      ("5.9, 5.10, 5.11" ,(concat (f 0 "non-continuation") (text "Hello")) (close 1002))
      ("5.12, 5.13, 5.14" ,(concat (f 0 "non-continuation" :fin nil) (text "Hello")) (close 1002))
      ("5.15" ,(concat (text "frag1" :fin nil) (f 0 "frag2") (f 0 "frag3" :fin nil) (text "frag4"))
       (close 1002))
      ("5.16" ,(concat (f 0 "1" :fin nil) (text "2" :fin nil) (f 0 "3")) (close 1002))
      ("5.17" ,(concat (f 0 "1") (text "2" :fin nil) (f 0 "3")) (close 1002))
      ("5.18" ,(concat (text "frag1" :fin nil) (text "frag2")) (close 1002))
      ("5.19, 5.20" ,(concat (text "1" :fin nil) (f 0 "2" :fin nil) (f 9 "pongme 1!")
                             (f 0 "3" :fin nil) (f 0 "4" :fin nil) (f 9 "pongme 2!") (f 0 "5"))
       (10 . "pongme 1!") (10 . "pongme 2!") (1 . "12345"))
      ("5, binary inside text" ,(concat (text "a" :fin nil) (f 2 "b")) (close 1002))
      ("5, three empty fragments" ,(concat (f 2 "" :fin nil) (f 0 "" :fin nil) (f 0 "")) (2 . ""))
      ("6.1.1" ,(text "") (1 . ""))
      ("6.1.2" ,(concat (text "" :fin nil) (f 0 "" :fin nil) (f 0 "")) (1 . ""))
      ("6.1.3" ,(concat (text "" :fin nil) (f 0 "middle" :fin nil) (f 0 "")) (1 . "middle"))
      ("6.2.2" ,(concat (f 1 "a\316\272" :fin nil) (f 0 "\316\272b")) (1 . "a\316\272\316\272b"))
      ("6.5, 6.6, whole characters" ,(concat (f 1 "\316\272") (f 1 "\316\272\341\275\271"))
       (1 . "\316\272") (1 . "\316\272\341\275\271"))
      ,@(cl-loop for (section . texts) in porter-ws--good-utf-8 append
                 (cl-loop for hex in texts for i from 1
                          for bytes = (porter-ws--bytes hex) append
                          `((,(format "6.%d.%d" section i) ,(f 1 bytes) (1 . ,bytes))
                            (,(format "6.%d.%d in fragments" section i) ,(single bytes)
                             (1 . ,bytes)))))
      ,@(cl-loop for (section . texts) in porter-ws--bad-utf-8 append
                 (cl-loop for hex in texts for i from 1
                          for bytes = (porter-ws--bytes hex) append
                          `((,(format "6.%d.%d" section i) ,(f 1 bytes) (close 1007))
                            (,(format "6.%d.%d in fragments" section i) ,(single bytes)
                             (close 1007)))))
      ;; At once, not at the end of the message or the frame.
      ("6.4.1" ,(concat (f 1 "\316\272" :fin nil) (f 0 "\364\220\200\200" :fin nil)) (close 1007))
      ("6.4.2" ,(concat (f 1 "\316\272\364" :fin nil) (f 0 "\220" :fin nil)) (close 1007))
      ("6.4.3" ,(substring (f 1 (concat "\316\272\364\220\200\200" (x 20))) 0 -20) (close 1007))
      ("6.4.4" ,(substring (f 1 (concat "\316\272\364\220\200\200" (x 20))) 0 -22) (close 1007))
      ("6, binary is not checked" ,(f 2 "\377\376") (2 . "\377\376"))
      ("7.1.1" ,(concat (text "Hello") (close 1000)) (close 1000))
      ("7.1.2" ,(concat (close 1000) (close 1000)) (close 1000))
      ("7.1.3" ,(concat (close 1000) (f 9 "")) (close 1000))
      ("7.1.4" ,(concat (close 1000) (text "Hello")) (close 1000))
      ("7.1.5" ,(concat (text "frag1" :fin nil) (close 1000) (f 0 "frag2")) (close 1000))
      ("7.1.6" ,(concat (text (make-string 262144 ?B)) (text "Hello") (close 1000) (f 9 ""))
       (close 1000))
      ("7.3.1" ,(close nil) (close nil))
      ("7.3.2" ,(f 8 "a") (close 1002))
      ("7.3.3" ,(close 1000) (close 1000))
      ("7.3.4" ,(close 1000 "Hello World!") (close 1000))
      ("7.3.5" ,(close 1000 (make-string 123 ?*)) (close 1000))
      ("7.3.6" ,(close 1000 (make-string 124 ?*)) (close 1002))
      ("7.5.1" ,(close 1000 "\316\272\355\240\200") (close 1007))
      ,@(cl-loop for code in '(1000 1001 1002 1003 1007 1008 1009 1010 1011 3000 3999 4000 4999)
                 for i from 1
                 collect `(,(format "7.7.%d, code %d" i code) ,(close code) (close ,code)))
      ,@(cl-loop for code in '(0 999 1004 1005 1006 1016 1100 2000 2999) for i from 1
                 collect `(,(format "7.9.%d, code %d" i code) ,(close code "bad") (close 1002)))
      ("7.13.1" ,(close 5000) (close 1002))
      ("7.13.2" ,(close 65535) (close 1002))
      ("no mask" ,(text "abc" :mask nil) (close 1002))
      ("a masked ping, then one without" ,(concat (f 9 "a") (f 9 "b" :mask nil))
       (10 . "a") (close 1002))
      ("a length of 16 bits for 125" ,(text (x 125) :size 2) (close 1002))
      ("a length of 64 bits for 300" ,(text (x 300) :size 8) (close 1002))
      ("a length with the highest bit" ,(f 2 "" :len (ash 1 63) :size 8) (close 1002))
      ("the largest length" ,(f 2 "x" :len (1- (ash 1 63)) :size 8) (close 1009))))
  "Lines of (NAME BYTES FRAME...): what comes back for BYTES.
The numbers are those of the Autobahn test suite; several stand together when they differ
only in how the bytes are cut.  (close CODE) ends it.")

(defun porter-ws--write-slowly (client bytes careful)
  "Send BYTES over CLIENT one by one.
CAREFUL means to stop at a close frame: a batch Emacs that writes to a closed socket dies."
  (cl-loop for byte across bytes
           until (and careful
                      (progn (porter-test-accept (porter-test-client-process client) 0.001)
                             (string-match-p "\210" (porter-test-bytes client))))
           do (porter-test-write client (unibyte-string byte))))

(defun porter-ws--run-case (case where slowly)
  "Run CASE against WHERE; SLOWLY non-nil means byte by byte."
  (pcase-let ((`(,name ,bytes . ,frames) case)
              (client (porter-ws--open where)))
    (unwind-protect
        (let (got)
          (if slowly
              (porter-ws--write-slowly client bytes (eq 'close (caar (last frames))))
            (porter-test-write client bytes))
          (dolist (_ frames) (push (porter-ws--read client) got))
          (when (and (eq 'close (caar (last frames))) (not (eq 'close (caar got))))
            ;; The echo of a message before the mistake comes, or does not: Lisp may be too late.
            (setq got (list (porter-ws--read client))))
          (should (equal (cons name frames)
                         (cons name
                               (mapcar (lambda (frame)
                                         (if (eq (car frame) 'close)
                                             (list 'close (cadr frame))
                                           frame))
                                       (nreverse got)))))
          (if (eq 'close (caar (last frames)))
              (porter-test-should-close client)
            (porter-test-write client (porter-ws--close 1000))
            (should (equal '(close 1000 "") (porter-ws--read client)))))
      (porter-test-close client))))

(ert-deftest porter-websocket-frames-whole ()
  "All of `porter-ws--cases', each in one write."
  (porter-test-with-server (server (porter-ws--echo))
    (dolist (case porter-ws--cases) (porter-ws--run-case case server nil)))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-frames-byte-by-byte ()
  "All of `porter-ws--cases', byte by byte over a local socket, where bytes stay apart."
  (let ((path (make-temp-name (expand-file-name "porter-ws-" temporary-file-directory))))
    (porter-test-with-server (server (porter-ws--echo) :port path :family 'local)
      (dolist (case porter-ws--cases)
        ;; The end of these would be written to a closed socket, which a batch Emacs does not
        ;; survive; and what is long takes long.
        (unless (or (member (car case) '("7.1.2" "7.1.3" "7.1.4" "7.1.5" "7.1.6"))
                    (and (> (length (nth 1 case)) 1000) (not porter-test-slow)))
          (porter-ws--run-case case server t))))))

(ert-deftest porter-websocket-autobahn-large ()
  "Groups 9, 10, 12 and 13: large messages, many fragments, small pieces, compression.
With PORTER_SLOW=1 in the sizes of the Autobahn suite, else in smaller ones."
  (porter-test-need "python3")
  (porter-test-with-server (server (porter-ws--echo :compress t))
    (porter-test-with-child
        (child (list "python3" "-B" (expand-file-name "porter-autobahn.py" porter-test-directory)
                     (number-to-string (porter-port server))
                     (if porter-test-slow "all" "")))
      (porter-test-child-await child "^end$" (if porter-test-slow 600 60))
      (should-not (cl-remove-if (lambda (line) (string-match-p " good\\'\\|\\`end\\'" line))
                                (split-string (porter-test-child-output child) "\n" t)))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-many-in-one-write ()
  "Messages and pings in one write come back whole and in order."
  (porter-ws--with (client (porter-ws--echo))
    (porter-test-write client (mapconcat (lambda (i) (porter-ws--text (format "m%d" i)))
                                         (number-sequence 1 500) ""))
    (dotimes (i 500)
      (should (equal (cons 1 (format "m%d" (1+ i))) (porter-ws--read client))))))

(ert-deftest porter-websocket-sixteen-mebibytes ()
  "A large message passes both ways (Autobahn 9)."
  (porter-ws--with (client (porter-ws--echo))
    (let ((data (make-string (* 16 1024 1024) ?x)))
      ;; A mask of zeros: this test is not about Lisp's speed.
      (porter-test-write client (concat (unibyte-string #x82 #xff 0 0 0 0 1 0 0 0 0 0 0 0) data))
      (let ((frame (porter-ws--read client 60)))
        (should (eql 2 (car frame)))
        (should (equal data (cdr frame)))))))

(ert-deftest porter-websocket-too-big ()
  "RFC 6455 7.4.1: 1009 beyond `:max-message', by one frame, by many, by claim."
  (porter-test-with-server (server (porter-ws--echo :max-message 1000))
    (dolist (bytes (list (porter-ws--frame 2 (make-string 1001 0))
                         (concat (porter-ws--frame 2 (make-string 600 0) :fin nil)
                                 (porter-ws--frame 0 (make-string 600 0)))
                         (porter-ws--frame 2 "x" :len (ash 1 40) :size 8)))
      (let ((client (porter-ws--open server)))
        (porter-test-write client bytes)
        (should (equal '(close 1009) (seq-take (porter-ws--read client) 2)))
        (porter-test-await-close client)
        (porter-test-close client)))
    (let ((client (porter-ws--open server)))
      (porter-test-write client (porter-ws--frame 2 (make-string 1000 0)))
      (should (equal (cons 2 (make-string 1000 0)) (porter-ws--read client)))
      (porter-test-close client))))

(ert-deftest porter-websocket-types ()
  "1003 for a type that the handler does not take."
  (porter-ws--with (client (porter-ws--echo :types '(text)))
    (porter-test-write client (porter-ws--text "a"))
    (should (equal '(1 . "a") (porter-ws--read client)))
    (porter-test-write client (porter-ws--frame 2 "a"))
    (should (equal '(close 1003) (seq-take (porter-ws--read client) 2)))))

;;;; What Lisp sees

(ert-deftest porter-websocket-strings ()
  "Text is multibyte, binary unibyte; a handler of two arguments gets no type."
  (let (got)
    (porter-ws--with (client (lambda (request)
                               (porter-web-socket-connect
                                request (lambda (_process message) (push message got)))))
      (porter-test-write client (concat (porter-ws--text "hä") (porter-ws--frame 2 "h\344")))
      (porter-test-wait (lambda () (= 2 (length got))) 5 "No messages")
      (should (equal got '("h\344" "hä")))
      (should (multibyte-string-p (cadr got)))
      (should-not (multibyte-string-p (car got))))))

(ert-deftest porter-websocket-send-types ()
  "Multibyte goes out as UTF-8; text that is none, and things that are no strings, are errors."
  (let (process)
    (porter-ws--with (client (porter-ws--echo :on-open (lambda (p) (setq process p))))
      (should (eq t (porter-web-socket-send process "hä")))
      (should (equal '(1 . "h\303\244") (porter-ws--read client)))
      (should (porter-web-socket-send process "\377\0" 'binary))
      (should (equal '(2 . "\377\0") (porter-ws--read client)))
      (should-error (porter-web-socket-send process "\377") :type 'porter-error)
      (should-error (porter-web-socket-send process '(1)) :type 'wrong-type-argument)
      (should-error (porter-web-socket-send process "a" 'json) :type 'porter-error)
      (should-error (porter-send process "raw") :type 'porter-error)
      (should-error (porter-web-socket-close process 1005) :type 'porter-error)
      (should-error (porter-web-socket-close process 1000 (make-string 124 ?x))
                    :type 'porter-error)
      (should (porter-live-p process)))))

(ert-deftest porter-websocket-close-by-client ()
  "`:on-close' gets code and reason, once; sending then is dropped, or an error."
  (let (closed process)
    (porter-ws--with (client (porter-ws--echo :on-open (lambda (p) (setq process p))
                                              :on-close (lambda (&rest args) (push args closed))))
      (porter-test-write client (porter-ws--close 4001 (encode-coding-string "tschüß" 'utf-8)))
      (should (equal '(close 4001 "") (porter-ws--read client)))
      (porter-test-should-close client)
      (porter-test-wait (lambda () closed) 5 "No close")
      (porter-test-pause 0.05)
      (should (equal closed `((,process 4001 "tschüß"))))
      (should-not (porter-live-p process))
      (should-not (porter-web-socket-send process "x"))
      (let ((porter-web-socket-strict t))
        (should-error (porter-web-socket-send process "x") :type 'porter-closed))
      (should-not (porter-web-socket-close process))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-close-by-server ()
  "RFC 6455 7.1.2: our close frame, the client's answer, then the server ends the connection."
  (let (closed process)
    (porter-ws--with (client (porter-ws--echo :on-open (lambda (p) (setq process p))
                                              :on-close (lambda (_p &rest args)
                                                          (push args closed))))
      (should (porter-web-socket-close process 4000 "enough"))
      (should-not (porter-web-socket-send process "late"))
      (should-not (porter-live-p process))
      (should (equal '(close 4000 "enough") (porter-ws--read client)))
      (should-not closed)
      (porter-test-write client (porter-ws--close 4000))
      (porter-test-should-close client)
      (porter-test-wait (lambda () closed) 5 "No close")
      (should (equal closed '((4000 "")))))))

(ert-deftest porter-websocket-close-timeout ()
  "A client that does not answer a close frame is left after `:close-timeout'."
  (let (closed process)
    (porter-ws--with (client (porter-ws--echo :close-timeout 0.2
                                              :on-open (lambda (p) (setq process p))
                                              :on-close (lambda (_p &rest args)
                                                          (push args closed))))
      (porter-web-socket-close process)
      (porter-test-wait (lambda () closed) 3 "No close")
      (should (equal 1006 (caar closed)))
      (should (equal '(close 1000 "") (porter-ws--read client)))
      (porter-test-should-close client))))

(ert-deftest porter-websocket-vanishing ()
  "A client that resets, closes without a frame, or falls silent is noticed, once each."
  (let (closed)
    (porter-test-with-server
        (server (porter-ws--echo :ping-interval 0.2 :ping-timeout 0.2
                                 :on-close (lambda (_p code _reason) (push code closed))))
      (porter-test-reset (porter-ws--open server))
      (porter-test-wait (lambda () closed) 3 "The reset was not noticed")
      (porter-test-close (porter-ws--open server))
      (porter-test-wait (lambda () (cdr closed)) 3 "The end was not noticed")
      (let ((client (porter-ws--open server)))
        (should (equal '(9 . "") (porter-ws--read client)))
        (porter-test-write client (porter-ws--frame 10 ""))
        (should (equal '(9 . "") (porter-ws--read client)))
        (should (equal 2 (length closed)))
        (porter-test-wait (lambda () (cddr closed)) 3 "The silence was not noticed")
        (porter-test-close client))
      (porter-test-pause 0.1)
      (should (equal closed '(1006 1006 1006)))))
  (porter-test-should-come-to-rest))

(defconst porter-ws--python-open
  "import os, socket, struct, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nUpgrade: websocket\\r\\n'
 b'Connection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n'
 b'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n')
head = b''
while not head.endswith(b'\\r\\n\\r\\n'): head += s.recv(1)
print('open', flush=True)
"
  "The beginning of clients in Python: connect to argv[1], port argv[2].")

(defun porter-ws--python-client (server script &rest arguments)
  "The command of a client of SERVER that runs SCRIPT with more ARGUMENTS."
  (porter-test-need "python3")
  `("python3" "-c" ,(concat porter-ws--python-open script) "127.0.0.1"
    ,(number-to-string (porter-port server)) ,@arguments))

(ert-deftest porter-websocket-vanishing-by-reset ()
  "A reset in the middle of a frame ends the WebSocket at once; `:on-close' is called once."
  (let (closed)
    (porter-test-with-server
        (server (porter-ws--echo :on-close (lambda (_p code _reason) (push code closed))))
      (porter-test-with-child
          (child (porter-ws--python-client server "
s.sendall(b'\\x81\\xff')
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
s.close(); print('reset', flush=True)"))
        (porter-test-child-await child "reset" 10)
        (porter-test-wait (lambda () closed) 3 "The reset was not noticed")
        (porter-test-pause 0.1)
        (should (equal closed '(1006))))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-vanishing-by-stopping ()
  "A client that is stopped keeps its connection, but answers no ping."
  (let (closed)
    (porter-test-with-server
        (server (porter-ws--echo :ping-interval 0.2 :ping-timeout 0.3
                                 :on-close (lambda (_p code reason)
                                             (push (list code reason) closed))))
      (porter-test-with-child
          ;; Its kernel acknowledges what comes; it answers pings until it is stopped.
          (child (porter-ws--python-client server "
s.sendall(b'\\x8a\\x80\\0\\0\\0\\0')
while True:
    if s.recv(100)[:1] == b'\\x89': s.sendall(b'\\x8a\\x80\\0\\0\\0\\0'); print('pong', flush=True)"))
        (porter-test-child-await child "pong\n\\(?:.*\n\\)*pong" 10)
        (should-not closed)
        (signal-process (porter-test-child-process child) 'STOP)
        (porter-test-wait (lambda () closed) 5 "The silence was not noticed")
        (porter-test-pause 0.1)
        (should (equal closed '((1006 "no answer to a ping")))))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-vanishing-by-a-dropped-route ()
  "A client whose network is gone is noticed by a ping, or by a message that does not arrive."
  (porter-test-need "ip" "python3")
  (let ((name (format "porter-%d" (emacs-pid)))
        (near (format "pn%d" (logand (emacs-pid) 99999)))
        (far (format "pf%d" (logand (emacs-pid) 99999)))
        (net (format "198.18.%d" (logand (emacs-pid) 255)))
        closed)
    (cl-flet ((ip (&rest args) (eql 0 (apply #'call-process "ip" nil nil nil args))))
      (unwind-protect
          (progn
            (unless (and (ip "netns" "add" name)
                         (ip "link" "add" near "type" "veth" "peer" "name" far "netns" name)
                         (ip "addr" "add" (concat net ".1/24") "dev" near)
                         (ip "link" "set" near "up")
                         (ip "-n" name "addr" "add" (concat net ".2/24") "dev" far)
                         (ip "-n" name "link" "set" far "up"))
              (ert-skip "network namespaces are not permitted here"))
            (porter-test-with-server
                (server (porter-ws--echo :ping-interval 0.2 :ping-timeout 0.3 :origins t
                                         :on-close (lambda (_p code reason)
                                                     (push (list code reason) closed)))
                        :host (concat net ".1"))
              (porter-test-with-child
                  (child (append (list "ip" "netns" "exec" name "python3" "-c"
                                       (concat porter-ws--python-open "
while True:
    if s.recv(100)[:1] == b'\\x89': s.sendall(b'\\x8a\\x80\\0\\0\\0\\0'); print('pong', flush=True)"))
                                 (list (concat net ".1")
                                       (number-to-string (porter-port server)))))
                (porter-test-child-await child "pong" 10)
                (should-not closed)
                (should (ip "link" "set" near "down"))
                (porter-test-wait (lambda () closed) 5 "The dropped route was not noticed")
                (porter-test-pause 0.1)
                (should (equal 1 (length closed)))
                (should (equal 1006 (caar closed))))))
        (ip "link" "del" near)
        (ip "netns" "del" name))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-slow-reader-is-no-vanished-one ()
  "Who still reads a large message is not given up because the ping waits behind it."
  (let ((data (make-string (ash 64 20) ?x))
        closed)
    (porter-test-with-server
        (server (porter-ws--echo :ping-interval 0.1 :ping-timeout 2
                                 :on-open (lambda (process)
                                            (porter-web-socket-send process data 'binary))
                                 :on-close (lambda (_p code reason)
                                             (push (list code reason) closed))))
      (porter-test-with-child
          (child (porter-ws--python-client server "
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
# Pings may come before the message, which takes a while to copy.
while s.recv(2, socket.MSG_WAITALL) == b'\\x89\\0': s.sendall(b'\\x8a\\x80\\0\\0\\0\\0')
left = 8 + (64 << 20)
while left > 0:
    n = len(s.recv(min(left, 1 << 20)))
    if not n: sys.exit('closed')
    left -= n; time.sleep(n / (16 << 20))
print('all', flush=True)
while True:
    got = s.recv(1000)
    if not got: break
    s.sendall(b'\\x8a\\x80\\0\\0\\0\\0')"))
        (porter-test-child-await child "all" 60)
        (porter-test-pause 0.5)
        (should-not closed))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-pings-that-nobody-reads ()
  "A client that sends pings and reads nothing costs little more than the bytes of the pongs."
  (porter-test-with-server (server (porter-ws--echo :ping-interval nil))
    (let ((before (porter-test-memory)))
      (porter-test-with-child
          (child (porter-ws--python-client server "
out = b'\\x89\\x80\\0\\0\\0\\0' * 10000
for i in range(600): s.sendall(out)
print('sent', flush=True); sys.stdin.read()"))
        (porter-test-child-await child "sent" 60)
        (porter-test-pause 0.2)
        ;; Six million, of which the kernel takes some; each by itself would be 150 bytes.
        (let ((growth (- (porter-test-memory) before)))
          (should (or porter-test-preload (< growth 80000000)))))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-kill-emacs ()
  "When Emacs ends its WebSockets are closed with 1001."
  (porter-test-with-child
      (child (porter-test-batch-command
              '(require 'porter)
              '(let ((server (porter-start
                              (lambda (request)
                                (porter-web-socket-connect
                                 request (lambda (_process message)
                                           (when (equal message "end") (kill-emacs 0)))
                                 :on-close (lambda (_process code reason)
                                             (message "closed %S %S" code reason))))
                              0)))
                 (message "port %d" (porter-port server))
                 (while t (accept-process-output nil 1)))))
    (let ((client (porter-ws--open
                   (string-to-number (porter-test-child-await child "port \\([0-9]+\\)" 20)))))
      (unwind-protect
          (progn
            (porter-test-write client (porter-ws--text "end"))
            (should (equal '(close 1001) (seq-take (porter-ws--read client) 2)))
            (should (equal 0 (porter-test-child-finish child 10)))
            (should (string-match-p "\\`port.*\nclosed 1001 .*\n\\'"
                                    (porter-test-child-output child))))
        (porter-test-close client)))))

(ert-deftest porter-websocket-on-close-once ()
  "`:on-close' is called once, also when it fails, or everything ends while it waits."
  (dolist (shutdown '(nil t))
    (let (closed errors)
      (porter-ws--with (client (porter-ws--echo
                                :on-error (lambda (_p err) (push err errors))
                                :on-close (lambda (_p code _reason)
                                            (push code closed)
                                            (sit-for 0.05)
                                            (when shutdown (porter--shutdown))
                                            (error "Oh no"))))
        (porter-test-write client (porter-ws--close 1000))
        (porter-test-wait (lambda () closed) 5 "Not closed")
        (porter-test-pause 0.2)
        (should (equal closed '(1000)))
        (unless shutdown (should (equal errors '((error "Oh no")))))))))

(ert-deftest porter-websocket-half-closed ()
  "A client that sends no more has left; with a close frame before, properly."
  (let (closed)
    (porter-test-with-server
        (server (porter-ws--echo :on-close (lambda (_p code _reason) (push code closed))))
      (dolist (bytes (list "" (substring (porter-ws--text "abc") 0 5) (porter-ws--close 1000)))
        (let ((client (porter-ws--open server)) (before (length closed)))
          (porter-test-write client bytes)
          (porter-test-half-close client)
          (porter-test-wait (lambda () (> (length closed) before)) 3 "The end was not noticed")
          (porter-test-close client)))
      (should (equal closed '(1000 1006 1006)))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-opens-and-aborts ()
  "Clients that come and go in every phase leave nothing behind."
  (let ((opened 0) (closed 0))
    (porter-test-with-server
        (server (porter-ws--echo :compress t
                                 :on-open (lambda (_p) (cl-incf opened))
                                 :on-close (lambda (&rest _) (cl-incf closed))))
      (porter-test-with-child
          (child (porter-ws--python-client server "
hello = (b'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nUpgrade: websocket\\r\\n'
 b'Connection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n'
 b'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n'
 b'Sec-WebSocket-Extensions: permessage-deflate\\r\\n\\r\\n')
more = b'\\x01\\x81\\0\\0\\0\\0a\\x89\\x81\\0\\0\\0\\0p\\xc2\\x85\\0\\0\\0\\0xxxxx\\x80\\x80\\0\\0\\0\\0\\x88\\x80\\0\\0\\0\\0'
out = hello + more
for i in range(int(sys.argv[3])):
    t = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    t.sendall(out[:20 + i % (len(out) - 19)])
    if i % 3 == 0: t.recv(1 + i % 200) if i % (len(out) - 19) + 20 >= len(hello) else None
    if i % 2: t.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    t.close()
print('done', flush=True)" (if porter-test-slow "20000" "1500")))
        (porter-test-child-await child "done" 120)
        (porter-test-child-finish child 10)
        (porter-test-wait (lambda () (and (> opened 100) (= opened closed))) 10
                          "%s of %s were closed" (lambda () closed) (lambda () opened)))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-server-stops ()
  "`porter-stop' closes WebSockets with 1001."
  (let (closed)
    (porter-ws--with (client (porter-ws--echo :on-close (lambda (_p code _r) (push code closed))))
      (mapc #'porter-stop (porter-servers))
      (should (equal '(close 1001) (seq-take (porter-ws--read client) 2)))
      (porter-test-write client (porter-ws--close 1001))
      (porter-test-should-close client)
      (porter-test-wait (lambda () closed) 3 "No close")
      (should (equal closed '(1001))))))

(ert-deftest porter-websocket-shutdown ()
  "When everything ends at once, `:on-close' is called all the same."
  (let (closed)
    (porter-ws--with (client (porter-ws--echo :on-close (lambda (_p code _r) (push code closed))))
      (should client)
      (porter--shutdown)
      (should (equal closed '(1001))))))

(declare-function porter--shutdown "porter" ())

(ert-deftest porter-websocket-options ()
  "A wrong option is told by name, and a wrong handler, before anything is sent."
  (dolist (options '((:foo 1) (:on-open) (:on-close 5) (:protocols "chat") (:protocols (a))
                     (:origins "http://localhost") (:types text) (:types (text image))
                     (:compress-min -1) (:max-message "1") (:max-message -1) (:high-water nil)
                     (:ping-interval 0) (:ping-timeout x) (:close-timeout -1)))
    (let (told)
      (porter-test-with-server
          (server (lambda (request)
                    (condition-case err
                        (apply #'porter-web-socket-connect request #'ignore options)
                      (porter-error (setq told err) (porter-respond request 200 nil "told")))))
        (should (equal "told" (porter-test-get-body server "/"))))
      (should (memq (car options) told))))
  (dolist (handler '(nil "x" porter-ws--no-such-function))
    (let (told)
      (porter-test-with-server
          (server (lambda (request)
                    (condition-case err (porter-web-socket-connect request handler)
                      (wrong-type-argument (setq told err)
                                           (porter-respond request 200 nil "told")))))
        (should (equal "told" (porter-test-get-body server "/"))))
      (should (equal told (list 'wrong-type-argument 'functionp handler)))))
  (should-error (porter-broadcast 'all "x") :type 'wrong-type-argument))

(ert-deftest porter-websocket-errors ()
  "An error of the handler is logged and told to `:on-error'; the WebSocket goes on."
  (let (errors)
    (porter-ws--with (client (lambda (request)
                               (porter-web-socket-connect
                                request
                                (lambda (process message)
                                  (if (equal message "bad") (error "Oh %s" message)
                                    (porter-web-socket-send process message)))
                                :on-error (lambda (_process err) (push err errors)))))
      (porter-test-write client (concat (porter-ws--text "bad") (porter-ws--text "good")))
      (should (equal '(1 . "good") (porter-ws--read client)))
      (should (equal errors '((error "Oh bad")))))))

(ert-deftest porter-websocket-handler-fails-after-connecting ()
  "A handler that fails behind the handshake closes its WebSocket with 1011."
  (porter-ws--with (client (lambda (request)
                             (porter-web-socket-connect request #'ignore)
                             (error "Too late for a 500")))
    (should (equal '(close 1011) (seq-take (porter-ws--read client) 2)))))

(ert-deftest porter-websocket-ping ()
  "`porter-web-socket-ping' and `:on-pong'."
  (let (process pongs)
    (porter-ws--with (client (porter-ws--echo :on-open (lambda (p) (setq process p))
                                              :on-pong (lambda (_p data) (push data pongs))))
      (should (porter-web-socket-ping process "are you there"))
      (should (equal '(9 . "are you there") (porter-ws--read client)))
      (porter-test-write client (porter-ws--frame 10 "I am"))
      (porter-test-wait (lambda () pongs) 3 "No pong")
      (should (equal pongs '("I am")))
      (should-error (porter-web-socket-ping process (make-string 126 ?x)) :type 'porter-error))))

;;;; Pressure

(ert-deftest porter-websocket-broadcast ()
  "One message for many; closed ones and ones that do not read harm nobody."
  (let (all)
    (porter-test-with-server (server (porter-ws--echo :on-open (lambda (p) (push p all))))
      (let ((clients (cl-loop repeat 20 collect (porter-ws--open server))))
        (porter-test-close (pop clients))
        (porter-test-wait (lambda () (= 19 (cl-count-if #'porter-live-p all))) 3 "Not noticed")
        (porter-test-hold (car clients))
        (should (eql 19 (porter-broadcast all "hä")))
        (dolist (client (cdr clients))
          (should (equal '(1 . "h\303\244") (porter-ws--read client))))
        (should (eql 19 (porter-broadcast all "\0" 'binary)))
        (dolist (client (cdr clients)) (should (equal '(2 . "\0") (porter-ws--read client))))
        (mapc #'porter-test-close clients))))
  (porter-test-should-come-to-rest))

(defvar porter--topics)

(ert-deftest porter-websocket-topics ()
  "What is published to a topic goes to those that subscribed, until they close."
  (let (all)
    (porter-test-with-server
        (server (porter-ws--echo :on-open (lambda (p) (push p all))
                                 :on-close (lambda (p &rest _) (porter-subscribe p "left"))))
      (let* ((one (porter-ws--open server)) (one-process (car all))
             (two (porter-ws--open server)) (two-process (car all)))
        (should (eql 0 (porter-publish "news" "to nobody")))
        (should (eq t (porter-subscribe one-process "news")))
        (should (eq t (porter-subscribe one-process "news")))
        (should (porter-subscribe two-process (copy-sequence "news")))
        (should (porter-subscribe two-process '(room 7)))
        (should (eql 2 (porter-publish "news" "hä")))
        (should (eql 1 (porter-publish (list 'room 7) "\0" 'binary)))
        (should (equal '(1 . "h\303\244") (porter-ws--read one)))
        (should (equal '(1 . "h\303\244") (porter-ws--read two)))
        (should (equal '(2 . "\0") (porter-ws--read two)))
        (should (porter-unsubscribe two-process "news"))
        (should-not (porter-unsubscribe two-process "news"))
        (should (eql 1 (porter-publish "news" "again")))
        (should (equal '(1 . "again") (porter-ws--read one)))
        (should-error (porter-publish "news" "x" 'neither) :type 'porter-error)
        (mapc #'porter-test-close (list one two))
        (porter-test-wait (lambda () (zerop (hash-table-count porter--topics))) 3 "Not left")
        (should (eql 0 (porter-publish "news" "to nobody")))
        (should-not (porter-subscribe one-process "news"))
        (let ((porter-web-socket-strict t))
          (should-error (porter-subscribe one-process "news") :type 'porter-closed))
        (should (zerop (hash-table-count porter--topics))))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-backpressure-out ()
  "A client that does not read makes `full', then `:on-drain' when it does; or it is given up."
  (let (process drained closed (data (make-string 65536 ?x)))
    (porter-ws--with (client (porter-ws--echo :high-water 1000000 :max-unsent 8000000
                                              :on-open (lambda (p) (setq process p))
                                              :on-drain (lambda (_p) (push t drained))
                                              :on-close (lambda (_p code _r) (push code closed))))
      (porter-test-hold client)
      (let ((sent 1))
        (while (eq t (porter-web-socket-send process data)) (cl-incf sent))
        (should (eq 'full (porter-web-socket-send process data)))
        (porter-test-pause 0.05)
        (should-not drained)
        (porter-test-unhold client)
        (dotimes (_ (1+ sent)) (should (eql 65536 (length (cdr (porter-ws--read client))))))
        (porter-test-wait (lambda () drained) 3 "Not drained")
        (porter-test-pause 0.05)
        (should (equal drained '(t))))
      (porter-test-hold client)
      (let ((count 0))
        (while (and (< (cl-incf count) 10000) (porter-web-socket-send process data)))
        (should (< count 1000)))
      (porter-test-wait (lambda () closed) 3 "Not given up")
      (should (equal closed '(1006)))))
  (porter-test-should-come-to-rest))

(ert-deftest porter-websocket-backpressure-in ()
  "Messages that Lisp has no time for are bounded; all come in the end, in order."
  (let ((next 0) (good t) child)
    (porter-test-need "python3")
    (porter-test-with-server
        (server (lambda (request)
                  (porter-web-socket-connect
                   request (lambda (_p message)
                             (unless (eql next (string-to-number message)) (setq good nil))
                             (cl-incf next)))))
      (setq child
            (porter-test-spawn
             (list "python3" "-c"
                   "import socket,sys
s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))
s.sendall(b'GET /ws HTTP/1.1\\r\\nHost: localhost\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n'
 b'Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n')
s.recv(4096)
out=b''.join(b'\\x81\\xfe\\x03\\xe8\\0\\0\\0\\0'+(b'%d '%i).ljust(1000) for i in range(20000))
s.sendall(out); print('sent',flush=True); s.recv(1)"
                   (number-to-string (porter-port server)))))
      (unwind-protect
          (progn
            (porter-test-wait (lambda () (> next 0)) 10 "Nothing came")
            ;; Lisp is stuck: what piles up meanwhile stays small.
            (sleep-for 0)
            (let ((end (+ 0.3 (float-time)))) (while (< (float-time) end)))
            (should (< (plist-get (porter-test-counts) :buffer-bytes) 6000000))
            (porter-test-wait (lambda () (= next 20000)) 20 "Only %s came" (lambda () next))
            (should good))
        (porter-test-child-kill child)))))

;;;; Compression

(ert-deftest porter-websocket-deflate-offers ()
  "RFC 7692 7.1: which offers are taken, and what is answered."
  (porter-test-with-server (server (porter-ws--echo :compress t))
    (pcase-dolist
        (`(,offer ,answer)
         '((nil nil)
           ("permessage-deflate" "")
           ("permessage-deflate; client_max_window_bits" "")
           ("x-webkit-deflate-frame, permessage-deflate; client_max_window_bits=10" "")
           ("permessage-deflate; server_max_window_bits=8, permessage-deflate" "")
           ("permessage-deflate; server_max_window_bits=10" "; server_max_window_bits=10")
           ("permessage-deflate; server_max_window_bits" nil)
           ("permessage-deflate; client_max_window_bits=16" nil)
           ("permessage-deflate; unknown" nil)
           ("permessage-deflate; server_no_context_takeover; server_no_context_takeover" nil)))
      (porter-test-with-client (client server)
        (porter-test-write client (porter-ws--handshake
                                   client (cons "Sec-WebSocket-Extensions" offer)))
        (should (equal (and answer (concat "permessage-deflate; server_no_context_takeover; "
                                           "client_no_context_takeover" answer))
                       (porter-test-header (porter-test-read client)
                                           "sec-websocket-extensions")))))))

(ert-deftest porter-websocket-deflate-messages ()
  "RFC 7692 7.2.3: the RFC's own examples in; what comes out is compressed, and marked."
  (porter-test-with-server (server (porter-ws--echo :compress t :compress-min 100
                                                    :max-message 100000))
    (let ((client (porter-ws--open
                   server '("Sec-WebSocket-Extensions" . "permessage-deflate"))))
      (unwind-protect
          (progn
            (dolist (bytes '("\xf2\x48\xcd\xc9\xc9\x07\x00"
                             "\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00"
                             "\xf3\x48\xcd\xc9\xc9\x07\x00\x00"
                             "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00"))
              (porter-test-write client (porter-ws--frame 1 bytes :rsv 4))
              (should (equal '(1 . "Hello") (porter-ws--read client))))
            ;; In fragments, with a ping between.
            (porter-test-write client (concat (porter-ws--frame 1 "\xf2\x48\xcd" :rsv 4 :fin nil)
                                              (porter-ws--frame 9 "")
                                              (porter-ws--frame 0 "\xc9\xc9\x07\x00")))
            (should (equal '(10 . "") (porter-ws--read client)))
            (should (equal '(1 . "Hello") (porter-ws--read client)))
            ;; Not compressed is allowed, too; a large one comes back smaller.
            (porter-test-write client (porter-ws--text (make-string 5000 ?x)))
            (let ((frame (porter-test-await client #'porter-ws--parse 5)))
              (should (equal '(1 4) (list (nth 0 frame) (nth 2 frame))))
              (should (< (length (nth 1 frame)) 100))
              ;; And again the way it came.
              (porter-test-write client (porter-ws--frame 1 (nth 1 frame) :rsv 4))
              (should (equal frame (porter-test-await client #'porter-ws--parse 5))))
            (porter-test-write client (porter-ws--frame 0 "" :rsv 4))
            (should (equal '(close 1002) (seq-take (porter-ws--read client) 2))))
        (porter-test-close client)))
    (pcase-dolist (`(,bytes ,code) '(("\xff\xff\xff" 1007) ("\xf3\xff\x0f\x00" 1007)))
      (let ((client (porter-ws--open
                     server '("Sec-WebSocket-Extensions" . "permessage-deflate"))))
        (porter-test-write client (porter-ws--frame 1 bytes :rsv 4))
        (should (equal (list 'close code) (seq-take (porter-ws--read client) 2)))
        (porter-test-close client)))))

;;;; A client that others have written

(defconst porter-ws--python
  "import asyncio, sys, websockets
async def main():
    for compression in (None, 'deflate'):
        async with websockets.connect('ws://127.0.0.1:' + sys.argv[1], max_size=None,
                                      compression=compression) as ws:
            for message in ('h\u00e4ll\U0001d11e', b'\\0\\xff', '', b'', 'x' * 200, 'ab' * (8 << 20)):
                await ws.send(message)
                assert await ws.recv() == message
            async def pieces():
                for piece in ('a' * 1000, 'b' * 100000, 'c'):
                    yield piece
            await ws.send(pieces())
            assert await ws.recv() == 'a' * 1000 + 'b' * 100000 + 'c'
            await (await ws.ping())
            await ws.close(4001, 'enough')
            assert ws.close_code == 4001
    print('good')
asyncio.run(main())
"
  "What a client in Python does and expects.")

(ert-deftest porter-websocket-python-client ()
  "The library python3-websockets agrees with us, with and without compression."
  (let ((python (cl-find-if (lambda (python)
                              (and (executable-find python)
                                   (eql 0 (call-process python nil nil nil
                                                        "-c" "import websockets"))))
                            '("python3" "/usr/bin/python3"))))
    (unless python (ert-skip "python3-websockets is not installed"))
    (porter-test-with-server (server (porter-ws--echo :compress t))
      (porter-test-with-child (child (list python "-c" porter-ws--python
                                           (number-to-string (porter-port server))))
        (porter-test-child-await child "good\\|Error" 60)
        (should (string-match-p "good" (porter-test-child-output child)))))))

(provide 'porter-websocket-tests)
;;; porter-websocket-tests.el ends here
