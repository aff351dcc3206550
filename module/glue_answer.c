/* glue_answer.c - what a handler says: status, header, body, trailers, the end.
 *
 * Thread: Emacs.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "glue.h"

typedef enum format_status field_adder(struct reply *, const char *, size_t, const char *, size_t);

/* One (NAME . VALUE) of an answer's header, or its trailers: as ADD says. */
static bool add_field(emacs_env *env, struct reply *reply, emacs_value pair, field_adder *add)
{
    char small[512];
    struct buf large = {0};
    char *bytes = small;
    ptrdiff_t name_size = 0;
    ptrdiff_t value_size = 0;
    emacs_value name = lisp_car(env, pair);
    emacs_value value = lisp_cdr(env, pair);
    if (lisp_failed(env))
        return false;
    if (!lisp_is_string(env, value)) /* a number, usually */
        value = lisp_print(env, value);
    if (!env->copy_string_contents(env, name, NULL, &name_size) ||
        !env->copy_string_contents(env, value, NULL, &value_size))
        return false;
    if ((size_t)(name_size + value_size) > sizeof small) {
        if (!buf_reserve(&large, (size_t)(name_size + value_size), SIZE_MAX))
            return glue_check(env, FORMAT_NO_MEMORY, NULL);
        bytes = large.data;
    }
    bool ok = env->copy_string_contents(env, name, bytes, &name_size) &&
              env->copy_string_contents(env, value, bytes + name_size, &value_size);
    if (ok)
        ok = glue_check(
            env,
            add(reply, bytes, (size_t)name_size - 1, bytes + name_size, (size_t)value_size - 1),
            pair);
    buf_free(&large);
    return ok;
}

bool glue_add_fields(emacs_env *env, struct reply *reply, emacs_value fields)
{
    for (; !lisp_is_nil(env, fields); fields = lisp_cdr(env, fields)) {
        emacs_value pair = lisp_car(env, fields);
        if (lisp_failed(env) || !add_field(env, reply, pair, format_field)) {
            /* Nothing of it counts: the handler's error will be answered instead. */
            reply_forget(reply);
            return false;
        }
    }
    return !lisp_failed(env);
}

bool glue_set_head(emacs_env *env, struct reply *reply, emacs_value code, emacs_value fields)
{
    intmax_t n = env->extract_integer(env, code);
    return !lisp_failed(env) &&
           glue_check(env, format_start(reply, n < 0 || n > 999 ? 0 : (int)n), code) &&
           glue_add_fields(env, reply, fields);
}

static const char head_doc[] =
    "Give the answer to request ID its status CODE and header FIELDS.\n"
    "FIELDS is an alist of strings.  Return nil when ID is finished.\n"
    "Signal `porter-invalid-status' or `porter-invalid-header'.\n\n(fn ID CODE FIELDS)";
GLUE_FUNCTION(head)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (!exchange)
        return lisp.nil;
    return glue_set_head(env, &exchange->reply, args[1], args[2]) ? lisp.t : NULL;
}

static const char interim_doc[] =
    "Send an interim answer to request ID, with CODE and FIELDS, before the final one.\n"
    "Return nil, and send nothing, when a part of the final one is out, it is finished, or the "
    "client\n"
    "speaks HTTP/1.0.\n\n(fn ID CODE FIELDS)";
GLUE_FUNCTION(interim)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    intmax_t code = env->extract_integer(env, args[1]);
    if (lisp_failed(env))
        return NULL;
    if (!exchange || !bridge_live(exchange) || exchange->reply.phase >= REPLY_STREAMING)
        return lisp.nil;
    struct reply reply = {0};
    enum format_status status = format_interim_start(&reply,
                                                     code < 0 || code > 999 ? 0 : (int)code);
    bool ok = glue_check(env, status, args[1]);
    for (emacs_value fields = args[2]; ok && !lisp_is_nil(env, fields);
         fields = lisp_cdr(env, fields)) {
        emacs_value pair = lisp_car(env, fields);
        ok = !lisp_failed(env) && add_field(env, &reply, pair, format_field);
    }
    ok = ok && !lisp_failed(env) && glue_check(env, format_interim_end(&reply), NULL);
    bool old = exchange->request.version_minor == 0;
    if (ok && !old)
        ok = glue_check(env, bridge_interim(&bridge, exchange, &reply.head), NULL);
    reply_free(&reply);
    return ok ? lisp_boolean(!old) : NULL;
}

