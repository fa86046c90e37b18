/* SPDX-License-Identifier: MIT */
/*
 * Learner groups on several hosts, with several connections from each to the
 * next.
 */
#include <linux/filter.h>
#include <sys/socket.h>

#include "collective_cases.h"
#include "collective/ring.h"

/* ---- what goes well ---- */

UNWATCHED static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 31 + i / 251);
}

UNWATCHED static void bytes_arrive_in_order(moo_group *group, size_t bytes)
{
    uint32_t rank = info_of(group).rank, size = info_of(group).size;
    struct list list = list_new(1, &bytes, 1);
    unsigned char *x = list.data;
    for (size_t i = 0; i < bytes; i++)
        x[i] = rank ? 0 : byte_at(i);
    CHECK_OK(run(group, MOO_GROUP_BROADCAST, MOO_DT_U8, MOO_OP_SUM, 0, &list));
    for (size_t i = 0; i < bytes; i++)
        CHECK(x[i] == byte_at(i));
    for (size_t i = 0; i < bytes; i++)
        x[i] = (unsigned char)(byte_at(i) + rank);
    CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_U8, MOO_OP_MAX, 0, &list));
    for (size_t i = 0; i < bytes; i++) {
        unsigned char most = 0;
        for (uint32_t r = 0; r < size; r++)
            if (most < (unsigned char)(byte_at(i) + r))
                most = (unsigned char)(byte_at(i) + r);
        CHECK(x[i] == most);
    }
    list_free(&list);
}

static void turns_change_anywhere(moo_group *group, void *unused)
{
    static const int blocks[] = {1, 2, 5, 6};
    (void)unused;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (int off = -1; off <= 1; off++)
            bytes_arrive_in_order(group, blocks[i] * MOOI_STRIPE_BYTES +
                                             (size_t)(ptrdiff_t)off);
    if (group->ring) { /* the leader of a host */
        CHECK(group->ring->links.to[0].count == stripes_used);
        CHECK(group->ring->links.from[0].count == stripes_used);
    }
}

/* ---- what does not ---- */

/* Whichever it is, and whether or not it is the one whose turn it is. */
static void a_cut_stripe_ends_one_epoch(moo_group *group, void *unused)
{
    const size_t elements[] = {300000};
    struct list list = list_new(1, elements, sizeof(float));
    (void)unused;
    for (uint32_t cut = 0; cut < stripes_used; cut++) {
        moo_group_info info = info_of(group);
        struct mooi_pipe *pipe = &group->ring->links.to[0];
        CHECK_OK(barrier(group)); /* connected */
        if (info.rank == cut % info.size)
            CHECK(!shutdown(pipe->stripes[cut].fd, SHUT_RDWR));
        moo_outcome outcome = run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32,
                                  MOO_OP_SUM, 0, &list);
        CHECK(outcome.status == MOO_EPEER && !outcome.left);
        CHECK(outcome.epoch == info.epoch);
        CHECK(strstr(outcome.text, "the connection between rank "));
        CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0,
                     &list));
        CHECK(info_of(group).epoch == info.epoch + 1);
        CHECK_OK(barrier(group)); /* none leaves before all have looked */
    }
    list_free(&list);
}

/* What comes by one stripe is not received any more, nor acknowledged, and
 * nothing is said: as by a way through the network that is dead. */
static void a_silent_stripe_is_noticed(moo_group *group, void *unused)
{
    const size_t elements[] = {300000};
    struct list list = list_new(1, elements, sizeof(float));
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {1, &drop};
    moo_group_info info = info_of(group);
    (void)unused;
    if (info.rank == 1)
        CHECK(!setsockopt(group->ring->links.from[0].stripes[1].fd, SOL_SOCKET,
                          SO_ATTACH_FILTER, &program, sizeof program));
    CHECK_OK(barrier(group)); /* by the first */
    double began = mooi_now();
    moo_outcome outcome = run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32,
                              MOO_OP_SUM, 0, &list);
    CHECK(outcome.status == MOO_EPEER && !outcome.left);
    CHECK(strstr(outcome.text, "the connection between rank "));
    CHECK(!strstr(outcome.text, "rank 2"));
    CHECK(mooi_now() - began < 3.0);
    CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0,
                 &list));
    CHECK(info_of(group).epoch == info.epoch + 1);
    CHECK_OK(barrier(group)); /* none leaves before all have looked */
    list_free(&list);
}

int main(void)
{
    static const uint32_t counts[] = {1, 2, 5};
    hosts_used = stripes_used = 2;
    with_ranks(2, 2, 60, gather_and_scatter); /* a sanitizer's thread comes */
    int before = count_resources();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        stripes_used = counts[i];
        for (hosts_used = 2; hosts_used <= 4; hosts_used++)
            with_ranks(hosts_used, hosts_used, 60, turns_change_anywhere);
    }
    stripes_used = MOO_STRIPES_MAX;
    hosts_used = 2;
    with_ranks(2, 2, 60, turns_change_anywhere);
    hosts_used = 3;
    for (stripes_used = 2; stripes_used <= 5; stripes_used += 3) {
        run_all_cases(5);
        with_ranks(3, 3, 60, a_cut_stripe_ends_one_epoch);
    }
    stripes_used = 2;
    with_ranks(3, 3, 60, a_silent_stripe_is_noticed);
    run_odd_cases();
    CHECK(count_resources() == before);
    puts("test_collective_stripes: ok");
    return 0;
}
