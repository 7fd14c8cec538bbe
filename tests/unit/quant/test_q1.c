/* SPDX-License-Identifier: Apache-2.0 */
/* q1, q1s and q1t: what their checks refuse, outliers by size times activation, the search. */
#include "unit/test.h"

#include <math.h>

#include "quant/q1_internal.h"
#include "support/golden_codec.h"

/* ---- checks ---- */

/* check on a copy of exactly what it may look at, in place of which `edit` may have put another. */
static caisson_status check(const csn_dtype *d, const csn_shape *s, const uint8_t *payload,
                            uint64_t nbytes, caisson_error *err) {
    uint64_t from = d->check_from(s, nbytes);
    assert_true(from <= nbytes && d->check_bytes == NULL);
    uint8_t *p = malloc(nbytes - from + 1);
    assert_non_null(p);
    memcpy(p, payload + from, nbytes - from);
    caisson_status status = d->check(s, p, nbytes, err);
    free(p);
    return status;
}

static void payloads_of_the_reference_pass(void **state) {
    const csn_dtype *d = csn_dtype_by_name(csn_str_from(*state));
    char path[512];
    caisson_error err;
    snprintf(path, sizeof(path), CSN_SOURCE_DIR "/tests/golden/cmf/codec/%s.safetensors", d->name);
    golden_file g = golden_open(path);
    for (size_t i = 0; i < g.n_cases; i++) {
        const golden_case *c = &g.cases[i];
        ASSERT_OK(check(d, &c->shape, c->encoded, c->n_encoded, &err), &err);
        for (uint64_t n = 0; n < c->n_encoded; n += n + 64 < c->n_encoded ? 7 : 1) {
            ASSERT_STATUS(check(d, &c->shape, c->encoded, n, &err), CAISSON_E_BOUNDS);
        }
        uint8_t *longer = calloc(c->n_encoded + 6, 1);
        assert_non_null(longer);
        memcpy(longer, c->encoded, c->n_encoded);
        for (uint64_t k = 1; k <= 6; k++) {
            ASSERT_STATUS(check(d, &c->shape, longer, c->n_encoded + k, &err), CAISSON_E_BOUNDS);
        }
        free(longer);
    }
    golden_close(&g);
}

enum { ROWS = 3, COLS = 64, TILES = 6 };

struct refusal {
    unsigned at; /* byte behind the tiles */
    uint32_t value;
    unsigned bytes;
    const char *what, *want, *got;
};

static void refuses(const csn_dtype *d, const uint8_t *overlay, size_t n, unsigned tile_bytes,
                    const struct refusal *list, size_t n_list) {
    const csn_shape s = {.n_dims = 2, .dim = {ROWS, COLS}};
    uint8_t payload[256] = {0};
    caisson_error err;
    size_t tiles = TILES * tile_bytes;
    memcpy(payload + tiles, overlay, n);
    ASSERT_OK(check(d, &s, payload, tiles + n, &err), &err);
    for (size_t i = 0; i < n_list; i++) {
        memcpy(payload + tiles, overlay, n);
        for (unsigned k = 0; k < list[i].bytes; k++) {
            payload[tiles + list[i].at + k] = (uint8_t)(list[i].value >> 8 * k);
        }
        ASSERT_STATUS(check(d, &s, payload, tiles + n, &err), CAISSON_E_BOUNDS);
        assert_string_equal(err.what, list[i].what);
        assert_string_equal(err.want, list[i].want);
        assert_string_equal(err.got, list[i].got);
    }
}

static void q1s_overlays_are_checked(void **state) {
    (void)state;
    static const uint8_t overlay[] = {3,   0, 0, 0,          /* count */
                                      0,   0, 0, 0, 0, 0x3c, /* index, value */
                                      63,  0, 0, 0, 0, 0x3c, /**/
                                      191, 0, 0, 0, 0, 0x3c};
    static const struct refusal list[] = {
        {0, 2, 4, "payload bytes differ from its outliers'", "52", "58"},
        {0, 4, 4, "payload bytes differ from its outliers'", "64", "58"},
        {0, UINT32_MAX, 4, "payload bytes differ from its outliers'", "25769803810", "58"},
        {16, 192, 4, "index of an outlier leaves the tensor", "192", "192"},
        {16, UINT32_MAX, 4, "index of an outlier leaves the tensor", "192", "4294967295"},
        {10, 0, 4, "indices of outliers do not rise", "1", "0"},
        {16, 62, 4, "indices of outliers do not rise", "64", "62"},
    };
    refuses(&csn_dtype_q1s, overlay, sizeof(overlay), CSN_Q1_TILE, list,
            sizeof(list) / sizeof(list[0]));
}

