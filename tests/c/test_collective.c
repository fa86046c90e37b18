/* SPDX-License-Identifier: MIT */
/*
 * Learner groups on one host. Deaths, which need processes, are in
 * test_collective_death.c.
 */
#include <sys/resource.h>

#include "collective/segment/segment.h"
#include "collective_cases.h"

/* ---- members of one thread ---- */

static void a_lock_taken_by_a_dead_process_is_taken_over(void)
{
    struct ranks ranks = ranks_new(2, 2);
    struct mooi_segment *segment = ranks.segment;
    pid_t child = fork();
    if (!child) {
        uint64_t word = (uint64_t)mooi_start_time(getpid()) << 32;
        atomic_store(&segment->lock, word | (uint32_t)getpid());
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(atomic_load(&segment->lock) != 0);
    ranks_run(&ranks, gather_and_scatter, NULL);
    CHECK(atomic_load(&segment->lock) == 0);
    ranks_free(&ranks);
}

static void a_work_outlives_its_group(void)
{
    struct ranks ranks = ranks_new(1, 1);
    const size_t count = 8;
    struct list list = list_new(1, &count, 4);
    moo_outcome outcome;
    moo_group *group = join(&ranks);
    moo_work *queued = submit(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32,
                              MOO_OP_SUM, 0, &list);
    moo_work *dropped = submit(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32,
                               MOO_OP_SUM, 0, &list);
    moo_work_free(dropped);
    moo_group_leave(group);
    CHECK(moo_work_done(queued));
    CHECK(moo_work_wait(queued, 0, &outcome) == MOO_OK);
    CHECK(outcome.status == MOO_ECLOSED);
    moo_work_free(queued);
    list_free(&list);
    ranks_free(&ranks);
}

static void a_joiner_must_agree_on_the_segment(void)
{
    struct ranks ranks = ranks_new(1, 1);
    moo_group *group = join(&ranks), *other;
    int tiny = memfd_create("tiny", MFD_CLOEXEC);
    CHECK(moo_group_join(ranks.fd, 2, 2, 60, NULL, &other) == MOO_EINVAL);
    CHECK(moo_group_join(ranks.fd, 2, 0, 60, NULL, &other) == MOO_EINVAL);
    CHECK(moo_group_join(ranks.fd, 2, 1, 0, NULL, &other) == MOO_EINVAL);
    CHECK(moo_group_join(tiny, 2, 1, 60, NULL, &other) == MOO_EINVAL);
    CHECK(moo_group_join(-1, 2, 1, 60, NULL, &other) == MOO_ESYS);
    ranks.segment->version++;
    CHECK(moo_group_join(ranks.fd, 2, 1, 60, NULL, &other) == MOO_EVERSION);
    ranks.segment->version--;
    moo_group_leave(group);
    close(tiny);
    ranks_free(&ranks);
}

/* What each function but wait and free says of the group. */
static int all_say(moo_group *group, moo_err what)
{
    moo_request request = {.kind = MOO_GROUP_BARRIER};
    int32_t pids[MOO_GROUP_MAX];
    uint64_t ids[MOO_GROUP_MAX];
    moo_group_info info;
    moo_outcome outcome;
    uint32_t size;
    moo_work *work;
    return moo_group_submit(group, &request, 1, &work) == what &&
           moo_group_ready(group, 0) == what &&
           moo_group_start(group) == what &&
           moo_group_describe(group, &info) == what &&
           moo_group_members(group, pids, ids, &size) == what &&
           moo_group_obstacle(group, &outcome) == what;
}

static void a_closed_group_refuses_everything(void)
{
    struct ranks ranks = ranks_new(1, 1);
    moo_group *group = join(&ranks);
    CHECK_OK(barrier(group));
    moo_group_close(group);
    moo_group_close(group);
    CHECK(all_say(group, MOO_ECLOSED));
    moo_group_leave(group);
    ranks_free(&ranks);
}

/* The mutex is held at the fork, as if by a thread that the child has not
 * got. */
static void a_forked_child_may_not_use_the_group(void)
{
    struct ranks ranks = ranks_new(1, 1);
    moo_group *group = join(&ranks);
    moo_request request = {.kind = MOO_GROUP_BARRIER};
    moo_outcome outcome;
    moo_work *work;
    CHECK(moo_group_submit(group, &request, 1, &work) == MOO_OK);
    pthread_mutex_lock(&group->mutex);
    pid_t child = fork();
    if (!child) {
        int ok = all_say(group, MOO_EFORK) && !moo_work_done(work) &&
                 moo_work_wait(work, 0, &outcome) == MOO_EFORK;
        moo_work_free(work);
        moo_group_close(group);
        moo_group_leave(group);
        _exit(!ok);
    }
    pthread_mutex_unlock(&group->mutex);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(finish_work(work));
    CHECK(info_of(group).size == 1);
    moo_group_leave(group);
    ranks_free(&ranks);
}

/* ---- in step: all members are groups of this thread, which runs them in slices
 * of no time, so that every case happens in one order only ---- */

enum { MOST = 4 };

struct call {
    moo_group *group;
    moo_work *work;
    double value[2];
    float single[2];
    moo_outcome outcome;
    bool done;
};

static moo_group *enter(struct ranks *ranks)
{
    moo_group *group;
    CHECK(mooi_join_at(ranks->segment, 1, ranks->min_size, ranks->timeout,
                       NULL, &group) == MOO_OK);
    return group;
}

static void all_ready(moo_group **groups, int count)
{
    for (int i = 0; i < count; i++)
        while (moo_group_ready(groups[i], 0) == MOO_ETIMEOUT)
            ;
}

static struct call call_of(moo_group *group, moo_group_kind kind, double value)
{
    return (struct call){.group = group, .value = {value, value},
                         .work = (moo_work *)(uintptr_t)kind};
}

/* Queue what call_of described, where it lies now. */
static void queue(struct call *call)
{
    moo_group_kind kind = (moo_group_kind)(uintptr_t)call->work;
    const void *in[1] = {call->value};
    void *out[1] = {call->value};
    uint64_t bytes[1] = {sizeof call->value};
    moo_request request = {.kind = kind, .dtype = MOO_DT_F64,
                           .op = MOO_OP_SUM, .inputs = in, .outputs = out,
                           .count = kind == MOO_GROUP_BARRIER ? 0 : 1,
                           .bytes = bytes};
    CHECK(moo_group_submit(call->group, &request, 1, &call->work) == MOO_OK);
}

/* A slice of no time. Whether the call is done. */
static bool step(struct call *call)
{
    if (!call->done)
        call->done = moo_work_wait(call->work, 0, &call->outcome) == MOO_OK;
    return call->done;
}

static void finish(struct call *calls, int count)
{
    for (int left = count; left;) {
        left = 0;
        for (int i = 0; i < count; i++)
            left += !step(&calls[i]);
    }
    for (int i = 0; i < count; i++)
        moo_work_free(calls[i].work);
}

static moo_outcome all_do(moo_group **groups, int count, moo_group_kind kind)
{
    struct call calls[MOST];
    for (int i = 0; i < count; i++) {
        calls[i] = call_of(groups[i], kind, 1);
        queue(&calls[i]);
    }
    finish(calls, count);
    for (int i = 1; i < count; i++)
        CHECK(calls[i].outcome.status == calls[0].outcome.status);
    return calls[0].outcome;
}

/* As many as the group needs at once, the rest at a barrier of those. */
static void form(struct ranks *ranks, moo_group **groups, int count)
{
    int first = (int)ranks->min_size;
    for (int i = 0; i < count; i++)
        groups[i] = enter(ranks);
    all_ready(groups, first);
    CHECK_OK(all_do(groups, first, MOO_GROUP_BARRIER));
    all_ready(groups, count);
    CHECK_OK(all_do(groups, count, MOO_GROUP_BARRIER));
}

/* Each call sums up other numbers, so that a shifted one shows. */
static void in_step(moo_group **groups, int count)
{
    struct call calls[MOST];
    for (int turn = 1; turn < 4; turn++) {
        for (int i = 0; i < count; i++) {
            calls[i] = call_of(groups[i], MOO_GROUP_ALLREDUCE, turn);
            queue(&calls[i]);
        }
        finish(calls, count);
        for (int i = 0; i < count; i++) {
            CHECK_OK(calls[i].outcome);
            CHECK(calls[i].value[0] == turn * count);
            CHECK(info_of(groups[i]).epoch == info_of(groups[0]).epoch);
        }
    }
}

static void leave_all(moo_group **groups, int count)
{
    for (int i = 0; i < count; i++)
        moo_group_leave(groups[i]);
}

static void a_call_that_finds_too_few_members_ends_for_all(void)
{
    struct ranks ranks = ranks_new(3, 3);
    moo_group *groups[3];
    struct call early, late;
    form(&ranks, groups, 3);
    moo_group_leave(groups[2]);
    CHECK(all_do(groups, 2, MOO_GROUP_BARRIER).status == MOO_EPEER);

    groups[0]->timeout = 0.05;
    early = call_of(groups[0], MOO_GROUP_ALLREDUCE, 100);
    queue(&early);
    finish(&early, 1); /* too late for the newcomer, and for the other */
    CHECK(early.outcome.status == MOO_ETIMEOUT);
    CHECK(strstr(early.outcome.text, "2 of the 3 members"));
    groups[0]->timeout = ranks.timeout;
    groups[2] = enter(&ranks);
    late = call_of(groups[1], MOO_GROUP_ALLREDUCE, 10000);
    queue(&late);
    finish(&late, 1);
    CHECK(late.outcome.status == MOO_ETIMEOUT);
    CHECK(strstr(late.outcome.text, "2 of the 3 members"));
    all_ready(&groups[2], 1);
    in_step(groups, 3);
    leave_all(groups, 3);
    ranks_free(&ranks);
}

/* Rank 2 of three ends a barrier and leaves, between the ends of it of the other
 * two. */
static void leave_between_two_ends(struct ranks *ranks, moo_group **groups)
{
    struct call calls[3];
    form(ranks, groups, 3);
    for (int i = 0; i < 3; i++) {
        calls[i] = call_of(groups[i], MOO_GROUP_BARRIER, 0);
        queue(&calls[i]);
        CHECK(step(&calls[i]) == (i == 2));
    }
    CHECK(step(&calls[0]));
    moo_work_free(calls[2].work);
    moo_group_leave(groups[2]);
    CHECK(step(&calls[1]));
    finish(calls, 2);
}

static void a_leave_is_seen_by_all_after_the_same_call(void)
{
    struct ranks ranks = ranks_new(3, 2);
    moo_group *groups[3];
    leave_between_two_ends(&ranks, groups);
    CHECK(info_of(groups[0]).epoch == info_of(groups[1]).epoch);
    CHECK(info_of(groups[0]).size == 3 && info_of(groups[1]).size == 3);
    in_step(groups, 2);
    CHECK(info_of(groups[0]).size == 2 && info_of(groups[1]).size == 2);
    leave_all(groups, 2);
    ranks_free(&ranks);
}

static void what_names_a_rank_tells_all_that_one_has_left(void)
{
    struct ranks ranks = ranks_new(3, 2);
    moo_group *groups[3];
    leave_between_two_ends(&ranks, groups);
    moo_outcome outcome = all_do(groups, 2, MOO_GROUP_BROADCAST);
    CHECK(outcome.status == MOO_EPEER && outcome.left && outcome.rank == 2);
    in_step(groups, 2);
    leave_all(groups, 2);
    ranks_free(&ranks);
}

static void queue_types(struct call *call, uint32_t parts)
{
    const void *in[2] = {call->value, call->single};
    void *out[2] = {call->value, call->single};
    uint64_t bytes[2] = {sizeof call->value, sizeof call->single};
    moo_request requests[2] = {
        {.kind = MOO_GROUP_ALLREDUCE, .dtype = MOO_DT_F64, .op = MOO_OP_SUM,
         .inputs = in, .outputs = out, .count = 1, .bytes = bytes},
        {.kind = MOO_GROUP_ALLREDUCE, .dtype = MOO_DT_F32, .op = MOO_OP_SUM,
         .inputs = in + 1, .outputs = out + 1, .count = 1,
         .bytes = bytes + 1}};
    CHECK(moo_group_submit(call->group, requests, parts, &call->work) ==
          MOO_OK);
}

static void a_call_of_several_types_counts_once(void)
{
    struct ranks ranks = ranks_new(2, 2);
    moo_group *groups[2];
    struct call calls[2];
    form(&ranks, groups, 2);
    for (uint32_t parts = 1; parts < 3; parts++) {
        for (int i = 0; i < 2; i++) {
            calls[i] = call_of(groups[i], MOO_GROUP_ALLREDUCE, 1);
            calls[i].single[1] = 2;
            queue_types(&calls[i], i ? 2 : parts);
        }
        finish(calls, 2);
        for (int i = 0; i < 2; i++) {
            CHECK(calls[i].outcome.status ==
                  (parts == 1 ? MOO_EMISMATCH : MOO_OK));
            CHECK(calls[i].value[0] == parts);      /* as it was, or summed */
            CHECK(calls[i].single[1] == 2 * (float)parts);
            CHECK(info_of(groups[i]).pending == 0);
        }
        in_step(groups, 2);
    }
    leave_all(groups, 2);
    ranks_free(&ranks);
}

/* One of two ends its first part, and leaves. */
static void who_leaves_within_a_call_ends_it_for_all(void)
{
    struct ranks ranks = ranks_new(3, 2);
    moo_group *groups[3];
    struct call calls[3];
    form(&ranks, groups, 3);
    for (int i = 0; i < 3; i++) {
        calls[i] = call_of(groups[i], MOO_GROUP_ALLREDUCE, 1);
        queue_types(&calls[i], 2);
    }
    while (info_of(groups[2]).pending == 2)
        for (int i = 0; i < 3; i++)
            step(&calls[i]);
    moo_group_leave(groups[2]);
    moo_work_free(calls[2].work);
    finish(calls, 2);
    for (int i = 0; i < 2; i++) {
        CHECK(calls[i].outcome.status == MOO_EPEER && calls[i].outcome.left);
        CHECK(calls[i].outcome.rank == 2);
    }
    in_step(groups, 2);
    leave_all(groups, 2);
    ranks_free(&ranks);
}

static void who_lives_is_not_dead_for_want_of_descriptors(void)
{
    int32_t parent = getppid();
    uint32_t start = mooi_start_time(parent);
    struct rlimit before, few;
    CHECK(start && !getrlimit(RLIMIT_NOFILE, &before));
    for (int spare = 0; spare < 4; spare++) {
        int next = dup(0);
        CHECK(next >= 0 && !close(next));
        few = (struct rlimit){(rlim_t)(next + spare), before.rlim_max};
        CHECK(!setrlimit(RLIMIT_NOFILE, &few));
        bool dead = mooi_process_dead(parent, start);
        CHECK(!setrlimit(RLIMIT_NOFILE, &before));
        CHECK(!dead);
    }
    CHECK(mooi_process_dead(parent, start + 1));
}

int main(void)
{
    static const uint32_t sizes[] = {1, 2, 3, 5};
    with_ranks(2, 2, 60, gather_and_scatter); /* a sanitizer's thread comes */
    int before = count_resources();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        run_all_cases(sizes[s]);
    run_odd_cases();
    CHECK_SOON(count_resources() == before);
    RUN(a_lock_taken_by_a_dead_process_is_taken_over);
    RUN(a_work_outlives_its_group);
    RUN(a_joiner_must_agree_on_the_segment);
    RUN(a_closed_group_refuses_everything);
    RUN(a_forked_child_may_not_use_the_group);
    RUN(a_call_that_finds_too_few_members_ends_for_all);
    RUN(a_leave_is_seen_by_all_after_the_same_call);
    RUN(what_names_a_rank_tells_all_that_one_has_left);
    RUN(a_call_of_several_types_counts_once);
    RUN(who_leaves_within_a_call_ends_it_for_all);
    RUN(who_lives_is_not_dead_for_want_of_descriptors);
    CHECK_SOON(count_resources() == before);
    return 0;
}
