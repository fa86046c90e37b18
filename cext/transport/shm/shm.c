/* SPDX-License-Identifier: MIT */
/*
 * shm.c: between processes of one host. The owner pushes its memfds over a
 * unix socket; leases are given back through its shared ledger, without a
 * system call.
 */
#include "transport/transport.h"

static moo_err shm_attach(moo_plane *plane, const struct mooi_descriptor *d,
                          int timeout_ms, struct mooi_owner **owner,
                          struct mooi_view **view)
{
    moo_err err = mooi_owner_pin(plane, d->owner, timeout_ms, owner);

    if (err != MOO_OK)
        return err;
    err = mooi_owner_view(plane, *owner, d->slab, timeout_ms, view);
    if (err != MOO_OK)
        mooi_owner_unpin(plane, *owner);
    return err;
}

static void shm_release(moo_plane *plane, struct mooi_owner *owner,
                        uint32_t lease, uint32_t generation,
                        enum mooi_lease_state from)
{
    (void)plane;
    mooi_ledger_release(owner->ledger, lease, generation, from);
}

const struct mooi_transport mooi_shm = {
    .scheme = "shm",
    .bit = MOO_TRANSPORT_SHM,
    .attach = shm_attach,
    .grant = mooi_owner_grant,
    .release = shm_release,
};
