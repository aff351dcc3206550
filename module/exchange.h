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

#include "format.h"
#include "peer.h"
#include "queue.h"
#include "reply.h"
#include "request.h"

struct conn;
struct log_entry;
struct server;
struct socket;

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
 * the loop waits for the hand-back, which is a send(2) away.
 *
 * The exchange of a handshake is its WebSocket's for as long as that is open.  It is STREAMING, but Emacs
 * goes from there to WRITING and back for each frame it sends itself: see NOTE socket-write. */
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
    ITEM_MESSAGE,     /* from a WebSocket, whole */
    ITEM_RELAY,       /* a relay that was watched; in the outbox too: to be watched */
    ITEM_DRAINED,     /* a notice: the client of ID has read what had piled up */
    /* In the outbox, Emacs to loop. */
    ITEM_ANSWER, /* an exchange, handed back with what is left to write */
    ITEM_PIECE,  /* bytes of a growing answer, or to a WebSocket */
    ITEM_SOCKET, /* an exchange becomes a WebSocket: struct socket */
    ITEM_FILES,  /* a request with temporary files that nobody looks at any more */
    ITEM_LISTEN, /* a server to start */
    ITEM_STOP,   /* a server to stop */
    ITEM_BELL,   /* a new fd for the doorbell */
    ITEM_ENTRY,  /* a change of what the loop answers alone */
    ITEM_RELOAD  /* pages are to be loaded anew */
};

/* Names an exchange to Lisp: unlike a pointer it can be stale without harm. */
typedef uint64_t exchange_id;

/* What both threads look at of a WebSocket, or of a body that is handed over as it comes, besides STATE.
 *
 * NOTE socket-write: who may write to the socket?  The loop, once it has raised UNSENT_BYTES and seen a state
 * other than WRITING.  Emacs, once it has set WRITING and seen UNSENT_BYTES at 0 and CLOSED false.
 * Each says first and looks then, sequentially consistent, so never do both write; if both back off, Emacs's
 * frame goes by the outbox.  A loop that has to wait sets WAKE_LOOP, and Emacs answers with an empty piece. */
struct channel {
    bool open;                /* Emacs's: a WebSocket it is */
    bool closing;             /* Emacs's: it has sent a close frame */
    uint8_t window_bits;      /* frozen: of what is sent compressed; 0 for nothing */
    uint32_t compress_min;    /* frozen: smaller messages are not compressed */
    size_t high_water;        /* frozen: with more unsent bytes it is FULL */
    size_t unsent_max;        /* frozen: with more unsent bytes the client is given up */
    atomic_bool full;         /* set by Emacs; the loop clears it, and tells, when half is sent */
    atomic_bool closed;       /* the loop has sent a close frame, or will at once */
    atomic_bool paused;       /* the loop does not read until Emacs has taken messages */
    atomic_size_t wait_bytes; /* of messages that Emacs has not taken */
};

/* A part of an answer's body that comes out of a file: the bytes of TEXT, then LEN bytes at FROM. */
struct file_segment {
    struct buf text;
    uint64_t from;
    uint64_t len;
};

/* What is sent of an open file, behind head and body. */
struct file_part {
    int fd; /* when OPEN */
    bool open;
    struct server *server; /* whose open files it counts among, or NULL */
    uint64_t size;         /* when it was opened */
    struct timespec modified;
    uint64_t offset;
    uint64_t left;
    uint64_t sent;
    uint64_t warm_from; /* these bytes have been seen in memory */
    uint64_t warm_to;
    struct file_segment *segments; /* what follows, or NULL */
    uint32_t segments_len;
    uint32_t segments_at;
};

/* What is sent of bytes that many answers have in common, behind head and body. */
struct shared_part {
    struct shared *shared; /* NULL: nothing */
    size_t from;
    size_t len;
};

/* Work in libuv's pool on behalf of an answer.  It may outlive the answer; then it finds nobody here, and closes
 * FD, which it may be reading from. */
