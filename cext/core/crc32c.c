/* SPDX-License-Identifier: MIT */
#include "core/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* bits reversed */

static uint32_t table[256];

static void fill_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        table[i] = crc;
    }
}

uint32_t mooi_crc32c_by_table(uint32_t crc, const void *data, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *in = data;

    pthread_once(&once, fill_table);
    crc = ~crc;
    while (bytes--)
        crc = crc >> 8 ^ table[(crc ^ *in++) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <nmmintrin.h>

static int has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint32_t
by_instruction(uint32_t crc, const uint8_t *in, size_t bytes)
{
    uint64_t wide = ~crc;

    for (; bytes >= 8; bytes -= 8, in += 8) {
        uint64_t word;
        memcpy(&word, in, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    while (bytes--)
        crc = _mm_crc32_u8(crc, *in++);
    return ~crc;
}

#elif defined(__aarch64__) && defined(__linux__) && \
    (defined(__GNUC__) || defined(__clang__)) && !defined(__AARCH64EB__)

#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

static int has_instruction(void)
{
    return !!(getauxval(AT_HWCAP) & HWCAP_CRC32);
}

/* By hand, because the names of the intrinsics depend on compiler flags. */
static uint32_t by_instruction(uint32_t crc, const uint8_t *in, size_t bytes)
{
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, in += 8) {
        uint64_t word;
        memcpy(&word, in, 8);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1"
                : "+r"(crc)
                : "r"(word));
    }
    while (bytes--) {
        uint32_t byte = *in++;
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
                : "+r"(crc)
                : "r"(byte));
    }
    return ~crc;
}

#else

static int has_instruction(void)
{
    return 0;
}

static uint32_t by_instruction(uint32_t crc, const uint8_t *in, size_t bytes)
{
    return mooi_crc32c_by_table(crc, in, bytes);
}

#endif

uint32_t mooi_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    static _Atomic int known; /* 0: not looked yet, 1: no, 2: yes */

    if (!known)
        known = 1 + has_instruction();
    return known == 2 ? by_instruction(crc, data, bytes)
                      : mooi_crc32c_by_table(crc, data, bytes);
}
