/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of kernels.def against the plain C row of its operation, bit for bit: all small sizes,
 * ragged rows, odd alignments, guard pages before and after each array, canaries between outputs,
 * special codes and scales. Two NaN are equal whatever their payload. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "kernels/types.h"

struct kernel {
    const char *name, *dtype;
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
    {.name = #op_ "_" #dtype_ "_" #isa_,                                                           \
     .dtype = #dtype_,                                                                             \
     .flags = (flags_),                                                                            \
     .op_ = csn_##op_##_##dtype_##_##isa_},
#include "kernels/kernels.def"
#undef CSN_KERNEL
};
enum { N_KERNELS = sizeof(kernels) / sizeof(kernels[0]) };

static uint32_t first_seed;
static uint32_t seed;

static uint32_t next_random(void) {
    seed = seed * 1664525 + 1013904223;
    return seed >> 8;
}

static uint32_t below(uint32_t n) {
    return next_random() % n;
}

/* ---- memory between two pages that cannot be touched ---- */

struct guarded {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *p; /* the array: ends at the guard behind, or begins at the one before */
};

static struct guarded guarded_new(size_t bytes, bool at_end, size_t align) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = (bytes + align + page - 1) / page * page;
    struct guarded g = {.map_bytes = inner + 2 * page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(g.map + page + inner, page, PROT_NONE), 0);
    uint8_t *end = g.map + page + inner;
    g.p = at_end ? end - (bytes + align - 1) / align * align : g.map + page;
    return g;
}

static void guarded_free(struct guarded *g) {
    if (g->map != NULL) {
        munmap(g->map, g->map_bytes);
    }
}

/* ---- inputs ---- */

enum pattern { RANDOM, TAME, ZEROS, LARGEST, SUBNORMAL, N_PATTERNS };

/* Payload bytes: anything (so NaN and infinite scales too), ordinary scales, all zero, 0x80 and
 * 0xFF (codes of -128, nibbles of 15 and 8), tiny scales. */
static void fill_payload(uint8_t *p, size_t n, enum pattern pattern) {
    for (size_t i = 0; i < n; i++) {
        uint8_t b = (uint8_t)next_random();
        p[i] = pattern == RANDOM    ? b
               : pattern == TAME    ? b & 0x3B
               : pattern == ZEROS   ? 0
               : pattern == LARGEST ? (b & 1 ? 0x80 : 0xFF)
                                    : b & 0x83;
    }
}

/* Dtypes whose payload says where things lie: fill_payload makes the rest of the bytes. */
static uint64_t vbit_nbytes(const csn_shape *s, bool has_offsets, const uint8_t *bits) {
    uint64_t n = s->dim[0] * (1 + s->dim[1] / 16) + (has_offsets ? 4 * (s->dim[0] + 1) : 0);
    for (uint64_t r = 0; r < s->dim[0]; r++) {
        n += s->dim[1] / 8 * bits[r];
    }
    return n;
}

static void vbit_places(const csn_shape *s, bool has_offsets, const uint8_t *bits, uint8_t *p) {
    uint8_t *offset = p + s->dim[0] * (1 + s->dim[1] / 16);
    uint32_t at = 0;
    for (uint64_t r = 0; r <= s->dim[0] && has_offsets; r++) {
        memcpy(offset + 4 * r, &at, sizeof(at)); /* little-endian machines run these tests */
        at += r < s->dim[0] ? (uint32_t)(s->dim[1] / 8 * bits[r]) : 0;
    }
    memcpy(p, bits, (size_t)s->dim[0]);
}

/* q1s and q1t: some outliers behind the tiles, in about every fourth row all of them. Returns the
 * bytes of the payload; writes the overlay where p is not NULL. */
static uint64_t q1_overlay(const csn_shape *s, bool is_q1t, uint32_t overlay_seed, uint8_t *p) {
    const uint64_t rows = s->dim[0];
    const uint64_t cols = s->dim[1];
    const uint64_t tiles = rows * cols / 32 * (is_q1t ? 9 : 6);
    const uint64_t entry = is_q1t ? 4 : 6;
    uint64_t at = tiles + (is_q1t ? 4 * (rows + 1) : 4);
    uint32_t n = 0;
    for (uint64_t r = 0; r < rows; r++) {
        if (p != NULL && is_q1t) {
            memcpy(p + tiles + 4 * r, &n, 4); /* little-endian machines run these tests */
        }
        overlay_seed = overlay_seed * 1664525 + 1013904223;
        bool is_full = overlay_seed >> 30 == 0;
        for (uint64_t c = overlay_seed >> 8 & 63; c < cols; c += is_full ? 1 : 33, n++) {
            uint32_t key = (uint32_t)(is_q1t ? c : r * cols + c);
            if (p != NULL) {
                memcpy(p + at + n * entry, &key, entry - 2);
            }
        }
    }
    if (p != NULL) {
        memcpy(p + tiles + (is_q1t ? 4 * rows : 0), &n, 4);
    }
    return at + n * entry;
}

