/* SPDX-License-Identifier: Apache-2.0 */
/* Skills by the public functions, on the reference's tiny file with two of them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "caisson.h"

#include "base/alloc.h"
#include "support/temp_dir.h"

#define FILE_WITH_SKILLS CSN_SOURCE_DIR "/tests/golden/cmf/files/tiny-skills.cmf"

enum { N = 12, N_DRAWN = 8 };

static const int32_t prompt[N] = {5, 90, 200, 33, 17, 301, 8, 41, 12, 77, 150, 3};

static caisson_model *open_model(void) {
    caisson_model *m = NULL;
    caisson_error err;
    assert_int_equal(caisson_model_open(FILE_WITH_SKILLS, NULL, &m, &err), CAISSON_OK);
    return m;
}

static caisson_session *open_session(caisson_model *m, const char *skill) {
    caisson_session *s = NULL;
    caisson_error err;
    caisson_session_options o = {.struct_size = sizeof(o), .n_ctx = 64, .skill = skill, .task = ""};
    assert_int_equal(caisson_session_new(m, &o, &s, &err), CAISSON_OK);
    return s;
}

/* An answer: the drawn tokens and the logits behind them. */
typedef struct answer {
    int32_t ids[N + N_DRAWN];
    uint32_t n, n_reused;
    float *logits;
} answer;

static answer answer_of(caisson_session *s, uint32_t n_vocab) {
    caisson_error err;
    caisson_generation g;
    caisson_sampling greedy = {.struct_size = sizeof(greedy), .greedy = true};
    caisson_generate_options o = {
        .struct_size = sizeof(o), .sampling = &greedy, .max_tokens = N_DRAWN, .ignore_eos = true};
    assert_int_equal(caisson_generate(s, prompt, N, &o, &g, &err), CAISSON_OK);
    answer a = {.n = caisson_session_n_past(s), .n_reused = g.n_reused};
    memcpy(a.ids, caisson_session_tokens(s), a.n * sizeof(a.ids[0]));
    a.logits = malloc(n_vocab * sizeof(float));
    memcpy(a.logits, caisson_session_logits(s), n_vocab * sizeof(float));
    return a;
}

static void assert_same(const answer *a, const answer *b, uint32_t n_vocab) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof(a->ids[0]));
    assert_memory_equal(a->logits, b->logits, n_vocab * sizeof(float));
}

/* The prefix of A's answer is there, but B must not go on from it, and A must not from B's. */
static void a_b_a_gives_the_first_answer_again(void **state) {
    (void)state;
    caisson_model *m = open_model();
    uint32_t n_vocab = caisson_model_n_vocab(m);
    caisson_session *s = open_session(m, "sql");
    caisson_session *cold = open_session(m, "poem");
    caisson_error err;
    answer a = answer_of(s, n_vocab);
    assert_int_equal(caisson_session_set_skill(s, "poem", &err), CAISSON_OK);
    assert_int_equal(caisson_session_n_past(s), 0);
    answer b = answer_of(s, n_vocab);
    answer b_cold = answer_of(cold, n_vocab);
    assert_int_equal(b.n_reused, 0);
    assert_same(&b, &b_cold, n_vocab);
    assert_true(memcmp(a.logits, b.logits, n_vocab * sizeof(float)) != 0);
    assert_int_equal(caisson_session_set_skill(s, "sql", &err), CAISSON_OK);
    answer again = answer_of(s, n_vocab);
    assert_same(&a, &again, n_vocab);
    assert_int_equal(caisson_session_set_skill(s, "sql", &err), CAISSON_OK);
    assert_true(caisson_session_n_past(s) > N); /* the same skill keeps what it has */
    answer *all[] = {&a, &b, &b_cold, &again};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]->logits);
    }
    caisson_session_free(cold);
    caisson_session_free(s);
    caisson_model_close(m);
}

