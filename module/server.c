/* server.c - one listening server: open, close, and which hosts it answers for.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static atomic_long live_count;

long server_live_count(void)
{
    return atomic_load_explicit(&live_count, memory_order_relaxed);
}

/* The listening fd, or -errno. */
static int listen_on(const struct sockaddr *sa, socklen_t len, int backlog)
{
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int on = 1;
    if (sa->sa_family != AF_UNIX) {
        /* Restarting a server must not wait for the old connections' TIME_WAIT. */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        /* Inherited by accepted sockets: an answer leaves in one write, there is nothing to wait for. */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (sa->sa_family == AF_INET6) /* IPv4 has a listener of its own */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, sa, len) < 0 || listen(fd, backlog) < 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof ss;
    if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
        return 0;
    if (ss.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&ss)->sin_port);
    if (ss.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
    return 0;
}

static void add_listener(struct server *server, int fd)
{
    struct listener *listener = &server->listeners[server->listeners_count++];
    listener->fd = fd;
    listener->server = server;
}

static void set_port(struct sockaddr *sa, int port)
{
    if (sa->sa_family == AF_INET)
        ((struct sockaddr_in *)sa)->sin_port = htons((uint16_t)port);
    else if (sa->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)sa)->sin6_port = htons((uint16_t)port);
}

static bool is_loopback(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24) == 127;
    if (sa->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
    return true;
}

/* A socket file that nobody listens on is left over from a dead process; a live one is not ours to
 * take, and anything that is no socket is not ours to delete. */
