/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder of vector-quantised matrices: its error against that of the format's own method
 * (tests/oracle/vq_encode.py), what its bytes decode to, and that threads change nothing. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"
#include "convert/vq_encode.h"
#include "quant/half.h"

enum { ROWS = 128, COLS = 256, N = ROWS * COLS, MOST = 300000 };

typedef struct coded {
    uint16_t books[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM];
    uint8_t index[N], scale[2 * ROWS];
    csn_vq_error error;
} coded;

static void make_weights(float *x, uint32_t rows) {
    uint32_t s = 1;
    for (uint32_t i = 0; i < rows * COLS; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            s = s * 1664525 + 1013904223;
            sum += (s >> 8) / 0x1p24 - 0.5;
        }
        x[i] = (float)(sum * (1 + i / COLS % 7) / 64);
    }
}

static void encode(const float *x, uint32_t rows, const csn_warp_coding *coding, unsigned n_threads,
                   coded *ret) {
    caisson_error err;
    csn_pool *pool;
    float *sample;
    uint32_t n;
    csn_random r = csn_random_seed(1, CSN_STR("test"), 0, 0);
    csn_vq_encoder *e = calloc(1, sizeof(*e));
    assert_non_null(e);
    ASSERT_OK(csn_pool_new(n_threads, &pool, &err), &err);
    ASSERT_OK(CSN_NEW(N, &sample, &err), &err);
    ASSERT_OK(csn_vq_sample(x, rows, COLS, &r, N / CSN_VQ_DIM, sample, &n, &err), &err);
    assert_int_equal(n, rows * COLS / CSN_VQ_DIM);
    ASSERT_OK(csn_vq_train(sample, n, coding, &r, pool, ret->books, &err), &err);
    csn_vq_encoder_init(e, coding, ret->books);
    ASSERT_OK(csn_vq_encode(e, x, rows, COLS, pool, ret->index, ret->scale, &ret->error, &err),
              &err);
    csn_free(sample);
    csn_pool_free(pool);
    free(e);
}

static double error_of(const coded *c) {
    return sqrt(c->error.lost / c->error.whole);
}

/* What a reader makes of the bytes. */
static double decoded_error(const float *x, uint32_t rows, const csn_warp_coding *coding,
                            const coded *c) {
    static float entry[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM];
    float row[COLS];
    double lost = 0, whole = 0;
    for (uint32_t i = 0; i < coding->stages * coding->entries * CSN_VQ_DIM; i++) {
        entry[i] = csn_half_to_f32(c->books[i]);
    }
    csn_vq_books books = {.stages = coding->stages,
                          .entries = coding->entries,
                          .is_packed = coding->is_packed,
                          .entry = entry};
    csn_vq_matrix m = {&books, c->index, c->scale, rows, COLS, CSN_VQ_BLOCK};
    for (uint32_t r = 0; r < rows; r++) {
        csn_vq_decode_row(&m, r, row);
        for (uint32_t i = 0; i < COLS; i++) {
            double w = (double)x[r * COLS + i], d = (double)row[i] - w;
            lost += d * d;
            whole += w * w;
        }
    }
    return sqrt(lost / whole);
}

static csn_json *read_golden(void) {
    csn_buf text;
    csn_json *doc;
    caisson_error err;
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), CSN_SOURCE_DIR "/tests/golden/convert/vq_errors.json",
                              1 << 16, &text, &err),
              &err);
    ASSERT_OK(csn_json_parse(csn_buf_view(&text), 0, &doc, &err), &err);
    csn_buf_free(&text);
    return doc;
}

static void the_error_is_not_larger_than_that_of_the_formats_method(void **state) {
    (void)state;
    static float x[N];
    static coded c;
    csn_json *golden = read_golden();
    make_weights(x, ROWS);
    for (const csn_warp_coding *k = csn_warp_codings; k->name != NULL; k++) {
        double median = 0;
        csn_jiter it = csn_jval_iter(csn_jval_get(csn_json_root(golden), k->name));
        for (int i = 0; i < 3; i++) { /* the median of five seeds */
            assert_true(csn_jiter_next(&it));
        }
        assert_true(csn_jval_f64(it.value, &median));
        encode(x, ROWS, k, 2, &c);
        if (error_of(&c) > median) {
            fail_msg("%s: %.6f, the format's method %.6f", k->name, error_of(&c), median);
        }
        assert_true(error_of(&c) > 0.8 * median);
    }
    csn_json_free(golden);
}

