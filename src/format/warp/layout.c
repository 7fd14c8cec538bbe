/* SPDX-License-Identifier: Apache-2.0 */
/* Codings of experts and the arithmetic of records (warp facts 5, 6), for whoever writes them. */
#include "base/size.h"
#include "format/warp/writer.h"
#include "quant/half.h"

const csn_warp_coding csn_warp_codings[] = {
    {.name = "vq3r", .fmt = "VQ3R", .stages = 3, .entries = 256},
    {.name = "vq2r", .fmt = "VQ2R", .stages = 2, .entries = 256},
    {.name = "vq4p", .fmt = "VQ4P", .stages = 4, .entries = 64, .is_packed = true},
    {0},
};

const csn_warp_coding *csn_warp_coding_by_name(csn_str name) {
    for (const csn_warp_coding *c = csn_warp_codings; c->name != NULL; c++) {
        if (csn_str_is(name, c->name)) {
            return c;
        }
    }
    return NULL;
}

uint16_t csn_warp_book_half(float x) {
    uint16_t h = csn_half_from_f32(x);
    if ((h & 0x7c00) != 0) {
        return h;
    }
    return (uint16_t)((h & 0x8000) | ((h & 0x3ff) > 0x200 ? 0x400 : 0));
}

static caisson_status place_kind(csn_warp_layout *l, const csn_warp_coding *coding, int k,
                                 uint64_t *at, caisson_error *err) {
    const csn_vq_books books = {
        .stages = coding->stages, .entries = coding->entries, .is_packed = coding->is_packed};
    uint64_t n;
    if (l->cols[k] % CSN_VQ_DIM != 0 ||
        !csn_vq_index_nbytes(&books, l->rows[k], l->cols[k], CSN_VQ_BLOCK, &n)) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "experts",
                        .what = "vectors of 8 weights need widths that are multiples of 8",
                        CSN_VALUES(CSN_VQ_DIM, l->cols[k]));
    }
    l->index[k] = *at;
    *at += n; /* at most 2^32 * 2^29 * 8 bytes each */
    return CAISSON_OK;
}

caisson_status csn_warp_layout_make(const csn_warp_coding *coding, uint32_t expert_width,
                                    uint32_t expert_hidden, csn_warp_layout *ret,
                                    caisson_error *err) {
    csn_warp_layout l = {.rows = {expert_width, expert_width, expert_hidden},
                         .cols = {expert_hidden, expert_hidden, expert_width}};
    uint64_t at = CSN_WARP_RECORD_HEADER;
    for (int k = 0; k < CSN_WARP_N_KINDS; k++) {
        CSN_TRY(place_kind(&l, coding, k, &at, err));
    }
    for (int k = 0; k < CSN_WARP_N_KINDS; k++) {
        l.scale[k] = at;
        at += 2 * (uint64_t)l.rows[k];
    }
    l.end = at;
    if (at > UINT32_MAX || !csn_align_up(at, CSN_WARP_PAGE, &l.stride)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "experts",
                        .what = "an expert is larger than its record can say",
                        CSN_VALUES(UINT32_MAX, at));
    }
    *ret = l;
    return CAISSON_OK;
}
