/* SPDX-License-Identifier: Apache-2.0 */
/* A timeline's bits under every split of its tokens, threads and instruction sets; its refusals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "engine/session.h"
#include "support/temp_dir.h"
#include "support/tiny_bits.h"

enum { N = 110 };

static int32_t ids[N];

static csn_model *model_of(const tiny_options *o) {
    const char *path = temp_path("m.cmf");
    csn_model *m = NULL;
    caisson_error err = {0};
    tiny_write(o, path);
    tiny_check(tiny_open(path, &m, &err), &err);
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 37 + 11) % TINY_VOCAB;
    }
    return m;
}

static csn_session *session_of(csn_model *m, csn_session_options o) {
    csn_session *s = NULL;
    caisson_error err = {0};
    o.n_ctx = o.n_ctx != 0 ? o.n_ctx : 256;
    o.n_threads = o.n_threads != 0 ? o.n_threads : 1;
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    return s;
}

static void eval(csn_session *s, const int32_t *id, uint32_t n, uint64_t *hash) {
    caisson_error err = {0};
    tiny_check(csn_session_eval(s, id, n, true, tiny_hash_row, hash, NULL, &err), &err);
}

/* Bits of all logits of the N ids, cut into calls of `step`. */
static uint64_t bits_of(csn_model *m, csn_session_options o, uint32_t step) {
    csn_session *s = session_of(m, o);
    uint64_t h = TINY_BITS_START;
    for (uint32_t i = 0; i < N; i += step) {
        eval(s, ids + i, N - i < step ? N - i : step, &h);
    }
    csn_session_free(s);
    return h;
}

static void change_gemma(csn_arch *a) {
    a->norm_style = CSN_NORM_GEMMA;
    a->hidden_act = CSN_ACT_GELU_TANH;
    a->embed_multiplier = 8.0f;
    a->sliding_window = 20;
    a->sliding_window_pattern = 3;
    a->rope_local_base_freq = 1000.0;
    a->query_pre_attn_scalar = 40.0;
    a->attn_logit_softcapping = 50.0;
    a->final_logit_softcapping = 30.0;
}

static void change_loops(csn_arch *a) {
    a->num_loops = 3;
    a->loop_final_norm = true;
}

static const tiny_options variants[] = {
    {.dtype = "f32", .n_layers = 2},
    {.dtype = "q8_row", .n_layers = 2, .biases = true, .untied = true},
    {.dtype = "q8_2f", .n_layers = 2, .qk_norm = true},
    {.dtype = "q4_tiled", .qk_norm = true, .sandwich = true, .change = change_gemma},
    {.dtype = "f32", .n_layers = 2, .change = change_loops},
    {.dtype = "q8_row", .n_layers = 2, .n_experts = 5},
    {.dtype = "q4_block", .n_layers = 2, .n_experts = 4, .shared_expert = true},
};

static void bits_ignore_threads_and_batches(void **state) {
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
        csn_model *m = model_of(&variants[v]);
        for (int c = CSN_COMPUTE_F32; c <= CSN_COMPUTE_INT8; c++) {
            /* the rest says nothing new: attention does not know what the matrices compute in */
            int last_kv = v < 4 && c == CSN_COMPUTE_F32 ? CSN_KV_Q8_0 : CSN_KV_F16;
            for (int kv = CSN_KV_F16; kv <= last_kv; kv++) {
                csn_session_options o = {.n_threads = 1,
                                         .n_ubatch = 512,
                                         .compute = (csn_compute)c,
                                         .type_k = (csn_kv_type)kv,
                                         .type_v = (csn_kv_type)kv};
                uint64_t want = bits_of(m, o, N);
                const uint32_t batches[] = {7, 1, 64, 512};
                for (unsigned i = 0; i < (kv == CSN_KV_F16 ? 4 : 1); i++) {
                    o.n_threads = kv == CSN_KV_F16 ? i + 1 : 3;
                    o.n_ubatch = batches[i];
                    assert_true(bits_of(m, o, N) == want);
                }
                o.n_ubatch = 512;
                o.n_threads = 1;
                assert_true(bits_of(m, o, kv == CSN_KV_F16 ? 1 : 33) == want);
            }
        }
        csn_model_free(m);
    }
}

static void bits_ignore_the_instruction_set(void **state) {
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
        for (int c = CSN_COMPUTE_F32; c <= CSN_COMPUTE_INT8; c++) {
            csn_session_options o = {.compute = (csn_compute)c};
            csn_model *m = model_of(&variants[v]);
            uint64_t want = bits_of(m, o, N);
            csn_model_free(m);
            csn_cpu_mask(0);
            m = model_of(&variants[v]); /* a model looks its kernels up at open */
            uint64_t scalar = bits_of(m, o, N);
            csn_cpu_mask(UINT32_MAX);
            csn_model_free(m);
            assert_true(scalar == want);
        }
    }
}

