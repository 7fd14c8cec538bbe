/* SPDX-License-Identifier: Apache-2.0 */
/* Containers of the existing engine, against the answers that it gives
 * (tests/oracle/warp_answers.py); and the same bits whatever the cache, the threads, the way of
 * reading and the cut of the prompt. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "engine/session.h"
#include "support/tiny_model.h"

#define GOLDEN CSN_SOURCE_DIR "/tests/golden/warp/"

enum { N_PROMPT = 6, N_GREEDY = 8, N_SHOWN = 8, MAX_VOCAB = 512, RECORD = 12288 };

static const int32_t prompt[N_PROMPT] = {3, 7, 11, 5, 200, 42};

/* How a model is opened and run; none of it may change a bit. */
struct how {
    uint64_t cache_bytes; /* 0: everything fits */
    csn_expert_io io;
    bool looks_ahead, at_once;
    unsigned n_threads;
};

static csn_model *open_model(const char *name, const struct how *how) {
    char path[512];
    csn_warp *w;
    csn_store *store;
    csn_stream *stream;
    csn_model *m = NULL;
    caisson_error err = {0};
    snprintf(path, sizeof(path), GOLDEN "%s.waste", name);
    tiny_check(csn_warp_open(csn_fs_os(), path, NULL, &w, &err), &err);
    tiny_check(csn_store_new_warp(w, &(csn_store_options){0}, &store, &err), &err);
    uint64_t cache_bytes = how->cache_bytes != 0 ? how->cache_bytes : 1 << 20;
    csn_stream_options so = {.experts = {.cache_bytes = cache_bytes, .io = how->io},
                             .looks_ahead = how->looks_ahead,
                             .verify = true};
    tiny_check(csn_stream_new(store, &so, &stream, &err), &err);
    csn_store_set_stream(store, stream);
    tiny_check(csn_model_new(store, &m, &err), &err);
    return m;
}

struct answer {
    uint32_t n_vocab;
    int32_t greedy[N_GREEDY];
    float first[MAX_VOCAB], last[MAX_VOCAB]; /* after the prompt; after all greedy tokens */
};

static int32_t argmax(const float *x, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return (int32_t)best;
}

static void run(const char *name, csn_compute compute, const struct how *how, struct answer *ret) {
    caisson_error err = {0};
    csn_model *m = open_model(name, how);
    csn_session *s;
    csn_session_options o = {.n_ctx = 64,
                             .n_threads = how->n_threads,
                             .compute = compute,
                             .type_k = CSN_KV_F32,
                             .type_v = CSN_KV_F32};
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    ret->n_vocab = csn_session_n_vocab(s);
    assert_true(ret->n_vocab <= MAX_VOCAB);
    uint32_t step = how->at_once ? N_PROMPT : 1;
    for (uint32_t i = 0; i < N_PROMPT; i += step) {
        tiny_check(csn_session_eval(s, prompt + i, step, false, NULL, NULL, NULL, &err), &err);
    }
    memcpy(ret->first, csn_session_logits(s, 0), ret->n_vocab * sizeof(float));
    for (int i = 0; i < N_GREEDY; i++) {
        ret->greedy[i] = argmax(csn_session_logits(s, 0), ret->n_vocab);
        tiny_check(csn_session_eval(s, &ret->greedy[i], 1, false, NULL, NULL, NULL, &err), &err);
    }
    memcpy(ret->last, csn_session_logits(s, 0), ret->n_vocab * sizeof(float));
    csn_session_free(s);
    csn_model_free(m);
}

/* ---- the existing engine's answers ---- */

static csn_json *answers;

static double number(const csn_jval *v) {
    double x = NAN;
    assert_true(csn_jval_f64(v, &x));
    return x;
}

static void check_logits(const char *name, const char *what, const csn_jval *want, const float *got,
                         double tolerance) {
    int i = 0;
    for (csn_jiter it = csn_jval_iter(want); csn_jiter_next(&it); i++) {
        if (!(fabs(number(it.value) - (double)got[i]) <= tolerance)) {
            fail_msg("%s, %s, logit %d: %g, want %g", name, what, i, (double)got[i],
                     number(it.value));
        }
    }
    assert_int_equal(i, N_SHOWN);
}

