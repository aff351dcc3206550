/* proxy-test.c - PROXY headers, whole and cut at every place; networks.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "proxy.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static int passed, failed;

static void expect_at(bool good, int line)
{
    passed += good;
    failed += !good;
    if (!good)
        fprintf(stderr, "proxy-test.c:%d: not so\n", line);
}
#define EXPECT(condition) expect_at((condition), __LINE__)

/* Feed BYTES and two more, cut at CUT.  The outcome is the peer as text, "-" when it has not changed, or the
 * status when it is not PROXY_DONE; "?" when too much or too little was used. */
static const char *outcome(const char *bytes, size_t len, size_t cut)
{
    static char text[80];
    char name[INET6_ADDRSTRLEN];
    char all[512];
    struct proxy proxy = {0};
    struct peer peer = {0};
    memcpy(all, bytes, len);
    memcpy(all + len, "GE", 2);
    size_t used = 0;
    enum proxy_status status = proxy_feed(&proxy, all, cut, &used, &peer);
    if (status == PROXY_MORE) {
        size_t more;
        if (used != cut)
            return "?";
        status = proxy_feed(&proxy, all + cut, len + 2 - cut, &more, &peer);
        used += more;
    }
    if (status != PROXY_DONE)
        return status == PROXY_MORE ? "more" : "bad";
    if (used != len)
        return "?";
    if (!peer.address.sa.sa_family)
        return "-";
    bool six = peer.address.sa.sa_family == AF_INET6;
    inet_ntop(peer.address.sa.sa_family,
              six ? (void *)&peer.address.in6.sin6_addr : (void *)&peer.address.in.sin_addr, name,
              sizeof name);
    snprintf(text, sizeof text, "%s %d", name,
             ntohs(six ? peer.address.in6.sin6_port : peer.address.in.sin_port));
    return text;
}

static void check(const char *bytes, size_t len, const char *wanted, int line)
{
    for (size_t cut = 0; cut <= len; cut++)
        expect_at(strcmp(outcome(bytes, len, cut), wanted) == 0, line);
}
#define CHECK_OUTCOME(bytes, wanted) check(bytes, sizeof(bytes) - 1, wanted, __LINE__)
#define TWO "\r\n\r\n\0\r\nQUIT\n"

int main(void)
{
    CHECK_OUTCOME("PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", "192.0.2.1 56324");
    CHECK_OUTCOME("PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n", "2001:db8::1 1");
    CHECK_OUTCOME("PROXY UNKNOWN\r\n", "-");
    CHECK_OUTCOME("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "-");
    CHECK_OUTCOME("PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n", "bad");
    CHECK_OUTCOME("PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 1\r\n", "bad");
    CHECK_OUTCOME("PROXY TCP4  192.0.2.1 192.0.2.2 56324 443\r\n", "bad");
    CHECK_OUTCOME("PROXY TCP4 192.0.2.1 192.0.2.2 65536 443\r\n", "bad");
    CHECK_OUTCOME("PROXY TCP4 192.0.2.1 192.0.2.2 01 443\r\n", "bad");
    CHECK_OUTCOME("PROXY TCP4 192.0.2.1 192.0.2.2 -1 443\r\n", "bad");
    CHECK_OUTCOME("PROXY TCP4 192.0.2.256 192.0.2.2 1 443\r\n", "bad");
    CHECK_OUTCOME("PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n", "bad");
    CHECK_OUTCOME("PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n", "bad");
    CHECK_OUTCOME("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n", "bad");
    CHECK_OUTCOME("PROXY UNKNOWNX\r\n", "bad");
    CHECK_OUTCOME(
        "PROXY UNKNOWN xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxx\r\n",
        "bad");
    CHECK_OUTCOME("GET / HTTP/1.1\r\n", "bad");
    CHECK_OUTCOME("PRI * HTTP/2.0\r\n", "bad");

    CHECK_OUTCOME(TWO "\x21\x11\0\x0c\xc0\0\2\1\xc0\0\2\2\xdc\4\1\xbb", "192.0.2.1 56324");
    /* With a TLV behind the addresses. */
    CHECK_OUTCOME(TWO "\x21\x11\0\x10\xc0\0\2\1\xc0\0\2\2\xdc\4\1\xbb\4\0\1x", "192.0.2.1 56324");
    CHECK_OUTCOME(TWO "\x21\x21\0\x24\x20\1\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1"
                      "\x20\1\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\2\0\1\1\xbb",
                  "2001:db8::1 1");
    CHECK_OUTCOME(TWO "\x20\0\0\0", "-");
    CHECK_OUTCOME(TWO "\x20\0\0\3abc", "-");
    CHECK_OUTCOME(TWO "\x20\x11\0\x0c\xc0\0\2\1\xc0\0\2\2\xdc\4\1\xbb", "-"); /* LOCAL */
    CHECK_OUTCOME(TWO "\x21\0\0\0", "-");                                     /* unspecified */
    CHECK_OUTCOME(TWO "\x21\x11\0\x0b\xc0\0\2\1\xc0\0\2\2\xdc\4\1", "bad");
    CHECK_OUTCOME(TWO "\x11\x11\0\x0c\xc0\0\2\1\xc0\0\2\2\xdc\4\1\xbb", "bad");
    CHECK_OUTCOME(TWO "\x22\x11\0\x0c\xc0\0\2\1\xc0\0\2\2\xdc\4\1\xbb", "bad");
    CHECK_OUTCOME("\r\n\r\n\0\r\nQUIT\r", "bad");

    EXPECT(proxy_network_has("127.0.0.1", "127.0.0.1"));
    EXPECT(!proxy_network_has("127.0.0.1", "127.0.0.2"));
    EXPECT(proxy_network_has("10.0.0.0/8", "10.255.0.1"));
    EXPECT(!proxy_network_has("10.0.0.0/8", "11.0.0.1"));
    EXPECT(proxy_network_has("10.0.0.0/0", "192.0.2.1"));
    EXPECT(!proxy_network_has("10.0.0.0/0", "::1"));
    EXPECT(proxy_network_has("192.0.2.128/25", "192.0.2.129"));
    EXPECT(!proxy_network_has("192.0.2.128/25", "192.0.2.127"));
    EXPECT(proxy_network_has("10.0.0.0/8", "::ffff:10.1.2.3"));
    EXPECT(proxy_network_has("2001:db8::/32", "2001:db8:1::1"));
    EXPECT(!proxy_network_has("2001:db8::/32", "2001:db9::1"));
    EXPECT(proxy_network_has("::1", "::1"));
    EXPECT(!proxy_network_has("10.0.0.0/33", "10.0.0.0"));
    EXPECT(!proxy_network_has("10.0.0.0/", "10.0.0.0"));
    EXPECT(!proxy_network_has("here", "here"));
    EXPECT(!proxy_network_has("127.0.0.1", "unknown"));
    EXPECT(!proxy_network_has("", ""));

    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
