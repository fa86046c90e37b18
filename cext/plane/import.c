/* SPDX-License-Identifier: MIT */
/*
 * import.c: from a descriptor to memory, at once or by a fetch, and the end of
 * its use.
 */
#include "plane/import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plane/forks.h"
#include "plane/memory.h"
#include "plane/route.h"
#include "plane/source.h"

/* On one host the wait is only for the owner's own work. */
#define LOCAL_MS 5000

/* An owner that took us to be on its host may have learnt better since and
 * called over a network. */
static int has_called(moo_plane *plane, uint64_t owner)
{
    const struct mooi_source *source;

    if (!plane->net || mooi_owner_find(&plane->local, owner))
        return 0;
    source = mooi_source_find(plane, owner);
    return source && source->in.link;
}

/* It may also have sent a descriptor before it learnt where we are. It will
 * call: until then nothing of it is in our directory, where each process of
 * this host has a socket. */
static int is_elsewhere(moo_plane *plane, uint64_t owner)
{
    return plane->net && owner != plane->id &&
           !mooi_owner_find(&plane->local, owner) &&
           !mooi_route_has_socket(plane, owner);
}

static void resolve(moo_plane *plane, struct mooi_descriptor *d)
{
    if (!(d->flags & (MOOI_REMOTE | MOOI_TICKET)) &&
        (has_called(plane, d->owner) || is_elsewhere(plane, d->owner)))
        d->flags |= MOOI_REMOTE;
}

int moo_plane_is_remote(moo_plane *plane, const uint8_t *descriptor,
                        size_t bytes)
{
    struct mooi_descriptor d;

    if (mooi_descriptor_parse(descriptor, bytes, &d) != MOO_OK ||
        d.flags & MOOI_TICKET)
        return 0;
    if (d.flags & MOOI_REMOTE || !plane->net)
        return d.flags & MOOI_REMOTE;
    if (mooi_plane_enter(plane) != MOO_OK)
        return 0;
    resolve(plane, &d);
    pthread_mutex_unlock(&plane->lock);
    return d.flags & MOOI_REMOTE;
}

static moo_err guard(moo_plane *plane, const uint8_t *descriptor, size_t bytes,
                     struct mooi_descriptor *out)
{
    moo_err err;

    if (atomic_load(&plane->forked))
        return MOO_EFORK;
    pthread_mutex_lock(&plane->lock);
    mooi_owners_reap(&plane->local);
    err = plane->closed ? MOO_ECLOSED
                        : mooi_descriptor_parse(descriptor, bytes, out);
    if (err == MOO_OK)
        resolve(plane, out);
    pthread_mutex_unlock(&plane->lock);
    return err;
}

/* ---- remote fetches ---- */

/* Lock not held. */
static void free_unused(struct moo_fetch *fetch)
{
    moo_plane *plane = fetch->plane;

    pthread_mutex_lock(&plane->lock);
    mooi_fetch_unref(fetch);
    pthread_mutex_unlock(&plane->lock);
}

static moo_err begin_locked(struct moo_fetch *fetch, int timeout_ms)
{
    moo_plane *plane = fetch->plane;
    moo_err err = MOO_OK;

    if (!plane->net)
        return MOO_EUNREACHABLE; /* a correct owner found no endpoint of ours */
    fetch->pull.target = fetch->into;
    if (!fetch->into && !fetch->discard)
        err = mooi_block_for_user(plane, fetch->d.length, &fetch->block,
                                  &fetch->pull.target);
    if (err != MOO_OK)
        return err;
    fetch->pull.block = fetch->block;
    err = mooi_source_begin(fetch, timeout_ms);
    if (err != MOO_OK && fetch->block)
        mooi_block_rele(&plane->arena, fetch->block);
    return err;
}

moo_err mooi_fetch_launch(struct moo_fetch *fetch, int timeout_ms)
{
    moo_plane *plane = fetch->plane;
    moo_err err = mooi_plane_enter(plane);

    if (err == MOO_OK) {
        err = begin_locked(fetch, timeout_ms);
        pthread_mutex_unlock(&plane->lock);
    }
    if (err != MOO_OK)
        free_unused(fetch);
    return err;
}

