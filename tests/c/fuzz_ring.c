/* SPDX-License-Identifier: MIT */
/*
 * Any bytes over the connections of a ring that stand, to the leader of a host:
 * its operation ends, well or as a lost connection, and nothing is left.
 * Built with -fsanitize=fuzzer by `make fuzz`; by gcc it runs its own random
 * inputs.
 *
 * Three members, each a host. One of them is real, and is run in slices; of the
 * other two this program is the ends of the connections, and they agree to
 * everything. The first byte of an input says which operation it is (7), if it
 * is a large one (8), if there are checksums (16), and if the ring goes through
 * a fabric (32), where there is one; the second, which rank is the real one
 * (3), and how many stripes (12). Then come actions, two bytes each; see act.
 */
#include <sys/socket.h>

#include "collective_fixture.h"
#include "collective/ring.h"
#include "collective/segment/segment.h"

#define RANKS 3u
#define LARGEST ((size_t)300 << 10)
#define ENDS (2 * MOO_STRIPES_MAX + 2)

struct end {
    int fd; /* -1: hung up */
    uint64_t said; /* by counts */
};

static struct mooi_segment *segment;
static struct mooi_bounce *ours, *theirs; /* NULL: no fabric here */
static struct mooi_post posted;          /* of theirs */
static unsigned char in[RANKS * LARGEST], out[RANKS * LARGEST];

static moo_group *groups[RANKS], *us;
static struct end ends[ENDS]; /* of to[0], from[0], to[1], from[1] */
static uint32_t stripes, count_ends;
static uint64_t dealt; /* bytes of ours to from[0], in turn */

static void begin_once(void)
{
    char why[MOOI_FABRIC_WHY_BYTES];

    if (segment)
        return;
    segment = mmap(NULL, moo_group_segment_bytes(), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(segment != MAP_FAILED);
    setenv("MOOACTOR_FABRIC", "tcp;ofi_rxm", 0);
    if (mooi_bounce_open("", &ours, why, sizeof why) ||
        mooi_bounce_open("", &theirs, why, sizeof why))
        printf("fuzz_ring: without a fabric: %s\n", why);
    else
        mooi_bounce_describe(theirs, &posted);
}

/* ---- three members, one of them real ---- */

static void connect_pipe(struct mooi_pipe *pipe, uint32_t count)
{
    mooi_pipe_init(pipe, count, us->hosts.checks);
    for (uint32_t i = 0; i < count; i++) {
        int both[2];
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both));
        mooi_pipe_join(pipe, i, both[0]);
        ends[count_ends++] = (struct end){.fd = both[1]};
    }
}

static void connect_us(bool fabric)
{
    struct mooi_ring *ring = us->ring = calloc(1, sizeof *us->ring);
    struct mooi_links *links = &ring->links;

    CHECK(ring);
    links->epoch = us->view.epoch;
    links->count = 2;
    count_ends = 0;
    dealt = 0;
    connect_pipe(&links->to[0], stripes);
    connect_pipe(&links->from[0], stripes);
    connect_pipe(&links->to[1], 1);
    connect_pipe(&links->from[1], 1);
    if (!fabric)
        return;
    ring->bounce = ours;
    CHECK(mooi_bulk_send_open(ours, &links->bulk_to) == MOO_OK);
    CHECK(mooi_bulk_receive_open(ours, &posted, &links->bulk_from) == MOO_OK);
}

static void form(uint32_t rank, bool checks)
{
    memset(segment, 0, HEADER_BYTES);
    for (uint32_t i = 0; i < RANKS; i++) {
        char host[2] = {(char)('a' + i)};
        moo_group_options options = {.host = host, .checksum = checks};
        CHECK(mooi_join_at(segment, i + 1, RANKS, 60, &options, &groups[i]) ==
              MOO_OK);
    }
    us = groups[rank];
    CHECK(moo_group_ready(us, 0) == MOO_OK);
    /* A lost connection is put down to its other end's death, which counts at
     * once, but is not looked for until then. */
    mooi_unwatch(us);
    for (uint32_t slot = 0; slot < RANKS; slot++)
        us->watch[slot] = (struct mooi_watch){
            .join_no = segment->slots[slot].member.join_no, .pidfd = -1};
    us->looked = mooi_now() + 3600;
}

/* The others have called the same, and are through with it. */
static void others_agree(const moo_work *work)
{
    uint64_t seq = us->seq + 1;

    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct mooi_cell *cell = &segment->cells[us->view.slots[rank]];
        if (rank == us->rank)
            continue;
        cell->signature[seq & 1] = work->signature;
        cell->signature[seq & 1].chunk = us->chunk;
        for (int i = 0; i < COUNTERS; i++)
            atomic_store(&cell->counter[i],
                         i == ACKED || i == POSTED
                             ? us->view.epoch
                             : seq << STEP_BITS | STEP_LAST);
    }
}

/* ---- what they do ---- */

