/* frame.h - WebSocket frames: bytes in, whole messages and control frames out; headers for what we send.
 *
 * Thread: loop (or a test's) for reading, any for writing.  Pure: no sockets, no clock.
 *
 * wslay cuts the stream into frames and unmasks them.  Here are the rules beyond one frame's syntax: masking
 * is a must for clients, what fragments may follow each other, UTF-8, close codes, limits (RFC 6455
 * sections 5 to 7).  Text is checked as it arrives: a bad byte ends the connection before the message is
 * complete.
 *
 * wslay's buffers are large.  A stream has some only while a frame is incomplete; between frames they are
 * in the pool that all streams share, so an idle WebSocket costs a few hundred bytes.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_FRAME_H
#define PORTER_FRAME_H

#include "buf.h"

/* Opcodes (RFC 6455 section 5.2). */
enum frame_opcode {
    FRAME_CONTINUATION = 0,
    FRAME_TEXT = 1,
    FRAME_BINARY = 2,
    FRAME_CLOSE = 8,
    FRAME_PING = 9,
    FRAME_PONG = 10
};

/* Close codes (section 7.4.1). */
enum frame_code {
    CODE_NORMAL = 1000,
    CODE_GOING_AWAY = 1001,
    CODE_PROTOCOL = 1002,
    CODE_UNSUPPORTED = 1003,
    CODE_NONE = 1005,     /* never sent: the close frame had no code */
    CODE_ABNORMAL = 1006, /* never sent: there was no close frame */
    CODE_BAD_DATA = 1007,
    CODE_POLICY = 1008,
    CODE_TOO_BIG = 1009,
    CODE_INTERNAL = 1011
};

#define FRAME_CONTROL_BYTES_MAX 125
#define FRAME_HEADER_BYTES_MAX 10 /* of a frame from a server: no mask */

enum frame_event {
    FRAME_EVENT_MORE = 0, /* all bytes are used */
    FRAME_EVENT_MESSAGE,  /* MESSAGE is complete, and of type OPCODE: take it or leave it */
    FRAME_EVENT_PING,     /* CONTROL holds the payload; PONG alike */
    FRAME_EVENT_PONG,
    FRAME_EVENT_CLOSE, /* CODE, or CODE_NONE; CONTROL holds the reason.  Nothing is read behind it. */
    FRAME_EVENT_FAILED /* close with CODE; REASON is static text.  No further call. */
};

struct frame_reader;
struct inflater;

/* What streams share.  All zero to begin with. */
struct frame_pool {
    struct frame_reader *spare;
    struct inflater *inflater;
};
void frame_pool_free(struct frame_pool *pool);

/* Where in a character the text ends. */
struct utf8 {
    uint8_t need; /* continuation bytes to come */
    uint8_t low;  /* the range of the next one */
    uint8_t high;
};

struct frames {
    struct frame_pool *pool;
    struct frame_reader *reader; /* NULL between frames */
    uint64_t message_bytes_max;  /* 1009; 0 for no limit */
    bool no_text;                /* 1003 */
    bool no_binary;
    bool deflate; /* permessage-deflate is agreed on (RFC 7692) */

    uint64_t left; /* of the payload of the current frame */
    bool in_frame;
    bool fin; /* the current frame's */
    bool over;
    bool compressed; /* the current message */
    uint8_t frame_opcode;
    uint8_t opcode; /* of the current message, or FRAME_CONTINUATION between messages */
    uint8_t control_len;
    struct utf8 utf8;

    struct buf message;
    int code;
    const char *reason;
    char control[FRAME_CONTROL_BYTES_MAX];
};

/* FRAMES is all zero but for its settings.  POOL is borrowed. */
void frames_init(struct frames *frames, struct frame_pool *pool);
void frames_free(struct frames *frames);

/* BYTES are next; borrowed until frames_next says MORE.  False when memory is out. */
bool frames_feed(struct frames *frames, const char *bytes, size_t len);
enum frame_event frames_next(struct frames *frames);

/* Check LEN more BYTES of a text; false when it cannot be UTF-8 (RFC 3629).  At its end NEED is 0. */
bool utf8_feed(struct utf8 *utf8, const char *bytes, size_t len);

/* Write the header of an unfragmented frame with LEN bytes of payload to OUT, which has room for
 * FRAME_HEADER_BYTES_MAX; returns how many bytes it took. */
size_t frame_header(char *out, int opcode, bool compressed, uint64_t len);

/* May CODE be in a close frame? (section 7.4) */
bool frame_code_valid(int code);

#endif
