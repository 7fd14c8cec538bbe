/* SPDX-License-Identifier: Apache-2.0 */
/* A small random model in a .cmf file, for tests of the model and engine rooms: what it computes
 * means nothing, but it must compute the same under every split. */
#ifndef TESTS_SUPPORT_TINY_MODEL_H
#define TESTS_SUPPORT_TINY_MODEL_H

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "model/model.h"

typedef struct tiny_options {
    const char *arch_name; /* NULL = "llama" */
    const char *dtype;     /* of matrices; NULL = "f32" */
    bool biases, qk_norm, sandwich, untied;
    uint32_t n_layers;              /* 0 = 3 */
    uint32_t ffn;                   /* 0 = TINY_FFN */
    bool ffn_biases;                /* of gate, up and down of dense layers */
    uint32_t n_experts;             /* layers from 1 on are mixtures of so many, 2 a token */
    bool shared_expert;             /* ... with a shared one behind a gate */
    const char *drop;               /* this tensor is left out */
    const char *extra;              /* a tensor [1] of this name is added */
    const char *const *skill;       /* skill "a" replaces these tensors; NULL-terminated */
    const char *const *skill_b;     /* and skill "b" these */
    const char *reshape;            /* this tensor gets one row more */
    void (*change)(csn_arch *arch); /* last word on the description */
    void (*edit)(csn_str name, float *x, uint64_t rows, uint64_t cols); /* ... and on the values */
} tiny_options;

enum {
    TINY_HIDDEN = 64,
    TINY_HEADS = 6,
    TINY_KV = 2,
    TINY_HD = 32,
    TINY_FFN = 96,
    TINY_EXPERT_FFN = 64,
    TINY_VOCAB = 300
};

struct tiny_writer {
    const tiny_options *o;
    csn_cmf_plan_tensor t[256];
    char names[256][128];
    uint32_t n;
};

static inline void tiny_add(struct tiny_writer *w, const char *name, uint64_t rows, uint64_t cols) {
    if (w->o->drop != NULL && strcmp(name, w->o->drop) == 0) {
        return;
    }
    if (w->o->reshape != NULL && strcmp(name, w->o->reshape) == 0) {
        rows++;
    }
    csn_cmf_plan_tensor *t = &w->t[w->n];
    snprintf(w->names[w->n], sizeof(w->names[0]), "%s", name);
    t->name = csn_str_from(w->names[w->n++]);
    t->shape = (csn_shape){cols == 0 ? 1 : 2, {rows, cols}};
    t->dtype = csn_dtype_by_name(csn_str_from(cols == 0             ? "f32"
                                              : w->o->dtype != NULL ? w->o->dtype
                                                                    : "f32"));
}

static inline void tiny_layer(struct tiny_writer *w, uint32_t i, const char *suffix, uint64_t rows,
                              uint64_t cols) {
    char name[96];
    snprintf(name, sizeof(name), "model.layers.%u.%s", i, suffix);
    tiny_add(w, name, rows, cols);
}

static inline void tiny_ffn(struct tiny_writer *w, uint32_t i, const char *prefix, uint64_t width) {
    static const char *const roles[] = {"gate_proj", "up_proj", "down_proj"};
    for (int r = 0; r < 3; r++) {
        char suffix[64];
        snprintf(suffix, sizeof(suffix), "%s.%s.weight", prefix, roles[r]);
        tiny_layer(w, i, suffix, r < 2 ? width : TINY_HIDDEN, r < 2 ? TINY_HIDDEN : width);
    }
}

static inline uint32_t tiny_width(const tiny_options *o) {
    return o->ffn != 0 ? o->ffn : TINY_FFN;
}

static inline void tiny_mixture(struct tiny_writer *w, uint32_t i) {
    tiny_layer(w, i, "mlp.gate.weight", w->o->n_experts, TINY_HIDDEN);
    for (uint32_t e = 0; e < w->o->n_experts; e++) {
        char prefix[32];
        snprintf(prefix, sizeof(prefix), "mlp.experts.%u", e);
        tiny_ffn(w, i, prefix, TINY_EXPERT_FFN);
    }
    if (w->o->shared_expert) {
        tiny_layer(w, i, "mlp.shared_expert_gate.weight", 1, TINY_HIDDEN);
        tiny_ffn(w, i, "mlp.shared_expert", TINY_FFN);
    }
}

