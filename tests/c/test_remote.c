/* SPDX-License-Identifier: MIT */
/*
 * Planes that fetch from each other over TCP, and over a fabric where there is
 * one: values, many threads, lost links, sudden ends on either side, and
 * processes that hold the key but misbehave.
 */
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "check.h"
#include "plane/net.h"
#include "plane/peer.h"
#include "plane/source.h"
#include "tcp_fixture.h"

#define MB ((size_t)1 << 20)
#define ROOM (64 * MB)
#define END_MS 60000 /* for hangs only */
#define THREADS 4

/* libfabric is not built for ThreadSanitizer, which sees neither that what it
 * reads was written before, for the order comes from the network, nor the
 * locks that it uses, the last of them when the program ends. */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libfabric.so\n"
           "mutex:_dl_call_fini\n";
}

static char directory[] = "/tmp/mooactor-test-XXXXXX";
static const uint8_t key[MOO_KEY_BYTES] = "the session key";
static uint64_t last_id = 0x10000;
static uint32_t transport = MOO_TRANSPORT_TCP;

static moo_plane *open_plane(void)
{
    moo_serve_options options = {
        .transports = transport, .checksum = 1, .threads = 2};
    moo_plane *plane;

    CHECK(moo_plane_open(directory, last_id += 0x10000, key, 256 * MB,
                         &plane) == MOO_OK);
    CHECK(moo_plane_serve(plane, &options) == MOO_OK);
    return plane;
}

static moo_statistics look(moo_plane *plane)
{
    moo_statistics now;

    moo_plane_statistics(plane, &now);
    return now;
}

static int is_idle(moo_plane *plane)
{
    moo_statistics now = look(plane);

    return !now.leases && !now.used && !now.fetches;
}

/* Bytes that depend on the place and on `seed`. */
UNWATCHED static char *pattern(size_t bytes, unsigned seed)
{
    char *data = malloc(bytes);

    CHECK(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)(i * 7 + i / 4096 + seed);
    TELL_WRITTEN(data, bytes);
    return data;
}

static void export_to(moo_plane *from, moo_plane *to, const void *data,
                      size_t bytes, uint8_t *descriptor)
{
    CHECK(moo_export(from, data, bytes, to->id, 0, descriptor) == MOO_OK);
    CHECK(moo_descriptor_is_remote(descriptor, MOO_DESCRIPTOR_BYTES));
}

static uint32_t route(moo_plane *from, moo_plane *to)
{
    uint32_t by;
    char why[MOOI_WHY_BYTES];

    CHECK(moo_plane_route(from, to->id, &by, why, sizeof why) == MOO_OK);
    return by;
}

static int has_fabric(void)
{
    moo_serve_options options = {.transports = MOO_TRANSPORT_OFI};
    moo_plane *plane;
    moo_err err;

    setenv("MOOACTOR_FABRIC", "tcp;ofi_rxm", 0);
    CHECK(moo_plane_open(directory, last_id += 0x10000, key, MB, &plane) ==
          MOO_OK);
    err = moo_plane_serve(plane, &options);
    if (err != MOO_OK)
        printf("no fabric: %s\n", plane->serve_why);
    moo_plane_free(plane);
    return err == MOO_OK;
}

/* ---- values ---- */

static void bytes_of_every_length_arrive(void)
{
    static const size_t lengths[] = {1,      4096,   65535,  65536,      65537,
                                     MB + 1, 5 * MB, 8 * MB, 17 * MB + 3};
    moo_plane *from = open_plane(), *to = open_plane();

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
        size_t bytes = lengths[i], got;
        char *sent = pattern(bytes, (unsigned)i), *mine = malloc(bytes);
        moo_fetch *fetch = NULL;
        void *at = NULL;

        export_to(from, to, sent, bytes, descriptor);
        for (int again = 0; again < 2; again++)
            CHECK(moo_import_once(to, descriptor, sizeof descriptor, END_MS,
                                  &at, &got) == MOO_OK);
        CHECK(got == bytes && memcmp(at, sent, bytes) == 0);
        moo_drop(to, at);
        export_to(from, to, sent, bytes, descriptor);
        for (int again = 0; again < 2; again++)
            CHECK(moo_fetch_begin_once(to, descriptor, sizeof descriptor, mine,
                                       bytes, 0, &fetch) == MOO_OK);
        CHECK(moo_fetch_wait(fetch, END_MS, &at, &got) == MOO_OK);
        CHECK(!at && got == bytes && memcmp(mine, sent, bytes) == 0);
        moo_fetch_free(fetch);
        free(mine);
        free(sent);
    }
    CHECK_SOON(is_idle(from) && is_idle(to));
    moo_plane_free(from);
    moo_plane_free(to);
}

