/* SPDX-License-Identifier: MIT */
/*
 * entry.c: taking a slot of a group, and giving it back.
 */
#include <string.h>

#include "collective/segment/segment.h"
#include "transport/tcp/handshake.h"

/* Lock held. */
static moo_err check_segment(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    if (!segment->magic) {
        if (mooi_random(segment->key, sizeof segment->key))
            return MOO_ESYS;
        segment->version = SEGMENT_VERSION;
        segment->magic = SEGMENT_MAGIC;
    }
    if (segment->magic != SEGMENT_MAGIC)
        return MOO_EINVAL;
    if (segment->version != SEGMENT_VERSION)
        return MOO_EVERSION;
    if (segment->min_size == group->min_size)
        return MOO_OK;
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++)
        if (mooi_slot_alive(segment, slot))
            return MOO_EINVAL;
    segment->min_size = group->min_size; /* nobody is here: a new group */
    return MOO_OK;
}

/* Lock held. A free slot, or one of a newcomer that has died. */
static int find_slot(struct mooi_segment *segment)
{
    struct mooi_view *view = mooi_current_view(segment);
    for (int slot = 0; slot < MOO_GROUP_MAX; slot++)
        if (mooi_rank_in(view, (uint32_t)slot) < 0 &&
            !mooi_slot_alive(segment, (uint32_t)slot))
            return slot;
    return -1;
}

/* Lock held. */
static moo_err take_slot(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    struct mooi_view *view = mooi_current_view(segment);
    int slot = find_slot(segment);
    if (slot < 0)
        return MOO_ENOMEM;
    struct mooi_slot *taken = &segment->slots[slot];
    atomic_store(&taken->state, MEMBER_FREE);
    taken->member = (struct mooi_member){
        .pid = group->pid, .start = group->start, .id = group->id,
        .join_no = ++segment->joins, .transports = group->transports,
        .checks = group->checks, .stripes = group->stripes};
    memcpy(taken->member.host, group->host, sizeof group->host);
    atomic_store(&segment->cells[slot].waiting, 0);
    atomic_store(&taken->state, MEMBER_TAKEN);
    group->slot = (uint32_t)slot;
    group->entered = atomic_load(&segment->epoch);
    if (view->size < segment->min_size)
        mooi_transition(segment, view->first_seq ? view->first_seq : 1, true,
                        true);
    else
        atomic_fetch_add(&segment->joining, 1);
    return MOO_OK;
}

moo_err mooi_enter(moo_group *group, struct mooi_segment *segment)
{
    group->segment = segment;
    group->regions = (unsigned char *)segment + HEADER_BYTES;
    mooi_segment_lock(group);
    moo_err err = check_segment(group);
    if (!err)
        err = take_slot(group);
    mooi_segment_unlock(group);
    mooi_notify_all(segment);
    return err;
}

/* Lock held. This member is in the middle of an operation. Others may still be
 * inside it, and may even be able to finish it. */
static void exit_running(moo_group *group, uint32_t rank, bool midway)
{
    struct mooi_segment *segment = group->segment;
    struct mooi_view *view = mooi_current_view(segment);
    uint64_t seq = group->seq + 1;
    bool enough = view->size - 1 >= segment->min_size;
    if (seq < view->first_seq) {
        seq = view->first_seq;
        midway = false;
    }
    enum mooi_reason why = enough && !midway ? DECISION_LEFT : DECISION_SHORT;
    if (!mooi_abort_locked(segment, seq, why, rank, rank))
        mooi_abort_locked(segment, seq + 1,
                          enough ? DECISION_LEFT : DECISION_SHORT, rank, rank);
}

void mooi_exit(moo_group *group, bool midway)
{
    struct mooi_segment *segment = group->segment;
    mooi_segment_lock(group);
    struct mooi_view *view = mooi_current_view(segment);
    int rank = mooi_rank_in(view, group->slot);
    atomic_store(&segment->slots[group->slot].state, MEMBER_FREE);
    if (rank < 0)
        atomic_fetch_sub(&segment->joining, 1);
    else if (view->size < segment->min_size)
        mooi_transition(segment, view->first_seq, true, true);
    else
        exit_running(group, (uint32_t)rank, midway);
    mooi_segment_unlock(group);
    mooi_notify_all(segment);
}
