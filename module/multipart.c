/* multipart.c - multipart/form-data in, its parts out.
 *
 *     PREAMBLE --delimiter--> AFTER --CRLF--> HEAD --empty line--> CONTENT
 *                              | ^                                    |
 *                 "--" (DASH)  | +------------ delimiter -------------+
 *                              v
 *                          EPILOGUE
 *
 * A delimiter is one only at the beginning of a line and with nothing but blanks behind it, so
 * "--boundaries" under the boundary "boundary" is content.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "multipart.h"

#include "check.h"
#include "decode.h"
#include "limits.h"

#include <stdlib.h>
#include <strings.h>

enum state {
    STATE_CONTENT = 0, /* or the preamble, when no part has begun */
    STATE_AFTER,       /* behind a delimiter, if it is one */
    STATE_AFTER_CR,
    STATE_DASH,
    STATE_PADDING, /* blanks behind a delimiter */
    STATE_PADDING_CR,
    STATE_HEAD,
    STATE_EPILOGUE
};

static int fail(struct multipart *multipart, int status, const char *reason)
{
    multipart->reason = reason;
    return status;
}

/* ---- header values ---- */

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

static bool equals(const char *bytes, size_t len, const char *lower)
{
    return strlen(lower) == len && strncasecmp(bytes, lower, len) == 0;
}

/* A parameter of a header value, its quotes taken off. */
struct parameter {
    const char *name;
    size_t name_len;
    char *value; /* where the value was, or moved forward over backslashes */
    size_t value_len;
};

/* What quotes hold from AT on, unescaped in place; *AT moves behind them.  False without an end.
 *
 * Browsers send `"' as %22 or, of old, as \"; and of old they sent whole file names of Windows
 * with plain backslashes.  So a backslash is one unless a quote or a backslash follows. */
static bool read_quoted(char **at, const char *end, struct parameter *parameter)
{
    char *out = ++*at;
    parameter->value = out;
    for (char *in = out; in < end; in++) {
        if (*in == '"') {
            parameter->value_len = (size_t)(out - parameter->value);
            *at = in + 1;
            return true;
        }
        if (*in == '\\' && in + 1 < end && (in[1] == '"' || in[1] == '\\'))
            in++;
        *out++ = *in;
    }
    return false;
}

/* The next parameter of [*AT, END).  1 when there is one, 0 at the end, -1 for bad syntax. */
static int next_parameter(char **at, const char *end, struct parameter *parameter)
{
    while (*at < end && (is_blank(**at) || **at == ';'))
        ++*at;
    if (*at == end)
        return 0;
    parameter->name = *at;
    while (*at < end && **at != '=' && **at != ';')
        ++*at;
    parameter->name_len = (size_t)(*at - parameter->name);
    while (parameter->name_len && is_blank(parameter->name[parameter->name_len - 1]))
        parameter->name_len--;
    parameter->value = *at;
    parameter->value_len = 0;
    if (*at == end || **at == ';')
        return 1;
    ++*at;
    while (*at < end && is_blank(**at))
        ++*at;
    if (*at < end && **at == '"') {
        if (!read_quoted(at, end, parameter))
            return -1;
        while (*at < end && is_blank(**at))
            ++*at;
        return *at == end || **at == ';' ? 1 : -1;
    }
    parameter->value = *at;
    while (*at < end && **at != ';')
        ++*at;
    parameter->value_len = (size_t)(*at - parameter->value);
    while (parameter->value_len && is_blank(parameter->value[parameter->value_len - 1]))
        parameter->value_len--;
    return 1;
}

/* The value without its parameters; *AT moves to these. */
static size_t main_value(char **at, const char *end)
{
    const char *start = *at;
    while (*at < end && **at != ';')
        ++*at;
    size_t len = (size_t)(*at - start);
    while (len && is_blank(start[len - 1]))
        len--;
    return len;
}

bool multipart_is_form(const char *type, size_t len)
{
    static const char form[] = "multipart/form-data";
    size_t form_len = sizeof form - 1;
    return len >= form_len && strncasecmp(type, form, form_len) == 0 &&
           (len == form_len || type[form_len] == ';' || is_blank(type[form_len]));
}

