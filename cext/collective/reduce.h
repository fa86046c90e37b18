/* SPDX-License-Identifier: MIT */
/* reduce.h: the arithmetic of reductions. */
#ifndef MOOI_REDUCE_H
#define MOOI_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "mooactor.h"

/* dst[i] = op(src[0][i], src[1][i], …), from the left. `dst` overlaps no
 * source. For MOO_OP_MEAN the sum is divided by `count_sources`. */
typedef void mooi_reducer(void *dst, const void *const *src,
                          uint32_t count_sources, size_t elements);

/* NULL: there is no such reduction (a mean of integers). */
mooi_reducer *mooi_reducer_for(moo_dtype dtype, moo_reduction op);
/* The same, but to partial results: floats for half precision, and the sum for
 * a mean. */
mooi_reducer *mooi_partial_reducer(moo_dtype dtype, moo_reduction op);
/* Half precision to float and back, rounded once. No overlap. */
void mooi_widen(moo_dtype dtype, float *to, const void *from, size_t elements);
void mooi_narrow(moo_dtype dtype, void *to, const float *from,
                 size_t elements);
/* x[i] /= count, of floats or doubles. */
void mooi_divide(moo_dtype dtype, void *x, uint32_t count, size_t elements);
static inline bool mooi_is_half(moo_dtype dtype)
{
    return dtype == MOO_DT_F16 || dtype == MOO_DT_BF16;
}
size_t mooi_dtype_bytes(moo_dtype dtype);
const char *mooi_dtype_name(moo_dtype dtype);
const char *mooi_reduction_name(moo_reduction op);

#endif
