/* multipart-outcome.h - what multipart.c makes of some bytes, as one text to compare.
 *
 * For the C tests and the fuzzer.  An outcome reads like this, with the status last:
 *
 *     [name|filename|type]content;[name|-|-]content;=0
 *
 * Contents must also be found in the body at the offset that the part began at: intake.c relies on it.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_MULTIPART_OUTCOME_H
#define PORTER_MULTIPART_OUTCOME_H

#include "multipart.h"

#include <stdio.h>
#include <stdlib.h>

static inline void outcome_add(struct buf *out, const char *bytes, size_t len)
{
    if (!buf_append(out, bytes, len, SIZE_MAX / 2))
        abort();
}

struct outcome {
    struct buf *out;
    struct multipart multipart;
    const char *body;
    uint64_t offset; /* in BODY: of the content to come */
};

static inline int outcome_begin(void *data, const struct multipart_head *head)
{
    struct outcome *outcome = data;
    struct buf *out = outcome->out;
    outcome->offset = outcome->multipart.offset;
    outcome_add(out, "[", 1);
    outcome_add(out, head->name, head->name_len);
    outcome_add(out, "|", 1);
    outcome_add(out, head->filename ? head->filename : "-",
                head->filename ? head->filename_len : 1);
    outcome_add(out, "|", 1);
    outcome_add(out, head->type ? head->type : "-", head->type ? head->type_len : 1);
    outcome_add(out, "]", 1);
    return 0;
}

static inline int outcome_content(void *data, const char *bytes, size_t len)
{
    struct outcome *outcome = data;
    if (memcmp(outcome->body + outcome->offset, bytes, len) != 0) {
        fprintf(stderr, "the content is not at its offset\n");
        abort();
    }
    outcome->offset += len;
    outcome_add(outcome->out, bytes, len);
    return 0;
}

static inline int outcome_end(void *data)
{
    outcome_add(((struct outcome *)data)->out, ";", 1);
    return 0;
}

/* Feed BODY in two pieces, cut at CUT, or byte by byte when EACH.  OUT is to be freed. */
static inline void outcome_of(const char *type, const char *body, size_t len, size_t cut, bool each,
                              struct buf *out)
{
    static const struct multipart_sink sink = {outcome_begin, outcome_content, outcome_end};
    struct outcome outcome = {.out = out, .body = body};
    struct multipart *multipart = &outcome.multipart;
    int status = 400;
    if (multipart_init(multipart, type, strlen(type), &sink, &outcome)) {
        status = 0;
        for (size_t at = 0, piece; at < len && !status; at += piece) {
            piece = each ? 1 : at < cut ? cut - at : len - at;
            status = multipart_feed(multipart, body + at, piece);
        }
        if (!status)
            status = multipart_end(multipart);
    }
    multipart_free(multipart);
    char text[16];
    int text_len = snprintf(text, sizeof text, "=%d", status);
    outcome_add(out, text, (size_t)text_len);
}

#endif
