/* bridge-test.c - an answer that grows while memory runs out.
 *
 * Each allocation fails once.  What reaches the loop must be a beginning of the answer, the head first, or all of
 * it; and an answer that was cut off ends its connection.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "bridge.h"
#include "loop.h"

#include <stdio.h>
#include <stdlib.h>

/* Sanitizers have allocators of their own, and other C libraries other names for theirs. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CAN_FAIL 1

/* The allocation that fails counts down to 0; below that none does. */
static int fail_in = -1;

void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

void *calloc(size_t count, size_t size)
{
    return fail_in >= 0 && fail_in-- == 0 ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return fail_in >= 0 && fail_in-- == 0 ? NULL : __libc_realloc(old, size);
}
#endif

#ifdef CAN_FAIL
static int passed, failed;

static void expect_at(bool good, int line, int nth)
{
    passed += good;
    failed += !good;
    if (!good)
        fprintf(stderr, "bridge-test.c:%d: not so when allocation %d fails\n", line, nth);
}
#define EXPECT(condition) expect_at((condition), __LINE__, nth)

static void on_wake(uv_async_t *async)
{
    (void)async;
}

static struct loop *fake_loop(void)
{
    struct loop *loop = calloc(1, sizeof *loop);
    queue_init(&loop->hub.inbox);
    queue_init(&loop->hub.outbox);
    turn_init(&loop->turn);
    uv_loop_init(&loop->hub.uv);
    uv_async_init(&loop->hub.uv, &loop->wake, on_wake);
    loop->hub.bell.loop_fd = loop->hub.bell.emacs_fd = -1;
    return loop;
}

static void free_loop(struct loop *loop)
{
    uv_close((uv_handle_t *)&loop->wake, NULL);
    uv_run(&loop->hub.uv, UV_RUN_DEFAULT);
    uv_loop_close(&loop->hub.uv);
    turn_destroy(&loop->turn);
    queue_destroy(&loop->hub.inbox);
    queue_destroy(&loop->hub.outbox);
    free(loop);
}

/* Take the request that is in the inbox. */
static struct exchange *take(struct bridge *bridge, struct server *server)
{
    struct exchange *exchange = exchange_new();
    struct bridge_event event;
    exchange->server = server;
    exchange->conn_number = 7;
    exchange->keep_alive = true;
    exchange->item.kind = ITEM_REQUEST;
    atomic_store(&exchange->state, EXCHANGE_QUEUED);
    atomic_store(&server->queued_count, 1);
    struct item_list list = {0};
    list_push(&list, &exchange->item);
    queue_push_list(&bridge->loop->hub.inbox, &list);
    bridge_begin(bridge, 1000 * 1000);
    bridge_take(bridge, &event);
    return event.kind == BRIDGE_REQUEST ? exchange : NULL;
}

/* Send PARTS of an answer, the NTH allocation failing.  True when one did. */
static bool answer(int nth)
{
    static struct server server;
    struct bridge bridge = {.loop = fake_loop()};
    struct exchange *exchange = take(&bridge, &server);
    EXPECT(exchange != NULL);
    exchange_id id = atomic_load(&exchange->id);
    EXPECT(format_start(&exchange->reply, 200) == FORMAT_OK);
    enum format_status status = FORMAT_OK;
    for (int part = 0; part < 3 && status == FORMAT_OK; part++) {
        char text[600] = {0};
        memset(text, 'a' + part, sizeof text - 1);
        buf_append(&exchange->reply.body, text, sizeof text - 1, SIZE_MAX);
        fail_in = part ? fail_in : nth;
        status = bridge_flush(&bridge, exchange);
    }
    bool failed_once = fail_in < 0;
    fail_in = -1;
    if (status == FORMAT_OK)
        status = bridge_finish(&bridge, exchange, false);
    EXPECT((status == FORMAT_OK) != failed_once);
    EXPECT(!bridge_find(&bridge, id));
    bridge_end(&bridge);

    struct item_list list = queue_take(&bridge.loop->hub.outbox);
    struct buf wire = {0};
    bool back = false;
    for (struct item *item; (item = list_pop(&list));) {
        EXPECT(!back);
        if (item->kind == ITEM_PIECE) {
            struct piece *piece = CONTAINER_OF(item, struct piece, item);
            buf_append(&wire, piece->bytes.data, piece->bytes.len, SIZE_MAX);
            piece_free(piece);
        } else {
            EXPECT(item->kind == ITEM_ANSWER);
            back = true;
            buf_append(&wire, exchange->reply.head.data, exchange->reply.head.len, SIZE_MAX);
        }
    }
    EXPECT(back);
    EXPECT(exchange->reply.close == failed_once);
    EXPECT(!wire.len || !memcmp(wire.data, "HTTP/1.1 200 OK\r\n", 17));
    bool ended = wire.len > 5 && !memcmp(wire.data + wire.len - 5, "0\r\n\r\n", 5);
    EXPECT(ended == !failed_once);
    /* Parts are there in order, none of them left out. */
    const char *b = wire.len ? memchr(wire.data, 'b', wire.len) : NULL;
    EXPECT(!b || memmem(wire.data, wire.len, "aaaaaaaa", 8));
    buf_free(&wire);
    exchange_free(exchange);
    free(bridge.slots);
    free_loop(bridge.loop);
    return failed_once;
}

int main(void)
{
    int nth = 0;
    while (answer(nth))
        nth++;
    EXPECT(nth > 3);
    EXPECT(buf_live_bytes() == 0);
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
#else
int main(void)
{
    return 77; /* skipped */
}
#endif
