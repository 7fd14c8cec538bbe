/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses kernels: walks kernels.def once under the CPU's flags and keeps, for each operation and
 * dtype name, the last row that fits. Lookups compare dtype names, so this file needs no table of
 * dtypes; models look each tensor's kernels up once, at open. */
#include "kernels/kernels.h"

#include <string.h>

#include "base/cpu.h"

void csn_matmul_f32_any_ref(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n,
                            float *y, uint64_t y_stride, uint64_t r0, uint64_t r1);

#define TYPE_matmul_f32 csn_matmul_f32_fn
#define TYPE_matmul_i8 csn_matmul_i8_fn
#define PROTO_matmul_f32(name)                                                                     \
    void name(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n, float *y,        \
              uint64_t y_stride, uint64_t r0, uint64_t r1)
#define PROTO_matmul_i8(name)                                                                      \
    void name(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride,       \
              uint64_t r0, uint64_t r1)

#define CSN_KERNEL(op, dtype, isa, flags) PROTO_##op(csn_##op##_##dtype##_##isa);
#include "kernels/kernels.def"
#undef CSN_KERNEL

struct row {
    const char *op, *dtype;
    uint32_t flags;
    union {
        csn_matmul_f32_fn matmul_f32;
        csn_matmul_i8_fn matmul_i8;
    } fn;
};

static const struct row rows[] = {
#define CSN_KERNEL(op_, dtype_, isa, flags_)                                                       \
    {.op = #op_, .dtype = #dtype_, .flags = (flags_), .fn.op_ = csn_##op_##_##dtype_##_##isa},
#include "kernels/kernels.def"
#undef CSN_KERNEL
};

/* The last row for (op, dtype) that this CPU can run, or NULL. */
static const struct row *find(const char *op, const char *dtype) {
    uint32_t have = csn_cpu_flags();
    const struct row *best = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if ((rows[i].flags & have) == rows[i].flags && strcmp(rows[i].op, op) == 0 &&
            strcmp(rows[i].dtype, dtype) == 0) {
            best = &rows[i];
        }
    }
    return best;
}

csn_matmul_f32_fn csn_kernel_matmul_f32(const csn_dtype *d) {
    const struct row *r = find("matmul_f32", d->name);
    if (r == NULL) {
        r = find("matmul_f32", "any");
    }
    return r != NULL ? r->fn.matmul_f32 : csn_matmul_f32_any_ref;
}

csn_matmul_i8_fn csn_kernel_matmul_i8(const csn_dtype *d) {
    const struct row *r = find("matmul_i8", d->name);
    return r != NULL ? r->fn.matmul_i8 : NULL;
}
