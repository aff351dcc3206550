/* core-test.c - the pure core: requests, decoding, the parser.
 *
 * Every request below is parsed whole with its last byte in front of an unmapped page, byte by
 * byte, and cut in two at every place; all must give the same outcome.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "parse-outcome.h"

#include "check.h"
#include "decode.h"

#include <sys/mman.h>
#include <unistd.h>

static int passed, failed, group_passed, group_failed;

static void expect_at(bool condition, int line, const char *what)
{
    if (condition) {
        group_passed++;
        return;
    }
    group_failed++;
    fprintf(stderr, "core-test.c:%d: not so: %s\n", line, what);
}
#define EXPECT(condition) expect_at((condition), __LINE__, #condition)

static void end_group(const char *name)
{
    printf("%-10s %4d passed, %d failed\n", name, group_passed, group_failed);
    passed += group_passed;
    failed += group_failed;
    group_passed = group_failed = 0;
}

/* A copy of LEN BYTES that ends at an unmapped page; valid until the next call. */
static char *at_edge(const void *bytes, size_t len)
{
    static char *map;
    static size_t map_len, page;
    if (map)
        munmap(map, map_len);
    page = (size_t)sysconf(_SC_PAGESIZE);
    map_len = (len / page + 2) * page;
    map = mmap(NULL, map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    outcome_must(map != MAP_FAILED, "mmap");
    outcome_must(!mprotect(map + map_len - page, page, PROT_NONE), "mprotect");
    char *copy = map + map_len - page - len;
    if (len)
        memcpy(copy, bytes, len);
    return copy;
}

/* Decoding */

static bool percent_is(const char *in, size_t len, bool plus, const char *out, size_t out_len)
{
    char *edge = at_edge(in, len);
    return decode_percent(edge, len, edge, plus) == out_len && !memcmp(edge, out, out_len);
}
#define PERCENT(in, plus, out) EXPECT(percent_is(in, sizeof(in) - 1, plus, out, sizeof(out) - 1))

static void test_percent(void)
{
    PERCENT("", false, "");
    PERCENT("abc", false, "abc");
    PERCENT("a%20b", false, "a b");
    PERCENT("%41%4a%4A%61", false, "AJJa");
    PERCENT("%00", false, "\0");
    PERCENT("%ff%FF", false, "\xff\xff");
    PERCENT("%2541", false, "%41"); /* once */
    PERCENT("%", false, "%");
    PERCENT("%4", false, "%4");
    PERCENT("a%", false, "a%");
    PERCENT("%%41", false, "%A");
    PERCENT("%4%41", false, "%4A");
    PERCENT("%g1%1g%u0041", false, "%g1%1g%u0041");
    PERCENT("%:1%@1%/1%`1", false, "%:1%@1%/1%`1"); /* the neighbours of digits and letters */
    PERCENT("a+b", false, "a+b");
    PERCENT("a+b%2B+", true, "a b+ ");
    char apart[8];
    EXPECT(decode_percent("x%41+", 5, apart, true) == 3 && !memcmp(apart, "xA ", 3));
    end_group("percent");
}

static enum text_kind kind_of(const char *bytes, size_t len)
{
    return decode_text_kind(at_edge(bytes, len), len);
}
#define KIND(bytes, kind) EXPECT(kind_of(bytes, sizeof(bytes) - 1) == (kind))

static void test_text_kind(void)
{
    KIND("", TEXT_ASCII);
    KIND("a\0\x7f", TEXT_ASCII);
    KIND("0123456789abcdef0", TEXT_ASCII);
    KIND("\xc2\x80", TEXT_UTF8);
    KIND("\xdf\xbf", TEXT_UTF8);
    KIND("\xe0\xa0\x80", TEXT_UTF8);
    KIND("\xed\x9f\xbf\xee\x80\x80", TEXT_UTF8);
    KIND("\xef\xbf\xbf", TEXT_UTF8);
    KIND("\xf0\x90\x80\x80", TEXT_UTF8);
    KIND("\xf4\x8f\xbf\xbf", TEXT_UTF8);
    KIND("0123456\xe2\x82\xac 0123456789 \xc3\xbc", TEXT_UTF8);
    KIND("\x80", TEXT_BYTES);
    KIND("\xbf", TEXT_BYTES);
    KIND("\xc0\x80", TEXT_BYTES); /* overlong */
    KIND("\xc1\xbf", TEXT_BYTES);
    KIND("\xe0\x80\x80", TEXT_BYTES);
    KIND("\xe0\x9f\xbf", TEXT_BYTES);
    KIND("\xf0\x80\x80\x80", TEXT_BYTES);
    KIND("\xf0\x8f\xbf\xbf", TEXT_BYTES);
    KIND("\xed\xa0\x80", TEXT_BYTES); /* surrogates */
    KIND("\xed\xbf\xbf", TEXT_BYTES);
    KIND("\xf4\x90\x80\x80", TEXT_BYTES); /* beyond U+10FFFF */
    KIND("\xf5\x80\x80\x80", TEXT_BYTES);
    KIND("\xff", TEXT_BYTES);
    KIND("\xfe", TEXT_BYTES);
    KIND("\xc3", TEXT_BYTES); /* cut off */
    KIND("\xe2\x82", TEXT_BYTES);
    KIND("\xf0\x9f\x98", TEXT_BYTES);
    KIND("\xc3(", TEXT_BYTES); /* no continuation */
    KIND("\xe2\x82(", TEXT_BYTES);
    KIND("\xe2(\xac", TEXT_BYTES);
    KIND("\xf0\x9f\x98(", TEXT_BYTES);
    KIND("0123456789abcde\xff", TEXT_BYTES);
    KIND("\xc3\xbc\x80", TEXT_BYTES);
    /* Against a decoder that shares nothing with it: all one- to four-byte sequences' first three
     * bytes matter, so try those with a good and a bad last byte. */
    int wrong = 0;
    for (unsigned value = 0; value < 1u << 24; value += 1 + (value >> 20)) {
        unsigned char b[4] = {(unsigned char)(value >> 16), (unsigned char)(value >> 8),
                              (unsigned char)value, 0x80};
        size_t i = 0;
        bool valid = true, ascii = true;
        while (i < 4 && valid) {
            unsigned first = b[i], n = first < 0x80       ? 1
                                       : first >> 5 == 6  ? 2
                                       : first >> 4 == 14 ? 3
                                                          : 4;
            uint32_t code = n == 1 ? first : first & (0x7fu >> n);
            valid = n < 4 || first >> 3 == 30;
            valid = valid && i + n <= 4;
            for (size_t k = 1; valid && k < n; k++) {
                valid = b[i + k] >> 6 == 2;
                code = code << 6 | (b[i + k] & 63u);
            }
            static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
            valid = valid && code >= least[n] && code <= 0x10ffff && !(code >> 11 == 27);
            ascii = ascii && n == 1;
            i += n;
        }
        enum text_kind kind = decode_text_kind((const char *)b, 4);
        wrong += kind != (!valid ? TEXT_BYTES : ascii ? TEXT_ASCII : TEXT_UTF8);
    }
    EXPECT(wrong == 0);
    end_group("utf-8");
}

/* The pairs of TEXT as "name=value|" each. */
static bool pairs_are(const char *text, size_t len, const char *expected)
{
    char out[200];
    size_t used = 0;
    const char *at = at_edge(text, len), *end = at + len;
    struct pair pair;
    while (decode_next_pair(&at, end, &pair))
        used += (size_t)snprintf(out + used, sizeof out - used, "%.*s=%.*s|", (int)pair.name_len,
                                 pair.name, (int)pair.value_len, pair.value);
    out[used] = 0;
    return at == end && !decode_next_pair(&at, end, &pair) && !strcmp(out, expected);
}
#define PAIRS(text, expected) EXPECT(pairs_are(text, sizeof(text) - 1, expected))

static void test_pairs(void)
{
    PAIRS("", "");
    PAIRS("&", "");
    PAIRS("&&&", "");
    PAIRS("a", "a=|");
    PAIRS("a=", "a=|");
    PAIRS("=b", "=b|");
    PAIRS("=", "=|");
    PAIRS("a=b", "a=b|");
    PAIRS("a=b=c", "a=b=c|");
    PAIRS("a=b&c=d", "a=b|c=d|");
    PAIRS("&a=b&&c&", "a=b|c=|");
    PAIRS("a%3Db=%26+x", "a%3Db=%26+x|");
    PAIRS("a;b=1", "a;b=1|");
    struct pair pair;
    const char *none = NULL;
    EXPECT(!decode_next_pair(&none, NULL, &pair));
    end_group("pairs");
}

/* Requests */

static const struct limits usual = {
    .target_bytes_max = 8192,
    .head_bytes_max = 16384,
    .fields_max = 100,
    .body_bytes_max = 1 << 20,
};

/* Parse TEXT, one request, into REQUEST, its body too. */
static enum parse_event parse_one(struct request *request, const char *text)
{
    struct parser parser;
    parser_init(&parser, &usual, NULL, NULL);
    parser_begin(&parser, request);
    size_t len = strlen(text), used, more = 0;
    enum parse_event event = parser_feed(&parser, text, len, &used);
    if (event == PARSE_HEAD)
        event = parser_feed(&parser, text + used, len - used, &more);
    return event == PARSE_DONE && used + more != len ? PARSE_MORE : event;
}

static void test_request(void)
{
    size_t before = buf_live_bytes();
    struct request *request = request_new();
    EXPECT(!request_field(request, "host"));
    EXPECT(parse_one(request, "POST /a?b HTTP/1.1\r\nHost: Example:80\r\nX-One: 1\r\n"
                              "x-oNE: 2\r\nX-Empty:\r\nTransfer-Encoding: chunked\r\n\r\n"
                              "3\r\nabc\r\n0\r\nX-Late: 3\r\n\r\n") == PARSE_DONE);
    EXPECT(request->complete && request->body.len == 3 && !memcmp(request->body.data, "abc", 3));
    EXPECT(request->body_bytes == 3 && request->chunked && !request->content_length);
    EXPECT(request->header_len == 5 && request->fields_len == 6);
    const struct field *field = request_field(request, "x-one");
    EXPECT(field && request_span_is(request, field->value, "1"));
    field = request_field(request, "x-empty");
    EXPECT(field && field->value.len == 0 && request_span_is(request, field->value, ""));
    EXPECT(!request_field(request, "x-late") && !request_field(request, "x-on"));
    EXPECT(!request_field(request, "") && !request_field(request, "x-one1"));
    EXPECT(request_span_is(request, request->fields[5].name, "x-late"));
    EXPECT(request_span_is(request, request->authority, "example:80"));
    EXPECT(!request_span_is(request, request->authority, "example:8"));
    EXPECT(!request_span_is(request, request->authority, "example;80"));

    char *data = request->head.data;
    struct field *fields = request->fields;
    request_reset(request);
    EXPECT(request->head.data == data && request->fields == fields && !request->head.len);
    EXPECT(!request->fields_len && !request->complete && !request->method && !request->body_bytes);
    EXPECT(parse_one(request, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") == PARSE_DONE);
    EXPECT(request->head.data == data && request->fields == fields);
    EXPECT(buf_reserve(&request->body, LIMIT_KEEP_BYTES + 1, SIZE_MAX / 2));
    request_reset(request);
    EXPECT(!request->body.data && request->head.data == data);
    request_free(request);
    request_free(NULL);
    EXPECT(buf_live_bytes() == before);

    EXPECT(!strcmp(method_name(METHOD_GET), "GET") && !strcmp(method_name(METHOD_NONE), ""));
    for (int method = METHOD_NONE + 1; method < METHOD_COUNT; method++) {
        char text[80];
        snprintf(text, sizeof text, "%s / HTTP/1.1\r\nHost: a\r\n\r\n",
                 method_name((enum method)method));
        request = request_new();
        EXPECT(parse_one(request, text) == PARSE_DONE && request->method == (enum method)method);
        request_free(request);
    }
    end_group("request");
}

/* The parser */

/* Run BYTES whole, byte by byte, and cut at every place (every STEP-th); the outcome, if all
 * agree. */
static bool run_all(struct outcome *outcome, const struct limits *limits, const char *bytes,
                    size_t len, size_t step)
{
    struct outcome set = *outcome;
    outcome_run(outcome, limits, at_edge(bytes, len), len, len, false);
    bool same = true;
    for (size_t cut = 0; same && cut < len; cut += cut ? step : 1) {
        struct outcome other = set;
        outcome_run(&other, limits, bytes, len, cut, cut == 0);
        same = outcome_same(outcome, &other);
        outcome_free(&other);
    }
    return same;
}

struct vector {
    int line;
    int status;           /* of the refusal, or 0 */
    const char *expected; /* a part of the outcome, or NULL */
    const char *bytes;
    size_t len;
};

static void test_vectors(const char *name, const struct vector *vectors, size_t count,
                         const struct limits *limits)
{
    for (size_t i = 0; i < count; i++) {
        const struct vector *vector = &vectors[i];
        struct outcome outcome = {0};
        expect_at(run_all(&outcome, limits, vector->bytes, vector->len, 1), vector->line,
                  "the outcome does not depend on cuts");
        bool right = outcome.status == vector->status &&
                     (!vector->expected || strstr(outcome.text.data, vector->expected));
        if (!right)
            fprintf(stderr, "expected %d %s, got\n%s", vector->status,
                    vector->expected ? vector->expected : "", outcome.text.data);
        expect_at(right, vector->line, "the outcome is the expected one");
        outcome_free(&outcome);
    }
    end_group(name);
}

#define OK(expected, bytes)                                                                        \
    {                                                                                              \
        __LINE__, 0, expected, bytes, sizeof(bytes) - 1                                            \
    }
#define NO(status, bytes)                                                                          \
    {                                                                                              \
        __LINE__, status, NULL, bytes, sizeof(bytes) - 1                                           \
    }
#define NO_AS(status, reason, bytes)                                                               \
    {                                                                                              \
        __LINE__, status, reason, bytes, sizeof(bytes) - 1                                         \
    }

#define LINE "GET / HTTP/1.1\r\n"
#define HOST "Host: a\r\n"
#define GET LINE HOST
#define POST "POST / HTTP/1.1\r\n" HOST
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
#define END "0\r\n\r\n"

static const struct vector good[] = {
    OK("end\n", ""),
    OK("end\n", "\r\n\r\n"),
    OK("end\n", "\r"),
    OK("end started unfinished\n", "\r\nG"),
    OK("end started unfinished\n", GET "\r"),
    OK("head GET 1.1 keep length=0\n target[1]=/\n path[1]=/\n query[0]=\n authority[1]=a\n"
       " name[4]=Host\n value[1]=a\ndone at 27\n body[0]=\nend\n",
       GET "\r\n"),
    OK("done at 31\n", "\r\n\r\n" GET "\r\n"),
    OK(" path[4]=/a%2\n query[5]=b?c/d\n", "GET /a%2?b?c/d HTTP/1.1\r\n" HOST "\r\n"),
    OK(" path[1]=/\n query[0]=\n", "GET /? HTTP/1.1\r\n" HOST "\r\n"),
    OK(" path[13]=/[]|^%u00%;=@\n", "GET /[]|^%u00%;=@ HTTP/1.1\r\n" HOST "\r\n"),
    OK(" query[8]=`{}\\|^[]\n", "GET /?`{}\\|^[] HTTP/1.1\r\n" HOST "\r\n"),
    OK(" path[2]=//\n", "GET // HTTP/1.1\r\n" HOST "\r\n"),
    OK("head OPTIONS 1.1 keep length=0\n target[1]=*\n path[1]=*\n query[0]=\n authority[1]=a\n",
       "OPTIONS * HTTP/1.1\r\n" HOST "\r\n"),
    OK(" path[2]=/x\n query[1]=y\n authority[4]=b:80\n",
       "GET http://b:80/x?y HTTP/1.1\r\n" HOST "\r\n"),
    OK(" path[1]=/\n query[0]=\n authority[1]=b\n", "GET HTTP://b HTTP/1.1\r\n" HOST "\r\n"),
    OK(" path[1]=/\n query[1]=q\n authority[5]=[::1]\n",
       "GET hTTps://[::1]?q HTTP/1.1\r\nHost: [::1]\r\n\r\n"),
    OK(" authority[14]=127.0.0.1:8080\n", LINE "Host: 127.0.0.1:8080\r\n\r\n"),
    OK(" authority[10]=localhost:\n", LINE "Host: localhost:\r\n\r\n"),
    OK(" authority[7]=a:65535\n", LINE "hOST:a:65535\r\n\r\n"),
    OK(" authority[6]=%41b_c\n", LINE "Host:\t %41b_c \t\r\n\r\n"),
    OK(" authority[16]=[1:2::3.4.5.6]:1\n", LINE "Host: [1:2::3.4.5.6]:1\r\n\r\n"),
    OK(" authority[19]=[1:2:3:4:5:6:7:8]:1\n", LINE "Host: [1:2:3:4:5:6:7:8]:1\r\n\r\n"),
    OK(" authority[8]=[v1.a:b]\n", LINE "Host: [v1.a:b]\r\n\r\n"),
    OK(" authority[4]=[::]\n", LINE "Host: [::]\r\n\r\n"),
    OK("head GET 1.0 close length=0\n", "GET / HTTP/1.0\r\n\r\n"),
    OK("head GET 1.0 keep length=0\n", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"),
    OK("head GET 1.0 close length=0\n",
       "GET / HTTP/1.0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n"),
    OK("head GET 1.1 keep length=0\n", "GET / HTTP/1.2\r\n" HOST "\r\n"),
    OK("head GET 1.1 keep length=0\n", "GET / HTTP/1.9\r\n" HOST "X: y \r\n\r\n"),
    OK("head GET 1.1 close length=0\n", GET "Connection: x,\t CLOSE\t,\r\n\r\n"),
    OK("head GET 1.1 close length=0\n", GET "Connection: close, keep-alive\r\n\r\n"),
    OK("head GET 1.1 keep length=0\n", GET "Connection: \"close\", closed, xclose\r\n\r\n"),
    OK("head GET 1.1 keep upgrade length=0\n",
       GET "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    OK("head GET 1.1 keep length=0\n", GET "Upgrade: websocket\r\n\r\n"),
    OK("head GET 1.1 keep length=0\n", GET "Connection: upgrade\r\nUpgrade:\r\n\r\n"),
    OK("head GET 1.0 close length=0\n",
       "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
    OK("head GET 1.1 keep upgrade length=3\n",
       GET "Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 3\r\n\r\nabc" GET "\r\n"),
    OK("done at 63\n body[0]=\nhead GET 1.1 keep length=0\n",
       GET "Connection: upgrade\r\nUpgrade: abcd\r\n\r\n" GET "\r\n"),
    OK(" name[1]=X\n value[6]=b  c\td\n", GET "X: \tb  c\td\t \r\n\r\n"),
    OK(" name[1]=X\n value[0]=\n name[1]=Y\n value[0]=\n name[1]=Z\n value[1]=z\n",
       GET "X:\r\nY: \t \r\nZ:z\r\n\r\n"),
    OK(" name[15]=!#$%&'*+-.^_`|~\n value[3]=\xe9\xff\"\n",
       GET "!#$%&'*+-.^_`|~: \xe9\xff\"\r\n\r\n"),
    OK("length=5\n", POST "CONTENT-length: \t5 \t\r\n\r\nhello"),
    OK(" body[5]=hello\nend\n", POST "Content-Length: 5\r\n\r\nhello"),
    OK(" body[0]=\nend\n", POST "Content-Length: 0\r\n\r\n"),
    OK(" body[1]=x\nend\n", POST "Content-Length: 00000000000000000000001\r\n\r\nx"),
    OK("end started unfinished\n", POST "Content-Length: 5\r\n\r\nhell"),
    OK("keep continue length=5\n", POST "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\nhello"),
    OK("keep chunked continue length=0\n",
       POST "Expect: 100-continue, ,\r\nTransfer-Encoding: Chunked \r\n\r\n" END),
    OK("keep length=0\n", POST "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n"),
    OK("1.0 close length=1\n",
       "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx"),
    OK("keep length=0\n", GET "Expect:\r\n\r\n"),
    OK(" body[5]=hello\nend\n", CHUNKED "5\r\nhello\r\n" END),
    OK(" body[26]=0123456789abcdefghijklmnop\nend\n",
       CHUNKED "A\r\n0123456789\r\n0010\r\nabcdefghijklmnop\r\n000" END),
    OK(" body[2]=\r\n\nend\n", CHUNKED "2\r\n\r\n\r\n" END),
    OK(" body[1]=x\nend\n", CHUNKED "1;a;b=c;d=\"e;\\\"\xff\t\"\r\nx\r\n" END),
    OK(" body[1]=x\nend\n", CHUNKED "1 ;\ta = b\t; c = \"d\" ;e\r\nx\r\n0;z\r\n\r\n"),
    OK(" body[1]=x\n name[3]=X-T\n value[1]=v\n name[1]=Y\n value[0]=\nend\n",
       CHUNKED "1\r\nx\r\n0\r\nX-T: v \r\nY:\r\n\r\n"),
    OK(" body[0]=\n name[10]=Connection\n value[5]=close\nhead GET 1.1 keep length=0\n",
       CHUNKED "0\r\nConnection: close\r\n\r\n" GET "\r\n"),
    OK("end started unfinished\n", CHUNKED "1\r\nx\r\n0\r\n"),
    OK("head GET 1.1 keep length=0\n target[2]=/2\n",
       POST "Content-Length: 3\r\n\r\nabc\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n"),
    OK("end started unfinished\n", "GET / HT"),
};

static const struct vector bad[] = {
    /* the request line */
    NO_AS(400, "bare LF", "GET / HTTP/1.1\n" HOST "\r\n"),
    NO_AS(400, "bare LF", "\nGET / HTTP/1.1\r\n" HOST "\r\n"),
    NO_AS(400, "bare CR", "\r\rGET / HTTP/1.1\r\n"),
    NO_AS(400, "bare CR", "GET / HTTP/1.1\r" HOST "\r\n"),
    NO_AS(400, "bare CR", "GET /\r HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET / HTTP/1.1\0\r\n" HOST "\r\n"),
    NO(400, "\x16\x03\x01\0/\x01"),
    NO(400, "\0"),
    NO(400, " GET / HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "\tGET / HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET\r\n"),
    NO(400, "GET \r\n"),
    NO(400, "GET /\r\n" HOST "\r\n"),
    NO(400, "GET / \r\n" HOST "\r\n"),
    NO(400, "GET  / HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /  HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET / HTTP/1.1 \r\n" HOST "\r\n"),
    NO(400, "GET / HTTP/1.1 x\r\n" HOST "\r\n"),
    NO(400, "GET /a b HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET\t/ HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "G:T / HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "G\xc9T / HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET / http/1.1\r\n" HOST "\r\n"),
    NO(400, "GET / HTTP/11\r\n" HOST "\r\n"),
    NO(400, "GET / HTTP/1.10\r\n" HOST "\r\n"),
    NO(400, "GET / HTTP/01.1\r\n" HOST "\r\n"),
    NO(400, "GET / HTTP/1,1\r\n" HOST "\r\n"),
    NO(400, "GET / HTTP/.1\r\n" HOST "\r\n"),
    NO(400, "GET / HTTP/1.x\r\n" HOST "\r\n"),
    NO(400, "GET / HTTPS/1.1\r\n" HOST "\r\n"),
    NO(505, "GET / HTTP/0.9\r\n" HOST "\r\n"),
    NO(505, "GET / HTTP/2.0\r\n" HOST "\r\n"),
    NO(505, "GET / HTTP/3.1\r\n" HOST "\r\n"),
    NO(505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    NO(501, "get / HTTP/1.1\r\n" HOST "\r\n"),
    NO(501, "GETX / HTTP/1.1\r\n" HOST "\r\n"),
    NO(501, "GE / HTTP/1.1\r\n" HOST "\r\n"),
    NO(501, "X!y / HTTP/1.1\r\n" HOST "\r\n"),
    NO(501, "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n"),
    NO(501, "M-SEARCH * HTTP/1.1\r\n" HOST "\r\n"),
    NO(501, "DESCRIBE / HTTP/1.1\r\n" HOST "\r\n"),
    /* the target */
    NO(400, "GET hello HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET * HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "OPTIONS *x HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET ?a HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET a:80 HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /a#b HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /?a#b HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /a\x7f HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /\x01 HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /a\\b HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /a\"b HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /<a> HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /{a} HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /?<a> HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /\xc3\xbc HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET /?\xc3\xbc HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET http:/a HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET http:// HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET http:///x HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET http://?x HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET http://u@a/ HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET http://b\\@a/ HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET http://a#b HTTP/1.1\r\n" HOST "\r\n"),
    NO(400, "GET http://a:x/ HTTP/1.1\r\n" HOST "\r\n"),
    NO_AS(400, "no Host", "GET http://a/ HTTP/1.1\r\n\r\n"),
    NO_AS(400, "malformed Host", "GET http://a/ HTTP/1.1\r\nHost: b c\r\n\r\n"),
    /* Host */
    NO_AS(400, "no Host", LINE "\r\n"),
    NO_AS(400, "more than one Host", GET HOST "\r\n"),
    NO_AS(400, "more than one Host", "GET / HTTP/1.0\r\n" HOST "host: b\r\n\r\n"),
    NO_AS(400, "malformed Host", "GET / HTTP/1.0\r\nHost: a/b\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host:\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: :80\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: u@a\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: a\\\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: a b\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: http://a\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: a%4\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: a%\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: a%gg\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: a:65536\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: a:99999999999999999999\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: a:+1\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: a:80:80\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: \xc3\xbc.example\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: ::1\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: []\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [::1\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [::1]x\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [1:2:3:4:5:6:7]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [1:2:3:4:5:6:7:8:9]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [1:2:3:4::5:6:7:8]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [1::2::3]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [:1::2]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [::1:]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [:::]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [12345::]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [::1.2.3]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [::1.2.3.256]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [::1.2.3.04]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [1:2:3:4:5:6:7:1.2.3.4]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [::1%25lo]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [v.a]\r\n\r\n"),
    NO_AS(400, "malformed Host", LINE "Host: [v1.]\r\n\r\n"),
    /* field syntax */
    NO_AS(400, "blank in", GET "X : y\r\n\r\n"),
    NO_AS(400, "blank in", GET "X\t: y\r\n\r\n"),
    NO_AS(400, "blank in", GET "Content Length: 4\r\n\r\n"),
    NO_AS(400, "folded", GET " X: y\r\n\r\n"),
    NO_AS(400, "folded", GET "X: y\r\n\tz\r\n\r\n"),
    NO_AS(400, "folded", GET "X: y\r\n \r\n\r\n"),
    NO_AS(400, "folded", LINE " " HOST "\r\n"),
    NO_AS(400, "malformed field name", GET ":\r\n\r\n"),
    NO_AS(400, "malformed field name", GET ": y\r\n\r\n"),
    NO_AS(400, "malformed field name", GET "X\r\n\r\n"),
    NO_AS(400, "malformed field name", GET "X;A: y\r\n\r\n"),
    NO_AS(400, "malformed field name", GET "X\xad: y\r\n\r\n"),
    NO_AS(400, "malformed field name", GET "(X): y\r\n\r\n"),
    NO_AS(400, "control byte", GET "X: a\0b\r\n\r\n"),
    NO_AS(400, "control byte", GET "X: a\x7f\r\n\r\n"),
    NO_AS(400, "control byte", GET "X: a\x0b\r\n\r\n"),
    NO_AS(400, "control byte", GET "X\x01: a\r\n\r\n"),
    NO_AS(400, "control byte", GET "X: \t\t\t\t\t\t\t\t\t\t\x1f\r\n\r\n"),
    NO_AS(400, "bare CR", GET "X: a\rb\r\n\r\n"),
    NO_AS(400, "bare CR", GET "\r\rX: a\r\n\r\n"),
    NO_AS(400, "bare CR", GET "X: a\r\r\n\r\n"),
    NO_AS(400, "bare LF", GET "X: a\n\r\n"),
    NO_AS(400, "bare LF", GET "X: a\r\n\n"),
    /* the first error of two is the one told */
    NO_AS(400, "malformed field name", GET "X;: a\r\nY: \0"),
    NO_AS(505, NULL, "GET / HTTP/2.0\r\nX: \0"),
    /* framing */
    NO_AS(400, "more than one Content-Length",
          POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    NO_AS(400, "more than one Content-Length",
          POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length: 5, 5\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length:\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length: +5\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length: -5\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length: 0x5\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length: 5 5\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length: 5.0\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length: 5;\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length: \xb2\r\n\r\nhello"),
    NO_AS(400, "malformed Content-Length", POST "Content-Length: 99999999999999999999x\r\n\r\n"),
    NO(413, POST "Content-Length: 18446744073709551621\r\n\r\nhello"),
    NO(413, POST "Content-Length: 18446744073709551615\r\n\r\nhello"),
    NO(413, POST "Content-Length: 1048577\r\n\r\nhello"),
    NO_AS(400, "with Transfer-Encoding",
          POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" END),
    NO_AS(400, "with Transfer-Encoding",
          POST "Transfer-Encoding: chunked \r\nContent-Length: 5\r\n\r\n" END),
    NO_AS(400, "in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" END),
    NO_AS(400, "not the last", POST "Transfer-Encoding: gzip\r\n\r\n" END),
    NO_AS(400, "not the last", POST "Transfer-Encoding: identity\r\n\r\n" END),
    NO_AS(400, "not the last", POST "Transfer-Encoding: xchunked\r\n\r\n" END),
    NO_AS(400, "not the last", POST "Transfer-Encoding: 'chunked'\r\n\r\n" END),
    NO_AS(400, "not the last", POST "Transfer-Encoding: chunked, identity\r\n\r\n" END),
    NO_AS(400, "not the last", POST "Transfer-Encoding: chunked, chunked\r\n\r\n" END),
    NO_AS(400, "not the last",
          POST "Transfer-Encoding: chunked \r\nTransfer-Encoding: gzip\r\n\r\n" END),
    NO_AS(400, "malformed Transfer", POST "Transfer-Encoding:\r\n\r\n" END),
    NO_AS(400, "malformed Transfer", POST "Transfer-Encoding: chunked,\r\n\r\n" END),
    NO_AS(400, "malformed Transfer", POST "Transfer-Encoding: ,chunked\r\n\r\n" END),
    NO_AS(400, "malformed Transfer", POST "Transfer-Encoding: chunked;q=1\r\n\r\n" END),
    NO_AS(400, "malformed Transfer", POST "Transfer-Encoding: \"chunked\"\r\n\r\n" END),
    NO_AS(400, "malformed Transfer",
          POST "Transfer-Encoding: \xa0"
               "chunked\r\n\r\n" END),
    NO_AS(400, "malformed Transfer", POST "Transfer-Encoding: chun ked\r\n\r\n" END),
    NO(501, POST "Transfer-Encoding: gzip, chunked\r\n\r\n" END),
    NO(501, POST "Transfer-Encoding: gzip \r\nTransfer-Encoding: chunked\r\n\r\n" END),
    NO(417, POST "Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello"),
    NO(417, POST "Expect: 100-continue=yes\r\nContent-Length: 5\r\n\r\nhello"),
    NO(417, POST "Expect: 100-continue, x\r\nContent-Length: 5\r\n\r\nhello"),
    /* chunks */
    NO(400, CHUNKED "\r\n"),
    NO(400, CHUNKED "+5\r\nhello\r\n" END),
    NO(400, CHUNKED "-5\r\nhello\r\n" END),
    NO(400, CHUNKED "0x5\r\nhello\r\n" END),
    NO(400, CHUNKED "5,\r\nhello\r\n" END),
    NO(400, CHUNKED "0_5\r\nhello\r\n" END),
    NO(400, CHUNKED "g\r\nhello\r\n" END),
    NO(400, CHUNKED " 5\r\nhello\r\n" END),
    NO(400, CHUNKED "5 \r\nhello\r\n" END),
    NO(400, CHUNKED "5 5\r\nhello\r\n" END),
    NO(400, CHUNKED "5\nhello\r\n" END),
    NO(400, CHUNKED "5\rhello\r\n" END),
    NO(400, CHUNKED "5\r\r\nhello\r\n" END),
    NO(400, CHUNKED "5;\r\nhello\r\n" END),
    NO(400, CHUNKED "5;a=\r\nhello\r\n" END),
    NO(400, CHUNKED "5;a=b \r\nhello\r\n" END),
    NO(400, CHUNKED "5;a b\r\nhello\r\n" END),
    NO(400, CHUNKED "5;a@\r\nhello\r\n" END),
    NO(400, CHUNKED "5;a=\"b\r\nhello\r\n" END),
    NO(400, CHUNKED "5;a=\"b\"c\r\nhello\r\n" END),
    NO(400, CHUNKED "5;a=\"\\\r\"\r\nhello\r\n" END),
    NO(400, CHUNKED "5;a\n\r\nhello\r\n" END),
    NO(400, CHUNKED "5;a\rb\r\nhello\r\n" END),
    NO(400, CHUNKED "5;a\0\r\nhello\r\n" END),
    NO(413, CHUNKED "fffffffffffffffff5\r\nhello\r\n" END),
    NO(413, CHUNKED "100000005\r\nhello\r\n" END),
    NO(413, CHUNKED "ffffffffffffffff\r\nhello\r\n" END),
    NO(413, CHUNKED "5\r\nhello\r\nffffffffffffffff\r\nhello\r\n" END),
    NO_AS(400, "not followed by CRLF", CHUNKED "5\r\nhelloXX\r\n" END),
    NO_AS(400, "not followed by CRLF", CHUNKED "5\r\nhello\n" END),
    NO_AS(400, "not followed by CRLF", CHUNKED "5\r\nhello\r\r\n" END),
    NO_AS(400, "not followed by CRLF", CHUNKED "4\r\nhello\r\n" END),
    /* trailers */
    NO_AS(400, "blank in", CHUNKED "0\r\nX : y\r\n\r\n"),
    NO_AS(400, "folded", CHUNKED "0\r\nX: y\r\n z\r\n\r\n"),
    NO_AS(400, "malformed field name", CHUNKED "0\r\nX\r\n\r\n"),
    NO_AS(400, "control byte", CHUNKED "0\r\nX: \0\r\n\r\n"),
    NO_AS(400, "bare LF", CHUNKED "0\r\nX: y\n\r\n"),
    NO_AS(400, "bare LF", CHUNKED "0\r\n\n"),
    NO_AS(400, "bare CR", CHUNKED "0\r\n\rX"),
    NO_AS(400, "trailers", CHUNKED "0\r\nContent-Length: 5\r\n\r\n"),
    NO_AS(400, "trailers", CHUNKED "0\r\ntransfer-encoding: gzip\r\n\r\n"),
    NO_AS(400, "trailers", CHUNKED "0\r\nHOST: a\r\n\r\n"),
};

/* Close limits. */
static const struct limits tight = {
    .target_bytes_max = 8,
    .head_bytes_max = 60,
    .fields_max = 3,
    .body_bytes_max = 5,
};

#define X10 "xxxxxxxxxx"

static const struct vector limited[] = {
    OK(" target[8]=/1234567\n", "GET /1234567 HTTP/1.1\r\n" HOST "\r\n"),
    NO(414, "GET /12345678 HTTP/1.1\r\n" HOST "\r\n"),
    NO(414, "GET /12345678"), /* as soon as known */
    OK("end started unfinished\n", "GET /1234567"),
    NO_AS(400, "control byte",
          "GET /1234567\x01"
          "8"),
    NO(414, "GET /12345678\x01"),
    OK("done at 60\n", GET "X: " X10 X10 "12345678\r\n\r\n"),
    NO(431, GET "X: " X10 X10 "123456789\r\n\r\n"),
    NO(431, X10 X10 X10 X10 X10 X10 "x"),
    OK("end started unfinished\n", X10 X10 X10 X10 X10 X10),
    NO(431, GET "X: " X10 X10 X10 "123456\r\r"),
    OK("head GET 1.1 keep length=0\n", GET "A:\r\nB:\r\n\r\n"),
    NO(431, GET "A:\r\nB:\r\nC:\r\n"),
    OK(" body[5]=hello\n", POST "Content-Length: 5\r\n\r\nhello"),
    NO_AS(413, "failed", POST "Content-Length: 6\r\n\r\n"),
    OK(" body[5]=hello\n", CHUNKED "2\r\nhe\r\n3\r\nllo\r\n" END),
    NO_AS(413, "failed", CHUNKED "2\r\nhe\r\n4\r\n"),
    OK(" name[1]=T\n", CHUNKED "0\r\nT:\r\n\r\n"),
    NO(431, CHUNKED "0\r\nT:\r\nU:\r\n"),
};

/* Sizes that want building. */
static void test_sizes(void)
{
    static const struct limits none = {0};
    struct buf text = {0};
    const struct {
        const char *before, *fill;
        size_t times;
        const char *after;
        int status, line;
        const struct limits *limits;
        size_t step;
    } rows[] = {
        {"", "\r\n", 32, GET "\r\n", 0, __LINE__, &usual, 1},
        {"", "\r\n", 33, GET "\r\n", 400, __LINE__, &usual, 1},
        {"GET /", "x", 8191, " HTTP/1.1\r\n" HOST "\r\n", 0, __LINE__, &usual, 997},
        {"GET /", "x", 8192, " HTTP/1.1\r\n" HOST "\r\n", 414, __LINE__, &usual, 997},
        {"GET /", "x", 400000, " HTTP/1.1\r\n" HOST "\r\n", 0, __LINE__, &none, 99991},
        {GET, "X-A: b\r\n", 99, "\r\n", 0, __LINE__, &usual, 7},
        {GET, "X-A: b\r\n", 100, "\r\n", 431, __LINE__, &usual, 7},
        {GET, "X-A: b \r\n", 50000, "\r\n", 0, __LINE__, &none, 99991},
        {GET "X: ", "y", 16384 - 27 - 5, "\r\n\r\n", 0, __LINE__, &usual, 997},
        {GET "X: ", "y", 16384 - 27 - 4, "\r\n\r\n", 431, __LINE__, &usual, 997},
        {CHUNKED "1;", "x", 256 - 4, "\r\ny\r\n" END, 0, __LINE__, &usual, 1},
        {CHUNKED "1;", "x", 256 - 3, "\r\ny\r\n" END, 400, __LINE__, &usual, 1},
        {CHUNKED "", "0", 253, "1\r\ny\r\n" END, 0, __LINE__, &usual, 1},
        {CHUNKED "0\r\nX: ", "y", 8192 - 7, "\r\n\r\n", 0, __LINE__, &usual, 997},
        {CHUNKED "0\r\nX: ", "y", 8192 - 6, "\r\n\r\n", 431, __LINE__, &usual, 997},
        {CHUNKED, "1;x\r\ny\r\n", 3000, END, 0, __LINE__, &usual, 97},
        {CHUNKED,
         "100\r\n" X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10
             X10 X10 X10 X10 X10 "xxxxxx\r\n",
         4096, END, 0, __LINE__, &usual, 99991},
        {CHUNKED,
         "100\r\n" X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10
             X10 X10 X10 X10 X10 "xxxxxx\r\n",
         4097, END, 413, __LINE__, &usual, 99991},
        {POST "Content-Length: 1048576\r\n\r\n", "z", 1048576, "", 0, __LINE__, &usual, 99991},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        text.len = 0;
        bool built = buf_append(&text, rows[i].before, strlen(rows[i].before), SIZE_MAX / 2);
        for (size_t k = 0; built && k < rows[i].times; k++)
            built = buf_append(&text, rows[i].fill, strlen(rows[i].fill), SIZE_MAX / 2);
        built = built && buf_append(&text, rows[i].after, strlen(rows[i].after), SIZE_MAX / 2);
        outcome_must(built, "out of memory");
        struct outcome outcome = {0};
        expect_at(run_all(&outcome, rows[i].limits, text.data, text.len, rows[i].step),
                  rows[i].line, "the outcome does not depend on cuts");
        expect_at(outcome.status == rows[i].status && outcome.requests == !rows[i].status &&
                      (rows[i].status || !outcome.started),
                  rows[i].line, "the outcome is the expected one");
        if (outcome.status != rows[i].status)
            fprintf(stderr, "expected %d, got %d %s\n", rows[i].status, outcome.status,
                    outcome.reason ? outcome.reason : "");
        outcome_free(&outcome);
    }
    buf_free(&text);
    end_group("sizes");
}

static int refuse(void *data, const char *bytes, size_t len)
{
    (void)bytes;
    *(size_t *)data += len;
    return 507;
}

static void test_events(void)
{
    /* PARSE_HEAD leaves the body's bytes alone; the event after it needs none. */
    struct parser parser;
    struct request *request = request_new();
    struct buf body = {0};
    size_t used;
    parser_init(&parser, &usual, NULL, NULL);
    EXPECT(!parser_started(&parser) && !parser_unfinished(&parser));
    parser_begin(&parser, request);
    EXPECT(!parser_started(&parser) && !parser_unfinished(&parser));
    EXPECT(parser_feed(&parser, "", 0, &used) == PARSE_MORE && used == 0);
    EXPECT(parser_feed(&parser, "\r\n", 2, &used) == PARSE_MORE && used == 2);
    EXPECT(!parser_started(&parser) && !parser_unfinished(&parser));
    EXPECT(parser_feed(&parser, "G", 1, &used) == PARSE_MORE && used == 1);
    EXPECT(parser_started(&parser) && parser_unfinished(&parser));
    const char rest[] = "ET / HTTP/1.1\r\n" HOST "\r\nGET";
    EXPECT(parser_feed(&parser, rest, sizeof rest - 1, &used) == PARSE_HEAD);
    EXPECT(used == sizeof rest - 4 && parser_started(&parser) && !parser_unfinished(&parser));
    EXPECT(!request->complete);
    EXPECT(parser_feed(&parser, NULL, 0, &used) == PARSE_DONE && used == 0);
    EXPECT(request->complete && !parser_started(&parser) && !parser_unfinished(&parser));
    EXPECT(request->head.len == 27 && !memcmp(request->head.data, GET "\r\n", 27));

    request_reset(request);
    parser_begin(&parser, request);
    const char post[] = POST "Content-Length: 3\r\n\r\nabcd";
    EXPECT(parser_feed(&parser, post, sizeof post - 1, &used) == PARSE_HEAD);
    EXPECT(used == sizeof post - 5 && request->content_length == 3 && !request->body_bytes);
    EXPECT(parser_feed(&parser, NULL, 0, &used) == PARSE_MORE && used == 0);
    EXPECT(parser_feed(&parser, "ab", 2, &used) == PARSE_MORE && request->body_bytes == 2);
    EXPECT(parser_unfinished(&parser));
    EXPECT(parser_feed(&parser, "cd", 2, &used) == PARSE_DONE && used == 1);
    EXPECT(request->body.len == 3 && !memcmp(request->body.data, "abc", 3));

    /* The sink's refusal is the parser's, and it is not called again. */
    size_t refused = 0;
    parser_init(&parser, &usual, refuse, &refused);
    for (int chunked = 0; chunked < 2; chunked++) {
        const char *text = chunked ? CHUNKED "2\r\nab\r\n" END : POST "Content-Length: 2\r\n\r\nab";
        size_t len = strlen(text), more;
        refused = 0;
        request_reset(request);
        parser_begin(&parser, request);
        EXPECT(parser_feed(&parser, text, len, &used) == PARSE_HEAD);
        EXPECT(parser_feed(&parser, text + used, len - used, &more) == PARSE_FAILED);
        EXPECT(parser.status == 507 && parser.reason && refused == 2);
        EXPECT(parser_feed(&parser, "x", 1, &more) == PARSE_FAILED && more == 0 && refused == 2);
        EXPECT(!parser_unfinished(&parser));
    }
    /* And the next message starts afresh. */
    request_reset(request);
    parser_begin(&parser, request);
    EXPECT(!parser.status && !parser.reason);
    EXPECT(parser_feed(&parser, GET "\r\n", 27, &used) == PARSE_HEAD && used == 27);

    struct outcome outcome = {.sink_max = 3, .sink_status = 413};
    EXPECT(run_all(&outcome, &usual, CHUNKED "2\r\nab\r\n2\r\ncd\r\n" END,
                   strlen(CHUNKED "2\r\nab\r\n2\r\ncd\r\n" END), 1));
    EXPECT(outcome.status == 413);
    outcome_free(&outcome);
    request_free(request);
    buf_free(&body);
    end_group("events");
}

/* No byte but a token's may be in a name, and no other control than HTAB in a value. */
static void test_every_byte(void)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[80];
        const char *tokens = "!#$%&'*+-.^_`|~";
        bool alnum = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                     (byte >= 'A' && byte <= 'Z');
        bool token = alnum || (byte && strchr(tokens, byte));
        for (int place = 0; place < 3; place++) {
            int len = snprintf(text, sizeof text, "%s",
                               place == 0   ? GET "X?Y: z\r\n\r\n"
                               : place == 1 ? GET "XY: z?z\r\n\r\n"
                                            : GET "12345678?1234567: z\r\n\r\n");
            *strchr(text, '?') = (char)byte;
            struct outcome outcome = {0};
            EXPECT(run_all(&outcome, &usual, text, (size_t)len, 1));
            bool good_value = byte == '\t' || (byte >= ' ' && byte != 127);
            bool good_byte = place == 1 ? good_value : token || byte == ':';
            EXPECT(outcome.status == (good_byte ? 0 : 400));
            outcome_free(&outcome);
        }
    }
    end_group("bytes");
}

int main(void)
{
    size_t before = buf_live_bytes();
    test_percent();
    test_text_kind();
    test_pairs();
    test_request();
    test_vectors("accepted", good, ARRAY_LEN(good), &usual);
    test_vectors("refused", bad, ARRAY_LEN(bad), &usual);
    test_vectors("limits", limited, ARRAY_LEN(limited), &tight);
    test_sizes();
    test_events();
    test_every_byte();
    EXPECT(buf_live_bytes() == before);
    end_group("leaks");
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
