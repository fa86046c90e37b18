/* SPDX-License-Identifier: MIT */
/* Blocks: they never overlap, come back, and stay within the limit. */
#include "check.h"
#include "core/arena.h"
#include "core/pages.h"

#include <sys/mman.h>

#define MB ((uint64_t)1 << 20)

static void blocks_never_overlap_and_all_come_back(void)
{
    struct mooi_arena arena;
    struct mooi_block *held[200] = {0};
    unsigned seed = 7;

    mooi_arena_init(&arena, 512 * MB);
    for (int step = 0; step < 20000; step++) {
        int i = rand_r(&seed) % 200;
        if (held[i]) {
            unsigned *at = (unsigned *)mooi_block_work(&arena, held[i]);
            unsigned *end = at + mooi_block_bytes(held[i]) / sizeof *at;
            CHECK(at[0] == (unsigned)i + 1 && end[-1] == (unsigned)i + 1);
            mooi_block_rele(&arena, held[i]);
            held[i] = NULL;
        } else {
            size_t bytes = (size_t)1 << rand_r(&seed) % 21;
            CHECK(mooi_block_alloc(&arena, bytes, &held[i]) == MOO_OK);
            CHECK(mooi_block_bytes(held[i]) >= bytes);
            unsigned *at = (unsigned *)mooi_block_work(&arena, held[i]);
            at[0] = (unsigned)i + 1;
            at[mooi_block_bytes(held[i]) / sizeof *at - 1] = (unsigned)i + 1;
        }
    }
    for (int i = 0; i < 200; i++)
        if (held[i])
            mooi_block_rele(&arena, held[i]);
    CHECK(arena.used == 0 && arena.blocks == 0);
    /* All merged again: the whole first slab is to be had in one piece. */
    CHECK(mooi_block_alloc(&arena, arena.slab[0].bytes, &held[0]) == MOO_OK);
    CHECK(held[0]->slab == 0 || arena.slabs > 1);
    mooi_block_rele(&arena, held[0]);
    mooi_arena_fini(&arena);
}

static void the_limit_holds_to_the_page(void)
{
    struct mooi_arena arena;
    struct mooi_block *all, *more;

    mooi_arena_init(&arena, 80 * MB);
    CHECK(mooi_block_alloc(&arena, 81 * MB, &all) == MOO_ENOMEM);
    CHECK(mooi_block_alloc(&arena, 64 * MB, &all) == MOO_OK);
    CHECK(mooi_block_alloc(&arena, 16 * MB, &more) == MOO_OK);
    CHECK(arena.used == arena.limit && arena.reserved == arena.limit);
    mooi_block_rele(&arena, more);
    CHECK(mooi_block_alloc(&arena, 16 * MB + 1, &more) == MOO_ENOMEM);
    mooi_block_rele(&arena, all);
    CHECK(mooi_block_alloc(&arena, 1, &more) == MOO_OK);
    mooi_block_rele(&arena, more);
    mooi_arena_fini(&arena);
}

/* One after the other, with nothing else in use, each fits: 10, 70, 140 of 256
 * made slabs of 64 and 128, which left no room for a third. */
static void what_fits_the_limit_is_to_be_had_whatever_was_before(void)
{
    static const uint64_t sizes[] = {10,  70,  140, 250, 1, 256,
                                     128, 129, 200, 33,  9, 255};
    struct mooi_arena arena;
    struct mooi_block *block;

    mooi_arena_init(&arena, 256 * MB);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(mooi_block_alloc(&arena, sizes[i] * MB, &block) == MOO_OK);
        memset(mooi_block_work(&arena, block), 1, sizes[i] * MB);
        CHECK(mooi_arena_resident(&arena) <= arena.limit);
        mooi_block_rele(&arena, block);
    }
    CHECK(arena.used == 0);
    mooi_arena_fini(&arena);
}

static void a_block_is_found_by_any_byte_of_it(void)
{
    struct mooi_arena arena;
    struct mooi_block *a, *b;
    size_t offset;

    mooi_arena_init(&arena, 64 * MB);
    CHECK(mooi_block_alloc(&arena, 5 * mooi_page(), &a) == MOO_OK);
    CHECK(mooi_block_alloc(&arena, 5 * mooi_page(), &b) == MOO_OK);
    offset = mooi_block_offset(b);
    for (size_t i = 0; i < mooi_block_bytes(b); i += mooi_page() / 2)
        CHECK(mooi_block_at(&arena, b->slab, offset + i) == b);
    mooi_block_rele(&arena, b);
    CHECK(mooi_block_at(&arena, a->slab, offset) == NULL);
    CHECK(mooi_block_at(&arena, 1, 0) == NULL);
    mooi_block_rele(&arena, a);
    mooi_arena_fini(&arena);
}

