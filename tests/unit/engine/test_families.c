/* SPDX-License-Identifier: Apache-2.0 */
/* Every family, from a Hugging Face directory through our converter to logits, against
 * transformers: tests/golden/families, made by tests/oracle/families.py. Prompts of 5, 63 and 700
 * tokens, then 16 decoded; f32 weights, f32 arithmetic, f32 cache. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "engine/session.h"
#include "support/family_model.h"

#define TOLERANCE 1e-4 /* of the largest golden logit of the position */

enum { MAX_TOKENS = 1024 };

static csn_json *read_golden(const char *family, csn_buf *bytes) {
    char path[512];
    caisson_error err = {0};
    csn_json *doc = NULL;
    snprintf(path, sizeof(path), FAMILY_GOLDEN "%s.json", family);
    tiny_check(csn_fs_read_all(csn_fs_os(), path, 64 << 20, bytes, &err), &err);
    tiny_check(csn_json_parse(csn_buf_view(bytes), 0, &doc, &err), &err);
    return doc;
}

static uint32_t ids_of(const csn_jval *list, int32_t *ret) {
    uint32_t n = 0;
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        int64_t id = -1;
        assert_true(csn_jval_i64(it.value, &id) && n < MAX_TOKENS);
        ret[n++] = (int32_t)id;
    }
    return n;
}

static int32_t argmax(const float *x, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return (int32_t)best;
}

/* Compares one golden position with its row; returns the relative difference. */
static double compare(const csn_jval *position, const float *row, uint32_t vocab) {
    int32_t ids[64];
    int64_t want = -1;
    uint32_t n = ids_of(csn_jval_get(position, "ids"), ids);
    assert_true(csn_jval_i64(csn_jval_get(position, "argmax"), &want));
    double worst = 0;
    double largest = 0;
    uint32_t i = 0;
    csn_jiter it = csn_jval_iter(csn_jval_get(position, "logits"));
    for (; csn_jiter_next(&it); i++) {
        double z = 0;
        assert_true(csn_jval_f64(it.value, &z) && i < n);
        worst = fmax(worst, fabs(z - (double)row[ids[i]]));
        largest = fmax(largest, fabs(z));
    }
    assert_int_equal(i, n);
    assert_int_equal(argmax(row, vocab), want);
    return worst / largest;
}

struct rows {
    float *all; /* [MAX_TOKENS][vocab] */
    uint32_t vocab, at;
};

static caisson_status keep_row(void *ctx, uint32_t i, const float *logits, caisson_error *err) {
    struct rows *r = ctx;
    (void)err;
    memcpy(r->all + (size_t)(r->at + i) * r->vocab, logits, r->vocab * sizeof(float));
    return CAISSON_OK;
}

static double check_prompt(csn_model *m, const csn_jval *prompt) {
    caisson_error err = {0};
    int32_t ids[MAX_TOKENS];
    int32_t generated[64];
    uint32_t n = ids_of(csn_jval_get(prompt, "tokens"), ids);
    uint32_t n_generated = ids_of(csn_jval_get(prompt, "generated"), generated);
    struct rows rows = {.vocab = csn_model_arch(m)->vocab_size};
    rows.all = calloc((size_t)MAX_TOKENS * rows.vocab, sizeof(float));
    csn_session_options o = {.n_ctx = MAX_TOKENS,
                             .n_ubatch = 128,
                             .n_threads = 2,
                             .compute = CSN_COMPUTE_F32,
                             .type_k = CSN_KV_F32,
                             .type_v = CSN_KV_F32};
    csn_session *s = NULL;
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    tiny_check(csn_session_eval(s, ids, n, true, keep_row, &rows, NULL, &err), &err);
    for (uint32_t i = 0; i < n_generated; i++) {
        const float *last = rows.all + (size_t)(n + i - 1) * rows.vocab;
        assert_int_equal(argmax(last, rows.vocab), generated[i]);
        rows.at = n + i;
        tiny_check(csn_session_eval(s, &generated[i], 1, true, keep_row, &rows, NULL, &err), &err);
    }
    double worst = 0;
    csn_jiter it = csn_jval_iter(csn_jval_get(prompt, "positions"));
    while (csn_jiter_next(&it)) {
        int64_t i = -1;
        assert_true(csn_jval_i64(csn_jval_get(it.value, "i"), &i) && i < n + n_generated);
        worst = fmax(worst, compare(it.value, rows.all + (size_t)i * rows.vocab, rows.vocab));
    }
    csn_session_free(s);
    free(rows.all);
    return worst;
}

static void check(const char *family, csn_model *m) {
    csn_buf bytes = CSN_BUF_INIT(0);
    csn_json *doc = read_golden(family, &bytes);
    const csn_jval *prompts = csn_jval_get(csn_json_root(doc), "prompts");
    unsigned n = 0;
    for (csn_jiter it = csn_jval_iter(prompts); csn_jiter_next(&it); n++) {
        double worst = check_prompt(m, it.value);
        print_message("# %s, prompt %u: relative difference %.2g\n", family, n, worst);
        assert_true(worst <= TOLERANCE);
    }
    assert_int_equal(n, 3);
    csn_model_free(m);
    csn_json_free(doc);
    csn_buf_free(&bytes);
}

static void check_family(void **state) {
    const char *family = *state;
    check(family, family_model(family, "f32", NULL));
}

static void three_loops(csn_arch *a) {
    a->num_loops = 3;
}

static void three_loops_with_a_norm(csn_arch *a) {
    a->num_loops = 3;
    a->loop_final_norm = true;
}

static void logits_of_a_stack_that_runs_three_times(void **state) {
    (void)state;
    check("llama_loops", family_model("llama", "f32", three_loops));
}

static void logits_of_three_passes_with_a_norm_between(void **state) {
    (void)state;
    check("llama_loops_norm", family_model("llama", "f32", three_loops_with_a_norm));
}

#define FAMILY(name)                                                                               \
    { "logits_of_" name, check_family, NULL, NULL, (void *)(uintptr_t)name }

int main(void) {
    const struct CMUnitTest tests[] = {
        FAMILY("llama"),
        FAMILY("llama_linear"),
        FAMILY("llama_rope3"),
        FAMILY("llama_tied_theta"),
        FAMILY("llama_yarn"),
        FAMILY("mistral"),
        FAMILY("qwen2"),
        FAMILY("qwen2_sliding"),
        FAMILY("qwen3"),
        FAMILY("qwen3_yarn"),
        FAMILY("llama_yarn_exact"),
        FAMILY("smollm3"),
        FAMILY("smollm3_sliding"),
        FAMILY("gemma"),
        FAMILY("gemma2"),
        FAMILY("gemma3"),
        FAMILY("gemma3_linear"),
        FAMILY("phi3"),
        FAMILY("phi3_longrope"),
        FAMILY("phi4_partial"),
        /* SPEC("CMF 2.2") */
        FAMILY("qwen2_moe"),
        FAMILY("qwen3_moe"),
        FAMILY("deepseek_v2"),
        FAMILY("deepseek_v2_lite"),
        FAMILY("deepseek_v3"),
        FAMILY("deepseek_v3_direct"),
        FAMILY("kimi_linear"),
        FAMILY("kimi_linear_wide"),
        FAMILY("kimi_linear_even"),
        FAMILY("kimi_k3"), /* tests/oracle/kimi_k3.py */
        cmocka_unit_test(logits_of_a_stack_that_runs_three_times),
        cmocka_unit_test(logits_of_three_passes_with_a_norm_between),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
