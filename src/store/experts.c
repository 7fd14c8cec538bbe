/* SPDX-License-Identifier: Apache-2.0 */
/* The expert store: made and freed, its figures, and what is remembered of one run for the next. */
#include "store/experts.h"

#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os.h"
#include "base/threads.h"
#include "store/experts_internal.h"

enum {
    POPULATE_FROM = 64 << 20, /* bytes */
    POPULATE_STEP = 8 << 20,
    POPULATE_AHEAD = 256 << 20 /* bytes behind the slots in use: more takes time from the model */
};

/* ---- made and freed ---- */

/* Whether memory up to `end` is touched far enough ahead. While nothing is read the CPU is the
 * model's: only what the first reads want is touched. */
static bool is_far_ahead(const csn_experts *e, uint64_t end) {
    bool is_reading = e->wanted.n > 0 || e->layers[e->map.n_layers].n_in_flight > 0;
    uint64_t used = is_reading ? e->cache.n_used * e->cache.slot_bytes : 0;
    return end >= used + POPULATE_AHEAD;
}

/* Touches the slots before reads do: memory that a virtual machine has to get from its host first
 * costs seconds a gigabyte, while a caller waits. */
static void *populate(void *arg) {
    csn_experts *e = arg;
    uint64_t total = e->cache.n_slots * e->cache.slot_bytes;
    bool goes_on = true;
    for (uint64_t at = 0; at < total && goes_on; at += POPULATE_STEP) {
        uint64_t n = total - at < POPULATE_STEP ? total - at : POPULATE_STEP;
        csn_os_populate(e->cache.memory + at, (size_t)n);
        pthread_mutex_lock(&e->mutex);
        while (is_far_ahead(e, at + n) && e->is_populating && !e->is_stopping) {
            pthread_cond_wait(&e->work, &e->mutex);
        }
        goes_on = e->is_populating && !e->is_stopping;
        pthread_mutex_unlock(&e->mutex);
    }
    return NULL;
}

/* Without the thread the slots are touched by reads. */
static void start_populating(csn_experts *e) {
    caisson_error ignored;
    e->is_populating = true;
    e->has_populator = e->cache.n_slots * e->cache.slot_bytes >= POPULATE_FROM &&
                       csn_thread_start(populate, e, &e->populator, &ignored) == CAISSON_OK;
}

static void init_sync(csn_experts *e) {
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->work, NULL);
    csn_patience_cond_init(&e->done);
}

static caisson_status alloc_queue(uint32_t cap, csn_expert_queue *ret, caisson_error *err) {
    CSN_TRY(CSN_NEW(cap, &ret->slots, err));
    ret->cap = cap;
    return CAISSON_OK;
}

static caisson_status fill(csn_experts *e, const csn_expert_options *options, caisson_error *err) {
    uint32_t largest = 0;
    for (uint32_t l = 0; l < e->map.n_layers; l++) {
        largest = e->map.n_experts[l] > largest ? e->map.n_experts[l] : largest;
    }
    CSN_TRY(csn_expert_cache_init(&e->map, options->cache_bytes, &e->cache, err));
    uint64_t n_least = options->least_bytes / e->cache.slot_bytes;
    e->cache.n_least = n_least < e->cache.n_slots ? (uint32_t)n_least : e->cache.n_slots;
    CSN_TRY(CSN_NEW(e->map.n_files, &e->files, err));
    CSN_TRY(CSN_NEW((size_t)e->map.n_layers + 1, &e->layers, err));
    CSN_TRY(CSN_NEW(largest, &e->list.entries, err));
    CSN_TRY(alloc_queue(e->cache.n_slots, &e->wanted, err));
    CSN_TRY(alloc_queue(e->cache.n_slots, &e->guesses, err));
    return csn_experts_start(e, options->io, err);
}

caisson_status csn_experts_new(const csn_expert_map *map, const csn_expert_options *options,
                               csn_experts **ret, caisson_error *err) {
    csn_experts *e;
    CSN_TRY(CSN_NEW(1, &e, err));
    e->map = *map;
    for (uint32_t k = 0; k < CSN_EXPERT_GUESSES; k++) {
        e->guessed.rates[k] = 1.0f;
    }
    e->stall_ms = options->stall_ms != 0 ? options->stall_ms : CSN_STALL_MS;
    init_sync(e);
    caisson_status status = fill(e, options, err);
    if (status != CAISSON_OK) {
        csn_experts_free(e);
        return status;
    }
    start_populating(e);
    *ret = e;
    return CAISSON_OK;
}

