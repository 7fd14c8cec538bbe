/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/skill_add.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/size.h"
#include "caisson/limits.h"
#include "convert/donor.h"
#include "convert/skill_internal.h"
#include "convert/tensor.h"

typedef struct job {
    const csn_skill_add_options *o;
    csn_str id;
    csn_cmf_append *append;
    csn_cmf *base; /* the whole model; append is its first file */
    csn_donor *donor;
    csn_pool *pool;
    csn_buf payload, encoded; /* the base's bytes of a tensor, the skill's */
    bool *wanted;             /* [base->arch.n_layers] the layers that were asked for; NULL = all */
    bool *layers;             /* [base->arch.n_layers] where something was stored */
    uint32_t n_stored;
    uint64_t n_done, n_total; /* bytes of the base */
    caisson_error *err;
} job;

caisson_status csn_skill_check_id(csn_str id, caisson_error *err) {
    bool fits = id.len > 0 && id.len <= 64;
    for (size_t i = 0; fits && i < id.len; i++) {
        char c = id.ptr[i];
        fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
    }
    if (!fits) {
        return CSN_FAIL(err, CAISSON_E_ARG, .tensor = id,
                        .what = "an id is made of 1 to 64 of A-Z a-z 0-9 _ -");
    }
    if (csn_str_is(id, "none") || csn_str_is(id, "auto")) { /* --skill could not name it */
        return CSN_FAIL(err, CAISSON_E_ARG, .tensor = id,
                        .what = "an id that means something else where a skill is chosen");
    }
    return CAISSON_OK;
}

/* The layers of "0,4-7". */
static caisson_status find_layers(job *j) {
    csn_str spec = j->o->layers;
    uint32_t n = j->base->arch.n_layers;
    if (spec.len == 0 || csn_str_is(spec, "all")) {
        return CAISSON_OK;
    }
    CSN_TRY(CSN_NEW(n, &j->wanted, j->err));
    for (size_t at = 0; at <= spec.len;) {
        size_t comma = csn_str_find(spec, CSN_STR(","), at);
        size_t end = comma != SIZE_MAX ? comma : spec.len;
        csn_str part = csn_str_make(spec.ptr + at, end - at);
        size_t dash = csn_str_find(part, CSN_STR("-"), 0);
        uint64_t first, last;
        bool fits =
            csn_str_to_u64(csn_str_make(part.ptr, dash != SIZE_MAX ? dash : part.len), &first);
        last = first;
        if (fits && dash != SIZE_MAX) {
            fits = csn_str_to_u64(csn_str_make(part.ptr + dash + 1, part.len - dash - 1), &last);
        }
        if (!fits || first > last || last >= n) {
            return CSN_FAIL(j->err, CAISSON_E_ARG,
                            .what = "layers are \"all\", or numbers and ranges of layers that the "
                                    "model has, as in 0,4-7",
                            CSN_TEXTS(CSN_STR("all"), part));
        }
        for (uint64_t i = first; i <= last; i++) {
            j->wanted[i] = true;
        }
        at = end + 1;
    }
    return CAISSON_OK;
}

/* Tensors of the base that a skill may replace; *ret_layer = UINT32_MAX outside of layers. */
static bool is_wanted(const job *j, csn_str name, uint32_t *ret_layer) {
    const csn_str layers = CSN_STR("model.layers.");
    csn_str rest = {0};
    *ret_layer = UINT32_MAX;
    if (csn_str_starts(name, layers)) {
        size_t dot = csn_str_find(name, CSN_STR("."), layers.len);
        uint64_t i;
        if (dot == SIZE_MAX ||
            !csn_str_to_u64(csn_str_make(name.ptr + layers.len, dot - layers.len), &i) ||
            i >= j->base->arch.n_layers) {
            return false;
        }
        if (j->wanted != NULL && !j->wanted[i]) {
            return false;
        }
        *ret_layer = (uint32_t)i;
        rest = csn_str_make(name.ptr + dot, name.len - dot);
    }
    switch (j->o->family) {
    case CSN_SKILL_FFN: return csn_str_starts(rest, CSN_STR(".mlp."));
    case CSN_SKILL_ATTENTION: return csn_str_starts(rest, CSN_STR(".self_attn."));
    case CSN_SKILL_ALL: break;
    }
    return *ret_layer != UINT32_MAX ||
           (j->wanted == NULL &&
            (csn_str_is(name, "model.embed_tokens.weight") ||
             csn_str_is(name, "model.norm.weight") || csn_str_starts(name, CSN_STR("lm_head."))));
}

