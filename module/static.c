/* static.c - what C answers alone: files below a directory, and fixed answers.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "static.h"

#include "decode.h"
#include "gzip.h"
#include "limits.h"
#include "listing.h"
#include "reload.h"
#include "select.h"
#include "sigpipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/openat2.h>
#include <linux/magic.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

/* Debian 11's C library is older than the call; its number is the same on every architecture. */
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20
#endif
#endif

#ifndef O_PATH
#define O_PATH O_RDONLY
#endif

/* What is sent of a file between two looks at whether it is in memory. */
#define CHUNK_BYTES (1024 * 1024)

/* Smaller files gain nothing by being compressed. */
#define ZIP_BYTES_MIN 512

/* A directory may be replaced by another one under its name; so long the old one is served. */
#define ROOT_MS 300

/* The directory of an entry, opened.  The loop's, which counts its users. */
struct root {
    unsigned references;
    int fd;
};

/* ---- entries ---- */

static atomic_long live_count;

long entry_live_count(void)
{
    return atomic_load_explicit(&live_count, memory_order_relaxed);
}

struct entry *entry_new(enum entry_kind kind, const char *prefix)
{
    struct entry *entry = calloc(1, sizeof *entry);
    char *copy = strdup(prefix);
    if (!entry || !copy) {
        free(entry);
        free(copy);
        return NULL;
    }
    atomic_store(&entry->references, 1);
    entry->kind = kind;
    entry->prefix = copy;
    entry->prefix_len = strlen(copy);
    atomic_fetch_add_explicit(&live_count, 1, memory_order_relaxed);
    return entry;
}

static void root_release(struct root *root)
{
    if (!root || --root->references)
        return;
    close(root->fd);
    free(root);
}

void entry_release(struct entry *entry)
{
    if (!entry || atomic_fetch_sub(&entry->references, 1) != 1)
        return;
    for (char **name = entry->index; name && *name; name++)
        free(*name);
    free(entry->index);
    free(entry->prefix);
    free(entry->cache_control);
    free(entry->directory);
    free(entry->fallback);
    free(entry->type);
    buf_free(&entry->fields);
    buf_free(&entry->body);
    buf_free(&entry->gzip);
    mime_release(entry->mime);
    root_release(entry->root);
    free(entry);
    atomic_fetch_sub_explicit(&live_count, 1, memory_order_relaxed);
}

static struct entry *entry_hold(struct entry *entry)
{
    atomic_fetch_add(&entry->references, 1);
    return entry;
}

void static_enter(struct server *server, struct entry *entry)
{
    static_remove(server, entry->number);
    struct entry **entries = realloc(server->entries, (server->entries_len + 1) * sizeof *entries);
    if (!entries) {
        entry_release(entry);
        return;
    }
    server->entries = entries;
    /* Of equal ones the last that came is tried first. */
    uint32_t at = 0;
    while (at < server->entries_len && entries[at]->rank < entry->rank)
        at++;
    memmove(entries + at + 1, entries + at, (server->entries_len - at) * sizeof *entries);
    entries[at] = entry;
    server->entries_len++;
    server->front_len += entry->front;
}

void static_remove(struct server *server, uint32_t number)
{
    for (uint32_t i = 0; i < server->entries_len; i++) {
        struct entry *entry = server->entries[i];
        if (entry->number != number)
            continue;
        server->front_len -= entry->front;
        server->entries_len--;
        reload_close(entry->reload);
        entry->reload = NULL;
        memmove(server->entries + i, server->entries + i + 1,
                (server->entries_len - i) * sizeof *server->entries);
        entry_release(entry);
        return;
    }
}

void static_quiet(struct server *server)
{
    for (uint32_t i = 0; i < server->entries_len; i++) {
        reload_close(server->entries[i]->reload);
        server->entries[i]->reload = NULL;
        server->entries[i]->wants_reload = false;
    }
}

void static_reload(struct server *server, bool style)
{
    for (uint32_t i = 0; i < server->entries_len; i++)
        if (server->entries[i]->reload)
            reload_push(server->entries[i]->reload, style);
}

