/* SPDX-License-Identifier: Apache-2.0 */
/* A file is hashed through the descriptor that its reader then uses, so nobody can put another file
 * in its place in between. What is left: writing into that same file. Its inode, size and times are
 * compared afterwards, which finds everybody who does not hide it (docs/cmf.md, "Signatures"). */
#include "format/signature.h"

#include "base/alloc.h"
#include "base/hex.h"
#include "base/json_fields.h"

enum { MAX_SIG_FILE = 1 << 16, MAX_KEY_FILE = 1 << 12, READ = 256 << 10 };

#define ALG "ed25519-sha256"

struct fields {
    csn_str alg, pubkey, sha256, sig;
};
static const csn_jfield signature_fields[] = {
    CSN_JFIELD(struct fields, alg, "alg", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(struct fields, pubkey, "pubkey", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(struct fields, sha256, "sha256", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(struct fields, sig, "sig", CSN_JT_STR, CSN_JF_REQUIRED),
};

static caisson_status unhex(csn_str text, const char *key, uint8_t *ret, size_t n,
                            caisson_error *err) {
    if (csn_hex_decode(text, ret, n)) {
        return CAISSON_OK;
    }
    if (text.len != 2 * n) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = csn_str_from(key),
                        .what = "not as many hex digits as it must have",
                        CSN_VALUES(2 * n, text.len));
    }
    return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = csn_str_from(key), .what = "not hexadecimal",
                    .got = text);
}

static caisson_status parse(csn_str json, csn_json **doc, csn_signature *ret, caisson_error *err) {
    struct fields f = {{0}, {0}, {0}, {0}};
    csn_signature s;
    CSN_TRY(csn_json_parse(json, CSN_JSON_UNIQUE, doc, err));
    CSN_TRY(csn_jfields_read(csn_json_root(*doc), signature_fields, CSN_N_FIELDS(signature_fields),
                             "", &f, NULL, err));
    if (!csn_str_is(f.alg, ALG)) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = CSN_STR("alg"),
                        .what = "a kind of signature that we do not know",
                        CSN_TEXTS(CSN_STR(ALG), f.alg));
    }
    CSN_TRY(unhex(f.pubkey, "pubkey", s.key, sizeof(s.key), err));
    CSN_TRY(unhex(f.sha256, "sha256", s.sha256, sizeof(s.sha256), err));
    CSN_TRY(unhex(f.sig, "sig", s.sig, sizeof(s.sig), err));
    *ret = s;
    return CAISSON_OK;
}

caisson_status csn_signature_parse(csn_str json, csn_signature *ret, caisson_error *err) {
    csn_json *doc = NULL;
    caisson_status status = parse(json, &doc, ret, err);
    csn_json_free(doc);
    if (status != CAISSON_OK) {
        csn_error_section(err, "signature");
    }
    return status;
}

static void put_hex(csn_jw *w, const char *key, const uint8_t *bytes, size_t n) {
    char text[2 * CSN_ED25519_SIG_BYTES + 1];
    csn_hex_encode(bytes, n, text);
    csn_jw_put_str(w, key, csn_str_from(text));
}

caisson_status csn_signature_write(const csn_signature *s, csn_buf *out, caisson_error *err) {
    csn_jw w = csn_jw_begin(out, err);
    w.pretty = true;
    csn_jw_object(&w);
    csn_jw_put_str(&w, "alg", CSN_STR(ALG));
    put_hex(&w, "pubkey", s->key, sizeof(s->key));
    put_hex(&w, "sha256", s->sha256, sizeof(s->sha256));
    put_hex(&w, "sig", s->sig, sizeof(s->sig));
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}

/* ---- the file ---- */

static caisson_status hash_file(csn_file *f, uint64_t size, csn_sha256 *s, uint8_t *buffer,
                                const csn_progress *progress, caisson_error *err) {
    for (uint64_t at = 0; at < size; at += READ) {
        size_t n = size - at < READ ? (size_t)(size - at) : READ;
        CSN_TRY(csn_file_read_at(f, at, buffer, n, err));
        CSN_TRY(csn_sha256_add(s, buffer, n, err));
        CSN_TRY(csn_progress_tell(progress, "signature", at + n, size, err));
    }
    return CAISSON_OK;
}

