/* relay.h - the far end of an Emacs process: what Lisp sends to the process is read here.
 *
 * Packages written for web-server answer by process-send-string, to a genuine process.  So Emacs connects to a
 * Unix-domain socket of ours, and what a handler writes lies in the kernel, in its order, until it is asked for:
 *
 *     process-send-string --> Emacs's end ==socket== FD --> relay_take --> the answer's body
 *
 * Thread: Emacs, which reads and closes.  The loop has a relay only while it is WATCHED: then it waits for bytes,
 * and gives it back through the inbox when some came.  The struct itself is what crosses, like an exchange.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_RELAY_H
#define PORTER_RELAY_H

#include "hub.h"

struct relay {
    struct item item; /* ITEM_RELAY, in both queues */
    int64_t number;   /* Lisp's name for it, never used again */
    int fd;
    bool watched;   /* Emacs's: the loop has it, or it is on its way */
    bool dropped;   /* Emacs's: to be freed when it is back */
    uv_poll_t poll; /* the loop's, while WATCHED */
};

struct relay_table {
    bool listening;
    int listener; /* when LISTENING */
    struct relay *relays[LIMIT_RELAYS];
    int64_t last_number;
    uint32_t count;
};

enum relay_read {
    RELAY_SOME = 1, /* some bytes */
    RELAY_NOTHING,  /* none now */
    RELAY_END,      /* none any more: the process was deleted */
    RELAY_NO_MEMORY
};

/* Listen on the new socket PATH, and not on any other; on none if it is NULL.  False with errno set. */
bool relay_listen(struct relay_table *table, const char *path);

/* The far end of the process that Emacs has just connected.  NULL when there is none, or no room for it. */
struct relay *relay_accept(struct relay_table *table);

struct relay *relay_find(const struct relay_table *table, int64_t number);

/* Does RELAY hold bytes that were not read? */
enum relay_read relay_look(const struct relay *relay);

/* Append what RELAY holds to BUF, at most BYTES_MAX. */
enum relay_read relay_take(const struct relay *relay, struct buf *buf, size_t bytes_max);

/* Let the process know that nothing more comes; what it sends still finds a reader. */
void relay_hang_up(const struct relay *relay);

/* Takes RELAY, and closes it. */
void relay_drop(struct relay_table *table, struct relay *relay);

/* RELAY is back from the loop.  False when it was dropped meanwhile, and is gone. */
bool relay_returned(struct relay_table *table, struct relay *relay);

/* Thread: Emacs, when the loop has ended: what it watched will not come back. */
void relay_recall(struct relay_table *table);

/* Thread: loop.  Wait until RELAY holds bytes, or ends. */
void relay_watch(struct hub *hub, struct relay *relay);

#endif
