/* SPDX-License-Identifier: Apache-2.0 */
/* Task masks (CMF 5): what is switched off gives the bits of a model whose weights behind it are
 * zero, or that does not have it; a mask with everything on is no mask. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "engine/session.h"
#include "model/packed.h"
#include "support/family_model.h"
#include "support/tiny_bits.h"

enum { N = 21, LAYERS = 3, FFN_BYTES = TINY_FFN / 8, MAX_VISITS = 9 };
enum { WIDE = 1056, WIDE_BYTES = WIDE / 8 }; /* columns that can be left out 256 at a time */

static uint8_t ffn[MAX_VISITS * WIDE_BYTES];
static uint32_t width = TINY_FFN;
static uint8_t heads[LAYERS];
static uint8_t gates[1];
static uint8_t experts[LAYERS];
static csn_cmf_mask mask;

static void all_on(void) {
    width = TINY_FFN;
    memset(ffn, 0xff, sizeof(ffn));
    memset(heads, 0x3f, sizeof(heads)); /* 6 heads */
    gates[0] = 0x07;
    memset(experts, 0x1f, sizeof(experts)); /* 5 experts */
    mask = (csn_cmf_mask){
        .name = CSN_STR("task"), .n_ffn_rows = LAYERS, .ffn = ffn, .heads = heads, .gates = gates};
}

static void off(uint8_t *bits, unsigned i) {
    bits[i / 8] &= (uint8_t) ~(1u << (i % 8));
}

static csn_model *model_of(const tiny_options *o, bool has_mask) {
    const char *path = temp_path("m.cmf");
    csn_cmf *cmf;
    csn_store *store;
    csn_model *m = NULL;
    caisson_error err = {0};
    tiny_write(o, path);
    tiny_check(csn_cmf_open(csn_fs_os(), path, &cmf, &err), &err);
    if (has_mask) {
        cmf->masks = (csn_cmf_masks){.masks = &mask, .n = 1, .default_task = CSN_STR("task")};
    }
    tiny_check(csn_store_new(cmf, &(csn_store_options){0}, &store, &err), &err);
    tiny_check(csn_model_new(store, &m, &err), &err);
    return m;
}

struct rows {
    uint64_t hash;
    uint32_t vocab;
};

static caisson_status hash_row(void *ctx, uint32_t i, const float *logits, caisson_error *err) {
    struct rows *r = ctx;
    (void)i;
    (void)err;
    r->hash = tiny_hash(r->hash, logits, r->vocab);
    return CAISSON_OK;
}

static uint64_t bits_with(csn_model *m, csn_session_options o, uint32_t step) {
    csn_session *s = NULL;
    caisson_error err = {0};
    int32_t ids[N];
    struct rows rows = {TINY_BITS_START, csn_model_arch(m)->vocab_size};
    o.n_ctx = 128;
    tiny_check(csn_session_new(m, &o, &s, &err), &err);
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 37 + 11) % (int32_t)rows.vocab;
    }
    for (uint32_t i = 0; i < N; i += step) {
        uint32_t n = N - i < step ? N - i : step;
        tiny_check(csn_session_eval(s, ids + i, n, true, hash_row, &rows, NULL, &err), &err);
    }
    csn_session_free(s);
    return rows.hash;
}

/* The same bits under the mask as of `other` without one, in both arithmetic modes, for any split
 * and instruction set. */
static void check_equal(const tiny_options *masked, const tiny_options *other) {
    for (int c = CSN_COMPUTE_F32; c <= CSN_COMPUTE_INT8; c++) {
        csn_session_options o = {.compute = (csn_compute)c, .n_threads = 1};
        csn_model *m = model_of(other, false);
        uint64_t want = bits_with(m, o, N);
        csn_model_free(m);
        m = model_of(masked, true);
        assert_true(bits_with(m, o, N) == want);
        assert_true(bits_with(m, o, 1) == want);
        assert_true(bits_with(m, (csn_session_options){.compute = o.compute, .n_threads = 3}, 13) ==
                    want);
        o.task = "";
        assert_true(bits_with(m, o, N) != want);
        o.task = "task";
        csn_model_set_max_packed(m, 0); /* without copies of what is left */
        assert_true(bits_with(m, o, 1) == want);
        csn_model_free(m);
        csn_cpu_mask(0);
        m = model_of(masked, true);
        assert_true(bits_with(m, o, N) == want);
        csn_model_free(m);
        csn_cpu_mask(UINT32_MAX);
    }
}

