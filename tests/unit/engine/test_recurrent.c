/* SPDX-License-Identifier: Apache-2.0 */
/* Models with latent and linear attention: their bits under every split of the tokens, and a
 * timeline that goes back although the state of linear attention cannot. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "engine/session.h"
#include "model/active.h"
#include "support/family_model.h"

enum { N = 100, VOCAB = 96 };

static int32_t ids[N];

static csn_session *session_of(csn_model *m, csn_session_options o) {
    csn_session *s = NULL;
    caisson_error err = {0};
    o.n_ctx = 256;
    o.n_threads = o.n_threads != 0 ? o.n_threads : 1;
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    return s;
}

#define BITS_START UINT64_C(14695981039346656037)

/* FNV-1a over the bits of the rows. */
static caisson_status hash_row(void *ctx, uint32_t i, const float *logits, caisson_error *err) {
    uint64_t *h = ctx;
    (void)i;
    (void)err;
    for (uint32_t k = 0; k < VOCAB; k++) {
        uint32_t bits;
        memcpy(&bits, &logits[k], sizeof(bits));
        *h = (*h ^ bits) * UINT64_C(1099511628211);
    }
    return CAISSON_OK;
}

static void eval(csn_session *s, const int32_t *id, uint32_t n, uint64_t *hash) {
    caisson_error err = {0};
    tiny_check(csn_session_eval(s, id, n, true, hash_row, hash, NULL, &err), &err);
}

/* Bits of all logits of the N ids, cut into calls of `step`. */
static uint64_t bits_of(csn_model *m, csn_session_options o, uint32_t step) {
    csn_session *s = session_of(m, o);
    uint64_t h = BITS_START;
    for (uint32_t i = 0; i < N; i += step) {
        eval(s, ids + i, N - i < step ? N - i : step, &h);
    }
    csn_session_free(s);
    return h;
}

static void check_splits(csn_model *m, csn_compute compute, csn_kv_type kv) {
    csn_session_options o = {.n_ubatch = 512, .compute = compute, .type_k = kv, .type_v = kv};
    uint64_t want = bits_of(m, o, N);
    const uint32_t batches[] = {7, 33, 64};
    for (unsigned i = 0; i < 3; i++) {
        o.n_ubatch = batches[i];
        o.n_threads = i + 1;
        assert_true(bits_of(m, o, N) == want);
    }
    o.n_threads = 2;
    assert_true(bits_of(m, o, 1) == want);
}

static void bits_ignore_threads_and_batches(void **state) {
    csn_model *m = family_model(*state, "q8_row", NULL);
    check_splits(m, CSN_COMPUTE_F32, CSN_KV_F16);
    check_splits(m, CSN_COMPUTE_INT8, CSN_KV_Q8_0);
    csn_model_free(m);
}

static void bits_ignore_the_instruction_set(void **state) {
    for (int c = CSN_COMPUTE_F32; c <= CSN_COMPUTE_INT8; c++) {
        csn_session_options o = {.compute = (csn_compute)c};
        csn_model *m = family_model(*state, "q8_row", NULL);
        uint64_t want = bits_of(m, o, N);
        csn_model_free(m);
        csn_cpu_mask(0);
        m = family_model(*state, "q8_row", NULL); /* a model looks its kernels up at open */
        uint64_t scalar = bits_of(m, o, N);
        csn_cpu_mask(UINT32_MAX);
        csn_model_free(m);
        assert_true(scalar == want);
    }
}

/* Logits of token 60 to 99 behind the first 60, whatever happened in between. */
static uint64_t tail_bits(csn_session *s) {
    uint64_t h = BITS_START;
    eval(s, ids + 60, 40, &h);
    return h;
}

static void going_back_runs_what_is_left_again(void **state) {
    csn_model *m = family_model(*state, "f32", NULL);
    csn_session *s = session_of(m, (csn_session_options){.n_ubatch = 16});
    uint64_t ignored = BITS_START;
    eval(s, ids, 60, &ignored);
    uint64_t want = tail_bits(s);
    csn_session_truncate(s, 60);
    assert_int_equal(csn_session_n_past(s), 60);
    assert_true(tail_bits(s) == want);
    csn_session_truncate(s, 0);
    eval(s, ids + 70, 30, &ignored); /* other tokens */
    csn_session_truncate(s, 0);
    eval(s, ids, 60, &ignored);
    assert_true(tail_bits(s) == want);
    csn_session_free(s);
    csn_model_free(m);
}

static bool stop_later(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    int *calls = ctx;
    (void)stage;
    (void)done;
    (void)total;
    return (*calls)-- > 0;
}

static void a_cancelled_call_leaves_the_past(void **state) {
    csn_model *m = family_model(*state, "f32", NULL);
    csn_session *s = session_of(m, (csn_session_options){.n_ubatch = 16});
    uint64_t ignored = BITS_START;
    caisson_error err = {0};
    eval(s, ids, 60, &ignored);
    uint64_t want = tail_bits(s);
    csn_session_truncate(s, 60);
    for (int calls = 0; calls < 9; calls += 2) { /* in the replay too */
        int left = calls;
        csn_progress p = {stop_later, &left};
        assert_int_equal(csn_session_eval(s, ids + 50, 50, false, NULL, NULL, &p, &err),
                         CAISSON_E_CANCELLED);
        assert_int_equal(csn_session_n_past(s), 60);
    }
    assert_true(tail_bits(s) == want);
    csn_session_free(s);
    csn_model_free(m);
}

