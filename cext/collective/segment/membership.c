/* SPDX-License-Identifier: MIT */
/*
 * membership.c: the lock of the segment, and the views. agreement.h says when
 * the membership changes, and what the members are told.
 */
#include <sched.h>

#include "collective/process.h"
#include "collective/segment/segment.h"

/* ---- the lock ---- */

static uint64_t owner_word(const moo_group *group)
{
    return (uint64_t)group->start << 32 | (uint32_t)group->pid;
}

static bool owner_dead(uint64_t word)
{
    return mooi_process_dead((int32_t)(uint32_t)word, (uint32_t)(word >> 32));
}

void mooi_segment_lock(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    for (int tries = 0;; tries++) {
        uint64_t owner = 0;
        if (atomic_compare_exchange_strong(&segment->lock, &owner,
                                           owner_word(group)))
            return;
        if (tries < 64) {
            sched_yield();
            continue;
        }
        uint32_t bell = atomic_load(&segment->lock_bell);
        mooi_futex_wait(&segment->lock_bell, bell, 0.01);
        if (owner_dead(owner) &&
            atomic_compare_exchange_strong(&segment->lock, &owner,
                                           owner_word(group))) {
            mooi_repair(segment);
            return;
        }
    }
}

void mooi_segment_unlock(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    atomic_store(&segment->lock, 0);
    atomic_fetch_add(&segment->lock_bell, 1);
    mooi_futex_wake(&segment->lock_bell);
}

/* ---- the next epoch ---- */

struct mooi_view *mooi_current_view(struct mooi_segment *segment)
{
    return &segment->views[atomic_load(&segment->epoch) % VIEWS];
}

bool mooi_slot_alive(struct mooi_segment *segment, uint32_t slot)
{
    struct mooi_slot *taken = &segment->slots[slot];
    return atomic_load(&taken->state) == MEMBER_TAKEN &&
           !mooi_process_dead(taken->member.pid, taken->member.start);
}

/* Lock held. The newcomer with the lowest join number above `after`. */
static int next_newcomer(struct mooi_segment *segment, uint64_t after)
{
    struct mooi_slot *slots = segment->slots;
    int next = -1;
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++) {
        uint64_t join_no = slots[slot].member.join_no;
        if (atomic_load(&slots[slot].state) != MEMBER_TAKEN ||
            join_no <= after ||
            mooi_rank_in(mooi_current_view(segment), slot) >= 0)
            continue;
        if (next < 0 || join_no < slots[next].member.join_no)
            next = (int)slot;
    }
    return next;
}

/* Remove members that have left and, if `drop_dead`, the dead. */
static void append(struct mooi_segment *segment, struct mooi_view *view,
                   uint32_t slot, bool drop_dead)
{
    struct mooi_slot *taken = &segment->slots[slot];
    if (drop_dead ? !mooi_slot_alive(segment, slot)
        : atomic_load(&taken->state) != MEMBER_TAKEN) {
        atomic_store(&taken->state, MEMBER_FREE);
        return;
    }
    view->pids[view->size] = taken->member.pid;
    view->ids[view->size] = taken->member.id;
    view->slots[view->size++] = (uint16_t)slot;
}

void mooi_transition(struct mooi_segment *segment, uint64_t first_seq,
                     bool admit, bool drop_dead)
{
    struct mooi_view *old = mooi_current_view(segment);
    uint32_t epoch = atomic_load(&segment->epoch) + 1, waiting = 0;
    struct mooi_view *view = &segment->views[epoch % VIEWS];
    int slot = -1;

    view->epoch = epoch;
    view->first_seq = first_seq;
    view->size = 0;
    for (uint32_t rank = 0; rank < old->size; rank++)
        append(segment, view, old->slots[rank], drop_dead);
    admit = admit || view->size < segment->min_size;
    for (uint64_t after = 0; (slot = next_newcomer(segment, after)) >= 0;) {
        after = segment->slots[slot].member.join_no;
        if (admit)
            append(segment, view, (uint32_t)slot, true);
        else
            waiting++;
    }
    if (admit)
        atomic_store(&segment->blocked, 0); /* no newcomer waits any more */
    atomic_store(&segment->joining, waiting);
    atomic_store(&segment->epoch, epoch);
}

/* ---- the view of a member ---- */

uint32_t mooi_epoch(const moo_group *group)
{
    return atomic_load(&group->segment->epoch);
}

