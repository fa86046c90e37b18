/* SPDX-License-Identifier: MIT */
/*
 * Learner groups whose members are processes that get killed or stopped, at
 * random moments of random operations. In every case the survivors see
 * the same outcome of every operation, and go on together.
 *
 * They are on one host, on as many as there are members, and on two. The
 * arguments are the number of rounds, a seed, and "fabric".
 */
#include "collective_fixture.h"

enum { MEMBERS = 4, OPERATIONS = 1 << 15 };

/* The results that each process saw, written by it and read by the parent. */
struct record {
    _Atomic uint32_t done; /* operations */
    _Atomic uint32_t losses; /* of members, as it was told */
    int16_t status[OPERATIONS];
    int16_t rank[OPERATIONS];
    float first[OPERATIONS];
};

static void note(struct record *record, moo_outcome outcome, float first)
{
    uint32_t i = atomic_load(&record->done);
    record->status[i] = (int16_t)outcome.status;
    record->rank[i] = outcome.status ? (int16_t)outcome.rank : -1;
    record->first[i] = outcome.status ? 0 : first;
    atomic_store(&record->done, i + 1);
}

/* Wait until a process has done so many. */
static void await_done(const struct record *record, uint32_t count)
{
    CHECK_SOON(atomic_load(&record->done) >= count);
}

/* The same sequence of operations everywhere, small and large in turn, until
 * only one is left or `limit` are done. */
UNWATCHED static void work_on(struct ranks *ranks, struct record *record,
                              uint32_t limit)
{
    static const size_t sizes[] = {10, 3000, 70000, 1, 400000};
    moo_group *group = join_all(ranks);
    for (uint32_t i = 0; i < limit && info_of(group).size > 1; i++) {
        size_t n = sizes[i % 5];
        struct list list = list_new(1, &n, 4);
        for (size_t k = 0; k < n; k++)
            ((float *)list.data)[k] = 1;
        moo_outcome outcome = run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32,
                                  MOO_OP_SUM, 0, &list);
        float *x = list.data;
        note(record, outcome, x[0]);
        for (size_t k = 0; k < n && !outcome.status; k++)
            CHECK(x[k] == x[0]);
        list_free(&list);
    }
    moo_group_leave(group);
}

static pid_t start(struct ranks *ranks, struct record *record, uint32_t limit)
{
    pid_t pid = fork_rank(ranks);
    if (!pid) {
        work_on(ranks, record, limit);
        _exit(0);
    }
    ranks->joined++; /* the next one's host is another */
    return pid;
}

static struct record *records_new(void)
{
    void *start = mmap(NULL, MEMBERS * sizeof(struct record),
                       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                       0);
    CHECK(start != MAP_FAILED);
    return start;
}

static bool killed(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* `a` and `b` survived: they saw the same. */
static void check_same(const struct record *a, const struct record *b)
{
    uint32_t both = atomic_load(&a->done) < atomic_load(&b->done)
                        ? atomic_load(&a->done)
                        : atomic_load(&b->done);
    CHECK(both > 0);
    for (uint32_t i = 0; i < both; i++) {
        CHECK(a->status[i] == b->status[i]);
        CHECK(a->rank[i] == b->rank[i]);
        CHECK(a->first[i] == b->first[i]);
        CHECK(a->status[i] == MOO_OK || a->status[i] == MOO_EPEER);
    }
}

static uint32_t transports_used;

static void survivors_agree(unsigned *random, uint32_t hosts)
{
    struct ranks ranks = ranks_new(MEMBERS, 2);
    spread(&ranks, hosts);
    ranks.transports = transports_used;
    struct record *records = records_new();
    pid_t pids[MEMBERS];
    int status[MEMBERS];
    ranks.min_size = MEMBERS - 2;
    for (int i = 0; i < MEMBERS; i++)
        pids[i] = start(&ranks, &records[i], OPERATIONS);
    for (int i = 0; i < MEMBERS; i++)
        await_done(&records[i], 1);
    for (int victims = 0; victims < 2; victims++) {
        usleep((useconds_t)(rand_r(random) % 20000)); /* at any moment */
        kill(pids[victims], SIGKILL);
    }
    await_done(&records[3], atomic_load(&records[3].done) + 10);
    kill(pids[2], SIGKILL); /* and the last one is too lonely to go on */
    for (int i = 0; i < MEMBERS - 1; i++)
        CHECK(waitpid(pids[i], &status[i], 0) == pids[i]);
    kill(pids[3], SIGKILL);
    CHECK(waitpid(pids[3], &status[3], 0) == pids[3]);
    for (int i = 0; i < MEMBERS; i++)
        CHECK(killed(status[i]) || status[i] == 0);
    check_same(&records[2], &records[3]);
    munmap(records, MEMBERS * sizeof *records);
    ranks_free(&ranks);
}

static void a_stopped_member_is_waited_for(void)
{
    struct ranks ranks = ranks_new(3, 3);
    struct record *records = records_new();
    uint32_t before;
    pid_t pids[3];
    int status;
    for (int i = 0; i < 3; i++)
        pids[i] = start(&ranks, &records[i], 400);
    await_done(&records[0], 20);
    kill(pids[1], SIGSTOP);
    CHECK(waitpid(pids[1], &status, WUNTRACED) == pids[1]);
    usleep(400000); /* eight times as long as a sleeper sleeps */
    before = atomic_load(&records[0].done);
    CHECK(before <= atomic_load(&records[1].done) + 1 && before < 400);
    kill(pids[1], SIGCONT);
    for (int i = 0; i < 3; i++)
        CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(atomic_load(&records[i].done) == 400);
        for (int k = 0; k < 400; k++)
            CHECK(records[i].status[k] == MOO_OK && records[i].first[k] == 3);
    }
    munmap(records, MEMBERS * sizeof *records);
    ranks_free(&ranks);
}

