/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.ggml.* -> tokenizer.json. What GGUF leaves out (patterns, normalisers, rstrip of
 * Phi-3's control tokens) is filled in as the original models have it. */
#include "convert/gguf_tokenizer.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/utf8.h"
#include "caisson/limits.h"
#include "convert/gguf_pre.h"
#include "convert/spm_vocab.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };
#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */

typedef struct maker {
    const csn_gguf *g;
    csn_arena arena;
    csn_spm_vocab vocab;
    uint8_t *type;    /* [vocab.n] */
    uint32_t n_model; /* tokens of the model's own vocabulary; the rest are added tokens only */
    bool is_gemma, is_phi3, add_bos, add_eos, add_prefix;
    int64_t bos, eos, unknown; /* -1 = none */
    csn_jw w;
    caisson_error *err;
} maker;

static const csn_gguf_pair *meta(const maker *m, const char *key) {
    return csn_gguf_find(m->g, csn_str_from(key));
}

static caisson_status fail_meta(maker *m, const char *key, const char *what) {
    return CSN_FAIL(m->err, CAISSON_E_PARSE, .section = "metadata", .tensor = csn_str_from(key),
                    .what = what);
}

/* ---- reading ---- */

/* A token id of the metadata; -1 when absent or out of range (some writers use 2^32 - 1). */
static int64_t token_id(const maker *m, const char *key) {
    int64_t id;
    return csn_gguf_i64(meta(m, key), &id) && id >= 0 && id < m->vocab.n ? id : -1;
}

static void read_flag(const maker *m, const char *key, bool *ret) {
    (void)csn_gguf_bool(meta(m, key), ret);
}

/* Gemma's runs of spaces are written as spaces, its vocabulary means U+2581. */
static caisson_status respell(maker *m, csn_str *text) {
    static const csn_str mark = CSN_STR(SPACE_MARK);
    for (size_t i = 0; i < text->len; i++) {
        if (text->ptr[i] != ' ') {
            return CAISSON_OK;
        }
    }
    char *p;
    size_t n = text->len;
    if (n < 2) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_arena_alloc(&m->arena, n, mark.len, (void **)&p, m->err));
    for (size_t i = 0; i < n; i++) {
        memcpy(p + i * mark.len, mark.ptr, mark.len);
    }
    *text = csn_str_make(p, n * mark.len);
    return CAISSON_OK;
}

static caisson_status read_vocab(maker *m) {
    const csn_gguf_pair *tokens = meta(m, "tokenizer.ggml.tokens");
    const csn_gguf_pair *types = meta(m, "tokenizer.ggml.token_type");
    csn_str *text;
    if (tokens == NULL) {
        return fail_meta(m, "tokenizer.ggml.tokens", "key is missing");
    }
    if (tokens->n == 0 || tokens->n > CAISSON_MAX_TOKENS) {
        return CSN_FAIL(m->err, CAISSON_E_LIMIT, .section = "metadata", .tensor = tokens->key,
                        .what = "no tokens, or more than the limit",
                        CSN_VALUES(CAISSON_MAX_TOKENS, tokens->n));
    }
    CSN_TRY(csn_gguf_strings(tokens, &m->arena, &text, m->err));
    for (uint64_t i = 0; m->is_gemma && i < tokens->n; i++) {
        CSN_TRY(respell(m, &text[i]));
    }
    CSN_TRY(csn_spm_vocab_init(&m->vocab, text, (uint32_t)tokens->n, &m->arena, m->err));
    CSN_TRY(CSN_ARENA_NEW(&m->arena, m->vocab.n, &m->type, m->err));
    if (types != NULL && types->n != tokens->n) {
        return fail_meta(m, "tokenizer.ggml.token_type", "not one type a token");
    }
    for (uint32_t i = 0; i < m->vocab.n; i++) {
        int64_t t = NORMAL;
        if (types != NULL && (!csn_gguf_item_i64(types, i, &t) || t < 0 || t > BYTE)) {
            return fail_meta(m, "tokenizer.ggml.token_type", "a type is not in 0..6");
        }
        m->type[i] = (uint8_t)t;
    }
    return CAISSON_OK;
}

