/* SPDX-License-Identifier: MIT */
/* held.c: whether a block that this plane handed out is still in use. */
#include "plane/plane.h"

static int held_locked(moo_plane *plane, const void *data)
{
    const struct mooi_region *region;
    const struct mooi_block *block;

    mooi_lease_drain(&plane->leases);
    region = mooi_region_find(&plane->regions, data);
    if (!region ||
        (region->kind != MOOI_OWN_USER && region->kind != MOOI_OWN_WORK))
        return 0;
    block = mooi_block_at(&plane->arena, region->slab,
                          (uintptr_t)data - region->start);
    return block && block->holds > 1;
}

int moo_is_held(moo_plane *plane, const void *data)
{
    int held;

    if (mooi_plane_enter(plane) != MOO_OK)
        return 0;
    held = held_locked(plane, data);
    pthread_mutex_unlock(&plane->lock);
    return held;
}
