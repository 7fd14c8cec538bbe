/* SPDX-License-Identifier: Apache-2.0 */
/* The order of things on the disk: a tensor or a bank is synced, then the journal says that it is
 * there; the manifest is written when all are, and the whole is opened by our own reader; then one
 * rename makes a model of the directory. What the journal does not tell of is written again. */
#include "format/warp/writer.h"

#include <errno.h>
#include <inttypes.h>

#include "base/arena.h"
#include "base/le.h"
#include "base/crc32.h"
#include "base/hash64.h"
#include "base/size.h"
#include "format/journal.h"
#include "format/warp/manifest_write.h"

enum {
    SYNC_BYTES = 64 << 20, /* of the trunk between two marks in the journal */
    SLACK_BYTES = 8 << 20, /* left free on the disk beside the model: tokenizer, manifest */
    EXPERT_MAGIC = 0x50584557,
    BOOK_MAGIC = 0x4b424357,
    BOOK_HEADER = 16,
    MAX_BOOKS = 65535, /* a record has 16 bits for the number of its first one */
    FMT_VQ = 4,        /* of every coding with a byte a stage, whatever its stages */
    FMT_VQ_PACKED = 8
};

struct csn_warp_writer {
    csn_fs *fs;
    csn_buf path, dir, lock_path, journal_path;
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

/* ---- paths ---- */

static caisson_status in_dir(const csn_warp_writer *w, const char *name, csn_buf *ret,
                             caisson_error *err) {
    *ret = CSN_BUF_INIT(1 << 16);
    return csn_buf_printf(ret, err, "%s/%s", w->dir.ptr, name);
}

static caisson_status make_paths(csn_warp_writer *w, const char *path, caisson_error *err) {
    csn_buf *const all[] = {&w->path, &w->dir, &w->lock_path, &w->journal_path};
    static const char *const suffix[] = {"", ".part", ".part.lock", ".part.journal"};
    csn_str base = csn_str_from(path);
    while (base.len > 1 && base.ptr[base.len - 1] == '/') {
        base.len--;
    }
    for (int i = 0; i < 4; i++) {
        *all[i] = CSN_BUF_INIT(1 << 16);
        CSN_TRY(csn_buf_printf(all[i], err, "%.*s%s", CSN_STR_ARGS(base), suffix[i]));
    }
    return CAISSON_OK;
}

static caisson_status remove_if_there(csn_fs *fs, const char *path, caisson_error *err) {
    return fs->ops->exists(fs, path) ? fs->ops->remove(fs, path, err) : CAISSON_OK;
}

typedef struct remover {
    csn_fs *fs;
    const char *dir;
    caisson_status status;
    caisson_error *err;
} remover;

static void remove_one(void *ctx, csn_str name) {
    remover *r = ctx;
    csn_buf b = CSN_BUF_INIT(1 << 16);
    if (r->status == CAISSON_OK) {
        r->status = csn_buf_printf(&b, r->err, "%s/%.*s", r->dir, CSN_STR_ARGS(name));
    }
    if (r->status == CAISSON_OK) {
        r->status = r->fs->ops->remove(r->fs, b.ptr, r->err);
    }
    csn_buf_free(&b);
}

/* A directory of files; banks that are symbolic links lose the link alone. */
static caisson_status remove_dir(csn_fs *fs, const char *dir, caisson_error *err) {
    remover r = {fs, dir, CAISSON_OK, err};
    if (!fs->ops->is_dir(fs, dir)) {
        return CAISSON_OK;
    }
    CSN_TRY(fs->ops->list(fs, dir, remove_one, &r, err));
    CSN_TRY(r.status);
    return remove_if_there(fs, dir, err);
}

/* ---- beginning ---- */

static caisson_status open_part(csn_warp_writer *w, const char *name, csn_file **ret,
                                caisson_error *err) {
    csn_buf b;
    CSN_TRY(in_dir(w, name, &b, err));
    csn_open_mode mode =
        w->fs->ops->exists(w->fs, b.ptr) ? CSN_OPEN_READ_WRITE : CSN_OPEN_CREATE_NEW;
    caisson_status status = csn_fs_open(w->fs, b.ptr, mode, ret, err);
    csn_buf_free(&b);
    return status;
}

static caisson_status check_plan(csn_warp_writer *w, caisson_error *err) {
    const csn_warp_plan *p = &w->plan;
    uint64_t at = 0;
    CSN_TRY(CSN_ARENA_NEW(&w->arena, (size_t)p->n_trunk + 1, &w->offsets, err));
    for (uint32_t i = 0; i < p->n_trunk; i++) {
        const csn_warp_plan_tensor *t = &p->trunk[i];
        uint64_t n;
        if (t->dtype->warp_fmt == CSN_NO_ID || t->shape.n_dims == 0 || t->shape.n_dims > 4) {
            return CSN_FAIL(err, CAISSON_E_ARG, .section = "trunk", .tensor = t->name,
                            .what = "a type or shape that the trunk cannot hold",
                            .got = csn_str_from(t->dtype->name));
        }
        CSN_TRY(t->dtype->nbytes(&t->shape, &n, err));
        if (!csn_add(at, n, &at)) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "trunk", .tensor = t->name,
                            .what = "the trunk's size does not fit in 64 bits");
        }
        w->offsets[i + 1] = at;
    }
    if (p->n_layers == 0) {
        return CAISSON_OK;
    }
    uint64_t n_books = (uint64_t)p->n_layers * CSN_WARP_N_KINDS * p->coding->stages;
    if (n_books > MAX_BOOKS || p->n_experts > UINT16_MAX) {
        return CSN_FAIL(err, CAISSON_E_ARG, .section = "codebooks",
                        .what = "more codebooks or experts than a record can name",
                        CSN_VALUES(MAX_BOOKS, n_books));
    }
    return csn_warp_layout_make(p->coding, p->expert_width, p->expert_hidden, &w->layout, err);
}

