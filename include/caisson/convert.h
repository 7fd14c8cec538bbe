/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF file (split ones too), a Hugging Face or a WARP directory becomes a .cmf file; a .cmf file
 * (any of its shards) another one with other tensor types, everything else kept but a sparse index;
 * and any of them a WARP directory.
 *
 * Memory stays bounded whatever the size of the model. The target appears whole or not at all: it
 * is written as `<target>.part`, synced and renamed; after a kill or a cancel the next call with
 * the same source and options resumes.
 */
#ifndef CAISSON_CONVERT_H
#define CAISSON_CONVERT_H

#include "caisson/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The i-th tensor type that can be written ("f32", "q8_row", ...), in the order of the format's
 * table; NULL behind the last. Static storage. */
CAISSON_API const char *caisson_quant_name(uint32_t i);

typedef struct caisson_tensor_rule {
    const char *pattern; /* '*' and '?' as in a shell, against the canonical tensor name */
    const char *quant;   /* a name that caisson_quant_name gives */
} caisson_tensor_rule;

typedef struct caisson_tensor_report {
    const char *name, *source_name; /* NUL-terminated; all pointers good during the callback */
    const char *from, *to;          /* tensor types */
    uint32_t n_dims;
    uint64_t shape[6];
    uint64_t n_bytes;       /* of the tensor written */
    double relative_error;  /* |decoded - source| / |source| (2-norms) */
    bool source_is_coarser; /* the source has fewer bits a weight than the target */
    bool kept_f32;          /* a value that f16 cannot hold kept this tensor in f32 */
} caisson_tensor_report;

typedef struct caisson_convert_options {
    size_t struct_size;               /* sizeof(caisson_convert_options) */
    const char *quant;                /* NULL = "q8_row"; of a .cmf: each tensor as it is */
    const caisson_tensor_rule *rules; /* [n_rules], the first match wins */
    size_t n_rules;
    uint32_t n_threads; /* 0 = all CPUs that the process may use */
    bool overwrite;     /* replace an existing target */
    /* Bytes of the source read; false = stop. */
    bool (*on_progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void (*on_tensor)(void *ctx, const caisson_tensor_report *report);
    caisson_log_fn on_log;
    void *ctx; /* of all callbacks */
    /* Where the format leaves a choice (q4_block, q4_tiled, q4tp, vbit, vbit_ro, q1s, q1t): the
     * bytes of its reference in place of the search for the smallest squared error. */
    bool reference_encoder;
    /* vbit, vbit_ro: bits a weight, meant over the rows of each tensor; 3 to 8, 0 = 4.25. */
    double mean_bits;
    /* q1s, q1t: share of the weights that stay f16, 0.25 at most; 0 = the type's own (q1s 0.01, q1t
     * none), negative = none. Those that are largest or, given a text that the model shall read
     * first (the source is a .cmf with a tokenizer), largest times what their column meets. */
    double outliers;
    const char *calibrate; /* [calibrate_n] bytes of UTF-8; NULL = none */
    size_t calibrate_n;
    /* Cut into files of at most so many bytes, "OUT-00001-of-00003.cmf" and so on for a target
     * "OUT.cmf"; a tensor that is larger has a shard of its own. 0 = one file. */
    uint64_t shard_max_bytes;
    /* A target "OUT.waste" is a WARP directory, for mixtures of experts that its engine can run:
     * experts in "vq3r" (NULL), "vq2r" or "vq4p"; the other matrices in 4 bits (0) or 8. */
    const char *expert_quant;
    uint32_t trunk_bits;
    /* vbit, vbit_ro: whose rows have mean_bits together. "tensor" (NULL): those of each tensor;
     * "experts": of all experts of a layer, a projection by itself; "layers": of a projection in
     * all layers. A loud tensor then gets more bits than a quiet one; the source is read twice. */
    const char *bits_over;
    /* Told when a .cmf is whole: its file, or the first of its shards, how many there are, and what
     * they take. */
    void (*on_written)(void *ctx, const char *path, uint32_t n_files, uint64_t n_bytes);
} caisson_convert_options;

/* target NULL: source is a .cmf file, or any shard, and is changed in its place: new payloads go
 * behind its end, the old ones stay, dead, until it is compacted (caisson/rewrite.h).
 * Errors: CAISSON_E_EXISTS (target there, no overwrite), _BUSY (another conversion is writing the
 * same target; it ends with its process, however that ends), _UNSUPPORTED (a family, a config key
 * or a tensor type that we do not understand, by name), _MISSING (a tensor of the index or family
 * is absent), _MAGIC, _PARSE, _BOUNDS, _IO, _CANCELLED, _NOMEM, _ARG. */
CAISSON_API caisson_status caisson_convert(const char *source, const char *target,
                                           const caisson_convert_options *options,
                                           caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
