/* SPDX-License-Identifier: MIT */
/*
 * none.c: stands in for the fabric where libfabric's headers were not
 * found. None can be opened, so nothing but the first three can be called.
 */
#include "transport/ofi/internal.h"

#ifndef MOOI_FABRIC_BUILT

#include <stdio.h>

static moo_err refuse(char *why, size_t room)
{
    snprintf(why, room, "built without libfabric headers; install "
                        "libfabric-dev and build mooactor again "
                        "(`mooactor doctor` has the command)");
    return MOO_EUNREACHABLE;
}

moo_err mooi_fabric_open(const struct mooi_fabric_options *options,
                         struct mooi_fabric **out, char *why, size_t room)
{
    (void)options;
    (void)out;
    return refuse(why, room);
}

moo_err moo_fabric_probe(char *text, size_t room)
{
    return refuse(text, room);
}

moo_err moo_bare_open(const char *provider, size_t bytes, moo_bare **out,
                      char *why, size_t room)
{
    (void)provider;
    (void)bytes;
    (void)out;
    return refuse(why, room);
}

moo_err moo_bare_offer(moo_bare *bare, uint8_t *out)
{
    (void)bare;
    (void)out;
    return MOO_EUNREACHABLE;
}

moo_err moo_bare_serve(moo_bare *bare, int fd)
{
    (void)bare;
    (void)fd;
    return MOO_EUNREACHABLE;
}

moo_err moo_bare_read(moo_bare *bare, const uint8_t *offer, size_t piece,
                      int timeout_ms)
{
    (void)bare;
    (void)offer;
    (void)piece;
    (void)timeout_ms;
    return MOO_EUNREACHABLE;
}

void moo_bare_close(moo_bare *bare)
{
    (void)bare;
}

void mooi_fabric_close(struct mooi_fabric *fabric)
{
    (void)fabric;
}

const char *mooi_fabric_provider(const struct mooi_fabric *fabric)
{
    (void)fabric;
    return "";
}

size_t mooi_fabric_name(const struct mooi_fabric *fabric,
                        uint8_t out[MOOI_FABRIC_NAME_BYTES])
{
    (void)fabric;
    (void)out;
    return 0;
}

moo_err mooi_fabric_register(struct mooi_fabric *fabric, void *base,
                             size_t bytes, int access, int kind, int device,
                             struct mooi_fabric_region **out)
{
    (void)fabric;
    (void)base;
    (void)bytes;
    (void)access;
    (void)kind;
    (void)device;
    (void)out;
    return MOO_EUNREACHABLE;
}

void mooi_fabric_unregister(struct mooi_fabric_region *region)
{
    (void)region;
}

uint64_t mooi_fabric_key(const struct mooi_fabric_region *region)
{
    (void)region;
    return 0;
}

uint64_t mooi_fabric_base(const struct mooi_fabric_region *region)
{
    (void)region;
    return 0;
}

int mooi_fabric_wants_regions(const struct mooi_fabric *fabric)
{
    (void)fabric;
    return 0;
}

int mooi_fabric_takes_devices(const struct mooi_fabric *fabric)
{
    (void)fabric;
    return 0;
}

const char *mooi_fabric_strerror(const struct mooi_fabric *fabric, int err)
{
    (void)fabric;
    (void)err;
    return "";
}

int mooi_fabric_pins(const struct mooi_fabric *fabric)
{
    (void)fabric;
    return 0;
}

moo_err mooi_fabric_meet(struct mooi_fabric *fabric, const uint8_t *name,
                         size_t bytes, struct mooi_fabric_peer **out)
{
    (void)fabric;
    (void)name;
    (void)bytes;
    (void)out;
    return MOO_EUNREACHABLE;
}

void mooi_fabric_forget(struct mooi_fabric_peer *peer)
{
    (void)peer;
}

moo_err mooi_fabric_read(struct mooi_fabric_peer *peer,
                         const struct mooi_fabric_want *want)
{
    (void)peer;
    (void)want;
    return MOO_EUNREACHABLE;
}

moo_err mooi_fabric_cancel(struct mooi_fabric *fabric, const void *cookie)
{
    (void)fabric;
    (void)cookie;
    return MOO_ESTALE;
}

void mooi_fabric_reason(struct mooi_fabric_peer *peer, char *text, size_t room)
{
    (void)peer;
    if (room)
        *text = 0;
}

void mooi_fabric_statistics(struct mooi_fabric *fabric,
                            struct mooi_fabric_statistics *out)
{
    (void)fabric;
    *out = (struct mooi_fabric_statistics){0};
}

#endif
