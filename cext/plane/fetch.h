/* SPDX-License-Identifier: MIT */
/*
 * fetch.h: an import that is under way.
 *
 * A fetch belongs to its caller until moo_fetch_free, and to the source that
 * serves it until it has ended; the last of the two frees it. Only the former
 * keeps the plane alive. It ends exactly once, by mooi_fetch_end.
 *
 * If it is of a device (pull.region, see device.c), its lease stays at the
 * end.
 */
#ifndef MOOI_FETCH_H
#define MOOI_FETCH_H

#include "plane/plane.h"
#include "transport/network.h"

struct mooi_source;

struct moo_fetch {
    struct mooi_pull pull; /* first; of one from another host */
    moo_plane *plane;
    struct mooi_descriptor d;
    uint64_t tag;
    void *into;
    char *at;       /* memory for the user, until it was taken */
    moo_err result; /* once done */
    uint8_t done, told, freed;
    uint8_t queued; /* its tag waits to be taken */
    uint8_t holds;
    pthread_cond_t ended;
    struct moo_fetch *next_finished;

    /* from another host: see source.c */
    struct mooi_block *block; /* a held block to receive into; NULL: `into` */
    struct mooi_source *source;
    const struct mooi_network_ops *by; /* that pulls it */
    struct moo_fetch **list, *next, *previous;
    uint64_t due_ns; /* deadline of its owner's contact */
    uint64_t patience_ns; /* that deadline, from when it began to wait */
    uint8_t losses;  /* of the link under it, so far */
    uint8_t discard; /* nobody wants it: only end the lease */
};

/* A new fetch, not begun yet; NULL: no memory. Lock not held. */
struct moo_fetch *mooi_fetch_new(moo_plane *plane,
                                 const struct mooi_descriptor *d, void *into,
                                 uint64_t tag);

/* Note its end and result, end the waits and post the tag. Lock held. */
void mooi_fetch_end(struct moo_fetch *fetch, moo_err result);

/* Give one hold back; the last one frees it. Lock held. */
void mooi_fetch_unref(struct moo_fetch *fetch);

/* Its tag, if it waits to be taken, does not any more. Lock held. */
void mooi_fetch_untag(struct moo_fetch *fetch);

#endif
