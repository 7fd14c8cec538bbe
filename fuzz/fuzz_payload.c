/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of a tensor: id of its dtype, what its shape is (below), the bytes. What check lets
 * pass is decoded, whole and in ranges, and multiplied in both arithmetic modes; every buffer ends
 * where what it holds does. */
#include <stdlib.h>

#include "kernels/kernels.h"
#include "quant/dtype.h"

#include "base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *copy_of(const void *p, uint64_t n) {
    void *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL) {
        abort();
    }
    return memcpy(copy, p, n);
}

static void multiply(const csn_matrix *m) {
    enum { N = 5 };
    uint64_t nbytes;
    void *room;
    caisson_error err;
    float *x = calloc(N * m->cols + 1, sizeof(float));
    float *y = calloc(N * m->rows + 1, sizeof(float));
    if (x == NULL || y == NULL || !csn_x8_nbytes(N, m->cols, &nbytes) ||
        csn_alloc_aligned(nbytes, &room, &err) != CAISSON_OK) {
        abort();
    }
    for (uint64_t i = 0; i < N * m->cols; i++) {
        x[i] = (float)(i % 17) - 8.0f;
    }
    csn_x8 x8 = csn_x8_make(room, N, m->cols);
    csn_kernel_quantise_x8()(x, m->cols, &x8, 0, N);
    csn_matmul_i8_fn i8 = csn_kernel_matmul_i8(m);
    for (uint64_t n = 1; n <= N; n += N - 1) {
        csn_kernel_matmul_f32(m)(m, x, m->cols, n, y, m->rows, 0, m->rows);
        if (i8 != NULL) {
            i8(m, &x8, n, y, m->rows, 0, m->rows);
        }
    }
    csn_free_aligned(room);
    free(x);
    free(y);
}

/* shape[0]: number of dimensions, 0 to 3, and, with 4 added, the second counts groups of 32. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const csn_dtype *d = size < 4 ? NULL : csn_dtype_by_cmf(data[0]);
    caisson_error err;
    if (d == NULL || d->decode == NULL) {
        return 0;
    }
    csn_shape s = {.n_dims = data[1] & 3u,
                   .dim = {data[2], data[3] * (data[1] & 4u ? UINT64_C(32) : 1), 2}};
    uint64_t n = size - 4;
    uint64_t n_weights = 0;
    if (d->nbytes != NULL && (d->nbytes(&s, &n, &err) != CAISSON_OK || n > size - 4)) {
        return 0;
    }
    if (d->check != NULL) {
        uint64_t from = d->check_from != NULL ? d->check_from(&s, n) : 0;
        uint64_t looked_at = d->check_bytes != NULL ? d->check_bytes(&s, n) : n - from;
        void *part = copy_of(data + 4 + from, looked_at);
        caisson_status status = d->check(&s, part, n, &err);
        free(part);
        if (status != CAISSON_OK) {
            return 0;
        }
    }
    (void)csn_shape_count(&s, &n_weights);
    uint8_t *payload = copy_of(data + 4, n);
    csn_matrix m = csn_matrix_make(d, &s, payload, n);
    for (uint64_t k = 0; k < n_weights; k += n_weights / 3 + 1) {
        float *out = calloc(n_weights - k, sizeof(float));
        d->decode(&m, k, n_weights - k, out);
        free(out);
    }
    if (m.rows > 0 && m.cols > 0) {
        multiply(&m);
    }
    free(payload);
    return 0;
}
