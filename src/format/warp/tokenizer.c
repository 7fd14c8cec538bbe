/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a .waste directory. One of ours may carry a tokenizer.json, which others pass
 * over; else rank file and specials.json (warp facts 7) are said in the form of a tokenizer.json.
 *
 * A rank file merges any two neighbours that make a token, that of the lowest rank first. A list of
 * merges says the same when it has every way to cut every token in two, in the order of ranks. */
#include "format/warp/warp_internal.h"

#include "base/bytelevel.h"
#include "caisson/limits.h"
#include "format/warp/ranks.h"

enum { MAX_RANK_BYTES = 64 << 20 };

/* How Kimi's tokenizer cuts a text: Han runs; words, by case; up to three digits; marks; white
 * space. What is not Han of the letters needs a class that subtracts. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
const char csn_kimi_pattern[] = "[\\p{Han}]+"
                                "|" BEFORE UPPER "*" LOWER "+" CONTRACTION "|" BEFORE UPPER
                                "+" LOWER "*" CONTRACTION "|\\p{N}{1,3}"
                                "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                                "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static void write_specials(csn_jw *w, const csn_warp *warp) {
    csn_jw_key(w, CSN_STR("added_tokens"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < warp->n_specials; i++) {
        csn_jw_object(w);
        csn_jw_put_u64(w, "id", warp->specials[i].id);
        csn_jw_put_str(w, "content", warp->specials[i].text);
        csn_jw_put_bool(w, "single_word", false);
        csn_jw_put_bool(w, "lstrip", false);
        csn_jw_put_bool(w, "rstrip", false);
        csn_jw_put_bool(w, "normalized", false);
        csn_jw_put_bool(w, "special", true);
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
}

static void write_byte_level(csn_jw *w) {
    csn_jw_object(w);
    csn_jw_put_str(w, "type", CSN_STR("ByteLevel"));
    csn_jw_put_bool(w, "add_prefix_space", false);
    csn_jw_put_bool(w, "trim_offsets", false);
    csn_jw_put_bool(w, "use_regex", false);
    csn_jw_object_end(w);
}

static void write_pre_tokenizer(csn_jw *w) {
    csn_jw_key(w, CSN_STR("pre_tokenizer"));
    csn_jw_object(w);
    csn_jw_put_str(w, "type", CSN_STR("Sequence"));
    csn_jw_key(w, CSN_STR("pretokenizers"));
    csn_jw_array(w);
    csn_jw_object(w);
    csn_jw_put_str(w, "type", CSN_STR("Split"));
    csn_jw_key(w, CSN_STR("pattern"));
    csn_jw_object(w);
    csn_jw_put_str(w, "Regex", csn_str_from(csn_kimi_pattern));
    csn_jw_object_end(w);
    csn_jw_put_str(w, "behavior", CSN_STR("Isolated"));
    csn_jw_put_bool(w, "invert", false);
    csn_jw_object_end(w);
    write_byte_level(w);
    csn_jw_array_end(w);
    csn_jw_object_end(w);
}

typedef struct maker {
    csn_ranks ranks;
    csn_buf text; /* of one token, in the alphabet of bytes */
    csn_jw w;
    caisson_error *err;
} maker;

static caisson_status spell(maker *m, csn_str token) {
    m->text.len = 0;
    return csn_bytelevel_append(&m->text, token, m->err);
}

/* Special tokens stand in it as well: the package numbers an added token anew that does not follow
 * the vocabulary without a gap. */
static caisson_status write_vocab(maker *m, const csn_warp *warp) {
    csn_jw_key(&m->w, CSN_STR("vocab"));
    csn_jw_object(&m->w);
    for (uint32_t id = 0; id < m->ranks.n_ids; id++) {
        if (m->ranks.tokens[id].len > 0) {
            CSN_TRY(spell(m, m->ranks.tokens[id]));
            csn_jw_key(&m->w, csn_buf_view(&m->text));
            csn_jw_u64(&m->w, id);
        }
    }
    for (uint32_t i = 0; i < warp->n_specials; i++) {
        csn_jw_key(&m->w, warp->specials[i].text);
        csn_jw_u64(&m->w, warp->specials[i].id);
    }
    csn_jw_object_end(&m->w);
    return CAISSON_OK;
}

static caisson_status write_merges_of(maker *m, csn_str token) {
    uint32_t ignored;
    for (size_t n = 1; n < token.len; n++) {
        csn_str parts[2] = {csn_str_make(token.ptr, n), csn_str_make(token.ptr + n, token.len - n)};
        if (!csn_ranks_find(&m->ranks, parts[0], &ignored) ||
            !csn_ranks_find(&m->ranks, parts[1], &ignored)) {
            continue;
        }
        csn_jw_array(&m->w);
        for (int k = 0; k < 2; k++) {
            CSN_TRY(spell(m, parts[k]));
            csn_jw_str(&m->w, csn_buf_view(&m->text));
        }
        csn_jw_array_end(&m->w);
    }
    return CAISSON_OK;
}

static caisson_status write_model(maker *m, const csn_warp *warp) {
    csn_jw *w = &m->w;
    csn_jw_key(w, CSN_STR("model"));
    csn_jw_object(w);
    csn_jw_put_str(w, "type", CSN_STR("BPE"));
    csn_jw_put_null(w, "dropout");
    csn_jw_put_null(w, "unk_token");
    csn_jw_put_null(w, "continuing_subword_prefix");
    csn_jw_put_null(w, "end_of_word_suffix");
    csn_jw_put_bool(w, "fuse_unk", false);
    csn_jw_put_bool(w, "byte_fallback", false);
    csn_jw_put_bool(w, "ignore_merges", true);
    CSN_TRY(write_vocab(m, warp));
    csn_jw_key(w, CSN_STR("merges"));
    csn_jw_array(w);
    for (uint32_t id = 0; id < m->ranks.n_ids; id++) {
        CSN_TRY(write_merges_of(m, m->ranks.tokens[id]));
    }
    csn_jw_array_end(w);
    csn_jw_object_end(w);
    return CAISSON_OK;
}

