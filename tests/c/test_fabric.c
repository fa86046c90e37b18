/* SPDX-License-Identifier: MIT */
/*
 * The fabric between processes: right bytes, and an end in every case. By
 * default over tcp;ofi_rxm; tests/rdma_vm runs the same over verbs.
 */
#ifdef MOOI_NO_FABRIC

#include <stdio.h>

int main(void)
{
    puts("skipped: built without libfabric");
    return 0;
}

#else

#include "fabric_fixture.h"
#include "pace.h"
#include "transport/ofi/internal.h"

/* An error has to come within five seconds, a success much sooner. */
#define SOON_S 5.0

UNWATCHED static void check_bytes(const struct place *place, size_t at,
                                  size_t offset, size_t bytes, unsigned seed)
{
    TELL_READ(place->memory + at, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (place->memory[at + i] != byte_at(offset + i, seed)) {
            fprintf(stderr, "byte %zu of %zu differs\n", i, bytes);
            exit(1);
        }
}

static moo_err read_now(struct mooi_fabric_peer *peer, struct owner *owner,
                        struct place *place, size_t offset, size_t bytes)
{
    struct reading reading = READING;
    char why[MOOI_FABRIC_WHY_BYTES];
    moo_err err;

    begin_read(peer, owner->offer.base + offset, owner->offer.key, place, 0,
               bytes, &reading);
    err = await_read(&reading);
    mooi_fabric_reason(peer, why, sizeof why);
    if (err != MOO_OK)
        fprintf(stderr, "%s: %s\n", moo_strerror(err), why);
    return err;
}

/* ---- what works ---- */

static void reads_of_all_sizes_bring_the_right_bytes(void)
{
    static const size_t sizes[] = {0,      1,          7,      4096,
                                   MB - 1, MB,         MB + 1, 8 * MB + 3,
                                   32 * MB};
    struct owner owner = start_owner(33 * MB, 1);
    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, 33 * MB);
    struct mooi_fabric_peer *peer;
    struct mooi_fabric_statistics count;

    await_owner(&owner);
    peer = connect_to(fabric, &owner);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t offset = sizes[i] % 5003;
        memset(place.memory, 0xAA, sizes[i] + 1);
        CHECK(read_now(peer, &owner, &place, offset, sizes[i]) == MOO_OK);
        check_bytes(&place, 0, offset, sizes[i], 1);
        CHECK(place.memory[sizes[i]] == 0xAA);
    }
    mooi_fabric_statistics(fabric, &count);
    CHECK(!count.reads && !count.asked && !count.cuts);
    CHECK(count.received >= 40 * MB);
    mooi_fabric_forget(peer);
    free_place(&place);
    mooi_fabric_close(fabric);
    end_owner(&owner);
}

static void many_reads_at_once_do_not_mix(void)
{
    enum { READS = 100 };
    static struct reading reading[READS];
    const size_t bytes = 300 * 1000;
    struct owner owner = start_owner(READS * bytes, 2);
    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, READS * bytes);
    struct mooi_fabric_peer *peer;

    await_owner(&owner);
    peer = connect_to(fabric, &owner);
    for (int i = 0; i < READS; i++) {
        reading[i] = (struct reading)READING;
        begin_read(peer, owner.offer.base + (uint64_t)i * bytes,
                   owner.offer.key, &place, (READS - 1 - i) * bytes, bytes,
                   &reading[i]);
    }
    for (int i = 0; i < READS; i++) {
        CHECK(await_read(&reading[i]) == MOO_OK);
        check_bytes(&place, (READS - 1 - i) * bytes, i * bytes, bytes, 2);
    }
    mooi_fabric_forget(peer);
    free_place(&place);
    mooi_fabric_close(fabric);
    end_owner(&owner);
}

