/* SPDX-License-Identifier: MIT */
/*
 * reduce.c: the arithmetic, one kernel per (element type, reduction).
 *
 * A kernel reduces all sources in rank order, block by block, so that the
 * running result stays in the first-level cache. The order of the additions is
 * the same on all ranks, so results are bit-identical. Half-precision numbers
 * are added up in float and rounded once.
 *
 * The compiler vectorises. If it can, it makes one clone per instruction set
 * and the dynamic linker picks; sanitizers run before the linker's choice is
 * made, so they get the plain one.
 */
#include <string.h>

#include "collective/reduce.h"

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && \
    !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define VECTOR \
    __attribute__((target_clones("avx512f", "avx2", "default"), \
                   optimize("O3")))
#else
#define VECTOR
#endif

#define BLOCK 1024 /* elements; 8 KiB at most */

#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define LESSER(a, b) ((b) < (a) ? (b) : (a))
#define GREATER(a, b) ((b) > (a) ? (b) : (a))

/* minimum and maximum of IEEE 754-2019: a NaN on any rank is a NaN in the
 * result, and -0 is less than +0. So the order of the operands, which differs
 * between hosts, makes no difference. Equal numbers have equal bits but for
 * the sign of zero, which `or` and `and` decide. */
#define DEFINE_EXTREMA(N, T, BITS) \
    static inline T N##_with_bits(T a, T b, int either) \
    { \
        BITS x, y; \
        memcpy(&x, &a, sizeof x); \
        memcpy(&y, &b, sizeof y); \
        x = either ? x | y : x & y; \
        memcpy(&a, &x, sizeof a); \
        return a; \
    } \
    static inline T N##_lesser(T a, T b) \
    { \
        T other = a != a || a < b ? a : b; \
        return a == b ? N##_with_bits(a, b, 1) : other; \
    } \
    static inline T N##_greater(T a, T b) \
    { \
        T other = a != a || a > b ? a : b; \
        return a == b ? N##_with_bits(a, b, 0) : other; \
    }

DEFINE_EXTREMA(f32, float, uint32_t)
DEFINE_EXTREMA(f64, double, uint64_t)

/* Two sources at a time while there are two, then one at a time. */
#define DEFINE(NAME, T, OP, FINISH) \
    VECTOR static void NAME(void *out, const void *const *src, uint32_t n, \
                            size_t elements) \
    { \
        for (size_t at = 0; at < elements; at += BLOCK) { \
            size_t m = elements - at < BLOCK ? elements - at : BLOCK; \
            T *restrict to = (T *)out + at; \
            const T *restrict a = (const T *)src[0] + at; \
            if (n == 2) { \
                const T *restrict b = (const T *)src[1] + at; \
                for (size_t i = 0; i < m; i++) { \
                    T sum = OP(a[i], b[i]); \
                    to[i] = FINISH(sum, 2); \
                } \
                continue; \
            } \
            memcpy(to, a, m * sizeof(T)); \
            for (uint32_t s = 1; s < n; s++) { \
                const T *restrict b = (const T *)src[s] + at; \
                for (size_t i = 0; i < m; i++) \
                    to[i] = OP(to[i], b[i]); \
            } \
            for (size_t i = 0; i < m; i++) \
                to[i] = FINISH(to[i], n); \
        } \
    }

#define AS_IS(x, n) (x)
#define OVER(x, n) ((x) / (n))

