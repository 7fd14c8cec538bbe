/* SPDX-License-Identifier: Apache-2.0 */
/* A model's bytes: a read-only mapping of each of its files, or a block of memory for each tensor
 * that was asked for: without mmap, where mapping is impossible (some filesystems), and of WARP's
 * trunk, which is to stay in memory and whose parts need not lie side by side.
 */
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "store/guard.h"
#include "store/stream.h"
#include "store/trunk.h"

/* One file of the model. */
typedef struct mapping {
    csn_file *file;
    uint64_t size;
    const uint8_t *base; /* NULL: tensors are read */
    csn_guard *guard;    /* NULL: not guarded */
} mapping;

struct csn_store {
    csn_cmf *cmf; /* one of the two */
    csn_warp *warp;
    const csn_arch *arch;
    const csn_directory *dir;
    const char *path;
    csn_stream *stream;
    csn_trunk *trunk;
    bool is_dry, reads_rows;
    const csn_progress *progress; /* NULL: nobody watches */
    uint64_t n_loaded, n_to_load; /* bytes */
    mapping *maps;                /* [n_files] */
    uint32_t n_files;
    pthread_mutex_t mutex; /* guards blocks and unpacked; taken alone */
    uint8_t **blocks;      /* [dir.n] memory of tensors read so far */
    void **unpacked;       /* [dir.n] csn_matrix.unpacked of weights asked for so far */
    /* [dir.n] tensors whose hashes were right; NULL: none is checked. Two threads that ask for the
     * same tensor at once may both check it. */
    atomic_bool *is_checked;
};

/* Large pages where the kernel can (ext4 and xfs of late; pages that a file just written has stay
 * small). Advice only. Tensors are left to be read by faults, which fetch a large page each: what
 * WILLNEED fetches comes in small ones, and decoding is a fifth slower. */
static void advise_map(const mapping *m) {
#ifdef MADV_HUGEPAGE
    (void)madvise((void *)(uintptr_t)m->base, (size_t)m->size, MADV_HUGEPAGE);
#else
    (void)m;
#endif
}

static caisson_status map_file(mapping *m, const csn_store_options *options, caisson_error *err) {
    caisson_error ignored;
    if (m->file->ops->map(m->file, m->size, &m->base, &ignored) != CAISSON_OK) {
        m->base = NULL;
        return CAISSON_OK;
    }
    if (options->guard_mappings) {
        CSN_TRY(csn_guard_new(m->base, m->size, &m->guard, err));
    }
    advise_map(m);
    return CAISSON_OK;
}

static caisson_status fill_cmf(csn_store *s, const csn_store_options *options, caisson_error *err) {
    for (uint32_t i = 0; i < s->n_files; i++) {
        const csn_cmf *c = csn_cmf_file_of(s->cmf, i);
        s->maps[i] = (mapping){.file = c->file, .size = c->envelope.file_bytes};
        if (!options->no_mmap) {
            CSN_TRY(map_file(&s->maps[i], options, err));
        }
    }
    return options->verify ? CSN_NEW(s->dir->n, &s->is_checked, err) : CAISSON_OK;
}

static void unmap_file(mapping *m) {
    csn_guard_free(m->guard);
    if (m->base != NULL) {
        m->file->ops->unmap(m->file, m->base, m->size);
    }
}

static void free_maps(csn_store *s) {
    for (uint32_t i = 0; s->maps != NULL && i < s->n_files; i++) {
        unmap_file(&s->maps[i]);
    }
    csn_free(s->maps);
    s->maps = NULL;
}

/* A store of what `known` tells, without its files. */
static caisson_status make(const csn_store *known, csn_store **ret, caisson_error *err) {
    csn_store *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    *s = *known;
    pthread_mutex_init(&s->mutex, NULL);
    caisson_status status = CSN_NEW(s->n_files, &s->maps, err);
    if (status == CAISSON_OK) {
        status = CSN_NEW(s->dir->n, &s->blocks, err);
    }
    if (status == CAISSON_OK) {
        status = CSN_NEW(s->dir->n, &s->unpacked, err);
    }
    if (status != CAISSON_OK) {
        s->cmf = NULL; /* stays the caller's */
        s->warp = NULL;
        csn_store_free(s);
        return status;
    }
    *ret = s;
    return CAISSON_OK;
}

