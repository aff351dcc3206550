/* content.c - an answer out of a file, or of bytes that stand for one.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "content.h"

#include "hub.h"
#include "lookup.h"
#include "select.h"
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int content_open(const char *file, struct file_source *source)
{
    struct stat st;
    int fd = open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return lookup_status(errno);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return 404;
    }
    source->fd = hub_move_up(fd);
    source->size = (uint64_t)st.st_size;
    source->modified = st.st_mtim;
    return 0;
}

/* ---- the head ---- */

static bool field(struct reply *reply, const char *name, const char *value)
{
    return format_field(reply, name, strlen(name), value, strlen(value)) == FORMAT_OK;
}

/* An IMF-fixdate: the clock makes them. */
static bool field_modified(struct reply *reply, time_t modified)
{
    struct format_clock clock = {0};
    format_clock_set(&clock, modified);
    if (clock.len < sizeof "Date: \r\n")
        return true;
    static const char name[] = "Last-Modified";
    return format_field(reply, name, sizeof name - 1, clock.line + strlen("Date: "),
                        clock.len - strlen("Date: \r\n")) == FORMAT_OK;
}

static bool append_fields(struct reply *reply, const struct buf *fields)
{
    return !fields || !fields->len ||
           buf_append(&reply->head, fields->data, fields->len, FORMAT_HEAD_BYTES_MAX);
}

/* The fields that 200, 206 and 304 have in common. */
static bool common_fields(struct reply *reply, const struct file_source *source, const char *etag)
{
    return (!*etag || field(reply, "ETag", etag)) &&
           (!source->cache_control || field(reply, "Cache-Control", source->cache_control)) &&
           (!source->varies || field(reply, "Vary", "Accept-Encoding")) &&
           append_fields(reply, source->fields);
}

static bool content_fields(struct reply *reply, const struct file_source *source)
{
    /* Not by format_field, for which it is a wish: here it is done. */
    return (!source->encoding || (buf_append(&reply->head, "Content-Encoding: ",
                                             strlen("Content-Encoding: "), FORMAT_HEAD_BYTES_MAX) &&
                                  buf_append(&reply->head, source->encoding,
                                             strlen(source->encoding), FORMAT_HEAD_BYTES_MAX) &&
                                  buf_append(&reply->head, "\r\n", 2, FORMAT_HEAD_BYTES_MAX))) &&
           field(reply, "X-Content-Type-Options", "nosniff") &&
           field(reply, "Accept-Ranges", "bytes") &&
           (!source->modified.tv_sec || field_modified(reply, source->modified.tv_sec));
}

/* ---- ranges ---- */

static void put_range(char *out, size_t size, const struct byte_range *range, uint64_t total)
{
    snprintf(out, size, "bytes %llu-%llu/%llu", (unsigned long long)range->from,
             (unsigned long long)(range->from + range->len - 1), (unsigned long long)total);
}

