/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what tests/oracle/vq_products.py writes. */
#ifndef TESTS_SUPPORT_VQ_GOLDEN_H
#define TESTS_SUPPORT_VQ_GOLDEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/io.h"
#include "quant/dtype.h"
#include "quant/vq.h"
#include "unit/test.h"

/* Room for codebooks in both orders. */
typedef struct vq_book_memory {
    float entry[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM];
    float column[CSN_VQ_MAX_STAGES * CSN_VQ_MAX_ENTRIES * CSN_VQ_DIM];
} vq_book_memory;

/* Fills `column` from `entry`. */
static inline csn_vq_books vq_books(vq_book_memory *m, uint32_t stages, uint32_t entries,
                                    bool is_packed) {
    for (uint32_t i = 0; i < stages * entries * CSN_VQ_DIM; i++) {
        uint32_t s = i / (entries * CSN_VQ_DIM);
        uint32_t c = i / CSN_VQ_DIM % entries;
        uint32_t d = i % CSN_VQ_DIM;
        m->column[(s * CSN_VQ_DIM + d) * entries + c] = m->entry[i];
    }
    return (csn_vq_books){.stages = stages,
                          .entries = entries,
                          .is_packed = is_packed,
                          .entry = m->entry,
                          .column = m->column};
}

typedef struct vq_golden {
    csn_buf file;
    vq_book_memory *memory;
    csn_vq_books books;
    csn_vq_matrix m;
    uint32_t n;
    uint64_t index_nbytes;
    const float *x;       /* [n][cols] */
    const float *weights; /* [rows][cols] */
    const float *y[2];    /* [n][rows] by f32 tables, by int8 tables */
} vq_golden;

static inline void vq_golden_open(const char *name, vq_golden *g) {
    char path[512];
    uint32_t head[7];
    caisson_error err;
    (void)snprintf(path, sizeof(path), "%s/tests/golden/quant/warp_%s.bin", CSN_SOURCE_DIR, name);
    *g = (vq_golden){.memory = malloc(sizeof(vq_book_memory))};
    assert_non_null(g->memory);
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), path, 1 << 20, &g->file, &err), &err);
    memcpy(head, g->file.ptr, sizeof(head));
    const uint8_t *p = (const uint8_t *)g->file.ptr + sizeof(head);
    const uint32_t n_values = head[0] * head[1] * CSN_VQ_DIM;
    for (uint32_t i = 0; i < n_values; i++, p += 2) {
        g->memory->entry[i] = csn_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
    }
    g->books = vq_books(g->memory, head[0], head[1], head[2] != 0);
    g->m = (csn_vq_matrix){.scale = p, .rows = head[3], .cols = head[4], .block = head[5]};
    g->n = head[6];
    p += 2 * (size_t)g->m.rows;
    g->m.index = p;
    assert_true(csn_vq_index_nbytes(&g->books, g->m.rows, g->m.cols, g->m.block, &g->index_nbytes));
    size_t at = (size_t)(p - (const uint8_t *)g->file.ptr) + (size_t)g->index_nbytes;
    const float *f = (const float *)(const void *)(g->file.ptr + (at + 3) / 4 * 4);
    g->x = f;
    g->weights = f + (size_t)g->n * g->m.cols;
    g->y[0] = g->weights + (size_t)g->m.rows * g->m.cols;
    g->y[1] = g->y[0] + (size_t)g->n * g->m.rows;
    assert_ptr_equal(g->y[1] + (size_t)g->n * g->m.rows, g->file.ptr + g->file.len);
}

static inline void vq_golden_close(vq_golden *g) {
    free(g->memory);
    csn_buf_free(&g->file);
}

#endif
