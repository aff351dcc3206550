/* conn.c - one connection: read, keep answers in order, write, time out, close.
 *
 * Every entry point (socket ready, answer, piece, timeout, stop) does its part and ends in settle(),
 * which alone decides what happens next: write, read, wait, or close.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "conn.h"

#include "gzip.h"
#include "static.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* How long a closed connection is read on, and how long a client that sends no more may
 * hold an endless answer. */
#define LINGER_MS 2000

/* How long an event stream waits for its client to refuse a comment, after the client said that it
 * sends no more. */
#define PROBE_MS 100

#define IOVEC_MAX 64

/* So many chunks of a file (see static_send) leave for one client before it is the others' turn. */
#define FILE_CHUNKS_MAX 4

static void settle(struct conn *conn);
static void write_out(struct conn *conn);

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    CHECK(!conn->first && !conn->current);
    atomic_fetch_sub(&conn->hub->conns_live, 1);
    socket_free(conn->socket);
    buf_free(&conn->stash);
    free(conn->proxy);
    free(conn);
}

static void set_held(struct conn *conn, size_t bytes)
{
    /* Both threads look at it all the time, so it is left alone while nothing changes. */
    if (LIKELY(bytes == conn->held_bytes))
        return;
    atomic_fetch_add(&conn->hub->held_bytes, bytes - conn->held_bytes);
    conn->held_bytes = bytes;
}

static void drop_intake(struct conn *conn)
{
    intake_free(conn->intake);
    conn->intake = NULL;
    conn->storing = false;
}

/* Take the socket away.  Only when Emacs cannot touch it any more. */
static void destroy(struct conn *conn)
{
    struct hub *hub = conn->hub;
    struct server *server = conn->server;
    CHECK(!conn->first);
    drop_intake(conn);
    set_held(conn, 0);
    if (conn->current) {
        hub_recycle(hub, conn->current);
        conn->current = NULL;
    }
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        hub->conns = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    hub->conns_count--;
    server->open_count--;
    atomic_store(&server->connections, server->open_count);
    conn->server = NULL;
    uv_close((uv_handle_t *)&conn->poll, on_closed);
    close(conn->fd);
    conn->fd = -1;
    /* A listener may wait for room, or a stop for the last connection. */
    if (!server->accepting || server->phase == SERVER_STOPPING)
        hub_tick_within(hub, 0);
}

static void drop_pieces(struct exchange *exchange)
{
    size_t sent = exchange->pieces.first ? exchange->written : 0;
    for (struct item *item; (item = list_pop(&exchange->pieces)); sent = 0) {
        struct piece *piece = CONTAINER_OF(item, struct piece, item);
        /* Others may be on their way in the outbox: this is not all there is. */
        atomic_fetch_sub(&exchange->unsent_bytes, piece->bytes.len - sent);
        piece_free(piece);
    }
}

/* Take the first outstanding answer off the list.  Recycle it, unless Emacs still has it: then
 * that happens at the hand-back. */
static struct exchange *pop_first(struct conn *conn)
{
    struct exchange *exchange = conn->first;
    conn->first = exchange->next_on_conn;
    if (!conn->first)
        conn->last = NULL;
    conn->outstanding--;
    exchange->next_on_conn = NULL;
    exchange->conn = NULL;
    if (conn->streaming == exchange)
        conn->streaming = NULL;
    drop_pieces(exchange);
    return exchange;
}

static void recycle_if_ours(struct hub *hub, struct exchange *exchange)
{
    if (UNLIKELY(exchange->parked))
        return; /* conn_unpark recycles it */
    if (UNLIKELY(exchange->zipping))
        atomic_store(&exchange->zip_dropped, true); /* on_zipped recycles it */
    else if (exchange_state(exchange) == EXCHANGE_LOOP)
        hub_recycle(hub, exchange);
}

/* EXCHANGE's answer is out, or will never be: its line for the log.  STATUS 0: the client got none. */
static void log_answer(struct conn *conn, struct exchange *exchange, int status,
                       uint64_t body_bytes)
{
    struct log *log = conn->server->log;
    struct log_entry *entry = exchange->log;
    uint64_t now = hub_now(conn->hub);
    uint64_t start = exchange->delivered_ms ? exchange->delivered_ms : conn->read_ms;
    exchange->log = NULL;
    if (!entry && !exchange->delivered_ms)
        entry = log_begin(log, &exchange->request, &conn->peer.address.sa);
    log_end(log, entry, status, body_bytes, now - start, now);
    hub_tick_within(conn->hub, LOG_BATCH_MS);
}

/* The line for an answer that its client did not get, or not all of.  BEFORE was EXCHANGE's state when it
 * was taken back. */
static void log_cut(struct conn *conn, struct exchange *exchange, int before)
{
    int status = 0;
    uint64_t bytes = exchange->streamed_bytes;
    if (before == EXCHANGE_STREAMING) {
        status = exchange->streamed_status;
    } else if (before == EXCHANGE_LOOP || before == EXCHANGE_WRITTEN) {
        status = exchange->written || bytes ? exchange->reply.status : 0;
        bytes += exchange->written + exchange->file.sent;
    }
    log_answer(conn, exchange, status, bytes);
}

/* The WebSocket, while it goes on. */
static struct socket *socket_of(struct conn *conn)
{
    return conn->dead || conn->lingering ? NULL : conn->socket;
}

/* Emacs cannot use EXCHANGE any more: say so. */
static void notify_closed(struct hub *hub, struct exchange *exchange)
{
    struct socket *socket = exchange->conn ? exchange->conn->socket : NULL;
    struct notice *notice = socket && socket->exchange == exchange ? socket_notice(socket)
                                                                   : calloc(1, sizeof *notice);
    if (!notice) {
        atomic_store(&hub->notice_lost, true);
        bell_ring_from_loop(&hub->bell, false);
        return;
    }
    notice->item.kind = ITEM_CLOSED;
    notice->id = atomic_load(&exchange->id);
    hub_notify(hub, &notice->item);
}

/* Take EXCHANGE's answer out of Emacs's hands.  False when Emacs is writing it to the socket. */
static bool take_back(struct hub *hub, struct exchange *exchange)
{
    if (exchange_move(exchange, EXCHANGE_QUEUED, EXCHANGE_REVOKED)) {
        /* It stays in the inbox until Lisp comes by, and counts, or clients that come and go while
         * Emacs is busy would fill the memory.  But nobody will look at its body. */
        buf_reset(&exchange->request.body, 0);
        spool_discard_files(hub, &exchange->request);
        return true;
    }
    if (!exchange_move(exchange, EXCHANGE_RUNNING, EXCHANGE_REVOKED) &&
        !exchange_move(exchange, EXCHANGE_STREAMING, EXCHANGE_REVOKED)) {
        if (exchange_state(exchange) != EXCHANGE_WRITING)
            return true;
        /* A WebSocket's goes back to STREAMING: NOTE socket-write. */
        atomic_store(&exchange->wake_loop, true);
        if (!exchange_move(exchange, EXCHANGE_STREAMING, EXCHANGE_REVOKED))
            return exchange_state(exchange) != EXCHANGE_WRITING;
    }
    notify_closed(hub, exchange);
    return true;
}

/* Nothing goes in or out any more.  What Emacs has is revoked; where it is just now writing, the socket
 * stays open until the hand-back. */
