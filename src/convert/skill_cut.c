/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting a skill out of a model: what its file holds, and what `apply` will need to make the model
 * again. */
#include "convert/skill_cut.h"

#include "base/alloc.h"
#include "base/hash64.h"
#include "caisson/limits.h"
#include "convert/assemble.h"
#include "convert/skill_add.h"
#include "convert/skill_internal.h"

typedef struct job {
    csn_cmf *model, *base;
    csn_str id;
    const csn_cmf_skill *skill; /* of model; NULL: the model is a specialist */
    const csn_skill_cut_options *o;
    csn_part *parts; /* [n] */
    uint32_t n;
    bool *layers; /* [n_layers] that have a part */
    char key[20]; /* of the base */
    csn_buf skills, header, masks, vocab;
    caisson_error *err;
} job;

static bool is_of_skill(csn_str name) {
    return csn_str_starts(name, CSN_STR("skill."));
}

/* A tensor of the model that `apply` shall give: of a model with the skill its backbone, of a
 * specialist everything. */
static bool is_wanted(const job *j, csn_str name) {
    return j->skill == NULL || !is_of_skill(name);
}

static bool is_alike(const csn_tensor *a, const csn_tensor *b) {
    return b != NULL && a->hash == b->hash && a->dtype == b->dtype && a->nbytes == b->nbytes &&
           csn_shape_eq(&a->shape, &b->shape);
}

static void note_layer(job *j, csn_str name) {
    const csn_str layers = CSN_STR("model.layers.");
    size_t dot =
        csn_str_starts(name, layers) ? csn_str_find(name, CSN_STR("."), layers.len) : SIZE_MAX;
    uint64_t i;
    if (dot != SIZE_MAX &&
        csn_str_to_u64(csn_str_make(name.ptr + layers.len, dot - layers.len), &i) &&
        i < j->model->arch.n_layers) {
        j->layers[i] = true;
    }
}

static caisson_status find_parts(job *j) {
    const csn_directory *dir = &j->model->dir;
    CSN_TRY(CSN_NEW(dir->n, &j->parts, j->err));
    CSN_TRY(CSN_NEW(j->model->arch.n_layers, &j->layers, j->err));
    for (uint32_t i = 0; i < dir->n; i++) {
        const csn_tensor *t = &dir->tensors[i];
        csn_str name = t->name;
        bool is_part = j->skill != NULL ? csn_cmf_skill_of(j->model, t->name, &name) == j->skill
                                        : !is_alike(t, csn_directory_find(&j->base->dir, t->name));
        if (is_part) {
            j->parts[j->n++] = (csn_part){name, j->model, t};
            note_layer(j, name);
        }
    }
    return j->n > 0 ? CAISSON_OK
                    : CSN_FAIL(j->err, CAISSON_E_ARG, .tensor = j->id,
                               .what = "nothing in the model differs from the base");
}

caisson_status csn_skill_base_key(csn_cmf *base, char ret[20], caisson_error *err) {
    uint64_t hash;
    CSN_TRY(csn_cmf_directory_hash(base, &hash, err));
    csn_hash64_hex(hash, ret);
    return CAISSON_OK;
}

static caisson_status check_base(const job *j) {
    const csn_arch *a = &j->model->arch, *b = &j->base->arch;
    if (!csn_str_eq(a->arch_name, b->arch_name)) {
        return CSN_FAIL(j->err, CAISSON_E_PARSE, .section = "header",
                        .tensor = CSN_STR("arch_name"),
                        .what = "the model is of another architecture than the base",
                        CSN_TEXTS(b->arch_name, a->arch_name));
    }
    if (a->n_layers != b->n_layers || a->hidden_size != b->hidden_size) {
        bool layers = a->n_layers != b->n_layers;
        return CSN_FAIL(j->err, CAISSON_E_PARSE, .section = "header",
                        .tensor = layers ? CSN_STR("num_layers") : CSN_STR("hidden_size"),
                        .what = "the model is of another size than the base",
                        CSN_VALUES(layers ? b->n_layers : b->hidden_size,
                                   layers ? a->n_layers : a->hidden_size));
    }
    return CAISSON_OK;
}

/* The model's names where they are not the base's in its order. */
static void put_names(csn_jw *w, const job *j) {
    const csn_directory *m = &j->model->dir, *b = &j->base->dir;
    uint32_t k = 0;
    bool same = true;
    for (uint32_t i = 0; i < m->n; i++) {
        if (is_wanted(j, m->tensors[i].name)) {
            same = same && k < b->n && csn_str_eq(b->tensors[k].name, m->tensors[i].name);
            k++;
        }
    }
    if (same && k == b->n) {
        return;
    }
    csn_jw_key(w, CSN_STR(CSN_SKILL_CUT_TENSORS));
    csn_jw_array(w);
    for (uint32_t i = 0; i < m->n; i++) {
        if (is_wanted(j, m->tensors[i].name)) {
            csn_jw_str(w, m->tensors[i].name);
        }
    }
    csn_jw_array_end(w);
}

