/* SPDX-License-Identifier: Apache-2.0 */
/* Source -> plan -> sink, tensor by tensor. Memory: one tensor as f32, its encoded form, and a
 * piece of the source; nothing grows with the model. */
#include "convert/convert.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash64.h"
#include "base/size.h"
#include "caisson/limits.h"
#include "convert/bits_over.h"
#include "convert/header.h"
#include "convert/tensor.h"
#include "convert/to_warp.h"
#include "format/cmf/cmf.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

typedef struct job {
    csn_fs *fs;
    const char *target;     /* NULL: the source, in its place */
    csn_cmf_set *set;       /* where tensors go: new files, */
    csn_cmf_append *append; /* or behind the end of the old one, which is one of */
    csn_cmf_append **grown; /* [source->n_files] */
    const csn_convert_options *o;
    csn_source *source;
    csn_convert_plan plan;
    csn_arena arena;
    csn_pool *pool;
    csn_source_file *files; /* [source->n_files] */
    csn_buf header, piece, fingerprint;
    uint64_t n_done, n_total; /* bytes of source: hashed, then read */
    uint32_t n_unmet;         /* matrices of experts that no token of the calibration chose */
    caisson_error *err;
} job;

static caisson_status tell(void *ctx, uint64_t n_bytes, caisson_error *err) {
    job *j = ctx;
    j->n_done += n_bytes;
    uint64_t done = j->n_done < j->n_total ? j->n_done : j->n_total;
    return csn_progress_tell(j->o->progress, j->source->is_synth ? "synth" : "convert", done,
                             j->n_total, err);
}

/* hash64 of each source file: provenance, and what makes a resume safe. */
static caisson_status hash_files(job *j) {
    csn_source *s = j->source;
    uint64_t n_all = 0, n_done = 0;
    if (s->cmf != NULL) {
        return CAISSON_OK; /* its envelopes and directories say it */
    }
    CSN_TRY(CSN_ARENA_NEW(&j->arena, s->n_files, &j->files, j->err));
    for (uint32_t i = 0; i < s->n_files; i++) {
        CSN_TRY(csn_file_size(s->files[i], &j->files[i].nbytes, j->err));
        n_all += j->files[i].nbytes;
    }
    CSN_TRY(csn_buf_reserve(&j->piece, CSN_PIECE_BYTES, j->err));
    for (uint32_t i = 0; i < s->n_files; i++) {
        const char *slash = strrchr(s->files[i]->path, '/');
        j->files[i].name = csn_str_from(slash != NULL ? slash + 1 : s->files[i]->path);
        csn_hash64_state h;
        csn_hash64_init(&h);
        for (uint64_t off = 0; off < j->files[i].nbytes; off += CSN_PIECE_BYTES) {
            uint64_t left = j->files[i].nbytes - off;
            size_t n = left < CSN_PIECE_BYTES ? (size_t)left : CSN_PIECE_BYTES;
            CSN_TRY(csn_file_read_at(s->files[i], off, j->piece.ptr, n, j->err));
            csn_hash64_add(&h, j->piece.ptr, n);
            n_done += n;
            CSN_TRY(csn_progress_tell(j->o->progress, "hash", n_done, n_all, j->err));
        }
        j->files[i].hash = csn_hash64_end(&h);
    }
    return CAISSON_OK;
}

/* What two runs must share so that one may go on where the other stopped. */
static caisson_status make_fingerprint(job *j) {
    csn_buf *f = &j->fingerprint;
    f->len = 0;
    CSN_TRY(csn_buf_printf(f, j->err, "caisson 3 %d %d %.9g %.9g %016" PRIx64,
                           (int)j->o->encode.encoder, (int)j->o->bits_over,
                           (double)j->o->encode.mean_bits, (double)j->o->encode.keep,
                           csn_hash64(j->header.ptr, j->header.len)));
    for (uint32_t i = 0; i < j->source->n_files; i++) {
        if (j->source->cmf != NULL) {
            const csn_cmf_envelope *e = &csn_cmf_file_of(j->source->cmf, i)->envelope;
            CSN_TRY(csn_buf_printf(f, j->err, " %016" PRIx64 ":%016" PRIx64 ":%" PRIu64,
                                   e->header_hash, e->dir_hash, e->file_bytes));
        } else {
            CSN_TRY(csn_buf_printf(f, j->err, " %" PRIu64 ":%016" PRIx64, j->files[i].nbytes,
                                   j->files[i].hash));
        }
    }
    const csn_calibration *c = j->o->calibration;
    for (uint32_t i = 0; c != NULL && i < c->n; i++) {
        size_t n_bytes = (size_t)c->weights[i].cols * sizeof(double);
        CSN_TRY(csn_buf_printf(f, j->err, " %016" PRIx64,
                               csn_hash64(c->weights[i].sum_squares, n_bytes)));
    }
    return CAISSON_OK;
}

