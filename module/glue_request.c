/* glue_request.c - what a handler reads of its request.
 *
 * Thread: Emacs.  Strings are made when somebody asks for them.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "decode.h"
#include "multipart.h"
#include "glue.h"
#include "proxy.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static emacs_value span_text(emacs_env *env, const struct request *request, struct span span)
{
    return lisp_text(env, request_at(request, span), span.len);
}

/* Percent-decoded. */
static emacs_value decoded_text(emacs_env *env, const char *bytes, size_t len, bool plus_is_blank)
{
    char small[512];
    char *out = len <= sizeof small ? small : malloc(len);
    if (!out) {
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
        return NULL;
    }
    size_t out_len = decode_percent(bytes, len, out, plus_is_blank);
    emacs_value text = lisp_text(env, out, out_len);
    if (out != small)
        free(out);
    return text;
}

static emacs_value path_text(emacs_env *env, const struct request *request)
{
    return decoded_text(env, request_at(request, request->path), request->path.len, false);
}

static bool is_form(const struct request *request)
{
    static const char type[] = "application/x-www-form-urlencoded";
    const struct field *field = request_field(request, "content-type");
    size_t len = sizeof type - 1;
    if (!field || field->value.len < len)
        return false;
    const char *value = request_at(request, field->value);
    return strncasecmp(value, type, len) == 0 && (field->value.len == len || value[len] == ';' ||
                                                  value[len] == ' ' || value[len] == '\t');
}

/* The body of REQUEST, fetched from its file if need be.  False on a pending signal. */
static bool load_body(emacs_env *env, const struct request *const_request)
{
    /* The loop has no use for the body while Emacs has the request. */
    struct request *request = (struct request *)const_request;
    if (!request->body_file || request->body.len)
        return true;
    if (body_file_read(request->body_file, &request->body))
        return true;
    lisp_signal(env, "porter-error", "Cannot read the body's file", NULL);
    return false;
}

/* Where urlencoded parameters are: the query, then a form. */
static size_t parameter_sources(emacs_env *env, const struct request *request,
                                struct iovec sources[2])
{
    size_t n = 0;
    if (request->query.len)
        sources[n++] = (struct iovec){(char *)request_at(request, request->query),
                                      request->query.len};
    if (request->body_bytes && is_form(request) && load_body(env, request) && request->body.len)
        sources[n++] = (struct iovec){request->body.data, request->body.len};
    return n;
}

/* The bytes of PART.  LOADED holds them, to be freed, when they come from a file; NULL on a
 * pending signal. */
static const char *part_content(emacs_env *env, const struct request *request,
                                const struct part *part, struct buf *loaded)
{
    if (!part->file) {
        CHECK(part->off + part->len <= request->body.len);
        return request->body.len ? request->body.data + part->off : "";
    }
    if (body_file_read(part->file, loaded))
        return loaded->len ? loaded->data : "";
    lisp_signal(env, "porter-error", "Cannot read a part's file", NULL);
    return NULL;
}

static emacs_value part_text(emacs_env *env, const struct request *request, struct span span)
{
    return lisp_text(env, request_text_at(request, span), span.len);
}

/* (NAME . VALUE) when BARE, else (NAME (content . BYTES) (filename . F) (content-type . T) (size . N)), with
 * (file . F) instead of the content when that is in a file. */
static emacs_value part_value(emacs_env *env, const struct request *request,
                              const struct part *part, bool bare)
{
    struct buf loaded = {0};
    emacs_value value = lisp.nil;
    const char *content = "";
    if (bare || !part->file)
        content = part_content(env, request, part, &loaded);
    if (content && bare) {
        value = lisp_text(env, content, (size_t)part->len);
    } else if (content) {
        emacs_value name = part->is_file ? part_text(env, request, part->filename) : lisp.nil;
        emacs_value type = part->has_type ? part_text(env, request, part->type) : lisp.nil;
        emacs_value where = part->file ? lisp_text(env, part->file->path, strlen(part->file->path))
                                       : lisp_bytes(env, content, (size_t)part->len);
        emacs_value elements[] = {
            lisp_cons(env, env->intern(env, part->file ? "file" : "content"), where),
            lisp_cons(env, env->intern(env, "filename"), name),
            lisp_cons(env, env->intern(env, "content-type"), type),
            lisp_cons(env, env->intern(env, "size"), lisp_integer(env, (intmax_t)part->len))};
        value = lisp_list(env, elements, ARRAY_LEN(elements));
    }
    buf_free(&loaded);
    if (lisp_failed(env))
        return NULL;
    return lisp_cons(env, part_text(env, request, part->name), value);
}

