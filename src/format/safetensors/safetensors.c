/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the weights of a model: one file, or the shards that an index names. */
#include "format/safetensors/safetensors.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/size.h"
#include "base/utf8.h"
#include "caisson/limits.h"
#include "format/safetensors/parse_internal.h"

static const char INDEX_NAME[] = "model.safetensors.index.json";
static const char SINGLE_NAME[] = "model.safetensors";

typedef struct shard {
    csn_str name;
    csn_tensor *tensors;
    uint32_t n;
    csn_directory dir; /* its own, to find a tensor that the index puts into it */
} shard;

typedef struct opener {
    csn_fs *fs;
    const char *dir;
    csn_safetensors *s;
    shard *shards;
    caisson_error *err;
} opener;

static caisson_status join(opener *o, csn_str name, csn_buf *ret) {
    *ret = CSN_BUF_INIT(1 << 16);
    caisson_status status = csn_buf_printf(ret, o->err, "%s/%.*s", o->dir, CSN_STR_ARGS(name));
    if (status != CAISSON_OK) {
        csn_buf_free(ret);
    }
    return status;
}

static caisson_status open_file(opener *o, const char *path, csn_tensor **ret, uint32_t *ret_n) {
    csn_safetensors *s = o->s;
    uint32_t i = s->n_files;
    CSN_TRY(csn_fs_open(o->fs, path, CSN_OPEN_READ, &s->files[i], o->err));
    s->n_files++;
    return csn_safetensors_parse(s->files[i], i, &s->arena, ret, ret_n, o->err);
}

/* A shard's name becomes a path: a plain file name and nothing else. */
static caisson_status check_name(opener *o, csn_str name) {
    bool ok = csn_str_ends(name, CSN_STR(".safetensors")) && name.len <= 255 && name.ptr[0] != '.';
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        ok = ok && c >= 0x20 && c != '/' && c != '\\' && c != ':' && c != 0x7f;
    }
    if (!ok) {
        return CSN_FAIL(o->err, CAISSON_E_PARSE, .file = INDEX_NAME, .section = "index",
                        .tensor = name, .what = "shard name is not a plain .safetensors file name");
    }
    return CAISSON_OK;
}

static caisson_status shard_of(opener *o, csn_str name, shard **ret) {
    csn_safetensors *s = o->s;
    for (uint32_t i = 0; i < s->n_files; i++) { /* shards are few; the last one is the likely one */
        uint32_t k = s->n_files - 1 - i;
        if (csn_str_eq(o->shards[k].name, name)) {
            *ret = &o->shards[k];
            return CAISSON_OK;
        }
    }
    if (s->n_files == CSN_SAFETENSORS_MAX_SHARDS) {
        return CSN_FAIL(o->err, CAISSON_E_LIMIT, .file = INDEX_NAME, .what = "too many shards",
                        CSN_VALUES(CSN_SAFETENSORS_MAX_SHARDS, s->n_files + 1));
    }
    CSN_TRY(check_name(o, name));
    shard *sh = &o->shards[s->n_files];
    csn_buf path;
    CSN_TRY(csn_arena_str(&s->arena, name, &sh->name, o->err));
    CSN_TRY(join(o, name, &path));
    caisson_status status = open_file(o, path.ptr, &sh->tensors, &sh->n);
    csn_buf_free(&path);
    CSN_TRY(status);
    sh->dir = (csn_directory){.tensors = sh->tensors, .n = sh->n};
    CSN_TRY(csn_directory_index(&sh->dir, &s->arena, o->err));
    *ret = sh;
    return CAISSON_OK;
}

