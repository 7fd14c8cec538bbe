/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF as a source: files that llama.cpp's own converter made from our tiny checkpoints become the
 * same weights as the checkpoints; vocabularies encode as the original models do; what we do not
 * know is refused by name. */
#include "../test.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "convert/convert.h"
#include "convert/gguf_tokenizer.h"
#include "convert/source.h"
#include "format/cmf/cmf.h"
#include "support/gguf_bytes.h"
#include "support/memory_fs.h"
#include "text/tokenizer/tokenizer.h"

static void load(memory_fs *fs, const char *golden, const char *to) {
    char from[512];
    csn_buf b;
    caisson_error err;
    snprintf(from, sizeof(from), "%s/tests/golden/%s", CSN_SOURCE_DIR, golden);
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), from, 1 << 24, &b, &err), &err);
    memory_fs_put(fs, to, b.ptr, b.len);
    csn_buf_free(&b);
}

static csn_cmf *convert(memory_fs *fs, const char *source, const char *target) {
    caisson_error err;
    csn_cmf *c;
    csn_convert_options o = {.quant = csn_dtype_by_name(CSN_STR("f32")), .n_threads = 1};
    ASSERT_OK(csn_convert(&fs->base, source, target, &o, &err), &err);
    ASSERT_OK(csn_cmf_open(&fs->base, target, &c, &err), &err);
    return c;
}

/* llama.cpp keeps -exp(A_log), rounded to f32: the logarithm of that is not always A_log. */
static void assert_near(csn_str name, const float *x, const float *y, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (!(fabsf(x[i] - y[i]) <= 2 * FLT_EPSILON * fmaxf(1.0f, fabsf(x[i])))) {
            fail_msg("%.*s differs: %.9g, %.9g", CSN_STR_ARGS(name), (double)x[i], (double)y[i]);
        }
    }
}

static void assert_same_tensor(const csn_cmf *a, const csn_tensor *t, const csn_cmf *b) {
    caisson_error err;
    const csn_tensor *u = csn_directory_find(&b->dir, t->name);
    bool is_near = csn_str_ends(t->name, CSN_STR("kda_attn.A_log"));
    assert_non_null(u);
    assert_int_equal(t->nbytes, u->nbytes);
    assert_true(csn_shape_eq(&t->shape, &u->shape));
    if (t->hash != u->hash && !is_near) {
        fail_msg("%.*s differs", CSN_STR_ARGS(t->name));
    }
    uint8_t *x = malloc((size_t)t->nbytes), *y = malloc((size_t)t->nbytes);
    ASSERT_OK(csn_file_read_at(a->file, t->offset, x, (size_t)t->nbytes, &err), &err);
    ASSERT_OK(csn_file_read_at(b->file, u->offset, y, (size_t)t->nbytes, &err), &err);
    if (is_near) {
        assert_near(t->name, (const float *)(void *)x, (const float *)(void *)y, t->nbytes / 4);
    } else {
        assert_memory_equal(x, y, t->nbytes);
    }
    free(x);
    free(y);
}

/* Rows of q and k turned back, 1 + w undone, fused matrices cut: the bytes of the checkpoint. */
static void assert_same_mixture(const csn_arch *a, const csn_arch *b) {
    assert_int_equal(a->moe.present, b->moe.present);
    assert_int_equal(a->moe.n_experts, b->moe.n_experts);
    assert_int_equal(a->moe.top_k, b->moe.top_k);
    assert_int_equal(a->moe.n_group, b->moe.n_group);
    assert_int_equal(a->moe.topk_group, b->moe.topk_group);
    assert_int_equal(a->moe.group_max, b->moe.group_max);
    assert_int_equal(a->moe.moe_intermediate_size, b->moe.moe_intermediate_size);
    assert_int_equal(a->moe.shared_expert_intermediate_size,
                     b->moe.shared_expert_intermediate_size);
    assert_int_equal(a->moe.norm_topk_prob, b->moe.norm_topk_prob);
    assert_int_equal(a->moe.router_sigmoid, b->moe.router_sigmoid);
    assert_true(a->moe.routed_scaling_factor == b->moe.routed_scaling_factor);
    assert_int_equal(a->mla.present, b->mla.present);
    assert_int_equal(a->mla.q_lora_rank, b->mla.q_lora_rank);
    assert_int_equal(a->mla.kv_lora_rank, b->mla.kv_lora_rank);
    assert_int_equal(a->mla.qk_nope_head_dim, b->mla.qk_nope_head_dim);
    assert_int_equal(a->mla.qk_rope_head_dim, b->mla.qk_rope_head_dim);
    assert_int_equal(a->mla.v_head_dim, b->mla.v_head_dim);
    assert_int_equal(a->mla.rope_interleave, b->mla.rope_interleave);
    assert_int_equal(a->yarn.present, b->yarn.present);
    assert_true(a->yarn.factor == b->yarn.factor);
    assert_true(a->yarn.mscale_all_dim == b->yarn.mscale_all_dim);
    assert_true(a->yarn.attention_factor == b->yarn.attention_factor);
}

