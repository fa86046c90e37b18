/* SPDX-License-Identifier: MIT */
/*
 * Learner groups with a member that dies at each point of the protocol
 * (fault.h): as it joins, in an operation, as it commits it, rests behind it, or
 * leaves. The others see the same outcome of every operation, learn that it is
 * gone, and go on. All this on one host, and on as many as there are members;
 * in a group that finishes what has begun, no operation fails. There are two
 * others; an argument: as many as that, from one on.
 */
#include "collective/fault.h"
#include "collective_fixture.h"

enum { MOST = 8, OPERATIONS = 1 << 20, AFTER = 12 };

/* By the number with which a call ended. */
struct record {
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

static const char *dies_at;
static int hits_left;

static void die_there(const char *point)
{
    if (!strcmp(point, dies_at) && --hits_left == 0)
        kill(getpid(), SIGKILL);
}

/* Small, large and nothing in turn: the same for all members. */
static moo_outcome operate(moo_group *group, float *first)
{
    static const size_t sizes[] = {10, 70000};
    uint64_t turn = group->seq % 3;
    if (turn == 2)
        return barrier(group);
    struct list list = list_new(1, &sizes[turn], 4);
    uint32_t took_part;
    for (size_t i = 0; i < list.elements; i++)
        ((float *)list.data)[i] = 1;
    moo_outcome outcome = finish_and_count(
        submit(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0, &list),
        &took_part);
    *first = *(float *)list.data;
    CHECK(outcome.status || *first == (float)took_part);
    for (size_t i = 0; i < list.elements && !outcome.status; i++)
        CHECK(((float *)list.data)[i] == *first);
    list_free(&list);
    return outcome;
}

static void work_on(moo_group *group, struct record *record, uint32_t calls)
{
    while (calls-- && group->seq + 2 < OPERATIONS) {
        float first = 0;
        moo_outcome outcome = operate(group, &first);
        uint64_t seq = group->seq;
        CHECK(outcome.status == MOO_OK ||
              (outcome.status == MOO_EPEER && !group->finishes));
        record->ended[seq] = 1;
        record->status[seq] = (int16_t)outcome.status;
        record->rank[seq] = outcome.status ? (int16_t)outcome.rank : -1;
        record->first[seq] = outcome.status ? 0 : first;
        atomic_store(&record->last, seq);
        atomic_store(&record->size, info_of(group).size);
        atomic_fetch_add(&record->done, 1);
    }
}

static pid_t start(struct ranks *ranks, struct record *record, int point)
{
    pid_t pid = fork_rank(ranks);
    if (pid) {
        ranks->joined++; /* the next one's host is another */
        return pid;
    }
    if (point >= 0) {
        enum when when = points[point].when;
        dies_at = points[point].name;
        hits_left = when == WORKS || when >= SHARES ? 3 : 1;
        mooi_fault = die_there;
    }
    moo_group *group = join(ranks);
    work_on(group, record,
            point >= 0 && points[point].when == LEAVES_IT ? 5 : UINT32_MAX);
    moo_group_leave(group);
    _exit(0);
}

static void check_same(const struct record *a, const struct record *b)
{
    for (uint64_t i = 0; i <= atomic_load(&a->last); i++) {
        if (!a->ended[i] || !b->ended[i])
            continue;
        CHECK(a->status[i] == b->status[i]);
        CHECK(a->rank[i] == b->rank[i]);
        CHECK(a->first[i] == b->first[i]);
    }
}

/* They have done some more, and are as many as they should be. */
static void await_others(struct record *records, uint32_t count, uint32_t size)
{
    for (uint32_t i = 0; i < count; i++) {
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
    struct record *records =
        mmap(NULL, MOST * sizeof *records, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pid_t pids[MOST], dead;
    uint32_t count = others;
    int status;
    CHECK(records != MAP_FAILED);
    spread(&ranks, apart ? others + 1 : 0); /* so each leads one */
    ranks.finishes = finishes;
    for (uint32_t i = 0; i < others; i++)
        pids[i] = start(&ranks, &records[i], -1);
    await_others(records, others, others);
    dead = start(&ranks, &records[MOST - 1], point);
    if (when == RESTS) {
        await_others(records, others, others + 1);
        pids[count] = start(&ranks, &records[count], -1);
        count++;
    }
    CHECK(waitpid(dead, &status, 0) == dead);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    await_others(records, count, count);
    for (uint32_t i = 0; i < count; i++)
        CHECK(!kill(pids[i], SIGKILL));
    for (uint32_t i = 0; i < count; i++) {
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK(WIFSIGNALED(status));
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            check_same(&records[i], &records[k]);
    check_same(&records[0], &records[MOST - 1]); /* the dead one, too */
    munmap(records, MOST * sizeof *records);
    ranks_free(&ranks);
}

int main(int argc, char **argv)
{
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
    return 0;
}
