/* glue_drain.c - the doorbell, the loop's thread and the drain.
 *
 * Thread: Emacs.  A drain takes from the queue what the loop has put there;
 * lisp/porter-bridge.el says when.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "glue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- the doorbell and the thread ---- */

/* The listening socket of a doorbell for Emacs 25 to 27, until Emacs has connected to it. */
static int bell_listener = -1;

static const char bell_listen_doc[] =
    "Listen on the new Unix-domain socket PATH for the doorbell's connection.";
GLUE_FUNCTION(bell_listen)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char *path = lisp_c_string(env, args[0]);
    if (!path)
        return NULL;
    bool fits = strlen(path) < sizeof un.sun_path;
    if (fits)
        memcpy(un.sun_path, path, strlen(path) + 1);
    free(path);
    if (bell_listener >= 0)
        close(bell_listener);
    bell_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!fits || bell_listener < 0 || bind(bell_listener, (struct sockaddr *)&un, sizeof un) < 0 ||
        listen(bell_listener, 1) < 0)
        lisp_signal(env, "porter-module-error", "Cannot listen for the doorbell", args[0]);
    return lisp.nil;
}

/* The connection that Emacs has made to BELL_LISTENER; -1 with a signal.  Nobody else may hold
 * it: the directory is private, and the peer has to be this process. */
static int accept_bell(emacs_env *env)
{
    int fd = -1;
    for (;;) {
        fd = accept4(bell_listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
#ifdef SO_PEERCRED
        struct ucred peer;
        socklen_t len = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid != getpid()) {
            close(fd);
            continue;
        }
#endif
        break;
    }
    close(bell_listener);
    bell_listener = -1;
    if (fd < 0)
        lisp_signal(env, "porter-module-error", "Nobody connected to the doorbell", NULL);
    return fd;
}

static const char bell_doc[] =
    "Ring PROCESS from now on, a pipe process; t for the connection to `porter--mod-bell-listen'.\n"
    "Start the loop thread if it does not run.";
