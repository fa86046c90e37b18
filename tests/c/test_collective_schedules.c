/* SPDX-License-Identifier: MIT */
/*
 * The loop that the docstring of LearnerGroup shows, run by members that come and
 * leave at random moments: between any two of their calls, within one, before they
 * were let in or have seen that they were. In every order of events, all
 * members have reduced the same call, and nobody takes older bytes for weights.
 *
 * All members are groups of one thread, which runs them in slices of no time, in an
 * order drawn from a seed. ./test_collective_schedules SEED plays one again.
 */
#include "collective_fixture.h"

enum { MOST = 5, LEAST = 2, EVENTS = 3000 };
enum phase { BROADCAST, ALLREDUCE, BARRIER };

/* Enough for several rounds of the pipeline. */
#define ELEMENTS 9000

struct member {
    moo_group *group; /* NULL: nobody */
    bool formed;
    enum phase phase;
    moo_work *work; /* under way, or NULL */
    uint32_t epoch; /* for which it has the weights; 0: for none */
    double weights[2], gradients[ELEMENTS];
};

struct schedule {
    uint32_t seed;
    uint64_t state, steps;
    bool hosts; /* the members pretend to be on two */
    struct ranks ranks;
    struct member members[MOST];
};

/* In place of libc's: the members that could go on meanwhile are of this thread, and
 * on a busy machine each yield would cost a slice of time. */
int sched_yield(void)
{
    return 0;
}

#define HOLDS(schedule, what) \
    do { \
        if (!(what)) \
            fprintf(stderr, "schedule %u:\n", (unsigned)(schedule)->seed); \
        CHECK(what); \
    } while (0)

/* xorshift64*, Vigna 2016: a number below `limit`. */
static uint32_t draw(struct schedule *schedule, uint32_t limit)
{
    uint64_t x = schedule->state;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    schedule->state = x;
    return (uint32_t)((x * 0x2545f4914f6cdd1dull) >> 33) % limit;
}

static int count_members(const struct schedule *schedule)
{
    int count = 0;
    for (int i = 0; i < MOST; i++)
        count += schedule->members[i].group != NULL;
    return count;
}

static void come(struct schedule *schedule, struct member *member)
{
    moo_group_options options = {
        .transports = MOO_TRANSPORT_SHM | MOO_TRANSPORT_TCP};
    uint32_t place = schedule->hosts ? draw(schedule, 2) : 0;
    memset(member, 0, sizeof *member);
    CHECK(join_at(&schedule->ranks, place, &options, &member->group) ==
          MOO_OK);
}

static void leave(struct schedule *schedule, struct member *member)
{
    moo_group_leave(member->group);
    world_look(schedule->ranks.world);
    if (member->work)
        moo_work_free(member->work);
    member->group = NULL;
}

static void call(struct schedule *schedule, struct member *member)
{
    void *out[1] = {member->weights};
    uint64_t bytes[1] = {sizeof member->weights};
    moo_request request = {.kind = MOO_GROUP_BROADCAST, .dtype = MOO_DT_F64,
                           .op = MOO_OP_MEAN, .outputs = out, .bytes = bytes,
                           .inputs = (const void **)out, .count = 1};
    if (member->phase == BROADCAST &&
        info_of(member->group).epoch == member->epoch)
        member->phase = ALLREDUCE;
    if (member->phase == ALLREDUCE) {
        HOLDS(schedule, member->weights[0] == member->weights[1]);
        for (int i = 0; i < ELEMENTS; i++)
            member->gradients[i] = member->weights[0] + 1;
        request.kind = MOO_GROUP_ALLREDUCE;
        out[0] = member->gradients;
        bytes[0] = sizeof member->gradients;
    }
    if (member->phase == BARRIER)
        request = (moo_request){.kind = MOO_GROUP_BARRIER};
    CHECK(moo_group_submit(member->group, &request, 1, &member->work) ==
          MOO_OK);
}

static void take_result(struct schedule *schedule, struct member *member)
{
    switch (member->phase) {
    case BROADCAST:
        member->epoch = info_of(member->group).epoch;
        HOLDS(schedule, member->weights[0] == member->weights[1]);
        member->phase = ALLREDUCE;
        return;
    case ALLREDUCE:
        for (int i = 0; i < ELEMENTS; i++)
            HOLDS(schedule, member->gradients[i] == member->weights[0] + 1);
        member->weights[0] = ++member->weights[1];
        member->phase = BARRIER;
        schedule->steps++;
        return;
    default:
        member->phase = BROADCAST;
    }
}

/* A slice of no time. */
static void step(struct schedule *schedule, struct member *member)
{
    moo_outcome outcome;
    if (!member->formed) {
        member->formed = moo_group_ready(member->group, 0) == MOO_OK;
        return;
    }
    if (!member->work)
        call(schedule, member);
    if (moo_work_wait(member->work, 0, &outcome) != MOO_OK)
        return;
    moo_work_free(member->work);
    member->work = NULL;
    if (outcome.status == MOO_OK) {
        take_result(schedule, member);
        return;
    }
    if (outcome.status != MOO_EPEER || !outcome.left)
        fprintf(stderr, "schedule %u:\n", (unsigned)schedule->seed),
            check_ok(outcome, __FILE__, __LINE__);
    member->phase = BROADCAST;
}

/* Somebody comes or leaves; how often differs from schedule to schedule. */
static void event(struct schedule *schedule)
{
    struct member *member = &schedule->members[draw(schedule, MOST)];
    if (!member->group)
        come(schedule, member);
    else if (count_members(schedule) > LEAST)
        leave(schedule, member);
}

static uint64_t play(uint32_t seed, bool hosts)
{
    struct schedule schedule = {.seed = seed, .hosts = hosts,
                                .state = 0x9e3779b97f4a7c15ull * (seed + 1)};
    schedule.ranks = ranks_alone(LEAST, LEAST);
    spread(&schedule.ranks, hosts ? 2 : 1);
    uint32_t between = 1 + draw(&schedule, 200);
    while (count_members(&schedule) < LEAST)
        event(&schedule);
    for (int i = 0; i < EVENTS; i++) {
        if (!draw(&schedule, between))
            event(&schedule);
        struct member *member = &schedule.members[draw(&schedule, MOST)];
        if (draw(&schedule, 2))
            world_look(schedule.ranks.world);
        /* bursts, so that one gets ahead and another falls behind */
        for (uint32_t n = draw(&schedule, 8); n && member->group; n--)
            step(&schedule, member);
    }
    for (int i = 0; i < MOST; i++)
        if (schedule.members[i].group)
            leave(&schedule, &schedule.members[i]);
    ranks_free(&schedule.ranks);
    return schedule.steps;
}

int main(int argc, char **argv)
{
    uint32_t from = argc > 1 ? (uint32_t)atoi(argv[1]) : 0;
    uint32_t to = argc > 1 ? from + 1 : 60;
    uint64_t steps = 0;
    for (uint32_t seed = from; seed < to; seed++)
        steps += play(seed, seed % 4 == 3);
    CHECK(argc > 1 || steps > 50 * to);
    printf("test_collective_schedules: ok, %llu steps\n",
           (unsigned long long)steps);
    return 0;
}
