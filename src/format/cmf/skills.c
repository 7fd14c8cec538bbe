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

/* The ID of "skill.ID.NAME" (an id has no dot); false for another name. */
static bool id_of(csn_str name, csn_str *ret) {
    const csn_str prefix = CSN_STR("skill.");
    if (!csn_str_starts(name, prefix)) {
        return false;
    }
    const char *id = name.ptr + prefix.len;
    const char *dot = memchr(id, '.', name.len - prefix.len);
    if (dot == NULL) {
        return false;
    }
    *ret = csn_str_make(id, (size_t)(dot - id));
    return true;
}

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

static int compare_key(const void *id, const void *skill) {
    return compare_ids(*(const csn_str *)id, ((const csn_cmf_skill *)skill)->id);
}

/* A registry that names one id many times must not cost more: each tensor is looked up once. */
static void count_tensors(csn_cmf *c) {
    csn_str id;
    for (uint32_t i = 0; c->n_skills > 0 && i < c->dir.n; i++) {
        if (id_of(c->dir.tensors[i].name, &id)) {
            csn_cmf_skill *s =
                bsearch(&id, c->skills, c->n_skills, sizeof(*c->skills), compare_key);
            s->n_tensors++; /* every id of a tensor is in the list */
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

caisson_status csn_cmf_parse_skills(csn_cmf *c, caisson_error *err) {
    const csn_jval *registry = csn_jval_get(c->header, "skills");
    uint64_t most = csn_jval_len(registry);
    csn_str id, last = {0};
    for (uint32_t i = 0; i < c->dir.n; i++) {
        most += id_of(c->dir.tensors[i].name, &id);
    }
    csn_cmf_skill *s;
    CSN_TRY(CSN_ARENA_NEW(&c->arena, (size_t)most, &s, err));
    uint32_t n = 0;
    c->n_skills = 0;
    for (csn_jiter it = csn_jval_iter(registry); csn_jiter_next(&it); n++) {
        s[n] = (csn_cmf_skill){.record = it.value};
        CSN_TRY(
            csn_jfields_read(it.value, fields, CSN_N_FIELDS(fields), "skills", &s[n], NULL, err));
        CSN_TRY(check_layers(c, &s[n], err));
        const csn_jval *selection = csn_jval_get(it.value, "selection");
        if (csn_jval_kind(selection) == CSN_JSON_OBJECT) {
            CSN_TRY(csn_cmf_parse_selection(&c->arena, &c->arch, selection, s[n].id,
                                            &s[n].selection, err));
        }
    }
    for (uint32_t i = 0; i < c->dir.n; i++) {
        if (id_of(c->dir.tensors[i].name, &id) && !csn_str_eq(id, last)) {
            s[n++] = (csn_cmf_skill){.id = id};
            last = id;
        }
    }
    if (n > 0) {
        qsort(s, n, sizeof(*s), compare);
    }
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

bool csn_cmf_skill_replaces(csn_str id, csn_str tensor, csn_str *ret_name) {
    const csn_str prefix = CSN_STR("skill.");
    if (!csn_str_starts(tensor, prefix)) {
        return false;
    }
    csn_str rest = csn_str_make(tensor.ptr + prefix.len, tensor.len - prefix.len);
    if (!csn_str_starts(rest, id) || rest.len <= id.len + 1 || rest.ptr[id.len] != '.') {
        return false;
    }
    *ret_name = csn_str_make(rest.ptr + id.len + 1, rest.len - id.len - 1);
    return true;
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
