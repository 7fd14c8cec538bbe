/* SPDX-License-Identifier: Apache-2.0 */
/* Two models held against each other (caisson_file_diff): what their headers say, their sections,
 * their tensors by name, hash and value. How the bytes are laid out is no difference: a compacted,
 * grown or sharded file is equal to the one that it was made of. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "inspect_internal.h"

enum { MAX_DIFF = 256 << 20, CHUNK = 1 << 16 };

typedef struct differ {
    caisson_file *a, *b;
    const caisson_diff_options *o;
    csn_jw w;
    bool differs;
    float *x, *y;             /* [CHUNK] */
    uint64_t n_done, n_total; /* values compared */
    caisson_error *err;
} differ;

/* ---- header ---- */

static caisson_status value_text(const csn_jval *v, csn_buf *ret, caisson_error *err) {
    ret->len = 0;
    csn_jw w = csn_jw_begin(ret, err);
    csn_jw_value(&w, v);
    return csn_jw_end(&w);
}

/* One member of both headers, told when it differs; absent is null. */
static caisson_status diff_value(differ *d, const char *outer, csn_str name, const csn_jval *a,
                                 const csn_jval *b) {
    csn_buf x = CSN_BUF_INIT(MAX_DIFF), y = CSN_BUF_INIT(MAX_DIFF), path = CSN_BUF_INIT(1 << 20);
    caisson_status status = value_text(a, &x, d->err);
    if (status == CAISSON_OK) {
        status = value_text(b, &y, d->err);
    }
    if (status == CAISSON_OK && !csn_str_eq(csn_buf_view(&x), csn_buf_view(&y))) {
        status = csn_buf_printf(&path, d->err, "%s%s%.*s", outer, outer[0] != '\0' ? "." : "",
                                CSN_STR_ARGS(name));
        d->differs = true;
        csn_jw_object(&d->w);
        csn_jw_put_str(&d->w, "key", csn_buf_view(&path));
        csn_jw_key(&d->w, CSN_STR("a"));
        csn_jw_json(&d->w, csn_buf_view(&x));
        csn_jw_key(&d->w, CSN_STR("b"));
        csn_jw_json(&d->w, csn_buf_view(&y));
        csn_jw_object_end(&d->w);
    }
    csn_buf_free(&x);
    csn_buf_free(&y);
    csn_buf_free(&path);
    return status;
}

/* Keys that say how the file is made, not what the model is. */
static bool is_of_the_file(csn_str name) {
    static const char *const names[] = {"section_hashes",       "shard",
                                        CSN_CMF_TENSOR_DIGESTS, CSN_CMF_SECTION_DIGESTS,
                                        CSN_CMF_SHARD_SET,      CSN_CMF_REMOVED_SKILLS};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (csn_str_is(name, names[i])) {
            return true;
        }
    }
    return false;
}

typedef caisson_status (*member_fn)(differ *d, const char *outer, csn_str name, const csn_jval *a,
                                    const csn_jval *b);

/* fn for each name of either object, those of `a` first. */
static caisson_status each_member(differ *d, const char *outer, const csn_jval *a,
                                  const csn_jval *b, member_fn fn) {
    const csn_jval *const both[] = {a, b};
    for (int side = 0; side < 2; side++) {
        for (csn_jiter it = csn_jval_iter(both[side]); csn_jiter_next(&it);) {
            csn_buf name = CSN_BUF_INIT(1 << 20); /* a lookup wants a C string */
            caisson_status status = csn_buf_str(&name, it.key, d->err);
            const csn_jval *other = status == CAISSON_OK && name.ptr != NULL
                                        ? csn_jval_get(both[1 - side], name.ptr)
                                        : NULL;
            if (status == CAISSON_OK && (side == 0 || other == NULL)) {
                status =
                    fn(d, outer, it.key, side == 0 ? it.value : NULL, side == 0 ? other : it.value);
            }
            csn_buf_free(&name);
            CSN_TRY(status);
        }
    }
    return CAISSON_OK;
}

