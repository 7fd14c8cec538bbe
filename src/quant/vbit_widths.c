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

void csn_vbit_widths(const float *level, uint64_t n, float mean_bits, float bias, uint8_t *bits) {
    float sum = 0; /* one after the other: the bits of the reference */
    for (uint64_t r = 0; r < n; r++) {
        sum += level[r];
    }
    float mean = sum / (float)n;
    for (uint64_t r = 0; r < n; r++) {
        bits[r] = nearest(mean_bits + (level[r] - mean) + bias);
    }
}
