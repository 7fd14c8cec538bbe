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

static void key(maker *m, const char *k) {
    csn_jw_key(&m->w, csn_str_from(k));
}
static void put_str(maker *m, const char *k, csn_str v) {
    key(m, k);
    csn_jw_str(&m->w, v);
}
static void put_bool(maker *m, const char *k, bool v) {
    key(m, k);
    csn_jw_bool(&m->w, v);
}
static void put_null(maker *m, const char *k) {
    key(m, k);
    csn_jw_null(&m->w);
}
static void typed(maker *m, const char *type) { /* opens an object */
    csn_jw_object(&m->w);
    put_str(m, "type", csn_str_from(type));
}

static void write_added_token(maker *m, uint32_t id) {
    csn_str text = m->vocab.text[id];
    bool special = m->type[id] != USER_DEFINED || id == m->bos || id == m->eos;
    /* Phi-3's tokenizer.json lets its control tokens swallow the blanks behind them; GGUF has no
     * place for that. */
    bool plain =
        csn_str_is(text, "<unk>") || csn_str_is(text, "<s>") || csn_str_is(text, "<|endoftext|>");
    csn_jw_object(&m->w);
    key(m, "id");
    csn_jw_u64(&m->w, id);
    put_str(m, "content", text);
    put_bool(m, "single_word", false);
    put_bool(m, "lstrip", false);
    put_bool(m, "rstrip", m->is_phi3 && special && !plain);
    put_bool(m, "normalized", false);
    put_bool(m, "special", special);
    csn_jw_object_end(&m->w);
}

static void write_added_tokens(maker *m) {
    key(m, "added_tokens");
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
    key(m, "SpecialToken");
    csn_jw_object(&m->w);
    put_str(m, "id", m->vocab.text[id]);
    key(m, "type_id");
    csn_jw_u64(&m->w, type_id);
    csn_jw_object_end(&m->w);
    csn_jw_object_end(&m->w);
}

static void write_sequence_piece(maker *m, const char *which, unsigned type_id) {
    csn_jw_object(&m->w);
    key(m, "Sequence");
    csn_jw_object(&m->w);
    put_str(m, "id", csn_str_from(which));
    key(m, "type_id");
    csn_jw_u64(&m->w, type_id);
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
    put_str(m, "id", text);
    key(m, "ids");
    csn_jw_array(&m->w);
    csn_jw_u64(&m->w, (uint64_t)id);
    csn_jw_array_end(&m->w);
    key(m, "tokens");
    csn_jw_array(&m->w);
    csn_jw_str(&m->w, text);
    csn_jw_array_end(&m->w);
    csn_jw_object_end(&m->w);
}

static void write_post_processor(maker *m) {
    key(m, "post_processor");
    if (!m->add_bos && !m->add_eos) {
        csn_jw_null(&m->w);
        return;
    }
    typed(m, "TemplateProcessing");
    key(m, "single");
    write_template(m, 1);
    key(m, "pair");
    write_template(m, 2);
    key(m, "special_tokens");
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
    put_bool(m, "add_prefix_space", false);
    put_bool(m, "trim_offsets", false);
    put_bool(m, "use_regex", use_regex);
    csn_jw_object_end(&m->w);
}

static void write_string_pattern(maker *m, const char *kind, const char *pattern) {
    key(m, "pattern");
    csn_jw_object(&m->w);
    put_str(m, kind, csn_str_from(pattern));
    csn_jw_object_end(&m->w);
}

static void write_bpe_cutting(maker *m, const csn_gguf_pre *pre) {
    key(m, "normalizer");
    if (pre->nfc) {
        typed(m, "NFC");
        csn_jw_object_end(&m->w);
    } else {
        csn_jw_null(&m->w);
    }
    key(m, "pre_tokenizer");
    typed(m, "Sequence");
    key(m, "pretokenizers");
    csn_jw_array(&m->w);
    if (pre->digits) {
        typed(m, "Digits");
        put_bool(m, "individual_digits", true);
        csn_jw_object_end(&m->w);
    }
    for (size_t i = 0; pre->splits != NULL && pre->splits[i] != NULL; i++) {
        typed(m, "Split");
        write_string_pattern(m, "Regex", pre->splits[i]);
        put_str(m, "behavior", CSN_STR("Isolated"));
        put_bool(m, "invert", false);
        csn_jw_object_end(&m->w);
    }
    write_byte_level(m, pre->byte_level_regex);
    csn_jw_array_end(&m->w);
    csn_jw_object_end(&m->w);
}

static void write_spm_cutting(maker *m) {
    key(m, "normalizer");
    if (m->add_prefix) {
        typed(m, "Sequence");
        key(m, "normalizers");
        csn_jw_array(&m->w);
        typed(m, "Prepend");
        put_str(m, "prepend", CSN_STR(SPACE_MARK));
        csn_jw_object_end(&m->w);
    }
    typed(m, "Replace");
    write_string_pattern(m, "String", " ");
    put_str(m, "content", CSN_STR(SPACE_MARK));
    csn_jw_object_end(&m->w);
    if (m->add_prefix) {
        csn_jw_array_end(&m->w);
        csn_jw_object_end(&m->w);
    }
    put_null(m, "pre_tokenizer");
}

static void write_spm_decoder(maker *m) {
    key(m, "decoder");
    typed(m, "Sequence");
    key(m, "decoders");
    csn_jw_array(&m->w);
    typed(m, "Replace");
    write_string_pattern(m, "String", SPACE_MARK);
    put_str(m, "content", CSN_STR(" "));
    csn_jw_object_end(&m->w);
    typed(m, "ByteFallback");
    csn_jw_object_end(&m->w);
    typed(m, "Fuse");
    csn_jw_object_end(&m->w);
    if (m->add_prefix) {
        typed(m, "Strip");
        put_str(m, "content", CSN_STR(" "));
        key(m, "start");
        csn_jw_u64(&m->w, 1);
        key(m, "stop");
        csn_jw_u64(&m->w, 0);
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
    key(m, "model");
    typed(m, "BPE");
    put_null(m, "dropout");
    if (is_spm && m->unknown >= 0) {
        put_str(m, "unk_token", m->vocab.text[m->unknown]);
    } else {
        put_null(m, "unk_token");
    }
    put_null(m, "continuing_subword_prefix");
    put_null(m, "end_of_word_suffix");
    put_bool(m, "fuse_unk", is_spm);
    put_bool(m, "byte_fallback", is_spm);
    put_bool(m, "ignore_merges", ignore_merges);
    key(m, "vocab");
    csn_jw_object(&m->w);
    for (uint32_t i = 0; i < m->n_model; i++) {
        csn_jw_key(&m->w, m->vocab.text[i]);
        csn_jw_u64(&m->w, i);
    }
    csn_jw_object_end(&m->w);
    key(m, "merges");
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
    key(m, "decoder");
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
    put_str(m, "version", CSN_STR("1.0"));
    put_null(m, "truncation");
    put_null(m, "padding");
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
