/* lisp.c - what module.c needs of the emacs_env.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "lisp.h"

#include "check.h"
#include "decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lisp lisp;

static long globals_count;

/* Field names that clients really send, kept as global references: interning them costs a look-up each,
 * per field and request.  In the order of their length; see field_hash. */
static const char *const known_names[] = {
    "ACCEPT",
    "ACCEPT-CHARSET",
    "ACCEPT-ENCODING",
    "ACCEPT-LANGUAGE",
    "ACCESS-CONTROL-REQUEST-HEADERS",
    "ACCESS-CONTROL-REQUEST-METHOD",
    "AUTHORIZATION",
    "CACHE-CONTROL",
    "CONNECTION",
    "CONTENT-DISPOSITION",
    "CONTENT-ENCODING",
    "CONTENT-LENGTH",
    "CONTENT-TYPE",
    "COOKIE",
    "DATE",
    "DNT",
    "EXPECT",
    "FORWARDED",
    "FROM",
    "HOST",
    "IF-MATCH",
    "IF-MODIFIED-SINCE",
    "IF-NONE-MATCH",
    "IF-RANGE",
    "IF-UNMODIFIED-SINCE",
    "KEEP-ALIVE",
    "LAST-EVENT-ID",
    "ORIGIN",
    "PRAGMA",
    "PRIORITY",
    "RANGE",
    "REFERER",
    "SEC-CH-UA",
    "SEC-CH-UA-MOBILE",
    "SEC-CH-UA-PLATFORM",
    "SEC-FETCH-DEST",
    "SEC-FETCH-MODE",
    "SEC-FETCH-SITE",
    "SEC-FETCH-USER",
    "SEC-WEBSOCKET-EXTENSIONS",
    "SEC-WEBSOCKET-KEY",
    "SEC-WEBSOCKET-PROTOCOL",
    "SEC-WEBSOCKET-VERSION",
    "TE",
    "TRANSFER-ENCODING",
    "UPGRADE",
    "UPGRADE-INSECURE-REQUESTS",
    "USER-AGENT",
    "VIA",
    "X-FORWARDED-FOR",
    "X-FORWARDED-HOST",
    "X-FORWARDED-PROTO",
    "X-REQUESTED-WITH",
};

/* An open hash table of indices into KNOWN_NAMES, plus one. */
#define HASH_SIZE 256
static uint8_t known_index[HASH_SIZE];
static emacs_value known_keywords[ARRAY_LEN(known_names)];

/* Symbols are never collected, and a client chooses the names of its fields.  So new ones are interned up to
 * this many; after that a strange name gets a symbol of its own, which prints the same and which no
 * code that does not name it already could look for. */
#define NEW_KEYWORDS_MAX 1024
static unsigned new_keywords;

static char upper(char byte)
{
    return byte >= 'a' && byte <= 'z' ? (char)(byte - 32) : byte;
}

static unsigned field_hash(const char *name, size_t len)
{
    unsigned hash = (unsigned)len * 31;
    hash += (unsigned)(unsigned char)upper(name[0]) * 7;
    hash += (unsigned)(unsigned char)upper(name[len - 1]) * 13;
    hash += (unsigned)(unsigned char)upper(name[len / 2]) * 57;
    return hash % HASH_SIZE;
}

static emacs_value global(emacs_env *env, emacs_value value)
{
    globals_count++;
    return env->make_global_ref(env, value);
}

static emacs_value symbol(emacs_env *env, const char *name)
{
    return global(env, env->intern(env, name));
}

long lisp_globals_count(void)
{
    return globals_count;
}

