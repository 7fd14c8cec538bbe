/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of vector-quantised matrices by f32 tables (vq.h) for AVX2. One vector: the table of a
 * vector position is in L1 while all rows look their values up, which single loads do faster than
 * gathers. Eight vectors: their tables are joined, one load for eight values; without tables the
 * joined one is made from the vectors. */
#include "kernels/x86/i8_avx2.h"

enum {
    FEW = 3,           /* vectors; from here on joining is faster */
    BATCH = 8,         /* vectors whose tables are joined */
    BATCH_ROWS = 4096, /* rows that meet a joined table: 128 KiB of sums */
    ROWS = 1024        /* rows that meet the table of one vector: 4 KiB of sums */
};

/* Byte k of a word: what GCC 12 makes of shifts is three instructions, and it extends what 32 bits
 * give once more. */
CSN_INLINE uint64_t byte_of(uint32_t word, unsigned k) {
    return k == 0 ? (uint8_t)word : k == 3 ? word >> 24 : _bextr_u64(word, 8 * k, 8);
}

/* Value i of v from memory. As an intrinsic GCC 12 loads it first. */
#define INSERT_PS(v, i, at) __asm__("vinsertps %2, %1, %0, %0" : "+x"(v) : "m"(at), "i"((i) << 4))

/* What four rows look up in the table of one stage. The load units limit this, so indices come as
 * words. */
CSN_INLINE __m128 look_up(const uint32_t *words, const float *t, uint64_t stages, uint64_t stage) {
    uint64_t i[4];
    CSN_UNROLL
    for (uint64_t k = 0; k < 4; k++) {
        const uint64_t at = k * stages + stage;
        i[k] = byte_of(words[at / 4], at % 4);
    }
    __m128 v = _mm_load_ss(t + i[0]);
    INSERT_PS(v, 1, t[i[1]]);
    INSERT_PS(v, 2, t[i[2]]);
    INSERT_PS(v, 3, t[i[3]]);
    return v;
}

