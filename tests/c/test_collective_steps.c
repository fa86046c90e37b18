/* SPDX-License-Identifier: MIT */
/*
 * Members of a learner group stay in step: no call of one is ever reduced with
 * another call of another, and what each sees of the group between two calls
 * is the same for all.
 *
 * All members are groups of one thread, which runs them in slices of no time,
 * so that every case happens in one order only.
 */
#include "collective_fixture.h"

#include <signal.h>
#include <sys/resource.h>

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

/* ---- too few members ---- */

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

static void a_group_of_too_few_is_given_up_by_its_own_thread(void)
{
    struct ranks ranks = ranks_new(2, 2);
    moo_group *groups[2];
    moo_outcome outcome;
    moo_request request = {.kind = MOO_GROUP_BARRIER};
    moo_work *work;
    form(&ranks, groups, 2);
    moo_group_leave(groups[1]);
    CHECK(all_do(groups, 1, MOO_GROUP_BARRIER).status == MOO_EPEER);
    groups[0]->timeout = 0.05;
    CHECK(moo_group_start(groups[0]) == MOO_OK);
    CHECK(moo_group_submit(groups[0], &request, 1, &work) == MOO_OK);
    CHECK(moo_work_wait(work, 60, &outcome) == MOO_OK);
    CHECK(outcome.status == MOO_ETIMEOUT);
    moo_work_free(work);
    moo_group_leave(groups[0]);
    ranks_free(&ranks);
}

/* ---- leaves ---- */

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

/* One of which is told of the leave, and the other simply goes on. */
static void different_calls_at_a_leave_are_a_mismatch(void)
{
    struct ranks ranks = ranks_new(3, 2);
    moo_group *groups[3];
    struct call calls[2];
    leave_between_two_ends(&ranks, groups);
    calls[0] = call_of(groups[0], MOO_GROUP_ALLREDUCE, 10);
    calls[1] = call_of(groups[1], MOO_GROUP_BROADCAST, 10);
    for (int i = 0; i < 2; i++)
        queue(&calls[i]);
    finish(calls, 2);
    for (int i = 0; i < 2; i++)
        CHECK(calls[i].outcome.status == MOO_EMISMATCH);
    in_step(groups, 2);
    leave_all(groups, 2);
    ranks_free(&ranks);
}

/* Who lets newcomers in and leaves at once is not missed in the view between. */
static void who_is_slow_sees_the_view_that_has_passed(void)
{
    struct ranks ranks = ranks_new(3, 2);
    moo_group *groups[4];
    struct call calls[3];
    form(&ranks, groups, 3);
    groups[3] = enter(&ranks); /* to be let in */
    for (int i = 0; i < 3; i++) {
        calls[i] = call_of(groups[i], MOO_GROUP_BARRIER, 0);
        queue(&calls[i]);
        CHECK(step(&calls[i]) == (i == 2));
    }
    CHECK(step(&calls[0]));
    moo_work_free(calls[2].work);
    moo_group_leave(groups[2]);
    finish(calls, 2);
    CHECK(info_of(groups[0]).epoch == info_of(groups[1]).epoch);
    CHECK(info_of(groups[0]).size == 4 && info_of(groups[1]).size == 4);
    groups[2] = groups[3];
    all_ready(&groups[2], 1);
    in_step(groups, 3);
    leave_all(groups, 3);
    ranks_free(&ranks);
}

/* Its first call is one that the others begin again, to be told of the leave. */
static void who_was_let_in_is_told_of_a_leave_since(void)
{
    struct ranks ranks = ranks_new(3, 2);
    moo_group *groups[4];
    form(&ranks, groups, 3);
    groups[3] = enter(&ranks);
    CHECK_OK(all_do(groups, 3, MOO_GROUP_BARRIER)); /* which lets it in */
    moo_group_leave(groups[2]);
    groups[2] = groups[3];
    all_ready(&groups[2], 1);
    moo_outcome outcome = all_do(groups, 3, MOO_GROUP_BROADCAST);
    CHECK(outcome.status == MOO_EPEER && outcome.left && outcome.rank == 2);
    in_step(groups, 3);
    leave_all(groups, 3);
    ranks_free(&ranks);
}

/* ---- deaths ---- */

/* A member that begins two barriers, the second of which it cannot end. */
static void begin_and_wait(struct ranks *ranks, int told)
{
    moo_group *group = enter(ranks);
    struct call call;
    all_ready(&group, 1);
    CHECK_OK(all_do(&group, 1, MOO_GROUP_BARRIER));
    call = call_of(group, MOO_GROUP_BARRIER, 0);
    queue(&call);
    CHECK(!step(&call));
    CHECK(write(told, "", 1) == 1);
    for (;;)
        pause();
}