static moo_err import_remote(moo_plane *plane, const struct mooi_descriptor *d,
                             int timeout_ms, void **out, size_t *out_bytes)
{
    struct moo_fetch *fetch = mooi_fetch_new(plane, d, NULL, 0);
    moo_err err = fetch ? mooi_fetch_launch(fetch, timeout_ms) : MOO_ENOMEM;

    if (err != MOO_OK)
        return err;
    mooi_plane_hold(plane);
    do /* its source ends it in time */
        err = moo_fetch_wait(fetch, 1000, out, out_bytes);
    while (err == MOO_ETIMEOUT);
    moo_fetch_free(fetch);
    return err;
}

static moo_err discard_remote(moo_plane *plane, const struct mooi_descriptor *d,
                              int timeout_ms)
{
    struct moo_fetch *fetch = mooi_fetch_new(plane, d, NULL, 0);
    moo_err err;

    if (!fetch)
        return MOO_ENOMEM;
    fetch->discard = 1;
    err = mooi_fetch_launch(fetch, timeout_ms);
    if (err == MOO_OK)
        free_unused(fetch);
    return err;
}

/* ---- imports ---- */

/* Take the lease: only one import of a descriptor can succeed. */
static moo_err take_lease(const struct mooi_owner *owner,
                          const struct mooi_mapped *slab,
                          const struct mooi_descriptor *d)
{
    if (d->lease >= owner->entries || d->offset + d->length > slab->bytes)
        return MOO_EPROTO;
    return mooi_ledger_shift(owner->ledger, d->lease, d->generation,
                             MOOI_GRANTED, MOOI_HELD)
               ? MOO_OK
               : MOO_ESTALE;
}

static struct mooi_import *new_import(struct mooi_owner *owner,
                                      const struct mooi_descriptor *d)
{
    struct mooi_import *import = calloc(1, sizeof *import);

    if (!import)
        return NULL;
    import->owner = owner;
    import->bytes = d->length;
    import->offset = d->offset;
    import->slab = d->slab;
    import->lease = d->lease;
    import->generation = d->generation;
    import->shared = d->flags & MOO_MOVED;
    return import;
}

/* Lock held. The import takes over the pin of the owner. */
static moo_err place(moo_plane *plane, struct mooi_mapped *slab,
                     struct mooi_import *import)
{
    moo_err err = mooi_mapped_place(&plane->local, slab, import);

    if (err != MOO_OK) {
        mooi_import_release(plane, import);
        return err;
    }
    import->born = plane->arena.forks.made;
    plane->imports++;
    plane->imported += import->bytes;
    return MOO_OK;
}

moo_err moo_import(moo_plane *plane, const uint8_t *descriptor, size_t bytes,
                   int timeout_ms, void **out, size_t *out_bytes)
{
    struct mooi_descriptor d;
    struct mooi_owner *owner;
    struct mooi_mapped *slab;
    struct mooi_import *import;
    moo_err err = guard(plane, descriptor, bytes, &d);

    if (err != MOO_OK)
        return err;
    if (d.flags & MOOI_TICKET)
        return MOO_EINVAL;
    if (d.flags & MOOI_REMOTE)
        return import_remote(plane, &d, timeout_ms, out, out_bytes);
    err = mooi_local_to(&plane->local, d.owner)
              ->attach(&plane->local, &d, timeout_ms, &owner, &slab);
    if (err != MOO_OK)
        return err;
    err = take_lease(owner, slab, &d);
    import = err == MOO_OK ? new_import(owner, &d) : NULL;
    if (!import) {
        mooi_owner_unpin(&plane->local, owner);
        return err == MOO_OK ? MOO_ENOMEM : err;
    }
    pthread_mutex_lock(&plane->lock);
    err = place(plane, slab, import);
    pthread_mutex_unlock(&plane->lock);
    if (err != MOO_OK) {
        mooi_owner_unpin(&plane->local, owner);
        free(import);
        return err;
    }
    mooi_plane_hold(plane);
    *out = import->at;
    *out_bytes = import->bytes;
    return MOO_OK;
}

