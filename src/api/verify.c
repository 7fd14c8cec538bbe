/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the bytes of a model are what they were. */
#include "caisson/inspect.h"

#include "api_internal.h"

typedef struct verify_bridge {
    const caisson_verify_options *o;
    const char *path;
    uint64_t n;
} verify_bridge;

static void on_fault(void *ctx, const caisson_error *fault) {
    verify_bridge *b = ctx;
    b->n++;
    if (b->o->on_fault != NULL) {
        caisson_error copy = *fault;
        csn_error_file(&copy, b->path);
        b->o->on_fault(b->o->ctx, &copy);
    }
}

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    const caisson_verify_options *o = ((verify_bridge *)ctx)->o;
    return o->on_progress == NULL || o->on_progress(o->ctx, stage, done, total);
}

static void on_note(void *ctx, const caisson_error *note) {
    const caisson_verify_options *o = ((verify_bridge *)ctx)->o;
    if (o->on_note != NULL) {
        o->on_note(o->ctx, note);
    }
}

/* The signature beside the file: a fault when it is wrong, or missing though asked for. */
static caisson_status verify_signature(verify_bridge *b, csn_file *f, caisson_error *err) {
    uint8_t want[CSN_ED25519_KEY_BYTES];
    uint8_t key[CSN_ED25519_KEY_BYTES];
    csn_file_stamp stamp = {0};
    caisson_error fault;
    bool is_asked_for = b->o->require_signature != NULL;
    bool is_there;
    CSN_TRY(csn_signature_exists(csn_fs_os(), b->path, &is_there, err));
    if (!is_asked_for && !is_there) {
        return CAISSON_OK;
    }
    if (is_asked_for) {
        CSN_TRY(csn_api_key(b->o->require_signature, want, err));
    }
    csn_progress progress = {on_progress, b};
    caisson_status status = csn_signature_check(csn_fs_os(), b->path, f, is_asked_for ? want : NULL,
                                                &progress, key, &stamp, &fault);
    if (status == CAISSON_E_NOMEM || status == CAISSON_E_CANCELLED) {
        *err = fault;
        return status;
    }
    if (status != CAISSON_OK) {
        on_fault(b, &fault);
    } else if (b->o->on_signature != NULL) {
        caisson_public_key hex = csn_api_key_hex(key);
        b->o->on_signature(b->o->ctx, &hex);
    }
    return CAISSON_OK;
}

/* A file that is no .cmf at all may be signed all the same. */
static caisson_status verify_signature_alone(verify_bridge *b, caisson_error *err) {
    csn_file *f;
    caisson_error ignored; /* told already: the container could not be opened */
    if (csn_fs_open(csn_fs_os(), b->path, CSN_OPEN_READ, &f, &ignored) != CAISSON_OK) {
        return CAISSON_OK;
    }
    caisson_status status = verify_signature(b, f, err);
    csn_file_close(f);
    return status;
}

static caisson_status open_to_verify(verify_bridge *b, csn_cmf **ret, caisson_error *err) {
    csn_file *f;
    CSN_TRY(csn_fs_open(csn_fs_os(), b->path, CSN_OPEN_READ, &f, err));
    return csn_cmf_open_damaged(f, on_fault, b, ret, err);
}

/* A shard is verified alone; what keeps its model from opening is told on the side. */
static caisson_status note_shards(verify_bridge *b, const csn_cmf *cmf, caisson_error *err) {
    caisson_error note;
    csn_cmf *model;
    if (!cmf->has_shard_block) {
        return CAISSON_OK;
    }
    caisson_status status = csn_cmf_open_model(csn_fs_os(), b->path, NULL, NULL, &model, &note);
    if (status == CAISSON_OK) {
        csn_cmf_close(model);
    } else if (status == CAISSON_E_NOMEM) {
        *err = note;
        return status;
    } else {
        on_note(b, &note);
    }
    return CAISSON_OK;
}

