/* SPDX-License-Identifier: Apache-2.0 */
/* Every dtype that we read and write, against bytes and values that the format's reference made:
 * golden/cmf/codec, and ten more shapes each in golden/cmf/shapes (oracle/codec_shapes.py). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash64.h"
#include "support/golden_codec.h"

static golden_file open_dtype(const csn_dtype **ret_dtype, void **state) {
    const char *name = *state;                  /* "codec/q8_row" */
    const char *dir = getenv("CSN_GOLDEN_CMF"); /* by hand: the full set, large cases too */
    char path[512];
    bool is_codec = strncmp(name, "codec/", 6) == 0;
    snprintf(path, sizeof(path), "%s/%s.safetensors",
             dir != NULL && is_codec ? dir : CSN_SOURCE_DIR "/tests/golden/cmf", name);
    *ret_dtype = csn_dtype_by_name(csn_str_from(strchr(name, '/') + 1));
    assert_non_null(*ret_dtype);
    return golden_open(path);
}

static bool same_values(const float *a, const float *b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint32_t x;
        uint32_t y;
        memcpy(&x, &a[i], 4);
        memcpy(&y, &b[i], 4);
        if (x != y && !(a[i] != a[i] && b[i] != b[i])) {
            print_message("element %d: %a, want %a\n", (int)i, (double)a[i], (double)b[i]);
            return false;
        }
    }
    return true;
}

static void sizes_equal_the_reference(void **state) {
    const csn_dtype *d;
    golden_file g = open_dtype(&d, state);
    for (size_t i = 0; i < g.n_cases; i++) {
        uint64_t n = 0;
        caisson_error err;
        if (d->nbytes != NULL) {
            assert_int_equal(d->nbytes(&g.cases[i].shape, &n, &err), CAISSON_OK);
            assert_int_equal(n, g.cases[i].n_encoded);
        }
        assert_true(csn_hash64(g.cases[i].encoded, g.cases[i].n_encoded) == g.cases[i].hash);
    }
    golden_close(&g);
}

static void decodes_to_the_bit(void **state) {
    const csn_dtype *d;
    golden_file g = open_dtype(&d, state);
    for (size_t i = 0; i < g.n_cases; i++) {
        const golden_case *c = &g.cases[i];
        csn_matrix m = csn_matrix_make(d, &c->shape, c->encoded, c->n_encoded);
        float *out = malloc(c->n * 4 + 4);
        assert_non_null(out);
        d->decode(&m, 0, c->n, out);
        assert_true(same_values(out, c->decoded, c->n));
        for (uint64_t i0 = 0; i0 < c->n; i0 += 13) { /* ranges that cut groups and rows */
            uint64_t n = c->n - i0 < 47 ? c->n - i0 : 47;
            d->decode(&m, i0, n, out);
            assert_true(same_values(out, c->decoded + i0, n));
        }
        d->decode(&m, c->n, 0, out);
        free(out);
    }
    golden_close(&g);
}

static void encodes_to_the_byte(void **state) {
    const csn_dtype *d;
    golden_file g = open_dtype(&d, state);
    caisson_error err;
    for (unsigned n_threads = 1; n_threads <= 3; n_threads++) {
        csn_pool *pool = NULL;
        assert_int_equal(csn_pool_new(n_threads, &pool, &err), CAISSON_OK);
        for (size_t i = 0; i < g.n_cases; i++) {
            const golden_case *c = &g.cases[i];
            if (c->input == NULL || !c->rung_search || c->diffuses) {
                continue;
            }
            csn_buf out = CSN_BUF_INIT(1 << 24);
            const csn_encode_options o = {.encoder = CSN_ENCODER_REFERENCE,
                                          .mean_bits = c->mean_bits,
                                          .keep = c->keep,
                                          .col_rms = c->col_rms};
            caisson_status status = d->encode(c->input, &c->shape, &o, pool, &out, &err);
            /* the corner values of f16 hold some that overflow: told, and written all the same */
            assert_true(status == CAISSON_OK ||
                        (status == CAISSON_E_BOUNDS && strstr(c->name, "special") != NULL));
            assert_int_equal(out.len, c->n_encoded);
            for (uint64_t k = 0; k < c->n_encoded; k++) {
                if ((uint8_t)out.ptr[k] != c->encoded[k]) {
                    fail_msg("%s %s: byte %d of %d is %02x, want %02x", d->name, c->name, (int)k,
                             (int)c->n_encoded, (uint8_t)out.ptr[k], c->encoded[k]);
                }
            }
            csn_buf_free(&out);
        }
        csn_pool_free(pool);
    }
    golden_close(&g);
}

#define CASE(what, function, folder, name)                                                         \
    {                                                                                              \
#name " " what " (CMF 3.2), " folder, function, NULL, NULL, (char[]) {                     \
            folder "/" #name                                                                       \
        }                                                                                          \
    }

#define DECODE_TESTS(name)                                                                         \
    CASE("sizes equal the reference", sizes_equal_the_reference, "codec", name),                   \
        CASE("sizes equal the reference", sizes_equal_the_reference, "shapes", name),              \
        CASE("decodes to the bit", decodes_to_the_bit, "codec", name),                             \
        CASE("decodes to the bit", decodes_to_the_bit, "shapes", name)

#define DTYPE_TESTS(name)                                                                          \
    DECODE_TESTS(name),                                                                            \
        CASE("encodes to the byte, 1 to 3 threads", encodes_to_the_byte, "codec", name),           \
        CASE("encodes to the byte, 1 to 3 threads", encodes_to_the_byte, "shapes", name)

int main(void) {
    const struct CMUnitTest tests[] = {
        DTYPE_TESTS(f32),   DTYPE_TESTS(f16),      DTYPE_TESTS(bf16),     DTYPE_TESTS(q8_row),
        DTYPE_TESTS(q8_2f), DTYPE_TESTS(q4_block), DTYPE_TESTS(q4_tiled), DTYPE_TESTS(q4tp),
        DTYPE_TESTS(q1),    DTYPE_TESTS(q1s),      DTYPE_TESTS(q1t),      DECODE_TESTS(q2tp),
        DTYPE_TESTS(vbit),  DTYPE_TESTS(vbit_ro),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
