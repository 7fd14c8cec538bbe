/* SPDX-License-Identifier: Apache-2.0 */
/* The trunk's index (warp facts 2.3, 3): every tensor that is no routed expert. Its payload and its
 * scales are two ranges of trunk.bin. Nothing is aligned, gaps are allowed; of two ranges that
 * share bytes, both must be of tensors with the same dtype and be the same (tied weights): anything
 * else is a number that is wrong. */
#include "format/warp/warp_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/json_fields.h"
#include "caisson/limits.h"

enum { GROUP = 128, MAX_DIMS = 4, MAX_DIM = 1 << 26 };

struct raw {
    csn_str name;
    uint32_t fmt, group;
    uint64_t off, scale_off, bytes;
    const csn_jval *shape;
};

static const csn_jfield fields[] = {
    CSN_JFIELD(struct raw, name, "name", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(struct raw, fmt, "fmt", CSN_JT_U32, CSN_JF_REQUIRED),
    CSN_JFIELD(struct raw, off, "off", CSN_JT_U64, CSN_JF_REQUIRED),
    CSN_JFIELD(struct raw, shape, "shape", CSN_JT_ARRAY, CSN_JF_REQUIRED),
    CSN_JFIELD(struct raw, bytes, "bytes", CSN_JT_U64, 0),
    CSN_JFIELD(struct raw, group, "group", CSN_JT_U32, 0),
    CSN_JFIELD(struct raw, scale_off, "scale_off", CSN_JT_U64, 0),
};
enum { SEEN_BYTES = 1 << 4, SEEN_SCALE_OFF = 1 << 6 };

struct entry {
    csn_tensor t;
    uint64_t scale_off, scale_nbytes; /* 0: none */
};

uint64_t csn_warp_scale_nbytes(const csn_tensor *t) {
    return t->dtype->is_float ? 0 : t->shape.dim[0] * ((t->shape.dim[1] + GROUP - 1) / GROUP) * 2;
}

struct range {
    uint64_t first, end;
    const struct entry *owner;
};

static caisson_status read_shape(const struct raw *r, csn_shape *ret, caisson_error *err) {
    size_t n = csn_jval_len(r->shape);
    if (n < 1 || n > MAX_DIMS) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = r->name,
                        .what = "number of dimensions out of range", CSN_VALUES(MAX_DIMS, n));
    }
    ret->n_dims = (uint32_t)n;
    for (csn_jiter it = csn_jval_iter(r->shape); csn_jiter_next(&it);) {
        uint64_t dim;
        if (!csn_jval_u64(it.value, &dim)) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = r->name,
                            .what = "a dimension is not an integer from 1 on");
        }
        if (dim < 1 || dim > MAX_DIM) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = r->name,
                            .what = "a dimension is out of range", CSN_VALUES(MAX_DIM, dim));
        }
        ret->dim[it.index] = dim;
    }
    return CAISSON_OK;
}

/* Scales belong to rows, and those are all dimensions but the last: of a quantised tensor the
 * others are joined. Each factor is at most 2^26 and the product is checked before. */
static void join_rows(csn_shape *s) {
    uint64_t rows = 1;
    for (uint32_t i = 0; i + 1 < s->n_dims; i++) {
        rows *= s->dim[i];
    }
    *s = (csn_shape){.n_dims = 2, .dim = {rows, s->dim[s->n_dims - 1]}};
}

static caisson_status find_dtype(const struct raw *r, const csn_dtype **ret, caisson_error *err) {
    *ret = csn_dtype_by_warp(r->fmt);
    if (*ret == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = r->name, .what = "unknown fmt",
                        .want = CSN_STR("0, 1, 2, 3 or 7"), .has_numbers = true, .got_u = r->fmt);
    }
    return CAISSON_OK;
}

/* The bytes of the trunk that an entry names. */
static caisson_status check_extents(const csn_warp *w, const struct raw *r, uint64_t trunk_nbytes,
                                    uint64_t seen, struct entry *e, caisson_error *err) {
    uint64_t payload = e->t.nbytes - e->scale_nbytes;
    if ((seen & SEEN_BYTES) != 0 && r->bytes != e->t.nbytes) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .tensor = r->name,
                        .what = "bytes differ from shape x fmt", CSN_VALUES(e->t.nbytes, r->bytes));
    }
    if (!csn_range_fits(r->off, payload, trunk_nbytes)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .file = w->trunk->path, .tensor = r->name,
                        CSN_RANGE(r->off, payload), .what = "the payload leaves the file",
                        CSN_VALUES(trunk_nbytes, r->off));
    }
    if (e->scale_nbytes == 0) {
        return CAISSON_OK;
    }
    if ((seen & SEEN_SCALE_OFF) == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = r->name,
                        .what = "a quantised tensor without scale_off");
    }
    if (!csn_range_fits(r->scale_off, e->scale_nbytes, trunk_nbytes)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .file = w->trunk->path, .tensor = r->name,
                        CSN_RANGE(r->scale_off, e->scale_nbytes),
                        .what = "the scales leave the file",
                        CSN_VALUES(trunk_nbytes, r->scale_off));
    }
    e->scale_off = r->scale_off;
    return CAISSON_OK;
}

