/* SPDX-License-Identifier: Apache-2.0 */
/* u8 (CMF id 6): raw bytes, used for files carried inside a container (`*.config_json`). The format
 * sets no rule for their number (facts 4.0), and no arithmetic reads them. */
#include "quant/quant_internal.h"

const csn_dtype csn_dtype_u8 = {
    .name = "u8",
    .cmf_id = 6,
    .gguf_id = CSN_NO_ID,
    .warp_fmt = CSN_NO_ID,
    .group = 1,
};
