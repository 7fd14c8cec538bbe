/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/memplan.h"

#include "base/alloc.h"
#include "base/size.h"
#include "engine/session.h"
#include "model/forward.h"
#include "model/packed.h"

enum { PLAN_THREADS = 32, GROWTH_SHARE = 8 /* of what is above the floor, for longer cuts */ };

/* A tensor that is in memory, and what is unpacked of it. */
static uint64_t bytes_of(const csn_store *store, const csn_tensor *t) {
    const uint64_t unpacked = csn_store_unpacked_bytes(store, t);
    return csn_alloc_aligned_nbytes(t->nbytes) +
           (unpacked == 0 ? 0 : csn_alloc_aligned_nbytes(unpacked));
}

static uint64_t sum_weights(const csn_store *store) {
    const csn_directory *dir = csn_store_dir(store);
    const csn_stream *stream = csn_store_stream(store);
    const csn_trunk *trunk = csn_store_trunk(store);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < dir->n; i++) {
        bool is_elsewhere = (stream != NULL && csn_stream_has(stream, i)) ||
                            (trunk != NULL && csn_trunk_has(trunk, i)) ||
                            csn_store_has_rows(store, &dir->tensors[i]) ||
                            csn_str_starts(dir->tensors[i].name, CSN_STR("skill."));
        sum += is_elsewhere ? 0 : bytes_of(store, &dir->tensors[i]);
    }
    return sum; /* of parts of files: it fits */
}

/* What is read row by row and stays in memory where nothing is. */
static uint64_t sum_tables(const csn_store *store) {
    const csn_directory *dir = csn_store_dir(store);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < dir->n; i++) {
        const csn_tensor *t = &dir->tensors[i];
        sum += csn_store_has_rows(store, t) ? bytes_of(store, t) : 0;
    }
    return sum;
}

/* What skills add: their tensors, and of a blend the sums of all tensors that it may replace. */
static caisson_status count_skills(const csn_store *store, const csn_memplan_skills *skills,
                                   uint64_t *ret, caisson_error *err) {
    const csn_cmf *c = csn_store_cmf(store);
    const csn_directory *dir = csn_store_dir(store);
    bool all = csn_str_is(skills->id, "*");
    const csn_cmf_skill *only = NULL;
    bool *is_summed;
    csn_arena arena = {0};
    uint64_t sum = 0;
    if (skills->id.len > 0 && !all) {
        CSN_TRY(csn_cmf_find_skill(c, skills->id, &only, err));
    }
    CSN_TRY(CSN_ARENA_NEW(&arena, dir->n, &is_summed, err));
    for (uint32_t i = 0; i < dir->n; i++) {
        csn_str rest;
        uint64_t n;
        const csn_cmf_skill *skill = csn_cmf_skill_of(c, dir->tensors[i].name, &rest);
        if (skill == NULL || !(all || skill == only)) {
            continue;
        }
        sum += bytes_of(store, &dir->tensors[i]); /* parts of files: it fits */
        const csn_tensor *base = csn_directory_find(dir, rest);
        bool is_new = skills->blends && base != NULL && !is_summed[base - dir->tensors];
        if (is_new && csn_shape_count(&base->shape, &n)) {
            is_summed[base - dir->tensors] = true;
            sum =
                csn_add(sum, csn_alloc_aligned_nbytes(n * sizeof(float)), &sum) ? sum : UINT64_MAX;
        }
    }
    csn_arena_done(&arena);
    *ret = sum;
    return CAISSON_OK;
}

static uint64_t count_buffers(const csn_plan *plan, uint32_t n_ctx, uint32_t n_ubatch) {
    static const csn_compute modes[] = {CSN_COMPUTE_F32, CSN_COMPUTE_INT8};
    uint64_t most = 0;
    for (int i = 0; i < 2; i++) {
        uint32_t n = csn_session_max_ubatch(plan, modes[i], n_ctx, n_ubatch);
        uint64_t bytes = csn_forward_nbytes(plan, PLAN_THREADS, modes[i], n);
        most = bytes > most ? bytes : most;
    }
    uint64_t logits = (uint64_t)CSN_LOGIT_ROWS * plan->vocab * sizeof(float);
    return csn_add(most, logits, &most) ? most : UINT64_MAX;
}