static void wrong_arguments_change_nothing(void **state) {
    (void)state;
    caisson_model *m = open_model();
    caisson_session *s = open_session(m, "sql");
    caisson_error err;
    assert_int_equal(caisson_session_eval(s, prompt, N, NULL, NULL, &err), CAISSON_OK);
    assert_int_equal(caisson_session_set_skill(s, "prose", &err), CAISSON_E_MISSING);
    assert_string_equal(err.want, "poem sql");
    const float bad[] = {0.0f, -1.0f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        caisson_blend_part parts[] = {{"sql", 1.0f}, {"poem", bad[i]}};
        assert_int_equal(caisson_session_set_blend(s, parts, 2, &err), CAISSON_E_ARG);
    }
    assert_int_equal(caisson_session_set_blend(s, NULL, 0, &err), CAISSON_E_ARG);
    caisson_blend_part empty[] = {{"", 1.0f}};
    assert_int_equal(caisson_session_set_blend(s, empty, 1, &err), CAISSON_E_ARG);
    assert_int_equal(caisson_session_n_past(s), N);
    caisson_blend_part alone[] = {{"sql", 3.0f}}; /* is the skill itself, which runs already */
    assert_int_equal(caisson_session_set_blend(s, alone, 1, &err), CAISSON_OK);
    assert_int_equal(caisson_session_n_past(s), N);
    caisson_session_free(s);
    caisson_model_close(m);
}

/* ---- skills that change within an answer ---- */

enum { MAX_STEPS = 64 };

typedef struct steps {
    caisson_dynamic_step step[MAX_STEPS];
    uint32_t n;
} steps;

static void keep_step(void *ctx, const caisson_dynamic_step *step) {
    steps *s = ctx;
    assert_true(s->n < MAX_STEPS);
    s->step[s->n++] = *step;
}

static void dynamic_answer(caisson_session *s, steps *seen, uint32_t n_drawn) {
    caisson_error err;
    caisson_generation g;
    caisson_sampling greedy = {.struct_size = sizeof(greedy), .greedy = true};
    caisson_generate_options o = {
        .struct_size = sizeof(o), .sampling = &greedy, .max_tokens = n_drawn, .ignore_eos = true};
    seen->n = 0;
    assert_int_equal(caisson_generate(s, prompt, N, &o, &g, &err), CAISSON_OK);
    assert_int_equal(g.n_reused, 0);
    assert_int_equal(seen->n, n_drawn - 1); /* the last one is drawn and not evaluated */
}

static void a_switch_goes_on_as_the_new_skill_would(void **state) {
    (void)state;
    enum { DRAWN = 30 };
    caisson_model *m = open_model();
    caisson_session *s = open_session(m, NULL);
    caisson_session *cold = open_session(m, "sql");
    caisson_error err;
    steps seen = {.n = 0};
    caisson_dynamic_options o = {.struct_size = sizeof(o),
                                 .e_on = 100,
                                 .e_off = 200,
                                 .period = 4,
                                 .on_step = keep_step,
                                 .ctx = &seen};
    assert_int_equal(caisson_session_set_dynamic(s, &o, &err), CAISSON_OK);
    dynamic_answer(s, &seen, DRAWN);
    for (uint32_t i = 0; i < seen.n; i++) {
        const caisson_dynamic_step *t = &seen.step[i];
        assert_int_equal(t->i_token, i);
        assert_int_equal(t->id, caisson_session_tokens(s)[N + i]);
        assert_int_equal(t->is_look, i % 4 == 3);
        assert_int_equal(t->is_switch, i == 3); /* the first look finds it near enough */
        assert_int_equal(t->skill_n, i < 3 ? 0 : 3);
        assert_true(i < 3 ? t->error < 0 : t->error > 0);
    }
    /* the skill alone, given the same text up to the switch */
    int32_t text[N + DRAWN];
    uint32_t n = caisson_session_n_past(s);
    memcpy(text, caisson_session_tokens(s), n * sizeof(text[0]));
    assert_int_equal(caisson_session_eval(cold, text, n, NULL, NULL, &err), CAISSON_OK);
    size_t row = caisson_model_n_vocab(m) * sizeof(float);
    assert_memory_equal(caisson_session_logits(cold), caisson_session_logits(s), row);
    /* and once more: it begins with the base again */
    steps again = seen;
    dynamic_answer(s, &seen, DRAWN);
    assert_int_equal(seen.step[2].skill_n, 0);
    for (uint32_t i = 0; i < seen.n; i++) {
        assert_int_equal(seen.step[i].id, again.step[i].id);
        assert_true(seen.step[i].error == again.step[i].error);
    }
    caisson_session_free(cold);
    caisson_session_free(s);
    caisson_model_close(m);
}

