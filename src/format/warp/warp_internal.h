/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of opening a .waste directory, one file each. */
#ifndef CSN_FORMAT_WARP_INTERNAL_H
#define CSN_FORMAT_WARP_INTERNAL_H

#include "base/le.h"
#include "base/size.h"
#include "format/warp/warp.h"

enum {
    CSN_WARP_MAX_LAYERS = 128,
    CSN_WARP_MAX_PREFIX = 63,
    CSN_WARP_MAX_NAME = 127,     /* of a tensor */
    CSN_WARP_MAX_FILE_NAME = 63, /* of a bank */
    CSN_WARP_BOOK_HEADER = 16,
    CSN_WARP_MAX_BOOKS = 65535 /* a record has 16 bits for the number of its first one */
};

/* fmt bytes of expert records and codebooks (facts 4, 5). */
enum { CSN_WARP_FMT_VQ3R = 4, CSN_WARP_FMT_VQ2R = 5, CSN_WARP_FMT_SUB1 = 6, CSN_WARP_FMT_VQ4P = 8 };

/* Record header (facts 5): where each field begins. */
enum {
    CSN_WARP_REC_MAGIC = 0,
    CSN_WARP_REC_LAYER = 4,
    CSN_WARP_REC_EXPERT = 6,
    CSN_WARP_REC_FMT = 8,
    CSN_WARP_REC_FLAGS = 9,
    CSN_WARP_REC_CODEBOOK = 10,
    CSN_WARP_REC_LOWRANK = 12,
    CSN_WARP_REC_RESERVED0 = 14,
    CSN_WARP_REC_PAGES = 16,
    CSN_WARP_REC_GATE = 20, /* then up, down, scales: four u32 */
    CSN_WARP_REC_SCALES = 32,
    CSN_WARP_REC_CRC = 36,
    CSN_WARP_REC_RESERVED1 = 40
};

#define CSN_WARP_MAGIC_RECORD UINT32_C(0x50584557)   /* "WEXP" */
#define CSN_WARP_MAGIC_CODEBOOK UINT32_C(0x4b424357) /* "WCBK" */

/* What opening knows of config beyond `arch`. */
typedef struct csn_warp_config {
    uint32_t first_moe_layer, n_experts;
    bool has_output_gate;    /* layers with latent attention have self_attn.g_proj */
    bool has_full_rank_gate; /* KDA layers have kda_attn.g_proj, else g_a_proj and g_b_proj */
} csn_warp_config;

/* The path of a file of the directory, in the arena. */
caisson_status csn_warp_path(csn_warp *w, csn_str name, const char **ret, caisson_error *err);

/* Fills arch, prefix, expert_width, expert_hidden and the chat bundle's eos_token_ids from the
 * manifest. Section of errors: "config". */
caisson_status csn_warp_read_config(csn_warp *w, const csn_log *log, csn_warp_config *ret,
                                    caisson_error *err);
/* Fills stages, entries, index_bits and index_block. */
caisson_status csn_warp_read_expert_quant(csn_warp *w, caisson_error *err);
/* Fills dir and scale_off; `trunk` is open. */
caisson_status csn_warp_read_trunk(csn_warp *w, const csn_warp_config *config, caisson_error *err);
/* Bytes of the scales of tensor t, at the end of its nbytes; 0 for one that has none. */
uint64_t csn_warp_scale_nbytes(const csn_tensor *t);
/* Fills banks, their books too. */
caisson_status csn_warp_read_banks(csn_warp *w, const csn_warp_config *config, caisson_error *err);

/* The books of one layer, from its codebook_base on, all of which are in the file. */
caisson_status csn_warp_read_books(csn_warp *w, csn_file *f, csn_warp_bank *bank,
                                   caisson_error *err);
/* Bytes of a codebook in its file. */
uint64_t csn_warp_book_nbytes(const csn_warp *w);

/* Fills specials and the chat bundle (config's eos_token_id is in it already) from the files beside
 * the trunk. */
caisson_status csn_warp_read_chat(csn_warp *w, caisson_error *err);
/* Lines of the rank file; 0: there is none. */
caisson_status csn_warp_count_ranks(csn_warp *w, uint32_t *ret, caisson_error *err);

static inline uint32_t csn_warp_expert_rows(const csn_warp *w, unsigned kind) {
    return kind == CSN_WARP_DOWN ? w->expert_hidden : w->expert_width;
}
static inline uint32_t csn_warp_expert_cols(const csn_warp *w, unsigned kind) {
    return kind == CSN_WARP_DOWN ? w->expert_width : w->expert_hidden;
}

/* CMF's name of a tensor of the trunk (in the arena, or `name` itself). */
caisson_status csn_warp_cmf_name(csn_warp *w, csn_str name, csn_str *ret, caisson_error *err);

#endif
