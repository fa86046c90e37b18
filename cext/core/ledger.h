/* SPDX-License-Identifier: MIT */
/*
 * ledger.h: the shared table in which holders give leases back.
 *
 * The owner of memory keeps one ledger, a sparse memfd that every importer maps
 * as well. An entry is one lease: a word (generation << 2 | state) and a link.
 *
 *     FREE -> GRANTED  by the owner, when it hands a descriptor out
 *     GRANTED -> HELD  by the receiver, when it imports
 *     GRANTED, HELD -> RELEASED by the receiver, which then pushes the entry
 *                      on the stack of released entries
 *     GRANTED, HELD -> FREE by the owner: revoked
 *     RELEASED -> FREE by the owner, when it has popped the entry
 *
 * All transitions are compare-and-swap on the whole word, so of two that race
 * one wins, and an old generation never touches a new lease. A push is a
 * compare-and-swap, a pop takes the whole stack by exchange: there is no ABA.
 *
 * Other processes can write here, so the owner believes nothing: which memory
 * an entry stands for is in its private table, and walks are bounded.
 */
#ifndef MOOI_LEDGER_H
#define MOOI_LEDGER_H

#include <stdatomic.h>
#include <stdint.h>

#include "mooactor.h"

#define MOOI_LEDGER_ENTRIES (1u << 18)
#define MOOI_NO_LEASE UINT32_MAX
#define MOOI_GENERATIONS (1u << 30)

enum mooi_lease_state {
    MOOI_FREE = 0,
    MOOI_GRANTED = 1,
    MOOI_HELD = 2,
    MOOI_RELEASED = 3
};

struct mooi_entry {
    _Atomic uint32_t word;
    _Atomic uint32_t next;
};

struct mooi_ledger {
    _Atomic uint32_t head; /* first released entry + 1, 0: none */
    uint32_t unused[15];
    struct mooi_entry entry[];
};

#define MOOI_LEDGER_BYTES(entries)                                             \
    (sizeof(struct mooi_ledger) + (size_t)(entries) * sizeof(struct mooi_entry))

/* Create an empty ledger: a sealed memfd and its mapping, both the caller's. */
moo_err mooi_ledger_create(uint32_t entries, int *fd, struct mooi_ledger **out);

/* Map a ledger that another process created. The descriptor stays the
 * caller's. MOO_EPROTO: it is smaller than it claims, or could shrink. */
moo_err mooi_ledger_map(int fd, uint32_t entries, struct mooi_ledger **out);

void mooi_ledger_unmap(struct mooi_ledger *ledger, uint32_t entries);

/* Move entry `index` of that generation from one state to another; 1 if it
 * was in that state, 0 (and nothing changed) if not. */
int mooi_ledger_shift(struct mooi_ledger *ledger, uint32_t index,
                      uint32_t generation, enum mooi_lease_state from,
                      enum mooi_lease_state to);

/* Whether it is in that state now. */
int mooi_ledger_is(const struct mooi_ledger *ledger, uint32_t index,
                   uint32_t generation, enum mooi_lease_state state);

/* Holder: end a lease that is in state `from`. One compare-and-swap and one
 * push; a kill between the two leaves the entry to the owner, which sees the
 * death. 0: the lease had gone before. */
int mooi_ledger_release(struct mooi_ledger *ledger, uint32_t index,
                        uint32_t generation, enum mooi_lease_state from);

/* Owner: take all released entries; returns the first index or MOOI_NO_LEASE.
 * Follow with mooi_ledger_next, at most as often as there are entries. */
uint32_t mooi_ledger_take(struct mooi_ledger *ledger);
uint32_t mooi_ledger_next(struct mooi_ledger *ledger, uint32_t index);

#endif