/* ---- many threads, lost links, and ends at any moment ---- */

struct crowd {
    moo_plane *from, *to;
    unsigned seed;
    int rounds; /* of each thread; 0: until `stop` */
    int never_fails;
    atomic_int stop, arrived;
};

static void fetch_once(struct crowd *crowd, unsigned *chance)
{
    size_t bytes = 1 + (size_t)rand_r(chance) % (2 * MB), got;
    unsigned seed = (unsigned)rand_r(chance);
    char *sent = pattern(bytes, seed);
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    moo_fetch *fetch;
    void *at;
    moo_err err;

    err = moo_export(crowd->from, sent, bytes, crowd->to->id, 0, descriptor);
    if (err == MOO_OK) {
        err = moo_fetch_begin(crowd->to, descriptor, sizeof descriptor, NULL,
                              0, seed % 3, &fetch);
        if (err == MOO_OK) {
            if (seed % 4) /* otherwise it is cancelled */
                err = moo_fetch_wait(fetch, END_MS, &at, &got);
            if (err == MOO_OK && seed % 4) {
                CHECK(got == bytes && memcmp(at, sent, bytes) == 0);
                atomic_fetch_add(&crowd->arrived, 1);
                moo_drop(crowd->to, at);
            }
            moo_fetch_free(fetch);
        } else {
            moo_revoke(crowd->from, descriptor, sizeof descriptor);
        }
    }
    if (err != MOO_OK && crowd->never_fails)
        printf("a fetch failed: %s\n", moo_strerror(err));
    CHECK(err == MOO_OK || !crowd->never_fails);
    CHECK(err == MOO_OK || err == MOO_ECLOSED || err == MOO_EPEER ||
          err == MOO_ESTALE || err == MOO_EUNREACHABLE);
    free(sent);
}

static void *fetch_often(void *argument)
{
    struct crowd *crowd = argument;
    unsigned chance = __atomic_fetch_add(&crowd->seed, 1, __ATOMIC_RELAXED);
    uint64_t tags[8];

    for (int i = 0; crowd->rounds ? i < crowd->rounds : !crowd->stop; i++) {
        fetch_once(crowd, &chance);
        moo_plane_finished(crowd->to, tags, 8);
    }
    return NULL;
}

static void run_crowd(struct crowd *crowd, void (*meanwhile)(struct crowd *))
{
    pthread_t players[THREADS];

    crowd->from = open_plane();
    crowd->to = open_plane();
    CHECK(moo_plane_finished_fd(crowd->to) >= 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&players[i], NULL, fetch_often, crowd));
    if (meanwhile)
        meanwhile(crowd);
    atomic_store(&crowd->stop, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(players[i], NULL);
    CHECK_SOON(is_idle(crowd->to));
    CHECK_SOON(!look(crowd->from).leases);
    moo_plane_free(crowd->from);
    moo_plane_free(crowd->to);
}

static void threads_fetch_and_cancel_as_they_like(void)
{
    struct crowd crowd = {.seed = 1, .rounds = 30};

    run_crowd(&crowd, NULL);
    CHECK(atomic_load(&crowd.arrived) > THREADS * 30 / 2);
}

static void close_the_sender(struct crowd *crowd)
{
    CHECK_SOON(atomic_load(&crowd->arrived) > 3);
    moo_plane_close(crowd->from);
}

static void close_the_receiver(struct crowd *crowd)
{
    CHECK_SOON(atomic_load(&crowd->arrived) > 3);
    moo_plane_close(crowd->to);
}

static void declare_dead(struct crowd *crowd)
{
    CHECK_SOON(atomic_load(&crowd->arrived) > 3);
    moo_peer_lost(crowd->to, crowd->from->id, 0);
    moo_peer_lost(crowd->from, crowd->to->id, 0);
}

