/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of skills, changed behind the end of the file. */
#include "caisson/limits.h"
#include "convert/skill_add.h"
#include "convert/skill_internal.h"

caisson_status csn_skill_check_model(const csn_cmf *c, caisson_error *err) {
    if (csn_cmf_is_skill_file(c)) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = c->file->path, .section = "envelope",
                        .what = "the file is a skill by itself, not a model: it needs its base");
    }
    if (csn_jval_kind(csn_jval_get(c->header, "shard")) == CSN_JSON_OBJECT) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = c->file->path, .section = "header",
                        .tensor = CSN_STR("shard"),
                        .what = "skills belong to a model in one file: caisson merge makes one");
    }
    return CAISSON_OK;
}

caisson_status csn_skill_set_registry(csn_cmf_append *a, const csn_buf *skills,
                                      caisson_error *err) {
    csn_buf header = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    csn_cmf_header_edit edit = {.key = "skills", .json = csn_buf_view(skills)};
    if (csn_str_is(edit.json, "[]")) {
        edit.json = CSN_STR("");
    }
    csn_jw w = csn_jw_begin(&header, err);
    csn_cmf_header_edit_write(csn_cmf_append_cmf(a), &edit, 1, &w);
    caisson_status s = csn_jw_end(&w);
    if (s == CAISSON_OK) {
        s = csn_cmf_append_header(a, csn_buf_view(&header), err);
    }
    csn_buf_free(&header);
    return s;
}

/* The registry with the record of `id` left out, or with another `quality`. */
static caisson_status edit_record(csn_cmf_append *a, csn_str id, csn_str quality,
                                  caisson_error *err) {
    const csn_jval *registry = csn_jval_get(csn_cmf_append_cmf(a)->header, "skills");
    csn_buf skills = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    csn_jw w = csn_jw_begin(&skills, err);
    csn_jw_array(&w);
    for (csn_jiter it = csn_jval_iter(registry); csn_jiter_next(&it);) {
        csn_str own;
        bool is_it = csn_jval_str(csn_jval_get(it.value, "id"), &own) && csn_str_eq(own, id);
        if (!is_it) {
            csn_jw_value(&w, it.value);
        } else if (quality.len > 0) {
            csn_jw_object(&w);
            for (csn_jiter k = csn_jval_iter(it.value); csn_jiter_next(&k);) {
                if (!csn_str_is(k.key, "quality")) {
                    csn_jw_key(&w, k.key);
                    csn_jw_value(&w, k.value);
                }
            }
            csn_jw_key(&w, CSN_STR("quality"));
            csn_jw_json(&w, quality);
            csn_jw_object_end(&w);
        }
    }
    csn_jw_array_end(&w);
    caisson_status s = csn_jw_end(&w);
    if (s == CAISSON_OK) {
        s = csn_skill_set_registry(a, &skills, err);
    }
    csn_buf_free(&skills);
    return s;
}

static caisson_status remove_tensors(csn_cmf_append *a, csn_str id, caisson_error *err) {
    const csn_cmf *c = csn_cmf_append_cmf(a);
    csn_buf prefix = CSN_BUF_INIT(1 << 18);
    caisson_status s = csn_buf_printf(&prefix, err, "skill.%.*s.", CSN_STR_ARGS(id));
    for (uint32_t i = 0; s == CAISSON_OK && i < c->dir.n; i++) {
        if (csn_str_starts(c->dir.tensors[i].name, csn_buf_view(&prefix))) {
            s = csn_cmf_append_remove(a, c->dir.tensors[i].name, err);
        }
    }
    csn_buf_free(&prefix);
    return s;
}

static caisson_status edit(csn_fs *fs, const char *path, csn_str id, csn_str quality,
                           caisson_error *err) {
    csn_cmf_append *a;
    const csn_cmf_skill *skill;
    CSN_TRY(csn_cmf_append_begin(fs, path, &a, err));
    caisson_status s = csn_skill_check_model(csn_cmf_append_cmf(a), err);
    if (s == CAISSON_OK) {
        s = csn_cmf_find_skill(csn_cmf_append_cmf(a), id, &skill, err);
    }
    if (s == CAISSON_OK && quality.len > 0 && skill->record == NULL) {
        s = CSN_FAIL(err, CAISSON_E_MISSING, .section = "header", .tensor = id,
                     .what = "the skill has no record in the registry");
    }
    if (s == CAISSON_OK && quality.len == 0) {
        s = remove_tensors(a, id, err);
    }
    if (s == CAISSON_OK) {
        s = edit_record(a, id, quality, err);
    }
    if (s == CAISSON_OK) {
        s = csn_cmf_append_commit(a, err);
    }
    if (s != CAISSON_OK) {
        csn_error_file(err, path);
    }
    csn_cmf_append_close(a);
    return s;
}

caisson_status csn_skill_remove(csn_fs *fs, const char *path, csn_str id, caisson_error *err) {
    return edit(fs, path, id, (csn_str){0}, err);
}

caisson_status csn_skill_set_quality(csn_fs *fs, const char *path, csn_str id, csn_str json,
                                     caisson_error *err) {
    return edit(fs, path, id, json, err);
}