static const char extra_doc[] =
    "Give the answer to request ID the field NAME with VALUE, whoever begins it and with what "
    "status.\n"
    "Return nil when a part of it is out, or it is finished.\n\n(fn ID NAME VALUE)";
GLUE_FUNCTION(extra)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (!exchange || exchange->reply.phase >= REPLY_STREAMING)
        return lisp.nil;
    emacs_value pair = lisp_cons(env, args[1], args[2]);
    return !lisp_failed(env) && add_field(env, &exchange->reply, pair, format_extra) ? lisp.t
                                                                                     : NULL;
}

static const char trailers_doc[] = "Add FIELDS to the trailers of the answer to request ID.\n"
                                   "Return nil when it is finished.\n\n(fn ID FIELDS)";
GLUE_FUNCTION(trailers)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (!exchange)
        return lisp.nil;
    for (emacs_value fields = args[1]; !lisp_is_nil(env, fields); fields = lisp_cdr(env, fields)) {
        emacs_value pair = lisp_car(env, fields);
        if (lisp_failed(env) || !add_field(env, &exchange->reply, pair, format_trailer))
            return NULL;
    }
    return lisp_failed(env) ? NULL : lisp.t;
}

/* Pieces of a growing answer leave at once. */
static bool flush_now(emacs_env *env, struct exchange *exchange)
{
    bool ok = glue_check(env, bridge_flush(&bridge, exchange), NULL);
    bridge_settle(&bridge);
    return ok;
}

static const char send_doc[] =
    "Append STRING to the body of the answer to request ID.\n"
    "Return nil when the answer is finished or the client has gone, `open' when the body is kept "
    "until\n"
    "the answer is complete, `streaming' when STRING is on its way.\n\n(fn ID STRING)";
GLUE_FUNCTION(send_string)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (!exchange || !bridge_live(exchange))
        return lisp.nil;
    struct reply *reply = &exchange->reply;
    if (exchange->channel.open) {
        lisp_signal(env, "porter-error", "A WebSocket: use porter-web-socket-send", NULL);
        return NULL;
    }
    if (reply->phase == REPLY_EMPTY) {
        lisp_signal(env, "porter-error", "Send before the response header", NULL);
        return NULL;
    }
    if (!lisp_append_string(env, args[1], &reply->body))
        return NULL;
    if (reply->phase == REPLY_OPEN)
        return env->intern(env, "open");
    return flush_now(env, exchange) ? env->intern(env, "streaming") : NULL;
}

static const char flush_doc[] =
    "Send what there is of the answer to request ID; the rest follows in pieces.";
GLUE_FUNCTION(flush)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (!exchange || !bridge_live(exchange) || exchange->reply.phase == REPLY_EMPTY ||
        exchange->channel.open)
        return lisp.nil;
    return flush_now(env, exchange) ? lisp.t : NULL;
}

static const char finish_doc[] =
    "Complete the answer to request ID.  Nil when it was finished, or has no status yet.\n"
    "With RETURNED non-nil its handler will not look at the request any more.\n\n(fn ID RETURNED)";
GLUE_FUNCTION(finish)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (!exchange || exchange->reply.phase == REPLY_EMPTY)
        return lisp.nil;
    bool keep = lisp_is_nil(env, args[1]);
    if (exchange->channel.open) {
        /* It goes on when its handler returns. */
        if (keep)
            return lisp_boolean(bridge_socket_close(&bridge, exchange, CODE_NORMAL, "", 0));
        bridge_defer(&bridge, exchange);
        return lisp.t;
    }
    return glue_check(env, bridge_finish(&bridge, exchange, keep), NULL) ? lisp.t : NULL;
}

