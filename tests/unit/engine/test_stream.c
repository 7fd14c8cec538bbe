/* SPDX-License-Identifier: Apache-2.0 */
/* Experts and layers of a .cmf that are read when they are wanted: the same bits as from the
 * mapping. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "convert/convert.h"
#include "engine/session.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

#define GOLDEN CSN_SOURCE_DIR "/tests/golden/families/"

enum { N_TOKENS = 40, N_PROMPT = 30 };

struct how {
    uint32_t n_cached; /* experts that fit; 0: everything is mapped */
    csn_expert_io io;
    bool no_mmap, looks_ahead;
    bool streams_trunk;
    uint64_t trunk_bytes; /* beyond the least */
    uint32_t n_ubatch;
    const char *skill;
};

static void convert(const char *family, const char *quant, const char *target) {
    caisson_error err = {0};
    csn_convert_options o = {
        .quant = csn_dtype_by_name(csn_str_from(quant)), .n_threads = 1, .overwrite = true};
    tiny_check(csn_convert(csn_fs_os(), family, target, &o, &err), &err);
}

/* The largest expert of the file, in pages of each of its matrices. */
static uint64_t expert_bytes(const csn_cmf *c) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        most = t->nbytes > most ? t->nbytes : most;
    }
    return 3 * (most + 2 * 4096);
}

static csn_model *open_model(const char *path, const struct how *how) {
    csn_cmf *cmf;
    csn_store *store;
    csn_model *m = NULL;
    caisson_error err = {0};
    csn_store_options options = {.no_mmap = how->no_mmap,
                                 .reads_rows = how->n_cached > 0 || how->streams_trunk};
    tiny_check(csn_cmf_open(csn_fs_os(), path, &cmf, &err), &err);
    tiny_check(csn_store_new(cmf, &options, &store, &err), &err);
    if (how->n_cached > 0) {
        csn_stream *stream;
        uint64_t cache_bytes = how->n_cached * expert_bytes(cmf);
        csn_stream_options so = {.experts = {.cache_bytes = cache_bytes, .io = how->io},
                                 .looks_ahead = how->looks_ahead,
                                 .verify = true};
        tiny_check(csn_stream_new(store, &so, &stream, &err), &err);
        assert_non_null(stream);
        csn_store_set_stream(store, stream);
    }
    if (how->streams_trunk) {
        csn_trunk *trunk;
        tiny_check(csn_trunk_new(store, false, &trunk, &err), &err);
        csn_store_set_trunk(store, trunk);
        uint64_t bytes = csn_trunk_min_bytes(trunk) + how->trunk_bytes;
        tiny_check(csn_trunk_start(trunk, bytes, how->io, &err), &err);
    }
    tiny_check(csn_model_new(store, &m, &err), &err);
    return m;
}

/* Logits of the prompt's last token and of each one after it. */
static float *run(const char *path, csn_compute compute, const struct how *how, size_t *ret_bytes) {
    caisson_error err = {0};
    csn_model *m = open_model(path, how);
    csn_session *s;
    csn_session_options o = {.n_ctx = 64,
                             .n_ubatch = how->n_ubatch,
                             .n_threads = 2,
                             .compute = compute,
                             .skill = how->skill};
    int32_t ids[N_TOKENS];
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    uint32_t vocab = csn_session_n_vocab(s);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        ids[i] = (int32_t)(i * 37 % vocab);
    }
    float *rows = calloc((N_TOKENS - N_PROMPT + 1) * (size_t)vocab, sizeof(float));
    assert_non_null(rows);
    tiny_check(csn_session_eval(s, ids, N_PROMPT, false, NULL, NULL, NULL, &err), &err);
    memcpy(rows, csn_session_logits(s, 0), vocab * sizeof(float));
    for (uint32_t i = N_PROMPT; i < N_TOKENS; i++) {
        tiny_check(csn_session_eval(s, ids + i, 1, false, NULL, NULL, NULL, &err), &err);
        memcpy(rows + (i - N_PROMPT + 1) * (size_t)vocab, csn_session_logits(s, 0),
               vocab * sizeof(float));
    }
    *ret_bytes = (N_TOKENS - N_PROMPT + 1) * (size_t)vocab * sizeof(float);
    csn_session_free(s);
    csn_model_free(m);
    return rows;
}