/* The donor's x in the dtype of the skill: its own bytes if it has that, since encoding again would
 * lose some of it; what f16 cannot hold stays f32. */
static caisson_status encode(job *j, const csn_tensor *t, const float *x,
                             const csn_dtype **ret_to) {
    const csn_dtype *f32 = csn_dtype_by_name(CSN_STR("f32"));
    const csn_dtype *to = j->o->quant != NULL && t->shape.n_dims == 2 ? j->o->quant : t->dtype;
    csn_str bytes = csn_donor_bytes_as(j->donor, t->name, to);
    *ret_to = to;
    if (bytes.len > 0) {
        j->encoded.len = 0;
        return csn_buf_str(&j->encoded, bytes, j->err);
    }
    if (to->encode == NULL) {
        return CSN_FAIL(j->err, CAISSON_E_UNSUPPORTED, .section = "directory", .tensor = t->name,
                        .what = "nobody writes the dtype that the base has here; choose another "
                                "for the skill",
                        .got = csn_str_from(to->name));
    }
    caisson_status s =
        csn_tensor_encode(to, &t->shape, x, &j->o->encode, j->pool, &j->encoded, j->err);
    if (s == CAISSON_E_BOUNDS) {
        to = f32;
        s = csn_tensor_encode(to, &t->shape, x, &j->o->encode, j->pool, &j->encoded, j->err);
    }
    *ret_to = to;
    return s;
}

static caisson_status store(job *j, const csn_tensor *t, const csn_dtype *to) {
    csn_buf name = CSN_BUF_INIT(1 << 17);
    CSN_TRY(csn_buf_printf(&name, j->err, "skill.%.*s.%.*s", CSN_STR_ARGS(j->id),
                           CSN_STR_ARGS(t->name)));
    csn_cmf_plan_tensor plan = {
        .name = csn_buf_view(&name), .dtype = to, .shape = t->shape, .nbytes = j->encoded.len};
    caisson_status s =
        csn_cmf_append_tensor(j->append, &plan, j->encoded.ptr, j->encoded.len, j->err);
    csn_buf_free(&name);
    j->n_stored += s == CAISSON_OK;
    return s;
}

/* Compares one tensor, whose values are base [n] and x [n], and stores the donor's if it differs.
 */
static caisson_status take(job *j, const csn_tensor *t, const float *base, const float *x,
                           uint64_t n, bool *ret_stored) {
    const csn_convert_item as_f32 = {.to = csn_dtype_by_name(CSN_STR("f32")), .shape = t->shape};
    csn_skill_report r = {.name = t->name};
    double sums[2];
    *ret_stored = false;
    /* f32 values are their own payload on the machines that we run on */
    csn_str values = csn_str_make((const char *)x, (size_t)n * sizeof(float));
    CSN_TRY(csn_tensor_error_sums(&as_f32, values, base, n, j->pool, sums, j->err));
    if (!isfinite(sums[0])) {
        return CSN_FAIL(j->err, CAISSON_E_PARSE, .section = "data", .tensor = t->name,
                        .what = "the donor or the base has a value that is not a finite number");
    }
    bool is_all_new = sums[0] > 0 && sums[1] <= 0; /* a base of zeros, of which no share tells */
    r.delta = is_all_new ? 1 : csn_tensor_error_of(sums);
    if (is_all_new || (r.delta > 0 && r.delta >= j->o->min_delta)) {
        const csn_dtype *to;
        CSN_TRY(encode(j, t, x, &to));
        bool same =
            to == t->dtype && csn_str_eq(csn_buf_view(&j->encoded), csn_buf_view(&j->payload));
        if (!same) {
            const csn_convert_item item = {.to = to, .shape = t->shape};
            CSN_TRY(csn_tensor_error(&item, csn_buf_view(&j->encoded), x, n, j->pool,
                                     &r.relative_error, j->err));
            CSN_TRY(store(j, t, to));
            r.to = to;
            r.nbytes = j->encoded.len;
            *ret_stored = true;
        }
    }
    if (j->o->on_tensor != NULL) {
        j->o->on_tensor(j->o->ctx, &r);
    }
    return CAISSON_OK;
}

