/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CSN_CONVERT_FAMILIES_GEMMA_INTERNAL_H
#define CSN_CONVERT_FAMILIES_GEMMA_INTERNAL_H

#include "arch/arch.h"

/* Norm style, activation and embedding scale of all Gemmas; sizes must be set. */
void csn_gemma_common(csn_arch *a);

#endif
