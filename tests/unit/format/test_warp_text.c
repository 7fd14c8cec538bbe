/* SPDX-License-Identifier: Apache-2.0 */
/* Rank files, special tokens and chat.json of a .waste directory, as tokenizer and chat template.
 * What is right comes from tiktoken (tests/oracle/warp_tokenizer.py), and from the existing engine
 * (README of the interop data). */
#include "../test.h"

#include "base/alloc.h"
#include "support/cmf_golden.h"
#include "support/warp_golden.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

typedef struct fixture {
    memory_fs fs;
    csn_warp *w;
    csn_tokenizer *tokenizer;
    csn_template *tmpl;
    caisson_error err;
} fixture;

static const char kimi_chat[] =
    "{\"system\": [\"<|open|>message role=\\\"system\\\"<|sep|>\", "
    "\"<|close|>message<|sep|><|end_of_msg|>\"],\n"
    "\"user\": [\"<|open|>it's \\\\ user\\n<|sep|>\", \"<|close|>message<|sep|><|end_of_msg|>\"],\n"
    "\"assistant\": [\"<|open|>assistant<|sep|>\", \"<|close|>message<|sep|><|end_of_msg|>\"],\n"
    "\"open\": \"<|open|>assistant<|sep|>\"}";

static void begin(fixture *f, const char *container) {
    *f = (fixture){0};
    memory_fs_init(&f->fs);
    warp_load(&f->fs, container);
}
static void end(fixture *f) {
    csn_template_free(f->tmpl);
    csn_tokenizer_free(f->tokenizer);
    csn_warp_close(f->w);
    assert_int_equal(f->fs.n_open, 0);
    memory_fs_done(&f->fs);
}
static caisson_status open_it(fixture *f) {
    return csn_warp_open(&f->fs.base, "m.waste", NULL, &f->w, &f->err);
}
static void put_text(fixture *f, const char *name, const char *text) {
    warp_put(&f->fs, name, text, strlen(text));
}
static caisson_status load_tokenizer(fixture *f) {
    csn_buf json = {0};
    CSN_TRY(csn_warp_read_tokenizer(f->w, &json, &f->err));
    caisson_status status = csn_tokenizer_load(csn_buf_view(&json), &f->tokenizer, &f->err);
    csn_buf_free(&json);
    return status;
}

static void check_ids(const fixture *f, csn_str text, unsigned flags, const int32_t *want,
                      size_t n) {
    csn_ids ids = {0};
    caisson_error err;
    ASSERT_OK(csn_tokenizer_encode(f->tokenizer, text, flags, &ids, &err), &err);
    bool is_same = ids.n == n && (n == 0 || memcmp(ids.id, want, n * sizeof(*want)) == 0);
    csn_ids_free(&ids);
    if (!is_same) {
        fail_msg("other tokens than expected of \"%.*s\"", CSN_STR_ARGS(text));
    }
}

#define CHECK_IDS(f, text, flags, ...)                                                             \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        check_ids((f), CSN_STR(text), (flags), want_, sizeof(want_) / sizeof(want_[0]));           \
    } while (0)

static void ids_are_those_of_the_engine(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-tok.waste");
    ASSERT_OK(open_it(&f), &f.err);
    ASSERT_OK(load_tokenizer(&f), &f.err);
    CHECK_IDS(&f, "hello <|sep|> the city", 0, 284, 32, 60, 124, 115, 101, 112, 124, 62, 280, 272,
              105, 116, 121);
    CHECK_IDS(&f, "[BOS]hello <|sep|> the city", CSN_ENC_PARSE_SPECIAL, 305, 284, 32, 310, 280, 272,
              105, 116, 121);
    CHECK_IDS(&f, "hello world 1234 <|open|>message<|sep|>", CSN_ENC_PARSE_SPECIAL, 284, 269, 265,
              108, 100, 32, 49, 50, 51, 52, 32, 308, 293, 310);
    CHECK_IDS(&f, "the weather in Paris, 2024! \xe4\xbd\xa0\xe5\xa5\xbd", CSN_ENC_PARSE_SPECIAL,
              276, 269, 101, 260, 256, 114, 32, 257, 32, 80, 97, 114, 105, 115, 44, 32, 50, 48, 50,
              52, 33, 32, 228, 189, 160, 229, 165, 189);
    end(&f);
}