static const char *const dtypes[] = {"f32", "q8_row", "q4_tiled", "q8_2f"};

static uint32_t layer_of(csn_str name) {
    return csn_str_starts(name, CSN_STR("model.layers.")) ? (uint32_t)(name.ptr[13] - '0')
                                                          : UINT32_MAX;
}

/* Gate rows, and biases, of what ffn switches off: act(0) * up = 0. */
static void zero_gate_rows(csn_str name, float *x, uint64_t rows, uint64_t cols) {
    if (!csn_str_ends(name, CSN_STR("mlp.gate_proj.weight")) &&
        !csn_str_ends(name, CSN_STR("mlp.gate_proj.bias"))) {
        return;
    }
    const uint8_t *bits = ffn + layer_of(name) * csn_bit_row_bytes(width);
    for (uint64_t r = 0; r < rows; r++) {
        if ((bits[r / 8] >> (r % 8) & 1) == 0) {
            memset(x + r * cols, 0, cols * sizeof(float));
        }
    }
}

static void neurons_that_are_off_equal_zeroed_gate_rows(void **state) {
    (void)state;
    all_on();
    for (unsigned i = 0; i < TINY_FFN; i++) {
        if (i % 3 != 0) {
            off(ffn, i); /* scattered */
        }
        if (i >= 32 && i < 71) {
            off(ffn + FFN_BYTES, i); /* a run */
        }
        off(ffn + 2 * (size_t)FFN_BYTES, i); /* all */
    }
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        if (strcmp(dtypes[d], "q8_2f") == 0) {
            continue; /* its column factors follow from all rows */
        }
        check_equal(&(tiny_options){.dtype = dtypes[d]},
                    &(tiny_options){.dtype = dtypes[d], .edit = zero_gate_rows});
    }
}

static void off_from_to(uint8_t *bits, unsigned first, unsigned end) {
    for (unsigned i = first; i < end; i++) {
        off(bits, i);
    }
}

/* What is left is copied, columns without the gaps of whole 256: in front, between and behind. */
static void copies_of_what_is_left_equal_zeroed_gate_rows(void **state) {
    static const char *const kinds[] = {"q8_row", "q4_tiled", "q4_block", "q4tp"};
    (void)state;
    all_on();
    width = WIDE;
    uint8_t *second = ffn + WIDE_BYTES;
    uint8_t *third = second + WIDE_BYTES;
    off_from_to(ffn, 256, 512); /* runs of 256: nothing else is left out */
    off_from_to(ffn, 768, 1024);
    off_from_to(second, 0, 300); /* gaps that begin and end anywhere, neurons alone */
    off_from_to(second, 301, 700);
    off_from_to(second, 703, 710);
    off_from_to(second, 790, WIDE);
    for (unsigned i = 0; i < WIDE; i++) {
        if (i * 2654435761u >> 31 != 0) {
            off(third, i); /* scattered */
        }
    }
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        check_equal(
            &(tiny_options){.dtype = kinds[k], .ffn = WIDE, .ffn_biases = true},
            &(tiny_options){
                .dtype = kinds[k], .ffn = WIDE, .ffn_biases = true, .edit = zero_gate_rows});
    }
    /* the column factors of q8_2f follow from all rows: against the whole matrices */
    csn_model *m = model_of(&(tiny_options){.dtype = "q8_2f", .ffn = WIDE}, true);
    csn_session_options o = {.compute = CSN_COMPUTE_INT8, .n_threads = 2};
    uint64_t copied = bits_with(m, o, 1);
    csn_model_set_max_packed(m, 0);
    assert_true(bits_with(m, o, 1) == copied);
    csn_model_free(m);
}

/* The copies of the first layer below: 3 of 5 runs of 256 (the last is short). */
static void copies_take_what_is_told(void **state) {
    (void)state;
    caisson_error err = {0};
    csn_active *a = NULL;
    uint64_t nbytes;
    all_on();
    memset(ffn, 0xff, sizeof(ffn));
    off_from_to(ffn, 256, 512);
    off_from_to(ffn, 768, 1024);
    csn_model *m = model_of(&(tiny_options){.dtype = "q8_row", .ffn = WIDE}, true);
    const csn_plan *plan = csn_model_plan(m);
    tiny_check(csn_active_new(plan, csn_model_arch(m), &mask, &a, &err), &err);
    tiny_check(csn_packed_nbytes(a, plan, &nbytes, &err), &err);
    uint64_t left = WIDE - 512;
    uint64_t rows = 2 * left * (TINY_HIDDEN + 2);
    uint64_t columns = TINY_HIDDEN * (left + 2);
    assert_int_equal(nbytes, csn_alloc_aligned_nbytes(rows + columns));
    tiny_check(csn_packed_make(a, plan, &err), &err);
    assert_int_equal(a->visits[0].packed->down.m.cols, left);
    assert_null(a->visits[0].packed->at);
    assert_null(a->visits[1].packed);
    csn_active_free(a);
    csn_model_free(m);
}

