/* SPDX-License-Identifier: MIT */
/*
 * The duties of every medium, ranks as threads of one process: so that the
 * thread sanitizer sees every access to the shared segment. The mains are
 * test_collective.c, for one host, and test_collective_hosts.c, for several.
 */
#ifndef COLLECTIVE_CASES_H
#define COLLECTIVE_CASES_H

#include "collective_fixture.h"

#include <math.h>

/* Which hosts the ranks are on, and what they may use; see struct ranks. */
static uint32_t hosts_used, transports_used, stripes_used;
static bool checksums_used;

static inline bool shares_memory(void)
{
    return !transports_used || transports_used & MOO_TRANSPORT_SHM;
}

/* ---- every kind, every type, against the slow obvious answer ---- */

static const size_t shapes[][4] = {
    {0, 0, 0, 0},          {1, 0, 0, 0},         {3, 0, 1, 5},
    {1000, 24, 1, 4096},   {1, 150001, 64, 2},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Small integers: exact in every type, whatever the reduction. */
UNWATCHED static double input_at(uint32_t rank, size_t i)
{
    return (double)((i * 7 + rank * 3) % 5) - (double)(rank % 2);
}

UNWATCHED static double expected_at(moo_reduction op, uint32_t size, size_t i)
{
    double value = input_at(0, i);
    for (uint32_t rank = 1; rank < size; rank++) {
        double next = input_at(rank, i);
        switch (op) {
        case MOO_OP_MIN:
            value = next < value ? next : value;
            break;
        case MOO_OP_MAX:
            value = next > value ? next : value;
            break;
        case MOO_OP_PRODUCT:
            value *= next;
            break;
        default:
            value += next;
        }
    }
    return op == MOO_OP_MEAN ? value / size : value;
}

UNWATCHED static void reduce_float_lists(moo_group *group, void *unused)
{
    moo_group_info info = info_of(group);
    (void)unused;
    for (int shape = 0; shape < SHAPES; shape++)
        for (moo_reduction op = MOO_OP_SUM; op < MOO_OP_COUNT; op++) {
            struct list list = list_new(4, shapes[shape], sizeof(float));
            float *x = list.data;
            for (size_t i = 0; i < list.elements; i++)
                x[i] = (float)input_at(info.rank, i);
            CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, op, 0, &list));
            for (size_t i = 0; i < list.elements; i++) {
                double wanted = expected_at(op, info.size, i);
                CHECK(fabs(x[i] - wanted) <= 1e-6 * fabs(wanted));
            }
            list_free(&list);
        }
}

#define DEFINE_TYPE(NAME, T, DTYPE, OPS, LEAST) \
    UNWATCHED static void NAME(moo_group *group, void *unused) \
    { \
        moo_group_info info = info_of(group); \
        const size_t counts[4] = {5, 3000, 1, 60000}; \
        (void)unused; \
        for (moo_reduction op = MOO_OP_SUM; op < MOO_OP_COUNT; op++) { \
            if (!((OPS) >> op & 1)) \
                continue; \
            struct list list = list_new(4, counts, sizeof(T)); \
            T *x = list.data; \
            for (size_t i = 0; i < list.elements; i++) \
                x[i] = (T)(input_at(info.rank, i) + 1 + (LEAST)); \
            CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, DTYPE, op, 0, &list)); \
            for (size_t i = 0; i < list.elements; i++) { \
                T wanted = (T)(input_at(0, i) + 1 + (LEAST)); \
                for (uint32_t r = 1; r < info.size; r++) { \
                    T next = (T)(input_at(r, i) + 1 + (LEAST)); \
                    if (op == MOO_OP_SUM || op == MOO_OP_MEAN) \
                        wanted = (T)(wanted + next); \
                    else if (op == MOO_OP_PRODUCT) \
                        wanted = (T)(wanted * next); \
                    else if ((op == MOO_OP_MIN) == (next < wanted)) \
                        wanted = next; \
                } \
                if (op == MOO_OP_MEAN) \
                    wanted = (T)(wanted / info.size); \
                CHECK(x[i] == wanted); \
            } \
            list_free(&list); \
        } \
    }

#define ALL_OPS 31
#define NO_MEAN (31 & ~(1 << MOO_OP_MEAN))
DEFINE_TYPE(reduce_double, double, MOO_DT_F64, ALL_OPS, -3)
DEFINE_TYPE(reduce_int32, int32_t, MOO_DT_I32, NO_MEAN, -3)
DEFINE_TYPE(reduce_int64, int64_t, MOO_DT_I64, NO_MEAN, -3)
DEFINE_TYPE(reduce_uint8, uint8_t, MOO_DT_U8, NO_MEAN, 0)

