/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF model as a source: metadata through the family's recipe, tokenizer and chat bundle. */
#include "convert/source.h"

#include "caisson/limits.h"
#include "convert/gguf_tokenizer.h"

static int32_t token_id(const csn_gguf *g, const char *key) {
    int64_t id;
    return csn_gguf_i64(csn_gguf_find(g, csn_str_from(key)), &id) && id >= 0 && id < INT32_MAX
               ? (int32_t)id
               : -1;
}

static caisson_status fail_type(const csn_gguf_pair *p, const char *want, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata", .tensor = p->key,
                    .what = "value of another type or range",
                    CSN_TEXTS(csn_str_from(want), csn_str_from(csn_gguf_type_names[p->type])));
}

/* An id that says "none": some writers use all ones. */
static bool is_no_token(int64_t id) {
    return id == -1 || id == UINT32_MAX;
}

/* What is read here and in gguf_tokenizer.c has the type that is expected there: what has another
 * would be passed over, and the model would get other tokens or never end. */
static caisson_status check_metadata(const csn_gguf *g, caisson_error *err) {
    static const char *const texts[] = {"tokenizer.ggml.model", "tokenizer.ggml.pre",
                                        "tokenizer.chat_template"};
    static const char *const flags[] = {"tokenizer.ggml.add_bos_token",
                                        "tokenizer.ggml.add_eos_token",
                                        "tokenizer.ggml.add_space_prefix"};
    static const struct {
        const char *key;
        bool is_used; /* in what is computed: it must exist */
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", true},     {"tokenizer.ggml.eos_token_id", true},
        {"tokenizer.ggml.eot_token_id", true},     {"tokenizer.ggml.eom_token_id", true},
        {"tokenizer.ggml.unknown_token_id", true}, {"tokenizer.ggml.seperator_token_id", false},
        {"tokenizer.ggml.cls_token_id", false},    {"tokenizer.ggml.padding_token_id", false},
        {"tokenizer.ggml.mask_token_id", false},
    };
    const csn_gguf_pair *tokens = csn_gguf_find(g, CSN_STR("tokenizer.ggml.tokens"));
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const csn_gguf_pair *p = csn_gguf_find(g, csn_str_from(texts[i]));
        csn_str s;
        if (p != NULL && !csn_gguf_str(p, &s)) {
            return fail_type(p, "string", err);
        }
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        const csn_gguf_pair *p = csn_gguf_find(g, csn_str_from(flags[i]));
        bool b;
        if (p != NULL && !csn_gguf_bool(p, &b)) {
            return fail_type(p, "bool", err);
        }
    }
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        const csn_gguf_pair *p = csn_gguf_find(g, csn_str_from(ids[i].key));
        int64_t id;
        if (p != NULL && !csn_gguf_i64(p, &id)) {
            return fail_type(p, "a token id", err);
        }
        if (p != NULL && tokens != NULL && ids[i].is_used && !is_no_token(id) &&
            (id < 0 || (uint64_t)id >= tokens->n)) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata", .tensor = p->key,
                            .what = "token id outside the vocabulary", CSN_VALUES(tokens->n, id));
        }
    }
    return CAISSON_OK;
}

/* Control tokens that end a turn of a chat, whatever the file says about eos: files converted from
 * base models and older converters name one of them only. */
static bool ends_turn(csn_str text) {
    static const char *const names[] = {
        "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>", "<|end|>", "<|endoftext|>",
        "<end_of_turn>", "<|end_of_text|>", "<EOT>",      "<|EOT|>",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (csn_str_is(text, names[i])) {
            return true;
        }
    }
    return false;
}

/* The names that templates use for the ids of the metadata. */
static void name_special_tokens(csn_source *s, const csn_str *text, uint64_t n) {
    static const char *const keys[CSN_CMF_N_SPECIAL_TOKENS] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.seperator_token_id", /* GGUF's word */
        "tokenizer.ggml.padding_token_id", "tokenizer.ggml.cls_token_id",
        "tokenizer.ggml.mask_token_id",
    };
    s->has_special_tokens = true;
    for (int i = 0; i < CSN_CMF_N_SPECIAL_TOKENS; i++) {
        int32_t id = token_id(s->gguf, keys[i]);
        if (id >= 0 && (uint64_t)id < n) {
            s->special_tokens[i] = text[id];
        }
    }
}

static caisson_status read_eos(csn_source *s, caisson_error *err) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    enum { CONTROL = 3 };
    const csn_gguf *g = s->gguf;
    const csn_gguf_pair *tokens = csn_gguf_find(g, CSN_STR("tokenizer.ggml.tokens"));
    const csn_gguf_pair *types = csn_gguf_find(g, CSN_STR("tokenizer.ggml.token_type"));
    csn_str *text;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        CSN_TRY(csn_source_add_eos(s, token_id(g, keys[i]), err));
    }
    if (tokens == NULL || tokens->n > CAISSON_MAX_TOKENS) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_gguf_strings(tokens, &s->arena, &text, err));
    name_special_tokens(s, text, tokens->n);
    if (types == NULL) {
        return CAISSON_OK;
    }
    for (uint64_t i = 0; i < tokens->n; i++) {
        int64_t type;
        if (csn_gguf_item_i64(types, i, &type) && type == CONTROL && ends_turn(text[i])) {
            CSN_TRY(csn_source_add_eos(s, (int64_t)i, err));
        }
    }
    return CAISSON_OK;
}

static void tell_other_templates(const csn_gguf *g, const csn_log *log) {
    static const csn_str prefix = CSN_STR("tokenizer.chat_template.");
    for (uint32_t i = 0; i < g->n_pairs; i++) {
        csn_str key = g->pairs[i].key;
        if (csn_str_starts(key, prefix)) {
            csn_source_tell_template(csn_str_make(key.ptr + prefix.len, key.len - prefix.len), log);
        }
    }
}

caisson_status csn_source_read_gguf(csn_source *s, csn_fs *fs, const char *path, const csn_log *log,
                                    caisson_error *err) {
    csn_meta m;
    CSN_TRY(csn_gguf_open(fs, path, &s->gguf, err));
    s->dir = &s->gguf->dir;
    s->files = s->gguf->files;
    s->n_files = s->gguf->n_files;
    CSN_TRY(csn_meta_init(&m, s->gguf, &s->arena, err));
    CSN_TRY(csn_family_find(m.arch, true, &s->family, err));
    CSN_TRY(csn_arena_str(&s->arena, m.arch, &s->arch.arch_name, err));
    CSN_TRY(s->family->read_gguf(&m, &s->arena, &s->arch, err));
    CSN_TRY(csn_meta_end(&m, err));
    CSN_TRY(check_metadata(s->gguf, err));
    s->tokenizer = CSN_BUF_INIT(CAISSON_MAX_TOKENIZER_BYTES);
    CSN_TRY(csn_gguf_tokenizer(s->gguf, &s->tokenizer, err));
    if (s->tokenizer.len == 0) {
        CSN_WARN(log, "%s holds no tokenizer: the file will need a tokenizer.json beside it", path);
    }
    CSN_TRY(read_eos(s, err));
    s->bos_token_id = token_id(s->gguf, "tokenizer.ggml.bos_token_id");
    s->pad_token_id = token_id(s->gguf, "tokenizer.ggml.padding_token_id");
    (void)csn_gguf_str(csn_gguf_find(s->gguf, CSN_STR("tokenizer.chat_template")),
                       &s->chat_template);
    tell_other_templates(s->gguf, log);
    (void)csn_gguf_str(csn_gguf_find(s->gguf, CSN_STR("general.name")), &s->name);
    return CAISSON_OK;
}
