/* SPDX-License-Identifier: Apache-2.0 */
/* Byte strings as views, and a growing buffer that has its maximum from birth.
 *
 * A csn_str never owns and never assumes a final NUL. A csn_buf owns its bytes and always keeps a
 * NUL behind them, so buf.ptr can be handed to C (when it holds no NUL of its own).
 */
#ifndef CSN_BASE_STR_H
#define CSN_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "caisson/error.h"

typedef struct csn_str {
    const char *ptr;
    size_t len;
} csn_str;

#define CSN_STR(literal) ((csn_str){"" literal, sizeof(literal) - 1})
#define CSN_STR_ARGS(s) (int)(s).len, (s).ptr /* for "%.*s" */

static inline csn_str csn_str_from(const char *z) {
    return (csn_str){z, z != NULL ? strlen(z) : 0};
}
static inline csn_str csn_str_make(const char *ptr, size_t len) {
    return (csn_str){ptr, len};
}
static inline bool csn_str_eq(csn_str a, csn_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}
static inline bool csn_str_is(csn_str a, const char *z) {
    return csn_str_eq(a, csn_str_from(z));
}
bool csn_str_starts(csn_str s, csn_str prefix);
bool csn_str_ends(csn_str s, csn_str suffix);
/* Byte order, shorter first on a tie: <0, 0, >0. */
int csn_str_cmp(csn_str a, csn_str b);
/* Index of the first occurrence at or after `from`, or SIZE_MAX. */
size_t csn_str_find(csn_str s, csn_str needle, size_t from);
/* A decimal unsigned number without sign, space or leading '+'; false if it is anything else or
 * does not fit. */
bool csn_str_to_u64(csn_str s, uint64_t *ret);

typedef struct csn_buf {
    char *ptr; /* NULL while empty and never grown */
    size_t len;
    size_t cap;
    size_t max; /* appending past it is CAISSON_E_LIMIT */
} csn_buf;

#define CSN_BUF_INIT(max_) ((csn_buf){.max = (max_)})

caisson_status csn_buf_reserve(csn_buf *b, size_t more, caisson_error *err);
caisson_status csn_buf_append(csn_buf *b, const void *bytes, size_t n, caisson_error *err);
caisson_status csn_buf_str(csn_buf *b, csn_str s, caisson_error *err);
caisson_status csn_buf_char(csn_buf *b, char c, caisson_error *err);
caisson_status csn_buf_printf(csn_buf *b, caisson_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline csn_str csn_buf_view(const csn_buf *b) {
    return (csn_str){b->ptr != NULL ? b->ptr : "", b->len};
}
void csn_buf_free(csn_buf *b); /* back to empty; max is kept */

#endif
