/* SPDX-License-Identifier: Apache-2.0 */
/* A model family is an import recipe: how its config.json or GGUF metadata become `arch`, and where
 * each canonical tensor (facts 3.5) comes from. One file in families/ and one row in families.c.
 * The engine never sees it. */
#ifndef CSN_CONVERT_FAMILY_H
#define CSN_CONVERT_FAMILY_H

#include "arch/arch.h"
#include "convert/config.h"
#include "convert/meta.h"
#include "format/directory.h"

/* A dim in terms of arch. */
typedef enum csn_dim {
    CSN_DIM_NONE, /* as the second dim: the tensor is 1-D */
    CSN_DIM_VOCAB,
    CSN_DIM_HIDDEN,
    CSN_DIM_Q,  /* n_heads * head_dim */
    CSN_DIM_KV, /* n_kv_heads * head_dim */
    CSN_DIM_FFN,
    CSN_DIM_HEAD,       /* head_dim */
    CSN_DIM_ONE,        /* 1 */
    CSN_DIM_EXPERTS,    /* moe.n_experts */
    CSN_DIM_EXPERT_FFN, /* moe.moe_intermediate_size */
    CSN_DIM_SHARED_FFN, /* moe.shared_expert_intermediate_size */
    CSN_DIM_LATENT,     /* moe.routed_expert_hidden_size, or hidden_size where it is absent */
    /* latent attention */
    CSN_DIM_Q_LORA,  /* mla.q_lora_rank */
    CSN_DIM_MLA_Q,   /* n_heads * (qk_nope_head_dim + qk_rope_head_dim) */
    CSN_DIM_MLA_V,   /* n_heads * v_head_dim */
    CSN_DIM_KV_LORA, /* mla.kv_lora_rank */
    CSN_DIM_KV_A,    /* kv_lora_rank + qk_rope_head_dim */
    CSN_DIM_KV_B,    /* n_heads * (qk_nope_head_dim + v_head_dim) */
    /* Kimi Delta Attention */
    CSN_DIM_KDA,       /* linear_n_value_heads * linear_value_head_dim */
    CSN_DIM_KDA_HEAD,  /* linear_value_head_dim */
    CSN_DIM_KDA_HEADS, /* linear_n_value_heads */
    CSN_DIM_KDA_CONV   /* linear_conv_kernel_dim */
} csn_dim;

enum {
    CSN_ROW_OPTIONAL = 1,
    CSN_ROW_NORM = 2,     /* a norm weight of the residual stream, q or k */
    CSN_ROW_ROTARY = 4,   /* rows are rotated: GGUF's llama order differs from ours */
    CSN_ROW_FFN = 8,      /* not in layers that have a router */
    CSN_ROW_ROUTER = 16,  /* the router: a layer that has it is a mixture of experts */
    CSN_ROW_MIXTURE = 32, /* only in layers that have a router */
    CSN_ROW_EXPERT = 64,  /* the same, once an expert: a second "{}" stands for its number; a GGUF
                           * tensor holds all of them, [experts][rows][cols] */
    CSN_ROW_KDA = 128,    /* only in layers of Kimi Delta Attention */
    CSN_ROW_MLA = 256,    /* only in the others */
    CSN_ROW_ANY_SHAPE = 512, /* at least rows * cols elements in any shape, which is kept; of a
                              * vector (cols NONE) as a vector, of GGUF as [rows, 1, cols] */
    CSN_ROW_KV_B =
        1024,           /* kv_b_proj: GGUF may hold the keys' rows, turned, and the values' apart */
    CSN_ROW_LOG = 2048, /* of x GGUF holds -exp(x) */
};

/* One tensor: ours <- Hugging Face | GGUF. "{}" stands for the layer's number; a row without it is
 * there once. The source may be taller: then this tensor is its rows behind those of `before`. */
typedef struct csn_name_row {
    const char *name; /* ours */
    const char *hf;   /* NULL = as ours */
    const char *gguf; /* NULL = not in GGUF */
    csn_dim rows, cols;
    unsigned flags;
    csn_dim before[2];  /* rows of the source in front of ours */
    csn_dim of_rows[3]; /* all rows of the source, when it holds more than ours */
} csn_name_row;

