/* SPDX-License-Identifier: MIT */
/*
 * network.c: the bytes are read by RDMA, out of the owner's slabs, which it
 * has registered as a whole and told the keys of.
 *
 * The owner does not take part in a read, so it cannot say that the lease still
 * stands. Therefore the importer asks for nothing, by TCP, after each read: the
 * answer shows that the memory was the lease's all the time. If the owner has
 * given us up in between, the link is down, and no answer comes.
 *
 * A read goes into the mapping of our slab that is registered; the user's
 * mapping shows the same pages.
 *
 * If the fabric fails us, the fetch fails, and we tell the owner, which goes
 * over to TCP if both sides allow it.
 */
#include "plane/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Silence. A dead owner is noticed before, by its link. */
#define PATIENCE_MS 4000
/* The first contact may lose a message, which a fabric sends again after four
 * seconds. */
#define CONTACT_MS 9000

struct slab_key {
    uint64_t bytes; /* 0: not told yet */
    uint64_t key, base;
};

/* What we know of a source's memory. */
struct ofi_source {
    struct mooi_fabric_peer *peer; /* NULL: its endpoint was not told yet */
    struct slab_key slab[MOOI_MAX_SLABS];
};

/* One pull. */
struct ofi_pull {
    struct mooi_fabric_region *own; /* of the caller's memory; NULL: none */
    int confirming;
};

/* ---- registered memory ---- */

/* The whole of one of our slabs, for others and for our own reads. It may pin
 * all of it, which takes its time, once for each slab. */
static moo_err region_of(moo_plane *plane, uint32_t index,
                         struct mooi_fabric_region **out)
{
    struct mooi_net *net = plane->net;
    struct mooi_slab *slab = &plane->arena.slab[index];
    moo_err err = MOO_OK;

    if (!net->region[index])
        err = mooi_fabric_register(net->fabric, slab->work, slab->bytes,
                                   MOOI_FABRIC_FROM | MOOI_FABRIC_INTO, 0, 0,
                                   &net->region[index]);
    if (err != MOO_OK)
        return err;
    slab->pinned = mooi_fabric_pins(net->fabric);
    *out = net->region[index];
    return MOO_OK;
}

/* ---- as owner ---- */

static moo_err tell_endpoint(moo_plane *plane, struct mooi_peer *peer)
{
    const struct mooi_card *card = &plane->net->card;
    struct mooi_note note = {.kind = MOOI_NOTE_ENDPOINT};

    if (peer->reach->endpoint_told)
        return MOO_OK;
    note.u.endpoint.bytes = card->endpoint_bytes;
    memcpy(note.u.endpoint.name, card->endpoint, card->endpoint_bytes);
    peer->reach->endpoint_told = 1;
    return mooi_note_send(peer, &note);
}

static moo_err tell_slab(moo_plane *plane, struct mooi_peer *peer,
                         uint32_t index)
{
    struct mooi_note note = {.kind = MOOI_NOTE_SLAB};
    struct mooi_fabric_region *region;
    moo_err err = region_of(plane, index, &region);

    if (err != MOO_OK)
        return err;
    note.u.slab.index = index;
    note.u.slab.bytes = plane->arena.slab[index].bytes;
    note.u.slab.key = mooi_fabric_key(region);
    note.u.slab.base = mooi_fabric_base(region);
    return mooi_note_send(peer, &note);
}

static moo_err ofi_tell(moo_plane *plane, struct mooi_peer *peer)
{
    moo_err err = tell_endpoint(plane, peer);

    for (uint32_t i = peer->slabs_sent;
         err == MOO_OK && i < plane->arena.slabs; i++)
        err = tell_slab(plane, peer, i);
    return err;
}

/* ---- as importer ---- */

static moo_err hear_endpoint(moo_plane *plane, struct ofi_source *state,
                             const struct mooi_note *note)
{
    if (state->peer)
        return MOO_EPROTO;
    return mooi_fabric_meet(plane->net->fabric, note->u.endpoint.name,
                            note->u.endpoint.bytes, &state->peer);
}

/* The same again is no harm: an owner may not know how far it got. */
static moo_err hear_slab(struct ofi_source *state, const struct mooi_note *note)
{
    struct slab_key *slab = &state->slab[note->u.slab.index];
    struct slab_key told = {.bytes = note->u.slab.bytes,
                            .key = note->u.slab.key,
                            .base = note->u.slab.base};

    if (slab->bytes && memcmp(slab, &told, sizeof told))
        return MOO_EPROTO;
    *slab = told;
    return MOO_OK;
}

static moo_err ofi_hear(moo_plane *plane, struct mooi_source *source,
                        const struct mooi_note *note)
{
    switch (note->kind) {
    case MOOI_NOTE_SERVE:
        source->state = calloc(1, sizeof(struct ofi_source));
        return source->state ? MOO_OK : MOO_ENOMEM;
    case MOOI_NOTE_ENDPOINT:
        return hear_endpoint(plane, source->state, note);
    case MOOI_NOTE_SLAB:
        return hear_slab(source->state, note);
    default:
        return MOO_EPROTO;
    }
}

static void ofi_pulled(struct moo_fetch *fetch)
{
    struct ofi_pull *pull = fetch->pull;

    if (pull->own)
        mooi_fabric_unregister(pull->own);
    free(pull);
    fetch->pull = NULL;
}

