/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler chain, with the names, order and defaults of llama.cpp: penalties -> top_k ->
 * typical_p -> top_p -> min_p -> temperature -> draw. temperature <= 0 is greedy (lowest id on a
 * tie, penalties still apply). */
#ifndef CSN_ENGINE_SAMPLER_H
#define CSN_ENGINE_SAMPLER_H

#include "base/error.h"

typedef struct csn_sampler csn_sampler;

typedef struct csn_sampler_options {
    float temperature;       /* 0.8; <= 0: greedy */
    int32_t top_k;           /* 40; <= 0: off */
    float top_p;             /* 0.95; 1: off */
    float min_p;             /* 0.05; 0: off */
    float typical_p;         /* 1: off */
    float repeat_penalty;    /* 1: off */
    float presence_penalty;  /* 0: off */
    float frequency_penalty; /* 0: off */
    int32_t repeat_last_n;   /* 64; 0: off; -1: all */
    uint64_t seed;
} csn_sampler_options;

csn_sampler_options csn_sampler_defaults(void);
caisson_status csn_sampler_new(const csn_sampler_options *o, uint32_t n_vocab, csn_sampler **ret,
                               caisson_error *err);
void csn_sampler_free(csn_sampler *s);
/* Picks a token from logits [n_vocab] (not changed). Logits that are all NaN: CAISSON_E_ARG. */
caisson_status csn_sampler_pick(csn_sampler *s, const float *logits, int32_t *ret,
                                caisson_error *err);
/* Tells the penalties of a token that is now part of the text (prompt tokens too). */
void csn_sampler_accept(csn_sampler *s, int32_t id);

#endif