static void die(struct conn *conn)
{
    conn->dead = true;
    conn->want_write = false;
    drop_intake(conn);
    while (conn->first) {
        int before = exchange_state(conn->first);
        if (!take_back(conn->hub, conn->first))
            break;
        struct exchange *exchange = pop_first(conn);
        if (log_wants(conn->server->log))
            log_cut(conn, exchange, before);
        recycle_if_ours(conn->hub, exchange);
    }
}

/* All answers are out, or will never be: close in a way that lets the client read the last one.  With
 * bytes unread a plain close would send a reset, and that may overtake the answer
 * (RFC 9112 section 9.6).  If one was ANSWERED just now, more may be on its way. */
static void end(struct conn *conn, bool answered)
{
    die(conn);
    if (conn->first)
        return;
    conn->dead = false;
    char byte;
    bool unread = answered || conn->refused || conn->stash.len || conn->current ||
                  (conn->socket && conn->socket->failed) ||
                  recv(conn->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
    if (conn->eof || !unread) {
        conn->dead = true;
        return;
    }
    shutdown(conn->fd, SHUT_WR);
    buf_reset(&conn->stash, 0);
    conn->lingering = true;
    conn->closing = true;
    conn->end_ms = hub_now(conn->hub) + LINGER_MS;
    hub_tick_within(conn->hub, LINGER_MS);
}

void conn_kill(struct conn *conn)
{
    die(conn);
    settle(conn);
}

void conn_quit(struct conn *conn)
{
    if (socket_of(conn)) {
        socket_close(conn->socket, conn->hub, CODE_GOING_AWAY, "the server stops");
        write_out(conn);
    }
    conn_kill(conn);
}

void conn_stop(struct conn *conn)
{
    /* A request that has begun to come is taken, as the last one. */
    if (!conn->current || !(conn->body || parser_started(&conn->parser)))
        conn->closing = true;
    if (socket_of(conn))
        socket_close(conn->socket, conn->hub, CODE_GOING_AWAY, "the server stops");
    settle(conn);
}

/* ---- answers ---- */

static void append(struct conn *conn, struct exchange *exchange)
{
    exchange->conn = conn;
    exchange->conn_number = conn->number;
    exchange->sequence = ++conn->sequence;
    exchange->server = conn->server;
    if (conn->last)
        conn->last->next_on_conn = exchange;
    else
        conn->first = exchange;
    conn->last = exchange;
    conn->outstanding++;
}

/* The first answer is out.  False when the connection ends with it. */
static bool first_is_out(struct conn *conn)
{
    struct exchange *exchange = pop_first(conn);
    bool close = exchange->reply.close;
    if (exchange->reply.status >= 200 && !exchange->counted)
        server_count_answer(conn->server, exchange->reply.status);
    if (log_wants(conn->server->log) && exchange->reply.status != 100)
        log_answer(conn, exchange, exchange->reply.status, exchange->reply.body_bytes);
    conn->write_ms = hub_now(conn->hub);
    recycle_if_ours(conn->hub, exchange);
    if (!conn->first)
        conn->held = false;
    if (close)
        end(conn, true);
    return !close;
}

/* Take off the list what Emacs has written itself, handed back or not. */
static void reap(struct conn *conn)
{
    while (conn->first && exchange_state(conn->first) == EXCHANGE_WRITTEN)
        if (!first_is_out(conn))
            return;
}

/* An answer by Porter itself.  EXCHANGE is the loop's. */
static void answer_plain(struct conn *conn, struct exchange *exchange, int status,
                         const char *detail, const char *fields, bool keep_alive)
{
    struct format_context context = {
        .head = exchange->request.method == METHOD_HEAD,
        .http_1_0 = exchange->request.complete && exchange->request.version_minor == 0,
        .keep_alive = keep_alive,
    };
    if (format_plain(&exchange->reply, status, detail, fields, &context, hub_clock(conn->hub)) !=
        FORMAT_OK)
        exchange->reply.close = true;
    exchange->complete = true;
    conn->write_ms = hub_now(conn->hub);
}

/* Answer STATUS in the place of OLD, whose handler is too late or never ran.  Nothing when the answer
 * has begun. */
static void replace(struct conn *conn, struct exchange *old, struct exchange *before, int status,
                    const char *detail)
{
    struct exchange *fresh = hub_exchange(conn->hub);
    if (!fresh)
        return;
    if (exchange_state(old) == EXCHANGE_STREAMING || !take_back(conn->hub, old) ||
        exchange_state(old) != EXCHANGE_REVOKED) {
        hub_recycle(conn->hub, fresh);
        return;
    }
    /* Not from its request: Emacs may just now be moving that elsewhere. */
    fresh->request.method = old->head ? METHOD_HEAD : METHOD_GET;
    fresh->request.version_minor = old->http_1_0 ? 0 : 1;
    fresh->request.complete = true;
    fresh->conn = conn;
    fresh->conn_number = old->conn_number;
    fresh->sequence = old->sequence;
    fresh->server = conn->server;
    fresh->delivered_ms = old->delivered_ms;
    /* Interim answers that are out, perhaps in part, stay in front. */
    fresh->pieces = old->pieces;
    fresh->written = old->written;
    atomic_store(&fresh->unsent_bytes, atomic_load(&old->unsent_bytes));
    old->pieces = (struct item_list){0};
    fresh->log = old->log;
    old->log = NULL;
    fresh->next_on_conn = old->next_on_conn;
    if (before)
        before->next_on_conn = fresh;
    else
        conn->first = fresh;
    if (conn->last == old)
        conn->last = fresh;
    old->next_on_conn = NULL;
    old->conn = NULL;
    if (conn->streaming == old)
        conn->streaming = NULL;
    answer_plain(conn, fresh, status, detail, status >= 500 ? "Retry-After: 1\r\n" : NULL,
                 old->keep_alive && !conn->closing);
}

/* Refuse a body that Lisp already gets.  When its answer has begun there is nothing left to say. */
static void refuse_stream(struct conn *conn, int status, const char *detail)
{
    struct exchange *old = conn->streaming;
    struct exchange *before = NULL;
    conn->closing = true;
    conn->refused = true;
    for (struct exchange *each = conn->first; each && each != old; each = each->next_on_conn)
        before = each;
    if (old)
        replace(conn, old, before, status, detail);
    if (old && conn->streaming) {
        die(conn);
        return;
    }
    hub_recycle(conn->hub, conn->current);
    conn->current = NULL;
    conn->streams = conn->stream_over = conn->storing = false;
}

/* Refuse what is being read, and everything behind it. */
static void refuse(struct conn *conn, int status, const char *detail)
{
    if (conn->streams) {
        refuse_stream(conn, status, detail);
        return;
    }
    struct exchange *exchange = conn->current;
    drop_intake(conn);
    conn->current = NULL;
    conn->closing = true;
    conn->refused = true;
    exchange->keep_alive = false;
    append(conn, exchange);
    answer_plain(conn, exchange, status, detail, status == 503 ? "Retry-After: 1\r\n" : NULL,
                 false);
    if (status < 500)
        atomic_fetch_add_explicit(&conn->server->errors, 1, memory_order_relaxed);
}

/* ---- writing ---- */

static bool is_ready(struct exchange *exchange)
{
    return exchange->complete || exchange->pieces.first;
}

static bool file_has_more(const struct exchange *exchange)
{
    return exchange->file.left || exchange->file.segments_at < exchange->file.segments_len;
}

static bool file_is_next(const struct exchange *exchange)
{
    return exchange->complete && file_has_more(exchange) && !exchange->pieces.first &&
           exchange->written == exchange_ready_bytes(exchange);
}

/* Collect what the first answers have to say, up to the first that goes on with bytes of a file: then
 * *MORE is true. */
static int gather(struct conn *conn, struct iovec *iov, bool *more)
{
    int count = 0;
    for (struct exchange *exchange = conn->first; exchange && is_ready(exchange);
         exchange = exchange->next_on_conn) {
        size_t skip = exchange->written;
        for (struct item *item = exchange->pieces.first; item; item = item->next) {
            struct buf *bytes = &CONTAINER_OF(item, struct piece, item)->bytes;
            if (count == IOVEC_MAX)
                return count;
            iov[count++] = (struct iovec){bytes->data + skip, bytes->len - skip};
            skip = 0;
        }
        if (!exchange->complete)
            break;
        const struct reply *reply = &exchange->reply;
        const struct shared_part *content = &exchange->content;
        const struct iovec parts[] = {
            {reply->head.data, reply->head.len},
            {reply->body.data, reply->body.len},
            {content->len ? content->shared->bytes.data + content->from : NULL, content->len}};
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
            if (count == IOVEC_MAX)
                return count;
            size_t len = parts[i].iov_len;
            if (skip < len)
                iov[count++] = (struct iovec){(char *)parts[i].iov_base + skip, len - skip};
            skip -= skip < len ? skip : len;
        }
        if (file_has_more(exchange)) {
            *more = true;
            break;
        }
    }
    return count;
}

