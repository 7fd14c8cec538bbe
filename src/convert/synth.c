/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the size that was asked for, and hands over to the writer of its container. */
#include "convert/convert.h"
#include "convert/synth_internal.h"

caisson_status csn_synth_tell(csn_synth_job *j, uint64_t n_bytes) {
    j->n_done += n_bytes;
    return csn_progress_tell(j->o->progress, "synth", j->n_done, j->n_total, j->err);
}

static caisson_status find_size(csn_synth_job *j) {
    for (const csn_synth_size *s = csn_synth_sizes; s->family != NULL; s++) {
        if (csn_str_is(j->o->family, s->family) && csn_str_is(j->o->size, s->size)) {
            j->size = s;
            return CAISSON_OK;
        }
    }
    return CSN_FAIL(j->err, CAISSON_E_ARG, .what = "no such family in this size",
                    CSN_TEXTS(j->o->family, j->o->size));
}

static caisson_status make_config(csn_synth_job *j) {
    bool *is_kda;
    j->config = j->size->config;
    csn_warp_words *c = &j->config;
    uint32_t n_all = c->n_layers;
    if (j->o->n_layers > 0) {
        c->n_layers = j->o->n_layers;
    }
    if (c->attn_res_block > c->n_layers) {
        c->attn_res_block = c->n_layers; /* a block is no longer than the model */
    }
    if (c->n_kda_heads > 0) {
        CSN_TRY(CSN_ARENA_NEW(&j->arena, c->n_layers, &is_kda, j->err));
        for (uint32_t i = 0; i < c->n_layers; i++) {
            is_kda[i] = (i + 1) % j->size->mla_every != 0 && i + 1 != n_all;
        }
        c->is_kda = is_kda;
    }
    if (c->n_experts > 0 && c->n_layers <= c->first_dense) {
        return CSN_FAIL(j->err, CAISSON_E_ARG,
                        .what = "so few layers that none would be a mixture of experts",
                        CSN_VALUES(c->first_dense + 1, c->n_layers));
    }
    CSN_TRY(csn_synth_text_make(c->vocab_size, &j->text, j->err));
    c->eos_token_id = j->text.eos_token_id;
    return CAISSON_OK;
}

static caisson_status make(csn_synth_job *j) {
    CSN_TRY(find_size(j));
    CSN_TRY(make_config(j));
    CSN_TRY(csn_pool_new(j->o->n_threads, &j->pool, j->err));
    if (csn_convert_wants_warp(j->target)) {
        if (!j->size->is_warp) {
            return CSN_FAIL(j->err, CAISSON_E_UNSUPPORTED, .file = j->target,
                            .what = "a WARP directory cannot hold this family",
                            .got = j->o->family);
        }
        return csn_synth_warp(j);
    }
    return csn_synth_cmf(j);
}

caisson_status csn_synth(csn_fs *fs, const char *target, const csn_synth_options *options,
                         caisson_error *err) {
    csn_synth_job j = {.fs = fs, .target = target, .o = options, .err = err};
    caisson_status status = make(&j);
    csn_synth_text_free(&j.text);
    csn_pool_free(j.pool);
    csn_arena_done(&j.arena);
    return status;
}
