/* SPDX-License-Identifier: Apache-2.0 */
/* RoPE of config.json and of GGUF metadata. Every scaling type ends as data in arch: divisors of
 * the frequencies (linear, llama3), `yarn`, `longrope`; a type that we do not run is refused. */
#include "convert/family.h"

#include <math.h>

void csn_rope_llama3(double theta, uint32_t rotary_dim, double factor, double low_freq_factor,
                     double high_freq_factor, double original, double *ret) {
    static const double two_pi = 6.283185307179586;
    for (uint32_t i = 0; i < rotary_dim / 2; i++) {
        double wavelength = two_pi * pow(theta, 2.0 * i / rotary_dim);
        if (wavelength < original / high_freq_factor) {
            ret[i] = 1.0;
        } else if (wavelength > original / low_freq_factor) {
            ret[i] = factor;
        } else {
            double smooth =
                (original / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
            ret[i] = 1.0 / ((1.0 - smooth) / factor + smooth);
        }
    }
}

static uint32_t rotary_dim(const csn_arch *a) {
    uint32_t n = (uint32_t)((double)a->head_dim * (double)a->partial_rotary_factor);
    return n < 2 ? 2 : n;
}

/* `partial` as f32, or its neighbour where the product was rounded below so many dims. */
static void set_rotated(csn_arch *a, uint32_t n, double partial) {
    a->partial_rotary_factor = (float)partial;
    while (rotary_dim(a) < n) {
        a->partial_rotary_factor = nextafterf(a->partial_rotary_factor, 2.0f);
    }
}

static caisson_status alloc_factors(csn_arch *a, csn_arena *arena, caisson_error *err) {
    a->n_rope_freq_factors = rotary_dim(a) / 2;
    return CSN_ARENA_NEW(arena, a->n_rope_freq_factors, &a->rope_freq_factors, err);
}

static caisson_status set_linear(csn_arch *a, double factor, csn_arena *arena, caisson_error *err) {
    CSN_TRY(alloc_factors(a, arena, err));
    for (uint32_t i = 0; i < a->n_rope_freq_factors; i++) {
        a->rope_freq_factors[i] = factor;
    }
    return CAISSON_OK;
}

/* Below two tokens the logarithm of the context is no divisor. */
static bool is_context(uint32_t original) {
    return original >= 2;
}

/* transformers' default for the scale of cos and sin. */
static double yarn_mscale(double factor, double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

double csn_rope_longrope_scale(double factor, double original) {
    return factor <= 1.0 ? 1.0 : sqrt(1.0 + log(factor) / log(original));
}

/* ---- config.json ---- */

enum { PHI_CONTEXT = 4096 }; /* original_max_position_embeddings where config.json is silent */

static caisson_status need_positive(csn_config *r, const char *key, double *ret,
                                    caisson_error *err) {
    *ret = 0;
    CSN_TRY(csn_config_f64(r, key, ret, err));
    if (*ret <= 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = r->section, .tensor = csn_str_from(key),
                        .what = "key is missing or not a positive number");
    }
    return CAISSON_OK;
}

static caisson_status read_llama3(csn_config *r, csn_arena *arena, csn_arch *a,
                                  caisson_error *err) {
    double factor, low, high, original = a->max_position_embeddings;
    CSN_TRY(need_positive(r, "factor", &factor, err));
    CSN_TRY(need_positive(r, "low_freq_factor", &low, err));
    CSN_TRY(need_positive(r, "high_freq_factor", &high, err));
    CSN_TRY(csn_config_f64(r, "original_max_position_embeddings", &original, err));
    if (high <= low || original <= 0) {
        return csn_config_refuse(r, "high_freq_factor", "must be above low_freq_factor", err);
    }
    CSN_TRY(alloc_factors(a, arena, err));
    csn_rope_llama3(a->rope_theta, rotary_dim(a), factor, low, high, original,
                    a->rope_freq_factors);
    return CAISSON_OK;
}

/* From the frequency that makes beta_fast turns in the original context to the one that makes
 * beta_slow. What a ramp that runs backwards does, readers disagree on. */
static bool is_ramp(const csn_arch *a) {
    static const double two_pi = 6.283185307179586;
    double dim = rotary_dim(a), original = a->yarn.original_max_position_embeddings;
    double scale = dim / (2.0 * log(a->rope_theta));
    double low = scale * log(original / ((double)a->yarn.beta_fast * two_pi));
    double high = scale * log(original / ((double)a->yarn.beta_slow * two_pi));
    if (!a->yarn.untruncated) {
        low = floor(low);
        high = ceil(high);
    }
    return a->rope_theta > 1.0 && fmax(low, 0.0) <= fmin(high, dim - 1.0);
}

static caisson_status read_yarn(csn_config *r, csn_arch *a, caisson_error *err) {
    uint32_t original = a->max_position_embeddings;
    double factor = 0, attention = 0, mscale = 0, mscale_all = 0, fast = 0, slow = 0;
    /* null is false, in transformers as well */
    bool truncate = csn_jval_get(r->object, "truncate") == NULL;
    CSN_TRY(csn_config_u32(r, "original_max_position_embeddings", &original, err));
    CSN_TRY(csn_config_positive(r, "factor", &factor, err));
    CSN_TRY(csn_config_positive(r, "attention_factor", &attention, err));
    CSN_TRY(csn_config_f64(r, "mscale", &mscale, err));
    CSN_TRY(csn_config_f64(r, "mscale_all_dim", &mscale_all, err));
    CSN_TRY(csn_config_f64(r, "beta_fast", &fast, err));
    CSN_TRY(csn_config_f64(r, "beta_slow", &slow, err));
    CSN_TRY(csn_config_bool(r, "truncate", &truncate, err));
    if (original == 0) {
        return csn_config_refuse(r, "original_max_position_embeddings", "must not be 0", err);
    }
    if (factor <= 0) {
        factor = (double)a->max_position_embeddings / original;
    }
    if (attention <= 0) {
        attention = mscale != 0 && mscale_all != 0
                        ? yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all)
                        : yarn_mscale(factor, 1.0);
    }
    a->yarn.present = true;
    a->yarn.untruncated = !truncate;
    a->yarn.factor = (float)factor;
    a->yarn.beta_fast = fast > 0 ? (float)fast : 32.0f;
    a->yarn.beta_slow = slow > 0 ? (float)slow : 1.0f;
    a->yarn.attention_factor = (float)attention;
    a->yarn.has_mscale_all_dim = mscale_all != 0;
    a->yarn.mscale_all_dim = (float)mscale_all;
    a->yarn.original_max_position_embeddings = original;
    return is_ramp(a) ? CAISSON_OK
                      : csn_config_refuse(r, "original_max_position_embeddings",
                                          "too small for beta_fast and beta_slow", err);
}

