/* decode-fuzz.c - decoders of what clients send: percent, pairs, base64, UTF-8, Accept-Encoding.
 *
 * Each is checked against what is simple and slow, or by what must hold of its result.  For libFuzzer.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "decode.h"
#include "gzip.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

/* In place and elsewhere come to the same, never longer than before. */
static void percent(const char *text, size_t len)
{
    char *in_place = malloc(len + 1);
    char *out = malloc(len + 1);
    expect(in_place && out);
    for (int plus = 0; plus < 2; plus++) {
        memcpy(in_place, text, len);
        size_t out_len = decode_percent(text, len, out, plus);
        expect(out_len <= len);
        expect(decode_percent(in_place, len, in_place, plus) == out_len);
        expect(memcmp(in_place, out, out_len) == 0);
        if (!memchr(text, '%', len) && !(plus && memchr(text, '+', len)))
            expect(out_len == len && memcmp(text, out, len) == 0);
    }
    free(in_place);
    free(out);
}

/* Pairs follow each other, and only "&" and the first "=" of each are between them. */
static void pairs(const char *text, size_t len)
{
    const char *at = text;
    const char *behind = text;
    struct pair pair;
    while (decode_next_pair(&at, text + len, &pair)) {
        expect(pair.name >= behind);
        for (; behind < pair.name; behind++)
            expect(*behind == '&');
        expect(!memchr(pair.name, '=', pair.name_len) && !memchr(pair.name, '&', pair.name_len));
        expect(!memchr(pair.value, '&', pair.value_len));
        behind = pair.name + pair.name_len;
        if (pair.value_len || (behind < text + len && *behind == '=')) {
            expect(*behind == '=' && pair.value == behind + 1);
            behind = pair.value + pair.value_len;
        }
        expect(at >= behind && at <= text + len);
    }
    for (; behind < text + len; behind++)
        expect(*behind == '&');
}

static void base64(const char *text, size_t len)
{
    char *out = malloc(len / 4 * 3 + 3);
    expect(out);
    expect(decode_base64(text, len, out) <= (len * 3 + 3) / 4);
    free(out);
}

/* What is said to be UTF-8 stays it when cut between two characters, and ASCII is ASCII. */
static void text_kind(const char *text, size_t len)
{
    enum text_kind kind = decode_text_kind(text, len);
    bool ascii = true;
    for (size_t i = 0; i < len; i++)
        ascii = ascii && (unsigned char)text[i] < 0x80;
    expect((kind == TEXT_ASCII) == ascii);
    for (size_t i = 0; kind == TEXT_UTF8 && i <= len; i++)
        if (i == len || ((unsigned char)text[i] & 0xc0) != 0x80)
            expect(decode_text_kind(text, i) != TEXT_BYTES &&
                   decode_text_kind(text + i, len - i) != TEXT_BYTES);
}

/* As an Accept-Encoding, in one line and in two. */
static void accept_encoding(const char *text, size_t len)
{
    static const char name[] = "Accept-Encoding";
    struct request request = {0};
    struct field fields[2];
    buf_append(&request.head, name, sizeof name - 1, SIZE_MAX);
    buf_append(&request.head, text, len, SIZE_MAX);
    request.fields = fields;
    struct span name_span = {0, sizeof name - 1};
    fields[0] = (struct field){name_span, {sizeof name - 1, (uint32_t)len}};
    request.header_len = request.fields_len = 1;
    enum gzip_accept whole = gzip_accept(&request);
    expect(whole == GZIP_ACCEPTED || whole == GZIP_REFUSED);
    const char *comma = memchr(text, ',', len);
    if (comma) {
        uint32_t cut = (uint32_t)(comma - text);
        fields[0].value.len = cut;
        fields[1] = (struct field){name_span, {sizeof name + cut, (uint32_t)len - cut - 1}};
        request.header_len = request.fields_len = 2;
        expect(gzip_accept(&request) == whole);
    }
    (void)gzip_worth(text, len);
    buf_free(&request.head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const char *text = (const char *)data;
    percent(text, len);
    pairs(text, len);
    base64(text, len);
    text_kind(text, len);
    accept_encoding(text, len);
    return 0;
}
