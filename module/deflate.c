/* deflate.c - messages compressed and decompressed, each on its own.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "deflate.h"

#include <stdlib.h>
#include <zlib.h>

/* Room made at a time. */
#define STEP_BYTES (16 * 1024)

struct inflater {
    z_stream stream;
};

struct deflater {
    z_stream stream;
    int window_bits;
};

/* What ends a flushed block, and is not sent (RFC 7692 section 7.2.1). */
static const char tail[] = {0, 0, (char)0xFF, (char)0xFF};

void inflater_free(struct inflater *inflater)
{
    if (!inflater)
        return;
    inflateEnd(&inflater->stream);
    free(inflater);
}

void deflater_free(struct deflater *deflater)
{
    if (!deflater)
        return;
    deflateEnd(&deflater->stream);
    free(deflater);
}

/* zlib counts in unsigned int. */
static unsigned at_most(size_t len)
{
    return len < 1u << 30 ? (unsigned)len : 1u << 30;
}

enum inflate_status inflate_message(struct inflater **place, struct buf *in, struct buf *out,
                                    uint64_t bytes_max)
{
    struct inflater *inflater = *place;
    if (!inflater) {
        inflater = calloc(1, sizeof *inflater);
        if (!inflater || inflateInit2(&inflater->stream, -MAX_WBITS) != Z_OK) {
            free(inflater);
            return INFLATE_NO_MEMORY;
        }
        *place = inflater;
    } else {
        inflateReset(&inflater->stream);
    }
    if (!buf_append(in, tail, sizeof tail, SIZE_MAX))
        return INFLATE_NO_MEMORY;
    z_stream *stream = &inflater->stream;
    size_t used = 0;
    for (;;) {
        /* One byte more than allowed shows that there is more. */
        if (out->len > bytes_max)
            return INFLATE_TOO_BIG;
        if (!buf_reserve(out, STEP_BYTES, SIZE_MAX))
            return INFLATE_NO_MEMORY;
        unsigned in_len = at_most(in->len - used);
        unsigned out_len = at_most(out->capacity - out->len);
        if (bytes_max < SIZE_MAX && out_len > bytes_max + 1 - out->len)
            out_len = (unsigned)(bytes_max + 1 - out->len);
        stream->next_in = (Bytef *)in->data + used;
        stream->avail_in = in_len;
        stream->next_out = (Bytef *)out->data + out->len;
        stream->avail_out = out_len;
        int status = inflate(stream, Z_SYNC_FLUSH);
        used += in_len - stream->avail_in;
        out->len += out_len - stream->avail_out;
        if (status == Z_MEM_ERROR)
            return INFLATE_NO_MEMORY;
        if (status == Z_STREAM_END) {
            /* A final block inside the message is allowed, and another may follow (section 7.2.3.5). */
            if (in->len - used <= sizeof tail)
                return out->len > bytes_max ? INFLATE_TOO_BIG : INFLATE_OK;
            inflateReset(stream);
            continue;
        }
        if (status != Z_OK && status != Z_BUF_ERROR)
            return INFLATE_BAD;
        if (used == in->len && stream->avail_out)
            return out->len > bytes_max ? INFLATE_TOO_BIG : INFLATE_OK;
        if (status == Z_BUF_ERROR && stream->avail_out)
            return INFLATE_BAD;
    }
}

bool deflate_message(struct deflater **place, int window_bits, const char *in, size_t len,
                     struct buf *out)
{
    struct deflater *deflater = *place;
    if (deflater && deflater->window_bits != window_bits) {
        deflater_free(deflater);
        deflater = *place = NULL;
    }
    if (!deflater) {
        deflater = calloc(1, sizeof *deflater);
        if (!deflater || deflateInit2(&deflater->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED,
                                      -window_bits, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
            free(deflater);
            return false;
        }
        deflater->window_bits = window_bits;
        *place = deflater;
    } else {
        deflateReset(&deflater->stream);
    }
    z_stream *stream = &deflater->stream;
    size_t used = 0;
    size_t begin = out->len;
    do {
        if (!buf_reserve(out, STEP_BYTES, SIZE_MAX))
            return false;
        unsigned in_len = at_most(len - used);
        unsigned out_len = at_most(out->capacity - out->len);
        stream->next_in = (Bytef *)in + used;
        stream->avail_in = in_len;
        stream->next_out = (Bytef *)out->data + out->len;
        stream->avail_out = out_len;
        deflate(stream, Z_SYNC_FLUSH);
        used += in_len - stream->avail_in;
        out->len += out_len - stream->avail_out;
    } while (!stream->avail_out || used < len);
    if (out->len - begin >= sizeof tail)
        out->len -= sizeof tail;
    return true;
}
