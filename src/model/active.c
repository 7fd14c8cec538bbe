/* SPDX-License-Identifier: Apache-2.0 */
#include "model/active.h"

#include <string.h>

#include "base/alloc.h"

struct maker {
    const csn_plan *plan;
    const csn_arch *arch;
    const csn_cmf_mask *mask;
    csn_active *out;
    bool any_off; /* something is not active */
};

/* The `have` things of a layer and the `n_bits` bits of its row: none may be marked that is not
 * there, and none may be there without a bit. */
static caisson_status check_row(const struct maker *m, const uint8_t *bits, uint64_t n_bits,
                                uint64_t have, const char *what, caisson_error *err) {
    if (have > n_bits || csn_bit_count(bits, n_bits) != csn_bit_count(bits, have)) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "masks", .tensor = m->mask->name,
                        .what = what, CSN_VALUES(have, n_bits));
    }
    return CAISSON_OK;
}

/* Runs of set bits, each item `width` rows high. *ret is NULL when all n are set. */
static caisson_status make_runs(struct maker *m, const uint8_t *bits, uint32_t n, uint32_t width,
                                const csn_runs **ret, caisson_error *err) {
    *ret = NULL;
    if (csn_bit_count(bits, n) == n) {
        return CAISSON_OK;
    }
    uint32_t n_runs = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_runs += csn_bit(bits, i) && (i == 0 || !csn_bit(bits, i - 1));
    }
    csn_runs *r;
    CSN_TRY(CSN_ARENA_NEW(&m->out->arena, 1, &r, err));
    CSN_TRY(CSN_ARENA_NEW(&m->out->arena, n_runs, &r->runs, err));
    for (uint32_t i = 0; i < n; i++) {
        if (!csn_bit(bits, i)) {
            continue;
        }
        if (i == 0 || !csn_bit(bits, i - 1)) {
            r->runs[r->n++] = (csn_run){i * width, i * width, r->n_rows};
        }
        r->runs[r->n - 1].end = (i + 1) * width;
        r->n_rows += width;
    }
    CSN_TRY(CSN_ARENA_NEW(&m->out->arena, r->n_rows, &r->rows, err));
    for (uint32_t i = 0, k = 0; i < r->n; i++) {
        for (uint32_t row = r->runs[i].first; row < r->runs[i].end; row++) {
            r->rows[k++] = row;
        }
    }
    m->any_off = true;
    *ret = r;
    return CAISSON_OK;
}

static caisson_status copy_bits(struct maker *m, const uint8_t *bits, uint64_t n,
                                const uint8_t **ret, caisson_error *err) {
    uint8_t *copy;
    CSN_TRY(CSN_ARENA_NEW(&m->out->arena, csn_bit_row_bytes(n), &copy, err));
    memcpy(copy, bits, csn_bit_row_bytes(n));
    *ret = copy;
    return CAISSON_OK;
}

/* Heads of linear attention are the model's own number of them: bits beyond stay clear, and a mask
 * of all of arch's heads means all. */
static caisson_status set_linear(struct maker *m, const csn_layer *l, const uint8_t *bits,
                                 csn_active_visit *v, caisson_error *err) {
    CSN_TRY(copy_bits(m, bits, l->n_heads, &v->heads, err));
    return make_runs(m, bits, l->n_heads, l->kda->dim, &v->q, err);
}

static caisson_status set_latent(struct maker *m, const csn_layer *l, const uint8_t *bits,
                                 csn_active_visit *v, caisson_error *err) {
    CSN_TRY(make_runs(m, bits, l->n_heads, 1, &v->latent, err));
    CSN_TRY(make_runs(m, bits, l->n_heads, l->head_dim, &v->q, err));
    return make_runs(m, bits, l->n_heads, l->mla->n_v, &v->kv, err);
}

