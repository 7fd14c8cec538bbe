/* SPDX-License-Identifier: Apache-2.0 */
/* q1s (CMF id 13, facts 4.9), only [rows, cols] with cols % 32 == 0: the tiles of q1, then
 *
 *   [u32 count][count x {u32 flat index, f16 value}]    rising indices
 *
 * The outliers take no part in their groups' scales. The reference carries the error of a sign
 * along the row, which keeps sums and makes each weight's error larger; the search does not. */
#include "quant/q1_internal.h"

#define USUAL_KEEP 0.01f

static caisson_status tiles_bytes(const csn_shape *shape, uint64_t *ret, caisson_error *err) {
    CSN_TRY(csn_shape_need_groups(shape, "q1s needs whole groups of 32", err));
    return csn_dtype_q1.nbytes(shape, ret, err);
}

static caisson_status q1s_check(const csn_shape *shape, const uint8_t *overlay, uint64_t nbytes,
                                caisson_error *err) {
    uint64_t tiles;
    uint64_t n_weights = shape->dim[0] * shape->dim[1]; /* fits: q1's size does */
    CSN_TRY(tiles_bytes(shape, &tiles, err));
    if (nbytes < tiles || nbytes - tiles < 4) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "payload ends before the count of outliers",
                        CSN_VALUES(tiles + 4, nbytes));
    }
    uint64_t n = csn_load32(overlay);
    if (nbytes - tiles - 4 != n * CSN_Q1S_OUTLIER) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "payload bytes differ from its outliers'",
                        CSN_VALUES(tiles + 4 + n * CSN_Q1S_OUTLIER, nbytes));
    }
    uint64_t least = 0;
    for (uint64_t k = 0; k < n; k++) {
        uint64_t i = csn_q1s_index(overlay + 4 + k * CSN_Q1S_OUTLIER);
        if (i >= n_weights) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "index of an outlier leaves the tensor",
                            CSN_VALUES(n_weights, i));
        }
        if (i < least) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "indices of outliers do not rise",
                            CSN_VALUES(least, i));
        }
        least = i + 1;
    }
    return CAISSON_OK;
}

static uint64_t q1s_check_from(const csn_shape *shape, uint64_t nbytes) {
    uint64_t tiles;
    caisson_error e;
    return tiles_bytes(shape, &tiles, &e) == CAISSON_OK && tiles < nbytes ? tiles : nbytes;
}

static uint64_t count(const csn_matrix *m) {
    return (m->nbytes - m->rows * m->cols / CSN_GROUP * CSN_Q1_TILE - 4) / CSN_Q1S_OUTLIER;
}

csn_q1s_deltas csn_q1s_unpacked(const csn_matrix *m) {
    const uint32_t *first = m->unpacked;
    const float *delta = (const float *)(first + m->rows + 1);
    return (csn_q1s_deltas){first, delta, (const uint16_t *)(delta + count(m) + CSN_Q1S_BEHIND)};
}

