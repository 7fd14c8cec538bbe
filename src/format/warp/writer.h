/* SPDX-License-Identifier: Apache-2.0 */
/* The streaming writer of WARP (warp facts 2 to 5): trunk, then bank after bank, then what lies
 * beside them, the manifest last. Everything is written into the directory `<path>.part`, which
 * finish puts into the place of `path` at once; a journal in it tells which tensors and banks are
 * whole, so that a writer killed at any instant leaves the old target as it was and a conversion
 * that goes on. It lies among what it tells of, so that it never speaks of a model that changed
 * places with it. `<path>.part.lock` is there as long as the directory is a writer's: what lies at
 * `<path>.part` without it is somebody's, and stays. Codebooks are numbered by the plan: a bank
 * that is whole keeps its own.
 */
#ifndef CSN_FORMAT_WARP_WRITER_H
#define CSN_FORMAT_WARP_WRITER_H

#include "base/io.h"
#include "format/warp/warp.h"

/* How expert_quant codes the experts. */
typedef struct csn_warp_coding {
    const char *name; /* of the command line: "vq3r" */
    const char *fmt;  /* of the manifest: "VQ3R" */
    uint32_t stages, entries;
    bool is_packed;
} csn_warp_coding;

extern const csn_warp_coding csn_warp_codings[]; /* vq3r first; behind the last: name NULL */
const csn_warp_coding *csn_warp_coding_by_name(csn_str name); /* NULL if unknown */

typedef struct csn_warp_plan_tensor {
    csn_str name; /* WARP's, behind the prefix */
    const csn_dtype *dtype;
    csn_shape shape;
} csn_warp_plan_tensor;

typedef struct csn_warp_plan {
    const csn_warp_plan_tensor *trunk; /* [n_trunk], in file order */
    uint32_t n_trunk;
    const uint32_t *layers; /* [n_layers] that are mixtures, rising */
    uint32_t n_layers;
    uint32_t n_experts, expert_width, expert_hidden; /* gate and up are [width][hidden] */
    const csn_warp_coding *coding;
    csn_str arch, prefix;
    csn_str config;      /* a JSON object */
    csn_str fingerprint; /* of source and options: a journal of another one is discarded; empty:
                            always begun anew */
} csn_warp_plan;

/* Bytes of the scales behind the codes of a quantised tensor: binary16 [rows][groups of 128]. */
uint64_t csn_warp_scale_bytes(const csn_shape *shape);

/* Binary16 of a codebook's value. The format's engine reads subnormals there as zero: they become
 * zero or the smallest normal number, whichever is nearer. */
uint16_t csn_warp_book_half(float x);

/* Where the parts of a record lie. */
typedef struct csn_warp_layout {
    uint32_t rows[CSN_WARP_N_KINDS], cols[CSN_WARP_N_KINDS];
    uint64_t index[CSN_WARP_N_KINDS]; /* offsets; the first is 48 */
    uint64_t scale[CSN_WARP_N_KINDS]; /* offsets of binary16 [rows] */
    uint64_t end;                     /* of the last scale */
    uint64_t stride;                  /* a multiple of 4096 */
} csn_warp_layout;

/* CAISSON_E_UNSUPPORTED: widths that are no multiples of 8; _BOUNDS: a record that the format
 * cannot describe. */
caisson_status csn_warp_layout_make(const csn_warp_coding *coding, uint32_t expert_width,
                                    uint32_t expert_hidden, csn_warp_layout *ret,
                                    caisson_error *err);

typedef struct csn_warp_writer csn_warp_writer;

/* `replace`: a model may be at `path`, which finish replaces; CAISSON_E_EXISTS where it is not,
 * where something else than a model is there, and where somebody's directory is in the way of ours.
 * Checks free space (CAISSON_E_IO with ENOSPC). *ret_n_tensors, *ret_n_banks: how many leading ones
 * are on the disk already. CAISSON_E_BUSY: another writer is at work on the same path;
 * CAISSON_E_ARG: the plan asks for what the format cannot say. */
caisson_status csn_warp_writer_new(csn_fs *fs, const char *path, const csn_warp_plan *plan,
                                   bool replace, csn_warp_writer **ret, uint32_t *ret_n_tensors,
                                   uint32_t *ret_n_banks, caisson_error *err);
const csn_warp_layout *csn_warp_writer_layout(const csn_warp_writer *w);
/* The next tensor of the trunk, its payload as its dtype lays it out. */
caisson_status csn_warp_writer_tensor(csn_warp_writer *w, const void *bytes, uint64_t nbytes,
                                      caisson_error *err);
/* Rows [r0, r0 + n) of it, a matrix, their payload as its dtype lays out a matrix of these rows
 * alone; `tensor_done` ends it when all are there. */
caisson_status csn_warp_writer_rows(csn_warp_writer *w, uint64_t r0, uint64_t n, const void *bytes,
                                    uint64_t nbytes, caisson_error *err);
caisson_status csn_warp_writer_tensor_done(csn_warp_writer *w, caisson_error *err);
/* Begins the next bank with its codebooks, binary16 [kinds][stages][entries][8]. */
caisson_status csn_warp_writer_books(csn_warp_writer *w, const uint16_t *books, caisson_error *err);
/* The next expert of the bank. record [stride]: indices and scales are in their places, padding is
 * zero; its header is filled in here. Behind the last expert the bank is whole. */
caisson_status csn_warp_writer_expert(csn_warp_writer *w, uint8_t *record, caisson_error *err);
/* A file beside the banks, whole: the tokenizer, chat.json. */
caisson_status csn_warp_writer_file(csn_warp_writer *w, const char *name, csn_str bytes,
                                    caisson_error *err);
/* Writes the manifest and puts the directory into its place (CAISSON_E_EXISTS as above). */
caisson_status csn_warp_writer_finish(csn_warp_writer *w, caisson_error *err);
/* Frees; without finish the partial directory and its journal stay for a resume, unless `discard`.
 * NULL is fine. */
void csn_warp_writer_close(csn_warp_writer *w, bool discard);

#endif
