/* SPDX-License-Identifier: Apache-2.0 */
/* Containers of the existing engine, against the answers that it gives
 * (tests/oracle/warp_answers.py); and the same bits whatever the cache, the threads, the way of
 * reading and the cut of the prompt. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "engine/saved.h"
#include "fault/faulty_fs.h"
#include "store/usage.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

#define GOLDEN CSN_SOURCE_DIR "/tests/golden/warp/"

enum { N_PROMPT = 6, N_GREEDY = 8, N_SHOWN = 8, MAX_VOCAB = 512, RECORD = 12288 };

static const int32_t prompt[N_PROMPT] = {3, 7, 11, 5, 200, 42};

/* How a model is opened and run; none of it may change a bit. */
struct how {
    uint64_t cache_bytes; /* 0: everything fits */
    csn_expert_io io;
    bool looks_ahead, at_once;
    bool reads_rows;
    bool streams_trunk; /* two layers of it in memory */
    unsigned n_threads;
};

static csn_model *open_path(csn_fs *fs, const char *path, const struct how *how) {
    csn_warp *w;
    csn_store *store;
    csn_stream *stream;
    csn_model *m = NULL;
    caisson_error err = {0};
    tiny_check(csn_warp_open(fs, path, NULL, &w, &err), &err);
    tiny_check(
        csn_store_new_warp(w, &(csn_store_options){.reads_rows = how->reads_rows}, &store, &err),
        &err);
    uint64_t cache_bytes = how->cache_bytes != 0 ? how->cache_bytes : 1 << 20;
    csn_stream_options so = {.experts = {.cache_bytes = cache_bytes, .io = how->io},
                             .looks_ahead = how->looks_ahead,
                             .verify = true};
    tiny_check(csn_stream_new(store, &so, &stream, &err), &err);
    csn_store_set_stream(store, stream);
    if (how->streams_trunk) {
        csn_trunk *trunk;
        tiny_check(csn_trunk_new(store, false, &trunk, &err), &err);
        csn_store_set_trunk(store, trunk);
        tiny_check(csn_trunk_start(trunk, csn_trunk_min_bytes(trunk), how->io, &err), &err);
    }
    tiny_check(csn_model_new(store, &m, &err), &err);
    return m;
}

static csn_model *open_model(const char *name, const struct how *how) {
    char path[512];
    snprintf(path, sizeof(path), GOLDEN "%s.waste", name);
    return open_path(csn_fs_os(), path, how);
}

struct answer {
    uint32_t n_vocab;
    int32_t greedy[N_GREEDY];
    float first[MAX_VOCAB], last[MAX_VOCAB]; /* after the prompt; after all greedy tokens */
};

static int32_t argmax(const float *x, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return (int32_t)best;
}

static void run(const char *name, csn_compute compute, const struct how *how, struct answer *ret) {
    caisson_error err = {0};
    csn_model *m = open_model(name, how);
    csn_session *s;
    csn_session_options o = {.n_ctx = 64,
                             .n_threads = how->n_threads,
                             .compute = compute,
                             .type_k = CSN_KV_F32,
                             .type_v = CSN_KV_F32};
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    ret->n_vocab = csn_session_n_vocab(s);
    assert_true(ret->n_vocab <= MAX_VOCAB);
    uint32_t step = how->at_once ? N_PROMPT : 1;
    for (uint32_t i = 0; i < N_PROMPT; i += step) {
        tiny_check(csn_session_eval(s, prompt + i, step, false, NULL, NULL, NULL, &err), &err);
    }
    memcpy(ret->first, csn_session_logits(s, 0), ret->n_vocab * sizeof(float));
    for (int i = 0; i < N_GREEDY; i++) {
        ret->greedy[i] = argmax(csn_session_logits(s, 0), ret->n_vocab);
        tiny_check(csn_session_eval(s, &ret->greedy[i], 1, false, NULL, NULL, NULL, &err), &err);
    }
    memcpy(ret->last, csn_session_logits(s, 0), ret->n_vocab * sizeof(float));
    csn_session_free(s);
    csn_model_free(m);
}

