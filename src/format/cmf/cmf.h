/* SPDX-License-Identifier: Apache-2.0 */
/* CMF v2: reader, verifier and streaming writer (seed sections 1 to 4 and 6; facts 1 to 5 and 7).
 *
 * Open reads envelope, header, directory, masks and index, and checks them completely; payloads and
 * the tokenizer section are not read. A file that opens is valid, save for payload bytes, which
 * verify hashes.
 */
#ifndef CSN_FORMAT_CMF_CMF_H
#define CSN_FORMAT_CMF_CMF_H

#include "arch/arch.h"
#include "base/digest.h"
#include "base/io.h"
#include "base/log.h"
#include "base/progress.h"
#include "format/chat.h"
#include "format/directory.h"

enum {
    CSN_CMF_HEADER,
    CSN_CMF_DIR,
    CSN_CMF_DATA,
    CSN_CMF_MASKS,
    CSN_CMF_VOCAB,
    CSN_CMF_INDEX,
    CSN_CMF_N_SECTIONS
};
extern const char *const csn_cmf_section_names[CSN_CMF_N_SECTIONS]; /* "header", "directory", ... */

/* Header keys of our own (docs/cmf.md, "Digests"). */
#define CSN_CMF_TENSOR_DIGESTS "caisson.tensor_digests"
#define CSN_CMF_SECTION_DIGESTS "caisson.section_digests"
/* Of a shard: a text that all shards of one model share (docs/cmf.md, "Shards"). */
#define CSN_CMF_SHARD_SET "caisson.shard_set"
/* Ids of skills whose tensors in other shards a removal has yet to drop (docs/cmf.md, "Shards"). */
#define CSN_CMF_REMOVED_SKILLS "caisson.removed_skills"

typedef struct csn_cmf_envelope {
    uint32_t flags, required_features;
    uint64_t off[CSN_CMF_N_SECTIONS], len[CSN_CMF_N_SECTIONS]; /* off of an empty section is kept */
    uint64_t header_hash, dir_hash;                            /* 0 = absent */
    uint64_t file_bytes;
} csn_cmf_envelope;

/* One task mask (CMF 5, facts 6): which neurons, heads, layers and experts are active. Rows of
 * bits, item i is bit i % 8 of byte i / 8; bits beyond a dimension are zero. */
typedef struct csn_cmf_mask {
    csn_str name, description, parent, priority; /* description, parent: ptr NULL = none */
    uint32_t task_id;
    float sparsity;
    const csn_jval *quality; /* NULL = not measured */
    const csn_jval *meta;    /* its object in the file, with what we do not know; NULL = new */
    uint32_t n_ffn_rows;     /* num_layers, or one a visit: num_layers * num_loops */
    const uint8_t *ffn;      /* [n_ffn_rows][ceil(intermediate_size / 8)] */
    const uint8_t *heads;    /* [num_layers][ceil(num_attention_heads / 8)] */
    const uint8_t *gates;    /* [ceil(num_layers / 8)] */
    const uint8_t *experts;  /* [num_layers][ceil(num_experts / 8)], or NULL = all */
} csn_cmf_mask;

static inline uint64_t csn_bit_row_bytes(uint64_t n_bits) {
    return n_bits / 8 + (n_bits % 8 != 0);
}
static inline bool csn_bit(const uint8_t *bits, uint64_t i) {
    return (bits[i / 8] >> (i % 8) & 1) != 0;
}
static inline uint64_t csn_bit_count(const uint8_t *bits, uint64_t n) { /* of the first n */
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += csn_bit(bits, i);
    }
    return sum;
}

typedef struct csn_cmf_masks {
    csn_cmf_mask *masks; /* [n], in file order */
    uint32_t n;
    csn_str default_task; /* the mask that is active unless another is asked for */
} csn_cmf_masks;

/* How a skill is recognised (facts 10.2, 10.3): hidden states of its prompts lie near
 * mean + span(basis). All values are finite. */
