/* SPDX-License-Identifier: Apache-2.0 */
/* CMF files as bytes in memory: change them, make the hashes right again, open and verify them. */
#ifndef TESTS_SUPPORT_CMF_EDIT_H
#define TESTS_SUPPORT_CMF_EDIT_H

#include <stdlib.h>

#include "base/hash64.h"
#include "format/cmf/cmf.h"
#include "support/memory_fs.h"

typedef struct cmf_bytes {
    uint8_t *p;
    size_t len;
} cmf_bytes;

static inline cmf_bytes cmf_load(const char *path) {
    csn_buf b = {0};
    caisson_error err;
    if (csn_fs_read_all(csn_fs_os(), path, 1 << 28, &b, &err) != CAISSON_OK) {
        abort();
    }
    cmf_bytes r = {malloc(b.len + 1), b.len};
    memcpy(r.p, b.ptr, b.len);
    csn_buf_free(&b);
    return r;
}

static inline cmf_bytes cmf_copy(cmf_bytes b) {
    cmf_bytes r = {malloc(b.len + 1), b.len};
    memcpy(r.p, b.p, b.len);
    return r;
}

static inline uint64_t cmf_u64(cmf_bytes b, size_t at) {
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) {
        v = v << 8 | b.p[at + (size_t)i];
    }
    return v;
}

static inline void cmf_put(cmf_bytes b, size_t at, unsigned n_bytes, uint64_t v) {
    for (unsigned i = 0; i < n_bytes; i++) {
        b.p[at + i] = (uint8_t)(v >> (8 * i));
    }
}

/* Header and directory hashes of the envelope from the bytes that are there, where they are. */
static inline void cmf_rehash(cmf_bytes b) {
    for (int i = 0; i < 2; i++) {
        uint64_t off = cmf_u64(b, 0x10 + 16 * (size_t)i);
        uint64_t len = cmf_u64(b, 0x18 + 16 * (size_t)i);
        if (off <= b.len && len <= b.len - off) {
            cmf_put(b, 0x70 + 8 * (size_t)i, 8, csn_hash64(b.p + off, (size_t)len));
        }
    }
}

static inline caisson_status cmf_open_bytes(memory_fs *m, cmf_bytes b, csn_cmf **ret,
                                            caisson_error *err) {
    (void)memory_fs_put(m, "m.cmf", b.p, b.len);
    return csn_cmf_open(&m->base, "m.cmf", ret, err);
}

static inline void cmf_ignore_fault(void *ctx, const caisson_error *fault) {
    (void)ctx;
    (void)fault;
}

static inline void cmf_count_fault(void *ctx, const caisson_error *fault) {
    (void)fault;
    ++*(uint64_t *)ctx;
}

/* What became of the bytes: refused at open (its status), or opened with so many faults. */
typedef struct cmf_outcome {
    caisson_status status;
    uint64_t n_faults;
    caisson_error err;
} cmf_outcome;

/* The lenient way verify opens a file must see a fault exactly where the strict one does. */
static inline void cmf_try_damaged(memory_fs *m, cmf_outcome strict) {
    csn_cmf *c = NULL;
    csn_file *f = NULL;
    caisson_error err = {0};
    uint64_t n_told = 0;
    uint64_t n = 0;
    if (csn_fs_open(&m->base, "m.cmf", CSN_OPEN_READ, &f, &err) != CAISSON_OK) {
        abort();
    }
    caisson_status status = csn_cmf_open_damaged(f, cmf_count_fault, &n_told, &c, &err);
    bool is_bad = strict.status != CAISSON_OK || strict.n_faults > 0;
    if (status != CAISSON_OK) {
        if (status != strict.status || err.code != status) {
            abort();
        }
        return;
    }
    if (csn_cmf_verify(c, NULL, NULL, cmf_count_fault, &n_told, &n, &err) != CAISSON_OK ||
        (n_told > 0) != is_bad) {
        abort();
    }
    n = 0;
    if (csn_cmf_note(c, cmf_count_fault, &n, &err) != CAISSON_OK || n > 7) {
        abort();
    }
    csn_cmf_close(c);
}

