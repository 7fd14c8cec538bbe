/* SPDX-License-Identifier: Apache-2.0 */
/* q4tp (CMF id 15, facts 4.11), only [rows, cols] with cols % 32 == 0, gpr = cols / 32:
 *
 *   [nibbles: rows * gpr * 16]        as in q4_tiled
 *   [params:  rows x (f16 lo, f16 step)]
 *   [codes:   rows x ceil(5 * gpr / 8)]   5 bits a group, LSB first, a row starts on a byte
 *
 * A group's scale is rung `code` of its row's ladder of 32. The encoder fixes lo and step in f16
 * before it chooses codes, tries the rungs around the nominal one, and quantises against the
 * ladder's value: what it measures is what a reader gets. The reference tries four rungs, the
 * search all that can be good; lo and step are the same. */
#include "quant/q4tp.h"

#include "quant/exp2_half.h"
#include "quant/quant_internal.h"

enum { GROUP_BYTES = 16 };

caisson_status csn_ladder_nbytes(const csn_shape *shape, const char *what, uint64_t group_bytes,
                                 uint64_t *ret, caisson_error *err) {
    CSN_TRY(csn_shape_need_groups(shape, what, err));
    uint64_t rows = shape->dim[0];
    uint64_t gpr = shape->dim[1] / CSN_GROUP;
    uint64_t row_bytes; /* gpr <= 2^59: group_bytes * gpr + 4 + 5 * gpr / 8 cannot wrap before it */
    return csn_mul(gpr, group_bytes, &row_bytes) &&
                   csn_add(row_bytes, 4 + gpr / 8 * 5, &row_bytes) &&
                   csn_add(row_bytes, (gpr % 8 * 5 + 7) / 8, &row_bytes) &&
                   csn_mul(rows, row_bytes, ret)
               ? CAISSON_OK
               : csn_fail_nbytes(err);
}

uint32_t csn_ladder_row_parts(uint64_t cols, uint64_t group_bytes,
                              csn_row_part ret[CSN_ROW_PARTS]) {
    uint64_t gpr = cols / CSN_GROUP;
    ret[0] = (csn_row_part){gpr * group_bytes, false};
    ret[1] = (csn_row_part){4, false};
    ret[2] = (csn_row_part){csn_q4tp_code_bytes(gpr), false};
    return 3;
}

static caisson_status q4tp_nbytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    return csn_ladder_nbytes(shape, "q4tp needs whole groups of 32", GROUP_BYTES, ret, err);
}

void csn_q4tp_ladder(uint16_t lo, uint16_t step, float t[CSN_Q4TP_RUNGS]) {
    float ratio = csn_exp2_half(step);
    t[0] = csn_exp2_half(lo);
    for (int c = 1; c < CSN_Q4TP_RUNGS; c++) {
        t[c] = t[c - 1] * ratio;
    }
}

uint64_t csn_ladder_unpacked_nbytes(const csn_matrix *m) {
    return m->rows * csn_ladder_stride(m->cols) * sizeof(float); /* less than nbytes: it fits */
}

void csn_ladder_scales(const csn_matrix *m, uint64_t group_bytes, csn_ladder_fn ladder,
                       float factor, float *out) {
    const uint64_t gpr = m->cols / CSN_GROUP;
    const uint64_t stride = csn_ladder_stride(m->cols);
    const uint8_t *params = m->data + m->rows * gpr * group_bytes;
    const uint8_t *codes = params + 4 * m->rows;
    for (uint64_t r = 0; r < m->rows; r++) {
        float t[CSN_Q4TP_RUNGS];
        ladder(csn_load16(params + 4 * r), csn_load16(params + 4 * r + 2), t);
        for (int c = 0; c < CSN_Q4TP_RUNGS; c++) {
            t[c] *= factor;
        }
        out[stride - 1] = 0.0f;
        for (uint64_t g = 0; g < gpr; g++) {
            out[g] = t[csn_q4tp_code(codes, g)];
        }
        codes += csn_q4tp_code_bytes(gpr);
        out += stride;
    }
}