typedef struct csn_cmf_selection {
    bool is_unit;            /* metric mse_unit: of hidden states scaled to length 1 */
    uint32_t phi_layer;      /* the visit of a layer behind which they are taken */
    uint32_t rank;           /* at most hidden_size; may be 0 */
    float *mean;             /* [hidden_size] */
    float *basis;            /* [rank][hidden_size] orthonormal rows, which is not checked */
    float err_mean, err_std; /* of raw errors of prompts it was fitted on; absent: 0 and 1 */
    uint32_t n_holdout;
    float
        *holdout; /* [n_holdout][hidden_size] hidden states of prompts that it was not fitted on */
} csn_cmf_selection;
/* Of the JSON of a record's selection; *ret is in the arena. PARSE when a value has not the length
 * that arch and rank give it, is not finite, or names a layer that is not there. */
caisson_status csn_cmf_parse_selection(csn_arena *arena, const csn_arch *arch,
                                       const csn_jval *object, csn_str skill,
                                       const csn_cmf_selection **ret, caisson_error *err);

/* One entry of the sparse index (CMF 7, facts 8): deprecated, shown, used by nothing. */
typedef struct csn_cmf_index_entry {
    uint32_t task_id, layer, n_groups, n_heads;
    const uint8_t *groups; /* [n_groups] u16, little-endian: of 32 neurons each */
    const uint8_t *heads;  /* [n_heads] */
} csn_cmf_index_entry;
typedef struct csn_cmf_index_iter { /* zeroed: before the first */
    uint32_t i;
    uint64_t pos;
} csn_cmf_index_iter;

/* One record of header.skills (CMF 9, facts 10.2). Its tensors are "skill.ID.NAME". */
typedef struct csn_cmf_skill {
    csn_str id, name, input_mask_task;  /* name, input_mask_task: empty = none */
    const csn_jval *record;             /* NULL: only tensors tell of this skill */
    const csn_cmf_selection *selection; /* NULL: it cannot be routed to */
    uint64_t n_tensors, nbytes;         /* of its payloads */
} csn_cmf_skill;

typedef struct csn_cmf csn_cmf;
struct csn_cmf {
    csn_file *file;
    csn_cmf_envelope envelope;
    csn_json *header_doc;
    const csn_jval *header;                   /* the whole header object */
    csn_str quant_type;                       /* a label only; each tensor has its own dtype */
    csn_str section_hash[CSN_CMF_N_SECTIONS]; /* of masks, vocab, index: hex text; none: ptr NULL */
    /* The second digests (docs/cmf.md, "Digests"); NULL: the file has none. */
    const uint8_t *tensor_digests;                     /* [dir.n][CSN_DIGEST_BYTES] */
    const uint8_t *section_digest[CSN_CMF_N_SECTIONS]; /* never of header and data */
    csn_arch arch;
    csn_chat_bundle chat;
    csn_directory dir;     /* offsets are absolute */
    csn_cmf_skill *skills; /* [n_skills]: the registry, then ids that only tensors have */
    uint32_t n_skills;
    csn_str *skill_ids; /* [n_skill_ids] sorted: of the registry and of CSN_CMF_REMOVED_SKILLS */
    uint32_t n_skill_ids, max_id_dots;
    float routing_temperature, routing_novelty_theta; /* header.routing; 0 = absent */
    float calibration_temperature;                    /* header.calibration; 0 = absent */
    csn_cmf_masks masks;
    csn_buf masks_section; /* what `masks` points into */
    csn_json *masks_doc;
    bool is_told[CSN_CMF_N_SECTIONS]; /* csn_cmf_open_damaged found it wrong and said so */
    bool has_shard_block;
    uint32_t shard_no, n_shards; /* of the block, as it says; shard_no counts from 1 */
    /* What csn_cmf_open_model found: the shards in order, the first of them this one. `dir` is then
     * that of the whole model, tensors of the first shard first. */
    csn_cmf **files; /* [n_files]; NULL: one file */
    uint32_t n_files;
    uint32_t n_own; /* tensors of this file: the first ones of `dir` */
    csn_arena arena;
};

typedef void (*csn_cmf_fault_fn)(void *ctx, const caisson_error *fault);

/* Every normative check of facts 1.5 in its order, plus: header and directory hashes (before their
 * bytes are parsed), hashes told for sections that are not there, duplicate names, shape x dtype =
 * nbytes, ranges in use pairwise disjoint (two names may share one identical payload), tail bits of
 * masks zero. Errors: IO, MAGIC, VERSION, FEATURE, BOUNDS, PARSE, HASH, LIMIT, UNSUPPORTED (an
 * activation that is not known), NOMEM; file, section and tensor are filled in. */
