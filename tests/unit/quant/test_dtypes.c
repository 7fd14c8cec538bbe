/* SPDX-License-Identifier: Apache-2.0 */
/* The table itself, the worked examples of the facts, and what encoders do with awkward input. */
#include "unit/test.h"

#include <math.h>

#include "quant/quant_internal.h"
#include "support/golden_codec.h"

static void names_and_ids_find_their_row(void **state) {
    (void)state;
    static const char *const names[17] = {"f32", "f16",    "bf16", "q8_row", "q4_block", "mix8_4",
                                          "u8",  "q4_col", "vbit", "q8_2f",  "vbit_ro",  "q4_tiled",
                                          "q1",  "q1s",    "q1t",  "q4tp",   "q2tp"};
    for (unsigned id = 0; id < 17; id++) {
        const csn_dtype *d = csn_dtype_by_cmf(id);
        assert_non_null(d);
        assert_string_equal(d->name, names[id]);
        assert_ptr_equal(csn_dtype_by_name(csn_str_from(names[id])), d);
        assert_int_equal(d->is_reserved, id == 5 || id == 7);
        assert_true((d->decode == NULL) == (d->encode == NULL) || d->encode == NULL);
    }
    assert_null(csn_dtype_by_cmf(17));
    assert_null(csn_dtype_by_cmf(255));
    assert_null(csn_dtype_by_cmf(UINT32_MAX)); /* CSN_NO_ID is not an id */
    assert_null(csn_dtype_by_gguf(UINT32_MAX));
    assert_string_equal(csn_dtype_by_name(CSN_STR("q8"))->name, "q8_row");
    assert_string_equal(csn_dtype_by_name(CSN_STR("q8f"))->name, "q8_2f");
    assert_string_equal(csn_dtype_by_name(CSN_STR("q4"))->name, "q4_block");
    assert_string_equal(csn_dtype_by_name(CSN_STR("Q4T"))->name, "q4_tiled");
    assert_null(csn_dtype_by_name(CSN_STR("q8_ro")));
    assert_null(csn_dtype_by_name(CSN_STR("")));
    assert_string_equal(csn_dtype_by_gguf(0)->name, "f32");
    assert_string_equal(csn_dtype_by_gguf(1)->name, "f16");
    assert_string_equal(csn_dtype_by_gguf(30)->name, "bf16");
    assert_string_equal(csn_dtype_by_safetensors(CSN_STR("BF16"))->name, "bf16");
    assert_null(csn_dtype_by_safetensors(CSN_STR("bf16")));
}

static void no_two_rows_share_an_id_or_name(void **state) {
    (void)state;
    for (size_t i = 0; csn_dtypes[i] != NULL; i++) {
        const csn_dtype *a = csn_dtypes[i];
        assert_true(a->group >= 1);
        for (size_t j = 0; j < i; j++) {
            const csn_dtype *b = csn_dtypes[j];
            assert_string_not_equal(a->name, b->name);
            assert_true(a->cmf_id == CSN_NO_ID || a->cmf_id != b->cmf_id);
            assert_true(a->gguf_id == CSN_NO_ID || a->gguf_id != b->gguf_id);
            assert_true(a->safetensors == NULL || b->safetensors == NULL ||
                        strcmp(a->safetensors, b->safetensors) != 0);
        }
    }
}