static void check_cases(const fixture *f, const csn_jval *cases) {
    int32_t want[512];
    for (csn_jiter it = csn_jval_iter(cases); csn_jiter_next(&it);) {
        csn_jiter parts = csn_jval_iter(it.value);
        csn_str text = {0};
        assert_true(csn_jiter_next(&parts) && csn_jval_str(parts.value, &text));
        for (unsigned flags = 0; flags <= CSN_ENC_PARSE_SPECIAL; flags += CSN_ENC_PARSE_SPECIAL) {
            assert_true(csn_jiter_next(&parts));
            size_t n = 0;
            for (csn_jiter id = csn_jval_iter(parts.value); csn_jiter_next(&id); n++) {
                int64_t v = -1;
                assert_true(n < 512 && csn_jval_i64(id.value, &v));
                want[n] = (int32_t)v;
            }
            check_ids(f, text, flags, want, n);
        }
    }
}

static void ids_are_those_of_tiktoken(void **state) {
    (void)state;
    csn_json *doc = golden_json(CSN_SOURCE_DIR "/tests/golden/format/warp_tokenizer.json");
    fixture f;
    begin(&f, "vq3r-tok.waste");
    ASSERT_OK(open_it(&f), &f.err);
    ASSERT_OK(load_tokenizer(&f), &f.err);
    check_cases(&f, csn_jval_get(csn_json_root(doc), "vq3r-tok"));
    end(&f);
    begin(&f, "vq3r-tok.waste"); /* runs and overlaps, under the other name of the file */
    csn_buf ranks = golden_read(CSN_SOURCE_DIR "/tests/golden/format/warp_ranks.model");
    memory_fs_drop(warp_node(&f.fs, "tokenizer.model"));
    warp_put(&f.fs, "tiktoken.model", ranks.ptr, ranks.len);
    csn_buf_free(&ranks);
    ASSERT_OK(open_it(&f), &f.err);
    ASSERT_OK(load_tokenizer(&f), &f.err);
    check_cases(&f, csn_jval_get(csn_json_root(doc), "runs"));
    end(&f);
    csn_json_free(doc);
}

static void a_tokenizer_json_wins(void **state) {
    (void)state;
    fixture f;
    csn_buf json = {0};
    begin(&f, "vq3r-tok.waste");
    put_text(&f, "tokenizer.json", "any text");
    ASSERT_OK(open_it(&f), &f.err);
    ASSERT_OK(csn_warp_read_tokenizer(f.w, &json, &f.err), &f.err);
    ASSERT_STR(csn_buf_view(&json), "any text");
    assert_int_equal(f.w->chat.bos_token_id, 305); /* config's */
    csn_buf_free(&json);
    end(&f);
    begin(&f, "vq3r-base.waste");
    ASSERT_OK(open_it(&f), &f.err);
    ASSERT_OK(csn_warp_read_tokenizer(f.w, &json, &f.err), &f.err);
    assert_int_equal(json.len, 0);
    csn_buf_free(&json);
    end(&f);
}

static void damaged_ranks_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t at; /* line */
        const char *line;
    } cases[] = {{300, "Zm9v"},          {300, "Zm9v x"},   {300, " 300"},
                 {300, "Zm9v  300"},     {300, "Zm9v -1"},  {300, "Zm9v 4194304"},
                 {300, "Zm9 300"},       {300, "Zm!v 300"}, {300, "Zm9v 299"},
                 {300, "AA== 300"},      {300, ""},         {0, "Zm9vYmFy 0"},
                 {300, "Zm9v 300 extra"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        csn_buf json = {0};
        begin(&f, "vq3r-tok.waste");
        memory_fs_node *node = warp_node(&f.fs, "tokenizer.model");
        csn_str text = csn_str_make((char *)node->bytes, node->len);
        size_t from = 0;
        for (size_t k = 0; k < cases[i].at; k++) {
            from = csn_str_find(text, CSN_STR("\n"), from) + 1;
        }
        size_t to = csn_str_find(text, CSN_STR("\n"), from);
        csn_buf out = CSN_BUF_INIT(1 << 16);
        ASSERT_OK(csn_buf_printf(&out, &f.err, "%.*s%s%.*s", (int)from, text.ptr, cases[i].line,
                                 (int)(text.len - to), text.ptr + to),
                  &f.err);
        warp_put(&f.fs, "tokenizer.model", out.ptr, out.len);
        csn_buf_free(&out);
        ASSERT_OK(open_it(&f), &f.err);
        ASSERT_STATUS(csn_warp_read_tokenizer(f.w, &json, &f.err), CAISSON_E_PARSE);
        assert_string_equal(f.err.section, "ranks");
        assert_string_equal(f.err.file, "m.waste/tokenizer.model");
        end(&f);
    }
}

