/* module.c - emacs_module_init, the table of functions, their argument checks.
 *
 * Thread: Emacs.
 *
 * Functions are private to Porter's Lisp (porter--mod-...); porter-module.el declares them, and the other
 * files wrap them with what users see.  A request is named by its id, a non-negative fixnum whose
 * low eight bits are the number of its server.  Asked about an id that is finished, functions
 * return nil; they never touch freed memory.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "bridge.h"
#include "decode.h"
#include "lisp.h"
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int plugin_is_GPL_compatible;

/* Raised when Lisp files and module cannot work together any more; the same number is in
 * porter-module.el. */
#define ABI 1

static struct bridge bridge;

/* The listening socket of a doorbell for Emacs 25 to 27, until Emacs has connected to it. */
static int bell_listener = -1;

/* ---- arguments ---- */

static struct exchange *find(emacs_env *env, emacs_value id)
{
    intmax_t n = env->extract_integer(env, id);
    if (lisp_failed(env) || n < 0)
        return NULL;
    return bridge_find(&bridge, (exchange_id)n);
}

static const struct request *find_request(emacs_env *env, emacs_value id)
{
    intmax_t n = env->extract_integer(env, id);
    if (lisp_failed(env) || n < 0)
        return NULL;
    return bridge_request(&bridge, (exchange_id)n, NULL);
}

static emacs_value boolean(bool value)
{
    return value ? lisp.t : lisp.nil;
}

/* FORMAT_OK, or a signal for it. */
static bool check_format(emacs_env *env, enum format_status status, emacs_value data)
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

/* ---- the doorbell and the thread ---- */

static const char bell_listen_doc[] =
    "Listen on the new Unix-domain socket PATH for the doorbell's connection.";
static emacs_value bell_listen(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char *path = lisp_c_string(env, args[0]);
    if (!path)
        return NULL;
    bool fits = strlen(path) < sizeof un.sun_path;
    if (fits)
        memcpy(un.sun_path, path, strlen(path) + 1);
    free(path);
    if (bell_listener >= 0)
        close(bell_listener);
    bell_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!fits || bell_listener < 0 || bind(bell_listener, (struct sockaddr *)&un, sizeof un) < 0 ||
        listen(bell_listener, 1) < 0)
        lisp_signal(env, "porter-module-error", "Cannot listen for the doorbell", args[0]);
    return lisp.nil;
}

/* The connection that Emacs has made to BELL_LISTENER; -1 with a signal.  Nobody else may hold
 * it: the directory is private, and the peer has to be this process. */
static int accept_bell(emacs_env *env)
{
    int fd = -1;
    for (;;) {
        fd = accept4(bell_listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
#ifdef SO_PEERCRED
        struct ucred peer;
        socklen_t len = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid != getpid()) {
            close(fd);
            continue;
        }
#endif
        break;
    }
    close(bell_listener);
    bell_listener = -1;
    if (fd < 0)
        lisp_signal(env, "porter-module-error", "Nobody connected to the doorbell", NULL);
    return fd;
}

static const char bell_doc[] =
    "Ring PROCESS from now on, a pipe process; t for the connection to `porter--mod-bell-listen'.\n"
    "Start the loop thread if it does not run.";
static emacs_value bell(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    int fd = env->eq(env, args[0], lisp.t) ? accept_bell(env) : lisp_open_channel(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    int error = wake_prepare_fd(fd);
    int emacs_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (error < 0 || emacs_fd < 0) {
        close(fd);
        if (emacs_fd >= 0)
            close(emacs_fd);
        lisp_signal(env, "porter-module-error", "Cannot set the doorbell up", NULL);
        return NULL;
    }
    if (!bridge.loop) {
        error = bridge_start(&bridge, fd);
        if (error < 0) {
            close(emacs_fd);
            lisp_signal(env, "porter-module-error", uv_strerror(error), NULL);
            return NULL;
        }
    } else {
        loop_set_bell(bridge.loop, fd);
    }
    bridge_set_bell(&bridge, emacs_fd);
    return lisp.t;
}

static const char ring_doc[] = "Ring the doorbell for what is left to do.";
static emacs_value ring(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)env;
    (void)nargs;
    (void)args;
    (void)data;
    if (bridge.loop)
        bell_ring_from_emacs(&bridge.loop->hub.bell);
    return lisp.nil;
}

static const char stop_loop_doc[] =
    "Close everything and end the loop thread, within MS milliseconds.";
static emacs_value stop_loop(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    intmax_t ms = env->extract_integer(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    bridge_stop(&bridge, ms < 0 ? 0 : (unsigned)ms);
    return lisp.nil;
}

/* ---- servers ---- */

static bool get_limits(emacs_env *env, emacs_value vector, struct limits *limits)
{
    intmax_t n[17];
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
    };
    return !lisp_failed(env);
}

static void free_strings(char **strings)
{
    for (char **each = strings; each && *each; each++)
        free(*each);
    free(strings);
}

/* A NULL-ended array of C strings from a vector; NULL for an empty one, or on a signal. */
static char **get_strings(emacs_env *env, emacs_value vector)
{
    ptrdiff_t n = env->vec_size(env, vector);
    if (lisp_failed(env) || n <= 0)
        return NULL;
    char **strings = calloc((size_t)n + 1, sizeof *strings);
    if (!strings)
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
    for (ptrdiff_t i = 0; strings && i < n && !lisp_failed(env); i++)
        strings[i] = lisp_c_string(env, env->vec_get(env, vector, i));
    return strings;
}

