/* log.h - the access log of a server: a line for each answer that is out, handed on in batches.
 *
 * Thread: loop; made and freed by Emacs while the loop does not have the server.
 *
 * A line is begun when its request is complete, since Emacs takes the request from then on, and ended
 * when the answer has left.  Lines gather in PENDING; a few times a second they go to a file,
 * appended by libuv's pool so that a slow disk stops nobody, or to Emacs, for a buffer, or to both.
 * Emacs gets the next batch when it has taken the last one: while it is stuck, PENDING grows to
 * LIMIT_LOG_BYTES, then lines are dropped and counted.
 *
 * What clients sent is escaped: a line is printable ASCII, whatever they sent.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_LOG_H
#define PORTER_LOG_H

#include "check.h"
#include "request.h"

#include <sys/socket.h>
#include <uv.h>

/* How long a line may wait for others to be handed on with it. */
#define LOG_BATCH_MS 250

enum log_format {
    LOG_NONE = 0, /* only what Emacs has to say: errors of handlers */
    LOG_READABLE, /* 2026-12-01 00:08:16 127.0.0.1 "GET /" 200 1234 0.8ms */
    LOG_COMMON,   /* Common Log Format, as of NCSA httpd, with the user by Basic authentication */
    LOG_COMBINED  /* the same with Referer and User-Agent */
};

/* A line whose answer is not out yet. */
struct log_entry {
    struct buf text; /* what stands before status and size, and what behind */
    size_t split;    /* where they belong */
};

struct log {
    enum log_format format;
    bool to_buffer; /* batches go to Emacs */
    int fd;         /* of the file, or -1 */

    struct buf pending;
    uint64_t pending_ms; /* when the first line of PENDING came; 0: none */
    uint64_t lost_count; /* lines that found no room since the last batch */
    atomic_bool taken;   /* Emacs has taken the last batch */

    uv_fs_t write;
    struct buf writing; /* being written by WRITE; empty: nothing is */
    size_t written;

    time_t stamp_at; /* STAMP is of this second */
    char stamp[48];
};

/* NULL when memory is out.  FD is taken in any case. */
struct log *log_new(enum log_format format, bool to_buffer, int fd);
/* LOG may be NULL.  Nothing may be under way. */
void log_free(struct log *log);

/* The beginning of the line for REQUEST, from the client at PEER; NULL when memory is out. */
struct log_entry *log_begin(struct log *log, const struct request *request,
                            const struct sockaddr *peer);
void log_entry_free(struct log_entry *entry);

/* Takes ENTRY, which may be NULL, and adds its line.  STATUS 0: the client got none.  MS is how long
 * the answer took. */
void log_end(struct log *log, struct log_entry *entry, int status, uint64_t body_bytes, uint64_t ms,
             uint64_t now_ms);

/* Add LEN bytes of TEXT, whole lines.  False when there is no room for them. */
bool log_append(struct log *log, const char *text, size_t len, uint64_t now_ms);

/* In how many milliseconds a batch is due; 0 for now, UINT64_MAX for never.  A batch is due for
 * nobody while the last one is still under way. */
uint64_t log_due(struct log *log, uint64_t now_ms);

/* Gives PENDING to the caller; starts the writing of it to the file, if there is one. */
struct buf log_take(struct log *log, uv_loop_t *uv);

/* Is something being written? */
static inline bool log_is_writing(const struct log *log)
{
    return log->writing.len > 0;
}

/* The thread ends: write what is pending here and now. */
void log_finish(struct log *log);

/* May requests be looked at for LOG, which may be NULL? */
static inline bool log_wants(const struct log *log)
{
    return UNLIKELY(log != NULL) && log->format != LOG_NONE;
}

#endif
