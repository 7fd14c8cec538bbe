/* SPDX-License-Identifier: Apache-2.0 */
/* A model as somebody stored it: a GGUF file (or its parts), a Hugging Face directory, a WARP
 * directory, or a .cmf (or its shards); or one that is made up (source_synth.h). After open,
 * everything but the weights is understood: arch, tokenizer.json, chat bundle. */
#ifndef CSN_CONVERT_SOURCE_H
#define CSN_CONVERT_SOURCE_H

#include "base/log.h"
#include "convert/family.h"
#include "format/cmf/cmf.h"
#include "format/gguf/gguf.h"
#include "format/safetensors/safetensors.h"
#include "format/warp/warp.h"

typedef struct csn_source {
    csn_gguf *gguf; /* one of the four */
    csn_safetensors *weights;
    csn_cmf *cmf;   /* family, name, eos_token_ids, config: empty */
    csn_warp *warp; /* family and config: empty */
    bool is_synth;  /* weights are made up when they are read, of this seed */
    uint64_t synth_seed;
    const csn_directory *dir; /* of whichever */
    csn_file **files;         /* [n_files] of whichever */
    uint32_t n_files;
    const csn_family *family;
    csn_arch arch;
    csn_str name;           /* what to call the model; may be empty */
    csn_buf tokenizer;      /* tokenizer.json; empty = the source has none */
    csn_buf masks;          /* .cmf: the masks section; empty = none */
    csn_str chat_template;  /* empty = none */
    int32_t *eos_token_ids; /* [n_eos] */
    uint32_t n_eos;
    int32_t bos_token_id, pad_token_id; /* -1 = none */
    bool has_special_tokens;            /* the source says which token each name stands for */
    csn_str special_tokens[CSN_CMF_N_SPECIAL_TOKENS]; /* empty = that name has none */
    csn_biases attention_bias, mlp_bias, output_gate; /* that there have to be */
    bool has_f8_blocks; /* weight_scale_inv, 128 x 128, belongs to f8 weights */
    csn_json *config;   /* config.json */
    csn_arena arena;
} csn_source;

/* Recognised by content: "GGUF" or "CMF" in a file; a directory with config.json; a .safetensors
 * file (its directory is taken). CAISSON_E_MAGIC if it is none of them. */
caisson_status csn_source_open(csn_fs *fs, const char *path, const csn_log *log, csn_source **ret,
                               caisson_error *err);
void csn_source_close(csn_source *s); /* NULL is fine */
/* What a path's last file or directory is called, slashes behind it aside. */
csn_str csn_source_last_name(const char *path);

/* Adds an id once; -1 is ignored. Beyond arch.vocab_size: CAISSON_E_PARSE, it would never come. */
caisson_status csn_source_add_eos(csn_source *s, int64_t id, caisson_error *err);

/* A named chat template beside the default one, for tools as a rule: .cmf holds one template. */
void csn_source_tell_template(csn_str name, const csn_log *log);

/* What a config.json says, into family, arch and biases of an empty source. */
caisson_status csn_source_read_config(csn_source *s, const csn_jval *root, const csn_log *log,
                                      caisson_error *err);
/* The three kinds (source_gguf.c, source_hf.c, source_cmf.c): fill an empty source. */
caisson_status csn_source_read_gguf(csn_source *s, csn_fs *fs, const char *path, const csn_log *log,
                                    caisson_error *err);
caisson_status csn_source_read_hf(csn_source *s, csn_fs *fs, const char *dir, const csn_log *log,
                                  caisson_error *err);
caisson_status csn_source_read_cmf(csn_source *s, csn_fs *fs, const char *path, caisson_error *err);

/* Warns of the task masks of a .cmf that becomes `target`, which has none: those that the file runs
 * with would be missed. */
void csn_source_tell_masks(const csn_cmf *cmf, const char *target, const csn_log *log);

#endif
