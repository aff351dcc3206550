/* wake.h - ring the other thread's bell.  The bells carry no data.
 *
 * Thread: both.
 *
 * Towards the loop it is a uv_async.  Towards Emacs it is one byte on a pipe (or socket) that a Lisp
 * process filter reads, at most one unread byte at a time:
 *
 *            loop has something, byte written
 *     IDLE ----------------------------------> RUNG
 *      ^                                        | filter runs
 *      | nothing left                           v
 *      +------------------------------------ DRAINING
 *
 * While Emacs is DRAINING it looks at the inbox by itself, so the loop stays silent.  But a
 * handler may wait (a synchronous fetch from this very server) with the drain below it on the stack, and
 * then only a byte gets through: when the inbox was not touched for a moment the loop moves
 * DRAINING to RUNG and writes one.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_WAKE_H
#define PORTER_WAKE_H

#include "check.h"

enum bell_state { BELL_IDLE = 0, BELL_RUNG, BELL_DRAINING };

struct bell {
    _Atomic int state; /* enum bell_state */
    int loop_fd;       /* the loop's; -1 when there is none */
    int emacs_fd;      /* the Emacs thread's own duplicate */
};

/* Thread: loop.  Ring unless rung.  WHILE_DRAINING: also when a drain is under way. */
void bell_ring_from_loop(struct bell *bell, bool while_draining);

/* Thread: Emacs.  Ring for oneself: the rest of a drain is to happen after the keyboard had its turn. */
void bell_ring_from_emacs(struct bell *bell);

/* Thread: Emacs.  A drain begins: the byte is read. */
void bell_answer(struct bell *bell);

/* Thread: Emacs.  The drain found nothing more.  The caller looks at the inbox once more afterwards:
 * what came before this call was not rung for. */
void bell_rest(struct bell *bell);

/* Close-on-exec and non-blocking, both at once needed for what open_channel gives: it is a plain
 * dup.  0 or -errno. */
int wake_prepare_fd(int fd);

#endif