/* SENT bytes more have left.  False when the connection ends with one of the answers. */
static bool advance(struct conn *conn, size_t sent)
{
    while (conn->first && is_ready(conn->first)) {
        struct exchange *exchange = conn->first;
        for (struct item *item; (item = exchange->pieces.first);) {
            struct piece *piece = CONTAINER_OF(item, struct piece, item);
            size_t left = piece->bytes.len - exchange->written;
            size_t part = sent < left ? sent : left;
            exchange->written += part;
            sent -= part;
            atomic_fetch_sub(&exchange->unsent_bytes, part);
            if (part < left)
                return true;
            exchange->written = 0;
            exchange->streamed_bytes += piece->body_bytes;
            list_pop(&exchange->pieces);
            piece_free(piece);
        }
        if (!exchange->complete)
            return true;
        size_t left = exchange_ready_bytes(exchange) - exchange->written;
        size_t part = sent < left ? sent : left;
        exchange->written += part;
        sent -= part;
        if (part < left || file_has_more(exchange))
            return true;
        if (!first_is_out(conn))
            return false;
    }
    return true;
}

static void note_full(struct conn *conn)
{
    conn->want_write = true;
    if (!conn->full_ms) {
        conn->full_ms = hub_now(conn->hub);
        conn->full_bytes = 0;
    }
}

/* The next segment of EXCHANGE's file: its text takes the place of head and body, which are out. */
static void next_segment(struct exchange *exchange)
{
    struct file_part *file = &exchange->file;
    struct file_segment *segment = &file->segments[file->segments_at++];
    buf_free(&exchange->reply.head);
    buf_free(&exchange->reply.body);
    exchange->reply.body = segment->text;
    segment->text = (struct buf){0};
    exchange->written = 0;
    file->offset = segment->from;
    file->left = segment->len;
}

/* Head and body of the first answer are out: send of its file.  False when that has to wait, or the connection
 * has ended. */
static bool send_file(struct conn *conn)
{
    struct exchange *exchange = conn->first;
    struct file_part *file = &exchange->file;
    conn->want_write = false;
    if (!file->left) {
        next_segment(exchange);
        return true;
    }
    uint64_t left = file->left;
    switch (static_send(conn->hub, exchange, conn->fd)) {
    case STATIC_SENT:
        conn->write_ms = hub_now(conn->hub);
        conn->full_bytes += left - file->left;
        return file_has_more(exchange) || first_is_out(conn);
    case STATIC_FULL:
        note_full(conn);
        return false;
    case STATIC_WAITS:
        return false;
    case STATIC_BROKEN:
        break;
    }
    die(conn);
    return false;
}

static void write_out(struct conn *conn)
{
    uint32_t chunks = 0;
    while (!conn->dead && !conn->lingering) {
        if (conn->first && file_is_next(conn->first)) {
            /* A fast client must not keep the others waiting for the rest of its file. */
            if (chunks++ == FILE_CHUNKS_MAX) {
                conn->want_write = true;
                return;
            }
            if (!send_file(conn))
                return;
            continue;
        }
        struct iovec iov[IOVEC_MAX];
        bool more = false;
        struct msghdr message = {.msg_iov = iov};
        message.msg_iovlen = (size_t)gather(conn, iov, &more);
        size_t total = 0;
        for (size_t i = 0; i < message.msg_iovlen; i++)
            total += iov[i].iov_len;
        conn->want_write = false;
        if (total && conn->socket && !socket_may_write(conn->socket))
            return;
        if (total == 0) {
            /* Nothing to send, but an answer without a byte left may have become complete. */
            advance(conn, 0);
            return;
        }
        int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
        /* One piece is the rule, and send costs the kernel less. */
        ssize_t sent = message.msg_iovlen == 1 ? send(conn->fd, iov[0].iov_base, total, flags)
                                               : sendmsg(conn->fd, &message, flags);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            note_full(conn);
            return;
        }
        if (sent < 0) {
            die(conn);
            return;
        }
        conn->write_ms = hub_now(conn->hub);
        conn->full_bytes += (size_t)sent;
        if (!advance(conn, (size_t)sent))
            return;
        if (conn->socket)
            socket_sent(conn->socket, conn->hub);
        if ((size_t)sent < total) {
            note_full(conn);
            return;
        }
    }
}

/* ---- compression of large answers, in the pool ---- */

struct zip {
    uv_work_t work;
    struct hub *hub;
    struct exchange *exchange;
    struct buf out;
    bool ok;
};

/* EXCHANGE is back from Emacs, or from the pool. */
static void count_back(struct hub *hub, struct exchange *exchange)
{
    exchange->server->out_count--;
    if (exchange->server->phase == SERVER_STOPPING)
        hub_tick_within(hub, 0); /* it may be the last */
}

/* EXCHANGE, handed back, is all there but its head: complete that, with what is in ZIPPED as body if it is not
 * NULL. */
static void frame_answer(struct hub *hub, struct exchange *exchange, struct buf *zipped)
{
    struct reply *reply = &exchange->reply;
    enum format_status status = zipped ? format_coded(reply, zipped) : FORMAT_OK;
    if (status == FORMAT_OK)
        status = format_finish(reply, &exchange->context, hub_clock(hub));
    if (status != FORMAT_OK) {
        int code = reply->status;
        reply_reset(reply);
        reply->status = code;
        reply->close = true;
    }
}

/* Thread: one of the pool.  Has REPLY's body alone. */
static void on_zip(uv_work_t *work)
{
    struct zip *zip = CONTAINER_OF(work, struct zip, work);
    zip->ok = gzip_body(&zip->exchange->reply.body, &zip->out, &zip->exchange->zip_dropped);
}

static void on_zipped(uv_work_t *work, int status)
{
    struct zip *zip = CONTAINER_OF(work, struct zip, work);
    struct exchange *exchange = zip->exchange;
    struct hub *hub = zip->hub;
    struct conn *conn = exchange->conn;
    (void)status;
    exchange->zipping = false;
    count_back(hub, exchange);
    if (conn) {
        bool use = zip->ok &&
                   (exchange->reply.gzip_asked || zip->out.len < exchange->reply.body.len);
        frame_answer(hub, exchange, use ? &zip->out : NULL);
        exchange->complete = true;
        conn->write_ms = hub_now(hub);
        if (conn->dead)
            die(conn);
        settle(conn);
    } else {
        hub_recycle(hub, exchange);
    }
    buf_free(&zip->out);
    free(zip);
}

