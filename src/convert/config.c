/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/config.h"

#include <math.h>

/* Training, generation defaults, bookkeeping, and token ids (which are read from elsewhere). */
const char *const csn_config_inert[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_model_name_or_path",
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "mask_token_id",
    "max_length",
    "max_sequence_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp", /* a way to cut the product for training; results are those of 1 */
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    NULL,
};

caisson_status csn_config_init(csn_config *c, const csn_jval *object, const char *section,
                               csn_arena *arena, caisson_error *err) {
    csn_jkind kind = csn_jval_kind(object);
    if (kind != CSN_JSON_OBJECT && kind != CSN_JSON_ABSENT) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = section, .what = "not a JSON object");
    }
    *c = (csn_config){.object = object, .section = section};
    return CSN_ARENA_NEW(arena, csn_jval_len(object) + 1, &c->used, err);
}

const csn_jval *csn_config_get(csn_config *c, const char *key) {
    for (csn_jiter it = csn_jval_iter(c->object); csn_jiter_next(&it);) {
        if (csn_str_is(it.key, key)) {
            c->used[it.index] = true;
            return csn_jval_kind(it.value) == CSN_JSON_NULL ? NULL : it.value;
        }
    }
    return NULL;
}

caisson_status csn_config_need(csn_config *c, const char *key, const char *other,
                               caisson_error *err) {
    return csn_config_get(c, key) != NULL || (other != NULL && csn_config_get(c, other) != NULL)
               ? CAISSON_OK
               : CSN_FAIL(err, CAISSON_E_MISSING, .section = c->section,
                          .tensor = csn_str_from(key),
                          .what = "the configuration does not say this, and it changes the result");
}

/* A value as short text, for errors. */
static csn_str show(const csn_jval *v, csn_buf *buf) {
    caisson_error ignored;
    *buf = CSN_BUF_INIT(1 << 20);
    csn_jw w = csn_jw_begin(buf, &ignored);
    csn_jw_value(&w, v);
    return csn_jw_end(&w) == CAISSON_OK ? csn_buf_view(buf) : CSN_STR("?");
}

static caisson_status fail_value(const csn_config *c, caisson_status code, csn_str key,
                                 const char *what, const char *want, const csn_jval *v,
                                 caisson_error *err) {
    csn_buf buf;
    csn_str text = show(v, &buf);
    caisson_status status = CSN_FAIL(err, code, .section = c->section, .tensor = key, .what = what,
                                     CSN_TEXTS(csn_str_from(want), text));
    csn_buf_free(&buf);
    return status;
}

static caisson_status fail_type(const csn_config *c, const char *key, const char *want,
                                const csn_jval *v, caisson_error *err) {
    return fail_value(c, CAISSON_E_PARSE, csn_str_from(key), "value of another type or range", want,
                      v, err);
}

caisson_status csn_config_u32(csn_config *c, const char *key, uint32_t *ret, caisson_error *err) {
    const csn_jval *v = csn_config_get(c, key);
    uint64_t u;
    if (v == NULL) {
        return CAISSON_OK;
    }
    if (!csn_jval_u64(v, &u) || u > INT32_MAX) {
        return fail_type(c, key, "an integer in 0..2^31-1", v, err);
    }
    *ret = (uint32_t)u;
    return CAISSON_OK;
}

caisson_status csn_config_f64(csn_config *c, const char *key, double *ret, caisson_error *err) {
    const csn_jval *v = csn_config_get(c, key);
    double d;
    if (v == NULL) {
        return CAISSON_OK;
    }
    if (!csn_jval_f64(v, &d) || !isfinite(d)) {
        return fail_type(c, key, "a number", v, err);
    }
    *ret = d;
    return CAISSON_OK;
}

