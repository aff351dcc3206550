/* log.c - the access log of a server.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "log.h"

#include "decode.h"
#include "limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* Of what a client sent, so much is logged. */
#define LINE_BYTES_MAX 2048
#define FIELD_BYTES_MAX 512
#define USER_BYTES_MAX 64

#define ENTRY_BYTES_MAX (4 * (LINE_BYTES_MAX + 2 * FIELD_BYTES_MAX + USER_BYTES_MAX) + 256)

struct log *log_new(enum log_format format, bool to_buffer, int fd)
{
    struct log *log = calloc(1, sizeof *log);
    if (!log) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    log->format = format;
    log->to_buffer = to_buffer;
    log->fd = fd;
    atomic_init(&log->taken, true);
    return log;
}

void log_free(struct log *log)
{
    if (!log)
        return;
    CHECK(!log_is_writing(log));
    if (log->fd >= 0)
        close(log->fd);
    buf_free(&log->pending);
    buf_free(&log->writing);
    free(log);
}

void log_entry_free(struct log_entry *entry)
{
    if (!entry)
        return;
    buf_free(&entry->text);
    free(entry);
}

/* ---- a line ---- */

static bool put(struct buf *buf, const char *bytes, size_t len)
{
    return buf_append(buf, bytes, len, ENTRY_BYTES_MAX);
}

static bool put_string(struct buf *buf, const char *string)
{
    return put(buf, string, strlen(string));
}

/* Quotes, backslashes and all that is not printable ASCII get a backslash: nothing a client sends can end
 * the line, leave its quotes, or move the cursor of a terminal. */
static bool put_escaped(struct buf *buf, const char *bytes, size_t len, size_t len_max)
{
    bool cut = len > len_max;
    len = cut ? len_max : len;
    for (size_t i = 0; i < len;) {
        size_t plain = i;
        while (plain < len && bytes[plain] >= ' ' && bytes[plain] <= '~' && bytes[plain] != '"' &&
               bytes[plain] != '\\')
            plain++;
        if (!put(buf, bytes + i, plain - i))
            return false;
        i = plain;
        if (i == len)
            break;
        unsigned char byte = (unsigned char)bytes[i++];
        char escape[8];
        int size = byte == '"' || byte == '\\' ? snprintf(escape, sizeof escape, "\\%c", byte)
                                               : snprintf(escape, sizeof escape, "\\x%02x", byte);
        if (!put(buf, escape, (size_t)size))
            return false;
    }
    return !cut || put_string(buf, "...");
}

static bool put_peer(struct buf *buf, const struct sockaddr *peer)
{
    char text[INET6_ADDRSTRLEN];
    const void *address = NULL;
    if (peer->sa_family == AF_INET)
        address = &((const struct sockaddr_in *)peer)->sin_addr;
    else if (peer->sa_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)peer)->sin6_addr;
    if (!address || !inet_ntop(peer->sa_family, address, text, sizeof text))
        return put_string(buf, "-");
    return put_string(buf, text);
}

/* The user by the Basic scheme (RFC 7617), whether or not the password was right; "-" for none. */
static bool put_user(struct buf *buf, const struct request *request)
{
    static const char scheme[] = "basic ";
    const struct field *field = request_field(request, "authorization");
    const char *value = field ? request_at(request, field->value) : NULL;
    size_t len = field ? field->value.len : 0;
    char text[USER_BYTES_MAX + USER_BYTES_MAX / 2];
    if (len < sizeof scheme || strncasecmp(value, scheme, sizeof scheme - 1) != 0)
        return put_string(buf, "-");
    for (; len && *value != ' '; len--)
        value++;
    for (; len && *value == ' '; len--)
        value++;
    len = decode_base64(value, len < 2 * USER_BYTES_MAX ? len : 2 * USER_BYTES_MAX, text);
    const char *colon = memchr(text, ':', len);
    len = colon ? (size_t)(colon - text) : 0;
    for (size_t i = 0; i < len; i++)
        if (text[i] == ' ')
            text[i] = '\t'; /* it would end the field; so it is escaped */
    return len ? put_escaped(buf, text, len, USER_BYTES_MAX) : put_string(buf, "-");
}

