/* SPDX-License-Identifier: MIT */
/* mac.h: SipHash-2-4 (Aumasson and Bernstein, 2012) with 128 bits of output,
 * the proof of the session key. */
#ifndef MOOI_MAC_H
#define MOOI_MAC_H

#include <stddef.h>
#include <stdint.h>

#define MOOI_KEY_BYTES 16
#define MOOI_MAC_BYTES 16

/* The keyed hash of buf[0, len). Pure. */
void mooi_mac(const uint8_t key[MOOI_KEY_BYTES], const void *buf, size_t len,
              uint8_t out[MOOI_MAC_BYTES]);

/* 1 if the two are equal; takes the same time wherever they differ. */
int mooi_mac_equal(const uint8_t *a, const uint8_t *b);

#endif
