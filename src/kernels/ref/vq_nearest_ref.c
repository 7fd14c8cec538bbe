/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/types.h"

void csn_vq_search_init(csn_vq_search *s, const float *entry, uint32_t entries) {
    s->entries = entries;
    for (uint32_t c = 0; c < entries; c++) {
        s->norm[c] = 0;
        for (int d = 0; d < CSN_VQ_DIM; d++) {
            float v = entry[c * CSN_VQ_DIM + d];
            s->norm[c] = fmaf(v, v, s->norm[c]);
            s->twice[c][d] = -2 * v;
        }
    }
}

void csn_vq_nearest_any_ref(const csn_vq_search *s, const float *x, uint64_t n, uint8_t *ret) {
    for (uint64_t i = 0; i < n; i++, x += CSN_VQ_DIM) {
        float least = INFINITY;
        ret[i] = 0;
        for (uint32_t c = 0; c < s->entries; c++) {
            float sum = s->norm[c];
            for (int d = 0; d < CSN_VQ_DIM; d++) {
                sum = fmaf(s->twice[c][d], x[d], sum);
            }
            if (sum < least) {
                least = sum;
                ret[i] = (uint8_t)c;
            }
        }
    }
}
