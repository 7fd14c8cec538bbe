/* SPDX-License-Identifier: Apache-2.0 */
/* Control tokens come from trusted bytes alone (user pain U13), and BOS is there once. The six real
 * tokenizers run through tests/oracle/tokenizer_real.py --trust. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "text/tokenizer/tokenizer.h"

/* <s> 0, <e> 1 (matches normalised text), <think> 2 (not special), letters from 3 on. */
static const char file[] =
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
    "{\"type\":\"Lowercase\"}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"<e>\":1,"
    "\"<think>\":2,\"<\":3,\"s\":4,\"e\":5,\">\":6,\"x\":7,\"\xc3\xa9\":8,\"t\":9},\"merges\":[]},"
    "\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"
    "{\"id\":1,\"content\":\"<e>\",\"special\":true,\"normalized\":true},"
    "{\"id\":2,\"content\":\"<think>\",\"special\":false,\"normalized\":false}],"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
    "\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<e>\"}}],"
    "\"special_tokens\":{\"<s>\":{\"ids\":[0]},\"<e>\":{\"ids\":[1]}}}}";

typedef struct fixture {
    csn_tokenizer *t;
    csn_ids ids;
} fixture;

static void start(fixture *f) {
    caisson_error err;
    *f = (fixture){0};
    assert_int_equal(csn_tokenizer_load(csn_str_from(file), &f->t, &err), CAISSON_OK);
}

static void stop(fixture *f) {
    csn_ids_free(&f->ids);
    csn_tokenizer_free(f->t);
}

