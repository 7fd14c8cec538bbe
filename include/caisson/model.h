/* SPDX-License-Identifier: Apache-2.0 */
/* A model opened from a .cmf file or a .waste directory, and sessions: one timeline of tokens each.
 *
 * A model is immutable after open and may be shared by threads; it must outlive its sessions. A
 * session belongs to one thread at a time.
 *
 * Logits depend on the file, the tokens, the compute mode and the KV types alone: they are the
 * same bits for any number of threads, any cut into calls and batches, and any CPU. One exception
 * is part of the models themselves: longrope (Phi-3, Phi-4) has a second set of angles for texts
 * longer than its original context, and all tokens of one call use that of its last position.
 */
#ifndef CAISSON_MODEL_H
#define CAISSON_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "caisson/error.h"
#include "caisson/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct caisson_model caisson_model;
typedef struct caisson_session caisson_session;

typedef enum caisson_log_level {
    CAISSON_LOG_WARN = 1, /* something a person should know, e.g. a missing chat template */
    CAISSON_LOG_INFO
} caisson_log_level;

typedef void (*caisson_log_fn)(void *ctx, caisson_log_level level, const char *line);

typedef enum caisson_compute {
    CAISSON_COMPUTE_DEFAULT = 0, /* int8 */
    CAISSON_COMPUTE_F32,         /* dequantised weights times f32 activations: the reference */
    CAISSON_COMPUTE_INT8         /* activations quantised per 32, integer products: the fast one */
} caisson_compute;

typedef enum caisson_kv_type {
    CAISSON_KV_DEFAULT = 0, /* f16 */
    CAISSON_KV_F16,
    CAISSON_KV_F32,
    CAISSON_KV_Q8_0
} caisson_kv_type;

/* How routed experts that do not stay in memory are read. Never changes a result. */
typedef enum caisson_io {
    CAISSON_IO_DEFAULT = 0, /* io_uring, else threads; past the page cache where the disk lets us */
    CAISSON_IO_URING,
    CAISSON_IO_THREADS,
    CAISSON_IO_BUFFERED /* through the page cache */
} caisson_io;

typedef struct caisson_open_options {
    size_t struct_size;    /* sizeof(caisson_open_options) */
    bool no_mmap;          /* read the weights into memory instead of mapping the file */
    bool guard_mappings;   /* install a SIGBUS handler (chained to the previous one, for addresses
                              of our mappings alone): a file that shrinks while mapped is then
                              CAISSON_E_IO instead of a killed process */
    bool text_only;        /* tokenizer and chat template only: such a model cannot make sessions */
    bool no_text;          /* weights only: text calls fail; opens faster */
    bool no_chat;          /* the chat template is not compiled: chat calls fail */
    caisson_log_fn on_log; /* called during open; NULL = silent */
    void *log_ctx;
    /* A public key, 64 hex digits: the file is opened only if `<path>.sig` beside it is a signature
     * of all its bytes made with this key (CAISSON_E_SIGNATURE otherwise). It is checked first,
     * through the descriptor that is then used; inode, size and times are compared again at the
     * end. A tokenizer.json beside the file is refused. NULL = no check, and a .sig that is there
     * is told as unchecked. docs/cmf.md says what this cannot see. */
    const char *require_signature;
    /* Bytes done of total: of that check (stage "hash") and of the weights that are read or checked
     * while the model is opened ("load"). False = stop (CAISSON_E_CANCELLED). */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *progress_ctx;
    /* Each tensor is checked against its hash and digest when it is first asked for: those of the
     * model when it is opened, those of a skill when that is chosen; what nobody uses is not read.
     * CAISSON_E_HASH names the first that is damaged. Reads the weights through on one thread. */
    bool verify;
    /* Memory that the model and one session may take, in bytes; routed experts beyond it are read
     * when they are wanted. 0 = of a .waste what the machine can spare (caisson_plan), of a .cmf
     * everything is mapped. CAISSON_E_LIMIT, before anything is read, if the model cannot run in
     * it: want is the least that it needs; or if what the model would take of it is more than the
     * machine, a control group or a limit of this process gives: want is that. */
    uint64_t budget_bytes;
    uint32_t budget_n_ctx; /* of the session that is counted; 0 as in caisson_session_options */
    caisson_kv_type budget_type_k, budget_type_v;
    /* The skill that is counted as well; NULL: none, "*": all of the file, for sessions that change
     * between them. budget_blends: and the sums of a blend of them. */
    const char *budget_skill;
    bool budget_blends;
    caisson_io io;
    /* Under a budget that is too small for all weights that are not routed experts, these are read
     * too, layer by layer, for every token; the least budget is then that of two layers. */
    bool stream_trunk;
    bool no_lookahead; /* do not guess which experts the next layer will want */
    /* Whenever an expert is read its checksum is checked, and with stream_trunk the bytes of a
     * layer: against the hashes of a .cmf, or the digests beside a .waste where somebody wrote
     * them. */
    bool verify_records;
} caisson_open_options;

