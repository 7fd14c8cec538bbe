/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/vec_tables.h"
#define CSN_VEC_TABLE csn_vec_ref
#include "kernels/vec_template.h"
