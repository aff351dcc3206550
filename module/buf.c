/* buf.c - growable bytes with a mandatory maximum.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "buf.h"

#include "check.h"

#include <stdlib.h>

static atomic_size_t live_bytes;

bool buf_reserve(struct buf *buf, size_t more, size_t bytes_max)
{
    if (more <= buf->capacity - buf->len && buf->len + more <= bytes_max)
        return true;
    if (more > bytes_max || buf->len > bytes_max - more)
        return false;
    /* Doubling keeps appending linear; the maximum bounds the overshoot. */
    size_t capacity = buf->capacity ? buf->capacity : 256;
    while (capacity < buf->len + more)
        capacity = capacity > SIZE_MAX / 2 ? buf->len + more : capacity * 2;
    if (capacity > bytes_max)
        capacity = bytes_max;
    char *data = realloc(buf->data, capacity);
    if (!data)
        return false;
    atomic_fetch_add_explicit(&live_bytes, capacity - buf->capacity, memory_order_relaxed);
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

bool buf_append(struct buf *buf, const void *bytes, size_t len, size_t bytes_max)
{
    if (!buf_reserve(buf, len, bytes_max))
        return false;
    if (len)
        memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    return true;
}

void buf_free(struct buf *buf)
{
    atomic_fetch_sub_explicit(&live_bytes, buf->capacity, memory_order_relaxed);
    free(buf->data);
    *buf = (struct buf){0};
}

void buf_reset(struct buf *buf, size_t keep)
{
    if (buf->capacity > keep)
        buf_free(buf);
    buf->len = 0;
}

size_t buf_live_bytes(void)
{
    return atomic_load_explicit(&live_bytes, memory_order_relaxed);
}
