/* SPDX-License-Identifier: Apache-2.0 */
/* Both are brought into one form, written as JSON by one function, and compared key by key. */
#include "convert/arithmetic.h"

#include <math.h>

#include "base/json_fields.h"
#include "caisson/limits.h"

static bool is_same_number(double a, double b) {
    return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b));
}

static bool is_same(const csn_jval *a, const csn_jval *b) {
    csn_jkind kind = csn_jval_kind(a);
    double x = 0, y = 0;
    csn_str s, t;
    bool p, q;
    if (csn_jval_f64(a, &x) && csn_jval_f64(b, &y)) {
        return is_same_number(x, y);
    }
    if (kind != csn_jval_kind(b) || csn_jval_len(a) != csn_jval_len(b)) {
        return false;
    }
    if (csn_jval_str(a, &s)) {
        return csn_jval_str(b, &t) && csn_str_eq(s, t);
    }
    if (csn_jval_bool(a, &p)) {
        return csn_jval_bool(b, &q) && p == q;
    }
    csn_jiter i = csn_jval_iter(a), k = csn_jval_iter(b); /* both written by one function */
    while (csn_jiter_next(&i) && csn_jiter_next(&k)) {
        if (!csn_str_eq(i.key, k.key) || !is_same(i.value, k.value)) {
            return false;
        }
    }
    return true;
}

static const csn_jval *find(const csn_jval *object, csn_str key) {
    for (csn_jiter it = csn_jval_iter(object); csn_jiter_next(&it);) {
        if (csn_str_eq(it.key, key)) {
            return it.value;
        }
    }
    return NULL;
}

/* Each key of `all` is the same in both; null is as good as absent. */
static caisson_status compare_keys(const csn_jval *all, const csn_jval *wanted,
                                   const csn_jval *have, const char *what, caisson_error *err) {
    for (csn_jiter it = csn_jval_iter(all); csn_jiter_next(&it);) {
        const csn_jval *want = find(wanted, it.key), *got = find(have, it.key);
        if (csn_jval_kind(it.value) != CSN_JSON_NULL && !is_same(want, got)) {
            char text[CSN_BRIEF];
            return csn_jfields_fail(
                err, "arch", it.key, what,
                want != NULL ? csn_jval_brief(want, text) : CSN_STR("its default"), got);
        }
    }
    return CAISSON_OK;
}

/* A window is told by a list of layers, a pattern or a rule of the family: here by the list. What
 * belongs to a kind of layer that is not there is dropped. */
static caisson_status resolve_layers(csn_arch *a, csn_arena *arena, caisson_error *err) {
    const csn_arch said = *a;
    bool slides = false, has_kda = false;
    CSN_TRY(CSN_ARENA_NEW(arena, a->n_layers, &a->layer_types, err));
    a->n_layer_types = a->n_layers;
    for (uint32_t i = 0; i < a->n_layers; i++) {
        csn_layer_type t = i < said.n_layer_types ? said.layer_types[i] : CSN_LAYER_FULL_ATTENTION;
        bool is_local = csn_arch_is_local(&said, i);
        if (t == CSN_LAYER_FULL_ATTENTION || t == CSN_LAYER_SLIDING_ATTENTION) {
            t = is_local ? CSN_LAYER_SLIDING_ATTENTION : CSN_LAYER_FULL_ATTENTION;
        }
        slides = slides || is_local;
        has_kda = has_kda || t == CSN_LAYER_KDA;
        a->layer_types[i] = t;
    }
    a->sliding_window_pattern = 0;
    a->sliding_all = false;
    a->has_kda_gate_lower_bound = a->has_kda_gate_lower_bound && has_kda;
    if (!slides) {
        a->sliding_window = 0;
        a->rope_local_base_freq = 0;
        a->local_partial_rotary_factor = 0;
    }
    return CAISSON_OK;
}

/* What enters a layer's arithmetic, as JSON. */
static caisson_status write(const csn_arch *arch, csn_arena *arena, csn_json **ret,
                            caisson_error *err) {
    csn_arch a = *arch;
    csn_buf text = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    a.arch_name = CSN_STR("");
    a.max_position_embeddings = 0;
    a.vocab_size = 0;
    a.intermediate_size = 0; /* shapes tell */
    a.tie_word_embeddings = false;
    a.mtp.present = false;
    a.source = a.has_g3n ? a.source : NULL;
    CSN_TRY(resolve_layers(&a, arena, err));
    if (a.query_pre_attn_scalar == 0 || a.mla.present) {
        a.query_pre_attn_scalar = a.head_dim;
    }
    bool has_situ = a.hidden_act == CSN_ACT_SITU;
    a.has_situ_beta = a.has_situ_beta && has_situ;
    a.has_situ_linear_beta = a.has_situ_linear_beta && has_situ;
    a.loop_final_norm = a.loop_final_norm && a.num_loops > 1;
    a.moe.has_scaling = a.moe.has_scaling && a.moe.routed_scaling_factor != 1.0;
    csn_jw w = csn_jw_begin(&text, err);
    csn_arch_write(&a, &w);
    caisson_status s = csn_jw_end(&w);
    if (s == CAISSON_OK) {
        s = csn_json_parse(csn_buf_view(&text), 0, ret, err);
    }
    csn_buf_free(&text);
    return s;
}

caisson_status csn_arithmetic_check(const csn_arch *got, const csn_arch *want, const char *what,
                                    caisson_error *err) {
    csn_json *a = NULL;
    csn_json *b = NULL;
    csn_arena arena = {0};
    caisson_status s = write(got, &arena, &a, err);
    if (s == CAISSON_OK) {
        s = write(want, &arena, &b, err);
    }
    const csn_jval *have = csn_json_root(a), *wanted = csn_json_root(b);
    if (s == CAISSON_OK) {
        s = compare_keys(have, wanted, have, what, err);
    }
    if (s == CAISSON_OK) {
        s = compare_keys(wanted, wanted, have, what, err);
    }
    csn_json_free(a);
    csn_json_free(b);
    csn_arena_done(&arena);
    return s;
}
