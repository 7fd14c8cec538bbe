/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling one token, and the loop that makes text of it. Names, order and defaults of the sampler
 * chain are those of llama.cpp: penalties, top_k, typical_p, top_p, min_p, temperature, draw.
 */
#ifndef CAISSON_GENERATE_H
#define CAISSON_GENERATE_H

#include "caisson/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct caisson_sampling {
    size_t struct_size;      /* sizeof(caisson_sampling) */
    bool greedy;             /* the largest logit, lowest id on a tie; penalties still apply */
    float temperature;       /* 0 = 0.8; for temperature 0 set greedy */
    int32_t top_k;           /* 0 = 40; negative: off */
    float top_p;             /* 0 = 0.95; 1: off */
    float min_p;             /* 0 = 0.05; negative: off */
    float typical_p;         /* 0 = 1: off */
    float repeat_penalty;    /* 0 = 1: off */
    float presence_penalty;  /* 0: off */
    float frequency_penalty; /* 0: off */
    int32_t repeat_last_n;   /* tokens that the penalties look back on; 0 = 64; -1 = all */
    uint64_t seed;           /* same seed, same tokens */
} caisson_sampling;

typedef struct caisson_sampler caisson_sampler;
/* n_vocab: length of the rows given to pick. Errors: CAISSON_E_ARG (a value out of range), _NOMEM.
 */
CAISSON_API caisson_status caisson_sampler_new(const caisson_sampling *sampling, uint32_t n_vocab,
                                               caisson_sampler **ret, caisson_error *err);
CAISSON_API void caisson_sampler_free(caisson_sampler *sampler); /* NULL is fine */
/* A token from logits [n_vocab], which stay as they are. Errors: CAISSON_E_ARG (no logit is a
 * number). */
CAISSON_API caisson_status caisson_sampler_pick(caisson_sampler *sampler, const float *logits,
                                                int32_t *ret, caisson_error *err);
/* Tells the penalties of a token that is now part of the text (prompt tokens too). */
CAISSON_API void caisson_sampler_accept(caisson_sampler *sampler, int32_t id);

typedef enum caisson_finish {
    CAISSON_FINISH_EOS = 1,  /* an end token came (it is not part of the text) */
    CAISSON_FINISH_STOP,     /* a stop string came (neither is it) */
    CAISSON_FINISH_LENGTH,   /* max_tokens reached */
    CAISSON_FINISH_CONTEXT,  /* the context is full */
    CAISSON_FINISH_CANCELLED /* on_text or on_prompt said no, or caisson_session_cancel */
} caisson_finish;

typedef struct caisson_generate_options {
    size_t struct_size;               /* sizeof(caisson_generate_options) */
    const caisson_sampling *sampling; /* NULL = defaults */
    uint32_t max_tokens;              /* 0 = until the context is full */
    bool ignore_eos;                  /* go on after an end token; it gives no text */
    const char *const *stop;          /* [n_stop] strings that end the text, NUL-terminated; found
                                         across token borders. An empty one is CAISSON_E_ARG. */
    size_t n_stop;
    /* Text as it comes: n bytes that end at a code point border. False = stop. NULL: nobody reads.
     */
    bool (*on_text)(void *ctx, const char *text, size_t n);
    /* Prompt tokens done of total, those of a batch under way as its layers are done. False = stop.
     * NULL: nobody watches. */
    bool (*on_prompt)(void *ctx, uint32_t done, uint32_t total);
    void *ctx;
} caisson_generate_options;

typedef struct caisson_generation {
    caisson_finish finish;
    uint32_t n_prompt;    /* tokens given */
    uint32_t n_reused;    /* of these, already in the session */
    uint32_t n_generated; /* tokens drawn, an end token not counted */
    uint64_t prompt_ns;   /* time for n_prompt - n_reused tokens */
    uint64_t decode_ns;   /* time from the first drawn token to the end */
    uint32_t n_decode;    /* tokens evaluated in decode_ns: n_decode / decode_ns is the speed */
    int32_t eos_id;       /* the end token, with CAISSON_FINISH_EOS; else -1 */
    size_t i_stop;        /* which stop string, with CAISSON_FINISH_STOP */
} caisson_generation;

/* Continues ids[0..n), the whole timeline from its first token: what the session already holds of
 * it is kept, the rest is evaluated, then tokens are drawn until one of the reasons above.
 *
 * Afterwards the session holds the prompt and the drawn tokens, save an end token and the last one
 * drawn. On an error it holds what was evaluated; *ret is not touched.
 *
 * Errors: CAISSON_E_CONTEXT (the prompt does not fit: want = n_ctx, got = tokens), _ARG, _IO,
 * _NOMEM, _UNSUPPORTED (no tokenizer). Being cancelled is not an error: see finish. */
CAISSON_API caisson_status caisson_generate(caisson_session *session, const int32_t *ids, size_t n,
                                            const caisson_generate_options *options,
                                            caisson_generation *ret, caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
