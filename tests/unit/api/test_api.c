/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions on the tiny golden model: arguments, options, ownership, cancelling, and
 * that reuse, threads and cuts do not change a bit. The expected tokens are those of transformers
 * (tests/oracle/cli_tiny.py). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caisson.h"
#include "unit/test.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "support/temp_dir.h"

#define TINY CSN_SOURCE_DIR "/tests/golden/cmf/files/tiny-f32.cmf"
enum { N_VOCAB = 344, N_PROMPT = 7 };
static const int32_t prompt[N_PROMPT] = {5, 90, 200, 33, 17, 301, 8};
/* tests/golden/cli/tiny.json, "generated" */
static const int32_t greedy[] = {109, 76, 109, 302, 38, 38, 38, 109, 68, 261, 180, 302};
enum { N_GREEDY = sizeof(greedy) / sizeof(greedy[0]) };

static caisson_model *open_tiny(void) {
    caisson_error err;
    caisson_model *m = NULL;
    ASSERT_OK(caisson_model_open(TINY, NULL, &m, &err), &err);
    return m;
}

static caisson_session *new_session(caisson_model *m) {
    caisson_error err;
    caisson_session *s = NULL;
    caisson_session_options o = {.struct_size = sizeof(o),
                                 .n_threads = 1,
                                 .compute = CAISSON_COMPUTE_F32,
                                 .type_k = CAISSON_KV_F32,
                                 .type_v = CAISSON_KV_F32};
    ASSERT_OK(caisson_session_new(m, &o, &s, &err), &err);
    return s;
}

