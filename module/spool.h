/* spool.h - write a temporary file without ever waiting for the disk.
 *
 * Thread: loop; the writing itself is done by libuv's pool.
 *
 * A spool has two buffers: one fills while the other is being written.  Who fills it looks at
 * spool_is_full and lets its client wait, so memory stays bounded however slow the disk is.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_SPOOL_H
#define PORTER_SPOOL_H

#include "hub.h"

struct spool {
    struct hub *hub;
    uv_work_t work;
    struct body_file *file; /* owned; its path is made by the pool */
    char *directory;
    int fd;        /* -1 before the file is made, and after its end */
    bool busy;     /* the pool has WRITING, FD, FILE->PATH and WORK_ERROR */
    bool discard;  /* the pool is to delete the file when it has closed it */
    bool ended;    /* nothing more will come */
    bool done;     /* all is written and the file is closed */
    bool orphaned; /* nobody waits for it: free it, and the file with it, as soon as may be */
    int work_error;
    int error; /* an errno value; nothing is written any more */
    struct buf filling;
    struct buf writing;

    /* Called after each write, but for an orphan: room has come, or DONE or ERROR was set. */
    void (*on_progress)(void *data);
    void *data;
};

/* A new file in DIRECTORY.  NULL when memory is out. */
struct spool *spool_new(struct hub *hub, const char *directory, void (*on_progress)(void *data),
                        void *data);

/* Append.  False when memory is out. */
bool spool_write(struct spool *spool, const char *bytes, size_t len);

/* Nothing more comes: on_progress follows, and DONE or ERROR is set then. */
void spool_end(struct spool *spool);

bool spool_is_full(const struct spool *spool);

/* Gives the file of a spool that is done. */
struct body_file *spool_take(struct spool *spool);

/* Takes SPOOL; what was not taken is deleted, when the pool has let go of it.  May be NULL. */
void spool_free(struct spool *spool);

/* Delete the files of REQUEST that were not taken over, in the pool: to give a gigabyte back takes a
 * file system a while. */
void spool_discard_files(struct hub *hub, struct request *request);

#endif