static uint64_t mix_str(uint64_t id, csn_str s) {
    return csn_journal_mix(csn_journal_mix(id, s.len), csn_hash64(s.ptr, s.len));
}

static uint64_t plan_id(const csn_warp_plan *p) {
    uint64_t id = mix_str(mix_str(7, p->fingerprint), p->config);
    id = mix_str(mix_str(id, p->prefix), p->arch);
    for (uint32_t i = 0; i < p->n_trunk; i++) {
        id = mix_str(id, p->trunk[i].name);
        id = csn_journal_mix(id, (uint64_t)p->trunk[i].dtype->warp_fmt);
    }
    for (uint32_t i = 0; i < p->n_layers; i++) {
        id = csn_journal_mix(id, p->layers[i]);
    }
    id = csn_journal_mix(id, p->n_experts);
    return mix_str(id, csn_str_from(p->coding->name));
}

static uint64_t book_bytes(const csn_warp_writer *w) {
    return BOOK_HEADER + 2 * (uint64_t)w->plan.coding->entries * CSN_VQ_DIM;
}

static uint32_t books_of_layer(const csn_warp_writer *w) {
    return CSN_WARP_N_KINDS * w->plan.coding->stages;
}

static uint64_t bank_bytes(const csn_warp_writer *w) {
    return w->layout.stride * w->plan.n_experts;
}

/* Bytes of unit i: a tensor of the trunk, or a bank. */
static uint64_t unit_bytes(const csn_warp_writer *w, uint32_t i) {
    return i < w->plan.n_trunk ? w->offsets[i + 1] - w->offsets[i] : bank_bytes(w);
}

static caisson_status file_has(csn_warp_writer *w, const char *name, uint64_t nbytes, bool *ret,
                               caisson_error *err) {
    csn_buf b;
    csn_file *f;
    uint64_t size = 0;
    *ret = false;
    CSN_TRY(in_dir(w, name, &b, err));
    caisson_status status = CAISSON_OK;
    if (w->fs->ops->exists(w->fs, b.ptr)) {
        status = csn_fs_open(w->fs, b.ptr, CSN_OPEN_READ, &f, err);
        if (status == CAISSON_OK) {
            status = csn_file_size(f, &size, err);
            csn_file_close(f);
            *ret = size >= nbytes;
        }
    }
    csn_buf_free(&b);
    return status;
}

/* The leading units of the journal that the files bear out. */
static caisson_status believe(csn_warp_writer *w, caisson_error *err) {
    for (w->n_done = 0; w->n_done < w->journal.n; w->n_done++) {
        uint32_t i = w->n_done, n_trunk = w->plan.n_trunk;
        char name[CSN_WARP_BANK_NAME] = "trunk.bin";
        bool is_there;
        uint64_t need = i < n_trunk ? w->offsets[i + 1] : bank_bytes(w);
        if (i >= n_trunk) {
            uint64_t n_books = (uint64_t)(i - n_trunk + 1) * books_of_layer(w);
            CSN_TRY(file_has(w, "codebooks.bin", n_books * book_bytes(w), &is_there, err));
            if (!is_there) {
                break;
            }
            csn_warp_bank_name(w->plan.layers[i - n_trunk], name);
        }
        CSN_TRY(file_has(w, name, need, &is_there, err));
        if (!is_there || w->done[i].nbytes != unit_bytes(w, i)) {
            break;
        }
    }
    return csn_journal_cut(&w->journal, w->n_done, err);
}