/* Values to make a list of: what is made one by one, and would be consed one by one, costs a call into Emacs
 * for each.  All begin as {0}. */
struct values {
    emacs_value small[24];
    emacs_value *large; /* instead, from then on */
    size_t len;
    size_t capacity; /* of LARGE */
};

/* Nothing is added while a signal is pending. */
static void add(emacs_env *env, struct values *values, emacs_value value)
{
    if (lisp_failed(env))
        return;
    size_t capacity = values->large ? values->capacity : ARRAY_LEN(values->small);
    if (values->len == capacity) {
        emacs_value *large = realloc(values->large, 2 * capacity * sizeof *large);
        if (!large) {
            lisp_signal(env, "porter-error", "Memory exhausted", NULL);
            return;
        }
        if (!values->large)
            memcpy(large, values->small, sizeof values->small);
        values->large = large;
        values->capacity = 2 * capacity;
    }
    (values->large ? values->large : values->small)[values->len++] = value;
}

/* The list of VALUES, which are empty then; NULL on a pending signal. */
static emacs_value list_of(emacs_env *env, struct values *values)
{
    emacs_value list = NULL;
    if (!lisp_failed(env))
        list = lisp_list(env, values->large ? values->large : values->small, values->len);
    free(values->large);
    values->large = NULL;
    values->len = 0;
    return list;
}

static void add_pair(emacs_env *env, struct values *values, emacs_value name, emacs_value value)
{
    if (!lisp_failed(env))
        add(env, values, lisp_cons(env, name, value));
}

/* Add the parts of REQUEST: files, fields, or both. */
static void add_parts(emacs_env *env, const struct request *request, bool fields, bool files,
                      struct values *values)
{
    for (uint32_t i = 0; i < request->parts_len && !lisp_failed(env); i++) {
        const struct part *part = &request->parts[i];
        if (part->is_file ? files : fields)
            add(env, values, part_value(env, request, part, !part->is_file));
    }
}

/* Add ("name" . "value") for each pair of SOURCE. */
static void add_pairs(emacs_env *env, const struct iovec *source, struct values *values)
{
    const char *at = source->iov_base;
    struct pair pair;
    unsigned count = 0;
    for (const char *end = at + source->iov_len;
         decode_next_pair(&at, end, &pair) && !lisp_failed(env);) {
        /* Every value made here lives until the module returns, and Emacs cannot be quit before. */
        if (++count > LIMIT_PARAMETERS)
            lisp_signal(env, "porter-too-large", "Too many parameters",
                        lisp_integer(env, LIMIT_PARAMETERS));
        add_pair(env, values, decoded_text(env, pair.name, pair.name_len, true),
                 decoded_text(env, pair.value, pair.value_len, true));
    }
}

static const char method_doc[] = "The method of request ID, a keyword such as `:GET'.";
GLUE_FUNCTION(method)
{
    const struct request *request = glue_request(env, args[0]);
    return request ? lisp.methods[request->method] : lisp.nil;
}

static const char path_doc[] = "The path of request ID, decoded.";
GLUE_FUNCTION(path)
{
    const struct request *request = glue_request(env, args[0]);
    return request ? path_text(env, request) : lisp.nil;
}

static const char target_doc[] = "The target of request ID as it was sent.";
GLUE_FUNCTION(target)
{
    const struct request *request = glue_request(env, args[0]);
    return request ? span_text(env, request, request->target) : lisp.nil;
}

static const char version_doc[] = "The HTTP version of request ID: \"1.1\" or \"1.0\".";
GLUE_FUNCTION(version)
{
    const struct request *request = glue_request(env, args[0]);
    if (!request)
        return lisp.nil;
    return lisp_text(env, request->version_minor ? "1.1" : "1.0", 3);
}

static const char parameters_doc[] =
    "The parameters of request ID, an alist of strings.\n"
    "Of the query, or of the form if FORM is non-nil.\n\n(fn ID FORM)";
GLUE_FUNCTION(parameters)
{
    const struct request *request = glue_request(env, args[0]);
    if (!request)
        return lisp.nil;
    struct iovec sources[2];
    size_t n = parameter_sources(env, request, sources);
    bool form = !lisp_is_nil(env, args[1]);
    struct values values = {0};
    for (size_t i = 0; i < n; i++)
        if (form == (sources[i].iov_base == request->body.data))
            add_pairs(env, &sources[i], &values);
    if (form)
        add_parts(env, request, true, false, &values);
    return list_of(env, &values);
}

