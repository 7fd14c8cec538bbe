/* SPDX-License-Identifier: Apache-2.0 */
/* Laying a skill over its base: the model that it was cut from comes out again. */
#include "base/alloc.h"
#include "caisson/limits.h"
#include "convert/assemble.h"
#include "convert/skill_cut.h"
#include "convert/skill_internal.h"

typedef struct job {
    csn_cmf *base, *skill;
    const csn_jval *record; /* of skill, with its key */
    csn_str key;
    char base_hash[20];
    const csn_skill_apply_options *o;
    csn_part *parts;        /* [n] of [cap] */
    uint32_t n, cap, n_own; /* n_own: of them, those of the skill */
    csn_buf provenance, skills, header, masks, vocab;
    caisson_error *err;
} job;

static caisson_status find_record(job *j) {
    for (csn_jiter it = csn_jval_iter(csn_jval_get(j->skill->header, "skills"));
         csn_jiter_next(&it);) {
        if (csn_jval_str(csn_jval_get(it.value, "base_dir_hash"), &j->key)) {
            j->record = it.value;
            break;
        }
    }
    if (j->record == NULL) {
        return CSN_FAIL(j->err, CAISSON_E_PARSE, .file = j->skill->file->path, .section = "header",
                        .tensor = CSN_STR("skills"),
                        .what = "not a skill by itself: no record has base_dir_hash");
    }
    CSN_TRY(csn_skill_base_key(j->base, j->base_hash, j->err));
    if (!csn_str_is(j->key, j->base_hash) && !j->o->force) {
        return CSN_FAIL(j->err, CAISSON_E_HASH, .file = j->base->file->path, .section = "envelope",
                        .what = "the skill was cut from another base",
                        CSN_TEXTS(j->key, csn_str_from(j->base_hash)));
    }
    return CAISSON_OK;
}

/* The skill's tensor of this name, or the base's. */
static caisson_status take(job *j, csn_str name) {
    const csn_tensor *own = csn_directory_find(&j->skill->dir, name);
    const csn_tensor *t = own != NULL ? own : csn_directory_find(&j->base->dir, name);
    if (t == NULL || j->n == j->cap) {
        return CSN_FAIL(j->err, CAISSON_E_PARSE, .file = j->skill->file->path, .section = "header",
                        .tensor = name,
                        .what = t == NULL
                                    ? "the skill lists a tensor that neither it nor the base has"
                                    : "the skill lists more tensors than there are",
                        CSN_VALUES(j->cap, j->n + 1));
    }
    j->parts[j->n++] = (csn_part){t->name, own != NULL ? j->skill : j->base, t};
    j->n_own += own != NULL;
    return CAISSON_OK;
}

/* A list that is none, or leaves out what the skill brings, makes another model than was cut. */
static caisson_status check_names(const job *j, const csn_jval *names) {
    const char *what = csn_jval_kind(names) != CSN_JSON_ARRAY ? "not a list of names"
                       : j->n == 0                            ? "names no tensor"
                                   : "does not name each of the skill's tensors once";
    if (csn_jval_kind(names) == CSN_JSON_ARRAY && j->n > 0 && j->n_own == j->skill->dir.n) {
        return CAISSON_OK;
    }
    return CSN_FAIL(j->err, CAISSON_E_PARSE, .file = j->skill->file->path, .section = "header",
                    .tensor = CSN_STR("provenance.caisson." CSN_SKILL_CUT_TENSORS), .what = what,
                    CSN_VALUES(j->skill->dir.n, j->n_own));
}

/* The names that the skill tells, or the base's in its order and then what only the skill has. */
static caisson_status find_parts(job *j, const csn_jval *names) {
    const csn_directory *base = &j->base->dir, *own = &j->skill->dir;
    j->cap = base->n + own->n;
    CSN_TRY(CSN_NEW(j->cap, &j->parts, j->err));
    for (csn_jiter it = csn_jval_iter(names); csn_jiter_next(&it);) {
        csn_str name = {0};
        (void)csn_jval_str(it.value, &name); /* another kind of value names no tensor */
        CSN_TRY(take(j, name));
    }
    if (csn_jval_kind(names) != CSN_JSON_ABSENT) {
        return check_names(j, names);
    }
    for (uint32_t i = 0; i < base->n; i++) {
        CSN_TRY(take(j, base->tensors[i].name));
    }
    for (uint32_t i = 0; i < own->n; i++) {
        if (csn_directory_find(base, own->tensors[i].name) == NULL) {
            CSN_TRY(take(j, own->tensors[i].name));
        }
    }
    return CAISSON_OK;
}

