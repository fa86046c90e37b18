/* SPDX-License-Identifier: MIT */
/* slab.c: the slabs of an arena: their memfds, mappings and idle memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/clock.h"
#include "core/bits.h"
#include "core/clock.h"
#include "core/pages.h"

size_t mooi_block_offset(const struct mooi_block *block)
{
    return (size_t)block->page * mooi_page();
}

size_t mooi_block_bytes(const struct mooi_block *block)
{
    return (size_t)block->pages * mooi_page();
}

moo_err mooi_slab_open(struct mooi_slab *slab, uint64_t bytes)
{
    size_t pages = bytes / mooi_page();
    moo_err err = mooi_memfd("mooactor-slab", bytes, &slab->fd);

    if (err != MOO_OK)
        return errno == ENOMEM ? MOO_ENOMEM : err;
    slab->bytes = bytes;
    slab->work = mooi_map(NULL, slab->fd, 0, bytes, MOOI_SHARED);
    slab->map = calloc(pages, sizeof *slab->map);
    slab->privates = calloc((pages + 63) / 64, sizeof *slab->privates);
    if (slab->work && slab->map && slab->privates)
        return MOO_OK;
    free(slab->map);
    free(slab->privates);
    if (slab->work)
        munmap(slab->work, bytes);
    close(slab->fd);
    memset(slab, 0, sizeof *slab);
    return MOO_ENOMEM;
}

static moo_err remap_user(struct mooi_slab *slab,
                          const struct mooi_block *block,
                          enum mooi_mapping how)
{
    size_t offset = mooi_block_offset(block);

    if (!mooi_map(slab->user + offset, slab->fd, offset,
                  mooi_block_bytes(block), how))
        return MOO_ENOMEM;
    if (how == MOOI_PRIVATE)
        mooi_bits_set(slab->privates, block->page, block->pages);
    else
        mooi_bits_clear(slab->privates, block->page, block->pages);
    return MOO_OK;
}

moo_err mooi_block_publish(struct mooi_arena *arena, struct mooi_block *block,
                           char **out, int *stale)
{
    struct mooi_slab *slab = &arena->slab[block->slab];

    if (!slab->user)
        slab->user = mooi_map(NULL, slab->fd, 0, slab->bytes, MOOI_SHARED);
    if (!slab->user)
        return MOO_ENOMEM;
    *stale = mooi_bits_any(slab->privates, block->page, block->pages);
    if (*stale &&
        remap_user(slab, block, MOOI_SHARED) != MOO_OK)
        return MOO_ENOMEM;
    block->user = 1;
    *out = slab->user + mooi_block_offset(block);
    return MOO_OK;
}

moo_err mooi_block_seal(struct mooi_arena *arena, struct mooi_block *block)
{
    moo_err err = remap_user(&arena->slab[block->slab], block, MOOI_PRIVATE);

    if (err == MOO_OK)
        block->sent = 1;
    return err;
}

static void chill(const struct mooi_slab *slab, struct mooi_block *run)
{
    fallocate(slab->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)mooi_block_offset(run), (off_t)mooi_block_bytes(run));
    run->warm = 0;
}

void mooi_arena_chill(struct mooi_arena *arena)
{
    for (unsigned bin = 0; bin < MOOI_BINS; bin++)
        for (struct mooi_block *run = arena->bin[bin]; run; run = run->next) {
            struct mooi_slab *slab = &arena->slab[run->slab];
            if (!run->warm || slab->pinned)
                continue;
            slab->warm_pages -= run->warm;
            chill(slab, run);
        }
}

uint64_t mooi_arena_trim(struct mooi_arena *arena, uint64_t idle_ns)
{
    uint64_t now = mooi_now_ns(), soonest = UINT64_MAX;

    for (uint32_t i = 0; i < arena->slabs; i++) {
        struct mooi_slab *slab = &arena->slab[i];
        uint64_t due = slab->idle_since_ns + idle_ns;
        if (!slab->touched || slab->pinned)
            continue;
        if (slab->used_pages) { /* look again then */
            soonest = idle_ns < soonest ? idle_ns : soonest;
            continue;
        }
        if (due > now) {
            soonest = due - now < soonest ? due - now : soonest;
            continue;
        }
        chill(slab, slab->map[0]); /* one run: nothing of it is in use */
        slab->warm_pages = 0;
        slab->touched = 0;
    }
    return soonest;
}

uint64_t mooi_arena_resident(const struct mooi_arena *arena)
{
    uint64_t bytes = 0;
    struct stat status;

    for (uint32_t i = 0; i < arena->slabs; i++)
        if (fstat(arena->slab[i].fd, &status) == 0)
            bytes += (uint64_t)status.st_blocks * 512;
    return bytes;
}

void mooi_slab_close(struct mooi_slab *slab)
{
    size_t pages = slab->bytes / mooi_page();

    for (size_t p = 0; p < pages; p++) {
        struct mooi_block *block = slab->map[p];
        if (!block)
            continue;
        p = block->page + block->pages - 1;
        free(block);
    }
    free(slab->map);
    free(slab->privates);
    munmap(slab->work, slab->bytes);
    if (slab->user)
        munmap(slab->user, slab->bytes);
    close(slab->fd);
}
