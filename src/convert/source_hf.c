/* SPDX-License-Identifier: Apache-2.0 */
/* A Hugging Face directory: config.json decides the family; tokenizer.json is taken byte for byte;
 * eos ids, special tokens and chat template come from the files beside it. */
#include "convert/source.h"

#include "caisson/limits.h"

enum { MAX_CONFIG_BYTES = 64 << 20 };

typedef struct reader {
    csn_source *s;
    csn_fs *fs;
    const char *dir;
    const csn_log *log;
    caisson_error *err;
} reader;

/* A file of the directory; *ret_has false if it is not there. */
static caisson_status read_file(reader *r, const char *name, uint64_t max, csn_buf *ret,
                                bool *ret_has) {
    csn_buf path = CSN_BUF_INIT(1 << 16);
    *ret = (csn_buf){0};
    caisson_status status = csn_buf_printf(&path, r->err, "%s/%s", r->dir, name);
    *ret_has = status == CAISSON_OK && r->fs->ops->exists(r->fs, path.ptr);
    if (*ret_has) {
        status = csn_fs_read_all(r->fs, path.ptr, max, ret, r->err);
    }
    csn_buf_free(&path);
    return status;
}

/* A JSON file of the directory; *ret NULL if it is not there. */
static caisson_status read_json(reader *r, const char *name, csn_json **ret) {
    csn_buf text;
    bool has;
    *ret = NULL;
    CSN_TRY(read_file(r, name, MAX_CONFIG_BYTES, &text, &has));
    caisson_status status = CAISSON_OK;
    if (has) {
        status = csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, ret, r->err);
        if (status != CAISSON_OK) {
            csn_error_file(r->err, name);
        }
    }
    csn_buf_free(&text);
    return status;
}

/* Pre-quantised checkpoints: FP8 in blocks of 128 x 128 is understood, the rest is refused by the
 * name of its scheme (U30). */
static caisson_status read_quantization(reader *r, csn_config *c) {
    const csn_jval *q = csn_config_get(c, "quantization_config");
    if (q == NULL) {
        return CAISSON_OK;
    }
    csn_str method = CSN_STR("(no quant_method)"), fmt = CSN_STR("e4m3");
    uint64_t size[2] = {0, 0};
    (void)csn_jval_str(csn_jval_get(q, "quant_method"), &method);
    (void)csn_jval_str(csn_jval_get(q, "fmt"), &fmt);
    for (csn_jiter it = csn_jval_iter(csn_jval_get(q, "weight_block_size"));
         csn_jiter_next(&it) && it.index < 2;) {
        (void)csn_jval_u64(it.value, &size[it.index]);
    }
    if (!csn_str_is(method, "fp8") || !csn_str_is(fmt, "e4m3") || size[0] != 128 ||
        size[1] != 128) {
        return CSN_FAIL(r->err, CAISSON_E_UNSUPPORTED, .section = "config.json",
                        .tensor = CSN_STR("quantization_config"),
                        .what = "pre-quantised scheme is not supported; convert the original",
                        CSN_TEXTS(CSN_STR("fp8 e4m3, weight_block_size [128, 128]"), method));
    }
    r->s->has_f8_blocks = true;
    return CAISSON_OK;
}

/* An id or a list of ids, or nothing. One that is passed over would let the model never end. */
static caisson_status add_eos_of(reader *r, const char *file, const csn_jval *v) {
    csn_jkind kind = csn_jval_kind(v);
    int64_t id;
    if (kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL) {
        return CAISSON_OK;
    }
    if (csn_jval_i64(v, &id)) {
        return csn_source_add_eos(r->s, id, r->err);
    }
    bool is_right = kind == CSN_JSON_ARRAY;
    for (csn_jiter it = csn_jval_iter(v); is_right && csn_jiter_next(&it);) {
        is_right = csn_jval_i64(it.value, &id);
        if (is_right) {
            CSN_TRY(csn_source_add_eos(r->s, id, r->err));
        }
    }
    return is_right ? CAISSON_OK
                    : CSN_FAIL(r->err, CAISSON_E_PARSE, .section = file,
                               .tensor = CSN_STR("eos_token_id"),
                               .what = "neither a token id nor a list of token ids");
}

static int32_t id_of(const csn_jval *v) {
    int64_t id;
    return csn_jval_i64(v, &id) && id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
}

