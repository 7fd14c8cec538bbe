/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/threads.h"
#include "quant/q1.h"
#include "quant/q4tp.h"
#include "store/store.h"
#include "support/cmf_golden.h"
#include "support/temp_dir.h"

static csn_store *open_store(const char *path, bool no_mmap, bool guard) {
    csn_cmf *c = NULL;
    csn_store *s = NULL;
    caisson_error err;
    ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
    ASSERT_OK(csn_store_new(c, &(csn_store_options){.no_mmap = no_mmap, .guard_mappings = guard},
                            &s, &err),
              &err);
    return s;
}

static void mapped_and_read_bytes_are_equal(void **state) {
    (void)state;
    caisson_error err;
    csn_store *a = open_store(CMF_GOLDEN "files/tiny-f32.cmf", false, false);
    csn_store *b = open_store(CMF_GOLDEN "files/tiny-f32.cmf", true, false);
    const csn_directory *dir = &csn_store_cmf(a)->dir;
    for (uint32_t i = 0; i < dir->n; i++) {
        csn_matrix x;
        csn_matrix y;
        csn_matrix again;
        ASSERT_OK(csn_store_matrix(a, dir->tensors[i].name, &x, &err), &err);
        ASSERT_OK(csn_store_matrix(b, dir->tensors[i].name, &y, &err), &err);
        ASSERT_OK(csn_store_matrix(b, dir->tensors[i].name, &again, &err), &err);
        assert_ptr_equal(y.data, again.data);
        assert_int_equal(x.nbytes, y.nbytes);
        assert_memory_equal(x.data, y.data, x.nbytes);
        assert_int_equal((uintptr_t)x.data % 64, 0);
        assert_int_equal((uintptr_t)y.data % 64, 0);
        assert_int_equal(x.rows * x.cols * 4, x.nbytes);
    }
    csn_store_free(a);
    csn_store_free(b);
}

/* Only the tensor that is asked for, and only once. */
static void a_damaged_tensor_is_refused_when_asked_for(void **state) {
    (void)state;
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        csn_buf bytes = golden_read(CMF_GOLDEN "files/tiny-f32.cmf");
        const char *path = temp_path("damaged.cmf");
        csn_cmf *c = NULL;
        csn_store *s = NULL;
        csn_matrix m;
        caisson_error err;
        ASSERT_OK(csn_cmf_open(csn_fs_os(), CMF_GOLDEN "files/tiny-f32.cmf", &c, &err), &err);
        csn_tensor damaged = c->dir.tensors[1];
        csn_cmf_close(c);
        bytes.ptr[damaged.offset + damaged.nbytes / 2] ^= 4;
        ASSERT_OK(csn_fs_write_all(csn_fs_os(), path, csn_buf_view(&bytes), &err), &err);
        csn_buf_free(&bytes);
        ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
        csn_store_options o = {.no_mmap = no_mmap != 0, .guard_mappings = true, .verify = true};
        ASSERT_OK(csn_store_new(c, &o, &s, &err), &err);
        for (uint32_t i = 0; i < c->dir.n; i++) {
            caisson_status status = csn_store_matrix(s, c->dir.tensors[i].name, &m, &err);
            if (i != 1) {
                ASSERT_OK(status, &err);
                ASSERT_OK(csn_store_matrix(s, c->dir.tensors[i].name, &m, &err), &err);
                continue;
            }
            ASSERT_STATUS(status, CAISSON_E_HASH);
            assert_string_equal(err.file, path);
            assert_true(csn_str_is(c->dir.tensors[1].name, err.tensor));
            assert_int_equal(err.offset, damaged.offset);
            assert_int_equal(err.n_bytes, damaged.nbytes);
            ASSERT_STATUS(csn_store_matrix(s, c->dir.tensors[i].name, &m, &err), CAISSON_E_HASH);
        }
        csn_store_free(s);
        (void)unlink(path);
    }
}

static void an_absent_tensor_is_named(void **state) {
    (void)state;
    caisson_error err;
    csn_matrix m;
    csn_store *s = open_store(CMF_GOLDEN "files/tiny-f32.cmf", false, false);
    ASSERT_STATUS(csn_store_matrix(s, CSN_STR("model.nothing"), &m, &err), CAISSON_E_MISSING);
    assert_string_equal(err.tensor, "model.nothing");
    assert_string_equal(err.file, CMF_GOLDEN "files/tiny-f32.cmf");
    csn_store_free(s);
}

