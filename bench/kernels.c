/* SPDX-License-Identifier: Apache-2.0 */
/* GB/s of weights and GOP/s of each row of kernels.def, next to a plain read loop in the same run.
 *
 *   bench_kernels [--cols 1024] [--mb 96] [--batch 256] [--seconds 0.4] [--only NAME]
 *                 [--width BITS]   of every row of vbit; default: a mixture whose mean is 4.25
 */
#include <math.h>

#include "base/cpu.h"
#include "bench.h"
#include "kernels/types.h"

struct work {
    csn_matmul_i8_fn i8;
    csn_matmul_f32_fn f32;
    csn_quantise_x8_fn quantise;
    csn_matrix w;
    const float *x;
    csn_x8 x8;
    uint64_t n;
    float *y;
    uint8_t *bytes;
    size_t n_bytes;
    uint8_t width; /* of rows of vbit; 0 = mixed */
    volatile uint64_t sink[64];
};

static void region(void *ctx, unsigned i, unsigned k) {
    struct work *w = ctx;
    uint64_t a;
    uint64_t b;
    if (w->i8 != NULL || w->f32 != NULL) {
        csn_share(w->w.rows, 16, i, k, &a, &b);
        if (w->i8 != NULL) {
            w->i8(&w->w, &w->x8, w->n, w->y, w->w.rows, a, b);
        } else {
            w->f32(&w->w, w->x, w->w.cols, w->n, w->y, w->w.rows, a, b);
        }
    } else if (w->quantise != NULL) {
        csn_share(w->n, 1, i, k, &a, &b);
        w->quantise(w->x, w->w.cols, &w->x8, a, b);
    } else {
        csn_share(w->n_bytes, 4096, i, k, &a, &b);
        w->sink[i % 64] = bench_read(w->bytes + a, b - a);
    }
}

/* Bytes of a row of a dtype by name, for dtypes whose rows need nothing else. 0: not benched. */
static double bytes_per_row(const char *name, uint64_t cols) {
    static const struct {
        const char *name;
        double per_weight, per_row;
    } sizes[] = {{"q8_row", 1, 2},
                 {"q8_2f", 1, 2},
                 {"q4_block", 18.0 / 32, 0},
                 {"q4_tiled", 18.0 / 32, 0},
                 {"f32", 4, 0},
                 {"f16", 2, 0},
                 {"bf16", 2, 0},
                 {"q4tp", 20.0 / 32, 0}, /* with its scales, without what they come from */
                 {"vbit", 4.25 / 8 + 2.0 / 32, 1},
                 {"q1", 6.0 / 32, 0},
                 {"q1s", 6.0 / 32 + 0.06, 0},
                 {"q1t", 9.0 / 32, 4},
                 {"q2tp", 12.0 / 32, 0},
                 {"q8g", 1 + 2.0 / 128, 0}, /* whole groups of columns */
                 {"q4g", 0.5 + 2.0 / 128, 0}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (strcmp(sizes[i].name, name) == 0) {
            return sizes[i].per_weight * (double)cols + sizes[i].per_row;
        }
    }
    return 0;
}

static void set_widths(const struct work *w, uint8_t *bits) {
    static const uint8_t mixed[8] = {4, 5, 3, 4, 5, 4, 4, 5};
    for (uint64_t r = 0; r < w->w.rows; r++) {
        bits[r] = w->width != 0 ? w->width : mixed[r * 5 % 8];
    }
}

/* Overlays say where things lie: of q1s one weight in a hundred, of q1t none. */
static void make_overlay(struct work *w) {
    const bool is_q1s = strcmp(w->w.dtype->name, "q1s") == 0;
    const uint64_t n = w->w.rows * w->w.cols;
    uint8_t *p = w->bytes + n / 32 * (is_q1s ? 6 : 9);
    uint32_t count = is_q1s ? (uint32_t)(n / 100) : 0;
    uint32_t seed = 1;
    if (!is_q1s) {
        memset(p, 0, 4 * (w->w.rows + 1));
        p += 4 * (w->w.rows + 1);
    } else {
        memcpy(p, &count, 4);
        p += 4;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t index = k * 100 + bench_random(&seed) % 100;
        memcpy(p + 6 * (uint64_t)k, &index, 4);
    }
    w->w.nbytes = (uint64_t)(p + 6 * (uint64_t)count - w->bytes);
}

struct kernel {
    const char *op, *dtype, *isa;
    uint32_t flags;
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
};

