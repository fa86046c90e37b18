/* SPDX-License-Identifier: MIT */
/*
 * operation.c: the beginning and the end of every operation, around its
 * algorithm.
 *
 * To begin, a member takes the next sequence number, adopts the current
 * epoch and, at the first operation of it, waits for everybody to have done
 * so. It then posts its call, on which all have to agree (agree.c).
 *
 * If a member left before it began this operation, no member can have a result
 * of it, so all begin again without that member. Allreduce and barrier simply
 * do so. In the others a rank has a meaning for the caller, so the caller must
 * be told: they begin again in order to agree, and end as lost. (Ending them
 * at once would put a member that had called one of these one number behind a
 * member that had called an allreduce.)
 *
 * In a group that finishes, the same is so of a member that died, or that
 * cannot be reached.
 */
#include <stdio.h>
#include <stdlib.h>

#include "collective/progress.h"
#include "collective/ring.h"
#include "collective/view.h"
#include "core/clock.h"

static moo_err acknowledge(moo_group *group, moo_work *work)
{
    uint32_t epoch = group->view.epoch;
    if (mooi_counter_of(group, group->rank, ACKED) < epoch)
        mooi_publish(group, ACKED, epoch);
    if (group->acked == epoch)
        return MOO_OK;
    moo_err err = mooi_await(group, work, ACKED, epoch);
    if (!err)
        group->acked = epoch;
    return err;
}

static void post(moo_group *group, moo_work *work)
{
    work->signature.admit = mooi_newcomers_wait(group);
    work->signature.chunk = group->chunk;
    mooi_post_call(group, work->seq, &work->signature);
    work->entered = true;
    work->differs = work->rests = false;
    *work->outcome.text = 0;
    work->iteration = 0;
    work->stage = 0;
}

static moo_err begin(moo_group *group, moo_work *work)
{
    work->seq = group->seq + 1;
    if (!work->deadline)
        work->deadline = mooi_now() + group->timeout;
    moo_err err = mooi_wait_formed(group, work->seq, work->deadline);
    if (!err)
        err = acknowledge(group, work);
    if (!err && group->finishes && work->kind == MOO_GROUP_ALLREDUCE &&
        mooi_spans_keep_inputs(&work->spans))
        return mooi_lost(group, work, group->rank);
    if (!err)
        post(group, work);
    return err;
}

/* ---- the end ---- */

static bool names_a_rank(const moo_work *work)
{
    return work->kind != MOO_GROUP_ALLREDUCE &&
           work->kind != MOO_GROUP_BARRIER;
}

static void blame(moo_group *group, moo_work *work,
                  const struct mooi_cause *decision)
{
    enum mooi_why why = decision->why;
    bool late = why == MOOI_WHY_LATE || why == MOOI_WHY_FEW;
    work->outcome.status = late                 ? MOO_ETIMEOUT
                           : why == MOOI_WHY_NO_WAY ? MOO_EUNREACHABLE
                                                : MOO_EPEER;
    work->outcome.left = why == MOOI_WHY_LEFT || why == MOOI_WHY_SHORT;
    work->outcome.rank = decision->rank;
    work->outcome.pid = decision->pid;
    if (why == MOOI_WHY_CUT)
        snprintf(work->outcome.text, sizeof work->outcome.text,
                 decision->witness == work->outcome.rank
                     ? "rank %u has no memory or sockets left, or cannot "
                       "listen on the address of MOOACTOR_BIND"
                     : "the connection between rank %u and rank %u failed",
                 (unsigned)decision->witness, (unsigned)work->outcome.rank);
    if (why == MOOI_WHY_EXPELLED)
        snprintf(work->outcome.text, sizeof work->outcome.text,
                 "the host of rank %u was taken out of the group, as its "
                 "connections with the host of rank %u fail",
                 (unsigned)work->outcome.rank, (unsigned)decision->witness);
    if (why == MOOI_WHY_FEW)
        snprintf(work->outcome.text, sizeof work->outcome.text,
                 "the group has %u of the %u members that it needs",
                 (unsigned)decision->witness, (unsigned)group->min_size);
    if (why == MOOI_WHY_NO_WAY)
        snprintf(work->outcome.text, sizeof work->outcome.text,
                 "no allowed transport leads from rank %u to rank %u",
                 (unsigned)decision->witness, (unsigned)work->outcome.rank);
}

