/* spool.c - write a temporary file without ever waiting for the disk.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* From so many bytes on they go to the pool; a job for less would cost more than it writes. */
#define WRITE_BYTES (128 * 1024)

/* So much may wait while a write is under way, give or take one read from the socket. */
#define FULL_BYTES (256 * 1024)

static void submit(struct spool *spool);

struct spool *spool_new(struct hub *hub, const char *directory, void (*on_progress)(void *data),
                        void *data)
{
    struct spool *spool = calloc(1, sizeof *spool);
    if (!spool)
        return NULL;
    spool->hub = hub;
    spool->work.data = spool;
    spool->fd = -1;
    spool->on_progress = on_progress;
    spool->data = data;
    spool->directory = strdup(directory);
    spool->file = calloc(1, sizeof *spool->file);
    if (!spool->directory || !spool->file) {
        spool_free(spool);
        return NULL;
    }
    return spool;
}

/* ---- in the pool ---- */

static int make_file(struct spool *spool)
{
    static const char pattern[] = "/porter-XXXXXX";
    size_t len = strlen(spool->directory);
    char *path = malloc(len + sizeof pattern);
    if (!path)
        return ENOMEM;
    memcpy(path, spool->directory, len);
    memcpy(path + len, pattern, sizeof pattern);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        int error = errno;
        free(path);
        return error;
    }
    spool->file->path = path;
    spool->fd = hub_move_up(fd);
    return 0;
}

static void on_work(uv_work_t *work)
{
    struct spool *spool = work->data;
    size_t written = 0;
    if (spool->fd < 0)
        spool->work_error = make_file(spool);
    while (!spool->work_error && written < spool->writing.len) {
        ssize_t n = write(spool->fd, spool->writing.data + written, spool->writing.len - written);
        if (n >= 0)
            written += (size_t)n;
        else if (errno != EINTR)
            spool->work_error = errno;
    }
}

static void on_close_work(uv_work_t *work)
{
    struct spool *spool = work->data;
    if (spool->fd >= 0 && close(spool->fd) < 0 && errno != EINTR)
        spool->work_error = errno;
    spool->fd = -1;
    if (spool->discard) {
        body_file_free(spool->file);
        spool->file = NULL;
    }
}

/* ---- in the loop ---- */

static void destroy(struct spool *spool)
{
    body_file_free(spool->file);
    buf_free(&spool->filling);
    buf_free(&spool->writing);
    free(spool->directory);
    free(spool);
}

static void on_closed(uv_work_t *work, int status)
{
    struct spool *spool = work->data;
    (void)status;
    spool->busy = false;
    spool->error = spool->work_error;
    if (spool->orphaned) {
        destroy(spool);
        return;
    }
    spool->done = !spool->error;
    spool->on_progress(spool->data);
}

static void close_file(struct spool *spool)
{
    spool->busy = true;
    spool->discard = spool->orphaned;
    uv_queue_work(&spool->hub->uv, &spool->work, on_close_work, on_closed);
}

static void on_written(uv_work_t *work, int status)
{
    struct spool *spool = work->data;
    (void)status;
    spool->busy = false;
    spool->error = spool->work_error;
    spool->file->bytes += spool->writing.len;
    spool->writing.len = 0;
    if (spool->orphaned) {
        close_file(spool);
        return;
    }
    if (!spool->error)
        submit(spool);
    spool->on_progress(spool->data);
}

static void submit(struct spool *spool)
{
    if (spool->busy || spool->error || spool->done)
        return;
    if (spool->ended && !spool->filling.len && spool->file->path) {
        close_file(spool);
        return;
    }
    if (!spool->ended && spool->filling.len < WRITE_BYTES)
        return;
    struct buf empty = spool->writing;
    spool->writing = spool->filling;
    spool->filling = empty;
    spool->busy = true;
    uv_queue_work(&spool->hub->uv, &spool->work, on_work, on_written);
}

bool spool_write(struct spool *spool, const char *bytes, size_t len)
{
    if (!buf_append(&spool->filling, bytes, len, SIZE_MAX))
        return false;
    submit(spool);
    return true;
}

void spool_end(struct spool *spool)
{
    spool->ended = true;
    submit(spool);
}

bool spool_is_full(const struct spool *spool)
{
    return spool->busy && spool->filling.len >= FULL_BYTES;
}

struct body_file *spool_take(struct spool *spool)
{
    struct body_file *file = spool->file;
    CHECK(spool->done);
    spool->file = NULL;
    return file;
}

void spool_free(struct spool *spool)
{
    if (!spool)
        return;
    spool->orphaned = true;
    if (spool->busy)
        return;
    if (spool->fd >= 0)
        close_file(spool);
    else
        destroy(spool);
}

/* ---- deleting ---- */

struct discard {
    uv_work_t work;
    uint32_t count;
    struct body_file *files[];
};

static void on_discard(uv_work_t *work)
{
    struct discard *discard = work->data;
    for (uint32_t i = 0; i < discard->count; i++)
        body_file_free(discard->files[i]);
}

static void on_discarded(uv_work_t *work, int status)
{
    (void)status;
    free(work->data);
}

void spool_discard_files(struct hub *hub, struct request *request)
{
    uint32_t count = 0;
    while (request_file(request, count))
        count++;
    if (!count)
        return;
    struct discard *discard = malloc(sizeof *discard + count * sizeof(struct body_file *));
    if (!discard)
        return; /* the request's end will delete them, if more slowly */
    discard->work.data = discard;
    discard->count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct body_file **file = request_file(request, 0);
        discard->files[i] = *file;
        *file = NULL;
    }
    uv_queue_work(&hub->uv, &discard->work, on_discard, on_discarded);
}