struct task {
    struct exchange *exchange;
    int fd; /* or -1 */
};

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
    bool head;       /* the method is HEAD */
    bool http_1_0;

    _Atomic int state;       /* enum exchange_state */
    atomic_bool wake_loop;   /* the loop wants to hear of WRITTEN at once; see settle() in conn.c */
    atomic_bool owned;       /* set by Emacs: what the client sends now is no request, but Lisp's */
    atomic_bool deferred;    /* its handler has returned, and will answer later */
    _Atomic(exchange_id) id; /* set by Emacs when it takes the exchange; 0 before */
    atomic_size_t unsent_bytes; /* streaming: pieces that the socket has not taken yet */
    atomic_uint heartbeat_ms; /* streaming: after so long without a byte send a comment; 0: never */
    struct channel channel;

    /* The Emacs thread's between taking and handing back, else the loop's. */
    struct reply reply;
    bool interim; /* an interim answer is on its way through the loop: so goes the final one */
    bool to_gzip; /* handed back whole, but neither compressed nor framed: in CONTEXT */
    struct format_context context;
    struct shared_part content;
    struct file_part file;
    uint32_t entry; /* a number: the loop is to answer by the server's entry of that number */
    /* Set before STREAMING, then left alone: the loop may read them. */
    int streamed_status;
    bool streamed_chunked;

    /* The loop's, always. */
    struct log_entry *log;         /* the line for the access log, begun; NULL without a log */
    uint64_t streamed_bytes;       /* of the body, in pieces that are out */
    struct task *task;             /* under way, or NULL */
    struct conn *conn;             /* NULL when detached: only recycling is left to do */
    struct exchange *next_on_conn; /* answers leave in this order */
    struct item_list pieces;       /* of a growing answer, to be written */
    bool counted;                  /* in its server's statistics; Emacs's while WRITING */
    size_t written; /* of the first piece, or of head, body and content; Emacs's while WRITING */
    uint64_t delivered_ms;
    bool begun;              /* streaming: the head has come */
    bool zipping;            /* the pool has REPLY; recycled only after that */
    atomic_bool zip_dropped; /* nobody waits for it any more */
    bool complete;           /* everything there is to write is here */
    bool parked;             /* in hub->parked, and recycled only when taken out of it */
};

/* The loop's: may it send Emacs more?  If not, Emacs answers with an empty piece when it has taken some. */
static inline bool channel_has_room(struct channel *channel, size_t bytes_max)
{
    if (atomic_load(&channel->wait_bytes) <= bytes_max)
        return true;
    /* Say first, look then, as in NOTE socket-write: Emacs counts down, and looks at PAUSED then. */
    atomic_store(&channel->paused, true);
    if (atomic_load(&channel->wait_bytes) > bytes_max)
        return false;
    atomic_store(&channel->paused, false);
    return true;
}

/* Bytes that many pieces or answers have in common; freed with the last of them.  Frozen. */
struct shared {
    atomic_uint count;
    struct buf bytes;
};

/* What a piece for a WebSocket is.  Frames that Emacs has made are BYTES. */
enum piece_kind {
    PIECE_BYTES = 0, /* to be written as they are; none at all: just look what there is to do */
    PIECE_TEXT,      /* a message to be compressed and framed */
    PIECE_BINARY,
    PIECE_CLOSE, /* the payload of a close frame; begins the closing handshake */
    PIECE_ABORT  /* no further frame: the connection ends */
};

/* Bytes of a growing answer, or to a WebSocket. */
struct piece {
    struct item item;
    enum piece_kind kind;
    struct exchange *exchange; /* borrowed; not handed back before its last piece */
    struct shared *shared;     /* whose bytes BYTES are, or NULL: then they are the piece's */
    struct buf bytes;
    uint64_t body_bytes; /* of the body; BYTES is more, with the head or a chunk's frame */
};

/* Kinds of messages besides those of WebSockets. */
enum {
    MESSAGE_BODY = -1,    /* bytes of a request's body as it comes, or of a stream that Lisp owns */
    MESSAGE_BODY_END = -2 /* nothing more of it comes */
};

/* A message, or the payload of a pong, from WebSocket ID, or a part of the body of request ID. */
struct message {
    struct item item;
    exchange_id id;
    int opcode; /* enum frame_opcode, or MESSAGE_BODY, MESSAGE_BODY_END */
    struct buf bytes;
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
    /* Of a WebSocket (CODE is not 0): why it is closed. */
    int code;
    size_t reason_len;
    char reason[];
};

/* A request whose answer left before its handler was done with it. */
struct leavings {
    struct item item;
    struct request request; /* owned */
};

/* All counts are for the leak tests and porter-report. */
struct exchange *exchange_new(void); /* NULL when memory is out */
void exchange_free(struct exchange *exchange);
/* As new, keeping small buffers. */
void exchange_reset(struct exchange *exchange);
long exchange_live_count(void);

/* So many bytes leave before those of the file, if there is one. */
static inline size_t exchange_ready_bytes(const struct exchange *exchange)
{
    return exchange->reply.head.len + exchange->reply.body.len + exchange->content.len;
}

/* Forget what FILE is, and close it. */
void file_part_clear(struct file_part *file);

struct piece *piece_new(struct exchange *exchange);
/* With the bytes of SHARED, counting one more user of it. */
struct piece *piece_new_shared(struct exchange *exchange, struct shared *shared);
/* Takes what is in BYTES; for one user.  NULL when memory is out. */
struct shared *shared_new(struct buf *bytes);
/* One user more. */
struct shared *shared_hold(struct shared *shared);
/* Drop one use.  NULL is nothing to do. */
void shared_release(struct shared *shared);
void piece_free(struct piece *piece);

struct log_batch *log_batch_new(uint64_t id);
void log_batch_free(struct log_batch *batch);
void message_free(struct message *message);

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
