/* SPDX-License-Identifier: Apache-2.0 */
/* trunk.c knows parts and their memory; trunk_read.c the threads that fill it. */
#ifndef CSN_STORE_TRUNK_INTERNAL_H
#define CSN_STORE_TRUNK_INTERNAL_H

#include <pthread.h>

#include "base/arena.h"
#include "store/patience.h"
#include "store/trunk.h"

enum {
    CSN_TRUNK_BLOCK = 1 << 20, /* bytes of one read */
    CSN_TRUNK_READERS = 4,
    CSN_TRUNK_QUEUE = 4, /* parts in line: the one that runs, the next, one that nobody awaits */
    CSN_TRUNK_SLOTS = 2
};

typedef struct csn_trunk_range { /* of a tensor's bytes */
    uint32_t i_file, i_tensor;
    uint64_t offset, nbytes;
    uint64_t at; /* in the part's memory */
} csn_trunk_range;

typedef enum csn_part_state { CSN_PART_ABSENT, CSN_PART_READING, CSN_PART_READY } csn_part_state;

typedef struct csn_trunk_part {
    uint32_t first_range, n_ranges;
    uint64_t nbytes;
    uint8_t *memory; /* its own, or a slot */
    csn_part_state state;
    bool is_new;     /* not yet checked */
    bool has_failed; /* while it is read: it will be absent again */
    uint32_t i_range, n_in_flight;
    uint64_t begun_bytes; /* of range i_range */
} csn_trunk_part;

typedef struct csn_trunk_file {
    csn_file *buffered, *direct; /* the store's; ours, or NULL */
    bool is_tried;
} csn_trunk_file;

struct csn_trunk {
    csn_store *store;
    bool verify;
    csn_arena arena;
    csn_trunk_file *files;
    uint32_t n_files;
    csn_trunk_part *parts; /* [n_parts] */
    uint32_t n_parts, n_kept;
    csn_trunk_range *ranges; /* of all parts, one after another */
    uint32_t *part_of;       /* [dir.n] CSN_NO_PART: of none */
    uint64_t *at;            /* [dir.n] in the part's memory */
    uint8_t *slots[CSN_TRUNK_SLOTS];
    uint32_t stall_ms;
    char io_text[256];

    pthread_mutex_t turn;  /* held by the session whose forward pass it is */
    pthread_mutex_t mutex; /* guards all below and the parts' state; never held during a read */
    pthread_cond_t work;   /* for readers: a part is in line, or is_stopping */
    pthread_cond_t done;   /* for the caller: a part is ready or has failed */
    uint32_t holders[CSN_TRUNK_SLOTS]; /* the part that the slot is for; CSN_NO_PART */
    uint32_t queue[CSN_TRUNK_QUEUE], n_queued;
    uint64_t n_blocks_done; /* grows as long as the disk gives something */
    csn_trunk_stats stats;
    uint32_t i_awaited;  /* the part that the caller waits for; CSN_NO_PART */
    bool has_failed;     /* that part */
    caisson_error error; /* of its first block that failed, in the order of its memory; what failed
                          * of other parts will be told when they are awaited and fail again */
    const uint8_t *failed_at;
    bool is_stopping;
    uint32_t n_readers;
    pthread_t readers[CSN_TRUNK_READERS];
};

#define CSN_NO_PART UINT32_MAX

/* Opens files for direct reads unless `io` says buffered, and starts the readers. */
caisson_status csn_trunk_start_readers(csn_trunk *t, csn_expert_io io, caisson_error *err);
void csn_trunk_stop_readers(csn_trunk *t); /* of a half-made one too */
/* With the mutex: puts part i, which is ABSENT, in line. */
void csn_trunk_queue(csn_trunk *t, uint32_t i);

#endif
