/* SPDX-License-Identifier: Apache-2.0 */
/* Ways in which the files of cmf_make.h grow. */
#ifndef TESTS_SUPPORT_CMF_GROW_H
#define TESTS_SUPPORT_CMF_GROW_H

#include "support/cmf_make.h"

typedef enum cmf_grow_kind {
    CMF_GROW_TENSORS, /* two new ones: a small one, and one that begins on a page */
    CMF_GROW_REPLACE, /* a.weight becomes f32 */
    CMF_GROW_REMOVE,  /* b.weight goes */
    CMF_GROW_MASKS,
    CMF_GROW_HEADER, /* one key more */
    CMF_GROW_N_KINDS
} cmf_grow_kind;

enum { CMF_GROW_MASKS_BYTES = 525 };

/* A masks section with one mask, "t", for the layers, heads and neurons of CMF_MAKE_HEADER. */
static inline csn_str cmf_grow_masks(uint8_t section[CMF_GROW_MASKS_BYTES]) {
    static const char meta[] =
        "{\"default_task\":\"t\",\"masks\":[{\"task_id\":0,\"name\":\"t\",\"sparsity\":0.5,"
        "\"priority\":\"Fallback\",\"blob_off\":512,\"blob_len\":13}]}";
    static const uint8_t blob[13] = {0xff, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0x05, 0x07, 0x01};
    memset(section, 0, CMF_GROW_MASKS_BYTES);
    section[0] = 1;
    section[4] = sizeof(meta) - 1;
    memcpy(section + 8, meta, sizeof(meta) - 1);
    memcpy(section + 512, blob, sizeof(blob));
    return csn_str_make((const char *)section, CMF_GROW_MASKS_BYTES);
}

static inline caisson_status cmf_grow_tensor(csn_cmf_append *a, const char *name, const char *dtype,
                                             uint64_t rows, uint64_t cols, caisson_error *err) {
    csn_cmf_plan_tensor t = {.name = csn_str_from(name),
                             .dtype = csn_dtype_by_name(csn_str_from(dtype)),
                             .shape = {.n_dims = 2, .dim = {rows, cols}}};
    uint64_t n;
    uint8_t *p = cmf_make_payload(&t, 100 + name[0], &n);
    caisson_status status = csn_cmf_append_tensor(a, &t, p, n, err);
    free(p);
    return status;
}

static inline caisson_status cmf_grow_header(csn_cmf_append *a, const char *key, const char *json,
                                             caisson_error *err) {
    csn_buf text = CSN_BUF_INIT(1 << 20);
    csn_jw w = csn_jw_begin(&text, err);
    csn_cmf_header_edit edit = {key, csn_str_from(json)};
    csn_cmf_header_edit_write(csn_cmf_append_cmf(a), &edit, 1, &w);
    caisson_status status = csn_jw_end(&w);
    if (status == CAISSON_OK) {
        status = csn_cmf_append_header(a, csn_buf_view(&text), err);
    }
    csn_buf_free(&text);
    return status;
}

static inline caisson_status cmf_grow_change(csn_cmf_append *a, cmf_grow_kind kind,
                                             caisson_error *err) {
    uint8_t masks[CMF_GROW_MASKS_BYTES];
    switch (kind) {
    case CMF_GROW_TENSORS:
        CSN_TRY(cmf_grow_tensor(a, "skill.x.a.weight", "q4_block", 3, 37, err));
        return cmf_grow_tensor(a, "large", "f32", 130, 64, err);
    case CMF_GROW_REPLACE: return cmf_grow_tensor(a, "a.weight", "f32", 130, 130, err);
    case CMF_GROW_REMOVE: return csn_cmf_append_remove(a, CSN_STR("b.weight"), err);
    case CMF_GROW_MASKS: return csn_cmf_append_masks(a, cmf_grow_masks(masks), err);
    case CMF_GROW_HEADER: return cmf_grow_header(a, "new_key", "{\"n\":1}", err);
    case CMF_GROW_N_KINDS: break;
    }
    abort();
}

static inline caisson_status cmf_grow(csn_fs *fs, const char *path, cmf_grow_kind kind,
                                      caisson_error *err) {
    csn_cmf_append *a;
    CSN_TRY(csn_cmf_append_begin(fs, path, &a, err));
    caisson_status status = cmf_grow_change(a, kind, err);
    if (status == CAISSON_OK) {
        status = csn_cmf_append_commit(a, err);
    }
    csn_cmf_append_close(a);
    return status;
}

#endif
