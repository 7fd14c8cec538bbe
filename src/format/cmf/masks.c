/* SPDX-License-Identifier: Apache-2.0 */
/* The masks section (CMF 5, facts 6): meta JSON and one blob of bit rows a mask. Checked whole at
 * open; what the bits do is not this file's business. Bits beyond a dimension must be zero, so that
 * no count ever sees a neuron or head that does not exist. */
#include "base/json_fields.h"
#include "base/size.h"
#include "format/cmf/cmf_internal.h"

struct meta {
    const csn_jval *masks;
};
static const csn_jfield meta_fields[] = {
    CSN_JCHECK("default_task", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(struct meta, masks, "masks", CSN_JT_ARRAY, CSN_JF_REQUIRED),
};

struct mask {
    csn_str name, priority;
    bool has_expert_fields;
    uint64_t blob_off, blob_len;
    const csn_jval *quality;
};
static const csn_jfield mask_fields[] = {
    CSN_JCHECK("task_id", CSN_JT_ID, CSN_JF_REQUIRED),
    CSN_JFIELD(struct mask, name, "name", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JCHECK("description", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JCHECK("sparsity", CSN_JT_F32, CSN_JF_REQUIRED),
    CSN_JFIELD(struct mask, quality, "quality", CSN_JT_OBJECT, CSN_JF_NULLABLE),
    CSN_JCHECK("parent", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JFIELD(struct mask, priority, "priority", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JCHECK("has_hot_pack", CSN_JT_BOOL, 0),
    CSN_JFIELD(struct mask, has_expert_fields, "has_expert_fields", CSN_JT_BOOL, 0),
    CSN_JFIELD(struct mask, blob_off, "blob_off", CSN_JT_U64, CSN_JF_REQUIRED),
    CSN_JFIELD(struct mask, blob_len, "blob_len", CSN_JT_U64, CSN_JF_REQUIRED),
};

static const csn_jfield quality_fields[] = {
    CSN_JCHECK("metric", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JCHECK("value", CSN_JT_F64, CSN_JF_REQUIRED),
    CSN_JCHECK("baseline_dense", CSN_JT_F64, CSN_JF_NULLABLE),
    CSN_JCHECK("n_samples", CSN_JT_U64, CSN_JF_NULLABLE),
    CSN_JCHECK("dataset_sha256", CSN_JT_STR, CSN_JF_NULLABLE),
};

static caisson_status fail(caisson_error *err, csn_str name, const char *what, uint64_t want,
                           uint64_t got) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "masks", .tensor = name, .what = what,
                    CSN_VALUES(want, got));
}

static uint64_t row_bytes(uint64_t bits) {
    return bits / 8 + (bits % 8 != 0);
}

/* n_rows rows of `bits` bits at *pos: the tail of each must be zero. Moves *pos behind them. */
static caisson_status check_rows(const uint8_t *blob, uint64_t *pos, uint64_t n_rows, uint64_t bits,
                                 const char *what, csn_str name, caisson_error *err) {
    uint64_t bytes = row_bytes(bits);
    for (uint64_t r = 0; r < n_rows && bits % 8 != 0; r++) {
        uint8_t last = blob[*pos + (r + 1) * bytes - 1];
        if (last >> (bits % 8) != 0) {
            return fail(err, name, what, 0, last >> (bits % 8));
        }
    }
    *pos += n_rows * bytes;
    return CAISSON_OK;
}

/* Bytes of FFN rows for n_ffn_rows, head rows, gates and, when asked, expert rows. */
static bool blob_bytes(const csn_arch *a, uint64_t n_ffn_rows, bool has_experts, uint64_t *ret) {
    uint64_t ffn;
    uint64_t heads;
    uint64_t experts = 0;
    return csn_mul(n_ffn_rows, row_bytes(a->intermediate_size), &ffn) &&
           csn_mul(a->n_layers, row_bytes(a->n_heads), &heads) &&
           (!has_experts || csn_mul(a->n_layers, row_bytes(a->moe.n_experts), &experts)) &&
           csn_add(ffn, heads, ret) && csn_add(*ret, row_bytes(a->n_layers), ret) &&
           csn_add(*ret, experts, ret);
}

static caisson_status check_mask(const csn_jval *v, const uint8_t *bytes, uint64_t len,
                                 const csn_arch *a, caisson_error *err) {
    struct mask m = {0};
    CSN_TRY(csn_jfields_read(v, mask_fields, CSN_N_FIELDS(mask_fields), "masks", &m, NULL, err));
    if (m.quality != NULL) {
        CSN_TRY(csn_jfields_read(m.quality, quality_fields, CSN_N_FIELDS(quality_fields),
                                 "masks.quality", NULL, NULL, err));
    }
    if (!csn_str_is(m.priority, "Fallback") && !csn_str_is(m.priority, "Normal") &&
        !csn_str_is(m.priority, "Primary")) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "masks", .tensor = m.name,
                        .what = "unknown priority",
                        CSN_TEXTS(CSN_STR("Fallback, Normal or Primary"), m.priority));
    }
    if (m.has_expert_fields && !a->moe.present) {
        return fail(err, m.name, "has expert fields, but the model has no experts", 0, 1);
    }
    uint64_t n_visits = (uint64_t)a->n_layers * a->num_loops;
    uint64_t per_visit;
    uint64_t per_layer; /* older looped files: one FFN row a physical layer */
    if (!blob_bytes(a, n_visits, m.has_expert_fields, &per_visit) ||
        !blob_bytes(a, a->n_layers, m.has_expert_fields, &per_layer) ||
        (m.blob_len != per_visit && m.blob_len != per_layer)) {
        return fail(err, m.name, "blob length differs from what the arch gives", per_visit,
                    m.blob_len);
    }
    if (!csn_range_fits(m.blob_off, m.blob_len, len)) {
        return fail(err, m.name, "blob leaves the section", len, m.blob_off);
    }
    const uint8_t *blob = bytes + m.blob_off;
    uint64_t pos = 0;
    CSN_TRY(check_rows(blob, &pos, m.blob_len == per_visit ? n_visits : a->n_layers,
                       a->intermediate_size, "FFN row has bits beyond intermediate_size", m.name,
                       err)); /* CMF 5: tail bits are zero */
    CSN_TRY(check_rows(blob, &pos, a->n_layers, a->n_heads,
                       "head row has bits beyond num_attention_heads", m.name, err));
    CSN_TRY(check_rows(blob, &pos, 1, a->n_layers, "layer gates have bits beyond num_layers",
                       m.name, err));
    if (m.has_expert_fields) {
        CSN_TRY(check_rows(blob, &pos, a->n_layers, a->moe.n_experts,
                           "expert row has bits beyond num_experts", m.name, err));
    }
    return CAISSON_OK;
}

static caisson_status check_meta(const csn_json *doc, uint32_t n_masks, const uint8_t *bytes,
                                 uint64_t len, const csn_arch *arch, caisson_error *err) {
    struct meta meta = {0};
    CSN_TRY(csn_jfields_read(csn_json_root(doc), meta_fields, CSN_N_FIELDS(meta_fields), "", &meta,
                             NULL, err));
    if (csn_jval_len(meta.masks) != n_masks) {
        return fail(err, CSN_STR("masks"), "number of masks differs from n_masks", n_masks,
                    csn_jval_len(meta.masks));
    }
    for (csn_jiter it = csn_jval_iter(meta.masks); csn_jiter_next(&it);) {
        CSN_TRY(check_mask(it.value, bytes, len, arch, err));
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_check_masks(const uint8_t *bytes, uint64_t len, const csn_arch *arch,
                                   caisson_error *err) {
    if (len < 8) {
        return fail(err, (csn_str){0}, "section is too short", 8, len);
    }
    uint32_t n_masks = csn_get32(bytes);
    uint32_t meta_len = csn_get32(bytes + 4);
    if (meta_len > len - 8) {
        return fail(err, (csn_str){0}, "meta reaches beyond the section", len - 8, meta_len);
    }
    csn_json *doc = NULL;
    CSN_TRY(csn_json_parse(csn_str_make((const char *)bytes + 8, meta_len), 0, &doc, err));
    caisson_status status = check_meta(doc, n_masks, bytes, len, arch, err);
    csn_json_free(doc);
    return status;
}