static void shapes_are_counted_and_shown(void **state) {
    (void)state;
    char text[64];
    uint64_t n = 7;
    csn_shape s = {.n_dims = 3, .dim = {2, 3, 4}};
    assert_true(csn_shape_count(&s, &n) && n == 24);
    assert_string_equal(csn_shape_text(&s, text, sizeof(text)), "[2, 3, 4]");
    assert_string_equal(csn_shape_text(&s, text, 5), "[2, ");
    csn_matrix m = csn_matrix_make(&csn_dtype_f32, &s, NULL, 96);
    assert_true(m.rows == 2 && m.cols == 12);
    s = (csn_shape){.n_dims = 0};
    assert_true(csn_shape_count(&s, &n) && n == 1);
    assert_string_equal(csn_shape_text(&s, text, sizeof(text)), "[]");
    m = csn_matrix_make(&csn_dtype_f32, &s, NULL, 4);
    assert_true(m.rows == 1 && m.cols == 1);
    s = (csn_shape){.n_dims = 1, .dim = {5}};
    m = csn_matrix_make(&csn_dtype_f32, &s, NULL, 20);
    assert_true(m.rows == 5 && m.cols == 1);
    s = (csn_shape){.n_dims = 3, .dim = {0, UINT64_MAX, 2}};
    m = csn_matrix_make(&csn_dtype_f32, &s, NULL, 0);
    assert_true(m.rows == 0 && m.cols == 0);
    s = (csn_shape){.n_dims = 2, .dim = {UINT64_C(1) << 33, UINT64_C(1) << 31}};
    assert_false(csn_shape_count(&s, &n));
}

struct example {
    const char *dtype;
    uint32_t rows, cols; /* cols 0: one dimension */
    const float *x;
    const char *hex;
};

/* Facts 4.2 to 4.7 and 4.11, worked by the reference. */
static void worked_examples(void **state) {
    (void)state;
    static const float q8_row[] = {1, -2, 3, 0.5f, 0, 0, 0, 0};
    static const float ties[] = {127, 2.5f, 3.5f, -2.5f};
    static const float q4a[] = {7, -7, 1, 0.25f};
    static const float q4b[] = {0.1f, -0.2f, 0.3f, -0.35f, 0.05f, 0};
    static const float two[] = {1, 10, -2, 20};
    static const float three[] = {0, 3, 0, -4};
    static float ramp[32];
    static float q4tp_a[64];
    static const float zeros[32];
    static float loud[96] = {[0] = 8, [32] = 1, [64] = 0.125f};
    static float quiet[64] = {1};
    for (int i = 0; i < 32; i++) {
        quiet[i] = i == 0 ? 1 : 0.5f;
        quiet[32 + i] = 0.125f;
        ramp[i] = (float)(i - 16);
        q4tp_a[i] = i == 0 ? 7 : 1;
        q4tp_a[32 + i] = i == 0 ? 3.5f : -0.5f;
    }
#define X4 "88888888"
#define F8 "7f7f7f7f7f7f7f7f"
#define S5 "7777777777"
    const struct example list[] = {
        {"q8_row", 2, 4, q8_row,
         "2aab7f1500000000"
         "0c260004"},
        {"q8_row", 1, 4, ties, "7f0204fe003c"},
        {"q4_block", 4, 0, q4a,
         "1f89" X4 X4 X4 "8888"
         "003c"},
        {"q4_block", 6, 0, q4b,
         "4a1e89" X4 X4 X4 "88"
         "662a"},
        {"q4_tiled", 1, 32, ramp, "924011223344546576878899aabbccdcedfe"},
        {"q8_2f", 2, 2, two, "7f7f817f1a1d1a21533ee84b"},
        {"q8_2f", 2, 2, three, "007f0081d81e902000041243"},
        {"q4tp", 1, 64, q4tp_a,
         "9f999999999999999999999999999999"
         "7f777777777777777777777777777777"
         "00bc2228"
         "1f00"},
        {"q4tp", 1, 32, zeros,
         X4 X4 X4 X4 "00cb0100"
                     "00"},
        {"vbit", 3, 32, loud,
         "080403"
         "082c92305529"
         "fe" F8 F8 F8 "7f7f7f7f7f7f7f"
         "e7" S5 S5 S5 "cdb6db6db6db6db6db6db6db"},
        {"vbit_ro", 2, 32, quiet,
         "0603"
         "21285529"
         "000000001800000024000000"
         "fafbefbefbefbefbefbefbefbefbefbefbefbefbefbefbef"
         "db6db6db6db6db6db6db6db6"},
    };
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        const csn_dtype *d = csn_dtype_by_name(csn_str_from(list[i].dtype));
        csn_shape s = {.n_dims = list[i].cols != 0 ? 2 : 1, .dim = {list[i].rows, list[i].cols}};
        const csn_encode_options o = {.encoder = CSN_ENCODER_REFERENCE};
        csn_buf out = CSN_BUF_INIT(128);
        char hex[257];
        caisson_error err;
        ASSERT_OK(d->encode(list[i].x, &s, &o, NULL, &out, &err), &err);
        for (size_t k = 0; k < out.len; k++) {
            snprintf(hex + 2 * k, 3, "%02x", (uint8_t)out.ptr[k]);
        }
        assert_string_equal(hex, list[i].hex);
        csn_buf_free(&out);
    }
}

