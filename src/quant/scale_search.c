/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of a group of 32 weights that are stored as codes from lo to hi, w = code * scale, for
 * formats whose scale may be any f16: the encoders of q4_block, q4_tiled, vbit and vbit_ro.
 *
 * The references take S(absmax / end) and leave the code at the longer end all but unused. Any
 * scale of either sign is valid, so the search tries to put the largest weight m on codes around
 * either end (scale m / k), moves the best of these to the least squares scale of its codes, rounds
 * that to f16 and measures with the rounded scale. The reference's choice is always among what is
 * measured: the squared error is never larger than its.
 *
 * Sums are f32 and a halving tree, so bytes are the same on every CPU, however many of them a
 * compiler adds at once. The loops are in encode_template.h. */
#include "quant/encode_template.h"

#include "base/cpu.h"

static const csn_encode_loops baseline = CSN_ENCODE_LOOPS;

static const csn_encode_loops *loops(void) {
#if defined(__x86_64__)
    if ((csn_cpu_flags() & CSN_CPU_AVX2) != 0) {
        return &csn_encode_loops_avx2;
    }
#endif
    return &baseline;
}

float csn_codes_measure(const float x[CSN_GROUP], csn_codes c, float s, float code[CSN_GROUP]) {
    return loops()->measure(x, c, s, code);
}

float csn_codes_error(const float x[CSN_GROUP], csn_codes c, float s) {
    return loops()->error(x, c, s);
}

void csn_codes_search(const float x[CSN_GROUP], csn_codes c, uint16_t *h, float code[CSN_GROUP]) {
    loops()->search(x, c, h, code);
}

float csn_row_absmax(const float *x, uint64_t n) {
    return loops()->largest_of(x, n);
}

void csn_row_to_bytes(const float *x, uint64_t n, float s, int8_t *ret) {
    loops()->to_bytes(x, n, s, ret);
}
