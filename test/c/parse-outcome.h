/* parse-outcome.h - run the parser over bytes cut in some way and write down all it says.
 *
 * For test/c and test/fuzz.  Two ways to cut the same bytes must give the same text.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_PARSE_OUTCOME_H
#define PORTER_PARSE_OUTCOME_H

#include "parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct outcome {
    struct buf text; /* one line per event and per thing a request holds; a NUL at the end */
    struct buf body; /* of the current message */
    int requests;    /* complete ones */
    int status;      /* of PARSE_FAILED, else 0 */
    const char *reason;
    bool unfinished;
    bool started;
    /* The sink refuses a body that grows beyond this, with SINK_STATUS. */
    size_t sink_max;
    int sink_status;
};

static inline void outcome_free(struct outcome *outcome)
{
    buf_free(&outcome->text);
    buf_free(&outcome->body);
}

static inline void outcome_must(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "parse-outcome: %s\n", what);
        abort();
    }
}

__attribute__((format(printf, 2, 3))) static inline void outcome_print(struct outcome *outcome,
                                                                       const char *format, ...)
{
    char line[160];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    outcome_must(len >= 0 && (size_t)len < sizeof line, "line too long");
    outcome_must(buf_append(&outcome->text, line, (size_t)len, SIZE_MAX / 2), "out of memory");
}

static inline void outcome_bytes(struct outcome *outcome, const char *name, const char *bytes,
                                 size_t len)
{
    outcome_print(outcome, "%s[%zu]=", name, len);
    outcome_must(buf_append(&outcome->text, bytes, len, SIZE_MAX / 2), "out of memory");
    outcome_print(outcome, "\n");
}

static inline void outcome_span(struct outcome *outcome, const char *name,
                                const struct request *request, struct span span)
{
    outcome_must((uint64_t)span.off + span.len <= request->head.len, "span beyond the head");
    outcome_bytes(outcome, name, span.len ? request_at(request, span) : "", span.len);
}

static inline int outcome_sink(void *data, const char *bytes, size_t len)
{
    struct outcome *outcome = data;
    outcome_must(len > 0, "an empty piece of body");
    outcome_must(buf_append(&outcome->body, bytes, len, SIZE_MAX / 2), "out of memory");
    return outcome->body.len > outcome->sink_max ? outcome->sink_status : 0;
}

static inline void outcome_fields(struct outcome *outcome, const struct request *request,
                                  uint32_t from)
{
    for (uint32_t i = from; i < request->fields_len; i++) {
        outcome_span(outcome, " name", request, request->fields[i].name);
        outcome_span(outcome, " value", request, request->fields[i].value);
    }
}

static inline void outcome_head(struct outcome *outcome, const struct request *request)
{
    outcome_must(request->header_len == request->fields_len, "trailers in the header");
    outcome_must(!request->complete, "complete too early");
    outcome_print(outcome, "head %s 1.%d %s%s%s%s length=%llu\n", method_name(request->method),
                  request->version_minor, request->keep_alive ? "keep" : "close",
                  request->chunked ? " chunked" : "", request->expects_continue ? " continue" : "",
                  request->upgrade ? " upgrade" : "", (unsigned long long)request->content_length);
    outcome_span(outcome, " target", request, request->target);
    outcome_span(outcome, " path", request, request->path);
    outcome_span(outcome, " query", request, request->query);
    outcome_span(outcome, " authority", request, request->authority);
    outcome_fields(outcome, request, 0);
}

/* Feed LEN bytes of DATA.  Each feed gets what is left of the bytes up to the next cut, in a heap
 * copy of exactly that size so that a sanitizer sees every read beyond it.  Cuts: at CUT when it
 * is inside, and behind every byte when EACH. */
static inline void outcome_run(struct outcome *outcome, const struct limits *limits,
                               const char *data, size_t len, size_t cut, bool each)
{
    if (!outcome->sink_max)
        outcome->sink_max = SIZE_MAX;
    struct parser parser;
    parser_init(&parser, limits, outcome_sink, outcome);
    struct request *request = request_new();
    outcome_must(request, "out of memory");
    parser_begin(&parser, request);
    size_t at = 0;
    bool head_said = false;
    for (;;) {
        size_t end = each ? at + (at < len) : at < cut && cut < len ? cut : len;
        size_t give = end - at, used = 0;
        char *piece = malloc(give ? give : 1);
        outcome_must(piece, "out of memory");
        if (give)
            memcpy(piece, data + at, give);
        enum parse_event event = parser_feed(&parser, piece, give, &used);
        memset(piece, 'Z', give);
        free(piece);
        outcome_must(used <= give, "more used than given");
        at += used;
        if (event == PARSE_MORE) {
            outcome_must(used == give, "bytes left without an event");
            if (at == len)
                break;
        } else if (event == PARSE_HEAD) {
            outcome_must(!head_said, "two heads");
            head_said = true;
            outcome_head(outcome, request);
        } else if (event == PARSE_DONE) {
            outcome_must(head_said && request->complete, "complete without a head");
            outcome_must(request->body_bytes == outcome->body.len, "body_bytes is wrong");
            outcome_must(!parser_started(&parser) && !parser_unfinished(&parser), "not over");
            outcome_print(outcome, "done at %zu\n", at);
            outcome_bytes(outcome, " body", outcome->body.data ? outcome->body.data : "",
                          outcome->body.len);
            outcome_fields(outcome, request, request->header_len);
            outcome->requests++;
            outcome->body.len = 0;
            head_said = false;
            request_reset(request);
            parser_begin(&parser, request);
            if (at == len)
                break;
        } else {
            outcome_must(event == PARSE_FAILED && parser.status >= 400 && parser.reason,
                         "failed without status or reason");
            outcome->status = parser.status;
            outcome->reason = parser.reason;
            outcome_print(outcome, "failed %d %s\n", parser.status, parser.reason);
            break;
        }
    }
    outcome->unfinished = parser_unfinished(&parser);
    outcome->started = parser_started(&parser);
    if (!outcome->status)
        outcome_print(outcome, "end%s%s\n", outcome->started ? " started" : "",
                      outcome->unfinished ? " unfinished" : "");
    request_free(request);
    outcome_must(buf_append(&outcome->text, "", 1, SIZE_MAX / 2), "out of memory");
}

/* True when two outcomes are the same; says how they differ otherwise. */
static inline bool outcome_same(const struct outcome *a, const struct outcome *b)
{
    if (a->text.len == b->text.len && !memcmp(a->text.data, b->text.data, a->text.len))
        return true;
    fprintf(stderr, "--- one\n%s--- other\n%s", a->text.data, b->text.data);
    return false;
}

#endif
