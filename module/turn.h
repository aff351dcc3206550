/* turn.h - whose turn is it to run the loop?
 *
 * Thread: both; each function says which.
 *
 * The loop has a thread of its own, which waits for sockets while Emacs sleeps and goes on while Emacs
 * works.  But a request that crosses to another thread and back costs two wake-ups, more than all else.
 * So while a drain is under way the thread lends the loop, and Emacs runs it between two handlers, one
 * turn at a time that never waits: reading, handlers and writing follow each other in one thread.
 *
 *             turn_lend              turn_take
 *     THREAD ----------->  LENT  <---------------> EMACS
 *        ^                  |         turn_give
 *        +------------------+
 *          turn_return, or no turn taken for TURN_LOOK_NS
 *
 * The second way back is what keeps the promise that the loop goes on whatever a handler does: a handler
 * that takes longer than that runs beside the thread, as if nothing had been lent.
 *
 * Where handlers take so long that two wake-ups matter little, nothing is lent at all (turn_worked): what the loop
 * answers alone need not wait for them then.
 *
 * The loop itself is touched by whoever holds it.  HOLDER is sequentially consistent, so a thread that takes it
 * sees all that the other did; and Emacs, which first puts something into the outbox and then looks
 * whether to wake the thread, and the thread, which first takes the loop back and then looks into the
 * outbox, do not miss each other.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_TURN_H
#define PORTER_TURN_H

#include "check.h"

#include <uv.h>

/* How often the thread looks whether Emacs makes use of what it was lent.  Longer than a plain handler, shorter
 * than another client would notice. */
#define TURN_LOOK_NS (1000 * 1000)

/* How long Emacs's turn may take up what is ready; the rest is still ready in the next one. */
#define TURN_NS (1000 * 1000)

/* A turn that takes longer all the same has other things to do than requests for Lisp, and these are not for the thread that
 * looks after the keyboard: so long it is not asked for then. */
#define TURN_LONG_NS (2 * 1000 * 1000)
#define TURN_REST_NS (100 * 1000 * 1000)

/* So long handlers may take, in the mean, for the loop to be lent between them; and so long when it was not. */
#define TURN_WORK_NS (50 * 1000)
#define TURN_WORK_AGAIN_NS (25 * 1000)

enum turn_holder { TURN_THREAD = 0, TURN_LENT, TURN_EMACS };

struct turn {
    _Atomic int holder; /* enum turn_holder */
    atomic_bool wanted; /* Emacs would make use of it now */
    atomic_uint count;  /* of Emacs's turns; wraps */
    uv_mutex_t mutex;   /* for BACK alone */
    uv_cond_t back;
    uint64_t rest_until_ns; /* Emacs's */
    uint64_t taken_ns;      /* Emacs's */
    uint64_t work_ns;       /* Emacs's: how long a handler takes, smoothed */
    bool slow;              /* Emacs's: too long */
};

int turn_init(struct turn *turn); /* 0 or a negative libuv code */
void turn_destroy(struct turn *turn);

/* Thread: loop, between two turns of its own.  Lend the loop if it is wanted; return when it is back. */
void turn_lend(struct turn *turn);

/* Thread: Emacs.  True when Emacs may run the loop now; turn_give follows.  Otherwise it will be lent soon, when the
 * thread has had something to do. */
bool turn_take(struct turn *turn);
void turn_give(struct turn *turn);

/* Thread: Emacs.  A handler took NS. */
void turn_worked(struct turn *turn, uint64_t ns);

/* Thread: Emacs.  Is none to be taken: for a while, after one that was too long, or since handlers are slow? */
static inline bool turn_rests(const struct turn *turn)
{
    return UNLIKELY(turn->slow) ||
           (UNLIKELY(turn->rest_until_ns != 0) && uv_hrtime() < turn->rest_until_ns);
}

/* Thread: Emacs.  Ask for the loop, without looking whether it is there already. */
static inline void turn_want(struct turn *turn)
{
    if (!atomic_load_explicit(&turn->wanted, memory_order_relaxed) && !turn_rests(turn))
        atomic_store(&turn->wanted, true);
}

/* Thread: Emacs.  No turn follows: the thread is to go on at once. */
void turn_return(struct turn *turn);

/* Thread: Emacs.  Will someone look into the outbox soon without being woken? */
static inline bool turn_is_lent(struct turn *turn)
{
    return atomic_load(&turn->holder) != TURN_THREAD;
}

#endif
