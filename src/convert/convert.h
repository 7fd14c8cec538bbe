/* SPDX-License-Identifier: Apache-2.0 */
/* Source -> plan -> sink: a GGUF file or a Hugging Face directory becomes a .cmf, or a .cmf another
 * one with other types. Of a .cmf everything is kept but the sparse index, which nobody reads.
 *
 * The source is recognised by content. A family row (families.c) turns its metadata into `arch` and
 * its tensor names into canonical ones; a key that changes the arithmetic and is not understood is
 * an error. Killed at any instant, the old target is intact and the next call resumes.
 */
#ifndef CSN_CONVERT_CONVERT_H
#define CSN_CONVERT_CONVERT_H

#include "base/io.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/calibrate.h"
#include "quant/dtype.h"

typedef struct csn_convert_rule { /* --tensor PATTERN=TYPE; '*' and '?' as in a shell */
    csn_str pattern;
    const csn_dtype *dtype;
} csn_convert_rule;

/* Which tensors of vbit and vbit_ro have mean_bits together. */
typedef enum csn_bits_over {
    CSN_BITS_OVER_TENSOR,  /* each by itself */
    CSN_BITS_OVER_EXPERTS, /* the experts of a layer, a projection by itself (CMF 3.2) */
    CSN_BITS_OVER_LAYERS,  /* a projection in all layers, of all experts */
} csn_bits_over;

typedef struct csn_convert_report { /* one tensor written */
    csn_str name, source_name;
    const char *from, *to; /* tensor types */
    csn_shape shape;
    uint64_t nbytes;
    double relative_error;  /* ||decoded - source|| / ||source||, against the source's own values */
    bool source_is_coarser; /* fewer bits a weight in the source than in the target */
    bool kept_f32;          /* a value that f16 cannot hold kept this tensor in f32 */
} csn_convert_report;

typedef struct csn_convert_options {
    const csn_dtype *quant;        /* NULL = q8_row; of a .cmf: every tensor as it is */
    const csn_convert_rule *rules; /* [n_rules], the first match wins */
    uint32_t n_rules;
    csn_encode_options encode;          /* bits_bias 0, col_rms NULL */
    csn_bits_over bits_over;            /* whose rows share encode.mean_bits */
    const csn_calibration *calibration; /* what q1s and q1t weigh columns with; NULL = all alike */
    unsigned n_threads;                 /* 0 = all */
    bool overwrite;                     /* replace an existing target; else CAISSON_E_EXISTS */
    uint64_t shard_max_bytes;           /* of a file; 0 = one file */
    csn_str expert_quant;               /* WARP: vq3r, vq2r or vq4p; empty = vq3r */
    uint32_t trunk_bits;                /* WARP: 4 or 8; 0 = 4 */
    uint64_t sync_bytes;                /* payload bytes that a kill may cost; 0 = 64 MiB */
    const csn_progress *progress;       /* bytes of source read */
    const csn_log *log;
    void (*on_tensor)(void *ctx, const csn_convert_report *report); /* or NULL */
    void (*on_files)(void *ctx, uint32_t n); /* how many a .cmf will be; or NULL */
    void *ctx;
} csn_convert_options;

/* True for a name that ends in ".waste", with or without a '/': a WARP directory is wanted. */
bool csn_convert_wants_warp(const char *target);

/* target NULL: source is a .cmf, and grows by the payloads that change (format/cmf/append.c);
 * CAISSON_E_BUSY while another writer has it. Killed at any instant a file is the old one or the
 * new one; of shards some may be new. */
caisson_status csn_convert(csn_fs *fs, const char *source, const char *target,
                           const csn_convert_options *options, caisson_error *err);

/* The same of a source that is open, into a .cmf. */
struct csn_source;
caisson_status csn_convert_source(csn_fs *fs, struct csn_source *source, const char *target,
                                  const csn_convert_options *options, caisson_error *err);

#endif
