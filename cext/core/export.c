/* SPDX-License-Identifier: MIT */
/*
 * export.c: from memory to a descriptor.
 *
 * What is exported decides the cost. Private memory is copied into a block.
 * Blocks of our own and received memory are granted again as they are, as long
 * as nobody wrote to them after they were first seen by others: such writes
 * went to private pages, which are found by looking at the page table.
 */
#include <string.h>

#include "core/pages.h"
#include "core/plane.h"
#include "transport/transport.h"

struct request {
    const char *data;
    size_t bytes;
    uint64_t peer;
    int flags;
    struct mooi_descriptor out;
};

static moo_err guard(moo_plane *plane)
{
    if (atomic_load(&plane->forked))
        return MOO_EFORK;
    pthread_mutex_lock(&plane->lock);
    if (!plane->closed)
        return MOO_OK;
    pthread_mutex_unlock(&plane->lock);
    return MOO_ECLOSED;
}

/* Make new mappings of our slabs known by address. */
static moo_err note_slabs(moo_plane *plane)
{
    while (plane->slabs_known < plane->arena.slabs) {
        const struct mooi_slab *slab = &plane->arena.slab[plane->slabs_known];
        struct mooi_region region = {.start = (uintptr_t)slab->work,
                                     .end = (uintptr_t)slab->work + slab->bytes,
                                     .kind = MOOI_OWN_WORK,
                                     .slab = plane->slabs_known};
        moo_err err = mooi_region_add(plane, &region);
        if (err != MOO_OK)
            return err;
        plane->slabs_known++;
    }
    return MOO_OK;
}

static moo_err alloc(moo_plane *plane, size_t bytes, struct mooi_block **out)
{
    moo_err err;

    mooi_lease_drain(plane);
    err = mooi_block_alloc(&plane->arena, bytes, out);
    if (err != MOO_OK)
        return err;
    err = note_slabs(plane);
    if (err != MOO_OK)
        mooi_block_rele(&plane->arena, *out);
    return err;
}

static moo_err grant(moo_plane *plane, struct mooi_block *block,
                     uint64_t offset, struct request *r, int flags)
{
    struct mooi_peer *peer = mooi_peer_get(plane, r->peer);
    moo_err err;

    if (!peer)
        return MOO_ENOMEM;
    err = mooi_transport_to(plane, r->peer)->offer(plane, peer);
    if (err == MOO_OK)
        err = mooi_lease_grant(plane, block, peer, offset, r->bytes, flags,
                               &r->out);
    return err;
}

/* The lock is let go during the copy. */
static moo_err copy_out(moo_plane *plane, const void *data, size_t bytes,
                        struct mooi_block **out)
{
    moo_err err = alloc(plane, bytes, out);
    char *work;

    if (err != MOO_OK)
        return err;
    work = mooi_block_work(&plane->arena, *out);
    pthread_mutex_unlock(&plane->lock);
    memcpy(work, data, bytes);
    pthread_mutex_lock(&plane->lock);
    plane->bytes_copied += bytes;
    return MOO_OK;
}

static moo_err export_copy(moo_plane *plane, struct request *r, int flags)
{
    struct mooi_block *block;
    moo_err err = copy_out(plane, r->data, r->bytes, &block);

    if (err != MOO_OK)
        return err;
    plane->exports_copied++;
    err = grant(plane, block, mooi_block_offset(block), r, flags);
    mooi_block_rele(&plane->arena, block);
    return err;
}

