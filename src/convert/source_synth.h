/* SPDX-License-Identifier: Apache-2.0 */
/* A model of random weights as a source of conversion: what a config.json and the recipe of its
 * family say there is, filled with numbers when it is read. */
#ifndef CSN_CONVERT_SOURCE_SYNTH_H
#define CSN_CONVERT_SOURCE_SYNTH_H

#include "convert/plan.h"
#include "convert/synth_internal.h"

/* config: the text of a config.json. `size` decides on tensors that a family may have or not. */
caisson_status csn_source_new_synth(const csn_synth_size *size, const csn_warp_words *words,
                                    csn_str config, uint64_t seed, csn_source **ret,
                                    caisson_error *err);
/* The values of an item, [count of its shape]; the same for any number of threads. */
void csn_source_synth_fill(const csn_source *s, const csn_convert_item *item, csn_pool *pool,
                           float *out);

#endif
