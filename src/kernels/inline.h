/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels say about inlining and unrolling. */
#ifndef CSN_KERNELS_INLINE_H
#define CSN_KERNELS_INLINE_H

#define CSN_INLINE static inline __attribute__((always_inline))
/* Large arrays of alternatives must not add up in one frame. */
#define CSN_OUTLINE static __attribute__((noinline))
#ifdef __clang__
#define CSN_UNROLL _Pragma("unroll")
#define CSN_UNROLL_4 _Pragma("unroll 4")
#else
#define CSN_UNROLL _Pragma("GCC unroll 8")
#define CSN_UNROLL_4 _Pragma("GCC unroll 4")
#endif

#endif
