/* intake.h - where the body of a request goes that is a form with parts, or large.
 *
 * Thread: loop.
 *
 * Small bodies need none of this: conn.c appends them to the request's body.
 *
 *     bytes --+-- a form? -- multipart.c --- parts ---+-- small: the request's BODY
 *             |                                       |
 *             +-- else ------- the whole body --------+-- large: spool.c, a temporary file each
 *
 * A form is kept as it came as long as it is small, its parts being places in it.  From the
 * spool threshold on only its parts are kept, and what does not fit into that much memory goes to files,
 * part by part.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_INTAKE_H
#define PORTER_INTAKE_H

#include "multipart.h"
#include "spool.h"

/* One file being written. */
struct intake_file {
    struct spool *spool;
    int64_t part; /* its number, or -1 for the whole body */
};

struct intake {
    struct hub *hub;
    struct server *server;
    struct request *request; /* borrowed */
    bool is_form;
    struct multipart multipart;
    bool raw; /* of a form: the body is kept as it came */

    struct intake_file *files; /* the last one is being filled when FILLING */
    uint32_t files_len;
    uint32_t files_capacity;
    bool filling;

    const char *reason; /* of a refusal: static text */
    void (*on_progress)(void *data);
    void *data;
};

/* How much of a body may be in memory now; without end for 0. */
uint64_t intake_memory_max(const struct limits *limits);

/* For the form that REQUEST brings, or for its large body; what of it is in memory already counts.
 * NULL sets *STATUS and *REASON for a refusal.  ON_PROGRESS is called when something was written: look at
 * intake_is_full, _status and _is_settled. */
struct intake *intake_new(struct hub *hub, struct server *server, struct request *request,
                          void (*on_progress)(void *data), void *data, int *status,
                          const char **reason);

/* 0, or the status to refuse the request with, for intake->reason. */
int intake_bytes(struct intake *intake, const char *bytes, size_t len);

/* The body is complete: as above. */
int intake_end(struct intake *intake);

/* 0, or what a write has come to: 507. */
int intake_status(struct intake *intake);

/* Read no more for now: the disk is behind. */
bool intake_is_full(const struct intake *intake);

/* After intake_end: has everything been written? */
bool intake_is_settled(const struct intake *intake);

/* The request gets its files.  Only when settled. */
void intake_deliver(struct intake *intake);

/* Takes INTAKE; files not delivered are deleted.  May be NULL. */
void intake_free(struct intake *intake);

#endif
