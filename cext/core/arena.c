/* SPDX-License-Identifier: MIT */
#include "core/arena.h"
#include "core/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/clock.h"
#include "core/pages.h"

#define FIRST_SLAB_BYTES ((uint64_t)64 << 20)
/* The number of runs of a bin that are looked at for the best fit. */
#define FIT_TRIES 64

void mooi_arena_init(struct mooi_arena *arena, uint64_t limit)
{
    memset(arena, 0, sizeof *arena);
    arena->limit = limit & ~(uint64_t)(mooi_page() - 1);
    arena->forks.child_end = -1;
}

int mooi_block_covers(const struct mooi_block *block, uint64_t offset,
                      uint64_t bytes)
{
    uint64_t start = mooi_block_offset(block), all = mooi_block_bytes(block);

    return offset >= start && bytes <= all && offset - start <= all - bytes;
}

char *mooi_block_work(struct mooi_arena *arena, const struct mooi_block *block)
{
    return arena->slab[block->slab].work + mooi_block_offset(block);
}

static unsigned bin_of(uint32_t pages)
{
    return 31u - (unsigned)__builtin_clz(pages);
}

static void mark(struct mooi_arena *arena, struct mooi_block *block,
                 struct mooi_block *as)
{
    struct mooi_block **map = arena->slab[block->slab].map;

    map[block->page] = as;
    map[block->page + block->pages - 1] = as;
}

static void bin_insert(struct mooi_arena *arena, struct mooi_block *block)
{
    struct mooi_block **head = &arena->bin[bin_of(block->pages)];

    arena->slab[block->slab].warm_pages += block->warm;
    block->previous = NULL;
    block->next = *head;
    if (*head)
        (*head)->previous = block;
    *head = block;
    mark(arena, block, block);
}

static void bin_remove(struct mooi_arena *arena, struct mooi_block *block)
{
    arena->slab[block->slab].warm_pages -= block->warm;
    if (block->previous)
        block->previous->next = block->next;
    else
        arena->bin[bin_of(block->pages)] = block->next;
    if (block->next)
        block->next->previous = block->previous;
    block->next = block->previous = NULL;
}

static struct mooi_block *best_in_bin(struct mooi_arena *arena, unsigned bin,
                                      uint32_t pages)
{
    struct mooi_block *best = NULL;
    int tries = FIT_TRIES;

    for (struct mooi_block *b = arena->bin[bin]; b; b = b->next) {
        if (b->pages < pages)
            continue;
        if (!best || b->pages < best->pages)
            best = b;
        if (best->pages == pages || !--tries)
            break;
    }
    return best;
}

static struct mooi_block *best_fit(struct mooi_arena *arena, uint32_t pages)
{
    for (unsigned bin = bin_of(pages); bin < 32; bin++) {
        struct mooi_block *best = best_in_bin(arena, bin, pages);
        if (best)
            return best;
    }
    return NULL;
}

/* Twice the last slab, or the requested size if that is more, within the
 * limit. If the request does not fit beside the other slabs: the limit, so
 * that this slab can hold every later request. 0: there are too many slabs. */
static uint64_t next_slab_bytes(const struct mooi_arena *arena, uint64_t need)
{
    uint64_t room = arena->limit - arena->reserved;
    uint64_t bytes = arena->slabs ? 2 * arena->slab[arena->slabs - 1].bytes
                                  : FIRST_SLAB_BYTES;

    if (arena->slabs == MOOI_MAX_SLABS)
        return 0;
    if (arena->reserved > arena->limit || need > room)
        return arena->limit;
    if (bytes < need)
        bytes = need;
    return bytes < room ? bytes : room;
}

static moo_err grow(struct mooi_arena *arena, uint32_t pages)
{
    uint64_t bytes = next_slab_bytes(arena, (uint64_t)pages * mooi_page());
    struct mooi_block *run;
    moo_err err;

    if (!bytes)
        return MOO_ENOMEM;
    run = calloc(1, sizeof *run);
    if (!run)
        return MOO_ENOMEM;
    err = mooi_slab_open(&arena->slab[arena->slabs], bytes);
    if (err != MOO_OK) { /* as many addresses may be too many */
        bytes = (uint64_t)pages * mooi_page();
        err = mooi_slab_open(&arena->slab[arena->slabs], bytes);
    }
    if (err != MOO_OK) {
        free(run);
        return err;
    }
    run->slab = arena->slabs++;
    run->pages = (uint32_t)(bytes / mooi_page());
    arena->reserved += bytes;
    bin_insert(arena, run);
    return MOO_OK;
}

/* Cut the tail beyond `pages` off a run that is in no bin. Without memory for
 * the tail's bookkeeping the whole run is used. */
static void split(struct mooi_arena *arena, struct mooi_block *run,
                  uint32_t pages)
{
    struct mooi_block *tail;

    if (run->pages == pages)
        return;
    tail = calloc(1, sizeof *tail);
    if (!tail)
        return;
    tail->slab = run->slab;
    tail->page = run->page + pages;
    tail->pages = run->pages - pages;
    tail->warm = run->warm > pages ? run->warm - pages : 0;
    run->pages = pages;
    run->warm -= tail->warm;
    bin_insert(arena, tail);
}

/* Pages that hold memory, or may. */
static uint64_t held_pages(const struct mooi_arena *arena)
{
    uint64_t pages = 0;

    for (uint32_t i = 0; i < arena->slabs; i++) {
        const struct mooi_slab *slab = &arena->slab[i];
        pages += slab->pinned ? slab->bytes / mooi_page()
                              : slab->used_pages + slab->warm_pages;
    }
    return pages;
}

