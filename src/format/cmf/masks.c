/* SPDX-License-Identifier: Apache-2.0 */
/* The masks section (CMF 5, facts 6): meta JSON and one blob of bit rows a mask. Checked whole at
 * open; what the bits do is not this file's business. Bits beyond a dimension must be zero, so that
 * no count ever sees a neuron or head that does not exist. */
#include "base/json_fields.h"
#include "base/size.h"
#include "format/cmf/cmf_internal.h"

struct meta {
    csn_str default_task;
    const csn_jval *masks;
};
static const csn_jfield meta_fields[] = {
    CSN_JFIELD(struct meta, default_task, "default_task", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(struct meta, masks, "masks", CSN_JT_ARRAY, CSN_JF_REQUIRED),
};

struct mask {
    csn_cmf_mask m;
    bool has_expert_fields;
    uint64_t blob_off, blob_len;
};
static const csn_jfield mask_fields[] = {
    CSN_JFIELD(struct mask, m.task_id, "task_id", CSN_JT_ID, CSN_JF_REQUIRED),
    CSN_JFIELD(struct mask, m.name, "name", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(struct mask, m.description, "description", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JFIELD(struct mask, m.sparsity, "sparsity", CSN_JT_F32, CSN_JF_REQUIRED),
    CSN_JFIELD(struct mask, m.quality, "quality", CSN_JT_OBJECT, CSN_JF_NULLABLE),
    CSN_JFIELD(struct mask, m.parent, "parent", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JFIELD(struct mask, m.priority, "priority", CSN_JT_STR, CSN_JF_REQUIRED),
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

/* n_rows rows of `bits` bits at *pos: the tail of each must be zero. Moves *pos behind them. */
static caisson_status take_rows(const uint8_t *blob, uint64_t *pos, uint64_t n_rows, uint64_t bits,
                                const char *what, csn_str name, const uint8_t **ret,
                                caisson_error *err) {
    uint64_t bytes = csn_bit_row_bytes(bits);
    for (uint64_t r = 0; r < n_rows && bits % 8 != 0; r++) {
        uint8_t last = blob[*pos + (r + 1) * bytes - 1];
        if (last >> (bits % 8) != 0) {
            return fail(err, name, what, 0, last >> (bits % 8));
        }
    }
    *ret = blob + *pos;
    *pos += n_rows * bytes;
    return CAISSON_OK;
}

/* Bytes of FFN rows for n_ffn_rows, head rows, gates and, when asked, expert rows. */
static bool blob_bytes(const csn_arch *a, uint64_t n_ffn_rows, bool has_experts, uint64_t *ret) {
    uint64_t ffn;
    uint64_t heads;
    uint64_t experts = 0;
    return csn_mul(n_ffn_rows, csn_bit_row_bytes(a->intermediate_size), &ffn) &&
           csn_mul(a->n_layers, csn_bit_row_bytes(a->n_heads), &heads) &&
           (!has_experts || csn_mul(a->n_layers, csn_bit_row_bytes(a->moe.n_experts), &experts)) &&
           csn_add(ffn, heads, ret) && csn_add(*ret, csn_bit_row_bytes(a->n_layers), ret) &&
           csn_add(*ret, experts, ret);
}

static caisson_status parse_mask(const csn_jval *v, const uint8_t *bytes, uint64_t len,
                                 const csn_arch *a, csn_cmf_mask *ret, uint64_t *used,
                                 caisson_error *err) {
    struct mask raw = {0};
    csn_cmf_mask m;
    CSN_TRY(csn_jfields_read(v, mask_fields, CSN_N_FIELDS(mask_fields), "masks", &raw, NULL, err));
    m = raw.m;
    m.meta = v;
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
    if (raw.has_expert_fields && !a->moe.present) {
        return fail(err, m.name, "has expert fields, but the model has no experts", 0, 1);
    }
    uint64_t n_visits = (uint64_t)a->n_layers * a->num_loops;
    uint64_t per_visit;
    uint64_t per_layer; /* older looped files: one FFN row a physical layer */
    if (!blob_bytes(a, n_visits, raw.has_expert_fields, &per_visit) ||
        !blob_bytes(a, a->n_layers, raw.has_expert_fields, &per_layer) ||
        (raw.blob_len != per_visit && raw.blob_len != per_layer)) {
        return fail(err, m.name, "blob length differs from what the arch gives", per_visit,
                    raw.blob_len);
    }
    if (!csn_range_fits(raw.blob_off, raw.blob_len, len)) {
        return fail(err, m.name, "blob leaves the section", len, raw.blob_off);
    }
    *used += raw.blob_len; /* each is at most len, and the first beyond it ends here */
    if (*used > len) {
        return fail(err, m.name, "blobs of masks share bytes", len, *used);
    }
    const uint8_t *blob = bytes + raw.blob_off;
    uint64_t pos = 0;
    m.n_ffn_rows = raw.blob_len == per_visit ? (uint32_t)n_visits : a->n_layers;
    CSN_TRY(take_rows(blob, &pos, m.n_ffn_rows, a->intermediate_size,
                      "FFN row has bits beyond intermediate_size", m.name, &m.ffn,
                      err)); /* CMF 5: tail bits are zero */
    CSN_TRY(take_rows(blob, &pos, a->n_layers, a->n_heads,
                      "head row has bits beyond num_attention_heads", m.name, &m.heads, err));
    CSN_TRY(take_rows(blob, &pos, 1, a->n_layers, "layer gates have bits beyond num_layers", m.name,
                      &m.gates, err));
    if (raw.has_expert_fields) {
        CSN_TRY(take_rows(blob, &pos, a->n_layers, a->moe.n_experts,
                          "expert row has bits beyond num_experts", m.name, &m.experts, err));
    }
    *ret = m;
    return CAISSON_OK;
}

static caisson_status parse_meta(const csn_json *doc, uint32_t n_masks, const uint8_t *bytes,
                                 uint64_t len, const csn_arch *arch, csn_arena *arena,
                                 csn_cmf_masks *ret, caisson_error *err) {
    struct meta meta = {0};
    CSN_TRY(csn_jfields_read(csn_json_root(doc), meta_fields, CSN_N_FIELDS(meta_fields), "", &meta,
                             NULL, err));
    if (csn_jval_len(meta.masks) != n_masks) {
        return fail(err, CSN_STR("masks"), "number of masks differs from n_masks", n_masks,
                    csn_jval_len(meta.masks));
    }
    uint64_t used = 0; /* by blobs: sharing bytes would make a short section cost long work */
    csn_cmf_masks m = {.n = n_masks, .default_task = meta.default_task};
    CSN_TRY(CSN_ARENA_NEW(arena, n_masks, &m.masks, err));
    for (csn_jiter it = csn_jval_iter(meta.masks); csn_jiter_next(&it);) {
        CSN_TRY(parse_mask(it.value, bytes, len, arch, &m.masks[it.index], &used, err));
    }
    *ret = m;
    return CAISSON_OK;
}

caisson_status csn_cmf_parse_masks(const uint8_t *bytes, uint64_t len, const csn_arch *arch,
                                   csn_arena *arena, csn_json **ret_doc, csn_cmf_masks *ret,
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
    caisson_status status = parse_meta(doc, n_masks, bytes, len, arch, arena, ret, err);
    if (status != CAISSON_OK) {
        csn_json_free(doc);
        return status;
    }
    *ret_doc = doc;
    return CAISSON_OK;
}

caisson_status csn_cmf_find_mask(const csn_cmf_masks *masks, csn_str name, const csn_cmf_mask **ret,
                                 caisson_error *err) {
    const csn_cmf_mask *found = NULL;
    csn_buf names = CSN_BUF_INIT(512);
    caisson_error full; /* the list of names is cut where it gets long */
    for (uint32_t i = 0; i < masks->n; i++) {
        const csn_cmf_mask *m = &masks->masks[i];
        if (!csn_str_eq(m->name, name)) {
            (void)csn_buf_printf(&names, &full, "%s%.*s", i > 0 ? " " : "", CSN_STR_ARGS(m->name));
        } else if (found == NULL) {
            found = m;
        } else {
            csn_buf_free(&names);
            return CSN_FAIL(err, CAISSON_E_ARG, .section = "masks", .tensor = name,
                            .what = "two masks have this name", CSN_VALUES(1, 2));
        }
    }
    caisson_status status = CAISSON_OK;
    if (found == NULL) {
        status = CSN_FAIL(err, CAISSON_E_MISSING, .section = "masks", .tensor = name,
                          .what = "the file has no mask of this name",
                          CSN_TEXTS(csn_buf_view(&names), name));
    } else {
        *ret = found;
    }
    csn_buf_free(&names);
    return status;
}
