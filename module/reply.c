/* reply.c - make an answer empty, and free it.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "reply.h"

#include "check.h"
#include "gzip.h"
#include "limits.h"

void reply_reset(struct reply *reply)
{
    struct buf head = reply->head;
    struct buf body = reply->body;
    buf_reset(&head, LIMIT_KEEP_BYTES);
    buf_reset(&body, LIMIT_KEEP_BYTES);
    if (UNLIKELY(reply->gzip != NULL))
        gzip_free(reply->gzip);
    if (UNLIKELY(reply->extra.data != NULL))
        buf_free(&reply->extra);
    if (UNLIKELY(reply->trailers.data != NULL))
        buf_free(&reply->extra);
    buf_free(&reply->trailers);
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
    gzip_free(reply->gzip);
    buf_free(&reply->head);
    buf_free(&reply->body);
    buf_free(&reply->trailers);
    *reply = (struct reply){0};
}
