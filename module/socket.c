/* socket.c - a connection that became a WebSocket.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "socket.h"

#include "deflate.h"

#include <stdlib.h>

struct socket *socket_new(struct exchange *exchange, const struct socket_options *options)
{
    struct socket *socket = calloc(1, sizeof *socket);
    if (socket) {
        socket->item.kind = ITEM_SOCKET;
        socket->exchange = exchange;
        socket->options = *options;
        socket->frames.message_bytes_max = options->message_bytes_max;
        socket->frames.no_text = options->no_text;
        socket->frames.no_binary = options->no_binary;
        socket->frames.deflate = options->deflate;
    }
    return socket;
}

void socket_free(struct socket *socket)
{
    if (!socket)
        return;
    frames_free(&socket->frames);
    free(socket);
}

void socket_start(struct socket *socket, struct hub *hub)
{
    frames_init(&socket->frames, &hub->frames);
    if (socket->options.ping_interval_ms)
        hub_tick_within(hub, socket->options.ping_interval_ms);
}

/* ---- sending ---- */

/* Takes PIECE; UNSENT_BYTES counts it already.  Small ones that have to wait become one: a client that sends
 * pings or messages and reads nothing would else cost a hundred times the bytes that are counted. */
static void append(struct socket *socket, struct piece *piece)
{
    struct item_list *pieces = &socket->exchange->pieces;
    struct piece *last = pieces->last ? CONTAINER_OF(pieces->last, struct piece, item) : NULL;
    if (last && !last->shared && !piece->shared && piece->bytes.len < LIMIT_JOIN_BYTES / 4 &&
        buf_append(&last->bytes, piece->bytes.data, piece->bytes.len, LIMIT_JOIN_BYTES)) {
        last->body_bytes += piece->body_bytes;
        piece_free(piece);
    } else {
        list_push(pieces, &piece->item);
    }
}

/* A frame by the loop itself. */
static void send_control(struct socket *socket, int opcode, const char *payload, size_t len)
{
    char header[FRAME_HEADER_BYTES_MAX];
    size_t header_len = frame_header(header, opcode, false, len);
    struct piece *piece = piece_new(socket->exchange);
    if (!piece)
        return;
    if (!buf_append(&piece->bytes, header, header_len, header_len + len) ||
        !buf_append(&piece->bytes, payload, len, header_len + len)) {
        piece_free(piece);
        return;
    }
    atomic_fetch_add(&socket->exchange->unsent_bytes, piece->bytes.len);
    append(socket, piece);
}

static void send_close(struct socket *socket, struct hub *hub, const char *payload, size_t len)
{
    /* Before the bytes are counted: NOTE socket-write. */
    atomic_store(&socket->exchange->channel.closed, true);
    socket->close_ms = hub_now(hub);
    send_control(socket, FRAME_CLOSE, payload, len);
}

static size_t close_payload(char *payload, int code, const char *reason, size_t len)
{
    if (code == CODE_NONE)
        return 0;
    payload[0] = (char)(code >> 8);
    payload[1] = (char)(code & 0xFF);
    memcpy(payload + 2, reason, len);
    return len + 2;
}

static void remember(struct socket *socket, int code, const char *reason, size_t len)
{
    socket->code = code;
    socket->reason_len = len;
    memcpy(socket->reason, reason, len);
}

void socket_close(struct socket *socket, struct hub *hub, int code, const char *reason)
{
    char payload[FRAME_CONTROL_BYTES_MAX];
    if (socket->phase != SOCKET_OPEN)
        return;
    socket->phase = SOCKET_CLOSING;
    send_close(socket, hub, payload, close_payload(payload, code, reason, strlen(reason)));
    hub_tick_within(hub, socket->options.close_timeout_ms);
}

static void count_out(struct socket *socket, struct piece *piece)
{
    atomic_fetch_sub(&socket->exchange->unsent_bytes, piece->bytes.len);
}

/* There is no use in sending what is left: it ends now. */
static void give_up(struct socket *socket, const char *reason)
{
    if (!socket->code)
        remember(socket, CODE_ABNORMAL, reason, strlen(reason));
    socket->phase = SOCKET_OVER;
    struct exchange *exchange = socket->exchange;
    size_t sent = exchange->pieces.first ? exchange->written : 0; /* of the first, and counted */
    for (struct item *item; (item = list_pop(&exchange->pieces)); sent = 0) {
        struct piece *piece = CONTAINER_OF(item, struct piece, item);
        atomic_fetch_sub(&exchange->unsent_bytes, piece->bytes.len - sent);
        piece_free(piece);
    }
    exchange->written = 0;
}

