/* SPDX-License-Identifier: Apache-2.0 */
/* tests/golden/base/digests.json is made by tests/oracle/digests.py with the xxhash package. */
#include "unit/test.h"

#include <stdlib.h>

#include "base/base64.h"
#include "base/cpu.h"
#include "base/digest.h"
#include "base/hex.h"
#include "base/io.h"
#include "base/json.h"

enum { PERIOD = 700001, MOST = 66 * CSN_DIGEST_PIECE + 3 };

static void oracle_vectors(void **state) {
    (void)state;
    caisson_error err;
    csn_buf text = {0};
    csn_json *doc;
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), CSN_SOURCE_DIR "/tests/golden/base/digests.json",
                              1 << 20, &text, &err),
              &err);
    ASSERT_OK(csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, &doc, &err), &err);
    uint8_t *bytes = malloc(MOST);
    assert_non_null(bytes);
    uint32_t x = 1;
    for (size_t i = 0; i < MOST; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = i < PERIOD ? (uint8_t)(x >> 24) : bytes[i - PERIOD];
    }
    size_t rows = 0;
    uint32_t flags = csn_cpu_flags();
    for (csn_jiter it = csn_jval_iter(csn_json_root(doc)); csn_jiter_next(&it); rows++) {
        uint64_t n = 0;
        csn_str want = {0};
        assert_true(csn_jval_u64(csn_jval_get(it.value, "n"), &n));
        assert_true(csn_jval_str(csn_jval_get(it.value, "digest"), &want));
        for (int plain = 0; plain < 2; plain++) {
            uint8_t digest[CSN_DIGEST_BYTES];
            char hex[2 * CSN_DIGEST_BYTES + 1];
            csn_cpu_mask(plain != 0 ? 0 : flags);
            csn_digest(bytes, (size_t)n, digest);
            csn_hex_encode(digest, sizeof(digest), hex);
            assert_string_equal(hex, want.ptr);
        }
        csn_cpu_mask(flags);
    }
    assert_int_equal(rows, 41);
    free(bytes);
    csn_json_free(doc);
    csn_buf_free(&text);
}

/* RFC 4648, section 10. */
static void base64_of_the_rfc(void **state) {
    (void)state;
    static const char *const texts[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                        "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t n = 0; n < sizeof(texts) / sizeof(texts[0]); n++) {
        caisson_error err;
        csn_buf b = CSN_BUF_INIT(100);
        uint8_t out[9];
        size_t got;
        ASSERT_OK(csn_base64_append(&b, "foobar", n, &err), &err);
        assert_true(csn_str_is(csn_buf_view(&b), texts[n]));
        assert_int_equal(csn_base64_len(n), b.len);
        assert_true(csn_base64_decode(csn_buf_view(&b), out, &got));
        assert_int_equal(got, n);
        assert_memory_equal(out, "foobar", n);
        csn_buf_free(&b);
    }
    csn_buf full = CSN_BUF_INIT(7);
    caisson_error err;
    ASSERT_STATUS(csn_base64_append(&full, "foobar", 6, &err), CAISSON_E_LIMIT);
    csn_buf_free(&full);
}

static void base64_has_one_text_for_some_bytes(void **state) {
    (void)state;
    static const char *const bad[] = {"Z",    "Zg",   "Zg=",        "Zh==", "Zm9=",
                                      "====", "Z===", "Zg==Zg==",   "Zm 9", "Zm9\n",
                                      "Zm9-", "Zm9_", "Z\xc3\xa9v", "=Zm9"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t out[9];
        size_t n;
        if (csn_base64_decode(csn_str_from(bad[i]), out, &n)) {
            fail_msg("taken: %s", bad[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_vectors),
        cmocka_unit_test(base64_of_the_rfc),
        cmocka_unit_test(base64_has_one_text_for_some_bytes),
    };
    return cmocka_run_group_tests_name("base/digest", tests, NULL, NULL);
}