/* ---- the existing engine's answers ---- */

static csn_json *answers;

static double number(const csn_jval *v) {
    double x = 0;
    assert_true(csn_jval_f64(v, &x));
    return x;
}

static void check_logits(const char *name, const char *what, const csn_jval *want, const float *got,
                         double tolerance) {
    int i = 0;
    for (csn_jiter it = csn_jval_iter(want); csn_jiter_next(&it); i++) {
        if (!(fabs(number(it.value) - (double)got[i]) <= tolerance)) {
            fail_msg("%s, %s, logit %d: %g, want %g", name, what, i, (double)got[i],
                     number(it.value));
        }
    }
    assert_int_equal(i, N_SHOWN);
}

static void check_answer(const char *name, double tolerance) {
    static const struct how how = {.n_threads = 1};
    const csn_jval *want = csn_jval_get(csn_json_root(answers), name);
    struct answer got;
    run(name, CSN_COMPUTE_F32, &how, &got);
    check_logits(name, "after the prompt", csn_jval_get(want, "logits"), got.first, tolerance);
    int i = 0;
    for (csn_jiter it = csn_jval_iter(csn_jval_get(want, "greedy")); csn_jiter_next(&it); i++) {
        assert_int_equal(got.greedy[i], (int)number(it.value));
    }
    assert_int_equal(i, N_GREEDY);
    check_logits(name, "after the answer", csn_jval_get(want, "after"), got.last, tolerance);
    double sum = 0;
    double squares = 0;
    for (uint32_t k = 0; k < got.n_vocab; k++) {
        sum += (double)got.first[k];
        squares += (double)got.first[k] * (double)got.first[k];
    }
    assert_true(fabs(sum - number(csn_jval_get(want, "sum"))) < tolerance * got.n_vocab);
    assert_true(fabs(squares - number(csn_jval_get(want, "sumsq"))) < tolerance * 2e4);
}

/* The README's tolerances: with int8 tables another order of summation in front of them may flip an
 * entry by one step. */
static void kimi_linear(void **state) {
    (void)state;
    check_answer("vq3r-base", 1e-3);
    check_answer("vq3r-tok", 1e-3);
    check_answer("vq2r", 1e-3);
    check_answer("vq3r-q3g", 1e-3);
}

static void rows_and_columns_that_fill_no_block(void **state) {
    (void)state;
    check_answer("vq3r-odd", 1e-3);
}

static void latent_attention_with_rope(void **state) {
    (void)state;
    check_answer("vq3r-rope", 1e-3);
}

static void k3(void **state) {
    (void)state;
    check_answer("vq3r-k3", 1e-3);
    check_answer("vq4p-k3", 0.1);
}

static void packed_indices(void **state) {
    (void)state;
    check_answer("vq4p", 0.1);
}

/* ---- sessions ---- */

static csn_session *new_session(csn_model *m, csn_kv_type type) {
    caisson_error err = {0};
    csn_session *s;
    csn_session_options o = {
        .n_ctx = 64, .n_threads = 1, .compute = CSN_COMPUTE_F32, .type_k = type, .type_v = type};
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    return s;
}

static void eval(csn_session *s, const int32_t *ids, uint32_t n) {
    caisson_error err = {0};
    tiny_check(csn_session_eval(s, ids, n, false, NULL, NULL, NULL, &err), &err);
}

