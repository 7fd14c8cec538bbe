/* SPDX-License-Identifier: Apache-2.0 */
/* Every stored hash against the bytes (CMF 8, facts 9.1): sections, then tensors.
 *
 * All of it is cut into blocks of 256 KiB; threads take the next block in turn, read it through the
 * file contract and fold it, 64 KiB at a time: those stay in the L2 cache wherever their pages lie
 * (a buffer of 256 KiB lost a third of the hashing speed to lines that shared a place). hash64 is
 * an XOR of folds, so the order of blocks does not matter and a single large tensor keeps all
 * threads busy. Faults are told at the end, in the order of the file's structure, each with its
 * range of bytes. A block that cannot be read is a fault of its owner.
 */
#include <stdatomic.h>

#include "base/hash64.h"
#include "format/cmf/cmf_internal.h"

enum { BLOCK = 256 << 10, READ = 64 << 10 };

/* One thing with a hash: a section (i < N_SECTIONS) or tensor i - N_SECTIONS. */
struct item {
    uint64_t offset, nbytes;
    uint64_t first_block;    /* of all blocks */
    _Atomic uint64_t pieces; /* XOR of the folds so far */
    _Atomic uint64_t bad_at; /* UINT64_MAX, or lowest offset of a read that failed */
    _Atomic int bad_errno;   /* of one of the failed reads */
};

struct job {
    csn_cmf *c;
    struct item *items;
    size_t n_items;
    uint64_t n_blocks, n_bytes;
    uint8_t **buffers; /* [n_threads] of READ bytes */
    const csn_progress *progress;
    _Atomic uint64_t next_block;
    _Atomic uint64_t done_bytes;
    atomic_bool stop;
    caisson_status status; /* of the caller's thread: cancelled */
    caisson_error *err;
};

/* The item that owns block b: the last whose first_block is not above b and that has blocks. */
static struct item *owner(const struct job *j, uint64_t b) {
    size_t lo = 0;
    size_t hi = j->n_items;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (j->items[mid].first_block <= b) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return &j->items[lo];
}

static void read_failed(struct item *it, uint64_t at, int sys_errno) {
    uint64_t lowest = atomic_load(&it->bad_at);
    while (at < lowest && !atomic_compare_exchange_weak(&it->bad_at, &lowest, at)) {
    }
    atomic_store(&it->bad_errno, sys_errno);
}

static void hash_block(struct job *j, uint64_t b, uint8_t *buffer) {
    struct item *it = owner(j, b);
    uint64_t begin = (b - it->first_block) * BLOCK;
    uint64_t end = it->nbytes - begin < BLOCK ? it->nbytes : begin + BLOCK;
    uint64_t pieces = 0;
    for (uint64_t at = begin; at < end; at += READ) {
        size_t n = end - at < READ ? (size_t)(end - at) : READ;
        caisson_error err;
        if (csn_file_read_at(j->c->file, it->offset + at, buffer, n, &err) != CAISSON_OK) {
            read_failed(it, it->offset + at, err.sys_errno);
            break;
        }
        pieces ^= csn_hash64_piece(buffer, n);
    }
    atomic_fetch_xor_explicit(&it->pieces, pieces, memory_order_relaxed);
    atomic_fetch_add_explicit(&j->done_bytes, end - begin, memory_order_relaxed);
}

static void work(void *ctx, unsigned i_thread, unsigned n_threads) {
    (void)n_threads;
    struct job *j = ctx;
    while (!atomic_load_explicit(&j->stop, memory_order_relaxed)) {
        uint64_t b = atomic_fetch_add_explicit(&j->next_block, 1, memory_order_relaxed);
        if (b >= j->n_blocks) {
            break;
        }
        hash_block(j, b, j->buffers[i_thread]);
        if (i_thread == 0 && j->progress != NULL) { /* callbacks stay on the caller's thread */
            j->status = csn_progress_tell(j->progress, "verify", atomic_load(&j->done_bytes),
                                          j->n_bytes, j->err);
            if (j->status != CAISSON_OK) {
                atomic_store(&j->stop, true);
            }
        }
    }
}

static void add_item(struct job *j, size_t i, uint64_t offset, uint64_t nbytes) {
    struct item *it = &j->items[i];
    it->offset = offset;
    it->nbytes = nbytes;
    it->first_block = j->n_blocks;
    atomic_init(&it->bad_at, UINT64_MAX);
    j->n_blocks += nbytes / BLOCK + (nbytes % BLOCK != 0);
    j->n_bytes += nbytes;
}

/* What is stored for an item; false when nothing is (absent hash, empty section). *ret_text: the
 * text when it is malformed. */
