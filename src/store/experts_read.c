/* SPDX-License-Identifier: Apache-2.0 */
/* Reading for the expert store: slots in line are cut into blocks; what the list wants goes first,
 * guesses only when nothing of it is left to begin. The pool of readers is here
 * too. */
#include "store/experts_internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/threads.h"

void csn_experts_queue(csn_expert_queue *q, uint32_t i_slot) {
    q->slots[(q->head + q->n++) % q->cap] = i_slot;
}

void csn_experts_queue_first(csn_expert_queue *q, uint32_t i_slot) {
    q->head = (q->head + q->cap - 1) % q->cap;
    q->n++;
    q->slots[q->head] = i_slot;
}

uint32_t csn_experts_pop(csn_expert_queue *q) {
    uint32_t i_slot = q->slots[q->head];
    q->head = (q->head + 1) % q->cap;
    q->n--;
    return i_slot;
}

void csn_experts_unqueue(csn_expert_queue *q, uint32_t i_slot) {
    uint32_t n = q->n;
    for (uint32_t i = 0; i < n; i++) { /* once around, without it */
        uint32_t j = csn_experts_pop(q);
        if (j != i_slot) {
            csn_experts_queue(q, j);
        }
    }
}

void csn_experts_drop_reading(csn_experts *e, uint32_t i_slot) {
    csn_slot *s = &e->cache.slots[i_slot];
    if (s->n_in_flight == 0) {
        csn_expert_cache_drop(&e->cache, i_slot);
    } else {
        s->is_dropped = true;
        s->i_piece = e->map.n_pieces;
    }
}

void csn_experts_drop_queue(csn_experts *e, csn_expert_queue *q) {
    while (q->n > 0) {
        csn_experts_drop_reading(e, csn_experts_pop(q));
    }
}

void csn_experts_wake(csn_experts *e) {
    if (e->uring != NULL) {
        csn_uring_wake(e->uring);
    }
    pthread_cond_broadcast(&e->work);
}

bool csn_experts_is_reading(const csn_experts *e) {
    bool is_reading = false;
    for (uint32_t i = 0; i < e->cache.n_slots; i++) {
        is_reading |= e->cache.slots[i].state == CSN_SLOT_READING;
    }
    return is_reading;
}

static void begin_reading(csn_expert_layer *l) {
    if (l->n_in_flight++ == 0) {
        l->since_ns = csn_now_ns();
    }
}

static void end_reading(csn_expert_layer *l) {
    if (--l->n_in_flight == 0) {
        l->stats.read_ns += csn_now_ns() - l->since_ns;
    }
}

static void count_block(csn_expert_stats *s, const csn_expert_block *b, bool is_first) {
    if (b->is_guess) {
        s->ahead += is_first;
        s->ahead_bytes += b->nbytes;
    } else {
        s->reads++;
        s->bytes += b->nbytes;
    }
}

/* The next block of the slot, of which some is left. */
static void cut_block(csn_experts *e, uint32_t i_slot, csn_expert_block *ret) {
    csn_slot *s = &e->cache.slots[i_slot];
    csn_expert_span span = csn_expert_cache_span(&e->cache, s->number, s->i_piece);
    uint64_t left = span.nbytes - s->begun_bytes;
    csn_expert_block b = {
        .i_slot = i_slot,
        .i_file = span.i_file,
        .offset = span.offset + s->begun_bytes,
        .nbytes = (uint32_t)(left < CSN_EXPERT_BLOCK ? left : CSN_EXPERT_BLOCK),
        .to = csn_expert_cache_memory(&e->cache, i_slot) + span.at + s->begun_bytes,
        .is_guess = s->is_guess,
    };
    uint64_t until_end = span.piece_end - b.offset;
    b.need = until_end < b.nbytes ? (uint32_t)until_end : b.nbytes;
    bool is_first = s->i_piece == 0 && s->begun_bytes == 0;
    count_block(&e->layers[s->i_layer].stats, &b, is_first);
    count_block(&e->layers[e->map.n_layers].stats, &b, is_first);
    s->begun_bytes += b.nbytes;
    if (s->begun_bytes == span.nbytes) {
        s->i_piece++;
        s->begun_bytes = 0;
    }
    s->n_in_flight++;
    *ret = b;
}