/* An id of config.json; null and numbers below 0 mean that there is none. */
static caisson_status read_id(reader *r, const char *key, const csn_jval *v, int32_t *ret) {
    csn_jkind kind = csn_jval_kind(v);
    int64_t id;
    *ret = id_of(v);
    return kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL || csn_jval_i64(v, &id)
               ? CAISSON_OK
               : CSN_FAIL(r->err, CAISSON_E_PARSE, .section = "config.json",
                          .tensor = csn_str_from(key), .what = "not a token id");
}

static caisson_status read_arch(reader *r, const csn_jval *root) {
    csn_source *s = r->s;
    csn_config outer, c;
    csn_str whole = {0}, kind;
    CSN_TRY(csn_config_init(&outer, root, "config.json", &s->arena, r->err));
    /* A model with several towers keeps the language model's config inside. */
    const csn_jval *text = csn_jval_get(root, "text_config");
    bool is_nested = csn_jval_kind(text) == CSN_JSON_OBJECT;
    CSN_TRY(csn_config_str(&outer, "model_type", &whole, r->err));
    CSN_TRY(read_quantization(r, &outer));
    c = outer;
    if (is_nested) {
        CSN_TRY(csn_config_init(&c, text, "config.json: text_config", &s->arena, r->err));
        CSN_TRY(read_quantization(r, &c));
    }
    kind = whole;
    CSN_TRY(csn_config_str(&c, "model_type", &kind, r->err));
    caisson_error ignored;
    const csn_family *outer_family;
    if (csn_family_find(whole, false, &outer_family, &ignored) == CAISSON_OK &&
        outer_family->is_named_outside) {
        kind = whole;
    }
    CSN_TRY(csn_family_find(kind, false, &s->family, r->err));
    CSN_TRY(csn_arena_str(&s->arena, kind, &s->arch.arch_name, r->err));
    CSN_TRY(s->family->read_config(&c, &s->arena, &s->arch, r->err));
    s->attention_bias = c.attention_bias;
    s->mlp_bias = c.mlp_bias;
    s->output_gate = c.output_gate;
    if (is_nested) {
        if (s->arch.final_logit_softcapping != 0) {
            return csn_config_refuse(&c, "final_logit_softcapping",
                                     "transformers does not apply it in a model of several "
                                     "towers, others do",
                                     r->err);
        }
        CSN_TRY(
            csn_config_bool(&outer, "tie_word_embeddings", &s->arch.tie_word_embeddings, r->err));
        CSN_INFO(r->log, "the language model alone is converted; other towers are left out");
    }
    return csn_config_end(&c, true, r->err);
}

caisson_status csn_source_read_config(csn_source *s, const csn_jval *root, const csn_log *log,
                                      caisson_error *err) {
    reader r = {.s = s, .log = log, .err = err};
    return read_arch(&r, root);
}

/* True if both hold the same numbers, byte for byte. */
static caisson_status is_same(reader *r, const csn_tensor *a, const csn_tensor *b, bool *ret) {
    enum { CHUNK = 1 << 16 };
    csn_source *s = r->s;
    uint8_t *x, *y;
    *ret = a->dtype == b->dtype && csn_shape_eq(&a->shape, &b->shape) && a->nbytes == b->nbytes;
    CSN_TRY(CSN_ARENA_NEW(&s->arena, CHUNK, &x, r->err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, CHUNK, &y, r->err));
    for (uint64_t at = 0; *ret && at < a->nbytes; at += CHUNK) {
        size_t n = a->nbytes - at < CHUNK ? (size_t)(a->nbytes - at) : CHUNK;
        CSN_TRY(csn_file_read_at(s->files[a->i_file], a->offset + at, x, n, r->err));
        CSN_TRY(csn_file_read_at(s->files[b->i_file], b->offset + at, y, n, r->err));
        *ret = memcmp(x, y, n) == 0;
    }
    return CAISSON_OK;
}

/* A head of its own is used, whatever tie_word_embeddings says: transformers does so too, and the
 * embedding in its place would be another model. */
