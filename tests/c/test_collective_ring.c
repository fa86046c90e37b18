/* SPDX-License-Identifier: MIT */
/*
 * Learner groups on several hosts: the same cases as on one, over connections
 * of this machine. By several connections each: test_collective_stripes.c;
 * through a fabric: test_collective_fabric.c.
 */
#include <fcntl.h>
#include <sys/socket.h>

#include "collective_cases.h"
#include "collective/ring.h"

/* ---- checksums ---- */

#define SPOILED 100000 /* which byte */

struct detour {
    int from, to;
    pthread_t thread; /* ends with the connection */
};

/* Pass on what comes, with one bit changed, until the end. */
static void *pass_on(void *argument)
{
    struct detour *detour = argument;
    unsigned char bytes[4096];
    size_t passed = 0;
    ssize_t n;
    while ((n = read(detour->from, bytes, sizeof bytes)) > 0) {
        if (passed <= SPOILED && passed + (size_t)n > SPOILED)
            bytes[SPOILED - passed] ^= 4;
        passed += (size_t)n;
        for (ssize_t done = 0, more; done < n; done += more)
            if ((more = send(detour->to, bytes + done, (size_t)(n - done),
                             MSG_NOSIGNAL)) < 0)
                goto end;
    }
end:
    close(detour->from);
    close(detour->to);
    return NULL;
}

/* Have what rank 0 sends from now on, in this epoch, take a way that spoils
 * a byte. */
static void spoil(moo_group *group, struct detour *detour)
{
    struct mooi_pipe *pipe = &group->ring->links.to[0];
    int ends[2], flags = fcntl(pipe->stripes[0].fd, F_GETFL);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    CHECK(!fcntl(ends[0], F_SETFL, O_NONBLOCK));
    CHECK(!fcntl(pipe->stripes[0].fd, F_SETFL, flags & ~O_NONBLOCK));
    detour->from = ends[1];
    detour->to = pipe->stripes[0].fd;
    pipe->stripes[0].fd = ends[0];
    CHECK(!pthread_create(&detour->thread, NULL, pass_on, detour));
}

static void a_changed_byte_fails_the_operation_for_all(moo_group *group,
                                                       void *unused)
{
    bool spoils = info_of(group).rank == 0;
    struct detour detour = {.from = -1};
    (void)unused;
    if (spoils)
        spoil(group, &detour);
    fail_once(group);
    if (spoils)
        CHECK(!pthread_join(detour.thread, NULL));
}

static void run_with_checksums(void)
{
    checksums_used = true;
    hosts_used = 3;
    run_all_cases(3);
    run_all_cases(5);
    hosts_used = 2;
    with_ranks(2, 2, 60, a_changed_byte_fails_the_operation_for_all);
    checksums_used = false;
}

/* ---- the same cases as on one host ---- */

int main(void)
{
    /* ranks, hosts: every rank alone, pairs, hosts of different sizes */
    static const uint32_t shapes[][2] = {{2, 2}, {3, 3}, {4, 4}, {8, 8},
                                         {4, 2}, {5, 2}, {8, 3}};
    hosts_used = 2;
    with_ranks(2, 2, 60, gather_and_scatter); /* a sanitizer's thread comes */
    int before = count_resources();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        hosts_used = shapes[s][1];
        if (WATCHED && hosts_used > 3) /* they interleave as three do */
            continue;
        run_all_cases(shapes[s][0]);
    }
    run_odd_cases();
    run_with_checksums();
    hosts_used = 0;
    transports_used = MOO_TRANSPORT_TCP; /* one host, no shared memory */
    run_all_cases(3);
    CHECK(count_resources() == before);
    puts("test_collective_ring: ok");
    return 0;
}