static void dtypes_that_cannot_run_are_refused_by_name(void **state) {
    (void)state;
    static const char *const names[] = {"mix8_4", "q4_col", "u8"};
    caisson_error err;
    csn_matrix m;
    csn_store *s = open_store(CMF_GOLDEN "files/tiny-all-dtypes.cmf", false, false);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char tensor[32];
        snprintf(tensor, sizeof(tensor), "all.%s", names[i]);
        ASSERT_STATUS(csn_store_matrix(s, csn_str_from(tensor), &m, &err), CAISSON_E_UNSUPPORTED);
        assert_string_equal(err.got, names[i]);
        assert_string_equal(err.tensor, tensor);
    }
    csn_store_free(s);
}

/* What the golden decoder makes of a group is its codes times what the scales say, which are made
 * once. q2tp's weights are halves of odd codes. */
static void scales_are_those_of_the_decoder(void **state) {
    (void)state;
    static const struct {
        const char *tensor;
        unsigned bits;
    } cases[] = {{"all.q4tp", 4}, {"all.q2tp", 2}};
    caisson_error err;
    csn_store *s = open_store(CMF_GOLDEN "files/tiny-all-dtypes.cmf", false, false);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        csn_matrix m;
        csn_matrix again;
        float x[32];
        csn_str name = csn_str_from(cases[i].tensor);
        ASSERT_OK(csn_store_weight(s, name, &m, &err), &err);
        ASSERT_OK(csn_store_weight(s, name, &again, &err), &err);
        assert_non_null(m.unpacked);
        assert_ptr_equal(m.unpacked, again.unpacked);
        const float *scales = m.unpacked;
        uint64_t stride = csn_ladder_stride(m.cols);
        assert_int_equal(csn_store_unpacked_bytes(s, csn_directory_find(csn_store_dir(s), name)),
                         m.rows * stride * sizeof(float));
        for (uint64_t g = 0; g < m.rows * m.cols / 32; g++) {
            float scale = scales[g / (m.cols / 32) * stride + g % (m.cols / 32)];
            m.dtype->decode(&m, 32 * g, 32, x);
            for (unsigned k = 0; k < 32; k++) {
                unsigned bit = k * cases[i].bits;
                unsigned byte = m.data[g * 4 * cases[i].bits + bit / 8];
                int code = (int)(byte >> bit % 8 & ((1u << cases[i].bits) - 1));
                code = cases[i].bits == 2 ? 2 * code - 3 : code - 8;
                assert_true(x[k] == (float)code * scale);
            }
        }
    }
    csn_matrix m;
    ASSERT_OK(csn_store_weight(s, CSN_STR("all.q4_tiled"), &m, &err), &err);
    assert_null(m.unpacked);
    csn_store_free(s);
}

/* What the golden decoder makes of an outlier, less what it makes of the tiles alone; all others
 * are what the tiles say. */
static void deltas_are_those_of_the_decoder(void **state) {
    (void)state;
    caisson_error err;
    csn_matrix m;
    csn_store *s = open_store(CMF_GOLDEN "files/tiny-all-dtypes.cmf", false, false);
    ASSERT_OK(csn_store_weight(s, CSN_STR("all.q1s"), &m, &err), &err);
    assert_non_null(m.unpacked);
    csn_matrix tiles = m;
    tiles.dtype = csn_dtype_by_name(CSN_STR("q1"));
    const csn_q1s_deltas d = csn_q1s_unpacked(&m);
    uint32_t k = 0;
    for (uint64_t r = 0; r < m.rows; r++) {
        assert_int_equal(d.first[r], k);
        for (uint64_t c = 0; c < m.cols; c++) {
            float x;
            float of_tile;
            m.dtype->decode(&m, r * m.cols + c, 1, &x);
            tiles.dtype->decode(&tiles, r * m.cols + c, 1, &of_tile);
            if (k < d.first[r + 1] && d.col[k] == c) {
                assert_true(d.delta[k++] == x - of_tile);
            } else {
                assert_true(x == of_tile);
            }
        }
    }
    assert_int_equal(d.first[m.rows], k);
    assert_int_equal(k, 24); /* bytes: tests/golden/cmf/files/tiny-all-dtypes.json */
    const csn_tensor *t = csn_directory_find(csn_store_dir(s), CSN_STR("all.q1s"));
    assert_int_equal(csn_store_unpacked_bytes(s, t), 4 * (m.rows + 1) + 6 * (k + CSN_Q1S_BEHIND));
    assert_ptr_equal(d.col + k + CSN_Q1S_BEHIND,
                     (const uint8_t *)m.unpacked + csn_store_unpacked_bytes(s, t));
    csn_store_free(s);
}

/* ---- a file that is cut while mapped (U01, F17) ---- */

