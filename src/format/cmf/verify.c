/* SPDX-License-Identifier: Apache-2.0 */
/* Every stored hash and digest against the bytes (CMF 8, facts 9.1): sections, then tensors, whose
 * scales and values have to be finite.
 *
 * All of it is cut into blocks of 256 KiB, the pieces of the second digest. Threads take the next
 * few blocks in turn, read those that lie side by side through the file contract and fold them.
 * One read takes up to 2 MiB: a call to the kernel costs as much as the copy of many KiB, and a
 * copy over what still lies in the L2 cache is slower by half
 * (docs/decisions/007-what-bounds-verify.md). hash64 is an XOR of folds, and the digest of a piece
 * waits in its place, so the order of blocks does not matter and a single large tensor keeps all
 * threads busy. Faults are told at the end, in the order of the file's structure, each with its
 * range of bytes. A block that cannot be read is a fault of its owner.
 */
#include <stdatomic.h>

#include "base/hash64.h"
#include "base/hex.h"
#include "format/cmf/cmf_internal.h"
#include "quant/numbers.h"

enum {
    BLOCK = CSN_DIGEST_PIECE,
    READ = 8 * BLOCK, /* at most, in one call */
    TAKE = 8,         /* blocks that a thread takes */
    GAP = 4096,       /* bytes between two blocks that are read along */
    STEP = 64 << 10   /* how exactly a place that cannot be read is told */
};

/* One thing with a hash: a section (i < N_SECTIONS) or tensor i - N_SECTIONS. */
struct item {
    uint64_t offset, nbytes;
    const uint8_t *digest;   /* the stored one; NULL: none */
    uint64_t first_block;    /* of all blocks */
    _Atomic uint64_t pieces; /* XOR of the folds so far */
    _Atomic uint64_t bad_at; /* UINT64_MAX, or lowest offset of a read that failed */
    _Atomic int bad_errno;   /* of one of the failed reads */
    _Atomic uint64_t odd_at; /* UINT64_MAX, or lowest place of a number that is not finite */
};

