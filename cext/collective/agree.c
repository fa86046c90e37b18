/* SPDX-License-Identifier: MIT */
/*
 * agree.c: the check that all members make the same call, and the commit. The
 * algorithms call it: each publishes PUT >= base, which shows that the
 * member's call was posted, and mooi_agree compares.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collective/group.h"
#include "collective/progress.h"
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
                        const struct mooi_signature *first,
                        const struct mooi_signature *other)
{
    char a[92], b[92];
    describe(first, a, sizeof a);
    describe(other, b, sizeof b);
    bool shapes = !strcmp(a, b);
    work->outcome.rank = rank;
    snprintf(work->outcome.text, sizeof work->outcome.text,
             "rank 0 called %s; rank %u called %s%s", a, (unsigned)rank, b,
             shapes ? ", with other shapes, types or keys" : "");
    return (moo_err)MOO_EMISMATCH;
}

moo_err mooi_agree(moo_group *group, moo_work *work)
{
    moo_err err = mooi_await(group, work, PUT, work->seq << STEP_BITS);
    if (err)
        return err;
    const struct mooi_signature *first = mooi_call_of(group, 0, work->seq);
    work->signature.admit = first->admit;
    work->signature.chunk = first->chunk;
    for (uint32_t rank = 1; rank < group->view.size; rank++) {
        const struct mooi_signature *other =
            mooi_call_of(group, rank, work->seq);
        if (same(first, other))
            continue;
        err = mooi_conclude(group, work, false);
        return err ? err : disagree(work, rank, first, other);
    }
    return MOO_OK;
}

/* Members rest behind a barrier that rank 0 has marked, so that newcomers can
 * come in. */
moo_err mooi_conclude(moo_group *group, moo_work *work, bool succeeds)
{
    work->rests = succeeds && work->kind == MOO_GROUP_BARRIER &&
                  work->signature.admit;
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
