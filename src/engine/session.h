/* SPDX-License-Identifier: Apache-2.0 */
/* One mutable timeline over a model: tokens seen so far, their keys and values, and the logits that
 * follow. One thread at a time; a model outlives its sessions.
 *
 * Logits do not depend on how the tokens are cut into calls or batches, on the number of threads,
 * or on the instruction set: same bits (docs/architecture.md). One exception is part of the models
 * themselves: with longrope all tokens of one call use the table of its last position.
 */
#ifndef CSN_ENGINE_SESSION_H
#define CSN_ENGINE_SESSION_H

#include "base/progress.h"
#include "model/model.h"
#include "model/ops.h"
#include "model/tap.h"

/* n_ctx: max_position_embeddings, or as 0 where the file does not say. */
#define CSN_CTX_TRAINED UINT32_MAX

typedef struct csn_session csn_session;

typedef struct csn_session_options {
    uint32_t n_ctx;     /* 0 = min(4096, arch.max_position_embeddings); or CSN_CTX_TRAINED */
    uint32_t n_ubatch;  /* prompt tokens of one forward pass, 0 = 512; 1 = token by token */
    unsigned n_threads; /* 0 = all CPUs */
    csn_compute compute;
    csn_kv_type type_k, type_v;
    const char *task; /* name of the mask (CMF 5); NULL = default_task if a mask has that name, else
                         none; "" = none. With a skill its input_mask_task goes first. */
    const char *skill; /* id of the skill (CMF 9) whose tensors are used; NULL or "" = none */
} csn_session_options;

caisson_status csn_session_new(csn_model *model, const csn_session_options *options,
                               csn_session **ret, caisson_error *err);
void csn_session_free(csn_session *s);
/* What a session takes for these two: n_ctx of 0, and so many tokens of a prompt at once at most.
 */
uint32_t csn_session_choose_ctx(const csn_arch *arch, uint32_t n_ctx);
uint32_t csn_session_max_ubatch(const csn_plan *plan, csn_compute compute, uint32_t n_ctx,
                                uint32_t n_ubatch);

const csn_cmf_mask *csn_session_active_mask(const csn_session *s); /* NULL = none */
uint32_t csn_session_n_past(const csn_session *s);
uint32_t csn_session_n_ctx(const csn_session *s);
uint32_t csn_session_n_vocab(const csn_session *s);
uint64_t csn_session_kv_bytes(const csn_session *s);
csn_str csn_session_skill(const csn_session *s); /* id of the skill in use; empty = none, a blend */
/* Forgets all tokens from position n on. The state of linear attention cannot go back: the next
 * eval then begins by running the tokens that are left once more, which changes no bit. Without
 * the last token there are no logits. */
void csn_session_truncate(csn_session *s, uint32_t n);
/* From now on calls are parts of a text of n tokens, evaluated as one call of n would be; 0: each
 * stands for itself. Matters to longrope alone. */
void csn_session_expect(csn_session *s, uint32_t n);
/* How many of the first tokens were evaluated as a single call of n tokens would evaluate them:
 * all, but for longrope, whose keys depend on the call that made them. */
uint32_t csn_session_reusable(const csn_session *s, uint32_t n);

/* From now on skill `id` runs, empty = the backbone. Keys and values belong to the skill that
 * made them: with another skill than before the session forgets all tokens. The first choice of a
 * skill looks up its tensors, later ones change a pointer. CAISSON_E_MISSING lists the ids, or
 * masks; on failure nothing changes. */
caisson_status csn_session_set_skill(csn_session *s, csn_str id, caisson_error *err);
/* What such a choice would look up, and fail with; nothing changes. */
caisson_status csn_session_find_skill(csn_session *s, csn_str id, caisson_error *err);
/* The same for n >= 1 skills at once: csn_plan_make says what is summed, into memory of the
 * session's. Weights are taken as they are. On failure a blend that ran before is the backbone. */
caisson_status csn_session_set_blend(csn_session *s, const csn_plan_part *parts, uint32_t n,
                                     caisson_error *err);

/* Every later eval is seen by the tap, which must outlive the session or be taken back with NULL.
 * The last layer then runs for all tokens of a prompt, which costs its time, never a bit. */
void csn_session_set_tap(csn_session *s, const csn_tap *tap);

/* Appends n tokens (ids checked). want_all: logits of every one of them, else of the last.
 * Afterwards csn_session_logits(s, i) is row i ([vocab_size] f32, valid until the next eval), i
 * from 0 over the n (or 1) rows; with want_all the rows are handed out through on_row as they come
 * (on_row != NULL) instead of being kept. Errors: CAISSON_E_CONTEXT (both numbers) before anything
 * is computed, CAISSON_E_ARG, CAISSON_E_CANCELLED (n_past is then as before the call). */
typedef caisson_status (*csn_row_fn)(void *ctx, uint32_t i, const float *logits,
                                     caisson_error *err);
caisson_status csn_session_eval(csn_session *s, const int32_t *ids, uint32_t n, bool want_all,
                                csn_row_fn on_row, void *ctx, const csn_progress *progress,
                                caisson_error *err);
/* NULL for a row that is not kept. */
const float *csn_session_logits(const csn_session *s, uint32_t i);

#endif
