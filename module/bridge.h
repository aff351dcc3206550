/* bridge.h - the Emacs thread's end of both queues: take requests, answer them, hand them back.
 *
 * Thread: Emacs.  Knows nothing of Lisp; module.c does, and test/c drives it without.
 *
 * One bridge per Emacs.  An exchange that was taken is known by its id until it is finished: a stale id finds
 * nothing, so a late answer is no danger.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_BRIDGE_H
#define PORTER_BRIDGE_H

#include "content.h"
#include "loop.h"
#include "relay.h"
#include "socket.h"

enum bridge_event_kind {
    BRIDGE_NOTHING = 0,
    BRIDGE_REQUEST,       /* exchange: to be answered */
    BRIDGE_CLOSED,        /* id: its client has gone, or the loop has answered in its place */
    BRIDGE_MESSAGE,       /* message: taken by the receiver */
    BRIDGE_DRAINED,       /* id: the client of a WebSocket has read what had piled up */
    BRIDGE_SOCKET_CLOSED, /* notice: taken by the receiver */
    BRIDGE_RELAY,         /* id: the number of a relay that was watched */
    BRIDGE_LOG, /* id: the number of a server; lines: for its log buffer, the taker's to free */
    BRIDGE_SERVER_GONE /* number: a stopped server has no connections left; its number is free */
};

struct bridge_event {
    enum bridge_event_kind kind;
    struct exchange *exchange;
    exchange_id id;
    struct buf lines;
    struct message *message;
    struct notice *notice;
};

/* How many drains may nest: handlers that wait, in handlers that wait. */
#define BRIDGE_DEPTH_MAX 8

/* Two ended connections of one batch share a place only when so many others came between them. */
#define BRIDGE_ENDED 1024

/* What is left of an exchange that is finished while its handler still runs. */
struct kept {
    exchange_id running; /* the exchange last taken at this depth */
    bool valid;          /* it is finished, and this is its request: */
    struct request request;
    struct peer peer;
};

struct slot {
    struct exchange *exchange; /* NULL: free */
    uint64_t generation;
    uint32_t next_free;
};

struct bridge {
    struct loop *loop; /* NULL: not started */
    struct server *servers[LIMIT_SERVERS + 1];
    uint32_t depth; /* of drains under way: a handler that waits may cause another one */
    bool unheard;   /* the bell rang, and no drain could begin */

    struct kept kept[BRIDGE_DEPTH_MAX + 1]; /* by depth */

    struct item_list todo; /* taken from the inbox */
    /* Requests of it that wait until there is room for their answers: hub_has_room. */
    struct item_list waiting;

    /* Finished answers of one connection, in order, to leave in one write. */
    struct item_list chain;
    uint32_t chain_len;
    /* The last answer of a chain that went out whole: its follower may be written directly too. */
    uint64_t written_conn;
    uint32_t written_sequence;

    /* Connections that an answer has said the end of, each in the place that its number has modulo the
     * size.  None is needed for long: the loop soon revokes what is behind such an answer. */
    uint64_t ended_conns[BRIDGE_ENDED];

    struct item_list done; /* to be handed back */
    bool wake;             /* the loop has something to do with them */
    uint64_t done_since_ns;
    uint64_t deadline_ns; /* of the drain */
    uint64_t given_ns;    /* when Lisp got what it works at; 0 at the beginning of a drain */

    struct slot *slots;
    uint32_t slots_len;
    uint32_t slots_capacity;
    uint32_t first_free;
    uint32_t taken_count;

    struct format_clock clock;
    uint64_t clock_ns; /* when CLOCK was last looked after */

    struct buf frame; /* where frames are made, see bridge_frame_begin */

    struct relay_table relays;
};

/* Start the loop with BELL_FD, which is taken.  0 or a negative libuv code. */
int bridge_start(struct bridge *bridge, int bell_fd);
/* Takes FD, the Emacs thread's own duplicate of the doorbell. */
void bridge_set_bell(struct bridge *bridge, int fd);
/* End it, within TIMEOUT_MS.  What was under way is dropped. */
void bridge_stop(struct bridge *bridge, unsigned timeout_ms);

/* Takes SERVER and gives it a number.  False when all numbers are in use; SERVER stays the caller's. */
bool bridge_listen(struct bridge *bridge, struct server *server);

/* Takes the whole lines of LINES for the log of SERVER, in their order with the answers of this thread.
 * False when it has no log; LINES stays the caller's. */
bool bridge_log(struct bridge *bridge, struct server *server, struct buf *lines);

/* A drain: begin, take until nothing comes, end.  False when too many are under way: take nothing then,
 * the one below goes on. */
