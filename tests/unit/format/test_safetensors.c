/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors reader: one file, shards by index, and every way in which they can lie. */
#include "../test.h"

#include "base/alloc.h"
#include "format/safetensors/safetensors.h"
#include "support/memory_fs.h"

typedef struct fixture {
    memory_fs fs;
    csn_safetensors *s;
    caisson_error err;
} fixture;

static void begin(fixture *f) {
    memory_fs_init(&f->fs);
    f->s = NULL;
}
static void end(fixture *f) {
    csn_safetensors_close(f->s);
    assert_int_equal(f->fs.n_open, 0);
    memory_fs_done(&f->fs);
}

/* A file with this header and n payload bytes 0, 1, 2 ... plus `first`. */
static void put(fixture *f, const char *path, const char *header, size_t n, uint8_t first) {
    size_t len = strlen(header);
    uint8_t *bytes = malloc(8 + len + n + 1);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)((uint64_t)len >> (8 * i));
    }
    memcpy(bytes + 8, header, len);
    for (size_t i = 0; i < n; i++) {
        bytes[8 + len + i] = (uint8_t)(first + i);
    }
    memory_fs_put(&f->fs, path, bytes, 8 + len + n);
    free(bytes);
}

static const char GOOD[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
                           "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                           "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[28,28]},"
                           "\"s\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[28,36]}}  ";

static void reads_a_good_file(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    put(&f, "m.safetensors", GOOD, 36, 0);
    ASSERT_OK(csn_safetensors_open(&f.fs.base, "m.safetensors", &f.s, &f.err), &f.err);
    assert_int_equal(f.s->dir.n, 4);
    const csn_tensor *b = csn_directory_find(&f.s->dir, CSN_STR("b"));
    assert_non_null(b);
    assert_string_equal(b->dtype->name, "f32");
    assert_int_equal(b->shape.dim[0], 2);
    assert_int_equal(b->shape.dim[1], 3);
    assert_int_equal(b->nbytes, 24);
    assert_int_equal(b->offset, 8 + sizeof(GOOD) - 1 + 4);
    const csn_tensor *s = csn_directory_find(&f.s->dir, CSN_STR("s"));
    assert_string_equal(s->dtype->name, "i64");
    assert_true(s->dtype->is_reserved);
    end(&f);
}

static void truncated_at_every_offset_is_refused(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    put(&f, "m.safetensors", GOOD, 36, 0);
    memory_fs_node *node = memory_fs_find(&f.fs, "m.safetensors");
    size_t full = node->len;
    for (size_t n = 0; n < full; n++) {
        node->len = n;
        ASSERT_STATUS(csn_safetensors_open(&f.fs.base, "m.safetensors", &f.s, &f.err),
                      CAISSON_E_BOUNDS);
        assert_string_equal(f.err.file, "m.safetensors");
    }
    end(&f);
}

static void flipped_bytes_are_survived(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    put(&f, "m.safetensors", GOOD, 36, 0);
    memory_fs_node *node = memory_fs_find(&f.fs, "m.safetensors");
    for (size_t i = 0; i < node->len - 36; i++) {
        for (int bit = 0; bit < 8; bit++) {
            node->bytes[i] ^= (uint8_t)(1 << bit);
            if (csn_safetensors_open(&f.fs.base, "m.safetensors", &f.s, &f.err) == CAISSON_OK) {
                csn_safetensors_close(f.s);
                f.s = NULL;
            }
            node->bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
    end(&f);
}

static void refuses_bad_headers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        caisson_status expected;
    } cases[] = {
        {"", CAISSON_E_PARSE},
        {"[]", CAISSON_E_PARSE},
        {" {\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]}}", CAISSON_E_PARSE},
        {"{\"a\":1}", CAISSON_E_PARSE},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9],\"data_offsets\":[0,32]}}", CAISSON_E_BOUNDS},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9],\"data_offsets\":[0,36]}}", CAISSON_E_BOUNDS},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,36]}}", CAISSON_E_BOUNDS},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[4,32]}}", CAISSON_E_BOUNDS},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[0,28]}}", CAISSON_E_BOUNDS},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[32,0]}}", CAISSON_E_BOUNDS},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-8],\"data_offsets\":[0,32]}}", CAISSON_E_PARSE},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[8.0],\"data_offsets\":[0,32]}}", CAISSON_E_PARSE},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"8\"],\"data_offsets\":[0,32]}}", CAISSON_E_PARSE},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,8],\"data_offsets\":[0,32]}}",
         CAISSON_E_PARSE},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32,32]}}", CAISSON_E_PARSE},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32],\"x\":1}}",
         CAISSON_E_PARSE},
        {"{\"a\":{\"dtype\":32,\"shape\":[8],\"data_offsets\":[0,32]}}", CAISSON_E_PARSE},
        {"{\"a\":{\"shape\":[8],\"data_offsets\":[0,32]}}", CAISSON_E_PARSE},
        /* the product of the dims wraps to 8 */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4,8],\"data_offsets\":[0,32]}}",
         CAISSON_E_BOUNDS},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,18446744073709551615]}}",
         CAISSON_E_BOUNDS},
        /* as the package has it */
        {"{\"__metadata__\":{\"a\":1},\"a\":{\"dtype\":\"F32\",\"shape\":[8],"
         "\"data_offsets\":[0,32]}}",
         CAISSON_E_PARSE},
        {"{\"__metadata__\":[],\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]}}",
         CAISSON_E_PARSE},
        /* overlap, and a name given twice */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}",
         CAISSON_E_BOUNDS},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}",
         CAISSON_E_PARSE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        begin(&f);
        put(&f, "m.safetensors", cases[i].header, 32, 0);
        caisson_status status = csn_safetensors_open(&f.fs.base, "m.safetensors", &f.s, &f.err);
        if (status != cases[i].expected) {
            fail_msg("case %d: %s", (int)i, caisson_status_name(status));
        }
        end(&f);
    }
}

