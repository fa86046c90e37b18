/* SPDX-License-Identifier: MIT */
/*
 * region.h: the addresses that this process has mapped for the data plane, and
 * their kinds. Not locked: the plane's lock is held around every call.
 */
#ifndef MOOI_REGION_H
#define MOOI_REGION_H

#include <stddef.h>
#include <stdint.h>

#include "mooactor.h"

enum mooi_region_kind {
    MOOI_OWN_WORK, /* an own slab, see arena.h */
    MOOI_OWN_USER,
    MOOI_WINDOW, /* the whole slab of another process */
    MOOI_ALONE   /* a part of one, for one import */
};

/* A stretch of addresses. */
struct mooi_region {
    uintptr_t start, end;
    enum mooi_region_kind kind;
    uint32_t slab; /* own */
    void *of;      /* of others: the mapping's owner, by kind */
};

/* All of them, sorted by address. All zero: none. */
struct mooi_regions {
    struct mooi_region *region;
    size_t count, room;
};

/* MOO_ENOMEM: nothing changed. */
moo_err mooi_region_add(struct mooi_regions *regions,
                        const struct mooi_region *region);

/* Forget the one that starts there; the mapping stays. */
void mooi_region_remove(struct mooi_regions *regions, const void *start);

/* The one that contains `at`, or NULL; until the next change. */
const struct mooi_region *mooi_region_find(const struct mooi_regions *regions,
                                           const void *at);
void mooi_regions_fini(struct mooi_regions *regions);

#endif
