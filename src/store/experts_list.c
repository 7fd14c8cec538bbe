/* SPDX-License-Identifier: Apache-2.0 */
/* The list that the expert store works on. Entries get their slots in its order, as soon as there
 * are any; from then on they are pinned until they have been used. */
#include <stdio.h>

#include "base/clock.h"
#include "store/experts_internal.h"

enum { WINDOW_BYTES = 32 << 20 };

/* ---- slots for the list ---- */

static void count_asked(csn_experts *e, uint32_t i_layer, uint64_t hits, uint64_t misses) {
    csn_expert_stats *of[] = {&e->layers[i_layer].stats, &e->layers[e->map.n_layers].stats};
    for (int i = 0; i < 2; i++) {
        of[i]->hits += hits;
        of[i]->misses += misses;
    }
}

/* Gives the next entry of the list a slot. False: none can be had now. */
static bool issue_next(csn_experts *e, csn_victim_use use) {
    csn_expert_list *l = &e->list;
    csn_expert_entry *entry = &l->entries[l->n_issued];
    uint32_t number = csn_expert_number(&e->cache, l->i_layer, entry->id);
    uint32_t i = e->cache.slot_of[number];
    bool is_hit = i != CSN_NO_SLOT;
    if (!is_hit || e->cache.slots[i].is_guess) {
        e->n_whole_lists = 0;
    }
    if (is_hit && (e->cache.slots[i].is_dropped || e->cache.slots[i].has_failed)) {
        return false; /* of an earlier list: soon out of the way */
    }
    if (!is_hit) {
        i = csn_expert_cache_victim(&e->cache, l->i_layer, use);
        if (i == CSN_NO_SLOT) {
            return false;
        }
        csn_expert_cache_assign(&e->cache, i, l->i_layer, number);
        csn_experts_queue(&e->wanted, i);
    } else if (e->cache.slots[i].is_guess) {
        is_hit = csn_experts_use_guess(e, i);
    }
    csn_slot *s = &e->cache.slots[i];
    s->is_pinned = true;
    s->is_wanted = s->is_guarded = s->is_guess = false;
    entry->i_slot = i;
    l->n_issued++;
    count_asked(e, l->i_layer, is_hit, !is_hit);
    return true;
}

/* How far the reads run ahead of the caller: over the whole of a list that fits, else not so far
 * that they push out what is used more. */
static uint32_t list_window(const csn_experts *e) {
    uint32_t n_slots = csn_expert_cache_n_left(&e->cache);
    if (e->list.n <= n_slots) {
        return e->list.n;
    }
    uint64_t n = WINDOW_BYTES / e->cache.slot_bytes;
    n = n < n_slots / 4 ? n : n_slots / 4;
    return n > 2 ? (uint32_t)n : 2;
}

static void issue(csn_experts *e) {
    csn_expert_list *l = &e->list;
    uint32_t before = l->n_issued;
    uint32_t window = list_window(e);
    csn_victim_use use = window < l->n ? CSN_VICTIM_FOR_NEXT : CSN_VICTIM_FOR_LIST;
    while (l->n_issued < l->n && l->n_issued - l->n_taken < window && issue_next(e, use)) {
    }
    if (l->n_issued > before) {
        csn_experts_wake(e);
    }
}

void csn_experts_want(csn_experts *e, uint32_t i_layer, const uint32_t *ids, uint32_t n,
                      const csn_progress *progress) {
    csn_expert_cache *c = &e->cache;
    csn_expert_list *l = &e->list;
    pthread_mutex_lock(&e->mutex);
    l->i_layer = i_layer;
    l->n = n;
    l->n_issued = l->n_taken = 0;
    l->i_error = n;
    l->progress = progress;
    e->n_whole_lists++;
    csn_expert_cache_tick(c, i_layer);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = csn_expert_number(c, i_layer, ids[i]);
        l->entries[i] = (csn_expert_entry){.id = ids[i], .i_slot = CSN_NO_SLOT};
        csn_expert_cache_touch(c, i_layer, number, ++e->clock);
        if (c->slot_of[number] != CSN_NO_SLOT) {
            c->slots[c->slot_of[number]].is_wanted = true;
        }
    }
    csn_experts_judge_guesses(e);
    issue(e);
    pthread_mutex_unlock(&e->mutex);
}

static void release(csn_experts *e, csn_expert_entry *entry) {
    if (entry->i_slot == CSN_NO_SLOT) {
        return;
    }
    csn_slot *s = &e->cache.slots[entry->i_slot];
    s->is_pinned = false;
    if (s->state == CSN_SLOT_FAILED) {
        csn_expert_cache_drop(&e->cache, entry->i_slot);
    }
    entry->i_slot = CSN_NO_SLOT;
}

void csn_experts_done(csn_experts *e) {
    csn_expert_list *l = &e->list;
    pthread_mutex_lock(&e->mutex);
    csn_experts_drop_queue(e, &e->wanted);
    for (uint32_t i = 0; i < l->n_issued; i++) {
        if (l->entries[i].i_slot != CSN_NO_SLOT &&
            e->cache.slots[l->entries[i].i_slot].state == CSN_SLOT_EMPTY) {
            l->entries[i].i_slot = CSN_NO_SLOT; /* nothing of it was begun */
        }
        release(e, &l->entries[i]);
    }
    for (uint32_t i = l->n_issued; i < l->n; i++) {
        uint32_t s = e->cache.slot_of[csn_expert_number(&e->cache, l->i_layer, l->entries[i].id)];
        if (s != CSN_NO_SLOT) {
            e->cache.slots[s].is_wanted = false;
        }
    }
    l->n = l->n_issued = l->n_taken = 0;
    pthread_mutex_unlock(&e->mutex);
}

/* ---- taking ---- */

