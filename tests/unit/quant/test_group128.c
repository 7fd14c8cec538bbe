/* SPDX-License-Identifier: Apache-2.0 */
/* The dtypes of WARP's trunk: the worked examples of warp facts 3, and bytes and values that numpy
 * gives (tests/oracle/warp_dtypes.py). */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/io.h"
#include "quant/dtype.h"

static const csn_encode_options defaults;

static void fmt_finds_its_row(void **state) {
    (void)state;
    assert_string_equal(csn_dtype_by_warp(0)->name, "f32");
    assert_string_equal(csn_dtype_by_warp(2)->name, "q8g");
    assert_string_equal(csn_dtype_by_warp(3)->name, "q4g");
    assert_string_equal(csn_dtype_by_warp(7)->name, "q3g");
    assert_string_equal(csn_dtype_by_warp(1)->name, "f16");
    assert_null(csn_dtype_by_warp(4)); /* of expert records */
    assert_null(csn_dtype_by_warp(9));
    assert_null(csn_dtype_by_warp(UINT32_MAX)); /* CSN_NO_ID is not a fmt */
}

static const csn_dtype *named(const char *name) {
    const csn_dtype *d = csn_dtype_by_name(csn_str_from(name));
    assert_non_null(d);
    return d;
}

static uint64_t nbytes_of(const char *name, uint64_t rows, uint64_t cols) {
    csn_shape s = {2, {rows, cols}};
    uint64_t n = 0;
    caisson_error err;
    ASSERT_OK(named(name)->nbytes(&s, &n, &err), &err);
    return n;
}

static void sizes_of_the_facts(void **state) {
    (void)state;
    assert_int_equal(nbytes_of("q8g", 2, 128), 260);
    assert_int_equal(nbytes_of("q4g", 1, 136), 128 + 4);
    assert_int_equal(nbytes_of("q3g", 1, 128), 49 + 2);
    assert_int_equal(nbytes_of("q3g", 3, 129), 3 * (97 + 4));
    assert_int_equal(nbytes_of("q8g", 0, 128), 0);
}

static void codes_of_the_facts(void **state) {
    (void)state;
    uint8_t q4[64 + 2] = {0xF5, 0x80};
    uint8_t q3[49 + 2] = {0x38, 0x0B};
    q4[65] = q3[50] = 0x3C; /* 1.0 */
    csn_shape s = {2, {1, 128}};
    csn_matrix m4 = csn_matrix_make(named("q4g"), &s, q4, sizeof(q4));
    csn_matrix m3 = csn_matrix_make(named("q3g"), &s, q3, sizeof(q3));
    float w[4];
    m4.dtype->decode(&m4, 0, 4, w);
    assert_true(w[0] == -3 && w[1] == 7 && w[2] == -8 && w[3] == 0);
    m3.dtype->decode(&m3, 0, 4, w);
    assert_true(w[0] == -4 && w[1] == 3 && w[2] == 0 && w[3] == 1);
}

static void padding_of_a_row_is_zero(void **state) {
    (void)state;
    float x[136];
    for (int i = 0; i < 136; i++) {
        x[i] = 7;
    }
    csn_shape s = {2, {1, 136}};
    csn_buf out = CSN_BUF_INIT(1024);
    caisson_error err;
    ASSERT_OK(named("q4g")->encode(x, &s, &defaults, NULL, &out, &err), &err);
    assert_int_equal(out.len, 128 + 4);
    for (int i = 68; i < 128; i++) {
        assert_int_equal((uint8_t)out.ptr[i], 0x88);
    }
    ASSERT_OK(named("q3g")->encode(x, &s, &defaults, NULL, &out, &err), &err);
    assert_int_equal(out.len, 97 + 4);
    assert_int_equal((uint8_t)out.ptr[96], 0); /* the guard */
    csn_buf_free(&out);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    static const char *const names[] = {"q8g", "q4g", "q3g"};
    for (int i = 0; i < 3; i++) {
        uint64_t n = 77;
        caisson_error err;
        csn_shape vector = {1, {128}};
        ASSERT_STATUS(named(names[i])->nbytes(&vector, &n, &err), CAISSON_E_BOUNDS);
        csn_shape huge = {2, {UINT64_C(1) << 31, UINT64_C(1) << 33}};
        ASSERT_STATUS(named(names[i])->nbytes(&huge, &n, &err), CAISSON_E_BOUNDS);
        assert_int_equal(n, 77);
        float x[128] = {3e38f};
        csn_shape s = {2, {1, 128}};
        csn_buf out = CSN_BUF_INIT(1024);
        ASSERT_STATUS(named(names[i])->encode(x, &s, &defaults, NULL, &out, &err),
                      CAISSON_E_BOUNDS); /* the scale is no binary16 */
        csn_buf_free(&out);
    }
}

