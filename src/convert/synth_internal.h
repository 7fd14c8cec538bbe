/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of synth: sizes, text, and one writer a container. */
#ifndef CSN_CONVERT_SYNTH_INTERNAL_H
#define CSN_CONVERT_SYNTH_INTERNAL_H

#include "base/arena.h"
#include "base/random.h"
#include "convert/synth.h"
#include "convert/warp_names.h"
#include "convert/warp_words.h"
#include "format/warp/warp.h"

/* ---- sizes (synth_sizes.c) ---- */
enum { CSN_SYNTH_MAX_EXTRA = 8 };
typedef struct csn_synth_size {
    const char *family, *size;
    csn_warp_words config; /* is_kda is filled in by csn_synth_config */
    uint32_t mla_every;    /* families with KDA: every so-manieth layer is MLA, and the last */
    const char *prefix;    /* of WARP's tensor names */
    bool is_warp;          /* a family that WARP can hold */
    /* the others */
    uint32_t n_kv_heads;
    bool has_bias; /* of queries, keys and values */
    struct {
        const char *key, *json;
    } extra[CSN_SYNTH_MAX_EXTRA]; /* of config.json; behind the last: key NULL */
} csn_synth_size;

extern const csn_synth_size csn_synth_sizes[]; /* behind the last: family NULL */

/* Random weights are add + times * x, x uniform in -1 to 1: such that a layer keeps the size of
 * what it gets, and that of the head's rows one stands out. */
typedef struct csn_synth_scale {
    float add, times;
} csn_synth_scale;
csn_synth_scale csn_synth_scale_of(csn_warp_role role, double cols);

/* ---- text (synth_text.c) ----
 * A vocabulary of bytes and letter groups, special tokens behind them, as WARP keeps them. */
enum { CSN_SYNTH_SPECIALS = 7 };
typedef struct csn_synth_text {
    csn_buf ranks;                             /* tokenizer.model */
    csn_buf specials;                          /* specials.json */
    csn_buf chat;                              /* chat.json */
    csn_warp_special list[CSN_SYNTH_SPECIALS]; /* the same as specials */
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
    csn_warp_words config;
    csn_synth_text text;
    csn_pool *pool;
    csn_arena arena;
    uint64_t n_done, n_total; /* bytes */
    caisson_error *err;
} csn_synth_job;

caisson_status csn_synth_tell(csn_synth_job *j, uint64_t n_bytes);
caisson_status csn_synth_warp(csn_synth_job *j);
caisson_status csn_synth_cmf(csn_synth_job *j);

#endif
