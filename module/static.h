/* static.h - what C answers alone: files below a directory, and fixed answers.
 *
 * Thread: loop, unless a function says otherwise.
 *
 *    static_take/static_serve --> lookup.h, content.h --------------------------> answer complete
 *                                    | would wait                                    ^
 *                                    v                                               |
 *                                 work in the pool: the same, waiting --> on_completed
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_STATIC_H
#define PORTER_STATIC_H

#include "entry.h"
#include "hub.h"

/* If one of the entries in front is for EXCHANGE's path, begin to answer. */
bool static_take(struct hub *hub, struct exchange *exchange);

/* Begin to answer EXCHANGE by the entry called NUMBER. */
void static_serve(struct hub *hub, struct exchange *exchange, uint32_t number);

enum static_sent {
    STATIC_SENT = 0, /* some */
    STATIC_FULL,     /* nothing: the socket is full */
    STATIC_WAITS,    /* nothing yet: the disk is read first; on_completed tells */
    STATIC_BROKEN /* the file is not the same any more, or cannot be read, or the client has gone */
};

/* Send a chunk of EXCHANGE's file to the socket FD.  Whoever calls has seen that there is something left. */
enum static_sent static_send(struct hub *hub, struct exchange *exchange, int fd);

#endif
