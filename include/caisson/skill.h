/* SPDX-License-Identifier: Apache-2.0 */
/* Skills (CMF 9): sets of tensors in the file of a base model that stand in for the base's, one by
 * one. A session runs one of them, a blend of several, or the base alone, and changes between
 * requests. docs/skills.md says how they are made and chosen.
 */
#ifndef CAISSON_SKILL_H
#define CAISSON_SKILL_H

#include "caisson/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From now on the session runs skill `id`; NULL or "" = the base alone. Keys and values belong to
 * the skill that made them: with another skill than before the session forgets all tokens, so that
 * A, B, A gives A's first answer again, bit for bit. The first choice of a skill looks up its
 * tensors, later ones change a pointer.
 *
 * Errors: CAISSON_E_ARG, _MISSING (no such skill, or no mask of its input_mask_task), _PARSE,
 * _UNSUPPORTED (its tensors do not fit the base), _HASH (with `verify`). Nothing changes then. */
CAISSON_API caisson_status caisson_session_set_skill(caisson_session *session, const char *id,
                                                     caisson_error *err);

typedef struct caisson_blend_part {
    const char *skill;
    float weight; /* above 0; the session divides by the sum of all */
} caisson_blend_part;

/* The same for a blend of n skills: each tensor that any of them replaces becomes the sum over the
 * parts of weight * tensor, in f32, where a skill without that tensor gives the base's. The sums
 * are memory of the session: 4 bytes for each value of such a tensor. One part is that skill. Where
 * a blend fails that should follow another one, the base alone runs then. */
CAISSON_API caisson_status caisson_session_set_blend(caisson_session *session,
                                                     const caisson_blend_part *parts, size_t n,
                                                     caisson_error *err);

/* header.calibration: a probability that is shown as confidence is the softmax of logits / this;
 * 0 = the file has none. */
CAISSON_API float caisson_model_temperature(const caisson_model *model);

typedef struct caisson_skill_score {
    const char *skill; /* id, [skill_n], good as long as the model */
    size_t skill_n;
    double raw;   /* squared distance of phi from the skill's subspace: the smallest wins */
    double error; /* E = raw / |phi|^2 */
    double p;     /* of a calibrated file: softmax(-raw / temperature); else 0 */
} caisson_skill_score;

typedef struct caisson_route {
    caisson_skill_score *scores; /* [n] skills that describe their prompts, the winner first */
    size_t n;                    /* 0: the file has none */
    bool is_novel;      /* the prompt is like none of them: E above 0.30, or of a calibrated file
                           novelty above its threshold */
    bool is_calibrated; /* the file has `routing`: the two figures below are there */
    double margin, novelty;
} caisson_route;

typedef struct caisson_route_options {
    size_t struct_size; /* sizeof(caisson_route_options) */
    uint32_t n_threads; /* 0 = all CPUs that the process may use */
    /* Tokens done of total; false = stop. */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
} caisson_route_options;

/* Which skill a prompt of n tokens (encoded without BOS: caisson_model_tokenize with flags 0)
 * belongs to. Runs the base over it in f32 arithmetic, whatever the sessions use. *ret is the
 * caller's (caisson_route_free). Errors: CAISSON_E_ARG, _LIMIT (a prompt longer than any context),
 * _UNSUPPORTED (text_only), _CANCELLED, _IO, _NOMEM. */
CAISSON_API caisson_status caisson_route_prompt(caisson_model *model, const int32_t *ids, size_t n,
                                                const caisson_route_options *options,
                                                caisson_route *ret, caisson_error *err);
CAISSON_API void caisson_route_free(caisson_route *route); /* route becomes empty */

/* ---- skills of a file ---- the file grows behind its end, its earlier bytes never change: who has
 * it open keeps the model that he opened. CAISSON_E_BUSY: another program is writing it. */

typedef struct caisson_skill_tensor { /* a tensor of the base that was compared */
    const char *name;                 /* [name_n], good during the callback */
    size_t name_n;
    double delta;   /* ||donor - base|| / ||base|| */
    const char *to; /* type in which the skill stores it; NULL = it does not */
    uint64_t n_bytes;
    double relative_error; /* ||stored - donor|| / ||donor|| */
} caisson_skill_tensor;

typedef struct caisson_skill_add_options {
    size_t struct_size;          /* sizeof(caisson_skill_add_options) */
    const char *name;            /* for people; NULL = none */
    const char *description;     /* likewise */
    const char *input_mask_task; /* a task mask that goes with the skill; NULL = none */
    const char *const
        *prompts; /* [n_prompts] what people ask it: for routing; each is plain text */
    size_t n_prompts;
    uint32_t rank;       /* directions in which prompts may differ, at most 8; 0 = 2 */
    const char *tensors; /* which may be replaced: "all", "ffn" or "attn"; NULL = all */
    const char *quant;   /* type of the skill's matrices; NULL = each in the base's */
    double min_delta;    /* tensors with a smaller delta are left out */
    uint32_t n_threads;  /* 0 = all CPUs that the process may use */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void (*on_tensor)(void *ctx, const caisson_skill_tensor *tensor);
    caisson_log_fn on_log;
    void *ctx; /* of all callbacks */
    /* Layers whose tensors may be replaced: "all" (NULL), or numbers and ranges as "0,4-7"; then
     * nothing outside of layers is. */
    const char *layers;
    /* Prompts are described by hidden states behind this visit of a layer; without has_phi_layer
     * that at two thirds of the depth. */
    bool has_phi_layer;
    uint32_t phi_layer;
    /* Every so many-th prompt is not fitted on but kept, so that the file can say what is new to
     * all of its skills (header.routing); 0 = 5, 1 = none is kept. */
    uint32_t holdout;
} caisson_skill_add_options;