static void the_bytes_decode_to_the_error_that_is_told(void **state) {
    (void)state;
    static float x[N];
    static coded c;
    for (uint32_t rows = 72; rows <= ROWS; rows += ROWS - 72) {
        make_weights(x, rows);
        for (const csn_warp_coding *k = csn_warp_codings; k->name != NULL; k++) {
            memset(c.index, 0xff, sizeof(c.index));
            encode(x, rows, k, 1, &c);
            assert_true(fabs(decoded_error(x, rows, k, &c) - error_of(&c)) < 1e-5);
        }
    }
}

static void threads_change_nothing(void **state) {
    (void)state;
    static float x[N];
    static coded one, three;
    make_weights(x, ROWS);
    for (const csn_warp_coding *k = csn_warp_codings; k->name != NULL; k++) {
        encode(x, ROWS, k, 1, &one);
        encode(x, ROWS, k, 3, &three);
        assert_memory_equal(&one, &three, sizeof(one));
    }
}

static void rows_of_zeros_and_tiny_rows_decode_to_what_they_are(void **state) {
    (void)state;
    static float x[N];
    static coded c;
    make_weights(x, ROWS);
    for (uint32_t i = 0; i < COLS; i++) {
        x[3 * COLS + i] = 0;
        x[4 * COLS + i] = 1e-12f;
    }
    encode(x, ROWS, &csn_warp_codings[0], 1, &c);
    assert_true(decoded_error(x, ROWS, &csn_warp_codings[0], &c) < 0.3);
    assert_true((c.scale[6] | c.scale[7] << 8) < 2 && (c.scale[8] | c.scale[9] << 8) < 2);
}

static void a_weight_beyond_binary16_is_refused(void **state) {
    (void)state;
    static float x[N];
    static coded c;
    caisson_error err;
    csn_vq_encoder *e = calloc(1, sizeof(*e));
    assert_non_null(e);
    make_weights(x, ROWS);
    encode(x, ROWS, &csn_warp_codings[0], 1, &c);
    csn_vq_encoder_init(e, &csn_warp_codings[0], c.books);
    x[5] = 70000;
    ASSERT_STATUS(csn_vq_encode(e, x, ROWS, COLS, NULL, c.index, c.scale, &c.error, &err),
                  CAISSON_E_BOUNDS);
    free(e);
}

static void codebooks_hold_no_subnormals(void **state) {
    (void)state;
    assert_int_equal(csn_warp_book_half(0x1p-14f), 0x0400);
    assert_int_equal(csn_warp_book_half(0x1.8p-15f), 0x0400);
    assert_int_equal(csn_warp_book_half(-0x1.8p-15f), 0x8400);
    assert_int_equal(csn_warp_book_half(0x1p-15f), 0);
    assert_int_equal(csn_warp_book_half(-0x1p-16f), 0x8000);
    assert_int_equal(csn_warp_book_half(1.0f), 0x3c00);
}

static void a_sample_holds_each_vector_once(void **state) {
    (void)state;
    static float x[N], out[N];
    caisson_error err;
    uint32_t n;
    csn_random r = csn_random_seed(2, CSN_STR("test"), 0, 0);
    for (uint32_t i = 0; i < N; i++) { /* a row's largest is its last vector's */
        x[i] = (float)(1 + i % COLS / CSN_VQ_DIM);
    }
    ASSERT_OK(csn_vq_sample(x, 1, COLS, &r, 100, out, &n, &err), &err);
    assert_int_equal(n, COLS / CSN_VQ_DIM);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < n; i++) {
        seen |= UINT64_C(1) << (int)lrintf(out[i * CSN_VQ_DIM] * (float)n);
    }
    assert_true(seen == ((UINT64_C(1) << n) - 1) << 1);
    ASSERT_OK(csn_vq_sample(x, ROWS, COLS, &r, 100, out, &n, &err), &err);
    assert_int_equal(n, 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_error_is_not_larger_than_that_of_the_formats_method),
        cmocka_unit_test(the_bytes_decode_to_the_error_that_is_told),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(rows_of_zeros_and_tiny_rows_decode_to_what_they_are),
        cmocka_unit_test(a_weight_beyond_binary16_is_refused),
        cmocka_unit_test(codebooks_hold_no_subnormals),
        cmocka_unit_test(a_sample_holds_each_vector_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