static void a_mean_of_integers_is_refused(moo_group *group, void *unused)
{
    const size_t count[1] = {4};
    struct list list = list_new(1, count, 4);
    moo_work *work;
    (void)unused;
    moo_request request = {.kind = MOO_GROUP_ALLREDUCE, .dtype = MOO_DT_I32,
                           .op = MOO_OP_MEAN, .count = 1, .inputs = list.in,
                           .outputs = list.out, .bytes = list.bytes};
    CHECK(moo_group_submit(group, &request, 1, &work) == MOO_EINVAL);
    request.dtype = MOO_DT_F32;
    request.bytes = (const uint64_t[]){7};
    CHECK(moo_group_submit(group, &request, 1, &work) == MOO_EINVAL);
    list_free(&list);
}

/* Half precision: small integers are exact; so are the special values. */
UNWATCHED static void reduce_halves(moo_group *group, void *unused)
{
    const uint16_t ones[2] = {0x3c00, 0x3f80}, twos[2] = {0x4000, 0x4000};
    const uint16_t infinity[2] = {0x7c00, 0x7f80};
    const moo_dtype types[2] = {MOO_DT_F16, MOO_DT_BF16};
    const size_t counts[2] = {3, 50000};
    (void)unused;
    for (int t = 0; t < 2; t++) {
        struct list list = list_new(2, counts, 2);
        uint16_t *x = list.data;
        for (size_t i = 0; i < list.elements; i++)
            x[i] = i % 3 == 0 ? ones[t] : i % 3 == 1 ? 0 : infinity[t];
        CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, types[t], MOO_OP_MEAN, 0,
                     &list));
        for (size_t i = 0; i < list.elements; i++)
            CHECK(x[i] ==
                  (i % 3 == 0 ? ones[t] : i % 3 == 1 ? 0 : infinity[t]));
        for (size_t i = 0; i < list.elements; i++)
            x[i] = twos[t];
        CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, types[t], MOO_OP_MAX, 0,
                     &list));
        for (size_t i = 0; i < list.elements; i++)
            CHECK(x[i] == twos[t]);
        list_free(&list);
    }
}

/* 2048 + 1 is 2048 in f16, but 2048 + 1 + 1 is 2050 if rounded once. */
UNWATCHED static void halves_are_rounded_once(moo_group *group, void *unused)
{
    static const size_t counts[] = {9, 200000};
    moo_group_info info = info_of(group);
    uint32_t ulps = (info.size - 1) / 2; /* of 2, which is one at 2048 */
    (void)unused;
    if ((info.size - 1) % 2 && ulps % 2)
        ulps++; /* a tie, to even */
    for (int c = 0; c < 2; c++) {
        struct list list = list_new(1, &counts[c], 2);
        uint16_t *x = list.data;
        for (size_t i = 0; i < list.elements; i++)
            x[i] = info.rank ? 0x3c00 : 0x6800;
        CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F16, MOO_OP_SUM, 0,
                     &list));
        for (size_t i = 0; i < list.elements; i++)
            CHECK(x[i] == 0x6800 + ulps);
        list_free(&list);
    }
}

static void the_medium_is_the_one_for_these_hosts(moo_group *group,
                                                  void *unused)
{
    (void)unused;
    CHECK(group->algorithms == (hosts_used > 1 || !shares_memory()
                                    ? &mooi_ring_collective
                                    : &mooi_shm_collective));
    CHECK_OK(barrier(group)); /* none leaves before all have looked */
}

UNWATCHED static void broadcast_from_each(moo_group *group, void *unused)
{
    moo_group_info info = info_of(group);
    (void)unused;
    for (uint32_t root = 0; root < info.size; root++)
        for (int shape = 0; shape < SHAPES; shape++) {
            struct list list = list_new(4, shapes[shape], 8);
            double *x = list.data;
            for (size_t i = 0; i < list.elements; i++)
                x[i] = input_at(info.rank, i) + info.rank;
            CHECK_OK(run(group, MOO_GROUP_BROADCAST, MOO_DT_F64, MOO_OP_SUM,
                         root, &list));
            for (size_t i = 0; i < list.elements; i++)
                CHECK(x[i] == input_at(root, i) + root);
            list_free(&list);
        }
}

UNWATCHED static void gather_and_scatter(moo_group *group, void *unused)
{
    const size_t counts[] = {1, 7, 5000, 200003};
    moo_group_info info = info_of(group);
    (void)unused;
    for (int c = 0; c < 4; c++) {
        size_t n = counts[c], all = n * info.size;
        double *part = calloc(n, 8), *whole = calloc(all, 8);
        for (size_t i = 0; i < n; i++)
            part[i] = input_at(info.rank, i);
        CHECK_OK(run_one(group, MOO_GROUP_ALL_GATHER, part, n * 8, whole,
                         all * 8));
        for (size_t i = 0; i < all; i++)
            CHECK(whole[i] == input_at((uint32_t)(i / n), i % n));
        for (size_t i = 0; i < all; i++)
            whole[i] = input_at(info.rank, i);
        CHECK_OK(run_one(group, MOO_GROUP_REDUCE_SCATTER, whole, all * 8, part,
                         n * 8));
        for (size_t i = 0; i < n; i++)
            CHECK(part[i] ==
                  expected_at(MOO_OP_SUM, info.size, info.rank * n + i));
        free(part);
        free(whole);
    }
}

