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

float csn_exp2_half(uint16_t h); /* any f16, NaN and infinities included */
float csn_log2_half(uint16_t h); /* h a positive normal f16 */

#endif