static void assert_same_kda(const csn_arch *a, const csn_arch *b) {
    assert_int_equal(a->mla.nope, b->mla.nope);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        assert_int_equal(a->layer_types[i], b->layer_types[i]);
    }
    assert_int_equal(a->linear_n_key_heads, b->linear_n_key_heads);
    assert_int_equal(a->linear_n_value_heads, b->linear_n_value_heads);
    assert_int_equal(a->linear_key_head_dim, b->linear_key_head_dim);
    assert_int_equal(a->linear_value_head_dim, b->linear_value_head_dim);
    assert_int_equal(a->linear_conv_kernel_dim, b->linear_conv_kernel_dim);
    assert_int_equal(a->has_kda_gate_lower_bound, b->has_kda_gate_lower_bound);
}

static void gives_the_weights_of_the_checkpoint(void **state) {
    const char *name = *state;
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    memory_fs fs;
    char path[128], to[64];
    const char *variant = strstr(name, "_squeezed"); /* of the file, not of the checkpoint */
    int n_family = (int)(variant != NULL ? variant - name : (ptrdiff_t)strlen(name));
    memory_fs_init(&fs);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "families/%.*s/%s", n_family, name, files[i]);
        snprintf(to, sizeof(to), "d/%s", files[i]);
        load(&fs, path, to);
    }
    snprintf(path, sizeof(path), "convert/gguf/%s.gguf", name);
    load(&fs, path, "m.gguf");
    csn_cmf *hf = convert(&fs, "d", "hf.cmf"), *gguf = convert(&fs, "m.gguf", "gguf.cmf");
    assert_int_equal(hf->dir.n, gguf->dir.n);
    for (uint32_t i = 0; i < hf->dir.n; i++) {
        assert_same_tensor(hf, &hf->dir.tensors[i], gguf);
    }
    const csn_arch *a = &hf->arch, *b = &gguf->arch;
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->n_kv_heads, b->n_kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->norm_style, b->norm_style);
    assert_int_equal(a->hidden_act, b->hidden_act);
    assert_int_equal(a->tie_word_embeddings, b->tie_word_embeddings);
    assert_true(a->embed_multiplier == b->embed_multiplier);
    assert_true(a->rope_theta == b->rope_theta && a->rms_norm_eps == b->rms_norm_eps);
    assert_true(a->partial_rotary_factor == b->partial_rotary_factor);
    assert_int_equal(a->n_rope_freq_factors, b->n_rope_freq_factors);
    for (uint32_t i = 0; i < a->n_rope_freq_factors; i++) { /* GGUF keeps them as f32 */
        double d = a->rope_freq_factors[i] - b->rope_freq_factors[i];
        assert_true(d * d <= 1e-13 * a->rope_freq_factors[i] * a->rope_freq_factors[i]);
    }
    assert_int_equal(a->no_rope != NULL, b->no_rope != NULL);
    for (uint32_t i = 0; a->no_rope != NULL && i < a->n_layers; i++) {
        assert_int_equal(a->no_rope[i], b->no_rope[i]);
    }
    assert_int_equal(a->longrope.present, b->longrope.present);
    assert_true(a->longrope.attention_factor == b->longrope.attention_factor);
    assert_int_equal(a->longrope.original_max_position_embeddings,
                     b->longrope.original_max_position_embeddings);
    for (uint32_t i = 0; i < a->longrope.n; i++) {
        assert_true((float)a->longrope.long_factor[i] == (float)b->longrope.long_factor[i]);
    }
    assert_same_mixture(a, b);
    assert_same_kda(a, b);
    csn_cmf_close(hf);
    csn_cmf_close(gguf);
    assert_int_equal(fs.n_open, 0);
    memory_fs_done(&fs);
}

/* ---- tokenizers ---- */