/* Opens `path` (NUL-terminated), checks it completely (payload hashes excepted: caisson_verify),
 * decides which blocks each layer uses, loads the tokenizer and compiles the chat template. A file
 * without a tokenizer section uses a tokenizer.json beside it, with a warning; with neither, text
 * calls fail. A file without a chat template gets ChatML, with a warning.
 *
 * Errors: CAISSON_E_IO, _MAGIC, _VERSION, _FEATURE, _BOUNDS, _PARSE, _HASH, _MISSING for a file
 * that is not valid; _UNSUPPORTED for a valid one that this build cannot run; _TEMPLATE for a chat
 * template with a construct that we cannot run; _LIMIT, _NOMEM, _ARG. */
CAISSON_API caisson_status caisson_model_open(const char *path, const caisson_open_options *options,
                                              caisson_model **ret, caisson_error *err);
/* NULL is fine. All sessions must have been freed. */
CAISSON_API void caisson_model_close(caisson_model *model);

CAISSON_API uint32_t caisson_model_n_vocab(const caisson_model *model); /* length of a logits row */
CAISSON_API uint32_t
caisson_model_n_ctx_train(const caisson_model *model); /* positions trained on */
/* Bytes of weights that one decoded token reads; 0 with text_only. */
CAISSON_API uint64_t caisson_model_bytes_per_token(const caisson_model *model);
/* The arch_name of the file, for display; good until the model is closed. */
CAISSON_API const char *caisson_model_arch_name(const caisson_model *model);

/* n_ctx: as many tokens as the model was made for (4096 if its file does not say). */
#define CAISSON_CTX_TRAINED UINT32_MAX

typedef struct caisson_session_options {
    size_t struct_size; /* sizeof(caisson_session_options) */
    uint32_t n_ctx;     /* tokens that fit; 0 = min(4096, n_ctx_train); or CAISSON_CTX_TRAINED */
    uint32_t n_ubatch;  /* prompt tokens of one forward pass; 0 = 512, 1 = token by token */
    uint32_t n_threads; /* 0 = all CPUs that the process may use */
    caisson_compute compute;
    caisson_kv_type type_k, type_v;
    /* Which task mask of the file is active (CMF 5): its name; NULL = the file's default_task, if
     * there is a mask of that name; "" = none. What a mask switches off is neither read nor
     * computed. */
    const char *task;
    /* Id of the skill (CMF 9) whose tensors stand in for the backbone's, one by one, nothing is
     * copied; NULL or "" = none. Its input_mask_task is active unless `task` is given. */
    const char *skill;
} caisson_session_options;

/* Errors: CAISSON_E_ARG, _NOMEM, _UNSUPPORTED (text_only model), _MISSING (no mask `task`: want
 * lists those that there are), _PARSE (the mask does not fit a layer). */
CAISSON_API caisson_status caisson_session_new(caisson_model *model,
                                               const caisson_session_options *options,
                                               caisson_session **ret, caisson_error *err);
CAISSON_API void caisson_session_free(caisson_session *session); /* NULL is fine */

/* The task mask that is active; false: none. */
typedef struct caisson_task_info {
    const char *name; /* [name_n], good as long as the model */
    size_t name_n;
    bool is_measured; /* the file tells what the mask costs in quality */
} caisson_task_info;
CAISSON_API bool caisson_session_task(const caisson_session *session, caisson_task_info *ret);

CAISSON_API uint32_t caisson_session_n_ctx(const caisson_session *session);
CAISSON_API uint32_t caisson_session_n_threads(const caisson_session *session);
/* Tokens seen so far. */
CAISSON_API uint32_t caisson_session_n_past(const caisson_session *session);
/* Their ids, [n_past]; good until the next call that changes the session. */
CAISSON_API const int32_t *caisson_session_tokens(const caisson_session *session);
/* Forgets all tokens from position n on; n > n_past is CAISSON_E_ARG. */
CAISSON_API caisson_status caisson_session_truncate(caisson_session *session, uint32_t n,
                                                    caisson_error *err);

/* One row of logits, [n_vocab] f32, good until the callback returns. i counts the rows of this
 * call from 0. Anything but CAISSON_OK ends the evaluation with that status. */
typedef caisson_status (*caisson_row_fn)(void *ctx, uint32_t i, const float *logits);

