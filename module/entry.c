/* entry.c - the table of what C answers alone.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "entry.h"

#include "reload.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_long live_count;

long entry_live_count(void)
{
    return atomic_load_explicit(&live_count, memory_order_relaxed);
}

struct entry *entry_new(enum entry_kind kind, const char *prefix)
{
    struct entry *entry = calloc(1, sizeof *entry);
    char *copy = strdup(prefix);
    if (!entry || !copy) {
        free(entry);
        free(copy);
        return NULL;
    }
    atomic_store(&entry->references, 1);
    entry->kind = kind;
    entry->prefix = copy;
    entry->prefix_len = strlen(copy);
    atomic_fetch_add_explicit(&live_count, 1, memory_order_relaxed);
    return entry;
}

void root_release(struct root *root)
{
    if (!root || --root->references)
        return;
    close(root->fd);
    free(root);
}

void entry_release(struct entry *entry)
{
    if (!entry || atomic_fetch_sub(&entry->references, 1) != 1)
        return;
    for (char **name = entry->index; name && *name; name++)
        free(*name);
    free(entry->index);
    free(entry->prefix);
    free(entry->cache_control);
    free(entry->directory);
    free(entry->fallback);
    free(entry->type);
    free(entry->etag);
    buf_free(&entry->fields);
    shared_release(entry->body);
    shared_release(entry->gzip);
    mime_release(entry->mime);
    root_release(entry->root);
    free(entry);
    atomic_fetch_sub_explicit(&live_count, 1, memory_order_relaxed);
}

struct entry *entry_hold(struct entry *entry)
{
    atomic_fetch_add(&entry->references, 1);
    return entry;
}

void entry_enter(struct server *server, struct entry *entry)
{
    entry_remove(server, entry->number);
    struct entry **entries = realloc(server->entries, (server->entries_len + 1) * sizeof *entries);
    if (!entries) {
        entry_release(entry);
        return;
    }
    server->entries = entries;
    /* Of equal ones the last that came is tried first. */
    uint32_t at = 0;
    while (at < server->entries_len && entries[at]->rank < entry->rank)
        at++;
    memmove(entries + at + 1, entries + at, (server->entries_len - at) * sizeof *entries);
    entries[at] = entry;
    server->entries_len++;
    server->front_len += entry->front;
}

void entry_remove(struct server *server, uint32_t number)
{
    for (uint32_t i = 0; i < server->entries_len; i++) {
        struct entry *entry = server->entries[i];
        if (entry->number != number)
            continue;
        server->front_len -= entry->front;
        server->entries_len--;
        reload_close(entry->reload);
        entry->reload = NULL;
        memmove(server->entries + i, server->entries + i + 1,
                (server->entries_len - i) * sizeof *server->entries);
        entry_release(entry);
        return;
    }
}

void entry_quiet(struct server *server)
{
    for (uint32_t i = 0; i < server->entries_len; i++) {
        reload_close(server->entries[i]->reload);
        server->entries[i]->reload = NULL;
        server->entries[i]->wants_reload = false;
    }
}

void entry_reload(struct server *server, bool style)
{
    for (uint32_t i = 0; i < server->entries_len; i++)
        if (server->entries[i]->reload)
            reload_push(server->entries[i]->reload, style);
}

void entry_clear(struct server *server)
{
    for (uint32_t i = 0; i < server->entries_len; i++)
        entry_release(server->entries[i]);
    free(server->entries);
    server->entries = NULL;
    server->entries_len = server->front_len = 0;
}
