/* SPDX-License-Identifier: Apache-2.0 */
/* q1t (CMF id 14, facts 4.10), only [rows, cols] with cols % 32 == 0 and cols <= 65536: three
 * values a weight, and outliers row by row,
 *
 *   [rows * cols / 32 x {f16 scale, 7 bytes}][u32 row_ptr[rows + 1]][entries {u16 col, f16 value}]
 *
 * Weight k of a group is digit k % 5, base 3, of byte k / 5: 0 is 0, 1 is +scale, 2 is -scale.
 * Entries of row r are row_ptr[r] to row_ptr[r + 1], their columns rise.
 *
 * For a scale the best weights are those with magnitudes of at least half of it, so the best
 * weights are always the largest ones of a group: the search tries each number of them with its own
 * scale of least squares. The reference tries two thresholds, then stretches the scales of a row.
 */
#include <math.h>
#include <stdlib.h>

#include "quant/q1_internal.h"

enum { MOST_COLS = 1 << 16 };

/* Bytes of the tiles, and of tiles and row pointers. */
static caisson_status head_bytes(const csn_shape *shape, uint64_t *ret_tiles, uint64_t *ret,
                                 caisson_error *err) {
    CSN_TRY(csn_shape_need_groups(shape, "q1t needs whole groups of 32", err));
    if (shape->dim[1] > MOST_COLS) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "more columns than a u16 of q1t can say",
                        CSN_VALUES(MOST_COLS, shape->dim[1]));
    }
    uint64_t tiles = 0;
    uint64_t pointers;
    if (!csn_mul(shape->dim[0], shape->dim[1] / CSN_GROUP * CSN_Q1T_TILE, &tiles) ||
        !csn_add(shape->dim[0], 1, &pointers) || !csn_mul(pointers, 4, &pointers) ||
        !csn_add(tiles, pointers, ret)) {
        return csn_fail_nbytes(err);
    }
    *ret_tiles = tiles;
    return CAISSON_OK;
}

static caisson_status check_row(const uint8_t *entries, uint64_t n, uint64_t cols,
                                caisson_error *err) {
    uint64_t least = 0;
    for (uint64_t k = 0; k < n; k++) {
        uint64_t col = csn_q1t_column(entries + k * CSN_Q1T_OUTLIER);
        if (col >= cols) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "column of an outlier leaves its row",
                            CSN_VALUES(cols, col));
        }
        if (col < least) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS,
                            .what = "columns of a row's outliers do not rise",
                            CSN_VALUES(least, col));
        }
        least = col + 1;
    }
    return CAISSON_OK;
}

static caisson_status q1t_check(const csn_shape *shape, const uint8_t *overlay, uint64_t nbytes,
                                caisson_error *err) {
    uint64_t tiles = 0;
    uint64_t head = 0;
    CSN_TRY(head_bytes(shape, &tiles, &head, err));
    if (nbytes < head) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "payload ends before the row pointers do",
                        CSN_VALUES(head, nbytes));
    }
    const uint64_t rows = shape->dim[0];
    const uint64_t room = (nbytes - head) / CSN_Q1T_OUTLIER;
    const uint8_t *entries = overlay + (head - tiles);
    uint64_t at = csn_load32(overlay);
    if (at != 0) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "first row pointer is not 0",
                        CSN_VALUES(0, at));
    }
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t next = csn_load32(overlay + 4 * (r + 1));
        if (next < at) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "row pointers run backwards",
                            CSN_VALUES(at, next));
        }
        if (next > room) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "row pointer leaves the entries",
                            CSN_VALUES(room, next));
        }
        CSN_TRY(check_row(entries + at * CSN_Q1T_OUTLIER, next - at, shape->dim[1], err));
        at = next;
    }
    if (nbytes - head != at * CSN_Q1T_OUTLIER) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "payload bytes differ from its outliers'",
                        CSN_VALUES(head + at * CSN_Q1T_OUTLIER, nbytes));
    }
    return CAISSON_OK;
}

static uint64_t q1t_check_from(const csn_shape *shape, uint64_t nbytes) {
    uint64_t tiles = 0;
    uint64_t head = 0;
    caisson_error e;
    return head_bytes(shape, &tiles, &head, &e) == CAISSON_OK && tiles < nbytes ? tiles : nbytes;
}

