/* SPDX-License-Identifier: MIT */
#include "core/copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

/* Below, the caches win. Measured gain: none at 16 MB, 1.4 times at 32, 1.7 at
 * 64. */
#define STREAM_FROM_BYTES ((size_t)24 << 20)
#define LINE 64
#define PAGE 4096
/* So many pages at a time: several streams keep more of the memory busy. */
#define PAGES 4
#define AHEAD (2 * LINE)

static inline void copy_line(char *to, const char *from)
{
    __m128i a = _mm_loadu_si128((const __m128i *)from);
    __m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(from + 48));

    _mm_stream_si128((__m128i *)to, a);
    _mm_stream_si128((__m128i *)(to + 16), b);
    _mm_stream_si128((__m128i *)(to + 32), c);
    _mm_stream_si128((__m128i *)(to + 48), d);
}

static void copy_pages(char *to, const char *from)
{
    for (size_t at = 0; at < PAGE; at += LINE)
        for (size_t page = 0; page < PAGES * PAGE; page += PAGE) {
            _mm_prefetch(from + page + at + AHEAD, _MM_HINT_T0);
            copy_line(to + page + at, from + page + at);
        }
}

void mooi_copy(void *to, const void *from, size_t bytes)
{
    char *out = to;
    const char *in = from;

    if (bytes >= STREAM_FROM_BYTES && (uintptr_t)to % LINE == 0) {
        for (; bytes >= PAGES * PAGE; bytes -= PAGES * PAGE) {
            copy_pages(out, in);
            out += PAGES * PAGE;
            in += PAGES * PAGE;
        }
        /* Streamed stores are not ordered by the release of a lease. */
        _mm_sfence();
    }
    memcpy(out, in, bytes);
}

#else

void mooi_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

#endif
