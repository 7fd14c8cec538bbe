/* SPDX-License-Identifier: Apache-2.0 */
/* The GGUF reader: what a good file gives, and that no bad file does worse than an error. */
#include "../test.h"

#include "base/alloc.h"
#include "support/gguf_bytes.h"
#include "support/memory_fs.h"

enum { F32 = 0, Q8_0 = 8 };

typedef struct fixture {
    memory_fs fs;
    csn_gguf *g;
    caisson_error err;
} fixture;

static void begin(fixture *f) {
    memory_fs_init(&f->fs);
    f->g = NULL;
}
static void end(fixture *f) {
    csn_gguf_close(f->g);
    assert_int_equal(f->fs.n_open, 0);
    memory_fs_done(&f->fs);
}
static caisson_status open_bytes(fixture *f, const csn_buf *b) {
    memory_fs_put(&f->fs, "m.gguf", b->ptr, b->len);
    return csn_gguf_open(&f->fs.base, "m.gguf", &f->g, &f->err);
}
/* Opens a bad file once and forgets it. */
static caisson_status try_bytes(const csn_buf *b, caisson_error *err) {
    fixture f;
    begin(&f);
    caisson_status status = open_bytes(&f, b);
    *err = f.err;
    end(&f);
    return status;
}

/* Every value type, two tensors. */
static csn_buf good_file(uint32_t version) {
    csn_buf b = CSN_BUF_INIT(1 << 20);
    gb_head(&b, version, 2, 15);
    gb_key(&b, "k.u8", CSN_GGUF_U8), gb_int(&b, 200, 1);
    gb_key(&b, "k.i8", CSN_GGUF_I8), gb_int(&b, 0xff, 1);
    gb_key(&b, "k.u16", CSN_GGUF_U16), gb_int(&b, 65535, 2);
    gb_key(&b, "k.i16", CSN_GGUF_I16), gb_int(&b, 0x8000, 2);
    gb_u32(&b, "k.u32", 4000000000u);
    gb_key(&b, "k.i32", CSN_GGUF_I32), gb_int(&b, 0xfffffffe, 4);
    gb_f32(&b, "k.f32", 1e-5f);
    gb_key(&b, "k.bool", CSN_GGUF_BOOL), gb_int(&b, 1, 1);
    gb_text(&b, "k.str", "caf\xc3\xa9");
    gb_key(&b, "k.u64", CSN_GGUF_U64), gb_int(&b, UINT64_MAX, 8);
    gb_key(&b, "k.i64", CSN_GGUF_I64), gb_int(&b, (uint64_t)-5, 8);
    gb_key(&b, "k.f64", CSN_GGUF_F64), gb_int(&b, 0x3fe0000000000000u, 8);
    gb_array(&b, "k.strings", CSN_GGUF_STRING, 3);
    gb_str(&b, "a"), gb_str(&b, ""), gb_str(&b, "ccc");
    gb_array(&b, "k.ints", CSN_GGUF_I32, 2);
    gb_int(&b, 7, 4), gb_int(&b, 0xffffffff, 4);
    gb_array(&b, "k.nested", CSN_GGUF_ARRAY, 2);
    gb_int(&b, CSN_GGUF_U8, 4), gb_int(&b, 2, 8), gb_int(&b, 0x0201, 2);
    gb_int(&b, CSN_GGUF_STRING, 4), gb_int(&b, 1, 8), gb_str(&b, "x");
    gb_tensor(&b, "a.weight", 64, 3, Q8_0, 0); /* 204 bytes */
    gb_tensor(&b, "b.weight", 5, 0, F32, 224);
    gb_pad(&b, 32);
    for (int i = 0; i < 224 + 20; i++) {
        gb_int(&b, (uint64_t)i, 1);
    }
    return b;
}

static const csn_gguf_pair *find(const csn_gguf *g, const char *key) {
    return csn_gguf_find(g, csn_str_from(key));
}