/* True if two payloads are byte for byte the same. */
static caisson_status same_bytes(opener *o, const csn_tensor *a, const csn_tensor *b, bool *ret) {
    enum { STEP = 1 << 20 };
    *ret = false;
    if (a->dtype != b->dtype || a->nbytes != b->nbytes || a->shape.n_dims != b->shape.n_dims ||
        memcmp(a->shape.dim, b->shape.dim, sizeof(a->shape.dim)) != 0) {
        return CAISSON_OK;
    }
    uint8_t *buf;
    CSN_TRY(CSN_NEW(2 * STEP, &buf, o->err));
    caisson_status status = CAISSON_OK;
    bool same = true;
    for (uint64_t off = 0; off < a->nbytes && same && status == CAISSON_OK; off += STEP) {
        size_t n = a->nbytes - off < STEP ? (size_t)(a->nbytes - off) : STEP;
        status = csn_file_read_at(o->s->files[a->i_file], a->offset + off, buf, n, o->err);
        if (status == CAISSON_OK) {
            status =
                csn_file_read_at(o->s->files[b->i_file], b->offset + off, buf + STEP, n, o->err);
        }
        same = status == CAISSON_OK && memcmp(buf, buf + STEP, n) == 0;
    }
    csn_free(buf);
    *ret = same;
    return status;
}

/* What a shard holds beyond the index: a copy of a listed tensor is harmless, anything else means
 * that index and shards are not of one model. */
static caisson_status check_unlisted(opener *o, const shard *sh, const csn_directory *listed) {
    for (uint32_t i = 0; i < sh->n; i++) {
        const csn_tensor *t = &sh->tensors[i];
        const csn_tensor *known = csn_directory_find(listed, t->name);
        if (known != NULL && known->i_file == t->i_file) {
            continue;
        }
        bool same = false;
        if (known != NULL) {
            CSN_TRY(same_bytes(o, known, t, &same));
        }
        if (!same) {
            return CSN_FAIL(o->err, CAISSON_E_PARSE, .file = o->s->files[t->i_file]->path,
                            .section = "index", .tensor = t->name,
                            .what = known == NULL
                                        ? "shard holds a tensor that the index does not list"
                                        : "tensor differs from the one that the index lists");
        }
    }
    return CAISSON_OK;
}

static caisson_status open_index(opener *o, const csn_jval *root) {
    csn_safetensors *s = o->s;
    const csn_jval *map = csn_jval_get(root, "weight_map");
    size_t n = csn_jval_len(map);
    if (csn_jval_kind(map) != CSN_JSON_OBJECT || n == 0 || n > CAISSON_MAX_TENSORS) {
        return CSN_FAIL(o->err, CAISSON_E_PARSE, .file = INDEX_NAME, .section = "index",
                        .tensor = CSN_STR("weight_map"),
                        .what = "not an object that maps tensors to files",
                        CSN_VALUES(CAISSON_MAX_TENSORS, n));
    }
    CSN_TRY(CSN_ARENA_NEW(&s->arena, n, &s->dir.tensors, o->err));
    for (csn_jiter it = csn_jval_iter(map); csn_jiter_next(&it);) {
        csn_str file;
        shard *sh = NULL;
        if (!csn_jval_str(it.value, &file) || file.len == 0) {
            return CSN_FAIL(o->err, CAISSON_E_PARSE, .file = INDEX_NAME, .section = "index",
                            .tensor = it.key, .what = "shard name is not a string");
        }
        CSN_TRY(shard_of(o, file, &sh));
        const csn_tensor *t = csn_directory_find(&sh->dir, it.key);
        if (t == NULL) {
            return CSN_FAIL(o->err, CAISSON_E_MISSING, .section = "index", .tensor = it.key,
                            .file = s->files[sh - o->shards]->path,
                            .what = "the index lists a tensor that its shard does not hold");
        }
        s->dir.tensors[s->dir.n++] = *t;
    }
    CSN_TRY(csn_directory_index(&s->dir, &s->arena, o->err));
    for (uint32_t i = 0; i < s->n_files; i++) {
        CSN_TRY(check_unlisted(o, &o->shards[i], &s->dir));
    }
    return CAISSON_OK;
}

typedef struct stray_ctx {
    opener *o;
    bool has_index;
    uint32_t cap;
    caisson_status status;
} stray_ctx;

