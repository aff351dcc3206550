/* module.c - emacs_module_init: tell Emacs the functions of the module.
 *
 * Thread: Emacs.
 *
 * The functions are private to Porter's Lisp (porter--mod-...); porter-module.el declares them, and the
 * other files wrap them with what users see.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "glue.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int plugin_is_GPL_compatible;

/* Raised when Lisp files and module cannot work together any more; the same number is in
 * porter-module.el. */
#define ABI 3

static const struct glue_table *const tables[] = {
    &glue_drain_table,  &glue_server_table, &glue_request_table, &glue_answer_table,
    &glue_socket_table, &glue_static_table, &glue_relay_table,
};

static void set(emacs_env *env, const char *setter, const char *name, emacs_value value)
{
    emacs_value args[] = {env->intern(env, name), value};
    env->funcall(env, env->intern(env, setter), 2, args);
}

static void define(emacs_env *env, const struct glue_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct glue_function *f = &table->functions[i];
        set(env, "fset", f->name,
            env->make_function(env, f->arity, f->arity, f->function, f->doc, NULL));
    }
}

EXPORT int emacs_module_init(struct emacs_runtime *runtime)
{
    static bool initialized;
    if (runtime->size < (ptrdiff_t)sizeof *runtime)
        return 1;
    emacs_env *env = runtime->get_environment(runtime);
    if (env->size < (ptrdiff_t)sizeof(struct emacs_env_25))
        return 2;
    /* Loading twice runs this twice, on the same state. */
    if (!initialized && !lisp_init(env))
        return 3;
    initialized = true;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        define(env, tables[i]);
    set(env, "set", "porter--mod-abi", lisp_integer(env, ABI));
    set(env, "set", "porter--mod-channels", lisp_boolean(lisp_has_open_channel(env)));
    emacs_value feature = env->intern(env, "porter-core");
    env->funcall(env, env->intern(env, "provide"), 1, &feature);
    return lisp_failed(env) ? 4 : 0;
}
