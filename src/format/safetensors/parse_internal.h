/* SPDX-License-Identifier: Apache-2.0 */
/* The header of one safetensors file. For this folder only. */
#ifndef CSN_FORMAT_SAFETENSORS_PARSE_INTERNAL_H
#define CSN_FORMAT_SAFETENSORS_PARSE_INTERNAL_H

#include "format/safetensors/safetensors.h"

/* Reads and checks the header of `file`; *ret [*ret_n] is allocated in `arena`, in order of
 * offset, names in the arena, i_file as given. */
caisson_status csn_safetensors_parse(csn_file *file, uint32_t i_file, csn_arena *arena,
                                     csn_tensor **ret, uint32_t *ret_n, caisson_error *err);

#endif
