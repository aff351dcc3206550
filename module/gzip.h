/* gzip.h - content coding: who takes it, what is worth it, and the compression itself.
 *
 * Thread: the owner's, also a thread of libuv's pool.  Pure.
 *
 * RFC 9110 sections 8.4.1.3 and 12.5.3, RFC 1952.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_GZIP_H
#define PORTER_GZIP_H

#include "buf.h"
#include "request.h"

#include <stdatomic.h>

enum gzip_accept {
    GZIP_UNSAID = 0, /* no Accept-Encoding: anything will do, but few who say nothing can do it */
    GZIP_REFUSED,
    GZIP_ACCEPTED
};

/* What REQUEST says about gzip. */
enum gzip_accept gzip_accept(const struct request *request);

/* Is a body of Content-Type TYPE, LEN bytes, text of some kind?  False for event streams. */
bool gzip_worth(const char *type, size_t len);

/* Is it compressed already? */
bool gzip_is(const char *bytes, size_t len);

/* Append all of IN, compressed, to OUT.  False when memory is out, or when *STOP becomes true meanwhile;
 * STOP may be NULL. */
bool gzip_body(const struct buf *in, struct buf *out, atomic_bool *stop);

/* BODY, compressed, into the empty OUT, which stays empty when that gains nothing worth it. */
void gzip_shorter(const struct buf *body, struct buf *out);

/* A body that is compressed piece by piece. */
struct gzip;
struct gzip *gzip_new(void); /* NULL when memory is out */
void gzip_free(struct gzip *gzip);
/* Append LEN bytes to OUT in a form that the client can decompress up to the last of them; LAST ends it. */
bool gzip_piece(struct gzip *gzip, const char *bytes, size_t len, bool last, struct buf *out);

#endif
