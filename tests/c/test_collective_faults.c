/* SPDX-License-Identifier: MIT */
/*
 * Learner groups with a member that dies at each point of the protocol
 * (fault.h): as it joins, in an operation, as it commits it, rests behind it, or
 * leaves. The others see the same outcome of every operation, learn that it is
 * gone, and go on. All this on one host, and on as many as there are members;
 * in a group that finishes what has begun, no operation fails. There are two
 * others. Then some kills at random: of any of two to six members, on one to
 * three hosts, at any point or moment, with or without a newcomer.
 *
 *   test_collective_faults OTHERS              as many others as that, from one on
 *   test_collective_faults random KILLS [SEED] so many at random, and nothing else
 */
#include "collective/fault.h"
#include "collective_fixture.h"
#include "draw.h"

enum { MOST = 8, OPERATIONS = 1 << 20, AFTER = 12 };

/* By the number with which a call ended. */
struct record {
    _Atomic int32_t pid;
    _Atomic uint32_t done, size; /* size: of the group, as it sees it */
    _Atomic uint64_t last; /* number */
    uint8_t ended[OPERATIONS];
    int16_t status[OPERATIONS], rank[OPERATIONS];
    float first[OPERATIONS];
};

enum when { JOINS, WORKS, RESTS, LEAVES_IT, SHARES, RINGS };

static const struct {
    const char *name;
    enum when when;
} points[] = {
    {"claimed", JOINS}, {"knocking", JOINS}, {"knocked", JOINS},
    {"acknowledging", JOINS}, {"acknowledged", JOINS}, {"putting", WORKS},
    {"put", WORKS}, {"reducing", SHARES}, {"reduced", SHARES},
    {"copying", WORKS}, {"copied", WORKS}, {"committing", SHARES},
    {"committed", SHARES}, {"resting", RESTS}, {"leaving", LEAVES_IT},
    {"left", LEAVES_IT}, {"ringing", RINGS}, {"ringed", RINGS},
    {"calling", RINGS}, {"called", RINGS}, {"entering", RINGS},
    {"entered", RINGS}, {"everywhere", RINGS}};
enum { POINTS = sizeof points / sizeof *points };

static struct record *records; /* of all members, MOST of them */
static struct record *own;
static const char *dies_at;
static int hits_left;
static bool at_random;

static void die_there(const char *point)
{
    if (!strcmp(point, dies_at) && --hits_left == 0)
        kill(getpid(), SIGKILL);
}

/* Each one's input is another power of two, so a sum names its members. */
static float input_of(const struct record *record)
{
    return (float)(1u << (record - records));
}

static float sum_of(const moo_member *members, uint32_t count)
{
    float sum = 0;
    for (uint32_t i = 0; i < count; i++)
        for (int one = 0; one < MOST; one++)
            if (atomic_load(&records[one].pid) == members[i].pid)
                sum += input_of(&records[one]);
    return sum;
}

/* Small, large and nothing in turn: the same for all members. */
static moo_outcome operate(moo_group *group, float *first)
{
    static const size_t sizes[] = {10, 70000};
    uint64_t turn = group->seq % 3;
    if (turn == 2)
        return barrier(group);
    struct list list = list_new(1, &sizes[turn], 4);
    moo_member members[MOST];
    moo_outcome outcome;
    uint32_t count;
    for (size_t i = 0; i < list.elements; i++)
        ((float *)list.data)[i] = input_of(own);
    moo_work *work =
        submit(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0, &list);
    while (moo_work_wait(work, 10, &outcome) == MOO_ETIMEOUT)
        ;
    moo_work_members(work, members, &count);
    moo_work_free(work);
    *first = *(float *)list.data;
    CHECK(outcome.status || *first == sum_of(members, count));
    for (size_t i = 0; i < list.elements && !outcome.status; i++)
        CHECK(((float *)list.data)[i] == *first);
    list_free(&list);
    return outcome;
}

/* A call chosen while the group had too few members, and waited for one that
 * came, is not the one that it chooses: once, as the next has the same number for
 * all. */
