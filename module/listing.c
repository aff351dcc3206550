/* listing.c - the page that shows what is in a directory.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "listing.h"

#include "decode.h"
#include "select.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

bool listing_servable(const char *name, size_t len, bool dotfiles)
{
    if (len == 0 || len > 255 || memchr(name, '\\', len))
        return false;
    if (name[0] != '.')
        return true;
    return dotfiles && len > 1 && !(len == 2 && name[1] == '.');
}

static bool put(struct buf *out, const char *text)
{
    return buf_append(out, text, strlen(text), SIZE_MAX);
}

bool listing_encode(struct buf *out, const char *bytes, size_t len, bool slashes)
{
    static const char hex[] = "0123456789ABCDEF";
    if (!buf_reserve(out, 3 * len, SIZE_MAX))
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        /* RFC 3986 section 2.3: unreserved. */
        bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                     (byte >= '0' && byte <= '9') || byte == '-' || byte == '.' || byte == '_' ||
                     byte == '~' || (slashes && byte == '/');
        if (plain) {
            out->data[out->len++] = (char)byte;
        } else {
            out->data[out->len++] = '%';
            out->data[out->len++] = hex[byte >> 4];
            out->data[out->len++] = hex[byte & 15];
        }
    }
    return true;
}

static bool put_escaped(struct buf *out, const char *text, size_t len)
{
    bool ok = true;
    for (size_t i = 0; i < len && ok; i++) {
        switch (text[i]) {
        case '&':
            ok = put(out, "&amp;");
            break;
        case '<':
            ok = put(out, "&lt;");
            break;
        case '>':
            ok = put(out, "&gt;");
            break;
        case '"':
            ok = put(out, "&quot;");
            break;
        case '\'':
            ok = put(out, "&#39;");
            break;
        default:
            /* Control characters in names would be invisible. */
            if ((unsigned char)text[i] < 32 || text[i] == 127)
                ok = put(out, "\xef\xbf\xbd");
            else
                ok = buf_append(out, text + i, 1, SIZE_MAX);
        }
    }
    return ok;
}

/* ---- the request ---- */

void listing_read_request(struct listing_request *listing, const struct request *request,
                          const char *prefix, bool dotfiles)
{
    const char *at = request_at(request, request->query);
    const char *end = at + request->query.len;
    struct pair pair;
    *listing = (struct listing_request){.dotfiles = dotfiles};
    snprintf(listing->prefix, sizeof listing->prefix, "%s", prefix);
    listing->text = select_accepts_type(request, "text/plain") &&
                    !select_accepts_type(request, "text/html");
    while (request->query.len && decode_next_pair(&at, end, &pair)) {
        if (pair.name_len == 4 && memcmp(pair.name, "sort", 4) == 0) {
            if (pair.value_len == 4 && memcmp(pair.value, "size", 4) == 0)
                listing->order = LISTING_BY_SIZE;
            else if (pair.value_len == 4 && memcmp(pair.value, "date", 4) == 0)
                listing->order = LISTING_BY_DATE;
            else
                listing->order = LISTING_BY_NAME;
        } else if (pair.name_len == 5 && memcmp(pair.name, "order", 5) == 0) {
            listing->descending = pair.value_len == 4 && memcmp(pair.value, "desc", 4) == 0;
        }
    }
}

/* ---- the names ---- */

struct name {
    char *text;
    uint64_t size;
    time_t modified;
    bool directory;
};

struct names {
    struct name *at;
    size_t len;
    size_t capacity;
    bool cut; /* there are more */
};

static void names_free(struct names *names)
{
    for (size_t i = 0; i < names->len; i++)
        free(names->at[i].text);
    free(names->at);
}

static bool add_name(struct names *names, const char *text, const struct stat *st)
{
    if (names->len == names->capacity) {
        size_t capacity = names->capacity ? 2 * names->capacity : 64;
        struct name *at = realloc(names->at, capacity * sizeof *at);
        if (!at)
            return false;
        names->at = at;
        names->capacity = capacity;
    }
    struct name *name = &names->at[names->len];
    name->text = strdup(text);
    if (!name->text)
        return false;
    name->size = (uint64_t)st->st_size;
    name->modified = st->st_mtime;
    name->directory = S_ISDIR(st->st_mode);
    names->len++;
    return true;
}

/* All that could be asked for. */
static bool read_names(int directory, const struct listing_request *listing,
                       bool (*follow)(void *data, const char *name, struct stat *st), void *data,
                       struct names *names)
{
    DIR *dir = fdopendir(directory);
    if (!dir) {
        close(directory);
        return false;
    }
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(dir));) {
        struct stat st;
        size_t len = strlen(entry->d_name);
        if (!listing_servable(entry->d_name, len, listing->dotfiles) ||
            decode_text_kind(entry->d_name, len) == TEXT_BYTES)
            continue;
        if (names->len == LIMIT_LISTING_NAMES) {
            names->cut = true;
            break;
        }
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISLNK(st.st_mode) && !follow(data, entry->d_name, &st))
            continue;
        if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
            ok = add_name(names, entry->d_name, &st);
    }
    closedir(dir);
    return ok;
}

