/* SPDX-License-Identifier: MIT */
/* crc32c.h: CRC-32 with Castagnoli's polynomial (1993), as in iSCSI and
 * ext4. */
#ifndef MOOI_CRC32C_H
#define MOOI_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Extend the checksum `crc` by data[0, bytes). Start with 0. Uses the
 * processor's instruction if it has one. Pure. */
uint32_t mooi_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same by table, the oracle for the above. */
uint32_t mooi_crc32c_by_table(uint32_t crc, const void *data, size_t bytes);

#endif
