/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to make. "small" is for tests; the others have the sizes of the models of those
 * names (warp facts 2.4). */
#include "convert/synth_internal.h"

/* Shared by every size of a family. */
#define KIMI_LINEAR                                                                                \
    .model_type = "kimi_linear", .class_name = "KimiLinearForCausalLM", .rms_norm_eps = 1e-5,      \
    .first_dense = 1, .n_shared = 1, .renormalize = true, .rope_theta = 10000, .kda_conv = 4
#define KIMI_K3                                                                                    \
    .model_type = "kimi_linear", .class_name = "KimiLinearForCausalLM",                            \
    .outer_class = "KimiK3ForConditionalGeneration", .rms_norm_eps = 1e-5, .first_dense = 1,       \
    .n_shared = 2, .renormalize = true, .routed_scaling_factor = 1.0, .mla_gate = true,            \
    .rope_theta = 10000, .kda_conv = 4, .kda_full_gate = true, .kda_lower_bound = -5,              \
    .is_situ = true, .situ_beta = 4, .situ_linear_beta = 25
#define DEEPSEEK_V3                                                                                \
    .model_type = "deepseek_v3", .class_name = "DeepseekV3ForCausalLM", .n_shared = 1,             \
    .renormalize = true, .mla_rotates = true
#define YARN(factor_, fast)                                                                        \
    .yarn = {.present = true,                                                                      \
             .factor = (factor_),                                                                  \
             .mscale = 1,                                                                          \
             .mscale_all_dim = 1,                                                                  \
             .beta_fast = (fast),                                                                  \
             .beta_slow = 1,                                                                       \
             .original_max_position_embeddings = 4096}
#define MLA(q, kv, nope, rope, v)                                                                  \
    .q_lora_rank = (q), .kv_lora_rank = (kv), .qk_nope_head_dim = (nope),                          \
    .qk_rope_head_dim = (rope), .v_head_dim = (v)

#define SMALL                                                                                      \
    .n_layers = 4, .hidden_size = 256, .vocab_size = 1024, .n_heads = 4, .intermediate_size = 512
#define HEAD_64                                                                                    \
    { "head_dim", "64" }

