/* lookup.c - from a path to an open file.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "lookup.h"

#include "gzip.h"
#include "reload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/openat2.h>
#include <sys/syscall.h>

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

/* Smaller files gain nothing by being compressed. */
#define ZIP_BYTES_MIN 512

/* ---- opening ---- */

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

int lookup_status(int error)
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

/* ---- files ---- */

/* Read all of LOOKUP's file into its CONTENT.  False when that would have to wait. */
static bool read_small(struct lookup *lookup, bool wait)
{
    size_t size = (size_t)lookup->st.st_size;
    struct buf content = {0};
    if (!buf_reserve(&content, size, SIZE_MAX))
        return true;
    while (content.len < size) {
        struct iovec iov = {content.data + content.len, size - content.len};
        ssize_t n;
#ifdef RWF_NOWAIT
        n = preadv2(lookup->fd, &iov, 1, (off_t)content.len, wait ? 0 : RWF_NOWAIT);
#else
        n = wait ? pread(lookup->fd, iov.iov_base, iov.iov_len, (off_t)content.len) : -1;
        errno = wait ? errno : EAGAIN;
#endif
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && !wait && (errno == EAGAIN || errno == EOPNOTSUPP)) {
            buf_free(&content);
            return false;
        }
        if (n <= 0) {
            /* Shrinking: let the other way, which looks at each byte's place, find out. */
            buf_free(&content);
            return true;
        }
        content.len += (size_t)n;
    }
    lookup->content = shared_new(&content);
    buf_free(&content);
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
        lookup->status = lookup_status(-fd);
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
    if (!lookup->content)
        return;
    gzip_shorter(&lookup->content->bytes, &small);
    struct shared *zipped = small.len ? shared_new(&small) : NULL;
    lookup->zipped = true;
    if (zipped) {
        shared_release(lookup->content);
        lookup->content = zipped;
        lookup->encoding = "gzip";
    }
    buf_free(&small);
}

/* LOOKUP's file has been compressed before, and has not changed since: take that.  *PLAIN when that is known to gain
 * nothing. */
static bool take_zipped(struct lookup *lookup, bool *plain)
{
    if (!lookup->cache || !cache_find(lookup->cache, &lookup->st, &lookup->content))
        return false;
    *plain = !lookup->content;
    if (!*plain)
        lookup->encoding = "gzip";
    return true;
}

static bool is_page(const struct lookup *lookup)
{
    return lookup->reload && strncmp(lookup->type, "text/html", 9) == 0 &&
           lookup->st.st_size <= LIMIT_PAGE_BYTES;
}

static bool wants_zip(const struct lookup *lookup)
{
    return lookup->gzip && !lookup->encoding && lookup->st.st_size >= ZIP_BYTES_MIN &&
           lookup->st.st_size <= LIMIT_ZIP_BYTES && gzip_worth(lookup->type, strlen(lookup->type));
}

/* LOOKUP's file is open: have it in the form that is wanted.  False when that has to wait. */
static bool take_content(struct lookup *lookup, bool wait)
{
    bool plain = false;
    if (is_page(lookup)) {
        if (!read_small(lookup, wait))
            return false;
        if (lookup->content)
            reload_inject(&lookup->content->bytes, lookup->entry->prefix);
        return true;
    }
    if (wants_zip(lookup)) {
        lookup->varies = true;
        if (take_zipped(lookup, &plain)) {
            if (!plain)
                return true;
        } else if (wait) {
            read_small(lookup, wait);
            compress(lookup);
            return true;
        } else {
            return false; /* milliseconds of work: not the loop's */
        }
    }
    return !lookup->read || lookup->st.st_size == 0 || lookup->st.st_size > LIMIT_INLINE_BYTES ||
           read_small(lookup, wait);
}

/* PATH is a file and open: have it, or a compressed form beside it.  False when that has to wait. */
static bool take_file(struct lookup *lookup, const char *path, bool wait)
{
    /* NOLINTBEGIN(clang-analyzer-core.UndefinedBinaryOperatorResult): look_at has filled ST. */
    lookup->status = 0;
    lookup->type = mime_type(lookup->entry->mime, path);
    if (lookup->entry->siblings && !is_page(lookup) &&
        look_for_sibling(lookup, path, wait) == FOUND_LATER) {
        lookup->fd = -1;
        return false;
    }
    if (take_content(lookup, wait))
        return true;
    drop_fd(lookup);
    return false;
    /* NOLINTEND(clang-analyzer-core.UndefinedBinaryOperatorResult) */
}

/* ---- directories ---- */

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
    struct buf page = {0};
    if (listing_make(directory, lookup->path, &lookup->listing, follow_link, lookup, &page))
        lookup->content = shared_new(&page);
    buf_free(&page);
    lookup->status = lookup->content ? 0 : 503;
    lookup->varies = false;
    return true;
}

/* ---- all of it ---- */

bool lookup_run(struct lookup *lookup, bool wait)
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
            lookup->status = fd < 0 ? lookup_status(-fd) : 503;
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

void lookup_clear(struct lookup *lookup)
{
    drop_fd(lookup);
    shared_release(lookup->content);
    root_release(lookup->root);
    entry_release(lookup->entry);
}
