/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include <math.h>

#include "arch/arch.h"
#include "support/cmf_golden.h"

#define BASE                                                                                       \
    "\"arch_name\":\"t\",\"hidden_size\":64,\"intermediate_size\":40,\"num_layers\":6,"            \
    "\"num_attention_heads\":4,\"num_kv_heads\":2,\"head_dim\":16,\"vocab_size\":8,"               \
    "\"layer_types\":[\"FullAttention\",\"SlidingAttention\"],\"rms_norm_eps\":1e-06,"             \
    "\"max_position_embeddings\":512"

struct parsed {
    csn_json *doc;
    csn_arena arena;
    csn_arch arch;
    caisson_status status;
    caisson_error err;
};

static struct parsed parse(const char *text) {
    struct parsed p = {0};
    ASSERT_OK(csn_json_parse(csn_str_from(text), 0, &p.doc, &p.err), &p.err);
    p.status = csn_arch_parse(csn_json_root(p.doc), &p.arena, &p.arch, &p.err);
    return p;
}

static void done(struct parsed *p) {
    csn_json_free(p->doc);
    csn_arena_done(&p->arena);
}

static csn_buf text_of(const csn_arch *arch) {
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(1 << 24);
    csn_jw w = csn_jw_begin(&b, &err);
    csn_arch_write(arch, &w);
    ASSERT_OK(csn_jw_end(&w), &err);
    return b;
}

static bool same_value(const csn_jval *a, const csn_jval *b) {
    csn_jkind k = csn_jval_kind(a);
    double x;
    double y;
    if (csn_jval_f64(a, &x) && csn_jval_f64(b, &y)) {
        return x == y || (float)x == (float)y; /* the golden shows f32 fields as f64 */
    }
    if (k != csn_jval_kind(b)) {
        return false;
    }
    if (k == CSN_JSON_OBJECT || k == CSN_JSON_ARRAY) {
        if (csn_jval_len(a) != csn_jval_len(b)) {
            return false;
        }
        csn_jiter j = csn_jval_iter(b);
        for (csn_jiter i = csn_jval_iter(a); csn_jiter_next(&i);) {
            char key[128];
            (void)csn_jiter_next(&j);
            snprintf(key, sizeof(key), "%.*s", CSN_STR_ARGS(i.key));
            if (!same_value(i.value, k == CSN_JSON_OBJECT ? csn_jval_get(b, key) : j.value)) {
                return false;
            }
        }
        return true;
    }
    csn_str s = {0};
    csn_str t = {0};
    bool p = false;
    bool q = false;
    return csn_jval_str(a, &s)    ? csn_jval_str(b, &t) && csn_str_eq(s, t)
           : csn_jval_bool(a, &p) ? csn_jval_bool(b, &q) && p == q
                                  : true;
}

/* What we write for a golden file's arch holds every key that the reference read from it. */
static void golden_archs_survive_a_rewrite(void **state) {
    (void)state;
    static const char *const names[] = {"tiny-f32",   "tiny-moe",    "tiny-loop",
                                        "tiny-masks", "tiny-skills", "odd-json-style"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[512];
        csn_cmf *c = NULL;
        csn_json *ours = NULL;
        caisson_error err;
        snprintf(path, sizeof(path), CMF_GOLDEN "files/%s.json", names[i]);
        csn_json *golden = golden_json(path);
        const csn_jval *want = csn_jval_get(csn_jval_get(csn_json_root(golden), "header"), "arch");
        snprintf(path, sizeof(path), CMF_GOLDEN "files/%s.cmf", names[i]);
        ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
        csn_buf text = text_of(&c->arch);
        ASSERT_OK(csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, &ours, &err), &err);
        for (csn_jiter it = csn_jval_iter(want); csn_jiter_next(&it);) {
            char key[64];
            snprintf(key, sizeof(key), "%.*s", CSN_STR_ARGS(it.key));
            const csn_jval *got = csn_jval_get(csn_json_root(ours), key);
            if (csn_jval_kind(it.value) == CSN_JSON_NULL && got == NULL) {
                continue;
            }
            if (!same_value(it.value, got)) {
                fail_msg("%s: arch.%s differs", names[i], key);
            }
        }
        csn_json_free(ours);
        csn_json_free(golden);
        csn_buf_free(&text);
        csn_cmf_close(c);
    }
}