caisson_status csn_cmf_open(csn_fs *fs, const char *path, csn_cmf **ret, caisson_error *err);
/* The same for an open file, which becomes the reader's, or is closed on failure. */
caisson_status csn_cmf_open_file(csn_file *f, csn_cmf **ret, caisson_error *err);

/* The same for a model: a file, or all shards of the one that `path` names. PARSE when the shards
 * do not make one model (block and name disagree, another file joined to one, a foreign one, a
 * tensor twice), IO when one is missing; `file` says which. check (may be NULL) looks at each file
 * before a byte of it is parsed; the file lives as long as *ret. Of the model as a whole, verify,
 * note and append know nothing: they are for a file at a time. */
typedef caisson_status (*csn_cmf_check_fn)(void *ctx, csn_file *f, caisson_error *err);
caisson_status csn_cmf_open_model(csn_fs *fs, const char *path, csn_cmf_check_fn check, void *ctx,
                                  csn_cmf **ret, caisson_error *err);
/* The file whose number is csn_tensor.i_file. */
csn_cmf *csn_cmf_file_of(const csn_cmf *c, uint32_t i_file);
/* For verifying alone: faults of header, directory, masks and index are told, and what can be read
 * without the damaged part is there; the rest is empty (header NULL, dir.n 0). Fails when the
 * envelope is wrong, and for want of memory. */
caisson_status csn_cmf_open_damaged(csn_file *f, csn_cmf_fault_fn fn, void *ctx, csn_cmf **ret,
                                    caisson_error *err);
void csn_cmf_close(csn_cmf *c); /* NULL is fine */

/* Reads a whole section (vocab, masks, ...) into *ret; an empty section gives an empty buffer. */
caisson_status csn_cmf_read_section(csn_cmf *c, int section, csn_buf *ret, caisson_error *err);

/* The section's bytes, appended to `out`; none for no masks. A mask with `meta` keeps its text save
 * for quality. */
caisson_status csn_cmf_masks_write(const csn_cmf_masks *masks, const csn_arch *arch, csn_buf *out,
                                   caisson_error *err);

/* The next entry of an index section that open has checked; false behind the last. */
bool csn_cmf_index_next(csn_str section, csn_cmf_index_iter *it, csn_cmf_index_entry *ret);

/* CAISSON_E_MISSING lists the names that there are; CAISSON_E_ARG: two masks have this one. */
caisson_status csn_cmf_find_mask(const csn_cmf_masks *masks, csn_str name, const csn_cmf_mask **ret,
                                 caisson_error *err);

/* True for a skill by itself (feature bit 6): it replaces tensors of a base, and is no model. */
bool csn_cmf_is_skill_file(const csn_cmf *c);
/* The id of "skill.ID.NAME" and the name that it stands for; false for any other tensor. Of ids
 * that the header tells of, which may hold dots, the longest is meant. */
bool csn_cmf_skill_name(const csn_cmf *c, csn_str tensor, csn_str *ret_id, csn_str *ret_name);
/* The skill that the tensor is of; NULL: it is of none, or of a removed one. */
const csn_cmf_skill *csn_cmf_skill_of(const csn_cmf *c, csn_str tensor, csn_str *ret_name);
/* What the skill has for the backbone's tensor of this name; *ret NULL: nothing. */
caisson_status csn_cmf_skill_tensor(const csn_cmf *c, csn_str id, csn_str name,
                                    const csn_tensor **ret, caisson_error *err);
/* A removal of this skill did not come to its end: its tensors, if any are left, are nobody's. */
bool csn_cmf_is_removed_skill(const csn_cmf *c, csn_str id);
/* CAISSON_E_MISSING lists the ids that there are. */
caisson_status csn_cmf_find_skill(const csn_cmf *c, csn_str id, const csn_cmf_skill **ret,
                                  caisson_error *err);

/* The header object as JSON for a rewritten file: known and unknown keys in their order, `arch` by
 * csn_arch_write, quant_type replaced when `quant_type` is not empty, `section_hashes` and the
 * digests left out (the writer fills them in). */