/* Is the encoded NAME of LEN bytes the decoded string WANTED? */
static bool name_is(const char *name, size_t len, const struct buf *wanted)
{
    char small[256];
    if (len == wanted->len && !memchr(name, '%', len) && !memchr(name, '+', len))
        return memcmp(name, wanted->data, len) == 0;
    if (len < wanted->len || len > 3 * wanted->len)
        return false;
    char *out = len <= sizeof small ? small : malloc(len);
    if (!out)
        return false;
    size_t out_len = decode_percent(name, len, out, true);
    bool same = out_len == wanted->len && memcmp(out, wanted->data, out_len) == 0;
    if (out != small)
        free(out);
    return same;
}

static const char parameter_doc[] = "The first parameter NAME of request ID, of the query, then of "
                                    "a form; nil when absent.\n\n(fn ID NAME)";
GLUE_FUNCTION(parameter)
{
    const struct request *request = glue_request(env, args[0]);
    struct buf name = {0};
    emacs_value result = lisp.nil;
    if (lisp_failed(env) || !lisp_append_string(env, args[1], &name))
        goto out;
    if (!request)
        goto out;
    struct iovec sources[2];
    size_t n = parameter_sources(env, request, sources);
    for (size_t i = 0; i < n; i++) {
        const char *at = sources[i].iov_base;
        struct pair pair;
        for (const char *limit = at + sources[i].iov_len; decode_next_pair(&at, limit, &pair);) {
            if (!name_is(pair.name, pair.name_len, &name))
                continue;
            result = decoded_text(env, pair.value, pair.value_len, true);
            goto out;
        }
    }
    for (uint32_t i = 0; i < request->parts_len; i++) {
        const struct part *part = &request->parts[i];
        if (part->is_file || part->name.len != name.len ||
            (name.len && memcmp(request_text_at(request, part->name), name.data, name.len) != 0))
            continue;
        struct buf loaded = {0};
        const char *content = part_content(env, request, part, &loaded);
        if (content)
            result = lisp_text(env, content, (size_t)part->len);
        buf_free(&loaded);
        break;
    }
out:
    buf_free(&name);
    return lisp_failed(env) ? NULL : result;
}

static const char header_doc[] = "The value of the first header line NAME, in any case, of request "
                                 "ID; nil when absent.\n\n(fn ID NAME)";
GLUE_FUNCTION(header)
{
    const struct request *request = glue_request(env, args[0]);
    char name[128];
    ptrdiff_t size = 0;
    if (lisp_failed(env) || !env->copy_string_contents(env, args[1], NULL, &size))
        return NULL;
    if (!request || size > (ptrdiff_t)sizeof name ||
        !env->copy_string_contents(env, args[1], name, &size))
        return lisp.nil;
    /* A keyword's name has a colon, and its letters are capital. */
    char *start = name[0] == ':' ? name + 1 : name;
    for (char *byte = start; *byte; byte++)
        if (*byte >= 'A' && *byte <= 'Z')
            *byte = (char)(*byte + 32);
    const struct field *field = request_field(request, start);
    return field ? span_text(env, request, field->value) : lisp.nil;
}

static const char headers_doc[] =
    "All header lines of request ID in order, an alist (NAME . VALUE) of strings.\n"
    "With TRAILERS non-nil, those behind a chunked body instead.\n\n(fn ID TRAILERS)";
GLUE_FUNCTION(headers)
{
    const struct request *request = glue_request(env, args[0]);
    if (!request)
        return lisp.nil;
    bool trailers = !lisp_is_nil(env, args[1]);
    uint32_t from = trailers ? request->header_len : 0;
    uint32_t to = trailers ? request->fields_len : request->header_len;
    struct values values = {0};
    for (; from < to && !lisp_failed(env); from++) {
        const struct field *field = &request->fields[from];
        add_pair(env, &values, span_text(env, request, field->name),
                 span_text(env, request, field->value));
    }
    return list_of(env, &values);
}

static const char alist_doc[] =
    "The `headers' slot of request ID: (METHOD . PATH), the parameters, then (:NAME . VALUE) "
    "lines.\n"
    "With SMALL non-nil, nil instead when it has a body.\n\n(fn ID SMALL)";
