/* SPDX-License-Identifier: Apache-2.0 */
/* What a description says of a .waste directory alone: its files, and how many parameters it has.
 */
#include "inspect_internal.h"

static caisson_status put_file(csn_jw *w, csn_file *f, csn_str name, uint64_t *sum,
                               caisson_error *err) {
    uint64_t n;
    CSN_TRY(csn_file_size(f, &n, err));
    *sum += n;
    csn_jw_object(w);
    csn_jw_put_str(w, "name", name);
    csn_jw_put_u64(w, "bytes", n);
    csn_jw_object_end(w);
    return CAISSON_OK;
}

static caisson_status put_files(csn_jw *w, const csn_warp *warp, uint64_t *sum,
                                caisson_error *err) {
    csn_jw_array(w);
    CSN_TRY(put_file(w, warp->trunk, CSN_STR("trunk.bin"), sum, err));
    for (uint32_t i = 0; i < warp->n_banks; i++) {
        CSN_TRY(put_file(w, warp->banks[i].file, warp->banks[i].file_name, sum, err));
    }
    csn_jw_array_end(w);
    return CAISSON_OK;
}

/* A token uses top_k experts of a layer, and one row of the embedding. What lies outside of the
 * prefix (vision) does not count. */
static void put_parameters(csn_jw *w, const csn_warp *warp) {
    uint64_t trunk = 0;
    for (uint32_t i = 0; i < warp->dir.n; i++) {
        const csn_tensor *t = &warp->dir.tensors[i];
        uint64_t n = 0;
        if (csn_str_starts(t->name, CSN_STR("model.")) ||
            csn_str_starts(t->name, CSN_STR("lm_head."))) {
            (void)csn_shape_count(&t->shape, &n);
        }
        trunk += n;
    }
    uint64_t expert = (uint64_t)CSN_WARP_N_KINDS * warp->expert_hidden * warp->expert_width;
    uint64_t embedding = (uint64_t)warp->arch.vocab_size * warp->arch.hidden_size;
    csn_jw_key(w, CSN_STR("parameters"));
    csn_jw_object(w);
    csn_jw_put_u64(w, "total", trunk + expert * warp->arch.moe.n_experts * warp->n_banks);
    csn_jw_put_u64(w, "active",
                   trunk + expert * warp->arch.moe.top_k * warp->n_banks -
                       (embedding < trunk ? embedding : trunk));
    csn_jw_object_end(w);
}

static void put_experts(csn_jw *w, const csn_warp *warp) {
    csn_jw_key(w, CSN_STR("experts"));
    csn_jw_object(w);
    const struct {
        const char *key;
        uint64_t value;
    } members[] = {
        {"layers", warp->n_banks},
        {"per_layer", warp->arch.moe.n_experts},
        {"per_token", warp->arch.moe.top_k},
        {"record_bytes", warp->n_banks > 0 ? warp->banks[0].stride : 0},
        {"stages", warp->stages},
        {"entries", warp->entries},
        {"index_bits", warp->index_bits},
        {"index_block", warp->index_block},
    };
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        csn_jw_put_u64(w, members[i].key, members[i].value);
    }
    csn_jw_object_end(w);
}

caisson_status csn_api_put_waste(csn_jw *w, const csn_warp *warp, caisson_error *err) {
    uint64_t sum = 0;
    csn_jw_key(w, CSN_STR("container"));
    csn_jw_object(w);
    csn_jw_put_str(w, "format", CSN_STR("waste"));
    csn_jw_put_u64(w, "version", 0);
    csn_jw_key(w, CSN_STR("files"));
    CSN_TRY(put_files(w, warp, &sum, err));
    csn_jw_put_u64(w, "bytes", sum); /* of trunk and banks */
    csn_jw_object_end(w);
    put_parameters(w, warp);
    put_experts(w, warp);
    return CAISSON_OK;
}
