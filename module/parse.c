/* parse.c - bytes in, one request out: the guard, and llhttp behind it.
 *
 * The guard sees every byte first and llhttp only what the guard has let pass, in whole pieces: the
 * head once its last line is there, chunk sizes without their extensions, body bytes up to the end
 * the guard knows.  What llhttp could be lenient or strict about in one version and not in another
 * never reaches it, so a refusal by llhttp itself is a bug (CHECK).  llhttp cuts the head into
 * method, target and fields and takes the body's framing off.
 *
 * The outcome must not depend on how reads cut the bytes.  So every error is either that of a byte
 * (found while scanning forward, the first one wins) or that of a complete line (in line order).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "parse.h"

#include "check.h"

#include <stdlib.h>

/* Where "no limit" ends all the same: offsets into the head are 32 bits wide. */
#define HEAD_BYTES_HARD (UINT32_C(1) << 28)
#define FIELDS_HARD (UINT32_C(1) << 24)

/* Empty lines in front of a request (RFC 9112 section 2.2): old clients send one after a body. */
#define EMPTY_BYTES_MAX 64

enum stage {
    STAGE_START = 0, /* empty lines may come */
    STAGE_LINE,
    STAGE_FIELDS,
    STAGE_COMPLETE, /* no body; PARSE_HEAD was said, PARSE_DONE not yet */
    STAGE_BODY,
    STAGE_CHUNK_LINE,
    STAGE_CHUNK_DATA,
    STAGE_CHUNK_END,
    STAGE_TRAILERS,
    STAGE_OVER,
    STAGE_FAILED
};

/* What the chunk-size line may go on with (RFC 9112 section 7.1.1). */
enum chunk_state {
    CHUNK_SIZE_FIRST = 0,
    CHUNK_SIZE,
    CHUNK_SEMICOLON, /* blanks were seen; only an extension may follow */
    CHUNK_NAME_FIRST,
    CHUNK_NAME,
    CHUNK_NAME_END,
    CHUNK_VALUE_FIRST,
    CHUNK_VALUE,
    CHUNK_QUOTED,
    CHUNK_ESCAPE,
    CHUNK_QUOTED_END,
    CHUNK_LF
};

/* Which bytes are what.
 *
 * Targets: RFC 3986, and besides what browsers send unencoded (the URL standard's percent-encode
 * sets leave them): [ ] | ^ in paths, and \ ` { } as well in queries. */
enum {
    TOKEN = 1, /* RFC 9110 section 5.6.2 */
    PATH = 2,
    QUERY = 4,
    HOST = 8, /* a reg-name, RFC 3986 section 3.2.2 */
    HEX = 16,
    TEXT = 32, /* may occur in a line at all: no control but HTAB */

    X = 0,
    B = TEXT,
    T = TEXT | TOKEN,
    P = TEXT | PATH | QUERY,
    Q = TEXT | QUERY,
    G = TEXT | QUERY | TOKEN,
    C = TEXT | QUERY | TOKEN | PATH,
    S = TEXT | QUERY | PATH | HOST,
    W = TEXT | QUERY | PATH | HOST | TOKEN,
    H = TEXT | QUERY | PATH | HOST | TOKEN | HEX
};

/* clang-format off */
static const uint8_t classes[256] = {
    X, X, X, X, X, X, X, X, X, B, X, X, X, X, X, X, /* 00 */
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, /* 10 */
    B, W, B, T, W, W, W, W, S, S, W, W, S, W, W, P, /* 20 */
    H, H, H, H, H, H, H, H, H, H, P, S, B, S, B, Q, /* 30 */
    P, H, H, H, H, H, H, W, W, W, W, W, W, W, W, W, /* 40 */
    W, W, W, W, W, W, W, W, W, W, W, P, Q, P, C, W, /* 50 */
    G, H, H, H, H, H, H, W, W, W, W, W, W, W, W, W, /* 60 */
    W, W, W, W, W, W, W, W, W, W, W, Q, C, Q, W, X, /* 70 */
    B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, /* 80 */
    B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, /* 90 */
    B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, /* a0 */
    B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, /* b0 */
    B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, /* c0 */
    B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, /* d0 */
    B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, /* e0 */
    B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, /* f0 */
};
/* clang-format on */

static inline bool is(char byte, int class)
{
    return classes[(unsigned char)byte] & class;
}

static inline bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

static inline char lower(char byte)
{
    return byte >= 'A' && byte <= 'Z' ? (char)(byte | 0x20) : byte;
}

/* True when TEXT is LOWERED (a literal) without regard to case. */
#define SAME(text, len, lowered) ((len) == sizeof(lowered) - 1 && same(text, lowered, len))

static bool same(const char *text, const char *lowered, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (lower(text[i]) != lowered[i])
            return false;
    return true;
}

static enum parse_event fail(struct parser *parser, int status, const char *reason)
{
    parser->status = status;
    parser->reason = reason;
    parser->guard.stage = STAGE_FAILED;
    return PARSE_FAILED;
}

