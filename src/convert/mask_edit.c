/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/mask_edit.h"

#include "base/alloc.h"
#include "caisson/limits.h"

/* The masks of a file with room for one more, and the file claimed for writing. */
typedef struct edit {
    csn_cmf_append *append;
    const csn_cmf *cmf;
    csn_cmf_masks masks;
    csn_arena arena;
} edit;

static caisson_status begin(csn_fs *fs, const char *path, edit *ret, caisson_error *err) {
    edit e = {0};
    csn_cmf *model;
    CSN_TRY(csn_cmf_append_begin_model(fs, path, &e.append, &model, err));
    csn_cmf_close(model);
    e.cmf = csn_cmf_append_cmf(e.append);
    e.masks = e.cmf->masks;
    caisson_status status = CSN_ARENA_NEW(&e.arena, (size_t)e.masks.n + 1, &e.masks.masks, err);
    if (status != CAISSON_OK) {
        csn_cmf_append_close(e.append);
        return status;
    }
    for (uint32_t i = 0; i < e.masks.n; i++) {
        e.masks.masks[i] = e.cmf->masks.masks[i];
    }
    *ret = e;
    return CAISSON_OK;
}

static caisson_status commit(edit *e, caisson_error *err) {
    csn_buf section = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    caisson_status status = csn_cmf_masks_write(&e->masks, &e->cmf->arch, &section, err);
    if (status == CAISSON_OK) {
        status = csn_cmf_append_masks(e->append, csn_buf_view(&section), err);
    }
    if (status == CAISSON_OK) {
        status = csn_cmf_append_commit(e->append, err);
    }
    csn_buf_free(&section);
    return status;
}

static void end(edit *e) {
    csn_cmf_append_close(e->append);
    csn_arena_done(&e->arena);
}

/* Where a mask is among the file's; CAISSON_E_MISSING lists names. */
static caisson_status find(const edit *e, csn_str name, uint32_t *ret, caisson_error *err) {
    const csn_cmf_mask *m;
    CSN_TRY(csn_cmf_find_mask(&e->cmf->masks, name, &m, err));
    *ret = (uint32_t)(m - e->cmf->masks.masks);
    return CAISSON_OK;
}

static bool has_mask(const csn_cmf_masks *masks, csn_str name) {
    for (uint32_t i = 0; i < masks->n; i++) {
        if (csn_str_eq(masks->masks[i].name, name)) {
            return true;
        }
    }
    return false;
}

caisson_status csn_mask_check_new(const csn_cmf_masks *masks, csn_str name, caisson_error *err) {
    return has_mask(masks, name)
               ? CSN_FAIL(err, CAISSON_E_EXISTS, .section = "masks", .tensor = name,
                          .what = "the file has a mask of this name")
               : CAISSON_OK;
}

static uint32_t free_id(const csn_cmf_masks *masks) {
    uint32_t id = 0;
    for (uint32_t i = 0; i < masks->n; i++) {
        uint32_t used = masks->masks[i].task_id;
        id = used >= id && used < UINT32_MAX ? used + 1 : id;
    }
    return id;
}

static caisson_status put(edit *e, const csn_cmf *then, const csn_cmf_mask *mask,
                          const csn_mask_put_options *options, caisson_error *err) {
    csn_cmf_masks *all = &e->masks;
    uint32_t i = all->n;
    uint32_t id = free_id(all);
    CSN_TRY(csn_cmf_append_check_same(e->append, then, err));
    if (!options->replace) {
        CSN_TRY(csn_mask_check_new(all, mask->name, err));
    }
    if (has_mask(all, mask->name)) {
        CSN_TRY(find(e, mask->name, &i, err));
        id = all->masks[i].task_id;
    }
    all->n += i == all->n;
    all->masks[i] = *mask;
    all->masks[i].task_id = id;
    if (options->make_default) {
        all->default_task = mask->name;
    } else if (all->default_task.ptr == NULL) {
        all->default_task = CSN_STR("general"); /* the reference's; of no mask */
    }
    return commit(e, err);
}

caisson_status csn_mask_put(csn_fs *fs, const char *path, const csn_cmf *then,
                            const csn_cmf_mask *mask, const csn_mask_put_options *options,
                            caisson_error *err) {
    edit e;
    CSN_TRY(begin(fs, path, &e, err));
    caisson_status status = put(&e, then, mask, options, err);
    end(&e);
    return status;
}

caisson_status csn_mask_set_quality(csn_fs *fs, const char *path, csn_str name, csn_str json,
                                    caisson_error *err) {
    csn_json *doc;
    edit e;
    uint32_t i;
    CSN_TRY(csn_json_parse(json, 0, &doc, err));
    caisson_status status = begin(fs, path, &e, err);
    if (status == CAISSON_OK) {
        status = find(&e, name, &i, err);
        if (status == CAISSON_OK) {
            e.masks.masks[i].quality = csn_json_root(doc);
            status = commit(&e, err);
        }
        end(&e);
    }
    csn_json_free(doc);
    return status;
}

/* No skill runs under the mask: without it that skill would not run any more. */
static caisson_status check_unused(const edit *e, csn_str name, caisson_error *err) {
    for (uint32_t i = 0; i < e->cmf->n_skills; i++) {
        if (csn_str_eq(e->cmf->skills[i].input_mask_task, name)) {
            return CSN_FAIL(err, CAISSON_E_ARG, .section = "masks", .tensor = name,
                            .what = "a skill of the file runs under this mask: remove the skill "
                                    "first",
                            .got = e->cmf->skills[i].id);
        }
    }
    return CAISSON_OK;
}

caisson_status csn_mask_remove(csn_fs *fs, const char *path, csn_str name, caisson_error *err) {
    edit e;
    uint32_t i;
    CSN_TRY(begin(fs, path, &e, err));
    caisson_status status = find(&e, name, &i, err);
    if (status == CAISSON_OK) {
        status = check_unused(&e, name, err);
    }
    if (status == CAISSON_OK) {
        csn_cmf_mask *at = &e.masks.masks[i];
        e.masks.n--;
        memmove(at, at + 1, (e.masks.n - i) * sizeof(*at));
        status = commit(&e, err);
    }
    end(&e);
    return status;
}