bool multipart_init(struct multipart *multipart, const char *type, size_t len,
                    const struct multipart_sink *sink, void *data)
{
    *multipart = (struct multipart){.sink = sink, .data = data};
    multipart->reason = "the form has no boundary";
    char *copy = malloc(len + 1);
    if (!copy)
        return false;
    memcpy(copy, type, len);
    char *at = copy;
    const char *end = copy + len;
    struct parameter parameter;
    size_t boundary_len = 0;
    main_value(&at, end);
    while (next_parameter(&at, end, &parameter) > 0) {
        if (!equals(parameter.name, parameter.name_len, "boundary"))
            continue;
        boundary_len = parameter.value_len;
        break;
    }
    bool good = boundary_len > 0 && boundary_len <= MULTIPART_BOUNDARY_MAX;
    /* RFC 2046 section 5.1.1 has fewer characters; clients exist that use others. */
    for (size_t i = 0; good && i < boundary_len; i++)
        good = (unsigned char)parameter.value[i] >= ' ' && parameter.value[i] != 0x7f;
    if (good && parameter.value[boundary_len - 1] != ' ') {
        memcpy(multipart->delimiter, "\r\n--", 4);
        memcpy(multipart->delimiter + 4, parameter.value, boundary_len);
        multipart->delimiter_len = (uint8_t)(4 + boundary_len);
        /* The first delimiter may be the first line. */
        multipart->matched = multipart->assumed = 2;
    } else {
        good = false;
    }
    free(copy);
    return good;
}

/* ---- the head of a part ---- */

/* RFC 8187: charset'language'percent-encoded.  Written over the value as UTF-8; false when it is
 * something else, and then the plain file name counts. */
static bool read_extended(struct parameter *parameter, struct buf *out)
{
    const char *end = parameter->value + parameter->value_len;
    char *quote = memchr(parameter->value, '\'', parameter->value_len);
    char *second = quote ? memchr(quote + 1, '\'', (size_t)(end - quote - 1)) : NULL;
    if (!second)
        return false;
    size_t charset_len = (size_t)(quote - parameter->value);
    bool latin = equals(parameter->value, charset_len, "iso-8859-1");
    if (!latin && !equals(parameter->value, charset_len, "utf-8"))
        return false;
    char *text = second + 1;
    size_t len = decode_percent(text, (size_t)(end - text), text, false);
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)text[i];
        char pair[2] = {(char)(0xc0 | byte >> 6), (char)(0x80 | (byte & 0x3f))};
        bool wide = latin && byte >= 0x80;
        if (byte < ' ' || byte == 0x7f ||
            !buf_append(out, wide ? pair : text + i, wide ? 2 : 1, LIMIT_PART_HEAD_BYTES * 2))
            return false;
    }
    return latin || decode_text_kind(out->data, out->len) != TEXT_BYTES;
}

/* Content-Disposition (RFC 7578 section 4.2).  EXTENDED gets the value of filename*. */
static bool read_disposition(char *at, const char *end, struct multipart_head *head,
                             struct buf *extended)
{
    const char *kind = at;
    if (!equals(kind, main_value(&at, end), "form-data"))
        return false;
    struct parameter parameter;
    int more;
    while ((more = next_parameter(&at, end, &parameter)) > 0) {
        if (equals(parameter.name, parameter.name_len, "name") && !head->name) {
            head->name = parameter.value;
            head->name_len = parameter.value_len;
        } else if (equals(parameter.name, parameter.name_len, "filename") && !head->filename) {
            head->filename = parameter.value;
            head->filename_len = parameter.value_len;
        } else if (equals(parameter.name, parameter.name_len, "filename*") && !extended->len) {
            if (!read_extended(&parameter, extended))
                extended->len = 0;
        }
    }
    if (extended->len) {
        head->filename = extended->data;
        head->filename_len = extended->len;
    }
    return more == 0 && head->name;
}