void csn_experts_free(csn_experts *e) {
    if (e == NULL) {
        return;
    }
    csn_experts_stop(e);
    if (e->has_populator) {
        pthread_join(e->populator, NULL);
    }
    pthread_cond_destroy(&e->done);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->mutex);
    csn_expert_cache_done(&e->cache);
    csn_free(e->files);
    csn_free(e->layers);
    csn_free(e->list.entries);
    csn_free(e->wanted.slots);
    csn_free(e->guesses.slots);
    csn_free(e);
}

uint64_t csn_experts_shrink(csn_experts *e, uint64_t cache_bytes) {
    csn_expert_cache *c = &e->cache;
    uint64_t n = cache_bytes / c->slot_bytes;
    pthread_mutex_lock(&e->mutex);
    e->is_populating = false;
    pthread_cond_broadcast(&e->work);
    csn_expert_cache_shrink(c, n < c->n_slots ? (uint32_t)n : c->n_slots);
    uint64_t left = csn_expert_cache_n_left(&e->cache) * c->slot_bytes;
    pthread_mutex_unlock(&e->mutex);
    return left;
}

/* ---- figures ---- */

static void get_stats(csn_experts *e, uint32_t i, csn_expert_stats *ret) {
    pthread_mutex_lock(&e->mutex);
    const csn_expert_layer *l = &e->layers[i];
    *ret = l->stats;
    ret->read_ns += l->n_in_flight > 0 ? csn_now_ns() - l->since_ns : 0;
    pthread_mutex_unlock(&e->mutex);
}

void csn_experts_stats(csn_experts *e, uint32_t i_layer, csn_expert_stats *ret) {
    get_stats(e, i_layer, ret);
}

void csn_experts_stats_all(csn_experts *e, csn_expert_stats *ret) {
    get_stats(e, e->map.n_layers, ret);
}

const char *csn_experts_io_text(const csn_experts *e) {
    return e->io_text;
}

uint32_t csn_experts_usage(csn_experts *e, csn_expert_use *ret, uint32_t max, uint64_t *ret_clock) {
    const csn_expert_cache *c = &e->cache;
    uint32_t n = 0;
    pthread_mutex_lock(&e->mutex);
    for (uint32_t i = 0; i < c->n_slots && n < max; i++) {
        const csn_slot *s = &c->slots[i];
        if (s->state == CSN_SLOT_READY) {
            const csn_expert_rate *r = &c->rates[s->number];
            ret[n++] =
                (csn_expert_use){s->i_layer, s->number - c->first[s->i_layer], r->hits, r->last};
        }
    }
    *ret_clock = e->clock;
    pthread_mutex_unlock(&e->mutex);
    return n;
}

caisson_status csn_experts_preload(csn_experts *e, const csn_expert_use *use, uint32_t n,
                                   caisson_error *err) {
    csn_expert_cache *c = &e->cache;
    caisson_status status = CAISSON_OK;
    pthread_mutex_lock(&e->mutex);
    uint32_t most_hits = 1;
    for (uint32_t k = 0; k < n; k++) {
        most_hits = use[k].hits > most_hits ? use[k].hits : most_hits;
    }
    for (uint32_t k = 0, i_slot = 0; k < n && i_slot < c->n_slots; k++) {
        if (use[k].i_layer >= e->map.n_layers ||
            use[k].expert >= e->map.n_experts[use[k].i_layer]) {
            continue;
        }
        uint32_t number = csn_expert_number(c, use[k].i_layer, use[k].expert);
        if (c->slot_of[number] == CSN_NO_SLOT) {
            c->rates[number].hits = use[k].hits;
            c->rates[number].rate = (float)use[k].hits / (float)most_hits;
            csn_expert_cache_assign(c, i_slot, use[k].i_layer, number);
            c->slots[i_slot].is_guess = true;
            csn_experts_queue(&e->wanted, i_slot++);
        }
    }
    csn_experts_wake(e);
    csn_patience p = csn_experts_patience(e);
    while (status == CAISSON_OK && csn_experts_is_reading(e)) {
        status = csn_experts_wait(e, &p, err);
    }
    csn_experts_drop_queue(e, &e->wanted);
    pthread_mutex_unlock(&e->mutex);
    return status;
}
