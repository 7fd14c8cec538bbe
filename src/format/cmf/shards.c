/* SPDX-License-Identifier: Apache-2.0 */
/* A model in several files (CMF 10, facts 11): BASE-00001-of-0000N.cmf and so on. Each shard is a
 * file of its own; what belongs to the model as a whole (masks, tokenizer, chat bundle, skills) is
 * in the first. Here any of the names opens them all, and the shards are held against each other:
 * all are there, each is where its block says, none is of another model. */
#include "format/cmf/shards.h"

#include <errno.h>
#include <stdio.h>

#include "caisson/limits.h"

enum { SUFFIX = sizeof("-00001-of-00001.cmf") - 1 };

static bool parse_number(const char *digits, uint32_t *ret) {
    *ret = 0;
    for (int i = 0; i < 5; i++) {
        if (digits[i] < '0' || digits[i] > '9') {
            return false;
        }
        *ret = *ret * 10 + (uint32_t)(digits[i] - '0');
    }
    return true;
}

bool csn_cmf_shard_name(csn_str path, csn_cmf_shard_place *ret) {
    if (path.len < SUFFIX) {
        return false;
    }
    const char *s = path.ptr + path.len - SUFFIX;
    csn_cmf_shard_place p = {.base = csn_str_make(path.ptr, path.len - SUFFIX)};
    if (s[0] != '-' || !parse_number(s + 1, &p.no) || memcmp(s + 6, "-of-", 4) != 0 ||
        !parse_number(s + 10, &p.count) || memcmp(s + 15, ".cmf", 4) != 0) {
        return false;
    }
    *ret = p;
    return true;
}

caisson_status csn_cmf_shard_path(csn_str base, uint32_t no, uint32_t count, csn_buf *ret,
                                  caisson_error *err) {
    ret->len = 0;
    return csn_buf_printf(ret, err, "%.*s-%05u-of-%05u.cmf", CSN_STR_ARGS(base), no, count);
}

static caisson_status fail(const csn_cmf *c, const char *what, csn_str want, csn_str got,
                           caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .file = c->file->path, .section = "header",
                    .tensor = CSN_STR("shard"), .what = what, CSN_TEXTS(want, got));
}

/* The shard is number `no` of `count`, and says so. */
static caisson_status check_block(const csn_cmf *c, uint32_t no, uint32_t count,
                                  caisson_error *err) {
    char want[48], got[48];
    snprintf(want, sizeof(want), "%u of %u", no, count);
    if (!c->has_shard_block) {
        return fail(c, "the file does not say that it is a shard", csn_str_from(want), (csn_str){0},
                    err);
    }
    snprintf(got, sizeof(got), "%u of %u", c->shard_no, c->n_shards);
    if (c->shard_no != no || c->n_shards != count) {
        return fail(c, "the shard says that it has another place", csn_str_from(want),
                    csn_str_from(got), err);
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_check_joined(const csn_cmf *c, caisson_error *err) {
    const csn_cmf_envelope *e = &c->envelope;
    uint64_t used = 0;
    char magic[4];
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        uint64_t end = e->len[i] > 0 ? e->off[i] + e->len[i] : 0;
        used = end > used ? end : used;
    }
    if (e->file_bytes - used < sizeof(magic)) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_file_read_at(c->file, used, magic, sizeof(magic), err));
    if (memcmp(magic, "CMF\x01", sizeof(magic)) == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .file = c->file->path, .section = "file",
                        .tensor = CSN_STR("shard"), CSN_RANGE(used, e->file_bytes - used),
                        .what = "another file is joined to this one",
                        CSN_VALUES(used, e->file_bytes));
    }
    return CAISSON_OK;
}

static caisson_status arch_text(const csn_cmf *c, csn_buf *ret, caisson_error *err) {
    csn_jw w = csn_jw_begin(ret, err);
    csn_arch_write(&c->arch, &w);
    return csn_jw_end(&w);
}

