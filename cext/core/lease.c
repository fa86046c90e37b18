/* SPDX-License-Identifier: MIT */
#include "core/lease.h"

#include <assert.h>
#include <stdlib.h>

void mooi_leases_init(struct mooi_leases *leases, uint64_t owner,
                      struct mooi_arena *arena)
{
    *leases = (struct mooi_leases){.owner = owner,
                                   .arena = arena,
                                   .fd = -1,
                                   .free = MOOI_NO_LEASE};
}

moo_err mooi_leases_open(struct mooi_leases *leases)
{
    return mooi_ledger_create(MOOI_LEDGER_ENTRIES, &leases->fd,
                              &leases->ledger);
}

void mooi_leases_fini(struct mooi_leases *leases)
{
    if (leases->ledger)
        mooi_ledger_unmap(leases->ledger, MOOI_LEDGER_ENTRIES);
    free(leases->lease);
}

static void set_word(struct mooi_leases *leases, uint32_t index,
                     uint32_t generation, enum mooi_lease_state state)
{
    atomic_store_explicit(&leases->ledger->entry[index].word,
                          generation << 2 | state, memory_order_release);
}

/* Double the private table; the sparse ledger has the full size from the
 * start. */
static moo_err more_leases(struct mooi_leases *leases)
{
    uint32_t made = leases->made, room = made ? 2 * made : 64;
    struct mooi_lease *grown;

    if (made == MOOI_LEDGER_ENTRIES)
        return MOO_ENOMEM;
    grown = realloc(leases->lease, room * sizeof *grown);
    if (!grown)
        return MOO_ENOMEM;
    leases->lease = grown;
    for (uint32_t i = room; i-- > made;) {
        grown[i] = (struct mooi_lease){.next = leases->free};
        leases->free = i;
    }
    leases->made = room;
    return MOO_OK;
}

static void free_index(struct mooi_leases *leases, uint32_t index)
{
    struct mooi_lease *lease = &leases->lease[index];

    if (lease->sending) { /* under this very name: see mooi_lease_unsend */
        lease->doomed = 1;
        return;
    }
    lease->generation = (lease->generation + 1) % MOOI_GENERATIONS;
    lease->next = leases->free;
    leases->free = index;
}

static void link_to_holder(struct mooi_leases *leases, uint32_t index)
{
    struct mooi_lease *lease = &leases->lease[index];

    lease->previous = MOOI_NO_LEASE;
    lease->next = lease->holder->first_lease;
    if (lease->next != MOOI_NO_LEASE)
        leases->lease[lease->next].previous = index;
    lease->holder->first_lease = index;
    lease->holder->leases++;
    lease->holder->bytes += mooi_block_bytes(lease->block);
    leases->live++;
}

/* The block is held no longer; the index is not free yet. */
static void let_go(struct mooi_leases *leases, uint32_t index)
{
    struct mooi_lease *lease = &leases->lease[index];

    if (lease->previous != MOOI_NO_LEASE)
        leases->lease[lease->previous].next = lease->next;
    else
        lease->holder->first_lease = lease->next;
    if (lease->next != MOOI_NO_LEASE)
        leases->lease[lease->next].previous = lease->previous;
    lease->holder->leases--;
    lease->holder->bytes -= mooi_block_bytes(lease->block);
    leases->live--;
    mooi_block_rele(leases->arena, lease->block);
    lease->block = NULL;
    lease->holder = NULL;
}

moo_err mooi_lease_grant(struct mooi_leases *leases, struct mooi_block *block,
                         struct mooi_holder *holder, uint64_t offset,
                         uint64_t length, int flags,
                         struct mooi_descriptor *out)
{
    struct mooi_lease *lease;
    uint32_t index;

    if (leases->free == MOOI_NO_LEASE) {
        moo_err err = more_leases(leases);
        if (err != MOO_OK)
            return err;
    }
    index = leases->free;
    lease = &leases->lease[index];
    leases->free = lease->next;
    lease->block = block;
    lease->holder = holder;
    mooi_block_hold(block);
    link_to_holder(leases, index);
    holder->exported += length;
    set_word(leases, index, lease->generation, MOOI_GRANTED);
    *out = (struct mooi_descriptor){.owner = leases->owner,
                                    .offset = offset,
                                    .length = length,
                                    .slab = block->slab,
                                    .lease = index,
                                    .generation = lease->generation,
                                    .flags = (uint8_t)flags};
    if (holder->remote)
        out->flags |= block->ticket ? MOOI_REMOTE | MOOI_TICKET : MOOI_REMOTE;
    return MOO_OK;
}

