/* cache.c - compressed files, kept while the files stay as they are.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "cache.h"

#include "limits.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A file that has changed within this time may change once more without showing it: the clocks of file systems
 * are coarse. */
#define SETTLED_S 2

struct kept {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified;
    struct timespec changed;
    struct shared *content; /* or NULL: compression gains nothing */
    uint64_t used;          /* larger: later */
};

struct cache {
    struct kept files[LIMIT_CACHE_FILES];
    size_t len;
    size_t bytes;
    uint64_t uses;
};

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_same(const struct kept *kept, const struct stat *st)
{
    return kept->inode == st->st_ino && kept->device == st->st_dev && kept->size == st->st_size &&
           same_time(&kept->modified, &st->st_mtim) && same_time(&kept->changed, &st->st_ctim);
}

bool cache_find(struct cache *cache, const struct stat *st, struct shared **content)
{
    for (size_t i = 0; i < cache->len; i++) {
        struct kept *kept = &cache->files[i];
        if (!is_same(kept, st))
            continue;
        kept->used = ++cache->uses;
        *content = kept->content ? shared_hold(kept->content) : NULL;
        return true;
    }
    return false;
}

static size_t bytes_of(const struct shared *content)
{
    return content ? content->bytes.capacity : 0;
}

static void drop(struct cache *cache, size_t at)
{
    cache->bytes -= bytes_of(cache->files[at].content);
    shared_release(cache->files[at].content);
    cache->files[at] = cache->files[--cache->len];
}

static void drop_oldest(struct cache *cache)
{
    size_t oldest = 0;
    for (size_t i = 1; i < cache->len; i++)
        if (cache->files[i].used < cache->files[oldest].used)
            oldest = i;
    drop(cache, oldest);
}

/* What is kept of the same file as it was before is of no use any more. */
static void drop_file(struct cache *cache, const struct stat *st)
{
    for (size_t i = 0; i < cache->len; i++)
        if (cache->files[i].inode == st->st_ino && cache->files[i].device == st->st_dev) {
            drop(cache, i);
            return;
        }
}

void cache_keep(struct cache **where, const struct stat *st, struct shared *content)
{
    if (time(NULL) - st->st_ctim.tv_sec < SETTLED_S)
        return;
    if (!*where && !(*where = calloc(1, sizeof **where)))
        return;
    struct cache *cache = *where;
    drop_file(cache, st);
    while (cache->len && (cache->len == LIMIT_CACHE_FILES ||
                          cache->bytes + bytes_of(content) > LIMIT_CACHE_BYTES))
        drop_oldest(cache);
    cache->files[cache->len++] = (struct kept){
        .device = st->st_dev,
        .inode = st->st_ino,
        .size = st->st_size,
        .modified = st->st_mtim,
        .changed = st->st_ctim,
        .content = content ? shared_hold(content) : NULL,
        .used = ++cache->uses,
    };
    cache->bytes += bytes_of(content);
}

void cache_free(struct cache *cache)
{
    while (cache && cache->len)
        drop(cache, cache->len - 1);
    free(cache);
}