static void reads_every_value_type(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        fixture f;
        begin(&f);
        csn_buf b = good_file(version);
        ASSERT_OK(open_bytes(&f, &b), &f.err);
        assert_int_equal(f.g->version, version);
        assert_int_equal(f.g->n_pairs, 15);
        uint64_t u = 0;
        int64_t i = 0;
        double d = 0;
        bool flag = false;
        csn_str s;
        assert_true(csn_gguf_u64(find(f.g, "k.u8"), &u) && u == 200);
        assert_true(csn_gguf_i64(find(f.g, "k.i8"), &i) && i == -1);
        assert_true(csn_gguf_u64(find(f.g, "k.u16"), &u) && u == 65535);
        assert_true(csn_gguf_i64(find(f.g, "k.i16"), &i) && i == -32768);
        assert_true(csn_gguf_u64(find(f.g, "k.u32"), &u) && u == 4000000000u);
        assert_true(csn_gguf_i64(find(f.g, "k.i32"), &i) && i == -2);
        assert_false(csn_gguf_u64(find(f.g, "k.i32"), &u));
        assert_true(csn_gguf_f64(find(f.g, "k.f32"), &d) && d == (double)1e-5f);
        assert_true(csn_gguf_bool(find(f.g, "k.bool"), &flag) && flag);
        assert_true(csn_gguf_str(find(f.g, "k.str"), &s) && csn_str_is(s, "caf\xc3\xa9"));
        assert_true(csn_gguf_u64(find(f.g, "k.u64"), &u) && u == UINT64_MAX);
        assert_false(csn_gguf_i64(find(f.g, "k.u64"), &i));
        assert_true(csn_gguf_i64(find(f.g, "k.i64"), &i) && i == -5);
        assert_true(csn_gguf_f64(find(f.g, "k.f64"), &d) && d == 0.5);
        csn_str *list;
        ASSERT_OK(csn_gguf_strings(find(f.g, "k.strings"), &f.g->arena, &list, &f.err), &f.err);
        assert_true(csn_str_is(list[0], "a") && list[1].len == 0 && csn_str_is(list[2], "ccc"));
        assert_true(csn_gguf_item_i64(find(f.g, "k.ints"), 1, &i) && i == -1);
        assert_false(csn_gguf_item_i64(find(f.g, "k.ints"), 2, &i));
        assert_int_equal(find(f.g, "k.nested")->n, 2);
        assert_null(find(f.g, "k.absent"));
        assert_false(csn_gguf_u64(NULL, &u));
        assert_false(csn_gguf_str(find(f.g, "k.u8"), &s));
        ASSERT_STATUS(csn_gguf_strings(find(f.g, "k.ints"), &f.g->arena, &list, &f.err),
                      CAISSON_E_PARSE);
        end(&f);
        csn_buf_free(&b);
    }
}

static void lists_tensors_with_dims_reversed(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    csn_buf b = good_file(3);
    ASSERT_OK(open_bytes(&f, &b), &f.err);
    assert_int_equal(f.g->dir.n, 2);
    const csn_tensor *t = csn_directory_find(&f.g->dir, CSN_STR("a.weight"));
    assert_non_null(t);
    assert_int_equal(t->shape.n_dims, 2);
    assert_int_equal(t->shape.dim[0], 3);
    assert_int_equal(t->shape.dim[1], 64);
    assert_int_equal(t->nbytes, 3 * 68);
    assert_int_equal(t->offset % 32, 0);
    uint8_t first;
    ASSERT_OK(csn_file_read_at(f.g->files[0], t->offset + 5, &first, 1, &f.err), &f.err);
    assert_int_equal(first, 5);
    assert_null(csn_directory_find(&f.g->dir, CSN_STR("c.weight")));
    end(&f);
    csn_buf_free(&b);
}

static void truncated_at_every_offset_is_refused(void **state) {
    (void)state;
    csn_buf b = good_file(3);
    for (size_t n = 0; n < b.len; n++) {
        csn_buf cut = {.ptr = b.ptr, .len = n};
        caisson_error err;
        caisson_status status = try_bytes(&cut, &err);
        assert_int_not_equal(status, CAISSON_OK);
        assert_true(n < 4 ? status == CAISSON_E_MAGIC : status == CAISSON_E_BOUNDS);
        assert_string_equal(err.file, "m.gguf");
    }
    csn_buf_free(&b);
}

/* Any byte of the header set to any of five values: an error or a valid file, never worse. */
static void flipped_bytes_are_survived(void **state) {
    (void)state;
    csn_buf b = good_file(3);
    size_t n_header = b.len - 224 - 20;
    for (size_t i = 0; i < n_header; i++) {
        static const uint8_t masks[] = {0x01, 0x10, 0x80, 0xff};
        for (size_t k = 0; k < sizeof(masks); k++) {
            caisson_error err;
            b.ptr[i] = (char)((uint8_t)b.ptr[i] ^ masks[k]);
            (void)try_bytes(&b, &err);
            b.ptr[i] = (char)((uint8_t)b.ptr[i] ^ masks[k]);
        }
    }
    csn_buf_free(&b);
}

