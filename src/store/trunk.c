/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a trunk: which tensors they are made of, how much memory they have, and whose turn
 * it is. Who reads them: trunk_read.c. */
#include "store/trunk_internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "store/stream.h"

enum { ALIGN = 64 };

/* The part that multiplies with the tensor; CSN_NO_PART: it is a vector, or not of the backbone. */
static uint32_t find_part(const csn_trunk *t, const csn_tensor *tensor, csn_str head) {
    const csn_stream *stream = csn_store_stream(t->store);
    uint32_t i = (uint32_t)(tensor - csn_store_dir(t->store)->tensors);
    uint64_t layer;
    csn_str rest;
    if (tensor->dtype->decode == NULL || (stream != NULL && csn_stream_has(stream, i))) {
        return CSN_NO_PART;
    }
    if (csn_str_eq(tensor->name, head)) {
        return t->n_parts - 1;
    }
    bool is_matrix = tensor->shape.n_dims == 2 && tensor->shape.dim[0] > 1;
    return is_matrix && csn_warp_split_name(tensor->name, &layer, &rest) &&
                   layer < t->n_parts - 1 && !csn_str_ends(rest, CSN_STR(".t.weight"))
               ? (uint32_t)layer
               : CSN_NO_PART;
}

/* Sizes are those of parts of files: sums fit. */
static uint64_t align_up(uint64_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void add_ranges(csn_trunk *t, const csn_tensor *tensor, csn_trunk_part *p) {
    csn_warp *w = csn_store_warp(t->store);
    uint32_t i = (uint32_t)(tensor - csn_store_dir(t->store)->tensors);
    csn_warp_range ranges[2] = {{tensor->offset, tensor->nbytes}};
    uint32_t n = w != NULL ? csn_warp_tensor_ranges(w, i, ranges) : 1;
    uint64_t at = p->nbytes;
    t->at[i] = at;
    for (uint32_t k = 0; k < n; k++) {
        t->ranges[p->first_range + p->n_ranges++] =
            (csn_trunk_range){tensor->i_file, i, ranges[k].offset, ranges[k].nbytes, at};
        at += ranges[k].nbytes;
    }
    p->nbytes = align_up(at);
}

static caisson_status list_parts(csn_trunk *t, caisson_error *err) {
    const csn_directory *dir = csn_store_dir(t->store);
    csn_str head = CSN_STR("lm_head.weight");
    if (csn_directory_find(dir, head) == NULL) {
        head = CSN_STR("model.embed_tokens.weight");
    }
    t->n_parts = csn_store_arch(t->store)->n_layers + 1;
    CSN_TRY(CSN_ARENA_NEW(&t->arena, t->n_parts, &t->parts, err));
    CSN_TRY(CSN_ARENA_NEW(&t->arena, 2 * (size_t)dir->n, &t->ranges, err));
    CSN_TRY(CSN_ARENA_NEW(&t->arena, dir->n, &t->part_of, err));
    CSN_TRY(CSN_ARENA_NEW(&t->arena, dir->n, &t->at, err));
    uint32_t *counts;
    CSN_TRY(CSN_ARENA_NEW(&t->arena, t->n_parts, &counts, err));
    for (uint32_t i = 0; i < dir->n; i++) {
        const csn_tensor *tensor = &dir->tensors[i];
        t->part_of[i] = find_part(t, tensor, head);
        if (t->part_of[i] != CSN_NO_PART) {
            counts[t->part_of[i]] += 2;
        }
    }
    for (uint32_t i = 1; i < t->n_parts; i++) {
        t->parts[i].first_range = t->parts[i - 1].first_range + counts[i - 1];
    }
    for (uint32_t i = 0; i < dir->n; i++) {
        if (t->part_of[i] != CSN_NO_PART) {
            add_ranges(t, &dir->tensors[i], &t->parts[t->part_of[i]]);
        }
    }
    return CAISSON_OK;
}

static void init_sync(csn_trunk *t) {
    pthread_mutex_init(&t->turn, NULL);
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->work, NULL);
    csn_patience_cond_init(&t->done);
}

caisson_status csn_trunk_new(csn_store *store, bool verify, csn_trunk **ret, caisson_error *err) {
    csn_trunk *t;
    csn_warp *w = csn_store_warp(store);
    if (verify && w != NULL) {
        CSN_TRY(csn_warp_use_digests(w, err));
    }
    CSN_TRY(CSN_NEW(1, &t, err));
    t->store = store;
    t->verify = verify;
    t->stall_ms = CSN_STALL_MS;
    t->i_awaited = CSN_NO_PART;
    init_sync(t);
    for (int k = 0; k < CSN_TRUNK_SLOTS; k++) {
        t->holders[k] = CSN_NO_PART;
    }
    caisson_status status = list_parts(t, err);
    if (status != CAISSON_OK) {
        csn_trunk_free(t);
        return status;
    }
    *ret = t;
    return CAISSON_OK;
}