static void q4tp_unpack(const csn_matrix *m, void *out) {
    csn_ladder_scales(m, 16, csn_q4tp_ladder, 1.0f, out);
}

static void q4tp_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    uint64_t gpr = m->cols / CSN_GROUP;
    const uint8_t *params = m->data + m->rows * gpr * 16;
    const uint8_t *codes = params + 4 * m->rows;
    float t[CSN_Q4TP_RUNGS];
    uint64_t t_row = UINT64_MAX;
    uint64_t end = i0 + n;
    while (i0 < end) {
        uint64_t g = i0 / CSN_GROUP;
        uint64_t row = g / gpr;
        uint64_t stop = (g + 1) * CSN_GROUP < end ? (g + 1) * CSN_GROUP : end;
        if (row != t_row) {
            csn_q4tp_ladder(csn_load16(params + 4 * row), csn_load16(params + 4 * row + 2), t);
            t_row = row;
        }
        float s = t[csn_q4tp_code(codes + row * csn_q4tp_code_bytes(gpr), g - row * gpr)];
        for (; i0 < stop; i0++) {
            *out++ = csn_nibble(m->data + 16 * g, (unsigned)(i0 % CSN_GROUP)) * s;
        }
    }
}

/* lo and step of a row: lo the smallest logarithm of a live group's scale, step the smallest f16
 * whose 31 steps reach the largest. */
static void choose_params(float lo, float hi, uint16_t *ret_lo, uint16_t *ret_step) {
    uint16_t lo16 = csn_half_from_f32(lo);
    float lo_r = csn_half_to_f32(lo16);
    float range = hi - lo_r > 0 ? hi - lo_r : 0;
    uint16_t step16 = csn_half_from_f32(range / 31.0f);
    for (int i = 0; i < 64; i++) {
        float step = csn_half_to_f32(step16);
        if (step > 0 && lo_r + 31.0f * step >= hi) {
            break;
        }
        step16++;
    }
    *ret_lo = lo16;
    *ret_step = step16;
}

static float group_error(const float *x, float s) {
    float inv = 1.0f / s;
    float sum = 0;
    for (int i = 0; i < CSN_GROUP; i++) {
        float q = csn_round_even(csn_clamp(x[i] * inv, -8.0f, 7.0f));
        float d = x[i] - q * s;
        sum += d * d;
    }
    return sum;
}

/* The reference's rung for one live group: the nominal one, or a neighbour with a strictly smaller
 * error. */
static int choose_code(const float *x, float lg, float lo, float step, const float *t) {
    int nominal = (int)csn_round_even(csn_clamp((lg - lo) / step, 0.0f, 31.0f));
    int first = nominal - 2 < 0 ? 0 : nominal - 2;
    int last = nominal + 1 > 31 ? 31 : nominal + 1;
    int best = first;
    float best_error = group_error(x, t[first]);
    for (int c = first + 1; c <= last; c++) {
        float e = group_error(x, t[c]);
        if (e < best_error) {
            best = c;
            best_error = e;
        }
    }
    return best;
}

/* The best of the rungs that put the largest weight of a group near an end of the codes; `code`
 * unless one is better. */
static int search_code(const float *x, float absmax, const float *t, int code) {
    float best_error = csn_codes_error(x, csn_nibble_codes, t[code]) * CSN_LESS;
    for (int c = 0; c < CSN_Q4TP_RUNGS; c++) {
        if (t[c] * 5.8f > absmax || t[c] * 9.2f < absmax) {
            continue;
        }
        float e = csn_codes_error(x, csn_nibble_codes, t[c]);
        if (e < best_error) {
            code = c;
            best_error = e;
        }
    }
    return code;
}

static void encode_group(const float *x, float s, uint8_t out[16]) {
    float inv = 1.0f / s;
    for (int k = 0; k < 16; k++) {
        unsigned low = (unsigned)(csn_round_even(csn_clamp(x[2 * k] * inv, -8.0f, 7.0f)) + 8.0f);
        unsigned high =
            (unsigned)(csn_round_even(csn_clamp(x[2 * k + 1] * inv, -8.0f, 7.0f)) + 8.0f);
        out[k] = (uint8_t)(low | high << 4);
    }
}