static caisson_status read_longrope(csn_config *r, uint32_t original, csn_arena *arena, csn_arch *a,
                                    caisson_error *err) {
    uint32_t n_short, n_long, in_rope = 0;
    double factor = 0, attention = 0;
    CSN_TRY(csn_config_f64s(r, "short_factor", arena, &a->longrope.short_factor, &n_short, err));
    CSN_TRY(csn_config_f64s(r, "long_factor", arena, &a->longrope.long_factor, &n_long, err));
    CSN_TRY(csn_config_u32(r, "original_max_position_embeddings", &in_rope, err));
    CSN_TRY(csn_config_positive(r, "factor", &factor, err));
    CSN_TRY(csn_config_positive(r, "attention_factor", &attention, err));
    if (n_short != rotary_dim(a) / 2 || n_long != n_short) {
        return CSN_FAIL(
            err, CAISSON_E_PARSE, .section = r->section,
            .tensor = csn_str_from(n_short != rotary_dim(a) / 2 ? "short_factor" : "long_factor"),
            .what = "not one factor a rotated pair",
            CSN_VALUES(rotary_dim(a) / 2, n_short != rotary_dim(a) / 2 ? n_short : n_long));
    }
    if (original == 0) { /* Phi's stands beside the RoPE object, or is its class's default */
        original = in_rope != 0 ? in_rope : a->max_position_embeddings;
    }
    if (!is_context(original)) {
        return csn_config_refuse(r, "original_max_position_embeddings", "must be at least 2", err);
    }
    if (factor <= 0) {
        factor = (double)a->max_position_embeddings / original;
    }
    a->longrope.present = true;
    a->longrope.n = n_short;
    a->longrope.original_max_position_embeddings = original;
    a->longrope.attention_factor =
        (float)(attention > 0 ? attention : csn_rope_longrope_scale(factor, original));
    return CAISSON_OK;
}

