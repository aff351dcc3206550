/* select-test.c - conditions, ranges, dates and wishes of a request.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "select-case.h"

#include <stdarg.h>

static int passed, failed;

static void expect_at(bool good, int line, const char *what)
{
    passed += good;
    failed += !good;
    if (!good)
        fprintf(stderr, "select-test.c:%d: not so: %s\n", line, what);
}
#define EXPECT(condition) expect_at((condition), __LINE__, #condition)

/* 1994-11-06 08:49:37 UTC, the example of RFC 9110 section 5.6.7. */
#define THE_DATE 784111777
#define DATE "Sun, 06 Nov 1994 08:49:37 GMT"
#define BEFORE "Sun, 06 Nov 1994 08:49:36 GMT"
#define AFTER "Sun, 06 Nov 1994 08:49:38 GMT"

static const struct representation file = {.size = 100, .etag = "\"a\"", .modified = THE_DATE};

/* What METHOD with the lines NAME, VALUE, ... (NULL at the end) selects of FILE, in words: the outcome and
 * the ranges, as "206 0+5 20+1". */
static const char *selected_of(const struct representation *representation, enum method method,
                               va_list lines)
{
    static const char *const outcomes[] = {"200", "206", "304", "412", "416"};
    static char words[SELECT_RANGES_MAX * 48];
    struct field fields[8];
    struct request request = {.method = method, .fields = fields};
    struct selection selection;
    for (const char *name; (name = va_arg(lines, const char *));) {
        const char *value = va_arg(lines, const char *);
        case_add(&request, name, value, strlen(value));
    }
    select_part(&request, representation, &selection);
    int len = snprintf(words, sizeof words, "%s", outcomes[selection.outcome]);
    for (uint32_t i = 0; i < selection.ranges_len; i++)
        len += snprintf(words + len, sizeof words - (size_t)len, " %llu+%llu",
                        (unsigned long long)selection.ranges[i].from,
                        (unsigned long long)selection.ranges[i].len);
    buf_free(&request.head);
    return words;
}

static bool selects(const char *words, const struct representation *representation,
                    enum method method, ...)
{
    va_list lines;
    va_start(lines, method);
    const char *got = selected_of(representation, method, lines);
    va_end(lines);
    if (strcmp(got, words) != 0)
        fprintf(stderr, "%s, not %s\n", got, words);
    return strcmp(got, words) == 0;
}
#define GET(words, ...) EXPECT(selects(words, &file, METHOD_GET, __VA_ARGS__, (char *)NULL))

static void test_conditions(void)
{
    GET("304", "If-None-Match", "\"a\"");
    GET("304", "if-none-match", "W/\"a\"");
    GET("304", "If-None-Match", "*");
    GET("304", "If-None-Match", ",, \"b\" ,\t\"a\"");
    GET("304", "If-None-Match", "\"b\"", "If-None-Match", "\"a\"");
    GET("200", "If-None-Match", "\"b\"");
    GET("200", "If-None-Match", "a");
    GET("200", "If-None-Match", "\"a");
    GET("200", "If-None-Match", "w/\"a\""); /* case counts */
    GET("200", "If-None-Match", "");
    GET("304", "If-Modified-Since", DATE);
    GET("304", "If-Modified-Since", AFTER);
    GET("200", "If-Modified-Since", BEFORE);
    GET("200", "If-Modified-Since", DATE, "If-Modified-Since", DATE);
    GET("200", "If-None-Match", "\"b\"", "If-Modified-Since", AFTER);
    GET("200", "If-Match", "\"a\"");
    GET("200", "If-Match", "*");
    GET("412", "If-Match", "W/\"a\"");
    GET("412", "If-Match", "\"b\"");
    GET("412", "If-Match", "\"b\"", "If-None-Match", "\"a\"");
    GET("412", "If-Unmodified-Since", BEFORE);
    GET("200", "If-Unmodified-Since", DATE);
    GET("200", "If-Match", "\"a\"", "If-Unmodified-Since", BEFORE);
    GET("304", "If-Match", "\"a\"", "If-None-Match", "\"a\"");
    GET("304", "If-None-Match", "\"a\"", "Range", "bytes=0-1");
    GET("412", "If-Match", "\"b\"", "Range", "bytes=0-1");
    /* Without a tag or a date there is nothing to compare with. */
    static const struct representation bare = {.size = 100};
    EXPECT(selects("304", &bare, METHOD_GET, "If-None-Match", "*", (char *)NULL));
    EXPECT(selects("200", &bare, METHOD_GET, "If-None-Match", "\"a\"", (char *)NULL));
    EXPECT(selects("412", &bare, METHOD_GET, "If-Match", "\"a\"", (char *)NULL));
    EXPECT(selects("200", &bare, METHOD_GET, "If-Modified-Since", AFTER, (char *)NULL));
    EXPECT(selects("200", &bare, METHOD_GET, "Range", "bytes=0-1", "If-Range", DATE, (char *)NULL));
}