static float value(enum pattern pattern) {
    float u = (float)(int32_t)(next_random() << 8) * 0x1p-31f;
    switch (pattern) {
    case ZEROS: return below(2) ? 0.0f : -0.0f;
    case LARGEST: return below(2) ? 1e30f : -1e30f;
    case SUBNORMAL: return u * 0x1p-140f;
    default: return below(16) == 0 ? u * 100.0f : u;
    }
}

/* ---- one case ---- */

struct sizes {
    uint64_t rows, cols, n;
    bool at_end;
    enum pattern w, x;
};

#define CANARY 0xA5

static bool same_bits(const float *a, const float *b) {
    return memcmp(a, b, sizeof(*a)) == 0 || (isnan(*a) && isnan(*b));
}

static void explain(const struct kernel *k, const struct sizes *s, const char *what) {
    print_error("%s: %s; rows %u cols %u n %u at_end %d patterns %d %d seed %u\n", k->name, what,
                (unsigned)s->rows, (unsigned)s->cols, (unsigned)s->n, s->at_end, (int)s->w,
                (int)s->x, (unsigned)first_seed);
}

struct fixture {
    csn_matrix w;
    struct guarded gw, gx, gq, gy, gs;
    const float *x;
    uint64_t x_stride, y_stride;
    csn_x8 x8;
    float *y, *want;
    size_t y_bytes;
};

static void setup(struct fixture *f, const struct kernel *k, const struct sizes *s) {
    caisson_error err;
    const char *name = strcmp(k->dtype, "any") == 0 ? "q8_row" : k->dtype;
    const csn_dtype *d = csn_dtype_by_name((csn_str){name, strlen(name)});
    assert_non_null(d);
    csn_shape shape = {2, {s->rows, s->cols}};
    uint64_t nbytes;
    uint8_t bits[256];
    bool is_vbit = strncmp(name, "vbit", 4) == 0;
    bool has_offsets = strcmp(name, "vbit_ro") == 0;
    bool one_width = below(3) == 0;
    assert_true(s->rows <= sizeof(bits));
    for (uint64_t r = 0; r < s->rows; r++) {
        bits[r] = one_width && r > 0 ? bits[0] : (uint8_t[]){3, 4, 5, 6, 8}[below(5)];
    }
    const bool is_q1t = strcmp(name, "q1t") == 0;
    const bool has_overlay = is_q1t || strcmp(name, "q1s") == 0;
    const uint32_t overlay_seed = next_random();
    if (is_vbit) {
        nbytes = vbit_nbytes(&shape, has_offsets, bits);
    } else if (has_overlay) {
        nbytes = q1_overlay(&shape, is_q1t, overlay_seed, NULL);
    } else {
        assert_int_equal(d->nbytes(&shape, &nbytes, &err), CAISSON_OK);
    }
    f->gw = guarded_new(nbytes, s->at_end, 1);
    fill_payload(f->gw.p, nbytes, s->w);
    if (is_vbit) {
        vbit_places(&shape, has_offsets, bits, f->gw.p);
        assert_int_equal(d->check(&shape, f->gw.p, nbytes, &err), CAISSON_OK);
    } else if (has_overlay) {
        q1_overlay(&shape, is_q1t, overlay_seed, f->gw.p);
        uint64_t from = d->check_from(&shape, nbytes);
        assert_int_equal(d->check(&shape, f->gw.p + from, nbytes, &err), CAISSON_OK);
    }
    f->w = csn_matrix_make(d, &shape, f->gw.p, nbytes);
    f->gs = (struct guarded){0};
    if (d->unpack != NULL && d->unpacked_nbytes(&f->w) > 0 && below(3) != 0) {
        f->gs = guarded_new(d->unpacked_nbytes(&f->w), s->at_end, 2 * sizeof(float));
        d->unpack(&f->w, f->gs.p);
        f->w.unpacked = f->gs.p;
    }
    f->x_stride = s->cols + below(3);
    size_t n_x = (size_t)((s->n - 1) * f->x_stride + s->cols);
    f->gx = guarded_new(n_x * sizeof(float), s->at_end, sizeof(float));
    float *x = (float *)(void *)f->gx.p;
    for (size_t i = 0; i < n_x; i++) {
        x[i] = value(s->x);
    }
    f->x = x;
    uint64_t q_bytes;
    assert_true(csn_x8_nbytes(s->n, s->cols, &q_bytes));
    f->gq = guarded_new(q_bytes, s->at_end, 64);
    f->x8 = csn_x8_make(f->gq.p, s->n, s->cols);
    csn_quantise_x8_any_ref(x, f->x_stride, &f->x8, 0, s->n);
    float *copy = malloc((size_t)s->cols * sizeof(float));
    assert_non_null(copy);
    for (uint64_t t = 0; t < s->n; t++) {
        memcpy(copy, x + t * f->x_stride, (size_t)s->cols * sizeof(float));
        csn_take_exact_any_ref(copy, &f->x8, t);
    }
    free(copy);
    f->y_stride = s->rows + below(3);
    size_t n_y = (size_t)((s->n - 1) * f->y_stride + s->rows);
    f->y_bytes = n_y * sizeof(float);
    f->gy = guarded_new(f->y_bytes, s->at_end, sizeof(float));
    f->y = (float *)(void *)f->gy.p;
    f->want = malloc(f->y_bytes);
    memset(f->y, CANARY, f->y_bytes);
    memset(f->want, CANARY, f->y_bytes);
}

