/* frame-test.c - WebSocket frames and the compression of their messages.
 *
 * Every input below comes whole, byte by byte, and cut in two at every place; all must have the
 * outcome that stands beside it.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "frame-outcome.h"

#include "deflate.h"

static int passed, failed;

static void expect_at(bool condition, int line, const char *what)
{
    if (condition) {
        passed++;
        return;
    }
    failed++;
    fprintf(stderr, "frame-test.c:%d: not so: %s\n", line, what);
}
#define EXPECT(condition) expect_at((condition), __LINE__, #condition)

/* ---- inputs ---- */

/* Append a masked frame: FIRST is the byte with FIN and the opcode. */
static void add(struct buf *in, int first, const char *payload, size_t len)
{
    static const char mask[] = {0x37, (char)0xfa, 0x21, 0x3d};
    char header[FRAME_HEADER_BYTES_MAX];
    size_t header_len = frame_header(header, 0, false, len);
    header[0] = (char)first;
    header[1] = (char)(header[1] | 0x80);
    outcome_must(buf_append(in, header, header_len, SIZE_MAX) &&
                     buf_append(in, mask, sizeof mask, SIZE_MAX) &&
                     buf_reserve(in, len + 1, SIZE_MAX),
                 "memory");
    for (size_t i = 0; i < len; i++)
        in->data[in->len++] = (char)(payload[i] ^ mask[i % 4]);
}

static bool same(const struct buf *got, const char *wanted)
{
    if (got->len == strlen(wanted) && (!got->len || memcmp(got->data, wanted, got->len) == 0))
        return true;
    fprintf(stderr, "wanted %s\ngot    %.*s\n", wanted, (int)got->len, got->data);
    return false;
}

/* Takes IN: is OUTCOME what it says, whole, in single bytes and at every cut? */
static void check(int line, const char *name, unsigned settings, struct buf *in,
                  const char *outcome)
{
    bool good = true;
    for (size_t cut = 0; good && cut <= in->len; cut++) {
        struct buf out = {0};
        outcome_of(settings, in->data, in->len, cut, cut == 0, &out);
        good = same(&out, outcome);
        buf_free(&out);
    }
    expect_at(good, line, name);
    buf_free(in);
}
#define CHECK_FRAMES(name, settings, in, outcome) check(__LINE__, name, settings, in, outcome)

#define ADD(in, first, payload) add(in, first, payload, sizeof(payload) - 1)

static void test_messages(void)
{
    struct buf in = {0};
    ADD(&in, 0x81, "abc");
    ADD(&in, 0x82, "\xff");
    ADD(&in, 0x81, "");
    CHECK_FRAMES("three messages", 0, &in, "message 1 3:abc\nmessage 2 1:\xff\nmessage 1 0:\n");
    ADD(&in, 0x01, "a\xce");
    ADD(&in, 0x89, "p");
    ADD(&in, 0x00, "");
    ADD(&in, 0x80, "\xba");
    CHECK_FRAMES("fragments, and a ping between", 0, &in, "ping 0 1:p\nmessage 1 3:a\xce\xba\n");
    ADD(&in, 0x8a, "x");
    ADD(&in, 0x88,
        "\x03\xe8"
        "bye");
    ADD(&in, 0x81, "never read");
    CHECK_FRAMES("nothing behind a close frame", 0, &in, "pong 0 1:x\nclose 1000 3:bye\n");
    ADD(&in, 0x88, "");
    CHECK_FRAMES("a close frame without code", 0, &in, "close 1005 0:\n");
}

