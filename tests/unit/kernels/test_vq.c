/* SPDX-License-Identifier: Apache-2.0 */
/* Products with vector-quantised matrices: against numpy (tests/oracle/vq_products.py), and every
 * kernel against the plain C, bit for bit: ragged rows and columns, row ranges, batches, indices at
 * the end of readable memory, values that overflow. Two NaN are equal. */
#include "../test.h"

#include <math.h>

#include "kernels/types.h"
#include "support/vq_golden.h"

static uint32_t seed = 1;

static uint32_t below(uint32_t n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

static float uniform(void) { /* in [-1, 1) */
    return (float)below(1 << 24) * 0x1p-23f - 1.0f;
}

/* Memory whose content does not show in the results. */
static void *dirty(uint64_t n) {
    void *p = aligned_alloc(64, (size_t)(n + 63) / 64 * 64);
    assert_non_null(p);
    return memset(p, 0xA5, (size_t)n);
}

static const csn_vq_kernel ref_f32 = {.table = csn_vq_table_f32_any_ref,
                                      .apply = csn_vq_apply_f32_any_ref};
static const csn_vq_kernel ref_i8 = {
    .is_int8 = true, .table = csn_vq_table_i8_any_ref, .apply = csn_vq_apply_i8_any_ref};

/* y [n][m->rows] from x [n][m->cols]: tables in parts of 32 positions or whole, rows [r0, r1). */
static void multiply(const csn_vq_kernel *k, const csn_vq_matrix *m, const float *x, uint32_t n,
                     bool in_parts, uint64_t r0, uint64_t r1, float *y) {
    enum { MOST = 64 };
    const void *tables[MOST];
    void *mine[MOST];
    const csn_vq_kernel size = csn_kernel_vq(m->books, k->is_int8);
    const uint64_t nv = m->cols / CSN_VQ_DIM;
    assert_true(n <= MOST);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t step = in_parts ? CSN_VQ_SPAN : nv;
        tables[i] = mine[i] = dirty(size.table_nbytes(m->books, m->cols));
        for (uint64_t v = 0; v < nv; v += step) {
            k->table(m->books, x + (size_t)i * m->cols, m->cols, v, nv - v < step ? nv : v + step,
                     mine[i]);
        }
    }
    k->apply(m, tables, n, y, m->rows, r0, r1);
    for (uint32_t i = 0; i < n; i++) {
        free(mine[i]);
    }
}

/* Without tables: the same bits, where there is such a kernel. */
static void multiply_directly(csn_vq_direct_fn direct, const csn_vq_matrix *m, const float *x,
                              uint32_t n, uint64_t r0, uint64_t r1, float *y) {
    enum { MOST = 64 };
    const float *vectors[MOST];
    assert_true(n <= MOST);
    for (uint32_t i = 0; i < n; i++) {
        vectors[i] = x + (size_t)i * m->cols;
    }
    direct(m, vectors, n, y, m->rows, r0, r1);
}

/* ---- against numpy ---- */

static void equals_numpy(void **state) {
    vq_golden g;
    vq_golden_open(*state, &g);
    g.m.books = &g.books;
    size_t bytes = (size_t)g.n * g.m.rows * sizeof(float);
    float *y = dirty(bytes);
    if (!g.books.is_packed) {
        multiply(&ref_f32, &g.m, g.x, g.n, true, 0, g.m.rows, y);
        assert_memory_equal(y, g.y[0], bytes);
        memset(y, 0xA5, bytes);
        multiply_directly(csn_vq_direct_f32_any_ref, &g.m, g.x, g.n, 0, g.m.rows, y);
        assert_memory_equal(y, g.y[0], bytes);
    }
    multiply(&ref_i8, &g.m, g.x, g.n, true, 0, g.m.rows, y);
    assert_memory_equal(y, g.y[1], bytes);
    csn_vq_kernel best = csn_kernel_vq(&g.books, false);
    assert_int_equal(best.is_int8, g.books.is_packed);
    multiply(&best, &g.m, g.x, g.n, false, 0, g.m.rows, y);
    assert_memory_equal(y, g.y[best.is_int8], bytes);
    if (best.direct != NULL) {
        memset(y, 0xA5, bytes);
        multiply_directly(best.direct, &g.m, g.x, g.n, 0, g.m.rows, y);
        assert_memory_equal(y, g.y[0], bytes);
    }
    free(y);
    vq_golden_close(&g);
}

/* ---- against the plain C ---- */

enum pattern { ORDINARY, ZEROS, LARGE, TINY, N_PATTERNS };

static float value(enum pattern pattern) {
    switch (pattern) {
    case ZEROS: return below(2) != 0 ? 0.0f : -0.0f;
    case LARGE: return below(3) != 0 ? uniform() : uniform() * 3e38f;
    case TINY: return uniform() * (below(2) != 0 ? 0x1p-90f : 0x1p-120f);
    default: return uniform();
    }
}

struct form {
    uint32_t stages, entries;
    bool is_packed;
};
static const struct form forms[] = {{3, 256, false}, {2, 256, false}, {4, 64, true},
                                    {4, 64, false},  {8, 13, false},  {1, 255, false}};