void static_clear(struct server *server)
{
    for (uint32_t i = 0; i < server->entries_len; i++)
        entry_release(server->entries[i]);
    free(server->entries);
    server->entries = NULL;
    server->entries_len = server->front_len = 0;
}

/* ---- types ---- */

struct mime {
    atomic_uint references;
    size_t len;
    char **pairs; /* sorted by the first of each */
};

static int by_extension(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct mime *mime_new(char **pairs, size_t len)
{
    struct mime *mime = calloc(1, sizeof *mime);
    if (!mime) {
        for (size_t i = 0; i < 2 * len; i++)
            free(pairs[i]);
        free(pairs);
        return NULL;
    }
    atomic_store(&mime->references, 1);
    mime->pairs = pairs;
    mime->len = len;
    qsort(pairs, len, 2 * sizeof *pairs, by_extension);
    return mime;
}

struct mime *mime_hold(struct mime *mime)
{
    if (mime)
        atomic_fetch_add(&mime->references, 1);
    return mime;
}

void mime_release(struct mime *mime)
{
    if (!mime || atomic_fetch_sub(&mime->references, 1) != 1)
        return;
    for (size_t i = 0; i < 2 * mime->len; i++)
        free(mime->pairs[i]);
    free(mime->pairs);
    free(mime);
}

const char *mime_type(const struct mime *mime, const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    const char *period = strrchr(base, '.');
    const char *extension = period && period > base ? period + 1 : base;
    char lower[32];
    char *key = lower;
    size_t len = strlen(extension);
    if (!mime || len >= sizeof lower)
        return "application/octet-stream";
    for (size_t i = 0; i <= len; i++)
        lower[i] = (char)(extension[i] >= 'A' && extension[i] <= 'Z' ? extension[i] | 32
                                                                     : extension[i]);
    char **found = bsearch(&key, mime->pairs, mime->len, 2 * sizeof *mime->pairs, by_extension);
    return found ? found[1] : "application/octet-stream";
}

/* ---- making answers ---- */

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

/* An IMF-fixdate: the clock makes them. */
static bool field_modified(struct reply *reply, time_t modified)
{
    struct format_clock clock = {0};
    format_clock_set(&clock, modified);
    if (clock.len < sizeof "Date: \r\n")
        return true;
    static const char name[] = "Last-Modified";
    return format_field(reply, name, sizeof name - 1, clock.line + strlen("Date: "),
                        clock.len - strlen("Date: \r\n")) == FORMAT_OK;
}

static bool append_fields(struct reply *reply, const struct buf *fields)
{
    return !fields || !fields->len ||
           buf_append(&reply->head, fields->data, fields->len, FORMAT_HEAD_BYTES_MAX);
}

/* The fields that 200, 206 and 304 have in common. */
static bool common_fields(struct reply *reply, const struct file_source *source, const char *etag)
{
    return (!*etag || field(reply, "ETag", etag)) &&
           (!source->cache_control || field(reply, "Cache-Control", source->cache_control)) &&
           (!source->varies || field(reply, "Vary", "Accept-Encoding")) &&
           append_fields(reply, source->fields);
}

static bool content_fields(struct reply *reply, const struct file_source *source)
{
    /* Not by format_field, for which it is a wish: here it is done. */
    return (!source->encoding || (buf_append(&reply->head, "Content-Encoding: ",
                                             strlen("Content-Encoding: "), FORMAT_HEAD_BYTES_MAX) &&
                                  buf_append(&reply->head, source->encoding,
                                             strlen(source->encoding), FORMAT_HEAD_BYTES_MAX) &&
                                  buf_append(&reply->head, "\r\n", 2, FORMAT_HEAD_BYTES_MAX))) &&
           field(reply, "X-Content-Type-Options", "nosniff") &&
           field(reply, "Accept-Ranges", "bytes") &&
           (!source->modified.tv_sec || field_modified(reply, source->modified.tv_sec));
}

static void put_range(char *out, size_t size, const struct byte_range *range, uint64_t total)
{
    snprintf(out, size, "bytes %llu-%llu/%llu", (unsigned long long)range->from,
             (unsigned long long)(range->from + range->len - 1), (unsigned long long)total);
}

/* Nobody may guess it, since whoever could put it into a file would make parts of their own. */
static bool make_boundary(char *out, size_t size)
{
    unsigned char random[12];
    if (getentropy(random, sizeof random) < 0)
        return false;
    size_t len = 0;
    for (size_t i = 0; i < sizeof random && len + 3 < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%02x", random[i]);
    return true;
}

/* The parts of a multipart/byteranges (RFC 9110 section 14.6), as segments of EXCHANGE's file, or, if
 * the content is in memory, in its body. */
static bool make_parts(struct exchange *exchange, const struct file_source *source,
                       const struct selection *selection, const char *boundary)
{
    struct reply *reply = &exchange->reply;
    struct file_part *file = &exchange->file;
    uint32_t len = selection->ranges_len;
    uint64_t total = 0;
    if (!source->content) {
        file->segments = calloc(len + 1, sizeof *file->segments);
        if (!file->segments)
            return false;
        file->segments_len = len + 1;
    }
    for (uint32_t i = 0; i <= len; i++) {
        const struct byte_range none = {0};
        const struct byte_range *range = i < len ? &selection->ranges[i] : &none;
        char line[64];
        char head[384];
        int head_len;
        if (i < len) {
            put_range(line, sizeof line, range, source->size);
            head_len = snprintf(head, sizeof head,
                                "%s--%s\r\nContent-Type: %.200s\r\nContent-Range: %s\r\n\r\n",
                                i ? "\r\n" : "", boundary, source->type, line);
        } else {
            head_len = snprintf(head, sizeof head, "\r\n--%s--\r\n", boundary);
        }
        struct buf *out = source->content ? &reply->body : &file->segments[i].text;
        if (!buf_append(out, head, (size_t)head_len, SIZE_MAX))
            return false;
        if (source->content &&
            !buf_append(out, source->content->data + range->from, (size_t)range->len, SIZE_MAX))
            return false;
        if (!source->content) {
            file->segments[i].from = range->from;
            file->segments[i].len = range->len;
        }
        total += (uint64_t)head_len + range->len;
    }
    reply->length = total;
    return true;
}

static bool make_body(struct exchange *exchange, struct file_source *source,
                      const struct selection *selection, const char *boundary)
{
    struct reply *reply = &exchange->reply;
    struct byte_range whole = {0, source->size};
    const struct byte_range *range = selection->outcome == SELECT_RANGES ? &selection->ranges[0]
                                                                         : &whole;
    reply->has_length = true;
    reply->length = range->len;
    if (*boundary && !make_parts(exchange, source, selection, boundary))
        return false;
    if (source->content) {
        if (!*boundary) {
            if (range->from)
                memmove(source->content->data, source->content->data + range->from,
                        (size_t)range->len);
            source->content->len = (size_t)range->len;
            buf_free(&reply->body);
            reply->body = *source->content;
            *source->content = (struct buf){0};
        }
    } else if (exchange->request.method != METHOD_HEAD && reply->length) {
        exchange->file.open = true;
        exchange->file.fd = source->fd;
        source->fd = -1;
        if (!*boundary) {
            exchange->file.offset = range->from;
            exchange->file.left = range->len;
        }
    }
    return true;
}

bool static_answer(struct exchange *exchange, struct file_source *source,
                   const struct format_context *context, const struct format_clock *clock)
{
    struct reply *reply = &exchange->reply;
    struct selection selection;
    char etag[80] = "";
    char boundary[32] = "";
    char line[96];
    bool ok = false;
    if (source->modified.tv_sec)
        snprintf(etag, sizeof etag, "\"%llx-%lx-%llx%s%s\"",
                 (unsigned long long)source->modified.tv_sec, source->modified.tv_nsec,
                 (unsigned long long)source->size, source->encoding ? "-" : "",
                 source->encoding ? source->encoding : "");
    if (source->etag)
        snprintf(etag, sizeof etag, "%s", source->etag);
    struct representation representation = {
        .size = source->size,
        .etag = *etag ? etag : NULL,
        .modified = source->modified.tv_sec,
    };
    select_part(&exchange->request, &representation, &selection);
    switch (selection.outcome) {
    case SELECT_NOT_MODIFIED:
        ok = format_start(reply, 304) == FORMAT_OK && common_fields(reply, source, etag) &&
             format_finish(reply, context, clock) == FORMAT_OK;
        break;
    case SELECT_FAILED:
        ok = format_plain(reply, 412, NULL, NULL, context, clock) == FORMAT_OK;
        break;
    case SELECT_UNSATISFIABLE:
        snprintf(line, sizeof line, "Content-Range: bytes */%llu\r\n",
                 (unsigned long long)source->size);
        ok = format_plain(reply, 416, NULL, line, context, clock) == FORMAT_OK;
        break;
    case SELECT_RANGES:
        ok = format_start(reply, 206) == FORMAT_OK;
        if (ok && selection.ranges_len > 1) {
            ok = make_boundary(boundary, sizeof boundary);
            snprintf(line, sizeof line, "multipart/byteranges; boundary=%s", boundary);
            ok = ok && field(reply, "Content-Type", line);
        } else if (ok) {
            put_range(line, sizeof line, &selection.ranges[0], source->size);
            ok = field(reply, "Content-Type", source->type) && field(reply, "Content-Range", line);
        }
        goto content;
    case SELECT_WHOLE:
        ok = format_start(reply, source->status ? source->status : 200) == FORMAT_OK &&
             field(reply, "Content-Type", source->type);
    content:
        ok = ok && common_fields(reply, source, etag) && content_fields(reply, source) &&
             make_body(exchange, source, &selection, boundary);
        /* A body in memory is framed with the head; one that follows from the file has its length declared. */
        if (ok && reply->body.len)
            ok = format_finish(reply, context, clock) == FORMAT_OK;
        else
            ok = ok && format_stream_start(reply, context, clock) == FORMAT_OK;
        if (exchange->file.open)
            reply->body_bytes = reply->length;
        reply->phase = REPLY_DONE;
        break;
    }
    if (source->fd >= 0)
        close(source->fd);
    if (source->content)
        buf_free(source->content);
    return ok;
}

/* ---- looking a file up ---- */

struct lookup {
    struct entry *entry; /* a reference */
    struct root *root;   /* a reference, or NULL */
    struct listing_request listing;
    char path[LIMIT_PATH_BYTES]; /* below the directory, without a slash at the end */
    bool slash;                  /* it had one, or is empty */
    bool reload;                 /* pages get the script of reload.c */
    bool read;                   /* small contents are wanted in memory */
    bool gzip;                   /* the client takes these codings */
    bool brotli;

    /* What was found. */
    int status; /* 0: a file; else what to answer */
    int fd;
    struct stat st;
    const char *type;
    const char *encoding;
    bool varies;
    bool in_memory;
    struct buf content;
};

/* An fd for PATH, or -errno; -EAGAIN when that cannot be had without waiting, and WAIT is false. */
static int open_resolved(int root, const char *path, int flags, uint64_t resolve, bool wait)
{
#ifdef __linux__
    static atomic_bool missing;
    if (!atomic_load_explicit(&missing, memory_order_relaxed)) {
        struct open_how how = {
            .flags = (uint64_t)(flags | O_CLOEXEC),
            .resolve = resolve | (wait ? 0 : RESOLVE_CACHED),
        };
        long fd = syscall(SYS_openat2, root, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno == EINVAL && !wait) /* Linux 5.6 to 5.11 have no RESOLVE_CACHED */
            return -EAGAIN;
        if (errno != ENOSYS && errno != EPERM)
            return -errno;
        atomic_store_explicit(&missing, errno == ENOSYS, memory_order_relaxed);
        if (errno == EPERM && resolve == 0)
            return -EPERM;
    }
#else
    (void)resolve;
#endif
    if (!wait)
        return -EAGAIN;
    int fd = openat(root, path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Where FD's file is, in OUT.  False when the system does not say. */
static bool path_of_fd(int fd, char *out, size_t size)
{
#if defined __linux__
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, out, size - 1);
    if (len <= 0 || (size_t)len >= size - 1)
        return false;
    out[len] = 0;
    return out[0] == '/';
#elif defined F_GETPATH
    return size >= 1024 && fcntl(fd, F_GETPATH, out) == 0;
#else
    (void)fd;
    (void)out;
    (void)size;
    return false;
#endif
}

/* Is what was opened as FD below ROOT?  It is asked of the open file, so nobody can change it in between.
 * With EXACT, a path, it has to be there and nowhere else: no link was followed. */
static bool is_below(int root, int fd, const char *exact)
{
    char top[LIMIT_PATH_BYTES];
    char path[LIMIT_PATH_BYTES];
    if (!path_of_fd(root, top, sizeof top) || !path_of_fd(fd, path, sizeof path))
        return false;
    size_t len = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(path, top, len) != 0 || (path[len] != '/' && path[len] != 0))
        return false;
    if (!exact)
        return true;
    const char *rest = path[len] == '/' ? path + len + 1 : path + len;
    return strcmp(rest, strcmp(exact, ".") == 0 ? "" : exact) == 0;
}

/* Open PATH below ROOT, as LINKS allow.  An fd, or -errno. */
static int open_below(int root, const char *path, enum entry_links links, bool wait)
{
    /* O_NONBLOCK: opening a FIFO must not wait for its writer. */
    const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
    uint64_t resolve = 0;
    int fd;
#ifdef __linux__
    resolve = RESOLVE_NO_MAGICLINKS;
    if (links != LINKS_ALL)
        resolve |= RESOLVE_BENEATH;
    if (links == LINKS_NONE)
        resolve |= RESOLVE_NO_SYMLINKS;
    fd = open_resolved(root, path, flags, resolve, wait);
    if (links == LINKS_ALL || (fd < 0 && fd != -EXDEV && fd != -EPERM))
        return fd;
    if (links == LINKS_NONE && fd == -EXDEV)
        return fd;
    if (fd >= 0) {
        /* The kernel has seen to it, or it has no openat2. */
        static atomic_bool trusted;
        if (atomic_load_explicit(&trusted, memory_order_relaxed))
            return fd;
        struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
        long probe = syscall(SYS_openat2, root, ".", &how, sizeof how);
        if (probe >= 0) {
            close((int)probe);
            atomic_store_explicit(&trusted, true, memory_order_relaxed);
            return fd;
        }
    } else {
        /* A link that leaves the directory, or an absolute one that may lead back into it. */
        fd = open_resolved(root, path, flags, RESOLVE_NO_MAGICLINKS, wait);
    }
#else
    fd = open_resolved(root, path, flags, resolve, wait);
    if (links == LINKS_ALL)
        return fd;
#endif
    if (fd >= 0 && !is_below(root, fd, links == LINKS_NONE ? path : NULL)) {
        close(fd);
        return -EXDEV;
    }
    return fd;
}

static int status_of_errno(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return 403;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return 503;
    default:
        return 404; /* also for links that lead out: whether there is something is nobody's business */
    }
}

/* Read all of LOOKUP's file into its CONTENT.  False when that would have to wait. */
static bool read_small(struct lookup *lookup, bool wait)
{
    size_t size = (size_t)lookup->st.st_size;
    struct buf *content = &lookup->content;
    if (!buf_reserve(content, size, SIZE_MAX))
        return true;
    while (content->len < size) {
        struct iovec iov = {content->data + content->len, size - content->len};
        ssize_t n;
#ifdef RWF_NOWAIT
        n = preadv2(lookup->fd, &iov, 1, (off_t)content->len, wait ? 0 : RWF_NOWAIT);
#else
        n = wait ? pread(lookup->fd, iov.iov_base, iov.iov_len, (off_t)content->len) : -1;
        errno = wait ? errno : EAGAIN;
#endif
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && !wait && (errno == EAGAIN || errno == EOPNOTSUPP))
            return false;
        if (n <= 0)
            return true; /* shrinking: let the other way, which looks at each byte's place, find out */
        content->len += (size_t)n;
    }
    lookup->in_memory = true;
    return true;
}

