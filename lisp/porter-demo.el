;;; porter-demo.el --- A page that shows what Porter does  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; `porter-demo' serves a home page on which a few small routes can be tried in place, each with
;; its source beside it.  The sources are read from this file and coloured by font-lock when the
;; page is first asked for, and again when this file changes: what the page shows is what runs.
;;
;; The page is one HTML document without any other asset.  Its style and its script are named by
;; their hashes in the Content-Security-Policy, which allows nothing else: text that slipped
;; through the escaping would still not run.
;;
;; The handlers of the first part are examples, short enough to be read on the page.  Keep their
;; lines within 66 columns.

;;; Code:

(require 'eieio)
(require 'json)
(require 'porter-event-stream)
(require 'porter-ui)

(declare-function porter-start "porter")
(declare-function porter-stop "porter")
(declare-function porter-servers "porter")
(declare-function porter-live-p "porter")
(declare-function porter-url "porter")
(declare-function porter-server-statistics "porter")
(declare-function porter-server-handlers "porter-dispatch" t t)

;;; The examples

(defun porter-demo-hello (request)
  "Answer REQUEST with a greeting."
  (with-slots (process) request
    (porter-response-header process 200
      '("Content-type" . "text/plain"))
    (porter-send process "Hello from Emacs!\n")))

(defun porter-demo-hello-name (request)
  "Say hello to whom the path of REQUEST names."
  (with-slots (process) request
    (porter-response-header process 200
      '("Content-type" . "text/plain; charset=utf-8"))
    (porter-send process
      (format "Hello, %s!\n"
              (porter-request-route-param request "name")))))

(defun porter-demo-plus (request)
  "Answer the number after the parameter n of REQUEST."
  (with-slots (process headers) request
    (porter-response-header process 200
      '("Content-type" . "text/plain"))
    (porter-send process
      (number-to-string
       (1+ (string-to-number
            (or (cdr (assoc "n" headers)) "0")))))))

(defun porter-demo-note (request)
  "Repeat the note that the form of REQUEST carries."
  (let ((name (porter-request-param request "name" "Nobody"))
        (note (porter-request-param request "note" "")))
    (with-slots (process) request
      (porter-respond process 200
        '(("Content-type" . "text/html; charset=utf-8"))
        (format (concat "<!doctype html>\n"
                        "<title>Your note</title>\n"
                        "<p>%s wrote %d characters:\n"
                        "<blockquote>%s</blockquote>\n")
                (porter-demo--escape name)
                (length note)
                (porter-demo--escape note))))))

(defun porter-demo-count (request)
  "Answer REQUEST with 1 to 10, five a second."
  (with-slots (process) request
    (let ((n 0) timer)
      (porter-response-header process 200
        '("Content-type" . "text/plain"))
      (setq timer
            (run-at-time 0 0.2
              (lambda ()
                (porter-send process (format "%d\n" (setq n (1+ n))))
                (if (< n 10)
                    (porter-flush process)
                  (cancel-timer timer)
                  (porter-finish process)))))
      ;; The client may leave in the middle.
      (porter-on-close process (lambda () (cancel-timer timer)))
      :keep-alive)))

(defun porter-demo-json (request)
  "Answer REQUEST with what Emacs knows about itself."
  (with-slots (process) request
    (porter-send-json process
      `((version . ,emacs-version)
        (system . ,(symbol-name system-type))
        (features . ,(length features))
        (processes . ,(length (process-list)))
        (collections . ,gcs-done)
        (seconds_collecting . ,gc-elapsed)))))

(defun porter-demo-oops (_request)
  "Fail at every REQUEST, as new handlers do."
  (error "This handler is broken"))

(defconst porter-demo-handlers
  '(("/"               . porter-demo-home)
    ("/hello"          . porter-demo-hello)
    ("/hello/:name"    . porter-demo-hello-name)
    ((:GET . "^/plus") . porter-demo-plus)
    ((:POST :route "/note") . porter-demo-note)
    ("/count"          . porter-demo-count)
    ("/emacs.json"     . porter-demo-json)
    ("/oops"           . porter-demo-oops)
    ("/events"         . porter-demo-events)
    ("/facts.json"     . porter-demo-facts))
  "The routes of the demo: the first that matches answers.")

;;; What runs, live

(defvar porter-demo--watchers nil
  "The open answers of `porter-demo-events'.")

(defvar porter-demo--timer nil
  "The timer that tells the watchers, nil while there are none.")