static void test_mistakes(void)
{
    struct buf in = {0};
    char big[OUTCOME_MESSAGE_BYTES_MAX + 1];
    memset(big, 'x', sizeof big);
    ADD(&in, 0x81, "a");
    buf_append(&in,
               "\x81\x01"
               "b",
               3, SIZE_MAX);
    CHECK_FRAMES("masked, then not", 0, &in,
                 "message 1 1:a\nfailed 1002 20:a frame without mask\n");
    ADD(&in, 0x81, "a\xe0\x80");
    CHECK_FRAMES("an overlong form", 0, &in, "failed 1007 22:text that is not UTF-8\n");
    ADD(&in, 0x81, "a\xe0\xa0");
    CHECK_FRAMES("half a character", 0, &in, "failed 1007 33:text that ends inside a character\n");
    ADD(&in, 0x81, "a");
    CHECK_FRAMES("text where none is taken", 4, &in,
                 "failed 1003 35:messages of this type are not taken\n");
    add(&in, 0x82, big, sizeof big);
    CHECK_FRAMES("too big", 0, &in, "failed 1009 22:the message is too big\n");
    add(&in, 0x02, big, 600);
    add(&in, 0x80, big, 401);
    CHECK_FRAMES("too big in fragments", 0, &in, "failed 1009 22:the message is too big\n");
    buf_append(&in, "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff", 10, SIZE_MAX);
    CHECK_FRAMES("the largest length there is", 2, &in, "failed 1002 17:a malformed frame\n");
    buf_append(&in,
               "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff"
               "abcdx",
               15, SIZE_MAX);
    CHECK_FRAMES("a length that is allowed, and never comes", 2, &in, "");
    ADD(&in, 0xc1, "a");
    CHECK_FRAMES("compressed without agreement", 0, &in, "failed 1002 14:a reserved bit\n");
    ADD(&in, 0x88, "\x03\xed");
    CHECK_FRAMES("close with 1005", 0, &in, "failed 1002 34:a close code that must not be sent\n");
}

static void test_codes(void)
{
    static const struct {
        int from, to;
    } valid[] = {{1000, 1003}, {1007, 1014}, {3000, 4999}};
    for (int code = 0; code <= 65535; code++) {
        bool wanted = false;
        for (size_t i = 0; i < 3; i++)
            wanted = wanted || (code >= valid[i].from && code <= valid[i].to);
        if (frame_code_valid(code) != wanted)
            EXPECT(!"a close code taken for another kind");
    }
    EXPECT(frame_code_valid(CODE_NORMAL));
}

/* ---- UTF-8, against a slow and plain reading of RFC 3629 ---- */

static bool is_utf8(const unsigned char *bytes, size_t len)
{
    while (len) {
        unsigned n = bytes[0] < 0x80 ? 1 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
        unsigned long c = bytes[0];
        if (bytes[0] >= 0x80)
            c &= n == 2 ? 0x1f : n == 3 ? 0x0f : 0x07;
        if ((bytes[0] >= 0x80 && bytes[0] < 0xc0) || bytes[0] >= 0xf8 || n > len)
            return false;
        for (unsigned i = 1; i < n; i++) {
            if ((bytes[i] & 0xc0) != 0x80)
                return false;
            c = c << 6 | (bytes[i] & 0x3f);
        }
        static const unsigned long least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return false;
        bytes += n;
        len -= n;
    }
    return true;
}

static void test_utf8(void)
{
    static const unsigned char bytes[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0,
                                          0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef,
                                          0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf7, 0xf8, 0xff};
    enum { N = sizeof bytes };
    bool good = true;
    /* All of four bytes, at the edges of every range. */
    for (unsigned i = 0; i < N * N * N * N; i++) {
        unsigned char text[] = {bytes[i % N], bytes[i / N % N], bytes[i / N / N % N],
                                bytes[i / N / N / N]};
        struct utf8 utf8 = {0};
        bool got = utf8_feed(&utf8, (char *)text, 2) && utf8_feed(&utf8, (char *)text + 2, 2) &&
                   !utf8.need;
        good = good && got == is_utf8(text, 4);
    }
    EXPECT(good);
}

/* ---- compression ---- */

/* IN, compressed as a client would; takes nothing. */
static struct buf compressed(const char *in, size_t len, int window_bits)
{
    struct deflater *deflater = NULL;
    struct buf out = {0};
    outcome_must(deflate_message(&deflater, window_bits, in, len, &out), "deflate_message");
    deflater_free(deflater);
    return out;
}

