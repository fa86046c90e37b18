/* SPDX-License-Identifier: MIT */
/*
 * network.c: the bytes are read by RDMA from the owner's slabs. The owner has
 * registered them as a whole and told us their keys.
 *
 * The owner does not take part in a read, so it cannot confirm the lease.
 * Therefore the importer requests zero bytes of it, by TCP, after each read:
 * the answer shows that the memory was the lease's all the time. If the owner
 * has given us up in between, the link is down, and no answer comes.
 *
 * A read goes into the mapping of our slab that is registered; the user's
 * mapping shows the same pages.
 *
 * If the fabric fails, the fetch fails, and we tell the owner, which changes
 * to TCP if both sides allow it.
 */
#include "transport/network.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/times.h"

struct slab_key {
    uint64_t bytes; /* 0: not told yet */
    uint64_t key, base;
};

/* Our view of an owner's memory. */
struct ofi_incoming {
    struct mooi_fabric_peer *peer; /* NULL: its endpoint was not told yet */
    struct slab_key slab[MOOI_MAX_SLABS];
};

/* One pull. */
struct ofi_pull {
    struct mooi_fabric_region *own; /* of the caller's memory; NULL: none */
    int confirming;
};

static const struct mooi_network_ops ofi_network;

/* ---- registered memory ---- */

/* Register the whole of one of our slabs, for others and for our own reads.
 * This may pin all of it, which takes time, once for each slab. */
static moo_err region_of(struct mooi_networks *networks, uint32_t index,
                         struct mooi_fabric_region **out)
{
    struct mooi_slab *slab = &networks->arena->slab[index];
    moo_err err = MOO_OK;

    if (!networks->region[index])
        err = mooi_fabric_register(networks->fabric, slab->work, slab->bytes,
                                   MOOI_FABRIC_FROM | MOOI_FABRIC_INTO, 0, 0,
                                   &networks->region[index]);
    if (err != MOO_OK)
        return err;
    slab->pinned = mooi_fabric_pins(networks->fabric);
    *out = networks->region[index];
    return MOO_OK;
}

/* ---- as owner ---- */

static moo_err tell_address(struct mooi_networks *networks,
                            struct mooi_outgoing *to)
{
    struct mooi_control control = {.kind = MOOI_CONTROL_FABRIC};

    if (to->address_told)
        return MOO_OK;
    control.u.fabric.bytes = (uint32_t)mooi_fabric_name(
        networks->fabric, control.u.fabric.address);
    to->address_told = 1;
    return mooi_control_send(to->link, &control);
}

static moo_err tell_slab(struct mooi_networks *networks,
                         struct mooi_outgoing *to, uint32_t index)
{
    struct mooi_control control = {.kind = MOOI_CONTROL_SLAB};
    struct mooi_fabric_region *region;
    moo_err err = region_of(networks, index, &region);

    if (err != MOO_OK)
        return err;
    control.u.slab.index = index;
    control.u.slab.bytes = networks->arena->slab[index].bytes;
    control.u.slab.key = mooi_fabric_key(region);
    control.u.slab.base = mooi_fabric_base(region);
    return mooi_control_send(to->link, &control);
}

static moo_err ofi_tell(struct mooi_networks *networks,
                        struct mooi_outgoing *to)
{
    moo_err err = tell_address(networks, to);

    for (uint32_t i = to->slabs_told;
         err == MOO_OK && i < networks->arena->slabs; i++)
        err = tell_slab(networks, to, i);
    return err;
}

/* ---- as importer ---- */

static moo_err hear_address(struct mooi_networks *networks,
                            struct ofi_incoming *state,
                            const struct mooi_control *control)
{
    if (state->peer)
        return MOO_EPROTO;
    return mooi_fabric_connect(networks->fabric, control->u.fabric.address,
                               control->u.fabric.bytes, &state->peer);
}

/* A repeated message is harmless: an owner may not know how many it sent. */
static moo_err hear_slab(struct ofi_incoming *state,
                         const struct mooi_control *control)
{
    struct slab_key *slab = &state->slab[control->u.slab.index];
    struct slab_key told = {.bytes = control->u.slab.bytes,
                            .key = control->u.slab.key,
                            .base = control->u.slab.base};

    if (slab->bytes && memcmp(slab, &told, sizeof told))
        return MOO_EPROTO;
    *slab = told;
    return MOO_OK;
}

static moo_err ofi_hear(struct mooi_networks *networks,
                        struct mooi_incoming *from,
                        const struct mooi_control *control)
{
    switch (control->kind) {
    case MOOI_CONTROL_SERVE:
        from->state = calloc(1, sizeof(struct ofi_incoming));
        return from->state ? MOO_OK : MOO_ENOMEM;
    case MOOI_CONTROL_FABRIC:
        return hear_address(networks, from->state, control);
    case MOOI_CONTROL_SLAB:
        return hear_slab(from->state, control);
    default:
        return MOO_EPROTO;
    }
}

static void ofi_pulled(struct mooi_pull *pull)
{
    struct ofi_pull *state = pull->state;

    if (state->own)
        mooi_fabric_unregister(state->own);
    free(state);
    pull->state = NULL;
}

/* The bytes are here. Were they the lease's? */
static moo_err confirm(struct mooi_pull *pull)
{
    struct ofi_pull *state = pull->state;

    state->confirming = 1;
    if (!pull->incoming->link)
        return MOO_EPEER;
    return mooi_tcp_fetch(pull->incoming->link, &pull->name, pull->offset, 0,
                          pull->target, pull);
}

