/* SPDX-License-Identifier: Apache-2.0 */
/* An expert's record (warp facts 5): header of 48 bytes, gate | up | down indices, then a binary16
 * for each row of the three. What the header says must be what the bank's index says; the spans
 * must hold matrices of the shapes that config gives, so that no kernel reads past them. Flags,
 * reserved words and padding mean nothing. */
#include "format/warp/warp_internal.h"

#include <stdio.h>

#include "base/crc32.h"
#include "quant/numbers.h"

struct record {
    const csn_warp *w;
    const csn_warp_bank *bank;
    uint32_t expert;
    const uint8_t *bytes;
    caisson_error *err;
};

const char *csn_warp_expert_name(const csn_warp_bank *bank, uint32_t expert,
                                 char ret[CSN_WARP_EXPERT_NAME]) {
    (void)snprintf(ret, CSN_WARP_EXPERT_NAME, "model.layers.%u.mlp.experts.%u", bank->layer,
                   expert);
    return ret;
}

static caisson_status fail(const struct record *r, caisson_status code, unsigned at,
                           const char *what, uint64_t want, uint64_t got) {
    char name[CSN_WARP_EXPERT_NAME];
    return CSN_FAIL(r->err, code, .file = r->bank->file->path, .section = "experts",
                    .tensor = csn_str_from(csn_warp_expert_name(r->bank, r->expert, name)),
                    CSN_AT(r->expert * r->bank->stride + at), .what = what, CSN_VALUES(want, got));
}

static caisson_status check_identity(const struct record *r) {
    const csn_warp_bank *b = r->bank;
    const struct {
        unsigned at, nbytes;
        uint64_t want;
        const char *what;
    } fields[] = {
        {CSN_WARP_REC_MAGIC, 4, CSN_WARP_MAGIC_RECORD, "no record of an expert (magic)"},
        {CSN_WARP_REC_LAYER, 2, b->layer, "the record is of another layer"},
        {CSN_WARP_REC_EXPERT, 2, r->expert, "the record is of another expert"},
        {CSN_WARP_REC_CODEBOOK, 2, b->codebook_base, "codebook differs from the manifest's"},
        {CSN_WARP_REC_PAGES, 4, b->stride / CSN_WARP_PAGE, "pages of the record"},
        {CSN_WARP_REC_GATE, 4, CSN_WARP_RECORD_HEADER, "gate does not follow the header"},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const uint8_t *p = r->bytes + fields[i].at;
        uint32_t got = fields[i].nbytes == 2 ? csn_get16(p) : csn_get32(p);
        if (got != fields[i].want) {
            return fail(r, CAISSON_E_PARSE, fields[i].at, fields[i].what, fields[i].want, got);
        }
    }
    return CAISSON_OK;
}

static caisson_status check_form(const struct record *r) {
    unsigned fmt = r->bytes[CSN_WARP_REC_FMT];
    unsigned want = r->w->index_bits == 6 ? CSN_WARP_FMT_VQ4P : CSN_WARP_FMT_VQ3R;
    uint32_t lowrank = csn_get16(r->bytes + CSN_WARP_REC_LOWRANK);
    if (fmt == CSN_WARP_FMT_SUB1) {
        return fail(r, CAISSON_E_UNSUPPORTED, CSN_WARP_REC_FMT,
                    "substitutes of experts (SUB1) are specified, but not read", want, fmt);
    }
    /* The existing converter writes 4 for two stages as well. */
    if (fmt != want && (fmt != CSN_WARP_FMT_VQ2R || want != CSN_WARP_FMT_VQ3R)) {
        return fail(r, CAISSON_E_PARSE, CSN_WARP_REC_FMT, "fmt differs from the manifest's form",
                    want, fmt);
    }
    if (lowrank != 0) {
        return fail(r, CAISSON_E_UNSUPPORTED, CSN_WARP_REC_LOWRANK,
                    "a shared low-rank block is specified, but not read", 0, lowrank);
    }
    return CAISSON_OK;
}

