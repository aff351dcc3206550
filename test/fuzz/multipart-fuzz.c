/* multipart-fuzz.c - any form, cut anywhere, has one outcome.
 *
 * The first byte chooses the boundary.  For libFuzzer.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "multipart-outcome.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const types[] = {
        "multipart/form-data; boundary=b",
        "multipart/form-data; boundary=\"fence 7\"",
        "multipart/form-data; boundary=--",
    };
    if (!len)
        return 0;
    const char *type = types[data[0] % 3];
    const char *body = (const char *)data + 1;
    struct buf whole = {0};
    len--;
    outcome_of(type, body, len, len, false, &whole);
    size_t step = len <= 64 ? 1 : len / 24 + 1;
    for (size_t cut = 0; cut < len; cut += step) {
        struct buf other = {0};
        outcome_of(type, body, len, cut, cut == 0, &other);
        /* Of what is refused only the status counts: pieces before it may differ. */
        bool refused = whole.data[whole.len - 2] != '=';
        size_t from = refused ? whole.len - 4 : 0;
        size_t other_from = refused && other.len >= 4 ? other.len - 4 : 0;
        if (whole.len - from != other.len - other_from ||
            memcmp(whole.data + from, other.data + other_from, whole.len - from) != 0) {
            fprintf(stderr, "the outcome depends on the cut at %zu\n", cut);
            abort();
        }
        buf_free(&other);
    }
    buf_free(&whole);
    return 0;
}
