/* SPDX-License-Identifier: MIT */
/*
 * calls.c: whether members' calls are alike, and the words if they are not.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collective/calls.h"
#include "collective/group.h"

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

bool mooi_same_calls(const struct mooi_signature *a,
                     const struct mooi_signature *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op &&
           a->root == b->root && a->spans == b->spans &&
           a->bytes == b->bytes && a->output_bytes == b->output_bytes &&
           a->layout == b->layout && a->part == b->part &&
           a->parts == b->parts;
}

moo_err mooi_disagree(moo_work *work, uint32_t rank,
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

bool mooi_is_our_call(moo_group *group, moo_work *work, uint32_t rank,
                      const struct mooi_signature *theirs)
{
    const struct mooi_signature *ours = &work->signature;
    if (mooi_same_calls(ours, theirs))
        return true;
    if (rank < group->rank)
        mooi_disagree(work, rank, theirs, group->rank, ours);
    else
        mooi_disagree(work, group->rank, ours, rank, theirs);
    return false;
}
