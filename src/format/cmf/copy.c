/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a model anew, byte for byte, without what belongs to nothing: compact, merge and split
 * are this one walk over the directory. Every hash is compared on the way: new ones over damaged
 * bytes would make them look sound. */
#include <inttypes.h>

#include "base/size.h"
#include "caisson/limits.h"
#include "base/hash64.h"
#include "format/cmf/layout.h"
#include "format/cmf/shards.h"

typedef struct job {
    csn_cmf *source;
    const csn_cmf_copy_options *o;
    csn_buf header, masks, vocab, fingerprint;
    uint64_t n_done, n_total; /* bytes of payloads */
} job;

static caisson_status read_section(job *j, int section, csn_buf *ret, caisson_error *err) {
    CSN_TRY(csn_cmf_read_section(j->source, section, ret, err));
    return csn_cmf_check_section(j->source, section, csn_buf_view(ret), err);
}

/* All but the payloads. Several files become one model: its header is no shard's any more. */
static caisson_status read_head(job *j, caisson_error *err) {
    static const csn_cmf_header_edit no_shard[] = {{.key = "shard"}, {.key = CSN_CMF_SHARD_SET}};
    size_t n_edits = j->o->keeps_shard ? 0 : sizeof(no_shard) / sizeof(no_shard[0]);
    CSN_TRY(read_section(j, CSN_CMF_MASKS, &j->masks, err));
    CSN_TRY(read_section(j, CSN_CMF_VOCAB, &j->vocab, err));
    csn_jw w = csn_jw_begin(&j->header, err);
    csn_cmf_header_edit_write(j->source, no_shard, n_edits, &w);
    CSN_TRY(csn_jw_end(&w));
    CSN_TRY(csn_buf_printf(&j->fingerprint, err, "copy"));
    for (uint32_t i = 0; i < j->source->n_files; i++) {
        const csn_cmf_envelope *e = &csn_cmf_file_of(j->source, i)->envelope;
        CSN_TRY(csn_buf_printf(&j->fingerprint, err, " %016" PRIx64 ":%016" PRIx64 ":%" PRIu64,
                               e->header_hash, e->dir_hash, e->file_bytes));
    }
    return CAISSON_OK;
}

/* The model's tensors as those of a new file: *ret [dir.n], to be freed. */
static caisson_status list_tensors(const csn_cmf *c, csn_cmf_plan_tensor **ret,
                                   caisson_error *err) {
    CSN_TRY(CSN_NEW(c->dir.n, ret, err));
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        (*ret)[i] = (csn_cmf_plan_tensor){t->name, t->dtype, t->shape, t->nbytes};
    }
    return CAISSON_OK;
}

static caisson_status open_set(job *j, csn_fs *fs, const char *path, csn_cmf_set **ret,
                               uint32_t *ret_n_done, caisson_error *err) {
    const csn_directory *dir = &j->source->dir;
    csn_cmf_plan_tensor *list;
    CSN_TRY(list_tensors(j->source, &list, err));
    for (uint32_t i = 0; i < dir->n; i++) {
        j->n_total += dir->tensors[i].nbytes;
    }
    csn_cmf_plan plan = {.tensors = list,
                         .n = dir->n,
                         .head_bytes = j->header.len,
                         .vocab_bytes = j->masks.len + j->vocab.len,
                         .fingerprint = csn_buf_view(&j->fingerprint)};
    caisson_status status =
        csn_cmf_set_new(fs, path, &plan, j->o->shard_max_bytes, ret, ret_n_done, err);
    csn_free(list);
    return status;
}

static caisson_status copy_tensor(job *j, uint32_t i, csn_cmf_set *set, caisson_error *err) {
    const csn_tensor *t = &j->source->dir.tensors[i];
    csn_file *f = csn_cmf_file_of(j->source, t->i_file)->file;
    void *bytes;
    CSN_TRY(csn_alloc_aligned((size_t)t->nbytes, &bytes, err));
    caisson_status status = CAISSON_OK;
    if (t->nbytes > 0) {
        status = csn_file_read_at(f, t->offset, bytes, (size_t)t->nbytes, err);
    }
    if (status == CAISSON_OK) {
        status = csn_cmf_check_tensor(j->source, i, bytes, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, f->path);
        csn_error_tensor(err, t->name);
    } else {
        status = csn_cmf_set_tensor(set, bytes, t->nbytes, err);
    }
    csn_free_aligned(bytes);
    return status;
}