/* Classes of other families pass over the key or fail with it. */
static caisson_status check_partial(const csn_config *r, const csn_rope_rules *rules,
                                    double partial, caisson_error *err) {
    if (partial <= 0 || partial > 1) {
        return csn_config_refuse(r, "partial_rotary_factor", "must be in (0, 1]", err);
    }
    return partial == 1 || rules->is_phi
               ? CAISSON_OK
               : csn_config_refuse(r, "partial_rotary_factor",
                                   "the heads of this family are rotated whole", err);
}

/* One set of RoPE parameters; *theta is the default going in. */
static caisson_status read_one(csn_config *r, const csn_rope_rules *rules, double partial,
                               uint32_t phi_original, csn_arena *arena, csn_arch *a,
                               caisson_error *err) {
    csn_str kind = {0}, old = {0};
    double factor;
    CSN_TRY(csn_config_f64(r, "rope_theta", &a->rope_theta, err));
    CSN_TRY(csn_config_f64(r, "partial_rotary_factor", &partial, err));
    CSN_TRY(csn_config_str(r, "type", &old, err));
    CSN_TRY(csn_config_str(r, "rope_type", &kind, err));
    (void)csn_config_get(r, "finetuned"); /* says nothing */
    kind = kind.len > 0 ? kind : old;
    if (a->rope_theta <= 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = r->section,
                        .what = "rope_theta is out of range");
    }
    CSN_TRY(check_partial(r, rules, partial, err));
    uint32_t rotated = (uint32_t)(a->head_dim * partial);
    if (partial < 1 && (rotated % 2 != 0 || rotated == 0)) {
        return csn_config_refuse(r, "partial_rotary_factor", "not an even number of rotated dims",
                                 err);
    }
    set_rotated(a, rotated, partial);
    if (kind.len == 0 || csn_str_is(kind, "default")) {
        /* nothing to scale; the original context may still be told */
        uint32_t ignored = 0;
        CSN_TRY(csn_config_u32(r, "original_max_position_embeddings", &ignored, err));
    } else if (csn_str_is(kind, "longrope") || csn_str_is(kind, "su") ||
               (rules->is_phi && csn_str_is(kind, "yarn"))) {
        CSN_TRY(read_longrope(r, phi_original, arena, a, err));
    } else if (csn_str_is(kind, "linear")) {
        CSN_TRY(need_positive(r, "factor", &factor, err));
        CSN_TRY(set_linear(a, factor, arena, err));
    } else if (csn_str_is(kind, "llama3")) {
        CSN_TRY(read_llama3(r, arena, a, err));
    } else if (csn_str_is(kind, "yarn")) {
        CSN_TRY(read_yarn(r, a, err));
        if (a->yarn.untruncated && rules->local_theta > 0) {
            return csn_config_refuse(r, "truncate", "transformers passes over it in this family",
                                     err);
        }
    } else {
        return csn_config_refuse(
            r, csn_jval_get(r->object, "rope_type") != NULL ? "rope_type" : "type",
            "kind of RoPE scaling is not supported", err);
    }
    return csn_config_end(r, false, err);
}