/* The log that VECTOR, [FORMAT TO-BUFFER FILE], asks for; NULL for nil, or on a signal. */
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
static emacs_value listen_at(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
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
    char **hosts = get_strings(env, args[6]);
    struct log *log = get_log(env, args[7]);
    intmax_t gzip_min = lisp_is_nil(env, args[10]) ? -1 : env->extract_integer(env, args[10]);
    char *directory = lisp_c_string(env, args[8]);
    char **streams = get_strings(env, args[11]);
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
        free_strings(hosts);
        log_free(log);
        free_strings(streams);
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

static struct server *server_of(emacs_env *env, emacs_value number)
{
    intmax_t n = env->extract_integer(env, number);
    if (lisp_failed(env) || n < 0 || n >= (intmax_t)ARRAY_LEN(bridge.servers))
        return NULL;
    return bridge.servers[n];
}

static const char stop_doc[] =
    "Stop server NUMBER: it is not listening any more when this returns.\n"
    "Its answers under way are finished within its stop timeout.";
static emacs_value stop(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct server *server = server_of(env, args[0]);
    if (!server || !bridge.loop)
        return lisp.nil;
    return boolean(loop_stop_server(bridge.loop, server, 1000));
}

static const char statistics_doc[] =
    "Return (CONNECTIONS REQUESTS ERRORS WAITING) of server NUMBER, or nil.";
static emacs_value statistics(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct server *server = server_of(env, args[0]);
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
static emacs_value log_lines(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct server *server = server_of(env, args[0]);
    struct buf lines = {0};
    bool taken = server && lisp_append_string(env, args[1], &lines) &&
                 bridge_log(&bridge, server, &lines);
    buf_free(&lines);
    return lisp_failed(env) ? NULL : boolean(taken);
}

static const char counts_doc[] =
    "Return a plist of what is alive in C, for tests and reports.\n"
    "`:exchanges' are requests under way, `:taken' those of them that Lisp has.";
static emacs_value counts(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)args;
    (void)data;
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
        {":globals", lisp_globals_count()},
    };
    emacs_value elements[2 * ARRAY_LEN(all)];
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        elements[2 * i] = env->intern(env, all[i].name);
        elements[2 * i + 1] = lisp_integer(env, all[i].value);
    }
    return lisp_list(env, elements, ARRAY_LEN(elements));
}

/* ---- a drain ---- */

static const char begin_doc[] =
    "Begin a drain that is to take USEC microseconds at most.\n"
    "Nil when too many are under way: then leave it to them, and do not end it.";
static emacs_value begin(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    intmax_t usec = env->extract_integer(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    return boolean(bridge_begin(&bridge, usec < 0 ? 0 : (uint64_t)usec));
}

static const char take_doc[] =
    "Take the next thing to do.  Call with `inhibit-quit' non-nil: a pending quit would lose it.\n"
    "A number not negative is a request's id.  A negative one, -1 - ID, says that the client of ID "
    "has gone,\n"
    "or the loop has answered in the handler's place.\n"
    "(t . NUMBER) says that the stopped server NUMBER is gone, (STRING . NUMBER) brings lines of "
    "its "
    "log.\n"
    "From a WebSocket come (ID . STRING) for a text message, (-1 - ID . STRING) for a binary one,\n"
    "(ID pong . STRING), (ID drained), and at its end (ID CODE . REASON).\n"
    "Nil: nothing to do, or time is up.";
static emacs_value message_event(emacs_env *env, struct message *message)
{
    intmax_t id = (intmax_t)message->id;
    struct buf *bytes = &message->bytes;
    emacs_value event = NULL;
    if (message->opcode == MESSAGE_BODY || message->opcode == MESSAGE_BODY_END) {
        event = message->opcode == MESSAGE_BODY ? lisp_bytes(env, bytes->data, bytes->len)
                                                : lisp.nil;
        message_free(message);
        return lisp_cons(env, lisp_integer(env, id),
                         lisp_cons(env, env->intern(env, "body"), event));
    }
    if (message->opcode == FRAME_TEXT) {
        /* The loop has checked that it is UTF-8. */
        event = env->make_string(env, bytes->len ? bytes->data : "", (ptrdiff_t)bytes->len);
    } else {
        event = lisp_bytes(env, bytes->data, bytes->len);
        if (message->opcode == FRAME_BINARY)
            id = -1 - id;
        else
            event = lisp_cons(env, env->intern(env, "pong"), event);
    }
    message_free(message);
    return lisp_cons(env, lisp_integer(env, id), event);
}

static emacs_value closed_event(emacs_env *env, struct notice *notice)
{
    emacs_value why = lisp_cons(env, lisp_integer(env, notice->code),
                                lisp_text(env, notice->reason, notice->reason_len));
    emacs_value event = lisp_cons(env, lisp_integer(env, (intmax_t)notice->id), why);
    free(notice);
    return event;
}

static emacs_value take(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)args;
    (void)data;
    struct bridge_event event;
    bridge_take(&bridge, &event);
    switch (event.kind) {
    case BRIDGE_REQUEST:
        return lisp_integer(env, (intmax_t)event.id);
    case BRIDGE_CLOSED:
        return lisp_integer(env, -1 - (intmax_t)event.id);
    case BRIDGE_LOG: {
        emacs_value lines = lisp_text(env, event.lines.data, event.lines.len);
        buf_free(&event.lines);
        return lisp_cons(env, lines, lisp_integer(env, (intmax_t)event.id));
    }
    case BRIDGE_SERVER_GONE:
        return lisp_cons(env, lisp.t, lisp_integer(env, (intmax_t)event.id));
    case BRIDGE_MESSAGE:
        return message_event(env, event.message);
    case BRIDGE_SOCKET_CLOSED:
        return closed_event(env, event.notice);
    case BRIDGE_DRAINED: {
        emacs_value drained[] = {lisp_integer(env, (intmax_t)event.id),
                                 env->intern(env, "drained")};
        return lisp_list(env, drained, 2);
    }
    case BRIDGE_NOTHING:
        break;
    }
    return lisp.nil;
}