static void defaults_are_those_of_the_format(void **state) {
    (void)state;
    struct parsed p = parse("{" BASE "}");
    ASSERT_OK(p.status, &p.err);
    const csn_arch *a = &p.arch;
    assert_int_equal(a->norm_style, CSN_NORM_QWEN);
    assert_int_equal(a->hidden_act, CSN_ACT_SILU);
    assert_true(a->rope_theta == 10000.0);
    assert_true(a->partial_rotary_factor == 1.0f);
    assert_true(a->embed_multiplier == 1.0f && a->logit_multiplier == 1.0f);
    assert_false(a->tie_word_embeddings);
    assert_int_equal(a->num_loops, 1);
    assert_false(a->moe.present || a->mtp.present || a->mla.present || a->yarn.present ||
                 a->linear_core.present || a->longrope.present);
    assert_int_equal(a->linear_conv_kernel_dim, 0);
    done(&p);
}

#define EVERYTHING                                                                                 \
    "{" BASE ",\"norm_style\":\"gemma\",\"rope_theta\":1000000.0,\"tie_word_embeddings\":true,"    \
    "\"partial_rotary_factor\":0.5,\"yarn\":{\"factor\":4.0,\"caisson.untruncated\":true,"         \
    "\"original_max_position_embeddings\":4096,\"mscale_all_dim\":0.5,\"new\":7},"                 \
    "\"attention_heads_per_layer\":[4,4,2,4,4,4],\"hidden_act\":\"gelu_tanh\","                    \
    "\"embed_multiplier\":8.0,\"query_pre_attn_scalar\":256.0,\"sliding_window\":512,"             \
    "\"sliding_window_pattern\":6,\"rope_local_base_freq\":10000.0,"                               \
    "\"local_partial_rotary_factor\":0.25,\"global_head_dim\":32,\"num_global_kv_heads\":1,"       \
    "\"global_partial_rotary_factor\":0.75,\"final_logit_softcapping\":30.0,"                      \
    "\"mla\":{\"kv_lora_rank\":8,\"qk_rope_head_dim\":4,\"qk_nope_head_dim\":4,"                   \
    "\"v_head_dim\":8,\"q_lora_rank\":16,\"nope\":true,\"caisson.rope_interleave\":true,"          \
    "\"caisson.norm_eps\":0.001},"                                                                 \
    "\"activation_situ_beta\":1.5,"                                                                \
    "\"activation_situ_linear_beta\":0.0,\"attn_logit_softcapping\":50.0,\"attn_v_norm\":true,"    \
    "\"mtp\":{\"num_layers\":1,\"share_lm_head\":false},"                                          \
    "\"moe\":{\"num_experts\":11,\"top_k\":2,\"moe_intermediate_size\":24,"                        \
    "\"norm_topk_prob\":true,\"shared_expert_intermediate_size\":16,\"router_sigmoid\":true,"      \
    "\"routed_scaling_factor\":2.5,\"router_resonance\":true,\"caisson.n_group\":11,"              \
    "\"caisson.topk_group\":4,\"caisson.group_max\":true,"                                         \
    "\"caisson.routed_expert_hidden_size\":24,\"caisson.latent_norm\":true,\"new\":[1]},"          \
    "\"linear_core\":{\"kind\":\"gated_delta_net\",\"num_heads\":4,\"value_head_dim\":8},"         \
    "\"head_clusters\":3,\"linear_conv_kernel_dim\":4,\"linear_num_key_heads\":2,"                 \
    "\"linear_num_value_heads\":4,\"linear_key_head_dim\":8,\"linear_value_head_dim\":8,"          \
    "\"rope_freq_factors\":[1.0,2.5],\"logit_multiplier\":0.0625,\"g3n\":{\"altup\":[1,2]},"       \
    "\"kda_gate_lower_bound\":-5.0,\"num_loops\":2,\"loop_final_norm\":true,"                      \
    "\"caisson.longrope\":{\"short_factor\":[1.0,1.0,1.0,1.0],\"long_factor\":[2.0,3.0,4.0,5.5],"  \
    "\"original_max_position_embeddings\":256,\"attention_factor\":1.19},"                         \
    "\"caisson.sliding_all\":true,\"caisson.no_rope_layers\":[1,3],"                               \
    "\"caisson.attn_res_block_size\":3,\"zz_unknown\":{\"deep\":["                                 \
    "null,1e300]},\"another\":\"x\"}"