static void teardown(struct fixture *f) {
    guarded_free(&f->gw);
    guarded_free(&f->gx);
    guarded_free(&f->gq);
    guarded_free(&f->gy);
    guarded_free(&f->gs);
    free(f->want);
}

static void compare(const struct kernel *k, const struct sizes *s, const struct fixture *f,
                    const char *what) {
    for (size_t i = 0; i < f->y_bytes / sizeof(float); i++) {
        if (!same_bits(&f->y[i], &f->want[i])) {
            explain(k, s, what);
            fail_msg("output %zu (vector %zu, row %zu): %a, ref %a", i, i / (size_t)f->y_stride,
                     i % (size_t)f->y_stride, (double)f->y[i], (double)f->want[i]);
        }
    }
}

static void multiply(const struct kernel *k, struct fixture *f, uint64_t t0, uint64_t t1,
                     uint64_t r0, uint64_t r1) {
    float *y = f->y + t0 * f->y_stride;
    if (k->matmul_f32 != NULL) {
        k->matmul_f32(&f->w, f->x + t0 * f->x_stride, f->x_stride, t1 - t0, y, f->y_stride, r0, r1);
        return;
    }
    csn_x8 x8 = f->x8;
    x8.q += t0 * x8.q_stride;
    x8.split += t0 * x8.q_stride;
    x8.scale += t0 * x8.g_stride;
    x8.offset += t0 * x8.g_stride * 2;
    x8.minus += t0 * x8.g_stride;
    x8.pair = x8.pair != NULL ? x8.pair + t0 * (x8.g_stride / 2) : NULL;
    x8.exact_i += t0 * CSN_X8_EXACT;
    x8.exact_x += t0 * CSN_X8_EXACT;
    x8.n -= t0;
    csn_matmul_i8_fn fn = k->matmul_i8 != NULL ? k->matmul_i8 : k->matmul_i8_exact;
    fn(&f->w, &x8, t1 - t0, y, f->y_stride, r0, r1);
}

/* The plain C row of the same operation and dtype. */
static const struct kernel *reference(const struct kernel *k) {
    for (int i = 0; i < N_KERNELS; i++) {
        bool same_op =
            k->matmul_f32 != NULL ? kernels[i].matmul_f32 != NULL
            : k->matmul_i8_exact != NULL
                ? kernels[i].matmul_i8_exact != NULL && strcmp(kernels[i].dtype, k->dtype) == 0
                : kernels[i].matmul_i8 != NULL && strcmp(kernels[i].dtype, k->dtype) == 0;
        if (same_op && strstr(kernels[i].name, "_ref") != NULL) {
            return &kernels[i];
        }
    }
    fail_msg("%s has no ref row", k->name);
    return NULL;
}

