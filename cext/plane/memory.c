/* SPDX-License-Identifier: MIT */
/* memory.c: own shared memory: empty blocks, snapshots, moves. */
#include "plane/memory.h"

#include "core/copy.h"
#include "core/pages.h"
#include "plane/forks.h"

/* Make new mappings of our slabs known by address. */
static moo_err note_slabs(moo_plane *plane)
{
    while (plane->slabs_known < plane->arena.slabs) {
        const struct mooi_slab *slab = &plane->arena.slab[plane->slabs_known];
        struct mooi_region region = {.start = (uintptr_t)slab->work,
                                     .end = (uintptr_t)slab->work + slab->bytes,
                                     .kind = MOOI_OWN_WORK,
                                     .slab = plane->slabs_known};
        moo_err err = mooi_region_add(&plane->regions, &region);
        if (err != MOO_OK)
            return err;
        plane->slabs_known++;
    }
    return MOO_OK;
}

static moo_err alloc(moo_plane *plane, size_t bytes, struct mooi_block **out)
{
    moo_err err;

    mooi_lease_drain(&plane->leases);
    err = mooi_block_alloc(&plane->arena, bytes, out);
    if (err == MOO_ENOMEM && plane->arena.kept) {
        mooi_forks_reap(plane);
        err = mooi_block_alloc(&plane->arena, bytes, out);
    }
    if (err != MOO_OK)
        return err;
    err = note_slabs(plane);
    if (err != MOO_OK)
        mooi_block_rele(&plane->arena, *out);
    return err;
}

moo_err mooi_copy_out(moo_plane *plane, const void *data, size_t bytes,
                      struct mooi_block **out)
{
    moo_err err = alloc(plane, bytes, out);
    char *work;

    if (err != MOO_OK)
        return err;
    work = mooi_block_work(&plane->arena, *out);
    pthread_mutex_unlock(&plane->lock);
    mooi_copy(work, data, bytes);
    pthread_mutex_lock(&plane->lock);
    plane->bytes_copied += bytes;
    return MOO_OK;
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
    return mooi_region_add(&plane->regions, &region);
}

static moo_err alloc_for_user(moo_plane *plane, size_t bytes,
                              struct mooi_block **out, char **at, int *stale)
{
    moo_err err = alloc(plane, bytes, out);

    if (err != MOO_OK)
        return err;
    err = publish(plane, *out, at, stale);
    if (err != MOO_OK)
        mooi_block_rele(&plane->arena, *out);
    return err;
}

moo_err mooi_block_for_user(moo_plane *plane, size_t bytes,
                            struct mooi_block **out, char **at)
{
    int stale;

    return alloc_for_user(plane, bytes, out, at, &stale);
}

moo_err moo_empty(moo_plane *plane, size_t bytes, void **out)
{
    struct mooi_block *block;
    char *at;
    int stale = 0;
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    err = alloc_for_user(plane, bytes, &block, &at, &stale);
    pthread_mutex_unlock(&plane->lock);
    if (err != MOO_OK)
        return err;
    if (stale)
        mooi_pages_populate(at, mooi_round_up(bytes));
    mooi_plane_hold(plane);
    *out = at;
    return MOO_OK;
}

/* Our own memory is shared without a copy, by one more hold, if it was not
 * written to: the work mapping shows the bytes that the user mapping showed
 * when it was sealed. */
static int share_own(moo_plane *plane, const void *data, size_t bytes,
                     void **out)
{
    const struct mooi_region *region = mooi_region_find(&plane->regions, data);
    struct mooi_block *block;
    uint64_t offset;

    if (!region || region->kind == MOOI_WINDOW || region->kind == MOOI_ALONE)
        return 0;
    offset = (uintptr_t)data - region->start;
    block = mooi_block_at(&plane->arena, region->slab, offset);
    if (!block || block->moved || !mooi_block_covers(block, offset, bytes))
        return 0;
    if (region->kind == MOOI_OWN_USER &&
        (block->sent ? mooi_pages_dirty(plane->local.pagemap, data, bytes)
                     : mooi_block_seal(&plane->arena, block) != MOO_OK))
        return 0;
    mooi_block_hold(block);
    *out = plane->arena.slab[region->slab].work + offset;
    return 1;
}

moo_err moo_share(moo_plane *plane, const void *data, size_t bytes, void **out)
{
    struct mooi_block *block;
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    if (!share_own(plane, data, bytes, out)) {
        err = mooi_copy_out(plane, data, bytes, &block);
        if (err == MOO_OK)
            *out = mooi_block_work(&plane->arena, block);
    }
    if (err == MOO_OK)
        mooi_plane_hold(plane);
    pthread_mutex_unlock(&plane->lock);
    return err;
}

moo_err moo_ticket(moo_plane *plane, void *data)
{
    const struct mooi_region *region;
    struct mooi_block *block = NULL;
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    region = mooi_region_find(&plane->regions, data);
    if (region && region->kind == MOOI_OWN_USER)
        block = mooi_block_at(&plane->arena, region->slab,
                              (uintptr_t)data - region->start);
    if (block)
        block->ticket = 1;
    pthread_mutex_unlock(&plane->lock);
    return block ? MOO_OK : MOO_EINVAL;
}

static moo_err move_locked(moo_plane *plane, void *data)
{
    const struct mooi_region *region = mooi_region_find(&plane->regions, data);

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
        struct mooi_import *import = mooi_import_at(region, data, 1);
        if (!import || import->gone)
            return import ? MOO_ESTALE : MOO_EINVAL;
        import->moved = 1;
    }
    return MOO_OK;
}

moo_err moo_move(moo_plane *plane, void *data)
{
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    err = move_locked(plane, data);
    pthread_mutex_unlock(&plane->lock);
    return err;
}
