/* SPDX-License-Identifier: Apache-2.0 */
#include "model/kv.h"

#include "base/size.h"

struct head_bytes {
    uint64_t k, v; /* of one kv head, multiples of 64 */
};

static bool sizes(const csn_layer *l, uint32_t n_ctx, csn_kv_type type_k, csn_kv_type type_v,
                  struct head_bytes *ret) {
    uint64_t n = ((uint64_t)n_ctx + CSN_KV_BLOCK - 1) / CSN_KV_BLOCK * CSN_KV_BLOCK;
    return csn_mul(n / CSN_KV_TILE, csn_kv_k_tile_bytes(type_k, l->head_dim), &ret->k) &&
           csn_mul(n, csn_kv_v_row_bytes(type_v, l->head_dim), &ret->v) &&
           csn_align_up(ret->k, 64, &ret->k) && csn_align_up(ret->v, 64, &ret->v);
}

caisson_status csn_kv_new(const csn_plan *plan, uint32_t n_ctx, csn_kv_type type_k,
                          csn_kv_type type_v, csn_kv *ret, caisson_error *err) {
    csn_kv kv = {.type_k = type_k, .type_v = type_v, .n_ctx = n_ctx};
    uint32_t n_visits = csn_plan_n_visits(plan);
    CSN_TRY(CSN_NEW(n_visits, &kv.visit_offset, err));
    uint64_t total = 0;
    bool fits = true;
    for (uint32_t i = 0; i < n_visits && fits; i++) {
        const csn_layer *l = &plan->layers[i % plan->n_layers];
        struct head_bytes b;
        uint64_t one;
        uint64_t layer;
        kv.visit_offset[i] = total;
        fits = sizes(l, n_ctx, type_k, type_v, &b) && csn_add(b.k, b.v, &one) &&
               csn_mul(one, l->n_kv_heads, &layer) && csn_add(total, layer, &total);
    }
    size_t bytes;
    caisson_status s;
    if (!fits || !csn_to_size(total, &bytes)) {
        s = CSN_FAIL(err, CAISSON_E_NOMEM, .section = "kv cache",
                     .what = "the cache for this context does not fit into memory",
                     CSN_VALUES(fits ? total : UINT64_MAX, SIZE_MAX));
    } else {
        /* zeroed by the operating system as pages are first touched */
        s = csn_alloc(bytes, 1, (void **)&kv.bytes, err);
    }
    if (s != CAISSON_OK) {
        csn_error_section(err, "kv cache");
        csn_free(kv.visit_offset);
        return s;
    }
    kv.nbytes = total;
    *ret = kv;
    return CAISSON_OK;
}

void csn_kv_free(csn_kv *kv) {
    csn_free(kv->visit_offset);
    csn_free(kv->bytes);
    *kv = (csn_kv){0};
}

csn_kv_head csn_kv_get(const csn_kv *kv, const csn_layer *l, uint32_t i_visit, uint32_t i_head) {
    struct head_bytes b = {0, 0};
    (void)sizes(l, kv->n_ctx, kv->type_k, kv->type_v, &b); /* checked by csn_kv_new */
    uint8_t *base = kv->bytes + kv->visit_offset[i_visit] + i_head * (b.k + b.v);
    return (csn_kv_head){.type_k = kv->type_k,
                         .type_v = kv->type_v,
                         .k = base,
                         .v = base + b.k,
                         .head_dim = l->head_dim};
}
