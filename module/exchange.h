/* exchange.h - one request and its answer: the thing that crosses between the threads and back.
 *
 *    loop reads  ->  [ inbox ]  ->  a handler answers  ->  [ outbox ]  ->  loop writes, recycles
 *
 * The loop makes exchanges and frees them; in between the Emacs thread has each for a while.
 * Who may touch which part when is written beside the members; the one thing both look at at
 * the same time is STATE.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_EXCHANGE_H
#define PORTER_EXCHANGE_H

#include "queue.h"
#include "reply.h"
#include "request.h"

#include <netinet/in.h>

struct conn;
struct log_entry;
struct server;

/*                 loop delivers          Emacs takes it          Emacs begins to write
 *      (loop's) ---------------> QUEUED ---------------> RUNNING ---------------> WRITING
 *                                  |                      | |                        |
 *                                  | loop                 | | first piece            | all sent
 *                                  v                      | v to the outbox          v
 *                               REVOKED <-----------------+ STREAMING             WRITTEN
 *                                  ^                            |
 *                                  +----------------------------+
 *
 * Only a compare-and-swap moves it out of QUEUED, RUNNING or STREAMING.  So the loop may close the
 * socket, or answer in the handler's place, as soon as it has moved the state to REVOKED: Emacs never
 * touches the socket of a revoked exchange.  While it is WRITING the socket is Emacs's, and
 * the loop waits for the hand-back, which is a send(2) away. */
enum exchange_state {
    EXCHANGE_LOOP = 0, /* not delivered, or handed back: the loop's alone */
    EXCHANGE_QUEUED,
    EXCHANGE_RUNNING,
    EXCHANGE_STREAMING,
    EXCHANGE_WRITING,
    EXCHANGE_WRITTEN,
    EXCHANGE_REVOKED
};

/* Kinds of items. */
enum item_kind {
    /* In the inbox, loop to Emacs. */
    ITEM_REQUEST = 1, /* an exchange with its request */
    ITEM_CLOSED,      /* a notice: exchange ID, which Emacs had taken, was revoked */
    ITEM_SERVER_GONE, /* a notice: server number ID has no connections any more */
    ITEM_LOG,         /* lines of a log; in the outbox too: lines to add to it */
    /* In the outbox, Emacs to loop. */
    ITEM_ANSWER, /* an exchange, handed back with what is left to write */
    ITEM_PIECE,  /* bytes of a growing answer */
    ITEM_LISTEN, /* a server to start */
    ITEM_STOP,   /* a server to stop */
    ITEM_BELL    /* a new fd for the doorbell */
};

struct peer {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } address; /* sa_family AF_UNIX: a local socket, without an address */
};

/* Names an exchange to Lisp: unlike a pointer it can be stale without harm. */
typedef uint64_t exchange_id;

struct exchange {
    struct item item;

    /* Written by the loop, frozen from delivery to hand-back (but for bridge_finish's KEEP). */
    struct request request;
    struct peer peer;
    struct server *server;
    uint64_t conn_number; /* never reused */
    uint32_t sequence;    /* of this answer on its connection */
    int fd;
    bool direct;     /* nothing is before this answer: Emacs may write it to FD itself */
    bool keep_alive; /* after this answer, if the handler agrees */

    _Atomic int state;       /* enum exchange_state */
    atomic_bool wake_loop;   /* the loop wants to hear of WRITTEN at once; see settle() in conn.c */
    atomic_bool deferred;    /* its handler has returned, and will answer later */
    _Atomic(exchange_id) id; /* set by Emacs when it takes the exchange; 0 before */
    atomic_size_t unsent_bytes; /* streaming: pieces that the socket has not taken yet */

    /* The Emacs thread's between taking and handing back, else the loop's. */
    struct reply reply;
    int streamed_status; /* set before STREAMING, then left alone: the loop may read it */

    /* The loop's, always. */
    struct log_entry *log;         /* the line for the access log, begun; NULL without a log */
    uint64_t streamed_bytes;       /* of the body, in pieces that are out */
    struct conn *conn;             /* NULL when detached: only recycling is left to do */
    struct exchange *next_on_conn; /* answers leave in this order */
    struct item_list pieces;       /* of a growing answer, to be written */
    bool counted;                  /* in its server's statistics; Emacs's while WRITING */
    size_t written; /* of the first piece, or of head and body together; Emacs's while WRITING */
    uint64_t delivered_ms;
    bool complete; /* everything there is to write is here */
};

/* Bytes of a growing answer. */
struct piece {
    struct item item;
    struct exchange *exchange; /* borrowed; not handed back before its last piece */
    struct buf bytes;
    uint64_t body_bytes; /* of the body; BYTES is more, with the head or a chunk's frame */
};

/* Whole lines, from or for the log of server number ID. */
struct log_batch {
    struct item item;
    uint64_t id;
    struct buf lines;
};

struct notice {
    struct item item;
    uint64_t id;
};

/* All counts are for the leak tests and porter-report. */
struct exchange *exchange_new(void); /* NULL when memory is out */
void exchange_free(struct exchange *exchange);
/* As new, keeping small buffers. */
void exchange_reset(struct exchange *exchange);
long exchange_live_count(void);

struct piece *piece_new(struct exchange *exchange);
void piece_free(struct piece *piece);

struct log_batch *log_batch_new(uint64_t id);
void log_batch_free(struct log_batch *batch);

/* Move EXCHANGE's state to TO if it is FROM. */
static inline bool exchange_move(struct exchange *exchange, int from, int to)
{
    return atomic_compare_exchange_strong(&exchange->state, &from, to);
}

static inline int exchange_state(struct exchange *exchange)
{
    return atomic_load(&exchange->state);
}

#endif
