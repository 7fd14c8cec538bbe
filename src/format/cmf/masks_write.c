/* SPDX-License-Identifier: Apache-2.0 */
/* The masks section as bytes (CMF 5, facts 6): masks that came from a file keep what their meta
 * says beyond our keys. */
#include "base/size.h"
#include "format/cmf/cmf_internal.h"

static uint64_t blob_bytes(const csn_cmf_mask *m, const csn_arch *a) {
    uint64_t n = m->n_ffn_rows * csn_bit_row_bytes(a->intermediate_size) +
                 a->n_layers * csn_bit_row_bytes(a->n_heads) + csn_bit_row_bytes(a->n_layers);
    return m->experts == NULL ? n : n + a->n_layers * csn_bit_row_bytes(a->moe.n_experts);
}

/* The keys that follow from the bits and their place are written anew; others come from the file,
 * or from the mask where there is none. */
enum key { FROM_FILE, QUALITY, HAS_EXPERT_FIELDS, BLOB_OFF, BLOB_LEN, N_KEYS };
static const char *const names[N_KEYS] = {NULL, "quality", "has_expert_fields", "blob_off",
                                          "blob_len"};

static void put_ours(csn_jw *w, enum key key, const csn_cmf_mask *m, const csn_arch *a,
                     uint64_t blob_off) {
    csn_jw_key(w, csn_str_from(names[key]));
    switch (key) {
    case QUALITY: /* csn_jw_value(NULL) is null */ csn_jw_value(w, m->quality); break;
    case HAS_EXPERT_FIELDS: csn_jw_bool(w, m->experts != NULL); break;
    case BLOB_OFF: csn_jw_u64(w, blob_off); break;
    default: csn_jw_u64(w, blob_bytes(m, a)); break;
    }
}

/* What a file says of a mask that it did not have: the reference's keys in its order. */
static void put_new(csn_jw *w, const csn_cmf_mask *m) {
    csn_jw_put_u64(w, "task_id", m->task_id);
    csn_jw_put_str(w, "name", m->name);
    csn_jw_put_str_or_null(w, "description", m->description);
    csn_jw_put_f32(w, "sparsity", m->sparsity);
    csn_jw_put_str_or_null(w, "parent", m->parent);
    csn_jw_put_str(w, "priority", m->priority);
    csn_jw_put_bool(w, "has_hot_pack", false);
}

static void put_mask(csn_jw *w, const csn_cmf_mask *m, const csn_arch *a, uint64_t blob_off) {
    bool is_written[N_KEYS] = {false};
    csn_jw_object(w);
    if (m->meta == NULL) {
        put_new(w, m);
    }
    for (csn_jiter it = csn_jval_iter(m->meta); csn_jiter_next(&it);) {
        enum key key = FROM_FILE;
        for (int k = QUALITY; k < N_KEYS; k++) {
            key = csn_str_is(it.key, names[k]) ? (enum key)k : key;
        }
        if (key == FROM_FILE) {
            csn_jw_key(w, it.key);
            csn_jw_value(w, it.value);
        } else {
            put_ours(w, key, m, a, blob_off);
            is_written[key] = true;
        }
    }
    for (int k = QUALITY; k < N_KEYS; k++) {
        if (!is_written[k]) {
            put_ours(w, (enum key)k, m, a, blob_off);
        }
    }
    csn_jw_object_end(w);
}

static uint64_t align8(uint64_t n) {
    return (n + 7) / 8 * 8;
}

/* The meta for a meta of meta_len bytes, in front of the blobs. */
static caisson_status put_meta(const csn_cmf_masks *masks, const csn_arch *a, uint64_t meta_len,
                               csn_buf *out, caisson_error *err) {
    out->len = 0;
    csn_jw w = csn_jw_begin(out, err);
    uint64_t at = align8(8 + meta_len);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "default_task", masks->default_task);
    csn_jw_key(&w, CSN_STR("masks"));
    csn_jw_array(&w);
    for (uint32_t i = 0; i < masks->n; i++) {
        put_mask(&w, &masks->masks[i], a, at);
        at = align8(at + blob_bytes(&masks->masks[i], a));
    }
    csn_jw_array_end(&w);
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}

static caisson_status put_blob(const csn_cmf_mask *m, const csn_arch *a, csn_buf *out,
                               caisson_error *err) {
    static const char zeros[8];
    CSN_TRY(csn_buf_append(out, zeros, (size_t)(align8(out->len) - out->len), err));
    const struct {
        const uint8_t *bits;
        uint64_t nbytes;
    } fields[] = {
        {m->ffn, m->n_ffn_rows * csn_bit_row_bytes(a->intermediate_size)},
        {m->heads, a->n_layers * csn_bit_row_bytes(a->n_heads)},
        {m->gates, csn_bit_row_bytes(a->n_layers)},
        {m->experts, m->experts == NULL ? 0 : a->n_layers * csn_bit_row_bytes(a->moe.n_experts)},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].nbytes > 0) {
            CSN_TRY(
                csn_buf_append(out, (const char *)fields[i].bits, (size_t)fields[i].nbytes, err));
        }
    }
    return CAISSON_OK;
}

static caisson_status put_section(const csn_cmf_masks *masks, const csn_arch *a, csn_buf *meta,
                                  csn_buf *out, caisson_error *err) {
    uint64_t len;
    do { /* offsets stand in the text whose length they depend on; both only grow */
        len = meta->len;
        CSN_TRY(put_meta(masks, a, len, meta, err));
    } while (meta->len != len);
    uint8_t head[8];
    csn_put32(head, masks->n);
    csn_put32(head + 4, (uint32_t)meta->len);
    CSN_TRY(csn_buf_append(out, (const char *)head, sizeof(head), err));
    CSN_TRY(csn_buf_str(out, csn_buf_view(meta), err));
    for (uint32_t i = 0; i < masks->n; i++) {
        CSN_TRY(put_blob(&masks->masks[i], a, out, err));
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_masks_write(const csn_cmf_masks *masks, const csn_arch *a, csn_buf *out,
                                   caisson_error *err) {
    csn_buf meta = CSN_BUF_INIT(out->max);
    caisson_status status = masks->n == 0 ? CAISSON_OK : put_section(masks, a, &meta, out, err);
    csn_buf_free(&meta);
    return status;
}
