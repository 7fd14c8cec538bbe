/* SPDX-License-Identifier: Apache-2.0 */
/* Taps see every token once, whatever the batches, and change nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "engine/session.h"
#include "support/temp_dir.h"
#include "support/tiny_bits.h"

enum { N = 23, N_LAYERS = 3, MAX_DIM = 1024, MAX_INPUTS = 64 };

static int32_t ids[N];

struct seen {
    float h[N_LAYERS][N][MAX_DIM]; /* residual stream by position */
    uint32_t n_rows[N_LAYERS];
    struct {
        csn_str name;
        uint64_t n, cols;
        double sum;
    } inputs[MAX_INPUTS];
    unsigned n_inputs;
    uint64_t hidden;
};

static void see_input(void *ctx, const csn_weight *w, const float *x, uint64_t x_stride,
                      uint64_t n) {
    struct seen *s = ctx;
    unsigned i = 0;
    while (i < s->n_inputs && !csn_str_eq(s->inputs[i].name, w->name)) {
        i++;
    }
    assert_true(i < MAX_INPUTS);
    s->n_inputs += i == s->n_inputs;
    s->inputs[i].name = w->name;
    s->inputs[i].cols = w->m.cols;
    s->inputs[i].n += n;
    for (uint64_t t = 0; t < n; t++) {
        for (uint64_t k = 0; k < w->m.cols; k++) {
            s->inputs[i].sum += (double)x[t * x_stride + k] * (double)x[t * x_stride + k];
        }
    }
}

static void see_layer(void *ctx, uint32_t i_visit, uint32_t pos0, const float *h, uint64_t n) {
    struct seen *s = ctx;
    assert_true(i_visit < N_LAYERS && pos0 == s->n_rows[i_visit]); /* each once, in order */
    for (uint64_t t = 0; t < n; t++) {
        memcpy(s->h[i_visit][pos0 + t], h + t * s->hidden, s->hidden * sizeof(float));
    }
    s->n_rows[i_visit] += (uint32_t)n;
}

/* Runs all ids in batches of n_ubatch; returns the bits of the logits. */
static uint64_t run(csn_model *m, uint32_t n_ubatch, struct seen *seen, bool want_all) {
    csn_session *s = NULL;
    caisson_error err = {0};
    csn_session_options o = {.n_ctx = 64, .n_ubatch = n_ubatch, .n_threads = 2};
    uint64_t bits = TINY_BITS_START;
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    csn_tap tap = {see_input, see_layer, seen};
    if (seen != NULL) {
        memset(seen, 0, sizeof(*seen));
        seen->hidden = csn_model_plan(m)->hidden;
        assert_true(seen->hidden <= MAX_DIM);
        csn_session_set_tap(s, &tap);
    }
    tiny_check(csn_session_eval(s, ids, N, want_all, NULL, NULL, NULL, &err), &err);
    for (uint32_t i = 0; i < (want_all ? N : 1); i++) {
        tiny_hash_row(&bits, i, csn_session_logits(s, i), &err);
    }
    csn_session_free(s);
    return bits;
}

static struct seen a;
static struct seen b;

static void every_token_is_seen_once_for_any_batch(void **state) {
    (void)state;
    caisson_error err = {0};
    csn_model *m = NULL;
    tiny_write(&(tiny_options){.dtype = "q8_row", .n_layers = N_LAYERS, .untied = true},
               temp_path("m.cmf"));
    tiny_check(tiny_open(temp_path("m.cmf"), &m, &err), &err);
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 37 + 11) % TINY_VOCAB;
    }
    uint64_t bits = run(m, 512, NULL, true);
    uint64_t last = run(m, 512, NULL, false);
    assert_true(run(m, 512, &a, true) == bits);
    assert_int_equal(a.n_inputs, 7 * N_LAYERS + 1);
    const uint32_t batches[] = {1, 7, 512};
    for (int i = 0; i < 3; i++) {
        assert_true(run(m, batches[i], &b, false) == last);
        assert_int_equal(b.n_inputs, a.n_inputs);
        for (unsigned k = 0; k < a.n_inputs; k++) {
            bool is_head = csn_str_is(b.inputs[k].name, "lm_head.weight");
            assert_int_equal(b.inputs[k].n, is_head ? 1 : N);
            assert_true(is_head ||
                        fabs(b.inputs[k].sum - a.inputs[k].sum) <= 1e-9 * a.inputs[k].sum);
        }
        for (int v = 0; v < N_LAYERS; v++) {
            assert_int_equal(b.n_rows[v], N);
            assert_memory_equal(a.h[v], b.h[v], sizeof(a.h[v]));
        }
    }
    csn_model_free(m);
}

/* What layers leave is what the next product's norm reads: RMS 1 behind it, times the weights. */
static void the_stream_is_that_of_the_next_norm(void **state) {
    (void)state;
    caisson_error err = {0};
    csn_model *m = NULL;
    tiny_write(&(tiny_options){.dtype = "f32", .n_layers = N_LAYERS}, temp_path("n.cmf"));
    tiny_check(tiny_open(temp_path("n.cmf"), &m, &err), &err);
    (void)run(m, 512, &a, true);
    const csn_plan *p = csn_model_plan(m);
    for (int v = 0; v + 1 < N_LAYERS; v++) {
        double want = 0;
        for (int t = 0; t < N; t++) {
            double square = 0;
            for (uint32_t k = 0; k < p->hidden; k++) {
                square += (double)a.h[v][t][k] * (double)a.h[v][t][k];
            }
            double inv = 1 / sqrt(square / p->hidden + (double)p->norm_eps);
            for (uint32_t k = 0; k < p->hidden; k++) {
                double x = (double)a.h[v][t][k] * inv * (double)p->layers[v + 1].input_norm[k];
                want += x * x;
            }
        }
        char name[64];
        (void)snprintf(name, sizeof(name), "model.layers.%d.self_attn.k_proj.weight", v + 1);
        bool found = false;
        for (unsigned k = 0; k < a.n_inputs; k++) {
            if (csn_str_is(a.inputs[k].name, name)) {
                found = true;
                assert_true(fabs(a.inputs[k].sum - want) < 1e-4 * want);
            }
        }
        assert_true(found);
    }
    csn_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_is_seen_once_for_any_batch),
        cmocka_unit_test(the_stream_is_that_of_the_next_norm),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
