/* SPDX-License-Identifier: Apache-2.0 */
/* The gap for envelope, header and directory is sized from the plan, so payloads can be written
 * before the header is known. */
#include "format/cmf/layout.h"

#include "base/base64.h"
#include "base/digest.h"
#include "base/hash64.h"
#include "base/size.h"
#include "caisson/limits.h"
#include "format/journal.h"

enum { ADDED_BYTES = 512 }; /* what the writer adds to the header JSON, digests of tensors aside */

static caisson_status check_plan_tensor(const csn_cmf_plan_tensor *p, caisson_error *err) {
    if (p->dtype->cmf_id == CSN_NO_ID || p->dtype->is_reserved) {
        return CSN_FAIL(err, CAISSON_E_ARG, .tensor = p->name,
                        .what = "CMF files have no tensors of this dtype",
                        .got = csn_str_from(p->dtype->name));
    }
    if (p->name.len > UINT16_MAX) {
        return CSN_FAIL(err, CAISSON_E_ARG, .tensor = p->name, .what = "tensor name is too long",
                        CSN_VALUES(UINT16_MAX, p->name.len));
    }
    if (p->shape.n_dims > CSN_MAX_DIMS) {
        return CSN_FAIL(err, CAISSON_E_ARG, .tensor = p->name, .what = "too many dimensions",
                        CSN_VALUES(CSN_MAX_DIMS, p->shape.n_dims));
    }
    for (uint32_t d = 0; d < p->shape.n_dims; d++) {
        if (p->shape.dim[d] > UINT32_MAX) {
            return CSN_FAIL(err, CAISSON_E_ARG, .tensor = p->name,
                            .what = "a dimension does not fit into 32 bits",
                            CSN_VALUES(UINT32_MAX, p->shape.dim[d]));
        }
    }
    return CAISSON_OK;
}

caisson_status csn_cmf_describe(const csn_cmf_plan_tensor *p, csn_arena *arena, csn_tensor *t,
                                caisson_error *err) {
    CSN_TRY(check_plan_tensor(p, err));
    CSN_TRY(csn_arena_str(arena, p->name, &t->name, err));
    t->dtype = p->dtype;
    t->shape = p->shape;
    t->nbytes = p->nbytes;
    if (p->dtype->nbytes != NULL) {
        caisson_status status = p->dtype->nbytes(&p->shape, &t->nbytes, err);
        if (status != CAISSON_OK) {
            csn_error_tensor(err, p->name);
            return status;
        }
    }
    return CAISSON_OK;
}

/* Tensors from i on, each behind the one before; those in front lie where they are. */
static caisson_status place(csn_cmf_layout *l, uint32_t i, caisson_error *err) {
    uint64_t end = l->data_off;
    for (uint32_t k = i; k > 0 && end == l->data_off; k--) { /* back to the last that has bytes */
        const csn_tensor *t = &l->dir.tensors[k - 1];
        end = t->nbytes > 0 ? t->offset + t->nbytes : end;
    }
    for (; i < l->dir.n; i++) {
        csn_tensor *t = &l->dir.tensors[i];
        uint64_t align = t->nbytes >= CSN_CMF_LARGE ? CSN_CMF_PAGE : CSN_CMF_ALIGN;
        if (t->nbytes == 0) {
            t->offset = l->data_off; /* no bytes: the place means nothing */
            continue;
        }
        if (!csn_align_up(end, align, &t->offset) || !csn_add(t->offset, t->nbytes, &end)) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .tensor = t->name,
                            .what = "the file's size does not fit in 64 bits");
        }
    }
    if (end > INT64_MAX) {
        return CSN_FAIL(err, CAISSON_E_BOUNDS, .what = "the file's size does not fit in 63 bits",
                        CSN_VALUES(INT64_MAX, end));
    }
    l->data_len = end - l->data_off;
    return CAISSON_OK;
}

static uint64_t plan_id(const csn_cmf_plan *plan, const csn_cmf_layout *l) {
    uint64_t id = csn_journal_mix(csn_hash64(plan->fingerprint.ptr, plan->fingerprint.len),
                                  plan->fingerprint.len);
    for (size_t i = 0; i + 8 <= plan->fingerprint.len; i += 8) { /* hash64 is blind to order */
        id = csn_journal_mix(id, csn_hash64(plan->fingerprint.ptr + i, 8));
    }
    id = csn_journal_mix(id, l->data_off);
    for (uint32_t i = 0; i < l->dir.n; i++) {
        const csn_tensor *t = &l->dir.tensors[i];
        id = csn_journal_mix(id, csn_hash64(t->name.ptr, t->name.len));
        id = csn_journal_mix(csn_journal_mix(id, (uint64_t)t->dtype->cmf_id), t->nbytes);
        for (uint32_t d = 0; d < t->shape.n_dims; d++) {
            id = csn_journal_mix(id, t->shape.dim[d]);
        }
    }
    return id;
}

