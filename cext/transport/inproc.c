/* SPDX-License-Identifier: MIT */
/*
 * inproc.c: a process that sends to itself. It uses its own table of leases
 * directly; values are as private as between processes.
 */
#include "transport/shm/shm.h"

static moo_err inproc_grant(struct mooi_local *local,
                            const struct mooi_import *import, uint64_t offset,
                            uint64_t length, uint64_t to, int moved,
                            struct mooi_descriptor *out)
{
    struct mooi_grant grant = {.holder = local->id,
                               .lease = import->lease,
                               .generation = import->generation,
                               .slab = import->slab,
                               .offset = offset,
                               .length = length,
                               .to = to,
                               .moved = moved};
    moo_err err;

    pthread_mutex_lock(local->lock);
    err = local->grant(local->context, &grant, out);
    pthread_mutex_unlock(local->lock);
    return err;
}

static void inproc_release(struct mooi_local *local, struct mooi_owner *owner,
                           uint32_t lease, uint32_t generation,
                           enum mooi_lease_state from)
{
    (void)owner;
    mooi_lease_end_own(local->leases, lease, generation, from);
}

static moo_err inproc_attach(struct mooi_local *local,
                             const struct mooi_descriptor *d, int timeout_ms,
                             struct mooi_owner **owner,
                             struct mooi_mapped **slab)
{
    return mooi_shm.attach(local, d, timeout_ms, owner, slab);
}

const struct mooi_local_ops mooi_inproc = {
    .scheme = "inproc",
    .attach = inproc_attach,
    .grant = inproc_grant,
    .release = inproc_release,
};