/* The fabric failed, not the owner, which is told if it still listens. After a
 * failure with a device's memory, the fabric may still work for all else. */
static void complain(const struct mooi_pull *pull, moo_err result)
{
    struct mooi_incoming *from = pull->incoming;
    struct mooi_control control = {.kind = MOOI_CONTROL_FAILED};

    if (from->link && from->by == &ofi_network &&
        from->epoch == pull->epoch && !pull->region && result != MOO_ECLOSED)
        (void)mooi_control_send(from->link, &control);
}

static void on_read(void *cookie, moo_err result)
{
    struct mooi_pull *pull = cookie;
    struct mooi_networks *networks = pull->networks;

    pull->reason = errno;
    pthread_mutex_lock(networks->lock);
    if (result == MOO_OK)
        result = confirm(pull);
    else
        complain(pull, result);
    if (result != MOO_OK)
        networks->ended(pull, result == MOO_ETIMEOUT ? MOO_EPEER : result);
    pthread_mutex_unlock(networks->lock);
}

/* The target of the bytes, and its region if that is wanted. */
static moo_err place(struct mooi_pull *pull, struct mooi_fabric_want *want)
{
    struct mooi_networks *networks = pull->networks;
    struct mooi_fabric *fabric = networks->fabric;
    struct ofi_pull *state = pull->state;
    struct mooi_fabric_region *region = NULL;
    moo_err err = MOO_OK;

    want->into = pull->target;
    if (pull->region) {
        want->region = pull->region;
        return MOO_OK;
    }
    if (pull->block) {
        want->into = mooi_block_work(networks->arena, pull->block);
        if (mooi_fabric_wants_regions(fabric))
            err = region_of(networks, pull->block->slab, &region);
    } else if (mooi_fabric_wants_regions(fabric)) {
        err = mooi_fabric_register(fabric, pull->target, pull->length,
                                   MOOI_FABRIC_INTO, 0, 0, &state->own);
        region = state->own;
    }
    want->region = region;
    return err;
}

static moo_err begin_read(struct ofi_incoming *from, struct mooi_pull *pull)
{
    const struct slab_key *slab = &from->slab[pull->name.slab];
    struct mooi_fabric_want want = {.from = slab->base + pull->offset,
                                    .key = slab->key,
                                    .bytes = pull->length,
                                    .patience_ms = MOOI_FABRIC_SILENT_MS,
                                    .contact_ms = MOOI_FABRIC_CONTACT_MS,
                                    .done = on_read,
                                    .cookie = pull};
    moo_err err = place(pull, &want);

    if (pull->region) {
        want.from = pull->from;
        want.key = pull->key;
    }
    return err == MOO_OK ? mooi_fabric_read(from->peer, &want) : err;
}

static moo_err ofi_pull(struct mooi_pull *pull)
{
    struct ofi_incoming *from = pull->incoming->state;
    const struct slab_key *slab;
    moo_err err;

    if (pull->name.slab >= MOOI_MAX_SLABS)
        return MOO_EPROTO;
    slab = &from->slab[pull->name.slab];
    if (!from->peer || !slab->bytes)
        return MOO_ETIMEOUT;
    if (!pull->region && (pull->length > slab->bytes ||
                          pull->offset > slab->bytes - pull->length))
        return MOO_EPROTO;
    pull->state = calloc(1, sizeof(struct ofi_pull));
    if (!pull->state)
        return MOO_ENOMEM;
    err = begin_read(from, pull);
    if (err == MOO_OK)
        return MOO_OK;
    ofi_pulled(pull);
    return err == MOO_ETIMEOUT ? MOO_EPEER : err;
}

static moo_err ofi_cancel(struct mooi_pull *pull)
{
    struct mooi_networks *networks = pull->networks;
    const struct ofi_pull *state;
    int confirming;

    pthread_mutex_lock(networks->lock);
    state = pull->state;
    confirming = state && state->confirming;
    pthread_mutex_unlock(networks->lock);
    if (!state)
        return MOO_ESTALE; /* it has ended */
    if (confirming) /* nothing is written any more; it ends soon by itself */
        return mooi_over_tcp.cancel(pull);
    return mooi_fabric_cancel(networks->fabric, pull);
}

static void ofi_part(struct mooi_networks *networks, struct mooi_incoming *from)
{
    struct ofi_incoming *state = from->state;

    (void)networks;
    if (state && state->peer)
        mooi_fabric_forget(state->peer); /* its reads end */
    free(state);
    from->state = NULL;
}

static const struct mooi_network_ops ofi_network = {
    .scheme = "ofi",
    .bit = MOO_TRANSPORT_OFI,
    .tell = ofi_tell,
    .hear = ofi_hear,
    .pull = ofi_pull,
    .cancel = ofi_cancel,
    .pulled = ofi_pulled,
    .part = ofi_part,
};

const struct mooi_ofi mooi_ofi_by_libfabric = {
    .network = &ofi_network,
    .probe = mooi_fabric_probe,
    .open = mooi_fabric_open,
    .close = mooi_fabric_close,
    .provider = mooi_fabric_provider,
    .name = mooi_fabric_name,
    .takes_devices = mooi_fabric_takes_devices,
    .strerror = mooi_fabric_strerror,
    .register_memory = mooi_fabric_register,
    .unregister = mooi_fabric_unregister,
    .key = mooi_fabric_key,
    .base = mooi_fabric_base,
    .wants_regions = mooi_fabric_wants_regions,
    .connect = mooi_fabric_connect,
    .forget = mooi_fabric_forget,
    .read = mooi_fabric_read,
    .cancel = mooi_fabric_cancel,
};
