/* SPDX-License-Identifier: Apache-2.0 */
/* CPU features, asked once. __builtin_cpu_supports checks the OS side (XCR0) as well. */
#include "base/cpu.h"

#include <stdatomic.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static _Atomic uint32_t mask = UINT32_MAX;

#if defined(__x86_64__)
/* Clang 14 does not know the name "f16c": CPUID leaf 1, ECX bit 29. */
static int has_f16c(void) {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx >> 29 & 1) != 0;
}
#endif

static uint32_t detect(void) {
    uint32_t f = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("fma")) {
        f |= CSN_CPU_FMA;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && has_f16c()) {
        f |= CSN_CPU_AVX2;
    }
    if ((f & CSN_CPU_AVX2) != 0 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        f |= CSN_CPU_AVX512;
        if (__builtin_cpu_supports("avx512vnni")) {
            f |= CSN_CPU_VNNI512;
            if (__builtin_cpu_supports("avx512vbmi")) {
                f |= CSN_CPU_VBMI512;
            }
        }
    }
#elif defined(__aarch64__)
    f |= CSN_CPU_NEON;
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) {
        f |= CSN_CPU_DOTPROD;
    }
#endif
    return f;
}

uint32_t csn_cpu_flags(void) {
    static _Atomic uint32_t known; /* 0 = not yet asked; bit 31 = asked */
    uint32_t f = atomic_load_explicit(&known, memory_order_relaxed);
    if (f == 0) {
        f = detect() | UINT32_C(1) << 31;
        atomic_store_explicit(&known, f, memory_order_relaxed);
    }
    return f & atomic_load_explicit(&mask, memory_order_relaxed) & ~(UINT32_C(1) << 31);
}

bool csn_cpu_has_fma(void) {
    return (csn_cpu_flags() & (CSN_CPU_FMA | CSN_CPU_NEON)) != 0;
}

void csn_cpu_mask(uint32_t m) {
    atomic_store(&mask, m);
}
