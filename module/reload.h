/* reload.h - pages that load themselves anew when what they are made of has changed.
 *
 * Thread: loop.  One for each mounted directory that wants it: it watches the directories that files were served
 * from, and pushes an event to the pages, each of which has a stream open (a script in the page sees to that).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_RELOAD_H
#define PORTER_RELOAD_H

#include "hub.h"

struct reload;

/* The name of the stream below the mount. */
#define RELOAD_NAME ".porter-reload"

/* NULL when memory is out. */
struct reload *reload_new(struct hub *hub);
/* Frees RELOAD as soon as libuv has let go of it.  NULL is nothing to do. */
void reload_close(struct reload *reload);

/* Answer EXCHANGE with a stream of events.  False when memory is out. */
bool reload_listen(struct reload *reload, struct exchange *exchange,
                   const struct format_context *context, const struct format_clock *clock);

/* Watch DIRECTORY from now on.  When too many are watched, nothing happens. */
void reload_watch(struct reload *reload, const char *directory);

/* Tell all pages, at once.  STYLE: only a style sheet has changed. */
void reload_push(struct reload *reload, bool style);

/* Put the script into the HTML page PAGE, whose mount is at PREFIX.  Thread: any.  False when memory is out. */
bool reload_inject(struct buf *page, const char *prefix);

#endif
