/* SPDX-License-Identifier: Apache-2.0 */
/* f32 mode, AVX2 with FMA (f32_avx2.h). Decoders: the same operations as quant/<dtype>.c. */
#include "kernels/x86/f32_avx2.h"
#include "kernels/x86/vbit_avx2.h"

CSN_INLINE const void *decode_f32(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    (void)m;
    (void)buf;
    return w->data + 4 * (r * w->cols + c);
}

CSN_INLINE const void *decode_f16(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                  float *buf) {
    const uint8_t *p = w->data + 2 * (r * w->cols + c);
    uint64_t i = 0;
    CSN_UNROLL_4
    for (; i + 8 <= m; i += 8) {
        _mm256_store_ps(buf + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 2 * i))));
    }
    for (; i < m; i++) {
        buf[i] = csn_scale16(p + 2 * i);
    }
    return buf;
}

CSN_INLINE const void *decode_bf16(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                   float *buf) {
    const uint8_t *p = w->data + 2 * (r * w->cols + c);
    uint64_t i = 0;
    CSN_UNROLL_4
    for (; i + 8 <= m; i += 8) {
        __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 2 * i)));
        _mm256_store_si256((void *)(buf + i), _mm256_slli_epi32(v, 16));
    }
    for (; i < m; i++) {
        uint32_t bits = (uint32_t)csn_load16(p + 2 * i) << 16;
        memcpy(buf + i, &bits, sizeof(bits));
    }
    return buf;
}

CSN_INLINE const void *decode_q8_row(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                     float *buf) {
    const int8_t *q = (const int8_t *)w->data + r * w->cols + c;
    float s = csn_scale16(w->data + w->rows * w->cols + 2 * r);
    uint64_t i = 0;
    CSN_UNROLL_4
    for (; i + 8 <= m; i += 8) {
        _mm256_store_ps(buf + i, _mm256_mul_ps(eight_codes(q + i), _mm256_set1_ps(s)));
    }
    for (; i < m; i++) {
        buf[i] = (float)q[i] * s;
    }
    return buf;
}

CSN_INLINE const void *decode_q8_2f(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                    float *buf) {
    const uint8_t *columns = w->data + w->rows * w->cols + 2 * w->rows + 2 * c;
    decode_q8_row(w, r, c, m, buf);
    uint64_t i = 0;
    CSN_UNROLL_4
    for (; i + 8 <= m; i += 8) {
        __m256 f = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(columns + 2 * i)));
        _mm256_store_ps(buf + i, _mm256_mul_ps(_mm256_load_ps(buf + i), f));
    }
    for (; i < m; i++) {
        buf[i] *= csn_scale16(columns + 2 * i);
    }
    return buf;
}

CSN_INLINE const void *decode_q4_tiled(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                       float *buf) {
    if (w->cols % 32 != 0) {
        return decode_any(w, r, c, m, buf);
    }
    const uint8_t *p = w->data + (r * w->cols + c) / 32 * 18;
    for (uint64_t i = 0; i < m; i += 32, p += 18) {
        decode_nibbles(p + 2, csn_scale16(p), buf + i);
    }
    return buf;
}

CSN_INLINE const void *decode_q4_block(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                       float *buf) {
    if (w->cols % 32 != 0) {
        return decode_any(w, r, c, m, buf);
    }
    uint64_t g = (r * w->cols + c) / 32;
    const uint8_t *scales = w->data + w->rows * w->cols / 32 * 16;
    for (uint64_t i = 0; i < m; i += 32, g++) {
        decode_nibbles(w->data + g * 16, csn_scale16(scales + 2 * g), buf + i);
    }
    return buf;
}

struct vbit { /* a csn_matrix, and where its rows lie */
    csn_matrix m;
    csn_vbit v;
    csn_vbit_at *at;
};

CSN_INLINE const void *decode_vbit(const csn_matrix *w, uint64_t r, uint64_t c, uint64_t m,
                                   float *buf) {
    const struct vbit *b = (const struct vbit *)(const void *)w; /* its first member */
    const csn_vbit_row row = csn_vbit_walk(&b->v, b->at, r);
    const unsigned bits = row.bits;
    const __m256i zero = _mm256_set1_epi32(csn_vbit_zero(bits));
    const uint8_t *p = row.p + c / 32 * 4 * bits;
    const uint8_t *scale = b->v.scales + 2 * (r * b->v.n_groups + c / 32);
    uint8_t room[VBIT_ROOM];
    for (uint64_t i = 0; i < m; i += 32, p += 4 * bits, scale += 2) {
        const uint8_t *safe = vbit_safe(w, p, 4 * bits, room);
        _Alignas(32) uint8_t code[32];
        const __m256 s = _mm256_set1_ps(csn_scale16(scale));
        _mm256_store_si256((void *)code, bits == 8 ? csn_load256(safe) : vbit_codes(safe, bits));
        CSN_UNROLL
        for (int k = 0; k < 4; k++) {
            __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(code + 8 * k)));
            v = _mm256_sub_epi32(v, zero);
            _mm256_store_ps(buf + i + 8 * k, _mm256_mul_ps(_mm256_cvtepi32_ps(v), s));
        }
    }
    return buf;
}

CSN_DEFINE_F32(any)
CSN_DEFINE_F32(f32)
CSN_DEFINE_F32(f16)
CSN_DEFINE_F32(bf16)
CSN_DEFINE_F32(q8_row)
CSN_DEFINE_F32(q8_2f)
CSN_DEFINE_F32(q4_block)
CSN_DEFINE_F32(q4_tiled)

void csn_matmul_f32_vbit_avx2(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                              float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (w->rows < VBIT_MIN_ROWS) {
        matmul(decode_any, w, x, x_stride, n, y, y_stride, r0, r1);
        return;
    }
    const csn_vbit v = csn_vbit_parts(w);
    csn_vbit_at at = csn_vbit_begin(&v, r0);
    const struct vbit m = {*w, v, &at};
    matmul(decode_vbit, &m.m, x, x_stride, n, y, y_stride, r0, r1);
}

void csn_matmul_f32_vbit_ro_avx2(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                                 float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    csn_matmul_f32_vbit_avx2(w, x, x_stride, n, y, y_stride, r0, r1);
}