enum found { FOUND_NOTHING = 0, FOUND_FILE, FOUND_DIRECTORY, FOUND_LATER };

/* Open PATH, and see what it is.  FOUND_NOTHING sets the status; FOUND_LATER: only by waiting. */
static enum found look_at(struct lookup *lookup, const char *path, bool wait)
{
    int fd = open_below(lookup->root->fd, *path ? path : ".", lookup->entry->links, wait);
    if (fd == -EAGAIN && !wait)
        return FOUND_LATER;
    if (fd < 0) {
        lookup->status = status_of_errno(-fd);
        return FOUND_NOTHING;
    }
    if (fstat(fd, &lookup->st) == 0) {
        lookup->fd = fd;
        if (S_ISREG(lookup->st.st_mode))
            return FOUND_FILE;
        if (S_ISDIR(lookup->st.st_mode))
            return FOUND_DIRECTORY;
    }
    /* FIFOs, devices and sockets are not there. */
    close(fd);
    lookup->fd = -1;
    lookup->status = 404;
    return FOUND_NOTHING;
}

static void drop_fd(struct lookup *lookup)
{
    if (lookup->fd >= 0)
        close(lookup->fd);
    lookup->fd = -1;
}

/* PATH is a file and open.  Is there beside it a compressed form that the client takes?  To a client that takes none
 * the answer does not vary: a cache that keeps it has what everybody can read. */
