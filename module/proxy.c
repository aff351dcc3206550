/* proxy.c - who is behind a proxy.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "proxy.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static const char signature[12] = "\r\n\r\n\0\r\nQUIT\n";

/* Of version 2: signature, version and command, family, length of the rest. */
#define HEAD_2 16

/* ---- version 1: "PROXY TCP4 SOURCE DESTINATION PORT PORT\r\n" ---- */

static bool read_port(const char *text, uint16_t *port)
{
    unsigned long n = 0;
    if (!*text || strlen(text) > 5 || (*text == '0' && text[1]))
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        n = n * 10 + (unsigned long)(*text - '0');
    }
    *port = (uint16_t)n;
    return n <= 65535;
}

static enum proxy_status read_line(struct proxy *proxy, struct peer *peer)
{
    char line[PROXY_HEAD_MAX + 1];
    size_t len = proxy->len - 2u;
    if (proxy->head[len] != '\r' || memchr(proxy->head, 0, len))
        return PROXY_BAD;
    memcpy(line, proxy->head, len);
    line[len] = 0;
    if (strncmp(line, "PROXY UNKNOWN", 13) == 0 && (line[13] == 0 || line[13] == ' '))
        return PROXY_DONE;
    char *words[6];
    size_t n = 0;
    for (char *at = line; n < 6; n++) {
        words[n] = at;
        at = strchr(at, ' ');
        if (!at) {
            n++;
            break;
        }
        *at++ = 0;
        if (n == 5)
            return PROXY_BAD;
    }
    bool six = n == 6 && strcmp(words[1], "TCP6") == 0;
    if (n != 6 || strcmp(words[0], "PROXY") != 0 || (!six && strcmp(words[1], "TCP4") != 0))
        return PROXY_BAD;
    uint16_t port;
    uint16_t unused;
    struct in6_addr to;
    struct peer found = {0};
    void *from = six ? (void *)&found.address.in6.sin6_addr : (void *)&found.address.in.sin_addr;
    int family = six ? AF_INET6 : AF_INET;
    if (inet_pton(family, words[2], from) != 1 || inet_pton(family, words[3], &to) != 1 ||
        !read_port(words[4], &port) || !read_port(words[5], &unused))
        return PROXY_BAD;
    found.address.sa.sa_family = (sa_family_t)family;
    if (six)
        found.address.in6.sin6_port = htons(port);
    else
        found.address.in.sin_port = htons(port);
    *peer = found;
    proxy->named = true;
    return PROXY_DONE;
}

/* ---- version 2 ---- */

static uint16_t length_2(const struct proxy *proxy)
{
    return (uint16_t)((unsigned char)proxy->head[14] << 8 | (unsigned char)proxy->head[15]);
}

/* How many bytes behind the first 16 are kept: source and destination, two addresses and two ports. */
static uint16_t address_len(const struct proxy *proxy)
{
    unsigned family = (unsigned char)proxy->head[13] >> 4;
    return family == 1 ? 12 : family == 2 ? 36 : 0;
}

/* The bytes that count are all there. */
static enum proxy_status read_binary(struct proxy *proxy, struct peer *peer)
{
    const char *at = proxy->head + HEAD_2;
    unsigned command = (unsigned char)proxy->head[12] & 15;
    uint16_t len = address_len(proxy);
    if (command > 1)
        return PROXY_BAD;
    /* LOCAL: the proxy itself, which looks whether we live. */
    if (command == 0 || !len || ((unsigned char)proxy->head[13] & 15) != 1)
        return PROXY_DONE;
    struct peer found = {0};
    if (len == 12) {
        found.address.in.sin_family = AF_INET;
        memcpy(&found.address.in.sin_addr, at, 4);
        memcpy(&found.address.in.sin_port, at + 8, 2);
    } else {
        found.address.in6.sin6_family = AF_INET6;
        memcpy(&found.address.in6.sin6_addr, at, 16);
        memcpy(&found.address.in6.sin6_port, at + 32, 2);
    }
    *peer = found;
    proxy->named = true;
    return PROXY_DONE;
}

static enum proxy_status add_byte(struct proxy *proxy, char byte, struct peer *peer)
{
    static const char word[] = "PROXY ";
    if (proxy->skipping) {
        proxy->skip--;
        return proxy->skip ? PROXY_MORE : PROXY_DONE;
    }
    size_t at = proxy->len;
    proxy->head[proxy->len++] = byte;
    if (proxy->head[0] == word[0]) {
        if (at < sizeof word - 1 && byte != word[at])
            return PROXY_BAD;
        if (byte == '\n')
            return read_line(proxy, peer);
        return proxy->len == PROXY_HEAD_MAX ? PROXY_BAD : PROXY_MORE;
    }
    if (at < sizeof signature && byte != signature[at])
        return PROXY_BAD;
    if (at == 12 && (unsigned char)byte >> 4 != 2)
        return PROXY_BAD;
    if (proxy->len < HEAD_2)
        return PROXY_MORE;
    uint16_t kept = address_len(proxy);
    if (kept > length_2(proxy))
        return PROXY_BAD;
    if (proxy->len < HEAD_2 + kept)
        return PROXY_MORE;
    enum proxy_status status = read_binary(proxy, peer);
    proxy->skip = length_2(proxy) - kept;
    if (status == PROXY_DONE && proxy->skip) {
        proxy->skipping = true;
        return PROXY_MORE;
    }
    return status;
}

enum proxy_status proxy_feed(struct proxy *proxy, const char *bytes, size_t len, size_t *used,
                             struct peer *peer)
{
    enum proxy_status status = PROXY_MORE;
    for (*used = 0; *used < len && status == PROXY_MORE;)
        status = add_byte(proxy, bytes[(*used)++], peer);
    return status;
}

/* ---- networks ---- */

/* TEXT as 16 bytes, an IPv4 address as IPv6 has it; 0 for no address, else 32 or 128 bits. */
static unsigned read_address(const char *text, unsigned char out[16])
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(out, mapped, sizeof mapped);
    if (inet_pton(AF_INET, text, out + 12) == 1)
        return 32;
    return inet_pton(AF_INET6, text, out) == 1 ? 128 : 0;
}

bool proxy_network_has(const char *network, const char *address)
{
    unsigned char a[16];
    unsigned char b[16];
    char name[INET6_ADDRSTRLEN];
    const char *slash = strchr(network, '/');
    size_t len = slash ? (size_t)(slash - network) : strlen(network);
    if (len >= sizeof name)
        return false;
    memcpy(name, network, len);
    name[len] = 0;
    unsigned all = read_address(name, a);
    uint16_t bits = (uint16_t)all;
    if (!all || !read_address(address, b) ||
        (slash && (!read_port(slash + 1, &bits) || bits > all)))
        return false;
    unsigned same = 128 - all + bits;
    for (unsigned i = 0; i < 16 && same; i++) {
        unsigned take = same < 8 ? same : 8;
        unsigned mask = 0xffu << (8 - take) & 0xff;
        if ((a[i] ^ b[i]) & mask)
            return false;
        same -= take;
    }
    return true;
}
