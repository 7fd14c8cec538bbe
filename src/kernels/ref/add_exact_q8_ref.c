/* SPDX-License-Identifier: Apache-2.0 */
/* What int8 mode takes out of an input before it is quantised, q8_row and q8_2f: plain C. */
#include "kernels/ref/ref.h"

static void load_scales(const uint8_t *f16, uint64_t m, float *out) {
    for (uint64_t r = 0; r < m; r++) {
        out[r] = csn_f16_to_f32(csn_load_u16(f16 + 2 * r));
    }
}

#include "kernels/exact_template.h"

void csn_add_exact_q8_row_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    add_exact(w, x, n, y, y_stride, r0, r1);
}

void csn_add_exact_q8_2f_ref(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    add_exact(w, x, n, y, y_stride, r0, r1);
}
