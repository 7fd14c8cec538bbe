/* SPDX-License-Identifier: Apache-2.0 */
/* A model becomes a WARP directory: its experts vector-quantised, the rest Q8G, Q4G and f32. */
#ifndef CSN_CONVERT_TO_WARP_H
#define CSN_CONVERT_TO_WARP_H

#include "convert/convert.h"

/* As csn_convert, for a target that is a directory. Memory: the largest tensor as f32, or one
 * expert and the sample of one codebook. CAISSON_E_UNSUPPORTED names what WARP cannot say. */
caisson_status csn_convert_to_warp(csn_fs *fs, const char *source, const char *target,
                                   const csn_convert_options *options, caisson_error *err);

#endif