static csn_tokenizer *tokenizer_of(memory_fs *fs, const char *path) {
    caisson_error err;
    csn_gguf *g;
    csn_tokenizer *t;
    csn_buf json = CSN_BUF_INIT(1 << 24);
    ASSERT_OK(csn_gguf_open(&fs->base, path, &g, &err), &err);
    ASSERT_OK(csn_gguf_tokenizer(g, &json, &err), &err);
    ASSERT_OK(csn_tokenizer_load(csn_buf_view(&json), &t, &err), &err);
    csn_buf_free(&json);
    csn_gguf_close(g);
    return t;
}

static void assert_ids(const csn_tokenizer *t, csn_str name, csn_str text, const csn_jval *want) {
    caisson_error err;
    csn_ids ids = {0};
    ASSERT_OK(
        csn_tokenizer_encode(t, text, CSN_ENC_SPECIAL_TOKENS | CSN_ENC_PARSE_SPECIAL, &ids, &err),
        &err);
    bool same = ids.n == csn_jval_len(want);
    for (csn_jiter it = csn_jval_iter(want); same && csn_jiter_next(&it);) {
        int64_t id = -1;
        same = csn_jval_i64(it.value, &id) && ids.id[it.index] == id;
    }
    if (!same) {
        fail_msg("%.*s: text '%.*s'", CSN_STR_ARGS(name), CSN_STR_ARGS(text));
    }
    csn_ids_free(&ids);
}

static void encodes_as_the_original(void **state) {
    const char *name = *state;
    memory_fs fs;
    caisson_error err;
    csn_json *doc;
    char path[128];
    memory_fs_init(&fs);
    load(&fs, "convert/tokenizer/expected.json", "expected.json");
    snprintf(path, sizeof(path), "convert/tokenizer/%s.gguf", name);
    load(&fs, path, "m.gguf");
    memory_fs_node *node = memory_fs_find(&fs, "expected.json");
    ASSERT_OK(csn_json_parse(csn_str_make((char *)node->bytes, node->len), 0, &doc, &err), &err);
    const csn_jval *texts = csn_jval_get(csn_json_root(doc), "texts");
    const csn_jval *ids = csn_jval_get(csn_jval_get(csn_json_root(doc), "ids"), name);
    csn_tokenizer *t = tokenizer_of(&fs, "m.gguf");
    csn_jiter text = csn_jval_iter(texts), want = csn_jval_iter(ids);
    assert_true(csn_jval_len(texts) > 30);
    while (csn_jiter_next(&text) && csn_jiter_next(&want)) {
        csn_str s;
        assert_true(csn_jval_str(text.value, &s));
        assert_ids(t, csn_str_from(name), s, want.value);
    }
    csn_tokenizer_free(t);
    csn_json_free(doc);
    memory_fs_done(&fs);
}

/* cuts.gguf with another name of tokenizer.ggml.pre: there the value is the text "PRE". */
static void put_cuts(memory_fs *fs, csn_str name) {
    static const char key[] = "tokenizer.ggml.pre";
    memory_fs_node *node = memory_fs_find(fs, "cuts.gguf");
    csn_str all = csn_str_make((char *)node->bytes, node->len);
    size_t at = csn_str_find(all, csn_str_from(key), 0);
    assert_true(at != SIZE_MAX);
    at += sizeof(key) - 1 + 4; /* the key's text, the type of its value */
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(1 << 20);
    ASSERT_OK(csn_buf_append(&b, all.ptr, at, &err), &err);
    gb_int(&b, name.len, 8);
    gb_bytes(&b, name.ptr, name.len);
    at += 8 + 3; /* length, "PRE" */
    ASSERT_OK(csn_buf_append(&b, all.ptr + at, all.len - at, &err), &err);
    memory_fs_put(fs, "m.gguf", b.ptr, b.len);
    csn_buf_free(&b);
}

