/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed all at once. Load-time structures live in an arena, so undoing is one call.
 * Not thread-safe. A zeroed csn_arena is a valid, empty one.
 */
#ifndef CSN_BASE_ARENA_H
#define CSN_BASE_ARENA_H

#include "base/alloc.h"
#include "base/str.h"

typedef struct csn_arena {
    struct csn_arena_block *head;
    size_t used_bytes; /* handed out so far */
} csn_arena;

/* count * size zeroed bytes, 16-aligned, good until csn_arena_done. */
caisson_status csn_arena_alloc(csn_arena *a, size_t count, size_t size, void **ret,
                               caisson_error *err);
/* Copy of s with a NUL behind it. */
caisson_status csn_arena_str(csn_arena *a, csn_str s, csn_str *ret, caisson_error *err);
void csn_arena_done(csn_arena *a); /* frees everything; the arena is empty and usable again */

#define CSN_ARENA_NEW(a, count, ret, err)                                                          \
    csn_arena_alloc((a), (count), sizeof(**(ret)), (void **)(ret), (err))

#endif