/* Four processes, each of which reads from one and lets another read. */
UNWATCHED static void read_in_a_circle(int socket, int self)
{
    struct offer mine = {0}, next;
    struct owner owner = {0};
    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, 3 * MB);
    unsigned char *memory = new_memory(3 * MB);
    struct mooi_fabric_region *region;
    char go;

    for (size_t i = 0; i < 3 * MB; i++)
        memory[i] = byte_at(i, (unsigned)self);
    CHECK(mooi_fabric_register(fabric, memory, 3 * MB, MOOI_FABRIC_FROM, 0, 0,
                               &region) == MOO_OK);
    mine.name_bytes = mooi_fabric_name(fabric, mine.name);
    mine.key = mooi_fabric_key(region);
    mine.base = mooi_fabric_base(region);
    CHECK(send(socket, &mine, sizeof mine, 0) == sizeof mine);
    CHECK(recv(socket, &next, sizeof next, 0) == sizeof next);
    owner.offer = next;
    struct mooi_fabric_peer *peer = connect_to(fabric, &owner);
    for (int round = 0; round < 5; round++) {
        memset(place.memory, 0, 3 * MB);
        CHECK(read_now(peer, &owner, &place, 0, 3 * MB) == MOO_OK);
        check_bytes(&place, 0, 0, 3 * MB, (unsigned)(self + 1) % 4);
    }
    CHECK(send(socket, "", 1, 0) == 1);
    CHECK(recv(socket, &go, 1, 0) == 1); /* nobody reads from us any more */
    mooi_fabric_forget(peer);
    mooi_fabric_unregister(region);
    free_place(&place);
    mooi_fabric_close(fabric);
    munmap(memory, 3 * MB);
    exit(0);
}

static void four_processes_read_from_each_other(void)
{
    struct offer offer[4];
    pid_t pid[4];
    int ends[4][2], status;
    char done;

    for (int i = 0; i < 4; i++) {
        CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends[i]));
        pid[i] = fork_child();
        if (!pid[i])
            read_in_a_circle(ends[i][1], i);
        close(ends[i][1]);
    }
    for (int i = 0; i < 4; i++)
        CHECK(recv(ends[i][0], &offer[i], sizeof *offer, 0) == sizeof *offer);
    for (int i = 0; i < 4; i++)
        CHECK(send(ends[i][0], &offer[(i + 1) % 4], sizeof *offer, 0) ==
              sizeof *offer);
    for (int i = 0; i < 4; i++)
        CHECK(recv(ends[i][0], &done, 1, 0) == 1);
    for (int i = 0; i < 4; i++)
        CHECK(send(ends[i][0], "", 1, 0) == 1);
    for (int i = 0; i < 4; i++) {
        CHECK(waitpid(pid[i], &status, 0) == pid[i]);
        CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
        close(ends[i][0]);
    }
}

/* ---- what fails ---- */

/* Begin a large read, wait until some of it is here, and let it fail. */
static void check_failure(struct owner *owner, moo_err allowed,
                          void (*strike)(struct mooi_fabric *,
                                         struct mooi_fabric_peer *,
                                         struct owner *, struct reading *))
{
    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, 64 * MB);
    struct mooi_fabric_peer *peer;
    struct mooi_fabric_statistics count;
    struct reading reading = READING;
    moo_err result;

    await_owner(owner);
    peer = connect_to(fabric, owner);
    for (int i = 0; i < 200; i++) { /* much more than can be here at once */
        reading = (struct reading)READING;
        begin_read(peer, owner->offer.base, owner->offer.key, &place, 0,
                   64 * MB, &reading);
        CHECK_SOON((mooi_fabric_statistics(fabric, &count), count.received));
        if (count.asked > 32 * MB)
            break;
        await_read(&reading);
    }
    pace_begin();
    strike(fabric, peer, owner, &reading);
    result = await_read(&reading);
    CHECK(result == allowed || result == MOO_EPEER);
    CHECK(pace_end() < SOON_S);
    mooi_fabric_statistics(fabric, &count);
    CHECK(!count.reads && !count.asked);
    mooi_fabric_forget(peer);
    free_place(&place);
    mooi_fabric_close(fabric);
}

static void kill_it(struct mooi_fabric *fabric, struct mooi_fabric_peer *peer,
                    struct owner *owner, struct reading *reading)
{
    (void)fabric;
    (void)peer;
    (void)reading;
    kill_owner(owner);
}