/* ---- bit-identity, with numbers whose sum depends on the order ---- */

/* Small and large, which go different ways. */
UNWATCHED static void results_have_the_same_bits(moo_group *group, void *shared)
{
    static const size_t counts[2] = {999, 150000};
    moo_group_info info = info_of(group);
    float **results = shared;
    for (int c = 0; c < 2; c++) {
        struct list list = list_new(1, &counts[c], 4);
        uint32_t state = 12345 + info.rank;
        for (size_t i = 0; i < list.elements; i++) {
            state = state * 1664525u + 1013904223u;
            ((float *)list.data)[i] =
                ldexpf((float)state, (int)(state % 40) - 20);
        }
        CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_MEAN, 0,
                     &list));
        results[info.rank] = list.data;
        CHECK_OK(barrier(group));
        CHECK(!memcmp(results[0], list.data, list.elements * 4));
        CHECK_OK(barrier(group));
        list_free(&list);
    }
}

UNWATCHED static void
inputs_survive_when_results_go_elsewhere(moo_group *group, void *unused)
{
    static const size_t sizes[] = {10, 100000};
    moo_group_info info = info_of(group);
    (void)unused;
    for (int s = 0; s < 2; s++) {
        struct list in = list_new(1, &sizes[s], 4);
        struct list out = list_new(1, &sizes[s], 4);
        for (size_t i = 0; i < in.elements; i++)
            ((float *)in.data)[i] = (float)info.rank;
        memcpy(in.out, out.out, sizeof *in.out);
        CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0, &in));
        for (size_t i = 0; i < in.elements; i++) {
            CHECK(((float *)in.data)[i] == (float)info.rank);
            CHECK(((float *)out.data)[i] ==
                  (float)(info.size * (info.size - 1) / 2));
        }
        list_free(&in);
        list_free(&out);
    }
}

/* ---- misuse ---- */

static void every_mismatch_is_named_on_all(moo_group *group, void *unused)
{
    static const size_t four[2] = {4, 0}, five[2] = {5, 0}, big = 200000;
    moo_group_info info = info_of(group);
    bool odd = info.rank == info.size - 1;
    struct list small = list_new(1, odd ? four : five, 4);
    struct list large = list_new(1, odd ? four : &big, 4);
    moo_outcome outcome;
    (void)unused;

    outcome = run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0, &small);
    CHECK(outcome.status == MOO_EMISMATCH && outcome.rank == info.size - 1);
    CHECK(strstr(outcome.text, "16 bytes") && strstr(outcome.text, "20 bytes"));
    outcome = run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0, &large);
    CHECK(outcome.status == MOO_EMISMATCH);
    outcome = odd ? barrier(group)
                  : run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0,
                        &large);
    CHECK(outcome.status == MOO_EMISMATCH && strstr(outcome.text, "barrier"));
    outcome = run(group, MOO_GROUP_BROADCAST, MOO_DT_F32, MOO_OP_SUM,
                  odd ? 0 : 99, &small);
    CHECK(outcome.status == MOO_EMISMATCH);
    list_free(&small);
    small = list_new(1, four, 4);
    outcome = run(group, MOO_GROUP_BROADCAST, MOO_DT_F32, MOO_OP_SUM, 99, &small);
    CHECK(outcome.status == MOO_EINVAL);
    outcome = run_one(group, MOO_GROUP_ALL_GATHER, small.data, 16, small.data,
                      16 * info.size + 16);
    CHECK(outcome.status == MOO_EINVAL);
    list_free(&large);
    large = list_new(1, &big, 4); /* and the group is none the worse */
    CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0, &large));
    CHECK_OK(barrier(group));
    CHECK(info_of(group).epoch == info.epoch || hosts_used > 1);
    CHECK_OK(barrier(group));
    list_free(&small);
    list_free(&large);
}

/* ---- slices and threads ---- */

