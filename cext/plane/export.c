/* SPDX-License-Identifier: MIT */
/*
 * export.c: from memory to a descriptor.
 *
 * The kind of memory decides the cost. Private memory is copied into a block.
 * Blocks of our own and received memory are granted again without a copy,
 * unless they were written to after their first export: such writes went to
 * private pages, which the page table shows.
 */
#include <string.h>

#include "core/pages.h"
#include "plane/forks.h"
#include "plane/memory.h"
#include "plane/route.h"

struct request {
    const char *data;
    size_t bytes;
    uint64_t peer;
    int flags;
    struct mooi_descriptor out;
};

static moo_err grant(moo_plane *plane, struct mooi_block *block,
                     uint64_t offset, struct request *r, int flags)
{
    struct mooi_peer *peer = mooi_peer_get(plane, r->peer);
    moo_err err;

    if (!peer)
        return MOO_ENOMEM;
    err = mooi_peer_offer(plane, peer);
    if (err == MOO_OK)
        err = mooi_lease_grant(&plane->leases, block, &peer->held, offset,
                               r->bytes, flags, &r->out);
    return err;
}

static moo_err export_copy(moo_plane *plane, struct request *r, int flags)
{
    struct mooi_block *block;
    moo_err err = mooi_copy_out(plane, r->data, r->bytes, &block);

    if (err != MOO_OK)
        return err;
    plane->exports_copied++;
    err = grant(plane, block, mooi_block_offset(block), r, flags);
    mooi_block_rele(&plane->arena, block);
    return err;
}

static int is_dirty(moo_plane *plane, const struct request *r)
{
    return mooi_pages_dirty(plane->local.pagemap, r->data, r->bytes);
}

/* A block that moo_empty handed out. */
static moo_err export_user(moo_plane *plane, struct mooi_block *block,
                           uint64_t offset, struct request *r)
{
    int moved = (r->flags & MOO_MOVED) || block->moved;
    moo_err err;

    if (block->gone)
        return MOO_ESTALE;
    if (block->sent && is_dirty(plane, r))
        return export_copy(plane, r, moved);
    if (moved && (block->holds > 1 ||
                  mooi_forks_see(&plane->arena.forks, block->born,
                                 plane->arena.forks.made)))
        return export_copy(plane, r, MOO_MOVED);
    if (!moved && !block->sent) {
        err = mooi_block_seal(&plane->arena, block);
        if (err != MOO_OK)
            return export_copy(plane, r, 0);
    }
    err = grant(plane, block, offset, r, moved);
    if (err == MOO_OK && moved)
        block->gone = 1;
    return err;
}

static moo_err export_own(moo_plane *plane, const struct mooi_region *region,
                          struct request *r)
{
    uint64_t offset = (uintptr_t)r->data - region->start;
    struct mooi_block *block =
        mooi_block_at(&plane->arena, region->slab, offset);

    if (!block || !mooi_block_covers(block, offset, r->bytes))
        return export_copy(plane, r, r->flags);
    if (region->kind == MOOI_OWN_WORK)
        return grant(plane, block, offset, r, 0);
    return export_user(plane, block, offset, r);
}

/* Received memory is granted again by its owner; if that fails, a copy of our
 * own is granted. */
static moo_err export_import(moo_plane *plane, struct mooi_import *import,
                             struct request *r)
{
    int moved = (r->flags & MOO_MOVED) || import->moved;
    uint64_t offset = import->offset + (uint64_t)(r->data - import->at);
    moo_err err;

    if (import->gone)
        return MOO_ESTALE;
    if ((import->shared ? !moved : is_dirty(plane, r)) ||
        (moved && mooi_forks_see_import(plane, import)))
        return export_copy(plane, r, moved);
    pthread_mutex_unlock(&plane->lock);
    err = mooi_local_to(&plane->local, import->owner->id)
              ->grant(&plane->local, import, offset, r->bytes, r->peer, moved,
                      &r->out);
    pthread_mutex_lock(&plane->lock);
    if (err != MOO_OK)
        return err == MOO_EPEER && r->peer == import->owner->id
                   ? MOO_EPEER
                   : export_copy(plane, r, moved);
    import->gone = (uint8_t)moved;
    return MOO_OK;
}