caisson_status csn_store_new(csn_cmf *cmf, const csn_store_options *options, csn_store **ret,
                             caisson_error *err) {
    csn_store *s;
    csn_store known = {.cmf = cmf,
                       .arch = &cmf->arch,
                       .dir = &cmf->dir,
                       .path = cmf->file->path,
                       .n_files = cmf->n_files};
    CSN_TRY(make(&known, &s, err));
    s->reads_rows = options->reads_rows;
    caisson_status status = fill_cmf(s, options, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, cmf->file->path);
        s->cmf = NULL; /* stays the caller's */
        csn_store_free(s);
        return status;
    }
    *ret = s;
    return CAISSON_OK;
}

caisson_status csn_store_new_warp(csn_warp *warp, const csn_store_options *options, csn_store **ret,
                                  caisson_error *err) {
    csn_store known = {
        .warp = warp, .arch = &warp->arch, .dir = &warp->dir, .path = warp->path, .n_files = 1};
    csn_store *s;
    if (options->verify) {
        CSN_TRY(csn_warp_use_digests(warp, err));
    }
    CSN_TRY(make(&known, &s, err));
    s->reads_rows = options->reads_rows;
    s->maps[0] = (mapping){.file = warp->trunk};
    caisson_status status =
        warp->digests != NULL ? CSN_NEW(s->dir->n, &s->is_checked, err) : CAISSON_OK;
    if (status != CAISSON_OK) {
        s->warp = NULL; /* stays the caller's */
        csn_store_free(s);
        return status;
    }
    *ret = s;
    return CAISSON_OK;
}

void csn_store_free(csn_store *s) {
    if (s == NULL) {
        return;
    }
    csn_trunk_free(s->trunk);
    csn_stream_free(s->stream);
    free_maps(s);
    for (uint32_t i = 0; s->blocks != NULL && i < s->dir->n; i++) {
        csn_free_aligned(s->blocks[i]);
    }
    for (uint32_t i = 0; s->unpacked != NULL && i < s->dir->n; i++) {
        csn_free_aligned(s->unpacked[i]);
    }
    csn_free(s->blocks);
    csn_free(s->unpacked);
    csn_free(s->is_checked);
    pthread_mutex_destroy(&s->mutex);
    csn_cmf_close(s->cmf);
    csn_warp_close(s->warp);
    csn_free(s);
}

const csn_arch *csn_store_arch(const csn_store *s) {
    return s->arch;
}

const csn_directory *csn_store_dir(const csn_store *s) {
    return s->dir;
}

const csn_cmf *csn_store_cmf(const csn_store *s) {
    static const csn_cmf nothing; /* no masks, no skills */
    return s->cmf != NULL ? s->cmf : &nothing;
}

csn_warp *csn_store_warp(const csn_store *s) {
    return s->warp;
}

void csn_store_set_stream(csn_store *s, csn_stream *stream) {
    s->stream = stream;
}

csn_stream *csn_store_stream(const csn_store *s) {
    return s->stream;
}

void csn_store_set_trunk(csn_store *s, csn_trunk *trunk) {
    s->trunk = trunk;
}

csn_trunk *csn_store_trunk(const csn_store *s) {
    return s->trunk;
}

void csn_store_set_dry(csn_store *s, bool is_dry) {
    s->is_dry = is_dry;
}

bool csn_store_is_dry(const csn_store *s) {
    return s->is_dry;
}

