/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a model's files anew. */
#include "caisson/rewrite.h"

#include "api_internal.h"

static uint64_t n_bytes_of(const csn_cmf *c) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->n_files; i++) {
        n += csn_cmf_file_of(c, i)->envelope.file_bytes;
    }
    return n;
}

/* What was written, counted from the disk. */
static caisson_status count_written(const char *target, uint32_t n_files, csn_buf *path,
                                    uint64_t *ret, caisson_error *err) {
    *ret = 0;
    for (uint32_t i = 0; i < n_files; i++) {
        csn_file *f;
        uint64_t n;
        CSN_TRY(csn_cmf_set_file_name(target, i, n_files, path, err));
        CSN_TRY(csn_fs_open(csn_fs_os(), path->ptr, CSN_OPEN_READ, &f, err));
        caisson_status status = csn_file_size(f, &n, err);
        csn_file_close(f);
        CSN_TRY(status);
        *ret += n;
    }
    return CAISSON_OK;
}

static caisson_status rewrite(csn_cmf *source, const char *target, const csn_cmf_copy_options *o,
                              caisson_rewrite_report *r, caisson_error *err) {
    csn_buf path = CSN_BUF_INIT(1 << 16);
    r->n_files_before = source->n_files;
    r->n_bytes_before = n_bytes_of(source);
    CSN_TRY(csn_cmf_copy(source, csn_fs_os(), target, o, &r->n_files_after, err));
    caisson_status status = count_written(target, r->n_files_after, &path, &r->n_bytes_after, err);
    csn_buf_free(&path);
    return status;
}

caisson_status caisson_rewrite(const char *source, const char *target,
                               const caisson_rewrite_options *options, caisson_rewrite_report *ret,
                               caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(source != NULL, err, "source must not be NULL");
    caisson_rewrite_options o;
    caisson_rewrite_report r = {0};
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    CSN_API_NEED(target != NULL || o.shard_max_bytes == 0, err,
                 "a file cannot be cut into shards in its place");
    bool is_in_place = target == NULL;
    csn_progress progress = {o.on_progress, o.ctx};
    csn_cmf_copy_options co = {.shard_max_bytes = o.shard_max_bytes,
                               .keeps_shard = is_in_place,
                               .overwrite = o.overwrite || is_in_place,
                               .progress = &progress};
    csn_cmf *c;
    CSN_TRY(is_in_place ? csn_cmf_open_locked(csn_fs_os(), source, &c, err)
                        : csn_cmf_open_model(csn_fs_os(), source, NULL, NULL, &c, err));
    caisson_status status = rewrite(c, is_in_place ? source : target, &co, &r, err);
    csn_cmf_close(c);
    if (status != CAISSON_OK) {
        csn_error_file(err, source);
        return status;
    }
    if (ret != NULL) {
        *ret = r;
    }
    return CAISSON_OK;
}
