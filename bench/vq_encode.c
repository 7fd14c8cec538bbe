/* SPDX-License-Identifier: Apache-2.0 */
/* Codebooks for a matrix, and the matrix coded with them: seconds and error. The matrix is a file
 * of f32, or random numbers of a bell shape.
 *
 *   build/dev/bench/bench_vq_encode [--rows 1024] [--cols 2304] [--threads 1] [--coding 0] [FILE]
 *
 * {"train_s":T,"encode_s":E,"relative_error":R}    (coding: 0 vq3r, 1 vq2r, 2 vq4p)
 * bench/peer/vq_encode.py compares it with the format's converter. */
#include <math.h>

#include "bench.h"
#include "convert/vq_encode.h"

enum { SAMPLE = 300000 };

static void fill(float *x, size_t n, const char *path) {
    csn_random r = csn_random_seed(1, CSN_STR("bench"), 0, 0);
    FILE *f = path != NULL ? fopen(path, "rb") : NULL;
    if (path != NULL && (f == NULL || fread(x, sizeof(float), n, f) != n)) {
        (void)fprintf(stderr, "bench: cannot read %zu weights of %s\n", n, path);
        exit(1);
    }
    for (size_t i = 0; f == NULL && i < n; i++) {
        x[i] = csn_random_f32(&r) + csn_random_f32(&r) + csn_random_f32(&r);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
}

static void must(caisson_status status, const caisson_error *err) {
    if (status != CAISSON_OK) {
        char line[512];
        (void)fprintf(stderr, "bench: %s\n", caisson_error_format(err, line, sizeof(line)));
        exit(1);
    }
}

static double since(uint64_t t0) {
    return (double)(csn_now_ns() - t0) * 1e-9;
}

int main(int argc, char **argv) {
    uint32_t rows = (uint32_t)bench_arg(argc, argv, "--rows", 1024);
    uint32_t cols = (uint32_t)bench_arg(argc, argv, "--cols", 2304);
    const csn_warp_coding *coding = &csn_warp_codings[(int)bench_arg(argc, argv, "--coding", 0)];
    size_t n = (size_t)rows * cols;
    float *x = bench_alloc(n * sizeof(float));
    float *sample = bench_alloc((size_t)SAMPLE * CSN_VQ_DIM * sizeof(float));
    uint8_t *index = bench_alloc(n);
    uint8_t *scale = bench_alloc(2 * (size_t)rows);
    uint16_t *books = bench_alloc((size_t)coding->stages * coding->entries * CSN_VQ_DIM * 2);
    csn_vq_encoder *e = bench_alloc(sizeof(*e));
    caisson_error err;
    csn_pool *pool;
    csn_vq_error lost = {0};
    uint32_t n_sample;
    csn_random r = csn_random_seed(1, CSN_STR("vq"), 0, 0);
    fill(x, n, argc > 1 && argv[argc - 1][0] == '/' ? argv[argc - 1] : NULL);
    must(csn_pool_new((unsigned)bench_arg(argc, argv, "--threads", 1), &pool, &err), &err);
    uint64_t t0 = csn_now_ns();
    must(csn_vq_sample(x, rows, cols, &r, SAMPLE, sample, &n_sample, &err), &err);
    must(csn_vq_train(sample, n_sample, coding, &r, pool, books, &err), &err);
    double train_s = since(t0), encode_s = (double)INFINITY;
    csn_vq_encoder_init(e, coding, books);
    for (int i = 0; i < 5; i++) {
        t0 = csn_now_ns();
        must(csn_vq_encode(e, x, rows, cols, pool, index, scale, &lost, &err), &err);
        double s = since(t0);
        encode_s = s < encode_s ? s : encode_s;
    }
    printf("{\"train_s\":%.3f,\"encode_s\":%.4f,\"relative_error\":%.6f}\n", train_s, encode_s,
           sqrt(lost.lost / lost.whole));
    return 0;
}
