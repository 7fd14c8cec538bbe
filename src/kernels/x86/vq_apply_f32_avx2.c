/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of vector-quantised matrices by f32 tables (vq.h) for AVX2. One vector: the table of a
 * vector position is in L1 while all rows look their values up, which loads do faster than gathers.
 * Eight vectors: their tables are joined, one load for eight values. */
#include "kernels/x86/i8_avx2.h"

enum {
    FEW = 3,           /* vectors; from here on joining is faster */
    BATCH = 8,         /* vectors whose tables are joined */
    BATCH_ROWS = 1024, /* rows that meet a joined table */
    ROWS = 1024        /* rows that meet the table of one vector: 4 KiB of sums */
};

/* Adds what n_rows look up at one vector position, four at a time: some rows past the last too. The
 * load units limit this, so indices come as words. */
CSN_INLINE void add_rows(const uint8_t *p, const float *t, uint64_t stages, uint64_t n_rows,
                         float *acc) {
    for (uint64_t r = 0; r < n_rows; r += 4, p += 4 * stages) {
        uint32_t words[CSN_VQ_MAX_STAGES];
        memcpy(words, p, 4 * stages);
        float sum[4];
        CSN_UNROLL
        for (uint64_t i = 0; i < 4; i++) {
            sum[i] = t[(uint8_t)(words[i * stages / 4] >> i * stages % 4 * 8)];
            CSN_UNROLL
            for (uint64_t s = 1; s < stages; s++) {
                const uint64_t at = i * stages + s;
                sum[i] += t[256 * s + (uint8_t)(words[at / 4] >> at % 4 * 8)];
            }
        }
        CSN_UNROLL
        for (uint64_t i = 0; i < 4; i++) {
            acc[r + i] += sum[i];
        }
    }
}

CSN_OUTLINE void add_rows_3(const uint8_t *p, const float *t, uint64_t n_rows, float *acc) {
    add_rows(p, t, 3, n_rows, acc);
}

CSN_OUTLINE void add_rows_2(const uint8_t *p, const float *t, uint64_t n_rows, float *acc) {
    add_rows(p, t, 2, n_rows, acc);
}

static void add_rows_any(const uint8_t *p, const float *t, uint64_t stages, uint64_t n_rows,
                         float *acc) {
    if (stages == 3) {
        add_rows_3(p, t, n_rows, acc);
    } else if (stages == 2) {
        add_rows_2(p, t, n_rows, acc);
    } else {
        add_rows(p, t, stages, n_rows, acc);
    }
}

CSN_INLINE void apply_one(const csn_vq_matrix *m, uint64_t stages, const float *t, float *y,
                          uint64_t r0, uint64_t r1) {
    float acc[ROWS];
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    for (uint64_t first = r0; first < r1; first += ROWS) {
        const uint64_t n_rows = r1 - first < ROWS ? r1 - first : ROWS;
        memset(acc, 0, sizeof(acc));
        for (uint64_t v = 0; v < nv; v++) {
            for (uint64_t r = 0; r < n_rows; r += CSN_VQ_BLOCK) {
                const uint64_t n = n_rows - r < CSN_VQ_BLOCK ? n_rows - r : CSN_VQ_BLOCK;
                const uint8_t *p =
                    m->index + ((first + r) / CSN_VQ_BLOCK * nv + v) * CSN_VQ_BLOCK * stages;
                add_rows_any(p, t + v * stages * 256, stages, n, acc + r);
            }
        }
        for (uint64_t r = 0; r < n_rows; r++) {
            y[first + r] = csn_scale16(m->scale + 2 * (first + r)) * acc[r];
        }
    }
}

/* ---- many vectors ---- */

/* out [n][BATCH], n a multiple of 8 */
static void join(const float *const t[BATCH], uint64_t n, float *out) {
    for (uint64_t i = 0; i < n; i += 8, out += 8 * BATCH) {
        __m256 v[BATCH];
        CSN_UNROLL
        for (int k = 0; k < BATCH; k++) {
            v[k] = _mm256_load_ps(t[k] + i);
        }
        csn_lanes_of_rows(v);
        CSN_UNROLL
        for (int k = 0; k < BATCH; k++) {
            _mm256_store_ps(out + 8 * k, v[k]);
        }
    }
}

