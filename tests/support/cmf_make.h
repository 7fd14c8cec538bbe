/* SPDX-License-Identifier: Apache-2.0 */
/* Small CMF files made by our writer, for tests that need one to cut, flip or resume. */
#ifndef TESTS_SUPPORT_CMF_MAKE_H
#define TESTS_SUPPORT_CMF_MAKE_H

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "format/cmf/cmf.h"

#define CMF_MAKE_HEADER                                                                            \
    "{\"format\":\"cmf\",\"version\":2,\"arch\":{\"arch_name\":\"t\",\"hidden_size\":64,"          \
    "\"intermediate_size\":40,\"num_layers\":2,\"num_attention_heads\":3,\"num_kv_heads\":1,"      \
    "\"head_dim\":8,\"vocab_size\":8,\"layer_types\":[\"FullAttention\",\"FullAttention\"],"       \
    "\"rms_norm_eps\":1e-06,\"max_position_embeddings\":512},\"quant_type\":\"Q8_ROW\","           \
    "\"future_key\":[1,{\"x\":null}]}"
#define CMF_MAKE_VOCAB "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}"

enum { CMF_MAKE_N = 10 };

/* Ten tensors of several dtypes and sizes: small, odd, empty, three that begin on a page; two
 * whose payload alone says how long it is, one shorter and one longer than the plan thinks. */
static inline csn_cmf_plan cmf_make_plan(csn_cmf_plan_tensor tensors[CMF_MAKE_N]) {
    static const struct {
        const char *name, *dtype;
        uint64_t rows, cols; /* cols 0: one dimension */
    } list[CMF_MAKE_N] = {
        {"model.norm.weight", "f16", 7, 0}, {"a.weight", "q8_row", 130, 130},
        {"b.weight", "q4_tiled", 40, 64},   {"empty", "f32", 0, 0},
        {"c.weight", "q8_2f", 5, 33},       {"d.weight", "q4tp", 96, 384},
        {"e.weight", "q4_block", 3, 37},    {"short.json", "u8", 70, 0},
        {"long.json", "u8", 20000, 0},      {"\xc3\xa9 name", "bf16", 1, 0},
    };
    for (int i = 0; i < CMF_MAKE_N; i++) {
        tensors[i] = (csn_cmf_plan_tensor){
            .name = csn_str_from(list[i].name),
            .dtype = csn_dtype_by_name(csn_str_from(list[i].dtype)),
            .shape = {.n_dims = list[i].cols != 0 ? 2 : 1, .dim = {list[i].rows, list[i].cols}},
            .nbytes = 9000};
    }
    return (csn_cmf_plan){.tensors = tensors,
                          .n = CMF_MAKE_N,
                          .head_bytes = sizeof(CMF_MAKE_HEADER),
                          .vocab_bytes = sizeof(CMF_MAKE_VOCAB),
                          .sync_bytes = 1,
                          .fingerprint = CSN_STR("source 1, options 2")};
}

/* The payload of tensor i: bytes that depend on i and place alone. */
static inline uint8_t *cmf_make_payload(const csn_cmf_plan_tensor *t, int i, uint64_t *ret_n) {
    caisson_error err;
    *ret_n = t->shape.dim[0];
    if (t->dtype->nbytes != NULL && t->dtype->nbytes(&t->shape, ret_n, &err) != CAISSON_OK) {
        abort();
    }
    uint8_t *p = malloc(*ret_n + 1);
    if (p == NULL) {
        abort();
    }
    uint32_t x = (uint32_t)i * 2654435761u + 12345;
    for (uint64_t k = 0; k < *ret_n; k++) {
        x = x * 1664525u + 1013904223u;
        p[k] = (uint8_t)(x >> 24) & 0x3b; /* keeps f16 scales finite */
    }
    return p;
}

/* Writes the file through fs, resuming what is there. `stop_after` payloads: gives up there without
 * finishing, as a stopped program would; -1 = writes all. */
static inline caisson_status cmf_make(csn_fs *fs, const char *path, int stop_after,
                                      uint32_t *ret_n_done, caisson_error *err) {
    csn_cmf_plan_tensor tensors[CMF_MAKE_N];
    csn_cmf_plan plan = cmf_make_plan(tensors);
    csn_cmf_writer *w = NULL;
    uint32_t n_done = 0;
    CSN_TRY(csn_cmf_writer_new(fs, path, &plan, &w, &n_done, err));
    if (ret_n_done != NULL) {
        *ret_n_done = n_done;
    }
    caisson_status status = CAISSON_OK;
    for (int i = (int)n_done; i < CMF_MAKE_N && status == CAISSON_OK; i++) {
        uint64_t n;
        if (i == stop_after) {
            csn_cmf_writer_close(w, false);
            return CAISSON_OK;
        }
        uint8_t *p = cmf_make_payload(&tensors[i], i, &n);
        status = csn_cmf_writer_tensor(w, p, n, err);
        free(p);
    }
    if (status == CAISSON_OK) {
        status = csn_cmf_writer_finish(w, CSN_STR(CMF_MAKE_HEADER), CSN_STR(CMF_MAKE_VOCAB), err);
    }
    csn_cmf_writer_close(w, false);
    return status;
}

#endif
