/* SPDX-License-Identifier: Apache-2.0 */
/* The generation loop: evaluates a prompt, then samples, tells, feeds back, until an end-of-text
 * token, a stop string, the wanted number of tokens, the end of the context, or the caller's word.
 */
#ifndef CSN_ENGINE_GENERATE_H
#define CSN_ENGINE_GENERATE_H

#include "engine/sampler.h"
#include "engine/session.h"
#include "text/tokenizer/tokenizer.h"

typedef enum csn_finish {
    CSN_FINISH_EOS,     /* an end-of-text token was sampled */
    CSN_FINISH_STOP,    /* a stop string appeared */
    CSN_FINISH_LENGTH,  /* n_predict tokens were made */
    CSN_FINISH_CONTEXT, /* the context is full */
    CSN_FINISH_CALLER   /* on_text said to stop */
} csn_finish;

typedef struct csn_generate_options {
    const int32_t *prompt; /* [n_prompt] at least one id; evaluated behind what the session holds */
    uint32_t n_prompt;
    int64_t n_predict;  /* tokens at most; < 0: until the context is full */
    const int32_t *eos; /* [n_eos] ids that end the text */
    uint32_t n_eos;
    bool ignore_eos; /* end tokens are drawn like others; only with show_special they give text */
    const csn_str *stop; /* [n_stop] strings that end the text; they are not told */
    uint32_t n_stop;
    bool show_special;    /* special tokens are spelled out in the text */
    csn_sampler *sampler; /* has not been told of the prompt */
    const csn_tokenizer *tokenizer;
    /* Text as it becomes certain, never ending inside a code point; `id` is the newest token, or -1
     * for what was held back until the end. text may be empty. false = stop. Prompt ids are not
     * told. */
    bool (*on_text)(void *ctx, int32_t id, csn_str text);
    /* After a token of the text was evaluated, before the next one is drawn from the session's
     * logits; NULL = nobody asks. A failure ends the call. */
    caisson_status (*on_eval)(void *ctx, caisson_error *err);
    void *ctx;
    const csn_progress *progress; /* of the prompt; asked between layers of every pass */
} csn_generate_options;

typedef struct csn_generate_result {
    csn_finish finish;
    uint32_t n_prompt, n_generated; /* tokens; an end-of-text token is not counted */
    uint64_t prompt_ns, decode_ns;
    uint64_t first_token_ns; /* csn_now_ns() when the first token was sampled, 0 = none */
    uint32_t i_stop;         /* which stop string, with CSN_FINISH_STOP */
    int32_t last;            /* the token that ended the text, or -1 */
} csn_generate_result;

/* On success or CAISSON_E_CANCELLED *ret is filled; the session holds the prompt and all told
 * tokens but, where the text ended by length or by a stop, possibly the last one. */
caisson_status csn_generate(csn_session *session, const csn_generate_options *o,
                            csn_generate_result *ret, caisson_error *err);

#endif
