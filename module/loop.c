/* loop.c - the background thread: listeners, the outbox, timeouts, start and end.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "loop.h"

#include "conn.h"
#include "relay.h"
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Accepted at once, so that new connections do not keep the open ones waiting. */
#define ACCEPT_MAX 64

/* A stopping server is looked at so often. */
#define STOP_LOOK_MS 1000

/* When out of fds or memory: so long until the next try to accept. */
#define ACCEPT_PAUSE_MS 100

/* ---- listeners ---- */

static void on_listener(uv_poll_t *handle, int status, int events);

static void poll_listeners(struct server *server, bool on)
{
    for (uint32_t i = 0; i < server->listeners_count; i++) {
        struct listener *listener = &server->listeners[i];
        if (listener->polling == on)
            continue;
        listener->polling = on;
        if (on)
            uv_poll_start(&listener->poll, UV_READABLE, on_listener);
        else
            uv_poll_stop(&listener->poll);
    }
    server->accepting = on;
}

static bool has_room(const struct hub *hub, const struct server *server)
{
    if (hub->conns_max && hub->conns_count >= hub->conns_max)
        return false;
    return !server->limits.connections_max || server->open_count < server->limits.connections_max;
}

/* FD, of a client, could not be moved up, and is about to take one of the last low ones.  From now on there
 * are no more connections than there are now. */
static bool crowds_emacs(struct hub *hub, int fd)
{
    if (!hub_is_scarce(hub, fd))
        return false;
    hub->conns_max = hub->conns_count ? hub->conns_count : 1;
    return true;
}

/* 503, without a connection that could be held open. */
static void turn_away(struct hub *hub, struct server *server, int fd)
{
    static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                                 "Content-Length: 0\r\nConnection: close\r\n\r\n";
    send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    atomic_fetch_add_explicit(&server->errors, 1, memory_order_relaxed);
    /* With a request unread the end would be a reset, and that may overtake the answer. */
    (void)!recv(fd, hub->read_buffer, sizeof hub->read_buffer, MSG_DONTWAIT);
    close(fd);
}

static void on_listener(uv_poll_t *handle, int status, int events)
{
    struct listener *listener = handle->data;
    struct server *server = listener->server;
    struct hub *hub = listener->hub;
    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPT_MAX; i++) {
        if (!has_room(hub, server)) {
            /* The kernel's queue holds the others until a connection leaves. */
            poll_listeners(server, false);
            return;
        }
        struct peer peer = {0};
        socklen_t len = sizeof peer;
        int fd = accept4(listener->fd, &peer.address.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                poll_listeners(server, false);
                hub_tick_within(hub, ACCEPT_PAUSE_MS);
            }
            return;
        }
        fd = hub_move_up(fd);
        if (crowds_emacs(hub, fd)) {
            close(fd);
            continue;
        }
        /* Behind a proxy all have the same address until it has said who they are. */
        if (!server->proxied && !conn_address_has_room(hub, server, &peer, NULL)) {
            turn_away(hub, server, fd);
            continue;
        }
        conn_open(hub, server, fd, &peer);
    }
}

static void start_server(struct loop *loop, struct server *server)
{
    loop->servers[server->number] = server;
    server->phase = SERVER_LISTENING;
    for (uint32_t i = 0; i < server->listeners_count; i++) {
        struct listener *listener = &server->listeners[i];
        listener->hub = &loop->hub;
        listener->poll.data = listener;
        uv_poll_init(&loop->hub.uv, &listener->poll, listener->fd);
    }
    poll_listeners(server, true);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;
    struct server *server = listener->server;
    /* The handles lie in SERVER, which goes back to Emacs only when all are closed. */
    listener->hub = NULL;
    server->closing_count--;
    hub_tick_within(CONTAINER_OF(handle->loop, struct hub, uv), 0);
}

static void close_listeners(struct server *server)
{
    poll_listeners(server, false);
    for (uint32_t i = 0; i < server->listeners_count; i++) {
        server->closing_count++;
        uv_close((uv_handle_t *)&server->listeners[i].poll, on_listener_closed);
    }
    server_close_listeners(server);
}