static void check_matmul(const struct kernel *k, const struct sizes *s) {
    struct fixture f;
    setup(&f, k, s);
    const struct kernel *ref = reference(k);
    float *y = f.y;
    uint64_t r0 = below(4) == 0 ? below((uint32_t)s->rows) : 0;
    uint64_t r1 = below(4) == 0 ? r0 + below((uint32_t)(s->rows - r0) + 1) : s->rows;
    f.y = f.want;
    multiply(ref, &f, 0, s->n, r0, r1);
    f.y = y;
    multiply(k, &f, 0, s->n, r0, r1);
    compare(k, s, &f, "batch differs from ref");
    memset(f.y, CANARY, f.y_bytes);
    for (uint64_t t = 0; t < s->n; t++) {
        multiply(k, &f, t, t + 1, r0, r1);
    }
    compare(k, s, &f, "one vector at a time differs from ref");
    teardown(&f);
}

static bool is_tested(const struct kernel *k) {
    return strstr(k->name, "_ref") == NULL && (k->flags & csn_cpu_flags()) == k->flags;
}

/* ---- cases ---- */

/* Calls check with sizes that this dtype may have: every small one, then some larger. */
static void sweep(const struct kernel *k) {
    static const uint64_t large[] = {95,  96,  97,  128,  255,  256,  257,  288,  320,  480, 511,
                                     512, 513, 576, 1023, 1024, 1025, 1056, 2048, 4096, 4128};
    static const uint64_t ns[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 33};
    static const uint64_t rows[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33};
    const csn_dtype *d = csn_dtype_by_name((csn_str){k->dtype, strlen(k->dtype)});
    bool whole_groups = k->matmul_i8 != NULL && d != NULL && d->group > 1;
    uint64_t nbytes;
    caisson_error err;
    whole_groups = whole_groups ||
                   (d != NULL && (d->nbytes == NULL || d->nbytes(&(csn_shape){2, {1, 33}}, &nbytes,
                                                                 &err) != CAISSON_OK));
    uint64_t n_sizes = 2 * 32 + 1 + sizeof(large) / sizeof(large[0]);
    for (uint64_t i = 0; i < n_sizes; i++) {
        uint64_t cols = i < 65 ? i + 1 : large[i - 65];
        if (whole_groups && cols % 32 != 0) {
            cols = i < 24 ? (i + 1) * 32 : (cols + 31) / 32 * 32;
        }
        struct sizes s = {.cols = cols,
                          .rows = rows[below(sizeof(rows) / sizeof(rows[0]))],
                          .n = ns[below(sizeof(ns) / sizeof(ns[0]))],
                          .at_end = below(2),
                          .w = (enum pattern)below(N_PATTERNS),
                          .x = (enum pattern)below(N_PATTERNS)};
        if (cols > 1025) {
            s.rows = s.rows > 9 ? 9 : s.rows;
        }
        check_matmul(k, &s);
    }
}

static void matmul_i8_equals_ref(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        if (kernels[i].matmul_i8 != NULL && is_tested(&kernels[i])) {
            for (int pass = 0; pass < 4; pass++) {
                sweep(&kernels[i]);
            }
        }
    }
}

static void matmul_i8_exact_equals_ref(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        if (kernels[i].matmul_i8_exact != NULL && is_tested(&kernels[i])) {
            sweep(&kernels[i]);
            check_matmul(&kernels[i], &(struct sizes){.rows = 150, .cols = 96, .n = 70, .w = TAME});
            check_matmul(&kernels[i],
                         &(struct sizes){.rows = 64, .cols = 1, .n = 3, .at_end = true});
        }
    }
}

/* Rows by a list against the same rows one by one; what is not listed stays. */
static void matmul_i8_rows_equals_one_by_one(void **state) {
    (void)state;
    static const uint64_t cols[] = {1, 31, 64, 96, 576, 1000, 1536};
    for (int i = 0; i < N_KERNELS; i++) {
        const struct kernel *k = &kernels[i];
        if (k->matmul_i8_rows == NULL || !is_tested(k)) {
            continue;
        }
        for (unsigned pass = 0; pass < 60; pass++) {
            struct sizes s = {.cols = cols[below(7)],
                              .rows = 1 + below(60),
                              .n = 1 + below(CSN_FEW_VECTORS),
                              .at_end = below(2),
                              .w = (enum pattern)below(N_PATTERNS),
                              .x = (enum pattern)below(N_PATTERNS)};
            struct fixture f;
            setup(&f, k, &s);
            bool adds_exact = below(2) == 1;
            csn_matmul_i8_fn one =
                adds_exact ? csn_matmul_i8_exact_q8_row_ref : csn_matmul_i8_q8_row_ref;
            uint32_t list[60];
            uint64_t n = 0;
            for (uint32_t r = 0; r < s.rows; r++) {
                if (below(3) != 0) {
                    list[n++] = r;
                    one(&f.w, &f.x8, s.n, f.want, f.y_stride, r, r + 1);
                }
            }
            k->matmul_i8_rows(&f.w, &f.x8, s.n, adds_exact, f.y, f.y_stride, list, n);
            compare(k, &s, &f, "listed rows differ");
            teardown(&f);
        }
    }
}

