/* SPDX-License-Identifier: Apache-2.0 */
/* The header JSON of the target (facts 2.2), without section_hashes: the writer adds them. */
#ifndef CSN_CONVERT_HEADER_H
#define CSN_CONVERT_HEADER_H

#include "convert/source.h"

typedef struct csn_source_file {
    csn_str name; /* without directories */
    uint64_t nbytes;
    uint64_t hash; /* hash64 of the whole file */
} csn_source_file;

/* out: an empty buffer. The label of quant_type is the quantisation asked for. A .cmf keeps its
 * header, unknown keys too; quant NULL: its label as well. */
/* As the header's quant_type spells it. */
csn_str csn_convert_quant_label(const csn_dtype *d);
caisson_status csn_convert_header(const csn_source *s, const csn_dtype *quant,
                                  const csn_source_file *files, uint32_t n_files, csn_buf *out,
                                  caisson_error *err);

#endif
