/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration: the size of each input column, the same for any batch and number of threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "engine/calibrate.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

enum { N = 150, BOS = 1 };

static int32_t ids[N];

static csn_model *open_model(const tiny_options *o) {
    csn_model *m = NULL;
    caisson_error err = {0};
    tiny_write(o, temp_path("m.cmf"));
    tiny_check(tiny_open(temp_path("m.cmf"), &m, &err), &err);
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 31 + 7) % TINY_VOCAB;
    }
    return m;
}

static csn_calibration calibrate(csn_model *m, csn_session_options o, int32_t bos) {
    csn_session *s = NULL;
    csn_calibration c = {0};
    caisson_error err = {0};
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    tiny_check(csn_calibrate(s, ids, N, bos, NULL, &c, &err), &err);
    assert_int_equal(csn_session_n_past(s), 0);
    csn_session_free(s);
    return c;
}

static void sums_ignore_batches_and_threads(void **state) {
    (void)state;
    csn_model *m = open_model(&(tiny_options){.dtype = "q8_row", .n_layers = 2, .n_experts = 4});
    csn_session_options o = {.n_ctx = 64, .n_threads = 1};
    csn_calibration a = calibrate(m, o, BOS);
    o.n_threads = 3;
    o.n_ubatch = 5;
    csn_calibration b = calibrate(m, o, BOS);
    assert_int_equal(a.n, b.n);
    const uint64_t n_seen = N + 3; /* a BOS before each window of 63 */
    for (uint32_t i = 0; i < a.n; i++) {
        const csn_columns *x = &a.weights[i];
        const csn_columns *y = csn_calibration_find(&b, x->name);
        assert_non_null(y);
        assert_int_equal(x->cols, y->cols);
        bool is_expert = csn_str_find(x->name, CSN_STR(".experts."), 0) != SIZE_MAX;
        assert_int_equal(x->n, y->n);
        assert_true(is_expert || x->n == n_seen); /* each position, of the head too */
        assert_memory_equal(x->sum_squares, y->sum_squares, x->cols * sizeof(double));
    }
    csn_calibration_done(&a);
    csn_calibration_done(&b);
    csn_model_free(m);
}

/* Behind the norm of the first layer a vector's mean square is that of the norm's weights, times
 * x^2 / (mean x^2 + eps): computed here from the embeddings alone. */
static void the_first_layer_reads_the_normed_embeddings(void **state) {
    (void)state;
    csn_model *m = open_model(&(tiny_options){.dtype = "f32", .n_layers = 1});
    csn_calibration c = calibrate(m, (csn_session_options){.n_ctx = N}, -1);
    const csn_plan *p = csn_model_plan(m);
    const csn_columns *q =
        csn_calibration_find(&c, CSN_STR("model.layers.0.self_attn.q_proj.weight"));
    assert_non_null(q);
    assert_int_equal(q->n, N);
    double want[1024] = {0};
    assert_true(p->hidden <= 1024);
    for (int t = 0; t < N; t++) {
        float x[1024];
        double square = 0;
        p->embed.m.dtype->decode(&p->embed.m, (uint64_t)ids[t] * p->hidden, p->hidden, x);
        for (uint32_t i = 0; i < p->hidden; i++) {
            square += (double)x[i] * (double)x[i];
        }
        double inv = 1 / sqrt(square / p->hidden + (double)p->norm_eps);
        for (uint32_t i = 0; i < p->hidden; i++) {
            double y = (double)x[i] * inv * (double)p->layers[0].input_norm[i];
            want[i] += y * y;
        }
    }
    float rms[1024];
    csn_columns_rms(q, rms);
    for (uint32_t i = 0; i < p->hidden; i++) {
        assert_true(fabs(q->sum_squares[i] - want[i]) <= 1e-5 * want[i] + 1e-12);
        assert_true(fabs((double)rms[i] - sqrt(want[i] / N)) <= 1e-5 * sqrt(want[i] / N) + 1e-9);
    }
    csn_calibration_done(&c);
    csn_model_free(m);
}

static void experts_count_their_tokens(void **state) {
    (void)state;
    csn_model *m = open_model(&(tiny_options){.dtype = "f32", .n_layers = 2, .n_experts = 4});
    csn_calibration c = calibrate(m, (csn_session_options){.n_ctx = N}, -1);
    uint64_t n = 0;
    for (int e = 0; e < 4; e++) {
        char name[64];
        snprintf(name, sizeof(name), "model.layers.1.mlp.experts.%d.gate_proj.weight", e);
        const csn_columns *w = csn_calibration_find(&c, csn_str_from(name));
        n += w != NULL ? w->n : 0;
    }
    assert_int_equal(n, N * csn_model_plan(m)->layers[1].moe->top_k);
    csn_calibration_done(&c);
    csn_model_free(m);
}

static bool stop_at_once(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)ctx;
    (void)stage;
    (void)done;
    (void)total;
    return false;
}

static void nothing_to_read_and_a_stop(void **state) {
    (void)state;
    csn_model *m = open_model(&(tiny_options){.dtype = "f32", .n_layers = 1});
    csn_session *s = NULL;
    csn_calibration c = {0};
    caisson_error err = {0};
    csn_progress stop = {stop_at_once, NULL};
    csn_session_options o = {.n_ctx = 1};
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    assert_int_equal(csn_calibrate(s, ids, N, BOS, NULL, &c, &err), CAISSON_E_ARG);
    csn_session_free(s);
    o.n_ctx = 2;
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    assert_int_equal(csn_calibrate(s, ids, 0, -1, NULL, &c, &err), CAISSON_E_ARG);
    assert_int_equal(csn_calibrate(s, ids, N, -1, &stop, &c, &err), CAISSON_E_CANCELLED);
    csn_session_free(s);
    csn_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_ignore_batches_and_threads),
        cmocka_unit_test(the_first_layer_reads_the_normed_embeddings),
        cmocka_unit_test(experts_count_their_tokens),
        cmocka_unit_test(nothing_to_read_and_a_stop),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