static void take_exact_equals_ref(void **state) {
    (void)state;
    enum { MOST = 70 };
    csn_take_exact_fn fn = csn_kernel_take_exact();
    uint64_t bytes;
    assert_true(csn_x8_nbytes(1, MOST, &bytes));
    uint8_t *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    for (uint64_t n = 1; n <= MOST; n++) {
        for (int pass = 0; pass < 8; pass++) {
            float x[MOST];
            float want[MOST];
            for (uint64_t i = 0; i < n; i++) { /* few values, so that many are equal */
                x[i] = pass == 0 ? 0.0f : (float)below(pass == 1 ? 3 : 1000) - 1.0f;
                want[i] = x[i];
            }
            csn_x8 x8 = csn_x8_make(memory, 1, n);
            csn_take_exact_any_ref(want, &x8, 0);
            uint32_t want_i[CSN_X8_EXACT];
            float want_x[CSN_X8_EXACT];
            memcpy(want_i, x8.exact_i, sizeof(want_i));
            memcpy(want_x, x8.exact_x, sizeof(want_x));
            fn(x, &x8, 0);
            assert_memory_equal(x8.exact_i, want_i, sizeof(want_i));
            assert_memory_equal(x8.exact_x, want_x, sizeof(want_x));
            assert_memory_equal(x, want, n * sizeof(float));
        }
    }
    free(memory);
}

/* The contract of kernels.h, worked out one element at a time. */
static void exact_elements_are_taken_and_added(void **state) {
    (void)state;
    enum { COLS = 77, ROWS = 70, N = 3 };
    float x[N][COLS];
    uint8_t payload[ROWS * COLS + 2 * ROWS];
    _Alignas(64) uint8_t memory[N * (256 * 4 + 256)];
    uint64_t bytes;
    assert_true(csn_x8_nbytes(N, COLS, &bytes) && bytes <= sizeof(memory));
    csn_x8 x8 = csn_x8_make(memory, N, COLS);
    assert_true((uint8_t *)(x8.exact_x + N * CSN_X8_EXACT) <= memory + bytes);
    for (int t = 0; t < N; t++) {
        for (int i = 0; i < COLS; i++) {
            x[t][i] = (float)(i % 5) - 2.0f;
        }
    }
    x[0][3] = -7; /* a tie: the first of equals */
    x[0][40] = 7;
    x[1][76] = 9; /* behind the last whole group */
    x[1][64] = -8.5f;
    memset(x[2], 0, sizeof(x[2]));
    for (uint64_t t = 0; t < N; t++) {
        csn_kernel_take_exact()(x[t], &x8, t);
    }
    static const uint32_t want_i[] = {3, 40, 76, 64, 0, 0};
    static const float want_x[] = {-7, 7, 9, -8.5f, 0, 0};
    assert_int_equal(CSN_X8_EXACT, 2);
    assert_memory_equal(x8.exact_i, want_i, sizeof(want_i));
    assert_memory_equal(x8.exact_x, want_x, sizeof(want_x));
    assert_true(x[0][3] == 0 && x[0][40] == 0 && x[0][39] == 2 && x[1][76] == 0 && x[1][64] == 0);

    fill_payload(payload, sizeof(payload), TAME);
    csn_matrix w = {.dtype = csn_dtype_by_name((csn_str){"q8_row", 6}),
                    .data = payload,
                    .nbytes = sizeof(payload),
                    .rows = ROWS,
                    .cols = COLS};
    csn_kernel_quantise_x8()(x[0], COLS, &x8, 0, N);
    float rest[N][ROWS];
    float y[N][ROWS];
    csn_kernel_matmul_i8 (&w)(&w, &x8, N, rest[0], ROWS, 0, ROWS);
    csn_kernel_matmul_i8_exact (&w)(&w, &x8, N, y[0], ROWS, 0, ROWS);
    for (uint64_t t = 0; t < N; t++) {
        for (uint64_t r = 0; r < ROWS; r++) {
            float want = rest[t][r];
            for (uint64_t k = 0; k < CSN_X8_EXACT; k++) {
                float v;
                w.dtype->decode(&w, r * COLS + x8.exact_i[t * CSN_X8_EXACT + k], 1, &v);
                want += v * x8.exact_x[t * CSN_X8_EXACT + k];
            }
            assert_true(y[t][r] == want);
        }
    }
}

