/* SPDX-License-Identifier: Apache-2.0 */
/* The search for scales: its error is never larger than that of the reference's choice, and its
 * bytes are the same on every CPU and compiler. */
#include "unit/test.h"

#include <math.h>

#include "base/cpu.h"
#include "base/hash64.h"
#include "quant/quant_internal.h"
#include "support/golden_codec.h"

static const char *const names[] = {"q4_block", "q4_tiled", "q4tp", "vbit"};
enum { VBIT = 3, N_NAMES, ROWS = 64, COLS = 128, N = ROWS * COLS };

/* Squared error of each group of 32. */
static void errors(const csn_dtype *d, const csn_shape *s, const float *x, uint64_t n,
                   csn_encoder encoder, csn_buf *bytes, double *ret) {
    caisson_error err;
    float *y = malloc(n * sizeof(float));
    assert_non_null(y);
    ASSERT_OK(d->encode(x, s, &(csn_encode_options){.encoder = encoder}, NULL, bytes, &err), &err);
    csn_matrix m = csn_matrix_make(d, s, bytes->ptr, bytes->len);
    d->decode(&m, 0, n, y);
    for (uint64_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)y[i];
        ret[i / 32] = (i % 32 == 0 ? 0 : ret[i / 32]) + e * e;
    }
    free(y);
}

/* Fails on any group that the search made worse; returns the ratio of all errors. */
static double compare(const char *name, const char *what, const csn_shape *s, const float *x,
                      uint64_t n, uint64_t *ret_hash) {
    const csn_dtype *d = csn_dtype_by_name(csn_str_from(name));
    csn_buf bytes = CSN_BUF_INIT(1 << 24);
    double *a = calloc(n / 32 + 1, sizeof(double));
    double *b = calloc(n / 32 + 1, sizeof(double));
    assert_true(a != NULL && b != NULL);
    errors(d, s, x, n, CSN_ENCODER_REFERENCE, &bytes, a);
    errors(d, s, x, n, CSN_ENCODER_SEARCH, &bytes, b);
    double all_a = 0;
    double all_b = 0;
    for (uint64_t g = 0; g < (n + 31) / 32; g++) {
        if (b[g] > a[g]) {
            fail_msg("%s, %s, group %d: %.17g, the reference %.17g", name, what, (int)g, b[g],
                     a[g]);
        }
        all_a += a[g];
        all_b += b[g];
    }
    *ret_hash = csn_hash64(bytes.ptr, bytes.len);
    csn_buf_free(&bytes);
    free(a);
    free(b);
    return all_a > 0 ? all_b / all_a : 1;
}

/* Each kind is a trap of its own: see fill(). */
enum kind { BELL, UNIFORM, SPIKE, SPIKES, EVEN, POSITIVE, TWO, TINY, HUGE_ONES, MIXED, N_KINDS };
static const char *const kinds[] = {"bell",           "uniform",  "one spike", "spikes",
                                    "all equal",      "positive", "two",       "tiny",
                                    "near f16's end", "mixed"};

static float random_float(uint32_t *seed) { /* in -1..1 */
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}

static void fill(enum kind kind, float *x) {
    uint32_t seed = 77 + (uint32_t)kind;
    for (int i = 0; i < N; i++) {
        float u = random_float(&seed);
        float bell = 0.02f * (u + random_float(&seed) + random_float(&seed) + random_float(&seed));
        switch (kind) {
        case BELL: x[i] = bell; break;
        case UNIFORM: x[i] = u; break;
        case SPIKE: x[i] = i % 32 == 5 ? -30.0f : bell; break;
        case SPIKES: x[i] = i % 7 == 0 ? u * 10 : bell; break;
        case EVEN: x[i] = i / 32 % 2 == 0 ? 0.37f : -0.37f; break;
        case POSITIVE: x[i] = u + 1.01f; break;
        case TWO: x[i] = u > 0 ? 1.0f : -0.93f; break;
        case TINY: x[i] = u * 0x1p-12f * (float)(i / 32 % 9); break;
        case HUGE_ONES: x[i] = u * 450000.0f; break;
        default: x[i] = ldexpf(u, (i / 32) % 20 - 16); break;
        }
    }
}

static void never_worse_than_the_reference(void **state) {
    (void)state;
    csn_shape s = {.n_dims = 2, .dim = {ROWS, COLS}};
    float *x = malloc(N * sizeof(float));
    uint64_t hash;
    assert_non_null(x);
    for (int k = 0; k < N_KINDS; k++) {
        fill((enum kind)k, x);
        for (int i = 0; i < N_NAMES; i++) {
            if (i == VBIT && k == HUGE_ONES) {
                continue; /* no scale of f16 reaches them in 3 bits */
            }
            double ratio = compare(names[i], kinds[k], &s, x, N, &hash);
            if (k == BELL) {
                if (!(ratio < (i == 2 ? 0.95 : 0.85))) {
                    fail_msg("%s: %g of the reference's error", names[i], ratio);
                }
            }
        }
    }
    free(x);
}

/* A row that ends inside a group: q4_block alone is written for it. */
static void short_groups_are_searched_too(void **state) {
    (void)state;
    csn_shape s = {.n_dims = 1, .dim = {0}};
    float x[N];
    uint64_t hash;
    fill(BELL, x);
    for (uint64_t n = 1; n < 70; n++) {
        s.dim[0] = n;
        (void)compare("q4_block", "short", &s, x, n, &hash);
    }
}