void csn_store_set_progress(csn_store *s, const csn_progress *progress) {
    csn_str id, name;
    s->progress = progress;
    s->n_loaded = 0;
    s->n_to_load = 0;
    for (uint32_t i = 0; progress != NULL && i < s->dir->n; i++) {
        const csn_tensor *t = &s->dir->tensors[i];
        bool is_of_skill = s->cmf != NULL && csn_cmf_skill_name(s->cmf, t->name, &id, &name);
        s->n_to_load += is_of_skill || csn_store_is_streamed(s, t) ? 0 : t->nbytes;
    }
}

/* A tensor was read, or looked through. */
static caisson_status tell_loaded(csn_store *s, uint64_t nbytes, caisson_error *err) {
    if (s->progress == NULL) {
        return CAISSON_OK;
    }
    s->n_loaded += nbytes;
    return csn_progress_tell(s->progress, "load", s->n_loaded, s->n_to_load, err);
}

static caisson_status read_tensor(csn_store *s, const csn_tensor *t, uint8_t *out,
                                  caisson_error *err) {
    if (s->warp != NULL) {
        return csn_warp_read_tensor(s->warp, (uint32_t)(t - s->dir->tensors), out, err);
    }
    return csn_file_read_at(s->maps[t->i_file].file, t->offset, out, (size_t)t->nbytes, err);
}

/* The tensor's bytes in memory of their own, read at the first call. */
static caisson_status read_block(csn_store *s, const csn_tensor *t, const uint8_t **ret,
                                 caisson_error *err) {
    uint8_t **block = &s->blocks[t - s->dir->tensors];
    caisson_status status = CAISSON_OK;
    pthread_mutex_lock(&s->mutex);
    if (*block == NULL) {
        void *bytes = NULL;
        status = csn_alloc_aligned((size_t)t->nbytes, &bytes, err);
        if (status == CAISSON_OK) {
            status = read_tensor(s, t, bytes, err);
        }
        if (status == CAISSON_OK) {
            *block = bytes;
        } else {
            csn_free_aligned(bytes);
        }
    }
    *ret = *block;
    pthread_mutex_unlock(&s->mutex);
    return status;
}

static caisson_status check_lost(const csn_store *s, caisson_error *err) {
    for (uint32_t i = 0; i < s->n_files; i++) {
        uint64_t at;
        const mapping *m = &s->maps[i];
        if (m->guard != NULL && csn_guard_is_lost(m->guard, &at)) {
            return CSN_FAIL(
                err, CAISSON_E_IO, .file = m->file->path, .section = "data", CSN_AT(at),
                .what = "a page of the mapped file is gone; was the file cut while in use?");
        }
    }
    return CAISSON_OK;
}

/* The bytes that are then used: those of the mapping or of the block. */
static caisson_status check_tensor(csn_store *s, const csn_tensor *t, const uint8_t *bytes,
                                   caisson_error *err) {
    uint32_t i = (uint32_t)(t - s->dir->tensors);
    if (s->is_checked == NULL || atomic_load_explicit(&s->is_checked[i], memory_order_relaxed)) {
        return CAISSON_OK;
    }
    caisson_status status = csn_store_check(s, i, bytes, err);
    CSN_TRY(check_lost(s, err)); /* what was hashed were zeros */
    if (status == CAISSON_OK) {
        atomic_store_explicit(&s->is_checked[i], true, memory_order_relaxed);
    }
    return status;
}

/* The payload of t, checked if that was asked for. */
static caisson_status find_bytes(csn_store *s, const csn_tensor *t, const uint8_t **ret,
                                 caisson_error *err) {
    const mapping *m = &s->maps[t->i_file];
    caisson_status status = CAISSON_OK;
    if (m->base != NULL) {
        *ret = m->base + t->offset;
    } else {
        status = read_block(s, t, ret, err);
    }
    if (status == CAISSON_OK) {
        status = check_tensor(s, t, *ret, err);
    }
    if (status == CAISSON_OK && (m->base == NULL || s->is_checked != NULL)) {
        status = tell_loaded(s, t->nbytes, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, m->file->path);
    }
    return status;
}

