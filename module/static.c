/* static.c - what C answers alone: files below a directory, and fixed answers.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "static.h"

#include "content.h"
#include "decode.h"
#include "listing.h"
#include "lookup.h"
#include "reload.h"
#include "select.h"
#include "sigpipe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/magic.h>
#include <sys/sendfile.h>
#include <sys/vfs.h>
#endif

/* What is sent of a file between two looks at whether it is in memory. */
#define CHUNK_BYTES (1024 * 1024)

/* A directory may be replaced by another one under its name; so long the old one is served. */
#define ROOT_MS 300

/* ---- plain answers ---- */

static struct format_context context_of(const struct exchange *exchange)
{
    return (struct format_context){
        .head = exchange->request.method == METHOD_HEAD,
        .http_1_0 = exchange->request.version_minor == 0,
        .keep_alive = exchange->keep_alive,
    };
}

static void complete(struct exchange *exchange, bool ok)
{
    if (!ok) {
        /* Out of memory: this client gets nothing, the others do. */
        reply_reset(&exchange->reply);
        exchange->reply.close = true;
    }
    exchange->complete = true;
}

static void answer_plain(struct hub *hub, struct exchange *exchange, int status, const char *fields)
{
    struct format_context context = context_of(exchange);
    complete(exchange, format_plain(&exchange->reply, status, NULL, fields, &context,
                                    hub_clock(hub)) == FORMAT_OK);
}

static bool field(struct reply *reply, const char *name, const char *value)
{
    return format_field(reply, name, strlen(name), value, strlen(value)) == FORMAT_OK;
}

/* ---- the pool ---- */

struct work {
    uv_work_t request;
    struct hub *hub;
    struct task task;
    bool taken; /* from in front of Lisp: what is not there may be passed on */
    /* Either of: */
    struct lookup *lookup; /* owned */
    uint64_t offset;       /* read, so that it is in memory, from the exchange's file */
    uint64_t len;
    int fd;
};

static void conclude(struct hub *hub, struct exchange *exchange, struct lookup *lookup, bool taken);

static void on_work(uv_work_t *request)
{
    struct work *work = CONTAINER_OF(request, struct work, request);
    if (work->lookup) {
        lookup_run(work->lookup, true);
        return;
    }
    char *block = malloc(LIMIT_READ_BYTES);
    for (uint64_t done = 0; block && done < work->len;) {
        uint64_t left = work->len - done;
        ssize_t n = pread(work->fd, block, left < LIMIT_READ_BYTES ? left : LIMIT_READ_BYTES,
                          (off_t)(work->offset + done));
        if (n <= 0)
            break; /* the loop will see the same */
        done += (uint64_t)n;
    }
    free(block);
}

static void on_worked(uv_work_t *request, int status)
{
    struct work *work = CONTAINER_OF(request, struct work, request);
    struct hub *hub = work->hub;
    struct exchange *exchange = work->task.exchange;
    (void)status;
    if (exchange) {
        exchange->task = NULL;
        if (work->lookup)
            conclude(hub, exchange, work->lookup, work->taken);
    } else if (work->task.fd >= 0) {
        close(work->task.fd);
    }
    if (work->lookup) {
        lookup_clear(work->lookup);
        free(work->lookup);
    }
    free(work);
    if (exchange)
        hub->on_completed(exchange);
}

static struct work *work_new(struct hub *hub, struct exchange *exchange)
{
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        return NULL;
    work->hub = hub;
    work->task.exchange = exchange;
    work->task.fd = -1;
    return work;
}

static bool work_start(struct work *work)
{
    if (uv_queue_work(&work->hub->uv, &work->request, on_work, on_worked) < 0)
        return false;
    work->task.exchange->task = &work->task;
    return true;
}