static bool is_added(const maker *m, uint32_t id) {
    uint8_t t = m->type[id];
    return t == CONTROL || t == USER_DEFINED || t == UNKNOWN || id == m->bos || id == m->eos;
}

/* ---- writing ---- */

static void typed(maker *m, const char *type) { /* opens an object */
    csn_jw_object(&m->w);
    csn_jw_put_str(&m->w, "type", csn_str_from(type));
}

static void write_added_token(maker *m, uint32_t id) {
    csn_str text = m->vocab.text[id];
    bool special = m->type[id] != USER_DEFINED || id == m->bos || id == m->eos;
    /* Phi-3's tokenizer.json lets its control tokens swallow the blanks behind them; GGUF has no
     * place for that. */
    bool plain =
        csn_str_is(text, "<unk>") || csn_str_is(text, "<s>") || csn_str_is(text, "<|endoftext|>");
    csn_jw_object(&m->w);
    csn_jw_put_u64(&m->w, "id", id);
    csn_jw_put_str(&m->w, "content", text);
    csn_jw_put_bool(&m->w, "single_word", false);
    csn_jw_put_bool(&m->w, "lstrip", false);
    csn_jw_put_bool(&m->w, "rstrip", m->is_phi3 && special && !plain);
    csn_jw_put_bool(&m->w, "normalized", false);
    csn_jw_put_bool(&m->w, "special", special);
    csn_jw_object_end(&m->w);
}

static void write_added_tokens(maker *m) {
    csn_jw_key(&m->w, CSN_STR("added_tokens"));
    csn_jw_array(&m->w);
    for (uint32_t i = 0; i < m->vocab.n; i++) {
        if (is_added(m, i)) {
            write_added_token(m, i);
        }
    }
    csn_jw_array_end(&m->w);
}

static void write_special_piece(maker *m, int64_t id, unsigned type_id) {
    csn_jw_object(&m->w);
    csn_jw_key(&m->w, CSN_STR("SpecialToken"));
    csn_jw_object(&m->w);
    csn_jw_put_str(&m->w, "id", m->vocab.text[id]);
    csn_jw_put_u64(&m->w, "type_id", type_id);
    csn_jw_object_end(&m->w);
    csn_jw_object_end(&m->w);
}

static void write_sequence_piece(maker *m, const char *which, unsigned type_id) {
    csn_jw_object(&m->w);
    csn_jw_key(&m->w, CSN_STR("Sequence"));
    csn_jw_object(&m->w);
    csn_jw_put_str(&m->w, "id", csn_str_from(which));
    csn_jw_put_u64(&m->w, "type_id", type_id);
    csn_jw_object_end(&m->w);
    csn_jw_object_end(&m->w);
}

static void write_template(maker *m, int n) {
    csn_jw_array(&m->w);
    for (int i = 0; i < n; i++) {
        if (m->add_bos) {
            write_special_piece(m, m->bos, (unsigned)i);
        }
        write_sequence_piece(m, i == 0 ? "A" : "B", (unsigned)i);
        if (m->add_eos) {
            write_special_piece(m, m->eos, (unsigned)i);
        }
    }
    csn_jw_array_end(&m->w);
}

static void write_template_token(maker *m, int64_t id) {
    csn_str text = m->vocab.text[id];
    csn_jw_key(&m->w, text);
    csn_jw_object(&m->w);
    csn_jw_put_str(&m->w, "id", text);
    csn_jw_key(&m->w, CSN_STR("ids"));
    csn_jw_array(&m->w);
    csn_jw_u64(&m->w, (uint64_t)id);
    csn_jw_array_end(&m->w);
    csn_jw_key(&m->w, CSN_STR("tokens"));
    csn_jw_array(&m->w);
    csn_jw_str(&m->w, text);
    csn_jw_array_end(&m->w);
    csn_jw_object_end(&m->w);
}

static void write_post_processor(maker *m) {
    csn_jw_key(&m->w, CSN_STR("post_processor"));
    if (!m->add_bos && !m->add_eos) {
        csn_jw_null(&m->w);
        return;
    }
    typed(m, "TemplateProcessing");
    csn_jw_key(&m->w, CSN_STR("single"));
    write_template(m, 1);
    csn_jw_key(&m->w, CSN_STR("pair"));
    write_template(m, 2);
    csn_jw_key(&m->w, CSN_STR("special_tokens"));
    csn_jw_object(&m->w);
    if (m->add_bos) {
        write_template_token(m, m->bos);
    }
    if (m->add_eos && !(m->add_bos && m->bos == m->eos)) {
        write_template_token(m, m->eos);
    }
    csn_jw_object_end(&m->w);
    csn_jw_object_end(&m->w);
}