/* One vocabulary, as many ways to cut text as there are names: the ids are llama.cpp's. */
static void cuts_as_each_name_says(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err;
    csn_json *doc;
    uint32_t n_names = 0;
    memory_fs_init(&fs);
    load(&fs, "convert/tokenizer/cuts.json", "cuts.json");
    load(&fs, "convert/tokenizer/cuts.gguf", "cuts.gguf");
    memory_fs_node *node = memory_fs_find(&fs, "cuts.json");
    ASSERT_OK(csn_json_parse(csn_str_make((char *)node->bytes, node->len), 0, &doc, &err), &err);
    const csn_jval *texts = csn_jval_get(csn_json_root(doc), "texts");
    for (csn_jiter name = csn_jval_iter(csn_jval_get(csn_json_root(doc), "ids"));
         csn_jiter_next(&name); n_names++) {
        put_cuts(&fs, name.key);
        csn_tokenizer *t = tokenizer_of(&fs, "m.gguf");
        csn_jiter text = csn_jval_iter(texts), want = csn_jval_iter(name.value);
        while (csn_jiter_next(&text) && csn_jiter_next(&want)) {
            csn_str s;
            assert_true(csn_jval_str(text.value, &s));
            assert_ids(t, name.key, s, want.value);
        }
        csn_tokenizer_free(t);
    }
    assert_true(n_names > 40);
    csn_json_free(doc);
    memory_fs_done(&fs);
}

typedef struct bad_vocab {
    const char *what;
    const char *model, *pre;
    uint64_t n_types, n_scores;
    const char *third_token, *merge;
    caisson_status expected;
    const char *tensor;
} bad_vocab;

