/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the expert store: experts_list.c keeps the list, experts_ahead.c what is guessed of the
 * next one, experts_read.c cuts what is missing into blocks, and one of two hands reads them: a
 * pool of readers (experts_read.c) or io_uring (experts_uring.c). A hand takes a block with
 * csn_experts_next_block, reads it without the mutex, and gives it back with
 * csn_experts_block_done.
 */
#ifndef CSN_STORE_EXPERTS_INTERNAL_H
#define CSN_STORE_EXPERTS_INTERNAL_H

#include <pthread.h>

#include "store/experts_cache.h"
#include "store/patience.h"

enum {
    CSN_EXPERT_BLOCK = 1 << 20, /* bytes of one read */
    CSN_EXPERT_IN_FLIGHT = 4,   /* blocks of io_uring: docs/warp.md, "Depth" */
    CSN_EXPERT_READERS = 4
};

/* One read, or its place in the slot. */
typedef struct csn_expert_block {
    uint32_t i_slot, i_file;
    uint64_t offset;
    uint32_t nbytes; /* multiple of CSN_DIRECT_ALIGN */
    uint32_t need;   /* of them, those before the end of the piece */
    uint8_t *to;
    bool is_guess;
} csn_expert_block;

/* Slots in line to be read, each with something left to begin; a slot stands in line once. */
typedef struct csn_expert_queue {
    uint32_t *slots; /* [cap], from head on, around the end */
    uint32_t head, n, cap;
} csn_expert_queue;

typedef struct csn_expert_file {
    csn_file *buffered, *direct; /* the map's; ours, or NULL */
} csn_expert_file;

typedef struct csn_expert_entry {
    uint32_t id, i_slot; /* CSN_NO_SLOT: not looked for yet */
    bool is_taken;
} csn_expert_entry;

typedef struct csn_expert_list {
    csn_expert_entry *entries; /* [largest n_experts] */
    uint32_t i_layer, n;
    uint32_t n_issued, n_taken; /* [0, n_issued) have slots */
    const csn_progress *progress;
    caisson_error error; /* of entry i_error */
    uint32_t i_error;    /* the first that failed; n = none */
} csn_expert_list;

/* What was guessed of the next list, best first. */
typedef struct csn_expert_guesses {
    uint32_t i_layer, n;
    uint32_t ids[CSN_EXPERT_GUESSES];
    bool was_there[CSN_EXPERT_GUESSES]; /* in memory, so that nothing had to be read */
    float rates[CSN_EXPERT_GUESSES]; /* of the guesses in this place of late, those that were right
                                      */
} csn_expert_guesses;

typedef struct csn_expert_layer {
    csn_expert_stats stats;
    uint32_t n_in_flight; /* blocks */
    uint64_t since_ns;    /* of the first of them */
} csn_expert_layer;

typedef struct csn_uring csn_uring;

struct csn_experts {
    csn_expert_map map;
    csn_expert_file *files; /* [map.n_files] */
    uint32_t stall_ms;
    char io_text[256];

    pthread_mutex_t mutex; /* guards all below; taken alone, never held during a read or a check */
    pthread_cond_t work;   /* for readers and the populator: slots are asked for, or is_stopping */
    pthread_cond_t done;   /* for the caller: a slot is ready or failed */
    csn_expert_cache cache;
    csn_expert_list list;
    csn_expert_queue wanted, guesses;
    csn_expert_guesses guessed;
    uint64_t n_whole_lists;   /* in a row, all of which was there before anybody guessed */
    csn_expert_layer *layers; /* [map.n_layers + 1], the last for all */
    uint32_t clock;           /* experts asked for */
    uint64_t n_blocks_done;   /* grows as long as the disk gives something */
    bool is_stopping;
    bool is_populating; /* false ends it */

    uint32_t n_readers;
    pthread_t readers[CSN_EXPERT_READERS];
    csn_uring *uring; /* NULL: the readers read */
    bool has_populator;
    pthread_t populator;
};

/* Opens files for direct reads as far as the system lets us, and starts the reading hands. */
caisson_status csn_experts_start(csn_experts *e, csn_expert_io io, caisson_error *err);
void csn_experts_stop(csn_experts *e); /* after reads under way; of a half-made store too */

/* The mutex is held by the caller of all these. */
void csn_experts_queue(csn_expert_queue *q, uint32_t i_slot);
void csn_experts_queue_first(csn_expert_queue *q, uint32_t i_slot);
uint32_t csn_experts_pop(csn_expert_queue *q);
void csn_experts_unqueue(csn_expert_queue *q, uint32_t i_slot); /* if it is in line */
/* Nothing more is begun of a slot that left its line; what is begun is dropped when it is there. */
void csn_experts_drop_reading(csn_experts *e, uint32_t i_slot);
/* The same for all that stand in line. */
void csn_experts_drop_queue(csn_experts *e, csn_expert_queue *q);
void csn_experts_wake(csn_experts *e); /* slots were queued */
/* Something is in line, being read, or read and being checked. */
bool csn_experts_is_reading(const csn_experts *e);
bool csn_experts_next_block(csn_experts *e, csn_expert_block *ret);
/* `status` and `err` are those of the read. Lets the mutex go while an expert is checked. */
void csn_experts_block_done(csn_experts *e, const csn_expert_block *b, caisson_status status,
                            const caisson_error *err);

/* ---- experts_list.c, with the mutex ---- */

/* The expert in the slot cannot be had: the list, if it waits for it, keeps the error. */
void csn_experts_note_failure(csn_experts *e, uint32_t i_slot, const caisson_error *err);
csn_patience csn_experts_patience(const csn_experts *e);
/* Waits for the reading hand, for a moment. */
caisson_status csn_experts_wait(csn_experts *e, csn_patience *p, caisson_error *err);

/* ---- experts_ahead.c, with the mutex ---- */

/* The list came for an expert that was guessed: goes on as one that is wanted, before the others if
 * some of it is read. False: nothing of it was begun. */
bool csn_experts_use_guess(csn_experts *e, uint32_t i_slot);
/* The list is there: guesses that it does not want are not read any more, and what was guessed is
 * judged by it. */
void csn_experts_judge_guesses(csn_experts *e);

/* ---- the hands ---- */

/* Without the mutex: the part of a block that a direct read of `got` bytes left out, through the
 * page cache. The end of a file need not be that of a disk block. */
caisson_status csn_experts_read_rest(const csn_experts *e, const csn_expert_block *b, size_t got,
                                     caisson_error *err);

/* experts_uring.c. CAISSON_E_UNSUPPORTED: kernel or build have none. */
caisson_status csn_uring_start(csn_experts *e, caisson_error *err);
void csn_uring_wake(csn_uring *u); /* with the mutex */
void csn_uring_stop(csn_uring *u); /* NULL is fine */

#endif
