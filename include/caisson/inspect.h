/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a file, and whether its bytes are what they were: no model is run here, so files that
 * this build cannot run can be listed, verified and decoded as well.
 */
#ifndef CAISSON_INSPECT_H
#define CAISSON_INSPECT_H

#include "caisson/sign.h"
#include "caisson/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum caisson_kind {
    CAISSON_KIND_UNKNOWN = 0,
    CAISSON_KIND_CMF,
    CAISSON_KIND_GGUF,
    CAISSON_KIND_HF_DIRECTORY, /* a directory with a config.json */
    CAISSON_KIND_WASTE         /* a directory with a manifest.json */
} caisson_kind;

/* Looks at the content, never at the name. Errors: CAISSON_E_IO (absent or unreadable). */
CAISSON_API caisson_status caisson_detect(const char *path, caisson_kind *ret, caisson_error *err);

typedef struct caisson_file caisson_file;
/* As caisson_model_open, without tokenizer, template and plan; of the options no_mmap,
 * guard_mappings, verify and require_signature count (and those that go with it). */
CAISSON_API caisson_status caisson_file_open(const char *path, const caisson_open_options *options,
                                             caisson_file **ret, caisson_error *err);
CAISSON_API void caisson_file_close(caisson_file *file); /* NULL is fine */

typedef struct caisson_tensor_info {
    const char *name; /* name_n bytes of UTF-8, good until the file is closed */
    size_t name_n;
    const char *dtype; /* "q8_row", ...; static storage */
    uint32_t n_dims;   /* 0 = a scalar */
    uint64_t shape[6]; /* row-major, outermost first */
    uint64_t n_values; /* product of the shape */
    uint32_t i_shard;  /* which of the model's files has it, from 0 */
    uint64_t offset;   /* bytes, from the start of that file */
    uint64_t n_bytes;
    uint64_t hash; /* hash64 as the directory has it */
} caisson_tensor_info;

CAISSON_API uint32_t caisson_file_n_tensors(const caisson_file *file);
/* False if i >= n_tensors. Tensors come in file order. */
CAISSON_API bool caisson_file_tensor(const caisson_file *file, uint32_t i,
                                     caisson_tensor_info *ret);
/* The index of a name, or -1. */
CAISSON_API int64_t caisson_file_find(const caisson_file *file, const char *name, size_t n);
/* Decodes values [first, first + n) of the flattened tensor i into out, [n] f32.
 * Errors: CAISSON_E_ARG (range), _UNSUPPORTED (a dtype that this build cannot decode), _IO. */
CAISSON_API caisson_status caisson_file_decode(caisson_file *file, uint32_t i, uint64_t first,
                                               uint64_t n, float *out, caisson_error *err);

/* Everything but the tensor list as one JSON object: "container" (format, version, bytes,
 * sections, of a sharded model "shards", of a .waste directory "files"), of a .waste directory
 * "parameters" ("total", "active": what one token uses) and "experts", "features", "quant_type",
 * "arch", "tensors" (totals, by dtype), "tokenizer", "chat", "masks" ("default_task", "masks": what
 * each switches on, by layer), "skills", "provenance", "runs" (and "why_not"),
 * "weight_bytes_per_token", "layers" (which blocks each layer uses and why). Keys may be added,
 * never renamed. *ret is the caller's. Errors: CAISSON_E_IO, _LIMIT, _NOMEM, _ARG. */
CAISSON_API caisson_status caisson_file_describe(caisson_file *file, caisson_text *ret,
                                                 caisson_error *err);

/* The bytes of a section as they lie in the file: "header", "directory", "masks", "vocab", "index";
 * of a sharded model, those of the first shard. caisson_text_free frees them. Errors:
 * CAISSON_E_MISSING (there is none), _ARG (no such name), _IO, _LIMIT, _NOMEM. */
CAISSON_API caisson_status caisson_file_section(caisson_file *file, const char *name,
                                                caisson_text *ret, caisson_error *err);
/* Bytes [first, first + n) of the payload of tensor i. Errors: CAISSON_E_ARG (range), _IO. */
CAISSON_API caisson_status caisson_file_payload(caisson_file *file, uint32_t i, uint64_t first,
                                                uint64_t n, void *out, caisson_error *err);

typedef struct caisson_diff_options {
    size_t struct_size; /* sizeof(caisson_diff_options) */
    bool no_values;     /* tensors by hash alone: no payload is read */
    /* Values compared; false = stop. */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
} caisson_diff_options;

/* What two models differ in, as one JSON object: "header" (keys, both values), "sections",
 * "tensors" ("same", "same_bytes", "shared_bytes": of b's payloads that a has under any name,
 * "only_a", "only_b", "changed" with the distance of their values), "equal". Layout is no
 * difference: order, shards, dead bytes. *ret is the caller's. Errors: CAISSON_E_CANCELLED, _IO,
 * _LIMIT, _NOMEM, _ARG. */
CAISSON_API caisson_status caisson_file_diff(caisson_file *a, caisson_file *b,
                                             const caisson_diff_options *options, bool *ret_equal,
                                             caisson_text *ret, caisson_error *err);

typedef struct caisson_verify_options {
    size_t struct_size; /* sizeof(caisson_verify_options) */
    uint32_t n_threads; /* 0 = all CPUs that the process may use */
    /* Each fault; valid until the callback returns. */
    void (*on_fault)(void *ctx, const caisson_error *fault);
    /* Bytes hashed of total; false = stop. */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
    /* A public key, 64 hex digits: a signature that is missing or of another key is a fault too. */
    const char *require_signature;
    /* The signature beside the file is right; with which key. */
    void (*on_signature)(void *ctx, const caisson_public_key *key);
    /* What is odd and no fault (code CAISSON_OK): reserved flags, a feature bit that disagrees with
     * the content, bytes that belong to nothing. */
    void (*on_note)(void *ctx, const caisson_error *note);
} caisson_verify_options;

/* Opens the file and checks every hash in it, and that scales and values are finite numbers (of a
 * .waste directory every record, and the digests beside it where there are any), and the signature
 * `<path>.sig` if there is one; never stops at the first fault. A file that does not open is a
 * fault too, told like the others. *ret_n_faults = 0: the file is valid. Errors, only when it could
 * not finish: CAISSON_E_CANCELLED, _NOMEM, _ARG. */
CAISSON_API caisson_status caisson_verify(const char *path, const caisson_verify_options *options,
                                          uint64_t *ret_n_faults, caisson_error *err);

/* Writes caisson.digests.json into a .waste directory, whose format has no checksum for the trunk
 * and the codebooks: caisson_verify compares them from then on, other programs pass the file over.
 * Of the options on_progress and ctx count. Errors: CAISSON_E_UNSUPPORTED (no .waste), what opening
 * it says, _IO, _CANCELLED, _NOMEM. */
CAISSON_API caisson_status caisson_write_digests(const char *path,
                                                 const caisson_verify_options *options,
                                                 caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
