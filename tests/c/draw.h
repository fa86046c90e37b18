/* SPDX-License-Identifier: MIT */
/* draw.h: random numbers that a seed repeats, on every machine. */
#ifndef DRAW_H
#define DRAW_H

#include <stdint.h>

static uint64_t random_state;

static void draw_from(uint64_t seed)
{
    random_state = 0x9e3779b97f4a7c15ull * (seed + 1);
}

/* xorshift64*, Vigna 2016: a number below `limit`. */
static uint32_t draw(uint32_t limit)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 0x2545f4914f6cdd1dull) >> 33) % limit;
}

#endif
