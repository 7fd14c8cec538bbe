/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are not finite. verify looks at every payload while it hashes it, so the common
 * answer, none, has to be cheap. */
#include "quant/numbers.h"

#include <math.h>
#include <stdio.h>

#include "base/number.h"
#include "quant/q4tp.h"
#include "quant/quant_internal.h"

/* Of kinds whose bits say it: `exponent` of one number, in as many bytes. */
struct field {
    unsigned nbytes;
    uint32_t exponent;
};
static const struct field fields[] = {[CSN_NUMBER_F16] = {2, 0x7c00u},
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
    const struct field f = fields[kind];
    if (f.exponent == 0) {
        return is_finite_ladder(kind, p);
    }
    return ((f.nbytes == 2 ? csn_load16(p) : csn_load32(p)) & f.exponent) != f.exponent;
}

/* ---- is there any? ---- */

typedef int8_t lanes8 __attribute__((vector_size(16)));
typedef int16_t lanes16 __attribute__((vector_size(16)));
typedef uint64_t lanes64 __attribute__((vector_size(16)));
enum { LANES = sizeof(lanes64), AT_ONCE = 4 }; /* vectors in flight */

static bool is_set(lanes64 x) {
    return (x[0] | x[1]) != 0;
}

static inline lanes16 above16(const uint8_t *p, lanes16 kept, int16_t most) {
    lanes16 x;
    memcpy(&x, p, LANES);
    return (x & kept) > most;
}

static inline lanes8 above8(const uint8_t *p, lanes8 kept, int8_t most) {
    lanes8 x;
    memcpy(&x, p, LANES);
    return (x & kept) > most;
}

/* Numbers side by side, by their upper halves; nbytes a multiple of AT_ONCE * LANES. */
static bool any_side_by_side(const struct field *f, const uint8_t *p, uint64_t nbytes) {
    const int16_t lower = f->nbytes == 2 ? 0x7fff : 0;
    const lanes16 kept = {lower, 0x7fff, lower, 0x7fff, lower, 0x7fff, lower, 0x7fff};
    const int16_t most = (int16_t)((f->nbytes == 2 ? f->exponent : f->exponent >> 16) - 1);
    lanes16 odd0 = {0};
    lanes16 odd1 = {0};
    for (const uint8_t *end = p + nbytes; p < end; p += AT_ONCE * LANES) {
        odd0 |= above16(p, kept, most) | above16(p + 2 * LANES, kept, most);
        odd1 |= above16(p + LANES, kept, most) | above16(p + 3 * LANES, kept, most);
    }
    return is_set((lanes64)(odd0 | odd1));
}

/* f16 among other bytes, by their upper bytes, as many in a vector as fit. No vector reaches behind
 * the n-th number; *ret_done are looked at. */
static bool any_apart(const uint8_t *p, uint64_t n, uint32_t stride, uint64_t *ret_done) {
    const uint64_t each = (LANES - 2) / stride + 1;
    const uint64_t next = each * stride;
    lanes8 kept = {0};
    for (uint64_t k = 0; k < each; k++) {
        kept[k * stride + 1] = 0x7f;
    }
    lanes8 odd0 = {0};
    lanes8 odd1 = {0};
    uint64_t i = 0;
    for (; i + (AT_ONCE + 1) * each < n; i += AT_ONCE * each, p += AT_ONCE * next) {
        odd0 |= above8(p, kept, 0x7b) | above8(p + 2 * next, kept, 0x7b);
        odd1 |= above8(p + next, kept, 0x7b) | above8(p + 3 * next, kept, 0x7b);
    }
    *ret_done = i;
    return is_set((lanes64)(odd0 | odd1));
}

static bool any(const csn_numbers *s, const uint8_t *p, uint64_t n) {
    const struct field *f = &fields[s->kind];
    uint64_t i = 0;
    if (s->kind == CSN_NUMBER_F16 && s->stride != f->nbytes) {
        if (any_apart(p, n, s->stride, &i)) {
            return true;
        }
    } else if (f->exponent != 0 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        uint64_t nbytes = n * f->nbytes / (AT_ONCE * LANES) * (AT_ONCE * LANES);
        if (any_side_by_side(f, p, nbytes)) {
            return true;
        }
        i = nbytes / f->nbytes;
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
