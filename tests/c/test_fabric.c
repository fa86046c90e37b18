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
#include "transport/ofi/internal.h"

UNWATCHED static void check_bytes(const struct place *place, size_t at,
                                  size_t bytes, unsigned seed)
{
    TELL_READ(place->memory + at, bytes);
    for (size_t i = at; i < at + bytes; i++)
        if (place->memory[i] != byte_at(i, seed)) {
            fprintf(stderr, "byte %zu differs\n", i);
            exit(1);
        }
}

static moo_err result_of(struct pair *pair, struct reading *reading)
{
    char why[MOOI_FABRIC_WHY_BYTES];
    moo_err err = await_read(reading);

    mooi_fabric_reason(pair->peer, why, sizeof why);
    if (err != MOO_OK)
        fprintf(stderr, "%s: %s\n", moo_strerror(err), why);
    return err;
}

static moo_err read_now(struct pair *pair, size_t at, size_t bytes)
{
    struct reading reading;

    begin_part(pair, at, bytes, &reading);
    return result_of(pair, &reading);
}

static struct mooi_fabric_statistics look(struct mooi_fabric *fabric)
{
    struct mooi_fabric_statistics now;

    mooi_fabric_statistics(fabric, &now);
    return now;
}

/* ---- what works ---- */

static void reads_of_all_sizes_bring_the_right_bytes(void)
{
    static const size_t sizes[] = {0,      1,          7,      4096,
                                   MB - 1, MB,         MB + 1, 8 * MB + 3,
                                   32 * MB};
    struct pair pair = new_pair(33 * MB, 1);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t at = sizes[i] % 5003, end = at + sizes[i];
        memset(pair.place.memory, 0xAA, end + 1);
        CHECK(read_now(&pair, at, sizes[i]) == MOO_OK);
        check_bytes(&pair.place, at, sizes[i], 1);
        CHECK(pair.place.memory[end] == 0xAA);
        CHECK(!at || pair.place.memory[at - 1] == 0xAA);
    }
    CHECK(!look(pair.fabric).reads && !look(pair.fabric).asked);
    CHECK(!look(pair.fabric).cuts && look(pair.fabric).received >= 40 * MB);
    end_pair(&pair);
}

/* ---- what fails ---- */

/* A large read of which some is here. */
static struct pair begin_in_vain(struct reading *reading, unsigned seed)
{
    struct pair pair = new_pair(64 * MB, seed);
    uint32_t borne_ms = patience_ms;

    patience_ms = 60000; /* making contact is not what is tested */
    CHECK(read_now(&pair, 0, MB) == MOO_OK);
    patience_ms = borne_ms;
    for (int i = 0; i < 200; i++) { /* much more than can be here at once */
        begin_part(&pair, 0, 64 * MB, reading);
        CHECK_SOON(look(pair.fabric).received);
        if (look(pair.fabric).asked > 32 * MB)
            break;
        await_read(reading);
    }
    return pair;
}

static void end_in_vain(struct pair *pair)
{
    CHECK(!look(pair->fabric).reads && !look(pair->fabric).asked);
    end_reader(pair);
}

/* Where the network card itself answers, a stopped process is no obstacle. */
static int has_hardware(void)
{
    const char *provider = getenv("MOOACTOR_FABRIC");

    return provider && !strncmp(provider, "verbs", 5);
}

static void stop_it(struct owner *owner)
{
    int status;

    CHECK(send(owner->socket, "f", 1, 0) == 1);
    CHECK(waitpid(owner->pid, &status, WUNTRACED) == owner->pid);
    CHECK(WIFSTOPPED(status));
}

static void a_peer_that_falls_silent_is_an_error(void)
{
    struct reading reading;
    struct pair pair;
    moo_err err;

    if (has_hardware())
        return;
    patience_ms = 300;
    pair = begin_in_vain(&reading, 4);
    stop_it(&pair.owner);
    err = result_of(&pair, &reading);
    CHECK(err == MOO_ETIMEOUT || err == MOO_EPEER);
    end_in_vain(&pair);
    kill_owner(&pair.owner);
}

