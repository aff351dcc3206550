/* frame-outcome.h - what frames say, as text, however their bytes are cut.
 *
 * Of the first byte of the input the low bits choose the settings; see outcome_of.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_FRAME_OUTCOME_H
#define PORTER_FRAME_OUTCOME_H

#include "frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTCOME_MESSAGE_BYTES_MAX 1000

static inline void outcome_must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "cannot go on: %s\n", what);
    abort();
}

static inline void outcome_say(struct buf *out, const char *what, int number, const char *bytes,
                               size_t len)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%s %d %zu:", what, number, len);
    outcome_must(buf_append(out, line, (size_t)n, SIZE_MAX) &&
                     buf_append(out, bytes, len, SIZE_MAX) && buf_append(out, "\n", 1, SIZE_MAX),
                 "memory");
}

/* Feed LEN BYTES, the next part of what FRAMES gets.  False when nothing may follow. */
static inline bool outcome_feed(struct frames *frames, const char *bytes, size_t len,
                                struct buf *out)
{
    enum frame_event event;
    outcome_must(frames_feed(frames, bytes, len), "frames_feed");
    while ((event = frames_next(frames))) {
        switch (event) {
        case FRAME_EVENT_MESSAGE:
            outcome_say(out, "message", frames->opcode, frames->message.data, frames->message.len);
            break;
        case FRAME_EVENT_PING:
            outcome_say(out, "ping", 0, frames->control, frames->control_len);
            break;
        case FRAME_EVENT_PONG:
            outcome_say(out, "pong", 0, frames->control, frames->control_len);
            break;
        case FRAME_EVENT_CLOSE:
            outcome_say(out, "close", frames->code, frames->control, frames->control_len);
            return false;
        case FRAME_EVENT_FAILED:
            outcome_say(out, "failed", frames->code, frames->reason, strlen(frames->reason));
            return false;
        case FRAME_EVENT_MORE:
            break;
        }
    }
    return true;
}

/* Append to OUT what LEN BYTES say when they come in two parts, cut at CUT, or one by one if SINGLY.
 * SETTINGS: 1 for compression, 2 for no limit, 4 for no text. */
static inline void outcome_of(unsigned settings, const char *bytes, size_t len, size_t cut,
                              bool singly, struct buf *out)
{
    struct frame_pool pool = {0};
    struct frames frames = {
        .deflate = settings & 1,
        .message_bytes_max = settings & 2 ? 0 : OUTCOME_MESSAGE_BYTES_MAX,
        .no_text = settings & 4,
    };
    frames_init(&frames, &pool);
    if (singly) {
        for (size_t i = 0; i < len && outcome_feed(&frames, bytes + i, 1, out); i++)
            ;
    } else if (outcome_feed(&frames, bytes, cut, out)) {
        outcome_feed(&frames, bytes + cut, len - cut, out);
    }
    frames_free(&frames);
    frame_pool_free(&pool);
}

#endif