static int32_t argmax(const float *x) {
    int32_t best = 0;
    for (int32_t i = 1; i < N_VOCAB; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

/* ---- opening ---- */

static void facts_of_a_model(void **state) {
    (void)state;
    caisson_model *m = open_tiny();
    assert_int_equal(N_VOCAB, caisson_model_n_vocab(m));
    assert_int_equal(512, caisson_model_n_ctx_train(m));
    assert_true(caisson_model_bytes_per_token(m) > 0);
    assert_string_equal("llama", caisson_model_arch_name(m));
    assert_true(caisson_model_has_tokenizer(m));
    assert_true(caisson_model_has_template(m));
    assert_true(caisson_model_is_eos(m, 340));
    assert_true(caisson_model_is_eos(m, 342));
    assert_false(caisson_model_is_eos(m, 341));
    caisson_model_close(m);
}

static void count_fma_lines(void *ctx, caisson_log_level level, const char *line) {
    *(int *)ctx += level == CAISSON_LOG_WARN && strstr(line, "no fused multiply-add") != NULL;
}

/* A user whose CPU works fused steps out in software is told why f32 is slow: once a model. */
static void a_cpu_without_fma_is_told(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = NULL;
    int n_told = 0;
    caisson_open_options o = {
        .struct_size = sizeof(o), .on_log = count_fma_lines, .log_ctx = &n_told};
    ASSERT_OK(caisson_model_open(TINY, &o, &m, &err), &err);
    caisson_model_close(m);
    assert_int_equal(n_told, csn_cpu_has_fma() ? 0 : 1);
    uint32_t flags = csn_cpu_flags();
    csn_cpu_mask(0); /* as CSN_TEST_CPU_MASK=0 for the whole program */
    n_told = 0;
    ASSERT_OK(caisson_model_open(TINY, &o, &m, &err), &err);
    caisson_model_close(m);
    assert_int_equal(n_told, 1);
    n_told = 0;
    o.text_only = true; /* nothing is computed */
    ASSERT_OK(caisson_model_open(TINY, &o, &m, &err), &err);
    caisson_model_close(m);
    assert_int_equal(n_told, 0);
    csn_cpu_mask(flags);
}

static void errors_name_the_file(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = NULL;
    ASSERT_STATUS(caisson_model_open("/nonexistent/x.cmf", NULL, &m, &err), CAISSON_E_IO);
    assert_string_equal("/nonexistent/x.cmf", err.file);
    assert_null(m);
}

static void a_null_error_is_fine(void **state) {
    (void)state;
    caisson_model *m = NULL;
    ASSERT_STATUS(caisson_model_open("/nonexistent/x.cmf", NULL, &m, NULL), CAISSON_E_IO);
    ASSERT_STATUS(caisson_model_open(NULL, NULL, &m, NULL), CAISSON_E_ARG);
}

static void null_is_fine_for_everything_that_frees(void **state) {
    (void)state;
    caisson_model_close(NULL);
    caisson_session_free(NULL);
    caisson_sampler_free(NULL);
    caisson_stream_free(NULL);
    caisson_file_close(NULL);
    caisson_text_free(NULL);
    caisson_ids_free(NULL);
}

static void options_without_struct_size_are_refused(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = NULL;
    caisson_open_options o = {.no_mmap = true};
    ASSERT_STATUS(caisson_model_open(TINY, &o, &m, &err), CAISSON_E_ARG);
    assert_non_null(strstr(err.what, "struct_size"));
}

static void shorter_and_longer_options_structs(void **state) {
    (void)state;
    struct {
        caisson_open_options o;
        uint64_t newer;
    } more = {.o = {.struct_size = sizeof(more)}};
    caisson_error err;
    caisson_model *m = NULL;
    ASSERT_OK(caisson_model_open(TINY, &more.o, &m, &err), &err);
    caisson_model_close(m);
    m = NULL;
    more.newer = 1; /* an option that we do not know is not ignored */
    ASSERT_STATUS(caisson_model_open(TINY, &more.o, &m, &err), CAISSON_E_ARG);
    caisson_open_options old = {.struct_size = sizeof(size_t), .text_only = true};
    ASSERT_OK(caisson_model_open(TINY, &old, &m, &err), &err);
    assert_true(caisson_model_bytes_per_token(m) > 0); /* text_only lies behind the end: not read */
    caisson_model_close(m);
}

static void text_only_cannot_run_and_no_text_cannot_tokenise(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = NULL;
    caisson_session *s = NULL;
    caisson_ids ids = {0};
    caisson_open_options o = {.struct_size = sizeof(o), .text_only = true};
    ASSERT_OK(caisson_model_open(TINY, &o, &m, &err), &err);
    ASSERT_STATUS(caisson_session_new(m, NULL, &s, &err), CAISSON_E_UNSUPPORTED);
    ASSERT_OK(caisson_model_tokenize(m, "a", 1, 0, &ids, &err), &err);
    caisson_ids_free(&ids);
    ASSERT_STATUS(caisson_model_tokenize(m, "a", 1, 8, &ids, &err), CAISSON_E_ARG);
    caisson_model_close(m);

    o = (caisson_open_options){.struct_size = sizeof(o), .no_text = true};
    ASSERT_OK(caisson_model_open(TINY, &o, &m, &err), &err);
    ASSERT_STATUS(caisson_model_tokenize(m, "a", 1, 0, &ids, &err), CAISSON_E_UNSUPPORTED);
    assert_false(caisson_model_has_tokenizer(m));
    assert_int_equal(-1, caisson_model_bos(m));
    caisson_model_close(m);
}

static void an_unknown_way_of_reading_is_refused(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = NULL;
    caisson_open_options o = {.struct_size = sizeof(o), .io = (caisson_io)99};
    ASSERT_STATUS(caisson_model_open(TINY, &o, &m, &err), CAISSON_E_ARG);
}

static void session_options_are_checked(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = NULL;
    caisson_session_options o = {.struct_size = sizeof(o), .compute = (caisson_compute)9};
    ASSERT_STATUS(caisson_session_new(m, &o, &s, &err), CAISSON_E_ARG);
    o = (caisson_session_options){.struct_size = sizeof(o), .type_v = (caisson_kv_type)4};
    ASSERT_STATUS(caisson_session_new(m, &o, &s, &err), CAISSON_E_ARG);
    o = (caisson_session_options){.struct_size = sizeof(o), .n_ctx = 33, .n_threads = 2};
    ASSERT_OK(caisson_session_new(m, &o, &s, &err), &err);
    assert_int_equal(33, caisson_session_n_ctx(s));
    assert_int_equal(2, caisson_session_n_threads(s));
    caisson_session_free(s);
    caisson_model_close(m);
}

/* ---- evaluating ---- */

static void greedy_tokens_are_those_of_transformers(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    assert_null(caisson_session_logits(s));
    ASSERT_OK(caisson_session_eval(s, prompt, N_PROMPT, NULL, NULL, &err), &err);
    for (int i = 0; i < N_GREEDY; i++) {
        int32_t id = argmax(caisson_session_logits(s));
        assert_int_equal(greedy[i], id);
        ASSERT_OK(caisson_session_eval(s, &id, 1, NULL, NULL, &err), &err);
    }
    assert_int_equal(N_PROMPT + N_GREEDY, caisson_session_n_past(s));
    assert_memory_equal(prompt, caisson_session_tokens(s), sizeof(prompt));
    caisson_session_free(s);
    caisson_model_close(m);
}

typedef struct rows {
    float last[N_VOCAB];
    uint32_t n;
    uint32_t stop_at;
    caisson_session *cancel;
} rows;

static caisson_status keep_row(void *ctx, uint32_t i, const float *logits) {
    rows *r = ctx;
    assert_int_equal(r->n, i);
    r->n++;
    memcpy(r->last, logits, sizeof(r->last));
    return r->n == r->stop_at ? CAISSON_E_CANCELLED : CAISSON_OK;
}

static void rows_end_with_the_logits_of_the_last_token(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    rows r = {0};
    ASSERT_OK(caisson_session_eval(s, prompt, N_PROMPT, keep_row, &r, &err), &err);
    assert_int_equal(N_PROMPT, r.n);
    ASSERT_OK(caisson_session_truncate(s, 0, &err), &err);
    ASSERT_OK(caisson_session_eval(s, prompt, 3, NULL, NULL, &err), &err);
    ASSERT_OK(caisson_session_eval(s, prompt + 3, N_PROMPT - 3, NULL, NULL, &err), &err);
    assert_memory_equal(r.last, caisson_session_logits(s), sizeof(r.last)); /* to the bit */
    caisson_session_free(s);
    caisson_model_close(m);
}

static void a_failed_eval_leaves_the_session_as_it_was(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    ASSERT_OK(caisson_session_eval(s, prompt, 4, NULL, NULL, &err), &err);
    int32_t bad[] = {1, N_VOCAB};
    ASSERT_STATUS(caisson_session_eval(s, bad, 2, NULL, NULL, &err), CAISSON_E_ARG);
    bad[1] = -1;
    ASSERT_STATUS(caisson_session_eval(s, bad, 2, NULL, NULL, &err), CAISSON_E_ARG);
    rows r = {.stop_at = 1};
    ASSERT_STATUS(caisson_session_eval(s, prompt + 4, 3, keep_row, &r, &err), CAISSON_E_CANCELLED);
    ASSERT_STATUS(caisson_session_eval(s, prompt, 0, NULL, NULL, &err), CAISSON_E_ARG);
    assert_int_equal(4, caisson_session_n_past(s));
    ASSERT_OK(caisson_session_eval(s, prompt + 4, 3, NULL, NULL, &err), &err);
    assert_int_equal(greedy[0], argmax(caisson_session_logits(s)));
    ASSERT_STATUS(caisson_session_truncate(s, 8, &err), CAISSON_E_ARG);
    ASSERT_OK(caisson_session_truncate(s, 7, &err), &err); /* that is what it holds */
    assert_non_null(caisson_session_logits(s));
    ASSERT_OK(caisson_session_truncate(s, 6, &err), &err);
    assert_null(caisson_session_logits(s)); /* they were those of the seventh */
    caisson_session_free(s);
    caisson_model_close(m);
}

static void a_score_that_is_refused_leaves_an_empty_session(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    caisson_session *base = NULL;
    caisson_session_options o = {.struct_size = sizeof(o), .n_ctx = 16};
    ASSERT_OK(caisson_session_new(m, &o, &base, &err), &err);
    caisson_score score;
    ASSERT_OK(caisson_session_eval(s, prompt, 4, NULL, NULL, &err), &err);
    ASSERT_STATUS(caisson_score_text(s, s, "one two", 7, NULL, &score, &err), CAISSON_E_ARG);
    assert_int_equal(4, caisson_session_n_past(s));
    ASSERT_STATUS(caisson_score_text(s, base, "one two", 7, NULL, &score, &err), CAISSON_E_ARG);
    assert_int_equal(0, caisson_session_n_past(s)); /* and not tokens that nobody lists */
    ASSERT_OK(caisson_session_eval(s, prompt, N_PROMPT, NULL, NULL, &err), &err);
    assert_int_equal(greedy[0], argmax(caisson_session_logits(s)));
    caisson_session_free(base);
    caisson_session_free(s);
    caisson_model_close(m);
}

static bool cancel_one(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    (void)done;
    (void)total;
    caisson_session_cancel(ctx);
    return true;
}

static void a_score_can_be_cancelled_by_either_session(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    caisson_session *base = new_session(m);
    caisson_score score;
    caisson_session *who[] = {s, base};
    for (int i = 0; i < 2; i++) {
        caisson_score_options o = {
            .struct_size = sizeof(o), .on_progress = cancel_one, .ctx = who[i]};
        ASSERT_STATUS(caisson_score_text(s, base, "one two", 7, &o, &score, &err),
                      CAISSON_E_CANCELLED);
        ASSERT_OK(caisson_score_text(s, base, "one two", 7, NULL, &score, &err), &err);
    }
    caisson_session_free(base);
    caisson_session_free(s);
    caisson_model_close(m);
}

static void a_full_context_names_both_numbers(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = NULL;
    caisson_session_options o = {.struct_size = sizeof(o), .n_ctx = 5, .n_threads = 1};
    ASSERT_OK(caisson_session_new(m, &o, &s, &err), &err);
    ASSERT_STATUS(caisson_session_eval(s, prompt, N_PROMPT, NULL, NULL, &err), CAISSON_E_CONTEXT);
    assert_string_equal("5", err.want);
    assert_string_equal("7", err.got);
    assert_int_equal(0, caisson_session_n_past(s));
    caisson_generation g;
    ASSERT_STATUS(caisson_generate(s, prompt, N_PROMPT, NULL, &g, &err), CAISSON_E_CONTEXT);
    caisson_session_free(s);
    caisson_model_close(m);
}

/* ---- generating ---- */

typedef struct sink {
    char text[4096];
    size_t n;
    int n_calls, stop_after;
    caisson_session *cancel;
} sink;

static bool on_text(void *ctx, const char *text, size_t n) {
    sink *s = ctx;
    assert_true(s->n + n < sizeof(s->text));
    memcpy(s->text + s->n, text, n);
    s->n += n;
    s->n_calls++;
    if (s->cancel != NULL && s->n_calls == s->stop_after) {
        caisson_session_cancel(s->cancel);
        return true;
    }
    return s->cancel != NULL || s->n_calls != s->stop_after;
}

static caisson_generation generate(caisson_session *s, caisson_generate_options *o, sink *out) {
    caisson_error err;
    caisson_generation g;
    caisson_sampling sampling = {.struct_size = sizeof(sampling), .greedy = true};
    o->struct_size = sizeof(*o);
    o->sampling = &sampling;
    o->on_text = on_text;
    o->ctx = out;
    ASSERT_OK(caisson_generate(s, prompt, N_PROMPT, o, &g, &err), &err);
    return g;
}

static void generation_gives_the_text_of_the_greedy_tokens(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    sink out = {0};
    caisson_generation g = generate(s, &(caisson_generate_options){.max_tokens = N_GREEDY}, &out);
    assert_int_equal(CAISSON_FINISH_LENGTH, g.finish);
    assert_int_equal(N_GREEDY, g.n_generated);
    assert_int_equal(N_PROMPT, g.n_prompt);
    assert_int_equal(0, g.n_reused);
    caisson_text want = {0};
    ASSERT_OK(caisson_model_detokenize(m, greedy, N_GREEDY, true, &want, &err), &err);
    assert_int_equal(want.n, out.n);
    assert_memory_equal(want.ptr, out.text, out.n);
    /* What the session holds is a prefix of prompt and answer. */
    uint32_t n_past = caisson_session_n_past(s);
    assert_true(n_past >= N_PROMPT + N_GREEDY - 1);
    assert_memory_equal(greedy, caisson_session_tokens(s) + N_PROMPT,
                        (n_past - N_PROMPT) * sizeof(int32_t));
    caisson_text_free(&want);
    caisson_session_free(s);
    caisson_model_close(m);
}

static void a_kept_prefix_gives_the_same_text(void **state) {
    (void)state;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    sink first = {0};
    sink second = {0};
    (void)generate(s, &(caisson_generate_options){.max_tokens = 9}, &first);
    caisson_generation g = generate(s, &(caisson_generate_options){.max_tokens = 9}, &second);
    assert_int_equal(N_PROMPT - 1, g.n_reused);
    assert_int_equal(first.n, second.n);
    assert_memory_equal(first.text, second.text, first.n);
    caisson_session_free(s);
    caisson_model_close(m);
}

static void stop_strings_end_the_text_before_them(void **state) {
    (void)state;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    sink whole = {0};
    (void)generate(s, &(caisson_generate_options){.max_tokens = N_GREEDY}, &whole);
    assert_true(whole.n > 6);
    char stop[3] = {whole.text[whole.n - 3], whole.text[whole.n - 2], '\0'};
    if ((stop[0] & 0x80) == 0 && (stop[1] & 0x80) == 0) { /* else not a string of its own */
        const char *list[] = {stop};
        sink out = {0};
        caisson_generation g = generate(
            s, &(caisson_generate_options){.max_tokens = N_GREEDY, .stop = list, .n_stop = 1},
            &out);
        assert_int_equal(CAISSON_FINISH_STOP, g.finish);
        const char *at = strstr(whole.text, stop);
        assert_int_equal((size_t)(at - whole.text), out.n);
        assert_memory_equal(whole.text, out.text, out.n);
    }
    caisson_error err;
    caisson_generation g;
    const char *bad[] = {""};
    caisson_generate_options o = {.struct_size = sizeof(o), .stop = bad, .n_stop = 1};
    ASSERT_STATUS(caisson_generate(s, prompt, N_PROMPT, &o, &g, &err), CAISSON_E_ARG);
    bad[0] = "\xff";
    ASSERT_STATUS(caisson_generate(s, prompt, N_PROMPT, &o, &g, &err), CAISSON_E_ARG);
    caisson_session_free(s);
    caisson_model_close(m);
}

static void saying_no_and_cancel_stop_the_answer(void **state) {
    (void)state;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    sink out = {.stop_after = 2};
    caisson_generation g = generate(s, &(caisson_generate_options){.max_tokens = 100}, &out);
    assert_int_equal(CAISSON_FINISH_CANCELLED, g.finish);
    assert_int_equal(2, out.n_calls);
    sink other = {.stop_after = 2, .cancel = s};
    g = generate(s, &(caisson_generate_options){.max_tokens = 100}, &other);
    assert_int_equal(CAISSON_FINISH_CANCELLED, g.finish);
    assert_int_equal(2, other.n_calls);
    /* The next call is not affected. */
    sink again = {0};
    g = generate(s, &(caisson_generate_options){.max_tokens = 5}, &again);
    assert_int_equal(CAISSON_FINISH_LENGTH, g.finish);
    caisson_session_free(s);
    caisson_model_close(m);
}

static bool say_no(void *ctx, uint32_t done, uint32_t total) {
    (void)ctx;
    (void)done;
    (void)total;
    return false;
}

static void a_prompt_can_be_cancelled(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    caisson_generation g;
    caisson_generate_options o = {.struct_size = sizeof(o), .on_prompt = say_no};
    ASSERT_OK(caisson_generate(s, prompt, N_PROMPT, &o, &g, &err), &err);
    assert_int_equal(CAISSON_FINISH_CANCELLED, g.finish);
    assert_int_equal(0, g.n_generated);
    assert_int_equal(0, caisson_session_n_past(s));
    caisson_session_free(s);
    caisson_model_close(m);
}

typedef struct steps {
    uint64_t n, last, total;
    uint64_t stop_at; /* 0: never */
} steps;

static bool count(steps *s, uint64_t done, uint64_t total) {
    assert_true(done >= s->last && done <= total);
    assert_true(s->n == 0 || total == s->total);
    s->n++;
    s->last = done;
    s->total = total;
    return s->n != s->stop_at;
}

static bool count_prompt(void *ctx, uint32_t done, uint32_t total) {
    return count(ctx, done, total);
}

/* One batch of two layers: something is told half-way. */
static void a_prompt_tells_how_far_it_is(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = new_session(m);
    caisson_generation g;
    steps seen = {0};
    caisson_generate_options o = {
        .struct_size = sizeof(o), .max_tokens = 1, .on_prompt = count_prompt, .ctx = &seen};
    ASSERT_OK(caisson_generate(s, prompt, N_PROMPT, &o, &g, &err), &err);
    assert_int_equal(N_PROMPT, seen.last);
    assert_int_equal(N_PROMPT, seen.total);
    seen = (steps){.stop_at = 2};
    ASSERT_OK(caisson_session_truncate(s, 0, &err), &err);
    ASSERT_OK(caisson_generate(s, prompt, N_PROMPT, &o, &g, &err), &err);
    assert_int_equal(CAISSON_FINISH_CANCELLED, g.finish);
    assert_int_equal(N_PROMPT / 2, seen.last);
    caisson_session_free(s);
    caisson_model_close(m);
}

static bool count_load(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    assert_string_equal(stage, "load");
    return count(ctx, done, total);
}

/* Of what is only mapped there is nothing to tell. */
static void a_model_tells_how_much_of_it_is_loaded(void **state) {
    static const struct {
        bool no_mmap, verify;
    } kinds[] = {{false, false}, {true, false}, {false, true}, {true, true}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        caisson_error err;
        caisson_model *m;
        steps seen = {0};
        caisson_open_options o = {.struct_size = sizeof(o),
                                  .no_mmap = kinds[i].no_mmap,
                                  .verify = kinds[i].verify,
                                  .on_progress = count_load,
                                  .progress_ctx = &seen};
        ASSERT_OK(caisson_model_open(TINY, &o, &m, &err), &err);
        caisson_model_close(m);
        assert_true(i == 0 ? seen.n == 0 : seen.n > 2 && seen.last == seen.total);
        seen = (steps){.stop_at = 2};
        caisson_status status = caisson_model_open(TINY, &o, &m, &err);
        assert_int_equal(status, i == 0 ? CAISSON_OK : CAISSON_E_CANCELLED);
        if (status == CAISSON_OK) {
            caisson_model_close(m);
        }
    }
}

static void the_context_ends_the_answer(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session *s = NULL;
    caisson_session_options o = {.struct_size = sizeof(o), .n_ctx = 12, .n_threads = 1};
    ASSERT_OK(caisson_session_new(m, &o, &s, &err), &err);
    sink out = {0};
    caisson_generation g = generate(s, &(caisson_generate_options){.ignore_eos = true}, &out);
    assert_int_equal(CAISSON_FINISH_CONTEXT, g.finish);
    assert_int_equal(12, caisson_session_n_past(s));
    caisson_session_free(s);
    caisson_model_close(m);
}

static void sampling_values_are_checked(void **state) {
    (void)state;
    caisson_error err;
    caisson_sampler *s = NULL;
    const caisson_sampling bad[] = {
        {.struct_size = sizeof(bad[0]), .temperature = -1},
        {.struct_size = sizeof(bad[0]), .top_p = 1.5f},
        {.struct_size = sizeof(bad[0]), .min_p = 2},
        {.struct_size = sizeof(bad[0]), .repeat_penalty = -1},
        {.struct_size = sizeof(bad[0]), .repeat_last_n = -2},
        {.struct_size = sizeof(bad[0]), .presence_penalty = (float)(1e300 * 1e300)},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ASSERT_STATUS(caisson_sampler_new(&bad[i], 10, &s, &err), CAISSON_E_ARG);
    }
    ASSERT_STATUS(caisson_sampler_new(NULL, 0, &s, &err), CAISSON_E_ARG);
    float logits[4] = {0, 3, 1, 3};
    int32_t id;
    caisson_sampling greedy_one = {.struct_size = sizeof(greedy_one), .greedy = true};
    ASSERT_OK(caisson_sampler_new(&greedy_one, 4, &s, &err), &err);
    ASSERT_OK(caisson_sampler_pick(s, logits, &id, &err), &err);
    assert_int_equal(1, id); /* the lowest id on a tie */
    caisson_sampler_free(s);
}

/* ---- text ---- */

static void streamed_text_equals_text_at_once(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    const char text[] = "na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80!";
    caisson_ids ids = {0};
    ASSERT_OK(caisson_model_tokenize(m, text, sizeof(text) - 1, 0, &ids, &err), &err);
    caisson_stream *s = NULL;
    ASSERT_OK(caisson_stream_new(m, true, &s, &err), &err);
    char got[256];
    size_t n_got = 0;
    for (size_t i = 0; i <= ids.n; i++) {
        const char *p;
        size_t n;
        if (i < ids.n) {
            ASSERT_OK(caisson_stream_feed(s, ids.id[i], &p, &n, &err), &err);
        } else {
            ASSERT_OK(caisson_stream_flush(s, &p, &n, &err), &err);
        }
        memcpy(got + n_got, p, n);
        n_got += n;
    }
    assert_int_equal(sizeof(text) - 1, n_got);
    assert_memory_equal(text, got, n_got);
    caisson_stream_free(s);
    caisson_ids_free(&ids);
    assert_null(ids.id);
    caisson_model_close(m);
}

static void messages_as_structs_and_as_json_render_alike(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    const caisson_message messages[] = {{"system", "Be \"brief\"."}, {"user", "Hi\n"}};
    caisson_chat a = {.struct_size = sizeof(a), .messages = messages, .n_messages = 2};
    const char json[] = "[{\"role\":\"system\",\"content\":\"Be \\\"brief\\\".\"},"
                        "{\"role\":\"user\",\"content\":\"Hi\\n\"}]";
    caisson_chat b = {.struct_size = sizeof(b), .json = json, .json_n = sizeof(json) - 1};
    caisson_text ta = {0};
    caisson_text tb = {0};
    ASSERT_OK(caisson_model_render(m, &a, &ta, &err), &err);
    ASSERT_OK(caisson_model_render(m, &b, &tb, &err), &err);
    assert_string_equal(
        "<|im_start|>system\nBe \"brief\".<|im_end|>\n<|im_start|>user\nHi\n<|im_end|>\n"
        "<|im_start|>assistant\n",
        ta.ptr);
    assert_string_equal(ta.ptr, tb.ptr);
    caisson_text_free(&ta);
    caisson_text_free(&tb);
    const caisson_message bad[] = {{"user", NULL}};
    caisson_chat c = {.struct_size = sizeof(c), .messages = bad, .n_messages = 1};
    ASSERT_STATUS(caisson_model_render(m, &c, &ta, &err), CAISSON_E_ARG);
    caisson_model_close(m);
}

/* ---- files ---- */

static void kinds_are_seen_by_content(void **state) {
    (void)state;
    caisson_error err;
    caisson_kind kind;
    ASSERT_OK(caisson_detect(TINY, &kind, &err), &err);
    assert_int_equal(CAISSON_KIND_CMF, kind);
    ASSERT_OK(caisson_detect(CSN_SOURCE_DIR "/CMakeLists.txt", &kind, &err), &err);
    assert_int_equal(CAISSON_KIND_UNKNOWN, kind);
    ASSERT_OK(caisson_detect(CSN_SOURCE_DIR, &kind, &err), &err);
    assert_int_equal(CAISSON_KIND_UNKNOWN, kind);
    ASSERT_STATUS(caisson_detect("/nonexistent/x", &kind, &err), CAISSON_E_IO);
}

static void ranges_of_a_tensor_are_checked(void **state) {
    (void)state;
    caisson_error err;
    caisson_file *f = NULL;
    ASSERT_OK(caisson_file_open(TINY, NULL, &f, &err), &err);
    int64_t i = caisson_file_find(f, "model.norm.weight", strlen("model.norm.weight"));
    assert_true(i >= 0);
    assert_int_equal(-1, caisson_file_find(f, "nope", 4));
    caisson_tensor_info t;
    assert_true(caisson_file_tensor(f, (uint32_t)i, &t));
    assert_int_equal(32, t.n_values);
    float v[32];
    ASSERT_OK(caisson_file_decode(f, (uint32_t)i, 0, 32, v, &err), &err);
    float tail[2];
    ASSERT_OK(caisson_file_decode(f, (uint32_t)i, 30, 2, tail, &err), &err);
    assert_memory_equal(v + 30, tail, sizeof(tail));
    ASSERT_STATUS(caisson_file_decode(f, (uint32_t)i, 31, 2, v, &err), CAISSON_E_ARG);
    ASSERT_STATUS(caisson_file_decode(f, (uint32_t)i, UINT64_MAX, 2, v, &err), CAISSON_E_ARG);
    ASSERT_STATUS(caisson_file_decode(f, 100000, 0, 1, v, &err), CAISSON_E_ARG);
    assert_false(caisson_file_tensor(f, caisson_file_n_tensors(f), &t));
    caisson_file_close(f);
}

static bool stop_at_once(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)ctx;
    (void)stage;
    (void)done;
    (void)total;
    return false;
}

static void verify_can_be_cancelled(void **state) {
    (void)state;
    caisson_error err;
    uint64_t n = 0;
    ASSERT_OK(caisson_verify(TINY, NULL, &n, &err), &err);
    assert_int_equal(0, n);
    caisson_verify_options o = {.struct_size = sizeof(o), .on_progress = stop_at_once};
    ASSERT_STATUS(caisson_verify(TINY, &o, &n, &err), CAISSON_E_CANCELLED);
}

static void copy_tiny(const char *path) {
    static char bytes[1 << 20];
    FILE *in = fopen(TINY, "rb");
    assert_non_null(in);
    size_t n = fread(bytes, 1, sizeof(bytes), in);
    fclose(in);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(n, fwrite(bytes, 1, n, out));
    fclose(out);
}

/* U01: a file that is cut while it is mapped ends the request, not the process. */
static void a_file_cut_while_mapped_is_an_error(void **state) {
    (void)state;
    char path[] = "/tmp/caisson-api-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    copy_tiny(path);
    caisson_error err;
    caisson_model *m = NULL;
    caisson_open_options o = {.struct_size = sizeof(o), .guard_mappings = true};
    ASSERT_OK(caisson_model_open(path, &o, &m, &err), &err);
    caisson_session *s = new_session(m);
    assert_int_equal(0, truncate(path, 4096));
    ASSERT_STATUS(caisson_session_eval(s, prompt, N_PROMPT, NULL, NULL, &err), CAISSON_E_IO);
    assert_string_equal(path, err.file);
    caisson_session_free(s);
    caisson_model_close(m);
    unlink(path);
}

/* ---- threads and memory ---- */

static void *run_alone(void *ctx) {
    caisson_error err;
    caisson_session *s = new_session(ctx);
    int32_t *ids = malloc(sizeof(greedy));
    caisson_status status = caisson_session_eval(s, prompt, N_PROMPT, NULL, NULL, &err);
    for (int i = 0; i < N_GREEDY && status == CAISSON_OK; i++) {
        ids[i] = argmax(caisson_session_logits(s));
        status = caisson_session_eval(s, &ids[i], 1, NULL, NULL, &err);
    }
    caisson_session_free(s);
    return status == CAISSON_OK ? ids : NULL;
}

static void sessions_of_one_model_run_at_once(void **state) {
    (void)state;
    caisson_model *m = open_tiny();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(0, pthread_create(&threads[i], NULL, run_alone, m));
    }
    for (int i = 0; i < 4; i++) {
        void *ids = NULL;
        pthread_join(threads[i], &ids);
        assert_non_null(ids);
        assert_memory_equal(greedy, ids, sizeof(greedy));
        free(ids);
    }
    caisson_model_close(m);
}

