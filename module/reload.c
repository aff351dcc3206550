/* reload.c - pages that load themselves anew when what they are made of has changed.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "reload.h"

#include "listing.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* One save makes several events; the page is told when no more come. */
#define REST_MS 40

/* So long after Emacs has told of a save the same is not told again by the file system. */
#define TOLD_MS 200

/* Directories watched for one mount: each costs the kernel memory. */
#define WATCHES_MAX 256

/* A page that listens.  Its exchange leaves it by the task. */
struct reader {
    struct task task;
    struct reader *next;
};

struct watch {
    uv_fs_event_t event;
    struct reload *reload;
    struct watch *next;
    char directory[];
};

struct reload {
    struct hub *hub;
    uv_timer_t timer;
    struct reader *readers;
    struct watch *watches;
    unsigned watches_count;
    unsigned closing; /* handles that libuv has not let go of */
    bool style;       /* since the last push nothing but style sheets has changed */
    uint64_t told_ms;
};

struct reload *reload_new(struct hub *hub)
{
    struct reload *reload = calloc(1, sizeof *reload);
    if (!reload)
        return NULL;
    reload->hub = hub;
    reload->style = true;
    uv_timer_init(&hub->uv, &reload->timer);
    reload->timer.data = reload;
    return reload;
}

static void let_go(struct reload *reload)
{
    if (--reload->closing)
        return;
    while (reload->watches) {
        struct watch *watch = reload->watches;
        reload->watches = watch->next;
        free(watch);
    }
    free(reload);
}

static void on_timer_closed(uv_handle_t *handle)
{
    let_go(handle->data);
}

static void on_watch_closed(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    let_go(watch->reload);
}

/* The streams end: their pages try again, and find the next server. */
static void end_reader(struct reload *reload, struct reader *reader)
{
    struct exchange *exchange = reader->task.exchange;
    free(reader);
    if (!exchange)
        return;
    exchange->task = NULL;
    exchange->reply.close = true;
    exchange->complete = true;
    reload->hub->on_completed(exchange);
}

void reload_close(struct reload *reload)
{
    if (!reload)
        return;
    while (reload->readers) {
        struct reader *reader = reload->readers;
        reload->readers = reader->next;
        end_reader(reload, reader);
    }
    reload->closing = 1;
    for (struct watch *watch = reload->watches; watch; watch = watch->next) {
        reload->closing++;
        uv_close((uv_handle_t *)&watch->event, on_watch_closed);
    }
    uv_close((uv_handle_t *)&reload->timer, on_timer_closed);
}

/* LEN bytes of the stream, as a chunk where there are chunks. */
static bool put_piece(struct exchange *exchange, const char *bytes, size_t len)
{
    struct reply *reply = &exchange->reply;
    struct piece *piece = piece_new(exchange);
    if (!piece)
        return false;
    bool ok = buf_append(&reply->body, bytes, len, SIZE_MAX) &&
              format_stream_piece(reply, &piece->bytes) == FORMAT_OK;
    if (!ok) {
        piece_free(piece);
        return false;
    }
    atomic_fetch_add(&exchange->unsent_bytes, piece->bytes.len);
    list_push(&exchange->pieces, &piece->item);
    return true;
}

bool reload_listen(struct reload *reload, struct exchange *exchange,
                   const struct format_context *context, const struct format_clock *clock)
{
    static const char type[] = "text/event-stream";
    static const char hello[] = "retry: 500\n\n";
    struct reply *reply = &exchange->reply;
    struct reader *reader = calloc(1, sizeof *reader);
    struct piece *head = piece_new(exchange);
    bool ok = reader && head && format_start(reply, 200) == FORMAT_OK &&
              format_field(reply, "Content-Type", strlen("Content-Type"), type, sizeof type - 1) ==
                  FORMAT_OK &&
              format_field(reply, "Cache-Control", strlen("Cache-Control"), "no-store",
                           strlen("no-store")) == FORMAT_OK &&
              format_stream_start(reply, context, clock) == FORMAT_OK;
    if (!ok) {
        free(reader);
        if (head)
            piece_free(head);
        return false;
    }
    head->bytes = reply->head;
    reply->head = (struct buf){0};
    atomic_fetch_add(&exchange->unsent_bytes, head->bytes.len);
    list_push(&exchange->pieces, &head->item);
    if (reply->bodiless) {
        free(reader);
        exchange->complete = true;
        return true;
    }
    put_piece(exchange, hello, sizeof hello - 1);
    reader->task.exchange = exchange;
    reader->task.fd = -1;
    reader->next = reload->readers;
    reload->readers = reader;
    exchange->task = &reader->task;
    return true;
}