static void refuses_other_versions_and_byte_order(void **state) {
    (void)state;
    static const uint32_t versions[] = {0, 1, 4, 0x02000000, 0x03000000};
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        csn_buf b = good_file(versions[i]);
        caisson_error err;
        ASSERT_STATUS(try_bytes(&b, &err), CAISSON_E_VERSION);
        assert_true((strstr(err.what, "big-endian") != NULL) == (i >= 3));
        csn_buf_free(&b);
    }
}

/* F1, F7: counts far beyond the file fail at once and allocate nothing of their size. */
static void refuses_hostile_counts(void **state) {
    (void)state;
    static const uint64_t counts[] = {UINT64_C(1) << 31, (UINT64_C(1) << 32) + 1, UINT64_C(1) << 40,
                                      UINT64_C(1) << 61, UINT64_MAX};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int where = 0; where < 5; where++) {
            csn_buf b = CSN_BUF_INIT(1 << 16);
            gb_head(&b, 3, where == 0 ? counts[i] : 0, where == 1 ? counts[i] : 1);
            if (where == 2) { /* key length */
                gb_int(&b, counts[i], 8);
            } else if (where == 3) {
                gb_array(&b, "k", CSN_GGUF_STRING, counts[i]);
            } else {
                gb_array(&b, "k", CSN_GGUF_U64, counts[i]);
            }
            gb_int(&b, 0, 8);
            gb_int(&b, 0, 8);
            caisson_error err;
            ASSERT_STATUS(try_bytes(&b, &err), CAISSON_E_BOUNDS);
            csn_buf_free(&b);
        }
    }
}

static void refuses_deep_nesting(void **state) {
    (void)state;
    csn_buf b = CSN_BUF_INIT(1 << 22);
    gb_head(&b, 3, 0, 1);
    gb_array(&b, "deep", CSN_GGUF_ARRAY, 1);
    for (int i = 0; i < 100000; i++) {
        gb_int(&b, CSN_GGUF_ARRAY, 4);
        gb_int(&b, 1, 8);
    }
    caisson_error err;
    ASSERT_STATUS(try_bytes(&b, &err), CAISSON_E_LIMIT);
    assert_string_equal(err.tensor, "deep");
    csn_buf_free(&b);
}

typedef struct bad_tensor {
    const char *name;
    uint64_t d0, d1;
    uint32_t type;
    uint64_t offset;
    caisson_status expected;
} bad_tensor;

static void refuses_bad_tensor_infos(void **state) {
    (void)state;
    static const bad_tensor cases[] = {
        {"zero dim", 0, 0, F32, 0, CAISSON_E_PARSE},
        {"not a multiple of the block", 33, 2, Q8_0, 0, CAISSON_E_BOUNDS},
        {"product wraps to 0", UINT64_C(1) << 32, UINT64_C(1) << 32, F32, 0, CAISSON_E_BOUNDS},
        {"product wraps to 4", (UINT64_C(1) << 62) + 1, 4, F32, 0, CAISSON_E_BOUNDS},
        {"past the end", 17, 0, F32, 0, CAISSON_E_BOUNDS},
        {"offset past the end", 1, 0, F32, 96, CAISSON_E_BOUNDS},
        {"offset not aligned", 1, 0, F32, 4, CAISSON_E_BOUNDS},
        {"offset wraps", 1, 0, F32, UINT64_MAX - 31, CAISSON_E_BOUNDS},
        {"overlap", 8, 0, F32, 32, CAISSON_E_BOUNDS},
        {"", 1, 0, F32, 0, CAISSON_E_PARSE},
        {"\xff\xfe", 1, 0, F32, 0, CAISSON_E_PARSE},
        {"other", 1, 0, F32, 0, CAISSON_E_PARSE}, /* given twice */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        csn_buf b = CSN_BUF_INIT(1 << 16);
        gb_head(&b, 3, 2, 0);
        gb_tensor(&b, "other", 8, 0, F32, 32);
        gb_tensor(&b, cases[i].name, cases[i].d0, cases[i].d1, cases[i].type, cases[i].offset);
        gb_pad(&b, 32);
        for (int k = 0; k < 64; k++) {
            gb_int(&b, 0, 1);
        }
        caisson_error err = {0};
        caisson_status status = try_bytes(&b, &err);
        if (status != cases[i].expected) {
            fail_msg("%s: %s", cases[i].name, caisson_status_name(status));
        }
        csn_buf_free(&b);
    }
}

