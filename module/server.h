/* server.h - one listening server: its addresses, its limits, its counts.
 *
 * Thread: made and freed by Emacs, the loop's in between; the counts may be read by both.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_SERVER_H
#define PORTER_SERVER_H

#include "exchange.h"
#include "limits.h"
#include "log.h"

#define SERVER_LISTENERS_MAX 8

struct hub;
struct entry;

struct listener {
    uv_poll_t poll; /* the loop's */
    struct hub *hub;
    struct server *server;
    int fd;
    bool polling;
};

enum server_phase {
    SERVER_NEW = 0,
    SERVER_LISTENING,
    SERVER_STOPPING, /* answers under way are being finished */
    SERVER_GONE      /* no connection left; Emacs has been told */
};

struct server {
    struct item item; /* for ITEM_LISTEN, then for ITEM_SERVER_GONE */
    uint32_t
        number; /* Lisp's name for it, below LIMIT_SERVERS; free again after ITEM_SERVER_GONE */
    struct limits limits;
    bool loopback_only;   /* check Host against loopback names and ALLOWED_HOSTS */
    char **allowed_hosts; /* lower case, NULL at the end; NULL for none */
    char *
        *stream_paths; /* paths that begin so: the body comes to Lisp in pieces; as allowed_hosts */
    bool proxied;      /* connections begin with a header of the PROXY protocol */
    char *path;        /* of a Unix-domain socket, or NULL */
    struct log *log;   /* or NULL */
    size_t gzip_bytes_min; /* smaller bodies are not compressed; SIZE_MAX: none */
    char *spool_directory; /* for the files of large bodies, without a slash at the end */
    struct listener listeners[SERVER_LISTENERS_MAX];
    uint32_t listeners_count;

    /* The loop's. */
    enum server_phase phase;
    uint64_t stop_ms; /* when answers under way are cut off */
    bool accepting;
    uint32_t open_count;    /* connections */
    uint32_t closing_count; /* listener handles that libuv has not let go of yet */
    uint32_t out_count;     /* exchanges that Emacs has */
    struct entry **entries; /* what C answers alone, see static.h; by rank */
    uint32_t entries_len;
    uint32_t front_len; /* of them: tried before Lisp */

    atomic_uint queued_count; /* requests that wait for Lisp, or did when they were given up */
    atomic_uint connections;  /* the same as open_count, to be read by Emacs */
    atomic_uint open_files;   /* of answers under way */
    atomic_ullong requests;   /* answered */
    atomic_ullong errors;     /* 5xx answers and refused requests */
};

struct server_address {
    const char
        *host; /* NULL: all interfaces; "localhost": both loopbacks; else a name or a number */
    const char *path; /* of a Unix-domain socket, instead of a host */
    int family;       /* AF_UNSPEC, AF_INET or AF_INET6 */
    int port;         /* 0: any free one */
    int backlog;
};

/* Bind and listen, at once and in the caller's thread, so that a taken port is an error where
 * the user sees it.  NULL sets *ERROR to an errno value, or to a negative EAI_ one.
 * *PORT gets the port that was bound. */
struct server *server_open(const struct server_address *address, int *port, int *error);

/* Close what is open, free all.  Thread: Emacs, when the loop does not have SERVER. */
void server_free(struct server *server);

/* May one more file be open for an answer?  If so it counts, until server_close_file.  Thread: any. */
bool server_open_file(struct server *server);
void server_close_file(struct server *server);

/* One more answer, with STATUS, is out.  Thread: any. */
void server_count_answer(struct server *server, int status);

/* Close the listening sockets.  Thread: the owner's. */
void server_close_listeners(struct server *server);

/* May a request with AUTHORITY (host[:port]) be answered?  DNS rebinding makes any page in the
 * user's browser able to name its own host and reach a loopback server. */
bool server_host_allowed(const struct server *server, const char *authority, size_t len);

/* Is the body of a request for PATH, still encoded, to come to Lisp in pieces? */
bool server_streams(const struct server *server, const char *path, size_t len);

long server_live_count(void);

#endif