/* Appends n >= 1 tokens. on_row == NULL: only the last one's logits are computed, see
 * caisson_session_logits. Otherwise on_row gets every token's logits, in order.
 *
 * Errors: CAISSON_E_CONTEXT (want = n_ctx, got = tokens needed; nothing was computed), _ARG (an id
 * outside the vocabulary), _CANCELLED, _IO, _NOMEM. After an error the session is as before. */
CAISSON_API caisson_status caisson_session_eval(caisson_session *session, const int32_t *ids,
                                                size_t n, caisson_row_fn on_row, void *ctx,
                                                caisson_error *err);
/* Logits that follow the last token of the last eval without on_row: [n_vocab] f32, good until the
 * session changes; NULL if there are none. */
CAISSON_API const float *caisson_session_logits(const caisson_session *session);

/* The state of a session as a file, in the form of WARP's engine, for models whose layers are all
 * KDA or latent attention. The old file stands until the new one is whole. Errors:
 * CAISSON_E_UNSUPPORTED (another model; keys in q8_0), _ARG (an empty session), _IO, _NOMEM. */
CAISSON_API caisson_status caisson_session_save(caisson_session *session, const char *path,
                                                caisson_error *err);
/* Goes on where the session of the file was: it tells no tokens (caisson_session_tokens has -1 for
 * them) and no logits, and nobody can truncate it but to 0, which is also all that is left to one
 * with KDA layers after an evaluation that failed or was cancelled. The file does not name its
 * model: another one of the same shapes takes it. A file that is refused leaves the session as it
 * was, one that cannot be read to the end leaves it empty. Errors: CAISSON_E_MAGIC, _VERSION,
 * _BOUNDS, _PARSE (another shape; a number that is not finite), _CONTEXT (longer than the context),
 * _UNSUPPORTED as above, _IO, _NOMEM. */
CAISSON_API caisson_status caisson_session_load(caisson_session *session, const char *path,
                                                caisson_error *err);

/* What was read of routed experts since the model was opened. */
#define CAISSON_EXPERT_GUESSES 16 /* for one layer and token */
typedef struct caisson_expert_stats {
    uint32_t n_layers;     /* that have routed experts; 0: nothing is streamed */
    uint32_t layer;        /* whose figures these are; all together: 0 */
    uint64_t hits, misses; /* experts that were in memory when they were wanted, or not */
    uint64_t reads, bytes; /* of what was missing */
    uint64_t ahead_reads, ahead_bytes;           /* on a guess */
    uint64_t ahead_used_reads, ahead_used_bytes; /* of those, what was wanted later */
    /* The next layer's experts as they were guessed, the best first, and which of them it wanted.
     */
    uint64_t guessed[CAISSON_EXPERT_GUESSES], guessed_right[CAISSON_EXPERT_GUESSES];
    double stall_s; /* generation waited for a read */
    double read_s;  /* at least one read was under way */
    const char *io; /* how: "io_uring, direct", ...; good as long as the model */
    uint64_t cache_bytes;
} caisson_expert_stats;
/* i_layer: of those that have routed experts, in rising order; UINT32_MAX = all together. Errors:
 * CAISSON_E_ARG (no such layer). */
CAISSON_API caisson_status caisson_model_expert_stats(const caisson_model *model, uint32_t i_layer,
                                                      caisson_expert_stats *ret,
                                                      caisson_error *err);

/* What was read of layers and head since the model was opened (stream_trunk). */
typedef struct caisson_trunk_stats {
    uint32_t n_parts; /* layers and the head; 0: nothing is streamed */
    uint32_t n_kept;  /* of them, those that stay in memory */
    uint64_t reads, bytes;
    double stall_s; /* generation waited for a read */
    const char *io; /* how: "direct", "buffered: ..."; good as long as the model */
} caisson_trunk_stats;
CAISSON_API caisson_status caisson_model_trunk_stats(const caisson_model *model,
                                                     caisson_trunk_stats *ret, caisson_error *err);

/* Notes in usage.waste, in the model's directory, which experts are in memory and how often they
 * were used: the next open reads those first. Errors: CAISSON_E_UNSUPPORTED (the model is no
 * .waste), _IO, _NOMEM. */
CAISSON_API caisson_status caisson_model_save_usage(caisson_model *model, caisson_error *err);

/* Asks the call that now runs on the session to stop; it returns CAISSON_E_CANCELLED within one
 * layer of one batch. May be called from any thread and from a signal handler. */
CAISSON_API void caisson_session_cancel(caisson_session *session);

#ifdef __cplusplus
}
#endif
#endif