static void an_end_in_mid_work_ends_every_fetch(void)
{
    static void (*const ends[])(struct crowd *) = {
        close_the_sender, close_the_receiver, declare_dead};

    for (unsigned round = 0; round < 3; round++) {
        struct crowd crowd = {.seed = round, .rounds = 10};
        run_crowd(&crowd, ends[round % 3]);
    }
}

static void lose(moo_plane *plane, const moo_plane *other)
{
    mooi_tcp_drop(plane->net->networks.tcp, other->id, MOO_EPEER);
}

static void lose_links(struct crowd *crowd)
{
    for (int lost = 1; lost <= 12; lost++) {
        int so_far = atomic_load(&crowd->arrived);
        CHECK_SOON(atomic_load(&crowd->arrived) > so_far + THREADS);
        if (lost % 2)
            lose(crowd->from, crowd->to);
        else
            lose(crowd->to, crowd->from);
    }
}

/* While both processes live: the owner's leases stay, it calls again, and what
 * was under way comes over the next link. */
static void links_lost_at_any_moment_lose_nothing(void)
{
    struct crowd crowd = {.seed = 1, .never_fails = 1};

    run_crowd(&crowd, lose_links);
}

/* The importer's source for the owner. */
static struct mooi_source copy_of_source(moo_plane *to, const moo_plane *from)
{
    struct mooi_source *source, copy = {0};

    pthread_mutex_lock(&to->lock);
    source = mooi_source_find(to, from->id);
    if (source)
        copy = *source;
    pthread_mutex_unlock(&to->lock);
    return copy;
}

static int stands(moo_plane *from, moo_plane *to)
{
    return route(from, to) && copy_of_source(to, from).in.by;
}

static void what_was_exported_before_the_loss_arrives_after_it(void)
{
    moo_plane *from = open_plane(), *to = open_plane();
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    char *sent = pattern(MB, 3);
    size_t bytes;
    void *at;

    for (int side = 0; side < 2; side++) {
        export_to(from, to, sent, MB, descriptor);
        CHECK_SOON(stands(from, to));
        lose(side ? to : from, side ? from : to);
        CHECK(moo_import(to, descriptor, sizeof descriptor, END_MS, &at,
                         &bytes) == MOO_OK);
        CHECK(bytes == MB && memcmp(at, sent, MB) == 0);
        moo_drop(to, at);
    }
    CHECK_SOON(is_idle(from) && is_idle(to));
    free(sent);
    moo_plane_free(from);
    moo_plane_free(to);
}

/* To open a fabric takes its time. */
static int rounds(void)
{
    return transport == MOO_TRANSPORT_OFI ? 3 : 5;
}

/* ---- kill -9 ---- */

/* A child process that does one thing until it is killed. */
static pid_t start(void (*play)(int socket), int *socket)
{
    int ends[2];
    pid_t pid;

    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it outlives no failed test */
        close(ends[0]);
        last_id += (uint64_t)1 << 40;
        play(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    *socket = ends[0];
    return pid;
}

/* Import whatever comes. */
static void receive_all(int socket)
{
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    moo_plane *plane = open_plane();
    size_t bytes;
    void *at;

    CHECK(send(socket, &plane->id, 8, 0) == 8);
    while (recv(socket, descriptor, sizeof descriptor, 0) > 0)
        if (moo_import(plane, descriptor, sizeof descriptor, END_MS, &at,
                       &bytes) == MOO_OK)
            moo_drop(plane, at);
}

/* Export to the process whose id came, until killed. */
static void send_all(int socket)
{
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    moo_plane *plane = open_plane();
    char *data = pattern(4 * MB, 1);
    uint64_t to;

    CHECK(recv(socket, &to, 8, 0) == 8);
    while (moo_export(plane, data, 4 * MB, to, 0, descriptor) == MOO_OK &&
           send(socket, descriptor, sizeof descriptor, MSG_NOSIGNAL) > 0)
        ;
    for (;;)
        pause();
}

static void kill_it(pid_t pid, int socket)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(socket);
}