/* Bytes of the experts that one token uses in a layer, from the sum of all of them. */
static uint64_t bytes_of_token(const csn_expert_map *map, const csn_plan *plan) {
    const csn_expert_piece *piece = map->pieces;
    uint64_t sum = 0;
    for (uint32_t l = 0; l < map->n_layers; l++) {
        uint64_t layer = 0;
        for (uint64_t i = 0; i < (uint64_t)map->n_experts[l] * map->n_pieces; i++) {
            layer += (piece++)->nbytes;
        }
        const csn_moe *moe = plan->layers[map->layer_ids[l]].moe;
        sum += moe != NULL ? layer / map->n_experts[l] * moe->top_k : 0;
    }
    return sum * plan->n_loops;
}

static caisson_status count_experts(const csn_stream *stream, const csn_plan *plan, csn_memplan *p,
                                    caisson_error *err) {
    const csn_expert_map *map = csn_stream_map(stream);
    CSN_TRY(csn_expert_min_cache(map, plan->max_top_k, &p->min_cache_bytes, err));
    CSN_TRY(csn_expert_min_cache(map, UINT32_MAX, &p->all_cache_bytes, err));
    p->bytes_per_token = bytes_of_token(map, plan);
    return CAISSON_OK;
}

/* The most that the copies of one of the file's masks take. Masks that no session could choose
 * count for nothing. */
static uint64_t count_copies(const csn_store *store, const csn_plan *plan) {
    const csn_cmf_masks *masks = &csn_store_cmf(store)->masks;
    uint64_t most = 0;
    for (uint32_t i = 0; i < masks->n && csn_store_trunk(store) == NULL; i++) {
        caisson_error err;
        csn_active *a = NULL;
        uint64_t n = 0;
        if (csn_active_new(plan, csn_store_arch(store), &masks->masks[i], &a, &err) == CAISSON_OK &&
            a != NULL && csn_packed_nbytes(a, plan, &n, &err) == CAISSON_OK) {
            most = n > most ? n : most;
        }
        csn_active_free(a);
    }
    return most;
}

static caisson_status add_up(csn_memplan *p, caisson_error *err) {
    uint64_t fixed;
    if (!csn_add(p->weights_bytes, p->kv_bytes, &fixed) ||
        !csn_add(fixed, p->skill_bytes, &fixed) ||
        !csn_add(fixed, p->buffer_bytes[0], &p->floor_bytes) ||
        !csn_add(p->floor_bytes, p->min_cache_bytes, &p->floor_bytes) ||
        !csn_add(p->floor_bytes, p->min_trunk_bytes, &p->floor_bytes) ||
        !csn_add(fixed, p->all_trunk_bytes, &fixed) ||
        !csn_add(fixed, p->buffer_bytes[CSN_MEMPLAN_CUTS - 1], &p->resident_bytes) ||
        !csn_add(p->resident_bytes, p->all_cache_bytes, &p->resident_bytes) ||
        !csn_add(p->resident_bytes, p->mask_bytes, &p->resident_bytes)) {
        return csn_fail_nomem(err, UINT64_MAX);
    }
    return CAISSON_OK;
}

static caisson_status measure(const csn_plan *plan, const csn_store *store, csn_kv_type type_k,
                              csn_kv_type type_v, csn_memplan *p, caisson_error *err) {
    p->weights_bytes = sum_weights(store);
    p->table_bytes = sum_tables(store);
    CSN_TRY(csn_kv_nbytes(plan, p->n_ctx, type_k, type_v, &p->kv_bytes, err));
    for (uint32_t i = 0; i < CSN_MEMPLAN_CUTS; i++) {
        p->buffer_bytes[i] = count_buffers(plan, p->n_ctx, CSN_MEMPLAN_MIN_UBATCH << i);
    }
    if (csn_store_trunk(store) != NULL) {
        p->min_trunk_bytes = csn_trunk_min_bytes(csn_store_trunk(store));
        p->all_trunk_bytes = csn_trunk_all_bytes(csn_store_trunk(store));
    }
    if (csn_store_stream(store) != NULL) {
        CSN_TRY(count_experts(csn_store_stream(store), plan, p, err));
    }
    p->mask_bytes = count_copies(store, plan);
    return add_up(p, err);
}

