/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction sets this CPU and operating system offer. Detected once. */
#ifndef CSN_BASE_CPU_H
#define CSN_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CSN_CPU_FMA = 1 << 0,     /* FMA3 (x86) */
    CSN_CPU_AVX2 = 1 << 1,    /* AVX2 + FMA3 + F16C + BMI1, with the OS saving ymm */
    CSN_CPU_AVX512 = 1 << 2,  /* AVX2 above + F, BW, DQ, VL */
    CSN_CPU_VNNI512 = 1 << 3, /* AVX512 + VNNI */
    CSN_CPU_AVXVNNI = 1 << 4, /* VEX-encoded VNNI */
    CSN_CPU_VBMI512 = 1 << 5, /* VNNI512 + VBMI */
    CSN_CPU_NEON = 1 << 8,    /* aarch64 baseline */
    CSN_CPU_DOTPROD = 1 << 9, /* aarch64 SDOT */
};

uint32_t csn_cpu_flags(void);
/* False: fmaf() is worked out in software here, so that f32 arithmetic, whose bits are those of
 * fused steps everywhere, is many times slower than the CPU is. */
bool csn_cpu_has_fma(void);
/* Tests and benches: only these flags are used from now on (anded with what is there). Kernels
 * are chosen whenever they are asked for. */
void csn_cpu_mask(uint32_t mask);

#endif
