/* SPDX-License-Identifier: MIT */
/*
 * cells.c: what a member tells the others, in its cell.
 *
 * A member writes only its own cell, but for the bells, and its counters only
 * grow. The counters and the note of a sleeper (`want`, `waiting`) are
 * sequentially consistent: either the sleeper sees the new value on its last
 * look, or the writer sees the note and rings.
 */
#include <stdio.h>

#include "collective/fault.h"
#include "collective/process.h"
#include "collective/segment/segment.h"

static struct mooi_cell *cell_of(const moo_group *group, uint32_t rank)
{
    return &group->segment->cells[group->view.slots[rank]];
}

static struct mooi_cell *own_cell(const moo_group *group)
{
    return &group->segment->cells[group->slot];
}

/* ---- bells ---- */

static void ring(struct mooi_cell *cell)
{
    atomic_fetch_add(&cell->bell, 1);
    mooi_futex_wake(&cell->bell);
}

void mooi_notify_all(struct mooi_segment *segment)
{
    for (uint32_t slot = 0; slot < MOOI_TEAM_MAX; slot++)
        if (mooi_slot_state(&segment->cells[slot]) != FREE)
            ring(&segment->cells[slot]);
}

uint32_t mooi_bell(const moo_group *group)
{
    return atomic_load(&own_cell(group)->bell);
}

bool mooi_bell_wait(moo_group *group, uint32_t bell, double seconds)
{
    return mooi_futex_wait(&own_cell(group)->bell, bell, seconds);
}

static uint32_t note_of(uint32_t slot, enum mooi_counter which)
{
    return (slot + 1) << 8 | which;
}

void mooi_bell_arm(moo_group *group, uint32_t rank, enum mooi_counter which,
                   uint64_t target)
{
    struct mooi_cell *mine = own_cell(group);
    atomic_store(&mine->want, target);
    atomic_store(&mine->waiting, note_of(group->view.slots[rank], which));
}

void mooi_bell_disarm(moo_group *group)
{
    atomic_store(&own_cell(group)->waiting, 0);
}

void mooi_bell_ring(moo_group *group)
{
    ring(own_cell(group));
}

/* ---- counters ---- */

#ifdef MOOI_FAULTS
static const char *const points[COUNTERS][2] = {
    [PUT] = {"putting", "put"}, [REDUCED] = {"reducing", "reduced"},
    [COPIED] = {"copying", "copied"}, [ACKED] = {"acknowledging", "acknowledged"},
    [RINGED] = {"ringing", "ringed"}};
#endif

void mooi_publish(moo_group *group, enum mooi_counter which, uint64_t value)
{
    uint32_t note = note_of(group->slot, which);
    MOOI_FAULT(points[which][0]);
    atomic_store(&own_cell(group)->counter[which], value);
    MOOI_FAULT(points[which][1]);
    const struct mooi_hosts *hosts = &group->hosts;
    for (uint32_t i = hosts->start[hosts->mine];
         i < hosts->start[hosts->mine + 1]; i++) {
        struct mooi_cell *cell = cell_of(group, hosts->order[i]);
        if (atomic_load(&cell->waiting) == note &&
            atomic_load(&cell->want) <= value)
            ring(cell);
    }
}

/* ---- calls ---- */

void mooi_post_call(moo_group *group, uint64_t seq,
                    const struct mooi_signature *signature)
{
    own_cell(group)->signature[seq & 1] = *signature;
}

const struct mooi_signature *mooi_call_of(const moo_group *group, uint32_t rank,
                                          uint64_t seq)
{
    return &cell_of(group, rank)->signature[seq & 1];
}

/* ---- leaders ---- */

#define CARRIER_BITS 8

struct mooi_words *mooi_words_of(const moo_group *group)
{
    return &group->segment->words;
}

uint64_t mooi_result(const moo_group *group)
{
    return atomic_load(&group->segment->words.result);
}

void mooi_tell_difference(moo_group *group, uint32_t rank, const char *text)
{
    struct mooi_cell *cell = own_cell(group);
    snprintf(cell->difference, sizeof cell->difference, "%s", text);
    cell->different = rank;
}

const char *mooi_difference(const moo_group *group, uint32_t *rank)
{
    uint32_t leader = mooi_leader(&group->hosts, group->hosts.mine);
    *rank = cell_of(group, leader)->different;
    return cell_of(group, leader)->difference;
}

void mooi_post_carrier(moo_group *group, uint32_t transport)
{
    atomic_store(&own_cell(group)->carrier,
                 (uint64_t)group->view.epoch << CARRIER_BITS | transport);
}

uint32_t mooi_carrier_of(const moo_group *group, uint32_t rank)
{
    uint64_t word = atomic_load(&cell_of(group, rank)->carrier);
    return word >> CARRIER_BITS == group->view.epoch
               ? (uint32_t)(word & ((1u << CARRIER_BITS) - 1))
               : 0;
}
