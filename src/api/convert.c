/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion: names of tensor types become table rows, reports become C strings. */
#include "convert/convert.h"

#include <string.h>

#include "api_internal.h"

const char *caisson_quant_name(uint32_t i) {
    for (const csn_dtype *const *d = csn_dtypes; *d != NULL; d++) {
        bool writable = (*d)->encode != NULL && (*d)->cmf_id != CSN_NO_ID && (*d)->decode != NULL;
        if (writable && i-- == 0) {
            return (*d)->name;
        }
    }
    return NULL;
}

caisson_status csn_api_find_quant(const char *name, const csn_dtype **ret, caisson_error *err) {
    const csn_dtype *d = name != NULL ? csn_dtype_by_name(csn_str_from(name)) : NULL;
    if (d == NULL || d->encode == NULL || d->cmf_id == CSN_NO_ID) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "not a tensor type that can be written",
                        .got = csn_str_from(name != NULL ? name : "NULL"));
    }
    *ret = d;
    return CAISSON_OK;
}

/* Spelled as in the command's option. */
static caisson_status find_bits_over(const char *name, csn_bits_over *ret, caisson_error *err) {
    static const char *const names[] = {"tensor", "experts", "layers"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (name == NULL || strcmp(name, names[i]) == 0) {
            *ret = (csn_bits_over)i;
            return CAISSON_OK;
        }
    }
    return CSN_FAIL(err, CAISSON_E_ARG, .what = "bits_over must be tensor, experts or layers",
                    .got = csn_str_from(name));
}

typedef struct bridge {
    const caisson_convert_options *o;
    uint32_t n_files; /* 0: it is no .cmf */
} bridge;

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    const caisson_convert_options *o = ((bridge *)ctx)->o;
    return o->on_progress == NULL || o->on_progress(o->ctx, stage, done, total);
}

static void on_log(void *ctx, csn_log_level level, const char *line) {
    const caisson_convert_options *o = ((bridge *)ctx)->o;
    o->on_log(o->ctx, (caisson_log_level)level, line);
}

/* A name as a C string in a buffer of n bytes; tensor names are at most 64 KiB, of which a report
 * shows the first part. */
static const char *c_string(csn_str s, char *buf, size_t n) {
    size_t k = s.len < n - 1 ? s.len : n - 1;
    if (k > 0) {
        memcpy(buf, s.ptr, k);
    }
    buf[k] = '\0';
    return buf;
}

static void on_tensor(void *ctx, const csn_convert_report *r) {
    const caisson_convert_options *o = ((bridge *)ctx)->o;
    char name[1024];
    char source_name[1024];
    caisson_tensor_report report = {
        .name = c_string(r->name, name, sizeof(name)),
        .source_name = c_string(r->source_name, source_name, sizeof(source_name)),
        .from = r->from,
        .to = r->to,
        .n_dims = r->shape.n_dims,
        .n_bytes = r->nbytes,
        .relative_error = r->relative_error,
        .source_is_coarser = r->source_is_coarser,
        .kept_f32 = r->kept_f32,
    };
    for (uint32_t i = 0; i < r->shape.n_dims; i++) {
        report.shape[i] = r->shape.dim[i];
    }
    o->on_tensor(o->ctx, &report);
}

static void on_files(void *ctx, uint32_t n) {
    ((bridge *)ctx)->n_files = n;
}

/* What was written is told as our reader finds it. */
static caisson_status tell_written(const bridge *b, const char *source, const char *target,
                                   caisson_error *err) {
    csn_buf path = CSN_BUF_INIT(1 << 16);
    csn_cmf *c = NULL;
    caisson_status status = target == NULL
                                ? csn_buf_str(&path, csn_str_from(source), err)
                                : csn_cmf_set_file_name(target, 0, b->n_files, &path, err);
    if (status == CAISSON_OK) {
        status = csn_cmf_open_model(csn_fs_os(), path.ptr, NULL, NULL, &c, err);
    }
    if (status == CAISSON_OK) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < c->n_files; i++) {
            n += csn_cmf_file_of(c, i)->envelope.file_bytes;
        }
        b->o->on_written(b->o->ctx, path.ptr, c->n_files, n);
    }
    csn_cmf_close(c);
    csn_buf_free(&path);
    return status;
}

