/* SPDX-License-Identifier: MIT */
/* forks.c: see forks.h. */
#include "plane/forks.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "plane/thread.h"

/* A closed plane hands no memory out any more, so none of it changes. */
static int matters(const moo_plane *plane)
{
    return !plane->closed && !atomic_load(&plane->forked) &&
           (plane->arena.blocks || plane->imports);
}

void mooi_forks_before(moo_plane *plane)
{
    struct mooi_forks *forks = &plane->arena.forks;
    struct mooi_fork *fork;
    int ends[2];

    forks->child_end = -1;
    if (!matters(plane))
        return;
    forks->made++;
    fork = malloc(sizeof *fork);
    if (!fork || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(fork);
        forks->unwatched = forks->made; /* safe, though nothing comes back */
        return;
    }
    fork->number = forks->made;
    fork->fd = ends[0];
    fork->next = forks->first;
    forks->first = fork;
    forks->child_end = ends[1];
}

void mooi_forks_parent(moo_plane *plane)
{
    struct mooi_forks *forks = &plane->arena.forks;
    struct epoll_event event = {.data.u64 = MOOI_FORK_ENDED};

    if (forks->child_end < 0)
        return;
    close(forks->child_end);
    forks->child_end = -1;
    /* If either fails, the next call of reap sees the end. */
    epoll_ctl(plane->epoll, EPOLL_CTL_ADD, forks->first->fd, &event);
    mooi_thread_start(plane);
}

void mooi_forks_child(moo_plane *plane)
{
    for (struct mooi_fork *f = plane->arena.forks.first; f; f = f->next)
        close(f->fd);
}

static int has_ended(const struct mooi_fork *fork)
{
    struct pollfd end = {.fd = fork->fd};

    return poll(&end, 1, 0) > 0;
}

static int remove_ended(struct mooi_forks *forks)
{
    struct mooi_fork **link = &forks->first, *fork;
    int some = 0;

    while ((fork = *link)) {
        if (!has_ended(fork)) {
            link = &fork->next;
            continue;
        }
        *link = fork->next;
        close(fork->fd); /* leaves the epoll set by that */
        free(fork);
        some = 1;
    }
    return some;
}

int mooi_forks_see_import(const moo_plane *plane,
                          const struct mooi_import *import)
{
    const struct mooi_forks *forks = &plane->arena.forks;

    return mooi_forks_see(forks, import->born, forks->made);
}

int mooi_forks_keep(moo_plane *plane, struct mooi_import *import)
{
    if (plane->closed || !mooi_forks_see_import(plane, import))
        return 0;
    import->dropped = plane->arena.forks.made;
    import->next_kept = plane->kept;
    plane->kept = import;
    plane->kept_bytes += import->bytes;
    return 1;
}

void mooi_import_release(moo_plane *plane, const struct mooi_import *import)
{
    mooi_local_to(&plane->local, import->owner->id)
        ->release(&plane->local, import->owner, import->lease,
                  import->generation, MOOI_HELD);
}

void mooi_import_end(moo_plane *plane, struct mooi_import *import)
{
    mooi_mapped_remove(&plane->local, import);
    mooi_import_release(plane, import);
    import->owner->live--;
    free(import);
    mooi_owners_reap(&plane->local);
}

void mooi_forks_reap(moo_plane *plane)
{
    struct mooi_import *kept = plane->kept;

    if (!plane->arena.forks.first || !remove_ended(&plane->arena.forks))
        return;
    plane->kept = NULL;
    while (kept) {
        struct mooi_import *import = kept;
        kept = import->next_kept;
        if (mooi_forks_see(&plane->arena.forks, import->born,
                           import->dropped)) {
            import->next_kept = plane->kept;
            plane->kept = import;
            continue;
        }
        plane->kept_bytes -= import->bytes;
        mooi_import_end(plane, import);
    }
    mooi_arena_settle(&plane->arena);
}

void mooi_forks_fini(moo_plane *plane)
{
    struct mooi_forks *forks = &plane->arena.forks;

    while (forks->first) {
        struct mooi_fork *fork = forks->first;
        forks->first = fork->next;
        close(fork->fd);
        free(fork);
    }
    while (plane->kept) {
        struct mooi_import *import = plane->kept;
        plane->kept = import->next_kept;
        mooi_import_end(plane, import);
    }
}