static void test_ranges(void)
{
    GET("206 0+1", "Range", "bytes=0-0");
    GET("206 0+100", "Range", "bytes=0-99");
    GET("206 0+100", "Range", "bytes=0-100");
    GET("206 99+1", "Range", "bytes=99-18446744073709551615");
    GET("206 99+1", "Range", "bytes=99-99999999999999999999999999");
    GET("206 40+60", "Range", "bytes=40-");
    GET("206 90+10", "Range", "bytes=-10");
    GET("206 0+100", "Range", "bytes=-1000");
    GET("206 0+100", "Range", "bytes=-18446744073709551616");
    GET("206 0+5", "Range", "BYTES=0-4");
    GET("206 0+5", "Range", "bytes= ,\t0-4 , ");
    GET("206 0+5 50+1", "Range", "bytes=0-4,50-50");
    GET("206 50+1 0+5", "Range", "bytes=50-50,0-4"); /* in the order asked for */
    GET("206 0+20", "Range", "bytes=0-9,10-19");     /* they touch */
    GET("206 0+20", "Range", "bytes=10-19,0-9");
    GET("206 0+100", "Range", "bytes=0-,0-,0-,0-");
    GET("206 0+20 90+10", "Range", "bytes=-10,5-19,0-9");
    GET("206 0+5", "Range", "bytes=0-4,100-");
    GET("416", "Range", "bytes=100-");
    GET("416", "Range", "bytes=-0");
    GET("416", "Range", "bytes=18446744073709551615-18446744073709551615");
    GET("200", "Range", "bytes=");
    GET("200", "Range", "bytes=,");
    GET("200", "Range", "bytes=-");
    GET("200", "Range", "bytes=4-3");
    GET("200", "Range", "bytes=0-4;5-9");
    GET("200", "Range", "bytes=0 -4");
    GET("200", "Range", "bytes=+0-4");
    GET("200", "Range", "bytes=0x1-4");
    GET("200", "Range", "byte=0-4");
    GET("200", "Range", "bytes 0-4");
    GET("200", "Range", "bytes=0-4", "Range", "bytes=0-4");
    GET("206 0+5", "Range", "bytes=0-4", "If-Range", "\"a\"");
    GET("206 0+5", "Range", "bytes=0-4", "If-Range", DATE);
    GET("200", "Range", "bytes=0-4", "If-Range", "\"b\"");
    GET("200", "Range", "bytes=0-4", "If-Range", "W/\"a\"");
    GET("200", "Range", "bytes=0-4", "If-Range", AFTER);
    GET("200", "Range", "bytes=0-4", "If-Range", BEFORE);
    EXPECT(selects("200", &file, METHOD_HEAD, "Range", "bytes=0-4", (char *)NULL));
    static const struct representation empty = {.size = 0, .etag = "\"a\""};
    EXPECT(selects("416", &empty, METHOD_GET, "Range", "bytes=0-", (char *)NULL));
    EXPECT(selects("416", &empty, METHOD_GET, "Range", "bytes=-5", (char *)NULL));
    static const struct representation huge = {.size = UINT64_MAX / 2};
    EXPECT(
        selects("206 9223372036854775806+1", &huge, METHOD_GET, "Range", "bytes=-1", (char *)NULL));
}