static void write_byte_level(maker *m, bool use_regex) {
    typed(m, "ByteLevel");
    csn_jw_put_bool(&m->w, "add_prefix_space", false);
    csn_jw_put_bool(&m->w, "trim_offsets", false);
    csn_jw_put_bool(&m->w, "use_regex", use_regex);
    csn_jw_object_end(&m->w);
}

static void write_string_pattern(maker *m, const char *kind, const char *pattern) {
    csn_jw_key(&m->w, CSN_STR("pattern"));
    csn_jw_object(&m->w);
    csn_jw_put_str(&m->w, kind, csn_str_from(pattern));
    csn_jw_object_end(&m->w);
}

static void write_bpe_cutting(maker *m, const csn_gguf_pre *pre) {
    csn_jw_key(&m->w, CSN_STR("normalizer"));
    if (pre->nfc) {
        typed(m, "NFC");
        csn_jw_object_end(&m->w);
    } else {
        csn_jw_null(&m->w);
    }
    csn_jw_key(&m->w, CSN_STR("pre_tokenizer"));
    typed(m, "Sequence");
    csn_jw_key(&m->w, CSN_STR("pretokenizers"));
    csn_jw_array(&m->w);
    if (pre->digits) {
        typed(m, "Digits");
        csn_jw_put_bool(&m->w, "individual_digits", true);
        csn_jw_object_end(&m->w);
    }
    for (size_t i = 0; pre->splits != NULL && pre->splits[i] != NULL; i++) {
        typed(m, "Split");
        write_string_pattern(m, "Regex", pre->splits[i]);
        csn_jw_put_str(&m->w, "behavior", CSN_STR("Isolated"));
        csn_jw_put_bool(&m->w, "invert", false);
        csn_jw_object_end(&m->w);
    }
    write_byte_level(m, pre->byte_level_regex);
    csn_jw_array_end(&m->w);
    csn_jw_object_end(&m->w);
}

static void write_spm_cutting(maker *m) {
    csn_jw_key(&m->w, CSN_STR("normalizer"));
    if (m->add_prefix) {
        typed(m, "Sequence");
        csn_jw_key(&m->w, CSN_STR("normalizers"));
        csn_jw_array(&m->w);
        typed(m, "Prepend");
        csn_jw_put_str(&m->w, "prepend", CSN_STR(SPACE_MARK));
        csn_jw_object_end(&m->w);
    }
    typed(m, "Replace");
    write_string_pattern(m, "String", " ");
    csn_jw_put_str(&m->w, "content", CSN_STR(SPACE_MARK));
    csn_jw_object_end(&m->w);
    if (m->add_prefix) {
        csn_jw_array_end(&m->w);
        csn_jw_object_end(&m->w);
    }
    csn_jw_put_null(&m->w, "pre_tokenizer");
}

static void write_spm_decoder(maker *m) {
    csn_jw_key(&m->w, CSN_STR("decoder"));
    typed(m, "Sequence");
    csn_jw_key(&m->w, CSN_STR("decoders"));
    csn_jw_array(&m->w);
    typed(m, "Replace");
    write_string_pattern(m, "String", SPACE_MARK);
    csn_jw_put_str(&m->w, "content", CSN_STR(" "));
    csn_jw_object_end(&m->w);
    typed(m, "ByteFallback");
    csn_jw_object_end(&m->w);
    typed(m, "Fuse");
    csn_jw_object_end(&m->w);
    if (m->add_prefix) {
        typed(m, "Strip");
        csn_jw_put_str(&m->w, "content", CSN_STR(" "));
        csn_jw_put_u64(&m->w, "start", 1);
        csn_jw_put_u64(&m->w, "stop", 0);
        csn_jw_object_end(&m->w);
    }
    csn_jw_array_end(&m->w);
    csn_jw_object_end(&m->w);
}

