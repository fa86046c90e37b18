/* SPDX-License-Identifier: MIT */
/*
 * local.h: memory of processes of this host. It is mapped, never copied. There
 * are two ways to it: inproc, to what this process itself owns, and shm.
 */
#ifndef MOOI_LOCAL_H
#define MOOI_LOCAL_H

#include <pthread.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/lease.h"
#include "core/mac.h"
#include "core/region.h"
#include "core/wire.h"
#include "mooactor.h"

struct mooi_import;
struct mooi_mapped;
struct mooi_owner;

/* The request for a third process's lease on memory that we lease. */
struct mooi_grant {
    uint64_t holder; /* of this lease: */
    uint32_t lease, generation, slab;
    uint64_t offset, length; /* a part of it */
    uint64_t to;
    int moved;
};

/* The state that the transports of this host share, a part of each plane. The
 * plane fills in the fields down to `context`, which outlive this. */
struct mooi_local {
    pthread_mutex_t *lock; /* guards all without a lock of its own */
    uint64_t id;           /* of this process */
    const uint8_t *key;
    struct mooi_arena *arena;
    struct mooi_leases *leases;
    struct mooi_regions *regions;

    /* Whether a process is known to be dead; lock held. */
    int (*is_dead)(void *context, uint64_t id);
    /* Grant a lease on our own memory; lock held. MOO_ESTALE: that holder has
     * no such lease, or others hold memory that should move. */
    moo_err (*grant)(void *context, const struct mooi_grant *grant,
                     struct mooi_descriptor *out);
    void *context;

    int pagemap;   /* see core/pages.h */
    int directory; /* an O_PATH descriptor: the directory of the sockets */
    int listener;
    pthread_mutex_t accepting; /* taken before an owner's `rpc` */
    struct mooi_owner *owners; /* whose memory we have mapped */
};

/* One of the two ways. All operations are an importer's. */
struct mooi_local_ops {
    const char *scheme; /* "inproc", "shm" */

    /* Make the slab of a descriptor reachable. Blocks up to `timeout_ms`; lock
     * not held. On MOO_OK the owner is pinned until mooi_owner_unpin; on any
     * error it is not. */
    moo_err (*attach)(struct mooi_local *local, const struct mooi_descriptor *d,
                      int timeout_ms, struct mooi_owner **owner,
                      struct mooi_mapped **slab);

    /* Get a lease for a third process on bytes [offset, offset + length) of the
     * slab of received memory. Blocks for a round trip; lock not held. On any
     * error nothing was granted. */
    moo_err (*grant)(struct mooi_local *local, const struct mooi_import *import,
                     uint64_t offset, uint64_t length, uint64_t to, int moved,
                     struct mooi_descriptor *out);

    /* End a lease that is in state `from`. Does not block; lock held. */
    void (*release)(struct mooi_local *local, struct mooi_owner *owner,
                    uint32_t lease, uint32_t generation,
                    enum mooi_lease_state from);
};

extern const struct mooi_local_ops mooi_inproc, mooi_shm;

/* The way to the memory that process `id` owns. */
static inline const struct mooi_local_ops *
mooi_local_to(const struct mooi_local *local, uint64_t id)
{
    return id == local->id ? &mooi_inproc : &mooi_shm;
}

#endif