/* Do LOOKUP in the pool.  Takes what is in it. */
static void look_up_later(struct hub *hub, struct exchange *exchange, struct lookup *lookup,
                          bool taken)
{
    struct work *work = work_new(hub, exchange);
    struct lookup *copy = malloc(sizeof *copy);
    if (work && copy) {
        *copy = *lookup;
        copy->cache = NULL;
        work->lookup = copy;
        work->taken = taken;
        if (work_start(work))
            return;
    }
    free(work);
    free(copy);
    lookup_clear(lookup);
    answer_plain(hub, exchange, 503, "Retry-After: 1\r\n");
}

/* ---- from a request to a path ---- */

/* The path of a request, decoded once. */
struct target {
    char path[LIMIT_PATH_BYTES];
    size_t len;
    bool valid; /* for a file's name: no NUL, no encoded slash, UTF-8, not too long */
};

static void decode_target(const struct request *request, struct target *target)
{
    const char *raw = request_at(request, request->path);
    size_t len = request->path.len;
    target->valid = true;
    if (len >= sizeof target->path) {
        len = sizeof target->path - 1;
        target->valid = false;
    }
    if (!memchr(raw, '%', len)) {
        memcpy(target->path, raw, len);
        target->len = len;
    } else {
        /* An encoded slash is no separator, and in a name it cannot be. */
        for (size_t i = 0; i + 2 < len; i++)
            if (raw[i] == '%' && raw[i + 1] == '2' && (raw[i + 2] | 32) == 'f')
                target->valid = false;
        target->len = decode_percent(raw, len, target->path, false);
    }
    target->path[target->len] = 0;
    if (memchr(target->path, 0, target->len) ||
        decode_text_kind(target->path, target->len) == TEXT_BYTES)
        target->valid = false;
}

/* Is ENTRY for TARGET?  *BARE: for a directory without its slash. */
static bool is_for(const struct entry *entry, const struct target *target, bool *bare)
{
    size_t len = entry->prefix_len;
    *bare = false;
    if (entry->kind == ENTRY_FIXED)
        return target->len == len && memcmp(target->path, entry->prefix, len) == 0;
    if (target->len >= len)
        return memcmp(target->path, entry->prefix, len) == 0;
    *bare = target->len + 1 == len && memcmp(target->path, entry->prefix, len - 1) == 0;
    return *bare;
}

/* Set LOOKUP's path from TARGET.  False for one that no file has. */
static bool set_path(struct lookup *lookup, const struct target *target)
{
    const struct entry *entry = lookup->entry;
    if (!target->valid)
        return false;
    const char *path = target->path + entry->prefix_len;
    size_t len = target->len - entry->prefix_len;
    lookup->slash = len == 0 || path[len - 1] == '/';
    if (len && lookup->slash)
        len--;
    for (size_t at = 0; at < len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t part = slash ? (size_t)(slash - path) - at : len - at;
        if (!listing_servable(path + at, part, entry->dotfiles))
            return false;
        at += part + (slash != NULL);
        if (slash && at == len)
            return false;
    }
    memcpy(lookup->path, path, len);
    lookup->path[len] = 0;
    return true;
}

/* The way to a directory: the same with a slash.  Made anew out of the decoded path, so that nothing a client
 * puts into its target, such as a second slash at the front, can lead elsewhere. */
static void redirect(struct hub *hub, struct exchange *exchange, const struct target *target,
                     const struct entry *entry)
{
    struct format_context context = context_of(exchange);
    const struct request *request = &exchange->request;
    struct reply *reply = &exchange->reply;
    struct buf location = {0};
    bool ok = format_start(reply, 301) == FORMAT_OK &&
              listing_encode(&location, target->path, target->len, true) &&
              buf_append(&location, "/", 1, SIZE_MAX) &&
              (!request->query.len || (buf_append(&location, "?", 1, SIZE_MAX) &&
                                       buf_append(&location, request_at(request, request->query),
                                                  request->query.len, SIZE_MAX))) &&
              format_field(reply, "Location", strlen("Location"), location.data, location.len) ==
                  FORMAT_OK &&
              (!entry->cache_control || field(reply, "Cache-Control", entry->cache_control)) &&
              format_finish(reply, &context, hub_clock(hub)) == FORMAT_OK;
    buf_free(&location);
    complete(exchange, ok);
}

