/* SPDX-License-Identifier: Apache-2.0 */
/* A model written as one file or as shards: one writer a file, all claimed at the beginning, filled
 * one after the other, sealed when the last tensor is there, and renamed into place from the last
 * to the first. Whoever opens the set in between is told that the first shard is missing, or, where
 * an older set is being replaced, that the shards are of two models. */
#include <stdio.h>

#include "base/base64.h"
#include "base/hex.h"
#include "base/size.h"
#include "caisson/limits.h"
#include "format/cmf/shards.h"

enum {
    HEAD_BYTES = 2 * CSN_CMF_PAGE, /* envelope, what is added to the header, rounding */
    KEYS_BYTES = 256,              /* what a shard's header has more than the model's */
    SET_BYTES = 2 * CSN_DIGEST_BYTES + 1
};

struct csn_cmf_set {
    csn_fs *fs;
    csn_arena arena;
    uint32_t n_files;
    uint32_t *first;          /* [n_files + 1] first tensor of each file */
    csn_cmf_writer **writers; /* [n_files] */
    const char **paths;       /* [n_files] */
    uint32_t *n_done;         /* [n_files] tensors that each has */
    uint32_t i_file;          /* which one is being filled */
    char id[SET_BYTES];       /* caisson.shard_set */
};

/* ---- which tensor goes into which file ---- */

/* What tensor t takes in a file, at most: payload, padding, record, name, digest. */
static caisson_status tensor_bytes(const csn_cmf_plan_tensor *t, uint64_t *ret,
                                   caisson_error *err) {
    uint64_t n = t->nbytes;
    if (t->dtype->nbytes != NULL) {
        CSN_TRY(t->dtype->nbytes(&t->shape, &n, err));
    }
    uint64_t align = n >= CSN_CMF_LARGE ? CSN_CMF_PAGE : CSN_CMF_ALIGN;
    uint64_t more = align + CSN_CMF_RECORD_BYTES + t->name.len + csn_base64_len(CSN_DIGEST_BYTES);
    if (!csn_add(n, more, ret)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .tensor = t->name,
                        .what = "the file's size does not fit in 64 bits");
    }
    return CAISSON_OK;
}