struct walk {
    csn_store *s;
    csn_pool *pool;
    uint64_t sum;
    _Atomic uint64_t sums[8];
};

static void sum_share(void *ctx, unsigned i_thread, unsigned n_threads) {
    struct walk *w = ctx;
    const csn_cmf *c = csn_store_cmf(w->s);
    uint64_t sum = 0;
    for (uint32_t i = i_thread; i < c->dir.n; i += n_threads) {
        csn_matrix m;
        caisson_error err;
        if (csn_store_matrix(w->s, c->dir.tensors[i].name, &m, &err) != CAISSON_OK) {
            continue;
        }
        for (uint64_t k = 0; k < m.nbytes; k++) {
            sum += *(volatile const uint8_t *)&m.data[k];
        }
    }
    atomic_store(&w->sums[i_thread], sum);
}

static caisson_status walk_all(void *ctx, caisson_error *err) {
    (void)err;
    struct walk *w = ctx;
    csn_pool_run(w->pool, sum_share, w);
    w->sum = 0;
    for (int i = 0; i < 8; i++) {
        w->sum += atomic_load(&w->sums[i]);
    }
    return CAISSON_OK;
}

static void cut_while_mapped(unsigned n_threads) {
    caisson_error err;
    const char *path = temp_path("cut.cmf");
    struct walk w = {0};
    temp_copy(CMF_GOLDEN "files/tiny-f32.cmf", path);
    ASSERT_OK(csn_pool_new(n_threads, &w.pool, &err), &err);
    w.s = open_store(path, false, true);
    csn_store *whole = open_store(CMF_GOLDEN "files/tiny-f32.cmf", false, true);
    ASSERT_OK(csn_store_guarded(w.s, walk_all, &w, &err), &err);
    uint64_t good = w.sum;
    assert_int_equal(truncate(path, 8192), 0);
    ASSERT_STATUS(csn_store_guarded(w.s, walk_all, &w, &err), CAISSON_E_IO);
    assert_string_equal(err.file, path);
    assert_true(err.has_offset);
    assert_true(err.offset >= 8192);
    ASSERT_STATUS(csn_store_guarded(w.s, walk_all, &w, &err), CAISSON_E_IO); /* stays lost */
    csn_store_free(w.s);
    w.s = whole; /* another store is not affected */
    ASSERT_OK(csn_store_guarded(w.s, walk_all, &w, &err), &err);
    assert_true(w.sum == good);
    csn_store_free(whole);
    csn_pool_free(w.pool);
    (void)unlink(path);
}

static void a_file_cut_while_mapped_fails_the_call(void **state) {
    (void)state;
    cut_while_mapped(1);
}

static void worker_threads_are_covered(void **state) {
    (void)state;
    cut_while_mapped(4);
}

static void without_mmap_a_cut_file_fails_the_read(void **state) {
    (void)state;
    caisson_error err;
    csn_matrix m;
    const char *path = temp_path("cut.cmf");
    temp_copy(CMF_GOLDEN "files/tiny-f32.cmf", path);
    csn_store *s = open_store(path, true, false);
    assert_int_equal(truncate(path, 8192), 0);
    ASSERT_STATUS(csn_store_matrix(s, CSN_STR("lm_head.weight"), &m, &err), CAISSON_E_IO);
    assert_string_equal(err.file, path);
    csn_store_free(s);
    (void)unlink(path);
}

