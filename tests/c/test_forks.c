/* SPDX-License-Identifier: MIT */
/*
 * The memory of a forked child stays as it was, and comes back when the child, and
 * its own children, have gone.
 */
#include <fcntl.h>

#include "check.h"
#include "children.h"
#include "plane/plane.h"

#define MB ((size_t)1 << 20)
#define TIMEOUT_MS 5000
#define ROUNDS 10

static char directory[] = "/tmp/mooactor-test-XXXXXX";
static const uint8_t key[MOO_KEY_BYTES] = "the session key";
static uint64_t next_id = 0x10000;
static moo_plane *owner, *importer;
static uint64_t importer_id;

static void open_both(void)
{
    importer_id = next_id += 0x10000;
    CHECK(!moo_plane_open(directory, next_id += 0x10000, key, 64 * MB, &owner));
    CHECK(!moo_plane_open(directory, importer_id, key, 64 * MB, &importer));
}

static void close_both(void)
{
    moo_plane_free(importer);
    moo_plane_free(owner);
}

static void run(void (*test)(void), const char *name)
{
    alarm(ALARM_S); /* a hang is a failure */
    open_both();
    test();
    close_both();
    printf("ok %s\n", name);
    fflush(stdout);
}

static moo_statistics statistics(moo_plane *plane)
{
    moo_statistics now;

    moo_plane_statistics(plane, &now);
    return now;
}

/* A received block, all of it `value`. */
static char *receive(const void *data, size_t bytes)
{
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    void *got;
    size_t got_bytes;

    CHECK(!moo_export(owner, data, bytes, importer_id, 0, descriptor));
    CHECK(!moo_import(importer, descriptor, sizeof descriptor, TIMEOUT_MS, &got,
                      &got_bytes));
    CHECK(got_bytes == bytes);
    return got;
}

static char *receive_all(char value)
{
    static char data[MB];

    memset(data, value, sizeof data);
    return receive(data, sizeof data);
}

static int is_all(const char *at, char value)
{
    for (size_t i = 0; i < MB; i++)
        if (at[i] != value)
            return 0;
    return 1;
}

/* A child that looks at `at` when it is told to, and then says what it saw. */
struct child {
    pid_t pid;
    int ask;
};

static struct child fork_reader(const char *at, char value)
{
    struct child child;
    int ends[2];
    char c;

    CHECK(!pipe2(ends, O_CLOEXEC));
    child.pid = fork();
    if (!child.pid) {
        close(ends[1]);
        if (read(ends[0], &c, 1) != 1)
            _exit(2);
        _exit(is_all(at, value) ? 0 : 1);
    }
    close(ends[0]);
    child.ask = ends[1];
    return child;
}

static void check_reader(struct child child)
{
    int status;

    CHECK(write(child.ask, "", 1) == 1);
    close(child.ask);
    CHECK(waitpid(child.pid, &status, 0) == child.pid && status == 0);
}

static void overwrite_what_is_free(void)
{
    for (int i = 0; i < ROUNDS; i++)
        moo_drop(importer, receive_all(99));
}

static void received_memory_stays_while_a_child_lives(void)
{
    char *got;
    struct child child;

    got = receive_all(7);
    child = fork_reader(got, 7);
    moo_drop(importer, got);
    CHECK(statistics(importer).kept_for_forks == MB);
    CHECK(statistics(importer).imports == 0);
    overwrite_what_is_free();
    check_reader(child);
    CHECK_SOON(statistics(owner).used == 0);
    CHECK(statistics(importer).kept_for_forks == 0);
}

static void own_memory_stays_while_a_child_lives(void)
{
    struct child child;
    void *own;

    CHECK(!moo_empty(owner, MB, &own));
    memset(own, 7, MB);
    moo_drop(importer, receive(own, MB)); /* it is sealed by that */
    child = fork_reader(own, 7);
    moo_drop(owner, own);
    overwrite_what_is_free();
    CHECK(statistics(owner).kept_for_forks == MB);
    check_reader(child);
    CHECK_SOON(statistics(owner).used == 0);
}

static void what_is_moved_away_is_copied_where_a_child_sees_it(void)
{
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    char *got = receive_all(7);
    struct child child = fork_reader(got, 7);
    void *moved;
    size_t bytes;

    CHECK(!moo_move(importer, got));
    CHECK(!moo_export(importer, got, MB, importer_id, 0, descriptor));
    moo_drop(importer, got);
    CHECK(!moo_import(importer, descriptor, sizeof descriptor, TIMEOUT_MS,
                      &moved, &bytes));
    memset(moved, 99, MB);
    check_reader(child);
    moo_drop(importer, moved);
    CHECK_SOON(statistics(owner).used == 0);
    CHECK_SOON(statistics(importer).used == 0);
}

/* Children that overlap in time do not hold each other's memory. */
static void each_child_holds_what_it_saw(void)
{
    char *first = receive_all(1), *second;
    struct child one = fork_reader(first, 1), two;

    moo_drop(importer, first);
    second = receive_all(2);
    two = fork_reader(second, 2);
    moo_drop(importer, second);
    moo_drop(importer, receive_all(3)); /* no child saw this */
    CHECK(statistics(importer).kept_for_forks == 2 * MB);
    check_reader(one);
    CHECK_SOON(statistics(importer).kept_for_forks == MB);
    overwrite_what_is_free();
    check_reader(two);
    CHECK_SOON(statistics(owner).used == 0);
}

static void a_grandchild_counts_as_well(void)
{
    char *got = receive_all(7);
    int ends[2], status;
    char c;
    pid_t child;

    CHECK(!pipe2(ends, O_CLOEXEC));
    child = fork();
    if (!child) {
        if (fork())
            _exit(0);
        close(ends[1]);
        _exit(read(ends[0], &c, 1) == 0 && is_all(got, 7) ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(ends[0]);
    moo_drop(importer, got);
    overwrite_what_is_free();
    CHECK(statistics(importer).kept_for_forks == MB);
    close(ends[1]); /* the grandchild ends */
    CHECK_SOON(statistics(owner).used == 0);
}

static void a_child_that_calls_exec_holds_nothing(void)
{
    char *got = receive_all(7);
    pid_t child = fork();

    if (!child) {
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(1);
    }
    moo_drop(importer, got);
    CHECK_SOON(statistics(owner).used == 0);
    CHECK(!kill(child, SIGKILL));
    CHECK(waitpid(child, NULL, 0) == child);
}

static void a_plane_can_be_closed_and_freed_while_a_child_lives(void)
{
    char *got = receive_all(7);
    struct child child = fork_reader(got, 7);
    int before;

    moo_drop(importer, got);
    close_both();
    before = entries("/proc/self/fd");
    open_both(); /* others, with the same numbers of descriptors */
    overwrite_what_is_free();
    check_reader(child);
    close_both();
    CHECK(entries("/proc/self/fd") == before - 1); /* the pipe to the child */
    open_both();
}

#define RUN_BOTH(test) run(test, #test)

int main(void)
{
    CHECK(mkdtemp(directory));
    RUN_BOTH(received_memory_stays_while_a_child_lives);
    RUN_BOTH(own_memory_stays_while_a_child_lives);
    RUN_BOTH(what_is_moved_away_is_copied_where_a_child_sees_it);
    RUN_BOTH(each_child_holds_what_it_saw);
    RUN_BOTH(a_grandchild_counts_as_well);
    RUN_BOTH(a_child_that_calls_exec_holds_nothing);
    RUN_BOTH(a_plane_can_be_closed_and_freed_while_a_child_lives);
    remove_directory(directory);
    return 0;
}
