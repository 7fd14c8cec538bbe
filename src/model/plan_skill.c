/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a plan that skills decide (CMF 9, facts 10): which entry of the directory stands in
 * for a tensor of the backbone, or the sum of several. */
#include "base/alloc.h"
#include "base/size.h"
#include "model/plan_internal.h"

enum { CHUNK = 2048, ALIGN = 64 }; /* values decoded at once; bytes */

/* The skill's entry for the backbone's t, or NULL (facts 10.1). */
static caisson_status find(struct csn_maker *m, csn_str skill, const csn_tensor *t,
                           const csn_tensor **ret, caisson_error *err) {
    const csn_tensor *mine;
    CSN_TRY(csn_cmf_skill_tensor(csn_store_cmf(m->store), skill, t->name, &mine, err));
    *ret = mine;
    if (mine == NULL) {
        return CAISSON_OK;
    }
    if (!csn_shape_eq(&mine->shape, &t->shape)) {
        char want[96];
        char got[96];
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", .tensor = mine->name,
                        .what = "the skill's tensor has another shape than the one it replaces",
                        CSN_TEXTS(csn_str_from(csn_shape_text(&t->shape, want, sizeof(want))),
                                  csn_str_from(csn_shape_text(&mine->shape, got, sizeof(got)))));
    }
    m->used[mine - m->dir->tensors] = true;
    return CAISSON_OK;
}

/* n floats of the plan's memory, aligned as payloads in a file are. */
static caisson_status new_floats(struct csn_maker *m, uint64_t n, float **ret, caisson_error *err) {
    uint64_t bytes;
    size_t size;
    uint8_t *p;
    if (!csn_mul(n, sizeof(float), &bytes) || !csn_add(bytes, ALIGN, &bytes) ||
        !csn_to_size(bytes, &size)) {
        return csn_fail_nomem(err, UINT64_MAX);
    }
    CSN_TRY(CSN_ARENA_NEW(m->arena, size, &p, err));
    *ret = (float *)(void *)(p + (ALIGN - (uintptr_t)p % ALIGN) % ALIGN);
    return CAISSON_OK;
}

static void add_scaled(const csn_matrix *mat, float weight, uint64_t n, float *sum) {
    float x[CHUNK];
    for (uint64_t i = 0; i < n; i += CHUNK) {
        uint64_t k = n - i < CHUNK ? n - i : CHUNK;
        mat->dtype->decode(mat, i, k, x);
        for (uint64_t j = 0; j < k; j++) {
            sum[i + j] += weight * x[j];
        }
    }
}

/* A tensor that does not stay in memory is read for this alone: it is the sum that stays. */
static caisson_status add_part(struct csn_maker *m, const csn_tensor *t, float weight, uint64_t n,
                               float *sum, caisson_error *err) {
    csn_matrix mat;
    bool is_streamed = csn_store_is_streamed(m->store, t);
    CSN_TRY(is_streamed ? csn_store_read(m->store, t, &mat, err)
                        : csn_store_matrix(m->store, t->name, &mat, err));
    add_scaled(&mat, weight, n, sum);
    if (is_streamed) {
        csn_free_aligned((void *)(uintptr_t)mat.data);
    }
    return CAISSON_OK;
}

static caisson_status blend(struct csn_maker *m, const csn_tensor *t, csn_matrix *ret,
                            caisson_error *err) {
    uint64_t n;
    float *sum;
    (void)csn_shape_count(&t->shape, &n); /* checked at open */
    CSN_TRY(new_floats(m, n, &sum, err)); /* zeros */
    for (uint32_t i = 0; i < m->n_parts; i++) {
        const csn_tensor *mine;
        CSN_TRY(find(m, m->parts[i].skill, t, &mine, err));
        CSN_TRY(add_part(m, mine != NULL ? mine : t, m->parts[i].weight, n, sum, err));
    }
    *ret = csn_matrix_make(csn_dtype_by_name(CSN_STR("f32")), &t->shape, sum, n * sizeof(float));
    return CAISSON_OK;
}

caisson_status csn_plan_from_skills(struct csn_maker *m, const csn_tensor *t, bool *ret_found,
                                    csn_matrix *ret, csn_str *ret_name, caisson_error *err) {
    const csn_tensor *mine = NULL;
    for (uint32_t i = 0; i < m->n_parts && mine == NULL; i++) {
        CSN_TRY(find(m, m->parts[i].skill, t, &mine, err));
    }
    *ret_found = mine != NULL;
    if (mine == NULL) {
        return CAISSON_OK;
    }
    if (m->n_parts > 1) {
        return blend(m, t, ret, err);
    }
    *ret_name = mine->name;
    return csn_store_matrix(m->store, mine->name, ret, err);
}

bool csn_plan_is_of_skill(const struct csn_maker *m, csn_str name) {
    csn_str rest;
    const csn_cmf_skill *s = csn_cmf_skill_of(csn_store_cmf(m->store), name, &rest);
    for (uint32_t i = 0; s != NULL && i < m->n_parts; i++) {
        if (csn_str_eq(m->parts[i].skill, s->id)) {
            return true;
        }
    }
    return false;
}
