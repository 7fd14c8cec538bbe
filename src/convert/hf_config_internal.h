/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of config.json share. */
#ifndef CSN_CONVERT_HF_CONFIG_INTERNAL_H
#define CSN_CONVERT_HF_CONFIG_INTERNAL_H

#include "base/json.h"
#include "format/cmf/cmf.h"

/* True if layer i is a mixture of experts. */
bool csn_hf_has_router(const csn_cmf *c, uint32_t i);
/* hf_config_latent.c: what is in the way of a class with latent attention, or NULL. */
const char *csn_hf_latent_gap(const csn_cmf *c, const char *model_type);
/* Its keys beside those that all classes have. is_deepseek: of DeepSeek, else of Kimi. */
void csn_hf_put_latent(const csn_cmf *c, bool is_deepseek, bool is_k3, csn_jw *w);

#endif