/* The first byte of [AT, END) that may not stand inside a line, or END.  Eight at a time: this is
 * the only pass over most bytes of a head besides llhttp's. */
static const char *scan_line(const char *at, const char *end)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    while (end - at >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t control = (word - ones * 0x20) & ~word;
        uint64_t del = word ^ ones * 0x7f;
        del = (del - ones) & ~del;
        if ((control | del) & ones * 0x80) {
            for (int i = 0; i < 8; i++)
                if (!is(at[i], TEXT))
                    return at + i;
            /* tabs only */
        }
        at += 8;
    }
    while (at < end && is(*at, TEXT))
        at++;
    return at;
}

/* llhttp's side */

/* Bytes of one span follow each other, so a further piece only makes it longer. */
static void span_grow(struct parser *parser, struct span *span, const char *at, size_t len)
{
    const struct buf *head = &parser->request->head;
    CHECK(at >= head->data && at + len <= head->data + head->len);
    uint32_t off = (uint32_t)(at - head->data);
    if (!span->len)
        span->off = off;
    CHECK(span->off + span->len == off);
    span->len += (uint32_t)len;
}

static int on_url(llhttp_t *llhttp, const char *at, size_t len)
{
    struct parser *parser = llhttp->data;
    if (len)
        span_grow(parser, &parser->request->target, at, len);
    return 0;
}

static int on_header_field(llhttp_t *llhttp, const char *at, size_t len)
{
    struct parser *parser = llhttp->data;
    struct request *request = parser->request;
    if (!len)
        return 0;
    if (!parser->guard.name_open) {
        if (request->fields_len == request->fields_capacity) {
            uint32_t capacity = request->fields_capacity ? request->fields_capacity * 2 : 16;
            struct field *fields = realloc(request->fields, capacity * sizeof *fields);
            if (!fields) {
                fail(parser, 503, "out of memory");
                return -1;
            }
            request->fields = fields;
            request->fields_capacity = capacity;
        }
        request->fields[request->fields_len++] = (struct field){{0, 0}, {0, 0}};
        parser->guard.name_open = true;
    }
    span_grow(parser, &request->fields[request->fields_len - 1].name, at, len);
    return 0;
}

static int on_header_field_complete(llhttp_t *llhttp)
{
    struct parser *parser = llhttp->data;
    parser->guard.name_open = false;
    return 0;
}

static int on_header_value(llhttp_t *llhttp, const char *at, size_t len)
{
    struct parser *parser = llhttp->data;
    struct request *request = parser->request;
    /* llhttp reports the end of a value that was cut, and an empty one, as a piece of no bytes. */
    if (len && request->fields_len)
        span_grow(parser, &request->fields[request->fields_len - 1].value, at, len);
    return 0;
}

static int on_body(llhttp_t *llhttp, const char *at, size_t len)
{
    struct parser *parser = llhttp->data;
    struct request *request = parser->request;
    if (!len)
        return 0;
    request->body_bytes += len;
    if (!parser->sink) {
        if (buf_append(&request->body, at, len, SIZE_MAX / 2))
            return 0;
        fail(parser, 503, "out of memory");
        return -1;
    }
    int status = parser->sink(parser->sink_data, at, len);
    if (!status)
        return 0;
    fail(parser, status, "the body was refused");
    return -1;
}