static caisson_status set_heads(struct maker *m, const csn_layer *l, const uint8_t *bits,
                                csn_active_visit *v, caisson_error *err) {
    bool is_other = l->mla != NULL || l->kda != NULL;
    if (is_other && csn_bit_count(bits, m->arch->n_heads) == m->arch->n_heads) {
        return CAISSON_OK;
    }
    CSN_TRY(check_row(m, bits, m->arch->n_heads, l->n_heads,
                      "the layer has another number of heads than the mask", err));
    if (csn_bit_count(bits, l->n_heads) == l->n_heads) {
        return CAISSON_OK;
    }
    if (is_other) {
        return l->kda != NULL ? set_linear(m, l, bits, v, err) : set_latent(m, l, bits, v, err);
    }
    CSN_TRY(copy_bits(m, bits, l->n_heads, &v->heads, err));
    CSN_TRY(make_runs(m, bits, l->n_heads, l->head_dim, &v->q, err));
    uint32_t group = l->n_heads / l->n_kv_heads;
    uint8_t *kv;
    CSN_TRY(CSN_ARENA_NEW(&m->out->arena, csn_bit_row_bytes(l->n_kv_heads), &kv, err));
    for (uint32_t h = 0; h < l->n_heads; h++) {
        if (csn_bit(bits, h)) {
            kv[h / group / 8] |= (uint8_t)(1u << (h / group % 8));
        }
    }
    v->kv_heads = kv;
    return make_runs(m, kv, l->n_kv_heads, l->head_dim, &v->kv, err);
}

/* A mixture has no neurons of its own: its row of the FFN field is not used. */
static caisson_status set_ffn(struct maker *m, const csn_layer *l, uint32_t i_layer,
                              const uint8_t *bits, csn_active_visit *v, caisson_error *err) {
    if (l->moe == NULL) {
        CSN_TRY(check_row(m, bits, m->arch->intermediate_size, l->ffn,
                          "the layer has another number of neurons than the mask", err));
        return make_runs(m, bits, l->ffn, 1, &v->ffn, err);
    }
    if (m->mask->experts == NULL) {
        return CAISSON_OK;
    }
    uint32_t n = m->arch->moe.n_experts;
    const uint8_t *experts = m->mask->experts + i_layer * csn_bit_row_bytes(n);
    CSN_TRY(check_row(m, experts, n, l->moe->n_experts,
                      "the layer has another number of experts than the mask", err));
    v->n_experts = (uint32_t)csn_bit_count(experts, l->moe->n_experts);
    if (v->n_experts == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "masks", .tensor = m->mask->name,
                        .what = "no expert of a layer is active", CSN_AT(i_layer),
                        CSN_VALUES(1, 0));
    }
    if (v->n_experts == l->moe->n_experts) {
        return CAISSON_OK;
    }
    m->any_off = true;
    return copy_bits(m, experts, n, &v->experts, err);
}

static caisson_status set_visit(struct maker *m, uint32_t i, caisson_error *err) {
    uint32_t i_layer = i % m->plan->n_layers;
    const csn_layer *l = &m->plan->layers[i_layer];
    csn_active_visit *v = &m->out->visits[i];
    v->is_off = !csn_bit(m->mask->gates, i_layer);
    if (v->is_off && m->plan->res_block != 0) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "masks", .tensor = m->mask->name,
                        .what = "layers of a model with attention residuals cannot be masked",
                        CSN_AT(i_layer));
    }
    if (v->is_off) {
        m->any_off = true;
        return CAISSON_OK;
    }
    uint32_t row = m->mask->n_ffn_rows == m->plan->n_layers ? i_layer : i;
    CSN_TRY(
        set_heads(m, l, m->mask->heads + i_layer * csn_bit_row_bytes(m->arch->n_heads), v, err));
    return set_ffn(m, l, i_layer,
                   m->mask->ffn + row * csn_bit_row_bytes(m->arch->intermediate_size), v, err);
}

caisson_status csn_active_new(const csn_plan *plan, const csn_arch *arch, const csn_cmf_mask *mask,
                              csn_active **ret, caisson_error *err) {
    struct maker m = {.plan = plan, .arch = arch, .mask = mask};
    CSN_TRY(CSN_NEW(1, &m.out, err));
    uint32_t n_visits = csn_plan_n_visits(plan);
    caisson_status s = CSN_ARENA_NEW(&m.out->arena, n_visits, &m.out->visits, err);
    for (uint32_t i = 0; i < n_visits && s == CAISSON_OK; i++) {
        s = set_visit(&m, i, err);
    }
    if (s != CAISSON_OK || !m.any_off) {
        csn_active_free(m.out);
        m.out = NULL;
    }
    if (s == CAISSON_OK) {
        *ret = m.out;
    }
    return s;
}

void csn_active_free(csn_active *a) {
    if (a != NULL) {
        csn_free_aligned(a->packed);
        csn_arena_done(&a->arena);
        csn_free(a);
    }
}