/* One line, unfolded, without its end.  False when the head is bad. */
static bool read_line(char *line, size_t len, struct multipart_head *head, struct buf *extended)
{
    static const char disposition[] = "content-disposition";
    static const char type[] = "content-type";
    const char *end = line + len;
    char *colon = memchr(line, ':', len);
    if (!colon || colon == line)
        return false;
    size_t name_len = (size_t)(colon - line);
    char *value = colon + 1;
    while (value < end && is_blank(*value))
        value++;
    while (end > value && is_blank(end[-1]))
        end--;
    if (equals(line, name_len, disposition))
        return !head->name && read_disposition(value, end, head, extended);
    if (equals(line, name_len, type) && !head->type) {
        head->type = value;
        head->type_len = (size_t)(end - value);
    }
    return true;
}

/* The whole head is in multipart->head: read it, and begin the part. */
static int begin_part(struct multipart *multipart)
{
    struct multipart_head head = {0};
    struct buf extended = {0};
    bool good = true;
    char *at = multipart->head.data;
    char *end = at + multipart->head.len - 2; /* without the empty line */
    /* Folded lines are lines of mail; a blank takes the place of their ends. */
    for (char *byte = at; byte < end; byte++) {
        unsigned char c = (unsigned char)*byte;
        if (c == '\r' && byte + 2 < end && byte[1] == '\n' && is_blank(byte[2]))
            byte[0] = byte[1] = ' ';
        else if ((c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 0x7f)
            good = false;
    }
    while (good && at < end) {
        char *line_end = memchr(at, '\r', (size_t)(end - at));
        if (!line_end || line_end[1] != '\n') {
            good = false;
            break;
        }
        good = read_line(at, (size_t)(line_end - at), &head, &extended);
        at = line_end + 2;
    }
    int status = 0;
    if (!good || !head.name)
        status = fail(multipart, 400, "a part of the form has a bad head");
    else if (++multipart->parts > LIMIT_PARTS)
        status = fail(multipart, 413, "the form has too many parts");
    else
        status = multipart->sink->begin(multipart->data, &head);
    buf_free(&extended);
    multipart->head.len = 0;
    multipart->line_off = 0;
    multipart->in_part = true;
    multipart->state = STATE_CONTENT;
    /* The line end of the empty line may be that of the delimiter, when there is no content. */
    multipart->matched = multipart->assumed = 2;
    return status;
}

/* Take the head's bytes of [*AT, END). */
static int read_head(struct multipart *multipart, const char **at, const char *end)
{
    while (*at < end && multipart->state == STATE_HEAD) {
        const char *lf = memchr(*at, '\n', (size_t)(end - *at));
        size_t len = lf ? (size_t)(lf + 1 - *at) : (size_t)(end - *at);
        if (multipart->head.len + len > LIMIT_PART_HEAD_BYTES)
            return fail(multipart, 413, "the head of a part is too large");
        if (!buf_append(&multipart->head, *at, len, LIMIT_PART_HEAD_BYTES))
            return fail(multipart, 503, "out of memory");
        *at += len;
        multipart->offset += len;
        if (!lf)
            break;
        const struct buf *head = &multipart->head;
        if (head->len - multipart->line_off < 2 || head->data[head->len - 2] != '\r')
            return fail(multipart, 400, "a part of the form has a bad head");
        if (head->len - multipart->line_off == 2) {
            int status = begin_part(multipart);
            if (status)
                return status;
        } else {
            multipart->line_off = head->len;
        }
    }
    return 0;
}

/* ---- contents ---- */

static int emit(struct multipart *multipart, const char *bytes, size_t len)
{
    if (!len || !multipart->in_part)
        return 0;
    return multipart->sink->content(multipart->data, bytes, len);
}

/* What was taken for a delimiter, up to MATCHED bytes, is content. */
static int emit_matched(struct multipart *multipart)
{
    size_t from = multipart->assumed;
    size_t len = multipart->matched - from;
    multipart->matched = multipart->assumed = 0;
    return emit(multipart, multipart->delimiter + from, len);
}

static int end_part(struct multipart *multipart)
{
    multipart->matched = multipart->assumed = 0;
    if (!multipart->in_part)
        return 0;
    multipart->in_part = false;
    return multipart->sink->end(multipart->data);
}

/* Take content of [*AT, END) up to the next delimiter. */
static int read_content(struct multipart *multipart, const char **at, const char *end)
{
    size_t delimiter_len = multipart->delimiter_len;
    /* Where a delimiter may have been cut off: byte by byte. */
    while (*at < end && multipart->matched) {
        if (**at != multipart->delimiter[multipart->matched]) {
            int status = emit_matched(multipart);
            if (status)
                return status;
            break;
        }
        ++*at;
        multipart->offset++;
        if (++multipart->matched == delimiter_len) {
            multipart->state = STATE_AFTER;
            return 0;
        }
    }
    if (*at == end)
        return 0;
    const char *from = *at;
    const char *look = from;
    const char *stop = end;
    while (look < end) {
        const char *cr = memchr(look, '\r', (size_t)(end - look));
        if (!cr)
            break;
        size_t left = (size_t)(end - cr);
        size_t len = left < delimiter_len ? left : delimiter_len;
        if (memcmp(cr, multipart->delimiter, len) == 0) {
            stop = cr;
            multipart->matched = (uint8_t)len;
            break;
        }
        look = cr + 1;
    }
    multipart->offset += (size_t)(stop - from) + multipart->matched;
    *at = stop + multipart->matched;
    if (multipart->matched == delimiter_len)
        multipart->state = STATE_AFTER;
    return emit(multipart, from, (size_t)(stop - from));
}

/* The byte behind a delimiter, or behind what looks like one. */
static int read_after(struct multipart *multipart, char byte, bool *again)
{
    *again = false;
    switch ((enum state)multipart->state) {
    case STATE_AFTER:
        if (byte == '\r') {
            multipart->state = STATE_AFTER_CR;
            return 0;
        }
        if (byte == '-') {
            multipart->state = STATE_DASH;
            return 0;
        }
        if (is_blank(byte)) {
            multipart->state = STATE_PADDING;
            return end_part(multipart);
        }
        break;
    case STATE_AFTER_CR:
        if (byte == '\n') {
            multipart->state = STATE_HEAD;
            return end_part(multipart);
        }
        break;
    case STATE_DASH:
        if (byte == '-') {
            multipart->state = STATE_EPILOGUE;
            return end_part(multipart);
        }
        break;
    case STATE_PADDING:
        if (byte == '\r')
            multipart->state = STATE_PADDING_CR;
        else if (!is_blank(byte))
            return fail(multipart, 400, "text behind a boundary");
        return 0;
    default:
        if (byte != '\n')
            return fail(multipart, 400, "text behind a boundary");
        multipart->state = STATE_HEAD;
        return 0;
    }
    /* No delimiter after all. */
    bool cr = multipart->state == STATE_AFTER_CR;
    bool dash = multipart->state == STATE_DASH;
    multipart->state = STATE_CONTENT;
    *again = true;
    int status = emit_matched(multipart);
    if (!status && dash)
        status = emit(multipart, "-", 1);
    multipart->matched = cr; /* the CR may begin the next one */
    return status;
}

int multipart_feed(struct multipart *multipart, const char *bytes, size_t len)
{
    const char *at = bytes;
    const char *end = bytes + len;
    int status = 0;
    while (at < end && !status) {
        bool again;
        switch ((enum state)multipart->state) {
        case STATE_CONTENT:
            status = read_content(multipart, &at, end);
            break;
        case STATE_HEAD:
            status = read_head(multipart, &at, end);
            break;
        case STATE_EPILOGUE:
            multipart->offset += (size_t)(end - at);
            return 0;
        default:
            status = read_after(multipart, *at, &again);
            if (!again) {
                at++;
                multipart->offset++;
            }
        }
    }
    return status;
}

int multipart_end(struct multipart *multipart)
{
    return multipart->state == STATE_EPILOGUE
               ? 0
               : fail(multipart, 400, "the form ends without its last boundary");
}

void multipart_free(struct multipart *multipart)
{
    buf_free(&multipart->head);
}
