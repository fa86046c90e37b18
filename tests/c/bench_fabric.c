/* SPDX-License-Identifier: MIT */
/*
 * bench_fabric: reads through fabric.c beside the bare loop of fi_rma_bw, as
 * libfabric's own tests have it: both sides spin on their queues, a window of
 * reads of one size is kept under way. The two take turns.
 *
 *   bench_fabric [MIB [ROUNDS]]      reads MIB MiB in each turn (256, 9)
 *
 * MOOACTOR_FABRIC and TEST_FABRIC_BIND as for test_fabric. Prints GB/s, medians
 * of the turns. The last column is the smaller of the two ratios: to the bare
 * loop's best window, and to it as it reads all at once.
 */
#include "fabric_fixture.h"
#include "transport/fabric_internal.h"

#define WINDOW 64
#define ROUNDS_MAX 101

/* ---- the bare side ---- */

struct bare {
    const struct mooi_libfabric *library;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
    struct fid_mr *mr;
    unsigned char *memory;
};

static void open_bare(struct bare *b, size_t bytes)
{
    struct mooi_fabric_options options = {.bind = getenv("TEST_FABRIC_BIND")};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT,
                            .wait_obj = FI_WAIT_NONE};
    struct fi_av_attr av = {.type = FI_AV_UNSPEC};
    char why[MOOI_FABRIC_WHY_BYTES];

    if (!getenv("MOOACTOR_FABRIC"))
        options.provider = "tcp;ofi_rxm";
    CHECK(mooi_libfabric(&b->library, why, sizeof why) == MOO_OK);
    CHECK(mooi_fabric_choose(b->library, &options, &b->info, why,
                             sizeof why) == MOO_OK);
    CHECK(!b->library->fabric(b->info->fabric_attr, &b->fabric, NULL));
    CHECK(!fi_domain(b->fabric, b->info, &b->domain, NULL));
    CHECK(!fi_cq_open(b->domain, &cq, &b->cq, NULL));
    CHECK(!fi_av_open(b->domain, &av, &b->av, NULL));
    CHECK(!fi_endpoint(b->domain, b->info, &b->ep, NULL));
    CHECK(!fi_ep_bind(b->ep, &b->cq->fid, FI_TRANSMIT | FI_RECV));
    CHECK(!fi_ep_bind(b->ep, &b->av->fid, 0));
    CHECK(!fi_enable(b->ep));
    b->memory = new_memory(bytes);
    memset(b->memory, 1, bytes);
    CHECK(!fi_mr_reg(b->domain, b->memory, bytes, FI_READ | FI_REMOTE_READ, 0,
                     4711, 0, &b->mr, NULL));
}

/* Spin from 'g' to 's', sleep otherwise. */
static void be_bare_owner(int socket, size_t bytes)
{
    struct offer offer = {.name_bytes = sizeof offer.name};
    struct bare b;
    char order;

    open_bare(&b, bytes);
    CHECK(!fi_getname(&b.ep->fid, offer.name, &offer.name_bytes));
    offer.key = fi_mr_key(b.mr);
    offer.base = b.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
                     ? (uint64_t)(uintptr_t)b.memory
                     : 0;
    CHECK(send(socket, &offer, sizeof offer, 0) == sizeof offer);
    while (recv(socket, &order, 1, 0) > 0)
        for (order = 'g'; order != 's';) {
            struct fi_cq_entry entry;
            for (int i = 0; i < 100; i++)
                (void)fi_cq_read(b.cq, &entry, 1);
            if (recv(socket, &order, 1, MSG_DONTWAIT) == 0)
                exit(0);
        }
    exit(0);
}

struct window {
    struct bare *b;
    fi_addr_t peer;
    const struct offer *offer;
    struct fi_context2 context[WINDOW];
};

static void await_one(struct bare *b, struct fi_context2 **done)
{
    struct fi_cq_entry entry;
    ssize_t got;

    while ((got = fi_cq_read(b->cq, &entry, 1)) == -FI_EAGAIN)
        continue;
    CHECK(got == 1);
    *done = entry.op_context;
}

static void post_one(struct window *w, size_t at, size_t bytes,
                     struct fi_context2 *context)
{
    struct fi_cq_entry entry;
    ssize_t err;

    while ((err = fi_read(w->b->ep, w->b->memory + at, bytes,
                          fi_mr_desc(w->b->mr), w->peer, w->offer->base + at,
                          w->offer->key, context)) == -FI_EAGAIN)
        CHECK(fi_cq_read(w->b->cq, &entry, 0) <= 0); /* only make progress */
    CHECK(!err);
}

static double bare_turn(struct window *w, size_t total, size_t piece)
{
    double start = seconds();
    size_t posted = 0, flying = 0;
    struct fi_context2 *free_one = NULL;

    while (posted < total || flying) {
        if (posted < total && (free_one || flying < WINDOW)) {
            post_one(w, posted, piece,
                     free_one ? free_one : &w->context[flying]);
            free_one = NULL;
            posted += piece;
            flying++;
        } else {
            await_one(w->b, &free_one);
            flying--;
        }
    }
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
    struct offer offer;
    struct bare b;

    CHECK(rounds > 0 && rounds <= ROUNDS_MAX);
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    if (!fork_child()) {
        close(ends[0]);
        be_bare_owner(ends[1], total);
    }
    close(ends[1]);
    CHECK(recv(ends[0], &offer, sizeof offer, 0) == sizeof offer);
    await_owner(&owner);

    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, total);
    struct mooi_fabric_peer *peer = meet(fabric, &owner);
    struct window w = {.b = &b, .offer = &offer};
    open_bare(&b, total);
    CHECK(fi_av_insert(b.av, offer.name, 1, &w.peer, 0, NULL) == 1);
    size_t most = b.info->ep_attr->max_msg_size;
    if (most > total)
        most = total;
    for (int i = -1; i < rounds; i++) { /* the first is to warm up */
        int at = i < 0 ? 0 : i;
        CHECK(send(ends[0], "g", 1, 0) == 1);
        whole[at] = bare_turn(&w, total, most);
        pieces[at] = bare_turn(&w, total, MB);
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
    end_owner(&owner);
    return 0;
}
