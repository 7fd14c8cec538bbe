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

caisson_status csn_skill_check_base(const csn_cmf *c, caisson_error *err) {
    CSN_TRY(csn_skill_check_model(c, err));
    if (c->has_shard_block) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = c->file->path, .section = "header",
                        .tensor = CSN_STR("shard"),
                        .what = "a skill file is bound to the directory of a base in one file (CMF "
                                "9.1): caisson merge makes one");
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

caisson_status csn_skill_set_registry(csn_cmf_append *a, const csn_buf *skills, bool recalibrates,
                                      caisson_error *err) {
    const csn_cmf *c = csn_cmf_append_cmf(a);
    csn_buf header = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    csn_buf routing = CSN_BUF_INIT(1024);
    csn_cmf_header_edit edits[] = {{.key = "skills", .json = csn_buf_view(skills)},
                                   {.key = "routing"}};
    caisson_status s =
        recalibrates ? calibrate(c, csn_buf_view(skills), &routing, err) : CAISSON_OK;
    if (csn_str_is(edits[0].json, "[]")) {
        edits[0].json = CSN_STR("");
    }
    if (s == CAISSON_OK) {
        edits[1].json = csn_buf_view(&routing);
        csn_jw w = csn_jw_begin(&header, err);
        csn_cmf_header_edit_write(c, edits, routing.len > 0 ? 2 : 1, &w);
        s = csn_jw_end(&w);
    }
    if (s == CAISSON_OK) {
        s = csn_cmf_append_header(a, csn_buf_view(&header), err);
    }
    csn_buf_free(&header);
    csn_buf_free(&routing);
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
        s = csn_skill_set_registry(a, &skills, quality.len == 0, err);
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

/* Tensors of the skill that lie in shards behind the first; its record is gone, so that a removal
 * that ends in between leaves nothing that calls itself whole. */
static caisson_status remove_from_shards(csn_fs *fs, const csn_cmf *model, csn_str id,
                                         caisson_error *err) {
    caisson_status s = CAISSON_OK;
    for (uint32_t i = 1; s == CAISSON_OK && i < model->n_files; i++) {
        csn_cmf_append *a;
        CSN_TRY(csn_cmf_append_begin(fs, csn_cmf_file_of(model, i)->file->path, &a, err));
        s = remove_tensors(a, id, err);
        if (s == CAISSON_OK && csn_cmf_append_is_changed(a)) {
            s = csn_cmf_append_commit(a, err);
        }
        csn_cmf_append_close(a);
    }
    return s;
}

static caisson_status edit(csn_fs *fs, const char *path, csn_str id, csn_str quality,
                           caisson_error *err) {
    csn_cmf_append *a;
    csn_cmf *model;
    const csn_cmf_skill *skill;
    CSN_TRY(csn_cmf_append_begin_model(fs, path, &a, &model, err));
    caisson_status s = csn_skill_check_model(model, err);
    if (s == CAISSON_OK) {
        s = csn_cmf_find_skill(model, id, &skill, err);
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
    csn_cmf_append_close(a);
    if (s == CAISSON_OK && quality.len == 0) {
        s = remove_from_shards(fs, model, id, err);
    }
    if (s != CAISSON_OK) {
        csn_error_file(err, path);
    }
    csn_cmf_close(model);
    return s;
}

caisson_status csn_skill_remove(csn_fs *fs, const char *path, csn_str id, caisson_error *err) {
    return edit(fs, path, id, (csn_str){0}, err);
}

caisson_status csn_skill_set_quality(csn_fs *fs, const char *path, csn_str id, csn_str json,
                                     caisson_error *err) {
    return edit(fs, path, id, json, err);
}
