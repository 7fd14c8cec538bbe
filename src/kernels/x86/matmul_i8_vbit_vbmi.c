/* SPDX-License-Identifier: Apache-2.0 */
/* int8 mode, vbit and vbit_ro (ref/matmul_i8_vbit_ref.c says what they mean), AVX-512 with VNNI and
 * VBMI.
 *
 * Many vectors: eight codes of b bits are b bytes, the first code in the highest bits. A
 * permutation turns them round, vpmultishiftqb takes the codes out. Few vectors: as for AVX2. */
#include "kernels/x86/gemm_i8_avx512.h"
#include "quant/vbit.h"

/* Byte t of the qword that holds codes 8 i to 8 i + 7 of b bits. */
#define VBIT_BYTE(b, i, t) ((t) < (b) ? (b) * ((i) + 1) - 1 - (t) : 0)
#define VBIT_QWORD(b, i)                                                                           \
    VBIT_BYTE(b, i, 0), VBIT_BYTE(b, i, 1), VBIT_BYTE(b, i, 2), VBIT_BYTE(b, i, 3),                \
        VBIT_BYTE(b, i, 4), VBIT_BYTE(b, i, 5), VBIT_BYTE(b, i, 6), VBIT_BYTE(b, i, 7)
#define VBIT_ORDER(b)                                                                              \
    { VBIT_QWORD(b, 0), VBIT_QWORD(b, 1), VBIT_QWORD(b, 2), VBIT_QWORD(b, 3) }
static const uint8_t vbit_order[7][32] = {
    [3] = VBIT_ORDER(3), [4] = VBIT_ORDER(4), [5] = VBIT_ORDER(5), [6] = VBIT_ORDER(6)};

/* The 32 codes of the group at p, in order, less their zero and plus 127. */
CSN_INLINE __m256i vbit_codes_of(const uint8_t *p, unsigned bits) {
    if (bits == 8) {
        return csn_load256(p);
    }
    __m256i v = _mm256_maskz_loadu_epi8((__mmask32)((UINT32_C(1) << 4 * bits) - 1), p);
    v = _mm256_permutexvar_epi8(csn_load256(vbit_order[bits]), v);
    /* code k of eight begins at bit b * (7 - k) */
    const __m256i at = _mm256_set1_epi64x((long long)(UINT64_C(0x0001020304050607) * bits));
    v = _mm256_and_si256(_mm256_multishift_epi64_epi8(at, v),
                         _mm256_set1_epi8((char)((1U << bits) - 1)));
    return _mm256_add_epi8(v, _mm256_set1_epi8((char)(127 - csn_vbit_zero(bits))));
}

struct vbit {
    csn_vbit v;
    csn_vbit_at *at;
};

static void pack_vbit(const void *ctx, uint64_t r, uint64_t r1, uint64_t g0, uint64_t ng,
                      struct gemm_panel *p) {
    const struct vbit *m = ctx;
    for (uint64_t i = 0; i < GEMM_ROWS; i += 8) {
        const uint8_t *codes[8];
        const uint8_t *scale[8];
        unsigned bits[8];
        for (uint64_t k = 0; k < 8; k++) {
            const uint64_t row = r + i + k < r1 ? r + i + k : r1 - 1;
            const csn_vbit_row found = csn_vbit_walk(&m->v, m->at, row);
            bits[k] = found.bits;
            codes[k] = found.p + g0 * 4 * bits[k];
            scale[k] = m->v.scales + 2 * (row * m->v.n_groups + g0);
        }
        for (uint64_t g = 0; g < ng; g++) {
            __m256i v[8];
            CSN_UNROLL
            for (int k = 0; k < 8; k++) {
                v[k] = vbit_codes_of(codes[k] + g * 4 * bits[k], bits[k]);
                p->scale[g][i + (uint64_t)k] = csn_scale16(scale[k] + 2 * g);
            }
            csn_transpose8(v);
            CSN_UNROLL
            for (int j = 0; j < 8; j++) {
                _mm256_store_si256((void *)p->code[g][j][i], v[j]);
            }
        }
    }
}

void csn_matmul_i8_vbit_vbmi(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                             uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (n <= CSN_FEW_VECTORS || w->cols == 0) {
        csn_matmul_i8_vbit_avx2(w, x, n, y, y_stride, r0, r1);
        return;
    }
    const csn_vbit v = csn_vbit_parts(w);
    csn_vbit_at at = csn_vbit_begin(&v, r0);
    const struct vbit m = {v, &at};
    gemm_i8(pack_vbit, &m, GEMM_8BIT_GROUPS, NULL, x, n, y, y_stride, r0, r1);
}

void csn_matmul_i8_vbit_ro_vbmi(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y,
                                uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_i8_vbit_vbmi(w, x, n, y, y_stride, r0, r1);
}