/* marks: one character a byte of text, 't' = trusted. */
static void marked(fixture *f, const char *text, const char *marks, unsigned flags,
                   const int32_t *want, size_t n) {
    caisson_error err;
    uint8_t trust[64] = {0};
    assert_int_equal(strlen(text), strlen(marks));
    for (size_t i = 0; marks[i] != '\0'; i++) {
        trust[i] = marks[i] == 't';
    }
    f->ids.n = 0;
    assert_int_equal(
        csn_tokenizer_encode_marked(f->t, csn_str_from(text), trust, flags, &f->ids, &err),
        CAISSON_OK);
    assert_int_equal(f->ids.n, n);
    assert_memory_equal(f->ids.id, want, n * sizeof(*want));
}
#define WANT(...)                                                                                  \
    (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void trusted_text_forms_control_tokens(void **state) {
    (void)state;
    fixture f;
    start(&f);
    marked(&f, "<s>x<e>", "ttttttt", 0, WANT(0, 7, 1));
    marked(&f, "<S>x<E>", "ttttttt", 0, WANT(3, 4, 6, 7, 1)); /* <e> matches what was lowered */
    stop(&f);
}

static void untrusted_text_forms_none(void **state) {
    (void)state;
    fixture f;
    start(&f);
    marked(&f, "<s>x<e>", "uuuuuuu", CSN_ENC_PARSE_SPECIAL, WANT(3, 4, 6, 7, 3, 5, 6));
    marked(&f, "<E>", "uuu", CSN_ENC_PARSE_SPECIAL, WANT(3, 5, 6));
    stop(&f);
}

static void one_untrusted_byte_is_enough(void **state) {
    (void)state;
    fixture f;
    start(&f);
    marked(&f, "<s>", "tut", 0, WANT(3, 4, 6));
    marked(&f, "<s>", "utt", 0, WANT(3, 4, 6));
    marked(&f, "<s>", "ttu", 0, WANT(3, 4, 6));
    marked(&f, "<e>", "ttu", 0, WANT(3, 5, 6));
    stop(&f);
}

static void untrusted_text_does_not_swallow_a_control_token(void **state) {
    (void)state;
    fixture f;
    start(&f);
    marked(&f, "<<s>", "uttt", 0, WANT(3, 0));
    marked(&f, "<s<s>>", "uutttu", 0, WANT(3, 4, 0, 6));
    stop(&f);
}

static void marks_follow_normalisation(void **state) {
    (void)state;
    fixture f;
    start(&f);
    /* e and a combining acute become one letter: the marks behind it move */
    marked(&f, "e\xcc\x81<e>", "uuuttt", 0, WANT(8, 1));
    marked(&f, "e\xcc\x81<e>", "tttuuu", 0, WANT(8, 3, 5, 6));
    stop(&f);
}

static void tokens_that_are_not_special_always_match(void **state) {
    (void)state;
    fixture f;
    start(&f);
    marked(&f, "<think>", "uuuuuuu", 0, WANT(2));
    caisson_error err;
    f.ids.n = 0;
    assert_int_equal(csn_tokenizer_encode(f.t, csn_str_from("<s><think>"), 0, &f.ids, &err),
                     CAISSON_OK);
    assert_int_equal(f.ids.n, 4);
    assert_int_equal(f.ids.id[0], 3); /* without PARSE_SPECIAL "<s>" is text */
    assert_int_equal(f.ids.id[3], 2);
    stop(&f);
}

/* The vocabulary itself can spell a control token: Unigram, ignore_merges, a merge, WordLevel. */
static void models_make_no_control_tokens_of_text(void **state) {
    (void)state;
    static const char *const models[] = {
        "{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"<s>\",0],[\"<unk>\",-9],[\"<\",-2],"
        "[\"s\",-2],[\">\",-2]]}",
        "{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"<s>\":0,\"<\":2,\"s\":3,\">\":4},"
        "\"merges\":[]}",
        "{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"<\":2,\"s\":3,\">\":4,\"<s\":5},"
        "\"merges\":[\"< s\",\"<s >\"]}",
        "{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"<s>\":0,\"u\":1}}"};
    for (int i = 0; i < 4; i++) {
        caisson_error err;
        csn_buf json = CSN_BUF_INIT(1 << 12);
        csn_tokenizer *t = NULL;
        assert_int_equal(csn_buf_printf(&json, &err,
                                        "{\"model\":%s,\"added_tokens\":[{\"id\":0,\"content\":"
                                        "\"<s>\",\"special\":true,\"normalized\":false}]}",
                                        models[i]),
                         CAISSON_OK);
        assert_int_equal(csn_tokenizer_load(csn_buf_view(&json), &t, &err), CAISSON_OK);
        csn_ids ids = {0};
        const uint8_t untrusted[3] = {0};
        assert_int_equal(csn_tokenizer_encode_marked(t, CSN_STR("<s>"), untrusted, 0, &ids, &err),
                         CAISSON_OK);
        assert_int_equal(csn_tokenizer_encode(t, CSN_STR("<s>"), 0, &ids, &err), CAISSON_OK);
        assert_true(ids.n >= 2);
        for (size_t k = 0; k < ids.n; k++) {
            assert_int_not_equal(ids.id[k], 0);
        }
        csn_ids_free(&ids);
        csn_tokenizer_free(t);
        csn_buf_free(&json);
    }
}

static void bos_is_there_once(void **state) {
    (void)state;
    fixture f;
    start(&f);
    marked(&f, "x", "t", CSN_ENC_SPECIAL_TOKENS, WANT(0, 7));
    marked(&f, "<s>x", "tttt", CSN_ENC_SPECIAL_TOKENS, WANT(0, 7));
    marked(&f, "<s>x", "uuuu", CSN_ENC_SPECIAL_TOKENS, WANT(0, 3, 4, 6, 7));
    marked(&f, "", "", CSN_ENC_SPECIAL_TOKENS, WANT(0));
    assert_int_equal(csn_tokenizer_bos(f.t), 0);
    stop(&f);
}

static void a_prompt_has_no_end_of_text(void **state) {
    (void)state;
    fixture f;
    start(&f);
    caisson_error err;
    marked(&f, "x", "u", CSN_ENC_SPECIAL_TOKENS, WANT(0, 7));
    f.ids.n = 0;
    assert_int_equal(csn_tokenizer_encode(f.t, CSN_STR("x"), CSN_ENC_SPECIAL_TOKENS, &f.ids, &err),
                     CAISSON_OK);
    assert_int_equal(f.ids.n, 3); /* as the package does */
    assert_int_equal(f.ids.id[2], 1);
    stop(&f);
}

static void invalid_utf8_is_replaced_or_refused(void **state) {
    (void)state;
    fixture f;
    start(&f);
    caisson_error err;
    const uint8_t trust[4] = {1, 1, 1, 1};
    assert_int_equal(
        csn_tokenizer_encode_marked(f.t, csn_str_from("x\xff"), trust, 0, &f.ids, &err),
        CAISSON_E_ARG);
    assert_true(err.has_offset);
    assert_int_equal(err.offset, 1);
    assert_int_equal(csn_tokenizer_encode(f.t, csn_str_from("\xe2\x82x\xff"), 0, &f.ids, &err),
                     CAISSON_OK);
    assert_int_equal(f.ids.n, 1);
    stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trusted_text_forms_control_tokens),
        cmocka_unit_test(untrusted_text_forms_none),
        cmocka_unit_test(one_untrusted_byte_is_enough),
        cmocka_unit_test(untrusted_text_does_not_swallow_a_control_token),
        cmocka_unit_test(marks_follow_normalisation),
        cmocka_unit_test(tokens_that_are_not_special_always_match),
        cmocka_unit_test(models_make_no_control_tokens_of_text),
        cmocka_unit_test(bos_is_there_once),
        cmocka_unit_test(a_prompt_has_no_end_of_text),
        cmocka_unit_test(invalid_utf8_is_replaced_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