static bool may_differ(void)
{
    static int times;
    return at_random && times++ < MOST;
}

static void work_on(moo_group *group, struct record *record, uint32_t calls)
{
    while (calls-- && group->seq + 2 < OPERATIONS) {
        float first = 0;
        uint32_t size = info_of(group).size;
        moo_outcome outcome = operate(group, &first);
        uint64_t seq = group->seq;
        bool differs = outcome.status == (int)MOO_EMISMATCH;
        bool lost = outcome.status == MOO_EPEER;
        bool may_fail = !group->finishes || size <= group->min_size;
        if (differs ? !may_differ() : !lost || !may_fail)
            CHECK_OK(outcome);
        record->ended[seq] = 1;
        record->status[seq] = (int16_t)outcome.status;
        record->rank[seq] = outcome.status && !differs ? (int16_t)outcome.rank : -1;
        record->first[seq] = outcome.status ? 0 : first;
        atomic_store(&record->last, seq);
        atomic_store(&record->size, info_of(group).size);
        atomic_fetch_add(&record->done, 1);
    }
}

/* `point`: at which it dies, when it has been there `hits` times; -1: at none. */
static pid_t start(struct ranks *ranks, struct record *record, int point,
                   int hits)
{
    pid_t pid = fork_rank(ranks);
    if (pid) {
        ranks->joined++; /* the next one's host is another */
        return pid;
    }
    own = record;
    atomic_store(&own->pid, getpid());
    if (point >= 0) {
        dies_at = points[point].name;
        hits_left = hits;
        mooi_fault = die_there;
    }
    moo_group *group = join(ranks);
    work_on(group, record,
            point >= 0 && points[point].when == LEAVES_IT ? 5 : UINT32_MAX);
    moo_group_leave(group);
    _exit(0);
}

/* Beyond its last one a record may be half written: its member was killed. */
static void check_same(const struct record *a, const struct record *b)
{
    uint64_t last_a = atomic_load(&a->last), last_b = atomic_load(&b->last);
    for (uint64_t i = 0; i <= (last_a < last_b ? last_a : last_b); i++) {
        if (!a->ended[i] || !b->ended[i])
            continue;
        CHECK(a->status[i] == b->status[i]);
        CHECK(a->rank[i] == b->rank[i]);
        CHECK(a->first[i] == b->first[i]);
    }
}

static void new_records(void)
{
    records = mmap(NULL, MOST * sizeof *records, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(records != MAP_FAILED);
}

/* Kill them. All that anybody has seen of an operation is the same. */
static void end_and_compare(const pid_t *pids, uint32_t count, uint32_t dead)
{
    int status;
    for (uint32_t i = 0; i < count; i++)
        if (i != dead)
            CHECK(!kill(pids[i], SIGKILL));
    for (uint32_t i = 0; i < count; i++)
        if (i != dead) {
            CHECK(waitpid(pids[i], &status, 0) == pids[i]);
            CHECK(WIFSIGNALED(status));
        }
    for (uint32_t i = 0; i < MOST; i++)
        for (uint32_t k = 0; k < i; k++)
            check_same(&records[i], &records[k]);
    munmap(records, MOST * sizeof *records);
}

/* The first `count`, but for one, have done some more, and are as many as they
 * should be. */
static void await_others(uint32_t count, uint32_t but, uint32_t size)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i == but)
            continue;
        CHECK_SOON(atomic_load(&records[i].size) == size);
        uint32_t seen = atomic_load(&records[i].done);
        CHECK_SOON(atomic_load(&records[i].done) > seen + AFTER);
    }
}

/* `others` members, and one that dies; where it rests a newcomer has come, who
 * is then one of them. */