static const char end_doc[] = "End the drain.  Non-nil means something is left: ring for it.";
static emacs_value end(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)env;
    (void)nargs;
    (void)args;
    (void)data;
    return boolean(bridge_end(&bridge));
}

static const char linger_doc[] =
    "Look for the next request for at most USEC microseconds, within the drain's time.";
static emacs_value linger(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    intmax_t usec = env->extract_integer(env, args[0]);
    if (lisp_failed(env))
        return NULL;
    return boolean(bridge_linger(&bridge, usec < 0 ? 0 : (uint64_t)usec));
}

/* ---- the request ---- */

static emacs_value span_text(emacs_env *env, const struct request *request, struct span span)
{
    return lisp_text(env, request_at(request, span), span.len);
}

/* Percent-decoded. */
static emacs_value decoded_text(emacs_env *env, const char *bytes, size_t len, bool plus_is_blank)
{
    char small[512];
    char *out = len <= sizeof small ? small : malloc(len);
    if (!out) {
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
        return NULL;
    }
    size_t out_len = decode_percent(bytes, len, out, plus_is_blank);
    emacs_value text = lisp_text(env, out, out_len);
    if (out != small)
        free(out);
    return text;
}

static emacs_value path_text(emacs_env *env, const struct request *request)
{
    return decoded_text(env, request_at(request, request->path), request->path.len, false);
}

static bool is_form(const struct request *request)
{
    static const char type[] = "application/x-www-form-urlencoded";
    const struct field *field = request_field(request, "content-type");
    size_t len = sizeof type - 1;
    if (!field || field->value.len < len)
        return false;
    const char *value = request_at(request, field->value);
    return strncasecmp(value, type, len) == 0 && (field->value.len == len || value[len] == ';' ||
                                                  value[len] == ' ' || value[len] == '\t');
}

/* The body of REQUEST, fetched from its file if need be.  False on a pending signal. */
static bool load_body(emacs_env *env, const struct request *const_request)
{
    /* The loop has no use for the body while Emacs has the request. */
    struct request *request = (struct request *)const_request;
    if (!request->body_file || request->body.len)
        return true;
    if (body_file_read(request->body_file, &request->body))
        return true;
    lisp_signal(env, "porter-error", "Cannot read the body's file", NULL);
    return false;
}

/* Where urlencoded parameters are: the query, then a form. */
static size_t parameter_sources(emacs_env *env, const struct request *request,
                                struct iovec sources[2])
{
    size_t n = 0;
    if (request->query.len)
        sources[n++] = (struct iovec){(char *)request_at(request, request->query),
                                      request->query.len};
    if (request->body_bytes && is_form(request) && load_body(env, request) && request->body.len)
        sources[n++] = (struct iovec){request->body.data, request->body.len};
    return n;
}

/* The bytes of PART.  LOADED holds them, to be freed, when they come from a file; NULL on a
 * pending signal. */
static const char *part_content(emacs_env *env, const struct request *request,
                                const struct part *part, struct buf *loaded)
{
    if (!part->file)
        return request->body.len ? request->body.data + part->off : "";
    if (body_file_read(part->file, loaded))
        return loaded->len ? loaded->data : "";
    lisp_signal(env, "porter-error", "Cannot read a part's file", NULL);
    return NULL;
}

static emacs_value part_text(emacs_env *env, const struct request *request, struct span span)
{
    return lisp_text(env, request_text_at(request, span), span.len);
}

/* (NAME . VALUE), or (NAME (content . BYTES) (filename . F) (content-type . T)), with (file . F)
 * instead of the content when that is in a file. */
static emacs_value part_value(emacs_env *env, const struct request *request,
                              const struct part *part)
{
    struct buf loaded = {0};
    emacs_value value = lisp.nil;
    const char *content = "";
    if (!part->is_file || !part->file)
        content = part_content(env, request, part, &loaded);
    if (content && !part->is_file) {
        value = lisp_text(env, content, (size_t)part->len);
    } else if (content) {
        emacs_value type = part->has_type ? part_text(env, request, part->type) : lisp.nil;
        emacs_value where = part->file ? lisp_text(env, part->file->path, strlen(part->file->path))
                                       : lisp_bytes(env, content, (size_t)part->len);
        emacs_value elements[] = {
            lisp_cons(env, env->intern(env, part->file ? "file" : "content"), where),
            lisp_cons(env, env->intern(env, "filename"), part_text(env, request, part->filename)),
            lisp_cons(env, env->intern(env, "content-type"), type),
            lisp_cons(env, env->intern(env, "size"), lisp_integer(env, (intmax_t)part->len))};
        value = lisp_list(env, elements, ARRAY_LEN(elements));
    }
    buf_free(&loaded);
    if (lisp_failed(env))
        return NULL;
    return lisp_cons(env, part_text(env, request, part->name), value);
}

/* Push the parts of REQUEST before LIST, the last first: files, fields, or both. */
static emacs_value push_parts(emacs_env *env, const struct request *request, bool fields,
                              bool files, emacs_value list)
{
    for (uint32_t i = 0; i < request->parts_len && !lisp_failed(env); i++) {
        const struct part *part = &request->parts[i];
        if (part->is_file ? files : fields)
            list = lisp_cons(env, part_value(env, request, part), list);
    }
    return list;
}

/* Push ("name" . "value") for each pair of SOURCE before LIST, the last first. */
static emacs_value push_pairs(emacs_env *env, const struct iovec *source, emacs_value list)
{
    const char *at = source->iov_base;
    struct pair pair;
    unsigned count = 0;
    for (const char *end = at + source->iov_len;
         decode_next_pair(&at, end, &pair) && !lisp_failed(env);) {
        /* Every value made here lives until the module returns, and Emacs cannot be quit before. */
        if (++count > LIMIT_PARAMETERS)
            lisp_signal(env, "porter-error", "Too many parameters",
                        lisp_integer(env, LIMIT_PARAMETERS));
        list = lisp_cons(env,
                         lisp_cons(env, decoded_text(env, pair.name, pair.name_len, true),
                                   decoded_text(env, pair.value, pair.value_len, true)),
                         list);
    }
    return list;
}