static bool stored_hash(const csn_cmf *c, size_t i, uint64_t *ret, csn_str *ret_text) {
    *ret_text = (csn_str){0};
    if (i >= CSN_CMF_N_SECTIONS) {
        *ret = c->dir.tensors[i - CSN_CMF_N_SECTIONS].hash; /* compared even if 0 (facts 9.1) */
        return true;
    }
    *ret = i == CSN_CMF_HEADER ? c->envelope.header_hash
           : i == CSN_CMF_DIR  ? c->envelope.dir_hash
                               : 0;
    csn_str text = c->section_hash[i];
    if (text.ptr != NULL && c->envelope.len[i] > 0 && !csn_cmf_parse_hash(text, ret)) {
        *ret_text = text;
        return true;
    }
    return *ret != 0;
}

/* Tells the fault of item i, if it has one. */
static bool tell(const struct job *j, size_t i, csn_hash64_salts *known, csn_cmf_fault_fn fn,
                 void *ctx) {
    const csn_cmf *c = j->c;
    const struct item *it = &j->items[i];
    bool is_section = i < CSN_CMF_N_SECTIONS;
    const char *section =
        is_section ? csn_cmf_section_names[i] : csn_cmf_section_names[CSN_CMF_DATA];
    csn_str tensor = is_section ? (csn_str){0} : c->dir.tensors[i - CSN_CMF_N_SECTIONS].name;
    uint64_t want;
    csn_str malformed;
    caisson_error fault;
    bool has_hash = stored_hash(c, i, &want, &malformed);
    uint64_t bad_at = atomic_load(&it->bad_at);
    if (bad_at != UINT64_MAX) {
        (void)CSN_FAIL(&fault, CAISSON_E_IO, .file = c->file->path, .section = section,
                       .tensor = tensor, CSN_RANGE(bad_at, it->offset + it->nbytes - bad_at),
                       .what = "cannot read the bytes to check",
                       .sys_errno = atomic_load(&it->bad_errno));
    } else if (malformed.ptr != NULL) {
        (void)CSN_FAIL(&fault, CAISSON_E_PARSE, .file = c->file->path, .section = section,
                       CSN_RANGE(c->envelope.off[i], c->envelope.len[i]),
                       .what = "stored hash is not hexadecimal",
                       CSN_TEXTS(CSN_STR("16 hex digits"), malformed));
    } else {
        uint64_t got = csn_hash64_join(atomic_load(&it->pieces), it->nbytes, known);
        if (!has_hash || got == want) {
            return false;
        }
        char want_text[20];
        char got_text[20];
        csn_hash64_hex(want, want_text);
        csn_hash64_hex(got, got_text);
        (void)CSN_FAIL(&fault, CAISSON_E_HASH, .file = c->file->path, .section = section,
                       .tensor = tensor, CSN_RANGE(it->offset, it->nbytes),
                       .what = "bytes do not have the stored hash",
                       CSN_TEXTS(csn_str_from(want_text), csn_str_from(got_text)));
    }
    fn(ctx, &fault);
    return true;
}

static caisson_status run(struct job *j, csn_pool *pool, caisson_error *err) {
    unsigned n_threads = csn_pool_n_threads(pool);
    CSN_TRY(CSN_NEW(j->n_items, &j->items, err));
    CSN_TRY(CSN_NEW(n_threads, &j->buffers, err));
    for (unsigned i = 0; i < n_threads; i++) {
        CSN_TRY(csn_alloc_aligned(READ, (void **)&j->buffers[i], err));
    }
    for (size_t i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        uint64_t h;
        csn_str text;
        bool is_hashed = stored_hash(j->c, i, &h, &text) && text.ptr == NULL;
        add_item(j, i, j->c->envelope.off[i], is_hashed ? j->c->envelope.len[i] : 0);
    }
    for (uint32_t i = 0; i < j->c->dir.n; i++) {
        add_item(j, CSN_CMF_N_SECTIONS + i, j->c->dir.tensors[i].offset,
                 j->c->dir.tensors[i].nbytes);
    }
    csn_pool_run(pool, work, j);
    return j->status;
}

caisson_status csn_cmf_verify(csn_cmf *c, csn_pool *pool, const csn_progress *progress,
                              csn_cmf_fault_fn fn, void *ctx, uint64_t *ret_n, caisson_error *err) {
    struct job j = {.c = c,
                    .n_items = CSN_CMF_N_SECTIONS + (size_t)c->dir.n,
                    .progress = progress,
                    .status = CAISSON_OK,
                    .err = err};
    caisson_status status = run(&j, pool, err);
    if (status == CAISSON_OK) {
        status = csn_progress_tell(progress, "verify", j.n_bytes, j.n_bytes, err);
    }
    if (status == CAISSON_OK) {
        csn_hash64_salts known = {0};
        *ret_n = 0;
        for (size_t i = 0; i < j.n_items; i++) {
            *ret_n += tell(&j, i, &known, fn, ctx);
        }
    }
    if (j.buffers != NULL) {
        for (unsigned i = 0; i < csn_pool_n_threads(pool); i++) {
            csn_free_aligned(j.buffers[i]);
        }
    }
    csn_free(j.buffers);
    csn_free(j.items);
    return status;
}