moo_err moo_import_once(moo_plane *plane, const uint8_t *descriptor,
                        size_t bytes, int timeout_ms, void **out,
                        size_t *out_bytes)
{
    return *out ? MOO_OK
                : moo_import(plane, descriptor, bytes, timeout_ms, out,
                             out_bytes);
}

moo_err moo_discard(moo_plane *plane, const uint8_t *descriptor, size_t bytes,
                    int timeout_ms)
{
    struct mooi_descriptor d;
    struct mooi_owner *owner;
    moo_err err = guard(plane, descriptor, bytes, &d);

    if (err == MOO_OK && (d.flags & MOOI_REMOTE))
        return discard_remote(plane, &d, timeout_ms);
    if (err == MOO_OK)
        err = mooi_owner_pin(&plane->local, d.owner, timeout_ms, &owner);
    if (err != MOO_OK)
        return err;
    pthread_mutex_lock(&plane->lock);
    if (d.lease < owner->entries)
        mooi_local_to(&plane->local, d.owner)
            ->release(&plane->local, owner, d.lease, d.generation,
                      MOOI_GRANTED);
    owner->live--;
    pthread_mutex_unlock(&plane->lock);
    return MOO_OK;
}

static void drop_import(moo_plane *plane, struct mooi_import *import)
{
    plane->imports--;
    plane->imported -= import->bytes;
    if (!mooi_forks_keep(plane, import))
        mooi_import_end(plane, import);
}

static void drop_own(moo_plane *plane, const struct mooi_region *region,
                     const void *data)
{
    struct mooi_block *block = mooi_block_at(
        &plane->arena, region->slab, (uintptr_t)data - region->start);

    if (block)
        mooi_block_rele(&plane->arena, block);
}

void moo_drop(moo_plane *plane, void *data)
{
    const struct mooi_region *region;
    struct mooi_import *import = NULL;

    if (atomic_load(&plane->forked))
        return;
    pthread_mutex_lock(&plane->lock);
    region = mooi_region_find(&plane->regions, data);
    if (region && region->kind == MOOI_WINDOW)
        import = mooi_mapped_find(region->of, data);
    else if (region && region->kind == MOOI_ALONE)
        import = region->of;
    else if (region)
        drop_own(plane, region, data);
    if (import)
        drop_import(plane, import);
    pthread_mutex_unlock(&plane->lock);
    if (region)
        mooi_plane_rele(plane);
}

/* ---- local fetches ---- */

static moo_err import_now(struct moo_fetch *fetch, const uint8_t *descriptor,
                          size_t bytes)
{
    void *at;
    size_t length;
    moo_err err = moo_import(fetch->plane, descriptor, bytes, LOCAL_MS, &at,
                             &length);

    if (err != MOO_OK)
        return err;
    if (!fetch->into) {
        fetch->at = at;
        return MOO_OK;
    }
    memcpy(fetch->into, at, length);
    moo_drop(fetch->plane, at);
    return MOO_OK;
}

static moo_err begin_local(struct moo_fetch *fetch, const uint8_t *descriptor,
                           size_t bytes)
{
    moo_err err = import_now(fetch, descriptor, bytes);

    if (err == MOO_ENOMEM || err == MOO_ECLOSED)
        return err;
    pthread_mutex_lock(&fetch->plane->lock);
    fetch->plane->fetches++;
    mooi_fetch_end(fetch, err == MOO_ETIMEOUT ? MOO_EPEER : err);
    pthread_mutex_unlock(&fetch->plane->lock);
    return MOO_OK;
}

