/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/donor.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "convert/arithmetic.h"
#include "convert/tensor.h"

struct csn_donor {
    csn_cmf *cmf; /* one of the two */
    csn_source *source;
    csn_convert_plan plan;           /* of source */
    const csn_convert_item **sorted; /* [plan.n] by name */
    csn_arena arena;
    csn_buf bytes; /* a payload, or a piece of one */
};

static bool is_cmf(csn_fs *fs, const char *path) {
    caisson_error ignored; /* the real open tells */
    csn_file *f;
    char magic[4] = {0};
    if (fs->ops->is_dir(fs, path) ||
        csn_fs_open(fs, path, CSN_OPEN_READ, &f, &ignored) != CAISSON_OK) {
        return false;
    }
    caisson_status s = csn_file_read_at(f, 0, magic, sizeof(magic), &ignored);
    csn_file_close(f);
    return s == CAISSON_OK && memcmp(magic, "CMF\x01", sizeof(magic)) == 0;
}

static int compare_items(const void *a, const void *b) {
    const csn_convert_item *const *x = a, *const *y = b;
    return csn_str_cmp((*x)->name, (*y)->name);
}

static int compare_name(const void *name, const void *item) {
    return csn_str_cmp(*(const csn_str *)name, (*(const csn_convert_item *const *)item)->name);
}

static caisson_status open_source(csn_donor *d, csn_fs *fs, const char *path, const csn_log *log,
                                  caisson_error *err) {
    CSN_TRY(csn_source_open(fs, path, log, &d->source, err));
    CSN_TRY(csn_convert_plan_make(d->source, log, &d->arena, &d->plan, err));
    CSN_TRY(CSN_ARENA_NEW(&d->arena, d->plan.n, &d->sorted, err));
    for (uint32_t i = 0; i < d->plan.n; i++) {
        d->sorted[i] = &d->plan.items[i];
    }
    qsort(d->sorted, d->plan.n, sizeof(const csn_convert_item *), compare_items);
    return CAISSON_OK;
}

caisson_status csn_donor_open(csn_fs *fs, const char *path, const csn_log *log, csn_donor **ret,
                              caisson_error *err) {
    csn_donor *d;
    CSN_TRY(CSN_NEW(1, &d, err));
    d->bytes = CSN_BUF_INIT(SIZE_MAX / 2);
    caisson_status s = is_cmf(fs, path) ? csn_cmf_open_model(fs, path, NULL, NULL, &d->cmf, err)
                                        : open_source(d, fs, path, log, err);
    if (s != CAISSON_OK) {
        csn_error_file(err, path);
        csn_donor_close(d);
        return s;
    }
    *ret = d;
    return CAISSON_OK;
}

void csn_donor_close(csn_donor *d) {
    if (d != NULL) {
        csn_cmf_close(d->cmf);
        csn_source_close(d->source);
        csn_buf_free(&d->bytes);
        csn_arena_done(&d->arena);
        csn_free(d);
    }
}

caisson_status csn_donor_payload(const csn_cmf *c, const csn_tensor *t, csn_buf *ret,
                                 caisson_error *err) {
    ret->len = 0;
    CSN_TRY(csn_buf_reserve(ret, (size_t)t->nbytes, err));
    CSN_TRY(csn_file_read_at(csn_cmf_file_of(c, t->i_file)->file, t->offset, ret->ptr,
                             (size_t)t->nbytes, err));
    ret->len = (size_t)t->nbytes;
    return csn_cmf_check_tensor(c, (uint32_t)(t - c->dir.tensors), ret->ptr, err);
}

static caisson_status check_shape(csn_str name, const csn_shape *want, const csn_shape *have,
                                  caisson_error *err) {
    if (csn_shape_eq(want, have)) {
        return CAISSON_OK;
    }
    char w[96];
    char g[96];
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", .tensor = name,
                    .what = "the donor has the tensor in another shape than the base",
                    CSN_TEXTS(csn_str_from(csn_shape_text(want, w, sizeof(w))),
                              csn_str_from(csn_shape_text(have, g, sizeof(g)))));
}

static caisson_status missing(csn_str name, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_MISSING, .section = "directory", .tensor = name,
                    .what = "the donor has no tensor of this name");
}

static caisson_status ignore(void *ctx, uint64_t n_bytes, caisson_error *err) {
    (void)ctx;
    (void)n_bytes;
    (void)err;
    return CAISSON_OK;
}

static caisson_status read_cmf(csn_donor *d, csn_str name, const csn_shape *shape, float *out,
                               caisson_error *err) {
    const csn_tensor *t = csn_directory_find(&d->cmf->dir, name);
    uint64_t n = 0;
    if (t == NULL) {
        return missing(name, err);
    }
    CSN_TRY(check_shape(name, shape, &t->shape, err));
    if (t->dtype->decode == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "directory", .tensor = name,
                        .what = "this build cannot decode tensors of this dtype",
                        .got = csn_str_from(t->dtype->name));
    }
    CSN_TRY(csn_donor_payload(d->cmf, t, &d->bytes, err));
    csn_matrix m = csn_matrix_make(t->dtype, &t->shape, d->bytes.ptr, t->nbytes);
    (void)csn_shape_count(&t->shape, &n); /* checked at open */
    t->dtype->decode(&m, 0, n, out);
    return CAISSON_OK;
}

static caisson_status read(csn_donor *d, csn_str name, const csn_shape *shape, csn_pool *pool,
                           float *out, caisson_error *err) {
    if (d->cmf != NULL) {
        return read_cmf(d, name, shape, out, err);
    }
    const csn_convert_item *const *item =
        bsearch(&name, d->sorted, d->plan.n, sizeof(*d->sorted), compare_name);
    if (item == NULL) {
        return missing(name, err);
    }
    CSN_TRY(check_shape(name, shape, &(*item)->shape, err));
    const csn_tensor_watch watch = {ignore, NULL};
    return csn_tensor_read_f32(d->source, *item, pool, &d->bytes, &watch, out, err);
}

caisson_status csn_donor_read(csn_donor *d, csn_str name, const csn_shape *shape, csn_pool *pool,
                              float *out, caisson_error *err) {
    caisson_status s = read(d, name, shape, pool, out, err);
    if (s != CAISSON_OK) {
        csn_error_file(err, d->cmf != NULL ? d->cmf->file->path : d->source->files[0]->path);
    }
    return s;
}

csn_str csn_donor_bytes_as(const csn_donor *d, csn_str name, const csn_dtype *dtype) {
    const csn_tensor *t = d->cmf != NULL ? csn_directory_find(&d->cmf->dir, name) : NULL;
    return t != NULL && t->dtype == dtype ? csn_buf_view(&d->bytes) : CSN_STR("");
}

caisson_status csn_donor_check_arch(const csn_donor *d, const csn_arch *base, caisson_error *err) {
    caisson_status s = csn_arithmetic_check(d->cmf != NULL ? &d->cmf->arch : &d->source->arch, base,
                                            "the donor computes otherwise than the base, and a "
                                            "skill is made of tensors alone",
                                            err);
    if (s != CAISSON_OK) {
        csn_error_file(err, d->cmf != NULL ? d->cmf->file->path : d->source->files[0]->path);
    }
    return s;
}

uint32_t csn_donor_n(const csn_donor *d) {
    return d->cmf != NULL ? d->cmf->dir.n : d->plan.n;
}

csn_str csn_donor_name(const csn_donor *d, uint32_t i) {
    return d->cmf != NULL ? d->cmf->dir.tensors[i].name : d->plan.items[i].name;
}
