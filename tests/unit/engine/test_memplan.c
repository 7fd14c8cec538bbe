/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include "convert/convert.h"
#include "engine/memplan.h"
#include "fault/faulty_fs.h"
#include "model/forward.h"
#include "model/model.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

#define FAMILIES CSN_SOURCE_DIR "/tests/golden/families/"
#define WARP CSN_SOURCE_DIR "/tests/golden/warp/"

static csn_store *open_cmf(csn_fs *fs, const char *family) {
    caisson_error err;
    csn_cmf *cmf;
    csn_store *store;
    csn_stream *stream;
    char source[256];
    const char *path = temp_path("m.cmf");
    csn_convert_options o = {
        .quant = csn_dtype_by_name(CSN_STR("q8_row")), .n_threads = 1, .overwrite = true};
    (void)snprintf(source, sizeof(source), FAMILIES "%s", family);
    ASSERT_OK(csn_convert(csn_fs_os(), source, path, &o, &err), &err);
    ASSERT_OK(csn_cmf_open(fs, path, &cmf, &err), &err);
    ASSERT_OK(csn_store_new(cmf, &(csn_store_options){.no_mmap = true}, &store, &err), &err);
    ASSERT_OK(csn_stream_new(store, &(csn_stream_options){0}, &stream, &err), &err);
    csn_store_set_stream(store, stream);
    return store;
}

static csn_store *open_warp(csn_fs *fs, const char *name) {
    caisson_error err;
    csn_warp *warp;
    csn_store *store;
    csn_stream *stream;
    char path[256];
    (void)snprintf(path, sizeof(path), WARP "%s", name);
    ASSERT_OK(csn_warp_open(fs, path, NULL, &warp, &err), &err);
    ASSERT_OK(csn_store_new_warp(warp, &(csn_store_options){0}, &store, &err), &err);
    ASSERT_OK(csn_stream_new(store, &(csn_stream_options){0}, &stream, &err), &err);
    csn_store_set_stream(store, stream);
    return store;
}

static csn_memplan plan_of(csn_store *store, uint32_t n_ctx, csn_kv_type type) {
    csn_memplan p;
    caisson_error err;
    ASSERT_OK(
        csn_memplan_make(store, n_ctx, type, type, &(csn_memplan_skills){{0}, false}, &p, &err),
        &err);
    return p;
}

/* Not one byte of trunk, banks or tensors. */
static void nothing_is_read_for_a_plan(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        faulty_fs f;
        faulty_fs_init(&f, csn_fs_os());
        f.kinds = FAULTY_READ | FAULTY_MAP | FAULTY_OPEN;
        csn_store *store =
            i == 0 ? open_cmf(&f.base, "qwen3_moe") : open_warp(&f.base, "vq3r-base.waste");
        f.n = 0;
        csn_memplan p = plan_of(store, 64, CSN_KV_F16);
        assert_int_equal(f.n, 0);
        assert_true(p.floor_bytes > 0 && p.bytes_per_token > 0);
        csn_store_free(store);
    }
}

/* What is planned is what is allocated. */
static void kv_and_buffers_are_those_of_a_session(void **state) {
    (void)state;
    csn_store *store = open_warp(csn_fs_os(), "vq3r-base.waste");
    caisson_error err;
    csn_memplan p = plan_of(store, 100, CSN_KV_F32);
    csn_expert_options eo = {.cache_bytes = p.min_cache_bytes};
    ASSERT_OK(csn_stream_start(csn_store_stream(store), &eo, &err), &err);
    csn_model *m;
    ASSERT_OK(csn_model_new(store, &m, &err), &err);
    csn_kv kv;
    ASSERT_OK(csn_kv_new(csn_model_plan(m), 100, CSN_KV_F32, CSN_KV_F32, &kv, &err), &err);
    assert_int_equal(kv.nbytes, p.kv_bytes);
    csn_kv_free(&kv);
    uint64_t f32 = csn_forward_nbytes(csn_model_plan(m), 32, CSN_COMPUTE_F32, 64);
    uint64_t i8 = csn_forward_nbytes(csn_model_plan(m), 32, CSN_COMPUTE_INT8, 64);
    uint64_t logits = (uint64_t)CSN_LOGIT_ROWS * csn_model_plan(m)->vocab * sizeof(float);
    assert_int_equal(p.buffer_bytes[0], (f32 > i8 ? f32 : i8) + logits);
    csn_model_free(m);
}

