/* SPDX-License-Identifier: MIT */
#include "core/mac.h"

#include <string.h>

#include "core/wire.h"

struct state {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

static void round_once(struct state *s)
{
    s->v0 += s->v1;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static void absorb(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    round_once(s);
    round_once(s);
    s->v0 ^= word;
}

static uint64_t finish(struct state *s)
{
    for (int i = 0; i < 4; i++)
        round_once(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

void mooi_mac(const uint8_t key[MOOI_KEY_BYTES], const void *buf, size_t len,
              uint8_t out[MOOI_MAC_BYTES])
{
    const uint8_t *in = buf;
    uint64_t k0 = mooi_get64(key), k1 = mooi_get64(key + 8);
    struct state s = {0x736f6d6570736575u ^ k0, 0x646f72616e646f6du ^ k1,
                      0x6c7967656e657261u ^ k0, 0x7465646279746573u ^ k1};
    uint8_t tail[8] = {0};

    s.v1 ^= 0xee; /* the variant with 128 bits of output */
    for (size_t i = 0; i + 8 <= len; i += 8)
        absorb(&s, mooi_get64(in + i));
    if (len % 8)
        memcpy(tail, in + len / 8 * 8, len % 8);
    tail[7] = (uint8_t)len;
    absorb(&s, mooi_get64(tail));

    s.v2 ^= 0xee;
    mooi_put64(out, finish(&s));
    s.v1 ^= 0xdd;
    mooi_put64(out + 8, finish(&s));
}

int mooi_mac_equal(const uint8_t *a, const uint8_t *b)
{
    uint8_t difference = 0;

    for (int i = 0; i < MOOI_MAC_BYTES; i++)
        difference |= (uint8_t)(a[i] ^ b[i]);
    return difference == 0;
}
