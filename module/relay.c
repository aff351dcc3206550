/* relay.c - the far end of an Emacs process.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "relay.h"

#include "check.h"
#include "exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- thread: Emacs ---- */

bool relay_listen(struct relay_table *table, const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (table->listening)
        close(table->listener);
    table->listening = false;
    if (!path)
        return true;
    if (strlen(path) >= sizeof un.sun_path) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(un.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (bind(fd, (struct sockaddr *)&un, sizeof un) < 0 || listen(fd, 16) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        return false;
    }
    table->listener = hub_move_up(fd);
    table->listening = true;
    return true;
}

/* Nobody but this process may be at the other end. */
static bool is_our_own(int fd)
{
#ifdef SO_PEERCRED
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid == getpid();
#else
    (void)fd; /* the directory is private */
    return true;
#endif
}

static struct relay **free_place(struct relay_table *table, int64_t *number)
{
    for (uint32_t i = 0; i < LIMIT_RELAYS; i++) {
        int64_t next = ++table->last_number;
        if (!table->relays[next % LIMIT_RELAYS]) {
            *number = next;
            return &table->relays[next % LIMIT_RELAYS];
        }
    }
    return NULL;
}

struct relay *relay_accept(struct relay_table *table)
{
    int fd;
    if (!table->listening)
        return NULL;
    do {
        fd = accept4(table->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        if (is_our_own(fd))
            break;
        close(fd);
    } while (true);
    fd = hub_move_up(fd);
    int64_t number;
    struct relay **place = free_place(table, &number);
    struct relay *relay = place ? calloc(1, sizeof *relay) : NULL;
    if (!relay) {
        close(fd);
        return NULL;
    }
    relay->item.kind = ITEM_RELAY;
    relay->number = number;
    relay->fd = fd;
    *place = relay;
    table->count++;
    return relay;
}

struct relay *relay_find(const struct relay_table *table, int64_t number)
{
    struct relay *relay = number > 0 ? table->relays[number % LIMIT_RELAYS] : NULL;
    return relay && relay->number == number && !relay->dropped ? relay : NULL;
}

static enum relay_read outcome(ssize_t n)
{
    if (n > 0)
        return RELAY_SOME;
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? RELAY_NOTHING : RELAY_END;
}

enum relay_read relay_look(const struct relay *relay)
{
    char byte;
    ssize_t n;
    do
        n = recv(relay->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    while (n < 0 && errno == EINTR);
    return outcome(n);
}

enum relay_read relay_take(const struct relay *relay, struct buf *buf, size_t bytes_max)
{
    enum relay_read result = RELAY_NOTHING;
    size_t room = 4096;
    while (bytes_max) {
        room = room < bytes_max ? room : bytes_max;
        if (!buf_reserve(buf, room, SIZE_MAX))
            return RELAY_NO_MEMORY;
        ssize_t n = recv(relay->fd, buf->data + buf->len, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return result == RELAY_SOME ? result : outcome(n);
        result = RELAY_SOME;
        buf->len += (size_t)n;
        bytes_max -= (size_t)n;
        if ((size_t)n < room)
            break; /* a stream's short read: there is no more */
        room = LIMIT_READ_BYTES;
    }
    return result;
}

void relay_hang_up(const struct relay *relay)
{
    shutdown(relay->fd, SHUT_WR);
}

static void relay_free(struct relay_table *table, struct relay *relay)
{
    table->relays[relay->number % LIMIT_RELAYS] = NULL;
    table->count--;
    close(relay->fd);
    free(relay);
}

void relay_drop(struct relay_table *table, struct relay *relay)
{
    if (!relay->watched) {
        relay_free(table, relay);
        return;
    }
    relay->dropped = true;
    shutdown(relay->fd, SHUT_RDWR); /* the loop takes it for an end, and gives it back */
}

bool relay_returned(struct relay_table *table, struct relay *relay)
{
    relay->watched = false;
    if (!relay->dropped)
        return true;
    relay_free(table, relay);
    return false;
}

void relay_recall(struct relay_table *table)
{
    for (uint32_t i = 0; i < LIMIT_RELAYS; i++)
        if (table->relays[i] && table->relays[i]->watched)
            relay_returned(table, table->relays[i]);
}

/* ---- thread: loop ---- */

static void on_poll_closed(uv_handle_t *handle)
{
    struct relay *relay = handle->data;
    hub_notify(CONTAINER_OF(handle->loop, struct hub, uv), &relay->item);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    uv_close((uv_handle_t *)poll, on_poll_closed);
}

void relay_watch(struct hub *hub, struct relay *relay)
{
    if (uv_poll_init(&hub->uv, &relay->poll, relay->fd) < 0) {
        hub_notify(hub, &relay->item); /* Emacs looks, and tries again */
        return;
    }
    relay->poll.data = relay;
    uv_poll_start(&relay->poll, UV_READABLE, on_poll);
}
