;;; porter-websocket-browser-tests.el --- Chromium's WebSocket and EventSource  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A page opens a WebSocket and an event stream to the server it came from, and reports to it
;; what it has seen, as JSON.

;;; Code:

(require 'porter-test-helper)
(require 'json)

(defconst porter-wsb--page
  "<!DOCTYPE html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\"><script>
const log = [], big = 'ä'.repeat(1 << 20);
let events = 0, open = 2;
function done() { if (!--open) fetch('/report', {method: 'POST', body: JSON.stringify(log)}); }
const source = new EventSource('/events');
source.addEventListener('tick', e => {
  log.push(['event', e.data, e.lastEventId]);
  // The server ends the first stream; the browser comes again, with the last id.
  if (++events == 3) { source.close(); done(); }
});
const socket = new WebSocket('ws://' + location.host + '/socket', ['b', 'a']);
socket.binaryType = 'arraybuffer';
let messages = 0;
socket.onopen = () => {
  log.push(['open', socket.protocol, socket.extensions.split(';')[0]]);
  socket.send('häll\\u{1d11e}'); socket.send(new Uint8Array([0, 255, 1])); socket.send(big);
};
socket.onmessage = e => {
  log.push(typeof e.data == 'string' ? ['text', e.data.length < 20 ? e.data : e.data === big]
                                     : ['binary', Array.from(new Uint8Array(e.data))]);
  if (++messages == 3) socket.close(4000, 'tschüß');
};
socket.onclose = e => { log.push(['close', e.code, e.reason, e.wasClean]); done(); };
</script>"
  "What the browser loads.")

(defvar porter-wsb--seen nil "What handlers have to tell, the last first.")

(defun porter-wsb--handle (request)
  "Answer REQUEST of the page."
  (let ((process (porter-test-process request)))
    (pcase (porter-request-path request)
      ("/" (porter-respond process 200 '(("Content-Type" . "text/html")) porter-wsb--page))
      ("/socket"
       (porter-web-socket-connect
        request (lambda (process message type) (porter-web-socket-send process message type))
        :compress t :protocols '("a")
        :on-close (lambda (_process code reason)
                    (push (list 'closed code reason) porter-wsb--seen))))
      ("/events"
       (let ((last (porter-request-last-event-id request))
             (process (porter-event-stream
                       request :retry 10
                       :on-close (lambda (_) (push 'stream-closed porter-wsb--seen)))))
         (push (list 'last-id last) porter-wsb--seen)
         (if last
             (porter-event-send process "" :event "tick" :id 3)
           (porter-event-send process "eins" :event "tick" :id 1)
           (porter-event-send process "zwei\nZeilen" :event "tick" :id "2 ä")
           (porter-event-close process))
         :keep-alive))
      ("/report"
       (push (list 'report (json-read-from-string (porter-request-text request)))
             porter-wsb--seen)
       (porter-respond process 204 nil nil)))))

(ert-deftest porter-websocket-chromium ()
  "Chromium's WebSocket, compressed, and its EventSource, which connects again, agree with us."
  (let ((chromium (or (cl-find-if #'executable-find '("chromium" "chromium-browser"))
                      (ert-skip "chromium is not installed")))
        (profile (make-temp-file "porter-chromium" t))
        (json-array-type 'list)
        (porter-wsb--seen nil))
    (unwind-protect
        (porter-test-with-server (server #'porter-wsb--handle)
          (porter-test-with-child
              (browser (list chromium "--headless" "--no-sandbox" "--disable-gpu"
                             "--no-first-run" "--disable-dev-shm-usage"
                             "--remote-debugging-port=0" (concat "--user-data-dir=" profile)
                             (porter-url server)))
            (porter-test-wait (lambda ()
                                (and (assq 'report porter-wsb--seen)
                                     ;; One of them is closed by the page.  Chromium may keep
                                     ;; its connection for five seconds more.
                                     (eql 2 (cl-count 'stream-closed porter-wsb--seen))
                                     (assq 'closed porter-wsb--seen)))
                              60 "Chromium has not finished: %S" (lambda () porter-wsb--seen))
            (let ((report (cadr (assq 'report porter-wsb--seen))))
              ;; Our answer to its close frame has the same code, and no reason.
              (should (equal (cl-remove "event" report :key #'car :test #'equal)
                             '(("open" "a" "permessage-deflate") ("text" "häll𝄞")
                               ("binary" (0 255 1)) ("text" t) ("close" 4000 "" t))))
              (should (equal (cl-remove "event" report :key #'car :test-not #'equal)
                             '(("event" "eins" "1") ("event" "zwei\nZeilen" "2 ä")
                               ("event" "" "3")))))
            (should (equal (cl-remove-if-not (lambda (seen) (eq (car-safe seen) 'closed))
                                             porter-wsb--seen)
                           '((closed 4000 "tschüß"))))
            (should (equal (reverse (cl-remove-if-not
                                     (lambda (seen) (eq (car-safe seen) 'last-id))
                                     porter-wsb--seen))
                           '((last-id nil) (last-id "2 ä"))))))
      (ignore-errors (delete-directory profile t)))))

(provide 'porter-websocket-browser-tests)
;;; porter-websocket-browser-tests.el ends here