static void refuses_vocabularies_it_does_not_know(void **state) {
    (void)state;
    static const bad_vocab cases[] = {
        {"pre", "gpt2", "default", 3, 3, "c", "a b", CAISSON_E_UNSUPPORTED, "tokenizer.ggml.pre"},
        {"model", "bert", "x", 3, 3, "c", "a b", CAISSON_E_UNSUPPORTED, "tokenizer.ggml.model"},
        {"types", "gpt2", "gpt-2", 2, 3, "c", "a b", CAISSON_E_PARSE, "tokenizer.ggml.token_type"},
        {"scores", "llama", "x", 3, 2, "c", "a b", CAISSON_E_PARSE, "tokenizer.ggml.scores"},
        {"twice", "gpt2", "gpt-2", 3, 3, "a", "a b", CAISSON_E_PARSE, "a"},
        {"utf8", "gpt2", "gpt-2", 3, 3, "\xff", "a b", CAISSON_E_PARSE, "?"},
        {"merge", "gpt2", "gpt-2", 3, 3, "c", "ab", CAISSON_E_PARSE, "tokenizer.ggml.merges"},
        {"merge", "gpt2", "gpt-2", 3, 3, "c", "a ", CAISSON_E_PARSE, "tokenizer.ggml.merges"},
        {"good", "gpt2", "gpt-2", 3, 3, "c", "a b", CAISSON_OK, ""},
        {"good", "llama", "", 3, 3, "ab", "", CAISSON_OK, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bad_vocab *c = &cases[i];
        memory_fs fs;
        csn_gguf *g;
        caisson_error err = {0};
        csn_buf b = CSN_BUF_INIT(1 << 16), json = CSN_BUF_INIT(1 << 20);
        gb_head(&b, 3, 0, 6);
        gb_text(&b, "tokenizer.ggml.model", c->model);
        gb_text(&b, "tokenizer.ggml.pre", c->pre);
        gb_array(&b, "tokenizer.ggml.tokens", CSN_GGUF_STRING, 3);
        gb_str(&b, "a"), gb_str(&b, "b"), gb_str(&b, c->third_token);
        gb_array(&b, "tokenizer.ggml.token_type", CSN_GGUF_I32, c->n_types);
        for (uint64_t k = 0; k < c->n_types; k++) {
            gb_int(&b, 1, 4);
        }
        gb_array(&b, "tokenizer.ggml.scores", CSN_GGUF_F32, c->n_scores);
        for (uint64_t k = 0; k < c->n_scores; k++) {
            gb_int(&b, 0, 4);
        }
        gb_array(&b, "tokenizer.ggml.merges", CSN_GGUF_STRING, 1);
        gb_str(&b, c->merge);
        memory_fs_init(&fs);
        memory_fs_put(&fs, "m.gguf", b.ptr, b.len);
        ASSERT_OK(csn_gguf_open(&fs.base, "m.gguf", &g, &err), &err);
        caisson_status status = csn_gguf_tokenizer(g, &json, &err);
        if (status != c->expected || strcmp(err.tensor, c->tensor) != 0) {
            fail_msg("%s: %s %s", c->what, caisson_status_name(status), err.tensor);
        }
        csn_gguf_close(g);
        csn_buf_free(&json);
        csn_buf_free(&b);
        memory_fs_done(&fs);
    }
}

/* ---- metadata ---- */

/* A llama without layers' weights: metadata are read before any tensor is missed. */
static void begin_llama_of(csn_buf *b, uint64_t n_tensors, uint64_t n_more) {
    gb_head(b, 3, n_tensors, 9 + n_more);
    gb_text(b, "general.architecture", "llama");
    gb_u32(b, "llama.embedding_length", 32);
    gb_u32(b, "llama.feed_forward_length", 64);
    gb_u32(b, "llama.block_count", 1);
    gb_u32(b, "llama.attention.head_count", 2);
    gb_u32(b, "llama.context_length", 64);
    gb_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gb_u32(b, "llama.vocab_size", 8);
    gb_text(b, "tokenizer.ggml.model", "none");
}

static void begin_llama(csn_buf *b, uint64_t n_more) {
    begin_llama_of(b, 0, n_more);
}

static caisson_status try_convert(csn_buf *b, caisson_error *err) {
    memory_fs fs;
    memory_fs_init(&fs);
    memory_fs_put(&fs, "m.gguf", b->ptr, b->len);
    caisson_status status = csn_convert(&fs.base, "m.gguf", "out.cmf", NULL, err);
    assert_null(memory_fs_find(&fs, "out.cmf"));
    assert_int_equal(fs.n_open, 0);
    memory_fs_done(&fs);
    csn_buf_free(b);
    return status;
}

/* Takes b; fs and the source are the caller's. */
static csn_source *open_source(memory_fs *fs, csn_buf *b) {
    caisson_error err = {0};
    csn_source *s;
    memory_fs_init(fs);
    memory_fs_put(fs, "m.gguf", b->ptr, b->len);
    csn_buf_free(b);
    ASSERT_OK(csn_source_open(&fs->base, "m.gguf", NULL, &s, &err), &err);
    return s;
}

static void refuses_metadata_it_does_not_understand(void **state) {
    (void)state;
    caisson_error err = {0};
    csn_buf b = CSN_BUF_INIT(1 << 16);
    begin_llama(&b, 0);
    ASSERT_STATUS(try_convert(&b, &err), CAISSON_E_MISSING); /* good so far */
    begin_llama(&b, 1);
    gb_f32(&b, "llama.logit_scale", 0.5f);
    err = (caisson_error){0};
    ASSERT_STATUS(try_convert(&b, &err), CAISSON_E_UNSUPPORTED);
    assert_string_equal(err.tensor, "llama.logit_scale");
    assert_string_equal(err.got, "0.5");
    begin_llama(&b, 1);
    gb_u32(&b, "llama.expert_count", 8);
    err = (caisson_error){0};
    ASSERT_STATUS(try_convert(&b, &err), CAISSON_E_UNSUPPORTED);
    assert_string_equal(err.tensor, "llama.expert_count");
    begin_llama(&b, 1);
    gb_text(&b, "llama.rope.scaling.type", "wobbly");
    err = (caisson_error){0};
    ASSERT_STATUS(try_convert(&b, &err), CAISSON_E_UNSUPPORTED);
    assert_string_equal(err.tensor, "llama.rope.scaling.type");
    begin_llama(&b, 1);
    gb_text(&b, "llama.rope.freq_base", "10000");
    err = (caisson_error){0};
    ASSERT_STATUS(try_convert(&b, &err), CAISSON_E_PARSE);
    assert_string_equal(err.tensor, "llama.rope.freq_base");
}

/* llama.cpp: a factor without a kind is linear; attn_factor scales whatever the kind. */
static void rope_scaling_without_a_kind_is_linear(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err = {0};
    csn_buf b = CSN_BUF_INIT(1 << 16);
    begin_llama(&b, 1);
    gb_f32(&b, "llama.rope.scaling.factor", 4.0f);
    csn_source *s = open_source(&fs, &b);
    assert_int_equal(s->arch.n_rope_freq_factors, 8);
    assert_true(s->arch.rope_freq_factors[0] == 4.0 && s->arch.rope_freq_factors[7] == 4.0);
    csn_source_close(s);
    memory_fs_done(&fs);
    b = CSN_BUF_INIT(1 << 16);
    begin_llama(&b, 1);
    gb_f32(&b, "llama.rope.scaling.attn_factor", 1.2f);
    ASSERT_STATUS(try_convert(&b, &err), CAISSON_E_UNSUPPORTED);
    assert_string_equal(err.tensor, "llama.rope.scaling.attn_factor");
}

/* Divisors 1 to 8, one for each pair of dims. */
static void end_with_rope_freqs(csn_buf *b) {
    gb_tensor(b, "rope_freqs.weight", 8, 0, 0, 0);
    gb_pad(b, 32);
    for (int i = 1; i <= 8; i++) {
        float f = (float)i;
        gb_bytes(b, &f, sizeof(f));
    }
}

/* llama.cpp divides a position by the tensor's value and multiplies it by 1 / factor. */
static void a_factor_beside_rope_freqs_multiplies_them(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err = {0};
    csn_buf b = CSN_BUF_INIT(1 << 16);
    begin_llama_of(&b, 1, 2);
    gb_text(&b, "llama.rope.scaling.type", "linear");
    gb_f32(&b, "llama.rope.scaling.factor", 4.0f);
    end_with_rope_freqs(&b);
    csn_source *s = open_source(&fs, &b);
    assert_int_equal(s->arch.n_rope_freq_factors, 8);
    for (int i = 0; i < 8; i++) {
        assert_true(s->arch.rope_freq_factors[i] == 4.0 * (i + 1));
    }
    csn_source_close(s);
    memory_fs_done(&fs);
    b = CSN_BUF_INIT(1 << 16);
    begin_llama_of(&b, 1, 3);
    gb_text(&b, "llama.rope.scaling.type", "yarn");
    gb_f32(&b, "llama.rope.scaling.factor", 4.0f);
    gb_u32(&b, "llama.rope.scaling.original_context_length", 16);
    end_with_rope_freqs(&b);
    ASSERT_STATUS(try_convert(&b, &err), CAISSON_E_UNSUPPORTED);
    assert_string_equal(err.tensor, "llama.rope.scaling.type");
}

/* 0 would read as "sliding layers turn as the others do". */
static void a_local_rope_base_of_zero_is_refused(void **state) {
    (void)state;
    static const float bases[] = {0.0f, -10000.0f};
    for (size_t i = 0; i < 2; i++) {
        caisson_error err = {0};
        csn_buf b = CSN_BUF_INIT(1 << 16);
        gb_head(&b, 3, 0, 10);
        gb_text(&b, "general.architecture", "gemma3");
        gb_u32(&b, "gemma3.embedding_length", 32);
        gb_u32(&b, "gemma3.feed_forward_length", 64);
        gb_u32(&b, "gemma3.block_count", 1);
        gb_u32(&b, "gemma3.attention.head_count", 2);
        gb_u32(&b, "gemma3.context_length", 64);
        gb_f32(&b, "gemma3.attention.layer_norm_rms_epsilon", 1e-5f);
        gb_u32(&b, "gemma3.vocab_size", 8);
        gb_text(&b, "tokenizer.ggml.model", "none");
        gb_f32(&b, "gemma3.rope.freq_base_swa", bases[i]);
        (void)try_convert(&b, &err);
        assert_string_equal(err.tensor, "gemma3.rope.freq_base_swa");
    }
}

/* What a host with a comma locale converts is what others convert, and errors show a point. */
static void metadata_ignore_the_locale(void **state) {
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL) {
        skip(); /* scripts/run-tests provides the locale */
    }
    caisson_error err = {0};
    csn_buf b = CSN_BUF_INIT(1 << 16);
    begin_llama(&b, 1);
    gb_f32(&b, "llama.logit_scale", 0.5f);
    caisson_status refused = try_convert(&b, &err);
    memory_fs fs;
    memory_fs_init(&fs);
    load(&fs, "convert/gguf/llama_rope3.gguf", "m.gguf");
    csn_cmf_close(convert(&fs, "m.gguf", "comma.cmf"));
    setlocale(LC_NUMERIC, "C");
    csn_cmf_close(convert(&fs, "m.gguf", "point.cmf"));
    ASSERT_STATUS(refused, CAISSON_E_UNSUPPORTED);
    assert_string_equal(err.got, "0.5");
    const memory_fs_node *comma = memory_fs_find(&fs, "comma.cmf");
    const memory_fs_node *point = memory_fs_find(&fs, "point.cmf");
    assert_int_equal(comma->len, point->len);
    assert_memory_equal(comma->bytes, point->bytes, point->len);
    memory_fs_done(&fs);
}

