/* glue_static.c - mounted directories, fixed answers, files handed to the loop.
 *
 * Thread: Emacs.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "glue.h"

#include "gzip.h"

#include <errno.h>
#include <stdio.h>
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

/* A new entry with what all kinds have: SERVER, NUMBER, RANK, FRONT, PREFIX in ARGS, CACHE-CONTROL and FIELDS. */
static struct entry *new_entry(emacs_env *env, enum entry_kind kind, emacs_value *args,
                               emacs_value cache_control, emacs_value fields)
{
    char *prefix = lisp_c_string(env, args[4]);
    intmax_t number = env->extract_integer(env, args[1]);
    intmax_t rank = env->extract_integer(env, args[2]);
    struct entry *entry = NULL;
    if (!lisp_failed(env) && prefix)
        entry = entry_new(kind, prefix);
    free(prefix);
    if (!entry)
        return NULL;
    entry->number = (uint32_t)number;
    entry->rank = rank;
    entry->front = !lisp_is_nil(env, args[3]);
    entry->cache_control = lisp_c_string(env, cache_control);
    if (!lisp_failed(env) && get_fields(env, fields, &entry->fields))
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
    "INDEX a vector of names, LINKS 1, 2 or 3 as in static.h, the last six booleans.\n\n"
    "(fn SERVER NUMBER RANK FRONT PREFIX DIRECTORY OPTIONS)";
GLUE_FUNCTION(mount)
{
    emacs_value option[10];
    for (ptrdiff_t i = 0; i < (ptrdiff_t)ARRAY_LEN(option); i++)
        option[i] = env->vec_get(env, args[6], i);
    if (lisp_failed(env))
        return NULL;
    struct entry *entry = new_entry(env, ENTRY_DIRECTORY, args, option[0], option[1]);
    if (!entry)
        return NULL;
    intmax_t links = env->extract_integer(env, option[4]);
    entry->directory = lisp_c_string(env, args[5]);
    entry->index = lisp_c_strings(env, option[2]);
    entry->fallback = lisp_c_string(env, option[3]);
    entry->links = links == 1 ? LINKS_NONE : links == 3 ? LINKS_ALL : LINKS_INSIDE;
    entry->dotfiles = !lisp_is_nil(env, option[5]);
    entry->listing = !lisp_is_nil(env, option[6]);
    entry->siblings = !lisp_is_nil(env, option[7]);
    entry->pass = !lisp_is_nil(env, option[8]);
    entry->wants_reload = !lisp_is_nil(env, option[9]);
    entry->mime = mime_hold(mime);
    if (lisp_failed(env) || !entry->directory) {
        entry_release(entry);
        return NULL;
    }
    return enter(env, args[0], entry);
}

static const char fix_doc[] =
    "Answer PATH with BODY as entry NUMBER of SERVER; RANK and FRONT as for `porter--mod-mount'.\n"
    "OPTIONS is a vector: [CACHE-CONTROL FIELDS STATUS TYPE ETAG GZIP], GZIP a boolean.\n\n"
    "(fn SERVER NUMBER RANK FRONT PATH BODY OPTIONS)";
GLUE_FUNCTION(fix)
{
    emacs_value option[6];
    for (ptrdiff_t i = 0; i < (ptrdiff_t)ARRAY_LEN(option); i++)
        option[i] = env->vec_get(env, args[6], i);
    if (lisp_failed(env))
        return NULL;
    struct entry *entry = new_entry(env, ENTRY_FIXED, args, option[0], option[1]);
    if (!entry)
        return NULL;
    char *etag = lisp_c_string(env, option[4]);
    entry->status = (int)env->extract_integer(env, option[2]);
    entry->type = lisp_c_string(env, option[3]);
    if (etag)
        snprintf(entry->etag, sizeof entry->etag, "%s", etag);
    free(etag);
    struct buf body = {0};
    struct buf small = {0};
    bool ok = !lisp_failed(env) && lisp_append_string(env, args[5], &body);
    if (ok && !lisp_is_nil(env, option[5]))
        gzip_shorter(&body, &small);
    if (ok && small.len)
        entry->gzip = shared_new(&small);
    entry->body = ok ? shared_new(&body) : NULL;
    buf_free(&body);
    buf_free(&small);
    if (!entry->body) {
        entry_release(entry);
        return NULL;
    }
    return enter(env, args[0], entry);
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
