/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "plane/plane.h"

/* The first region that ends behind `at`. */
static size_t find_index(const moo_plane *plane, uintptr_t at)
{
    size_t low = 0, high = plane->regions;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plane->region[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

moo_err mooi_region_add(moo_plane *plane, const struct mooi_region *region)
{
    size_t index = find_index(plane, region->start);

    if (plane->regions == plane->regions_room) {
        size_t room = plane->regions_room ? 2 * plane->regions_room : 16;
        void *grown = realloc(plane->region, room * sizeof *plane->region);
        if (!grown)
            return MOO_ENOMEM;
        plane->region = grown;
        plane->regions_room = room;
    }
    memmove(plane->region + index + 1, plane->region + index,
            (plane->regions - index) * sizeof *plane->region);
    plane->region[index] = *region;
    plane->regions++;
    return MOO_OK;
}

void mooi_region_remove(moo_plane *plane, const void *start)
{
    size_t index = find_index(plane, (uintptr_t)start);

    if (index == plane->regions ||
        plane->region[index].start != (uintptr_t)start)
        return;
    plane->regions--;
    memmove(plane->region + index, plane->region + index + 1,
            (plane->regions - index) * sizeof *plane->region);
}

const struct mooi_region *mooi_region_find(const moo_plane *plane,
                                           const void *at)
{
    size_t index = find_index(plane, (uintptr_t)at);

    if (index == plane->regions || plane->region[index].start > (uintptr_t)at)
        return NULL;
    return &plane->region[index];
}
