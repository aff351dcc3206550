/* reply.c - make an answer empty, and free it.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "reply.h"

#include "limits.h"

void reply_reset(struct reply *reply)
{
    struct buf head = reply->head;
    struct buf body = reply->body;
    buf_reset(&head, LIMIT_KEEP_BYTES);
    buf_reset(&body, LIMIT_KEEP_BYTES);
    *reply = (struct reply){.head = head, .body = body};
}

void reply_free(struct reply *reply)
{
    buf_free(&reply->head);
    buf_free(&reply->body);
    *reply = (struct reply){0};
}