static caisson_status verify_cmf(verify_bridge *b, csn_pool *pool, caisson_error *err) {
    caisson_error fault;
    csn_cmf *cmf;
    caisson_status status = open_to_verify(b, &cmf, &fault);
    if (status == CAISSON_E_NOMEM) {
        *err = fault;
        return status;
    }
    if (status != CAISSON_OK) {
        on_fault(b, &fault);
        return verify_signature_alone(b, err);
    }
    csn_progress progress = {on_progress, b};
    uint64_t n;
    status = csn_cmf_verify(cmf, pool, &progress, on_fault, b, &n, err);
    if (status == CAISSON_OK) {
        status = csn_cmf_note(cmf, on_note, b, err);
    }
    if (status == CAISSON_OK) {
        status = note_shards(b, cmf, err);
    }
    if (status == CAISSON_OK) {
        status = verify_signature(b, cmf->file, err);
    }
    csn_cmf_close(cmf);
    return status;
}

static caisson_status plan_warp(csn_store *store, caisson_error *err) {
    csn_arena arena = {0};
    csn_plan plan;
    csn_stream *stream;
    CSN_TRY(csn_stream_new(store, &(csn_stream_options){0}, &stream, err));
    csn_store_set_stream(store, stream);
    csn_store_set_dry(store, true);
    caisson_status status = csn_plan_make(store, NULL, 0, &arena, &plan, err);
    csn_arena_done(&arena);
    return status;
}

/* The tensors that config asks for are part of the format: one that is missing, or of another
 * shape, is a fault. What only this build cannot run is told on the side. Closes `w`. */
static caisson_status verify_tensors(verify_bridge *b, csn_warp *w, caisson_error *err) {
    csn_store *store;
    caisson_error fault;
    caisson_status status =
        csn_store_new_warp(w, &(csn_store_options){.reads_rows = true}, &store, &fault);
    if (status == CAISSON_OK) {
        status = plan_warp(store, &fault);
        csn_store_free(store);
    } else {
        csn_warp_close(w);
    }
    if (status == CAISSON_E_NOMEM) {
        *err = fault;
        return status;
    }
    if (status == CAISSON_E_UNSUPPORTED) {
        csn_error_file(&fault, b->path);
        on_note(b, &fault);
    } else if (status != CAISSON_OK) {
        on_fault(b, &fault);
    }
    return CAISSON_OK;
}

static caisson_status verify_warp(verify_bridge *b, csn_pool *pool, caisson_error *err) {
    caisson_error fault;
    csn_warp *w;
    caisson_status status = csn_warp_open(csn_fs_os(), b->path, NULL, &w, &fault);
    if (status == CAISSON_E_NOMEM) {
        *err = fault;
        return status;
    }
    if (status == CAISSON_OK) {
        csn_progress progress = {on_progress, b};
        status = csn_warp_verify(w, pool, &progress, on_fault, on_note, b, err);
        if (status != CAISSON_OK) {
            csn_warp_close(w);
            return status;
        }
        CSN_TRY(verify_tensors(b, w, err));
    } else {
        on_fault(b, &fault);
    }
    if (b->o->require_signature != NULL) {
        (void)CSN_FAIL(&fault, CAISSON_E_SIGNATURE, .file = b->path,
                       .what = "a .waste directory has no signature: it is many files");
        on_fault(b, &fault);
    }
    return CAISSON_OK;
}

caisson_status caisson_verify(const char *path, const caisson_verify_options *options,
                              uint64_t *ret_n_faults, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && ret_n_faults != NULL, err,
                 "path and ret_n_faults must not be NULL");
    caisson_verify_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    csn_pool *pool;
    CSN_TRY(csn_pool_new(o.n_threads, &pool, err));
    verify_bridge b = {.o = &o, .path = path};
    caisson_status status =
        csn_warp_is(csn_fs_os(), path) ? verify_warp(&b, pool, err) : verify_cmf(&b, pool, err);
    csn_pool_free(pool);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        return status;
    }
    *ret_n_faults = b.n;
    return CAISSON_OK;
}

caisson_status caisson_write_digests(const char *path, const caisson_verify_options *options,
                                     caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL, err, "path must not be NULL");
    caisson_verify_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    if (!csn_warp_is(csn_fs_os(), path)) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = path,
                        .what = "digests lie beside a .waste directory only: a .cmf holds its own");
    }
    csn_warp *w;
    verify_bridge b = {.o = &o, .path = path};
    csn_progress progress = {on_progress, &b};
    CSN_TRY(csn_warp_open(csn_fs_os(), path, NULL, &w, err));
    caisson_status status = csn_warp_write_digests(w, &progress, err);
    csn_warp_close(w);
    return status;
}