static void every_key_is_read(void **state) {
    (void)state;
    struct parsed p = parse(EVERYTHING);
    ASSERT_OK(p.status, &p.err);
    const csn_arch *a = &p.arch;
    assert_int_equal(a->norm_style, CSN_NORM_GEMMA);
    assert_int_equal(a->hidden_act, CSN_ACT_GELU_TANH);
    assert_true(a->rope_theta == 1e6 && a->partial_rotary_factor == 0.5f);
    assert_true(a->yarn.present && a->yarn.factor == 4.0f && a->yarn.beta_fast == 32.0f);
    assert_true(a->yarn.untruncated && a->yarn.has_mscale_all_dim &&
                a->yarn.mscale_all_dim == 0.5f);
    assert_int_equal(a->attention_heads_per_layer[2], 2);
    assert_true(a->embed_multiplier == 8.0f && a->query_pre_attn_scalar == 256.0);
    assert_int_equal(a->sliding_window, 512);
    assert_int_equal(a->sliding_window_pattern, 6);
    assert_true(a->rope_local_base_freq == 10000.0);
    assert_true(a->final_logit_softcapping == 30.0 && a->attn_logit_softcapping == 50.0);
    assert_true(a->mla.present && a->mla.nope && a->mla.rope_interleave);
    assert_int_equal(a->mla.q_lora_rank, 16);
    assert_true(a->mla.norm_eps == 0.001);
    assert_true(a->has_situ_beta && a->activation_situ_beta == 1.5);
    assert_true(a->has_situ_linear_beta && a->activation_situ_linear_beta == 0.0);
    assert_true(a->attn_v_norm);
    assert_true(a->mtp.present && !a->mtp.share_lm_head && a->mtp.share_embed);
    assert_true(a->moe.present && a->moe.norm_topk_prob && a->moe.has_shared && a->moe.has_scaling);
    assert_int_equal(a->moe.n_experts, 11);
    assert_true(a->moe.routed_scaling_factor == 2.5);
    assert_int_equal(a->moe.n_group, 11);
    assert_int_equal(a->moe.topk_group, 4);
    assert_true(a->moe.group_max);
    assert_int_equal(a->moe.routed_expert_hidden_size, 24);
    assert_true(a->moe.has_latent_norm);
    assert_int_equal(a->attn_res_block_size, 3);
    assert_true(csn_str_is(a->linear_core.kind, "gated_delta_net"));
    assert_int_equal(a->head_clusters, 3);
    assert_int_equal(a->linear_n_value_heads, 4);
    assert_int_equal(a->n_rope_freq_factors, 2);
    assert_true(a->rope_freq_factors[1] == 2.5);
    assert_true(a->logit_multiplier == 0.0625f && a->has_g3n);
    assert_true(a->has_kda_gate_lower_bound && a->kda_gate_lower_bound == -5.0);
    assert_true(a->num_loops == 2 && a->loop_final_norm && a->sliding_all);
    assert_true(!a->no_rope[0] && a->no_rope[1] && a->no_rope[3]);
    assert_true(csn_arch_rotary_dim(a, 1) == 0 && csn_arch_rotary_dim(a, 2) > 0);
    assert_true(a->longrope.present && a->longrope.n == 4 && a->longrope.long_factor[3] == 5.5);
    done(&p);
}

