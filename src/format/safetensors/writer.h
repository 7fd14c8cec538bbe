/* SPDX-License-Identifier: Apache-2.0 */
/* Writing one safetensors file: names, types and shapes are known before the first payload, which
 * come in that order. The file is `<path>.part` until finish renames it.
 */
#ifndef CSN_FORMAT_SAFETENSORS_WRITER_H
#define CSN_FORMAT_SAFETENSORS_WRITER_H

#include "base/io.h"
#include "quant/dtype.h"

typedef struct csn_st_writer csn_st_writer;

typedef struct csn_st_tensor {
    csn_str name;
    const csn_dtype *dtype; /* with a name in the format: f32, f16, bf16 */
    csn_shape shape;
    uint64_t nbytes;
} csn_st_tensor;

/* CAISSON_E_ARG: a dtype that the format has no name for. */
caisson_status csn_st_writer_new(csn_fs *fs, const char *path, const csn_st_tensor *tensors,
                                 uint32_t n, csn_st_writer **ret, caisson_error *err);
/* The next tensor's bytes, whole. */
caisson_status csn_st_writer_tensor(csn_st_writer *w, const void *bytes, uint64_t nbytes,
                                    caisson_error *err);
/* Syncs and renames. */
caisson_status csn_st_writer_finish(csn_st_writer *w, caisson_error *err);
void csn_st_writer_close(csn_st_writer *w); /* without finish nothing stays; NULL is fine */

#endif
