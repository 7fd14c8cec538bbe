/* SPDX-License-Identifier: Apache-2.0 */
/* Rows and columns that are cut out decode to the values that they had. */
#include "unit/test.h"

#include <stdlib.h>

#include "quant/cut.h"

enum { ROWS = 20, COLS = 320, N = ROWS * COLS };

static float x[N];
static float whole[N];
static float part[N];
static const uint32_t some_rows[] = {0, 1, 7, 19};
static const csn_span some_cols[] = {{32, 64}, {96, 256}, {288, 320}};
enum { N_ROWS = sizeof(some_rows) / sizeof(some_rows[0]) };
enum { N_COLS = sizeof(some_cols) / sizeof(some_cols[0]) };

static csn_matrix encode(const char *dtype, csn_buf *bytes) {
    static const csn_shape shape = {2, {ROWS, COLS}};
    caisson_error err;
    uint32_t seed = 5;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(int32_t)seed * 0x1p-31f * (float)(1 + i % COLS);
    }
    const csn_dtype *d = csn_dtype_by_name(csn_str_from(dtype));
    ASSERT_OK(d->encode(x, &shape, &(csn_encode_options){0}, NULL, bytes, &err), &err);
    csn_matrix m = csn_matrix_make(d, &shape, bytes->ptr, bytes->len);
    d->decode(&m, 0, N, whole);
    return m;
}

static void check(const csn_matrix *m, const csn_cut *cut) {
    csn_matrix shape = csn_cut_shape(m, cut);
    uint8_t *out = malloc((size_t)shape.nbytes); /* exactly: the sanitizer sees a byte too many */
    assert_non_null(out);
    csn_matrix r = csn_cut_make(m, cut, out);
    assert_int_equal(r.nbytes, shape.nbytes);
    r.dtype->decode(&r, 0, r.rows * r.cols, part);
    const float *at = part;
    for (uint64_t i = 0; i < r.rows; i++) {
        const float *row = whole + (cut->rows != NULL ? cut->rows[i] : i) * COLS;
        for (uint64_t k = 0; k < (cut->cols != NULL ? cut->n_cols : 1); k++) {
            csn_span span = cut->cols != NULL ? cut->cols[k] : (csn_span){0, COLS};
            size_t n = (size_t)(span.end - span.first);
            assert_memory_equal(at, row + span.first, n * sizeof(float));
            at += n;
        }
    }
    assert_true(at == part + r.rows * r.cols);
    free(out);
}

static void what_is_cut_decodes_as_before(void **state) {
    static const char *const dtypes[] = {"q8_row", "q8_2f", "q4_block", "q4_tiled"};
    (void)state;
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        csn_buf bytes = CSN_BUF_INIT(1 << 20);
        csn_matrix m = encode(dtypes[i], &bytes);
        assert_true(csn_can_cut(&m));
        csn_cut all = {0};
        assert_int_equal(csn_cut_shape(&m, &all).nbytes, m.nbytes);
        check(&m, &all);
        check(&m, &(csn_cut){.rows = some_rows, .n_rows = N_ROWS});
        check(&m, &(csn_cut){.cols = some_cols, .n_cols = N_COLS});
        check(&m, &(csn_cut){some_rows, some_cols, N_ROWS, N_COLS});
        csn_buf_free(&bytes);
    }
}

static void other_layouts_are_not_cut(void **state) {
    (void)state;
    csn_buf bytes = CSN_BUF_INIT(1 << 20);
    csn_matrix m = encode("q4tp", &bytes);
    assert_false(csn_can_cut(&m));
    csn_buf_free(&bytes);
    m = (csn_matrix){.dtype = csn_dtype_by_name(CSN_STR("q8_row")), .rows = 2, .cols = 40};
    assert_false(csn_can_cut(&m));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_cut_decodes_as_before),
        cmocka_unit_test(other_layouts_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