static caisson_status make_writer(job *j, csn_cmf_set **ret, uint32_t *ret_n_done) {
    csn_cmf_plan_tensor *t;
    csn_cmf_plan plan = {.n = j->plan.n,
                         .head_bytes = j->header.len + 512,
                         .vocab_bytes = j->source->tokenizer.len + j->source->masks.len,
                         .sync_bytes = j->o->sync_bytes};
    CSN_TRY(CSN_NEW(j->plan.n, &t, j->err));
    caisson_status status = CAISSON_OK;
    for (uint32_t i = 0; i < j->plan.n && status == CAISSON_OK; i++) {
        const csn_convert_item *item = &j->plan.items[i];
        t[i] = (csn_cmf_plan_tensor){.name = item->name, .dtype = item->to, .shape = item->shape};
        t[i].nbytes = item->source->nbytes;
        if (!item->is_copied) {
            csn_encode_options o = j->o->encode;
            o.bits_bias = item->bits_bias;
            status = csn_encoded_nbytes(item->to, &item->shape, &o, &t[i].nbytes, j->err);
        }
    }
    plan.tensors = t;
    plan.fingerprint = csn_buf_view(&j->fingerprint);
    if (status == CAISSON_OK) {
        status = csn_cmf_set_new(j->fs, j->target, &plan, j->o->shard_max_bytes, ret, ret_n_done,
                                 j->err);
    }
    csn_free(t);
    return status;
}

static bool source_is_coarser(const csn_convert_item *item, uint64_t nbytes) {
    uint64_t n_source = 0, n_ours = 0;
    (void)csn_shape_count(&item->source->shape, &n_source);
    (void)csn_shape_count(&item->shape, &n_ours);
    return n_source > 0 && n_ours > 0 &&
           (double)item->source->nbytes / (double)n_source < (double)nbytes / (double)n_ours;
}

/* True where the encoded bytes are the f32 values as they lie in memory. */
static bool is_plain_f32(const csn_dtype *d) {
    static const union {
        uint32_t u;
        uint8_t first;
    } one = {1};
    return one.first == 1 && d == csn_dtype_by_name(CSN_STR("f32"));
}

/* *ret: [cols] of the calibration, which the caller frees; NULL: it knows nothing of the tensor. */
static caisson_status find_columns(job *j, const csn_convert_item *item, float **ret) {
    *ret = NULL;
    if (j->o->calibration == NULL) {
        return CAISSON_OK;
    }
    const csn_columns *c = csn_calibration_find(j->o->calibration, item->name);
    j->n_unmet += c == NULL && csn_str_find(item->name, CSN_STR(".experts."), 0) != SIZE_MAX;
    if (c == NULL || item->shape.n_dims != 2 || c->cols != item->shape.dim[1]) {
        return CAISSON_OK;
    }
    CSN_TRY(CSN_NEW((size_t)c->cols, ret, j->err));
    csn_columns_rms(c, *ret);
    return CAISSON_OK;
}

/* Encodes x: *ret is in `out`, or x itself where that is the same. CAISSON_E_BOUNDS: its
 * type cannot hold it. */
static caisson_status encode(job *j, const csn_convert_item *item, const float *x, uint64_t n,
                             csn_buf *out, csn_str *ret) {
    if (is_plain_f32(item->to)) {
        *ret = csn_str_make((const char *)x, (size_t)n * sizeof(float));
        return CAISSON_OK;
    }
    csn_encode_options o = j->o->encode;
    o.bits_bias = item->bits_bias;
    float *col_rms = NULL;
    CSN_TRY(find_columns(j, item, &col_rms));
    o.col_rms = col_rms;
    caisson_error e; /* to be kept as f32 is no failure: j->err is left alone */
    caisson_status status = csn_tensor_encode(item->to, &item->shape, x, &o, j->pool, out, &e);
    csn_free(col_rms);
    if (status != CAISSON_OK && status != CAISSON_E_BOUNDS) {
        *j->err = e;
    }
    *ret = csn_buf_view(out);
    return status;
}

