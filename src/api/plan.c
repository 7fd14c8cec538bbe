/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of memory, and a moment of reading experts to see what the disk gives. */
#include "api_internal.h"

#include "base/clock.h"
#include "base/limits.h"

enum {
    PROBE_MS = 300,
    PROBE_LIST = 8,        /* experts of a list */
    PROBE_CACHE = 32 << 20 /* bytes, or four slots: so much that reads run beside one another */
};

caisson_status csn_api_memplan(csn_store *store, uint32_t n_ctx, caisson_kv_type type_k,
                               caisson_kv_type type_v, const csn_memplan_skills *skills,
                               csn_memplan *ret, caisson_error *err) {
    CSN_API_NEED((unsigned)type_k <= CAISSON_KV_Q8_0 && (unsigned)type_v <= CAISSON_KV_Q8_0, err,
                 "type_k or type_v is not one of caisson_kv_type");
    return csn_memplan_make(store, n_ctx, csn_api_kv_type(type_k), csn_api_kv_type(type_v), skills,
                            ret, err);
}

/* Some experts of a layer by rising id, others each time. */
static uint32_t probe_list(uint32_t n_experts, uint32_t *seed, uint32_t ids[PROBE_LIST]) {
    uint32_t n = 0;
    for (uint32_t id = 0; id < n_experts && n < PROBE_LIST; id++) {
        *seed = *seed * 1664525 + 1013904223;
        if ((uint64_t)(*seed >> 8) * n_experts < (uint64_t)PROBE_LIST << 24) {
            ids[n++] = id;
        }
    }
    return n;
}

static caisson_status read_list(csn_experts *e, uint32_t i_layer, const uint32_t *ids, uint32_t n,
                                caisson_error *err) {
    const uint8_t *pieces[CSN_EXPERT_MAX_PIECES];
    caisson_status status = CAISSON_OK;
    csn_experts_want(e, i_layer, ids, n, NULL);
    for (uint32_t i = 0; i < n && status == CAISSON_OK; i++) {
        uint32_t id;
        status = csn_experts_take(e, &id, pieces, err);
    }
    csn_experts_done(e);
    return status;
}

/* Bytes a second at which experts come from the disk, lists of them as a token asks for. */
static caisson_status probe(csn_stream *stream, const csn_memplan *p, double *ret,
                            caisson_error *err) {
    const csn_expert_map *map = csn_stream_map(stream);
    csn_expert_options o = {.cache_bytes = p->all_cache_bytes / 4}; /* most has to be read */
    uint64_t least;
    CSN_TRY(csn_expert_min_cache(map, 1, &least, err));
    o.cache_bytes = o.cache_bytes < PROBE_CACHE ? o.cache_bytes : PROBE_CACHE;
    o.cache_bytes = o.cache_bytes > least ? o.cache_bytes : least;
    CSN_TRY(csn_stream_start(stream, &o, err));
    csn_experts *e = csn_stream_experts(stream);
    uint32_t seed = 1;
    uint64_t start = csn_now_ns();
    uint64_t ns = 0;
    for (uint32_t l = 0; ns < PROBE_MS * UINT64_C(1000000); l = (l + 1) % map->n_layers) {
        uint32_t ids[PROBE_LIST];
        uint32_t n = probe_list(map->n_experts[l], &seed, ids);
        CSN_TRY(read_list(e, l, ids, n, err));
        ns = csn_now_ns() - start;
    }
    csn_expert_stats s;
    csn_experts_stats_all(e, &s);
    *ret = s.read_ns > 0 ? (double)s.bytes * 1e9 / (double)s.read_ns : 0;
    return CAISSON_OK;
}

/* The same of layers, where there are no experts. */
static caisson_status probe_trunk(csn_store *store, csn_trunk *trunk, double *ret,
                                  caisson_error *err) {
    uint32_t n_layers = csn_store_arch(store)->n_layers;
    CSN_TRY(csn_trunk_start(trunk, csn_trunk_min_bytes(trunk), CSN_EXPERT_IO_AUTO, err));
    uint64_t start = csn_now_ns();
    uint64_t ns = 0;
    for (uint32_t i = 0; ns < PROBE_MS * UINT64_C(1000000); i = (i + 1) % n_layers) {
        CSN_TRY(csn_trunk_use(trunk, i, (i + 1) % n_layers, NULL, err));
        ns = csn_now_ns() - start;
    }
    csn_trunk_stats s;
    csn_trunk_get_stats(trunk, &s);
    *ret = (double)s.bytes * 1e9 / (double)ns;
    return CAISSON_OK;
}

