/* socket.h - a connection that became a WebSocket: messages to Lisp, pings, closing.
 *
 * Thread: loop, except where said.  conn.c calls it and writes what it appends to the exchange's pieces;
 * it does not know struct conn.
 *
 *    OPEN --our close frame--> CLOSING --their close frame--> OVER
 *      |                          +-----time, or an error-----> OVER
 *      +--their close frame (answered at once), or an error (told by a close frame)--> OVER
 *
 * OVER: the connection ends when the last piece is written.  The server ends it, not the client
 * (RFC 6455 section 7.1.1).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_SOCKET_H
#define PORTER_SOCKET_H

#include "frame.h"
#include "hub.h"

struct socket_options {
    uint64_t message_bytes_max; /* 1009; 0 for no limit */
    uint32_t ping_interval_ms;  /* without a byte from the client: ping; 0 for never */
    uint32_t ping_timeout_ms;   /* without a byte after a ping: gone */
    uint32_t close_timeout_ms;  /* for the client's close frame after ours */
    bool no_text;
    bool no_binary;
    bool deflate;
    bool pongs; /* tell Lisp of them */
};

enum socket_phase { SOCKET_OPEN = 0, SOCKET_CLOSING, SOCKET_OVER };

/* Made by Emacs, the loop's from the outbox on. */
struct socket {
    struct item item;
    struct exchange *exchange; /* borrowed */
    struct socket_options options;
    enum socket_phase phase;
    struct frames frames;
    uint64_t ping_ms;  /* when a ping was sent that no byte has followed yet, or 0 */
    bool ping_waits;   /* behind what a slow client still reads: its time has not begun */
    uint64_t close_ms; /* when our close frame was sent */
    bool failed;       /* the client broke a rule, and may still be sending */
    int code;          /* what Lisp will be told: 0 until something is known */
    size_t reason_len;
    char reason[FRAME_CONTROL_BYTES_MAX];
};

/* Thread: Emacs.  NULL when memory is out. */
struct socket *socket_new(struct exchange *exchange, const struct socket_options *options);
/* Thread: loop, or any that has it alone. */
void socket_free(struct socket *socket);

/* It begins. */
void socket_start(struct socket *socket, struct hub *hub);

/* BYTES came from the client. */
void socket_feed(struct socket *socket, struct hub *hub, const char *bytes, size_t len);

/* Takes PIECE, a frame or an order from Emacs: appends what it means to the exchange's pieces. */
void socket_piece(struct socket *socket, struct hub *hub, struct piece *piece);

/* Begin the closing handshake unless it is under way. */
void socket_close(struct socket *socket, struct hub *hub, int code, const char *reason);

/* Should the loop read on, or do too many messages wait for Lisp? */
bool socket_wants_reading(struct socket *socket);

/* May the loop write now?  See NOTE socket-write in exchange.h. */
bool socket_may_write(struct socket *socket);

/* Bytes of the exchange's pieces were sent: tell Lisp when it waits for that. */
void socket_sent(struct socket *socket, struct hub *hub);

/* Pings and timeouts.  READ_MS is when a byte last came.  Returns in how many milliseconds to look again. */
uint64_t socket_check(struct socket *socket, struct hub *hub, uint64_t read_ms);

/* The notice for Lisp that it is over.  NULL when memory is out. */
struct notice *socket_notice(struct socket *socket);

#endif
