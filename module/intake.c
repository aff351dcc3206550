/* intake.c - where the body of a request goes that is a form with parts, or large.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "intake.h"

#include <stdlib.h>

static int fail(struct intake *intake, int status, const char *reason)
{
    intake->reason = reason;
    return status;
}

static int no_memory(struct intake *intake)
{
    return fail(intake, 503, "out of memory");
}

static void on_spool(void *data)
{
    struct intake *intake = data;
    intake->on_progress(intake->data);
}

/* Begin a file for part number PART, or for the whole body. */
static int begin_file(struct intake *intake, int64_t part)
{
    if (intake->files_len == intake->files_capacity) {
        uint32_t capacity = intake->files_capacity ? intake->files_capacity * 2 : 1;
        struct intake_file *files = realloc(intake->files, capacity * sizeof *files);
        if (!files)
            return no_memory(intake);
        intake->files = files;
        intake->files_capacity = capacity;
    }
    struct spool *spool = spool_new(intake->hub, intake->server->spool_directory, on_spool, intake);
    if (!spool)
        return no_memory(intake);
    intake->files[intake->files_len++] = (struct intake_file){spool, part};
    intake->filling = true;
    return 0;
}

static int fill_file(struct intake *intake, const char *bytes, size_t len)
{
    struct spool *spool = intake->files[intake->files_len - 1].spool;
    return spool_write(spool, bytes, len) ? 0 : no_memory(intake);
}

static void end_file(struct intake *intake)
{
    intake->filling = false;
    spool_end(intake->files[intake->files_len - 1].spool);
}

/* ---- parts ---- */

uint64_t intake_memory_max(const struct limits *limits)
{
    uint64_t max = limits->spool_bytes_min;
    return max > LIMIT_SPOOL_BYTES_SHORT && buf_live_bytes() > LIMIT_MEMORY_BYTES
               ? LIMIT_SPOOL_BYTES_SHORT
               : max;
}

static size_t memory_max(const struct intake *intake)
{
    uint64_t max = intake_memory_max(&intake->server->limits);
    return max && max < SIZE_MAX / 2 ? (size_t)max : SIZE_MAX / 2;
}

static bool add_text(struct request *request, const char *bytes, size_t len, struct span *span)
{
    *span = (struct span){(uint32_t)request->texts.len, (uint32_t)len};
    return buf_append(&request->texts, bytes, len, LIMIT_PARTS_TEXT_BYTES);
}

static int on_begin(void *data, const struct multipart_head *head)
{
    struct intake *intake = data;
    struct request *request = intake->request;
    if (request->parts_len == request->parts_capacity || !request->parts) {
        uint32_t capacity = request->parts ? request->parts_capacity * 2 : 4;
        struct part *parts = realloc(request->parts, capacity * sizeof *parts);
        if (!parts)
            return no_memory(intake);
        request->parts = parts;
        request->parts_capacity = capacity;
    }
    struct part *part = &request->parts[request->parts_len];
    *part = (struct part){.is_file = head->filename != NULL, .has_type = head->type != NULL};
    if (!add_text(request, head->name, head->name_len, &part->name) ||
        !add_text(request, head->filename, head->filename_len, &part->filename) ||
        !add_text(request, head->type, head->type_len, &part->type))
        return fail(intake, 413, "the names in the form are too long");
    part->off = intake->raw ? intake->multipart.offset : request->body.len;
    request->parts_len++;
    return 0;
}

/* The content of the current part so far moves to a file. */
static int move_to_file(struct intake *intake)
{
    struct request *request = intake->request;
    struct part *part = &request->parts[request->parts_len - 1];
    int status = begin_file(intake, request->parts_len - 1);
    if (!status && part->len)
        status = fill_file(intake, request->body.data + part->off, (size_t)part->len);
    request->body.len = (size_t)part->off;
    return status;
}

static int on_content(void *data, const char *bytes, size_t len)
{
    struct intake *intake = data;
    struct request *request = intake->request;
    struct part *part = &request->parts[request->parts_len - 1];
    int status = 0;
    if (!intake->raw && !intake->filling && request->body.len + len > memory_max(intake))
        status = move_to_file(intake);
    if (!status && intake->filling)
        status = fill_file(intake, bytes, len);
    else if (!status && !intake->raw && !buf_append(&request->body, bytes, len, SIZE_MAX))
        status = no_memory(intake);
    part->len += len;
    return status;
}

