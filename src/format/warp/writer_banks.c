/* SPDX-License-Identifier: Apache-2.0 */
/* The banks, each behind its codebooks. */
#include "base/crc32.h"
#include "base/le.h"
#include "format/warp/manifest_write.h"
#include "format/warp/writer_internal.h"

enum {
    FMT_VQ = 4, /* of every coding with a byte a stage, whatever its stages */
    FMT_VQ_PACKED = 8
};

static uint32_t i_bank(const csn_warp_writer *w) {
    return w->n_done - w->plan.n_trunk;
}

caisson_status csn_warp_writer_books(csn_warp_writer *w, const uint16_t *books,
                                     caisson_error *err) {
    if (w->n_done < w->plan.n_trunk || i_bank(w) >= w->plan.n_layers || w->bank != NULL) {
        return CSN_FAIL(err, CAISSON_E_ARG, .file = w->path.ptr, .section = "experts",
                        .what = "no bank of the plan comes next");
    }
    uint32_t layer = w->plan.layers[i_bank(w)];
    uint64_t n_values = (uint64_t)w->plan.coding->entries * CSN_VQ_DIM,
             size = csn_warp_writer_book_bytes(w);
    uint8_t bytes[CSN_WARP_BOOK_HEADER + 2 * CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM];
    if (w->books == NULL) {
        CSN_TRY(csn_warp_writer_open(w, "codebooks.bin", &w->books, err));
    }
    for (uint32_t b = 0; b < csn_warp_writer_n_books(w); b++) {
        uint64_t id = (uint64_t)i_bank(w) * csn_warp_writer_n_books(w) + b;
        csn_put32(bytes, CSN_WARP_MAGIC_CODEBOOK);
        csn_put16(bytes + 4, (uint16_t)id);
        bytes[6] = FMT_VQ;
        bytes[7] = CSN_VQ_DIM;
        csn_put32(bytes + 8, w->plan.coding->entries);
        csn_put32(bytes + 12, 0);
        for (uint64_t i = 0; i < n_values; i++) {
            csn_put16(bytes + CSN_WARP_BOOK_HEADER + 2 * i, books[b * n_values + i]);
        }
        CSN_TRY(csn_file_write_at(w->books, id * size, bytes, (size_t)size, err));
    }
    char name[CSN_WARP_BANK_NAME];
    csn_warp_bank_name(layer, name);
    CSN_TRY(csn_warp_writer_open(w, name, &w->bank, err));
    w->i_expert = 0;
    return w->bank->ops->truncate(w->bank, 0, err);
}

static void put_header(const csn_warp_writer *w, uint8_t *record) {
    const csn_warp_layout *l = &w->layout;
    memset(record, 0, CSN_WARP_RECORD_HEADER);
    csn_put32(record, CSN_WARP_MAGIC_RECORD);
    csn_put16(record + 4, (uint16_t)w->plan.layers[i_bank(w)]);
    csn_put16(record + 6, (uint16_t)w->i_expert);
    record[8] = w->plan.coding->is_packed ? FMT_VQ_PACKED : FMT_VQ;
    csn_put16(record + 10, (uint16_t)(i_bank(w) * csn_warp_writer_n_books(w)));
    csn_put32(record + 16, (uint32_t)(l->stride / CSN_WARP_PAGE));
    for (int k = 0; k < CSN_WARP_N_KINDS; k++) {
        csn_put32(record + 20 + 4 * (size_t)k, (uint32_t)l->index[k]);
    }
    csn_put32(record + 32, (uint32_t)l->scale[0]);
    csn_put32(record + 36, csn_crc32(record + CSN_WARP_RECORD_HEADER,
                                     (size_t)(l->end - CSN_WARP_RECORD_HEADER)));
}

caisson_status csn_warp_writer_expert(csn_warp_writer *w, uint8_t *record, caisson_error *err) {
    if (w->bank == NULL) {
        return CSN_FAIL(err, CAISSON_E_ARG, .file = w->path.ptr, .section = "experts",
                        .what = "an expert without a bank");
    }
    put_header(w, record);
    CSN_TRY(csn_file_write_at(w->bank, w->i_expert * w->layout.stride, record,
                              (size_t)w->layout.stride, err));
    if (++w->i_expert < w->plan.n_experts) {
        return CAISSON_OK;
    }
    w->done[w->n_done] = (csn_journal_entry){.nbytes = csn_warp_writer_bank_bytes(w)};
    w->n_done++;
    CSN_TRY(w->books->ops->sync(w->books, err));
    caisson_status status = csn_warp_writer_mark(w, w->bank, err);
    csn_file_close(w->bank);
    w->bank = NULL;
    return status;
}
