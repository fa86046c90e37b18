/* SPDX-License-Identifier: MIT */
/*
 * The plane between real processes: values, leases, hand-over, and what is left
 * after a kill at any point.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "check.h"
#include "plane/route.h"
#include "core/pages.h"

#define MB ((size_t)1 << 20)
#define TIMEOUT_MS 5000

static char directory[] = "/tmp/mooactor-test-XXXXXX";
static const uint8_t key[MOO_KEY_BYTES] = "the session key";
static uint64_t next_id = 0x10000;

static moo_plane *open_plane(uint64_t id)
{
    moo_plane *opened;

    CHECK(moo_plane_open(directory, id, key, 256 * MB, &opened) == MOO_OK);
    return opened;
}

static uint64_t new_id(void)
{
    return next_id += 0x10000;
}

static uint64_t leases(moo_plane *of)
{
    moo_statistics now;

    moo_plane_statistics(of, &now);
    return now.leases;
}

static uint64_t used(moo_plane *of)
{
    moo_statistics now;

    moo_plane_statistics(of, &now);
    return now.used;
}

/* ---- the plane of a test, and the processes that it has to do with ---- */

/* Another process with a plane of its own, at the other end of a socket. */
struct other {
    pid_t pid; /* 0: it has ended */
    uint64_t id;
    int socket;
};

typedef void role(moo_plane *plane, int socket);

static moo_plane *plane; /* this process's */
static struct other others[64];
static int count;

static struct other *start(role *play)
{
    struct other *other = &others[count];
    char ready;
    int ends[2];

    CHECK(count++ < 64);
    other->id = new_id();
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    other->pid = fork();
    CHECK(other->pid >= 0);
    if (!other->pid) {
        close(ends[0]);
        for (int i = 0; i < count - 1; i++) /* theirs must not stay open */
            if (others[i].pid)
                close(others[i].socket);
        plane = open_plane(other->id);
        CHECK(send(ends[1], "", 1, 0) == 1); /* it is there */
        play(plane, ends[1]);
        moo_plane_free(plane);
        exit(0);
    }
    close(ends[1]);
    other->socket = ends[0];
    CHECK(recv(ends[0], &ready, 1, 0) == 1);
    return other;
}

