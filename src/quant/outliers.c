/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights of a q1s or q1t tensor stay f16: the n-th largest score over the whole tensor, by
 * counting the scores' bits (those of numbers >= 0 are in the order of the numbers), upper half
 * first. Two passes, no memory that grows with the tensor but two numbers a row. */
#include <math.h>

#include "base/alloc.h"
#include "quant/q1_internal.h"

enum { BUCKETS = 1 << 16 };

static inline uint32_t score_of(const csn_encode_job *job, uint64_t row, uint64_t col) {
    float a = csn_magnitude(job->x[row * job->cols + col]);
    return csn_f32_bits(job->options->col_rms == NULL ? a : a * job->options->col_rms[col]);
}

uint64_t csn_count_outliers(const csn_encode_options *options, float usual, uint64_t n) {
    float keep = options->keep == 0 ? usual : options->keep;
    return keep <= 0 ? 0 : (uint64_t)roundf((float)n * (keep < 0.25f ? keep : 0.25f));
}

/* The largest bucket that has `rank` scores in it and above, of scores whose upper half is `upper`
 * (by their lower half), or of all (by their upper half) where upper is BUCKETS. *rank: what is
 * left of it inside the bucket. */
static uint32_t find_bucket(const csn_encode_job *job, uint32_t upper, uint64_t *count,
                            uint64_t *rank) {
    memset(count, 0, BUCKETS * sizeof(*count));
    for (uint64_t r = 0; r < job->rows; r++) {
        for (uint64_t c = 0; c < job->cols; c++) {
            uint32_t s = score_of(job, r, c);
            if (upper == BUCKETS) {
                count[s >> 16]++;
            } else if (s >> 16 == upper) {
                count[s & 0xffffu]++;
            }
        }
    }
    uint32_t b = BUCKETS - 1;
    for (; count[b] < *rank; b--) {
        *rank -= count[b];
    }
    return b;
}

struct tally {
    csn_choice *choice;
    uint64_t *above, *equal; /* [rows] */
};

static void tally_rows(csn_encode_job *job, uint64_t r0, uint64_t r1) {
    const struct tally *t = job->extra;
    for (uint64_t r = r0; r < r1; r++) {
        t->above[r] = 0;
        t->equal[r] = 0;
        for (uint64_t c = 0; c < job->cols; c++) {
            uint32_t s = score_of(job, r, c);
            t->above[r] += s > t->choice->threshold;
            t->equal[r] += s == t->choice->threshold;
        }
    }
}

static caisson_status choose(csn_encode_job *job, uint64_t n_outliers, bool with_ties,
                             csn_pool *pool, csn_choice *choice, caisson_error *err) {
    uint64_t *count;
    uint64_t rank = n_outliers;
    CSN_TRY(CSN_NEW(job->rows + 1, &choice->first, err));
    CSN_TRY(CSN_NEW(job->rows, &choice->ties, err));
    if (n_outliers == 0) {
        choice->threshold = UINT32_MAX; /* no score has such bits */
        return CAISSON_OK;
    }
    CSN_TRY(CSN_NEW(BUCKETS, &count, err));
    uint32_t upper = find_bucket(job, BUCKETS, count, &rank);
    choice->threshold = upper << 16 | find_bucket(job, upper, count, &rank);
    csn_free(count);
    struct tally t = {choice, choice->first + 1, choice->ties};
    job->extra = &t;
    csn_encode_split(pool, job, tally_rows, job->rows);
    for (uint64_t r = 0; r < job->rows; r++) {
        if (!with_ties && choice->ties[r] > rank) {
            choice->ties[r] = rank;
        }
        rank -= with_ties ? 0 : choice->ties[r];
        choice->first[r + 1] += choice->first[r] + choice->ties[r];
    }
    return CAISSON_OK;
}

caisson_status csn_choice_make(csn_encode_job *job, uint64_t n_outliers, bool with_ties,
                               csn_pool *pool, csn_choice *ret, caisson_error *err) {
    *ret = (csn_choice){0};
    caisson_status status = choose(job, n_outliers, with_ties, pool, ret, err);
    if (status != CAISSON_OK) {
        csn_choice_free(ret);
    }
    return status;
}

void csn_choice_free(csn_choice *choice) {
    csn_free(choice->first);
    csn_free(choice->ties);
    *choice = (csn_choice){0};
}

uint32_t csn_choice_of_group(const csn_encode_job *job, const csn_choice *choice, uint64_t row,
                             uint64_t g, uint64_t *n_ties) {
    uint32_t mask = 0;
    for (unsigned k = 0; k < CSN_GROUP; k++) {
        uint32_t s = score_of(job, row, g * CSN_GROUP + k);
        bool is_tie = s == choice->threshold && *n_ties < choice->ties[row];
        mask |= (uint32_t)(s > choice->threshold || is_tie) << k;
        *n_ties += is_tie;
    }
    return mask;
}