/* Every allocation of an open fails once: an error each time, and nothing leaks (asan). */
static void every_allocation_of_open_can_fail(void **state) {
    (void)state;
    caisson_error err;
    caisson_status status = CAISSON_E_NOMEM;
    int64_t n = 0;
    while (status != CAISSON_OK) {
        caisson_model *m = NULL;
        csn_alloc_fail_after(n);
        status = caisson_model_open(TINY, NULL, &m, &err);
        csn_alloc_fail_after(-1);
        if (status == CAISSON_OK) {
            caisson_model_close(m);
        } else {
            ASSERT_STATUS(status, CAISSON_E_NOMEM);
            assert_null(m);
        }
        n += n < 400 ? 1 : 37; /* the many small ones of the vocabulary: a sample */
    }
    assert_true(n > 20);
}

static void every_allocation_of_a_generation_can_fail(void **state) {
    (void)state;
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_status status = CAISSON_E_NOMEM;
    const caisson_message message = {"user", "Hello"};
    caisson_chat chat = {.struct_size = sizeof(chat), .messages = &message, .n_messages = 1};
    caisson_session_options so = {.struct_size = sizeof(so), .n_ctx = 64, .n_threads = 1};
    caisson_generate_options go = {.struct_size = sizeof(go), .max_tokens = 3};
    int64_t n = 0;
    for (; status != CAISSON_OK; n++) {
        caisson_session *s = NULL;
        caisson_ids ids = {0};
        caisson_generation g;
        csn_alloc_fail_after(n);
        status = caisson_session_new(m, &so, &s, &err);
        if (status == CAISSON_OK) {
            status = caisson_model_encode_chat(m, &chat, &ids, &err);
        }
        if (status == CAISSON_OK) {
            status = caisson_generate(s, ids.id, ids.n, &go, &g, &err);
        }
        csn_alloc_fail_after(-1);
        if (status != CAISSON_OK) {
            ASSERT_STATUS(status, CAISSON_E_NOMEM);
        }
        caisson_ids_free(&ids);
        caisson_session_free(s);
    }
    assert_true(n > 10);
    caisson_model_close(m);
}