caisson_status csn_file_is_still(csn_file *f, const csn_file_stamp *stamp, caisson_error *err) {
    csn_file_stamp now;
    CSN_TRY(f->ops->stamp(f, &now, err));
    if (now.device == stamp->device && now.inode == stamp->inode && now.size == stamp->size &&
        now.modified_ns == stamp->modified_ns && now.changed_ns == stamp->changed_ns) {
        return CAISSON_OK;
    }
    return CSN_FAIL(err, CAISSON_E_SIGNATURE, .file = f->path, .section = "signature",
                    .what = "the file changed while its signature was checked");
}

caisson_status csn_file_sha256(csn_file *f, const csn_progress *progress,
                               uint8_t ret[CSN_SHA256_BYTES], csn_file_stamp *ret_stamp,
                               caisson_error *err) {
    void *buffer = NULL;
    csn_sha256 *s = NULL;
    CSN_TRY(f->ops->stamp(f, ret_stamp, err));
    CSN_TRY(csn_alloc_aligned(READ, &buffer, err));
    caisson_status status = csn_sha256_new(&s, err);
    if (status == CAISSON_OK) {
        status = hash_file(f, ret_stamp->size, s, buffer, progress, err);
    }
    if (status == CAISSON_OK) {
        status = csn_sha256_end(s, ret, err);
    }
    if (status == CAISSON_OK) {
        status = csn_file_is_still(f, ret_stamp, err);
    }
    csn_sha256_free(s);
    csn_free_aligned(buffer);
    return status;
}

static caisson_status sig_path(const char *path, csn_buf *ret, caisson_error *err) {
    *ret = CSN_BUF_INIT(1 << 16);
    return csn_buf_printf(ret, err, "%s.sig", path);
}

caisson_status csn_signature_exists(csn_fs *fs, const char *path, bool *ret, caisson_error *err) {
    csn_buf name;
    caisson_status status = sig_path(path, &name, err);
    *ret = status == CAISSON_OK && fs->ops->exists(fs, name.ptr);
    csn_buf_free(&name);
    return status;
}

static caisson_status fail(const char *path, const char *what, const uint8_t *want,
                           const uint8_t *got, caisson_error *err) {
    char texts[2][2 * 32 + 1] = {"", ""};
    if (want != NULL) {
        csn_hex_encode(want, 32, texts[0]);
        csn_hex_encode(got, 32, texts[1]);
    }
    return CSN_FAIL(err, CAISSON_E_SIGNATURE, .file = path, .section = "signature", .what = what,
                    CSN_TEXTS(csn_str_from(texts[0]), csn_str_from(texts[1])));
}

static caisson_status read_signature(csn_fs *fs, const char *path, csn_signature *ret,
                                     caisson_error *err) {
    csn_buf name;
    csn_buf text = {0};
    caisson_status status = sig_path(path, &name, err);
    if (status == CAISSON_OK && !fs->ops->exists(fs, name.ptr)) {
        status =
            fail(path, "no signature lies beside the file (its name and .sig)", NULL, NULL, err);
    }
    if (status == CAISSON_OK) {
        status = csn_fs_read_all(fs, name.ptr, MAX_SIG_FILE, &text, err);
    }
    if (status == CAISSON_OK) {
        status = csn_signature_parse(csn_buf_view(&text), ret, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, name.ptr != NULL ? name.ptr : path);
        csn_error_section(err, "signature");
    }
    csn_buf_free(&text);
    csn_buf_free(&name);
    return status;
}

caisson_status csn_signature_check(csn_fs *fs, const char *path, csn_file *f,
                                   const uint8_t *want_key, const csn_progress *progress,
                                   uint8_t ret_key[CSN_ED25519_KEY_BYTES],
                                   csn_file_stamp *ret_stamp, caisson_error *err) {
    csn_signature s;
    csn_file_stamp stamp;
    uint8_t sha256[CSN_SHA256_BYTES];
    bool is_valid;
    CSN_TRY(read_signature(fs, path, &s, err));
    if (want_key != NULL && memcmp(want_key, s.key, sizeof(s.key)) != 0) {
        return fail(path, "signed with another key", want_key, s.key, err);
    }
    CSN_TRY(csn_ed25519_verify(s.key, s.sha256, sizeof(s.sha256), s.sig, &is_valid, err));
    if (!is_valid) { /* told before gigabytes are hashed */
        return fail(path, "the signature was not made with its key for its SHA-256", NULL, NULL,
                    err);
    }
    CSN_TRY(csn_file_sha256(f, progress, sha256, &stamp, err));
    if (memcmp(sha256, s.sha256, sizeof(sha256)) != 0) {
        return fail(path, "the file is not the one that was signed", s.sha256, sha256, err);
    }
    memcpy(ret_key, s.key, sizeof(s.key));
    *ret_stamp = stamp;
    return CAISSON_OK;
}