static void rewriting_keeps_everything(void **state) {
    (void)state;
    struct parsed p = parse(EVERYTHING);
    ASSERT_OK(p.status, &p.err);
    csn_buf text = text_of(&p.arch);
    struct parsed q = parse(text.ptr);
    ASSERT_OK(q.status, &q.err);
    for (csn_jiter it = csn_jval_iter(csn_json_root(p.doc)); csn_jiter_next(&it);) {
        char key[64];
        snprintf(key, sizeof(key), "%.*s", CSN_STR_ARGS(it.key));
        const csn_jval *got = csn_jval_get(csn_json_root(q.doc), key);
        if (csn_str_is(it.key, "yarn") ||
            csn_str_is(it.key, "mtp")) { /* defaults are written out */
            for (csn_jiter k = csn_jval_iter(it.value); csn_jiter_next(&k);) {
                snprintf(key, sizeof(key), "%.*s", CSN_STR_ARGS(k.key));
                assert_true(same_value(k.value, csn_jval_get(got, key)));
            }
        } else if (!same_value(it.value, got)) {
            fail_msg("%s differs", key);
        }
    }
    /* a second rewrite gives the same text: it has settled */
    csn_buf again = text_of(&q.arch);
    assert_true(csn_str_eq(csn_buf_view(&text), csn_buf_view(&again)));
    csn_buf_free(&text);
    csn_buf_free(&again);
    done(&p);
    done(&q);
}

static void an_arch_made_by_hand_is_written(void **state) {
    (void)state;
    static csn_layer_type layers[2] = {CSN_LAYER_FULL_ATTENTION, CSN_LAYER_FULL_ATTENTION};
    csn_arch a;
    csn_arch_init(&a);
    a.arch_name = CSN_STR("x");
    a.hidden_size = a.intermediate_size = a.vocab_size = a.max_position_embeddings = 8;
    a.n_layers = a.n_layer_types = 2;
    a.layer_types = layers;
    a.n_heads = a.n_kv_heads = 1;
    a.head_dim = 8;
    a.rms_norm_eps = 1e-6;
    csn_buf text = text_of(&a);
    assert_string_equal(
        text.ptr, "{\"arch_name\":\"x\",\"hidden_size\":8,\"intermediate_size\":8,\"num_layers\":2,"
                  "\"num_attention_heads\":1,\"num_kv_heads\":1,\"head_dim\":8,\"vocab_size\":8,"
                  "\"layer_types\":[\"FullAttention\",\"FullAttention\"],\"rms_norm_eps\":1e-6,"
                  "\"norm_style\":\"qwen\",\"rope_theta\":10000.0,\"tie_word_embeddings\":false,"
                  "\"partial_rotary_factor\":1.0,\"max_position_embeddings\":8,"
                  "\"linear_conv_kernel_dim\":null,\"linear_num_key_heads\":null,"
                  "\"linear_num_value_heads\":null}");
    csn_buf_free(&text);
}

static void null_stands_where_the_format_lets_it(void **state) {
    (void)state;
    static const char *const nullable[] = {"yarn",
                                           "attention_heads_per_layer",
                                           "query_pre_attn_scalar",
                                           "sliding_window",
                                           "sliding_window_pattern",
                                           "rope_local_base_freq",
                                           "global_head_dim",
                                           "final_logit_softcapping",
                                           "attn_logit_softcapping",
                                           "mla",
                                           "mtp",
                                           "moe",
                                           "linear_core",
                                           "linear_conv_kernel_dim",
                                           "linear_num_key_heads",
                                           "rope_freq_factors",
                                           "logit_multiplier",
                                           "g3n",
                                           "kda_gate_lower_bound",
                                           "caisson.longrope",
                                           "caisson.no_rope_layers"};
    static const char *const plain[] = {"norm_style",       "rope_theta",  "tie_word_embeddings",
                                        "hidden_act",       "num_loops",   "partial_rotary_factor",
                                        "embed_multiplier", "attn_v_norm", "loop_final_norm"};
    char text[1024];
    for (size_t i = 0; i < sizeof(nullable) / sizeof(nullable[0]); i++) {
        snprintf(text, sizeof(text), "{" BASE ",\"%s\":null}", nullable[i]);
        struct parsed p = parse(text);
        ASSERT_OK(p.status, &p.err);
        done(&p);
    }
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        char key[64];
        snprintf(text, sizeof(text), "{" BASE ",\"%s\":null}", plain[i]);
        snprintf(key, sizeof(key), "arch.%s", plain[i]);
        struct parsed p = parse(text);
        ASSERT_STATUS(p.status, CAISSON_E_PARSE);
        assert_string_equal(p.err.tensor, key);
        done(&p);
    }
}