static float noise(uint32_t *x) {
    *x = *x * 1664525u + 1013904223u;
    return ((float)(*x >> 8) / 8388608.0f - 1.0f) * 0.3f;
}

/* One encoder: the bytes of 1, 2 and 7 threads, and the largest error. */
static void encode_split(const csn_dtype *d, const csn_shape *s, const float *x, uint64_t count,
                         csn_encoder encoder, float most) {
    const csn_encode_options o = {.encoder = encoder};
    csn_buf a = CSN_BUF_INIT(1 << 24);
    csn_buf b = CSN_BUF_INIT(1 << 24);
    caisson_error err;
    float *y = malloc(count * sizeof(float));
    assert_non_null(y);
    ASSERT_OK(d->encode(x, s, &o, NULL, &a, &err), &err);
    for (unsigned t = 2; t < 8; t += 5) {
        csn_pool *pool = NULL;
        ASSERT_OK(csn_pool_new(t, &pool, &err), &err);
        ASSERT_OK(d->encode(x, s, &o, pool, &b, &err), &err);
        assert_int_equal(a.len, b.len);
        assert_memory_equal(a.ptr, b.ptr, a.len);
        memset(b.ptr, 0xcc, b.len);
        csn_pool_free(pool);
    }
    csn_matrix m = csn_matrix_make(d, s, a.ptr, a.len);
    d->decode(&m, 0, count, y);
    for (uint64_t k = 0; k < count; k++) {
        if (!(fabsf(x[k] - y[k]) <= most)) {
            fail_msg("%s: element %d is %g, was %g", d->name, (int)k, (double)y[k], (double)x[k]);
        }
    }
    csn_buf_free(&a);
    csn_buf_free(&b);
    free(y);
}

/* Bytes do not depend on the number of threads, at a size where all of them get work. The decoded
 * error stays within half a step, or, where the search cuts the ends off, 0.15 of the largest. */
static void encoders_split_without_a_trace(void **state) {
    (void)state;
    static const struct {
        const char *name;
        float reference, search; /* error, with |x| <= 0.3 */
    } list[] = {{"f32", 0, 0},
                {"f16", 0.00013f, 0.00013f},
                {"bf16", 0.001f, 0.001f},
                {"q8_row", 0.0013f, 0.0013f},
                {"q8_2f", 0.0035f, 0.0035f},
                {"q4_block", 0.0225f, 0.045f},
                {"q4_tiled", 0.0225f, 0.045f},
                {"q4tp", 0.026f, 0.045f},
                {"q1", 0.2f, 0.2f},
                {"q1s", 0.7f, 0.2f},
                {"q1t", 0.2f, 0.2f}};
    enum { ROWS = 300, COLS = 160 };
    csn_shape s = {.n_dims = 2, .dim = {ROWS, COLS}};
    float *x = malloc(ROWS * COLS * sizeof(float));
    uint32_t seed = 5;
    assert_non_null(x);
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = noise(&seed);
    }
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        const csn_dtype *d = csn_dtype_by_name(csn_str_from(list[i].name));
        encode_split(d, &s, x, ROWS * COLS, CSN_ENCODER_REFERENCE, list[i].reference);
        encode_split(d, &s, x, ROWS * COLS, CSN_ENCODER_SEARCH, list[i].search);
    }
    free(x);
}