static void test_deflate(void)
{
    struct buf in = {0};
    ADD(&in, 0xc1, "\xf2\x48\xcd\xc9\xc9\x07\x00");
    ADD(&in, 0x41, "\xf2\x48\xcd");
    ADD(&in, 0x8a, "");
    ADD(&in, 0x80, "\xc9\xc9\x07\x00");
    CHECK_FRAMES("the RFC's example, and in fragments", 1, &in,
                 "message 1 5:Hello\npong 0 0:\nmessage 1 5:Hello\n");
    ADD(&in, 0xc1, "\xff\xff\xff");
    CHECK_FRAMES("no deflate", 1, &in, "failed 1007 22:not what deflate makes\n");
    ADD(&in, 0x41, "\xf2\x48\xcd");
    ADD(&in, 0xc0, "\xc9\xc9\x07\x00");
    CHECK_FRAMES("marked in the middle", 1, &in, "failed 1002 14:a reserved bit\n");
    struct buf bad = compressed("a\xff", 2, 15);
    add(&in, 0xc1, bad.data, bad.len);
    CHECK_FRAMES("text that is none, compressed", 1, &in,
                 "failed 1007 22:text that is not UTF-8\n");
    buf_free(&bad);
}

static void test_bomb(void)
{
    size_t len = 64 * 1024 * 1024;
    char *zeros = calloc(len, 1);
    outcome_must(zeros != NULL, "memory");
    struct buf bomb = compressed(zeros, len, 15);
    free(zeros);
    EXPECT(bomb.len < len / 500);
    struct inflater *inflater = NULL;
    struct buf out = {0};
    EXPECT(inflate_message(&inflater, &bomb, &out, 1000) == INFLATE_TOO_BIG);
    EXPECT(out.capacity <= 64 * 1024);
    buf_free(&out);
    buf_free(&bomb);
    /* To the byte. */
    for (size_t limit = 99; limit <= 101; limit++) {
        char text[100] = "x";
        struct buf small = compressed(text, sizeof text, 9);
        EXPECT(inflate_message(&inflater, &small, &out, limit) ==
               (limit < sizeof text ? INFLATE_TOO_BIG : INFLATE_OK));
        buf_free(&small);
        buf_free(&out);
    }
    inflater_free(inflater);
}

/* ---- memory ---- */

static void test_memory(void)
{
    struct frame_pool pool = {0};
    struct buf in = {0};
    struct buf out = {0};
    struct frames all[2] = {{0}, {0}};
    size_t before = buf_live_bytes();
    ADD(&in, 0x81, "abc");
    size_t mine = buf_live_bytes() - before;
    for (size_t i = 0; i < 2; i++) {
        frames_init(&all[i], &pool);
        outcome_feed(&all[i], in.data, in.len, &out);
        /* Between frames a stream has nothing of wslay's, and no message. */
        EXPECT(!all[i].reader);
        EXPECT(!all[i].message.data);
    }
    EXPECT(pool.spare);
    EXPECT(buf_live_bytes() - before == mine + out.capacity);
    /* The length that a client claims costs nothing. */
    outcome_feed(&all[0], "\x82\xff\0\0\0\x01\0\0\0\0abcdx", 15, &out);
    EXPECT(all[0].message.capacity < 1000);
    frames_free(&all[0]);
    frames_free(&all[1]);
    frame_pool_free(&pool);
    buf_free(&in);
    buf_free(&out);
}

static void test_headers(void)
{
    char out[FRAME_HEADER_BYTES_MAX];
    EXPECT(frame_header(out, FRAME_TEXT, false, 125) == 2 && !memcmp(out, "\x81\x7d", 2));
    EXPECT(frame_header(out, FRAME_TEXT, true, 126) == 4 && !memcmp(out, "\xc1\x7e\0\x7e", 4));
    EXPECT(frame_header(out, FRAME_BINARY, false, 65535) == 4 &&
           !memcmp(out, "\x82\x7e\xff\xff", 4));
    EXPECT(frame_header(out, FRAME_BINARY, false, 65536) == 10 &&
           !memcmp(out, "\x82\x7f\0\0\0\0\0\x01\0\0", 10));
}

int main(void)
{
    test_messages();
    test_mistakes();
    test_codes();
    test_utf8();
    test_deflate();
    test_bomb();
    test_memory();
    test_headers();
    EXPECT(buf_live_bytes() == 0);
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
