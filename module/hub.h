/* hub.h - what all connections share: clock, read buffer, spare exchanges, the way to Emacs.
 *
 * Thread: loop, except for the two queues and the bell.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_HUB_H
#define PORTER_HUB_H

#include "cache.h"
#include "deflate.h"
#include "format.h"
#include "frame.h"
#include "queue.h"
#include "server.h"
#include "wake.h"

struct conn;

/* Emacs's select knows no fd from here on; below, there is place for its own. */
#define HUB_EMACS_FDS 1024

struct hub {
    uv_loop_t uv;
    struct queue inbox;  /* to Emacs: requests and notices */
    struct queue outbox; /* from Emacs: answers, pieces, commands */
    struct bell bell;
    atomic_bool notice_lost; /* for want of memory: Emacs has to look for itself who was revoked */

    struct conn *conns; /* all that are open */
    uint32_t conns_count;
    uint32_t conns_max;   /* 0, or how many there were when they began to take Emacs's fds */
    int low_fds;          /* how many Emacs could use without us */
    uint64_t conn_number; /* of the last one opened */

    uint64_t turn_until_ns; /* while Emacs runs the loop: what is ready after it waits; else 0 */

    struct item_list deliveries; /* requests of this poll round */
    uint32_t deliveries_count;

    struct item_list parked; /* requests that found the queue full, in order; by conn.c */
    uint64_t parked_ms;      /* when they were looked at last, */
    unsigned parked_taken;   /* TAKEN_COUNT then, */
    unsigned parked_idle_ms; /* and for how long it had not changed */

    struct item_list spare;  /* recycled exchanges */
    atomic_long spare_count; /* Emacs reads it, for the leak tests */

    uv_timer_t tick; /* the one timer for all timeouts */
    uint64_t tick_due_ms;
    void (*on_tick)(uv_timer_t *timer);
    void (*on_completed)(struct exchange *exchange); /* by static.c; see conn_completed */
    uv_timer_t stale;     /* rings for requests that a drain under way does not look at */
    unsigned stale_ms;    /* its current period */
    unsigned stale_taken; /* TAKEN_COUNT when it was started */

    /* Emacs's, for STALE. */
    atomic_uint taken_count; /* items of the inbox that it has dealt with; wraps */
    atomic_bool backlog;     /* it has more of them, out of the inbox */

    struct cache *cache;      /* of compressed files, or NULL */
    atomic_size_t held_bytes; /* of answers in memory that their clients are behind with reading */
    atomic_bool wants_room;   /* Emacs waits for that to be less */
    uint64_t no_room_ms;      /* the loop knows of that since then, or 0 */

    struct frame_pool frames; /* of all WebSockets */
    struct deflater *deflater;

    struct format_clock clock;
    atomic_long conns_live; /* for the leak tests */
    char read_buffer[LIMIT_READ_BYTES];
};

/* Milliseconds of the loop's clock, as of this poll round. */
static inline uint64_t hub_now(struct hub *hub)
{
    return uv_now(&hub->uv);
}

/* The Date line of this second. */
const struct format_clock *hub_clock(struct hub *hub);

/* An empty exchange, or NULL when memory is out. */
struct exchange *hub_exchange(struct hub *hub);
/* Takes EXCHANGE back. */
void hub_recycle(struct hub *hub, struct exchange *exchange);

/* Takes EXCHANGE to the inbox, with all others of this poll round: see hub_flush. */
void hub_deliver(struct hub *hub, struct exchange *exchange);

/* Takes NOTICE, or a message, to the inbox, likewise. */
void hub_notify(struct hub *hub, struct item *notice);

/* May Emacs be given more requests?  Thread: any. */
static inline bool hub_has_room(struct hub *hub)
{
    return atomic_load(&hub->held_bytes) <= LIMIT_HELD_BYTES;
}

/* Hand the round's requests over: one lock and at most one byte for all of them. */
void hub_flush(struct hub *hub);

/* FD, moved out of the way of Emacs, which cannot select on high fds and so needs the low ones.  Where
 * the limit does not allow that, low it is.  Thread: any. */
int hub_move_up(int fd);

/* Is FD one of the last that Emacs has for itself?  Nobody else is to keep it.  Thread: any. */
bool hub_is_scarce(const struct hub *hub, int fd);

/* Look at all timeouts within MS milliseconds at the latest. */
void hub_tick_within(struct hub *hub, uint64_t ms);

#endif