static void a_killed_receiver_leaves_no_lease(void)
{
    char *data = pattern(4 * MB, 1);
    unsigned chance = 5;

    for (int round = 0, end = rounds(); round < end; round++) {
        uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
        uint64_t id;
        int socket;
        pid_t pid;
        moo_plane *plane;

        last_id += 0x10000;
        pid = start(receive_all, &socket);
        plane = open_plane();
        CHECK(recv(socket, &id, 8, 0) == 8);
        for (int n = rand_r(&chance) % 10; n >= 0; n--) {
            CHECK(moo_export(plane, data, 4 * MB, id, 0, descriptor) ==
                  MOO_OK);
            CHECK(send(socket, descriptor, sizeof descriptor, 0) > 0);
        }
        kill_it(pid, socket);
        CHECK_SOON(is_idle(plane) && !look(plane).links);
        moo_plane_free(plane);
    }
    free(data);
}

static void a_killed_senders_fetches_end(void)
{
    unsigned chance = 6;

    for (int round = 0, end = rounds(); round < end; round++) {
        moo_fetch *fetches[10];
        int socket, count = 1 + rand_r(&chance) % 10, begun = 0;
        pid_t pid;
        moo_plane *plane;

        last_id += 0x10000;
        pid = start(send_all, &socket);
        plane = open_plane();
        CHECK(send(socket, &plane->id, 8, 0) == 8);
        while (begun < count) {
            uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
            CHECK(recv(socket, descriptor, sizeof descriptor, 0) > 0);
            CHECK(moo_fetch_begin(plane, descriptor, sizeof descriptor, NULL,
                                  0, 0, &fetches[begun++]) == MOO_OK);
        }
        kill_it(pid, socket);
        while (begun--) {
            size_t bytes;
            void *at;
            moo_err err = moo_fetch_wait(fetches[begun], END_MS, &at, &bytes);
            CHECK(err == MOO_OK || err == MOO_EPEER);
            if (err == MOO_OK)
                moo_drop(plane, at);
            moo_fetch_free(fetches[begun]);
        }
        CHECK_SOON(is_idle(plane) && !look(plane).links);
        moo_plane_free(plane);
    }
}

/* ---- ends at the same time ---- */

static void *close_it(void *plane)
{
    moo_plane_close(plane);
    return NULL;
}

static atomic_int closed;

static void *look_at_it(void *plane)
{
    while (!atomic_load(&closed))
        look(plane);
    return NULL;
}

static void *fork_beside_it(void *unused)
{
    (void)unused;
    while (!atomic_load(&closed)) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child)
            _exit(0);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    return NULL;
}

static void threads_may_close_a_plane_look_at_it_and_fork(void)
{
    for (int round = 0, end = rounds(); round < end; round++) {
        moo_plane *plane = open_plane();
        pthread_t players[4];

        atomic_store(&closed, 0);
        CHECK(!pthread_create(&players[0], NULL, look_at_it, plane));
        CHECK(!pthread_create(&players[1], NULL, fork_beside_it, NULL));
        for (int i = 2; i < 4; i++)
            CHECK(!pthread_create(&players[i], NULL, close_it, plane));
        for (int i = 2; i < 4; i++)
            pthread_join(players[i], NULL);
        atomic_store(&closed, 1);
        for (int i = 0; i < 2; i++)
            pthread_join(players[i], NULL);
        moo_plane_free(plane);
    }
}

/* ---- those who hold the key and misbehave ---- */

#define V MOOI_CONTROL_VERSION

static void an_owners_nonsense_ends_its_link_and_nothing_else(void)
{
    static const struct {
        size_t length;
        uint8_t bytes[8];
    } messages[] = {{1, "M"},
                 {4, {'M', 'N', V, 1}},
                 {5, {'M', 'N', V, 1, 0}},
                 {5, {'M', 'N', V, 1, MOO_TRANSPORT_SHM}},
                 {5, {'M', 'N', V, 1, 64}},
                 {5, {'M', 'N', V + 1, 1, MOO_TRANSPORT_TCP}},
                 {5, {'M', 'N', V, 99, MOO_TRANSPORT_TCP}},
                 {6, {'M', 'N', V, 1, MOO_TRANSPORT_TCP, 0}},
                 {4, {'M', 'N', V, MOOI_CONTROL_RELEASED}},
                 {5, {'X', 'N', V, 1, MOO_TRANSPORT_TCP}}};
    moo_plane *plane = open_plane();

    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        struct mooi_tcp_link *link;
        struct side rogue;
        open_side(&rogue, last_id += 0x10000, NULL);
        CHECK(mooi_tcp_connect(rogue.engine, plane->id,
                               plane->net->endpoint.address,
                               plane->net->endpoint.addresses,
                               &link) == MOO_OK);
        await(&rogue, &rogue.ups, 1);
        CHECK(mooi_tcp_control(link, messages[i].bytes, messages[i].length) ==
              MOO_OK);
        await(&rogue, &rogue.downs, 1);
        close_side(&rogue);
    }
    CHECK_SOON(!look(plane).links);
    moo_plane_free(plane);
}