caisson_status csn_cmf_layout_make(const csn_cmf_plan *plan, csn_arena *arena, csn_cmf_layout *ret,
                                   caisson_error *err) {
    csn_cmf_layout l = {0};
    if (plan->n > CAISSON_MAX_TENSORS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "too many tensors",
                        CSN_VALUES(CAISSON_MAX_TENSORS, plan->n));
    }
    CSN_TRY(CSN_ARENA_NEW(arena, plan->n, &l.dir.tensors, err));
    l.dir.n = plan->n;
    for (uint32_t i = 0; i < plan->n; i++) {
        CSN_TRY(csn_cmf_describe(&plan->tensors[i], arena, &l.dir.tensors[i], err));
    }
    CSN_TRY(csn_directory_index(&l.dir, arena, err));
    l.dir_bytes = csn_cmf_directory_bytes(&l.dir);
    uint64_t head;
    if (plan->head_bytes > CAISSON_MAX_HEADER_BYTES) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "header", .what = "header is too long",
                        CSN_VALUES(CAISSON_MAX_HEADER_BYTES, plan->head_bytes));
    }
    head = CSN_CMF_ENVELOPE_BYTES + plan->head_bytes + ADDED_BYTES +
           csn_base64_len((size_t)plan->n * CSN_DIGEST_BYTES) + l.dir_bytes;
    (void)csn_align_up(head, CSN_CMF_PAGE, &l.data_off); /* head is below 2^37 */
    CSN_TRY(place(&l, 0, err));
    l.plan_id = plan_id(plan, &l);
    *ret = l;
    return CAISSON_OK;
}

caisson_status csn_cmf_layout_to_f32(csn_cmf_layout *l, uint32_t i, caisson_error *err) {
    csn_tensor *t = &l->dir.tensors[i];
    const csn_dtype *f32 = csn_dtype_by_name(CSN_STR("f32"));
    CSN_TRY(f32->nbytes(&t->shape, &t->nbytes, err));
    t->dtype = f32;
    return place(l, i, err);
}

caisson_status csn_cmf_layout_resize(csn_cmf_layout *l, uint32_t i, uint64_t nbytes,
                                     caisson_error *err) {
    csn_tensor *t = &l->dir.tensors[i];
    if (nbytes == t->nbytes) {
        return CAISSON_OK;
    }
    if (t->dtype->nbytes != NULL) {
        return CSN_FAIL(err, CAISSON_E_ARG, .tensor = t->name,
                        .what = "payload differs in size from the plan",
                        CSN_VALUES(t->nbytes, nbytes));
    }
    t->nbytes = nbytes;
    return place(l, i, err);
}

uint64_t csn_cmf_directory_bytes(const csn_directory *dir) {
    uint64_t n = CSN_CMF_DIR_HEAD_BYTES + (uint64_t)dir->n * CSN_CMF_RECORD_BYTES;
    for (uint32_t i = 0; i < dir->n; i++) {
        n += dir->tensors[i].name.len; /* below 2^16 each */
    }
    return n;
}

void csn_cmf_directory_write(const csn_directory *dir, uint64_t data_off, uint8_t *ret) {
    uint64_t pool_off = CSN_CMF_DIR_HEAD_BYTES + (uint64_t)dir->n * CSN_CMF_RECORD_BYTES;
    uint64_t name_off = 0;
    memset(ret, 0, (size_t)pool_off);
    csn_put64(ret, dir->n);
    csn_put64(ret + 8, pool_off);
    for (uint32_t i = 0; i < dir->n; i++) {
        const csn_tensor *t = &dir->tensors[i];
        uint8_t *r = ret + CSN_CMF_DIR_HEAD_BYTES + (uint64_t)i * CSN_CMF_RECORD_BYTES;
        csn_put32(r, (uint32_t)name_off);
        csn_put16(r + 4, (uint16_t)t->name.len);
        r[6] = (uint8_t)t->dtype->cmf_id;
        r[7] = (uint8_t)t->shape.n_dims;
        for (uint32_t d = 0; d < t->shape.n_dims; d++) {
            csn_put32(r + 8 + 4 * d, (uint32_t)t->shape.dim[d]);
        }
        csn_put64(r + 32, t->nbytes > 0 ? t->offset - data_off : 0);
        csn_put64(r + 40, t->nbytes);
        csn_put64(r + 48, t->hash);
        if (t->name.len > 0) {
            memcpy(ret + pool_off + name_off, t->name.ptr, t->name.len);
        }
        name_off += t->name.len;
    }
}
