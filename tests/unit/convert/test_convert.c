/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion end to end: the tiny checkpoints of every family (tests/golden/families) come out with
 * the source's values; what is wrong with a source is told by name and leaves nothing behind. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "convert/plan.h"
#include "format/cmf/cmf.h"
#include "format/safetensors/safetensors.h"
#include "support/memory_fs.h"

static const char *const families[] = {
    "gemma",        "gemma2",        "gemma3",           "gemma3_linear", "llama",
    "llama_linear", "llama_rope3",   "llama_tied_theta", "llama_yarn",    "mistral",
    "phi3",         "phi3_longrope", "phi4_partial",     "qwen2",         "qwen2_sliding",
    "qwen3",        "qwen3_yarn",    "llama_yarn_exact", "smollm3",       "smollm3_sliding",
};

/* A golden directory, in memory. */
static void load_dir(memory_fs *fs, const char *name) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    for (int i = 0; i < 3; i++) {
        char from[512], to[64];
        csn_buf b;
        caisson_error err;
        snprintf(from, sizeof(from), "%s/tests/golden/families/%s/%s", CSN_SOURCE_DIR, name,
                 files[i]);
        snprintf(to, sizeof(to), "d/%s", files[i]);
        ASSERT_OK(csn_fs_read_all(csn_fs_os(), from, 1 << 24, &b, &err), &err);
        memory_fs_put(fs, to, b.ptr, b.len);
        csn_buf_free(&b);
    }
}

static csn_convert_options options(const char *quant) {
    return (csn_convert_options){.quant = csn_dtype_by_name(csn_str_from(quant)), .n_threads = 1};
}

/* All values of a tensor as f32. */
static float *values(csn_file *file, const csn_tensor *t, uint64_t *ret_n) {
    caisson_error err;
    assert_true(csn_shape_count(&t->shape, ret_n));
    uint8_t *bytes = malloc((size_t)t->nbytes + 1);
    float *out = malloc((size_t)*ret_n * sizeof(float) + 1);
    assert_true(bytes != NULL && out != NULL);
    ASSERT_OK(csn_file_read_at(file, t->offset, bytes, (size_t)t->nbytes, &err), &err);
    csn_matrix m = csn_matrix_make(t->dtype, &t->shape, bytes, t->nbytes);
    t->dtype->decode(&m, 0, *ret_n, out);
    free(bytes);
    return out;
}

/* The source of one of our tensors, and the first of its values that is ours. */
static const csn_tensor *source_of(const csn_safetensors *s, const csn_tensor *t, const csn_arch *a,
                                   uint64_t *ret_first) {
    static const char *const fused[][3] = {
        {"self_attn.q_proj", "self_attn.qkv_proj", "0"},
        {"self_attn.k_proj", "self_attn.qkv_proj", "q"},
        {"self_attn.v_proj", "self_attn.qkv_proj", "k"},
        {"mlp.gate_proj", "mlp.gate_up_proj", "0"},
        {"mlp.up_proj", "mlp.gate_up_proj", "f"},
    };
    *ret_first = 0;
    const csn_tensor *found = csn_directory_find(&s->dir, t->name);
    for (size_t i = 0; found == NULL && i < sizeof(fused) / sizeof(fused[0]); i++) {
        size_t at = csn_str_find(t->name, csn_str_from(fused[i][0]), 0);
        if (at == SIZE_MAX) {
            continue;
        }
        char name[128];
        snprintf(name, sizeof(name), "%.*s%s.weight", (int)at, t->name.ptr, fused[i][1]);
        found = csn_directory_find(&s->dir, csn_str_from(name));
        uint64_t q = (uint64_t)a->n_heads * a->head_dim, kv = (uint64_t)a->n_kv_heads * a->head_dim;
        uint64_t row = fused[i][2][0] == 'q'   ? q
                       : fused[i][2][0] == 'k' ? q + kv
                       : fused[i][2][0] == 'f' ? a->intermediate_size
                                               : 0;
        *ret_first = row * a->hidden_size;
    }
    return found;
}