static void q1t_overlays_are_checked(void **state) {
    (void)state;
    static const uint8_t overlay[] = {0,  0, 0, 0,    2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, /**/
                                      0,  0, 0, 0x3c, /* column, value */
                                      63, 0, 0, 0x3c, /**/
                                      5,  0, 0, 0x3c};
    static const struct refusal list[] = {
        {0, 1, 4, "first row pointer is not 0", "0", "1"},
        {8, 1, 4, "row pointers run backwards", "2", "1"},
        {12, 0, 4, "row pointers run backwards", "2", "0"},
        {12, 4, 4, "row pointer leaves the entries", "3", "4"},
        {12, UINT32_MAX, 4, "row pointer leaves the entries", "3", "4294967295"},
        {12, 2, 4, "payload bytes differ from its outliers'", "78", "82"},
        {24, 64, 2, "column of an outlier leaves its row", "64", "64"},
        {20, 65535, 2, "column of an outlier leaves its row", "64", "65535"},
        {20, 0, 2, "columns of a row's outliers do not rise", "1", "0"},
    };
    refuses(&csn_dtype_q1t, overlay, sizeof(overlay), CSN_Q1T_TILE, list,
            sizeof(list) / sizeof(list[0]));
}

static void shapes_without_overlays_are_refused(void **state) {
    (void)state;
    static const csn_shape shapes[] = {{.n_dims = 1, .dim = {64}},
                                       {.n_dims = 2, .dim = {2, 33}},
                                       {.n_dims = 3, .dim = {1, 2, 32}},
                                       {.n_dims = 2, .dim = {UINT32_MAX, 1 << 20}}};
    uint8_t none[64] = {0};
    caisson_error err;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        ASSERT_STATUS(check(&csn_dtype_q1s, &shapes[i], none, 16, &err), CAISSON_E_BOUNDS);
        ASSERT_STATUS(check(&csn_dtype_q1t, &shapes[i], none, 16, &err), CAISSON_E_BOUNDS);
    }
    csn_shape wide = {.n_dims = 2, .dim = {0, (1 << 16) + 32}};
    ASSERT_STATUS(check(&csn_dtype_q1t, &wide, none, 4, &err), CAISSON_E_BOUNDS);
    assert_string_equal(err.got, "65568");
    csn_shape empty = {.n_dims = 2, .dim = {0, 32}};
    ASSERT_OK(check(&csn_dtype_q1s, &empty, none, 4, &err), &err);
    ASSERT_OK(check(&csn_dtype_q1t, &empty, none, 4, &err), &err);
}

/* ---- encoders ---- */

static float noise(uint32_t *x) {
    *x = *x * 1664525u + 1013904223u;
    float u = (float)(int32_t)*x * 0x1p-31f;
    return u * u * u;
}

struct encoded {
    csn_buf bytes;
    float *values; /* [n] decoded */
};

static struct encoded encode(const csn_dtype *d, const csn_shape *s, const float *x,
                             const csn_encode_options *o) {
    struct encoded e = {CSN_BUF_INIT(1 << 24), NULL};
    uint64_t n = 0;
    caisson_error err;
    csn_shape_count(s, &n);
    ASSERT_OK(d->encode(x, s, o, NULL, &e.bytes, &err), &err);
    if (d->check != NULL) {
        ASSERT_OK(check(d, s, (const uint8_t *)e.bytes.ptr, e.bytes.len, &err), &err);
    }
    e.values = malloc(n * sizeof(float));
    assert_non_null(e.values);
    csn_matrix m = csn_matrix_make(d, s, e.bytes.ptr, e.bytes.len);
    d->decode(&m, 0, n, e.values);
    return e;
}

static void encoded_free(struct encoded *e) {
    csn_buf_free(&e->bytes);
    free(e->values);
}

/* Sum of squared errors times squared activations. */
static double error_of(const float *x, const float *y, uint64_t rows, uint64_t cols,
                       const float *rms) {
    double sum = 0;
    for (uint64_t i = 0; i < rows * cols; i++) {
        double e = ((double)x[i] - (double)y[i]) * (rms == NULL ? 1.0 : (double)rms[i % cols]);
        sum += e * e;
    }
    return sum;
}