static void check(const struct form *form, uint32_t rows, uint32_t cols, uint32_t block, uint32_t n,
                  enum pattern pattern, bool is_int8) {
    vq_book_memory *memory = dirty(sizeof(vq_book_memory));
    for (uint32_t i = 0; i < form->stages * form->entries * CSN_VQ_DIM; i++) {
        memory->entry[i] = pattern == LARGE && below(100) == 0 ? uniform() * 65504.0f : uniform();
    }
    csn_vq_books b = vq_books(memory, form->stages, form->entries, form->is_packed);
    uint64_t n_index;
    assert_true(csn_vq_index_nbytes(&b, rows, cols, block, &n_index));
    uint8_t *index = malloc(n_index); /* to the byte, for sanitizers */
    uint8_t *scale = malloc(2 * (size_t)rows);
    float *x = dirty((uint64_t)n * cols * sizeof(float));
    float *y = dirty((uint64_t)n * rows * sizeof(float));
    float *want = dirty((uint64_t)n * rows * sizeof(float));
    assert_true(index != NULL && scale != NULL);
    for (uint64_t i = 0; i < n_index; i++) {
        index[i] = (uint8_t)below(256);
    }
    for (uint32_t i = 0; i < 2 * rows; i++) {
        scale[i] = (uint8_t)below(i % 2 == 0 ? 256 : 0x7C);
    }
    for (uint64_t i = 0; i < (uint64_t)n * cols; i++) {
        x[i] = value(pattern);
    }
    csn_vq_matrix m = {
        .books = &b, .index = index, .scale = scale, .rows = rows, .cols = cols, .block = block};
    uint64_t r0 = (uint64_t)below(rows / 64 + 1) * 64;
    r0 = below(2) != 0 || r0 >= rows ? 0 : r0;
    uint64_t r1 = below(2) != 0 ? rows : r0 + below((uint32_t)(rows - r0)) + 1;
    csn_vq_kernel best = csn_kernel_vq(&b, is_int8);
    multiply(best.is_int8 ? &ref_i8 : &ref_f32, &m, x, n, true, r0, r1, want);
    if (best.direct != NULL && below(2) != 0) {
        multiply_directly(best.direct, &m, x, n, r0, r1, y);
    } else {
        multiply(&best, &m, x, n, below(2) != 0, r0, r1, y);
    }
    for (uint64_t i = 0; i < (uint64_t)n * rows; i++) {
        if (memcmp(&y[i], &want[i], sizeof(float)) != 0 && !(isnan(y[i]) && isnan(want[i]))) {
            fail_msg("stages %u entries %u packed %d, %u x %u, block %u, n %u, pattern %d: output "
                     "%u is %a, ref %a",
                     form->stages, form->entries, form->is_packed, rows, cols, block, n,
                     (int)pattern, (unsigned)i, (double)y[i], (double)want[i]);
        }
    }
    free(memory);
    free(index);
    free(scale);
    free(x);
    free(y);
    free(want);
}

static void kernels_equal_ref(void **state) {
    static const uint32_t rows[] = {1, 3, 32, 63, 64, 65, 96, 127, 128, 200, 1100};
    static const uint32_t vectors[] = {1, 2, 3, 31, 32, 33, 63, 64, 65, 70};
    static const uint32_t batches[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33};
    const bool is_int8 = *state != NULL;
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
        for (int pass = 0; pass < 30; pass++) {
            uint32_t block = below(4) == 0 ? (below(2) != 0 ? 0 : 24) : CSN_VQ_BLOCK;
            check(&forms[f], rows[below(11)], vectors[below(10)] * CSN_VQ_DIM, block,
                  batches[below(12)], pass % 3 != 0 ? ORDINARY : (enum pattern)below(N_PATTERNS),
                  is_int8);
        }
    }
}

static void a_span_of_zeros_has_no_scale(void **state) {
    (void)state;
    vq_golden g;
    vq_golden_open("vq3r", &g);
    g.m.books = &g.books;
    float x[136] = {0};
    float y[72];
    x[0] = 0x1p-110f;
    for (int is_int8 = 0; is_int8 < 2; is_int8++) {
        csn_vq_kernel k = csn_kernel_vq(&g.books, is_int8 != 0);
        memset(y, 0xA5, sizeof(y));
        multiply(&k, &g.m, x, 1, false, 0, 72, y);
        for (int r = 0; r < 72; r++) {
            assert_true(is_int8 != 0 ? y[r] == 0 : fabsf(y[r]) < 0x1p-100f);
        }
    }
    vq_golden_close(&g);
}

/* Of a vector with an infinity or a NaN no product is a number. */
static void what_is_no_number_stays_so(void **state) {
    (void)state;
    static const char *const names[] = {"vq3r", "vq4p"};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 2; i++) {
        vq_golden g;
        vq_golden_open(names[i], &g);
        g.m.books = &g.books;
        float *x = dirty(g.m.cols * sizeof(float));
        float *y = dirty(g.m.rows * sizeof(float));
        const csn_vq_kernel fast = csn_kernel_vq(&g.books, true);
        for (uint32_t at = 0; at < g.m.cols; at++) {
            for (uint32_t c = 0; c < g.m.cols; c++) {
                x[c] = uniform();
            }
            x[at] = bad[at % 3];
            multiply(at % 2 == 0 ? &fast : &ref_i8, &g.m, x, 1, false, 0, g.m.rows, y);
            for (uint32_t r = 0; r < g.m.rows; r++) {
                assert_true(isnan(y[r]));
            }
        }
        free(x);
        free(y);
        vq_golden_close(&g);
    }
}

#define NUMPY(name)                                                                                \
    { name " equals numpy", equals_numpy, NULL, NULL, (void *)(uintptr_t)name }

int main(void) {
    const struct CMUnitTest tests[] = {
        NUMPY("vq3r"),
        NUMPY("vq2r"),
        NUMPY("vq4p"),
        NUMPY("vq6_rows"),
        {"f32 tables: kernels equal ref", kernels_equal_ref, NULL, NULL, NULL},
        {"int8 tables: kernels equal ref", kernels_equal_ref, NULL, NULL, &seed},
        cmocka_unit_test(a_span_of_zeros_has_no_scale),
        cmocka_unit_test(what_is_no_number_stays_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