void csn_cmf_header_write(const csn_cmf *c, csn_str quant_type, csn_jw *w);
/* The same with any keys of the top level replaced, added or left out. */
typedef struct csn_cmf_header_edit {
    const char *key;
    csn_str json; /* its value as JSON text; empty = the key is left out */
} csn_cmf_header_edit;
void csn_cmf_header_edit_write(const csn_cmf *c, const csn_cmf_header_edit *edits, size_t n,
                               csn_jw *w);
/* The same over any header object, all its other keys copied. */
void csn_cmf_header_edit_json(const csn_jval *header, const csn_cmf_header_edit *edits, size_t n,
                              csn_jw *w);

/* Checks every hash and digest of an open file, and that its scales and values are finite numbers
 * (CAISSON_E_PARSE with the first of a tensor whose hash is right); never stops at the first. Parts
 * that open_damaged told of are passed over. Each damaged part is told as one error record
 * (CAISSON_E_HASH, section, tensor, range of bytes, both hashes), in the order of sections, then
 * directory. *ret_n = number of faults. Returns a failure only when it could not finish (cancelled,
 * read error is a fault and goes on).
 */
caisson_status csn_cmf_verify(csn_cmf *c, csn_pool *pool, const csn_progress *progress,
                              csn_cmf_fault_fn fn, void *ctx, uint64_t *ret_n, caisson_error *err);

/* Tells what is odd and no fault, as records without a code: `flags` that are not 0, a known
 * feature bit that disagrees with the content, bytes that belong to nothing. Parts that could not
 * be read (open_damaged) are not judged. */
caisson_status csn_cmf_note(const csn_cmf *c, csn_cmf_fault_fn fn, void *ctx, caisson_error *err);

/* A section's bytes, in memory, against its hash and digest: CAISSON_E_HASH as above. */
caisson_status csn_cmf_check_section(const csn_cmf *c, int section, csn_str bytes,
                                     caisson_error *err);
/* Tensor i of dir against its hash and digest, its payload being in memory: CAISSON_E_HASH as above
 * in an error of the caller's. Any thread. */
caisson_status csn_cmf_check_tensor(const csn_cmf *c, uint32_t i, const void *bytes,
                                    caisson_error *err);
/* Whether its scales and values are finite: CAISSON_E_PARSE with the first that is not. */
caisson_status csn_cmf_check_numbers(const csn_cmf *c, uint32_t i, const void *bytes,
                                     caisson_error *err);
/* Both of a payload that nobody keeps in memory: it is read, a piece at a time. */
caisson_status csn_cmf_check_in_file(const csn_cmf *c, uint32_t i, caisson_error *err);

/* ---- writing ----
 * Tensors are streamed behind a reserved gap, header and directory are written last; memory does
 * not grow with the model. The file is `<path>.part` until finish renames it. A writer killed at
 * any instant leaves the old file and, with its journal `<path>.part.journal`, a conversion that
 * resumes: csn_cmf_writer_new finds how many tensors of the same plan are complete. */
typedef struct csn_cmf_writer csn_cmf_writer;

typedef struct csn_cmf_plan_tensor {
    csn_str name;
    const csn_dtype *dtype;
    csn_shape shape;
    uint64_t nbytes; /* about, and only for a dtype whose size depends on the payload (its nbytes is
                        NULL): for the check of free space. Each such payload tells its own */
} csn_cmf_plan_tensor;

typedef struct csn_cmf_plan {
    const csn_cmf_plan_tensor *tensors; /* [n], in file order */
    uint32_t n;
    uint64_t head_bytes;  /* upper bound of header JSON bytes, for the gap */
    uint64_t vocab_bytes; /* about: for the check of free space only */
    uint64_t sync_bytes;  /* payload bytes between two marks in the journal: what a kill may cost;
                             0 = 64 MiB */
    csn_str fingerprint;  /* identifies source and options; a journal of another one is discarded */
} csn_cmf_plan;