/* PIECE is a message in the clear: compress and frame it. */
static bool compress(struct socket *socket, struct hub *hub, struct piece *piece)
{
    struct buf out = {0};
    int opcode = piece->kind == PIECE_TEXT ? FRAME_TEXT : FRAME_BINARY;
    char header[FRAME_HEADER_BYTES_MAX] = {0};
    if (!buf_append(&out, header, sizeof header, SIZE_MAX) ||
        !deflate_message(&hub->deflater, socket->exchange->channel.window_bits, piece->bytes.data,
                         piece->bytes.len, &out)) {
        buf_free(&out);
        return false;
    }
    size_t len = out.len - sizeof header;
    size_t header_len = frame_header(header, opcode, true, len);
    memcpy(out.data, header, header_len);
    memmove(out.data + header_len, out.data + sizeof header, len);
    out.len = header_len + len;
    /* Never at 0 between: that would let Emacs write. */
    atomic_fetch_add(&socket->exchange->unsent_bytes, out.len);
    count_out(socket, piece);
    buf_free(&piece->bytes);
    piece->bytes = out;
    return true;
}

void socket_piece(struct socket *socket, struct hub *hub, struct piece *piece)
{
    switch (piece->kind) {
    case PIECE_TEXT:
    case PIECE_BINARY:
        if (socket->phase == SOCKET_OPEN && compress(socket, hub, piece)) {
            append(socket, piece);
            return;
        }
        break;
    case PIECE_BYTES:
        /* Nothing leaves behind a close frame (section 5.5.1). */
        if (piece->bytes.len && socket->phase == SOCKET_OPEN) {
            append(socket, piece);
            return;
        }
        break;
    case PIECE_CLOSE:
        if (socket->phase == SOCKET_OPEN) {
            socket->phase = SOCKET_CLOSING;
            send_close(socket, hub, piece->bytes.data, piece->bytes.len);
            hub_tick_within(hub, socket->options.close_timeout_ms);
        }
        break;
    case PIECE_ABORT:
        give_up(socket, "the client reads too slowly");
        break;
    }
    count_out(socket, piece);
    piece_free(piece);
}

bool socket_may_write(struct socket *socket)
{
    struct exchange *exchange = socket->exchange;
    if (exchange_state(exchange) != EXCHANGE_WRITING)
        return true;
    atomic_store(&exchange->wake_loop, true);
    return exchange_state(exchange) != EXCHANGE_WRITING;
}

void socket_sent(struct socket *socket, struct hub *hub)
{
    struct exchange *exchange = socket->exchange;
    struct channel *channel = &exchange->channel;
    if (socket->ping_waits && !exchange->pieces.first) {
        socket->ping_waits = false;
        if (socket->ping_ms)
            socket->ping_ms = hub_now(hub);
        hub_tick_within(hub, socket->options.ping_timeout_ms);
    }
    if (!atomic_load(&channel->full) ||
        atomic_load(&exchange->unsent_bytes) > channel->high_water / 2 ||
        !atomic_exchange(&channel->full, false))
        return;
    struct notice *notice = calloc(1, sizeof *notice);
    if (!notice)
        return;
    notice->item.kind = ITEM_DRAINED;
    notice->id = atomic_load(&exchange->id);
    hub_notify(hub, &notice->item);
}

/* ---- receiving ---- */

static void deliver(struct socket *socket, struct hub *hub, int opcode, struct buf *bytes)
{
    struct message *message = calloc(1, sizeof *message);
    if (!message) {
        socket_close(socket, hub, CODE_INTERNAL, "memory is exhausted");
        return;
    }
    message->item.kind = ITEM_MESSAGE;
    message->id = atomic_load(&socket->exchange->id);
    message->opcode = opcode;
    message->bytes = *bytes;
    *bytes = (struct buf){0};
    atomic_fetch_add(&socket->exchange->channel.wait_bytes,
                     message->bytes.len + LIMIT_WAIT_EXTRA_BYTES);
    hub_notify(hub, &message->item);
}

static void on_pong(struct socket *socket, struct hub *hub)
{
    struct frames *frames = &socket->frames;
    struct buf bytes = {0};
    if (socket->options.pongs &&
        buf_append(&bytes, frames->control, frames->control_len, frames->control_len))
        deliver(socket, hub, FRAME_PONG, &bytes);
}