GLUE_FUNCTION(bell)
{
    int fd = env->eq(env, args[0], lisp.t) ? accept_bell(env) : lisp_open_channel(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    int error = wake_prepare_fd(fd);
    int emacs_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (error < 0 || emacs_fd < 0 || (bridge.loop && !loop_set_bell(bridge.loop, fd))) {
        close(fd);
        if (emacs_fd >= 0)
            close(emacs_fd);
        lisp_signal(env, "porter-module-error", "Cannot set the doorbell up", NULL);
        return NULL;
    }
    if (!bridge.loop) {
        error = bridge_start(&bridge, fd);
        if (error < 0) {
            close(emacs_fd);
            lisp_signal(env, "porter-module-error", uv_strerror(error), NULL);
            return NULL;
        }
    }
    bridge_set_bell(&bridge, emacs_fd);
    return lisp.t;
}

static const char ring_doc[] = "Ring the doorbell for what is left to do.";
GLUE_FUNCTION(ring)
{
    if (bridge.loop)
        bell_ring_from_emacs(&bridge.loop->hub.bell);
    return lisp.nil;
}

static const char stop_loop_doc[] =
    "Close everything and end the loop thread, within MS milliseconds.";
GLUE_FUNCTION(stop_loop)
{
    intmax_t ms = env->extract_integer(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    bridge_stop(&bridge, ms < 0 ? 0 : (unsigned)ms);
    return lisp.nil;
}

/* ---- a drain ---- */

static const char begin_doc[] =
    "Begin a drain that is to take USEC microseconds at most.\n"
    "Nil when too many are under way: then leave it to them, and do not end it.";
GLUE_FUNCTION(begin)
{
    intmax_t usec = env->extract_integer(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    return lisp_boolean(bridge_begin(&bridge, usec < 0 ? 0 : (uint64_t)usec));
}

static const char take_doc[] =
    "Take the next thing to do.  Call with `inhibit-quit' non-nil: a pending quit would lose it.\n"
    "A number not negative is a request's id.  A negative one, -1 - ID, says that the client of ID "
    "has gone,\n"
    "or the loop has answered in the handler's place.\n"
    "(t . NUMBER) says that the stopped server NUMBER is gone, (STRING . NUMBER) brings lines of "
    "its "
    "log.\n"
    "From a WebSocket come (ID . STRING) for a text message, (-1 - ID . STRING) for a binary one,\n"
    "(ID pong . STRING), (ID drained), and at its end (ID CODE . REASON).\n"
    "(relay . NUMBER) says that something is in a relay that was watched.\n"
    "Nil: nothing to do, or time is up.";
static emacs_value message_event(emacs_env *env, struct message *message)
{
    intmax_t id = (intmax_t)message->id;
    struct buf *bytes = &message->bytes;
    emacs_value event = NULL;
    if (message->opcode == MESSAGE_BODY || message->opcode == MESSAGE_BODY_END) {
        event = message->opcode == MESSAGE_BODY ? lisp_bytes(env, bytes->data, bytes->len)
                                                : lisp.nil;
        message_free(message);
        return lisp_cons(env, lisp_integer(env, id),
                         lisp_cons(env, env->intern(env, "body"), event));
    }
    if (message->opcode == FRAME_TEXT) {
        /* The loop has checked that it is UTF-8. */
        event = env->make_string(env, bytes->len ? bytes->data : "", (ptrdiff_t)bytes->len);
    } else {
        event = lisp_bytes(env, bytes->data, bytes->len);
        if (message->opcode == FRAME_BINARY)
            id = -1 - id;
        else
            event = lisp_cons(env, env->intern(env, "pong"), event);
    }
    message_free(message);
    return lisp_cons(env, lisp_integer(env, id), event);
}

static emacs_value closed_event(emacs_env *env, struct notice *notice)
{
    emacs_value why = lisp_cons(env, lisp_integer(env, notice->code),
                                lisp_text(env, notice->reason, notice->reason_len));
    emacs_value event = lisp_cons(env, lisp_integer(env, (intmax_t)notice->id), why);
    free(notice);
    return event;
}

GLUE_FUNCTION(take)
{
    struct bridge_event event;
    bridge_take(&bridge, &event);
    switch (event.kind) {
    case BRIDGE_REQUEST:
        return lisp_integer(env, (intmax_t)event.id);
    case BRIDGE_CLOSED:
        return lisp_integer(env, -1 - (intmax_t)event.id);
    case BRIDGE_LOG: {
        emacs_value lines = lisp_text(env, event.lines.data, event.lines.len);
        buf_free(&event.lines);
        return lisp_cons(env, lines, lisp_integer(env, (intmax_t)event.id));
    }
    case BRIDGE_SERVER_GONE:
        return lisp_cons(env, lisp.t, lisp_integer(env, (intmax_t)event.id));
    case BRIDGE_RELAY:
        return lisp_cons(env, env->intern(env, "relay"), lisp_integer(env, (intmax_t)event.id));
    case BRIDGE_MESSAGE:
        return message_event(env, event.message);
    case BRIDGE_SOCKET_CLOSED:
        return closed_event(env, event.notice);
    case BRIDGE_DRAINED: {
        emacs_value drained[] = {lisp_integer(env, (intmax_t)event.id),
                                 env->intern(env, "drained")};
        return lisp_list(env, drained, 2);
    }
    case BRIDGE_NOTHING:
        break;
    }
    return lisp.nil;
}

static const char end_doc[] = "End the drain.  Non-nil means something is left: ring for it.";
GLUE_FUNCTION(end)
{
    return lisp_boolean(bridge_end(&bridge));
}

static const char linger_doc[] =
    "Look for the next request for at most USEC microseconds, within the drain's time.";
GLUE_FUNCTION(linger)
{
    intmax_t usec = env->extract_integer(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    return lisp_boolean(bridge_linger(&bridge, usec < 0 ? 0 : (uint64_t)usec));
}

static const struct glue_function functions[] = {
    {"porter--mod-bell-listen", 1, bell_listen, bell_listen_doc},
    {"porter--mod-bell", 1, bell, bell_doc},
    {"porter--mod-ring", 0, ring, ring_doc},
    {"porter--mod-stop-loop", 1, stop_loop, stop_loop_doc},
    {"porter--mod-begin", 1, begin, begin_doc},
    {"porter--mod-take", 0, take, take_doc},
    {"porter--mod-end", 0, end, end_doc},
    {"porter--mod-linger", 1, linger, linger_doc},
};
const struct glue_table glue_drain_table = {functions, ARRAY_LEN(functions)};
