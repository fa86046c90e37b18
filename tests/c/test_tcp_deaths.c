/* SPDX-License-Identifier: MIT */
/*
 * The TCP engine and an importer that is killed while it connects, or stopped. For
 * kills in mid transfer see test_remote.c.
 */
#include "children.h"
#include "tcp_fixture.h"

#define MB ((size_t)1 << 20)
#define BYTES (32 * MB)
#define ROUNDS 15

static struct side me;
static char *memory; /* the same in all processes */

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

/* Start an importer, and connect to it. */
static pid_t start_importer(uint64_t id, int *socket)
{
    struct mooi_address address;
    struct mooi_tcp_link *link;
    pid_t child = start("importer", id, socket);

    hear(*socket, &address, sizeof address);
    CHECK(mooi_tcp_connect(me.engine, id, &address, 1, &link) == MOO_OK);
    return child;
}

/* ---- kills ---- */

static void check_nothing_is_left(void)
{
    struct mooi_tcp_statistics now;

    mooi_tcp_statistics(me.engine, &now);
    CHECK(!now.links && !now.fetches && !now.asked);
    CHECK(count_of(&me, &me.sources) == count_of(&me, &me.sourced));
}

static void peers_killed_while_they_connect_are_an_error_in_time(void)
{
    open_side(&me, 1, NULL);
    own(&me, 0, memory, BYTES);
    for (int round = 1; round <= ROUNDS; round++) {
        int socket;
        pid_t child = start_importer(100 + (uint64_t)round, &socket);
        usleep((useconds_t)(random() % 1500)); /* anywhere within */
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
    long before;
    int socket, sources;
    pid_t child;

    open_side(&me, 1, NULL);
    own(&me, 0, memory, BYTES);
    child = start_importer(2, &socket);
    await(&me, &me.sources, 200);
    before = resident_kib();
    kill(child, SIGSTOP);
    usleep(3500000); /* longer than any silence that is borne */
    CHECK(!count_of(&me, &me.downs));
    CHECK(resident_kib() - before < 4096);
    sources = count_of(&me, &me.sources);
    kill(child, SIGCONT);
    await(&me, &me.sources, sources + 200);
    slay(child, socket);
    await(&me, &me.downs, 1);
    close_side(&me);
}

int main(int count, char **arguments)
{
    int files = entries("/proc/self/fd");

    threads = 2;
    if (count == 4)
        return play(arguments, ALARM_S, NULL, play_importer);
    make_memory();
    srandom((unsigned)getpid());
    RUN(peers_killed_while_they_connect_are_an_error_in_time);
    RUN(a_stopped_importer_costs_nothing_and_is_waited_for);
    CHECK(entries("/proc/self/fd") == files);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    return 0;
}
