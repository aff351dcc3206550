// node.js - the peer "node": Node's http, one process or (WORKERS > 1) a cluster.
//
// Usage: node node.js PORT HANDLER FILL WORKERS
//
// SPDX-License-Identifier: GPL-3.0-or-later

'use strict';
const cluster = require('cluster');
const http = require('http');
const [port, handler, fill, workers] = process.argv.slice(2);

if (Number(workers) > 1 && cluster.isPrimary) {
    for (let i = 0; i < Number(workers); i++) cluster.fork();
    process.on('SIGTERM', () => {
        for (const worker of Object.values(cluster.workers)) worker.kill('SIGTERM');
        process.exit(0);
    });
} else {
    const headers = { 'Content-Type': 'text/plain' };
    if (Number(fill) > 0) headers['X-Fill'] = '0'.repeat(Number(fill));
    const large = /^size-/.test(handler) && Buffer.alloc(Number(handler.slice(5)), 'x');

    const body = (request) => {
        if (large) return large;
        if (handler === 'ok') return 'ok';
        return String(Number(request.url.slice(request.url.indexOf('n=') + 2)) + 1);
    };

    const server = http.createServer((request, response) => {
        const answer = (bytes) => {
            // Neither "Connection" nor "Keep-Alive" where they say nothing new, as with the others.
            if (request.httpVersion === '1.1') response.removeHeader('Connection');
            response.writeHead(200, { ...headers, 'Content-Length': Buffer.byteLength(bytes) });
            response.end(bytes);
        };
        if (handler !== 'sink') return answer(body(request));
        let length = 0;
        request.on('data', (chunk) => { length += chunk.length; });
        request.on('end', () => answer(String(length)));
    });
    server.keepAliveTimeout = 60000;
    server.listen(Number(port), '127.0.0.1', 511);
}