static void put_provenance(csn_jw *w, const job *j) {
    const char *path = j->model->file->path;
    const char *slash = strrchr(path, '/');
    const csn_jval *skills = csn_jval_get(j->model->header, "skills");
    csn_jw_object(w);
    csn_skill_put_text(w, "cut_from", csn_str_from(slash != NULL ? slash + 1 : path));
    csn_jw_put_u64(w, "tensors", j->n);
    csn_jw_key(w, CSN_STR("caisson"));
    csn_jw_object(w);
    put_names(w, j);
    if (j->skill == NULL && skills != NULL) {
        csn_jw_key(w, CSN_STR(CSN_SKILL_CUT_SKILLS));
        csn_jw_value(w, skills);
    }
    csn_jw_object_end(w);
    csn_jw_object_end(w);
}

static void put_record(csn_jw *w, const job *j) {
    static const char *const kept[] = {"description", "selection", "input_mask_task", "quality"};
    const csn_jval *own = j->skill != NULL ? j->skill->record : NULL;
    csn_str task = j->model->masks.default_task;
    if (j->skill != NULL && j->skill->input_mask_task.len > 0) {
        task = j->skill->input_mask_task;
    }
    csn_jw_object(w);
    csn_skill_put_text(w, "id", j->id);
    csn_skill_put_text(w, "name",
                       j->o->name.len > 0 ? j->o->name
                       : j->skill != NULL ? j->skill->name
                                          : j->o->name);
    csn_jw_key(w, CSN_STR("layers"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < j->model->arch.n_layers; i++) {
        if (j->layers[i]) {
            csn_jw_u64(w, i);
        }
    }
    csn_jw_array_end(w);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        const csn_jval *v = csn_jval_get(own, kept[i]);
        if (v != NULL) {
            csn_jw_key(w, csn_str_from(kept[i]));
            csn_jw_value(w, v);
        }
    }
    csn_skill_put_text(w, "base_dir_hash", csn_str_from(j->key));
    csn_skill_put_text(w, "base_arch", j->base->arch.arch_name);
    csn_skill_put_text(w, "task", j->model->masks.n == 0 ? CSN_STR("general") : task);
    csn_jw_key(w, CSN_STR("provenance"));
    put_provenance(w, j);
    csn_jw_object_end(w);
}

static caisson_status make_sections(job *j) {
    csn_jw w = csn_jw_begin(&j->skills, j->err);
    csn_jw_array(&w);
    put_record(&w, j);
    csn_jw_array_end(&w);
    CSN_TRY(csn_jw_end(&w));
    const csn_cmf_header_edit edits[] = {{.key = "skills", .json = csn_buf_view(&j->skills)},
                                         {.key = "shard"},
                                         {.key = CSN_CMF_SHARD_SET}};
    w = csn_jw_begin(&j->header, j->err);
    csn_cmf_header_edit_write(j->model, edits, sizeof(edits) / sizeof(edits[0]), &w);
    CSN_TRY(csn_jw_end(&w));
    CSN_TRY(csn_cmf_read_section(j->model, CSN_CMF_MASKS, &j->masks, j->err));
    CSN_TRY(csn_cmf_read_section(j->model, CSN_CMF_VOCAB, &j->vocab, j->err));
    csn_buf base_vocab = {0};
    CSN_TRY(csn_cmf_read_section(j->base, CSN_CMF_VOCAB, &base_vocab, j->err));
    if (csn_str_eq(csn_buf_view(&base_vocab), csn_buf_view(&j->vocab))) {
        j->vocab.len = 0;
    }
    csn_buf_free(&base_vocab);
    return CAISSON_OK;
}

static caisson_status cut(job *j, csn_fs *fs, const char *path) {
    caisson_status s = csn_cmf_find_skill(j->model, j->id, &j->skill, j->err);
    if (s == CAISSON_E_MISSING && j->model != j->base) {
        j->skill = NULL;
        s = csn_skill_check_id(j->id, j->err); /* a new one */
    }
    CSN_TRY(s);
    CSN_TRY(csn_skill_check_model(j->model, j->err));
    CSN_TRY(csn_skill_check_model(j->base, j->err));
    CSN_TRY(check_base(j));
    CSN_TRY(csn_skill_base_key(j->base, j->key, j->err));
    CSN_TRY(find_parts(j));
    CSN_TRY(make_sections(j));
    const csn_assembly a = {.parts = j->parts,
                            .n = j->n,
                            .header = csn_buf_view(&j->header),
                            .masks = csn_buf_view(&j->masks),
                            .vocab = csn_buf_view(&j->vocab)};
    return csn_assemble(fs, path, &a, j->o->overwrite, j->o->progress, j->err);
}

caisson_status csn_skill_cut(csn_fs *fs, csn_cmf *model, csn_cmf *base, csn_str id,
                             const char *path, const csn_skill_cut_options *options,
                             caisson_error *err) {
    job j = {.model = model, .base = base, .id = id, .o = options, .err = err};
    j.skills = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    j.header = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    caisson_status s = cut(&j, fs, path);
    csn_free(j.parts);
    csn_free(j.layers);
    csn_buf_free(&j.skills);
    csn_buf_free(&j.header);
    csn_buf_free(&j.masks);
    csn_buf_free(&j.vocab);
    return s;
}