static void stop_server(struct loop *loop, struct server *server)
{
    if (server->phase != SERVER_LISTENING)
        return;
    server->phase = SERVER_STOPPING;
    uint32_t timeout_ms = server->limits.stop_timeout_ms;
    server->stop_ms = timeout_ms ? hub_now(&loop->hub) + timeout_ms : UINT64_MAX;
    close_listeners(server);
    for (struct conn *conn = loop->hub.conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn->server == server)
            conn_stop(conn);
    }
    hub_tick_within(&loop->hub, timeout_ms ? timeout_ms : STOP_LOOK_MS);
}

/* ---- logs ---- */

/* Hand over what SERVER's log has gathered, if it is time or if it is to END. */
static uint64_t check_log(struct loop *loop, struct server *server, bool end)
{
    struct log *log = server->log;
    struct hub *hub = &loop->hub;
    uint64_t due = log_due(log, hub_now(hub));
    if (due && !(end && log->pending_ms && !log_is_writing(log)))
        return due;
    struct buf lines = log_take(log, &hub->uv);
    struct log_batch *batch = log->to_buffer ? log_batch_new(server->number) : NULL;
    if (batch) {
        batch->lines = lines;
        atomic_store(&log->taken, false);
        hub_notify(hub, &batch->item);
    } else {
        buf_free(&lines);
    }
    return UINT64_MAX;
}

static void add_lines(struct loop *loop, struct log_batch *batch)
{
    struct server *server = loop->servers[batch->id];
    if (server && server->log) {
        log_append(server->log, batch->lines.data, batch->lines.len, hub_now(&loop->hub));
        hub_tick_within(&loop->hub, LOG_BATCH_MS);
    }
    log_batch_free(batch);
}

/* A stopping server's end: cut off what takes too long; tell Emacs when nothing is left. */
static uint64_t check_server(struct loop *loop, struct server *server)
{
    struct hub *hub = &loop->hub;
    if (server->phase == SERVER_LISTENING) {
        if (!server->accepting && has_room(hub, server))
            poll_listeners(server, true);
        return server->log ? check_log(loop, server, false) : UINT64_MAX;
    }
    if (server->phase != SERVER_STOPPING)
        return UINT64_MAX;
    if (hub_now(hub) >= server->stop_ms) {
        for (struct conn *conn = hub->conns, *next; conn; conn = next) {
            next = conn->next;
            if (conn->server == server)
                conn_kill(conn);
        }
    }
    bool rests = server->open_count == 0 && server->closing_count == 0 && server->out_count == 0;
    uint64_t log_due = server->log ? check_log(loop, server, rests) : UINT64_MAX;
    if (rests && server->log && (log_is_writing(server->log) || server->log->pending_ms))
        return 10;
    if (rests) {
        loop->servers[server->number] = NULL;
        server->phase = SERVER_GONE;
        server->item.kind = ITEM_SERVER_GONE;
        hub_notify(hub, &server->item);
        return UINT64_MAX;
    }
    uint64_t now = hub_now(hub);
    uint64_t stop_due = server->stop_ms > now ? server->stop_ms - now : 50;
    if (stop_due > STOP_LOOK_MS)
        stop_due = STOP_LOOK_MS;
    return stop_due < log_due ? stop_due : log_due;
}

/* ---- the tick ---- */

static void on_tick(uv_timer_t *timer)
{
    struct loop *loop = timer->data;
    struct hub *hub = &loop->hub;
    uint64_t next = UINT64_MAX;
    for (struct conn *conn = hub->conns, *following; conn; conn = following) {
        following = conn->next;
        uint64_t due = conn_check(conn);
        next = due < next ? due : next;
    }
    for (uint32_t i = 0; i < ARRAY_LEN(loop->servers); i++) {
        if (!loop->servers[i])
            continue;
        uint64_t due = check_server(loop, loop->servers[i]);
        next = due < next ? due : next;
    }
    /* Not finer than this: a thousand deadlines in one second are ten looks, not a thousand. */
    if (next != UINT64_MAX)
        hub_tick_within(hub, next < 100 && next > 5 ? 100 : next);
}

/* ---- the outbox ---- */

static void set_bell(struct hub *hub, int fd)
{
    if (hub->bell.loop_fd >= 0)
        close(hub->bell.loop_fd);
    hub->bell.loop_fd = fd;
    /* The old bell's byte may have been lost with it. */
    atomic_store(&hub->bell.state, BELL_IDLE);
    if (queue_filled(&hub->inbox))
        bell_ring_from_loop(&hub->bell, false);
}

