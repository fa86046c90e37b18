/* SPDX-License-Identifier: MIT */
/*
 * forks.h: memory that forked children of this process can see.
 *
 * A child inherits the mappings of a plane, but no leases and no holds. Memory
 * that it could see at the fork must not change while it lives. So memory that
 * was in use at a fork, and is dropped here, is *kept* until the child has
 * ended: neither handed out again nor given back to its owner.
 *
 * Forks are numbered from 1. A block or an import notes how many there had been
 * when it was made and when it was dropped: the forks between these two see it.
 * A child holds the one end of a pipe, as do its own children, until they end
 * or call exec; the other end, which is ours, then hangs up.
 */
#ifndef MOOI_FORKS_H
#define MOOI_FORKS_H

#include <stdint.h>

struct mooi_fork {
    struct mooi_fork *next;
    uint64_t number;
    int fd; /* hangs up when the child and its children have gone */
};

struct mooi_forks {
    uint64_t made;
    uint64_t unwatched; /* the last one without a pipe: it counts for ever */
    struct mooi_fork *first;
    int child_end; /* around a fork: -1, or the end for the child to keep */
};

/* Something was made after `born` forks and dropped after `dropped`. 1 if a
 * child that may live sees it. */
static inline int mooi_forks_see(const struct mooi_forks *forks, uint64_t born,
                                 uint64_t dropped)
{
    if (born < forks->unwatched)
        return 1;
    for (const struct mooi_fork *f = forks->first; f; f = f->next)
        if (born < f->number && f->number <= dropped)
            return 1;
    return 0;
}

#endif
