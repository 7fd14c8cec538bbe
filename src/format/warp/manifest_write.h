/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.json (warp facts 2), keys in the order of the format's converter. */
#ifndef CSN_FORMAT_WARP_MANIFEST_WRITE_H
#define CSN_FORMAT_WARP_MANIFEST_WRITE_H

#include "format/warp/writer.h"

enum { CSN_WARP_BANK_NAME = 32, CSN_WARP_MAX_MANIFEST = 256 << 20 };

/* offsets [n_trunk + 1] of the tensors in trunk.bin. */
caisson_status csn_warp_manifest_write(const csn_warp_plan *plan, const uint64_t *offsets,
                                       uint64_t bank_bytes, csn_buf *out, caisson_error *err);
void csn_warp_bank_name(uint32_t layer, char out[CSN_WARP_BANK_NAME]);

#endif
