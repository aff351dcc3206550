/* format.c - replies in, wire bytes out.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "format.h"

#include "check.h"
#include "gzip.h"
#include "limits.h"

#include <stdio.h>
#include <strings.h>

/* Bodies up to this size are copied behind the head: a copy of 8 KiB costs less than the kernel's
 * handling of a second vector. */
#define JOIN_BYTES (8 * 1024)

// clang-format off
const char *format_reason(int code)
{
    switch (code) {
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 102: return "Processing";
    case 103: return "Early Hints";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 203: return "Non-Authoritative Information";
    case 204: return "No Content";
    case 205: return "Reset Content";
    case 206: return "Partial Content";
    case 207: return "Multi-Status";
    case 208: return "Already Reported";
    case 226: return "IM Used";
    case 300: return "Multiple Choices";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 305: return "Use Proxy";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 402: return "Payment Required";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 407: return "Proxy Authentication Required";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 418: return "I'm a teapot";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 423: return "Locked";
    case 424: return "Failed Dependency";
    case 425: return "Too Early";
    case 426: return "Upgrade Required";
    case 428: return "Precondition Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 451: return "Unavailable For Legal Reasons";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 506: return "Variant Also Negotiates";
    case 507: return "Insufficient Storage";
    case 508: return "Loop Detected";
    case 511: return "Network Authentication Required";
    default: return "Unknown";
    }
}
// clang-format on