/* Nothing is fetched for a ticket; its lease stays. */
static moo_err begin_ticket(struct moo_fetch *fetch)
{
    moo_err err = mooi_plane_enter(fetch->plane);

    if (err != MOO_OK)
        return err;
    fetch->plane->fetches++;
    mooi_fetch_end(fetch, MOO_OK);
    pthread_mutex_unlock(&fetch->plane->lock);
    return MOO_OK;
}

/* ---- fetches ---- */

moo_err moo_fetch_begin(moo_plane *plane, const uint8_t *descriptor,
                        size_t bytes, void *into, size_t into_bytes,
                        uint64_t tag, moo_fetch **out)
{
    struct mooi_descriptor d;
    struct moo_fetch *fetch;
    moo_err err = mooi_descriptor_parse(descriptor, bytes, &d);

    if (atomic_load(&plane->forked))
        return MOO_EFORK;
    if (err != MOO_OK)
        return err;
    if (into && (into_bytes != d.length || d.flags & MOOI_TICKET))
        return MOO_EINVAL;
    pthread_mutex_lock(&plane->lock);
    resolve(plane, &d);
    pthread_mutex_unlock(&plane->lock);
    fetch = mooi_fetch_new(plane, &d, into, tag);
    if (!fetch)
        return MOO_ENOMEM;
    if (d.flags & MOOI_REMOTE && !(d.flags & MOOI_TICKET)) {
        err = mooi_fetch_launch(fetch, MOO_CONTACT_MS);
    } else {
        err = d.flags & MOOI_TICKET ? begin_ticket(fetch)
                                    : begin_local(fetch, descriptor, bytes);
        if (err != MOO_OK)
            free_unused(fetch);
    }
    if (err != MOO_OK)
        return err;
    mooi_plane_hold(plane);
    *out = fetch;
    return MOO_OK;
}

moo_err moo_fetch_begin_once(moo_plane *plane, const uint8_t *descriptor,
                             size_t bytes, void *into, size_t into_bytes,
                             uint64_t tag, moo_fetch **out)
{
    return *out ? MOO_OK
                : moo_fetch_begin(plane, descriptor, bytes, into, into_bytes,
                                  tag, out);
}

/* Lock held, but not while waiting. */
static void wait_until_done(struct moo_fetch *fetch, int timeout_ms)
{
    uint64_t end = mooi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct timespec until = mooi_timespec(end);

    while (!fetch->done && timeout_ms > 0)
        if (pthread_cond_timedwait(&fetch->ended, &fetch->plane->lock,
                                   &until) == ETIMEDOUT)
            return;
}

moo_err moo_fetch_wait(moo_fetch *fetch, int timeout_ms, void **out,
                       size_t *out_bytes)
{
    moo_plane *plane = fetch->plane;
    moo_err err = MOO_ETIMEOUT;

    if (atomic_load(&plane->forked))
        return MOO_EFORK;
    pthread_mutex_lock(&plane->lock);
    wait_until_done(fetch, timeout_ms);
    if (fetch->done) {
        err = fetch->told ? MOO_ESTALE : fetch->result;
        fetch->told = 1;
        errno = fetch->pull.reason;
    }
    if (err == MOO_OK) {
        *out = fetch->at;
        *out_bytes = fetch->d.length;
        fetch->at = NULL;
    }
    pthread_mutex_unlock(&plane->lock);
    return err;
}

void moo_fetch_free(moo_fetch *fetch)
{
    moo_plane *plane;
    char *unwanted;

    if (!fetch || atomic_load(&fetch->plane->forked))
        return;
    plane = fetch->plane;
    pthread_mutex_lock(&plane->lock);
    fetch->freed = 1;
    if (!fetch->done)
        mooi_source_cancel(fetch);
    mooi_fetch_untag(fetch);
    unwanted = fetch->at;
    mooi_fetch_unref(fetch);
    pthread_mutex_unlock(&plane->lock);
    if (unwanted)
        moo_drop(plane, unwanted);
    mooi_plane_rele(plane);
}

void moo_fetch_free_at(moo_fetch **fetch)
{
    moo_fetch_free(*fetch);
    *fetch = NULL;
}