static enum found look_for_sibling(struct lookup *lookup, const char *path, bool wait)
{
    static const struct {
        const char *suffix;
        const char *coding;
    } forms[] = {{".br", "br"}, {".gz", "gzip"}};
    char sibling[LIMIT_PATH_BYTES + 8];
    struct lookup plain = *lookup;
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        if (!(i == 0 ? lookup->brotli : lookup->gzip))
            continue;
        snprintf(sibling, sizeof sibling, "%s%s", path, forms[i].suffix);
        lookup->fd = -1;
        enum found found = look_at(lookup, sibling, wait);
        if (found == FOUND_LATER) {
            close(plain.fd);
            return found;
        }
        if (found == FOUND_FILE && lookup->st.st_mtime >= plain.st.st_mtime) {
            close(plain.fd);
            lookup->encoding = forms[i].coding;
            lookup->varies = true;
            return FOUND_FILE;
        }
        drop_fd(lookup);
        lookup->fd = plain.fd;
        lookup->st = plain.st;
        lookup->status = 0;
    }
    return FOUND_FILE;
}

/* What was read of LOOKUP's file, with gzip, if that makes it shorter. */
static void compress(struct lookup *lookup)
{
    struct buf small = {0};
    if (!lookup->in_memory)
        return;
    lookup->varies = true;
    if (gzip_body(&lookup->content, &small, NULL) && small.len < lookup->content.len) {
        buf_free(&lookup->content);
        lookup->content = small;
        lookup->encoding = "gzip";
        return;
    }
    buf_free(&small);
}

