/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation 0, 1, 2, ... fails until loading, encoding and decoding succeed: each time an error,
 * nothing leaked (the sanitizer build looks), output untouched. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/alloc.h"
#include "base/io.h"
#include "text/tokenizer/tokenizer.h"

enum { MAX_ALLOCATIONS = 5000 };

static csn_buf read_golden(const char *name) {
    char path[512];
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(0);
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizer/%s.json", CSN_SOURCE_DIR, name);
    assert_int_equal(csn_fs_read_all(csn_fs_os(), path, 1 << 20, &b, &err), CAISSON_OK);
    return b;
}

static csn_tokenizer *fail_loads(csn_str json) {
    caisson_error err;
    for (int n = 0; n < MAX_ALLOCATIONS; n++) {
        csn_tokenizer *t = NULL;
        csn_alloc_fail_after(n);
        caisson_status status = csn_tokenizer_load(json, &t, &err);
        csn_alloc_fail_after(-1);
        if (status == CAISSON_OK) {
            return t;
        }
        assert_int_equal(status, CAISSON_E_NOMEM);
        assert_null(t);
    }
    fail();
    return NULL;
}

static void fail_encodes(const csn_tokenizer *t, csn_ids *ids) {
    caisson_error err;
    csn_str text =
        csn_str_from("  <s> Hello e\xcc\x81\xcc\xa3 W\xc3\x96RLD 123-45 \xf0\x9f\x98\x80 "
                     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \xff");
    for (int n = 0; n < MAX_ALLOCATIONS; n++) {
        csn_ids_free(ids);
        csn_alloc_fail_after(n);
        caisson_status status = csn_tokenizer_encode(t, text, 3, ids, &err);
        csn_alloc_fail_after(-1);
        if (status == CAISSON_OK) {
            assert_true(ids->n > 0);
            return;
        }
        assert_int_equal(status, CAISSON_E_NOMEM);
        assert_int_equal(ids->n, 0);
    }
    fail();
}

static void fail_decodes(const csn_tokenizer *t, const csn_ids *ids) {
    caisson_error err;
    for (int n = 0; n < MAX_ALLOCATIONS; n++) {
        csn_buf out = CSN_BUF_INIT(1 << 20);
        csn_alloc_fail_after(n);
        caisson_status status = csn_tokenizer_decode(t, ids->id, ids->n, false, &out, &err);
        csn_alloc_fail_after(-1);
        assert_true(status == CAISSON_OK || status == CAISSON_E_NOMEM);
        assert_true(status == CAISSON_OK || out.len == 0);
        csn_buf_free(&out);
        if (status == CAISSON_OK) {
            return;
        }
    }
    fail();
}

static void check(const char *name) {
    csn_buf json = read_golden(name);
    csn_tokenizer *t = fail_loads(csn_buf_view(&json));
    csn_ids ids = {0};
    fail_encodes(t, &ids);
    fail_decodes(t, &ids);
    csn_ids_free(&ids);
    csn_tokenizer_free(t);
    csn_buf_free(&json);
}

static void byte_level_survives(void **state) {
    (void)state;
    check("byte-level");
}
static void unigram_survives(void **state) {
    (void)state;
    check("unigram-fallback");
    check("nfkc-lowercase");
}
static void bpe_with_fallback_survives(void **state) {
    (void)state;
    check("bpe-fallback");
    check("subword-prefix");
}
static void splits_survive(void **state) {
    (void)state;
    check("splits");
    check("digits-punctuation");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_survives),
        cmocka_unit_test(unigram_survives),
        cmocka_unit_test(bpe_with_fallback_survives),
        cmocka_unit_test(splits_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