static void refuses_bad_alignment_and_bool(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 3, 48, 1u << 31};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        csn_buf b = CSN_BUF_INIT(1 << 16);
        gb_head(&b, 3, 0, 1);
        gb_u32(&b, "general.alignment", bad[i]);
        caisson_error err;
        ASSERT_STATUS(try_bytes(&b, &err), CAISSON_E_PARSE);
        assert_string_equal(err.tensor, "general.alignment");
        csn_buf_free(&b);
    }
    csn_buf b = CSN_BUF_INIT(1 << 16);
    gb_head(&b, 3, 0, 1);
    gb_key(&b, "k", CSN_GGUF_BOOL), gb_int(&b, 2, 1);
    caisson_error err;
    ASSERT_STATUS(try_bytes(&b, &err), CAISSON_E_PARSE);
    csn_buf_free(&b);
}

static void refuses_unknown_value_types(void **state) {
    (void)state;
    static const uint32_t types[] = {CSN_GGUF_N_TYPES, 255, UINT32_MAX};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        csn_buf b = CSN_BUF_INIT(1 << 16);
        gb_head(&b, 3, 0, 1);
        gb_str(&b, "k"), gb_int(&b, types[i], 4), gb_int(&b, 0, 8);
        caisson_error err;
        ASSERT_STATUS(try_bytes(&b, &err), CAISSON_E_PARSE);
        csn_buf_free(&b);
    }
}

static void refuses_a_key_given_twice(void **state) {
    (void)state;
    csn_buf b = CSN_BUF_INIT(1 << 16);
    gb_head(&b, 3, 0, 3);
    gb_u32(&b, "k", 1), gb_u32(&b, "a", 1), gb_u32(&b, "k", 2);
    caisson_error err;
    ASSERT_STATUS(try_bytes(&b, &err), CAISSON_E_PARSE);
    assert_string_equal(err.tensor, "k");
    csn_buf_free(&b);
}

static void lists_unknown_dtypes_by_number(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    csn_buf b = CSN_BUF_INIT(1 << 16);
    gb_head(&b, 3, 2, 0);
    gb_tensor(&b, "a", 256, 1, 19, 0); /* iq1_s: known by name and size */
    gb_tensor(&b, "b", 256, 1, 77, 64);
    gb_pad(&b, 32);
    for (int k = 0; k < 64; k++) {
        gb_int(&b, 0, 1);
    }
    ASSERT_OK(open_bytes(&f, &b), &f.err);
    assert_string_equal(f.g->dir.tensors[0].dtype->name, "iq1_s");
    assert_int_equal(f.g->dir.tensors[0].nbytes, 50);
    assert_string_equal(f.g->dir.tensors[1].dtype->name, "ggml type 77");
    assert_true(f.g->dir.tensors[1].dtype->is_reserved);
    assert_null(f.g->dir.tensors[1].dtype->decode);
    end(&f);
    csn_buf_free(&b);
}

/* ---- split files ---- */

static void put_part(fixture *f, const char *path, int no, int count, int n_total,
                     const char *tensor) {
    csn_buf b = CSN_BUF_INIT(1 << 16);
    gb_head(&b, 3, 1, no == 0 ? 4 : 3);
    if (no == 0) {
        gb_text(&b, "general.architecture", "llama");
    }
    gb_key(&b, "split.no", CSN_GGUF_U16), gb_int(&b, (uint64_t)no, 2);
    gb_key(&b, "split.count", CSN_GGUF_U16), gb_int(&b, (uint64_t)count, 2);
    gb_key(&b, "split.tensors.count", CSN_GGUF_I32), gb_int(&b, (uint64_t)n_total, 4);
    gb_tensor(&b, tensor, 2, 0, F32, 0);
    gb_pad(&b, 32);
    gb_int(&b, (uint64_t)no, 8);
    memory_fs_put(&f->fs, path, b.ptr, b.len);
    csn_buf_free(&b);
}

static void opens_a_split_by_any_part(void **state) {
    (void)state;
    static const char *const names[] = {"d/m-00001-of-00003.gguf", "d/m-00002-of-00003.gguf",
                                        "d/m-00003-of-00003.gguf"};
    static const char *const tensors[] = {"a", "b", "c"};
    for (int by = 0; by < 3; by++) {
        fixture f;
        begin(&f);
        for (int i = 0; i < 3; i++) {
            put_part(&f, names[i], i, 3, 3, tensors[i]);
        }
        ASSERT_OK(csn_gguf_open(&f.fs.base, names[by], &f.g, &f.err), &f.err);
        assert_int_equal(f.g->n_files, 3);
        assert_int_equal(f.g->dir.n, 3);
        csn_str s;
        assert_true(csn_gguf_str(find(f.g, "general.architecture"), &s));
        for (uint32_t i = 0; i < 3; i++) {
            const csn_tensor *t = csn_directory_find(&f.g->dir, csn_str_from(tensors[i]));
            assert_non_null(t);
            assert_int_equal(t->i_file, i);
            uint8_t first;
            ASSERT_OK(csn_file_read_at(f.g->files[i], t->offset, &first, 1, &f.err), &f.err);
            assert_int_equal(first, i);
        }
        end(&f);
    }
}