static int on_message_complete(llhttp_t *llhttp)
{
    struct parser *parser = llhttp->data;
    parser->guard.message_complete = true;
    return 0;
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_field_complete = on_header_field_complete,
    .on_header_value = on_header_value,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

/* Hand LEN bytes to llhttp, none of them beyond the message's end.  False after fail (). */
static bool feed_llhttp(struct parser *parser, const char *bytes, size_t len)
{
    llhttp_errno_t error = llhttp_execute(&parser->llhttp, bytes, len);
    if (LIKELY(error == HPE_OK))
        return true;
    /* llhttp stops behind a request that asks for an upgrade; conn decides whether it gets one. */
    if (error == HPE_PAUSED_UPGRADE && parser->guard.message_complete)
        return true;
    if (parser->guard.stage != STAGE_FAILED) {
        CHECK(!"llhttp refused what the guard accepted");
        fail(parser, 400, "malformed request");
    }
    return false;
}

/* Hand the head to llhttp up to offset END. */
static bool feed_head(struct parser *parser, uint32_t end)
{
    struct parser_guard *guard = &parser->guard;
    uint32_t off = guard->fed_off;
    CHECK(off <= end && end <= parser->request->head.len);
    guard->fed_off = end;
    return off == end || feed_llhttp(parser, parser->request->head.data + off, end - off);
}

/* The request line */

/* Methods are case-sensitive.  NONE when Porter does not know it: 501. */
static enum method find_method(const char *name, size_t len)
{
    if (len == 3 && !memcmp(name, "GET", 3))
        return METHOD_GET;
    if (len == 4 && !memcmp(name, "POST", 4))
        return METHOD_POST;
    for (int method = METHOD_NONE + 1; method < METHOD_COUNT; method++) {
        const char *known = method_name((enum method)method);
        if (strlen(known) == len && !memcmp(name, known, len))
            return (enum method)method;
    }
    return METHOD_NONE;
}

/* 1 to 3 digits four times, dots between, each at most 255 and without a leading zero. */
static bool valid_ipv4(const char *at, const char *end)
{
    for (int part = 0; part < 4; part++) {
        if (part && (at == end || *at++ != '.'))
            return false;
        const char *begin = at;
        int value = 0;
        while (at < end && at - begin < 3 && *at >= '0' && *at <= '9')
            value = value * 10 + (*at++ - '0');
        if (at == begin || value > 255 || (*begin == '0' && at - begin > 1))
            return false;
    }
    return at == end;
}

/* What stands between the brackets (RFC 3986 section 3.2.2; no zone, which says nothing here). */
static bool valid_ip_literal(const char *at, const char *end)
{
    if (at < end && (*at == 'v' || *at == 'V')) {
        const char *digits = ++at;
        while (at < end && is(*at, HEX))
            at++;
        if (at == digits || at == end || *at != '.')
            return false;
        const char *rest = ++at;
        while (at < end && *at != '%' && (is(*at, HOST) || *at == ':'))
            at++;
        return at == end && at > rest;
    }
    int groups = 0;
    bool shortened = false;
    if (end - at >= 2 && at[0] == ':' && at[1] == ':') {
        shortened = true;
        at += 2;
    }
    while (at < end) {
        const char *begin = at;
        while (at < end && at - begin < 4 && is(*at, HEX))
            at++;
        if (at == begin)
            return false;
        if (at < end && *at == '.') {
            groups += 2;
            if (!valid_ipv4(begin, end))
                return false;
            break;
        }
        groups++;
        if (at == end)
            break;
        if (*at++ != ':' || at == end)
            return false;
        if (*at == ':') {
            if (shortened)
                return false;
            shortened = true;
            at++;
        }
    }
    return shortened ? groups <= 7 : groups == 8;
}

/* host [ ":" port ] with a host that is not empty: RFC 9110 section 4.2.1 refuses an empty one. */
static bool valid_authority(const char *at, const char *end)
{
    if (at < end && *at == '[') {
        const char *close = memchr(at, ']', (size_t)(end - at));
        if (!close || !valid_ip_literal(at + 1, close))
            return false;
        at = close + 1;
    } else {
        const char *begin = at;
        while (at < end && is(*at, HOST)) {
            if (*at == '%' && (end - at < 3 || !is(at[1], HEX) || !is(at[2], HEX)))
                return false;
            at++;
        }
        if (at == begin)
            return false;
    }
    if (at == end)
        return true;
    if (*at++ != ':')
        return false;
    uint32_t port = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        port = port * 10 + (uint32_t)(*at - '0');
        if (port > 65535)
            return false;
    }
    return true;
}

/* Set path, query and authority from the target at OFF to END of LINE, whose offsets are the
 * head's.  NULL, or what is wrong. */
static const char *read_target(struct parser *parser, const char *line, uint32_t off, uint32_t end)
{
    struct request *request = parser->request;
    uint32_t at = off;
    if (line[at] == '*') {
        if (end - off != 1 || request->method != METHOD_OPTIONS)
            return "malformed request target";
        request->path = (struct span){off, 1};
        return NULL;
    }
    if (line[at] != '/') {
        uint32_t scheme = 0;
        if (end - off > 7 && same(line + off, "http://", 7))
            scheme = 7;
        else if (end - off > 8 && same(line + off, "https://", 8))
            scheme = 8;
        else
            return "malformed request target";
        at += scheme;
        uint32_t begin = at;
        while (at < end && line[at] != '/' && line[at] != '?')
            at++;
        if (!valid_authority(line + begin, line + at))
            return "malformed authority in the request target";
        request->authority = (struct span){begin, at - begin};
        parser->guard.absolute = true;
    }
    uint32_t path = at;
    while (at < end && is(line[at], PATH))
        at++;
    /* An empty path is "/" (RFC 9110 section 4.2.3), and that of "http://" will do. */
    request->path = at > path ? (struct span){path, at - path} : (struct span){path, 1};
    if (at == path)
        request->path.off = request->authority.off - 1;
    if (at < end && line[at] == '?') {
        uint32_t query = ++at;
        while (at < end && is(line[at], QUERY))
            at++;
        request->query = (struct span){query, at - query};
    }
    return at == end ? NULL : "forbidden byte in the request target";
}

/* The first line is whole: LEN bytes at LINE, which is offset 0.  Sets *MINOR_OFF to where the
 * minor version stands if llhttp is to be told another one, else leaves it. */
