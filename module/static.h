/* static.h - what C answers alone: files below a directory, and fixed answers.
 *
 * Thread: entries are made by Emacs, sent to the loop with ITEM_ENTRY, and belong to it from then on;
 * work in libuv's pool holds a reference.  All functions are the loop's unless they say otherwise.
 *
 * The loop never waits for a disk.  A file is opened with RESOLVE_CACHED and read with RWF_NOWAIT; only when the
 * kernel says that it would have to wait (or cannot say), the same steps are taken in the pool.
 *
 *    static_take/static_serve --> open, fstat, read --------------------------> answer complete
 *                                    | would wait                                    ^
 *                                    v                                               |
 *                                 work in the pool: the same, waiting --> on_completed
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_STATIC_H
#define PORTER_STATIC_H

#include "hub.h"

#include <sys/stat.h>

enum entry_kind { ENTRY_DIRECTORY = 1, ENTRY_FIXED };

enum entry_links {
    LINKS_NONE = 0, /* symbolic links are not there */
    LINKS_INSIDE,   /* those that lead to something below the directory are followed */
    LINKS_ALL       /* all are followed, also out of the directory */
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
    enum entry_links links;
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
    char etag[48]; /* empty: none */
    struct buf body;
    struct buf gzip; /* the same compressed; empty: not */
};

/* Thread: Emacs.  NULL when memory is out.  Takes nothing. */
struct entry *entry_new(enum entry_kind kind, const char *prefix);
/* Thread: any. */
void entry_release(struct entry *entry);
/* For the leak tests.  Thread: any. */
long entry_live_count(void);

/* The types of files by extension.  PAIRS are extensions in lower case, without the period (or whole names of
 * files that have none), each followed by its type, 2 * LEN in all: taken, with the strings, also on failure. */
struct mime *mime_new(char **pairs, size_t len);
struct mime *mime_hold(struct mime *mime);
void mime_release(struct mime *mime);
/* The type of the file called NAME, never NULL.  Thread: any. */
const char *mime_type(const struct mime *mime, const char *name);

/* Takes ENTRY into SERVER's table, where it takes the place of one with the same number. */
void static_enter(struct server *server, struct entry *entry);
/* Take the entry called NUMBER out of the table. */
void static_remove(struct server *server, uint32_t number);

/* SERVER stops, or the loop does: end what would go on by itself. */
void static_quiet(struct server *server);

/* The pages of SERVER are to be loaded anew; STYLE: only their style sheets. */
void static_reload(struct server *server, bool style);

/* Empty SERVER's table.  Thread: its owner's. */
void static_clear(struct server *server);

/* If one of the entries in front is for EXCHANGE's path, begin to answer. */
bool static_take(struct hub *hub, struct exchange *exchange);

/* Begin to answer EXCHANGE by the entry called NUMBER. */
void static_serve(struct hub *hub, struct exchange *exchange, uint32_t number);

enum static_sent {
    STATIC_SENT = 0, /* some */
    STATIC_FULL,     /* nothing: the socket is full */
    STATIC_WAITS,    /* nothing yet: the disk is read first; on_completed tells */
    STATIC_BROKEN    /* the file has become shorter, or cannot be read, or the client has gone */
};

/* Send a chunk of EXCHANGE's file to the socket FD.  Whoever calls has seen that there is something left. */
enum static_sent static_send(struct hub *hub, struct exchange *exchange, int fd);

/* A file to be answered with. */
struct file_source {
    int fd; /* taken; -1: none */
    uint64_t size;
    struct timespec modified; /* 0: not known */
    const char *type;
    const char *encoding;      /* or NULL */
    const char *cache_control; /* or NULL */
    const struct buf *fields;  /* or NULL */
    const char *etag;          /* or NULL: made of size and time */
    int status;                /* of an answer with the whole; 0: 200 */
    bool varies;               /* with Accept-Encoding */
    struct buf *content;       /* the whole, when it is in memory already: taken.  FD is -1 then */
};

/* Open FILE for SOURCE: fd, size and time.  0, or the status that says why not.  Thread: Emacs, and so it does not
 * wait for a FIFO's other end; a disk it does wait for, as everything in Emacs. */
int static_open(const char *file, struct file_source *source);

/* BODY with gzip into OUT, which stays empty when that gains nothing.  Thread: any. */
void static_compress(const struct buf *body, struct buf *out);

/* Make the answer to EXCHANGE out of SOURCE, as its conditions and ranges ask for.  REPLY is empty before; afterwards
 * it is whole, apart from what is left to send of the file.  False when memory is out.
 * Thread: the owner's of the exchange. */
bool static_answer(struct exchange *exchange, struct file_source *source,
                   const struct format_context *context, const struct format_clock *clock);

#endif
