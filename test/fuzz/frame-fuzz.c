/* frame-fuzz.c - any frames, cut anywhere, have one outcome.
 *
 * The first byte chooses the settings.  For libFuzzer.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "frame-outcome.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (!len)
        return 0;
    /* A bomb in the input is no news; with a limit it is one that has to be refused. */
    unsigned settings = data[0] & 1 ? data[0] & ~2u : data[0];
    const char *bytes = (const char *)data + 1;
    struct buf whole = {0};
    len--;
    outcome_of(settings, bytes, len, len, false, &whole);
    size_t step = len <= 64 ? 1 : len / 24 + 1;
    for (size_t cut = 0; cut < len; cut += step) {
        struct buf other = {0};
        outcome_of(settings, bytes, len, cut, cut == 0, &other);
        if (whole.len != other.len || (whole.len && memcmp(whole.data, other.data, whole.len))) {
            fprintf(stderr, "the outcome depends on the cut at %zu\n", cut);
            abort();
        }
        buf_free(&other);
    }
    buf_free(&whole);
    return 0;
}
