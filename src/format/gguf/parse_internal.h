/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of one GGUF header. For this folder only. */
#ifndef CSN_FORMAT_GGUF_PARSE_INTERNAL_H
#define CSN_FORMAT_GGUF_PARSE_INTERNAL_H

#include "format/gguf/gguf.h"

typedef struct csn_gguf_head {
    uint32_t version;
    csn_gguf_pair *pairs; /* [n_pairs], sorted by key */
    uint32_t n_pairs;
    csn_tensor *tensors; /* [n_tensors]; offset relative to data_offset, i_file 0 */
    uint32_t n_tensors;
    uint64_t alignment;
    uint64_t data_offset; /* absolute; may lie past the end of a file without payload */
    uint64_t split_no, split_count, split_tensors; /* 0, 0, 0 without split keys */
} csn_gguf_head;

/* Parses the header at the start of `bytes`, the first bytes of a file of file_bytes. Counts are
 * bounded by file_bytes. *ret_is_short: it failed only because `bytes` ends too early. Strings of
 * *ret point into `bytes`. */
caisson_status csn_gguf_parse(csn_str bytes, uint64_t file_bytes, csn_arena *arena,
                              csn_gguf_head *ret, bool *ret_is_short, caisson_error *err);

#endif
