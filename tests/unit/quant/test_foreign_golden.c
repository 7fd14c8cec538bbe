/* SPDX-License-Identifier: Apache-2.0 */
/* The block dtypes of GGUF and the eight-bit floats, against the values that gguf.dequantize and
 * torch give (tests/oracle/gguf_dtypes.py). */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/io.h"
#include "quant/dtype.h"

typedef struct golden {
    csn_buf file;
    const uint8_t *payload;
    const float *values;
    uint32_t n_bytes, n_values;
    csn_shape shape;
} golden;

static const csn_dtype *load(const char *name, golden *g) {
    char path[512];
    caisson_error err;
    bool is_f8 = name[0] == 'f';
    snprintf(path, sizeof(path), "%s/tests/golden/quant/%s%s.bin", CSN_SOURCE_DIR,
             is_f8 ? "" : "gguf_", name);
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), path, 1 << 20, &g->file, &err), &err);
    memcpy(&g->n_bytes, g->file.ptr, 4);
    memcpy(&g->n_values, g->file.ptr + 4, 4);
    g->payload = (const uint8_t *)g->file.ptr + 8;
    float *values = malloc(g->n_values * sizeof(float));
    assert_non_null(values);
    memcpy(values, g->payload + g->n_bytes, g->n_values * sizeof(float));
    g->values = values;
    g->shape = (csn_shape){2, {1, g->n_values}};
    const csn_dtype *d = csn_dtype_by_name(csn_str_from(name));
    assert_non_null(d);
    return d;
}

static void unload(golden *g) {
    free((void *)(uintptr_t)g->values);
    csn_buf_free(&g->file);
}

static void decodes_to_the_bit(void **state) {
    golden g;
    const csn_dtype *d = load(*state, &g);
    uint64_t nbytes = 0;
    caisson_error err;
    ASSERT_OK(d->nbytes(&g.shape, &nbytes, &err), &err);
    assert_int_equal(nbytes, g.n_bytes);
    csn_matrix m = csn_matrix_make(d, &g.shape, g.payload, nbytes);
    float *out = malloc(g.n_values * sizeof(float));
    assert_non_null(out);
    for (uint32_t i0 = 0; i0 < g.n_values; i0 += i0 == 0 ? 1 : 13) { /* ranges that cut blocks */
        uint32_t n = i0 == 0 ? g.n_values : 29;
        if (n > g.n_values - i0) {
            n = g.n_values - i0;
        }
        d->decode(&m, i0, n, out);
        for (uint32_t i = 0; i < n; i++) {
            float want = g.values[i0 + i];
            if (want != want) {
                assert_true(out[i] != out[i]);
            } else {
                assert_memory_equal(&out[i], &want, sizeof(want));
            }
        }
    }
    free(out);
    unload(&g);
}

static void refuses_rows_that_are_no_whole_blocks(void **state) {
    static const char *const names[] = {"q4_0", "q4_k", "iq4_xs", "mxfp4", "nvfp4"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const csn_dtype *d = csn_dtype_by_name(csn_str_from(names[i]));
        assert_non_null(d);
        csn_shape s = {2, {8, 24}};
        uint64_t n = 77;
        caisson_error err;
        ASSERT_STATUS(d->nbytes(&s, &n, &err), CAISSON_E_BOUNDS);
        assert_int_equal(n, 77);
    }
}

static void refuses_sizes_that_overflow(void **state) {
    (void)state;
    const csn_dtype *d = csn_dtype_by_name(CSN_STR("q8_0"));
    caisson_error err;
    uint64_t n;
    csn_shape wraps = {2, {UINT64_C(1) << 60, 32}};
    ASSERT_STATUS(d->nbytes(&wraps, &n, &err), CAISSON_E_BOUNDS);
    csn_shape grows = {2, {(UINT64_C(1) << 59) - 1, 32}}; /* fits in elements, not in bytes */
    ASSERT_STATUS(d->nbytes(&grows, &n, &err), CAISSON_E_BOUNDS);
    csn_shape scalar = {0, {0}};
    ASSERT_STATUS(d->nbytes(&scalar, &n, &err), CAISSON_E_BOUNDS);
}

static void ids_and_names_are_unique(void **state) {
    (void)state;
    for (size_t i = 0; csn_dtypes[i] != NULL; i++) {
        for (size_t k = 0; k < i; k++) {
            const csn_dtype *a = csn_dtypes[i], *b = csn_dtypes[k];
            assert_string_not_equal(a->name, b->name);
            assert_false(a->gguf_id != CSN_NO_ID && a->gguf_id == b->gguf_id);
            assert_false(a->cmf_id != CSN_NO_ID && a->cmf_id == b->cmf_id);
            assert_false(a->safetensors != NULL && b->safetensors != NULL &&
                         strcmp(a->safetensors, b->safetensors) == 0);
        }
    }
}

#define DECODES(name)                                                                              \
    { name " decodes to the bit", decodes_to_the_bit, NULL, NULL, (void *)(uintptr_t)name }

int main(void) {
    const struct CMUnitTest tests[] = {
        DECODES("q4_0"),
        DECODES("q4_1"),
        DECODES("q5_0"),
        DECODES("q5_1"),
        DECODES("q8_0"),
        DECODES("q2_k"),
        DECODES("q3_k"),
        DECODES("q4_k"),
        DECODES("q5_k"),
        DECODES("q6_k"),
        DECODES("iq4_nl"),
        DECODES("iq4_xs"),
        DECODES("mxfp4"),
        DECODES("f8_e4m3"),
        DECODES("f8_e5m2"),
        cmocka_unit_test(refuses_rows_that_are_no_whole_blocks),
        cmocka_unit_test(refuses_sizes_that_overflow),
        cmocka_unit_test(ids_and_names_are_unique),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
