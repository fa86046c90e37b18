/* SPDX-License-Identifier: MIT */
/*
 * lease.h: the leases on blocks of the arena. A lease belongs to one holder
 * and covers one block; the shared ledger (ledger.h) has its state, and this
 * private table its meaning. Not locked: the plane's lock is held around every
 * call.
 */
#ifndef MOOI_LEASE_H
#define MOOI_LEASE_H

#include <stdint.h>

#include "core/arena.h"
#include "core/ledger.h"
#include "core/wire.h"
#include "mooactor.h"

/* The leases of one process on our memory. */
struct mooi_holder {
    uint32_t first_lease; /* MOOI_NO_LEASE: none */
    uint64_t leases, bytes;
    uint64_t exported; /* bytes, so far */
    int remote;        /* it fetches, and does not map */
};

struct mooi_lease {
    struct mooi_block *block; /* NULL: free, or revoked while being released */
    struct mooi_holder *holder;
    uint32_t next, previous; /* of the same holder; `next`: free */
    uint32_t generation;
    uint32_t sending;             /* somebody reads from sent_from */
    struct mooi_block *sent_from; /* held; outlives `block` */
    int doomed;                   /* the index is free after that */
};

struct mooi_leases {
    uint64_t owner; /* this process */
    struct mooi_arena *arena;
    int fd; /* of the ledger, -1: none */
    struct mooi_ledger *ledger;
    struct mooi_lease *lease;
    uint32_t made, free, live;
    uint64_t revoked; /* so far */
};

/* No lease and no ledger yet, which `open` makes. MOO_ESYS: see errno. */
void mooi_leases_init(struct mooi_leases *leases, uint64_t owner,
                      struct mooi_arena *arena);
moo_err mooi_leases_open(struct mooi_leases *leases);
/* The descriptor of the ledger is the caller's to close. */
void mooi_leases_fini(struct mooi_leases *leases);

/* Give `holder` one lease on bytes [offset, offset + length) of the block's
 * slab and describe it. Holds the block. */
moo_err mooi_lease_grant(struct mooi_leases *leases, struct mooi_block *block,
                         struct mooi_holder *holder, uint64_t offset,
                         uint64_t length, int flags,
                         struct mooi_descriptor *out);

/* Keep the block of a live lease readable until `unsend`, even if the lease
 * ends before. */
void mooi_lease_send(struct mooi_leases *leases, uint32_t index);
void mooi_lease_unsend(struct mooi_leases *leases, uint32_t index);

/* The lease of that name, if it is this holder's; else NULL. */
struct mooi_lease *mooi_lease_of(struct mooi_leases *leases,
                                 const struct mooi_holder *holder,
                                 uint32_t index, uint32_t generation);

/* Take back one lease that nobody imported; 0 if somebody did. */
int mooi_lease_revoke(struct mooi_leases *leases, uint32_t index,
                      uint32_t generation);

/* Whether it stands and nobody imported it. */
int mooi_lease_is_unclaimed(const struct mooi_leases *leases, uint32_t index,
                            uint32_t generation);

/* The holder, for whom this process speaks, ends it. */
void mooi_lease_end_own(struct mooi_leases *leases, uint32_t index,
                        uint32_t generation, enum mooi_lease_state from);

/* End all leases of a dead holder. */
void mooi_lease_revoke_all(struct mooi_leases *leases,
                           struct mooi_holder *holder);

/* Collect the leases that holders have released. */
void mooi_lease_drain(struct mooi_leases *leases);

/* The block, if `holder` holds that lease and it covers those bytes of that
 * slab; else NULL. */
struct mooi_block *mooi_lease_covers(struct mooi_leases *leases,
                                     const struct mooi_holder *holder,
                                     uint32_t index, uint32_t generation,
                                     uint32_t slab, uint64_t offset,
                                     uint64_t length);

#endif