static caisson_status untie_other_head(reader *r) {
    csn_source *s = r->s;
    const csn_tensor *head = NULL, *embed = NULL;
    for (uint32_t i = 0; s->arch.tie_word_embeddings && i < s->dir->n; i++) {
        const csn_tensor *t = &s->dir->tensors[i];
        if (csn_str_find(t->name, CSN_STR("layers."), 0) != SIZE_MAX) {
            continue; /* of layers that predict further tokens */
        }
        head = csn_str_ends(t->name, CSN_STR("lm_head.weight")) ? t : head;
        embed = csn_str_ends(t->name, CSN_STR("embed_tokens.weight")) ? t : embed;
    }
    if (head == NULL || embed == NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(is_same(r, head, embed, &s->arch.tie_word_embeddings));
    if (!s->arch.tie_word_embeddings) {
        CSN_WARN(r->log,
                 "%.*s is another matrix than the embedding, though tie_word_embeddings is true: "
                 "it is kept",
                 CSN_STR_ARGS(head->name));
    }
    return CAISSON_OK;
}

/* chat_template of a file: a string, or a list of named ones, of which "default" counts and the
 * others are told. One that is passed over would be replaced by ChatML. */
static caisson_status template_of(reader *r, const char *file, const csn_jval *root, csn_str *ret) {
    const csn_jval *v = csn_jval_get(root, "chat_template");
    csn_jkind kind = csn_jval_kind(v);
    csn_str name;
    *ret = (csn_str){0};
    bool is_right = kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL || csn_jval_str(v, ret) ||
                    (kind == CSN_JSON_ARRAY && csn_jval_len(v) == 0);
    for (csn_jiter it = csn_jval_iter(v); kind == CSN_JSON_ARRAY && csn_jiter_next(&it);) {
        bool has_name = csn_jval_str(csn_jval_get(it.value, "name"), &name);
        if (has_name && csn_str_is(name, "default")) {
            is_right = csn_jval_str(csn_jval_get(it.value, "template"), ret);
        } else if (has_name) {
            csn_source_tell_template(name, r->log);
        }
    }
    return is_right ? CAISSON_OK
                    : CSN_FAIL(r->err, CAISSON_E_PARSE, .section = file,
                               .tensor = CSN_STR("chat_template"),
                               .what = "neither a template nor a list of templates with one that "
                                       "is named default");
}

static bool is_blank(csn_str s) {
    for (size_t i = 0; i < s.len; i++) {
        if (strchr(" \t\r\n", s.ptr[i]) == NULL) {
            return false;
        }
    }
    return true;
}

/* A special token is a string or an object with `content`. */
static csn_str token_text(const csn_jval *v) {
    csn_str s = {0};
    if (!csn_jval_str(v, &s)) {
        (void)csn_jval_str(csn_jval_get(v, "content"), &s);
    }
    return s;
}

/* Id of an added token by its text, -1 if it is none. */
static int64_t added_token(const csn_jval *tokenizer, csn_str text) {
    for (csn_jiter it = csn_jval_iter(csn_jval_get(tokenizer, "added_tokens"));
         csn_jiter_next(&it);) {
        csn_str content;
        if (csn_jval_str(csn_jval_get(it.value, "content"), &content) &&
            csn_str_eq(content, text)) {
            return id_of(csn_jval_get(it.value, "id"));
        }
    }
    return -1;
}

/* What each name stands for, as transformers reads it: tokenizer_config.json, under an older
 * special_tokens_map.json where the former lists no added tokens itself. */
static caisson_status name_special_tokens(reader *r, const csn_jval *config) {
    csn_source *s = r->s;
    csn_json *older = NULL;
    if (csn_jval_get(config, "added_tokens_decoder") == NULL) {
        CSN_TRY(read_json(r, "special_tokens_map.json", &older));
    }
    s->has_special_tokens = config != NULL || older != NULL;
    caisson_status status = CAISSON_OK;
    for (int i = 0; i < CSN_CMF_N_SPECIAL_TOKENS && status == CAISSON_OK; i++) {
        const csn_jval *v = csn_jval_get(csn_json_root(older), csn_cmf_special_tokens[i]);
        csn_str text = token_text(v != NULL ? v : csn_jval_get(config, csn_cmf_special_tokens[i]));
        status = text.len == 0 ? CAISSON_OK
                               : csn_arena_str(&s->arena, text, &s->special_tokens[i], r->err);
    }
    csn_json_free(older);
    return status;
}

static bool is_word(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Does the template spell this name? */
static bool spells(csn_str text, csn_str name) {
    for (size_t at = csn_str_find(text, name, 0); at != SIZE_MAX;
         at = csn_str_find(text, name, at + 1)) {
        size_t end = at + name.len;
        if ((at == 0 || !is_word(text.ptr[at - 1])) &&
            (end == text.len || !is_word(text.ptr[end]))) {
            return true;
        }
    }
    return false;
}

/* transformers hands a template every `..._token` of tokenizer_config.json and what
 * `extra_special_tokens` names; a container has room for the common seven. */
static caisson_status refuse_own_tokens(reader *r, const csn_jval *tokens, csn_str suffix) {
    for (csn_jiter it = csn_jval_iter(tokens); csn_jiter_next(&it);) {
        bool is_common = it.key.len == 0 || !csn_str_ends(it.key, suffix);
        for (int i = 0; i < CSN_CMF_N_SPECIAL_TOKENS; i++) {
            is_common = is_common || csn_str_is(it.key, csn_cmf_special_tokens[i]);
        }
        csn_str text = token_text(it.value);
        if (!is_common && text.len > 0 && spells(r->s->chat_template, it.key)) {
            return CSN_FAIL(r->err, CAISSON_E_UNSUPPORTED, .section = "tokenizer_config.json",
                            .tensor = it.key, .got = text,
                            .what = "the chat template uses a special token that only this model "
                                    "names");
        }
    }
    return CAISSON_OK;
}

/* Ids of named tokens: the eos token (chat models end a turn with it) and, where config.json is
 * silent, bos and pad. */
static caisson_status read_special_tokens(reader *r, const csn_jval *config) {
    enum { BOS, EOS, PAD = 4 }; /* in csn_cmf_special_tokens */
    csn_source *s = r->s;
    csn_json *doc = NULL;
    CSN_TRY(name_special_tokens(r, config));
    CSN_TRY(refuse_own_tokens(r, config, CSN_STR("_token")));
    const csn_jval *extra = csn_jval_get(config, "extra_special_tokens");
    if (csn_jval_kind(extra) == CSN_JSON_OBJECT) {
        CSN_TRY(refuse_own_tokens(r, extra, CSN_STR("")));
    }
    csn_str eos = s->special_tokens[EOS];
    csn_str bos = s->special_tokens[BOS];
    csn_str pad = s->special_tokens[PAD];
    if (s->tokenizer.len == 0 || eos.len + bos.len + pad.len == 0) {
        return CAISSON_OK;
    }
    caisson_status status = csn_json_parse(csn_buf_view(&s->tokenizer), 0, &doc, r->err);
    if (status != CAISSON_OK) {
        csn_error_file(r->err, "tokenizer.json");
        return status;
    }
    const csn_jval *root = csn_json_root(doc);
    for (int i = 0; i < CSN_CMF_N_SPECIAL_TOKENS; i++) {
        csn_str name = s->special_tokens[i];
        if (name.len > 0 && added_token(root, name) < 0) {
            CSN_WARN(r->log,
                     "%s is %.*s, which is no token of its own in tokenizer.json: text that spells "
                     "it is ordinary text",
                     csn_cmf_special_tokens[i], CSN_STR_ARGS(name));
        }
    }
    int64_t eos_id = eos.len > 0 ? added_token(root, eos) : -1;
    if (eos_id < s->arch.vocab_size) { /* tokens may be added that the weights do not have */
        status = csn_source_add_eos(s, eos_id, r->err);
    }
    if (s->bos_token_id < 0 && bos.len > 0) {
        s->bos_token_id = (int32_t)added_token(root, bos);
    }
    if (s->pad_token_id < 0 && pad.len > 0) {
        s->pad_token_id = (int32_t)added_token(root, pad);
    }
    csn_json_free(doc);
    return status;
}

/* Of config.json; where that is silent, of the language model's part of it. */
static const csn_jval *told(const csn_jval *root, const char *key) {
    const csn_jval *v = csn_jval_get(root, key);
    return csn_jval_kind(v) != CSN_JSON_ABSENT && csn_jval_kind(v) != CSN_JSON_NULL
               ? v
               : csn_jval_get(csn_jval_get(root, "text_config"), key);
}

/* Of the files that may hold a chat template the first that does; the last is a processor's. */
static caisson_status read_template(reader *r, const csn_jval *config) {
    static const char processors[] = "chat_template.json";
    csn_json *last = NULL;
    csn_buf jinja = {0}, tools = {0};
    bool has_jinja, has_tools = false;
    caisson_status status =
        read_file(r, "chat_template.jinja", MAX_CONFIG_BYTES, &jinja, &has_jinja);
    csn_str text = csn_buf_view(&jinja);
    if (status == CAISSON_OK && is_blank(text)) {
        status = template_of(r, "tokenizer_config.json", config, &text);
    }
    if (status == CAISSON_OK && is_blank(text)) {
        status = read_json(r, processors, &last);
    }
    if (status == CAISSON_OK && last != NULL) {
        status = template_of(r, processors, csn_json_root(last), &text);
    }
    if (status == CAISSON_OK && !is_blank(text)) {
        status = csn_arena_str(&r->s->arena, text, &r->s->chat_template, r->err);
    }
    if (status == CAISSON_OK) {
        status = read_file(r, "additional_chat_templates/tool_use.jinja", MAX_CONFIG_BYTES, &tools,
                           &has_tools);
    }
    if (status == CAISSON_OK && has_tools) {
        csn_source_tell_template(CSN_STR("tool_use"), r->log);
    }
    csn_buf_free(&jinja);
    csn_buf_free(&tools);
    csn_json_free(last);
    return status;
}

static caisson_status read_chat(reader *r, const csn_jval *root) {
    csn_source *s = r->s;
    csn_json *generation = NULL, *config = NULL;
    caisson_status status = read_json(r, "generation_config.json", &generation);
    if (status == CAISSON_OK) {
        status = read_json(r, "tokenizer_config.json", &config);
    }
    if (status == CAISSON_OK) {
        const csn_jval *eos = csn_jval_get(csn_json_root(generation), "eos_token_id");
        bool is_silent = eos == NULL || csn_jval_kind(eos) == CSN_JSON_NULL;
        status = is_silent ? add_eos_of(r, "config.json", told(root, "eos_token_id"))
                           : add_eos_of(r, "generation_config.json", eos);
    }
    if (status == CAISSON_OK) {
        status = read_id(r, "bos_token_id", told(root, "bos_token_id"), &s->bos_token_id);
    }
    if (status == CAISSON_OK) {
        status = read_id(r, "pad_token_id", told(root, "pad_token_id"), &s->pad_token_id);
    }
    if (status == CAISSON_OK) {
        status = read_template(r, csn_json_root(config));
    }
    if (status == CAISSON_OK) {
        status = read_special_tokens(r, csn_json_root(config));
    }
    csn_json_free(config);
    csn_json_free(generation);
    return status;
}

caisson_status csn_source_read_hf(csn_source *s, csn_fs *fs, const char *dir, const csn_log *log,
                                  caisson_error *err) {
    reader r = {.s = s, .fs = fs, .dir = dir, .log = log, .err = err};
    bool has_tokenizer;
    CSN_TRY(read_json(&r, "config.json", &s->config));
    if (s->config == NULL) {
        return CSN_FAIL(err, CAISSON_E_MAGIC, .file = dir,
                        .what = "directory without config.json: not a Hugging Face model");
    }
    const csn_jval *root = csn_json_root(s->config);
    CSN_TRY(read_arch(&r, root));
    CSN_TRY(csn_safetensors_open_dir(fs, dir, &s->weights, err));
    s->dir = &s->weights->dir;
    s->files = s->weights->files;
    s->n_files = s->weights->n_files;
    CSN_TRY(untie_other_head(&r));
    for (uint32_t i = 0; i < s->weights->n_stray; i++) {
        CSN_WARN(log, "%.*s is not part of the model and is not read",
                 CSN_STR_ARGS(s->weights->stray_files[i]));
    }
    CSN_TRY(read_file(&r, "tokenizer.json", CAISSON_MAX_TOKENIZER_BYTES, &s->tokenizer,
                      &has_tokenizer));
    if (!has_tokenizer) {
        CSN_WARN(log, "%s holds no tokenizer.json: the file will need one beside it", dir);
    }
    CSN_TRY(read_chat(&r, root));
    (void)csn_jval_str(csn_jval_get(root, "_name_or_path"), &s->name);
    if (s->name.len == 0) {
        CSN_TRY(csn_arena_str(&s->arena, csn_source_last_name(dir), &s->name, err));
    }
    return CAISSON_OK;
}
