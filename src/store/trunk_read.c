/* SPDX-License-Identifier: Apache-2.0 */
/* Reading for the trunk: parts in line are cut into blocks, which the readers take one by one.
 * Payloads lie at any offset and kernels want them aligned, so what comes past the page cache goes
 * through a buffer of each reader. */
#include "store/trunk_internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/threads.h"

typedef struct block {
    uint32_t i_part, i_file, i_tensor;
    uint64_t offset;
    size_t nbytes;
    uint8_t *to;
} block;

static void unqueue(csn_trunk *t, uint32_t i_part) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_queued; i++) {
        if (t->queue[i] != i_part) {
            t->queue[n++] = t->queue[i];
        }
    }
    t->n_queued = n;
}

void csn_trunk_queue(csn_trunk *t, uint32_t i) {
    csn_trunk_part *p = &t->parts[i];
    p->has_failed = false;
    p->i_range = p->first_range;
    p->begun_bytes = 0;
    p->state = p->n_ranges > 0 ? CSN_PART_READING : CSN_PART_READY;
    if (p->state == CSN_PART_READING) {
        t->queue[t->n_queued++] = i;
        t->stats.reads++;
        pthread_cond_broadcast(&t->work);
    }
}

/* A block ends where a disk block does, or with its range. */
static bool next_block(csn_trunk *t, block *ret) {
    if (t->n_queued == 0) {
        return false;
    }
    uint32_t i_part = t->queue[0];
    csn_trunk_part *p = &t->parts[i_part];
    const csn_trunk_range *r = &t->ranges[p->i_range];
    uint64_t offset = r->offset + p->begun_bytes;
    uint64_t most = CSN_TRUNK_BLOCK - offset % CSN_DIRECT_ALIGN;
    uint64_t left = r->nbytes - p->begun_bytes;
    *ret = (block){.i_part = i_part,
                   .i_file = r->i_file,
                   .i_tensor = r->i_tensor,
                   .offset = offset,
                   .nbytes = (size_t)(left < most ? left : most),
                   .to = p->memory + r->at + p->begun_bytes};
    p->begun_bytes += ret->nbytes;
    if (p->begun_bytes == r->nbytes) {
        p->i_range++;
        p->begun_bytes = 0;
    }
    if (p->i_range == p->first_range + p->n_ranges) {
        unqueue(t, i_part);
    }
    p->n_in_flight++;
    t->stats.bytes += ret->nbytes;
    return true;
}

/* A part that began to fail before it was awaited is read once more: its first block may have
 * failed untold. */
static void note_failure(csn_trunk *t, const block *b, const caisson_error *err) {
    bool is_told_whole = t->has_failed || !t->parts[b->i_part].has_failed;
    if (b->i_part != t->i_awaited || !is_told_whole || (t->has_failed && t->failed_at < b->to)) {
        return;
    }
    t->error = *err;
    csn_error_section(&t->error, "trunk");
    csn_error_tensor(&t->error, csn_store_dir(t->store)->tensors[b->i_tensor].name);
    t->has_failed = true;
    t->failed_at = b->to;
}

static void block_done(csn_trunk *t, const block *b, caisson_status status,
                       const caisson_error *err) {
    csn_trunk_part *p = &t->parts[b->i_part];
    t->n_blocks_done++;
    p->n_in_flight--;
    if (status != CAISSON_OK) {
        note_failure(t, b, err);
        p->has_failed = true;
        p->i_range = p->first_range + p->n_ranges;
        unqueue(t, b->i_part);
    }
    if (p->n_in_flight == 0 && p->i_range == p->first_range + p->n_ranges) {
        p->state = p->has_failed ? CSN_PART_ABSENT : CSN_PART_READY;
        p->is_new = true;
        pthread_cond_signal(&t->done);
    }
}

/* *ret_n: how many of the block's bytes came; the rest is for the page cache, for the end of a file
 * need not be that of a disk block. */
static caisson_status read_direct(csn_file *f, const block *b, uint8_t *buffer, size_t *ret_n,
                                  caisson_error *err) {
    size_t skip = (size_t)(b->offset % CSN_DIRECT_ALIGN);
    size_t n = (skip + b->nbytes + CSN_DIRECT_ALIGN - 1) / CSN_DIRECT_ALIGN * CSN_DIRECT_ALIGN;
    size_t got = 0;
    caisson_status status = f->ops->read(f, b->offset - skip, buffer, n, &got, err);
    if (status != CAISSON_OK && err->sys_errno != EINVAL) {
        return status;
    }
    got = got > skip ? got - skip : 0;
    *ret_n = got < b->nbytes ? got : b->nbytes;
    memcpy(b->to, buffer + skip, *ret_n);
    return CAISSON_OK;
}

