/* SPDX-License-Identifier: Apache-2.0 */
/* q2tp (CMF id 16, facts 4.12), only [rows, cols] with cols % 32 == 0: q4tp with two bits a weight,
 *
 *   [2-bit plane: rows * gpr * 8][params: rows x 4][codes: rows x ceil(5 * gpr / 8)]
 *
 * Weight k of a group is bits 2 * (k % 4) of byte k / 4, less 1.5, times rung `code` of its row;
 * rung 0 is zero. Read and run, not written. */
#include "quant/q4tp.h"
#include "quant/quant_internal.h"

enum { GROUP_BYTES = 8 };

static caisson_status q2tp_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    return csn_ladder_nbytes(shape, "q2tp needs whole groups of 32", GROUP_BYTES, ret, err);
}

void csn_q2tp_ladder(uint16_t lo, uint16_t step, float t[CSN_Q4TP_RUNGS]) {
    float whole[CSN_Q4TP_RUNGS];
    csn_q4tp_ladder(lo, step, whole);
    t[0] = 0;
    memcpy(t + 1, whole, (CSN_Q4TP_RUNGS - 1) * sizeof(float));
}

/* Halves: the kernels' weights are 2 c - 3. */
static void q2tp_unpack(const csn_matrix *m, void *out) {
    csn_ladder_scales(m, GROUP_BYTES, csn_q2tp_ladder, 0.5f, out);
}

static void q2tp_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    uint64_t gpr = m->cols / CSN_GROUP;
    const uint8_t *params = m->data + m->rows * gpr * GROUP_BYTES;
    const uint8_t *codes = params + 4 * m->rows;
    float t[CSN_Q4TP_RUNGS];
    uint64_t t_row = UINT64_MAX;
    uint64_t end = i0 + n;
    while (i0 < end) {
        uint64_t g = i0 / CSN_GROUP;
        uint64_t row = g / gpr;
        uint64_t stop = (g + 1) * CSN_GROUP < end ? (g + 1) * CSN_GROUP : end;
        if (row != t_row) {
            csn_q2tp_ladder(csn_load16(params + 4 * row), csn_load16(params + 4 * row + 2), t);
            t_row = row;
        }
        float s = t[csn_q4tp_code(codes + row * csn_q4tp_code_bytes(gpr), g - row * gpr)];
        const uint8_t *plane = m->data + GROUP_BYTES * g;
        for (; i0 < stop; i0++) {
            unsigned k = (unsigned)(i0 % CSN_GROUP);
            *out++ = ((float)(plane[k / 4] >> k % 4 * 2 & 3) - 1.5f) * s;
        }
    }
}

static uint32_t q2tp_row_parts(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    return csn_ladder_row_parts(cols, GROUP_BYTES, ret);
}

static uint32_t q2tp_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    uint64_t params = m->rows * (m->cols / CSN_GROUP) * GROUP_BYTES;
    ret[0] = (csn_numbers){CSN_NUMBER_Q2TP, false, params, m->rows, 4, 1};
    return 1;
}

const csn_dtype csn_dtype_q2tp = {
    .name = "q2tp",
    .cmf_id = 16,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .bytes_of_32 = GROUP_BYTES,
    .nbytes = q2tp_nbytes,
    .decode = q2tp_decode,
    .unpacked_nbytes = csn_ladder_unpacked_nbytes,
    .unpack = q2tp_unpack,
    .row_parts = q2tp_row_parts,
    .numbers = q2tp_numbers,
};