static void finish(struct other *other)
{
    int status;

    close(other->socket);
    CHECK(waitpid(other->pid, &status, 0) == other->pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    other->pid = 0;
}

static void slay(struct other *other)
{
    kill(other->pid, SIGKILL);
    waitpid(other->pid, NULL, 0);
    close(other->socket);
    other->pid = 0;
}

/* At the end all memory has come back. */
static void run(void (*test)(void), const char *name)
{
    alarm(ALARM_S); /* a hang is a failure */
    plane = open_plane(new_id());
    count = 0;
    test();
    for (int i = 0; i < count; i++)
        if (others[i].pid)
            finish(&others[i]);
    CHECK_SOON(plane->closed || (used(plane) == 0 && leases(plane) == 0));
    moo_plane_free(plane);
    printf("ok %s\n", name);
    fflush(stdout);
}

static void say(int socket, const void *data, size_t bytes)
{
    CHECK(send(socket, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
}

/* 0 when the other side is gone. */
static int listen_to(int socket, void *data, size_t bytes)
{
    ssize_t got = recv(socket, data, bytes, 0);

    CHECK(got <= 0 || got == (ssize_t)bytes);
    return got > 0;
}

static void send_to(struct other *to, const void *data, size_t bytes)
{
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];

    CHECK(moo_export(plane, data, bytes, to->id, 0, descriptor) == MOO_OK);
    say(to->socket, descriptor, sizeof descriptor);
}

/* ---- roles of the other process ---- */

/* Import whatever comes, answer with the sum of its bytes, scribble on it. */
static void sum_up(moo_plane *plane, int socket)
{
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];

    while (listen_to(socket, descriptor, sizeof descriptor)) {
        uint64_t sum = 0;
        void *data;
        size_t bytes;
        CHECK(moo_import(plane, descriptor, sizeof descriptor, TIMEOUT_MS,
                         &data, &bytes) == MOO_OK);
        for (size_t i = 0; i < bytes; i++)
            sum += ((uint8_t *)data)[i];
        memset(data, 0xff, bytes);
        moo_drop(plane, data);
        say(socket, &sum, sizeof sum);
    }
}

/* Import and keep. */
static void hoard(moo_plane *plane, int socket)
{
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    uint64_t done = 1;
    void *hoarded[64];
    int count = 0;

    while (listen_to(socket, descriptor, sizeof descriptor)) {
        size_t bytes;
        CHECK(count < 64);
        CHECK(moo_import(plane, descriptor, sizeof descriptor, TIMEOUT_MS,
                         &hoarded[count++], &bytes) == MOO_OK);
        say(socket, &done, sizeof done);
    }
    while (count)
        moo_drop(plane, hoarded[--count]);
}

/* Receive nothing at all. */
static void stand_still(moo_plane *plane, int socket)
{
    struct pollfd hangup = {.fd = socket, .events = 0};

    (void)plane;
    poll(&hangup, 1, -1);
}

static uint64_t answer_of(struct other *other)
{
    uint64_t answer;

    CHECK(listen_to(other->socket, &answer, sizeof answer));
    return answer;
}

/* ---- values ---- */

static void private_memory_arrives_as_it_was(void)
{
    struct other *other = start(sum_up);
    static uint8_t data[3 * 1000 * 1000];

    for (int n = 1; n <= 3; n++) {
        memset(data, n, sizeof data);
        send_to(other, data, sizeof data);
        memset(data, 0, sizeof data); /* too late to be seen */
        CHECK(answer_of(other) == (uint64_t)n * sizeof data);
        CHECK(used(plane) == 0);
    }
}

static void shared_memory_is_sent_without_a_copy_and_keeps_its_value(void)
{
    struct other *other = start(sum_up);
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES], *data;
    moo_statistics now;

    CHECK(moo_empty(plane, MB, (void **)&data) == MOO_OK);
    memset(data, 3, MB);
    for (int n = 0; n < 5; n++) {
        send_to(other, data, MB);
        CHECK(answer_of(other) == 3 * MB); /* and it scribbles on it */
    }
    moo_plane_statistics(plane, &now);
    CHECK(now.exports_copied == 0);
    CHECK(moo_export(plane, data, MB, other->id, 0, descriptor) == MOO_OK);
    data[5] = 4; /* not seen by what was exported before */
    say(other->socket, descriptor, sizeof descriptor);
    CHECK(answer_of(other) == 3 * MB);
    send_to(other, data, MB);
    CHECK(answer_of(other) == 3 * MB + 1);
    moo_plane_statistics(plane, &now);
    CHECK(now.exports_copied == 1);
    moo_drop(plane, data);
    CHECK(used(plane) == 0);
}

static void a_descriptor_is_good_for_one_import(void)
{
    uint8_t d[MOO_DESCRIPTOR_BYTES];
    void *data;
    size_t bytes;

    CHECK(moo_export(plane, directory, 10, plane->id, 0, d) == MOO_OK);
    CHECK(moo_is_unclaimed(plane, d, sizeof d));
    CHECK(!moo_is_unclaimed(plane, d, sizeof d - 1));
    CHECK(moo_import(plane, d, sizeof d, 0, &data, &bytes) == MOO_OK);
    CHECK(!moo_is_unclaimed(plane, d, sizeof d));
    CHECK(moo_import(plane, d, sizeof d, 0, &data, &bytes) == MOO_ESTALE);
    CHECK(moo_revoke(plane, d, sizeof d) == MOO_OK); /* too late: nothing */
    CHECK(used(plane) > 0);
    moo_drop(plane, data);
    CHECK(moo_export(plane, directory, 10, plane->id, 0, d) == MOO_OK);
    CHECK(moo_revoke(plane, d, sizeof d) == MOO_OK);
    CHECK(!moo_is_unclaimed(plane, d, sizeof d));
    CHECK(moo_import(plane, d, sizeof d, 0, &data, &bytes) == MOO_ESTALE);
    CHECK(moo_export(plane, directory, 10, plane->id, 0, d) == MOO_OK);
    CHECK(moo_discard(plane, d, sizeof d, 0) == MOO_OK);
    CHECK(used(plane) == 0 && leases(plane) == 0);
}

