/* SPDX-License-Identifier: Apache-2.0 */
/* The format has no checksum for trunk, codebooks and manifest. We put a file of digests beside
 * them, which others pass over: XXH3-128 in pieces (base/digest.h) of each tensor, payload and
 * scales without a gap, and of each file that is read whole.
 *
 *   {"caisson_digests": 1, "files": {"manifest.json": 32 hex digits, ...},
 *    "trunk": {"model.norm.weight": 32 hex digits, ...}}          (names as CMF has them) */
#include "format/warp/digests.h"

#include "base/alloc.h"
#include "base/hex.h"
#include "caisson/limits.h"

enum { VERSION = 1 };

const char *const csn_warp_digest_files[CSN_WARP_N_DIGEST_FILES] = {
    "manifest.json",  "codebooks.bin", "tokenizer.json", "tokenizer.model",
    "tiktoken.model", "specials.json", "chat.json",      "chat_template.jinja"};

caisson_status csn_warp_digest_source_file(csn_warp *w, const char *name, csn_warp_source *ret,
                                           caisson_error *err) {
    const char *path;
    *ret = (csn_warp_source){0};
    CSN_TRY(csn_warp_path(w, csn_str_from(name), &path, err));
    CSN_TRY(csn_fs_open(w->fs, path, CSN_OPEN_READ, &ret->file, err));
    caisson_status status = csn_file_size(ret->file, &ret->nbytes[0], err);
    if (status != CAISSON_OK) {
        csn_file_close(ret->file);
        ret->file = NULL;
    }
    return status;
}

csn_warp_source csn_warp_digest_source_tensor(const csn_warp *w, uint32_t i) {
    const csn_tensor *t = &w->dir.tensors[i];
    uint64_t scales = csn_warp_scale_nbytes(t);
    return (csn_warp_source){.file = w->trunk,
                             .offset = {t->offset, w->scale_off[i]},
                             .nbytes = {t->nbytes - scales, scales}};
}

/* n bytes from `at` on, as if the two parts followed one another. */
static caisson_status read_source(const csn_warp_source *s, uint64_t at, uint8_t *out, size_t n,
                                  caisson_error *err) {
    size_t head = 0;
    if (at < s->nbytes[0]) {
        head = s->nbytes[0] - at < n ? (size_t)(s->nbytes[0] - at) : n;
        CSN_TRY(csn_file_read_at(s->file, s->offset[0] + at, out, head, err));
    }
    if (head < n) {
        uint64_t from = s->offset[1] + (at + head - s->nbytes[0]);
        CSN_TRY(csn_file_read_at(s->file, from, out + head, n - head, err));
    }
    return CAISSON_OK;
}

caisson_status csn_warp_digest(const csn_warp_source *s, uint8_t *buffer,
                               uint8_t ret[CSN_DIGEST_BYTES], caisson_error *err) {
    uint64_t nbytes = s->nbytes[0] + s->nbytes[1];
    size_t n_pieces = csn_digest_n_pieces(nbytes);
    uint8_t *pieces;
    CSN_TRY(CSN_NEW((n_pieces + 1) * CSN_DIGEST_BYTES, &pieces, err));
    csn_digest_piece("", 0, pieces);
    caisson_status status = CAISSON_OK;
    for (size_t i = 0; i < n_pieces && status == CAISSON_OK; i++) {
        uint64_t at = (uint64_t)i * CSN_DIGEST_PIECE;
        size_t n = nbytes - at < CSN_DIGEST_PIECE ? (size_t)(nbytes - at) : CSN_DIGEST_PIECE;
        status = read_source(s, at, buffer, n, err);
        csn_digest_piece(buffer, n, pieces + i * CSN_DIGEST_BYTES);
    }
    if (status == CAISSON_OK) {
        csn_digest_join(pieces, n_pieces > 0 ? n_pieces : 1, ret);
    }
    csn_free(pieces);
    return status;
}