/* Sessions that the existing engine saved after the prompt, and what it says to token 182. */
static void the_existing_engine_s_sessions(void **state) {
    static const struct {
        const char *name;
        double want[N_SHOWN];
    } list[] = {
        {"vq3r-base",
         {0.012503, -0.177598, 4.280618, 6.653379, 0.646624, 6.999274, -2.241065, -0.681639}},
        {"vq3r-k3",
         {0.966669, 0.811544, -1.094460, -2.556453, -0.483878, 0.967083, -4.806137, 7.191370}},
    };
    static const struct how how = {.n_threads = 1};
    static const int32_t next = 182;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char path[512];
        caisson_error err = {0};
        snprintf(path, sizeof(path), GOLDEN "%s.session", list[i].name);
        csn_model *m = open_model(list[i].name, &how);
        csn_session *s = new_session(m, CSN_KV_F32);
        tiny_check(csn_session_load(s, csn_fs_os(), path, &err), &err);
        assert_int_equal(csn_session_n_past(s), N_PROMPT);
        assert_null(csn_session_logits(s, 0));
        eval(s, &next, 1);
        for (int k = 0; k < N_SHOWN; k++) {
            assert_true(fabs((double)csn_session_logits(s, 0)[k] - list[i].want[k]) < 1e-3);
        }
        csn_session_truncate(s, 3); /* nobody knows the tokens */
        assert_int_equal(csn_session_eval(s, &next, 1, false, NULL, NULL, NULL, &err),
                         CAISSON_E_UNSUPPORTED);
        csn_session_free(s);
        csn_model_free(m);
    }
}

static void compare_floats(const csn_buf *a, const csn_buf *b) {
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->ptr, b->ptr, 64);
    for (size_t i = 64; i < a->len; i += 4) {
        float x;
        float y;
        memcpy(&x, a->ptr + i, 4);
        memcpy(&y, b->ptr + i, 4);
        if (!(fabs((double)x - (double)y) < 1e-4)) {
            fail_msg("byte %zu: %g, want %g", i, (double)x, (double)y);
        }
    }
}

/* What we save is what the existing engine saves, but for the hidden state at the end, and goes on
 * with the same bits. */
static void a_saved_session_goes_on(void **state) {
    static const struct how how = {.n_threads = 1};
    static const int32_t next[2] = {182, 9};
    (void)state;
    for (int type = 0; type < 2; type++) {
        csn_buf ours = CSN_BUF_INIT(1 << 20);
        csn_buf theirs = CSN_BUF_INIT(1 << 20);
        caisson_error err = {0};
        float want[MAX_VOCAB];
        const char *path = temp_path("saved.session");
        csn_model *m = open_model("vq3r-base", &how);
        csn_session *s = new_session(m, type == 0 ? CSN_KV_F32 : CSN_KV_F16);
        assert_int_equal(csn_session_save(s, csn_fs_os(), path, &err), CAISSON_E_ARG);
        eval(s, prompt, N_PROMPT);
        tiny_check(csn_session_save(s, csn_fs_os(), path, &err), &err);
        eval(s, next, 2);
        memcpy(want, csn_session_logits(s, 0), csn_session_n_vocab(s) * sizeof(float));
        tiny_check(csn_session_load(s, csn_fs_os(), path, &err), &err);
        eval(s, next, 2);
        assert_memory_equal(csn_session_logits(s, 0), want, csn_session_n_vocab(s) * sizeof(float));
        if (type == 0) {
            tiny_check(csn_fs_read_all(csn_fs_os(), path, 1 << 20, &ours, &err), &err);
            tiny_check(
                csn_fs_read_all(csn_fs_os(), GOLDEN "vq3r-base.session", 1 << 20, &theirs, &err),
                &err);
            memset(theirs.ptr + theirs.len - 128 * 4, 0, 128 * 4);
            compare_floats(&ours, &theirs);
        }
        csn_buf_free(&ours);
        csn_buf_free(&theirs);
        csn_session_free(s);
        csn_model_free(m);
    }
}

static void write_file(const char *path, const csn_buf *b, size_t n) {
    caisson_error err = {0};
    tiny_check(csn_fs_write_all(csn_fs_os(), path, csn_str_make(b->ptr, n), &err), &err);
}

/* A model without linear layers: what the existing engine (0.6.8) writes in front of its session
 * after the prompt. Its numbers of linear layers come from config alone, and it compares all of
 * them. */