/* A descriptor that some process made up: nothing comes of it. */
static void made_up_descriptors_do_no_harm(void)
{
    moo_plane *from = open_plane(), *to = open_plane();
    struct mooi_descriptor d;
    uint8_t good[MOO_DESCRIPTOR_BYTES], bad[MOO_DESCRIPTOR_BYTES];
    char *sent = pattern(MB, 3);
    size_t bytes;
    void *at;

    export_to(from, to, sent, MB, good);
    for (int i = 0; i < 6; i++) {
        CHECK(mooi_descriptor_parse(good, sizeof good, &d) == MOO_OK);
        d.lease += i == 0;
        d.generation += i == 1;
        d.slab += i == 2 ? 50 : 0;
        d.offset += i == 3 ? 64 * MB : 0;
        d.length += i == 4 ? 2 * MB : 0;
        d.lease = i == 5 ? UINT32_MAX : d.lease;
        mooi_descriptor_pack(&d, bad);
        CHECK(moo_import(to, bad, sizeof bad, END_MS, &at, &bytes) != MOO_OK);
    }
    free(sent);
    moo_plane_free(from);
    moo_plane_free(to);
}

static void an_importer_gets_what_it_was_granted_and_nothing_else(void)
{
    moo_plane *owner = open_plane(), *friend = open_plane();
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    struct mooi_address address[4];
    struct mooi_descriptor d;
    struct mooi_lease_name name;
    struct side rogue;
    struct wanted wanted = {.side = &rogue};
    char *sent = pattern(MB, 3), *stolen = calloc(1, MB);
    size_t count, bytes;
    uint64_t id = last_id += 0x10000;
    void *at;

    /* The owner calls the rogue, as it must, with a lease of its own. */
    open_side(&rogue, id, NULL);
    count = mooi_tcp_addresses(rogue.engine, address, 4);
    pthread_mutex_lock(&owner->lock);
    struct mooi_reach *reach = mooi_reach_get(mooi_peer_get(owner, id));
    reach->has_endpoint = reach->introduced = 1;
    reach->endpoint.transports = MOO_TRANSPORT_TCP;
    reach->endpoint.addresses = (uint32_t)count;
    memcpy(reach->endpoint.address, address, sizeof address);
    pthread_mutex_unlock(&owner->lock);
    CHECK(moo_export(owner, sent, 100, id, 0, descriptor) == MOO_OK);
    await(&rogue, &rogue.ups, 1);

    export_to(owner, friend, sent, MB, descriptor);
    CHECK(mooi_descriptor_parse(descriptor, sizeof descriptor, &d) == MOO_OK);
    name = (struct mooi_lease_name){d.slab, d.lease, d.generation};
    CHECK(mooi_tcp_fetch(rogue.link, &name, d.offset, MB, stolen, &wanted) ==
          MOO_OK);
    CHECK(end(&wanted) == MOO_ESTALE && !memchr(stolen, 8, MB));
    CHECK(mooi_tcp_release(rogue.link, &name) == MOO_OK);
    CHECK(moo_import(friend, descriptor, sizeof descriptor, END_MS, &at,
                     &bytes) == MOO_OK);
    CHECK(bytes == MB && memcmp(at, sent, MB) == 0);
    moo_drop(friend, at);
    close_side(&rogue);
    CHECK_SOON(is_idle(owner));
    free(sent);
    free(stolen);
    moo_plane_free(owner);
    moo_plane_free(friend);
}

/* ---- a fabric that fails ---- */

static moo_plane *open_both(void)
{
    uint32_t before = transport;
    moo_plane *plane;

    transport = MOO_TRANSPORT_OFI | MOO_TRANSPORT_TCP;
    plane = open_plane();
    transport = before;
    return plane;
}

