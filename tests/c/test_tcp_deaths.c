/* SPDX-License-Identifier: MIT */
/*
 * The TCP engine between processes that are killed, stopped, or cut off.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "tcp_fixture.h"

#define MB ((size_t)1 << 20)
#define BYTES (32 * MB)
#define ROUNDS (SANITIZED ? 20 : 100)
#define FETCHES 6

static struct side me;
static char *memory; /* the same in all processes */

static int entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    CHECK(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* The other process is this program again, in another role: a child of a mere
 * fork would begin with whatever locks the engine's thread, or a sanitizer, held
 * at that moment. */
static pid_t start(const char *role, uint64_t id, int *socket)
{
    char id_text[24], socket_text[12];
    char *arguments[] = {(char *)"test_tcp_deaths", (char *)role, id_text,
                         socket_text, NULL};
    int ends[2];
    pid_t child;

    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    CHECK(!fcntl(ends[1], F_SETFD, 0));
    snprintf(id_text, sizeof id_text, "%llu", (unsigned long long)id);
    snprintf(socket_text, sizeof socket_text, "%d", ends[1]);
    CHECK(!posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments,
                       environ));
    close(ends[1]);
    *socket = ends[0];
    return child;
}

static void say(int socket, const void *data, size_t bytes)
{
    CHECK(send(socket, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
}

static void hear(int socket, void *data, size_t bytes)
{
    CHECK(recv(socket, data, bytes, 0) == (ssize_t)bytes);
}

static void slay(pid_t child, int socket)
{
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    close(socket);
}

/* ---- roles ---- */

/* Quick to make, and no page is like another. */
static void make_memory(void)
{
    memory = malloc(BYTES);
    CHECK(memory);
    for (uint64_t i = 0; i < BYTES / 8; i++)
        memcpy(memory + 8 * i, &(uint64_t){i * 0x9e3779b97f4a7c15u}, 8);
}

/* Connect to whom we are told, and serve for ever. */
static void play_owner(int socket, uint64_t id)
{
    struct mooi_address address;
    struct mooi_tcp_link *link;

    make_memory();
    open_side(&me, id, NULL);
    own(&me, 0, memory, BYTES);
    hear(socket, &address, sizeof address);
    CHECK(mooi_tcp_connect(me.engine, 1, &address, 1, &link) == MOO_OK);
    await(&me, &me.ups, 1);
    pause();
}

/* Say where we listen, and fetch for ever. */
static void play_importer(int socket, uint64_t id)
{
    struct mooi_address address;
    char *into = malloc(BYTES);

    CHECK(into);
    open_side(&me, id, NULL);
    CHECK(mooi_tcp_addresses(me.engine, &address, 1) == 1);
    say(socket, &address, sizeof address);
    await(&me, &me.ups, 1);
    for (;;) {
        CHECK(fetch(&me, 0, 0, BYTES, into) == MOO_OK);
        CHECK(fetch(&me, 0, 5, 1000, into) == MOO_OK);
    }
}

/* ---- kills ---- */

static void check_nothing_is_left(void)
{
    struct mooi_tcp_statistics now;

    mooi_tcp_statistics(me.engine, &now);
    CHECK(!now.links && !now.fetches && !now.asked);
    CHECK(count_of(&me, &me.sources) == count_of(&me, &me.sourced));
}

static void fetch_until_killed(pid_t child, int socket, char *into)
{
    struct wanted wanted[FETCHES];

    for (int i = 0; i < FETCHES; i++)
        CHECK(begin(&me, &wanted[i], 0, (uint64_t)i, i % 2 ? BYTES / 8 : 100,
                    into + (size_t)i * BYTES / 8) == MOO_OK);
    usleep((useconds_t)(random() % 15000)); /* anywhere within */
    slay(child, socket);
    for (int i = 0; i < FETCHES; i++) {
        moo_err err = end(&wanted[i]);
        CHECK(err == MOO_OK || err == MOO_EPEER);
        if (err == MOO_OK)
            CHECK(!memcmp(into + (size_t)i * BYTES / 8, memory + i,
                          i % 2 ? BYTES / 8 : 100));
    }
}

static void killed_owners_end_every_fetch_once(void)
{
    struct mooi_address address;
    char *into = malloc(BYTES);
    int files, threads;

    CHECK(into);
    open_side(&me, 1, NULL);
    CHECK(mooi_tcp_addresses(me.engine, &address, 1) == 1);
    files = entries("/proc/self/fd");
    threads = entries("/proc/self/task");
    for (int round = 1; round <= ROUNDS; round++) {
        int socket;
        pid_t child = start("owner", 100 + (uint64_t)round, &socket);
        say(socket, &address, sizeof address);
        await(&me, &me.ups, round);
        fetch_until_killed(child, socket, into);
        await(&me, &me.downs, round);
        check_nothing_is_left();
    }
    CHECK_SOON(entries("/proc/self/fd") == files);
    CHECK(entries("/proc/self/task") == threads);
    close_side(&me);
    free(into);
}

static void killed_importers_give_back_every_source(void)
{
    int files, threads;

    open_side(&me, 1, NULL);
    own(&me, 0, memory, BYTES);
    files = entries("/proc/self/fd");
    threads = entries("/proc/self/task");
    for (int round = 1; round <= ROUNDS; round++) {
        struct mooi_address address;
        struct mooi_tcp_link *link;
        int socket, sources = count_of(&me, &me.sources);
        pid_t child = start("importer", 100 + (uint64_t)round, &socket);
        hear(socket, &address, sizeof address);
        CHECK(mooi_tcp_connect(me.engine, 100 + (uint64_t)round, &address, 1,
                               &link) == MOO_OK);
        await(&me, &me.ups, round);
        await(&me, &me.sources, sources + 1 + (int)(random() % 30));
        slay(child, socket);
        await(&me, &me.downs, round);
        CHECK(me.why == MOO_EPEER);
        check_nothing_is_left();
    }
    CHECK_SOON(entries("/proc/self/fd") == files);
    CHECK(entries("/proc/self/task") == threads);
    close_side(&me);
}

static void peers_killed_while_they_connect_are_an_error_in_time(void)
{
    open_side(&me, 1, NULL);
    own(&me, 0, memory, BYTES);
    for (int round = 1; round <= 20; round++) {
        struct mooi_address address;
        struct mooi_tcp_link *link;
        int socket;
        pid_t child = start("importer", 100 + (uint64_t)round, &socket);
        hear(socket, &address, sizeof address);
        CHECK(mooi_tcp_connect(me.engine, 100 + (uint64_t)round, &address, 1,
                               &link) == MOO_OK);
        usleep((useconds_t)(random() % 1500));
        slay(child, socket);
        await(&me, &me.downs, round);
        check_nothing_is_left();
    }
    close_side(&me);
}

/* ---- slowness ---- */

static long resident_kib(void)
{
    long pages, resident;
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Its kernel acknowledges for it, so it is not taken for dead; and what is not
 * sent yet stays where it is. */
static void a_stopped_importer_costs_nothing_and_is_waited_for(void)
{
    struct mooi_address address;
    struct mooi_tcp_link *link;
    long before;
    int socket, sources;
    pid_t child;

    open_side(&me, 1, NULL);
    own(&me, 0, memory, BYTES);
    child = start("importer", 2, &socket);
    hear(socket, &address, sizeof address);
    CHECK(mooi_tcp_connect(me.engine, 2, &address, 1, &link) == MOO_OK);
    await(&me, &me.sources, 200);
    before = resident_kib();
    kill(child, SIGSTOP);
    usleep(4500000); /* longer than any silence that is borne */
    CHECK(!count_of(&me, &me.downs));
    CHECK(resident_kib() - before < 4096);
    sources = count_of(&me, &me.sources);
    kill(child, SIGCONT);
    await(&me, &me.sources, sources + 200);
    slay(child, socket);
    await(&me, &me.downs, 1);
    close_side(&me);
}

/* ---- a cable, cut ---- */

/* Run a command; *text may hold two numbers. */
static int shell(const char *format, int a, int b)
{
    char command[300];

    snprintf(command, sizeof command, format, a, b);
    return system(command);
}

static void enter(int which)
{
    char path[64];
    int fd;

    snprintf(path, sizeof path, "/var/run/netns/moot%d_%d", getppid(), which);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && !setns(fd, CLONE_NEWNET));
    close(fd);
}

static int lay_cable(void)
{
    int id = getpid();

    if (geteuid() || system("ip netns list >/dev/null 2>&1"))
        return 0;
    if (shell("ip netns add moot%d_1 2>/dev/null", id, 0) ||
        shell("ip netns add moot%d_2", id, 0))
        return 0;
    CHECK(!shell("ip link add v1 netns moot%d_1 type veth peer name v2 "
                 "netns moot%d_2", id, id));
    CHECK(!shell("ip -n moot%d_1 addr add 10.79.0.1/24 dev v1", id, 0));
    CHECK(!shell("ip -n moot%d_2 addr add 10.79.0.2/24 dev v2", id, 0));
    CHECK(!shell("ip -n moot%d_1 link set v1 up", id, 0));
    CHECK(!shell("ip -n moot%d_2 link set v2 up", id, 0));
    return 1;
}

static void take_cable_away(void)
{
    shell("ip netns del moot%d_1 2>/dev/null", getpid(), 0);
    shell("ip netns del moot%d_2 2>/dev/null", getpid(), 0);
}

/* When the link went down, to be compared with when it was cut: the clock is
 * one on one machine. */
static void report_the_end(int socket)
{
    uint64_t when;

    await(&me, &me.downs, 1);
    when = mooi_now_ns();
    say(socket, &when, sizeof when);
    close_side(&me);
}


static void play_far_owner(int socket, uint64_t id)
{
    struct mooi_tcp_options options = {.id = id, .bind = "10.79.0.1"};
    struct mooi_address address;
    struct mooi_tcp_link *link;

    enter(1);
    make_memory();
    memcpy(options.key, session_key, sizeof session_key);
    open_side(&me, id, &options);
    own(&me, 0, memory, BYTES);
    hear(socket, &address, sizeof address);
    CHECK(mooi_tcp_connect(me.engine, 12, &address, 1, &link) == MOO_OK);
    await(&me, &me.ups, 1);
    say(socket, "", 1);
    report_the_end(socket);
}

static void play_far_importer(int socket, uint64_t id)
{
    struct mooi_tcp_options options = {.id = id, .bind = "*"};
    struct mooi_address address;
    char *into = malloc(BYTES), busy;
    moo_err err = MOO_OK;

    enter(2);
    CHECK(into);
    memcpy(options.key, session_key, sizeof session_key);
    open_side(&me, id, &options);
    CHECK(mooi_tcp_addresses(me.engine, &address, 1) == 1);
    CHECK(address.ip[0] == 10);
    say(socket, &address, sizeof address);
    await(&me, &me.ups, 1);
    say(socket, "", 1);
    hear(socket, &busy, 1);
    while (busy && err == MOO_OK)
        err = fetch(&me, 0, 0, BYTES, into);
    CHECK(err == MOO_OK || err == MOO_EPEER);
    report_the_end(socket);
    free(into);
}

static void cut_the_cable(char busy)
{
    struct mooi_address address;
    uint64_t cut, ends[2];
    int sockets[2], status;
    pid_t children[2];
    char byte;

    open_side(&me, 1, NULL);
    children[0] = start("far owner", 11, &sockets[0]);
    children[1] = start("far importer", 12, &sockets[1]);
    hear(sockets[1], &address, sizeof address);
    say(sockets[0], &address, sizeof address);
    for (int i = 0; i < 2; i++)
        hear(sockets[i], &byte, 1);
    say(sockets[1], &busy, 1);
    usleep((useconds_t)(100000 + random() % 900000)); /* at any phase */
    CHECK(!shell("ip -n moot%d_1 link set v1 down", getpid(), 0));
    cut = mooi_now_ns();
    for (int i = 0; i < 2; i++) {
        hear(sockets[i], &ends[i], sizeof ends[i]);
        CHECK(ends[i] - cut < 3000000000u);
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
        close(sockets[i]);
    }
    printf("   owner %.2f s, importer %.2f s\n", (double)(ends[0] - cut) / 1e9,
           (double)(ends[1] - cut) / 1e9);
    CHECK(!shell("ip -n moot%d_1 link set v1 up", getpid(), 0));
    close_side(&me);
}

static void a_cut_cable_is_found_by_both_within_three_seconds(void)
{
    if (!lay_cable()) {
        printf("skipped: network namespaces need root and ip\n");
        return;
    }
    atexit(take_cable_away);
    for (char busy = 0; busy < 2; busy++)
        for (int i = 0; i < 2; i++)
            cut_the_cable(busy);
    take_cable_away();
}

static int play(const char *role, uint64_t id, int socket)
{
    CHECK(!fcntl(socket, F_SETFD, FD_CLOEXEC));
    alarm(60);
    if (!strcmp(role, "owner"))
        play_owner(socket, id);
    else if (!strcmp(role, "importer"))
        play_importer(socket, id);
    else if (!strcmp(role, "far owner"))
        play_far_owner(socket, id);
    else
        play_far_importer(socket, id);
    return 0;
}

int main(int count, char **arguments)
{
    int files = entries("/proc/self/fd");

    if (count == 4)
        return play(arguments[1], strtoull(arguments[2], NULL, 10),
                    atoi(arguments[3]));
    make_memory();
    srandom((unsigned)getpid());
    RUN(killed_owners_end_every_fetch_once);
    RUN(killed_importers_give_back_every_source);
    RUN(peers_killed_while_they_connect_are_an_error_in_time);
    RUN(a_stopped_importer_costs_nothing_and_is_waited_for);
    RUN(a_cut_cable_is_found_by_both_within_three_seconds);
    CHECK(entries("/proc/self/fd") == files);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    return 0;
}
