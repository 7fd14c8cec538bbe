/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are not finite. verify looks at every payload while it hashes it, so the common
 * answer, none, has to be cheap. */
#include "quant/numbers.h"

#include <math.h>
#include <stdio.h>

#include "base/cpu.h"
#include "base/number.h"
#include "quant/numbers_template.h"
#include "quant/q4tp.h"
#include "quant/quant_internal.h"

static const struct csn_number_field fields[] = {[CSN_NUMBER_F16] = {2, 0x7c00u},
                                                 [CSN_NUMBER_BF16] = {2, 0x7f80u},
                                                 [CSN_NUMBER_F32] = {4, 0x7f800000u},
                                                 [CSN_NUMBER_Q4TP] = {4, 0},
                                                 [CSN_NUMBER_Q2TP] = {4, 0}};

/* A ladder rises or falls from rung to rung, and nothing makes an infinity finite again. */
static bool is_finite_ladder(csn_number_kind kind, const uint8_t *p) {
    uint16_t lo = csn_load16(p);
    uint16_t step = csn_load16(p + 2);
    if ((lo & 0x7fffu) < 0x5400u && (step & 0x7fffu) < 0x4000u) {
        return true; /* |lo| < 64, |step| < 2: below 2^126 */
    }
    float t[CSN_Q4TP_RUNGS];
    (kind == CSN_NUMBER_Q2TP ? csn_q2tp_ladder : csn_q4tp_ladder)(lo, step, t);
    return isfinite(t[CSN_Q4TP_RUNGS - 1]);
}

static bool is_finite(csn_number_kind kind, const uint8_t *p) {
    const struct csn_number_field f = fields[kind];
    if (f.exponent == 0) {
        return is_finite_ladder(kind, p);
    }
    return ((f.nbytes == 2 ? csn_load16(p) : csn_load32(p)) & f.exponent) != f.exponent;
}

static bool any(const csn_numbers *s, const uint8_t *p, uint64_t n) {
    const struct csn_number_field *f = &fields[s->kind];
    csn_numbers_side_by_side_fn any_side_by_side = side_by_side;
    csn_numbers_apart_fn any_apart = apart;
#if defined(__x86_64__)
    if ((csn_cpu_flags() & CSN_CPU_AVX2) != 0) {
        any_side_by_side = csn_numbers_side_by_side_avx2;
        any_apart = csn_numbers_apart_avx2;
    }
#endif
    uint64_t i = 0;
    if (s->kind == CSN_NUMBER_F16 && s->stride != f->nbytes) {
        if (any_apart(p, n, s->stride, &i)) {
            return true;
        }
    } else if (f->exponent != 0 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        if (any_side_by_side(f, p, n, &i)) {
            return true;
        }
    }
    for (; i < n; i++) {
        if (!is_finite(s->kind, p + i * s->stride)) {
            return true;
        }
    }
    return false;
}

bool csn_numbers_find(const csn_numbers *s, const uint8_t *bytes, uint64_t begin, uint64_t end,
                      uint64_t *ret_at) {
    const unsigned nbytes = fields[s->kind].nbytes;
    uint64_t k = s->first >= begin ? 0 : (begin - s->first + s->stride - 1) / s->stride;
    uint64_t at = s->first + k * s->stride;
    if (k > 0 && k <= s->n && at - s->stride + 1 == begin && s->kind == CSN_NUMBER_F16 &&
        begin < end && (bytes[0] & 0x7cu) == 0x7cu) { /* half of it lies before */
        *ret_at = begin - 1;
        return true;
    }
    if (k >= s->n || at >= end || end - at < nbytes) {
        return false;
    }
    uint64_t n = (end - at - nbytes) / s->stride + 1;
    n = n < s->n - k ? n : s->n - k;
    const uint8_t *p = bytes + (at - begin);
    if (!any(s, p, n)) {
        return false;
    }
    for (; is_finite(s->kind, p); p += s->stride) {
        at += s->stride;
    }
    *ret_at = at;
    return true;
}

bool csn_numbers_find_any(const csn_matrix *m, const uint8_t *bytes, uint64_t begin, uint64_t end,
                          csn_numbers *ret, uint64_t *ret_at) {
    csn_numbers spans[CSN_NUMBER_SPANS];
    uint32_t n = m->dtype->numbers != NULL ? m->dtype->numbers(m, spans) : 0;
    for (uint32_t i = 0; i < n; i++) { /* in the order of the payload */
        if (csn_numbers_find(&spans[i], bytes, begin, end, ret_at)) {
            *ret = spans[i];
            return true;
        }
    }
    return false;
}

/* ---- the fault ---- */

static float value_of(csn_number_kind kind, const uint8_t *p) {
    return kind == CSN_NUMBER_F32    ? csn_f32_from_bits(csn_load32(p))
           : kind == CSN_NUMBER_BF16 ? csn_bfloat_to_f32(csn_load16(p))
                                     : csn_half_to_f32(csn_load16(p));
}

static void put_value(csn_number_kind kind, const uint8_t *p, char *buf, size_t n) {
    char text[CSN_NUMBER_TEXT];
    char step[CSN_NUMBER_TEXT];
    (void)csn_number_text((double)value_of(kind, p), true, text);
    (void)snprintf(buf, n, "%s", text);
    if (fields[kind].exponent == 0) {
        (void)csn_number_text((double)csn_half_to_f32(csn_load16(p + 2)), true, step);
        (void)snprintf(buf, n, "2^%s in steps of 2^%s", text, step);
    }
}

caisson_status csn_numbers_fail(const csn_numbers *s, uint64_t at, const uint8_t *number,
                                uint64_t file_offset, caisson_error *err) {
    char value[2 * CSN_NUMBER_TEXT + 24];
    char text[160];
    put_value(s->kind, number, value, sizeof(value));
    (void)snprintf(text, sizeof(text), "%s", value);
    if (s->of_row != 0) {
        (void)snprintf(text, sizeof(text), "%s in row %" PRIu64, value,
                       (at - s->first) / s->stride / s->of_row);
    }
    return CSN_FAIL(err, CAISSON_E_PARSE, CSN_RANGE(file_offset, fields[s->kind].nbytes),
                    .what = s->is_value ? "a value is not a finite number"
                                        : "a scale is not a finite number",
                    CSN_TEXTS(CSN_STR("a finite one"), csn_str_from(text)));
}