/* "file9" before "file10", and large and small letters side by side: as people look for them. */
static int compare_text(const char *a, const char *b)
{
    const char *one = a;
    const char *other = b;
    while (*one && *other) {
        if (*one >= '0' && *one <= '9' && *other >= '0' && *other <= '9') {
            while (*one == '0' && one[1] >= '0' && one[1] <= '9')
                one++;
            while (*other == '0' && other[1] >= '0' && other[1] <= '9')
                other++;
            size_t one_len = strspn(one, "0123456789");
            size_t other_len = strspn(other, "0123456789");
            if (one_len != other_len)
                return one_len < other_len ? -1 : 1;
            int order = memcmp(one, other, one_len);
            if (order)
                return order;
            one += one_len;
            other += other_len;
            continue;
        }
        unsigned char x = (unsigned char)*one++;
        unsigned char y = (unsigned char)*other++;
        if (x >= 'A' && x <= 'Z')
            x |= 32;
        if (y >= 'A' && y <= 'Z')
            y |= 32;
        if (x != y)
            return x < y ? -1 : 1;
    }
    if (*one || *other)
        return *one ? 1 : -1;
    return strcmp(a, b);
}

static int by_name(const void *a, const void *b)
{
    const struct name *one = a;
    const struct name *other = b;
    if (one->directory != other->directory)
        return one->directory ? -1 : 1;
    return compare_text(one->text, other->text);
}

static int by_size(const void *a, const void *b)
{
    const struct name *one = a;
    const struct name *other = b;
    if (one->directory || other->directory || one->size == other->size)
        return by_name(a, b);
    return one->size < other->size ? -1 : 1;
}

static int by_date(const void *a, const void *b)
{
    const struct name *one = a;
    const struct name *other = b;
    if (one->directory != other->directory || one->modified == other->modified)
        return by_name(a, b);
    return one->modified < other->modified ? -1 : 1;
}

static void sort_names(struct names *names, const struct listing_request *listing)
{
    int (*const orders[])(const void *, const void *) = {by_name, by_size, by_date};
    if (names->len == 0)
        return;
    qsort(names->at, names->len, sizeof *names->at, orders[listing->order]);
    if (!listing->descending)
        return;
    /* Directories come first all the same. */
    size_t directories = 0;
    while (directories < names->len && names->at[directories].directory)
        directories++;
    const size_t ends[][2] = {{0, directories}, {directories, names->len}};
    for (int part = 0; part < 2; part++)
        for (size_t i = ends[part][0], j = ends[part][1]; i + 1 < j; i++, j--) {
            struct name swap = names->at[i];
            names->at[i] = names->at[j - 1];
            names->at[j - 1] = swap;
        }
}

/* ---- the page ---- */

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--line:#8883;--soft:#6b7280;--link:#0b57d0;--over:#8881}\n"
    "@media(prefers-color-scheme:dark){:root{--soft:#9ca3af;--link:#8ab4f8}}\n"
    "*{box-sizing:border-box}\n"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1.5rem 1rem "
    "3rem}\n"
    "h1{font-size:1.25rem;font-weight:600;margin:0 0 1rem;overflow-wrap:anywhere}\n"
    "h1 span{color:var(--soft);font-weight:400}\n"
    "a{color:var(--link);text-decoration:none}a:hover,a:focus{text-decoration:underline}\n"
    "table{width:100%;border-collapse:collapse}\n"
    "th,td{text-align:left;padding:.35rem .5rem;border-bottom:1px solid var(--line)}\n"
    "th{font-weight:600;font-size:.875rem}th a{color:inherit}\n"
    "td:first-child{overflow-wrap:anywhere}\n"
    "td+td,th+th{width:1%;text-align:right;white-space:nowrap;color:var(--soft);font-size:.875rem;"
    "\n"
    "font-variant-numeric:tabular-nums}\n"
    "tbody tr:hover{background:var(--over)}\n"
    ".d a{font-weight:600}\n"
    "footer{color:var(--soft);font-size:.875rem;margin-top:1rem}\n"
    "@media(max-width:34rem){th:nth-child(3),td:nth-child(3){display:none}}\n"
    "</style>\n";

