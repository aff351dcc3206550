/* deflate.h - messages compressed and decompressed, each on its own (RFC 7692 section 7.2).
 *
 * Thread: the owner's of the inflater or deflater.  Pure.
 *
 * No dictionary is kept from one message to the next ("no context takeover"), so one inflater and one
 * deflater serve all WebSockets, and one of them more costs nothing.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_DEFLATE_H
#define PORTER_DEFLATE_H

#include "buf.h"

enum inflate_status { INFLATE_OK = 0, INFLATE_TOO_BIG, INFLATE_BAD, INFLATE_NO_MEMORY };

struct inflater;
struct deflater;

/* Append what the message IN says to OUT, which must not grow beyond BYTES_MAX.  Makes *INFLATER when it is
 * NULL.  IN gets the four bytes appended that the sender left out. */
enum inflate_status inflate_message(struct inflater **inflater, struct buf *in, struct buf *out,
                                    uint64_t bytes_max);
void inflater_free(struct inflater *inflater);

/* Append IN, compressed with a window of 2^WINDOW_BITS bytes (9 to 15), to OUT.  Makes *DEFLATER when it is
 * NULL.  False when memory is out. */
bool deflate_message(struct deflater **deflater, int window_bits, const char *in, size_t len,
                     struct buf *out);
void deflater_free(struct deflater *deflater);

#endif
