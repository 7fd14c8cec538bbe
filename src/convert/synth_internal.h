/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of synth: sizes, random bytes, text, and one writer a container. */
#ifndef CSN_CONVERT_SYNTH_INTERNAL_H
#define CSN_CONVERT_SYNTH_INTERNAL_H

#include "base/arena.h"
#include "convert/synth.h"
#include "convert/warp_config.h"

/* ---- sizes (synth_sizes.c) ---- */
typedef struct csn_synth_size {
    const char *family, *size;
    csn_warp_config config; /* is_kda is filled in by csn_synth_config */
    uint32_t mla_every;     /* families with KDA: every so-manieth layer is MLA, and the last */
    const char *prefix;     /* of WARP's tensor names */
} csn_synth_size;

extern const csn_synth_size csn_synth_sizes[]; /* behind the last: family NULL */

/* ---- random numbers ----
 * A stream a purpose: what is made does not depend on the order it is made in. */
typedef struct csn_random {
    uint64_t s[4]; /* xoshiro256** */
} csn_random;

csn_random csn_random_seed(uint64_t seed, csn_str purpose, uint64_t a, uint64_t b);
static inline uint64_t csn_random_u64(csn_random *r) {
    uint64_t x = r->s[1] * 5, t = r->s[1] << 17;
    uint64_t ret = (x << 7 | x >> 57) * 9;
    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= t;
    r->s[3] = r->s[3] << 45 | r->s[3] >> 19;
    return ret;
}
static inline float csn_random_f32(csn_random *r) { /* -1 to 1 */
    return (float)((int64_t)csn_random_u64(r) >> 40) * 0x1p-23f;
}
void csn_random_bytes(csn_random *r, uint8_t *out, size_t n);

/* ---- text (synth_text.c) ----
 * A vocabulary of bytes and letter groups, special tokens behind them, as WARP keeps them. */
typedef struct csn_synth_text {
    csn_buf ranks;    /* tokenizer.model */
    csn_buf specials; /* specials.json */
    csn_buf chat;     /* chat.json */
    int32_t eos_token_id;
} csn_synth_text;

caisson_status csn_synth_text_make(uint32_t vocab_size, csn_synth_text *ret, caisson_error *err);
void csn_synth_text_free(csn_synth_text *t);

/* ---- containers ---- */
typedef struct csn_synth_job {
    csn_fs *fs;
    const char *target;
    const csn_synth_options *o;
    const csn_synth_size *size;
    csn_warp_config config;
    csn_synth_text text;
    csn_pool *pool;
    csn_arena arena;
    uint64_t n_done, n_total; /* bytes */
    caisson_error *err;
} csn_synth_job;

caisson_status csn_synth_tell(csn_synth_job *j, uint64_t n_bytes);
caisson_status csn_synth_warp(csn_synth_job *j);

#endif