static emacs_value nreverse(emacs_env *env, emacs_value list)
{
    return lisp_failed(env) ? NULL : env->funcall(env, lisp.nreverse, 1, &list);
}

static const char method_doc[] = "The method of request ID, a keyword such as `:GET'.";
static emacs_value method(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    return request ? lisp.methods[request->method] : lisp.nil;
}

static const char path_doc[] = "The path of request ID, decoded.";
static emacs_value path(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    return request ? path_text(env, request) : lisp.nil;
}

static const char target_doc[] = "The target of request ID as it was sent.";
static emacs_value target(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    return request ? span_text(env, request, request->target) : lisp.nil;
}

static const char version_doc[] = "The HTTP version of request ID: \"1.1\" or \"1.0\".";
static emacs_value version(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    if (!request)
        return lisp.nil;
    return lisp_text(env, request->version_minor ? "1.1" : "1.0", 3);
}

static const char parameters_doc[] =
    "The parameters of request ID, an alist of strings.\n"
    "Of the query, or of the form if FORM is non-nil.\n\n(fn ID FORM)";
static emacs_value parameters(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    if (!request)
        return lisp.nil;
    struct iovec sources[2];
    size_t n = parameter_sources(env, request, sources);
    bool form = !lisp_is_nil(env, args[1]);
    emacs_value list = lisp.nil;
    for (size_t i = 0; i < n; i++)
        if (form == (sources[i].iov_base == request->body.data))
            list = push_pairs(env, &sources[i], list);
    if (form)
        list = push_parts(env, request, true, false, list);
    return nreverse(env, list);
}

/* Is the encoded NAME of LEN bytes the decoded string WANTED? */
static bool name_is(const char *name, size_t len, const struct buf *wanted)
{
    char small[256];
    if (len == wanted->len && !memchr(name, '%', len) && !memchr(name, '+', len))
        return memcmp(name, wanted->data, len) == 0;
    if (len < wanted->len || len > 3 * wanted->len)
        return false;
    char *out = len <= sizeof small ? small : malloc(len);
    if (!out)
        return false;
    size_t out_len = decode_percent(name, len, out, true);
    bool same = out_len == wanted->len && memcmp(out, wanted->data, out_len) == 0;
    if (out != small)
        free(out);
    return same;
}

static const char parameter_doc[] = "The first parameter NAME of request ID, of the query, then of "
                                    "a form; nil when absent.\n\n(fn ID NAME)";
static emacs_value parameter(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    struct buf name = {0};
    emacs_value result = lisp.nil;
    if (lisp_failed(env) || !lisp_append_string(env, args[1], &name))
        goto out;
    if (!request)
        goto out;
    struct iovec sources[2];
    size_t n = parameter_sources(env, request, sources);
    for (size_t i = 0; i < n; i++) {
        const char *at = sources[i].iov_base;
        struct pair pair;
        for (const char *limit = at + sources[i].iov_len; decode_next_pair(&at, limit, &pair);) {
            if (!name_is(pair.name, pair.name_len, &name))
                continue;
            result = decoded_text(env, pair.value, pair.value_len, true);
            goto out;
        }
    }
    for (uint32_t i = 0; i < request->parts_len; i++) {
        const struct part *part = &request->parts[i];
        if (part->is_file || part->name.len != name.len ||
            (name.len && memcmp(request_text_at(request, part->name), name.data, name.len) != 0))
            continue;
        struct buf loaded = {0};
        const char *content = part_content(env, request, part, &loaded);
        if (content)
            result = lisp_text(env, content, (size_t)part->len);
        buf_free(&loaded);
        break;
    }
out:
    buf_free(&name);
    return lisp_failed(env) ? NULL : result;
}

static const char header_doc[] = "The value of the first header line NAME, in any case, of request "
                                 "ID; nil when absent.\n\n(fn ID NAME)";
static emacs_value header(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    char name[128];
    ptrdiff_t size = 0;
    if (lisp_failed(env) || !env->copy_string_contents(env, args[1], NULL, &size))
        return NULL;
    if (!request || size > (ptrdiff_t)sizeof name ||
        !env->copy_string_contents(env, args[1], name, &size))
        return lisp.nil;
    /* A keyword's name has a colon, and its letters are capital. */
    char *start = name[0] == ':' ? name + 1 : name;
    for (char *byte = start; *byte; byte++)
        if (*byte >= 'A' && *byte <= 'Z')
            *byte = (char)(*byte + 32);
    const struct field *field = request_field(request, start);
    return field ? span_text(env, request, field->value) : lisp.nil;
}

static const char headers_doc[] =
    "All header lines of request ID in order, an alist (NAME . VALUE) of strings.\n"
    "With TRAILERS non-nil, those behind a chunked body instead.\n\n(fn ID TRAILERS)";
static emacs_value headers(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    if (!request)
        return lisp.nil;
    bool trailers = !lisp_is_nil(env, args[1]);
    uint32_t from = trailers ? request->header_len : 0;
    uint32_t to = trailers ? request->fields_len : request->header_len;
    emacs_value list = lisp.nil;
    while (to > from && !lisp_failed(env)) {
        const struct field *field = &request->fields[--to];
        list = lisp_cons(env,
                         lisp_cons(env, span_text(env, request, field->name),
                                   span_text(env, request, field->value)),
                         list);
    }
    return list;
}