static void name_expert(const csn_experts *e, uint32_t id, caisson_error *err) {
    uint32_t i_layer = e->list.i_layer;
    uint64_t first_piece = (uint64_t)csn_expert_number(&e->cache, i_layer, id) * e->map.n_pieces;
    char text[64];
    (void)snprintf(text, sizeof(text), "layer %u, expert %u", (unsigned)e->map.layer_ids[i_layer],
                   (unsigned)id);
    csn_error_tensor(err, csn_str_from(text));
    csn_error_file(err, e->map.files[e->map.pieces[first_piece].i_file]->path);
}

void csn_experts_note_failure(csn_experts *e, uint32_t i_slot, const caisson_error *err) {
    csn_expert_list *l = &e->list;
    for (uint32_t i = 0; i < l->n_issued && i < l->i_error; i++) {
        if (l->entries[i].i_slot == i_slot) {
            l->i_error = i;
            l->error = *err;
            name_expert(e, l->entries[i].id, &l->error);
        }
    }
}

csn_patience csn_experts_patience(const csn_experts *e) {
    return (csn_patience){.stall_ms = e->stall_ms, .stage = "experts"};
}

caisson_status csn_experts_wait(csn_experts *e, csn_patience *p, caisson_error *err) {
    bool is_quiet = false;
    CSN_TRY(csn_patience_wait(p, &e->mutex, &e->done, &e->n_blocks_done, e->list.progress,
                              &is_quiet, err));
    if (is_quiet) {
        csn_experts_wake(e); /* the kernel may have refused to take a read */
    }
    return CAISSON_OK;
}

static csn_slot_state state_of(const csn_experts *e, const csn_expert_entry *entry) {
    return entry->i_slot == CSN_NO_SLOT ? CSN_SLOT_EMPTY : e->cache.slots[entry->i_slot].state;
}

/* The entry to hand out now, or NULL: wait. */
static csn_expert_entry *find_next(csn_experts *e) {
    csn_expert_entry *entry = &e->list.entries[e->list.n_taken];
    csn_slot_state state = state_of(e, entry);
    return state == CSN_SLOT_READY || state == CSN_SLOT_FAILED ? entry : NULL;
}

static csn_expert_entry *find_any(csn_experts *e) {
    csn_expert_entry *failed = NULL;
    for (uint32_t i = 0; i < e->list.n_issued; i++) {
        csn_expert_entry *entry = &e->list.entries[i];
        csn_slot_state state = state_of(e, entry);
        if (!entry->is_taken && state == CSN_SLOT_READY) {
            return entry;
        }
        failed = state == CSN_SLOT_FAILED && failed == NULL ? entry : failed;
    }
    return failed;
}

static const csn_expert_entry *first_missing(const csn_experts *e) {
    uint32_t i = 0;
    while (i + 1 < e->list.n && e->list.entries[i].is_taken) {
        i++;
    }
    return &e->list.entries[i];
}

/* Waits until `find` has an entry, and hands it out; the mutex is held. */
static caisson_status hand_out(csn_experts *e, csn_expert_entry *(*find)(csn_experts *e),
                               uint32_t *ret_id, const uint8_t **pieces, caisson_error *err) {
    csn_expert_list *l = &e->list;
    uint64_t since_ns = csn_now_ns();
    caisson_status status = CAISSON_OK;
    issue(e);
    csn_expert_entry *entry = find(e);
    if (entry == NULL) {
        csn_patience p = csn_experts_patience(e);
        while (entry == NULL && status == CAISSON_OK) {
            status = csn_experts_wait(e, &p, err);
            issue(e);
            entry = find(e);
        }
        uint64_t ns = csn_now_ns() - since_ns;
        e->layers[l->i_layer].stats.stall_ns += ns;
        e->layers[e->map.n_layers].stats.stall_ns += ns;
    }
    if (status != CAISSON_OK) {
        name_expert(e, first_missing(e)->id, err);
        return status;
    }
    if (state_of(e, entry) == CSN_SLOT_FAILED) {
        *err = l->error;
        return err->code;
    }
    entry->is_taken = true;
    l->n_taken++;
    csn_expert_cache_pieces(&e->cache, entry->i_slot, pieces);
    *ret_id = entry->id;
    return CAISSON_OK;
}

caisson_status csn_experts_take(csn_experts *e, uint32_t *ret_id, const uint8_t **pieces,
                                caisson_error *err) {
    pthread_mutex_lock(&e->mutex);
    if (e->list.n_taken >= 2) {
        release(e, &e->list.entries[e->list.n_taken - 2]);
    }
    caisson_status status = hand_out(e, find_next, ret_id, pieces, err);
    pthread_mutex_unlock(&e->mutex);
    return status;
}

bool csn_experts_fits(csn_experts *e, uint32_t n) {
    pthread_mutex_lock(&e->mutex);
    bool fits = n <= csn_expert_cache_n_left(&e->cache);
    pthread_mutex_unlock(&e->mutex);
    return fits;
}

caisson_status csn_experts_take_any(csn_experts *e, uint32_t *ret_id, const uint8_t **pieces,
                                    caisson_error *err) {
    pthread_mutex_lock(&e->mutex);
    caisson_status status = hand_out(e, find_any, ret_id, pieces, err);
    pthread_mutex_unlock(&e->mutex);
    return status;
}

uint32_t csn_experts_n_ready(csn_experts *e) {
    uint32_t n = 0;
    pthread_mutex_lock(&e->mutex);
    for (uint32_t i = 0; i < e->list.n_issued; i++) {
        const csn_expert_entry *entry = &e->list.entries[i];
        n += !entry->is_taken && state_of(e, entry) == CSN_SLOT_READY;
    }
    pthread_mutex_unlock(&e->mutex);
    return n;
}