static void what_f16_cannot_hold_is_told(void **state) {
    (void)state;
    static const char *const names[] = {"f16",  "q8_row", "q8_2f", "q4_block", "q4_tiled",
                                        "q4tp", "q1",     "q1s",   "q1t"};
    float x[64] = {0};
    csn_buf out = CSN_BUF_INIT(512);
    csn_shape s = {.n_dims = 2, .dim = {2, 32}};
    caisson_error err;
    x[40] = 1e9f;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const csn_dtype *d = csn_dtype_by_name(csn_str_from(names[i]));
        ASSERT_STATUS(d->encode(x, &s, &(csn_encode_options){0}, NULL, &out, &err),
                      CAISSON_E_BOUNDS);
        assert_string_equal(err.got, names[i]);
    }
    csn_buf_free(&out);
}

/* The largest number of bf16 is 0x7f7f0000; half a step above it the nearest one is infinity. */
static void what_bf16_cannot_hold_is_told(void **state) {
    (void)state;
    const csn_dtype *d = csn_dtype_by_name(CSN_STR("bf16"));
    csn_buf out = CSN_BUF_INIT(512);
    csn_shape s = {.n_dims = 1, .dim = {3}};
    const csn_encode_options o = {0};
    caisson_error err;
    float x[3] = {1.0f, csn_f32_from_bits(0x7f7f7fffu), -csn_f32_from_bits(0x7f7f7fffu)};
    ASSERT_OK(d->encode(x, &s, &o, NULL, &out, &err), &err);
    x[2] = -csn_f32_from_bits(0x7f7f8000u);
    ASSERT_STATUS(d->encode(x, &s, &o, NULL, &out, &err), CAISSON_E_BOUNDS);
    assert_string_equal(err.got, "bf16");
    csn_buf_free(&out);
}

static void shapes_without_whole_groups_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"q4_tiled", "q4tp", "q1", "q1s", "q1t"};
    float x[64] = {0};
    csn_buf out = CSN_BUF_INIT(512);
    csn_shape s = {.n_dims = 2, .dim = {1, 33}};
    caisson_error err;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const csn_dtype *d = csn_dtype_by_name(csn_str_from(names[i]));
        ASSERT_STATUS(d->encode(x, &s, &(csn_encode_options){0}, NULL, &out, &err),
                      CAISSON_E_BOUNDS);
        assert_string_equal(err.got, "[1, 33]");
    }
    csn_buf_free(&out);
}

static void a_failed_allocation_of_q8_2f_is_told(void **state) {
    (void)state;
    float x[64] = {1};
    csn_buf out = CSN_BUF_INIT(512);
    csn_shape s = {.n_dims = 2, .dim = {2, 32}};
    caisson_error err;
    int64_t n = 0;
    caisson_status status;
    do {
        csn_alloc_fail_after(n);
        csn_buf_free(&out);
        status = csn_dtype_q8_2f.encode(x, &s, &(csn_encode_options){0}, NULL, &out, &err);
        csn_alloc_fail_after(-1);
        assert_true(status == CAISSON_OK || status == CAISSON_E_NOMEM);
        n++;
    } while (status != CAISSON_OK);
    assert_int_equal(n, 5);
    csn_buf_free(&out);
}