static const char respond_doc[] =
    "Answer request ID at once with CODE, FIELDS and BODY, as `porter--mod-head' and\n"
    "`porter--mod-send' would.\n\n(fn ID CODE FIELDS BODY)";
GLUE_FUNCTION(respond)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (!exchange)
        return lisp.nil;
    struct reply *reply = &exchange->reply;
    if (!glue_set_head(env, reply, args[1], args[2]))
        return NULL;
    if (!lisp_is_nil(env, args[3]) && !lisp_append_string(env, args[3], &reply->body)) {
        reply_forget(reply);
        return NULL;
    }
    return glue_check(env, bridge_finish(&bridge, exchange, true), NULL) ? lisp.t : NULL;
}

static const char abort_doc[] =
    "Cut the answer to request ID off, so that the client takes it for incomplete.";
GLUE_FUNCTION(abort_answer)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (exchange)
        bridge_abort(&bridge, exchange);
    return lisp.nil;
}

static const char forget_doc[] = "Forget what was said in answer to request ID.  Nil when a part "
                                 "of it is out, or it is finished.";
GLUE_FUNCTION(forget)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (!exchange || exchange->reply.phase >= REPLY_STREAMING)
        return lisp.nil;
    reply_forget(&exchange->reply);
    return lisp.t;
}

static const char phase_doc[] =
    "How far the answer to request ID is: 0 nothing said, 1 status given, 2 growing; nil finished.";
GLUE_FUNCTION(phase)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    return exchange ? lisp_integer(env, exchange->reply.phase) : lisp.nil;
}

static const char live_doc[] =
    "Is the client of the unfinished request ID still there?  Of a WebSocket: is it open?";
GLUE_FUNCTION(live)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    return lisp_boolean(exchange && bridge_live(exchange) &&
                        (!exchange->channel.open || bridge_socket_open(exchange)));
}

static const char defer_doc[] = "The handler of request ID has returned and will answer later.";
GLUE_FUNCTION(defer)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    if (!exchange)
        return lisp.nil;
    bridge_defer(&bridge, exchange);
    return lisp.t;
}

static const char heartbeat_doc[] = "When nothing was sent to request ID, an event stream, for MS "
                                    "milliseconds, send a comment; 0 for "
                                    "never.";
GLUE_FUNCTION(heartbeat)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    intmax_t ms = env->extract_integer(env, args[1]);
    if (lisp_failed(env) || !exchange)
        return lisp.nil;
    /* The loop's comments are not compressed: they would be noise inside gzip. */
    if (exchange->reply.gzip || exchange->reply.gzip_asked)
        return lisp.nil;
    atomic_store(&exchange->heartbeat_ms, ms < 0 ? 0 : ms > INT32_MAX ? INT32_MAX : (unsigned)ms);
    return lisp.t;
}

static const char unsent_doc[] =
    "How many bytes of the growing answer to request ID wait for the client to read.";
GLUE_FUNCTION(unsent)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    return lisp_integer(env, exchange ? (intmax_t)atomic_load(&exchange->unsent_bytes) : 0);
}

static const struct glue_function functions[] = {
    {"porter--mod-head", 3, head, head_doc},
    {"porter--mod-interim", 3, interim, interim_doc},
    {"porter--mod-extra", 3, extra, extra_doc},
    {"porter--mod-trailers", 2, trailers, trailers_doc},
    {"porter--mod-send", 2, send_string, send_doc},
    {"porter--mod-flush", 1, flush, flush_doc},
    {"porter--mod-finish", 2, finish, finish_doc},
    {"porter--mod-respond", 4, respond, respond_doc},
    {"porter--mod-abort", 1, abort_answer, abort_doc},
    {"porter--mod-forget", 1, forget, forget_doc},
    {"porter--mod-phase", 1, phase, phase_doc},
    {"porter--mod-live", 1, live, live_doc},
    {"porter--mod-defer", 1, defer, defer_doc},
    {"porter--mod-heartbeat", 2, heartbeat, heartbeat_doc},
    {"porter--mod-unsent", 1, unsent, unsent_doc},
};
const struct glue_table glue_answer_table = {functions, ARRAY_LEN(functions)};