/* The bytes of a file where `text` ends. */
static char *behind(memory_fs *fs, const char *path, const char *text) {
    memory_fs_node *node = memory_fs_find(fs, path);
    csn_str all = csn_str_make((char *)node->bytes, node->len);
    size_t at = csn_str_find(all, csn_str_from(text), 0);
    assert_true(at != SIZE_MAX);
    return (char *)node->bytes + at + strlen(text);
}

static uint64_t offset_in_gguf(memory_fs *fs, const char *path, const char *tensor) {
    caisson_error err;
    csn_gguf *g;
    ASSERT_OK(csn_gguf_open(&fs->base, path, &g, &err), &err);
    uint64_t offset = csn_directory_find(&g->dir, csn_str_from(tensor))->offset;
    csn_gguf_close(g);
    return offset;
}

/* One thing changed in a good file each time. */
static void refuses_a_kimi_linear_that_is_not_one(void **state) {
    (void)state;
    enum { VALUE = 4 }; /* of a scalar, behind its key and type */
    static const struct {
        const char *key;
        int at;
        char byte;
        caisson_status expected;
        const char *tensor;
    } cases[] = {
        {"kimi-linear.expert_gating_func", VALUE, 1, CAISSON_E_UNSUPPORTED,
         "kimi-linear.expert_gating_func"},
        {"kimi-linear.ssm.conv_kernel", VALUE, 3, CAISSON_E_PARSE, "blk.0.ssm_conv1d_q.weight"},
        {"kimi-linear.ssm.conv_kernel", VALUE, 0, CAISSON_E_UNSUPPORTED,
         "kimi-linear.ssm.conv_kernel"},
        {"kimi-linear.kda.head_dim", VALUE, 6, CAISSON_E_PARSE, "blk.0.attn_q.weight"},
        {"kimi-linear.kda.head_dim", -1, 'n', CAISSON_E_PARSE, "kimi-linear.kda.head_dim"},
        {"kimi-linear.rope.freq_base", -1, 'r', CAISSON_E_UNSUPPORTED,
         "kimi-linear.rope.freq_basr"}, /* a key that nobody knows */
        {"kimi-linear.attention.head_count_kv", -1, 'w', CAISSON_E_UNSUPPORTED,
         "kimi-linear.attention.head_count_kv"},
        {"kimi-linear.attention.head_count_kv", 4 + 4 + 8 + 3, -1, CAISSON_E_UNSUPPORTED,
         "kimi-linear.attention.head_count_kv"}, /* the sign of the first */
        {"kimi-linear.attention.head_count_kv", 4 + 4 + 8, 1, CAISSON_E_PARSE,
         "blk.0.attn_q.weight"}, /* a layer of KDA that is said to be none */
    };
    memory_fs fs;
    memory_fs_init(&fs);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        caisson_error err = {0};
        load(&fs, "convert/gguf/kimi_linear_even.gguf", "m.gguf");
        behind(&fs, "m.gguf", cases[i].key)[cases[i].at] = cases[i].byte;
        caisson_status status = csn_convert(&fs.base, "m.gguf", "out.cmf", NULL, &err);
        if (status != cases[i].expected || strcmp(err.tensor, cases[i].tensor) != 0) {
            fail_msg("%s: %s, %s", cases[i].key, caisson_status_name(status), err.tensor);
        }
    }
    load(&fs, "convert/gguf/kimi_linear_even.gguf", "m.gguf");
    uint64_t offset = offset_in_gguf(&fs, "m.gguf", "blk.2.ssm_a");
    memory_fs_find(&fs, "m.gguf")->bytes[offset + 4 + 3] ^= 0x80; /* the sign of the second */
    caisson_error err = {0};
    ASSERT_STATUS(csn_convert(&fs.base, "m.gguf", "out.cmf", NULL, &err), CAISSON_E_PARSE);
    assert_string_equal(err.tensor, "blk.2.ssm_a");
    assert_string_equal(err.got, "element 1");
    assert_string_equal(err.what, "a decay is not below 0");
    memory_fs_done(&fs);
}

