/* SPDX-License-Identifier: MIT */
/*
 * bare.c: libfabric used as its own benchmarks use it (fi_rma_bw): both
 * sides poll their queues without a pause, and a window of reads of one size is
 * kept under way. The runtime does not use it; `make bench-all` compares with
 * it.
 */
#include "mooactor_bench.h"
#include "transport/ofi/internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/clock.h"

#define WINDOW 64
#define POLLS 256 /* of the queue, between two looks at the clock */
#define KEY 4711

struct offer {
    uint64_t key, base, bytes, name_bytes;
    uint8_t name[MOOI_FABRIC_NAME_BYTES];
};

_Static_assert(sizeof(struct offer) <= MOO_BARE_OFFER_BYTES, "it must fit");

struct moo_bare {
    const struct mooi_libfabric *library;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
    struct fid_mr *mr;
    unsigned char *memory;
    size_t bytes;
    fi_addr_t peer;
    int connected;
    uint32_t flying;
    struct fi_context2 context[WINDOW];
};

/* ---- opening ---- */

static int open_endpoint(struct moo_bare *bare)
{
    struct fi_cq_attr cq = {.size = 2 * WINDOW,
                            .format = FI_CQ_FORMAT_CONTEXT,
                            .wait_obj = FI_WAIT_NONE};
    struct fi_av_attr av = {.type = bare->info->domain_attr->av_type};
    int err = fi_cq_open(bare->domain, &cq, &bare->cq, NULL);

    if (!err)
        err = fi_av_open(bare->domain, &av, &bare->av, NULL);
    if (!err)
        err = fi_endpoint(bare->domain, bare->info, &bare->ep, NULL);
    if (!err)
        err = fi_ep_bind(bare->ep, &bare->cq->fid, FI_TRANSMIT | FI_RECV);
    if (!err)
        err = fi_ep_bind(bare->ep, &bare->av->fid, 0);
    return err ? err : fi_enable(bare->ep);
}

static int open_memory(struct moo_bare *bare)
{
    bare->memory = mmap(NULL, bare->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bare->memory == MAP_FAILED) {
        bare->memory = NULL;
        return -FI_ENOMEM;
    }
    memset(bare->memory, 1, bare->bytes);
    return fi_mr_reg(bare->domain, bare->memory, bare->bytes,
                     FI_READ | FI_REMOTE_READ, 0, KEY, 0, &bare->mr, NULL);
}

static int open_all(struct moo_bare *bare)
{
    int err = bare->library->fabric(bare->info->fabric_attr, &bare->fabric,
                                    NULL);

    if (!err)
        err = fi_domain(bare->fabric, bare->info, &bare->domain, NULL);
    if (!err)
        err = open_endpoint(bare);
    return err ? err : open_memory(bare);
}

moo_err moo_bare_open(const char *provider, size_t bytes, moo_bare **out,
                      char *why, size_t room)
{
    const struct mooi_fabric_options options = {.provider = provider};
    const struct mooi_libfabric *library;
    struct moo_bare *bare;
    struct fi_info *info;
    moo_err err = mooi_libfabric(&library, why, room);
    int failed;

    if (err == MOO_OK)
        err = mooi_fabric_choose(library, &options, &info, why, room);
    if (err != MOO_OK)
        return err;
    bare = calloc(1, sizeof *bare);
    if (!bare) {
        library->freeinfo(info);
        return MOO_ENOMEM;
    }
    bare->library = library;
    bare->info = info;
    bare->bytes = bytes;
    failed = open_all(bare);
    if (!failed) {
        *out = bare;
        return MOO_OK;
    }
    snprintf(why, room, "%s cannot be opened: %s", info->fabric_attr->prov_name,
             library->strerror(-failed));
    moo_bare_close(bare);
    return failed == -FI_ENOMEM ? MOO_ENOMEM : MOO_EUNREACHABLE;
}

static void close_fid(struct fid *fid)
{
    if (fid)
        fi_close(fid);
}

void moo_bare_close(moo_bare *bare)
{
    if (bare->flying)
        return; /* some providers crash, and the memory is still theirs */
    close_fid(bare->ep ? &bare->ep->fid : NULL);
    close_fid(bare->mr ? &bare->mr->fid : NULL);
    close_fid(bare->av ? &bare->av->fid : NULL);
    close_fid(bare->cq ? &bare->cq->fid : NULL);
    close_fid(bare->domain ? &bare->domain->fid : NULL);
    close_fid(bare->fabric ? &bare->fabric->fid : NULL);
    if (bare->memory)
        munmap(bare->memory, bare->bytes);
    bare->library->freeinfo(bare->info);
    free(bare);
}

