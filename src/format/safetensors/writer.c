/* SPDX-License-Identifier: Apache-2.0 */
#include "format/safetensors/writer.h"

#include "base/alloc.h"
#include "base/json.h"

enum { MAX_HEADER = 100 << 20, HEAD = 8 };

struct csn_st_writer {
    csn_fs *fs;
    csn_buf path, part;
    csn_file *file;
    uint64_t end; /* of what is written */
    bool is_finished;
};

static void put_tensor(csn_jw *w, const csn_st_tensor *t, uint64_t at) {
    csn_jw_key(w, t->name);
    csn_jw_object(w);
    csn_jw_put_str(w, "dtype", csn_str_from(t->dtype->safetensors));
    csn_jw_key(w, CSN_STR("shape"));
    csn_jw_array(w);
    for (uint32_t d = 0; d < t->shape.n_dims; d++) {
        csn_jw_u64(w, t->shape.dim[d]);
    }
    csn_jw_array_end(w);
    csn_jw_key(w, CSN_STR("data_offsets"));
    csn_jw_array(w);
    csn_jw_u64(w, at);
    csn_jw_u64(w, at + t->nbytes);
    csn_jw_array_end(w);
    csn_jw_object_end(w);
}

/* Length and JSON, filled up with blanks to a multiple of 8. */
static caisson_status make_header(const csn_st_tensor *tensors, uint32_t n, csn_buf *ret,
                                  caisson_error *err) {
    uint8_t length[HEAD] = {0};
    uint64_t at = 0;
    CSN_TRY(csn_buf_append(ret, length, sizeof(length), err));
    csn_jw w = csn_jw_begin(ret, err);
    csn_jw_object(&w);
    csn_jw_key(&w, CSN_STR("__metadata__"));
    csn_jw_object(&w);
    csn_jw_put_str(&w, "format", CSN_STR("pt"));
    csn_jw_object_end(&w);
    for (uint32_t i = 0; i < n; i++) {
        if (tensors[i].dtype->safetensors == NULL) {
            return CSN_FAIL(err, CAISSON_E_ARG, .tensor = tensors[i].name,
                            .what = "safetensors has no name for this dtype",
                            .got = csn_str_from(tensors[i].dtype->name));
        }
        put_tensor(&w, &tensors[i], at);
        at += tensors[i].nbytes; /* of tensors that lie in a file: below 2^63 in all */
    }
    csn_jw_object_end(&w);
    CSN_TRY(csn_jw_end(&w));
    while (ret->len % HEAD != 0) {
        CSN_TRY(csn_buf_char(ret, ' ', err));
    }
    for (unsigned i = 0; i < HEAD; i++) {
        ret->ptr[i] = (char)((uint64_t)(ret->len - HEAD) >> (8 * i) & 0xff);
    }
    return CAISSON_OK;
}

static caisson_status start(csn_st_writer *w, const char *path, const csn_st_tensor *tensors,
                            uint32_t n, caisson_error *err) {
    caisson_error ignored;
    csn_buf header = CSN_BUF_INIT(MAX_HEADER);
    CSN_TRY(csn_buf_printf(&w->path, err, "%s", path));
    CSN_TRY(csn_buf_printf(&w->part, err, "%s.part", path));
    if (w->fs->ops->exists(w->fs, w->part.ptr)) { /* left behind by a killed writer */
        (void)w->fs->ops->remove(w->fs, w->part.ptr, &ignored);
    }
    caisson_status status = make_header(tensors, n, &header, err);
    if (status == CAISSON_OK) {
        status = csn_fs_open(w->fs, w->part.ptr, CSN_OPEN_CREATE_NEW, &w->file, err);
    }
    if (status == CAISSON_OK) {
        status = csn_file_write_at(w->file, 0, header.ptr, header.len, err);
        w->end = header.len;
    }
    csn_buf_free(&header);
    return status;
}

caisson_status csn_st_writer_new(csn_fs *fs, const char *path, const csn_st_tensor *tensors,
                                 uint32_t n, csn_st_writer **ret, caisson_error *err) {
    csn_st_writer *w;
    CSN_TRY(CSN_NEW(1, &w, err));
    w->fs = fs;
    w->path = CSN_BUF_INIT(1 << 16);
    w->part = CSN_BUF_INIT(1 << 16);
    caisson_status status = start(w, path, tensors, n, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_st_writer_close(w);
        return status;
    }
    *ret = w;
    return CAISSON_OK;
}

caisson_status csn_st_writer_tensor(csn_st_writer *w, const void *bytes, uint64_t nbytes,
                                    caisson_error *err) {
    if (nbytes > 0) {
        CSN_TRY(csn_file_write_at(w->file, w->end, bytes, (size_t)nbytes, err));
    }
    w->end += nbytes;
    return CAISSON_OK;
}

caisson_status csn_st_writer_finish(csn_st_writer *w, caisson_error *err) {
    CSN_TRY(w->file->ops->sync(w->file, err));
    CSN_TRY(w->fs->ops->rename(w->fs, w->part.ptr, w->path.ptr, err));
    w->is_finished = true;
    return w->fs->ops->sync_dir(w->fs, w->path.ptr, err);
}

void csn_st_writer_close(csn_st_writer *w) {
    caisson_error ignored;
    if (w == NULL) {
        return;
    }
    if (w->file != NULL && !w->is_finished) {
        (void)w->fs->ops->remove(w->fs, w->part.ptr, &ignored);
    }
    csn_file_close(w->file);
    csn_buf_free(&w->path);
    csn_buf_free(&w->part);
    csn_free(w);
}