static caisson_status claim(csn_warp_writer *w, caisson_error *err) {
    bool is_ours = false;
    const char *p = w->lock_path.ptr;
    csn_open_mode mode = w->fs->ops->exists(w->fs, p) ? CSN_OPEN_READ_WRITE : CSN_OPEN_CREATE_NEW;
    CSN_TRY(csn_fs_open(w->fs, p, mode, &w->lock, err));
    CSN_TRY(w->lock->ops->lock(w->lock, &is_ours, err));
    if (!is_ours) {
        csn_file_close(w->lock);
        w->lock = NULL;
        return CSN_FAIL(err, CAISSON_E_BUSY, .file = w->path.ptr,
                        .what = "another conversion is writing this model");
    }
    return CAISSON_OK;
}

static caisson_status check_space(csn_warp_writer *w, caisson_error *err) {
    uint32_t n = w->plan.n_trunk + w->plan.n_layers;
    uint64_t free_bytes, need = SLACK_BYTES;
    for (uint32_t i = w->n_done; i < n; i++) {
        if (!csn_add(need, unit_bytes(w, i), &need)) {
            need = UINT64_MAX;
            break;
        }
    }
    CSN_TRY(w->fs->ops->free_bytes(w->fs, w->path.ptr, &free_bytes, err));
    if (free_bytes < need) {
        return CSN_FAIL(err, CAISSON_E_IO, .file = w->path.ptr,
                        .what = "not enough free space for the model", .sys_errno = ENOSPC,
                        CSN_VALUES(need, free_bytes));
    }
    return CAISSON_OK;
}

static caisson_status begin_anew(csn_warp_writer *w, uint64_t id, caisson_error *err) {
    w->is_anew = true;
    CSN_TRY(remove_if_there(w->fs, w->journal_path.ptr, err));
    CSN_TRY(remove_dir(w->fs, w->dir.ptr, err));
    CSN_TRY(check_space(w, err));
    CSN_TRY(w->fs->ops->make_dir(w->fs, w->dir.ptr, err));
    return csn_journal_create(w->fs, w->journal_path.ptr, id, &w->journal, err);
}

static caisson_status begin(csn_warp_writer *w, caisson_error *err) {
    uint64_t id = plan_id(&w->plan);
    uint32_t n = w->plan.n_trunk + w->plan.n_layers;
    caisson_status status = CAISSON_E_PARSE;
    CSN_TRY(claim(w, err));
    if (w->fs->ops->exists(w->fs, w->journal_path.ptr) && w->fs->ops->is_dir(w->fs, w->dir.ptr)) {
        caisson_error e = {0};
        status = csn_journal_resume(w->fs, w->journal_path.ptr, id, n, w->done, &w->journal, &e);
        if (status != CAISSON_OK && status != CAISSON_E_PARSE) {
            *err = e;
            return status;
        }
    }
    if (status == CAISSON_OK) {
        CSN_TRY(believe(w, err));
        return check_space(w, err);
    }
    return begin_anew(w, id, err);
}

