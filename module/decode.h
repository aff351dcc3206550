/* decode.h - percent-encoding, urlencoded pairs, UTF-8.  Pure functions on bytes.
 *
 * Thread: any.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_DECODE_H
#define PORTER_DECODE_H

#include <stdbool.h>
#include <stddef.h>

/* Decode %XX of IN once into OUT, which has room for LEN bytes, and "+" to a blank when
 * PLUS_IS_BLANK.  A percent sign without two hex digits stays as it is (URL standard,
 * percent-decode).  Returns the bytes written.  OUT may be IN. */
size_t decode_percent(const char *in, size_t len, char *out, bool plus_is_blank);

enum text_kind {
    TEXT_ASCII = 0, /* bytes below 128 only */
    TEXT_UTF8,      /* well-formed UTF-8 (RFC 3629: no overlongs, no surrogates) */
    TEXT_BYTES      /* anything else */
};
enum text_kind decode_text_kind(const char *bytes, size_t len);

/* Decode LEN bytes of base64 up to what is none (RFC 4648 section 4) into OUT, which has room for three bytes of
 * each four.  Returns the bytes written. */
size_t decode_base64(const char *in, size_t len, char *out);

struct pair {
    const char *name; /* still encoded */
    size_t name_len;
    const char *value; /* still encoded; LEN 0 when there is no "=" */
    size_t value_len;
};

/* Split an application/x-www-form-urlencoded string: set *PAIR to the first pair of [*AT, END) and
 * move *AT behind it.  Empty sequences ("&&") are skipped; the first "=" splits.  False at the
 * end. */
bool decode_next_pair(const char **at, const char *end, struct pair *pair);

#endif
