/* listing.h - the page that shows what is in a directory.
 *
 * Thread: any; listing_make reads the disk, and so belongs into the pool.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_LISTING_H
#define PORTER_LISTING_H

#include "limits.h"
#include "request.h"

#include <sys/stat.h>

enum listing_order { LISTING_BY_NAME = 0, LISTING_BY_SIZE, LISTING_BY_DATE };

/* How a client wants to see it. */
struct listing_request {
    enum listing_order order;
    bool descending;
    bool text;        /* names alone, a line each */
    bool dotfiles;    /* the entry's */
    char prefix[256]; /* the entry's, decoded */
};

/* Read order and form from the query (?sort=size&order=desc) and Accept. */
void listing_read_request(struct listing_request *listing, const struct request *request,
                          const char *prefix, bool dotfiles);

/* Append to OUT the page for DIRECTORY, an fd that is taken, at PATH below the entry's prefix.  Where the symbolic
 * link NAME in there leads to is asked of FOLLOW, which knows the entry's policy: false hides it.  False when
 * memory is out or the directory cannot be read. */
bool listing_make(int directory, const char *path, const struct listing_request *listing,
                  bool (*follow)(void *data, const char *name, struct stat *st), void *data,
                  struct buf *out);

/* Percent-encode BYTES for a URL's path; slashes stay when SLASHES. */
bool listing_encode(struct buf *out, const char *bytes, size_t len, bool slashes);

/* May the file called NAME be served, as far as its name goes? */
bool listing_servable(const char *name, size_t len, bool dotfiles);

#endif
