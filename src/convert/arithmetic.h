/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two descriptions of a model compute alike, however they say it. */
#ifndef CSN_CONVERT_ARITHMETIC_H
#define CSN_CONVERT_ARITHMETIC_H

#include "arch/arch.h"

/* Names, lengths, widths that shapes tell and the size of the vocabulary aside, and numbers to five
 * digits: of one model a GGUF file has f32 where a checkpoint has decimals. CAISSON_E_PARSE with
 * the key, `want`'s value, `got`'s, and the sentence `what`. */
caisson_status csn_arithmetic_check(const csn_arch *got, const csn_arch *want, const char *what,
                                    caisson_error *err);

#endif