static void say(struct end *end, const void *bytes, size_t count)
{
    if (end->fd >= 0 &&
        send(end->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* full, or hung up on: as good as lost */
}

static void say_note(struct end *end, uint64_t more)
{
    uint8_t count[8];

    end->said += more;
    for (int i = 0; i < 8; i++)
        count[i] = (uint8_t)(end->said >> 8 * i);
    say(end, count, sizeof count);
}

/* The bytes of the ring, each to the stripe whose turn it is. */
static void deal(size_t count)
{
    while (count) {
        struct end *end =
            &ends[stripes + dealt / MOOI_STRIPE_BYTES % stripes];
        size_t n = MOOI_STRIPE_BYTES - dealt % MOOI_STRIPE_BYTES;
        n = n < count ? n : count;
        if (end->fd < 0)
            return;
        ssize_t sent = send(end->fd, in, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0)
            return;
        dealt += (size_t)sent;
        count -= (size_t)sent;
    }
}

static void hang_up(struct end *end)
{
    if (end->fd >= 0)
        close(end->fd);
    end->fd = -1;
}

static void drain(void)
{
    static unsigned char bytes[1 << 16];

    for (uint32_t i = 0; i < count_ends; i++)
        while (ends[i].fd >= 0 &&
               recv(ends[i].fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
            ;
}

/* Returns for how many seconds the real one may go on. */
static double act(const uint8_t *action, const uint8_t *rest, size_t left)
{
    static const uint64_t steps[8] = {0,    1,      8,       4096,
                                      4097, 100000, 1 << 20, UINT64_MAX};
    uint8_t how = action[0] >> 3;
    struct end *end = &ends[action[1] % count_ends];

    switch (action[0] & 7) {
    case 0:
        deal(((size_t)how + 1) * 4096 - action[1]);
        break;
    case 1: /* on any stripe, or backwards */
        say(end, in, 1 + (how < 31 ? how : (size_t)action[1] << 8));
        break;
    case 2: /* the fabric's counts: the sender's, */
        say_note(&ends[stripes], steps[how & 7]);
        break;
    case 3: /* and the receiver's */
        say_note(&ends[0], steps[how & 7]);
        break;
    case 4:
        say(end, rest, left < how ? left : how);
        break;
    case 5:
        hang_up(end);
        break;
    case 6:
        if (end->fd >= 0)
            shutdown(end->fd, how & 1 ? SHUT_WR : SHUT_RD);
        break;
    default:
        return ours ? 1e-3 : 0;
    }
    return 0;
}

/* ---- one operation ---- */

static moo_work *submit_one(moo_group_kind kind, bool half, size_t bytes)
{
    const void *inputs[1] = {in};
    void *outputs[1] = {out};
    uint64_t lengths[1] = {bytes};
    moo_work *work;
    moo_request request = {
        .kind = kind, .dtype = half ? MOO_DT_BF16 : MOO_DT_F32,
        .op = half ? MOO_OP_MEAN : MOO_OP_SUM, .root = bytes / 4 % RANKS,
        .count = kind == MOO_GROUP_BARRIER ? 0 : 1, .inputs = inputs,
        .outputs = outputs, .bytes = lengths,
        .output_bytes = kind == MOO_GROUP_ALL_GATHER       ? RANKS * bytes
                        : kind == MOO_GROUP_REDUCE_SCATTER ? bytes / RANKS
                                                           : 0};

    CHECK(moo_group_submit(us, &request, 1, &work) == MOO_OK);
    return work;
}

static void finish(moo_work *work)
{
    moo_outcome outcome;

    for (uint32_t i = 0; i < count_ends; i++)
        hang_up(&ends[i]);
    CHECK(moo_work_wait(work, 5, &outcome) == MOO_OK);
    CHECK(outcome.status == MOO_OK || outcome.status == MOO_EPEER);
    moo_work_free(work);
    if (us->ring)
        us->ring->bounce = NULL; /* stays for the next */
    for (uint32_t i = 0; i < RANKS; i++)
        moo_group_leave(groups[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin_once();
    if (size < 2)
        return 0;
    bool fabric = data[0] & 32 && theirs;
    size_t bytes = data[0] & 8 ? LARGEST - 12 * (data[1] >> 4) : 24;
    moo_outcome outcome;

    stripes = fabric ? 1 : 1 + (data[1] >> 2 & 3);
    form(data[1] % 4 % RANKS, data[0] & 16);
    connect_us(fabric);
    moo_work *work = submit_one((moo_group_kind)(data[0] % 8 % MOO_GROUP_KINDS),
                                data[0] & 64, bytes);
    others_agree(work);
    for (size_t at = 2; at + 2 <= size; at += 2) {
        double seconds = act(data + at, data + at + 2, size - at - 2);
        if (moo_work_wait(work, seconds, &outcome) == MOO_OK)
            break;
        drain();
    }
    finish(work);
    return 0;
}

#ifndef FUZZER
static void whatever_comes_ends_cleanly(void)
{
    int before = 0;

    srandom(1);
    for (int i = 0; i < 800; i++) {
        uint8_t data[256];
        size_t size = 2 + (size_t)random() % (sizeof data - 2);
        for (size_t j = 0; j < size; j++)
            data[j] = (uint8_t)random();
        for (size_t j = 2; j < size; j += 2) /* hang-ups would end them all */
            if (i % 4 && (data[j] & 7) > 4)
                data[j] = (uint8_t)(data[j] & ~7);
        LLVMFuzzerTestOneInput(data, size);
        if (i == 100)
            before = count_resources();
    }
    CHECK(count_resources() == before);
}

int main(void)
{
    whatever_comes_ends_cleanly();
    if (theirs)
        mooi_bounce_close(theirs);
    if (ours)
        mooi_bounce_close(ours);
    puts("fuzz_ring: ok");
    return 0;
}
#endif