/* What a session lists as its tokens is what it holds, also where the list could not grow: else the
 * next call would take tokens for evaluated that are not. */
static void a_generation_that_failed_leaves_nothing_for_the_next(void **state) {
    (void)state;
    enum { N_LONG = 320, N_GENERATED = 3 };
    caisson_error err;
    caisson_model *m = open_tiny();
    caisson_session_options so = {.struct_size = sizeof(so), .n_ctx = 400, .n_threads = 1};
    caisson_generate_options go = {.struct_size = sizeof(go), .max_tokens = N_GENERATED};
    caisson_generation g;
    int32_t ids[N_LONG];
    for (int32_t i = 0; i < N_LONG; i++) {
        ids[i] = i + 1;
    }
    int32_t want[N_LONG + N_GENERATED];
    uint32_t n_want = 0;
    for (int64_t n = -1;; n++) { /* first without a failure */
        caisson_session *s = NULL;
        ASSERT_OK(caisson_session_new(m, &so, &s, &err), &err);
        csn_alloc_fail_after(n);
        caisson_status status = caisson_generate(s, ids, N_LONG, &go, &g, &err);
        csn_alloc_fail_after(-1);
        ASSERT_OK(caisson_generate(s, ids, N_LONG, &go, &g, &err), &err);
        if (n < 0) {
            n_want = caisson_session_n_past(s);
            assert_in_range(n_want, N_LONG, N_LONG + N_GENERATED);
            memcpy(want, caisson_session_tokens(s), n_want * sizeof(*want));
        }
        assert_int_equal(caisson_session_n_past(s), n_want);
        assert_memory_equal(want, caisson_session_tokens(s), n_want * sizeof(*want));
        caisson_session_free(s);
        if (n >= 0 && status == CAISSON_OK) {
            break;
        }
    }
    caisson_model_close(m);
}

