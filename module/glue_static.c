/* glue_static.c - mounted directories, fixed answers, files handed to the loop.
 *
 * Thread: Emacs.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "glue.h"

#include "gzip.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The types of files, for the entries made from now on. */
static struct mime *mime;

static const char mime_doc[] =
    "Set the types of files to PAIRS, a vector: extensions in lower case, each followed by its "
    "type.\n"
    "They are for what is mounted from now on.\n\n(fn PAIRS)";
GLUE_FUNCTION(set_mime)
{
    ptrdiff_t len = env->vec_size(env, args[0]);
    char **pairs = lisp_c_strings(env, args[0]);
    if (lisp_failed(env) || !pairs) {
        lisp_c_strings_free(pairs);
        return NULL;
    }
    mime_release(mime);
    mime = mime_new(pairs, (size_t)len / 2);
    return lisp.t;
}

/* The lines of FIELDS, an alist of strings, into OUT. */
static bool get_fields(emacs_env *env, emacs_value fields, struct buf *out)
{
    struct reply reply = {0};
    bool ok = glue_set_head(env, &reply, lisp_integer(env, 200), fields);
    if (ok) {
        const char *lines = memchr(reply.head.data, '\n', reply.head.len);
        size_t from = lines ? (size_t)(lines + 1 - reply.head.data) : 0;
        ok = buf_append(out, reply.head.data + from, reply.head.len - from, SIZE_MAX);
    }
    reply_free(&reply);
    return ok;
}

/* What Lisp says about an entry is a vector; each kind of entry has a table of which element becomes which member. */
enum option_kind {
    OPTION_STRING = 0, /* char *, or NULL for nil */
    OPTION_STRINGS,    /* char **, likewise */
    OPTION_FIELDS,     /* struct buf */
    OPTION_INTEGER,    /* int */
    OPTION_BOOLEAN     /* bool */
};

struct option {
    enum option_kind kind;
    size_t offset; /* in struct entry */
};
#define OPTION(kind, member)                                                                       \
    {                                                                                              \
        OPTION_##kind, offsetof(struct entry, member)                                              \
    }

static const struct option mount_options[] = {
    OPTION(STRING, cache_control), OPTION(FIELDS, fields),    OPTION(STRINGS, index),
    OPTION(STRING, fallback),      OPTION(INTEGER, links),    OPTION(BOOLEAN, dotfiles),
    OPTION(BOOLEAN, listing),      OPTION(BOOLEAN, siblings), OPTION(BOOLEAN, pass),
    OPTION(BOOLEAN, wants_reload),
};

static const struct option fix_options[] = {
    OPTION(STRING, cache_control), OPTION(FIELDS, fields), OPTION(INTEGER, status),
    OPTION(STRING, type),          OPTION(STRING, etag),   OPTION(BOOLEAN, zips),
};

static bool set_option(emacs_env *env, const struct option *option, emacs_value value,
                       struct entry *entry)
{
    char *member = (char *)entry + option->offset;
    switch (option->kind) {
    case OPTION_STRING:
        *(char **)member = lisp_c_string(env, value);
        break;
    case OPTION_STRINGS:
        *(char ***)member = lisp_c_strings(env, value);
        break;
    case OPTION_FIELDS:
        get_fields(env, value, (struct buf *)member);
        break;
    case OPTION_INTEGER:
        *(int *)member = (int)env->extract_integer(env, value);
        break;
    case OPTION_BOOLEAN:
        *(bool *)member = !lisp_is_nil(env, value);
        break;
    }
    return !lisp_failed(env);
}

static bool set_options(emacs_env *env, const struct option *options, size_t len,
                        emacs_value vector, struct entry *entry)
{
    for (size_t i = 0; i < len; i++) {
        emacs_value value = env->vec_get(env, vector, (ptrdiff_t)i);
        if (lisp_failed(env) || !set_option(env, &options[i], value, entry))
            return false;
    }
    return true;
}

/* A new entry of KIND with what all kinds have: NUMBER, RANK, FRONT and PREFIX are in ARGS from the second on, a
 * vector of options is the last of them. */
static struct entry *new_entry(emacs_env *env, enum entry_kind kind, emacs_value *args)
{
    char *prefix = lisp_c_string(env, args[4]);
    intmax_t number = env->extract_integer(env, args[1]);
    intmax_t rank = env->extract_integer(env, args[2]);
    struct entry *entry = !lisp_failed(env) && prefix ? entry_new(kind, prefix) : NULL;
    free(prefix);
    if (!entry)
        return NULL;
    entry->number = (uint32_t)number;
    entry->rank = rank;
    entry->front = !lisp_is_nil(env, args[3]);
    bool ok = kind == ENTRY_DIRECTORY
                  ? set_options(env, mount_options, ARRAY_LEN(mount_options), args[6], entry)
                  : set_options(env, fix_options, ARRAY_LEN(fix_options), args[6], entry);
    if (ok)
        return entry;
    entry_release(entry);
    return NULL;
}

/* Send ENTRY, which is taken, to the loop. */
static emacs_value enter(emacs_env *env, emacs_value number, struct entry *entry)
{
    struct server *server = glue_server(env, number);
    if (!lisp_failed(env) && server && loop_enter(bridge.loop, server, entry, 0))
        return lisp.t;
    entry_release(entry);
    return lisp_failed(env) ? NULL : lisp.nil;
}