static inline void tiny_skill(struct tiny_writer *w, const char *id, const char *const *replaced,
                              uint32_t n_backbone) {
    for (uint32_t k = 0; replaced != NULL && replaced[k] != NULL; k++) {
        for (uint32_t i = 0; i < n_backbone; i++) {
            if (strcmp(w->names[i], replaced[k]) == 0) {
                char name[sizeof(w->names[0]) + 64];
                const csn_shape *s = &w->t[i].shape;
                snprintf(name, sizeof(name), "skill.%s.%s", id, w->names[i]);
                tiny_add(w, name, s->dim[0], s->n_dims == 2 ? s->dim[1] : 0);
            }
        }
    }
}

static inline void tiny_list(struct tiny_writer *w, uint32_t n_layers) {
    const tiny_options *o = w->o;
    tiny_add(w, "model.embed_tokens.weight", TINY_VOCAB, TINY_HIDDEN);
    for (uint32_t i = 0; i < n_layers; i++) {
        tiny_layer(w, i, "input_layernorm.weight", TINY_HIDDEN, 0);
        tiny_layer(w, i, "post_attention_layernorm.weight", TINY_HIDDEN, 0);
        tiny_layer(w, i, "self_attn.q_proj.weight", TINY_HEADS * TINY_HD, TINY_HIDDEN);
        tiny_layer(w, i, "self_attn.k_proj.weight", TINY_KV * TINY_HD, TINY_HIDDEN);
        tiny_layer(w, i, "self_attn.v_proj.weight", TINY_KV * TINY_HD, TINY_HIDDEN);
        tiny_layer(w, i, "self_attn.o_proj.weight", TINY_HIDDEN, TINY_HEADS * TINY_HD);
        if (o->n_experts == 0 || i == 0) {
            tiny_ffn(w, i, "mlp", tiny_width(o));
        } else {
            tiny_mixture(w, i);
        }
        if (o->biases) {
            tiny_layer(w, i, "self_attn.q_proj.bias", TINY_HEADS * TINY_HD, 0);
            tiny_layer(w, i, "self_attn.k_proj.bias", TINY_KV * TINY_HD, 0);
            tiny_layer(w, i, "self_attn.v_proj.bias", TINY_KV * TINY_HD, 0);
        }
        if (o->ffn_biases) {
            tiny_layer(w, i, "mlp.gate_proj.bias", tiny_width(o), 0);
            tiny_layer(w, i, "mlp.up_proj.bias", tiny_width(o), 0);
            tiny_layer(w, i, "mlp.down_proj.bias", TINY_HIDDEN, 0);
        }
        if (o->qk_norm) {
            tiny_layer(w, i, "self_attn.q_norm.weight", TINY_HD, 0);
            tiny_layer(w, i, "self_attn.k_norm.weight", TINY_HD, 0);
        }
        if (o->sandwich) {
            tiny_layer(w, i, "pre_feedforward_layernorm.weight", TINY_HIDDEN, 0);
            tiny_layer(w, i, "post_feedforward_layernorm.weight", TINY_HIDDEN, 0);
        }
    }
    tiny_add(w, "model.norm.weight", TINY_HIDDEN, 0);
    if (o->untied) {
        tiny_add(w, "lm_head.weight", TINY_VOCAB, TINY_HIDDEN);
    }
    if (o->extra != NULL) {
        tiny_add(w, o->extra, 1, 0);
    }
    uint32_t n_backbone = w->n;
    tiny_skill(w, "a", o->skill, n_backbone);
    tiny_skill(w, "b", o->skill_b, n_backbone);
}

static inline void tiny_header(const tiny_options *o, uint32_t n_layers, csn_buf *out,
                               caisson_error *err) {
    csn_arch a;
    csn_arch_init(&a);
    csn_layer_type types[16] = {CSN_LAYER_FULL_ATTENTION};
    a.arch_name = csn_str_from(o->arch_name != NULL ? o->arch_name : "llama");
    a.hidden_size = TINY_HIDDEN;
    a.intermediate_size = tiny_width(o);
    a.n_layers = n_layers;
    a.n_heads = TINY_HEADS;
    a.n_kv_heads = TINY_KV;
    a.head_dim = TINY_HD;
    a.vocab_size = TINY_VOCAB;
    a.max_position_embeddings = 2048;
    a.layer_types = types;
    a.n_layer_types = n_layers;
    a.rms_norm_eps = 1e-5;
    a.tie_word_embeddings = !o->untied;
    a.moe.present = o->n_experts != 0;
    a.moe.n_experts = o->n_experts;
    a.moe.top_k = 2;
    a.moe.moe_intermediate_size = TINY_EXPERT_FFN;
    a.moe.norm_topk_prob = !o->shared_expert;
    if (o->change != NULL) {
        o->change(&a);
    }
    csn_jw w = csn_jw_begin(out, err);
    csn_jw_object(&w);
    csn_jw_key(&w, CSN_STR("format"));
    csn_jw_str(&w, CSN_STR("cmf"));
    csn_jw_key(&w, CSN_STR("version"));
    csn_jw_u64(&w, 2);
    csn_jw_key(&w, CSN_STR("arch"));
    csn_arch_write(&a, &w);
    csn_jw_key(&w, CSN_STR("quant_type"));
    csn_jw_str(&w, CSN_STR("F32"));
    csn_jw_object_end(&w);
    if (csn_jw_end(&w) != CAISSON_OK) {
        abort();
    }
}

