/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan takes and what it refuses, each refusal by name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/temp_dir.h"
#include "support/tiny_model.h"

static caisson_error err;

static caisson_status open_with(const tiny_options *o, csn_model **ret) {
    const char *path = temp_path("m.cmf");
    tiny_write(o, path);
    memset(&err, 0, sizeof(err));
    return tiny_open(path, ret, &err);
}

static void refused(const tiny_options *o, caisson_status code, const char *tensor) {
    csn_model *m = NULL;
    assert_int_equal(open_with(o, &m), code);
    assert_string_equal(err.tensor, tensor);
    assert_true(err.what[0] != '\0');
}

static void missing_tensors_are_named(void **state) {
    (void)state;
    const char *names[] = {
        "model.embed_tokens.weight", "model.norm.weight", "model.layers.1.input_layernorm.weight",
        "model.layers.2.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj.weight"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        refused(&(tiny_options){.drop = names[i]}, CAISSON_E_MISSING, names[i]);
    }
}

static void missing_head_without_tie_is_named(void **state) {
    (void)state;
    refused(&(tiny_options){.untied = true, .drop = "lm_head.weight"}, CAISSON_E_MISSING,
            "lm_head.weight");
}

static void biases_of_q_k_v_come_together(void **state) {
    (void)state;
    refused(&(tiny_options){.biases = true, .drop = "model.layers.1.self_attn.k_proj.bias"},
            CAISSON_E_MISSING, "model.layers.1.self_attn.k_proj.bias");
}

static void shapes_that_contradict_are_named(void **state) {
    (void)state;
    const char *names[] = {
        "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.v_proj.weight",
        "model.layers.1.mlp.up_proj.weight", "model.layers.2.mlp.down_proj.weight",
        "model.layers.0.input_layernorm.weight"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        refused(&(tiny_options){.reshape = names[i]}, CAISSON_E_PARSE, names[i]);
        assert_true(err.want[0] != '\0' && err.got[0] != '\0');
    }
}

static void gate_rows_decide_the_width(void **state) {
    (void)state;
    /* a gate of one row more: up no longer fits it */
    refused(&(tiny_options){.reshape = "model.layers.0.mlp.gate_proj.weight"}, CAISSON_E_PARSE,
            "model.layers.0.mlp.up_proj.weight");
    assert_string_equal(err.want, "97");
    assert_string_equal(err.got, "96");
}

static void wrong_intermediate_size(csn_arch *a) {
    a->intermediate_size = 12345;
}

static void intermediate_size_is_not_looked_at(void **state) {
    (void)state;
    csn_model *m = NULL;
    assert_int_equal(open_with(&(tiny_options){.change = wrong_intermediate_size}, &m), CAISSON_OK);
    assert_int_equal(csn_model_plan(m)->layers[0].ffn, TINY_FFN);
    csn_model_free(m);
}

static void tensors_of_blocks_that_do_not_run_are_refused(void **state) {
    (void)state;
    const char *names[] = {"model.layers.1.self_attn.g_proj.weight",
                           "model.layers.3.input_layernorm.weight", "model.layers.0.layer_scalar"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        refused(&(tiny_options){.extra = names[i]}, CAISSON_E_UNSUPPORTED, names[i]);
    }
}

static void tensors_outside_the_backbone_are_left_alone(void **state) {
    (void)state;
    const char *names[] = {"model.mtp.layers.0.x", "skill.a.model.norm.weight",
                           "model.layers.0.self_attn.rotary_emb.inv_freq"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        csn_model *m = NULL;
        assert_int_equal(open_with(&(tiny_options){.extra = names[i]}, &m), CAISSON_OK);
        csn_model_free(m);
    }
}

static void linear_layer(csn_arch *a) {
    a->layer_types[1] = CSN_LAYER_LINEAR_ATTENTION;
    a->linear_core.present = true;
    a->linear_core.kind = CSN_STR("gated_delta_net");
    a->linear_core.n_heads = 2;
}
static void resonance(csn_arch *a) {
    a->moe.router_resonance = true;
}
static void clusters(csn_arch *a) {
    a->head_clusters = 8;
}
static void flat_situ(csn_arch *a) {
    a->hidden_act = CSN_ACT_SITU;
    a->has_situ_beta = true;
    a->activation_situ_beta = 0;
}

static void sliding_latents(csn_arch *a) {
    a->mla.present = true;
    a->mla.kv_lora_rank = a->mla.qk_nope_head_dim = a->mla.qk_rope_head_dim = a->mla.v_head_dim = 8;
    a->sliding_window = 8;
}
static void looped_residuals(csn_arch *a) {
    a->attn_res_block_size = 1;
    a->num_loops = 2;
}
static void uneven_kda(csn_arch *a) {
    a->layer_types[1] = CSN_LAYER_KDA;
    a->linear_n_value_heads = 4;
    a->linear_n_key_heads = 2;
}

