/* frame.c - WebSocket frames.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "frame.h"

#include "check.h"
#include "deflate.h"

#include <stdlib.h>
#include <wslay/wslay.h>

#define MASK_BYTES 4

/* ---- text ---- */

bool utf8_feed(struct utf8 *utf8, const char *bytes, size_t len)
{
    const unsigned char *at = (const unsigned char *)bytes;
    const unsigned char *end = at + len;
    while (at < end) {
        if (!utf8->need) {
            /* Most text is ASCII: eight bytes at a time. */
            uint64_t word;
            while (end - at >= 8 && (memcpy(&word, at, 8), !(word & UINT64_C(0x8080808080808080))))
                at += 8;
            if (at == end)
                break;
        }
        unsigned char byte = *at++;
        if (utf8->need) {
            if (byte < utf8->low || byte > utf8->high)
                return false;
            utf8->need--;
        } else if (byte >= 0xC2 && byte <= 0xF4) {
            utf8->need = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
            /* Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte. */
            utf8->low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
            utf8->high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
            continue;
        } else if (byte >= 0x80) {
            return false;
        }
        utf8->low = 0x80;
        utf8->high = 0xBF;
    }
    return true;
}

/* ---- the reader: wslay and its input ---- */

struct frame_reader {
    wslay_frame_context_ptr wslay;
    const char *bytes;
    size_t len;
    uint64_t held; /* taken by wslay, and not yet seen in a frame */
};

static ssize_t on_receive(uint8_t *buf, size_t len, int flags, void *data)
{
    struct frame_reader *reader = data;
    (void)flags;
    if (!reader->len)
        return -1;
    if (len > reader->len)
        len = reader->len;
    memcpy(buf, reader->bytes, len);
    reader->bytes += len;
    reader->len -= len;
    reader->held += len;
    return (ssize_t)len;
}

static void reader_free(struct frame_reader *reader)
{
    if (!reader)
        return;
    wslay_frame_context_free(reader->wslay);
    free(reader);
}

static struct frame_reader *reader_new(void)
{
    static const struct wslay_frame_callbacks callbacks = {.recv_callback = on_receive};
    struct frame_reader *reader = calloc(1, sizeof *reader);
    if (reader && wslay_frame_context_init(&reader->wslay, &callbacks, reader) < 0) {
        free(reader);
        return NULL;
    }
    return reader;
}

/* No frame is incomplete: others may use the reader. */
static void give_reader_back(struct frames *frames)
{
    struct frame_pool *pool = frames->pool;
    if (pool->spare)
        reader_free(frames->reader);
    else
        pool->spare = frames->reader;
    frames->reader = NULL;
}

void frame_pool_free(struct frame_pool *pool)
{
    reader_free(pool->spare);
    inflater_free(pool->inflater);
    *pool = (struct frame_pool){0};
}

void frames_init(struct frames *frames, struct frame_pool *pool)
{
    frames->pool = pool;
}

void frames_free(struct frames *frames)
{
    reader_free(frames->reader);
    frames->reader = NULL;
    buf_free(&frames->message);
}

bool frames_feed(struct frames *frames, const char *bytes, size_t len)
{
    if (!frames->reader) {
        frames->reader = frames->pool->spare;
        frames->pool->spare = NULL;
        if (!frames->reader)
            frames->reader = reader_new();
        if (!frames->reader)
            return false;
    }
    frames->reader->bytes = bytes;
    frames->reader->len = len;
    return true;
}

/* ---- the rules ---- */

static enum frame_event fail(struct frames *frames, int code, const char *reason)
{
    frames->over = true;
    frames->code = code;
    frames->reason = reason;
    return FRAME_EVENT_FAILED;
}

static bool is_control(int opcode)
{
    return opcode & 8;
}

