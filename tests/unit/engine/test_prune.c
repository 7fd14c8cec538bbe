/* SPDX-License-Identifier: Apache-2.0 */
/* Which neurons, heads and experts a mask switches off. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/prune.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

enum { N = 40, BYTES = TINY_FFN / 8 };

static int32_t ids[N];
static csn_cmf_mask active; /* of the model that is opened with one */

static csn_model *open_model(const tiny_options *o, bool has_mask) {
    csn_cmf *cmf;
    csn_store *store;
    csn_model *m = NULL;
    caisson_error err = {0};
    tiny_write(o, temp_path("m.cmf"));
    tiny_check(csn_cmf_open(csn_fs_os(), temp_path("m.cmf"), &cmf, &err), &err);
    if (has_mask) {
        cmf->masks = (csn_cmf_masks){.masks = &active, .n = 1, .default_task = active.name};
    }
    tiny_check(csn_store_new(cmf, &(csn_store_options){0}, &store, &err), &err);
    tiny_check(csn_model_new(store, &m, &err), &err);
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 29 + 5) % TINY_VOCAB;
    }
    return m;
}

static csn_cmf_mask prune(csn_model *m, csn_prune_options o, csn_arena *arena) {
    csn_session *s = NULL;
    csn_calibration c = {0};
    csn_cmf_mask mask = {0};
    caisson_error err = {0};
    csn_session_options so = {.n_ctx = N, .task = ""};
    tiny_check(csn_session_new(m, &so, &s, &err), &err);
    tiny_check(csn_calibrate(s, ids, N, -1, NULL, &c, &err), &err);
    tiny_check(csn_prune(m, &c, &o, arena, &mask, &err), &err);
    csn_calibration_done(&c);
    csn_session_free(s);
    return mask;
}

static void keep_stream(void *ctx, uint32_t i_visit, uint32_t pos0, const float *h, uint64_t n) {
    assert_int_equal(i_visit + pos0, 0);
    assert_int_equal(n, N);
    memcpy(ctx, h, (size_t)N * TINY_HIDDEN * sizeof(float));
}

static void stream_of(csn_model *m, const char *task, float *ret) {
    csn_session *s = NULL;
    caisson_error err = {0};
    const csn_tap tap = {.layer = keep_stream, .ctx = ret};
    csn_session_options so = {.n_ctx = N, .task = task};
    tiny_check(csn_session_new(m, &so, &s, &err), &err);
    csn_session_set_tap(s, &tap);
    tiny_check(csn_session_eval(s, ids, N, false, NULL, NULL, NULL, &err), &err);
    csn_session_free(s);
}

/* Every neuron is switched off alone and the change of the layer's output is measured: those that
 * prune keeps change it more than those it drops. */
static void the_neurons_that_matter_least_go(void **state) {
    (void)state;
    static float dense[N * TINY_HIDDEN];
    static float masked[N * TINY_HIDDEN];
    const tiny_options o = {.dtype = "f32", .n_layers = 1};
    csn_arena arena = {0};
    csn_model *m = open_model(&o, false);
    csn_cmf_mask mask = prune(m, (csn_prune_options){.sparsity = 0.5f, .scattered = true}, &arena);
    stream_of(m, "", dense);
    csn_model_free(m);
    assert_int_equal(csn_bit_count(mask.ffn, TINY_FFN), TINY_FFN / 2);
    assert_true(mask.sparsity == 0.5f);
    double least_kept = 1e300;
    double most_dropped = 0;
    for (unsigned j = 0; j < TINY_FFN; j++) {
        uint8_t ffn[BYTES];
        memset(ffn, 0xff, sizeof(ffn));
        ffn[j / 8] &= (uint8_t) ~(1u << (j % 8));
        active = mask;
        active.name = CSN_STR("one");
        active.ffn = ffn;
        m = open_model(&o, true);
        stream_of(m, "one", masked);
        csn_model_free(m);
        double change = 0;
        for (int i = 0; i < N * TINY_HIDDEN; i++) {
            double d = (double)dense[i] - (double)masked[i];
            change += d * d;
        }
        if (csn_bit(mask.ffn, j)) {
            least_kept = change < least_kept ? change : least_kept;
        } else {
            most_dropped = change > most_dropped ? change : most_dropped;
        }
    }
    assert_true(most_dropped > 0 && most_dropped <= least_kept * 1.0001);
    csn_arena_done(&arena);
}

