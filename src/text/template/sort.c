/* SPDX-License-Identifier: Apache-2.0 */
/* Stable merge sort: comparing may fail, which the C library's qsort has no word for. */
#include "text/template/value_internal.h"

caisson_status csn_tv_sort(trun *r, tval *items, tval *keys, size_t n, bool is_reverse) {
    tval *to_items;
    tval *to_keys;
    CSN_TRY(TR_NEW(r, n, &to_items));
    CSN_TRY(TR_NEW(r, n, &to_keys));
    tval *out_items = items;
    tval *out_keys = keys;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n;
            size_t hi = lo + 2 * width < n ? lo + 2 * width : n;
            size_t a = lo;
            size_t b = mid;
            for (size_t o = lo; o < hi; o++) {
                bool takes_b = a == mid;
                if (a < mid && b < hi) { /* b goes first only if it is less: stable */
                    int c = 0;
                    bool is_nan;
                    /* Python asks only "<"; a reversed sort keeps equal items in their order. */
                    CSN_TRY(csn_tv_compare(r, is_reverse ? keys[a] : keys[b],
                                           is_reverse ? keys[b] : keys[a], "<", &c, &is_nan));
                    takes_b = !is_nan && c < 0;
                }
                size_t from = takes_b ? b++ : a++;
                to_items[o] = items[from];
                to_keys[o] = keys[from];
            }
        }
        tval *swap = items;
        items = to_items;
        to_items = swap;
        swap = keys;
        keys = to_keys;
        to_keys = swap;
    }
    if (items != out_items && n > 0) {
        memcpy(out_items, items, n * sizeof(tval));
        memcpy(out_keys, keys, n * sizeof(tval));
    }
    return CAISSON_OK;
}
