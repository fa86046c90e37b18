/* SPDX-License-Identifier: MIT */
/* fetch.c: fetches as objects, and the tags of those that ended. */
#include "plane/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct moo_fetch *mooi_fetch_new(moo_plane *plane,
                                 const struct mooi_descriptor *d, void *into,
                                 uint64_t tag)
{
    struct moo_fetch *fetch = calloc(1, sizeof *fetch);

    if (!fetch)
        return NULL;
    fetch->plane = plane;
    fetch->holds = 1;
    fetch->d = *d;
    fetch->into = into;
    fetch->tag = tag;
    mooi_cond_init(&fetch->ended);
    return fetch;
}

void mooi_fetch_unref(struct moo_fetch *fetch)
{
    if (--fetch->holds)
        return;
    pthread_cond_destroy(&fetch->ended);
    free(fetch);
}

/* ---- tags: all with the lock held ---- */

/* The descriptor is readable exactly while tags wait. */
static void show_finished(moo_plane *plane)
{
    uint64_t count = 1;

    if (plane->finished_fd < 0)
        return;
    if (plane->finished) {
        if (write(plane->finished_fd, &count, sizeof count) < 0)
            return; /* it is readable already */
    } else if (read(plane->finished_fd, &count, sizeof count) < 0) {
        return; /* it was not */
    }
}

static void post(struct moo_fetch *fetch)
{
    moo_plane *plane = fetch->plane;
    int first = !plane->finished;

    fetch->queued = 1;
    if (first)
        plane->finished = fetch;
    else
        plane->finished_last->next_finished = fetch;
    plane->finished_last = fetch;
    if (first)
        show_finished(plane);
}

static void unpost(struct moo_fetch *fetch)
{
    moo_plane *plane = fetch->plane;
    struct moo_fetch **link = &plane->finished, *before = NULL;

    while (*link != fetch) {
        before = *link;
        link = &before->next_finished;
    }
    *link = fetch->next_finished;
    if (plane->finished_last == fetch)
        plane->finished_last = before;
    fetch->next_finished = NULL;
    fetch->queued = 0;
}

void mooi_fetch_untag(struct moo_fetch *fetch)
{
    if (!fetch->queued)
        return;
    unpost(fetch);
    if (!fetch->plane->finished)
        show_finished(fetch->plane);
}

void mooi_fetch_end(struct moo_fetch *fetch, moo_err result)
{
    fetch->done = 1;
    fetch->result = result;
    if (!fetch->pull.reason)
        fetch->pull.reason = errno;
    fetch->plane->fetches--;
    if (fetch->tag && !fetch->freed)
        post(fetch);
    pthread_cond_broadcast(&fetch->ended);
}

int moo_plane_finished_fd(moo_plane *plane)
{
    int fd;

    if (mooi_plane_enter(plane) != MOO_OK) {
        errno = EPERM;
        return -1;
    }
    if (plane->finished_fd < 0) {
        plane->finished_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        show_finished(plane);
    }
    fd = plane->finished_fd;
    pthread_mutex_unlock(&plane->lock);
    return fd;
}

size_t moo_plane_finished(moo_plane *plane, uint64_t *tags, size_t room)
{
    size_t count = 0;

    if (atomic_load(&plane->forked))
        return 0;
    pthread_mutex_lock(&plane->lock);
    while (count < room && plane->finished) {
        tags[count++] = plane->finished->tag;
        unpost(plane->finished);
    }
    if (count && !plane->finished)
        show_finished(plane);
    pthread_mutex_unlock(&plane->lock);
    return count;
}
