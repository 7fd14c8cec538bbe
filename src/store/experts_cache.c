/* SPDX-License-Identifier: Apache-2.0 */
/* Whom to let go: the expert that is expected back last. With rate r (of the lists of its layer
 * that wanted it, each older list counting a little less) the next list of its layer wants it with
 * probability r, so it is expected after (distance of its layer from ours) / n_layers tokens, plus
 * 1 / r - 1 more. Rates outlive the stay in memory: what was just read for the first time does not
 * push out what comes every few tokens, and when more is used in each token than fits, part of it
 * stays, where a rule of recency alone would read everything again.
 */
#include "store/experts_cache.h"

#include <float.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/size.h"

enum {
    MIN_SLOTS = 4,     /* two in use, two on their way */
    RATE_MEMORY = 2048 /* lists after which a rate has faded out */
};

#define HALF_LIFE_DECAY 0.98923f /* per list: 2^(-1/64); docs/warp.md has others */
#define LONG_TOKENS 6.0f         /* not expected back sooner: a guess may take its place */
#define NEVER_GOES (-DBL_MAX)

static bool span_of(const csn_expert_piece *p, csn_expert_span *ret) {
    uint64_t end;
    uint64_t aligned;
    if (p->nbytes == 0 || !csn_add(p->offset, p->nbytes, &end) || end > INT64_MAX ||
        !csn_align_up(end, CSN_DIRECT_ALIGN, &aligned)) {
        return false;
    }
    uint64_t skip = p->offset % CSN_DIRECT_ALIGN;
    *ret = (csn_expert_span){.i_file = p->i_file,
                             .offset = p->offset - skip,
                             .nbytes = aligned - (p->offset - skip),
                             .piece_end = end,
                             .skip = skip};
    return true;
}

static uint64_t count_experts(const csn_expert_map *map) {
    uint64_t n = 0;
    for (uint32_t l = 0; l < map->n_layers; l++) {
        n += map->n_experts[l];
    }
    return n;
}

/* Largest slot that an expert of the map needs: its pieces with the disk blocks around them. */
static caisson_status largest_slot(const csn_expert_map *map, uint64_t *ret, caisson_error *err) {
    uint64_t n = count_experts(map);
    uint64_t largest = CSN_DIRECT_ALIGN;
    for (uint64_t e = 0; e < n; e++) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < map->n_pieces; i++) {
            const csn_expert_piece *p = &map->pieces[e * map->n_pieces + i];
            csn_expert_span span;
            if (!span_of(p, &span) || !csn_add(bytes, span.nbytes, &bytes)) {
                return CSN_FAIL(err, CAISSON_E_BOUNDS, .file = map->files[p->i_file]->path,
                                CSN_RANGE(p->offset, p->nbytes),
                                .what = "an expert's bytes leave the range of offsets");
            }
        }
        largest = bytes > largest ? bytes : largest;
    }
    *ret = largest;
    return CAISSON_OK;
}

caisson_status csn_expert_min_cache(const csn_expert_map *map, uint32_t top_k, uint64_t *ret,
                                    caisson_error *err) {
    uint64_t slot;
    CSN_TRY(largest_slot(map, &slot, err));
    uint64_t n = top_k > MIN_SLOTS ? top_k : MIN_SLOTS;
    uint64_t n_experts = count_experts(map);
    n = n < n_experts ? n : n_experts;
    uint64_t bytes;
    if (!csn_mul(slot, n, &bytes)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "the experts of one layer are too large",
                        CSN_VALUES(UINT64_MAX, slot));
    }
    *ret = bytes;
    return CAISSON_OK;
}