static void golden_inputs_are_not_made_worse(void **state) {
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        char path[512];
        snprintf(path, sizeof(path), CSN_SOURCE_DIR "/tests/golden/cmf/codec/%s.safetensors",
                 names[i]);
        golden_file g = golden_open(path);
        for (size_t k = 0; k < g.n_cases; k++) {
            const golden_case *c = &g.cases[k];
            uint64_t hash;
            if (c->input != NULL && strstr(c->name, "special") == NULL) {
                (void)compare(names[i], c->name, &c->shape, c->input, c->n, &hash);
            }
        }
        golden_close(&g);
    }
}

/* A group that a scale of the other sign serves better: 8 codes above zero, 7 below. */
static void scales_may_be_negative(void **state) {
    (void)state;
    csn_shape s = {.n_dims = 2, .dim = {1, 32}};
    float x[32];
    float y[32];
    csn_buf out = CSN_BUF_INIT(1 << 10);
    caisson_error err;
    for (int i = 0; i < 32; i++) {
        x[i] = (float)(i % 16 - 7) * 0.25f; /* -7..8 quarters: exact with scale -0.25 */
    }
    const csn_dtype *d = csn_dtype_by_name(CSN_STR("q4_tiled"));
    ASSERT_OK(d->encode(x, &s, &(csn_encode_options){0}, NULL, &out, &err), &err);
    assert_int_equal(csn_load16((const uint8_t *)out.ptr), 0xb400); /* -0.25 */
    csn_matrix m = csn_matrix_make(d, &s, out.ptr, out.len);
    d->decode(&m, 0, 32, y);
    csn_buf_free(&out);
    for (int i = 0; i < 32; i++) {
        assert_true(x[i] == y[i]);
    }
}

/* The hashes are those of GCC 12 on x86-64: any other build must write the same. */
static void same_bytes_everywhere(void **state) {
    (void)state;
    static const uint64_t want[N_NAMES] = {
        UINT64_C(0x44c3a2a999d22869), UINT64_C(0xbda4dbc7406204b9), UINT64_C(0xe936c9622893c623),
        UINT64_C(0x9641b51458c632b9)};
    csn_shape s = {.n_dims = 2, .dim = {ROWS, COLS}};
    float *x = malloc(N * sizeof(float));
    assert_non_null(x);
    fill(MIXED, x);
    for (int i = 0; i < N_NAMES; i++) {
        uint64_t hash;
        (void)compare(names[i], "mixed", &s, x, N, &hash);
        if (hash != want[i]) {
            fail_msg("%s: %016" PRIx64 ", want %016" PRIx64, names[i], hash, want[i]);
        }
    }
    free(x);
}

/* Rows of whole groups, and rows that end inside of one for the types that are written for them; a
 * NaN in the last. */
static void same_bytes_without_vectors(void **state) {
    (void)state;
    static const char *const types[] = {"q4_block", "q4_tiled", "q4tp", "vbit", "q8_row"};
    const uint32_t flags = csn_cpu_flags();
    float *x = malloc(N * sizeof(float));
    assert_non_null(x);
    for (int i = 0; i < 5 * (N_KINDS + 1); i++) {
        const int k = i / 5;
        const bool is_ragged = strcmp(types[i % 5], "q8_row") == 0 && k % 2 == 1;
        csn_shape s = {.n_dims = 2, .dim = {ROWS, is_ragged ? COLS - 9 : COLS}};
        csn_buf bytes[2] = {CSN_BUF_INIT(1 << 24), CSN_BUF_INIT(1 << 24)};
        caisson_status status[2];
        fill((enum kind)(k % N_KINDS), x);
        if (k == N_KINDS) {
            x[100] = NAN;
            x[101] = -NAN;
        }
        for (int plain = 0; plain < 2; plain++) {
            caisson_error err;
            csn_cpu_mask(plain != 0 ? 0 : flags);
            status[plain] =
                csn_dtype_by_name(csn_str_from(types[i % 5]))
                    ->encode(x, &s, &(csn_encode_options){0}, NULL, &bytes[plain], &err);
        }
        csn_cpu_mask(flags);
        assert_int_equal(status[0], status[1]);
        assert_int_equal(bytes[0].len, bytes[1].len);
        if (status[0] == CAISSON_OK) {
            assert_memory_equal(bytes[0].ptr, bytes[1].ptr, bytes[0].len);
        }
        csn_buf_free(&bytes[0]);
        csn_buf_free(&bytes[1]);
    }
    free(x);
}

/* A conversion keeps such a tensor in f32, after its encoder has seen it. */
static void values_beyond_every_scale_are_survived(void **state) {
    (void)state;
    static const char *const all[] = {"q8_row", "q8_2f", "q4_block", "q4_tiled", "q4tp",
                                      "vbit",   "q1",    "q1s",      "q1t"};
    csn_shape s = {2, {2, COLS}};
    float x[2 * COLS];
    for (int p = 16; p < 128; p++) {
        for (int i = 0; i < 2 * COLS; i++) {
            x[i] = ldexpf(i % 3 == 0 ? -1.7f : 1.3f, i % 2 == 0 ? p : 128 - p);
        }
        for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
            csn_buf bytes = CSN_BUF_INIT(1 << 20);
            caisson_error err;
            (void)csn_dtype_by_name(csn_str_from(all[k]))
                ->encode(x, &s, &(csn_encode_options){0}, NULL, &bytes, &err);
            csn_buf_free(&bytes);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_worse_than_the_reference),
        cmocka_unit_test(short_groups_are_searched_too),
        cmocka_unit_test(golden_inputs_are_not_made_worse),
        cmocka_unit_test(scales_may_be_negative),
        cmocka_unit_test(same_bytes_everywhere),
        cmocka_unit_test(same_bytes_without_vectors),
        cmocka_unit_test(values_beyond_every_scale_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