static void a_peer_killed_in_mid_transfer_is_an_error(void)
{
    struct owner owner = start_owner(64 * MB, 3);

    check_failure(&owner, MOO_EPEER, kill_it);
}

/* Where the network card itself answers, a stopped process is no obstacle. */
static void stop_it(struct mooi_fabric *fabric, struct mooi_fabric_peer *peer,
                    struct owner *owner, struct reading *reading)
{
    int status;

    (void)fabric;
    (void)peer;
    (void)reading;
    CHECK(send(owner->socket, "f", 1, 0) == 1);
    CHECK(waitpid(owner->pid, &status, WUNTRACED) == owner->pid);
    CHECK(WIFSTOPPED(status));
}

static int has_hardware(void)
{
    const char *provider = getenv("MOOACTOR_FABRIC");

    return provider && !strncmp(provider, "verbs", 5);
}

static void a_peer_that_falls_silent_is_an_error(void)
{
    struct owner owner;

    if (has_hardware())
        return;
    owner = start_owner(64 * MB, 4);
    check_failure(&owner, MOO_ETIMEOUT, stop_it);
    kill_owner(&owner);
}

/* The read is much larger than what the device has of it at a time. */
static void cancel_it(struct mooi_fabric *fabric, struct mooi_fabric_peer *peer,
                      struct owner *owner, struct reading *reading)
{
    moo_err err;

    stop_it(fabric, peer, owner, reading);
    err = mooi_fabric_cancel(fabric, reading);
    CHECK(pace_so_far() < 1.5); /* it began in check_failure */
    CHECK(err == MOO_OK);
    CHECK(!reading->calls);
    CHECK(mooi_fabric_cancel(fabric, reading) == MOO_ESTALE);
    on_read(reading, MOO_EPEER); /* what check_failure waits for */
}

static void a_cancelled_read_from_a_silent_peer_ends_at_once(void)
{
    struct owner owner;

    if (has_hardware())
        return;
    owner = start_owner(64 * MB, 5);
    check_failure(&owner, MOO_EPEER, cancel_it);
    kill_owner(&owner);
}

static void reads_from_a_peer_that_is_forgotten_end(void)
{
    struct owner owner;
    struct mooi_fabric *fabric;
    struct mooi_fabric_peer *peer;
    struct place place;
    struct reading reading = READING;

    if (has_hardware())
        return;
    owner = start_owner(64 * MB, 6);
    fabric = open_fabric();
    place = new_place(fabric, 64 * MB);
    await_owner(&owner);
    peer = connect_to(fabric, &owner);
    CHECK(read_now(peer, &owner, &place, 0, MB) == MOO_OK);
    stop_it(fabric, peer, &owner, NULL);
    begin_read(peer, owner.offer.base, owner.offer.key, &place, 0, 64 * MB,
               &reading);
    pace_begin();
    mooi_fabric_forget(peer);
    CHECK(await_read(&reading) == MOO_EPEER);
    CHECK(pace_end() < 1.5);
    free_place(&place);
    mooi_fabric_close(fabric);
    kill_owner(&owner);
}

/* One that cannot be ended does no harm to those that can go on. */
static void the_reads_of_others_survive_a_cut(void)
{
    struct owner silent, good;
    struct mooi_fabric *fabric;
    struct mooi_fabric_peer *first, *second;
    struct place place, other;
    struct reading lost = READING;
    struct mooi_fabric_statistics count;

    if (has_hardware())
        return;
    silent = start_owner(64 * MB, 7);
    good = start_owner(64 * MB, 8);
    fabric = open_fabric();
    place = new_place(fabric, 64 * MB);
    other = new_place(fabric, 64 * MB);
    await_owner(&silent);
    await_owner(&good);
    first = connect_to(fabric, &silent);
    second = connect_to(fabric, &good);
    CHECK(read_now(first, &silent, &place, 0, MB) == MOO_OK);
    stop_it(fabric, first, &silent, NULL);
    begin_read(first, silent.offer.base, silent.offer.key, &place, 0, 64 * MB,
               &lost);
    while (!has_ended(&lost)) {
        memset(other.memory, 0, 64 * MB);
        CHECK(read_now(second, &good, &other, 0, 64 * MB) == MOO_OK);
        check_bytes(&other, 0, 0, 64 * MB, 8);
    }
    CHECK(await_read(&lost) == MOO_ETIMEOUT);
    mooi_fabric_statistics(fabric, &count);
    CHECK(count.cuts == 1);
    CHECK(read_now(second, &good, &other, 0, 64 * MB) == MOO_OK);
    mooi_fabric_forget(first);
    mooi_fabric_forget(second);
    free_place(&place);
    free_place(&other);
    mooi_fabric_close(fabric);
    kill_owner(&silent);
    end_owner(&good);
}