static caisson_status find_tensor(const csn_store *s, csn_str name, const csn_tensor **ret,
                                  caisson_error *err) {
    const csn_tensor *t = csn_directory_find(s->dir, name);
    if (t == NULL) {
        return CSN_FAIL(err, CAISSON_E_MISSING, .section = "directory", .tensor = name,
                        .what = "the model needs a tensor that the file does not have");
    }
    if (t->dtype->decode == NULL) {
        return CSN_FAIL(
            err, CAISSON_E_UNSUPPORTED, .section = "data", .tensor = name, CSN_AT(t->offset),
            .what = t->dtype->is_reserved ? "the tensor's dtype is reserved by the format"
                                          : "this build cannot compute with the tensor's dtype",
            .got = csn_str_from(t->dtype->name));
    }
    *ret = t;
    return CAISSON_OK;
}

static caisson_status find_matrix(csn_store *s, csn_str name, csn_matrix *ret, caisson_error *err) {
    const csn_tensor *t;
    CSN_TRY(find_tensor(s, name, &t, err));
    const uint8_t *bytes = NULL;
    bool is_streamed =
        s->stream != NULL && csn_stream_has(s->stream, (uint32_t)(t - s->dir->tensors));
    if (!is_streamed && !s->is_dry) {
        CSN_TRY(find_bytes(s, t, &bytes, err));
    }
    *ret = csn_matrix_make(t->dtype, &t->shape, bytes, t->nbytes);
    return CAISSON_OK;
}

caisson_status csn_store_matrix(csn_store *s, csn_str name, csn_matrix *ret, caisson_error *err) {
    caisson_status status = find_matrix(s, name, ret, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, s->path);
    }
    return status;
}

/* The embedding, where layers and head do not multiply with it. */
static bool is_table(const csn_store *s, const csn_tensor *t) {
    return csn_str_is(t->name, "model.embed_tokens.weight") &&
           (s->trunk != NULL || csn_directory_find(s->dir, CSN_STR("lm_head.weight")) != NULL);
}

bool csn_store_has_rows(const csn_store *s, const csn_tensor *t) {
    csn_row_part parts[CSN_ROW_PARTS];
    return s->reads_rows && t->shape.n_dims == 2 && is_table(s, t) &&
           csn_row_parts(t->dtype, t->shape.dim[1], parts) > 0;
}

uint64_t csn_store_unpacked_bytes(const csn_store *s, const csn_tensor *t) {
    if (t->dtype->unpack == NULL || is_table(s, t) || csn_store_is_streamed(s, t)) {
        return 0;
    }
    const csn_matrix m = csn_matrix_make(t->dtype, &t->shape, NULL, t->nbytes);
    return t->dtype->unpacked_nbytes(&m);
}

/* Of a tensor that stays in memory; made at the first call. */
static caisson_status find_unpacked(csn_store *s, const csn_tensor *t, csn_matrix *m,
                                    caisson_error *err) {
    const uint64_t nbytes = csn_store_unpacked_bytes(s, t);
    void **unpacked = &s->unpacked[t - s->dir->tensors];
    if (nbytes == 0 || m->data == NULL) {
        return CAISSON_OK;
    }
    caisson_status status = CAISSON_OK;
    pthread_mutex_lock(&s->mutex);
    if (*unpacked == NULL) {
        void *made;
        status = csn_alloc_aligned((size_t)nbytes, &made, err);
        if (status == CAISSON_OK) {
            m->dtype->unpack(m, made);
            *unpacked = made;
        }
    }
    m->unpacked = *unpacked;
    pthread_mutex_unlock(&s->mutex);
    return status;
}