static caisson_status copy(job *j, csn_cmf_set *set, uint32_t n_done, caisson_error *err) {
    const csn_directory *dir = &j->source->dir;
    if (!j->o->overwrite) {
        CSN_TRY(csn_cmf_set_check_absent(set, err));
    }
    for (uint32_t i = 0; i < dir->n; i++) {
        if (i >= n_done) {
            CSN_TRY(copy_tensor(j, i, set, err));
        }
        j->n_done += dir->tensors[i].nbytes;
        CSN_TRY(csn_progress_tell(j->o->progress, "copy", j->n_done, j->n_total, err));
    }
    return csn_cmf_set_finish(set, csn_buf_view(&j->header), csn_buf_view(&j->masks),
                              csn_buf_view(&j->vocab), err);
}

static caisson_status run(job *j, csn_fs *fs, const char *path, uint32_t *ret_n_files,
                          caisson_error *err) {
    csn_cmf_set *set = NULL;
    uint32_t n_done = 0;
    if (j->o->keeps_shard) { /* it replaces the source, and would drop the other file */
        CSN_TRY(csn_cmf_check_joined(j->source, err));
    }
    CSN_TRY(read_head(j, err));
    CSN_TRY(open_set(j, fs, path, &set, &n_done, err));
    caisson_status status = copy(j, set, n_done, err);
    *ret_n_files = csn_cmf_set_n_files(set);
    csn_cmf_set_close(set, status != CAISSON_OK);
    return status;
}

caisson_status csn_cmf_copy(csn_cmf *source, csn_fs *fs, const char *path,
                            const csn_cmf_copy_options *options, uint32_t *ret_n_files,
                            caisson_error *err) {
    job j = {.source = source,
             .o = options,
             .header = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES),
             .fingerprint = CSN_BUF_INIT(1 << 24)};
    caisson_status status = run(&j, fs, path, ret_n_files, err);
    csn_buf_free(&j.header);
    csn_buf_free(&j.masks);
    csn_buf_free(&j.vocab);
    csn_buf_free(&j.fingerprint);
    return status;
}

/* The hash of the directory that a copy in one file has: offsets in a record count from the blob's
 * begin, so that they do not depend on the header. */
static caisson_status hash_merged(const csn_cmf *c, const csn_cmf_plan *plan, uint64_t *ret,
                                  caisson_error *err) {
    csn_arena arena = {0};
    csn_cmf_layout l;
    uint8_t *bytes = NULL;
    caisson_status status = csn_cmf_layout_make(plan, &arena, &l, err);
    if (status == CAISSON_OK) {
        status = CSN_ARENA_NEW(&arena, (size_t)l.dir_bytes, &bytes, err);
    }
    if (status == CAISSON_OK) {
        for (uint32_t i = 0; i < l.dir.n; i++) {
            l.dir.tensors[i].hash = c->dir.tensors[i].hash;
        }
        csn_cmf_directory_write(&l.dir, l.data_off, bytes);
        *ret = csn_hash64(bytes, (size_t)l.dir_bytes);
    }
    csn_arena_done(&arena);
    return status;
}

caisson_status csn_cmf_directory_hash(csn_cmf *c, uint64_t *ret, caisson_error *err) {
    csn_cmf_plan plan = {.n = c->dir.n};
    csn_cmf_plan_tensor *list;
    csn_buf section = {0};
    if (c->n_files == 1) { /* the envelope may not tell it */
        CSN_TRY(csn_cmf_read_section(c, CSN_CMF_DIR, &section, err));
        *ret = csn_hash64(section.ptr, section.len);
        csn_buf_free(&section);
        return CAISSON_OK;
    }
    CSN_TRY(list_tensors(c, &list, err));
    plan.tensors = list;
    caisson_status status = hash_merged(c, &plan, ret, err);
    csn_free(list);
    return status;
}