static bool check_request_line(struct parser *parser, const char *line, uint32_t len,
                               uint32_t *minor_off)
{
    struct parser_guard *guard = &parser->guard;
    struct request *request = parser->request;
    uint32_t method_len = 0;
    while (method_len < len && is(line[method_len], TOKEN))
        method_len++;
    if (!method_len || !guard->target_end || guard->target_off != method_len + 1 ||
        guard->target_end == guard->target_off) {
        fail(parser, 400, "malformed request line");
        return false;
    }
    const char *version = line + guard->target_end + 1;
    if (len - guard->target_end - 1 != 8 || memcmp(version, "HTTP/", 5) || version[5] < '0' ||
        version[5] > '9' || version[6] != '.' || version[7] < '0' || version[7] > '9') {
        fail(parser, 400, "malformed HTTP version");
        return false;
    }
    if (version[5] != '1') {
        fail(parser, 505, "HTTP version not supported");
        return false;
    }
    /* A later 1.x is to be read as 1.1 (RFC 9110 section 2.5); llhttp knows none. */
    request->version_minor = version[7] != '0';
    if (version[7] > '1')
        *minor_off = guard->target_end + 8;
    request->method = find_method(line, method_len);
    if (request->method == METHOD_NONE) {
        fail(parser, 501, "unknown method");
        return false;
    }
    const char *wrong = read_target(parser, line, guard->target_off, guard->target_end);
    if (wrong)
        fail(parser, 400, wrong);
    return !wrong;
}

/* Look for the target in the bytes FROM to TO of the request line, just scanned and standing at
 * TEXT.  False when it is longer than allowed. */
static bool follow_target(struct parser *parser, const char *text, uint32_t from, uint32_t to)
{
    struct parser_guard *guard = &parser->guard;
    uint32_t at = from;
    if (!guard->target_off) {
        const char *blank = at < to ? memchr(text, ' ', to - at) : NULL;
        if (!blank)
            return true;
        at = guard->target_off = from + (uint32_t)(blank - text) + 1;
    }
    if (guard->target_end)
        return true;
    const char *blank = at < to ? memchr(text + (at - from), ' ', to - at) : NULL;
    uint32_t end = blank ? from + (uint32_t)(blank - text) : to;
    if (blank)
        guard->target_end = end;
    uint32_t max = parser->limits->target_bytes_max;
    return !max || end <= guard->target_off || end - guard->target_off <= max;
}

/* Fields */

/* Set *ELEMENT and *LEN to the next element of a comma-separated list, without blanks around it,
 * and move *AT behind it.  False at the end. */
static bool next_element(const char **at, const char *end, const char **element, size_t *len)
{
    if (!*at)
        return false;
    const char *begin = *at;
    const char *comma = begin < end ? memchr(begin, ',', (size_t)(end - begin)) : NULL;
    const char *stop = comma ? comma : end;
    *at = comma ? comma + 1 : NULL;
    while (begin < stop && is_blank(*begin))
        begin++;
    while (stop > begin && is_blank(stop[-1]))
        stop--;
    *element = begin;
    *len = (size_t)(stop - begin);
    return true;
}

static void read_connection(struct parser_guard *guard, const char *value, size_t value_len)
{
    const char *at = value, *element;
    size_t len;
    while (next_element(&at, value + value_len, &element, &len)) {
        if (SAME(element, len, "close"))
            guard->option_close = true;
        else if (SAME(element, len, "keep-alive"))
            guard->option_keep_alive = true;
        else if (SAME(element, len, "upgrade"))
            guard->option_upgrade = true;
    }
}

static void read_expect(struct parser_guard *guard, const char *value, size_t value_len)
{
    const char *at = value, *element;
    size_t len;
    while (next_element(&at, value + value_len, &element, &len)) {
        if (SAME(element, len, "100-continue"))
            guard->expect_continue = true;
        else if (len)
            guard->expect_other = true;
    }
}

static bool read_content_length(struct parser *parser, const char *value, size_t len)
{
    struct parser_guard *guard = &parser->guard;
    if (guard->length_seen) {
        fail(parser, 400, "more than one Content-Length");
        return false;
    }
    if (guard->coding_seen) {
        fail(parser, 400, "Content-Length with Transfer-Encoding");
        return false;
    }
    guard->length_seen = true;
    uint64_t length = 0;
    bool overflow = false;
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9') {
            fail(parser, 400, "malformed Content-Length");
            return false;
        }
        uint64_t digit = (uint64_t)(value[i] - '0');
        overflow |= length > (UINT64_MAX - digit) / 10;
        length = length * 10 + digit;
    }
    if (!len) {
        fail(parser, 400, "malformed Content-Length");
        return false;
    }
    if (overflow) {
        fail(parser, 413, "body too large");
        return false;
    }
    parser->request->content_length = length;
    return true;
}

/* Only "chunked" is understood.  Anything unclear here is what request smuggling is made of, so
 * even what a list may contain, such as empty elements, is refused (RFC 9112 sections 6.1, 6.3,
 * 11.2). */
