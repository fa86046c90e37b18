/* SPDX-License-Identifier: MIT */
/*
 * Learner groups on one host. Deaths, which need processes, are in
 * test_collective_death.c.
 */
#include <sys/resource.h>

#include "collective/segment/segment.h"
#include "collective_cases.h"

/* ---- members of one thread ---- */

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

static moo_err join_with(struct ranks *ranks, int fd, uint32_t min_size,
                         double timeout, moo_group **group)
{
    return moo_group_join(fd,
                          moo_group_agent_bell(ranks->world->places[0].agent),
                          2, min_size, timeout, NULL, group);
}

static void a_joiner_must_agree_on_the_segment(void)
{
    struct ranks ranks = ranks_new(1, 1);
    moo_group *group = join(&ranks), *other;
    struct place *place = &ranks.world->places[0];
    int tiny = memfd_create("tiny", MFD_CLOEXEC);
    int empty = memfd_create("empty", MFD_CLOEXEC);
    CHECK(!ftruncate(empty, (off_t)moo_group_segment_bytes()));
    CHECK(join_with(&ranks, place->fd, 2, 60, &other) == MOO_OK);
    CHECK_SOON(moo_group_ready(other, 0.1) == MOO_EINVAL);
    moo_group_leave(other);
    CHECK(join_with(&ranks, place->fd, 0, 60, &other) == MOO_EINVAL);
    CHECK(join_with(&ranks, place->fd, 1, 0, &other) == MOO_EINVAL);
    CHECK(join_with(&ranks, tiny, 1, 60, &other) == MOO_EINVAL);
    CHECK(join_with(&ranks, empty, 1, 60, &other) == MOO_EINVAL);
    CHECK(join_with(&ranks, -1, 1, 60, &other) == MOO_ESYS);
    place->segment->version++;
    CHECK(join_with(&ranks, place->fd, 1, 60, &other) == MOO_EVERSION);
    place->segment->version--;
    moo_group_leave(group);
    close(tiny);
    close(empty);
    ranks_free(&ranks);
}

/* The verdict of each function but wait and free on the group. */
static int all_say(moo_group *group, moo_err what)
{
    moo_request request = {.kind = MOO_GROUP_BARRIER};
    moo_member members[MOO_GROUP_MAX];
    moo_group_info info;
    moo_outcome outcome;
    uint32_t size;
    moo_work *work;
    return moo_group_submit(group, &request, 1, &work) == what &&
           moo_group_ready(group, 0) == what &&
           moo_group_start(group) == what &&
           moo_group_describe(group, &info) == what &&
           moo_group_members(group, members, &size) == what &&
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

static bool process_dead(int32_t pid, uint32_t start)
{
    int pidfd = mooi_watch_open(pid, start);
    if (pidfd >= 0)
        close(pidfd);
    return pidfd == -1;
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
        bool dead = process_dead(parent, start);
        CHECK(!setrlimit(RLIMIT_NOFILE, &before));
        CHECK(!dead);
    }
    CHECK(process_dead(parent, start + 1));
}

/* Its parts are agreed on, and counted, as one. */
static void a_call_of_several_types_counts_once(moo_group *group, void *unused)
{
    double value[2] = {1, 1};
    float single[2] = {2, 2};
    const void *in[2] = {value, single};
    void *out[2] = {value, single};
    uint64_t bytes[2] = {sizeof value, sizeof single};
    moo_request requests[2] = {
        {.kind = MOO_GROUP_ALLREDUCE, .dtype = MOO_DT_F64, .op = MOO_OP_SUM,
         .inputs = in, .outputs = out, .count = 1, .bytes = bytes},
        {.kind = MOO_GROUP_ALLREDUCE, .dtype = MOO_DT_F32, .op = MOO_OP_SUM,
         .inputs = in + 1, .outputs = out + 1, .count = 1,
         .bytes = bytes + 1}};
    uint32_t rank = info_of(group).rank;
    moo_work *work;
    (void)unused;
    for (int both = 0; both < 2; both++) { /* at first one has a part only */
        CHECK(moo_group_submit(group, requests, rank || both ? 2 : 1, &work) ==
              MOO_OK);
        CHECK(finish_work(work).status == (both ? MOO_OK : MOO_EMISMATCH));
        CHECK(value[0] == (both ? 2 : 1)); /* summed, or as it was */
        CHECK(single[1] == (both ? 4 : 2));
        CHECK(info_of(group).pending == 0);
    }
    CHECK_OK(barrier(group));
}

int main(void)
{
    static const uint32_t sizes[] = {1, 2, 3, 5};
    with_ranks(2, 2, 60, gather_and_scatter); /* a sanitizer's thread comes */
    int before = count_resources();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        run_all_cases(sizes[s]);
    run_odd_cases();
    with_ranks(2, 2, 60, a_call_of_several_types_counts_once);
    CHECK_SOON(count_resources() == before);
    RUN(a_work_outlives_its_group);
    RUN(a_joiner_must_agree_on_the_segment);
    RUN(a_closed_group_refuses_everything);
    RUN(a_forked_child_may_not_use_the_group);
    RUN(who_lives_is_not_dead_for_want_of_descriptors);
    CHECK_SOON(count_resources() == before);
    return 0;
}
