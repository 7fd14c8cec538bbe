/* SPDX-License-Identifier: Apache-2.0 */
/* Ids 5 and 7 of CMF: reserved, layout unknown. A directory may name them; nothing can be read out
 * of such a tensor. */
#include "quant/quant_internal.h"

const csn_dtype csn_dtype_mix8_4 = {
    .name = "mix8_4",
    .cmf_id = 5,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = 1,
    .is_reserved = true,
};

const csn_dtype csn_dtype_q4_col = {
    .name = "q4_col",
    .cmf_id = 7,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = 1,
    .is_reserved = true,
};