/* Columns of o_proj that the heads which are off would feed. */
static void zero_head_columns(csn_str name, float *x, uint64_t rows, uint64_t cols) {
    if (!csn_str_ends(name, CSN_STR("self_attn.o_proj.weight"))) {
        return;
    }
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t c = 0; c < cols; c++) {
            if ((heads[layer_of(name)] >> (c / TINY_HD) & 1) == 0) {
                x[r * cols + c] = 0.0f;
            }
        }
    }
}

static void heads_that_are_off_equal_zeroed_columns(void **state) {
    (void)state;
    all_on();
    heads[0] = 0x2d; /* 1 and 4 off */
    heads[1] = 0x38; /* the first three: a kv head with nobody left */
    heads[2] = 0x00; /* all */
    check_equal(&(tiny_options){.qk_norm = true, .biases = true},
                &(tiny_options){.qk_norm = true, .biases = true, .edit = zero_head_columns});
    check_equal(&(tiny_options){.dtype = "f16"},
                &(tiny_options){.dtype = "f16", .edit = zero_head_columns});
}

/* Bits of the heads of a family's layers, four a layer: linear attention has three of its own. */
static uint64_t bits_of_heads(csn_model *m, uint32_t on, csn_session_options o, uint32_t step) {
    static uint8_t bits[8];
    static uint8_t all[8 * 16];
    csn_cmf *cmf = (csn_cmf *)(uintptr_t)csn_store_cmf(csn_model_store(m));
    memset(all, 0xff, sizeof(all));
    memset(bits, (int)on, sizeof(bits));
    mask = (csn_cmf_mask){.name = CSN_STR("task"),
                          .n_ffn_rows = csn_model_arch(m)->n_layers,
                          .ffn = all,
                          .heads = bits,
                          .gates = all};
    cmf->masks = (csn_cmf_masks){.masks = &mask, .n = 1, .default_task = CSN_STR("task")};
    uint64_t h = bits_with(m, o, step);
    cmf->masks = (csn_cmf_masks){0};
    return h;
}

/* tests/python/test_family_masks.py holds the same against zeroed weights. */
static void heads_of_latent_and_linear_attention(void **state) {
    static const char *const families[] = {"deepseek_v2", "deepseek_v3", "kimi_linear", "kimi_k3"};
    (void)state;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        csn_model *m = family_model(families[i], "q8_row", NULL);
        uint64_t dense = bits_with(m, (csn_session_options){.n_threads = 1}, N);
        assert_true(bits_of_heads(m, 0x0f, (csn_session_options){.n_threads = 1}, N) == dense);
        uint64_t seen[3];
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t on = k == 0 ? 5 : k == 1 ? 2 : 0;
            seen[k] = bits_of_heads(m, on, (csn_session_options){.n_threads = 1}, N);
            assert_true(bits_of_heads(m, on, (csn_session_options){.n_threads = 3}, 13) == seen[k]);
            assert_true(bits_of_heads(m, on, (csn_session_options){.n_threads = 2}, 1) == seen[k]);
        }
        assert_true(seen[0] != dense && seen[1] != seen[0] && seen[2] != seen[1]);
        csn_model_free(m);
    }
}

/* Layer 1 adds nothing. */
static void zero_layer_1(csn_str name, float *x, uint64_t rows, uint64_t cols) {
    if (layer_of(name) == 1 && (csn_str_ends(name, CSN_STR("self_attn.o_proj.weight")) ||
                                csn_str_ends(name, CSN_STR("mlp.down_proj.weight")))) {
        memset(x, 0, rows * cols * sizeof(float));
    }
}

static void a_layer_that_is_off_adds_nothing(void **state) {
    (void)state;
    all_on();
    off(gates, 1);
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        check_equal(&(tiny_options){.dtype = dtypes[d]},
                    &(tiny_options){.dtype = dtypes[d], .edit = zero_layer_1});
    }
}

