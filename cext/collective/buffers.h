/* SPDX-License-Identifier: MIT */
/*
 * buffers.h: the shared memory through which the members of a host pass the
 * bytes of tensors. Each member has a region, which it alone writes: two small
 * buffers, used in turn, and one for what goes in many steps. shm.c, ring.c
 * and rounds.c say what lies in them. The counters of the members (agreement.h)
 * say when their bytes may be read, and when they may be overwritten.
 */
#ifndef MOOI_BUFFERS_H
#define MOOI_BUFFERS_H

#include "collective/group.h"

#define SMALL_BYTES ((size_t)256 << 10) /* one member's bytes, single step */
#define BULK_BYTES ((size_t)7 << 20)    /* one member's pipeline buffers */
#define REGION_BYTES (2 * SMALL_BYTES + BULK_BYTES + ((size_t)512 << 10))

/* The bytes of a member, BULK_BYTES of them. */
static inline unsigned char *mooi_bulk_buffer(moo_group *group, uint32_t rank)
{
    return group->regions + (size_t)group->view.slots[rank] * REGION_BYTES +
           2 * SMALL_BYTES;
}

/* SMALL_BYTES of a member; the next operation but one reuses them. */
static inline unsigned char *mooi_small_buffer(moo_group *group,
                                               const moo_work *work,
                                               uint32_t rank)
{
    return mooi_bulk_buffer(group, rank) - 2 * SMALL_BYTES +
           (work->seq & 1) * SMALL_BYTES;
}

#endif