static void damaged_specials_are_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        "{}",
        "[{\"id\": -1, \"text\": \"<x>\"}]",
        "[{\"id\": 316, \"text\": \"<x>\"}]",
        "[{\"id\": 310, \"text\": \"\"}]",
        "[{\"id\": \"310\", \"text\": \"<x>\"}]",
        "[{\"id\": 310}]",
        "[",
    };
    fixture f;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&f, "vq3r-tok.waste");
        put_text(&f, "specials.json", cases[i]);
        ASSERT_STATUS(open_it(&f), CAISSON_E_PARSE);
        assert_string_equal(f.err.file, "m.waste/specials.json");
        f.w = NULL;
        end(&f);
    }
    begin(&f, "vq3r-tok.waste"); /* the id of an ordinary token */
    put_text(&f, "specials.json", "[{\"id\": 304, \"text\": \"<x>\"}]");
    csn_buf json = {0};
    ASSERT_OK(open_it(&f), &f.err);
    ASSERT_STATUS(csn_warp_read_tokenizer(f.w, &json, &f.err), CAISSON_E_PARSE);
    assert_string_equal(f.err.tensor, "<x>");
    end(&f);
}

static void ends_are_placed_behind_the_ranks(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-tok.waste");
    warp_edit(&f.fs, "\"eos_token_id\": 307", "\"eos_token_id\": 0");
    warp_edit(&f.fs, "\"bos_token_id\": 305", "\"bos_token_id\": 1");
    ASSERT_OK(open_it(&f), &f.err);
    assert_int_equal(f.w->chat.bos_token_id, 305); /* 305 lines */
    assert_int_equal(f.w->chat.n_eos, 1);
    assert_int_equal(f.w->chat.eos_token_ids[0], 307);
    end(&f);
    begin(&f, "vq3r-tok.waste");
    warp_edit(&f.fs, "\"eos_token_id\": 307", "\"eos_token_id\": [306, 0, 307]");
    ASSERT_OK(open_it(&f), &f.err);
    assert_int_equal(f.w->chat.n_eos, 2);
    assert_int_equal(f.w->chat.eos_token_ids[0], 306);
    end(&f);
}

static void render(fixture *f, const char *vars, csn_rendering *ret) {
    csn_json *doc;
    ASSERT_OK(csn_json_parse(csn_str_from(vars), 0, &doc, &f->err), &f->err);
    csn_template_input in = {.vars = csn_json_root(doc)};
    ASSERT_OK(csn_template_render(f->tmpl, &in, ret, &f->err), &f->err);
    csn_json_free(doc);
}

static void chat_json_is_a_template(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-tok.waste");
    put_text(&f, "chat.json", kimi_chat);
    ASSERT_OK(open_it(&f), &f.err);
    ASSERT_OK(load_tokenizer(&f), &f.err);
    ASSERT_OK(csn_template_compile(f.w->chat.chat_template, &f.tmpl, &f.err), &f.err);
    csn_rendering r = {0};
    render(&f,
           "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"},"
           "{\"role\": \"user\", \"content\": \"<|sep|> {{ x }}\\n\"},"
           "{\"role\": \"assistant\", \"content\": \"A\"}], \"add_generation_prompt\": true}",
           &r);
    ASSERT_STR(csn_buf_view(&r.text),
               "<|open|>message role=\"system\"<|sep|>S<|close|>message<|sep|><|end_of_msg|>"
               "<|open|>it's \\ user\n<|sep|><|sep|> {{ x }}\n<|close|>message<|sep|><|end_of_msg|>"
               "<|open|>assistant<|sep|>A<|close|>message<|sep|><|end_of_msg|>"
               "<|open|>assistant<|sep|>");
    csn_ids ids = {0};
    ASSERT_OK(csn_tokenizer_encode_marked(f.tokenizer, csn_buf_view(&r.text),
                                          (const uint8_t *)r.trusted.ptr, CSN_ENC_SPECIAL_TOKENS,
                                          &ids, &f.err),
              &f.err);
    size_t n_open = 0, n_sep = 0;
    for (size_t i = 0; i < ids.n; i++) {
        n_open += ids.id[i] == 308;
        n_sep += ids.id[i] == 310;
    }
    assert_int_equal(n_open, 4);
    assert_int_equal(n_sep, 7); /* and not the one that the user wrote */
    csn_ids_free(&ids);
    csn_rendering_free(&r);
    end(&f);
}

