/* SPDX-License-Identifier: MIT */
/* Planes that fetch from each other over a network; after check.h. */
#include <pthread.h>

#include "plane/net.h"

#define MB ((size_t)1 << 20)
#define ROOM (64 * MB)
#define END_MS 60000 /* for hangs only */

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
    moo_serve_options options = {.transports = transport, .checksum = 1};
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
