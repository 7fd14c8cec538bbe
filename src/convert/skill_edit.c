/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of skills, changed behind the end of the file. */
#include "caisson/limits.h"
#include "convert/skill_add.h"
#include "convert/skill_internal.h"
#include "engine/route_fit.h"

caisson_status csn_skill_check_model(const csn_cmf *c, caisson_error *err) {
    if (csn_cmf_is_skill_file(c)) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = c->file->path, .section = "envelope",
                        .what = "the file is a skill by itself, not a model: it needs its base");
    }
    return CAISSON_OK;
}

void csn_skill_put_text(csn_jw *w, const char *key, csn_str text) {
    if (text.len > 0) {
        csn_jw_put_str(w, key, text);
    }
}

/* What each record of the registry says of its selection: *ret [*ret_n], in the arena. */
static caisson_status read_selections(csn_arena *arena, const csn_arch *arch,
                                      const csn_jval *registry, csn_cmf_skill **ret,
                                      uint32_t *ret_n, caisson_error *err) {
    uint32_t n = 0;
    CSN_TRY(CSN_ARENA_NEW(arena, csn_jval_len(registry) + 1, ret, err));
    for (csn_jiter it = csn_jval_iter(registry); csn_jiter_next(&it);) {
        const csn_jval *selection = csn_jval_get(it.value, "selection");
        csn_cmf_skill *s = &(*ret)[n];
        if (csn_jval_kind(selection) == CSN_JSON_OBJECT) {
            (void)csn_jval_str(csn_jval_get(it.value, "id"), &s->id);
            CSN_TRY(csn_cmf_parse_selection(arena, arch, selection, s->id, &s->selection, err));
            n++;
        }
    }
    *ret_n = n;
    return CAISSON_OK;
}

/* header.routing for this registry; `out` stays empty where no skill keeps anything. */
static caisson_status calibrate(const csn_cmf *c, csn_str skills, csn_buf *out,
                                caisson_error *err) {
    csn_arena arena = {0};
    csn_json *doc;
    csn_cmf_skill *list;
    csn_routing routing = {0};
    uint32_t n = 0;
    CSN_TRY(csn_json_parse(skills, CSN_JSON_UNIQUE, &doc, err));
    caisson_status s = read_selections(&arena, &c->arch, csn_json_root(doc), &list, &n, err);
    if (s == CAISSON_OK) {
        s = csn_routing_fit(list, n, c->arch.hidden_size, &routing, err);
    }
    if (s == CAISSON_OK && routing.n_samples > 0) {
        csn_jw w = csn_jw_begin(out, err);
        csn_routing_write(&w, &routing);
        s = csn_jw_end(&w);
    }
    csn_arena_done(&arena);
    csn_json_free(doc);
    return s;
}

/* An empty list is left out. */
static csn_str list_or_nothing(const csn_buf *list) {
    return csn_str_is(csn_buf_view(list), "[]") ? (csn_str){0} : csn_buf_view(list);
}

caisson_status csn_skill_set_registry(csn_cmf_append *a, const csn_buf *skills,
                                      const csn_buf *removed, bool recalibrates,
                                      caisson_error *err) {
    const csn_cmf *c = csn_cmf_append_cmf(a);
    csn_buf header = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    csn_buf routing = CSN_BUF_INIT(1024);
    csn_cmf_header_edit edits[3] = {{.key = "skills", .json = list_or_nothing(skills)}};
    size_t n_edits = 1;
    caisson_status s =
        recalibrates ? calibrate(c, csn_buf_view(skills), &routing, err) : CAISSON_OK;
    if (removed != NULL) {
        edits[n_edits++] = (csn_cmf_header_edit){CSN_CMF_REMOVED_SKILLS, list_or_nothing(removed)};
    }
    if (routing.len > 0) {
        edits[n_edits++] = (csn_cmf_header_edit){"routing", csn_buf_view(&routing)};
    }
    if (s == CAISSON_OK) {
        csn_jw w = csn_jw_begin(&header, err);
        csn_cmf_header_edit_write(c, edits, n_edits, &w);
        s = csn_jw_end(&w);
    }
    if (s == CAISSON_OK) {
        s = csn_cmf_append_header(a, csn_buf_view(&header), err);
    }
    csn_buf_free(&header);
    csn_buf_free(&routing);
    return s;
}

caisson_status csn_skill_edit_record(csn_cmf_append *a, csn_str id, csn_str quality,
                                     const csn_buf *removed, caisson_error *err) {
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
        s = csn_skill_set_registry(a, &skills, removed, quality.len == 0, err);
    }
    csn_buf_free(&skills);
    return s;
}

static caisson_status set_quality(csn_cmf_append *a, const csn_cmf *model, csn_str id, csn_str json,
                                  caisson_error *err) {
    const csn_cmf_skill *skill;
    CSN_TRY(csn_skill_check_model(model, err));
    CSN_TRY(csn_cmf_find_skill(model, id, &skill, err));
    if (skill->record == NULL) {
        return CSN_FAIL(err, CAISSON_E_MISSING, .section = "header", .tensor = id,
                        .what = "the skill has no record in the registry");
    }
    CSN_TRY(csn_skill_edit_record(a, id, json, NULL, err));
    return csn_cmf_append_commit(a, err);
}

caisson_status csn_skill_set_quality(csn_fs *fs, const char *path, csn_str id, csn_str json,
                                     caisson_error *err) {
    csn_cmf_append *a;
    csn_cmf *model;
    CSN_TRY(csn_cmf_append_begin_model(fs, path, &a, &model, err));
    caisson_status s = set_quality(a, model, id, json, err);
    if (s != CAISSON_OK) {
        csn_error_file(err, path);
    }
    csn_cmf_append_close(a);
    csn_cmf_close(model);
    return s;
}