static void refuses_hostile_header_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {1u << 20, UINT64_C(1) << 40, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        fixture f;
        begin(&f);
        put(&f, "m.safetensors", "{}", 0, 0);
        memory_fs_node *node = memory_fs_find(&f.fs, "m.safetensors");
        memcpy(node->bytes, &lengths[i], 8);
        ASSERT_STATUS(csn_safetensors_open(&f.fs.base, "m.safetensors", &f.s, &f.err),
                      CAISSON_E_BOUNDS);
        end(&f);
    }
}

/* ---- directories ---- */

#define ENTRY(name, from, to)                                                                      \
    "\"" name "\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[" from "," to "]}"

static void put_index(fixture *f, const char *map) {
    char text[1024];
    int n = snprintf(text, sizeof(text), "{\"metadata\":{},\"weight_map\":{%s}}", map);
    memory_fs_put(&f->fs, "d/model.safetensors.index.json", text, (size_t)n);
}

static void opens_shards_by_index(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    put(&f, "d/x-1.safetensors", "{" ENTRY("a", "0", "4") "}", 4, 0);
    put(&f, "d/x-2.safetensors", "{" ENTRY("b", "0", "4") "," ENTRY("c", "4", "8") "}", 8, 50);
    put(&f, "d/model.safetensors", "{}", 0, 0);         /* stray: the index wins */
    put(&f, "d/consolidated.safetensors", "bad", 0, 0); /* stray: never opened */
    put_index(&f, "\"a\":\"x-1.safetensors\",\"c\":\"x-2.safetensors\",\"b\":\"x-2.safetensors\"");
    ASSERT_OK(csn_safetensors_open_dir(&f.fs.base, "d", &f.s, &f.err), &f.err);
    assert_int_equal(f.s->n_files, 2);
    assert_int_equal(f.s->dir.n, 3);
    assert_int_equal(f.s->n_stray, 2);
    const csn_tensor *c = csn_directory_find(&f.s->dir, CSN_STR("c"));
    uint8_t first;
    ASSERT_OK(csn_file_read_at(f.s->files[c->i_file], c->offset, &first, 1, &f.err), &f.err);
    assert_int_equal(first, 54);
    end(&f);
}

static void opens_a_single_file_without_index(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    put(&f, "d/model.safetensors", "{" ENTRY("a", "0", "4") "}", 4, 0);
    put(&f, "d/adapter_model.safetensors", "{" ENTRY("z", "0", "4") "}", 4, 0);
    ASSERT_OK(csn_safetensors_open_dir(&f.fs.base, "d", &f.s, &f.err), &f.err);
    assert_int_equal(f.s->dir.n, 1);
    assert_int_equal(f.s->n_stray, 1);
    ASSERT_STR(f.s->stray_files[0], "adapter_model.safetensors");
    end(&f);
}

static void a_directory_without_weights_is_an_error(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    memory_fs_put(&f.fs, "d/config.json", "{}", 2);
    ASSERT_STATUS(csn_safetensors_open_dir(&f.fs.base, "d", &f.s, &f.err), CAISSON_E_IO);
    assert_string_equal(f.err.file, "d");
    end(&f);
}

