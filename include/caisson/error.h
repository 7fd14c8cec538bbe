/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and the error record that every fallible call fills.
 *
 * A call that can fail returns caisson_status and takes `caisson_error *err` last. On success `err`
 * is not touched. On failure it says which file, section and tensor, at which offset, and the two
 * values that disagree. The record has a fixed size, so "out of memory" can be told too. Public
 * calls accept err == NULL.
 */
#ifndef CAISSON_ERROR_H
#define CAISSON_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "caisson/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One code per cause that a program would act on. caisson_status_name() gives the words in
 * brackets: for container faults these are the names that the CMF specification uses (1.2). */
typedef enum caisson_status {
    CAISSON_OK = 0,
    CAISSON_E_ARG,     /* [Argument] the caller passed something that makes no sense */
    CAISSON_E_NOMEM,   /* [OutOfMemory] an allocation failed */
    CAISSON_E_IO,      /* [Io] the operating system refused an open, read, write, sync, rename */
    CAISSON_E_MAGIC,   /* [InvalidMagic] not a file of the format */
    CAISSON_E_VERSION, /* [UnsupportedVersion] a version of the format that we do not read */
    CAISSON_E_FEATURE, /* [UnsupportedFeature] a required-feature bit that we do not know */
    CAISSON_E_BOUNDS,  /* [Bounds] a length, offset or count leaves its section or the file */
    CAISSON_E_PARSE,   /* [Parse] the bytes are there, but do not follow the format's grammar */
    CAISSON_E_MISSING, /* [MissingTensor] a tensor that the model needs is absent */
    CAISSON_E_HASH,    /* [Hash] a stored hash differs from that of the bytes */
    CAISSON_E_LIMIT,   /* [Limit] a limit of caisson/limits.h was passed */
    CAISSON_E_UNSUPPORTED, /* [Unsupported] valid, but this build cannot run or convert it */
    CAISSON_E_TEMPLATE,    /* [Template] the chat template failed or called raise_exception */
    CAISSON_E_CONTEXT,     /* [ContextFull] the tokens do not fit into the context */
    CAISSON_E_CANCELLED,   /* [Cancelled] the caller asked to stop */
    CAISSON_E_EXISTS,      /* [Exists] the target is there and may not be replaced */
    CAISSON_E_BUSY,        /* [Busy] another process is writing the same target */
    CAISSON_E_SIGNATURE, /* [Signature] a signature is missing, of another key or of other bytes */
    CAISSON_N_STATUS
} caisson_status;

/* Which fields are filled is shown by has_offset and by non-empty strings. Strings are
 * NUL-terminated UTF-8; what does not fit is cut at a code point. */
typedef struct caisson_error {
    caisson_status code;
    int sys_errno;   /* errno of the failed system call, 0 = none */
    bool has_offset; /* offset holds a byte offset into `file` */
    uint64_t offset;
    uint64_t n_bytes; /* with has_offset: so many bytes from offset on; 0 = a place, not a range */
    char what[192];   /* the sentence: what is wrong */
    char file[256];   /* path as the caller gave it */
    char section[48]; /* envelope, header, directory, data, masks, vocab, index, metadata, ... */
    char tensor[160]; /* tensor, JSON key or template construct */
    char want[96];    /* the value that would be right (or the limit) */
    char got[96];     /* the value that was found */
} caisson_error;

/* The code's name, e.g. "Bounds"; static storage; "Unknown" for a number outside the enum. */
CAISSON_API const char *caisson_status_name(caisson_status code);

/* Writes one line such as
 *   m.cmf: directory, tensor model.norm.weight, offset 4096: bytes differ from shape x dtype
 *   (want 16, got 8)
 * into buf (n bytes, always NUL-terminated when n > 0) and returns buf. */
CAISSON_API const char *caisson_error_format(const caisson_error *err, char *buf, uint64_t n);

#ifdef __cplusplus
}
#endif
#endif