/* Read from a peer that is well, all the time until `lost` has failed. */
static void read_meanwhile(struct mooi_fabric_peer *peer, struct owner *owner,
                           struct place *place, struct reading *lost)
{
    enum { READS = 4 };
    const size_t each = place->bytes / READS;
    struct reading reading[READS];

    while (!has_ended(lost)) {
        memset(place->memory, 0, place->bytes);
        for (size_t i = 0; i < READS; i++) {
            reading[i] = (struct reading)READING;
            begin_read(peer, owner->offer.base + i * each, owner->offer.key,
                       place, i * each, each, &reading[i]);
        }
        for (size_t i = 0; i < READS; i++)
            CHECK(await_read(&reading[i]) == MOO_OK);
        check_bytes(place, 0, 0, place->bytes, 15);
    }
    CHECK(await_read(lost) == MOO_ETIMEOUT);
}

/* The last resort: while answers of a peer that is well are half received, the
 * endpoint is closed, with which libfabric 1.17.0 crashes if nothing is done
 * before. */
static void an_endpoint_can_be_closed_in_the_middle_of_answers(void)
{
    struct owner silent, good;
    struct mooi_fabric *fabric;
    struct mooi_fabric_peer *first, *second;
    struct mooi_fabric_statistics count;
    struct place place, other;

    if (has_hardware())
        return;
    silent = start_owner(MB, 14);
    good = start_owner(32 * MB, 15);
    fabric = open_fabric();
    place = new_place(fabric, MB);
    other = new_place(fabric, 32 * MB);
    await_owner(&silent);
    await_owner(&good);
    fabric->rough = 1;
    second = connect_to(fabric, &good);
    for (unsigned round = 1; round <= 5; round++) {
        struct reading lost = READING;
        struct mooi_fabric_want want = {
            .from = silent.offer.base, .key = silent.offer.key,
            .into = place.memory, .bytes = MB, .region = place.region,
            .patience_ms = 200, .done = on_read, .cookie = &lost};
        first = connect_to(fabric, &silent);
        CHECK(read_now(first, &silent, &place, 0, MB) == MOO_OK);
        stop_it(fabric, first, &silent, NULL);
        CHECK(mooi_fabric_read(first, &want) == MOO_OK);
        read_meanwhile(second, &good, &other, &lost);
        mooi_fabric_statistics(fabric, &count);
        CHECK(count.cuts == round);
        mooi_fabric_forget(first);
        CHECK(!kill(silent.pid, SIGCONT));
    }
    mooi_fabric_forget(second);
    free_place(&place);
    free_place(&other);
    mooi_fabric_close(fabric);
    kill_owner(&silent);
    end_owner(&good);
}

static void a_peer_that_died_before_the_first_read_is_an_error(void)
{
    struct owner owner = start_owner(MB, 9);
    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, MB);
    struct mooi_fabric_peer *peer;
    char why[MOOI_FABRIC_WHY_BYTES];
    moo_err err;

    await_owner(&owner);
    peer = connect_to(fabric, &owner);
    pace_begin();
    kill_owner(&owner);
    err = read_now(peer, &owner, &place, 0, MB);
    CHECK(err == MOO_ETIMEOUT || err == MOO_EPEER);
    CHECK(pace_end() < SOON_S + CONTACT_MS / 1000.0);
    mooi_fabric_reason(peer, why, sizeof why);
    CHECK(*why);
    mooi_fabric_forget(peer);
    free_place(&place);
    mooi_fabric_close(fabric);
}

