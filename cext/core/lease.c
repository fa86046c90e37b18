/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <stdlib.h>

#include "plane/plane.h"

static void set_word(moo_plane *plane, uint32_t index, uint32_t generation,
                     enum mooi_lease_state state)
{
    atomic_store_explicit(&plane->ledger->entry[index].word,
                          generation << 2 | state, memory_order_release);
}

/* Twice the room in the private table; the ledger is sparse and has it all. */
static moo_err more_leases(moo_plane *plane)
{
    uint32_t made = plane->leases_made, room = made ? 2 * made : 64;
    struct mooi_lease *grown;

    if (made == MOOI_LEDGER_ENTRIES)
        return MOO_ENOMEM;
    grown = realloc(plane->lease, room * sizeof *grown);
    if (!grown)
        return MOO_ENOMEM;
    plane->lease = grown;
    for (uint32_t i = room; i-- > made;) {
        grown[i] = (struct mooi_lease){.next = plane->leases_free};
        plane->leases_free = i;
    }
    plane->leases_made = room;
    return MOO_OK;
}

static void free_index(moo_plane *plane, uint32_t index)
{
    struct mooi_lease *lease = &plane->lease[index];

    if (lease->sending) { /* under this very name: see mooi_lease_unsend */
        lease->doomed = 1;
        return;
    }
    lease->generation = (lease->generation + 1) % MOOI_GENERATIONS;
    lease->next = plane->leases_free;
    plane->leases_free = index;
}

static void link_to_peer(moo_plane *plane, uint32_t index)
{
    struct mooi_lease *lease = &plane->lease[index];

    lease->previous = MOOI_NO_LEASE;
    lease->next = lease->peer->first_lease;
    if (lease->next != MOOI_NO_LEASE)
        plane->lease[lease->next].previous = index;
    lease->peer->first_lease = index;
    lease->peer->leases++;
    lease->peer->bytes += mooi_block_bytes(lease->block);
    plane->leases_live++;
}

/* The block is held no longer; the index is not free yet. */
static void let_go(moo_plane *plane, uint32_t index)
{
    struct mooi_lease *lease = &plane->lease[index];

    if (lease->previous != MOOI_NO_LEASE)
        plane->lease[lease->previous].next = lease->next;
    else
        lease->peer->first_lease = lease->next;
    if (lease->next != MOOI_NO_LEASE)
        plane->lease[lease->next].previous = lease->previous;
    lease->peer->leases--;
    lease->peer->bytes -= mooi_block_bytes(lease->block);
    plane->leases_live--;
    mooi_block_rele(&plane->arena, lease->block);
    lease->block = NULL;
    lease->peer = NULL;
}

moo_err mooi_lease_grant(moo_plane *plane, struct mooi_block *block,
                         struct mooi_peer *peer, uint64_t offset,
                         uint64_t length, int flags,
                         struct mooi_descriptor *out)
{
    struct mooi_lease *lease;
    uint32_t index;

    if (plane->leases_free == MOOI_NO_LEASE) {
        moo_err err = more_leases(plane);
        if (err != MOO_OK)
            return err;
    }
    index = plane->leases_free;
    lease = &plane->lease[index];
    plane->leases_free = lease->next;
    lease->block = block;
    lease->peer = peer;
    mooi_block_hold(block);
    link_to_peer(plane, index);
    peer->exported += length;
    set_word(plane, index, lease->generation, MOOI_GRANTED);
    *out = (struct mooi_descriptor){.owner = plane->id,
                                    .offset = offset,
                                    .length = length,
                                    .slab = block->slab,
                                    .lease = index,
                                    .generation = lease->generation,
                                    .flags = (uint8_t)flags};
    if (peer->remote)
        out->flags |= block->ticket ? MOOI_REMOTE | MOOI_TICKET : MOOI_REMOTE;
    return MOO_OK;
}

void mooi_lease_unsend(moo_plane *plane, uint32_t index)
{
    struct mooi_lease *lease = &plane->lease[index];

    assert(lease->sending);
    if (--lease->sending)
        return;
    lease->sent_from = NULL;
    if (!lease->doomed)
        return;
    lease->doomed = 0;
    free_index(plane, index);
}

static int is_live(const moo_plane *plane, uint32_t index, uint32_t generation)
{
    return index < plane->leases_made && plane->lease[index].block &&
           plane->lease[index].generation == generation;
}

int mooi_lease_revoke(moo_plane *plane, uint32_t index, uint32_t generation)
{
    if (!is_live(plane, index, generation) ||
        !mooi_ledger_shift(plane->ledger, index, generation, MOOI_GRANTED,
                           MOOI_FREE))
        return 0;
    let_go(plane, index);
    free_index(plane, index);
    return 1;
}

void mooi_lease_end_own(moo_plane *plane, uint32_t index, uint32_t generation,
                        enum mooi_lease_state from)
{
    if (!is_live(plane, index, generation) ||
        !mooi_ledger_shift(plane->ledger, index, generation, from, MOOI_FREE))
        return;
    let_go(plane, index);
    free_index(plane, index);
}

void mooi_lease_revoke_all(moo_plane *plane, struct mooi_peer *peer)
{
    mooi_lease_drain(plane);
    while (peer->first_lease != MOOI_NO_LEASE) {
        uint32_t index = peer->first_lease;
        uint32_t generation = plane->lease[index].generation;
        int ours = mooi_ledger_shift(plane->ledger, index, generation,
                                     MOOI_GRANTED, MOOI_FREE) ||
                   mooi_ledger_shift(plane->ledger, index, generation,
                                     MOOI_HELD, MOOI_FREE);
        let_go(plane, index);
        plane->revoked++;
        /* Not ours: it was marked released but is not on the stack. If it
         * gets there, drain frees the index; if its holder was killed between
         * the two steps, 8 bytes of the ledger stay unused. */
        if (ours)
            free_index(plane, index);
    }
}

void mooi_lease_drain(moo_plane *plane)
{
    uint32_t index = mooi_ledger_take(plane->ledger);

    /* Bounded, because other processes could have made a circle. */
    for (uint32_t n = 0; index < plane->leases_made && n < plane->leases_made;
         n++) {
        uint32_t next = mooi_ledger_next(plane->ledger, index);
        if (mooi_ledger_shift(plane->ledger, index,
                              plane->lease[index].generation, MOOI_RELEASED,
                              MOOI_FREE)) {
            if (plane->lease[index].block)
                let_go(plane, index);
            free_index(plane, index);
        }
        index = next;
    }
}

int mooi_lease_covers(moo_plane *plane, const struct mooi_peer *peer,
                      uint32_t index, uint32_t generation, uint32_t slab,
                      uint64_t offset, uint64_t length)
{
    const struct mooi_block *block;

    if (!is_live(plane, index, generation) || plane->lease[index].peer != peer)
        return 0;
    block = plane->lease[index].block;
    return block->slab == slab && mooi_block_covers(block, offset, length);
}
