/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/variant.h"

#include "model/packed.h"

static const csn_cmf *cmf_of(const csn_variants *v) {
    return csn_store_cmf(csn_model_store(v->model));
}

caisson_status csn_variants_init(csn_model *model, const char *task, csn_variants *ret,
                                 caisson_error *err) {
    csn_variants v = {.model = model, .has_task = task != NULL};
    v.n = 1 + cmf_of(&v)->n_skills;
    caisson_status s = CSN_ARENA_NEW(&v.arena, v.n, &v.list, err);
    if (s == CAISSON_OK && v.has_task) {
        s = csn_arena_str(&v.arena, csn_str_from(task), &v.task, err);
    }
    if (s != CAISSON_OK) {
        csn_arena_done(&v.arena);
        return s;
    }
    *ret = v;
    return CAISSON_OK;
}

static void drop_blend(csn_variants *v) {
    csn_active_free(v->blend.active);
    v->blend = (csn_variant){0};
    csn_arena_done(&v->blend_arena);
}

void csn_variants_done(csn_variants *v) {
    for (uint32_t i = 0; i < v->n; i++) {
        csn_active_free(v->list[i].active);
    }
    drop_blend(v);
    csn_arena_done(&v->arena);
    *v = (csn_variants){0};
}

/* The mask that the task and the skill ask for; NULL = none. */
static caisson_status find_mask(const csn_variants *v, const csn_cmf_skill *skill,
                                const csn_cmf_mask **ret, caisson_error *err) {
    const csn_cmf_masks *masks = &cmf_of(v)->masks;
    *ret = NULL;
    if (v->has_task) {
        return v->task.len == 0 ? CAISSON_OK : csn_cmf_find_mask(masks, v->task, ret, err);
    }
    if (skill != NULL && skill->input_mask_task.len > 0) {
        caisson_status status = csn_cmf_find_mask(masks, skill->input_mask_task, ret, err);
        if (status == CAISSON_E_MISSING) {
            return CSN_FAIL(err, CAISSON_E_MISSING, .section = "header", .tensor = skill->id,
                            .what = "the skill's input_mask_task is no mask of the file (task "
                                    "\"none\" runs without)",
                            .got = skill->input_mask_task);
        }
        return status;
    }
    for (uint32_t i = 0; i < masks->n; i++) {
        if (csn_str_eq(masks->masks[i].name, masks->default_task)) {
            return csn_cmf_find_mask(masks, masks->default_task, ret, err);
        }
    }
    return CAISSON_OK;
}

struct copy {
    csn_active *active;
    const csn_plan *plan;
};

static caisson_status make_copies(void *ctx, caisson_error *err) {
    const struct copy *c = ctx;
    return csn_packed_make(c->active, c->plan, err);
}

/* Copies of what the mask leaves, where they fit. Of the backbone alone: skills are many, and their
 * weights their own. */
static caisson_status pack(const csn_variants *v, csn_active *active, caisson_error *err) {
    const csn_plan *plan = csn_model_plan(v->model);
    uint64_t nbytes;
    CSN_TRY(csn_packed_nbytes(active, plan, &nbytes, err));
    if (plan->trunk != NULL || nbytes > csn_model_max_packed(v->model)) {
        return CAISSON_OK;
    }
    struct copy c = {active, plan};
    return csn_store_guarded(csn_model_store(v->model), make_copies, &c, err);
}

/* Fills an entry whose plan is known; on failure it stays as it was. */
static caisson_status resolve(const csn_variants *v, const csn_plan *plan,
                              const csn_cmf_skill *skill, csn_variant *ret, caisson_error *err) {
    csn_variant found = {.plan = plan};
    if (skill != NULL) {
        found.skill = skill->id;
    }
    CSN_TRY(find_mask(v, skill, &found.mask, err));
    if (found.mask != NULL) {
        CSN_TRY(csn_active_new(plan, csn_model_arch(v->model), found.mask, &found.active, err));
    }
    if (found.active != NULL && plan == csn_model_plan(v->model)) {
        caisson_status status = pack(v, found.active, err);
        if (status != CAISSON_OK) {
            csn_active_free(found.active);
            return status;
        }
    }
    *ret = found;
    return CAISSON_OK;
}

caisson_status csn_variants_get(csn_variants *v, csn_str id, const csn_variant **ret,
                                caisson_error *err) {
    const csn_cmf_skill *skill = NULL;
    const csn_plan *plan = csn_model_plan(v->model);
    csn_variant *entry = &v->list[0];
    if (id.len > 0) {
        CSN_TRY(csn_cmf_find_skill(cmf_of(v), id, &skill, err));
        entry = &v->list[1 + (skill - cmf_of(v)->skills)];
    }
    if (entry->plan == NULL) {
        if (skill != NULL) {
            CSN_TRY(csn_model_skill_plan(v->model, skill, &plan, err));
        }
        CSN_TRY(resolve(v, plan, skill, entry, err));
    }
    *ret = entry;
    return CAISSON_OK;
}

caisson_status csn_variants_blend(csn_variants *v, const csn_plan_part *parts, uint32_t n,
                                  const csn_variant **ret, caisson_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        const csn_cmf_skill *skill;
        CSN_TRY(csn_cmf_find_skill(cmf_of(v), parts[i].skill, &skill, err));
    }
    drop_blend(v);
    csn_store *store = csn_model_store(v->model);
    CSN_TRY(csn_plan_make(store, parts, n, &v->blend_arena, &v->blend_plan, err));
    CSN_TRY(resolve(v, &v->blend_plan, NULL, &v->blend, err));
    *ret = &v->blend;
    return CAISSON_OK;
}