/* Lock held. The view in which operation `seq` runs, or would have run. NULL:
 * more than VIEWS views have followed it. */
static const struct mooi_view *view_at(struct mooi_segment *segment,
                                       uint64_t seq)
{
    uint32_t epoch = atomic_load(&segment->epoch);
    for (uint32_t back = 0; back < VIEWS && back <= epoch; back++) {
        struct mooi_view *view = &segment->views[(epoch - back) % VIEWS];
        if (view->first_seq <= seq)
            return view;
    }
    return NULL;
}

/* Lock held. The view that a newcomer begins with: the first one since it took
 * its slot that has it and enough members. Not the current one: what happened
 * since then happened to all members of that view. If an operation was aborted
 * because somebody left, the others run their call again; a newcomer that began
 * behind the abort would take that for a call like any other. */
static const struct mooi_view *first_view(const moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    uint32_t epoch = atomic_load(&segment->epoch);
    uint32_t since = epoch - group->entered; /* views */
    for (uint32_t back = since < VIEWS ? since : VIEWS; back-- > 0;) {
        const struct mooi_view *view = &segment->views[(epoch - back) % VIEWS];
        if (mooi_rank_in(view, group->slot) >= 0 &&
            view->size >= segment->min_size)
            return view;
    }
    return mooi_current_view(segment);
}

int mooi_next_view(moo_group *group, struct mooi_view *view,
                   struct mooi_member members[MOO_GROUP_MAX])
{
    struct mooi_segment *segment = group->segment;
    int own = -1;
    mooi_segment_lock(group);
    const struct mooi_view *next = group->formed
                                       ? view_at(segment, group->seq + 1)
                                       : first_view(group);
    if (next && next->epoch > group->view.epoch)
        own = mooi_rank_in(next, group->slot);
    if (own >= 0)
        *view = *next;
    for (uint32_t rank = 0; own >= 0 && rank < view->size; rank++) {
        members[rank] = segment->slots[view->slots[rank]].member;
        group->counters[rank] = segment->cells[view->slots[rank]].counter;
    }
    mooi_segment_unlock(group);
    return own;
}

void mooi_reform(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    mooi_segment_lock(group);
    struct mooi_view *view = mooi_current_view(segment);
    uint64_t first = view->first_seq;
    uint32_t alive = 0;
    for (uint32_t rank = 0; rank < view->size; rank++)
        alive += mooi_slot_alive(segment, view->slots[rank]);
    for (uint32_t i = 0; alive == 0 && i < MOO_GROUP_MAX; i++) {
        uint64_t seq = atomic_load(&segment->cells[i].counter[PUT]);
        first = (seq >> STEP_BITS) + 2 > first ? (seq >> STEP_BITS) + 2 : first;
    }
    bool change = view->size < segment->min_size && alive < view->size;
    if (change || alive == 0)
        mooi_transition(segment, first, true, true);
    mooi_segment_unlock(group);
    if (change || alive == 0)
        mooi_notify_all(segment);
}

/* ---- newcomers and barriers ---- */

bool mooi_newcomers_wait(const moo_group *group)
{
    return atomic_load(&group->segment->joining) != 0;
}

void mooi_admit(moo_group *group, uint64_t seq)
{
    mooi_segment_lock(group);
    if (mooi_current_view(group->segment)->first_seq <= seq)
        mooi_transition(group->segment, seq + 1, true, false);
    mooi_segment_unlock(group);
    mooi_notify_all(group->segment);
}

/* All members end a barrier alike, and none begins the next before all have
 * ended this one, so their writes here are in order. */
void mooi_note_barrier(moo_group *group, const moo_outcome *outcome)
{
    struct mooi_segment *segment = group->segment;
    bool failed = outcome->status != MOO_OK;
    if (!failed && !atomic_load(&segment->blocked))
        return;
    mooi_segment_lock(group);
    segment->obstacle = *outcome;
    atomic_store(&segment->blocked, failed);
    mooi_segment_unlock(group);
}

void mooi_obstacle(moo_group *group, moo_outcome *out)
{
    struct mooi_segment *segment = group->segment;
    *out = (moo_outcome){.status = MOO_OK};
    mooi_segment_lock(group);
    if (atomic_load(&segment->blocked))
        *out = segment->obstacle;
    mooi_segment_unlock(group);
}
