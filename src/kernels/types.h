/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels.def expands to: a type and a prototype for each operation. */
#ifndef CSN_KERNELS_TYPES_H
#define CSN_KERNELS_TYPES_H

#include "kernels/kernels.h"
#include "kernels/vq.h"
#include "kernels/vq_nearest.h"

#define CSN_PROTO_matmul_f32(name)                                                                 \
    void name(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n, float *y,        \
              uint64_t y_stride, uint64_t r0, uint64_t r1)
#define CSN_PROTO_matmul_i8(name)                                                                  \
    void name(const csn_matrix *w, const csn_x8 *x, uint64_t n, float *y, uint64_t y_stride,       \
              uint64_t r0, uint64_t r1)
#define CSN_PROTO_matmul_i8_rows(name)                                                             \
    void name(const csn_matrix *w, const csn_x8 *x, uint64_t n, bool adds_exact, float *y,         \
              uint64_t y_stride, const uint32_t *rows, uint64_t n_rows)
#define CSN_PROTO_scale_x(name)                                                                    \
    void name(const csn_matrix *w, const float *x, uint64_t x_stride, uint64_t n, float *out)
#define CSN_PROTO_matmul_i8_exact(name) CSN_PROTO_matmul_i8(name)
#define CSN_PROTO_quantise_x8(name)                                                                \
    void name(const float *x, uint64_t x_stride, const csn_x8 *x8, uint64_t t0, uint64_t t1)
#define CSN_PROTO_take_exact(name) void name(float *x, const csn_x8 *x8, uint64_t t)
#define CSN_PROTO_vq_table(name)                                                                   \
    void name(const csn_vq_books *b, const float *x, uint64_t cols, uint64_t v0, uint64_t v1,      \
              void *table)
#define CSN_PROTO_vq_apply(name)                                                                   \
    void name(const csn_vq_matrix *m, const void *const *tables, uint64_t n, float *y,             \
              uint64_t y_stride, uint64_t r0, uint64_t r1)
#define CSN_PROTO_vq_direct_f32(name)                                                              \
    void name(const csn_vq_matrix *m, const float *const *x, uint64_t n, float *y,                 \
              uint64_t y_stride, uint64_t r0, uint64_t r1)
#define CSN_PROTO_vq_nearest(name)                                                                 \
    void name(const csn_vq_search *s, const float *x, uint64_t n, uint8_t *ret)
#define CSN_PROTO_vq_table_f32(name) CSN_PROTO_vq_table(name)
#define CSN_PROTO_vq_table_i8(name) CSN_PROTO_vq_table(name)
#define CSN_PROTO_vq_apply_f32(name) CSN_PROTO_vq_apply(name)
#define CSN_PROTO_vq_apply_i8(name) CSN_PROTO_vq_apply(name)

/* Prototypes of all rows: kernel files include this, so that none disagrees with the table. */
#define CSN_KERNEL(op, dtype, isa, flags) CSN_PROTO_##op(csn_##op##_##dtype##_##isa);
#include "kernels/kernels.def"
#undef CSN_KERNEL

#endif