static void a_member_dies(int point, uint32_t others, bool apart,
                          bool finishes)
{
    enum when when = points[point].when;
    struct ranks ranks = ranks_new(others, others);
    pid_t pids[MOST], dead;
    uint32_t count = others;
    int status, hits = when == WORKS || when >= SHARES ? 3 : 1;
    new_records();
    spread(&ranks, apart ? others + 1 : 0); /* so each leads one */
    ranks.finishes = finishes;
    for (uint32_t i = 0; i < others; i++)
        pids[i] = start(&ranks, &records[i], -1, 0);
    await_others(others, MOST, others);
    dead = start(&ranks, &records[MOST - 1], point, hits);
    if (when == RESTS) {
        await_others(others, MOST, others + 1);
        pids[count] = start(&ranks, &records[count], -1, 0);
        count++;
    }
    CHECK(waitpid(dead, &status, 0) == dead);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    await_others(count, MOST, count);
    end_and_compare(pids, count, MOST);
    ranks_free(&ranks);
}

/* ---- at random ---- */

/* Until it has died, or left, by itself; or, if it has not when another has done
 * so many operations, it is killed. */
static void await_end(pid_t pid, const struct record *another, uint32_t most)
{
    int status;
    pid_t ended;
    while (!(ended = waitpid(pid, &status, WNOHANG)) &&
           atomic_load(&another->done) < most)
        usleep(100);
    if (!ended) {
        CHECK(!kill(pid, SIGKILL));
        CHECK(waitpid(pid, &status, 0) == pid);
    }
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL
                              : WEXITSTATUS(status) == 0);
}

static void random_kill(uint64_t seed)
{
    draw_from(seed);
    uint32_t size = 2 + draw(5), hosts = 1 + draw(3), victim = draw(size);
    uint32_t newcomers = draw(3) == 0, another = victim ? 0 : 1;
    struct ranks ranks = ranks_new(size, 1 + draw(size - 1));
    int point = (int)draw(POINTS), hits = 1;
    pid_t pids[MOST];
    new_records();
    spread(&ranks, hosts);
    ranks.finishes = draw(2);
    if (points[point].when == WORKS || points[point].when >= SHARES)
        hits += (int)draw(20);
    if (getenv("TELL_POINTS"))
        fprintf(stderr, "%llu: %u of %u (%u needed) on %u hosts, %s %d, %s%s\n",
                (unsigned long long)seed, victim, size, ranks.min_size, hosts,
                points[point].name, hits,
                ranks.finishes ? "finishes" : "raises",
                newcomers ? ", a newcomer" : "");
    for (uint32_t i = 0; i < size; i++)
        pids[i] = start(&ranks, &records[i], i == victim ? point : -1, hits);
    if (newcomers)
        pids[size] = start(&ranks, &records[size], -1, 0);
    await_end(pids[victim], &records[another], 1 + draw(60));
    await_others(size + newcomers, victim, size + newcomers - 1);
    end_and_compare(pids, size + newcomers, victim);
    ranks_free(&ranks);
}

static void random_kills(uint64_t count, uint64_t seed)
{
    at_random = true;
    for (uint64_t i = 0; i < count; i++) {
        alarm(ALARM_S); /* a hang is a failure */
        random_kill(seed + i);
    }
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        random_kills(strtoull(argv[2], NULL, 10),
                     argc > 3 ? strtoull(argv[3], NULL, 10) : 0);
        return 0;
    }
    uint32_t least = argc > 1 ? 1 : 2;
    uint32_t most = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
    for (uint32_t others = least; others <= most && others + 2 < MOST; others++)
        for (int point = 0; point < POINTS; point++)
            for (int apart = 0; apart < 2; apart++)
                for (int finishes = 0; finishes < 2; finishes++) {
                    if (points[point].when == (apart ? SHARES : RINGS))
                        continue;
                    alarm(ALARM_S); /* a hang is a failure */
                    if (getenv("TELL_POINTS"))
                        fprintf(stderr, "%s, %u others, %s, %s\n",
                                points[point].name, others,
                                apart ? "apart" : "together",
                                finishes ? "finishes" : "raises");
                    a_member_dies(point, others, apart, finishes);
                }
    random_kills(20, 0);
    return 0;
}
