/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and signatures, and opening a file only if it is signed. */
#include "caisson/sign.h"

#include "api_internal.h"
#include "base/alloc.h"
#include "base/hex.h"
#include "format/signature.h"

caisson_status csn_api_key(const char *hex, uint8_t ret[CSN_ED25519_KEY_BYTES],
                           caisson_error *err) {
    if (!csn_hex_decode(csn_str_from(hex), ret, CSN_ED25519_KEY_BYTES)) {
        return csn_api_bad_arg(err, "require_signature is not a public key: 64 hex digits");
    }
    return CAISSON_OK;
}

caisson_public_key csn_api_key_hex(const uint8_t key[CSN_ED25519_KEY_BYTES]) {
    caisson_public_key k;
    csn_hex_encode(key, CSN_ED25519_KEY_BYTES, k.hex);
    return k;
}

struct checking {
    const caisson_open_options *o;
    csn_api_signed *files;
};

static caisson_status check(void *ctx, csn_file *f, caisson_error *err) {
    const struct checking *c = ctx;
    uint8_t want[CSN_ED25519_KEY_BYTES];
    uint8_t got[CSN_ED25519_KEY_BYTES];
    csn_progress progress = {c->o->on_progress, c->o->progress_ctx};
    csn_api_signed *s = c->files;
    CSN_TRY(csn_api_key(c->o->require_signature, want, err));
    CSN_TRY(CSN_GROW(&s->files, s->n + 1, err));
    s->files[s->n].file = f;
    CSN_TRY(csn_signature_check(csn_fs_os(), f->path, f, want, &progress, got,
                                &s->files[s->n].stamp, err));
    s->n++;
    return CAISSON_OK;
}

caisson_status csn_api_open_cmf(const char *path, const caisson_open_options *o, csn_cmf **ret,
                                csn_api_signed *files, caisson_error *err) {
    struct checking c = {o, files};
    return csn_cmf_open_model(csn_fs_os(), path, o->require_signature != NULL ? check : NULL, &c,
                              ret, err);
}

caisson_status csn_api_still_signed(const csn_api_signed *files, caisson_error *err) {
    for (size_t i = 0; i < files->n; i++) {
        CSN_TRY(csn_file_is_still(files->files[i].file, &files->files[i].stamp, err));
    }
    return CAISSON_OK;
}

void csn_api_signed_done(csn_api_signed *files) {
    csn_free(files->files);
}

caisson_status caisson_keygen(const char *path, caisson_public_key *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && ret != NULL, err, "path and ret must not be NULL");
    uint8_t key[CSN_ED25519_KEY_BYTES];
    caisson_status status = csn_key_make(csn_fs_os(), path, key, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        return status;
    }
    *ret = csn_api_key_hex(key);
    return CAISSON_OK;
}

static bool exists_with(const char *path, size_t n, const char *ending) {
    csn_buf other = CSN_BUF_INIT(1 << 16);
    caisson_error ignored;
    bool is_there =
        csn_buf_printf(&other, &ignored, "%.*s%s", (int)n, path, ending) == CAISSON_OK &&
        csn_fs_os()->ops->exists(csn_fs_os(), other.ptr);
    csn_buf_free(&other);
    return is_there;
}

/* Both halves of a key are 64 hex digits; the names that keygen gives them tell them apart. A
 * secret one taken for public would be shown, a public one taken for secret is known to everybody.
 */
static caisson_status check_half(const char *path, bool want_secret, caisson_error *err) {
    size_t n = strlen(path);
    bool is_secret = exists_with(path, n, ".pub");
    bool is_public = !is_secret && n > 4 && strcmp(path + n - 4, ".pub") == 0;
    if (want_secret ? is_public : is_secret) {
        return CSN_FAIL(err, CAISSON_E_ARG, .file = path,
                        .what = want_secret ? "is a public key; a secret one signs"
                                            : "is a secret key; its public one is in the file of "
                                              "the same name with .pub");
    }
    return CAISSON_OK;
}

caisson_status caisson_public_key_read(const char *path, caisson_public_key *ret,
                                       caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && ret != NULL, err, "path and ret must not be NULL");
    uint8_t key[CSN_ED25519_KEY_BYTES];
    CSN_TRY(check_half(path, false, err));
    CSN_TRY(csn_key_read(csn_fs_os(), path, key, err));
    *ret = csn_api_key_hex(key);
    return CAISSON_OK;
}

/* The .sig of f. */
static caisson_status sign_file(csn_file *f, const char *path,
                                const uint8_t seed[CSN_ED25519_KEY_BYTES],
                                const csn_progress *progress, csn_signature *s,
                                caisson_error *err) {
    csn_file_stamp stamp;
    csn_buf name = CSN_BUF_INIT(1 << 16);
    csn_buf text = CSN_BUF_INIT(1 << 12);
    CSN_TRY(csn_ed25519_public_key(seed, s->key, err));
    CSN_TRY(csn_file_sha256(f, progress, s->sha256, &stamp, err));
    CSN_TRY(csn_ed25519_sign(seed, s->sha256, sizeof(s->sha256), s->sig, err));
    caisson_status status = csn_signature_write(s, &text, err);
    if (status == CAISSON_OK) {
        status = csn_buf_printf(&name, err, "%s.sig", path);
    }
    if (status == CAISSON_OK) {
        status = csn_fs_write_all(csn_fs_os(), name.ptr, csn_buf_view(&text), err);
    }
    csn_buf_free(&text);
    csn_buf_free(&name);
    return status;
}

caisson_status caisson_sign(const char *path, const char *key_path,
                            const caisson_sign_options *options, caisson_public_key *ret,
                            caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && key_path != NULL && ret != NULL, err,
                 "path, key_path and ret must not be NULL");
    caisson_sign_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    uint8_t seed[CSN_ED25519_KEY_BYTES];
    csn_signature s;
    csn_cmf *cmf = NULL;
    CSN_TRY(check_half(key_path, true, err));
    CSN_TRY(csn_key_read(csn_fs_os(), key_path, seed, err));
    csn_progress progress = {o.on_progress, o.ctx};
    caisson_status status = csn_cmf_open(csn_fs_os(), path, &cmf, err);
    if (status == CAISSON_OK) {
        status = sign_file(cmf->file, path, seed, &progress, &s, err);
    }
    csn_cmf_close(cmf);
    csn_wipe(seed, sizeof(seed));
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        return status;
    }
    *ret = csn_api_key_hex(s.key);
    return CAISSON_OK;
}
