/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a skill out of a model. Of shards several may have to change: the first one's envelope is
 * what takes the skill out, for it then lists the id under CSN_CMF_REMOVED_SKILLS, and whatever
 * tensors other shards still have of it are nobody's. Killed behind that, the same removal goes on.
 */
#include "caisson/limits.h"
#include "convert/skill_add.h"
#include "convert/skill_internal.h"

static bool is_of(const csn_cmf *c, csn_str tensor, csn_str id) {
    csn_str own, name;
    return csn_cmf_skill_name(c, tensor, &own, &name) && csn_str_eq(own, id);
}

/* Drops the records of the skill's tensors in one file of the model. */
static caisson_status drop_tensors(csn_cmf_append *a, const csn_cmf *model, uint32_t i_file,
                                   csn_str id, caisson_error *err) {
    for (uint32_t i = 0; i < model->dir.n; i++) {
        const csn_tensor *t = &model->dir.tensors[i];
        if (t->i_file == i_file && is_of(model, t->name, id)) {
            CSN_TRY(csn_cmf_append_remove(a, t->name, err));
        }
    }
    return CAISSON_OK;
}

static bool has_tensors(const csn_cmf *model, uint32_t i_file, csn_str id) {
    for (uint32_t i = 0; i < model->dir.n; i++) {
        const csn_tensor *t = &model->dir.tensors[i];
        if (t->i_file == i_file && is_of(model, t->name, id)) {
            return true;
        }
    }
    return false;
}

/* The list of removed skills with or without this one. */
static caisson_status put_removed(const csn_cmf *c, csn_str id, bool with, csn_buf *out,
                                  caisson_error *err) {
    csn_jw w = csn_jw_begin(out, err);
    csn_jw_array(&w);
    for (csn_jiter it = csn_jval_iter(csn_jval_get(c->header, CSN_CMF_REMOVED_SKILLS));
         csn_jiter_next(&it);) {
        csn_str other;
        if (csn_jval_str(it.value, &other) && !csn_str_eq(other, id)) {
            csn_jw_str(&w, other);
        }
    }
    if (with) {
        csn_jw_str(&w, id);
    }
    csn_jw_array_end(&w);
    return csn_jw_end(&w);
}

/* The first file without the skill's record, and with or without its id among the removed. */
static caisson_status change_first(csn_cmf_append *a, csn_str id, bool is_removed,
                                   caisson_error *err) {
    csn_buf removed = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    caisson_status s = put_removed(csn_cmf_append_cmf(a), id, is_removed, &removed, err);
    if (s == CAISSON_OK) {
        s = csn_skill_edit_record(a, id, (csn_str){0}, &removed, err);
    }
    if (s == CAISSON_OK) {
        s = csn_cmf_append_commit(a, err);
    }
    csn_buf_free(&removed);
    return s;
}

static caisson_status take_out(csn_cmf_append *a, const csn_cmf *model, csn_str id, bool is_spread,
                               caisson_error *err) {
    const csn_cmf_skill *skill;
    CSN_TRY(csn_skill_check_model(model, err));
    if (!csn_cmf_is_removed_skill(model, id)) {
        CSN_TRY(csn_cmf_find_skill(model, id, &skill, err));
    }
    CSN_TRY(drop_tensors(a, model, 0, id, err));
    return change_first(a, id, is_spread, err);
}

static caisson_status clean_shard(csn_fs *fs, const csn_cmf *model, uint32_t i_file, csn_str id,
                                  caisson_error *err) {
    const csn_cmf *file = csn_cmf_file_of(model, i_file);
    csn_cmf_append *a;
    CSN_TRY(csn_cmf_append_begin(fs, file->file->path, &a, err));
    caisson_status s = csn_cmf_append_check_same(a, file, err);
    if (s == CAISSON_OK) {
        s = drop_tensors(a, model, i_file, id, err);
    }
    if (s == CAISSON_OK) {
        s = csn_cmf_append_commit(a, err);
    }
    csn_cmf_append_close(a);
    return s;
}

/* Behind the first envelope: the shards' tensors, then the note that they are to go. */
static caisson_status clean(csn_fs *fs, const csn_cmf *model, csn_str id, caisson_error *err) {
    csn_cmf_append *a;
    for (uint32_t i = 1; i < model->n_files; i++) {
        if (has_tensors(model, i, id)) {
            CSN_TRY(clean_shard(fs, model, i, id, err));
        }
    }
    CSN_TRY(csn_cmf_append_begin(fs, model->file->path, &a, err));
    caisson_status s = change_first(a, id, false, err);
    csn_cmf_append_close(a);
    return s;
}

caisson_status csn_skill_remove(csn_fs *fs, const char *path, csn_str id, caisson_error *err) {
    csn_cmf_append *a;
    csn_cmf *model;
    bool is_spread = false;
    CSN_TRY(csn_cmf_append_begin_model(fs, path, &a, &model, err));
    for (uint32_t i = 1; i < model->n_files; i++) {
        is_spread |= has_tensors(model, i, id);
    }
    caisson_status s = take_out(a, model, id, is_spread, err);
    csn_cmf_append_close(a);
    if (s == CAISSON_OK && is_spread) {
        s = clean(fs, model, id, err);
    }
    if (s != CAISSON_OK) {
        csn_error_file(err, path);
    }
    csn_cmf_close(model);
    return s;
}
