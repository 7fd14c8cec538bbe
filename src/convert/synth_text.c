/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of a synthetic model: 256 bytes, then groups of letters, each one letter longer
 * than a group in front of it, so that merging by rank reaches all of them; the special tokens of
 * Kimi's chat behind them. */
#include "base/base64.h"
#include "base/json.h"
#include "convert/synth_internal.h"

static const char *const specials[CSN_SYNTH_SPECIALS] = {
    "[BOS]",        "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_system|>", "<|im_assistant|>",
    "<|im_middle|>"};
enum { N_SPECIALS = CSN_SYNTH_SPECIALS, IM_END = 2, N_LETTERS = 26, MAX_GROUP = 8 };

/* Group i: the space counts as a 27th first letter. i in [0, 27 * 26^(n - 1)) of each length n, one
 * length after the other, lengths from 2 on. */
static size_t group(uint64_t i, char out[MAX_GROUP]) {
    size_t n = 2;
    uint64_t rest = N_LETTERS; /* groups with the same first letter */
    while (i >= (N_LETTERS + 1) * rest) {
        i -= (N_LETTERS + 1) * rest;
        rest *= N_LETTERS;
        n++;
    }
    uint64_t first = i / rest;
    out[0] = (char)(first == 0 ? ' ' : 'a' + (int)first - 1);
    for (size_t k = 1; k < n; k++) {
        rest /= N_LETTERS;
        out[k] = (char)('a' + (int)(i / rest % N_LETTERS));
    }
    return n;
}

static caisson_status put_rank(csn_buf *out, const void *bytes, size_t n, uint32_t rank,
                               caisson_error *err) {
    CSN_TRY(csn_base64_append(out, bytes, n, err));
    return csn_buf_printf(out, err, " %u\n", rank);
}

static caisson_status put_ranks(csn_buf *out, uint32_t n, caisson_error *err) {
    char letters[MAX_GROUP];
    for (uint32_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)i;
        if (i < 256) {
            CSN_TRY(put_rank(out, &byte, 1, i, err));
        } else {
            size_t len = group(i - 256, letters);
            CSN_TRY(put_rank(out, letters, len, i, err));
        }
    }
    return CAISSON_OK;
}

static caisson_status put_specials(csn_buf *out, uint32_t first, caisson_error *err) {
    csn_jw w = csn_jw_begin(out, err);
    csn_jw_array(&w);
    for (uint32_t i = 0; i < N_SPECIALS; i++) {
        csn_jw_object(&w);
        csn_jw_put_u64(&w, "id", first + i);
        csn_jw_put_str(&w, "text", csn_str_from(specials[i]));
        csn_jw_object_end(&w);
    }
    csn_jw_array_end(&w);
    return csn_jw_end(&w);
}

static const char chat[] =
    "{\"system\": [\"<|im_system|>system<|im_middle|>\", \"<|im_end|>\"],\n"
    " \"user\": [\"<|im_user|>user<|im_middle|>\", \"<|im_end|>\"],\n"
    " \"assistant\": [\"<|im_assistant|>assistant<|im_middle|>\", \"<|im_end|>\"],\n"
    " \"open\": \"<|im_assistant|>assistant<|im_middle|>\"}\n";

caisson_status csn_synth_text_make(uint32_t vocab_size, csn_synth_text *ret, caisson_error *err) {
    csn_synth_text t = {.ranks = CSN_BUF_INIT(64 << 20),
                        .specials = CSN_BUF_INIT(1 << 16),
                        .chat = CSN_BUF_INIT(1 << 16)};
    uint32_t first = vocab_size - N_SPECIALS;
    caisson_status status = put_ranks(&t.ranks, first, err);
    if (status == CAISSON_OK) {
        status = put_specials(&t.specials, first, err);
    }
    if (status == CAISSON_OK) {
        status = csn_buf_str(&t.chat, csn_str_from(chat), err);
    }
    if (status != CAISSON_OK) {
        csn_synth_text_free(&t);
        return status;
    }
    t.eos_token_id = (int32_t)first + IM_END;
    for (uint32_t i = 0; i < N_SPECIALS; i++) {
        t.list[i].id = first + i;
        t.list[i].text = csn_str_from(specials[i]);
    }
    *ret = t;
    return CAISSON_OK;
}

void csn_synth_text_free(csn_synth_text *t) {
    csn_buf_free(&t->ranks);
    csn_buf_free(&t->specials);
    csn_buf_free(&t->chat);
}