static void features_that_do_not_run_are_refused(void **state) {
    (void)state;
    refused(&(tiny_options){.change = linear_layer}, CAISSON_E_UNSUPPORTED, "layer_types");
    refused(&(tiny_options){.n_experts = 4, .change = resonance}, CAISSON_E_UNSUPPORTED,
            "moe.router_resonance");
    refused(&(tiny_options){.change = sliding_latents}, CAISSON_E_UNSUPPORTED, "mla");
    refused(&(tiny_options){.change = looped_residuals}, CAISSON_E_UNSUPPORTED,
            "caisson.attn_res_block_size");
    refused(&(tiny_options){.change = uneven_kda}, CAISSON_E_UNSUPPORTED, "linear_num_value_heads");
    refused(&(tiny_options){.change = clusters}, CAISSON_E_UNSUPPORTED, "head_clusters");
    refused(&(tiny_options){.change = flat_situ}, CAISSON_E_UNSUPPORTED, "activation_situ_beta");
}

static void no_experts(csn_arch *a) {
    a->moe.present = false;
}

static void mixtures_are_checked(void **state) {
    (void)state;
    refused(&(tiny_options){.n_experts = 4, .change = no_experts}, CAISSON_E_PARSE, "moe");
    refused(&(tiny_options){.n_experts = 4, .reshape = "model.layers.1.mlp.gate.weight"},
            CAISSON_E_PARSE, "model.layers.1.mlp.gate.weight");
    refused(
        &(tiny_options){.n_experts = 4, .drop = "model.layers.2.mlp.experts.0.gate_proj.weight"},
        CAISSON_E_MISSING, "model.layers.2.mlp.experts.0.gate_proj.weight");
    refused(&(tiny_options){.n_experts = 4, .drop = "model.layers.2.mlp.experts.3.up_proj.weight"},
            CAISSON_E_MISSING, "model.layers.2.mlp.experts.3.up_proj.weight");
    refused(
        &(tiny_options){.n_experts = 4, .reshape = "model.layers.1.mlp.experts.2.down_proj.weight"},
        CAISSON_E_PARSE, "model.layers.1.mlp.experts.2.down_proj.weight");
    /* a gap: the router has a row for each of four, the experts end behind the second */
    refused(
        &(tiny_options){.n_experts = 4, .drop = "model.layers.1.mlp.experts.2.gate_proj.weight"},
        CAISSON_E_PARSE, "model.layers.1.mlp.gate.weight");
    refused(
        &(tiny_options){.n_experts = 4, .extra = "model.layers.1.mlp.experts.4.gate_proj.weight"},
        CAISSON_E_UNSUPPORTED, "model.layers.1.mlp.experts.4.gate_proj.weight");
}

static void too_many_layers(csn_arch *a) {
    a->n_layers = 1000000;
}

static void more_layers_than_tensors_are_refused(void **state) {
    (void)state;
    csn_model *m = NULL;
    assert_int_equal(open_with(&(tiny_options){.change = too_many_layers}, &m), CAISSON_E_MISSING);
}

static void few_factors(csn_arch *a) {
    static double f[3] = {1, 2, 3};
    a->rope_freq_factors = f;
    a->n_rope_freq_factors = 3;
}

static void frequency_factors_must_fit(void **state) {
    (void)state;
    refused(&(tiny_options){.change = few_factors}, CAISSON_E_PARSE, "rope_freq_factors");
    assert_string_equal(err.want, "16");
    assert_string_equal(err.got, "3");
}

static void windowed(csn_arch *a) {
    a->sliding_window = 8;
    a->sliding_window_pattern = 3;
}

static void layers_are_described_with_reasons(void **state) {
    (void)state;
    csn_model *m = NULL;
    assert_int_equal(open_with(&(tiny_options){.change = windowed, .qk_norm = true}, &m),
                     CAISSON_OK);
    assert_int_equal(csn_model_plan(m)->layers[0].window, 8);
    assert_int_equal(csn_model_plan(m)->layers[2].window, 0);
    csn_buf out = CSN_BUF_INIT(1 << 16);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_model_describe_layer(m, 0, &w);
    csn_jw_object_end(&w);
    assert_int_equal(csn_jw_end(&w), CAISSON_OK);
    assert_non_null(strstr(out.ptr, "sliding_window_pattern"));
    assert_non_null(strstr(out.ptr, "q,k}_norm.weight are there"));
    csn_buf_free(&out);
    csn_model_free(m);
}

static void failed_allocations_leave_nothing(void **state) {
    (void)state;
    const char *path = temp_path("m.cmf");
    tiny_write(&(tiny_options){.qk_norm = true}, path);
    for (int64_t i = 0;; i++) {
        csn_model *m = NULL;
        csn_alloc_fail_after(i);
        caisson_status s = tiny_open(path, &m, &err);
        csn_alloc_fail_after(-1);
        if (s == CAISSON_OK) {
            csn_model_free(m);
            break;
        }
        assert_int_equal(s, CAISSON_E_NOMEM);
        assert_true(i < 100000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(missing_head_without_tie_is_named),
        cmocka_unit_test(biases_of_q_k_v_come_together),
        cmocka_unit_test(shapes_that_contradict_are_named),
        cmocka_unit_test(gate_rows_decide_the_width),
        cmocka_unit_test(intermediate_size_is_not_looked_at),
        cmocka_unit_test(tensors_of_blocks_that_do_not_run_are_refused),
        cmocka_unit_test(tensors_outside_the_backbone_are_left_alone),
        cmocka_unit_test(features_that_do_not_run_are_refused),
        cmocka_unit_test(mixtures_are_checked),
        cmocka_unit_test(more_layers_than_tensors_are_refused),
        cmocka_unit_test(frequency_factors_must_fit),
        cmocka_unit_test(layers_are_described_with_reasons),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
