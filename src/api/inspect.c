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
    *ret = fs->ops->exists(fs, name.ptr) ? CAISSON_KIND_HF_DIRECTORY : CAISSON_KIND_UNKNOWN;
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
    csn_store_options so = {
        .no_mmap = o->no_mmap, .guard_mappings = o->guard_mappings, .verify = o->verify};
    CSN_TRY(csn_api_open_cmf(path, o, &f->cmf, files, err));
    CSN_TRY(csn_store_new(f->cmf, &so, &f->store, err));
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
    }
    csn_free(f);
}

uint32_t caisson_file_n_tensors(const caisson_file *f) {
    return f->cmf->dir.n;
}

bool caisson_file_tensor(const caisson_file *f, uint32_t i, caisson_tensor_info *ret) {
    if (i >= f->cmf->dir.n) {
        return false;
    }
    const csn_tensor *t = &f->cmf->dir.tensors[i];
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
    const csn_tensor *t = csn_directory_find(&f->cmf->dir, csn_str_make(name, n));
    return t != NULL ? (int64_t)(t - f->cmf->dir.tensors) : -1;
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
    const csn_tensor *t = &f->cmf->dir.tensors[i];
    if (t->dtype->decode == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = f->cmf->file->path, .tensor = t->name,
                        .what = "this build cannot decode the tensor's type",
                        .got = csn_str_from(t->dtype->name));
    }
    csn_matrix matrix;
    CSN_TRY(csn_store_matrix(f->store, t->name, &matrix, err));
    decode_job job = {&matrix, first, n, out};
    caisson_status status = csn_store_guarded(f->store, decode, &job, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, f->cmf->file->path);
        csn_error_tensor(err, t->name);
    }
    return status;
}

/* ---- verify ---- */

typedef struct verify_bridge {
    const caisson_verify_options *o;
    const char *path;
    uint64_t n;
} verify_bridge;

static void on_fault(void *ctx, const caisson_error *fault) {
    verify_bridge *b = ctx;
    b->n++;
    if (b->o->on_fault != NULL) {
        caisson_error copy = *fault;
        csn_error_file(&copy, b->path);
        b->o->on_fault(b->o->ctx, &copy);
    }
}

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    const caisson_verify_options *o = ((verify_bridge *)ctx)->o;
    return o->on_progress == NULL || o->on_progress(o->ctx, stage, done, total);
}

static void on_note(void *ctx, const caisson_error *note) {
    const caisson_verify_options *o = ((verify_bridge *)ctx)->o;
    if (o->on_note != NULL) {
        o->on_note(o->ctx, note);
    }
}

/* The signature beside the file: a fault when it is wrong, or missing though asked for. */
static caisson_status verify_signature(verify_bridge *b, csn_file *f, caisson_error *err) {
    uint8_t want[CSN_ED25519_KEY_BYTES];
    uint8_t key[CSN_ED25519_KEY_BYTES];
    csn_file_stamp stamp = {0};
    caisson_error fault;
    bool is_asked_for = b->o->require_signature != NULL;
    if (!is_asked_for && !csn_signature_exists(csn_fs_os(), b->path)) {
        return CAISSON_OK;
    }
    if (is_asked_for) {
        CSN_TRY(csn_api_key(b->o->require_signature, want, err));
    }
    csn_progress progress = {on_progress, b};
    caisson_status status = csn_signature_check(csn_fs_os(), b->path, f, is_asked_for ? want : NULL,
                                                &progress, key, &stamp, &fault);
    if (status == CAISSON_E_NOMEM || status == CAISSON_E_CANCELLED) {
        *err = fault;
        return status;
    }
    if (status != CAISSON_OK) {
        on_fault(b, &fault);
    } else if (b->o->on_signature != NULL) {
        caisson_public_key hex = csn_api_key_hex(key);
        b->o->on_signature(b->o->ctx, &hex);
    }
    return CAISSON_OK;
}

/* A file that is no .cmf at all may be signed all the same. */
static caisson_status verify_signature_alone(verify_bridge *b, caisson_error *err) {
    csn_file *f;
    caisson_error ignored; /* told already: the container could not be opened */
    if (csn_fs_open(csn_fs_os(), b->path, CSN_OPEN_READ, &f, &ignored) != CAISSON_OK) {
        return CAISSON_OK;
    }
    caisson_status status = verify_signature(b, f, err);
    csn_file_close(f);
    return status;
}

static caisson_status open_to_verify(verify_bridge *b, csn_cmf **ret, caisson_error *err) {
    csn_file *f;
    CSN_TRY(csn_fs_open(csn_fs_os(), b->path, CSN_OPEN_READ, &f, err));
    return csn_cmf_open_damaged(f, on_fault, b, ret, err);
}

/* A shard is verified alone; what keeps its model from opening is told on the side. */
static caisson_status note_shards(verify_bridge *b, const csn_cmf *cmf, caisson_error *err) {
    caisson_error note;
    csn_cmf *model;
    if (!cmf->has_shard_block) {
        return CAISSON_OK;
    }
    caisson_status status = csn_cmf_open_model(csn_fs_os(), b->path, NULL, NULL, &model, &note);
    if (status == CAISSON_OK) {
        csn_cmf_close(model);
    } else if (status == CAISSON_E_NOMEM) {
        *err = note;
        return status;
    } else {
        on_note(b, &note);
    }
    return CAISSON_OK;
}

static caisson_status verify(verify_bridge *b, csn_pool *pool, caisson_error *err) {
    caisson_error fault;
    csn_cmf *cmf;
    caisson_status status = open_to_verify(b, &cmf, &fault);
    if (status == CAISSON_E_NOMEM) {
        *err = fault;
        return status;
    }
    if (status != CAISSON_OK) {
        on_fault(b, &fault);
        return verify_signature_alone(b, err);
    }
    csn_progress progress = {on_progress, b};
    uint64_t n;
    status = csn_cmf_verify(cmf, pool, &progress, on_fault, b, &n, err);
    if (status == CAISSON_OK) {
        status = csn_cmf_note(cmf, on_note, b, err);
    }
    if (status == CAISSON_OK) {
        status = note_shards(b, cmf, err);
    }
    if (status == CAISSON_OK) {
        status = verify_signature(b, cmf->file, err);
    }
    csn_cmf_close(cmf);
    return status;
}

caisson_status caisson_verify(const char *path, const caisson_verify_options *options,
                              uint64_t *ret_n_faults, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && ret_n_faults != NULL, err,
                 "path and ret_n_faults must not be NULL");
    caisson_verify_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    csn_pool *pool;
    CSN_TRY(csn_pool_new(o.n_threads, &pool, err));
    verify_bridge b = {.o = &o, .path = path};
    caisson_status status = verify(&b, pool, err);
    csn_pool_free(pool);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        return status;
    }
    *ret_n_faults = b.n;
    return CAISSON_OK;
}
