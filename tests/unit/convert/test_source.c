/* SPDX-License-Identifier: Apache-2.0 */
/* What a source says beside its weights: eos ids, special tokens, chat templates, shards, FP8
 * blocks, a language model inside a larger one. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>

#include "convert/convert.h"
#include "convert/source.h"
#include "format/cmf/cmf.h"
#include "support/gguf_bytes.h"
#include "support/memory_fs.h"

static void load(memory_fs *fs, const char *golden, const char *to) {
    char from[512];
    csn_buf b;
    caisson_error err;
    snprintf(from, sizeof(from), "%s/tests/golden/%s", CSN_SOURCE_DIR, golden);
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), from, 1 << 24, &b, &err), &err);
    memory_fs_put(fs, to, b.ptr, b.len);
    csn_buf_free(&b);
}

static void load_model(memory_fs *fs, const char *name) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    memory_fs_init(fs);
    for (int i = 0; i < 3; i++) {
        char from[128], to[64];
        snprintf(from, sizeof(from), "families/%s/%s", name, files[i]);
        snprintf(to, sizeof(to), "d/%s", files[i]);
        load(fs, from, to);
    }
}

static void put(memory_fs *fs, const char *path, const char *text) {
    memory_fs_put(fs, path, text, strlen(text));
}

static csn_source *open_source(memory_fs *fs, const char *path) {
    csn_source *s;
    caisson_error err;
    ASSERT_OK(csn_source_open(&fs->base, path, NULL, &s, &err), &err);
    return s;
}

static void close_source(memory_fs *fs, csn_source *s) {
    csn_source_close(s);
    assert_int_equal(fs->n_open, 0);
    memory_fs_done(fs);
}

static void assert_eos(const csn_source *s, const int32_t *want, uint32_t n) {
    assert_int_equal(s->n_eos, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(s->eos_token_ids[i], want[i]);
    }
}

static void all_eos_ids_of_generation_config_count(void **state) {
    (void)state;
    memory_fs fs;
    load_model(&fs, "llama");
    put(&fs, "d/generation_config.json", "{\"eos_token_id\": [7, 9, 7], \"temperature\": 0.6}");
    csn_source *s = open_source(&fs, "d");
    assert_eos(s, (const int32_t[]){7, 9}, 2);
    close_source(&fs, s);
}

static void config_gives_eos_when_nothing_else_does(void **state) {
    (void)state;
    memory_fs fs;
    load_model(&fs, "llama");
    put(&fs, "d/generation_config.json", "{\"eos_token_id\": null}");
    csn_source *s = open_source(&fs, "d");
    assert_eos(s, (const int32_t[]){2}, 1);
    assert_int_equal(s->bos_token_id, 1);
    assert_int_equal(s->pad_token_id, 0);
    close_source(&fs, s);
}

static void the_tokenizers_eos_token_counts_too(void **state) {
    (void)state;
    memory_fs fs;
    load_model(&fs, "llama");
    put(&fs, "d/generation_config.json", "{\"eos_token_id\": 7}");
    put(&fs, "d/tokenizer_config.json",
        "{\"eos_token\": {\"content\": \"</s>\", \"lstrip\": false}, \"pad_token\": \"<pad>\"}");
    csn_source *s = open_source(&fs, "d");
    assert_eos(s, (const int32_t[]){7, 2}, 2);
    close_source(&fs, s);
}

/* What is passed over would let the model never end, or be replaced by ChatML. */
static void ids_and_templates_of_another_form_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *file, *text, *key; /* key NULL: taken */
    } cases[] = {
        {"d/generation_config.json", "{\"eos_token_id\": \"2\"}", "eos_token_id"},
        {"d/generation_config.json", "{\"eos_token_id\": [7, \"2\"]}", "eos_token_id"},
        {"d/generation_config.json", "{\"eos_token_id\": [[2]]}", "eos_token_id"},
        {"d/generation_config.json", "{\"eos_token_id\": 2.5}", "eos_token_id"},
        {"d/generation_config.json", "{\"eos_token_id\": true}", "eos_token_id"},
        {"d/generation_config.json", "{\"eos_token_id\": {}}", "eos_token_id"},
        {"d/generation_config.json", "{\"eos_token_id\": 96}", "eos_token_id"},
        {"d/generation_config.json", "{\"eos_token_id\": [2, 4294967296]}", "eos_token_id"},
        {"d/generation_config.json", "{\"eos_token_id\": [95, -1]}", NULL},
        {"d/generation_config.json", "{\"eos_token_id\": []}", NULL},
        {"d/config.json", "{\"bos_token_id\": \"1\", \"model_type\": \"llama\"}", "bos_token_id"},
        {"d/config.json", "{\"pad_token_id\": 0.5, \"model_type\": \"llama\"}", "pad_token_id"},
        {"d/tokenizer_config.json", "{\"chat_template\": 5}", "chat_template"},
        {"d/tokenizer_config.json", "{\"chat_template\": {\"default\": \"x\"}}", "chat_template"},
        {"d/tokenizer_config.json", "{\"chat_template\": [\"x\"]}", "chat_template"},
        {"d/tokenizer_config.json",
         "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}]}", "chat_template"},
        {"d/tokenizer_config.json",
         "{\"chat_template\": [{\"name\": \"default\", \"template\": 5}]}", "chat_template"},
        {"d/tokenizer_config.json", "{\"chat_template\": null}", NULL},
        {"d/tokenizer_config.json", "{\"chat_template\": []}", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_fs fs;
        csn_source *s = NULL;
        caisson_error err = {0};
        load_model(&fs, "llama");
        put(&fs, cases[i].file, cases[i].text);
        caisson_status status = csn_source_open(&fs.base, "d", NULL, &s, &err);
        if (status != (cases[i].key == NULL ? CAISSON_OK : CAISSON_E_PARSE)) {
            fail_msg("%s: %s", cases[i].text, caisson_status_name(status));
        }
        if (cases[i].key != NULL) {
            assert_string_equal(err.tensor, cases[i].key);
        } else {
            csn_source_close(s);
        }
        assert_int_equal(fs.n_open, 0);
        memory_fs_done(&fs);
    }
}