/* False when that cannot be done; EXCHANGE is framed as it is then. */
static bool zip_answer(struct hub *hub, struct exchange *exchange)
{
    struct zip *zip = calloc(1, sizeof *zip);
    if (zip) {
        zip->hub = hub;
        zip->exchange = exchange;
        exchange->zipping = true;
        exchange->server->out_count++;
        uv_queue_work(&hub->uv, &zip->work, on_zip, on_zipped);
        return true;
    }
    frame_answer(hub, exchange, NULL);
    return false;
}

/* Is ITEM the answer that is to be sent behind EXCHANGE? */
static bool is_followed_by(const struct exchange *exchange, const struct item *item)
{
    return item && item->kind == ITEM_ANSWER && exchange->next_on_conn &&
           item == &exchange->next_on_conn->item;
}

void conn_answer(struct hub *hub, struct exchange *exchange, const struct item *next)
{
    struct conn *conn = exchange->conn;
    int state = exchange_state(exchange);
    count_back(hub, exchange);
    atomic_store(&exchange->state, EXCHANGE_LOOP);
    if (!conn) {
        hub_recycle(hub, exchange);
        return;
    }
    if (UNLIKELY(exchange->to_gzip) && !conn->dead && zip_answer(hub, exchange)) {
        settle(conn); /* what is before it need not wait for that */
        return;
    }
    CHECK(state == EXCHANGE_WRITING || state == EXCHANGE_WRITTEN);
    if (exchange->entry) {
        uint32_t number = exchange->entry;
        exchange->entry = 0;
        if (!conn->dead)
            static_serve(hub, exchange, number);
        conn->write_ms = hub_now(hub);
        if (conn->dead)
            die(conn);
        settle(conn);
        return;
    }
    if (state == EXCHANGE_WRITTEN)
        exchange->written = exchange_ready_bytes(exchange);
    exchange->complete = true;
    conn->write_ms = hub_now(hub);
    if (is_followed_by(exchange, next))
        return;
    if (conn->dead)
        die(conn);
    settle(conn);
}

static void hand_over(struct conn *conn, struct exchange *exchange);

void conn_completed(struct exchange *exchange)
{
    struct conn *conn = exchange->conn;
    conn->write_ms = hub_now(conn->hub);
    if (!exchange->complete && !exchange->task && !exchange->pieces.first) {
        /* There is no such file, and others may know better. */
        exchange->direct = conn->first == exchange && !conn->want_write;
        hand_over(conn, exchange);
    }
    settle(conn);
}

void conn_piece(struct piece *piece)
{
    struct exchange *exchange = piece->exchange;
    struct conn *conn = exchange->conn;
    if (!conn || conn->dead) {
        atomic_fetch_sub(&exchange->unsent_bytes, piece->bytes.len);
        piece_free(piece);
        if (conn)
            conn_kill(conn); /* Emacs may have let go of the socket */
        return;
    }
    if (conn->streaming == exchange && !piece->bytes.len) {
        piece_free(piece); /* Emacs has taken the request, or some of its body */
        conn->read_ms = hub_now(conn->hub);
        settle(conn);
        return;
    }
    if (!exchange->pieces.first)
        conn->write_ms = hub_now(conn->hub);
    /* Before that it is an interim answer. */
    exchange->begun = exchange_state(exchange) == EXCHANGE_STREAMING;
    if (atomic_load(&exchange->heartbeat_ms))
        hub_tick_within(conn->hub, atomic_load(&exchange->heartbeat_ms));
    if (conn->socket && conn->socket->exchange == exchange)
        socket_piece(conn->socket, conn->hub, piece);
    else
        list_push(&exchange->pieces, &piece->item);
    settle(conn);
}

void conn_upgrade(struct socket *socket)
{
    struct conn *conn = socket->exchange->conn;
    if (!conn || conn->dead) {
        socket_free(socket);
        return;
    }
    conn->socket = socket;
    conn->closing = true; /* no request can follow */
    conn->held = false;
    conn->read_ms = hub_now(conn->hub);
    server_count_answer(conn->server, 101);
    socket_start(socket, conn->hub);
    if (conn->server->phase != SERVER_LISTENING)
        socket_close(socket, conn->hub, CODE_GOING_AWAY, "the server stops");
    settle(conn);
}

/* ---- reading ---- */

static void on_stored(void *data);

/* The body of CURRENT is a form with parts, or large.  0, or the status to refuse it with. */
static int open_intake(struct conn *conn)
{
    int status;
    conn->intake = intake_new(conn->hub, conn->server, &conn->current->request, on_stored, conn,
                              &status, &conn->refusal);
    return status;
}

static void open_stream(struct conn *conn);
static void push_stream(struct conn *conn);

static int on_body(void *data, const char *bytes, size_t len)
{
    struct conn *conn = data;
    const struct limits *limits = &conn->server->limits;
    struct request *request = &conn->current->request;
    int status = 0;
    if (limits->body_bytes_max && request->body_bytes > limits->body_bytes_max) {
        conn->refusal = "the body is too large";
        return 413;
    }
    if (conn->streams) {
        if (conn->streaming && !buf_append(&request->body, bytes, len, SIZE_MAX)) {
            conn->refusal = "out of memory";
            return 503;
        }
        push_stream(conn);
        return 0;
    }
    uint64_t memory_max = conn->intake ? 0 : intake_memory_max(limits);
    if (memory_max && request->body_bytes >= memory_max)
        status = open_intake(conn);
    if (!status && conn->intake) {
        status = intake_bytes(conn->intake, bytes, len);
        if (status)
            conn->refusal = conn->intake->reason;
    } else if (!status && !buf_append(&request->body, bytes, len, SIZE_MAX)) {
        conn->refusal = "out of memory";
        status = 503;
    }
    return status;
}

static bool begin(struct conn *conn)
{
    conn->current = hub_exchange(conn->hub);
    if (!conn->current)
        return false;
    conn->body = false;
    conn->refusal = NULL;
    conn->head_ms = 0;
    parser_begin(&conn->parser, &conn->current->request);
    return true;
}

/* RFC 9110 section 10.1.1. */
static void send_continue(struct conn *conn)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct exchange *interim = hub_exchange(conn->hub);
    if (!interim)
        return;
    buf_append(&interim->reply.head, line, sizeof line - 1, sizeof line);
    interim->reply.status = 100;
    interim->complete = true;
    append(conn, interim);
}

/* The head is complete: may this request come in? */
static void admit(struct conn *conn, size_t bytes_left)
{
    struct request *request = &conn->current->request;
    conn->body = true;
    conn->body_ms = hub_now(conn->hub);
    if (!server_host_allowed(conn->server, request_at(request, request->authority),
                             request->authority.len)) {
        refuse(conn, 421, "this server does not answer for that host");
        return;
    }
    if ((request->content_length || request->chunked) &&
        server_streams(conn->server, request_at(request, request->path), request->path.len)) {
        if (request->expects_continue && bytes_left == 0)
            send_continue(conn);
        open_stream(conn);
        return;
    }
    const struct field *type = request_field(request, "content-type");
    if ((request->content_length || request->chunked) && type &&
        multipart_is_form(request_at(request, type->value), type->value.len)) {
        int status = open_intake(conn);
        if (status) {
            refuse(conn, status, conn->refusal);
            return;
        }
    } else if (request->content_length && !request->chunked) {
        buf_reserve(&request->body,
                    request->content_length < LIMIT_READ_BYTES ? (size_t)request->content_length
                                                               : LIMIT_READ_BYTES,
                    SIZE_MAX);
    }
    if (request->expects_continue && bytes_left == 0)
        send_continue(conn);
}