static caisson_status read_entry(csn_warp *w, const csn_jval *v, size_t i, uint64_t trunk_nbytes,
                                 struct entry *e, caisson_error *err) {
    struct raw r = {.group = GROUP};
    uint64_t seen, n;
    char where[32]; /* its name may be what is wrong */
    (void)snprintf(where, sizeof(where), "%zu", i);
    CSN_TRY(csn_jfields_read(v, fields, CSN_N_FIELDS(fields), where, &r, &seen, err));
    if (r.name.len == 0 || r.name.len > CSN_WARP_MAX_NAME) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = r.name, .what = "name is empty or too long",
                        CSN_VALUES(CSN_WARP_MAX_NAME, r.name.len));
    }
    CSN_TRY(find_dtype(&r, &e->t.dtype, err));
    CSN_TRY(read_shape(&r, &e->t.shape, err));
    bool is_quantised = !e->t.dtype->is_float;
    if (is_quantised && r.group != GROUP) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = r.name,
                        .what = "groups of another size are not read", CSN_VALUES(GROUP, r.group));
    }
    if (!csn_shape_count(&e->t.shape, &n)) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .tensor = r.name,
                        .what = "the shape's size does not fit in 64 bits");
    }
    if (is_quantised) {
        join_rows(&e->t.shape);
        e->scale_nbytes = csn_warp_scale_nbytes(&e->t);
    }
    caisson_status status = e->t.dtype->nbytes(&e->t.shape, &e->t.nbytes, err);
    if (status == CAISSON_OK) {
        e->t.offset = r.off;
        status = check_extents(w, &r, trunk_nbytes, seen, e, err);
    }
    if (status != CAISSON_OK) {
        csn_error_tensor(err, r.name);
        return status;
    }
    return csn_warp_cmf_name(w, r.name, &e->t.name, err);
}

static int by_offset(const void *a, const void *b) {
    const struct entry *x = a;
    const struct entry *y = b;
    return x->t.offset != y->t.offset ? (x->t.offset < y->t.offset ? -1 : 1)
                                      : csn_str_cmp(x->t.name, y->t.name);
}

static int by_first(const void *a, const void *b) {
    const struct range *x = a;
    const struct range *y = b;
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return (x->end > y->end) - (x->end < y->end);
}

static caisson_status check_overlaps(const csn_warp *w, const struct entry *entries, uint32_t n,
                                     caisson_error *err) {
    struct range *list;
    size_t k = 0;
    CSN_TRY(CSN_NEW(2 * (size_t)n, &list, err));
    for (const struct entry *e = entries; e < entries + n; e++) {
        uint64_t end = e->t.offset + e->t.nbytes - e->scale_nbytes;
        list[k++] = (struct range){e->t.offset, end, e};
        if (e->scale_nbytes > 0) {
            list[k++] = (struct range){e->scale_off, e->scale_off + e->scale_nbytes, e};
        }
    }
    qsort(list, k, sizeof(*list), by_first);
    caisson_status status = CAISSON_OK;
    for (size_t i = 1; i < k && status == CAISSON_OK; i++) {
        const struct range *a = &list[i - 1];
        const struct range *b = &list[i];
        bool is_shared = a->first == b->first && a->end == b->end && a->owner != b->owner &&
                         a->owner->t.dtype == b->owner->t.dtype;
        if (b->first < a->end && !is_shared) {
            status =
                CSN_FAIL(err, CAISSON_E_BOUNDS, .file = w->trunk->path, .tensor = b->owner->t.name,
                         CSN_AT(b->first), .what = "bytes are used twice",
                         CSN_TEXTS(CSN_STR("a range of its own"), a->owner->t.name));
        }
    }
    csn_free(list);
    return status;
}