/* The first entry of n whose index is i or more. */
static uint64_t find(const uint8_t *entries, uint64_t n, uint64_t i) {
    uint64_t first = 0;
    while (n > 0) {
        uint64_t half = n / 2;
        if (csn_q1s_index(entries + (first + half) * CSN_Q1S_OUTLIER) < i) {
            first += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return first;
}

csn_outliers csn_q1s_outliers(const csn_matrix *m, uint64_t i0, uint64_t i1) {
    uint64_t tiles = m->rows * m->cols / CSN_GROUP * CSN_Q1_TILE;
    const uint8_t *entries = m->data + tiles + 4;
    uint64_t n = count(m);
    if (m->unpacked != NULL) { /* rows are known */
        const uint32_t *row = csn_q1s_unpacked(m).first;
        const uint32_t k = row[i0 / m->cols];
        n = row[(i1 + m->cols - 1) / m->cols] - k;
        entries += k * (uint64_t)CSN_Q1S_OUTLIER;
    }
    uint64_t first = find(entries, n, i0);
    entries += first * CSN_Q1S_OUTLIER;
    return (csn_outliers){entries, find(entries, n - first, i1)};
}

static void q1s_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    csn_q1_decode(m, i0, n, out);
    csn_outliers o = csn_q1s_outliers(m, i0, i0 + n);
    for (; o.n > 0; o.n--, o.p += CSN_Q1S_OUTLIER) {
        uint64_t k = csn_q1s_index(o.p) - i0;
        if (k < n) { /* else somebody has changed the file under its mapping */
            out[k] = csn_half_to_f32(csn_load16(o.p + 4));
        }
    }
}

/* As many bytes for an outlier as in the payload, and less than a tile for a row: it fits. */
static uint64_t q1s_unpacked_nbytes(const csn_matrix *m) {
    const uint64_t n = count(m);
    return n == 0 || m->cols > CSN_Q1S_COLS
               ? 0
               : (m->rows + 1) * sizeof(uint32_t) +
                     (n + CSN_Q1S_BEHIND) * (sizeof(float) + sizeof(uint16_t));
}

static void q1s_unpack(const csn_matrix *m, void *out) {
    const uint64_t n = count(m);
    const uint8_t *entries = m->data + m->nbytes - n * CSN_Q1S_OUTLIER;
    uint32_t *first = out;
    float *delta = (float *)(first + m->rows + 1);
    uint16_t *col = (uint16_t *)(delta + n + CSN_Q1S_BEHIND);
    uint64_t r = 0;
    memset(out, 0, q1s_unpacked_nbytes(m));
    for (uint64_t k = 0; k < n; k++) {
        const uint8_t *p = entries + k * CSN_Q1S_OUTLIER;
        const uint64_t i = csn_q1s_index(p);
        if (i >= m->rows * m->cols) { /* the bytes are not those that were checked */
            break;
        }
        const uint8_t *tile = m->data + i / CSN_GROUP * CSN_Q1_TILE;
        const float weight = csn_q1_bit(tile, (unsigned)(i % CSN_GROUP)) ? 1.0f : -1.0f;
        for (; r <= i / m->cols; r++) {
            first[r] = (uint32_t)k;
        }
        delta[k] = csn_half_to_f32(csn_load16(p + 4)) - weight * csn_half_to_f32(csn_load16(tile));
        col[k] = (uint16_t)(i % m->cols);
    }
    for (; r <= m->rows; r++) {
        first[r] = (uint32_t)n;
    }
}

/* Scale of a group: the weighted mean of the magnitudes that are no outliers. */
static float group_scale(const csn_encode_job *job, const float *x, uint64_t col, uint32_t outliers,
                         uint16_t *ret) {
    float sum = 0;
    float n = 0;
    for (unsigned k = 0; k < CSN_GROUP; k++) {
        if ((outliers >> k & 1u) == 0) {
            float d = csn_column_weight(job->options, col + k);
            sum += csn_magnitude(x[k]) * d;
            n += d;
        }
    }
    return csn_scale_rule(n > 0 ? sum / n : 0, ret);
}

static void encode_row(csn_encode_job *job, uint64_t row) {
    const csn_choice *choice = job->extra;
    const bool carries = job->options->encoder == CSN_ENCODER_REFERENCE;
    uint64_t gpr = job->cols / CSN_GROUP;
    uint64_t n_ties = 0;
    uint8_t *entry =
        job->out + job->rows * gpr * CSN_Q1_TILE + 4 + choice->first[row] * CSN_Q1S_OUTLIER;
    float carry = 0;
    for (uint64_t g = 0; g < gpr; g++) {
        const float *x = job->x + row * job->cols + g * CSN_GROUP;
        uint8_t *tile = job->out + (row * gpr + g) * CSN_Q1_TILE;
        uint32_t outliers = csn_choice_of_group(job, choice, row, g, &n_ties);
        uint32_t signs = 0;
        uint16_t h;
        float s = group_scale(job, x, g * CSN_GROUP, outliers, &h);
        csn_note_inf(job, h);
        for (unsigned k = 0; k < CSN_GROUP; k++) {
            if ((outliers >> k & 1u) != 0) {
                uint16_t value = csn_half_from_f32(x[k]);
                csn_note_inf(job, value);
                csn_store32(entry, (uint32_t)(row * job->cols + g * CSN_GROUP + k));
                csn_store16(entry + 4, value);
                entry += CSN_Q1S_OUTLIER;
                signs |= (uint32_t)(x[k] >= 0) << k;
                continue;
            }
            float v = x[k] + carry;
            bool is_positive = v >= 0;
            signs |= (uint32_t)is_positive << k;
            carry = carries ? v - (is_positive ? s : -s) : 0;
        }
        csn_store16(tile, h);
        csn_store32(tile + 2, signs);
    }
}

static void encode_rows(csn_encode_job *job, uint64_t r0, uint64_t r1) {
    for (uint64_t r = r0; r < r1; r++) {
        encode_row(job, r);
    }
}

/* Indices and the count are u32. */
static caisson_status need_few(const csn_shape *shape, caisson_error *err) {
    uint64_t n = shape->dim[0] * shape->dim[1];
    return n <= UINT32_MAX ? CAISSON_OK
                           : CSN_FAIL(err, CAISSON_E_BOUNDS,
                                      .what = "more weights than an index of q1s can say",
                                      CSN_VALUES(UINT32_MAX, n));
}

static caisson_status q1s_about(const csn_shape *shape, const csn_encode_options *options,
                                uint64_t *ret, caisson_error *err) {
    uint64_t tiles;
    CSN_TRY(tiles_bytes(shape, &tiles, err));
    CSN_TRY(need_few(shape, err));
    uint64_t n = shape->dim[0] * shape->dim[1];
    *ret = tiles + 4 + CSN_Q1S_OUTLIER * csn_count_outliers(options, USUAL_KEEP, n);
    return CAISSON_OK;
}

static caisson_status q1s_encode(const float *x, const csn_shape *shape,
                                 const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                 caisson_error *err) {
    uint64_t tiles;
    csn_encode_job job;
    csn_choice choice;
    CSN_TRY(tiles_bytes(shape, &tiles, err));
    CSN_TRY(need_few(shape, err));
    CSN_TRY(csn_encode_begin(&csn_dtype_q1s, x, shape, options, out, &job, err));
    CSN_TRY(csn_choice_make(&job, csn_count_outliers(options, USUAL_KEEP, job.n),
                            options->col_rms == NULL, pool, &choice, err));
    uint64_t n = choice.first[job.rows];
    caisson_status status = csn_encode_room(&job, tiles + 4 + n * CSN_Q1S_OUTLIER, out, err);
    if (status == CAISSON_OK) {
        csn_store32(job.out + tiles, (uint32_t)n);
        job.extra = &choice;
        csn_encode_split(pool, &job, encode_rows, job.rows);
        status = csn_encode_end(&job, err);
    }
    csn_choice_free(&choice);
    return status;
}

static uint32_t q1s_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = csn_group_scales(m, 0, CSN_Q1_TILE);
    uint64_t entries = ret[0].n * CSN_Q1_TILE + 4;
    uint64_t n = (m->nbytes - entries) / CSN_Q1S_OUTLIER;
    ret[1] = (csn_numbers){CSN_NUMBER_F16, true, entries + 4, n, CSN_Q1S_OUTLIER, 0};
    return 2;
}

const csn_dtype csn_dtype_q1s = {
    .name = "q1s",
    .cmf_id = 13,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .check = q1s_check,
    .check_from = q1s_check_from,
    .decode = q1s_decode,
    .numbers = q1s_numbers,
    .unpacked_nbytes = q1s_unpacked_nbytes,
    .unpack = q1s_unpack,
    .encode = q1s_encode,
    .about_nbytes = q1s_about,
};
