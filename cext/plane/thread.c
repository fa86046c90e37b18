/* SPDX-License-Identifier: MIT */
/* thread.c: the one thread of a plane: its start, its wake-up, its end. */
#include "plane/thread.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/threads.h"

moo_err mooi_thread_start(moo_plane *plane)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = MOOI_WOKEN};
    moo_err err;

    if (plane->closed)
        return MOO_ECLOSED;
    if (plane->running)
        return MOO_OK;
    if (epoll_ctl(plane->epoll, EPOLL_CTL_ADD, plane->wake, &event) < 0 &&
        errno != EEXIST)
        return MOO_ESYS;
    err = mooi_thread_create(&plane->thread, plane->run, plane);
    plane->running = err == MOO_OK;
    return err;
}

void mooi_thread_wake(moo_plane *plane)
{
    uint64_t one = 1;

    if (write(plane->wake, &one, sizeof one) < 0)
        return; /* it is full of wake-ups already */
}

void mooi_thread_stop(moo_plane *plane)
{
    int running;

    pthread_mutex_lock(&plane->lock);
    running = plane->running;
    plane->running = 0;
    plane->closed = 1;
    pthread_mutex_unlock(&plane->lock);
    if (!running)
        return;
    mooi_thread_wake(plane);
    pthread_join(plane->thread, NULL);
}