(defun porter-demo--facts ()
  "Return an alist for JSON of the facts on the page.
The numbers are those of all servers of this Emacs."
  (let ((requests 0)
        (connections 0))
    (dolist (server (if (fboundp 'porter-servers) (porter-servers) nil))
      (let ((statistics (porter-server-statistics server)))
        (setq requests (+ requests (or (plist-get statistics :requests) 0))
              connections (+ connections (or (plist-get statistics :connections) 0)))))
    `((emacs . ,emacs-version)
      (uptime . ,(floor (float-time (time-subtract (current-time) before-init-time))))
      (requests . ,requests)
      (connections . ,connections))))

(defun porter-demo-facts (request)
  "Answer REQUEST with the facts of now, as JSON."
  (with-slots (process) request
    (porter-respond process 200
                    '(("Content-type" . "application/json") ("Cache-control" . "no-store"))
                    (json-encode (porter-demo--facts)))))

(defun porter-demo-events (request)
  "Answer REQUEST with the facts, every second, as an event stream."
  (with-slots (process) request
    (when (porter-event-stream
           request :on-close (lambda (process)
                               (setq porter-demo--watchers
                                     (delq process porter-demo--watchers))))
      (push process porter-demo--watchers)
      (porter-event-send process (json-encode (porter-demo--facts)))
      (unless porter-demo--timer
        (setq porter-demo--timer (run-at-time 1 1 #'porter-demo--tick))))
    :keep-alive))

(defun porter-demo--tick ()
  "Tell all watchers the facts, and rest when there are none."
  (let ((facts (and porter-demo--watchers (json-encode (porter-demo--facts)))))
    (dolist (process porter-demo--watchers)
      (porter-event-send process facts)))
  (unless porter-demo--watchers
    (when porter-demo--timer
      (cancel-timer porter-demo--timer))
    (setq porter-demo--timer nil)))

;;; Sources, coloured

(defun porter-demo--escape (text)
  "Return TEXT with what means something in HTML written as entities."
  (replace-regexp-in-string
   "[&<>\"']"
   (lambda (char)
     (cdr (assoc char '(("&" . "&amp;") ("<" . "&lt;") (">" . "&gt;")
                        ("\"" . "&quot;") ("'" . "&#39;")))))
   text t t))

(defconst porter-demo--directory
  (let ((file (or load-file-name buffer-file-name)))
    (and file (file-name-directory file)))
  "Where this file was loaded from.")

(defun porter-demo--file ()
  "Return the name of the source of this file, or nil."
  (let ((beside (and porter-demo--directory
                     (expand-file-name "porter-demo.el" porter-demo--directory))))
    (if (and beside (file-readable-p beside))
        beside
      (locate-library "porter-demo.el"))))

(defconst porter-demo--classes
  '((font-lock-keyword-face . "k")
    (font-lock-function-name-face . "f")
    (font-lock-variable-name-face . "f")
    (font-lock-string-face . "s")
    (font-lock-doc-face . "d")
    (font-lock-comment-face . "c")
    (font-lock-comment-delimiter-face . "c")
    (font-lock-builtin-face . "b")
    (font-lock-constant-face . "b")
    (font-lock-type-face . "b"))
  "The classes that stand for the faces of font-lock on the page.")

(defun porter-demo--class (face)
  "Return the class that stands for FACE, a face or a list of faces, or nil."
  (let ((faces (if (listp face) face (list face)))
        (class nil))
    (while (and faces (null class))
      (setq class (cdr (assq (pop faces) porter-demo--classes))))
    class))

(defun porter-demo--html (beg end)
  "Return the text between BEG and END as HTML, its faces as classes."
  (let ((at beg)
        (parts nil))
    (while (< at end)
      (let* ((next (next-single-property-change at 'face nil end))
             (text (porter-demo--escape (buffer-substring-no-properties at next)))
             (class (porter-demo--class (get-text-property at 'face))))
        (push (if class (format "<span class=%s>%s</span>" class text) text) parts)
        (setq at next)))
    (apply #'concat (nreverse parts))))

(defun porter-demo--source (name)
  "Return (HTML . LINE) of the definition of NAME in this buffer, or nil."
  (save-excursion
    (goto-char (point-min))
    (when (re-search-forward (format "^(def[a-z]+ %s\\_>" (regexp-quote (symbol-name name))) nil t)
      (let ((beg (line-beginning-position)))
        (goto-char beg)
        (forward-sexp)
        (cons (porter-demo--html beg (point))
              (line-number-at-pos beg))))))

(defun porter-demo--sources (names)
  "Return an alist of NAMES and their (HTML . LINE), read from this file."
  (let ((file (porter-demo--file)))
    (when file
      (with-temp-buffer
        (let ((coding-system-for-read 'utf-8))
          (insert-file-contents file))
        ;; Without the user's hooks: they are for buffers that are looked at.
        (delay-mode-hooks (emacs-lisp-mode))
        (font-lock-set-defaults)
        (font-lock-fontify-region (point-min) (point-max))
        (mapcar (lambda (name) (cons name (porter-demo--source name))) names)))))

;;; The page

(defconst porter-demo--style "
:root{color-scheme:light dark;
--bg:#fbfbf9;--ink:#17191c;--soft:#565b63;--line:#d8d9d4;--pane:#f3f3ef;--field:#fff;
--bar:#24272c;--bar-ink:#f1f1ec;--bar-soft:#aeb3ba;--accent:#6b2fb3;--accent-ink:#fff;
--good:#86d6a0;--bad:#ff9d94;--k:#7a2ea8;--s:#0f6358;--d:#6a6551;--c:#7a766c;--b:#1f4fa3;
--mono:ui-monospace,'SF Mono','Cascadia Mono','JetBrains Mono','DejaVu Sans Mono',Menlo,Consolas,monospace;
--text:Charter,'Bitstream Charter','Charis SIL','Sitka Text',Cambria,'Source Serif 4','Noto Serif',Georgia,serif}
@media(prefers-color-scheme:dark){:root{
--bg:#141518;--ink:#e9e8e3;--soft:#a2a6ad;--line:#303338;--pane:#1a1c20;--field:#0f1012;
--bar:#34383f;--bar-ink:#f3f2ed;--bar-soft:#b3b8bf;--accent:#c3a3f5;--accent-ink:#1c1229;
--k:#c9a6f7;--s:#7cc9ba;--d:#a9a28a;--c:#8f8b80;--b:#8fb4f2}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth;scroll-padding-top:1rem}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--bg);color:var(--ink);font:1.0625rem/1.55 var(--text)}
main,header,footer{max-width:76rem;margin:0 auto;padding:0 clamp(1rem,4vw,2.5rem)}
a{color:var(--accent);text-decoration-thickness:1px;text-underline-offset:.18em}
code,kbd,pre,.bar,.try,nav,dt,.rate{font-family:var(--mono);font-variant-ligatures:none}
code,kbd{font-size:.86em}pre code{font-size:1em}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--bg)}
header{padding-top:clamp(1.25rem,3vw,2rem)}
.top{display:flex;flex-wrap:wrap;gap:.4rem 2rem;align-items:baseline;justify-content:space-between}
.name{font-weight:700;font-size:1.25rem;letter-spacing:-.01em}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.8125rem}
nav a{color:var(--soft);text-decoration:none;padding:.2rem 0}nav a:hover{color:var(--accent);text-decoration:underline}
h1{font-size:clamp(2.4rem,1.2rem + 5.4vw,5.1rem);line-height:1.02;letter-spacing:-.028em;font-weight:700;
margin:clamp(2.2rem,7vw,5rem) 0 1.2rem;max-width:13em;text-wrap:balance}
.lead{font-size:clamp(1.1rem,1rem + .5vw,1.3rem);line-height:1.5;max-width:37em;margin:0 0 clamp(2rem,5vw,3.2rem);text-wrap:pretty}
dl{display:grid;grid-template-columns:repeat(4,1fr);margin:0;border-top:1px solid var(--line)}
dl div{padding:1rem 1rem .9rem 0}dl div+div{padding-left:1.25rem;border-left:1px solid var(--line)}
dt{font-size:.8125rem;color:var(--soft)}
dd{margin:.15rem 0 0;font-size:clamp(1.5rem,1.1rem + 1.6vw,2.3rem);line-height:1.15;letter-spacing:-.015em;
font-variant-numeric:lining-nums tabular-nums;white-space:nowrap}
.bar{display:flex;gap:0 1.6em;align-items:center;background:var(--bar);color:var(--bar-ink);font-size:.8125rem;
line-height:1.3;padding:.42rem .8rem;min-height:2.05rem;margin:0;overflow:hidden;white-space:nowrap;
font-variant-numeric:tabular-nums}
.bar span,.bar a{color:var(--bar-soft)}.bar b{font-weight:700}.bar .good{color:var(--good)}.bar .bad{color:var(--bad)}
.bar .grow{flex:1;min-width:0;overflow:hidden;text-overflow:ellipsis}
.live{height:auto}.live svg{flex:1;min-width:4rem;height:1.5rem;display:block}.live path{fill:var(--good)}
.live .dot{width:.55rem;height:.55rem;border-radius:50%;background:var(--bar-soft);flex:none}
.live.on .dot{background:var(--good)}.live.off .dot{background:var(--bad)}
article{margin:clamp(3rem,7vw,5rem) 0}
h2{font-size:clamp(1.45rem,1.2rem + 1vw,1.9rem);line-height:1.15;letter-spacing:-.015em;margin:0 0 .35rem}
article>p{margin:0 0 1.1rem;max-width:40em;color:var(--soft)}
.frame{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);border:1px solid var(--bar)}
.frame.one{grid-template-columns:minmax(0,1fr)}
.win{display:flex;flex-direction:column;min-width:0}.win+.win{border-left:1px solid var(--bar)}
pre{margin:0;padding:.9rem 1rem 1.1rem;font-size:.8125rem;line-height:1.6;overflow:auto;flex:1;tab-size:8}
pre:focus-visible{outline-offset:-2px}
.src pre{background:var(--pane)}
.k{color:var(--k)}.s{color:var(--s)}.d{color:var(--d)}.c{color:var(--c);font-style:italic}.b{color:var(--b)}.f{font-weight:700}
.out{white-space:pre-wrap;overflow-wrap:anywhere;min-height:10.5rem;max-height:26rem}
.out .p,.out .h{color:var(--soft)}.out .l{font-weight:700}
.try{display:flex;flex-wrap:wrap;gap:.5rem;align-items:center;padding:.6rem .8rem;border-bottom:1px solid var(--line);font-size:.8125rem;margin:0}
.try label{display:flex;align-items:center;gap:.5rem;min-width:0;white-space:nowrap}
.try .grow{flex:1 1 9rem}.try .all{flex:1 1 100%}
input,textarea{font:inherit;color:inherit;background:var(--field);border:1px solid var(--soft);border-radius:3px;padding:.38rem .5rem;min-width:0;width:100%}
input.num{width:7.5em}
textarea{resize:vertical;min-height:3.6rem}
button{font:inherit;font-weight:700;color:var(--accent-ink);background:var(--accent);border:1px solid var(--accent);border-radius:3px;padding:.38rem .95rem;cursor:pointer;min-width:5.2em}
button.more{background:none;color:var(--accent)}button:hover{filter:brightness(1.12)}button:disabled{opacity:.55;cursor:default}
footer{padding-top:1.6rem;padding-bottom:3rem;color:var(--soft);font-size:.95rem}
footer p{max-width:46em}kbd{color:var(--ink)}
.gap{flex:1}
@media(max-width:54rem){.frame{grid-template-columns:minmax(0,1fr)}.win+.win{border-left:0}
.out{min-height:8rem}.try{border-top:0}}
@media(max-width:40rem){dl{grid-template-columns:1fr 1fr}dl div:nth-child(odd){padding-left:0;border-left:0}
dl div:nth-child(n+3){border-top:1px solid var(--line)}pre{font-size:.75rem;padding:.8rem}
.bar{gap:0 1em;font-size:.75rem;padding:.42rem .7rem}.hide{display:none}
input.num{width:5em}button{min-width:0;padding:.38rem .75rem}}
@media(forced-colors:active){.bar{border:1px solid}}
"
  "The style sheet of the page.")

(defconst porter-demo--script "
'use strict';
const $ = (id) => document.getElementById(id);
const root = location.origin;
const plural = (n, word) => n.toLocaleString('en') + ' ' + word + (n === 1 ? '' : 's');

/* What runs: an event stream while the page is in sight, else polling. */
const live = $('live'), rates = [];
let stream = null, poll = 0, watchdog = 0, before = null;

function duration(s) {
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  const two = (n) => String(n).padStart(2, '0');
  return d ? d + ' d ' + h + ' h' : h ? h + ':' + two(m) + ':' + two(s % 60) : m + ':' + two(s % 60);
}
function state(name, text) {
  live.className = 'bar live ' + name;
  $('how').textContent = text;
}
function show(facts) {
  const now = performance.now();
  $('version').textContent = facts.emacs;
  $('uptime').textContent = duration(facts.uptime);
  $('requests').textContent = facts.requests.toLocaleString('en');
  $('connections').textContent = facts.connections.toLocaleString('en');
  if (before && now > before.at) {
    const rate = Math.max(0, (facts.requests - before.requests) * 1000 / (now - before.at));
    rates.push(rate);
    if (rates.length > 60) rates.shift();
    const top = Math.max(10, ...rates);
    $('bars').setAttribute('d', rates.map((r, i) => {
      const high = r > 0 ? Math.max(1.5, 22 * r / top) : 0.5;
      return 'M' + (4 * (60 - rates.length + i)) + ' 24v-' + high.toFixed(1) + 'h3v' + high.toFixed(1) + 'z';
    }).join(''));
    $('rate').textContent = Math.round(rate).toLocaleString('en') + '/s';
  }
  before = { requests: facts.requests, at: now };
}
async function ask() {
  try {
    show(await (await fetch('/facts.json')).json());
    state('on', 'polling');
  } catch (_) {
    before = null;
    state('off', 'no answer');
  }
}
function fallBack() {
  if (stream) stream.close();
  stream = null;
  if (!poll) { poll = setInterval(ask, 2000); ask(); }
}
function watch() {
  if (stream || poll || document.hidden) return;
  if (!window.EventSource) return fallBack();
  stream = new EventSource('/events');
  watchdog = setTimeout(fallBack, 4000);
  stream.onmessage = (event) => {
    clearTimeout(watchdog);
    show(JSON.parse(event.data));
    state('on', 'live');
  };
  stream.onerror = () => {
    before = null;
    state('off', 'no answer');
    if (stream && stream.readyState === 2) fallBack();
  };
}
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) { before = null; return watch(); }
  clearTimeout(watchdog);
  clearInterval(poll);
  poll = 0;
  if (stream) stream.close();
  stream = null;
});

/* The examples. */
const shell = (text) => \"'\" + text.replace(/'/g, \"'\\\\''\") + \"'\";

function request(form) {
  const data = new FormData(form), post = form.method === 'post', path = form.dataset.path;
  let url = path || form.getAttribute('action');
  const rest = new URLSearchParams();
  for (const [name, value] of data) {
    const mark = ':' + name;
    if (path && url.includes(mark)) url = url.replace(mark, () => encodeURIComponent(value || '-'));
    else rest.append(name, value);
  }
  if (!post && [...rest].length) url += '?' + rest;
  const curl = '$ curl -i ' + (post ? [...rest].map(([n, v]) => '--data-urlencode ' + shell(n + '=' + v)).join(' ') + ' ' : '')
    + (url.includes('?') || url.includes('%') ? shell(root + url) : root + url);
  return { url, curl, options: post ? { method: 'POST', body: rest } : {} };
}
function add(out, kind, text) {
  const span = document.createElement('span');
  span.className = kind;
  span.textContent = text;
  out.append(span);
  return span;
}
function bar(form, parts) {
  const box = $(form.dataset.to + '-bar');
  box.replaceChildren(...parts.map(([kind, text]) => {
    const el = document.createElement(kind === 'span' ? 'span' : 'b');
    if (kind !== 'span') el.className = kind;
    el.textContent = text;
    return el;
  }));
}
const ms = (t) => (t < 10 ? t.toFixed(1) : Math.round(t).toLocaleString('en')) + ' ms';

async function send(form) {
  const out = $(form.dataset.to), button = form.querySelector('button:not(.more)');
  const { url, curl, options } = request(form);
  if (form.stop) return form.stop.abort();
  form.stop = new AbortController();
  const slow = setTimeout(() => { button.textContent = 'Stop'; }, 200);
  out.replaceChildren();
  add(out, 'p', curl + '\\n\\n');
  const start = performance.now();
  let bytes = 0, status = '', good = true;
  try {
    const answer = await fetch(url, { ...options, signal: form.stop.signal, cache: 'no-store' });
    const first = performance.now() - start;
    good = answer.ok;
    status = answer.status + ' ' + answer.statusText;
    add(out, 'l', 'HTTP/1.1 ' + status + '\\n');
    for (const [name, value] of answer.headers) add(out, 'h', name + ': ' + value + '\\n');
    const body = add(out, 'b0', '\\n'), reader = answer.body.getReader(), text = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      bytes += value.length;
      body.textContent += text.decode(value, { stream: true });
      if (bytes > 1e6) throw new Error('too long to show');
      out.scrollTop = out.scrollHeight;
    }
    const all = performance.now() - start;
    bar(form, [[good ? 'good' : 'bad', status], ['span', plural(bytes, 'byte')],
      ['span', all - first > 50 ? 'first byte ' + ms(first) + ', all ' + ms(all) : ms(all)]]);
  } catch (error) {
    const left = error.name === 'AbortError';
    bar(form, [[left ? 'span' : 'bad', left ? 'left after ' + ms(performance.now() - start) : 'no answer: ' + error.message],
      ['span', plural(bytes, 'byte')]]);
  }
  clearTimeout(slow);
  button.textContent = 'Send';
  form.stop = null;
}
async function chain(form) {
  const out = $(form.dataset.to), field = form.elements.n, rounds = 100, buttons = form.querySelectorAll('button');
  if (form.stop) form.stop.abort();
  buttons.forEach((each) => { each.disabled = true; });
  out.replaceChildren();
  add(out, 'p', plural(rounds, 'request') + ', one after the other: each sends the answer to the last\\n\\n');
  const body = add(out, 'b0', '');
  bar(form, [['span', 'counting']]);
  let n = String(parseInt(field.value, 10) || 0), seen = '', drawn = 0;
  const start = performance.now();
  try {
    for (let i = 0; i < rounds; i++) {
      n = await (await fetch('/plus?n=' + n, { cache: 'no-store' })).text();
      seen += n + ' ';
      /* Seldom drawn: it is the round trips that are to be timed. */
      if (performance.now() - drawn > 100) { body.textContent = seen; drawn = performance.now(); }
    }
    const all = performance.now() - start;
    body.textContent = seen;
    bar(form, [['good', plural(rounds, 'round trip')], ['span', ms(all)], ['span', ms(all / rounds) + ' each']]);
    field.value = n;
  } catch (error) {
    bar(form, [['bad', 'no answer: ' + error.message]]);
  }
  buttons.forEach((each) => { each.disabled = false; });
}
for (const form of document.querySelectorAll('form')) {
  const draft = () => {
    if (form.stop) return;
    const out = $(form.dataset.to);
    out.replaceChildren();
    add(out, 'p', request(form).curl);
    bar(form, [['span', 'not sent yet']]);
  };
  form.addEventListener('input', draft);
  form.addEventListener('submit', (event) => { event.preventDefault(); send(form); });
  const more = form.querySelector('.more');
  if (more) {
    more.hidden = false;
    more.addEventListener('click', () => chain(form));
  }
  draft();
}
watch();
send(document.querySelector('form'));
"
  "The script of the page.")

(defconst porter-demo--examples
  '((:id "hello" :function porter-demo-hello :title "A handler is a function"
     :text "It gets the request, writes to its <code>process</code>, and returns. Porter counts the
length, frames the answer and keeps the connection."
     :form "<form class=try action='/hello'><span class=grow>GET /hello</span>")
    (:id "name" :function porter-demo-hello-name :title "Names in the path"
     :text "The route is <code>/hello/:name</code>. What stands there arrives decoded, once."
     :form "<form class=try action='/hello/Zo%C3%AB' data-path='/hello/:name'><label class=grow>GET
/hello/ <input name=name value='Zoë' autocomplete=off spellcheck=false></label>")
    (:id "plus" :function porter-demo-plus :title "One more than n"
     :text "Parameters stand among the headers, as pairs of strings. The second button counts up by a
hundred round trips, which shows what one costs on this machine."
     :form "<form class=try action='/plus'><label>GET /plus?n= <input class=num name=n value=5
inputmode=numeric autocomplete=off></label><span class=gap></span>"
     :more "<button type=button class=more hidden>× 100</button>")
    (:id "note" :function porter-demo-note :title "A form"
     :text "Nothing that came over the wire goes back into HTML unescaped. Try it with markup."
     :form "<form class=try action='/note' method=post><label class=grow>name
<input name=name value='Ada' autocomplete=off></label><label class=all>note <textarea name=note
rows=2>5 &lt; 7 &amp; &lt;b>that&lt;/b> is “all”.</textarea></label><span class=grow>POST /note</span>")
    (:id "count" :function porter-demo-count :title "Answers that take their time"
     :text "The handler returns <code>:keep-alive</code> and a timer writes on. The editor waits for
nothing meanwhile. Stop it half-way: the handler learns that its client has left."
     :form "<form class=try action='/count'><span class=grow>GET /count</span>")
    (:id "json" :function porter-demo-json :title "Lisp in, JSON out"
     :text "An alist becomes an object."
     :form "<form class=try action='/emacs.json'><span class=grow>GET /emacs.json</span>")
    (:id "oops" :function porter-demo-oops :title "Mistakes stay small"
     :text "An error in a handler is a 500 for its client and a line in the log. The server and the
editor go on."
     :form "<form class=try action='/oops'><span class=grow>GET /oops</span>"))
  "What the page lets people try, in order.")

(defun porter-demo--window (source name)
  "Return the HTML of a window on the SOURCE, (HTML . LINE), of NAME."
  (format "<div class='win src'><pre tabindex=0 role=region aria-label='Source of %s'><code>%s</code></pre>
<p class=bar><b>porter-demo.el</b><span>%s</span><span class=hide>(Emacs Lisp)</span></p></div>"
          name
          (if source (car source) "; The source of the demo is not installed here.")
          (if source (format "L%d" (cdr source)) "")))

(defun porter-demo--example (example sources)
  "Return the HTML of EXAMPLE, its source taken from SOURCES."
  (let ((id (plist-get example :id))
        (name (plist-get example :function)))
    (format "<article id=%s aria-labelledby=%s-title>
<h2 id=%s-title>%s</h2>
<p>%s</p>
<div class=frame>
%s
<div class=win>%s%s<button>Send</button></form>
<pre class=out id=%s-out tabindex=0 role=region aria-label='Answer'></pre>
<p class=bar id=%s-out-bar role=status></p></div>
</div>
</article>
"
            id id id
            (plist-get example :title)
            (plist-get example :text)
            (porter-demo--window (cdr (assq name sources)) name)
            (replace-regexp-in-string "<form " (format "<form data-to='%s-out' " id)
                                      (plist-get example :form) t t)
            (or (plist-get example :more) "")
            id id)))

(defun porter-demo--body (sources)
  "Return the page with SOURCES, to be completed by `porter-demo--fill'."
  (concat
   "<!doctype html>
<html lang=en>
<meta charset=utf-8>
<meta name=viewport content='width=device-width,initial-scale=1'>
<title>Porter: a web server inside GNU Emacs</title>
<link rel=icon href=\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='3' fill='%236b2fb3'/%3E%3Cpath d='M5 13V3h4a3 3 0 010 6H5' fill='none' stroke='white' stroke-width='2'/%3E%3C/svg%3E\">
<style>" porter-demo--style "</style>
<a class=skip href='#hello'>To the examples</a>
<header>
<div class=top><span class=name>Porter</span>
<nav aria-label='Examples'>"
   (mapconcat (lambda (example)
                (let ((id (plist-get example :id)))
                  (format "<a href='#%s'>%s</a>" id id)))
              porter-demo--examples "\n")
   "</nav></div>
<h1>Served by a text editor.</h1>
<p class=lead>GNU Emacs answered this request. A C module holds the sockets on a thread of its own;
each answer below comes from a few lines of Emacs Lisp, printed beside it as they stand in the file.
Edit one, evaluate it, and send again.</p>
<dl>
<div><dt>Emacs</dt><dd id=version>@emacs@</dd></div>
<div><dt>up</dt><dd id=uptime>@uptime@</dd></div>
<div><dt>requests</dt><dd id=requests>@requests@</dd></div>
<div><dt>connections</dt><dd id=connections>@connections@</dd></div>
</dl>
<p class='bar live' id=live><i class=dot></i><b id=how>as of now</b>
<svg viewBox='0 0 240 24' preserveAspectRatio=none role=img aria-label='Requests per second over the last minute'><path id=bars /></svg>
<span id=rate></span></p>
</header>
<main>
"
   (mapconcat (lambda (example) (porter-demo--example example sources))
              porter-demo--examples "")
   "<article id=routes aria-labelledby=routes-title>
<h2 id=routes-title>All of it</h2>
<p>Routes are a list; the first that matches answers. A function is called by its name, so a new
definition answers the next request.</p>
<div class='frame one'>
"
   (porter-demo--window (cdr (assq 'porter-demo-handlers sources)) 'porter-demo-handlers)
   "</div>
</article>
</main>
<footer>
<p><kbd>M-x porter-list</kbd> shows what runs, <kbd>M-x porter-start</kbd> serves a function of
yours, <kbd>M-x porter-stop</kbd> ends it. From Lisp: <code>(porter-start 'my-handler 8080)</code>.</p>
</footer>
<script>" porter-demo--script "</script>
</html>
"))

(defconst porter-demo--policy
  (let ((hash (lambda (text)
                (format "'sha256-%s'"
                        (base64-encode-string
                         (secure-hash 'sha256 (encode-coding-string text 'utf-8) nil nil t) t)))))
    (concat "default-src 'none'; connect-src 'self'; img-src data:; form-action 'self'; "
            "base-uri 'none'; frame-ancestors 'none'; "
            "style-src " (funcall hash porter-demo--style) "; "
            "script-src " (funcall hash porter-demo--script)))
  "The Content-Security-Policy of the page.")

(defvar porter-demo--cache nil
  "The page and the time of its source, (PAGE . TIME).")

(defun porter-demo--duration (seconds)
  "Return SECONDS as text, in the way of the script."
  (let ((minutes (/ seconds 60)))
    (cond ((>= seconds 86400) (format "%d d %d h" (/ seconds 86400) (% (/ seconds 3600) 24)))
          ((>= seconds 3600) (format "%d:%02d:%02d" (/ seconds 3600) (% minutes 60) (% seconds 60)))
          (t (format "%d:%02d" minutes (% seconds 60))))))

(defun porter-demo--fill (page)
  "Return PAGE with the facts of now in it."
  (let ((facts (porter-demo--facts)))
    (replace-regexp-in-string
     "@\\(emacs\\|uptime\\|requests\\|connections\\)@"
     (lambda (mark)
       (let* ((name (intern (substring mark 1 -1)))
              (value (cdr (assq name facts))))
         (porter-demo--escape
          (if (eq name 'uptime) (porter-demo--duration value) (format "%s" value)))))
     page t t)))

(defun porter-demo--page ()
  "Return the page, made anew when its source has changed."
  (let* ((file (porter-demo--file))
         (time (and file (nth 5 (file-attributes file)))))
    (unless (and porter-demo--cache (equal (cdr porter-demo--cache) time))
      (setq porter-demo--cache
            (cons (porter-demo--body
                   (porter-demo--sources
                    (cons 'porter-demo-handlers
                          (mapcar (lambda (example) (plist-get example :function))
                                  porter-demo--examples))))
                  time)))
    (porter-demo--fill (car porter-demo--cache))))

(defun porter-demo-home (request)
  "Answer REQUEST with the home page."
  (with-slots (process) request
    (porter-respond process 200
                    `(("Content-type" . "text/html; charset=utf-8")
                      ("Content-security-policy" . ,porter-demo--policy)
                      ("X-content-type-options" . "nosniff")
                      ("Referrer-policy" . "no-referrer")
                      ("Cache-control" . "no-store"))
                    (porter-demo--page))))

;;; Commands

(defun porter-demo--running ()
  "Return a server that serves the demo already, or nil."
  (let ((servers (porter-servers))
        (found nil))
    (while (and servers (null found))
      (when (eq (porter-server-handlers (car servers)) porter-demo-handlers)
        (setq found (car servers)))
      (setq servers (cdr servers)))
    found))

;;;###autoload
(defun porter-demo ()
  "Serve a page of examples, and tell its URL.
Use port 8080, or the next free one.  With a prefix argument,
open the page in a browser.  When the demo runs already, only
tell where."
  (interactive)
  (require 'porter)
  (porter-ui-announce
   (or (porter-demo--running)
       (porter-start porter-demo-handlers (porter-ui-free-port) nil :name "demo"))))

(defun porter-demo--say (format &rest args)
  "Write FORMAT with ARGS to standard output at once, also into a pipe."
  (send-string-to-terminal (apply #'format format args)))

(defun porter-demo--port (text)
  "Return the port that TEXT, of the environment, names: 8080 without one.
nil when TEXT is no port."
  (cond ((or (null text) (equal text "")) porter-ui-default-port)
        ((and (string-match-p "\\`[0-9]+\\'" text) (<= (string-to-number text) 65535))
         (string-to-number text))))

;;;###autoload
(defun porter-demo-batch ()
  "Serve the demo until SIGINT or SIGTERM, for `make serve'.
The environment variable PORT names the port, else it is 8080.
Exit with status 1 when it cannot be had."
  (require 'porter)
  (let ((port (porter-demo--port (getenv "PORT")))
        (server nil))
    (unless port
      (message "Porter: PORT=%s is no port number" (getenv "PORT"))
      (kill-emacs 1))
    (condition-case problem
        (setq server (porter-start porter-demo-handlers port nil :name "demo"))
      (file-error
       (message "Porter: %s; PORT=%d is free"
                (error-message-string problem) (porter-ui-free-port (1+ port)))
       (kill-emacs 1)))
    ;; In batch, both signals end in `kill-emacs' with the number of the signal as exit status.
    ;; To be stopped is how this is meant to end, so the status becomes 0.
    (add-hook 'kill-emacs-hook
              (lambda ()
                (setq kill-emacs-hook nil)
                (ignore-errors (porter-stop server))
                (porter-demo--say "\nPorter stopped.\n")
                (kill-emacs 0)))
    (porter-demo--say "Porter demo: %s  (C-c stops)\n" (porter-url server))
    (while t
      (accept-process-output nil 3600))))

(provide 'porter-demo)
;;; porter-demo.el ends here