static void f32_keeps_every_value(void **state) {
    memory_fs fs;
    caisson_error err;
    csn_convert_options o = options("f32");
    csn_cmf *c;
    csn_safetensors *s;
    memory_fs_init(&fs);
    load_dir(&fs, *state);
    ASSERT_OK(csn_convert(&fs.base, "d", "out.cmf", &o, &err), &err);
    ASSERT_OK(csn_cmf_open(&fs.base, "out.cmf", &c, &err), &err);
    ASSERT_OK(csn_safetensors_open_dir(&fs.base, "d", &s, &err), &err);
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        uint64_t n, n_source, first;
        const csn_tensor *source = source_of(s, t, &c->arch, &first);
        assert_non_null(source);
        assert_string_equal(t->dtype->name, "f32");
        float *ours = values(c->file, t, &n), *theirs = values(s->files[0], source, &n_source);
        assert_true(first + n <= n_source);
        assert_memory_equal(ours, theirs + first, n * sizeof(float));
        free(ours);
        free(theirs);
    }
    csn_buf vocab = {0};
    ASSERT_OK(csn_cmf_read_section(c, CSN_CMF_VOCAB, &vocab, &err), &err);
    memory_fs_node *json = memory_fs_find(&fs, "d/tokenizer.json");
    assert_int_equal(vocab.len, json->len);
    assert_memory_equal(vocab.ptr, json->bytes, json->len);
    assert_int_equal(c->chat.n_eos, 1);
    assert_int_equal(c->chat.eos_token_ids[0], 2);
    assert_int_equal(c->chat.bos_token_id, 1);
    csn_buf_free(&vocab);
    csn_safetensors_close(s);
    csn_cmf_close(c);
    assert_int_equal(fs.n_open, 0);
    memory_fs_done(&fs);
}

/* ---- dtypes ---- */

typedef struct seen {
    uint32_t n, n_coarser, n_kept;
    double worst;
    char last_f32[128];
} seen;

static void note(void *ctx, const csn_convert_report *r) {
    seen *s = ctx;
    s->n++;
    s->n_coarser += r->source_is_coarser;
    s->n_kept += r->kept_f32;
    s->worst = r->relative_error > s->worst ? r->relative_error : s->worst;
    if (r->kept_f32) {
        snprintf(s->last_f32, sizeof(s->last_f32), "%.*s", CSN_STR_ARGS(r->name));
    }
}

static const char *dtype_of(const csn_cmf *c, const char *name) {
    const csn_tensor *t = csn_directory_find(&c->dir, csn_str_from(name));
    assert_non_null(t);
    return t->dtype->name;
}

static void dtypes_follow_the_rules(void **state) {
    (void)state;
    static const char *const quants[] = {"q8_row", "q8_2f", "q4_block", "q4_tiled",
                                         "q4tp",   "f16",   "bf16",     "f32"};
    static const double bounds[] = {0.02, 0.02, 0.15, 0.15, 0.15, 1e-3, 1e-6, 0};
    for (size_t i = 0; i < sizeof(quants) / sizeof(quants[0]); i++) {
        memory_fs fs;
        caisson_error err;
        csn_cmf *c;
        seen s = {0};
        csn_convert_options o = options(quants[i]);
        o.on_tensor = note;
        o.ctx = &s;
        memory_fs_init(&fs);
        load_dir(&fs, "qwen2");
        ASSERT_OK(csn_convert(&fs.base, "d", "out.cmf", &o, &err), &err);
        ASSERT_OK(csn_cmf_open(&fs.base, "out.cmf", &c, &err), &err);
        assert_int_equal(s.n, c->dir.n);
        assert_true(s.worst <= bounds[i]);
        assert_true((s.n_coarser > 0) == (i == 7)); /* bf16 -> f32 alone grows */
        assert_string_equal(dtype_of(c, "model.layers.0.mlp.up_proj.weight"), quants[i]);
        const char *small = i < 5 ? "f16" : quants[i];
        assert_string_equal(dtype_of(c, "model.norm.weight"), small);
        assert_string_equal(dtype_of(c, "model.layers.0.self_attn.q_proj.bias"), small);
        csn_cmf_close(c);
        memory_fs_done(&fs);
    }
}

