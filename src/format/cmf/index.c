/* SPDX-License-Identifier: Apache-2.0 */
/* The sparse index (CMF 7, facts 8): deprecated, never written by us, and still checked, so that a
 * tool that walks it cannot leave the section. */
#include "base/size.h"
#include "format/cmf/cmf_internal.h"

enum { HEAD = 8, ENTRY_HEAD = 16 };

static caisson_status fail(caisson_error *err, const char *what, uint64_t want, uint64_t got) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "index", .what = what, CSN_VALUES(want, got));
}

/* The entry at *pos, which moves behind it. */
static caisson_status read_entry(const uint8_t *bytes, uint64_t len, uint64_t *pos,
                                 csn_cmf_index_entry *ret, caisson_error *err) {
    if (!csn_range_fits(*pos, ENTRY_HEAD, len)) {
        return fail(err, "entry leaves the section", len, *pos + ENTRY_HEAD);
    }
    const uint8_t *p = bytes + *pos;
    csn_cmf_index_entry e = {.task_id = csn_get32(p),
                             .layer = csn_get32(p + 4),
                             .n_groups = csn_get32(p + 8),
                             .n_heads = csn_get32(p + 12),
                             .groups = p + ENTRY_HEAD};
    uint64_t data = 2 * (uint64_t)e.n_groups + e.n_heads;
    if (!csn_range_fits(*pos + ENTRY_HEAD, data, len)) {
        return fail(err, "groups and heads of an entry leave the section", len,
                    *pos + ENTRY_HEAD + data);
    }
    e.heads = e.groups + 2 * (size_t)e.n_groups;
    /* at most len + 3: checked before the next use */
    *pos = (*pos + ENTRY_HEAD + data + 3) & ~UINT64_C(3);
    *ret = e;
    return CAISSON_OK;
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
    csn_cmf_index_entry e;
    for (uint32_t i = 0; i < n_entries; i++) {
        CSN_TRY(read_entry(bytes, len, &pos, &e, err));
    }
    return CAISSON_OK;
}

bool csn_cmf_index_next(csn_str section, csn_cmf_index_iter *it, csn_cmf_index_entry *ret) {
    const uint8_t *bytes = (const uint8_t *)section.ptr;
    caisson_error ignored;
    if (section.len < HEAD || it->i >= csn_get32(bytes)) {
        return false;
    }
    it->pos = it->i++ == 0 ? HEAD : it->pos;
    return read_entry(bytes, section.len, &it->pos, ret, &ignored) == CAISSON_OK;
}