/* Nobody may guess it, since whoever could put it into a file would make parts of their own. */
static bool make_boundary(char *out, size_t size)
{
    unsigned char random[12];
    if (getentropy(random, sizeof random) < 0)
        return false;
    size_t len = 0;
    for (size_t i = 0; i < sizeof random && len + 3 < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%02x", random[i]);
    return true;
}

/* The parts of a multipart/byteranges (RFC 9110 section 14.6), as segments of EXCHANGE's file, or, if
 * the content is in memory, in its body. */
static bool make_parts(struct exchange *exchange, const struct file_source *source,
                       const struct selection *selection, const char *boundary)
{
    struct reply *reply = &exchange->reply;
    struct file_part *file = &exchange->file;
    uint32_t len = selection->ranges_len;
    uint64_t total = 0;
    if (!source->content) {
        file->segments = calloc(len + 1, sizeof *file->segments);
        if (!file->segments)
            return false;
        file->segments_len = len + 1;
    }
    for (uint32_t i = 0; i <= len; i++) {
        const struct byte_range none = {0};
        const struct byte_range *range = i < len ? &selection->ranges[i] : &none;
        char line[64];
        char head[384];
        int head_len;
        if (i < len) {
            put_range(line, sizeof line, range, source->size);
            head_len = snprintf(head, sizeof head,
                                "%s--%s\r\nContent-Type: %.200s\r\nContent-Range: %s\r\n\r\n",
                                i ? "\r\n" : "", boundary, source->type, line);
        } else {
            head_len = snprintf(head, sizeof head, "\r\n--%s--\r\n", boundary);
        }
        struct buf *out = source->content ? &reply->body : &file->segments[i].text;
        if (!buf_append(out, head, (size_t)head_len, SIZE_MAX))
            return false;
        if (source->content && !buf_append(out, source->content->bytes.data + range->from,
                                           (size_t)range->len, SIZE_MAX))
            return false;
        if (!source->content) {
            file->segments[i].from = range->from;
            file->segments[i].len = range->len;
        }
        total += (uint64_t)head_len + range->len;
    }
    reply->length = total;
    return true;
}

static bool make_body(struct exchange *exchange, struct file_source *source,
                      const struct selection *selection, const char *boundary)
{
    struct reply *reply = &exchange->reply;
    struct byte_range whole = {0, source->size};
    const struct byte_range *range = selection->outcome == SELECT_RANGES ? &selection->ranges[0]
                                                                         : &whole;
    reply->has_length = true;
    reply->length = range->len;
    if (*boundary && !make_parts(exchange, source, selection, boundary))
        return false;
    if (exchange->request.method == METHOD_HEAD || !reply->length)
        return true;
    if (source->content) {
        if (!*boundary)
            exchange->content = (struct shared_part){shared_hold(source->content),
                                                     (size_t)range->from, (size_t)range->len};
        return true;
    }
    exchange->file.open = true;
    exchange->file.fd = source->fd;
    exchange->file.size = source->size;
    exchange->file.modified = source->modified;
    source->fd = -1;
    if (!*boundary) {
        exchange->file.offset = range->from;
        exchange->file.left = range->len;
    }
    return true;
}

/* ---- answers ---- */

/* Strong, and of the coding that is sent; empty when there is nothing to make it of. */
static void make_etag(const struct file_source *source, char *out, size_t size)
{
    *out = 0;
    if (source->etag)
        snprintf(out, size, "%s", source->etag);
    else if (source->modified.tv_sec)
        snprintf(out, size, "\"%llx-%lx-%llx%s%s\"", (unsigned long long)source->modified.tv_sec,
                 source->modified.tv_nsec, (unsigned long long)source->size,
                 source->encoding ? "-" : "", source->encoding ? source->encoding : "");
}

/* If the file of SOURCE has to stay open for the answer to EXCHANGE, it counts.  False when there are too many. */
static bool claim_file(struct exchange *exchange, const struct file_source *source)
{
    if (source->fd < 0 || !source->size || exchange->request.method == METHOD_HEAD)
        return true;
    if (!server_open_file(exchange->server))
        return false;
    exchange->file.server = exchange->server;
    return true;
}

/* Status and type of SELECTION's one range or many; BOUNDARY, of 32 bytes, stays empty for one. */
static bool begin_ranges(struct reply *reply, const struct file_source *source,
                         const struct selection *selection, char *boundary)
{
    char line[96];
    if (format_start(reply, 206) != FORMAT_OK)
        return false;
    if (selection->ranges_len > 1) {
        if (!make_boundary(boundary, 32))
            return false;
        snprintf(line, sizeof line, "multipart/byteranges; boundary=%s", boundary);
        return field(reply, "Content-Type", line);
    }
    put_range(line, sizeof line, &selection->ranges[0], source->size);
    return field(reply, "Content-Type", source->type) && field(reply, "Content-Range", line);
}

static bool begin_whole(struct reply *reply, const struct file_source *source)
{
    return format_start(reply, source->status ? source->status : 200) == FORMAT_OK &&
           field(reply, "Content-Type", source->type);
}

static bool answer_content(struct exchange *exchange, struct file_source *source,
                           const struct selection *selection, const char *etag,
                           const struct format_context *context, const struct format_clock *clock)
{
    struct reply *reply = &exchange->reply;
    char boundary[32] = "";
    if (!claim_file(exchange, source))
        return format_plain(reply, 503, "too many files are open", "Retry-After: 1\r\n", context,
                            clock) == FORMAT_OK;
    bool ok = (selection->outcome == SELECT_RANGES
                   ? begin_ranges(reply, source, selection, boundary)
                   : begin_whole(reply, source)) &&
              common_fields(reply, source, etag) && content_fields(reply, source) &&
              make_body(exchange, source, selection, boundary);
    /* Parts in memory are the reply's body; other content follows it, and has its length declared. */
    if (ok && reply->body.len)
        ok = format_finish(reply, context, clock) == FORMAT_OK;
    else
        ok = ok && format_stream_start(reply, context, clock) == FORMAT_OK;
    if (exchange->file.open || exchange->content.shared)
        reply->body_bytes = reply->length;
    reply->phase = REPLY_DONE;
    return ok;
}

bool content_answer(struct exchange *exchange, struct file_source *source,
                    const struct format_context *context, const struct format_clock *clock)
{
    struct reply *reply = &exchange->reply;
    struct selection selection;
    char etag[80];
    char line[96];
    bool ok = false;
    make_etag(source, etag, sizeof etag);
    const struct representation representation = {
        .size = source->size,
        .etag = *etag ? etag : NULL,
        .modified = source->modified.tv_sec,
    };
    select_part(&exchange->request, &representation, &selection);
    switch (selection.outcome) {
    case SELECT_NOT_MODIFIED:
        ok = format_start(reply, 304) == FORMAT_OK && common_fields(reply, source, etag) &&
             format_finish(reply, context, clock) == FORMAT_OK;
        break;
    case SELECT_FAILED:
        ok = format_plain(reply, 412, NULL, NULL, context, clock) == FORMAT_OK;
        break;
    case SELECT_UNSATISFIABLE:
        snprintf(line, sizeof line, "Content-Range: bytes */%llu\r\n",
                 (unsigned long long)source->size);
        ok = format_plain(reply, 416, NULL, line, context, clock) == FORMAT_OK;
        break;
    case SELECT_RANGES:
    case SELECT_WHOLE:
        ok = answer_content(exchange, source, &selection, etag, context, clock);
        break;
    }
    if (source->fd >= 0)
        close(source->fd);
    return ok;
}
