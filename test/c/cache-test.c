/* cache-test.c - what the cache of compressed files keeps, and what it lets go.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "cache.h"

#include "limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int passed, failed;

static void expect_at(bool good, int line, const char *what)
{
    passed += good;
    failed += !good;
    if (!good)
        fprintf(stderr, "cache-test.c:%d: not so: %s\n", line, what);
}
#define EXPECT(condition) expect_at((condition), __LINE__, #condition)

static struct cache *cache;

static struct stat file(ino_t inode, time_t changed)
{
    return (struct stat){.st_ino = inode, .st_size = 7, .st_mtime = changed, .st_ctime = changed};
}

static struct shared *bytes(size_t len)
{
    struct buf buf = {0};
    if (!buf_reserve(&buf, len, SIZE_MAX))
        abort();
    buf.len = len;
    return shared_new(&buf);
}

static void keep(const struct stat *st, size_t len)
{
    struct shared *content = bytes(len);
    cache_keep(&cache, st, content);
    shared_release(content);
}

static bool has(const struct stat *st)
{
    struct shared *content = NULL;
    bool found = cache && cache_find(cache, st, &content);
    shared_release(content);
    return found;
}

static void test_changes(void)
{
    struct stat st = file(1, 1000);
    keep(&st, 10);
    EXPECT(has(&st));
    struct stat other = st;
    other.st_ctime++;
    EXPECT(!has(&other));
    other = st;
    other.st_mtim.tv_nsec++;
    EXPECT(!has(&other));
    other = st;
    other.st_size++;
    EXPECT(!has(&other));
    other = st;
    other.st_dev++;
    EXPECT(!has(&other));
    /* The file has changed: the old form is dropped. */
    other = file(1, 1001);
    keep(&other, 10);
    EXPECT(has(&other) && !has(&st));
}

static void test_useless(void)
{
    struct stat st = file(2, 1000);
    struct shared *content = NULL;
    cache_keep(&cache, &st, NULL);
    EXPECT(cache_find(cache, &st, &content) && !content);
}

static void test_young(void)
{
    struct stat st = file(3, time(NULL));
    keep(&st, 10);
    EXPECT(!has(&st));
}

static void test_bounds(void)
{
    for (ino_t i = 0; i < LIMIT_CACHE_FILES + 10; i++) {
        struct stat st = file(100 + i, 1000);
        keep(&st, 1);
        struct stat first = file(100, 1000);
        EXPECT(has(&first)); /* it is asked for all the time */
    }
    struct stat second = file(101, 1000);
    EXPECT(!has(&second));
    for (ino_t i = 0; i < 40; i++) {
        struct stat st = file(1000 + i, 1000);
        keep(&st, 1024 * 1024);
        EXPECT(has(&st));
        EXPECT(buf_live_bytes() <= LIMIT_CACHE_BYTES);
    }
}

int main(void)
{
    test_changes();
    test_useless();
    test_young();
    test_bounds();
    cache_free(cache);
    EXPECT(buf_live_bytes() == 0);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