/* U04: what the index and the shards say must be one story. */
static void index_and_shards_must_agree(void **state) {
    (void)state;
    for (int fault = 0; fault < 6; fault++) {
        fixture f;
        begin(&f);
        caisson_status expected = CAISSON_E_PARSE;
        const char *tensor = "b";
        put(&f, "d/x-1.safetensors", "{" ENTRY("a", "0", "4") "}", 4, 0);
        put(&f, "d/x-2.safetensors", "{" ENTRY("b", "0", "4") "}", 4, 7);
        put_index(&f, "\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\"");
        switch (fault) {
        case 0: /* listed, but not in its shard */
            put(&f, "d/x-2.safetensors", "{" ENTRY("z", "0", "4") "}", 4, 7);
            expected = CAISSON_E_MISSING;
            break;
        case 1: /* not listed */
            put(&f, "d/x-2.safetensors", "{" ENTRY("b", "0", "4") "," ENTRY("z", "4", "8") "}", 8,
                7);
            tensor = "z";
            break;
        case 2: /* twice, with other bytes */
            put(&f, "d/x-2.safetensors", "{" ENTRY("b", "0", "4") "," ENTRY("a", "4", "8") "}", 8,
                7);
            tensor = "a";
            break;
        case 3: /* twice, the same bytes: harmless */
            put(&f, "d/x-2.safetensors", "{" ENTRY("a", "0", "4") "," ENTRY("b", "4", "8") "}", 8,
                0);
            expected = CAISSON_OK;
            break;
        case 4: /* shard absent */
            put_index(&f, "\"a\":\"x-1.safetensors\",\"b\":\"x-3.safetensors\"");
            expected = CAISSON_E_IO;
            tensor = "";
            break;
        default: put_index(&f, "\"a\":\"x-1.safetensors\",\"b\":7"); break;
        }
        caisson_status status = csn_safetensors_open_dir(&f.fs.base, "d", &f.s, &f.err);
        if (status != expected) {
            fail_msg("fault %d: %s", fault, caisson_status_name(status));
        }
        if (expected != CAISSON_OK) {
            assert_string_equal(f.err.tensor, tensor);
        }
        end(&f);
    }
}

/* F10: a shard name is a file name of that directory and nothing else. */
static void refuses_shard_names_that_are_paths(void **state) {
    (void)state;
    static const char *const names[] = {
        "../x.safetensors",
        "/etc/x.safetensors",
        "sub/x.safetensors",
        "..",
        "x\\\\y.safetensors",
        "C:x.safetensors",
        ".x.safetensors",
        "x\\u0000.safetensors",
        "x.bin",
        "",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fixture f;
        begin(&f);
        char map[256];
        snprintf(map, sizeof(map), "\"a\":\"%s\"", names[i]);
        put_index(&f, map);
        put(&f, "x.safetensors", "{" ENTRY("a", "0", "4") "}", 4, 0);
        caisson_status status = csn_safetensors_open_dir(&f.fs.base, "d", &f.s, &f.err);
        if (status != CAISSON_E_PARSE) {
            fail_msg("%s: %s", names[i], caisson_status_name(status));
        }
        end(&f);
    }
}

static void every_failed_allocation_is_survived(void **state) {
    (void)state;
    for (int64_t n = 0;; n++) {
        fixture f;
        begin(&f);
        put(&f, "d/x-1.safetensors", "{" ENTRY("a", "0", "4") "}", 4, 0);
        put(&f, "d/x-2.safetensors", "{" ENTRY("a", "0", "4") "," ENTRY("b", "4", "8") "}", 8, 0);
        put_index(&f, "\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\"");
        csn_alloc_fail_after(n);
        caisson_status status = csn_safetensors_open_dir(&f.fs.base, "d", &f.s, &f.err);
        csn_alloc_fail_after(-1);
        end(&f);
        if (status == CAISSON_OK) {
            assert_true(n > 5);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_NOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_good_file),
        cmocka_unit_test(truncated_at_every_offset_is_refused),
        cmocka_unit_test(flipped_bytes_are_survived),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_hostile_header_lengths),
        cmocka_unit_test(opens_shards_by_index),
        cmocka_unit_test(opens_a_single_file_without_index),
        cmocka_unit_test(a_directory_without_weights_is_an_error),
        cmocka_unit_test(index_and_shards_must_agree),
        cmocka_unit_test(refuses_shard_names_that_are_paths),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
