/* bridge.c - the Emacs thread's end of both queues.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "bridge.h"

#include "gzip.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define CHAIN_MAX 64

/* A larger answer does not wait for its follower's handler: little would be won. */
#define JOIN_BYTES_MAX (16 * 1024)

/* Finished answers are not held back longer than this while other handlers run. */
#define HOLD_NS (300 * 1000)

/* How often the Date line is looked after. */
#define CLOCK_NS (100 * 1000 * 1000)

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static const struct format_clock *date(struct bridge *bridge)
{
    uint64_t now = now_ns();
    if (!bridge->clock.len || now - bridge->clock_ns > CLOCK_NS) {
        bridge->clock_ns = now;
        format_clock_set(&bridge->clock, time(NULL));
    }
    return &bridge->clock;
}

/* ---- ids ---- */

static bool slot_take(struct bridge *bridge, struct exchange *exchange)
{
    uint32_t index = bridge->first_free;
    if (!index) {
        if (bridge->slots_len == bridge->slots_capacity) {
            uint32_t capacity = bridge->slots_capacity ? bridge->slots_capacity * 2 : 64;
            if (capacity > LIMIT_EXCHANGES)
                return false;
            struct slot *slots = realloc(bridge->slots, capacity * sizeof *slots);
            if (!slots)
                return false;
            memset(slots + bridge->slots_capacity, 0,
                   (capacity - bridge->slots_capacity) * sizeof *slots);
            bridge->slots = slots;
            bridge->slots_capacity = capacity;
            if (!bridge->slots_len)
                bridge->slots_len = 1; /* slot 0 is "none" */
        }
        index = bridge->slots_len++;
    } else {
        bridge->first_free = bridge->slots[index].next_free;
    }
    struct slot *slot = &bridge->slots[index];
    slot->exchange = exchange;
    slot->generation = (slot->generation + 1) & BRIDGE_GENERATION_MASK;
    bridge->taken_count++;
    exchange_id id = (slot->generation << BRIDGE_ID_SLOT_BITS | index) << BRIDGE_ID_SERVER_BITS;
    atomic_store(&exchange->id, id | exchange->server->number);
    return true;
}

static struct slot *slot_of(struct bridge *bridge, exchange_id id)
{
    uint64_t index = id >> BRIDGE_ID_SERVER_BITS & ((1u << BRIDGE_ID_SLOT_BITS) - 1);
    uint64_t generation = id >> (BRIDGE_ID_SERVER_BITS + BRIDGE_ID_SLOT_BITS);
    if (index >= bridge->slots_len)
        return NULL;
    struct slot *slot = &bridge->slots[index];
    return slot->exchange && slot->generation == generation ? slot : NULL;
}

static void slot_release(struct bridge *bridge, exchange_id id)
{
    struct slot *slot = slot_of(bridge, id);
    CHECK(slot);
    slot->exchange = NULL;
    slot->next_free = bridge->first_free;
    bridge->first_free = (uint32_t)(slot - bridge->slots);
    bridge->taken_count--;
}

struct exchange *bridge_find(struct bridge *bridge, exchange_id id)
{
    struct slot *slot = slot_of(bridge, id);
    return slot ? slot->exchange : NULL;
}

const struct request *bridge_request(struct bridge *bridge, exchange_id id,
                                     const struct peer **peer)
{
    struct exchange *exchange = bridge_find(bridge, id);
    if (exchange) {
        if (peer)
            *peer = &exchange->peer;
        return &exchange->request;
    }
    for (uint32_t depth = bridge->depth; depth > 0; depth--) {
        struct kept *kept = &bridge->kept[depth];
        if (!kept->valid || kept->running != id)
            continue;
        if (peer)
            *peer = &kept->peer;
        return &kept->request;
    }
    return NULL;
}

static void hand_back(struct bridge *bridge, struct item *item, bool wake);

/* The handler at DEPTH is done with its request: the loop is to delete the temporary files. */
static void kept_release(struct bridge *bridge, uint32_t depth)
{
    struct kept *kept = &bridge->kept[depth];
    kept->running = 0;
    kept->valid = false;
    if (!request_file(&kept->request, 0))
        return;
    struct leavings *leavings = bridge->loop ? calloc(1, sizeof *leavings) : NULL;
    if (!leavings) {
        request_clear(&kept->request);
        return;
    }
    leavings->item.kind = ITEM_FILES;
    leavings->request = kept->request;
    kept->request = (struct request){0};
    hand_back(bridge, &leavings->item, true);
}

/* Exchange requests with the keeper of the handler that answers EXCHANGE, if it runs. */
static void keep_request(struct bridge *bridge, struct exchange *exchange)
{
    for (uint32_t depth = bridge->depth; depth > 0; depth--) {
        struct kept *kept = &bridge->kept[depth];
        if (kept->running != atomic_load(&exchange->id))
            continue;
        struct request spare = kept->request;
        request_reset(&spare);
        kept->request = exchange->request;
        kept->peer = exchange->peer;
        kept->valid = true;
        exchange->request = spare;
        return;
    }
}

bool bridge_live(struct exchange *exchange)
{
    return exchange_state(exchange) != EXCHANGE_REVOKED;
}

/* ---- handing back ---- */

static void hand_back(struct bridge *bridge, struct item *item, bool wake)
{
    if (!bridge->done.first)
        bridge->done_since_ns = now_ns();
    bridge->wake = bridge->wake || wake;
    list_push(&bridge->done, item);
}