/* Objects of the top level are told member by member. */
static caisson_status diff_top(differ *d, const char *outer, csn_str name, const csn_jval *a,
                               const csn_jval *b) {
    if (is_of_the_file(name)) {
        return CAISSON_OK;
    }
    if (csn_jval_kind(a) != CSN_JSON_OBJECT || csn_jval_kind(b) != CSN_JSON_OBJECT) {
        return diff_value(d, outer, name, a, b);
    }
    csn_buf inner = CSN_BUF_INIT(1 << 20);
    caisson_status status = csn_buf_str(&inner, name, d->err);
    if (status == CAISSON_OK) {
        status = each_member(d, inner.ptr != NULL ? inner.ptr : "", a, b, diff_value);
    }
    csn_buf_free(&inner);
    return status;
}

/* ---- sections ---- */

static caisson_status diff_section(differ *d, int section) {
    csn_buf x = {0}, y = {0};
    CSN_TRY(csn_cmf_read_section(d->a->cmf, section, &x, d->err));
    caisson_status status = csn_cmf_read_section(d->b->cmf, section, &y, d->err);
    if (status == CAISSON_OK && !csn_str_eq(csn_buf_view(&x), csn_buf_view(&y))) {
        d->differs = true;
        csn_jw_object(&d->w);
        csn_jw_put_str(&d->w, "name", csn_str_from(csn_cmf_section_names[section]));
        csn_jw_put_u64(&d->w, "bytes_a", x.len);
        csn_jw_put_u64(&d->w, "bytes_b", y.len);
        csn_jw_object_end(&d->w);
    }
    csn_buf_free(&x);
    csn_buf_free(&y);
    return status;
}

/* ---- tensors ---- */

static const uint8_t *digest_of(const csn_cmf *c, const csn_tensor *t) {
    uint32_t i = (uint32_t)(t - c->dir.tensors);
    for (uint32_t k = 0; k < t->i_file; k++) {
        i -= csn_cmf_file_of(c, k)->n_own;
    }
    const uint8_t *all = csn_cmf_file_of(c, t->i_file)->tensor_digests;
    return all != NULL ? all + (size_t)i * CSN_DIGEST_BYTES : NULL;
}

/* The same bytes, as far as hash and, where both files have one, digest tell. */
static bool same_bytes(const differ *d, const csn_tensor *a, const csn_tensor *b) {
    const uint8_t *x = digest_of(d->a->cmf, a), *y = digest_of(d->b->cmf, b);
    return a->nbytes == b->nbytes && a->hash == b->hash &&
           (x == NULL || y == NULL || memcmp(x, y, CSN_DIGEST_BYTES) == 0);
}

static bool same_shape(const csn_tensor *a, const csn_tensor *b) {
    return a->shape.n_dims == b->shape.n_dims &&
           memcmp(a->shape.dim, b->shape.dim, a->shape.n_dims * sizeof(a->shape.dim[0])) == 0;
}

static bool same_tensor(const differ *d, const csn_tensor *a, const csn_tensor *b) {
    return a->dtype == b->dtype && same_shape(a, b) && same_bytes(d, a, b);
}

typedef struct distance {
    double max_abs, max_rel, norm_diff, norm_a; /* norms squared */
    uint64_t n_differ, n_not_finite;
} distance;

static void add_values(distance *s, const float *x, const float *y, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        double a = (double)x[i], b = (double)y[i];
        if (!isfinite(a) || !isfinite(b)) {
            bool is_same = a == b || (isnan(a) && isnan(b));
            s->n_not_finite += !is_same;
            s->n_differ += !is_same;
            continue;
        }
        double diff = fabs(a - b);
        double larger = fmax(fabs(a), fabs(b));
        s->n_differ += diff != 0;
        s->max_abs = fmax(s->max_abs, diff);
        s->max_rel = larger > 0 ? fmax(s->max_rel, diff / larger) : s->max_rel;
        s->norm_diff += diff * diff;
        s->norm_a += a * a;
    }
}

