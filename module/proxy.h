/* proxy.h - who is behind a proxy: the PROXY protocol, versions 1 and 2, and networks of addresses.
 *
 * Thread: loop for the protocol, any for networks.  Pure.
 *
 * A proxy that speaks it begins each connection with a header that names the client.  It is expected or
 * it is not, never guessed: who may leave it out may also make it up.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_PROXY_H
#define PORTER_PROXY_H

#include "peer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum proxy_status {
    PROXY_MORE = 0,
    PROXY_DONE, /* the peer is known; what follows is the client's */
    PROXY_BAD
};

/* The longest header of version 1, with its line end; also room for what counts of version 2. */
#define PROXY_HEAD_MAX 107

struct proxy {
    uint8_t len;   /* bytes in HEAD */
    uint16_t skip; /* of version 2: bytes still to come that say nothing to us */
    bool skipping;
    bool named; /* PEER has been changed */
    char head[PROXY_HEAD_MAX];
};

/* Read from BYTES, cut anywhere; all zero to begin with.  *USED says how many belong to the header.
 * PEER changes at PROXY_DONE, unless the proxy speaks for itself or does not know. */
enum proxy_status proxy_feed(struct proxy *proxy, const char *bytes, size_t len, size_t *used,
                             struct peer *peer);

/* Is ADDRESS in NETWORK, an address or "ADDRESS/BITS"?  An IPv4 address may be written in IPv6.
 * False also when one of them is no address. */
bool proxy_network_has(const char *network, const char *address);

#endif