static void the_groups_own_thread_runs_what_is_queued(moo_group *group,
                                                      void *unused)
{
    static const size_t count = 30000;
    enum { DEPTH = 20 };
    moo_group_info info = info_of(group);
    struct list lists[DEPTH];
    moo_work *works[DEPTH];
    moo_outcome outcome;
    (void)unused;
    CHECK(moo_group_start(group) == MOO_OK);
    CHECK(moo_group_start(group) == MOO_OK);
    for (int i = 0; i < DEPTH; i++) {
        lists[i] = list_new(1, &count, 4);
        ((float *)lists[i].data)[count - 1] = (float)i;
        works[i] = submit(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM,
                          0, &lists[i]);
    }
    CHECK(moo_work_wait(works[DEPTH - 1], 60, &outcome) == MOO_OK);
    for (int i = 0; i < DEPTH; i++) {
        CHECK(moo_work_done(works[i]));
        CHECK(moo_work_wait(works[i], 0, &outcome) == MOO_OK);
        CHECK_OK(outcome);
        CHECK(((float *)lists[i].data)[count - 1] == (float)i * info.size);
        moo_work_free(works[i]);
        list_free(&lists[i]);
    }
    CHECK(info_of(group).pending == 0);
}

/* ---- coming and going ---- */

static void who_leaves_is_not_missed(moo_group *group, void *shared)
{
    static const size_t count = 100000;
    moo_group_info info = info_of(group);
    struct list list = list_new(1, &count, 4);
    (void)shared;
    CHECK_OK(barrier(group));
    if (info.rank == 1) { /* the fixture leaves for it */
        list_free(&list);
        return;
    }
    for (size_t i = 0; i < count; i++)
        ((float *)list.data)[i] = 1;
    CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0, &list));
    for (size_t i = 0; i < count; i++)
        CHECK(((float *)list.data)[i] == (float)(info.size - 1));
    moo_group_info now = info_of(group);
    CHECK(now.size == info.size - 1 && now.epoch == info.epoch + 1);
    CHECK(now.rank == (info.rank ? info.rank - 1 : 0));
    CHECK_OK(barrier(group)); /* none leaves before all have looked */
    list_free(&list);
}

static void an_absent_member_is_late_for_all(moo_group *group, void *unused)
{
    moo_group_info info = info_of(group);
    moo_outcome outcome;
    (void)unused;
    CHECK_OK(barrier(group));
    if (info.rank == info.size - 1)
        while (mooi_epoch(group) == info.epoch)
            sched_yield();
    outcome = barrier(group);
    CHECK(outcome.status == MOO_ETIMEOUT && outcome.rank == info.size - 1);
    CHECK(outcome.epoch == info.epoch);
    CHECK_OK(barrier(group));
    CHECK(info_of(group).size == info.size);
    CHECK_OK(barrier(group));
}

static void with_ranks(uint32_t size, uint32_t min_size, double timeout,
                       rank_function *function)
{
    alarm(ALARM_S); /* a hang is a failure */
    struct ranks ranks = ranks_new(size, min_size);
    float *results[MOO_GROUP_MAX] = {0};
    ranks.timeout = timeout;
    spread(&ranks, shares_memory() ? hosts_used : size);
    ranks.transports = transports_used;
    ranks.checks = checksums_used;
    ranks.stripes = stripes_used;
    ranks_run(&ranks, function,
              function == results_have_the_same_bits ? (void *)results
                                                     : (void *)&ranks);
    ranks_free(&ranks);
}

static rank_function *const everywhere[] = {
    reduce_float_lists, reduce_double, reduce_int32, reduce_int64,
    reduce_uint8, reduce_halves, halves_are_rounded_once,
    the_medium_is_the_one_for_these_hosts, a_mean_of_integers_is_refused,
    broadcast_from_each, gather_and_scatter, results_have_the_same_bits,
    inputs_survive_when_results_go_elsewhere,
    the_groups_own_thread_runs_what_is_queued};

/* All of the above, by groups of `size`. */
static void run_all_cases(uint32_t size)
{
    for (size_t f = 0; f < sizeof everywhere / sizeof *everywhere; f++)
        with_ranks(size, size, 60, everywhere[f]);
}

static void run_odd_cases(void)
{
    with_ranks(3, 3, 60, every_mismatch_is_named_on_all);
    with_ranks(4, 2, 60, who_leaves_is_not_missed);
    /* long enough for all others on a slow machine */
    with_ranks(3, 3, 1, an_absent_member_is_late_for_all);
}

/* Sum up, where something on the way sees to it that it fails for all, and then
 * again. */
static inline void fail_once(moo_group *group)
{
    const size_t elements[] = {200000};
    struct list list = list_new(1, elements, sizeof(float));
    moo_outcome outcome = run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32,
                              MOO_OP_SUM, 0, &list);
    CHECK(outcome.status == MOO_EPEER && !outcome.left);
    CHECK(strstr(outcome.text, "the connection between rank "));
    CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0,
                 &list)); /* in the next epoch, over another connection */
    list_free(&list);
}

#endif