caisson_status csn_warp_compare_digest(const csn_warp_source *s, const char *section,
                                       csn_str tensor, const uint8_t want[CSN_DIGEST_BYTES],
                                       const uint8_t got[CSN_DIGEST_BYTES], caisson_error *err) {
    char texts[2][2 * CSN_DIGEST_BYTES + 1];
    if (memcmp(got, want, CSN_DIGEST_BYTES) == 0) {
        return CAISSON_OK;
    }
    csn_hex_encode(want, CSN_DIGEST_BYTES, texts[0]);
    csn_hex_encode(got, CSN_DIGEST_BYTES, texts[1]);
    return CSN_FAIL(err, CAISSON_E_HASH, .file = s->file->path, .section = section,
                    .tensor = tensor, CSN_RANGE(s->offset[0], s->nbytes[0]),
                    .what = "bytes do not have the stored digest",
                    CSN_TEXTS(csn_str_from(texts[0]), csn_str_from(texts[1])));
}

/* ---- writing ---- */

typedef struct maker {
    csn_warp *w;
    const csn_progress *progress;
    uint64_t done, total;
    uint8_t *buffer; /* [CSN_DIGEST_PIECE] */
    csn_jw jw;
    caisson_error *err;
} maker;

static caisson_status put_digest(maker *m, csn_str name, const csn_warp_source *s) {
    uint8_t digest[CSN_DIGEST_BYTES];
    char hex[2 * CSN_DIGEST_BYTES + 1];
    CSN_TRY(csn_warp_digest(s, m->buffer, digest, m->err));
    csn_hex_encode(digest, CSN_DIGEST_BYTES, hex);
    csn_jw_key(&m->jw, name);
    csn_jw_str(&m->jw, csn_str_from(hex));
    m->done += s->nbytes[0] + s->nbytes[1];
    return csn_progress_tell(m->progress, "digests", m->done, m->total, m->err);
}

static caisson_status put_files(maker *m) {
    csn_jw_key(&m->jw, CSN_STR("files"));
    csn_jw_object(&m->jw);
    for (int i = 0; i < CSN_WARP_N_DIGEST_FILES; i++) {
        const char *path;
        csn_warp_source s;
        CSN_TRY(csn_warp_path(m->w, csn_str_from(csn_warp_digest_files[i]), &path, m->err));
        if (!m->w->fs->ops->exists(m->w->fs, path)) {
            continue;
        }
        CSN_TRY(csn_warp_digest_source_file(m->w, csn_warp_digest_files[i], &s, m->err));
        m->total += s.nbytes[0];
        caisson_status status = put_digest(m, csn_str_from(csn_warp_digest_files[i]), &s);
        csn_file_close(s.file);
        CSN_TRY(status);
    }
    csn_jw_object_end(&m->jw);
    return CAISSON_OK;
}

static caisson_status put_trunk(maker *m) {
    csn_jw_key(&m->jw, CSN_STR("trunk"));
    csn_jw_object(&m->jw);
    for (uint32_t i = 0; i < m->w->dir.n; i++) {
        csn_warp_source s = csn_warp_digest_source_tensor(m->w, i);
        CSN_TRY(put_digest(m, m->w->dir.tensors[i].name, &s));
    }
    csn_jw_object_end(&m->jw);
    return CAISSON_OK;
}

static caisson_status make(maker *m, csn_buf *out) {
    m->jw = csn_jw_begin(out, m->err);
    m->jw.pretty = true;
    csn_jw_object(&m->jw);
    csn_jw_put_u64(&m->jw, "caisson_digests", VERSION);
    CSN_TRY(put_files(m));
    CSN_TRY(put_trunk(m));
    csn_jw_object_end(&m->jw);
    return csn_jw_end(&m->jw);
}

