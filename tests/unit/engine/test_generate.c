/* SPDX-License-Identifier: Apache-2.0 */
/* The generation loop over a tiny llama with its own tokenizer: how a text ends, and that what is
 * told is the text of the tokens, whatever pieces it comes in. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "convert/convert.h"
#include "engine/generate.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

enum { N_PROMPT = 6, LONG = 60 };

static const int32_t prompt[N_PROMPT] = {1, 40, 33, 57, 21, 70};
static csn_model *model;
static csn_tokenizer *tokenizer;

static bool hide_special;

static int set_up(void **state) {
    temp_dir_make(state);
    caisson_error err = {0};
    const char *target = temp_path("m.cmf");
    csn_convert_options o = {
        .quant = csn_dtype_by_name(CSN_STR("f32")), .n_threads = 1, .overwrite = true};
    tiny_check(
        csn_convert(csn_fs_os(), CSN_SOURCE_DIR "/tests/golden/families/llama", target, &o, &err),
        &err);
    tiny_check(tiny_open(target, &model, &err), &err);
    csn_buf json = CSN_BUF_INIT(1 << 20);
    tiny_check(csn_fs_read_all(csn_fs_os(),
                               CSN_SOURCE_DIR "/tests/golden/families/llama/tokenizer.json",
                               1 << 20, &json, &err),
               &err);
    tiny_check(csn_tokenizer_load(csn_buf_view(&json), &tokenizer, &err), &err);
    csn_buf_free(&json);
    return 0;
}

static int tear_down(void **state) {
    csn_tokenizer_free(tokenizer);
    csn_model_free(model);
    return temp_dir_remove(state);
}

struct heard {
    csn_buf text;
    int32_t ids[256];
    uint32_t n, n_calls;
    uint32_t say_no_after; /* calls; 0 = never */
    bool said_no;
};

static bool hear(void *ctx, int32_t id, csn_str text) {
    struct heard *h = ctx;
    caisson_error err = {0};
    assert_false(h->said_no); /* nobody is told after having said no */
    tiny_check(csn_buf_str(&h->text, text, &err), &err);
    if (id >= 0) {
        assert_true(h->n < 256);
        h->ids[h->n++] = id;
    }
    h->said_no = ++h->n_calls == h->say_no_after;
    return !h->said_no;
}

/* Runs the loop greedily with `o`'s limits; *h is filled, the session's past is returned. */
static caisson_status generate(csn_generate_options o, uint32_t n_ctx, struct heard *h,
                               csn_generate_result *r, uint32_t *ret_past) {
    caisson_error err = {0};
    csn_session *s = NULL;
    csn_session_options so = {.n_ctx = n_ctx, .n_threads = 1};
    tiny_check(csn_session_new(model, &so, &s, &err), &err);
    csn_sampler_options sampling = csn_sampler_defaults();
    sampling.temperature = 0.0f;
    tiny_check(csn_sampler_new(&sampling, csn_model_arch(model)->vocab_size, &o.sampler, &err),
               &err);
    h->text.max = 1 << 16;
    o.prompt = prompt;
    o.n_prompt = N_PROMPT;
    o.tokenizer = tokenizer;
    o.show_special = !hide_special;
    o.on_text = hear;
    o.ctx = h;
    caisson_status status = csn_generate(s, &o, r, &err);
    *ret_past = csn_session_n_past(s);
    csn_sampler_free(o.sampler);
    csn_session_free(s);
    return status;
}

/* The text and ids of LONG tokens, without any way to end early. */
static struct heard free_text(void) {
    struct heard h = {0};
    csn_generate_result r;
    uint32_t past;
    assert_int_equal(generate((csn_generate_options){.n_predict = LONG}, 256, &h, &r, &past),
                     CAISSON_OK);
    assert_int_equal(r.finish, CSN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, LONG);
    assert_int_equal(h.n, LONG);
    return h;
}

static void told_text_is_the_text_of_the_tokens(void **state) {
    (void)state;
    struct heard h = free_text();
    caisson_error err = {0};
    csn_buf want = CSN_BUF_INIT(1 << 16);
    tiny_check(csn_tokenizer_decode(tokenizer, h.ids, h.n, false, &want, &err), &err);
    assert_true(csn_str_eq(csn_buf_view(&want), csn_buf_view(&h.text)));
    assert_true(want.len > 0);
    csn_buf_free(&want);
    csn_buf_free(&h.text);
}

static void end_tokens_end_the_text(void **state) {
    (void)state;
    struct heard all = free_text();
    int32_t eos[2] = {-5, all.ids[7]};
    uint32_t first = 0;
    while (all.ids[first] != eos[1]) {
        first++;
    }
    csn_generate_options o = {.n_predict = LONG, .eos = eos, .n_eos = 2};
    struct heard h = {0};
    csn_generate_result r;
    uint32_t past;
    assert_int_equal(generate(o, 256, &h, &r, &past), CAISSON_OK);
    assert_int_equal(r.finish, CSN_FINISH_EOS);
    assert_int_equal(r.last, eos[1]);
    assert_int_equal(r.n_generated, first);
    assert_int_equal(h.n, first);
    csn_buf_free(&h.text);

    h = (struct heard){0};
    o.ignore_eos = true;
    assert_int_equal(generate(o, 256, &h, &r, &past), CAISSON_OK);
    assert_int_equal(r.finish, CSN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, LONG);
    csn_buf_free(&h.text);

    /* The tokenizer does not call this one special; an end token gives no text all the same. */
    h = (struct heard){0};
    hide_special = true;
    assert_int_equal(generate(o, 256, &h, &r, &past), CAISSON_OK);
    hide_special = false;
    assert_int_equal(r.n_generated, LONG);
    int32_t others[LONG];
    size_t n_others = 0;
    for (uint32_t i = 0; i < LONG; i++) {
        if (all.ids[i] != eos[1]) {
            others[n_others++] = all.ids[i];
        }
    }
    caisson_error err = {0};
    csn_buf want = CSN_BUF_INIT(1 << 16);
    tiny_check(csn_tokenizer_decode(tokenizer, others, n_others, true, &want, &err), &err);
    assert_true(csn_str_eq(csn_buf_view(&want), csn_buf_view(&h.text)));
    csn_buf_free(&want);
    csn_buf_free(&h.text);
    csn_buf_free(&all.text);
}