#define MOE_OF_8 "\"moe\":{\"num_experts\":8,\"top_k\":3,\"moe_intermediate_size\":8"
#define MLA_OF(lora, rope, v)                                                                      \
    "\"mla\":{\"kv_lora_rank\":" lora ",\"qk_rope_head_dim\":" rope                                \
    ",\"qk_nope_head_dim\":4,\"v_head_dim\":" v "}"

static void senseless_values_are_refused_with_their_key(void **state) {
    (void)state;
    static const struct {
        const char *extra, *key;
        caisson_status status;
    } cases[] = {
        {"\"norm_style\":\"llama\"", "arch.norm_style", CAISSON_E_PARSE},
        {"\"hidden_act\":\"relu\"", "arch.hidden_act", CAISSON_E_UNSUPPORTED},
        {"\"rope_theta\":0", "arch.rope_theta", CAISSON_E_PARSE},
        {"\"rope_theta\":-1.0", "arch.rope_theta", CAISSON_E_PARSE},
        {"\"partial_rotary_factor\":1.5", "arch.partial_rotary_factor", CAISSON_E_PARSE},
        {"\"embed_multiplier\":1e39", "arch.embed_multiplier", CAISSON_E_PARSE},
        {"\"final_logit_softcapping\":0.0", "arch.final_logit_softcapping", CAISSON_E_PARSE},
        {"\"query_pre_attn_scalar\":0", "arch.query_pre_attn_scalar", CAISSON_E_PARSE},
        {"\"attention_heads_per_layer\":[4]", "arch.attention_heads_per_layer", CAISSON_E_PARSE},
        {"\"attention_heads_per_layer\":[4,4,3,4,4,4]", "arch.attention_heads_per_layer",
         CAISSON_E_PARSE},
        {"\"attention_heads_per_layer\":[4,4,0,4,4,4]", "arch.attention_heads_per_layer",
         CAISSON_E_PARSE},
        {"\"moe\":{\"num_experts\":4,\"moe_intermediate_size\":8}", "arch.moe.top_k",
         CAISSON_E_PARSE},
        {"\"moe\":{\"num_experts\":4,\"top_k\":5,\"moe_intermediate_size\":8}", "arch.moe.top_k",
         CAISSON_E_PARSE},
        {"\"moe\":{\"num_experts\":0,\"top_k\":0,\"moe_intermediate_size\":8}",
         "arch.moe.num_experts", CAISSON_E_PARSE},
        {"\"mla\":{\"kv_lora_rank\":8,\"qk_rope_head_dim\":4,\"qk_nope_head_dim\":4,"
         "\"v_head_dim\":8,\"caisson.norm_eps\":-0.001}",
         "arch.mla.caisson.norm_eps", CAISSON_E_PARSE},
        {"\"yarn\":{\"factor\":0.0,\"original_max_position_embeddings\":8}", "arch.yarn",
         CAISSON_E_PARSE},
        {"\"yarn\":{\"factor\":2.0,\"original_max_position_embeddings\":8,"
         "\"attention_factor\":-1.0}",
         "arch.yarn", CAISSON_E_PARSE},
        {"\"rope_freq_factors\":[1.0,0.0]", "arch.rope_freq_factors", CAISSON_E_PARSE},
        {"\"rope_freq_factors\":[\"1\"]", "arch.rope_freq_factors", CAISSON_E_PARSE},
        {"\"linear_core\":{\"num_heads\":1}", "arch.linear_core.kind", CAISSON_E_PARSE},
        {"\"caisson.longrope\":{\"short_factor\":[1.0],\"long_factor\":[1.0],"
         "\"original_max_position_embeddings\":8,\"attention_factor\":1.0}",
         "arch.caisson.longrope", CAISSON_E_PARSE},
        {"\"num_loops\":2,\"num_loops\":2", "arch.num_loops", CAISSON_E_PARSE},
        {"\"moe\":[]", "arch.moe", CAISSON_E_PARSE},
        {MOE_OF_8 ",\"caisson.n_group\":3,\"caisson.topk_group\":1}", "arch.moe.caisson.n_group",
         CAISSON_E_PARSE},
        {MOE_OF_8 ",\"caisson.group_max\":true}", "arch.moe.caisson.n_group", CAISSON_E_PARSE},
        {MOE_OF_8 ",\"caisson.n_group\":4}", "arch.moe.caisson.n_group", CAISSON_E_PARSE},
        {MOE_OF_8 ",\"caisson.n_group\":4,\"caisson.topk_group\":1}", "arch.moe.caisson.n_group",
         CAISSON_E_PARSE},
        {MLA_OF("0", "4", "8"), "arch.mla.kv_lora_rank", CAISSON_E_PARSE},
        {MLA_OF("8", "3", "8"), "arch.mla", CAISSON_E_PARSE},
        {MLA_OF("8", "4", "1048577"), "arch.mla.v_head_dim", CAISSON_E_PARSE},
        {"\"caisson.attn_res_block_size\":7", "arch.caisson.attn_res_block_size", CAISSON_E_PARSE},
        {"\"caisson.no_rope_layers\":[0,0]", "arch.caisson.no_rope_layers", CAISSON_E_PARSE},
        {"\"caisson.no_rope_layers\":[6]", "arch.caisson.no_rope_layers", CAISSON_E_PARSE},
        {"\"caisson.no_rope_layers\":[true]", "arch.caisson.no_rope_layers", CAISSON_E_PARSE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024];
        snprintf(text, sizeof(text), "{" BASE ",%s}", cases[i].extra);
        struct parsed p = parse(text);
        if (p.status != cases[i].status) {
            fail_msg("%s: %s", cases[i].extra, caisson_status_name(p.status));
        }
        assert_string_equal(p.err.tensor, cases[i].key);
        done(&p);
    }
}

