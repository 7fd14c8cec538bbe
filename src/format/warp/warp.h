/* SPDX-License-Identifier: Apache-2.0 */
/* WARP: a directory `*.waste` of manifest.json, trunk.bin, codebooks.bin and a bank of expert
 * records for each layer that is a mixture (warp facts 1 to 8).
 *
 * Open reads manifest and codebooks and checks everything that can be checked without reading the
 * trunk and the banks: shapes, offsets, sizes of files, the list of tensors that the model needs.
 * Tensors get the names that CMF gives them (facts 3.5), so one plan runs both. */
#ifndef CSN_FORMAT_WARP_WARP_H
#define CSN_FORMAT_WARP_WARP_H

#include "arch/arch.h"
#include "base/io.h"
#include "base/log.h"
#include "base/progress.h"
#include "format/chat.h"
#include "format/directory.h"
#include "quant/vq.h"

enum { CSN_WARP_PAGE = 4096, CSN_WARP_RECORD_HEADER = 48 };

typedef enum csn_warp_kind {
    CSN_WARP_GATE,
    CSN_WARP_UP,
    CSN_WARP_DOWN,
    CSN_WARP_N_KINDS
} csn_warp_kind;

typedef struct csn_warp_bank { /* the experts of one layer */
    uint32_t layer;
    csn_str file_name;
    csn_file *file;
    uint32_t n_experts;
    uint64_t stride;        /* bytes of a record, a multiple of 4096 */
    uint32_t codebook_base; /* what the manifest says; every record must say the same */
    csn_vq_books books[CSN_WARP_N_KINDS];
    uint64_t index_nbytes[CSN_WARP_N_KINDS]; /* of the index blocks */
} csn_warp_bank;

typedef struct csn_warp_special { /* an entry of specials.json */
    uint32_t id;
    csn_str text;
} csn_warp_special;

typedef struct csn_warp {
    csn_fs *fs;
    const char *path; /* of the directory */
    csn_arch arch;
    csn_directory dir;   /* the trunk under CMF names; offsets in `trunk` */
    uint64_t *scale_off; /* [dir.n] where a quantised tensor's scales lie in `trunk`; else 0 */
    csn_file *trunk;
    csn_warp_bank *banks; /* [n_banks], rising layers; 0 for a dense model */
    uint32_t n_banks;
    uint32_t stages, entries, index_bits, index_block; /* of expert_quant */
    uint32_t expert_hidden, expert_width;              /* gate and up are [width][hidden] */
    csn_str prefix;                                    /* tensor_prefix */
    csn_chat_bundle chat;                              /* made from chat.json and specials.json */
    csn_warp_special *specials;                        /* [n_specials] */
    uint32_t n_specials;
    struct csn_warp_digests *digests; /* NULL: csn_warp_use_digests found none, or was not called */
    csn_json *manifest;
    csn_arena arena;
} csn_warp;

/* True for a directory that holds a manifest.json. */
bool csn_warp_is(csn_fs *fs, const char *path);
caisson_status csn_warp_open(csn_fs *fs, const char *path, const csn_log *log, csn_warp **ret,
                             caisson_error *err);
void csn_warp_close(csn_warp *w); /* NULL is fine */

/* Whether csn_warp_open would take a manifest with this `config`, a JSON object, as far as that can
 * be said without its tensors. Section of errors: "config". */
caisson_status csn_warp_check_config(csn_str config, caisson_error *err);

/* Reads tensor i of the directory as its dtype lays it out (payload, then scales, without a gap)
 * into out [dir.tensors[i].nbytes]. */
caisson_status csn_warp_read_tensor(csn_warp *w, uint32_t i, uint8_t *out, caisson_error *err);

/* Where its bytes lie in the trunk: payload, and scales that do not follow it. Returns how many
 * ranges they are. */
typedef struct csn_warp_range {
    uint64_t offset, nbytes;
} csn_warp_range;
uint32_t csn_warp_tensor_ranges(const csn_warp *w, uint32_t i, csn_warp_range ret[2]);

/* The regular expression by which Kimi's tokenizer cuts text. */
extern const char csn_kimi_pattern[];
/* The tokenizer.json of the directory, or one made from tokenizer.model and specials.json; empty =
 * there is none. */
caisson_status csn_warp_read_tokenizer(csn_warp *w, csn_buf *ret, caisson_error *err);
/* The same of the text of a rank file and special tokens. */
caisson_status csn_warp_make_tokenizer(csn_str ranks, csn_warp_special *specials,
                                       uint32_t n_specials, csn_buf *ret, caisson_error *err);

/* Bytes of the file that it is made from; 0: there is none. */
caisson_status csn_warp_tokenizer_nbytes(csn_warp *w, uint64_t *ret, caisson_error *err);

/* "model.layers.L." and what follows; false: not the name of a layer's tensor. */
bool csn_warp_split_name(csn_str name, uint64_t *ret_layer, csn_str *ret_rest);
/* "model.layers.L.mlp.experts.E" */
enum { CSN_WARP_EXPERT_NAME = 48 };
const char *csn_warp_expert_name(const csn_warp_bank *bank, uint32_t expert,
                                 char ret[CSN_WARP_EXPERT_NAME]);
/* A value of a codebook as the existing engine reads it: below 2^-14, where binary16 has fewer
 * bits, it takes zero. So do we, and whoever makes codebooks: in VQ4P, whose products pass through
 * a table of int8, the smallest difference may become a visible one. */
float csn_warp_book_value(uint16_t half);

/* The matrices of one expert, in the memory of its record. */
typedef struct csn_warp_expert {
    csn_vq_matrix m[CSN_WARP_N_KINDS];
} csn_warp_expert;

/* Checks a record (bank->stride bytes): header, spans, with `crc` its checksum. Errors name layer,
 * expert and both values: CAISSON_E_PARSE for the header, CAISSON_E_HASH for the checksum. */
caisson_status csn_warp_record(const csn_warp *w, const csn_warp_bank *bank, uint32_t expert,
                               const uint8_t *record, bool crc, csn_warp_expert *ret,
                               caisson_error *err);

/* ---- verifying ---- */
#define CSN_WARP_DIGESTS "caisson.digests.json"

typedef void (*csn_warp_fault_fn)(void *ctx, const caisson_error *fault);
/* Checks every record and, where digests lie beside them, the files and the trunk's tensors; never
 * stops at the first fault. `note` hears what is odd and no fault (code CAISSON_OK). Returns a
 * failure only when it could not finish. */
caisson_status csn_warp_verify(csn_warp *w, csn_pool *pool, const csn_progress *progress,
                               csn_warp_fault_fn fault, csn_warp_fault_fn note, void *ctx,
                               caisson_error *err);
/* Reads the digests, if there are any (w->digests), and compares those of the files, which are
 * read: CAISSON_E_HASH. */
caisson_status csn_warp_use_digests(csn_warp *w, caisson_error *err);
/* Tensor i of dir against its digest, its payload being in memory as csn_warp_read_tensor lays it
 * out; w->digests is there. CAISSON_E_HASH. Any thread. */
caisson_status csn_warp_check_tensor(const csn_warp *w, uint32_t i, const void *bytes,
                                     caisson_error *err);
/* The same of a payload that nobody keeps in memory: it is read, a piece at a time. */
caisson_status csn_warp_check_in_file(const csn_warp *w, uint32_t i, caisson_error *err);
/* Writes the digests of what lies in the directory, in place of older ones. */
caisson_status csn_warp_write_digests(csn_warp *w, const csn_progress *progress,
                                      caisson_error *err);

#endif