/* PATH is a file and open: have it in the form that is wanted.  False when that has to wait. */
static bool take_file(struct lookup *lookup, const char *path, bool wait)
{
    /* NOLINTBEGIN(clang-analyzer-core.UndefinedBinaryOperatorResult): look_at has filled ST. */
    lookup->status = 0;
    lookup->type = mime_type(lookup->entry->mime, path);
    if (lookup->reload && strncmp(lookup->type, "text/html", 9) == 0 &&
        lookup->st.st_size <= LIMIT_PAGE_BYTES) {
        if (!read_small(lookup, wait)) {
            drop_fd(lookup);
            buf_free(&lookup->content);
            return false;
        }
        if (lookup->in_memory)
            reload_inject(&lookup->content, lookup->entry->prefix);
        return true;
    }
    if (lookup->entry->siblings && look_for_sibling(lookup, path, wait) == FOUND_LATER) {
        lookup->fd = -1;
        return false;
    }
    if (lookup->gzip && !lookup->encoding && lookup->st.st_size >= ZIP_BYTES_MIN &&
        lookup->st.st_size <= LIMIT_ZIP_BYTES && gzip_worth(lookup->type, strlen(lookup->type))) {
        /* Milliseconds of work: not the loop's. */
        if (wait) {
            read_small(lookup, wait);
            compress(lookup);
            return true;
        }
        drop_fd(lookup);
        return false;
    }
    if (lookup->read && lookup->st.st_size > 0 && lookup->st.st_size <= LIMIT_INLINE_BYTES &&
        !read_small(lookup, wait)) {
        drop_fd(lookup);
        buf_free(&lookup->content);
        return false;
    }
    return true;
    /* NOLINTEND(clang-analyzer-core.UndefinedBinaryOperatorResult) */
}

