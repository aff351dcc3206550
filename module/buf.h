/* buf.h - growable bytes with a mandatory maximum.
 *
 * Thread: the owner's.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_BUF_H
#define PORTER_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
    char *data;
    size_t len;
    size_t capacity;
};

/* Start with all zero: `struct buf b = {0}`. */

/* Make room for MORE bytes behind the LEN used ones, never beyond BYTES_MAX in all.
 * False, and nothing changed, when that is too much or memory is out. */
bool buf_reserve(struct buf *buf, size_t more, size_t bytes_max);

/* Append; false, and nothing changed, as above. */
bool buf_append(struct buf *buf, const void *bytes, size_t len, size_t bytes_max);

/* Empty BUF and keep its memory, unless it holds more than KEEP bytes. */
void buf_reset(struct buf *buf, size_t keep);

void buf_free(struct buf *buf);

/* Bytes of all live buffers, for the leak tests. */
size_t buf_live_bytes(void);

#endif