/* Sigmoid or softmax is never guessed. */
static void refuses_routers_of_deepseek2_that_it_does_not_know(void **state) {
    (void)state;
    static const struct {
        const char *golden;
        int at;
        char byte;
    } cases[] = {
        {"convert/gguf/deepseek_v2.gguf", 4, 3},    /* neither softmax nor sigmoid */
        {"convert/gguf/deepseek_v3.gguf", -1, 'k'}, /* biases, but no word about them */
    };
    static const char key[] = "deepseek2.expert_gating_func";
    memory_fs fs;
    memory_fs_init(&fs);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        caisson_error err = {0};
        load(&fs, cases[i].golden, "m.gguf");
        behind(&fs, "m.gguf", key)[cases[i].at] = cases[i].byte;
        ASSERT_STATUS(csn_convert(&fs.base, "m.gguf", "out.cmf", NULL, &err),
                      CAISSON_E_UNSUPPORTED);
        assert_string_equal(err.tensor, key);
    }
    memory_fs_done(&fs);
}

static void refuses_an_unknown_family_by_name(void **state) {
    (void)state;
    caisson_error err = {0};
    csn_buf b = CSN_BUF_INIT(1 << 16);
    gb_head(&b, 3, 0, 1);
    gb_text(&b, "general.architecture", "mamba9");
    ASSERT_STATUS(try_convert(&b, &err), CAISSON_E_UNSUPPORTED);
    assert_string_equal(err.got, "mamba9");
    assert_non_null(strstr(err.want, "llama qwen2 qwen3 gemma")); /* U31: what is supported */
}