static void experts_that_are_off_do_not_exist(void **state) {
    (void)state;
    for (int shared = 0; shared < 2; shared++) { /* with and without norm_topk_prob */
        all_on();
        mask.experts = experts;
        memset(experts, 0x07, sizeof(experts));
        for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
            if (strcmp(dtypes[d], "q8_2f") == 0) {
                continue; /* its column factors follow from all rows of the router */
            }
            check_equal(
                &(tiny_options){.dtype = dtypes[d], .n_experts = 5, .shared_expert = shared},
                &(tiny_options){.dtype = dtypes[d], .n_experts = 3, .shared_expert = shared});
        }
    }
}

static void loop3(csn_arch *a) {
    a->num_loops = 3;
}

static void rows_of_a_looped_model_are_per_visit(void **state) {
    (void)state;
    csn_session_options o = {.n_threads = 1};
    all_on();
    csn_model *m = model_of(&(tiny_options){.change = loop3}, true);
    mask.n_ffn_rows = 9;
    uint64_t dense = bits_with(m, o, N);
    uint64_t seen[9];
    for (unsigned v = 0; v < 9; v++) {
        memset(ffn, 0xff, sizeof(ffn));
        memset(ffn + v * (size_t)FFN_BYTES, 0, FFN_BYTES);
        seen[v] = bits_with(m, o, N);
        assert_true(seen[v] != dense);
        for (unsigned u = 0; u < v; u++) {
            assert_true(seen[u] != seen[v]);
        }
    }
    /* one row a layer stands for all its visits */
    memset(ffn, 0xff, sizeof(ffn));
    for (unsigned v = 1; v < 9; v += 3) {
        memset(ffn + v * (size_t)FFN_BYTES, 0, FFN_BYTES);
    }
    uint64_t want = bits_with(m, o, N);
    memset(ffn, 0xff, sizeof(ffn));
    memset(ffn + FFN_BYTES, 0, FFN_BYTES);
    mask.n_ffn_rows = LAYERS;
    assert_true(bits_with(m, o, N) == want);
    csn_model_free(m);
}

/* One row a layer, which holds on every pass (facts 18.16). */
static void heads_and_experts_of_a_looped_model_are_off_on_every_pass(void **state) {
    (void)state;
    all_on();
    heads[0] = 0x2d; /* as above */
    heads[1] = 0x38;
    heads[2] = 0x00;
    check_equal(&(tiny_options){.change = loop3},
                &(tiny_options){.change = loop3, .edit = zero_head_columns});
    all_on();
    mask.experts = experts;
    memset(experts, 0x07, sizeof(experts));
    check_equal(&(tiny_options){.change = loop3, .n_experts = 5},
                &(tiny_options){.change = loop3, .n_experts = 3});
}

static void everything_on_is_no_mask(void **state) {
    (void)state;
    caisson_error err = {0};
    all_on();
    csn_model *m = model_of(&(tiny_options){0}, true);
    csn_active *a = NULL;
    tiny_check(csn_active_new(csn_model_plan(m), csn_model_arch(m), &mask, &a, &err), &err);
    assert_null(a);
    csn_model_free(m);
}

static void masks_that_do_not_fit_are_refused(void **state) {
    (void)state;
    caisson_error err = {0};
    csn_session *s = NULL;
    csn_session_options o = {.n_threads = 1, .n_ctx = 64};
    all_on();
    csn_model *m = model_of(&(tiny_options){.n_experts = 5}, true);
    mask.experts = experts;
    experts[2] = 0;
    assert_int_equal(csn_session_new(m, &o, &s, &err), CAISSON_E_PARSE);
    assert_string_equal(err.tensor, "task");
    o.task = "other";
    assert_int_equal(csn_session_new(m, &o, &s, &err), CAISSON_E_MISSING);
    assert_string_equal(err.want, "task");
    csn_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neurons_that_are_off_equal_zeroed_gate_rows),
        cmocka_unit_test(copies_of_what_is_left_equal_zeroed_gate_rows),
        cmocka_unit_test(copies_take_what_is_told),
        cmocka_unit_test(heads_that_are_off_equal_zeroed_columns),
        cmocka_unit_test(heads_of_latent_and_linear_attention),
        cmocka_unit_test(a_layer_that_is_off_adds_nothing),
        cmocka_unit_test(experts_that_are_off_do_not_exist),
        cmocka_unit_test(rows_of_a_looped_model_are_per_visit),
        cmocka_unit_test(heads_and_experts_of_a_looped_model_are_off_on_every_pass),
        cmocka_unit_test(everything_on_is_no_mask),
        cmocka_unit_test(masks_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