void mooi_lease_send(struct mooi_leases *leases, uint32_t index)
{
    struct mooi_lease *lease = &leases->lease[index];

    lease->sending++;
    lease->sent_from = lease->block;
    mooi_block_hold(lease->block);
}

void mooi_lease_unsend(struct mooi_leases *leases, uint32_t index)
{
    struct mooi_lease *lease = &leases->lease[index];
    struct mooi_block *block = lease->sent_from;

    assert(lease->sending);
    if (!--lease->sending) {
        lease->sent_from = NULL;
        if (lease->doomed) {
            lease->doomed = 0;
            free_index(leases, index);
        }
    }
    mooi_block_rele(leases->arena, block);
}

static int is_live(const struct mooi_leases *leases, uint32_t index,
                   uint32_t generation)
{
    return index < leases->made && leases->lease[index].block &&
           leases->lease[index].generation == generation;
}

struct mooi_lease *mooi_lease_of(struct mooi_leases *leases,
                                 const struct mooi_holder *holder,
                                 uint32_t index, uint32_t generation)
{
    return is_live(leases, index, generation) &&
                   leases->lease[index].holder == holder
               ? &leases->lease[index]
               : NULL;
}

int mooi_lease_revoke(struct mooi_leases *leases, uint32_t index,
                      uint32_t generation)
{
    if (!is_live(leases, index, generation) ||
        !mooi_ledger_shift(leases->ledger, index, generation, MOOI_GRANTED,
                           MOOI_FREE))
        return 0;
    let_go(leases, index);
    free_index(leases, index);
    return 1;
}

int mooi_lease_is_unclaimed(const struct mooi_leases *leases, uint32_t index,
                            uint32_t generation)
{
    return is_live(leases, index, generation) &&
           mooi_ledger_is(leases->ledger, index, generation, MOOI_GRANTED);
}

void mooi_lease_end_own(struct mooi_leases *leases, uint32_t index,
                        uint32_t generation, enum mooi_lease_state from)
{
    if (!is_live(leases, index, generation) ||
        !mooi_ledger_shift(leases->ledger, index, generation, from, MOOI_FREE))
        return;
    let_go(leases, index);
    free_index(leases, index);
}

void mooi_lease_revoke_all(struct mooi_leases *leases,
                           struct mooi_holder *holder)
{
    mooi_lease_drain(leases);
    while (holder->first_lease != MOOI_NO_LEASE) {
        uint32_t index = holder->first_lease;
        uint32_t generation = leases->lease[index].generation;
        int ours = mooi_ledger_shift(leases->ledger, index, generation,
                                     MOOI_GRANTED, MOOI_FREE) ||
                   mooi_ledger_shift(leases->ledger, index, generation,
                                     MOOI_HELD, MOOI_FREE);
        let_go(leases, index);
        leases->revoked++;
        /* Not ours: it was marked released but is not on the stack. If it
         * gets there, drain frees the index; if its holder was killed between
         * the two steps, 8 bytes of the ledger stay unused. */
        if (ours)
            free_index(leases, index);
    }
}

void mooi_lease_drain(struct mooi_leases *leases)
{
    uint32_t index = mooi_ledger_take(leases->ledger);

    /* Bounded, because other processes could have made a circle. */
    for (uint32_t n = 0; index < leases->made && n < leases->made; n++) {
        uint32_t next = mooi_ledger_next(leases->ledger, index);
        if (mooi_ledger_shift(leases->ledger, index,
                              leases->lease[index].generation, MOOI_RELEASED,
                              MOOI_FREE)) {
            if (leases->lease[index].block)
                let_go(leases, index);
            free_index(leases, index);
        }
        index = next;
    }
}

struct mooi_block *mooi_lease_covers(struct mooi_leases *leases,
                                     const struct mooi_holder *holder,
                                     uint32_t index, uint32_t generation,
                                     uint32_t slab, uint64_t offset,
                                     uint64_t length)
{
    const struct mooi_lease *lease =
        mooi_lease_of(leases, holder, index, generation);

    return lease && lease->block->slab == slab &&
                   mooi_block_covers(lease->block, offset, length)
               ? lease->block
               : NULL;
}