static void refuses_a_dtype_that_it_cannot_decode(void **state) {
    (void)state;
    caisson_error err = {0};
    csn_buf b = CSN_BUF_INIT(1 << 16);
    gb_head(&b, 3, 1, 8);
    gb_text(&b, "general.architecture", "llama");
    gb_u32(&b, "llama.embedding_length", 256);
    gb_u32(&b, "llama.feed_forward_length", 64);
    gb_u32(&b, "llama.block_count", 1);
    gb_u32(&b, "llama.attention.head_count", 2);
    gb_u32(&b, "llama.context_length", 64);
    gb_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gb_text(&b, "tokenizer.ggml.model", "none");
    gb_tensor(&b, "token_embd.weight", 256, 8, 19, 0);
    gb_pad(&b, 32);
    for (int i = 0; i < 400; i++) {
        gb_int(&b, 0, 1);
    }
    ASSERT_STATUS(try_convert(&b, &err), CAISSON_E_UNSUPPORTED);
    assert_string_equal(err.tensor, "token_embd.weight");
    assert_string_equal(err.got, "iq1_s");
}

#define OF(fn, name)                                                                               \
    { #fn " " name, fn, NULL, NULL, (void *)(uintptr_t)name }

int main(void) {
    const struct CMUnitTest tests[] = {
        OF(gives_the_weights_of_the_checkpoint, "llama_rope3"),
        OF(gives_the_weights_of_the_checkpoint, "gemma"),
        OF(gives_the_weights_of_the_checkpoint, "qwen2_moe_squeezed"),
        OF(gives_the_weights_of_the_checkpoint, "phi3_longrope"),
        OF(gives_the_weights_of_the_checkpoint, "qwen2"),
        OF(gives_the_weights_of_the_checkpoint, "smollm3"),
        OF(gives_the_weights_of_the_checkpoint, "deepseek_v2"),
        OF(gives_the_weights_of_the_checkpoint, "deepseek_v2_lite"),
        OF(gives_the_weights_of_the_checkpoint, "deepseek_v3"),
        OF(gives_the_weights_of_the_checkpoint, "kimi_linear_even"),
        OF(encodes_as_the_original, "gpt-2"),
        OF(encodes_as_the_original, "smollm"),
        OF(encodes_as_the_original, "llama-bpe"),
        OF(encodes_as_the_original, "qwen2"),
        OF(encodes_as_the_original, "gpt-4o"),
        OF(encodes_as_the_original, "deepseek-v3"),
        OF(encodes_as_the_original, "spm"),
        OF(encodes_as_the_original, "spm-no-prefix"),
        cmocka_unit_test(cuts_as_each_name_says),
        cmocka_unit_test(refuses_vocabularies_it_does_not_know),
        cmocka_unit_test(refuses_metadata_it_does_not_understand),
        cmocka_unit_test(rope_scaling_without_a_kind_is_linear),
        cmocka_unit_test(a_factor_beside_rope_freqs_multiplies_them),
        cmocka_unit_test(a_local_rope_base_of_zero_is_refused),
        cmocka_unit_test(metadata_ignore_the_locale),
        cmocka_unit_test(refuses_a_kimi_linear_that_is_not_one),
        cmocka_unit_test(refuses_routers_of_deepseek2_that_it_does_not_know),
        cmocka_unit_test(refuses_an_unknown_family_by_name),
        cmocka_unit_test(refuses_a_dtype_that_it_cannot_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
