/* SPDX-License-Identifier: Apache-2.0 */
/* Is any of many numbers not finite? Compiled for the instruction set of the file that includes
 * this: numbers.c for the baseline, x86/numbers_avx2.c. Both look at whole vectors only and leave
 * the last numbers to numbers.c.
 */
#ifndef CSN_QUANT_NUMBERS_TEMPLATE_H
#define CSN_QUANT_NUMBERS_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Of kinds whose bits say it: `exponent` of one number, in as many bytes. */
struct csn_number_field {
    unsigned nbytes;
    uint32_t exponent;
};

/* Numbers side by side, and f16 `stride` bytes apart. *ret_n of n are looked at. */
typedef bool (*csn_numbers_side_by_side_fn)(const struct csn_number_field *f, const uint8_t *p,
                                            uint64_t n, uint64_t *ret_n);
typedef bool (*csn_numbers_apart_fn)(const uint8_t *p, uint64_t n, uint32_t stride,
                                     uint64_t *ret_n);
#if defined(__x86_64__)
bool csn_numbers_side_by_side_avx2(const struct csn_number_field *f, const uint8_t *p, uint64_t n,
                                   uint64_t *ret_n);
bool csn_numbers_apart_avx2(const uint8_t *p, uint64_t n, uint32_t stride, uint64_t *ret_n);
#endif

#ifdef __AVX2__
enum { LANES = 32 };
#else
enum { LANES = 16 };
#endif
enum { AT_ONCE = 4 }; /* vectors in flight */
typedef uint8_t lanes8 __attribute__((vector_size(LANES)));
typedef int16_t lanes16 __attribute__((vector_size(LANES)));

/* In one instruction, which no compiler makes of a comparison of vectors. */
static inline lanes8 larger8(lanes8 a, lanes8 b) {
#if defined(__AVX2__)
    return (lanes8)_mm256_max_epu8((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (lanes8)_mm_max_epu8((__m128i)a, (__m128i)b);
#else
    lanes8 first = (lanes8)(a > b);
    return (a & first) | (b & ~first);
#endif
}

static inline lanes16 larger16(lanes16 a, lanes16 b) {
#if defined(__AVX2__)
    return (lanes16)_mm256_max_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (lanes16)_mm_max_epi16((__m128i)a, (__m128i)b);
#else
    lanes16 first = a > b;
    return (a & first) | (b & ~first);
#endif
}

static inline bool is_set(lanes8 x) {
    uint64_t w[LANES / 8];
    uint64_t any = 0;
    memcpy(w, &x, sizeof(w));
    for (int i = 0; i < LANES / 8; i++) {
        any |= w[i];
    }
    return any != 0;
}

static inline lanes8 take8(const uint8_t *p, lanes8 kept) {
    lanes8 x;
    memcpy(&x, p, LANES);
    return x & kept;
}

static inline lanes16 take16(const uint8_t *p, lanes16 kept) {
    return (lanes16)take8(p, (lanes8)kept);
}

/* By their upper halves; of a little-endian machine. */
static bool side_by_side(const struct csn_number_field *f, const uint8_t *p, uint64_t n,
                         uint64_t *ret_n) {
    const uint64_t nbytes = n * f->nbytes / (AT_ONCE * LANES) * (AT_ONCE * LANES);
    const int16_t most = (int16_t)((f->nbytes == 2 ? f->exponent : f->exponent >> 16) - 1);
    lanes16 kept;
    for (int i = 0; i < LANES / 2; i++) {
        kept[i] = f->nbytes == 2 || i % 2 == 1 ? 0x7fff : 0;
    }
    lanes16 top0 = {0};
    lanes16 top1 = {0};
    for (const uint8_t *end = p + nbytes; p < end; p += AT_ONCE * LANES) {
        top0 = larger16(larger16(top0, take16(p, kept)), take16(p + 2 * LANES, kept));
        top1 = larger16(larger16(top1, take16(p + LANES, kept)), take16(p + 3 * LANES, kept));
    }
    *ret_n = nbytes / f->nbytes;
    return is_set((lanes8)(larger16(top0, top1) > most));
}

/* By their upper bytes, as many in a vector as fit. No vector reaches behind the n-th number. */
static bool apart(const uint8_t *p, uint64_t n, uint32_t stride, uint64_t *ret_n) {
    const uint64_t each = (LANES - 2) / stride + 1;
    const uint64_t next = each * stride;
    lanes8 kept = {0};
    for (uint64_t k = 0; k < each; k++) {
        kept[k * stride + 1] = 0x7f;
    }
    lanes8 top0 = {0};
    lanes8 top1 = {0};
    uint64_t i = 0;
    for (; i + (AT_ONCE + 1) * each < n; i += AT_ONCE * each, p += AT_ONCE * next) {
        top0 = larger8(larger8(top0, take8(p, kept)), take8(p + 2 * next, kept));
        top1 = larger8(larger8(top1, take8(p + next, kept)), take8(p + 3 * next, kept));
    }
    *ret_n = i;
    return is_set((lanes8)(larger8(top0, top1) > 0x7b));
}

#endif
