/* select-case.h - a request with the fields of a test, without a parser.
 *
 * For test/c and test/fuzz.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_SELECT_CASE_H
#define PORTER_SELECT_CASE_H

#include "select.h"

#include <stdio.h>
#include <stdlib.h>

static inline struct span case_text(struct request *request, const char *text, size_t len)
{
    struct span span = {(uint32_t)request->head.len, (uint32_t)len};
    if (!buf_append(&request->head, text, len, SIZE_MAX))
        abort();
    return span;
}

/* Add the line NAME: VALUE to REQUEST, whose FIELDS have room for it. */
static inline void case_add(struct request *request, const char *name, const char *value,
                            size_t len)
{
    struct field *field = &request->fields[request->fields_len++];
    field->name = case_text(request, name, strlen(name));
    field->value = case_text(request, value, len);
    request->header_len = request->fields_len;
}

#endif