static void idle_slabs_give_their_memory_back(void)
{
    struct mooi_arena arena;
    struct mooi_block *block;

    mooi_arena_init(&arena, 64 * MB);
    CHECK(mooi_block_alloc(&arena, 8 * MB, &block) == MOO_OK);
    memset(mooi_block_work(&arena, block), 1, 8 * MB);
    CHECK(mooi_arena_resident(&arena) >= 8 * MB);
    mooi_arena_trim(&arena, 0);
    CHECK(mooi_arena_resident(&arena) >= 8 * MB); /* in use */
    mooi_block_rele(&arena, block);
    CHECK(mooi_arena_trim(&arena, (uint64_t)3600 * 1000000000u) != UINT64_MAX);
    CHECK(mooi_arena_resident(&arena) >= 8 * MB); /* not idle for so long */
    CHECK(mooi_arena_trim(&arena, 0) == UINT64_MAX);
    CHECK(mooi_arena_resident(&arena) == 0);
    mooi_arena_fini(&arena);
}

static void a_sealed_block_keeps_later_writes_to_itself(void)
{
    struct mooi_arena arena;
    struct mooi_block *block;
    char *user, *work;
    int stale;

    mooi_arena_init(&arena, 64 * MB);
    CHECK(mooi_block_alloc(&arena, 8192, &block) == MOO_OK);
    CHECK(mooi_block_publish(&arena, block, &user, &stale) == MOO_OK);
    work = mooi_block_work(&arena, block);
    CHECK(!stale);
    user[0] = 1;
    CHECK(work[0] == 1);
    CHECK(mooi_block_seal(&arena, block) == MOO_OK);
    CHECK(user[0] == 1);
    user[0] = 2;
    CHECK(work[0] == 1);
    mooi_block_rele(&arena, block);
    CHECK(mooi_block_alloc(&arena, 8192, &block) == MOO_OK);
    CHECK(mooi_block_publish(&arena, block, &user, &stale) == MOO_OK);
    CHECK(stale);
    mooi_pages_populate(user, 8192);
    user[0] = 3; /* the same pages, shared again */
    CHECK(mooi_block_work(&arena, block)[0] == 3);
    mooi_block_rele(&arena, block);
    mooi_arena_fini(&arena);
}

static void written_pages_are_found_and_forgotten(int pagemap)
{
    size_t page = mooi_page(), bytes = 300 * page;
    char *shared, *private;
    int fd;

    CHECK(mooi_memfd("test", bytes, &fd) == MOO_OK);
    shared = mooi_map(NULL, fd, 0, bytes, MOOI_SHARED);
    private = mooi_map(NULL, fd, 0, bytes, MOOI_PRIVATE);
    CHECK(shared && private);
    memset(shared, 1, bytes);
    for (size_t i = 0; i < bytes; i += page)
        CHECK(private[i] == 1);
    CHECK(!mooi_pages_dirty(pagemap, private, bytes) == (pagemap >= 0));
    for (size_t i = 0; i < bytes; i += 2 * page) /* more than one answer holds */
        private[i] = 2;
    CHECK(mooi_pages_dirty(pagemap, private, bytes));
    if (pagemap >= 0)
        CHECK(!mooi_pages_dirty(pagemap, private + page, page));
    mooi_pages_clean(pagemap, private, bytes);
    for (size_t i = 0; i < bytes; i += page)
        CHECK(private[i] == 1 && shared[i] == 1);
    munmap(shared, bytes);
    munmap(private, bytes);
    close(fd);
}

static void dirty_pages_are_found_by_the_page_table(void)
{
    int pagemap = mooi_pagemap_open();

    CHECK(pagemap >= 0);
    written_pages_are_found_and_forgotten(pagemap);
    close(pagemap);
}

static void without_a_page_table_all_pages_count_as_dirty(void)
{
    written_pages_are_found_and_forgotten(-1);
}

int main(void)
{
    RUN(blocks_never_overlap_and_all_come_back);
    RUN(the_limit_holds_to_the_page);
    RUN(what_fits_the_limit_is_to_be_had_whatever_was_before);
    RUN(a_block_is_found_by_any_byte_of_it);
    RUN(idle_slabs_give_their_memory_back);
    RUN(a_sealed_block_keeps_later_writes_to_itself);
    RUN(dirty_pages_are_found_by_the_page_table);
    RUN(without_a_page_table_all_pages_count_as_dirty);
    return 0;
}
