/* SPDX-License-Identifier: MIT */
/* import.c: from a descriptor to memory, and the end of its use. */
#include <stdlib.h>
#include <string.h>

#include "plane/plane.h"
#include "plane/net.h"

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

void mooi_import_resolve(moo_plane *plane, struct mooi_descriptor *d)
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
    mooi_import_resolve(plane, &d);
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
        mooi_import_resolve(plane, out);
    pthread_mutex_unlock(&plane->lock);
    return err;
}

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

static void release(moo_plane *plane, const struct mooi_import *import)
{
    mooi_local_to(&plane->local, import->owner->id)
        ->release(&plane->local, import->owner, import->lease,
                  import->generation, MOOI_HELD);
}

/* Lock held. The import takes over the pin of the owner. */
static moo_err place(moo_plane *plane, struct mooi_mapped *slab,
                     struct mooi_import *import)
{
    moo_err err = mooi_mapped_place(&plane->local, slab, import);

    if (err != MOO_OK) {
        release(plane, import);
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
        return mooi_fetch_import(plane, &d, timeout_ms, out, out_bytes);
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
        return mooi_fetch_discard(plane, &d, timeout_ms);
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

void mooi_import_end(moo_plane *plane, struct mooi_import *import)
{
    mooi_mapped_remove(&plane->local, import);
    release(plane, import);
    import->owner->live--;
    free(import);
    mooi_owners_reap(&plane->local);
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