static void bits_ignore_what_was_forgotten(void **state) {
    (void)state;
    csn_model *m = model_of(&variants[3]);
    csn_session *s = session_of(m, (csn_session_options){.compute = CSN_COMPUTE_INT8});
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t other = 0;
    eval(s, ids, 100, &a);
    csn_session_truncate(s, 37);
    assert_int_equal(csn_session_n_past(s), 37);
    eval(s, ids, 90, &other); /* other tokens at these positions */
    csn_session_truncate(s, 0);
    eval(s, ids, 100, &b);
    assert_true(a == b && a != other);
    csn_session_free(s);
    csn_model_free(m);
}

static void bits_ignore_the_models_name(void **state) {
    (void)state;
    tiny_options o = variants[3];
    csn_model *m = model_of(&o);
    uint64_t want = bits_of(m, (csn_session_options){0}, N);
    csn_model_free(m);
    o.arch_name = "nobody";
    m = model_of(&o);
    assert_true(bits_of(m, (csn_session_options){0}, N) == want);
    csn_model_free(m);
}

static void last_row_equals_the_last_of_all_rows(void **state) {
    (void)state;
    csn_model *m = model_of(&variants[3]);
    csn_session *s = session_of(m, (csn_session_options){.n_ubatch = 64});
    caisson_error err = {0};
    tiny_check(csn_session_eval(s, ids, N, true, NULL, NULL, NULL, &err), &err);
    float kept[TINY_VOCAB];
    memcpy(kept, csn_session_logits(s, N - 1), sizeof(kept));
    assert_non_null(csn_session_logits(s, 0));
    assert_null(csn_session_logits(s, N));
    csn_session_truncate(s, 0);
    tiny_check(csn_session_eval(s, ids, N, false, NULL, NULL, NULL, &err), &err);
    assert_memory_equal(csn_session_logits(s, 0), kept, sizeof(kept));
    assert_null(csn_session_logits(s, 1));
    csn_session_free(s);
    csn_model_free(m);
}

static void a_full_context_is_refused_with_both_numbers(void **state) {
    (void)state;
    csn_model *m = model_of(&variants[0]);
    csn_session *s = session_of(m, (csn_session_options){.n_ctx = 100});
    caisson_error err = {0};
    assert_int_equal(csn_session_eval(s, ids, 101, false, NULL, NULL, NULL, &err),
                     CAISSON_E_CONTEXT);
    assert_string_equal(err.want, "100");
    assert_string_equal(err.got, "101");
    assert_int_equal(csn_session_n_past(s), 0);
    tiny_check(csn_session_eval(s, ids, 100, false, NULL, NULL, NULL, &err), &err);
    assert_int_equal(csn_session_eval(s, ids, 1, false, NULL, NULL, NULL, &err), CAISSON_E_CONTEXT);
    csn_session_free(s);
    csn_model_free(m);
}

static void ids_outside_the_vocabulary_are_refused(void **state) {
    (void)state;
    csn_model *m = model_of(&variants[0]);
    csn_session *s = session_of(m, (csn_session_options){0});
    caisson_error err = {0};
    const int32_t bad[2][2] = {{1, TINY_VOCAB}, {1, -1}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(csn_session_eval(s, bad[i], 2, false, NULL, NULL, NULL, &err),
                         CAISSON_E_ARG);
    }
    assert_int_equal(csn_session_eval(s, ids, 0, false, NULL, NULL, NULL, &err), CAISSON_E_ARG);
    csn_session_free(s);
    csn_model_free(m);
}

static void a_cache_that_cannot_be_allocated_is_refused(void **state) {
    (void)state;
    csn_model *m = model_of(&variants[0]);
    csn_session *s = NULL;
    caisson_error err = {0};
    csn_session_options o = {.n_ctx = UINT32_MAX - 1, .n_threads = 1};
    assert_int_equal(csn_session_new(m, &o, &s, &err), CAISSON_E_LIMIT);
    for (int64_t i = 0;; i++) { /* every allocation fails once */
        o.n_ctx = 64;
        csn_alloc_fail_after(i);
        caisson_status status = csn_session_new(m, &o, &s, &err);
        csn_alloc_fail_after(-1);
        if (status == CAISSON_OK) {
            csn_session_free(s);
            break;
        }
        assert_int_equal(status, CAISSON_E_NOMEM);
        assert_true(i < 100);
    }
    csn_model_free(m);
}

struct watcher {
    int calls_left;
    uint64_t last, total;
};

static bool watch(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    struct watcher *w = ctx;
    (void)stage;
    assert_true(done >= w->last && done <= total);
    w->last = done;
    w->total = total;
    return w->calls_left-- > 0;
}

