/* SPDX-License-Identifier: MIT */
/*
 * inproc.c: a process that sends to itself. Its own table of leases is at hand,
 * so nothing is asked of anybody; values are as private as between processes.
 */
#include "transport/transport.h"

static moo_err inproc_attach(moo_plane *plane, const struct mooi_descriptor *d,
                             int timeout_ms, struct mooi_owner **owner,
                             struct mooi_view **view)
{
    return mooi_shm.attach(plane, d, timeout_ms, owner, view);
}

static moo_err grant_locked(moo_plane *plane, const struct mooi_import *import,
                            uint64_t offset, uint64_t length, uint64_t to,
                            int flags, struct mooi_descriptor *out)
{
    struct mooi_peer *self = mooi_peer_get(plane, plane->id);
    struct mooi_peer *peer = mooi_peer_get(plane, to);
    struct mooi_block *block;
    moo_err err;

    if (!peer || !self)
        return MOO_ENOMEM;
    if (!mooi_lease_covers(plane, self, import->lease, import->generation,
                           import->slab, offset, length))
        return MOO_ESTALE;
    block = plane->lease[import->lease].block;
    if (flags & MOO_MOVED && block->holds > 1)
        return MOO_ESTALE;
    err = mooi_peer_offer(plane, peer);
    if (err != MOO_OK)
        return err;
    return mooi_lease_grant(plane, block, peer, offset, length, flags, out);
}

static moo_err inproc_grant(moo_plane *plane, const struct mooi_import *import,
                            uint64_t offset, uint64_t length, uint64_t to,
                            int flags, struct mooi_descriptor *out)
{
    moo_err err;

    pthread_mutex_lock(&plane->lock);
    err = grant_locked(plane, import, offset, length, to, flags, out);
    pthread_mutex_unlock(&plane->lock);
    return err;
}

static void inproc_release(moo_plane *plane, struct mooi_owner *owner,
                           uint32_t lease, uint32_t generation,
                           enum mooi_lease_state from)
{
    (void)owner;
    mooi_lease_end_own(plane, lease, generation, from);
}

const struct mooi_transport mooi_inproc = {
    .scheme = "inproc",
    .attach = inproc_attach,
    .grant = inproc_grant,
    .release = inproc_release,
};
