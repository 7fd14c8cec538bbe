/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers that the tokenizers package trained, against what it makes of varied texts
 * (tests/oracle/tokenizer_goldens.py). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <stdio.h>

#include "base/io.h"
#include "base/json.h"
#include "base/utf8.h"
#include "caisson/limits.h"
#include "text/tokenizer/tokenizer.h"

static const char folder[] = CSN_SOURCE_DIR "/tests/golden/tokenizer/";

static csn_buf read_golden(const char *name, const char *end) {
    char path[512];
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(0);
    snprintf(path, sizeof(path), "%s%s%s", folder, name, end);
    assert_int_equal(csn_fs_read_all(csn_fs_os(), path, 1 << 20, &b, &err), CAISSON_OK);
    return b;
}

static csn_tokenizer *load_golden(const char *name) {
    caisson_error err;
    csn_tokenizer *t = NULL;
    csn_buf b = read_golden(name, ".json");
    caisson_status status = csn_tokenizer_load(csn_buf_view(&b), &t, &err);
    if (status != CAISSON_OK) {
        char line[512];
        print_message("%s\n", caisson_error_format(&err, line, sizeof(line)));
    }
    assert_int_equal(status, CAISSON_OK);
    csn_buf_free(&b);
    return t;
}

static void assert_text(csn_str want, const csn_buf *got) {
    assert_int_equal(got->len, want.len);
    assert_memory_equal(csn_buf_view(got).ptr, want.ptr, want.len);
}

static void check_decode(const csn_tokenizer *t, const csn_ids *ids, csn_str whole,
                         csn_str skipped) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(1 << 20);
    assert_int_equal(csn_tokenizer_decode(t, ids->id, ids->n, false, &out, &err), CAISSON_OK);
    assert_text(whole, &out);
    out.len = 0;
    assert_int_equal(csn_tokenizer_decode(t, ids->id, ids->n, true, &out, &err), CAISSON_OK);
    assert_text(skipped, &out);
    out.len = 0;
    csn_detok *d;
    assert_int_equal(csn_detok_new(t, false, &d, &err), CAISSON_OK);
    for (size_t i = 0; i < ids->n; i++) {
        size_t from = out.len;
        assert_int_equal(csn_detok_feed(d, ids->id[i], &out, &err), CAISSON_OK);
        assert_true(out.len == from ||
                    csn_utf8_valid(csn_str_make(out.ptr + from, out.len - from), NULL));
    }
    assert_int_equal(csn_detok_flush(d, &out, &err), CAISSON_OK);
    assert_text(whole, &out);
    csn_detok_free(d);
    csn_buf_free(&out);
}

static void check_case(const csn_tokenizer *t, const csn_jval *row) {
    caisson_error err;
    const csn_jval *part[4];
    csn_jiter it = csn_jval_iter(row);
    for (int i = 0; i < 4; i++) {
        assert_true(csn_jiter_next(&it));
        part[i] = it.value;
    }
    csn_str text;
    assert_true(csn_jval_str(part[0], &text));
    csn_ids ids = {0};
    unsigned flags = CSN_ENC_SPECIAL_TOKENS | CSN_ENC_PARSE_SPECIAL;
    assert_int_equal(csn_tokenizer_encode(t, text, flags, &ids, &err), CAISSON_OK);
    size_t k = 0;
    for (csn_jiter id = csn_jval_iter(part[1]); csn_jiter_next(&id); k++) {
        int64_t want;
        assert_true(csn_jval_i64(id.value, &want));
        assert_true(k < ids.n);
        assert_int_equal(ids.id[k], want);
    }
    assert_int_equal(ids.n, k);
    csn_str whole = text;
    csn_jval_str(part[2], &whole); /* null: as the text */
    csn_str skipped = whole;
    csn_jval_str(part[3], &skipped);
    check_decode(t, &ids, whole, skipped);
    csn_ids_free(&ids);
}

static void check_golden(const char *name) {
    caisson_error err;
    csn_tokenizer *t = load_golden(name);
    csn_buf b = read_golden(name, ".cases.json");
    csn_json *doc;
    assert_int_equal(csn_json_parse(csn_buf_view(&b), 0, &doc, &err), CAISSON_OK);
    for (csn_jiter it = csn_jval_iter(csn_json_root(doc)); csn_jiter_next(&it);) {
        check_case(t, it.value);
    }
    csn_json_free(doc);
    csn_buf_free(&b);
    csn_tokenizer_free(t);
}

#define GOLDEN(fn, name)                                                                           \
    static void fn(void **state) {                                                                 \
        (void)state;                                                                               \
        check_golden(name);                                                                        \
    }
GOLDEN(encodes_byte_level, "byte-level")
GOLDEN(encodes_byte_level_with_prefix_space, "byte-level-prefix")
GOLDEN(encodes_bpe_with_byte_fallback, "bpe-fallback")
GOLDEN(encodes_metaspace_always, "metaspace-always")
GOLDEN(encodes_metaspace_first, "metaspace-first")
GOLDEN(encodes_metaspace_never, "metaspace-never")
GOLDEN(encodes_unigram, "unigram-first")
GOLDEN(encodes_unigram_with_byte_fallback, "unigram-fallback")
GOLDEN(encodes_nfkc_lowercase, "nfkc-lowercase")
GOLDEN(encodes_digits_punctuation, "digits-punctuation")
GOLDEN(encodes_subword_prefix, "subword-prefix")
GOLDEN(encodes_word_level, "word-level")
GOLDEN(encodes_every_split_behaviour, "splits")
GOLDEN(encodes_edges, "edges")
GOLDEN(encodes_compiled_rules, "precompiled")

/* The file's scores have decimal points. */
static void scores_ignore_the_locale(void **state) {
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL) {
        skip(); /* scripts/run-tests provides the locale */
    }
    check_golden("unigram-fallback");
    setlocale(LC_NUMERIC, "C");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_byte_level),
        cmocka_unit_test(encodes_byte_level_with_prefix_space),
        cmocka_unit_test(encodes_bpe_with_byte_fallback),
        cmocka_unit_test(encodes_metaspace_always),
        cmocka_unit_test(encodes_metaspace_first),
        cmocka_unit_test(encodes_metaspace_never),
        cmocka_unit_test(encodes_unigram),
        cmocka_unit_test(encodes_unigram_with_byte_fallback),
        cmocka_unit_test(encodes_nfkc_lowercase),
        cmocka_unit_test(encodes_digits_punctuation),
        cmocka_unit_test(encodes_subword_prefix),
        cmocka_unit_test(encodes_word_level),
        cmocka_unit_test(encodes_every_split_behaviour),
        cmocka_unit_test(encodes_edges),
        cmocka_unit_test(encodes_compiled_rules),
        cmocka_unit_test(scores_ignore_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