static inline void tiny_check(caisson_status s, const caisson_error *err) {
    if (s != CAISSON_OK) {
        char line[1024];
        fprintf(stderr, "tiny model: %s\n", caisson_error_format(err, line, sizeof(line)));
        abort();
    }
}

/* Values of tensor t: norms around 1, the rest so small that activations neither grow nor vanish.
 * They follow from the name alone, row by row: a model with fewer experts has the same ones. */
static inline void tiny_values(const csn_cmf_plan_tensor *t, float *x, uint64_t n) {
    bool norm = csn_str_ends(t->name, CSN_STR("norm.weight"));
    uint32_t seed = 2166136261u;
    for (size_t i = 0; i < t->name.len; i++) {
        seed = (seed ^ (uint8_t)t->name.ptr[i]) * 16777619u;
    }
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        float u = (float)(int32_t)seed * 0x1p-31f;
        x[i] = norm ? 1.0f + 0.2f * u : 0.25f * u;
    }
}

/* Writes the file. Same options, same bytes (but arch_name and change touch the header alone). */
static inline void tiny_write(const tiny_options *o, const char *path) {
    caisson_error err = {0};
    struct tiny_writer *w = calloc(1, sizeof(*w));
    w->o = o;
    uint32_t n_layers = o->n_layers != 0 ? o->n_layers : 3;
    tiny_list(w, n_layers);
    csn_buf header = CSN_BUF_INIT(1 << 20);
    tiny_header(o, n_layers, &header, &err);
    csn_cmf_plan plan = {.tensors = w->t, .n = w->n, .head_bytes = 1 << 16};
    csn_cmf_writer *writer;
    uint32_t n_done;
    tiny_check(csn_cmf_writer_new(csn_fs_os(), path, &plan, &writer, &n_done, &err), &err);
    for (uint32_t i = 0; i < w->n; i++) {
        const csn_cmf_plan_tensor *t = &w->t[i];
        uint64_t n;
        (void)csn_shape_count(&t->shape, &n);
        float *x = malloc(n * sizeof(float));
        csn_buf packed = CSN_BUF_INIT(1 << 30);
        tiny_values(t, x, n);
        if (o->edit != NULL) {
            o->edit(t->name, x, t->shape.dim[0], t->shape.n_dims == 2 ? t->shape.dim[1] : 1);
        }
        csn_encode_options cheap = {.encoder = CSN_ENCODER_REFERENCE};
        tiny_check(t->dtype->encode(x, &t->shape, &cheap, NULL, &packed, &err), &err);
        if (i >= n_done) {
            tiny_check(csn_cmf_writer_tensor(writer, packed.ptr, packed.len, &err), &err);
        }
        free(x);
        csn_buf_free(&packed);
    }
    tiny_check(csn_cmf_writer_finish(writer, csn_buf_view(&header), (csn_str){"", 0}, &err), &err);
    csn_cmf_writer_close(writer, false);
    csn_buf_free(&header);
    free(w);
}

/* Opens it; on failure *ret stays and the status comes back. */
static inline caisson_status tiny_open(const char *path, csn_model **ret, caisson_error *err) {
    csn_cmf *cmf;
    csn_store *store;
    CSN_TRY(csn_cmf_open(csn_fs_os(), path, &cmf, err));
    caisson_status s = csn_store_new(cmf, &(csn_store_options){0}, &store, err);
    if (s != CAISSON_OK) {
        csn_cmf_close(cmf);
        return s;
    }
    s = csn_model_new(store, ret, err);
    if (s != CAISSON_OK) {
        csn_store_free(store);
    }
    return s;
}

#endif