static void the_floor_follows_context_and_kv_types(void **state) {
    (void)state;
    csn_store *store = open_cmf(csn_fs_os(), "qwen3_moe");
    csn_memplan a = plan_of(store, 256, CSN_KV_F16);
    csn_memplan b = plan_of(store, 512, CSN_KV_F16);
    csn_memplan c = plan_of(store, 256, CSN_KV_F32);
    assert_int_equal(b.kv_bytes, 2 * a.kv_bytes);
    assert_int_equal(c.kv_bytes, 2 * a.kv_bytes);
    assert_int_equal(c.floor_bytes - a.floor_bytes, a.kv_bytes);
    assert_int_equal(a.floor_bytes,
                     a.weights_bytes + a.kv_bytes + a.buffer_bytes[0] + a.min_cache_bytes);
    csn_store_free(store);
}

static void the_floor_is_enough_and_one_byte_less_is_not(void **state) {
    (void)state;
    csn_store *store = open_warp(csn_fs_os(), "vq3r-base.waste");
    csn_memplan p = plan_of(store, 1024, CSN_KV_F16);
    csn_memplan_share share;
    caisson_error err;
    ASSERT_OK(csn_memplan_split(&p, p.floor_bytes, &share, &err), &err);
    assert_int_equal(share.cache_bytes, p.min_cache_bytes);
    assert_int_equal(share.n_ubatch, CSN_MEMPLAN_MIN_UBATCH);
    ASSERT_STATUS(csn_memplan_split(&p, p.floor_bytes - 1, &share, &err), CAISSON_E_LIMIT);
    assert_int_equal(strtoull(err.want, NULL, 10), p.floor_bytes);
    assert_int_equal(strtoull(err.got, NULL, 10), p.floor_bytes - 1);
    csn_store_free(store);
}

/* The parts of a budget are never more than it, and a larger one never has a smaller cache. */
static void a_budget_is_split(void **state) {
    (void)state;
    csn_memplan p = {.weights_bytes = 1000,
                     .kv_bytes = 500,
                     .buffer_bytes = {100, 150, 250, 450},
                     .min_cache_bytes = 400,
                     .all_cache_bytes = 9000,
                     .mask_bytes = 300,
                     .floor_bytes = 2000,
                     .resident_bytes = 1000 + 500 + 450 + 9000 + 300};
    caisson_error err;
    for (uint64_t budget = p.floor_bytes; budget < 12000; budget += 7) {
        csn_memplan_share s;
        ASSERT_OK(csn_memplan_split(&p, budget, &s, &err), &err);
        uint32_t i = 0;
        while ((uint32_t)CSN_MEMPLAN_MIN_UBATCH << i < s.n_ubatch) {
            i++;
        }
        assert_true(1500 + p.buffer_bytes[i] + s.cache_bytes + s.mask_bytes <= budget);
        assert_true(s.mask_bytes <= p.mask_bytes);
        assert_true(s.mask_bytes == 0 || s.cache_bytes == p.all_cache_bytes);
        assert_true(budget < p.resident_bytes || s.mask_bytes == p.mask_bytes);
        assert_true(s.cache_bytes >= p.min_cache_bytes && s.cache_bytes <= p.all_cache_bytes);
        assert_true(budget < p.resident_bytes || s.cache_bytes == p.all_cache_bytes);
        assert_true(budget < p.resident_bytes || s.n_ubatch == 512);
    }
}

static void a_quarter_of_the_machine_is_left_to_others(void **state) {
    (void)state;
    csn_memplan p = {.floor_bytes = 1000, .resident_bytes = 5000};
    assert_int_equal(csn_memplan_choose(&p, 100000), 5000);
    assert_int_equal(csn_memplan_choose(&p, 4000), 3000);
    assert_int_equal(csn_memplan_choose(&p, 1000), 1000);
    assert_int_equal(csn_memplan_choose(&p, UINT64_MAX), 5000);
    caisson_error err = {0};
    ASSERT_OK(csn_memplan_fits(&p, 3000, 3000, &err), &err);
    ASSERT_OK(csn_memplan_fits(&p, UINT64_MAX, 5000, &err), &err);
    ASSERT_STATUS(csn_memplan_fits(&p, 3000, 2999, &err), CAISSON_E_LIMIT);
    assert_string_equal(err.want, "2999");
    assert_string_equal(err.got, "3000");
    ASSERT_STATUS(csn_memplan_fits(&p, UINT64_MAX, 4999, &err), CAISSON_E_LIMIT);
}