static void cancelling_between_layers_leaves_the_past(void **state) {
    (void)state;
    csn_model *m = model_of(&variants[0]);
    csn_session *s = session_of(m, (csn_session_options){.n_ubatch = 16});
    caisson_error err = {0};
    uint64_t want = 0;
    eval(s, ids, 10, &want);
    csn_session_truncate(s, 5);
    for (int calls = 0; calls < 4; calls++) {
        struct watcher w = {.calls_left = calls};
        csn_progress p = {watch, &w};
        assert_int_equal(csn_session_eval(s, ids + 5, 60, false, NULL, NULL, &p, &err),
                         CAISSON_E_CANCELLED);
        assert_int_equal(csn_session_n_past(s), 5);
    }
    struct watcher w = {.calls_left = 1000};
    csn_progress p = {watch, &w};
    tiny_check(csn_session_eval(s, ids + 5, 60, false, NULL, NULL, &p, &err), &err);
    assert_true(w.last == 60 && w.total == 60);
    csn_session_free(s);
    csn_model_free(m);
}

/* U01: a file that shrinks while it is mapped ends the call with an error. */
static void a_file_cut_while_mapped_is_an_error(void **state) {
    (void)state;
    const char *path = temp_path("cut.cmf");
    caisson_error err = {0};
    csn_cmf *cmf;
    csn_store *store;
    csn_model *m;
    tiny_write(&variants[1], path);
    tiny_check(csn_cmf_open(csn_fs_os(), path, &cmf, &err), &err);
    csn_store_options guarded = {.guard_mappings = true};
    tiny_check(csn_store_new(cmf, &guarded, &store, &err), &err);
    tiny_check(csn_model_new(store, &m, &err), &err);
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 37 + 11) % TINY_VOCAB;
    }
    csn_session *s = session_of(m, (csn_session_options){.n_threads = 2});
    tiny_check(csn_session_eval(s, ids, 20, false, NULL, NULL, NULL, &err), &err);
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(csn_session_eval(s, ids, 40, false, NULL, NULL, NULL, &err), CAISSON_E_IO);
    assert_int_equal(csn_session_n_past(s), 20);
    assert_null(csn_session_logits(s, 0));
    assert_int_equal(csn_session_eval(s, ids, 1, false, NULL, NULL, NULL, &err), CAISSON_E_IO);
    csn_session_free(s);
    csn_model_free(m);
}

/* F16: weights that are not numbers give logits that are not, or a cache that tells them, and
 * nothing worse. */
static void broken_weights_do_no_harm(void **state) {
    (void)state;
    const char *path = temp_path("nan.cmf");
    caisson_error err = {0};
    for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
        tiny_write(&variants[v], path);
        FILE *f = fopen(path, "r+b"); /* 0xFF over the end of the blob: NaN in f32 and f16 */
        assert_non_null(f);
        assert_int_equal(fseek(f, -20000, SEEK_END), 0);
        for (int i = 0; i < 20000; i++) {
            (void)fputc(0xFF, f);
        }
        (void)fclose(f);
        csn_model *m;
        tiny_check(tiny_open(path, &m, &err), &err);
        for (int c = CSN_COMPUTE_F32; c <= CSN_COMPUTE_INT8; c++) {
            int last_kv = v < 4 ? CSN_KV_Q8_0 : CSN_KV_F16; /* the rest says nothing new */
            for (int kv = CSN_KV_F16; kv <= last_kv; kv++) {
                csn_session *s = session_of(m, (csn_session_options){.compute = (csn_compute)c,
                                                                     .type_k = (csn_kv_type)kv,
                                                                     .type_v = (csn_kv_type)kv});
                caisson_status status = csn_session_eval(s, ids, 70, false, NULL, NULL, NULL, &err);
                if (status == CAISSON_E_ARG) {
                    assert_string_equal(err.section, "kv cache");
                } else {
                    tiny_check(status, &err);
                }
                csn_session_free(s);
            }
        }
        csn_model_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_ignore_threads_and_batches),
        cmocka_unit_test(bits_ignore_the_instruction_set),
        cmocka_unit_test(bits_ignore_what_was_forgotten),
        cmocka_unit_test(bits_ignore_the_models_name),
        cmocka_unit_test(last_row_equals_the_last_of_all_rows),
        cmocka_unit_test(a_full_context_is_refused_with_both_numbers),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(a_cache_that_cannot_be_allocated_is_refused),
        cmocka_unit_test(cancelling_between_layers_leaves_the_past),
        cmocka_unit_test(a_file_cut_while_mapped_is_an_error),
        cmocka_unit_test(broken_weights_do_no_harm),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