caisson_status csn_warp_writer_new(csn_fs *fs, const char *path, const csn_warp_plan *plan,
                                   csn_warp_writer **ret, uint32_t *ret_n_tensors,
                                   uint32_t *ret_n_banks, caisson_error *err) {
    csn_warp_writer *w;
    CSN_TRY(CSN_NEW(1, &w, err));
    w->fs = fs;
    w->plan = *plan;
    caisson_status status = make_paths(w, path, err);
    if (status == CAISSON_OK) {
        status = check_plan(w, err);
    }
    if (status == CAISSON_OK) {
        status =
            CSN_ARENA_NEW(&w->arena, (size_t)plan->n_trunk + plan->n_layers + 1, &w->done, err);
    }
    if (status == CAISSON_OK) {
        status = begin(w, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_warp_writer_close(w, w->is_anew);
        return status;
    }
    *ret = w;
    *ret_n_tensors = w->n_done < plan->n_trunk ? w->n_done : plan->n_trunk;
    *ret_n_banks = w->n_done - *ret_n_tensors;
    return CAISSON_OK;
}

const csn_warp_layout *csn_warp_writer_layout(const csn_warp_writer *w) {
    return &w->layout;
}

/* ---- writing ---- */

/* The file to the disk, then the journal. */
static caisson_status mark(csn_warp_writer *w, csn_file *f, caisson_error *err) {
    if (w->journal.n == w->n_done) {
        return CAISSON_OK;
    }
    CSN_TRY(f->ops->sync(f, err));
    w->unsynced_bytes = 0;
    return csn_journal_append(&w->journal, w->done, w->n_done, err);
}

static caisson_status open_trunk(csn_warp_writer *w, caisson_error *err) {
    if (w->trunk != NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(open_part(w, "trunk.bin", &w->trunk, err));
    return w->trunk->ops->truncate(w->trunk, w->offsets[w->n_done], err);
}

static caisson_status fail_size(const csn_warp_writer *w, uint64_t need, uint64_t nbytes,
                                caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_ARG, .file = w->path.ptr, .section = "trunk",
                    .what = "no tensor of the plan has this size", CSN_VALUES(need, nbytes));
}

caisson_status csn_warp_writer_tensor(csn_warp_writer *w, const void *bytes, uint64_t nbytes,
                                      caisson_error *err) {
    uint64_t need = w->n_done < w->plan.n_trunk ? unit_bytes(w, w->n_done) : 0;
    if (need == 0 || nbytes != need) {
        return fail_size(w, need, nbytes, err);
    }
    CSN_TRY(open_trunk(w, err));
    CSN_TRY(csn_file_write_at(w->trunk, w->offsets[w->n_done], bytes, (size_t)nbytes, err));
    return csn_warp_writer_tensor_done(w, err);
}

caisson_status csn_warp_writer_rows(csn_warp_writer *w, uint64_t r0, uint64_t n, const void *bytes,
                                    uint64_t nbytes, caisson_error *err) {
    if (w->n_done >= w->plan.n_trunk) {
        return fail_size(w, 0, nbytes, err);
    }
    const csn_warp_plan_tensor *t = &w->plan.trunk[w->n_done];
    if (t->shape.n_dims != 2 || n > t->shape.dim[0] || r0 > t->shape.dim[0] - n) {
        return fail_size(w, unit_bytes(w, w->n_done), nbytes, err);
    }
    uint64_t at = w->offsets[w->n_done];
    uint64_t rows = t->shape.dim[0];
    uint64_t scales = t->dtype->is_float ? 0 : csn_warp_scale_bytes(&t->shape);
    uint64_t codes = unit_bytes(w, w->n_done) - scales;
    uint64_t n_codes = codes / rows * n, n_scales = scales / rows * n;
    if (nbytes != n_codes + n_scales) {
        return fail_size(w, n_codes + n_scales, nbytes, err);
    }
    CSN_TRY(open_trunk(w, err));
    CSN_TRY(csn_file_write_at(w->trunk, at + codes / rows * r0, bytes, (size_t)n_codes, err));
    return csn_file_write_at(w->trunk, at + codes + scales / rows * r0,
                             (const uint8_t *)bytes + n_codes, (size_t)n_scales, err);
}

caisson_status csn_warp_writer_tensor_done(csn_warp_writer *w, caisson_error *err) {
    uint64_t nbytes = unit_bytes(w, w->n_done);
    w->done[w->n_done] = (csn_journal_entry){.nbytes = nbytes};
    w->n_done++;
    w->unsynced_bytes += nbytes;
    bool is_last = w->n_done == w->plan.n_trunk;
    return is_last || w->unsynced_bytes >= SYNC_BYTES ? mark(w, w->trunk, err) : CAISSON_OK;
}

static uint32_t i_bank(const csn_warp_writer *w) {
    return w->n_done - w->plan.n_trunk;
}

caisson_status csn_warp_writer_books(csn_warp_writer *w, const uint16_t *books,
                                     caisson_error *err) {
    if (w->n_done < w->plan.n_trunk || i_bank(w) >= w->plan.n_layers || w->bank != NULL) {
        return CSN_FAIL(err, CAISSON_E_ARG, .file = w->path.ptr, .section = "experts",
                        .what = "no bank of the plan comes next");
    }
    uint32_t layer = w->plan.layers[i_bank(w)];
    uint64_t n_values = (uint64_t)w->plan.coding->entries * CSN_VQ_DIM, size = book_bytes(w);
    uint8_t bytes[BOOK_HEADER + 2 * CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM];
    if (w->books == NULL) {
        CSN_TRY(open_part(w, "codebooks.bin", &w->books, err));
    }
    for (uint32_t b = 0; b < books_of_layer(w); b++) {
        uint64_t id = (uint64_t)i_bank(w) * books_of_layer(w) + b;
        csn_put32(bytes, BOOK_MAGIC);
        csn_put16(bytes + 4, (uint16_t)id);
        bytes[6] = FMT_VQ;
        bytes[7] = CSN_VQ_DIM;
        csn_put32(bytes + 8, w->plan.coding->entries);
        csn_put32(bytes + 12, 0);
        for (uint64_t i = 0; i < n_values; i++) {
            csn_put16(bytes + BOOK_HEADER + 2 * i, books[b * n_values + i]);
        }
        CSN_TRY(csn_file_write_at(w->books, id * size, bytes, (size_t)size, err));
    }
    char name[CSN_WARP_BANK_NAME];
    csn_warp_bank_name(layer, name);
    CSN_TRY(open_part(w, name, &w->bank, err));
    w->i_expert = 0;
    return w->bank->ops->truncate(w->bank, 0, err);
}

static void put_header(const csn_warp_writer *w, uint8_t *record) {
    const csn_warp_layout *l = &w->layout;
    memset(record, 0, CSN_WARP_RECORD_HEADER);
    csn_put32(record, EXPERT_MAGIC);
    csn_put16(record + 4, (uint16_t)w->plan.layers[i_bank(w)]);
    csn_put16(record + 6, (uint16_t)w->i_expert);
    record[8] = w->plan.coding->is_packed ? FMT_VQ_PACKED : FMT_VQ;
    csn_put16(record + 10, (uint16_t)(i_bank(w) * books_of_layer(w)));
    csn_put32(record + 16, (uint32_t)(l->stride / CSN_WARP_PAGE));
    for (int k = 0; k < CSN_WARP_N_KINDS; k++) {
        csn_put32(record + 20 + 4 * (size_t)k, (uint32_t)l->index[k]);
    }
    csn_put32(record + 32, (uint32_t)l->scale[0]);
    csn_put32(record + 36, csn_crc32(record + CSN_WARP_RECORD_HEADER,
                                     (size_t)(l->end - CSN_WARP_RECORD_HEADER)));
}

caisson_status csn_warp_writer_expert(csn_warp_writer *w, uint8_t *record, caisson_error *err) {
    if (w->bank == NULL) {
        return CSN_FAIL(err, CAISSON_E_ARG, .file = w->path.ptr, .section = "experts",
                        .what = "an expert without a bank");
    }
    put_header(w, record);
    CSN_TRY(csn_file_write_at(w->bank, w->i_expert * w->layout.stride, record,
                              (size_t)w->layout.stride, err));
    if (++w->i_expert < w->plan.n_experts) {
        return CAISSON_OK;
    }
    w->done[w->n_done] = (csn_journal_entry){.nbytes = bank_bytes(w)};
    w->n_done++;
    CSN_TRY(w->books->ops->sync(w->books, err));
    caisson_status status = mark(w, w->bank, err);
    csn_file_close(w->bank);
    w->bank = NULL;
    return status;
}

caisson_status csn_warp_writer_file(csn_warp_writer *w, const char *name, csn_str bytes,
                                    caisson_error *err) {
    csn_buf b;
    CSN_TRY(in_dir(w, name, &b, err));
    caisson_status status = csn_fs_write_all(w->fs, b.ptr, bytes, err);
    csn_buf_free(&b);
    return status;
}

/* ---- the end ---- */

static caisson_status check_whole(csn_warp_writer *w, caisson_error *err) {
    uint32_t n = w->plan.n_trunk + w->plan.n_layers;
    if (w->n_done != n || w->bank != NULL) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "tensors or banks of the plan are missing",
                        CSN_VALUES(n, w->n_done));
    }
    if (w->plan.n_trunk == 0 && w->trunk == NULL) {
        CSN_TRY(open_part(w, "trunk.bin", &w->trunk, err));
    }
    if (w->plan.n_layers == 0 && w->books == NULL) { /* a dense model has an empty one */
        CSN_TRY(open_part(w, "codebooks.bin", &w->books, err));
    }
    return CAISSON_OK;
}