/* The RoPE of sliding layers, nested in rope_parameters: a base of its own, nothing else. */
static caisson_status read_local(csn_config *r, csn_arch *a, caisson_error *err) {
    csn_str kind = {0};
    CSN_TRY(csn_config_positive(r, "rope_theta", &a->rope_local_base_freq, err));
    CSN_TRY(csn_config_str(r, "rope_type", &kind, err));
    if (kind.len > 0 && !csn_str_is(kind, "default")) {
        return csn_config_refuse(r, "rope_type", "scaled RoPE in sliding layers is not supported",
                                 err);
    }
    return csn_config_end(r, false, err);
}

caisson_status csn_config_rope(csn_config *c, const csn_rope_rules *rules, csn_arena *arena,
                               csn_arch *a, caisson_error *err) {
    double partial = 1;
    uint32_t phi_original = 0;
    csn_config r;
    a->rope_theta = rules->theta;
    a->rope_local_base_freq = rules->local_theta;
    CSN_TRY(csn_config_f64(c, "rope_theta", &a->rope_theta, err));
    CSN_TRY(csn_config_f64(c, "partial_rotary_factor", &partial, err));
    CSN_TRY(check_partial(c, rules, partial, err));
    a->partial_rotary_factor = (float)partial;
    if (rules->local_theta > 0) {
        CSN_TRY(csn_config_positive(c, "rope_local_base_freq", &a->rope_local_base_freq, err));
    }
    if (rules->is_phi) {
        phi_original = PHI_CONTEXT;
        CSN_TRY(csn_config_u32(c, "original_max_position_embeddings", &phi_original, err));
    }
    const csn_jval *scaling = csn_config_get(c, "rope_scaling");
    const csn_jval *params = csn_config_get(c, "rope_parameters");
    if (scaling != NULL && csn_jval_kind(scaling) != CSN_JSON_OBJECT) {
        return csn_config_refuse(c, "rope_scaling", "not a JSON object", err);
    }
    if (csn_jval_len(scaling) > 0) { /* the older key wins when it says something */
        if (rules->local_theta > 0 && csn_jval_len(params) > 0) {
            return csn_config_refuse(c, "rope_scaling",
                                     "beside rope_parameters: versions of transformers take one, "
                                     "or both together",
                                     err);
        }
        if (rules->local_theta > 0 && csn_jval_get(scaling, "type") != NULL &&
            csn_jval_get(scaling, "rope_type") == NULL) {
            return csn_config_refuse(c, "rope_scaling",
                                     "without rope_type: versions of transformers take `type` of "
                                     "this family, or pass over it",
                                     err);
        }
        params = scaling;
    }
    const csn_jval *full = csn_jval_get(params, "full_attention");
    const csn_jval *local = csn_jval_get(params, "sliding_attention");
    if (full == NULL && local == NULL) {
        CSN_TRY(csn_config_init(&r, params, "rope_parameters", arena, err));
        return read_one(&r, rules, partial, phi_original, arena, a, err);
    }
    const char *key = params == scaling ? "rope_scaling" : "rope_parameters";
    if (rules->local_theta <= 0 || params == scaling) { /* transformers passes over it, or fails */
        return csn_config_refuse(c, key, "RoPE that differs by layer is not supported here", err);
    }
    if (csn_jval_len(params) != (size_t)(full != NULL) + (local != NULL)) {
        return csn_config_refuse(c, key, "RoPE for a kind of layer that is not known", err);
    }
    if (local != NULL && csn_jval_kind(local) != CSN_JSON_NULL) {
        CSN_TRY(csn_config_init(&r, local, "rope_parameters.sliding_attention", arena, err));
        CSN_TRY(read_local(&r, a, err));
    }
    if (csn_jval_kind(full) == CSN_JSON_NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_config_init(&r, full, "rope_parameters.full_attention", arena, err));
    return read_one(&r, rules, partial, phi_original, arena, a, err);
}