caisson_status csn_warp_write_digests(csn_warp *w, const csn_progress *progress,
                                      caisson_error *err) {
    maker m = {.w = w, .progress = progress, .err = err};
    csn_buf out = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    const char *path;
    for (uint32_t i = 0; i < w->dir.n; i++) {
        m.total += w->dir.tensors[i].nbytes;
    }
    CSN_TRY(csn_warp_path(w, CSN_STR(CSN_WARP_DIGESTS), &path, err));
    CSN_TRY(csn_alloc_aligned(CSN_DIGEST_PIECE, (void **)&m.buffer, err));
    caisson_status status = make(&m, &out);
    if (status == CAISSON_OK) {
        status = csn_fs_write_all(w->fs, path, csn_buf_view(&out), err);
    }
    csn_free_aligned(m.buffer);
    csn_buf_free(&out);
    return status;
}

/* ---- reading ---- */

static caisson_status fail(const char *path, csn_str at, const char *what, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .file = path, .section = "digests", .tensor = at,
                    .what = what);
}

static caisson_status decode(const char *path, csn_str name, const csn_jval *v,
                             uint8_t ret[CSN_DIGEST_BYTES], caisson_error *err) {
    csn_str hex;
    if (!csn_jval_str(v, &hex) || hex.len != 2 * CSN_DIGEST_BYTES ||
        !csn_hex_decode(hex, ret, CSN_DIGEST_BYTES)) {
        return fail(path, name, "digest is not 32 hexadecimal digits", err);
    }
    return CAISSON_OK;
}

static caisson_status read_files(csn_warp_digests *d, const csn_jval *object, const char *path,
                                 caisson_error *err) {
    for (csn_jiter it = csn_jval_iter(object); csn_jiter_next(&it);) {
        int i = 0;
        while (i < CSN_WARP_N_DIGEST_FILES && !csn_str_is(it.key, csn_warp_digest_files[i])) {
            i++;
        }
        if (i == CSN_WARP_N_DIGEST_FILES) {
            return fail(path, it.key, "digest of a file that is no part of a model", err);
        }
        CSN_TRY(decode(path, it.key, it.value, d->files[i], err));
        d->has_file[i] = true;
    }
    return CAISSON_OK;
}

static caisson_status read_trunk(const csn_warp *w, csn_warp_digests *d, const csn_jval *object,
                                 const char *path, caisson_error *err) {
    CSN_TRY(CSN_NEW((size_t)w->dir.n, &d->has_tensor, err));
    CSN_TRY(CSN_NEW((size_t)w->dir.n * CSN_DIGEST_BYTES, &d->tensors, err));
    for (csn_jiter it = csn_jval_iter(object); csn_jiter_next(&it);) {
        const csn_tensor *t = csn_directory_find(&w->dir, it.key);
        if (t == NULL) {
            return fail(path, it.key, "digest of a tensor that the trunk does not have", err);
        }
        size_t i = (size_t)(t - w->dir.tensors);
        CSN_TRY(decode(path, it.key, it.value, d->tensors + i * CSN_DIGEST_BYTES, err));
        d->has_tensor[i] = true;
    }
    for (uint32_t i = 0; i < w->dir.n; i++) {
        if (!d->has_tensor[i]) {
            return fail(path, w->dir.tensors[i].name, "a tensor without a digest", err);
        }
    }
    return CAISSON_OK;
}

caisson_status csn_warp_read_digests(csn_warp *w, csn_warp_digests *ret, caisson_error *err) {
    const char *path;
    csn_buf text = {0};
    csn_json *doc;
    csn_warp_digests d = {0};
    *ret = d;
    CSN_TRY(csn_warp_path(w, CSN_STR(CSN_WARP_DIGESTS), &path, err));
    if (!w->fs->ops->exists(w->fs, path)) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_fs_read_all(w->fs, path, CAISSON_MAX_HEADER_BYTES, &text, err));
    caisson_status status = csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, &doc, err);
    csn_buf_free(&text);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        return status;
    }
    const csn_jval *root = csn_json_root(doc);
    uint64_t version = 0;
    if (!csn_jval_u64(csn_jval_get(root, "caisson_digests"), &version) || version != VERSION) {
        status = CSN_FAIL(err, CAISSON_E_VERSION, .file = path, .section = "digests",
                          .what = "a version that is not read", CSN_VALUES(VERSION, version));
    }
    if (status == CAISSON_OK) {
        status = read_files(&d, csn_jval_get(root, "files"), path, err);
    }
    if (status == CAISSON_OK) {
        status = read_trunk(w, &d, csn_jval_get(root, "trunk"), path, err);
    }
    csn_json_free(doc);
    d.present = true;
    if (status != CAISSON_OK) {
        csn_warp_digests_free(&d);
        return status;
    }
    *ret = d;
    return CAISSON_OK;
}

