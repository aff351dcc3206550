/* peer.h - who is at the other end of a connection.
 *
 * Thread: any.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_PEER_H
#define PORTER_PEER_H

#include <netinet/in.h>

struct peer {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } address; /* sa_family AF_UNIX: a local socket, without an address */
};

#endif