bool frame_code_valid(int code)
{
    /* 1012 to 1014 are in IANA's registry, 3000 to 4999 belong to libraries and applications. */
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

/* The header of a frame is here.  FRAME_EVENT_MORE when it may go on. */
static enum frame_event begin_frame(struct frames *frames, const struct wslay_frame_iocb *iocb)
{
    bool control = is_control(iocb->opcode);
    frames->in_frame = true;
    frames->left = iocb->payload_length;
    frames->frame_opcode = iocb->opcode;
    frames->fin = iocb->fin;
    if (!iocb->mask)
        return fail(frames, CODE_PROTOCOL, "a frame without mask");
    if (iocb->opcode > FRAME_PONG || (iocb->opcode > FRAME_BINARY && !control))
        return fail(frames, CODE_PROTOCOL, "a reserved opcode");
    bool first = iocb->opcode == FRAME_TEXT || iocb->opcode == FRAME_BINARY;
    if (iocb->rsv && !(iocb->rsv == WSLAY_RSV1_BIT && frames->deflate && first))
        return fail(frames, CODE_PROTOCOL, "a reserved bit");
    if (control) {
        frames->control_len = 0;
        return FRAME_EVENT_MORE;
    }
    if (first && frames->opcode)
        return fail(frames, CODE_PROTOCOL, "a new message inside another");
    if (!first && !frames->opcode)
        return fail(frames, CODE_PROTOCOL, "a continuation of nothing");
    if (first) {
        frames->opcode = iocb->opcode;
        frames->compressed = iocb->rsv != 0;
        frames->utf8 = (struct utf8){0};
        if (iocb->opcode == FRAME_TEXT ? frames->no_text : frames->no_binary)
            return fail(frames, CODE_UNSUPPORTED, "messages of this type are not taken");
    }
    if (frames->message_bytes_max &&
        (frames->message.len > frames->message_bytes_max ||
         iocb->payload_length > frames->message_bytes_max - frames->message.len))
        return fail(frames, CODE_TOO_BIG, "the message is too big");
    return FRAME_EVENT_MORE;
}

static enum frame_event end_close(struct frames *frames)
{
    struct utf8 utf8 = {0};
    size_t len = frames->control_len;
    frames->code = CODE_NONE;
    if (len == 0)
        goto done;
    if (len == 1)
        return fail(frames, CODE_PROTOCOL, "half a close code");
    frames->code = (unsigned char)frames->control[0] << 8 | (unsigned char)frames->control[1];
    if (!frame_code_valid(frames->code))
        return fail(frames, CODE_PROTOCOL, "a close code that must not be sent");
    if (!utf8_feed(&utf8, frames->control + 2, len - 2) || utf8.need)
        return fail(frames, CODE_BAD_DATA, "a close reason that is not UTF-8");
    frames->control_len = (uint8_t)(len - 2);
    memmove(frames->control, frames->control + 2, len - 2);
done:
    frames->over = true;
    return FRAME_EVENT_CLOSE;
}

static enum frame_event end_message(struct frames *frames)
{
    if (frames->compressed) {
        struct buf plain = {0};
        enum inflate_status status = inflate_message(
            &frames->pool->inflater, &frames->message, &plain,
            frames->message_bytes_max ? frames->message_bytes_max : SIZE_MAX);
        buf_free(&frames->message);
        frames->message = plain;
        if (status == INFLATE_TOO_BIG)
            return fail(frames, CODE_TOO_BIG, "the message is too big");
        if (status == INFLATE_NO_MEMORY)
            return fail(frames, CODE_INTERNAL, "memory is exhausted");
        if (status == INFLATE_BAD)
            return fail(frames, CODE_BAD_DATA, "not what deflate makes");
        if (frames->opcode == FRAME_TEXT && !utf8_feed(&frames->utf8, plain.data, plain.len))
            return fail(frames, CODE_BAD_DATA, "text that is not UTF-8");
    }
    if (frames->opcode == FRAME_TEXT && frames->utf8.need)
        return fail(frames, CODE_BAD_DATA, "text that ends inside a character");
    return FRAME_EVENT_MESSAGE;
}

/* The current frame is complete. */
static enum frame_event end_frame(struct frames *frames)
{
    frames->in_frame = false;
    switch (frames->frame_opcode) {
    case FRAME_CLOSE:
        return end_close(frames);
    case FRAME_PING:
        return FRAME_EVENT_PING;
    case FRAME_PONG:
        return FRAME_EVENT_PONG;
    default:
        return frames->fin ? end_message(frames) : FRAME_EVENT_MORE;
    }
}

static enum frame_event take_payload(struct frames *frames, const char *bytes, size_t len)
{
    frames->left -= len;
    if (is_control(frames->frame_opcode)) {
        memcpy(frames->control + frames->control_len, bytes, len);
        frames->control_len = (uint8_t)(frames->control_len + len);
        return FRAME_EVENT_MORE;
    }
    if (frames->opcode == FRAME_TEXT && !frames->compressed &&
        !utf8_feed(&frames->utf8, bytes, len))
        return fail(frames, CODE_BAD_DATA, "text that is not UTF-8");
    /* One frame of a few bytes, the usual case, gets the memory it needs; larger ones grow as their bytes
     * come, so that the length a client claims costs nothing. */
    if (!frames->message.data)
        buf_reserve(&frames->message, len, len < 256 ? len : SIZE_MAX);
    if (!buf_append(&frames->message, bytes, len, SIZE_MAX))
        return fail(frames, CODE_INTERNAL, "memory is exhausted");
    return FRAME_EVENT_MORE;
}

enum frame_event frames_next(struct frames *frames)
{
    struct frame_reader *reader = frames->reader;
    if (frames->opcode && !frames->in_frame && frames->fin && !is_control(frames->frame_opcode)) {
        /* The message of the last call was taken, or left. */
        buf_free(&frames->message);
        frames->opcode = FRAME_CONTINUATION;
    }
    while (!frames->over) {
        struct wslay_frame_iocb iocb;
        enum frame_event event = FRAME_EVENT_MORE;
        ssize_t n = wslay_frame_recv(reader->wslay, &iocb);
        if (n == WSLAY_ERR_WANT_READ) {
            if (!frames->in_frame && !reader->held)
                give_reader_back(frames);
            return FRAME_EVENT_MORE;
        }
        if (n < 0)
            return fail(frames, CODE_PROTOCOL, "a malformed frame");
        if (!frames->in_frame) {
            uint64_t len = iocb.payload_length;
            reader->held -= 2u +
                            (len < 126     ? 0u
                             : len < 65536 ? 2u
                                           : 8u) +
                            (iocb.mask ? MASK_BYTES : 0u);
            event = begin_frame(frames, &iocb);
        }
        reader->held -= iocb.data_length;
        if (event == FRAME_EVENT_MORE && iocb.data_length)
            event = take_payload(frames, (const char *)iocb.data, iocb.data_length);
        if (event == FRAME_EVENT_MORE && !frames->left)
            event = end_frame(frames);
        if (event != FRAME_EVENT_MORE)
            return event;
    }
    return FRAME_EVENT_MORE;
}

/* ---- writing ---- */

size_t frame_header(char *out, int opcode, bool compressed, uint64_t len)
{
    size_t bytes = len < 126 ? 0 : len < 65536 ? 2 : 8;
    out[0] = (char)(0x80 | (compressed ? 0x40 : 0) | opcode);
    out[1] = (char)(bytes == 0 ? len : bytes == 2 ? 126 : 127);
    for (size_t i = 0; i < bytes; i++)
        out[2 + i] = (char)(len >> (8 * (bytes - 1 - i)) & 0xFF);
    return 2 + bytes;
}
