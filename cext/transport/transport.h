/* SPDX-License-Identifier: MIT */
/*
 * transport.h: what a way of reaching another process's memory must provide.
 *
 * There are two kinds. *Local* ones (inproc, shm) map the owner's memory; they
 * are called by export.c and import.c. *Networks* (tcp, ofi) fetch the bytes;
 * they are called by remote_*.c, which has made contact over TCP, looks after
 * the leases, and calls them for what differs: how the bytes move. Operations
 * of the other kind are NULL.
 *
 * Descriptors have the same form for all; which transport serves one follows
 * from the owner it names.
 */
#ifndef MOOI_TRANSPORT_H
#define MOOI_TRANSPORT_H

#include "plane/fetch.h"
#include "plane/plane.h"

struct mooi_note;
struct mooi_source;

struct mooi_transport {
    const char *scheme; /* "inproc", "shm", "tcp", "ofi" */
    uint32_t bit;       /* MOO_TRANSPORT_…, 0 for inproc */

    /* ---- local: no lock held, unless it says so ---- */

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

    /* ---- networks: lock held and nothing blocks, unless it says so ---- */

    /* Owner: tell the importer, by notes over the peer's link, all that it
     * must know to fetch from our slabs. Called when the link came up, and
     * again before a descriptor leaves if slabs were added since: those from
     * peer->slabs_sent on are news; the caller counts. */
    moo_err (*tell)(moo_plane *plane, struct mooi_peer *peer);

    /* Importer: such a note came, SERVE first. MOO_EPROTO: no correct owner
     * sends it. Fetches that wait are tried again after it. */
    moo_err (*hear)(moo_plane *plane, struct mooi_source *source,
                    const struct mooi_note *note);

    /* Importer: begin to receive fetch->d into fetch->target. On MOO_OK
     * mooi_source_ended will be called once, later, from another thread.
     * MOO_ETIMEOUT: not yet; to be tried again after the next note. */
    moo_err (*pull)(moo_plane *plane, struct mooi_source *source,
                    struct moo_fetch *fetch);

    /* Importer, lock not held: end it; nothing writes to its target after this
     * returns. MOO_OK: mooi_source_ended will not be called for it.
     * MOO_ESTALE: it was, or is about to be. The source is pinned. */
    moo_err (*cancel)(moo_plane *plane, struct mooi_source *source,
                      struct moo_fetch *fetch);

    /* Importer: a pull of it has ended, in whatever way: free what it had. May
     * be NULL. */
    void (*pulled)(struct moo_fetch *fetch);

    /* Importer: the link is down, or another transport takes over. Pulls that
     * are under way must end soon. */
    void (*part)(moo_plane *plane, struct mooi_source *source);
};

extern const struct mooi_transport mooi_inproc, mooi_shm;
extern const struct mooi_transport mooi_over_tcp, mooi_over_ofi;

/* The network of one MOO_TRANSPORT_… bit; NULL: there is none. */
static inline const struct mooi_transport *mooi_transport_by_bit(uint32_t bit)
{
    if (bit == MOO_TRANSPORT_OFI)
        return &mooi_over_ofi;
    return bit == MOO_TRANSPORT_TCP ? &mooi_over_tcp : NULL;
}

/* The local transport to the memory that process `id` owns. */
static inline const struct mooi_transport *mooi_transport_to(moo_plane *plane,
                                                             uint64_t id)
{
    return id == plane->id ? &mooi_inproc : &mooi_shm;
}

#endif
