/* decode.c - percent-encoding, urlencoded pairs, UTF-8.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "decode.h"

#include <stdint.h>
#include <string.h>

static int hex_value(unsigned char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

size_t decode_percent(const char *in, size_t len, char *out, bool plus_is_blank)
{
    size_t written = 0;
    for (size_t i = 0; i < len; i++) {
        char byte = in[i];
        if (byte == '%' && len - i > 2) {
            int high = hex_value((unsigned char)in[i + 1]);
            int low = hex_value((unsigned char)in[i + 2]);
            if (high >= 0 && low >= 0) {
                byte = (char)(high << 4 | low);
                i += 2;
            }
        } else if (byte == '+' && plus_is_blank) {
            byte = ' ';
        }
        out[written++] = byte;
    }
    return written;
}

/* The bytes of the well-formed sequence at AT that begins with a byte above 127, or 0 (RFC 3629
 * section 4; the second byte's range is what keeps overlongs and surrogates out). */
static size_t sequence_len(const unsigned char *at, size_t left)
{
    unsigned char first = at[0], low = 0x80, high = 0xbf;
    size_t len;
    if (first < 0xc2)
        return 0;
    if (first < 0xe0) {
        len = 2;
    } else if (first < 0xf0) {
        len = 3;
        if (first == 0xe0)
            low = 0xa0;
        else if (first == 0xed)
            high = 0x9f;
    } else if (first < 0xf5) {
        len = 4;
        if (first == 0xf0)
            low = 0x90;
        else if (first == 0xf4)
            high = 0x8f;
    } else {
        return 0;
    }
    if (left < len || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

enum text_kind decode_text_kind(const char *bytes, size_t len)
{
    const unsigned char *at = (const unsigned char *)bytes;
    enum text_kind kind = TEXT_ASCII;
    while (len) {
        uint64_t word;
        while (len >= sizeof word) {
            memcpy(&word, at, sizeof word);
            if (word & UINT64_C(0x8080808080808080))
                break;
            at += sizeof word;
            len -= sizeof word;
        }
        if (!len)
            break;
        size_t step = 1;
        if (*at >= 0x80) {
            step = sequence_len(at, len);
            if (!step)
                return TEXT_BYTES;
            kind = TEXT_UTF8;
        }
        at += step;
        len -= step;
    }
    return kind;
}

static int base64_value(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

size_t decode_base64(const char *in, size_t len, char *out)
{
    size_t written = 0;
    uint32_t bits = 0;
    int value;
    for (size_t i = 0; i < len && (value = base64_value(in[i])) >= 0; i++) {
        bits = bits << 6 | (uint32_t)value;
        if (i % 4)
            out[written++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    return written;
}

bool decode_next_pair(const char **at, const char *end, struct pair *pair)
{
    const char *begin = *at;
    while (begin < end && *begin == '&')
        begin++;
    if (begin == end) {
        *at = end;
        return false;
    }
    const char *stop = memchr(begin, '&', (size_t)(end - begin));
    if (!stop)
        stop = end;
    const char *equals = memchr(begin, '=', (size_t)(stop - begin));
    pair->name = begin;
    pair->name_len = (size_t)((equals ? equals : stop) - begin);
    pair->value = equals ? equals + 1 : stop;
    pair->value_len = (size_t)(stop - pair->value);
    *at = stop < end ? stop + 1 : end;
    return true;
}