static bool remove_stale_socket(const struct sockaddr_un *un, socklen_t len)
{
    struct stat st;
    if (lstat(un->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool stale = connect(fd, (const struct sockaddr *)un, len) < 0 && errno == ECONNREFUSED;
    close(fd);
    return stale && unlink(un->sun_path) == 0;
}

static int open_path(struct server *server, const struct server_address *address)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (strlen(address->path) >= sizeof un.sun_path)
        return ENAMETOOLONG;
    memcpy(un.sun_path, address->path, strlen(address->path) + 1);
    int fd = listen_on((struct sockaddr *)&un, sizeof un, address->backlog);
    if (fd == -EADDRINUSE && remove_stale_socket(&un, sizeof un))
        fd = listen_on((struct sockaddr *)&un, sizeof un, address->backlog);
    if (fd < 0)
        return -fd;
    server->path = strdup(address->path);
    add_listener(server, fd);
    return 0;
}

static int open_one(struct server *server, struct sockaddr *sa, socklen_t len, int backlog,
                    int *port)
{
    set_port(sa, *port);
    int fd = listen_on(sa, len, backlog);
    if (fd < 0)
        return -fd;
    *port = port_of(fd); /* with port 0 the next address takes the same one */
    server->loopback_only = server->loopback_only && is_loopback(sa);
    add_listener(server, fd);
    return 0;
}

static int open_localhost(struct server *server, const struct server_address *address, int *port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int error = EAFNOSUPPORT;
    if (address->family != AF_INET6)
        error = open_one(server, (struct sockaddr *)&in, sizeof in, address->backlog, port);
    if (address->family != AF_INET && (error == 0 || address->family == AF_INET6)) {
        int error6 = open_one(server, (struct sockaddr *)&in6, sizeof in6, address->backlog, port);
        /* A machine without IPv6 is served on IPv4 alone. */
        if (server->listeners_count == 0 || error6 == EADDRINUSE)
            error = error6;
    }
    return error;
}

static int open_names(struct server *server, const struct server_address *address, int *port)
{
    struct addrinfo hints = {.ai_family = address->family,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int error = getaddrinfo(address->host, "0", &hints, &list);
    if (error)
        return error == EAI_SYSTEM ? errno : error;
    error = 0;
    for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        if (server->listeners_count == SERVER_LISTENERS_MAX)
            break;
        int one = open_one(server, ai->ai_addr, ai->ai_addrlen, address->backlog, port);
        if (one && one != EAFNOSUPPORT && one != EADDRNOTAVAIL) {
            error = one;
            break;
        }
        if (one && !error)
            error = one;
    }
    freeaddrinfo(list);
    /* An address family that is not there does not matter if another one is. */
    return server->listeners_count && (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) ? 0 : error;
}

struct server *server_open(const struct server_address *address, int *port, int *error)
{
    struct server *server = calloc(1, sizeof *server);
    if (!server) {
        *error = ENOMEM;
        return NULL;
    }
    atomic_fetch_add_explicit(&live_count, 1, memory_order_relaxed);
    /* With port 0 the second loopback may find the number taken that the first one got: try others. */
    for (int tries = 0; tries < 16; tries++) {
        *port = address->port;
        server->loopback_only = !address->path;
        if (address->path)
            *error = open_path(server, address);
        else if (address->host && strcasecmp(address->host, "localhost") == 0)
            *error = open_localhost(server, address, port);
        else
            *error = open_names(server, address, port);
        if (!*error)
            return server;
        server_close_listeners(server);
        if (address->port != 0 || *error != EADDRINUSE)
            break;
    }
    server_free(server);
    return NULL;
}

bool server_open_file(struct server *server)
{
    uint32_t max = server->limits.open_files_max;
    if (atomic_fetch_add(&server->open_files, 1) < max || !max)
        return true;
    server_close_file(server);
    return false;
}

void server_close_file(struct server *server)
{
    atomic_fetch_sub(&server->open_files, 1);
}

void server_count_answer(struct server *server, int status)
{
    atomic_fetch_add_explicit(&server->requests, 1, memory_order_relaxed);
    if (status >= 500)
        atomic_fetch_add_explicit(&server->errors, 1, memory_order_relaxed);
}

void server_close_listeners(struct server *server)
{
    for (uint32_t i = 0; i < server->listeners_count; i++)
        close(server->listeners[i].fd);
    server->listeners_count = 0;
    if (server->path)
        unlink(server->path);
    free(server->path);
    server->path = NULL;
}

void server_free(struct server *server)
{
    server_close_listeners(server);
    if (server->allowed_hosts)
        for (char **host = server->allowed_hosts; *host; host++)
            free(*host);
    free(server->allowed_hosts);
    log_free(server->log);
    free(server->spool_directory);
    if (server->stream_paths)
        for (char **path = server->stream_paths; *path; path++)
            free(*path);
    free(server->stream_paths);
    free(server);
    atomic_fetch_sub_explicit(&live_count, 1, memory_order_relaxed);
}

bool server_streams(const struct server *server, const char *path, size_t len)
{
    if (server->stream_paths)
        for (char **prefix = server->stream_paths; *prefix; prefix++)
            if (strlen(*prefix) <= len && memcmp(*prefix, path, strlen(*prefix)) == 0)
                return true;
    return false;
}

/* The length of AUTHORITY's host, without ":port". */
static size_t host_len(const char *authority, size_t len)
{
    size_t i = len;
    while (i > 0 && authority[i - 1] >= '0' && authority[i - 1] <= '9')
        i--;
    return i > 0 && authority[i - 1] == ':' ? i - 1 : len;
}

static bool equals(const char *bytes, size_t len, const char *lower)
{
    return strlen(lower) == len && strncasecmp(bytes, lower, len) == 0;
}

static bool is_loopback_name(const char *host, size_t len)
{
    static const char suffix[] = ".localhost"; /* RFC 6761 section 6.3 */
    char number[sizeof "255.255.255.255"];
    struct in_addr in;
    if (equals(host, len, "localhost") || equals(host, len, "[::1]"))
        return true;
    if (len > sizeof suffix - 1 &&
        equals(host + len - (sizeof suffix - 1), sizeof suffix - 1, suffix))
        return true;
    if (len == 0 || len >= sizeof number)
        return false;
    memcpy(number, host, len);
    number[len] = 0;
    return inet_pton(AF_INET, number, &in) == 1 && (ntohl(in.s_addr) >> 24) == 127;
}

bool server_host_allowed(const struct server *server, const char *authority, size_t len)
{
    /* No Host at all comes from HTTP/1.0 clients; a browser always sends one. */
    if (len == 0 || (!server->loopback_only && !server->allowed_hosts))
        return true;
    size_t host = host_len(authority, len);
    /* "localhost." is the same name, written whole. */
    if (host > 1 && authority[host - 1] == '.')
        host--;
    if (server->loopback_only && is_loopback_name(authority, host))
        return true;
    if (server->allowed_hosts)
        for (char **allowed = server->allowed_hosts; *allowed; allowed++)
            if (equals(authority, host, *allowed) || equals(authority, len, *allowed))
                return true;
    return false;
}