static caisson_status write_manifest(csn_warp_writer *w, caisson_error *err) {
    csn_buf json = CSN_BUF_INIT(CSN_WARP_MAX_MANIFEST);
    caisson_status status =
        csn_warp_manifest_write(&w->plan, w->offsets, bank_bytes(w), &json, err);
    if (status == CAISSON_OK) {
        status = csn_warp_writer_file(w, "manifest.json", csn_buf_view(&json), err);
    }
    csn_buf_free(&json);
    return status;
}

/* What our own reader refuses never replaces anything. */
static caisson_status check_readable(csn_warp_writer *w, caisson_error *err) {
    csn_warp *r;
    CSN_TRY(csn_warp_open(w->fs, w->dir.ptr, NULL, &r, err));
    csn_warp_close(r);
    return CAISSON_OK;
}

/* Only a model is replaced, never somebody's directory. */
static caisson_status check_target(csn_warp_writer *w, bool replace, bool *ret_is_there,
                                   caisson_error *err) {
    *ret_is_there = w->fs->ops->exists(w->fs, w->path.ptr);
    if (!*ret_is_there) {
        return CAISSON_OK;
    }
    if (!replace) {
        return CSN_FAIL(err, CAISSON_E_EXISTS, .file = w->path.ptr,
                        .what = "target exists; say that it may be replaced");
    }
    if (!csn_warp_is(w->fs, w->path.ptr)) {
        return CSN_FAIL(err, CAISSON_E_EXISTS, .file = w->path.ptr,
                        .what = "the target is no WARP model, and is left alone");
    }
    return CAISSON_OK;
}

