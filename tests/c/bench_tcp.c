/* SPDX-License-Identifier: MIT */
/*
 * bench_tcp: memory to memory over the TCP engine, to be compared with iperf3.
 *
 *   bench_tcp serve ADDRESS FILE                  the importer's host: listens,
 *                                                 writes its ports to FILE
 *   bench_tcp send ADDRESS FILE [MIB [STRIPES]]   the owner's host
 *
 * The serving side fetches; it prints Gbit/s of the best, median and worst of
 * ROUNDS fetches of MIB MiB, and the latency of fetches of 1 byte and 64 KiB,
 * beside that of asking for and getting as many bytes over a bare, blocking
 * connection. ADDRESS is the serving side's. CHECKSUM in its environment: with
 * checksums. THREADS in either's: so many threads move bulk, instead of one.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "tcp_fixture.h"

#define MB ((size_t)1 << 20)
#define ROUNDS 7
#define PINGS 500

static struct side me;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static char *memory(size_t bytes)
{
    char *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    CHECK(m != MAP_FAILED);
    memset(m, 1, bytes);
    return m;
}

/* ---- the bare connection ---- */

static int bare = -1;

static void wait_for(int fd, short events)
{
    struct pollfd wait = {fd, events, 0};

    CHECK(poll(&wait, 1, 10000) == 1);
}

static void block(int fd)
{
    CHECK(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK));
}

static double ask_s(uint64_t bytes, char *into)
{
    uint32_t want = (uint32_t)bytes;
    uint64_t began = mooi_now_ns();

    CHECK(send(bare, &want, sizeof want, MSG_NOSIGNAL) == sizeof want);
    CHECK(recv(bare, into, bytes, MSG_WAITALL) == (ssize_t)bytes);
    return (double)(mooi_now_ns() - began) / 1e9;
}

static void *answer(void *data)
{
    uint32_t want;

    while (recv(bare, &want, sizeof want, MSG_WAITALL) == sizeof want)
        if (send(bare, data, want, MSG_NOSIGNAL) != (ssize_t)want)
            break;
    return NULL;
}

static double fetch_s(uint64_t bytes, char *into)
{
    uint64_t began = mooi_now_ns();

    CHECK(fetch(&me, 0, 0, bytes, into) == MOO_OK);
    return (double)(mooi_now_ns() - began) / 1e9;
}

static void measure(const char *what, double (*once)(uint64_t, char *),
                    uint64_t bytes, char *into, int rounds)
{
    static double s[PINGS];

    once(bytes, into);
    for (int i = 0; i < rounds; i++)
        s[i] = once(bytes, into);
    qsort(s, (size_t)rounds, sizeof *s, ascending);
    if (bytes >= MB)
        printf("%-6s %8.0f MiB  best %6.2f  median %6.2f  worst %6.2f Gbit/s\n",
               what, (double)bytes / (double)MB, (double)bytes * 8e-9 / s[0],
               (double)bytes * 8e-9 / s[rounds / 2],
               (double)bytes * 8e-9 / s[rounds - 1]);
    else
        printf("%-6s %8llu byte  median %6.1f  p99 %6.1f us\n", what,
               (unsigned long long)bytes, s[rounds / 2] * 1e6,
               s[rounds * 99 / 100] * 1e6);
    fflush(stdout);
}

/* The control message says how much there is to fetch, and whether with checksums. */
static void serve(const char *address, const char *file)
{
    struct mooi_tcp_options options = {.bind = address};
    struct mooi_address at, bare_at;
    uint64_t bytes;
    char *into;
    int listener;
    FILE *out;

    memcpy(options.key, session_key, sizeof session_key);
    options.checksum = getenv("CHECKSUM") != NULL;
    open_side(&me, 2, &options);
    CHECK(mooi_tcp_addresses(me.engine, &at, 1) == 1);
    CHECK(mooi_socket_listen(address, &listener) == MOO_OK);
    CHECK(mooi_socket_addresses(listener, &bare_at, 1) == 1);
    out = fopen(file, "w");
    CHECK(out && fprintf(out, "%u %u\n", at.port, bare_at.port) > 0);
    fclose(out);
    await(&me, &me.controls, 1);
    wait_for(listener, POLLIN);
    CHECK(mooi_socket_accept(listener, &bare) == MOO_OK);
    close(listener);
    block(bare);
    memcpy(&bytes, me.control, sizeof bytes);
    into = memory(bytes);
    for (uint64_t small = 1; small <= 64 << 10; small <<= 16) {
        measure("bare", ask_s, small, into, PINGS);
        measure("engine", fetch_s, small, into, PINGS);
    }
    measure("bare", ask_s, MB, into, 100);
    measure("engine", fetch_s, MB, into, 100);
    measure("bare", ask_s, bytes, into, ROUNDS);
    measure("engine", fetch_s, bytes, into, ROUNDS);
    close(bare);
    close_side(&me);
}

static void send_to(const char *address, const char *file, uint64_t bytes,
                    uint32_t stripes)
{
    struct mooi_tcp_options options = {.stripes = stripes};
    struct mooi_tcp_link *link;
    struct mooi_address at;
    unsigned port, bare_port;
    pthread_t echo;
    FILE *in = fopen(file, "r");

    CHECK(in && fscanf(in, "%u %u", &port, &bare_port) == 2);
    fclose(in);
    CHECK(mooi_address_parse(address, (uint16_t)port, &at) == MOO_OK);
    memcpy(options.key, session_key, sizeof session_key);
    open_side(&me, 1, &options);
    own(&me, 0, memory(bytes), bytes);
    CHECK(mooi_tcp_connect(me.engine, 2, &at, 1, &link) == MOO_OK);
    await(&me, &me.ups, 1);
    at.port = (uint16_t)bare_port;
    CHECK(mooi_socket_connect(&at, &bare) == MOO_OK);
    wait_for(bare, POLLOUT);
    CHECK(mooi_socket_connected(bare) == MOO_OK);
    block(bare);
    CHECK(!pthread_create(&echo, NULL, answer, (void *)me.memory[0]));
    CHECK(mooi_tcp_control(link, (uint8_t *)&bytes, sizeof bytes) == MOO_OK);
    pthread_join(echo, NULL);
    close(bare);
    close_side(&me);
}

int main(int count, char **argument)
{
    if (getenv("THREADS"))
        threads = (uint32_t)atoi(getenv("THREADS"));
    if (count < 4) {
        fprintf(stderr, "see the head of bench_tcp.c\n");
        return 2;
    }
    if (!strcmp(argument[1], "serve"))
        serve(argument[2], argument[3]);
    else
        send_to(argument[2], argument[3],
                count > 4 ? strtoull(argument[4], NULL, 0) * MB : 1024 * MB,
                count > 5 ? (uint32_t)atoi(argument[5]) : 0);
    return 0;
}
