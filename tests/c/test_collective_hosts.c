/* SPDX-License-Identifier: MIT */
/*
 * Learner groups on several hosts: the same cases as on one, over connections
 * of this machine, one or several from each host to the next, and through a
 * fabric, by default one that stands in for those with hardware. An argument:
 * so many ranks through a fabric, and nothing else.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <sys/socket.h>

#include "collective_cases.h"
#include "collective/protocol/master.h"
#include "collective/ring.h"

/* The thread sanitizer takes note of what sendmsg reads when the call is over,
 * though the bytes were copied before the other end could get them: it reports
 * whoever writes to such memory as soon as the other end says that it has them.
 * Here libfabric's calls send what was asked for, and the leader then fills the
 * buffer again. So the calls that libfabric makes are left out, as what a
 * network card does would be; ours to it, and all of our own, are not. With
 * them go its locks: it unlocks one at its end, in a call from the loader. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libfabric.so\n"
           "mutex:_dl_call_fini\n";
}

static void run_cases(uint32_t ranks, uint32_t hosts, uint32_t transports)
{
    hosts_used = hosts;
    transports_used = transports;
    run_all_cases(ranks);
}

/* ---- checksums ---- */

#define SPOILED 100000 /* which byte of a connection */

struct detour {
    int ours, theirs;
    unsigned char *byte; /* changed before anything is passed on; NULL: it is
                          * in what is passed on */
    pthread_t thread;    /* ends with the connection */
};

/* Pass on what comes, with one bit changed, until the end. */
static void *spoil_and_pass_on(void *argument)
{
    struct detour *detour = argument;
    struct pollfd ends[2] = {{.fd = detour->ours, .events = POLLIN},
                             {.fd = detour->theirs, .events = POLLIN}};
    unsigned char bytes[4096];
    size_t passed = 0;
    while (poll(ends, 2, -1) > 0) {
        int from = ends[0].revents ? 0 : 1;
        ssize_t n = read(ends[from].fd, bytes, sizeof bytes);
        if (n <= 0)
            break;
        if (!from && detour->byte && !passed)
            *detour->byte ^= 4;
        if (!from && !detour->byte && passed <= SPOILED &&
            passed + (size_t)n > SPOILED)
            bytes[SPOILED - passed] ^= 4;
        passed += from ? 0 : (size_t)n;
        for (ssize_t done = 0, more; done < n; done += more)
            if ((more = send(ends[1 - from].fd, bytes + done,
                             (size_t)(n - done), MSG_NOSIGNAL)) < 0)
                goto end;
    }
end:
    close(detour->ours);
    close(detour->theirs);
    return NULL;
}

/* Have what rank 0 sends from now on, in this epoch, take a way that spoils
 * a byte: of the connection, or of the buffer that a fabric reads, which rank 0
 * has filled when it first says so. */
static void a_changed_byte_fails_the_operation_for_all(moo_group *group,
                                                       void *unused)
{
    bool spoils = info_of(group).rank == 0;
    struct mooi_stripe *stripe = &group->ring->links.to[0].stripes[0];
    struct detour detour = {.ours = -1};
    int ends[2], flags = fcntl(stripe->fd, F_GETFL);
    (void)unused;
    CHECK((info_of(group).transport == MOO_TRANSPORT_OFI) ==
          (transports_used == MOO_TRANSPORT_OFI));
    if (spoils) {
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
        detour = (struct detour){.ours = ends[1], .theirs = stripe->fd};
        if (transports_used == MOO_TRANSPORT_OFI)
            detour.byte = &group->ring->bounce->out[5];
        CHECK(!fcntl(ends[0], F_SETFL, O_NONBLOCK));
        CHECK(!fcntl(stripe->fd, F_SETFL, flags & ~O_NONBLOCK));
        stripe->fd = ends[0];
        CHECK(!pthread_create(&detour.thread, NULL, spoil_and_pass_on,
                              &detour));
    }
    fail_once(group);
    if (spoils)
        CHECK(!pthread_join(detour.thread, NULL));
}

static void spoil_a_byte(void)
{
    checksums_used = true;
    hosts_used = 2;
    with_ranks(2, 2, 60, a_changed_byte_fails_the_operation_for_all);
    checksums_used = false;
}

/* ---- several connections ---- */

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
    static const int blocks[] = {1, 2, 5};
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