/* Keep the limit when `pages` of a free run come into use; 0: too much is in
 * use. */
static int make_room(struct mooi_arena *arena, const struct mooi_block *run,
                     uint32_t pages)
{
    uint64_t limit = arena->limit / mooi_page();
    int pinned = arena->slab[run->slab].pinned;

    if (arena->reserved <= arena->limit || pinned)
        return 1;
    if (held_pages(arena) + pages - (run->warm < pages ? run->warm : pages) >
        limit)
        mooi_arena_chill(arena);
    return held_pages(arena) + pages -
               (run->warm < pages ? run->warm : pages) <= limit;
}

moo_err mooi_block_alloc(struct mooi_arena *arena, size_t bytes,
                         struct mooi_block **out)
{
    uint64_t pages = (bytes + mooi_page() - 1) / mooi_page();
    struct mooi_block *run;

    if (!bytes)
        return MOO_EINVAL;
    if (bytes > arena->limit || pages > UINT32_MAX)
        return MOO_ENOMEM;
    if (arena->used + pages * mooi_page() > arena->limit)
        return MOO_ENOMEM;
    run = best_fit(arena, (uint32_t)pages);
    if (!run) {
        moo_err err = grow(arena, (uint32_t)pages);
        if (err != MOO_OK)
            return err;
        run = best_fit(arena, (uint32_t)pages);
    }
    if (!make_room(arena, run, (uint32_t)pages))
        return MOO_ENOMEM;
    bin_remove(arena, run);
    split(arena, run, (uint32_t)pages);
    mark(arena, run, run);
    run->holds = 1;
    run->warm = 0;
    run->user = run->sent = run->moved = run->gone = run->ticket = 0;
    run->born = arena->forks.made;
    arena->slab[run->slab].used_pages += run->pages;
    arena->slab[run->slab].touched = 1;
    arena->used += mooi_block_bytes(run);
    arena->blocks++;
    *out = run;
    return MOO_OK;
}

void mooi_block_hold(struct mooi_block *block)
{
    assert(block->holds);
    block->holds++;
}

/* Append `right` to `left`; both free, adjacent and in no bin. */
static struct mooi_block *join(struct mooi_arena *arena,
                               struct mooi_block *left,
                               struct mooi_block *right)
{
    mark(arena, left, NULL);
    mark(arena, right, NULL);
    if (right->warm)
        left->warm = left->pages + right->warm;
    left->pages += right->pages;
    free(right);
    return left;
}

static struct mooi_block *merge(struct mooi_arena *arena,
                                struct mooi_block *run)
{
    struct mooi_slab *slab = &arena->slab[run->slab];
    size_t end = run->page + run->pages;
    struct mooi_block *left = run->page ? slab->map[run->page - 1] : NULL;
    struct mooi_block *right =
        end < slab->bytes / mooi_page() ? slab->map[end] : NULL;

    if (left && !left->holds) {
        bin_remove(arena, left);
        run = join(arena, left, run);
    }
    if (right && !right->holds) {
        bin_remove(arena, right);
        run = join(arena, run, right);
    }
    return run;
}

/* The last hold of a block that a fork sees becomes the fork's. */
static int keep(struct mooi_arena *arena, struct mooi_block *block)
{
    if (!mooi_forks_see(&arena->forks, block->born, arena->forks.made))
        return 0;
    block->dropped = arena->forks.made;
    block->next = arena->kept;
    arena->kept = block;
    arena->kept_bytes += mooi_block_bytes(block);
    return 1;
}

static void free_block(struct mooi_arena *arena, struct mooi_block *block)
{
    struct mooi_slab *slab = &arena->slab[block->slab];

    if (block->sent) /* private copies that its user made */
        madvise(slab->user + mooi_block_offset(block), mooi_block_bytes(block),
                MADV_DONTNEED);
    arena->used -= mooi_block_bytes(block);
    arena->blocks--;
    slab->used_pages -= block->pages;
    if (!slab->used_pages)
        slab->idle_since_ns = mooi_now_ns();
    block->warm = block->pages;
    bin_insert(arena, merge(arena, block));
}

void mooi_block_rele(struct mooi_arena *arena, struct mooi_block *block)
{
    assert(block->holds);
    if (block->holds == 1 && keep(arena, block))
        return;
    if (!--block->holds)
        free_block(arena, block);
}

void mooi_arena_settle(struct mooi_arena *arena)
{
    struct mooi_block *kept = arena->kept;

    arena->kept = NULL;
    while (kept) {
        struct mooi_block *block = kept;
        kept = block->next;
        block->next = NULL;
        if (mooi_forks_see(&arena->forks, block->born, block->dropped)) {
            block->next = arena->kept;
            arena->kept = block;
            continue;
        }
        arena->kept_bytes -= mooi_block_bytes(block);
        block->holds = 0;
        free_block(arena, block);
    }
}

struct mooi_block *mooi_block_at(struct mooi_arena *arena, uint32_t slab,
                                 uint64_t offset)
{
    uint64_t page = offset / mooi_page();
    struct mooi_block *block = NULL;

    if (slab >= arena->slabs || offset >= arena->slab[slab].bytes)
        return NULL;
    /* Usually the very page; inside a block, walk to its start. */
    for (uint64_t p = page + 1; p-- && !block;)
        block = arena->slab[slab].map[p];
    if (!block || !block->holds || page >= block->page + block->pages)
        return NULL;
    return block;
}

void mooi_arena_fini(struct mooi_arena *arena)
{
    for (uint32_t i = 0; i < arena->slabs; i++)
        mooi_slab_close(&arena->slab[i]);
    memset(arena, 0, sizeof *arena);
}
