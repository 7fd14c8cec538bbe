/* SPDX-License-Identifier: Apache-2.0 */
/* Routing, on logits that are given: the router is the identity. Weights were worked out by hand
 * from the formulas (warp facts 14, CMF 2.2); transformers' routers stand behind the goldens of
 * tests/unit/engine/test_families.c, and tests/oracle/masked_groups.py is groups under a mask. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "model/blocks/blocks.h"
#include "support/tiny_model.h"

enum { N = 8, MAX_N = 32 };

struct fixture {
    float identity[MAX_N * MAX_N];
    csn_moe moe;
    csn_ops ops;
    csn_pick picks[MAX_N];
};

static void init_n(struct fixture *f, uint32_t n) {
    caisson_error err = {0};
    const csn_shape shape = {2, {n, n}};
    *f = (struct fixture){.moe = {.n_experts = n, .top_k = 3, .scale = 1.0f}};
    for (uint32_t i = 0; i < n; i++) {
        f->identity[i * n + i] = 1.0f;
    }
    csn_matrix m = csn_matrix_make(csn_dtype_by_name(CSN_STR("f32")), &shape, f->identity,
                                   (uint64_t)n * n * sizeof(float));
    f->moe.router = csn_weight_make(&m, CSN_STR("router"));
    f->ops.vec = csn_vec_get();
    tiny_check(csn_pool_new(1, &f->ops.pool, &err), &err);
}

static void init(struct fixture *f) {
    init_n(f, N);
}

static void done(struct fixture *f) {
    csn_pool_free(f->ops.pool);
}

static void route(struct fixture *f, const csn_active_visit *active, const float *z) {
    float logits[MAX_N];
    csn_block_route(&f->ops, &f->moe, active, z, f->moe.n_experts, 1, logits, f->picks);
}

static void expect(const struct fixture *f, uint32_t k, uint32_t id, double weight) {
    assert_int_equal(f->picks[k].i_expert, id);
    assert_true(fabs((double)f->picks[k].weight - weight) < 1e-6);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static const float logits[N] = {0.5f, -1.0f, 2.0f, 0.0f, 2.0f, -3.0f, 1.0f, 0.5f};

static void softmax_over_all_experts(void **state) {
    (void)state;
    struct fixture f;
    double sum = 0;
    init(&f);
    for (int i = 0; i < N; i++) {
        sum += exp((double)logits[i]);
    }
    route(&f, NULL, logits);
    expect(&f, 0, 2, exp(2) / sum);
    expect(&f, 1, 4, exp(2) / sum);
    expect(&f, 2, 6, exp(1) / sum);
    done(&f);
}

static void sigmoid_weights_are_not_a_distribution(void **state) {
    (void)state;
    struct fixture f;
    init(&f);
    f.moe.is_sigmoid = true;
    f.moe.scale = 2.5f;
    route(&f, NULL, logits);
    expect(&f, 0, 2, 2.5 * sigmoid(2));
    expect(&f, 2, 6, 2.5 * sigmoid(1));
    f.moe.norm_topk_prob = true;
    route(&f, NULL, logits);
    double sum = 2 * sigmoid(2) + sigmoid(1);
    expect(&f, 0, 2, 2.5 * sigmoid(2) / sum);
    f.moe.top_k = 1; /* of two equal ones the lower id */
    route(&f, NULL, logits);
    expect(&f, 0, 2, 2.5);
    done(&f);
}

static void bias_chooses_but_does_not_weigh(void **state) {
    (void)state;
    static const float bias[N] = {0, 0, -1, 0, 0, 0.9f, 0, 0};
    struct fixture f;
    init(&f);
    f.moe.is_sigmoid = true;
    f.moe.bias = bias;
    route(&f, NULL, logits);
    expect(&f, 0, 4, sigmoid(2));
    expect(&f, 1, 5, sigmoid(-3));
    expect(&f, 2, 6, sigmoid(1));
    done(&f);
}