bool csn_experts_next_block(csn_experts *e, csn_expert_block *ret) {
    csn_expert_queue *q = &e->wanted;
    if (q->n == 0) {
        q = &e->guesses;
    }
    if (q->n == 0) {
        return false;
    }
    cut_block(e, q->slots[q->head], ret);
    const csn_slot *s = &e->cache.slots[ret->i_slot];
    if (s->i_piece == e->map.n_pieces) {
        (void)csn_experts_pop(q);
    }
    begin_reading(&e->layers[s->i_layer]);
    begin_reading(&e->layers[e->map.n_layers]);
    return true;
}

/* What was read through the page cache need not stay there. */
static void forget_pages(const csn_experts *e, uint32_t number) {
    for (uint32_t i = 0; i < e->map.n_pieces; i++) {
        csn_expert_span span = csn_expert_cache_span(&e->cache, number, i);
        if (e->files[span.i_file].direct == NULL) {
            csn_file_forget(e->files[span.i_file].buffered, span.offset, span.nbytes);
        }
    }
}

static void fail_slot(csn_experts *e, uint32_t i_slot, const caisson_error *err) {
    csn_slot *s = &e->cache.slots[i_slot];
    s->has_failed = true;
    s->i_piece = e->map.n_pieces;
    csn_experts_unqueue(&e->wanted, i_slot);
    csn_experts_unqueue(&e->guesses, i_slot);
    csn_experts_note_failure(e, i_slot, err);
}

/* The expert's bytes are all there. Without the mutex meanwhile: nobody touches a slot that is
 * READING and all begun. */
static void check_slot(csn_experts *e, uint32_t i_slot) {
    const csn_slot *s = &e->cache.slots[i_slot];
    const uint8_t *pieces[CSN_EXPERT_MAX_PIECES];
    csn_expert_cache_pieces(&e->cache, i_slot, pieces);
    uint32_t number = s->number;
    uint32_t i_layer = s->i_layer;
    pthread_mutex_unlock(&e->mutex);
    caisson_error err;
    caisson_status status = CAISSON_OK;
    if (e->map.check != NULL) {
        status = e->map.check(e->map.ctx, i_layer, number - e->cache.first[i_layer], pieces, &err);
    }
    forget_pages(e, number);
    pthread_mutex_lock(&e->mutex);
    if (status != CAISSON_OK) {
        fail_slot(e, i_slot, &err);
    }
}

/* No block of the slot is in flight, and none will be. */
static void complete(csn_experts *e, uint32_t i_slot) {
    csn_slot *s = &e->cache.slots[i_slot];
    if (!s->has_failed && !s->is_dropped) {
        check_slot(e, i_slot);
    }
    if (!s->has_failed && !s->is_dropped) {
        s->state = CSN_SLOT_READY;
    } else if (s->is_pinned) {
        s->state = CSN_SLOT_FAILED;
    } else {
        csn_expert_cache_drop(&e->cache, i_slot);
    }
}

void csn_experts_block_done(csn_experts *e, const csn_expert_block *b, caisson_status status,
                            const caisson_error *err) {
    csn_slot *s = &e->cache.slots[b->i_slot];
    end_reading(&e->layers[s->i_layer]);
    end_reading(&e->layers[e->map.n_layers]);
    e->n_blocks_done++;
    s->n_in_flight--;
    if (status != CAISSON_OK && !s->has_failed) {
        fail_slot(e, b->i_slot, err);
    }
    if (s->n_in_flight == 0 && s->i_piece == e->map.n_pieces) {
        complete(e, b->i_slot);
    }
    pthread_cond_signal(&e->done);
}

caisson_status csn_experts_read_rest(const csn_experts *e, const csn_expert_block *b, size_t got,
                                     caisson_error *err) {
    if (got >= b->need) {
        return CAISSON_OK;
    }
    return csn_file_read_at(e->files[b->i_file].buffered, b->offset + got, b->to + got,
                            b->need - got, err);
}

static caisson_status read_block(const csn_experts *e, const csn_expert_block *b,
                                 caisson_error *err) {
    csn_file *direct = e->files[b->i_file].direct;
    size_t got = 0;
    if (direct != NULL) {
        caisson_status status = direct->ops->read(direct, b->offset, b->to, b->nbytes, &got, err);
        if (status != CAISSON_OK && err->sys_errno != EINVAL) {
            return status;
        }
    }
    return csn_experts_read_rest(e, b, got, err);
}

