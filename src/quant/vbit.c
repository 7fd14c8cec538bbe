/* SPDX-License-Identifier: Apache-2.0 */
/* vbit (CMF id 8) and vbit_ro (10), facts 4.6 and 4.7: rows of 3, 4, 5, 6 or 8 bits a weight.
 *
 *   vbit     [u8 bits: rows][f16 scale: rows * cols / 32][packed rows]
 *   vbit_ro  the same with u32 offset[rows + 1] before the packed rows
 *
 * A row takes cols * bits / 8 bytes. The payload's length follows from the widths, so they are
 * checked at open. scale = S(absmax(group) / zero), code = round half even(v / scale) + zero. */
#include "quant/vbit.h"

#include "base/alloc.h"
#include "quant/quant_internal.h"

/* Bytes of widths, scales and, with offsets, of the table; false when it overflows. */
static bool prefix_bytes(const csn_shape *shape, bool has_offsets, uint64_t *ret) {
    uint64_t rows = shape->dim[0];
    uint64_t scales;
    uint64_t table = 0;
    return csn_mul(rows, shape->dim[1] / CSN_GROUP, &scales) && csn_mul(scales, 2, &scales) &&
           csn_add(rows, scales, ret) &&
           (!has_offsets || (csn_add(rows, 1, &table) && csn_mul(table, 4, &table))) &&
           csn_add(*ret, table, ret);
}

static bool is_level(uint8_t bits) {
    return bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
}

static caisson_status check(const csn_shape *shape, const uint8_t *data, uint64_t nbytes,
                            bool has_offsets, caisson_error *err) {
    CSN_TRY(csn_shape_need_groups(shape, "vbit needs whole groups of 32", err));
    uint64_t rows = shape->dim[0];
    uint64_t cols = shape->dim[1];
    uint64_t prefix;
    if (!prefix_bytes(shape, has_offsets, &prefix)) {
        return csn_fail_nbytes(err);
    }
    if (prefix > nbytes) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "payload ends inside the widths and scales",
                        CSN_VALUES(prefix, nbytes));
    }
    const uint8_t *offsets = has_offsets ? data + (prefix - 4 * (rows + 1)) : data;
    uint64_t packed = 0;
    if (has_offsets && csn_load32(offsets) != 0) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "first row offset is not 0",
                        CSN_VALUES(0, csn_load32(offsets)));
    }
    for (uint64_t r = 0; r < rows; r++) {
        if (!is_level(data[r])) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "width of a row is not 3, 4, 5, 6 or 8",
                            CSN_VALUES(8, data[r]));
        }
        /* cols < 2^59 because rows * cols / 32 * 2 fitted and rows > 0 */
        if (!csn_add(packed, cols / 8 * data[r], &packed)) {
            return csn_fail_nbytes(err);
        }
        if (has_offsets && csn_load32(offsets + 4 * (r + 1)) != packed) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "row offset disagrees with the widths",
                            CSN_VALUES(packed, csn_load32(offsets + 4 * (r + 1))));
        }
    }
    if (packed != nbytes - prefix) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "payload bytes differ from the rows' widths",
                        CSN_VALUES(packed, nbytes - prefix));
    }
    return CAISSON_OK;
}

static caisson_status vbit_check(const csn_shape *shape, const uint8_t *data, uint64_t nbytes,
                                 caisson_error *err) {
    return check(shape, data, nbytes, false, err);
}

static caisson_status vbit_ro_check(const csn_shape *shape, const uint8_t *data, uint64_t nbytes,
                                    caisson_error *err) {
    return check(shape, data, nbytes, true, err);
}

csn_vbit csn_vbit_parts(const csn_matrix *m) {
    csn_vbit v = {.bits = m->data,
                  .scales = m->data + m->rows,
                  .rows = m->rows,
                  .n_groups = m->cols / CSN_GROUP,
                  .has_offsets = m->dtype == &csn_dtype_vbit_ro};
    v.packed = v.scales + 2 * v.rows * v.n_groups + (v.has_offsets ? 4 * (v.rows + 1) : 0);
    v.packed_bytes = m->nbytes - (uint64_t)(v.packed - m->data);
    return v;
}

