/* SPDX-License-Identifier: MIT */
/*
 * bench_ring: a ring of hosts by several connections, where each is limited.
 *
 *   bench_ring [MBIT [MIB [HOSTS]]]
 *
 * HOSTS processes of this machine (2), each a host of its own, sum MIB MiB (64)
 * over connections that the kernel slows down to MBIT Mbit/s each (1000; 0: not
 * at all). Prints milliseconds of the clock, and of one processor, for rings of
 * 1, 2, 4 and 8 stripes in turns: the medians of all turns.
 */
#include <sys/socket.h>
#include <time.h>

#include "collective_fixture.h"
#include "collective/ring.h"

#define TURNS 5
#define SUMS 3 /* in each, after one that does not count */
#define KINDS 4

static const uint32_t stripes[KINDS] = {1, 2, 4, 8};

struct figures {
    double clock_ms[KINDS][TURNS * SUMS], cpu_ms[KINDS][TURNS * SUMS];
};

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void slow_down(const moo_group *group, unsigned long mbit)
{
    const struct mooi_pipe *pipe = &group->ring->links.to[0];
    unsigned long bytes_s = mbit * 125000;
    for (uint32_t i = 0; mbit && i < pipe->count; i++)
        CHECK(!setsockopt(pipe->stripes[i].fd, SOL_SOCKET,
                          SO_MAX_PACING_RATE, &bytes_s, sizeof bytes_s));
}

/* One rank of one turn; the first one's figures go to `clock` and `cpu`. */
static void sum(struct ranks *ranks, uint32_t rank, unsigned long mbit,
                size_t elements, double *clock, double *cpu)
{
    char host[16];
    snprintf(host, sizeof host, "host %u", rank);
    moo_group_options options = {.host = host, .stripes = ranks->stripes,
                                 .transports = MOO_TRANSPORT_TCP};
    moo_group *group;
    CHECK(mooi_join_at(ranks->segment, rank, ranks->size, 60, &options,
                       &group) == MOO_OK);
    while (moo_group_ready(group, 10) == MOO_ETIMEOUT)
        ;
    struct list list = list_new(1, &elements, sizeof(float));
    CHECK_OK(barrier(group));
    slow_down(group, mbit);
    for (int i = 0; i <= SUMS; i++) {
        CHECK_OK(barrier(group));
        double began = mooi_now(), spent = cpu_now();
        CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0,
                     &list));
        if (i && info_of(group).rank == 0) {
            clock[i - 1] = (mooi_now() - began) * 1e3;
            cpu[i - 1] = (cpu_now() - spent) * 1e3;
        }
    }
    CHECK_OK(barrier(group));
    moo_group_leave(group);
}

static void turn(uint32_t hosts, uint32_t count, unsigned long mbit,
                 size_t elements, double *clock, double *cpu)
{
    struct ranks ranks = ranks_new(hosts, hosts);
    pid_t children[MOO_GROUP_MAX];
    int status;
    ranks.stripes = count;
    for (uint32_t i = 0; i < hosts; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i])
            continue;
        sum(&ranks, i, mbit, elements, clock, cpu);
        _exit(0);
    }
    for (uint32_t i = 0; i < hosts; i++)
        CHECK(waitpid(children[i], &status, 0) == children[i] && !status);
    ranks_free(&ranks);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *figures)
{
    qsort(figures, TURNS * SUMS, sizeof *figures, ascending);
    return figures[TURNS * SUMS / 2];
}

int main(int argc, char **argv)
{
    unsigned long mbit = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    size_t mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 64;
    uint32_t hosts = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 2;
    CHECK(mib && hosts > 1 && hosts <= MOO_GROUP_MAX);
    struct figures *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    for (int i = 0; i < TURNS; i++)
        for (int kind = 0; kind < KINDS; kind++)
            turn(hosts, stripes[kind], mbit, mib << 18,
                 &all->clock_ms[kind][i * SUMS], &all->cpu_ms[kind][i * SUMS]);
    for (int kind = 0; kind < KINDS; kind++)
        printf("%u stripes: %8.1f ms, %8.1f ms of a processor\n",
               stripes[kind], median(all->clock_ms[kind]),
               median(all->cpu_ms[kind]));
    return 0;
}