static void sessions_without_linear_layers(void **state) {
    static const int32_t want[16] = {0x53414457, 1, 4, 128, 0, 0, 4, 4, 16, 8, 16, 0, 6, 0, 0, 0};
    static const struct how how = {.n_threads = 1};
    static const size_t at[] = {16, 20, 24}; /* heads, their size, width of the convolution */
    static const int32_t other = 7;
    const char *path = temp_path("rope.session");
    csn_buf bytes = CSN_BUF_INIT(1 << 20);
    caisson_error err = {0};
    (void)state;
    csn_model *m = open_model("vq3r-rope", &how);
    csn_session *s = new_session(m, CSN_KV_F32);
    eval(s, prompt, N_PROMPT);
    tiny_check(csn_session_save(s, csn_fs_os(), path, &err), &err);
    tiny_check(csn_fs_read_all(csn_fs_os(), path, 1 << 20, &bytes, &err), &err);
    assert_memory_equal(bytes.ptr, want, sizeof(want));
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        memcpy(bytes.ptr + at[i], &other, sizeof(other));
    }
    write_file(path, &bytes, bytes.len);
    tiny_check(csn_session_load(s, csn_fs_os(), path, &err), &err);
    assert_int_equal(csn_session_n_past(s), N_PROMPT);
    memcpy(bytes.ptr + 28, &other, sizeof(other)); /* heads of latent attention, which count */
    write_file(path, &bytes, bytes.len);
    assert_int_equal(csn_session_load(s, csn_fs_os(), path, &err), CAISSON_E_PARSE);
    csn_buf_free(&bytes);
    csn_session_free(s);
    csn_model_free(m);
}

/* Whatever is refused leaves the session where it was. */
static void damaged_sessions_are_refused(void **state) {
    static const struct how how = {.n_threads = 1};
    static const struct {
        size_t at;
        uint32_t value;
        caisson_status status;
    } list[] = {{0, 1, CAISSON_E_MAGIC},
                {4, 2, CAISSON_E_VERSION},
                {8, 5, CAISSON_E_PARSE},
                {12, 64, CAISSON_E_PARSE},
                {24, 5, CAISSON_E_PARSE},
                {48, 65, CAISSON_E_CONTEXT},
                {48, UINT32_MAX, CAISSON_E_CONTEXT},
                {48, 7, CAISSON_E_BOUNDS},
                {52, 1, CAISSON_E_BOUNDS},
                {52, UINT32_MAX, CAISSON_E_BOUNDS}};
    static const int32_t next = 9;
    (void)state;
    csn_buf bytes = CSN_BUF_INIT(1 << 20);
    caisson_error err = {0};
    const char *path = temp_path("bad.session");
    tiny_check(csn_fs_read_all(csn_fs_os(), GOLDEN "vq3r-base.session", 1 << 20, &bytes, &err),
               &err);
    csn_model *m = open_model("vq3r-base", &how);
    csn_session *s = new_session(m, CSN_KV_F32);
    eval(s, prompt, 3);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        uint32_t old;
        memcpy(&old, bytes.ptr + list[i].at, 4);
        memcpy(bytes.ptr + list[i].at, &list[i].value, 4);
        write_file(path, &bytes, bytes.len);
        assert_int_equal(csn_session_load(s, csn_fs_os(), path, &err), list[i].status);
        assert_int_equal(csn_session_n_past(s), 3);
        memcpy(bytes.ptr + list[i].at, &old, 4);
    }
    write_file(path, &bytes, bytes.len - 4);
    assert_int_equal(csn_session_load(s, csn_fs_os(), path, &err), CAISSON_E_BOUNDS);
    assert_int_equal(csn_session_n_past(s), 3);
    eval(s, &next, 1);
    csn_session_free(s);
    csn_model_free(m);
    csn_buf_free(&bytes);
}

static void other_models_are_not_saved(void **state) {
    caisson_error err = {0};
    (void)state;
    csn_model *m;
    tiny_write(&(tiny_options){0}, temp_path("dense.cmf"));
    tiny_check(tiny_open(temp_path("dense.cmf"), &m, &err), &err);
    csn_session *s = new_session(m, CSN_KV_F32);
    assert_int_equal(csn_session_save(s, csn_fs_os(), temp_path("x"), &err), CAISSON_E_UNSUPPORTED);
    csn_session_free(s);
    csn_model_free(m);
}

/* ---- what was used is read first ---- */

static csn_expert_stats stats_of(csn_model *m) {
    csn_expert_stats s;
    csn_experts_stats_all(csn_stream_experts(csn_store_stream(csn_model_store(m))), &s);
    return s;
}