static bool queue_is_full(struct server *server)
{
    uint32_t max = server->limits.queue_items_max;
    return max && atomic_load(&server->queued_count) >= max;
}

/* EXCHANGE waits for Lisp from now on. */
static void begin_waiting(struct conn *conn, struct exchange *exchange)
{
    struct log *log = conn->server->log;
    exchange->delivered_ms = hub_now(conn->hub);
    if (log_wants(log) && !exchange->log) /* it may have been parked before */
        exchange->log = log_begin(log, &exchange->request, &conn->peer.address.sa);
}

/* To the queue, or 503. */
static void enqueue(struct conn *conn, struct exchange *exchange)
{
    struct hub *hub = conn->hub;
    struct server *server = conn->server;
    if (queue_is_full(server)) {
        answer_plain(conn, exchange, 503, "too many requests are waiting", "Retry-After: 1\r\n",
                     exchange->keep_alive);
        return;
    }
    begin_waiting(conn, exchange);
    conn->held = exchange->request.upgrade;
    exchange->item.kind = ITEM_REQUEST;
    server->out_count++;
    atomic_fetch_add(&server->queued_count, 1);
    atomic_store(&exchange->state, EXCHANGE_QUEUED);
    hub_deliver(hub, exchange);
}

/* EXCHANGE finds the queue full.  False when it is not to wait. */
static bool park(struct conn *conn, struct exchange *exchange)
{
    struct hub *hub = conn->hub;
    if (exchange->request.body_streams || exchange->request.body.len > LIMIT_PARK_BODY_BYTES)
        return false;
    begin_waiting(conn, exchange);
    if (!hub->parked.first) {
        hub->parked_ms = exchange->delivered_ms;
        hub->parked_taken = atomic_load(&hub->taken_count);
        hub->parked_idle_ms = 0;
    }
    exchange->parked = conn->parked = true;
    list_push(&hub->parked, &exchange->item);
    hub_tick_within(hub, LIMIT_PARK_STUCK_MS);
    return true;
}

/* EXCHANGE is Lisp's to answer. */
static void hand_over(struct conn *conn, struct exchange *exchange)
{
    if (!queue_is_full(conn->server) || !park(conn, exchange))
        enqueue(conn, exchange);
}

/* Does Lisp take nothing from the queue?  One long turn of the loop, which Emacs may have to wait for, or run, counts
 * little. */
static bool lisp_is_stuck(struct hub *hub)
{
    uint64_t now = hub_now(hub);
    unsigned taken = atomic_load(&hub->taken_count);
    if (taken == hub->parked_taken)
        hub->parked_idle_ms += (unsigned)least(now - hub->parked_ms, LIMIT_PARK_STUCK_MS / 4);
    else
        hub->parked_idle_ms = 0;
    hub->parked_ms = now;
    hub->parked_taken = taken;
    return hub->parked_idle_ms >= LIMIT_PARK_STUCK_MS;
}

void conn_unpark(struct hub *hub)
{
    uint64_t now = hub_now(hub);
    bool stuck = lisp_is_stuck(hub);
    for (struct item *item; (item = hub->parked.first);) {
        struct exchange *exchange = CONTAINER_OF(item, struct exchange, item);
        struct conn *conn = exchange->conn;
        if (conn && queue_is_full(conn->server) && !stuck &&
            now - exchange->delivered_ms < LIMIT_PARK_MS) {
            hub_tick_within(hub, LIMIT_PARK_STUCK_MS);
            return;
        }
        list_pop(&hub->parked);
        exchange->parked = false;
        if (conn) {
            conn->parked = false;
            exchange->direct = conn->first == exchange && !conn->want_write;
            enqueue(conn, exchange);
            settle(conn);
        } else {
            hub_recycle(hub, exchange);
        }
    }
}

/* EXCHANGE is the next to be answered, by C or by Lisp. */
static void line_up(struct conn *conn, struct exchange *exchange)
{
    struct hub *hub = conn->hub;
    struct server *server = conn->server;
    struct limits *limits = &server->limits;
    exchange->request.complete = true;
    exchange->fd = conn->fd;
    exchange->peer = conn->peer;
    exchange->head = exchange->request.method == METHOD_HEAD;
    exchange->http_1_0 = exchange->request.version_minor == 0;
    reap(conn);
    if (conn->dead || conn->lingering) {
        /* The answer before it has ended the connection (RFC 9112 section 9.6). */
        spool_discard_files(hub, &exchange->request);
        hub_recycle(hub, exchange);
        return;
    }
    exchange->direct = !conn->first && !conn->want_write;
    append(conn, exchange);
    exchange->keep_alive = exchange->request.keep_alive && server->phase == SERVER_LISTENING &&
                           (!limits->requests_per_connection_max ||
                            conn->sequence < limits->requests_per_connection_max);
    if (!exchange->keep_alive && exchange->request.body_streams)
        conn->stream_last = true;
    else if (!exchange->keep_alive)
        conn->closing = true;
    if (!exchange->request.body_streams && static_take(hub, exchange)) {
        conn->write_ms = hub_now(hub);
        return;
    }
    hand_over(conn, exchange);
}

static void deliver(struct conn *conn)
{
    struct exchange *exchange = conn->current;
    conn->current = NULL;
    line_up(conn, exchange);
}

/* ---- bodies that Lisp gets as they come ---- */

/* Lisp gets a copy of CURRENT's head; CURRENT itself is still being read. */
static void open_stream(struct conn *conn)
{
    struct exchange *exchange = hub_exchange(conn->hub);
    if (!exchange || !request_copy_head(&exchange->request, &conn->current->request)) {
        if (exchange)
            hub_recycle(conn->hub, exchange);
        refuse(conn, 503, "out of memory");
        return;
    }
    exchange->request.body_streams = true;
    conn->stream_last = conn->stream_over = false;
    line_up(conn, exchange);
    if (conn->dead || conn->lingering)
        return;
    conn->streams = true;
    /* Unless it was answered 503 at once. */
    conn->streaming = exchange_state(exchange) == EXCHANGE_LOOP ? NULL : exchange;
}

static bool push_message(struct conn *conn, struct exchange *to, int kind, struct buf *bytes)
{
    struct message *message = calloc(1, sizeof *message);
    if (!message)
        return false;
    message->item.kind = ITEM_MESSAGE;
    message->id = atomic_load(&to->id);
    message->opcode = kind;
    if (bytes) {
        message->bytes = *bytes;
        *bytes = (struct buf){0};
    }
    atomic_fetch_add(&to->channel.wait_bytes, message->bytes.len + LIMIT_WAIT_EXTRA_BYTES);
    hub_notify(conn->hub, &message->item);
    return true;
}

/* Send Lisp what has come.  Before it has taken the request it cannot be told which one this is about:
 * then it sends an empty piece when it has, and that leads here. */