#define DEFINE_FLOAT(N, T) \
    DEFINE(N##_sum, T, ADD, AS_IS) \
    DEFINE(N##_mean, T, ADD, OVER) \
    DEFINE(N##_min, T, N##_lesser, AS_IS) \
    DEFINE(N##_max, T, N##_greater, AS_IS) \
    DEFINE(N##_product, T, MULTIPLY, AS_IS)

/* Sums and products of signed integers wrap like numpy's: unsigned inside. */
#define DEFINE_INTEGER(N, T, U) \
    DEFINE(N##_sum, U, ADD, AS_IS) \
    DEFINE(N##_min, T, LESSER, AS_IS) \
    DEFINE(N##_max, T, GREATER, AS_IS) \
    DEFINE(N##_product, U, MULTIPLY, AS_IS)

DEFINE_FLOAT(f32, float)
DEFINE_FLOAT(f64, double)
DEFINE_INTEGER(i32, int32_t, uint32_t)
DEFINE_INTEGER(i64, int64_t, uint64_t)
DEFINE_INTEGER(u8, uint8_t, uint8_t)

/* bf16 is the upper half of a float. */
static inline float from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1); /* to even */
    return value != value ? 0x7fc0 : (uint16_t)(rounded >> 16);
}

/* IEEE half, by hand: the same bits with every compiler and processor. */
static inline float from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t rest = (uint32_t)(half & 0x7fff) << 13;
    uint32_t bits = rest + (rest >= 0x0f800000 ? 0x70000000 : 0x38000000);
    float value;
    memcpy(&value, &bits, sizeof value);
    float tiny = (float)(half & 0x7fff) * 0x1p-24f; /* zero, subnormal */
    value = (half & 0x7c00) ? value : tiny;
    memcpy(&bits, &value, sizeof bits);
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
    uint32_t size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return sign | 0x7e00; /* NaN */
    if (size >= 0x477ff000)
        return sign | 0x7c00; /* rounds to infinity */
    if (size >= 0x38800000) { /* normal */
        uint32_t rounded = size + 0xfff + ((size >> 13) & 1);
        return sign | (uint16_t)((rounded - 0x38000000) >> 13);
    }
    float shifted; /* subnormal: let the float adder round to even */
    memcpy(&shifted, &size, sizeof shifted);
    shifted += 0.5f;
    memcpy(&size, &shifted, sizeof size);
    return sign | (uint16_t)(size - 0x3f000000);
}

#define DEFINE_HALF_OP(NAME, RESULT, FROM, TO, OP, FINISH) \
    VECTOR static void NAME(void *out, const void *const *src, uint32_t n, \
                            size_t elements) \
    { \
        float sum[BLOCK]; \
        for (size_t at = 0; at < elements; at += BLOCK) { \
            size_t m = elements - at < BLOCK ? elements - at : BLOCK; \
            RESULT *restrict to = (RESULT *)out + at; \
            const uint16_t *restrict a = (const uint16_t *)src[0] + at; \
            for (size_t i = 0; i < m; i++) \
                sum[i] = FROM(a[i]); \
            for (uint32_t s = 1; s < n; s++) { \
                const uint16_t *restrict b = (const uint16_t *)src[s] + at; \
                for (size_t i = 0; i < m; i++) \
                    sum[i] = OP(sum[i], FROM(b[i])); \
            } \
            for (size_t i = 0; i < m; i++) \
                to[i] = TO(FINISH(sum[i], n)); \
        } \
    }

#define DEFINE_CONVERSION(N, FROM, TO) \
    VECTOR static void N##_widen(float *restrict to, \
                                 const uint16_t *restrict from, size_t n) \
    { \
        for (size_t i = 0; i < n; i++) \
            to[i] = FROM(from[i]); \
    } \
    VECTOR static void N##_narrow(uint16_t *restrict to, \
                                  const float *restrict from, size_t n) \
    { \
        for (size_t i = 0; i < n; i++) \
            to[i] = TO(from[i]); \
    }

#define FLOAT(x) (x)
#define DEFINE_HALF(N, FROM, TO) \
    DEFINE_HALF_OP(N##_sum, uint16_t, FROM, TO, ADD, AS_IS) \
    DEFINE_HALF_OP(N##_mean, uint16_t, FROM, TO, ADD, OVER) \
    DEFINE_HALF_OP(N##_min, uint16_t, FROM, TO, f32_lesser, AS_IS) \
    DEFINE_HALF_OP(N##_max, uint16_t, FROM, TO, f32_greater, AS_IS) \
    DEFINE_HALF_OP(N##_product, uint16_t, FROM, TO, MULTIPLY, AS_IS) \
    DEFINE_HALF_OP(N##_partial_sum, float, FROM, FLOAT, ADD, AS_IS) \
    DEFINE_HALF_OP(N##_partial_min, float, FROM, FLOAT, f32_lesser, AS_IS) \
    DEFINE_HALF_OP(N##_partial_max, float, FROM, FLOAT, f32_greater, AS_IS) \
    DEFINE_HALF_OP(N##_partial_product, float, FROM, FLOAT, MULTIPLY, AS_IS) \
    DEFINE_CONVERSION(N, FROM, TO)

DEFINE_HALF(f16, from_f16, to_f16)
DEFINE_HALF(bf16, from_bf16, to_bf16)

#define FLOAT_ROW(N) \
    { N##_sum, N##_mean, N##_min, N##_max, N##_product }
#define INTEGER_ROW(N) \
    { N##_sum, NULL, N##_min, N##_max, N##_product }

static const struct {
    const char *name;
    size_t bytes;
    mooi_reducer *reduce[MOO_OP_COUNT];
} table[MOO_DT_COUNT] = {
    [MOO_DT_F32] = {"float32", 4, FLOAT_ROW(f32)},
    [MOO_DT_F64] = {"float64", 8, FLOAT_ROW(f64)},
    [MOO_DT_F16] = {"float16", 2, FLOAT_ROW(f16)},
    [MOO_DT_BF16] = {"bfloat16", 2, FLOAT_ROW(bf16)},
    [MOO_DT_I32] = {"int32", 4, INTEGER_ROW(i32)},
    [MOO_DT_I64] = {"int64", 8, INTEGER_ROW(i64)},
    [MOO_DT_U8] = {"uint8", 1, INTEGER_ROW(u8)},
};

mooi_reducer *mooi_reducer_for(moo_dtype dtype, moo_reduction op)
{
    if ((unsigned)dtype >= MOO_DT_COUNT || (unsigned)op >= MOO_OP_COUNT)
        return NULL;
    return table[dtype].reduce[op];
}

size_t mooi_dtype_bytes(moo_dtype dtype)
{
    return (unsigned)dtype < MOO_DT_COUNT ? table[dtype].bytes : 0;
}

const char *mooi_dtype_name(moo_dtype dtype)
{
    return (unsigned)dtype < MOO_DT_COUNT ? table[dtype].name : "bytes";
}

const char *mooi_reduction_name(moo_reduction op)
{
    static const char *const names[MOO_OP_COUNT] = {"sum", "mean", "min",
                                                    "max", "product"};
    return (unsigned)op < MOO_OP_COUNT ? names[op] : "?";
}

mooi_reducer *mooi_partial_reducer(moo_dtype dtype, moo_reduction op)
{
#define PARTIAL_ROW(N) \
    { N##_partial_sum, N##_partial_sum, N##_partial_min, N##_partial_max, \
      N##_partial_product }
    static mooi_reducer *const halves[2][MOO_OP_COUNT] = {PARTIAL_ROW(f16),
                                                          PARTIAL_ROW(bf16)};
    if (mooi_is_half(dtype) && (unsigned)op < MOO_OP_COUNT)
        return halves[dtype == MOO_DT_BF16][op];
    return mooi_reducer_for(dtype, op == MOO_OP_MEAN ? MOO_OP_SUM : op);
}

void mooi_widen(moo_dtype dtype, float *to, const void *from, size_t elements)
{
    (dtype == MOO_DT_F16 ? f16_widen : bf16_widen)(to, from, elements);
}

void mooi_narrow(moo_dtype dtype, void *to, const float *from, size_t elements)
{
    (dtype == MOO_DT_F16 ? f16_narrow : bf16_narrow)(to, from, elements);
}

VECTOR static void divide_floats(float *x, float count, size_t elements)
{
    for (size_t i = 0; i < elements; i++)
        x[i] /= count;
}

VECTOR static void divide_doubles(double *x, double count, size_t elements)
{
    for (size_t i = 0; i < elements; i++)
        x[i] /= count;
}

void mooi_divide(moo_dtype dtype, void *x, uint32_t count, size_t elements)
{
    if (dtype == MOO_DT_F64)
        divide_doubles(x, (double)count, elements);
    else
        divide_floats(x, (float)count, elements);
}