static caisson_status measure(differ *d, uint32_t i, uint32_t k, distance *ret) {
    caisson_tensor_info info;
    (void)caisson_file_tensor(d->a, i, &info);
    for (uint64_t at = 0; at < info.n_values; at += CHUNK) {
        uint64_t n = info.n_values - at < CHUNK ? info.n_values - at : CHUNK;
        CSN_TRY(caisson_file_decode(d->a, i, at, n, d->x, d->err));
        CSN_TRY(caisson_file_decode(d->b, k, at, n, d->y, d->err));
        add_values(ret, d->x, d->y, n);
        d->n_done += n;
        csn_progress progress = {d->o->on_progress, d->o->ctx};
        CSN_TRY(csn_progress_tell(&progress, "compare", d->n_done, d->n_total, d->err));
    }
    return CAISSON_OK;
}

static void put_shape(csn_jw *w, const csn_shape *s) {
    csn_jw_array(w);
    for (uint32_t i = 0; i < s->n_dims; i++) {
        csn_jw_u64(w, s->dim[i]);
    }
    csn_jw_array_end(w);
}

static void put_side(csn_jw *w, const char *name, const csn_tensor *t) {
    csn_jw_key(w, csn_str_from(name));
    csn_jw_object(w);
    csn_jw_put_str(w, "dtype", csn_str_from(t->dtype->name));
    csn_jw_key(w, CSN_STR("shape"));
    put_shape(w, &t->shape);
    csn_jw_put_u64(w, "bytes", t->nbytes);
    csn_jw_object_end(w);
}

static bool is_comparable(const csn_tensor *a, const csn_tensor *b) {
    return same_shape(a, b) && a->dtype->decode != NULL && b->dtype->decode != NULL;
}

static caisson_status put_changed(differ *d, const csn_tensor *a, const csn_tensor *b) {
    csn_jw *w = &d->w;
    csn_jw_object(w);
    csn_jw_put_str(w, "name", a->name);
    put_side(w, "a", a);
    put_side(w, "b", b);
    csn_jw_key(w, CSN_STR("values"));
    if (d->o->no_values || !is_comparable(a, b)) {
        csn_jw_null(w);
    } else {
        distance s = {0};
        CSN_TRY(measure(d, (uint32_t)(a - d->a->cmf->dir.tensors),
                        (uint32_t)(b - d->b->cmf->dir.tensors), &s));
        csn_jw_object(w);
        csn_jw_put_u64(w, "differ", s.n_differ);
        csn_jw_put_f64(w, "max_abs", s.max_abs);
        csn_jw_put_f64(w, "max_rel", s.max_rel);
        csn_jw_put_f64(w, "relative_error",
                       s.norm_a > 0 ? sqrt(s.norm_diff / s.norm_a) : sqrt(s.norm_diff));
        csn_jw_put_u64(w, "not_finite", s.n_not_finite);
        csn_jw_object_end(w);
    }
    csn_jw_object_end(w);
    return CAISSON_OK;
}

/* The names of `c` that `other` lacks. */
static void put_only(differ *d, const char *name, const csn_cmf *c, const csn_cmf *other) {
    csn_jw_key(&d->w, csn_str_from(name));
    csn_jw_array(&d->w);
    for (uint32_t i = 0; i < c->dir.n; i++) {
        if (csn_directory_find(&other->dir, c->dir.tensors[i].name) == NULL) {
            d->differs = true;
            csn_jw_str(&d->w, c->dir.tensors[i].name);
        }
    }
    csn_jw_array_end(&d->w);
}

static int compare_payloads(const void *x, const void *y) {
    const csn_tensor *a = *(const csn_tensor *const *)x, *b = *(const csn_tensor *const *)y;
    return a->hash != b->hash ? (a->hash > b->hash) - (a->hash < b->hash)
                              : (a->nbytes > b->nbytes) - (a->nbytes < b->nbytes);
}