/* Both are of one model, as far as their headers tell. */
static caisson_status check_kin(const csn_cmf *a, const csn_cmf *b, caisson_error *err) {
    csn_buf x = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES), y = x;
    csn_str set_a = {0}, set_b = {0};
    (void)csn_jval_str(csn_jval_get(a->header, CSN_CMF_SHARD_SET), &set_a);
    (void)csn_jval_str(csn_jval_get(b->header, CSN_CMF_SHARD_SET), &set_b);
    caisson_status status = arch_text(a, &x, err);
    if (status == CAISSON_OK) {
        status = arch_text(b, &y, err);
    }
    if (status == CAISSON_OK &&
        (!csn_str_eq(csn_buf_view(&x), csn_buf_view(&y)) || !csn_str_eq(set_a, set_b))) {
        status = fail(b, "the shard belongs to another model than the first", set_a, set_b, err);
    }
    csn_buf_free(&x);
    csn_buf_free(&y);
    return status;
}

/* ---- opening ---- */

typedef struct set {
    csn_fs *fs;
    csn_cmf_check_fn check;
    void *ctx;
    csn_cmf **files; /* [count] */
    csn_buf path;
} set;

static caisson_status open_one(const set *s, const char *path, csn_cmf **ret, caisson_error *err) {
    csn_file *f;
    caisson_status status = csn_fs_open(s->fs, path, CSN_OPEN_READ, &f, err);
    if (status == CAISSON_OK && s->check != NULL) {
        status = s->check(s->ctx, f, err);
        if (status != CAISSON_OK) { /* nothing of the file was parsed */
            csn_file_close(f);
        }
    }
    if (status == CAISSON_OK) {
        status = csn_cmf_open_file(f, ret, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}

static caisson_status open_sibling(set *s, const csn_cmf_shard_place *p, uint32_t no,
                                   caisson_error *err) {
    CSN_TRY(csn_cmf_shard_path(p->base, no, p->count, &s->path, err));
    if (!s->fs->ops->exists(s->fs, s->path.ptr)) {
        return CSN_FAIL(err, CAISSON_E_IO, .file = s->path.ptr, .section = "file",
                        .tensor = CSN_STR("shard"), .sys_errno = ENOENT,
                        .what = "a shard of the model is missing");
    }
    return open_one(s, s->path.ptr, &s->files[no - 1], err);
}

/* Opens the others beside s->files[p->no - 1], which was looked at, and looks at each. */
static caisson_status open_set(set *s, const csn_cmf_shard_place *p, caisson_error *err) {
    for (uint32_t no = 1; no <= p->count; no++) {
        if (no != p->no) {
            CSN_TRY(open_sibling(s, p, no, err));
            CSN_TRY(check_block(s->files[no - 1], no, p->count, err));
            CSN_TRY(csn_cmf_check_joined(s->files[no - 1], err));
        }
    }
    for (uint32_t i = 1; i < p->count; i++) {
        CSN_TRY(check_kin(s->files[0], s->files[i], err));
    }
    return CAISSON_OK;
}

/* Names the first tensor that two files have. */
static caisson_status fail_duplicate(const set *s, uint32_t count, caisson_error *err) {
    for (uint32_t i = 0; i < count; i++) {
        const csn_directory *dir = &s->files[i]->dir;
        for (uint32_t k = 0; k < dir->n; k++) {
            for (uint32_t j = 0; j < i; j++) {
                if (csn_directory_find(&s->files[j]->dir, dir->tensors[k].name) != NULL) {
                    return CSN_FAIL(err, CAISSON_E_PARSE, .file = s->files[i]->file->path,
                                    .section = "directory", .tensor = dir->tensors[k].name,
                                    .what = "two shards have a tensor of this name",
                                    CSN_VALUES(j + 1, i + 1));
                }
            }
        }
    }
    return CAISSON_E_PARSE; /* *err tells already */
}

/* One directory over all: the first file's becomes it. */
static caisson_status merge(const set *s, uint32_t count, caisson_error *err) {
    csn_cmf *first = s->files[0];
    csn_directory all = {0};
    uint64_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        n += s->files[i]->dir.n;
    }
    if (n > CAISSON_MAX_TENSORS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "directory", .what = "too many tensors",
                        CSN_VALUES(CAISSON_MAX_TENSORS, n));
    }
    CSN_TRY(CSN_ARENA_NEW(&first->arena, (size_t)n, &all.tensors, err));
    CSN_TRY(CSN_ARENA_NEW(&first->arena, count, &first->files, err));
    for (uint32_t i = 0; i < count; i++) {
        first->files[i] = s->files[i];
        for (uint32_t k = 0; k < s->files[i]->dir.n; k++) {
            all.tensors[all.n] = s->files[i]->dir.tensors[k];
            all.tensors[all.n++].i_file = i;
        }
    }
    caisson_status status = csn_directory_index(&all, &first->arena, err);
    if (status == CAISSON_E_PARSE) { /* a name given twice */
        return fail_duplicate(s, count, err);
    }
    CSN_TRY(status);
    first->dir = all;
    CSN_TRY(csn_cmf_parse_skills(first, err));
    first->n_files = count; /* from here on it owns the others */
    return CAISSON_OK;
}

