/* glue_relay.c - the far ends of the processes that porter-web-server.el makes.
 *
 * Thread: Emacs.  Relays are named by numbers; a number that is not in use any more is harmless.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "glue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct relay *find(emacs_env *env, emacs_value number)
{
    intmax_t n = env->extract_integer(env, number);
    return lisp_failed(env) ? NULL : relay_find(&bridge.relays, n);
}

static const char listen_doc[] =
    "Listen on the new Unix-domain socket PATH for processes; if it is nil, on none.";
GLUE_FUNCTION(listen_for)
{
    char *path = lisp_c_string(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    bool ok = relay_listen(&bridge.relays, path);
    free(path);
    if (!ok)
        lisp_signal(env, "porter-error", strerror(errno), args[0]);
    return lisp.nil;
}

static const char accept_doc[] =
    "The number of the relay whose process Emacs has just connected; nil when there is none.";
GLUE_FUNCTION(accept_relay)
{
    struct relay *relay = relay_accept(&bridge.relays);
    return relay ? lisp_integer(env, relay->number) : lisp.nil;
}

static const char clean_doc[] = "Is relay NUMBER connected, and holds nothing that was not read?";
GLUE_FUNCTION(clean)
{
    struct relay *relay = find(env, args[0]);
    return lisp_boolean(relay && relay_look(relay) == RELAY_NOTHING);
}

static const char read_doc[] =
    "What relay NUMBER holds, at most MAX bytes; nil when nothing will come any more.\n\n"
    "(fn NUMBER MAX)";
GLUE_FUNCTION(read_bytes)
{
    struct relay *relay = find(env, args[0]);
    intmax_t max = env->extract_integer(env, args[1]);
    struct buf bytes = {0};
    emacs_value result = lisp.nil;
    if (lisp_failed(env))
        return NULL;
    switch (relay ? relay_take(relay, &bytes, max < 0 ? 0 : (size_t)max) : RELAY_END) {
    case RELAY_SOME:
    case RELAY_NOTHING:
        result = lisp_bytes(env, bytes.len ? bytes.data : "", bytes.len);
        break;
    case RELAY_END:
        break;
    case RELAY_NO_MEMORY:
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
        break;
    }
    buf_free(&bytes);
    return result;
}

static const char head_doc[] =
    "As `porter--mod-head' with ID, CODE and FIELDS, if relay NUMBER holds nothing; else nil.\n\n"
    "(fn NUMBER ID CODE FIELDS)";
GLUE_FUNCTION(head)
{
    struct relay *relay = find(env, args[0]);
    struct exchange *exchange = glue_exchange(env, args[1]);
    if (lisp_failed(env))
        return NULL;
    if (!relay || !exchange || exchange->reply.phase != REPLY_EMPTY ||
        relay_look(relay) != RELAY_NOTHING)
        return lisp.nil;
    return glue_set_head(env, &exchange->reply, args[2], args[3]) ? lisp.t : NULL;
}

static const char pass_doc[] =
    "Append what relay NUMBER holds to the body of the answer to request ID.\n"
    "Return nil when nothing will come any more.\n\n(fn NUMBER ID)";
GLUE_FUNCTION(pass)
{
    struct relay *relay = find(env, args[0]);
    struct exchange *exchange = glue_exchange(env, args[1]);
    struct buf ignored = {0};
    if (lisp_failed(env))
        return NULL;
    bool wanted = exchange && bridge_live(exchange) && !exchange->channel.open &&
                  exchange->reply.phase != REPLY_EMPTY;
    enum relay_read result = RELAY_END;
    if (relay)
        result = relay_take(relay, wanted ? &exchange->reply.body : &ignored, SIZE_MAX);
    buf_free(&ignored);
    if (result == RELAY_NO_MEMORY)
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
    return lisp_boolean(result != RELAY_END);
}

static const char watch_doc[] =
    "Have `porter--mod-take' return (relay . NUMBER), once, when relay NUMBER holds something.";
GLUE_FUNCTION(watch)
{
    struct relay *relay = find(env, args[0]);
    return lisp_boolean(relay && bridge_watch(&bridge, relay));
}

static const char own_doc[] =
    "What the client of request ID sends from now on is no request, but comes in pieces as a body "
    "does.";
GLUE_FUNCTION(own)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    if (exchange && bridge_live(exchange))
        bridge_own(&bridge, exchange);
    return lisp.nil;
}

static const char hang_up_doc[] =
    "Let the process of relay NUMBER find its connection closed.  What it sends is still read.";
GLUE_FUNCTION(hang_up)
{
    struct relay *relay = find(env, args[0]);
    if (relay)
        relay_hang_up(relay);
    return lisp.nil;
}

static const char drop_doc[] = "Be done with relay NUMBER.";
GLUE_FUNCTION(drop)
{
    struct relay *relay = find(env, args[0]);
    if (relay)
        relay_drop(&bridge.relays, relay);
    return lisp.nil;
}

static const struct glue_function functions[] = {
    {"porter--mod-relay-listen", 1, listen_for, listen_doc},
    {"porter--mod-relay-accept", 0, accept_relay, accept_doc},
    {"porter--mod-relay-clean", 1, clean, clean_doc},
    {"porter--mod-relay-read", 2, read_bytes, read_doc},
    {"porter--mod-relay-head", 4, head, head_doc},
    {"porter--mod-relay-pass", 2, pass, pass_doc},
    {"porter--mod-relay-watch", 1, watch, watch_doc},
    {"porter--mod-relay-hang-up", 1, hang_up, hang_up_doc},
    {"porter--mod-own", 1, own, own_doc},
    {"porter--mod-relay-drop", 1, drop, drop_doc},
};
const struct glue_table glue_relay_table = {functions, ARRAY_LEN(functions)};