/* The search against the reference's choice, each with and without activations and outliers. */
static void search_is_never_worse(void **state) {
    const csn_dtype *d = csn_dtype_by_name(csn_str_from(*state));
    enum { R = 17, C = 160 };
    const csn_shape s = {.n_dims = 2, .dim = {R, C}};
    float x[R * C];
    float rms[C];
    uint32_t seed = 3;
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < R * C; i++) {
            x[i] = noise(&seed) * (round % 3 == 0 ? 1.0f : ldexpf(1.0f, i / C % 9 - 4));
        }
        for (int i = 0; i < C; i++) {
            rms[i] = fabsf(noise(&seed)) * 4.0f;
        }
        csn_encode_options o = {.keep = round % 2 == 0 ? 0 : 0.03f,
                                .col_rms = round % 4 < 2 ? NULL : rms};
        struct encoded search = encode(d, &s, x, &o);
        o.encoder = CSN_ENCODER_REFERENCE;
        struct encoded reference = encode(d, &s, x, &o);
        double a = error_of(x, search.values, R, C, o.col_rms);
        double b = error_of(x, reference.values, R, C, o.col_rms);
        if (a > b) {
            fail_msg("%s, round %d: %g, reference %g", d->name, round, a, b);
        }
        assert_int_equal(search.bytes.len, reference.bytes.len);
        encoded_free(&search);
        encoded_free(&reference);
    }
}

/* Two columns that meet loud activations: their weights stay f16 though others are larger, exactly
 * as many as asked for, of equals the first. */
static void outliers_follow_the_activations(void **state) {
    (void)state;
    enum { R = 4, C = 64 };
    static const csn_dtype *const list[] = {&csn_dtype_q1s, &csn_dtype_q1t};
    const csn_shape s = {.n_dims = 2, .dim = {R, C}};
    float x[R * C];
    float rms[C];
    for (int i = 0; i < R * C; i++) {
        x[i] = i % 3 == 0 ? 0.75f : -0.5f;
    }
    for (int i = 0; i < C; i++) {
        rms[i] = i == 7 || i == 40 ? 10.0f : 1.0f;
    }
    x[2 * C + 7] = 0.3125f;
    for (size_t k = 0; k < 2; k++) {
        struct encoded e =
            encode(list[k], &s, x, &(csn_encode_options){.keep = 7.0f / (R * C), .col_rms = rms});
        csn_matrix m = csn_matrix_make(list[k], &s, e.bytes.ptr, e.bytes.len);
        uint64_t n = 0;
        for (uint64_t r = 0; r < R; r++) {
            csn_outliers o =
                k == 0 ? csn_q1s_outliers(&m, r * C, (r + 1) * C) : csn_q1t_outliers(&m, r, 0, C);
            for (; o.n > 0; o.n--, o.p += k == 0 ? CSN_Q1S_OUTLIER : CSN_Q1T_OUTLIER, n++) {
                uint64_t col = csn_load16(o.p) % C; /* rows are multiples of C apart */
                assert_true(col == 7 || col == 40);
                assert_true(e.values[r * C + col] == x[r * C + col]);
            }
        }
        assert_int_equal(n, 7); /* all but the smallest */
        encoded_free(&e);
    }
}

static void a_failed_allocation_is_told(void **state) {
    (void)state;
    float x[64] = {1};
    const csn_shape s = {.n_dims = 2, .dim = {2, 32}};
    static const csn_dtype *const list[] = {&csn_dtype_q1s, &csn_dtype_q1t};
    for (size_t k = 0; k < 2; k++) {
        caisson_error err;
        caisson_status status = CAISSON_E_NOMEM;
        for (int64_t n = 0; status != CAISSON_OK; n++) {
            csn_buf out = CSN_BUF_INIT(1 << 16);
            csn_alloc_fail_after(n);
            status = list[k]->encode(x, &s, &(csn_encode_options){.keep = 0.1f}, NULL, &out, &err);
            csn_alloc_fail_after(-1);
            assert_true(status == CAISSON_OK || status == CAISSON_E_NOMEM);
            assert_true(n < 8);
            csn_buf_free(&out);
        }
    }
}

/* Facts 4.10: (byte / 3^k) % 3; 0 is 0, 1 is 1, 2 is -1. Bytes above 242 are no five digits, and
 * any file may hold them. */
static void digits_of_every_byte(void **state) {
    (void)state;
    static const unsigned power[5] = {1, 3, 9, 27, 81};
    static const int weight[3] = {0, 1, -1};
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t tile[CSN_Q1T_TILE] = {0};
        for (unsigned k = 0; k < 32; k++) {
            tile[2 + k / 5] = (uint8_t)byte;
            assert_int_equal(csn_q1t_weight(tile, k), weight[byte / power[k % 5] % 3]);
            tile[2 + k / 5] = 0;
        }
    }
}