/* header.provenance with a note that the base is another one than the skill asks for. */
static caisson_status note_force(job *j) {
    const csn_jval *old = csn_jval_get(j->skill->header, "provenance");
    csn_jw w = csn_jw_begin(&j->provenance, j->err);
    csn_jw_object(&w);
    if (csn_jval_kind(old) == CSN_JSON_OBJECT) {
        for (csn_jiter it = csn_jval_iter(old); csn_jiter_next(&it);) {
            if (!csn_str_is(it.key, "skill_applied_by_force")) {
                csn_jw_key(&w, it.key);
                csn_jw_value(&w, it.value);
            }
        }
    } else if (old != NULL) {
        csn_jw_key(&w, CSN_STR("of_the_skill"));
        csn_jw_value(&w, old);
    }
    csn_jw_key(&w, CSN_STR("skill_applied_by_force"));
    csn_jw_object(&w);
    csn_jw_key(&w, CSN_STR("id"));
    csn_jw_value(&w, csn_jval_get(j->record, "id"));
    csn_jw_put_str(&w, "base_dir_hash", csn_str_from(j->base_hash));
    csn_jw_put_str(&w, "wanted", j->key);
    csn_jw_object_end(&w);
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}

static caisson_status make_sections(job *j, const csn_jval *ours) {
    csn_cmf_header_edit edits[2] = {{.key = "skills"}};
    size_t n_edits = 1;
    const csn_jval *skills = csn_jval_get(ours, CSN_SKILL_CUT_SKILLS);
    if (skills != NULL) {
        csn_jw w = csn_jw_begin(&j->skills, j->err);
        csn_jw_value(&w, skills);
        CSN_TRY(csn_jw_end(&w));
        edits[0].json = csn_buf_view(&j->skills);
    }
    if (!csn_str_is(j->key, j->base_hash)) {
        CSN_TRY(note_force(j));
        edits[n_edits++] =
            (csn_cmf_header_edit){.key = "provenance", .json = csn_buf_view(&j->provenance)};
    }
    csn_jw w = csn_jw_begin(&j->header, j->err);
    csn_cmf_header_edit_write(j->skill, edits, n_edits, &w);
    CSN_TRY(csn_jw_end(&w));
    CSN_TRY(csn_cmf_read_section(j->skill, CSN_CMF_MASKS, &j->masks, j->err));
    CSN_TRY(csn_cmf_read_section(j->skill, CSN_CMF_VOCAB, &j->vocab, j->err));
    if (j->vocab.len > 0) {
        return CAISSON_OK;
    }
    csn_buf_free(&j->vocab);
    return csn_cmf_read_section(j->base, CSN_CMF_VOCAB, &j->vocab, j->err);
}

static caisson_status apply(job *j, csn_fs *fs, const char *path) {
    CSN_TRY(csn_skill_check_model(j->base, j->err));
    CSN_TRY(find_record(j));
    const csn_jval *ours = csn_jval_get(csn_jval_get(j->record, "provenance"), "caisson");
    CSN_TRY(find_parts(j, csn_jval_get(ours, CSN_SKILL_CUT_TENSORS)));
    CSN_TRY(make_sections(j, ours));
    const csn_assembly a = {.parts = j->parts,
                            .n = j->n,
                            .header = csn_buf_view(&j->header),
                            .masks = csn_buf_view(&j->masks),
                            .vocab = csn_buf_view(&j->vocab)};
    return csn_assemble(fs, path, &a, j->o->overwrite, j->o->progress, j->err);
}

caisson_status csn_skill_apply(csn_fs *fs, csn_cmf *base, csn_cmf *skill, const char *path,
                               const csn_skill_apply_options *options, caisson_error *err) {
    job j = {.base = base, .skill = skill, .o = options, .err = err};
    csn_buf *bufs[] = {&j.provenance, &j.skills, &j.header};
    for (size_t i = 0; i < 3; i++) {
        *bufs[i] = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    }
    caisson_status s = apply(&j, fs, path);
    csn_free(j.parts);
    for (size_t i = 0; i < 3; i++) {
        csn_buf_free(bufs[i]);
    }
    csn_buf_free(&j.masks);
    csn_buf_free(&j.vocab);
    return s;
}
