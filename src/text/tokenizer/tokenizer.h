/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face tokenizer.json, run as it is written: added tokens, normaliser, pre-tokeniser,
 * model (BPE byte-level, BPE with byte fallback, Unigram, WordLevel; WordPiece is refused),
 * post-processor (what it puts around a text), decoder. A construct that we do not run is refused
 * at load, by name; nothing is approximated. `truncation` and `padding` are left to the caller, as
 * transformers does. docs/tokenizer.md lists what runs and what is refused.
 *
 * Immutable after load; any number of threads may encode and decode at once.
 */
#ifndef CSN_TEXT_TOKENIZER_H
#define CSN_TEXT_TOKENIZER_H

#include "base/error.h"
#include "base/str.h"

typedef struct csn_tokenizer csn_tokenizer;

/* A growing list of token ids. */
typedef struct csn_ids {
    int32_t *id;
    size_t n, cap;
} csn_ids;
caisson_status csn_ids_push(csn_ids *ids, int32_t id, caisson_error *err);
void csn_ids_free(csn_ids *ids);

/* json: the bytes of tokenizer.json (not kept). Errors name the JSON path in err->tensor. */
caisson_status csn_tokenizer_load(csn_str json, csn_tokenizer **ret, caisson_error *err);
void csn_tokenizer_free(csn_tokenizer *t);

enum {
    CSN_ENC_SPECIAL_TOKENS = 1, /* run the post-processor: adds BOS/EOS as the file says */
    CSN_ENC_PARSE_SPECIAL = 2,  /* text that spells a *special* added token becomes that token;
                                   without it such text is tokenised as plain text, also where the
                                   model's own vocabulary holds the token (of more than one
                                   character). Added tokens that are not special always match. */
};

/* Appends the ids of `text` (invalid UTF-8 is replaced by U+FFFD first, as Python's
 * errors="replace" does). Same ids as tokenizers.Tokenizer.encode(text, add_special_tokens=...)
 * when PARSE_SPECIAL is set. */
caisson_status csn_tokenizer_encode(const csn_tokenizer *t, csn_str text, unsigned flags,
                                    csn_ids *out, caisson_error *err);

/* A text made of spans, each from the template (may form control tokens) or from a message (may
 * not): the rendering of a chat. Exactly one BOS: the post-processor's BOS is added only with
 * CSN_ENC_SPECIAL_TOKENS and when the text does not begin with it already, and what it puts behind
 * a text (EOS) is left out, as the model is to write on. `trusted` has one byte a byte of text, 1 =
 * template. A control token needs all of its bytes trusted, PARSE_SPECIAL or not; text that is not
 * UTF-8 is CAISSON_E_ARG. */
caisson_status csn_tokenizer_encode_marked(const csn_tokenizer *t, csn_str text,
                                           const uint8_t *trusted, unsigned flags, csn_ids *out,
                                           caisson_error *err);

/* Same text as tokenizers.Tokenizer.decode(ids, skip_special_tokens=skip_special). Ids outside the
 * vocabulary are CAISSON_E_ARG; a hole in it gives no text. */
caisson_status csn_tokenizer_decode(const csn_tokenizer *t, const int32_t *ids, size_t n,
                                    bool skip_special, csn_buf *out, caisson_error *err);

/* Streaming: feed ids one by one; what comes out, concatenated, is csn_tokenizer_decode of all of
 * them, and never ends inside a code point. flush gives what is held back and starts anew. An id
 * above the vocabulary (a padding row of the model's output) gives no text, a negative one is
 * CAISSON_E_ARG. */
typedef struct csn_detok csn_detok;
caisson_status csn_detok_new(const csn_tokenizer *t, bool skip_special, csn_detok **ret,
                             caisson_error *err);
caisson_status csn_detok_feed(csn_detok *d, int32_t id, csn_buf *out, caisson_error *err);
caisson_status csn_detok_flush(csn_detok *d, csn_buf *out, caisson_error *err);
void csn_detok_free(csn_detok *d);

/* The token's own text (byte-level alphabet and U+2581 as in the file), good until free; false for
 * a hole in the ids. */
bool csn_tokenizer_token(const csn_tokenizer *t, int32_t id, csn_str *ret);
bool csn_tokenizer_id(const csn_tokenizer *t, csn_str token, int32_t *ret);
bool csn_tokenizer_is_special(const csn_tokenizer *t, int32_t id);
/* The token that the post-processor puts first, or -1. */
int32_t csn_tokenizer_bos(const csn_tokenizer *t);

#endif