static int on_end(void *data)
{
    struct intake *intake = data;
    if (intake->filling)
        end_file(intake);
    return 0;
}

static const struct multipart_sink sink = {on_begin, on_content, on_end};

/* The form is large: from now on keep only its parts. */
static int keep_parts_only(struct intake *intake)
{
    struct request *request = intake->request;
    intake->raw = false;
    request->body_is_parts = true;
    if (!request->parts_len) {
        request->body.len = 0;
        return 0;
    }
    struct part *last = &request->parts[request->parts_len - 1];
    request->body.len = (size_t)(last->off + last->len);
    return intake->multipart.in_part ? move_to_file(intake) : 0;
}

static int form_bytes(struct intake *intake, const char *bytes, size_t len)
{
    struct request *request = intake->request;
    int status = 0;
    if (intake->raw && request->body.len + len > memory_max(intake))
        status = keep_parts_only(intake);
    else if (intake->raw && !buf_append(&request->body, bytes, len, SIZE_MAX))
        status = no_memory(intake);
    if (!status) {
        status = multipart_feed(&intake->multipart, bytes, len);
        if (status && !intake->reason)
            intake->reason = intake->multipart.reason;
    }
    return status;
}

/* ---- the whole ---- */

struct intake *intake_new(struct hub *hub, struct server *server, struct request *request,
                          void (*on_progress)(void *data), void *data, int *status,
                          const char **reason)
{
    const struct field *type = request_field(request, "content-type");
    struct intake *intake = calloc(1, sizeof *intake);
    *status = 503;
    *reason = "out of memory";
    if (!intake)
        return NULL;
    intake->hub = hub;
    intake->server = server;
    intake->request = request;
    intake->on_progress = on_progress;
    intake->data = data;
    *status = 0;
    if (type && multipart_is_form(request_at(request, type->value), type->value.len)) {
        intake->is_form = intake->raw = true;
        if (!multipart_init(&intake->multipart, request_at(request, type->value), type->value.len,
                            &sink, intake))
            *status = fail(intake, 400, intake->multipart.reason);
    } else {
        *status = begin_file(intake, -1);
        if (!*status && request->body.len)
            *status = fill_file(intake, request->body.data, request->body.len);
        buf_reset(&request->body, 0);
    }
    if (*status) {
        *reason = intake->reason;
        intake_free(intake);
        return NULL;
    }
    return intake;
}

int intake_bytes(struct intake *intake, const char *bytes, size_t len)
{
    return intake->is_form ? form_bytes(intake, bytes, len) : fill_file(intake, bytes, len);
}

int intake_end(struct intake *intake)
{
    int status = 0;
    if (intake->is_form) {
        status = multipart_end(&intake->multipart);
        if (status)
            intake->reason = intake->multipart.reason;
    } else {
        end_file(intake);
    }
    return status;
}

int intake_status(struct intake *intake)
{
    for (uint32_t i = 0; i < intake->files_len; i++)
        if (intake->files[i].spool->error)
            return fail(intake, 507, "the body cannot be stored");
    return 0;
}

bool intake_is_full(const struct intake *intake)
{
    /* Of many small files that end while the disk is behind, each has its own buffer. */
    uint32_t busy = 0;
    for (uint32_t i = intake->files_len; i > 0 && intake->files_len - i < 16; i--) {
        const struct spool *spool = intake->files[i - 1].spool;
        busy += spool->busy;
        if (spool_is_full(spool))
            return true;
    }
    return busy >= 8;
}

bool intake_is_settled(const struct intake *intake)
{
    for (uint32_t i = 0; i < intake->files_len; i++)
        if (!intake->files[i].spool->done)
            return false;
    return true;
}

void intake_deliver(struct intake *intake)
{
    for (uint32_t i = 0; i < intake->files_len; i++) {
        struct intake_file *file = &intake->files[i];
        struct body_file *taken = spool_take(file->spool);
        if (file->part < 0)
            intake->request->body_file = taken;
        else
            intake->request->parts[file->part].file = taken;
    }
}

void intake_free(struct intake *intake)
{
    if (!intake)
        return;
    for (uint32_t i = 0; i < intake->files_len; i++)
        spool_free(intake->files[i].spool);
    free(intake->files);
    multipart_free(&intake->multipart);
    free(intake);
}
