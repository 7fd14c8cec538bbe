/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include "fault/faulty_fs.h"
#include "store/store.h"
#include "support/tiny_model.h"
#include "support/temp_dir.h"
#include "support/warp_golden.h"

enum { N_IDS = 6 };

#define EMBED CSN_STR("model.embed_tokens.weight")
static const int32_t ids[N_IDS] = {3, 0, 3, 200, 255, 0};

static csn_store *open_warp(csn_fs *fs, const char *path, const csn_store_options *options) {
    caisson_error err;
    csn_warp *w;
    csn_store *s;
    ASSERT_OK(csn_warp_open(fs, path, NULL, &w, &err), &err);
    ASSERT_OK(csn_store_new_warp(w, options, &s, &err), &err);
    return s;
}

static csn_store *open_cmf(csn_fs *fs, const char *path, const csn_store_options *options) {
    caisson_error err;
    csn_cmf *c;
    csn_store *s;
    ASSERT_OK(csn_cmf_open(fs, path, &c, &err), &err);
    ASSERT_OK(csn_store_new(c, options, &s, &err), &err);
    return s;
}

static csn_rows rows_of(csn_store *s) {
    caisson_error err;
    csn_rows rows;
    ASSERT_OK(csn_store_rows(s, EMBED, &rows, &err), &err);
    return rows;
}

/* What is read has the bits of the table in memory. */
static void compare(csn_store *s) {
    caisson_error err;
    csn_matrix m;
    csn_rows rows = rows_of(s);
    assert_null(rows.m.data);
    ASSERT_OK(csn_store_matrix(s, EMBED, &m, &err), &err);
    assert_int_equal(rows.m.rows, m.rows);
    int32_t last = (int32_t)m.rows - 1;
    const int32_t list[] = {1, 0, last, 1, last / 2};
    enum { N = sizeof(list) / sizeof(list[0]) };
    float *got = calloc(2 * N * m.cols, sizeof(float));
    assert_non_null(got);
    float *want = got + N * m.cols;
    ASSERT_OK(csn_rows_read(&rows, list, N, got, &err), &err);
    for (uint64_t i = 0; i < N; i++) {
        m.dtype->decode(&m, (uint64_t)list[i] * m.cols, m.cols, want + i * m.cols);
    }
    assert_memory_equal(got, want, N * m.cols * sizeof(float));
    free(got);
}

static void rows_are_those_of_the_table(void **state) {
    static const char *const names[] = {"vq3r-base.waste", "vq3r-q3g.waste", "vq3r-odd.waste",
                                        "vq3r-k3.waste", "vq2r.waste"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[512];
        (void)snprintf(path, sizeof(path), WARP_GOLDEN "%s", names[i]);
        csn_store *s =
            open_warp(csn_fs_os(), path, &(csn_store_options){.reads_rows = true, .verify = true});
        compare(s);
        csn_store_free(s);
    }
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        const char *path = temp_path("rows.cmf");
        csn_store_options o = {.reads_rows = true, .verify = true, .no_mmap = no_mmap != 0};
        tiny_write(&(tiny_options){.dtype = "q8_row", .untied = true}, path);
        csn_store *s = open_cmf(csn_fs_os(), path, &o);
        compare(s);
        csn_store_free(s);
    }
}

static void a_row_that_is_wanted_twice_is_read_once(void **state) {
    (void)state;
    faulty_fs f;
    float out[N_IDS * 256];
    caisson_error err;
    faulty_fs_init(&f, csn_fs_os());
    f.kinds = FAULTY_READ;
    csn_store *s =
        open_warp(&f.base, WARP_GOLDEN "vq3r-base.waste", &(csn_store_options){.reads_rows = true});
    csn_rows rows = rows_of(s);
    assert_true(rows.m.cols <= 256);
    f.n = 0;
    ASSERT_OK(csn_rows_read(&rows, ids, N_IDS, out, &err), &err);
    assert_int_equal(f.n, 4 * 2); /* codes and scales */
    csn_store_free(s);
}