static void *run_reader(void *arg) {
    csn_experts *e = arg;
    caisson_error err;
    pthread_mutex_lock(&e->mutex);
    while (!e->is_stopping) {
        csn_expert_block b;
        if (!csn_experts_next_block(e, &b)) {
            pthread_cond_wait(&e->work, &e->mutex);
            continue;
        }
        pthread_mutex_unlock(&e->mutex);
        caisson_status status = read_block(e, &b, &err);
        pthread_mutex_lock(&e->mutex);
        csn_experts_block_done(e, &b, status, &err);
    }
    pthread_mutex_unlock(&e->mutex);
    return NULL;
}

/* Direct reads may open and then fail one by one: only a read that worked counts. */
static caisson_status open_direct(csn_expert_file *f, uint64_t offset, uint8_t *page,
                                  caisson_error *err) {
    csn_file *direct;
    CSN_TRY(csn_file_open_direct(f->buffered, &direct, err));
    size_t got;
    caisson_status status = direct->ops->read(direct, offset, page, CSN_DIRECT_ALIGN, &got, err);
    if (status != CAISSON_OK) {
        csn_file_close(direct);
        return status;
    }
    f->direct = direct;
    return CAISSON_OK;
}

/* Returns how many files refused; `err` is of the first. */
static uint32_t probe_files(csn_experts *e, caisson_error *err) {
    uint32_t n_refused = 0;
    uint32_t n_experts = e->cache.first[e->map.n_layers];
    for (uint64_t i = 0; i < (uint64_t)n_experts * e->map.n_pieces; i++) {
        const csn_expert_piece *p = &e->map.pieces[i];
        csn_expert_file *f = &e->files[p->i_file];
        if (f->buffered != NULL) { /* has been tried */
            continue;
        }
        f->buffered = e->map.files[p->i_file];
        caisson_error refusal;
        uint64_t offset = p->offset - p->offset % CSN_DIRECT_ALIGN;
        if (open_direct(f, offset, e->cache.memory, &refusal) != CAISSON_OK && n_refused++ == 0) {
            *err = refusal;
        }
    }
    return n_refused;
}

static void describe(csn_experts *e, uint32_t n_refused, const caisson_error *refusal) {
    char hand[32] = "io_uring";
    if (e->uring == NULL) {
        (void)snprintf(hand, sizeof(hand), "%u readers", (unsigned)e->n_readers);
    }
    if (n_refused == 0) {
        bool is_direct = e->files[e->map.pieces[0].i_file].direct != NULL;
        (void)snprintf(e->io_text, sizeof(e->io_text), "%s, %s", hand,
                       is_direct ? "direct" : "buffered");
        return;
    }
    char line[200];
    (void)snprintf(e->io_text, sizeof(e->io_text), "%s, %u of %u files buffered: %s", hand,
                   (unsigned)n_refused, (unsigned)e->map.n_files,
                   caisson_error_format(refusal, line, sizeof(line)));
}

static caisson_status start_readers(csn_experts *e, caisson_error *err) {
    for (uint32_t i = 0; i < CSN_EXPERT_READERS; i++) {
        CSN_TRY(csn_thread_start(run_reader, e, &e->readers[i], err));
        e->n_readers++;
    }
    return CAISSON_OK;
}

caisson_status csn_experts_start(csn_experts *e, csn_expert_io io, caisson_error *err) {
    caisson_error refusal = {0};
    uint32_t n_refused = 0;
    if (io == CSN_EXPERT_IO_BUFFERED) {
        for (uint32_t i = 0; i < e->map.n_files; i++) {
            e->files[i].buffered = e->map.files[i];
        }
    } else {
        n_refused = probe_files(e, &refusal);
    }
    if (io == CSN_EXPERT_IO_AUTO || io == CSN_EXPERT_IO_URING) {
        caisson_status status = csn_uring_start(e, err);
        if (status != CAISSON_OK && io == CSN_EXPERT_IO_URING) {
            return status;
        }
    }
    if (e->uring == NULL) {
        CSN_TRY(start_readers(e, err));
    }
    describe(e, n_refused, &refusal);
    return CAISSON_OK;
}

void csn_experts_stop(csn_experts *e) {
    pthread_mutex_lock(&e->mutex);
    e->is_stopping = true;
    csn_experts_wake(e);
    pthread_mutex_unlock(&e->mutex);
    for (uint32_t i = 0; i < e->n_readers; i++) {
        pthread_join(e->readers[i], NULL);
    }
    csn_uring_stop(e->uring);
    for (uint32_t i = 0; e->files != NULL && i < e->map.n_files; i++) {
        csn_file_close(e->files[i].direct);
    }
}
