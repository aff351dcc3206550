/* select.c - which part of a representation a request asks for.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "select.h"

#include "check.h"

#include <stdlib.h>
#include <strings.h>

/* ---- dates ---- */

static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

/* Days from 1970-01-01 to the given day of the proleptic Gregorian calendar; timegm is not in POSIX. */
static int64_t days_from_civil(int64_t year, int month, int day)
{
    year -= month <= 2;
    int64_t era = year / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

/* PATTERN has a letter for each byte of TEXT: D Y h m s for digits of that number, "n" for the three
 * letters of a month, "_" for a digit of the day or a blank, "." for any byte, and others for
 * themselves. */
static bool scan(const char *text, const char *pattern, int *numbers, int *month)
{
    static const char letters[] = "DYhms";
    for (; *pattern; pattern++, text++) {
        const char *letter = strchr(letters, *pattern);
        if (letter) {
            if (*text < '0' || *text > '9')
                return false;
            numbers[letter - letters] = numbers[letter - letters] * 10 + (*text - '0');
        } else if (*pattern == '_') {
            if (*text != ' ' && (*text < '0' || *text > '9'))
                return false;
            numbers[0] = *text == ' ' ? 0 : *text - '0';
        } else if (*pattern == 'n') {
            for (*month = 0; *month < 12; ++*month)
                if (memcmp(text, months[*month], 3) == 0)
                    break;
            if (*month == 12)
                return false;
            text += 2;
        } else if (*pattern != '.' && *pattern != *text) {
            return false;
        }
    }
    return true;
}

bool select_date(const char *text, size_t len, time_t *date)
{
    int n[5] = {0}; /* D Y h m s */
    int month = 12;
    bool ok = false;
    if (len == 29) {
        ok = scan(text, "..., DD n YYYY hh:mm:ss GMT", n, &month);
    } else if (len == 24) {
        ok = scan(text, "... n _D hh:mm:ss YYYY", n, &month);
    } else {
        const char *comma = memchr(text, ',', len);
        if (comma && (size_t)(text + len - comma) == 24) {
            ok = scan(comma, ", DD-n-YY hh:mm:ss GMT", n, &month);
            /* Two digits that seem to be more than fifty years ahead are in the past. */
            time_t now = time(NULL);
            struct tm tm;
            int this_year = gmtime_r(&now, &tm) ? tm.tm_year + 1900 : 2000;
            n[1] += this_year - this_year % 100;
            if (n[1] > this_year + 50)
                n[1] -= 100;
        }
    }
    if (!ok || n[0] < 1 || n[0] > 31 || n[2] > 23 || n[3] > 59 || n[4] > 60 || n[1] < 1)
        return false;
    *date = (time_t)(days_from_civil(n[1], month + 1, n[0]) * 86400 + n[2] * 3600 + n[3] * 60 +
                     n[4]);
    return true;
}

/* ---- lists of tags ---- */

static bool is_named(const struct request *request, const struct field *field, const char *name)
{
    return request_span_is(request, field->name, name);
}

static void skip_blanks(const char **at, const char *end)
{
    while (*at < end && (**at == ' ' || **at == '\t'))
        ++*at;
}

/* Is TAG in the list of entity tags AT to END?  A strong comparison passes over weak tags
 * (RFC 9110 section 8.8.3.2). */
static bool list_has_tag(const char *at, const char *end, const char *tag, bool strong)
{
    size_t tag_len = strlen(tag);
    while (at < end) {
        skip_blanks(&at, end);
        if (at < end && *at == ',') {
            at++;
            continue;
        }
        bool weak = end - at > 2 && at[0] == 'W' && at[1] == '/';
        if (weak)
            at += 2;
        if (at == end || *at != '"')
            return false;
        const char *close = memchr(at + 1, '"', (size_t)(end - at - 1));
        if (!close)
            return false;
        if (!(strong && weak) && (size_t)(close + 1 - at) == tag_len &&
            memcmp(at, tag, tag_len) == 0)
            return true;
        at = close + 1;
    }
    return false;
}

enum tag_match { TAG_ABSENT = 0, TAG_FOUND, TAG_MISSING };

/* What the lines called NAME say about the representation's tag; "*" is any. */
static enum tag_match match_tags(const struct request *request, const char *name,
                                 const struct representation *representation, bool strong)
{
    enum tag_match match = TAG_ABSENT;
    for (uint32_t i = 0; i < request->header_len; i++) {
        const struct field *field = &request->fields[i];
        if (!is_named(request, field, name))
            continue;
        match = TAG_MISSING;
        const char *value = request_at(request, field->value);
        if (request_span_is(request, field->value, "*") ||
            (representation->etag &&
             list_has_tag(value, value + field->value.len, representation->etag, strong)))
            return TAG_FOUND;
    }
    return match;
}

/* The date in the field called NAME; false when it is absent, there twice, or no date: then it does not
 * count (RFC 9110 section 13.1.3). */
static bool field_date(const struct request *request, const char *name, time_t *date)
{
    const struct field *found = NULL;
    for (uint32_t i = 0; i < request->header_len; i++) {
        if (!is_named(request, &request->fields[i], name))
            continue;
        if (found)
            return false;
        found = &request->fields[i];
    }
    return found && select_date(request_at(request, found->value), found->value.len, date);
}

/* ---- ranges ---- */

static int by_start(const void *a, const void *b)
{
    const struct byte_range *one = a;
    const struct byte_range *other = b;
    return one->from < other->from ? -1 : one->from > other->from;
}

/* Ranges that overlap or touch become one; those that do not stay in the order they were asked for. */
static void coalesce(struct selection *selection)
{
    struct byte_range sorted[SELECT_RANGES_MAX];
    uint32_t len = selection->ranges_len;
    memcpy(sorted, selection->ranges, len * sizeof *sorted);
    qsort(sorted, len, sizeof *sorted, by_start);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < len; i++) {
        if (kept && sorted[i].from <= sorted[kept - 1].from + sorted[kept - 1].len) {
            uint64_t end = sorted[i].from + sorted[i].len;
            if (end > sorted[kept - 1].from + sorted[kept - 1].len)
                sorted[kept - 1].len = end - sorted[kept - 1].from;
        } else {
            sorted[kept++] = sorted[i];
        }
    }
    if (kept == len)
        return;
    memcpy(selection->ranges, sorted, kept * sizeof *sorted);
    selection->ranges_len = kept;
}

