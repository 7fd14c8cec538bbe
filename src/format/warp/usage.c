/* SPDX-License-Identifier: Apache-2.0 */
#include "format/warp/usage.h"

#include "base/alloc.h"
#include "base/le.h"

enum {
    MAGIC = 0x47535557, /* "WUSG" */
    VERSION = 1,
    HEADER_BYTES = 16,
    ENTRY_BYTES = 16
};

caisson_status csn_warp_usage_write(const csn_warp_use *use, uint32_t n, uint64_t clock,
                                    csn_buf *out, caisson_error *err) {
    uint8_t b[HEADER_BYTES];
    csn_put32(b, MAGIC);
    csn_put32(b + 4, VERSION);
    csn_put64(b + 8, clock);
    CSN_TRY(csn_buf_append(out, b, sizeof(b), err));
    for (uint32_t i = 0; i < n; i++) {
        csn_put16(b, (uint16_t)use[i].layer);
        csn_put16(b + 2, (uint16_t)use[i].expert);
        csn_put32(b + 4, use[i].hits);
        csn_put32(b + 8, use[i].last);
        csn_put32(b + 12, 0);
        CSN_TRY(csn_buf_append(out, b, ENTRY_BYTES, err));
    }
    return CAISSON_OK;
}

caisson_status csn_warp_usage_parse(csn_str bytes, csn_warp_use **ret, uint32_t *ret_n,
                                    caisson_error *err) {
    const uint8_t *p = (const uint8_t *)bytes.ptr;
    if (bytes.len < HEADER_BYTES || (bytes.len - HEADER_BYTES) % ENTRY_BYTES != 0) {
        return CSN_FAIL(
            err, CAISSON_E_BOUNDS, .section = "usage", .what = "no header and whole entries",
            CSN_VALUES(HEADER_BYTES + bytes.len / ENTRY_BYTES * ENTRY_BYTES, bytes.len));
    }
    if (csn_get32(p) != MAGIC) {
        return CSN_FAIL(err, CAISSON_E_MAGIC, .section = "usage", .what = "not a usage log",
                        CSN_VALUES(MAGIC, csn_get32(p)));
    }
    if (csn_get32(p + 4) != VERSION) {
        return CSN_FAIL(err, CAISSON_E_VERSION, .section = "usage", CSN_AT(4),
                        .what = "another version of the usage log",
                        CSN_VALUES(VERSION, csn_get32(p + 4)));
    }
    csn_warp_use *use;
    uint32_t n = (uint32_t)((bytes.len - HEADER_BYTES) / ENTRY_BYTES);
    CSN_TRY(CSN_NEW((size_t)n + 1, &use, err));
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *e = p + HEADER_BYTES + (size_t)i * ENTRY_BYTES;
        use[i] = (csn_warp_use){csn_get16(e), csn_get16(e + 2), csn_get32(e + 4), csn_get32(e + 8)};
    }
    *ret = use;
    *ret_n = n;
    return CAISSON_OK;
}