/* ---- GGUF ---- */

/* Factors kept as an f32 tensor of the file. */
static caisson_status read_factors(csn_meta *m, const char *name, csn_arena *arena, double **ret,
                                   uint32_t *ret_n, caisson_error *err) {
    const csn_tensor *t = csn_directory_find(&m->gguf->dir, csn_str_from(name));
    *ret = NULL;
    *ret_n = 0;
    if (t == NULL) {
        return CAISSON_OK;
    }
    if (t->shape.n_dims != 1 || t->dtype != csn_dtype_by_name(CSN_STR("f32")) ||
        t->nbytes > 1 << 16) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = t->name,
                        .what = "RoPE factors are not a short f32 vector");
    }
    uint8_t *bytes;
    uint32_t n = (uint32_t)t->shape.dim[0];
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)t->nbytes, &bytes, err));
    CSN_TRY(CSN_ARENA_NEW(arena, n, ret, err));
    CSN_TRY(csn_file_read_at(m->gguf->files[t->i_file], t->offset, bytes, (size_t)t->nbytes, err));
    csn_matrix v = csn_matrix_make(t->dtype, &t->shape, bytes, t->nbytes);
    for (uint32_t i = 0; i < n; i++) {
        float f;
        t->dtype->decode(&v, i, 1, &f);
        if (!(f > 0) || !isfinite(f)) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = t->name,
                            .what = "a RoPE factor is not a positive number");
        }
        (*ret)[i] = (double)f;
    }
    *ret_n = n;
    return CAISSON_OK;
}

static caisson_status check_n(const csn_arch *a, const char *name, uint32_t n, caisson_error *err) {
    if (n != rotary_dim(a) / 2) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = csn_str_from(name),
                        .what = "not one factor a rotated pair", CSN_VALUES(rotary_dim(a) / 2, n));
    }
    return CAISSON_OK;
}

static caisson_status gguf_longrope(csn_meta *m, csn_arena *arena, csn_arch *a,
                                    caisson_error *err) {
    uint32_t n_short, n_long, original = 0;
    double attention = 0;
    CSN_TRY(read_factors(m, "rope_factors_short.weight", arena, &a->longrope.short_factor, &n_short,
                         err));
    CSN_TRY(
        read_factors(m, "rope_factors_long.weight", arena, &a->longrope.long_factor, &n_long, err));
    CSN_TRY(csn_meta_u32(m, "rope.scaling.original_context_length", &original, err));
    CSN_TRY(csn_meta_f64(m, "rope.scaling.attn_factor", &attention, err));
    if (n_short == 0 && n_long == 0) {
        return attention == 0 || attention == 1
                   ? CAISSON_OK
                   : csn_meta_refuse(m, "rope.scaling.attn_factor", "without longrope", err);
    }
    if (a->yarn.present || a->n_rope_freq_factors > 0) {
        return csn_meta_refuse(m, "rope.scaling.type", "with factors of longrope", err);
    }
    CSN_TRY(check_n(a, "rope_factors_short.weight", n_short, err));
    CSN_TRY(check_n(a, "rope_factors_long.weight", n_long, err));
    original = original != 0 ? original : a->max_position_embeddings;
    if (!is_context(original)) {
        return csn_meta_refuse(m, "rope.scaling.original_context_length", "must be at least 2",
                               err);
    }
    a->longrope.present = true;
    a->longrope.n = n_short;
    a->longrope.original_max_position_embeddings = original;
    a->longrope.attention_factor =
        (float)(attention > 0 ? attention
                              : csn_rope_longrope_scale(
                                    (double)a->max_position_embeddings / original, original));
    return CAISSON_OK;
}