static void wrong_hysteresis_is_refused(void **state) {
    (void)state;
    caisson_model *m = open_model();
    caisson_session *s = open_session(m, NULL);
    caisson_error err;
    caisson_dynamic_options o = {.struct_size = sizeof(o), .e_on = 0.8}; /* above e_off */
    assert_int_equal(caisson_session_set_dynamic(s, &o, &err), CAISSON_E_ARG);
    o = (caisson_dynamic_options){.struct_size = sizeof(o), .margin = -1};
    assert_int_equal(caisson_session_set_dynamic(s, &o, &err), CAISSON_E_ARG);
    o = (caisson_dynamic_options){.struct_size = sizeof(o), .e_on = nan("")};
    assert_int_equal(caisson_session_set_dynamic(s, &o, &err), CAISSON_E_ARG);
    assert_int_equal(caisson_session_set_dynamic(s, NULL, &err), CAISSON_OK);
    assert_int_equal(caisson_session_set_skill(s, "sql", &err), CAISSON_OK); /* ends it */
    caisson_session_free(s);
    caisson_model_close(m);
}

/* The file with a second skill that can be switched to within an answer. */
static const char *file_with_two_candidates(void) {
    const char *donor = temp_path("donor.cmf");
    const char *path = temp_path("two.cmf");
    caisson_error err;
    const char *prompts[] = {"one of them", "another", "and a third"};
    caisson_convert_options coarser = {.struct_size = sizeof(coarser), .quant = "q4_block"};
    caisson_convert_options copy = {.struct_size = sizeof(copy)};
    caisson_skill_add_options add = {
        .struct_size = sizeof(add), .prompts = prompts, .n_prompts = 3, .tensors = "ffn"};
    assert_int_equal(caisson_convert(FILE_WITH_SKILLS, donor, &coarser, &err), CAISSON_OK);
    assert_int_equal(caisson_convert(FILE_WITH_SKILLS, path, &copy, &err), CAISSON_OK);
    assert_int_equal(caisson_skill_add(path, "two", donor, &add, &err), CAISSON_OK);
    return path;
}

/* Wherever looking up the candidates fails, the session is as it was: none of them runs. */
static void a_dynamic_choice_that_fails_changes_nothing(void **state) {
    (void)state;
    caisson_error err;
    const char *path = file_with_two_candidates();
    caisson_status status;
    for (int64_t k = 0;; k++) {
        caisson_model *m = NULL; /* another one each time: plans of skills are kept */
        assert_int_equal(caisson_model_open(path, NULL, &m, &err), CAISSON_OK);
        caisson_session *s = open_session(m, NULL);
        assert_int_equal(caisson_session_eval(s, prompt, N, NULL, NULL, &err), CAISSON_OK);
        csn_alloc_fail_after(k);
        status = caisson_session_set_dynamic(s, NULL, &err);
        csn_alloc_fail_after(-1);
        uint32_t n_past = caisson_session_n_past(s);
        caisson_session_free(s);
        caisson_model_close(m);
        if (status == CAISSON_OK) {
            break;
        }
        assert_int_equal(status, CAISSON_E_NOMEM);
        assert_int_equal(n_past, N);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_b_a_gives_the_first_answer_again),
        cmocka_unit_test(wrong_arguments_change_nothing),
        cmocka_unit_test(a_switch_goes_on_as_the_new_skill_would),
        cmocka_unit_test(wrong_hysteresis_is_refused),
        cmocka_unit_test(a_dynamic_choice_that_fails_changes_nothing),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
