/* loop.h - the background thread: listeners, the outbox, timeouts, start and end.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_LOOP_H
#define PORTER_LOOP_H

#include "entry.h"
#include "hub.h"
#include "turn.h"

/* Commands in the outbox (ITEM_LISTEN is the server itself). */
struct command {
    struct item item;
    struct server *server; /* ITEM_STOP, ITEM_ENTRY, ITEM_RELOAD */
    int fd;                /* ITEM_BELL: taken */
    struct entry *entry;   /* ITEM_ENTRY: taken; NULL: the one called NUMBER goes */
    uint32_t number;       /* ITEM_RELOAD: not 0 for style sheets alone */
    uv_sem_t *done;        /* posted when it is carried out; NULL to leave that out */
};

struct loop {
    struct hub hub;
    uv_thread_t thread;
    uv_async_t wake;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_sem_t ended;
    atomic_bool quit;
    struct turn turn;
    uv_work_t first_work;                      /* see start_pool */
    struct server *servers[LIMIT_SERVERS + 1]; /* by number */
};

/* Thread: Emacs.  NULL sets *ERROR to a negative libuv code.  BELL_FD is taken, also on failure. */
struct loop *loop_start(int bell_fd, int *error);

/* Thread: Emacs.  Close everything and end the thread; wait for that at most TIMEOUT_MS.  False when it
 * did not end in time: LOOP must then be leaked, since the thread still uses it. */
bool loop_stop(struct loop *loop, unsigned timeout_ms);

/* Thread: Emacs, after loop_stop.  The queues must be empty. */
void loop_free(struct loop *loop);

/* Thread: Emacs.  Run the loop once without waiting, if it is lent.  False when it is not: the thread runs it. */
bool loop_turn(struct loop *loop);

/* Thread: Emacs.  Make the loop look at its outbox; what lends it does so anyway. */
void loop_wake(struct loop *loop);

/* Thread: Emacs.  Takes SERVER; gives it back by ITEM_SERVER_GONE. */
void loop_listen(struct loop *loop, struct server *server);

/* Thread: Emacs.  Stop accepting for SERVER, now: returns when its listening sockets are closed, or after
 * TIMEOUT_MS with false.  Answers under way go on for a while. */
bool loop_stop_server(struct loop *loop, struct server *server, unsigned timeout_ms);

/* Thread: Emacs.  Takes ENTRY into SERVER's table; without one, takes the entry called NUMBER out of it.  What comes
 * after that is answered by the new table.  False when memory is out: ENTRY stays the caller's. */
bool loop_enter(struct loop *loop, struct server *server, struct entry *entry, uint32_t number);

/* Thread: Emacs.  Have the pages of SERVER loaded anew, or, with STYLE, their style sheets. */
bool loop_reload(struct loop *loop, struct server *server, bool style);

/* Thread: Emacs.  Takes FD, the new doorbell, instead of the old one.  Rings it if something waits.  False when
 * memory is out: FD stays the caller's. */
bool loop_set_bell(struct loop *loop, int fd);

#endif
