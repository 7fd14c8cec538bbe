/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/synth.h"

#include "api_internal.h"
#include "caisson/synth.h"

bool caisson_synth_name(uint32_t i, const char **family, const char **size) {
    return csn_synth_name(i, family, size);
}

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    const caisson_synth_options *o = ctx;
    return o->on_progress == NULL || o->on_progress(o->ctx, stage, done, total);
}

caisson_status caisson_synth(const char *target, const caisson_synth_options *options,
                             caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(target != NULL, err, "target must not be NULL");
    caisson_synth_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    CSN_API_NEED(o.family != NULL, err, "family must not be NULL");
    csn_progress progress = {on_progress, &o};
    csn_synth_options so = {
        .family = csn_str_from(o.family),
        .size = csn_str_from(o.size != NULL ? o.size : "small"),
        .seed = o.seed,
        .n_layers = o.n_layers,
        .quant = csn_str_from(o.quant),
        .n_threads = o.n_threads,
        .overwrite = o.overwrite,
        .progress = &progress,
    };
    return csn_synth(csn_fs_os(), target, &so, err);
}
