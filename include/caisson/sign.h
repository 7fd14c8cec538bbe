/* SPDX-License-Identifier: Apache-2.0 */
/* Detached signatures: Ed25519 over the SHA-256 of a whole .cmf file, in `<file>.sig` beside it.
 *
 * caisson_verify checks one that is there; caisson_open_options.require_signature refuses to open a
 * model that is not signed with a given key. A key is 64 hex digits; a secret one is kept in a file
 * and never handed out.
 */
#ifndef CAISSON_SIGN_H
#define CAISSON_SIGN_H

#include <stddef.h>

#include "caisson/error.h"
#include "caisson/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct caisson_public_key {
    char hex[65]; /* 64 lower-case digits and a NUL */
} caisson_public_key;

/* Makes a new key pair: `path` holds the secret key, for its owner alone, `<path>.pub` the public
 * one. Errors: CAISSON_E_EXISTS (a key is never replaced), _IO, _UNSUPPORTED. */
CAISSON_API caisson_status caisson_keygen(const char *path, caisson_public_key *ret,
                                          caisson_error *err);
/* The public key that a file holds (as caisson_keygen writes it). Errors: CAISSON_E_PARSE, _IO,
 * _ARG (beside the file lies its public key: it is a secret one). */
CAISSON_API caisson_status caisson_public_key_read(const char *path, caisson_public_key *ret,
                                                   caisson_error *err);

typedef struct caisson_sign_options {
    size_t struct_size; /* sizeof(caisson_sign_options) */
    /* Bytes hashed of total; false = stop. */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
} caisson_sign_options;

/* Signs the file at `path`, which must open as .cmf, with the secret key in the file `key_path`;
 * writes `<path>.sig`, in place of one that is there. Errors: CAISSON_E_IO, _PARSE (not a key),
 * _ARG (a public key), those of opening, _SIGNATURE (the file changed meanwhile), _CANCELLED,
 * _NOMEM. */
CAISSON_API caisson_status caisson_sign(const char *path, const char *key_path,
                                        const caisson_sign_options *options,
                                        caisson_public_key *ret, caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