/* Every substring of the text as a stop string: what is told ends before its first occurrence. */
static void stop_strings_are_found_across_tokens(void **state) {
    (void)state;
    struct heard all = free_text();
    csn_str text = csn_buf_view(&all.text);
    assert_true(text.len > 40);
    for (size_t at = 3; at < 30; at += 3) {
        for (size_t len = 1; len <= 9; len += 4) {
            csn_str stop = csn_str_make(text.ptr + at, len);
            csn_str stops[2] = {CSN_STR("not in this text, surely"), stop};
            csn_generate_options o = {.n_predict = LONG, .stop = stops, .n_stop = 2};
            struct heard h = {0};
            csn_generate_result r;
            uint32_t past;
            assert_int_equal(generate(o, 256, &h, &r, &past), CAISSON_OK);
            assert_int_equal(r.finish, CSN_FINISH_STOP);
            assert_int_equal(r.i_stop, 1);
            size_t want = csn_str_find(text, stop, 0);
            assert_int_equal(h.text.len, want);
            assert_memory_equal(csn_buf_view(&h.text).ptr, text.ptr, want);
            csn_buf_free(&h.text);
        }
    }
    csn_buf_free(&all.text);
}

/* The last bytes may begin a stop string; when the text ends there, they are told all the same. */
static void held_back_text_is_told_at_the_end(void **state) {
    (void)state;
    struct heard all = free_text();
    char stop[64];
    csn_str text = csn_buf_view(&all.text);
    snprintf(stop, sizeof(stop), "%.*s!!", 5, text.ptr + text.len - 5);
    csn_str stops[1] = {csn_str_from(stop)};
    struct heard h = {0};
    csn_generate_result r;
    uint32_t past;
    csn_generate_options o = {.n_predict = LONG, .stop = stops, .n_stop = 1};
    assert_int_equal(generate(o, 256, &h, &r, &past), CAISSON_OK);
    assert_int_equal(r.finish, CSN_FINISH_LENGTH);
    assert_true(csn_str_eq(csn_buf_view(&h.text), text));
    csn_buf_free(&h.text);
    csn_buf_free(&all.text);
}

static void a_full_context_ends_the_text(void **state) {
    (void)state;
    struct heard h = {0};
    csn_generate_result r;
    uint32_t past;
    assert_int_equal(generate((csn_generate_options){.n_predict = -1}, 20, &h, &r, &past),
                     CAISSON_OK);
    assert_int_equal(r.finish, CSN_FINISH_CONTEXT);
    assert_int_equal(past, 20);
    assert_int_equal(r.n_generated, 20 - N_PROMPT + 1); /* the last one needs no place */
    csn_buf_free(&h.text);
}

static void a_prompt_that_does_not_fit_is_an_error(void **state) {
    (void)state;
    struct heard h = {0};
    csn_generate_result r;
    uint32_t past;
    assert_int_equal(generate((csn_generate_options){.n_predict = 4}, 5, &h, &r, &past),
                     CAISSON_E_CONTEXT);
    assert_int_equal(past, 0);
}

static void the_caller_can_say_no(void **state) {
    (void)state;
    struct heard h = {.say_no_after = 4};
    csn_generate_result r;
    uint32_t past;
    assert_int_equal(generate((csn_generate_options){.n_predict = LONG}, 256, &h, &r, &past),
                     CAISSON_OK);
    assert_int_equal(r.finish, CSN_FINISH_CALLER);
    assert_int_equal(r.n_generated, 4);
    csn_buf_free(&h.text);
}

static void nothing_to_predict_evaluates_the_prompt(void **state) {
    (void)state;
    struct heard h = {0};
    csn_generate_result r;
    uint32_t past;
    assert_int_equal(generate((csn_generate_options){.n_predict = 0}, 256, &h, &r, &past),
                     CAISSON_OK);
    assert_int_equal(r.finish, CSN_FINISH_LENGTH);
    assert_int_equal(past, N_PROMPT);
    assert_int_equal(h.n_calls, 0);
}

static bool never(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)ctx;
    (void)stage;
    (void)done;
    (void)total;
    return false;
}

static void cancelling_the_prompt_is_told(void **state) {
    (void)state;
    struct heard h = {0};
    csn_generate_result r = {.finish = CSN_FINISH_EOS};
    csn_progress p = {never, NULL};
    uint32_t past;
    csn_generate_options o = {.n_predict = 4, .progress = &p};
    assert_int_equal(generate(o, 256, &h, &r, &past), CAISSON_E_CANCELLED);
    assert_int_equal(past, 0);
    assert_int_equal(r.n_generated, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told_text_is_the_text_of_the_tokens),
        cmocka_unit_test(end_tokens_end_the_text),
        cmocka_unit_test(stop_strings_are_found_across_tokens),
        cmocka_unit_test(held_back_text_is_told_at_the_end),
        cmocka_unit_test(a_full_context_ends_the_text),
        cmocka_unit_test(a_prompt_that_does_not_fit_is_an_error),
        cmocka_unit_test(the_caller_can_say_no),
        cmocka_unit_test(nothing_to_predict_evaluates_the_prompt),
        cmocka_unit_test(cancelling_the_prompt_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