/* Greedy, in order (facts 11): a new file where the next tensor would pass the limit. */
static caisson_status cut(csn_cmf_set *s, const csn_cmf_plan *plan, uint64_t max_bytes,
                          caisson_error *err) {
    uint64_t size, bytes;
    uint64_t head = HEAD_BYTES + plan->head_bytes;
    CSN_TRY(CSN_ARENA_NEW(&s->arena, (size_t)plan->n + 2, &s->first, err));
    s->n_files = 1;
    size = head + plan->vocab_bytes;
    for (uint32_t i = 0; i < plan->n && max_bytes > 0; i++) {
        CSN_TRY(tensor_bytes(&plan->tensors[i], &bytes, err));
        bool is_full = size > max_bytes || bytes > max_bytes - size;
        if (is_full && i > s->first[s->n_files - 1]) {
            s->first[s->n_files++] = i;
            size = head;
        }
        size = bytes > UINT64_MAX - size ? UINT64_MAX : size + bytes;
    }
    s->first[s->n_files] = plan->n;
    if (s->n_files > CSN_CMF_MAX_SHARDS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "too many shards: the limit is too small",
                        CSN_VALUES(CSN_CMF_MAX_SHARDS, s->n_files));
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_set_file_name(const char *path, uint32_t i, uint32_t n, csn_buf *ret,
                                     caisson_error *err) {
    csn_str base = csn_str_from(path);
    ret->len = 0;
    if (n == 1) {
        return csn_buf_str(ret, base, err);
    }
    base.len -= csn_str_ends(base, CSN_STR(".cmf")) ? 4 : 0;
    return csn_cmf_shard_path(base, i + 1, n, ret, err);
}

static caisson_status name_files(csn_cmf_set *s, const char *path, caisson_error *err) {
    csn_str copy = {0};
    csn_buf b = CSN_BUF_INIT(1 << 16);
    caisson_status status = CAISSON_OK;
    CSN_TRY(CSN_ARENA_NEW(&s->arena, s->n_files, &s->paths, err));
    for (uint32_t i = 0; i < s->n_files && status == CAISSON_OK; i++) {
        status = csn_cmf_set_file_name(path, i, s->n_files, &b, err);
        if (status == CAISSON_OK) {
            status = csn_arena_str(&s->arena, csn_buf_view(&b), &copy, err);
        }
        s->paths[i] = copy.ptr;
    }
    csn_buf_free(&b);
    return status;
}

/* The same for the same plan, so that the same source gives the same bytes. */
static caisson_status name_set(csn_cmf_set *s, const csn_cmf_plan *plan, caisson_error *err) {
    csn_buf b = CSN_BUF_INIT(SIZE_MAX / 2);
    caisson_status status = csn_buf_str(&b, plan->fingerprint, err);
    for (uint32_t i = 0; i < plan->n && status == CAISSON_OK; i++) {
        const csn_cmf_plan_tensor *t = &plan->tensors[i];
        status = csn_buf_printf(&b, err, "\n%s ", t->dtype->name);
        if (status == CAISSON_OK) {
            status = csn_buf_str(&b, t->name, err);
        }
    }
    if (status == CAISSON_OK) {
        uint8_t digest[CSN_DIGEST_BYTES];
        csn_digest(b.ptr, b.len, digest);
        csn_hex_encode(digest, sizeof(digest), s->id);
    }
    csn_buf_free(&b);
    return status;
}

/* ---- opening the writers ---- */

static caisson_status open_writer(csn_cmf_set *s, const csn_cmf_plan *plan, uint32_t i,
                                  uint64_t other_bytes, uint32_t *ret_n_done, caisson_error *err) {
    csn_cmf_plan part = *plan;
    part.tensors = plan->tensors + s->first[i];
    part.n = s->first[i + 1] - s->first[i];
    part.head_bytes += s->n_files > 1 ? KEYS_BYTES : 0;
    part.vocab_bytes = (i == 0 ? plan->vocab_bytes : 0) + other_bytes;
    return csn_cmf_writer_new(s->fs, s->paths[i], &part, &s->writers[i], ret_n_done, err);
}

/* Tensors come in order: what the files from i on hold is of no use. */
static caisson_status open_anew(csn_cmf_set *s, const csn_cmf_plan *plan, uint32_t i,
                                caisson_error *err) {
    for (; i < s->n_files; i++) {
        csn_cmf_writer_close(s->writers[i], true);
        s->writers[i] = NULL;
        CSN_TRY(open_writer(s, plan, i, 0, &s->n_done[i], err));
    }
    return CAISSON_OK;
}

/* From the last to the first: what the later ones still need is known when the disk is asked for
 * its free space. */
static caisson_status open_writers(csn_cmf_set *s, const csn_cmf_plan *plan, caisson_error *err) {
    uint64_t left_bytes = 0, bytes;
    bool has_later = false; /* tensors on the disk in files behind */
    CSN_TRY(CSN_ARENA_NEW(&s->arena, s->n_files, &s->writers, err));
    CSN_TRY(CSN_ARENA_NEW(&s->arena, s->n_files, &s->n_done, err));
    for (uint32_t i = s->n_files; i-- > 0;) {
        CSN_TRY(open_writer(s, plan, i, left_bytes, &s->n_done[i], err));
        if (has_later && s->n_done[i] < s->first[i + 1] - s->first[i]) {
            CSN_TRY(open_anew(s, plan, i + 1, err));
            has_later = false;
        }
        has_later |= s->n_done[i] > 0;
        for (uint32_t k = s->first[i] + s->n_done[i]; k < s->first[i + 1]; k++) {
            CSN_TRY(tensor_bytes(&plan->tensors[k], &bytes, err));
            left_bytes = bytes > UINT64_MAX - left_bytes ? UINT64_MAX : left_bytes + bytes;
        }
    }
    return CAISSON_OK;
}

static caisson_status start(csn_cmf_set *s, const char *path, const csn_cmf_plan *plan,
                            uint64_t max_bytes, caisson_error *err) {
    CSN_TRY(cut(s, plan, max_bytes, err));
    CSN_TRY(name_files(s, path, err));
    CSN_TRY(name_set(s, plan, err));
    return open_writers(s, plan, err);
}

caisson_status csn_cmf_set_new(csn_fs *fs, const char *path, const csn_cmf_plan *plan,
                               uint64_t max_bytes, csn_cmf_set **ret, uint32_t *ret_n_done,
                               caisson_error *err) {
    csn_cmf_set *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    s->fs = fs;
    caisson_status status = start(s, path, plan, max_bytes, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        for (uint32_t i = 0; s->n_done != NULL && i < s->n_files; i++) { /* keep what may resume */
            csn_cmf_writer_close(s->writers[i], s->n_done[i] == 0);
            s->writers[i] = NULL;
        }
        csn_cmf_set_close(s, false);
        return status;
    }
    *ret_n_done = 0;
    for (uint32_t i = 0; i < s->n_files; i++) {
        *ret_n_done += s->n_done[i];
    }
    *ret = s;
    return CAISSON_OK;
}

uint32_t csn_cmf_set_n_files(const csn_cmf_set *s) {
    return s->n_files;
}

/* Whether file i got its name from a run of this conversion that was stopped between two renames:
 * the first file is still a part, all of it on the disk, and i is of the same set. */
static caisson_status is_own(const csn_cmf_set *s, uint32_t i, bool *ret, caisson_error *err) {
    csn_cmf *c;
    csn_str id = {0};
    *ret = false;
    if (i == 0 || s->n_done[0] < s->first[1] || s->fs->ops->exists(s->fs, s->paths[0])) {
        return CAISSON_OK;
    }
    caisson_error why;
    caisson_status status = csn_cmf_open(s->fs, s->paths[i], &c, &why);
    if (status == CAISSON_E_NOMEM) {
        *err = why;
        return status;
    }
    if (status == CAISSON_OK) { /* what does not open is somebody else's */
        (void)csn_jval_str(csn_jval_get(c->header, CSN_CMF_SHARD_SET), &id);
        *ret = csn_str_eq(id, csn_str_from(s->id));
        csn_cmf_close(c);
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_set_check_absent(const csn_cmf_set *s, caisson_error *err) {
    for (uint32_t i = 0; i < s->n_files; i++) {
        bool may_go = true;
        if (s->fs->ops->exists(s->fs, s->paths[i])) {
            CSN_TRY(is_own(s, i, &may_go, err));
        }
        if (!may_go) {
            return CSN_FAIL(err, CAISSON_E_EXISTS, .file = s->paths[i],
                            .what = "target exists; say that it may be replaced");
        }
    }
    return CAISSON_OK;
}

/* ---- filling ---- */

/* The file that wants the next tensor: the first that is not full, or the last. */
static uint32_t current(csn_cmf_set *s) {
    while (s->i_file + 1 < s->n_files &&
           s->n_done[s->i_file] == s->first[s->i_file + 1] - s->first[s->i_file]) {
        s->i_file++;
    }
    return s->i_file;
}

caisson_status csn_cmf_set_tensor(csn_cmf_set *s, const void *bytes, uint64_t nbytes,
                                  caisson_error *err) {
    uint32_t i = current(s);
    CSN_TRY(csn_cmf_writer_tensor(s->writers[i], bytes, nbytes, err));
    s->n_done[i]++;
    return CAISSON_OK;
}

caisson_status csn_cmf_set_keep_f32(csn_cmf_set *s, caisson_error *err) {
    return csn_cmf_writer_keep_f32(s->writers[current(s)], err);
}

const csn_dtype *csn_cmf_set_dtype(const csn_cmf_set *s, uint32_t i) {
    uint32_t k = 0;
    while (i >= s->first[k + 1]) {
        k++;
    }
    return csn_cmf_writer_dtype(s->writers[k], i - s->first[k]);
}

/* ---- finishing ---- */

/* The header of shard i: what belongs to the model as a whole is in the first alone. */
static caisson_status shard_header(const csn_cmf_set *s, const csn_jval *header, uint32_t i,
                                   csn_buf *ret, caisson_error *err) {
    char place[64], id[SET_BYTES + 2];
    int n_place = snprintf(place, sizeof(place), "{\"no\":%u,\"count\":%u}", i + 1, s->n_files);
    int n_id = snprintf(id, sizeof(id), "\"%s\"", s->id);
    csn_cmf_header_edit edits[4] = {
        {"shard", csn_str_make(place, (size_t)n_place)},
        {CSN_CMF_SHARD_SET, csn_str_make(id, (size_t)n_id)},
    };
    size_t n = 2;
    if (i > 0 && csn_jval_get(header, "tokenizer_config") != NULL) {
        edits[n++] = (csn_cmf_header_edit){"tokenizer_config", CSN_STR("null")};
    }
    if (i > 0 && csn_jval_get(header, "skills") != NULL) {
        edits[n++] = (csn_cmf_header_edit){"skills", CSN_STR("[]")};
    }
    csn_jw w = csn_jw_begin(ret, err);
    csn_cmf_header_edit_json(header, edits, n, &w);
    return csn_jw_end(&w);
}

static caisson_status seal_shards(csn_cmf_set *s, csn_str header_json, csn_str masks, csn_str vocab,
                                  caisson_error *err) {
    csn_json *doc;
    csn_buf text = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    CSN_TRY(csn_json_parse(header_json, 0, &doc, err));
    caisson_status status = CAISSON_OK;
    for (uint32_t i = 0; i < s->n_files && status == CAISSON_OK; i++) {
        text.len = 0;
        status = shard_header(s, csn_json_root(doc), i, &text, err);
        if (status == CAISSON_OK) {
            status = csn_cmf_writer_seal(s->writers[i], csn_buf_view(&text),
                                         i == 0 ? masks : (csn_str){0},
                                         i == 0 ? vocab : (csn_str){0}, err);
        }
    }
    csn_buf_free(&text);
    csn_json_free(doc);
    return status;
}

caisson_status csn_cmf_set_finish(csn_cmf_set *s, csn_str header_json, csn_str masks, csn_str vocab,
                                  caisson_error *err) {
    CSN_TRY(s->n_files == 1 ? csn_cmf_writer_seal(s->writers[0], header_json, masks, vocab, err)
                            : seal_shards(s, header_json, masks, vocab, err));
    for (uint32_t i = s->n_files; i-- > 0;) {
        CSN_TRY(csn_cmf_writer_rename(s->writers[i], err));
    }
    return CAISSON_OK;
}

void csn_cmf_set_close(csn_cmf_set *s, bool discard) {
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; s->writers != NULL && i < s->n_files; i++) {
        csn_cmf_writer_close(s->writers[i], discard);
    }
    csn_arena_done(&s->arena);
    csn_free(s);
}