/* The engine computes in f32: what is infinite there, or no divisor any more, is refused, and kept
 * to the last bit of its double otherwise. */
static void numbers_of_f32_alone_are_taken(void **state) {
    (void)state;
    static const struct {
        const char *format, *key;
        bool is_positive;
    } keys[] = {
        {"\"rope_theta\":%s", "rope_theta", true},
        {"\"rope_local_base_freq\":%s", "rope_local_base_freq", true},
        {"\"query_pre_attn_scalar\":%s", "query_pre_attn_scalar", true},
        {"\"final_logit_softcapping\":%s", "final_logit_softcapping", true},
        {"\"attn_logit_softcapping\":%s", "attn_logit_softcapping", true},
        {"\"embed_multiplier\":%s", "embed_multiplier", true},
        {"\"logit_multiplier\":%s", "logit_multiplier", true},
        {"\"partial_rotary_factor\":%s", "partial_rotary_factor", true},
        {"\"activation_situ_beta\":%s", "activation_situ_beta", false},
        {"\"activation_situ_linear_beta\":%s", "activation_situ_linear_beta", false},
        {"\"kda_gate_lower_bound\":%s", "kda_gate_lower_bound", false},
        {MOE_OF_8 ",\"routed_scaling_factor\":%s}", "moe.routed_scaling_factor", false},
    };
    static const struct {
        const char *number;
        bool is_taken, is_taken_as_positive;
    } values[] = {{"1e39", false, false}, {"1e300", false, false}, {"-1e39", false, false},
                  {"1e-50", true, false}, {"1e-300", true, false}, {"0.3", true, true}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
            char extra[160];
            char text[1024];
            char key[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(extra, sizeof(extra), keys[i].format, values[k].number);
#pragma GCC diagnostic pop
            snprintf(text, sizeof(text), "{" BASE ",%s}", extra);
            snprintf(key, sizeof(key), "arch.%s", keys[i].key);
            struct parsed p = parse(text);
            bool is_taken =
                keys[i].is_positive ? values[k].is_taken_as_positive : values[k].is_taken;
            if ((p.status == CAISSON_OK) != is_taken) {
                fail_msg("%s: %s", extra, caisson_status_name(p.status));
            }
            if (!is_taken) {
                ASSERT_STATUS(p.status, CAISSON_E_PARSE);
                assert_string_equal(p.err.tensor, key);
            }
            done(&p);
        }
    }
}

