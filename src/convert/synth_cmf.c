/* SPDX-License-Identifier: Apache-2.0 */
/* A .cmf of random weights: a source that makes them up, through the converter that every other
 * source passes. */
#include "convert/convert.h"
#include "convert/source_synth.h"
#include "format/warp/warp.h"

static const char chat_template[] =
    "{% for m in messages %}{{ '<|im_' + m['role'] + '|>' + m['role'] + '<|im_middle|>' + "
    "m['content'] + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_assistant|>assistant<|im_middle|>' }}{% endif %}";

/* config.json of a family without latent attention. */
static void put_config(const csn_synth_size *size, const csn_warp_words *c, csn_jw *w) {
    csn_jw_object(w);
    csn_jw_put_str(w, "model_type", csn_str_from(size->family));
    csn_jw_put_u64(w, "hidden_size", c->hidden_size);
    csn_jw_put_u64(w, "num_hidden_layers", c->n_layers);
    csn_jw_put_u64(w, "intermediate_size", c->intermediate_size);
    csn_jw_put_u64(w, "num_attention_heads", c->n_heads);
    csn_jw_put_u64(w, "num_key_value_heads", size->n_kv_heads);
    csn_jw_put_u64(w, "vocab_size", c->vocab_size);
    csn_jw_put_u64(w, "max_position_embeddings", 4096);
    csn_jw_put_f64(w, "rms_norm_eps", 1e-5);
    if (c->n_experts > 0) {
        csn_jw_put_u64(w, "num_experts", c->n_experts);
        csn_jw_put_u64(w, "num_experts_per_tok", c->top_k);
        csn_jw_put_u64(w, "moe_intermediate_size", c->expert_width);
    }
    for (int i = 0; i < CSN_SYNTH_MAX_EXTRA && size->extra[i].key != NULL; i++) {
        csn_jw_key(w, csn_str_from(size->extra[i].key));
        csn_jw_json(w, csn_str_from(size->extra[i].json));
    }
    csn_jw_object_end(w);
}

static caisson_status open_source(csn_synth_job *j, csn_source **ret) {
    csn_buf config = CSN_BUF_INIT(1 << 20);
    csn_jw w = csn_jw_begin(&config, j->err);
    if (j->size->is_warp) {
        csn_warp_words words = j->config;
        words.outer_class = NULL; /* the language model alone */
        words.n_group = 1;        /* a manifest may leave it out, a configuration may not */
        words.topk_group = 1;
        csn_warp_words_write(&words, &w);
    } else {
        put_config(j->size, &j->config, &w);
    }
    caisson_status status = csn_jw_end(&w);
    if (status == CAISSON_OK) {
        status = csn_source_new_synth(j->size, &j->config, csn_buf_view(&config), j->o->seed, ret,
                                      j->err);
    }
    csn_buf_free(&config);
    return status;
}

/* The tokenizer that a reader of the WARP files would make of them. */
static caisson_status add_text(csn_synth_job *j, csn_source *s) {
    csn_buf name = CSN_BUF_INIT(256);
    s->chat_template = csn_str_from(chat_template);
    CSN_TRY(csn_source_add_eos(s, j->text.eos_token_id, j->err));
    CSN_TRY(csn_warp_make_tokenizer(csn_buf_view(&j->text.ranks), j->text.list, CSN_SYNTH_SPECIALS,
                                    &s->tokenizer, j->err));
    CSN_TRY(csn_buf_printf(&name, j->err, "synth %s %s, seed %llu", j->size->family, j->size->size,
                           (unsigned long long)j->o->seed));
    caisson_status status = csn_arena_str(&s->arena, csn_buf_view(&name), &s->name, j->err);
    csn_buf_free(&name);
    return status;
}

caisson_status csn_synth_cmf(csn_synth_job *j) {
    csn_convert_options o = {.encode = {.encoder = CSN_ENCODER_REFERENCE}, /* quick; it is noise */
                             .n_threads = j->o->n_threads,
                             .overwrite = j->o->overwrite,
                             .progress = j->o->progress};
    csn_source *s;
    if (j->o->quant.len > 0) {
        o.quant = csn_dtype_by_name(j->o->quant);
        if (o.quant == NULL || o.quant->encode == NULL || o.quant->cmf_id == CSN_NO_ID) {
            return CSN_FAIL(j->err, CAISSON_E_ARG, .what = "not a tensor type that can be written",
                            .got = j->o->quant);
        }
    }
    CSN_TRY(open_source(j, &s));
    caisson_status status = add_text(j, s);
    if (status == CAISSON_OK) {
        status = csn_convert_source(j->fs, s, j->target, &o, j->err);
    }
    csn_source_close(s);
    return status;
}