/* *ret_n_done: leading tensors of the plan that are already on disk (resume). Checks free space
 * (CAISSON_E_IO with ENOSPC). CAISSON_E_BUSY: another writer, here or in another process, is at
 * work on the same path; nothing of its was touched. CAISSON_E_ARG: the plan asks for what no file
 * can hold. */
caisson_status csn_cmf_writer_new(csn_fs *fs, const char *path, const csn_cmf_plan *plan,
                                  csn_cmf_writer **ret, uint32_t *ret_n_done, caisson_error *err);
/* The next tensor of the plan, as many bytes as its dtype and shape say or, where the payload
 * decides, any number: tensors behind it move. Hashes, writes, journals. IO with ENOSPC when the
 * disk is now too small. */
caisson_status csn_cmf_writer_tensor(csn_cmf_writer *w, const void *bytes, uint64_t nbytes,
                                     caisson_error *err);
/* The next tensor is stored as f32 in place of the plan's dtype, because that cannot hold its
 * values; tensors behind it move. IO with ENOSPC when the disk is now too small. */
caisson_status csn_cmf_writer_keep_f32(csn_cmf_writer *w, caisson_error *err);
/* In which dtype tensor i is or will be stored: a resumed one may be f32 for that same reason. */
const csn_dtype *csn_cmf_writer_dtype(const csn_cmf_writer *w, uint32_t i);
/* Writes masks, vocab (empty = none), header (the caller's JSON with section_hashes and the digests
 * filled in by us), directory; opens the result with our reader (its errors are this call's);
 * writes the envelope; syncs. header_json: an object without `section_hashes` and digests. */
caisson_status csn_cmf_writer_seal(csn_cmf_writer *w, csn_str header_json, csn_str masks,
                                   csn_str vocab, caisson_error *err);
/* Renames the sealed file over path. */
caisson_status csn_cmf_writer_rename(csn_cmf_writer *w, caisson_error *err);
/* Both, for a file without masks. */
caisson_status csn_cmf_writer_finish(csn_cmf_writer *w, csn_str header_json, csn_str vocab,
                                     caisson_error *err);
/* Frees; without finish the partial file and journal stay for a resume, unless `discard`. */
void csn_cmf_writer_close(csn_cmf_writer *w, bool discard);

/* ---- a model in one file or in shards ----
 * The same over all files of a model: OUT.cmf, or OUT-00001-of-00003.cmf and so on. They appear
 * when the last of them is whole, the first one last. */
typedef struct csn_cmf_set csn_cmf_set;

/* max_bytes: of a shard; a tensor that is larger, or one that its dtype could not hold (keep_f32),
 * may make it larger. 0 = one file. Errors as of csn_cmf_writer_new. */
caisson_status csn_cmf_set_new(csn_fs *fs, const char *path, const csn_cmf_plan *plan,
                               uint64_t max_bytes, csn_cmf_set **ret, uint32_t *ret_n_done,
                               caisson_error *err);
uint32_t csn_cmf_set_n_files(const csn_cmf_set *s);
/* CAISSON_E_EXISTS when a file has one of the names already, unless this conversion gave it. */
caisson_status csn_cmf_set_check_absent(const csn_cmf_set *s, caisson_error *err);
caisson_status csn_cmf_set_tensor(csn_cmf_set *s, const void *bytes, uint64_t nbytes,
                                  caisson_error *err);
caisson_status csn_cmf_set_keep_f32(csn_cmf_set *s, caisson_error *err);
const csn_dtype *csn_cmf_set_dtype(const csn_cmf_set *s, uint32_t i);
/* Masks, vocab, chat bundle and skills go into the first file; every shard gets its block. */
caisson_status csn_cmf_set_finish(csn_cmf_set *s, csn_str header_json, csn_str masks, csn_str vocab,
                                  caisson_error *err);
void csn_cmf_set_close(csn_cmf_set *s, bool discard); /* NULL is fine */
/* The name of file i of n for a target "OUT.cmf"; *ret holds nothing else. */
caisson_status csn_cmf_set_file_name(const char *path, uint32_t i, uint32_t n, csn_buf *ret,
                                     caisson_error *err);

/* ---- copying ---- */
typedef struct csn_cmf_copy_options {
    uint64_t shard_max_bytes; /* as above */
    bool keeps_shard;         /* one shard, in its place: it stays a shard */
    bool overwrite;
    const csn_progress *progress; /* bytes; may be NULL */
} csn_cmf_copy_options;

