/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are fetched while the layer runs (store/stream.h). What comes first is computed
 * first where results can wait for one another; sums go by rising id all the same. */
#include <string.h>

#include "model/blocks/stream.h"

struct run {
    csn_ops *ops;
    const csn_plan *plan;
    const csn_moe *moe;
    csn_moe_memory *mem;
    csn_experts *experts;
    uint32_t top_k;
    const float *x; /* [n][dim] */
    float *y;
    uint64_t n;
};

/* The experts that are chosen, by rising id. */
static uint32_t list_experts(const struct run *r) {
    uint32_t *ids = r->mem->ids;
    uint32_t n_ids = 0;
    uint8_t *is_chosen = r->mem->is_chosen;
    memset(is_chosen, 0, r->moe->n_experts);
    for (uint64_t i = 0; i < r->n * r->top_k; i++) {
        is_chosen[r->mem->picks[i].i_expert] = 1;
    }
    for (uint32_t e = 0; e < r->moe->n_experts; e++) {
        if (is_chosen[e]) {
            ids[n_ids++] = e;
        }
    }
    return n_ids;
}

static caisson_status open_record(const struct run *r, uint32_t id, const uint8_t *record,
                                  csn_vq_job *ret, caisson_error *err) {
    csn_warp_expert e;
    const csn_warp *w = csn_store_warp(csn_stream_store(r->moe->stream));
    CSN_TRY(csn_warp_record(w, r->moe->bank, id, record, false, &e, err)); /* its checksum: once */
    *ret = (csn_vq_job){
        .gate = e.m[CSN_WARP_GATE], .up = e.m[CSN_WARP_UP], .down = e.m[CSN_WARP_DOWN]};
    return CAISSON_OK;
}

/* y += weight * result, picks of a vector by rising id; results are where `at` says. */
static void add_results(const struct run *r) {
    uint64_t dim = r->moe->dim;
    for (uint64_t i = 0; i < r->n * r->top_k; i++) {
        const float *e = r->mem->vq.y + r->mem->at[i] * dim;
        r->ops->vec->add_rows(r->y + i / r->top_k * dim, dim, &r->mem->picks[i].weight, 1, 1, e,
                              dim, 1, dim);
    }
}

/* What a batch of experts works on; results of all batches of a layer lie behind one another. */
struct batch {
    csn_vq_job jobs[CSN_VQ_ROWS];
    uint32_t rows[CSN_VQ_ROWS];
    uint32_t n_jobs, n_results;
};

static caisson_status add_job(const struct run *r, struct batch *b, caisson_error *err) {
    uint32_t id;
    const uint8_t *record;
    csn_vq_job *job = &b->jobs[b->n_jobs];
    CSN_TRY(csn_experts_take_any(r->experts, &id, &record, err));
    CSN_TRY(open_record(r, id, record, job, err));
    job->rows = b->rows + b->n_results;
    job->first = b->n_results;
    for (uint64_t k = 0; k < r->n * r->top_k; k++) {
        if (r->mem->picks[k].i_expert == id) {
            b->rows[b->n_results] = (uint32_t)(k / r->top_k);
            r->mem->at[k] = b->n_results++;
            job->n++;
        }
    }
    b->n_jobs++;
    return CAISSON_OK;
}

/* Few vectors: all results fit beside one another, so experts run in the order in which they come,
 * all that are there at once. */
static caisson_status run_as_they_come(const struct run *r, uint32_t n_ids, caisson_error *err) {
    struct batch b = {.n_jobs = 0};
    for (uint32_t n_done = 0; n_done < n_ids; n_done += b.n_jobs) {
        uint32_t n_ready = csn_experts_n_ready(r->experts);
        b.n_jobs = 0;
        do {
            CSN_TRY(add_job(r, &b, err));
        } while (b.n_jobs < n_ready);
        csn_block_vq_run(r->ops, &r->mem->vq, &r->plan->act, b.jobs, b.n_jobs);
    }
    add_results(r);
    return CAISSON_OK;
}

