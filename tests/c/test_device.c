/* SPDX-License-Identifier: MIT */
/*
 * Memory that is not the plane's, read over a fabric under a ticket: what
 * GPUDirect does, with memory of the host in the place of a GPU's. The provider
 * is MOOACTOR_FABRIC's, tcp;ofi_rxm without it; TEST_FABRIC_BIND is the
 * address. Processes that are killed: tests/tensors/test_cuda_direct.py.
 */
#include "check.h"
#include "plane/net.h"
#include "plane/peer.h"

#define MB ((size_t)1 << 20)
#define WAIT_MS 30000

/* See test_remote.c. */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libfabric.so\n"
           "mutex:_dl_call_fini\n";
}

static const uint8_t key[MOO_KEY_BYTES] = "the session key";
static char directory[128];
static uint64_t last_id = 0x10000;

static moo_plane *open_plane(uint64_t id)
{
    moo_serve_options options = {.transports = MOO_TRANSPORT_OFI |
                                               MOO_TRANSPORT_TCP,
                                 .bind = getenv("TEST_FABRIC_BIND")};
    moo_plane *plane;

    CHECK(moo_plane_open(directory, id, key, 256 * MB, &plane) == MOO_OK);
    CHECK(moo_plane_serve(plane, &options) == MOO_OK);
    return plane;
}

static moo_plane *new_plane(void)
{
    return open_plane(last_id += 0x10000);
}

static moo_statistics look(moo_plane *plane)
{
    moo_statistics now;

    moo_plane_statistics(plane, &now);
    return now;
}

static int is_idle(moo_plane *plane)
{
    return !look(plane).leases && !look(plane).fetches;
}

static uint32_t route(moo_plane *from, uint64_t to)
{
    uint32_t by;
    char why[MOOI_WHY_BYTES];

    CHECK(moo_plane_route(from, to, &by, why, sizeof why) == MOO_OK);
    return by;
}

/* ---- both sides of a loan ---- */

/* Memory of this program's own, registered. */
struct memory {
    unsigned char *start;
    size_t bytes;
    uint64_t key, base;
};

UNWATCHED static struct memory share(moo_plane *plane, size_t bytes,
                                     unsigned seed)
{
    struct memory memory = {.start = malloc(bytes), .bytes = bytes};
    char why[256] = "";

    CHECK(memory.start);
    for (size_t i = 0; i < bytes; i++)
        memory.start[i] = (unsigned char)(i * 7 + i / 4096 + seed);
    if (moo_device_share(plane, memory.start, bytes, MOO_MEMORY_HOST, 0,
                         &memory.key, &memory.base, why, sizeof why) != MOO_OK)
        fprintf(stderr, "%s\n", why);
    CHECK(!*why);
    return memory;
}

static void *new_ticket(moo_plane *plane)
{
    void *ticket;

    CHECK(moo_empty(plane, 1, &ticket) == MOO_OK);
    memset(ticket, 0, 1);
    CHECK(moo_ticket(plane, ticket) == MOO_OK);
    return ticket;
}

struct loan {
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    uint64_t key, base, bytes;
};

static struct loan lend(moo_plane *plane, const struct memory *memory,
                        const void *ticket, uint64_t to)
{
    struct loan loan = {
        .key = memory->key, .base = memory->base, .bytes = memory->bytes};

    CHECK(moo_export(plane, ticket, 1, to, 0, loan.descriptor) == MOO_OK);
    return loan;
}

static moo_fetch *begin(moo_plane *plane, const struct loan *loan,
                        struct memory *into, size_t at, size_t bytes)
{
    moo_fetch *fetch;

    CHECK(moo_device_fetch(plane, loan->descriptor, MOO_DESCRIPTOR_BYTES,
                           loan->base + at, loan->key, into->start + at, bytes,
                           &fetch) == MOO_OK);
    return fetch;
}

