/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, q8g (ref/matmul_i8_group128_ref.c says what it means), AVX2. */
#include "kernels/x86/few_i8_avx2.h"
#include "kernels/x86/gemm_i8_avx2.h"
#include "quant/group128.h"

struct q8g {
    const uint8_t *codes, *scales;
    uint64_t n_scales; /* of a row */
};

/* ---- few vectors ---- */

CSN_INLINE void q8g_step(const struct few_rows *rows, struct few_at at, const csn_x8 *x, uint64_t t,
                         int nc, uint64_t j, __m256 *f) {
    const __m256 ws = few_scales128(rows, at);
    CSN_UNROLL
    for (int c = 0; c < nc; c++) {
        const int8_t *q = x->q + (t + (uint64_t)c) * x->q_stride + 64 * j;
        f[c] = few_scale(ws, few_pair(x, t + (uint64_t)c, j), few_sums_int8(rows, at, q));
    }
}

/* ---- many vectors ---- */

static void pack_q8g(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                     struct gemm_panel *p) {
    const struct q8g *m = ctx;
    uint64_t row[8];
    for (uint64_t i = 0; i < 8; i++) {
        row[i] = (r + i < r1 ? r + i : r1 - 1) * m->n_scales;
    }
    for (uint64_t g = 0; g < ng; g++) {
        __m256i v[8];
        CSN_UNROLL
        for (int i = 0; i < 8; i++) {
            const uint8_t *codes = m->codes + row[i] * CSN_GROUP128 + (g0 + g) * 32;
            v[i] = csn_load256(codes);
            p->scale[g][0][i] = csn_scale16(m->scales + 2 * (row[i] + (g0 + g) / 4));
        }
        gemm_store_int8(v, p->plane[g]);
    }
}

void csn_matmul_i8_q8g_avx2(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                            uint64_t y_stride, uint64_t r0, uint64_t r1) {
    const uint64_t n_scales = csn_group128_count(w->cols);
    const struct q8g m = {.codes = w->data,
                          .scales = w->data + w->rows * n_scales * CSN_GROUP128,
                          .n_scales = n_scales};
    if (!few_fits(x, n)) {
        csn_x8 padded = *x;
        padded.n_groups = 4 * n_scales;
        gemm_i8(pack_q8g, &m, GEMM_8BIT_GROUPS, NULL, &padded, n, y, y_stride, r0, r1);
    } else if (r1 - r0 < FEW_ROWS) {
        csn_matmul_i8_q8g_ref(w, x, n, y, y_stride, r0, r1);
    } else {
        const struct few_kind kind = {.step = q8g_step,
                                      .step_bytes = {64, 1},
                                      .row_bytes = {CSN_GROUP128 * n_scales, 2 * n_scales},
                                      .n_steps = 2 * n_scales};
        few_i8(&kind, &m, &(struct few_rows){{m.codes}, {m.scales}}, x, n, y, y_stride, r0, r1);
    }
}
