/* SPDX-License-Identifier: Apache-2.0 */
/* Experts read on a guess, for a list that has not come yet. */
#include "store/experts_internal.h"

enum { GUESS_MEMORY = 64 };

/* One guess of the past GUESS_MEMORY or so was right, or was not. */
static void learn_guess(csn_experts *e, bool is_right) {
    e->guess_rate += ((is_right ? 1.0f : 0.0f) - e->guess_rate) / GUESS_MEMORY;
}

bool csn_experts_use_guess(csn_experts *e, uint32_t i_slot) {
    csn_slot *s = &e->cache.slots[i_slot];
    bool is_begun = s->state != CSN_SLOT_READING || s->i_piece > 0 || s->begun_bytes > 0;
    learn_guess(e, true);
    if (s->state == CSN_SLOT_READING && s->i_piece < e->map.n_pieces) { /* goes first from now on */
        csn_experts_unqueue(&e->guesses, i_slot);
        csn_experts_queue(&e->wanted, i_slot);
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; is_begun && i < e->map.n_pieces; i++) {
        bytes += csn_expert_cache_span(&e->cache, s->number, i).nbytes;
    }
    csn_expert_stats *of[] = {&e->layers[s->i_layer].stats, &e->layers[e->map.n_layers].stats};
    for (int i = 0; i < 2; i++) {
        of[i]->ahead_used += is_begun;
        of[i]->ahead_used_bytes += bytes;
    }
    return is_begun;
}

void csn_experts_judge_guesses(csn_experts *e, uint32_t i_layer) {
    for (uint32_t i = 0; i < e->cache.n_slots; i++) {
        csn_slot *s = &e->cache.slots[i];
        if (s->is_guarded && s->i_layer == i_layer) {
            s->is_guarded = false;
            if (!s->is_wanted) {
                learn_guess(e, false);
            }
        }
    }
}

static void forget_guesses(csn_experts *e) {
    csn_expert_queue *q = &e->guesses;
    for (uint32_t i = 0, n = q->n; i < n; i++) { /* once around, without those not begun */
        uint32_t i_slot = csn_experts_pop(q);
        const csn_slot *s = &e->cache.slots[i_slot];
        if (s->i_piece == 0 && s->begun_bytes == 0) {
            csn_expert_cache_drop(&e->cache, i_slot);
        } else {
            csn_experts_queue(q, i_slot);
        }
    }
}

void csn_experts_ahead(csn_experts *e, uint32_t i_layer, const uint32_t *ids, uint32_t n) {
    csn_expert_cache *c = &e->cache;
    pthread_mutex_lock(&e->mutex);
    forget_guesses(e);
    uint32_t n_guarded = 0;
    for (uint32_t i = 0; i < c->n_slots; i++) {
        n_guarded += c->slots[i].is_guarded;
    }
    uint32_t most = csn_expert_cache_n_left(&e->cache) / 4;
    if (e->guess_rate < 0.5f) { /* the best of them alone: they cost what the lists could have */
        n = (uint32_t)(2.0f * e->guess_rate * (float)n) + 1;
    }
    for (uint32_t k = 0; k < n && n_guarded < most; k++) {
        uint32_t number = csn_expert_number(c, i_layer, ids[k]);
        if (c->slot_of[number] != CSN_NO_SLOT) {
            continue;
        }
        uint32_t i = csn_expert_cache_victim(c, i_layer, CSN_VICTIM_FOR_GUESS);
        if (i == CSN_NO_SLOT) {
            break;
        }
        csn_expert_cache_assign(c, i, i_layer, number);
        c->slots[i].is_guess = c->slots[i].is_guarded = true;
        csn_experts_queue(&e->guesses, i);
        n_guarded++;
    }
    csn_experts_wake(e);
    pthread_mutex_unlock(&e->mutex);
}
