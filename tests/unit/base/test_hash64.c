/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors: tests/golden/base/hash64.json, made with the reference (shared data of the project). */
#include "unit/test.h"

#include <stdio.h>

#include "base/hash64.h"
#include "base/io.h"
#include "base/json.h"

static size_t unhex(csn_str hex, uint8_t *out) {
    for (size_t i = 0; i < hex.len / 2; i++) {
        unsigned v = 0;
        assert_int_equal(sscanf(hex.ptr + 2 * i, "%2x", &v), 1);
        out[i] = (uint8_t)v;
    }
    return hex.len / 2;
}

/* SPEC("CMF 8") */
static void reference_vectors(void **state) {
    (void)state;
    caisson_error err;
    csn_buf text = {0};
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), CSN_SOURCE_DIR "/tests/golden/base/hash64.json", 1 << 20,
                              &text, &err),
              &err);
    csn_json *doc;
    ASSERT_OK(csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, &doc, &err), &err);
    size_t n = 0;
    for (csn_jiter it = csn_jval_iter(csn_json_root(doc)); csn_jiter_next(&it); n++) {
        csn_str in = {0};
        csn_str want = {0};
        assert_true(csn_jval_str(csn_jval_get(it.value, "hex"), &in));
        assert_true(csn_jval_str(csn_jval_get(it.value, "hash64"), &want));
        uint8_t bytes[256];
        size_t len = unhex(in, bytes);
        char got[17];
        snprintf(got, sizeof(got), "%016llx", (unsigned long long)csn_hash64(bytes, len));
        assert_string_equal(got, want.ptr);
        for (size_t cut = 0; cut <= len; cut++) { /* any cut, the same hash */
            csn_hash64_state s;
            csn_hash64_init(&s);
            csn_hash64_add(&s, bytes, cut);
            csn_hash64_add(&s, bytes + cut, len - cut);
            assert_true(csn_hash64_end(&s) == csn_hash64(bytes, len));
        }
    }
    assert_true(n >= 40);
    csn_json_free(doc);
    csn_buf_free(&text);
}

/* Pieces cut at words, in any order, and the same bytes as one call; long enough for every loop. */
static void pieces_join_to_the_whole(void **state) {
    (void)state;
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (size_t len = 0; len < sizeof(bytes); len += 1 + len / 16) {
        for (size_t cut = 0; cut <= len; cut += 8) {
            uint64_t tail = csn_hash64_piece(bytes + cut, len - cut, cut);
            uint64_t head = csn_hash64_piece(bytes, cut, 0);
            assert_true(csn_hash64_join(tail ^ head, len) == csn_hash64(bytes, len));
        }
    }
    char hex[20];
    csn_hash64_hex(UINT64_C(0x00ddbea04ad81625), hex);
    assert_string_equal(hex, "00ddbea04ad81625");
    assert_true(csn_hash64("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16) == UINT64_C(0x00ddbea04ad81625));
}

static void empty_is_zero(void **state) {
    (void)state;
    assert_true(csn_hash64("", 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_vectors),
        cmocka_unit_test(pieces_join_to_the_whole),
        cmocka_unit_test(empty_is_zero),
    };
    return cmocka_run_group_tests_name("base/hash64", tests, NULL, NULL);
}
