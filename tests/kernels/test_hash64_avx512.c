/* SPDX-License-Identifier: Apache-2.0 */
/* base/x86/hash64_avx512.c on a CPU that lacks AVX-512: the very file, its intrinsics worked out in
 * plain C by SIMDe (libsimde-dev), against the plain C fold. What the compiler makes of it is
 * tested by unit/base/test_hash64.c where the CPU has it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<simde/x86/avx512.h>)
#define HAVE_SIMDE
#endif
#endif

#ifdef HAVE_SIMDE
#include <immintrin.h> /* before SIMDe gives its names to its own functions */

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include "base/hash64_fold.h"

#define csn_hash64_fold_avx512 emulated
uint64_t emulated(const uint8_t *p, size_t n_words);
#include "base/x86/hash64_avx512.c"

static void folds_as_plain_c(void **state) {
    (void)state;
    uint8_t bytes[8 * 100 + 8];
    uint32_t x = 1;
    for (size_t n = 0; n <= 100; n++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            x = x * 1664525 + 1013904223;
            bytes[i] = (uint8_t)(x >> 24);
        }
        assert_true(emulated(bytes + n % 8, n) == csn_hash64_fold_ref(bytes + n % 8, n));
    }
}
#else
static void folds_as_plain_c(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(folds_as_plain_c)};
    return cmocka_run_group_tests_name("base/hash64_avx512 (emulated)", tests, NULL, NULL);
}
