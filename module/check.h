/* check.h - assertions and small helpers used everywhere.
 *
 * Thread: any.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_CHECK_H
#define PORTER_CHECK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Debug builds (make asan, make tsan, the C tests) stop at a broken invariant.  A release build goes
 * on: the process is somebody's editor, with unsaved work in it. */
#ifdef PORTER_DEBUG
#include <stdio.h>
#include <stdlib.h>
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
#else
#define CHECK(condition) ((void)sizeof(condition))
#endif

#define ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))

/* The struct whose member MEMBER is at PTR. */
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
