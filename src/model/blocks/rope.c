/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary frequencies and their tables. Exponents, powers and products are rounded to f32 where
 * transformers computes in f32, because at position p an error of the frequency counts p times. */
#include <math.h>

#include "model/blocks/blocks.h"
#include "model/math.h"

/* base^(2 i / dim), as float(base) ** (arange(0, dim, 2) / dim) gives it in f32. */
static float wavelength(double base, uint32_t i, uint32_t dim) {
    float exponent = (float)(2 * i) / (float)dim;
    return (float)csn_f64_pow((double)(float)base, (double)exponent);
}

/* YaRN (facts 15.2): below `low` frequencies stay, above `high` they are divided by factor, between
 * them a ramp. `high` is limited by dim - 1 as in transformers. */
static void yarn(const csn_arch *a, uint32_t dim, float *inv_freq) {
    double log_base = csn_f64_log(a->rope_theta);
    double original = (double)a->yarn.original_max_position_embeddings;
    const double two_pi = 6.283185307179586;
    double scale = (double)dim / (2.0 * log_base);
    double low = scale * csn_f64_log(original / ((double)a->yarn.beta_fast * two_pi));
    double high = scale * csn_f64_log(original / ((double)a->yarn.beta_slow * two_pi));
    if (!a->yarn.untruncated) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0.0 ? low : 0.0;
    high = high < (double)dim - 1.0 ? high : (double)dim - 1.0;
    double width = high > low ? high - low : 0.001;
    for (uint32_t i = 0; i < dim / 2; i++) {
        float ramp = (float)(((double)i - low) / width);
        ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
        float keep = 1.0f - ramp;
        float w = wavelength(a->rope_theta, i, dim);
        inv_freq[i] = 1.0f / (a->yarn.factor * w) * (1.0f - keep) + 1.0f / w * keep;
    }
}

static caisson_status check_factors(csn_str key, uint32_t n, uint32_t want, caisson_error *err) {
    if (n != want) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header", .tensor = key,
                        .what = "not one factor for each pair of rotated dims",
                        CSN_VALUES(want, n));
    }
    return CAISSON_OK;
}

static caisson_status make(const csn_arch *a, csn_rope *r, csn_arena *arena, caisson_error *err) {
    uint32_t half = r->rotary_dim / 2;
    float *f;
    CSN_TRY(CSN_ARENA_NEW(arena, half, &f, err));
    r->inv_freq = f;
    double base = r->is_local ? a->rope_local_base_freq : a->rope_theta;
    for (uint32_t i = 0; i < half; i++) {
        f[i] = 1.0f / wavelength(base, i, r->rotary_dim);
    }
    if (r->is_local || half == 0) { /* scaling is for global layers that rotate */
        return CAISSON_OK;
    }
    if (a->n_rope_freq_factors != 0) {
        CSN_TRY(check_factors(CSN_STR("rope_freq_factors"), a->n_rope_freq_factors, half, err));
        for (uint32_t i = 0; i < half; i++) {
            f[i] = (float)((double)f[i] / a->rope_freq_factors[i]);
        }
    }
    if (a->yarn.present) {
        yarn(a, r->rotary_dim, f);
        r->magnitude = a->yarn.attention_factor;
    }
    if (a->longrope.present) {
        CSN_TRY(check_factors(CSN_STR("caisson.longrope"), a->longrope.n, half, err));
        float *g;
        CSN_TRY(CSN_ARENA_NEW(arena, half, &g, err));
        for (uint32_t i = 0; i < half; i++) {
            float w = wavelength(base, i, r->rotary_dim);
            f[i] = 1.0f / ((float)a->longrope.short_factor[i] * w);
            g[i] = 1.0f / ((float)a->longrope.long_factor[i] * w);
        }
        r->inv_freq_long = g;
        r->magnitude = a->longrope.attention_factor;
    }
    return CAISSON_OK;
}

static uint32_t rotary_dim(const csn_arch *a, uint32_t i_layer) {
    if (a->mla.present) {
        return a->mla.nope ? 0 : a->mla.qk_rope_head_dim;
    }
    return csn_arch_rotary_dim(a, i_layer);
}

caisson_status csn_rope_plan(const csn_arch *a, uint32_t i_layer, csn_arena *arena, csn_plan *plan,
                             uint32_t *ret, caisson_error *err) {
    csn_rope r = {.is_local = csn_arch_is_local(a, i_layer) && a->rope_local_base_freq > 0.0,
                  .rotary_dim = rotary_dim(a, i_layer),
                  .magnitude = 1.0f};
    if ((r.rotary_dim > a->head_dim && !a->mla.present) || r.rotary_dim % 2 != 0) {
        return CSN_FAIL(
            err, CAISSON_E_PARSE, .section = "header", .tensor = CSN_STR("partial_rotary_factor"),
            .what = "more rotated dims than the head has", CSN_VALUES(a->head_dim, r.rotary_dim));
    }
    for (uint32_t i = 0; i < plan->n_ropes; i++) {
        if (plan->ropes[i].is_local == r.is_local && plan->ropes[i].rotary_dim == r.rotary_dim) {
            *ret = i;
            return CAISSON_OK;
        }
    }
    if (plan->n_ropes == CSN_MAX_ROPES) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "header",
                        .tensor = CSN_STR("partial_rotary_factor"),
                        .what = "too many kinds of rotary embedding",
                        CSN_VALUES(CSN_MAX_ROPES, CSN_MAX_ROPES + 1));
    }
    CSN_TRY(make(a, &r, arena, err));
    for (uint32_t i = 0; i < plan->n_ropes; i++) {
        r.before += plan->ropes[i].rotary_dim / 2;
    }
    *ret = plan->n_ropes;
    plan->ropes[plan->n_ropes++] = r;
    return CAISSON_OK;
}

void csn_rope_tables(const csn_rope *r, bool use_long, uint32_t pos0, uint32_t n, float *cos,
                     float *sin) {
    const float *f = use_long && r->inv_freq_long != NULL ? r->inv_freq_long : r->inv_freq;
    uint32_t half = r->rotary_dim / 2;
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t i = 0; i < half; i++) {
            float s;
            float c;
            csn_sincos((float)(pos0 + t) * f[i], &s, &c);
            cos[(uint64_t)t * half + i] = c * r->magnitude;
            sin[(uint64_t)t * half + i] = s * r->magnitude;
        }
    }
}