/* ---- passing on ---- */

/* Import, then export to the process whose id comes behind the descriptor. */
struct pass {
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    uint64_t to;
    uint64_t dirty; /* write on it before; answer: so many copies */
};

static void pass_on(moo_plane *plane, int socket)
{
    struct pass pass;

    while (listen_to(socket, &pass, sizeof pass)) {
        moo_statistics now;
        void *data;
        size_t bytes;
        CHECK(moo_import(plane, pass.descriptor, sizeof pass.descriptor,
                         TIMEOUT_MS, &data, &bytes) == MOO_OK);
        if (pass.dirty)
            ((uint8_t *)data)[0] += 1;
        CHECK(moo_export(plane, data, bytes, pass.to, 0, pass.descriptor) ==
              MOO_OK);
        moo_drop(plane, data);
        moo_plane_statistics(plane, &now);
        pass.dirty = now.exports_copied;
        say(socket, &pass, sizeof pass);
    }
}

static struct pass pass_through(struct other *middle, const void *data,
                                uint64_t to, uint64_t dirty)
{
    struct pass pass = {.to = to, .dirty = dirty};

    CHECK(!moo_export(plane, data, MB, middle->id, 0, pass.descriptor));
    say(middle->socket, &pass, sizeof pass);
    CHECK(listen_to(middle->socket, &pass, sizeof pass));
    CHECK(pass.dirty == dirty);
    return pass;
}

/* To a third process, or back to its owner. */
static void received_memory_is_passed_on_without_a_copy(void)
{
    struct other *middle = start(pass_on), *last = start(sum_up);
    static uint8_t data[MB];
    struct pass back;
    size_t bytes;
    void *at;

    memset(data, 2, sizeof data);
    for (uint64_t dirty = 0; dirty < 2; dirty++) {
        struct pass pass = pass_through(middle, data, last->id, dirty);
        say(last->socket, pass.descriptor, sizeof pass.descriptor);
        CHECK(answer_of(last) == 2 * MB + dirty);
    }
    back = pass_through(start(pass_on), data, plane->id, 0);
    CHECK(!moo_import(plane, back.descriptor, sizeof back.descriptor,
                      TIMEOUT_MS, &at, &bytes));
    CHECK(bytes == MB && !memcmp(at, data, MB));
    moo_drop(plane, at);
}

/* ---- moving ---- */

/* Add one to the first byte of what comes, in place. */
static void increment(moo_plane *plane, int socket)
{
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    uint64_t done = 1;

    while (listen_to(socket, descriptor, sizeof descriptor)) {
        uint8_t *data;
        size_t bytes;
        CHECK(moo_import(plane, descriptor, sizeof descriptor, TIMEOUT_MS,
                         (void **)&data, &bytes) == MOO_OK);
        data[0]++;
        say(socket, &done, sizeof done);
        CHECK(listen_to(socket, descriptor, 1));
        moo_drop(plane, data);
    }
}

static void moved_memory_is_the_receivers_own(void)
{
    struct other *other = start(increment);
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES], *data;

    CHECK(moo_empty(plane, MB, (void **)&data) == MOO_OK);
    data[0] = 1;
    CHECK(moo_move(plane, data) == MOO_OK);
    send_to(other, data, MB);
    answer_of(other);
    CHECK(data[0] == 2); /* the very memory: nobody may look, but a test may */
    CHECK(moo_export(plane, data, MB, other->id, 0, descriptor) == MOO_ESTALE);
    CHECK(moo_move(plane, data) == MOO_ESTALE);
    say(other->socket, "", 1);
    moo_drop(plane, data);
}

static void memory_that_others_hold_is_copied_when_moved(void)
{
    struct other *reader = start(hoard), *other = start(increment);
    uint8_t *data;

    CHECK(moo_empty(plane, MB, (void **)&data) == MOO_OK);
    memset(data, 1, MB);
    send_to(reader, data, MB);
    answer_of(reader);
    CHECK(moo_move(plane, data) == MOO_OK);
    send_to(other, data, MB);
    answer_of(other);
    CHECK(data[0] == 1);
    say(other->socket, "", 1);
    moo_drop(plane, data);
}

