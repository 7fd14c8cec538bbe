/* SPDX-License-Identifier: Apache-2.0 */
/* Experts read on a guess, for a list that has not come yet. Guesses are judged by their place,
 * whether they were read or not: the first are right most often, and a place that is wrong too
 * often is not read until it is right again. */
#include "store/experts_internal.h"

enum { JUDGED = 64 }; /* guesses that a rate remembers */

#define WORTH_READING 0.5f /* right so often; a wrong guess takes the disk from the list */

static uint64_t begun_bytes(const csn_experts *e, const csn_slot *s) {
    uint64_t bytes = s->begun_bytes;
    uint32_t n = s->state == CSN_SLOT_READING ? s->i_piece : e->map.n_pieces;
    for (uint32_t i = 0; i < n; i++) {
        bytes += csn_expert_cache_span(&e->cache, s->number, i).nbytes;
    }
    return bytes;
}

bool csn_experts_use_guess(csn_experts *e, uint32_t i_slot) {
    csn_slot *s = &e->cache.slots[i_slot];
    uint64_t bytes = begun_bytes(e, s);
    if (s->state == CSN_SLOT_READING && s->i_piece < e->map.n_pieces) {
        csn_experts_unqueue(&e->guesses, i_slot);
        if (bytes > 0) {
            csn_experts_queue_first(&e->wanted, i_slot);
        } else {
            csn_experts_queue(&e->wanted, i_slot);
        }
    }
    csn_expert_stats *of[] = {&e->layers[s->i_layer].stats, &e->layers[e->map.n_layers].stats};
    for (int i = 0; i < 2; i++) {
        of[i]->ahead_used += bytes > 0;
        of[i]->ahead_used_bytes += bytes;
    }
    return bytes > 0;
}

/* Nothing more is read of guesses that no list wants. */
static void forget_guesses(csn_experts *e) {
    for (uint32_t i = 0, n = e->guesses.n; i < n; i++) { /* once around */
        uint32_t i_slot = csn_experts_pop(&e->guesses);
        if (e->cache.slots[i_slot].is_wanted) {
            csn_experts_queue(&e->guesses, i_slot);
        } else {
            csn_experts_drop_reading(e, i_slot);
        }
    }
}

static bool list_has(const csn_expert_list *l, uint32_t id) {
    uint32_t i = 0;
    while (i < l->n && l->entries[i].id < id) {
        i++;
    }
    return i < l->n && l->entries[i].id == id;
}

static void count_guess(csn_experts *e, uint32_t place, bool is_right) {
    csn_expert_stats *of[] = {&e->layers[e->list.i_layer].stats, &e->layers[e->map.n_layers].stats};
    for (int i = 0; i < 2; i++) {
        of[i]->guessed[place]++;
        of[i]->guessed_right[place] += is_right;
    }
}

void csn_experts_judge_guesses(csn_experts *e) {
    const csn_expert_list *l = &e->list;
    csn_expert_guesses *g = &e->guessed;
    for (uint32_t k = 0; k < g->n && g->i_layer == l->i_layer; k++) {
        bool is_right = list_has(l, g->ids[k]);
        count_guess(e, k, is_right);
        if (!g->was_there[k]) {
            g->rates[k] += ((is_right ? 1.0f : 0.0f) - g->rates[k]) / JUDGED;
        }
    }
    g->n = 0;
    for (uint32_t i = 0; i < e->cache.n_slots; i++) {
        e->cache.slots[i].is_guarded = false;
    }
    forget_guesses(e);
}

/* A slot for the guess, if there is one that nobody will miss. */
static bool read_guess(csn_experts *e, uint32_t i_layer, uint32_t number) {
    uint32_t i = csn_expert_cache_victim(&e->cache, i_layer, CSN_VICTIM_FOR_GUESS);
    if (i == CSN_NO_SLOT) {
        return false;
    }
    csn_expert_cache_assign(&e->cache, i, i_layer, number);
    e->cache.slots[i].is_guess = e->cache.slots[i].is_guarded = true;
    csn_experts_queue(&e->guesses, i);
    return true;
}

bool csn_experts_wants_guesses(csn_experts *e) {
    pthread_mutex_lock(&e->mutex);
    bool wants = e->n_whole_lists < e->map.n_layers;
    pthread_mutex_unlock(&e->mutex);
    return wants;
}

void csn_experts_ahead(csn_experts *e, uint32_t i_layer, const uint32_t *ids, uint32_t n) {
    csn_expert_guesses *g = &e->guessed;
    pthread_mutex_lock(&e->mutex);
    forget_guesses(e);
    g->i_layer = i_layer;
    g->n = n < CSN_EXPERT_GUESSES ? n : CSN_EXPERT_GUESSES;
    uint32_t n_left = csn_expert_cache_n_left(&e->cache) / 4; /* the lists have the rest */
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t number = csn_expert_number(&e->cache, i_layer, ids[k]);
        g->ids[k] = ids[k];
        g->was_there[k] = e->cache.slot_of[number] != CSN_NO_SLOT;
        if (!g->was_there[k] && g->rates[k] >= WORTH_READING && n_left > 0) {
            n_left -= read_guess(e, i_layer, number);
        }
    }
    csn_experts_wake(e);
    pthread_mutex_unlock(&e->mutex);
}
