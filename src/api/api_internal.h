/* SPDX-License-Identifier: Apache-2.0 */
/* What the public functions share: the structs behind the opaque pointers, the copying of options
 * structs, and the sentence of a wrong argument.
 */
#ifndef CSN_API_API_INTERNAL_H
#define CSN_API_API_INTERNAL_H

#include "caisson.h"

#include "base/crypto.h"
#include "base/log.h"
#include "engine/calibrate.h"
#include "engine/dynamic.h"
#include "engine/memplan.h"
#include "engine/session.h"
#include "format/cmf/cmf.h"
#include "format/signature.h"
#include "format/warp/warp.h"
#include "model/model.h"
#include "store/store.h"
#include "store/stream.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

enum { CSN_API_MAX_TRUSTED = CSN_CMF_N_SPECIAL_TOKENS + 2 };

/* A model's files, of one kind or the other. */
typedef struct csn_api_container {
    csn_cmf *cmf;
    csn_warp *warp;
} csn_api_container;

struct caisson_model {
    csn_api_container files; /* owned by `store` once that exists */
    const csn_arch *arch;
    const csn_chat_bundle *chat;
    csn_store *store;         /* owned by `model` once that exists */
    csn_model *model;         /* NULL with text_only */
    csn_tokenizer *tokenizer; /* NULL: none */
    csn_template *tmpl;       /* NULL without a tokenizer and with no_chat */
    bool has_template;
    csn_ids eos;
    csn_str trusted[CSN_API_MAX_TRUSTED][2]; /* template variables that are control text */
    size_t n_trusted;
    char *path;
    csn_arena arena;
};

struct caisson_session {
    caisson_model *model;
    csn_session *session;
    csn_ids seen;         /* the tokens that the session holds */
    csn_dynamic *dynamic; /* or NULL; with what it was asked for */
    caisson_dynamic_options dynamic_options;
    uint32_t n_threads;
    _Atomic int cancelled;
};

/* Copies the caller's options into *ret (known bytes): NULL gives zeros, an older and shorter
 * struct is filled up with zeros, a newer one must have zeros where we know nothing. */
caisson_status csn_api_options(const void *given, size_t known, void *ret, caisson_error *err);

/* What a text makes the weights read, without a mask or skill, in f32 arithmetic. The names in *ret
 * are the model's memory. */
caisson_status csn_api_calibrate(caisson_model *model, const char *text, size_t n,
                                 uint32_t n_threads, const csn_progress *progress,
                                 csn_calibration *ret, caisson_error *err);

caisson_status csn_api_bad_arg(caisson_error *err, const char *what);

/* The caller may pass NULL; inside the library err is never NULL. */
#define CSN_API_ERR(err)                                                                           \
    caisson_error csn_api_scratch_;                                                                \
    if ((err) == NULL) {                                                                           \
        (err) = &csn_api_scratch_;                                                                 \
    }

#define CSN_API_NEED(cond, err, text)                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return csn_api_bad_arg((err), (text));                                                 \
        }                                                                                          \
    } while (0)

/* CAISSON_E_UNSUPPORTED with the sentence for a model without tokenizer. */
caisson_status csn_api_no_tokenizer(const caisson_model *model, caisson_error *err);

/* CAISSON_E_UNSUPPORTED with the sentence for a model opened with text_only. */
caisson_status csn_api_cannot_run(const caisson_model *model, caisson_error *err);

/* ---- skills that change within an answer (skill.c); nothing happens without s->dynamic ---- */
caisson_status csn_api_dynamic_begin(caisson_session *s, caisson_error *err);
caisson_status csn_api_dynamic_token(caisson_session *s, const csn_progress *progress,
                                     caisson_error *err);

/* A tensor type that can be written; CAISSON_E_ARG (convert.c). */
caisson_status csn_api_find_quant(const char *name, const csn_dtype **ret, caisson_error *err);

/* ---- signatures (sign.c) ---- */
caisson_status csn_api_key(const char *hex, uint8_t ret[CSN_ED25519_KEY_BYTES], caisson_error *err);
caisson_public_key csn_api_key_hex(const uint8_t key[CSN_ED25519_KEY_BYTES]);
/* The files of a model as they were when their signatures were checked; zeroed = none yet. */
typedef struct csn_api_signed {
    struct csn_api_signed_file {
        csn_file *file; /* the reader's */
        csn_file_stamp stamp;
    } * files; /* [n] */
    size_t n;
} csn_api_signed;
/* Opens `path`, whichever kind it is. */
caisson_status csn_api_open_container(const char *path, const caisson_open_options *o,
                                      csn_api_container *ret, csn_api_signed *files,
                                      caisson_error *err);
/* Takes ownership of the container on success. */
caisson_status csn_api_store(const csn_api_container *c, const caisson_open_options *o,
                             csn_store **ret, caisson_error *err);
/* Routed experts of a .waste are always fetched, those of a .cmf under a budget, which is then kept
 * by the session too: *ret, otherwise left alone. */
caisson_status csn_api_stream(csn_store *store, const caisson_open_options *o,
                              csn_memplan_share *ret, caisson_error *err);
csn_kv_type csn_api_kv_type(caisson_kv_type type); /* of a valid one (common.c) */
/* csn_memplan_make for the public types; CAISSON_E_ARG for one that does not exist (plan.c). */
caisson_status csn_api_memplan(csn_store *store, uint32_t n_ctx, caisson_kv_type type_k,
                               caisson_kv_type type_v, const csn_memplan_skills *skills,
                               csn_memplan *ret, caisson_error *err);
void csn_api_container_close(csn_api_container *c); /* of a zeroed one too */
/* What only a .cmf has; CAISSON_E_UNSUPPORTED for another container. */
caisson_status csn_api_need_cmf(const caisson_model *model, const csn_cmf **ret,
                                caisson_error *err);

/* csn_cmf_open_model, each file after its signature when o->require_signature asks for one. */
caisson_status csn_api_open_cmf(const char *path, const caisson_open_options *o, csn_cmf **ret,
                                csn_api_signed *files, caisson_error *err);
/* At the end of an open: are they still those files? */
caisson_status csn_api_still_signed(const csn_api_signed *files, caisson_error *err);
void csn_api_signed_done(csn_api_signed *files);

/* SHA-256 of n bytes as text. */
caisson_status csn_api_sha256_hex(const void *bytes, size_t n, char ret[2 * CSN_SHA256_BYTES + 1],
                                  caisson_error *err);

/* Moves a buffer's bytes to the caller (caisson_text_free frees them). */
caisson_text csn_api_take_text(csn_buf *buf);

#endif