/* Bytes of b's payloads that a has too, under whatever name. */
static caisson_status count_shared(const differ *d, uint64_t *ret) {
    const csn_directory *dir = &d->a->cmf->dir;
    const csn_tensor **list;
    CSN_TRY(CSN_NEW((size_t)dir->n + 1, &list, d->err));
    for (uint32_t i = 0; i < dir->n; i++) {
        list[i] = &dir->tensors[i];
    }
    qsort(list, dir->n, sizeof(*list), compare_payloads);
    *ret = 0;
    for (uint32_t i = 0; i < d->b->cmf->dir.n; i++) {
        const csn_tensor *t = &d->b->cmf->dir.tensors[i];
        const csn_tensor **found = bsearch(&t, list, dir->n, sizeof(*list), compare_payloads);
        *ret += found != NULL && same_bytes(d, *found, t) ? t->nbytes : 0;
    }
    csn_free(list);
    return CAISSON_OK;
}

static caisson_status diff_tensors(differ *d) {
    const csn_cmf *a = d->a->cmf, *b = d->b->cmf;
    csn_jw *w = &d->w;
    uint64_t n_same = 0, same = 0, shared = 0, n;
    CSN_TRY(count_shared(d, &shared));
    for (uint32_t i = 0; i < a->dir.n; i++) {
        const csn_tensor *t = &a->dir.tensors[i], *u = csn_directory_find(&b->dir, t->name);
        bool is_same = u != NULL && same_tensor(d, t, u);
        n_same += is_same;
        same += is_same ? t->nbytes : 0;
        if (u != NULL && !is_same && is_comparable(t, u) && csn_shape_count(&t->shape, &n)) {
            d->n_total += n;
        }
    }
    csn_jw_key(w, CSN_STR("tensors"));
    csn_jw_object(w);
    csn_jw_put_u64(w, "same", n_same);
    csn_jw_put_u64(w, "same_bytes", same);
    csn_jw_put_u64(w, "shared_bytes", shared);
    put_only(d, "only_a", a, b);
    put_only(d, "only_b", b, a);
    csn_jw_key(w, CSN_STR("changed"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < a->dir.n; i++) {
        const csn_tensor *t = &a->dir.tensors[i], *u = csn_directory_find(&b->dir, t->name);
        if (u != NULL && !same_tensor(d, t, u)) {
            d->differs = true;
            CSN_TRY(put_changed(d, t, u));
        }
    }
    csn_jw_array_end(w);
    csn_jw_object_end(w);
    return CAISSON_OK;
}

static caisson_status diff(differ *d) {
    csn_jw *w = &d->w;
    CSN_TRY(CSN_NEW(CHUNK, &d->x, d->err));
    CSN_TRY(CSN_NEW(CHUNK, &d->y, d->err));
    csn_jw_object(w);
    csn_jw_key(w, CSN_STR("header"));
    csn_jw_array(w);
    CSN_TRY(each_member(d, "", d->a->cmf->header, d->b->cmf->header, diff_top));
    csn_jw_array_end(w);
    csn_jw_key(w, CSN_STR("sections"));
    csn_jw_array(w);
    for (int i = CSN_CMF_MASKS; i <= CSN_CMF_INDEX; i++) {
        CSN_TRY(diff_section(d, i));
    }
    csn_jw_array_end(w);
    CSN_TRY(diff_tensors(d));
    csn_jw_put_bool(w, "equal", !d->differs);
    csn_jw_object_end(w);
    return csn_jw_end(w);
}

caisson_status caisson_file_diff(caisson_file *a, caisson_file *b,
                                 const caisson_diff_options *options, bool *ret_equal,
                                 caisson_text *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(a != NULL && b != NULL && ret_equal != NULL && ret != NULL, err,
                 "files and results must not be NULL");
    caisson_diff_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    CSN_TRY(csn_api_file_need_cmf(a, err));
    CSN_TRY(csn_api_file_need_cmf(b, err));
    csn_buf out = CSN_BUF_INIT(MAX_DIFF);
    differ d = {.a = a, .b = b, .o = &o, .w = csn_jw_begin(&out, err), .err = err};
    caisson_status status = diff(&d);
    csn_free(d.x);
    csn_free(d.y);
    if (status != CAISSON_OK) {
        csn_buf_free(&out);
        return status;
    }
    *ret_equal = !d.differs;
    *ret = csn_api_take_text(&out);
    return CAISSON_OK;
}