/* off[k]: where the indices of matrix k begin; off[3]: where the scales do. */
static caisson_status check_spans(const struct record *r, uint32_t off[CSN_WARP_N_KINDS + 1]) {
    uint64_t n_rows = 0;
    for (unsigned k = 0; k <= CSN_WARP_N_KINDS; k++) {
        unsigned at = CSN_WARP_REC_GATE + 4 * k;
        off[k] = csn_get32(r->bytes + at);
        if (k > 0 && (off[k] < off[k - 1] || off[k] - off[k - 1] < r->bank->index_nbytes[k - 1])) {
            return fail(r, CAISSON_E_PARSE, at, "the matrix before this offset does not fit",
                        off[k - 1] + r->bank->index_nbytes[k - 1], off[k]);
        }
        n_rows += k < CSN_WARP_N_KINDS ? csn_warp_expert_rows(r->w, k) : 0;
    }
    if (!csn_range_fits(off[CSN_WARP_N_KINDS], 2 * n_rows, r->bank->stride)) {
        return fail(r, CAISSON_E_PARSE, CSN_WARP_REC_SCALES, "the scales leave the record",
                    r->bank->stride - 2 * n_rows, off[CSN_WARP_N_KINDS]);
    }
    return CAISSON_OK;
}

static caisson_status check_crc(const struct record *r, const uint8_t *end) {
    uint32_t want = csn_get32(r->bytes + CSN_WARP_REC_CRC);
    const uint8_t *payload = r->bytes + CSN_WARP_RECORD_HEADER;
    uint32_t got = csn_crc32(payload, (size_t)(end - payload));
    return got == want ? CAISSON_OK
                       : fail(r, CAISSON_E_HASH, CSN_WARP_REC_CRC,
                              "bytes do not have the stored checksum", want, got);
}

/* A byte can name an entry that a small codebook does not have. Padding rows count: kernels look
 * whole blocks up. */
static caisson_status check_indices(const struct record *r, const csn_vq_matrix *m,
                                    uint64_t nbytes) {
    unsigned max = 0;
    for (uint64_t i = 0; i < nbytes; i++) {
        max = m->index[i] > max ? m->index[i] : max;
    }
    if (max < m->books->entries) {
        return CAISSON_OK;
    }
    const uint8_t *p = memchr(m->index, (int)max, (size_t)nbytes);
    return fail(r, CAISSON_E_PARSE, (unsigned)(p - r->bytes), "an index names no entry",
                m->books->entries - 1, max);
}

static caisson_status check_scales(const struct record *r, const csn_vq_matrix *m) {
    const csn_numbers scales = {CSN_NUMBER_F16, false, 0, m->rows, 2, 1};
    uint64_t at;
    if (!csn_numbers_find(&scales, m->scale, 0, 2 * (uint64_t)m->rows, &at)) {
        return CAISSON_OK;
    }
    uint64_t offset = r->expert * r->bank->stride + (uint64_t)(m->scale - r->bytes) + at;
    caisson_status status = csn_numbers_fail(&scales, at, m->scale + at, offset, r->err);
    char name[CSN_WARP_EXPERT_NAME];
    csn_error_file(r->err, r->bank->file->path);
    csn_error_section(r->err, "experts");
    csn_error_tensor(r->err, csn_str_from(csn_warp_expert_name(r->bank, r->expert, name)));
    return status;
}

caisson_status csn_warp_record(const csn_warp *w, const csn_warp_bank *bank, uint32_t expert,
                               const uint8_t *record, bool crc, csn_warp_expert *ret,
                               caisson_error *err) {
    struct record r = {w, bank, expert, record, err};
    uint32_t off[CSN_WARP_N_KINDS + 1];
    CSN_TRY(check_identity(&r));
    CSN_TRY(check_form(&r));
    CSN_TRY(check_spans(&r, off));
    csn_warp_expert e;
    const uint8_t *scale = record + off[CSN_WARP_N_KINDS];
    for (unsigned k = 0; k < CSN_WARP_N_KINDS; k++) {
        e.m[k] = (csn_vq_matrix){.books = &bank->books[k],
                                 .index = record + off[k],
                                 .scale = scale,
                                 .rows = csn_warp_expert_rows(w, k),
                                 .cols = csn_warp_expert_cols(w, k),
                                 .block = w->index_block};
        scale += 2 * (size_t)e.m[k].rows;
    }
    if (crc) {
        CSN_TRY(check_crc(&r, scale));
    }
    for (unsigned k = 0; k < CSN_WARP_N_KINDS; k++) {
        if (w->index_bits == 8 && w->entries < 256) {
            CSN_TRY(check_indices(&r, &e.m[k], bank->index_nbytes[k]));
        }
        CSN_TRY(check_scales(&r, &e.m[k]));
    }
    *ret = e;
    return CAISSON_OK;
}