static bool read_transfer_encoding(struct parser *parser, const char *value, size_t value_len)
{
    struct parser_guard *guard = &parser->guard;
    if (guard->length_seen) {
        fail(parser, 400, "Content-Length with Transfer-Encoding");
        return false;
    }
    if (!parser->request->version_minor) {
        fail(parser, 400, "Transfer-Encoding in HTTP/1.0");
        return false;
    }
    guard->coding_seen = true;
    const char *at = value, *element;
    size_t len;
    while (next_element(&at, value + value_len, &element, &len)) {
        size_t token = 0;
        while (token < len && is(element[token], TOKEN))
            token++;
        if (!len || token < len) {
            fail(parser, 400, "malformed Transfer-Encoding");
            return false;
        }
        if (guard->coding_chunked) {
            fail(parser, 400, "chunked is not the last transfer coding");
            return false;
        }
        if (SAME(element, len, "chunked"))
            guard->coding_chunked = true;
        else
            guard->coding_foreign = true;
    }
    return true;
}

static bool read_host(struct parser *parser, const char *value, size_t len, uint32_t off)
{
    struct parser_guard *guard = &parser->guard;
    if (guard->host_seen) {
        fail(parser, 400, "more than one Host");
        return false;
    }
    if (!valid_authority(value, value + len)) {
        fail(parser, 400, "malformed Host");
        return false;
    }
    guard->host_seen = true;
    if (!guard->absolute)
        parser->request->authority = (struct span){off, (uint32_t)len};
    return true;
}

/* A field line is whole: LEN bytes at LINE, offset OFF.  Sets *VALUE_END to where its value ends,
 * less than LEN when blanks follow. */
static bool check_field(struct parser *parser, const char *line, uint32_t len, uint32_t off,
                        uint32_t *value_end)
{
    struct parser_guard *guard = &parser->guard;
    uint32_t max = parser->limits->fields_max;
    if (++guard->lines > (max && max < FIELDS_HARD ? max : FIELDS_HARD)) {
        fail(parser, 431, "too many fields");
        return false;
    }
    uint32_t name_len = 0;
    while (name_len < len && is(line[name_len], TOKEN))
        name_len++;
    if (UNLIKELY(!name_len || name_len == len || line[name_len] != ':')) {
        bool blank = name_len < len && is_blank(line[name_len]);
        fail(parser, 400,
             !blank      ? "malformed field name"
             : !name_len ? "folded field line"
                         : "blank in or behind a field name");
        return false;
    }
    uint32_t begin = name_len + 1, end = len;
    while (begin < end && is_blank(line[begin]))
        begin++;
    while (end > begin && is_blank(line[end - 1]))
        end--;
    const char *value = line + begin;
    uint32_t value_len = end - begin;
    *value_end = value_len ? end : name_len + 1;

    if (guard->stage == STAGE_TRAILERS) {
        if (SAME(line, name_len, "content-length") || SAME(line, name_len, "transfer-encoding") ||
            SAME(line, name_len, "host")) {
            fail(parser, 400, "framing field in the trailers");
            return false;
        }
        return true;
    }
    switch (name_len) {
    case 4:
        if (same(line, "host", 4))
            return read_host(parser, value, value_len, off + begin);
        break;
    case 6:
        if (same(line, "expect", 6))
            read_expect(guard, value, value_len);
        break;
    case 7:
        if (value_len && same(line, "upgrade", 7))
            guard->upgrade_seen = true;
        break;
    case 10:
        if (same(line, "connection", 10))
            read_connection(guard, value, value_len);
        break;
    case 14:
        if (same(line, "content-length", 14))
            return read_content_length(parser, value, value_len);
        break;
    case 17:
        if (same(line, "transfer-encoding", 17))
            return read_transfer_encoding(parser, value, value_len);
        break;
    }
    return true;
}

/* The empty line was seen and the head is complete. */
static enum parse_event finish_head(struct parser *parser)
{
    struct parser_guard *guard = &parser->guard;
    struct request *request = parser->request;
    if (!guard->host_seen && request->version_minor)
        return fail(parser, 400, "no Host");
    if (guard->coding_seen && !guard->coding_chunked)
        return fail(parser, 400, "chunked is not the last transfer coding");
    if (guard->coding_foreign)
        return fail(parser, 501, "unknown transfer coding");
    if (guard->expect_other)
        return fail(parser, 417, "unknown expectation");
    uint64_t body_max = parser->limits->body_bytes_max;
    if (body_max && request->content_length > body_max)
        return fail(parser, 413, "body too large");

    if (!feed_head(parser, (uint32_t)request->head.len))
        return PARSE_FAILED;
    CHECK(request->fields_len == guard->lines);
    CHECK(request->target.off == guard->target_off);
    CHECK(request->target.off + request->target.len == guard->target_end);
    CHECK(!strcmp(method_name(request->method),
                  llhttp_method_name((llhttp_method_t)parser->llhttp.method)));
    CHECK(parser->llhttp.http_major == 1 && parser->llhttp.http_minor == request->version_minor);