static void a_row_that_cannot_be_read_is_named_and_the_next_one_comes(void **state) {
    (void)state;
    faulty_fs f;
    float out[N_IDS * 256];
    faulty_fs_init(&f, csn_fs_os());
    f.kinds = FAULTY_READ;
    csn_store *s =
        open_warp(&f.base, WARP_GOLDEN "vq3r-base.waste", &(csn_store_options){.reads_rows = true});
    csn_rows rows = rows_of(s);
    for (int64_t at = 0; at < 8; at++) {
        static const int32_t distinct[] = {3, 0, 200, 255};
        char want[96];
        caisson_error err;
        f.n = 0;
        f.fail_at = at;
        ASSERT_STATUS(csn_rows_read(&rows, ids, N_IDS, out, &err), CAISSON_E_IO);
        (void)snprintf(want, sizeof(want), "model.embed_tokens.weight, row %d",
                       (int)distinct[at / 2]);
        assert_string_equal(err.tensor, want);
        assert_non_null(strstr(err.file, "trunk.bin"));
        assert_int_equal(err.sys_errno, EIO);
        f.fail_at = -1;
        ASSERT_OK(csn_rows_read(&rows, ids, N_IDS, out, &err), &err);
    }
    csn_store_free(s);
    assert_int_equal(f.n_open, 0);
}

static void a_file_that_was_cut_fails_its_rows_alone(void **state) {
    (void)state;
    memory_fs fs;
    float out[256];
    caisson_error err;
    memory_fs_init(&fs);
    warp_load(&fs, "vq3r-base.waste");
    csn_store *s = open_warp(&fs.base, "m.waste", &(csn_store_options){.reads_rows = true});
    csn_rows rows = rows_of(s);
    memory_fs_node *trunk = warp_node(&fs, "trunk.bin");
    size_t whole = trunk->len;
    trunk->len = (size_t)rows.offsets[0] + 100 * (size_t)rows.parts[0].nbytes;
    ASSERT_STATUS(csn_rows_read(&rows, &ids[3], 1, out, &err), CAISSON_E_IO);
    assert_string_equal(err.tensor, "model.embed_tokens.weight, row 200");
    trunk->len = whole;
    ASSERT_OK(csn_rows_read(&rows, &ids[3], 1, out, &err), &err);
    csn_store_free(s);
    memory_fs_done(&fs);
}

static void with_verify_the_table_is_checked_in_its_file(void **state) {
    (void)state;
    for (int damaged = 0; damaged < 2; damaged++) {
        memory_fs fs;
        caisson_error err;
        csn_warp *w;
        csn_rows rows;
        memory_fs_init(&fs);
        warp_load(&fs, "vq3r-base.waste");
        ASSERT_OK(csn_warp_open(&fs.base, "m.waste", NULL, &w, &err), &err);
        ASSERT_OK(csn_warp_write_digests(w, NULL, &err), &err);
        csn_warp_close(w);
        warp_node(&fs, "trunk.bin")->bytes[33279] ^= damaged ? 0x10 : 0; /* a scale */
        csn_store_options o = {.reads_rows = true, .verify = true};
        csn_store *s = open_warp(&fs.base, "m.waste", &o);
        ASSERT_STATUS(csn_store_rows(s, EMBED, &rows, &err), damaged ? CAISSON_E_HASH : CAISSON_OK);
        if (damaged) {
            assert_string_equal(err.tensor, "model.embed_tokens.weight");
        }
        csn_store_free(s);
        memory_fs_done(&fs);
    }
}

/* Where it is not asked for. */
static void else_the_table_is_in_memory(void **state) {
    (void)state;
    csn_store *s = open_warp(csn_fs_os(), WARP_GOLDEN "vq3r-base.waste", &(csn_store_options){0});
    assert_non_null(rows_of(s).m.data);
    csn_store_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_the_table),
        cmocka_unit_test(a_row_that_is_wanted_twice_is_read_once),
        cmocka_unit_test(a_row_that_cannot_be_read_is_named_and_the_next_one_comes),
        cmocka_unit_test(a_file_that_was_cut_fails_its_rows_alone),
        cmocka_unit_test(with_verify_the_table_is_checked_in_its_file),
        cmocka_unit_test(else_the_table_is_in_memory),
    };
    return cmocka_run_group_tests_name("rows", tests, temp_dir_make, temp_dir_remove);
}
