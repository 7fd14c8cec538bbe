/* SPDX-License-Identifier: Apache-2.0 */
#include "model/kv.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/number.h"
#include "base/size.h"
#include "quant/half.h"

struct head_bytes {
    uint64_t k, v; /* of one kv head, multiples of 64 */
};

static uint64_t whole_blocks(uint32_t n_ctx) {
    return ((uint64_t)n_ctx + CSN_KV_BLOCK - 1) / CSN_KV_BLOCK * CSN_KV_BLOCK;
}

/* Values of latent attention are the first of each key. */
static bool latent_sizes(const csn_mla *mla, uint32_t n_ctx, csn_kv_type type,
                         struct head_bytes *ret) {
    ret->k = 0;
    return csn_mul(whole_blocks(n_ctx), csn_kv_v_row_bytes(type, mla->n_latent + mla->n_rope),
                   &ret->v) &&
           csn_align_up(ret->v, 64, &ret->v);
}

static bool sizes(const csn_layer *l, uint32_t n_ctx, csn_kv_type type_k, csn_kv_type type_v,
                  struct head_bytes *ret) {
    if (l->mla != NULL) {
        return latent_sizes(l->mla, n_ctx, type_k, ret);
    }
    uint64_t n = whole_blocks(n_ctx);
    return csn_mul(n / CSN_KV_TILE, csn_kv_k_tile_bytes(type_k, l->head_dim), &ret->k) &&
           csn_mul(n, csn_kv_v_row_bytes(type_v, l->head_dim), &ret->v) &&
           csn_align_up(ret->k, 64, &ret->k) && csn_align_up(ret->v, 64, &ret->v);
}

/* Floats of a KDA layer's convolutions; the plan bounds all factors. */
static uint64_t conv_floats(const csn_kda *kda) {
    return 3 * (uint64_t)(kda->conv_width - 1) * kda->n_heads * kda->dim;
}

static bool layer_bytes(const csn_layer *l, const csn_kv *kv, uint64_t *ret) {
    if (l->kda != NULL) {
        uint64_t floats = conv_floats(l->kda) + l->kda->n_heads * csn_kda_head_floats(l->kda);
        return csn_mul(floats, sizeof(float), ret) && csn_align_up(*ret, 64, ret);
    }
    struct head_bytes b;
    uint64_t one;
    return sizes(l, kv->n_ctx, kv->type_k, kv->type_v, &b) && csn_add(b.k, b.v, &one) &&
           csn_mul(one, l->n_kv_heads, ret);
}

static caisson_status fail_size(uint64_t bytes, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_NOMEM, .section = "kv cache",
                    .what = "the cache for this context does not fit into memory",
                    CSN_VALUES(bytes, SIZE_MAX));
}

/* visit_offset [csn_plan_n_visits] or NULL. */
static caisson_status lay_out(const csn_plan *plan, const csn_kv *kv, uint64_t *visit_offset,
                              uint64_t *ret_total, caisson_error *err) {
    uint64_t total = 0;
    uint32_t n_visits = csn_plan_n_visits(plan);
    for (uint32_t i = 0; i < n_visits; i++) {
        uint64_t layer = 0;
        if (visit_offset != NULL) {
            visit_offset[i] = total;
        }
        if (!layer_bytes(&plan->layers[i % plan->n_layers], kv, &layer) ||
            !csn_add(total, layer, &total)) {
            return fail_size(UINT64_MAX, err);
        }
    }
    *ret_total = total;
    return CAISSON_OK;
}

caisson_status csn_kv_nbytes(const csn_plan *plan, uint32_t n_ctx, csn_kv_type type_k,
                             csn_kv_type type_v, uint64_t *ret, caisson_error *err) {
    csn_kv kv = {.type_k = type_k, .type_v = type_v, .n_ctx = n_ctx};
    return lay_out(plan, &kv, NULL, ret, err);
}

caisson_status csn_kv_new(const csn_plan *plan, uint32_t n_ctx, csn_kv_type type_k,
                          csn_kv_type type_v, csn_kv *ret, caisson_error *err) {
    csn_kv kv = {.type_k = type_k, .type_v = type_v, .n_ctx = n_ctx};
    CSN_TRY(CSN_NEW(csn_plan_n_visits(plan), &kv.visit_offset, err));
    caisson_status s = lay_out(plan, &kv, kv.visit_offset, &kv.nbytes, err);
    size_t bytes = 0;
    if (s == CAISSON_OK && !csn_to_size(kv.nbytes, &bytes)) {
        s = fail_size(kv.nbytes, err);
    }
    if (s == CAISSON_OK) { /* zeroed by the operating system as pages are first touched */
        s = csn_alloc(bytes, 1, (void **)&kv.bytes, err);
    }
    if (s != CAISSON_OK) {
        csn_error_section(err, "kv cache");
        csn_free(kv.visit_offset);
        return s;
    }
    *ret = kv;
    return CAISSON_OK;
}

void csn_kv_free(csn_kv *kv) {
    csn_free(kv->visit_offset);
    csn_free(kv->bytes);
    *kv = (csn_kv){0};
}

void csn_kv_note(csn_kv *kv, uint32_t lost) {
    uint32_t seen = 0;
    while (lost > seen && !atomic_compare_exchange_weak(&kv->lost, &seen, lost)) {
    }
}

caisson_status csn_kv_check(csn_kv *kv, uint32_t i_layer, caisson_error *err) {
    static const char *const names[] = {
        [CSN_KV_F16] = "f16", [CSN_KV_F32] = "f32", [CSN_KV_Q8_0] = "q8_0"};
    uint32_t lost = atomic_exchange(&kv->lost, 0);
    if (lost == 0) {
        return CAISSON_OK;
    }
    char layer[32];
    char want[32];
    char got[CSN_NUMBER_TEXT];
    (void)snprintf(layer, sizeof(layer), "layer %u", (unsigned)i_layer);
    (void)snprintf(want, sizeof(want), "keys %s, values %s", names[kv->type_k], names[kv->type_v]);
    (void)csn_number_text((double)csn_f32_from_bits(lost), true, got);
    return CSN_FAIL(err, CAISSON_E_ARG, .section = "kv cache", .tensor = csn_str_from(layer),
                    .what = "a key or value that the type of the cache cannot hold (--cache-type-k "
                            "f32, --cache-type-v f32 hold every number)",
                    CSN_TEXTS(csn_str_from(want), csn_str_from(got)));
}

csn_kv_head csn_kv_get(const csn_kv *kv, const csn_layer *l, uint32_t i_visit, uint32_t i_head) {
    struct head_bytes b = {0, 0};
    (void)sizes(l, kv->n_ctx, kv->type_k, kv->type_v, &b); /* checked by csn_kv_new */
    uint8_t *base = kv->bytes + kv->visit_offset[i_visit] + i_head * (b.k + b.v);
    if (l->mla != NULL) {
        return (csn_kv_head){.type_k = kv->type_k,
                             .type_v = kv->type_k,
                             .v = base,
                             .head_dim = l->mla->n_latent + l->mla->n_rope,
                             .v_dim = l->mla->n_latent};
    }
    return (csn_kv_head){.type_k = kv->type_k,
                         .type_v = kv->type_v,
                         .k = base,
                         .v = base + b.k,
                         .head_dim = l->head_dim};
}

csn_kda_state csn_kv_get_kda(const csn_kv *kv, const csn_layer *l, uint32_t i_visit) {
    float *base = (float *)(void *)(kv->bytes + kv->visit_offset[i_visit]);
    return (csn_kda_state){.conv = base, .s = base + conv_floats(l->kda)};
}
