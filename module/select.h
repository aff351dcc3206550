/* select.h - which part of a representation a request asks for: conditions and ranges.
 *
 * Thread: any.  Pure functions on a request's fields: RFC 9110 sections 13 (conditional requests) and
 * 14 (range requests), and the dates of section 5.6.7.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_SELECT_H
#define PORTER_SELECT_H

#include "request.h"

#include <time.h>

/* More ranges than this in one request are an attempt to waste our time; the whole is sent. */
#define SELECT_RANGES_MAX 32

struct representation {
    uint64_t size;
    const char *etag; /* strong, with its quotes; NULL for none */
    time_t modified;  /* 0: not known */
};

struct byte_range {
    uint64_t from;
    uint64_t len;
};

enum select_outcome {
    SELECT_WHOLE = 0,
    SELECT_RANGES,        /* 206: those in RANGES, none of which overlap */
    SELECT_NOT_MODIFIED,  /* 304 */
    SELECT_FAILED,        /* 412 */
    SELECT_UNSATISFIABLE, /* 416 */
};

struct selection {
    enum select_outcome outcome;
    uint32_t ranges_len;
    struct byte_range ranges[SELECT_RANGES_MAX];
};

/* Evaluate the preconditions of REQUEST in the order of RFC 9110 section 13.2.2, then its Range. */
void select_part(const struct request *request, const struct representation *representation,
                 struct selection *selection);

/* Read a date in one of the three forms of RFC 9110 section 5.6.7.  False for anything else. */
bool select_date(const char *text, size_t len, time_t *date);

/* May and should CODING (lower case) be sent?  When Accept-Encoding names it, or "*", with a weight above 0 and
 * not below that of "identity" (RFC 9110 section 12.5.3); "x-gzip" is "gzip" (section 8.4.1.3). */
bool select_accepts_coding(const struct request *request, const char *coding);

/* Does Accept name TYPE (lower case) itself, with a weight above 0? */
bool select_accepts_type(const struct request *request, const char *type);

#endif
