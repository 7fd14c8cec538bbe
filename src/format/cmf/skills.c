/* SPDX-License-Identifier: Apache-2.0 */
/* The skills of a file (CMF 9, facts 10): records of header.skills, and ids that only the names of
 * tensors ("skill.ID.NAME") tell of. */
#include <stdlib.h>

#include "base/json_fields.h"
#include "format/cmf/cmf_internal.h"

static const csn_jfield fields[] = {
    CSN_JFIELD(csn_cmf_skill, id, "id", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(csn_cmf_skill, name, "name", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JFIELD(csn_cmf_skill, input_mask_task, "input_mask_task", CSN_JT_STR, CSN_JF_NULLABLE),
};

enum { MAX_ID_DOTS = 64 }; /* each costs a look at every tensor of a skill */

static int compare_ids(csn_str x, csn_str y) {
    size_t n = x.len < y.len ? x.len : y.len;
    int c = n > 0 ? memcmp(x.ptr, y.ptr, n) : 0;
    return c != 0 ? c : (x.len > y.len) - (x.len < y.len);
}

/* By id; of equal ones records first, then in their order in the file. */
static int compare(const void *a, const void *b) {
    const csn_cmf_skill *x = a, *y = b;
    int c = compare_ids(x->id, y->id);
    return c != 0 ? c : (y->record != NULL) - (x->record != NULL);
}

static int compare_texts(const void *x, const void *y) {
    return compare_ids(*(const csn_str *)x, *(const csn_str *)y);
}

static int compare_key(const void *id, const void *skill) {
    return compare_ids(*(const csn_str *)id, ((const csn_cmf_skill *)skill)->id);
}

/* The longest id that the header tells of with which `rest` begins, a dot behind it; else, for the
 * header need not tell of all skills, what stands before the first dot. False: there is no dot. */
static bool id_of(const csn_cmf *c, csn_str rest, csn_str *ret) {
    uint32_t n_dots = 0;
    for (size_t i = 0; i < rest.len && n_dots <= c->max_id_dots; i++) {
        csn_str id = csn_str_make(rest.ptr, i);
        if (rest.ptr[i] == '.' && (n_dots++ == 0 || bsearch(&id, c->skill_ids, c->n_skill_ids,
                                                            sizeof(id), compare_texts) != NULL)) {
            *ret = id;
        }
    }
    return n_dots > 0;
}

bool csn_cmf_skill_name(const csn_cmf *c, csn_str tensor, csn_str *ret_id, csn_str *ret_name) {
    const csn_str prefix = CSN_STR("skill.");
    csn_str rest = csn_str_make(tensor.ptr + prefix.len, tensor.len - prefix.len);
    if (!csn_str_starts(tensor, prefix) || !id_of(c, rest, ret_id)) {
        return false;
    }
    *ret_name = csn_str_make(rest.ptr + ret_id->len + 1, rest.len - ret_id->len - 1);
    return true;
}

const csn_cmf_skill *csn_cmf_skill_of(const csn_cmf *c, csn_str tensor, csn_str *ret_name) {
    csn_str id;
    if (c->n_skills == 0 || !csn_cmf_skill_name(c, tensor, &id, ret_name)) {
        return NULL;
    }
    return bsearch(&id, c->skills, c->n_skills, sizeof(*c->skills), compare_key);
}

/* A registry that names one id many times must not cost more: each tensor is looked up once. */
static void count_tensors(csn_cmf *c) {
    csn_str name;
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_cmf_skill *found = csn_cmf_skill_of(c, c->dir.tensors[i].name, &name);
        if (found != NULL) { /* not of a skill that was removed */
            csn_cmf_skill *s = &c->skills[found - c->skills];
            s->n_tensors++;
            s->nbytes += c->dir.tensors[i].nbytes;
        }
    }
}

/* Whether the layers have tensors is not asked: a model that a skill file was applied to keeps the
 * record, and its tensors bear the base's names. */
static caisson_status check_layers(const csn_cmf *c, const csn_cmf_skill *s, caisson_error *err) {
    for (csn_jiter it = csn_jval_iter(csn_jval_get(s->record, "layers")); csn_jiter_next(&it);) {
        uint64_t layer = 0; /* a number: checked with the header */
        (void)csn_jval_u64(it.value, &layer);
        if (layer >= c->arch.n_layers) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header", .tensor = s->id,
                            .what = "the skill names a layer that the model does not have",
                            CSN_VALUES(c->arch.n_layers - 1, layer));
        }
    }
    return CAISSON_OK;
}

