/* ceiling.c - the least that libuv and llhttp can do: the ceiling of Porter's benchmarks.
 *
 * Usage: ceiling PORT HANDLER FILL       serve; HANDLER is "plus" or "ok", FILL a header's length
 *        ceiling --hold PORT N           open N connections, ask once on each, hold them
 *                                        until stdin ends
 *
 * One thread, one write per answer, no limits, no timeouts, no escapes: not a server to use.
 * What does not fit into the kernel at once ends the connection.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include <arpa/inet.h>
#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

struct conn {
    uv_tcp_t tcp;
    llhttp_t parser;
    long n;            /* the number after "n=" in the target */
    char before, last; /* the two bytes of the target seen last */
    int out_len;
    char out[64 * 1024]; /* answers to what one read brought */
};

static llhttp_settings_t settings;
static char in[64 * 1024], date[64], fill[512];
static int plus;

static int on_begin(llhttp_t *parser)
{
    struct conn *conn = parser->data;

    conn->n = -1;
    conn->before = conn->last = 0;
    return 0;
}

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
    struct conn *conn = parser->data;

    for (; len > 0; len--, at++) {
        if (conn->n >= 0 && *at >= '0' && *at <= '9')
            conn->n = conn->n * 10 + (*at - '0');
        else if (conn->before == 'n' && conn->last == '=' && *at >= '0' && *at <= '9')
            conn->n = *at - '0';
        conn->before = conn->last;
        conn->last = *at;
    }
    return 0;
}

static int on_complete(llhttp_t *parser)
{
    struct conn *conn = parser->data;
    char body[32] = "ok";
    int left = (int)sizeof(conn->out) - conn->out_len;

    if (plus)
        snprintf(body, sizeof(body), "%ld", conn->n + 1);
    conn->out_len += snprintf(conn->out + conn->out_len, (size_t)left,
                              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: %s\r\n"
                              "%sContent-Length: %zu\r\n\r\n%s",
                              date, fill, strlen(body), body);
    return conn->out_len > (int)sizeof(conn->out) - 1024 ? HPE_USER : 0;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_buffer(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    (void)handle, (void)size;
    *buf = uv_buf_init(in, sizeof(in));
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    struct conn *conn = stream->data;
    uv_buf_t out;

    conn->out_len = 0;
    if (len == 0)
        return;
    if (len > 0 && llhttp_execute(&conn->parser, buf->base, (size_t)len) == HPE_OK) {
        out = uv_buf_init(conn->out, (unsigned)conn->out_len);
        if (out.len == 0 || uv_try_write(stream, &out, 1) == (int)out.len)
            return;
    }
    uv_close((uv_handle_t *)stream, on_closed);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct conn *conn = malloc(sizeof(*conn));

    if (status < 0 || !conn)
        exit(1);
    uv_tcp_init(listener->loop, &conn->tcp);
    conn->tcp.data = conn;
    llhttp_init(&conn->parser, HTTP_REQUEST, &settings);
    conn->parser.data = conn;
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp)) {
        uv_close((uv_handle_t *)&conn->tcp, on_closed);
        return;
    }
    uv_tcp_nodelay(&conn->tcp, 1);
    uv_read_start((uv_stream_t *)&conn->tcp, on_buffer, on_read);
}

static void on_second(uv_timer_t *timer)
{
    time_t now = time(NULL);

    (void)timer;
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime(&now));
}

static int hold(const struct sockaddr_in *address, int count)
{
    static const char request[] = "GET /?n=7 HTTP/1.1\r\nHost: localhost\r\n\r\n";

    for (int i = 0; i < count; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) ||
            write(fd, request, sizeof(request) - 1) < 0 || read(fd, in, sizeof(in)) < 12 ||
            memcmp(in, "HTTP/1.1 200", 12) != 0) {
            perror("ceiling: hold");
            return 1;
        }
    }
    puts("held");
    fflush(stdout);
    while (read(0, in, sizeof(in)) > 0)
        continue;
    return 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address;
    uv_timer_t timer;
    uv_tcp_t listener;
    uv_loop_t *loop = uv_default_loop();
    int holding, fill_len;

    if (argc != 4)
        return 2;
    holding = strcmp(argv[1], "--hold") == 0;
    uv_ip4_addr("127.0.0.1", atoi(argv[holding ? 2 : 1]), &address);
    if (holding)
        return hold(&address, atoi(argv[3]));
    plus = strcmp(argv[2], "plus") == 0;
    fill_len = atoi(argv[3]);
    if (fill_len > 0 && fill_len < 400)
        snprintf(fill, sizeof(fill), "X-Fill: %0*d\r\n", fill_len, 0);
    llhttp_settings_init(&settings);
    settings.on_message_begin = on_begin;
    settings.on_url = on_url;
    settings.on_message_complete = on_complete;
    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, on_second, 0, 1000);
    on_second(&timer);
    uv_tcp_init(loop, &listener);
    if (uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0) ||
        uv_listen((uv_stream_t *)&listener, 511, on_connection))
        return 1;
    return uv_run(loop, UV_RUN_DEFAULT);
}