/* The read is much larger than what the device has of it at a time. */
static void a_cancelled_read_from_a_silent_peer_ends_at_once(void)
{
    struct reading reading;
    struct pair pair;

    if (has_hardware())
        return;
    pair = begin_in_vain(&reading, 5);
    stop_it(&pair.owner);
    CHECK(mooi_fabric_cancel(pair.fabric, &reading) == MOO_OK);
    CHECK(!has_ended(&reading));
    CHECK(mooi_fabric_cancel(pair.fabric, &reading) == MOO_ESTALE);
    end_in_vain(&pair);
    kill_owner(&pair.owner);
}

static void reads_from_a_peer_that_is_forgotten_end(void)
{
    struct reading reading;
    struct pair pair;

    if (has_hardware())
        return;
    pair = new_pair(64 * MB, 6);
    CHECK(read_now(&pair, 0, MB) == MOO_OK);
    stop_it(&pair.owner);
    begin_part(&pair, 0, 64 * MB, &reading);
    mooi_fabric_forget(pair.peer);
    CHECK(await_read(&reading) == MOO_EPEER);
    free_place(&pair.place);
    mooi_fabric_close(pair.fabric);
    kill_owner(&pair.owner);
}

static void check_refusal(struct pair *pair, uint64_t from, uint64_t key)
{
    struct reading reading = READING;
    moo_err err;

    patience_ms = 3000;
    begin_read(pair->peer, from, key, &pair->place, 0, 2 * MB, &reading);
    patience_ms = 60000;
    err = result_of(pair, &reading);
    CHECK(err == MOO_EPROTO || err == MOO_EPEER || err == MOO_ETIMEOUT);
}

/* And then one that is, is none. */
static void a_read_that_is_not_allowed_is_an_error(void)
{
    struct pair pair = new_pair(4 * MB, 10);
    const struct offer *offer = &pair.owner.offer;
    uint64_t wrong[][2] = {{offer->base, offer->key ^ 0x5A5A00},
                           {offer->base + 3 * MB, offer->key}, /* its end */
                           {offer->base, offer->private_key}};
    /* ofi_rxm over hardware lets others read whatever is registered, if they
     * know its key. */
    size_t count = has_hardware() ? 2 : 3;
    char done;

    for (size_t i = 0; i < count; i++) {
        check_refusal(&pair, wrong[i][0], wrong[i][1]);
        memset(pair.place.memory, 0, MB);
        CHECK(read_now(&pair, 0, MB) == MOO_OK);
        check_bytes(&pair.place, 0, MB, 10);
    }
    CHECK(send(pair.owner.socket, "w", 1, 0) == 1); /* it withdraws all */
    CHECK(recv(pair.owner.socket, &done, 1, 0) == 1);
    check_refusal(&pair, offer->base, offer->key);
    end_pair(&pair);
}

/* ---- ends ---- */

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
    static struct pair pair; /* the child has it, and no leak */

    pair = new_pair(16 * MB, 13);
    for (int i = 0; i < 10; i++) {
        struct reading reading;
        int status;
        pid_t pid;
        begin_part(&pair, 0, 16 * MB, &reading);
        pid = fork_child();
        is_forked = !pid;
        if (!pid)
            exit(0);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
        CHECK(result_of(&pair, &reading) == MOO_OK);
        check_bytes(&pair.place, 0, 16 * MB, 13);
    }
    end_pair(&pair);
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
    struct pair pair = {.owner = start_owner(MB, 14)};
    int found = 0;

    first_port = 21000 + (uint32_t)getpid() % 200 * 40;
    last_port = first_port + 39;
    pair.fabric = open_fabric();
    pair.place = new_place(pair.fabric, MB);
    await_owner(&pair.owner);
    pair.peer = connect_to(pair.fabric, &pair.owner);
    CHECK(read_now(&pair, 0, MB) == MOO_OK);
    for (int fd = 3; fd < 1024; fd++) {
        uint32_t port = listened_on(fd);
        CHECK(!port || (first_port <= port && port <= last_port));
        found += port != 0;
    }
    if (!strncmp(mooi_fabric_provider(pair.fabric), "tcp", 3))
        CHECK(found == 2); /* one serves, one reads */
    end_pair(&pair);
}

