/* reply.c - make an answer empty, and free it.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "reply.h"

#include "check.h"
#include "gzip.h"
#include "limits.h"

/* What few answers have. */
static void free_rest(struct reply *reply)
{
    gzip_free(reply->gzip);
    buf_free(&reply->extra);
    buf_free(&reply->trailers);
}

void reply_reset(struct reply *reply)
{
    struct buf head = reply->head;
    struct buf body = reply->body;
    buf_reset(&head, LIMIT_KEEP_BYTES);
    buf_reset(&body, LIMIT_KEEP_BYTES);
    if (UNLIKELY(reply->gzip || reply->extra.data || reply->trailers.data))
        free_rest(reply);
    *reply = (struct reply){.head = head, .body = body};
}

void reply_forget(struct reply *reply)
{
    struct buf extra = reply->extra;
    reply->extra = (struct buf){0};
    reply_reset(reply);
    reply->extra = extra;
}

void reply_free(struct reply *reply)
{
    free_rest(reply);
    buf_free(&reply->head);
    buf_free(&reply->body);
    *reply = (struct reply){0};
}
