/* SPDX-License-Identifier: MIT */
/*
 * fold.c: the arithmetic of one hop of the ring: it reduces received and own
 * elements to partial results for the next hop, or to the result.
 *
 * Partial results are of the type of the sums: float for half precision, which
 * is therefore rounded once, at the last hop.
 */
#include "collective/ring.h"

#define BLOCK 1024 /* elements, so that all stays in the first-level cache */

static moo_reduction pair_of(const moo_work *work)
{
    moo_reduction op = (moo_reduction)work->signature.op;
    return op == MOO_OP_MEAN ? MOO_OP_SUM : op;
}

static const float *as_floats(moo_dtype dtype, struct mooi_operand x,
                              size_t from, float *room, size_t n)
{
    if (x.partial)
        return (const float *)x.data + from;
    mooi_widen(dtype, room, (const uint16_t *)x.data + from, n);
    return room;
}

static void fold_halves(const moo_work *work, void *to, bool partial,
                        struct mooi_operand a, struct mooi_operand b,
                        size_t elements, uint32_t divisor)
{
    moo_dtype dtype = (moo_dtype)work->signature.dtype;
    mooi_reducer *reduce = mooi_reducer_for(MOO_DT_F32, pair_of(work));
    float left[BLOCK], right[BLOCK], sum[BLOCK];
    for (size_t at = 0; at < elements; at += BLOCK) {
        size_t n = elements - at < BLOCK ? elements - at : BLOCK;
        const void *sources[2] = {as_floats(dtype, a, at, left, n),
                                  as_floats(dtype, b, at, right, n)};
        float *result = partial ? (float *)to + at : sum;
        reduce(result, sources, 2, n);
        if (divisor > 1)
            mooi_divide(MOO_DT_F32, result, divisor, n);
        if (!partial)
            mooi_narrow(dtype, (uint16_t *)to + at, sum, n);
    }
}

void mooi_fold(const moo_work *work, void *to, bool partial,
               struct mooi_operand a, struct mooi_operand b, size_t elements,
               uint32_t divisor)
{
    moo_dtype dtype = (moo_dtype)work->signature.dtype;
    size_t element = work->element;
    if (mooi_is_half(dtype)) {
        fold_halves(work, to, partial, a, b, elements, divisor);
        return;
    }
    for (size_t at = 0; at < elements; at += BLOCK) {
        size_t n = elements - at < BLOCK ? elements - at : BLOCK;
        const void *sources[2] = {
            (const unsigned char *)a.data + at * element,
            (const unsigned char *)b.data + at * element};
        unsigned char *result = (unsigned char *)to + at * element;
        work->partial(result, sources, 2, n);
        if (divisor > 1)
            mooi_divide(dtype, result, divisor, n);
    }
}
