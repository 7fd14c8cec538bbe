/* SPDX-License-Identifier: Apache-2.0 */
/* Everything of an open .waste directory that can be checked: each record with its checksum, values
 * and scales of the trunk, and its files and tensors against the digests beside them, where there
 * are any. Threads take
 * the next item in turn; faults wait in their item's place and are told at the end, in the order of
 * files, tensors, records. */
#include <stdatomic.h>

#include "base/alloc.h"
#include "format/warp/digests.h"
#include "quant/numbers.h"

enum { ODD_FLAGS = 1, ODD_PADDING = 2 };

struct job {
    csn_warp *w;
    csn_warp_digests digests;
    csn_warp_source files[CSN_WARP_N_DIGEST_FILES]; /* file NULL: not to be checked */
    uint64_t n_records, n_items, n_bytes;
    uint64_t max_stride;
    caisson_error **faults; /* [n_items] NULL: none */
    uint8_t *odd;           /* [n_records] */
    uint8_t **buffers;      /* [n_threads] of a piece or a record */
    const csn_progress *progress;
    _Atomic uint64_t next, done_bytes;
    atomic_bool stop;
    _Atomic int status; /* why it stopped */
    caisson_error *err; /* of the caller's thread */
};

/* Items: files, tensors, records. */
enum { FIRST_TENSOR = CSN_WARP_N_DIGEST_FILES };
static uint64_t first_record(const struct job *j) {
    return FIRST_TENSOR + (uint64_t)j->w->dir.n;
}

static const csn_warp_bank *bank_of(const csn_warp *w, uint64_t record, uint32_t *ret_expert) {
    const csn_warp_bank *b = w->banks;
    while (record >= b->n_experts) {
        record -= b->n_experts;
        b++;
    }
    *ret_expert = (uint32_t)record;
    return b;
}

static void stop(struct job *j, caisson_status status) {
    atomic_store(&j->status, (int)status);
    atomic_store(&j->stop, true);
}

static void keep_fault(struct job *j, uint64_t item, const caisson_error *fault) {
    caisson_error ignored;
    caisson_error *copy;
    if (fault->code == CAISSON_E_NOMEM || CSN_NEW(1, &copy, &ignored) != CAISSON_OK) {
        stop(j, CAISSON_E_NOMEM);
        return;
    }
    *copy = *fault;
    j->faults[item] = copy;
}

static caisson_status check_digest(const csn_warp_source *s, csn_str tensor, const char *section,
                                   const uint8_t *want, uint8_t *buffer, caisson_error *err) {
    uint8_t got[CSN_DIGEST_BYTES];
    caisson_status status = csn_warp_digest(s, buffer, got, err);
    if (status != CAISSON_OK) {
        csn_error_section(err, section);
        csn_error_tensor(err, tensor);
        return status;
    }
    return csn_warp_compare_digest(s, section, tensor, want, got, err);
}

/* What means nothing and is written as zero by everybody. */
static uint8_t find_odd(const csn_warp_bank *b, const csn_warp_expert *e, const uint8_t *record) {
    const csn_vq_matrix *last = &e->m[CSN_WARP_N_KINDS - 1];
    uint8_t odd = 0;
    if (record[CSN_WARP_REC_FLAGS] != 0 || csn_get16(record + CSN_WARP_REC_RESERVED0) != 0 ||
        csn_get64(record + CSN_WARP_REC_RESERVED1) != 0) {
        odd |= ODD_FLAGS;
    }
    for (const uint8_t *p = last->scale + 2 * (size_t)last->rows; p < record + b->stride; p++) {
        if (*p != 0) {
            return odd | ODD_PADDING;
        }
    }
    return odd;
}

static uint64_t check_record(struct job *j, uint64_t record, uint8_t *buffer, caisson_error *err,
                             caisson_status *ret) {
    uint32_t expert;
    const csn_warp_bank *b = bank_of(j->w, record, &expert);
    char name[CSN_WARP_EXPERT_NAME];
    csn_warp_expert e;
    *ret = csn_file_read_at(b->file, expert * b->stride, buffer, (size_t)b->stride, err);
    if (*ret != CAISSON_OK) {
        csn_error_section(err, "experts");
        csn_error_tensor(err, csn_str_from(csn_warp_expert_name(b, expert, name)));
    } else {
        *ret = csn_warp_record(j->w, b, expert, buffer, true, &e, err);
    }
    if (*ret == CAISSON_OK) {
        j->odd[record] = find_odd(b, &e, buffer);
    }
    return b->stride;
}