bool bridge_begin(struct bridge *bridge, uint64_t budget_us);
void bridge_take(struct bridge *bridge, struct bridge_event *event);
/* True when something is left to do: ring for it, once the keyboard had its turn. */
bool bridge_end(struct bridge *bridge);
/* Wait for the next request, at most USEC and never beyond the drain's budget: a wake-up of the other thread
 * costs more than this.  True when there is one. */
bool bridge_linger(struct bridge *bridge, uint64_t usec);

/* The exchange that ID names, or NULL when it is finished. */
struct exchange *bridge_find(struct bridge *bridge, exchange_id id);

/* The request that ID names; also after its answer is finished, as long as its handler runs.  Else NULL.
 * PEER may be NULL. */
const struct request *bridge_request(struct bridge *bridge, exchange_id id,
                                     const struct peer **peer);

/* False when the client has gone, or someone else has answered: what is said from now on is dropped. */
bool bridge_live(struct exchange *exchange);

/* The answer is complete (phase OPEN or STREAMING): frame it, send it, forget its id.
 * KEEP: the handler may still be running, and look at its request later. */
enum format_status bridge_finish(struct bridge *bridge, struct exchange *exchange, bool keep);

/* Let the loop answer by the entry called NUMBER of EXCHANGE's server; see static.h.  Nothing is said yet. */
void bridge_serve(struct bridge *bridge, struct exchange *exchange, uint32_t number);

/* Answer with SOURCE, which is taken. */
enum format_status bridge_send_file(struct bridge *bridge, struct exchange *exchange,
                                    struct file_source *source);

/* Send what there is now, and let the answer grow. */
enum format_status bridge_flush(struct bridge *bridge, struct exchange *exchange);

/* Takes BYTES, an interim answer: send it before the final one. */
enum format_status bridge_interim(struct bridge *bridge, struct exchange *exchange,
                                  struct buf *bytes);

/* The answer cannot be completed: end the connection in a way the client takes for an error. */
void bridge_abort(struct bridge *bridge, struct exchange *exchange);

/* The handler has returned; the answer comes later, or goes on.  When nobody answers, the exchange is
 * let go as soon as its client leaves. */
void bridge_defer(struct bridge *bridge, struct exchange *exchange);

/* ---- WebSockets ---- */

/* EXCHANGE, whose reply is begun with format_switch and whose channel has its settings, becomes one. */
enum format_status bridge_upgrade(struct bridge *bridge, struct exchange *exchange,
                                  const struct socket_options *options);

enum bridge_sent {
    BRIDGE_SENT = 0,
    BRIDGE_FULL,     /* sent, but more should wait for BRIDGE_DRAINED */
    BRIDGE_DROPPED,  /* it is closed, or being closed */
    BRIDGE_NO_MEMORY /* dropped too */
};

/* The buffer to append a payload to; what is in it already belongs there.  NULL when memory is out. */
struct buf *bridge_frame_begin(struct bridge *bridge);
size_t bridge_frame_bytes(const struct bridge *bridge); /* of the payload so far */

/* Send the payload as one frame. */
enum bridge_sent bridge_frame_send(struct bridge *bridge, struct exchange *exchange, int opcode);

/* Send it to many: begin, add each, end.  It is framed once, and all share its bytes. */
struct shared *bridge_frame_share(struct bridge *bridge, int opcode); /* NULL: memory is out */
enum bridge_sent bridge_shared_send(struct bridge *bridge, struct exchange *exchange,
                                    struct shared *shared);

/* Begin the closing handshake with CODE (CODE_NONE for none) and REASON.  False when it was begun before. */
bool bridge_socket_close(struct bridge *bridge, struct exchange *exchange, int code,
                         const char *reason, size_t len);

/* May something be sent to EXCHANGE? */
static inline bool bridge_socket_open(struct exchange *exchange)
{
    return exchange->channel.open && !exchange->channel.closing && bridge_live(exchange) &&
           !atomic_load(&exchange->channel.closed);
}

/* What the client of EXCHANGE sends from now on is no request: it comes as messages of kind MESSAGE_BODY. */
void bridge_own(struct bridge *bridge, struct exchange *exchange);

/* A piece of LEN bytes of EXCHANGE's body has been dealt with: more of it may come. */
void bridge_body_taken(struct bridge *bridge, struct exchange *exchange, size_t len);

/* Have BRIDGE_RELAY come, once, when RELAY holds bytes or ends.  False when no loop runs. */
bool bridge_watch(struct bridge *bridge, struct relay *relay);

/* Hand over what has gathered.  Needed after answering outside a drain. */
void bridge_settle(struct bridge *bridge);

/* An id is a non-negative fixnum: generation, slot, server number, from high to low bits. */
#define BRIDGE_ID_SERVER_BITS 8
#define BRIDGE_ID_SLOT_BITS 20
#define BRIDGE_GENERATION_MASK ((UINT64_C(1) << 33) - 1)

#endif