    request->header_len = request->fields_len;
    request->chunked = guard->coding_chunked;
    request->keep_alive = !guard->option_close &&
                          (request->version_minor || guard->option_keep_alive);
    request->upgrade = guard->option_upgrade && guard->upgrade_seen && request->version_minor;
    bool body = request->chunked || request->content_length;
    request->expects_continue = guard->expect_continue && request->version_minor && body;
    CHECK(guard->message_complete == !body);
    guard->stage = request->chunked ? STAGE_CHUNK_LINE : body ? STAGE_BODY : STAGE_COMPLETE;
    return PARSE_HEAD;
}

static enum parse_event finish_message(struct parser *parser)
{
    CHECK(parser->guard.message_complete);
    parser->guard.stage = STAGE_OVER;
    parser->request->complete = true;
    parser->request = NULL;
    return PARSE_DONE;
}

static enum parse_event finish_trailers(struct parser *parser)
{
    if (!feed_head(parser, (uint32_t)parser->request->head.len))
        return PARSE_FAILED;
    CHECK(parser->request->fields_len == parser->guard.lines);
    return finish_message(parser);
}

/* True when the bytes *FROM to TO of DATA could be appended to the head. */
static bool keep_head(struct parser *parser, const char *data, size_t *from, size_t to)
{
    size_t begin = *from;
    *from = to;
    if (buf_append(&parser->request->head, data + begin, to - begin, UINT32_MAX))
        return true;
    fail(parser, 503, "out of memory");
    return false;
}

/* One line is whole: LEN bytes at LINE, offset OFF, CRLF behind it.  The head holds it, or will
 * once DATA up to AT is kept. */
static bool take_line(struct parser *parser, const char *line, uint32_t len, uint32_t off,
                      const char *data, size_t *kept, size_t at)
{
    struct parser_guard *guard = &parser->guard;
    if (guard->stage == STAGE_LINE) {
        uint32_t minor_off = 0;
        if (!check_request_line(parser, line, len, &minor_off))
            return false;
        guard->stage = STAGE_FIELDS;
        if (!minor_off)
            return true;
        if (!keep_head(parser, data, kept, at) || !feed_head(parser, minor_off))
            return false;
        guard->fed_off = minor_off + 1;
        return feed_llhttp(parser, "1", 1);
    }
    uint32_t value_end = len;
    if (!check_field(parser, line, len, off, &value_end))
        return false;
    if (value_end == len)
        return true;
    /* llhttp would count blanks behind a value to it, or choke on them: it never sees them. */
    if (!keep_head(parser, data, kept, at) || !feed_head(parser, off + value_end))
        return false;
    guard->fed_off = off + len;
    return true;
}

/* Read lines: the request line, the fields, or the trailers.  Complete lines are checked where they
 * stand in DATA, if they began there; the head gets DATA in one piece at the end. */
static enum parse_event feed_lines(struct parser *parser, const char *data, size_t len,
                                   size_t *used)
{
    struct parser_guard *guard = &parser->guard;
    struct request *request = parser->request;
    const uint32_t base = (uint32_t)request->head.len; /* the offset of DATA */
    const size_t room = guard->head_max - base;
    const size_t end = len < room ? len : room;
    size_t at = 0, kept = 0;
    *used = end;
    for (;;) {
        size_t lf = at;
        if (!guard->cr_pending) {
            size_t stop = (size_t)(scan_line(data + at, data + end) - data);
            if (guard->stage == STAGE_LINE &&
                !follow_target(parser, data + at, base + (uint32_t)at, base + (uint32_t)stop))
                return fail(parser, 414, "request target too long");
            if (stop == end)
                break;
            if (data[stop] != '\r')
                return fail(parser, 400,
                            data[stop] == '\n' ? "bare LF" : "control byte in the head");
            guard->cr_pending = true;
            lf = stop + 1;
        }
        if (lf == end)
            break;
        if (data[lf] != '\n')
            return fail(parser, 400, "bare CR");
        guard->cr_pending = false;
        at = lf + 1;

        uint32_t off = guard->line_off;
        uint32_t line_len = base + (uint32_t)at - 2 - off;
        guard->line_off = base + (uint32_t)at;
        if (!line_len) {
            *used = at;
            if (!keep_head(parser, data, &kept, at))
                return PARSE_FAILED;
            return guard->stage == STAGE_TRAILERS ? finish_trailers(parser) : finish_head(parser);
        }
        const char *line;
        if (off >= base) {
            line = data + (off - base);
        } else {
            if (!keep_head(parser, data, &kept, at))
                return PARSE_FAILED;
            line = request->head.data + off;
        }
        if (!take_line(parser, line, line_len, off, data, &kept, at))
            return PARSE_FAILED;
    }
    if (len > end)
        return fail(parser, 431, "head too large");
    return keep_head(parser, data, &kept, end) ? PARSE_MORE : PARSE_FAILED;
}

