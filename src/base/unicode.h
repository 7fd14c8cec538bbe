/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode normalisation, grapheme clusters, categories and case: the only user of utf8proc. */
#ifndef CSN_BASE_UNICODE_H
#define CSN_BASE_UNICODE_H

#include "base/error.h"
#include "base/str.h"

typedef enum csn_norm_form { CSN_NFC, CSN_NFD, CSN_NFKC, CSN_NFKD } csn_norm_form;

/* True for a code point that the form keeps and that never joins the one before it: text may be cut
 * in front of it. A quick answer: false means "not known". */
bool csn_norm_is_inert(csn_norm_form form, uint32_t cp);

/* Appends the form of n code points to out as UTF-8. cps: scratch, overwritten. O(n log n). */
typedef struct csn_cps {
    int32_t *cp;
    size_t n, cap;
} csn_cps;
caisson_status csn_cps_push(csn_cps *c, int32_t cp, caisson_error *err);
void csn_cps_free(csn_cps *c);
/* Decomposes cp by the form and appends it. */
caisson_status csn_norm_push(csn_norm_form form, csn_cps *c, uint32_t cp, caisson_error *err);
/* Puts what was pushed into canonical order and, for NFC and NFKC, composes it. */
caisson_status csn_norm_finish(csn_norm_form form, csn_cps *c, caisson_error *err);

/* True where a grapheme cluster ends between a and b. *state: 0 at the start of text. */
bool csn_grapheme_break(uint32_t a, uint32_t b, int32_t *state);

/* General category, e.g. CSN_UC('L', 'u'); what is no code point is unassigned, CSN_UC('C', 'n').
 */
#define CSN_UC(major, minor) ((unsigned)(major) << 8 | (unsigned)(minor))
unsigned csn_unicode_category(uint32_t cp);
static inline char csn_unicode_major(uint32_t cp) {
    return (char)(csn_unicode_category(cp) >> 8);
}
/* Simple mappings: one code point to one. */
uint32_t csn_unicode_upper(uint32_t cp);
uint32_t csn_unicode_lower(uint32_t cp);
uint32_t csn_unicode_title(uint32_t cp);

#endif
