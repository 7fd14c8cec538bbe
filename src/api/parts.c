/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a file as they lie there. */
#include "caisson/inspect.h"

#include "base/alloc.h"
#include "inspect_internal.h"

caisson_status caisson_file_section(caisson_file *f, const char *name, caisson_text *ret,
                                    caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(f != NULL && name != NULL && ret != NULL, err,
                 "file, name and ret must not be NULL");
    CSN_TRY(csn_api_file_need_cmf(f, err));
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        if (i == CSN_CMF_DATA || strcmp(name, csn_cmf_section_names[i]) != 0) {
            continue;
        }
        csn_buf b;
        if (f->cmf->envelope.len[i] == 0) {
            return CSN_FAIL(err, CAISSON_E_MISSING, .file = f->cmf->file->path,
                            .section = csn_cmf_section_names[i],
                            .what = "the file has no such section");
        }
        caisson_status status = csn_cmf_read_section(f->cmf, i, &b, err);
        if (status != CAISSON_OK) {
            csn_error_file(err, f->cmf->file->path);
            return status;
        }
        *ret = csn_api_take_text(&b);
        return CAISSON_OK;
    }
    return csn_api_bad_arg(err, "a section is header, directory, masks, vocab or index");
}

caisson_status caisson_file_payload(caisson_file *f, uint32_t i, uint64_t first, uint64_t n,
                                    void *out, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(f != NULL && (out != NULL || n == 0), err, "file and out must not be NULL");
    CSN_TRY(csn_api_file_need_cmf(f, err));
    CSN_API_NEED(i < f->cmf->dir.n, err, "no tensor of this index");
    const csn_tensor *t = &f->cmf->dir.tensors[i];
    if (first > t->nbytes || n > t->nbytes - first || n > SIZE_MAX) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "the range leaves the tensor",
                        CSN_VALUES(t->nbytes, first));
    }
    csn_file *file = csn_cmf_file_of(f->cmf, t->i_file)->file;
    caisson_status status =
        n == 0 ? CAISSON_OK : csn_file_read_at(file, t->offset + first, out, (size_t)n, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, file->path);
        csn_error_tensor(err, t->name);
    }
    return status;
}
