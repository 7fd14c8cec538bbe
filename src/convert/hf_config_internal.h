/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of config.json share. */
#ifndef CSN_CONVERT_HF_CONFIG_INTERNAL_H
#define CSN_CONVERT_HF_CONFIG_INTERNAL_H

#include "base/json.h"
#include "format/cmf/cmf.h"

static inline void csn_key_u32(csn_jw *w, const char *key, uint32_t v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_u64(w, v);
}

static inline void csn_key_f64(csn_jw *w, const char *key, double v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_f64(w, v);
}

static inline void csn_key_f32(csn_jw *w, const char *key, float v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_f32(w, v);
}

static inline void csn_key_str(csn_jw *w, const char *key, const char *v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_str(w, csn_str_from(v));
}

static inline void csn_key_bool(csn_jw *w, const char *key, bool v) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_bool(w, v);
}

/* hf_config_latent.c: what is in the way of a class with latent attention, or NULL. */
const char *csn_hf_latent_gap(const csn_arch *a, bool is_k3);
/* Its keys beside those that all classes have. is_deepseek: of DeepSeek-V3, else of Kimi. */
void csn_hf_put_latent(const csn_cmf *c, bool is_deepseek, bool is_k3, csn_jw *w);

#endif
