/* gzip.c - content coding.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "gzip.h"

#include "check.h"

#include <stdlib.h>
#include <strings.h>
#include <zlib.h>

/* Level 6 is zlib's own choice; it costs twice as much as 1 and saves a tenth. */
#define LEVEL 5

/* Room made, and bytes given to zlib, at a time. */
#define STEP_BYTES (64 * 1024)

/* ---- what clients say ---- */

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

/* The q-value in thousandths of the parameters from AT to END; 1000 without one, 0 for nonsense. */
static int quality(const char *at, const char *end)
{
    while (at < end) {
        while (at < end && (*at == ';' || is_blank(*at)))
            at++;
        const char *next = memchr(at, ';', (size_t)(end - at));
        const char *stop = next ? next : end;
        if (stop - at > 1 && (at[0] | 32) == 'q' && at[1] == '=') {
            at += 2;
            if (at == stop || (*at != '0' && *at != '1'))
                return 0;
            int value = (*at++ - '0') * 1000;
            if (at < stop && *at == '.')
                at++;
            for (int unit = 100; at < stop && *at >= '0' && *at <= '9'; unit /= 10)
                value += (*at++ - '0') * unit;
            return value > 1000 ? 1000 : value;
        }
        at = stop;
    }
    return 1000;
}

enum gzip_accept gzip_accept(const struct request *request)
{
    bool seen = false;
    int gzip = -1;
    int any = -1;
    int identity = -1;
    for (uint32_t i = 0; i < request->header_len; i++) {
        const struct field *field = &request->fields[i];
        if (field->name.len != sizeof "accept-encoding" - 1 ||
            !request_span_is(request, field->name, "accept-encoding"))
            continue;
        seen = true;
        const char *at = request_at(request, field->value);
        const char *end = at + field->value.len;
        while (at < end) {
            const char *comma = memchr(at, ',', (size_t)(end - at));
            const char *stop = comma ? comma : end;
            while (at < stop && is_blank(*at))
                at++;
            const char *name_end = at;
            while (name_end < stop && *name_end != ';' && !is_blank(*name_end))
                name_end++;
            size_t len = (size_t)(name_end - at);
            if ((len == 4 && strncasecmp(at, "gzip", len) == 0) ||
                (len == 6 && strncasecmp(at, "x-gzip", len) == 0))
                gzip = quality(name_end, stop);
            else if (len == 1 && *at == '*')
                any = quality(name_end, stop);
            else if (len == 8 && strncasecmp(at, "identity", len) == 0)
                identity = quality(name_end, stop);
            at = comma ? comma + 1 : end;
        }
    }
    if (!seen)
        return GZIP_UNSAID;
    if (gzip < 0)
        gzip = any;
    /* What is liked best is sent (RFC 9110 section 12.5.3). */
    return gzip > 0 && gzip >= identity ? GZIP_ACCEPTED : GZIP_REFUSED;
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