/* SERVER may be gone, and be Emacs's to free, since it was sent. */
static bool is_ours(const struct loop *loop, const struct server *server)
{
    for (uint32_t i = 0; i < ARRAY_LEN(loop->servers); i++)
        if (loop->servers[i] == server)
            return true;
    return false;
}

static void change_entry(struct loop *loop, struct command *command)
{
    if (command->item.kind == ITEM_RELOAD) {
        if (is_ours(loop, command->server))
            entry_reload(command->server, command->number);
    } else if (!is_ours(loop, command->server))
        entry_release(command->entry);
    else if (command->entry)
        entry_enter(command->server, command->entry);
    else
        entry_remove(command->server, command->number);
}

static void carry_out(struct loop *loop, struct command *command)
{
    if (command->item.kind == ITEM_STOP)
        stop_server(loop, command->server);
    else if (command->item.kind == ITEM_BELL)
        set_bell(&loop->hub, command->fd);
    else
        change_entry(loop, command);
    if (command->done)
        uv_sem_post(command->done);
    free(command);
}

static void free_leavings(struct hub *hub, struct leavings *leavings)
{
    spool_discard_files(hub, &leavings->request);
    request_clear(&leavings->request);
    free(leavings);
}

static void drain_outbox(struct loop *loop)
{
    struct hub *hub = &loop->hub;
    struct item_list items = queue_take(&hub->outbox);
    for (struct item *item; (item = list_pop(&items));) {
        switch ((enum item_kind)item->kind) {
        case ITEM_ANSWER:
            conn_answer(hub, CONTAINER_OF(item, struct exchange, item), items.first);
            break;
        case ITEM_PIECE:
            conn_piece(CONTAINER_OF(item, struct piece, item));
            break;
        case ITEM_LOG:
            add_lines(loop, CONTAINER_OF(item, struct log_batch, item));
            break;
        case ITEM_SOCKET:
            conn_upgrade(CONTAINER_OF(item, struct socket, item));
            break;
        case ITEM_FILES:
            free_leavings(hub, CONTAINER_OF(item, struct leavings, item));
            break;
        case ITEM_RELAY:
            relay_watch(hub, CONTAINER_OF(item, struct relay, item));
            break;
        case ITEM_LISTEN:
            start_server(loop, CONTAINER_OF(item, struct server, item));
            break;
        case ITEM_STOP:
        case ITEM_BELL:
        case ITEM_ENTRY:
        case ITEM_RELOAD:
            carry_out(loop, CONTAINER_OF(item, struct command, item));
            break;
        default:
            CHECK(!"an item that the loop sends itself");
        }
    }
}

static void on_wake(uv_async_t *async)
{
    drain_outbox(async->data);
}

/* Emacs waits for clients to read what it has answered. */
static void look_for_room(struct hub *hub)
{
    if (hub_has_room(hub)) {
        hub->no_room_ms = 0;
        atomic_store(&hub->wants_room, false);
        bell_ring_from_loop(&hub->bell, false);
    } else if (!hub->no_room_ms) {
        hub->no_room_ms = hub_now(hub);
    }
}

/* Before and after each wait: what has gathered goes over, what has come back is taken in. */
static void trade(struct loop *loop)
{
    if (queue_filled(&loop->hub.outbox))
        drain_outbox(loop);
    if (UNLIKELY(loop->hub.parked.first != NULL))
        conn_unpark(&loop->hub);
    hub_flush(&loop->hub);
    if (UNLIKELY(atomic_load(&loop->hub.wants_room)))
        look_for_room(&loop->hub);
}

static void on_prepare(uv_prepare_t *prepare)
{
    trade(prepare->data);
}

static void on_check(uv_check_t *check)
{
    trade(check->data);
}

/* ---- the thread ---- */

