/* reply.h - one answer on its way: what a handler said so far, and the bytes it became.
 *
 * Thread: the owner's (Emacs while a handler answers, loop while it writes).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_REPLY_H
#define PORTER_REPLY_H

#include "buf.h"

struct gzip;

enum reply_phase {
    REPLY_EMPTY = 0, /* nothing said yet */
    REPLY_OPEN,      /* status and fields are in HEAD, the body grows in BODY */
    REPLY_STREAMING, /* the head has left; what comes now leaves piece by piece */
    REPLY_DONE       /* HEAD and BODY (or the pieces sent) are the whole answer */
};

struct reply {
    enum reply_phase phase;
    int status;
    struct buf head; /* status line and fields; with the empty line once framed */
    struct buf body;
    struct buf extra;    /* field lines for the head, whoever begins it */
    struct buf trailers; /* field lines to stand behind a chunked body */

    uint64_t length;     /* of the body, as the handler declared it (has_length) */
    uint64_t body_bytes; /* of the body, given so far */
    uint32_t type_off;   /* in HEAD: where the value of Content-Type is, or 0 */
    uint32_t etag_off;   /* in HEAD: where the value of ETag is, if that is a strong one; or 0 */
    uint32_t extra_etag_off; /* the same in EXTRA */
    struct gzip *gzip;       /* streaming: compresses what leaves, or NULL */
    bool gzip_asked;         /* by the handler: it gave Content-Encoding: gzip */
    bool no_coding;          /* it has another one, is a part, or is not to be transformed */
    bool has_length;
    bool has_date;
    bool chunked;  /* streaming with chunks (HTTP/1.1) */
    bool bodiless; /* HEAD, 204, 205, 304: whatever the handler sends is dropped */
    bool close;    /* the connection ends after this answer */
};

/* Ready for the next answer; small buffers are kept. */
void reply_reset(struct reply *reply);
/* As nothing had been said, but for EXTRA. */
void reply_forget(struct reply *reply);
void reply_free(struct reply *reply);

#endif