static void matmul_f32_equals_ref(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        if (kernels[i].matmul_f32 != NULL && is_tested(&kernels[i])) {
            sweep(&kernels[i]);
        }
    }
}

/* All pairs of (pattern of weights, pattern of activations), at sizes that fill every path. */
static void special_values_equal_ref(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        const struct kernel *k = &kernels[i];
        if ((k->matmul_i8 == NULL && k->matmul_f32 == NULL) || !is_tested(k)) {
            continue;
        }
        for (int w = 0; w < N_PATTERNS; w++) {
            for (int x = 0; x < N_PATTERNS; x++) {
                for (uint64_t n = 1; n <= 7; n += 6) {
                    check_matmul(k, &(struct sizes){.rows = 19,
                                                    .cols = 352,
                                                    .n = n,
                                                    .at_end = n == 1,
                                                    .w = (enum pattern)w,
                                                    .x = (enum pattern)x});
                }
            }
        }
    }
}

/* Rows longer than a packed panel, with more vectors than keep their lanes at once. */
static void long_rows_equal_ref(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        const struct kernel *k = &kernels[i];
        if (k->matmul_i8 != NULL && is_tested(k)) {
            check_matmul(k, &(struct sizes){.rows = 2, .cols = 4096 + 96, .n = 101, .w = TAME});
            check_matmul(k, &(struct sizes){.rows = 9, .cols = 8192 + 32, .n = 8, .at_end = true});
        }
    }
}

/* One to three vectors: every number of groups up to ten, rows about multiples of four, the buffers
 * at the first and at the last byte of readable memory. */
static void few_vectors_equal_ref(void **state) {
    (void)state;
    static const uint64_t rows[] = {3, 4, 5, 6, 7, 8, 11};
    for (int i = 0; i < N_KERNELS; i++) {
        const struct kernel *k = &kernels[i];
        if (k->matmul_i8 == NULL || !is_tested(k)) {
            continue;
        }
        for (uint64_t groups = 1; groups <= 10; groups++) {
            for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
                for (uint64_t n = 1; n <= 3; n++) {
                    struct sizes s = {.rows = rows[r], .cols = 32 * groups, .n = n, .w = TAME};
                    check_matmul(k, &s);
                    s.at_end = true;
                    check_matmul(k, &s);
                }
            }
        }
        /* longer than q4tp's room for scales; q1t has at most that many columns */
        uint64_t cols = strcmp(k->dtype, "q1t") == 0 ? 65536 : 65536 + 64;
        check_matmul(k, &(struct sizes){.rows = 5, .cols = cols, .n = 1, .w = TAME});
    }
}

static void check_quantise(const struct kernel *k, const struct sizes *s) {
    struct fixture f;
    setup(&f, &kernels[0], s); /* x8 holds ref's result */
    uint64_t bytes;
    assert_true(csn_x8_nbytes(s->n, s->cols, &bytes));
    struct guarded g = guarded_new(bytes, s->at_end, 64);
    csn_x8 got = csn_x8_make(g.p, s->n, s->cols);
    memset(g.p, CANARY, bytes);
    uint64_t split = below((uint32_t)s->n + 1);
    k->quantise_x8(f.x, f.x_stride, &got, 0, split);
    k->quantise_x8(f.x, f.x_stride, &got, split, s->n);
    size_t codes = (size_t)(s->n * got.q_stride);
    size_t groups = (size_t)(s->n * got.g_stride);
    bool same = memcmp(got.q, f.x8.q, codes) == 0 && memcmp(got.split, f.x8.split, codes) == 0 &&
                memcmp(got.scale, f.x8.scale, groups * sizeof(float)) == 0 &&
                memcmp(got.offset, f.x8.offset, groups * 2 * sizeof(int16_t)) == 0 &&
                memcmp(got.minus, f.x8.minus, groups * sizeof(int32_t)) == 0 &&
                (s->n > CSN_FEW_VECTORS ||
                 memcmp(got.pair, f.x8.pair, groups / 2 * sizeof(csn_x8_pair)) == 0);
    if (!same) {
        explain(k, s, "differs from ref");
    }
    assert_true(same);
    guarded_free(&g);
    teardown(&f);
}