/* Digits at *AT; numbers too large for a file are as large as can be.  False when there are none. */
static bool number(const char **at, const char *end, uint64_t *n)
{
    const char *start = *at;
    *n = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at)
        *n = *n > UINT64_MAX / 20 ? UINT64_MAX / 2 : *n * 10 + (uint64_t)(**at - '0');
    return *at > start;
}

/* One range, at *AT: add it to SELECTION if it can be satisfied.  False when it is none. */
static bool add_range(const char **at, const char *end, uint64_t size, struct selection *selection)
{
    uint64_t from;
    uint64_t to;
    struct byte_range range;
    bool first = number(at, end, &from);
    if (*at == end || **at != '-')
        return false;
    ++*at;
    bool last = number(at, end, &to);
    if (!first && !last)
        return false;
    if (first && last && to < from)
        return false;
    if (!first) {
        /* The last TO bytes. */
        range.len = to < size ? to : size;
        range.from = size - range.len;
    } else {
        range.from = from;
        range.len = from >= size ? 0 : (last && to < size ? to + 1 : size) - from;
    }
    if (range.len == 0)
        return true;
    if (selection->ranges_len == SELECT_RANGES_MAX)
        return false;
    selection->ranges[selection->ranges_len++] = range;
    return true;
}

/* RFC 9110 section 14.2: a Range that cannot be read, or of an unknown unit, does not count. */
static void parse_range(const char *at, const char *end, uint64_t size, struct selection *selection)
{
    static const char unit[] = "bytes=";
    bool any = false;
    if ((size_t)(end - at) < sizeof unit - 1 || strncasecmp(at, unit, sizeof unit - 1) != 0)
        return;
    at += sizeof unit - 1;
    for (;;) {
        skip_blanks(&at, end);
        if (at < end && *at != ',') {
            if (!add_range(&at, end, size, selection)) {
                selection->ranges_len = 0;
                return;
            }
            any = true;
            skip_blanks(&at, end);
        }
        if (at == end)
            break;
        if (*at++ != ',') {
            selection->ranges_len = 0;
            return;
        }
    }
    if (!any)
        return;
    selection->outcome = selection->ranges_len ? SELECT_RANGES : SELECT_UNSATISFIABLE;
    coalesce(selection);
}

