/* mime.c - types of files by their names.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "mime.h"

#include "check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct mime {
    atomic_uint references;
    size_t len;
    char **pairs; /* sorted by the first of each */
};

static int by_extension(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct mime *mime_new(char **pairs, size_t len)
{
    struct mime *mime = calloc(1, sizeof *mime);
    if (!mime) {
        for (size_t i = 0; i < 2 * len; i++)
            free(pairs[i]);
        free(pairs);
        return NULL;
    }
    atomic_store(&mime->references, 1);
    mime->pairs = pairs;
    mime->len = len;
    qsort(pairs, len, 2 * sizeof *pairs, by_extension);
    return mime;
}

struct mime *mime_hold(struct mime *mime)
{
    if (mime)
        atomic_fetch_add(&mime->references, 1);
    return mime;
}

void mime_release(struct mime *mime)
{
    if (!mime || atomic_fetch_sub(&mime->references, 1) != 1)
        return;
    for (size_t i = 0; i < 2 * mime->len; i++)
        free(mime->pairs[i]);
    free(mime->pairs);
    free(mime);
}

const char *mime_type(const struct mime *mime, const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    const char *period = strrchr(base, '.');
    const char *extension = period && period > base ? period + 1 : base;
    char lower[32];
    char *key = lower;
    size_t len = strlen(extension);
    if (!mime || len >= sizeof lower)
        return "application/octet-stream";
    for (size_t i = 0; i <= len; i++)
        lower[i] = (char)(extension[i] >= 'A' && extension[i] <= 'Z' ? extension[i] | 32
                                                                     : extension[i]);
    char **found = bsearch(&key, mime->pairs, mime->len, 2 * sizeof *mime->pairs, by_extension);
    return found ? found[1] : "application/octet-stream";
}
