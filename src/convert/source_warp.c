/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that a converter walks has the trunk's tensors first, then of each bank all gates,
 * all ups and all downs, as Hugging Face files have them. */
#include "convert/source_warp.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const kinds[CSN_WARP_N_KINDS] = {"gate", "up", "down"};

static uint64_t n_experts_of(const csn_warp *w) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->n_banks; i++) {
        n += w->banks[i].n_experts;
    }
    return n;
}

/* A matrix of an expert: its dtype is what reading gives, its size what it takes in the record. */
static caisson_status add_expert(csn_source *s, csn_directory *dir, uint32_t i_bank, uint32_t e,
                                 int kind, caisson_error *err) {
    const csn_warp *w = s->warp;
    const csn_warp_bank *b = &w->banks[i_bank];
    char name[96];
    int n = snprintf(name, sizeof(name), "model.layers.%u.mlp.experts.%u.%s_proj.weight", b->layer,
                     e, kinds[kind]);
    csn_tensor *t = &dir->tensors[dir->n++];
    uint64_t rows = kind == CSN_WARP_DOWN ? w->expert_hidden : w->expert_width;
    uint64_t cols = kind == CSN_WARP_DOWN ? w->expert_width : w->expert_hidden;
    *t = (csn_tensor){.dtype = csn_dtype_by_name(CSN_STR("f32")),
                      .shape = {2, {rows, cols}},
                      .i_file = 1 + i_bank,
                      .offset = e * b->stride,
                      .nbytes = b->index_nbytes[kind] + 2 * rows};
    return csn_arena_str(&s->arena, csn_str_make(name, (size_t)n), &t->name, err);
}

/* The tower that may stand beside the language model (warp facts 3.1). */
static bool is_of_tower(const csn_tensor *t) {
    return csn_str_starts(t->name, CSN_STR("vision_tower.")) ||
           csn_str_starts(t->name, CSN_STR("mm_projector."));
}

static caisson_status list_tensors(csn_source *s, const csn_log *log, caisson_error *err) {
    const csn_warp *w = s->warp;
    csn_directory *dir;
    uint64_t n = w->dir.n + CSN_WARP_N_KINDS * n_experts_of(w);
    CSN_TRY(CSN_ARENA_NEW(&s->arena, 1, &dir, err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, (size_t)n + 1, &dir->tensors, err));
    for (uint32_t i = 0; i < w->dir.n; i++) {
        if (!is_of_tower(&w->dir.tensors[i])) {
            dir->tensors[dir->n++] = w->dir.tensors[i];
        }
    }
    if (dir->n < w->dir.n) {
        CSN_INFO(log, "the language model alone is converted; other towers are left out");
    }
    for (uint32_t i = 0; i < w->n_banks; i++) {
        for (int k = 0; k < CSN_WARP_N_KINDS; k++) {
            for (uint32_t e = 0; e < w->banks[i].n_experts; e++) {
                CSN_TRY(add_expert(s, dir, i, e, k, err));
            }
        }
    }
    s->dir = dir;
    return csn_directory_index(dir, &s->arena, err);
}

static caisson_status take_chat(csn_source *s, caisson_error *err) {
    const csn_chat_bundle *c = &s->warp->chat;
    for (uint32_t i = 0; i < c->n_eos; i++) {
        CSN_TRY(csn_source_add_eos(s, c->eos_token_ids[i], err));
    }
    s->chat_template = c->chat_template;
    s->bos_token_id = c->bos_token_id;
    s->pad_token_id = c->pad_token_id;
    s->has_special_tokens = c->has_special_tokens;
    for (int i = 0; i < CSN_CMF_N_SPECIAL_TOKENS; i++) {
        s->special_tokens[i] = c->special_tokens[i];
    }
    return CAISSON_OK;
}

caisson_status csn_source_read_warp(csn_source *s, csn_fs *fs, const char *path, const csn_log *log,
                                    caisson_error *err) {
    CSN_TRY(csn_warp_open(fs, path, log, &s->warp, err));
    csn_warp *w = s->warp;
    s->arch = w->arch;
    s->n_files = 1 + w->n_banks;
    CSN_TRY(CSN_ARENA_NEW(&s->arena, s->n_files, &s->files, err));
    s->files[0] = w->trunk;
    for (uint32_t i = 0; i < w->n_banks; i++) {
        s->files[1 + i] = w->banks[i].file;
    }
    CSN_TRY(list_tensors(s, log, err));
    CSN_TRY(take_chat(s, err));
    CSN_TRY(csn_arena_str(&s->arena, csn_source_last_name(path), &s->name, err));
    return csn_warp_read_tokenizer(w, &s->tokenizer, err);
}

/* ---- values ---- */

static bool is_expert(const csn_tensor *t) {
    return t->i_file > 0;
}

caisson_status csn_source_warp_fetch(const csn_source *s, const csn_tensor *t, csn_buf *buf,
                                     caisson_error *err) {
    uint64_t n = is_expert(t) ? s->warp->banks[t->i_file - 1].stride : t->nbytes;
    buf->len = 0;
    if (n > buf->max) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .tensor = t->name, .what = "tensor is too large");
    }
    CSN_TRY(csn_buf_reserve(buf, (size_t)n, err));
    buf->len = (size_t)n;
    if (is_expert(t)) {
        return csn_file_read_at(s->files[t->i_file], t->offset, buf->ptr, (size_t)n, err);
    }
    const csn_directory *dir = &s->warp->dir;
    uint32_t i = (uint32_t)(csn_directory_find(dir, t->name) - dir->tensors);
    return csn_warp_read_tensor(s->warp, i, (uint8_t *)buf->ptr, err);
}

static int kind_of(csn_str name) {
    return csn_str_ends(name, CSN_STR(".gate_proj.weight")) ? CSN_WARP_GATE
           : csn_str_ends(name, CSN_STR(".up_proj.weight")) ? CSN_WARP_UP
                                                            : CSN_WARP_DOWN;
}

caisson_status csn_source_warp_view(const csn_source *s, const csn_tensor *t, const csn_buf *buf,
                                    csn_warp_view *ret, caisson_error *err) {
    if (!is_expert(t)) {
        ret->trunk = csn_matrix_make(t->dtype, &t->shape, buf->ptr, buf->len);
        return CAISSON_OK;
    }
    const csn_warp_bank *b = &s->warp->banks[t->i_file - 1];
    csn_warp_expert x;
    CSN_TRY(csn_warp_record(s->warp, b, (uint32_t)(t->offset / b->stride),
                            (const uint8_t *)buf->ptr, true, &x, err));
    *ret = (csn_warp_view){.experts = x.m[kind_of(t->name)]};
    return CAISSON_OK;
}

void csn_source_warp_decode(const csn_warp_view *r, uint64_t row, float *out) {
    if (r->trunk.dtype != NULL) {
        r->trunk.dtype->decode(&r->trunk, row * r->trunk.cols, r->trunk.cols, out);
    } else {
        csn_vq_decode_row(&r->experts, (uint32_t)row, out);
    }
}
