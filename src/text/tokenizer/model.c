/* SPDX-License-Identifier: Apache-2.0 */
/* Which model a file has, and what they share. WordLevel is small enough to live here. */
#include "base/alloc.h"
#include "text/tokenizer/tok_internal.h"

static const char hex[] = "0123456789ABCDEF";

static void find_byte_tokens(csn_tok_model *m) {
    char text[6] = {'<', '0', 'x', '0', '0', '>'};
    for (int b = 0; b < 256; b++) {
        text[3] = hex[b >> 4];
        text[4] = hex[b & 15];
        m->byte_id[b] = csn_vocab_find(&m->vocab, text, sizeof(text));
    }
}

static caisson_status load_wordlevel(csn_tok_model *m, const csn_jval *model, caisson_error *err) {
    const csn_jval *v = csn_jval_get(model, "vocab");
    if (csn_jval_kind(v) != CSN_JSON_OBJECT) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "model.vocab", "not an object", (csn_str){0});
    }
    csn_str unk;
    CSN_TRY(csn_tok_str(model, "model", "unk_token", &unk, err));
    CSN_TRY(csn_vocab_init(&m->vocab, csn_jval_len(v), csn_jval_len(v) * 8, err));
    for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
        uint64_t id;
        if (!csn_jval_u64(it.value, &id) || id >= CAISSON_MAX_TOKENS) {
            return csn_tok_fail(err, CAISSON_E_PARSE, "model.vocab",
                                "token id is not a number from 0 to 2^22 - 1", it.key);
        }
        CSN_TRY(csn_vocab_add(&m->vocab, it.key, (uint32_t)id, "model.vocab", err));
    }
    m->unk_id = csn_vocab_find(&m->vocab, unk.ptr, unk.len);
    return CAISSON_OK;
}

/* A file without `type` is of an older tokenizers version: what it must be shows in its members. */
static csn_str guess_type(const csn_jval *model) {
    if (csn_jval_kind(csn_jval_get(model, "merges")) == CSN_JSON_ARRAY) {
        return CSN_STR("BPE");
    }
    return csn_jval_kind(csn_jval_get(model, "vocab")) == CSN_JSON_ARRAY ? CSN_STR("Unigram")
                                                                         : CSN_STR("");
}

caisson_status csn_tok_model_load(csn_tok_model *m, csn_arena *arena, const csn_jval *model,
                                  caisson_error *err) {
    m->unk_id = -1;
    if (csn_jval_kind(model) != CSN_JSON_OBJECT) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "model", "not an object", (csn_str){0});
    }
    csn_str type;
    bool has_type;
    CSN_TRY(csn_tok_opt_str(model, "model", "type", &type, &has_type, err));
    type = has_type ? type : guess_type(model);
    if (csn_str_is(type, "BPE")) {
        m->kind = CSN_TOK_BPE;
        CSN_TRY(csn_bpe_load(m, arena, model, err));
    } else if (csn_str_is(type, "Unigram")) {
        m->kind = CSN_TOK_UNIGRAM;
        CSN_TRY(csn_unigram_load(m, model, err));
    } else if (csn_str_is(type, "WordLevel")) {
        m->kind = CSN_TOK_WORDLEVEL;
        CSN_TRY(load_wordlevel(m, model, err));
    } else {
        return csn_tok_fail(err, CAISSON_E_UNSUPPORTED, "model.type",
                            "tokenizer model is not BPE, Unigram or WordLevel", type);
    }
    find_byte_tokens(m);
    return CAISSON_OK;
}

caisson_status csn_tok_model_encode(const csn_tok_model *m, csn_model_scratch *s, csn_str piece,
                                    csn_ids *out, caisson_error *err) {
    if (piece.len == 0) {
        return CAISSON_OK;
    }
    switch (m->kind) {
    case CSN_TOK_BPE: return csn_bpe_encode(m, s, piece, out, err);
    case CSN_TOK_UNIGRAM: return csn_unigram_encode(m, s, piece, out, err);
    case CSN_TOK_WORDLEVEL: break;
    }
    int32_t id = csn_vocab_find(&m->vocab, piece.ptr, piece.len);
    id = csn_tok_is_banned(s, id) ? -1 : id;
    if (id < 0 && m->unk_id < 0) {
        return csn_tok_fail(err, CAISSON_E_PARSE, "model.unk_token",
                            "the unknown token is not in the vocabulary", piece);
    }
    return csn_ids_push(out, id >= 0 ? id : m->unk_id, err);
}

void csn_tok_model_done(csn_tok_model *m) {
    csn_vocab_done(&m->vocab);
    csn_free_aligned(m->merges);
    csn_unigram_done(m);
}

void csn_model_scratch_done(csn_model_scratch *s) {
    csn_free(s->symbol);
    csn_free(s->heap);
    csn_free(s->path);
    csn_buf_free(&s->text);
}