/* Whether `c` is a model by itself; if not, *p is its place. */
static caisson_status find_place(const csn_cmf *c, const char *path, csn_cmf_shard_place *p,
                                 bool *ret_is_alone, caisson_error *err) {
    char want[48];
    bool is_named = csn_cmf_shard_name(csn_str_from(path), p);
    if (c->has_shard_block) {
        CSN_TRY(csn_cmf_check_joined(c, err));
    }
    *ret_is_alone =
        c->has_shard_block ? c->shard_no == 1 && c->n_shards == 1 : !is_named || p->count <= 1;
    if (*ret_is_alone) {
        return CAISSON_OK;
    }
    if (!is_named) {
        snprintf(want, sizeof(want), "NAME-%05u-of-%05u.cmf", c->shard_no, c->n_shards);
        return fail(c, "the file is a shard, and its name is not that of one", csn_str_from(want),
                    csn_str_from(path), err);
    }
    if (p->no == 0 || p->no > p->count) {
        return fail(c, "the number of the shard is not one of their count", (csn_str){0},
                    csn_str_from(path), err);
    }
    return check_block(c, p->no, p->count, err);
}

caisson_status csn_cmf_open_model(csn_fs *fs, const char *path, csn_cmf_check_fn check, void *ctx,
                                  csn_cmf **ret, caisson_error *err) {
    set s = {.fs = fs, .check = check, .ctx = ctx, .path = CSN_BUF_INIT(1 << 16)};
    csn_cmf_shard_place p;
    csn_cmf *given;
    bool is_alone = false;
    CSN_TRY(open_one(&s, path, &given, err));
    caisson_status status = find_place(given, path, &p, &is_alone, err);
    if (status == CAISSON_OK && !is_alone) {
        status = CSN_NEW(p.count, &s.files, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_cmf_close(given);
        return status;
    }
    if (is_alone) {
        *ret = given;
        return CAISSON_OK;
    }
    s.files[p.no - 1] = given;
    status = open_set(&s, &p, err);
    if (status == CAISSON_OK) {
        status = merge(&s, p.count, err);
    }
    if (status == CAISSON_OK) {
        *ret = s.files[0];
    } else {
        csn_error_file(err, path);
        for (uint32_t i = 0; i < p.count; i++) {
            csn_cmf_close(s.files[i]);
        }
    }
    csn_free(s.files);
    csn_buf_free(&s.path);
    return status;
}

csn_cmf *csn_cmf_file_of(const csn_cmf *c, uint32_t i_file) {
    return i_file == 0 ? (csn_cmf *)(uintptr_t)c : c->files[i_file];
}