static inline cmf_outcome cmf_try(memory_fs *m, cmf_bytes b) {
    cmf_outcome o = {0};
    csn_cmf *c = NULL;
    o.status = cmf_open_bytes(m, b, &c, &o.err);
    if (o.status == CAISSON_OK) {
        if (csn_cmf_verify(c, NULL, NULL, cmf_ignore_fault, NULL, &o.n_faults, &o.err) !=
            CAISSON_OK) {
            abort();
        }
        csn_cmf_close(c);
    }
    cmf_try_damaged(m, o);
    return o;
}

/* ---- building: a header text and records in plain form, with right hashes ---- */

typedef struct cmf_record {
    const char *name;
    size_t name_len; /* 0: strlen */
    unsigned dtype, n_dims;
    uint32_t dim[6];
    uint64_t off, nbytes;
} cmf_record;

#define CMF_EDIT_HEADER                                                                            \
    "{\"version\":2,\"arch\":{\"arch_name\":\"t\",\"hidden_size\":8,\"intermediate_size\":8,"      \
    "\"num_layers\":1,\"num_attention_heads\":1,\"num_kv_heads\":1,\"head_dim\":8,"                \
    "\"vocab_size\":8,\"layer_types\":[\"FullAttention\"],\"rms_norm_eps\":1e-06,"                 \
    "\"max_position_embeddings\":8},\"quant_type\":\"F16\"}"

/* A file of header, directory and data_len bytes of payload (all 0x11); tensor hashes are right
 * where the payload lies inside. */
static inline cmf_bytes cmf_build(csn_str header, const cmf_record *r, size_t n,
                                  uint64_t data_len) {
    size_t names = 0;
    for (size_t i = 0; i < n; i++) {
        names += r[i].name_len != 0 ? r[i].name_len : strlen(r[i].name);
    }
    size_t dir_len = 16 + 56 * n + names;
    size_t dir_off = 128 + header.len;
    size_t data_off = (dir_off + dir_len + 4095) / 4096 * 4096;
    cmf_bytes b = {NULL, data_off + (size_t)data_len};
    b.p = calloc(1, b.len + 1);
    if (b.p == NULL) {
        abort();
    }
    memcpy(b.p, "CMF\x01", 4);
    cmf_put(b, 4, 4, 2);
    cmf_put(b, 12, 4, 1);
    cmf_put(b, 0x10, 8, 128);
    cmf_put(b, 0x18, 8, header.len);
    cmf_put(b, 0x20, 8, dir_off);
    cmf_put(b, 0x28, 8, dir_len);
    cmf_put(b, 0x30, 8, data_off);
    cmf_put(b, 0x38, 8, data_len);
    memcpy(b.p + 128, header.ptr, header.len);
    memset(b.p + data_off, 0x11, (size_t)data_len);
    cmf_put(b, dir_off, 8, n);
    cmf_put(b, dir_off + 8, 8, 16 + 56 * n);
    size_t pool = dir_off + 16 + 56 * n;
    size_t name_off = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = dir_off + 16 + 56 * i;
        size_t len = r[i].name_len != 0 ? r[i].name_len : strlen(r[i].name);
        cmf_put(b, at, 4, name_off);
        cmf_put(b, at + 4, 2, len);
        b.p[at + 6] = (uint8_t)r[i].dtype;
        b.p[at + 7] = (uint8_t)r[i].n_dims;
        for (int d = 0; d < 6; d++) {
            cmf_put(b, at + 8 + 4 * (size_t)d, 4, r[i].dim[d]);
        }
        cmf_put(b, at + 32, 8, r[i].off);
        cmf_put(b, at + 40, 8, r[i].nbytes);
        if (r[i].off <= data_len && r[i].nbytes <= data_len - r[i].off) {
            cmf_put(b, at + 48, 8, csn_hash64(b.p + data_off + r[i].off, (size_t)r[i].nbytes));
        }
        memcpy(b.p + pool + name_off, r[i].name, len);
        name_off += len;
    }
    cmf_rehash(b);
    return b;
}

#endif