/* Watch the directory of PATH, which is served from ENTRY. */
static void watch(struct hub *hub, struct entry *entry, const char *path)
{
    char directory[LIMIT_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    if (!entry->reload)
        entry->reload = reload_new(hub);
    if (!entry->reload)
        return;
    int n = snprintf(directory, sizeof directory, "%s/%.*s", entry->directory, (int)len, path);
    if (n > 0 && (size_t)n < sizeof directory)
        reload_watch(entry->reload, directory);
    /* PATH may be a directory, and what was sent its index. */
    n = snprintf(directory, sizeof directory, "%s/%s", entry->directory, path);
    struct stat st;
    if (n > 0 && (size_t)n < sizeof directory && *path && !strchr(path + len, '.') &&
        stat(directory, &st) == 0 && S_ISDIR(st.st_mode))
        reload_watch(entry->reload, directory);
}

/* Is TARGET the stream of ENTRY's events? */
static bool is_stream(const struct entry *entry, const struct target *target)
{
    return entry->wants_reload && target->len == entry->prefix_len + strlen(RELOAD_NAME) &&
           memcmp(target->path + entry->prefix_len, RELOAD_NAME, strlen(RELOAD_NAME)) == 0;
}

static void serve_stream(struct hub *hub, struct exchange *exchange, struct entry *entry)
{
    struct format_context context = context_of(exchange);
    if (!entry->reload)
        entry->reload = reload_new(hub);
    if (!entry->reload || !reload_listen(entry->reload, exchange, &context, hub_clock(hub)))
        complete(exchange, false);
}

/* LOOKUP is done: make the answer, or leave EXCHANGE incomplete to be passed on. */
static void conclude(struct hub *hub, struct exchange *exchange, struct lookup *lookup, bool taken)
{
    struct entry *entry = lookup->entry;
    if (lookup->root && !entry->root) {
        entry->root = lookup->root;
        entry->root->references++;
        entry->root_ms = hub_now(hub);
    }
    if (lookup->status == 301) {
        struct target target;
        decode_target(&exchange->request, &target);
        redirect(hub, exchange, &target, entry);
        return;
    }
    if (lookup->status == 404 && entry->pass && taken)
        return;
    if (lookup->status) {
        answer_plain(hub, exchange, lookup->status,
                     lookup->status == 503 ? "Retry-After: 1\r\n" : NULL);
        return;
    }
    if (lookup->zipped)
        cache_keep(&hub->cache, &lookup->st, lookup->encoding ? lookup->content : NULL);
    if (lookup->reload && lookup->type && entry->wants_reload)
        watch(hub, entry, lookup->path);
    struct format_context context = context_of(exchange);
    struct file_source source = {
        .fd = -1,
        .size = lookup->content ? lookup->content->bytes.len : (uint64_t)lookup->st.st_size,
        .modified = lookup->st.st_mtim,
        .type = lookup->type,
        .encoding = lookup->encoding,
        .varies = lookup->varies,
        .cache_control = entry->cache_control,
        .fields = &entry->fields,
        .content = lookup->content,
    };
    if (!lookup->content) {
        source.fd = lookup->fd;
        lookup->fd = -1;
    }
    if (source.fd >= 0 && source.size && !context.head) {
        source.fd = hub_move_up(source.fd); /* it stays open for a while */
        if (hub_is_scarce(hub, source.fd)) {
            close(source.fd);
            answer_plain(hub, exchange, 503, "Retry-After: 1\r\n");
            return;
        }
    }
    complete(exchange, content_answer(exchange, &source, &context, hub_clock(hub)));
}

static void serve_directory(struct hub *hub, struct exchange *exchange, struct entry *entry,
                            const struct target *target, bool bare, bool taken)
{
    const struct request *request = &exchange->request;
    struct lookup lookup;
    if (bare) {
        redirect(hub, exchange, target, entry);
        return;
    }
    if (is_stream(entry, target)) {
        serve_stream(hub, exchange, entry);
        return;
    }
    /* Not the whole of it, which is large: only what a lookup begins with. */
    lookup.entry = entry_hold(entry);
    lookup.root = NULL;
    lookup.content = NULL;
    lookup.varies = lookup.zipped = false;
    lookup.encoding = NULL;
    lookup.cache = hub->cache;
    lookup.fd = -1;
    if (!set_path(&lookup, target)) {
        lookup.status = 404;
        lookup.reload = false;
        conclude(hub, exchange, &lookup, taken);
        lookup_clear(&lookup);
        return;
    }
    lookup.reload = entry->wants_reload;
    lookup.read = request->method == METHOD_GET;
    lookup.gzip = entry->siblings && select_accepts_coding(request, "gzip");
    lookup.brotli = entry->siblings && select_accepts_coding(request, "br");
    if (entry->listing && lookup.slash)
        listing_read_request(&lookup.listing, request, entry->prefix, entry->dotfiles);
    /* The directory may be another one by now, made anew under the same name. */
    if (entry->root && hub_now(hub) - entry->root_ms > ROOT_MS) {
        root_release(entry->root);
        entry->root = NULL;
    }
    if (entry->root) {
        lookup.root = entry->root;
        lookup.root->references++;
    }
    if (!lookup_run(&lookup, false)) {
        look_up_later(hub, exchange, &lookup, taken);
        return;
    }
    conclude(hub, exchange, &lookup, taken);
    lookup_clear(&lookup);
}

/* ---- fixed answers ---- */

static void serve_fixed(struct hub *hub, struct exchange *exchange, struct entry *entry)
{
    struct format_context context = context_of(exchange);
    bool gzip = entry->gzip && select_accepts_coding(&exchange->request, "gzip");
    struct shared *content = gzip ? entry->gzip : entry->body;
    /* The tag of the compressed form is another one: "abc" and "abc-gz". */
    char zipped_etag[80];
    if (gzip && entry->etag)
        snprintf(zipped_etag, sizeof zipped_etag, "%.*s-gz\"", (int)strlen(entry->etag) - 1,
                 entry->etag);
    struct file_source source = {
        .fd = -1,
        .size = content->bytes.len,
        .status = entry->status,
        .type = entry->type,
        .etag = gzip && entry->etag ? zipped_etag : entry->etag,
        .encoding = gzip ? "gzip" : NULL,
        .varies = entry->gzip != NULL,
        .cache_control = entry->cache_control,
        .fields = &entry->fields,
        .content = content,
    };
    complete(exchange, content_answer(exchange, &source, &context, hub_clock(hub)));
}

/* ---- entrances ---- */

static void serve(struct hub *hub, struct exchange *exchange, struct entry *entry,
                  const struct target *target, bool bare, bool taken)
{
    static const char allow[] = "Allow: GET, HEAD, OPTIONS\r\n";
    switch (exchange->request.method) {
    case METHOD_GET:
    case METHOD_HEAD:
        if (entry->kind == ENTRY_FIXED)
            serve_fixed(hub, exchange, entry);
        else
            serve_directory(hub, exchange, entry, target, bare, taken);
        break;
    case METHOD_OPTIONS: {
        struct format_context context = context_of(exchange);
        complete(exchange,
                 format_start(&exchange->reply, 204) == FORMAT_OK &&
                     field(&exchange->reply, "Allow", "GET, HEAD, OPTIONS") &&
                     format_finish(&exchange->reply, &context, hub_clock(hub)) == FORMAT_OK);
        break;
    }
    default:
        answer_plain(hub, exchange, 405, allow);
        break;
    }
}

/* With no number, the first entry in front that is for TARGET. */
static struct entry *find(const struct server *server, uint32_t number, const struct target *target,
                          bool *bare)
{
    for (uint32_t i = 0; i < server->entries_len; i++) {
        struct entry *entry = server->entries[i];
        if ((number ? entry->number == number : entry->front) && is_for(entry, target, bare))
            return entry;
    }
    return NULL;
}

bool static_take(struct hub *hub, struct exchange *exchange)
{
    const struct server *server = exchange->server;
    struct target target;
    bool bare;
    if (LIKELY(!server->front_len))
        return false;
    decode_target(&exchange->request, &target);
    struct entry *entry = find(server, 0, &target, &bare);
    if (!entry)
        return false;
    serve(hub, exchange, entry, &target, bare, true);
    return exchange->complete || exchange->task;
}

void static_serve(struct hub *hub, struct exchange *exchange, uint32_t number)
{
    struct target target;
    bool bare;
    decode_target(&exchange->request, &target);
    struct entry *entry = find(exchange->server, number, &target, &bare);
    if (entry)
        serve(hub, exchange, entry, &target, bare, false);
    else /* taken away meanwhile */
        answer_plain(hub, exchange, 404, NULL);
}

/* ---- sending ---- */

/* Are the bytes at OFFSET in memory?  1, 0, or -1 when the file ends before them or cannot be read. */
static int is_resident(int fd, uint64_t offset)
{
#if defined __linux__ && defined RWF_NOWAIT
    char byte;
    struct iovec iov = {&byte, 1};
    ssize_t n = preadv2(fd, &iov, 1, (off_t)offset, RWF_NOWAIT);
    if (n > 0)
        return 1;
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n < 0 && errno == EOPNOTSUPP) {
        /* The kernel cannot tell; of a file system in memory it need not. */
        struct statfs fs;
        return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
    }
    return -1;
#else
    (void)fd;
    (void)offset;
    return 0;
#endif
}

