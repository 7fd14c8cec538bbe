/* SPDX-License-Identifier: Apache-2.0 */
/* The experts of a .waste directory as tensors. Their names stand in a table, because callers keep
 * them; the record that was read last stays, because callers decode a matrix in parts. */
#include <stdio.h>

#include "base/alloc.h"
#include "format/warp/writer.h"
#include "inspect_internal.h"

enum { NAME_BYTES = CSN_WARP_EXPERT_NAME + 20 };

struct csn_api_experts {
    const csn_warp *w;
    bool verify;
    uint32_t n; /* matrices */
    char (*names)[NAME_BYTES];
    uint8_t *record;          /* of the largest stride; NULL until one is read */
    uint32_t i_record;        /* which is in it; UINT32_MAX: none */
    csn_warp_expert matrices; /* of that record */
};

static const char *const kinds[CSN_WARP_N_KINDS] = {"gate_proj", "up_proj", "down_proj"};

/* Which matrix of which record number i is. */
typedef struct place {
    const csn_warp_bank *bank;
    uint32_t i_bank, expert, kind;
} place;

static place place_of(const csn_warp *w, uint32_t i) {
    place p = {.kind = i % CSN_WARP_N_KINDS};
    i /= CSN_WARP_N_KINDS;
    while (i >= w->banks[p.i_bank].n_experts) {
        i -= w->banks[p.i_bank++].n_experts;
    }
    p.bank = &w->banks[p.i_bank];
    p.expert = i;
    return p;
}

const char *csn_api_experts_dtype(const csn_warp *w) {
    const csn_warp_coding *c = csn_warp_codings;
    while (c->name != NULL && (c->stages != w->stages || c->entries != w->entries ||
                               c->is_packed != (w->index_bits == 6))) {
        c++;
    }
    return c->name != NULL ? c->name : "vq";
}

static void make_names(csn_api_experts *e) {
    uint32_t i = 0;
    for (uint32_t b = 0; b < e->w->n_banks; b++) {
        for (uint32_t k = 0; k < e->w->banks[b].n_experts; k++) {
            char name[CSN_WARP_EXPERT_NAME];
            csn_warp_expert_name(&e->w->banks[b], k, name);
            for (unsigned kind = 0; kind < CSN_WARP_N_KINDS; kind++, i++) {
                (void)snprintf(e->names[i], NAME_BYTES, "%s.%s.weight", name, kinds[kind]);
            }
        }
    }
}

caisson_status csn_api_experts_new(const csn_warp *w, bool verify, csn_api_experts **ret,
                                   caisson_error *err) {
    uint64_t n = 0;
    csn_api_experts *e;
    for (uint32_t b = 0; b < w->n_banks; b++) {
        n += (uint64_t)w->banks[b].n_experts * CSN_WARP_N_KINDS; /* at most 3 x 2^23 */
    }
    CSN_TRY(CSN_NEW(1, &e, err));
    *e = (csn_api_experts){.w = w, .verify = verify, .n = (uint32_t)n, .i_record = UINT32_MAX};
    caisson_status status = CSN_NEW((size_t)n + 1, &e->names, err);
    if (status != CAISSON_OK) {
        csn_api_experts_free(e);
        return status;
    }
    make_names(e);
    *ret = e;
    return CAISSON_OK;
}

void csn_api_experts_free(csn_api_experts *e) {
    if (e != NULL) {
        csn_free(e->names);
        csn_free_aligned(e->record);
        csn_free(e);
    }
}

uint32_t csn_api_experts_n(const csn_api_experts *e) {
    return e->n;
}

