/* lookup.h - from a path to an open file, or to the bytes that stand for it.
 *
 * Thread: loop, or the pool where it may wait.  The loop never waits for a disk: a file is opened with RESOLVE_CACHED
 * and read with RWF_NOWAIT; only when the kernel says that it would have to wait (or cannot say), the same steps are
 * taken in the pool.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_LOOKUP_H
#define PORTER_LOOKUP_H

#include "cache.h"
#include "entry.h"
#include "listing.h"

#include <sys/stat.h>

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
    struct cache *cache; /* the loop's, or NULL */

    /* What was found. */
    int status; /* 0: a file; else what to answer */
    int fd;
    struct stat st;
    const char *type;
    const char *encoding;
    bool varies;
    bool zipped;            /* compression was tried, and CONTENT is what came of it */
    struct shared *content; /* the whole, if it is in memory; else NULL */
};

/* Do what LOOKUP says.  False when it cannot be done without waiting, and WAIT is false. */
bool lookup_run(struct lookup *lookup, bool wait);

/* Let go of all that LOOKUP holds.  Thread: loop. */
void lookup_clear(struct lookup *lookup);

/* The status that tells of ERROR, an errno. */
int lookup_status(int error);

#endif