/* Stores the tensors of `donor` (a .cmf, a GGUF file or a Hugging Face directory: a fine-tuned copy
 * of the base) that differ from those of the .cmf at `path` as its skill `id`. A tensor whose bytes
 * would be the base's is left out. Errors: CAISSON_E_EXISTS (the id is taken), _MISSING, _PARSE
 * (the donor lacks a tensor or has it in another shape), _ARG (a bad id; nothing differs),
 * _UNSUPPORTED, _BUSY, _HASH, _CANCELLED, _IO, _NOMEM. */
CAISSON_API caisson_status caisson_skill_add(const char *path, const char *id, const char *donor,
                                             const caisson_skill_add_options *options,
                                             caisson_error *err);

/* The skill is gone; its bytes stay in the file until it is compacted. CAISSON_E_MISSING, ... */
CAISSON_API caisson_status caisson_skill_remove(const char *path, const char *id,
                                                caisson_error *err);

/* What a skill is worth, measured by the caller on data that it was not made from. */
typedef struct caisson_skill_quality {
    size_t struct_size;  /* sizeof(caisson_skill_quality) */
    const char *metric;  /* "ppl", ... */
    double backbone;     /* without the skill */
    double overlaid;     /* with it */
    uint64_t tokens;     /* that were scored */
    bool masked;         /* the skill ran under its task mask */
    const char *file;    /* what to call the data; NULL = nothing */
    const void *dataset; /* its dataset_n bytes: their SHA-256 is kept */
    size_t dataset_n;
} caisson_skill_quality;

/* Writes the quality into the skill's record, in place of one that is there. Errors:
 * CAISSON_E_MISSING (no skill, or one without a record), _ARG, _BUSY, _IO, _NOMEM. */
CAISSON_API caisson_status caisson_skill_set_quality(const char *path, const char *id,
                                                     const caisson_skill_quality *quality,
                                                     caisson_error *err);

/* ---- skills by themselves: small files that are bound to the bytes of a base ---- */

typedef struct caisson_skill_cut_options {
    size_t struct_size; /* sizeof(caisson_skill_cut_options) */
    const char *name;   /* export: for people; NULL = the skill's own */
    bool overwrite;     /* replace an existing target */
    bool force;         /* apply: on another base too; noted in the result's provenance */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
} caisson_skill_cut_options;

/* Writes skill `id` of the model at `path` as a file by itself for the model at `base` (NULL = the
 * model itself). If the model has no skill of this id it is taken for a specialist: what differs
 * from the base is the skill. Errors: CAISSON_E_MISSING, _ARG (a bad id; nothing differs), _PARSE
 * (of another architecture or size), _EXISTS, _HASH (a damaged tensor), _IO, ... */
CAISSON_API caisson_status caisson_skill_export(const char *path, const char *base, const char *id,
                                                const char *target,
                                                const caisson_skill_cut_options *options,
                                                caisson_error *err);
/* Writes the model that the skill file was cut from: its tensors, header and masks over the base's.
 * Errors: CAISSON_E_PARSE (not a skill by itself), _HASH (cut from another base, unless force),
 * _EXISTS, ... */
CAISSON_API caisson_status caisson_skill_apply(const char *base, const char *skill,
                                               const char *target,
                                               const caisson_skill_cut_options *options,
                                               caisson_error *err);

/* ---- skills that change within an answer ---- */

typedef struct caisson_dynamic_step { /* a token of the answer that was evaluated */
    uint32_t i_token;                 /* from 0 */
    int32_t id;
    const char *skill; /* [skill_n] that draws the next token; skill_n 0 = the base */
    size_t skill_n;
    double error; /* the smallest E at the last look; below 0: there was none yet */
    bool is_look, is_switch;
} caisson_dynamic_step;

typedef struct caisson_dynamic_options {
    size_t struct_size; /* sizeof(caisson_dynamic_options) */
    double e_on;        /* a skill whose E is below this may begin; 0 = 0.62 */
    double e_off;       /* one above this ends; 0 = 0.74 */
    double margin;      /* another must be better by this to take over; 0 = 0.03 */
    uint32_t period;    /* tokens of the answer between two looks; 0 = 8 */
    void (*on_step)(void *ctx, const caisson_dynamic_step *step); /* NULL: nobody watches */
    void *ctx;
} caisson_dynamic_options;

/* Each later caisson_generate begins with the base and an empty session and looks, every `period`
 * tokens of the answer, which skill is nearest to an exponential mean of the hidden state; only
 * skills that describe their prompts and replace FFN tensors alone take part. A switch evaluates
 * the timeline again with the new skill. Ends with the next caisson_session_set_skill or
 * _set_blend. Errors: CAISSON_E_MISSING (no skill can take part), _ARG, _NOMEM, and those of
 * set_skill; nothing changes then. */
CAISSON_API caisson_status caisson_session_set_dynamic(caisson_session *session,
                                                       const caisson_dynamic_options *options,
                                                       caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