static moo_err await(moo_fetch *fetch)
{
    void *at = &at;
    size_t bytes;
    moo_err err = moo_fetch_wait(fetch, WAIT_MS, &at, &bytes);

    CHECK(err != MOO_OK || !at);
    moo_fetch_free(fetch);
    return err;
}

static moo_err read_all(moo_plane *plane, const struct loan *loan,
                        struct memory *into)
{
    return await(begin(plane, loan, into, 0, loan->bytes));
}

static void give_back(moo_plane *plane, const struct loan *loan)
{
    CHECK(moo_discard(plane, loan->descriptor, MOO_DESCRIPTOR_BYTES, 1000) ==
          MOO_OK);
}

/* Two planes of this process with memory each. */
struct pair {
    moo_plane *from, *to;
    struct memory there, here;
    void *ticket;
};

static struct pair new_pair(size_t bytes)
{
    struct pair pair = {.from = new_plane(), .to = new_plane()};

    pair.there = share(pair.from, bytes, 1);
    pair.here = share(pair.to, bytes, 2);
    pair.ticket = new_ticket(pair.from);
    return pair;
}

static struct loan lend_it(struct pair *pair)
{
    return lend(pair->from, &pair->there, pair->ticket, pair->to->id);
}

static void free_pair(struct pair *pair)
{
    moo_drop(pair->from, pair->ticket);
    moo_plane_free(pair->from);
    moo_plane_free(pair->to);
    free(pair->there.start);
    free(pair->here.start);
}

static void end_pair(struct pair *pair)
{
    CHECK_SOON(!moo_is_held(pair->from, pair->ticket));
    CHECK_SOON(is_idle(pair->to) && is_idle(pair->from));
    free_pair(pair);
}

/* ---- what works ---- */

static void it_is_read_in_parts_while_the_ticket_is_held(void)
{
    struct pair pair = new_pair(24 * MB);
    struct loan loan = lend_it(&pair);
    moo_fetch *part[3];

    CHECK(moo_descriptor_is_ticket(loan.descriptor, MOO_DESCRIPTOR_BYTES));
    CHECK(!moo_descriptor_is_remote(loan.descriptor, MOO_DESCRIPTOR_BYTES));
    for (size_t i = 0; i < 3; i++)
        part[i] = begin(pair.to, &loan, &pair.here, i * 8 * MB, 8 * MB);
    for (size_t i = 0; i < 3; i++)
        CHECK(await(part[i]) == MOO_OK);
    CHECK(!memcmp(pair.here.start, pair.there.start, 24 * MB));
    CHECK(route(pair.from, pair.to->id) == MOO_TRANSPORT_OFI);
    CHECK(moo_is_held(pair.from, pair.ticket));
    give_back(pair.to, &loan);
    end_pair(&pair);
}

static void the_same_memory_is_registered_once(void)
{
    struct pair pair = new_pair(MB);
    uint64_t again, base;
    char why[256];

    CHECK(moo_device_share(pair.from, pair.there.start, MB, MOO_MEMORY_HOST, 0,
                           &again, &base, why, sizeof why) == MOO_OK);
    CHECK(again == pair.there.key && base == pair.there.base);
    CHECK(!pair.from->net->devices->next);
    if (!mooi_ofi->takes_devices(pair.from->net->networks.fabric)) {
        CHECK(moo_device_share(pair.from, pair.there.start, 64,
                               MOO_MEMORY_CUDA, 0, &again, &base, why,
                               sizeof why) == MOO_EUNREACHABLE);
        CHECK(strstr(why, "was not opened for memory of GPUs"));
    }
    end_pair(&pair);
}

/* ---- what fails ---- */

static void what_the_owner_took_back_is_no_success(void)
{
    struct pair pair = new_pair(MB);
    struct loan loan = lend_it(&pair);

    CHECK(moo_revoke(pair.from, loan.descriptor, MOO_DESCRIPTOR_BYTES) ==
          MOO_OK);
    CHECK(read_all(pair.to, &loan, &pair.here) == MOO_ESTALE);
    end_pair(&pair);
}