/* transformers hands templates these names too; a container keeps the common seven alone. */
static void refuses_templates_with_tokens_of_their_own(void **state) {
    (void)state;
    static const struct {
        const char *config, *key;
    } cases[] = {
        {"{\"image_token\": \"<i>\", \"chat_template\": \"{{ image_token }}\"}", "image_token"},
        {"{\"x_token\": {\"content\": \"<i>\"}, \"chat_template\": \"{{x_token}}\"}", "x_token"},
        {"{\"extra_special_tokens\": {\"begin\": \"<i>\"}, \"chat_template\": \"{{ begin }}\"}",
         "begin"},
        {"{\"image_token\": \"<i>\", \"chat_template\": \"{{ my_image_token }}\"}", NULL},
        {"{\"bos_token\": \"<s>\", \"chat_template\": \"{{ bos_token }}\"}", NULL},
        {"{\"extra_special_tokens\": [\"<i>\"], \"chat_template\": \"x\"}", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_fs fs;
        csn_source *s = NULL;
        caisson_error err = {0};
        load_model(&fs, "llama");
        put(&fs, "d/tokenizer_config.json", cases[i].config);
        caisson_status status = csn_source_open(&fs.base, "d", NULL, &s, &err);
        assert_int_equal(status, cases[i].key == NULL ? CAISSON_OK : CAISSON_E_UNSUPPORTED);
        if (cases[i].key != NULL) {
            assert_string_equal(err.tensor, cases[i].key);
        } else {
            csn_source_close(s);
        }
        memory_fs_done(&fs);
    }
}

static void the_jinja_file_wins_unless_it_is_blank(void **state) {
    (void)state;
    static const char *const configs[] = {
        "{\"chat_template\": \"from config\"}",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"no\"}, "
        "{\"name\": \"default\", \"template\": \"from config\"}]}",
    };
    for (int i = 0; i < 4; i++) {
        memory_fs fs;
        load_model(&fs, "llama");
        put(&fs, "d/tokenizer_config.json", configs[i % 2]);
        put(&fs, "d/chat_template.jinja", i < 2 ? "{{ 'file' }}\n" : " \n\t\r\n");
        csn_source *s = open_source(&fs, "d");
        if (i < 2) {
            ASSERT_STR(s->chat_template, "{{ 'file' }}\n");
        } else {
            ASSERT_STR(s->chat_template, "from config");
        }
        close_source(&fs, s);
    }
}

/* Processors of models with several towers keep theirs there. */
static void a_processors_template_counts_where_there_is_no_other(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        memory_fs fs;
        load_model(&fs, "llama");
        put(&fs, "d/tokenizer_config.json", i == 0 ? "{}" : "{\"chat_template\": \"config\"}");
        put(&fs, "d/chat_template.jinja", "");
        put(&fs, "d/chat_template.json", "{\"chat_template\": \"processor\"}");
        csn_source *s = open_source(&fs, "d");
        if (i == 0) {
            ASSERT_STR(s->chat_template, "processor");
        } else {
            ASSERT_STR(s->chat_template, "config");
        }
        close_source(&fs, s);
    }
}

static void a_directory_without_tokenizer_converts(void **state) {
    (void)state;
    memory_fs fs;
    load_model(&fs, "llama");
    memory_fs_drop(memory_fs_find(&fs, "d/tokenizer.json"));
    csn_source *s = open_source(&fs, "d");
    assert_int_equal(s->tokenizer.len, 0);
    close_source(&fs, s);
}

static void bad_json_names_its_file(void **state) {
    (void)state;
    static const char *const files[] = {"generation_config.json", "tokenizer_config.json"};
    for (int i = 0; i < 2; i++) {
        memory_fs fs;
        csn_source *s;
        caisson_error err = {0};
        char path[64];
        load_model(&fs, "llama");
        snprintf(path, sizeof(path), "d/%s", files[i]);
        put(&fs, path, "{\"eos_token_id\": ");
        ASSERT_STATUS(csn_source_open(&fs.base, "d", NULL, &s, &err), CAISSON_E_PARSE);
        assert_string_equal(err.file, files[i]);
        assert_int_equal(fs.n_open, 0);
        memory_fs_done(&fs);
    }
}

/* ---- shards ---- */

/* Cuts d/model.safetensors into two shards that share its payload, by an index. */
static void make_index(memory_fs *fs, const char *extra) {
    caisson_error err;
    csn_safetensors *s;
    csn_buf b = CSN_BUF_INIT(1 << 20);
    ASSERT_OK(csn_safetensors_open_dir(&fs->base, "d", &s, &err), &err);
    csn_jw w = csn_jw_begin(&b, &err);
    csn_jw_object(&w);
    csn_jw_key(&w, CSN_STR("weight_map"));
    csn_jw_object(&w);
    for (uint32_t i = 0; i < s->dir.n; i++) {
        csn_jw_key(&w, s->dir.tensors[i].name);
        csn_jw_str(&w, CSN_STR("part.safetensors"));
    }
    if (extra != NULL) {
        csn_jw_key(&w, csn_str_from(extra));
        csn_jw_str(&w, CSN_STR("part.safetensors"));
    }
    csn_jw_object_end(&w);
    csn_jw_object_end(&w);
    ASSERT_OK(csn_jw_end(&w), &err);
    csn_safetensors_close(s);
    memory_fs_put(fs, "d/model.safetensors.index.json", b.ptr, b.len);
    memory_fs_node *node = memory_fs_find(fs, "d/model.safetensors");
    memory_fs_put(fs, "d/part.safetensors", node->bytes, node->len);
    put(fs, "d/model.safetensors", "not even read");
    csn_buf_free(&b);
}

static void the_index_wins_over_a_stray_file(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err;
    csn_convert_options o = {.n_threads = 1};
    load_model(&fs, "llama");
    make_index(&fs, NULL);
    ASSERT_OK(csn_convert(&fs.base, "d", "out.cmf", &o, &err), &err);
    memory_fs_done(&fs);
}

static void a_listed_tensor_that_is_missing_writes_nothing(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err = {0};
    csn_convert_options o = {.n_threads = 1};
    load_model(&fs, "llama");
    make_index(&fs, "model.layers.7.mlp.up_proj.weight");
    ASSERT_STATUS(csn_convert(&fs.base, "d", "out.cmf", &o, &err), CAISSON_E_MISSING);
    assert_string_equal(err.tensor, "model.layers.7.mlp.up_proj.weight");
    assert_null(memory_fs_find(&fs, "out.cmf"));
    assert_null(memory_fs_find(&fs, "out.cmf.part"));
    memory_fs_done(&fs);
}

/* ---- FP8 ---- */

static float value_at(const csn_cmf *c, const char *tensor, uint64_t row, uint64_t col) {
    caisson_error err;
    float v;
    const csn_tensor *t = csn_directory_find(&c->dir, csn_str_from(tensor));
    assert_non_null(t);
    uint64_t at = row * t->shape.dim[1] + col;
    ASSERT_OK(csn_file_read_at(c->file, t->offset + at * 4, &v, 4, &err), &err);
    return v;
}

