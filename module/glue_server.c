/* glue_server.c - start and stop servers, their limits, logs and counters.
 *
 * Thread: Emacs.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "glue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool get_limits(emacs_env *env, emacs_value vector, struct limits *limits)
{
    intmax_t n[18];
    if (env->vec_size(env, vector) != (ptrdiff_t)ARRAY_LEN(n)) {
        lisp_signal(env, "porter-module-error", "Wrong number of limits", vector);
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(n); i++) {
        n[i] = env->extract_integer(env, env->vec_get(env, vector, (ptrdiff_t)i));
        if (n[i] < 0)
            n[i] = 0;
        if (i != 3 && i != 4 && n[i] > UINT32_MAX)
            n[i] = UINT32_MAX;
    }
    *limits = (struct limits){
        .target_bytes_max = (uint32_t)n[0],
        .head_bytes_max = (uint32_t)n[1],
        .fields_max = (uint32_t)n[2],
        .body_bytes_max = (uint64_t)n[3],
        .spool_bytes_min = (uint64_t)n[4],
        .head_timeout_ms = (uint32_t)n[5],
        .body_timeout_ms = (uint32_t)n[6],
        .idle_timeout_ms = (uint32_t)n[7],
        .write_timeout_ms = (uint32_t)n[8],
        .handler_timeout_ms = (uint32_t)n[9],
        .stop_timeout_ms = (uint32_t)n[10],
        .connections_max = (uint32_t)n[11],
        .connections_per_address_max = (uint32_t)n[12],
        .requests_per_connection_max = (uint32_t)n[13],
        .pipelined_max = (uint32_t)n[14],
        .queue_items_max = (uint32_t)n[15],
        .queue_timeout_ms = (uint32_t)n[16],
        .open_files_max = (uint32_t)n[17],
    };
    return !lisp_failed(env);
}

static struct log *get_log(emacs_env *env, emacs_value vector)
{
    if (lisp_is_nil(env, vector))
        return NULL;
    intmax_t format = env->extract_integer(env, env->vec_get(env, vector, 0));
    bool to_buffer = !lisp_is_nil(env, env->vec_get(env, vector, 1));
    emacs_value file = env->vec_get(env, vector, 2);
    char *name = lisp_c_string(env, file);
    if (lisp_failed(env))
        return NULL;
    int fd = -1;
    if (name) {
        /* For the user alone: it says who asked for what. */
        fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        int error = errno;
        free(name);
        if (fd < 0) {
            emacs_value data[] = {
                env->make_string(env, "Cannot open the log", strlen("Cannot open the log")),
                env->make_string(env, strerror(error), (ptrdiff_t)strlen(strerror(error))), file};
            emacs_value list = lisp_list(env, data, ARRAY_LEN(data));
            if (!lisp_failed(env))
                env->non_local_exit_signal(env, env->intern(env, "file-error"), list);
            return NULL;
        }
        /* Emacs needs the low numbers. */
        int high = fcntl(fd, F_DUPFD_CLOEXEC, 1024);
        if (high >= 0) {
            close(fd);
            fd = high;
        }
    }
    struct log *log = log_new((enum log_format)format, to_buffer, fd);
    if (!log)
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
    return log;
}

static void signal_listen_error(emacs_env *env, int error, const struct server_address *address,
                                emacs_value where)
{
    const char *reason = error < 0 ? gai_strerror(error) : strerror(error);
    emacs_value elements[] = {env->make_string(env, "Cannot listen", strlen("Cannot listen")),
                              lisp_text(env, reason, strlen(reason)), where,
                              lisp_integer(env, address->port)};
    emacs_value list = lisp_list(env, elements, address->path ? 3 : 4);
    if (!lisp_failed(env))
        env->non_local_exit_signal(env, env->intern(env, "file-error"), list);
}

static const char listen_doc[] =
    "Listen, and return (NUMBER . PORT).\n"
    "HOST is a string, or nil for all interfaces.  FAMILY is 0, 4 or 6.  With PATH, a string, it "
    "is a\n"
    "Unix-domain socket, and HOST and PORT do not count.  LIMITS is a vector of integers in the "
    "order\n"
    "of `struct limits'.  HOSTS is a vector of lower-case names that Host may have.\n"
    "LOG is nil, or a vector [FORMAT TO-BUFFER FILE] with a number of `enum log_format'.\n"
    "Large bodies are kept in DIRECTORY.  PROXIED means that connections begin with a header of "
    "the\n"
    "PROXY protocol.  Answers from GZIP bytes on are compressed, none if it is nil.\n"
    "STREAMS is a vector of paths: bodies for what begins with one come in pieces.\n"
    "Signal `file-error' when the address cannot be bound, or FILE not opened.\n\n"
    "(fn HOST FAMILY PORT PATH BACKLOG LIMITS HOSTS LOG DIRECTORY PROXIED GZIP STREAMS)";