void csn_trunk_free(csn_trunk *t) {
    if (t == NULL) {
        return;
    }
    csn_trunk_stop_readers(t);
    for (uint32_t i = 0; i < t->n_kept; i++) {
        csn_free_aligned(t->parts[i].memory);
    }
    for (int k = 0; k < CSN_TRUNK_SLOTS; k++) {
        csn_free_aligned(t->slots[k]);
    }
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->mutex);
    pthread_mutex_destroy(&t->turn);
    csn_arena_done(&t->arena);
    csn_free(t);
}

bool csn_trunk_has(const csn_trunk *t, uint32_t i_tensor) {
    return t->part_of[i_tensor] != CSN_NO_PART;
}

static uint64_t memory_of(const csn_trunk_part *p) {
    return csn_alloc_aligned_nbytes(p->nbytes);
}

/* The largest part that goes through slot k when the first n_kept stay. */
static uint64_t slot_bytes(const csn_trunk *t, uint32_t n_kept, uint32_t k) {
    uint64_t most = 0;
    for (uint32_t i = n_kept; i < t->n_parts; i++) {
        uint64_t n = i % CSN_TRUNK_SLOTS == k ? memory_of(&t->parts[i]) : 0;
        most = n > most ? n : most;
    }
    return most;
}

static uint64_t bytes_with(const csn_trunk *t, uint32_t n_kept) {
    uint64_t sum = slot_bytes(t, n_kept, 0) + slot_bytes(t, n_kept, 1);
    for (uint32_t i = 0; i < n_kept; i++) {
        sum += memory_of(&t->parts[i]);
    }
    return sum;
}

static uint32_t choose_kept(const csn_trunk *t, uint64_t bytes) {
    uint32_t n = t->n_parts;
    while (n > 0 && bytes_with(t, n) > bytes) {
        n--;
    }
    return n;
}

uint64_t csn_trunk_min_bytes(const csn_trunk *t) {
    return bytes_with(t, 0);
}

uint64_t csn_trunk_all_bytes(const csn_trunk *t) {
    return bytes_with(t, t->n_parts);
}

uint64_t csn_trunk_reread_bytes(const csn_trunk *t, uint64_t bytes) {
    uint64_t sum = 0;
    uint32_t n_kept = choose_kept(t, bytes);
    for (uint32_t i = n_kept; n_kept + CSN_TRUNK_SLOTS < t->n_parts && i < t->n_parts; i++) {
        sum += t->parts[i].nbytes;
    }
    return sum;
}

static caisson_status list_files(csn_trunk *t, caisson_error *err) {
    const csn_cmf *c = csn_store_cmf(t->store);
    csn_warp *w = csn_store_warp(t->store);
    uint32_t n = w != NULL ? 1 : c->n_files;
    CSN_TRY(CSN_ARENA_NEW(&t->arena, n, &t->files, err));
    t->n_files = n;
    for (uint32_t i = 0; i < n; i++) {
        t->files[i].buffered = w != NULL ? w->trunk : csn_cmf_file_of(c, i)->file;
    }
    return CAISSON_OK;
}

caisson_status csn_trunk_start(csn_trunk *t, uint64_t bytes, csn_expert_io io, caisson_error *err) {
    uint32_t n_kept = choose_kept(t, bytes);
    for (uint32_t k = 0; k < CSN_TRUNK_SLOTS; k++) {
        CSN_TRY(csn_alloc_aligned((size_t)slot_bytes(t, n_kept, k), (void **)&t->slots[k], err));
    }
    for (uint32_t i = 0; i < t->n_parts; i++) {
        csn_trunk_part *p = &t->parts[i];
        p->memory = t->slots[i % CSN_TRUNK_SLOTS];
        if (i < n_kept) {
            CSN_TRY(csn_alloc_aligned((size_t)p->nbytes, (void **)&p->memory, err));
            t->n_kept = i + 1;
        }
    }
    CSN_TRY(list_files(t, err));
    return csn_trunk_start_readers(t, io, err);
}

void csn_trunk_set_stall(csn_trunk *t, uint32_t ms) {
    t->stall_ms = ms;
}

