/* SPDX-License-Identifier: MIT */
/*
 * agree.c: the check that all members make the same call, and the commit. The
 * algorithms call it: each publishes PUT >= base, which shows that the
 * member's call was posted, and mooi_agree compares.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "collective/progress.h"
#include "collective/protocol/words.h"
#include "collective/ring.h"
#include "core/clock.h"

static const char *const kind_names[MOO_GROUP_KINDS] = {
    "barrier", "allreduce", "broadcast", "all_gather", "reduce_scatter"};

static void describe(const struct mooi_signature *signature, char *text,
                     size_t room)
{
    char part[32] = "";
    if (signature->parts > 1)
        snprintf(part, sizeof part, ", type %u of %u",
                 (unsigned)signature->part + 1, (unsigned)signature->parts);
    switch (signature->kind) {
    case MOO_GROUP_BARRIER:
        snprintf(text, room, "barrier");
        return;
    case MOO_GROUP_BROADCAST:
        snprintf(text, room, "broadcast(root=%u) of %u tensors, %" PRIu64
                 " bytes", signature->root, signature->spans,
                 signature->bytes);
        return;
    default:
        snprintf(text, room, "%s of %u %s tensors, %" PRIu64 " bytes, %s%s",
                 kind_names[signature->kind], signature->spans,
                 mooi_dtype_name((moo_dtype)signature->dtype),
                 signature->bytes,
                 signature->kind == MOO_GROUP_ALL_GATHER
                     ? "in rank order"
                     : mooi_reduction_name((moo_reduction)signature->op),
                 part);
    }
}

static bool same(const struct mooi_signature *a,
                 const struct mooi_signature *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op &&
           a->root == b->root && a->spans == b->spans &&
           a->bytes == b->bytes && a->output_bytes == b->output_bytes &&
           a->layout == b->layout && a->part == b->part &&
           a->parts == b->parts;
}

static moo_err disagree(moo_work *work, uint32_t rank,
                        const struct mooi_signature *first, uint32_t other_rank,
                        const struct mooi_signature *other)
{
    char a[80], b[80];
    describe(first, a, sizeof a);
    describe(other, b, sizeof b);
    bool shapes = !strcmp(a, b);
    work->outcome.rank = other_rank;
    snprintf(work->outcome.text, sizeof work->outcome.text,
             "rank %u called %s; rank %u called %s%s", (unsigned)rank, a,
             (unsigned)other_rank, b,
             shapes ? ", with other shapes, types or keys" : "");
    return (moo_err)MOO_EMISMATCH;
}

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
        if (same(first, other))
            continue;
        err = hosts->count > 1 ? MOO_OK : mooi_conclude(group, work, false);
        return err ? err : disagree(work, leader, first, rank, other);
    }
    return MOO_OK;
}

bool mooi_same_call(moo_group *group, moo_work *work, uint32_t rank,
                    const struct mooi_signature *theirs)
{
    const struct mooi_signature *ours = &work->signature;
    if (same(ours, theirs))
        return true;
    if (rank < group->rank)
        disagree(work, rank, theirs, group->rank, ours);
    else
        disagree(work, group->rank, ours, rank, theirs);
    return false;
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
        err = leads ? mooi_lines_commit(group, work, succeeds ? 0 : 1,
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
