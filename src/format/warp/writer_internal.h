/* SPDX-License-Identifier: Apache-2.0 */
/* The writer while it is at work, shared by the files writer*.c. A unit is a tensor of the trunk or
 * a bank; they are numbered in the order of writing. */
#ifndef CSN_FORMAT_WARP_WRITER_INTERNAL_H
#define CSN_FORMAT_WARP_WRITER_INTERNAL_H

#include "base/arena.h"
#include "format/journal.h"
#include "format/warp/warp_internal.h"
#include "format/warp/writer.h"

struct csn_warp_writer {
    csn_fs *fs;
    csn_buf path, dir, lock_path, journal_path;
    bool replace;
    csn_arena arena;
    csn_file *lock;
    csn_journal journal;
    csn_journal_entry *done; /* [n_trunk + n_layers] */
    uint32_t n_done;         /* leading ones that are written; journal.n of them are on the disk */
    csn_warp_plan plan;      /* the caller's arrays: good until close */
    csn_warp_layout layout;
    uint64_t *offsets; /* [n_trunk + 1] in trunk.bin */
    uint64_t unsynced_bytes;
    csn_file *trunk, *books, *bank; /* NULL: not open */
    uint32_t i_expert;              /* of the bank that is being written */
    bool is_anew;                   /* nothing of an earlier conversion is kept */
    bool is_finished;
};

static inline uint64_t csn_warp_writer_book_bytes(const csn_warp_writer *w) {
    return CSN_WARP_BOOK_HEADER + 2 * (uint64_t)w->plan.coding->entries * CSN_VQ_DIM;
}

static inline uint32_t csn_warp_writer_n_books(const csn_warp_writer *w) {
    return CSN_WARP_N_KINDS * w->plan.coding->stages;
}

static inline uint64_t csn_warp_writer_bank_bytes(const csn_warp_writer *w) {
    return w->layout.stride * w->plan.n_experts;
}

/* Bytes of unit i: a tensor of the trunk, or a bank. */
static inline uint64_t csn_warp_writer_unit_bytes(const csn_warp_writer *w, uint32_t i) {
    return i < w->plan.n_trunk ? w->offsets[i + 1] - w->offsets[i] : csn_warp_writer_bank_bytes(w);
}

#define CSN_WARP_JOURNAL "caisson.journal" /* in the directory that is written */

/* writer_dir.c. The path of a file of the directory. */
caisson_status csn_warp_writer_path(const csn_warp_writer *w, const char *name, csn_buf *ret,
                                    caisson_error *err);
/* The file, made where it is not there. */
caisson_status csn_warp_writer_open(csn_warp_writer *w, const char *name, csn_file **ret,
                                    caisson_error *err);
caisson_status csn_warp_writer_remove(csn_fs *fs, const char *path, caisson_error *err);
caisson_status csn_warp_writer_remove_dir(csn_fs *fs, const char *dir, caisson_error *err);

/* writer_resume.c: takes the lock, goes on where the journal and the files say or begins anew, and
 * checks the free space. */
caisson_status csn_warp_writer_begin(csn_warp_writer *w, caisson_error *err);

/* writer_finish.c: whether what is at `path`, if anything, may be replaced. */
caisson_status csn_warp_writer_check_target(const csn_warp_writer *w, bool *ret_is_there,
                                            caisson_error *err);

/* writer.c: the file to the disk, then the journal. */
caisson_status csn_warp_writer_mark(csn_warp_writer *w, csn_file *f, caisson_error *err);

#endif
