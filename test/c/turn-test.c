/* turn-test.c - two threads and one loop: never both, never neither.
 *
 * What the holder changes here is plain memory, so the thread sanitizer sees a turn too many.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "turn.h"

#include <sched.h>
#include <stdio.h>

static int passed, failed;

static void expect_at(bool good, int line)
{
    passed += good;
    failed += !good;
    if (!good)
        fprintf(stderr, "turn-test.c:%d: not so\n", line);
}
#define EXPECT(condition) expect_at((condition), __LINE__)

#define WAIT_NS (UINT64_C(10) * 1000 * 1000 * 1000)

static struct turn turn;
static atomic_bool quit;
static atomic_uint thread_turns;
static unsigned long work; /* the holder's */

static void run(void *data)
{
    (void)data;
    while (!atomic_load(&quit)) {
        work++;
        atomic_fetch_add(&thread_turns, 1);
        turn_lend(&turn);
    }
}

/* May a turn be taken now?  It is given back at once, or the other thread would wait for ever. */
static bool may_take(void)
{
    bool taken = turn_take(&turn);
    if (taken)
        turn_give(&turn);
    return taken;
}

/* Wait until the loop is lent, and take a turn. */
static bool take_one(void)
{
    for (uint64_t end = uv_hrtime() + WAIT_NS; uv_hrtime() < end; sched_yield()) {
        if (!turn_take(&turn))
            continue;
        work++;
        turn_give(&turn);
        return true;
    }
    return false;
}

/* Does the thread run its loop again? */
static bool thread_goes_on(void)
{
    unsigned before = atomic_load(&thread_turns);
    for (uint64_t end = uv_hrtime() + WAIT_NS; uv_hrtime() < end; sched_yield())
        if (atomic_load(&thread_turns) != before)
            return true;
    return false;
}

static void each_has_its_turn(void)
{
    unsigned long taken = 0;
    for (int i = 0; i < 200; i++) {
        for (int j = 0; j < 20; j++)
            taken += take_one();
        turn_return(&turn);
    }
    EXPECT(taken == 4000);
    EXPECT(thread_goes_on());
}

static void an_unused_loan_ends(void)
{
    EXPECT(take_one());
    /* Not returned: a handler works. */
    EXPECT(thread_goes_on());
    EXPECT(!turn_is_lent(&turn));
}

static void nobody_is_asked_after_a_long_turn(void)
{
    while (!turn_take(&turn))
        sched_yield();
    for (uint64_t end = uv_hrtime() + TURN_LONG_NS + 1000 * 1000; uv_hrtime() < end;) {
    }
    turn_give(&turn);
    EXPECT(!may_take()); /* whether or not the thread is awake yet */
    EXPECT(thread_goes_on());
    EXPECT(!may_take());
    turn_want(&turn); /* requests have come from the thread */
    EXPECT(!atomic_load(&turn.wanted));
}

static void nothing_is_lent_between_slow_handlers(void)
{
    turn.rest_until_ns = 0;
    EXPECT(take_one());
    turn_worked(&turn, UINT64_C(1000) * 1000 * 1000); /* one that waited, or a collection */
    EXPECT(!turn_rests(&turn));
    EXPECT(take_one());
    for (int i = 0; i < 20; i++)
        turn_worked(&turn, 2 * TURN_WORK_NS);
    EXPECT(!may_take());
    EXPECT(thread_goes_on());
    turn_want(&turn);
    EXPECT(!atomic_load(&turn.wanted));
    EXPECT(!turn_is_lent(&turn));
    for (int i = 0; i < 20; i++)
        turn_worked(&turn, (TURN_WORK_NS + TURN_WORK_AGAIN_NS) / 2);
    EXPECT(!may_take()); /* nor to and fro */
    for (int i = 0; i < 40; i++)
        turn_worked(&turn, 1000);
    EXPECT(take_one());
}

int main(void)
{
    uv_thread_t thread;
    EXPECT(turn_init(&turn) == 0);
    EXPECT(uv_thread_create(&thread, run, NULL) == 0);
    each_has_its_turn();
    an_unused_loan_ends();
    nobody_is_asked_after_a_long_turn();
    nothing_is_lent_between_slow_handlers();
    atomic_store(&quit, true);
    turn_return(&turn);
    uv_thread_join(&thread);
    EXPECT(work > 4000);
    turn_destroy(&turn);
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