static void write_merge(maker *m, csn_str left, csn_str right) {
    csn_jw_array(&m->w);
    csn_jw_str(&m->w, left);
    csn_jw_str(&m->w, right);
    csn_jw_array_end(&m->w);
}

static void write_model_head(maker *m, bool is_spm, bool ignore_merges) {
    csn_jw_key(&m->w, CSN_STR("model"));
    typed(m, "BPE");
    csn_jw_put_null(&m->w, "dropout");
    if (is_spm && m->unknown >= 0) {
        csn_jw_put_str(&m->w, "unk_token", m->vocab.text[m->unknown]);
    } else {
        csn_jw_put_null(&m->w, "unk_token");
    }
    csn_jw_put_null(&m->w, "continuing_subword_prefix");
    csn_jw_put_null(&m->w, "end_of_word_suffix");
    csn_jw_put_bool(&m->w, "fuse_unk", is_spm);
    csn_jw_put_bool(&m->w, "byte_fallback", is_spm);
    csn_jw_put_bool(&m->w, "ignore_merges", ignore_merges);
    csn_jw_key(&m->w, CSN_STR("vocab"));
    csn_jw_object(&m->w);
    for (uint32_t i = 0; i < m->n_model; i++) {
        csn_jw_key(&m->w, m->vocab.text[i]);
        csn_jw_u64(&m->w, i);
    }
    csn_jw_object_end(&m->w);
    csn_jw_key(&m->w, CSN_STR("merges"));
    csn_jw_array(&m->w);
}

static void write_model_tail(maker *m) {
    csn_jw_array_end(&m->w);
    csn_jw_object_end(&m->w);
}

/* ---- the two kinds ---- */

static caisson_status write_bpe(maker *m, const csn_gguf_pre *pre) {
    const csn_gguf_pair *pair = meta(m, "tokenizer.ggml.merges");
    csn_str *merges;
    if (pair == NULL) {
        return fail_meta(m, "tokenizer.ggml.merges", "key is missing");
    }
    CSN_TRY(csn_gguf_strings(pair, &m->arena, &merges, m->err));
    write_bpe_cutting(m, pre);
    write_post_processor(m);
    csn_jw_key(&m->w, CSN_STR("decoder"));
    write_byte_level(m, true);
    write_model_head(m, false, pre->ignore_merges);
    for (uint64_t i = 0; i < pair->n; i++) {
        /* "left right"; byte-level tokens hold no blank, so the first one that can end a token is
         * the border. */
        size_t blank = csn_str_find(merges[i], CSN_STR(" "), 1);
        if (blank == SIZE_MAX || blank + 1 >= merges[i].len || !csn_utf8_valid(merges[i], NULL)) {
            return CSN_FAIL(m->err, CAISSON_E_PARSE, .section = "metadata", .tensor = pair->key,
                            .what = "a merge is not two tokens with a blank between",
                            .got = merges[i]);
        }
        write_merge(m, csn_str_make(merges[i].ptr, blank),
                    csn_str_make(merges[i].ptr + blank + 1, merges[i].len - blank - 1));
    }
    write_model_tail(m);
    return CAISSON_OK;
}

static caisson_status spm_ranks(maker *m, double **ret) {
    const csn_gguf_pair *scores = meta(m, "tokenizer.ggml.scores");
    CSN_TRY(CSN_ARENA_NEW(&m->arena, m->vocab.n, ret, m->err));
    if (scores == NULL || scores->n != m->vocab.n) {
        return fail_meta(m, "tokenizer.ggml.scores", "not one score a token");
    }
    for (uint32_t i = 0; i < m->vocab.n; i++) {
        double s;
        if (!csn_gguf_item_f64(scores, i, &s) || s != s) {
            return fail_meta(m, "tokenizer.ggml.scores", "a score is not a number");
        }
        /* Gemma's own user-defined tokens (runs of blanks, tags) score 0 in the original; GGUF
         * writers lower them to -1000. */
        (*ret)[i] = m->is_gemma && m->type[i] == USER_DEFINED ? 0.0 : -s;
    }
    return CAISSON_OK;
}

