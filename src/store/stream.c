/* SPDX-License-Identifier: Apache-2.0 */
#include "store/stream.h"

#include <pthread.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/os.h"
#include "store/watch.h"

struct csn_stream {
    csn_store *store;
    bool verify, looks_ahead;
    csn_watch watch;  /* of the cache's size; guarded by turn */
    bool *has_tensor; /* .cmf: [dir.n] */
    csn_expert_map map;
    const csn_tensor **tensors; /* .cmf: [experts of all layers][3] */
    uint32_t *first;            /* [n_layers] number of the layer's first expert among all */
    csn_experts *experts;
    pthread_mutex_t turn;
    csn_arena arena;
};

static caisson_status check_record(void *ctx, uint32_t i_layer, uint32_t expert,
                                   const uint8_t *const *pieces, caisson_error *err) {
    const csn_stream *s = ctx;
    const csn_warp *w = csn_store_warp(s->store);
    csn_warp_expert ignored;
    return csn_warp_record(w, &w->banks[i_layer], expert, pieces[0], s->verify, &ignored, err);
}

static caisson_status check_tensors(void *ctx, uint32_t i_layer, uint32_t expert,
                                    const uint8_t *const *pieces, caisson_error *err) {
    const csn_stream *s = ctx;
    const csn_tensor *all = csn_store_cmf(s->store)->dir.tensors;
    const csn_tensor *const *t =
        s->tensors + ((uint64_t)s->first[i_layer] + expert) * CSN_EXPERT_MAX_PIECES;
    for (int k = 0; s->verify && k < CSN_EXPERT_MAX_PIECES; k++) {
        CSN_TRY(csn_store_check(s->store, (uint32_t)(t[k] - all), pieces[k], err));
    }
    return CAISSON_OK;
}

/* Arrays for n_layers layers and n experts in all, `n_pieces` pieces each. */
static caisson_status make_map(csn_stream *s, uint32_t n_files, uint32_t n_layers, uint64_t n,
                               uint32_t n_pieces, csn_file ***ret_files, uint32_t **ret_counts,
                               uint32_t **ret_ids, csn_expert_piece **ret_pieces,
                               caisson_error *err) {
    CSN_TRY(CSN_ARENA_NEW(&s->arena, n_files, ret_files, err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, n_layers, ret_counts, err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, n_layers, ret_ids, err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, n_layers, &s->first, err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, n * n_pieces, ret_pieces, err));
    s->map = (csn_expert_map){.files = *ret_files,
                              .n_files = n_files,
                              .n_layers = n_layers,
                              .n_experts = *ret_counts,
                              .layer_ids = *ret_ids,
                              .n_pieces = n_pieces,
                              .pieces = *ret_pieces,
                              .ctx = s};
    return CAISSON_OK;
}

static caisson_status map_warp(csn_stream *s, const csn_warp *w, caisson_error *err) {
    csn_file **files;
    uint32_t *counts;
    uint32_t *ids;
    csn_expert_piece *pieces;
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->n_banks; i++) {
        n += w->banks[i].n_experts;
    }
    CSN_TRY(make_map(s, w->n_banks, w->n_banks, n, 1, &files, &counts, &ids, &pieces, err));
    uint32_t at = 0;
    for (uint32_t i = 0; i < w->n_banks; i++) {
        const csn_warp_bank *b = &w->banks[i];
        files[i] = b->file;
        counts[i] = b->n_experts;
        ids[i] = b->layer;
        s->first[i] = at;
        for (uint32_t e = 0; e < b->n_experts; e++) {
            pieces[at++] = (csn_expert_piece){i, (uint64_t)e * b->stride, b->stride};
        }
    }
    s->map.check = check_record;
    return CAISSON_OK;
}

static const char *const kinds[CSN_EXPERT_MAX_PIECES] = {"gate_proj", "up_proj", "down_proj"};

static const csn_tensor *find_expert(const csn_directory *dir, uint32_t layer, uint32_t expert,
                                     int kind) {
    char name[96];
    int n = snprintf(name, sizeof(name), "model.layers.%u.mlp.experts.%u.%s.weight", layer, expert,
                     kinds[kind]);
    return csn_directory_find(dir, csn_str_make(name, n > 0 ? (size_t)n : 0));
}

/* Experts of a layer: those from 0 up to the first that is missing (CMF facts 12.4). */
static uint32_t count_experts(const csn_directory *dir, uint32_t layer) {
    uint32_t n = 0;
    while (find_expert(dir, layer, n, 0) != NULL && find_expert(dir, layer, n, 1) != NULL &&
           find_expert(dir, layer, n, 2) != NULL) {
        n++;
    }
    return n;
}

