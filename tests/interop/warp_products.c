/* SPDX-License-Identifier: Apache-2.0 */
/* The WARP engine's own products, on the matrices of tests/golden/quant/warp_*.bin (what the facts
 * give, in numpy: tests/oracle/vq_products.py). Its kernels are static, so this includes its source
 * file; both lie outside the repository.
 *
 *   warp_products FILE...  -> a line a file: the number of products, and how many of them have the
 *                             bits of the file with the tables of its SIMD and of its plain C
 */
#include "model.c"

#include <stdio.h>

/* One file: a matrix, n vectors, and what the one gives with the others. */
typedef struct golden {
    int stages, entries, is_packed, rows, cols, n;
    float books[4 * 256 * 8]; /* [stage][dim][entry], as the engine's loader has it */
    const uint16_t *scale;    /* [rows] */
    const uint8_t *idx;
    const float *x;        /* [n][cols] */
    const float *products; /* [n][rows], by the kind of table that the engine has for these books */
} golden;

static _Alignas(64) uint8_t file[1 << 20];

static const void *take(const uint8_t **at, int size) {
    const uint8_t *p = *at;
    *at += size;
    return p;
}

static void parse(golden *g) {
    const uint8_t *at = file;
    const uint32_t *h = take(&at, 28);
    *g = (golden){.stages = (int)h[0],
                  .entries = (int)h[1],
                  .is_packed = (int)h[2],
                  .rows = (int)h[3],
                  .cols = (int)h[4],
                  .n = (int)h[6]};
    const int per_book = g->entries * 8;
    const uint16_t *half = take(&at, g->stages * per_book * 2);
    g->scale = take(&at, g->rows * 2);
    g->idx = take(&at, (g->rows + 63) / 64 * 8 * g->cols * (g->is_packed ? 3 : g->stages));
    at += (file - at) & 3;
    g->x = take(&at, g->n * g->cols * 4);
    (void)take(&at, g->rows * g->cols * 4);                 /* weights */
    (void)take(&at, g->is_packed ? g->n * g->rows * 4 : 0); /* products by f32 tables */
    g->products = take(&at, g->n * g->rows * 4);
    for (int i = 0; i < g->stages * per_book; i++) {
        int to = i / per_book * per_book + i % 8 * g->entries + i / 8 % g->entries;
        g->books[to] = f16_to_f32(half[i]);
    }
}

/* How many products of vector i have the bits of the file. */
static int same(const golden *g, int i, void (*fill)(int, int, void *)) {
    static float lut[1 << 18], scales[64], y[1 << 10];
    static int8_t codes[1 << 18];
    const int nv = g->cols / 8;
    lutb_arg tables = {lut, g->books, g->x + i * g->cols, 0, g->stages, g->entries, 8};
    fill(0, nv, &tables);
    if (g->is_packed) {
        vqp_arg a = {y, g->idx, g->scale, codes, scales, nv};
        vq_quant_lut(lut, nv, g->stages, g->entries, codes, scales);
        vq_rows_p6(0, g->rows, &a);
    } else {
        vq_arg a = {y, g->idx, g->scale, lut, nv, g->stages, g->entries};
        vq_rows(0, g->rows, &a);
    }
    int n = 0;
    for (int r = 0; r < g->rows; r++) {
        n += memcmp(y + r, g->products + i * g->rows + r, sizeof *y) == 0;
    }
    return n;
}

int main(int argc, char **argv) {
    waste_backend_init(WASTE_BE_AUTO);
    for (int f = 1; f < argc; f++) {
        static golden g;
        FILE *in = fopen(argv[f], "rb");
        if (in == NULL || fread(file, 1, sizeof file, in) < 28) {
            (void)fprintf(stderr, "warp_products: cannot read %s\n", argv[f]);
            return 1;
        }
        (void)fclose(in);
        parse(&g);
        int simd = 0, plain = 0;
        for (int i = 0; i < g.n; i++) {
            simd += same(&g, i, waste_k.lutb_range);
            plain += same(&g, i, waste_lutb_range);
        }
        printf("%d %d %d\n", g.n * g.rows, simd, plain);
    }
    return 0;
}