/* Barriers for ever; after a loss, 50 more. */
static void meet_on(struct ranks *ranks, struct record *record)
{
    moo_group *group = join(ranks);
    for (uint32_t left = UINT32_MAX; left; left--) {
        moo_outcome outcome = barrier(group);
        if (atomic_load(&record->done) < OPERATIONS)
            note(record, outcome, 0);
        if (outcome.status == MOO_EPEER) {
            left = 51;
            atomic_fetch_add(&record->losses, 1);
        }
    }
    moo_group_leave(group);
}

static void below_min_size_a_group_waits_for_a_newcomer(void)
{
    struct ranks ranks = ranks_new(2, 2);
    struct record *records = records_new();
    pid_t pids[2];
    int status;
    for (int i = 0; i < 2; i++)
        if (!(pids[i] = fork_rank(&ranks))) {
            meet_on(&ranks, &records[i]);
            _exit(0);
        }
    await_done(&records[0], 20);
    kill(pids[1], SIGKILL);
    CHECK(waitpid(pids[1], &status, 0) == pids[1]);
    moo_group *group = join(&ranks); /* the parent itself */
    moo_outcome outcome = {0};
    if (info_of(group).size == 3) { /* a barrier that the dead one had begun */
        outcome = barrier(group);   /* let the parent in, which is told, too */
        CHECK(outcome.status == MOO_EPEER && outcome.rank == 1);
        CHECK(outcome.pid == pids[1] && !outcome.left);
        outcome.status = MOO_OK;
    }
    CHECK(info_of(group).size == 2);
    int together = 0;
    for (; !outcome.status && together < 1000; together += !outcome.status)
        outcome = barrier(group);
    CHECK(together == 50 && outcome.status == MOO_EPEER && outcome.left);
    CHECK(atomic_load(&records[0].losses) == 1);
    moo_group_leave(group);
    CHECK(waitpid(pids[0], &status, 0) == pids[0] && status == 0);
    munmap(records, MEMBERS * sizeof *records);
    ranks_free(&ranks);
}

static void when_all_have_died_newcomers_start_afresh(void)
{
    struct ranks ranks = ranks_new(2, 2);
    struct record *records = records_new();
    pid_t pids[2];
    int status;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            atomic_store(&records[i].done, 0);
            pids[i] = start(&ranks, &records[i], OPERATIONS);
        }
        await_done(&records[0], 20);
        for (int i = 0; i < 2; i++)
            kill(pids[i], SIGKILL);
        for (int i = 0; i < 2; i++)
            CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK(records[0].status[19] == MOO_OK);
    }
    munmap(records, MEMBERS * sizeof *records);
    ranks_free(&ranks);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    unsigned random = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    if (argc > 3 && !strcmp(argv[3], "fabric")) { /* one that stands in */
        setenv("MOOACTOR_FABRIC", "tcp;ofi_rxm", 1);
        transports_used = MOO_TRANSPORT_OFI;
    }
    alarm(rounds < 20 ? ALARM_S : 0); /* a hang is a failure */
    a_stopped_member_is_waited_for();
    below_min_size_a_group_waits_for_a_newcomer();
    when_all_have_died_newcomers_start_afresh();
    for (int round = 0; round < rounds; round++) {
        survivors_agree(&random, 0);
        survivors_agree(&random, MEMBERS);     /* a ring of all */
        survivors_agree(&random, MEMBERS / 2); /* of two pairs */
    }
    return 0;
}