static const struct kernel kernels[] = {
#define CSN_KERNEL(op_, dtype_, isa_, flags_)                                                      \
    {.op = #op_,                                                                                   \
     .dtype = #dtype_,                                                                             \
     .isa = #isa_,                                                                                 \
     .flags = (flags_),                                                                            \
     .op_ = csn_##op_##_##dtype_##_##isa_},
#include "kernels/kernels.def"
#undef CSN_KERNEL
};

static bool first = true;

static void line(const char *op, const char *dtype, const char *isa, unsigned threads, uint64_t n,
                 double bytes, double ops, bench_time t) {
    printf("%s\n  {\"op\":\"%s\",\"dtype\":\"%s\",\"isa\":\"%s\",\"threads\":%u,\"n\":%llu,"
           "\"gb_per_s\":%.2f,\"gb_per_s_median\":%.2f,\"gop_per_s\":%.1f}",
           first ? "" : ",", op, dtype, isa, threads, (unsigned long long)n, bytes / t.best * 1e-9,
           bytes / t.median * 1e-9, ops / t.best * 1e-9);
    (void)fflush(stdout);
    first = false;
}

static void bench_kernel(const struct kernel *k, csn_pool *pool, struct work *w, double seconds,
                         uint64_t batch, const csn_dtype *dtype) {
    unsigned threads = csn_pool_n_threads(pool);
    double row = bytes_per_row(k->dtype, w->w.cols);
    if (strcmp(k->dtype, "vbit") == 0 && w->width != 0) {
        row += (w->width - 4.25) / 8 * (double)w->w.cols;
    }
    w->i8 = k->matmul_i8;
    w->f32 = k->matmul_f32;
    w->quantise = k->quantise_x8;
    if (k->quantise_x8 != NULL) {
        w->n = batch;
        bench_time t = bench_run(pool, region, w, seconds);
        line(k->op, k->dtype, k->isa, threads, batch, (double)(batch * w->w.cols) * 4, 0, t);
        return;
    }
    if (row == 0 || (k->matmul_i8 == NULL && (k->matmul_f32 == NULL || dtype == NULL))) {
        return;
    }
    w->w.dtype = dtype;
    for (int b = 0; b < 2; b++) {
        w->n = b == 0 ? 1 : batch;
        uint64_t rows = (uint64_t)((double)w->n_bytes * 0.9 / row);
        if (b == 1) { /* short passes: some of them see an idle machine */
            rows = 512;
        }
        w->w.rows = rows / 16 * 16;
        w->w.nbytes = (uint64_t)(row * (double)w->w.rows);
        if (strcmp(k->dtype, "vbit") == 0) {
            set_widths(w, w->bytes);
        } else if (dtype->nbytes == NULL) {
            make_overlay(w);
        }
        w->w.unpacked = NULL;
        if (dtype->unpack != NULL) {
            void *unpacked = bench_alloc(dtype->unpacked_nbytes(&w->w));
            dtype->unpack(&w->w, unpacked);
            w->w.unpacked = unpacked;
        }
        bench_time t = bench_run(pool, region, w, seconds);
        line(k->op, k->dtype, k->isa, threads, w->n, row * (double)w->w.rows,
             2.0 * (double)w->w.rows * (double)w->w.cols * (double)w->n, t);
    }
}

int main(int argc, char **argv) {
    uint64_t cols = (uint64_t)bench_arg(argc, argv, "--cols", 1024);
    size_t n_bytes = (size_t)bench_arg(argc, argv, "--mb", 96) << 20;
    uint64_t batch = (uint64_t)bench_arg(argc, argv, "--batch", 256);
    double seconds = bench_arg(argc, argv, "--seconds", 0.4);
    const char *only = NULL;
    for (int i = 1; i + 1 < argc; i++) {
        only = strcmp(argv[i], "--only") == 0 ? argv[i + 1] : only;
    }
    static struct work w;
    uint8_t *bytes = bench_alloc(n_bytes + (1 << 21));
    uint32_t seed = 1;
    for (size_t i = 0; i < n_bytes; i++) {
        bytes[i] = (uint8_t)(bench_random(&seed) & 0x3B); /* no f16 or f32 that is inf or NaN */
    }
    float *x = bench_alloc(batch * cols * sizeof(float));
    for (uint64_t i = 0; i < batch * cols; i++) {
        x[i] = (float)bench_random(&seed) * 0x1p-24f - 0.5f;
    }
    uint64_t x8_bytes;
    if (!csn_x8_nbytes(batch, cols, &x8_bytes)) {
        return 1;
    }
    w.x = x;
    w.x8 = csn_x8_make(bench_alloc(x8_bytes), batch, cols);
    csn_kernel_quantise_x8()(x, cols, &w.x8, 0, batch);
    w.bytes = bytes;
    w.width = (uint8_t)bench_arg(argc, argv, "--width", 0);
    w.n_bytes = n_bytes;
    w.w = (csn_matrix){.data = bytes, .nbytes = n_bytes, .cols = cols};
    w.y = bench_alloc((n_bytes * 2 / cols + 65536) * sizeof(float) + batch * 4096 * sizeof(float));
    printf("{\"cols\":%llu,\"mb\":%zu,\"kernels\":[", (unsigned long long)cols, n_bytes >> 20);
    for (unsigned threads = 1; threads <= csn_n_cpus() && threads <= 2; threads++) {
        csn_pool *pool;
        caisson_error err;
        if (csn_pool_new(threads, &pool, &err) != CAISSON_OK) {
            return 1;
        }
        w.i8 = NULL;
        w.f32 = NULL;
        w.quantise = NULL;
        bench_time t = bench_run(pool, region, &w, seconds);
        line("read", "bytes", "c", threads, 1, (double)n_bytes, 0, t);
        for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
            const struct kernel *k = &kernels[i];
            if ((k->flags & csn_cpu_flags()) != k->flags ||
                (only != NULL && strcmp(k->dtype, only) != 0) ||
                (only != NULL && strcmp(k->isa, "ref") == 0)) {
                continue;
            }
            bench_kernel(k, pool, &w, seconds, batch, csn_dtype_by_name(csn_str_from(k->dtype)));
        }
        csn_pool_free(pool);
    }
    printf("]}\n");
    return 0;
}