/* Sum of n bytes, each below 32: eight at a time in the bytes of a word. */
static uint64_t sum_of_bytes(const uint8_t *p, uint64_t n) {
    enum { AT_ONCE = 7 }; /* words whose bytes add up without a carry: 7 * 31 < 256 */
    uint64_t sum = 0;
    uint64_t i = 0;
    while (n - i >= 8) {
        uint64_t words = (n - i) / 8 < AT_ONCE ? (n - i) / 8 : AT_ONCE;
        uint64_t in_bytes = 0;
        for (uint64_t k = 0; k < words; k++) {
            uint64_t w;
            memcpy(&w, p + i + 8 * k, sizeof(w));
            in_bytes += w;
        }
        i += 8 * words;
        uint64_t pairs = (in_bytes & UINT64_C(0x00ff00ff00ff00ff)) +
                         (in_bytes >> 8 & UINT64_C(0x00ff00ff00ff00ff));
        sum += pairs * UINT64_C(0x0001000100010001) >> 48;
    }
    for (; i < n; i++) {
        sum += p[i];
    }
    return sum;
}

csn_vbit_at csn_vbit_begin(const csn_vbit *v, uint64_t row) {
    return (csn_vbit_at){row, v->has_offsets ? csn_load32(v->packed - 4 * (v->rows + 1 - row))
                                             : 4 * v->n_groups * sum_of_bytes(v->bits, row)};
}

static void vbit_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    if (n == 0) {
        return;
    }
    csn_vbit v = csn_vbit_parts(m);
    uint64_t row = i0 / m->cols;
    csn_vbit_at at = csn_vbit_begin(&v, row);
    uint64_t end = i0 + n;
    for (; i0 < end; row++) {
        uint64_t first = row * m->cols;
        uint64_t stop = first + m->cols < end ? first + m->cols : end;
        const csn_vbit_row r = csn_vbit_walk(&v, &at, row);
        const int zero = csn_vbit_zero(r.bits);
        for (; i0 < stop; i0++) {
            float s = csn_half_to_f32(csn_load16(v.scales + i0 / CSN_GROUP * 2));
            *out++ = (float)((int)csn_vbit_code(r.p, r.bits, i0 - first) - zero) * s;
        }
    }
}

/* ---- writing ---- */

/* 32 codes of `bits` bits, the first in the highest: 4 * bits bytes. */
static void pack(const float code[CSN_GROUP], int zero, unsigned bits, uint8_t *out) {
    unsigned have = 0;
    unsigned v = 0;
    for (int i = 0; i < CSN_GROUP; i++) {
        v = v << bits | (unsigned)((int)code[i] + zero);
        for (have += bits; have >= 8; have -= 8) {
            *out++ = (uint8_t)(v >> (have - 8));
        }
    }
}

struct rows {           /* of the payload that is written */
    uint8_t *bits;      /* [rows] */
    uint64_t *at;       /* [rows + 1] offset of each packed row */
    uint64_t packed_at; /* offset of the packed rows */
};

static void encode_rows(csn_encode_job *job, uint64_t r0, uint64_t r1) {
    const struct rows *rows = job->extra;
    uint64_t n_groups = job->cols / CSN_GROUP;
    for (uint64_t r = r0; r < r1; r++) {
        const float *x = job->x + r * job->cols;
        unsigned bits = rows->bits[r];
        int zero = csn_vbit_zero(bits);
        csn_codes codes = {-zero, zero + 1};
        uint8_t *scales = job->out + job->rows + 2 * r * n_groups;
        uint8_t *out = job->out + rows->packed_at + rows->at[r];
        for (uint64_t g = 0; g < n_groups; g++, x += CSN_GROUP, out += 4 * bits) {
            float code[CSN_GROUP];
            uint16_t h;
            float s = csn_scale_rule(csn_absmax(x, CSN_GROUP) / (float)zero, &h);
            (void)csn_codes_measure(x, codes, s, code);
            if (job->options->encoder == CSN_ENCODER_SEARCH) {
                csn_codes_search(x, codes, &h, code);
            }
            csn_note_inf(job, h);
            csn_store16(scales + 2 * g, h);
            pack(code, zero, bits, out);
        }
    }
}

/* Widths, and from them where each row goes and how long the payload is. */
static caisson_status lay_out(csn_encode_job *job, const csn_shape *shape, csn_pool *pool,
                              struct rows *rows, csn_buf *out, caisson_error *err) {
    const csn_encode_options *o = job->options;
    bool has_offsets = job->dtype == &csn_dtype_vbit_ro;
    CSN_TRY(CSN_NEW((size_t)job->rows + 1, &rows->bits, err));
    CSN_TRY(CSN_NEW((size_t)job->rows + 1, &rows->at, err));
    float *level;
    CSN_TRY(CSN_NEW((size_t)job->rows + 1, &level, err));
    csn_vbit_levels(job->x, shape, pool, level);
    csn_vbit_widths(level, job->rows, csn_vbit_mean_bits(o), o->bits_bias, rows->bits);
    csn_free(level);
    for (uint64_t r = 0; r < job->rows; r++) {
        rows->at[r + 1] = rows->at[r] + job->cols / 8 * rows->bits[r];
    }
    if (!prefix_bytes(shape, has_offsets, &rows->packed_at)) {
        return csn_fail_nbytes(err);
    }
    CSN_TRY(csn_encode_room(job, rows->packed_at + rows->at[job->rows], out, err));
    memcpy(job->out, rows->bits, (size_t)job->rows);
    for (uint64_t r = 0; has_offsets && r <= job->rows; r++) {
        csn_store32(job->out + rows->packed_at - 4 * (job->rows + 1 - r), (uint32_t)rows->at[r]);
    }
    return CAISSON_OK;
}

