/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF v2 and v3: metadata and the tensor list, checked; payloads are not read.
 *
 * Little-endian files only. A split model ("-00001-of-00003.gguf") is opened by the name of any of
 * its parts; metadata come from part 1, the directory holds the tensors of all parts in order.
 *
 * Checked before anything is allocated: each count against the bytes that are left, each length
 * against the header. Then: unique keys and tensor names (UTF-8), value types, alignment a power of
 * two, dims > 0, payloads aligned, inside the file and disjoint. A tensor of a dtype that we only
 * know by number is listed with a row that is_reserved and that cannot be decoded.
 */
#ifndef CSN_FORMAT_GGUF_GGUF_H
#define CSN_FORMAT_GGUF_GGUF_H

#include "base/arena.h"
#include "base/io.h"
#include "format/directory.h"

typedef enum csn_gguf_type {
    CSN_GGUF_U8,
    CSN_GGUF_I8,
    CSN_GGUF_U16,
    CSN_GGUF_I16,
    CSN_GGUF_U32,
    CSN_GGUF_I32,
    CSN_GGUF_F32,
    CSN_GGUF_BOOL,
    CSN_GGUF_STRING,
    CSN_GGUF_ARRAY,
    CSN_GGUF_U64,
    CSN_GGUF_I64,
    CSN_GGUF_F64,
    CSN_GGUF_N_TYPES
} csn_gguf_type;
extern const char *const csn_gguf_type_names[CSN_GGUF_N_TYPES];

enum { CSN_GGUF_MAX_DEPTH = 4, CSN_GGUF_MAX_FILES = 1024 };

/* One metadata pair; key and bytes are views into the header, good until close. */
typedef struct csn_gguf_pair {
    csn_str key;
    csn_gguf_type type;
    csn_gguf_type item; /* of an array's elements; else == type */
    uint64_t n;         /* elements of an array; else 1 */
    csn_str bytes;      /* the value as it lies in the file; for a string its characters */
} csn_gguf_pair;

typedef struct csn_gguf {
    csn_file **files; /* [n_files], part order */
    uint32_t n_files;
    uint32_t version;
    csn_gguf_pair *pairs; /* [n_pairs], sorted by key */
    uint32_t n_pairs;
    csn_directory dir; /* offsets are absolute in files[i_file] */
    csn_arena arena;
    csn_buf head; /* header bytes of part 1 */
} csn_gguf;

/* Errors: CAISSON_E_MAGIC, _VERSION (also a big-endian file), _BOUNDS, _PARSE, _LIMIT, _IO. */
caisson_status csn_gguf_open(csn_fs *fs, const char *path, csn_gguf **ret, caisson_error *err);
void csn_gguf_close(csn_gguf *g); /* NULL is fine */

const csn_gguf_pair *csn_gguf_find(const csn_gguf *g, csn_str key); /* NULL if absent */
/* Scalars. False if absent or of another kind: u64 takes any integer type >= 0 and in range, f64
 * any number, f32 the f32 value itself. */
bool csn_gguf_u64(const csn_gguf_pair *p, uint64_t *ret);
bool csn_gguf_i64(const csn_gguf_pair *p, int64_t *ret);
bool csn_gguf_f64(const csn_gguf_pair *p, double *ret);
bool csn_gguf_bool(const csn_gguf_pair *p, bool *ret);
bool csn_gguf_str(const csn_gguf_pair *p, csn_str *ret);
/* Element i of an array of fixed-size numbers, as above. */
bool csn_gguf_item_i64(const csn_gguf_pair *p, uint64_t i, int64_t *ret);
bool csn_gguf_item_f64(const csn_gguf_pair *p, uint64_t i, double *ret);
/* All strings of an array, views into the header: *ret [p->n] is allocated in `arena`.
 * CAISSON_E_PARSE if it is not an array of strings. */
caisson_status csn_gguf_strings(const csn_gguf_pair *p, csn_arena *arena, csn_str **ret,
                                caisson_error *err);

#endif