const uint8_t *csn_trunk_address(const csn_trunk *t, uint32_t i_tensor) {
    uint32_t i = t->part_of[i_tensor];
    return i != CSN_NO_PART ? t->parts[i].memory + t->at[i_tensor] : NULL;
}

void csn_trunk_claim(csn_trunk *t) {
    pthread_mutex_lock(&t->turn);
}

void csn_trunk_release(csn_trunk *t) {
    pthread_mutex_unlock(&t->turn);
}

/* Sees to it that part i comes; false: its slot is still being filled with another. */
static bool want(csn_trunk *t, uint32_t i) {
    csn_trunk_part *p = &t->parts[i];
    if (p->state == CSN_PART_READY || p->state == CSN_PART_READING) {
        return true;
    }
    if (i >= t->n_kept) {
        uint32_t *holder = &t->holders[i % CSN_TRUNK_SLOTS];
        csn_trunk_part *other = *holder != CSN_NO_PART ? &t->parts[*holder] : p;
        if (other->state == CSN_PART_READING) {
            return false;
        }
        other->state = CSN_PART_ABSENT;
        *holder = i;
    }
    csn_trunk_queue(t, i);
    return true;
}

/* Parts that stay, or that have another slot than part i, which is in use. */
static bool is_apart(const csn_trunk *t, uint32_t i, uint32_t next) {
    return next != i && (next < t->n_kept || i < t->n_kept || next % 2 != i % 2);
}

/* With the mutex. */
static caisson_status await(csn_trunk *t, uint32_t i, uint32_t next, const csn_progress *progress,
                            caisson_error *err) {
    csn_patience p = {.stall_ms = t->stall_ms, .section = "trunk", .stage = "trunk"};
    while (!t->has_failed || t->parts[i].state == CSN_PART_READING) {
        bool ignored;
        if (want(t, i) && is_apart(t, i, next) && t->n_queued + 1 < CSN_TRUNK_QUEUE) {
            (void)want(t, next);
        }
        if (t->parts[i].state == CSN_PART_READY) {
            return CAISSON_OK;
        }
        CSN_TRY(
            csn_patience_wait(&p, &t->mutex, &t->done, &t->n_blocks_done, progress, &ignored, err));
    }
    *err = t->error;
    return err->code;
}

static caisson_status check(csn_trunk *t, uint32_t i, caisson_error *err) {
    const csn_trunk_part *p = &t->parts[i];
    if (!t->verify) {
        return CAISSON_OK;
    }
    for (uint32_t k = p->first_range; k < p->first_range + p->n_ranges; k++) {
        uint32_t i_tensor = t->ranges[k].i_tensor;
        CSN_TRY(csn_store_check(t->store, i_tensor, csn_trunk_address(t, i_tensor), err));
    }
    return CAISSON_OK;
}

caisson_status csn_trunk_use(csn_trunk *t, uint32_t i, uint32_t next, const csn_progress *progress,
                             caisson_error *err) {
    csn_trunk_part *p = &t->parts[i];
    pthread_mutex_lock(&t->mutex);
    uint64_t start = p->state == CSN_PART_READY ? 0 : csn_now_ns();
    t->i_awaited = i;
    t->has_failed = false;
    caisson_status status = await(t, i, next, progress, err);
    t->i_awaited = CSN_NO_PART;
    t->stats.stall_ns += start != 0 ? csn_now_ns() - start : 0;
    bool is_new = status == CAISSON_OK && p->is_new;
    p->is_new = p->is_new && !is_new;
    pthread_mutex_unlock(&t->mutex);
    if (is_new) {
        status = check(t, i, err);
    }
    if (is_new && status != CAISSON_OK) {
        pthread_mutex_lock(&t->mutex);
        p->state = CSN_PART_ABSENT;
        pthread_mutex_unlock(&t->mutex);
    }
    return status;
}

bool csn_trunk_is_there(csn_trunk *t, uint32_t i) {
    pthread_mutex_lock(&t->mutex);
    bool is_there = i < t->n_kept && t->parts[i].state == CSN_PART_READY;
    pthread_mutex_unlock(&t->mutex);
    return is_there;
}

void csn_trunk_get_stats(csn_trunk *t, csn_trunk_stats *ret) {
    pthread_mutex_lock(&t->mutex);
    *ret = t->stats;
    pthread_mutex_unlock(&t->mutex);
    ret->n_parts = t->n_parts;
    ret->n_kept = t->n_kept;
}

const char *csn_trunk_io_text(const csn_trunk *t) {
    return t->io_text;
}