/* What a token costs, exactly: a change that reads more must show here (it once took weeks to be
 * noticed elsewhere). Each token asks three layers for two experts of 12,288 bytes. */
static void reads_and_bytes_of_a_token(void **state) {
    enum { N_LAYERS = 3, TOP_K = 2 };
    static const struct {
        const char *name;
        uint64_t n_cached;
        uint64_t misses[2];                /* token by token; all at once: every expert once */
    } list[] = {{"vq3r-base", 4, {25, 7}}, /* its usage.waste has seven experts, too */
                {"vq3r-base", 100, {7, 7}},
                {"vq4p-k3", 4, {26, 7}},
                {"vq4p-k3", 100, {7, 7}}};
    (void)state;
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        struct how how = {.cache_bytes = list[i].n_cached * RECORD, .n_threads = 1};
        for (int at_once = 0; at_once < 2; at_once++) {
            csn_model *m = open_model(list[i].name, &how);
            csn_session *s = new_session(m, CSN_KV_F32);
            uint32_t step = at_once ? N_PROMPT : 1;
            for (uint32_t k = 0; k < N_PROMPT; k += step) {
                eval(s, prompt + k, step);
            }
            csn_expert_stats got = stats_of(m);
            if (!at_once) {
                assert_int_equal(got.hits + got.misses, N_PROMPT * N_LAYERS * TOP_K);
            }
            assert_int_equal(got.misses, list[i].misses[at_once]);
            assert_int_equal(got.reads, got.misses);
            assert_int_equal(got.bytes, got.misses * RECORD);
            csn_session_free(s);
            csn_model_free(m);
        }
    }
}

static void copy_file(void *ctx, csn_str name) {
    char from[512];
    char to[512];
    caisson_error err = {0};
    csn_buf bytes = CSN_BUF_INIT(1 << 20);
    snprintf(from, sizeof(from), GOLDEN "vq3r-odd.waste/%.*s", (int)name.len, name.ptr);
    snprintf(to, sizeof(to), "%s/%.*s", (const char *)ctx, (int)name.len, name.ptr);
    tiny_check(csn_fs_read_all(csn_fs_os(), from, 1 << 20, &bytes, &err), &err);
    tiny_check(csn_fs_write_all(csn_fs_os(), to, csn_buf_view(&bytes), &err), &err);
    csn_buf_free(&bytes);
}

static void usage_saves_reads(void **state) {
    static const struct how how = {.n_threads = 1};
    (void)state;
    uint64_t misses[2];
    caisson_error err = {0};
    char dir[512];
    snprintf(dir, sizeof(dir), "%s", temp_path("."));
    temp_dir_clear();
    tiny_check(csn_fs_os()->ops->list(csn_fs_os(), GOLDEN "vq3r-odd.waste", copy_file, dir, &err),
               &err);
    for (int i = 0; i < 2; i++) {
        csn_model *m = open_path(csn_fs_os(), dir, &how);
        csn_stream *stream = csn_store_stream(csn_model_store(m));
        tiny_check(csn_stream_recall(stream, csn_fs_os(), NULL, &err), &err);
        csn_session *s = new_session(m, CSN_KV_F32);
        eval(s, prompt, N_PROMPT);
        misses[i] = stats_of(m).misses;
        tiny_check(csn_stream_learn(stream, csn_fs_os(), &err), &err);
        csn_session_free(s);
        csn_model_free(m);
    }
    assert_true(misses[0] > 0);
    assert_int_equal(misses[1], 0); /* all that the prompt wants was there */
}