/* ---- deaths of receivers ---- */

/* Whether it held something, used it or did not look at it yet. */
static void a_kill_at_any_time_leaks_nothing(void)
{
    static uint8_t data[256 * 1024];
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    static role *const roles[] = {hoard, sum_up, stand_still};
    unsigned seed = 3;

    for (int n = 0; n < 15; n++) {
        struct other *other = start(roles[n % 3]);
        int sent = 1 + rand_r(&seed) % 30;
        for (int i = 0; i < sent; i++) {
            CHECK(moo_export(plane, data, sizeof data, other->id, 0,
                             descriptor) == MOO_OK);
            if (send(other->socket, descriptor, sizeof descriptor,
                     MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                break;
        }
        slay(other);
        CHECK_SOON(used(plane) == 0 && leases(plane) == 0);
        CHECK(moo_export(plane, data, 1, other->id, 0, descriptor) ==
              MOO_EPEER);
        CHECK(used(plane) == 0);
    }
    /* At most a kill between mark and push costs an entry of the ledger. */
    CHECK(plane->leases.made <= 64 + 64);
}

static void of_a_death_before_the_first_contact_one_must_be_told(void)
{
    uint64_t never = new_id();
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];

    CHECK(!moo_export(plane, directory, 1, never, 0, descriptor));
    CHECK(leases(plane) == 1);
    moo_peer_lost(plane, never, 0);
    CHECK(used(plane) == 0 && leases(plane) == 0);
    CHECK(moo_export(plane, directory, 1, never, 0, descriptor) == MOO_EPEER);
}

static void a_message_to_a_process_that_is_still_starting_waits(void)
{
    uint64_t late_id = new_id();
    uint8_t d[MOO_DESCRIPTOR_BYTES], *data;
    moo_plane *late;
    size_t bytes;

    CHECK(moo_export(plane, directory, 4, late_id, 0, d) == MOO_OK);
    late = open_plane(late_id);
    CHECK(!moo_import(late, d, sizeof d, TIMEOUT_MS, (void **)&data, &bytes));
    CHECK(!memcmp(data, directory, 4));
    moo_drop(late, data);
    moo_plane_free(late);
}

/* ---- deaths of owners ---- */

/* Export what is asked for, to the process that asks. */
static void serve_bytes(moo_plane *plane, int socket)
{
    static uint8_t data[MB];
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    uint64_t asker;

    memset(data, 5, sizeof data);
    while (listen_to(socket, &asker, sizeof asker)) {
        CHECK(moo_export(plane, data, sizeof data, asker, 0, descriptor) ==
              MOO_OK);
        say(socket, descriptor, sizeof descriptor);
    }
}

static void ask_for(struct other *other, uint64_t asker, uint8_t *descriptor)
{
    say(other->socket, &asker, sizeof asker);
    CHECK(listen_to(other->socket, descriptor, MOO_DESCRIPTOR_BYTES));
}

/* Import what came, and see that it is whole. */
static uint8_t *take(const uint8_t *descriptor)
{
    uint8_t *data;
    size_t bytes;

    CHECK(!moo_import(plane, descriptor, MOO_DESCRIPTOR_BYTES, TIMEOUT_MS,
                      (void **)&data, &bytes));
    CHECK(bytes == MB && data[0] == 5 && data[MB - 1] == 5);
    return data;
}

static int maps_of_slabs(void)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        found += strstr(line, "mooactor-slab") != NULL;
    fclose(maps);
    return found;
}