static caisson_status map_cmf(csn_stream *s, const csn_cmf *c, caisson_error *err) {
    csn_file **files;
    uint32_t *counts;
    uint32_t *ids;
    csn_expert_piece *pieces;
    uint64_t n = 0;
    uint32_t n_layers = 0;
    for (uint32_t i = 0; i < c->arch.n_layers; i++) {
        uint32_t k = count_experts(&c->dir, i);
        n += k;
        n_layers += k > 0;
    }
    CSN_TRY(make_map(s, c->n_files, n_layers, n, CSN_EXPERT_MAX_PIECES, &files, &counts, &ids,
                     &pieces, err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, n * CSN_EXPERT_MAX_PIECES, &s->tensors, err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, c->dir.n, &s->has_tensor, err));
    for (uint32_t i = 0; i < c->n_files; i++) {
        files[i] = csn_cmf_file_of(c, i)->file;
    }
    uint32_t at = 0;
    uint32_t i_layer = 0;
    for (uint32_t i = 0; i < c->arch.n_layers; i++) {
        uint32_t k = count_experts(&c->dir, i);
        if (k == 0) {
            continue;
        }
        ids[i_layer] = i;
        counts[i_layer] = k;
        s->first[i_layer++] = at;
        for (uint32_t e = 0; e < k; e++, at++) {
            for (int kind = 0; kind < CSN_EXPERT_MAX_PIECES; kind++) {
                const csn_tensor *t = find_expert(&c->dir, i, e, kind);
                uint64_t j = (uint64_t)at * CSN_EXPERT_MAX_PIECES + (unsigned)kind;
                s->tensors[j] = t;
                s->has_tensor[t - c->dir.tensors] = true;
                pieces[j] = (csn_expert_piece){t->i_file, t->offset, t->nbytes};
            }
        }
    }
    s->map.check = check_tensors;
    return CAISSON_OK;
}

caisson_status csn_stream_new(csn_store *store, const csn_stream_options *options, csn_stream **ret,
                              caisson_error *err) {
    csn_stream *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    s->store = store;
    s->verify = options->verify;
    s->looks_ahead = options->looks_ahead;
    pthread_mutex_init(&s->turn, NULL);
    const csn_warp *w = csn_store_warp(store);
    caisson_status status = w != NULL ? map_warp(s, w, err) : map_cmf(s, csn_store_cmf(store), err);
    bool has_any = s->map.n_layers > 0;
    if (status == CAISSON_OK && has_any && options->experts.cache_bytes > 0) {
        status = csn_stream_start(s, &options->experts, err);
    }
    if (status != CAISSON_OK || !has_any) {
        csn_stream_free(s);
        s = NULL;
    }
    if (status == CAISSON_OK) {
        *ret = s;
    }
    return status;
}

caisson_status csn_stream_start(csn_stream *s, const csn_expert_options *options,
                                caisson_error *err) {
    csn_watch_init(&s->watch, csn_os_major_faults(), options->cache_bytes);
    return csn_experts_new(&s->map, options, &s->experts, err);
}

void csn_stream_free(csn_stream *s) {
    if (s == NULL) {
        return;
    }
    csn_experts_free(s->experts);
    pthread_mutex_destroy(&s->turn);
    csn_arena_done(&s->arena);
    csn_free(s);
}

csn_store *csn_stream_store(const csn_stream *s) {
    return s->store;
}

bool csn_stream_has(const csn_stream *s, uint32_t i_tensor) {
    return s->has_tensor != NULL && s->has_tensor[i_tensor];
}

bool csn_stream_looks_ahead(const csn_stream *s) {
    return s->looks_ahead;
}

uint32_t csn_stream_n_layers(const csn_stream *s) {
    return s->map.n_layers;
}

uint32_t csn_stream_layer_id(const csn_stream *s, uint32_t i_layer) {
    return s->map.layer_ids[i_layer];
}

uint64_t csn_stream_cache_bytes(csn_stream *s) {
    csn_stream_claim(s);
    uint64_t bytes = s->watch.cache_bytes;
    csn_stream_release(s);
    return bytes;
}

void csn_stream_watch(csn_stream *s) {
    csn_stream_claim(s);
    uint64_t bytes = csn_watch_step(&s->watch, csn_os_major_faults());
    if (bytes < s->watch.cache_bytes) {
        s->watch.cache_bytes = csn_experts_shrink(s->experts, bytes);
    }
    csn_stream_release(s);
}

int64_t csn_stream_layer(const csn_stream *s, uint32_t layer) {
    for (uint32_t i = 0; i < s->map.n_layers; i++) {
        if (s->map.layer_ids[i] == layer) {
            return i;
        }
    }
    return -1;
}

const csn_expert_map *csn_stream_map(const csn_stream *s) {
    return &s->map;
}

csn_experts *csn_stream_experts(const csn_stream *s) {
    return s->experts;
}

void csn_stream_claim(csn_stream *s) {
    pthread_mutex_lock(&s->turn);
}

void csn_stream_release(csn_stream *s) {
    pthread_mutex_unlock(&s->turn);
}
