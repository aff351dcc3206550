/* format.h - replies in, wire bytes out: status line, fields, framing, Date.
 *
 * Thread: the owner's of the reply.  Pure: no sockets; the time is passed in.
 * Framing follows RFC 9112 section 6 and RFC 9110 sections 6.4.1 and 8.6.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_FORMAT_H
#define PORTER_FORMAT_H

#include "reply.h"

#include <time.h>

enum format_status {
    FORMAT_OK = 0,
    FORMAT_NO_MEMORY,
    FORMAT_BAD_STATUS,  /* not a final status: outside 200..599 */
    FORMAT_BAD_NAME,    /* a field name that is no token (RFC 9110 section 5.1) */
    FORMAT_BAD_VALUE,   /* CR, LF, NUL or another control byte in a field value (5.5) */
    FORMAT_BAD_FRAMING, /* a Content-Length that is no number, a Transfer-Encoding we do not do */
    FORMAT_BAD_TRAILER, /* a field that must not be a trailer (6.5.1) */
    FORMAT_STARTED      /* the status line is out already */
};

/* What of the request decides how its answer is framed. */
struct format_context {
    bool head;       /* the request's method is HEAD */
    bool http_1_0;   /* no chunks; keep-alive has to be said */
    bool keep_alive; /* the client wants it and nothing on our side speaks against it */
};

/* The Date field, made anew when the second changes.  One per thread. */
struct format_clock {
    time_t at;
    char line[40]; /* "Date: Mon, 30 Nov 2026 22:55:07 GMT\r\n" */
    size_t len;
};
void format_clock_set(struct format_clock *clock, time_t now);

/* The body's size limit lies with whoever appends to it; this bounds the head. */
#define FORMAT_HEAD_BYTES_MAX (256 * 1024)

/* Put the status line into the empty REPLY's head. */
enum format_status format_start(struct reply *reply, int code);

/* Append one field line.  The fields that frame a message are taken as wishes, not copied:
 * Content-Length declares, Connection: close closes, Transfer-Encoding: chunked is what
 * happens to a growing body anyway. */
enum format_status format_field(struct reply *reply, const char *name, size_t name_len,
                                const char *value, size_t value_len);

/* 101: the connection speaks PROTOCOL from now on.  Begin the head, and, behind more fields, end it. */
enum format_status format_switch(struct reply *reply, const char *protocol);
enum format_status format_switch_end(struct reply *reply, const struct format_clock *clock);

/* Append one field line that will be in the head, whatever else is said, or forgotten. */
enum format_status format_extra(struct reply *reply, const char *name, size_t name_len,
                                const char *value, size_t value_len);

/* Begin the head of an interim answer in the empty REPLY; fields follow, then format_interim_end. */
enum format_status format_interim_start(struct reply *reply, int code);
enum format_status format_interim_end(struct reply *reply);

/* Append one field line to REPLY's trailers.  They reach the client when the answer is chunked. */
enum format_status format_trailer(struct reply *reply, const char *name, size_t name_len,
                                  const char *value, size_t value_len);

/* Is a content coding open to REPLY, whose head is OPEN: is it text, whole, and not coded yet? */
bool format_may_code(const struct reply *reply);

/* The whole body, or what will be streamed, is coded by gzip: say so, and weaken the ETag, which named other
 * bytes.  With ZIPPED it replaces the body, and is left empty. */
enum format_status format_coded(struct reply *reply, struct buf *zipped);

/* Other clients get other codings of it: caches are to know. */
enum format_status format_vary(struct reply *reply);

/* The answer is all there: complete the head with Date, Content-Length and Connection.  A small
 * body is moved behind the head, so that both leave in one piece of memory. */
enum format_status format_finish(struct reply *reply, const struct format_context *context,
                                 const struct format_clock *clock);

/* The head leaves while the body grows: complete it for chunks (or for a declared length, or, on
 * HTTP/1.0, for a body that ends by close). */
enum format_status format_stream_start(struct reply *reply, const struct format_context *context,
                                       const struct format_clock *clock);

/* Move what is in REPLY's body to OUT, framed as one chunk where chunks are due. */
enum format_status format_stream_piece(struct reply *reply, struct buf *out);

/* Append the end of the body to OUT.  Sets reply->close when the body fell short of its declared
 * length, so that the client notices (RFC 9112 section 8). */
enum format_status format_stream_end(struct reply *reply, struct buf *out);

/* A whole answer made by Porter itself: "CODE Reason" and, in a second line, DETAIL or nothing, as
 * text/plain.  FIELDS is more field lines with their CRLF, or NULL. */
enum format_status format_plain(struct reply *reply, int code, const char *detail,
                                const char *fields, const struct format_context *context,
                                const struct format_clock *clock);

/* The reason phrase of CODE, never NULL. */
const char *format_reason(int code);

/* Decimal digits of N into OUT (20 bytes at least); returns how many. */
size_t format_decimal(uint64_t n, char *out);

#endif
