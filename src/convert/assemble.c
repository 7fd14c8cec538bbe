/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/assemble.h"

#include "convert/donor.h"

enum { GAP = 512 }; /* for what the writer adds to the header, as in conversion: same bytes then */

static caisson_status write_parts(csn_cmf_writer *w, const csn_assembly *a, uint32_t n_done,
                                  const csn_progress *progress, caisson_error *err) {
    csn_buf bytes = CSN_BUF_INIT(SIZE_MAX / 2);
    caisson_status s = CAISSON_OK;
    for (uint32_t i = 0; i < a->n && s == CAISSON_OK; i++) {
        if (i >= n_done) {
            s = csn_donor_payload(a->parts[i].from, a->parts[i].tensor, &bytes, err);
            if (s == CAISSON_OK) {
                s = csn_cmf_writer_tensor(w, bytes.ptr, bytes.len, err);
            } else {
                csn_error_file(err, a->parts[i].from->file->path);
            }
        }
        if (s == CAISSON_OK) {
            s = csn_progress_tell(progress, "write", i + 1, a->n, err);
        }
    }
    csn_buf_free(&bytes);
    return s;
}

static caisson_status check_absent(csn_fs *fs, const char *path, bool overwrite,
                                   caisson_error *err) {
    return overwrite || !fs->ops->exists(fs, path)
               ? CAISSON_OK
               : CSN_FAIL(err, CAISSON_E_EXISTS, .file = path,
                          .what = "target exists; say that it may be replaced");
}

caisson_status csn_assemble(csn_fs *fs, const char *path, const csn_assembly *a, bool overwrite,
                            const csn_progress *progress, caisson_error *err) {
    csn_cmf_plan_tensor *list;
    csn_cmf_writer *w = NULL;
    uint32_t n_done = 0;
    CSN_TRY(check_absent(fs, path, overwrite, err));
    CSN_TRY(CSN_NEW(a->n, &list, err));
    for (uint32_t i = 0; i < a->n; i++) {
        const csn_tensor *t = a->parts[i].tensor;
        list[i] = (csn_cmf_plan_tensor){a->parts[i].name, t->dtype, t->shape, t->nbytes};
    }
    csn_cmf_plan plan = {.tensors = list,
                         .n = a->n,
                         .head_bytes = a->header.len + GAP,
                         .vocab_bytes = a->masks.len + a->vocab.len};
    caisson_status s = csn_cmf_writer_new(fs, path, &plan, &w, &n_done, err);
    csn_free(list);
    if (s == CAISSON_OK) {
        s = write_parts(w, a, n_done, progress, err);
    }
    if (s == CAISSON_OK) {
        s = check_absent(fs, path, overwrite, err); /* somebody may have made it meanwhile */
    }
    if (s == CAISSON_OK) {
        s = csn_cmf_writer_seal(w, a->header, a->masks, a->vocab, err);
    }
    if (s == CAISSON_OK) {
        s = csn_cmf_writer_rename(w, err);
    }
    csn_cmf_writer_close(w, true);
    return s;
}