/* RFC 9110 section 13.1.5: true when Range counts. */
static bool if_range_holds(const struct request *request,
                           const struct representation *representation)
{
    const struct field *field = request_field(request, "if-range");
    time_t date;
    if (!field)
        return true;
    const char *value = request_at(request, field->value);
    if (representation->etag && field->value.len == strlen(representation->etag) &&
        memcmp(value, representation->etag, field->value.len) == 0)
        return true;
    return representation->modified && select_date(value, field->value.len, &date) &&
           date == representation->modified;
}

static void select_ranges(const struct request *request,
                          const struct representation *representation, struct selection *selection)
{
    const struct field *range = NULL;
    for (uint32_t i = 0; i < request->header_len; i++) {
        if (!is_named(request, &request->fields[i], "range"))
            continue;
        if (range) /* not a list: two lines mean nothing */
            return;
        range = &request->fields[i];
    }
    if (!range || !if_range_holds(request, representation))
        return;
    const char *value = request_at(request, range->value);
    parse_range(value, value + range->value.len, representation->size, selection);
}

void select_part(const struct request *request, const struct representation *representation,
                 struct selection *selection)
{
    time_t date;
    selection->outcome = SELECT_WHOLE;
    selection->ranges_len = 0;
    enum tag_match match = match_tags(request, "if-match", representation, true);
    if (match == TAG_MISSING ||
        (match == TAG_ABSENT && representation->modified &&
         field_date(request, "if-unmodified-since", &date) && representation->modified > date)) {
        selection->outcome = SELECT_FAILED;
        return;
    }
    enum tag_match none = match_tags(request, "if-none-match", representation, false);
    if (none == TAG_FOUND ||
        (none == TAG_ABSENT && representation->modified &&
         field_date(request, "if-modified-since", &date) && representation->modified <= date)) {
        selection->outcome = SELECT_NOT_MODIFIED;
        return;
    }
    if (request->method == METHOD_GET)
        select_ranges(request, representation, selection);
}

/* ---- negotiation ---- */

/* The weight in thousandths in the parameters AT to END; 1000 without one, 0 for nonsense. */
static int weight(const char *at, const char *end)
{
    for (; at < end; at++) {
        if (*at != ';')
            continue;
        const char *name = at + 1;
        skip_blanks(&name, end);
        if (end - name < 2 || (name[0] | 32) != 'q' || name[1] != '=')
            continue;
        const char *digit = name + 2;
        if (digit == end || (*digit != '0' && *digit != '1'))
            return 0;
        int value = (*digit++ - '0') * 1000;
        if (digit < end && *digit == '.')
            digit++;
        for (int unit = 100; digit < end && *digit >= '0' && *digit <= '9'; unit /= 10)
            value += (*digit++ - '0') * unit;
        return value > 1000 ? 1000 : value;
    }
    return 1000;
}

/* The weight of WANTED in the list in the lines called NAME; -1 when it is not in it. */
static int weight_of(const struct request *request, const char *name, const char *wanted)
{
    size_t len = strlen(wanted);
    for (uint32_t i = 0; i < request->header_len; i++) {
        const struct field *field = &request->fields[i];
        if (!is_named(request, field, name))
            continue;
        const char *at = request_at(request, field->value);
        const char *end = at + field->value.len;
        while (at < end) {
            skip_blanks(&at, end);
            const char *comma = memchr(at, ',', (size_t)(end - at));
            const char *stop = comma ? comma : end;
            const char *semicolon = memchr(at, ';', (size_t)(stop - at));
            const char *word_end = semicolon ? semicolon : stop;
            while (word_end > at && (word_end[-1] == ' ' || word_end[-1] == '\t'))
                word_end--;
            if ((size_t)(word_end - at) == len && strncasecmp(at, wanted, len) == 0)
                return weight(word_end, stop);
            at = comma ? comma + 1 : end;
        }
    }
    return -1;
}

bool select_accepts_coding(const struct request *request, const char *coding)
{
    static const char name[] = "accept-encoding";
    int weight = weight_of(request, name, coding);
    if (weight < 0 && strcmp(coding, "gzip") == 0)
        weight = weight_of(request, name, "x-gzip");
    if (weight < 0)
        weight = weight_of(request, name, "*");
    return weight > 0 && weight >= weight_of(request, name, "identity");
}

bool select_accepts_type(const struct request *request, const char *type)
{
    return weight_of(request, "accept", type) > 0;
}
