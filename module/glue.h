/* glue.h - the functions of the module, and what the files that hold them share.
 *
 * Thread: Emacs.
 *
 * Each glue_*.c holds one group of functions with its table; module.c defines them.  They check arguments and
 * convert values; what they do is in bridge.c and below, where it can be tested without Emacs.
 *
 * A request is named by its id, a non-negative fixnum whose low eight bits are the number of its
 * server.  Asked about an id that is finished, functions return nil; they never touch freed memory.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_GLUE_H
#define PORTER_GLUE_H

#include "bridge.h"
#include "lisp.h"

/* A function as Emacs calls it: ARGS has as many elements as the table says. */
#define GLUE_FUNCTION(name)                                                                        \
    static emacs_value name(                                                                       \
        __attribute__((unused)) emacs_env *env, __attribute__((unused)) ptrdiff_t nargs,           \
        __attribute__((unused)) emacs_value *args, __attribute__((unused)) void *data)

struct glue_function {
    const char *name;
    ptrdiff_t arity;
    emacs_value (*function)(emacs_env *, ptrdiff_t, emacs_value *, void *);
    const char *doc;
};

struct glue_table {
    const struct glue_function *functions;
    size_t count;
};

extern const struct glue_table glue_drain_table;
extern const struct glue_table glue_server_table;
extern const struct glue_table glue_request_table;
extern const struct glue_table glue_answer_table;
extern const struct glue_table glue_socket_table;
extern const struct glue_table glue_static_table;
extern const struct glue_table glue_relay_table;

/* The Emacs thread's end of everything; there is one Emacs in a process. */
extern struct bridge bridge;

/* What ID or NUMBER names, or NULL: finished, gone, or a signal is pending. */
struct exchange *glue_exchange(emacs_env *env, emacs_value id);
const struct request *glue_request(emacs_env *env, emacs_value id);
struct server *glue_server(emacs_env *env, emacs_value number);

/* True for FORMAT_OK; else signal what STATUS says of DATA. */
bool glue_check(emacs_env *env, enum format_status status, emacs_value data);

/* Begin REPLY with status CODE and the alist FIELDS; false on a pending signal. */
bool glue_set_head(emacs_env *env, struct reply *reply, emacs_value code, emacs_value fields);
bool glue_add_fields(emacs_env *env, struct reply *reply, emacs_value fields);

#endif
