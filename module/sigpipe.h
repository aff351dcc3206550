/* sigpipe.h - write without a signal to what cannot say MSG_NOSIGNAL: pipes, and sendfile(2).
 *
 * Thread: any.  A batch Emacs dies of SIGPIPE, and its thread writes for the loop too (turn.h).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#ifndef PORTER_SIGPIPE_H
#define PORTER_SIGPIPE_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

struct sigpipe {
    sigset_t before;
    bool was_held; /* as in the loop's thread: there is nothing to do */
};

static inline void sigpipe_hold(struct sigpipe *hold)
{
    sigset_t pipe_set;
    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &hold->before);
    hold->was_held = sigismember(&hold->before, SIGPIPE);
}

/* Drop the signal that came meanwhile, and keep errno.  None can have waited from before: it was not held then. */
static inline void sigpipe_release(const struct sigpipe *hold)
{
    static const struct timespec now = {0, 0};
    sigset_t pipe_set;
    int error = errno; /* of the write */
    if (hold->was_held)
        return;
    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    while (sigtimedwait(&pipe_set, NULL, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &hold->before, NULL);
    errno = error;
}

#endif
