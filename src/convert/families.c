/* SPDX-License-Identifier: Apache-2.0 */
/* The table of model families. To add one: a file in families/, a row here. */
#include "convert/family.h"

extern const csn_family csn_family_llama, csn_family_mistral, csn_family_qwen2, csn_family_qwen3,
    csn_family_gemma, csn_family_gemma2, csn_family_gemma3, csn_family_phi3, csn_family_qwen2_moe,
    csn_family_qwen3_moe, csn_family_smollm3, csn_family_deepseek_v2, csn_family_deepseek_v3,
    csn_family_kimi_linear, csn_family_kimi_k3;

const csn_family *const csn_families[] = {
    &csn_family_llama,       &csn_family_mistral,     &csn_family_qwen2,   &csn_family_qwen3,
    &csn_family_gemma,       &csn_family_gemma2,      &csn_family_gemma3,  &csn_family_phi3,
    &csn_family_qwen2_moe,   &csn_family_qwen3_moe,   &csn_family_smollm3, &csn_family_deepseek_v2,
    &csn_family_deepseek_v3, &csn_family_kimi_linear, &csn_family_kimi_k3, NULL,
};

caisson_status csn_family_find(csn_str name, bool is_gguf, const csn_family **ret,
                               caisson_error *err) {
    csn_buf list = CSN_BUF_INIT(1024);
    caisson_error ignored;
    for (size_t i = 0; csn_families[i] != NULL; i++) {
        const char *const *names = is_gguf ? csn_families[i]->gguf_names : csn_families[i]->names;
        for (size_t k = 0; names[k] != NULL; k++) {
            if (csn_str_is(name, names[k])) {
                csn_buf_free(&list);
                *ret = csn_families[i];
                return CAISSON_OK;
            }
            (void)csn_buf_printf(&list, &ignored, "%s%s", list.len > 0 ? " " : "", names[k]);
        }
    }
    caisson_status status =
        CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = is_gguf ? "metadata" : "config.json",
                 .tensor = csn_str_from(is_gguf ? "general.architecture" : "model_type"),
                 .what = "model family is not supported", CSN_TEXTS(csn_buf_view(&list), name));
    csn_buf_free(&list);
    return status;
}