/* The way here, each part a link: by dots, so that it also works behind a proxy with another prefix. */
static bool put_crumbs(struct buf *out, const char *prefix, const char *path)
{
    size_t depth = *path ? 1 : 0;
    for (const char *at = path; *at; at++)
        depth += *at == '/';
    bool ok = put(out, "<h1>");
    size_t left = depth;
    /* The prefix is one part: what is above it is none of ours. */
    if (ok && left) {
        ok = put(out, "<a href=\"");
        for (size_t i = 0; i < left && ok; i++)
            ok = put(out, "../");
        ok = ok && put(out, "\">") && put_escaped(out, prefix, strlen(prefix)) && put(out, "</a>");
    } else {
        ok = ok && put_escaped(out, prefix, strlen(prefix));
    }
    for (const char *at = path; ok && *at;) {
        size_t len = strcspn(at, "/");
        left--;
        if (left) {
            ok = put(out, "<a href=\"");
            for (size_t i = 0; i < left && ok; i++)
                ok = put(out, "../");
            ok = ok && put(out, "\">");
        }
        ok = ok && put_escaped(out, at, len) && (!left || put(out, "</a>")) &&
             put(out, "<span>/</span>");
        at += len + (at[len] == '/');
    }
    return ok && put(out, "</h1>\n");
}

static bool put_heading(struct buf *out, const struct listing_request *listing,
                        enum listing_order order, const char *key, const char *label)
{
    char text[256];
    bool current = listing->order == order;
    snprintf(text, sizeof text, "<th scope=\"col\"%s><a href=\"?sort=%s%s\">%s%s</a></th>",
             !current              ? ""
             : listing->descending ? " aria-sort=\"descending\""
                                   : " aria-sort=\"ascending\"",
             key, current && !listing->descending ? "&amp;order=desc" : "", label,
             !current              ? ""
             : listing->descending ? " \xe2\x86\x93"
                                   : " \xe2\x86\x91");
    return put(out, text);
}

static void put_size(char *out, size_t len, uint64_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double n = (double)size;
    while (n >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        n /= 1024;
        unit++;
    }
    snprintf(out, len, unit && n < 10 ? "%.1f %s" : "%.0f %s", n, units[unit]);
}

static bool put_row(struct buf *out, const struct name *name)
{
    char size[32] = "\xe2\x80\x93";
    char text[160];
    char date[32] = "";
    struct tm tm;
    if (!name->directory)
        put_size(size, sizeof size, name->size);
    if (localtime_r(&name->modified, &tm))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M", &tm);
    snprintf(text, sizeof text, "</a></td><td>%s</td><td>%s</td></tr>\n", size, date);
    return put(out, name->directory ? "<tr class=\"d\"><td><a href=\"" : "<tr><td><a href=\"") &&
           listing_encode(out, name->text, strlen(name->text), false) &&
           put(out, name->directory ? "/\">" : "\">") &&
           put_escaped(out, name->text, strlen(name->text)) &&
           (!name->directory || put(out, "/")) && put(out, text);
}

static bool put_page(struct buf *out, const char *path, const struct listing_request *listing,
                     const struct names *names)
{
    char text[160];
    bool ok = put(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width\">\n<title>") &&
              put_escaped(out, listing->prefix, strlen(listing->prefix)) &&
              put_escaped(out, path, strlen(path)) &&
              put(out, *path ? "/</title>\n" : "</title>\n") && put(out, style) &&
              put(out, "</head>\n<body>\n") && put_crumbs(out, listing->prefix, path) &&
              put(out, "<table>\n<thead><tr>") &&
              put_heading(out, listing, LISTING_BY_NAME, "name", "Name") &&
              put_heading(out, listing, LISTING_BY_SIZE, "size", "Size") &&
              put_heading(out, listing, LISTING_BY_DATE, "date", "Changed") &&
              put(out, "</tr></thead>\n<tbody>\n") &&
              (!*path || put(out, "<tr class=\"d\"><td><a href=\"../\">..</a></td>"
                                  "<td></td><td></td></tr>\n"));
    for (size_t i = 0; i < names->len && ok; i++)
        ok = put_row(out, &names->at[i]);
    snprintf(text, sizeof text,
             "</tbody>\n</table>\n<footer>%zu name%s%s</footer>\n</body>\n</html>\n", names->len,
             names->len == 1 ? "" : "s", names->cut ? ", and more" : "");
    return ok && put(out, text);
}

static bool put_lines(struct buf *out, const struct names *names)
{
    bool ok = true;
    for (size_t i = 0; i < names->len && ok; i++)
        /* A name with a line break would be two. */
        ok = strpbrk(names->at[i].text, "\r\n") ||
             (put(out, names->at[i].text) && put(out, names->at[i].directory ? "/\n" : "\n"));
    return ok;
}

bool listing_make(int directory, const char *path, const struct listing_request *listing,
                  bool (*follow)(void *data, const char *name, struct stat *st), void *data,
                  struct buf *out)
{
    struct names names = {0};
    bool ok = read_names(directory, listing, follow, data, &names);
    if (ok) {
        sort_names(&names, listing);
        ok = listing->text ? put_lines(out, &names) : put_page(out, path, listing, &names);
    }
    names_free(&names);
    return ok;
}