bool csn_api_experts_tensor(const csn_api_experts *e, uint32_t i, caisson_tensor_info *ret) {
    if (i >= e->n) {
        return false;
    }
    const csn_warp *w = e->w;
    place p = place_of(w, i);
    uint64_t rows = p.kind == CSN_WARP_DOWN ? w->expert_hidden : w->expert_width;
    uint64_t cols = p.kind == CSN_WARP_DOWN ? w->expert_width : w->expert_hidden;
    uint64_t offset = p.expert * p.bank->stride + CSN_WARP_RECORD_HEADER;
    for (unsigned k = 0; k < p.kind; k++) {
        offset += p.bank->index_nbytes[k];
    }
    *ret = (caisson_tensor_info){
        .name = e->names[i],
        .name_n = strlen(e->names[i]),
        .dtype = csn_api_experts_dtype(w),
        .n_dims = 2,
        .shape = {rows, cols},
        .n_values = rows * cols,
        .i_shard = 1 + p.i_bank, /* the trunk is 0 */
        .offset = offset,
        .n_bytes = p.bank->index_nbytes[p.kind] + 2 * rows,
    };
    return true;
}

/* "model.layers.L.mlp.experts.E.KIND.weight", read back. */
int64_t csn_api_experts_find(const csn_api_experts *e, csn_str name) {
    uint32_t first = 0;
    for (uint32_t b = 0; b < e->w->n_banks; b++) {
        uint32_t n = e->w->banks[b].n_experts * CSN_WARP_N_KINDS;
        csn_str layer = csn_str_from(e->names[first]); /* "model.layers.L.mlp.experts.0...." */
        size_t head = csn_str_find(layer, CSN_STR("experts."), 0) + 8;
        uint64_t expert;
        size_t point = csn_str_find(name, CSN_STR("."), head);
        if (csn_str_starts(name, csn_str_make(layer.ptr, head)) && point != SIZE_MAX &&
            csn_str_to_u64(csn_str_make(name.ptr + head, point - head), &expert) &&
            expert < e->w->banks[b].n_experts) {
            for (uint32_t i = first + (uint32_t)expert * CSN_WARP_N_KINDS, k = 0;
                 k < CSN_WARP_N_KINDS; k++) {
                if (csn_str_is(name, e->names[i + k])) {
                    return i + k;
                }
            }
        }
        first += n;
    }
    return -1;
}

static caisson_status read_record(csn_api_experts *e, uint32_t i, const place *p,
                                  caisson_error *err) {
    if (e->i_record == i / CSN_WARP_N_KINDS) {
        return CAISSON_OK;
    }
    uint64_t most = 0;
    for (uint32_t b = 0; b < e->w->n_banks && e->record == NULL; b++) {
        most = e->w->banks[b].stride > most ? e->w->banks[b].stride : most;
    }
    if (e->record == NULL) {
        CSN_TRY(csn_alloc_aligned((size_t)most, (void **)&e->record, err));
    }
    e->i_record = UINT32_MAX;
    CSN_TRY(csn_file_read_at(p->bank->file, p->expert * p->bank->stride, e->record,
                             (size_t)p->bank->stride, err));
    CSN_TRY(csn_warp_record(e->w, p->bank, p->expert, e->record, e->verify, &e->matrices, err));
    e->i_record = i / CSN_WARP_N_KINDS;
    return CAISSON_OK;
}

caisson_status csn_api_experts_decode(csn_api_experts *e, uint32_t i, uint64_t first, uint64_t n,
                                      float *out, caisson_error *err) {
    place p = place_of(e->w, i);
    caisson_status status = read_record(e, i, &p, err);
    if (status != CAISSON_OK) {
        csn_error_tensor(err, csn_str_from(e->names[i]));
        return status;
    }
    const csn_vq_matrix *m = &e->matrices.m[p.kind];
    float *row;
    CSN_TRY(CSN_NEW(m->cols, &row, err));
    while (n > 0) { /* a row, or the part of it that is asked for */
        uint64_t col = first % m->cols;
        uint64_t k = m->cols - col < n ? m->cols - col : n;
        csn_vq_decode_row(m, (uint32_t)(first / m->cols), row);
        memcpy(out, row + col, (size_t)k * sizeof(*out));
        first += k;
        out += k;
        n -= k;
    }
    csn_free(row);
    return CAISSON_OK;
}
