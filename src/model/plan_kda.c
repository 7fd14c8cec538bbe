/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of Kimi Delta Attention (facts 3.5 "kda_attn.*", warp facts 3.1 and 14). */
#include <math.h>
#include <stdio.h>

#include "model/blocks/blocks.h"
#include "model/math.h"
#include "model/plan_internal.h"

static csn_str kda_name(struct csn_maker *m, uint32_t i, const char *suffix) {
    char tail[64];
    (void)snprintf(tail, sizeof(tail), "kda_attn.%s", suffix);
    return csn_plan_name(m, i, tail);
}

static caisson_status check_sizes(const csn_arch *a, caisson_error *err) {
    uint32_t n_heads = a->linear_n_value_heads;
    uint32_t dim = a->linear_value_head_dim;
    if (n_heads == 0 || a->linear_n_key_heads != n_heads || dim == 0 ||
        a->linear_key_head_dim != dim || dim > CSN_MAX_KDA_DIM ||
        (uint64_t)n_heads * dim > INT32_MAX / 4) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "header",
                        .tensor = CSN_STR("linear_num_value_heads"),
                        .what = "KDA needs as many key heads as value heads, of the same dim",
                        CSN_VALUES(n_heads, a->linear_n_key_heads));
    }
    if (a->linear_conv_kernel_dim == 0 || a->linear_conv_kernel_dim > CSN_MAX_CONV) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "header",
                        .tensor = CSN_STR("linear_conv_kernel_dim"),
                        .what = "width of the short convolution is out of range",
                        CSN_VALUES(CSN_MAX_CONV, a->linear_conv_kernel_dim));
    }
    return CAISSON_OK;
}

/* [n_channels][1][width] in the file, [width][n_channels] here. */
static caisson_status plan_taps(struct csn_maker *m, csn_str name, uint64_t n_channels,
                                uint32_t width, const float **ret, caisson_error *err) {
    const float *from;
    float *taps;
    CSN_TRY(csn_plan_vector(m, name, n_channels * width, 0.0f, &from, err));
    CSN_TRY(CSN_ARENA_NEW(m->arena, (size_t)n_channels * width, &taps, err));
    for (uint64_t c = 0; c < n_channels; c++) {
        for (uint32_t j = 0; j < width; j++) {
            taps[j * n_channels + c] = from[c * width + j];
        }
    }
    *ret = taps;
    return CAISSON_OK;
}

/* exp(A_log) of each head. Kimi K3 pads A_log to head_dim. */
static caisson_status plan_rates(struct csn_maker *m, uint32_t i, uint32_t n_heads,
                                 const float **ret, caisson_error *err) {
    csn_str name = kda_name(m, i, "A_log");
    const csn_tensor *t = csn_directory_find(m->dir, name);
    uint64_t n = n_heads;
    if (t != NULL) {
        (void)csn_shape_count(&t->shape, &n); /* checked at open */
    }
    const float *logs;
    float *rates;
    CSN_TRY(csn_plan_vector(m, name, n < n_heads ? n_heads : n, 0.0f, &logs, err));
    CSN_TRY(CSN_ARENA_NEW(m->arena, n_heads, &rates, err));
    for (uint32_t h = 0; h < n_heads; h++) {
        bool is_sane = logs[h] > -80.0f && logs[h] < 80.0f;
        if (!is_sane) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory",
                            .tensor = kda_name(m, i, "A_log"),
                            .what = "the logarithm of a decay is out of range", CSN_AT(h));
        }
        rates[h] = (float)csn_f64_exp((double)logs[h]);
    }
    *ret = rates;
    return CAISSON_OK;
}

/* The norm of query and key heads is x / sqrt(sum x^2 + 1e-12), which is an RMS norm with these
 * weights and eps / dim; queries are also scaled by 1 / sqrt(dim). */
static caisson_status plan_unit_norms(struct csn_maker *m, csn_kda *kda, caisson_error *err) {
    float *q;
    float *k;
    CSN_TRY(CSN_ARENA_NEW(m->arena, kda->dim, &q, err));
    CSN_TRY(CSN_ARENA_NEW(m->arena, kda->dim, &k, err));
    for (uint32_t d = 0; d < kda->dim; d++) {
        q[d] = (float)(1.0 / kda->dim);
        k[d] = (float)(1.0 / sqrt((double)kda->dim));
    }
    kda->q_norm = q;
    kda->k_norm = k;
    kda->unit_eps = (float)(1e-12 / kda->dim);
    return CAISSON_OK;
}