static void hand_back_exchange(struct bridge *bridge, struct exchange *exchange, bool wake)
{
    exchange->item.kind = ITEM_ANSWER;
    hand_back(bridge, &exchange->item, wake);
}

static size_t wire_bytes(const struct exchange *exchange)
{
    return exchange->reply.head.len + exchange->reply.body.len;
}

/* Write the chain to its socket.  What does not fit goes to the loop. */
static void write_chain(struct bridge *bridge)
{
    struct iovec iov[2 * CHAIN_MAX];
    struct msghdr message = {.msg_iov = iov};
    if (!bridge->chain.first)
        return;
    struct exchange *exchange = CONTAINER_OF(bridge->chain.first, struct exchange, item);
    int fd = exchange->fd;
    for (struct item *item = bridge->chain.first; item; item = item->next) {
        exchange = CONTAINER_OF(item, struct exchange, item);
        struct buf *parts[] = {&exchange->reply.head, &exchange->reply.body};
        for (size_t i = 0; i < ARRAY_LEN(parts); i++)
            if (parts[i]->len)
                iov[message.msg_iovlen++] = (struct iovec){parts[i]->data, parts[i]->len};
    }
    ssize_t sent;
    do
        /* One piece is the rule, and send costs the kernel less. */
        sent = message.msg_iovlen == 1
                   ? send(fd, iov[0].iov_base, iov[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                   : sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    /* A full socket, or a dead one: the loop will see which. */
    size_t left = sent < 0 ? 0 : (size_t)sent;
    bridge->chain_len = 0;
    bridge->written_conn = 0;
    for (struct item *item; (item = list_pop(&bridge->chain));) {
        exchange = CONTAINER_OF(item, struct exchange, item);
        size_t size = wire_bytes(exchange);
        if (left >= size) {
            left -= size;
            bool close = exchange->reply.close;
            bridge->written_conn = close ? 0 : exchange->conn_number;
            bridge->written_sequence = exchange->sequence;
            server_count_answer(exchange->server, exchange->reply.status);
            exchange->counted = true;
            atomic_store(&exchange->state, EXCHANGE_WRITTEN);
            /* NOTE wake-loop in conn.c */
            hand_back_exchange(bridge, exchange, close || atomic_load(&exchange->wake_loop));
        } else {
            exchange->written = left;
            left = 0;
            bridge->written_conn = 0;
            hand_back_exchange(bridge, exchange, true);
        }
    }
}

static void push_done(struct bridge *bridge)
{
    if (!bridge->done.first || !bridge->loop)
        return;
    queue_push_list(&bridge->loop->hub.outbox, &bridge->done);
    if (bridge->wake)
        loop_wake(bridge->loop);
    bridge->wake = false;
}

void bridge_settle(struct bridge *bridge)
{
    write_chain(bridge);
    push_done(bridge);
}

/* An answer was finished.  What the loop has to do with it cannot wait: the next handler may run for
 * long, or this one's drain is under a handler that waits and a timer has answered. */
static void settle_soon(struct bridge *bridge)
{
    if (!bridge->depth || bridge->wake)
        bridge_settle(bridge);
}

/* ---- answering ---- */

static struct format_context context_of(const struct exchange *exchange)
{
    return (struct format_context){
        .head = exchange->head,
        .http_1_0 = exchange->http_1_0,
        .keep_alive = exchange->keep_alive,
    };
}

/* Is EXCHANGE the next answer behind CONN and SEQUENCE on the same connection? */
static bool follows(const struct exchange *exchange, uint64_t conn, uint32_t sequence)
{
    return exchange->conn_number == conn && exchange->sequence == sequence + 1;
}

static bool joins_chain(struct bridge *bridge, const struct exchange *exchange)
{
    if (!bridge->chain.last || bridge->chain_len >= CHAIN_MAX)
        return false;
    struct exchange *last = CONTAINER_OF(bridge->chain.last, struct exchange, item);
    return !last->reply.close && follows(exchange, last->conn_number, last->sequence);
}

/* Does the request to be taken next belong behind the chain? */
static bool chain_may_grow(const struct bridge *bridge, const struct exchange *last)
{
    const struct item *item = bridge->todo.first;
    return item && item->kind == ITEM_REQUEST && bridge->chain_len < CHAIN_MAX &&
           !last->reply.close && wire_bytes(last) <= JOIN_BYTES_MAX &&
           follows(CONTAINER_OF(item, struct exchange, item), last->conn_number, last->sequence);
}

/* Does the connection end with EXCHANGE's answer?  What has been read behind it is not to be handled. */
static void note_close(struct bridge *bridge, const struct exchange *exchange)
{
    if (exchange->reply.close)
        bridge->ended_conns[exchange->conn_number % BRIDGE_ENDED] = exchange->conn_number;
}

static bool has_ended(const struct bridge *bridge, uint64_t conn_number)
{
    return bridge->ended_conns[conn_number % BRIDGE_ENDED] == conn_number;
}

/* May EXCHANGE be written to its socket here and now?  JOINS: the chain ends with what is before it. */
static bool may_write(struct bridge *bridge, const struct exchange *exchange, bool joins)
{
    if (UNLIKELY(exchange->interim) || exchange->file.open)
        return false;
    /* The loop's next turn is ours, after all that is to be answered now: writing then, one answer after the
     * other, wakes the client once and not each time. */
    if (turn_is_lent(&bridge->loop->turn))
        return false;
    return joins || exchange->direct ||
           follows(exchange, bridge->written_conn, bridge->written_sequence);
}

static void send_whole(struct bridge *bridge, struct exchange *exchange)
{
    bool joins = !exchange->interim && joins_chain(bridge, exchange);
    if (!joins)
        write_chain(bridge);
    if (!exchange_move(exchange, EXCHANGE_RUNNING, EXCHANGE_WRITING)) {
        hand_back_exchange(bridge, exchange, false);
        return;
    }
    if (!may_write(bridge, exchange, joins)) {
        write_chain(bridge); /* what is before it */
        hand_back_exchange(bridge, exchange, true);
        return;
    }
    list_push(&bridge->chain, &exchange->item);
    bridge->chain_len++;
    if (!bridge->done.first)
        bridge->done_since_ns = now_ns();
    if (!chain_may_grow(bridge, exchange))
        write_chain(bridge);
}

static enum format_status push_piece(struct bridge *bridge, struct exchange *exchange,
                                     struct buf *bytes, uint64_t body_bytes)
{
    if (!bytes->len)
        return FORMAT_OK;
    struct piece *piece = piece_new(exchange);
    if (!piece)
        return FORMAT_NO_MEMORY;
    piece->bytes = *bytes;
    *bytes = (struct buf){0};
    piece->body_bytes = body_bytes;
    atomic_fetch_add(&exchange->unsent_bytes, piece->bytes.len);
    write_chain(bridge); /* what is before it on the same connection */
    hand_back(bridge, &piece->item, true);
    return FORMAT_OK;
}

/* A handler that asked for gzip and sends piece by piece.  Nobody else is compressed in pieces: each costs
 * some of the gain, and a proxy may hold them back. */
static enum format_status start_gzip(struct exchange *exchange)
{
    struct reply *reply = &exchange->reply;
    enum format_status status = format_vary(reply);
    if (status != FORMAT_OK || gzip_accept(&exchange->request) == GZIP_REFUSED)
        return status;
    if (!gzip_is(reply->body.data, reply->body.len) && exchange->request.method != METHOD_HEAD &&
        !(reply->gzip = gzip_new()))
        return FORMAT_NO_MEMORY;
    return format_coded(reply, NULL);
}

/* Compress what is in REPLY's body, which leaves as a piece. */
static enum format_status zip_piece(struct reply *reply, bool last)
{
    struct buf zipped = {0};
    if (!reply->body.len && !last)
        return FORMAT_OK;
    if (!gzip_piece(reply->gzip, reply->body.data, reply->body.len, last, &zipped)) {
        buf_free(&zipped);
        return FORMAT_NO_MEMORY;
    }
    buf_free(&reply->body);
    reply->body = zipped;
    return FORMAT_OK;
}

static enum format_status flush(struct bridge *bridge, struct exchange *exchange)
{
    struct reply *reply = &exchange->reply;
    struct buf out = {0};
    enum format_status status = FORMAT_OK;
    if (reply->phase == REPLY_OPEN) {
        struct format_context context = context_of(exchange);
        if (UNLIKELY(reply->gzip_asked)) {
            status = start_gzip(exchange);
            if (status != FORMAT_OK)
                return status;
        }
        status = format_stream_start(reply, &context, date(bridge));
        if (status != FORMAT_OK)
            return status;
        note_close(bridge, exchange);
        out = reply->head;
        reply->head = (struct buf){0};
        exchange->streamed_status = reply->status;
        exchange->streamed_chunked = reply->chunked;
        exchange_move(exchange, EXCHANGE_RUNNING, EXCHANGE_STREAMING);
    }
    if (bridge_live(exchange)) {
        uint64_t before = reply->body_bytes;
        if (UNLIKELY(reply->gzip != NULL))
            status = zip_piece(reply, false);
        if (status == FORMAT_OK)
            status = format_stream_piece(reply, &out);
        if (status == FORMAT_OK)
            status = push_piece(bridge, exchange, &out, reply->body_bytes - before);
    } else {
        reply->body.len = 0;
    }
    buf_free(&out);
    return status;
}

enum format_status bridge_flush(struct bridge *bridge, struct exchange *exchange)
{
    enum format_status status = flush(bridge, exchange);
    /* A part is missing, or the head: nothing may follow it. */
    if (status != FORMAT_OK)
        bridge_abort(bridge, exchange);
    return status;
}

enum format_status bridge_interim(struct bridge *bridge, struct exchange *exchange,
                                  struct buf *bytes)
{
    exchange->interim = true;
    enum format_status status = push_piece(bridge, exchange, bytes, 0);
    bridge_settle(bridge);
    return status;
}

/* The answer is whole, and gzip was asked for or may be worth it.  Small ones are compressed here; sets *LATER
 * for those that the pool is to compress. */
static enum format_status code_whole(struct exchange *exchange, bool *later)
{
    struct reply *reply = &exchange->reply;
    bool asked = reply->gzip_asked;
    if (!asked && !format_may_code(reply))
        return FORMAT_OK;
    enum format_status status = format_vary(reply);
    enum gzip_accept accept = gzip_accept(&exchange->request);
    if (status != FORMAT_OK || accept == GZIP_REFUSED || (!asked && accept == GZIP_UNSAID))
        return status;
    /* Compressed by the handler, or a HEAD by one that knows better than to make a body. */
    if (asked && (gzip_is(reply->body.data, reply->body.len) ||
                  (!reply->body.len && exchange->request.method == METHOD_HEAD)))
        return format_coded(reply, NULL);
    if (reply->body.len > LIMIT_GZIP_AT_ONCE_BYTES) {
        *later = true;
        return FORMAT_OK;
    }
    struct buf zipped = {0};
    if (!gzip_body(&reply->body, &zipped, NULL))
        status = FORMAT_NO_MEMORY;
    else if (asked || zipped.len < reply->body.len)
        status = format_coded(reply, &zipped);
    buf_free(&zipped);
    return status;
}

enum format_status bridge_finish(struct bridge *bridge, struct exchange *exchange, bool keep)
{
    struct reply *reply = &exchange->reply;
    exchange_id id = atomic_load(&exchange->id);
    enum format_status status;
    if (UNLIKELY(reply->trailers.len > 0) && reply->phase == REPLY_OPEN) {
        /* Only chunks have trailers. */
        status = bridge_flush(bridge, exchange);
        if (status != FORMAT_OK)
            return status;
    }
    if (reply->phase == REPLY_OPEN) {
        struct format_context context = context_of(exchange);
        bool later = false;
        status = FORMAT_OK;
        if (UNLIKELY(reply->gzip_asked || reply->body.len >= exchange->server->gzip_bytes_min))
            status = code_whole(exchange, &later);
        if (LIKELY(status == FORMAT_OK && !later))
            status = format_finish(reply, &context, date(bridge));
        if (status != FORMAT_OK) {
            bridge_abort(bridge, exchange);
            return status;
        }
        note_close(bridge, exchange);
        slot_release(bridge, id);
        if (keep)
            keep_request(bridge, exchange);
        if (UNLIKELY(later)) {
            exchange->to_gzip = true;
            exchange->context = context;
            write_chain(bridge);
            exchange_move(exchange, EXCHANGE_RUNNING, EXCHANGE_WRITING);
            hand_back_exchange(bridge, exchange, true);
        } else {
            send_whole(bridge, exchange);
        }
    } else {
        CHECK(reply->phase == REPLY_STREAMING);
        struct buf rest = {0};
        status = UNLIKELY(reply->gzip != NULL) ? zip_piece(reply, true) : FORMAT_OK;
        if (status == FORMAT_OK)
            status = format_stream_piece(reply, &rest);
        if (status == FORMAT_OK)
            status = format_stream_end(reply, &rest);
        buf_free(&reply->head);
        reply->head = rest;
        if (status != FORMAT_OK) {
            bridge_abort(bridge, exchange);
            return status;
        }
        note_close(bridge, exchange); /* too short for the length that it declared */
        slot_release(bridge, id);
        if (keep)
            keep_request(bridge, exchange);
        write_chain(bridge);
        exchange_move(exchange, EXCHANGE_STREAMING, EXCHANGE_WRITING);
        hand_back_exchange(bridge, exchange, true);
    }
    settle_soon(bridge);
    return FORMAT_OK;
}

void bridge_serve(struct bridge *bridge, struct exchange *exchange, uint32_t number)
{
    slot_release(bridge, atomic_load(&exchange->id));
    write_chain(bridge);
    if (exchange_move(exchange, EXCHANGE_RUNNING, EXCHANGE_WRITING))
        exchange->entry = number;
    hand_back_exchange(bridge, exchange, true);
    settle_soon(bridge);
}

enum format_status bridge_send_file(struct bridge *bridge, struct exchange *exchange,
                                    struct file_source *source)
{
    struct format_context context = context_of(exchange);
    exchange_id id = atomic_load(&exchange->id);
    if (!content_answer(exchange, source, &context, date(bridge))) {
        bridge_abort(bridge, exchange);
        return FORMAT_NO_MEMORY;
    }
    slot_release(bridge, id);
    keep_request(bridge, exchange);
    send_whole(bridge, exchange);
    settle_soon(bridge);
    return FORMAT_OK;
}

/* EXCHANGE is revoked, and no handler looks at it: nobody has a use for it any more. */
static void let_go(struct bridge *bridge, struct exchange *exchange)
{
    slot_release(bridge, atomic_load(&exchange->id));
    hand_back_exchange(bridge, exchange, false);
    settle_soon(bridge);
}

void bridge_defer(struct bridge *bridge, struct exchange *exchange)
{
    atomic_store(&exchange->deferred, true);
    if (!bridge_live(exchange))
        let_go(bridge, exchange);
}

void bridge_abort(struct bridge *bridge, struct exchange *exchange)
{
    if (exchange->channel.open) {
        static const char reason[] = "the handler failed";
        bridge_socket_close(bridge, exchange, CODE_INTERNAL, reason, sizeof reason - 1);
        bridge_defer(bridge, exchange);
        return;
    }
    int status = exchange->reply.status;
    slot_release(bridge, atomic_load(&exchange->id));
    reply_reset(&exchange->reply);
    exchange->reply.status = status;
    exchange->reply.close = true;
    exchange->reply.phase = REPLY_DONE;
    note_close(bridge, exchange);
    write_chain(bridge);
    if (!exchange_move(exchange, EXCHANGE_RUNNING, EXCHANGE_WRITING))
        exchange_move(exchange, EXCHANGE_STREAMING, EXCHANGE_WRITING);
    hand_back_exchange(bridge, exchange, true);
    settle_soon(bridge);
}

/* ---- WebSockets ---- */

/* Takes what is in BYTES. */
static bool push_socket_piece(struct bridge *bridge, struct exchange *exchange,
                              enum piece_kind kind, struct buf *bytes)
{
    struct piece *piece = piece_new(exchange);
    if (!piece)
        return false;
    piece->kind = kind;
    piece->bytes = *bytes;
    *bytes = (struct buf){0};
    atomic_fetch_add(&exchange->unsent_bytes, piece->bytes.len);
    hand_back(bridge, &piece->item, true);
    return true;
}

static void nudge(struct bridge *bridge, struct exchange *exchange)
{
    struct buf none = {0};
    push_socket_piece(bridge, exchange, PIECE_BYTES, &none);
}

enum format_status bridge_upgrade(struct bridge *bridge, struct exchange *exchange,
                                  const struct socket_options *options)
{
    struct reply *reply = &exchange->reply;
    enum format_status status = format_switch_end(reply, date(bridge));
    if (status != FORMAT_OK)
        return status;
    struct socket *socket = socket_new(exchange, options);
    struct buf head = reply->head;
    reply->head = (struct buf){0};
    write_chain(bridge);
    if (!socket || !push_socket_piece(bridge, exchange, PIECE_BYTES, &head)) {
        socket_free(socket);
        buf_free(&head);
        return FORMAT_NO_MEMORY;
    }
    exchange->channel.open = true;
    exchange->streamed_status = reply->status;
    exchange_move(exchange, EXCHANGE_RUNNING, EXCHANGE_STREAMING);
    hand_back(bridge, &socket->item, true);
    settle_soon(bridge);
    return FORMAT_OK;
}

struct buf *bridge_frame_begin(struct bridge *bridge)
{
    static const char header[FRAME_HEADER_BYTES_MAX];
    buf_reset(&bridge->frame, LIMIT_READ_BYTES);
    return buf_append(&bridge->frame, header, sizeof header, SIZE_MAX) ? &bridge->frame : NULL;
}

size_t bridge_frame_bytes(const struct bridge *bridge)
{
    return bridge->frame.len - FRAME_HEADER_BYTES_MAX;
}

/* Put the header right in front of the payload.  Returns where the frame begins. */
static size_t put_header(struct buf *frame, int opcode)
{
    char header[FRAME_HEADER_BYTES_MAX];
    size_t len = frame_header(header, opcode, false, frame->len - sizeof header);
    memcpy(frame->data + sizeof header - len, header, len);
    return sizeof header - len;
}

static void cut_front(struct buf *buf, size_t bytes)
{
    buf->len -= bytes;
    memmove(buf->data, buf->data + bytes, buf->len);
}

/* Write to the socket from here when nothing is before it.  Returns the bytes written. */
static size_t write_directly(struct bridge *bridge, struct exchange *exchange, const char *bytes,
                             size_t len)
{
    ssize_t sent = 0;
    /* NOTE socket-write. */
    if (atomic_load(&exchange->unsent_bytes) ||
        !exchange_move(exchange, EXCHANGE_STREAMING, EXCHANGE_WRITING))
        return 0;
    if (!atomic_load(&exchange->unsent_bytes) && !atomic_load(&exchange->channel.closed)) {
        do
            sent = send(exchange->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (sent < 0 && errno == EINTR);
    }
    atomic_store(&exchange->state, EXCHANGE_STREAMING);
    if (atomic_exchange(&exchange->wake_loop, false))
        nudge(bridge, exchange);
    /* A full socket, or a dead one: the loop will see which. */
    return sent < 0 ? 0 : (size_t)sent;
}

/* What is there to say of EXCHANGE after more was sent to it? */
static enum bridge_sent look_at_pressure(struct bridge *bridge, struct exchange *exchange)
{
    struct channel *channel = &exchange->channel;
    size_t unsent = atomic_load(&exchange->unsent_bytes);
    if (unsent <= channel->high_water)
        return BRIDGE_SENT;
    if (unsent > channel->unsent_max) {
        struct buf none = {0};
        channel->closing = true;
        push_socket_piece(bridge, exchange, PIECE_ABORT, &none);
        return BRIDGE_DROPPED;
    }
    /* Say first, look then, as the loop counts down first and then looks at FULL. */
    atomic_store(&channel->full, true);
    if (atomic_load(&exchange->unsent_bytes) <= channel->high_water / 2)
        atomic_store(&channel->full, false);
    return BRIDGE_FULL;
}

enum bridge_sent bridge_frame_send(struct bridge *bridge, struct exchange *exchange, int opcode)
{
    struct buf *frame = &bridge->frame;
    struct channel *channel = &exchange->channel;
    if (!bridge_socket_open(exchange))
        return BRIDGE_DROPPED;
    enum piece_kind kind = PIECE_BYTES;
    if (channel->window_bits && (opcode == FRAME_TEXT || opcode == FRAME_BINARY) &&
        bridge_frame_bytes(bridge) >= channel->compress_min) {
        kind = opcode == FRAME_TEXT ? PIECE_TEXT : PIECE_BINARY;
        cut_front(frame, FRAME_HEADER_BYTES_MAX);
    } else {
        size_t at = put_header(frame, opcode);
        size_t sent = write_directly(bridge, exchange, frame->data + at, frame->len - at);
        if (sent == frame->len - at) {
            if (!bridge->depth)
                bridge_settle(bridge);
            return BRIDGE_SENT;
        }
        cut_front(frame, at + sent);
    }
    bool ok = push_socket_piece(bridge, exchange, kind, frame);
    enum bridge_sent result = ok ? look_at_pressure(bridge, exchange) : BRIDGE_NO_MEMORY;
    bridge_settle(bridge);
    return result;
}

struct shared *bridge_frame_share(struct bridge *bridge, int opcode)
{
    cut_front(&bridge->frame, put_header(&bridge->frame, opcode));
    return shared_new(&bridge->frame);
}

enum bridge_sent bridge_shared_send(struct bridge *bridge, struct exchange *exchange,
                                    struct shared *shared)
{
    if (!bridge_socket_open(exchange))
        return BRIDGE_DROPPED;
    struct piece *piece = piece_new_shared(exchange, shared);
    if (!piece)
        return BRIDGE_NO_MEMORY;
    atomic_fetch_add(&exchange->unsent_bytes, piece->bytes.len);
    hand_back(bridge, &piece->item, true);
    return look_at_pressure(bridge, exchange);
}

bool bridge_socket_close(struct bridge *bridge, struct exchange *exchange, int code,
                         const char *reason, size_t len)
{
    struct buf payload = {0};
    char bytes[2] = {(char)(code >> 8), (char)(code & 0xFF)};
    if (!bridge_socket_open(exchange))
        return false;
    if (code != CODE_NONE) {
        if (len > FRAME_CONTROL_BYTES_MAX - sizeof bytes)
            len = FRAME_CONTROL_BYTES_MAX - sizeof bytes;
        buf_append(&payload, bytes, sizeof bytes, SIZE_MAX);
        buf_append(&payload, reason, len, SIZE_MAX);
    }
    exchange->channel.closing = true;
    push_socket_piece(bridge, exchange, PIECE_CLOSE, &payload);
    bridge_settle(bridge);
    return true;
}

/* Lisp has taken LEN bytes from EXCHANGE: the loop may read again. */
static void count_taken(struct bridge *bridge, struct exchange *exchange, size_t len)
{
    struct channel *channel = &exchange->channel;
    size_t bytes = len + LIMIT_WAIT_EXTRA_BYTES;
    size_t left = atomic_fetch_sub(&channel->wait_bytes, bytes) - bytes;
    size_t enough = exchange->request.body_streams ? LIMIT_WAIT_BYTES / 8 : LIMIT_WAIT_BYTES / 2;
    if (left <= enough && atomic_load(&channel->paused) && atomic_exchange(&channel->paused, false))
        nudge(bridge, exchange);
}

void bridge_body_taken(struct bridge *bridge, struct exchange *exchange, size_t len)
{
    count_taken(bridge, exchange, len);
    if (!bridge->depth)
        bridge_settle(bridge);
}

void bridge_own(struct bridge *bridge, struct exchange *exchange)
{
    atomic_store(&exchange->owned, true);
    nudge(bridge, exchange); /* it may not be read from */
    bridge_settle(bridge);
}

bool bridge_watch(struct bridge *bridge, struct relay *relay)
{
    if (!bridge->loop)
        return false;
    if (!relay->watched) {
        relay->watched = true;
        hand_back(bridge, &relay->item, true);
        bridge_settle(bridge);
    }
    return true;
}

/* ---- a drain ---- */

bool bridge_begin(struct bridge *bridge, uint64_t budget_us)
{
    if (bridge->depth >= BRIDGE_DEPTH_MAX) {
        bridge->unheard = true;
        return false;
    }
    bridge->depth++;
    bridge->deadline_ns = now_ns() + budget_us * 1000;
    bridge->given_ns = 0;
    if (bridge->loop)
        bell_answer(&bridge->loop->hub.bell);
    bridge_settle(bridge);
    return true;
}

/* False for a request that the loop has answered itself meanwhile. */
static bool take_request(struct bridge *bridge, struct exchange *exchange)
{
    atomic_fetch_sub(&exchange->server->queued_count, 1);
    if (!exchange_move(exchange, EXCHANGE_QUEUED, EXCHANGE_RUNNING)) {
        hand_back_exchange(bridge, exchange, false);
        return false;
    }
    /* No handler runs for what is behind the end of its connection (RFC 9112 section 9.6). */
    if (!has_ended(bridge, exchange->conn_number) && slot_take(bridge, exchange)) {
        if (exchange->request.body_streams)
            nudge(bridge, exchange); /* the loop knows its id now */
        return true;
    }
    /* Or out of memory: this client gets no answer, the others do. */
    exchange->reply.close = true;
    exchange_move(exchange, EXCHANGE_RUNNING, EXCHANGE_WRITING);
    hand_back_exchange(bridge, exchange, true);
    return false;
}

/* Let the loop know how the drain gets on: see hub.c. */
static void report(struct bridge *bridge)
{
    struct hub *hub = &bridge->loop->hub;
    bool backlog = bridge->todo.first != NULL;
    unsigned taken = atomic_load_explicit(&hub->taken_count, memory_order_relaxed);
    atomic_store_explicit(&hub->taken_count, taken + 1, memory_order_relaxed);
    if (atomic_load_explicit(&hub->backlog, memory_order_relaxed) != backlog)
        atomic_store(&hub->backlog, backlog);
}

/* In place of a notice that was lost.  False when there is none to be made up for. */
static bool find_revoked(struct bridge *bridge, struct bridge_event *event)
{
    for (uint32_t i = 1; i < bridge->slots_len; i++) {
        struct exchange *exchange = bridge->slots[i].exchange;
        if (!exchange || bridge_live(exchange) || !atomic_load(&exchange->deferred))
            continue;
        event->kind = BRIDGE_CLOSED;
        event->id = atomic_load(&exchange->id);
        let_go(bridge, exchange);
        /* There may be more. */
        atomic_store(&bridge->loop->hub.notice_lost, true);
        return true;
    }
    return false;
}

/* The next of what was taken that can be dealt with now, or NULL. */
static struct item *next_item(struct bridge *bridge)
{
    bool room = hub_has_room(&bridge->loop->hub);
    if (UNLIKELY(bridge->waiting.first != NULL) && room)
        return list_pop(&bridge->waiting);
    for (struct item *item; (item = list_pop(&bridge->todo));) {
        report(bridge);
        if (LIKELY(room) || item->kind != ITEM_REQUEST)
            return item;
        list_push(&bridge->waiting, item);
    }
    return NULL;
}

/* Do requests wait for room that is there now?  If there is none, the loop will ring. */
static bool may_go_on(struct bridge *bridge)
{
    struct hub *hub = &bridge->loop->hub;
    if (LIKELY(!bridge->waiting.first))
        return false;
    /* Say first, look then: the loop counts down first, and looks at WANTS_ROOM then. */
    atomic_store(&hub->wants_room, true);
    return hub_has_room(hub);
}

/* All that was taken is dealt with.  False when nothing more has come. */
static bool look_for_more(struct bridge *bridge)
{
    struct loop *loop = bridge->loop;
    if (!queue_filled(&loop->hub.inbox)) {
        bridge_settle(bridge);
        loop_turn(loop);
    }
    bridge->todo = queue_take(&loop->hub.inbox);
    if (!bridge->todo.first)
        return false;
    /* What comes next may be read here. */
    turn_want(&loop->turn);
    return true;
}

/* Say in EVENT what ITEM, which is taken, is about.  False when it concerns nobody any more. */
static bool tell(struct bridge *bridge, struct item *item, struct bridge_event *event)
{
    if (item->kind == ITEM_REQUEST) {
        struct exchange *exchange = CONTAINER_OF(item, struct exchange, item);
        if (!take_request(bridge, exchange))
            return false;
        event->kind = BRIDGE_REQUEST;
        event->exchange = exchange;
        event->id = atomic_load(&exchange->id);
        bridge->kept[bridge->depth].running = event->id;
    } else if (item->kind == ITEM_CLOSED) {
        struct notice *notice = CONTAINER_OF(item, struct notice, item);
        event->kind = notice->code ? BRIDGE_SOCKET_CLOSED : BRIDGE_CLOSED;
        event->id = notice->id;
        event->notice = notice;
        if (!notice->code)
            free(notice);
        /* One whose handler still runs is let go when that returns. */
        struct exchange *exchange = bridge_find(bridge, event->id);
        if (exchange && atomic_load(&exchange->deferred))
            let_go(bridge, exchange);
    } else if (item->kind == ITEM_LOG) {
        struct log_batch *batch = CONTAINER_OF(item, struct log_batch, item);
        struct server *server = bridge->servers[batch->id];
        event->kind = BRIDGE_LOG;
        event->id = batch->id;
        event->lines = batch->lines;
        batch->lines = (struct buf){0};
        log_batch_free(batch);
        if (server)
            atomic_store(&server->log->taken, true);
    } else if (item->kind == ITEM_MESSAGE) {
        struct message *message = CONTAINER_OF(item, struct message, item);
        struct exchange *exchange = bridge_find(bridge, message->id);
        /* Pieces of a body are counted when they are dealt with. */
        if (exchange && !exchange->request.body_streams)
            count_taken(bridge, exchange, message->bytes.len);
        if (!exchange || exchange->channel.closing) {
            message_free(message);
            return false;
        }
        event->kind = BRIDGE_MESSAGE;
        event->id = message->id;
        event->message = message;
    } else if (item->kind == ITEM_RELAY) {
        struct relay *relay = CONTAINER_OF(item, struct relay, item);
        event->id = (exchange_id)relay->number;
        if (!relay_returned(&bridge->relays, relay))
            return false;
        event->kind = BRIDGE_RELAY;
    } else if (item->kind == ITEM_DRAINED) {
        struct notice *notice = CONTAINER_OF(item, struct notice, item);
        event->kind = BRIDGE_DRAINED;
        event->id = notice->id;
        free(notice);
    } else {
        struct server *server = CONTAINER_OF(item, struct server, item);
        CHECK(item->kind == ITEM_SERVER_GONE);
        event->kind = BRIDGE_SERVER_GONE;
        event->id = server->number;
        bridge->servers[server->number] = NULL;
        entry_clear(server);
        server_free(server);
    }
    return true;
}

/* Take the next event of what has come until NOW. */
static void take_until(struct bridge *bridge, struct bridge_event *event, uint64_t now)
{
    if (UNLIKELY(atomic_load_explicit(&bridge->loop->hub.notice_lost, memory_order_relaxed))) {
        atomic_store(&bridge->loop->hub.notice_lost, false);
        if (find_revoked(bridge, event))
            return;
    }
    if (!bridge->todo.first && !may_go_on(bridge)) {
        if (!look_for_more(bridge))
            return;
        now = now_ns();
    }
    for (struct item *item; (item = next_item(bridge));) {
        if (!tell(bridge, item, event))
            continue;
        bridge->given_ns = now;
        return;
    }
}

void bridge_take(struct bridge *bridge, struct bridge_event *event)
{
    event->kind = BRIDGE_NOTHING;
    kept_release(bridge, bridge->depth);
    if (!bridge->loop)
        return;
    uint64_t now = now_ns();
    if ((bridge->done.first || bridge->chain.first) && now - bridge->done_since_ns > HOLD_NS)
        bridge_settle(bridge);
    if (bridge->given_ns)
        turn_worked(&bridge->loop->turn, now - bridge->given_ns);
    bridge->given_ns = 0;
    if (now <= bridge->deadline_ns)
        take_until(bridge, event, now);
}

bool bridge_end(struct bridge *bridge)
{
    CHECK(bridge->depth > 0);
    kept_release(bridge, bridge->depth);
    bridge->depth--;
    if (!bridge->loop)
        return false;
    bridge_settle(bridge);
    /* The byte was read: left at RUNG, the bell would never ring again. */
    if (bridge->unheard)
        bell_answer(&bridge->loop->hub.bell);
    bridge->unheard = false;
    if (bridge->todo.first)
        return true; /* If the keyboard takes long the thread will notice. */
    turn_return(&bridge->loop->turn);
    bell_rest(&bridge->loop->hub.bell);
    return queue_filled(&bridge->loop->hub.inbox) || may_go_on(bridge);
}

bool bridge_linger(struct bridge *bridge, uint64_t usec)
{
    if (!bridge->loop)
        return false;
    bridge_settle(bridge);
    uint64_t end = now_ns() + usec * 1000;
    if (end > bridge->deadline_ns)
        end = bridge->deadline_ns;
    while (now_ns() < end) {
        if (queue_filled(&bridge->loop->hub.inbox))
            return true;
        if (!loop_turn(bridge->loop) || !queue_filled(&bridge->loop->hub.inbox))
            sched_yield();
    }
    return false;
}

/* ---- start and stop ---- */

int bridge_start(struct bridge *bridge, int bell_fd)
{
    int error;
    bridge->loop = loop_start(bell_fd, &error);
    return bridge->loop ? 0 : error;
}

void bridge_set_bell(struct bridge *bridge, int fd)
{
    struct bell *bell = &bridge->loop->hub.bell;
    if (bell->emacs_fd >= 0)
        close(bell->emacs_fd);
    bell->emacs_fd = fd;
}

bool bridge_listen(struct bridge *bridge, struct server *server)
{
    for (uint32_t number = 0; number < ARRAY_LEN(bridge->servers); number++) {
        if (bridge->servers[number])
            continue;
        bridge->servers[number] = server;
        server->number = number;
        loop_listen(bridge->loop, server);
        return true;
    }
    return false;
}

bool bridge_log(struct bridge *bridge, struct server *server, struct buf *lines)
{
    struct log_batch *batch = server->log && bridge->loop ? log_batch_new(server->number) : NULL;
    if (!batch)
        return false;
    batch->lines = *lines;
    *lines = (struct buf){0};
    hand_back(bridge, &batch->item, true);
    settle_soon(bridge);
    return true;
}

static void drop(struct item *item)
{
    if (item->kind == ITEM_REQUEST || item->kind == ITEM_ANSWER)
        exchange_free(CONTAINER_OF(item, struct exchange, item));
    else if (item->kind == ITEM_PIECE)
        piece_free(CONTAINER_OF(item, struct piece, item));
    else if (item->kind == ITEM_CLOSED || item->kind == ITEM_DRAINED)
        free(CONTAINER_OF(item, struct notice, item));
    else if (item->kind == ITEM_LOG)
        log_batch_free(CONTAINER_OF(item, struct log_batch, item));
    else if (item->kind == ITEM_MESSAGE)
        message_free(CONTAINER_OF(item, struct message, item));
    else if (item->kind == ITEM_SOCKET)
        socket_free(CONTAINER_OF(item, struct socket, item));
    else if (item->kind == ITEM_FILES) {
        struct leavings *leavings = CONTAINER_OF(item, struct leavings, item);
        request_clear(&leavings->request);
        free(leavings);
    } else if (item->kind == ITEM_ENTRY || item->kind == ITEM_RELOAD) {
        struct command *command = CONTAINER_OF(item, struct command, item);
        entry_release(command->entry);
        free(command);
    }
    /* A server is in bridge->servers too, a relay in bridge->relays. */
}

void bridge_stop(struct bridge *bridge, unsigned timeout_ms)
{
    struct loop *loop = bridge->loop;
    if (!loop)
        return;
    bridge_settle(bridge);
    bridge_set_bell(bridge, -1);
    bridge->loop = NULL;
    bool ended = loop_stop(loop, timeout_ms);
    if (ended) {
        struct item_list inbox = queue_take(&loop->hub.inbox);
        struct item_list outbox = queue_take(&loop->hub.outbox);
        list_join(&bridge->todo, &bridge->waiting);
        list_join(&bridge->todo, &inbox);
        list_join(&bridge->todo, &outbox);
        for (struct item *item; (item = list_pop(&bridge->todo));)
            drop(item);
        for (uint32_t i = 0; i < bridge->slots_len; i++)
            if (bridge->slots[i].exchange)
                exchange_free(bridge->slots[i].exchange);
        for (uint32_t i = 0; i < ARRAY_LEN(bridge->servers); i++)
            if (bridge->servers[i]) {
                entry_clear(bridge->servers[i]);
                server_free(bridge->servers[i]);
            }
        relay_recall(&bridge->relays);
        loop_free(loop);
    }
    /* A drain may be under way below us, and the slots' generations must not repeat: Lisp may still hold
     * ids of before.  Everything else starts anew. */
    for (uint32_t depth = 0; depth <= BRIDGE_DEPTH_MAX; depth++)
        request_clear(&bridge->kept[depth].request);
    buf_free(&bridge->frame);
    struct bridge fresh = {.depth = bridge->depth,
                           .slots = bridge->slots,
                           .slots_len = bridge->slots_len,
                           .slots_capacity = bridge->slots_capacity,
                           .relays = bridge->relays};
    for (uint32_t i = 1; i < fresh.slots_len; i++) {
        fresh.slots[i].exchange = NULL;
        fresh.slots[i].next_free = fresh.first_free;
        fresh.first_free = i;
    }
    *bridge = fresh;
}
