/* parse-fuzz.c - any bytes, cut anywhere, give one outcome; and llhttp refuses nothing the guard
 * let pass (the CHECKs of parse.c, with PORTER_DEBUG).
 *
 * For libFuzzer; with PORTER_FUZZ_MAIN a program that replays the files it is given.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "parse-outcome.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void compare(const struct limits *limits, const struct outcome *whole, const char *data,
                    size_t len, size_t cut, bool each)
{
    struct outcome other = {.sink_max = whole->sink_max, .sink_status = whole->sink_status};
    outcome_run(&other, limits, data, len, cut, each);
    if (!outcome_same(whole, &other)) {
        fprintf(stderr, "the outcome depends on the cut (%s %zu)\n", each ? "each" : "at", cut);
        abort();
    }
    outcome_free(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct limits usual = {
        .target_bytes_max = 8192,
        .head_bytes_max = 16384,
        .fields_max = 100,
        .body_bytes_max = 1 << 20,
    };
    /* Close enough that a few bytes reach them. */
    static const struct limits tight = {
        .target_bytes_max = 24,
        .head_bytes_max = 96,
        .fields_max = 4,
        .body_bytes_max = 20,
    };
    static const struct limits none = {0};
    static const struct limits *const all[] = {&usual, &tight, &none};
    const char *data = (const char *)bytes;
    for (int i = 0; i < 3; i++) {
        const struct limits *limits = all[i];
        struct outcome whole = {.sink_max = i == 1 ? 12 : SIZE_MAX, .sink_status = 507};
        outcome_run(&whole, limits, data, len, len, false);
        compare(limits, &whole, data, len, 0, true);
        /* Every place when there are few, else some that change with the bytes. */
        size_t step = len <= 128 ? 1 : len / 48 + 1;
        for (size_t cut = len <= 128 ? 1 : 1 + bytes[len / 2] % step; cut < len; cut += step)
            compare(limits, &whole, data, len, cut, false);
        outcome_free(&whole);
    }
    return 0;
}

#ifdef PORTER_FUZZ_MAIN
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file) {
            perror(argv[i]);
            return 1;
        }
        struct buf buf = {0};
        char part[4096];
        size_t got;
        while ((got = fread(part, 1, sizeof part, file)) > 0)
            outcome_must(buf_append(&buf, part, got, SIZE_MAX / 2), "out of memory");
        fclose(file);
        LLVMFuzzerTestOneInput((const uint8_t *)buf.data, buf.len);
        buf_free(&buf);
    }
    printf("%d files replayed\n", argc - 1);
    return 0;
}
#endif