static int is_dirty(moo_plane *plane, const struct request *r)
{
    return mooi_pages_dirty(plane->pagemap, r->data, r->bytes);
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
    if (moved && block->holds > 1)
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

static int lies_within(const struct mooi_block *block, uint64_t offset,
                       uint64_t bytes)
{
    return offset + bytes <= mooi_block_offset(block) + mooi_block_bytes(block);
}

static moo_err export_own(moo_plane *plane, const struct mooi_region *region,
                          struct request *r)
{
    uint64_t offset = (uintptr_t)r->data - region->start;
    struct mooi_block *block =
        mooi_block_at(&plane->arena, region->slab, offset);

    if (!block || !lies_within(block, offset, r->bytes))
        return export_copy(plane, r, r->flags);
    if (region->kind == MOOI_OWN_WORK)
        return grant(plane, block, offset, r, 0);
    return export_user(plane, block, offset, r);
}

/* Received memory is granted again by its owner; if that cannot be, by a copy
 * of our own. */
static moo_err export_import(moo_plane *plane, struct mooi_import *import,
                             struct request *r)
{
    int moved = (r->flags & MOO_MOVED) || import->moved;
    uint64_t offset = import->offset + (uint64_t)(r->data - import->at);
    moo_err err;

    if (import->gone)
        return MOO_ESTALE;
    if (import->shared ? !moved : is_dirty(plane, r))
        return export_copy(plane, r, moved);
    pthread_mutex_unlock(&plane->lock);
    err = mooi_transport_to(plane, import->owner->id)
              ->grant(plane, import, offset, r->bytes, r->peer, moved, &r->out);
    pthread_mutex_lock(&plane->lock);
    if (err != MOO_OK)
        return err == MOO_EPEER && r->peer == import->owner->id
                   ? MOO_EPEER
                   : export_copy(plane, r, moved);
    import->gone = (uint8_t)moved;
    return MOO_OK;
}

static struct mooi_import *import_at(const struct mooi_region *region,
                                     const struct request *r)
{
    struct mooi_import *import = region->kind == MOOI_ALONE
                                     ? region->import
                                     : mooi_view_find(region->window, r->data);

    if (!import || r->data < import->at ||
        r->data + r->bytes > import->at + import->bytes)
        return NULL;
    return import;
}

static moo_err export_locked(moo_plane *plane, struct request *r)
{
    const struct mooi_region *region = mooi_region_find(plane, r->data);
    struct mooi_import *import;

    if (!region || (uintptr_t)r->data + r->bytes > region->end)
        return export_copy(plane, r, r->flags);
    if (region->kind == MOOI_OWN_WORK || region->kind == MOOI_OWN_USER)
        return export_own(plane, region, r);
    import = import_at(region, r);
    return import ? export_import(plane, import, r)
                  : export_copy(plane, r, r->flags);
}

moo_err moo_export(moo_plane *plane, const void *data, size_t bytes,
                   uint64_t peer, int flags, uint8_t *descriptor)
{
    struct request r = {.data = data,
                        .bytes = bytes,
                        .peer = peer,
                        .flags = flags & MOO_MOVED};
    moo_err err;

    if (!data || !bytes || peer == UINT64_MAX)
        return MOO_EINVAL;
    err = guard(plane);
    if (err != MOO_OK)
        return err;
    err = export_locked(plane, &r);
    plane->exports += err == MOO_OK;
    pthread_mutex_unlock(&plane->lock);
    if (err == MOO_OK)
        mooi_descriptor_pack(&r.out, descriptor);
    return err;
}

static moo_err publish(moo_plane *plane, struct mooi_block *block, char **out,
                       int *stale)
{
    struct mooi_slab *slab = &plane->arena.slab[block->slab];
    struct mooi_region region = {.kind = MOOI_OWN_USER, .slab = block->slab};
    int is_new = !slab->user;
    moo_err err = mooi_block_publish(&plane->arena, block, out, stale);

    if (err != MOO_OK || !is_new)
        return err;
    region.start = (uintptr_t)slab->user;
    region.end = region.start + slab->bytes;
    return mooi_region_add(plane, &region);
}

moo_err moo_empty(moo_plane *plane, size_t bytes, void **out)
{
    struct mooi_block *block;
    char *at;
    int stale = 0;
    moo_err err = guard(plane);

    if (err != MOO_OK)
        return err;
    err = alloc(plane, bytes, &block);
    if (err == MOO_OK) {
        err = publish(plane, block, &at, &stale);
        if (err != MOO_OK)
            mooi_block_rele(&plane->arena, block);
    }
    pthread_mutex_unlock(&plane->lock);
    if (err != MOO_OK)
        return err;
    if (stale)
        mooi_pages_populate(at, mooi_round_up(bytes));
    *out = at;
    return MOO_OK;
}

/* Our own memory is shared as it is, one hold more, if it need not be copied:
 * the work mapping shows what the user mapping showed when it was sealed. */
static int share_own(moo_plane *plane, const struct request *r, void **out)
{
    const struct mooi_region *region = mooi_region_find(plane, r->data);
    struct mooi_block *block;
    uint64_t offset;

    if (!region || region->kind == MOOI_WINDOW || region->kind == MOOI_ALONE)
        return 0;
    offset = (uintptr_t)r->data - region->start;
    block = mooi_block_at(&plane->arena, region->slab, offset);
    if (!block || block->moved || !lies_within(block, offset, r->bytes))
        return 0;
    if (region->kind == MOOI_OWN_USER &&
        (block->sent ? is_dirty(plane, r)
                     : mooi_block_seal(&plane->arena, block) != MOO_OK))
        return 0;
    mooi_block_hold(block);
    *out = plane->arena.slab[region->slab].work + offset;
    return 1;
}

moo_err moo_share(moo_plane *plane, const void *data, size_t bytes, void **out)
{
    struct request r = {.data = data, .bytes = bytes};
    struct mooi_block *block;
    moo_err err = guard(plane);

    if (err != MOO_OK)
        return err;
    if (!share_own(plane, &r, out)) {
        err = copy_out(plane, data, bytes, &block);
        if (err == MOO_OK)
            *out = mooi_block_work(&plane->arena, block);
    }
    pthread_mutex_unlock(&plane->lock);
    return err;
}

static moo_err move_locked(moo_plane *plane, void *data)
{
    const struct mooi_region *region = mooi_region_find(plane, data);
    struct request r = {.data = data, .bytes = 1};

    if (!region || region->kind == MOOI_OWN_WORK)
        return MOO_EINVAL;
    if (region->kind == MOOI_OWN_USER) {
        struct mooi_block *block =
            mooi_block_at(&plane->arena, region->slab,
                          (uintptr_t)data - region->start);
        if (!block || block->gone)
            return block ? MOO_ESTALE : MOO_EINVAL;
        block->moved = 1;
    } else {
        struct mooi_import *import = import_at(region, &r);
        if (!import || import->gone)
            return import ? MOO_ESTALE : MOO_EINVAL;
        import->moved = 1;
    }
    return MOO_OK;
}

moo_err moo_move(moo_plane *plane, void *data)
{
    moo_err err = guard(plane);

    if (err != MOO_OK)
        return err;
    err = move_locked(plane, data);
    pthread_mutex_unlock(&plane->lock);
    return err;
}

/* A lease on memory of another owner, got by mooi_owner_grant: the ledger is
 * mapped, so it can be given back from here. */
static void revoke_foreign(moo_plane *plane, const struct mooi_descriptor *d)
{
    for (struct mooi_owner *o = plane->owners; o; o = o->next)
        if (o->id == d->owner && d->lease < o->entries)
            mooi_ledger_release(o->ledger, d->lease, d->generation,
                                MOOI_GRANTED);
}

moo_err moo_revoke(moo_plane *plane, const uint8_t *descriptor, size_t bytes)
{
    struct mooi_descriptor d;
    moo_err err = mooi_descriptor_parse(descriptor, bytes, &d);

    if (err == MOO_OK)
        err = guard(plane);
    if (err != MOO_OK)
        return err;
    if (d.owner == plane->id)
        mooi_lease_revoke(plane, d.lease, d.generation);
    else
        revoke_foreign(plane, &d);
    pthread_mutex_unlock(&plane->lock);
    return MOO_OK;
}