/* A special token may stand for no id that the ranks have: a text could spell it. */
static caisson_status check_specials(const csn_warp *w, const csn_ranks *r, caisson_error *err) {
    for (uint32_t i = 0; i < w->n_specials; i++) {
        uint32_t id = w->specials[i].id;
        if (id < r->n_ids && r->tokens[id].len > 0) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .file = "specials.json", .section = "specials",
                            .tensor = w->specials[i].text,
                            .what = "a special token has the id of another token",
                            .has_numbers = true, .want_u = r->n_ids, .got_u = id);
        }
    }
    return CAISSON_OK;
}

static caisson_status write_json(const csn_warp *warp, maker *m, csn_buf *out) {
    m->w = csn_jw_begin(out, m->err);
    csn_jw *w = &m->w;
    csn_jw_object(w);
    csn_jw_put_str(w, "version", CSN_STR("1.0"));
    csn_jw_put_null(w, "truncation");
    csn_jw_put_null(w, "padding");
    write_specials(w, warp);
    csn_jw_put_null(w, "normalizer");
    write_pre_tokenizer(w);
    csn_jw_put_null(w, "post_processor");
    csn_jw_key(w, CSN_STR("decoder"));
    write_byte_level(w);
    CSN_TRY(write_model(m, warp));
    csn_jw_object_end(w);
    return csn_jw_end(w);
}

static caisson_status make_json(const csn_warp *w, csn_str ranks, csn_buf *ret,
                                caisson_error *err) {
    maker m = {.text = CSN_BUF_INIT(2 * CSN_RANKS_MAX_TOKEN + 1), .err = err};
    csn_buf out = CSN_BUF_INIT(CAISSON_MAX_TOKENIZER_BYTES);
    caisson_status status = csn_ranks_read(ranks, &m.ranks, err);
    if (status == CAISSON_OK) {
        status = check_specials(w, &m.ranks, err);
    }
    if (status == CAISSON_OK) {
        status = write_json(w, &m, &out);
    }
    csn_ranks_free(&m.ranks);
    csn_buf_free(&m.text);
    if (status != CAISSON_OK) {
        csn_buf_free(&out);
        return status;
    }
    *ret = out;
    return CAISSON_OK;
}

caisson_status csn_warp_make_tokenizer(csn_str ranks, csn_warp_special *specials,
                                       uint32_t n_specials, csn_buf *ret, caisson_error *err) {
    const csn_warp w = {.specials = specials, .n_specials = n_specials};
    return make_json(&w, ranks, ret, err);
}

static caisson_status from_ranks(csn_warp *w, const char *path, csn_buf *ret, caisson_error *err) {
    csn_buf text = {0};
    CSN_TRY(csn_fs_read_all(w->fs, path, MAX_RANK_BYTES, &text, err));
    caisson_status status = make_json(w, csn_buf_view(&text), ret, err);
    csn_buf_free(&text);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}

static caisson_status find_tokenizer(csn_warp *w, const char **ret, bool *ret_is_json,
                                     caisson_error *err) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tiktoken.model"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *path;
        CSN_TRY(csn_warp_path(w, csn_str_from(names[i]), &path, err));
        if (w->fs->ops->exists(w->fs, path)) {
            *ret = path;
            *ret_is_json = i == 0;
            return CAISSON_OK;
        }
    }
    *ret = NULL;
    return CAISSON_OK;
}

caisson_status csn_warp_read_tokenizer(csn_warp *w, csn_buf *ret, caisson_error *err) {
    const char *path;
    bool is_json = false;
    CSN_TRY(find_tokenizer(w, &path, &is_json, err));
    if (path == NULL) {
        *ret = CSN_BUF_INIT(CAISSON_MAX_TOKENIZER_BYTES);
        return CAISSON_OK;
    }
    return is_json ? csn_fs_read_all(w->fs, path, CAISSON_MAX_TOKENIZER_BYTES, ret, err)
                   : from_ranks(w, path, ret, err);
}

caisson_status csn_warp_tokenizer_nbytes(csn_warp *w, uint64_t *ret, caisson_error *err) {
    const char *path;
    bool is_json = false;
    csn_file *f;
    *ret = 0;
    CSN_TRY(find_tokenizer(w, &path, &is_json, err));
    if (path == NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_fs_open(w->fs, path, CSN_OPEN_READ, &f, err));
    caisson_status status = csn_file_size(f, ret, err);
    csn_file_close(f);
    return status;
}

caisson_status csn_warp_count_ranks(csn_warp *w, uint32_t *ret, caisson_error *err) {
    const char *path;
    bool is_json = false;
    *ret = 0;
    CSN_TRY(find_tokenizer(w, &path, &is_json, err));
    if (path == NULL || is_json) {
        return CAISSON_OK;
    }
    csn_buf text = {0};
    CSN_TRY(csn_fs_read_all(w->fs, path, MAX_RANK_BYTES, &text, err));
    for (size_t i = 0; i < text.len; i++) {
        *ret += text.ptr[i] == '\n' || i + 1 == text.len;
    }
    csn_buf_free(&text);
    return CAISSON_OK;
}