/* The reference's vbit payloads pass; with any width, length or offset changed they do not. */
static void vbit_payloads_are_checked(void **state) {
    const csn_dtype *d = csn_dtype_by_name(csn_str_from(*state));
    char path[512];
    caisson_error err;
    snprintf(path, sizeof(path), CSN_SOURCE_DIR "/tests/golden/cmf/codec/%s.safetensors", d->name);
    golden_file g = golden_open(path);
    for (size_t i = 0; i < g.n_cases; i++) {
        const golden_case *c = &g.cases[i];
        uint64_t rows = c->shape.dim[0];
        ASSERT_OK(d->check(&c->shape, c->encoded, c->n_encoded, &err), &err);
        uint64_t looked_at = d->check_bytes(&c->shape, c->n_encoded);
        assert_true(looked_at >= rows && looked_at < c->n_encoded);
        uint8_t *p = malloc(looked_at); /* exactly what check may look at */
        assert_non_null(p);
        memcpy(p, c->encoded, looked_at);
        ASSERT_STATUS(d->check(&c->shape, p, c->n_encoded + 1, &err), CAISSON_E_BOUNDS);
        ASSERT_STATUS(d->check(&c->shape, p, c->n_encoded - 1, &err), CAISSON_E_BOUNDS);
        for (uint64_t r = 0; r < rows; r++) {
            static const uint8_t widths[] = {0, 2, 7, 9, 255};
            uint8_t old = p[r];
            for (size_t k = 0; k < sizeof(widths); k++) {
                p[r] = widths[k];
                ASSERT_STATUS(d->check(&c->shape, p, c->n_encoded, &err), CAISSON_E_BOUNDS);
            }
            p[r] = old == 8 ? 6 : 8;
            ASSERT_STATUS(d->check(&c->shape, p, c->n_encoded, &err), CAISSON_E_BOUNDS);
            p[r] = old;
        }
        if (looked_at > rows) { /* vbit_ro: each byte of the offsets counts */
            for (uint64_t k = looked_at - 4 * (rows + 1); k < looked_at; k++) {
                p[k] ^= 0x20;
                ASSERT_STATUS(d->check(&c->shape, p, c->n_encoded, &err), CAISSON_E_BOUNDS);
                p[k] ^= 0x20;
            }
        }
        free(p);
    }
    golden_close(&g);
}

/* Rows without a weight: the widths are all there is. */
static void vbit_rows_may_be_empty(void **state) {
    (void)state;
    static const uint8_t widths[3] = {3, 8, 5};
    static const uint8_t with_offsets[3 + 16] = {3, 8, 5};
    csn_shape s = {.n_dims = 2, .dim = {3, 0}};
    caisson_error err;
    ASSERT_OK(csn_dtype_vbit.check(&s, widths, 3, &err), &err);
    ASSERT_OK(csn_dtype_vbit_ro.check(&s, with_offsets, sizeof(with_offsets), &err), &err);
    s.dim[0] = 0;
    ASSERT_OK(csn_dtype_vbit.check(&s, widths, 0, &err), &err);
    ASSERT_OK(csn_dtype_vbit_ro.check(&s, with_offsets + 3, 4, &err), &err);
}

/* Every bit pattern of a payload decodes without leaving it (NaN and infinite scales, all codes).
 */
static void any_bytes_decode(void **state) {
    (void)state;
    csn_shape s = {.n_dims = 2, .dim = {3, 64}};
    caisson_error err;
    uint32_t x = 1;
    for (size_t i = 0; csn_dtypes[i] != NULL; i++) {
        const csn_dtype *d = csn_dtypes[i];
        uint64_t n = 0;
        if (d->decode == NULL || d->nbytes == NULL || d->nbytes(&s, &n, &err) != CAISSON_OK) {
            continue;
        }
        uint8_t *p = malloc(n);
        float *out = malloc(193 * sizeof(float));
        assert_true(p != NULL && out != NULL);
        for (int round = 0; round < 50; round++) {
            for (uint64_t k = 0; k < n; k++) {
                x = x * 1664525u + 1013904223u;
                p[k] = round == 0 ? 0xff : round == 1 ? 0 : (uint8_t)(x >> 24);
            }
            csn_matrix m = csn_matrix_make(d, &s, p, n);
            out[192] = 7.0f;
            d->decode(&m, 0, 192, out);
            assert_true(out[192] == 7.0f);
        }
        free(p);
        free(out);
    }
}

