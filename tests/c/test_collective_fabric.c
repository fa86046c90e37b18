/* SPDX-License-Identifier: MIT */
/*
 * Learner groups on several hosts, through a fabric, by default one that stands
 * in for those with hardware. An argument: so many ranks, and nothing else.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "collective_cases.h"
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

struct counts {
    int ours, theirs;
    unsigned char *byte; /* changed before the first count is passed on */
    pthread_t thread;    /* ends with the connection */
};

static void *spoil_and_pass_on(void *argument)
{
    struct counts *counts = argument;
    struct pollfd ends[2] = {{.fd = counts->ours, .events = POLLIN},
                             {.fd = counts->theirs, .events = POLLIN}};
    unsigned char bytes[64];
    bool spoiled = false;
    while (poll(ends, 2, -1) > 0) {
        int from = ends[0].revents ? 0 : 1;
        ssize_t n = read(ends[from].fd, bytes, sizeof bytes);
        if (n <= 0)
            break;
        if (from == 0 && !spoiled)
            *counts->byte ^= 4;
        spoiled |= from == 0;
        if (send(ends[1 - from].fd, bytes, (size_t)n, MSG_NOSIGNAL) != n)
            break;
    }
    close(counts->ours);
    close(counts->theirs);
    return NULL;
}

/* Rank 0 has filled its buffer when it first says so: a bit of that changes. */
static void a_changed_byte_fails_the_operation_for_all(moo_group *group,
                                                       void *unused)
{
    bool spoils = info_of(group).rank == 0;
    struct counts counts = {0};
    int ends[2];
    (void)unused;
    CHECK(info_of(group).transport == MOO_TRANSPORT_OFI);
    if (spoils) {
        struct mooi_stripe *stripe = &group->ring->links.to[0].stripes[0];
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
        counts = (struct counts){.ours = ends[1], .theirs = stripe->fd,
                               .byte = &group->ring->bounce->out[5]};
        CHECK(!fcntl(ends[0], F_SETFL, O_NONBLOCK));
        CHECK(!fcntl(stripe->fd, F_SETFL, 0));
        stripe->fd = ends[0];
        CHECK(!pthread_create(&counts.thread, NULL, spoil_and_pass_on,
                              &counts));
    }
    fail_once(group);
    if (spoils)
        CHECK(!pthread_join(counts.thread, NULL));
}

static void spoil_a_byte(void)
{
    checksums_used = true;
    hosts_used = 2;
    with_ranks(2, 2, 60, a_changed_byte_fails_the_operation_for_all);
    checksums_used = false;
}

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
        printf("test_collective_fabric: skipped, no fabric: %s\n", why);
        return false;
    }
    mooi_bounce_close(bounce);
    return true;
}

int main(int argc, char **argv)
{
    setenv("MOOACTOR_FABRIC", "tcp;ofi_rxm", 0);
    bool must = argc > 1;
    if (!has_fabric())
        return must;
    if (must) {
        run_cases((uint32_t)atoi(argv[1]), 0, MOO_TRANSPORT_OFI);
        spoil_a_byte();
        return 0;
    }
    hosts_used = 2;
    transports_used = MOO_TRANSPORT_OFI;
    with_ranks(2, 2, 60, gather_and_scatter); /* what libfabric keeps comes */
    int before = count_resources();
    run_cases(2, 2, MOO_TRANSPORT_OFI);
    run_cases(3, 3, MOO_TRANSPORT_OFI);
    run_cases(4, 2, MOO_TRANSPORT_OFI | MOO_TRANSPORT_SHM);
    run_odd_cases();
    checksums_used = true;
    run_cases(3, 3, MOO_TRANSPORT_OFI);
    spoil_a_byte();
    stripes_used = 4;
    with_ranks(2, 2, 60, one_stripe_carries_counts);
    CHECK(count_resources() == before);
    puts("test_collective_fabric: ok");
    return 0;
}
