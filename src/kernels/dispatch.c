/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses kernels: walks kernels.def under the CPU's flags and takes, for an operation and a dtype
 * name, the last row that fits. Lookups compare names, so this file needs no table of dtypes; the
 * model looks each tensor's kernels up once, at open. */
#include "kernels/types.h"

#include <string.h>

#include "base/cpu.h"

enum op {
    OP_matmul_f32,
    OP_matmul_i8,
    OP_scale_x,
    OP_matmul_i8_exact,
    OP_matmul_i8_rows,
    OP_quantise_x8,
    OP_take_exact,
    OP_vq_table_f32,
    OP_vq_table_i8,
    OP_vq_apply_f32,
    OP_vq_apply_i8,
    OP_vq_direct_f32,
    OP_vq_nearest
};

struct row {
    enum op op;
    uint32_t flags;
    const char *dtype;
    union {
        csn_matmul_f32_fn matmul_f32;
        csn_matmul_i8_fn matmul_i8;
        csn_scale_x_fn scale_x;
        csn_matmul_i8_fn matmul_i8_exact;
        csn_matmul_i8_rows_fn matmul_i8_rows;
        csn_quantise_x8_fn quantise_x8;
        csn_take_exact_fn take_exact;
        csn_vq_table_fn vq_table_f32, vq_table_i8;
        csn_vq_apply_fn vq_apply_f32, vq_apply_i8;
        csn_vq_direct_fn vq_direct_f32;
        csn_vq_nearest_fn vq_nearest;
    } fn;
};

static const struct row rows[] = {
#define CSN_KERNEL(op_, dtype_, isa, flags_)                                                       \
    {.op = OP_##op_, .dtype = #dtype_, .flags = (flags_), .fn.op_ = csn_##op_##_##dtype_##_##isa},
#include "kernels/kernels.def"
#undef CSN_KERNEL
};

/* The last row for (op, dtype) that this CPU can run, or NULL. */
static const struct row *find(enum op op, const char *dtype) {
    uint32_t have = csn_cpu_flags();
    const struct row *best = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].op == op && (rows[i].flags & have) == rows[i].flags &&
            strcmp(rows[i].dtype, dtype) == 0) {
            best = &rows[i];
        }
    }
    return best;
}

csn_matmul_f32_fn csn_kernel_matmul_f32(const csn_matrix *w) {
    const struct row *r = find(OP_matmul_f32, w->dtype->name);
    return r != NULL ? r->fn.matmul_f32 : find(OP_matmul_f32, "any")->fn.matmul_f32;
}

csn_matmul_i8_fn csn_kernel_matmul_i8(const csn_matrix *w) {
    if (w->dtype->group > 1 && w->cols % w->dtype->group != 0) {
        return NULL;
    }
    const struct row *r = find(OP_matmul_i8, w->dtype->name);
    return r != NULL ? r->fn.matmul_i8 : NULL;
}

csn_scale_x_fn csn_kernel_scale_x(const csn_matrix *w) {
    const struct row *r = find(OP_scale_x, w->dtype->name);
    return r != NULL ? r->fn.scale_x : NULL;
}

csn_matmul_i8_fn csn_kernel_matmul_i8_exact(const csn_matrix *w) {
    const struct row *r = find(OP_matmul_i8_exact, w->dtype->name);
    return r != NULL ? r->fn.matmul_i8_exact : NULL;
}

csn_matmul_i8_rows_fn csn_kernel_matmul_i8_rows(const csn_matrix *w) {
    const struct row *r = find(OP_matmul_i8_rows, w->dtype->name);
    return r != NULL ? r->fn.matmul_i8_rows : NULL;
}

csn_quantise_x8_fn csn_kernel_quantise_x8(void) {
    return find(OP_quantise_x8, "any")->fn.quantise_x8;
}

csn_take_exact_fn csn_kernel_take_exact(void) {
    return find(OP_take_exact, "any")->fn.take_exact;
}

static uint64_t vq_f32_nbytes(const csn_vq_books *b, uint64_t cols) {
    return csn_vq_codes_nbytes(b, cols) * sizeof(float);
}

static uint64_t vq_i8_nbytes(const csn_vq_books *b, uint64_t cols) {
    uint64_t spans = (cols / CSN_VQ_DIM + CSN_VQ_SPAN - 1) / CSN_VQ_SPAN;
    return csn_vq_codes_nbytes(b, cols) + (spans * sizeof(float) + 63) / 64 * 64;
}

csn_vq_kernel csn_kernel_vq(const csn_vq_books *b, bool want_int8) {
    if (b->is_packed || want_int8) {
        const struct row *own = find(OP_vq_apply_i8, b->is_packed ? "packed" : "bytes");
        return (csn_vq_kernel){
            .is_int8 = true,
            .table_nbytes = vq_i8_nbytes,
            .table = find(OP_vq_table_i8, "any")->fn.vq_table_i8,
            .apply = (own != NULL ? own : find(OP_vq_apply_i8, "any"))->fn.vq_apply_i8};
    }
    return (csn_vq_kernel){.table_nbytes = vq_f32_nbytes,
                           .table = find(OP_vq_table_f32, "any")->fn.vq_table_f32,
                           .apply = find(OP_vq_apply_f32, "any")->fn.vq_apply_f32,
                           .direct = find(OP_vq_direct_f32, "any")->fn.vq_direct_f32};
}

csn_vq_nearest_fn csn_kernel_vq_nearest(void) {
    return find(OP_vq_nearest, "any")->fn.vq_nearest;
}