/* Each looks for free ports while the others do. */
static void fabrics_opened_at_once_share_a_range_of_ports(void)
{
    enum { OWNERS = 6 };
    struct owner owner[OWNERS];
    struct pair pair;

    first_port = 31000 + (uint32_t)getpid() % 200 * 40;
    last_port = first_port + 4 * (OWNERS + 1) - 1;
    for (int i = 0; i < OWNERS; i++)
        owner[i] = start_owner(MB, 15 + (unsigned)i);
    pair.fabric = open_fabric();
    pair.place = new_place(pair.fabric, MB);
    for (int i = 0; i < OWNERS; i++) {
        pair.owner = owner[i];
        await_owner(&pair.owner);
        pair.peer = connect_to(pair.fabric, &pair.owner);
        CHECK(read_now(&pair, 0, MB) == MOO_OK);
        check_bytes(&pair.place, 0, MB, 15 + (unsigned)i);
        mooi_fabric_forget(pair.peer);
    }
    free_place(&pair.place);
    mooi_fabric_close(pair.fabric);
    for (int i = 0; i < OWNERS; i++)
        end_owner(&owner[i]);
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
    if (!probe) {
        int opens = try_open_fabric(&fabric, why) == MOO_OK;
        if (opens)
            mooi_fabric_close(fabric); /* its file in /dev/shm, too */
        _exit(opens ? 0 : 77);
    }
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

/* ---- each in a process of its own ---- */

static const char *only; /* the test to run; NULL: all */

/* How the process ended. */
static int run_alone(void (*test)(void))
{
    pid_t pid = fork_child();
    int status;

    if (!pid) {
        alarm(ALARM_S); /* a hang is a failure */
        test();
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void check_alone(void (*test)(void), const char *name)
{
    int status;

    if (only && strcmp(only, name))
        return;
    status = run_alone(test);
    if (status) {
        fprintf(stderr, "failed: %s (status %#x)\n", name, status);
        exit(1);
    }
    printf("ok %s\n", name);
    fflush(stdout);
}

static void look_for_a_fabric(void)
{
    struct mooi_fabric *fabric;
    char why[MOOI_FABRIC_WHY_BYTES] = "";

    if (try_open_fabric(&fabric, why) != MOO_OK) {
        printf("skipped: %s\n", why);
        exit(77);
    }
    mooi_fabric_close(fabric);
}

#define RUN_ALONE(test) check_alone(test, #test)

int main(int argc, char **argv)
{
    int status = run_alone(look_for_a_fabric);

    only = argc > 1 ? argv[1] : NULL;
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        return getenv("TEST_FABRIC_REQUIRED") != NULL;
    CHECK(!WEXITSTATUS(status));
    RUN_ALONE(reads_of_all_sizes_bring_the_right_bytes);
    RUN_ALONE(a_peer_that_falls_silent_is_an_error);
    RUN_ALONE(a_cancelled_read_from_a_silent_peer_ends_at_once);
    RUN_ALONE(reads_from_a_peer_that_is_forgotten_end);
    RUN_ALONE(a_read_that_is_not_allowed_is_an_error);
    RUN_ALONE(a_child_forked_in_mid_transfer_can_exit);
    RUN_ALONE(sockets_of_a_fabric_stay_in_the_range_of_ports);
    RUN_ALONE(fabrics_opened_at_once_share_a_range_of_ports);
    RUN_ALONE(a_fabric_for_devices_reads_as_any_other);
    return 0;
}

#endif