/* For the listing: what the link NAME in LOOKUP's directory leads to. */
static bool follow_link(void *data, const char *name, struct stat *st)
{
    struct lookup *lookup = data;
    char path[LIMIT_PATH_BYTES];
    int len = snprintf(path, sizeof path, "%s%s%s", lookup->path, *lookup->path ? "/" : "", name);
    if (len < 0 || (size_t)len >= sizeof path)
        return false;
    int fd = open_below(lookup->root->fd, path, lookup->entry->links, true);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, st) == 0;
    close(fd);
    return ok;
}

/* LOOKUP's path is a directory and open: its index, or a list.  False when that has to wait. */
static bool take_directory(struct lookup *lookup, bool wait)
{
    char path[LIMIT_PATH_BYTES];
    int directory = lookup->fd;
    lookup->fd = -1;
    if (!lookup->slash) {
        close(directory);
        lookup->status = 301;
        return true;
    }
    for (char **name = lookup->entry->index; name && *name; name++) {
        int len = snprintf(path, sizeof path, "%s%s%s", lookup->path, *lookup->path ? "/" : "",
                           *name);
        if (len < 0 || (size_t)len >= sizeof path)
            continue;
        enum found found = look_at(lookup, path, wait);
        if (found == FOUND_FILE) {
            close(directory);
            return take_file(lookup, path, wait);
        }
        drop_fd(lookup);
        if (found == FOUND_LATER) {
            close(directory);
            return false;
        }
    }
    if (!lookup->entry->listing) {
        close(directory);
        lookup->status = 404;
        return true;
    }
    if (!wait) {
        close(directory);
        return false;
    }
    lookup->st = (struct stat){0};
    lookup->type = lookup->listing.text ? "text/plain; charset=utf-8" : "text/html; charset=utf-8";
    lookup->in_memory = listing_make(directory, lookup->path, &lookup->listing, follow_link, lookup,
                                     &lookup->content);
    lookup->status = lookup->in_memory ? 0 : 503;
    lookup->varies = false;
    return true;
}