static void note_stray(void *ctx, csn_str name) {
    stray_ctx *c = ctx;
    csn_safetensors *s = c->o->s;
    if (!csn_str_ends(name, CSN_STR(".safetensors")) || s->n_stray == c->cap ||
        (!c->has_index && csn_str_is(name, SINGLE_NAME)) || c->status != CAISSON_OK) {
        return;
    }
    for (uint32_t i = 0; c->has_index && i < s->n_files; i++) {
        if (csn_str_eq(c->o->shards[i].name, name)) {
            return;
        }
    }
    c->status = csn_arena_str(&s->arena, name, &s->stray_files[s->n_stray], c->o->err);
    s->n_stray += c->status == CAISSON_OK;
}

static caisson_status note_strays(opener *o, bool has_index) {
    stray_ctx c = {.o = o, .has_index = has_index, .cap = 64, .status = CAISSON_OK};
    CSN_TRY(CSN_ARENA_NEW(&o->s->arena, c.cap, &o->s->stray_files, o->err));
    if (o->fs->ops->list != NULL) {
        CSN_TRY(o->fs->ops->list(o->fs, o->dir, note_stray, &c, o->err));
    }
    return c.status;
}

static caisson_status open_single(opener *o, const char *path) {
    csn_safetensors *s = o->s;
    CSN_TRY(open_file(o, path, &s->dir.tensors, &s->dir.n));
    return csn_directory_index(&s->dir, &s->arena, o->err);
}

static caisson_status open_dir(opener *o) {
    csn_buf index = {0}, single = {0}, text = {0};
    csn_json *doc = NULL;
    caisson_status status = join(o, csn_str_from(INDEX_NAME), &index);
    if (status == CAISSON_OK) {
        status = join(o, csn_str_from(SINGLE_NAME), &single);
    }
    bool has_index = status == CAISSON_OK && o->fs->ops->exists(o->fs, index.ptr);
    if (status == CAISSON_OK && has_index) {
        status = csn_fs_read_all(o->fs, index.ptr, CAISSON_MAX_HEADER_BYTES, &text, o->err);
        if (status == CAISSON_OK) {
            status = csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, &doc, o->err);
        }
        if (status == CAISSON_OK) {
            status = open_index(o, csn_json_root(doc));
        }
        if (status != CAISSON_OK) {
            csn_error_file(o->err, index.ptr);
        }
    } else if (status == CAISSON_OK && o->fs->ops->exists(o->fs, single.ptr)) {
        status = open_single(o, single.ptr);
    } else if (status == CAISSON_OK) {
        status = CSN_FAIL(o->err, CAISSON_E_IO, .file = o->dir,
                          .what = "directory holds neither model.safetensors.index.json nor "
                                  "model.safetensors");
    }
    if (status == CAISSON_OK) {
        status = note_strays(o, has_index);
    }
    csn_json_free(doc);
    csn_buf_free(&text);
    csn_buf_free(&single);
    csn_buf_free(&index);
    return status;
}

static caisson_status open_any(csn_fs *fs, const char *path, bool is_dir, csn_safetensors **ret,
                               caisson_error *err) {
    opener o = {.fs = fs, .dir = path, .err = err};
    CSN_TRY(CSN_NEW(1, &o.s, err));
    caisson_status status = CSN_NEW(CSN_SAFETENSORS_MAX_SHARDS, &o.s->files, err);
    if (status == CAISSON_OK) {
        status = CSN_NEW(CSN_SAFETENSORS_MAX_SHARDS, &o.shards, err);
    }
    if (status == CAISSON_OK) {
        status = is_dir ? open_dir(&o) : open_single(&o, path);
    }
    csn_free(o.shards);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_safetensors_close(o.s);
        return status;
    }
    *ret = o.s;
    return CAISSON_OK;
}

caisson_status csn_safetensors_open(csn_fs *fs, const char *path, csn_safetensors **ret,
                                    caisson_error *err) {
    return open_any(fs, path, false, ret, err);
}

caisson_status csn_safetensors_open_dir(csn_fs *fs, const char *dir, csn_safetensors **ret,
                                        caisson_error *err) {
    return open_any(fs, dir, true, ret, err);
}

void csn_safetensors_close(csn_safetensors *s) {
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; i < s->n_files; i++) {
        csn_file_close(s->files[i]);
    }
    csn_free(s->files);
    csn_arena_done(&s->arena);
    csn_free(s);
}
