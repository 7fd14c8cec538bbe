/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CSN_KERNELS_VEC_INTERNAL_H
#define CSN_KERNELS_VEC_INTERNAL_H

#include "kernels/vec.h"

extern const csn_vec csn_vec_ref;  /* the baseline of the machine */
extern const csn_vec csn_vec_avx2; /* x86-64 with CSN_CPU_AVX2 */

#endif