static void report(job *j, const csn_convert_item *item, uint64_t nbytes, double error) {
    csn_convert_report r = {.name = item->name,
                            .source_name = item->source->name,
                            .from = item->source->dtype->name,
                            .to = item->to->name,
                            .shape = item->shape,
                            .nbytes = nbytes,
                            .relative_error = error,
                            .source_is_coarser = source_is_coarser(item, nbytes),
                            .kept_f32 = item->kept_f32};
    if (j->o->on_tensor != NULL) {
        j->o->on_tensor(j->o->ctx, &r);
    }
}

static void keep_f32(job *j, csn_convert_item *item) {
    CSN_WARN(j->o->log, "%.*s: a value that %s cannot hold; the tensor stays f32",
             CSN_STR_ARGS(item->name), item->to->is_float ? item->to->name : "f16");
    item->kept_f32 = true;
    item->to = csn_dtype_by_name(CSN_STR("f32"));
}

/* ---- the sink ---- */

static caisson_status put_bytes(job *j, const csn_convert_item *item, csn_str bytes) {
    const csn_cmf_plan_tensor t = {item->name, item->to, item->shape, bytes.len};
    return j->append != NULL ? csn_cmf_append_tensor(j->append, &t, bytes.ptr, bytes.len, j->err)
                             : csn_cmf_set_tensor(j->set, bytes.ptr, bytes.len, j->err);
}

static caisson_status put_as_f32(job *j) {
    return j->append != NULL ? CAISSON_OK : csn_cmf_set_keep_f32(j->set, j->err);
}

static caisson_status copy_tensor(job *j, csn_convert_item *item) {
    const csn_tensor_watch watch = {tell, j};
    if (j->append != NULL) { /* it is there */
        CSN_TRY(tell(j, item->source->nbytes, j->err));
        report(j, item, item->source->nbytes, 0);
        return CAISSON_OK;
    }
    CSN_TRY(csn_tensor_read_payload(j->source, item->source, &watch, &j->piece, j->err));
    CSN_TRY(put_bytes(j, item, csn_buf_view(&j->piece)));
    report(j, item, j->piece.len, 0);
    return CAISSON_OK;
}

static caisson_status convert_tensor(job *j, csn_convert_item *item) {
    csn_tensor_watch watch = {tell, j};
    uint64_t n;
    float *x;
    csn_buf encoded = CSN_BUF_INIT(SIZE_MAX / 2);
    csn_str bytes = {0};
    double error = 0;
    CSN_TRY(csn_tensor_alloc_f32(item, &x, &n, j->err));
    caisson_status status =
        csn_tensor_read_f32(j->source, item, j->pool, &j->piece, &watch, x, j->err);
    if (status == CAISSON_OK) {
        status = encode(j, item, x, n, &encoded, &bytes);
        if (status == CAISSON_E_BOUNDS) {
            /* Rare: a weight beyond 65504, or a row beyond 127 times that. */
            keep_f32(j, item);
            status = put_as_f32(j);
            if (status == CAISSON_OK) {
                status = encode(j, item, x, n, &encoded, &bytes);
            }
        }
    }
    if (status == CAISSON_OK && bytes.ptr != (const char *)x) {
        status = csn_tensor_error(item, bytes, x, n, j->pool, &error, j->err);
    }
    if (status == CAISSON_OK) {
        status = put_bytes(j, item, bytes);
    }
    if (status == CAISSON_OK) {
        report(j, item, bytes.len, error);
    }
    csn_buf_free(&encoded);
    csn_free_aligned(x);
    return status;
}

static caisson_status check_target(const job *j) {
    return j->o->overwrite ? CAISSON_OK : csn_cmf_set_check_absent(j->set, j->err);
}

static void begin_progress(job *j, uint32_t n_done) {
    j->n_done = 0;
    j->n_total = 0;
    for (uint32_t i = 0; i < j->plan.n; i++) {
        uint64_t n_bytes = csn_convert_item_bytes(j->source, &j->plan.items[i]);
        j->n_total += n_bytes;
        j->n_done += i < n_done ? n_bytes : 0;
    }
}

static void tell_begun(job *j, uint32_t n_done) {
    for (uint32_t i = 0; i < j->plan.n; i++) {
        if (csn_cmf_set_dtype(j->set, i) != j->plan.items[i].to) {
            keep_f32(j, &j->plan.items[i]); /* found out by the run that was stopped */
        }
    }
    uint32_t n_files = csn_cmf_set_n_files(j->set);
    if (n_files > 1) {
        CSN_INFO(j->o->log, "writing %u shards", n_files);
    }
    if (j->o->on_files != NULL) {
        j->o->on_files(j->o->ctx, n_files);
    }
    if (n_done > 0) {
        CSN_INFO(j->o->log, "resuming behind %u of %u tensors", n_done, j->plan.n);
    }
}