static void rules_pick_by_pattern(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err;
    csn_cmf *c;
    const csn_convert_rule rules[] = {
        {CSN_STR("*layers.1.*_proj.weight"), csn_dtype_by_name(CSN_STR("q4_block"))},
        {CSN_STR("*.down_proj.weight"), csn_dtype_by_name(CSN_STR("f16"))},
        {CSN_STR("model.norm.weight"), csn_dtype_by_name(CSN_STR("f32"))},
    };
    csn_convert_options o = options("q8_row");
    o.rules = rules;
    o.n_rules = 3;
    memory_fs_init(&fs);
    load_dir(&fs, "llama");
    ASSERT_OK(csn_convert(&fs.base, "d", "out.cmf", &o, &err), &err);
    ASSERT_OK(csn_cmf_open(&fs.base, "out.cmf", &c, &err), &err);
    assert_string_equal(dtype_of(c, "model.layers.1.mlp.down_proj.weight"), "q4_block");
    assert_string_equal(dtype_of(c, "model.layers.0.mlp.down_proj.weight"), "f16");
    assert_string_equal(dtype_of(c, "model.layers.0.mlp.up_proj.weight"), "q8_row");
    assert_string_equal(dtype_of(c, "model.norm.weight"), "f32");
    csn_cmf_close(c);
    const csn_convert_rule bad[] = {
        {CSN_STR("model.norm.weight"), csn_dtype_by_name(CSN_STR("q8_row"))}};
    o.rules = bad;
    o.n_rules = 1;
    o.overwrite = true;
    ASSERT_STATUS(csn_convert(&fs.base, "d", "out.cmf", &o, &err), CAISSON_E_ARG);
    assert_string_equal(err.tensor, "model.norm.weight");
    o.n_rules = 0;
    o.quant = csn_dtype_by_name(CSN_STR("q4_k"));
    ASSERT_STATUS(csn_convert(&fs.base, "d", "out.cmf", &o, &err), CAISSON_E_UNSUPPORTED);
    memory_fs_done(&fs);
}

/* ---- sources that lie or lack something ---- */

/* Writes a value into the payload of a bf16 tensor of d/model.safetensors. */
static void poke(memory_fs *fs, const char *tensor, uint16_t bits) {
    caisson_error err;
    csn_safetensors *s;
    ASSERT_OK(csn_safetensors_open_dir(&fs->base, "d", &s, &err), &err);
    const csn_tensor *t = csn_directory_find(&s->dir, csn_str_from(tensor));
    assert_non_null(t);
    memory_fs_node *node = memory_fs_find(fs, "d/model.safetensors");
    node->bytes[t->offset + 6] = (uint8_t)bits;
    node->bytes[t->offset + 7] = (uint8_t)(bits >> 8);
    csn_safetensors_close(s);
}

static void a_value_beyond_f16_stays_f32(void **state) {
    (void)state;
    static const char *const tensors[] = {"model.norm.weight", "model.layers.1.mlp.up_proj.weight"};
    for (int i = 0; i < 2; i++) {
        memory_fs fs;
        caisson_error err;
        csn_cmf *c;
        seen s = {0};
        csn_convert_options o = options(i == 0 ? "q8_row" : "f16");
        o.on_tensor = note;
        o.ctx = &s;
        memory_fs_init(&fs);
        load_dir(&fs, "llama");
        poke(&fs, tensors[i], 0x4880); /* 262144 */
        ASSERT_OK(csn_convert(&fs.base, "d", "out.cmf", &o, &err), &err);
        ASSERT_OK(csn_cmf_open(&fs.base, "out.cmf", &c, &err), &err);
        assert_string_equal(dtype_of(c, tensors[i]), "f32");
        assert_string_equal(s.last_f32, tensors[i]);
        assert_int_equal(s.n_kept, 1);
        const csn_tensor *t = csn_directory_find(&c->dir, csn_str_from(tensors[i]));
        uint64_t n;
        float *v = values(c->file, t, &n);
        assert_true(v[3] == 262144.0f);
        free(v);
        csn_cmf_close(c);
        memory_fs_done(&fs);
    }
}

static void refuses_values_that_are_not_finite(void **state) {
    (void)state;
    static const uint16_t bits[] = {0x7f80, 0xff80, 0x7fc0};
    for (size_t i = 0; i < 3; i++) {
        memory_fs fs;
        caisson_error err;
        csn_convert_options o = options("q8_row");
        memory_fs_init(&fs);
        load_dir(&fs, "llama");
        poke(&fs, "model.layers.1.mlp.up_proj.weight", bits[i]);
        ASSERT_STATUS(csn_convert(&fs.base, "d", "out.cmf", &o, &err), CAISSON_E_PARSE);
        assert_string_equal(err.tensor, "model.layers.1.mlp.up_proj.weight");
        assert_string_equal(err.got, "element 3");
        assert_null(memory_fs_find(&fs, "out.cmf"));
        memory_fs_done(&fs);
    }
}

