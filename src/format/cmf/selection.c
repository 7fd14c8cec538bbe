/* SPDX-License-Identifier: Apache-2.0 */
/* How a skill is recognised: header.skills[].selection (CMF 9, facts 10.2). Every length is known
 * from arch before a byte is decoded; values are f16 in base64. */
#include <math.h>

#include "base/base64.h"
#include "base/json_fields.h"
#include "base/size.h"
#include "format/cmf/cmf_internal.h"
#include "quant/half.h"

struct selection {
    csn_str metric, mean, basis, holdout;
    uint32_t phi_layer, rank, holdout_n;
    float err_mean, err_std;
};

#define S(member, type, flags) CSN_JFIELD(struct selection, member, #member, type, flags)
enum { RANK = 4 }; /* its row of the table */
static const csn_jfield fields[] = {
    S(metric, CSN_JT_STR, CSN_JF_REQUIRED),    S(phi_layer, CSN_JT_U32, CSN_JF_REQUIRED),
    S(mean, CSN_JT_STR, CSN_JF_REQUIRED),      S(basis, CSN_JT_STR, CSN_JF_REQUIRED),
    S(rank, CSN_JT_U32, CSN_JF_NULLABLE),      S(err_mean, CSN_JT_F32, CSN_JF_NULLABLE),
    S(err_std, CSN_JT_F32, CSN_JF_NULLABLE),   S(holdout, CSN_JT_STR, CSN_JF_NULLABLE),
    S(holdout_n, CSN_JT_U32, CSN_JF_NULLABLE),
};

static caisson_status bad(caisson_error *err, csn_str skill, const char *what, uint64_t want,
                          uint64_t got) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header", .tensor = skill, .what = what,
                    CSN_VALUES(want, got));
}

/* rows x cols f16 values. Nothing is allocated before the length of the text is right. */
static caisson_status decode(csn_arena *arena, csn_str skill, csn_str text, uint64_t rows,
                             uint64_t cols, const char *what_length, const char *what_text,
                             float **ret, caisson_error *err) {
    uint64_t n = UINT64_MAX;
    uint64_t bytes;
    if (!csn_mul(rows, cols, &n) || !csn_mul(n, 2, &bytes) || bytes > SIZE_MAX / 2 ||
        text.len != csn_base64_len((size_t)bytes)) {
        return bad(err, skill, what_length, n, text.len / 4 * 3 / 2);
    }
    uint8_t *raw;
    size_t n_raw;
    float *x;
    CSN_TRY(CSN_ARENA_NEW(arena, text.len / 4 * 3, &raw, err));
    if (!csn_base64_decode(text, raw, &n_raw) || n_raw != bytes) {
        return bad(err, skill, what_text, bytes, text.len);
    }
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)n, &x, err));
    for (uint64_t i = 0; i < n; i++) {
        x[i] = csn_f16_to_f32(csn_get16(raw + 2 * i));
        if (!isfinite(x[i])) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header", .tensor = skill,
                            .what = "a value of the skill's selection is not a finite number",
                            .got = CSN_STR("NaN or infinity"));
        }
    }
    *ret = x;
    return CAISSON_OK;
}

/* Rows of the basis: what is said, or what its bytes make. There are no more than `hidden`
 * orthonormal ones. */
static caisson_status find_rank(const csn_arch *arch, csn_str skill, const struct selection *s,
                                uint64_t seen, uint32_t *ret, caisson_error *err) {
    uint32_t hidden = arch->hidden_size;
    uint64_t pad = csn_str_ends(s->basis, CSN_STR("==")) ? 2 : csn_str_ends(s->basis, CSN_STR("="));
    uint64_t bytes = s->basis.len / 4 * 3;
    uint64_t n = (seen >> RANK & 1) != 0 ? s->rank : (bytes - (bytes > pad ? pad : 0)) / 2 / hidden;
    if (n > hidden) {
        return bad(err, skill, "selection.rank is above hidden_size", hidden, n);
    }
    *ret = (uint32_t)n;
    return CAISSON_OK;
}

caisson_status csn_cmf_parse_selection(csn_arena *arena, const csn_arch *arch,
                                       const csn_jval *object, csn_str skill,
                                       const csn_cmf_selection **ret, caisson_error *err) {
    struct selection s = {.err_std = 1.0f};
    uint64_t seen;
    csn_cmf_selection *out;
    CSN_TRY(
        csn_jfields_read(object, fields, CSN_N_FIELDS(fields), "skills.selection", &s, &seen, err));
    CSN_TRY(CSN_ARENA_NEW(arena, 1, &out, err));
    out->is_unit = csn_str_is(s.metric, "mse_unit");
    if (!out->is_unit && !csn_str_is(s.metric, "mse")) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header", .tensor = skill,
                        .what = "unknown selection.metric",
                        CSN_TEXTS(CSN_STR("mse or mse_unit"), s.metric));
    }
    uint64_t n_visits = (uint64_t)arch->n_layers * arch->num_loops;
    if (s.phi_layer >= n_visits) {
        return bad(err, skill, "selection.phi_layer is no layer of the model", n_visits - 1,
                   s.phi_layer);
    }
    out->phi_layer = s.phi_layer;
    uint32_t hidden = arch->hidden_size;
    CSN_TRY(find_rank(arch, skill, &s, seen, &out->rank, err));
    CSN_TRY(decode(arena, skill, s.mean, 1, hidden, "selection.mean has not hidden_size values",
                   "selection.mean is no base64", &out->mean, err));
    CSN_TRY(decode(arena, skill, s.basis, out->rank, hidden,
                   "selection.basis has not rank x hidden_size values",
                   "selection.basis is no base64", &out->basis, err));
    if (s.holdout.len > 0 || s.holdout_n > 0) {
        CSN_TRY(decode(arena, skill, s.holdout, s.holdout_n, hidden,
                       "selection.holdout has not holdout_n x hidden_size values",
                       "selection.holdout is no base64", &out->holdout, err));
        out->n_holdout = s.holdout_n;
    }
    out->err_mean = s.err_mean;
    out->err_std = s.err_std;
    *ret = out;
    return CAISSON_OK;
}
