/* limits.h - every bound, with its unit and its reason.
 *
 * Thread: any.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_LIMITS_H
#define PORTER_LIMITS_H

#include <stdint.h>

/* What one server allows its clients.  Filled by porter-start, frozen once the server listens.
 * 0 stands for "no limit".  The Lisp defaults are in porter.el (DESIGN section 4). */
struct limits {
    uint32_t target_bytes_max;   /* longer request targets: 414 */
    uint32_t head_bytes_max;     /* request line and fields: 431 */
    uint32_t fields_max;         /* field lines: 431 */
    uint64_t body_bytes_max;     /* 413, before the body is read when its length is known */
    uint64_t spool_bytes_min;    /* bodies from this size on go to a temporary file */
    uint32_t head_timeout_ms;    /* from the first byte of a head to its end: 408 */
    uint32_t body_timeout_ms;    /* without a byte of body: 408 */
    uint32_t idle_timeout_ms;    /* between requests: close */
    uint32_t write_timeout_ms;   /* without progress of a write: close */
    uint32_t handler_timeout_ms; /* 504, and the late answer is dropped */
    uint32_t stop_timeout_ms;    /* what porter-stop gives answers under way */
    uint32_t connections_max;    /* stop accepting until one leaves */
    uint32_t connections_per_address_max; /* 503, close */
    uint32_t requests_per_connection_max; /* then Connection: close */
    uint32_t pipelined_max;               /* answers outstanding on one connection: stop reading */
    uint32_t queue_items_max;             /* requests waiting for Lisp: 503, Retry-After */
    uint32_t queue_timeout_ms;            /* a request waiting longer for Lisp: 503, Retry-After */
    uint32_t open_files_max; /* files open because they are being sent: 503, Retry-After */
};

/* One read from a socket.  Larger than any usual request, so that the kernel's "no more" is seen
 * from a short read instead of a second call. */
#define LIMIT_READ_BYTES (64 * 1024)

/* Lisp time for one drain; half a 60 Hz frame, so that a key typed meanwhile feels immediate. */
#define LIMIT_DRAIN_US 8000

/* Frames for a client that is slow to read are gathered into pieces of up to this size. */
#define LIMIT_JOIN_BYTES (16 * 1024)

/* Trailer fields count against fields_max and may take this much. */
#define LIMIT_TRAILER_BYTES (8 * 1024)

/* A chunk-size line with its extensions.  Extensions carry nothing anybody uses; long ones are an
 * attempt to waste our time (RFC 9112 section 7.1.1). */
#define LIMIT_CHUNK_LINE_BYTES 256

/* Bodies up to this size are compressed where they are finished, in a tenth of a millisecond or two; larger
 * ones by a thread of libuv's pool, so that neither Lisp nor the loop stands still meanwhile. */
#define LIMIT_GZIP_AT_ONCE_BYTES (8 * 1024)

/* Lines of an access log that wait for Emacs or for the disk; beyond it they are dropped and counted. */
#define LIMIT_LOG_BYTES (1024 * 1024)

/* Buffers kept by recycled requests may hold this much; larger ones are given back. */
#define LIMIT_KEEP_BYTES (16 * 1024)

/* Messages of a WebSocket that wait for Lisp: beyond this its client is not read from until half of them are
 * taken.  Each counts as so many bytes more than it has: a million empty ones are much, too. */
#define LIMIT_WAIT_BYTES (1024 * 1024)
#define LIMIT_WAIT_EXTRA_BYTES 128

/* Some bytes now and then are progress, but not for ever: who has sent a body, or read an answer, for so many
 * times the timeout, and at less than so many bytes a second, is given up too. */
#define LIMIT_CRAWL_TIMES 4
#define LIMIT_CRAWL_BYTES_PER_S 512

/* When bodies and answers in memory are more than this, over all connections, further bodies go to files
 * from a smaller size on than the threshold says.  Without it a thousand waiting requests could hold a
 * thousand times the threshold. */
#define LIMIT_MEMORY_BYTES (64 * 1024 * 1024)
#define LIMIT_SPOOL_BYTES_SHORT (32 * 1024)

/* A request that finds the queue full waits for a place in it: so long at most, and only while Lisp takes others
 * from it, at least one in so long.  Ten thousand clients that ask at once are no more than Lisp can answer in
 * a moment.  Its client is not read from meanwhile, and a larger body does not wait. */
#define LIMIT_PARK_MS 500
#define LIMIT_PARK_STUCK_MS 100
#define LIMIT_PARK_BODY_BYTES (16 * 1024)

/* When so much of answers waits in memory for clients to read it, over all connections, Lisp is given no further
 * request until it is less; they wait in the queue.  Those who then have read slower than this, for so long at
 * least (a round trip or two), are given up.  Without it a thousand slow readers would hold a thousand large
 * answers, or with more patience hold up the queue. */
#define LIMIT_HELD_BYTES (256 * 1024 * 1024)
/* No more of one client counts: alone it stops nobody. */
#define LIMIT_HELD_BYTES_EACH (32 * 1024 * 1024)
#define LIMIT_HELD_MS 300
/* And twice that for each second that requests have waited. */
#define LIMIT_HELD_BYTES_PER_S (64 * 1024)

/* Parts of a form, the head of one of them, and the names in all of them.  Beyond it 413.  A browser's
 * form has some dozens of parts with heads of some hundred bytes. */
#define LIMIT_PARTS 1000
#define LIMIT_PART_HEAD_BYTES (16 * 1024)
#define LIMIT_PARTS_TEXT_BYTES (1024 * 1024)

/* Parameters of a query or an urlencoded form that become a Lisp list; more are an error, and 413 unless the handler
 * minds.  A megabyte of "a&" would otherwise be half a million of them. */
#define LIMIT_PARAMETERS 10000

/* A path that names a file, decoded. */
#define LIMIT_PATH_BYTES 4096

/* Files up to this size are read and leave with their head in one write; from larger ones the kernel sends. */
#define LIMIT_INLINE_BYTES (32 * 1024)

/* Files up to this size are compressed for clients that take it; a larger one should have its FILE.gz beside it. */
#define LIMIT_ZIP_BYTES (1024 * 1024)

/* Compressed files are kept, so many and so much of them.  A site's texts are some hundred files. */
#define LIMIT_CACHE_FILES 256
#define LIMIT_CACHE_BYTES (16 * 1024 * 1024)

/* Pages up to this size get the script that loads them anew when they change. */
#define LIMIT_PAGE_BYTES (4 * 1024 * 1024)

/* Names in one listing of a directory. */
#define LIMIT_LISTING_NAMES 50000

/* Processes of web-server's handlers at once.  Emacs has an fd for each, and 1024 fds for everything. */
#define LIMIT_RELAYS 700

/* Servers alive at once: the server's number travels in the low bits of a request's id. */
#define LIMIT_SERVERS 255

/* Requests that Lisp may hold at once, waiting or deferred, over all servers. */
#define LIMIT_EXCHANGES (1u << 20)

#endif
