/* SPDX-License-Identifier: Apache-2.0 */
/* A .cmf file, or all shards of one, as a source: its directory is the plan, and what is no weight
 * is kept as it is. */
#include "convert/plan.h"

caisson_status csn_source_read_cmf(csn_source *s, csn_fs *fs, const char *path,
                                   caisson_error *err) {
    CSN_TRY(csn_cmf_open_model(fs, path, NULL, NULL, &s->cmf, err));
    csn_cmf *c = s->cmf;
    s->n_files = c->n_files;
    CSN_TRY(CSN_ARENA_NEW(&s->arena, s->n_files, &s->files, err));
    for (uint32_t i = 0; i < s->n_files; i++) {
        s->files[i] = csn_cmf_file_of(c, i)->file;
    }
    s->dir = &c->dir;
    s->arch = c->arch;
    s->chat_template = c->chat.chat_template;
    CSN_TRY(csn_cmf_read_section(c, CSN_CMF_VOCAB, &s->tokenizer, err));
    CSN_TRY(csn_cmf_check_section(c, CSN_CMF_VOCAB, csn_buf_view(&s->tokenizer), err));
    CSN_TRY(csn_cmf_read_section(c, CSN_CMF_MASKS, &s->masks, err));
    return csn_cmf_check_section(c, CSN_CMF_MASKS, csn_buf_view(&s->masks), err);
}

caisson_status csn_convert_plan_cmf(const csn_source *s, csn_arena *arena, csn_convert_plan *ret,
                                    caisson_error *err) {
    csn_convert_plan plan = {.n = s->dir->n};
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)plan.n + 1, &plan.items, err));
    for (uint32_t i = 0; i < plan.n; i++) {
        const csn_tensor *t = &s->dir->tensors[i];
        plan.items[i] = (csn_convert_item){.name = t->name, .source = t, .shape = t->shape};
    }
    *ret = plan;
    return CAISSON_OK;
}

void csn_source_tell_masks(const csn_cmf *cmf, const char *target, const csn_log *log) {
    if (cmf->masks.default_task.len > 0) {
        CSN_WARN(log,
                 "the task mask \"%.*s\", which the file runs with, stays behind: %s has no masks "
                 "and runs dense",
                 CSN_STR_ARGS(cmf->masks.default_task), target);
    } else if (cmf->masks.n > 0) {
        CSN_WARN(log, "the file's task masks stay behind: %s has none", target);
    }
}