static void other_roles_are_refused(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-tok.waste");
    put_text(&f, "chat.json",
             "{\"user\": [\"<|open|>\", \"<|sep|>\"], \"assistant\": [\"\", \"<|end_of_msg|>\"], "
             "\"open\": \"\"}");
    warp_edit(&f.fs, "\"eos_token_id\": 307", "\"eos_token_id\": 306");
    ASSERT_OK(open_it(&f), &f.err);
    assert_int_equal(f.w->chat.n_eos, 2); /* config's, and what ends an answer */
    assert_int_equal(f.w->chat.eos_token_ids[1], 307);
    ASSERT_OK(csn_template_compile(f.w->chat.chat_template, &f.tmpl, &f.err), &f.err);
    csn_json *doc;
    csn_rendering r = {0};
    ASSERT_OK(
        csn_json_parse(CSN_STR("{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}]}"), 0,
                       &doc, &f.err),
        &f.err);
    csn_template_input in = {.vars = csn_json_root(doc)};
    ASSERT_STATUS(csn_template_render(f.tmpl, &in, &r, &f.err), CAISSON_E_TEMPLATE);
    assert_non_null(strstr(f.err.what, "no turn of the role system"));
    csn_json_free(doc);
    end(&f);
}

static void a_template_counts_without_chat_json(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-tok.waste");
    put_text(&f, "chat_template.jinja", "{{ messages }}");
    ASSERT_OK(open_it(&f), &f.err);
    ASSERT_STR(f.w->chat.chat_template, "{{ messages }}");
    end(&f);
}

static void damaged_chats_are_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        "[]",
        "{\"open\": \"\"}",
        "{\"user\": [\"a\", \"b\"]}",
        "{\"user\": [\"a\"], \"open\": \"\"}",
        "{\"user\": [\"a\", \"b\", \"c\"], \"open\": \"\"}",
        "{\"user\": [\"a\", 1], \"open\": \"\"}",
        "{\"user\": \"ab\", \"open\": \"\"}",
        "{\"user\": [\"<|im_user|>\", \"b\"], \"open\": \"\"}",
        "{\"user\": [\"a\", \"b\"], \"open\": \"<|nobody|>\"}",
        "{\"user\": [\"a\", \"b\"], \"user\": [\"a\", \"b\"], \"open\": \"\"}",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        begin(&f, "vq3r-tok.waste");
        put_text(&f, "chat.json", cases[i]);
        ASSERT_STATUS(open_it(&f), CAISSON_E_PARSE);
        assert_string_equal(f.err.file, "m.waste/chat.json");
        f.w = NULL;
        end(&f);
    }
}

static void every_failed_allocation_is_told(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-tok.waste");
    put_text(&f, "chat.json", kimi_chat);
    caisson_status status = CAISSON_E_NOMEM;
    for (int64_t n = 0; status != CAISSON_OK; n++) {
        csn_buf json = {0};
        csn_alloc_fail_after(n);
        status = open_it(&f);
        if (status == CAISSON_OK) {
            status = csn_warp_read_tokenizer(f.w, &json, &f.err);
        }
        csn_alloc_fail_after(-1);
        csn_buf_free(&json);
        if (status != CAISSON_OK) {
            ASSERT_STATUS(status, CAISSON_E_NOMEM);
            csn_warp_close(f.w);
            f.w = NULL;
        }
    }
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_the_engine),
        cmocka_unit_test(ids_are_those_of_tiktoken),
        cmocka_unit_test(a_tokenizer_json_wins),
        cmocka_unit_test(damaged_ranks_are_refused),
        cmocka_unit_test(damaged_specials_are_refused),
        cmocka_unit_test(ends_are_placed_behind_the_ranks),
        cmocka_unit_test(chat_json_is_a_template),
        cmocka_unit_test(other_roles_are_refused),
        cmocka_unit_test(a_template_counts_without_chat_json),
        cmocka_unit_test(damaged_chats_are_refused),
        cmocka_unit_test(every_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
