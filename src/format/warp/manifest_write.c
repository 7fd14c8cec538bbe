/* SPDX-License-Identifier: Apache-2.0 */
#include "format/warp/manifest_write.h"

#include <inttypes.h>
#include <stdio.h>

enum { GROUP = 128 };

void csn_warp_bank_name(uint32_t layer, char out[CSN_WARP_BANK_NAME]) {
    (void)snprintf(out, CSN_WARP_BANK_NAME, "experts-L%" PRIu32 ".bin", layer);
}

static void put_coding(csn_jw *w, const csn_warp_coding *c) {
    uint32_t bits = c->is_packed ? 6 : 8;
    csn_jw_object(w);
    csn_jw_put_str(w, "fmt", csn_str_from(c->fmt));
    csn_jw_put_u64(w, "stages", c->stages);
    csn_jw_put_u64(w, "vec_dim", CSN_VQ_DIM);
    csn_jw_put_u64(w, "entries", c->entries);
    csn_jw_put_u64(w, "index_block", CSN_VQ_BLOCK);
    csn_jw_put_u64(w, "index_bits", bits);
    csn_jw_put_f64(w, "bits_per_weight", (double)(c->stages * bits) / CSN_VQ_DIM);
    csn_jw_object_end(w);
}

static void put_banks(csn_jw *w, const csn_warp_plan *p, uint64_t bank_bytes) {
    csn_jw_object(w);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        char key[16], name[CSN_WARP_BANK_NAME];
        (void)snprintf(key, sizeof(key), "%" PRIu32, p->layers[i]);
        csn_warp_bank_name(p->layers[i], name);
        csn_jw_key(w, csn_str_from(key));
        csn_jw_object(w);
        csn_jw_put_str(w, "file", csn_str_from(name));
        csn_jw_put_u64(w, "experts", p->n_experts);
        csn_jw_put_u64(w, "bytes", bank_bytes);
        csn_jw_put_u64(w, "codebook_base", (uint64_t)i * CSN_WARP_N_KINDS * p->coding->stages);
        csn_jw_object_end(w);
    }
    csn_jw_object_end(w);
}

uint64_t csn_warp_scale_bytes(const csn_shape *s) {
    uint64_t n_rows = 1, cols = s->dim[s->n_dims - 1];
    for (uint32_t i = 0; i + 1 < s->n_dims; i++) {
        n_rows *= s->dim[i];
    }
    return 2 * n_rows * ((cols + GROUP - 1) / GROUP);
}

static void put_trunk(csn_jw *w, const csn_warp_plan *p, const uint64_t *offsets) {
    csn_jw_array(w);
    for (uint32_t i = 0; i < p->n_trunk; i++) {
        const csn_warp_plan_tensor *t = &p->trunk[i];
        csn_jw_object(w);
        csn_jw_put_str(w, "name", t->name);
        csn_jw_put_u64(w, "fmt", (uint64_t)t->dtype->warp_fmt);
        csn_jw_put_u64(w, "off", offsets[i]);
        csn_jw_key(w, CSN_STR("shape"));
        csn_jw_array(w);
        for (uint32_t k = 0; k < t->shape.n_dims; k++) {
            csn_jw_u64(w, t->shape.dim[k]);
        }
        csn_jw_array_end(w);
        if (!t->dtype->is_float) {
            csn_jw_put_u64(w, "group", GROUP);
            csn_jw_put_u64(w, "scale_off", offsets[i + 1] - csn_warp_scale_bytes(&t->shape));
        }
        csn_jw_put_u64(w, "bytes", offsets[i + 1] - offsets[i]);
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
}

caisson_status csn_warp_manifest_write(const csn_warp_plan *plan, const uint64_t *offsets,
                                       uint64_t bank_bytes, csn_buf *out, caisson_error *err) {
    csn_jw w = csn_jw_begin(out, err);
    w.pretty = true;
    csn_jw_object(&w);
    csn_jw_put_u64(&w, "format_version", 0);
    csn_jw_put_str(&w, "arch", plan->arch);
    csn_jw_put_str(&w, "tensor_prefix", plan->prefix);
    csn_jw_key(&w, CSN_STR("config"));
    csn_jw_json(&w, plan->config);
    csn_jw_key(&w, CSN_STR("expert_quant"));
    put_coding(&w, plan->coding);
    csn_jw_key(&w, CSN_STR("layers"));
    put_banks(&w, plan, bank_bytes);
    csn_jw_key(&w, CSN_STR("trunk"));
    put_trunk(&w, plan, offsets);
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}