static void push_stream(struct conn *conn)
{
    struct buf *bytes = &conn->current->request.body;
    if (conn->streaming) {
        if (!atomic_load(&conn->streaming->id)) {
            conn->storing = conn->stream_over;
            return;
        }
        if ((bytes->len && !push_message(conn, conn->streaming, MESSAGE_BODY, bytes)) ||
            (conn->stream_over && !push_message(conn, conn->streaming, MESSAGE_BODY_END, NULL))) {
            die(conn);
            return;
        }
    }
    bytes->len = 0;
    if (!conn->stream_over)
        return;
    hub_recycle(conn->hub, conn->current);
    conn->current = NULL;
    conn->streaming = NULL;
    conn->streams = conn->stream_over = conn->storing = false;
    if (conn->stream_last)
        conn->closing = true;
}

/* Is Lisp behind with the body? */
static bool stream_is_full(struct conn *conn)
{
    return conn->streams && conn->streaming &&
           (conn->current->request.body.len >= LIMIT_WAIT_BYTES / 4 ||
            !channel_has_room(&conn->streaming->channel, LIMIT_WAIT_BYTES / 4));
}

/* CURRENT has been read; it goes to Lisp when its body is stored. */
static void complete(struct conn *conn)
{
    if (conn->streams) {
        conn->stream_over = true;
        push_stream(conn);
        return;
    }
    if (conn->intake) {
        int status = intake_end(conn->intake);
        if (status) {
            refuse(conn, status, conn->intake->reason);
            return;
        }
        conn->storing = true;
        if (!intake_is_settled(conn->intake))
            return;
        intake_deliver(conn->intake);
        drop_intake(conn);
    }
    deliver(conn);
}

/* Some of the body has been written: there is room for more, or all is done. */
static void on_stored(void *data)
{
    struct conn *conn = data;
    int status = intake_status(conn->intake);
    conn->read_ms = hub_now(conn->hub);
    if (status) {
        refuse(conn, status, conn->intake->reason);
    } else if (conn->storing && intake_is_settled(conn->intake)) {
        intake_deliver(conn->intake);
        drop_intake(conn);
        deliver(conn);
    }
    settle(conn);
}

/* The client is not to send more for now. */
static bool is_storing(struct conn *conn)
{
    return conn->storing || stream_is_full(conn) || (conn->intake && intake_is_full(conn->intake));
}

static bool may_begin(struct conn *conn)
{
    uint32_t max = conn->server->limits.pipelined_max;
    return !conn->closing && !conn->dead && !conn->held && !conn->storing && !conn->parked &&
           (!max || conn->outstanding < max);
}

static bool same_address(const struct peer *a, const struct peer *b)
{
    if (a->address.sa.sa_family != b->address.sa.sa_family)
        return false;
    if (a->address.sa.sa_family == AF_INET)
        return a->address.in.sin_addr.s_addr == b->address.in.sin_addr.s_addr;
    return memcmp(&a->address.in6.sin6_addr, &b->address.in6.sin6_addr,
                  sizeof a->address.in6.sin6_addr) == 0;
}

bool conn_address_has_room(const struct hub *hub, const struct server *server,
                           const struct peer *peer, const struct conn *apart)
{
    uint32_t max = server->limits.connections_per_address_max;
    if (!max || peer->address.sa.sa_family == AF_UNIX)
        return true;
    for (const struct conn *conn = hub->conns; conn; conn = conn->next)
        if (conn->server == server && conn != apart && !conn->proxy &&
            same_address(&conn->peer, peer) && --max == 0)
            return false;
    return true;
}

/* Who the client is says a proxy.  Returns how many BYTES it said it with. */
static size_t feed_proxy(struct conn *conn, const char *bytes, size_t len)
{
    size_t used;
    enum proxy_status status = proxy_feed(conn->proxy, bytes, len, &used, &conn->peer);
    if (status == PROXY_MORE)
        return used;
    bool crowded = conn->proxy->named &&
                   !conn_address_has_room(conn->hub, conn->server, &conn->peer, conn);
    free(conn->proxy);
    conn->proxy = NULL;
    if (status == PROXY_DONE && !crowded)
        return used;
    if (!begin(conn))
        die(conn);
    else if (crowded)
        refuse(conn, 503, "too many connections from this address");
    else
        refuse(conn, 400, "the connection does not begin with a PROXY header");
    return used;
}

/* Parse BYTES; what may not be parsed yet is stashed. */
static void feed(struct conn *conn, const char *bytes, size_t len)
{
    bool again = false; /* a body of no bytes ends without a further byte */
    if (conn->proxy) {
        size_t used = feed_proxy(conn, bytes, len);
        bytes += used;
        len -= used;
    }
    while (len || again) {
        if (!conn->current || conn->storing) {
            if ((conn->closing && !conn->held) || conn->dead)
                return;
            if (!may_begin(conn)) {
                if (!buf_append(&conn->stash, bytes, len, LIMIT_READ_BYTES))
                    die(conn);
                return;
            }
            if (!begin(conn)) {
                die(conn);
                return;
            }
        }
        size_t used = 0;
        const char *start = bytes;
        enum parse_event event = parser_feed(&conn->parser, bytes, len, &used);
        bytes += used;
        len -= used;
        again = false;
        switch (event) {
        case PARSE_MORE:
            if (!conn->head_ms && parser_started(&conn->parser))
                conn->head_ms = hub_now(conn->hub);
            return;
        case PARSE_HEAD:
            admit(conn, len);
            again = conn->current != NULL;
            break;
        case PARSE_DONE:
            complete(conn);
            break;
        case PARSE_FAILED:
            /* The parser kept nothing of a first line that it does not like; the log is to tell. */
            if (log_wants(conn->server->log) && !conn->current->request.head.len)
                buf_append(&conn->current->request.head, start, used, LIMIT_READ_BYTES);
            refuse(conn, conn->parser.status, conn->refusal ? conn->refusal : conn->parser.reason);
            break;
        }
    }
}

/* The exchange whose handler gets what the client sends, or NULL. */
static struct exchange *owner_of(struct conn *conn)
{
    struct exchange *exchange = conn->first;
    return exchange && atomic_load(&exchange->owned) && !exchange->next_on_conn && !conn->current &&
                   !conn->stash.len && !conn->dead && !conn->lingering
               ? exchange
               : NULL;
}

static void feed_owner(struct conn *conn, struct exchange *owner, const char *bytes, size_t len)
{
    struct buf copy = {0};
    if (buf_append(&copy, bytes, len, SIZE_MAX) && push_message(conn, owner, MESSAGE_BODY, &copy))
        return;
    buf_free(&copy);
    die(conn);
}

/* BYTES came, or were stashed. */
static void take_in(struct conn *conn, const char *bytes, size_t len)
{
    struct exchange *owner = owner_of(conn);
    if (conn->socket)
        socket_feed(conn->socket, conn->hub, bytes, len);
    else if (UNLIKELY(owner != NULL))
        feed_owner(conn, owner, bytes, len);
    else
        feed(conn, bytes, len);
}

static void feed_stash(struct conn *conn)
{
    struct buf stash = conn->stash;
    conn->stash = (struct buf){0};
    take_in(conn, stash.data, stash.len);
    buf_free(&stash);
}

/* The client of CONN sends no more; it may have gone altogether. */
static void said_last(struct conn *conn)
{
    bool probed = conn->first && atomic_load(&conn->first->heartbeat_ms);
    conn->end_ms = hub_now(conn->hub);
    hub_tick_within(conn->hub, probed ? PROBE_MS : LINGER_MS);
}