/* Expert 5 comes to .002 + .2, expert 6 has .122 (of weights exp(z - max), .007 + .2 and .368: the
 * bias is not for these). */
static void bias_adds_to_probabilities(void **state) {
    (void)state;
    static const float bias[N] = {0, 0, 0, 0, 0, 0.2f, 0, 0};
    struct fixture f;
    double sum = 0;
    init(&f);
    for (int i = 0; i < N; i++) {
        sum += exp((double)logits[i]);
    }
    f.moe.bias = bias;
    route(&f, NULL, logits);
    expect(&f, 0, 2, exp(2) / sum);
    expect(&f, 1, 4, exp(2) / sum);
    expect(&f, 2, 5, exp(-3) / sum);
    done(&f);
}

/* Pairs of experts: sums of two are s(.5)+s(-1), s(2)+s(0), s(2)+s(-3), s(1)+s(.5). */
static void groups_are_chosen_by_their_two_best(void **state) {
    (void)state;
    struct fixture f;
    init(&f);
    f.moe.is_sigmoid = true;
    f.moe.n_group = 4;
    f.moe.topk_group = 2;
    route(&f, NULL, logits);
    expect(&f, 0, 2, sigmoid(2));
    expect(&f, 1, 6, sigmoid(1));
    expect(&f, 2, 7, sigmoid(0.5));
    f.moe.n_group = 2; /* of four: the second has 2 and 1, the first 2 and .5 */
    f.moe.topk_group = 1;
    route(&f, NULL, logits);
    expect(&f, 0, 4, sigmoid(2));
    expect(&f, 1, 6, sigmoid(1));
    expect(&f, 2, 7, sigmoid(0.5));
    done(&f);
}

static void equal_groups_and_experts_go_by_the_lower_number(void **state) {
    (void)state;
    static const float flat[N] = {0};
    struct fixture f;
    init(&f);
    f.moe.is_sigmoid = true;
    f.moe.n_group = 4;
    f.moe.topk_group = 2;
    route(&f, NULL, flat);
    expect(&f, 0, 0, 0.5);
    expect(&f, 1, 1, 0.5);
    expect(&f, 2, 2, 0.5);
    done(&f);
}

/* F16: a bias that pins an expert, or is no number, moves choices and nothing else: each token gets
 * top_k experts, none twice, with weights that know no bias. */
static void no_bias_chooses_an_expert_twice(void **state) {
    (void)state;
    const float no = -INFINITY;
    const float biases[][N] = {
        {0, 0, 0, 1e30f, 0, 0, 0, 0},
        {no, no, no, no, no, no, no, no},
        {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN},
        {0, NAN, 0, 0, NAN, INFINITY, 0, no},
        {NAN, no, no, no, no, no, no, no},
    };
    for (size_t i = 0; i < sizeof(biases) / sizeof(biases[0]); i++) {
        for (uint32_t n_group = 1; n_group <= 4; n_group *= 2) {
            struct fixture f;
            init(&f);
            f.moe.is_sigmoid = true;
            f.moe.bias = biases[i];
            f.moe.n_group = n_group;
            f.moe.topk_group = n_group / 2 + 1;
            route(&f, NULL, logits);
            bool has_pinned = false;
            for (uint32_t k = 0; k < f.moe.top_k; k++) {
                uint32_t id = f.picks[k].i_expert;
                assert_true(id < N && (k == 0 || id > f.picks[k - 1].i_expert));
                expect(&f, k, id, sigmoid((double)logits[id]));
                has_pinned |= id == 3;
            }
            assert_true(i > 0 || has_pinned);
            done(&f);
        }
    }
}

static void masked_experts_are_not_chosen(void **state) {
    (void)state;
    static const uint8_t bits[1] = {1u << 0 | 1u << 5};
    const csn_active_visit active = {.experts = bits, .n_experts = 2};
    struct fixture f;
    init(&f);
    f.moe.is_sigmoid = true;
    assert_int_equal(csn_route_n_picks(&f.moe, &active), 2);
    route(&f, &active, logits);
    expect(&f, 0, 0, sigmoid(0.5));
    expect(&f, 1, 5, sigmoid(-3));
    done(&f);
}