static ssize_t send_range(int socket, int fd, uint64_t offset, size_t len)
{
#ifdef __linux__
    off_t at = (off_t)offset;
    struct sigpipe hold;
    sigpipe_hold(&hold);
    ssize_t n = sendfile(socket, fd, &at, len);
    sigpipe_release(&hold);
    return n;
#else
    char block[16 * 1024];
    ssize_t n = pread(fd, block, len < sizeof block ? len : sizeof block, (off_t)offset);
    return n <= 0 ? n : send(socket, block, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
#endif
}

/* Are the bytes of FILE those that its answer speaks of?  What was only added to, as a log is, goes on. */
static bool is_unchanged(const struct file_part *file)
{
    struct stat st;
    if (fstat(file->fd, &st) < 0 || (uint64_t)st.st_size < file->size)
        return false;
    return (uint64_t)st.st_size > file->size || (st.st_mtim.tv_sec == file->modified.tv_sec &&
                                                 st.st_mtim.tv_nsec == file->modified.tv_nsec);
}

enum static_sent static_send(struct hub *hub, struct exchange *exchange, int fd)
{
    struct file_part *file = &exchange->file;
    uint64_t chunk = file->left < CHUNK_BYTES ? file->left : CHUNK_BYTES;
    CHECK(file->open && chunk);
    if (exchange->task)
        return STATIC_WAITS;
    if (!is_unchanged(file))
        return STATIC_BROKEN;
    if (file->offset >= file->warm_from && file->offset < file->warm_to) {
        if (file->offset + chunk > file->warm_to)
            chunk = file->warm_to - file->offset;
    } else {
        int first = is_resident(file->fd, file->offset);
        int last = first > 0 ? is_resident(file->fd, file->offset + chunk - 1) : first;
        if (first < 0 || last < 0)
            return STATIC_BROKEN;
        file->warm_from = file->offset;
        file->warm_to = file->offset + chunk;
        if (!last) {
            struct work *work = work_new(hub, exchange);
            if (!work)
                return STATIC_BROKEN;
            work->fd = file->fd;
            work->offset = file->offset;
            work->len = chunk;
            if (work_start(work))
                return STATIC_WAITS;
            free(work);
        }
    }
    ssize_t sent;
    do
        sent = send_range(fd, file->fd, file->offset, (size_t)chunk);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return STATIC_FULL;
    if (sent <= 0)
        return STATIC_BROKEN;
    file->offset += (uint64_t)sent;
    file->left -= (uint64_t)sent;
    file->sent += (uint64_t)sent;
    return STATIC_SENT;
}
