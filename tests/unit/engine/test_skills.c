/* SPDX-License-Identifier: Apache-2.0 */
/* Skills (CMF 9): tensors of a skill stand in for the backbone's one by one; the bits are those of
 * a model that was put together from both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

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
static const char *const replaced_by_b[] = {"model.layers.1.mlp.down_proj.weight",
                                            "model.layers.2.self_attn.o_proj.weight",
                                            "model.layers.0.input_layernorm.weight", NULL};

static csn_model *model_of(const tiny_options *o) {
    const char *path = temp_path("m.cmf");
    csn_model *m = NULL;
    caisson_error err = {0};
    tiny_write(o, path);
    tiny_check(tiny_open(path, &m, &err), &err);
    return m;
}

/* What the session, which holds no tokens, makes of N. */
static uint64_t bits_of(csn_session *s) {
    caisson_error err = {0};
    int32_t ids[N];
    uint64_t h = TINY_BITS_START;
    assert_int_equal(csn_session_n_past(s), 0);
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 37 + 11) % TINY_VOCAB;
    }
    tiny_check(csn_session_eval(s, ids, N, true, tiny_hash_row, &h, NULL, &err), &err);
    return h;
}

static csn_session *session_of(csn_model *m, const csn_session_options *o) {
    csn_session *s = NULL;
    caisson_error err = {0};
    tiny_check(csn_session_new(m, o, &s, &err), &err);
    return s;
}

static uint64_t bits_with(csn_model *m, const char *skill, csn_compute compute) {
    csn_session *s = session_of(
        m, &(csn_session_options){.n_ctx = 64, .n_threads = 2, .skill = skill, .compute = compute});
    uint64_t h = bits_of(s);
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

static void a_session_switches_and_comes_back_to_the_bit(void **state) {
    (void)state;
    const char *const dtypes[] = {"f32", "q8_row"};
    const char *const order[] = {"a", "b", "a", NULL, "b", "", "a"};
    for (size_t d = 0; d < 2; d++) {
        csn_model *m = model_of(
            &(tiny_options){.dtype = dtypes[d], .skill = replaced, .skill_b = replaced_by_b});
        csn_session *s =
            session_of(m, &(csn_session_options){.n_ctx = 64, .n_threads = 2, .compute = d});
        caisson_error err = {0};
        for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
            tiny_check(csn_session_set_skill(s, csn_str_from(order[i]), &err), &err);
            assert_true(csn_str_eq(csn_session_skill(s), csn_str_from(order[i])));
            assert_true(bits_of(s) == bits_with(m, order[i], (csn_compute)d)); /* a cold run */
        }
        tiny_check(csn_session_set_skill(s, CSN_STR("a"), &err), &err);
        assert_int_equal(csn_session_n_past(s), N); /* the same one: nothing is forgotten */
        assert_int_equal(csn_session_set_skill(s, CSN_STR("c"), &err), CAISSON_E_MISSING);
        assert_int_equal(csn_session_n_past(s), N);
        assert_true(csn_str_is(csn_session_skill(s), "a"));
        csn_session_free(s);
        csn_model_free(m);
    }
}

struct user {
    csn_model *model;
    uint64_t want[2];
    int first;
    bool failed;
};

static void *use_skills(void *ctx) {
    struct user *u = ctx;
    static const char *const ids[] = {"a", "b"};
    for (int i = 0; i < 4; i++) {
        int k = (u->first + i) % 2;
        u->failed |= bits_with(u->model, ids[k], CSN_COMPUTE_F32) != u->want[k];
    }
    return NULL;
}

/* The model makes the plan of a skill when somebody first asks: here several do at once. */
static void sessions_of_several_threads_share_skills(void **state) {
    (void)state;
    enum { N_USERS = 4 };
    const tiny_options options = {.skill = replaced, .skill_b = replaced_by_b};
    csn_model *m = model_of(&options);
    uint64_t a = bits_with(m, "a", CSN_COMPUTE_F32);
    uint64_t b = bits_with(m, "b", CSN_COMPUTE_F32);
    csn_model_free(m);
    m = model_of(&options); /* nothing is resolved yet */
    pthread_t threads[N_USERS];
    struct user users[N_USERS];
    for (int i = 0; i < N_USERS; i++) {
        users[i] = (struct user){.model = m, .want = {a, b}, .first = i % 2};
        assert_int_equal(pthread_create(&threads[i], NULL, use_skills, &users[i]), 0);
    }
    for (int i = 0; i < N_USERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(users[i].failed);
    }
    csn_model_free(m);
}

static const float blend_weights[] = {0.7f, 0.3f};

/* The values of the blend under the backbone's name, in the order of facts 10.4. */
static void blend_by_hand(csn_str name, float *x, uint64_t rows, uint64_t cols) {
    const char *const *lists[] = {replaced, replaced_by_b};
    uint64_t n = rows * cols;
    float *sum = calloc(n, sizeof(*sum));
    float *part = malloc(n * sizeof(*part));
    bool any = false;
    for (size_t k = 0; k < 2; k++) {
        memcpy(part, x, n * sizeof(*part));
        for (size_t i = 0; lists[k][i] != NULL; i++) {
            if (csn_str_is(name, lists[k][i])) {
                char skill[128];
                int len =
                    snprintf(skill, sizeof(skill), "skill.%c.%s", k == 0 ? 'a' : 'b', lists[k][i]);
                csn_cmf_plan_tensor t = {.name = csn_str_make(skill, (size_t)len)};
                tiny_values(&t, part, n);
                any = true;
            }
        }
        for (uint64_t i = 0; i < n; i++) {
            sum[i] += blend_weights[k] * part[i];
        }
    }
    if (any) {
        memcpy(x, sum, n * sizeof(*x));
    }
    free(sum);
    free(part);
}

static void a_blend_is_the_weighted_sum_of_tensors(void **state) {
    (void)state;
    csn_model *m = model_of(&(tiny_options){.edit = blend_by_hand});
    uint64_t want = bits_with(m, NULL, CSN_COMPUTE_F32);
    csn_model_free(m);
    m = model_of(&(tiny_options){.skill = replaced, .skill_b = replaced_by_b});
    const csn_plan_part parts[] = {{CSN_STR("a"), blend_weights[0]},
                                   {CSN_STR("b"), blend_weights[1]}};
    const csn_plan_part unknown[] = {{CSN_STR("a"), 0.5f}, {CSN_STR("c"), 0.5f}};
    caisson_error err = {0};
    for (unsigned n_threads = 1; n_threads <= 4; n_threads += 3) {
        csn_session *s = session_of(m, &(csn_session_options){.n_ctx = 64, .n_threads = n_threads});
        for (int again = 0; again < 2; again++) {
            tiny_check(csn_session_set_blend(s, parts, 2, &err), &err);
            assert_true(bits_of(s) == want);
        }
        tiny_check(csn_session_set_skill(s, CSN_STR("b"), &err), &err);
        assert_true(bits_of(s) == bits_with(m, "b", CSN_COMPUTE_F32));
        assert_int_equal(csn_session_set_blend(s, unknown, 2, &err), CAISSON_E_MISSING);
        csn_session_free(s);
    }
    csn_model_free(m);
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
    refused(m, "a", CAISSON_E_PARSE, norm);
    csn_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skill_equals_the_model_put_together),
        cmocka_unit_test(a_session_switches_and_comes_back_to_the_bit),
        cmocka_unit_test(sessions_of_several_threads_share_skills),
        cmocka_unit_test(a_blend_is_the_weighted_sum_of_tensors),
        cmocka_unit_test(skills_that_cannot_run_are_refused),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