static caisson_status put_in_place(csn_warp_writer *w, bool is_there, caisson_error *err) {
    caisson_error ignored;
    CSN_TRY(w->fs->ops->sync_dir(w->fs, w->dir.ptr, err));
    if (is_there) {
        CSN_TRY(w->fs->ops->exchange(w->fs, w->dir.ptr, w->path.ptr, err));
    } else {
        CSN_TRY(w->fs->ops->rename(w->fs, w->dir.ptr, w->path.ptr, err));
    }
    w->is_finished = true; /* the model is in place, whatever follows */
    csn_journal_close(&w->journal);
    (void)w->fs->ops->remove(w->fs, w->journal_path.ptr, &ignored);
    (void)remove_dir(w->fs, w->dir.ptr, &ignored); /* what was replaced */
    return w->fs->ops->sync_dir(w->fs, w->path.ptr, err);
}

/* What was written opens with our reader, and gets its digests. */
static caisson_status seal(const csn_warp_writer *w, caisson_error *err) {
    csn_warp *written;
    CSN_TRY(csn_warp_open(w->fs, w->dir.ptr, NULL, &written, err));
    caisson_status status = csn_warp_write_digests(written, NULL, err);
    csn_warp_close(written);
    return status;
}

caisson_status csn_warp_writer_finish(csn_warp_writer *w, bool replace, caisson_error *err) {
    bool is_there = false;
    caisson_status status = check_whole(w, err);
    if (status == CAISSON_OK) {
        status = check_target(w, replace, &is_there, err);
    }
    if (status == CAISSON_OK) {
        status = write_manifest(w, err);
    }
    if (status == CAISSON_OK) {
        status = check_readable(w, err);
    }
    if (status == CAISSON_OK) {
        status = seal(w, err);
    }
    if (status == CAISSON_OK) {
        status = put_in_place(w, is_there, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, w->path.ptr);
    }
    return status;
}

void csn_warp_writer_close(csn_warp_writer *w, bool discard) {
    caisson_error ignored;
    if (w == NULL) {
        return;
    }
    if (!w->is_finished && !discard && w->trunk != NULL && w->n_done <= w->plan.n_trunk) {
        (void)mark(w, w->trunk, &ignored); /* else the old marks still hold */
    }
    csn_file_close(w->trunk);
    csn_file_close(w->books);
    csn_file_close(w->bank);
    csn_journal_close(&w->journal);
    if (!w->is_finished && discard) {
        (void)remove_if_there(w->fs, w->journal_path.ptr, &ignored);
        (void)remove_dir(w->fs, w->dir.ptr, &ignored);
    }
    if (w->lock != NULL && (w->is_finished || discard)) {
        (void)w->fs->ops->remove(w->fs, w->lock_path.ptr, &ignored);
    }
    csn_file_close(w->lock);
    csn_buf_free(&w->path);
    csn_buf_free(&w->dir);
    csn_buf_free(&w->lock_path);
    csn_buf_free(&w->journal_path);
    csn_arena_done(&w->arena);
    csn_free(w);
}