bool lisp_init(emacs_env *env)
{
    char name[64];
    lisp.nil = symbol(env, "nil");
    lisp.t = symbol(env, "t");
    lisp.cons = symbol(env, "cons");
    lisp.car = symbol(env, "car");
    lisp.cdr = symbol(env, "cdr");
    lisp.list = symbol(env, "list");
    lisp.intern_soft = symbol(env, "intern-soft");
    lisp.make_symbol = symbol(env, "make-symbol");
    lisp.format = symbol(env, "format");
    lisp.string = symbol(env, "string");
    lisp.print_format = global(env, env->make_string(env, "%s", 2));
    lisp.encode_coding_string = symbol(env, "encode-coding-string");
    lisp.latin_1 = symbol(env, "latin-1");
    for (int method = METHOD_GET; method < METHOD_COUNT; method++) {
        snprintf(name, sizeof name, ":%s", method_name((enum method)method));
        lisp.methods[method] = symbol(env, name);
    }
    for (size_t i = 0; i < ARRAY_LEN(known_names); i++) {
        snprintf(name, sizeof name, ":%s", known_names[i]);
        known_keywords[i] = symbol(env, name);
        unsigned hash = field_hash(known_names[i], strlen(known_names[i]));
        while (known_index[hash])
            hash = (hash + 1) % HASH_SIZE;
        known_index[hash] = (uint8_t)(i + 1);
    }
    return !lisp_failed(env);
}

bool lisp_has_open_channel(emacs_env *env)
{
#if defined EMACS_MAJOR_VERSION && EMACS_MAJOR_VERSION >= 28
    return env->size > (ptrdiff_t)offsetof(emacs_env, open_channel);
#else
    (void)env;
    return false;
#endif
}

int lisp_open_channel(emacs_env *env, emacs_value process)
{
#if defined EMACS_MAJOR_VERSION && EMACS_MAJOR_VERSION >= 28
    if (lisp_has_open_channel(env))
        return env->open_channel(env, process);
#endif
    lisp_signal(env, "porter-module-error", "This Emacs has no channels", process);
    return -1;
}

emacs_value lisp_cons(emacs_env *env, emacs_value car, emacs_value cdr)
{
    emacs_value args[] = {car, cdr};
    return env->funcall(env, lisp.cons, 2, args);
}

emacs_value lisp_integer(emacs_env *env, intmax_t n)
{
    return env->make_integer(env, n);
}

emacs_value lisp_list(emacs_env *env, const emacs_value *elements, size_t n)
{
    return env->funcall(env, lisp.list, (ptrdiff_t)n, (emacs_value *)elements);
}

/* Before Emacs 28 the only way to a unibyte string leads over a multibyte one. */
static emacs_value bytes_by_latin_1(emacs_env *env, const char *bytes, size_t len)
{
    struct buf utf_8 = {0};
    if (!buf_reserve(&utf_8, 2 * len + 1, SIZE_MAX)) {
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
        return NULL;
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte >= 128)
            utf_8.data[utf_8.len++] = (char)(0xC0 | byte >> 6);
        utf_8.data[utf_8.len++] = (char)(byte >= 128 ? 0x80 | (byte & 0x3F) : byte);
    }
    utf_8.data[utf_8.len] = 0;
    emacs_value args[] = {env->make_string(env, utf_8.data, (ptrdiff_t)utf_8.len), lisp.latin_1};
    buf_free(&utf_8);
    return lisp_failed(env) ? NULL : env->funcall(env, lisp.encode_coding_string, 2, args);
}

emacs_value lisp_bytes(emacs_env *env, const char *bytes, size_t len)
{
    if (!len)
        bytes = "";
#if defined EMACS_MAJOR_VERSION && EMACS_MAJOR_VERSION >= 28
    if (env->size > (ptrdiff_t)offsetof(emacs_env, make_unibyte_string))
        return env->make_unibyte_string(env, bytes, (ptrdiff_t)len);
#endif
    return bytes_by_latin_1(env, bytes, len);
}

emacs_value lisp_text(emacs_env *env, const char *bytes, size_t len)
{
    if (decode_text_kind(bytes, len) != TEXT_UTF8)
        return lisp_bytes(env, bytes, len);
    return env->make_string(env, bytes, (ptrdiff_t)len);
}

