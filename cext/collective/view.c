/* SPDX-License-Identifier: MIT */
/*
 * view.c: a member's own copy of the view.
 *
 * Between two operations a member takes over the view of the next one; within
 * one it looks only at its copy, so that no change by others affects it. The
 * current view may be a later one already: then the next operation has been
 * aborted, and nothing ever runs in the view taken over.
 */
#include "collective/group.h"
#include "collective/process.h"
#include "collective/progress.h"
#include "collective/view.h"
#include "core/clock.h"

/* Segment locked. The view that a newcomer begins with, or NULL: the first one
 * since it took its slot that has it and enough members. Not the current one: what
 * happened since then happened to all members of that view. If an operation was
 * aborted because somebody left, the others run their call again; a newcomer that
 * began behind the abort would take that for a call like any other. */
static const struct mooi_view *first_view(moo_group *group)
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

moo_err mooi_adopt(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    struct mooi_member members[MOO_GROUP_MAX];
    struct mooi_view view = {0};
    if (atomic_load(&segment->epoch) == group->view.epoch)
        return MOO_OK;
    mooi_segment_lock(group);
    const struct mooi_view *next =
        group->formed ? mooi_view_at(segment, group->seq + 1)
                      : first_view(group);
    if (next && next->epoch > group->view.epoch)
        view = *next;
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++)
        members[slot] = segment->members[slot];
    mooi_segment_unlock(group);
    int rank = mooi_rank_in(&view, group->slot);
    if (rank < 0)
        return group->view.epoch ? MOO_OK : MOOI_PENDING;

    if (!group->formed) /* a newcomer: earlier operations do not concern it */
        group->seq = view.first_seq - 1;
    pthread_mutex_lock(&group->mutex);
    group->view = view;
    group->rank = (uint32_t)rank;
    mooi_hosts_find(&group->hosts, &view, group->rank, members);
    group->algorithms = group->hosts.count > 1 ? &mooi_ring_collective
                                               : &mooi_shm_collective;
    group->info.rank = group->rank;
    group->info.size = view.size;
    group->info.epoch = view.epoch;
    pthread_mutex_unlock(&group->mutex);
    mooi_watch_members(group, members);
    mooi_tune(group);
    return MOO_OK;
}

/* Nothing runs: remove the dead and admit newcomers. Or no member of the
 * current view lives: the newcomers are the group from now on. */
static void reform_idle(moo_group *group)
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

moo_err mooi_wait_formed(moo_group *group, uint64_t seq, double deadline)
{
    struct mooi_cell *cell = &group->segment->cells[group->slot];
    uint64_t word;
    for (;;) {
        uint32_t bell = atomic_load(&cell->bell);
        moo_err err = mooi_adopt(group);
        /* before the size: the abort may have made the view too small */
        if (seq && mooi_decided(group, seq, &word))
            return MOO_EPEER;
        if (!err && group->view.size >= group->min_size) {
            group->formed = true;
            return MOO_OK;
        }
        double now = mooi_now(), left = group->slice_end - now;
        if (seq && now >= deadline) {
            mooi_give_up(group, seq); /* so there is no reason to wait */
            continue;
        }
        if (left <= 0 || group->closing ||
            !mooi_futex_wait(&cell->bell, bell, left < POLL_S ? left : POLL_S))
            return MOOI_PENDING;
        reform_idle(group);
    }
}