static uint32_t read_list(const csn_jval *list, float ret[MAX_N]) {
    uint32_t n = 0;
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it); n++) {
        double x = 0;
        assert_true(n < MAX_N && csn_jval_f64(it.value, &x));
        ret[n] = (float)x;
    }
    return n;
}

static void check_case(const csn_jval *c) {
    struct fixture f;
    float z[MAX_N];
    float bias[MAX_N];
    float on[MAX_N];
    uint8_t bits[MAX_N / 8] = {0};
    csn_active_visit active = {.experts = bits};
    uint32_t n = read_list(csn_jval_get(c, "logits"), z);
    (void)read_list(csn_jval_get(c, "bias"), bias);
    (void)read_list(csn_jval_get(c, "on"), on);
    for (uint32_t i = 0; i < n; i++) {
        bits[i / 8] |= (uint8_t)((on[i] > 0) << (i % 8));
        active.n_experts += on[i] > 0;
    }
    init_n(&f, n);
    (void)csn_jval_bool(csn_jval_get(c, "sigmoid"), &f.moe.is_sigmoid);
    f.moe.group_max = !f.moe.is_sigmoid;
    f.moe.bias = f.moe.is_sigmoid ? bias : NULL;
    f.moe.n_group = (uint32_t)csn_jval_number_of(c, "n_group");
    f.moe.topk_group = (uint32_t)csn_jval_number_of(c, "topk_group");
    f.moe.top_k = (uint32_t)csn_jval_number_of(c, "top_k");
    (void)csn_jval_bool(csn_jval_get(c, "norm"), &f.moe.norm_topk_prob);
    bool is_all = active.n_experts == n;
    const csn_jval *picks = csn_jval_get(c, "picks");
    assert_int_equal(csn_route_n_picks(&f.moe, &active), csn_jval_len(picks));
    route(&f, is_all ? NULL : &active, z);
    uint32_t k = 0;
    for (csn_jiter it = csn_jval_iter(picks); csn_jiter_next(&it); k++) {
        float pick[MAX_N];
        assert_int_equal(read_list(it.value, pick), 2);
        expect(&f, k, (uint32_t)pick[0], (double)pick[1]);
    }
    done(&f);
}

/* Groups with all, some, one and none of their experts, by their two best and by their best. */
static void groups_under_a_mask_are_those_of_the_naive_form(void **state) {
    (void)state;
    csn_buf bytes = CSN_BUF_INIT(1 << 20);
    caisson_error err = {0};
    csn_json *doc;
    unsigned n = 0;
    tiny_check(csn_fs_read_all(csn_fs_os(), CSN_SOURCE_DIR "/tests/golden/route/masked_groups.json",
                               1 << 20, &bytes, &err),
               &err);
    tiny_check(csn_json_parse(csn_buf_view(&bytes), 0, &doc, &err), &err);
    for (csn_jiter it = csn_jval_iter(csn_json_root(doc)); csn_jiter_next(&it); n++) {
        check_case(it.value);
    }
    assert_int_equal(n, 64);
    csn_json_free(doc);
    csn_buf_free(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_over_all_experts),
        cmocka_unit_test(sigmoid_weights_are_not_a_distribution),
        cmocka_unit_test(bias_chooses_but_does_not_weigh),
        cmocka_unit_test(bias_adds_to_probabilities),
        cmocka_unit_test(groups_are_chosen_by_their_two_best),
        cmocka_unit_test(equal_groups_and_experts_go_by_the_lower_number),
        cmocka_unit_test(no_bias_chooses_an_expert_twice),
        cmocka_unit_test(masked_experts_are_not_chosen),
        cmocka_unit_test(groups_under_a_mask_are_those_of_the_naive_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
