/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: the weights of a Hugging Face directory, one file or shards named by an index.
 *
 * Checked: header length against the file and the limit, strict JSON with unique keys, names in
 * UTF-8, shape x dtype == length, and that the payloads fill the data part without a gap, an
 * overlap or a rest (the format demands it). Payloads are not read.
 *
 * In a directory `model.safetensors.index.json` wins: exactly the shards that it names are opened,
 * each tensor must lie in the shard that the index says, and a shard's tensor that the index does
 * not list is an error when its bytes are not those of a listed one. Without an index
 * `model.safetensors` is the model. Other *.safetensors files of the directory are never read; how
 * many there are is told, for a note.
 */
#ifndef CSN_FORMAT_SAFETENSORS_SAFETENSORS_H
#define CSN_FORMAT_SAFETENSORS_SAFETENSORS_H

#include "base/arena.h"
#include "base/io.h"
#include "format/directory.h"

enum { CSN_SAFETENSORS_MAX_SHARDS = 1024 };

typedef struct csn_safetensors {
    csn_file **files; /* [n_files] */
    uint32_t n_files;
    csn_directory dir;    /* offsets are absolute in files[i_file] */
    csn_str *stray_files; /* [n_stray]: *.safetensors beside the model that are not part of it */
    uint32_t n_stray;
    csn_arena arena;
} csn_safetensors;

/* One file. Errors: CAISSON_E_BOUNDS, _PARSE, _LIMIT, _IO. */
caisson_status csn_safetensors_open(csn_fs *fs, const char *path, csn_safetensors **ret,
                                    caisson_error *err);
/* The model in a directory (see above). CAISSON_E_MISSING: a tensor of the index is not there. */
caisson_status csn_safetensors_open_dir(csn_fs *fs, const char *dir, csn_safetensors **ret,
                                        caisson_error *err);
void csn_safetensors_close(csn_safetensors *s); /* NULL is fine */

#endif
