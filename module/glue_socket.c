/* glue_socket.c - WebSockets for Lisp.
 *
 * Thread: Emacs.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "decode.h"
#include "glue.h"

static const char upgrade_doc[] = "Does request ID ask for another protocol?";
GLUE_FUNCTION(upgrade)
{
    const struct request *request = glue_request(env, args[0]);
    return lisp_boolean(request && request->upgrade);
}

/* A non-negative integer out of VECTOR. */
static uint64_t get_number(emacs_env *env, emacs_value vector, ptrdiff_t i)
{
    intmax_t n = env->extract_integer(env, env->vec_get(env, vector, i));
    return n < 0 ? 0 : (uint64_t)n;
}

static uint32_t get_ms(emacs_env *env, emacs_value vector, ptrdiff_t i)
{
    uint64_t n = get_number(env, vector, i);
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static const char socket_open_doc[] =
    "Answer request ID with 101 and FIELDS: it is a WebSocket from now on.\n"
    "OPTIONS is a vector of integers: the largest message, ping interval, ping timeout and close "
    "timeout in\n"
    "milliseconds, the high water mark and the most unsent bytes, the smallest message to "
    "compress, the "
    "bits of the\n"
    "window for that or 0, whether the client may compress, and a sum of 1 (no text), 2 (no "
    "binary) "
    "and\n"
    "4 (tell of pongs).  Return nil when ID is answered already, or its client has gone.\n\n"
    "(fn ID FIELDS OPTIONS)";
GLUE_FUNCTION(socket_open)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    emacs_value vector = args[2];
    uint64_t flags = get_number(env, vector, 9);
    if (lisp_failed(env))
        return NULL;
    if (!exchange || !bridge_live(exchange))
        return lisp.nil;
    struct socket_options options = {
        .message_bytes_max = get_number(env, vector, 0),
        .ping_interval_ms = get_ms(env, vector, 1),
        .ping_timeout_ms = get_ms(env, vector, 2),
        .close_timeout_ms = get_ms(env, vector, 3),
        .no_text = flags & 1,
        .no_binary = flags & 2,
        .pongs = flags & 4,
        .deflate = get_number(env, vector, 8) != 0,
    };
    struct channel *channel = &exchange->channel;
    channel->high_water = get_number(env, vector, 4);
    channel->unsent_max = get_number(env, vector, 5);
    channel->compress_min = get_ms(env, vector, 6);
    channel->window_bits = (uint8_t)get_number(env, vector, 7);
    struct reply *reply = &exchange->reply;
    if (lisp_failed(env) || !glue_check(env, format_switch(reply, "websocket"), NULL) ||
        !glue_add_fields(env, reply, args[1]))
        return NULL;
    enum format_status status = bridge_upgrade(&bridge, exchange, &options);
    return glue_check(env, status, NULL) ? lisp.t : NULL;
}

/* STRING as the payload of a frame; text must be such.  False on a pending signal. */
static bool make_payload(emacs_env *env, emacs_value string, int opcode)
{
    struct buf *frame = bridge_frame_begin(&bridge);
    if (!frame) {
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
        return false;
    }
    if (!lisp_append_string(env, string, frame))
        return false;
    if (opcode == FRAME_TEXT && decode_text_kind(frame->data + FRAME_HEADER_BYTES_MAX,
                                                 bridge_frame_bytes(&bridge)) == TEXT_BYTES) {
        lisp_signal(env, "porter-error", "Not text: send it as binary, or encode it as UTF-8",
                    NULL);
        return false;
    }
    if (opcode == FRAME_PING && bridge_frame_bytes(&bridge) > FRAME_CONTROL_BYTES_MAX) {
        lisp_signal(env, "porter-error", "A ping carries 125 bytes at most", NULL);
        return false;
    }
    return true;
}

static emacs_value sent_value(emacs_env *env, enum bridge_sent sent)
{
    switch (sent) {
    case BRIDGE_SENT:
        return lisp.t;
    case BRIDGE_FULL:
        return env->intern(env, "full");
    case BRIDGE_NO_MEMORY:
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
        return NULL;
    case BRIDGE_DROPPED:
        break;
    }
    return lisp.nil;
}

static const char socket_send_doc[] =
    "Send STRING to WebSocket ID as OPCODE: 1 text, 2 binary, 9 ping.\n"
    "Return t, `full' when more should wait, or nil when it is not open.\n\n(fn ID STRING OPCODE)";
GLUE_FUNCTION(socket_send)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    int opcode = (int)env->extract_integer(env, args[2]);
    if (lisp_failed(env) || !make_payload(env, args[1], opcode))
        return NULL;
    if (!exchange || !bridge_socket_open(exchange))
        return lisp.nil;
    return sent_value(env, bridge_frame_send(&bridge, exchange, opcode));
}

static const char broadcast_doc[] =
    "Send STRING to the WebSockets whose ids are in the vector IDS, as OPCODE.\n"
    "Return how many of them are open.\n\n(fn IDS STRING OPCODE)";
GLUE_FUNCTION(broadcast)
{
    int opcode = (int)env->extract_integer(env, args[2]);
    ptrdiff_t n = env->vec_size(env, args[0]);
    intmax_t count = 0;
    if (lisp_failed(env) || !make_payload(env, args[1], opcode))
        return NULL;
    struct shared *shared = bridge_frame_share(&bridge, opcode);
    for (ptrdiff_t i = 0; shared && i < n; i++) {
        struct exchange *exchange = glue_exchange(env, env->vec_get(env, args[0], i));
        if (lisp_failed(env))
            break;
        if (exchange && bridge_shared_send(&bridge, exchange, shared) <= BRIDGE_FULL)
            count++;
    }
    shared_release(shared);
    bridge_settle(&bridge);
    return lisp_integer(env, count);
}

static const char socket_close_doc[] =
    "Begin to close WebSocket ID with CODE, or nil for none, and REASON.\n"
    "Return nil when it is not open.\n\n(fn ID CODE REASON)";
GLUE_FUNCTION(socket_close_id)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    int code = CODE_NONE;
    if (!lisp_is_nil(env, args[1])) {
        intmax_t n = env->extract_integer(env, args[1]);
        code = n < 0 || n > 9999 ? 0 : (int)n;
        if (!lisp_failed(env) && !frame_code_valid(code))
            lisp_signal(env, "porter-error", "Not a code to close with", args[1]);
    }
    if (lisp_failed(env) || !make_payload(env, args[2], FRAME_TEXT))
        return NULL;
    size_t len = bridge_frame_bytes(&bridge);
    if (len > FRAME_CONTROL_BYTES_MAX - 2) {
        lisp_signal(env, "porter-error", "A reason has 123 bytes at most", args[2]);
        return NULL;
    }
    if (!exchange)
        return lisp.nil;
    return lisp_boolean(bridge_socket_close(&bridge, exchange, code,
                                            bridge.frame.data + FRAME_HEADER_BYTES_MAX, len));
}

static const struct glue_function functions[] = {
    {"porter--mod-upgrade", 1, upgrade, upgrade_doc},
    {"porter--mod-socket-open", 3, socket_open, socket_open_doc},
    {"porter--mod-socket-send", 3, socket_send, socket_send_doc},
    {"porter--mod-socket-broadcast", 3, broadcast, broadcast_doc},
    {"porter--mod-socket-close", 3, socket_close_id, socket_close_doc},
};
const struct glue_table glue_socket_table = {functions, ARRAY_LEN(functions)};