static caisson_status make_plan(csn_store *store, const caisson_plan_options *o,
                                caisson_memory_plan *ret, caisson_error *err) {
    csn_stream *stream;
    csn_memplan p = {0};
    csn_memplan_share share;
    CSN_TRY(csn_stream_new(store, &(csn_stream_options){0}, &stream, err));
    csn_store_set_stream(store, stream);
    csn_trunk *trunk = NULL;
    if (o->stream_trunk) {
        CSN_TRY(csn_trunk_new(store, false, &trunk, err));
        csn_store_set_trunk(store, trunk);
    }
    csn_memplan_skills skills = {csn_str_from(o->skill), o->blends};
    CSN_TRY(csn_api_memplan(store, o->n_ctx, o->type_k, o->type_v, &skills, &p, err));
    csn_memory_limit limit = csn_memory_limit_get();
    uint64_t budget = o->budget_bytes != 0 ? o->budget_bytes : csn_memplan_choose(&p, limit.bytes);
    CSN_TRY(csn_memplan_split(&p, budget, &share, err));
    caisson_memory_plan plan = {
        .n_ctx = p.n_ctx,
        .weights_bytes = p.weights_bytes,
        .skill_bytes = p.skill_bytes,
        .kv_bytes = p.kv_bytes,
        .buffer_bytes = p.buffer_bytes[0],
        .min_cache_bytes = p.min_cache_bytes,
        .min_trunk_bytes = p.min_trunk_bytes,
        .floor_bytes = p.floor_bytes,
        .resident_bytes = p.resident_bytes,
        .table_bytes = p.table_bytes,
        .limit_bytes = limit.bytes,
        .limit_by = limit.by,
        .budget_bytes = budget,
        .fits = csn_memplan_takes(&p, budget) <= limit.bytes,
        .cache_bytes = share.cache_bytes,
        .trunk_bytes = share.trunk_bytes,
        .mask_bytes = share.mask_bytes,
        .bytes_per_token = p.bytes_per_token,
    };
    if (p.all_cache_bytes > 0) {
        double missing = 1.0 - (double)share.cache_bytes / (double)p.all_cache_bytes;
        plan.read_bytes_per_token = (uint64_t)((double)p.bytes_per_token * missing);
    }
    if (trunk != NULL) {
        plan.read_trunk_bytes_per_token = csn_trunk_reread_bytes(trunk, share.trunk_bytes);
    }
    if (!o->no_probe && stream != NULL) {
        CSN_TRY(probe(stream, &p, &plan.disk_bytes_per_s, err));
    } else if (!o->no_probe && trunk != NULL) {
        CSN_TRY(probe_trunk(store, trunk, &plan.disk_bytes_per_s, err));
    }
    uint64_t read = plan.read_bytes_per_token + plan.read_trunk_bytes_per_token;
    if (read > 0) {
        plan.tokens_per_s = plan.disk_bytes_per_s / (double)read;
    }
    *ret = plan;
    return CAISSON_OK;
}

static caisson_status open_and_plan(const char *path, const caisson_plan_options *o,
                                    caisson_memory_plan *ret, caisson_error *err) {
    /* as a model that is run under some budget */
    const caisson_open_options open = {.no_mmap = true, .budget_bytes = UINT64_MAX};
    csn_api_container files = {0};
    csn_api_signed is_signed = {0};
    csn_store *store;
    CSN_TRY(csn_api_open_container(path, &open, &files, &is_signed, err));
    caisson_status status = csn_api_store(&files, &open, &store, err);
    if (status != CAISSON_OK) {
        csn_api_container_close(&files);
        return status;
    }
    status = make_plan(store, o, ret, err);
    csn_store_free(store);
    return status;
}

caisson_status caisson_plan(const char *path, const caisson_plan_options *options,
                            caisson_memory_plan *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && ret != NULL, err, "path and ret must not be NULL");
    caisson_plan_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    caisson_status status = open_and_plan(path, &o, ret, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}
