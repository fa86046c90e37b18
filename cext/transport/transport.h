/* SPDX-License-Identifier: MIT */
/*
 * transport.h: what a way of reaching another process's memory must provide.
 *
 * plane.c is the only caller. Descriptors have the same form for all; which
 * transport serves one follows from the owner it names. No operation is called
 * with the plane's lock held unless it says so.
 */
#ifndef MOOI_TRANSPORT_H
#define MOOI_TRANSPORT_H

#include "core/plane.h"

struct mooi_transport {
    const char *scheme; /* "inproc", "shm" */

    /* Owner: make sure that `peer` can reach all our memory, now or as soon
     * as it is there. Does not block; lock held. MOO_EPEER: it is dead. */
    moo_err (*offer)(moo_plane *plane, struct mooi_peer *peer);

    /* Importer: make the slab of a descriptor reachable. Blocks up to
     * `timeout_ms`. On MOO_OK the owner is pinned until mooi_owner_unpin; on
     * any error it is not. */
    moo_err (*attach)(moo_plane *plane, const struct mooi_descriptor *d,
                      int timeout_ms, struct mooi_owner **owner,
                      struct mooi_view **view);

    /* Importer: get a lease for a third process on received memory. Blocks for
     * a round trip. On any error nothing was granted. */
    moo_err (*grant)(moo_plane *plane, const struct mooi_import *import,
                     uint64_t offset, uint64_t length, uint64_t to, int flags,
                     struct mooi_descriptor *out);

    /* Importer: end a lease that is in state `from`. Does not block; lock
     * held. */
    void (*release)(moo_plane *plane, struct mooi_owner *owner, uint32_t lease,
                    uint32_t generation, enum mooi_lease_state from);
};

extern const struct mooi_transport mooi_inproc, mooi_shm;

/* The transport between this process and process `id`. */
static inline const struct mooi_transport *mooi_transport_to(moo_plane *plane,
                                                             uint64_t id)
{
    return id == plane->id ? &mooi_inproc : &mooi_shm;
}

#endif
