/* SPDX-License-Identifier: MIT */
/*
 * Learner groups on several hosts: the same cases as on one, over connections
 * of this machine.
 */
#include "collective_cases.h"

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
        run_all_cases(shapes[s][0]);
    }
    run_odd_cases();
    hosts_used = 0;
    transports_used = MOO_TRANSPORT_TCP; /* one host, no shared memory */
    run_all_cases(3);
    check_resources(before);
    puts("test_collective_ring: ok");
    return 0;
}