typedef struct bad_config {
    const char *family, *from, *to;
    caisson_status expected;
    const char *tensor;
} bad_config;

/* U12, U31: a key that may change the arithmetic is an error with key and value. */
static void refuses_configs_it_does_not_understand(void **state) {
    (void)state;
    static const bad_config cases[] = {
        {"llama", "\"use_cache\": true", "\"use_crazy\":true", CAISSON_E_UNSUPPORTED, "use_crazy"},
        {"llama", "\"mlp_bias\": false", "\"mlp_xias\": false", CAISSON_E_UNSUPPORTED, "mlp_xias"},
        {"llama", "\"silu\"", "\"relu\"", CAISSON_E_UNSUPPORTED, "hidden_act"},
        {"llama", "\"model_type\": \"llama\"", "\"model_type\": \"lama7\"", CAISSON_E_UNSUPPORTED,
         "model_type"},
        {"llama", "\"default\"", "\"dynamic\"", CAISSON_E_UNSUPPORTED, "rope_type"},
        {"llama", "\"hidden_size\": 32", "\"hidden_size\": 64", CAISSON_E_PARSE,
         "model.embed_tokens.weight"},
        {"llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", CAISSON_E_MISSING,
         "model.layers.2.input_layernorm.weight"},
        {"llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", CAISSON_E_UNSUPPORTED,
         "model.layers.1.input_layernorm.weight"},
        {"llama", "\"num_attention_heads\": 4", "\"num_attention_heads\": 3", CAISSON_E_PARSE,
         "model.layers.0.self_attn.q_proj.weight"},
        {"llama_yarn", "\"factor\": 4.0", "\"factor\": 1e300", CAISSON_E_PARSE, "arch.yarn.factor"},
        {"llama", "\"vocab_size\": 96", "\"vocab_size\": 4194305", CAISSON_E_PARSE,
         "model.embed_tokens.weight"},
        /* 0 and numbers below are no way to leave a key out, and neither are other types */
        {"llama_yarn", "\"factor\": 4.0", "\"factor\": -4.0", CAISSON_E_PARSE, "factor"},
        {"llama_yarn", "\"factor\": 4.0", "\"attention_factor\": 0", CAISSON_E_PARSE,
         "attention_factor"},
        {"phi3_longrope", "\"partial_rotary_factor\": 1.0", "\"factor\": 0", CAISSON_E_PARSE,
         "factor"},
        {"phi3_longrope", "\"partial_rotary_factor\": 1.0", "\"attention_factor\": -1",
         CAISSON_E_PARSE, "attention_factor"},
        {"gemma2", "\"query_pre_attn_scalar\": 24", "\"query_pre_attn_scalar\": 0", CAISSON_E_PARSE,
         "query_pre_attn_scalar"},
        {"gemma3", "\"query_pre_attn_scalar\": 16", "\"query_pre_attn_scalar\": 0.0",
         CAISSON_E_PARSE, "query_pre_attn_scalar"},
        {"gemma3", "\"rope_theta\": 10000.0", "\"rope_theta\": 0", CAISSON_E_PARSE, "rope_theta"},
        {"gemma3",
         "\"sliding_attention\": {\n      \"rope_theta\": 10000.0,\n      \"rope_type\": "
         "\"default\"\n    }",
         "\"sliding_attention\": false", CAISSON_E_PARSE, ""},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": \"linear\"", CAISSON_E_UNSUPPORTED,
         "rope_scaling"},
        {"llama", "\"vocab_size\": 96", "\"vocab_size\": -1", CAISSON_E_PARSE, "vocab_size"},
        {"llama", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": \"1e6\"", CAISSON_E_PARSE,
         "rms_norm_eps"},
        {"llama_rope3", "\"low_freq_factor\"", "\"low_freq_facto_\"", CAISSON_E_PARSE,
         "low_freq_factor"},
        {"llama_yarn", "\"beta_fast\"", "\"beta_xast\"", CAISSON_E_UNSUPPORTED, "beta_xast"},
        {"llama_yarn", "\"yarn\"", "\"yern\"", CAISSON_E_UNSUPPORTED, "rope_type"},
        {"phi3_longrope", "\"short_factor\"", "\"short_facto_\"", CAISSON_E_PARSE, "short_factor"},
        {"deepseek_v3",
         "\"beta_fast\": 32.0,\n    \"beta_slow\": 1.0,\n    \"factor\": 4.0,\n    \"mscale\": "
         "0.8,\n"
         "    \"mscale_all_dim\": 0.8,\n    \"original_max_position_embeddings\": 64,\n"
         "    \"rope_theta\": 10000.0,\n    \"rope_type\": \"yarn\"",
         "\"short_factor\": [1, 1, 1, 1], \"long_factor\": [1, 1, 1, 1], "
         "\"original_max_position_embeddings\": 64, \"rope_type\": \"longrope\"",
         CAISSON_E_UNSUPPORTED, "rope_type"},
        {"qwen2_sliding", "\"use_sliding_window\": true", "\"use_sliding_window\": false",
         CAISSON_E_UNSUPPORTED, "layer_types"},
        {"smollm3", "\"no_rope_layers\": [\n    1,", "\"no_rope_layers\": [\n    2,",
         CAISSON_E_UNSUPPORTED, "no_rope_layers"},
        {"smollm3_sliding", "\"use_sliding_window\": true", "\"use_sliding_window\": false",
         CAISSON_E_UNSUPPORTED, "layer_types"},
        {"gemma3", "\"full_attention\"\n", "\"null_attention\"\n", CAISSON_E_UNSUPPORTED,
         "layer_types"},
        /* what transformers 5.24.0 passes over, fails with, or makes up */
        {"gemma3", "\"attn_logit_softcapping\": null", "\"attn_logit_softcapping\": 50.0",
         CAISSON_E_UNSUPPORTED, "attn_logit_softcapping"},
        {"llama", "\"use_cache\": true", "\"partial_rotary_factor\": 0.5", CAISSON_E_UNSUPPORTED,
         "partial_rotary_factor"},
        {"qwen3_yarn", "\"rope_type\"", "\"partial_rotary_factor\": 0.5, \"rope_type\"",
         CAISSON_E_UNSUPPORTED, "partial_rotary_factor"},
        {"llama", "\"attention_bias\": false", "\"attention_bias\": true", CAISSON_E_MISSING,
         "model.layers.0.self_attn.q_proj.bias"},
        {"llama", "\"mlp_bias\": false", "\"mlp_bias\": true", CAISSON_E_MISSING,
         "model.layers.0.mlp.gate_proj.bias"},
        {"qwen2_moe", "\"qkv_bias\": true", "\"qkv_bias\": false", CAISSON_E_UNSUPPORTED,
         "model.layers.0.self_attn.q_proj.bias"},
        {"qwen2_sliding", "\"sliding_window\": 40", "\"sliding_window\": 0", CAISSON_E_UNSUPPORTED,
         "sliding_window"},
        {"gemma2", "\"sliding_window\": 32", "\"sliding_window\": null", CAISSON_E_UNSUPPORTED,
         "sliding_window"},
        {"gemma3", "\"sliding_window\": 32", "\"sliding_window\": 0", CAISSON_E_UNSUPPORTED,
         "sliding_window"},
        {"gemma2", "\"use_cache\": true", "\"sliding_window_size\": 33", CAISSON_E_UNSUPPORTED,
         "sliding_window_size"},
        /* its convolutions follow hidden_act there, in the code of the release they do not */
        {"kimi_linear", "\"silu\"", "\"gelu_new\"", CAISSON_E_UNSUPPORTED, "hidden_act"},
        {"llama", "\"tie_word_embeddings\": false", "\"quantization_config\": {} ",
         CAISSON_E_UNSUPPORTED, "quantization_config"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_fs fs;
        caisson_error err = {0};
        csn_convert_options o = options("q8_row");
        memory_fs_init(&fs);
        load_dir(&fs, cases[i].family);
        const char *from = cases[i].from, *to = cases[i].to;
        memory_fs_node *node = memory_fs_find(&fs, "d/config.json");
        size_t at =
            csn_str_find(csn_str_make((char *)node->bytes, node->len), csn_str_from(from), 0);
        if (at == SIZE_MAX) {
            fail_msg("case %d: text not found", (int)i);
        }
        size_t nf = strlen(from), nt = strlen(to);
        csn_buf b = CSN_BUF_INIT(1 << 20);
        ASSERT_OK(csn_buf_append(&b, node->bytes, at, &err), &err);
        ASSERT_OK(csn_buf_append(&b, to, nt, &err), &err);
        ASSERT_OK(csn_buf_append(&b, node->bytes + at + nf, node->len - at - nf, &err), &err);
        memory_fs_put(&fs, "d/config.json", b.ptr, b.len);
        csn_buf_free(&b);
        caisson_status status = csn_convert(&fs.base, "d", "out.cmf", &o, &err);
        if (status != cases[i].expected || strcmp(err.tensor, cases[i].tensor) != 0) {
            char line[1024];
            fail_msg("case %d: %s", (int)i, caisson_error_format(&err, line, sizeof(line)));
        }
        assert_null(memory_fs_find(&fs, "out.cmf"));
        assert_int_equal(fs.n_open, 0);
        memory_fs_done(&fs);
    }
}