/* Values of a tensor of the trunk that is not quantised, scales of one that is. */
static caisson_status check_values(const csn_warp *w, uint32_t i, uint8_t *buffer,
                                   caisson_error *err) {
    const csn_tensor *t = &w->dir.tensors[i];
    csn_matrix m = csn_matrix_make(t->dtype, &t->shape, NULL, t->nbytes);
    uint64_t scales = csn_warp_scale_nbytes(t);
    uint64_t first = scales > 0 ? t->nbytes - scales : 0; /* of the payload */
    uint64_t offset = scales > 0 ? w->scale_off[i] : t->offset;
    for (uint64_t at = first; at < t->nbytes; at += CSN_DIGEST_PIECE) {
        uint64_t end = t->nbytes - at < CSN_DIGEST_PIECE ? t->nbytes : at + CSN_DIGEST_PIECE;
        csn_numbers odd;
        uint64_t odd_at;
        caisson_status status =
            csn_file_read_at(w->trunk, offset + (at - first), buffer, (size_t)(end - at), err);
        if (status == CAISSON_OK && csn_numbers_find_any(&m, buffer, at, end, &odd, &odd_at)) {
            status = csn_numbers_fail(&odd, odd_at, buffer + (odd_at - at),
                                      offset + (odd_at - first), err);
        }
        if (status != CAISSON_OK) {
            csn_error_file(err, w->trunk->path);
            csn_error_section(err, "trunk");
            csn_error_tensor(err, t->name);
            return status;
        }
    }
    return CAISSON_OK;
}

/* Returns the bytes that were looked at. */
static uint64_t check_item(struct job *j, uint64_t item, uint8_t *buffer) {
    caisson_error err;
    caisson_status status = CAISSON_OK;
    uint64_t nbytes = 0;
    if (item >= first_record(j)) {
        nbytes = check_record(j, item - first_record(j), buffer, &err, &status);
    } else if (item >= FIRST_TENSOR) {
        uint32_t i = (uint32_t)(item - FIRST_TENSOR);
        csn_warp_source s = csn_warp_digest_source_tensor(j->w, i);
        if (j->digests.present) {
            nbytes = s.nbytes[0] + s.nbytes[1];
            status = check_digest(&s, j->w->dir.tensors[i].name, "trunk",
                                  j->digests.tensors + (size_t)i * CSN_DIGEST_BYTES, buffer, &err);
        }
        if (status == CAISSON_OK) {
            status = check_values(j->w, i, buffer, &err);
        }
    } else if (item < FIRST_TENSOR && j->files[item].file != NULL) {
        nbytes = j->files[item].nbytes[0];
        status = check_digest(&j->files[item], (csn_str){0}, "files", j->digests.files[item],
                              buffer, &err);
    }
    if (status != CAISSON_OK) {
        keep_fault(j, item, &err);
    }
    return nbytes;
}

static void work(void *ctx, unsigned i_thread, unsigned n_threads) {
    (void)n_threads;
    struct job *j = ctx;
    while (!atomic_load_explicit(&j->stop, memory_order_relaxed)) {
        uint64_t item = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (item >= j->n_items) {
            break;
        }
        uint64_t n = check_item(j, item, j->buffers[i_thread]);
        atomic_fetch_add_explicit(&j->done_bytes, n, memory_order_relaxed);
        if (i_thread == 0) { /* callbacks stay on the caller's thread */
            caisson_status status = csn_progress_tell(
                j->progress, "verify", atomic_load(&j->done_bytes), j->n_bytes, j->err);
            if (status != CAISSON_OK) {
                stop(j, status);
            }
        }
    }
}

/* Files that have a digest; one that is gone is a fault. */
static void open_files(struct job *j) {
    for (int i = 0; i < CSN_WARP_N_DIGEST_FILES; i++) {
        caisson_error err;
        if (!j->digests.has_file[i]) {
            continue;
        }
        if (csn_warp_digest_source_file(j->w, csn_warp_digest_files[i], &j->files[i], &err) !=
            CAISSON_OK) {
            csn_error_section(&err, "files");
            keep_fault(j, (uint64_t)i, &err);
        }
        j->n_bytes += j->files[i].nbytes[0];
    }
}

