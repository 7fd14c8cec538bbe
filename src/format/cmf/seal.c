/* SPDX-License-Identifier: Apache-2.0 */
#include "format/cmf/seal.h"

#include "base/base64.h"
#include "base/hash64.h"

caisson_status csn_cmf_seal_section(csn_cmf_seals *s, int section, csn_str bytes, csn_arena *arena,
                                    caisson_error *err) {
    uint8_t *digest;
    char hex[20];
    s->hash[section] = (csn_str){0};
    s->digest[section] = NULL;
    if (bytes.len == 0) {
        return CAISSON_OK;
    }
    csn_hash64_hex(csn_hash64(bytes.ptr, bytes.len), hex);
    CSN_TRY(csn_arena_str(arena, csn_str_from(hex), &s->hash[section], err));
    CSN_TRY(CSN_ARENA_NEW(arena, CSN_DIGEST_BYTES, &digest, err));
    csn_digest(bytes.ptr, bytes.len, digest);
    s->digest[section] = digest;
    return CAISSON_OK;
}

/* The members of an object that is being written by hand, each behind a comma but the first. */
static caisson_status put_key(csn_buf *b, bool *is_first, const char *name, caisson_error *err) {
    CSN_TRY(csn_buf_printf(b, err, "%s\"%s\":", *is_first ? "" : ",", name));
    *is_first = false;
    return CAISSON_OK;
}

static caisson_status put_digest(csn_buf *b, const uint8_t *digest, size_t n, caisson_error *err) {
    CSN_TRY(csn_buf_char(b, '"', err));
    CSN_TRY(csn_base64_append(b, digest, n, err));
    return csn_buf_char(b, '"', err);
}

static caisson_status put_hashes(csn_buf *b, const csn_cmf_seals *s, caisson_error *err) {
    bool is_first = true;
    CSN_TRY(csn_buf_char(b, '{', err));
    for (int i = CSN_CMF_MASKS; i <= CSN_CMF_INDEX; i++) {
        if (s->hash[i].len > 0) {
            csn_jw text = csn_jw_begin(b, err); /* an older file's text may be anything */
            CSN_TRY(put_key(b, &is_first, csn_cmf_section_names[i], err));
            csn_jw_str(&text, s->hash[i]);
            CSN_TRY(csn_jw_end(&text));
        }
    }
    return csn_buf_char(b, '}', err);
}

static caisson_status put_digests(csn_buf *b, const csn_cmf_seals *s, caisson_error *err) {
    bool is_first = true;
    CSN_TRY(csn_buf_char(b, '{', err));
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        if (s->digest[i] != NULL) {
            CSN_TRY(put_key(b, &is_first, csn_cmf_section_names[i], err));
            CSN_TRY(put_digest(b, s->digest[i], CSN_DIGEST_BYTES, err));
        }
    }
    return csn_buf_char(b, '}', err);
}

caisson_status csn_cmf_seal_header(csn_str json, const csn_cmf_seals *s, csn_buf *ret,
                                   caisson_error *err) {
    bool has_hash = false, has_digest = false;
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        has_hash |= i >= CSN_CMF_MASKS && s->hash[i].len > 0;
        has_digest |= s->digest[i] != NULL;
    }
    while (json.len > 0 && strchr(" \t\r\n", json.ptr[json.len - 1]) != NULL) {
        json.len--;
    }
    if (json.len < 2 || json.ptr[json.len - 1] != '}') {
        return CSN_FAIL(err, CAISSON_E_ARG, .section = "header", .what = "not a JSON object");
    }
    CSN_TRY(csn_buf_append(ret, json.ptr, json.len - 1, err));
    bool is_first = json.len == 2;
    if (has_hash) {
        CSN_TRY(put_key(ret, &is_first, "section_hashes", err));
        CSN_TRY(put_hashes(ret, s, err));
    }
    if (s->tensor_digests != NULL) {
        CSN_TRY(put_key(ret, &is_first, CSN_CMF_TENSOR_DIGESTS, err));
        CSN_TRY(put_digest(ret, s->tensor_digests, (size_t)s->n_tensors * CSN_DIGEST_BYTES, err));
    }
    if (has_digest) {
        CSN_TRY(put_key(ret, &is_first, CSN_CMF_SECTION_DIGESTS, err));
        CSN_TRY(put_digests(ret, s, err));
    }
    return csn_buf_char(ret, '}', err);
}

/* ---- the envelope ---- */

uint32_t csn_cmf_features(const csn_cmf *c) {
    uint32_t features = CSN_CMF_TENSOR_DIR;
    for (uint32_t i = 0; i < c->dir.n; i++) {
        int id = c->dir.tensors[i].dtype->cmf_id;
        if (id == 9 || id == 8) { /* q8_2f, vbit; not vbit_ro */
            features |= CSN_CMF_QUANT_2F;
        }
    }
    if (c->envelope.len[CSN_CMF_MASKS] > 0) {
        features |= CSN_CMF_BINARY_MASKS | (c->arch.num_loops > 1 ? CSN_CMF_LOOP_MASKS : 0u);
    }
    for (uint32_t i = 0; i < c->n_skills; i++) {
        if (csn_jval_kind(csn_jval_get(c->skills[i].record, "base_dir_hash")) == CSN_JSON_STRING) {
            features |= CSN_CMF_SKILL_FILE;
        }
    }
    return features;
}

/* A file under another envelope, for as long as csn_cmf_open takes: what that does not call is not
 * there. */
typedef struct preview {
    csn_file base;
    csn_file *inner;
    uint8_t envelope[CSN_CMF_ENVELOPE_BYTES];
} preview;

static caisson_status preview_read(csn_file *f, uint64_t off, void *buf, size_t n, size_t *ret_n,
                                   caisson_error *err) {
    preview *p = (preview *)f;
    if (off >= CSN_CMF_ENVELOPE_BYTES) {
        return p->inner->ops->read(p->inner, off, buf, n, ret_n, err);
    }
    size_t left = CSN_CMF_ENVELOPE_BYTES - (size_t)off;
    *ret_n = n < left ? n : left;
    memcpy(buf, p->envelope + off, *ret_n);
    return CAISSON_OK;
}

static caisson_status preview_size(csn_file *f, uint64_t *ret, caisson_error *err) {
    return csn_file_size(((preview *)f)->inner, ret, err);
}

static void preview_hold(csn_file *f, csn_hold how) {
    (void)f;
    (void)how;
}

static void preview_close(csn_file *f) {
    (void)f;
}

caisson_status csn_cmf_seal_envelope(csn_file *f, csn_cmf_envelope *e,
                                     uint8_t ret[CSN_CMF_ENVELOPE_BYTES], caisson_error *err) {
    static const csn_file_ops ops = {
        .read = preview_read, .size = preview_size, .hold = preview_hold, .close = preview_close};
    preview p = {.base = {&ops, f->path}, .inner = f};
    csn_cmf *c;
    e->required_features = CSN_CMF_TENSOR_DIR;
    csn_cmf_envelope_bytes(e, p.envelope);
    CSN_TRY(csn_cmf_open_file(&p.base, &c, err));
    e->required_features = csn_cmf_features(c);
    csn_cmf_close(c);
    csn_cmf_envelope_bytes(e, ret);
    return CAISSON_OK;
}