/* Skip empty lines; *USED grows by them. */
static enum parse_event skip_empty_lines(struct parser *parser, const char *data, size_t len,
                                         size_t *used)
{
    struct parser_guard *guard = &parser->guard;
    size_t at = 0;
    while (at < len && guard->stage == STAGE_START) {
        if (guard->cr_pending) {
            if (data[at] != '\n')
                return fail(parser, 400, "bare CR");
            guard->cr_pending = false;
            at++;
        } else if (data[at] == '\r') {
            guard->cr_pending = true;
            guard->empty_bytes += 2;
            if (guard->empty_bytes > EMPTY_BYTES_MAX)
                return fail(parser, 400, "too many empty lines");
            at++;
        } else {
            guard->stage = STAGE_LINE;
        }
    }
    *used = at;
    return PARSE_MORE;
}

/* The body */

static enum parse_event feed_body(struct parser *parser, const char *data, size_t len, size_t *used)
{
    struct request *request = parser->request;
    uint64_t left = request->content_length - request->body_bytes;
    size_t take = len < left ? len : (size_t)left;
    *used = take;
    if (!feed_llhttp(parser, data, take))
        return PARSE_FAILED;
    return take == left ? finish_message(parser) : PARSE_MORE;
}

/* The size line is whole.  llhttp gets the size alone: versions differ on extensions. */
static enum parse_event finish_chunk_line(struct parser *parser)
{
    struct parser_guard *guard = &parser->guard;
    struct request *request = parser->request;
    uint64_t max = parser->limits->body_bytes_max ? parser->limits->body_bytes_max : UINT64_MAX;
    if (guard->chunk_left > max - request->body_bytes)
        return fail(parser, 413, "body too large");
    char line[18] = "0\r\n";
    size_t digits = 1;
    for (uint64_t rest = guard->chunk_left >> 4; rest; rest >>= 4)
        digits++;
    for (size_t i = 0; i < digits; i++)
        line[i] = "0123456789abcdef"[guard->chunk_left >> (digits - 1 - i) * 4 & 15];
    line[digits] = '\r';
    line[digits + 1] = '\n';
    if (!feed_llhttp(parser, line, digits + 2))
        return PARSE_FAILED;
    if (guard->chunk_left) {
        guard->stage = STAGE_CHUNK_DATA;
        return PARSE_MORE;
    }
    guard->stage = STAGE_TRAILERS;
    guard->line_off = guard->fed_off = (uint32_t)request->head.len;
    guard->head_max = guard->line_off + LIMIT_TRAILER_BYTES;
    return PARSE_MORE;
}

/* Where the size line goes from STATE with BYTE, or -1. */
static int next_chunk_state(int state, char byte)
{
    bool extension = byte == ';';
    switch (state) {
    case CHUNK_SIZE_FIRST:
        return is(byte, HEX) ? CHUNK_SIZE : -1;
    case CHUNK_SIZE:
        if (is(byte, HEX))
            return CHUNK_SIZE;
        break;
    case CHUNK_SEMICOLON:
        return extension ? CHUNK_NAME_FIRST : is_blank(byte) ? CHUNK_SEMICOLON : -1;
    case CHUNK_NAME_FIRST:
        return is(byte, TOKEN) ? CHUNK_NAME : is_blank(byte) ? CHUNK_NAME_FIRST : -1;
    case CHUNK_NAME:
        if (is(byte, TOKEN))
            return CHUNK_NAME;
        if (is_blank(byte))
            return CHUNK_NAME_END;
        if (byte == '=')
            return CHUNK_VALUE_FIRST;
        break;
    case CHUNK_NAME_END:
        return extension        ? CHUNK_NAME_FIRST
               : byte == '='    ? CHUNK_VALUE_FIRST
               : is_blank(byte) ? CHUNK_NAME_END
                                : -1;
    case CHUNK_VALUE_FIRST:
        return byte == '"'       ? CHUNK_QUOTED
               : is(byte, TOKEN) ? CHUNK_VALUE
               : is_blank(byte)  ? CHUNK_VALUE_FIRST
                                 : -1;
    case CHUNK_VALUE:
        if (is(byte, TOKEN))
            return CHUNK_VALUE;
        break;
    case CHUNK_QUOTED:
        return byte == '"'      ? CHUNK_QUOTED_END
               : byte == '\\'   ? CHUNK_ESCAPE
               : is(byte, TEXT) ? CHUNK_QUOTED
                                : -1;
    case CHUNK_ESCAPE:
        return is(byte, TEXT) ? CHUNK_QUOTED : -1;
    }
    return byte == '\r'     ? CHUNK_LF
           : extension      ? CHUNK_NAME_FIRST
           : is_blank(byte) ? CHUNK_SEMICOLON
                            : -1;
}