static void on_walk(uv_handle_t *handle, void *data)
{
    (void)data;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* Everything that is still open, at the end. */
static void close_all(struct loop *loop)
{
    struct hub *hub = &loop->hub;
    for (uint32_t i = 0; i < ARRAY_LEN(loop->servers); i++) {
        struct server *server = loop->servers[i];
        if (server && server->phase == SERVER_LISTENING) {
            server->phase = SERVER_STOPPING;
            entry_quiet(server);
            close_listeners(server);
        }
    }
    for (struct conn *conn = hub->conns, *next; conn; conn = next) {
        next = conn->next;
        conn_quit(conn);
    }
}

static void do_nothing(uv_work_t *work)
{
    (void)work;
}

/* libuv starts the threads of its pool when it first has work for them, and they inherit the signal mask of who
 * brings it.  That is to be the loop's thread: Emacs's, which may run the loop later (turn.h), holds none. */
static void start_pool(struct loop *loop)
{
    uv_queue_work(&loop->hub.uv, &loop->first_work, do_nothing, NULL);
}

static void run(void *data)
{
    struct loop *loop = data;
    struct hub *hub = &loop->hub;
    prctl(PR_SET_TIMERSLACK, 1000);
    start_pool(loop);
    while (!atomic_load(&loop->quit)) {
        uv_run(&hub->uv, UV_RUN_ONCE);
        turn_lend(&loop->turn);
    }
    drain_outbox(loop);
    close_all(loop);
    conn_unpark(hub);
    hub_flush(hub);
    uv_walk(&hub->uv, on_walk, NULL);
    uv_run(&hub->uv, UV_RUN_DEFAULT);
    for (uint32_t i = 0; i < ARRAY_LEN(loop->servers); i++)
        if (loop->servers[i] && loop->servers[i]->log)
            log_finish(loop->servers[i]->log);
    uv_sem_post(&loop->ended);
}

/* Room for many connections beside Emacs's own fds, which stay below its limit. */
static void raise_fd_limit(struct hub *hub)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    rlim_t wanted = 65536;
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < wanted)
        wanted = limit.rlim_max;
    if (limit.rlim_cur < wanted) {
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = wanted;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
            limit.rlim_cur = before;
    }
    hub->low_fds = limit.rlim_cur < HUB_EMACS_FDS ? (int)limit.rlim_cur : HUB_EMACS_FDS;
}

static int init(struct loop *loop)
{
    struct hub *hub = &loop->hub;
    int error;
    if ((error = queue_init(&hub->inbox)) < 0)
        return error;
    if ((error = queue_init(&hub->outbox)) < 0)
        goto fail_outbox;
    if ((error = uv_sem_init(&loop->ended, 0)) < 0)
        goto fail_sem;
    if ((error = turn_init(&loop->turn)) < 0)
        goto fail_turn;
    if ((error = uv_loop_init(&hub->uv)) < 0)
        goto fail_loop;
    if ((error = uv_async_init(&hub->uv, &loop->wake, on_wake)) < 0)
        goto fail_async;
    loop->wake.data = loop;
    uv_timer_init(&hub->uv, &hub->tick);
    hub->tick.data = loop;
    hub->on_tick = on_tick;
    hub->on_completed = conn_completed;
    uv_timer_init(&hub->uv, &hub->stale);
    hub->stale.data = hub;
    uv_prepare_init(&hub->uv, &loop->prepare);
    loop->prepare.data = loop;
    uv_prepare_start(&loop->prepare, on_prepare);
    uv_check_init(&hub->uv, &loop->check);
    loop->check.data = loop;
    uv_check_start(&loop->check, on_check);
    return 0;

fail_async:
    uv_loop_close(&hub->uv);
fail_loop:
    turn_destroy(&loop->turn);
fail_turn:
    uv_sem_destroy(&loop->ended);
fail_sem:
    queue_destroy(&hub->outbox);
fail_outbox:
    queue_destroy(&hub->inbox);
    return error;
}

static void uninit(struct loop *loop)
{
    struct hub *hub = &loop->hub;
    for (struct item *item; (item = list_pop(&hub->spare));)
        exchange_free(CONTAINER_OF(item, struct exchange, item));
    cache_free(hub->cache);
    frame_pool_free(&hub->frames);
    deflater_free(hub->deflater);
    if (hub->bell.loop_fd >= 0)
        close(hub->bell.loop_fd);
    uv_loop_close(&hub->uv);
    turn_destroy(&loop->turn);
    uv_sem_destroy(&loop->ended);
    queue_destroy(&hub->outbox);
    queue_destroy(&hub->inbox);
}

void loop_free(struct loop *loop)
{
    uninit(loop);
    free(loop);
}

