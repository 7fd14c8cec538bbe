/* SPDX-License-Identifier: Apache-2.0 */
/* A model by its path: a .cmf file (or any of its shards), or a .waste directory. */
#include "api_internal.h"

#include "base/limits.h"
#include "store/usage.h"

static void on_log(void *ctx, csn_log_level level, const char *line) {
    const caisson_open_options *o = ctx;
    (void)level;
    o->on_log(o->log_ctx, CAISSON_LOG_WARN, line);
}

static csn_log log_of(const caisson_open_options *o) {
    return (csn_log){o->on_log != NULL ? on_log : NULL, (void *)(uintptr_t)o, CSN_LOG_WARN};
}

caisson_status csn_api_open_container(const char *path, const caisson_open_options *o,
                                      csn_api_container *ret, csn_api_signed *files,
                                      caisson_error *err) {
    csn_fs *fs = csn_fs_os();
    if (!csn_warp_is(fs, path)) {
        return csn_api_open_cmf(path, o, &ret->cmf, files, err);
    }
    if (o->require_signature != NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = path,
                        .what = "a .waste directory has no signature: it is many files");
    }
    csn_log log = log_of(o);
    return csn_warp_open(fs, path, &log, &ret->warp, err);
}

caisson_status csn_api_stream(csn_store *store, const caisson_open_options *o,
                              csn_memplan_share *ret, caisson_error *err) {
    static const csn_expert_io io[] = {
        [CAISSON_IO_DEFAULT] = CSN_EXPERT_IO_AUTO,
        [CAISSON_IO_URING] = CSN_EXPERT_IO_URING,
        [CAISSON_IO_THREADS] = CSN_EXPERT_IO_THREADS,
        [CAISSON_IO_BUFFERED] = CSN_EXPERT_IO_BUFFERED,
    };
    CSN_API_NEED((unsigned)o->io < sizeof(io) / sizeof(io[0]), err, "io is not one of caisson_io");
    if (csn_store_warp(store) == NULL && o->budget_bytes == 0 && !o->stream_trunk) {
        return CAISSON_OK;
    }
    csn_stream_options so = {.looks_ahead = !o->no_lookahead,
                             .verify = o->verify_records || o->verify};
    csn_stream *stream;
    csn_memplan plan = {0};
    csn_memplan_share share;
    CSN_TRY(csn_stream_new(store, &so, &stream, err));
    csn_store_set_stream(store, stream);
    csn_trunk *trunk = NULL;
    if (o->stream_trunk) {
        CSN_TRY(csn_trunk_new(store, so.verify, &trunk, err));
        csn_store_set_trunk(store, trunk);
    }
    csn_memplan_skills skills = {csn_str_from(o->budget_skill), o->budget_blends};
    CSN_TRY(csn_api_memplan(store, o->budget_n_ctx, o->budget_type_k, o->budget_type_v, &skills,
                            &plan, err));
    uint64_t limit = csn_memory_limit_get().bytes;
    uint64_t budget = o->budget_bytes != 0 ? o->budget_bytes : csn_memplan_choose(&plan, limit);
    CSN_TRY(csn_memplan_split(&plan, budget, &share, err));
    CSN_TRY(csn_memplan_fits(&plan, budget, limit, err));
    *ret = share;
    csn_expert_options eo = {
        .cache_bytes = share.cache_bytes, .least_bytes = plan.min_cache_bytes, .io = io[o->io]};
    csn_log log = log_of(o);
    if (trunk != NULL) {
        CSN_TRY(csn_trunk_start(trunk, share.trunk_bytes, io[o->io], err));
    }
    if (stream == NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_stream_start(stream, &eo, err));
    return csn_stream_recall(stream, csn_fs_os(), &log, err);
}

caisson_status caisson_model_save_usage(caisson_model *model, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(model != NULL, err, "model must not be NULL");
    csn_stream *stream = model->store != NULL ? csn_store_stream(model->store) : NULL;
    if (stream == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = model->path,
                        .what = "the model has no experts that are streamed");
    }
    csn_stream_claim(stream);
    caisson_status status = csn_stream_learn(stream, csn_fs_os(), err);
    csn_stream_release(stream);
    return status;
}