static caisson_status gguf_scaling(csn_meta *m, csn_str kind, csn_arena *arena, csn_arch *a,
                                   caisson_error *err) {
    double factor = 0, fast = 32, slow = 1;
    uint32_t original = 0;
    CSN_TRY(csn_meta_f64(m, "rope.scaling.factor", &factor, err));
    if (factor < 0) {
        return csn_meta_refuse(m, "rope.scaling.factor", "must not be below 0", err);
    }
    /* llama.cpp's rules: a factor without a kind is linear, 0 is none */
    if (csn_str_is(kind, "linear") || kind.len == 0) {
        return factor != 0 && factor != 1 ? set_linear(a, factor, arena, err) : CAISSON_OK;
    }
    if (csn_str_is(kind, "yarn")) {
        CSN_TRY(csn_meta_need_u32(m, "rope.scaling.original_context_length", &original, err));
        CSN_TRY(csn_meta_f64(m, "rope.scaling.yarn_beta_fast", &fast, err));
        CSN_TRY(csn_meta_f64(m, "rope.scaling.yarn_beta_slow", &slow, err));
        if (original == 0 || factor <= 0) {
            return csn_meta_refuse(m, "rope.scaling.factor", "YaRN needs a factor and a context",
                                   err);
        }
        a->yarn.present = true;
        a->yarn.factor = (float)factor;
        a->yarn.beta_fast = (float)fast;
        a->yarn.beta_slow = (float)slow;
        a->yarn.attention_factor = (float)yarn_mscale(factor, 1.0);
        a->yarn.original_max_position_embeddings = original;
        return CAISSON_OK;
    }
    if (csn_str_is(kind, "longrope") && factor != 0 && factor != 1) {
        return csn_meta_refuse(m, "rope.scaling.factor", "with longrope", err);
    }
    if (csn_str_is(kind, "longrope") || csn_str_is(kind, "none")) {
        return CAISSON_OK;
    }
    return csn_meta_refuse(m, "rope.scaling.type", "kind of RoPE scaling is not supported", err);
}

caisson_status csn_meta_rope(csn_meta *m, csn_arena *arena, csn_arch *a, caisson_error *err) {
    uint32_t rotated = a->head_dim, n = 0;
    csn_str kind = {0};
    double *factors;
    bool is_finetuned = false;
    a->rope_theta = 10000.0;
    CSN_TRY(csn_meta_f64(m, "rope.freq_base", &a->rope_theta, err));
    CSN_TRY(csn_meta_u32(m, "rope.dimension_count", &rotated, err));
    CSN_TRY(csn_meta_str(m, "rope.scaling.type", &kind, err));
    CSN_TRY(csn_meta_bool(m, "rope.scaling.finetuned", &is_finetuned, err)); /* says nothing */
    if (rotated < 2 || rotated > a->head_dim || rotated % 2 != 0 || a->rope_theta <= 0) {
        return csn_meta_refuse(m, "rope.dimension_count", "must be even and at most the head's",
                               err);
    }
    set_rotated(a, rotated, (double)rotated / a->head_dim);
    CSN_TRY(gguf_scaling(m, kind, arena, a, err));
    CSN_TRY(gguf_longrope(m, arena, a, err));
    CSN_TRY(read_factors(m, "rope_freqs.weight", arena, &factors, &n, err));
    if (factors != NULL) {
        CSN_TRY(check_n(a, "rope_freqs.weight", n, err));
        if (a->yarn.present || a->longrope.present) {
            return csn_meta_refuse(m, "rope.scaling.type", "with a tensor rope_freqs", err);
        }
        for (uint32_t i = 0; a->n_rope_freq_factors > 0 && i < n; i++) { /* both divide */
            factors[i] *= a->rope_freq_factors[i];
        }
        a->rope_freq_factors = factors;
        a->n_rope_freq_factors = n;
    }
    return CAISSON_OK;
}