static void encode_row(csn_encode_job *job, uint64_t row) {
    uint64_t gpr = job->cols / CSN_GROUP;
    const float *x = job->x + row * job->cols;
    uint8_t *nibbles = job->out + row * gpr * 16;
    uint8_t *params = job->out + job->rows * gpr * 16 + 4 * row;
    uint8_t *codes = job->out + job->rows * (gpr * 16 + 4) + row * csn_q4tp_code_bytes(gpr);
    float lo = -14.0f; /* log2 of the scale of an all-zero group */
    float hi = -14.0f;
    bool has_live = false;
    for (uint64_t g = 0; g < gpr; g++) {
        float a = csn_absmax(x + g * CSN_GROUP, CSN_GROUP);
        if (a == 0) {
            continue;
        }
        uint16_t h;
        (void)csn_scale_rule(a / 7.0f, &h);
        csn_note_inf(job, h);
        float lg = (h & 0x7c00u) == 0x7c00u ? 16.0f : csn_log2_half(h);
        lo = !has_live || lg < lo ? lg : lo;
        hi = !has_live || lg > hi ? lg : hi;
        has_live = true;
    }
    uint16_t lo16;
    uint16_t step16;
    choose_params(lo, hi, &lo16, &step16);
    csn_store16(params, lo16);
    csn_store16(params + 2, step16);
    float t[CSN_Q4TP_RUNGS];
    csn_q4tp_ladder(lo16, step16, t);
    memset(codes, 0, csn_q4tp_code_bytes(gpr));
    for (uint64_t g = 0; g < gpr; g++) {
        const float *xg = x + g * CSN_GROUP;
        float a = csn_absmax(xg, CSN_GROUP);
        int code = 0;
        if (a != 0) {
            uint16_t h;
            (void)csn_scale_rule(a / 7.0f, &h);
            float lg = (h & 0x7c00u) == 0x7c00u ? 16.0f : csn_log2_half(h);
            code = choose_code(xg, lg, csn_half_to_f32(lo16), csn_half_to_f32(step16), t);
            if (job->options->encoder == CSN_ENCODER_SEARCH) {
                code = search_code(xg, a, t, code);
            }
        }
        uint64_t bit = 5 * g;
        unsigned v = (unsigned)code << (bit % 8);
        codes[bit / 8] |= (uint8_t)v;
        if (v > 255) {
            codes[bit / 8 + 1] |= (uint8_t)(v >> 8);
        }
        encode_group(xg, t[code], nibbles + 16 * g);
    }
}

static void encode_rows(csn_encode_job *job, uint64_t r0, uint64_t r1) {
    for (uint64_t r = r0; r < r1; r++) {
        encode_row(job, r);
    }
}

static caisson_status q4tp_encode(const float *x, const csn_shape *shape,
                                  const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                  caisson_error *err) {
    CSN_TRY(csn_shape_need_groups(shape, "q4tp needs whole groups of 32", err));
    csn_encode_job job;
    CSN_TRY(csn_encode_begin(&csn_dtype_q4tp, x, shape, options, out, &job, err));
    csn_encode_split(pool, &job, encode_rows, job.rows);
    return csn_encode_end(&job, err);
}

static uint32_t q4tp_row_parts(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]) {
    return csn_ladder_row_parts(cols, GROUP_BYTES, ret);
}

static uint32_t q4tp_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    uint64_t params = m->rows * (m->cols / CSN_GROUP) * GROUP_BYTES;
    ret[0] = (csn_numbers){CSN_NUMBER_Q4TP, false, params, m->rows, 4, 1};
    return 1;
}

const csn_dtype csn_dtype_q4tp = {
    .name = "q4tp",
    .cmf_id = 15,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .bytes_of_32 = 16,
    .nbytes = q4tp_nbytes,
    .decode = q4tp_decode,
    .unpacked_nbytes = csn_ladder_unpacked_nbytes,
    .unpack = q4tp_unpack,
    .row_parts = q4tp_row_parts,
    .numbers = q4tp_numbers,
    .encode = q4tp_encode,
};
