/* SPDX-License-Identifier: Apache-2.0 */
/* A model as a Hugging Face directory. */
#include "caisson/rewrite.h"

#include "base/alloc.h"
#include "convert/export.h"
#include "inspect_internal.h"

typedef struct bridge {
    const caisson_export_options *o;
} bridge;

static void on_log(void *ctx, csn_log_level level, const char *line) {
    const caisson_export_options *o = ((bridge *)ctx)->o;
    o->on_log(o->ctx, level == CSN_LOG_INFO ? CAISSON_LOG_INFO : CAISSON_LOG_WARN, line);
}

static caisson_status find_type(const char *name, const csn_dtype **ret, caisson_error *err) {
    static const char *const plain[] = {"f32", "f16", "bf16"};
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        if (name == NULL || strcmp(name, plain[i]) == 0) {
            *ret = csn_dtype_by_name(csn_str_from(plain[i]));
            return CAISSON_OK;
        }
    }
    return csn_api_bad_arg(err, "a checkpoint's type is f32, f16 or bf16");
}

caisson_status caisson_export(const char *source, const char *directory,
                              const caisson_export_options *options, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(source != NULL && directory != NULL, err, "source and directory must not be NULL");
    caisson_export_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    bridge b = {&o};
    csn_progress progress = {o.on_progress, o.ctx};
    csn_log log = {o.on_log != NULL ? on_log : NULL, &b, CSN_LOG_INFO};
    csn_export_options eo = {.skill = csn_str_from(o.skill),
                             .shard_max_bytes = o.shard_max_bytes,
                             .overwrite = o.overwrite,
                             .n_threads = o.n_threads,
                             .progress = &progress,
                             .log = &log};
    caisson_open_options oo = {.struct_size = sizeof(oo), .guard_mappings = true, .verify = true};
    caisson_file *f;
    CSN_TRY(find_type(o.dtype, &eo.dtype, err));
    CSN_TRY(caisson_file_open(source, &oo, &f, err));
    caisson_status status = csn_export(f->store, csn_fs_os(), directory, &eo, err);
    caisson_file_close(f);
    if (status != CAISSON_OK) {
        csn_error_file(err, source);
    }
    return status;
}
