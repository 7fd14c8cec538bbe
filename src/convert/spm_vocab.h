/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary by text, and the merges that a SentencePiece vocabulary implies. */
#ifndef CSN_CONVERT_SPM_VOCAB_H
#define CSN_CONVERT_SPM_VOCAB_H

#include "base/arena.h"

typedef struct csn_spm_vocab {
    csn_str *text; /* [n], UTF-8 */
    uint32_t n;
    uint32_t *index; /* open-addressed table of ids + 1 */
    uint32_t n_index;
} csn_spm_vocab;

/* CAISSON_E_PARSE: a text that is not UTF-8, or given twice. */
caisson_status csn_spm_vocab_init(csn_spm_vocab *v, csn_str *text, uint32_t n, csn_arena *arena,
                                  caisson_error *err);

/* A merge makes token `id` of its first n_left bytes and the rest. */
typedef struct csn_spm_vocab_merge {
    double rank; /* smaller first */
    uint32_t id, n_left;
    uint32_t left_chars, right_chars;
} csn_spm_vocab_merge;

enum { CSN_SPM_VOCAB_MAX_MERGES = 1 << 23 };
/* All ways to cut a token into two tokens, by rank[id], then the longest left part first, then the
 * longest right part, then id (the order that sentencepiece converters write).
 * *ret [*ret_n] is for csn_free. Work is linear in the bytes of the vocabulary. */
caisson_status csn_spm_vocab_merges(const csn_spm_vocab *v, const double *rank,
                                    csn_spm_vocab_merge **ret, size_t *ret_n, caisson_error *err);

#endif