/* Tiles of any bytes under a good overlay. */
static void any_tiles_decode(void **state) {
    (void)state;
    const csn_shape s = {.n_dims = 2, .dim = {ROWS, COLS}};
    float x[ROWS * COLS];
    uint32_t seed = 9;
    static const csn_dtype *const list[] = {&csn_dtype_q1s, &csn_dtype_q1t};
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = noise(&seed);
    }
    for (size_t k = 0; k < 2; k++) {
        struct encoded e = encode(list[k], &s, x, &(csn_encode_options){.keep = 0.1f});
        for (int round = 0; round < 50; round++) {
            for (size_t i = 0; i < (k == 0 ? CSN_Q1_TILE : CSN_Q1T_TILE) * TILES; i++) {
                seed = seed * 1664525u + 1013904223u;
                e.bytes.ptr[i] = (char)(round == 0 ? 0xff : seed >> 24);
            }
            csn_matrix m = csn_matrix_make(list[k], &s, e.bytes.ptr, e.bytes.len);
            float out[ROWS * COLS + 1];
            out[ROWS * COLS] = 7.0f;
            list[k]->decode(&m, 0, ROWS * COLS, out);
            assert_true(out[ROWS * COLS] == 7.0f);
        }
        encoded_free(&e);
    }
}

/* Keys that were sorted when they were checked and no longer are: a decoder writes what it was
 * asked for and nothing beside. */
static void changed_keys_write_nothing_outside(void **state) {
    (void)state;
    enum { R = 2, C = 64, K = 8, PART = 32, BESIDE = 64 };
    static const csn_dtype *const list[] = {&csn_dtype_q1s, &csn_dtype_q1t};
    const csn_shape shape = {.n_dims = 2, .dim = {R, C}};
    float x[R * C];
    uint32_t seed = 7;
    for (int i = 0; i < R * C; i++) {
        x[i] = noise(&seed);
    }
    for (int d = 0; d < 2; d++) {
        struct encoded e = encode(list[d], &shape, x, &(csn_encode_options){.keep = 0.0625f});
        uint8_t *bytes = (uint8_t *)e.bytes.ptr;
        uint64_t entry = d == 0 ? CSN_Q1S_OUTLIER : CSN_Q1T_OUTLIER;
        for (int round = 0; round < 200; round++) {
            for (int k = 0; k < K; k++) { /* the last K entries */
                uint8_t *key = bytes + e.bytes.len - (uint64_t)(k + 1) * entry;
                key[0] = (uint8_t)(int)(noise(&seed) * 1000.0f);
                key[1] = (uint8_t)(k & 1);
            }
            csn_matrix m = csn_matrix_make(list[d], &shape, bytes, e.bytes.len);
            float out[BESIDE + PART + BESIDE];
            memset(out, 0xff, sizeof(out));
            list[d]->decode(&m, (uint64_t)(round % 4) * PART, PART, out + BESIDE);
            for (int i = 0; i < BESIDE; i++) {
                assert_true(isnan(out[i]) && isnan(out[BESIDE + PART + i]));
            }
        }
        encoded_free(&e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"q1s payloads of the reference pass (CMF 3.2)", payloads_of_the_reference_pass, NULL, NULL,
         (char[]){"q1s"}},
        {"q1t payloads of the reference pass (CMF 3.2)", payloads_of_the_reference_pass, NULL, NULL,
         (char[]){"q1t"}},
        {"q1s overlays are checked (CMF 3.2)", q1s_overlays_are_checked, NULL, NULL, NULL},
        {"q1t overlays are checked (CMF 3.2)", q1t_overlays_are_checked, NULL, NULL, NULL},
        cmocka_unit_test(shapes_without_overlays_are_refused),
        cmocka_unit_test(changed_keys_write_nothing_outside),
        {"q1: search is never worse", search_is_never_worse, NULL, NULL, (char[]){"q1"}},
        {"q1s: search is never worse", search_is_never_worse, NULL, NULL, (char[]){"q1s"}},
        {"q1t: search is never worse", search_is_never_worse, NULL, NULL, (char[]){"q1t"}},
        cmocka_unit_test(outliers_follow_the_activations),
        cmocka_unit_test(a_failed_allocation_is_told),
        cmocka_unit_test(digits_of_every_byte),
        cmocka_unit_test(any_tiles_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
