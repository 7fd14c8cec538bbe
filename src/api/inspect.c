/* SPDX-License-Identifier: Apache-2.0 */
/* Files as files: what kind, which tensors, their values, whether the hashes hold. */
#include "caisson/inspect.h"

#include "api_internal.h"
#include "base/alloc.h"
#include "inspect_internal.h"

static caisson_status detect_directory(const char *path, caisson_kind *ret, caisson_error *err) {
    csn_buf name = CSN_BUF_INIT(1 << 16);
    csn_fs *fs = csn_fs_os();
    CSN_TRY(csn_buf_printf(&name, err, "%s/config.json", path));
    *ret = fs->ops->exists(fs, name.ptr) ? CAISSON_KIND_HF_DIRECTORY
           : csn_warp_is(fs, path)       ? CAISSON_KIND_WASTE
                                         : CAISSON_KIND_UNKNOWN;
    csn_buf_free(&name);
    return CAISSON_OK;
}

caisson_status caisson_detect(const char *path, caisson_kind *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && ret != NULL, err, "path and ret must not be NULL");
    csn_fs *fs = csn_fs_os();
    if (fs->ops->is_dir(fs, path)) {
        return detect_directory(path, ret, err);
    }
    csn_file *f;
    CSN_TRY(csn_fs_open(fs, path, CSN_OPEN_READ, &f, err));
    unsigned char magic[4] = {0};
    uint64_t n;
    caisson_status status = csn_file_size(f, &n, err);
    if (status == CAISSON_OK && n >= sizeof(magic)) {
        status = csn_file_read_at(f, 0, magic, sizeof(magic), err);
    }
    csn_file_close(f);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        return status;
    }
    *ret = memcmp(magic, "CMF\x01", 4) == 0 ? CAISSON_KIND_CMF
           : memcmp(magic, "GGUF", 4) == 0  ? CAISSON_KIND_GGUF
                                            : CAISSON_KIND_UNKNOWN;
    return CAISSON_OK;
}

static caisson_status open_parts(const char *path, const caisson_open_options *o, caisson_file *f,
                                 csn_api_signed *files, caisson_error *err) {
    csn_api_container c = {0};
    CSN_TRY(csn_api_open_container(path, o, &c, files, err));
    f->cmf = c.cmf;
    f->warp = c.warp;
    f->dir = c.warp != NULL ? &c.warp->dir : &c.cmf->dir;
    CSN_TRY(csn_api_store(&c, o, &f->store, err));
    if (f->warp != NULL) {
        CSN_TRY(csn_api_experts_new(f->warp, o->verify, &f->experts, err));
    }
    return csn_api_still_signed(files, err);
}

caisson_status caisson_file_open(const char *path, const caisson_open_options *options,
                                 caisson_file **ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && ret != NULL, err, "path and ret must not be NULL");
    caisson_open_options o;
    csn_api_signed files = {0};
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    caisson_file *f;
    CSN_TRY(CSN_NEW(1, &f, err));
    caisson_status status = open_parts(path, &o, f, &files, err);
    csn_api_signed_done(&files);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        caisson_file_close(f);
        return status;
    }
    *ret = f;
    return CAISSON_OK;
}

void caisson_file_close(caisson_file *f) {
    if (f == NULL) {
        return;
    }
    if (f->model != NULL) { /* each owns the one before it */
        csn_model_free(f->model);
    } else if (f->store != NULL) {
        csn_store_free(f->store);
    } else {
        csn_cmf_close(f->cmf);
        csn_warp_close(f->warp);
    }
    csn_api_experts_free(f->experts);
    csn_free(f);
}

uint32_t caisson_file_n_tensors(const caisson_file *f) {
    return f->dir->n + (f->experts != NULL ? csn_api_experts_n(f->experts) : 0);
}

bool caisson_file_tensor(const caisson_file *f, uint32_t i, caisson_tensor_info *ret) {
    if (i >= f->dir->n) {
        return f->experts != NULL && csn_api_experts_tensor(f->experts, i - f->dir->n, ret);
    }
    const csn_tensor *t = &f->dir->tensors[i];
    *ret = (caisson_tensor_info){
        .name = t->name.ptr,
        .name_n = t->name.len,
        .dtype = t->dtype->name,
        .n_dims = t->shape.n_dims,
        .i_shard = t->i_file,
        .offset = t->offset,
        .n_bytes = t->nbytes,
        .hash = t->hash,
    };
    for (uint32_t d = 0; d < t->shape.n_dims; d++) {
        ret->shape[d] = t->shape.dim[d];
    }
    (void)csn_shape_count(&t->shape, &ret->n_values); /* checked at open */
    return true;
}

int64_t caisson_file_find(const caisson_file *f, const char *name, size_t n) {
    const csn_tensor *t = csn_directory_find(f->dir, csn_str_make(name, n));
    if (t != NULL) {
        return t - f->dir->tensors;
    }
    int64_t i = f->experts != NULL ? csn_api_experts_find(f->experts, csn_str_make(name, n)) : -1;
    return i >= 0 ? f->dir->n + i : -1;
}

caisson_status csn_api_file_need_cmf(const caisson_file *f, caisson_error *err) {
    return f->cmf != NULL ? CAISSON_OK
                          : CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = f->warp->path,
                                     .what = "only a .cmf file has this");
}

static const char *path_of(const caisson_file *f) {
    return f->warp != NULL ? f->warp->path : f->cmf->file->path;
}

typedef struct decode_job {
    const csn_matrix *matrix;
    uint64_t first, n;
    float *out;
} decode_job;

static caisson_status decode(void *ctx, caisson_error *err) {
    (void)err;
    const decode_job *j = ctx;
    j->matrix->dtype->decode(j->matrix, j->first, j->n, j->out);
    return CAISSON_OK;
}

caisson_status caisson_file_decode(caisson_file *f, uint32_t i, uint64_t first, uint64_t n,
                                   float *out, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(f != NULL && (out != NULL || n == 0), err, "file and out must not be NULL");
    caisson_tensor_info info;
    CSN_API_NEED(caisson_file_tensor(f, i, &info), err, "no tensor of this index");
    if (first > info.n_values || n > info.n_values - first) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "the range leaves the tensor",
                        CSN_VALUES(info.n_values, first));
    }
    if (i >= f->dir->n) {
        return csn_api_experts_decode(f->experts, i - f->dir->n, first, n, out, err);
    }
    const csn_tensor *t = &f->dir->tensors[i];
    if (t->dtype->decode == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = path_of(f), .tensor = t->name,
                        .what = "this build cannot decode the tensor's type",
                        .got = csn_str_from(t->dtype->name));
    }
    csn_matrix matrix;
    CSN_TRY(csn_store_matrix(f->store, t->name, &matrix, err));
    decode_job job = {&matrix, first, n, out};
    caisson_status status = csn_store_guarded(f->store, decode, &job, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path_of(f));
        csn_error_tensor(err, t->name);
    }
    return status;
}
