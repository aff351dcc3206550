/* parse.h - bytes in, one request out; an error is the status to answer with.
 *
 * Thread: loop (or a test's).  Pure: no sockets, no clock.
 *
 * llhttp reads the grammar.  In front of it stands a guard that holds the lines llhttp's versions
 * draw differently (bare CR and LF, folding, blanks before the colon, ...), so that what is refused
 * does not depend on the llhttp that is installed.  Rules: RFC 9112; strict wherever two servers
 * could disagree about where a message ends (section 11.2).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_PARSE_H
#define PORTER_PARSE_H

#include "limits.h"
#include "request.h"

#include <llhttp.h>

enum parse_event {
    PARSE_MORE = 0, /* all bytes used, the message goes on */
    PARSE_HEAD,     /* the head is complete and valid; feed again for the body */
    PARSE_DONE,     /* the request is complete; bytes behind *USED belong to the next one */
    PARSE_FAILED    /* refuse with parser->status and close; no further feed */
};

/* Where body bytes go, decoded of chunking, in pieces of any size.  0, or the status to refuse the
 * request with.  BYTES are borrowed.  Without a sink they are appended to the request's body. */
typedef int parse_body_sink(void *data, const char *bytes, size_t len);

/* The guard's state for one message; all zero when it begins.
 *
 *     START -> LINE -> FIELDS -+-> COMPLETE (no body) ------------------> OVER
 *                             +-> BODY ---------------------------------> OVER
 *                             +-> CHUNK_LINE -> TRAILERS ---------------> OVER
 *                                 |        ^
 *                                 v        |
 *                             CHUNK_DATA -> CHUNK_END
 *
 * Offsets count bytes of the request's head. */
struct parser_guard {
    uint8_t stage;       /* enum stage of parse.c */
    uint8_t chunk_state; /* enum chunk_state of parse.c */
    bool cr_pending;     /* the last byte seen was a CR */
    bool absolute;       /* absolute-form: the authority is the target's, not Host's */
    bool host_seen;
    bool length_seen;    /* a Content-Length field */
    bool coding_seen;    /* a Transfer-Encoding field ... */
    bool coding_foreign; /* ... that names something besides chunked */
    bool coding_chunked; /* ... whose last coding is chunked */
    bool option_close;   /* of Connection */
    bool option_keep_alive;
    bool option_upgrade;
    bool upgrade_seen; /* an Upgrade field */
    bool expect_continue;
    bool expect_other;
    bool message_complete; /* llhttp says so */
    bool name_open;        /* llhttp has begun a field name and not ended it */
    uint32_t head_max;     /* the head must not grow beyond this offset */
    uint32_t line_off;     /* where the current line begins */
    uint32_t target_off;   /* of the request target, 0 before it is seen */
    uint32_t target_end;   /* of the request target, 0 before it is seen */
    uint32_t fed_off;      /* llhttp has had everything before */
    uint32_t lines;        /* field lines so far, the trailers' as well */
    uint32_t empty_bytes;  /* skipped in front of the message */
    uint32_t chunk_line;   /* bytes of the current chunk-size line */
    uint64_t chunk_left;   /* bytes to come of the current chunk */
};

struct parser {
    llhttp_t llhttp;
    const struct limits *limits; /* borrowed */
    struct request *request;     /* borrowed; between parser_begin and PARSE_DONE */
    parse_body_sink *sink;
    void *sink_data;
    int status;         /* of PARSE_FAILED: 400, 413, 414, 417, 431, 501, 503 (no memory) or 505,
                           or what the sink said */
    const char *reason; /* of PARSE_FAILED: what is wrong, for the log and the body; static text */
    struct parser_guard guard;
};

/* LIMITS and SINK_DATA are borrowed for the parser's life. */
void parser_init(struct parser *parser, const struct limits *limits, parse_body_sink *sink,
                 void *sink_data);

/* Start the next message, filling the empty REQUEST.  Empty lines before it are skipped
 * (RFC 9112 section 2.2); parser_started tells whether a byte of the message itself was seen.
 * It is false again from PARSE_DONE on. */
void parser_begin(struct parser *parser, struct request *request);
bool parser_started(const struct parser *parser);

/* Read up to LEN bytes of DATA and stop at the next event; *USED says how many were consumed.
 * DATA may end anywhere; the outcome does not depend on how the bytes are cut.
 * After PARSE_HEAD feed again, also with what is left of zero bytes: a request without a body is
 * PARSE_DONE at once.  REQUEST's head buffer may move while it grows; spans stay good. */
enum parse_event parser_feed(struct parser *parser, const char *data, size_t len, size_t *used);

/* Why the message so far does not end at end of input: true when it is cut off in the middle. */
bool parser_unfinished(const struct parser *parser);

#endif
