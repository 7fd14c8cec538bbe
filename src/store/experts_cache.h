/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of the expert store: which expert is in which, and which one may go. No threads, no
 * files: the store's mutex guards all of it.
 *
 * Experts of all layers are numbered through: number = first[i_layer] + id.
 */
#ifndef CSN_STORE_EXPERTS_CACHE_H
#define CSN_STORE_EXPERTS_CACHE_H

#include "store/experts.h"

#define CSN_NO_SLOT UINT32_MAX

typedef enum csn_slot_state {
    CSN_SLOT_EMPTY,
    CSN_SLOT_READING,
    CSN_SLOT_READY,
    CSN_SLOT_FAILED, /* until the list that wanted it ends */
    CSN_SLOT_GONE    /* given back to the system */
} csn_slot_state;

typedef struct csn_slot {
    uint32_t number, i_layer; /* of the expert; not while EMPTY or GONE */
    csn_slot_state state;
    bool is_pinned;  /* of the list: in use, or its next ones */
    bool is_wanted;  /* of the list, later than those */
    bool is_guess;   /* read on a guess, not asked for since */
    bool is_guarded; /* a guess whose list has not come */
    /* While it is read: what is begun, [0, i_piece) and begun_bytes of piece i_piece. */
    uint32_t i_piece;
    uint64_t begun_bytes;
    uint32_t n_in_flight; /* blocks */
    bool has_failed, is_dropped;
} csn_slot;

/* How much an expert is used, remembered while it is not in memory too. */
typedef struct csn_expert_rate {
    float rate;    /* of the lists of its layer, those that wanted it; recent ones count more */
    uint32_t tick; /* list of its layer at which `rate` holds */
    uint32_t hits, last;
} csn_expert_rate;

typedef struct csn_expert_cache {
    const csn_expert_map *map;
    uint32_t *first;        /* [n_layers + 1] */
    uint32_t *ticks;        /* [n_layers] lists so far */
    csn_expert_rate *rates; /* [experts] */
    uint32_t *slot_of;      /* [experts] CSN_NO_SLOT = not in memory */
    csn_slot *slots;        /* [n_slots] */
    uint32_t n_slots, n_gone;
    uint64_t n_used;  /* slots before this one had an expert at some time */
    uint32_t n_least; /* slots that stay */
    uint64_t slot_bytes;
    uint8_t *memory; /* [n_slots][slot_bytes], on a page border */
    float *decay;    /* [RATE_MEMORY] what is left of a rate after so many lists */
} csn_expert_cache;

caisson_status csn_expert_cache_init(const csn_expert_map *map, uint64_t cache_bytes,
                                     csn_expert_cache *ret, caisson_error *err);
void csn_expert_cache_done(csn_expert_cache *c); /* of a zeroed one too */

static inline uint32_t csn_expert_number(const csn_expert_cache *c, uint32_t i_layer, uint32_t id) {
    return c->first[i_layer] + id;
}
static inline uint32_t
csn_expert_cache_n_left(const csn_expert_cache *c) { /* slots not given back */
    return c->n_slots - c->n_gone;
}
/* The disk blocks of piece i of an expert: where they begin and how many bytes. */
typedef struct csn_expert_span {
    uint32_t i_file;
    uint64_t offset, nbytes; /* multiples of CSN_DIRECT_ALIGN */
    uint64_t piece_end;      /* offset behind the piece: less than offset + nbytes, or equal */
    uint64_t at;             /* of the span in its slot */
    uint64_t skip;           /* bytes of the span before the piece */
} csn_expert_span;
csn_expert_span csn_expert_cache_span(const csn_expert_cache *c, uint32_t number, uint32_t i_piece);
static inline uint8_t *csn_expert_cache_memory(const csn_expert_cache *c, uint32_t i_slot) {
    return c->memory + i_slot * c->slot_bytes;
}
/* Addresses of the pieces of the expert in a slot. */
void csn_expert_cache_pieces(const csn_expert_cache *c, uint32_t i_slot, const uint8_t **ret);

/* A list of the layer begins: time passes for its experts. */
void csn_expert_cache_tick(csn_expert_cache *c, uint32_t i_layer);
/* The list wants this expert. */
void csn_expert_cache_touch(csn_expert_cache *c, uint32_t i_layer, uint32_t number, uint32_t clock);

typedef enum csn_victim_use {
    CSN_VICTIM_FOR_GUESS, /* empty, or not expected back for long */
    CSN_VICTIM_FOR_LIST,  /* whatever is expected back last; a guarded guess if nothing else */
    CSN_VICTIM_FOR_NEXT   /* even one that the list will want, the last of them */
} csn_victim_use;
/* A slot that may be read into while the list of i_layer is worked on, or CSN_NO_SLOT. */
uint32_t csn_expert_cache_victim(const csn_expert_cache *c, uint32_t i_layer, csn_victim_use use);
/* Slot i now belongs to that expert and is READING, nothing of it begun. */
void csn_expert_cache_assign(csn_expert_cache *c, uint32_t i_slot, uint32_t i_layer,
                             uint32_t number);
void csn_expert_cache_drop(csn_expert_cache *c, uint32_t i_slot); /* EMPTY again */
/* Gives back slots nobody uses, the least useful first, until n_slots - n_gone <= n_left, or
 * n_least. */
void csn_expert_cache_shrink(csn_expert_cache *c, uint32_t n_left);

#endif