/* The FFN of the tiny model is one short run, which stays; heads go by their share. */
static void at_least_one_run_and_head_stay(void **state) {
    (void)state;
    csn_arena arena = {0};
    csn_model *m = open_model(&(tiny_options){.n_layers = 2}, false);
    csn_cmf_mask mask =
        prune(m, (csn_prune_options){.sparsity = 0.99f, .head_sparsity = 0.5f}, &arena);
    assert_int_equal(csn_bit_count(mask.ffn, TINY_FFN), TINY_FFN);
    assert_true(mask.sparsity == 0);
    assert_int_equal(csn_bit_count(mask.heads, TINY_HEADS), TINY_HEADS / 2);
    assert_int_equal(csn_bit_count(mask.gates, 2), 2);
    assert_null(mask.experts);
    mask = prune(m, (csn_prune_options){.head_sparsity = 0.99f}, &arena);
    assert_int_equal(csn_bit_count(mask.heads, TINY_HEADS), 1);
    csn_active *a = NULL; /* and the mask is one that runs */
    caisson_error err = {0};
    tiny_check(csn_active_new(csn_model_plan(m), csn_model_arch(m), &mask, &a, &err), &err);
    csn_active_free(a);
    csn_arena_done(&arena);
    csn_model_free(m);
}

static void change_loops(csn_arch *a) {
    a->num_loops = 3;
}

static void visits_of_a_layer_share_their_neurons(void **state) {
    (void)state;
    csn_arena arena = {0};
    csn_model *m = open_model(&(tiny_options){.n_layers = 2, .change = change_loops}, false);
    csn_cmf_mask mask = prune(m, (csn_prune_options){.sparsity = 0.25f, .scattered = true}, &arena);
    assert_int_equal(mask.n_ffn_rows, 6);
    for (int v = 2; v < 6; v++) {
        assert_memory_equal(mask.ffn + v * BYTES, mask.ffn + v % 2 * BYTES, BYTES);
    }
    assert_int_equal(csn_bit_count(mask.ffn, TINY_FFN), TINY_FFN * 3 / 4);
    csn_arena_done(&arena);
    csn_model_free(m);
}

static void experts_that_are_chosen_least_go(void **state) {
    (void)state;
    csn_arena arena = {0};
    csn_model *m = open_model(&(tiny_options){.n_layers = 2, .n_experts = 5}, false);
    csn_cmf_mask mask = prune(m, (csn_prune_options){.sparsity = 0.4f, .scattered = true}, &arena);
    assert_non_null(mask.experts);
    assert_int_equal(csn_bit_count(mask.experts, 5), 5);     /* layer 0 is dense */
    assert_int_equal(csn_bit_count(mask.experts + 1, 5), 3); /* 2 of 5 are off */
    assert_int_equal(csn_bit_count(mask.ffn + BYTES, TINY_FFN), TINY_FFN);
    mask = prune(m, (csn_prune_options){.sparsity = 0.9f, .scattered = true}, &arena);
    assert_int_equal(csn_bit_count(mask.experts + 1, 5), 2); /* as many as a token takes */
    csn_arena_done(&arena);
    csn_model_free(m);
}

static void shares_outside_of_0_to_1_are_refused(void **state) {
    (void)state;
    csn_arena arena = {0};
    csn_cmf_mask mask;
    caisson_error err = {0};
    csn_calibration c = {0};
    csn_model *m = open_model(&(tiny_options){.n_layers = 1}, false);
    const csn_prune_options bad[] = {
        {.sparsity = 1.0f}, {.sparsity = -0.1f}, {.head_sparsity = 1.5f}, {.head_sparsity = -1.0f}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(csn_prune(m, &c, &bad[i], &arena, &mask, &err), CAISSON_E_ARG);
    }
    csn_arena_done(&arena);
    csn_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_neurons_that_matter_least_go),
        cmocka_unit_test(at_least_one_run_and_head_stay),
        cmocka_unit_test(visits_of_a_layer_share_their_neurons),
        cmocka_unit_test(experts_that_are_chosen_least_go),
        cmocka_unit_test(shares_outside_of_0_to_1_are_refused),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