static void who_dies_after_a_barrier_that_lets_others_in_is_told_of(void)
{
    struct ranks ranks = ranks_new(2, 2);
    moo_group *groups[2];
    int ends[2];
    char byte;
    CHECK(!pipe(ends));
    groups[0] = enter(&ranks);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid)
        begin_and_wait(&ranks, ends[1]);
    all_ready(groups, 1);
    CHECK_OK(all_do(groups, 1, MOO_GROUP_BARRIER));
    CHECK(read(ends[0], &byte, 1) == 1);
    groups[1] = enter(&ranks);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK_OK(all_do(groups, 1, MOO_GROUP_BARRIER)); /* it had begun it, too */
    CHECK(info_of(groups[0]).size == 3);
    all_ready(&groups[1], 1);
    moo_outcome outcome = all_do(groups, 2, MOO_GROUP_BARRIER);
    CHECK(outcome.status == MOO_EPEER && outcome.pid == pid && !outcome.left);
    in_step(groups, 2);
    leave_all(groups, 2);
    close(ends[0]);
    close(ends[1]);
    ranks_free(&ranks);
}

/* ---- calls of several types ---- */

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

/* ---- what a death may interrupt ---- */

static moo_group *enter_from(struct ranks *ranks, const char *host)
{
    moo_group_options options = {.host = host, .checksum = 1,
                                 .transports = MOO_TRANSPORT_TCP};
    moo_group *group;
    CHECK(mooi_join_at(ranks->segment, 1, ranks->min_size, ranks->timeout,
                       &options, &group) == MOO_OK);
    return group;
}

static atomic_bool watching;

/* A counter that goes back is not reached for whoever waits for it then; and if
 * its member dies there, never. */
static void *watch_counters(void *group)
{
    uint64_t seen[2] = {0}, now;
    while (atomic_load(&watching))
        for (uint32_t rank = 0; rank < 2; rank++) {
            now = mooi_counter_of(group, rank, RINGED);
            CHECK(now >= seen[rank]);
            seen[rank] = now;
        }
    return NULL;
}

static void counters_only_grow(void)
{
    struct ranks ranks = ranks_new(3, 3);
    const char *hosts[3] = {"a", "b", "c"};
    moo_group *groups[3];
    struct call calls[3];
    pthread_t watcher;
    for (int i = 0; i < 3; i++)
        groups[i] = enter_from(&ranks, hosts[i]);
    all_ready(groups, 3);
    for (int i = 0; i < 3; i++) {
        calls[i] = call_of(groups[i], MOO_GROUP_ALLREDUCE, 1);
        queue(&calls[i]);
    }
    uint64_t last = ((uint64_t)groups[0]->view.first_seq << STEP_BITS) + STEP_LAST;
    atomic_store(&watching, true);
    CHECK(!pthread_create(&watcher, NULL, watch_counters, groups[2]));
    while (mooi_counter_of(groups[2], 0, RINGED) < last ||
           mooi_counter_of(groups[2], 1, RINGED) < last) {
        if (mooi_counter_of(groups[2], 2, RINGED) < last - 1)
            step(&calls[2]); /* first, so it finds no other there yet */
        step(&calls[0]);
        step(&calls[1]);
    }
    /* they wait for the third one; a turn yields, which may take long */
    double end = mooi_now() + 5;
    for (int turn = 0; turn < 20000 && mooi_now() < end; turn++)
        CHECK(!step(&calls[turn % 2]));
    atomic_store(&watching, false);
    pthread_join(watcher, NULL);
    finish(calls, 3);
    CHECK(calls[0].value[0] == 3);
    leave_all(groups, 3);
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
    who_lives_is_not_dead_for_want_of_descriptors();
    counters_only_grow();
    a_call_that_finds_too_few_members_ends_for_all();
    a_group_of_too_few_is_given_up_by_its_own_thread();
    a_leave_is_seen_by_all_after_the_same_call();
    what_names_a_rank_tells_all_that_one_has_left();
    different_calls_at_a_leave_are_a_mismatch();
    who_is_slow_sees_the_view_that_has_passed();
    who_was_let_in_is_told_of_a_leave_since();
    who_dies_after_a_barrier_that_lets_others_in_is_told_of();
    a_call_of_several_types_counts_once();
    who_leaves_within_a_call_ends_it_for_all();
    puts("test_collective_steps: ok");
    return 0;
}