/* Rising offsets, as one reads them. */
static caisson_status keep(csn_warp *w, struct entry *entries, uint32_t n, caisson_error *err) {
    qsort(entries, n, sizeof(*entries), by_offset);
    CSN_TRY(check_overlaps(w, entries, n, err));
    CSN_TRY(CSN_ARENA_NEW(&w->arena, n, &w->dir.tensors, err));
    CSN_TRY(CSN_ARENA_NEW(&w->arena, n, &w->scale_off, err));
    for (uint32_t i = 0; i < n; i++) {
        w->dir.tensors[i] = entries[i].t;
        w->scale_off[i] = entries[i].scale_off;
    }
    w->dir.n = n;
    return csn_directory_index(&w->dir, &w->arena, err);
}

/* Plans know a gate by its tensor; the format by a flag of config. */
static caisson_status check_gates(const csn_warp *w, const csn_warp_config *config,
                                  caisson_error *err) {
    for (uint32_t i = 0; i < w->arch.n_layers; i++) {
        bool is_kda = w->arch.layer_types[i] == CSN_LAYER_KDA;
        bool want = is_kda ? config->has_full_rank_gate : config->has_output_gate;
        char name[64];
        int n = snprintf(name, sizeof(name), "model.layers.%u.%s.g_proj.weight", i,
                         is_kda ? "kda_attn" : "self_attn");
        if ((csn_directory_find(&w->dir, csn_str_make(name, (size_t)n)) != NULL) != want) {
            return CSN_FAIL(err, want ? CAISSON_E_MISSING : CAISSON_E_PARSE,
                            .tensor = csn_str_from(name),
                            .what = want ? "config speaks of a gate that is not there"
                                         : "a gate of which config does not speak",
                            .want = is_kda ? CSN_STR("linear_attn_config.use_full_rank_gate")
                                           : CSN_STR("mla_use_output_gate"));
        }
    }
    return CAISSON_OK;
}

caisson_status csn_warp_read_trunk(csn_warp *w, const csn_warp_config *config, caisson_error *err) {
    const csn_jval *list = csn_jval_get(csn_json_root(w->manifest), "trunk");
    size_t n = csn_jval_len(list);
    if (csn_jval_kind(list) != CSN_JSON_ARRAY || n == 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "trunk", .what = "not a list of tensors");
    }
    if (n > CAISSON_MAX_TENSORS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "trunk", .what = "too many tensors",
                        CSN_VALUES(CAISSON_MAX_TENSORS, n));
    }
    uint64_t trunk_nbytes;
    struct entry *entries;
    CSN_TRY(csn_file_size(w->trunk, &trunk_nbytes, err));
    CSN_TRY(CSN_NEW(n, &entries, err));
    caisson_status status = CAISSON_OK;
    csn_jiter it = csn_jval_iter(list);
    while (status == CAISSON_OK && csn_jiter_next(&it)) {
        status = read_entry(w, it.value, it.index, trunk_nbytes, &entries[it.index], err);
    }
    if (status == CAISSON_OK) {
        status = keep(w, entries, (uint32_t)n, err);
    }
    if (status == CAISSON_OK) {
        status = check_gates(w, config, err);
    }
    csn_free(entries);
    if (status != CAISSON_OK) {
        csn_error_section(err, "trunk");
    }
    return status;
}

uint32_t csn_warp_tensor_ranges(const csn_warp *w, uint32_t i, csn_warp_range ret[2]) {
    const csn_tensor *t = &w->dir.tensors[i];
    uint64_t scales = csn_warp_scale_nbytes(t);
    ret[0] = (csn_warp_range){t->offset, t->nbytes - scales};
    if (scales == 0 || w->scale_off[i] == t->offset + ret[0].nbytes) {
        ret[0].nbytes = t->nbytes;
        return 1;
    }
    ret[1] = (csn_warp_range){w->scale_off[i], scales};
    return 2;
}

caisson_status csn_warp_read_tensor(csn_warp *w, uint32_t i, uint8_t *out, caisson_error *err) {
    csn_warp_range ranges[2];
    uint32_t n = csn_warp_tensor_ranges(w, i, ranges);
    caisson_status status = CAISSON_OK;
    for (uint32_t k = 0; k < n && status == CAISSON_OK; k++) {
        status = csn_file_read_at(w->trunk, ranges[k].offset, out, (size_t)ranges[k].nbytes, err);
        out += ranges[k].nbytes;
    }
    if (status != CAISSON_OK) {
        csn_error_section(err, "trunk");
        csn_error_tensor(err, w->dir.tensors[i].name);
    }
    return status;
}