/* longrope: keys of an answer that grew past the original context (64 tokens here) are partly of
 * the short angles; a prompt of that length has long ones alone. The next turn is a prompt. */
static void reuse_across_the_border_of_longrope_changes_nothing(void **state) {
    enum { BEFORE = 50, GROWN = 40, MORE = 5 };
    caisson_error err;
    assert_int_equal(temp_dir_make(state), 0);
    const char *path = temp_path("m.cmf");
    caisson_convert_options co = {.struct_size = sizeof(co), .quant = "f32"};
    ASSERT_OK(
        caisson_convert(CSN_SOURCE_DIR "/tests/golden/families/phi3_longrope", path, &co, &err),
        &err);
    caisson_model *m = NULL;
    ASSERT_OK(caisson_model_open(path, NULL, &m, &err), &err);
    caisson_session *s = new_session(m);
    caisson_session *cold = new_session(m);
    caisson_sampling greedy_only = {.struct_size = sizeof(greedy_only), .greedy = true};
    caisson_generate_options go = {.struct_size = sizeof(go),
                                   .sampling = &greedy_only,
                                   .max_tokens = GROWN,
                                   .ignore_eos = true};
    caisson_generation g;
    int32_t ids[BEFORE + GROWN + MORE];
    for (int32_t i = 0; i < BEFORE; i++) {
        ids[i] = i + 3;
    }
    ASSERT_OK(caisson_generate(s, ids, BEFORE, &go, &g, &err), &err);
    uint32_t n = caisson_session_n_past(s);
    assert_true(n > 64);
    memcpy(ids, caisson_session_tokens(s), n * sizeof(*ids));
    for (int32_t i = 0; i < MORE; i++) {
        ids[n++] = 90 - i;
    }
    go.max_tokens = 1; /* of which nothing is evaluated: the logits are those of the prompt */
    ASSERT_OK(caisson_generate(s, ids, n, &go, &g, &err), &err);
    ASSERT_OK(caisson_generate(cold, ids, n, &go, &g, &err), &err);
    assert_memory_equal(caisson_session_logits(s), caisson_session_logits(cold),
                        caisson_model_n_vocab(m) * sizeof(float));
    ASSERT_OK(caisson_generate(s, ids, n, &go, &g, &err), &err);
    assert_int_equal(g.n_reused, n - 1); /* now all of one kind */
    ASSERT_OK(caisson_generate(s, ids, BEFORE, &go, &g, &err), &err);
    assert_int_equal(g.n_reused, 0); /* that is the other kind again */
    caisson_session_free(s);
    caisson_session_free(cold);
    caisson_model_close(m);
    temp_dir_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_of_a_model),
        cmocka_unit_test(a_cpu_without_fma_is_told),
        cmocka_unit_test(errors_name_the_file),
        cmocka_unit_test(a_null_error_is_fine),
        cmocka_unit_test(null_is_fine_for_everything_that_frees),
        cmocka_unit_test(options_without_struct_size_are_refused),
        cmocka_unit_test(shorter_and_longer_options_structs),
        cmocka_unit_test(text_only_cannot_run_and_no_text_cannot_tokenise),
        cmocka_unit_test(an_unknown_way_of_reading_is_refused),
        cmocka_unit_test(session_options_are_checked),
        cmocka_unit_test(greedy_tokens_are_those_of_transformers),
        cmocka_unit_test(rows_end_with_the_logits_of_the_last_token),
        cmocka_unit_test(a_failed_eval_leaves_the_session_as_it_was),
        cmocka_unit_test(a_score_that_is_refused_leaves_an_empty_session),
        cmocka_unit_test(a_score_can_be_cancelled_by_either_session),
        cmocka_unit_test(a_full_context_names_both_numbers),
        cmocka_unit_test(generation_gives_the_text_of_the_greedy_tokens),
        cmocka_unit_test(a_kept_prefix_gives_the_same_text),
        cmocka_unit_test(stop_strings_end_the_text_before_them),
        cmocka_unit_test(saying_no_and_cancel_stop_the_answer),
        cmocka_unit_test(a_prompt_can_be_cancelled),
        cmocka_unit_test(a_prompt_tells_how_far_it_is),
        cmocka_unit_test(a_model_tells_how_much_of_it_is_loaded),
        cmocka_unit_test(the_context_ends_the_answer),
        cmocka_unit_test(sampling_values_are_checked),
        cmocka_unit_test(streamed_text_equals_text_at_once),
        cmocka_unit_test(messages_as_structs_and_as_json_render_alike),
        cmocka_unit_test(kinds_are_seen_by_content),
        cmocka_unit_test(ranges_of_a_tensor_are_checked),
        cmocka_unit_test(verify_can_be_cancelled),
        cmocka_unit_test(a_file_cut_while_mapped_is_an_error),
        cmocka_unit_test(sessions_of_one_model_run_at_once),
        cmocka_unit_test(every_allocation_of_open_can_fail),
        cmocka_unit_test(every_allocation_of_a_generation_can_fail),
        cmocka_unit_test(a_generation_that_failed_leaves_nothing_for_the_next),
        cmocka_unit_test(reuse_across_the_border_of_longrope_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