static void what_a_killed_owner_sent_stays_readable(void)
{
    struct other *other = start(serve_bytes);
    uint8_t early[MOO_DESCRIPTOR_BYTES], late[MOO_DESCRIPTOR_BYTES];
    uint8_t *data, *more;

    ask_for(other, plane->id, early);
    data = take(early);
    ask_for(other, plane->id, late);
    slay(other);
    more = take(late); /* sent before the death, imported after it */
    more[7] = 6;
    moo_peer_lost(plane, other->id, 0);
    CHECK(data[0] == 5 && data[7] == 5 && more[7] == 6);
    moo_drop(plane, data);
    CHECK(more[0] == 5 && more[7] == 6);
    CHECK(maps_of_slabs() > 0);
    moo_drop(plane, more);
    CHECK_SOON(maps_of_slabs() == 0);
}

/* Also one with which there was no contact before. */
static void an_owner_killed_at_any_time_harms_nobody(void)
{
    unsigned seed = 9;

    for (int n = 0; n < 10; n++) {
        struct other *other = start(serve_bytes);
        uint8_t d[8][MOO_DESCRIPTOR_BYTES];
        int asked = 1 + rand_r(&seed) % 8, read = rand_r(&seed) % asked;
        for (int i = 0; i < asked; i++)
            say(other->socket, &plane->id, 8);
        for (int i = 0; i < read; i++)
            CHECK(listen_to(other->socket, d[i], sizeof d[i]));
        slay(other); /* in the middle of the others */
        for (int i = 0; i < read; i++) {
            uint8_t *data = take(d[i]);
            data[0] = 6;
            moo_drop(plane, data);
        }
        moo_peer_lost(plane, other->id, 0);
    }
    CHECK_SOON(maps_of_slabs() == 0);
}

/* ---- ends ---- */

static void closing_leaves_what_was_received_as_it_was(void)
{
    struct other *other = start(serve_bytes);
    uint8_t d[MOO_DESCRIPTOR_BYTES], *data;

    ask_for(other, plane->id, d);
    data = take(d);
    moo_plane_close(plane);
    CHECK(moo_export(plane, d, 1, other->id, 0, d) == MOO_ECLOSED);
    /* The owner goes on and re-uses what is free: not this. */
    for (int n = 0; n < 20; n++)
        ask_for(other, new_id(), d);
    CHECK(data[0] == 5 && data[MB - 1] == 5);
    moo_drop(plane, data);
}

static void a_forked_child_is_refused_and_harms_nothing(void)
{
    struct other *other = start(hoard);
    static uint8_t data[MB];
    int status;
    pid_t child;

    send_to(other, data, sizeof data);
    answer_of(other);
    child = fork();
    if (!child) {
        uint8_t d[MOO_DESCRIPTOR_BYTES];
        CHECK(moo_export(plane, data, 1, other->id, 0, d) == MOO_EFORK);
        moo_plane_close(plane);
        moo_plane_free(plane);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(leases(plane) == 1);
    send_to(other, data, sizeof data);
    answer_of(other);
}

/* ---- strangers ---- */

static int connect_to_socket_of(uint64_t id, const uint8_t *with_key)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[MOOI_NAME_BYTES];
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    mooi_socket_name(with_key, id, name);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory,
             name);
    if (!connect(fd, (struct sockaddr *)&address, sizeof address))
        return fd;
    close(fd);
    return -1;
}

static void who_lacks_the_key_is_hung_up_on(void)
{
    struct other *other = start(serve_bytes);
    uint8_t wrong[MOO_KEY_BYTES] = "another key", bytes[MOOI_MESSAGE_BYTES];
    struct mooi_message hello = {.kind = MOOI_MSG_HELLO};
    uint8_t d[MOO_DESCRIPTOR_BYTES];
    int stranger, fd;

    CHECK(connect_to_socket_of(plane->id, wrong) < 0); /* cannot name it */
    stranger = connect_to_socket_of(plane->id, key);
    CHECK(stranger >= 0);
    CHECK(!mooi_memfd("x", MOOI_LEDGER_BYTES(64), &fd));
    hello.u.hello.from = other->id; /* pretends to be the other */
    hello.u.hello.to = plane->id;
    hello.u.hello.entries = 64;
    mooi_hello_proof(wrong, other->id, plane->id, hello.u.hello.proof);
    CHECK(mooi_link_send(stranger, &hello, fd) == MOO_OK);
    ask_for(other, plane->id, d);
    moo_drop(plane, take(d)); /* the real one's */
    CHECK(recv(stranger, bytes, sizeof bytes, 0) == 0);
    close(stranger);
    close(fd);
}

