/* turn.c - whose turn is it to run the loop?
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "turn.h"

#include <sched.h>

int turn_init(struct turn *turn)
{
    int error = uv_mutex_init(&turn->mutex);
    if (error < 0)
        return error;
    error = uv_cond_init(&turn->back);
    if (error < 0)
        uv_mutex_destroy(&turn->mutex);
    return error;
}

void turn_destroy(struct turn *turn)
{
    uv_cond_destroy(&turn->back);
    uv_mutex_destroy(&turn->mutex);
}

static bool move(struct turn *turn, int from, int to)
{
    return atomic_compare_exchange_strong(&turn->holder, &from, to);
}

void turn_lend(struct turn *turn)
{
    if (!atomic_load(&turn->wanted))
        return;
    unsigned seen = atomic_load(&turn->count);
    atomic_store(&turn->holder, TURN_LENT);
    uv_mutex_lock(&turn->mutex);
    while (atomic_load(&turn->wanted)) {
        if (uv_cond_timedwait(&turn->back, &turn->mutex, TURN_LOOK_NS) != UV_ETIMEDOUT)
            continue;
        unsigned count = atomic_load(&turn->count);
        if (count == seen && atomic_load(&turn->holder) != TURN_EMACS)
            atomic_store(&turn->wanted, false); /* until Emacs asks again */
        seen = count;
    }
    uv_mutex_unlock(&turn->mutex);
    while (!move(turn, TURN_LENT, TURN_THREAD))
        sched_yield(); /* a turn is being taken */
}

void turn_worked(struct turn *turn, uint64_t ns)
{
    /* One garbage collection does not make handlers slow, nor does one long sleep. */
    if (ns > 4 * TURN_WORK_NS)
        ns = 4 * TURN_WORK_NS;
    turn->work_ns += ns / 16 - turn->work_ns / 16;
    if (LIKELY(turn->work_ns <= (turn->slow ? TURN_WORK_AGAIN_NS : TURN_WORK_NS))) {
        turn->slow = false;
    } else if (!turn->slow) {
        turn->slow = true;
        turn_return(turn);
    }
}

bool turn_take(struct turn *turn)
{
    /* After a long turn, or a slow handler, the loop is still lent until the thread has woken up. */
    if (turn_rests(turn))
        return false;
    if (!move(turn, TURN_LENT, TURN_EMACS)) {
        turn_want(turn);
        return false;
    }
    turn->taken_ns = uv_hrtime();
    return true;
}

void turn_give(struct turn *turn)
{
    uint64_t now = uv_hrtime();
    atomic_fetch_add(&turn->count, 1);
    atomic_store(&turn->holder, TURN_LENT);
    turn->rest_until_ns = 0;
    if (now - turn->taken_ns > TURN_LONG_NS) {
        turn->rest_until_ns = now + TURN_REST_NS;
        turn_return(turn);
    }
}

void turn_return(struct turn *turn)
{
    atomic_store(&turn->wanted, false);
    if (!turn_is_lent(turn))
        return;
    uv_mutex_lock(&turn->mutex);
    uv_cond_signal(&turn->back);
    uv_mutex_unlock(&turn->mutex);
}