caisson_status csn_api_store(const csn_api_container *c, const caisson_open_options *o,
                             csn_store **ret, caisson_error *err) {
    /* pages of a mapping would stay beside what is read of a trunk */
    csn_store_options so = {.no_mmap = o->no_mmap || o->stream_trunk,
                            .guard_mappings = o->guard_mappings,
                            .verify = o->verify,
                            .reads_rows =
                                c->warp != NULL || o->budget_bytes != 0 || o->stream_trunk};
    return c->warp != NULL ? csn_store_new_warp(c->warp, &so, ret, err)
                           : csn_store_new(c->cmf, &so, ret, err);
}

void csn_api_container_close(csn_api_container *c) {
    csn_cmf_close(c->cmf);
    csn_warp_close(c->warp);
    *c = (csn_api_container){0};
}

caisson_status csn_api_need_cmf(const caisson_model *model, const csn_cmf **ret,
                                caisson_error *err) {
    if (model->files.cmf == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = model->path,
                        .what = "only a .cmf file holds masks and skills");
    }
    *ret = model->files.cmf;
    return CAISSON_OK;
}

static void copy_stats(const csn_expert_stats *s, caisson_expert_stats *ret) {
    ret->hits = s->hits;
    ret->misses = s->misses;
    ret->reads = s->reads;
    ret->bytes = s->bytes;
    ret->ahead_reads = s->ahead;
    ret->ahead_bytes = s->ahead_bytes;
    ret->ahead_used_reads = s->ahead_used;
    ret->ahead_used_bytes = s->ahead_used_bytes;
    _Static_assert(CAISSON_EXPERT_GUESSES == CSN_EXPERT_GUESSES, "places of guesses");
    memcpy(ret->guessed, s->guessed, sizeof(ret->guessed));
    memcpy(ret->guessed_right, s->guessed_right, sizeof(ret->guessed_right));
    ret->stall_s = (double)s->stall_ns * 1e-9;
    ret->read_s = (double)s->read_ns * 1e-9;
}

caisson_status caisson_model_expert_stats(const caisson_model *model, uint32_t i_layer,
                                          caisson_expert_stats *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(model != NULL && ret != NULL, err, "model and ret must not be NULL");
    csn_stream *stream = model->store != NULL ? csn_store_stream(model->store) : NULL;
    caisson_expert_stats out = {0};
    if (stream != NULL) {
        csn_experts *e = csn_stream_experts(stream);
        csn_expert_stats s;
        out.n_layers = csn_stream_n_layers(stream);
        CSN_API_NEED(i_layer == UINT32_MAX || i_layer < out.n_layers, err,
                     "fewer layers have routed experts");
        if (i_layer == UINT32_MAX) {
            csn_experts_stats_all(e, &s);
        } else {
            csn_experts_stats(e, i_layer, &s);
            out.layer = csn_stream_layer_id(stream, i_layer);
        }
        copy_stats(&s, &out);
        out.io = csn_experts_io_text(e);
        out.cache_bytes = csn_stream_cache_bytes(stream);
    }
    *ret = out;
    return CAISSON_OK;
}

caisson_status caisson_model_trunk_stats(const caisson_model *model, caisson_trunk_stats *ret,
                                         caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(model != NULL && ret != NULL, err, "model and ret must not be NULL");
    csn_trunk *trunk = model->store != NULL ? csn_store_trunk(model->store) : NULL;
    caisson_trunk_stats out = {0};
    if (trunk != NULL) {
        csn_trunk_stats s;
        csn_trunk_get_stats(trunk, &s);
        out = (caisson_trunk_stats){.n_parts = s.n_parts,
                                    .n_kept = s.n_kept,
                                    .reads = s.reads,
                                    .bytes = s.bytes,
                                    .stall_s = (double)s.stall_ns * 1e-9,
                                    .io = csn_trunk_io_text(trunk)};
    }
    *ret = out;
    return CAISSON_OK;
}
