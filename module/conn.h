/* conn.h - one connection: read, keep answers in order, write, time out, close.
 *
 * Thread: loop.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_CONN_H
#define PORTER_CONN_H

#include "hub.h"
#include "intake.h"
#include "parse.h"
#include "proxy.h"
#include "socket.h"

struct conn {
    uv_poll_t poll;
    int fd;
    int events; /* what POLL waits for */
    struct hub *hub;
    struct server *server;
    struct conn *prev;
    struct conn *next;
    struct peer peer;
    struct proxy *proxy; /* of its header, until that has been read; else NULL */
    uint64_t number;

    struct parser parser;
    struct exchange *current; /* whose request is being read, or NULL between requests */
    struct intake *intake;    /* of its body, when that is a form with parts, or large; else NULL */
    struct exchange *streaming; /* who gets CURRENT's body as it comes; NULL: nobody any more */
    const char *refusal;        /* what is wrong with its body, for the answer; static text */
    struct buf stash;           /* read already, to be parsed when fewer answers are outstanding */

    /* Answers outstanding, in the order of their requests. */
    struct exchange *first;
    struct exchange *last;
    uint32_t outstanding;
    uint32_t sequence; /* of the last answer; also counts requests */

    uint64_t head_ms;    /* when the current head began */
    uint64_t read_ms;    /* when a byte last came */
    uint64_t write_ms;   /* when a byte last went, or an answer was ready to go */
    uint64_t body_ms;    /* when CURRENT's body began */
    uint64_t full_ms;    /* since when the client is behind with reading, or 0 */
    uint64_t full_bytes; /* what it has read since then */
    size_t held_bytes;   /* of its answers in memory while it is behind: its part of the hub's */
    uint64_t end_ms; /* when the client said it sends no more (eof), or when to stop lingering */

    struct socket *socket; /* what the connection has become, or NULL */

    bool body;        /* CURRENT's head is complete */
    bool streams;     /* CURRENT's body goes to STREAMING */
    bool stream_over; /* it is complete */
    bool stream_last; /* no request is taken after it */
    bool storing;     /* CURRENT is complete, and waits for the files of its body to be written */
    bool held;    /* the last request may change the protocol: its answer decides what comes next */
    bool eof;     /* the client sends no more */
    bool parked;  /* the last request waits for a place in the queue */
    bool hangup;  /* neither, but what it sent is not read to its end */
    bool refused; /* what the client sends is in vain, and it may be in the middle of it */
    bool closing; /* no request is read any more; close when the answers are out */
    bool lingering;  /* our side is shut; reading on so that a reset does not overtake the answer */
    bool want_write; /* the socket is full */
    bool dead;       /* nothing goes in or out; waiting for Emacs to let go of the socket */
};

/* Takes FD, an accepted non-blocking socket.  Closes it when memory is out. */
void conn_open(struct hub *hub, struct server *server, int fd, const struct peer *peer);

/* May SERVER have one more connection from PEER, apart from APART (or NULL)? */
bool conn_address_has_room(const struct hub *hub, const struct server *server,
                           const struct peer *peer, const struct conn *apart);

/* EXCHANGE is handed back by Emacs: takes it.  NEXT is what was handed back behind it, or NULL: answers of one
 * connection leave in one write. */
void conn_answer(struct hub *hub, struct exchange *exchange, const struct item *next);

/* What static.c did for EXCHANGE in the pool is done. */
void conn_completed(struct exchange *exchange);

/* Deliver or refuse the requests that found the queue full, as far as it is time for that. */
void conn_unpark(struct hub *hub);

/* Takes PIECE. */
void conn_piece(struct piece *piece);

/* Takes SOCKET: its exchange, whose answer so far is the 101, speaks WebSocket from now on. */
void conn_upgrade(struct socket *socket);

/* The timeouts of CONN.  Returns in how many milliseconds to look again; CONN may be gone then. */
uint64_t conn_check(struct conn *conn);

/* Its server stops: close when idle, else after the answers under way. */
void conn_stop(struct conn *conn);

/* Close now, whatever is under way. */
void conn_kill(struct conn *conn);
/* Likewise, because all ends; the client of a WebSocket is told. */
void conn_quit(struct conn *conn);

#endif
