/* SPDX-License-Identifier: MIT */
/* bits.h: sets of small integers as arrays of words, handled by ranges. */
#ifndef MOOI_BITS_H
#define MOOI_BITS_H

#include <stddef.h>
#include <stdint.h>

#define MOOI_BIT_WORDS(bits) (((bits) + 63) / 64)

/* The bits of word `word` that lie in [from, end). */
static inline uint64_t mooi_bits_mask(size_t word, size_t from, size_t end)
{
    uint64_t mask = UINT64_MAX;

    if (from > word * 64)
        mask &= UINT64_MAX << from % 64;
    if (end < word * 64 + 64)
        mask &= UINT64_MAX >> (64 - end % 64);
    return mask;
}

static inline int mooi_bits_any(const uint64_t *bits, size_t from, size_t count)
{
    for (size_t w = from / 64; w * 64 < from + count; w++)
        if (bits[w] & mooi_bits_mask(w, from, from + count))
            return 1;
    return 0;
}

static inline void mooi_bits_set(uint64_t *bits, size_t from, size_t count)
{
    for (size_t w = from / 64; w * 64 < from + count; w++)
        bits[w] |= mooi_bits_mask(w, from, from + count);
}

static inline void mooi_bits_clear(uint64_t *bits, size_t from, size_t count)
{
    for (size_t w = from / 64; w * 64 < from + count; w++)
        bits[w] &= ~mooi_bits_mask(w, from, from + count);
}

#endif