caisson_status csn_memplan_make(csn_store *store, uint32_t n_ctx, csn_kv_type type_k,
                                csn_kv_type type_v, const csn_memplan_skills *skills,
                                csn_memplan *ret, caisson_error *err) {
    csn_arena arena = {0};
    csn_plan plan;
    csn_memplan p = {.n_ctx = csn_session_choose_ctx(csn_store_arch(store), n_ctx)};
    CSN_TRY(count_skills(store, skills, &p.skill_bytes, err));
    csn_store_set_dry(store, true);
    caisson_status status = csn_plan_make(store, NULL, 0, &arena, &plan, err);
    csn_store_set_dry(store, false);
    if (status == CAISSON_OK) {
        status = measure(&plan, store, type_k, type_v, &p, err);
    }
    csn_arena_done(&arena);
    if (status == CAISSON_OK) {
        *ret = p;
    }
    return status;
}

uint64_t csn_memplan_choose(const csn_memplan *p, uint64_t limit) {
    uint64_t most = limit - limit / 4;
    uint64_t budget = p->resident_bytes < most ? p->resident_bytes : most;
    return budget > p->floor_bytes ? budget : p->floor_bytes;
}

uint64_t csn_memplan_takes(const csn_memplan *p, uint64_t budget) {
    return budget < p->resident_bytes ? budget : p->resident_bytes;
}

caisson_status csn_memplan_fits(const csn_memplan *p, uint64_t budget, uint64_t limit,
                                caisson_error *err) {
    uint64_t takes = csn_memplan_takes(p, budget);
    if (takes > limit) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "memory",
                        .what =
                            "the machine, a control group or a limit of this process gives less "
                            "memory than the model would take (bytes)",
                        CSN_VALUES(limit, takes));
    }
    return CAISSON_OK;
}

static uint64_t growth(const csn_memplan *p, uint32_t i) {
    return p->buffer_bytes[i] - p->buffer_bytes[0];
}

/* Larger buffers take little of what the cache could have, or what it has no use for. */
static bool is_affordable(const csn_memplan *p, uint64_t above, uint64_t bytes) {
    uint64_t useful = p->all_cache_bytes - p->min_cache_bytes;
    return bytes <= above / GROWTH_SHARE || (bytes <= above && above - bytes >= useful);
}

caisson_status csn_memplan_split(const csn_memplan *p, uint64_t budget, csn_memplan_share *ret,
                                 caisson_error *err) {
    if (budget < p->floor_bytes) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "budget",
                        .what = "the model does not run in so little memory (bytes)",
                        CSN_VALUES(p->floor_bytes, budget));
    }
    uint64_t above = budget - p->floor_bytes;
    uint64_t trunk = p->all_trunk_bytes - p->min_trunk_bytes;
    trunk = trunk < above ? trunk : above;
    above -= trunk;
    uint32_t i = CSN_MEMPLAN_CUTS - 1;
    while (i > 0 && !is_affordable(p, above, growth(p, i))) {
        i--;
    }
    above -= growth(p, i);
    uint64_t cache = p->all_cache_bytes - p->min_cache_bytes;
    cache = cache < above ? cache : above;
    above -= cache;
    *ret = (csn_memplan_share){
        .cache_bytes = p->min_cache_bytes + cache,
        .trunk_bytes = p->min_trunk_bytes + trunk,
        .mask_bytes = p->mask_bytes < above ? p->mask_bytes : above,
        .n_ubatch = CSN_MEMPLAN_MIN_UBATCH << i,
    };
    return CAISSON_OK;
}