/* The bytes are here. Were they the lease's? */
static moo_err confirm(struct moo_fetch *fetch)
{
    struct ofi_pull *pull = fetch->pull;
    struct mooi_source *source = fetch->source;
    struct mooi_lease_name name = {.slab = fetch->d.slab,
                                   .lease = fetch->d.lease,
                                   .generation = fetch->d.generation};

    pull->confirming = 1;
    if (!source->link)
        return MOO_EPEER;
    return mooi_tcp_fetch(source->link, &name, fetch->d.offset, 0,
                          fetch->target, fetch);
}

/* The fabric failed, not the owner: it is told, if it still listens. Where it
 * was a device's memory, the fabric may be good for all else. */
static void complain(const struct moo_fetch *fetch, moo_err result)
{
    struct mooi_source *source = fetch->source;
    struct mooi_note note = {.kind = MOOI_NOTE_FAILED};
    uint8_t bytes[MOOI_NOTE_BYTES];

    if (source->link && source->by == &mooi_over_ofi && !fetch->region &&
        result != MOO_ECLOSED)
        (void)mooi_tcp_note(source->link, bytes, mooi_note_pack(&note, bytes));
}

static void on_read(void *cookie, moo_err result)
{
    struct moo_fetch *fetch = cookie;
    moo_plane *plane = fetch->plane;

    fetch->reason = errno;
    pthread_mutex_lock(&plane->lock);
    if (result == MOO_OK)
        result = confirm(fetch);
    else
        complain(fetch, result);
    if (result != MOO_OK)
        mooi_source_ended(fetch, result == MOO_ETIMEOUT ? MOO_EPEER : result);
    pthread_mutex_unlock(&plane->lock);
}

/* Where the bytes go, and the region that it lies in, if that is wanted. */
static moo_err place(moo_plane *plane, struct moo_fetch *fetch,
                     struct mooi_fabric_want *want)
{
    struct mooi_fabric *fabric = plane->net->fabric;
    struct ofi_pull *pull = fetch->pull;
    struct mooi_fabric_region *region = NULL;
    moo_err err = MOO_OK;

    want->into = fetch->target;
    if (fetch->region) {
        want->region = fetch->region;
        return MOO_OK;
    }
    if (fetch->block) {
        want->into = mooi_block_work(&plane->arena, fetch->block);
        if (mooi_fabric_wants_regions(fabric))
            err = region_of(plane, fetch->block->slab, &region);
    } else if (mooi_fabric_wants_regions(fabric)) {
        err = mooi_fabric_register(fabric, fetch->target, fetch->d.length,
                                   MOOI_FABRIC_INTO, 0, 0, &pull->own);
        region = pull->own;
    }
    want->region = region;
    return err;
}

static moo_err begin_read(moo_plane *plane, struct ofi_source *state,
                          struct moo_fetch *fetch)
{
    const struct slab_key *slab = &state->slab[fetch->d.slab];
    struct mooi_fabric_want want = {.from = slab->base + fetch->d.offset,
                                    .key = slab->key,
                                    .bytes = fetch->d.length,
                                    .patience_ms = PATIENCE_MS,
                                    .contact_ms = CONTACT_MS,
                                    .done = on_read,
                                    .cookie = fetch};
    moo_err err = place(plane, fetch, &want);

    if (fetch->region) {
        want.from = fetch->from;
        want.key = fetch->key;
    }
    return err == MOO_OK ? mooi_fabric_read(state->peer, &want) : err;
}

static moo_err ofi_pull(moo_plane *plane, struct mooi_source *source,
                        struct moo_fetch *fetch)
{
    struct ofi_source *state = source->state;
    const struct slab_key *slab;
    moo_err err;

    if (fetch->d.slab >= MOOI_MAX_SLABS)
        return MOO_EPROTO;
    slab = &state->slab[fetch->d.slab];
    if (!state->peer || !slab->bytes)
        return MOO_ETIMEOUT;
    if (!fetch->region &&
        (fetch->d.length > slab->bytes ||
         fetch->d.offset > slab->bytes - fetch->d.length))
        return MOO_EPROTO;
    fetch->pull = calloc(1, sizeof(struct ofi_pull));
    if (!fetch->pull)
        return MOO_ENOMEM;
    err = begin_read(plane, state, fetch);
    if (err == MOO_OK)
        return MOO_OK;
    ofi_pulled(fetch);
    return err == MOO_ETIMEOUT ? MOO_EPEER : err;
}

static moo_err ofi_cancel(moo_plane *plane, struct mooi_source *source,
                          struct moo_fetch *fetch)
{
    struct ofi_pull *pull;
    int confirming;

    pthread_mutex_lock(&plane->lock);
    pull = fetch->pull;
    confirming = pull && pull->confirming;
    pthread_mutex_unlock(&plane->lock);
    if (!pull)
        return MOO_ESTALE; /* it has ended */
    if (confirming) /* nothing is written any more; it ends soon by itself */
        return mooi_over_tcp.cancel(plane, source, fetch);
    return mooi_fabric_cancel(plane->net->fabric, fetch);
}

static void ofi_part(moo_plane *plane, struct mooi_source *source)
{
    struct ofi_source *state = source->state;

    (void)plane;
    if (state->peer)
        mooi_fabric_forget(state->peer); /* its reads end */
    free(state);
    source->state = NULL;
}

const struct mooi_transport mooi_over_ofi = {
    .scheme = "ofi",
    .bit = MOO_TRANSPORT_OFI,
    .tell = ofi_tell,
    .hear = ofi_hear,
    .pull = ofi_pull,
    .pulled = ofi_pulled,
    .cancel = ofi_cancel,
    .part = ofi_part,
};