/* A refused read, and then one that is allowed, if one is. */
static void check_refusal(uint64_t offset, uint64_t wrong, int private,
                          int withdrawn)
{
    struct owner owner = start_owner(4 * MB, 10);
    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, 4 * MB);
    struct mooi_fabric_peer *peer;
    struct reading reading = READING;
    moo_err err;
    char done;

    await_owner(&owner);
    peer = connect_to(fabric, &owner);
    CHECK(read_now(peer, &owner, &place, 0, MB) == MOO_OK);
    if (withdrawn) {
        CHECK(send(owner.socket, "w", 1, 0) == 1);
        CHECK(recv(owner.socket, &done, 1, 0) == 1);
    }
    pace_begin();
    begin_read(peer, owner.offer.base + offset,
               (private ? owner.offer.private_key : owner.offer.key) ^ wrong,
               &place, 0, 2 * MB, &reading);
    err = await_read(&reading);
    CHECK(err == MOO_EPROTO || err == MOO_EPEER || err == MOO_ETIMEOUT);
    CHECK(pace_end() < SOON_S);
    memset(place.memory, 0, MB);
    err = read_now(peer, &owner, &place, 0, MB);
    CHECK((err == MOO_OK) == !withdrawn);
    if (!withdrawn)
        check_bytes(&place, 0, 0, MB, 10);
    mooi_fabric_forget(peer);
    free_place(&place);
    mooi_fabric_close(fabric);
    end_owner(&owner);
}

static void a_wrong_key_is_an_error(void)
{
    check_refusal(0, 0x5A5A00, 0, 0);
}

/* ofi_rxm over hardware lets others read whatever is registered, if they know
 * its key. */
static void memory_without_permission_is_an_error(void)
{
    if (!has_hardware())
        check_refusal(0, 0, 1, 0);
}

static void memory_that_was_withdrawn_is_an_error(void)
{
    check_refusal(0, 0, 0, 1);
}

static void reading_beyond_the_end_is_an_error(void)
{
    check_refusal(3 * MB, 0, 0, 0);
}

/* ---- ends ---- */

static void close_ends_what_is_under_way(void)
{
    struct owner owner = start_owner(64 * MB, 11);
    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, 64 * MB);
    struct mooi_fabric_peer *peer;
    struct reading reading[20];
    int early = 0;

    await_owner(&owner);
    peer = connect_to(fabric, &owner);
    for (int i = 0; i < 20; i++) {
        reading[i] = (struct reading)READING;
        begin_read(peer, owner.offer.base, owner.offer.key, &place, 0, 64 * MB,
                   &reading[i]);
    }
    mooi_fabric_forget(peer);
    mooi_fabric_close(fabric);
    for (int i = 0; i < 20; i++) {
        CHECK(reading[i].calls == 1);
        early += reading[i].result != MOO_OK;
    }
    CHECK(early);
    munmap(place.memory, place.bytes);
    end_owner(&owner);
}

/* libfabric looks at a new connection some time after it has accepted it, and
 * forgets it if it is closed before: be_owner counts. */
static void connections_as_an_owner_closes_are_not_left(void)
{
    enum { OWNERS = 40 };
    static struct reading reading[OWNERS];
    struct owner owner[OWNERS];
    struct mooi_fabric *fabric;
    struct place place;
    struct pollfd never = {.fd = -1};

    if (has_hardware())
        return;
    for (int i = 0; i < OWNERS; i++)
        owner[i] = start_owner(4096, 15);
    fabric = open_fabric();
    place = new_place(fabric, 4096);
    /* The last first: each has copies of the sockets of those before it. */
    for (int i = OWNERS - 1; i >= 0; i--) {
        struct mooi_fabric_peer *peer;
        await_owner(&owner[i]);
        peer = connect_to(fabric, &owner[i]);
        reading[i] = (struct reading)READING;
        begin_read(peer, owner[i].offer.base, owner[i].offer.key, &place, 0,
                   4096, &reading[i]);
        CHECK(poll(&never, 1, i % 5) == 0);
        end_owner(&owner[i]);
        mooi_fabric_forget(peer);
    }
    for (int i = 0; i < OWNERS; i++)
        (void)await_read(&reading[i]);
    free_place(&place);
    mooi_fabric_close(fabric);
}

