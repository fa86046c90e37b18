/* SPDX-License-Identifier: MIT */
/*
 * memory.h: blocks of our own memory, for users and for copies. The plane's
 * lock is held.
 */
#ifndef MOOI_MEMORY_H
#define MOOI_MEMORY_H

#include "plane/plane.h"

/* A block as moo_empty hands it out, with one hold. */
moo_err mooi_block_for_user(moo_plane *plane, size_t bytes,
                            struct mooi_block **out, char **at);

/* A block with a copy of data[0, bytes) and one hold. The lock is let go
 * during the copy. */
moo_err mooi_copy_out(moo_plane *plane, const void *data, size_t bytes,
                      struct mooi_block **out);

#endif