/* Writes the model anew, payloads byte for byte, dead bytes and the sparse index left out. HASH
 * (the part is named) when source is damaged. After a failure nothing of the copy stays; a killed
 * one goes on when it is called again. */
caisson_status csn_cmf_copy(csn_cmf *source, csn_fs *fs, const char *path,
                            const csn_cmf_copy_options *options, uint32_t *ret_n_files,
                            caisson_error *err);

/* hash64 of the model's directory, by which a skill file knows its base (CMF 9.1). Of shards: of
 * the one file that a copy makes of them, so that both are the same base. */
caisson_status csn_cmf_directory_hash(csn_cmf *c, uint64_t *ret, caisson_error *err);

/* ---- growing a file ----
 * What is new is written behind the end of the file, then the envelope is pointed at it. Earlier
 * bytes never change, the envelope's 128 aside: whoever has the file open keeps seeing the model
 * that he opened. A writer killed at any instant leaves a file that opens as before or as after.
 * Of shards, each file grows by itself. */
typedef struct csn_cmf_append csn_cmf_append;

/* Opens the file to read and write it, and claims it: CAISSON_E_BUSY while another writer has it.
 */
caisson_status csn_cmf_append_begin(csn_fs *fs, const char *path, csn_cmf_append **ret,
                                    caisson_error *err);
/* The same for a model in one file or in shards, by any name: the first file is claimed, the one
 * that has header, masks and registry of skills. *ret_model: the whole model, the caller's
 * (csn_cmf_close). CAISSON_E_BUSY also when the file changed in between. */
caisson_status csn_cmf_append_begin_model(csn_fs *fs, const char *path, csn_cmf_append **ret,
                                          csn_cmf **ret_model, caisson_error *err);
/* The file as it was at the beginning; good until close. */
const csn_cmf *csn_cmf_append_cmf(const csn_cmf_append *a);
/* CAISSON_E_BUSY when the claimed file is not the one that `then` was read from. */
caisson_status csn_cmf_append_check_same(const csn_cmf_append *a, const csn_cmf *then,
                                         caisson_error *err);
/* Adds a tensor behind all others, or puts it in the place of the one that has its name. Each name
 * once. `plan` and bytes are copied. CAISSON_E_ARG: no file can hold it, or nbytes is not its size.
 */
caisson_status csn_cmf_append_tensor(csn_cmf_append *a, const csn_cmf_plan_tensor *plan,
                                     const void *bytes, uint64_t nbytes, caisson_error *err);
/* Drops the record of a tensor that the file had; its bytes stay, dead. CAISSON_E_MISSING. */
caisson_status csn_cmf_append_remove(csn_cmf_append *a, csn_str name, caisson_error *err);
/* The masks section as it shall be; empty = none. The sparse index, which told of the old masks and
 * is read by nobody, goes. */
caisson_status csn_cmf_append_masks(csn_cmf_append *a, csn_str section, caisson_error *err);
/* The header as it shall be: what csn_cmf_header_edit_write gives. Hashes and digests are added. */
caisson_status csn_cmf_append_header(csn_cmf_append *a, csn_str json, caisson_error *err);
/* Writes the sections that changed, syncs, opens the result with our reader (its errors are this
 * call's). Nothing is added behind that; the file is still the old model. Of shards that change
 * together all are prepared before the first is committed. */
caisson_status csn_cmf_append_prepare(csn_cmf_append *a, caisson_error *err);
/* Prepares if that was not done, writes the envelope, syncs. After a failure the old file is what
 * it was, unless it was the last sync that failed: then the model is the old or the new one. Call
 * once, then close. */
caisson_status csn_cmf_append_commit(csn_cmf_append *a, caisson_error *err);
/* Frees, and gives the claim up; without a commit the file gets its old length back. NULL is fine.
 */
void csn_cmf_append_close(csn_cmf_append *a);

/* csn_cmf_open for someone who is going to replace or grow the file: claimed as above. */
caisson_status csn_cmf_open_locked(csn_fs *fs, const char *path, csn_cmf **ret, caisson_error *err);

#endif