/* Ids that the header tells of: those of the registry, those of removed skills. */
static caisson_status list_ids(csn_cmf *c, caisson_error *err) {
    const csn_jval *lists[] = {csn_jval_get(c->header, "skills"),
                               csn_jval_get(c->header, CSN_CMF_REMOVED_SKILLS)};
    uint64_t most = csn_jval_len(lists[0]) + csn_jval_len(lists[1]);
    CSN_TRY(CSN_ARENA_NEW(&c->arena, (size_t)most, &c->skill_ids, err));
    c->n_skill_ids = c->max_id_dots = 0;
    for (int k = 0; k < 2; k++) {
        for (csn_jiter it = csn_jval_iter(lists[k]); csn_jiter_next(&it);) {
            csn_str *id = &c->skill_ids[c->n_skill_ids++];
            uint32_t n_dots = 0;
            if (!csn_jval_str(k == 0 ? csn_jval_get(it.value, "id") : it.value, id)) {
                return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header",
                                .tensor = csn_str_from(k == 0 ? "skills" : CSN_CMF_REMOVED_SKILLS),
                                .what = "an id is not a text");
            }
            for (size_t i = 0; i < id->len; i++) {
                n_dots += id->ptr[i] == '.';
            }
            if (n_dots > MAX_ID_DOTS) {
                return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "header", .tensor = *id,
                                .what = "a skill's id has too many dots",
                                CSN_VALUES(MAX_ID_DOTS, n_dots));
            }
            c->max_id_dots = n_dots > c->max_id_dots ? n_dots : c->max_id_dots;
        }
    }
    if (c->n_skill_ids > 0) {
        qsort(c->skill_ids, c->n_skill_ids, sizeof(*c->skill_ids), compare_texts);
    }
    return CAISSON_OK;
}

/* The records of the registry: s [their number]. */
static caisson_status read_records(csn_cmf *c, csn_cmf_skill *s, caisson_error *err) {
    csn_jiter it = csn_jval_iter(csn_jval_get(c->header, "skills"));
    for (; csn_jiter_next(&it); s++) {
        *s = (csn_cmf_skill){.record = it.value};
        CSN_TRY(csn_jfields_read(it.value, fields, CSN_N_FIELDS(fields), "skills", s, NULL, err));
        CSN_TRY(check_layers(c, s, err));
        const csn_jval *selection = csn_jval_get(it.value, "selection");
        if (csn_jval_kind(selection) == CSN_JSON_OBJECT) {
            CSN_TRY(
                csn_cmf_parse_selection(&c->arena, &c->arch, selection, s->id, &s->selection, err));
        }
    }
    return CAISSON_OK;
}

/* Tensors of a skill of which the header tells nothing. */
static bool is_unknown(const csn_cmf *c, csn_str tensor, csn_str *ret_id) {
    csn_str name;
    return csn_cmf_skill_name(c, tensor, ret_id, &name) &&
           bsearch(ret_id, c->skill_ids, c->n_skill_ids, sizeof(*ret_id), compare_texts) == NULL;
}

