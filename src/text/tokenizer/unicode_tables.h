/* SPDX-License-Identifier: Apache-2.0 */
/* Character sets as the tokenizers package has them (tests/oracle/unicode_tables.py says why they
 * differ from those of utf8proc and PCRE2). Ranges are sorted and do not overlap. */
#ifndef CSN_TEXT_UNICODE_TABLES_H
#define CSN_TEXT_UNICODE_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct csn_cp_range {
    uint32_t lo, hi; /* inclusive */
} csn_cp_range;

typedef struct csn_cp_run {
    uint32_t lo, hi, step;
    int32_t delta;
} csn_cp_run;

typedef struct csn_property_delta {
    char name[12];
    csn_cp_range range;
} csn_property_delta;

extern const csn_cp_range csn_cp_numeric[], csn_cp_punctuation[], csn_cp_word[], csn_cp_mark[],
    csn_cp_not_normalised[];
extern const size_t csn_cp_numeric_n, csn_cp_punctuation_n, csn_cp_word_n, csn_cp_mark_n,
    csn_cp_not_normalised_n;
extern const csn_cp_run csn_cp_lower[];
extern const size_t csn_cp_lower_n;
extern const csn_property_delta csn_property_deltas[];
extern const size_t csn_property_deltas_n;

bool csn_cp_in(const csn_cp_range *table, size_t n, uint32_t cp);
bool csn_cp_is_white(uint32_t cp);       /* White_Space */
bool csn_cp_is_numeric(uint32_t cp);     /* Nd, Nl, No */
bool csn_cp_is_punctuation(uint32_t cp); /* ASCII punctuation and symbols, and P */
bool csn_cp_is_word(uint32_t cp);        /* \w */
/* Lower case of cp: one code point, but for U+0130, which gives two; returns how many. */
unsigned csn_cp_to_lower(uint32_t cp, uint32_t out[2]);

#endif