/* So many ranges, none of which touch. */
static void test_many_ranges(void)
{
    static const struct representation large = {.size = 10000};
    for (int count = SELECT_RANGES_MAX - 1; count <= SELECT_RANGES_MAX + 1; count++) {
        char value[1024] = "bytes=";
        size_t len = strlen(value);
        for (int i = 0; i < count; i++)
            len += (size_t)snprintf(value + len, sizeof value - len, "%s%d-%d", i ? "," : "", 9 * i,
                                    9 * i);
        struct field fields[1];
        struct request request = {.method = METHOD_GET, .fields = fields};
        struct selection selection;
        case_add(&request, "Range", value, len);
        select_part(&request, &large, &selection);
        EXPECT(selection.outcome == (count <= SELECT_RANGES_MAX ? SELECT_RANGES : SELECT_WHOLE));
        EXPECT(selection.ranges_len == (count <= SELECT_RANGES_MAX ? (uint32_t)count : 0));
        buf_free(&request.head);
    }
}

static time_t date_of(const char *text)
{
    time_t date = -1;
    return select_date(text, strlen(text), &date) ? date : -1;
}

static void test_dates(void)
{
    EXPECT(date_of(DATE) == THE_DATE);
    EXPECT(date_of("Sunday, 06-Nov-94 08:49:37 GMT") == THE_DATE);
    EXPECT(date_of("Sun Nov  6 08:49:37 1994") == THE_DATE);
    EXPECT(date_of("Thu, 01 Jan 1970 00:00:00 GMT") == 0);
    EXPECT(date_of("Thu, 29 Feb 2024 23:59:59 GMT") == 1709251199);
    EXPECT(date_of("Fri, 31 Dec 2100 23:59:60 GMT") == 4133980800);
    EXPECT(date_of("") == -1);
    EXPECT(date_of("Sun, 06 Nov 1994 08:49:37 UTC") == -1);
    EXPECT(date_of("Sun, 06 nov 1994 08:49:37 GMT") == -1);
    EXPECT(date_of("Sun, 00 Nov 1994 08:49:37 GMT") == -1);
    EXPECT(date_of("Sun, 32 Nov 1994 08:49:37 GMT") == -1);
    EXPECT(date_of("Sun, 06 Nov 1994 24:49:37 GMT") == -1);
    EXPECT(date_of("Sun, 06 Nov 1994 08:60:37 GMT") == -1);
    EXPECT(date_of("Sun, 06 Nov 1994 08:49:61 GMT") == -1);
    EXPECT(date_of("Sun, 06 Nov 0000 08:49:37 GMT") == -1);
    EXPECT(date_of("Sun, 6 Nov 1994 08:49:37 GMT ") == -1);
    EXPECT(date_of("784111777") == -1);
}

static bool accepts(const char *value, const char *coding)
{
    struct field fields[1];
    struct request request = {.method = METHOD_GET, .fields = fields};
    case_add(&request, "Accept-Encoding", value, strlen(value));
    bool result = select_accepts_coding(&request, coding);
    buf_free(&request.head);
    return result;
}

static void test_codings(void)
{
    EXPECT(accepts("gzip", "gzip"));
    EXPECT(accepts("br, GZIP;q=0.5", "gzip"));
    EXPECT(accepts("br,gzip ; q=1", "gzip"));
    EXPECT(accepts("gzip;q=0.001", "gzip"));
    EXPECT(!accepts("gzip;q=0", "gzip"));
    EXPECT(!accepts("gzip; q=0.000", "gzip"));
    EXPECT(!accepts("x-gzipped, gzi, gzipp", "gzip"));
    EXPECT(accepts("*", "gzip"));
    EXPECT(accepts("br, *;q=0.1", "gzip"));
    EXPECT(!accepts("gzip;q=0, *", "gzip"));
    EXPECT(accepts("x-gzip", "gzip"));
    EXPECT(!accepts("x-gzip", "br"));
    EXPECT(!accepts("gzip;q=0.1, identity", "gzip"));
    EXPECT(!accepts("br;q=0.5, identity;q=0.7", "br"));
    EXPECT(accepts("br;q=0.5, identity;q=0.5", "br"));
    EXPECT(!accepts("gzip;q=nonsense", "gzip"));
    EXPECT(!accepts("gzip;q=", "gzip"));
    EXPECT(!accepts("identity", "gzip"));
    EXPECT(!accepts("", "gzip"));
}

int main(void)
{
    test_conditions();
    test_ranges();
    test_many_ranges();
    test_dates();
    test_codings();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