/* Do what LOOKUP says.  False when it cannot be done without waiting, and WAIT is false. */
static bool look_up(struct lookup *lookup, bool wait)
{
    lookup->fd = -1;
    lookup->status = 0;
    if (!lookup->root) {
        int fd = open_resolved(AT_FDCWD, lookup->entry->directory, O_PATH | O_DIRECTORY, 0, wait);
        if (fd == -EAGAIN && !wait)
            return false;
        lookup->root = fd < 0 ? NULL : calloc(1, sizeof *lookup->root);
        if (!lookup->root) {
            if (fd >= 0)
                close(fd);
            lookup->status = fd < 0 ? status_of_errno(-fd) : 503;
            return true;
        }
        lookup->root->fd = fd;
        lookup->root->references = 1;
    }
    switch (look_at(lookup, lookup->path, wait)) {
    case FOUND_FILE:
        if (!lookup->slash)
            return take_file(lookup, lookup->path, wait);
        drop_fd(lookup); /* nothing lies below a file */
        lookup->status = 404;
        break;
    case FOUND_DIRECTORY:
        if (!take_directory(lookup, wait))
            return false;
        break;
    case FOUND_NOTHING:
        break;
    case FOUND_LATER:
        return false;
    }
    if (lookup->status == 404 && lookup->entry->fallback) {
        switch (look_at(lookup, lookup->entry->fallback, wait)) {
        case FOUND_FILE:
            return take_file(lookup, lookup->entry->fallback, wait);
        case FOUND_LATER:
            return false;
        case FOUND_DIRECTORY:
        case FOUND_NOTHING:
            drop_fd(lookup);
            lookup->status = 404;
        }
    }
    return true;
}