static const char mount_doc[] =
    "Serve the files below DIRECTORY as entry NUMBER of SERVER, for paths below PREFIX.\n"
    "Entries are tried from the lowest RANK on; without FRONT, only `porter--mod-serve' names it.\n"
    "OPTIONS is a vector: [CACHE-CONTROL FIELDS INDEX FALLBACK LINKS DOTFILES LISTING SIBLINGS "
    "PASS RELOAD],\n"
    "INDEX a vector of names, LINKS 1, 2 or 3 as in entry.h, the last five booleans.\n\n"
    "(fn SERVER NUMBER RANK FRONT PREFIX DIRECTORY OPTIONS)";
GLUE_FUNCTION(mount)
{
    struct entry *entry = new_entry(env, ENTRY_DIRECTORY, args);
    if (!entry)
        return NULL;
    entry->directory = lisp_c_string(env, args[5]);
    entry->mime = mime_hold(mime);
    if (!lisp_failed(env) && entry->directory)
        return enter(env, args[0], entry);
    entry_release(entry);
    return NULL;
}

static const char fix_doc[] =
    "Answer PATH with BODY as entry NUMBER of SERVER; RANK and FRONT as for `porter--mod-mount'.\n"
    "OPTIONS is a vector: [CACHE-CONTROL FIELDS STATUS TYPE ETAG GZIP], GZIP a boolean.\n\n"
    "(fn SERVER NUMBER RANK FRONT PATH BODY OPTIONS)";
GLUE_FUNCTION(fix)
{
    struct buf body = {0};
    struct buf small = {0};
    struct entry *entry = new_entry(env, ENTRY_FIXED, args);
    if (!entry)
        return NULL;
    if (lisp_append_string(env, args[5], &body)) {
        if (entry->zips)
            gzip_shorter(&body, &small);
        if (small.len)
            entry->gzip = shared_new(&small);
        entry->body = shared_new(&body);
    }
    buf_free(&body);
    buf_free(&small);
    if (entry->body)
        return enter(env, args[0], entry);
    entry_release(entry);
    return NULL;
}

static const char unmount_doc[] = "Take entry NUMBER of SERVER away.\n\n(fn SERVER NUMBER)";
GLUE_FUNCTION(unmount)
{
    struct server *server = glue_server(env, args[0]);
    intmax_t number = env->extract_integer(env, args[1]);
    if (lisp_failed(env) || !server)
        return lisp.nil;
    return lisp_boolean(loop_enter(bridge.loop, server, NULL, (uint32_t)number));
}

static const char reload_doc[] = "Have the pages of SERVER loaded anew, or, with STYLE, their "
                                 "style sheets.\n\n(fn SERVER STYLE)";
GLUE_FUNCTION(reload)
{
    struct server *server = glue_server(env, args[0]);
    if (lisp_failed(env) || !server || !bridge.loop)
        return lisp.nil;
    return lisp_boolean(loop_reload(bridge.loop, server, !lisp_is_nil(env, args[1])));
}

static const char serve_doc[] =
    "Let the loop answer request ID by entry NUMBER of its server.\n\n(fn ID NUMBER)";
GLUE_FUNCTION(serve)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    intmax_t number = env->extract_integer(env, args[1]);
    if (lisp_failed(env) || !exchange || exchange->reply.phase != REPLY_EMPTY)
        return lisp.nil;
    bridge_serve(&bridge, exchange, (uint32_t)number);
    return lisp.t;
}

static const char send_file_doc[] =
    "Answer request ID with FILE, as its conditions and ranges ask for.\n"
    "TYPE is its type, or nil to go by its name.  CACHE-CONTROL and FIELDS as for "
    "`porter--mod-mount'.\n"
    "Return t, nil when ID is finished, or the status that tells why FILE cannot be sent.\n\n"
    "(fn ID FILE TYPE CACHE-CONTROL FIELDS)";
GLUE_FUNCTION(send_file)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    emacs_value result = lisp.nil;
    struct buf fields = {0};
    char *file = lisp_c_string(env, args[1]);
    char *type = lisp_c_string(env, args[2]);
    char *cache_control = lisp_c_string(env, args[3]);
    if (lisp_failed(env) || !file || !get_fields(env, args[4], &fields) || !exchange)
        goto out;
    if (exchange->reply.phase != REPLY_EMPTY) {
        glue_check(env, FORMAT_STARTED, NULL);
        goto out;
    }
    struct file_source source = {
        .type = type ? type : mime_type(mime, file),
        .cache_control = cache_control,
        .fields = &fields,
    };
    int status = content_open(file, &source);
    if (!status && hub_is_scarce(&bridge.loop->hub, source.fd)) {
        close(source.fd);
        status = 503;
    }
    if (status) {
        result = lisp_integer(env, status);
        goto out;
    }
    glue_check(env, bridge_send_file(&bridge, exchange, &source), NULL);
    result = lisp.t;
out:
    free(file);
    free(type);
    free(cache_control);
    buf_free(&fields);
    return lisp_failed(env) ? NULL : result;
}

static const struct glue_function functions[] = {
    {"porter--mod-mime", 1, set_mime, mime_doc},
    {"porter--mod-mount", 7, mount, mount_doc},
    {"porter--mod-fix", 7, fix, fix_doc},
    {"porter--mod-unmount", 2, unmount, unmount_doc},
    {"porter--mod-reload", 2, reload, reload_doc},
    {"porter--mod-serve", 2, serve, serve_doc},
    {"porter--mod-send-file", 5, send_file, send_file_doc},
};
const struct glue_table glue_static_table = {functions, ARRAY_LEN(functions)};