/* Local time, as the user's clock shows it; made anew each second. */
static const char *stamp(struct log *log)
{
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm tm;
    if ((log->stamp_at == now && log->stamp[0]) || !localtime_r(&now, &tm))
        return log->stamp;
    log->stamp_at = now;
    if (log->format == LOG_READABLE) {
        snprintf(log->stamp, sizeof log->stamp, "%04d-%02d-%02d %02d:%02d:%02d",
                 (tm.tm_year + 1900) % 10000, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                 tm.tm_sec);
        return log->stamp;
    }
    /* Not strftime: the names are English whatever the locale. */
    long minutes = tm.tm_gmtoff / 60;
    char sign = minutes < 0 ? '-' : '+';
    minutes = labs(minutes);
    snprintf(log->stamp, sizeof log->stamp, "[%02d/%s/%04d:%02d:%02d:%02d %c%02ld%02ld]",
             tm.tm_mday, months[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000, tm.tm_hour, tm.tm_min,
             tm.tm_sec, sign, minutes / 60 % 100, minutes % 60);
    return log->stamp;
}

/* The first line of the head as it was sent, also when it was no request line. */
static bool put_request_line(struct log *log, struct buf *buf, const struct request *request)
{
    static const char version[] = " HTTP/1.1";
    size_t version_len = sizeof version - 1;
    const char *line = request->head.data;
    size_t left = request->head.len;
    for (; left && (*line == '\r' || *line == '\n'); left--)
        line++;
    size_t len = 0;
    while (len < left && line[len] != '\r' && line[len] != '\n')
        len++;
    if (!len)
        return put_string(buf, "\"-\"");
    if (log->format == LOG_READABLE && len > version_len &&
        memcmp(line + len - version_len, version, version_len) == 0)
        len -= version_len;
    return put_string(buf, "\"") && put_escaped(buf, line, len, LINE_BYTES_MAX) &&
           put_string(buf, "\"");
}

static bool put_field(struct buf *buf, const struct request *request, const char *name)
{
    const struct field *field = request_field(request, name);
    if (!field || !field->value.len)
        return put_string(buf, " \"-\"");
    return put_string(buf, " \"") &&
           put_escaped(buf, request_at(request, field->value), field->value.len, FIELD_BYTES_MAX) &&
           put_string(buf, "\"");
}

struct log_entry *log_begin(struct log *log, const struct request *request,
                            const struct sockaddr *peer)
{
    struct log_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    struct buf *text = &entry->text;
    bool ok;
    if (log->format == LOG_READABLE)
        ok = put_string(text, stamp(log)) && put_string(text, " ") && put_peer(text, peer);
    else
        ok = put_peer(text, peer) && put_string(text, " - ") && put_user(text, request) &&
             put_string(text, " ") && put_string(text, stamp(log));
    ok = ok && put_string(text, " ") && put_request_line(log, text, request);
    entry->split = text->len;
    if (log->format == LOG_COMBINED)
        ok = ok && put_field(text, request, "referer") && put_field(text, request, "user-agent");
    if (ok)
        return entry;
    log_entry_free(entry);
    return NULL;
}

void log_end(struct log *log, struct log_entry *entry, int status, uint64_t body_bytes, uint64_t ms,
             uint64_t now_ms)
{
    if (!entry) {
        log->lost_count++;
        return;
    }
    char middle[96];
    char code[8] = "-";
    if (status)
        snprintf(code, sizeof code, "%d", status % 1000);
    int len = snprintf(middle, sizeof middle, " %s %" PRIu64, code, body_bytes);
    if (log->format == LOG_READABLE)
        len += snprintf(middle + len, sizeof middle - (size_t)len, " %" PRIu64 "ms", ms);
    struct buf *text = &entry->text;
    size_t size = text->len + (size_t)len + 1;
    if (buf_reserve(&log->pending, size, LIMIT_LOG_BYTES)) {
        log_append(log, text->data, entry->split, now_ms);
        log_append(log, middle, (size_t)len, now_ms);
        log_append(log, text->data + entry->split, text->len - entry->split, now_ms);
        log_append(log, "\n", 1, now_ms);
    } else {
        log->lost_count++;
    }
    log_entry_free(entry);
}

bool log_append(struct log *log, const char *text, size_t len, uint64_t now_ms)
{
    if (!buf_append(&log->pending, text, len, LIMIT_LOG_BYTES)) {
        log->lost_count++;
        return false;
    }
    if (!log->pending_ms)
        log->pending_ms = now_ms ? now_ms : 1;
    return true;
}

/* ---- a batch ---- */

uint64_t log_due(struct log *log, uint64_t now_ms)
{
    if (!log->pending_ms || log_is_writing(log) || (log->to_buffer && !atomic_load(&log->taken)))
        return log->pending_ms ? LOG_BATCH_MS : UINT64_MAX;
    uint64_t due = log->pending_ms + LOG_BATCH_MS;
    return due > now_ms ? due - now_ms : 0;
}

static void count_lost(struct log *log)
{
    if (!log->lost_count)
        return;
    char line[96];
    int len = snprintf(line, sizeof line, "(%" PRIu64 " lines of the log were lost here)\n",
                       log->lost_count);
    /* Beyond the usual limit, by this little. */
    if (buf_append(&log->pending, line, (size_t)len, LIMIT_LOG_BYTES + sizeof line))
        log->lost_count = 0;
}

static void write_on(struct log *log, uv_loop_t *uv);

static void on_written(uv_fs_t *request)
{
    struct log *log = request->data;
    uv_loop_t *uv = request->loop;
    ssize_t result = request->result;
    uv_fs_req_cleanup(request);
    if (result > 0)
        log->written += (size_t)result;
    if (result > 0 && log->written < log->writing.len)
        write_on(log, uv);
    else
        log->writing.len = 0; /* written, or the disk is full: going on is all one can do */
}

static void write_on(struct log *log, uv_loop_t *uv)
{
    uv_buf_t bytes = uv_buf_init(log->writing.data + log->written,
                                 (unsigned)(log->writing.len - log->written));
    log->write.data = log;
    if (uv_fs_write(uv, &log->write, log->fd, &bytes, 1, -1, on_written) < 0)
        log->writing.len = 0;
}

struct buf log_take(struct log *log, uv_loop_t *uv)
{
    count_lost(log);
    struct buf batch = log->pending;
    log->pending = (struct buf){0};
    log->pending_ms = 0;
    if (log->fd >= 0) {
        log->writing.len = 0;
        log->written = 0;
        if (buf_append(&log->writing, batch.data, batch.len, SIZE_MAX))
            write_on(log, uv);
    }
    return batch;
}

void log_finish(struct log *log)
{
    count_lost(log);
    size_t done = 0;
    while (log->fd >= 0 && done < log->pending.len) {
        ssize_t n = write(log->fd, log->pending.data + done, log->pending.len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    log->pending.len = 0;
    log->pending_ms = 0;
}