/* What skills add: their tensors, and of a blend a sum in f32 for each that any of them replaces.
 */
static void skills_are_counted(void **state) {
    static const char *const a[] = {"model.layers.1.mlp.up_proj.weight", "model.norm.weight", NULL};
    static const char *const b[] = {"model.layers.1.mlp.up_proj.weight", NULL};
    (void)state;
    caisson_error err;
    csn_cmf *cmf;
    csn_store *store;
    const char *path = temp_path("skills.cmf");
    tiny_write(&(tiny_options){.skill = a, .skill_b = b, .dtype = "q8_row"}, path);
    ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &cmf, &err), &err);
    ASSERT_OK(csn_store_new(cmf, &(csn_store_options){.no_mmap = true}, &store, &err), &err);
    const csn_tensor *up =
        csn_directory_find(&cmf->dir, CSN_STR("skill.a.model.layers.1.mlp.up_proj.weight"));
    const csn_tensor *norm = csn_directory_find(&cmf->dir, CSN_STR("skill.a.model.norm.weight"));
    assert_non_null(up);
    assert_non_null(norm);
    uint64_t up_bytes = csn_alloc_aligned_nbytes(up->nbytes);
    uint64_t norm_bytes = csn_alloc_aligned_nbytes(norm->nbytes);
    uint64_t sums = csn_alloc_aligned_nbytes(up->shape.dim[0] * up->shape.dim[1] * 4) +
                    csn_alloc_aligned_nbytes(norm->shape.dim[0] * 4);
    const struct {
        const char *id;
        bool blends;
        uint64_t want;
    } cases[] = {{"", false, 0},
                 {"a", false, up_bytes + norm_bytes},
                 {"b", false, up_bytes},
                 {"*", false, 2 * up_bytes + norm_bytes},
                 {"*", true, 2 * up_bytes + norm_bytes + sums}};
    uint64_t floor = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        csn_memplan p;
        csn_memplan_skills skills = {csn_str_from(cases[i].id), cases[i].blends};
        ASSERT_OK(csn_memplan_make(store, 64, CSN_KV_F16, CSN_KV_F16, &skills, &p, &err), &err);
        floor = i == 0 ? p.floor_bytes : floor;
        assert_int_equal(p.skill_bytes, cases[i].want);
        assert_int_equal(p.floor_bytes, floor + cases[i].want);
    }
    csn_memplan_skills unknown = {CSN_STR("c"), false};
    csn_memplan p;
    ASSERT_STATUS(csn_memplan_make(store, 64, CSN_KV_F16, CSN_KV_F16, &unknown, &p, &err),
                  CAISSON_E_MISSING);
    csn_store_free(store);
}

/* Copies for the mask that leaves the most; the floor does without. */
static void copies_for_a_mask_are_counted(void **state) {
    (void)state;
    enum { BYTES = 3 * TINY_FFN / 8 };
    caisson_error err;
    csn_store *store;
    csn_cmf *cmf;
    static uint8_t ffn[2][BYTES];
    static uint8_t heads[3] = {0x3f, 0x3f, 0x3f};
    static uint8_t gates[1] = {7};
    static csn_cmf_mask masks[2];
    memset(ffn[0], 0x55, BYTES);
    memset(ffn[1], 0x11, BYTES);
    for (int i = 0; i < 2; i++) {
        masks[i] = (csn_cmf_mask){.name = i == 0 ? CSN_STR("half") : CSN_STR("quarter"),
                                  .n_ffn_rows = 3,
                                  .ffn = ffn[i],
                                  .heads = heads,
                                  .gates = gates};
    }
    const char *path = temp_path("masks.cmf");
    tiny_write(&(tiny_options){.dtype = "q8_row"}, path);
    ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &cmf, &err), &err);
    ASSERT_OK(csn_store_new(cmf, &(csn_store_options){.no_mmap = true}, &store, &err), &err);
    csn_memplan none = plan_of(store, 64, CSN_KV_F16);
    cmf->masks = (csn_cmf_masks){.masks = masks, .n = 2};
    csn_memplan p = plan_of(store, 64, CSN_KV_F16);
    uint64_t rows = (uint64_t)3 * 2 * (TINY_FFN / 2) * (TINY_HIDDEN + 2); /* of gate and up */
    assert_int_equal(none.mask_bytes, 0);
    assert_in_range(p.mask_bytes, rows, rows + 7 * 64);
    assert_int_equal(p.floor_bytes, none.floor_bytes);
    assert_int_equal(p.resident_bytes, none.resident_bytes + p.mask_bytes);
    csn_store_free(store);
}

