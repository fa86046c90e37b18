/* SPDX-License-Identifier: MIT */
/*
 * bench_tcp: memory to memory over the TCP engine, to be compared with iperf3.
 *
 *   bench_tcp serve ADDRESS FILE [STRIPES]   the importer's host: listens,
 *                                            writes its port to FILE
 *   bench_tcp send ADDRESS FILE [MIB [STRIPES [CHECKSUM]]]   the owner's host
 *
 * The serving side fetches; it prints Gbit/s of the best, median and worst of
 * ROUNDS fetches of MIB MiB, and the latency of fetches of 1 byte and 64 KiB.
 * ADDRESS is the serving side's.
 */
#include <stdio.h>
#include <sys/mman.h>

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

static double fetch_s(uint64_t bytes, char *into)
{
    uint64_t began = mooi_now_ns();

    CHECK(fetch(&me, 0, 0, bytes, into) == MOO_OK);
    return (double)(mooi_now_ns() - began) / 1e9;
}

static void measure(uint64_t bytes, char *into, int rounds)
{
    static double s[PINGS];

    fetch_s(bytes, into);
    for (int i = 0; i < rounds; i++)
        s[i] = fetch_s(bytes, into);
    qsort(s, (size_t)rounds, sizeof *s, ascending);
    if (bytes >= MB)
        printf("%8.0f MiB  best %6.2f  median %6.2f  worst %6.2f Gbit/s\n",
               (double)bytes / (double)MB, (double)bytes * 8e-9 / s[0],
               (double)bytes * 8e-9 / s[rounds / 2],
               (double)bytes * 8e-9 / s[rounds - 1]);
    else
        printf("%8llu byte  median %6.1f  p99 %6.1f us\n",
               (unsigned long long)bytes, s[rounds / 2] * 1e6,
               s[rounds * 99 / 100] * 1e6);
    fflush(stdout);
}

/* The note says how much there is to fetch, and whether with checksums. */
static void serve(const char *address, const char *file)
{
    struct mooi_tcp_options options = {.bind = address};
    struct mooi_address at;
    uint64_t bytes;
    char *into;
    FILE *out;

    memcpy(options.key, session_key, sizeof session_key);
    options.checksum = getenv("CHECKSUM") != NULL;
    open_side(&me, 2, &options);
    CHECK(mooi_tcp_addresses(me.engine, &at, 1) == 1);
    out = fopen(file, "w");
    CHECK(out && fprintf(out, "%u\n", at.port) > 0 && !fclose(out));
    await(&me, &me.notes, 1);
    memcpy(&bytes, me.note, sizeof bytes);
    into = memory(bytes);
    measure(1, into, PINGS);
    measure(64 << 10, into, PINGS);
    measure(MB, into, 100);
    measure(bytes, into, ROUNDS);
    close_side(&me);
}

static void send_to(const char *address, const char *file, uint64_t bytes,
                    uint32_t stripes)
{
    struct mooi_tcp_options options = {.stripes = stripes};
    struct mooi_tcp_link *link;
    struct mooi_address at;
    unsigned port;
    FILE *in = fopen(file, "r");

    CHECK(in && fscanf(in, "%u", &port) == 1);
    fclose(in);
    CHECK(mooi_address_parse(address, (uint16_t)port, &at) == MOO_OK);
    memcpy(options.key, session_key, sizeof session_key);
    open_side(&me, 1, &options);
    own(&me, 0, memory(bytes), bytes);
    CHECK(mooi_tcp_connect(me.engine, 2, &at, 1, &link) == MOO_OK);
    await(&me, &me.ups, 1);
    CHECK(mooi_tcp_note(link, (uint8_t *)&bytes, sizeof bytes) == MOO_OK);
    while (!me.downs)
        usleep(10000);
    close_side(&me);
}

int main(int count, char **argument)
{
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