static caisson_status put_tensor(job *j, csn_convert_item *item) {
    caisson_status status = item->is_copied ? copy_tensor(j, item) : convert_tensor(j, item);
    if (status != CAISSON_OK && status != CAISSON_E_CANCELLED) {
        csn_error_tensor(j->err, item->name);
    }
    return status;
}

static caisson_status put_tensors(job *j, uint32_t n_done) {
    caisson_status status = CAISSON_OK;
    for (uint32_t i = n_done; i < j->plan.n && status == CAISSON_OK; i++) {
        status = put_tensor(j, &j->plan.items[i]);
    }
    if (j->n_unmet > 0) {
        CSN_WARN(j->o->log,
                 "no token of the calibration chose the experts of %u matrices: all their columns "
                 "count alike; a longer text meets more",
                 j->n_unmet);
    }
    return status;
}

static caisson_status run(job *j) {
    uint32_t n_done = 0;
    CSN_TRY(make_fingerprint(j));
    CSN_TRY(make_writer(j, &j->set, &n_done));
    caisson_status status = check_target(j);
    if (status != CAISSON_OK) {
        csn_cmf_set_close(j->set, n_done == 0);
        return status;
    }
    begin_progress(j, n_done);
    tell_begun(j, n_done);
    status = put_tensors(j, n_done);
    if (status == CAISSON_OK) {
        status = check_target(j); /* another conversion may have made it meanwhile */
    }
    if (status == CAISSON_OK) {
        status =
            csn_cmf_set_finish(j->set, csn_buf_view(&j->header), csn_buf_view(&j->source->masks),
                               csn_buf_view(&j->source->tokenizer), j->err);
    }
    csn_cmf_set_close(j->set, j->source->is_synth); /* what is made up is soon made again */
    return status;
}

/* The tensors of one file, and the label of its header: all but the envelope. */
static caisson_status grow_file(job *j, uint32_t i_file) {
    csn_str label = j->o->quant != NULL ? csn_convert_quant_label(j->o->quant) : (csn_str){0};
    const csn_cmf *file = csn_cmf_file_of(j->source->cmf, i_file);
    CSN_TRY(csn_cmf_append_begin(j->fs, file->file->path, &j->grown[i_file], j->err));
    j->append = j->grown[i_file];
    CSN_TRY(csn_cmf_append_check_same(j->append, file, j->err));
    for (uint32_t i = 0; i < j->plan.n; i++) {
        if (j->plan.items[i].source->i_file == i_file) {
            CSN_TRY(put_tensor(j, &j->plan.items[i]));
        }
    }
    j->header.len = 0;
    csn_jw w = csn_jw_begin(&j->header, j->err);
    csn_cmf_header_write(csn_cmf_append_cmf(j->append), label, &w);
    CSN_TRY(csn_jw_end(&w));
    CSN_TRY(csn_cmf_append_header(j->append, csn_buf_view(&j->header), j->err));
    return csn_cmf_append_prepare(j->append, j->err);
}

/* New payloads behind the end of the file; the old ones stay, dead. Writing over them would be no
 * smaller risk for being smaller: whoever has the file open reads them. Of shards all are written
 * before the first is changed: a failure leaves each as it was, and a kill among the envelopes
 * shards of which each is the old one or the new one, which make a model all the same. */
static caisson_status run_in_place(job *j) {
    caisson_status status = CAISSON_OK;
    if (j->source->cmf == NULL) {
        return CSN_FAIL(j->err, CAISSON_E_UNSUPPORTED,
                        .what = "only a .cmf model is changed in its place");
    }
    begin_progress(j, 0);
    CSN_TRY(CSN_ARENA_NEW(&j->arena, j->source->n_files, &j->grown, j->err));
    for (uint32_t i = 0; i < j->source->n_files && status == CAISSON_OK; i++) {
        status = grow_file(j, i);
    }
    for (uint32_t i = 0; i < j->source->n_files && status == CAISSON_OK; i++) {
        status = csn_cmf_append_commit(j->grown[i], j->err);
    }
    for (uint32_t i = 0; i < j->source->n_files; i++) {
        csn_cmf_append_close(j->grown[i]);
    }
    return status;
}

/* What the text rooms will say when the file is opened is better heard now. The file is made all
 * the same: its weights are good, and `run` refuses the rest by name. */
