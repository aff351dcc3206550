/* lisp.h - what the glue needs of the emacs_env: strings, symbols, lists, signals.
 *
 * Thread: Emacs.  Nothing here keeps an env or a value beyond the call, except the global references
 * made once by lisp_init.
 *
 * A failed env call leaves a pending signal; functions here then return NULL or false and the
 * caller returns NULL at once (further env calls would do nothing anyway).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_LISP_H
#define PORTER_LISP_H

#include "buf.h"
#include "request.h"

#include <emacs-module.h>

/* The symbols and functions used all the time, as global references. */
struct lisp {
    emacs_value nil;
    emacs_value t;
    emacs_value cons;
    emacs_value car;
    emacs_value cdr;
    emacs_value list;
    emacs_value intern_soft;
    emacs_value make_symbol;
    emacs_value format;
    emacs_value string;
    emacs_value print_format; /* "%s" */
    emacs_value encode_coding_string;
    emacs_value latin_1;
    emacs_value methods[METHOD_COUNT]; /* :GET ... */
};
extern struct lisp lisp;

/* Make the global references; once per process.  False on a pending signal. */
bool lisp_init(emacs_env *env);
long lisp_globals_count(void);

/* Does this Emacs have the member of the env that later versions brought? */
bool lisp_has_open_channel(emacs_env *env);
int lisp_open_channel(emacs_env *env, emacs_value process); /* fd, or -1 with a signal */

emacs_value lisp_cons(emacs_env *env, emacs_value car, emacs_value cdr);
emacs_value lisp_integer(emacs_env *env, intmax_t n);

/* The N elements as a list. */
emacs_value lisp_list(emacs_env *env, const emacs_value *elements, size_t n);

/* A unibyte string of exactly these bytes. */
emacs_value lisp_bytes(emacs_env *env, const char *bytes, size_t len);

/* What the bytes say: decoded when they are well-formed UTF-8, else unibyte as they are.  Remote bytes never
 * reach make_string unchecked: Emacs 28 to 30 read past a truncated sequence at the end. */
emacs_value lisp_text(emacs_env *env, const char *bytes, size_t len);

/* The keyword for field name NAME of any case: :CONTENT-TYPE. */
emacs_value lisp_field_keyword(emacs_env *env, const char *name, size_t len);

bool lisp_is_string(emacs_env *env, emacs_value value);

/* VALUE as princ would show it. */
emacs_value lisp_print(emacs_env *env, emacs_value value);

/* Append STRING to BUF: multibyte as UTF-8, unibyte as it is.  False on a pending signal. */
bool lisp_append_string(emacs_env *env, emacs_value string, struct buf *buf);

/* A C string from a Lisp one, to be freed; NULL on a pending signal.  Nil gives NULL without one. */
char *lisp_c_string(emacs_env *env, emacs_value string);

/* Those of the vector of strings VECTOR, a NULL last; NULL on a pending signal. */
char **lisp_c_strings(emacs_env *env, emacs_value vector);
void lisp_c_strings_free(char **strings);

/* Signal ERROR, a symbol's name, with the data (MESSAGE DATA), or (MESSAGE) when DATA is NULL. */
void lisp_signal(emacs_env *env, const char *error, const char *message, emacs_value data);

static inline bool lisp_failed(emacs_env *env)
{
    return env->non_local_exit_check(env) != emacs_funcall_exit_return;
}

static inline emacs_value lisp_boolean(bool value)
{
    return value ? lisp.t : lisp.nil;
}

static inline emacs_value lisp_car(emacs_env *env, emacs_value list)
{
    return env->funcall(env, lisp.car, 1, &list);
}

static inline emacs_value lisp_cdr(emacs_env *env, emacs_value list)
{
    return env->funcall(env, lisp.cdr, 1, &list);
}

static inline bool lisp_is_nil(emacs_env *env, emacs_value value)
{
    return !env->is_not_nil(env, value);
}

#endif
