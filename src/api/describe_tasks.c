/* SPDX-License-Identifier: Apache-2.0 */
/* Masks and skills of a file as JSON, counted: what each switches on or replaces; the sparse index.
 */
#include "inspect_internal.h"

static void put_layer(csn_jw *w, const csn_arch *a, const csn_cmf_mask *m, uint32_t i) {
    csn_jw_object(w);
    csn_jw_put_u64(w, "layer", i);
    csn_jw_put_bool(w, "on", csn_bit(m->gates, i));
    csn_jw_put_u64(w, "heads",
                   csn_bit_count(m->heads + i * csn_bit_row_bytes(a->n_heads), a->n_heads));
    csn_jw_key(w, CSN_STR("neurons")); /* one a visit */
    csn_jw_array(w);
    for (uint32_t v = i; v < m->n_ffn_rows; v += a->n_layers) {
        uint64_t n = a->intermediate_size;
        csn_jw_u64(w, csn_bit_count(m->ffn + v * csn_bit_row_bytes(n), n));
    }
    csn_jw_array_end(w);
    if (m->experts != NULL) {
        uint64_t n = a->moe.n_experts;
        csn_jw_put_u64(w, "experts", csn_bit_count(m->experts + i * csn_bit_row_bytes(n), n));
    }
    csn_jw_object_end(w);
}

static void put_mask(csn_jw *w, const csn_arch *a, const csn_cmf_mask *m) {
    csn_jw_object(w);
    csn_jw_put_str_or_null(w, "name", m->name);
    csn_jw_put_u64(w, "task_id", m->task_id);
    csn_jw_put_str_or_null(w, "description", m->description);
    csn_jw_put_str_or_null(w, "parent", m->parent);
    csn_jw_put_str_or_null(w, "priority", m->priority);
    csn_jw_put_f32(w, "sparsity", m->sparsity);
    csn_jw_key(w, CSN_STR("quality"));
    if (m->quality != NULL) {
        csn_jw_value(w, m->quality);
    } else {
        csn_jw_null(w);
    }
    csn_jw_key(w, CSN_STR("layers"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        put_layer(w, a, m, i);
    }
    csn_jw_array_end(w);
    csn_jw_object_end(w);
}

void csn_api_put_masks(csn_jw *w, const csn_cmf *c) {
    csn_jw_key(w, CSN_STR("masks"));
    csn_jw_object(w);
    csn_jw_put_str_or_null(w, "default_task",
                           c->masks.n > 0 ? c->masks.default_task : (csn_str){0});
    csn_jw_key(w, CSN_STR("masks"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < c->masks.n; i++) {
        put_mask(w, &c->arch, &c->masks.masks[i]);
    }
    csn_jw_array_end(w);
    csn_jw_object_end(w);
}

static void put_selection(csn_jw *w, const csn_cmf_selection *s) {
    if (s == NULL) {
        csn_jw_null(w);
        return;
    }
    csn_jw_object(w);
    csn_jw_put_str(w, "metric", s->is_unit ? CSN_STR("mse_unit") : CSN_STR("mse"));
    csn_jw_put_u64(w, "phi_layer", s->phi_layer);
    csn_jw_put_u64(w, "rank", s->rank);
    csn_jw_object_end(w);
}

void csn_api_put_skills(csn_jw *w, const csn_cmf *c) {
    csn_jw_key(w, CSN_STR("skills"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < c->n_skills; i++) {
        const csn_cmf_skill *s = &c->skills[i];
        csn_jw_object(w);
        csn_jw_put_str_or_null(w, "id", s->id);
        csn_jw_put_str_or_null(w, "name", s->name);
        csn_jw_put_str_or_null(w, "input_mask_task", s->input_mask_task);
        csn_jw_put_u64(w, "tensors", s->n_tensors);
        csn_jw_put_u64(w, "bytes", s->nbytes);
        csn_jw_key(w, CSN_STR("layers"));
        csn_jw_array(w);
        for (csn_jiter it = csn_jval_iter(csn_jval_get(s->record, "layers"));
             csn_jiter_next(&it);) {
            csn_jw_value(w, it.value);
        }
        csn_jw_array_end(w);
        csn_jw_key(w, CSN_STR("selection"));
        put_selection(w, s->selection);
        csn_jw_key(w, CSN_STR("quality"));
        const csn_jval *quality = csn_jval_get(s->record, "quality");
        if (quality != NULL) {
            csn_jw_value(w, quality);
        } else {
            csn_jw_null(w);
        }
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
}

caisson_status csn_api_put_index(csn_jw *w, csn_cmf *c, caisson_error *err) {
    csn_buf section = {0};
    csn_cmf_index_iter it = {0};
    csn_cmf_index_entry e;
    CSN_TRY(csn_cmf_read_section(c, CSN_CMF_INDEX, &section, err));
    csn_jw_key(w, CSN_STR("sparse_index"));
    csn_jw_array(w);
    while (csn_cmf_index_next(csn_buf_view(&section), &it, &e)) {
        csn_jw_object(w);
        csn_jw_put_u64(w, "task_id", e.task_id);
        csn_jw_put_u64(w, "layer", e.layer);
        csn_jw_key(w, CSN_STR("groups"));
        csn_jw_array(w);
        for (uint32_t i = 0; i < e.n_groups; i++) {
            csn_jw_u64(w, (uint64_t)(e.groups[2 * i] | e.groups[2 * i + 1] << 8));
        }
        csn_jw_array_end(w);
        csn_jw_key(w, CSN_STR("heads"));
        csn_jw_array(w);
        for (uint32_t i = 0; i < e.n_heads; i++) {
            csn_jw_u64(w, e.heads[i]);
        }
        csn_jw_array_end(w);
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
    csn_buf_free(&section);
    return CAISSON_OK;
}