static void check(const char *family, const char *quant) {
    static const struct how mapped = {0};
    static const struct how hows[] = {
        {.n_cached = 100, .looks_ahead = true},
        {.n_cached = 4, .io = CSN_EXPERT_IO_THREADS, .looks_ahead = true},
        {.n_cached = 4, .io = CSN_EXPERT_IO_BUFFERED, .n_ubatch = 7},
        {.n_cached = 5, .no_mmap = true, .n_ubatch = 1},
    };
    char source[512];
    const char *path = temp_path("stream.cmf");
    snprintf(source, sizeof(source), GOLDEN "%s", family);
    convert(source, quant, path);
    for (int c = CSN_COMPUTE_F32; c <= CSN_COMPUTE_INT8; c++) {
        size_t bytes;
        float *want = run(path, (csn_compute)c, &mapped, &bytes);
        for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
            float *got = run(path, (csn_compute)c, &hows[i], &bytes);
            assert_memory_equal(got, want, bytes);
            free(got);
        }
        free(want);
    }
}

static void same_bits_as_mapped(void **state) {
    (void)state;
    check("qwen3_moe", "q8_row");
    check("qwen2_moe", "f16");
}

/* Dense and mixed, with tied and other heads, with latent and linear attention. */
static void layers_that_are_read_have_the_same_bits(void **state) {
    static const char *const families[] = {"llama",       "gemma3",      "qwen3_moe",
                                           "deepseek_v3", "kimi_linear", "kimi_k3"};
    static const struct how mapped = {0};
    struct how hows[] = {
        {.streams_trunk = true, .no_mmap = true},
        {.streams_trunk = true, .io = CSN_EXPERT_IO_BUFFERED, .n_ubatch = 7},
        {.streams_trunk = true, .trunk_bytes = 100000, .n_cached = 5, .looks_ahead = true},
        {.streams_trunk = true, .trunk_bytes = 1 << 28},
    };
    (void)state;
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        char source[512];
        const char *path = temp_path("trunk.cmf");
        snprintf(source, sizeof(source), GOLDEN "%s", families[f]);
        convert(source, "q8_row", path);
        bool has_experts = strcmp(families[f], "llama") != 0 && strcmp(families[f], "gemma3") != 0;
        for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
            struct how how = hows[i];
            size_t bytes;
            how.n_cached = has_experts ? how.n_cached : 0;
            csn_compute compute = i % 2 == 0 ? CSN_COMPUTE_F32 : CSN_COMPUTE_INT8;
            float *want = run(path, compute, &mapped, &bytes);
            float *got = run(path, compute, &how, &bytes);
            assert_memory_equal(got, want, bytes);
            free(got);
            free(want);
        }
    }
}

/* What a skill replaces is the skill's, which stays in memory. */
static void skills_on_layers(void **state) {
    static const char *const a[] = {"model.layers.1.self_attn.q_proj.weight",
                                    "model.layers.2.mlp.down_proj.weight", "lm_head.weight", NULL};
    static const struct how mapped = {.skill = "a"};
    static const struct how streamed = {.streams_trunk = true, .skill = "a"};
    (void)state;
    const char *path = temp_path("skills.cmf");
    size_t bytes;
    tiny_write(&(tiny_options){.skill = a, .dtype = "q8_row"}, path);
    float *want = run(path, CSN_COMPUTE_F32, &mapped, &bytes);
    float *got = run(path, CSN_COMPUTE_F32, &streamed, &bytes);
    assert_memory_equal(got, want, bytes);
    free(want);
    free(got);
}

struct other {
    csn_session *s;
    float *logits; /* [vocab] */
};

static void *run_other(void *arg) {
    struct other *o = arg;
    caisson_error err = {0};
    for (int32_t i = 0; i < 12; i++) {
        tiny_check(csn_session_eval(o->s, &i, 1, false, NULL, NULL, NULL, &err), &err);
    }
    memcpy(o->logits, csn_session_logits(o->s, 0), csn_session_n_vocab(o->s) * sizeof(float));
    return NULL;
}