/* Many vectors: experts by rising id, each for all vectors that chose it. */
static caisson_status run_in_order(const struct run *r, uint32_t n_ids, caisson_error *err) {
    csn_moe_memory *mem = r->mem;
    uint64_t dim = r->moe->dim;
    for (uint32_t i = 0; i < n_ids; i++) {
        uint32_t id;
        const uint8_t *record;
        csn_vq_job job;
        CSN_TRY(csn_experts_take(r->experts, &id, &record, err));
        CSN_TRY(open_record(r, id, record, &job, err));
        uint32_t n_rows = csn_moe_rows(mem, id, r->top_k, r->n);
        for (uint32_t k = 0; k < n_rows; k += job.n) {
            job.rows = mem->rows + k;
            job.n = n_rows - k < CSN_VQ_ROWS ? n_rows - k : CSN_VQ_ROWS;
            csn_block_vq_run(r->ops, &mem->vq, &r->plan->act, &job, 1);
            for (uint32_t j = 0; j < job.n; j++) {
                r->ops->vec->add_rows(r->y + mem->rows[k + j] * dim, dim, &mem->weights[k + j], 1,
                                      1, mem->vq.y + j * dim, dim, 1, dim);
            }
        }
    }
    return CAISSON_OK;
}

bool csn_block_streams_few(const csn_moe *moe, uint32_t top_k, uint64_t n) {
    return moe->bank != NULL && n * top_k <= CSN_VQ_ROWS;
}

static caisson_status run_records(const struct run *r, uint32_t n_ids, caisson_error *err) {
    const csn_warp_bank *bank = r->moe->bank;
    csn_moe_meanwhile(r->ops, r->plan, r->moe, r->mem, r->n);
    csn_block_vq_begin(r->ops, &r->mem->vq, &bank->books[CSN_WARP_GATE], &bank->books[CSN_WARP_UP],
                       r->x, r->n);
    if (csn_block_streams_few(r->moe, r->top_k, r->n) && csn_experts_fits(r->experts, n_ids)) {
        return run_as_they_come(r, n_ids, err);
    }
    return run_in_order(r, n_ids, err);
}

/* A matrix that has data is a skill's, which stays in memory. */
static void give_data(csn_weight *w, const uint8_t *bytes) {
    w->m.data = w->m.data != NULL ? w->m.data : bytes;
}

/* Experts that are three matrices of a .cmf. */
static caisson_status run_matrices(const struct run *r, uint32_t n_ids, caisson_error *err) {
    for (uint32_t i = 0; i < n_ids; i++) {
        uint32_t id;
        const uint8_t *pieces[CSN_EXPERT_MAX_PIECES];
        CSN_TRY(csn_experts_take(r->experts, &id, pieces, err));
        csn_expert e = r->moe->experts[id];
        give_data(&e.gate, pieces[0]);
        give_data(&e.up, pieces[1]);
        give_data(&e.down, pieces[2]);
        csn_moe_run(r->ops, r->plan, r->moe, r->mem, id, &e, r->top_k, r->x, r->y, r->n);
    }
    return CAISSON_OK;
}

caisson_status csn_block_streamed(csn_ops *ops, const csn_plan *plan, const csn_moe *moe,
                                  csn_moe_memory *mem, uint32_t top_k, const float *x, float *y,
                                  uint64_t n, caisson_error *err) {
    struct run r = {ops, plan, moe, mem, csn_stream_experts(moe->stream), top_k, x, y, n};
    uint32_t n_ids = list_experts(&r);
    csn_stream_claim(moe->stream);
    csn_experts_want(r.experts, moe->i_stream, mem->ids, n_ids, mem->progress);
    caisson_status status =
        moe->bank != NULL ? run_records(&r, n_ids, err) : run_matrices(&r, n_ids, err);
    csn_experts_done(r.experts);
    csn_stream_release(moe->stream);
    return status;
}

/* The likeliest first: all of one token, of which there are few. */
static void sort_picks(csn_pick *picks, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        csn_pick p = picks[i];
        uint32_t k = i;
        for (; k > 0 && picks[k - 1].weight < p.weight; k--) {
            picks[k] = picks[k - 1];
        }
        picks[k] = p;
    }
}

void csn_block_look_ahead(csn_ops *ops, const csn_plan *plan, const csn_moe *moe,
                          csn_moe_memory *mem, const csn_active_visit *active, const float *x) {
    uint32_t n = csn_route_n_picks(moe, active);
    if (!csn_experts_wants_guesses(csn_stream_experts(moe->stream))) {
        return;
    }
    csn_block_route(ops, moe, active, x, plan->hidden, 1, mem->logits, mem->picks);
    sort_picks(mem->picks, n);
    for (uint32_t i = 0; i < n; i++) {
        mem->ids[i] = mem->picks[i].i_expert;
    }
    csn_stream_claim(moe->stream);
    csn_experts_ahead(csn_stream_experts(moe->stream), moe->i_stream, mem->ids, n);
    csn_stream_release(moe->stream);
}
