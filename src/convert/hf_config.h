/* SPDX-License-Identifier: Apache-2.0 */
/* config.json for a model that goes back to Hugging Face: what the families read, the other way
 * round. */
#ifndef CSN_CONVERT_HF_CONFIG_H
#define CSN_CONVERT_HF_CONFIG_H

#include "format/cmf/cmf.h"

/* What of the model config.json has no words for, as a sentence; NULL: it can be written. */
const char *csn_hf_config_gap(const csn_cmf *c);
/* The object; dtype: of the weights beside it, "float16". Only when there is no gap. */
void csn_hf_config_write(const csn_cmf *c, const char *dtype, csn_jw *w);
/* The name that the checkpoint has for a tensor, in `arena`; and its shape there, of as many
 * values. */
caisson_status csn_hf_name(const csn_cmf *c, csn_str name, csn_arena *arena, csn_str *ret,
                           caisson_error *err);
csn_shape csn_hf_shape(const csn_cmf *c, const csn_tensor *t);
/* What its class adds to the mean square in norms of latents, whatever config.json says; 0: it has
 * no such rule. */
double csn_hf_latent_eps(const csn_cmf *c);
/* Whether its class has q, k and v in one matrix, and gate and up: qkv_proj, gate_up_proj. */
bool csn_hf_config_is_fused(const csn_cmf *c);

#endif
