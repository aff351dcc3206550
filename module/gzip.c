/* gzip.c - content coding.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "gzip.h"

#include "check.h"
#include "select.h"

#include <stdlib.h>
#include <strings.h>
#include <zlib.h>

/* Level 6 is zlib's own choice; it costs twice as much as 1 and saves a tenth. */
#define LEVEL 5

/* Room made, and bytes given to zlib, at a time. */
#define STEP_BYTES (64 * 1024)

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

/* ---- what clients say ---- */

enum gzip_accept gzip_accept(const struct request *request)
{
    if (!request_field(request, "accept-encoding"))
        return GZIP_UNSAID;
    return select_accepts_coding(request, "gzip") ? GZIP_ACCEPTED : GZIP_REFUSED;
}

/* ---- what is worth it ---- */

static bool ends_with(const char *type, size_t len, const char *suffix)
{
    size_t suffix_len = strlen(suffix);
    return len > suffix_len && strncasecmp(type + len - suffix_len, suffix, suffix_len) == 0;
}

bool gzip_worth(const char *type, size_t len)
{
    static const char *const types[] = {"application/json",
                                        "application/javascript",
                                        "application/x-javascript",
                                        "application/xml",
                                        "application/wasm",
                                        "application/x-ndjson",
                                        "application/ld+json",
                                        "image/bmp",
                                        "font/ttf",
                                        "font/otf"};
    size_t end = 0;
    while (end < len && type[end] != ';' && !is_blank(type[end]))
        end++;
    if (end == sizeof "text/event-stream" - 1 && strncasecmp(type, "text/event-stream", end) == 0)
        return false;
    if (end > 5 && strncasecmp(type, "text/", 5) == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strlen(types[i]) == end && strncasecmp(type, types[i], end) == 0)
            return true;
    return ends_with(type, end, "+json") || ends_with(type, end, "+xml");
}

bool gzip_is(const char *bytes, size_t len)
{
    return len > 2 && memcmp(bytes, "\x1f\x8b\x08", 3) == 0;
}

/* ---- compression ---- */

struct gzip {
    z_stream stream;
};

struct gzip *gzip_new(void)
{
    struct gzip *gzip = calloc(1, sizeof *gzip);
    /* 16 more than the window's bits asks for gzip's frame instead of zlib's. */
    if (!gzip ||
        deflateInit2(&gzip->stream, LEVEL, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(gzip);
        return NULL;
    }
    return gzip;
}

void gzip_free(struct gzip *gzip)
{
    if (!gzip)
        return;
    deflateEnd(&gzip->stream);
    free(gzip);
}

/* Give LEN bytes to zlib, and take from it what FLUSH makes it say. */
static bool pump(struct gzip *gzip, const char *bytes, size_t len, int flush, struct buf *out)
{
    z_stream *stream = &gzip->stream;
    stream->next_in = (Bytef *)bytes; /* zlib only reads it */
    stream->avail_in = (uInt)len;
    do {
        if (!buf_reserve(out, STEP_BYTES / 4, SIZE_MAX))
            return false;
        size_t room = out->capacity - out->len;
        room = room < 1u << 30 ? room : 1u << 30;
        stream->next_out = (Bytef *)out->data + out->len;
        stream->avail_out = (uInt)room;
        if (deflate(stream, flush) == Z_STREAM_ERROR)
            return false;
        out->len += room - stream->avail_out;
    } while (stream->avail_out == 0);
    return true;
}

bool gzip_piece(struct gzip *gzip, const char *bytes, size_t len, bool last, struct buf *out)
{
    while (len > STEP_BYTES) {
        if (!pump(gzip, bytes, STEP_BYTES, Z_NO_FLUSH, out))
            return false;
        bytes += STEP_BYTES;
        len -= STEP_BYTES;
    }
    return pump(gzip, bytes, len, last ? Z_FINISH : Z_SYNC_FLUSH, out);
}

bool gzip_body(const struct buf *in, struct buf *out, atomic_bool *stop)
{
    struct gzip *gzip = gzip_new();
    bool ok = gzip != NULL;
    for (size_t at = 0, part; ok; at += part) {
        part = in->len - at < STEP_BYTES ? in->len - at : STEP_BYTES;
        bool last = at + part == in->len;
        ok = pump(gzip, in->data + at, part, last ? Z_FINISH : Z_NO_FLUSH, out);
        if (last)
            break;
        ok = ok && !(stop && atomic_load(stop));
    }
    gzip_free(gzip);
    return ok;
}

void gzip_shorter(const struct buf *body, struct buf *out)
{
    if (!gzip_body(body, out, NULL) || out->len > body->len - body->len / 10)
        buf_free(out);
}