static enum parse_event feed_chunk_line(struct parser *parser, const char *data, size_t len,
                                        size_t *used)
{
    struct parser_guard *guard = &parser->guard;
    for (size_t i = 0; i < len; i++) {
        char byte = data[i];
        *used = i + 1;
        if (++guard->chunk_line > LIMIT_CHUNK_LINE_BYTES)
            return fail(parser, 400, "chunk-size line too long");
        if (guard->chunk_state == CHUNK_LF) {
            if (byte != '\n')
                return fail(parser, 400, "bare CR");
            return finish_chunk_line(parser);
        }
        int next = next_chunk_state(guard->chunk_state, byte);
        if (next < 0)
            return fail(parser, 400, "malformed chunk size");
        guard->chunk_state = (uint8_t)next;
        if (next == CHUNK_SIZE) {
            if (guard->chunk_left >> 60)
                return fail(parser, 413, "body too large");
            unsigned digit = byte <= '9' ? (unsigned)(byte - '0')
                                         : (unsigned)(byte | 0x20) - 'a' + 10;
            guard->chunk_left = guard->chunk_left << 4 | digit;
        }
    }
    return PARSE_MORE;
}

static enum parse_event feed_chunk_data(struct parser *parser, const char *data, size_t len,
                                        size_t *used)
{
    struct parser_guard *guard = &parser->guard;
    size_t take = len < guard->chunk_left ? len : (size_t)guard->chunk_left;
    *used = take;
    if (!feed_llhttp(parser, data, take))
        return PARSE_FAILED;
    guard->chunk_left -= take;
    if (!guard->chunk_left)
        guard->stage = STAGE_CHUNK_END;
    return PARSE_MORE;
}

static enum parse_event feed_chunk_end(struct parser *parser, const char *data, size_t len,
                                       size_t *used)
{
    struct parser_guard *guard = &parser->guard;
    for (size_t i = 0; i < len; i++) {
        *used = i + 1;
        if (data[i] != (guard->cr_pending ? '\n' : '\r'))
            return fail(parser, 400, "chunk data not followed by CRLF");
        guard->cr_pending = !guard->cr_pending;
        if (guard->cr_pending)
            continue;
        if (!feed_llhttp(parser, "\r\n", 2))
            return PARSE_FAILED;
        guard->stage = STAGE_CHUNK_LINE;
        guard->chunk_state = CHUNK_SIZE_FIRST;
        guard->chunk_line = 0;
        break;
    }
    return PARSE_MORE;
}

/* The parser */

void parser_init(struct parser *parser, const struct limits *limits, parse_body_sink *sink,
                 void *sink_data)
{
    *parser = (struct parser){.limits = limits, .sink = sink, .sink_data = sink_data};
    parser->guard.stage = STAGE_OVER;
}

void parser_begin(struct parser *parser, struct request *request)
{
    CHECK(!request->head.len && !request->fields_len);
    llhttp_init(&parser->llhttp, HTTP_REQUEST, &settings);
    parser->llhttp.data = parser;
    parser->request = request;
    parser->status = 0;
    parser->reason = NULL;
    parser->guard = (struct parser_guard){0};
    uint32_t max = parser->limits->head_bytes_max;
    parser->guard.head_max = max && max < HEAD_BYTES_HARD ? max : HEAD_BYTES_HARD;
}

bool parser_started(const struct parser *parser)
{
    return parser->guard.stage != STAGE_START && parser->guard.stage != STAGE_OVER;
}

bool parser_unfinished(const struct parser *parser)
{
    uint8_t stage = parser->guard.stage;
    return stage > STAGE_START && stage < STAGE_OVER && stage != STAGE_COMPLETE;
}

enum parse_event parser_feed(struct parser *parser, const char *data, size_t len, size_t *used)
{
    struct parser_guard *guard = &parser->guard;
    *used = 0;
    if (guard->stage == STAGE_COMPLETE)
        return finish_message(parser);
    CHECK(guard->stage != STAGE_OVER);
    while (*used < len && guard->stage < STAGE_OVER) {
        enum parse_event event = PARSE_MORE;
        const char *at = data + *used;
        size_t left = len - *used, taken = 0;
        switch ((enum stage)guard->stage) {
        case STAGE_START:
            event = skip_empty_lines(parser, at, left, &taken);
            break;
        case STAGE_LINE:
        case STAGE_FIELDS:
        case STAGE_TRAILERS:
            event = feed_lines(parser, at, left, &taken);
            break;
        case STAGE_BODY:
            event = feed_body(parser, at, left, &taken);
            break;
        case STAGE_CHUNK_LINE:
            event = feed_chunk_line(parser, at, left, &taken);
            break;
        case STAGE_CHUNK_DATA:
            event = feed_chunk_data(parser, at, left, &taken);
            break;
        case STAGE_CHUNK_END:
            event = feed_chunk_end(parser, at, left, &taken);
            break;
        case STAGE_COMPLETE:
        case STAGE_OVER:
        case STAGE_FAILED:
            break;
        }
        *used += taken;
        if (event != PARSE_MORE)
            return event;
    }
    if (guard->stage == STAGE_FAILED)
        return PARSE_FAILED;
    if (guard->stage == STAGE_OVER)
        return fail(parser, 400, "no message begun");
    return PARSE_MORE;
}
