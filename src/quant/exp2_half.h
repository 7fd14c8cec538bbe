/* SPDX-License-Identifier: Apache-2.0 */
/* Powers and logarithms of two of f16 numbers, for the q4tp ladder.
 *
 * The format's reference calls the C library's exp2f and log2f, whose last bit differs between C
 * libraries. These two give, on every machine, the bits of glibc's on 64-bit Linux (2.28 to 2.36
 * and later, with and without FMA): the correctly rounded value, save for a short list of
 * arguments that that library rounds the other way (tests/unit/quant/test_exp2_half.c compares all
 * 65536 arguments).
 */
#ifndef CSN_QUANT_EXP2_HALF_H
#define CSN_QUANT_EXP2_HALF_H

#include <stdint.h>

/* What kernels need to do the same for many at once: 2^(j / 16), and the arguments whose result is
 * one unit above the correctly rounded value (filled up with the last, for vector steps). */
enum { CSN_N_EXP2_ABOVE = 48 };
extern const double csn_exp2_sixteenths[16];
extern const uint16_t csn_exp2_above[CSN_N_EXP2_ABOVE];

float csn_exp2_half(uint16_t h); /* any f16, NaN and infinities included */
float csn_log2_half(uint16_t h); /* h a positive normal f16 */
/* The rounded value, which glibc's log2f misses by one unit for one argument in fifty. x: positive,
 * normal. */
float csn_log2(float x);

#endif
