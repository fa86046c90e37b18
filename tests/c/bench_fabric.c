/* SPDX-License-Identifier: MIT */
/*
 * bench_fabric: reads through fabric.c beside libfabric itself, used as its own
 * benchmark fi_rma_bw does (transport/ofi/bare.c). The two take turns.
 *
 *   bench_fabric [MIB [ROUNDS]]      reads MIB MiB in each turn (256, 9)
 *
 * MOOACTOR_FABRIC as for test_fabric. Prints GB/s, medians of the turns. The
 * bare loop reads once with pieces as large as they may be, and once with those
 * of 1 MiB; the ratio is to the faster of these.
 */
#include "fabric_fixture.h"
#include "mooactor_bench.h"

#define ROUNDS_MAX 101
#define LIMIT_MS 60000

/* ---- the bare side ---- */

static moo_bare *open_bare(size_t bytes)
{
    const char *named = getenv("MOOACTOR_FABRIC");
    char why[MOOI_FABRIC_WHY_BYTES] = "";
    moo_bare *bare = NULL;
    moo_err err = moo_bare_open(named ? named : "tcp;ofi_rxm", bytes, &bare,
                                why, sizeof why);

    if (err != MOO_OK)
        fprintf(stderr, "%s\n", why);
    CHECK(err == MOO_OK);
    return bare;
}

/* Spin from 'g' to 's', sleep otherwise. */
static void be_bare_owner(int socket, size_t bytes)
{
    uint8_t offer[MOO_BARE_OFFER_BYTES];
    moo_bare *bare = open_bare(bytes);
    char order;

    CHECK(moo_bare_offer(bare, offer) == MOO_OK);
    CHECK(send(socket, offer, sizeof offer, 0) == sizeof offer);
    while (recv(socket, &order, 1, 0) > 0)
        if (order == 'g')
            CHECK(moo_bare_serve(bare, socket) == MOO_OK);
    exit(0);
}

static double bare_turn(moo_bare *bare, const uint8_t *offer, size_t piece)
{
    double start = seconds();

    CHECK(moo_bare_read(bare, offer, piece, LIMIT_MS) == MOO_OK);
    return seconds() - start;
}

/* ---- ours ---- */

static double our_turn(struct mooi_fabric_peer *peer, struct owner *owner,
                       struct place *place, size_t total)
{
    struct reading reading = READING;
    double start = seconds();

    begin_read(peer, owner->offer.base, owner->offer.key, place, 0, total,
               &reading);
    CHECK(await_read(&reading) == MOO_OK);
    return seconds() - start;
}

/* ---- both ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

int main(int argc, char **argv)
{
    size_t total = (size_t)(argc > 1 ? atoi(argv[1]) : 256) * MB;
    int rounds = argc > 2 ? atoi(argv[2]) : 9, ends[2];
    double ours[ROUNDS_MAX], whole[ROUNDS_MAX], pieces[ROUNDS_MAX];
    struct owner owner = start_owner(total, 1);
    uint8_t offer[MOO_BARE_OFFER_BYTES];

    CHECK(rounds > 0 && rounds <= ROUNDS_MAX);
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    if (!fork_child()) {
        close(ends[0]);
        close(owner.socket); /* whose end the other owner waits for */
        be_bare_owner(ends[1], total);
    }
    close(ends[1]);
    CHECK(recv(ends[0], offer, sizeof offer, 0) == sizeof offer);
    await_owner(&owner);

    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, total);
    struct mooi_fabric_peer *peer = connect_to(fabric, &owner);
    moo_bare *bare = open_bare(total);
    for (int i = -1; i < rounds; i++) { /* the first is to warm up */
        int at = i < 0 ? 0 : i;
        CHECK(send(ends[0], "g", 1, 0) == 1);
        whole[at] = bare_turn(bare, offer, 0);
        pieces[at] = bare_turn(bare, offer, MB);
        CHECK(send(ends[0], "s", 1, 0) == 1);
        ours[at] = our_turn(peer, &owner, &place, total);
    }
    double gb = (double)total / 1e9, a = gb / median(whole, rounds),
           p = gb / median(pieces, rounds), o = gb / median(ours, rounds);
    printf("%s, %zu MiB: bare at once %.2f GB/s, bare by 1 MiB %.2f GB/s, "
           "ours %.2f GB/s, ratio %.2f\n",
           mooi_fabric_provider(fabric), total / MB, a, p, o,
           o / (a > p ? a : p));
    mooi_fabric_forget(peer);
    free_place(&place);
    mooi_fabric_close(fabric);
    moo_bare_close(bare);
    close(ends[0]);
    end_owner(&owner);
    return 0;
}