static int is_forked;

/* LeakSanitizer asks. In a forked child it misses what only the stacks of
 * threads that are not there refer to. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_forked;
}

/* It must not be used there, but is there when the child exits. */
static void a_child_forked_in_mid_transfer_can_exit(void)
{
    static struct mooi_fabric *fabric; /* the child has it, and no leak */
    struct owner owner = start_owner(16 * MB, 13);
    struct place place;
    struct mooi_fabric_peer *peer;

    fabric = open_fabric();
    place = new_place(fabric, 16 * MB);
    await_owner(&owner);
    peer = connect_to(fabric, &owner);
    for (int i = 0; i < 10; i++) {
        struct reading reading = READING;
        int status;
        pid_t pid;
        begin_read(peer, owner.offer.base, owner.offer.key, &place, 0, 16 * MB,
                   &reading);
        pid = fork_child();
        is_forked = !pid;
        if (!pid)
            exit(0);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
        CHECK(await_read(&reading) == MOO_OK);
        check_bytes(&place, 0, 0, 16 * MB, 13);
    }
    mooi_fabric_forget(peer);
    free_place(&place);
    mooi_fabric_close(fabric);
    end_owner(&owner);
}

static void an_idle_fabric_uses_no_time(void)
{
    struct owner owner = start_owner(MB, 12);
    struct mooi_fabric *fabric = open_fabric();
    struct place place = new_place(fabric, MB);
    struct mooi_fabric_peer *peer;
    struct timespec before, after;
    struct pollfd never = {.fd = -1};

    await_owner(&owner);
    peer = connect_to(fabric, &owner);
    CHECK(read_now(peer, &owner, &place, 0, MB) == MOO_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    CHECK(poll(&never, 1, 500) == 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    CHECK((double)(after.tv_sec - before.tv_sec) +
              (double)(after.tv_nsec - before.tv_nsec) / 1e9 < 0.05);
    mooi_fabric_forget(peer);
    free_place(&place);
    mooi_fabric_close(fabric);
    end_owner(&owner);
}

/* The port that a socket of this process listens on, 0: it does not. */
static uint32_t listened_on(int fd)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at, size = sizeof(int);
    int listens = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) ||
        !listens || getsockname(fd, (struct sockaddr *)&at, &length))
        return 0;
    if (at.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&at)->sin_port);
    return at.ss_family == AF_INET6
               ? ntohs(((struct sockaddr_in6 *)&at)->sin6_port)
               : 0;
}

static void sockets_of_a_fabric_stay_in_the_range_of_ports(void)
{
    struct owner owner = start_owner(MB, 14);
    struct mooi_fabric *fabric;
    struct mooi_fabric_peer *peer;
    struct place place;
    int found = 0;

    first_port = 21000 + (uint32_t)getpid() % 200 * 40;
    last_port = first_port + 39;
    fabric = open_fabric();
    place = new_place(fabric, MB);
    await_owner(&owner);
    peer = connect_to(fabric, &owner);
    CHECK(read_now(peer, &owner, &place, 0, MB) == MOO_OK);
    for (int fd = 3; fd < 1024; fd++) {
        uint32_t port = listened_on(fd);
        CHECK(!port || (first_port <= port && port <= last_port));
        found += port != 0;
    }
    if (!strncmp(mooi_fabric_provider(fabric), "tcp", 3))
        CHECK(found == 2); /* one serves, one reads */
    mooi_fabric_forget(peer);
    free_place(&place);
    mooi_fabric_close(fabric);
    end_owner(&owner);
}

static void a_fabric_without_a_free_port_is_refused(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    int taken = socket(AF_INET, SOCK_STREAM, 0);
    struct mooi_fabric *fabric;
    char why[MOOI_FABRIC_WHY_BYTES] = "";
    moo_err err;

    CHECK(taken >= 0 && !bind(taken, (struct sockaddr *)&any, sizeof any));
    CHECK(!listen(taken, 1));
    first_port = last_port = listened_on(taken);
    err = try_open_fabric(&fabric, why);
    if (err == MOO_OK) { /* no provider over sockets */
        CHECK(strncmp(mooi_fabric_provider(fabric), "tcp", 3));
        mooi_fabric_close(fabric);
    } else {
        CHECK(err == MOO_EUNREACHABLE && strstr(why, "no free port"));
    }
    close(taken);
}