caisson_status csn_cmf_parse_skills(csn_cmf *c, caisson_error *err) {
    uint32_t n = (uint32_t)csn_jval_len(csn_jval_get(c->header, "skills"));
    uint64_t most = n;
    csn_str id, last = {0};
    csn_cmf_skill *s;
    CSN_TRY(list_ids(c, err));
    for (uint32_t i = 0; i < c->dir.n; i++) {
        most += is_unknown(c, c->dir.tensors[i].name, &id);
    }
    CSN_TRY(CSN_ARENA_NEW(&c->arena, (size_t)most, &s, err));
    CSN_TRY(read_records(c, s, err));
    for (uint32_t i = 0; i < c->dir.n; i++) {
        if (is_unknown(c, c->dir.tensors[i].name, &id) && !csn_str_eq(id, last)) {
            s[n++] = (csn_cmf_skill){.id = id};
            last = id;
        }
    }
    if (n > 0) {
        qsort(s, n, sizeof(*s), compare);
    }
    c->n_skills = 0;
    for (uint32_t i = 0; i < n; i++) { /* ids of tensors that were there already */
        uint32_t k = c->n_skills;
        if (s[i].record != NULL || k == 0 || !csn_str_eq(s[i].id, s[k - 1].id)) {
            s[c->n_skills++] = s[i];
        }
    }
    c->skills = s;
    count_tensors(c);
    return CAISSON_OK;
}

bool csn_cmf_is_skill_file(const csn_cmf *c) {
    return (c->envelope.required_features & CSN_CMF_SKILL_FILE) != 0;
}

bool csn_cmf_is_removed_skill(const csn_cmf *c, csn_str id) {
    csn_jiter it = csn_jval_iter(csn_jval_get(c->header, CSN_CMF_REMOVED_SKILLS));
    csn_str own;
    while (csn_jiter_next(&it)) {
        if (csn_jval_str(it.value, &own) && csn_str_eq(own, id)) {
            return true;
        }
    }
    return false;
}

caisson_status csn_cmf_skill_tensor(const csn_cmf *c, csn_str id, csn_str name,
                                    const csn_tensor **ret, caisson_error *err) {
    csn_buf b = CSN_BUF_INIT(1 << 18);
    CSN_TRY(csn_buf_printf(&b, err, "skill.%.*s.%.*s", CSN_STR_ARGS(id), CSN_STR_ARGS(name)));
    const csn_tensor *t = csn_directory_find(&c->dir, csn_buf_view(&b));
    csn_str rest;
    const csn_cmf_skill *s = t != NULL ? csn_cmf_skill_of(c, t->name, &rest) : NULL;
    *ret = s != NULL && csn_str_eq(s->id, id) ? t : NULL;
    csn_buf_free(&b);
    return CAISSON_OK;
}

caisson_status csn_cmf_find_skill(const csn_cmf *c, csn_str id, const csn_cmf_skill **ret,
                                  caisson_error *err) {
    const csn_cmf_skill *found = NULL;
    csn_buf ids = CSN_BUF_INIT(512);
    caisson_error full; /* the list of ids is cut where it gets long */
    caisson_status status = CAISSON_OK;
    for (uint32_t i = 0; i < c->n_skills && status == CAISSON_OK; i++) {
        const csn_cmf_skill *s = &c->skills[i];
        if (!csn_str_eq(s->id, id)) {
            (void)csn_buf_printf(&ids, &full, "%s%.*s", i > 0 ? " " : "", CSN_STR_ARGS(s->id));
        } else if (found == NULL) {
            found = s;
        } else {
            status = CSN_FAIL(err, CAISSON_E_ARG, .section = "header", .tensor = id,
                              .what = "two skills have this id", CSN_VALUES(1, 2));
        }
    }
    if (status == CAISSON_OK && found == NULL) {
        status =
            CSN_FAIL(err, CAISSON_E_MISSING, .section = "header", .tensor = id,
                     .what = "the file has no skill of this id", CSN_TEXTS(csn_buf_view(&ids), id));
    }
    csn_buf_free(&ids);
    if (status == CAISSON_OK) {
        *ret = found;
    }
    return status;
}