static caisson_status write_spm(maker *m) {
    double *rank;
    csn_spm_vocab_merge *merges = NULL;
    size_t n = 0;
    CSN_TRY(spm_ranks(m, &rank));
    write_spm_cutting(m);
    write_post_processor(m);
    write_spm_decoder(m);
    write_model_head(m, true, false);
    CSN_TRY(csn_spm_vocab_merges(&m->vocab, rank, &merges, &n, m->err));
    for (size_t i = 0; i < n; i++) {
        csn_str t = m->vocab.text[merges[i].id];
        write_merge(m, csn_str_make(t.ptr, merges[i].n_left),
                    csn_str_make(t.ptr + merges[i].n_left, t.len - merges[i].n_left));
    }
    csn_free(merges);
    write_model_tail(m);
    return CAISSON_OK;
}

/* Added tokens at the end of the vocabulary are not part of the model, as in the original files;
 * those in between are, so that their ids stay what they are. Unused ones at the end go. */
static void trim_model(maker *m, bool is_spm) {
    m->n_model = m->vocab.n;
    while (!is_spm && m->n_model > 0 &&
           (is_added(m, m->n_model - 1) || m->type[m->n_model - 1] == UNUSED)) {
        m->n_model--;
    }
}

static caisson_status write_tokenizer(maker *m, csn_str model) {
    const csn_gguf_pre *pre = NULL;
    bool is_spm = csn_str_is(model, "llama");
    csn_str name = {0};
    if (!is_spm && !csn_str_is(model, "gpt2")) {
        return CSN_FAIL(m->err, CAISSON_E_UNSUPPORTED, .section = "metadata",
                        .tensor = CSN_STR("tokenizer.ggml.model"),
                        .what = "kind of tokenizer is not supported",
                        CSN_TEXTS(CSN_STR("gpt2 or llama"), model));
    }
    (void)csn_gguf_str(meta(m, "tokenizer.ggml.pre"), &name);
    if (!is_spm) {
        pre = csn_gguf_pre_find(name);
        if (pre == NULL) {
            return CSN_FAIL(m->err, CAISSON_E_UNSUPPORTED, .section = "metadata",
                            .tensor = CSN_STR("tokenizer.ggml.pre"),
                            .what = "how this tokenizer cuts text is not known", .got = name);
        }
    }
    CSN_TRY(read_vocab(m));
    m->bos = token_id(m, "tokenizer.ggml.bos_token_id");
    m->eos = token_id(m, "tokenizer.ggml.eos_token_id");
    m->unknown = token_id(m, "tokenizer.ggml.unknown_token_id");
    m->add_bos = is_spm || pre->add_bos;
    m->add_prefix = is_spm;
    read_flag(m, "tokenizer.ggml.add_bos_token", &m->add_bos);
    read_flag(m, "tokenizer.ggml.add_eos_token", &m->add_eos);
    read_flag(m, "tokenizer.ggml.add_space_prefix", &m->add_prefix);
    m->add_prefix = m->add_prefix && is_spm;
    m->add_bos = m->add_bos && m->bos >= 0;
    m->add_eos = m->add_eos && m->eos >= 0;
    trim_model(m, is_spm);
    csn_jw_object(&m->w);
    csn_jw_put_str(&m->w, "version", CSN_STR("1.0"));
    csn_jw_put_null(&m->w, "truncation");
    csn_jw_put_null(&m->w, "padding");
    write_added_tokens(m);
    CSN_TRY(is_spm ? write_spm(m) : write_bpe(m, pre));
    csn_jw_object_end(&m->w);
    return csn_jw_end(&m->w);
}

caisson_status csn_gguf_tokenizer(const csn_gguf *g, csn_buf *out, caisson_error *err) {
    csn_str model, arch = {0};
    if (!csn_gguf_str(csn_gguf_find(g, CSN_STR("tokenizer.ggml.model")), &model) ||
        csn_str_is(model, "none")) {
        return CAISSON_OK;
    }
    maker m = {.g = g, .bos = -1, .eos = -1, .unknown = -1, .err = err};
    (void)csn_gguf_str(csn_gguf_find(g, CSN_STR("general.architecture")), &arch);
    m.is_gemma = csn_str_starts(arch, CSN_STR("gemma"));
    m.is_phi3 = csn_str_is(arch, "phi3") && csn_str_is(model, "llama");
    m.w = csn_jw_begin(out, err);
    caisson_status status = write_tokenizer(&m, model);
    csn_arena_done(&m.arena);
    return status;
}