/* ---- the side that is read ---- */

moo_err moo_bare_offer(moo_bare *bare, uint8_t *out)
{
    struct offer offer = {.key = fi_mr_key(bare->mr), .bytes = bare->bytes};
    size_t length = sizeof offer.name;

    if (fi_getname(&bare->ep->fid, offer.name, &length))
        return MOO_ESYS;
    offer.name_bytes = length;
    if (bare->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        offer.base = (uint64_t)(uintptr_t)bare->memory;
    memset(out, 0, MOO_BARE_OFFER_BYTES);
    memcpy(out, &offer, sizeof offer);
    return MOO_OK;
}

moo_err moo_bare_serve(moo_bare *bare, int fd)
{
    struct pollfd until = {.fd = fd, .events = POLLIN};
    struct fi_cq_entry entry;

    while (poll(&until, 1, 0) == 0)
        for (int i = 0; i < POLLS; i++)
            (void)fi_cq_read(bare->cq, &entry, 1); /* only to make progress */
    return MOO_OK;
}

/* ---- the side that reads ---- */

static moo_err connect_to(struct moo_bare *bare, const struct offer *offer)
{
    if (offer->bytes < bare->bytes || !offer->name_bytes ||
        offer->name_bytes > sizeof offer->name)
        return MOO_EPROTO;
    if (!bare->connected &&
        fi_av_insert(bare->av, offer->name, 1, &bare->peer, 0, NULL) != 1)
        return MOO_EPROTO;
    bare->connected = 1;
    return MOO_OK;
}

/* Post, while the device is full or connecting only make progress. */
static moo_err post(struct moo_bare *bare, const struct offer *offer, size_t at,
                    size_t bytes, struct fi_context2 *context,
                    uint64_t deadline_ns)
{
    struct fi_cq_entry none;
    ssize_t err;

    for (;;) {
        err = fi_read(bare->ep, bare->memory + at, bytes, fi_mr_desc(bare->mr),
                      bare->peer, offer->base + at, offer->key, context);
        if (err != -FI_EAGAIN)
            break;
        if (fi_cq_read(bare->cq, &none, 0) == -FI_EAVAIL)
            return MOO_EPEER;
        if (mooi_now_ns() >= deadline_ns)
            return MOO_ETIMEOUT;
    }
    bare->flying += !err;
    return err ? MOO_EPEER : MOO_OK;
}

static moo_err await_one(struct moo_bare *bare, struct fi_context2 **done,
                         uint64_t deadline_ns)
{
    struct fi_cq_entry entry;

    do {
        for (int i = 0; i < POLLS; i++) {
            ssize_t got = fi_cq_read(bare->cq, &entry, 1);
            if (got == -FI_EAGAIN)
                continue;
            if (got != 1)
                return MOO_EPEER;
            bare->flying--;
            *done = entry.op_context;
            return MOO_OK;
        }
    } while (mooi_now_ns() < deadline_ns);
    return MOO_ETIMEOUT;
}

/* Contexts are used in turn until the window is full, then again as they come
 * back. */
static moo_err read_all(struct moo_bare *bare, const struct offer *offer,
                        size_t piece, uint64_t deadline_ns)
{
    struct fi_context2 *idle = NULL;
    size_t posted = 0, n;
    moo_err err = MOO_OK;

    while (err == MOO_OK && (posted < bare->bytes || bare->flying)) {
        if (posted == bare->bytes || (!idle && bare->flying == WINDOW)) {
            err = await_one(bare, &idle, deadline_ns);
            continue;
        }
        n = bare->bytes - posted < piece ? bare->bytes - posted : piece;
        err = post(bare, offer, posted, n,
                   idle ? idle : &bare->context[bare->flying], deadline_ns);
        idle = NULL;
        posted += n;
    }
    return err;
}

moo_err moo_bare_read(moo_bare *bare, const uint8_t *offered, size_t piece,
                      int timeout_ms)
{
    size_t most = bare->info->ep_attr->max_msg_size;
    struct offer offer;
    moo_err err;

    memcpy(&offer, offered, sizeof offer);
    err = connect_to(bare, &offer);
    if (err != MOO_OK)
        return err;
    if (!piece || piece > most)
        piece = most;
    return read_all(bare, &offer, piece,
                    mooi_now_ns() + (uint64_t)timeout_ms * 1000000u);
}