/* Tokens without a row have logits too: a header of some bytes would ask for gigabytes. */
static void a_vocabulary_has_a_limit(void **state) {
    (void)state;
    static const struct {
        const char *size;
        caisson_status status;
    } cases[] = {
        {"4194304", CAISSON_OK}, {"4194305", CAISSON_E_LIMIT}, {"2147483647", CAISSON_E_LIMIT}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static const char from[] = "\"vocab_size\":8";
        static const char base[] = "{" BASE "}";
        char text[1024];
        const char *at = strstr(base, from);
        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s\"vocab_size\":%s%s", (int)(at - base), base,
                 cases[i].size, at + sizeof(from) - 1);
        struct parsed p = parse(text);
        ASSERT_STATUS(p.status, cases[i].status);
        if (p.status != CAISSON_OK) {
            assert_string_equal(p.err.tensor, "arch.vocab_size");
        }
        done(&p);
    }
}

static void local_layers_follow_pattern_or_type(void **state) {
    (void)state;
    static csn_layer_type types[4] = {CSN_LAYER_FULL_ATTENTION, CSN_LAYER_SLIDING_ATTENTION,
                                      CSN_LAYER_FULL_ATTENTION, CSN_LAYER_FULL_ATTENTION};
    csn_arch a;
    csn_arch_init(&a);
    a.n_layers = 12;
    assert_false(csn_arch_is_local(&a, 0)); /* no window */
    a.sliding_window = 512;
    assert_false(csn_arch_is_local(&a, 0)); /* a window alone says nothing */
    a.sliding_all = true;
    assert_true(csn_arch_is_local(&a, 0) && csn_arch_is_local(&a, 11));
    a.sliding_all = false;
    a.sliding_window_pattern = 6; /* layers 5 and 11 are global */
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(csn_arch_is_local(&a, i), i != 5 && i != 11);
    }
    a.sliding_window_pattern = 0;
    a.layer_types = types;
    a.n_layer_types = 4;
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(csn_arch_is_local(&a, i), i == 1);
    }
}

static void rotary_dims_are_even_and_at_least_two(void **state) {
    (void)state;
    csn_arch a;
    csn_arch_init(&a);
    static const struct {
        uint32_t head_dim;
        float factor;
        uint32_t want;
    } cases[] = {{64, 1.0f, 64}, {128, 0.25f, 32}, {80, 0.4f, 32}, {96, 0.75f, 72},
                 {8, 0.01f, 2},  {6, 0.5f, 2},     {2, 1.0f, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        a.head_dim = cases[i].head_dim;
        a.partial_rotary_factor = cases[i].factor;
        assert_int_equal(csn_arch_rotary_dim(&a, 0), cases[i].want);
    }
}

static void every_failed_allocation_is_told(void **state) {
    (void)state;
    caisson_error err;
    csn_json *doc = NULL;
    ASSERT_OK(csn_json_parse(CSN_STR(EVERYTHING), 0, &doc, &err), &err);
    for (int64_t n = 0;; n++) {
        csn_arena arena = {0};
        csn_arch a;
        csn_alloc_fail_after(n);
        caisson_status status = csn_arch_parse(csn_json_root(doc), &arena, &a, &err);
        csn_alloc_fail_after(-1);
        csn_arena_done(&arena);
        if (status == CAISSON_OK) {
            assert_true(n > 0);
            break;
        }
        assert_int_equal(status, CAISSON_E_NOMEM);
    }
    csn_json_free(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"golden archs survive a rewrite (CMF 2)", golden_archs_survive_a_rewrite, NULL, NULL,
         NULL},
        {"defaults are those of the format (CMF 2)", defaults_are_those_of_the_format, NULL, NULL,
         NULL},
        {"every key is read (CMF 2)", every_key_is_read, NULL, NULL, NULL},
        {"rewriting keeps unknown keys (CMF 1.1)", rewriting_keeps_everything, NULL, NULL, NULL},
        cmocka_unit_test(an_arch_made_by_hand_is_written),
        {"null stands where the format lets it (CMF 2)", null_stands_where_the_format_lets_it, NULL,
         NULL, NULL},
        cmocka_unit_test(senseless_values_are_refused_with_their_key),
        cmocka_unit_test(numbers_of_f32_alone_are_taken),
        cmocka_unit_test(a_vocabulary_has_a_limit),
        cmocka_unit_test(local_layers_follow_pattern_or_type),
        cmocka_unit_test(rotary_dims_are_even_and_at_least_two),
        cmocka_unit_test(every_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