struct job {
    csn_cmf *c;
    struct item *items;
    size_t n_items;
    uint64_t n_blocks, n_bytes;
    uint8_t *buffers; /* [n_threads][READ] */
    uint8_t *digests; /* [n_blocks][CSN_DIGEST_BYTES]; NULL: the file stores none */
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

static void keep_lowest(_Atomic uint64_t *kept, uint64_t at) {
    uint64_t lowest = atomic_load(kept);
    while (at < lowest && !atomic_compare_exchange_weak(kept, &lowest, at)) {
    }
}

/* NULL: a section. */
static const csn_tensor *tensor_of(const struct job *j, const struct item *it) {
    size_t i = (size_t)(it - j->items);
    return i < CSN_CMF_N_SECTIONS ? NULL : &j->c->dir.tensors[i - CSN_CMF_N_SECTIONS];
}

/* Where a malformed payload has its numbers nobody knows. */
static csn_matrix numbers_of(const csn_tensor *t) {
    const csn_dtype *d = t->is_malformed ? csn_dtype_by_name(CSN_STR("u8")) : t->dtype;
    return csn_matrix_make(d, &t->shape, NULL, t->nbytes);
}

/* Bytes [begin, begin + n) of an item. */
struct block {
    struct item *item;
    uint64_t begin;
    size_t n;
};

static struct block block_at(const struct job *j, uint64_t b) {
    struct item *it = owner(j, b);
    uint64_t begin = (b - it->first_block) * BLOCK;
    return (struct block){it, begin, it->nbytes - begin < BLOCK ? it->nbytes - begin : BLOCK};
}

static uint64_t offset_of(struct block b) {
    return b.item->offset + b.begin;
}

static void hash_block(struct job *j, uint64_t i, struct block b, const uint8_t *bytes) {
    struct item *it = b.item;
    const csn_tensor *t = tensor_of(j, it);
    atomic_fetch_xor_explicit(&it->pieces, csn_hash64_piece(bytes, b.n), memory_order_relaxed);
    if (it->digest != NULL) {
        csn_digest_piece(bytes, b.n, j->digests + i * CSN_DIGEST_BYTES);
    }
    if (t != NULL) {
        csn_matrix m = numbers_of(t);
        csn_numbers odd;
        uint64_t odd_at;
        if (csn_numbers_find_any(&m, bytes, b.begin, b.begin + b.n, &odd, &odd_at)) {
            keep_lowest(&it->odd_at, odd_at);
        }
    }
}

/* One block in small steps, behind a read that failed; false: one of them failed too. */
static bool read_block(struct job *j, struct block b, uint8_t *buffer) {
    for (size_t at = 0; at < b.n; at += STEP) {
        caisson_error err;
        if (csn_file_read_at(j->c->file, offset_of(b) + at, buffer + at,
                             b.n - at < STEP ? b.n - at : STEP, &err) != CAISSON_OK) {
            keep_lowest(&b.item->bad_at, offset_of(b) + at);
            atomic_store(&b.item->bad_errno, err.sys_errno);
            return false;
        }
    }
    return true;
}

/* The first of the blocks [i, end) and those that lie behind it, side by side, as many as one read
 * holds; returns how many. */
static uint64_t hash_blocks(struct job *j, uint64_t i, uint64_t end, uint8_t *buffer) {
    struct block blocks[TAKE];
    blocks[0] = block_at(j, i);
    uint64_t first = offset_of(blocks[0]);
    size_t nbytes = blocks[0].n;
    uint64_t n = 1;
    for (; n < end - i; n++) {
        struct block next = block_at(j, i + n);
        uint64_t at = offset_of(next) - first; /* wraps where it lies in front of the first */
        if (at < nbytes || at - nbytes >= GAP || at + next.n > READ) {
            break;
        }
        blocks[n] = next;
        nbytes = (size_t)at + next.n;
    }
    caisson_error err;
    bool is_read = csn_file_read_at(j->c->file, first, buffer, nbytes, &err) == CAISSON_OK;
    for (uint64_t k = 0; k < n; k++) {
        if (is_read) {
            hash_block(j, i + k, blocks[k], buffer + (offset_of(blocks[k]) - first));
        } else if (read_block(j, blocks[k], buffer)) {
            hash_block(j, i + k, blocks[k], buffer);
        }
        atomic_fetch_add_explicit(&j->done_bytes, blocks[k].n, memory_order_relaxed);
    }
    return n;
}

static void work(void *ctx, unsigned i_thread, unsigned n_threads) {
    (void)n_threads;
    struct job *j = ctx;
    while (!atomic_load_explicit(&j->stop, memory_order_relaxed)) {
        uint64_t i = atomic_fetch_add_explicit(&j->next_block, TAKE, memory_order_relaxed);
        uint64_t end = i + TAKE < j->n_blocks ? i + TAKE : j->n_blocks;
        if (i >= end) {
            break;
        }
        while (i < end) {
            i += hash_blocks(j, i, end, j->buffers + (size_t)i_thread * READ);
        }
        if (i_thread == 0 && j->progress != NULL) { /* callbacks stay on the caller's thread */
            j->status = csn_progress_tell(j->progress, "verify", atomic_load(&j->done_bytes),
                                          j->n_bytes, j->err);
            if (j->status != CAISSON_OK) {
                atomic_store(&j->stop, true);
            }
        }
    }
}

static void add_item(struct job *j, size_t i, uint64_t offset, uint64_t nbytes,
                     const uint8_t *digest) {
    struct item *it = &j->items[i];
    it->digest = digest;
    it->offset = offset;
    it->nbytes = nbytes;
    it->first_block = j->n_blocks;
    atomic_init(&it->bad_at, UINT64_MAX);
    atomic_init(&it->odd_at, UINT64_MAX);
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

static void compute_digest(const struct job *j, const struct item *it,
                           uint8_t ret[CSN_DIGEST_BYTES]) {
    if (it->nbytes == 0) {
        csn_digest_piece("", 0, ret);
    } else {
        csn_digest_join(j->digests + it->first_block * CSN_DIGEST_BYTES,
                        csn_digest_n_pieces(it->nbytes), ret);
    }
}

/* True and *ret filled when the hashes differ, or else the digests (stored NULL: none). */
static bool compare(csn_fail_args a, uint64_t want, uint64_t got, const uint8_t *stored,
                    const uint8_t *digest, caisson_error *ret) {
    char texts[2][2 * CSN_DIGEST_BYTES + 1];
    if (got != want) {
        a.what = "bytes do not have the stored hash";
        csn_hash64_hex(want, texts[0]);
        csn_hash64_hex(got, texts[1]);
    } else if (stored != NULL && memcmp(digest, stored, CSN_DIGEST_BYTES) != 0) {
        a.what = "bytes do not have the stored digest, though their hash64 agrees";
        csn_hex_encode(stored, CSN_DIGEST_BYTES, texts[0]);
        csn_hex_encode(digest, CSN_DIGEST_BYTES, texts[1]);
    } else {
        return false;
    }
    a.want = csn_str_from(texts[0]);
    a.got = csn_str_from(texts[1]);
    (void)csn_fail(ret, CAISSON_E_HASH, &a);
    return true;
}

/* Bytes [begin, end) of the payload of t, which lies in f. */
static caisson_status check_numbers(const csn_file *f, const csn_tensor *t, const uint8_t *bytes,
                                    uint64_t begin, uint64_t end, caisson_error *err) {
    csn_matrix m = numbers_of(t);
    csn_numbers odd;
    uint64_t at;
    if (!csn_numbers_find_any(&m, bytes, begin, end, &odd, &at)) {
        return CAISSON_OK;
    }
    caisson_status status = csn_numbers_fail(&odd, at, bytes + (at - begin), t->offset + at, err);
    csn_error_section(err, csn_cmf_section_names[CSN_CMF_DATA]);
    csn_error_tensor(err, t->name);
    csn_error_file(err, f->path);
    return status;
}

/* The number at `at`, which was not finite when it was looked at. */
static caisson_status check_number(csn_file *f, const csn_tensor *t, uint64_t at,
                                   caisson_error *err) {
    uint8_t number[CSN_NUMBER_MAX_BYTES];
    size_t n = t->nbytes - at < sizeof(number) ? (size_t)(t->nbytes - at) : sizeof(number);
    CSN_TRY(csn_file_read_at(f, t->offset + at, number, n, err));
    return check_numbers(f, t, number, at, at + n, err);
}

/* What is wrong with item i, in *ret; false: nothing. */
static bool find_fault(const struct job *j, size_t i, csn_hash64_salts *known, caisson_error *ret) {
    const csn_cmf *c = j->c;
    const struct item *it = &j->items[i];
    bool is_section = i < CSN_CMF_N_SECTIONS;
    if (is_section && c->is_told[i]) {
        return false;
    }
    csn_fail_args a = {.file = c->file->path,
                       .section = csn_cmf_section_names[is_section ? i : CSN_CMF_DATA],
                       .tensor =
                           is_section ? (csn_str){0} : c->dir.tensors[i - CSN_CMF_N_SECTIONS].name,
                       CSN_RANGE(it->offset, it->nbytes)};
    uint64_t want;
    csn_str malformed;
    bool has_hash = stored_hash(c, i, &want, &malformed);
    uint64_t bad_at = atomic_load(&it->bad_at);
    if (bad_at != UINT64_MAX) {
        a.what = "cannot read the bytes to check";
        a.offset = bad_at;
        a.n_bytes = it->offset + it->nbytes - bad_at;
        a.sys_errno = atomic_load(&it->bad_errno);
        (void)csn_fail(ret, CAISSON_E_IO, &a);
        return true;
    }
    if (malformed.ptr != NULL) {
        a.what = "stored hash is not hexadecimal";
        a.want = CSN_STR("16 hex digits");
        a.got = malformed;
        (void)csn_fail(ret, CAISSON_E_PARSE, &a);
        return true;
    }
    uint8_t digest[CSN_DIGEST_BYTES];
    if (it->digest != NULL) {
        compute_digest(j, it, digest);
    }
    uint64_t got = csn_hash64_join(atomic_load(&it->pieces), it->nbytes, known);
    if (compare(a, has_hash ? want : got, got, it->digest, digest, ret)) {
        return true;
    }
    uint64_t odd_at = atomic_load(&it->odd_at);
    return odd_at != UINT64_MAX &&
           check_number(c->file, tensor_of(j, it), odd_at, ret) != CAISSON_OK;
}

caisson_status csn_cmf_check_section(const csn_cmf *c, int section, csn_str bytes,
                                     caisson_error *err) {
    csn_fail_args a = {.file = c->file->path,
                       .section = csn_cmf_section_names[section],
                       CSN_RANGE(c->envelope.off[section], c->envelope.len[section])};
    uint64_t want = 0, got = csn_hash64(bytes.ptr, bytes.len);
    csn_str malformed;
    uint8_t digest[CSN_DIGEST_BYTES];
    bool has_hash = stored_hash(c, (size_t)section, &want, &malformed);
    csn_digest(bytes.ptr, bytes.len, digest);
    return compare(a, has_hash ? want : got, got, c->section_digest[section], digest, err)
               ? CAISSON_E_HASH
               : CAISSON_OK;
}

/* The file of tensor *i, which counts in that file alone from then on. */
static const csn_cmf *file_of(const csn_cmf *c, uint32_t *i) {
    uint32_t i_file = c->dir.tensors[*i].i_file;
    for (uint32_t k = 0; k < i_file; k++) {
        *i -= csn_cmf_file_of(c, k)->n_own;
    }
    return csn_cmf_file_of(c, i_file);
}

static const uint8_t *stored_digest(const csn_cmf *file, uint32_t i) {
    return file->tensor_digests != NULL ? file->tensor_digests + (size_t)i * CSN_DIGEST_BYTES
                                        : NULL;
}

static caisson_status compare_tensor(const csn_cmf *file, const csn_tensor *t, uint64_t hash,
                                     const uint8_t *stored, const uint8_t *digest,
                                     caisson_error *err) {
    csn_fail_args a = {.file = file->file->path,
                       .section = csn_cmf_section_names[CSN_CMF_DATA],
                       .tensor = t->name,
                       CSN_RANGE(t->offset, t->nbytes)};
    return compare(a, t->hash, hash, stored, digest, err) ? CAISSON_E_HASH : CAISSON_OK;
}

caisson_status csn_cmf_check_tensor(const csn_cmf *c, uint32_t i, const void *bytes,
                                    caisson_error *err) {
    const csn_tensor *t = &c->dir.tensors[i];
    const csn_cmf *file = file_of(c, &i);
    const uint8_t *stored = stored_digest(file, i);
    uint8_t digest[CSN_DIGEST_BYTES];
    if (stored != NULL) {
        csn_digest(bytes, (size_t)t->nbytes, digest);
    }
    return compare_tensor(file, t, csn_hash64(bytes, (size_t)t->nbytes), stored, digest, err);
}

caisson_status csn_cmf_check_numbers(const csn_cmf *c, uint32_t i, const void *bytes,
                                     caisson_error *err) {
    const csn_tensor *t = &c->dir.tensors[i];
    return check_numbers(csn_cmf_file_of(c, t->i_file)->file, t, bytes, 0, t->nbytes, err);
}

/* pieces [csn_digest_n_pieces(t->nbytes)][CSN_DIGEST_BYTES]; buffer [BLOCK]; *odd_at: UINT64_MAX */
static caisson_status hash_file(csn_file *f, const csn_tensor *t, uint8_t *buffer, uint8_t *pieces,
                                uint64_t *ret, uint64_t *odd_at, caisson_error *err) {
    csn_hash64_state hash;
    csn_matrix m = numbers_of(t);
    csn_numbers odd;
    csn_hash64_init(&hash);
    csn_digest_piece("", 0, pieces);
    for (uint64_t at = 0; at < t->nbytes; at += BLOCK) {
        size_t n = t->nbytes - at < BLOCK ? (size_t)(t->nbytes - at) : BLOCK;
        CSN_TRY(csn_file_read_at(f, t->offset + at, buffer, n, err));
        csn_hash64_add(&hash, buffer, n);
        csn_digest_piece(buffer, n, pieces + at / BLOCK * CSN_DIGEST_BYTES);
        if (*odd_at == UINT64_MAX) {
            (void)csn_numbers_find_any(&m, buffer, at, at + n, &odd, odd_at);
        }
    }
    *ret = csn_hash64_end(&hash);
    return CAISSON_OK;
}

caisson_status csn_cmf_check_in_file(const csn_cmf *c, uint32_t i, caisson_error *err) {
    const csn_tensor *t = &c->dir.tensors[i];
    const csn_cmf *file = file_of(c, &i);
    size_t n_pieces = csn_digest_n_pieces(t->nbytes);
    uint64_t hash;
    uint64_t odd_at = UINT64_MAX;
    uint8_t *memory;
    n_pieces += n_pieces == 0;
    CSN_TRY(CSN_NEW(BLOCK + n_pieces * CSN_DIGEST_BYTES, &memory, err));
    uint8_t *pieces = memory + BLOCK;
    caisson_status status = hash_file(file->file, t, memory, pieces, &hash, &odd_at, err);
    if (status == CAISSON_OK) {
        uint8_t digest[CSN_DIGEST_BYTES];
        csn_digest_join(pieces, n_pieces, digest);
        status = compare_tensor(file, t, hash, stored_digest(file, i), digest, err);
    }
    if (status == CAISSON_OK && odd_at != UINT64_MAX) {
        status = check_number(file->file, t, odd_at, err);
    }
    if (status != CAISSON_OK) {
        csn_error_tensor(err, t->name);
    }
    csn_free(memory);
    return status;
}

static caisson_status run(struct job *j, csn_pool *pool, caisson_error *err) {
    unsigned n_threads = csn_pool_n_threads(pool);
    CSN_TRY(CSN_NEW(j->n_items, &j->items, err));
    CSN_TRY(csn_alloc_aligned((size_t)n_threads * READ, (void **)&j->buffers, err));
    for (size_t i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        uint64_t h;
        csn_str text;
        bool is_hashed = stored_hash(j->c, i, &h, &text);
        const uint8_t *digest = j->c->section_digest[i];
        add_item(j, i, j->c->envelope.off[i],
                 is_hashed || digest != NULL ? j->c->envelope.len[i] : 0, digest);
    }
    const uint8_t *tensor_digests = j->c->tensor_digests;
    for (uint32_t i = 0; i < j->c->dir.n; i++) {
        add_item(j, CSN_CMF_N_SECTIONS + i, j->c->dir.tensors[i].offset,
                 j->c->dir.tensors[i].nbytes,
                 tensor_digests != NULL ? tensor_digests + (size_t)i * CSN_DIGEST_BYTES : NULL);
    }
    bool has_digests = tensor_digests != NULL;
    for (size_t i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        has_digests |= j->items[i].digest != NULL;
    }
    if (has_digests) { /* 16 bytes for every 256 KiB of the file, which are there */
        CSN_TRY(CSN_NEW((size_t)j->n_blocks * CSN_DIGEST_BYTES, &j->digests, err));
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
            caisson_error fault;
            if (find_fault(&j, i, &known, &fault)) {
                fn(ctx, &fault);
                ++*ret_n;
            }
        }
    }
    csn_free_aligned(j.buffers);
    csn_free(j.digests);
    csn_free(j.items);
    return status;
}