/* Two sessions at once take turns at the slots. */
static void sessions_share_the_slots(void **state) {
    caisson_error err = {0};
    pthread_t threads[2];
    struct other others[2];
    (void)state;
    const char *path = temp_path("two.cmf");
    convert(GOLDEN "llama", "q8_row", path);
    csn_model *m = open_model(path, &(struct how){.streams_trunk = true, .no_mmap = true});
    for (int i = 0; i < 2; i++) {
        csn_session_options o = {.n_ctx = 64, .n_threads = 1};
        tiny_check(csn_session_new(m, &o, &others[i].s, &err), &err);
        others[i].logits = calloc(csn_session_n_vocab(others[i].s), sizeof(float));
        tiny_check(csn_thread_start(run_other, &others[i], &threads[i], &err), &err);
    }
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    assert_memory_equal(others[0].logits, others[1].logits,
                        csn_session_n_vocab(others[0].s) * sizeof(float));
    for (int i = 0; i < 2; i++) {
        csn_session_free(others[i].s);
        free(others[i].logits);
    }
    csn_model_free(m);
}

/* Logits of a blend of the skills a and b. */
static float *blend(const char *path, const struct how *how, size_t *ret_bytes) {
    caisson_error err = {0};
    csn_session *s;
    csn_model *m = open_model(path, how);
    csn_plan_part parts[2] = {{CSN_STR("a"), 0.25f}, {CSN_STR("b"), 0.75f}};
    int32_t ids[16];
    tiny_check(csn_session_new(m, &(csn_session_options){.n_ctx = 16}, &s, &err), &err);
    tiny_check(csn_session_set_blend(s, parts, 2, &err), &err);
    uint32_t vocab = csn_session_n_vocab(s);
    for (uint32_t i = 0; i < 16; i++) {
        ids[i] = (int32_t)(i * 37 % vocab);
    }
    float *row = calloc(vocab, sizeof(float));
    assert_non_null(row);
    tiny_check(csn_session_eval(s, ids, 16, false, NULL, NULL, NULL, &err), &err);
    memcpy(row, csn_session_logits(s, 0), vocab * sizeof(float));
    *ret_bytes = vocab * sizeof(float);
    csn_session_free(s);
    csn_model_free(m);
    return row;
}

/* Experts that a skill replaces are the skill's, the others come from the disk; of a blend the sums
 * stay in memory. */
static void skills_on_experts(void **state) {
    static const char *const a[] = {"model.layers.1.mlp.experts.0.up_proj.weight",
                                    "model.layers.2.mlp.experts.3.down_proj.weight", NULL};
    static const char *const b[] = {"model.layers.1.mlp.experts.1.gate_proj.weight", NULL};
    static const struct how mapped = {.skill = "a"};
    static const struct how base = {0};
    static const struct how streamed = {.n_cached = 4, .skill = "a"};
    (void)state;
    const char *path = temp_path("skills.cmf");
    size_t bytes;
    tiny_write(&(tiny_options){.n_experts = 4, .skill = a, .skill_b = b, .dtype = "q8_row"}, path);
    float *want = run(path, CSN_COMPUTE_F32, &mapped, &bytes);
    float *plain = run(path, CSN_COMPUTE_F32, &base, &bytes);
    float *got = run(path, CSN_COMPUTE_F32, &streamed, &bytes);
    assert_memory_not_equal(want, plain, bytes);
    assert_memory_equal(got, want, bytes);
    free(want);
    free(plain);
    free(got);

    float *blended = blend(path, &(struct how){0}, &bytes);
    float *streamed_blend = blend(path, &(struct how){.n_cached = 4}, &bytes);
    float *of_layers = blend(path, &(struct how){.streams_trunk = true, .no_mmap = true}, &bytes);
    assert_memory_equal(streamed_blend, blended, bytes);
    assert_memory_equal(of_layers, blended, bytes);
    free(blended);
    free(streamed_blend);
    free(of_layers);
}

static void a_model_without_experts_streams_nothing(void **state) {
    csn_cmf *cmf;
    csn_store *store;
    csn_stream *stream;
    caisson_error err = {0};
    const char *path = temp_path("dense.cmf");
    (void)state;
    convert(GOLDEN "llama", "q8_row", path);
    tiny_check(csn_cmf_open(csn_fs_os(), path, &cmf, &err), &err);
    tiny_check(csn_store_new(cmf, &(csn_store_options){0}, &store, &err), &err);
    csn_stream_options so = {.experts = {.cache_bytes = 1 << 20}};
    tiny_check(csn_stream_new(store, &so, &stream, &err), &err);
    assert_null(stream);
    csn_store_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_mapped),
        cmocka_unit_test(skills_on_experts),
        cmocka_unit_test(layers_that_are_read_have_the_same_bits),
        cmocka_unit_test(skills_on_layers),
        cmocka_unit_test(sessions_share_the_slots),
        cmocka_unit_test(a_model_without_experts_streams_nothing),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