/* Adds what n_rows look up at one vector position, four at a time: some rows past the last too. */
CSN_INLINE void add_rows(const uint8_t *p, const float *t, uint64_t stages, uint64_t n_rows,
                         float *acc) {
    for (uint64_t r = 0; r < n_rows; r += 4, p += 4 * stages) {
        uint32_t words[CSN_VQ_MAX_STAGES] = {0};
        CSN_UNROLL
        for (uint64_t k = 0; k < stages; k++) {
            words[k] = (uint32_t)csn_load32(p + 4 * k);
        }
        __m128 sum = look_up(words, t, stages, 0);
        CSN_UNROLL
        for (uint64_t s = 1; s < stages; s++) {
            sum = _mm_add_ps(sum, look_up(words, t + 256 * s, stages, s));
        }
        _mm_store_ps(acc + r, _mm_add_ps(_mm_load_ps(acc + r), sum));
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

/* A vector: its table, or else itself. */
typedef struct input {
    const float *table, *x;
} input;

/* The table of position v; room [stages][256], aligned to 64. */
CSN_INLINE const float *table_at(const csn_vq_books *b, uint64_t stages, const input *in,
                                 uint64_t v, float *room) {
    if (in->table != NULL) {
        return in->table + v * stages * 256;
    }
    csn_vq_table_f32_any_avx2(b, in->x + v * CSN_VQ_DIM, CSN_VQ_DIM, 0, 1, room);
    return room;
}

CSN_INLINE void apply_one(const csn_vq_matrix *m, uint64_t stages, const input *in, float *y,
                          uint64_t r0, uint64_t r1) {
    _Alignas(64) float room[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES];
    _Alignas(64) float acc[ROWS];
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    for (uint64_t first = r0; first < r1; first += ROWS) {
        const uint64_t n_rows = r1 - first < ROWS ? r1 - first : ROWS;
        memset(acc, 0, sizeof(acc));
        for (uint64_t v = 0; v < nv; v++) {
            const float *t = table_at(m->books, stages, in, v, room);
            for (uint64_t r = 0; r < n_rows; r += CSN_VQ_BLOCK) {
                const uint64_t n = n_rows - r < CSN_VQ_BLOCK ? n_rows - r : CSN_VQ_BLOCK;
                const uint8_t *p =
                    m->index + ((first + r) / CSN_VQ_BLOCK * nv + v) * CSN_VQ_BLOCK * stages;
                /* blocks are too far apart for the CPU to guess that each goes on */
                for (uint64_t i = 0; i < CSN_VQ_BLOCK * stages; i += 64) {
                    csn_prefetch(p, 2 * CSN_VQ_BLOCK * stages + i);
                }
                /* nor does it follow the next table, of which these rows ask for their share */
                const uint64_t share = in->table != NULL ? stages * 256 / (ROWS / CSN_VQ_BLOCK) : 0;
                for (uint64_t i = 0; i < share; i += 16) {
                    csn_prefetch(t + stages * 256 + r / CSN_VQ_BLOCK * share + i, 0);
                }
                add_rows_any(p, t, stages, n, acc + r);
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

/* Products of n entries with a position of BATCH vectors, x [dim][BATCH]: out [n][BATCH]. */
CSN_INLINE void join_products(const float *entry, const __m256 x[CSN_VQ_DIM], uint64_t n,
                              float *out) {
    CSN_UNROLL
    for (uint64_t c = 0; c < n; c++) {
        __m256 acc = _mm256_mul_ps(_mm256_broadcast_ss(entry + c * CSN_VQ_DIM), x[0]);
        CSN_UNROLL
        for (uint64_t d = 1; d < CSN_VQ_DIM; d++) {
            acc = _mm256_fmadd_ps(_mm256_broadcast_ss(entry + c * CSN_VQ_DIM + d), x[d], acc);
        }
        _mm256_store_ps(out + c * BATCH, acc);
    }
}

/* What join would make of the tables of position v. */
static void join_direct(const csn_vq_books *b, const input in[BATCH], uint64_t v, float *out) {
    enum { AT_ONCE = 4 }; /* entries: hides the latency of eight fused steps */
    const uint64_t entries = b->entries;
    __m256 x[BATCH];
    CSN_UNROLL
    for (int k = 0; k < BATCH; k++) {
        x[k] = _mm256_loadu_ps(in[k].x + v * CSN_VQ_DIM);
    }
    csn_lanes_of_rows(x);
    for (uint64_t s = 0; s < b->stages; s++, out += 256 * BATCH) {
        const float *entry = b->entry + s * entries * CSN_VQ_DIM;
        uint64_t c = 0;
        for (; c + AT_ONCE <= entries; c += AT_ONCE) {
            join_products(entry + c * CSN_VQ_DIM, x, AT_ONCE, out + c * BATCH);
        }
        for (; c < entries; c++) {
            join_products(entry + c * CSN_VQ_DIM, x, 1, out + c * BATCH);
        }
        memset(out + c * BATCH, 0, (256 - c) * BATCH * sizeof(float));
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

/* The first n of BATCH vectors; the others are as good as any. */
CSN_INLINE void apply_batch(const csn_vq_matrix *m, uint64_t stages, const input in[BATCH],
                            uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t n_rows) {
    _Alignas(64) float joined[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES * BATCH];
    _Alignas(64) float acc[BATCH_ROWS][BATCH];
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    memset(acc, 0, n_rows * sizeof(acc[0]));
    for (uint64_t v = 0; v < nv; v++) {
        if (in[0].table == NULL) {
            join_direct(m->books, in, v, joined);
        } else {
            const float *at[BATCH];
            for (int k = 0; k < BATCH; k++) {
                at[k] = in[k].table + v * stages * 256;
            }
            join(at, stages * 256, joined);
        }
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

CSN_INLINE void apply(const csn_vq_matrix *m, uint64_t stages, const input in[BATCH], uint64_t n,
                      float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (n < FEW) {
        for (uint64_t i = 0; i < n; i++) {
            apply_one(m, stages, &in[i], y + i * y_stride, r0, r1);
        }
        return;
    }
    for (uint64_t r = r0; r < r1; r += BATCH_ROWS) {
        apply_batch(m, stages, in, n, y, y_stride, r, r1 - r < BATCH_ROWS ? r1 - r : BATCH_ROWS);
    }
}

CSN_OUTLINE void apply_3(const csn_vq_matrix *m, const input in[BATCH], uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    apply(m, 3, in, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void apply_2(const csn_vq_matrix *m, const input in[BATCH], uint64_t n, float *y,
                         uint64_t y_stride, uint64_t r0, uint64_t r1) {
    apply(m, 2, in, n, y, y_stride, r0, r1);
}

CSN_OUTLINE void apply_stages(const csn_vq_matrix *m, const input in[BATCH], uint64_t n, float *y,
                              uint64_t y_stride, uint64_t r0, uint64_t r1) {
    apply(m, m->books->stages, in, n, y, y_stride, r0, r1);
}

static bool fits(const csn_vq_matrix *m) {
    return m->block == CSN_VQ_BLOCK && !m->books->is_packed;
}

/* Vectors by their tables, or, where those are NULL, by themselves. */
static void apply_all(const csn_vq_matrix *m, const void *const *tables, const float *const *x,
                      uint64_t n, float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    for (uint64_t i = 0; i < n; i += BATCH) {
        const uint64_t n_batch = n - i < BATCH ? n - i : BATCH;
        input in[BATCH];
        for (uint64_t k = 0; k < BATCH; k++) {
            const uint64_t at = i + (k < n_batch ? k : 0);
            in[k] = (input){tables != NULL ? tables[at] : NULL, x != NULL ? x[at] : NULL};
        }
        if (m->books->stages == 3) {
            apply_3(m, in, n_batch, y + i * y_stride, y_stride, r0, r1);
        } else if (m->books->stages == 2) {
            apply_2(m, in, n_batch, y + i * y_stride, y_stride, r0, r1);
        } else {
            apply_stages(m, in, n_batch, y + i * y_stride, y_stride, r0, r1);
        }
    }
}

void csn_vq_apply_f32_any_avx2(const csn_vq_matrix *m, const void *const *tables, uint64_t n,
                               float *y, uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (fits(m)) {
        apply_all(m, tables, NULL, n, y, y_stride, r0, r1);
    } else {
        csn_vq_apply_f32_any_ref(m, tables, n, y, y_stride, r0, r1);
    }
}

void csn_vq_direct_f32_any_avx2(const csn_vq_matrix *m, const float *const *x, uint64_t n, float *y,
                                uint64_t y_stride, uint64_t r0, uint64_t r1) {
    if (fits(m)) {
        apply_all(m, NULL, x, n, y, y_stride, r0, r1);
    } else {
        csn_vq_direct_f32_any_ref(m, x, n, y, y_stride, r0, r1);
    }
}
