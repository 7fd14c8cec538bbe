/* SPDX-License-Identifier: Apache-2.0 */
/* What a tensor's bytes mean: one row of CSN_DTYPES a dtype, one file a row (quant/<name>.c).
 *
 * A dtype with a row lists, verifies, converts and runs: operations without a kernel of their own
 * fall back to "decode, multiply". No `switch` over dtypes exists anywhere else.
 */
#ifndef CSN_QUANT_DTYPE_H
#define CSN_QUANT_DTYPE_H

#include "base/error.h"
#include "base/str.h"
#include "base/threads.h"

enum { CSN_MAX_DIMS = 6, CSN_NO_ID = -1 };

/* Row-major; dim[0] is the outermost (GGUF's order is reversed by its reader). n_dims 0 = scalar.
 */
typedef struct csn_shape {
    uint32_t n_dims;
    uint64_t dim[CSN_MAX_DIMS];
} csn_shape;

/* Product of the dims, 1 for a scalar. False on overflow of u64. */
bool csn_shape_count(const csn_shape *s, uint64_t *ret);
bool csn_shape_eq(const csn_shape *a, const csn_shape *b);
/* The shape as "[2, 3]" into buf; returns buf. */
const char *csn_shape_text(const csn_shape *s, char *buf, size_t n);

typedef struct csn_dtype csn_dtype;

/* Who chooses where the format leaves a choice: scales of q4_block, q4_tiled, vbit and q1t, rungs
 * of q4tp, what q1s carries along. Both are deterministic; the error of the search is never larger.
 */
typedef enum csn_encoder {
    CSN_ENCODER_SEARCH,    /* the default: the smallest squared error among our candidates */
    CSN_ENCODER_REFERENCE, /* the bytes of the format's reference */
} csn_encoder;

/* What an encoder is told. All zero is every dtype's default. */
typedef struct csn_encode_options {
    csn_encoder encoder;
    float mean_bits; /* vbit, vbit_ro: mean width of the rows, 3 to 8; 0 = 4.25 */
    float bits_bias; /* vbit, vbit_ro: what this tensor gets beyond mean_bits (csn_vbit_biases) */
    /* q1s, q1t: share of the weights that stay f16, at most 0.25; 0 = the dtype's own (q1s 0.01,
     * q1t none), negative = none. */
    float keep;
    /* q1s, q1t: [cols] root mean square of the activations that meet each column; what stays f16
     * is what is largest times this. NULL: by size alone. */
    const float *col_rms;
} csn_encode_options;

/* A tensor seen as a matrix: rows = dim[0], cols = product of the rest (1-D: rows = n, cols = 1;
 * scalar: 1 x 1). Checked: data holds exactly dtype->nbytes(shape) bytes and passed dtype->check.
 * A mapped file may have been changed since: who follows widths, offsets or keys in `data` stays
 * inside it whatever they say. */
typedef struct csn_matrix {
    const csn_dtype *dtype;
    const uint8_t *data;
    uint64_t nbytes;
    uint64_t rows, cols;
    const void *unpacked; /* what dtype->unpack makes, or NULL: kernels do it as they go */
} csn_matrix;

/* Bytes of a part of a payload: row after row so many for each 32 elements of a row, or for each
 * row; or for each column. One of them is not 0. */
typedef struct csn_payload_part {
    uint8_t of_32, of_row, of_col;
} csn_payload_part;

/* What each row has in one part of a payload: bytes behind those of the row before it. */
enum { CSN_ROW_PARTS = 3 };
typedef struct csn_row_part {
    uint64_t nbytes;
    bool is_shared; /* the part is there once, for all rows */
} csn_row_part;

/* Numbers of a payload that its weights are made of, at equal distances. */
typedef enum csn_number_kind {
    CSN_NUMBER_F16,
    CSN_NUMBER_BF16, /* side by side, like f32 */
    CSN_NUMBER_F32,
    CSN_NUMBER_Q4TP, /* {f16 lo, f16 step} of a ladder (quant/q4tp.h) */
    CSN_NUMBER_Q2TP,
} csn_number_kind;
enum { CSN_NUMBER_SPANS = 2 };
typedef struct csn_numbers {
    csn_number_kind kind;
    bool is_value;   /* weights as they are; otherwise scales of weights */
    uint64_t first;  /* byte of the payload; of kinds of 4 bytes a multiple of 4 */
    uint64_t n;      /* how many */
    uint32_t stride; /* bytes from one to the next */
    uint64_t of_row; /* how many a row of the matrix has; 0: they are not in the order of rows */
} csn_numbers;

struct csn_dtype {
    const char *name; /* "q8_row", as facts 4.0 spells it; GGUF-only types in lower case: "q4_k" */
    int cmf_id;       /* id in a CMF directory, or CSN_NO_ID */
    int gguf_id;      /* ggml type id, or CSN_NO_ID */
    int warp_fmt;     /* fmt of a tensor in WARP's trunk, or CSN_NO_ID */
    const char *safetensors; /* "F32", "BF16", ..., or NULL */
    uint32_t group;          /* elements that share a scale in flattened order; 1 = none */
    uint32_t bytes_of_32; /* of 32 elements of a row in the payload's first part, where rows follow
                           * one another without gaps; 0 = otherwise */
    csn_payload_part parts[3]; /* all of the payload where rows are whole groups of 32, part after
                          part; 0 = laid out otherwise: csn_can_cut says no */
    bool is_float;             /* f32, f16, bf16: f32 activations in both compute modes */
    bool is_reserved; /* known by number only: reading a model that uses it is refused by name */

