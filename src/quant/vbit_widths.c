/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows of a vbit tensor are wide (facts 4.6): water-filling of bits over rows by amplitude.
 */
#include "quant/exp2_half.h"
#include "quant/quant_internal.h"
#include "quant/vbit.h"

static const uint8_t widths[] = {3, 4, 5, 6, 8};

static void levels_of_rows(csn_encode_job *job, uint64_t r0, uint64_t r1) {
    float *level = job->extra;
    for (uint64_t r = r0; r < r1; r++) {
        float a = csn_absmax(job->x + r * job->cols, job->cols);
        level[r] = csn_log2(a > 1e-12f ? a : 1e-12f);
    }
}

void csn_vbit_levels(const float *x, const csn_shape *shape, csn_pool *pool, float *level) {
    csn_encode_job job = {.x = x, .extra = level};
    csn_shape_matrix(shape, &job.rows, &job.cols);
    csn_encode_split(pool, &job, levels_of_rows, job.rows);
}

/* The nearest width; the smaller of two that are equally near. */
static uint8_t nearest(float want) {
    uint8_t best = widths[0];
    for (size_t i = 1; i < sizeof(widths); i++) {
        float d = want - (float)widths[i];
        float e = want - (float)best;
        if ((d < 0 ? -d : d) < (e < 0 ? -e : e)) {
            best = widths[i];
        }
    }
    return best;
}

static float mean_level(const float *level, uint64_t n) {
    float sum = 0; /* one after the other: the bits of the reference */
    for (uint64_t r = 0; r < n; r++) {
        sum += level[r];
    }
    return sum / (float)n;
}

void csn_vbit_widths(const float *level, uint64_t n, float mean_bits, float bias, uint8_t *bits) {
    float mean = mean_level(level, n);
    for (uint64_t r = 0; r < n; r++) {
        bits[r] = nearest(mean_bits + (level[r] - mean) + bias);
    }
}

/* Widths of n rows, added up. */
static uint64_t sum_widths(const float *level, uint64_t n, float mean_bits, float bias) {
    float mean = mean_level(level, n);
    uint64_t sum = 0;
    for (uint64_t r = 0; r < n; r++) {
        sum += nearest(mean_bits + (level[r] - mean) + bias);
    }
    return sum;
}

void csn_vbit_biases(const float *level, const uint64_t *first, uint32_t n, float mean_bits,
                     float *bias) {
    const float most = 2.5f;  /* bits that loudness moves a tensor by */
    const double reach = 3.0; /* bits that all of them move together */
    enum { STEPS = 40 };
    double family = 0, center = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t n_rows = first[i + 1] - first[i];
        bias[i] = mean_level(level + first[i], n_rows);
        family += (double)bias[i] * (double)n_rows / (double)first[n];
    }
    for (uint32_t i = 0; i < n; i++) {
        float louder = (float)((double)bias[i] - family);
        bias[i] = louder < -most ? -most : louder > most ? most : louder;
        center += (double)bias[i] / n;
    }
    double lo = -reach, hi = reach;
    for (int step = 0; step < STEPS; step++) {
        double middle = (lo + hi) / 2;
        uint64_t sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            sum += sum_widths(level + first[i], first[i + 1] - first[i], mean_bits,
                              (float)((double)bias[i] - center + middle));
        }
        if ((double)sum < (double)mean_bits * (double)first[n]) {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        bias[i] = (float)((double)bias[i] - center + (lo + hi) / 2);
    }
}
