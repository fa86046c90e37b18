/* SPDX-License-Identifier: MIT */
/*
 * fetch.h: an import that is under way.
 *
 * A fetch belongs to whoever began it until moo_fetch_free, and to the
 * transport that serves it until it has ended; the last of the two frees it.
 * It ends exactly once, by mooi_fetch_end.
 */
#ifndef MOOI_FETCH_H
#define MOOI_FETCH_H

#include "core/plane.h"

struct moo_fetch {
    moo_plane *plane;
    struct mooi_descriptor d;
    uint64_t ticket;
    void *into;
    char *at;       /* memory for the user, until it was taken */
    moo_err result; /* once done */
    uint8_t done, told, freed;
    uint8_t queued; /* its ticket waits to be taken */
    pthread_cond_t ended;
    struct moo_fetch *next_finished;
};

/* It is done, and how; ends waits and posts the ticket. Lock held. */
void mooi_fetch_end(struct moo_fetch *fetch, moo_err result);

#endif
