/* SPDX-License-Identifier: MIT */
/* copy.h: one large copy, as fast as memory allows. */
#ifndef MOOI_COPY_H
#define MOOI_COPY_H

#include <stddef.h>

/* As memcpy. From 24 MB on it writes past the caches if the processor can: the
 * destination is not read first, which is a third of the traffic. The C
 * library does so only beyond its idea of the cache, which on virtual machines
 * is often that of the whole host: there 64 MB took 9.8 ms instead of 5.8. */
void mooi_copy(void *to, const void *from, size_t bytes);

/* Its part past the caches: from the first byte on, so many pages at a time, as
 * far as these are whole. The number of bytes that it has copied; none where
 * the processor cannot. `to` lies at a multiple of 64. */
size_t mooi_stream(char *to, const char *from, size_t bytes, size_t pages);

#endif
