/* content.h - an answer out of a file, or of bytes that stand for one: its fields, and what of it is asked for.
 *
 * Thread: the owner's of the exchange.
 *
 * RFC 9110 sections 8 (fields of a representation), 13 and 14 (by way of select.h).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_CONTENT_H
#define PORTER_CONTENT_H

#include "exchange.h"

#include <sys/stat.h>

/* A file to be answered with. */
struct file_source {
    int fd; /* taken; -1: none */
    uint64_t size;
    struct timespec modified; /* 0: not known */
    const char *type;
    const char *encoding;      /* or NULL */
    const char *cache_control; /* or NULL */
    const struct buf *fields;  /* or NULL */
    const char *etag;          /* or NULL: made of size and time */
    int status;                /* of an answer with the whole; 0: 200 */
    bool varies;               /* with Accept-Encoding */
    struct shared *content; /* the whole, when it is in memory already; or NULL.  FD is -1 then */
};

/* Open FILE for SOURCE: fd, size and time.  0, or the status that says why not.  Thread: Emacs, and so it does not
 * wait for a FIFO's other end; a disk it does wait for, as everything in Emacs. */
int content_open(const char *file, struct file_source *source);

/* Make the answer to EXCHANGE out of SOURCE, as its conditions and ranges ask for.  REPLY is empty before; afterwards
 * it is whole, apart from what is left to send of the file.  False when memory is out. */
bool content_answer(struct exchange *exchange, struct file_source *source,
                    const struct format_context *context, const struct format_clock *clock);

#endif
