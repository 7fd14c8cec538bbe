/* SPDX-License-Identifier: Apache-2.0 */
#include "store/usage.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "format/warp/usage.h"

static caisson_status usage_path(const csn_stream *s, csn_buf *ret, caisson_error *err) {
    const csn_warp *w = csn_store_warp(csn_stream_store(s));
    if (w == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED,
                        .what = "only beside a .waste can be noted which experts are used");
    }
    return csn_buf_printf(ret, err, "%s/usage.waste", w->path);
}

/* The most used first; then in the order of the files. */
static int compare(const void *a, const void *b) {
    const csn_warp_use *x = a;
    const csn_warp_use *y = b;
    return x->hits != y->hits     ? (x->hits < y->hits) - (x->hits > y->hits)
           : x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer)
                                  : (x->expert > y->expert) - (x->expert < y->expert);
}

static caisson_status recall(csn_stream *s, csn_str bytes, caisson_error *err) {
    csn_warp_use *use;
    uint32_t n;
    csn_expert_use *known;
    CSN_TRY(csn_warp_usage_parse(bytes, &use, &n, err));
    qsort(use, n, sizeof(*use), compare);
    caisson_status status = CSN_NEW((size_t)n + 1, &known, err);
    if (status == CAISSON_OK) {
        uint32_t k = 0;
        for (uint32_t i = 0; i < n; i++) {
            int64_t i_layer = csn_stream_layer(s, use[i].layer);
            if (i_layer >= 0) {
                known[k++] =
                    (csn_expert_use){(uint32_t)i_layer, use[i].expert, use[i].hits, use[i].last};
            }
        }
        status = csn_experts_preload(csn_stream_experts(s), known, k, err);
        csn_free(known);
    }
    csn_free(use);
    return status;
}

caisson_status csn_stream_recall(csn_stream *s, csn_fs *fs, const csn_log *log,
                                 caisson_error *err) {
    csn_buf path = CSN_BUF_INIT(1 << 16);
    csn_buf bytes = CSN_BUF_INIT(CSN_WARP_MAX_USAGE_BYTES);
    caisson_status status = CAISSON_OK;
    if (csn_store_warp(csn_stream_store(s)) != NULL) {
        status = usage_path(s, &path, err);
    }
    if (status == CAISSON_OK && path.len > 0 && fs->ops->exists(fs, path.ptr)) {
        caisson_error why = {0};
        char line[512];
        if (csn_fs_read_all(fs, path.ptr, CSN_WARP_MAX_USAGE_BYTES, &bytes, &why) != CAISSON_OK ||
            recall(s, csn_buf_view(&bytes), &why) != CAISSON_OK) {
            csn_error_file(&why, path.ptr);
            CSN_WARN(log, "%s", caisson_error_format(&why, line, sizeof(line)));
        }
    }
    csn_buf_free(&bytes);
    csn_buf_free(&path);
    return status;
}

static caisson_status put_usage(csn_stream *s, csn_buf *out, caisson_error *err) {
    csn_experts *e = csn_stream_experts(s);
    uint64_t clock;
    const csn_expert_map *map = csn_stream_map(s);
    uint32_t n = 0;
    csn_expert_use *known;
    csn_warp_use *use = NULL;
    for (uint32_t i = 0; i < map->n_layers; i++) {
        n += map->n_experts[i];
    }
    CSN_TRY(CSN_NEW((size_t)n + 1, &known, err));
    n = csn_experts_usage(e, known, n, &clock);
    caisson_status status = CSN_NEW((size_t)n + 1, &use, err);
    if (status == CAISSON_OK) {
        for (uint32_t i = 0; i < n; i++) {
            use[i] = (csn_warp_use){csn_stream_layer_id(s, known[i].i_layer), known[i].expert,
                                    known[i].hits, known[i].last};
        }
        qsort(use, n, sizeof(*use), compare);
        status = csn_warp_usage_write(use, n, clock, out, err);
    }
    csn_free(use);
    csn_free(known);
    return status;
}

caisson_status csn_stream_learn(csn_stream *s, csn_fs *fs, caisson_error *err) {
    csn_buf path = CSN_BUF_INIT(1 << 16);
    csn_buf bytes = CSN_BUF_INIT(CSN_WARP_MAX_USAGE_BYTES);
    caisson_status status = usage_path(s, &path, err);
    if (status == CAISSON_OK) {
        status = put_usage(s, &bytes, err);
    }
    if (status == CAISSON_OK) {
        status = csn_fs_write_all(fs, path.ptr, csn_buf_view(&bytes), err);
    }
    csn_buf_free(&bytes);
    csn_buf_free(&path);
    return status;
}
