/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/header.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/utf8.h"

/* Labels are all that the format offers (facts 2.2); the directory has each tensor's dtype. */
csn_str csn_convert_quant_label(const csn_dtype *d) {
    static const char *const labels[][2] = {
        {"q8_row", "Q8_ROW"},     {"q8_2f", "Q8_2F"},   {"q4_block", "Q4_BLOCK"},
        {"q4_tiled", "Q4_BLOCK"}, {"q4tp", "Q4_BLOCK"}, {"f16", "F16"},
        {"bf16", "BF16"},         {"f32", "F32"},
    };
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        if (strcmp(d->name, labels[i][0]) == 0) {
            return csn_str_from(labels[i][1]);
        }
    }
    return CSN_STR("VBIT"); /* what the reference calls everything else */
}

static void write_provenance(csn_jw *w, const csn_source *s, const csn_source_file *files,
                             uint32_t n_files) {
    char hex[24];
    csn_jw_key(w, CSN_STR("provenance")); /* keys in byte order, as the reference writes them */
    csn_jw_object(w);
    csn_jw_key(w, CSN_STR("source_files"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < n_files; i++) {
        csn_jw_object(w);
        csn_jw_put_u64(w, "bytes", files[i].nbytes);
        snprintf(hex, sizeof(hex), "%016" PRIx64, files[i].hash);
        csn_jw_put_str(w, "hash64", csn_str_from(hex));
        csn_jw_put_str(w, "name", files[i].name);
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
    csn_jw_put_str(w, "source_format",
                   s->gguf != NULL   ? CSN_STR("gguf")
                   : s->warp != NULL ? CSN_STR("warp")
                   : s->is_synth     ? CSN_STR("synth")
                                     : CSN_STR("safetensors"));
    csn_jw_put_str(w, "source_model", s->name);
    csn_jw_put_str(w, "tool", CSN_STR("caisson"));
    csn_jw_object_end(w);
}

static void write_chat(csn_jw *w, const csn_source *s) {
    csn_jw_key(w, CSN_STR("tokenizer_config"));
    csn_jw_object(w);
    if (s->chat_template.len > 0) {
        csn_jw_put_str(w, "chat_template", s->chat_template);
    }
    csn_jw_key(w, CSN_STR("eos_token_ids"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < s->n_eos; i++) {
        csn_jw_u64(w, (uint64_t)s->eos_token_ids[i]);
    }
    csn_jw_array_end(w);
    csn_jw_put_id(w, "bos_token_id", s->bos_token_id);
    csn_jw_put_id(w, "pad_token_id", s->pad_token_id);
    if (s->has_special_tokens) {
        csn_jw_key(w, CSN_STR("special_tokens_map"));
        csn_jw_object(w);
        for (int i = 0; i < CSN_CMF_N_SPECIAL_TOKENS; i++) {
            if (s->special_tokens[i].len > 0) {
                csn_jw_put_str(w, csn_cmf_special_tokens[i], s->special_tokens[i]);
            }
        }
        csn_jw_object_end(w);
    }
    csn_jw_object_end(w);
}

/* A model in one file again: it is no shard. */
static caisson_status rewrite(const csn_cmf *c, const csn_dtype *quant, csn_buf *out,
                              caisson_error *err) {
    csn_buf value = CSN_BUF_INIT(64);
    csn_cmf_header_edit edits[] = {
        {.key = "shard"}, {.key = CSN_CMF_SHARD_SET}, {.key = "quant_type"}};
    size_t n = quant != NULL ? 3 : 2;
    caisson_status status =
        quant != NULL ? csn_buf_printf(&value, err, "\"%s\"", csn_convert_quant_label(quant).ptr)
                      : CAISSON_OK;
    if (status == CAISSON_OK) {
        edits[2].json = csn_buf_view(&value);
        csn_jw w = csn_jw_begin(out, err);
        csn_cmf_header_edit_write(c, edits, n, &w);
        status = csn_jw_end(&w);
    }
    csn_buf_free(&value);
    return status;
}

caisson_status csn_convert_header(const csn_source *s, const csn_dtype *quant,
                                  const csn_source_file *files, uint32_t n_files, csn_buf *out,
                                  caisson_error *err) {
    if (s->cmf != NULL) {
        return rewrite(s->cmf, quant, out, err);
    }
    csn_jw w = csn_jw_begin(out, err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "format", CSN_STR("cmf"));
    csn_jw_put_u64(&w, "version", 2);
    csn_jw_key(&w, CSN_STR("arch"));
    csn_arch_write(&s->arch, &w);
    csn_jw_put_str(
        &w, "quant_type",
        csn_convert_quant_label(quant != NULL ? quant : csn_dtype_by_name(CSN_STR("q8_row"))));
    write_provenance(&w, s, files, n_files);
    write_chat(&w, s);
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}