size_t format_decimal(uint64_t n, char *out)
{
    char digits[20];
    size_t len = 0;
    do {
        digits[len++] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    for (size_t i = 0; i < len; i++)
        out[i] = digits[len - 1 - i];
    return len;
}

void format_clock_set(struct format_clock *clock, time_t now)
{
    /* Not strftime: the names are English whatever the locale (RFC 9110 section 5.6.7). */
    static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    if (LIKELY(clock->len && clock->at == now))
        return;
    struct tm tm;
    if (!gmtime_r(&now, &tm))
        return;
    clock->at = now;
    int len = snprintf(clock->line, sizeof clock->line,
                       "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n", days[tm.tm_wday % 7],
                       tm.tm_mday % 100, months[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000,
                       tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
    clock->len = len > 0 && (size_t)len < sizeof clock->line ? (size_t)len : 0;
}

static bool put(struct buf *buf, const char *bytes, size_t len)
{
    return buf_append(buf, bytes, len, FORMAT_HEAD_BYTES_MAX);
}

#define PUT_LITERAL(buf, literal) put(buf, literal, sizeof(literal) - 1)

enum format_status format_start(struct reply *reply, int code)
{
    if (reply->phase != REPLY_EMPTY)
        return FORMAT_STARTED;
    if (code < 200 || code > 599)
        return FORMAT_BAD_STATUS;
    bool ok;
    if (LIKELY(code == 200)) {
        ok = PUT_LITERAL(&reply->head, "HTTP/1.1 200 OK\r\n");
    } else {
        char line[64];
        int len = snprintf(line, sizeof line, "HTTP/1.1 %d %s\r\n", code, format_reason(code));
        ok = put(&reply->head, line, (size_t)len);
    }
    if (!ok)
        return FORMAT_NO_MEMORY;
    reply->status = code;
    reply->phase = REPLY_OPEN;
    return FORMAT_OK;
}

enum format_status format_switch(struct reply *reply, const char *protocol)
{
    if (reply->phase != REPLY_EMPTY)
        return FORMAT_STARTED;
    if (!PUT_LITERAL(&reply->head, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: ") ||
        !put(&reply->head, protocol, strlen(protocol)) ||
        !PUT_LITERAL(&reply->head, "\r\nConnection: Upgrade\r\n"))
        return FORMAT_NO_MEMORY;
    reply->status = 101;
    reply->phase = REPLY_OPEN;
    return FORMAT_OK;
}

enum format_status format_switch_end(struct reply *reply, const struct format_clock *clock)
{
    CHECK(reply->phase == REPLY_OPEN && reply->status == 101);
    if (!put(&reply->head, reply->extra.data, reply->extra.len) ||
        !put(&reply->head, clock->line, clock->len) || !PUT_LITERAL(&reply->head, "\r\n"))
        return FORMAT_NO_MEMORY;
    reply->phase = REPLY_STREAMING;
    return FORMAT_OK;
}

/* RFC 9110 section 5.6.2: tchar. */
static const bool token_byte[256] = {
    ['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1, ['&'] = 1, ['\''] = 1, ['*'] = 1, ['+'] = 1,
    ['-'] = 1, ['.'] = 1, ['^'] = 1, ['_'] = 1, ['`'] = 1, ['|'] = 1,  ['~'] = 1, ['0'] = 1,
    ['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 1, ['5'] = 1, ['6'] = 1,  ['7'] = 1, ['8'] = 1,
    ['9'] = 1, ['A'] = 1, ['B'] = 1, ['C'] = 1, ['D'] = 1, ['E'] = 1,  ['F'] = 1, ['G'] = 1,
    ['H'] = 1, ['I'] = 1, ['J'] = 1, ['K'] = 1, ['L'] = 1, ['M'] = 1,  ['N'] = 1, ['O'] = 1,
    ['P'] = 1, ['Q'] = 1, ['R'] = 1, ['S'] = 1, ['T'] = 1, ['U'] = 1,  ['V'] = 1, ['W'] = 1,
    ['X'] = 1, ['Y'] = 1, ['Z'] = 1, ['a'] = 1, ['b'] = 1, ['c'] = 1,  ['d'] = 1, ['e'] = 1,
    ['f'] = 1, ['g'] = 1, ['h'] = 1, ['i'] = 1, ['j'] = 1, ['k'] = 1,  ['l'] = 1, ['m'] = 1,
    ['n'] = 1, ['o'] = 1, ['p'] = 1, ['q'] = 1, ['r'] = 1, ['s'] = 1,  ['t'] = 1, ['u'] = 1,
    ['v'] = 1, ['w'] = 1, ['x'] = 1, ['y'] = 1, ['z'] = 1,
};

static bool is_name(const char *name, size_t name_len, const char *lower, size_t lower_len)
{
    return name_len == lower_len && strncasecmp(name, lower, lower_len) == 0;
}

#define IS_NAME(name, len, literal) is_name(name, len, literal, sizeof(literal) - 1)

static bool parse_length(const char *value, size_t len, uint64_t *length)
{
    if (len == 0 || len > 18)
        return false;
    *length = 0;
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9')
            return false;
        *length = *length * 10 + (uint64_t)(value[i] - '0');
    }
    return true;
}

/* Inline: format_field runs for each field of each answer. */
static inline __attribute__((always_inline)) enum format_status
check_field(const char *name, size_t name_len, const char *value, size_t value_len)
{
    if (name_len == 0)
        return FORMAT_BAD_NAME;
    for (size_t i = 0; i < name_len; i++)
        if (!token_byte[(unsigned char)name[i]])
            return FORMAT_BAD_NAME;
    for (size_t i = 0; i < value_len; i++) {
        unsigned char byte = (unsigned char)value[i];
        if (UNLIKELY((byte < 32 && byte != '\t') || byte == 127))
            return FORMAT_BAD_VALUE;
    }
    return FORMAT_OK;
}

/* False, and nothing changed, when memory is out. */
static bool put_field(struct buf *buf, const char *name, size_t name_len, const char *value,
                      size_t value_len)
{
    size_t before = buf->len;
    if (put(buf, name, name_len) && PUT_LITERAL(buf, ": ") && put(buf, value, value_len) &&
        PUT_LITERAL(buf, "\r\n"))
        return true;
    buf->len = before;
    return false;
}

enum format_status format_field(struct reply *reply, const char *name, size_t name_len,
                                const char *value, size_t value_len)
{
    if (reply->phase != REPLY_OPEN)
        return FORMAT_STARTED;
    enum format_status status = check_field(name, name_len, value, value_len);
    if (status != FORMAT_OK)
        return status;
    switch (name[0] | 32) {
    case 'c':
        if (IS_NAME(name, name_len, "content-length")) {
            if (!parse_length(value, value_len, &reply->length))
                return FORMAT_BAD_FRAMING;
            reply->has_length = true;
            return FORMAT_OK;
        }
        if (IS_NAME(name, name_len, "connection")) {
            if (is_name(value, value_len, "close", 5)) {
                reply->close = true;
                return FORMAT_OK;
            }
            if (is_name(value, value_len, "keep-alive", 10))
                return FORMAT_OK; /* ours to say */
        }
        if (IS_NAME(name, name_len, "content-type")) {
            reply->type_off = (uint32_t)(reply->head.len + name_len + 2);
            break;
        }
        if (IS_NAME(name, name_len, "content-encoding")) {
            reply->gzip_asked = is_name(value, value_len, "gzip", 4);
            reply->no_coding = !reply->gzip_asked;
            if (reply->gzip_asked)
                return FORMAT_OK; /* said when it is done */
        }
        if (IS_NAME(name, name_len, "content-range") ||
            (IS_NAME(name, name_len, "cache-control") && value_len >= sizeof "no-transform" - 1 &&
             memmem(value, value_len, "no-transform", sizeof "no-transform" - 1)))
            reply->no_coding = true;
        break;
    case 'e':
        if (IS_NAME(name, name_len, "etag") && value_len && value[0] == '"')
            reply->etag_off = (uint32_t)(reply->head.len + name_len + 2);
        break;
    case 't':
        if (IS_NAME(name, name_len, "transfer-encoding")) {
            if (!is_name(value, value_len, "chunked", 7))
                return FORMAT_BAD_FRAMING;
            return FORMAT_OK;
        }
        break;
    case 'd':
        if (IS_NAME(name, name_len, "date"))
            reply->has_date = true;
        break;
    default:
        break;
    }
    return put_field(&reply->head, name, name_len, value, value_len) ? FORMAT_OK : FORMAT_NO_MEMORY;
}

enum format_status format_interim_start(struct reply *reply, int code)
{
    CHECK(reply->phase == REPLY_EMPTY);
    if (code < 102 || code > 199) /* 100 is the loop's to say, 101 ends HTTP */
        return FORMAT_BAD_STATUS;
    char line[64];
    int len = snprintf(line, sizeof line, "HTTP/1.1 %d %s\r\n", code, format_reason(code));
    if (!put(&reply->head, line, (size_t)len))
        return FORMAT_NO_MEMORY;
    reply->status = code;
    reply->phase = REPLY_OPEN;
    return FORMAT_OK;
}

enum format_status format_interim_end(struct reply *reply)
{
    return PUT_LITERAL(&reply->head, "\r\n") ? FORMAT_OK : FORMAT_NO_MEMORY;
}

enum format_status format_extra(struct reply *reply, const char *name, size_t name_len,
                                const char *value, size_t value_len)
{
    if (reply->phase != REPLY_EMPTY && reply->phase != REPLY_OPEN)
        return FORMAT_STARTED;
    enum format_status status = check_field(name, name_len, value, value_len);
    if (status != FORMAT_OK)
        return status;
    if (IS_NAME(name, name_len, "content-length") || IS_NAME(name, name_len, "connection") ||
        IS_NAME(name, name_len, "transfer-encoding") || IS_NAME(name, name_len, "date") ||
        IS_NAME(name, name_len, "content-encoding"))
        return FORMAT_BAD_FRAMING;
    if (IS_NAME(name, name_len, "etag") && value_len && value[0] == '"')
        reply->extra_etag_off = (uint32_t)(reply->extra.len + name_len + 2);
    return put_field(&reply->extra, name, name_len, value, value_len) ? FORMAT_OK
                                                                      : FORMAT_NO_MEMORY;
}

enum format_status format_trailer(struct reply *reply, const char *name, size_t name_len,
                                  const char *value, size_t value_len)
{
    /* What frames, routes, or says how to read the body comes too late behind it, and who merges
     * trailers into the header must not be led astray. */
    static const char *const forbidden[] = {"age",
                                            "authorization",
                                            "cache-control",
                                            "connection",
                                            "content-encoding",
                                            "content-length",
                                            "content-range",
                                            "content-type",
                                            "date",
                                            "expires",
                                            "host",
                                            "keep-alive",
                                            "location",
                                            "proxy-authenticate",
                                            "retry-after",
                                            "set-cookie",
                                            "te",
                                            "trailer",
                                            "transfer-encoding",
                                            "upgrade",
                                            "vary",
                                            "warning",
                                            "www-authenticate"};
    if (reply->phase != REPLY_OPEN && reply->phase != REPLY_STREAMING)
        return FORMAT_STARTED;
    enum format_status status = check_field(name, name_len, value, value_len);
    if (status != FORMAT_OK)
        return status;
    for (size_t i = 0; i < ARRAY_LEN(forbidden); i++)
        if (is_name(name, name_len, forbidden[i], strlen(forbidden[i])))
            return FORMAT_BAD_TRAILER;
    return put_field(&reply->trailers, name, name_len, value, value_len) ? FORMAT_OK
                                                                         : FORMAT_NO_MEMORY;
}

static bool put_length(struct buf *buf, uint64_t length)
{
    char line[48] = "Content-Length: ";
    size_t len = sizeof("Content-Length: ") - 1;
    len += format_decimal(length, line + len);
    line[len++] = '\r';
    line[len++] = '\n';
    return put(buf, line, len);
}

/* Date and Connection, which every head has in common, and the end of the head. */
static bool put_tail(struct reply *reply, const struct format_context *context,
                     const struct format_clock *clock)
{
    if (!context->keep_alive)
        reply->close = true;
    if (UNLIKELY(reply->extra.len > 0) && !put(&reply->head, reply->extra.data, reply->extra.len))
        return false;
    if (!reply->has_date && !put(&reply->head, clock->line, clock->len))
        return false;
    if (reply->close) {
        if (!PUT_LITERAL(&reply->head, "Connection: close\r\n"))
            return false;
    } else if (context->http_1_0) {
        if (!PUT_LITERAL(&reply->head, "Connection: keep-alive\r\n"))
            return false;
    }
    return PUT_LITERAL(&reply->head, "\r\n");
}

static bool status_without_body(int status)
{
    return status == 204 || status == 205 || status == 304;
}

bool format_may_code(const struct reply *reply)
{
    if (!reply->type_off || reply->no_coding || reply->status < 200 || reply->status == 206 ||
        status_without_body(reply->status))
        return false;
    const char *type = reply->head.data + reply->type_off;
    const char *end = memchr(type, '\r', reply->head.len - reply->type_off);
    return end && gzip_worth(type, (size_t)(end - type));
}

/* Make the entity tag at *OFF of HEAD, which has room for it, a weak one. */
static void weaken(struct buf *head, uint32_t *off)
{
    if (!*off)
        return;
    char *etag = head->data + *off;
    memmove(etag + 2, etag, head->len - *off);
    etag[0] = 'W';
    etag[1] = '/';
    head->len += 2;
    *off = 0;
}

enum format_status format_coded(struct reply *reply, struct buf *zipped)
{
    struct buf *head = &reply->head;
    if (!buf_reserve(head, 64, FORMAT_HEAD_BYTES_MAX) ||
        (reply->extra_etag_off && !buf_reserve(&reply->extra, 2, FORMAT_HEAD_BYTES_MAX)))
        return FORMAT_NO_MEMORY;
    weaken(head, &reply->etag_off);
    weaken(&reply->extra, &reply->extra_etag_off);
    PUT_LITERAL(head, "Content-Encoding: gzip\r\n");
    reply->has_length = false; /* it was that of other bytes */
    if (zipped) {
        buf_free(&reply->body);
        reply->body = *zipped;
        *zipped = (struct buf){0};
    }
    return FORMAT_OK;
}

enum format_status format_vary(struct reply *reply)
{
    return PUT_LITERAL(&reply->head, "Vary: Accept-Encoding\r\n") ? FORMAT_OK : FORMAT_NO_MEMORY;
}

enum format_status format_finish(struct reply *reply, const struct format_context *context,
                                 const struct format_clock *clock)
{
    CHECK(reply->phase == REPLY_OPEN);
    reply->bodiless = context->head || status_without_body(reply->status);
    bool ok = true;
    if (reply->status == 204) {
        /* RFC 9110 section 8.6: no Content-Length. */
    } else if (UNLIKELY(reply->status == 205)) {
        ok = put_length(&reply->head, 0); /* section 15.3.6 */
    } else if (!reply->bodiless) {
        ok = put_length(&reply->head, reply->body.len);
    } else if (reply->body.len) {
        ok = put_length(&reply->head, reply->body.len);
    } else if (reply->has_length) {
        ok = put_length(&reply->head, reply->length);
    }
    /* Neither: HEAD or 304 by a handler that did not say how long the body would be. */
    if (!ok || !put_tail(reply, context, clock))
        return FORMAT_NO_MEMORY;
    if (reply->bodiless)
        reply->body.len = 0;
    reply->body_bytes = reply->body.len;
    if (reply->body.len && reply->body.len <= JOIN_BYTES &&
        buf_append(&reply->head, reply->body.data, reply->body.len,
                   FORMAT_HEAD_BYTES_MAX + JOIN_BYTES))
        reply->body.len = 0;
    reply->phase = REPLY_DONE;
    return FORMAT_OK;
}

enum format_status format_stream_start(struct reply *reply, const struct format_context *context,
                                       const struct format_clock *clock)
{
    CHECK(reply->phase == REPLY_OPEN);
    reply->bodiless = context->head || status_without_body(reply->status);
    bool ok = true;
    if (UNLIKELY(reply->status == 205)) {
        ok = put_length(&reply->head, 0);
    } else if (reply->has_length && reply->status != 204) {
        ok = put_length(&reply->head, reply->length);
    } else if (!reply->bodiless) {
        if (context->http_1_0) {
            reply->close = true; /* the close is the only end such a client understands */
        } else {
            reply->chunked = true;
            ok = PUT_LITERAL(&reply->head, "Transfer-Encoding: chunked\r\n");
        }
    }
    if (!ok || !put_tail(reply, context, clock))
        return FORMAT_NO_MEMORY;
    reply->phase = REPLY_STREAMING;
    return FORMAT_OK;
}

enum format_status format_stream_piece(struct reply *reply, struct buf *out)
{
    CHECK(reply->phase == REPLY_STREAMING);
    size_t len = reply->body.len;
    reply->body.len = 0;
    if (len == 0 || reply->bodiless)
        return FORMAT_OK;
    if (reply->has_length && !reply->chunked) {
        /* More than was declared would be taken for the next answer. */
        uint64_t room = reply->length - reply->body_bytes;
        if (len > room)
            len = (size_t)room;
    }
    reply->body_bytes += len;
    if (!reply->chunked)
        return buf_append(out, reply->body.data, len, SIZE_MAX) ? FORMAT_OK : FORMAT_NO_MEMORY;
    char size[24];
    int size_len = snprintf(size, sizeof size, "%zx\r\n", len);
    if (!buf_reserve(out, (size_t)size_len + len + 2, SIZE_MAX))
        return FORMAT_NO_MEMORY;
    buf_append(out, size, (size_t)size_len, SIZE_MAX);
    buf_append(out, reply->body.data, len, SIZE_MAX);
    buf_append(out, "\r\n", 2, SIZE_MAX);
    return FORMAT_OK;
}

enum format_status format_stream_end(struct reply *reply, struct buf *out)
{
    CHECK(reply->phase == REPLY_STREAMING);
    reply->phase = REPLY_DONE;
    if (reply->bodiless)
        return FORMAT_OK;
    if (reply->chunked)
        return buf_append(out, "0\r\n", 3, SIZE_MAX) &&
                       buf_append(out, reply->trailers.data, reply->trailers.len, SIZE_MAX) &&
                       buf_append(out, "\r\n", 2, SIZE_MAX)
                   ? FORMAT_OK
                   : FORMAT_NO_MEMORY;
    if (reply->has_length && reply->body_bytes < reply->length)
        reply->close = true;
    return FORMAT_OK;
}

enum format_status format_plain(struct reply *reply, int code, const char *detail,
                                const char *fields, const struct format_context *context,
                                const struct format_clock *clock)
{
    reply_reset(reply);
    enum format_status status = format_start(reply, code);
    if (status != FORMAT_OK)
        return status;
    char body[256];
    int len = snprintf(body, sizeof body, "%d %s%s%s\n", code, format_reason(code),
                       detail ? "\n" : "", detail ? detail : "");
    if (len < 0 || (size_t)len >= sizeof body)
        len = (int)strlen(body);
    if (!PUT_LITERAL(&reply->head, "Content-Type: text/plain; charset=utf-8\r\n"
                                   "X-Content-Type-Options: nosniff\r\n") ||
        (fields && !put(&reply->head, fields, strlen(fields))) ||
        !buf_append(&reply->body, body, (size_t)len, sizeof body))
        return FORMAT_NO_MEMORY;
    return format_finish(reply, context, clock);
}