static void fp8_blocks_are_scaled(void **state) {
    (void)state;
    memory_fs fs;
    caisson_error err;
    csn_cmf *c;
    csn_json *doc;
    csn_convert_options o = {.quant = csn_dtype_by_name(CSN_STR("f32")), .n_threads = 1};
    memory_fs_init(&fs);
    load(&fs, "convert/f8/config.json", "d/config.json");
    load(&fs, "convert/f8/model.safetensors", "d/model.safetensors");
    load(&fs, "convert/f8/expected.json", "expected.json");
    ASSERT_OK(csn_convert(&fs.base, "d", "out.cmf", &o, &err), &err);
    ASSERT_OK(csn_cmf_open(&fs.base, "out.cmf", &c, &err), &err);
    memory_fs_node *node = memory_fs_find(&fs, "expected.json");
    ASSERT_OK(csn_json_parse(csn_str_make((char *)node->bytes, node->len), 0, &doc, &err), &err);
    size_t n = 0;
    for (csn_jiter t = csn_jval_iter(csn_json_root(doc)); csn_jiter_next(&t);) {
        char name[128];
        snprintf(name, sizeof(name), "%.*s", CSN_STR_ARGS(t.key));
        for (csn_jiter it = csn_jval_iter(t.value); csn_jiter_next(&it); n++) {
            double v[3] = {0};
            for (csn_jiter k = csn_jval_iter(it.value); csn_jiter_next(&k);) {
                assert_true(csn_jval_f64(k.value, &v[k.index]));
            }
            assert_true(value_at(c, name, (uint64_t)v[0], (uint64_t)v[1]) == (float)v[2]);
        }
    }
    assert_true(n > 150);
    csn_json_free(doc);
    csn_cmf_close(c);
    memory_fs_done(&fs);
}

static void fp8_without_its_scales_is_refused(void **state) {
    (void)state;
    static const char scale[] = "model.layers.0.mlp.up_proj.weight_scale_inv";
    memory_fs fs;
    caisson_error err = {0};
    csn_convert_options o = {.n_threads = 1};
    memory_fs_init(&fs);
    load(&fs, "convert/f8/config.json", "d/config.json");
    load(&fs, "convert/f8/model.safetensors", "d/model.safetensors");
    memory_fs_node *node = memory_fs_find(&fs, "d/model.safetensors");
    uint8_t *at = memmem(node->bytes, node->len, scale, sizeof(scale) - 1);
    assert_non_null(at);
    at[sizeof(scale) - 2] = 'V';
    ASSERT_STATUS(csn_convert(&fs.base, "d", "out.cmf", &o, &err), CAISSON_E_MISSING);
    assert_string_equal(err.tensor, scale);
    memory_fs_done(&fs);
}

/* U30: a scheme that we do not read is told by its name. */
static void other_quantised_checkpoints_are_refused_by_scheme(void **state) {
    (void)state;
    static const char *const schemes[] = {
        "{\"quant_method\":\"gptq\",\"bits\":4}",
        "{\"quant_method\":\"awq\"}",
        "{\"quant_method\":\"fp8\",\"weight_block_size\":[64,128]}",
        "{\"quant_method\":\"fp8\"}",
    };
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        memory_fs fs;
        csn_source *s;
        caisson_error err = {0};
        csn_buf b = CSN_BUF_INIT(1 << 16);
        load_model(&fs, "llama");
        memory_fs_node *node = memory_fs_find(&fs, "d/config.json");
        ASSERT_OK(csn_buf_printf(&b, &err, "{\"quantization_config\":%s,%.*s", schemes[i],
                                 (int)node->len - 1, (char *)node->bytes + 1),
                  &err);
        memory_fs_put(&fs, "d/config.json", b.ptr, b.len);
        csn_buf_free(&b);
        ASSERT_STATUS(csn_source_open(&fs.base, "d", NULL, &s, &err), CAISSON_E_UNSUPPORTED);
        assert_string_equal(err.tensor, "quantization_config");
        assert_non_null(strstr(err.want, "fp8 e4m3"));
        memory_fs_done(&fs);
    }
}

/* ---- a language model inside a larger one ---- */

static void the_text_model_of_a_larger_one_is_taken(void **state) {
    (void)state;
    memory_fs fs;
    csn_buf b = CSN_BUF_INIT(1 << 16);
    caisson_error err;
    load_model(&fs, "gemma3");
    memory_fs_node *node = memory_fs_find(&fs, "d/config.json");
    ASSERT_OK(csn_buf_printf(&b, &err,
                             "{\"model_type\":\"gemma3\",\"vision_config\":{\"x\":1},"
                             "\"image_token_index\":5,\"text_config\":%.*s}",
                             (int)node->len, (char *)node->bytes),
              &err);
    memory_fs_put(&fs, "d/config.json", b.ptr, b.len);
    csn_buf_free(&b);
    csn_source *s = open_source(&fs, "d");
    ASSERT_STR(s->arch.arch_name, "gemma3_text");
    assert_int_equal(s->arch.n_layers, 3);
    assert_int_equal(s->n_eos, 1); /* told by the inner one alone */
    assert_int_equal(s->eos_token_ids[0], 2);
    close_source(&fs, s);
}