static void read_socket(struct conn *conn)
{
    struct hub *hub = conn->hub;
    ssize_t n;
    do
        n = recv(conn->fd, hub->read_buffer, sizeof hub->read_buffer, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    if (n < 0) {
        die(conn);
        return;
    }
    if (n == 0 && conn->streams && !conn->stream_over) {
        die(conn); /* the rest of its body will never come */
        return;
    }
    if (n == 0) {
        conn->eof = true;
        said_last(conn);
        return;
    }
    conn->read_ms = hub_now(hub);
    if (!conn->lingering)
        take_in(conn, hub->read_buffer, (size_t)n);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct conn *conn = handle->data;
    uint64_t until_ns = conn->hub->turn_until_ns;
    /* It comes again, as polling is level-triggered; but after an error libuv does not poll any more. */
    if (status == 0 && until_ns && uv_hrtime() > until_ns)
        return;
    if (status < 0 && status != UV_EAGAIN) {
        /* libuv has stopped polling.  Reading tells the error, after what came before it. */
        conn->events = 0;
        events |= UV_READABLE;
    }
    if (events & UV_READABLE)
        read_socket(conn);
    if ((events & UV_DISCONNECT) && !conn->eof) {
        conn->hangup = true;
        said_last(conn);
    }
    settle(conn);
}

/* ---- what next ---- */

static void set_events(struct conn *conn, int events)
{
    if (events == conn->events)
        return;
    conn->events = events;
    if (events)
        uv_poll_start(&conn->poll, events, on_poll);
    else
        uv_poll_stop(&conn->poll);
}

/* The shortest timeout that may apply to CONN from now on. */
static uint64_t shortest_timeout(const struct limits *limits)
{
    const uint32_t all[] = {limits->head_timeout_ms,  limits->body_timeout_ms,
                            limits->idle_timeout_ms,  limits->write_timeout_ms,
                            limits->queue_timeout_ms, limits->handler_timeout_ms};
    uint32_t shortest = 60000;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i] && all[i] < shortest)
            shortest = all[i];
    return shortest;
}

/* When what comes next waits for an answer, not for the client, Emacs has to wake the loop as soon as it
 * has written it; usually it does not, and the loop notices at its next turn.
 *
 * NOTE wake-loop: the flag is set here before the state is looked at, and Emacs sets the state
 * before it looks at the flag, both sequentially consistent: one of the two sees the other. */
static bool ask_to_be_woken(struct conn *conn)
{
    for (struct exchange *exchange = conn->first; exchange; exchange = exchange->next_on_conn)
        atomic_store(&exchange->wake_loop, true);
    return conn->first && exchange_state(conn->first) == EXCHANGE_WRITTEN;
}

static void step_socket(struct conn *conn)
{
    struct socket *socket = conn->socket;
    if (conn->stash.len)
        feed_stash(conn);
    reap(conn); /* what was asked for before it */
    write_out(conn);
    if (!socket_of(conn))
        return;
    if (socket->phase == SOCKET_OVER && !socket->exchange->pieces.first) {
        conn->refused = true; /* after an error the client may be in the middle of a message */
        end(conn, false);
    } else if (conn->eof)
        die(conn);
}

/* One step towards rest: do what can be done now. */
static void step(struct conn *conn)
{
    if (conn->dead) {
        die(conn);
        return;
    }
    if (socket_of(conn)) {
        step_socket(conn);
    } else if (!conn->lingering) {
        reap(conn);
        write_out(conn);
        if (conn->streams && !conn->dead && !conn->lingering)
            push_stream(conn);
        while (conn->stash.len && may_begin(conn)) {
            feed_stash(conn);
            reap(conn);
            write_out(conn);
        }
        if (!conn->first && !conn->dead && !conn->lingering) {
            if (conn->closing)
                end(conn, false);
            else if (conn->eof && !conn->storing)
                conn->dead = true; /* also with half a request: nobody waits for its answer */
        }
    }
    if (conn->lingering && conn->eof)
        conn->dead = true;
}

static bool wants_reading(struct conn *conn)
{
    if (conn->dead || conn->eof)
        return false;
    if (socket_of(conn))
        return socket_wants_reading(conn->socket);
    if (owner_of(conn))
        return channel_has_room(&owner_of(conn)->channel, LIMIT_WAIT_BYTES / 4);
    return conn->lingering || (!conn->closing && !conn->stash.len && !is_storing(conn) &&
                               (conn->current || conn->held || may_begin(conn)));
}

/* Nothing is read while an answer is due that may be long in coming: is the client still there? */
static bool wants_hangup(struct conn *conn)
{
    return conn->first && !conn->dead && !conn->lingering && !conn->eof && !conn->hangup &&
           !conn->socket;
}

/* Is an answer ready behind one that Emacs has still to give? */
static bool has_blocked_answer(struct conn *conn)
{
    if (!conn->first || is_ready(conn->first))
        return false;
    for (struct exchange *next = conn->first->next_on_conn; next; next = next->next_on_conn)
        if (is_ready(next))
            return true;
    return false;
}

/* What CONN's client is behind with reading takes this much memory.  That of a WebSocket has limits of its own, and
 * may be shared with others. */
static size_t bytes_behind(const struct conn *conn)
{
    size_t bytes = 0;
    if (conn->want_write && !conn->socket)
        for (struct exchange *exchange = conn->first; exchange; exchange = exchange->next_on_conn) {
            bytes += atomic_load(&exchange->unsent_bytes);
            if (exchange->complete)
                bytes += exchange->reply.head.capacity + exchange->reply.body.capacity;
        }
    return bytes < LIMIT_HELD_BYTES_EACH ? bytes : LIMIT_HELD_BYTES_EACH;
}

static void settle(struct conn *conn)
{
    if (!conn->server) /* destroyed already */
        return;
    do
        step(conn);
    while ((!wants_reading(conn) || has_blocked_answer(conn)) && ask_to_be_woken(conn));
    if (conn->dead && !conn->first) {
        destroy(conn);
        return;
    }
    if (!conn->want_write)
        conn->full_ms = 0;
    set_held(conn, bytes_behind(conn));
    if (UNLIKELY(!hub_has_room(conn->hub)))
        hub_tick_within(conn->hub, LIMIT_HELD_MS / 3);
    set_events(conn, (wants_reading(conn)  ? UV_READABLE
                      : wants_hangup(conn) ? UV_DISCONNECT
                                           : 0) |
                         (conn->want_write && !conn->dead ? UV_WRITABLE : 0));
    hub_tick_within(conn->hub, shortest_timeout(&conn->server->limits));
}

/* ---- time ---- */

/* How many milliseconds of LIMIT are left since START; 0 when they are over, UINT64_MAX without limit. */
static uint64_t left(uint64_t now, uint64_t start, uint32_t limit_ms)
{
    if (!limit_ms)
        return UINT64_MAX;
    uint64_t due = start + limit_ms;
    return due > now ? due - now : 0;
}

/* When to give up one who has moved BYTES since START: now for 0, never for UINT64_MAX. */
static uint64_t left_to_crawl(uint64_t now, uint64_t start, uint64_t bytes, uint32_t limit_ms)
{
    if (!limit_ms || !start)
        return UINT64_MAX;
    return left(now, start + (uint64_t)limit_ms * LIMIT_CRAWL_TIMES,
                (uint32_t)least(1 + bytes * 1000 / LIMIT_CRAWL_BYTES_PER_S, UINT32_MAX));
}

/* Memory is short, and CONN's client keeps some of it by reading slowly.  True until half of it is free, so that not
 * each request has to wait for the end of another one. */