static caisson_status prepare(struct job *j, unsigned n_threads, caisson_error *err) {
    for (uint32_t i = 0; i < j->w->n_banks; i++) {
        const csn_warp_bank *b = &j->w->banks[i];
        j->n_records += b->n_experts;
        j->n_bytes += b->n_experts * b->stride;
        j->max_stride = b->stride > j->max_stride ? b->stride : j->max_stride;
    }
    j->n_items = first_record(j) + j->n_records;
    for (uint32_t i = 0; i < j->w->dir.n && j->digests.present; i++) {
        j->n_bytes += j->w->dir.tensors[i].nbytes;
    }
    CSN_TRY(CSN_NEW((size_t)j->n_items, &j->faults, err));
    CSN_TRY(CSN_NEW((size_t)j->n_records + 1, &j->odd, err));
    CSN_TRY(CSN_NEW(n_threads, &j->buffers, err));
    size_t room = j->max_stride > CSN_DIGEST_PIECE ? (size_t)j->max_stride : CSN_DIGEST_PIECE;
    for (unsigned i = 0; i < n_threads; i++) {
        CSN_TRY(csn_alloc_aligned(room, (void **)&j->buffers[i], err));
    }
    open_files(j);
    return CAISSON_OK;
}

static void tell_odd(const struct job *j, uint8_t kind, const char *what, csn_warp_fault_fn note,
                     void *ctx) {
    uint64_t n = 0;
    uint64_t first = 0;
    for (uint64_t i = 0; i < j->n_records; i++) {
        if ((j->odd[i] & kind) != 0) {
            first = n++ == 0 ? i : first;
        }
    }
    if (n > 0) {
        char name[CSN_WARP_EXPERT_NAME];
        caisson_error e;
        uint32_t expert;
        const csn_warp_bank *b = bank_of(j->w, first, &expert);
        (void)CSN_FAIL(&e, CAISSON_OK, .file = b->file->path, .section = "experts",
                       .tensor = csn_str_from(csn_warp_expert_name(b, expert, name)), .what = what,
                       CSN_VALUES(0, n));
        note(ctx, &e);
    }
}

static void tell_notes(const struct job *j, csn_warp_fault_fn note, void *ctx) {
    caisson_error e;
    if (!j->digests.present) {
        (void)CSN_FAIL(&e, CAISSON_OK, .file = j->w->path, .section = "trunk",
                       .what = "trunk and codebooks have no checksum: \"caisson verify "
                               "--write-digests\" puts digests beside them");
        note(ctx, &e);
    }
    tell_odd(j, ODD_FLAGS, "records (this is the first) with flags or reserved words set", note,
             ctx);
    tell_odd(j, ODD_PADDING, "records (this is the first) with padding that is not zero", note,
             ctx);
}

static void done(struct job *j, unsigned n_threads) {
    for (uint64_t i = 0; j->faults != NULL && i < j->n_items; i++) {
        csn_free(j->faults[i]);
    }
    for (unsigned i = 0; j->buffers != NULL && i < n_threads; i++) {
        csn_free_aligned(j->buffers[i]);
    }
    for (int i = 0; i < CSN_WARP_N_DIGEST_FILES; i++) {
        csn_file_close(j->files[i].file);
    }
    csn_free(j->faults);
    csn_free(j->odd);
    csn_free(j->buffers);
    csn_warp_digests_free(&j->digests);
}

caisson_status csn_warp_verify(csn_warp *w, csn_pool *pool, const csn_progress *progress,
                               csn_warp_fault_fn fault, csn_warp_fault_fn note, void *ctx,
                               caisson_error *err) {
    struct job j = {.w = w, .progress = progress, .err = err};
    unsigned n_threads = csn_pool_n_threads(pool);
    caisson_error broken; /* a digest file that is none is a fault, and the rest goes on */
    caisson_status status = csn_warp_read_digests(w, &j.digests, &broken);
    if (status == CAISSON_E_NOMEM) {
        *err = broken;
        return status;
    }
    if (status != CAISSON_OK) {
        fault(ctx, &broken);
    }
    status = prepare(&j, n_threads, err);
    if (status == CAISSON_OK) {
        csn_pool_run(pool, work, &j);
        status = (caisson_status)atomic_load(&j.status);
        if (status == CAISSON_E_NOMEM) {
            csn_fail_no_memory(err, sizeof(caisson_error));
        }
    }
    if (status == CAISSON_OK) {
        status = csn_progress_tell(progress, "verify", j.n_bytes, j.n_bytes, err);
    }
    if (status == CAISSON_OK) {
        for (uint64_t i = 0; i < j.n_items; i++) {
            if (j.faults[i] != NULL) {
                fault(ctx, j.faults[i]);
            }
        }
        tell_notes(&j, note, ctx);
    }
    done(&j, n_threads);
    return status;
}
