/* request.c - one request as parsed: made, emptied, looked at, freed.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "request.h"

#include "check.h"
#include "limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct request *request_new(void)
{
    return calloc(1, sizeof(struct request));
}

void body_file_free(struct body_file *file)
{
    if (!file)
        return;
    if (file->path && !file->taken)
        unlink(file->path);
    free(file->path);
    free(file);
}

bool body_file_read(const struct body_file *file, struct buf *buf)
{
    size_t before = buf->len;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && buf_reserve(buf, (size_t)file->bytes, SIZE_MAX);
    while (good && buf->len - before < file->bytes) {
        ssize_t n = read(fd, buf->data + buf->len, (size_t)file->bytes - (buf->len - before));
        if (n < 0 && errno == EINTR)
            continue;
        good = n > 0;
        if (good)
            buf->len += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    if (!good)
        buf->len = before;
    return good;
}

struct body_file **request_file(struct request *request, uint32_t n)
{
    if (request->body_file && n-- == 0)
        return &request->body_file;
    for (uint32_t i = 0; i < request->parts_len; i++)
        if (request->parts[i].file && n-- == 0)
            return &request->parts[i].file;
    return NULL;
}

bool request_copy_head(struct request *copy, const struct request *request)
{
    struct request kept = *copy;
    if (!buf_append(&kept.head, request->head.data, request->head.len, SIZE_MAX)) {
        *copy = kept;
        return false;
    }
    if (kept.fields_capacity < request->header_len) {
        struct field *fields = realloc(kept.fields, request->header_len * sizeof *fields);
        if (!fields) {
            *copy = kept;
            return false;
        }
        kept.fields = fields;
        kept.fields_capacity = request->header_len;
    }
    if (request->header_len)
        memcpy(kept.fields, request->fields, request->header_len * sizeof *kept.fields);
    *copy = *request;
    copy->head = kept.head;
    copy->body = kept.body;
    copy->fields = kept.fields;
    copy->fields_capacity = kept.fields_capacity;
    copy->fields_len = request->header_len;
    copy->body_file = NULL;
    copy->parts = NULL;
    copy->parts_len = copy->parts_capacity = 0;
    copy->texts = kept.texts;
    return true;
}

static void free_body(struct request *request)
{
    for (struct body_file **file; (file = request_file(request, 0)); *file = NULL)
        body_file_free(*file);
    free(request->parts);
    request->parts = NULL;
    buf_free(&request->texts);
}

void request_reset(struct request *request)
{
    if (request->body_file || request->parts)
        free_body(request);
    struct request kept = {
        .head = request->head,
        .body = request->body,
        .fields = request->fields,
        .fields_capacity = request->fields_capacity,
    };
    buf_reset(&kept.head, LIMIT_KEEP_BYTES);
    buf_reset(&kept.body, LIMIT_KEEP_BYTES);
    if (kept.fields_capacity > LIMIT_KEEP_BYTES / sizeof(struct field)) {
        free(kept.fields);
        kept.fields = NULL;
        kept.fields_capacity = 0;
    }
    *request = kept;
}

void request_clear(struct request *request)
{
    free_body(request);
    buf_free(&request->head);
    buf_free(&request->body);
    free(request->fields);
    *request = (struct request){0};
}

void request_free(struct request *request)
{
    if (!request)
        return;
    request_clear(request);
    free(request);
}

static unsigned char lower(unsigned char byte)
{
    return byte >= 'A' && byte <= 'Z' ? (unsigned char)(byte | 0x20) : byte;
}

/* True when the LEN bytes of TEXT are those of LOWERED, whatever the case of their letters. */
static bool same(const char *text, const char *lowered, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (lower((unsigned char)text[i]) != (unsigned char)lowered[i])
            return false;
    return true;
}

const struct field *request_field(const struct request *request, const char *name)
{
    size_t len = strlen(name);
    for (uint32_t i = 0; i < request->header_len; i++) {
        const struct field *field = &request->fields[i];
        if (field->name.len == len && same(request_at(request, field->name), name, len))
            return field;
    }
    return NULL;
}

bool request_span_is(const struct request *request, struct span span, const char *lower_text)
{
    size_t len = strlen(lower_text);
    return span.len == len && (!len || same(request_at(request, span), lower_text, len));
}

static const char *const method_names[METHOD_COUNT] = {
    [METHOD_NONE] = "",
    [METHOD_GET] = "GET",
    [METHOD_HEAD] = "HEAD",
    [METHOD_POST] = "POST",
    [METHOD_PUT] = "PUT",
    [METHOD_DELETE] = "DELETE",
    [METHOD_OPTIONS] = "OPTIONS",
    [METHOD_TRACE] = "TRACE",
    [METHOD_PATCH] = "PATCH",
    [METHOD_COPY] = "COPY",
    [METHOD_LOCK] = "LOCK",
    [METHOD_MKCOL] = "MKCOL",
    [METHOD_MOVE] = "MOVE",
    [METHOD_PROPFIND] = "PROPFIND",
    [METHOD_PROPPATCH] = "PROPPATCH",
    [METHOD_SEARCH] = "SEARCH",
    [METHOD_UNLOCK] = "UNLOCK",
    [METHOD_BIND] = "BIND",
    [METHOD_REBIND] = "REBIND",
    [METHOD_UNBIND] = "UNBIND",
    [METHOD_ACL] = "ACL",
    [METHOD_REPORT] = "REPORT",
    [METHOD_MKACTIVITY] = "MKACTIVITY",
    [METHOD_CHECKOUT] = "CHECKOUT",
    [METHOD_MERGE] = "MERGE",
    [METHOD_MKCALENDAR] = "MKCALENDAR",
    [METHOD_LINK] = "LINK",
    [METHOD_UNLINK] = "UNLINK",
    [METHOD_PURGE] = "PURGE",
};

const char *method_name(enum method method)
{
    CHECK(method >= METHOD_NONE && method < METHOD_COUNT);
    return method_names[method];
}