static moo_err export_locked(moo_plane *plane, struct request *r)
{
    const struct mooi_region *region =
        mooi_region_find(&plane->regions, r->data);
    struct mooi_import *import;

    if (!region || (uintptr_t)r->data + r->bytes > region->end)
        return export_copy(plane, r, r->flags);
    if (region->kind == MOOI_OWN_WORK || region->kind == MOOI_OWN_USER)
        return export_own(plane, region, r);
    import = mooi_import_at(region, r->data, r->bytes);
    return import ? export_import(plane, import, r)
                  : export_copy(plane, r, r->flags);
}

/* First, so that nothing is copied for a peer that cannot be reached. */
static moo_err contact(moo_plane *plane, uint64_t id, int flags)
{
    struct mooi_peer *peer = mooi_peer_get(plane, id);

    if (!peer)
        return MOO_ENOMEM;
    return flags & MOO_NOWAIT ? mooi_route_offer(plane, peer)
                              : mooi_route_await(plane, peer);
}

moo_err moo_export(moo_plane *plane, const void *data, size_t bytes,
                   uint64_t peer, int flags, uint8_t *descriptor)
{
    struct request r = {.data = data,
                        .bytes = bytes,
                        .peer = peer,
                        .flags = flags & MOO_MOVED};
    moo_err err;

    if (!data || !bytes || peer >= MOOI_FORK_ENDED)
        return MOO_EINVAL;
    err = mooi_plane_enter(plane);
    if (err != MOO_OK)
        return err;
    if (plane->net)
        err = contact(plane, peer, flags);
    if (err == MOO_OK)
        err = export_locked(plane, &r);
    plane->exports += err == MOO_OK;
    pthread_mutex_unlock(&plane->lock);
    if (err == MOO_OK)
        mooi_descriptor_pack(&r.out, descriptor);
    return err;
}

/* A lease on memory of another owner, got by mooi_owner_grant: the ledger is
 * mapped, so it can be looked up and given back from here. NULL: it is not. */
static struct mooi_ledger *foreign_ledger(const moo_plane *plane,
                                          const struct mooi_descriptor *d)
{
    for (struct mooi_owner *o = plane->local.owners; o; o = o->next)
        if (o->id == d->owner && d->lease < o->entries)
            return o->ledger;
    return NULL;
}

static void revoke_foreign(moo_plane *plane, const struct mooi_descriptor *d)
{
    struct mooi_ledger *ledger = foreign_ledger(plane, d);

    if (ledger)
        mooi_ledger_release(ledger, d->lease, d->generation, MOOI_GRANTED);
}

static int is_unclaimed(moo_plane *plane, const struct mooi_descriptor *d)
{
    const struct mooi_ledger *ledger;

    if (d->owner == plane->id)
        return mooi_lease_is_unclaimed(&plane->leases, d->lease, d->generation);
    ledger = foreign_ledger(plane, d);
    return ledger &&
           mooi_ledger_is(ledger, d->lease, d->generation, MOOI_GRANTED);
}

int moo_is_unclaimed(moo_plane *plane, const uint8_t *descriptor, size_t bytes)
{
    struct mooi_descriptor d;
    int unclaimed;

    if (mooi_descriptor_parse(descriptor, bytes, &d) != MOO_OK ||
        mooi_plane_enter(plane) != MOO_OK)
        return 0;
    unclaimed = is_unclaimed(plane, &d);
    pthread_mutex_unlock(&plane->lock);
    return unclaimed;
}

moo_err moo_revoke(moo_plane *plane, const uint8_t *descriptor, size_t bytes)
{
    struct mooi_descriptor d;
    moo_err err = mooi_descriptor_parse(descriptor, bytes, &d);

    if (err == MOO_OK)
        err = mooi_plane_enter(plane);
    if (err != MOO_OK)
        return err;
    if (d.owner == plane->id)
        mooi_lease_revoke(&plane->leases, d.lease, d.generation);
    else
        revoke_foreign(plane, &d);
    pthread_mutex_unlock(&plane->lock);
    return MOO_OK;
}