struct loop *loop_start(int bell_fd, int *error)
{
    struct loop *loop = calloc(1, sizeof *loop);
    *error = UV_ENOMEM;
    if (loop) {
        loop->hub.bell.loop_fd = -1;
        loop->hub.bell.emacs_fd = -1;
        *error = init(loop);
    }
    if (*error < 0) {
        free(loop);
        close(bell_fd);
        return NULL;
    }
    loop->hub.bell.loop_fd = bell_fd;
    raise_fd_limit(&loop->hub);
    /* The thread, and those libuv starts from it, inherit a full mask: SIGPIPE is deadly to a
     * batch Emacs, and SIGCHLD and the others are not ours. */
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    *error = uv_thread_create(&loop->thread, run, loop);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (*error < 0) {
        uv_walk(&loop->hub.uv, on_walk, NULL);
        uv_run(&loop->hub.uv, UV_RUN_DEFAULT);
        loop_free(loop);
        return NULL;
    }
    return loop;
}

static bool wait_for(uv_sem_t *sem, unsigned timeout_ms)
{
    /* libuv has no timed wait on a semaphore; the wait is short or hopeless. */
    static const struct timespec pause = {0, 100 * 1000};
    for (uint64_t end = uv_hrtime() + (uint64_t)timeout_ms * 1000000; uv_sem_trywait(sem) < 0;) {
        if (uv_hrtime() >= end)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

bool loop_stop(struct loop *loop, unsigned timeout_ms)
{
    atomic_store(&loop->quit, true);
    turn_return(&loop->turn);
    loop_wake(loop);
    if (!wait_for(&loop->ended, timeout_ms))
        return false;
    uv_thread_join(&loop->thread);
    return true;
}

bool loop_turn(struct loop *loop)
{
    if (!turn_take(&loop->turn))
        return false;
    loop->hub.turn_until_ns = loop->turn.taken_ns + TURN_NS;
    uv_run(&loop->hub.uv, UV_RUN_NOWAIT);
    loop->hub.turn_until_ns = 0;
    turn_give(&loop->turn);
    return true;
}

void loop_wake(struct loop *loop)
{
    if (!turn_is_lent(&loop->turn))
        uv_async_send(&loop->wake);
}

static void send_item(struct loop *loop, struct item *item)
{
    queue_push(&loop->hub.outbox, item);
    loop_wake(loop);
}

void loop_listen(struct loop *loop, struct server *server)
{
    server->item.kind = ITEM_LISTEN;
    send_item(loop, &server->item);
}

static bool command(struct loop *loop, struct command *command, unsigned timeout_ms)
{
    /* The semaphore must outlive a loop that answers too late, so it is leaked in that case. */
    uv_sem_t *done = malloc(sizeof *done);
    if (!done || uv_sem_init(done, 0) < 0) {
        free(done);
        done = NULL;
    }
    command->done = done;
    turn_return(&loop->turn);
    send_item(loop, &command->item);
    if (!done || !wait_for(done, timeout_ms))
        return false;
    uv_sem_destroy(done);
    free(done);
    return true;
}

/* A command of KIND about SERVER, or NULL. */
static struct command *command_new(int kind, struct server *server)
{
    struct command *command = calloc(1, sizeof *command);
    if (command) {
        command->item.kind = kind;
        command->server = server;
    }
    return command;
}

bool loop_stop_server(struct loop *loop, struct server *server, unsigned timeout_ms)
{
    struct command *stop = command_new(ITEM_STOP, server);
    return stop && command(loop, stop, timeout_ms);
}

bool loop_enter(struct loop *loop, struct server *server, struct entry *entry, uint32_t number)
{
    struct command *enter = command_new(ITEM_ENTRY, server);
    if (!enter)
        return false;
    enter->entry = entry;
    enter->number = number;
    send_item(loop, &enter->item);
    return true;
}

bool loop_reload(struct loop *loop, struct server *server, bool style)
{
    struct command *reload = command_new(ITEM_RELOAD, server);
    if (!reload)
        return false;
    reload->number = style;
    send_item(loop, &reload->item);
    return true;
}

bool loop_set_bell(struct loop *loop, int fd)
{
    struct command *bell = command_new(ITEM_BELL, NULL);
    if (!bell)
        return false;
    bell->fd = fd;
    send_item(loop, &bell->item);
    return true;
}