static caisson_status encode(const csn_dtype *d, const float *x, const csn_shape *shape,
                             const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                             caisson_error *err) {
    csn_encode_job job;
    struct rows rows = {0};
    uint64_t ignored;
    CSN_TRY(d->about_nbytes(shape, options, &ignored, err)); /* the shape can have this dtype */
    CSN_TRY(csn_encode_begin(d, x, shape, options, out, &job, err));
    job.extra = &rows;
    caisson_status status = lay_out(&job, shape, pool, &rows, out, err);
    if (status == CAISSON_OK) {
        csn_encode_split(pool, &job, encode_rows, job.rows);
        status = csn_encode_end(&job, err);
    }
    csn_free(rows.bits);
    csn_free(rows.at);
    return status;
}

static caisson_status about(const csn_shape *shape, const csn_encode_options *o, bool has_offsets,
                            uint64_t *ret, caisson_error *err) {
    uint64_t n;
    uint64_t prefix;
    CSN_TRY(csn_shape_need_groups(shape, "vbit needs whole groups of 32", err));
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    if (n > INT64_MAX / 16 || !prefix_bytes(shape, has_offsets, &prefix)) {
        return csn_fail_nbytes(err);
    }
    if (has_offsets && n > UINT32_MAX) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "vbit_ro has row offsets of 32 bits",
                        CSN_VALUES(UINT32_MAX, n));
    }
    double mean = (double)csn_vbit_mean_bits(o) + (double)o->bits_bias;
    mean = mean < 3 ? 3 : mean > 8 ? 8 : mean;
    *ret = prefix + (uint64_t)((double)n / 8 * mean);
    return CAISSON_OK;
}

static caisson_status vbit_about(const csn_shape *shape, const csn_encode_options *options,
                                 uint64_t *ret, caisson_error *err) {
    return about(shape, options, false, ret, err);
}

static caisson_status vbit_ro_about(const csn_shape *shape, const csn_encode_options *options,
                                    uint64_t *ret, caisson_error *err) {
    return about(shape, options, true, ret, err);
}

static caisson_status vbit_encode(const float *x, const csn_shape *shape,
                                  const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                  caisson_error *err) {
    return encode(&csn_dtype_vbit, x, shape, options, pool, out, err);
}

static caisson_status vbit_ro_encode(const float *x, const csn_shape *shape,
                                     const csn_encode_options *options, csn_pool *pool,
                                     csn_buf *out, caisson_error *err) {
    return encode(&csn_dtype_vbit_ro, x, shape, options, pool, out, err);
}

static uint64_t vbit_check_bytes(const csn_shape *shape, uint64_t nbytes) {
    return shape->n_dims == 2 && shape->dim[0] < nbytes ? shape->dim[0] : nbytes;
}

static uint64_t vbit_ro_check_bytes(const csn_shape *shape, uint64_t nbytes) {
    uint64_t prefix;
    return shape->n_dims == 2 && prefix_bytes(shape, true, &prefix) && prefix < nbytes ? prefix
                                                                                       : nbytes;
}

static uint32_t vbit_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = csn_group_scales(m, m->rows, 2);
    return 1;
}

const csn_dtype csn_dtype_vbit = {
    .name = "vbit",
    .cmf_id = 8,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .check = vbit_check,
    .check_bytes = vbit_check_bytes,
    .decode = vbit_decode,
    .numbers = vbit_numbers,
    .encode = vbit_encode,
    .about_nbytes = vbit_about,
};

const csn_dtype csn_dtype_vbit_ro = {
    .name = "vbit_ro",
    .cmf_id = 10,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .check = vbit_ro_check,
    .check_bytes = vbit_ro_check_bytes,
    .decode = vbit_decode,
    .numbers = vbit_numbers,
    .encode = vbit_ro_encode,
    .about_nbytes = vbit_ro_about,
};
