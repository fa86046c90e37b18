/* SPDX-License-Identifier: MIT */
/*
 * view.c: a member's own copy of the view.
 *
 * Between two operations a member takes over the view of the next one; within
 * one it looks only at its copy, so that no change by others affects it. The
 * current view may be a later one already: then the next operation has been
 * aborted, and nothing ever runs in the view taken over.
 */
#include <string.h>

#include "collective/group.h"
#include "collective/progress.h"
#include "collective/view.h"
#include "core/clock.h"

moo_err mooi_adopt(moo_group *group)
{
    const struct mooi_view *view = &group->view;
    if (mooi_epoch(group) == view->epoch)
        return MOO_OK;
    pthread_mutex_lock(&group->mutex);
    int rank = mooi_next_view(group);
    if (rank >= 0) {
        group->rank = (uint32_t)rank;
        mooi_hosts_find(&group->hosts, view->members, view->size, group->rank);
        group->algorithms = group->hosts.count > 1 ? &mooi_ring_collective
                                                   : &mooi_shm_collective;
        group->info.rank = group->rank;
        group->info.size = view->size;
        group->info.epoch = view->epoch;
    }
    pthread_mutex_unlock(&group->mutex);
    if (rank == MOOI_OUT)
        return MOO_ECLOSED;
    if (rank < 0)
        return view->epoch ? MOO_OK : MOOI_PENDING;
    if (!group->formed) /* a newcomer: earlier operations do not concern it */
        group->seq = view->first_seq - 1;
    mooi_tune(group);
    return MOO_OK;
}

void mooi_describe_members(const moo_group *group, moo_member *members)
{
    for (uint32_t rank = 0; rank < group->view.size; rank++) {
        const struct mooi_member *member = &group->view.members[rank];
        members[rank].pid = member->pid;
        members[rank].id = member->id;
        memcpy(members[rank].host, member->name, sizeof member->name);
    }
}

moo_err mooi_wait_formed(moo_group *group, uint64_t seq, double deadline)
{
    bool aborted;
    for (;;) {
        uint32_t bell = mooi_bell(group);
        moo_err err = group->formed ? MOO_OK : mooi_refusal(group);
        if (err)
            return err;
        err = mooi_adopt(group);
        /* before the size: the abort may have made the view too small */
        if (seq && mooi_decided(group, seq, &aborted) && aborted)
            return MOO_EPEER;
        if (err == MOO_ECLOSED)
            return err;
        if (!err && group->view.size >= group->min_size) {
            group->formed = true;
            return MOO_OK;
        }
        double now = mooi_now(), until = group->slice_end;
        if (seq && now >= deadline)
            mooi_complain(group, seq, MOOI_WHY_LATE, group->rank);
        else if (seq && deadline < until)
            until = deadline;
        if (now >= group->slice_end || group->closing ||
            !mooi_bell_wait(group, bell, until - now))
            return MOOI_PENDING;
    }
}
