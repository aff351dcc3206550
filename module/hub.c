/* hub.c - what all connections share.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "hub.h"

#include "spool.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

/* More spare exchanges than any poll round needs; beyond it memory goes back. */
#define SPARE_MAX 1024

/* So many requests are handed over before the poll round has ended: Emacs starts on them while the
 * loop still reads others. */
#define DELIVERIES_MAX 32

/* So long a drain under way may leave the inbox alone before it is rung for.  Longer than a plain handler
 * takes, shorter than who waits for a nested request would notice. */
#define STALE_MS 2
/* While ringing does not help, look again ever later, up to this. */
#define STALE_MS_MAX 16

const struct format_clock *hub_clock(struct hub *hub)
{
    format_clock_set(&hub->clock, time(NULL));
    return &hub->clock;
}

struct exchange *hub_exchange(struct hub *hub)
{
    struct item *item = list_pop(&hub->spare);
    if (!item)
        return exchange_new();
    atomic_fetch_sub_explicit(&hub->spare_count, 1, memory_order_relaxed);
    return CONTAINER_OF(item, struct exchange, item);
}

void hub_recycle(struct hub *hub, struct exchange *exchange)
{
    spool_discard_files(hub, &exchange->request);
    if (atomic_load_explicit(&hub->spare_count, memory_order_relaxed) >= SPARE_MAX) {
        exchange_free(exchange);
        return;
    }
    exchange_reset(exchange);
    list_push(&hub->spare, &exchange->item);
    atomic_fetch_add_explicit(&hub->spare_count, 1, memory_order_relaxed);
}

void hub_deliver(struct hub *hub, struct exchange *exchange)
{
    hub_notify(hub, &exchange->item);
}

void hub_notify(struct hub *hub, struct item *notice)
{
    list_push(&hub->deliveries, notice);
    if (++hub->deliveries_count >= DELIVERIES_MAX)
        hub_flush(hub);
}

static void on_stale(uv_timer_t *timer);

static void watch(struct hub *hub, unsigned ms)
{
    hub->stale_ms = ms;
    hub->stale_taken = atomic_load_explicit(&hub->taken_count, memory_order_relaxed);
    uv_timer_start(&hub->stale, on_stale, ms, 0);
}

/* Something waits.  When nothing was taken since the last look the handler of a drain under way works
 * or waits.  In case it waits, ring. */
static void on_stale(uv_timer_t *timer)
{
    struct hub *hub = timer->data;
    if (!queue_filled(&hub->inbox) && !atomic_load(&hub->backlog)) {
        if (hub->parked.first)
            watch(hub, STALE_MS); /* there is room for them now */
        return;
    }
    if (hub->stale_taken != atomic_load_explicit(&hub->taken_count, memory_order_relaxed)) {
        watch(hub, STALE_MS);
        return;
    }
    bell_ring_from_loop(&hub->bell, true);
    watch(hub, hub->stale_ms < STALE_MS_MAX ? hub->stale_ms * 2 : STALE_MS_MAX);
}

void hub_flush(struct hub *hub)
{
    if (!hub->deliveries.first)
        return;
    queue_push_list(&hub->inbox, &hub->deliveries);
    hub->deliveries_count = 0;
    bell_ring_from_loop(&hub->bell, false);
    if (!uv_is_active((uv_handle_t *)&hub->stale))
        watch(hub, STALE_MS);
}

int hub_move_up(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HUB_EMACS_FDS);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

bool hub_is_scarce(const struct hub *hub, int fd)
{
    return fd >= hub->low_fds - hub->low_fds / 4 && fd < hub->low_fds;
}

void hub_tick_within(struct hub *hub, uint64_t ms)
{
    uint64_t due = hub_now(hub) + ms;
    if (uv_is_active((uv_handle_t *)&hub->tick) && hub->tick_due_ms <= due)
        return;
    hub->tick_due_ms = due;
    uv_timer_start(&hub->tick, hub->on_tick, ms, 0);
}