static caisson_status make_rules(const caisson_convert_options *o, csn_arena *arena,
                                 csn_convert_rule **ret, caisson_error *err) {
    CSN_TRY(CSN_ARENA_NEW(arena, o->n_rules + 1, ret, err));
    for (size_t i = 0; i < o->n_rules; i++) {
        CSN_API_NEED(o->rules[i].pattern != NULL, err, "the pattern of a rule must not be NULL");
        (*ret)[i].pattern = csn_str_from(o->rules[i].pattern);
        CSN_TRY(csn_api_find_quant(o->rules[i].quant, &(*ret)[i].dtype, err));
    }
    return CAISSON_OK;
}

static caisson_status check_options(const char *target, const caisson_convert_options *o,
                                    bool wants_warp, caisson_error *err) {
    CSN_API_NEED(target != NULL || o->shard_max_bytes == 0, err,
                 "a file cannot be cut into shards in its place");
    CSN_API_NEED(o->n_rules == 0 || o->rules != NULL, err, "rules must not be NULL");
    CSN_API_NEED(o->n_rules <= UINT32_MAX, err, "too many rules");
    CSN_API_NEED(o->mean_bits == 0 || (o->mean_bits >= 3 && o->mean_bits <= 8), err,
                 "mean_bits must be 0 or within 3 and 8");
    CSN_API_NEED(o->outliers <= 0.25, err, "outliers must be 0.25 at most");
    CSN_API_NEED(!wants_warp || (o->quant == NULL && o->n_rules == 0 && o->shard_max_bytes == 0 &&
                                 o->calibrate == NULL),
                 err, "quant, rules, shards and calibration are for .cmf files");
    CSN_API_NEED(wants_warp || (o->expert_quant == NULL && o->trunk_bits == 0), err,
                 "expert_quant and trunk_bits are for WARP directories");
    CSN_API_NEED(o->trunk_bits == 0 || o->trunk_bits == 4 || o->trunk_bits == 8, err,
                 "trunk_bits must be 4 or 8");
    return CAISSON_OK;
}

/* *ret_model: the names in the calibration are its own. */
static caisson_status calibrate(const char *source, const caisson_convert_options *o,
                                csn_progress *progress, caisson_model **ret_model,
                                csn_calibration *ret, caisson_error *err) {
    const caisson_open_options oo = {
        .struct_size = sizeof(oo), .guard_mappings = true, .no_chat = true};
    CSN_TRY(caisson_model_open(source, &oo, ret_model, err));
    return csn_api_calibrate(*ret_model, o->calibrate, o->calibrate_n, o->n_threads, progress, ret,
                             err);
}

caisson_status caisson_convert(const char *source, const char *target,
                               const caisson_convert_options *options, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(source != NULL, err, "source must not be NULL");
    caisson_convert_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    const bool wants_warp = target != NULL && csn_convert_wants_warp(target);
    CSN_TRY(check_options(target, &o, wants_warp, err));
    bridge b = {.o = &o};
    csn_progress progress = {on_progress, &b};
    csn_log log = {o.on_log != NULL ? on_log : NULL, &b, CSN_LOG_INFO};
    csn_convert_options co = {
        .n_rules = (uint32_t)o.n_rules,
        .encode = {.encoder = o.reference_encoder ? CSN_ENCODER_REFERENCE : CSN_ENCODER_SEARCH,
                   .mean_bits = (float)o.mean_bits,
                   .keep = (float)o.outliers},
        .n_threads = o.n_threads,
        .overwrite = o.overwrite,
        .shard_max_bytes = o.shard_max_bytes,
        .expert_quant = csn_str_from(o.expert_quant),
        .trunk_bits = o.trunk_bits,
        .progress = &progress,
        .log = &log,
        .on_tensor = o.on_tensor != NULL ? on_tensor : NULL,
        .on_files = on_files,
        .ctx = &b,
    };
    CSN_TRY(find_bits_over(o.bits_over, &co.bits_over, err));
    if (o.quant != NULL) {
        CSN_TRY(csn_api_find_quant(o.quant, &co.quant, err));
    }
    csn_arena arena = {0};
    csn_convert_rule *rules;
    caisson_model *model = NULL;
    csn_calibration calibration = {0};
    caisson_status status = make_rules(&o, &arena, &rules, err);
    if (status == CAISSON_OK && o.calibrate != NULL) {
        status = calibrate(source, &o, &progress, &model, &calibration, err);
        co.calibration = &calibration;
    }
    if (status == CAISSON_OK) {
        co.rules = rules;
        status = csn_convert(csn_fs_os(), source, target, &co, err);
    }
    if (status == CAISSON_OK && o.on_written != NULL && !wants_warp) {
        status = tell_written(&b, source, target, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, source);
    }
    csn_calibration_done(&calibration);
    caisson_model_close(model);
    csn_arena_done(&arena);
    return status;
}