static const char alist_doc[] = "The `headers' slot of request ID: (METHOD . PATH), the "
                                "parameters, then (:NAME . VALUE) lines.";
static emacs_value alist(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    if (!request)
        return lisp.nil;
    struct iovec sources[2];
    size_t n = parameter_sources(env, request, sources);
    emacs_value list = lisp.nil;
    for (uint32_t i = request->header_len; i > 0 && !lisp_failed(env); i--) {
        const struct field *field = &request->fields[i - 1];
        emacs_value name = lisp_field_keyword(env, request_at(request, field->name),
                                              field->name.len);
        list = lisp_cons(env, lisp_cons(env, name, span_text(env, request, field->value)), list);
    }
    emacs_value pairs = lisp.nil;
    for (size_t i = 0; i < n; i++)
        pairs = push_pairs(env, &sources[i], pairs);
    pairs = push_parts(env, request, true, true, pairs);
    /* PAIRS has the last first: moved over one by one they come out in order. */
    while (!lisp_failed(env) && !lisp_is_nil(env, pairs)) {
        list = lisp_cons(env, env->funcall(env, lisp.car, 1, &pairs), list);
        pairs = env->funcall(env, lisp.cdr, 1, &pairs);
    }
    return lisp_cons(env, lisp_cons(env, lisp.methods[request->method], path_text(env, request)),
                     list);
}

static const char body_doc[] =
    "The body of request ID, a unibyte string; nil for one of which only the parts were kept.";
static emacs_value body(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    if (!request || request->body_is_parts)
        return lisp.nil;
    if (!load_body(env, request))
        return NULL;
    return lisp_bytes(env, request->body.data, request->body.len);
}

static const char body_streams_doc[] = "Does the body of request ID come in pieces?";
static emacs_value body_streams(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    return boolean(request && request->body_streams);
}

static const char body_taken_doc[] =
    "LEN bytes of the body of request ID have been dealt with.\n\n(fn ID LEN)";
static emacs_value body_taken(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    intmax_t len = env->extract_integer(env, args[1]);
    if (!lisp_failed(env) && exchange && exchange->request.body_streams)
        bridge_body_taken(&bridge, exchange, (size_t)len);
    return lisp.nil;
}

static const char body_file_doc[] = "The file name of the body of request ID, or nil.";
static emacs_value body_file(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    if (!request || !request->body_file)
        return lisp.nil;
    return lisp_text(env, request->body_file->path, strlen(request->body_file->path));
}

static const char files_doc[] = "The parts of request ID that are files, in order.";
static emacs_value files(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    if (!request)
        return lisp.nil;
    return nreverse(env, push_parts(env, request, false, true, lisp.nil));
}

static const char keep_file_doc[] =
    "Do not delete FILE, one of the files of request ID.  Nil when it is none.\n\n(fn ID FILE)";
static emacs_value keep_file(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    char *path = lisp_c_string(env, args[1]);
    emacs_value result = lisp.nil;
    struct body_file **file;
    for (uint32_t i = 0; path && request && (file = request_file((struct request *)request, i));
         i++) {
        if (strcmp((*file)->path, path) != 0)
            continue;
        (*file)->taken = true;
        result = lisp.t;
    }
    free(path);
    return lisp_failed(env) ? NULL : result;
}

static const char remote_doc[] =
    "The client of request ID: (ADDRESS . PORT), or t for one on a Unix-domain socket.";
static emacs_value remote(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct peer *peer;
    intmax_t id = env->extract_integer(env, args[0]);
    if (lisp_failed(env) || id < 0 || !bridge_request(&bridge, (exchange_id)id, &peer))
        return lisp.nil;
    char text[INET6_ADDRSTRLEN];
    int family = peer->address.sa.sa_family;
    uint16_t port;
    if (family == AF_INET) {
        inet_ntop(AF_INET, &peer->address.in.sin_addr, text, sizeof text);
        port = ntohs(peer->address.in.sin_port);
    } else if (family == AF_INET6) {
        inet_ntop(AF_INET6, &peer->address.in6.sin6_addr, text, sizeof text);
        port = ntohs(peer->address.in6.sin6_port);
    } else {
        return lisp.t;
    }
    return lisp_cons(env, lisp_text(env, text, strlen(text)), lisp_integer(env, port));
}

static const char network_has_doc[] =
    "Is ADDRESS in NETWORK, an address or \"ADDRESS/BITS\"?\n\n(fn NETWORK ADDRESS)";
static emacs_value network_has(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    char *network = lisp_c_string(env, args[0]);
    char *address = lisp_c_string(env, args[1]);
    bool has = network && address && proxy_network_has(network, address);
    free(network);
    free(address);
    return lisp_failed(env) ? NULL : boolean(has);
}

/* ---- the answer ---- */

static emacs_value car(emacs_env *env, emacs_value list)
{
    return env->funcall(env, lisp.car, 1, &list);
}

static emacs_value cdr(emacs_env *env, emacs_value list)
{
    return env->funcall(env, lisp.cdr, 1, &list);
}

typedef enum format_status field_adder(struct reply *, const char *, size_t, const char *, size_t);

