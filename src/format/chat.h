/* SPDX-License-Identifier: Apache-2.0 */
/* What a container says about conversations: template, special tokens, end of an answer. */
#ifndef CSN_FORMAT_CHAT_H
#define CSN_FORMAT_CHAT_H

#include "base/str.h"

/* The named special tokens that templates may use: bos_token, eos_token, ... */
enum { CSN_CMF_N_SPECIAL_TOKENS = 7 };
extern const char *const csn_cmf_special_tokens[CSN_CMF_N_SPECIAL_TOKENS];

typedef struct csn_chat_bundle { /* header.tokenizer_config (facts 7.4) */
    bool present;
    csn_str chat_template;  /* empty = none */
    int32_t *eos_token_ids; /* [n_eos] */
    uint32_t n_eos;
    int32_t bos_token_id, pad_token_id; /* -1 = null */
    /* Our addition to the bundle, `special_tokens_map`: which token each name stands for, as in
     * tokenizer_config.json. Texts, empty = that name has none; has_special_tokens false: the file
     * does not say. */
    bool has_special_tokens;
    csn_str special_tokens[CSN_CMF_N_SPECIAL_TOKENS];
} csn_chat_bundle;

#endif
