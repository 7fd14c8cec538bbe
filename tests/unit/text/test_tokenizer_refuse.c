/* SPDX-License-Identifier: Apache-2.0 */
/* What a tokenizer.json may not be: each small file is refused with the code and the place. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "caisson/limits.h"
#include "text/tokenizer/tokenizer.h"

#define BPE "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static caisson_status load(const char *json, caisson_error *err) {
    csn_tokenizer *t = NULL;
    caisson_status status = csn_tokenizer_load(csn_str_from(json), &t, err);
    csn_tokenizer_free(t);
    return status;
}

static void refuse(const char *json, caisson_status code, const char *where) {
    caisson_error err;
    caisson_status status = load(json, &err);
    if (status != code || strcmp(err.tensor, where) != 0) {
        char line[512];
        print_message("%s\n  gives %d at '%s': %s\n", json, (int)status, err.tensor,
                      status != CAISSON_OK ? caisson_error_format(&err, line, sizeof(line)) : "");
    }
    assert_int_equal(status, code);
    assert_string_equal(err.tensor, where);
    assert_string_equal(err.section, "tokenizer");
    assert_true(err.what[0] != '\0');
}

static void accept(const char *json) {
    caisson_error err;
    assert_int_equal(load(json, &err), CAISSON_OK);
}

static void loads_the_smallest(void **state) {
    (void)state;
    accept("{\"model\":" BPE "}");
    accept("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}");
    accept("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"]]}}");
    accept("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.5]]}}");
    accept("{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0}}}");
}

static void refuses_what_is_no_tokenizer(void **state) {
    (void)state;
    refuse("", CAISSON_E_PARSE, "");
    refuse("[]", CAISSON_E_PARSE, "");
    refuse("{}", CAISSON_E_PARSE, "model");
    refuse("{\"model\":[]}", CAISSON_E_PARSE, "model");
    refuse("{\"version\":\"2.0\",\"model\":" BPE "}", CAISSON_E_VERSION, "version");
    refuse("{\"model\":" BPE ",\"model\":" BPE "}", CAISSON_E_PARSE, "model");
}

static void refuses_models_by_name(void **state) {
    (void)state;
    refuse("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{},\"unk_token\":\"u\"}}",
           CAISSON_E_UNSUPPORTED, "model.type");
    refuse("{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}",
           CAISSON_E_UNSUPPORTED, "model.dropout");
}

static void refuses_bad_vocabularies(void **state) {
    (void)state;
    refuse("{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", CAISSON_E_PARSE, "model.vocab");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", CAISSON_E_PARSE,
           "model.vocab");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e308},\"merges\":[]}}", CAISSON_E_PARSE,
           "model.vocab");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4194304},\"merges\":[]}}",
           CAISSON_E_PARSE, "model.vocab");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", CAISSON_E_PARSE,
           "model.vocab");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
           CAISSON_E_PARSE, "model.vocab");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}",
           CAISSON_E_PARSE, "model.vocab");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", CAISSON_E_PARSE, "model.vocab");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", CAISSON_E_PARSE,
           "model.vocab");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}", CAISSON_E_PARSE,
           "model.unk_id");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":-1}}",
           CAISSON_E_PARSE, "model.unk_id");
}

static void refuses_bad_merges(void **state) {
    (void)state;
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
           CAISSON_E_PARSE, "model.merges");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}",
           CAISSON_E_PARSE, "model.merges");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", CAISSON_E_PARSE,
           "model.merges");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}",
           CAISSON_E_PARSE, "model.merges");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}",
           CAISSON_E_PARSE, "model.merges");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":{}}}", CAISSON_E_PARSE,
           "model.merges");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"],"
           "\"continuing_subword_prefix\":\"##\"}}",
           CAISSON_E_PARSE, "model.merges");
}

static void refuses_steps_by_name(void **state) {
    (void)state;
    refuse("{\"model\":" BPE ",\"normalizer\":{\"type\":\"BertNormalizer\"}}",
           CAISSON_E_UNSUPPORTED, "normalizer.type");
    refuse("{\"model\":" BPE ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}",
           CAISSON_E_UNSUPPORTED, "pre_tokenizer.type");
    refuse("{\"model\":" BPE ",\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"}}",
           CAISSON_E_UNSUPPORTED, "decoder.type");
    refuse("{\"model\":" BPE ",\"decoder\":{\"type\":\"CTC\"}}", CAISSON_E_UNSUPPORTED,
           "decoder.type");
    refuse("{\"model\":" BPE ",\"post_processor\":{\"type\":\"Nobody\"}}", CAISSON_E_UNSUPPORTED,
           "post_processor");
    refuse("{\"model\":" BPE
           ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},"
           "{\"type\":\"ByteFallback\"}]}}",
           CAISSON_E_UNSUPPORTED, "decoder");
    refuse("{\"model\":" BPE ",\"normalizer\":{\"type\":7}}", CAISSON_E_PARSE, "normalizer.type");
    refuse("{\"model\":" BPE ",\"normalizer\":{\"type\":\"Sequence\"}}", CAISSON_E_PARSE,
           "normalizer.normalizers");
    refuse("{\"model\":" BPE ",\"normalizer\":{\"type\":\"Precompiled\","
           "\"precompiled_charsmap\":\"/////w==\"}}",
           CAISSON_E_BOUNDS, "normalizer.precompiled_charsmap");
    refuse("{\"model\":" BPE ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}}",
           CAISSON_E_PARSE, "pre_tokenizer.replacement");
}

static void refuses_patterns_by_name(void **state) {
    (void)state;
    static const char *const patterns[] = {"\\\\1",
                                           "\\\\k<a>",
                                           "(?~a)",
                                           "(?(1)a|b)",
                                           "[[:alpha:]]",
                                           "\\\\p{Nobody}",
                                           "\\\\X",
                                           "a{2}+",
                                           "\\\\xff",
                                           "\\\\p{Cn}",
                                           "\\\\G",
                                           "(*FAIL)",
                                           "\\\\u12",
                                           "a**",
                                           "*a",
                                           "(?s)a",
                                           "(",
                                           ")",
                                           "[a",
                                           "[]",
                                           "[b-a]",
                                           "\\\\x{d800}",
                                           "(?<=a+)b",
                                           "\\\\R",
                                           "\\\\x{110000}",
                                           "[&&a]",
                                           "(?i",
                                           "(?iiiiiiiiiiiiiiiiiiiii)",
                                           "(?i:ss)",
                                           "a(?i)b|FI",
                                           "(?i)[\\\\p{Lu}]",
                                           "(?i)[\\\\P{L}]",
                                           "(?i)[\\\\p{Greek}]",
                                           "(?i)[\\\\x{e0}-\\\\x{149}]",
                                           "(?i)[\\\\u00df]",
                                           "(?i)\\\\u00df",
                                           "(?i)s\\\\x73",
                                           "(?i)s(?#)s",
                                           "(?i)(?:s)s",
                                           "(?i)s{1}s",
                                           "(?i)[\\\\w.]",
                                           "(?i)[\\\\p{L}]",
                                           "(?i)[\\\\D]",
                                           "(?i)[^a[b]]",
                                           "(?i)[^a&&b]"};
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        char json[512];
        snprintf(json, sizeof(json),
                 "{\"model\":" BPE ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":"
                 "\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":\"%s\"}}}",
                 patterns[i]);
        caisson_error err;
        caisson_status status = load(json, &err);
        if (status == CAISSON_OK) {
            print_message("%s was taken\n", patterns[i]);
        }
        assert_true(status == CAISSON_E_UNSUPPORTED || status == CAISSON_E_PARSE);
        assert_string_equal(err.tensor, "pre_tokenizer.pattern");
    }
}

static void refuses_bad_added_tokens(void **state) {
    (void)state;
    refuse("{\"model\":" BPE ",\"added_tokens\":{}}", CAISSON_E_PARSE, "added_tokens");
    refuse("{\"model\":" BPE ",\"added_tokens\":[{\"id\":-3,\"content\":\"x\"}]}", CAISSON_E_PARSE,
           "added_tokens.id");
    refuse("{\"model\":" BPE ",\"added_tokens\":[{\"id\":2147483648,\"content\":\"x\"}]}",
           CAISSON_E_PARSE, "added_tokens.id");
    refuse("{\"model\":" BPE ",\"added_tokens\":[{\"id\":3,\"content\":4}]}", CAISSON_E_PARSE,
           "added_tokens.content");
    refuse(
        "{\"model\":" BPE ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
        "\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{}}}",
        CAISSON_E_PARSE, "post_processor");
    refuse("{\"model\":" BPE ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
           "\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{"
           "\"x\":{\"ids\":[99]}}}}",
           CAISSON_E_PARSE, "post_processor");
}

/* Byte tokens that are none are ordinary tokens. */
static void knows_byte_tokens(void **state) {
    (void)state;
    caisson_error err;
    csn_tokenizer *t = NULL;
    csn_str json = csn_str_from(
        "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<0x-1>\":0,\"<0x100>\":1,"
        "\"<0xC3>\":2,\"<0xA9>\":3,\"a\":4},\"merges\":[]},\"decoder\":{\"type\":\"ByteFallback\"}"
        "}");
    assert_int_equal(csn_tokenizer_load(json, &t, &err), CAISSON_OK);
    csn_ids ids = {0};
    assert_int_equal(csn_tokenizer_encode(t, csn_str_from("a\xc3\xa9"), 0, &ids, &err), CAISSON_OK);
    assert_int_equal(ids.n, 3);
    const int32_t all[] = {0, 1, 2, 3, 2, 4};
    csn_buf out = CSN_BUF_INIT(1 << 10);
    assert_int_equal(csn_tokenizer_decode(t, all, 6, false, &out, &err), CAISSON_OK);
    assert_string_equal(out.ptr, "<0x-1><0x100>\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                                 "a");
    csn_buf_free(&out);
    csn_ids_free(&ids);
    csn_tokenizer_free(t);
}

static void checks_ids_to_decode(void **state) {
    (void)state;
    caisson_error err;
    csn_tokenizer *t = NULL;
    assert_int_equal(csn_tokenizer_load(csn_str_from("{\"model\":" BPE "}"), &t, &err), CAISSON_OK);
    csn_buf out = CSN_BUF_INIT(1 << 10);
    const int32_t bad[] = {-1, 3, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(csn_tokenizer_decode(t, &bad[i], 1, false, &out, &err), CAISSON_E_ARG);
    }
    csn_detok *d;
    assert_int_equal(csn_detok_new(t, false, &d, &err), CAISSON_OK);
    assert_int_equal(csn_detok_feed(d, -1, &out, &err), CAISSON_E_ARG);
    assert_int_equal(csn_detok_feed(d, 3, &out, &err), CAISSON_OK); /* a padding row: no text */
    assert_int_equal(out.len, 0);
    csn_detok_free(d);
    csn_buf_free(&out);
    csn_tokenizer_free(t);
}

/* A line of 200 kB costs n log n: these take milliseconds, quadratic ones would take minutes. */
static void long_lines_are_not_quadratic(void **state) {
    (void)state;
    caisson_error err;
    csn_tokenizer *t = NULL;
    csn_str json = csn_str_from(
        "{\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
        "\"ab\":2,\"abab\":3,\"aa\":4,\"\xcc\x81\":5,\"\xcc\xa3\":6},\"merges\":[\"a b\",\"ab ab\","
        "\"a a\"]},\"added_tokens\":[{\"id\":7,\"content\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaac\"}]}");
    assert_int_equal(csn_tokenizer_load(json, &t, &err), CAISSON_OK);
    static const char *const units[] = {"a", "ab", "aab", "\xcc\x81\xcc\xa3", "b"};
    for (int u = 0; u < 5; u++) {
        csn_buf text = CSN_BUF_INIT(1 << 20);
        while (text.len < 200000) {
            assert_int_equal(csn_buf_str(&text, csn_str_from(units[u]), &err), CAISSON_OK);
        }
        csn_ids ids = {0};
        assert_int_equal(csn_tokenizer_encode(t, csn_buf_view(&text), 0, &ids, &err), CAISSON_OK);
        assert_true(ids.n >= 50000);
        csn_ids_free(&ids);
        csn_buf_free(&text);
    }
    csn_tokenizer_free(t);
}

static void limits_regular_expressions(void **state) {
    (void)state;
    caisson_error err;
    csn_tokenizer *t = NULL;
    csn_str json = csn_str_from("{\"model\":" BPE ",\"pre_tokenizer\":{\"type\":\"Split\","
                                "\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":"
                                "\"(?:a|a)*(?:a|a)*[cd]\"}}}");
    assert_int_equal(csn_tokenizer_load(json, &t, &err), CAISSON_OK);
    csn_ids ids = {0};
    csn_str text = csn_str_from("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab");
    assert_int_equal(csn_tokenizer_encode(t, text, 0, &ids, &err), CAISSON_E_LIMIT);
    assert_int_equal(ids.n, 0);
    csn_ids_free(&ids);
    csn_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_the_smallest),
        cmocka_unit_test(refuses_what_is_no_tokenizer),
        cmocka_unit_test(refuses_models_by_name),
        cmocka_unit_test(refuses_bad_vocabularies),
        cmocka_unit_test(refuses_bad_merges),
        cmocka_unit_test(refuses_steps_by_name),
        cmocka_unit_test(refuses_patterns_by_name),
        cmocka_unit_test(refuses_bad_added_tokens),
        cmocka_unit_test(knows_byte_tokens),
        cmocka_unit_test(checks_ids_to_decode),
        cmocka_unit_test(long_lines_are_not_quadratic),
        cmocka_unit_test(limits_regular_expressions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
