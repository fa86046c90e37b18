/* SPDX-License-Identifier: MIT */
/* The large copy copies every byte and none beyond, however it is aligned. */
#include "check.h"
#include "core/copy.h"

#include <stdint.h>

#define LARGE ((size_t)24 << 20)

UNWATCHED static void copy_exactly(size_t bytes, size_t to_offset,
                                   size_t from_offset)
{
    char *from = aligned_alloc(64, LARGE + 65536);
    char *to = aligned_alloc(64, LARGE + 65536);
    uint32_t x = 1;

    CHECK(from && to);
    for (size_t i = 0; i < LARGE + 65536; i++) {
        x = x * 1664525 + 1013904223;
        from[i] = (char)(x >> 24);
        to[i] = 0x55;
    }
    mooi_copy(to + to_offset, from + from_offset, bytes);
    CHECK(!memcmp(to + to_offset, from + from_offset, bytes));
    for (size_t i = 0; i < to_offset; i++)
        CHECK(to[i] == 0x55);
    for (size_t i = to_offset + bytes; i < LARGE + 65536; i++)
        CHECK(to[i] == 0x55);
    free(from);
    free(to);
}

static void all_sizes_and_alignments_are_exact(void)
{
    copy_exactly(0, 0, 0);
    copy_exactly(1, 0, 3);
    copy_exactly(5000, 64, 7);
    copy_exactly(LARGE - 1, 0, 0);
    copy_exactly(LARGE, 0, 0);
    copy_exactly(LARGE, 0, 5);
    copy_exactly(LARGE, 3, 5);
    copy_exactly(LARGE + 16385, 128, 1);
}

/* Each way of it, on whatever processor this is. */
static void any_number_of_pages_at_a_time_is_exact(void)
{
    enum { BYTES = 9 * 4096 + 100 };
    char *from = aligned_alloc(64, BYTES + 28), *to = aligned_alloc(64, BYTES + 28);

    CHECK(from && to);
    for (int i = 0; i < BYTES; i++)
        from[i] = (char)(i * 31 >> 3);
    for (size_t pages = 1; pages <= 4; pages *= 2) {
        memset(to, 0x55, BYTES);
        size_t done = mooi_stream(to, from, BYTES, pages);
        CHECK(done == 0 || done == 9 / pages * pages * 4096);
        CHECK(!memcmp(to, from, done));
        for (size_t i = done; i < BYTES; i++)
            CHECK(to[i] == 0x55);
    }
    free(from);
    free(to);
}

int main(void)
{
    RUN(all_sizes_and_alignments_are_exact);
    RUN(any_number_of_pages_at_a_time_is_exact);
    return 0;
}
