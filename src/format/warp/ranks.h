/* SPDX-License-Identifier: Apache-2.0 */
/* A tiktoken rank file (tokenizer.model; warp facts 7): a line a token, base64 of its bytes, blank,
 * rank; the rank is the token's id. */
#ifndef CSN_FORMAT_WARP_RANKS_H
#define CSN_FORMAT_WARP_RANKS_H

#include "base/error.h"
#include "base/str.h"

enum { CSN_RANKS_MAX_TOKEN = 512 }; /* bytes */

typedef struct csn_ranks {
    csn_str *tokens; /* [n_ids]; empty: no token has this rank */
    uint32_t n_ids;
    uint32_t n_lines; /* tokens */
    uint8_t *bytes;   /* of all tokens */
    uint32_t *slots;  /* rank + 1 by hash of the bytes, 0 = free */
    uint32_t mask;
} csn_ranks;

/* PARSE for a line of another form, a rank or a token given twice, or when not every byte is a
 * token (then there are texts without tokens); LIMIT. Errors tell the line as offset in `text`. */
caisson_status csn_ranks_read(csn_str text, csn_ranks *ret, caisson_error *err);
void csn_ranks_free(csn_ranks *r);
bool csn_ranks_find(const csn_ranks *r, csn_str token, uint32_t *ret);

#endif
