/* SPDX-License-Identifier: Apache-2.0 */
/* Detached signatures (CMF 8.2, facts 9.2): `<file>.sig`, a JSON object beside a file of any kind.
 *
 *   {"alg": "ed25519-sha256", "pubkey": 64 hex, "sha256": 64 hex of the file, "sig": 128 hex}
 *
 * The signed message is the 32 bytes of the SHA-256. Hex is written in lower case and read in any.
 */
#ifndef CSN_FORMAT_SIGNATURE_H
#define CSN_FORMAT_SIGNATURE_H

#include "base/crypto.h"
#include "base/io.h"
#include "base/progress.h"

typedef struct csn_signature {
    uint8_t key[CSN_ED25519_KEY_BYTES]; /* public */
    uint8_t sha256[CSN_SHA256_BYTES];
    uint8_t sig[CSN_ED25519_SIG_BYTES];
} csn_signature;

/* PARSE (key named), UNSUPPORTED (another alg), LIMIT, NOMEM; section "signature". */
caisson_status csn_signature_parse(csn_str json, csn_signature *ret, caisson_error *err);
caisson_status csn_signature_write(const csn_signature *s, csn_buf *out, caisson_error *err);

/* SHA-256 of the whole file, read through f. *ret_stamp: what the file was before; SIGNATURE when
 * it was not the same afterwards. */
caisson_status csn_file_sha256(csn_file *f, const csn_progress *progress,
                               uint8_t ret[CSN_SHA256_BYTES], csn_file_stamp *ret_stamp,
                               caisson_error *err);
/* SIGNATURE when f is no longer what `stamp` says: another inode, size or time of change. */
caisson_status csn_file_is_still(csn_file *f, const csn_file_stamp *stamp, caisson_error *err);

/* Whether a `<path>.sig` lies there. NOMEM. */
caisson_status csn_signature_exists(csn_fs *fs, const char *path, bool *ret, caisson_error *err);
/* Checks f, opened from `path`, against `<path>.sig`. want_key: the key it must be signed with, or
 * NULL = any. *ret_key: the key that it is signed with. SIGNATURE: no signature there, another key,
 * other bytes than were signed, or not made with that key; and the errors of parse and reading. */
caisson_status csn_signature_check(csn_fs *fs, const char *path, csn_file *f,
                                   const uint8_t *want_key, const csn_progress *progress,
                                   uint8_t ret_key[CSN_ED25519_KEY_BYTES],
                                   csn_file_stamp *ret_stamp, caisson_error *err);

/* ---- key files: 64 hex digits, white space around them ---- */
caisson_status csn_key_read(csn_fs *fs, const char *path, uint8_t ret[CSN_ED25519_KEY_BYTES],
                            caisson_error *err);
/* Makes a new key: `path` (secret, for its owner alone) and `<path>.pub`. EXISTS when one of them
 * is there. */
caisson_status csn_key_make(csn_fs *fs, const char *path, uint8_t ret_public[CSN_ED25519_KEY_BYTES],
                            caisson_error *err);

#endif