/* The first of n entries of a row whose column is c or more. */
static uint64_t find(const uint8_t *entries, uint64_t n, uint64_t c) {
    uint64_t first = 0;
    while (n > 0) {
        uint64_t half = n / 2;
        if (csn_q1t_column(entries + (first + half) * CSN_Q1T_OUTLIER) < c) {
            first += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return first;
}

bool csn_q1t_has_outliers(const csn_matrix *m, uint64_t r0, uint64_t r1) {
    const uint8_t *pointers = m->data + m->rows * (m->cols / CSN_GROUP) * CSN_Q1T_TILE;
    return csn_load32(pointers + 4 * r0) != csn_load32(pointers + 4 * r1);
}

csn_outliers csn_q1t_outliers(const csn_matrix *m, uint64_t row, uint64_t c0, uint64_t c1) {
    const uint8_t *pointers = m->data + m->rows * (m->cols / CSN_GROUP) * CSN_Q1T_TILE;
    const uint8_t *entries = pointers + 4 * (m->rows + 1);
    const uint64_t all = (m->nbytes - (uint64_t)(entries - m->data)) / CSN_Q1T_OUTLIER;
    uint64_t at = csn_load32(pointers + 4 * row);
    uint64_t next = csn_load32(pointers + 4 * (row + 1));
    if (at > next || next > all) { /* somebody has changed the file under its mapping */
        at = next = 0;
    }
    uint64_t n = next - at;
    uint64_t first = c0 == 0 ? 0 : find(entries + at * CSN_Q1T_OUTLIER, n, c0);
    entries += (at + first) * CSN_Q1T_OUTLIER;
    n -= first;
    return (csn_outliers){entries, c1 == m->cols ? n : find(entries, n, c1)};
}

/* The digits of a byte, the last first: what csn_q1t_weight says, step by step. */
static void decode_tile(const uint8_t *tile, float out[CSN_GROUP]) {
    float s = csn_half_to_f32(csn_load16(tile));
    const float value[3] = {0, s, -s};
    float all[35];
    for (unsigned j = 0; j < 7; j++) {
        uint32_t fraction = tile[2 + j] * 270u & 0xffffu;
        for (unsigned k = 5; k-- > 0;) {
            fraction *= 3;
            all[5 * j + k] = value[fraction >> 16];
            fraction &= 0xffffu;
        }
    }
    memcpy(out, all, CSN_GROUP * sizeof(float));
}

static void decode_tiles(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    uint64_t end = i0 + n;
    while (i0 < end) {
        uint64_t k = i0 % CSN_GROUP;
        uint64_t part = CSN_GROUP - k < end - i0 ? CSN_GROUP - k : end - i0;
        const uint8_t *tile = m->data + i0 / CSN_GROUP * CSN_Q1T_TILE;
        if (part == CSN_GROUP) {
            decode_tile(tile, out);
        } else {
            float whole[CSN_GROUP];
            decode_tile(tile, whole);
            memcpy(out, whole + k, part * sizeof(float));
        }
        i0 += part;
        out += part;
    }
}

static void q1t_decode(const csn_matrix *m, uint64_t i0, uint64_t n, float *out) {
    decode_tiles(m, i0, n, out);
    for (uint64_t i = i0; i < i0 + n;) {
        uint64_t row = i / m->cols;
        uint64_t first = row * m->cols;
        uint64_t stop = first + m->cols < i0 + n ? first + m->cols : i0 + n;
        csn_outliers o = csn_q1t_outliers(m, row, i - first, stop - first);
        for (; o.n > 0; o.n--, o.p += CSN_Q1T_OUTLIER) {
            uint64_t k = first + csn_q1t_column(o.p) - i0;
            if (k < n) { /* else somebody has changed the file under its mapping */
                out[k] = csn_half_to_f32(csn_load16(o.p + 2));
            }
        }
        i = stop;
    }
}

/* ---- encoding ---- */

/* A group on the way: which weights are not 0 (bit k), and the scale. */
struct group {
    uint32_t live;
    float scale;
};

/* Weights of at least `least` that are no outliers. */
static uint32_t at_least(const float *x, uint32_t outliers, float least) {
    uint32_t live = 0;
    for (unsigned k = 0; k < CSN_GROUP; k++) {
        live |= (uint32_t)(csn_magnitude(x[k]) >= least) << k;
    }
    return live & ~outliers;
}

static double group_error(const float *x, const float *d, uint32_t outliers, struct group c) {
    double sum = 0;
    for (unsigned k = 0; k < CSN_GROUP; k++) {
        if ((outliers >> k & 1u) == 0) {
            float q = (c.live >> k & 1u) != 0 ? c.scale : 0;
            double e = (double)csn_magnitude(x[k]) - (double)q;
            sum += (double)d[k] * e * e;
        }
    }
    return sum;
}

/* Weighted mean of the magnitudes in `live`. */
static float mean_of(const float *x, const float *d, uint32_t live) {
    float sum = 0;
    float n = 0;
    for (unsigned k = 0; k < CSN_GROUP; k++) {
        if ((live >> k & 1u) != 0) {
            sum += csn_magnitude(x[k]) * d[k];
            n += d[k];
        }
    }
    return n > 0 ? sum / n : 0;
}

static struct group reference_group(const float *x, const float *d, uint32_t outliers) {
    static const float even[CSN_GROUP] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    uint16_t h;
    float mean = mean_of(x, even, ~outliers);
    struct group a = {.scale = csn_scale_rule(mean, &h)};
    a.live = at_least(x, outliers, 0.5f * a.scale);
    struct group b = {.live = at_least(x, outliers, 0.7f * mean)};
    b.scale = csn_scale_rule(mean_of(x, d, b.live), &h);
    return group_error(x, d, outliers, b) < group_error(x, d, outliers, a) ? b : a;
}

/* Decreasing magnitude, for qsort. */
static int by_magnitude(const void *a, const void *b) {
    float x = csn_magnitude(**(const float *const *)a);
    float y = csn_magnitude(**(const float *const *)b);
    return (x < y) - (x > y);
}

static struct group search_group(const float *x, const float *d, uint32_t outliers) {
    const float *sorted[CSN_GROUP];
    unsigned n = 0;
    for (unsigned k = 0; k < CSN_GROUP; k++) {
        if ((outliers >> k & 1u) == 0) {
            sorted[n++] = &x[k];
        }
    }
    qsort(sorted, n, sizeof(sorted[0]), by_magnitude);
    struct group best = {.scale = 0x1p-14f};
    uint32_t live = 0;
    double most = 0; /* by how much the error is less than that of zeros */
    double sum = 0;
    double weight = 0;
    for (unsigned i = 0; i < n; i++) {
        size_t k = (size_t)(sorted[i] - x);
        live |= UINT32_C(1) << k;
        sum += (double)csn_magnitude(x[k]) * (double)d[k];
        weight += (double)d[k];
        float scale = csn_half_to_f32(csn_half_from_f32(weight > 0 ? (float)(sum / weight) : 0));
        if (isinf(scale)) { /* the tensor is lost: let write_tile tell */
            return (struct group){live, scale};
        }
        double gain = (double)scale * (2 * sum - (double)scale * weight);
        if (gain > most) {
            most = gain;
            best = (struct group){live, scale};
        }
    }
    return best;
}

/* What the scales of a row are multiplied by in the end: least squares over what is not 0. */
static float stretch_of(const csn_encode_job *job, const float *x, const struct group *groups,
                        uint64_t gpr) {
    double xq = 0;
    double qq = 0;
    for (uint64_t g = 0; g < gpr; g++) {
        double q = (double)groups[g].scale;
        for (unsigned k = 0; k < CSN_GROUP; k++) {
            if ((groups[g].live >> k & 1u) != 0) {
                double d = (double)csn_column_weight(job->options, g * CSN_GROUP + k);
                xq += q * (double)csn_magnitude(x[g * CSN_GROUP + k]) * d;
                qq += q * q * d;
            }
        }
    }
    return qq > 1e-20 ? csn_clamp((float)(xq / qq), 0.5f, 2.0f) : 1.0f;
}

static void write_tile(csn_encode_job *job, const float *x, struct group group, uint8_t *tile) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    uint16_t h = csn_half_from_f32(group.scale);
    csn_note_inf(job, h);
    memset(tile, 0, CSN_Q1T_TILE);
    csn_store16(tile, h);
    for (unsigned k = 0; k < CSN_GROUP; k++) {
        unsigned digit = (group.live >> k & 1u) == 0 ? 0 : x[k] >= 0 ? 1 : 2;
        tile[2 + k / 5] = (uint8_t)(tile[2 + k / 5] + digit * power[k % 5]);
    }
}

static uint8_t *write_outliers(csn_encode_job *job, const float *x, uint64_t col, uint32_t outliers,
                               uint8_t *entry) {
    for (unsigned k = 0; k < CSN_GROUP; k++) {
        if ((outliers >> k & 1u) != 0) {
            uint16_t value = csn_half_from_f32(x[k]);
            csn_note_inf(job, value);
            csn_store16(entry, (uint16_t)(col + k));
            csn_store16(entry + 2, value);
            entry += CSN_Q1T_OUTLIER;
        }
    }
    return entry;
}

static void encode_row(csn_encode_job *job, uint64_t row) {
    const csn_choice *choice = job->extra;
    const bool is_reference = job->options->encoder == CSN_ENCODER_REFERENCE;
    const uint64_t gpr = job->cols / CSN_GROUP;
    const float *x = job->x + row * job->cols;
    uint8_t *tiles = job->out + row * gpr * CSN_Q1T_TILE;
    uint8_t *pointers = job->out + job->rows * gpr * CSN_Q1T_TILE;
    uint8_t *entry = pointers + 4 * (job->rows + 1) + choice->first[row] * CSN_Q1T_OUTLIER;
    struct group groups[MOST_COLS / CSN_GROUP];
    uint64_t n_ties = 0;
    for (uint64_t g = 0; g < gpr; g++) {
        float d[CSN_GROUP];
        for (unsigned k = 0; k < CSN_GROUP; k++) {
            d[k] = csn_column_weight(job->options, g * CSN_GROUP + k);
        }
        uint32_t outliers = csn_choice_of_group(job, choice, row, g, &n_ties);
        groups[g] = is_reference ? reference_group(x + g * CSN_GROUP, d, outliers)
                                 : search_group(x + g * CSN_GROUP, d, outliers);
        entry = write_outliers(job, x + g * CSN_GROUP, g * CSN_GROUP, outliers, entry);
    }
    float stretch = is_reference ? stretch_of(job, x, groups, gpr) : 1.0f;
    for (uint64_t g = 0; g < gpr; g++) {
        groups[g].scale *= stretch;
        write_tile(job, x + g * CSN_GROUP, groups[g], tiles + g * CSN_Q1T_TILE);
    }
    csn_store32(pointers + 4 * (row + 1), (uint32_t)choice->first[row + 1]);
}

static void encode_rows(csn_encode_job *job, uint64_t r0, uint64_t r1) {
    for (uint64_t r = r0; r < r1; r++) {
        encode_row(job, r);
    }
}

/* Bytes of a payload with n_outliers; row pointers are u32. */
static caisson_status whole_bytes(const csn_shape *shape, uint64_t n_outliers, uint64_t *ret_tiles,
                                  uint64_t *ret, caisson_error *err) {
    uint64_t head = 0;
    CSN_TRY(head_bytes(shape, ret_tiles, &head, err));
    if (n_outliers > UINT32_MAX) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS,
                        .what = "more outliers than a row pointer of q1t can say",
                        CSN_VALUES(UINT32_MAX, n_outliers));
    }
    return csn_add(head, n_outliers * CSN_Q1T_OUTLIER, ret) ? CAISSON_OK : csn_fail_nbytes(err);
}

