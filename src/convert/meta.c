/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/meta.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/number.h"

enum { MAX_KEY = 256 };

caisson_status csn_meta_init(csn_meta *m, const csn_gguf *g, csn_arena *arena, caisson_error *err) {
    *m = (csn_meta){.gguf = g};
    if (!csn_gguf_str(csn_gguf_find(g, CSN_STR("general.architecture")), &m->arch) ||
        m->arch.len == 0 || m->arch.len > 64) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata",
                        .tensor = CSN_STR("general.architecture"),
                        .what = "key is missing or not a short string");
    }
    return CSN_ARENA_NEW(arena, (size_t)g->n_pairs + 1, &m->used, err);
}

static csn_str full_key(const csn_meta *m, const char *key, char buf[MAX_KEY]) {
    int n = snprintf(buf, MAX_KEY, "%.*s.%s", CSN_STR_ARGS(m->arch), key);
    return csn_str_make(buf, (size_t)n); /* both parts are short */
}

const csn_gguf_pair *csn_meta_get(csn_meta *m, const char *key) {
    char buf[MAX_KEY];
    const csn_gguf_pair *p = csn_gguf_find(m->gguf, full_key(m, key, buf));
    if (p != NULL) {
        m->used[p - m->gguf->pairs] = true;
    }
    return p;
}

static caisson_status fail_type(const csn_gguf_pair *p, const char *want, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata", .tensor = p->key,
                    .what = "value of another type or range",
                    CSN_TEXTS(csn_str_from(want), csn_str_from(csn_gguf_type_names[p->type])));
}

caisson_status csn_meta_u32(csn_meta *m, const char *key, uint32_t *ret, caisson_error *err) {
    const csn_gguf_pair *p = csn_meta_get(m, key);
    uint64_t u;
    if (p == NULL) {
        return CAISSON_OK;
    }
    if (!csn_gguf_u64(p, &u) || u > INT32_MAX) {
        return fail_type(p, "an integer in 0..2^31-1", err);
    }
    *ret = (uint32_t)u;
    return CAISSON_OK;
}

/* An f32 of the file as the decimal number that it stands for: 1e-5f is 1e-05, not
 * 9.99999974737875e-06. Both read back to the same f32. */
static double shortest(float f) {
    char digits[CSN_MAX_DIGITS];
    int exponent;
    int n = csn_number_digits((double)f, true, digits, &exponent);
    double d = csn_number_scaled(digits, n, exponent - (n - 1));
    return signbit(f) ? -d : d;
}

caisson_status csn_meta_f64(csn_meta *m, const char *key, double *ret, caisson_error *err) {
    const csn_gguf_pair *p = csn_meta_get(m, key);
    double d;
    if (p == NULL) {
        return CAISSON_OK;
    }
    if (!csn_gguf_f64(p, &d) || !isfinite(d)) {
        return fail_type(p, "a finite number", err);
    }
    *ret = p->type == CSN_GGUF_F32 ? shortest((float)d) : d;
    return CAISSON_OK;
}

caisson_status csn_meta_bool(csn_meta *m, const char *key, bool *ret, caisson_error *err) {
    const csn_gguf_pair *p = csn_meta_get(m, key);
    return p == NULL || csn_gguf_bool(p, ret) ? CAISSON_OK : fail_type(p, "bool", err);
}

caisson_status csn_meta_str(csn_meta *m, const char *key, csn_str *ret, caisson_error *err) {
    const csn_gguf_pair *p = csn_meta_get(m, key);
    return p == NULL || csn_gguf_str(p, ret) ? CAISSON_OK : fail_type(p, "string", err);
}

static caisson_status need(csn_meta *m, const char *key, caisson_error *err) {
    char buf[MAX_KEY];
    if (csn_meta_get(m, key) == NULL) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata",
                        .tensor = full_key(m, key, buf), .what = "key is missing");
    }
    return CAISSON_OK;
}

caisson_status csn_meta_need_u32(csn_meta *m, const char *key, uint32_t *ret, caisson_error *err) {
    CSN_TRY(need(m, key, err));
    return csn_meta_u32(m, key, ret, err);
}

caisson_status csn_meta_need_f64(csn_meta *m, const char *key, double *ret, caisson_error *err) {
    CSN_TRY(need(m, key, err));
    return csn_meta_f64(m, key, ret, err);
}

/* A value as short text, for errors. */
static csn_str show(const csn_gguf_pair *p, char *buf, size_t n) {
    int64_t i;
    double d;
    bool b;
    csn_str s;
    if (csn_gguf_str(p, &s)) {
        return s;
    }
    if (csn_gguf_i64(p, &i)) {
        snprintf(buf, n, "%" PRId64, i);
    } else if (csn_gguf_f64(p, &d)) {
        char text[CSN_NUMBER_TEXT];
        csn_number_text(d, p->type == CSN_GGUF_F32, text);
        snprintf(buf, n, "%s", text);
    } else if (csn_gguf_bool(p, &b)) {
        snprintf(buf, n, "%s", b ? "true" : "false");
    } else {
        snprintf(buf, n, "%s", p != NULL ? csn_gguf_type_names[p->type] : "");
    }
    return csn_str_from(buf);
}

static caisson_status refuse(const csn_gguf_pair *p, csn_str key, const char *what,
                             caisson_error *err) {
    char buf[64];
    return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "metadata", .tensor = key, .what = what,
                    .got = show(p, buf, sizeof(buf)));
}

caisson_status csn_meta_refuse(const csn_meta *m, const char *key, const char *what,
                               caisson_error *err) {
    char buf[MAX_KEY];
    csn_str full = full_key(m, key, buf);
    return refuse(csn_gguf_find(m->gguf, full), full, what, err);
}

caisson_status csn_meta_end(const csn_meta *m, caisson_error *err) {
    for (uint32_t i = 0; i < m->gguf->n_pairs; i++) {
        const csn_gguf_pair *p = &m->gguf->pairs[i];
        bool is_ours = p->key.len > m->arch.len && p->key.ptr[m->arch.len] == '.' &&
                       csn_str_starts(p->key, m->arch);
        if (is_ours && !m->used[i]) {
            return refuse(p, p->key, "key is not understood; it may change the arithmetic", err);
        }
    }
    return CAISSON_OK;
}
