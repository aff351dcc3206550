/* queue.c - FIFO of owned items between the Emacs and the loop thread.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "queue.h"

int queue_init(struct queue *queue)
{
    queue->items = (struct item_list){0};
    atomic_init(&queue->filled, false);
    return uv_mutex_init(&queue->mutex);
}

void queue_destroy(struct queue *queue)
{
    CHECK(!queue->items.first);
    uv_mutex_destroy(&queue->mutex);
}

void queue_push_list(struct queue *queue, struct item_list *list)
{
    if (!list->first)
        return;
    uv_mutex_lock(&queue->mutex);
    list_join(&queue->items, list);
    atomic_store(&queue->filled, true);
    uv_mutex_unlock(&queue->mutex);
}

void queue_push(struct queue *queue, struct item *item)
{
    struct item_list list = {0};
    list_push(&list, item);
    queue_push_list(queue, &list);
}

struct item_list queue_take(struct queue *queue)
{
    if (!queue_filled(queue))
        return (struct item_list){0};
    uv_mutex_lock(&queue->mutex);
    struct item_list items = queue->items;
    queue->items = (struct item_list){0};
    atomic_store(&queue->filled, false);
    uv_mutex_unlock(&queue->mutex);
    return items;
}