GLUE_FUNCTION(alist)
{
    const struct request *request = glue_request(env, args[0]);
    if (!request || (request->body_bytes && !lisp_is_nil(env, args[1])))
        return lisp.nil;
    struct iovec sources[2];
    struct values values = {0};
    size_t n = parameter_sources(env, request, sources);
    add_pair(env, &values, lisp.methods[request->method], path_text(env, request));
    for (size_t i = 0; i < n; i++)
        add_pairs(env, &sources[i], &values);
    add_parts(env, request, true, true, &values);
    for (uint32_t i = 0; i < request->header_len && !lisp_failed(env); i++) {
        const struct field *field = &request->fields[i];
        add_pair(env, &values,
                 lisp_field_keyword(env, request_at(request, field->name), field->name.len),
                 span_text(env, request, field->value));
    }
    return list_of(env, &values);
}

/* TEXT of LEN bytes, decoded or, with RAW, as bytes. */
static emacs_value parameter_text(emacs_env *env, const char *text, size_t len, bool raw)
{
    if (!raw || (!memchr(text, '%', len) && !memchr(text, '+', len)))
        return raw ? lisp_bytes(env, text, len) : decoded_text(env, text, len, true);
    struct buf bytes = {0};
    if (!buf_reserve(&bytes, len, SIZE_MAX))
        return lisp.nil;
    emacs_value value = lisp_bytes(env, bytes.data, decode_percent(text, len, bytes.data, true));
    buf_free(&bytes);
    return value;
}

static const char ws_alist_doc[] =
    "The slot `headers' of request ID as web-server has it: nil, (METHOD . PATH) with the path as\n"
    "sent, the query's parameters, the last one first, then (:NAME . VALUE) lines.\n"
    "Parameters are text, or bytes if RAW is non-nil.  Return nil when there is more to do: for a "
    "form,\nor a header Authorization.\n\n(fn ID RAW)";
GLUE_FUNCTION(ws_alist)
{
    const struct request *request = glue_request(env, args[0]);
    if (!request || request->parts_len || is_form(request) ||
        request_field(request, "authorization"))
        return lisp.nil;
    const struct field *type = request_field(request, "content-type");
    if (type && multipart_is_form(request_at(request, type->value), type->value.len))
        return lisp.nil;
    bool raw = !lisp_is_nil(env, args[1]);
    const char *target = request_at(request, request->target);
    const char *mark = memchr(target, '?', request->target.len);
    size_t path_len = mark ? (size_t)(mark - target) : request->target.len;
    struct pair pairs[64];
    size_t count = 0;
    const char *end = target + request->target.len;
    const char *at = mark ? mark + 1 : end;
    while (count < ARRAY_LEN(pairs) && decode_next_pair(&at, end, &pairs[count]))
        count++;
    if (count == ARRAY_LEN(pairs))
        return lisp.nil;
    struct values values = {0};
    add(env, &values, lisp.nil);
    add_pair(env, &values, lisp.methods[request->method], lisp_text(env, target, path_len));
    while (count-- && !lisp_failed(env)) {
        const struct pair *pair = &pairs[count];
        add_pair(env, &values, parameter_text(env, pair->name, pair->name_len, raw),
                 parameter_text(env, pair->value, pair->value_len, raw));
    }
    for (uint32_t i = 0; i < request->header_len && !lisp_failed(env); i++) {
        const struct field *field = &request->fields[i];
        add_pair(env, &values,
                 lisp_field_keyword(env, request_at(request, field->name), field->name.len),
                 span_text(env, request, field->value));
    }
    return list_of(env, &values);
}

static const char body_doc[] =
    "The body of request ID, a unibyte string; nil for one of which only the parts were kept.";
GLUE_FUNCTION(body)
{
    const struct request *request = glue_request(env, args[0]);
    if (!request || request->body_is_parts)
        return lisp.nil;
    if (!load_body(env, request))
        return NULL;
    return lisp_bytes(env, request->body.data, request->body.len);
}

static const char body_streams_doc[] = "Does the body of request ID come in pieces?";
GLUE_FUNCTION(body_streams)
{
    const struct request *request = glue_request(env, args[0]);
    return lisp_boolean(request && request->body_streams);
}

static const char body_taken_doc[] =
    "LEN bytes of the body of request ID have been dealt with.\n\n(fn ID LEN)";
GLUE_FUNCTION(body_taken)
{
    struct exchange *exchange = glue_exchange(env, args[0]);
    intmax_t len = env->extract_integer(env, args[1]);
    if (!lisp_failed(env) && exchange && exchange->request.body_streams)
        bridge_body_taken(&bridge, exchange, (size_t)len);
    return lisp.nil;
}