/* The keys that published models carry, with their values: all of them are understood. */
static void published_configs_are_understood(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t head_dim;
    } cases[] = {
        {"{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
         "\"attention_dropout\":0.0,\"bos_token_id\":128000,\"eos_token_id\":[128001,128008,128009]"
         ","
         "\"hidden_act\":\"silu\",\"hidden_size\":4096,\"initializer_range\":0.02,"
         "\"intermediate_size\":14336,\"max_position_embeddings\":131072,\"mlp_bias\":false,"
         "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":32,"
         "\"num_key_value_heads\":8,\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_scaling\":{"
         "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
         "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
         "\"rope_theta\":500000.0,\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\","
         "\"transformers_version\":\"4.43.0\",\"use_cache\":true,\"vocab_size\":128256}",
         128},
        {"{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
         "\"attention_dropout\":0.0,\"bos_token_id\":1,\"eos_token_id\":2,\"hidden_act\":\"silu\","
         "\"hidden_size\":576,\"initializer_range\":0.041,\"intermediate_size\":1536,"
         "\"is_llama_config\":true,\"max_position_embeddings\":8192,\"mlp_bias\":false,"
         "\"model_type\":\"llama\",\"num_attention_heads\":9,\"num_hidden_layers\":30,"
         "\"num_key_value_heads\":3,\"pad_token_id\":2,\"pretraining_tp\":1,"
         "\"rms_norm_eps\":1e-05,\"rope_interleaved\":false,\"rope_scaling\":null,"
         "\"rope_theta\":100000,\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\","
         "\"transformers.js_config\":{\"kv_cache_dtype\":{\"q4f16\":\"float16\"}},"
         "\"transformers_version\":\"4.42.3\",\"use_cache\":true,\"vocab_size\":49152}",
         64},
        {"{\"architectures\":[\"Qwen2ForCausalLM\"],\"attention_dropout\":0.0,"
         "\"bos_token_id\":151643,\"eos_token_id\":151645,\"hidden_act\":\"silu\","
         "\"hidden_size\":3584,\"initializer_range\":0.02,\"intermediate_size\":18944,"
         "\"max_position_embeddings\":131072,\"max_window_layers\":28,\"model_type\":\"qwen2\","
         "\"num_attention_heads\":28,\"num_hidden_layers\":28,\"num_key_value_heads\":4,"
         "\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"rope_scaling\":{\"factor\":4.0,"
         "\"original_max_position_embeddings\":32768,\"type\":\"yarn\"},"
         "\"sliding_window\":131072,\"tie_word_embeddings\":false,\"use_mrope\":false,"
         "\"use_sliding_window\":false,\"vocab_size\":152064}",
         128},
        {"{\"architectures\":[\"Gemma3ForCausalLM\"],\"attention_bias\":false,"
         "\"attention_dropout\":0.0,\"attn_logit_softcapping\":null,\"bos_token_id\":2,"
         "\"cache_implementation\":\"hybrid\",\"eos_token_id\":[1,106],"
         "\"final_logit_softcapping\":null,\"head_dim\":256,\"hidden_activation\":"
         "\"gelu_pytorch_tanh\",\"hidden_size\":1152,\"initializer_range\":0.02,"
         "\"intermediate_size\":6912,\"max_position_embeddings\":32768,\"model_type\":"
         "\"gemma3_text\",\"num_attention_heads\":4,\"num_hidden_layers\":26,"
         "\"num_key_value_heads\":1,\"pad_token_id\":0,\"query_pre_attn_scalar\":256,"
         "\"rms_norm_eps\":1e-06,\"rope_local_base_freq\":10000,\"rope_scaling\":null,"
         "\"rope_theta\":1000000,\"sliding_window\":512,\"sliding_window_pattern\":6,"
         "\"torch_dtype\":\"bfloat16\",\"use_cache\":true,\"vocab_size\":262144}",
         256},
        {"{\"architectures\":[\"Phi3ForCausalLM\"],\"attention_bias\":false,"
         "\"attention_dropout\":0.0,\"auto_map\":{\"AutoConfig\":\"x\"},\"bos_token_id\":199999,"
         "\"embd_pdrop\":0.0,\"eos_token_id\":199999,\"full_attn_mod\":1,\"hidden_act\":\"silu\","
         "\"hidden_size\":96,\"initializer_range\":0.02,\"intermediate_size\":8192,"
         "\"interpolate_factor\":1,\"lm_head_bias\":false,\"max_position_embeddings\":131072,"
         "\"mlp_bias\":false,\"model_type\":\"phi3\",\"num_attention_heads\":12,"
         "\"num_hidden_layers\":32,\"num_key_value_heads\":4,"
         "\"original_max_position_embeddings\":4096,\"pad_token_id\":199999,"
         "\"partial_rotary_factor\":0.75,\"resid_pdrop\":0.0,\"rms_norm_eps\":1e-05,"
         "\"rope_scaling\":{\"long_factor\":[1,2,3],\"short_factor\":[1,1,1],"
         "\"type\":\"longrope\"},\"rope_theta\":10000.0,\"sliding_window\":262144,"
         "\"tie_word_embeddings\":true,\"use_cache\":true,\"vocab_size\":200064}",
         8},
        {"{\"architectures\":[\"DeepseekV2ForCausalLM\"],\"attention_bias\":false,\"atten"
         "tion_dropout\":0.0,\"aux_loss_alpha\":0.001,\"bos_token_id\":100000,\"eos_toke"
         "n_id\":100001,\"ep_size\":1,\"first_k_dense_replace\":1,\"hidden_act\":\"silu\",\""
         "hidden_size\":5120,\"initializer_range\":0.02,\"intermediate_size\":12288,\"kv"
         "_lora_rank\":512,\"max_position_embeddings\":163840,\"model_type\":\"deepseek_"
         "v2\",\"moe_intermediate_size\":1536,\"moe_layer_freq\":1,\"n_group\":8,\"n_route"
         "d_experts\":160,\"n_shared_experts\":2,\"norm_topk_prob\":false,\"num_attentio"
         "n_heads\":128,\"num_experts_per_tok\":6,\"num_hidden_layers\":60,\"num_key_val"
         "ue_heads\":128,\"pretraining_tp\":1,\"q_lora_rank\":1536,\"qk_nope_head_dim\":1"
         "28,\"qk_rope_head_dim\":64,\"rms_norm_eps\":1e-06,\"rope_scaling\":{\"beta_fast"
         "\":32,\"beta_slow\":1,\"factor\":40,\"mscale\":0.707,\"mscale_all_dim\":0.707,\"or"
         "iginal_max_position_embeddings\":4096,\"type\":\"yarn\"},\"rope_theta\":10000,\""
         "routed_scaling_factor\":16.0,\"scoring_func\":\"softmax\",\"seq_aux\":true,\"tie"
         "_word_embeddings\":false,\"topk_group\":3,\"topk_method\":\"group_limited_gree"
         "dy\",\"torch_dtype\":\"bfloat16\",\"transformers_version\":\"4.39.3\",\"use_cache\""
         ":true,\"v_head_dim\":128,\"vocab_size\":102400}",
         192},
        {"{\"architectures\":[\"Gemma2ForCausalLM\"],\"attention_bias\":false,\"attention_drop"
         "out\":0.0,\"attn_logit_softcapping\":50.0,\"bos_token_id\":2,\"cache_implementation"
         "\":\"hybrid\",\"eos_token_id\":1,\"final_logit_softcapping\":30.0,\"head_dim\":256,"
         "\"hidden_act\":\"gelu_pytorch_tanh\",\"hidden_activation\":\"gelu_pytorch_tanh\",\"h"
         "idden_size\":3584,\"initializer_range\":0.02,\"intermediate_size\":14336,\"max_posit"
         "ion_embeddings\":8192,\"model_type\":\"gemma2\",\"num_attention_heads\":16,\"num_hid"
         "den_layers\":42,\"num_key_value_heads\":8,\"pad_token_id\":0,\"query_pre_attn_scalar"
         "\":256,\"rms_norm_eps\":1e-06,\"rope_theta\":10000.0,\"sliding_window\":4096,\"slidi"
         "ng_window_size\":4096,\"torch_dtype\":\"float32\",\"transformers_version\":\"4.42.0."
         "dev0\",\"use_cache\":true,\"vocab_size\":256000}",
         256},
        {"{\"architectures\":[\"SmolLM3ForCausalLM\"],\"attention_bias\":false,\"attention_dro"
         "pout\":0.0,\"bos_token_id\":null,\"eos_token_id\":128012,\"hidden_act\":\"silu\",\"h"
         "idden_size\":2048,\"initializer_range\":0.02,\"intermediate_size\":11008,\"layer_typ"
         "es\":[\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"],"
         "\"max_position_embeddings\":65536,\"max_window_layers\":28,\"mlp_bias\":false,\"mode"
         "l_type\":\"smollm3\",\"no_rope_layer_interval\":4,\"no_rope_layers\":[1,1,1,0],\"num"
         "_attention_heads\":16,\"num_hidden_layers\":4,\"num_key_value_heads\":4,\"pad_token_"
         "id\":128004,\"pretraining_tp\":2,\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope"
         "_theta\":5000000.0,\"sliding_window\":null,\"torch_dtype\":\"bfloat16\",\"transforme"
         "rs_version\":\"4.54.0.dev0\",\"use_cache\":false,\"use_sliding_window\":false,\"voca"
         "b_size\":128256}",
         128},
        {"{\"architectures\":[\"Qwen2ForCausalLM\"],\"attention_dropout\":0.0,\"bos_token_id\""
         ":151643,\"eos_token_id\":151645,\"hidden_act\":\"silu\",\"initializer_range\":0.02,"
         "\"model_type\":\"qwen2\",\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"use_slidi"
         "ng_window\":false,\"use_cache\":true,\"torch_dtype\":\"bfloat16\",\"transformers_ver"
         "sion\":\"4.37.0\",\"vocab_size\":151936,\"hidden_size\":3584,\"intermediate_size\":1"
         "8944,\"max_position_embeddings\":4096,\"max_window_layers\":28,\"num_attention_heads"
         "\":28,\"num_hidden_layers\":28,\"num_key_value_heads\":4,\"sliding_window\":4096,\"t"
         "ie_word_embeddings\":false,\"use_mrope\":false,\"_attn_implementation_autoset\":true"
         "}",
         128},
        {"{\"architectures\":[\"KimiK3ForConditionalGeneration\"],\"bos_token_id\":163584,\"eo"
         "s_token_id\":163586,\"media_placeholder_token_id\":163605,\"model_type\":\"kimi_k3\""
         ",\"pad_token_id\":163839,\"tie_word_embeddings\":false,\"text_config\":{\"activation"
         "_situ_beta\":4.0,\"activation_situ_linear_beta\":25.0,\"attn_res_block_size\":2,\"eo"
         "s_token_id\":163586,\"first_k_dense_replace\":1,\"hidden_act\":\"situ\",\"hidden_siz"
         "e\":7168,\"intermediate_size\":33792,\"kv_lora_rank\":512,\"latent_moe_use_norm\":tr"
         "ue,\"linear_attn_config\":{\"full_attn_layers\":[4],\"gate_lower_bound\":-5.0,\"head"
         "_dim\":128,\"kda_layers\":[1,2,3],\"num_heads\":96,\"short_conv_kernel_size\":4,\"us"
         "e_full_rank_gate\":true},\"max_position_embeddings\":1048576,\"mla_use_nope\":true,"
         "\"mla_use_output_gate\":true,\"model_type\":\"kimi_linear\",\"moe_intermediate_size"
         "\":3072,\"moe_layer_freq\":1,\"moe_renormalize\":true,\"moe_router_activation_func\""
         ":\"sigmoid\",\"num_attention_heads\":96,\"num_expert_group\":1,\"num_experts\":896,"
         "\"num_experts_per_token\":16,\"num_hidden_layers\":4,\"num_key_value_heads\":96,\"nu"
         "m_nextn_predict_layers\":0,\"num_shared_experts\":2,\"q_lora_rank\":1536,\"qk_nope_h"
         "ead_dim\":128,\"qk_rope_head_dim\":64,\"rms_norm_eps\":1e-05,\"routed_expert_hidden_"
         "size\":3584,\"routed_scaling_factor\":1.0,\"tie_word_embeddings\":false,\"topk_group"
         "\":1,\"use_grouped_topk\":true,\"v_head_dim\":128,\"vocab_size\":163840},\"vision_co"
         "nfig\":{\"patch_size\":14}}",
         192},
        {"{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\""
         "silu\",\"initializer_range\":0.02,\"use_cache\":true,\"torch_dtype\":\"float16\",\"t"
         "ransformers_version\":\"4.31.0\",\"bos_token_id\":1,\"eos_token_id\":2,\"hidden_size"
         "\":4096,\"intermediate_size\":11008,\"max_position_embeddings\":65536,\"num_attentio"
         "n_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":32,\"pretraining_tp\":"
         "1,\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"factor\":16.0,\"original_max_position_e"
         "mbeddings\":4096,\"type\":\"yarn\",\"finetuned\":true},\"tie_word_embeddings\":false"
         ",\"vocab_size\":32000,\"auto_map\":{\"AutoConfig\":\"x\"}}",
         128},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_fs fs;
        memory_fs_init(&fs);
        put(&fs, "d/config.json", cases[i].text);
        memory_fs_put(&fs, "d/model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
        csn_source *s = open_source(&fs, "d");
        assert_int_equal(s->arch.head_dim, cases[i].head_dim);
        close_source(&fs, s);
    }
}