static caisson_status check_text(job *j) {
    const csn_source *s = j->source;
    caisson_error e = {0};
    char line[512];
    csn_tokenizer *tokenizer;
    csn_template *template;
    if (s->tokenizer.len > 0) {
        if (csn_tokenizer_load(csn_buf_view(&s->tokenizer), &tokenizer, &e) == CAISSON_OK) {
            csn_tokenizer_free(tokenizer);
        } else if (e.code == CAISSON_E_NOMEM) {
            *j->err = e;
            return e.code;
        } else {
            CSN_WARN(j->o->log, "the tokenizer cannot be run: %s",
                     caisson_error_format(&e, line, sizeof(line)));
        }
    }
    e = (caisson_error){0};
    if (s->chat_template.len > 0) {
        if (csn_template_compile(s->chat_template, &template, &e) == CAISSON_OK) {
            csn_template_free(template);
        } else if (e.code == CAISSON_E_NOMEM) {
            *j->err = e;
            return e.code;
        } else {
            CSN_WARN(j->o->log, "the chat template cannot be run: %s",
                     caisson_error_format(&e, line, sizeof(line)));
        }
    }
    return CAISSON_OK;
}

/* The description must be one that the reader accepts: told before the work, not after it. */
static caisson_status check_header(job *j) {
    csn_json *doc;
    csn_arch arch;
    CSN_TRY(csn_json_parse(csn_buf_view(&j->header), CSN_JSON_UNIQUE, &doc, j->err));
    csn_arch_init(&arch);
    caisson_status status =
        csn_arch_parse(csn_jval_get(csn_json_root(doc), "arch"), &j->arena, &arch, j->err);
    csn_json_free(doc);
    return status;
}

static caisson_status run_all(job *j) {
    CSN_TRY(csn_convert_plan_make(j->source, j->o->log, &j->arena, &j->plan, j->err));
    CSN_TRY(csn_convert_plan_dtypes(j->source, &j->plan, j->o,
                                    j->err)); /* a bad rule is told before any work */
    CSN_TRY(check_text(j));
    CSN_TRY(csn_pool_new(j->o->n_threads, &j->pool, j->err));
    CSN_TRY(hash_files(j));
    CSN_TRY(csn_convert_header(j->source, j->o->quant, j->files, j->source->n_files, &j->header,
                               j->err));
    CSN_TRY(check_header(j));
    CSN_TRY(csn_convert_share_bits(j->source, &j->plan, j->o, j->pool, &j->piece, j->err));
    return j->target != NULL ? run(j) : run_in_place(j);
}

bool csn_convert_wants_warp(const char *target) {
    csn_str s = csn_str_from(target);
    while (s.len > 0 && s.ptr[s.len - 1] == '/') {
        s.len--;
    }
    return csn_str_ends(s, CSN_STR(".waste"));
}

static caisson_status convert_opened(csn_fs *fs, csn_source *source, const char *target,
                                     const csn_convert_options *options, caisson_error *err) {
    job j = {.fs = fs, .target = target, .o = options, .source = source, .err = err};
    j.header = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    j.piece = CSN_BUF_INIT(SIZE_MAX / 2);
    j.fingerprint = CSN_BUF_INIT(1 << 20);
    caisson_status status = run_all(&j);
    csn_pool_free(j.pool);
    csn_buf_free(&j.header);
    csn_buf_free(&j.piece);
    csn_buf_free(&j.fingerprint);
    csn_arena_done(&j.arena);
    return status;
}

/* Before any work. */
static caisson_status check_new(csn_fs *fs, const char *target, bool overwrite,
                                caisson_error *err) {
    if (!overwrite && fs->ops->exists(fs, target)) {
        return CSN_FAIL(err, CAISSON_E_EXISTS, .file = target,
                        .what = "target exists; say that it may be replaced");
    }
    return CAISSON_OK;
}

caisson_status csn_convert_source(csn_fs *fs, csn_source *source, const char *target,
                                  const csn_convert_options *options, caisson_error *err) {
    CSN_TRY(check_new(fs, target, options->overwrite, err));
    return convert_opened(fs, source, target, options, err);
}

caisson_status csn_convert(csn_fs *fs, const char *source, const char *target,
                           const csn_convert_options *options, caisson_error *err) {
    static const csn_convert_options none = {0};
    const csn_convert_options *o = options != NULL ? options : &none;
    csn_source *s;
    if (target != NULL) {
        CSN_TRY(check_new(fs, target, o->overwrite, err));
    }
    if (target != NULL && csn_convert_wants_warp(target)) {
        return csn_convert_to_warp(fs, source, target, o, err);
    }
    CSN_TRY(csn_source_open(fs, source, o->log, &s, err));
    caisson_status status = convert_opened(fs, s, target, o, err);
    csn_source_close(s);
    return status;
}