static volatile sig_atomic_t n_previous;
static void *previous_page;
static void previous_handler(int number) {
    (void)number;
    n_previous++;
    (void)mmap(previous_page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* An address of a mapping that is not ours and has no page. */
static void touch_foreign_page(const char *path) {
    FILE *f = fopen(path, "wb+");
    assert_non_null(f);
    previous_page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(f), 0); /* an empty file */
    assert_true(previous_page != MAP_FAILED);
    n_previous = 0;
    assert_int_equal(*(volatile char *)previous_page, 0);
    assert_int_equal(n_previous, 1);
    assert_int_equal(munmap(previous_page, 4096), 0);
    (void)fclose(f);
    (void)unlink(path);
}

static void other_addresses_go_to_the_previous_handler(void **state) {
    (void)state;
    const char *path = temp_path("foreign");
    struct sigaction old;
    struct sigaction now;
    struct sigaction ours = {.sa_handler = previous_handler};
    assert_int_equal(sigaction(SIGBUS, &ours, &old), 0);
    csn_store *s = open_store(CMF_GOLDEN "files/tiny-f32.cmf", false, true);
    touch_foreign_page(path);
    csn_store_free(s);
    assert_int_equal(sigaction(SIGBUS, NULL, &now), 0);
    assert_true(now.sa_handler == previous_handler); /* ours is gone with the last guard */
    assert_int_equal(sigaction(SIGBUS, &old, NULL), 0);
}

static struct sigaction below;
static void passes_on(int number, siginfo_t *info, void *context) {
    if ((below.sa_flags & SA_SIGINFO) != 0) {
        below.sa_sigaction(number, info, context);
    } else {
        below.sa_handler(number);
    }
}

/* A host that puts its own handler on ours while a model is open, as crash reporters do. */
static void a_handler_on_top_of_ours_may_pass_on_to_it(void **state) {
    (void)state;
    const char *path = temp_path("foreign");
    struct sigaction old;
    struct sigaction now;
    struct sigaction first = {.sa_handler = previous_handler};
    struct sigaction top = {.sa_sigaction = passes_on, .sa_flags = SA_SIGINFO | SA_NODEFER};
    assert_int_equal(sigaction(SIGBUS, &first, &old), 0);
    csn_store *s = open_store(CMF_GOLDEN "files/tiny-f32.cmf", false, true);
    assert_int_equal(sigaction(SIGBUS, &top, &below), 0);
    csn_store_free(s);
    cut_while_mapped(1); /* opens again, where ours is below */
    s = open_store(CMF_GOLDEN "files/tiny-f32.cmf", false, true);
    touch_foreign_page(path);
    csn_store_free(s);
    touch_foreign_page(path); /* without a guard, too */
    assert_int_equal(sigaction(SIGBUS, NULL, &now), 0);
    assert_true(now.sa_sigaction == passes_on);
    assert_int_equal(sigaction(SIGBUS, &below, NULL), 0); /* the host's is gone: ours on top */
    touch_foreign_page(path);
    cut_while_mapped(1);
    assert_int_equal(sigaction(SIGBUS, NULL, &now), 0);
    assert_true(now.sa_handler == previous_handler);
    assert_int_equal(sigaction(SIGBUS, &old, NULL), 0);
}

static void no_handler_is_installed_by_default(void **state) {
    (void)state;
    struct sigaction before;
    struct sigaction after;
    assert_int_equal(sigaction(SIGBUS, NULL, &before), 0);
    csn_store *s = open_store(CMF_GOLDEN "files/tiny-f32.cmf", false, false);
    assert_int_equal(sigaction(SIGBUS, NULL, &after), 0);
    assert_true(before.sa_handler == after.sa_handler);
    csn_store_free(s);
}

static void an_empty_file_has_no_tensors_to_map(void **state) {
    (void)state;
    csn_store *s = open_store(CMF_GOLDEN "files/odd-no-tensors.cmf", false, true);
    csn_store_free(s);
    csn_store_free(NULL);
}

static void every_failed_allocation_is_an_error(void **state) {
    (void)state;
    for (int64_t n = 0;; n++) {
        assert_true(n < 1000);
        csn_cmf *c = NULL;
        csn_store *s = NULL;
        caisson_error err;
        csn_matrix m;
        ASSERT_OK(csn_cmf_open(csn_fs_os(), CMF_GOLDEN "files/tiny-f32.cmf", &c, &err), &err);
        csn_alloc_fail_after(n);
        caisson_status status = csn_store_new(c, &(csn_store_options){.no_mmap = true}, &s, &err);
        if (status == CAISSON_OK) {
            status = csn_store_matrix(s, CSN_STR("model.norm.weight"), &m, &err);
        }
        csn_alloc_fail_after(-1);
        if (s == NULL) {
            csn_cmf_close(c);
        }
        csn_store_free(s);
        if (status == CAISSON_OK) {
            break;
        }
        assert_int_equal(status, CAISSON_E_NOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapped_and_read_bytes_are_equal),
        cmocka_unit_test(a_damaged_tensor_is_refused_when_asked_for),
        cmocka_unit_test(an_absent_tensor_is_named),
        cmocka_unit_test(dtypes_that_cannot_run_are_refused_by_name),
        cmocka_unit_test(scales_are_those_of_the_decoder),
        cmocka_unit_test(deltas_are_those_of_the_decoder),
        cmocka_unit_test(a_file_cut_while_mapped_fails_the_call),
        cmocka_unit_test(worker_threads_are_covered),
        cmocka_unit_test(without_mmap_a_cut_file_fails_the_read),
        cmocka_unit_test(other_addresses_go_to_the_previous_handler),
        cmocka_unit_test(a_handler_on_top_of_ours_may_pass_on_to_it),
        cmocka_unit_test(no_handler_is_installed_by_default),
        cmocka_unit_test(an_empty_file_has_no_tensors_to_map),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
