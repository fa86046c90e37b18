/* SPDX-License-Identifier: MIT */
/*
 * net_leases.c: leases of peers on other hosts. Such a lease is GRANTED by
 * an export, HELD from the first request for its bytes, and ended when the
 * peer gives it back, when it is given up (mooi_route_fail), or when the lease
 * is revoked. While the engine sends from a block it holds the block beside the
 * lease.
 */
#include "plane/net_leases.h"

#include "plane/peer.h"
#include "plane/releases.h"

/* The lease, if it is that peer's. */
static struct mooi_lease *lease_of(moo_plane *plane,
                                   const struct mooi_peer *peer,
                                   const struct mooi_lease_name *name)
{
    return peer ? mooi_lease_of(&plane->leases, &peer->held, name->lease,
                                name->generation)
                : NULL;
}

static moo_err source(moo_plane *plane, uint64_t id,
                      const struct mooi_lease_name *name, uint64_t offset,
                      uint64_t length, const void **data)
{
    struct mooi_lease *lease = lease_of(plane, mooi_peer_find(plane, id), name);

    if (!lease)
        return MOO_ESTALE;
    if (lease->block->slab != name->slab ||
        !mooi_block_covers(lease->block, offset, length))
        return MOO_EPROTO;
    mooi_ledger_shift(plane->leases.ledger, name->lease, name->generation,
                      MOOI_GRANTED, MOOI_HELD);
    mooi_lease_send(&plane->leases, name->lease);
    *data = plane->arena.slab[name->slab].work + offset;
    return MOO_OK;
}

moo_err mooi_net_source(void *context, uint64_t peer,
                        const struct mooi_lease_name *name, uint64_t offset,
                        uint64_t length, const void **data)
{
    moo_plane *plane = context;
    moo_err err;

    pthread_mutex_lock(&plane->lock);
    err = source(plane, peer, name, offset, length, data);
    pthread_mutex_unlock(&plane->lock);
    return err;
}

/* The lease may be gone, but not its index: see free_index in lease.c. */
void mooi_net_sourced(void *context, uint64_t peer,
                      const struct mooi_lease_name *name)
{
    moo_plane *plane = context;

    (void)peer;
    pthread_mutex_lock(&plane->lock);
    mooi_lease_unsend(&plane->leases, name->lease);
    pthread_mutex_unlock(&plane->lock);
}

/* See releases.h. If that fails, `down` follows. */
static void confirm(const struct mooi_peer *peer)
{
    struct mooi_control control = {.kind = MOOI_CONTROL_RELEASED};
    struct mooi_reach *reach = peer ? peer->reach : NULL;

    if (reach && reach->out.link &&
        ++reach->released % MOOI_RELEASES_CONFIRMED == 0)
        (void)mooi_control_send(reach->out.link, &control);
}

void mooi_net_released(void *context, uint64_t id,
                       const struct mooi_lease_name *name)
{
    moo_plane *plane = context;
    const struct mooi_peer *peer;

    pthread_mutex_lock(&plane->lock);
    peer = mooi_peer_find(plane, id);
    if (lease_of(plane, peer, name)) {
        mooi_lease_end_own(&plane->leases, name->lease, name->generation,
                           MOOI_GRANTED);
        mooi_lease_end_own(&plane->leases, name->lease, name->generation,
                           MOOI_HELD);
    }
    confirm(peer);
    pthread_mutex_unlock(&plane->lock);
}
