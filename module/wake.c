/* wake.c - ring the other thread's bell.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "wake.h"

#include "sigpipe.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* EAGAIN is success: the pipe holds thousands of unread bells, so Emacs is due to wake anyway.  A
 * blocking write here would freeze every socket while the user sits in a debugger.  EPIPE means that
 * the Lisp process was deleted; its sentinel brings a new bell, which rings when it is installed. */
static void write_byte(int fd)
{
    struct sigpipe hold;
    ssize_t n;
    if (fd < 0)
        return;
    sigpipe_hold(&hold);
    do
        n = write(fd, "!", 1);
    while (n < 0 && errno == EINTR);
    sigpipe_release(&hold);
}

void bell_ring_from_loop(struct bell *bell, bool while_draining)
{
    int state = BELL_IDLE;
    if (atomic_compare_exchange_strong(&bell->state, &state, BELL_RUNG) ||
        (while_draining && state == BELL_DRAINING &&
         atomic_compare_exchange_strong(&bell->state, &state, BELL_RUNG)))
        write_byte(bell->loop_fd);
}

void bell_ring_from_emacs(struct bell *bell)
{
    atomic_store(&bell->state, BELL_RUNG);
    write_byte(bell->emacs_fd);
}

void bell_answer(struct bell *bell)
{
    atomic_store(&bell->state, BELL_DRAINING);
}

void bell_rest(struct bell *bell)
{
    /* RUNG stays RUNG: a byte is on its way, and will find what there is. */
    int state = BELL_DRAINING;
    atomic_compare_exchange_strong(&bell->state, &state, BELL_IDLE);
}

int wake_prepare_fd(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    return 0;
}