static void only_tickets_and_registered_memory_will_do(void)
{
    struct pair pair = new_pair(MB);
    struct loan loan = lend_it(&pair), other = loan;
    moo_fetch *fetch;
    void *block;
    char elsewhere[16];

    CHECK(moo_empty(pair.from, 1, &block) == MOO_OK);
    CHECK(moo_export(pair.from, block, 1, pair.to->id, 0, other.descriptor) ==
          MOO_OK);
    CHECK(moo_device_fetch(pair.to, other.descriptor, MOO_DESCRIPTOR_BYTES,
                           loan.base, loan.key, pair.here.start, 16,
                           &fetch) == MOO_EINVAL);
    CHECK(moo_device_fetch(pair.to, loan.descriptor, MOO_DESCRIPTOR_BYTES,
                           loan.base, loan.key, elsewhere, 16,
                           &fetch) == MOO_EINVAL);
    CHECK(moo_device_fetch(pair.to, loan.descriptor, MOO_DESCRIPTOR_BYTES,
                           loan.base, loan.key, pair.here.start + 1, MB,
                           &fetch) == MOO_EINVAL);
    CHECK(moo_ticket(pair.from, elsewhere) == MOO_EINVAL);
    moo_drop(pair.from, block);
    give_back(pair.to, &loan);
    give_back(pair.to, &other);
    end_pair(&pair);
}

static void without_a_fabric_nothing_is_registered(void)
{
    moo_serve_options options = {.transports = MOO_TRANSPORT_TCP};
    moo_plane *plane;
    uint64_t ignored, base;
    char why[256] = "", byte;

    CHECK(moo_plane_open(directory, last_id += 0x10000, key, MB, &plane) ==
          MOO_OK);
    CHECK(moo_plane_serve(plane, &options) == MOO_OK);
    CHECK(moo_device_share(plane, &byte, 1, MOO_MEMORY_HOST, 0, &ignored,
                           &base, why, sizeof why) == MOO_EUNREACHABLE);
    CHECK(strstr(why, "no fabric"));
    moo_plane_free(plane);
}

static void a_fetch_that_is_freed_in_mid_transfer_leaves_no_trace(void)
{
    struct pair pair = new_pair(64 * MB);

    for (int round = 0; round < 15; round++) {
        struct loan loan = lend_it(&pair);
        moo_fetch *first = begin(pair.to, &loan, &pair.here, 0, 32 * MB);
        moo_fetch *second = begin(pair.to, &loan, &pair.here, 32 * MB, 32 * MB);
        usleep((useconds_t)(random() % 20000)); /* at any moment */
        moo_fetch_free(first);
        moo_fetch_free(second);
        give_back(pair.to, &loan);
        CHECK_SOON(!moo_is_held(pair.from, pair.ticket));
    }
    end_pair(&pair);
}

/* ---- */

static int has_fabric(void)
{
    moo_plane *plane;
    int there;

    setenv("MOOACTOR_FABRIC", "tcp;ofi_rxm", 0);
    plane = new_plane();
    there = plane->net->networks.fabric != NULL;
    if (!there)
        printf("skipped: %s\n", plane->serve_why);
    moo_plane_free(plane);
    return there;
}

int main(void)
{
    const char *folder = getenv("TMPDIR");

    snprintf(directory, sizeof directory, "%s/mooactor-test-XXXXXX",
             folder ? folder : "/tmp");
    CHECK(mkdtemp(directory));
    if (has_fabric()) {
        RUN(it_is_read_in_parts_while_the_ticket_is_held);
        RUN(the_same_memory_is_registered_once);
        RUN(what_the_owner_took_back_is_no_success);
        RUN(only_tickets_and_registered_memory_will_do);
        RUN(a_fetch_that_is_freed_in_mid_transfer_leaves_no_trace);
    } else if (getenv("TEST_FABRIC_REQUIRED")) {
        return 1;
    }
    RUN(without_a_fabric_nothing_is_registered);
    remove_directory(directory);
    return 0;
}