/* A row whose source holds nothing else; a table of rows. */
#define CSN_NAME_ROW(name, hf, gguf, rows, cols, flags)                                            \
    {                                                                                              \
        name, hf, gguf, rows, cols, flags, {0}, {                                                  \
            0                                                                                      \
        }                                                                                          \
    }
#define CSN_NAME_TABLE(rows)                                                                       \
    { rows, sizeof(rows) / sizeof((rows)[0]) }

typedef struct csn_name_table {
    const csn_name_row *rows;
    size_t n;
} csn_name_table;

typedef struct csn_family {
    const char *const *names;      /* model_type of config.json, NULL-terminated */
    const char *const *gguf_names; /* general.architecture, NULL-terminated */
    /* Fill *ret (initialised by csn_arch_init, arch_name set). Arrays and strings go to `arena`.
     * CAISSON_E_PARSE: missing or malformed; CAISSON_E_UNSUPPORTED: understood or not, but we
     * cannot run it. `dir`: the source's tensors, where a recipe keeps data there. */
    caisson_status (*read_config)(csn_config *c, csn_arena *arena, csn_arch *ret,
                                  caisson_error *err);
    /* NULL where gguf_names is empty. */
    caisson_status (*read_gguf)(csn_meta *m, csn_arena *arena, csn_arch *ret, caisson_error *err);
    const csn_name_table *const *tables; /* NULL-terminated */
    bool gguf_permutes_rows;  /* q and k rows lie in interleaved order (llama.cpp's llama) */
    bool gguf_adds_one;       /* norm weights are stored as 1 + w */
    const char *ffn_alias;    /* what a checkpoint may call `mlp` of dense layers, or NULL */
    const char *const *drops; /* prefixes of tensors that are left out (vision towers), or NULL */
    bool is_named_outside;    /* text_config calls itself by another family's name */
    bool drops_next_layers;   /* layers behind the last, which predict more than one token */
} csn_family;

extern const csn_family *const csn_families[]; /* NULL-terminated */
/* CAISSON_E_UNSUPPORTED names the architecture and lists what is supported. */
caisson_status csn_family_find(csn_str name, bool is_gguf, const csn_family **ret,
                               caisson_error *err);

/* ---- what recipes share (families/common.c) ---- */
extern const csn_name_table csn_names_dense;    /* embedding, norms, q k v o, gated FFN, head */
extern const csn_name_table csn_names_fused;    /* the same with Phi's qkv_proj and gate_up_proj */
extern const csn_name_table csn_names_ffn_norm; /* the norm in front of it, without a sandwich */
extern const csn_name_table csn_names_biases;   /* all optional */
extern const csn_name_table csn_names_qk_norm;
extern const csn_name_table csn_names_sandwich; /* Gemma's norms around the FFN */
extern const csn_name_table csn_names_moe;      /* router and experts */
extern const csn_name_table csn_names_shared;   /* the shared expert and its gate */
extern const csn_name_table csn_names_mla;      /* latent attention, with a gate or without */
extern const csn_name_table csn_names_deepseek; /* its router and experts */
extern const csn_name_table csn_names_ends;     /* embedding, final norm, head, first norm, FFN */

/* Values that a family's configuration class gives to keys that config.json leaves out. 0 = the
 * key is required; n_kv_heads 0 = as n_heads; head_dim 0 = hidden_size / n_heads. */
typedef struct csn_config_defaults {
    uint32_t vocab_size, hidden_size, intermediate_size, n_layers, n_heads, n_kv_heads, head_dim;
    uint32_t max_position_embeddings;
    double rms_norm_eps;
    bool tie_word_embeddings;
    csn_act hidden_act;
    bool has_activation; /* Gemma 2 and 3: it is read from hidden_activation */
    bool gelu_is_tanh;   /* Gemma 1: "gelu" was written for the approximation by tanh */
} csn_config_defaults;

/* Sizes, eps, ties, activation, but no RoPE. */
caisson_status csn_config_sizes(csn_config *c, const csn_config_defaults *d, csn_arch *a,
                                caisson_error *err);