static bool keeps_others_waiting(struct conn *conn, uint64_t now)
{
    struct hub *hub = conn->hub;
    uint64_t ms = now - conn->full_ms;
    if (!conn->held_bytes || !hub->no_room_ms || ms < LIMIT_HELD_MS ||
        atomic_load(&hub->held_bytes) <= LIMIT_HELD_BYTES / 2)
        return false;
    uint64_t seconds = least((now - hub->no_room_ms) / 1000, 16);
    return conn->full_bytes * 1000 / ms < (uint64_t)LIMIT_HELD_BYTES_PER_S << seconds;
}

/* Requests that Lisp did not take, or did not answer, in time. */
static uint64_t check_waiting(struct conn *conn, uint64_t now)
{
    struct limits *limits = &conn->server->limits;
    uint64_t next = UINT64_MAX;
    struct exchange *before = NULL;
    for (struct exchange *exchange = conn->first; exchange;) {
        struct exchange *following = exchange->next_on_conn;
        int state = exchange_state(exchange);
        uint64_t queue = UINT64_MAX;
        uint64_t handler = UINT64_MAX;
        if (state == EXCHANGE_QUEUED)
            queue = left(now, exchange->delivered_ms, limits->queue_timeout_ms);
        if (state == EXCHANGE_QUEUED || state == EXCHANGE_RUNNING)
            handler = left(now, exchange->delivered_ms, limits->handler_timeout_ms);
        if (queue == 0)
            replace(conn, exchange, before, 503, "Emacs is busy");
        else if (handler == 0)
            replace(conn, exchange, before, 504, "the handler took too long");
        else
            next = least(next, least(queue, handler));
        before = before ? before->next_on_conn : conn->first;
        exchange = following;
    }
    return next;
}

/* An event stream on which nothing was said for long: a comment keeps proxies from giving it up, and
 * shows whether the client is still there.  Not when something waits to be written already. */
static uint64_t check_heartbeat(struct conn *conn, uint64_t now)
{
    struct exchange *exchange = conn->first;
    uint32_t interval_ms = atomic_load(&exchange->heartbeat_ms);
    if (!interval_ms || !exchange->begun || exchange_state(exchange) != EXCHANGE_STREAMING)
        return UINT64_MAX;
    /* A page that was closed refuses the first, so that the second cannot be written. */
    if ((conn->eof || conn->hangup) && interval_ms > PROBE_MS)
        interval_ms = PROBE_MS;
    uint64_t rest = left(now, conn->write_ms, interval_ms);
    if (rest)
        return rest;
    static const char chunk[] = "3\r\n:\n\n\r\n";
    static const char plain[] = ":\n\n";
    struct piece *piece = exchange->pieces.first ? NULL : piece_new(exchange);
    bool chunked = exchange->streamed_chunked;
    if (piece && buf_append(&piece->bytes, chunked ? chunk : plain,
                            chunked ? sizeof chunk - 1 : sizeof plain - 1, sizeof chunk)) {
#ifdef TCP_USER_TIMEOUT
        /* A client without power says nothing, so the kernel has to notice that it does not hear us. */
        unsigned timeout_ms = conn->server->limits.write_timeout_ms;
        setsockopt(conn->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
#endif
        piece->body_bytes = sizeof plain - 1;
        atomic_fetch_add(&exchange->unsent_bytes, piece->bytes.len);
        list_push(&exchange->pieces, &piece->item);
    } else if (piece) {
        piece_free(piece);
    }
    return interval_ms;
}

/* Is it up to some later event when EXCHANGE's answer comes, or ends? */
static bool is_open_ended(struct exchange *exchange)
{
    int state = exchange_state(exchange);
    return state == EXCHANGE_STREAMING ||
           (state == EXCHANGE_RUNNING && atomic_load(&exchange->deferred)) ||
           (state == EXCHANGE_LOOP && exchange->task);
}

uint64_t conn_check(struct conn *conn)
{
    uint64_t now = hub_now(conn->hub);
    struct limits *limits = &conn->server->limits;
    uint64_t next = UINT64_MAX;
    if (conn->dead)
        return UINT64_MAX;
    reap(conn);
    if (conn->lingering) {
        next = conn->end_ms > now ? conn->end_ms - now : 0;
        if (next == 0)
            conn->dead = true;
    } else if (conn->want_write && keeps_others_waiting(conn, now)) {
        die(conn);
    } else if (conn->want_write &&
               (next = least(left(now, conn->write_ms, limits->write_timeout_ms),
                             left_to_crawl(now, conn->full_ms, conn->full_bytes,
                                           limits->write_timeout_ms))) == 0) {
        die(conn);
    } else if (conn->first) {
        next = least(next, check_waiting(conn, now));
        if (conn->first)
            next = least(next, check_heartbeat(conn, now));
        if ((conn->eof || conn->hangup) && conn->first && is_open_ended(conn->first)) {
            /* A browser's closed tab looks the same as a client that only stopped sending.  Such a
             * client gets this long for the rest of its answer. */
            uint64_t rest = left(now, conn->end_ms, LINGER_MS);
            next = least(next, rest);
            if (rest == 0)
                die(conn);
        }
    }
    if (socket_of(conn)) {
        next = least(next, socket_check(conn->socket, conn->hub, conn->read_ms));
    } else if (!conn->dead && conn->current && !conn->lingering) {
        uint64_t rest = UINT64_MAX;
        if (is_storing(conn))
            conn->read_ms = conn->body_ms = now; /* it is the disk, or Lisp, that takes its time */
        else if (conn->body)
            rest = least(left(now, conn->read_ms, limits->body_timeout_ms),
                         left_to_crawl(now, conn->body_ms, conn->current->request.body_bytes,
                                       limits->body_timeout_ms));
        else if (conn->head_ms)
            rest = left(now, conn->head_ms, limits->head_timeout_ms);
        else if (!conn->first)
            rest = left(now, conn->read_ms, limits->head_timeout_ms);
        if (rest == 0)
            refuse(conn, 408, conn->body ? "the body stopped coming" : "the head took too long");
        next = least(next, rest);
    } else if (!conn->dead && !conn->first && !conn->lingering) {
        /* Between requests; a client that never sent one gets the time for a head. */
        uint64_t since = conn->read_ms > conn->write_ms && !conn->proxy ? conn->read_ms
                                                                        : conn->write_ms;
        uint64_t rest = left(now, since,
                             conn->sequence ? limits->idle_timeout_ms : limits->head_timeout_ms);
        if (rest == 0)
            conn->closing = true;
        next = least(next, rest);
    }
    settle(conn);
    return next;
}

/* ---- the beginning ---- */

void conn_open(struct hub *hub, struct server *server, int fd, const struct peer *peer)
{
    struct conn *conn = calloc(1, sizeof *conn);
    if (conn && server->proxied)
        conn->proxy = calloc(1, sizeof *conn->proxy);
    if (!conn || (server->proxied && !conn->proxy) || uv_poll_init(&hub->uv, &conn->poll, fd) < 0) {
        if (conn)
            free(conn->proxy);
        free(conn);
        close(fd);
        return;
    }
    atomic_fetch_add(&hub->conns_live, 1);
    conn->poll.data = conn;
    conn->fd = fd;
    conn->hub = hub;
    conn->server = server;
    conn->peer = *peer;
    conn->number = ++hub->conn_number;
    conn->read_ms = conn->write_ms = hub_now(hub);
    parser_init(&conn->parser, &server->limits, on_body, conn);
    conn->next = hub->conns;
    if (conn->next)
        conn->next->prev = conn;
    hub->conns = conn;
    hub->conns_count++;
    server->open_count++;
    atomic_store(&server->connections, server->open_count);
    settle(conn);
}