static caisson_status read_block(const csn_trunk *t, const block *b, uint8_t *buffer,
                                 caisson_error *err) {
    const csn_trunk_file *f = &t->files[b->i_file];
    size_t got = 0;
    if (f->direct != NULL) {
        CSN_TRY(read_direct(f->direct, b, buffer, &got, err));
    }
    if (got == b->nbytes) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_file_read_at(f->buffered, b->offset + got, b->to + got, b->nbytes - got, err));
    csn_file_forget(f->buffered, b->offset + got, b->nbytes - got);
    return CAISSON_OK;
}

static void *run_reader(void *arg) {
    csn_trunk *t = arg;
    caisson_error err = {0};
    void *buffer = NULL;
    caisson_status has_buffer = csn_alloc_aligned(CSN_TRUNK_BLOCK, &buffer, &err);
    pthread_mutex_lock(&t->mutex);
    while (!t->is_stopping) {
        block b;
        if (!next_block(t, &b)) {
            pthread_cond_wait(&t->work, &t->mutex);
            continue;
        }
        pthread_mutex_unlock(&t->mutex);
        caisson_status status =
            has_buffer == CAISSON_OK ? read_block(t, &b, buffer, &err) : has_buffer;
        pthread_mutex_lock(&t->mutex);
        block_done(t, &b, status, &err);
    }
    pthread_mutex_unlock(&t->mutex);
    csn_free_aligned(buffer);
    return NULL;
}

/* Direct reads may open and then fail one by one: only a read that worked counts. */
static caisson_status open_direct(csn_trunk_file *f, uint64_t offset, uint8_t *page,
                                  caisson_error *err) {
    csn_file *direct;
    size_t got;
    CSN_TRY(csn_file_open_direct(f->buffered, &direct, err));
    caisson_status status = direct->ops->read(direct, offset - offset % CSN_DIRECT_ALIGN, page,
                                              CSN_DIRECT_ALIGN, &got, err);
    if (status != CAISSON_OK) {
        csn_file_close(direct);
        return status;
    }
    f->direct = direct;
    return CAISSON_OK;
}

static caisson_status probe_files(csn_trunk *t, caisson_error *err) {
    void *page;
    (void)snprintf(t->io_text, sizeof(t->io_text), "direct");
    CSN_TRY(csn_alloc_aligned(16 * CSN_DIRECT_ALIGN, &page, err)); /* so large: on a page */
    for (uint32_t i = 0; i < t->n_parts; i++) {
        const csn_trunk_range *r = &t->ranges[t->parts[i].first_range];
        csn_trunk_file *f = &t->files[r->i_file];
        caisson_error refusal;
        if (t->parts[i].n_ranges == 0 || f->is_tried) {
            continue;
        }
        f->is_tried = true;
        if (open_direct(f, r->offset, page, &refusal) != CAISSON_OK) {
            char line[200];
            (void)snprintf(t->io_text, sizeof(t->io_text), "buffered: %s",
                           caisson_error_format(&refusal, line, sizeof(line)));
        }
    }
    csn_free_aligned(page);
    return CAISSON_OK;
}

caisson_status csn_trunk_start_readers(csn_trunk *t, csn_expert_io io, caisson_error *err) {
    (void)snprintf(t->io_text, sizeof(t->io_text), "buffered");
    if (io != CSN_EXPERT_IO_BUFFERED) {
        CSN_TRY(probe_files(t, err));
    }
    for (; t->n_readers < CSN_TRUNK_READERS; t->n_readers++) {
        CSN_TRY(csn_thread_start(run_reader, t, &t->readers[t->n_readers], err));
    }
    return CAISSON_OK;
}

void csn_trunk_stop_readers(csn_trunk *t) {
    pthread_mutex_lock(&t->mutex);
    t->is_stopping = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->mutex);
    for (uint32_t i = 0; i < t->n_readers; i++) {
        pthread_join(t->readers[i], NULL);
    }
    for (uint32_t i = 0; t->files != NULL && i < t->n_files; i++) {
        csn_file_close(t->files[i].direct);
    }
}
