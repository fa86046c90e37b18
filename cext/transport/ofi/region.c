/* SPDX-License-Identifier: MIT */
/* region.c: memory that the device may read from or write to. */
#include "transport/ofi/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/uio.h>

/* If we may choose keys, they are random: as hard to guess as their length
 * allows. */
static int choose_key(const struct mooi_fabric *fabric, uint64_t *out)
{
    size_t bytes = fabric->info->domain_attr->mr_key_size;

    *out = 0;
    if (fabric->mr_mode & FI_MR_PROV_KEY)
        return 0;
    if (!bytes || bytes > sizeof *out)
        bytes = sizeof *out;
    if (getrandom(out, sizeof *out, 0) != (ssize_t)sizeof *out)
        return -FI_EOTHER;
    if (bytes < sizeof *out)
        *out &= ((uint64_t)1 << (8 * bytes)) - 1;
    return 0;
}

static int bind_to_endpoint(struct mooi_fabric *fabric, struct fid_mr *mr,
                            int access)
{
    int err;

    if (!(fabric->mr_mode & FI_MR_ENDPOINT) || !(access & MOOI_FABRIC_FROM))
        return 0;
    err = fi_mr_bind(mr, &fabric->serving.ep->fid, 0);
    return err ? err : fi_mr_enable(mr);
}

_Static_assert(MOO_MEMORY_HOST == (int)FI_HMEM_SYSTEM &&
                   MOO_MEMORY_CUDA == (int)FI_HMEM_CUDA,
               "kinds of memory are numbered as libfabric does");

static int open_region(struct mooi_fabric_region *region, int access, int kind,
                       int device)
{
    struct mooi_fabric *fabric = region->fabric;
    struct iovec memory = {.iov_base = region->base, .iov_len = region->bytes};
    struct fi_mr_attr attr = {.mr_iov = &memory,
                              .iov_count = 1,
                              .iface = (enum fi_hmem_iface)kind};
    int err, tries = 8; /* a random key may be in use */

    if (kind == MOO_MEMORY_CUDA)
        attr.device.cuda = device;
    if (access & MOOI_FABRIC_INTO)
        attr.access |= FI_READ;
    if (access & MOOI_FABRIC_FROM)
        attr.access |= FI_REMOTE_READ;
    do {
        err = choose_key(fabric, &attr.requested_key);
        if (!err)
            err = fi_mr_regattr(fabric->domain, &attr, 0, &region->mr);
    } while (err == -FI_ENOKEY && --tries);
    if (err)
        return err;
    err = bind_to_endpoint(fabric, region->mr, access);
    if (err)
        fi_close(&region->mr->fid);
    return err;
}

static void enlist(struct mooi_fabric_region *region)
{
    struct mooi_fabric *fabric = region->fabric;

    pthread_mutex_lock(&fabric->lock);
    region->next = &fabric->regions;
    region->previous = fabric->regions.previous;
    region->previous->next = region;
    fabric->regions.previous = region;
    pthread_mutex_unlock(&fabric->lock);
}

moo_err mooi_fabric_register(struct mooi_fabric *fabric, void *base,
                             size_t bytes, int access, int kind, int device,
                             struct mooi_fabric_region **out)
{
    struct mooi_fabric_region *region;
    int err;

    if (!bytes)
        return MOO_EINVAL;
    if (kind != MOO_MEMORY_HOST && !fabric->devices)
        return MOO_EUNREACHABLE;
    region = calloc(1, sizeof *region);
    if (!region)
        return MOO_ENOMEM;
    region->fabric = fabric;
    region->base = base;
    region->bytes = bytes;
    err = open_region(region, access, kind, device);
    if (err) {
        free(region);
        errno = -err;
        return err == -FI_ENOMEM ? MOO_ENOMEM : MOO_ESYS;
    }
    enlist(region);
    *out = region;
    return MOO_OK;
}

void mooi_fabric_unregister(struct mooi_fabric_region *region)
{
    pthread_mutex_lock(&region->fabric->lock);
    region->next->previous = region->previous;
    region->previous->next = region->next;
    pthread_mutex_unlock(&region->fabric->lock);
    fi_close(&region->mr->fid);
    free(region);
}

uint64_t mooi_fabric_key(const struct mooi_fabric_region *region)
{
    return fi_mr_key(region->mr);
}

uint64_t mooi_fabric_base(const struct mooi_fabric_region *region)
{
    return region->fabric->mr_mode & FI_MR_VIRT_ADDR
               ? (uint64_t)(uintptr_t)region->base
               : 0;
}

int mooi_fabric_wants_regions(const struct mooi_fabric *fabric)
{
    return (fabric->mr_mode & FI_MR_LOCAL) != 0;
}

int mooi_fabric_takes_devices(const struct mooi_fabric *fabric)
{
    return fabric->devices;
}

const char *mooi_fabric_strerror(const struct mooi_fabric *fabric, int err)
{
    return fabric->library->strerror(err);
}

int mooi_fabric_pins(const struct mooi_fabric *fabric)
{
    return (fabric->mr_mode & FI_MR_ALLOCATED) != 0;
}