static void what_is_missing_is_said_in_one_sentence(void)
{
    struct mooi_fabric_options options = {.provider = "carrier-pigeon"};
    struct mooi_fabric *fabric;
    char why[MOOI_FABRIC_WHY_BYTES] = "";

    CHECK(mooi_fabric_open(&options, &fabric, why, sizeof why) ==
          MOO_EUNREACHABLE);
    CHECK(strstr(why, "carrier-pigeon") && !strchr(why, '\n'));
    options.provider = "shm";
    CHECK(mooi_fabric_open(&options, &fabric, why, sizeof why) ==
          MOO_EUNREACHABLE);
    CHECK(strstr(why, "keys"));
    options = (struct mooi_fabric_options){.provider = "tcp;ofi_rxm",
                                           .bind = "203.0.113.77"};
    CHECK(mooi_fabric_open(&options, &fabric, why, sizeof why) ==
          MOO_EUNREACHABLE);
    CHECK(strstr(why, "203.0.113.77"));
}

/* ---- memory of devices ---- */

/* Where there are none it is the host's that is registered, in the way that
 * the fabric then demands; and libfabric itself refuses a GPU's. */
static void a_fabric_for_devices_reads_as_any_other(void)
{
    struct mooi_fabric *fabric = NULL;
    struct mooi_fabric_region *region;
    char why[MOOI_FABRIC_WHY_BYTES] = "", memory[64];
    pid_t probe;
    int status;

    for_devices = 1;
    probe = fork_child();
    if (!probe)
        _exit(try_open_fabric(&fabric, why) == MOO_OK ? 0 : 77);
    CHECK(waitpid(probe, &status, 0) == probe && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        printf("skipped: no provider offers FI_HMEM here\n");
        return;
    }
    reads_of_all_sizes_bring_the_right_bytes();
    fabric = open_fabric();
    CHECK(mooi_fabric_takes_devices(fabric));
    if (access("/dev/nvidiactl", F_OK)) {
        CHECK(mooi_fabric_register(fabric, memory, sizeof memory,
                                   MOOI_FABRIC_FROM, MOO_MEMORY_CUDA, 0,
                                   &region) == MOO_ESYS);
        CHECK(*mooi_fabric_strerror(fabric, errno));
    }
    mooi_fabric_close(fabric);
}

static void it_is_the_same_fabric_with_devices_and_without(void)
{
    struct mooi_fabric_options options = {.bind = getenv("TEST_FABRIC_BIND"),
                                          .devices = MOO_DEVICES_IF_OFFERED};
    struct mooi_fabric *plain = open_fabric(), *fabric, *again;
    char why[MOOI_FABRIC_WHY_BYTES] = "", memory[64];
    struct mooi_fabric_region *region;
    moo_err err;

    options.provider = mooi_fabric_provider(plain);
    CHECK(mooi_fabric_open(&options, &fabric, why, sizeof why) == MOO_OK);
    CHECK(!strcmp(mooi_fabric_provider(fabric), mooi_fabric_provider(plain)));
    if (!mooi_fabric_takes_devices(fabric))
        CHECK(mooi_fabric_register(fabric, memory, sizeof memory,
                                   MOOI_FABRIC_FROM, MOO_MEMORY_CUDA, 0,
                                   &region) == MOO_EUNREACHABLE);
    options.devices = MOO_DEVICES_REQUIRED;
    err = mooi_fabric_open(&options, &again, why, sizeof why);
    CHECK((err == MOO_OK) == mooi_fabric_takes_devices(fabric));
    CHECK(err == MOO_OK || strstr(why, "FI_HMEM"));
    if (err == MOO_OK)
        mooi_fabric_close(again);
    mooi_fabric_close(fabric);
    mooi_fabric_close(plain);
}

