/* SPDX-License-Identifier: MIT */
/*
 * Learner groups on several hosts: the same cases as on one, over connections
 * of this machine.
 */
#include "collective_cases.h"
#include "collective/bulk.h"

/* Through a fabric, by default one that stands in for those with hardware; as
 * many ranks, or 0: several numbers of them. False: there is none here. */
static bool run_over_fabric(uint32_t ranks)
{
    struct mooi_shelf *shelf;
    char why[MOOI_FABRIC_WHY_BYTES];
    setenv("MOOACTOR_FABRIC", "tcp;ofi_rxm", 0);
    if (mooi_shelf_open("", &shelf, why, sizeof why)) {
        printf("no fabric: %s\n", why);
        return false;
    }
    mooi_shelf_close(shelf);
    transports_used = MOO_TRANSPORT_OFI;
    if (ranks) {
        run_all_cases(ranks);
        return true;
    }
    run_all_cases(2);
    run_all_cases(3);
    hosts_used = 2;
    transports_used = MOO_TRANSPORT_OFI | MOO_TRANSPORT_SHM;
    run_all_cases(4);
    return true;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "fabric"))
        return !run_over_fabric(argc > 2 ? (uint32_t)atoi(argv[2]) : 0);
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
