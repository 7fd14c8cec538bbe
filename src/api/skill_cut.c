/* SPDX-License-Identifier: Apache-2.0 */
/* Skills by themselves: cut from a model, laid over a base. */
#include "convert/skill_cut.h"

#include "api_internal.h"
#include "caisson/skill.h"

static bool on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    const caisson_skill_cut_options *o = ctx;
    return o->on_progress == NULL || o->on_progress(o->ctx, stage, done, total);
}

static caisson_status take_options(const caisson_skill_cut_options *given,
                                   caisson_skill_cut_options *ret, caisson_error *err) {
    return csn_api_options(given, sizeof(*ret), ret, err);
}

caisson_status caisson_skill_export(const char *path, const char *base, const char *id,
                                    const char *target, const caisson_skill_cut_options *options,
                                    caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && id != NULL && target != NULL, err,
                 "path, id and target must not be NULL");
    caisson_skill_cut_options o;
    CSN_TRY(take_options(options, &o, err));
    csn_progress progress = {on_progress, &o};
    csn_skill_cut_options cut = {
        .name = csn_str_from(o.name), .overwrite = o.overwrite, .progress = &progress};
    csn_cmf *model;
    csn_cmf *other = NULL;
    CSN_TRY(csn_cmf_open_model(csn_fs_os(), path, NULL, NULL, &model, err));
    caisson_status s =
        base != NULL ? csn_cmf_open_model(csn_fs_os(), base, NULL, NULL, &other, err) : CAISSON_OK;
    if (s == CAISSON_OK) {
        s = csn_skill_cut(csn_fs_os(), model, other != NULL ? other : model, csn_str_from(id),
                          target, &cut, err);
    }
    csn_cmf_close(other);
    csn_cmf_close(model);
    if (s != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return s;
}

caisson_status caisson_skill_apply(const char *base, const char *skill, const char *target,
                                   const caisson_skill_cut_options *options, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(base != NULL && skill != NULL && target != NULL, err,
                 "base, skill and target must not be NULL");
    caisson_skill_cut_options o;
    CSN_TRY(take_options(options, &o, err));
    csn_progress progress = {on_progress, &o};
    csn_skill_apply_options apply = {
        .force = o.force, .overwrite = o.overwrite, .progress = &progress};
    csn_cmf *b;
    csn_cmf *s = NULL;
    CSN_TRY(csn_cmf_open_model(csn_fs_os(), base, NULL, NULL, &b, err));
    caisson_status status = csn_cmf_open(csn_fs_os(), skill, &s, err);
    if (status == CAISSON_OK) {
        status = csn_skill_apply(csn_fs_os(), b, s, target, &apply, err);
    }
    csn_cmf_close(s);
    csn_cmf_close(b);
    if (status != CAISSON_OK) {
        csn_error_file(err, base);
    }
    return status;
}