caisson_status csn_config_positive(csn_config *c, const char *key, double *ret,
                                   caisson_error *err) {
    const csn_jval *v = csn_config_get(c, key);
    double d = 0;
    CSN_TRY(csn_config_f64(c, key, &d, err));
    if (v != NULL && d <= 0) {
        return fail_type(c, key, "a number above 0", v, err);
    }
    *ret = v != NULL ? d : *ret;
    return CAISSON_OK;
}

caisson_status csn_config_bool(csn_config *c, const char *key, bool *ret, caisson_error *err) {
    const csn_jval *v = csn_config_get(c, key);
    if (v != NULL && !csn_jval_bool(v, ret)) {
        return fail_type(c, key, "true or false", v, err);
    }
    return CAISSON_OK;
}

caisson_status csn_config_biases(csn_config *c, const char *key, bool fallback, csn_biases which,
                                 csn_biases *ret, caisson_error *err) {
    bool has = fallback;
    CSN_TRY(csn_config_bool(c, key, &has, err));
    *ret = has ? which : CSN_BIASES_NONE;
    return CAISSON_OK;
}

caisson_status csn_config_str(csn_config *c, const char *key, csn_str *ret, caisson_error *err) {
    const csn_jval *v = csn_config_get(c, key);
    if (v != NULL && !csn_jval_str(v, ret)) {
        return fail_type(c, key, "a string", v, err);
    }
    return CAISSON_OK;
}

caisson_status csn_config_f64s(csn_config *c, const char *key, csn_arena *arena, double **ret,
                               uint32_t *ret_n, caisson_error *err) {
    const csn_jval *v = csn_config_get(c, key);
    double *out = NULL;
    size_t n = csn_jval_len(v);
    *ret = NULL;
    *ret_n = 0;
    if (v == NULL) {
        return CAISSON_OK;
    }
    if (csn_jval_kind(v) != CSN_JSON_ARRAY || n > 1 << 20) {
        return fail_type(c, key, "an array of numbers", v, err);
    }
    CSN_TRY(CSN_ARENA_NEW(arena, n, &out, err));
    for (csn_jiter it = csn_jval_iter(v); csn_jiter_next(&it);) {
        if (!csn_jval_f64(it.value, &out[it.index]) || !isfinite(out[it.index])) {
            return fail_type(c, key, "an array of numbers", it.value, err);
        }
    }
    *ret = out;
    *ret_n = (uint32_t)n;
    return CAISSON_OK;
}

caisson_status csn_config_refuse(const csn_config *c, const char *key, const char *what,
                                 caisson_error *err) {
    return fail_value(c, CAISSON_E_UNSUPPORTED, csn_str_from(key), what, "",
                      csn_jval_get(c->object, key), err);
}

caisson_status csn_config_refuse_true(csn_config *c, const char *key, caisson_error *err) {
    bool on = false;
    CSN_TRY(csn_config_bool(c, key, &on, err));
    return on ? csn_config_refuse(c, key, "this option of the model is not supported", err)
              : CAISSON_OK;
}

caisson_status csn_config_expect(csn_config *c, const char *key, double value, caisson_error *err) {
    double d = value;
    CSN_TRY(csn_config_f64(c, key, &d, err));
    return d == value ? CAISSON_OK
                      : csn_config_refuse(c, key, "this value of the option is not supported", err);
}

static bool is_inert(csn_str key) {
    for (size_t i = 0; csn_config_inert[i] != NULL; i++) {
        if (csn_str_is(key, csn_config_inert[i])) {
            return true;
        }
    }
    return false;
}

caisson_status csn_config_end(const csn_config *c, bool allow_inert, caisson_error *err) {
    for (csn_jiter it = csn_jval_iter(c->object); csn_jiter_next(&it);) {
        if (!c->used[it.index] && csn_jval_kind(it.value) != CSN_JSON_NULL &&
            !(allow_inert && is_inert(it.key))) {
            return fail_value(c, CAISSON_E_UNSUPPORTED, it.key,
                              "key is not understood; it may change the arithmetic", "", it.value,
                              err);
        }
    }
    return CAISSON_OK;
}