static caisson_status plan_products(struct csn_maker *m, uint32_t i, csn_kda *kda, csn_layer *l,
                                    caisson_error *err) {
    uint64_t hidden = m->plan->hidden;
    uint64_t width = (uint64_t)kda->n_heads * kda->dim;
    CSN_TRY(csn_plan_weight(m, kda_name(m, i, "q_proj.weight"), width, hidden, &kda->q, err));
    CSN_TRY(csn_plan_weight(m, kda_name(m, i, "k_proj.weight"), width, hidden, &kda->k, err));
    CSN_TRY(csn_plan_weight(m, kda_name(m, i, "v_proj.weight"), width, hidden, &kda->v, err));
    CSN_TRY(
        csn_plan_weight(m, kda_name(m, i, "f_a_proj.weight"), kda->dim, hidden, &kda->f_a, err));
    CSN_TRY(csn_plan_weight(m, kda_name(m, i, "f_b_proj.weight"), width, kda->dim, &kda->f_b, err));
    CSN_TRY(
        csn_plan_weight(m, kda_name(m, i, "b_proj.weight"), kda->n_heads, hidden, &kda->beta, err));
    if (csn_plan_has(m, kda_name(m, i, "g_proj.weight"))) {
        CSN_TRY(
            csn_plan_weight(m, kda_name(m, i, "g_proj.weight"), width, hidden, &kda->gate, err));
    } else {
        CSN_TRY(CSN_ARENA_NEW(m->arena, 1, &kda->gate_a, err));
        CSN_TRY(csn_plan_weight(m, kda_name(m, i, "g_a_proj.weight"), kda->dim, hidden, kda->gate_a,
                                err));
        CSN_TRY(csn_plan_weight(m, kda_name(m, i, "g_b_proj.weight"), width, kda->dim, &kda->gate,
                                err));
    }
    return csn_plan_weight(m, kda_name(m, i, "o_proj.weight"), hidden, width, &l->o, err);
}

caisson_status csn_kda_plan(struct csn_maker *m, uint32_t i, csn_layer *l, caisson_error *err) {
    static const char *const convs[] = {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"};
    const csn_arch *a = m->arch;
    csn_kda *kda;
    CSN_TRY(check_sizes(a, err));
    CSN_TRY(CSN_ARENA_NEW(m->arena, 1, &kda, err));
    kda->n_heads = a->linear_n_value_heads;
    kda->dim = a->linear_value_head_dim;
    kda->conv_width = a->linear_conv_kernel_dim;
    kda->bound = a->has_kda_gate_lower_bound ? (float)a->kda_gate_lower_bound : 0.0f;
    uint64_t width = (uint64_t)kda->n_heads * kda->dim;
    CSN_TRY(plan_products(m, i, kda, l, err));
    for (int k = 0; k < 3; k++) {
        CSN_TRY(plan_taps(m, kda_name(m, i, convs[k]), width, kda->conv_width, &kda->taps[k], err));
    }
    CSN_TRY(plan_rates(m, i, kda->n_heads, &kda->rate, err));
    CSN_TRY(csn_plan_vector(m, kda_name(m, i, "dt_bias"), width, 0.0f, &kda->dt_bias, err));
    CSN_TRY(csn_plan_vector(m, kda_name(m, i, "o_norm.weight"), kda->dim, 0.0f, &kda->o_norm, err));
    CSN_TRY(plan_unit_norms(m, kda, err));
    l->kda = kda;
    l->n_heads = kda->n_heads;
    l->n_kv_heads = kda->n_heads;
    l->head_dim = kda->dim;
    l->first[0] = &kda->q;
    l->first[1] = &kda->k;
    l->first[2] = &kda->v;
    csn_plan *p = m->plan;
    csn_plan_widen(&p->max_q, width);
    csn_plan_widen(&p->max_kv, width);
    csn_plan_widen(&p->max_gate, width);
    csn_plan_widen(&p->max_low, csn_kda_low(kda));
    p->is_recurrent = true;
    return CAISSON_OK;
}