struct seen {
    uint32_t n, n_tokens;
};

static void count_layer(void *ctx, uint32_t i_visit, uint32_t pos0, const float *h, uint64_t n) {
    struct seen *seen = ctx;
    (void)pos0;
    (void)h;
    seen->n += i_visit == 0;
    seen->n_tokens += i_visit == 0 ? (uint32_t)n : 0;
}

static void taps_see_a_token_once(void **state) {
    csn_model *m = family_model(*state, "f32", NULL);
    csn_session *s = session_of(m, (csn_session_options){.n_ubatch = 16});
    struct seen seen = {0};
    const csn_tap tap = {.layer = count_layer, .ctx = &seen};
    csn_session_set_tap(s, &tap);
    uint64_t ignored = BITS_START;
    eval(s, ids, 60, &ignored);
    csn_session_truncate(s, 40);
    eval(s, ids + 40, 10, &ignored);
    assert_int_equal(seen.n_tokens, 70);
    csn_session_free(s);
    csn_model_free(m);
}

static void memory_of_a_timeline_is_what_its_layers_need(void **state) {
    (void)state;
    csn_model *m = family_model("kimi_linear", "f32", NULL);
    csn_session *s = session_of(m, (csn_session_options){.type_k = CSN_KV_F32});
    /* a row of 16 + 8 floats a position; 3 layers of 3 convolutions over 3 inputs of 60 channels
     * and of 3 states of 20 rows and a block of 32 columns, in whole 64 bytes */
    uint64_t latent = 256 * (16 + 8) * 4;
    uint64_t linear = ((3 * 3 * 60 + 3 * 20 * 32) * 4 + 63) / 64 * 64;
    assert_int_equal(csn_session_kv_bytes(s), latent + 3 * linear);
    csn_session_free(s);
    csn_model_free(m);
}

struct mask_case {
    uint8_t heads[8], experts[8], gates;
    csn_cmf_mask mask;
};

static void all_on(struct mask_case *c) {
    memset(c, 0xFF, sizeof(*c));
    memset(c->heads, 0x0F, sizeof(c->heads)); /* 4 of arch */
}

/* What the mask with these changes gives; rows of ffn are 64 bits. */
static caisson_status status_of(const char *family, struct mask_case *c, uint32_t n_layers,
                                caisson_error *err) {
    csn_model *m = family_model(family, "f32", NULL);
    csn_active *active = NULL;
    uint8_t ffn[8 * 8];
    memset(ffn, 0xFF, sizeof(ffn));
    c->mask = (csn_cmf_mask){.name = CSN_STR("m"),
                             .n_ffn_rows = n_layers,
                             .ffn = ffn,
                             .heads = c->heads,
                             .gates = &c->gates,
                             .experts = c->experts};
    caisson_status status =
        csn_active_new(csn_model_plan(m), csn_model_arch(m), &c->mask, &active, err);
    csn_active_free(active);
    csn_model_free(m);
    return status;
}

static void masks_that_cannot_run_are_refused_by_name(void **state) {
    (void)state;
    struct mask_case c;
    caisson_error err = {0};
    all_on(&c);
    assert_int_equal(status_of("deepseek_v3", &c, 3, &err), CAISSON_OK);
    c.heads[1] = 0x09; /* linear attention has three heads of its own */
    assert_int_equal(status_of("deepseek_v3", &c, 3, &err), CAISSON_OK);
    assert_int_equal(status_of("kimi_linear", &c, 4, &err), CAISSON_E_PARSE);
    assert_string_equal(err.want, "3");
    c.heads[1] = 0x05;
    assert_int_equal(status_of("kimi_linear", &c, 4, &err), CAISSON_OK);
    all_on(&c);
    c.gates = 0xFD;
    memset(c.experts, 0x3F, sizeof(c.experts));
    assert_int_equal(status_of("kimi_linear", &c, 4, &err), CAISSON_OK);
    assert_int_equal(status_of("kimi_k3", &c, 5, &err), CAISSON_E_UNSUPPORTED);
    assert_non_null(strstr(err.what, "attention residuals"));
}

#define ON(test, family)                                                                           \
    { #test " (" family ")", test, NULL, NULL, (void *)(uintptr_t)family }

static int start(void **state) {
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 37 + 11) % VOCAB;
    }
    return temp_dir_make(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON(bits_ignore_threads_and_batches, "deepseek_v3"),
        ON(bits_ignore_threads_and_batches, "kimi_linear"),
        ON(bits_ignore_threads_and_batches, "kimi_k3"),
        ON(bits_ignore_the_instruction_set, "deepseek_v3"),
        ON(bits_ignore_the_instruction_set, "kimi_k3"),
        ON(bits_ignore_the_instruction_set, "kimi_linear_wide"),
        ON(bits_ignore_threads_and_batches, "kimi_linear_wide"),
        ON(going_back_runs_what_is_left_again, "kimi_linear"),
        ON(going_back_runs_what_is_left_again, "deepseek_v3"),
        ON(a_cancelled_call_leaves_the_past, "kimi_linear"),
        ON(a_cancelled_call_leaves_the_past, "kimi_k3"),
        ON(taps_see_a_token_once, "kimi_linear"),
        cmocka_unit_test(masks_that_cannot_run_are_refused_by_name),
        cmocka_unit_test(memory_of_a_timeline_is_what_its_layers_need),
    };
    return cmocka_run_group_tests(tests, start, temp_dir_remove);
}