const csn_synth_size csn_synth_sizes[] = {
    {.family = "kimi_linear",
     .size = "small",
     .prefix = "",
     .is_warp = true,
     .mla_every = 4,
     .config = {KIMI_LINEAR, MLA(0, 64, 32, 16, 32), .n_layers = 5, .hidden_size = 256,
                .vocab_size = 1024, .n_heads = 4, .intermediate_size = 512, .n_experts = 16,
                .top_k = 4, .expert_width = 128, .routed_scaling_factor = 2.446, .n_kda_heads = 4,
                .kda_head_dim = 32}},
    {.family = "kimi_linear",
     .size = "kimi-linear",
     .prefix = "",
     .is_warp = true,
     .mla_every = 4,
     .config = {KIMI_LINEAR, MLA(0, 512, 128, 64, 128), .n_layers = 27, .hidden_size = 2304,
                .vocab_size = 163840, .n_heads = 32, .intermediate_size = 9216, .n_experts = 256,
                .top_k = 8, .expert_width = 1024, .routed_scaling_factor = 2.446, .n_kda_heads = 32,
                .kda_head_dim = 128}},
    {.family = "kimi_k3",
     .size = "small",
     .prefix = "language_model.",
     .is_warp = true,
     .mla_every = 4,
     .config = {KIMI_K3, MLA(96, 64, 32, 16, 32), .n_layers = 5, .hidden_size = 256,
                .vocab_size = 1024, .n_heads = 4, .intermediate_size = 512, .n_experts = 16,
                .top_k = 4, .expert_width = 128, .latent_size = 128, .n_kda_heads = 4,
                .kda_head_dim = 32, .attn_res_block = 2}},
    {.family = "kimi_k3",
     .size = "k3",
     .prefix = "language_model.",
     .is_warp = true,
     .mla_every = 4,
     .config = {KIMI_K3, MLA(1536, 512, 128, 64, 128), .n_layers = 93, .hidden_size = 7168,
                .vocab_size = 163840, .n_heads = 96, .intermediate_size = 18432, .n_experts = 896,
                .top_k = 16, .expert_width = 3072, .latent_size = 3584, .n_kda_heads = 96,
                .kda_head_dim = 128, .attn_res_block = 12}},
    {.family = "kimi_k3",
     .size = "k3-8l",
     .prefix = "language_model.",
     .is_warp = true,
     .mla_every = 4,
     .config = {KIMI_K3, MLA(1536, 512, 128, 64, 128), .n_layers = 8, .hidden_size = 7168,
                .vocab_size = 163840, .n_heads = 96, .intermediate_size = 18432, .n_experts = 896,
                .top_k = 16, .expert_width = 3072, .latent_size = 3584, .n_kda_heads = 96,
                .kda_head_dim = 128, .attn_res_block = 4}},
    {.family = "deepseek_v3",
     .size = "small",
     .prefix = "",
     .is_warp = true,
     .config = {DEEPSEEK_V3, MLA(96, 64, 32, 16, 32), YARN(32, 1), .n_layers = 4,
                .hidden_size = 256, .vocab_size = 1024, .n_heads = 4, .intermediate_size = 512,
                .rms_norm_eps = 1e-5, .n_experts = 16, .top_k = 4, .expert_width = 128,
                .first_dense = 1, .routed_scaling_factor = 2.5, .rope_theta = 50000}},
    {.family = "deepseek_v3",
     .size = "k2",
     .prefix = "",
     .is_warp = true,
     .config = {DEEPSEEK_V3, MLA(1536, 512, 128, 64, 128), YARN(32, 1), .n_layers = 61,
                .hidden_size = 7168, .vocab_size = 163840, .n_heads = 64,
                .intermediate_size = 18432, .rms_norm_eps = 1e-5, .n_experts = 384, .top_k = 8,
                .expert_width = 2048, .first_dense = 1, .routed_scaling_factor = 2.827,
                .rope_theta = 50000}},
    {.family = "llama", .size = "small", .n_kv_heads = 2, .config = {SMALL}, .extra = {HEAD_64}},
    {.family = "mistral",
     .size = "small",
     .n_kv_heads = 2,
     .config = {SMALL},
     .extra = {HEAD_64, {"sliding_window", "64"}}},
    {.family = "qwen2",
     .size = "small",
     .n_kv_heads = 2,
     .has_bias = true,
     .config = {SMALL},
     .extra = {{"tie_word_embeddings", "true"}}},
    {.family = "qwen3", .size = "small", .n_kv_heads = 2, .config = {SMALL}, .extra = {HEAD_64}},
    {.family = "smollm3",
     .size = "small",
     .n_kv_heads = 2,
     .config = {SMALL},
     .extra = {{"tie_word_embeddings", "true"}}},
    {.family = "phi3",
     .size = "small",
     .n_kv_heads = 2,
     .config = {SMALL},
     .extra = {{"partial_rotary_factor", "0.75"}}},
    {.family = "gemma", .size = "small", .n_kv_heads = 1, .config = {SMALL}, .extra = {HEAD_64}},
    {.family = "gemma2",
     .size = "small",
     .n_kv_heads = 2,
     .config = {SMALL},
     .extra = {HEAD_64, {"sliding_window", "64"}, {"query_pre_attn_scalar", "64"}}},
    {.family = "gemma3_text",
     .size = "small",
     .n_kv_heads = 2,
     .config = {SMALL},
     .extra = {HEAD_64, {"sliding_window", "64"}, {"query_pre_attn_scalar", "64"}}},
    {.family = "deepseek_v2",
     .size = "small",
     .n_kv_heads = 4,
     .config = {SMALL, MLA(0, 64, 32, 16, 32), .n_experts = 16, .top_k = 4, .expert_width = 128,
                .first_dense = 1, .n_shared = 1},
     .extra = {{"first_k_dense_replace", "1"},
               {"n_routed_experts", "16"},
               {"n_shared_experts", "1"},
               {"q_lora_rank", "null"},
               {"kv_lora_rank", "64"},
               {"qk_nope_head_dim", "32"},
               {"qk_rope_head_dim", "16"},
               {"v_head_dim", "32"}}},
    {.family = "qwen2_moe",
     .size = "small",
     .n_kv_heads = 2,
     .has_bias = true,
     .config = {SMALL, .n_experts = 16, .top_k = 4, .expert_width = 128},
     .extra = {{"shared_expert_intermediate_size", "256"}}},
    {.family = "qwen3_moe",
     .size = "small",
     .n_kv_heads = 2,
     .config = {SMALL, .n_experts = 16, .top_k = 4, .expert_width = 128},
     .extra = {HEAD_64}},
    {.family = "qwen3_moe",
     .size = "30b-a3b",
     .n_kv_heads = 4,
     .config = {.n_layers = 48,
                .hidden_size = 2048,
                .vocab_size = 151936,
                .n_heads = 32,
                .intermediate_size = 6144,
                .n_experts = 128,
                .top_k = 8,
                .expert_width = 768},
     .extra = {{"head_dim", "128"}, {"norm_topk_prob", "true"}, {"rope_theta", "1000000.0"}}},
    {0},
};

bool csn_synth_name(unsigned i, const char **ret_family, const char **ret_size) {
    if (i + 1 >= sizeof(csn_synth_sizes) / sizeof(csn_synth_sizes[0])) {
        return false;
    }
    *ret_family = csn_synth_sizes[i].family;
    *ret_size = csn_synth_sizes[i].size;
    return true;
}