static bool begins_anew(const moo_group *group, uint64_t seq,
                        enum mooi_why why)
{
    bool lost = why == MOOI_WHY_SHORT || why == MOOI_WHY_DIED ||
                why == MOOI_WHY_CUT || why == MOOI_WHY_EXPELLED;
    return why <= MOOI_WHY_LEFT ||
           (group->finishes && lost && mooi_goes_on(group, seq));
}

static struct mooi_roster *new_roster(const moo_group *group)
{
    struct mooi_roster *roster =
        malloc(sizeof *roster + group->view.size * sizeof *roster->members);
    if (!roster)
        return NULL;
    atomic_init(&roster->holds, 1);
    roster->epoch = group->view.epoch;
    roster->size = group->view.size;
    mooi_describe_members(group, roster->members);
    return roster;
}

void mooi_roster_rele(struct mooi_roster *roster)
{
    if (roster && --roster->holds == 0)
        free(roster);
}

/* Without memory nobody is told who took part. */
static void note_members(moo_group *group, moo_work *work)
{
    if (!group->roster || group->roster->epoch != group->view.epoch) {
        mooi_roster_rele(group->roster);
        group->roster = new_roster(group);
    }
    if (group->roster)
        group->roster->holds++;
    work->roster = group->roster;
}

/* false: the operation has to begin again. */
static bool end(moo_group *group, moo_work *work, moo_err err)
{
    struct mooi_cause decision = {0};
    work->outcome.status = err;
    work->outcome.epoch = group->view.epoch;
    if (err == MOO_EPEER) {
        decision = mooi_cause_of(group, work->seq, &work->outcome.epoch);
        blame(group, work, &decision);
        mooi_ring_hang_up(group); /* which wakes the threads that wait for
                                   * bytes */
    }
    if (err == MOO_ECLOSED)
        snprintf(work->outcome.text, sizeof work->outcome.text,
                 "this host was taken out of the group, as its connections "
                 "with another fail: leave, and join again");
    if (work->entered && err != MOO_EPEER) /* reads no shared bytes any more */
        mooi_publish(group, COPIED, mooi_base_of(work) + STEP_LAST);
    if (work->entered || err == MOO_EPEER) {
        group->seq = work->seq;
        work->entered = false;
    }
    if (err == MOO_EPEER && begins_anew(group, work->seq, decision.why)) {
        if (decision.why >= MOOI_WHY_LEFT && names_a_rank(work) &&
            !work->told) {
            work->told = true;
            work->lost = work->outcome;
        }
        return false;
    }
    if (!err && work->told)
        work->outcome = work->lost;
    if (work->outcome.status == MOO_OK)
        note_members(group, work);
    if (work->kind == MOO_GROUP_BARRIER)
        mooi_note_barrier(group, &work->outcome);
    work->resting = (!err || err == (moo_err)MOO_EMISMATCH) && work->rests;
    if (work->resting)
        mooi_rest(group);
    mooi_adopt(group);
    return true;
}

/* Wait for the view behind `work`, and take over what it silently changes. So
 * all see it after the same call. */
static moo_err rest(moo_group *group, moo_work *work)
{
    for (;;) {
        uint32_t bell = mooi_bell(group);
        enum mooi_why why;
        bool rested;
        if (mooi_is_rested(group, work->seq, &why, &rested)) {
            group->seq += begins_anew(group, work->seq + 1, why);
            mooi_adopt(group);
            work->resting = false;
            return MOO_OK;
        }
        double left = group->slice_end - mooi_now();
        if (left <= 0 || group->closing || !mooi_bell_wait(group, bell, left))
            return MOOI_PENDING;
    }
}

/* All have been told that somebody left. Check that they made the same
 * call. */
static moo_err agree_only(moo_group *group, moo_work *work)
{
    if (group->hosts.count > 1)
        return group->algorithms->run[MOO_GROUP_BARRIER](group, work);
    mooi_publish(group, PUT, mooi_base_of(work));
    moo_err err = mooi_agree(group, work);
    return err ? err : mooi_conclude(group, work, true);
}

moo_err mooi_operation_run(moo_group *group, moo_work *work)
{
    while (!work->resting) {
        moo_err err = work->entered ? MOO_OK : begin(group, work);
        if (!err)
            err = work->told ? agree_only(group, work)
                             : group->algorithms->run[work->kind](group, work);
        if (err == MOOI_PENDING)
            return err;
        if (end(group, work, err))
            break;
    }
    return work->resting ? rest(group, work) : MOO_OK;
}