static void on_close(struct socket *socket, struct hub *hub)
{
    struct frames *frames = &socket->frames;
    remember(socket, frames->code, frames->control, frames->control_len);
    if (socket->phase == SOCKET_OPEN) {
        char payload[FRAME_CONTROL_BYTES_MAX];
        send_close(socket, hub, payload, close_payload(payload, frames->code, "", 0));
    }
    socket->phase = SOCKET_OVER;
}

static void on_failed(struct socket *socket, struct hub *hub)
{
    struct frames *frames = &socket->frames;
    remember(socket, frames->code, frames->reason, strlen(frames->reason));
    socket_close(socket, hub, frames->code, frames->reason);
    socket->failed = true;
    socket->phase = SOCKET_OVER;
}

void socket_feed(struct socket *socket, struct hub *hub, const char *bytes, size_t len)
{
    socket->ping_ms = 0;
    if (socket->phase == SOCKET_OVER)
        return;
    struct frames *frames = &socket->frames;
    if (!frames_feed(frames, bytes, len)) {
        socket_close(socket, hub, CODE_INTERNAL, "memory is exhausted");
        socket->phase = SOCKET_OVER;
        return;
    }
    for (enum frame_event event; (event = frames_next(frames));) {
        switch (event) {
        case FRAME_EVENT_MESSAGE:
            /* After our close frame nobody listens any more. */
            if (socket->phase == SOCKET_OPEN)
                deliver(socket, hub, frames->opcode, &frames->message);
            break;
        case FRAME_EVENT_PING:
            if (socket->phase == SOCKET_OPEN)
                send_control(socket, FRAME_PONG, frames->control, frames->control_len);
            break;
        case FRAME_EVENT_PONG:
            on_pong(socket, hub);
            break;
        case FRAME_EVENT_CLOSE:
            on_close(socket, hub);
            return;
        case FRAME_EVENT_FAILED:
            on_failed(socket, hub);
            return;
        case FRAME_EVENT_MORE:
            return;
        }
    }
}

bool socket_wants_reading(struct socket *socket)
{
    struct channel *channel = &socket->exchange->channel;
    if (socket->phase == SOCKET_OVER)
        return false;
    /* A client whose pings pile up unread by itself gets no more pongs either. */
    if (atomic_load(&socket->exchange->unsent_bytes) > channel->unsent_max)
        return false;
    return socket->phase == SOCKET_CLOSING || channel_has_room(channel, LIMIT_WAIT_BYTES);
}

/* ---- time and end ---- */

static uint64_t left(uint64_t now, uint64_t start, uint32_t limit_ms)
{
    uint64_t due = start + limit_ms;
    return due > now ? due - now : 0;
}

uint64_t socket_check(struct socket *socket, struct hub *hub, uint64_t read_ms)
{
    struct socket_options *options = &socket->options;
    uint64_t now = hub_now(hub);
    uint64_t rest = UINT64_MAX;
    if (socket->phase == SOCKET_CLOSING) {
        rest = left(now, socket->close_ms, options->close_timeout_ms);
        if (rest == 0)
            give_up(socket, "no answer to the close frame");
    } else if (socket->phase == SOCKET_OPEN && options->ping_interval_ms &&
               !atomic_load(&socket->exchange->channel.paused)) {
        if (socket->ping_ms) {
            /* One that reads nothing is found by the timeout for writing. */
            if (socket->ping_waits)
                return rest;
            rest = left(now, socket->ping_ms, options->ping_timeout_ms);
            if (rest == 0)
                give_up(socket, "no answer to a ping");
            return rest;
        }
        rest = left(now, read_ms, options->ping_interval_ms);
        if (rest == 0) {
            send_control(socket, FRAME_PING, "", 0);
            socket->ping_ms = now;
            socket->ping_waits = true;
            rest = options->ping_timeout_ms;
        }
    }
    return rest;
}

struct notice *socket_notice(struct socket *socket)
{
    struct notice *notice = calloc(1, sizeof *notice + socket->reason_len);
    if (!notice)
        return NULL;
    notice->item.kind = ITEM_CLOSED;
    notice->id = atomic_load(&socket->exchange->id);
    notice->code = socket->code ? socket->code : CODE_ABNORMAL;
    notice->reason_len = socket->reason_len;
    memcpy(notice->reason, socket->reason, socket->reason_len);
    return notice;
}
