/* SPDX-License-Identifier: Apache-2.0 */
/* The trunk, tensor after tensor. */
#include "format/warp/writer_internal.h"

enum { SYNC_BYTES = 64 << 20 /* between two marks in the journal */ };

static caisson_status open_trunk(csn_warp_writer *w, caisson_error *err) {
    if (w->trunk != NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_warp_writer_open(w, "trunk.bin", &w->trunk, err));
    return w->trunk->ops->truncate(w->trunk, w->offsets[w->n_done], err);
}

static caisson_status fail_size(const csn_warp_writer *w, uint64_t need, uint64_t nbytes,
                                caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_ARG, .file = w->path.ptr, .section = "trunk",
                    .what = "no tensor of the plan has this size", CSN_VALUES(need, nbytes));
}

caisson_status csn_warp_writer_tensor(csn_warp_writer *w, const void *bytes, uint64_t nbytes,
                                      caisson_error *err) {
    uint64_t need = w->n_done < w->plan.n_trunk ? csn_warp_writer_unit_bytes(w, w->n_done) : 0;
    if (need == 0 || nbytes != need) {
        return fail_size(w, need, nbytes, err);
    }
    CSN_TRY(open_trunk(w, err));
    CSN_TRY(csn_file_write_at(w->trunk, w->offsets[w->n_done], bytes, (size_t)nbytes, err));
    return csn_warp_writer_tensor_done(w, err);
}

caisson_status csn_warp_writer_rows(csn_warp_writer *w, uint64_t r0, uint64_t n, const void *bytes,
                                    uint64_t nbytes, caisson_error *err) {
    if (w->n_done >= w->plan.n_trunk) {
        return fail_size(w, 0, nbytes, err);
    }
    const csn_warp_plan_tensor *t = &w->plan.trunk[w->n_done];
    if (t->shape.n_dims != 2 || n > t->shape.dim[0] || r0 > t->shape.dim[0] - n) {
        return fail_size(w, csn_warp_writer_unit_bytes(w, w->n_done), nbytes, err);
    }
    uint64_t at = w->offsets[w->n_done];
    uint64_t rows = t->shape.dim[0];
    uint64_t scales = t->dtype->is_float ? 0 : csn_warp_scale_bytes(&t->shape);
    uint64_t codes = csn_warp_writer_unit_bytes(w, w->n_done) - scales;
    uint64_t n_codes = codes / rows * n, n_scales = scales / rows * n;
    if (nbytes != n_codes + n_scales) {
        return fail_size(w, n_codes + n_scales, nbytes, err);
    }
    CSN_TRY(open_trunk(w, err));
    CSN_TRY(csn_file_write_at(w->trunk, at + codes / rows * r0, bytes, (size_t)n_codes, err));
    return csn_file_write_at(w->trunk, at + codes + scales / rows * r0,
                             (const uint8_t *)bytes + n_codes, (size_t)n_scales, err);
}

caisson_status csn_warp_writer_tensor_done(csn_warp_writer *w, caisson_error *err) {
    uint64_t nbytes = csn_warp_writer_unit_bytes(w, w->n_done);
    w->done[w->n_done] = (csn_journal_entry){.nbytes = nbytes};
    w->n_done++;
    w->unsynced_bytes += nbytes;
    bool is_last = w->n_done == w->plan.n_trunk;
    return is_last || w->unsynced_bytes >= SYNC_BYTES ? csn_warp_writer_mark(w, w->trunk, err)
                                                      : CAISSON_OK;
}
