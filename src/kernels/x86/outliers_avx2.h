/* SPDX-License-Identifier: Apache-2.0 */
/* outliers_template.h for AVX2. */
#ifndef CSN_KERNELS_X86_OUTLIERS_AVX2_H
#define CSN_KERNELS_X86_OUTLIERS_AVX2_H

#include "kernels/x86/i8_avx2.h"

/* Both f16 in one conversion, which is the longest step. The two bytes before a value are its
 * key's.
 */
CSN_INLINE float outlier_delta(const uint8_t *value, float weight, const uint8_t *scale) {
    csn_prefetch(value, 768); /* they are read while no tile is */
    __m128i both = _mm_insert_epi16(_mm_cvtsi32_si128(csn_load32(value - 2)), csn_load16(scale), 0);
    __m128 f = _mm_cvtph_ps(both);
    return _mm_cvtss_f32(_mm_movehdup_ps(f)) - weight * _mm_cvtss_f32(f);
}

#include "kernels/outliers_template.h"

#endif