int static_open(const char *file, struct file_source *source)
{
    struct stat st;
    int fd = open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return status_of_errno(errno);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return 404;
    }
    source->fd = hub_move_up(fd);
    source->size = (uint64_t)st.st_size;
    source->modified = st.st_mtim;
    return 0;
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

static void lookup_clear(struct lookup *lookup)
{
    drop_fd(lookup);
    buf_free(&lookup->content);
    root_release(lookup->root);
    entry_release(lookup->entry);
}

static void conclude(struct hub *hub, struct exchange *exchange, struct lookup *lookup, bool taken);

static void on_work(uv_work_t *request)
{
    struct work *work = CONTAINER_OF(request, struct work, request);
    if (work->lookup) {
        look_up(work->lookup, true);
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
    if (lookup->reload && lookup->type && entry->wants_reload)
        watch(hub, entry, lookup->path);
    struct format_context context = context_of(exchange);
    struct file_source source = {
        .fd = -1,
        .size = lookup->in_memory ? lookup->content.len : (uint64_t)lookup->st.st_size,
        .modified = lookup->st.st_mtim,
        .type = lookup->type,
        .encoding = lookup->encoding,
        .varies = lookup->varies,
        .cache_control = entry->cache_control,
        .fields = &entry->fields,
        .content = lookup->in_memory ? &lookup->content : NULL,
    };
    if (!lookup->in_memory) {
        source.fd = lookup->fd;
        lookup->fd = -1;
        if (source.size && !context.head)
            source.fd = hub_move_up(source.fd); /* it stays open for a while */
    }
    complete(exchange, static_answer(exchange, &source, &context, hub_clock(hub)));
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
    lookup.content = (struct buf){0};
    lookup.in_memory = lookup.varies = false;
    lookup.encoding = NULL;
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
    if (!look_up(&lookup, false)) {
        look_up_later(hub, exchange, &lookup, taken);
        return;
    }
    conclude(hub, exchange, &lookup, taken);
    lookup_clear(&lookup);
}

/* ---- fixed answers ---- */

void static_compress(const struct buf *body, struct buf *out)
{
    if (!gzip_body(body, out, NULL) || out->len > body->len - body->len / 10)
        buf_free(out);
}

static void serve_fixed(struct hub *hub, struct exchange *exchange, struct entry *entry)
{
    struct format_context context = context_of(exchange);
    bool gzip = entry->gzip.len && select_accepts_coding(&exchange->request, "gzip");
    const struct buf *body = gzip ? &entry->gzip : &entry->body;
    char etag[sizeof entry->etag + 8];
    struct buf content = {0};
    size_t len = strlen(entry->etag);
    /* The tag of the compressed form is another one: "abc" and "abc-gz". */
    if (gzip && len)
        snprintf(etag, sizeof etag, "%.*s-gz\"", (int)len - 1, entry->etag);
    else
        snprintf(etag, sizeof etag, "%s", entry->etag);
    struct file_source source = {
        .fd = -1,
        .size = body->len,
        .status = entry->status,
        .type = entry->type,
        .etag = etag,
        .encoding = gzip ? "gzip" : NULL,
        .varies = entry->gzip.len != 0,
        .cache_control = entry->cache_control,
        .fields = &entry->fields,
        .content = &content,
    };
    complete(exchange, buf_append(&content, body->data, body->len, SIZE_MAX) &&
                           static_answer(exchange, &source, &context, hub_clock(hub)));
    buf_free(&content);
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
    int error = errno;
    sigpipe_release(&hold);
    errno = error;
    return n;
#else
    char block[16 * 1024];
    ssize_t n = pread(fd, block, len < sizeof block ? len : sizeof block, (off_t)offset);
    return n <= 0 ? n : send(socket, block, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
#endif
}

enum static_sent static_send(struct hub *hub, struct exchange *exchange, int fd)
{
    struct file_part *file = &exchange->file;
    uint64_t chunk = file->left < CHUNK_BYTES ? file->left : CHUNK_BYTES;
    CHECK(file->open && chunk);
    if (exchange->task)
        return STATIC_WAITS;
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
    return STATIC_SENT;
}
