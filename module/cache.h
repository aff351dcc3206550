/* cache.h - compressed files, kept while the files stay as they are.
 *
 * Thread: loop.  A file is known by where it is and by its times; the cache holds one use of each content, and drops
 * the one that was not asked for longest when it is full (LIMIT_CACHE_FILES, LIMIT_CACHE_BYTES).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_CACHE_H
#define PORTER_CACHE_H

#include "exchange.h"

#include <sys/stat.h>

struct cache;

/* Is the file that ST tells of here?  *CONTENT gets one use of its compressed form, or NULL when compression gains
 * nothing. */
bool cache_find(struct cache *cache, const struct stat *st, struct shared **content);

/* Keep CONTENT, borrowed, or that there is none, for the file that ST told of before it was read.  Makes *CACHE when
 * it is NULL. */
void cache_keep(struct cache **cache, const struct stat *st, struct shared *content);

/* NULL is nothing to do. */
void cache_free(struct cache *cache);

#endif