/* rope_theta, partial_rotary_factor and rope_scaling or rope_parameters. */
typedef struct csn_rope_rules {
    double theta;       /* default */
    double local_theta; /* Gemma 3: default of sliding layers; 0 = they share the global one */
    bool is_phi;        /* longrope under its names of old; the original context at top level */
} csn_rope_rules;
caisson_status csn_config_rope(csn_config *c, const csn_rope_rules *rules, csn_arena *arena,
                               csn_arch *a, caisson_error *err);
/* layer_types, when given: which layers slide. Without it *ret_has is false. */
caisson_status csn_config_layer_types(csn_config *c, csn_arena *arena, csn_arch *a, bool *ret_has,
                                      caisson_error *err);
/* use_sliding_window, sliding_window, max_window_layers, layer_types of Qwen2 and Qwen3. Which
 * layers slide where layer_types does not say it: */
typedef enum csn_qwen_window {
    CSN_QWEN_FROM_MAX,       /* from max_window_layers on */
    CSN_QWEN_EVEN_BELOW_MAX, /* every second one, from the first, in front of it */
    CSN_QWEN_ALL             /* all, and layer_types may not say anything else */
} csn_qwen_window;
caisson_status csn_config_qwen_window(csn_config *c, csn_qwen_window which, csn_arena *arena,
                                      csn_arch *a, caisson_error *err);
/* num_experts, num_experts_per_tok, moe_intermediate_size, norm_topk_prob (absent: `norm`), and
 * with `has_shared` shared_expert_intermediate_size. Which layers are mixtures is decided by the
 * tensors that are there. */
caisson_status csn_config_moe(csn_config *c, bool norm, bool has_shared, csn_arch *a,
                              caisson_error *err);
/* What transformers adds to the mean square of latents (DeepSeek-V2, -V3, Kimi-Linear), whatever
 * rms_norm_eps is. */
#define CSN_LATENT_EPS 1e-6
/* mla.*: ranks, dims of heads, mla_use_nope; and head_dim, that of a query. rms_norm_eps has been
 * read; `norm_eps`: that of the latents' norms, 0 = the same. Rotated dims are pairs where
 * rope_interleave does not say it. RoPE is read by csn_config_rope. */
caisson_status csn_config_mla(csn_config *c, const csn_rope_rules *rules, double norm_eps,
                              csn_arena *arena, csn_arch *a, caisson_error *err);
/* DeepSeek's router and experts, under its names and Kimi's: scored by the sigmoid, groups by their
 * two best (V3), or by softmax, groups by their best (V2). */
caisson_status csn_config_grouped_moe(csn_config *c, bool is_sigmoid, csn_arch *a,
                                      caisson_error *err);
/* The same of GGUF, which says how experts are scored; `norm`: what expert_weights_norm is where it
 * is absent. */
caisson_status csn_meta_grouped_moe(csn_meta *m, bool norm, csn_arch *a, caisson_error *err);
/* expert_count, expert_used_count, expert_feed_forward_length and the shared expert's. */
caisson_status csn_meta_moe(csn_meta *m, bool norm, bool has_shared, csn_arch *a,
                            caisson_error *err);
/* All layers full attention, as an explicit list. */
caisson_status csn_arch_full_layers(csn_arch *a, csn_arena *arena, caisson_error *err);
/* Sliding where (i + 1) % pattern != 0, as pattern and list. */
caisson_status csn_arch_pattern(csn_arch *a, uint32_t pattern, csn_arena *arena,
                                caisson_error *err);

caisson_status csn_meta_sizes(csn_meta *m, csn_arch *a, caisson_error *err);
/* The same without the sizes of heads and the number of key-value heads. */
caisson_status csn_meta_model(csn_meta *m, csn_arch *a, caisson_error *err);
/* mla.*, head_dim, that of a query, and RoPE. */
caisson_status csn_meta_mla(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err);
/* rope.freq_base, rope.scaling.*, and the factor tensors of the file (rope_freqs,
 * rope_factors_short and _long). */
caisson_status csn_meta_rope(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err);

/* What cosines and sines of longrope are multiplied by where the checkpoint does not say. */
double csn_rope_longrope_scale(double factor, double original);
/* inv_freq divisors of RoPE type "llama3", [rotary_dim / 2]. */
void csn_rope_llama3(double theta, uint32_t rotary_dim, double factor, double low_freq_factor,
                     double high_freq_factor, double original, double *ret);

#endif