static const char body_file_doc[] = "The file name of the body of request ID, or nil.";
GLUE_FUNCTION(body_file)
{
    const struct request *request = glue_request(env, args[0]);
    if (!request || !request->body_file)
        return lisp.nil;
    return lisp_text(env, request->body_file->path, strlen(request->body_file->path));
}

static const char parts_doc[] =
    "The parts of request ID, in order, each with all that is known of it.\n"
    "Only those that are files if FILES is non-nil.\n\n(fn ID FILES)";
GLUE_FUNCTION(parts)
{
    const struct request *request = glue_request(env, args[0]);
    if (!request)
        return lisp.nil;
    bool files = !lisp_is_nil(env, args[1]);
    struct values values = {0};
    for (uint32_t i = 0; i < request->parts_len && !lisp_failed(env); i++)
        if (request->parts[i].is_file || !files)
            add(env, &values, part_value(env, request, &request->parts[i], false));
    return list_of(env, &values);
}

static const char keep_file_doc[] =
    "Do not delete FILE, one of the files of request ID.  Nil when it is none.\n\n(fn ID FILE)";
GLUE_FUNCTION(keep_file)
{
    const struct request *request = glue_request(env, args[0]);
    char *path = lisp_c_string(env, args[1]);
    emacs_value result = lisp.nil;
    struct body_file **file;
    for (uint32_t i = 0; path && request && (file = request_file((struct request *)request, i));
         i++) {
        if (strcmp((*file)->path, path) != 0)
            continue;
        (*file)->taken = true;
        result = lisp.t;
    }
    free(path);
    return lisp_failed(env) ? NULL : result;
}

static const char remote_doc[] =
    "The client of request ID: (ADDRESS . PORT), or t for one on a Unix-domain socket.";
GLUE_FUNCTION(remote)
{
    const struct peer *peer;
    intmax_t id = env->extract_integer(env, args[0]);
    if (lisp_failed(env) || id < 0 || !bridge_request(&bridge, (exchange_id)id, &peer))
        return lisp.nil;
    char text[INET6_ADDRSTRLEN];
    int family = peer->address.sa.sa_family;
    uint16_t port;
    if (family == AF_INET) {
        inet_ntop(AF_INET, &peer->address.in.sin_addr, text, sizeof text);
        port = ntohs(peer->address.in.sin_port);
    } else if (family == AF_INET6) {
        inet_ntop(AF_INET6, &peer->address.in6.sin6_addr, text, sizeof text);
        port = ntohs(peer->address.in6.sin6_port);
    } else {
        return lisp.t;
    }
    return lisp_cons(env, lisp_text(env, text, strlen(text)), lisp_integer(env, port));
}

static const char network_has_doc[] =
    "Is ADDRESS in NETWORK, an address or \"ADDRESS/BITS\"?\n\n(fn NETWORK ADDRESS)";
GLUE_FUNCTION(network_has)
{
    char *network = lisp_c_string(env, args[0]);
    char *address = lisp_c_string(env, args[1]);
    bool has = network && address && proxy_network_has(network, address);
    free(network);
    free(address);
    return lisp_failed(env) ? NULL : lisp_boolean(has);
}

static const struct glue_function functions[] = {
    {"porter--mod-method", 1, method, method_doc},
    {"porter--mod-path", 1, path, path_doc},
    {"porter--mod-target", 1, target, target_doc},
    {"porter--mod-version", 1, version, version_doc},
    {"porter--mod-parameters", 2, parameters, parameters_doc},
    {"porter--mod-parameter", 2, parameter, parameter_doc},
    {"porter--mod-header", 2, header, header_doc},
    {"porter--mod-headers", 2, headers, headers_doc},
    {"porter--mod-alist", 2, alist, alist_doc},
    {"porter--mod-ws-alist", 2, ws_alist, ws_alist_doc},
    {"porter--mod-body", 1, body, body_doc},
    {"porter--mod-body-streams", 1, body_streams, body_streams_doc},
    {"porter--mod-body-taken", 2, body_taken, body_taken_doc},
    {"porter--mod-body-file", 1, body_file, body_file_doc},
    {"porter--mod-parts", 2, parts, parts_doc},
    {"porter--mod-keep-file", 2, keep_file, keep_file_doc},
    {"porter--mod-remote", 1, remote, remote_doc},
    {"porter--mod-network-has", 2, network_has, network_has_doc},
};
const struct glue_table glue_request_table = {functions, ARRAY_LEN(functions)};
