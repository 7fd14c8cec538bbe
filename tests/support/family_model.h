/* SPDX-License-Identifier: Apache-2.0 */
/* The models of tests/golden/families, through our converter. */
#ifndef TESTS_SUPPORT_FAMILY_MODEL_H
#define TESTS_SUPPORT_FAMILY_MODEL_H

#include "convert/convert.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

#define FAMILY_GOLDEN CSN_SOURCE_DIR "/tests/golden/families/"

/* `change`, when not NULL, has the last word on the description. */
static inline csn_model *family_model(const char *family, const char *quant,
                                      void (*change)(csn_arch *arch)) {
    char source[512];
    csn_cmf *cmf;
    csn_store *store;
    const char *target = temp_path("family.cmf");
    caisson_error err = {0};
    snprintf(source, sizeof(source), FAMILY_GOLDEN "%s", family);
    csn_convert_options o = {
        .quant = csn_dtype_by_name(csn_str_from(quant)), .n_threads = 1, .overwrite = true};
    tiny_check(csn_convert(csn_fs_os(), source, target, &o, &err), &err);
    tiny_check(csn_cmf_open(csn_fs_os(), target, &cmf, &err), &err);
    if (change != NULL) {
        change(&cmf->arch);
    }
    csn_model *m = NULL;
    tiny_check(csn_store_new(cmf, &(csn_store_options){0}, &store, &err), &err);
    tiny_check(csn_model_new(store, &m, &err), &err);
    return m;
}

#endif
