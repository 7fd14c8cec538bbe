/* SPDX-License-Identifier: Apache-2.0 */
/* The sparse index (CMF 7, facts 8): deprecated, never written by us, and still checked, so that a
 * tool that walks it cannot leave the section. */
#include "base/size.h"
#include "format/cmf/cmf_internal.h"

enum { HEAD = 8, ENTRY_HEAD = 16 };

static caisson_status fail(caisson_error *err, const char *what, uint64_t want, uint64_t got) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "index", .what = what, CSN_VALUES(want, got));
}

caisson_status csn_cmf_check_index(const uint8_t *bytes, uint64_t len, caisson_error *err) {
    if (len < HEAD) {
        return fail(err, "section is too short", HEAD, len);
    }
    uint32_t n_entries = csn_get32(bytes);
    if (n_entries > (len - HEAD) / ENTRY_HEAD) {
        return fail(err, "more entries than the section can hold", (len - HEAD) / ENTRY_HEAD,
                    n_entries);
    }
    uint64_t pos = HEAD;
    for (uint32_t i = 0; i < n_entries; i++) {
        if (!csn_range_fits(pos, ENTRY_HEAD, len)) {
            return fail(err, "entry leaves the section", len, pos + ENTRY_HEAD);
        }
        uint64_t data = 2 * (uint64_t)csn_get32(bytes + pos + 8) + csn_get32(bytes + pos + 12);
        pos += ENTRY_HEAD;
        if (!csn_range_fits(pos, data, len)) {
            return fail(err, "groups and heads of an entry leave the section", len, pos + data);
        }
        pos = (pos + data + 3) & ~UINT64_C(3); /* at most len + 3: checked before the next use */
    }
    return CAISSON_OK;
}
