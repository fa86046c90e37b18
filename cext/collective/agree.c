/* SPDX-License-Identifier: MIT */
/*
 * agree.c: the check that all members make the same call, and the commit. The
 * algorithms call it: each publishes PUT >= base, which shows that the
 * member's call was posted, and mooi_agree compares.
 */
#include <math.h>

#include "collective/calls.h"
#include "collective/fault.h"
#include "collective/progress.h"
#include "collective/protocol/words.h"
#include "collective/ring.h"
#include "core/clock.h"

moo_err mooi_agree(moo_group *group, moo_work *work)
{
    moo_err err = mooi_await(group, work, PUT, work->seq << STEP_BITS);
    if (err)
        return err;
    const struct mooi_hosts *hosts = &group->hosts;
    uint32_t leader = mooi_leader(hosts, hosts->mine);
    const struct mooi_signature *first =
        mooi_call_of(group, leader, work->seq);
    work->signature.admit = first->admit;
    work->signature.chunk = first->chunk;
    for (uint32_t i = hosts->start[hosts->mine] + 1u;
         i < hosts->start[hosts->mine + 1]; i++) {
        uint32_t rank = hosts->order[i];
        const struct mooi_signature *other =
            mooi_call_of(group, rank, work->seq);
        if (mooi_same_calls(first, other))
            continue;
        err = hosts->count > 1 ? MOO_OK : mooi_conclude(group, work, false);
        return err ? err : mooi_disagree(work, leader, first, rank, other);
    }
    return MOO_OK;
}

/* ---- the commit ---- */

/* Members rest behind a barrier that rank 0 has marked, so that newcomers can
 * come in. */
static bool is_marked(const moo_work *work)
{
    return work->kind == MOO_GROUP_BARRIER && work->signature.admit;
}

static moo_err conclude_here(moo_group *group, moo_work *work, bool succeeds)
{
    work->rests = succeeds && is_marked(work);
    for (;;) {
        uint32_t bell = mooi_bell(group);
        moo_err err = mooi_commit(group, work->seq, work->rests);
        if (err != MOOI_PENDING)
            return err;
        double left = group->slice_end - mooi_now();
        if (left <= 0 || group->closing || !mooi_bell_wait(group, bell, left))
            return MOOI_PENDING;
    }
}

/* The leader commits, and says so; or, if it dies before, the agent does. */
static moo_err await_leader(moo_group *group, moo_work *work)
{
    uint32_t leader = mooi_leader(&group->hosts, group->hosts.mine);
    uint64_t target = mooi_base_of(work) + STEP_LAST;
    moo_err err = MOOI_PENDING;
    mooi_bell_arm(group, leader, RINGED, target);
    while (err == MOOI_PENDING) {
        uint32_t bell = mooi_bell(group);
        bool aborted;
        double now = mooi_now(), left = group->slice_end - now;
        mooi_inspect(group, work, leader, now); /* complains if it is late */
        if (mooi_decided(group, work->seq, &aborted))
            err = aborted ? MOO_EPEER : MOO_OK;
        else if (left <= 0 || group->closing ||
                 !mooi_bell_wait(group, bell,
                                 now < work->deadline
                                     ? fmin(left, work->deadline - now)
                                     : left))
            break;
    }
    mooi_bell_disarm(group);
    return err;
}

/* Tell all hosts that this one has all its bytes, or that calls differ
 * (`status`), and wait until all have told it. As mooi_links_wait. */
static moo_err commit_as_leader(moo_group *group, moo_work *work,
                                uint32_t status, bool rest)
{
    struct mooi_commit *commit = &group->ring->commit;
    bool aborted;
    while (!mooi_decided(group, work->seq, &aborted)) {
        if (!commit->entered &&
            mooi_commit_enter(commit, status, rest) == MOOI_COMMITTED)
            break;
        moo_err err = mooi_lines_pump(group, work);
        if ((!err || err == MOO_EMISMATCH) &&
            !mooi_decided(group, work->seq, &aborted))
            err = mooi_links_wait(group, work, -1, -1, false);
        if (err && err != MOO_EMISMATCH)
            return err;
    }
    MOOI_FAULT("everywhere");
    return aborted ? MOO_EPEER : MOO_OK;
}

/* After calls that differ members rest, too: bytes of the operation are still
 * on their way, and the next view has connections of its own. */
static moo_err conclude_everywhere(moo_group *group, moo_work *work,
                                   bool succeeds)
{
    bool leads = mooi_leads(group);
    moo_err err = MOO_OK;
    if (leads && succeeds)
        err = mooi_links_check(group, work);
    if (!err)
        err = leads ? commit_as_leader(group, work, succeeds ? 0 : 1,
                                       !succeeds || (group->rank == 0 &&
                                                     is_marked(work)))
                    : await_leader(group, work);
    if (err)
        return err;
    if (leads)
        mooi_publish(group, RINGED, mooi_base_of(work) + STEP_LAST);
    uint64_t result = mooi_result(group);
    bool ours = mooi_result_is_for(result, work->seq), rested;
    enum mooi_why why;
    /* If the master has committed it, only the view knows of all hosts. */
    mooi_is_rested(group, work->seq, &why, &rested);
    work->rests = rested || (ours && mooi_result_rests(result));
    return ours && succeeds && mooi_result_status(result)
               ? (moo_err)MOO_EMISMATCH
               : MOO_OK;
}

moo_err mooi_conclude(moo_group *group, moo_work *work, bool succeeds)
{
    return group->hosts.count > 1 ? conclude_everywhere(group, work, succeeds)
                                  : conclude_here(group, work, succeeds);
}