caisson_status csn_store_weight(csn_store *s, csn_str name, csn_matrix *ret, caisson_error *err) {
    const csn_tensor *t;
    caisson_status status = find_tensor(s, name, &t, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, s->path);
        return status;
    }
    const uint8_t *bytes =
        s->trunk != NULL ? csn_trunk_address(s->trunk, (uint32_t)(t - s->dir->tensors)) : NULL;
    if (bytes == NULL || s->is_dry) {
        CSN_TRY(csn_store_matrix(s, name, ret, err));
        return find_unpacked(s, t, ret, err);
    }
    *ret = csn_matrix_make(t->dtype, &t->shape, bytes, t->nbytes);
    return CAISSON_OK;
}

static caisson_status check_in_file(const csn_store *s, const csn_tensor *t, caisson_error *err) {
    uint32_t i = (uint32_t)(t - s->dir->tensors);
    if (s->is_checked == NULL) {
        return CAISSON_OK;
    }
    return s->warp != NULL ? csn_warp_check_in_file(s->warp, i, err)
                           : csn_cmf_check_in_file(s->cmf, i, err);
}

caisson_status csn_store_rows(csn_store *s, csn_str name, csn_rows *ret, caisson_error *err) {
    const csn_tensor *t = csn_directory_find(s->dir, name);
    csn_matrix m;
    if (t == NULL || !csn_store_has_rows(s, t)) {
        CSN_TRY(csn_store_matrix(s, name, &m, err));
        *ret = csn_rows_in_memory(&m);
        return CAISSON_OK;
    }
    if (!s->is_dry) {
        CSN_TRY(check_in_file(s, t, err));
    }
    csn_warp_range ranges[2] = {{t->offset, t->nbytes}};
    if (s->warp != NULL) {
        (void)csn_warp_tensor_ranges(s->warp, (uint32_t)(t - s->dir->tensors), ranges);
    }
    m = csn_matrix_make(t->dtype, &t->shape, NULL, t->nbytes);
    *ret = csn_rows_in_file(&m, t->name, s->maps[t->i_file].file, ranges[0].offset,
                            ranges[0].nbytes, ranges[1].offset);
    return CAISSON_OK;
}

bool csn_store_is_streamed(const csn_store *s, const csn_tensor *t) {
    uint32_t i = (uint32_t)(t - s->dir->tensors);
    return csn_store_has_rows(s, t) || (s->stream != NULL && csn_stream_has(s->stream, i)) ||
           (s->trunk != NULL && csn_trunk_address(s->trunk, i) != NULL);
}

caisson_status csn_store_read(csn_store *s, const csn_tensor *t, csn_matrix *ret,
                              caisson_error *err) {
    void *bytes;
    CSN_TRY(csn_alloc_aligned((size_t)t->nbytes, &bytes, err));
    caisson_status status = read_tensor(s, t, bytes, err);
    if (status == CAISSON_OK) {
        status = check_tensor(s, t, bytes, err);
    }
    if (status != CAISSON_OK) {
        csn_error_tensor(err, t->name);
        csn_error_file(err, s->path);
        csn_free_aligned(bytes);
        return status;
    }
    *ret = csn_matrix_make(t->dtype, &t->shape, bytes, t->nbytes);
    return CAISSON_OK;
}

caisson_status csn_store_check(const csn_store *s, uint32_t i_tensor, const uint8_t *bytes,
                               caisson_error *err) {
    if (s->warp == NULL) {
        CSN_TRY(csn_cmf_check_tensor(s->cmf, i_tensor, bytes, err));
        return csn_cmf_check_numbers(s->cmf, i_tensor, bytes, err);
    }
    return s->warp->digests != NULL ? csn_warp_check_tensor(s->warp, i_tensor, bytes, err)
                                    : CAISSON_OK;
}

caisson_status csn_store_guarded(csn_store *s, caisson_status (*fn)(void *ctx, caisson_error *err),
                                 void *ctx, caisson_error *err) {
    CSN_TRY(check_lost(s, err));
    caisson_status status = fn(ctx, err);
    CSN_TRY(check_lost(s, err)); /* whatever fn computed or failed with, it saw zeros */
    return status;
}