GLUE_FUNCTION(listen_at)
{
    struct server_address address = {.family = AF_UNSPEC};
    struct limits limits;
    int port = 0;
    int error = 0;
    intmax_t family = env->extract_integer(env, args[1]);
    address.port = (int)env->extract_integer(env, args[2]);
    address.backlog = (int)env->extract_integer(env, args[4]);
    if (family)
        address.family = family == 4 ? AF_INET : AF_INET6;
    if (!get_limits(env, args[5], &limits))
        return NULL;
    if (!bridge.loop) {
        lisp_signal(env, "porter-module-error", "The loop does not run", NULL);
        return NULL;
    }
    char *host = lisp_c_string(env, args[0]);
    char *path = lisp_c_string(env, args[3]);
    char **hosts = lisp_c_strings(env, args[6]);
    struct log *log = get_log(env, args[7]);
    intmax_t gzip_min = lisp_is_nil(env, args[10]) ? -1 : env->extract_integer(env, args[10]);
    char *directory = lisp_c_string(env, args[8]);
    char **streams = lisp_c_strings(env, args[11]);
    struct server *server = NULL;
    address.host = host;
    address.path = path;
    if (!lisp_failed(env)) {
        server = server_open(&address, &port, &error);
        if (!server)
            signal_listen_error(env, error, &address, path ? args[3] : args[0]);
    }
    free(host);
    free(path);
    if (!server) {
        lisp_c_strings_free(hosts);
        log_free(log);
        lisp_c_strings_free(streams);
        free(directory);
        return NULL;
    }
    server->limits = limits;
    server->log = log;
    server->gzip_bytes_min = gzip_min < 0 ? SIZE_MAX : (size_t)gzip_min;
    server->allowed_hosts = hosts;
    server->spool_directory = directory;
    server->proxied = !lisp_is_nil(env, args[9]);
    server->stream_paths = streams;
    if (!bridge_listen(&bridge, server)) {
        server_free(server);
        lisp_signal(env, "porter-error", "Too many servers", lisp_integer(env, LIMIT_SERVERS));
        return NULL;
    }
    return lisp_cons(env, lisp_integer(env, server->number), lisp_integer(env, port));
}

static const char stop_doc[] =
    "Stop server NUMBER: it is not listening any more when this returns.\n"
    "Its answers under way are finished within its stop timeout.";
GLUE_FUNCTION(stop)
{
    struct server *server = glue_server(env, args[0]);
    if (!server || !bridge.loop)
        return lisp.nil;
    return lisp_boolean(loop_stop_server(bridge.loop, server, 1000));
}

static const char statistics_doc[] =
    "Return (CONNECTIONS REQUESTS ERRORS WAITING) of server NUMBER, or nil.";
GLUE_FUNCTION(statistics)
{
    struct server *server = glue_server(env, args[0]);
    if (!server)
        return lisp.nil;
    emacs_value elements[] = {lisp_integer(env, atomic_load(&server->connections)),
                              lisp_integer(env, (intmax_t)atomic_load(&server->requests)),
                              lisp_integer(env, (intmax_t)atomic_load(&server->errors)),
                              lisp_integer(env, atomic_load(&server->queued_count))};
    return lisp_list(env, elements, ARRAY_LEN(elements));
}

static const char log_doc[] = "Add LINES, a string of whole lines, to the log of server NUMBER.\n"
                              "Nil when it has none, or is gone.\n\n(fn NUMBER LINES)";
GLUE_FUNCTION(log_lines)
{
    struct server *server = glue_server(env, args[0]);
    struct buf lines = {0};
    bool taken = server && lisp_append_string(env, args[1], &lines) &&
                 bridge_log(&bridge, server, &lines);
    buf_free(&lines);
    return lisp_failed(env) ? NULL : lisp_boolean(taken);
}

static const char counts_doc[] =
    "Return a plist of what is alive in C, for tests and reports.\n"
    "`:exchanges' are requests under way, `:taken' those of them that Lisp has.";
GLUE_FUNCTION(counts)
{
    if (bridge.loop)
        loop_wake(bridge.loop);
    long spare = bridge.loop ? atomic_load(&bridge.loop->hub.spare_count) : 0;
    const struct {
        const char *name;
        intmax_t value;
    } all[] = {
        {":exchanges", exchange_live_count() - spare},
        {":taken", bridge.taken_count},
        {":connections", bridge.loop ? atomic_load(&bridge.loop->hub.conns_live) : 0},
        {":servers", server_live_count()},
        {":entries", entry_live_count()},
        {":buffer-bytes", (intmax_t)buf_live_bytes()},
        {":relays", bridge.relays.count},
        {":globals", lisp_globals_count()},
    };
    emacs_value elements[2 * ARRAY_LEN(all)];
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        elements[2 * i] = env->intern(env, all[i].name);
        elements[2 * i + 1] = lisp_integer(env, all[i].value);
    }
    return lisp_list(env, elements, ARRAY_LEN(elements));
}

static const struct glue_function functions[] = {
    {"porter--mod-log", 2, log_lines, log_doc},
    {"porter--mod-listen", 12, listen_at, listen_doc},
    {"porter--mod-stop", 1, stop, stop_doc},
    {"porter--mod-statistics", 1, statistics, statistics_doc},
    {"porter--mod-counts", 0, counts, counts_doc},
};
const struct glue_table glue_server_table = {functions, ARRAY_LEN(functions)};