/* As transformers 5.24.0 fills them in. */
static void what_is_left_out_is_the_classs(void **state) {
    (void)state;
    static const char phi[] =
        "{\"model_type\":\"phi3\",\"hidden_size\":64,\"num_attention_heads\":8,"
        "\"rope_parameters\":{\"rope_type\":\"longrope\",\"short_factor\":[1,"
        "1,1,1],\"long_factor\":[1,2,3,4],\"rope_theta\":10000.0,"
        "\"original_max_position_embeddings\":16}}";
    static const char qwen[] = "{\"model_type\":\"qwen2\",\"num_attention_heads\":16,"
                               "\"num_key_value_heads\":null}";
    memory_fs fs;
    memory_fs_init(&fs);
    put(&fs, "d/config.json", phi);
    memory_fs_put(&fs, "d/model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    csn_source *s =
        open_source(&fs, "d"); /* the key at top level counts, not the one in the object */
    assert_int_equal(s->arch.longrope.original_max_position_embeddings, 4096);
    close_source(&fs, s);
    memory_fs_init(&fs);
    put(&fs, "d/config.json", qwen);
    memory_fs_put(&fs, "d/model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    s = open_source(&fs, "d");
    assert_int_equal(s->arch.n_kv_heads, 16);
    close_source(&fs, s);
}

/* Which layers slide where no list says it, as in the classes of transformers 5.24.0. */
static void windows_are_those_of_each_class(void **state) {
    (void)state;
#define MOE "_moe\",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":8"
#define SHARED ",\"shared_expert_intermediate_size\":8"
    static const struct {
        const char *family, *window, *first, *slides; /* a letter a layer */
    } cases[] = {
        {"qwen2\"", "9", "2", "..ss"},          {"qwen3\"", "9", "1", ".sss"},
        {"qwen3\"", "null", "1", "...."},       {"qwen2" MOE SHARED, "9", "3", "s.s."},
        {"qwen2" MOE SHARED, "9", "2", "s..."}, {"qwen3" MOE, "9", "2", "ssss"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_fs fs;
        char text[512], slides[5] = "....";
        memory_fs_init(&fs);
        snprintf(text, sizeof(text),
                 "{\"model_type\":\"%s,\"num_hidden_layers\":4,\"use_sliding_window\":true,"
                 "\"sliding_window\":%s,\"max_window_layers\":%s}",
                 cases[i].family, cases[i].window, cases[i].first);
        put(&fs, "d/config.json", text);
        memory_fs_put(&fs, "d/model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
        csn_source *s = open_source(&fs, "d");
        for (uint32_t k = 0; k < 4; k++) {
            slides[k] = csn_arch_is_local(&s->arch, k) ? 's' : '.';
        }
        assert_string_equal(slides, cases[i].slides);
        close_source(&fs, s);
    }
#undef MOE
#undef SHARED
}

/* What a class passes over, or versions of transformers take for different things; seen with random
 * configurations against 5.24.0. */
static void keys_that_contradict_are_refused(void **state) {
    (void)state;
#define NESTED "{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":4.0}}"
#define MLA                                                                                        \
    "\",\"kv_lora_rank\":8,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":8,\"v_head_dim\":8,"        \
    "\"n_routed_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":8,\"n_group\":1,"  \
    "\"norm_topk_prob\":false,\"routed_scaling_factor\":1.0"
    static const struct {
        const char *config, *key; /* key NULL: taken */
    } cases[] = {
        {"llama\",\"hidden_act\":\"silu\",\"hidden_activation\":\"gelu_new\"", "hidden_activation"},
        {"llama\",\"hidden_act\":\"silu\",\"hidden_activation\":\"silu\"", NULL},
        {"gemma\",\"hidden_act\":\"gelu\",\"hidden_activation\":\"gelu_pytorch_tanh\"", NULL},
        {"gemma\",\"hidden_act\":\"silu\",\"hidden_activation\":\"gelu_pytorch_tanh\"",
         "hidden_activation"},
        {"gemma2\",\"hidden_activation\":\"silu\",\"hidden_act\":\"gelu_pytorch_tanh\"",
         "hidden_act"},
        {"gemma3_text\",\"hidden_act\":\"silu\"", "hidden_act"},
        {"gemma3_text\",\"_sliding_window_pattern\":2", "_sliding_window_pattern"},
        {"gemma3_text\",\"_sliding_window_pattern\":6", NULL},
        {"gemma3_text\",\"rope_parameters\":" NESTED, NULL},
        {"gemma3_text\",\"rope_scaling\":" NESTED, "rope_scaling"},
        {"gemma3_text\",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}", NULL},
        {"gemma3_text\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8.0,\"truncate\":true}",
         NULL},
        {"gemma3_text\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8.0,\"truncate\":"
         "false}",
         "truncate"},
        {"gemma3_text\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":8.0}", "rope_scaling"},
        {"phi3\",\"hidden_size\":24,\"num_attention_heads\":2,\"partial_rotary_factor\":0.75",
         "partial_rotary_factor"},
        {"gemma3_text\",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0},"
         "\"rope_parameters\":" NESTED,
         "rope_scaling"},
        {"mistral\",\"rope_parameters\":" NESTED, "rope_parameters"},
        {"phi3\",\"rope_scaling\":" NESTED, "rope_scaling"},
        {"gemma3\",\"text_config\":{\"final_logit_softcapping\":30.0}", "final_logit_softcapping"},
        {"gemma3\",\"text_config\":{\"final_logit_softcapping\":null}", NULL},
        {"deepseek_v2" MLA, NULL},
        {"deepseek_v2" MLA ",\"rope_interleave\":false", "rope_interleave"},
        {"deepseek_v3" MLA ",\"rope_interleave\":false", NULL},
        {"deepseek_v3" MLA ",\"mla_use_nope\":true", "mla_use_nope"},
        {"deepseek_v3" MLA ",\"moe_renormalize\":true", "moe_renormalize"},
        {"deepseek_v3" MLA ",\"topk_group\":0", "topk_group"},
        {"qwen3\",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
         "\"original_max_position_embeddings\":8}",
         NULL},
        {"qwen3\",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"beta_slow\":2,"
         "\"original_max_position_embeddings\":4}",
         "original_max_position_embeddings"},
        {"qwen3\",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"beta_slow\":64}",
         "original_max_position_embeddings"},
        {"deepseek_v3" MLA ",\"num_experts_per_token\":2", NULL},
        {"deepseek_v3" MLA ",\"num_experts_per_token\":3", "num_experts_per_token"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_fs fs;
        char text[1024];
        csn_source *s = NULL;
        caisson_error err = {0};
        memory_fs_init(&fs);
        snprintf(text, sizeof(text), "{\"model_type\":\"%s}", cases[i].config);
        put(&fs, "d/config.json", text);
        memory_fs_put(&fs, "d/model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
        caisson_status status = csn_source_open(&fs.base, "d", NULL, &s, &err);
        if (status != (cases[i].key == NULL ? CAISSON_OK : CAISSON_E_UNSUPPORTED)) {
            fail_msg("%s: %s", text, caisson_status_name(status));
        }
        if (cases[i].key != NULL) {
            assert_string_equal(err.tensor, cases[i].key);
        }
        csn_source_close(s);
        memory_fs_done(&fs);
    }
#undef NESTED
#undef MLA
}

/* int(20 * 0.9) of Python is 18, that of 0.9f is 17. */
static void partial_heads_are_counted_in_f64(void **state) {
    (void)state;
    memory_fs fs;
    memory_fs_init(&fs);
    put(&fs, "d/config.json",
        "{\"model_type\":\"phi3\",\"hidden_size\":40,\"num_attention_heads\":2,"
        "\"partial_rotary_factor\":0.9}");
    memory_fs_put(&fs, "d/model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    csn_source *s = open_source(&fs, "d");
    assert_int_equal((uint32_t)(20 * (double)s->arch.partial_rotary_factor), 18);
    close_source(&fs, s);
}

/* In transformers a null is no absent key where what is absent counts as true. */
static void null_is_false(void **state) {
    (void)state;
    memory_fs fs;
    memory_fs_init(&fs);
    put(&fs, "d/config.json",
        "{\"model_type\":\"qwen3\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
        "\"truncate\":null}}");
    memory_fs_put(&fs, "d/model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    csn_source *s = open_source(&fs, "d");
    assert_true(s->arch.yarn.untruncated);
    close_source(&fs, s);
}

/* As transformers 5.24.0: tied only where both hold the same numbers. */
static void another_head_is_not_tied(void **state) {
    (void)state;
    for (int is_same = 0; is_same < 2; is_same++) {
        memory_fs fs;
        csn_source *s;
        caisson_error err = {0};
        load_model(&fs, "llama"); /* with a head of its own */
        memory_fs_node *node = memory_fs_find(&fs, "d/config.json");
        char *tie = memmem(node->bytes, node->len, "embeddings\": false", 18);
        assert_non_null(tie);
        memcpy(tie + 13, "true ", 5);
        if (is_same) {
            ASSERT_OK(csn_source_open(&fs.base, "d", NULL, &s, &err), &err);
            const csn_tensor *head = csn_directory_find(s->dir, CSN_STR("lm_head.weight"));
            const csn_tensor *embed =
                csn_directory_find(s->dir, CSN_STR("model.embed_tokens.weight"));
            uint8_t *bytes = memory_fs_find(&fs, "d/model.safetensors")->bytes;
            memcpy(bytes + head->offset, bytes + embed->offset, (size_t)head->nbytes);
            csn_source_close(s);
        }
        ASSERT_OK(csn_source_open(&fs.base, "d", NULL, &s, &err), &err);
        assert_int_equal(s->arch.tie_word_embeddings, is_same);
        close_source(&fs, s);
    }
}

/* One key of a good config.json changed each time. */
/* transformers 5.24.0 and the code that came with the checkpoints differ in what they take. */
static void what_models_need_is_not_guessed(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"deepseek_v3", "n_group"},           {"deepseek_v3", "norm_topk_prob"},
        {"kimi_linear", "moe_renormalize"},   {"deepseek_v3", "routed_scaling_factor"},
        {"kimi_k3", "routed_scaling_factor"}, {"kimi_k3", "mla_use_nope"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_fs fs;
        caisson_error err = {0};
        csn_convert_options o = {.n_threads = 1};
        load_model(&fs, cases[i][0]);
        memory_fs_node *node = memory_fs_find(&fs, "d/config.json");
        size_t n = strlen(cases[i][1]);
        uint8_t *at = memmem(node->bytes, node->len, cases[i][1], n);
        assert_non_null(at);
        memcpy(at, "pad_token_id_and_more", n); /* nobody asks for keys of this kind */
        ASSERT_STATUS(csn_convert(&fs.base, "d", "out.cmf", &o, &err), CAISSON_E_MISSING);
        assert_string_equal(err.tensor, cases[i][1]);
        memory_fs_done(&fs);
    }
}

static void refuses_routers_of_deepseek_v2_that_it_does_not_know(void **state) {
    (void)state;
    static const struct {
        const char *from, *to;
        caisson_status expected;
        const char *key;
    } cases[] = {
        {"\"norm_topk_prob\": false", "\"norm_topk_prob\": true", CAISSON_E_UNSUPPORTED,
         "norm_topk_prob"}, /* with a factor */
        {"\"topk_method\": \"group_limited_greedy\"", "\"topk_method\": \"noaux_tc\"",
         CAISSON_E_UNSUPPORTED, "topk_method"},
        {"\"topk_group\": 2", "\"topk_group\": 2, \"scoring_func\": \"sigmoid\"",
         CAISSON_E_UNSUPPORTED, "scoring_func"},
        {"\"topk_group\": 2", "\"topk_group\": 5", CAISSON_E_PARSE, "groups"},
        {"\"topk_group\": 2", "\"topk_group\": null", CAISSON_E_PARSE, "groups"},
        {"\"n_group\": 4", "\"n_group\": 3", CAISSON_E_PARSE, "groups"},
        {"\"mlp_bias\": false", "\"mlp_bias\": true", CAISSON_E_UNSUPPORTED, "mlp_bias"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_fs fs;
        csn_source *s;
        caisson_error err = {0};
        csn_buf b = CSN_BUF_INIT(1 << 16);
        load_model(&fs, "deepseek_v2");
        memory_fs_node *node = memory_fs_find(&fs, "d/config.json");
        csn_str all = csn_str_make((char *)node->bytes, node->len);
        size_t at = csn_str_find(all, csn_str_from(cases[i].from), 0);
        assert_true(at != SIZE_MAX);
        size_t rest = at + strlen(cases[i].from);
        ASSERT_OK(csn_buf_printf(&b, &err, "%.*s%s%.*s", (int)at, all.ptr, cases[i].to,
                                 (int)(all.len - rest), all.ptr + rest),
                  &err);
        memory_fs_put(&fs, "d/config.json", b.ptr, b.len);
        csn_buf_free(&b);
        caisson_status status = csn_source_open(&fs.base, "d", NULL, &s, &err);
        if (status != cases[i].expected || strcmp(err.tensor, cases[i].key) != 0) {
            fail_msg("%s: %s, %s", cases[i].to, caisson_status_name(status), err.tensor);
        }
        memory_fs_done(&fs);
    }
}

/* ---- GGUF ---- */

/* Metadata of a llama with six tokens; n_more pairs follow. */
static void begin_gguf(csn_buf *b, uint64_t n_more) {
    static const char *const tokens[] = {"<s>",        "</s>", "<|im_end|>",
                                         "<|eot_id|>", "hi",   "<end_of_turn>"};
    static const uint32_t types[] = {3, 3, 3, 3, 1, 1}; /* the last one is ordinary text */
    gb_head(b, 3, 0, 13 + n_more);
    gb_text(b, "general.architecture", "llama");
    gb_text(b, "general.name", "Tiny");
    gb_u32(b, "llama.embedding_length", 32);
    gb_u32(b, "llama.feed_forward_length", 64);
    gb_u32(b, "llama.block_count", 1);
    gb_u32(b, "llama.attention.head_count", 2);
    gb_u32(b, "llama.context_length", 64);
    gb_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gb_text(b, "tokenizer.ggml.model", "gpt2");
    gb_text(b, "tokenizer.ggml.pre", "gpt-2");
    gb_array(b, "tokenizer.ggml.tokens", CSN_GGUF_STRING, 6);
    for (int i = 0; i < 6; i++) {
        gb_str(b, tokens[i]);
    }
    gb_array(b, "tokenizer.ggml.token_type", CSN_GGUF_I32, 6);
    for (int i = 0; i < 6; i++) {
        gb_int(b, types[i], 4);
    }
    gb_array(b, "tokenizer.ggml.merges", CSN_GGUF_STRING, 0);
}

static void gguf_names_every_end_of_turn(void **state) {
    (void)state;
    memory_fs fs;
    csn_buf b = CSN_BUF_INIT(1 << 16);
    begin_gguf(&b, 4);
    gb_u32(&b, "tokenizer.ggml.bos_token_id", 0);
    gb_u32(&b, "tokenizer.ggml.eos_token_id", 1);
    gb_u32(&b, "tokenizer.ggml.eot_token_id", 3);
    gb_text(&b, "tokenizer.chat_template", "{{ bos_token }}");
    memory_fs_init(&fs);
    memory_fs_put(&fs, "m.gguf", b.ptr, b.len);
    csn_buf_free(&b);
    csn_source *s = open_source(&fs, "m.gguf");
    assert_eos(s, (const int32_t[]){1, 3, 2}, 3);
    assert_int_equal(s->bos_token_id, 0);
    assert_int_equal(s->pad_token_id, -1);
    assert_true(s->arch.rms_norm_eps == 1e-5); /* the number that the f32 stands for */
    ASSERT_STR(s->chat_template, "{{ bos_token }}");
    ASSERT_STR(s->name, "Tiny");
    assert_true(s->has_special_tokens); /* ids of the metadata, as llama.cpp names them */
    ASSERT_STR(s->special_tokens[0], "<s>");
    ASSERT_STR(s->special_tokens[1], "</s>"); /* eos_token: not the first id that ends a turn */
    assert_int_equal(s->special_tokens[4].len, 0);
    close_source(&fs, s);
}

/* As for config.json; all ones say "none", and what only names a token may name none. */
static void gguf_ids_and_flags_of_another_form_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *key;
        const char *text; /* NULL: the number */
        uint32_t number;
        caisson_status status;
    } cases[] = {
        {"tokenizer.ggml.bos_token_id", NULL, 6, CAISSON_E_PARSE},
        {"tokenizer.ggml.eos_token_id", NULL, 6, CAISSON_E_PARSE},
        {"tokenizer.ggml.eot_token_id", NULL, 65536, CAISSON_E_PARSE},
        {"tokenizer.ggml.eom_token_id", NULL, 1u << 31, CAISSON_E_PARSE},
        {"tokenizer.ggml.unknown_token_id", NULL, 6, CAISSON_E_PARSE},
        {"tokenizer.ggml.eos_token_id", NULL, UINT32_MAX, CAISSON_OK},
        {"tokenizer.ggml.eos_token_id", NULL, 5, CAISSON_OK},
        {"tokenizer.ggml.padding_token_id", NULL, 6, CAISSON_OK},
        {"tokenizer.ggml.eos_token_id", "1", 0, CAISSON_E_PARSE},
        {"tokenizer.ggml.padding_token_id", "1", 0, CAISSON_E_PARSE},
        {"tokenizer.ggml.add_bos_token", NULL, 1, CAISSON_E_PARSE},
        {"tokenizer.ggml.add_eos_token", "true", 0, CAISSON_E_PARSE},
        {"tokenizer.ggml.add_space_prefix", NULL, 0, CAISSON_E_PARSE},
        {"tokenizer.chat_template", NULL, 7, CAISSON_E_PARSE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_fs fs;
        csn_source *s = NULL;
        caisson_error err = {0};
        csn_buf b = CSN_BUF_INIT(1 << 16);
        begin_gguf(&b, 1);
        if (cases[i].text != NULL) {
            gb_text(&b, cases[i].key, cases[i].text);
        } else {
            gb_u32(&b, cases[i].key, cases[i].number);
        }
        memory_fs_init(&fs);
        memory_fs_put(&fs, "m.gguf", b.ptr, b.len);
        csn_buf_free(&b);
        caisson_status status = csn_source_open(&fs.base, "m.gguf", NULL, &s, &err);
        if (status != cases[i].status) {
            fail_msg("%s, case %d: %s", cases[i].key, (int)i, caisson_status_name(status));
        }
        if (status != CAISSON_OK) {
            assert_string_equal(err.tensor, cases[i].key);
        } else {
            csn_source_close(s);
        }
        assert_int_equal(fs.n_open, 0);
        memory_fs_done(&fs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_eos_ids_of_generation_config_count),
        cmocka_unit_test(config_gives_eos_when_nothing_else_does),
        cmocka_unit_test(the_tokenizers_eos_token_counts_too),
        cmocka_unit_test(ids_and_templates_of_another_form_are_refused),
        cmocka_unit_test(refuses_templates_with_tokens_of_their_own),
        cmocka_unit_test(the_jinja_file_wins_unless_it_is_blank),
        cmocka_unit_test(a_processors_template_counts_where_there_is_no_other),
        cmocka_unit_test(a_directory_without_tokenizer_converts),
        cmocka_unit_test(bad_json_names_its_file),
        cmocka_unit_test(the_index_wins_over_a_stray_file),
        cmocka_unit_test(a_listed_tensor_that_is_missing_writes_nothing),
        cmocka_unit_test(fp8_blocks_are_scaled),
        cmocka_unit_test(fp8_without_its_scales_is_refused),
        cmocka_unit_test(other_quantised_checkpoints_are_refused_by_scheme),
        cmocka_unit_test(the_text_model_of_a_larger_one_is_taken),
        cmocka_unit_test(published_configs_are_understood),
        cmocka_unit_test(what_is_left_out_is_the_classs),
        cmocka_unit_test(windows_are_those_of_each_class),
        cmocka_unit_test(another_head_is_not_tied),
        cmocka_unit_test(what_models_need_is_not_guessed),
        cmocka_unit_test(keys_that_contradict_are_refused),
        cmocka_unit_test(partial_heads_are_counted_in_f64),
        cmocka_unit_test(null_is_false),
        cmocka_unit_test(refuses_routers_of_deepseek_v2_that_it_does_not_know),
        cmocka_unit_test(gguf_names_every_end_of_turn),
        cmocka_unit_test(gguf_ids_and_flags_of_another_form_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