void reload_push(struct reload *reload, bool style)
{
    static const char page[] = "data: page\n\n";
    static const char sheet[] = "data: style\n\n";
    const char *bytes = style ? sheet : page;
    uv_timer_stop(&reload->timer);
    reload->style = true;
    reload->told_ms = hub_now(reload->hub);
    for (struct reader **at = &reload->readers; *at;) {
        struct reader *reader = *at;
        struct exchange *exchange = reader->task.exchange;
        if (!exchange) {
            *at = reader->next;
            free(reader);
            continue;
        }
        at = &reader->next;
        /* One that does not read has one event waiting: another one tells it no more. */
        if (!exchange->pieces.first && put_piece(exchange, bytes, strlen(bytes)))
            reload->hub->on_completed(exchange);
    }
}

static void on_rest(uv_timer_t *timer)
{
    struct reload *reload = timer->data;
    reload_push(reload, reload->style);
}

static bool ends_with(const char *name, const char *end)
{
    size_t name_len = strlen(name);
    size_t end_len = strlen(end);
    return name_len >= end_len && strcasecmp(name + name_len - end_len, end) == 0;
}

static void on_event(uv_fs_event_t *event, const char *name, int events, int status)
{
    struct watch *watch = event->data;
    struct reload *reload = watch->reload;
    (void)events;
    /* What editors make while they save: locks, backups, automatic saves. */
    if (status < 0 || !name || name[0] == '.' || name[0] == '#' || ends_with(name, "~"))
        return;
    if (hub_now(reload->hub) - reload->told_ms < TOLD_MS)
        return;
    reload->style = reload->style && ends_with(name, ".css");
    uv_timer_start(&reload->timer, on_rest, REST_MS, 0);
}

void reload_watch(struct reload *reload, const char *directory)
{
    size_t len = strlen(directory) + 1;
    for (struct watch *watch = reload->watches; watch; watch = watch->next)
        if (strcmp(watch->directory, directory) == 0)
            return;
    if (reload->watches_count == WATCHES_MAX)
        return;
    struct watch *watch = calloc(1, sizeof *watch + len);
    if (!watch)
        return;
    memcpy(watch->directory, directory, len);
    watch->reload = reload;
    uv_fs_event_init(&reload->hub->uv, &watch->event);
    watch->event.data = watch;
    /* When it cannot be watched, it is not tried again with each request. */
    uv_fs_event_start(&watch->event, on_event, directory, 0);
    watch->next = reload->watches;
    reload->watches = watch;
    reload->watches_count++;
}

/* ---- the page ---- */

static const char script_start[] = "<script>(function(){var s=new EventSource(\"";
static const char script_end[] = RELOAD_NAME
    "\"),k=\"porter-scroll:\"+location.pathname;\n"
    "try{var y=sessionStorage.getItem(k);if(y!==null){sessionStorage.removeItem(k);\n"
    "addEventListener(\"load\",function(){scrollTo(0,+y)})}}catch(e){}\n"
    "s.onmessage=function(m){if(m.data===\"style\"){\n"
    "document.querySelectorAll('link[rel~=\"stylesheet\"]').forEach(function(l){\n"
    "var u=new URL(l.href),n=l.cloneNode();if(u.origin!==location.origin)return;\n"
    "u.searchParams.set(\"porter-reload\",Date.now());n.href=u.href;\n"
    "n.onload=function(){l.remove()};l.after(n)})}\n"
    "else{try{sessionStorage.setItem(k,scrollY)}catch(e){}location.reload()}};\n"
    "addEventListener(\"pagehide\",function(){s.close()})})()</script>\n";

/* Where the script belongs: before the last </body>, else at the end. */
static size_t place_of(const struct buf *page)
{
    static const char tag[] = "</body";
    size_t len = sizeof tag - 1;
    for (size_t at = page->len; at >= len; at--)
        if (page->data[at - len] == '<' && strncasecmp(page->data + at - len, tag, len) == 0)
            return at - len;
    return page->len;
}

bool reload_inject(struct buf *page, const char *prefix)
{
    struct buf script = {0};
    bool ok = buf_append(&script, script_start, sizeof script_start - 1, SIZE_MAX) &&
              listing_encode(&script, prefix, strlen(prefix), true) &&
              buf_append(&script, script_end, sizeof script_end - 1, SIZE_MAX) &&
              buf_reserve(page, script.len, SIZE_MAX);
    if (ok) {
        size_t at = place_of(page);
        memmove(page->data + at + script.len, page->data + at, page->len - at);
        memcpy(page->data + at, script.data, script.len);
        page->len += script.len;
    }
    buf_free(&script);
    return ok;
}