static void a_dense_model_needs_all_of_it(void **state) {
    (void)state;
    csn_store *store = open_cmf(csn_fs_os(), "llama");
    csn_memplan p = plan_of(store, 64, CSN_KV_F16);
    assert_int_equal(p.min_cache_bytes, 0);
    assert_int_equal(p.bytes_per_token, 0);
    assert_int_equal(p.floor_bytes, p.weights_bytes + p.kv_bytes + p.buffer_bytes[0]);
    csn_store_free(store);
}

/* An untied embedding of a type that is unpacked: with a budget it is read row by row and counted
 * apart, without one it is in memory, whole and as it is, for no kernel multiplies with it. */
static void an_embedding_has_no_scales(void **state) {
    (void)state;
    for (int has_budget = 0; has_budget < 2; has_budget++) {
        caisson_error err;
        csn_cmf *cmf;
        csn_store *store;
        csn_arena arena = {0};
        csn_plan plan;
        tiny_write(&(tiny_options){.untied = true, .dtype = "q4tp"}, temp_path("untied.cmf"));
        ASSERT_OK(csn_cmf_open(csn_fs_os(), temp_path("untied.cmf"), &cmf, &err), &err);
        const csn_store_options o = {.reads_rows = has_budget != 0};
        ASSERT_OK(csn_store_new(cmf, &o, &store, &err), &err);
        csn_memplan p = plan_of(store, 64, CSN_KV_F16);
        const csn_directory *dir = csn_store_dir(store);
        uint64_t weights = 0;
        uint64_t table = 0;
        for (uint32_t i = 0; i < dir->n; i++) {
            const csn_tensor *t = &dir->tensors[i];
            bool is_embed = csn_str_is(t->name, "model.embed_tokens.weight");
            bool is_q4tp = csn_str_is(csn_str_from(t->dtype->name), "q4tp");
            uint64_t scales = t->shape.dim[0] * ((t->shape.dim[1] / 32 + 1) / 2 * 2) * 4;
            assert_int_equal(csn_store_unpacked_bytes(store, t), is_q4tp && !is_embed ? scales : 0);
            weights += csn_alloc_aligned_nbytes(t->nbytes);
            weights += is_q4tp && !is_embed ? csn_alloc_aligned_nbytes(scales) : 0;
            table += is_embed ? csn_alloc_aligned_nbytes(t->nbytes) : 0;
        }
        assert_true(table > 0);
        assert_int_equal(p.weights_bytes, has_budget ? weights - table : weights);
        assert_int_equal(p.table_bytes, has_budget ? table : 0);
        ASSERT_OK(csn_plan_make(store, NULL, 0, &arena, &plan, &err), &err);
        assert_true((plan.embed.m.data == NULL) == (has_budget != 0));
        assert_null(plan.embed.m.unpacked);
        csn_arena_done(&arena);
        csn_store_free(store);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_read_for_a_plan),
        cmocka_unit_test(kv_and_buffers_are_those_of_a_session),
        cmocka_unit_test(the_floor_follows_context_and_kv_types),
        cmocka_unit_test(the_floor_is_enough_and_one_byte_less_is_not),
        cmocka_unit_test(a_budget_is_split),
        cmocka_unit_test(a_quarter_of_the_machine_is_left_to_others),
        cmocka_unit_test(skills_are_counted),
        cmocka_unit_test(copies_for_a_mask_are_counted),
        cmocka_unit_test(a_dense_model_needs_all_of_it),
        cmocka_unit_test(an_embedding_has_no_scales),
    };
    return cmocka_run_group_tests_name("engine memplan", tests, temp_dir_make, temp_dir_remove);
}
