/* SPDX-License-Identifier: MIT */
/*
 * device.c: memory of devices, or of other libraries in this process, that is
 * read over the fabric without a stop in the host's memory. It is registered
 * once and until the plane is closed, so its provider keeps it for so long: a
 * key never names memory that was reused. Tickets say who may read when, see
 * mooactor.h.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "plane/import.h"
#include "plane/net.h"

/* The lender of a device's memory has a link to us, of which we may not know
 * yet. If there is none, the loan has ended with it. */
#define CONTACT_MS 2000

/* The region registered with exactly these bounds. */
static const struct mooi_device *find(const struct mooi_net *net,
                                      uintptr_t start, size_t bytes)
{
    const struct mooi_device *device = net ? net->devices : NULL;

    while (device && (device->start != start || device->bytes != bytes))
        device = device->next;
    return device;
}

/* ---- registering ---- */

static void explain(const struct mooi_fabric *fabric, moo_err err, int reason,
                    char *why, size_t room)
{
    if (err == MOO_EUNREACHABLE)
        snprintf(why, room,
                 "%s was not opened for memory of GPUs: it offers none "
                 "(FI_HMEM), or MOOACTOR_GPUDIRECT=0",
                 mooi_ofi->provider(fabric));
    else
        snprintf(why, room, "%s cannot register the memory: %s",
                 mooi_ofi->provider(fabric),
                 err == MOO_ENOMEM ? moo_strerror(err)
                                   : mooi_ofi->strerror(fabric, reason));
}

/* The lock is let go while the fabric registers; `busy` keeps the net. */
static moo_err add(moo_plane *plane, const struct mooi_device *wanted, int kind,
                   int number, char *why, size_t room)
{
    struct mooi_net *net = plane->net;
    struct mooi_device *device = malloc(sizeof *device);
    moo_err err;

    if (!device) {
        snprintf(why, room, "no memory");
        return MOO_ENOMEM;
    }
    *device = *wanted;
    net->busy++;
    pthread_mutex_unlock(&plane->lock);
    err = mooi_ofi->register_memory(net->networks.fabric, (void *)device->start,
                                    device->bytes,
                                    MOOI_FABRIC_FROM | MOOI_FABRIC_INTO, kind,
                                    number, &device->region);
    if (err != MOO_OK)
        explain(net->networks.fabric, err, errno, why, room);
    pthread_mutex_lock(&plane->lock);
    if (!--net->busy)
        pthread_cond_broadcast(&net->decided);
    if (err != MOO_OK) {
        free(device);
        return err;
    }
    device->next = net->devices;
    net->devices = device;
    return MOO_OK;
}

static moo_err share(moo_plane *plane, const struct mooi_device *wanted,
                     int kind, int number, char *why, size_t room)
{
    if (find(plane->net, wanted->start, wanted->bytes))
        return MOO_OK;
    if (!plane->net || !plane->net->networks.fabric) {
        snprintf(why, room, "no fabric is open in this process");
        return MOO_EUNREACHABLE;
    }
    return add(plane, wanted, kind, number, why, room);
}

moo_err moo_device_share(moo_plane *plane, void *start, size_t bytes, int kind,
                         int device, uint64_t *key, uint64_t *base, char *why,
                         size_t room)
{
    const struct mooi_device wanted = {.start = (uintptr_t)start,
                                       .bytes = bytes};
    const struct mooi_device *found;
    moo_err err;

    if (!bytes || (kind != MOO_MEMORY_HOST && kind != MOO_MEMORY_CUDA)) {
        snprintf(why, room, "there is no such memory");
        return MOO_EINVAL;
    }
    err = mooi_plane_enter(plane);
    if (err != MOO_OK) {
        snprintf(why, room, "%s", moo_strerror(err));
        return err;
    }
    err = share(plane, &wanted, kind, device, why, room);
    if (err == MOO_OK) {
        found = find(plane->net, wanted.start, bytes);
        assert(found); /* share has added it, or found it itself */
        *key = mooi_ofi->key(found->region);
        *base = mooi_ofi->base(found->region);
    }
    pthread_mutex_unlock(&plane->lock);
    return err;
}

/* ---- reading ---- */

/* The region that contains all of it; NULL: there is none. */
static const struct mooi_fabric_region *region_of(moo_plane *plane,
                                                  uintptr_t into, size_t bytes)
{
    const struct mooi_device *device;

    pthread_mutex_lock(&plane->lock);
    device = plane->net ? plane->net->devices : NULL;
    while (device && (into < device->start || bytes > device->bytes ||
                      into - device->start > device->bytes - bytes))
        device = device->next;
    pthread_mutex_unlock(&plane->lock);
    return device ? device->region : NULL;
}

moo_err moo_device_fetch(moo_plane *plane, const uint8_t *descriptor,
                         size_t descriptor_bytes, uint64_t from, uint64_t key,
                         void *into, size_t bytes, moo_fetch **out)
{
    const struct mooi_fabric_region *region;
    struct mooi_descriptor d;
    struct moo_fetch *fetch;
    moo_err err = mooi_descriptor_parse(descriptor, descriptor_bytes, &d);

    if (atomic_load(&plane->forked))
        return MOO_EFORK;
    if (err != MOO_OK)
        return err;
    region = bytes ? region_of(plane, (uintptr_t)into, bytes) : NULL;
    if (!region || !(d.flags & MOOI_TICKET) || from > UINT64_MAX - bytes)
        return MOO_EINVAL;
    d.length = bytes;
    fetch = mooi_fetch_new(plane, &d, into, 0);
    if (!fetch)
        return MOO_ENOMEM;
    fetch->pull.region = region;
    fetch->pull.from = from;
    fetch->pull.key = key;
    err = mooi_fetch_launch(fetch, CONTACT_MS);
    if (err != MOO_OK)
        return err;
    mooi_plane_hold(plane);
    *out = fetch;
    return MOO_OK;
}
