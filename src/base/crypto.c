/* SPDX-License-Identifier: Apache-2.0 */
/* libcrypto behind crypto.h. Its errors stay on a list of its own, which is emptied: what a caller
 * can do about them is the same for all. */
#include "base/crypto.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

static caisson_status refused(const char *what, caisson_error *err) {
    ERR_clear_error();
    return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .what = what, .got = CSN_STR("libcrypto refuses"));
}

caisson_status csn_sha256_new(csn_sha256 **ret, caisson_error *err) {
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (c == NULL || EVP_DigestInit_ex(c, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(c);
        return refused("SHA-256", err);
    }
    *ret = (csn_sha256 *)c;
    return CAISSON_OK;
}

caisson_status csn_sha256_add(csn_sha256 *s, const void *bytes, size_t n, caisson_error *err) {
    return EVP_DigestUpdate((EVP_MD_CTX *)s, bytes, n) == 1 ? CAISSON_OK : refused("SHA-256", err);
}

caisson_status csn_sha256_end(csn_sha256 *s, uint8_t ret[CSN_SHA256_BYTES], caisson_error *err) {
    unsigned n = 0;
    return EVP_DigestFinal_ex((EVP_MD_CTX *)s, ret, &n) == 1 && n == CSN_SHA256_BYTES
               ? CAISSON_OK
               : refused("SHA-256", err);
}

void csn_sha256_free(csn_sha256 *s) {
    EVP_MD_CTX_free((EVP_MD_CTX *)s);
}

caisson_status csn_ed25519_new_seed(uint8_t ret[CSN_ED25519_KEY_BYTES], caisson_error *err) {
    return RAND_priv_bytes(ret, CSN_ED25519_KEY_BYTES) == 1 ? CAISSON_OK
                                                            : refused("random bytes", err);
}

static EVP_PKEY *secret_key(const uint8_t seed[CSN_ED25519_KEY_BYTES]) {
    return EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, CSN_ED25519_KEY_BYTES);
}

caisson_status csn_ed25519_public_key(const uint8_t seed[CSN_ED25519_KEY_BYTES],
                                      uint8_t ret[CSN_ED25519_KEY_BYTES], caisson_error *err) {
    size_t n = CSN_ED25519_KEY_BYTES;
    EVP_PKEY *key = secret_key(seed);
    bool ok =
        key != NULL && EVP_PKEY_get_raw_public_key(key, ret, &n) == 1 && n == CSN_ED25519_KEY_BYTES;
    EVP_PKEY_free(key);
    return ok ? CAISSON_OK : refused("Ed25519 key", err);
}

caisson_status csn_ed25519_sign(const uint8_t seed[CSN_ED25519_KEY_BYTES], const void *message,
                                size_t n, uint8_t ret[CSN_ED25519_SIG_BYTES], caisson_error *err) {
    size_t n_sig = CSN_ED25519_SIG_BYTES;
    EVP_PKEY *key = secret_key(seed);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool ok = key != NULL && c != NULL && EVP_DigestSignInit(c, NULL, NULL, NULL, key) == 1 &&
              EVP_DigestSign(c, ret, &n_sig, message, n) == 1 && n_sig == CSN_ED25519_SIG_BYTES;
    EVP_MD_CTX_free(c);
    EVP_PKEY_free(key);
    return ok ? CAISSON_OK : refused("Ed25519 signature", err);
}

caisson_status csn_ed25519_verify(const uint8_t key[CSN_ED25519_KEY_BYTES], const void *message,
                                  size_t n, const uint8_t sig[CSN_ED25519_SIG_BYTES],
                                  bool *ret_is_valid, caisson_error *err) {
    EVP_PKEY *k = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, CSN_ED25519_KEY_BYTES);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool ok = k != NULL && c != NULL && EVP_DigestVerifyInit(c, NULL, NULL, NULL, k) == 1;
    bool is_valid = ok && EVP_DigestVerify(c, sig, CSN_ED25519_SIG_BYTES, message, n) == 1;
    EVP_MD_CTX_free(c);
    EVP_PKEY_free(k);
    ERR_clear_error();
    if (!ok) {
        return refused("Ed25519 signature", err);
    }
    *ret_is_valid = is_valid;
    return CAISSON_OK;
}

void csn_wipe(void *secret, size_t n) {
    OPENSSL_cleanse(secret, n);
}