static void refuses_what_is_no_model(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err;
    memory_fs_init(&fs);
    memory_fs_put(&fs, "text", "hello", 5);
    memory_fs_put(&fs, "empty", "", 0);
    memory_fs_put(&fs, "m.cmf", "CMF\x01....", 8);
    memory_fs_put(&fs, "e/x", "", 0);
    ASSERT_STATUS(csn_convert(&fs.base, "text", "o", NULL, &err), CAISSON_E_MAGIC);
    ASSERT_STATUS(csn_convert(&fs.base, "empty", "o", NULL, &err), CAISSON_E_MAGIC);
    ASSERT_STATUS(csn_convert(&fs.base, "m.cmf", "o", NULL, &err), CAISSON_E_BOUNDS);
    ASSERT_STATUS(csn_convert(&fs.base, "e", "o", NULL, &err), CAISSON_E_MAGIC);
    ASSERT_STATUS(csn_convert(&fs.base, "absent", "o", NULL, &err), CAISSON_E_IO);
    memory_fs_done(&fs);
}

static void an_existing_target_stays(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err;
    csn_convert_options o = options("f16");
    memory_fs_init(&fs);
    load_dir(&fs, "llama");
    memory_fs_put(&fs, "out.cmf", "old", 3);
    ASSERT_STATUS(csn_convert(&fs.base, "d", "out.cmf", &o, &err), CAISSON_E_EXISTS);
    assert_int_equal(memory_fs_find(&fs, "out.cmf")->len, 3);
    o.overwrite = true;
    ASSERT_OK(csn_convert(&fs.base, "d/config.json", "out.cmf", &o, &err), &err);
    ASSERT_OK(csn_convert(&fs.base, "d/model.safetensors", "out.cmf", &o, &err), &err);
    memory_fs_done(&fs);
}