/* ---- keys ---- */

caisson_status csn_key_read(csn_fs *fs, const char *path, uint8_t ret[CSN_ED25519_KEY_BYTES],
                            caisson_error *err) {
    csn_buf text = {0};
    CSN_TRY(csn_fs_read_all(fs, path, MAX_KEY_FILE, &text, err));
    csn_str s = csn_buf_view(&text);
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[s.len - 1]) != NULL) {
        s.len--;
    }
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[0]) != NULL) {
        s.ptr++;
        s.len--;
    }
    bool ok = csn_hex_decode(s, ret, CSN_ED25519_KEY_BYTES);
    size_t n = s.len;
    if (text.ptr != NULL) {
        csn_wipe(text.ptr, text.len);
    }
    csn_buf_free(&text);
    if (!ok) { /* its content is not told: it may be a secret */
        return CSN_FAIL(err, CAISSON_E_PARSE, .file = path,
                        .what = "not a key: a key file holds 64 hex digits", CSN_VALUES(64, n));
    }
    return CAISSON_OK;
}

static caisson_status write_key(csn_fs *fs, const char *path, csn_open_mode mode,
                                const uint8_t key[CSN_ED25519_KEY_BYTES], caisson_error *err) {
    char text[2 * CSN_ED25519_KEY_BYTES + 2];
    csn_file *f = NULL;
    caisson_error ignored;
    csn_hex_encode(key, CSN_ED25519_KEY_BYTES, text);
    text[2 * CSN_ED25519_KEY_BYTES] = '\n';
    caisson_status status = csn_fs_open(fs, path, mode, &f, err);
    if (status == CAISSON_OK) {
        status = csn_file_write_at(f, 0, text, 2 * CSN_ED25519_KEY_BYTES + 1, err);
        if (status == CAISSON_OK) {
            status = f->ops->sync(f, err);
        }
        csn_file_close(f);
        if (status != CAISSON_OK) {
            (void)fs->ops->remove(fs, path, &ignored);
        }
    }
    csn_wipe(text, sizeof(text));
    return status;
}

caisson_status csn_key_make(csn_fs *fs, const char *path, uint8_t ret_public[CSN_ED25519_KEY_BYTES],
                            caisson_error *err) {
    uint8_t seed[CSN_ED25519_KEY_BYTES];
    csn_buf name = CSN_BUF_INIT(1 << 16);
    caisson_error ignored;
    CSN_TRY(csn_buf_printf(&name, err, "%s.pub", path));
    caisson_status status = CAISSON_OK;
    if (fs->ops->exists(fs, path) || fs->ops->exists(fs, name.ptr)) {
        status =
            CSN_FAIL(err, CAISSON_E_EXISTS, .file = fs->ops->exists(fs, path) ? path : name.ptr,
                     .what = "a key is there already; it is never replaced");
    }
    if (status == CAISSON_OK) {
        status = csn_ed25519_new_seed(seed, err);
    }
    if (status == CAISSON_OK) {
        status = csn_ed25519_public_key(seed, ret_public, err);
    }
    if (status == CAISSON_OK) {
        status = write_key(fs, path, CSN_OPEN_CREATE_PRIVATE, seed, err);
        if (status == CAISSON_OK) {
            status = write_key(fs, name.ptr, CSN_OPEN_CREATE_NEW, ret_public, err);
            if (status != CAISSON_OK) {
                (void)fs->ops->remove(fs, path, &ignored);
            }
        }
    }
    csn_wipe(seed, sizeof(seed));
    csn_buf_free(&name);
    return status;
}
