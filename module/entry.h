/* entry.h - the table of what C answers alone: directories and fixed answers.
 *
 * Thread: entries are made by Emacs, sent to the loop with ITEM_ENTRY, and belong to it from then on;
 * work in libuv's pool holds a reference.  All functions are the loop's unless they say otherwise.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_ENTRY_H
#define PORTER_ENTRY_H

#include "mime.h"
#include "server.h"

#include <stdatomic.h>

enum entry_kind { ENTRY_DIRECTORY = 1, ENTRY_FIXED };

enum entry_links {
    LINKS_NONE = 1, /* symbolic links are not there */
    LINKS_INSIDE,   /* those that lead to something below the directory are followed */
    LINKS_ALL       /* all are followed, also out of the directory */
};

/* The directory of an entry, opened.  The loop's, which counts its users. */
struct root {
    unsigned references;
    int fd;
};

/* One route that C answers.  Frozen when it is sent to the loop, but for the members marked. */
struct entry {
    atomic_uint references;
    uint32_t number; /* Lisp's name for it, above 0 */
    int64_t rank;    /* the entries of a server are tried from the lowest rank on */
    bool front;      /* the loop tries it before Lisp sees the request; else only Lisp does */
    enum entry_kind kind;
    char *prefix; /* decoded; of a directory with a slash at the end */
    size_t prefix_len;
    char *cache_control; /* or NULL */
    struct buf fields;   /* more field lines, with their CRLF */

    /* ENTRY_DIRECTORY */
    char *directory;
    char **index;   /* names, NULL at the end; or NULL */
    char *fallback; /* below the directory: what is sent for what is not there; or NULL */
    int links;      /* enum entry_links */
    bool dotfiles;
    bool listing;
    bool siblings;     /* FILE.br and FILE.gz go out for FILE */
    bool pass;         /* what is not there is left to the routes behind */
    bool wants_reload; /* pages load themselves anew when they change */
    struct mime *mime;
    /* The loop's. */
    struct reload *reload; /* from the first page on */
    struct root *root;
    uint64_t root_ms; /* when it was last looked whether DIRECTORY is still the same */

    /* ENTRY_FIXED */
    int status;
    char *type;
    char *etag; /* or NULL */
    bool zips;  /* GZIP is wanted */
    struct shared *body;
    struct shared *gzip; /* the same compressed, or NULL */
};

/* Thread: Emacs.  NULL when memory is out.  Takes nothing. */
struct entry *entry_new(enum entry_kind kind, const char *prefix);
/* Thread: any. */
struct entry *entry_hold(struct entry *entry);
void entry_release(struct entry *entry);
/* For the leak tests.  Thread: any. */
long entry_live_count(void);

/* Takes ENTRY into SERVER's table, where it takes the place of one with the same number. */
void entry_enter(struct server *server, struct entry *entry);
/* Take the entry called NUMBER out of the table. */
void entry_remove(struct server *server, uint32_t number);

/* SERVER stops, or the loop does: end what would go on by itself. */
void entry_quiet(struct server *server);

/* The pages of SERVER are to be loaded anew; STYLE: only their style sheets. */
void entry_reload(struct server *server, bool style);

/* Empty SERVER's table.  Thread: its owner's. */
void entry_clear(struct server *server);

/* Drop one use of ROOT, which may be NULL. */
void root_release(struct root *root);

#endif
