/* SPDX-License-Identifier: MIT */
/* watch.c: a member's watch over the processes of the others. */
#include <unistd.h>

#include "collective/group.h"
#include "collective/process.h"
#include "collective/view.h"

static void watch_close(struct mooi_watch *watch)
{
    if (watch->join_no && watch->pidfd >= 0)
        close(watch->pidfd);
    watch->join_no = 0;
}

void mooi_watch_members(moo_group *group, const struct mooi_member *members)
{
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++) {
        struct mooi_watch *watch = &group->watch[slot];
        int rank = slot == group->slot ? -1 : mooi_rank_in(&group->view, slot);
        const struct mooi_member *member = rank < 0 ? NULL : &members[rank];
        if (!member || watch->join_no != member->join_no)
            watch_close(watch);
        if (!member || watch->join_no)
            continue;
        watch->pidfd = mooi_watch_open(member->pid, member->start);
        watch->join_no = member->join_no;
    }
}

void mooi_unwatch(moo_group *group)
{
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++)
        watch_close(&group->watch[slot]);
}

int mooi_find_dead(moo_group *group)
{
    for (uint32_t rank = 0; rank < group->view.size; rank++) {
        struct mooi_watch *watch = &group->watch[group->view.slots[rank]];
        if (rank == group->rank || watch->pidfd == -2)
            continue;
        if (watch->pidfd < 0 || mooi_watch_dead(watch->pidfd))
            return (int)rank;
    }
    return -1;
}
