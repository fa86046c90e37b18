/* SPDX-License-Identifier: MIT */
/*
 * arena.h: the shared memory that a plane owns, cut into blocks.
 *
 * Memory comes in slabs, sealed memfds that are mapped once and kept. A block
 * is a run of whole pages of one slab; its bookkeeping is private memory, so no
 * other process can damage it. Free runs are merged with their neighbours and
 * handed out best fit first, the lowest part of a run first: pages that were
 * touched before come back before fresh ones, whose first touch costs ten times
 * a memcpy.
 *
 * A slab is mapped twice: `work` is always shared and is where copies are
 * staged; `user` is what moo_empty hands out. The first export of a user block
 * remaps its pages of `user` private, so that later writes of its owner no
 * longer reach the receivers.
 *
 * The limit is one of memory, not of addresses: at every time the pages in use,
 * the free ones that may hold memory (the *warm* ones) and all those of slabs
 * that are pinned are at most `limit`. While the slabs together are smaller
 * this holds by itself, and free memory stays warm. If no slab has a wanted
 * run, slabs are opened beyond the limit, and free runs give their memory back
 * when it is needed elsewhere. So an allocation succeeds if it fits beside the
 * memory in use; earlier allocations do not matter.
 *
 * Not locked: the plane's lock is held around every call.
 */
#ifndef MOOI_ARENA_H
#define MOOI_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "core/forks.h"
#include "mooactor.h"

#define MOOI_MAX_SLABS 64
#define MOOI_BINS 64

struct mooi_block {
    struct mooi_block *next, *previous; /* in its bin, while free */
    uint32_t slab;
    uint32_t holds; /* users here plus leases; 0: free */
    uint32_t page, pages;
    uint32_t warm; /* free: so many of its first pages may hold memory */
    uint8_t user;   /* handed out by moo_empty */
    uint8_t sent;   /* its user pages are mapped private */
    uint8_t moved;  /* given away with the next export */
    uint8_t gone;   /* was given away */
    uint8_t ticket; /* of moo_ticket */
    uint64_t born, dropped; /* see forks.h */
};

struct mooi_slab {
    int fd;
    size_t bytes;
    char *work;
    char *user;                 /* NULL until needed */
    struct mooi_block **map;    /* by page: first and last page of each run */
    uint64_t *privates;         /* by page: private in `user` */
    uint64_t used_pages, warm_pages; /* of blocks; of free runs */
    uint64_t idle_since_ns;     /* when it became wholly free */
    int touched;                /* holds memory, so worth handing back */
    int pinned;                 /* a device knows its pages: keep them */
};

struct mooi_arena {
    uint64_t limit, used, reserved, blocks;
    uint32_t slabs;
    struct mooi_slab slab[MOOI_MAX_SLABS];
    struct mooi_block *bin[MOOI_BINS]; /* by log2 of pages */
    struct mooi_forks forks;
    struct mooi_block *kept; /* for forks: dropped, with one hold each */
    uint64_t kept_bytes;
};

void mooi_arena_init(struct mooi_arena *arena, uint64_t limit);
void mooi_arena_fini(struct mooi_arena *arena);

/* A block of at least `bytes` with one hold. MOO_ENOMEM: over the limit. */
moo_err mooi_block_alloc(struct mooi_arena *arena, size_t bytes,
                         struct mooi_block **out);

void mooi_block_hold(struct mooi_block *block);

/* Let go; the last one frees the block, unless a fork sees it. */
void mooi_block_rele(struct mooi_arena *arena, struct mooi_block *block);

/* Free what was kept for forks that have ended. */
void mooi_arena_settle(struct mooi_arena *arena);

/* The held block that contains byte `offset` of a slab, or NULL. */
struct mooi_block *mooi_block_at(struct mooi_arena *arena, uint32_t slab,
                                 uint64_t offset);

/* 1 if the block holds bytes [offset, offset + bytes) of its slab. */
int mooi_block_covers(const struct mooi_block *block, uint64_t offset,
                      uint64_t bytes);

char *mooi_block_work(struct mooi_arena *arena, const struct mooi_block *block);

/* slab.c */

/* Of a block in its slab. */
size_t mooi_block_offset(const struct mooi_block *block);
size_t mooi_block_bytes(const struct mooi_block *block);

/* A slab of `bytes`, all of it untouched. On error *slab is all zero. */
moo_err mooi_slab_open(struct mooi_slab *slab, uint64_t bytes);
void mooi_slab_close(struct mooi_slab *slab);

/* Make the block visible in the slab's user mapping, shared. *out is its
 * address. *stale: its pages were mapped anew, see mooi_pages_populate. */
moo_err mooi_block_publish(struct mooi_arena *arena, struct mooi_block *block,
                           char **out, int *stale);

/* From now on writes to the user mapping of the block stay private. */
moo_err mooi_block_seal(struct mooi_arena *arena, struct mooi_block *block);

/* Give the memory of slabs that were wholly free for `idle_ns` back to the
 * system. Returns the nanoseconds until the next one is due, or UINT64_MAX. */
uint64_t mooi_arena_trim(struct mooi_arena *arena, uint64_t idle_ns);

/* Give the memory of all free runs back, but for pinned slabs. */
void mooi_arena_chill(struct mooi_arena *arena);

/* Memory that the slabs occupy. Makes a system call for each slab. */
uint64_t mooi_arena_resident(const struct mooi_arena *arena);

#endif
