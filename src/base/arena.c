/* SPDX-License-Identifier: Apache-2.0 */
/* A list of blocks; the newest block serves small requests, a large request gets its own. */
#include "base/arena.h"

#include <stdalign.h>

#include "base/size.h"

struct csn_arena_block {
    struct csn_arena_block *next;
    size_t used, cap;
    alignas(16) unsigned char bytes[];
};

enum { BLOCK_BYTES = 64 << 10, ALIGN = 16 };

caisson_status csn_arena_alloc(csn_arena *a, size_t count, size_t size, void **ret,
                               caisson_error *err) {
    uint64_t bytes;
    if (!csn_mul(count, size, &bytes) || !csn_align_up(bytes, ALIGN, &bytes) ||
        bytes > PTRDIFF_MAX / 2) {
        return csn_fail_nomem(err, (uint64_t)count * size);
    }
    size_t n = (size_t)bytes;
    struct csn_arena_block *b = a->head;
    if (b == NULL || b->cap - b->used < n) {
        size_t cap = n > BLOCK_BYTES / 4 ? n : BLOCK_BYTES;
        CSN_TRY(csn_alloc(1, sizeof(*b) + cap, (void **)&b, err));
        b->cap = cap;
        if (cap == n && a->head != NULL) { /* keep the half-used block in front */
            b->next = a->head->next;
            a->head->next = b;
        } else {
            b->next = a->head;
            a->head = b;
        }
    }
    *ret = b->bytes + b->used;
    b->used += n;
    a->used_bytes += n;
    return CAISSON_OK;
}

caisson_status csn_arena_str(csn_arena *a, csn_str s, csn_str *ret, caisson_error *err) {
    char *p = NULL;
    CSN_TRY(csn_arena_alloc(a, s.len + 1, 1, (void **)&p, err));
    if (s.len > 0) {
        memcpy(p, s.ptr, s.len);
    }
    *ret = csn_str_make(p, s.len);
    return CAISSON_OK;
}

void csn_arena_done(csn_arena *a) {
    struct csn_arena_block *b = a->head;
    while (b != NULL) {
        struct csn_arena_block *next = b->next;
        csn_free(b);
        b = next;
    }
    *a = (csn_arena){0};
}
