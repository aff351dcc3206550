/* exchange.c - make, recycle and free what crosses between the threads.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "exchange.h"

#include "limits.h"
#include "log.h"
#include "server.h"

#include <stdlib.h>
#include <unistd.h>

static atomic_long live_count;

struct exchange *exchange_new(void)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange)
        atomic_fetch_add_explicit(&live_count, 1, memory_order_relaxed);
    return exchange;
}

void file_part_clear(struct file_part *file)
{
    if (file->open)
        close(file->fd);
    if (file->server)
        server_close_file(file->server);
    for (uint32_t i = 0; i < file->segments_len; i++)
        buf_free(&file->segments[i].text);
    free(file->segments);
    *file = (struct file_part){0};
}

/* The answer is over; what the pool does for it goes on without it. */
static void leave_task(struct exchange *exchange)
{
    struct task *task = exchange->task;
    if (!task)
        return;
    task->exchange = NULL;
    if (exchange->file.open)
        task->fd = exchange->file.fd;
    exchange->file.open = false;
    exchange->task = NULL;
}

void exchange_reset(struct exchange *exchange)
{
    CHECK(!exchange->pieces.first);
    if (UNLIKELY(exchange->log != NULL))
        log_entry_free(exchange->log);
    leave_task(exchange);
    file_part_clear(&exchange->file);
    shared_release(exchange->content.shared);
    request_reset(&exchange->request);
    reply_reset(&exchange->reply);
    struct request request = exchange->request;
    struct reply reply = exchange->reply;
    *exchange = (struct exchange){.request = request, .reply = reply};
}

void exchange_free(struct exchange *exchange)
{
    log_entry_free(exchange->log);
    leave_task(exchange);
    file_part_clear(&exchange->file);
    shared_release(exchange->content.shared);
    request_clear(&exchange->request);
    reply_free(&exchange->reply);
    free(exchange);
    atomic_fetch_sub_explicit(&live_count, 1, memory_order_relaxed);
}

long exchange_live_count(void)
{
    return atomic_load_explicit(&live_count, memory_order_relaxed);
}

struct piece *piece_new(struct exchange *exchange)
{
    struct piece *piece = calloc(1, sizeof *piece);
    if (piece) {
        piece->item.kind = ITEM_PIECE;
        piece->exchange = exchange;
    }
    return piece;
}

struct piece *piece_new_shared(struct exchange *exchange, struct shared *shared)
{
    struct piece *piece = piece_new(exchange);
    if (piece) {
        piece->shared = shared_hold(shared);
        piece->bytes = shared->bytes;
    }
    return piece;
}

struct shared *shared_new(struct buf *bytes)
{
    struct shared *shared = calloc(1, sizeof *shared);
    if (!shared)
        return NULL;
    atomic_store(&shared->count, 1);
    shared->bytes = *bytes;
    *bytes = (struct buf){0};
    return shared;
}

struct shared *shared_hold(struct shared *shared)
{
    atomic_fetch_add(&shared->count, 1);
    return shared;
}

void shared_release(struct shared *shared)
{
    if (!shared || atomic_fetch_sub(&shared->count, 1) > 1)
        return;
    buf_free(&shared->bytes);
    free(shared);
}

void piece_free(struct piece *piece)
{
    if (piece->shared)
        shared_release(piece->shared);
    else
        buf_free(&piece->bytes);
    free(piece);
}

struct log_batch *log_batch_new(uint64_t id)
{
    struct log_batch *batch = calloc(1, sizeof *batch);
    if (batch) {
        batch->item.kind = ITEM_LOG;
        batch->id = id;
    }
    return batch;
}

void log_batch_free(struct log_batch *batch)
{
    buf_free(&batch->lines);
    free(batch);
}

void message_free(struct message *message)
{
    buf_free(&message->bytes);
    free(message);
}
