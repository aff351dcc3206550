/* queue.h - FIFO of owned items between the Emacs and the loop thread.
 *
 * Thread: both.  This is the only lock in Porter, so there is no lock order to get wrong.
 * It is never held across Lisp, malloc or a system call, so neither thread waits on slow work.
 * The receiver takes the whole list in one step and works unlocked: one lock per batch.
 *
 * The links are in the items, so a push cannot fail.  What bounds a queue is what bounds its items:
 * connections times pipelined requests one way, what handlers produce the other way.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_QUEUE_H
#define PORTER_QUEUE_H

#include "check.h"

#include <uv.h>

/* First member of everything that crosses.  In one queue at a time; KIND is its sender's enum. */
struct item {
    struct item *next;
    int kind;
};

struct item_list {
    struct item *first;
    struct item *last;
};

static inline void list_push(struct item_list *list, struct item *item)
{
    item->next = NULL;
    if (list->last)
        list->last->next = item;
    else
        list->first = item;
    list->last = item;
}

static inline struct item *list_pop(struct item_list *list)
{
    struct item *item = list->first;
    if (item) {
        list->first = item->next;
        if (!list->first)
            list->last = NULL;
        item->next = NULL;
    }
    return item;
}

/* Move all of TAIL behind LIST and leave TAIL empty. */
static inline void list_join(struct item_list *list, struct item_list *tail)
{
    if (!tail->first)
        return;
    if (list->last)
        list->last->next = tail->first;
    else
        list->first = tail->first;
    list->last = tail->last;
    *tail = (struct item_list){0};
}

struct queue {
    uv_mutex_t mutex;
    struct item_list items;
    atomic_bool filled; /* a hint that costs no lock; exact for who pushed or took last */
};

int queue_init(struct queue *queue); /* 0 or a negative libuv code */
void queue_destroy(struct queue *queue);

/* Takes all of LIST and leaves it empty. */
void queue_push_list(struct queue *queue, struct item_list *list);

/* Takes ITEM. */
void queue_push(struct queue *queue, struct item *item);

/* Gives everything that is in QUEUE, in order. */
struct item_list queue_take(struct queue *queue);

static inline bool queue_filled(struct queue *queue)
{
    return atomic_load(&queue->filled);
}

#endif
