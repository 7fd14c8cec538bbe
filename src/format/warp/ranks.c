/* SPDX-License-Identifier: Apache-2.0 */
#include "format/warp/ranks.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/digest.h"
#include "base/le.h"
#include "caisson/limits.h"

/* Of the first `len` bytes of a line; no line is longer that names a token. */
enum { MAX_LINE = (CSN_RANKS_MAX_TOKEN + 2) / 3 * 4 + 1 + 10 };

static uint32_t first_slot(const csn_ranks *r, csn_str token) {
    uint8_t digest[CSN_DIGEST_BYTES];
    csn_digest_piece(token.ptr, token.len, digest);
    return csn_get32(digest) & r->mask;
}

bool csn_ranks_find(const csn_ranks *r, csn_str token, uint32_t *ret) {
    for (uint32_t i = first_slot(r, token); r->slots[i] != 0; i = (i + 1) & r->mask) {
        if (csn_str_eq(r->tokens[r->slots[i] - 1], token)) {
            *ret = r->slots[i] - 1;
            return true;
        }
    }
    return false;
}

static bool next_line(csn_str text, size_t *at, csn_str *ret) {
    if (*at >= text.len) {
        return false;
    }
    size_t end = csn_str_find(text, CSN_STR("\n"), *at);
    end = end == SIZE_MAX ? text.len : end;
    size_t n = end - *at;
    n -= n > 0 && text.ptr[end - 1] == '\r';
    *ret = csn_str_make(text.ptr + *at, n);
    *at = end + 1;
    return true;
}

static caisson_status fail(caisson_error *err, csn_str text, csn_str line, const char *what) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "ranks", CSN_AT(line.ptr - text.ptr),
                    .what = what, .got = csn_str_make(line.ptr, line.len < 64 ? line.len : 64));
}

/* The two halves of a line; false: it is not of that form. */
static bool split(csn_str line, csn_str *ret_base64, uint32_t *ret_rank) {
    size_t blank = csn_str_find(line, CSN_STR(" "), 0);
    uint64_t rank;
    if (line.len > MAX_LINE || blank == SIZE_MAX || blank == 0 ||
        !csn_str_to_u64(csn_str_make(line.ptr + blank + 1, line.len - blank - 1), &rank) ||
        rank >= CAISSON_MAX_TOKENS) {
        return false;
    }
    *ret_base64 = csn_str_make(line.ptr, blank);
    *ret_rank = (uint32_t)rank;
    return true;
}

/* Lines and ids, so that nothing grows later. */
static caisson_status count(csn_str text, csn_ranks *r, caisson_error *err) {
    csn_str line, base64;
    uint32_t rank;
    for (size_t at = 0; next_line(text, &at, &line);) {
        if (!split(line, &base64, &rank)) {
            return fail(err, text, line, "line is not base64, a blank and a rank below 2^22");
        }
        r->n_ids = rank >= r->n_ids ? rank + 1 : r->n_ids;
        if (++r->n_lines > CAISSON_MAX_TOKENS) {
            return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "ranks", .what = "too many tokens",
                            CSN_VALUES(CAISSON_MAX_TOKENS, r->n_lines));
        }
    }
    return CAISSON_OK;
}

static caisson_status add(csn_ranks *r, csn_str text, csn_str line, csn_str token, uint32_t rank,
                          caisson_error *err) {
    uint32_t known;
    if (r->tokens[rank].len > 0) {
        return fail(err, text, line, "a rank given twice");
    }
    if (csn_ranks_find(r, token, &known)) {
        return fail(err, text, line, "a token given twice");
    }
    r->tokens[rank] = token;
    uint32_t i = first_slot(r, token);
    while (r->slots[i] != 0) {
        i = (i + 1) & r->mask;
    }
    r->slots[i] = rank + 1;
    return CAISSON_OK;
}

static caisson_status read_lines(csn_str text, csn_ranks *r, caisson_error *err) {
    csn_str line, base64 = {0};
    uint32_t rank = 0;
    size_t used = 0;
    for (size_t at = 0; next_line(text, &at, &line);) {
        size_t n;
        (void)split(line, &base64, &rank);
        if (!csn_base64_decode(base64, r->bytes + used, &n) || n == 0) {
            return fail(err, text, line, "not base64");
        }
        CSN_TRY(add(r, text, line, csn_str_make((char *)r->bytes + used, n), rank, err));
        used += n;
    }
    for (unsigned b = 0; b < 256; b++) {
        char byte = (char)b;
        if (!csn_ranks_find(r, csn_str_make(&byte, 1), &rank)) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .section = "ranks",
                            .what = "a byte is no token: not every text could be written",
                            .has_numbers = true, .want_u = 256, .got_u = b);
        }
    }
    return CAISSON_OK;
}

caisson_status csn_ranks_read(csn_str text, csn_ranks *ret, caisson_error *err) {
    csn_ranks r = {0};
    CSN_TRY(count(text, &r, err));
    uint32_t n_slots = 64;
    while (n_slots < 2 * r.n_lines) {
        n_slots *= 2;
    }
    r.mask = n_slots - 1;
    caisson_status status = CSN_NEW((size_t)r.n_ids + 1, &r.tokens, err);
    if (status == CAISSON_OK) {
        status = CSN_NEW(n_slots, &r.slots, err);
    }
    if (status == CAISSON_OK) {
        status = CSN_NEW(text.len / 4 * 3 + 3, &r.bytes, err);
    }
    if (status == CAISSON_OK) {
        status = read_lines(text, &r, err);
    }
    if (status != CAISSON_OK) {
        csn_ranks_free(&r);
        return status;
    }
    *ret = r;
    return CAISSON_OK;
}

void csn_ranks_free(csn_ranks *r) {
    csn_free(r->tokens);
    csn_free(r->slots);
    csn_free(r->bytes);
    *r = (csn_ranks){0};
}
