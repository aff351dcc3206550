/* mime.h - types of files by their names.
 *
 * Thread: any; a table is frozen when it is made.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_MIME_H
#define PORTER_MIME_H

#include <stddef.h>

/* The types of files by extension.  PAIRS are extensions in lower case, without the period (or whole names of
 * files that have none), each followed by its type, 2 * LEN in all: taken, with the strings, also on failure. */
struct mime *mime_new(char **pairs, size_t len);
struct mime *mime_hold(struct mime *mime);
void mime_release(struct mime *mime);
/* The type of the file called NAME, never NULL. */
const char *mime_type(const struct mime *mime, const char *name);

#endif