void csn_warp_digests_free(csn_warp_digests *d) {
    csn_free(d->has_tensor);
    csn_free(d->tensors);
    *d = (csn_warp_digests){0};
}

/* ---- while a model is open ---- */

static caisson_status check_files(csn_warp *w, uint8_t *buffer, caisson_error *err) {
    for (int i = 0; i < CSN_WARP_N_DIGEST_FILES; i++) {
        csn_warp_source s;
        uint8_t got[CSN_DIGEST_BYTES];
        if (!w->digests->has_file[i]) {
            continue;
        }
        CSN_TRY(csn_warp_digest_source_file(w, csn_warp_digest_files[i], &s, err));
        caisson_status status = csn_warp_digest(&s, buffer, got, err);
        if (status == CAISSON_OK) {
            status =
                csn_warp_compare_digest(&s, "files", (csn_str){0}, w->digests->files[i], got, err);
        }
        csn_file_close(s.file);
        CSN_TRY(status);
    }
    return CAISSON_OK;
}

caisson_status csn_warp_use_digests(csn_warp *w, caisson_error *err) {
    csn_warp_digests d;
    uint8_t *buffer;
    if (w->digests != NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_warp_read_digests(w, &d, err));
    if (!d.present) {
        return CAISSON_OK;
    }
    caisson_status status = CSN_NEW(1, &w->digests, err);
    if (status != CAISSON_OK) {
        csn_warp_digests_free(&d);
        return status;
    }
    *w->digests = d; /* from here on csn_warp_close frees it */
    CSN_TRY(csn_alloc_aligned(CSN_DIGEST_PIECE, (void **)&buffer, err));
    status = check_files(w, buffer, err);
    csn_free_aligned(buffer);
    return status;
}

static caisson_status compare_tensor(const csn_warp *w, uint32_t i, const csn_warp_source *s,
                                     const uint8_t got[CSN_DIGEST_BYTES], caisson_error *err) {
    return csn_warp_compare_digest(s, "trunk", w->dir.tensors[i].name,
                                   w->digests->tensors + (size_t)i * CSN_DIGEST_BYTES, got, err);
}

caisson_status csn_warp_check_tensor(const csn_warp *w, uint32_t i, const void *bytes,
                                     caisson_error *err) {
    uint8_t got[CSN_DIGEST_BYTES];
    csn_warp_source s = csn_warp_digest_source_tensor(w, i);
    csn_digest(bytes, (size_t)w->dir.tensors[i].nbytes, got);
    return compare_tensor(w, i, &s, got, err);
}

caisson_status csn_warp_check_in_file(const csn_warp *w, uint32_t i, caisson_error *err) {
    uint8_t got[CSN_DIGEST_BYTES];
    uint8_t *buffer;
    csn_warp_source s = csn_warp_digest_source_tensor(w, i);
    CSN_TRY(csn_alloc_aligned(CSN_DIGEST_PIECE, (void **)&buffer, err));
    caisson_status status = csn_warp_digest(&s, buffer, got, err);
    if (status == CAISSON_OK) {
        status = compare_tensor(w, i, &s, got, err);
    } else {
        csn_error_tensor(err, w->dir.tensors[i].name);
    }
    csn_free_aligned(buffer);
    return status;
}