static void a_missing_library_is_said_in_one_sentence(void)
{
    struct mooi_fabric_options options = {.provider = NULL};
    struct mooi_fabric *fabric;
    char why[MOOI_FABRIC_WHY_BYTES] = "", text[512];

    CHECK(!setenv("MOOACTOR_LIBFABRIC", "/nowhere/libfabric.so", 1));
    CHECK(mooi_fabric_open(&options, &fabric, why, sizeof why) ==
          MOO_EUNREACHABLE);
    CHECK(strstr(why, "install") && !strchr(why, '\n'));
    CHECK(moo_fabric_probe(text, sizeof text) == MOO_EUNREACHABLE);
    CHECK(strstr(text, "install"));
}

static void the_probe_tells_what_is_there(void)
{
    char text[2048];
    moo_err err = moo_fabric_probe(text, sizeof text);

    printf("%s\n", text);
    CHECK(!strncmp(text, "libfabric ", 10));
    CHECK(err == MOO_OK || strstr(text, "\nlibfabric"));
    CHECK(moo_fabric_probe(text, 20) == err && strlen(text) < 20);
}

/* ---- */

/* Whether there is a fabric to test; a process of its own looks. */
static int can_run(void)
{
    pid_t pid = fork_child();
    int status;

    if (!pid) {
        struct mooi_fabric *fabric;
        char why[MOOI_FABRIC_WHY_BYTES] = "";
        if (try_open_fabric(&fabric, why) == MOO_OK) {
            mooi_fabric_close(fabric);
            exit(0);
        }
        printf("skipped: %s\n", why);
        exit(77);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77 && getenv("TEST_FABRIC_REQUIRED"))
        exit(1);
    CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
    return WEXITSTATUS(status) == 0;
}

static const char *only; /* the test to run; NULL: all */

static void run_alone(void (*test)(void), const char *name)
{
    double start = seconds();
    pid_t pid;
    int status;

    if (only && strcmp(only, name))
        return;
    pid = fork_child();
    if (!pid) {
        alarm(ALARM_S); /* a hang is a failure */
        test();
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "failed: %s (status %#x)\n", name, status);
        exit(1);
    }
    printf("ok %s (%.2f s)\n", name, seconds() - start);
    fflush(stdout);
}

#define RUN_ALONE(test) run_alone(test, #test)

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    if (!can_run())
        return 0;
    RUN_ALONE(reads_of_all_sizes_bring_the_right_bytes);
    RUN_ALONE(many_reads_at_once_do_not_mix);
    RUN_ALONE(four_processes_read_from_each_other);
    RUN_ALONE(a_peer_killed_in_mid_transfer_is_an_error);
    RUN_ALONE(a_peer_that_falls_silent_is_an_error);
    RUN_ALONE(a_cancelled_read_from_a_silent_peer_ends_at_once);
    RUN_ALONE(reads_from_a_peer_that_is_forgotten_end);
    RUN_ALONE(the_reads_of_others_survive_a_cut);
    RUN_ALONE(an_endpoint_can_be_closed_in_the_middle_of_answers);
    RUN_ALONE(a_peer_that_died_before_the_first_read_is_an_error);
    RUN_ALONE(a_wrong_key_is_an_error);
    RUN_ALONE(memory_without_permission_is_an_error);
    RUN_ALONE(memory_that_was_withdrawn_is_an_error);
    RUN_ALONE(reading_beyond_the_end_is_an_error);
    RUN_ALONE(close_ends_what_is_under_way);
    RUN_ALONE(connections_as_an_owner_closes_are_not_left);
    RUN_ALONE(a_child_forked_in_mid_transfer_can_exit);
    RUN_ALONE(an_idle_fabric_uses_no_time);
    RUN_ALONE(sockets_of_a_fabric_stay_in_the_range_of_ports);
    RUN_ALONE(a_fabric_without_a_free_port_is_refused);
    RUN_ALONE(what_is_missing_is_said_in_one_sentence);
    RUN_ALONE(a_fabric_for_devices_reads_as_any_other);
    RUN_ALONE(it_is_the_same_fabric_with_devices_and_without);
    RUN_ALONE(a_missing_library_is_said_in_one_sentence);
    RUN_ALONE(the_probe_tells_what_is_there);
    return 0;
}

#endif