/* A row of the embedding that the disk does not give ends one answer, not the model. */
static void a_bad_row_ends_one_answer(void **state) {
    static const int32_t next[] = {77, 9};
    (void)state;
    faulty_fs f;
    struct answer want;
    caisson_error err = {0};
    faulty_fs_init(&f, csn_fs_os());
    run("vq3r-base", CSN_COMPUTE_F32, &(struct how){.n_threads = 1}, &want);
    csn_model *m = open_path(&f.base, GOLDEN "vq3r-base.waste", &(struct how){.reads_rows = true});
    csn_session *s = new_session(m, CSN_KV_F32);
    eval(s, prompt, 3);
    f.kinds = FAULTY_READ;
    f.n = 0;
    f.fail_at = 2; /* of the second row the codes */
    assert_int_equal(csn_session_eval(s, next, 2, false, NULL, NULL, NULL, &err), CAISSON_E_IO);
    assert_string_equal(err.tensor, "model.embed_tokens.weight, row 9");
    f.fail_at = -1;
    assert_int_equal(csn_session_n_past(s), 3);
    eval(s, prompt + 3, N_PROMPT - 3);
    assert_memory_equal(csn_session_logits(s, 0), want.first, want.n_vocab * sizeof(float));
    csn_session_free(s);
    csn_model_free(m);
    assert_int_equal(f.n_open, 0);
}

/* ---- placement ---- */

static void same_bits_however_it_is_run(void **state) {
    static const char *const names[] = {"vq3r-base", "vq2r", "vq4p-k3", "vq3r-rope"};
    static const struct how hows[] = {
        {.n_threads = 2},
        {.n_threads = 3, .at_once = true, .reads_rows = true},
        {.cache_bytes = 4 * RECORD, .n_threads = 1, .looks_ahead = true, .reads_rows = true},
        {.cache_bytes = 6 * RECORD, .n_threads = 2, .looks_ahead = true, .at_once = true},
        {.cache_bytes = 4 * RECORD, .n_threads = 2, .io = CSN_EXPERT_IO_THREADS, .at_once = true},
        {.cache_bytes = 8 * RECORD, .n_threads = 1, .io = CSN_EXPERT_IO_BUFFERED},
        {.n_threads = 2, .streams_trunk = true, .looks_ahead = true, .reads_rows = true},
        {.cache_bytes = 4 * RECORD,
         .n_threads = 3,
         .streams_trunk = true,
         .io = CSN_EXPERT_IO_BUFFERED,
         .at_once = true},
    };
    static const csn_compute modes[] = {CSN_COMPUTE_F32, CSN_COMPUTE_INT8};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (size_t c = 0; c < 2; c++) {
            static const struct how one = {.n_threads = 1};
            struct answer want;
            run(names[i], modes[c], &one, &want);
            for (size_t k = 0; k < sizeof(hows) / sizeof(hows[0]); k++) {
                struct answer got;
                run(names[i], modes[c], &hows[k], &got);
                assert_memory_equal(got.first, want.first, want.n_vocab * sizeof(float));
                assert_memory_equal(got.last, want.last, want.n_vocab * sizeof(float));
            }
        }
    }
}

static int read_answers(void **state) {
    csn_buf bytes = CSN_BUF_INIT(1 << 20);
    caisson_error err = {0};
    tiny_check(csn_fs_read_all(csn_fs_os(), GOLDEN "answers.json", 1 << 20, &bytes, &err), &err);
    tiny_check(csn_json_parse(csn_buf_view(&bytes), 0, &answers, &err), &err);
    csn_buf_free(&bytes);
    return temp_dir_make(state);
}

static int free_answers(void **state) {
    csn_json_free(answers);
    return temp_dir_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kimi_linear),
        cmocka_unit_test(rows_and_columns_that_fill_no_block),
        cmocka_unit_test(latent_attention_with_rope),
        cmocka_unit_test(k3),
        cmocka_unit_test(packed_indices),
        cmocka_unit_test(the_existing_engine_s_sessions),
        cmocka_unit_test(sessions_without_linear_layers),
        cmocka_unit_test(a_saved_session_goes_on),
        cmocka_unit_test(damaged_sessions_are_refused),
        cmocka_unit_test(other_models_are_not_saved),
        cmocka_unit_test(reads_and_bytes_of_a_token),
        cmocka_unit_test(usage_saves_reads),
        cmocka_unit_test(a_bad_row_ends_one_answer),
        cmocka_unit_test(same_bits_however_it_is_run),
    };
    return cmocka_run_group_tests(tests, read_answers, free_answers);
}