emacs_value lisp_field_keyword(emacs_env *env, const char *name, size_t len)
{
    unsigned hash = field_hash(name, len);
    for (; known_index[hash]; hash = (hash + 1) % HASH_SIZE) {
        size_t i = known_index[hash] - 1u;
        const char *known = known_names[i];
        size_t k = 0;
        while (k < len && upper(name[k]) == known[k])
            k++;
        if (k == len && !known[k])
            return known_keywords[i];
    }
    char keyword[258] = ":";
    if (len > sizeof keyword - 2)
        len = sizeof keyword - 2;
    for (size_t i = 0; i < len; i++)
        keyword[i + 1] = upper(name[i]);
    keyword[len + 1] = 0;
    emacs_value string = lisp_bytes(env, keyword, len + 1);
    if (lisp_failed(env))
        return NULL;
    emacs_value found = env->funcall(env, lisp.intern_soft, 1, &string);
    if (lisp_failed(env) || !lisp_is_nil(env, found))
        return found;
    if (new_keywords >= NEW_KEYWORDS_MAX)
        return env->funcall(env, lisp.make_symbol, 1, &string);
    new_keywords++;
    return env->intern(env, keyword);
}

bool lisp_is_string(emacs_env *env, emacs_value value)
{
    return env->eq(env, env->type_of(env, value), lisp.string);
}

emacs_value lisp_print(emacs_env *env, emacs_value value)
{
    emacs_value args[] = {lisp.print_format, value};
    return env->funcall(env, lisp.format, 2, args);
}

bool lisp_append_string(emacs_env *env, emacs_value string, struct buf *buf)
{
    ptrdiff_t size = 0; /* with the NUL that Emacs puts behind it */
    if (!env->copy_string_contents(env, string, NULL, &size))
        return false;
    if (!buf_reserve(buf, (size_t)size, SIZE_MAX)) {
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
        return false;
    }
    if (!env->copy_string_contents(env, string, buf->data + buf->len, &size))
        return false;
    buf->len += (size_t)size - 1;
    return true;
}

char *lisp_c_string(emacs_env *env, emacs_value string)
{
    struct buf buf = {0};
    if (lisp_is_nil(env, string) || !lisp_append_string(env, string, &buf)) {
        buf_free(&buf);
        return NULL;
    }
    char *copy = strndup(buf.data, buf.len);
    /* NULL alone would stand for nil, and that for all addresses. */
    if (!copy)
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
    else if (strlen(copy) != buf.len)
        lisp_signal(env, "porter-error", "NUL in a name", string);
    buf_free(&buf);
    if (lisp_failed(env)) {
        free(copy);
        return NULL;
    }
    return copy;
}

void lisp_c_strings_free(char **strings)
{
    for (char **each = strings; each && *each; each++)
        free(*each);
    free(strings);
}

char **lisp_c_strings(emacs_env *env, emacs_value vector)
{
    ptrdiff_t n = env->vec_size(env, vector);
    if (lisp_failed(env) || n <= 0)
        return NULL;
    char **strings = calloc((size_t)n + 1, sizeof *strings);
    if (!strings)
        lisp_signal(env, "porter-error", "Memory exhausted", NULL);
    for (ptrdiff_t i = 0; strings && i < n && !lisp_failed(env); i++)
        strings[i] = lisp_c_string(env, env->vec_get(env, vector, i));
    return strings;
}

void lisp_signal(emacs_env *env, const char *error, const char *message, emacs_value data)
{
    if (lisp_failed(env))
        return;
    emacs_value elements[] = {env->make_string(env, message, (ptrdiff_t)strlen(message)), data};
    emacs_value list = lisp_list(env, elements, data ? 2 : 1);
    if (!lisp_failed(env))
        env->non_local_exit_signal(env, env->intern(env, error), list);
}
