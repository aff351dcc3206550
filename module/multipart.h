/* multipart.h - multipart/form-data (RFC 7578, RFC 2046) in, its parts out.
 *
 * Thread: loop (or a test's).  Pure: no sockets, no files.
 *
 * Streaming: bytes come in pieces cut anywhere, contents leave in pieces; what is kept is at most
 * the head of one part.  Linear: the delimiter has its only CR at its beginning, so after a
 * mismatch no byte needs to be looked at again but the one that differs.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_MULTIPART_H
#define PORTER_MULTIPART_H

#include "buf.h"

/* RFC 2046 section 5.1.1. */
#define MULTIPART_BOUNDARY_MAX 70

/* The head of a part; the bytes are borrowed until the callback returns. */
struct multipart_head {
    const char *name; /* unquoted, as the client encoded it (UTF-8 by RFC 7578 section 5.1) */
    size_t name_len;
    const char *filename; /* NULL when absent: the part is a plain field */
    size_t filename_len;
    const char *type; /* the Content-Type, NULL when absent */
    size_t type_len;
};

/* What becomes of the parts.  Each returns 0, or the status to refuse the request with. */
struct multipart_sink {
    int (*begin)(void *data, const struct multipart_head *head);
    int (*content)(void *data, const char *bytes, size_t len);
    int (*end)(void *data);
};

struct multipart {
    const struct multipart_sink *sink; /* borrowed */
    void *data;
    uint64_t offset;    /* bytes fed before the one that is looked at */
    const char *reason; /* of a refusal: static text */
    struct buf head;    /* of the part that begins */
    size_t line_off;    /* in HEAD: where its last line begins */
    uint8_t state;      /* enum state of multipart.c */
    uint8_t matched;    /* bytes of the delimiter seen */
    uint8_t assumed;    /* of these, how many are no part of the content: the CRLF before it */
    bool in_part;       /* the content of a part is being read */
    uint32_t parts;
    uint8_t delimiter_len;
    char delimiter[4 + MULTIPART_BOUNDARY_MAX]; /* CR LF - - boundary */
};

/* Is TYPE, a Content-Type, that of a form with parts? */
bool multipart_is_form(const char *type, size_t len);

/* Start, with the boundary named in TYPE.  False when there is none, or none that can be. */
bool multipart_init(struct multipart *multipart, const char *type, size_t len,
                    const struct multipart_sink *sink, void *data);

/* 0, or the status to refuse the request with; nothing more may be fed then. */
int multipart_feed(struct multipart *multipart, const char *bytes, size_t len);

/* The body is over: 0, or 400 when the last delimiter is missing. */
int multipart_end(struct multipart *multipart);

void multipart_free(struct multipart *multipart);

#endif