static caisson_status alloc_tables(csn_expert_cache *c, uint32_t n_experts, caisson_error *err) {
    const csn_expert_map *map = c->map;
    CSN_TRY(CSN_NEW((size_t)map->n_layers + 1, &c->first, err));
    CSN_TRY(CSN_NEW(map->n_layers, &c->ticks, err));
    CSN_TRY(CSN_NEW(n_experts, &c->rates, err));
    CSN_TRY(CSN_NEW(n_experts, &c->slot_of, err));
    CSN_TRY(CSN_NEW(c->n_slots, &c->slots, err));
    CSN_TRY(CSN_NEW(RATE_MEMORY, &c->decay, err));
    for (uint32_t l = 0; l < map->n_layers; l++) {
        c->first[l + 1] = c->first[l] + map->n_experts[l];
    }
    for (uint32_t i = 0; i < n_experts; i++) {
        c->slot_of[i] = CSN_NO_SLOT;
    }
    c->decay[0] = 1.0f;
    for (uint32_t i = 1; i < RATE_MEMORY; i++) {
        c->decay[i] = c->decay[i - 1] * HALF_LIFE_DECAY;
    }
    return csn_alloc_aligned((size_t)(c->n_slots * c->slot_bytes), (void **)&c->memory, err);
}

caisson_status csn_expert_cache_init(const csn_expert_map *map, uint64_t cache_bytes,
                                     csn_expert_cache *ret, caisson_error *err) {
    csn_expert_cache c = {.map = map};
    CSN_TRY(largest_slot(map, &c.slot_bytes, err));
    uint64_t n_experts = count_experts(map);
    if (n_experts == 0 || n_experts >= CSN_NO_SLOT) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "number of experts",
                        CSN_VALUES(CSN_NO_SLOT - 1, n_experts));
    }
    uint64_t n_slots = cache_bytes / c.slot_bytes;
    n_slots = n_slots < n_experts ? n_slots : n_experts;
    uint64_t n_min = n_experts < MIN_SLOTS ? n_experts : MIN_SLOTS;
    if (n_slots < n_min) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "too little memory for the cache of experts",
                        CSN_VALUES(n_min * c.slot_bytes, cache_bytes));
    }
    c.n_slots = (uint32_t)n_slots;
    caisson_status status = alloc_tables(&c, (uint32_t)n_experts, err);
    if (status != CAISSON_OK) {
        csn_expert_cache_done(&c);
        return status;
    }
    *ret = c;
    return CAISSON_OK;
}

void csn_expert_cache_done(csn_expert_cache *c) {
    csn_free(c->first);
    csn_free(c->ticks);
    csn_free(c->rates);
    csn_free(c->slot_of);
    csn_free(c->slots);
    csn_free(c->decay);
    csn_free_aligned(c->memory);
    *c = (csn_expert_cache){0};
}

csn_expert_span csn_expert_cache_span(const csn_expert_cache *c, uint32_t number,
                                      uint32_t i_piece) {
    const csn_expert_piece *pieces = &c->map->pieces[(uint64_t)number * c->map->n_pieces];
    csn_expert_span span = {0};
    uint64_t at = 0;
    for (uint32_t i = 0; i <= i_piece; i++) {
        at += span.nbytes;
        (void)span_of(&pieces[i], &span); /* largest_slot has seen them all */
    }
    span.at = at;
    return span;
}

void csn_expert_cache_pieces(const csn_expert_cache *c, uint32_t i_slot, const uint8_t **ret) {
    for (uint32_t i = 0; i < c->map->n_pieces; i++) {
        csn_expert_span span = csn_expert_cache_span(c, c->slots[i_slot].number, i);
        ret[i] = csn_expert_cache_memory(c, i_slot) + span.at + span.skip;
    }
}

/* The rate as of the layer's latest list. */
static float rate_now(const csn_expert_cache *c, uint32_t i_layer, const csn_expert_rate *r) {
    uint32_t age = c->ticks[i_layer] - r->tick;
    return age < RATE_MEMORY ? r->rate * c->decay[age] : 0.0f;
}

void csn_expert_cache_tick(csn_expert_cache *c, uint32_t i_layer) {
    c->ticks[i_layer]++;
}