static void quantise_x8_equals_ref(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        if (kernels[i].quantise_x8 == NULL || !is_tested(&kernels[i])) {
            continue;
        }
        for (uint64_t cols = 1; cols <= 320; cols++) {
            for (int x = 0; x < N_PATTERNS; x++) {
                check_quantise(&kernels[i], &(struct sizes){.rows = 1,
                                                            .cols = cols,
                                                            .n = 1 + below(3),
                                                            .at_end = below(2),
                                                            .x = (enum pattern)x});
            }
        }
    }
}

static void check_scale_x(const struct kernel *k, const struct sizes *s) {
    struct fixture f;
    setup(&f, k, s);
    size_t n = (size_t)(s->n * s->cols);
    struct guarded g = guarded_new(n * sizeof(float), s->at_end, sizeof(float));
    float *got = (float *)(void *)g.p, *want = malloc(n * sizeof(float));
    csn_scale_x_q8_2f_ref(&f.w, f.x, f.x_stride, s->n, want);
    k->scale_x(&f.w, f.x, f.x_stride, s->n, got);
    for (size_t i = 0; i < n; i++) {
        if (!same_bits(&got[i], &want[i])) {
            explain(k, s, "differs from ref");
            assert_true(false);
        }
    }
    free(want);
    guarded_free(&g);
    teardown(&f);
}

static void scale_x_equals_ref(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        if (kernels[i].scale_x == NULL || !is_tested(&kernels[i])) {
            continue;
        }
        for (uint64_t cols = 1; cols <= 100; cols++) {
            for (int p = 0; p < N_PATTERNS * N_PATTERNS; p++) {
                check_scale_x(&kernels[i], &(struct sizes){.rows = 1 + below(3),
                                                           .cols = cols,
                                                           .n = 1 + below(3),
                                                           .at_end = below(2),
                                                           .w = (enum pattern)(p / N_PATTERNS),
                                                           .x = (enum pattern)(p % N_PATTERNS)});
            }
        }
    }
}

/* An infinity or a NaN among the activations: no product of it is a number, whatever quantised and
 * whatever multiplied. Else a model that has broken down would go on as if nothing had been. */
static void what_is_no_number_stays_so(void **state) {
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int i = 0; i < N_KERNELS; i++) {
        const struct kernel *k = &kernels[i];
        if (k->matmul_i8 == NULL || (k->flags & csn_cpu_flags()) != k->flags) {
            continue;
        }
        for (uint64_t n = 1; n <= 9; n += 4) {
            for (uint64_t at = 0; at < 352; at += 1 + below(16)) {
                struct sizes s = {.rows = 11, .cols = 352, .n = n, .w = TAME};
                struct fixture f;
                setup(&f, k, &s);
                float *x = (float *)(void *)f.gx.p;
                x[(n - 1) * f.x_stride + at] = bad[below(4)];
                csn_quantise_x8_fn quantise =
                    below(2) ? csn_kernel_quantise_x8() : csn_quantise_x8_any_ref;
                quantise(f.x, f.x_stride, &f.x8, 0, n);
                multiply(k, &f, 0, n, 0, s.rows);
                for (uint64_t r = 0; r < s.rows; r++) {
                    if (!isnan(f.y[(n - 1) * f.y_stride + r])) {
                        explain(k, &s, "a number of what is none");
                        fail();
                    }
                }
                teardown(&f);
            }
        }
    }
}

static void mask_chooses_the_row(void **state) {
    (void)state;
    const csn_dtype *d = csn_dtype_by_name((csn_str){"q8_row", 6});
    csn_matrix w = {.dtype = d, .rows = 1, .cols = 32};
    csn_cpu_mask(0);
    assert_true(csn_kernel_matmul_i8(&w) == csn_matmul_i8_q8_row_ref);
    assert_true(csn_kernel_matmul_f32(&w) == csn_matmul_f32_any_ref);
    assert_true(csn_kernel_quantise_x8() == csn_quantise_x8_any_ref);
    csn_cpu_mask(UINT32_MAX);
#if defined(__x86_64__)
    if (csn_cpu_flags() & CSN_CPU_VNNI512) {
        assert_true(csn_kernel_matmul_i8(&w) == csn_matmul_i8_q8_row_avx512);
    }
    csn_cpu_mask(CSN_CPU_AVX2);
    if (csn_cpu_flags() & CSN_CPU_AVX2) {
        assert_true(csn_kernel_matmul_i8(&w) == csn_matmul_i8_q8_row_avx2);
    }
    csn_cpu_mask(UINT32_MAX);
#endif
}

