/* glue.c - what the glue_*.c files share.
 *
 * Thread: Emacs.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "glue.h"

struct bridge bridge;

struct exchange *glue_exchange(emacs_env *env, emacs_value id)
{
    intmax_t n = env->extract_integer(env, id);
    if (lisp_failed(env) || n < 0)
        return NULL;
    return bridge_find(&bridge, (exchange_id)n);
}

const struct request *glue_request(emacs_env *env, emacs_value id)
{
    intmax_t n = env->extract_integer(env, id);
    if (lisp_failed(env) || n < 0)
        return NULL;
    return bridge_request(&bridge, (exchange_id)n, NULL);
}

bool glue_check(emacs_env *env, enum format_status status, emacs_value data)
{
    switch (status) {
    case FORMAT_OK:
        return true;
    case FORMAT_NO_MEMORY:
        lisp_signal(env, "porter-error", "The answer's head is too large", NULL);
        break;
    case FORMAT_BAD_STATUS:
        lisp_signal(env, "porter-invalid-status", "Not a final status code", data);
        break;
    case FORMAT_BAD_NAME:
        lisp_signal(env, "porter-invalid-header", "Not a header name", data);
        break;
    case FORMAT_BAD_VALUE:
        lisp_signal(env, "porter-invalid-header", "Control character in a header value", data);
        break;
    case FORMAT_BAD_FRAMING:
        lisp_signal(env, "porter-invalid-header", "Porter frames the answer itself", data);
        break;
    case FORMAT_BAD_TRAILER:
        lisp_signal(env, "porter-invalid-header", "Not allowed as a trailer", data);
        break;
    case FORMAT_STARTED:
        lisp_signal(env, "porter-error", "The answer has a status already", data);
        break;
    }
    return false;
}

struct server *glue_server(emacs_env *env, emacs_value number)
{
    intmax_t n = env->extract_integer(env, number);
    if (lisp_failed(env) || n < 0 || n >= (intmax_t)ARRAY_LEN(bridge.servers))
        return NULL;
    return bridge.servers[n];
}
