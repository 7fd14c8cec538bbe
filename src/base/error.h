/* SPDX-License-Identifier: Apache-2.0 */
/* Filling the error record where the fact is known (docs/architecture.md, "Errors").
 *
 *   if (have != need)
 *       return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "directory", .tensor = name,
 *                       CSN_AT(entry_off), .what = "tensor bytes differ from shape x dtype",
 *                       CSN_VALUES(need, have));
 *   CSN_TRY(csn_reader_u32(r, &n_dims, err));
 *
 * Inside the library err is never NULL. Callers that know more (file name, layer) add it with
 * csn_error_file() and friends, which fill empty fields only and never rewrite the sentence.
 */
#ifndef CSN_BASE_ERROR_H
#define CSN_BASE_ERROR_H

#include <inttypes.h>
#include <stddef.h>

#include "caisson/error.h"
#include "base/str.h"

typedef struct csn_fail_args {
    const char *what;    /* the sentence, a literal */
    const char *file;    /* NUL-terminated, or NULL */
    const char *section; /* NUL-terminated, or NULL */
    csn_str tensor;      /* bytes of the file: made printable when stored */
    csn_str want, got;   /* the two values as text; when empty the numbers below are used */
    uint64_t want_u, got_u;
    bool has_numbers;
    bool has_offset;
    uint64_t offset, n_bytes;
    int sys_errno;
} csn_fail_args;

caisson_status csn_fail(caisson_error *err, caisson_status code, const csn_fail_args *args);

/* Inline, so that compiler and analyser see: a failure is never CAISSON_OK. */
static inline caisson_status csn_fail_code(caisson_error *err, caisson_status code,
                                           const csn_fail_args *args) {
    (void)csn_fail(err, code, args);
    return code;
}

#define CSN_FAIL(err, code_, ...) csn_fail_code((err), (code_), &(csn_fail_args){__VA_ARGS__})
#define CSN_VALUES(need, have)                                                                     \
    .has_numbers = true, .want_u = (uint64_t)(need), .got_u = (uint64_t)(have)
#define CSN_TEXTS(need, have) .want = (need), .got = (have)
#define CSN_AT(off) .has_offset = true, .offset = (uint64_t)(off)
#define CSN_RANGE(off, n) CSN_AT(off), .n_bytes = (uint64_t)(n)

/* Returns the failure upwards: only where nothing needs undoing. */
#define CSN_TRY(expr)                                                                              \
    do {                                                                                           \
        caisson_status csn_try_status_ = (expr);                                                   \
        if (csn_try_status_ != CAISSON_OK)                                                         \
            return csn_try_status_;                                                                \
    } while (0)

/* Fail with the "out of memory" sentence; `bytes` is what was asked for. */
void csn_fail_no_memory(caisson_error *err, uint64_t bytes);
static inline caisson_status csn_fail_nomem(caisson_error *err, uint64_t bytes) {
    csn_fail_no_memory(err, bytes);
    return CAISSON_E_NOMEM;
}

/* Fill a field that is still empty. */
void csn_error_file(caisson_error *err, const char *file);
void csn_error_section(caisson_error *err, const char *section);
void csn_error_tensor(caisson_error *err, csn_str tensor);

#endif
