/* SPDX-License-Identifier: Apache-2.0 */
/* The heap, with one counter that lets tests fail the n-th allocation. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"

static _Atomic int64_t fail_after = -1; /* -1: never; else allocations left before failing */

void csn_alloc_fail_after(int64_t n) {
    atomic_store(&fail_after, n);
}

static bool may_allocate(void) {
    int64_t left = atomic_load_explicit(&fail_after, memory_order_relaxed);
    if (left < 0) {
        return true;
    }
    if (left == 0) {
        return false;
    }
    atomic_fetch_sub(&fail_after, 1);
    return true;
}

static bool total_size(size_t count, size_t size, size_t *ret) {
    uint64_t bytes;
    return csn_mul(count, size, &bytes) && bytes <= PTRDIFF_MAX && csn_to_size(bytes, ret);
}

caisson_status csn_alloc(size_t count, size_t size, void **ret, caisson_error *err) {
    size_t bytes;
    if (!total_size(count, size, &bytes) || !may_allocate()) {
        return csn_fail_nomem(err, (uint64_t)count * size);
    }
    void *p = calloc(1, bytes == 0 ? 1 : bytes);
    if (p == NULL) {
        return csn_fail_nomem(err, bytes);
    }
    *ret = p;
    return CAISSON_OK;
}

caisson_status csn_realloc(void **p, size_t count, size_t size, caisson_error *err) {
    size_t bytes;
    if (!total_size(count, size, &bytes) || !may_allocate()) {
        return csn_fail_nomem(err, (uint64_t)count * size);
    }
    void *q = realloc(*p, bytes == 0 ? 1 : bytes);
    if (q == NULL) {
        return csn_fail_nomem(err, bytes);
    }
    *p = q;
    return CAISSON_OK;
}

enum { PAGE_FROM = 64 << 10, PAGE = 4096, HUGE_FROM = 4 << 20, HUGE_PAGE = 2 << 20 };

static size_t alignment_of(uint64_t bytes) {
    return bytes >= HUGE_FROM ? HUGE_PAGE : bytes >= PAGE_FROM ? PAGE : 64;
}

uint64_t csn_alloc_aligned_nbytes(uint64_t bytes) {
    uint64_t rounded;
    return csn_align_up(bytes == 0 ? 1 : bytes, alignment_of(bytes), &rounded) ? rounded
                                                                               : UINT64_MAX;
}

caisson_status csn_alloc_aligned(size_t bytes, void **ret, caisson_error *err) {
    size_t align = alignment_of(bytes);
    uint64_t rounded = csn_alloc_aligned_nbytes(bytes);
    if (rounded > PTRDIFF_MAX || !may_allocate()) {
        return csn_fail_nomem(err, bytes);
    }
    void *p = aligned_alloc(align, (size_t)rounded);
    if (p == NULL) {
        return csn_fail_nomem(err, bytes);
    }
#ifdef MADV_HUGEPAGE
    if (align == HUGE_PAGE) {
        (void)madvise(p, (size_t)rounded, MADV_HUGEPAGE); /* advice only: failure costs speed */
    }
#endif
    *ret = p;
    return CAISSON_OK;
}

void csn_free(void *p) {
    free(p);
}

void csn_free_aligned(void *p) {
    free(p);
}