void csn_expert_cache_touch(csn_expert_cache *c, uint32_t i_layer, uint32_t number,
                            uint32_t clock) {
    csn_expert_rate *r = &c->rates[number];
    r->rate = rate_now(c, i_layer, r) + (1.0f - HALF_LIFE_DECAY);
    r->tick = c->ticks[i_layer];
    r->hits += r->hits < UINT32_MAX;
    r->last = clock;
}

/* Tokens until the expert in the slot is expected back. */
static float expected_after(const csn_expert_cache *c, uint32_t i_layer, const csn_slot *s) {
    uint32_t n = c->map->n_layers;
    uint32_t distance = s->i_layer > i_layer ? s->i_layer - i_layer : n - (i_layer - s->i_layer);
    float r = rate_now(c, s->i_layer, &c->rates[s->number]);
    float more = r > 1e-6f ? 1.0f / r - 1.0f : 1e6f;
    return (float)distance / (float)n + (more > 0.0f ? more : 0.0f);
}

/* How gladly the slot is let go; NEVER_GOES: not at all. */
static double rank_victim(const csn_expert_cache *c, uint32_t i_layer, const csn_slot *s,
                          csn_victim_use use) {
    if (s->state != CSN_SLOT_READY || s->is_pinned) {
        return NEVER_GOES;
    }
    if (s->is_wanted) { /* the last of the list, which rises, is needed last */
        return use == CSN_VICTIM_FOR_NEXT ? (double)s->number - 1e15 : NEVER_GOES;
    }
    double after = (double)expected_after(c, i_layer, s);
    if (use == CSN_VICTIM_FOR_GUESS) {
        return s->is_guarded || after < (double)LONG_TOKENS ? NEVER_GOES : after;
    }
    return s->is_guarded ? after - 1e12 : after;
}

uint32_t csn_expert_cache_victim(const csn_expert_cache *c, uint32_t i_layer, csn_victim_use use) {
    uint32_t best = CSN_NO_SLOT;
    double best_rank = NEVER_GOES;
    for (uint32_t i = 0; i < c->n_slots; i++) {
        if (c->slots[i].state == CSN_SLOT_EMPTY) {
            return i;
        }
        double rank = rank_victim(c, i_layer, &c->slots[i], use);
        if (rank > best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    return best;
}

void csn_expert_cache_assign(csn_expert_cache *c, uint32_t i_slot, uint32_t i_layer,
                             uint32_t number) {
    csn_slot *s = &c->slots[i_slot];
    if (s->state != CSN_SLOT_EMPTY) {
        csn_expert_cache_drop(c, i_slot);
    }
    *s = (csn_slot){.number = number, .i_layer = i_layer, .state = CSN_SLOT_READING};
    c->slot_of[number] = i_slot;
    c->n_used = i_slot >= c->n_used ? (uint64_t)i_slot + 1 : c->n_used;
}

void csn_expert_cache_drop(csn_expert_cache *c, uint32_t i_slot) {
    c->slot_of[c->slots[i_slot].number] = CSN_NO_SLOT;
    c->slots[i_slot] = (csn_slot){.state = CSN_SLOT_EMPTY};
}

void csn_expert_cache_shrink(csn_expert_cache *c, uint32_t n_left) {
    uint32_t n_least = c->n_least > MIN_SLOTS ? c->n_least : MIN_SLOTS;
    n_left = n_left > n_least ? n_left : n_least;
    while (c->n_slots - c->n_gone > n_left) {
        uint32_t i = csn_expert_cache_victim(c, 0, CSN_VICTIM_FOR_LIST);
        if (i == CSN_NO_SLOT) { /* the others are being read */
            return;
        }
        if (c->slots[i].state == CSN_SLOT_READY) {
            csn_expert_cache_drop(c, i);
        }
        c->slots[i].state = CSN_SLOT_GONE;
        c->n_gone++;
        csn_os_discard(csn_expert_cache_memory(c, i), (size_t)c->slot_bytes);
    }
}