struct golden {
    csn_buf file;
    csn_shape shape;
    uint32_t n, n_bytes;
    const float *x;
    const uint8_t *payload[2]; /* of x; random bytes */
    const float *values[2];
};

static struct golden load(const char *name) {
    struct golden g = {0};
    char path[512];
    uint32_t head[3];
    caisson_error err;
    (void)snprintf(path, sizeof(path), "%s/tests/golden/quant/warp_%s.bin", CSN_SOURCE_DIR, name);
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), path, 1 << 20, &g.file, &err), &err);
    memcpy(head, g.file.ptr, sizeof(head));
    g.shape = (csn_shape){2, {head[0], head[1]}};
    g.n = head[0] * head[1];
    g.n_bytes = head[2];
    const uint8_t *p = (const uint8_t *)g.file.ptr + sizeof(head);
    g.x = (const float *)(const void *)p;
    p += g.n * sizeof(float);
    for (int i = 0; i < 2; i++) {
        g.payload[i] = p;
        p += (g.n_bytes + 3) / 4 * 4;
        g.values[i] = (const float *)(const void *)p;
        p += g.n * sizeof(float);
    }
    assert_ptr_equal(p, g.file.ptr + g.file.len);
    return g;
}

static void decodes_to_the_bit(void **state) {
    struct golden g = load(*state);
    const csn_dtype *d = named(*state);
    assert_int_equal(nbytes_of(*state, g.shape.dim[0], g.shape.dim[1]), g.n_bytes);
    float *out = malloc(g.n * sizeof(float));
    assert_non_null(out);
    for (int k = 0; k < 2; k++) {
        csn_matrix m = csn_matrix_make(d, &g.shape, g.payload[k], g.n_bytes);
        d->decode(&m, 0, g.n, out);
        assert_memory_equal(out, g.values[k], g.n * sizeof(float));
        for (uint32_t i0 = 0; i0 < g.n; i0 += 13) { /* ranges that cut groups and rows */
            uint32_t n = g.n - i0 < 300 ? g.n - i0 : 300;
            d->decode(&m, i0, n, out);
            assert_memory_equal(out, g.values[k] + i0, n * sizeof(float));
        }
        d->decode(&m, g.n, 0, out);
    }
    free(out);
    csn_buf_free(&g.file);
}

static void encodes_to_the_byte(void **state) {
    struct golden g = load(*state);
    caisson_error err;
    for (unsigned n_threads = 1; n_threads <= 3; n_threads++) {
        csn_pool *pool = NULL;
        csn_buf out = CSN_BUF_INIT(1 << 20);
        ASSERT_OK(csn_pool_new(n_threads, &pool, &err), &err);
        ASSERT_OK(named(*state)->encode(g.x, &g.shape, &defaults, pool, &out, &err), &err);
        assert_int_equal(out.len, g.n_bytes);
        assert_memory_equal(out.ptr, g.payload[0], g.n_bytes);
        csn_buf_free(&out);
        csn_pool_free(pool);
    }
    csn_buf_free(&g.file);
}

#define GOLDEN(name)                                                                               \
    {name " decodes to the bit", decodes_to_the_bit, NULL, NULL, (void *)(uintptr_t)name}, {       \
        name " encodes to the byte, 1 to 3 threads", encodes_to_the_byte, NULL, NULL,              \
            (void *)(uintptr_t)name                                                                \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fmt_finds_its_row),
        cmocka_unit_test(sizes_of_the_facts),
        cmocka_unit_test(codes_of_the_facts),
        cmocka_unit_test(padding_of_a_row_is_zero),
        cmocka_unit_test(what_cannot_be_is_refused),
        GOLDEN("q8g"),
        GOLDEN("q4g"),
        GOLDEN("q3g"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