    /* Exact payload size. Fails with CAISSON_E_BOUNDS when the shape cannot have this dtype or the
     * size overflows. NULL: payload-dependent (any size passes here; `check` decides). */
    caisson_status (*nbytes)(const csn_shape *shape, uint64_t *ret, caisson_error *err);
    /* Offsets, codes and counts inside the payload. NULL = every bit pattern is valid. Called once
     * at open. `data` holds what it looks at of a payload of nbytes: from byte check_from(shape,
     * nbytes) on (NULL: 0), check_bytes(shape, nbytes) bytes (NULL: to the end). */
    caisson_status (*check)(const csn_shape *shape, const uint8_t *data, uint64_t nbytes,
                            caisson_error *err);
    uint64_t (*check_from)(const csn_shape *shape, uint64_t nbytes);
    uint64_t (*check_bytes)(const csn_shape *shape, uint64_t nbytes);
    /* f32 values of the flattened elements [i0, i0 + n), any i0; bit-exact to the reference's
     * decoder. NULL: opens, verifies and lists, but cannot be decoded or run by this build. */
    void (*decode)(const csn_matrix *m, uint64_t i0, uint64_t n, float *out);
    /* What int8 kernels would spend as much time on as on the weights, made once where it can stay
     * in memory: quant/q4tp.h, quant/q1.h. Aligned to 8. unpacked_nbytes looks at the sizes of m
     * alone, and may be 0: not of this matrix. Both are NULL where there is nothing to gain. */
    uint64_t (*unpacked_nbytes)(const csn_matrix *m);
    void (*unpack)(const csn_matrix *m, void *out);
    /* csn_row_parts where `parts` cannot say it; or NULL. */
    uint32_t (*row_parts)(uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]);
    /* All floating-point numbers of the payload of m (whose data is not looked at), in its order;
     * returns how many spans. A finite number in each place makes finite weights. NULL: the payload
     * has none, or its container is none that we verify. */
    uint32_t (*numbers)(const csn_matrix *m, csn_numbers ret[CSN_NUMBER_SPANS]);
    /* Encodes a whole tensor: what `out` held is replaced by the payload, whose size is known only
     * then where nbytes is NULL. Rows or groups are split over `pool` (may be NULL) with the same
     * bytes for any number of threads. NULL = never written by us. x is finite. CAISSON_E_BOUNDS
     * when a value or scale does not fit into the dtype's f16 (the caller keeps such a tensor in
     * f32), or the shape cannot have the dtype; NOMEM; LIMIT (out->max). */
    caisson_status (*encode)(const float *x, const csn_shape *shape,
                             const csn_encode_options *options, csn_pool *pool, csn_buf *out,
                             caisson_error *err);
    /* Where nbytes is NULL and encode is not: about how many bytes encode will make, for plans.
     * Fails as nbytes does. */
    caisson_status (*about_nbytes)(const csn_shape *shape, const csn_encode_options *options,
                                   uint64_t *ret, caisson_error *err);
};

extern const csn_dtype *const csn_dtypes[]; /* NULL-terminated */

const csn_dtype *csn_dtype_by_name(csn_str name); /* NULL if unknown; also "q8", "q4t" aliases */
const csn_dtype *csn_dtype_by_cmf(unsigned id);
const csn_dtype *csn_dtype_by_gguf(unsigned id);
const csn_dtype *csn_dtype_by_warp(unsigned fmt);
const csn_dtype *csn_dtype_by_safetensors(csn_str name);

/* Bytes of a payload that encode will make: exactly, or about where only the payload decides.
 * CAISSON_E_BOUNDS when the shape cannot have this dtype or the size overflows. */
caisson_status csn_encoded_nbytes(const csn_dtype *d, const csn_shape *shape,
                                  const csn_encode_options *options, uint64_t *ret,
                                  caisson_error *err);

/* Where rows of `cols` elements lie: in each part of the payload, one part after another. What a
 * row has in all of them, joined, is the payload of a matrix of that row alone. Returns the number
 * of parts; 0: rows of so many elements share bytes, or where one lies depends on those before it.
 */
uint32_t csn_row_parts(const csn_dtype *d, uint64_t cols, csn_row_part ret[CSN_ROW_PARTS]);

/* Matrix view of a checked payload. */
csn_matrix csn_matrix_make(const csn_dtype *d, const csn_shape *s, const void *data,
                           uint64_t nbytes);

/* Element conversions with the format's rounding (facts 4.1); inline forms are in quant/half.h. */
float csn_f16_to_f32(uint16_t h);
uint16_t csn_f32_to_f16(float x);

#endif