static void globs_match_as_in_a_shell(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"*", "", true},        {"*", "abc", true},      {"a?c", "abc", true}, {"a?c", "ac", false},
        {"*b*b", "abab", true}, {"*b*c", "abab", false}, {"", "", true},       {"", "a", false},
        {"a*", "ba", false},    {"**a", "a", true},      {"a", "a", true},     {"a", "ab", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(csn_glob(csn_str_from(cases[i].pattern), csn_str_from(cases[i].name)),
                         cases[i].matches);
    }
}

int main(void) {
    enum { N = sizeof(families) / sizeof(families[0]) };
    static char names[N][64];
    struct CMUnitTest tests[N + 16];
    size_t n = 0;
    for (; n < N; n++) {
        snprintf(names[n], sizeof(names[n]), "f32_keeps_every_value of %s", families[n]);
        tests[n] = (struct CMUnitTest){names[n], f32_keeps_every_value, NULL, NULL,
                                       (void *)(uintptr_t)families[n]};
    }
    const struct CMUnitTest more[] = {
        cmocka_unit_test(dtypes_follow_the_rules),
        cmocka_unit_test(rules_pick_by_pattern),
        cmocka_unit_test(a_value_beyond_f16_stays_f32),
        cmocka_unit_test(refuses_values_that_are_not_finite),
        cmocka_unit_test(refuses_configs_it_does_not_understand),
        cmocka_unit_test(refuses_what_is_no_model),
        cmocka_unit_test(an_existing_target_stays),
        cmocka_unit_test(globs_match_as_in_a_shell),
    };
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        tests[n++] = more[i];
    }
    return _cmocka_run_group_tests("convert", tests, n, NULL, NULL);
}