static caisson_status compare(job *j, const csn_tensor *t, bool *ret_stored) {
    uint64_t n = 0;
    uint64_t bytes;
    float *base = NULL;
    float *x = NULL;
    if (t->dtype->decode == NULL) {
        return CSN_FAIL(j->err, CAISSON_E_UNSUPPORTED, .section = "directory", .tensor = t->name,
                        .what = "this build cannot decode tensors of this dtype",
                        .got = csn_str_from(t->dtype->name));
    }
    if (!csn_shape_count(&t->shape, &n) || !csn_mul(n, sizeof(float), &bytes) || bytes > SIZE_MAX) {
        return csn_fail_nomem(j->err, UINT64_MAX);
    }
    CSN_TRY(csn_donor_payload(j->base, t, &j->payload, j->err));
    caisson_status s = csn_alloc_aligned((size_t)bytes, (void **)&base, j->err);
    if (s == CAISSON_OK) {
        s = csn_alloc_aligned((size_t)bytes, (void **)&x, j->err);
    }
    if (s == CAISSON_OK) {
        csn_matrix m = csn_matrix_make(t->dtype, &t->shape, j->payload.ptr, t->nbytes);
        t->dtype->decode(&m, 0, n, base);
        s = csn_donor_read(j->donor, t->name, &t->shape, j->pool, x, j->err);
    }
    if (s == CAISSON_OK) {
        s = take(j, t, base, x, n, ret_stored);
    }
    csn_free_aligned(base);
    csn_free_aligned(x);
    return s;
}

/* What the base has not, no skill can bring: left out, the skill would be another model. */
static caisson_status check_names(const job *j) {
    uint32_t layer;
    for (uint32_t i = 0; i < csn_donor_n(j->donor); i++) {
        csn_str name = csn_donor_name(j->donor, i);
        if (is_wanted(j, name, &layer) && csn_directory_find(&j->base->dir, name) == NULL) {
            return CSN_FAIL(j->err, CAISSON_E_PARSE, .section = "directory", .tensor = name,
                            .what = "the donor has a tensor that the base has not");
        }
    }
    return CAISSON_OK;
}

static caisson_status compare_all(job *j) {
    uint32_t layer;
    CSN_TRY(csn_donor_check_arch(j->donor, &j->base->arch, j->err));
    CSN_TRY(check_names(j));
    for (uint32_t i = 0; i < j->base->dir.n; i++) {
        const csn_tensor *t = &j->base->dir.tensors[i];
        j->n_total += is_wanted(j, t->name, &layer) ? t->nbytes : 0;
    }
    for (uint32_t i = 0; i < j->base->dir.n; i++) {
        const csn_tensor *t = &j->base->dir.tensors[i];
        bool stored;
        if (!is_wanted(j, t->name, &layer)) {
            continue;
        }
        CSN_TRY(compare(j, t, &stored));
        if (stored && layer != UINT32_MAX) {
            j->layers[layer] = true;
        }
        j->n_done += t->nbytes;
        CSN_TRY(csn_progress_tell(j->o->progress, "compare", j->n_done, j->n_total, j->err));
    }
    if (j->n_stored == 0) {
        return CSN_FAIL(j->err, CAISSON_E_ARG, .tensor = j->id,
                        .what = "no tensor of the donor differs enough from the base's");
    }
    return CAISSON_OK;
}