/* One (NAME . VALUE) of an answer's header, or its trailers: as ADD says. */
static bool add_field(emacs_env *env, struct reply *reply, emacs_value pair, field_adder *add)
{
    char small[512];
    struct buf large = {0};
    char *bytes = small;
    ptrdiff_t name_size = 0;
    ptrdiff_t value_size = 0;
    emacs_value name = car(env, pair);
    emacs_value value = cdr(env, pair);
    if (lisp_failed(env))
        return false;
    if (!lisp_is_string(env, value)) /* a number, usually */
        value = lisp_print(env, value);
    if (!env->copy_string_contents(env, name, NULL, &name_size) ||
        !env->copy_string_contents(env, value, NULL, &value_size))
        return false;
    if ((size_t)(name_size + value_size) > sizeof small) {
        if (!buf_reserve(&large, (size_t)(name_size + value_size), SIZE_MAX))
            return check_format(env, FORMAT_NO_MEMORY, NULL);
        bytes = large.data;
    }
    bool ok = env->copy_string_contents(env, name, bytes, &name_size) &&
              env->copy_string_contents(env, value, bytes + name_size, &value_size);
    if (ok)
        ok = check_format(
            env,
            add(reply, bytes, (size_t)name_size - 1, bytes + name_size, (size_t)value_size - 1),
            pair);
    buf_free(&large);
    return ok;
}

static bool add_fields(emacs_env *env, struct reply *reply, emacs_value fields)
{
    for (; !lisp_is_nil(env, fields); fields = cdr(env, fields)) {
        emacs_value pair = car(env, fields);
        if (lisp_failed(env) || !add_field(env, reply, pair, format_field)) {
            /* Nothing of it counts: the handler's error will be answered instead. */
            reply_forget(reply);
            return false;
        }
    }
    return !lisp_failed(env);
}

static bool set_head(emacs_env *env, struct reply *reply, emacs_value code, emacs_value fields)
{
    intmax_t n = env->extract_integer(env, code);
    return !lisp_failed(env) &&
           check_format(env, format_start(reply, n < 0 || n > 999 ? 0 : (int)n), code) &&
           add_fields(env, reply, fields);
}

static const char head_doc[] =
    "Give the answer to request ID its status CODE and header FIELDS.\n"
    "FIELDS is an alist of strings.  Return nil when ID is finished.\n"
    "Signal `porter-invalid-status' or `porter-invalid-header'.\n\n(fn ID CODE FIELDS)";
static emacs_value head(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    if (!exchange)
        return lisp.nil;
    return set_head(env, &exchange->reply, args[1], args[2]) ? lisp.t : NULL;
}

static const char interim_doc[] =
    "Send an interim answer to request ID, with CODE and FIELDS, before the final one.\n"
    "Return nil, and send nothing, when a part of the final one is out, it is finished, or the "
    "client\n"
    "speaks HTTP/1.0.\n\n(fn ID CODE FIELDS)";
static emacs_value interim(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    intmax_t code = env->extract_integer(env, args[1]);
    if (lisp_failed(env))
        return NULL;
    if (!exchange || !bridge_live(exchange) || exchange->reply.phase >= REPLY_STREAMING)
        return lisp.nil;
    struct reply reply = {0};
    enum format_status status = format_interim_start(&reply,
                                                     code < 0 || code > 999 ? 0 : (int)code);
    bool ok = check_format(env, status, args[1]);
    for (emacs_value fields = args[2]; ok && !lisp_is_nil(env, fields); fields = cdr(env, fields)) {
        emacs_value pair = car(env, fields);
        ok = !lisp_failed(env) && add_field(env, &reply, pair, format_field);
    }
    ok = ok && !lisp_failed(env) && check_format(env, format_interim_end(&reply), NULL);
    bool old = exchange->request.version_minor == 0;
    if (ok && !old)
        ok = check_format(env, bridge_interim(&bridge, exchange, &reply.head), NULL);
    reply_free(&reply);
    return ok ? boolean(!old) : NULL;
}

static const char extra_doc[] =
    "Give the answer to request ID the field NAME with VALUE, whoever begins it and with what "
    "status.\n"
    "Return nil when a part of it is out, or it is finished.\n\n(fn ID NAME VALUE)";
static emacs_value extra(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    if (!exchange || exchange->reply.phase >= REPLY_STREAMING)
        return lisp.nil;
    emacs_value pair = lisp_cons(env, args[1], args[2]);
    return !lisp_failed(env) && add_field(env, &exchange->reply, pair, format_extra) ? lisp.t
                                                                                     : NULL;
}

static const char trailers_doc[] = "Add FIELDS to the trailers of the answer to request ID.\n"
                                   "Return nil when it is finished.\n\n(fn ID FIELDS)";
static emacs_value trailers(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    if (!exchange)
        return lisp.nil;
    for (emacs_value fields = args[1]; !lisp_is_nil(env, fields); fields = cdr(env, fields)) {
        emacs_value pair = car(env, fields);
        if (lisp_failed(env) || !add_field(env, &exchange->reply, pair, format_trailer))
            return NULL;
    }
    return lisp_failed(env) ? NULL : lisp.t;
}

/* Pieces of a growing answer leave at once. */
static bool flush_now(emacs_env *env, struct exchange *exchange)
{
    bool ok = check_format(env, bridge_flush(&bridge, exchange), NULL);
    bridge_settle(&bridge);
    return ok;
}

static const char send_doc[] =
    "Append STRING to the body of the answer to request ID.\n"
    "Return nil when the answer is finished or the client has gone, `open' when the body is kept "
    "until\n"
    "the answer is complete, `streaming' when STRING is on its way.\n\n(fn ID STRING)";
