/* SPDX-License-Identifier: Apache-2.0 */
/* Skills (CMF 9): tensors of a skill stand in for the backbone's one by one; the bits are those of
 * a model that was put together from both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/session.h"
#include "support/temp_dir.h"
#include "support/tiny_bits.h"

enum { N = 40 };

static const char *const replaced[] = {"model.layers.1.mlp.down_proj.weight",
                                       "model.layers.0.self_attn.k_proj.weight",
                                       "model.layers.2.post_attention_layernorm.weight",
                                       "model.norm.weight",
                                       "model.embed_tokens.weight",
                                       NULL};

static csn_model *model_of(const tiny_options *o) {
    const char *path = temp_path("m.cmf");
    csn_model *m = NULL;
    caisson_error err = {0};
    tiny_write(o, path);
    tiny_check(tiny_open(path, &m, &err), &err);
    return m;
}

static uint64_t bits_with(csn_model *m, const char *skill, csn_compute compute) {
    csn_session *s = NULL;
    caisson_error err = {0};
    int32_t ids[N];
    uint64_t h = TINY_BITS_START;
    csn_session_options o = {.n_ctx = 64, .n_threads = 2, .skill = skill, .compute = compute};
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 37 + 11) % TINY_VOCAB;
    }
    tiny_check(csn_session_eval(s, ids, N, true, tiny_hash_row, &h, NULL, &err), &err);
    csn_session_free(s);
    return h;
}

/* The values that the skill's tensor has, under the backbone's name. */
static void put_together(csn_str name, float *x, uint64_t rows, uint64_t cols) {
    for (size_t k = 0; replaced[k] != NULL; k++) {
        if (csn_str_is(name, replaced[k])) {
            char skill[128];
            int n = snprintf(skill, sizeof(skill), "skill.a.%s", replaced[k]);
            csn_cmf_plan_tensor t = {.name = csn_str_make(skill, (size_t)n)};
            tiny_values(&t, x, rows * cols);
        }
    }
}

static void a_skill_equals_the_model_put_together(void **state) {
    (void)state;
    const char *const dtypes[] = {"f32", "q8_row", "q4_tiled", "q8_2f"};
    for (size_t d = 0; d < 4; d++) {
        for (int c = CSN_COMPUTE_F32; c <= CSN_COMPUTE_INT8; c++) {
            csn_model *m = model_of(&(tiny_options){.dtype = dtypes[d], .edit = put_together});
            uint64_t want = bits_with(m, NULL, (csn_compute)c);
            csn_model_free(m);
            m = model_of(&(tiny_options){.dtype = dtypes[d]});
            uint64_t backbone = bits_with(m, NULL, (csn_compute)c);
            csn_model_free(m);
            m = model_of(&(tiny_options){.dtype = dtypes[d], .skill = replaced});
            assert_true(bits_with(m, "", (csn_compute)c) == backbone);
            assert_true(bits_with(m, "a", (csn_compute)c) == want);
            assert_true(bits_with(m, NULL, (csn_compute)c) == backbone); /* and back */
            assert_true(want != backbone);
            csn_model_free(m);
        }
    }
}

static void refused(csn_model *m, const char *skill, caisson_status code, const char *tensor) {
    caisson_error err = {0};
    csn_session *s = NULL;
    csn_session_options o = {.n_ctx = 64, .n_threads = 1, .skill = skill};
    assert_int_equal(csn_session_new(m, &o, &s, &err), code);
    assert_string_equal(err.tensor, tensor);
}

static void skills_that_cannot_run_are_refused(void **state) {
    (void)state;
    csn_model *m = model_of(&(tiny_options){.skill = replaced});
    refused(m, "b", CAISSON_E_MISSING, "b");
    csn_model_free(m);
    const char *const stray[] = {"skill.a.model.layers.0.mlp.gate.weight",
                                 "skill.a.model.layers.7.input_layernorm.weight", "skill.a.x"};
    for (size_t i = 0; i < 3; i++) { /* it replaces what the backbone does not run */
        m = model_of(&(tiny_options){.extra = stray[i]});
        uint64_t ignored = bits_with(m, NULL, CSN_COMPUTE_F32);
        (void)ignored;
        refused(m, "a", CAISSON_E_UNSUPPORTED, stray[i]);
        csn_model_free(m);
    }
    const char *const norm = "skill.a.model.norm.weight"; /* [1] in place of [hidden] */
    m = model_of(&(tiny_options){.extra = norm});
    refused(m, "a", CAISSON_E_PARSE, "model.norm.weight");
    csn_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skill_equals_the_model_put_together),
        cmocka_unit_test(skills_that_cannot_run_are_refused),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
