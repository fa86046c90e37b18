/* SPDX-License-Identifier: MIT */
/*
 * fetch.h: an import that is under way.
 *
 * A fetch belongs to whoever began it until moo_fetch_free, and to the source
 * that serves it until it has ended; the last of the two frees it. Only the
 * former keeps the plane alive. It ends exactly once, by mooi_fetch_end.
 */
#ifndef MOOI_FETCH_H
#define MOOI_FETCH_H

#include "plane/plane.h"

struct mooi_fabric_region;
struct mooi_source;
struct mooi_transport;

struct moo_fetch {
    moo_plane *plane;
    struct mooi_descriptor d;
    uint64_t ticket;
    void *into;
    char *at;       /* memory for the user, until it was taken */
    moo_err result; /* once done */
    int reason;     /* with MOO_ESYS: the errno of whoever saw it fail */
    uint8_t done, told, freed;
    uint8_t queued; /* its ticket waits to be taken */
    uint8_t holds;
    pthread_cond_t ended;
    struct moo_fetch *next_finished;

    /* from another host: see source.c */
    struct mooi_block *block; /* to receive into; NULL: `into` */
    char *target;             /* where the bytes go */
    struct mooi_source *source;
    const struct mooi_transport *by; /* that pulls it */
    void *pull;                      /* of `by` */
    struct moo_fetch **list, *next, *previous;
    uint64_t due_ns; /* its owner has made contact by then */
    /* Of a device, see device.c: where it goes, and what is read. Its lease
     * stays. NULL: it is none. */
    const struct mooi_fabric_region *region;
    uint64_t from, key;
    uint8_t discard; /* nobody wants it: only end the lease */
};

/* One that is not begun yet; NULL: no memory. Lock not held. */
struct moo_fetch *mooi_fetch_new(moo_plane *plane,
                                 const struct mooi_descriptor *d, void *into,
                                 uint64_t ticket);

/* Begin it, from another host, or with an error free it. Lock not held. */
moo_err mooi_fetch_launch(struct moo_fetch *fetch, int timeout_ms);

/* It is done, and how; ends waits and posts the ticket. Lock held. */
void mooi_fetch_end(struct moo_fetch *fetch, moo_err result);

/* Give one hold back; the last one frees it. Lock held. */
void mooi_fetch_unref(struct moo_fetch *fetch);

/* What moo_import and moo_discard do with a remote descriptor. The former
 * waits until it is here, or its owner is gone. Lock not held. */
moo_err mooi_fetch_import(moo_plane *plane, const struct mooi_descriptor *d,
                          int timeout_ms, void **out, size_t *out_bytes);
moo_err mooi_fetch_discard(moo_plane *plane, const struct mooi_descriptor *d,
                           int timeout_ms);

#endif
