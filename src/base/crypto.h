/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and Ed25519 (RFC 8032): the only user of libcrypto. CAISSON_E_UNSUPPORTED: this libcrypto
 * refuses the algorithm (its configuration can forbid some). */
#ifndef CSN_BASE_CRYPTO_H
#define CSN_BASE_CRYPTO_H

#include "base/error.h"

enum { CSN_SHA256_BYTES = 32, CSN_ED25519_KEY_BYTES = 32, CSN_ED25519_SIG_BYTES = 64 };

typedef struct csn_sha256 csn_sha256; /* one hash in the making */
caisson_status csn_sha256_new(csn_sha256 **ret, caisson_error *err);
caisson_status csn_sha256_add(csn_sha256 *s, const void *bytes, size_t n, caisson_error *err);
caisson_status csn_sha256_end(csn_sha256 *s, uint8_t ret[CSN_SHA256_BYTES], caisson_error *err);
void csn_sha256_free(csn_sha256 *s); /* NULL is fine */

/* A new secret key: 32 bytes of the system's randomness. */
caisson_status csn_ed25519_new_seed(uint8_t ret[CSN_ED25519_KEY_BYTES], caisson_error *err);
caisson_status csn_ed25519_public_key(const uint8_t seed[CSN_ED25519_KEY_BYTES],
                                      uint8_t ret[CSN_ED25519_KEY_BYTES], caisson_error *err);
caisson_status csn_ed25519_sign(const uint8_t seed[CSN_ED25519_KEY_BYTES], const void *message,
                                size_t n, uint8_t ret[CSN_ED25519_SIG_BYTES], caisson_error *err);
caisson_status csn_ed25519_verify(const uint8_t key[CSN_ED25519_KEY_BYTES], const void *message,
                                  size_t n, const uint8_t sig[CSN_ED25519_SIG_BYTES],
                                  bool *ret_is_valid, caisson_error *err);
/* Zeros that the compiler does not leave out. */
void csn_wipe(void *secret, size_t n);

#endif