static void dtypes_say_which_form_they_have(void **state) {
    (void)state;
    csn_matrix w = {.rows = 2, .cols = 48};
    w.dtype = csn_dtype_by_name((csn_str){"q4_block", 8});
    assert_null(csn_kernel_matmul_i8(&w)); /* groups cross rows */
    w.cols = 64;
    assert_non_null(csn_kernel_matmul_i8(&w));
    assert_null(csn_kernel_scale_x(&w));
    w.dtype = csn_dtype_by_name((csn_str){"f16", 3});
    assert_null(csn_kernel_matmul_i8(&w));
    assert_non_null(csn_kernel_matmul_f32(&w));
    w.dtype = csn_dtype_by_name((csn_str){"q8_2f", 5});
    assert_non_null(csn_kernel_scale_x(&w));
}

/* Changes some of the bytes that say where things lie. */
static void change_places(csn_matrix *w, uint8_t *p) {
    const uint64_t prefix = w->rows * (1 + w->cols / 16); /* of vbit */
    uint64_t from = 0;
    uint64_t n = w->rows;
    if (strcmp(w->dtype->name, "vbit_ro") == 0 && below(2) == 0) {
        from = prefix;
        n = 4 * (w->rows + 1);
    } else if (strncmp(w->dtype->name, "vbit", 4) != 0) {
        from = w->dtype->check_from(&(csn_shape){2, {w->rows, w->cols}}, w->nbytes);
        n = w->nbytes - from;
    }
    for (uint32_t i = 1 + below(8); i > 0; i--) {
        p[from + below((uint32_t)n)] = (uint8_t)next_random();
    }
}

/* A file that is changed under its mapping after it was checked: what a product gives then means
 * nothing, but nothing outside is touched (guard pages). Plain C too, and decoding. */
static void changed_places_stay_inside(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        const struct kernel *k = &kernels[i];
        const csn_dtype *d = csn_dtype_by_name((csn_str){k->dtype, strlen(k->dtype)});
        if (d == NULL || d->check == NULL || (k->flags & csn_cpu_flags()) != k->flags) {
            continue;
        }
        for (unsigned pass = 0; pass < 200; pass++) {
            struct sizes s = {.cols = 32 * (1 + below(pass % 8 == 0 ? 80 : 12)),
                              .rows = 1 + below(40),
                              .n = 1 + below(9),
                              .at_end = below(2),
                              .w = TAME,
                              .x = TAME};
            struct fixture f;
            setup(&f, k, &s);
            float *out = malloc((size_t)s.cols * sizeof(float));
            assert_non_null(out);
            change_places(&f.w, f.gw.p);
            multiply(k, &f, 0, s.n, 0, s.rows);
            d->decode(&f.w, below((uint32_t)s.rows) * s.cols, s.cols, out);
            free(out);
            teardown(&f);
        }
    }
}

int main(void) {
    const char *given = getenv("CSN_TEST_SEED");
    first_seed = given != NULL ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)time(NULL);
    seed = first_seed;
    (void)fprintf(stderr, "# seed %u (CSN_TEST_SEED repeats it), cpu flags 0x%x\n",
                  (unsigned)first_seed, (unsigned)csn_cpu_flags());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_i8_equals_ref),
        cmocka_unit_test(matmul_i8_exact_equals_ref),
        cmocka_unit_test(matmul_i8_rows_equals_one_by_one),
        cmocka_unit_test(take_exact_equals_ref),
        cmocka_unit_test(exact_elements_are_taken_and_added),
        cmocka_unit_test(matmul_f32_equals_ref),
        cmocka_unit_test(special_values_equal_ref),
        cmocka_unit_test(long_rows_equal_ref),
        cmocka_unit_test(few_vectors_equal_ref),
        cmocka_unit_test(quantise_x8_equals_ref),
        cmocka_unit_test(scale_x_equals_ref),
        cmocka_unit_test(what_is_no_number_stays_so),
        cmocka_unit_test(changed_places_stay_inside),
        cmocka_unit_test(mask_chooses_the_row),
        cmocka_unit_test(dtypes_say_which_form_they_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