static void put_record(csn_jw *w, const job *j, const char *donor) {
    csn_jw_object(w);
    csn_skill_put_text(w, "id", j->id);
    csn_skill_put_text(w, "name", j->o->name);
    csn_skill_put_text(w, "description", j->o->description);
    csn_jw_key(w, CSN_STR("layers"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < j->base->arch.n_layers; i++) {
        if (j->layers[i]) {
            csn_jw_u64(w, i);
        }
    }
    csn_jw_array_end(w);
    if (j->o->selection.len > 0) {
        csn_jw_key(w, CSN_STR("selection"));
        csn_jw_json(w, j->o->selection);
    }
    csn_skill_put_text(w, "input_mask_task", j->o->input_mask_task);
    csn_jw_key(w, CSN_STR("provenance"));
    csn_jw_object(w);
    csn_skill_put_text(w, "donor", csn_source_last_name(donor));
    csn_jw_put_f64(w, "min_delta", j->o->min_delta);
    csn_jw_put_u64(w, "tensors", j->n_stored);
    csn_jw_object_end(w);
    csn_jw_object_end(w);
}

static caisson_status add(job *j, csn_fs *fs, const char *path, const char *donor) {
    CSN_TRY(csn_skill_check_id(j->id, j->err));
    CSN_TRY(csn_cmf_append_begin_model(fs, path, &j->append, &j->base, j->err));
    for (uint32_t i = 0; i < j->base->n_skills; i++) {
        if (csn_str_eq(j->base->skills[i].id, j->id)) {
            return CSN_FAIL(j->err, CAISSON_E_EXISTS, .file = path, .section = "header",
                            .tensor = j->id, .what = "the file has a skill of this id");
        }
    }
    if (csn_cmf_is_removed_skill(j->base, j->id)) {
        return CSN_FAIL(j->err, CAISSON_E_EXISTS, .file = path, .section = "header",
                        .tensor = j->id,
                        .what = "the removal of a skill of this id has not ended: remove it again");
    }
    CSN_TRY(csn_skill_check_model(j->base, j->err));
    CSN_TRY(csn_donor_open(fs, donor, j->o->log, &j->donor, j->err));
    CSN_TRY(csn_pool_new(j->o->n_threads, &j->pool, j->err));
    CSN_TRY(CSN_NEW(j->base->arch.n_layers, &j->layers, j->err));
    CSN_TRY(find_layers(j));
    CSN_TRY(compare_all(j));
    csn_buf skills = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    csn_jw w = csn_jw_begin(&skills, j->err);
    csn_jw_array(&w);
    for (csn_jiter it = csn_jval_iter(csn_jval_get(j->base->header, "skills"));
         csn_jiter_next(&it);) {
        csn_jw_value(&w, it.value);
    }
    put_record(&w, j, donor);
    csn_jw_array_end(&w);
    caisson_status s = csn_jw_end(&w);
    if (s == CAISSON_OK) {
        s = csn_skill_set_registry(j->append, &skills, NULL, true, j->err);
    }
    csn_buf_free(&skills);
    return s == CAISSON_OK ? csn_cmf_append_commit(j->append, j->err) : s;
}

caisson_status csn_skill_add(csn_fs *fs, const char *path, csn_str id, const char *donor,
                             const csn_skill_add_options *options, caisson_error *err) {
    job j = {.o = options, .id = id, .err = err};
    j.payload = CSN_BUF_INIT(SIZE_MAX / 2);
    j.encoded = CSN_BUF_INIT(SIZE_MAX / 2);
    caisson_status s = add(&j, fs, path, donor);
    csn_cmf_append_close(j.append);
    csn_cmf_close(j.base);
    csn_donor_close(j.donor);
    csn_pool_free(j.pool);
    csn_buf_free(&j.payload);
    csn_buf_free(&j.encoded);
    csn_free(j.layers);
    csn_free(j.wanted);
    return s;
}