static void check_answer(const char *name, double tolerance) {
    static const struct how how = {.n_threads = 1};
    const csn_jval *want = csn_jval_get(csn_json_root(answers), name);
    struct answer got;
    run(name, CSN_COMPUTE_F32, &how, &got);
    check_logits(name, "after the prompt", csn_jval_get(want, "logits"), got.first, tolerance);
    int i = 0;
    for (csn_jiter it = csn_jval_iter(csn_jval_get(want, "greedy")); csn_jiter_next(&it); i++) {
        assert_int_equal(got.greedy[i], (int)number(it.value));
    }
    assert_int_equal(i, N_GREEDY);
    check_logits(name, "after the answer", csn_jval_get(want, "after"), got.last, tolerance);
    double sum = 0;
    double squares = 0;
    for (uint32_t k = 0; k < got.n_vocab; k++) {
        sum += (double)got.first[k];
        squares += (double)got.first[k] * (double)got.first[k];
    }
    assert_true(fabs(sum - number(csn_jval_get(want, "sum"))) < tolerance * got.n_vocab);
    assert_true(fabs(squares - number(csn_jval_get(want, "sumsq"))) < tolerance * 2e4);
}

/* The README's tolerances: with int8 tables another order of summation in front of them may flip an
 * entry by one step. */
static void kimi_linear(void **state) {
    (void)state;
    check_answer("vq3r-base", 1e-3);
    check_answer("vq3r-tok", 1e-3);
    check_answer("vq2r", 1e-3);
    check_answer("vq3r-q3g", 1e-3);
}

static void rows_and_columns_that_fill_no_block(void **state) {
    (void)state;
    check_answer("vq3r-odd", 1e-3);
}

static void latent_attention_with_rope(void **state) {
    (void)state;
    check_answer("vq3r-rope", 1e-3);
}

static void k3(void **state) {
    (void)state;
    check_answer("vq3r-k3", 1e-3);
    check_answer("vq4p-k3", 0.1);
}

static void packed_indices(void **state) {
    (void)state;
    check_answer("vq4p", 0.1);
}

/* ---- placement ---- */

static void same_bits_however_it_is_run(void **state) {
    static const char *const names[] = {"vq3r-base", "vq2r", "vq4p-k3", "vq3r-rope"};
    static const struct how hows[] = {
        {.n_threads = 2},
        {.n_threads = 3, .at_once = true},
        {.cache_bytes = 4 * RECORD, .n_threads = 1, .looks_ahead = true},
        {.cache_bytes = 6 * RECORD, .n_threads = 2, .looks_ahead = true, .at_once = true},
        {.cache_bytes = 4 * RECORD, .n_threads = 2, .io = CSN_EXPERT_IO_THREADS, .at_once = true},
        {.cache_bytes = 8 * RECORD, .n_threads = 1, .io = CSN_EXPERT_IO_BUFFERED},
    };
    static const csn_compute modes[] = {CSN_COMPUTE_F32, CSN_COMPUTE_INT8};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (size_t c = 0; c < 2; c++) {
            static const struct how one = {.n_threads = 1};
            struct answer want;
            run(names[i], modes[c], &one, &want);
            for (size_t k = 0; k < sizeof(hows) / sizeof(hows[0]); k++) {
                struct answer got;
                run(names[i], modes[c], &hows[k], &got);
                assert_memory_equal(got.first, want.first, want.n_vocab * sizeof(float));
                assert_memory_equal(got.last, want.last, want.n_vocab * sizeof(float));
            }
        }
    }
}

static int read_answers(void **state) {
    csn_buf bytes = CSN_BUF_INIT(1 << 20);
    caisson_error err = {0};
    (void)state;
    tiny_check(csn_fs_read_all(csn_fs_os(), GOLDEN "answers.json", 1 << 20, &bytes, &err), &err);
    tiny_check(csn_json_parse(csn_buf_view(&bytes), 0, &answers, &err), &err);
    csn_buf_free(&bytes);
    return 0;
}

static int free_answers(void **state) {
    (void)state;
    csn_json_free(answers);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kimi_linear),
        cmocka_unit_test(rows_and_columns_that_fill_no_block),
        cmocka_unit_test(latent_attention_with_rope),
        cmocka_unit_test(k3),
        cmocka_unit_test(packed_indices),
        cmocka_unit_test(same_bits_however_it_is_run),
    };
    return cmocka_run_group_tests(tests, read_answers, free_answers);
}