static void names_a_missing_or_foreign_part(void **state) {
    (void)state;
    for (int fault = 0; fault < 6; fault++) {
        fixture f;
        begin(&f);
        put_part(&f, "m-00001-of-00002.gguf", 0, 2, 2, "a");
        const char *second = "m-00002-of-00002.gguf";
        caisson_status expected = CAISSON_E_PARSE;
        switch (fault) {
        case 0: expected = CAISSON_E_IO; break;            /* missing */
        case 1: put_part(&f, second, 0, 2, 2, "b"); break; /* says that it is the first */
        case 2: put_part(&f, second, 1, 3, 2, "b"); break; /* of another count */
        case 3: put_part(&f, second, 1, 2, 5, "b"); break; /* of another number of tensors */
        case 4: put_part(&f, second, 1, 2, 2, "a"); break; /* the tensor of part 1 again */
        default:                                           /* fewer tensors than promised */
            put_part(&f, "m-00001-of-00002.gguf", 0, 2, 3, "a");
            put_part(&f, second, 1, 2, 3, "b");
        }
        ASSERT_STATUS(csn_gguf_open(&f.fs.base, "m-00001-of-00002.gguf", &f.g, &f.err), expected);
        if (fault <= 3) {
            static const char *const keys[] = {"", "split.no", "split.count",
                                               "split.tensors.count"};
            assert_string_equal(f.err.file, second);
            assert_string_equal(f.err.tensor, keys[fault]);
        }
        end(&f);
    }
}

static void refuses_a_renamed_part(void **state) {
    (void)state;
    static const char *const names[] = {"model.gguf", "m-00002-of-00002.gguf",
                                        "m-00001-of-00003.gguf", "m-1-of-2.gguf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fixture f;
        begin(&f);
        put_part(&f, names[i], 0, 2, 2, "a");
        ASSERT_STATUS(csn_gguf_open(&f.fs.base, names[i], &f.g, &f.err), CAISSON_E_PARSE);
        assert_string_equal(f.err.tensor, "split.no");
        end(&f);
    }
}

static void refuses_hostile_split_counts(void **state) {
    (void)state;
    static const uint64_t counts[] = {UINT64_C(1) << 20, UINT64_MAX};
    for (size_t i = 0; i < 2; i++) {
        fixture f;
        begin(&f);
        csn_buf b = CSN_BUF_INIT(1 << 16);
        gb_head(&b, 3, 0, 2);
        gb_key(&b, "split.count", CSN_GGUF_U64), gb_int(&b, counts[i], 8);
        gb_key(&b, "split.no", CSN_GGUF_U64), gb_int(&b, 5, 8);
        ASSERT_STATUS(open_bytes(&f, &b), CAISSON_E_PARSE);
        end(&f);
        csn_buf_free(&b);
    }
}

static void every_failed_allocation_is_survived(void **state) {
    (void)state;
    csn_buf b = good_file(3);
    for (int64_t n = 0;; n++) {
        fixture f;
        begin(&f);
        csn_alloc_fail_after(n);
        caisson_status status = open_bytes(&f, &b);
        csn_alloc_fail_after(-1);
        end(&f);
        if (status == CAISSON_OK) {
            assert_true(n > 2);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_NOMEM);
    }
    csn_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_value_type),
        cmocka_unit_test(lists_tensors_with_dims_reversed),
        cmocka_unit_test(truncated_at_every_offset_is_refused),
        cmocka_unit_test(flipped_bytes_are_survived),
        cmocka_unit_test(refuses_other_versions_and_byte_order),
        cmocka_unit_test(refuses_hostile_counts),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(refuses_bad_tensor_infos),
        cmocka_unit_test(refuses_bad_alignment_and_bool),
        cmocka_unit_test(refuses_unknown_value_types),
        cmocka_unit_test(refuses_a_key_given_twice),
        cmocka_unit_test(lists_unknown_dtypes_by_number),
        cmocka_unit_test(opens_a_split_by_any_part),
        cmocka_unit_test(names_a_missing_or_foreign_part),
        cmocka_unit_test(refuses_a_renamed_part),
        cmocka_unit_test(refuses_hostile_split_counts),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
