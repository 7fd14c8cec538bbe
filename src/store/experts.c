/* SPDX-License-Identifier: Apache-2.0 */
/* The expert store as its caller sees it: the list that is worked on, what was guessed for the next
 * one, and the figures. Entries of the list get their slots in its order, as soon as there are any;
 * from then on they are pinned until they have been used. */
#include "store/experts.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os.h"
#include "base/threads.h"
#include "store/experts_internal.h"

enum {
    STALL_MS = 30000,
    TICK_MS = 20, /* how soon a waiting caller notices that it was cancelled */
    WINDOW_BYTES = 32 << 20,
    GUESS_MEMORY = 64,
    POPULATE_FROM = 64 << 20, /* bytes */
    POPULATE_STEP = 8 << 20
};

/* ---- made and freed ---- */

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
    pthread_condattr_t attr;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->work, NULL);
    pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->done, &attr);
    pthread_condattr_destroy(&attr);
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
    e->guess_rate = 1.0f;
    e->stall_ms = options->stall_ms != 0 ? options->stall_ms : STALL_MS;
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

/* ---- slots for the list ---- */

static void count_asked(csn_experts *e, uint32_t i_layer, uint64_t hits, uint64_t misses) {
    csn_expert_stats *of[] = {&e->layers[i_layer].stats, &e->layers[e->map.n_layers].stats};
    for (int i = 0; i < 2; i++) {
        of[i]->hits += hits;
        of[i]->misses += misses;
    }
}

/* One guess of the past GUESS_MEMORY or so was right, or was not. */
static void learn_guess(csn_experts *e, bool is_right) {
    e->guess_rate += ((is_right ? 1.0f : 0.0f) - e->guess_rate) / GUESS_MEMORY;
}

/* The list came for an expert that was guessed. False: nothing of it was begun, so that it is now
 * read because it is wanted. */
static bool use_guess(csn_experts *e, uint32_t i_slot) {
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

/* Gives the next entry of the list a slot. False: none can be had now. */
static bool issue_next(csn_experts *e, csn_victim_use use) {
    csn_expert_list *l = &e->list;
    csn_expert_entry *entry = &l->entries[l->n_issued];
    uint32_t number = csn_expert_number(&e->cache, l->i_layer, entry->id);
    uint32_t i = e->cache.slot_of[number];
    bool is_hit = i != CSN_NO_SLOT;
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
        is_hit = use_guess(e, i);
    }
    csn_slot *s = &e->cache.slots[i];
    s->is_pinned = true;
    s->is_wanted = s->is_guarded = s->is_guess = false;
    entry->i_slot = i;
    l->n_issued++;
    count_asked(e, l->i_layer, is_hit, !is_hit);
    return true;
}

static uint32_t count_slots(const csn_experts *e) {
    return e->cache.n_slots - e->cache.n_gone;
}

/* How far the reads run ahead of the caller: over the whole of a list that fits, else not so far
 * that they push out what is used more. */
static uint32_t list_window(const csn_experts *e) {
    uint32_t n_slots = count_slots(e);
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

/* Guesses of the layer whose list is there need no guard any more. */
static void judge_guesses(csn_experts *e, uint32_t i_layer) {
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
    csn_expert_cache_tick(c, i_layer);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = csn_expert_number(c, i_layer, ids[i]);
        l->entries[i] = (csn_expert_entry){.id = ids[i], .i_slot = CSN_NO_SLOT};
        csn_expert_cache_touch(c, i_layer, number, ++e->clock);
        if (c->slot_of[number] != CSN_NO_SLOT) {
            c->slots[c->slot_of[number]].is_wanted = true;
        }
    }
    judge_guesses(e, i_layer);
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

/* How long the caller has waited in vain. Moments are counted, not the clock: a process that was
 * stopped for a while has not waited. */
typedef struct patience {
    uint64_t n_blocks_done;
    uint32_t quiet_ms;
} patience;

/* Waits for the reading hand, for a moment. */
static caisson_status wait_moment(csn_experts *e, patience *p, caisson_error *err) {
    pthread_mutex_unlock(&e->mutex); /* it is the host that is asked */
    caisson_status status = csn_progress_tell(e->list.progress, "experts", 0, 0, err);
    pthread_mutex_lock(&e->mutex);
    CSN_TRY(status);
    p->quiet_ms = p->n_blocks_done == e->n_blocks_done ? p->quiet_ms : 0;
    p->n_blocks_done = e->n_blocks_done;
    if (p->quiet_ms >= e->stall_ms) {
        return CSN_FAIL(err, CAISSON_E_IO, .what = "the disk does not answer (milliseconds)",
                        CSN_VALUES(e->stall_ms, p->quiet_ms));
    }
    uint64_t until_ns = csn_now_ns() + TICK_MS * UINT64_C(1000000);
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    if (pthread_cond_timedwait(&e->done, &e->mutex, &until) == ETIMEDOUT) {
        p->quiet_ms += TICK_MS;
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
        patience p = {0};
        while (entry == NULL && status == CAISSON_OK) {
            status = wait_moment(e, &p, err);
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
    bool fits = n <= count_slots(e);
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

/* ---- guesses ---- */

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
    uint32_t most = count_slots(e) / 4;
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

uint64_t csn_experts_shrink(csn_experts *e, uint64_t cache_bytes) {
    csn_expert_cache *c = &e->cache;
    uint64_t n = cache_bytes / c->slot_bytes;
    pthread_mutex_lock(&e->mutex);
    e->is_populating = false;
    csn_expert_cache_shrink(c, n < c->n_slots ? (uint32_t)n : c->n_slots);
    uint64_t left = count_slots(e) * c->slot_bytes;
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
    const csn_expert_layer *all = &e->layers[e->map.n_layers];
    patience p = {0};
    while (status == CAISSON_OK && (e->wanted.n > 0 || all->n_in_flight > 0)) {
        status = wait_moment(e, &p, err);
    }
    csn_experts_drop_queue(e, &e->wanted);
    pthread_mutex_unlock(&e->mutex);
    return status;
}
