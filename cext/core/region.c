/* SPDX-License-Identifier: MIT */
#include "core/region.h"

#include <stdlib.h>
#include <string.h>

/* The first region that ends behind `at`. */
static size_t find_index(const struct mooi_regions *regions, uintptr_t at)
{
    size_t low = 0, high = regions->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (regions->region[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

moo_err mooi_region_add(struct mooi_regions *regions,
                        const struct mooi_region *region)
{
    size_t index = find_index(regions, region->start);

    if (regions->count == regions->room) {
        size_t room = regions->room ? 2 * regions->room : 16;
        void *grown = realloc(regions->region, room * sizeof *region);
        if (!grown)
            return MOO_ENOMEM;
        regions->region = grown;
        regions->room = room;
    }
    memmove(regions->region + index + 1, regions->region + index,
            (regions->count - index) * sizeof *region);
    regions->region[index] = *region;
    regions->count++;
    return MOO_OK;
}

void mooi_region_remove(struct mooi_regions *regions, const void *start)
{
    size_t index = find_index(regions, (uintptr_t)start);

    if (index == regions->count ||
        regions->region[index].start != (uintptr_t)start)
        return;
    regions->count--;
    memmove(regions->region + index, regions->region + index + 1,
            (regions->count - index) * sizeof *regions->region);
}

const struct mooi_region *mooi_region_find(const struct mooi_regions *regions,
                                           const void *at)
{
    size_t index = find_index(regions, (uintptr_t)at);

    if (index == regions->count ||
        regions->region[index].start > (uintptr_t)at)
        return NULL;
    return &regions->region[index];
}

void mooi_regions_fini(struct mooi_regions *regions)
{
    free(regions->region);
}