static void import_one(moo_plane *to, const uint8_t *descriptor,
                       const char *sent)
{
    size_t bytes;
    void *at;

    CHECK(moo_import(to, descriptor, MOO_DESCRIPTOR_BYTES, END_MS, &at,
                     &bytes) == MOO_OK);
    CHECK(bytes == MB && memcmp(at, sent, MB) == 0);
    moo_drop(to, at);
}

static moo_err hear_from(moo_plane *plane, struct mooi_source *source,
                         const struct mooi_control *control)
{
    return source->in.by->hear(&plane->net->networks, &source->in, control);
}

/* A wrong key: the provider refuses, and the owner is told of it. */
static void spoil_the_keys(moo_plane *to, const moo_plane *from)
{
    struct mooi_control serve = {.kind = MOOI_CONTROL_SERVE};
    struct mooi_control control = {.kind = MOOI_CONTROL_FABRIC};
    struct mooi_source *source;

    pthread_mutex_lock(&to->lock);
    source = mooi_source_find(to, from->id);
    source->in.by->part(&to->net->networks, &source->in);
    CHECK(hear_from(to, source, &serve) == MOO_OK);
    control.u.fabric.bytes = from->net->endpoint.fabric_address_bytes;
    memcpy(control.u.fabric.address, from->net->endpoint.fabric_address,
           from->net->endpoint.fabric_address_bytes);
    CHECK(hear_from(to, source, &control) == MOO_OK);
    control = (struct mooi_control){.kind = MOOI_CONTROL_SLAB};
    control.u.slab.bytes = 64 * MB;
    control.u.slab.key = 0x1234567;
    CHECK(hear_from(to, source, &control) == MOO_OK);
    pthread_mutex_unlock(&to->lock);
}

static int goes_over_tcp(moo_plane *to, moo_plane *from)
{
    pthread_mutex_lock(&to->lock);
    struct mooi_source *source = mooi_source_find(to, from->id);
    int does = source && source->in.by == &mooi_over_tcp;
    pthread_mutex_unlock(&to->lock);
    return does;
}

static void where_a_fabric_fails_tcp_takes_over(void)
{
    moo_plane *from = open_both(), *to = open_both();
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES], later[MOO_DESCRIPTOR_BYTES];
    char *sent = pattern(MB, 9);
    size_t bytes;
    void *at;

    export_to(from, to, sent, MB, descriptor);
    import_one(to, descriptor, sent);
    CHECK(route(from, to) == MOO_TRANSPORT_OFI);
    export_to(from, to, sent, MB, descriptor);
    export_to(from, to, sent, MB, later);
    spoil_the_keys(to, from);
    CHECK(moo_import(to, descriptor, sizeof descriptor, END_MS, &at,
                     &bytes) != MOO_OK);
    CHECK_SOON(route(from, to) == MOO_TRANSPORT_TCP);
    export_to(from, to, sent, MB, descriptor);
    CHECK_SOON(goes_over_tcp(to, from));
    import_one(to, later, sent);
    import_one(to, descriptor, sent);
    CHECK(look(to).fetched_tcp == 2 * MB && look(to).fetched_ofi == MB);
    CHECK_SOON(is_idle(from) && is_idle(to));
    free(sent);
    moo_plane_free(from);
    moo_plane_free(to);
}

/* ---- */

static void run_all(void)
{
    RUN(a_killed_receiver_leaves_no_lease);
    RUN(a_killed_senders_fetches_end);
    RUN(bytes_of_every_length_arrive);
    RUN(threads_fetch_and_cancel_as_they_like);
    RUN(an_end_in_mid_work_ends_every_fetch);
    RUN(threads_may_close_a_plane_look_at_it_and_fork);
    RUN(what_was_exported_before_the_loss_arrives_after_it);
    RUN(links_lost_at_any_moment_lose_nothing);
}

int main(void)
{
    CHECK(mkdtemp(directory));
    run_all();
    RUN(an_owners_nonsense_ends_its_link_and_nothing_else);
    RUN(made_up_descriptors_do_no_harm);
    RUN(an_importer_gets_what_it_was_granted_and_nothing_else);
    transport = MOO_TRANSPORT_OFI;
    if (has_fabric()) {
        run_all();
        RUN(where_a_fabric_fails_tcp_takes_over);
    }
    remove_directory(directory);
    return 0;
}
