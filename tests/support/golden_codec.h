/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tests/golden/cmf/codec/<dtype>.safetensors: cases of input, encoded bytes, decoded values.
 * Deliberately not our safetensors reader: what checks a codec should not share its code.
 */
#ifndef TESTS_GOLDEN_CODEC_H
#define TESTS_GOLDEN_CODEC_H

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/io.h"
#include "base/json.h"
#include "quant/dtype.h"

typedef struct golden_case {
    char name[64];
    csn_shape shape;
    const float *input; /* NULL: decode only */
    const uint8_t *encoded;
    uint64_t n_encoded;
    const float *decoded;
    uint64_t n;       /* elements */
    bool rung_search; /* q4tp */
    float mean_bits;  /* vbit, vbit_ro; else 0 */
    float keep;       /* q1s, q1t: as in csn_encode_options; else 0 */
    const float *col_rms;
    bool diffuses; /* q1: the error is carried along a row */
    uint64_t hash;
} golden_case;

typedef struct golden_file {
    csn_buf bytes;
    csn_json *doc;
    golden_case *cases;
    size_t n_cases;
} golden_file;

static const csn_jval *golden_part(const csn_jval *root, const char *name, const char *part) {
    char key[96];
    snprintf(key, sizeof(key), "%s.%s", name, part);
    return csn_jval_get(root, key);
}

static const void *golden_bytes(const golden_file *g, const csn_jval *tensor, uint64_t head,
                                uint64_t *ret_n) {
    uint64_t at[2] = {0, 0};
    for (csn_jiter it = csn_jval_iter(csn_jval_get(tensor, "data_offsets")); csn_jiter_next(&it);) {
        csn_jval_u64(it.value, &at[it.index & 1]);
    }
    *ret_n = at[1] - at[0];
    return tensor == NULL ? NULL : g->bytes.ptr + head + at[0];
}

/* The number behind `key` in a case's parameters, or 0. */
static float golden_number(csn_str params, const char *key) {
    size_t at = csn_str_find(params, csn_str_from(key), 0);
    char number[32];
    if (at == SIZE_MAX) {
        return 0;
    }
    at += strlen(key);
    snprintf(number, sizeof(number), "%.*s", (int)(params.len - at), params.ptr + at);
    return strtof(number, NULL);
}

/* Aborts the test program on any trouble: the data is ours. */
static golden_file golden_open(const char *path) {
    golden_file g = {0};
    caisson_error err;
    uint64_t k = 0;
    if (csn_fs_read_all(csn_fs_os(), path, 1 << 24, &g.bytes, &err) != CAISSON_OK) {
        fprintf(stderr, "cannot read %s\n", path);
        abort();
    }
    memcpy(&k, g.bytes.ptr, 8);
    if (csn_json_parse(csn_str_make(g.bytes.ptr + 8, k), 0, &g.doc, &err) != CAISSON_OK) {
        abort();
    }
    const csn_jval *root = csn_json_root(g.doc);
    const csn_jval *meta = csn_jval_get(root, "__metadata__");
    csn_str list = {0};
    csn_json *names = NULL;
    csn_jval_str(csn_jval_get(meta, "cases"), &list);
    if (csn_json_parse(list, 0, &names, &err) != CAISSON_OK) {
        abort();
    }
    g.cases = calloc(csn_jval_len(csn_json_root(names)) + 1, sizeof(*g.cases));
    for (csn_jiter it = csn_jval_iter(csn_json_root(names)); csn_jiter_next(&it);) {
        golden_case *c = &g.cases[g.n_cases++];
        csn_str s = {0};
        uint64_t n;
        csn_jval_str(it.value, &s);
        snprintf(c->name, sizeof(c->name), "%.*s", CSN_STR_ARGS(s));
        const csn_jval *decoded = golden_part(root, c->name, "decoded");
        for (csn_jiter d = csn_jval_iter(csn_jval_get(decoded, "shape")); csn_jiter_next(&d);) {
            csn_jval_u64(d.value, &c->shape.dim[c->shape.n_dims++]);
        }
        c->encoded = golden_bytes(&g, golden_part(root, c->name, "encoded"), 8 + k, &c->n_encoded);
        c->decoded = golden_bytes(&g, decoded, 8 + k, &n);
        c->n = n / 4;
        c->input = golden_bytes(&g, golden_part(root, c->name, "input"), 8 + k, &n);
        csn_jval_str(golden_part(meta, c->name, "params"), &s);
        c->rung_search = csn_str_find(s, CSN_STR("\"rung_search\": false"), 0) == SIZE_MAX;
        c->diffuses = csn_str_find(s, CSN_STR("\"error_diffusion\": true"), 0) != SIZE_MAX;
        c->mean_bits = golden_number(s, "\"mean_bits\": ");
        c->keep = golden_number(s, "\"keep\": ") + golden_number(s, "\"outlier_fraction\": ");
        if (c->keep == 0 && strstr(path, "q1s") != NULL) {
            c->keep = -1;
        }
        c->col_rms = golden_bytes(&g, golden_part(root, c->name, "act_rms"), 8 + k, &n);
        csn_jval_str(golden_part(meta, c->name, "hash64"), &s);
        char hex[32];
        snprintf(hex, sizeof(hex), "%.*s", CSN_STR_ARGS(s));
        c->hash = strtoull(hex, NULL, 16);
    }
    csn_json_free(names);
    return g;
}

static void golden_close(golden_file *g) {
    free(g->cases);
    csn_json_free(g->doc);
    csn_buf_free(&g->bytes);
}

#endif