/* The third time, one of the two is out of the group. */
static void two_hosts_that_are_cut_again_and_again_part(moo_group *group,
                                                        void *unused)
{
    moo_group_info info = info_of(group);
    (void)unused;
    for (uint32_t cut = 0; cut < MOOI_CUTS_MOST; cut++) {
        CHECK_OK(barrier(group)); /* connected */
        if (info.rank == 1)
            CHECK(!shutdown(group->ring->links.to[0].stripes[0].fd,
                            SHUT_RDWR));
        moo_outcome outcome = barrier(group);
        CHECK(outcome.status == MOO_EPEER && outcome.epoch == info.epoch + cut);
        bool last = cut + 1 == MOOI_CUTS_MOST;
        CHECK(strstr(outcome.text, last ? "the host of rank 2 was taken out"
                                        : "the connection between rank "));
    }
    moo_outcome outcome = barrier(group);
    if (info.rank == 2) {
        CHECK(outcome.status == MOO_ECLOSED);
        CHECK(strstr(outcome.text, "join again"));
        CHECK(barrier(group).status == MOO_ECLOSED);
        return;
    }
    CHECK_OK(outcome);
    CHECK(info_of(group).size == 2 && info_of(group).rank == info.rank);
    CHECK_OK(barrier(group)); /* none leaves before all have looked */
}

/* Bytes of one stripe are not received any more, nor acknowledged, and
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
    moo_outcome outcome = run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32,
                              MOO_OP_SUM, 0, &list);
    CHECK(outcome.status == MOO_EPEER && !outcome.left);
    CHECK(strstr(outcome.text, "the connection between rank "));
    CHECK(!strstr(outcome.text, "rank 2"));
    CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0,
                 &list));
    CHECK(info_of(group).epoch == info.epoch + 1);
    CHECK_OK(barrier(group)); /* none leaves before all have looked */
    list_free(&list);
}

/* ---- a fabric ---- */

/* Beside a fabric one connection will do. */
static void one_stripe_carries_counts(moo_group *group, void *unused)
{
    (void)unused;
    CHECK(group->ring->links.to[0].count == 1);
    CHECK(group->ring->links.from[0].count == 1);
    CHECK_OK(barrier(group));
}

static bool has_fabric(void)
{
    struct mooi_bounce *bounce;
    char why[MOOI_FABRIC_WHY_BYTES];
    if (mooi_bounce_open("", &bounce, why, sizeof why)) {
        printf("skipped: no fabric: %s\n", why);
        return false;
    }
    mooi_bounce_close(bounce);
    return true;
}

/* ---- */

static void over_connections(void)
{
    run_cases(3, 3, 0);
    run_cases(4, 2, 0);
    run_cases(5, 2, 0);
    run_odd_cases();
    run_cases(3, 0, MOO_TRANSPORT_TCP); /* one host, no shared memory */
    transports_used = 0;
    spoil_a_byte();
    hosts_used = 3;
    checksums_used = true;
    for (stripes_used = 2; stripes_used <= 5; stripes_used += 3)
        with_ranks(3, 3, 60, turns_change_anywhere);
    stripes_used = MOO_STRIPES_MAX;
    with_ranks(3, 3, 60, turns_change_anywhere);
    stripes_used = 2;
    run_all_cases(5);
    with_ranks(3, 3, 60, a_cut_stripe_ends_one_epoch);
    with_ranks(3, 3, 60, a_silent_stripe_is_noticed);
    with_ranks(3, 1, 60, two_hosts_that_are_cut_again_and_again_part);
    checksums_used = false;
    stripes_used = 0;
}

static void over_a_fabric(void)
{
    run_cases(3, 3, MOO_TRANSPORT_OFI);
    run_cases(4, 2, MOO_TRANSPORT_OFI | MOO_TRANSPORT_SHM);
    transports_used = MOO_TRANSPORT_OFI;
    run_odd_cases();
    spoil_a_byte();
    stripes_used = 4;
    with_ranks(2, 2, 60, one_stripe_carries_counts);
    stripes_used = 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        if (!has_fabric())
            return 1;
        run_cases((uint32_t)atoi(argv[1]), 0, MOO_TRANSPORT_OFI);
        spoil_a_byte();
        return 0;
    }
    hosts_used = 2;
    with_ranks(2, 2, 60, gather_and_scatter); /* a sanitizer's thread comes */
    int before = count_resources();
    over_connections();
    CHECK_SOON(count_resources() == before);
    setenv("MOOACTOR_FABRIC", "tcp;ofi_rxm", 0);
    if (!has_fabric())
        return 0;
    hosts_used = 2;
    transports_used = MOO_TRANSPORT_OFI;
    with_ranks(2, 2, 60, gather_and_scatter); /* what libfabric keeps comes */
    before = count_resources();
    over_a_fabric();
    CHECK_SOON(count_resources() == before);
    return 0;
}