static caisson_status q1t_about(const csn_shape *shape, const csn_encode_options *options,
                                uint64_t *ret, caisson_error *err) {
    uint64_t n;
    uint64_t tiles = 0;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    return whole_bytes(shape, csn_count_outliers(options, 0, n), &tiles, ret, err);
}

static caisson_status q1t_encode(const float *x, const csn_shape *shape,
                                 const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                                 caisson_error *err) {
    uint64_t n;
    uint64_t tiles = 0;
    uint64_t nbytes = 0;
    csn_encode_job job;
    csn_choice choice;
    CSN_TRY(csn_shape_count_or_fail(shape, &n, err));
    n = csn_count_outliers(options, 0, n);
    CSN_TRY(whole_bytes(shape, n, &tiles, &nbytes, err));
    CSN_TRY(csn_encode_begin(&csn_dtype_q1t, x, shape, options, out, &job, err));
    CSN_TRY(csn_choice_make(&job, n, false, pool, &choice, err));
    caisson_status status = csn_encode_room(&job, nbytes, out, err);
    if (status == CAISSON_OK) {
        csn_store32(job.out + tiles, 0);
        job.extra = &choice;
        csn_encode_split(pool, &job, encode_rows, job.rows);
        status = csn_encode_end(&job, err);
    }
    csn_choice_free(&choice);
    return status;
}

static uint32_t q1t_numbers(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]) {
    ret[0] = csn_group_scales(m, 0, CSN_Q1T_TILE);
    uint64_t entries = ret[0].n * CSN_Q1T_TILE + 4 * (m->rows + 1);
    uint64_t n = (m->nbytes - entries) / CSN_Q1T_OUTLIER;
    ret[1] = (csn_numbers){CSN_NUMBER_F16, true, entries + 2, n, CSN_Q1T_OUTLIER, 0};
    return 2;
}

const csn_dtype csn_dtype_q1t = {
    .name = "q1t",
    .cmf_id = 14,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = CSN_GROUP,
    .check = q1t_check,
    .check_from = q1t_check_from,
    .decode = q1t_decode,
    .numbers = q1t_numbers,
    .encode = q1t_encode,
    .about_nbytes = q1t_about,
};
