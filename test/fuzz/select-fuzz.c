/* select-fuzz.c - whatever the conditions and ranges of a request are, what is selected lies inside.
 *
 * The input is lines: a letter for the field, then its value.  For libFuzzer.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "select-case.h"

#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "select-fuzz: %s\n", what);
    abort();
}

static void check(const struct selection *selection, uint64_t size)
{
    must((selection->outcome == SELECT_RANGES) == (selection->ranges_len > 0), "ranges or none");
    must(selection->ranges_len <= SELECT_RANGES_MAX, "too many");
    for (uint32_t i = 0; i < selection->ranges_len; i++) {
        const struct byte_range *one = &selection->ranges[i];
        must(one->len > 0 && one->from < size && one->len <= size - one->from, "outside");
        for (uint32_t j = 0; j < i; j++) {
            const struct byte_range *other = &selection->ranges[j];
            must(one->from > other->from + other->len || other->from > one->from + one->len,
                 "they overlap");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const names[] = {
        "range",          "if-range",          "if-match",
        "if-none-match",  "if-modified-since", "if-unmodified-since",
        "accept-encoding"};
    static const uint64_t sizes[] = {0, 1, 100, 10000, UINT64_MAX / 2};
    struct field fields[8];
    struct request request = {.method = METHOD_GET, .fields = fields};
    const char *at = (const char *)data;
    const char *end = at + len;
    while (at < end && request.fields_len < ARRAY_LEN(fields)) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end)
            line_end = end;
        if (line_end > at)
            case_add(&request, names[(unsigned char)*at % ARRAY_LEN(names)], at + 1,
                     (size_t)(line_end - at - 1));
        at = line_end + (line_end < end);
    }
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct selection selection;
        const struct representation representation = {
            .size = sizes[i], .etag = "\"a\"", .modified = 784111777};
        select_part(&request, &representation, &selection);
        check(&selection, sizes[i]);
    }
    select_accepts_coding(&request, "gzip");
    buf_free(&request.head);
    return 0;
}