static emacs_value send_string(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
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
static emacs_value flush(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    if (!exchange || !bridge_live(exchange) || exchange->reply.phase == REPLY_EMPTY ||
        exchange->channel.open)
        return lisp.nil;
    return flush_now(env, exchange) ? lisp.t : NULL;
}

static const char finish_doc[] =
    "Complete the answer to request ID.  Nil when it was finished, or has no status yet.\n"
    "With RETURNED non-nil its handler will not look at the request any more.\n\n(fn ID RETURNED)";
static emacs_value finish(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    if (!exchange || exchange->reply.phase == REPLY_EMPTY)
        return lisp.nil;
    bool keep = lisp_is_nil(env, args[1]);
    if (exchange->channel.open) {
        /* It goes on when its handler returns. */
        if (keep)
            return boolean(bridge_socket_close(&bridge, exchange, CODE_NORMAL, "", 0));
        bridge_defer(&bridge, exchange);
        return lisp.t;
    }
    return check_format(env, bridge_finish(&bridge, exchange, keep), NULL) ? lisp.t : NULL;
}

static const char respond_doc[] =
    "Answer request ID at once with CODE, FIELDS and BODY, as `porter--mod-head' and\n"
    "`porter--mod-send' would.\n\n(fn ID CODE FIELDS BODY)";
static emacs_value respond(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    if (!exchange)
        return lisp.nil;
    struct reply *reply = &exchange->reply;
    if (!set_head(env, reply, args[1], args[2]))
        return NULL;
    if (!lisp_is_nil(env, args[3]) && !lisp_append_string(env, args[3], &reply->body)) {
        reply_forget(reply);
        return NULL;
    }
    return check_format(env, bridge_finish(&bridge, exchange, true), NULL) ? lisp.t : NULL;
}

static const char abort_doc[] =
    "Cut the answer to request ID off, so that the client takes it for incomplete.";
static emacs_value abort_answer(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    if (exchange)
        bridge_abort(&bridge, exchange);
    return lisp.nil;
}

static const char forget_doc[] = "Forget what was said in answer to request ID.  Nil when a part "
                                 "of it is out, or it is finished.";
static emacs_value forget(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    if (!exchange || exchange->reply.phase >= REPLY_STREAMING)
        return lisp.nil;
    reply_forget(&exchange->reply);
    return lisp.t;
}

static const char phase_doc[] =
    "How far the answer to request ID is: 0 nothing said, 1 status given, 2 growing; nil finished.";
static emacs_value phase(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    return exchange ? lisp_integer(env, exchange->reply.phase) : lisp.nil;
}

static const char live_doc[] =
    "Is the client of the unfinished request ID still there?  Of a WebSocket: is it open?";
static emacs_value live(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    return boolean(exchange && bridge_live(exchange) &&
                   (!exchange->channel.open || bridge_socket_open(exchange)));
}

static const char defer_doc[] = "The handler of request ID has returned and will answer later.";
static emacs_value defer(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    if (!exchange)
        return lisp.nil;
    bridge_defer(&bridge, exchange);
    return lisp.t;
}

static const char heartbeat_doc[] = "When nothing was sent to request ID, an event stream, for MS "
                                    "milliseconds, send a comment; 0 for "
                                    "never.";
static emacs_value heartbeat(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
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
static emacs_value unsent(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    return lisp_integer(env, exchange ? (intmax_t)atomic_load(&exchange->unsent_bytes) : 0);
}

/* ---- WebSockets ---- */

static const char upgrade_doc[] = "Does request ID ask for another protocol?";
static emacs_value upgrade(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    const struct request *request = find_request(env, args[0]);
    return boolean(request && request->upgrade);
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
static emacs_value socket_open(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
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
    if (lisp_failed(env) || !check_format(env, format_switch(reply, "websocket"), NULL) ||
        !add_fields(env, reply, args[1]))
        return NULL;
    enum format_status status = bridge_upgrade(&bridge, exchange, &options);
    return check_format(env, status, NULL) ? lisp.t : NULL;
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
static emacs_value socket_send(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
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
static emacs_value broadcast(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    int opcode = (int)env->extract_integer(env, args[2]);
    ptrdiff_t n = env->vec_size(env, args[0]);
    intmax_t count = 0;
    if (lisp_failed(env) || !make_payload(env, args[1], opcode))
        return NULL;
    struct shared *shared = bridge_frame_share(&bridge, opcode);
    for (ptrdiff_t i = 0; shared && i < n; i++) {
        struct exchange *exchange = find(env, env->vec_get(env, args[0], i));
        if (lisp_failed(env))
            break;
        if (exchange && bridge_shared_send(&bridge, exchange, shared) <= BRIDGE_FULL)
            count++;
    }
    if (shared)
        shared_release(shared);
    bridge_settle(&bridge);
    return lisp_integer(env, count);
}

static const char socket_close_doc[] =
    "Begin to close WebSocket ID with CODE, or nil for none, and REASON.\n"
    "Return nil when it is not open.\n\n(fn ID CODE REASON)";
static emacs_value socket_close_id(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
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
    return boolean(bridge_socket_close(&bridge, exchange, code,
                                       bridge.frame.data + FRAME_HEADER_BYTES_MAX, len));
}

/* ---- what C answers alone ---- */

/* The types of files, for the entries made from now on. */
static struct mime *mime;

static const char mime_doc[] =
    "Set the types of files to PAIRS, a vector: extensions in lower case, each followed by its "
    "type.\n"
    "They are for what is mounted from now on.\n\n(fn PAIRS)";
static emacs_value set_mime(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    ptrdiff_t len = env->vec_size(env, args[0]);
    char **pairs = get_strings(env, args[0]);
    if (lisp_failed(env) || !pairs) {
        free_strings(pairs);
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
    bool ok = set_head(env, &reply, lisp_integer(env, 200), fields);
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
    struct server *server = server_of(env, number);
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
static emacs_value mount(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
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
    entry->index = get_strings(env, option[2]);
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
static emacs_value fix(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
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
    if (lisp_failed(env) || !lisp_append_string(env, args[5], &entry->body)) {
        entry_release(entry);
        return NULL;
    }
    if (!lisp_is_nil(env, option[5]))
        static_compress(&entry->body, &entry->gzip);
    return enter(env, args[0], entry);
}

static const char unmount_doc[] = "Take entry NUMBER of SERVER away.\n\n(fn SERVER NUMBER)";
static emacs_value unmount(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct server *server = server_of(env, args[0]);
    intmax_t number = env->extract_integer(env, args[1]);
    if (lisp_failed(env) || !server)
        return lisp.nil;
    return boolean(loop_enter(bridge.loop, server, NULL, (uint32_t)number));
}

static const char reload_doc[] = "Have the pages of SERVER loaded anew, or, with STYLE, their "
                                 "style sheets.\n\n(fn SERVER STYLE)";
static emacs_value reload(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct server *server = server_of(env, args[0]);
    if (lisp_failed(env) || !server || !bridge.loop)
        return lisp.nil;
    return boolean(loop_reload(bridge.loop, server, !lisp_is_nil(env, args[1])));
}

static const char serve_doc[] =
    "Let the loop answer request ID by entry NUMBER of its server.\n\n(fn ID NUMBER)";
static emacs_value serve(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
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
static emacs_value send_file(emacs_env *env, ptrdiff_t nargs, emacs_value *args, void *data)
{
    (void)nargs;
    (void)data;
    struct exchange *exchange = find(env, args[0]);
    emacs_value result = lisp.nil;
    struct buf fields = {0};
    char *file = lisp_c_string(env, args[1]);
    char *type = lisp_c_string(env, args[2]);
    char *cache_control = lisp_c_string(env, args[3]);
    if (lisp_failed(env) || !file || !get_fields(env, args[4], &fields) || !exchange)
        goto out;
    if (exchange->reply.phase != REPLY_EMPTY) {
        check_format(env, FORMAT_STARTED, NULL);
        goto out;
    }
    struct file_source source = {
        .type = type ? type : mime_type(mime, file),
        .cache_control = cache_control,
        .fields = &fields,
    };
    int status = static_open(file, &source);
    if (status) {
        result = lisp_integer(env, status);
        goto out;
    }
    check_format(env, bridge_send_file(&bridge, exchange, &source), NULL);
    result = lisp.t;
out:
    free(file);
    free(type);
    free(cache_control);
    buf_free(&fields);
    return lisp_failed(env) ? NULL : result;
}

/* ---- the table ---- */

static const struct {
    const char *name;
    ptrdiff_t arity;
    emacs_value (*function)(emacs_env *, ptrdiff_t, emacs_value *, void *);
    const char *doc;
} functions[] = {
    {"porter--mod-bell-listen", 1, bell_listen, bell_listen_doc},
    {"porter--mod-bell", 1, bell, bell_doc},
    {"porter--mod-ring", 0, ring, ring_doc},
    {"porter--mod-stop-loop", 1, stop_loop, stop_loop_doc},
    {"porter--mod-log", 2, log_lines, log_doc},
    {"porter--mod-listen", 12, listen_at, listen_doc},
    {"porter--mod-stop", 1, stop, stop_doc},
    {"porter--mod-statistics", 1, statistics, statistics_doc},
    {"porter--mod-counts", 0, counts, counts_doc},
    {"porter--mod-begin", 1, begin, begin_doc},
    {"porter--mod-take", 0, take, take_doc},
    {"porter--mod-end", 0, end, end_doc},
    {"porter--mod-linger", 1, linger, linger_doc},
    {"porter--mod-method", 1, method, method_doc},
    {"porter--mod-path", 1, path, path_doc},
    {"porter--mod-target", 1, target, target_doc},
    {"porter--mod-version", 1, version, version_doc},
    {"porter--mod-parameters", 2, parameters, parameters_doc},
    {"porter--mod-parameter", 2, parameter, parameter_doc},
    {"porter--mod-header", 2, header, header_doc},
    {"porter--mod-headers", 2, headers, headers_doc},
    {"porter--mod-alist", 1, alist, alist_doc},
    {"porter--mod-body", 1, body, body_doc},
    {"porter--mod-body-streams", 1, body_streams, body_streams_doc},
    {"porter--mod-body-taken", 2, body_taken, body_taken_doc},
    {"porter--mod-body-file", 1, body_file, body_file_doc},
    {"porter--mod-files", 1, files, files_doc},
    {"porter--mod-keep-file", 2, keep_file, keep_file_doc},
    {"porter--mod-remote", 1, remote, remote_doc},
    {"porter--mod-network-has", 2, network_has, network_has_doc},
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
    {"porter--mod-upgrade", 1, upgrade, upgrade_doc},
    {"porter--mod-socket-open", 3, socket_open, socket_open_doc},
    {"porter--mod-socket-send", 3, socket_send, socket_send_doc},
    {"porter--mod-socket-broadcast", 3, broadcast, broadcast_doc},
    {"porter--mod-socket-close", 3, socket_close_id, socket_close_doc},
    {"porter--mod-mime", 1, set_mime, mime_doc},
    {"porter--mod-mount", 7, mount, mount_doc},
    {"porter--mod-fix", 7, fix, fix_doc},
    {"porter--mod-unmount", 2, unmount, unmount_doc},
    {"porter--mod-reload", 2, reload, reload_doc},
    {"porter--mod-serve", 2, serve, serve_doc},
    {"porter--mod-send-file", 5, send_file, send_file_doc},
};

static void set(emacs_env *env, const char *setter, const char *name, emacs_value value)
{
    emacs_value args[] = {env->intern(env, name), value};
    env->funcall(env, env->intern(env, setter), 2, args);
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
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        set(env, "fset", functions[i].name,
            env->make_function(env, functions[i].arity, functions[i].arity, functions[i].function,
                               functions[i].doc, NULL));
    set(env, "set", "porter--mod-abi", lisp_integer(env, ABI));
    set(env, "set", "porter--mod-channels", boolean(lisp_has_open_channel(env)));
    emacs_value feature = env->intern(env, "porter-core");
    env->funcall(env, env->intern(env, "provide"), 1, &feature);
    return lisp_failed(env) ? 4 : 0;
}