CSN_INLINE void add_joined(const uint8_t *p, const float *joined, uint64_t stages, uint64_t n_rows,
                           float (*acc)[BATCH]) {
    for (uint64_t r = 0; r < n_rows; r++, p += stages) {
        __m256 sum = _mm256_load_ps(joined + p[0] * BATCH);
        for (uint64_t s = 1; s < stages; s++) {
            sum = _mm256_add_ps(sum, _mm256_load_ps(joined + (256 * s + p[s]) * BATCH));
        }
        _mm256_store_ps(acc[r], _mm256_add_ps(_mm256_load_ps(acc[r]), sum));
    }
}

/* The first n of BATCH tables; the others are as good as any. */
CSN_INLINE void apply_batch(const csn_vq_matrix *m, uint64_t stages, const float *const t[BATCH],
                            uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t n_rows) {
    _Alignas(64) float joined[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES * BATCH];
    _Alignas(64) float acc[BATCH_ROWS][BATCH];
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    memset(acc, 0, n_rows * sizeof(acc[0]));
    for (uint64_t v = 0; v < nv; v++) {
        const float *at[BATCH];
        for (int k = 0; k < BATCH; k++) {
            at[k] = t[k] + v * stages * 256;
        }
        join(at, stages * 256, joined);
        for (uint64_t r = 0; r < n_rows; r += CSN_VQ_BLOCK) {
            const uint64_t in_block = n_rows - r < CSN_VQ_BLOCK ? n_rows - r : CSN_VQ_BLOCK;
            const uint8_t *p =
                m->index + ((r0 + r) / CSN_VQ_BLOCK * nv + v) * CSN_VQ_BLOCK * stages;
            add_joined(p, joined, stages, in_block, acc + r);
        }
    }
    for (uint64_t r = 0; r < n_rows; r++) {
        const float s = csn_scale16(m->scale + 2 * (r0 + r));
        for (uint64_t k = 0; k < n; k++) {
            y[k * y_stride + r0 + r] = s * acc[r][k];
        }
    }
}

CSN_INLINE void apply(const csn_vq_matrix *m, uint64_t stages, const void *const *tables,
                      uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (n < FEW) {
        for (uint64_t i = 0; i < n; i++) {
            apply_one(m, stages, tables[i], y + i * y_stride, r0, r1);
        }
        return;
    }
    const float *t[BATCH];
    for (uint64_t k = 0; k < BATCH; k++) {
        t[k] = tables[k < n ? k : 0];
    }
    for (uint64_t r = r0; r < r1; r += BATCH_ROWS) {
        apply_batch(m, stages, t, n, y, y_stride, r, r1 - r < BATCH_ROWS ? r1 - r : BATCH_ROWS);
    }
}

CSN_OUTLINE void apply_3(const csn_vq_matrix *m, const void *const *tables, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    apply(m, 3, tables, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void apply_2(const csn_vq_matrix *m, const void *const *tables, uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    apply(m, 2, tables, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void apply_stages(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                              float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    apply(m, m->books->stages, tables, n, y, y_stride, r0, r1);
}

void csn_vq_apply_f32_any_avx2(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                               float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (m->block != CSN_VQ_BLOCK || m->books->is_packed) {
        csn_vq_apply_f32_any_ref(m, tables, n, y, y_stride, r0, r1);
        return;
    }
    csn_vq_apply_fn fn = m->books->stages == 3   ? apply_3
                         : m->books->stages == 2 ? apply_2
                                                 : apply_stages;
    for (uint64_t i = 0; i < n; i += BATCH) {
        fn(m, tables + i, n - i < BATCH ? n - i : BATCH, y + i * y_stride, y_stride, r0, r1);
    }
}
