/* request.h - one request as parsed: written by the parser, frozen when it is complete.
 *
 * Thread: the owner's (loop while it grows, Emacs while a handler looks at it).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_REQUEST_H
#define PORTER_REQUEST_H

#include "buf.h"

/* Bytes OFF to OFF + LEN of a request's HEAD buffer. */
struct span {
    uint32_t off;
    uint32_t len;
};

struct field {
    struct span name;  /* as sent, in any case */
    struct span value; /* without the blanks around it */
};

/* A temporary file with a body, or with a part of one.  It is deleted with its request, unless it was
 * taken over. */
struct body_file {
    char *path;
    uint64_t bytes;
    bool taken;
};

/* One part of a multipart/form-data body (RFC 7578).  Spans are of the request's TEXTS. */
struct part {
    struct span name;
    struct span filename; /* when is_file */
    struct span type;     /* when has_type */
    bool is_file;         /* it has a file name, perhaps an empty one */
    bool has_type;
    uint64_t off; /* of the content in the request's body, unless it is in FILE */
    uint64_t len;
    struct body_file *file; /* owned, or NULL */
};

/* The methods that Porter knows; any other token is answered 501 by the parser. */
enum method {
    METHOD_NONE = 0,
    METHOD_GET,
    METHOD_HEAD,
    METHOD_POST,
    METHOD_PUT,
    METHOD_DELETE,
    METHOD_OPTIONS,
    METHOD_TRACE,
    METHOD_PATCH,
    /* WebDAV (RFC 4918, 3253, 3744, 5323) and others of the registry that llhttp reads. */
    METHOD_COPY,
    METHOD_LOCK,
    METHOD_MKCOL,
    METHOD_MOVE,
    METHOD_PROPFIND,
    METHOD_PROPPATCH,
    METHOD_SEARCH,
    METHOD_UNLOCK,
    METHOD_BIND,
    METHOD_REBIND,
    METHOD_UNBIND,
    METHOD_ACL,
    METHOD_REPORT,
    METHOD_MKACTIVITY,
    METHOD_CHECKOUT,
    METHOD_MERGE,
    METHOD_MKCALENDAR,
    METHOD_LINK,
    METHOD_UNLINK,
    METHOD_PURGE,
    METHOD_COUNT
};

struct request {
    struct buf head; /* the bytes of request line, fields and trailers, as received */
    struct buf body; /* decoded of chunking; empty when it is in BODY_FILE */

    struct body_file *body_file; /* owned: the whole body, when it is large; else NULL */
    struct part *parts;          /* of a form, in order; see body_is_parts */
    uint32_t parts_len;
    uint32_t parts_capacity;
    struct buf texts; /* names, file names and types of the parts */

    struct field *fields; /* all field lines in order, the trailers behind the header */
    uint32_t fields_len;
    uint32_t fields_capacity;
    uint32_t header_len; /* fields_len without the trailers */

    enum method method;
    struct span target;    /* as sent */
    struct span path;      /* of the target, still encoded; "*" for OPTIONS * */
    struct span query;     /* of the target, without "?"; LEN 0 when absent */
    struct span authority; /* host[:port]: of an absolute target, else of Host */

    uint64_t content_length; /* 0 when absent or chunked */
    uint64_t body_bytes;     /* received so far, decoded */
    uint8_t version_minor;   /* HTTP/1.0 or HTTP/1.1 */
    bool chunked;
    bool keep_alive;       /* what version and Connection ask for */
    bool expects_continue; /* Expect: 100-continue, on 1.1 and with a body to come */
    bool upgrade;          /* Connection: upgrade and an Upgrade field */
    bool complete;
    bool body_streams;  /* it comes to Lisp in pieces, and is not here */
    bool body_is_parts; /* of a large form BODY holds only the contents of small parts */
};

struct request *request_new(void);
/* Make REQUEST empty, keeping small buffers for the next one. */
void request_reset(struct request *request);
void request_free(struct request *request);
/* Free the buffers of an embedded REQUEST; all zero afterwards. */
void request_clear(struct request *request);

static inline const char *request_at(const struct request *request, struct span span)
{
    return request->head.data + span.off;
}

static inline const char *request_text_at(const struct request *request, struct span span)
{
    return request->texts.len ? request->texts.data + span.off : "";
}

/* Make the empty COPY what REQUEST is by its head.  False when memory is out. */
bool request_copy_head(struct request *copy, const struct request *request);

/* The Nth file of REQUEST, for N from 0 on, or NULL behind the last; *FILE is emptied by who takes it. */
struct body_file **request_file(struct request *request, uint32_t n);

/* Delete the file, unless it was taken over, and free FILE, which may be NULL. */
void body_file_free(struct body_file *file);

/* Append what is in FILE to BUF.  False, and nothing appended, when that fails. */
bool body_file_read(const struct body_file *file, struct buf *buf);

/* The first header field called NAME (lower case), or NULL.  Trailers are not looked at. */
const struct field *request_field(const struct request *request, const char *name);

/* True when SPAN of REQUEST equals LOWER without regard to ASCII case. */
bool request_span_is(const struct request *request, struct span span, const char *lower);

/* "GET" for METHOD_GET. */
const char *method_name(enum method method);

#endif