/* Gathers row r of a payload of `rows` rows; returns its bytes. */
static uint64_t gather(const csn_dtype *d, const csn_matrix *m, uint64_t r, uint8_t *out) {
    csn_row_part parts[CSN_ROW_PARTS];
    uint32_t n = csn_row_parts(d, m->cols, parts);
    uint64_t at = 0;
    uint64_t nbytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *part = m->data + at + (parts[i].is_shared ? 0 : r * parts[i].nbytes);
        memcpy(out + nbytes, part, parts[i].nbytes);
        nbytes += parts[i].nbytes;
        at += parts[i].nbytes * (parts[i].is_shared ? 1 : m->rows);
    }
    assert_int_equal(at, m->nbytes);
    return nbytes;
}

/* Of any bytes: none of these has patterns that are not valid. */
static void a_row_alone_decodes_as_in_its_matrix(void **state) {
    enum { ROWS = 5, COLS = 288, MAX_BYTES = ROWS * COLS * 4 };
    static uint8_t bytes[MAX_BYTES];
    static uint8_t row[MAX_BYTES];
    unsigned n_tried = 0;
    (void)state;
    for (size_t i = 0; i < MAX_BYTES; i++) {
        bytes[i] = (uint8_t)(i * 167 + i / 251 * 13);
    }
    for (size_t i = 0; csn_dtypes[i] != NULL; i++) {
        const csn_dtype *d = csn_dtypes[i];
        csn_shape shape = {.n_dims = 2, .dim = {ROWS, COLS}};
        csn_shape one = {.n_dims = 2, .dim = {1, COLS}};
        caisson_error err;
        uint64_t nbytes;
        uint64_t one_nbytes;
        csn_row_part parts[CSN_ROW_PARTS];
        if (csn_row_parts(d, COLS, parts) == 0) {
            continue;
        }
        ASSERT_OK(d->nbytes(&shape, &nbytes, &err), &err);
        ASSERT_OK(d->nbytes(&one, &one_nbytes, &err), &err);
        csn_matrix m = csn_matrix_make(d, &shape, bytes, nbytes);
        for (uint64_t r = 0; r < ROWS; r++) {
            float want[COLS];
            float got[COLS];
            assert_int_equal(gather(d, &m, r, row), one_nbytes);
            csn_matrix alone = csn_matrix_make(d, &one, row, one_nbytes);
            d->decode(&m, r * COLS, COLS, want);
            d->decode(&alone, 0, COLS, got);
            assert_memory_equal(got, want, sizeof(want));
        }
        n_tried++;
    }
    assert_int_equal(n_tried, 13);
    csn_row_part none[CSN_ROW_PARTS]; /* groups that cross rows */
    assert_int_equal(csn_row_parts(&csn_dtype_q4_block, 40, none), 0);
    assert_int_equal(csn_row_parts(&csn_dtype_q4_tiled, 40, none), 0);
    assert_int_equal(csn_row_parts(&csn_dtype_q1, 40, none), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"names and ids find their row (CMF 3.1)", names_and_ids_find_their_row, NULL, NULL, NULL},
        cmocka_unit_test(no_two_rows_share_an_id_or_name),
        cmocka_unit_test(shapes_are_counted_and_shown),
        {"worked examples (CMF 3.2)", worked_examples, NULL, NULL, NULL},
        cmocka_unit_test(encoders_split_without_a_trace),
        cmocka_unit_test(what_f16_cannot_hold_is_told),
        cmocka_unit_test(what_bf16_cannot_hold_is_told),
        cmocka_unit_test(shapes_without_whole_groups_are_refused),
        cmocka_unit_test(a_failed_allocation_of_q8_2f_is_told),
        {"vbit payloads are checked (CMF 3.2)", vbit_payloads_are_checked, NULL, NULL,
         (char[]){"vbit"}},
        {"vbit_ro payloads are checked (CMF 3.2)", vbit_payloads_are_checked, NULL, NULL,
         (char[]){"vbit_ro"}},
        {"vbit rows may be empty (CMF 3.2)", vbit_rows_may_be_empty, NULL, NULL, NULL},
        cmocka_unit_test(any_bytes_decode),
        cmocka_unit_test(a_row_alone_decodes_as_in_its_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