/* A peer with the key that sends random bytes where requests belong. */
static void nonsense_from_a_peer_changes_nothing(void)
{
    moo_plane *holder = open_plane(new_id());
    static uint8_t data[MB];
    uint8_t d[MOO_DESCRIPTOR_BYTES], noise[MOOI_MESSAGE_BYTES];
    void *held;
    size_t size;

    CHECK(!moo_export(plane, data, MB, holder->id, 0, d));
    CHECK(!moo_import(holder, d, sizeof d, TIMEOUT_MS, &held, &size));
    srandom(5);
    for (int i = 0; i < 1000; i++) {
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (uint8_t)random();
        if (i % 2)
            memcpy(noise, "MOOL\1\0\3\0", 8);
        send(holder->local.owners->fd, noise, sizeof noise,
             MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    CHECK(leases(plane) == 1);
    CHECK(!moo_export(plane, data, MB, holder->id, 0, d));
    CHECK(!moo_revoke(plane, d, sizeof d));
    moo_drop(holder, held);
    moo_plane_free(holder);
}

/* ---- threads ---- */

/* The asker gave up waiting for the answer, and let go of the memory. */
static void a_lease_that_was_given_back_is_passed_on_to_nobody(void)
{
    moo_plane *asker = open_plane(new_id());
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    struct mooi_descriptor parsed, granted;
    struct mooi_grant grant = {.holder = asker->id, .to = new_id()};
    static char data[MB];
    size_t bytes;
    void *at;

    CHECK(!moo_export(plane, data, MB, asker->id, 0, descriptor));
    CHECK(!mooi_descriptor_parse(descriptor, sizeof descriptor, &parsed));
    CHECK(!moo_import(asker, descriptor, sizeof descriptor, TIMEOUT_MS, &at,
                      &bytes));
    pthread_mutex_lock(&plane->lock); /* its thread does not see the end */
    moo_drop(asker, at);
    grant.lease = parsed.lease;
    grant.generation = parsed.generation;
    grant.slab = parsed.slab;
    grant.offset = parsed.offset;
    grant.length = parsed.length;
    CHECK(mooi_peer_grant(plane, &grant, 1, &granted) == MOO_ESTALE);
    pthread_mutex_unlock(&plane->lock);
    moo_plane_free(asker);
}

#define RUN_WITH_A_PLANE(test) run(test, #test)

int main(void)
{
    CHECK(mkdtemp(directory));
    RUN_WITH_A_PLANE(private_memory_arrives_as_it_was);
    RUN_WITH_A_PLANE(shared_memory_is_sent_without_a_copy_and_keeps_its_value);
    RUN_WITH_A_PLANE(a_descriptor_is_good_for_one_import);
    RUN_WITH_A_PLANE(received_memory_is_passed_on_without_a_copy);
    RUN_WITH_A_PLANE(moved_memory_is_the_receivers_own);
    RUN_WITH_A_PLANE(memory_that_others_hold_is_copied_when_moved);
    RUN_WITH_A_PLANE(a_kill_at_any_time_leaks_nothing);
    RUN_WITH_A_PLANE(of_a_death_before_the_first_contact_one_must_be_told);
    RUN_WITH_A_PLANE(a_message_to_a_process_that_is_still_starting_waits);
    RUN_WITH_A_PLANE(what_a_killed_owner_sent_stays_readable);
    RUN_WITH_A_PLANE(an_owner_killed_at_any_time_harms_nobody);
    RUN_WITH_A_PLANE(closing_leaves_what_was_received_as_it_was);
    RUN_WITH_A_PLANE(a_forked_child_is_refused_and_harms_nothing);
    RUN_WITH_A_PLANE(who_lacks_the_key_is_hung_up_on);
    RUN_WITH_A_PLANE(nonsense_from_a_peer_changes_nothing);
    RUN_WITH_A_PLANE(a_lease_that_was_given_back_is_passed_on_to_nobody);
    remove_directory(directory);
    return 0;
}
