/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix of the trunk that is read some rows at a time is the one that is read whole. */
#include "../test.h"

#include <string.h>

#include "base/alloc.h"
#include "convert/convert.h"
#include "convert/tensor.h"
#include "support/memory_fs.h"
#include "support/temp_dir.h"

#define GOLDEN CSN_SOURCE_DIR "/tests/golden/"

static caisson_status tell(void *ctx, uint64_t n_bytes, caisson_error *err) {
    (void)err;
    *(uint64_t *)ctx += n_bytes;
    return CAISSON_OK;
}

static void compare(const csn_source *s, const csn_convert_item *item, uint64_t unit) {
    caisson_error err;
    csn_buf piece = CSN_BUF_INIT(1 << 24);
    uint64_t told = 0;
    uint64_t told_of_pieces = 0;
    const csn_tensor_watch watch = {tell, &told};
    const csn_tensor_watch watch_pieces = {tell, &told_of_pieces};
    float *want;
    float *got;
    uint64_t n;
    uint64_t rows = item->shape.dim[0];
    uint64_t cols = item->shape.dim[1];
    ASSERT_OK(csn_tensor_alloc_f32(item, &want, &n, &err), &err);
    ASSERT_OK(csn_tensor_alloc_f32(item, &got, &n, &err), &err);
    ASSERT_OK(csn_tensor_read_f32(s, item, NULL, &piece, &watch, want, &err), &err);
    for (uint64_t r = 0, step = 0; r < rows; r += step) {
        csn_convert_item part = *item;
        step = (r == 0 ? 1 : 2) * unit; /* of different sizes */
        step = rows - r < step ? rows - r : step;
        part.shape.dim[0] = step;
        part.row0 += r;
        part.cut_row = r;
        ASSERT_OK(csn_tensor_read_f32(s, &part, NULL, &piece, &watch_pieces, got + r * cols, &err),
                  &err);
    }
    assert_memory_equal(got, want, n * sizeof(float));
    assert_true(told_of_pieces >= told); /* what rows share is read with each */
    csn_free_aligned(want);
    csn_free_aligned(got);
    csn_buf_free(&piece);
}

/* All matrices of a source that have rows; returns their number. */
static unsigned compare_all(const char *path, csn_str needed) {
    caisson_error err;
    csn_source *s;
    csn_convert_plan plan;
    csn_arena arena = {0};
    unsigned n = 0;
    bool has_needed = false;
    ASSERT_OK(csn_source_open(csn_fs_os(), path, NULL, &s, &err), &err);
    ASSERT_OK(csn_convert_plan_make(s, NULL, &arena, &plan, &err), &err);
    for (uint32_t i = 0; i < plan.n; i++) {
        uint64_t unit = csn_tensor_row_unit(s, &plan.items[i]);
        if (unit > 0) {
            compare(s, &plan.items[i], unit);
            has_needed = has_needed || csn_str_ends(plan.items[i].name, needed);
            n++;
        }
    }
    assert_true(has_needed);
    csn_source_close(s);
    csn_arena_done(&arena);
    return n;
}

/* A .cmf of the tiny Kimi-Linear whose dt_bias has another shape in the checkpoint. */
static csn_cmf *convert_with_shape(memory_fs *fs, const char *shape, const char *target) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    const csn_convert_options o = {.quant = csn_dtype_by_name(CSN_STR("f32")), .n_threads = 1};
    const csn_str old = CSN_STR("\"shape\":[48]");
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(1 << 24);
    csn_cmf *c;
    for (int i = 0; i < 3; i++) {
        char path[512];
        char to[64];
        csn_buf b;
        (void)snprintf(path, sizeof(path), GOLDEN "families/kimi_linear_even/%s", files[i]);
        (void)snprintf(to, sizeof(to), "d/%s", files[i]);
        ASSERT_OK(csn_fs_read_all(csn_fs_os(), path, 1 << 24, &b, &err), &err);
        memory_fs_put(fs, to, b.ptr, b.len);
        csn_buf_free(&b);
    }
    const memory_fs_node *node = memory_fs_find(fs, "d/model.safetensors");
    csn_str all = csn_str_make((char *)node->bytes, node->len);
    size_t at = csn_str_find(all, CSN_STR("layers.0.self_attn.dt_bias"), 0);
    at = csn_str_find(all, old, at);
    assert_true(at != SIZE_MAX);
    uint64_t n_head; /* this machine is little-endian, as the file */
    memcpy(&n_head, all.ptr, 8);
    n_head += strlen(shape) - old.len;
    ASSERT_OK(csn_buf_append(&out, &n_head, 8, &err), &err);
    ASSERT_OK(csn_buf_append(&out, all.ptr + 8, at - 8, &err), &err);
    ASSERT_OK(csn_buf_str(&out, csn_str_from(shape), &err), &err);
    ASSERT_OK(csn_buf_append(&out, all.ptr + at + old.len, all.len - at - old.len, &err), &err);
    memory_fs_put(fs, "d/model.safetensors", out.ptr, out.len);
    csn_buf_free(&out);
    ASSERT_OK(csn_convert(&fs->base, "d", target, &o, &err), &err);
    ASSERT_OK(csn_cmf_open(&fs->base, target, &c, &err), &err);
    return c;
}

/* Of small tensors only the number of elements counts, in whatever shape they come. */
static void of_any_shape_is_read_as_one_row(void **state) {
    (void)state;
    static const char *const shapes[] = {"\"shape\":[2,24]", "\"shape\":[48,1]",
                                         "\"shape\":[2,3,8]", "\"shape\":[1,1,48,1]"};
    memory_fs fs;
    memory_fs_init(&fs);
    csn_cmf *want = convert_with_shape(&fs, "\"shape\":[48]", "want.cmf");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        char target[16];
        (void)snprintf(target, sizeof(target), "%zu.cmf", i);
        csn_cmf *got = convert_with_shape(&fs, shapes[i], target);
        assert_int_equal(got->dir.n, want->dir.n);
        for (uint32_t k = 0; k < want->dir.n; k++) {
            assert_true(csn_shape_eq(&got->dir.tensors[k].shape, &want->dir.tensors[k].shape));
            assert_true(got->dir.tensors[k].hash == want->dir.tensors[k].hash);
        }
        csn_cmf_close(got);
    }
    csn_cmf_close(want);
    memory_fs_done(&fs);
}

static void of_a_gguf_whole_heads_of_kv_b_proj(void **state) {
    (void)state;
    (void)compare_all(GOLDEN "convert/gguf/deepseek_v3.gguf",
                      CSN_STR("self_attn.kv_b_proj.weight"));
    (void)compare_all(GOLDEN "convert/gguf/kimi_linear_even.gguf",
                      CSN_STR("self_attn.kv_b_proj.weight"));
}

static void of_a_cmf_in_every_dtype_that_has_rows(void **state) {
    static const char *const dtypes[] = {"f32",      "f16",      "bf16", "q8_row", "q8_2f",
                                         "q4_block", "q4_tiled", "q4tp", "q1"};
    (void)state;
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        const char *path = temp_path("m.cmf");
        caisson_error err;
        csn_convert_options o = {
            .quant = csn_dtype_by_name(csn_str_from(dtypes[i])), .n_threads = 1, .overwrite = true};
        ASSERT_OK(csn_convert(csn_fs_os(), GOLDEN "families/llama", path, &o, &err), &err);
        assert_true(compare_all(path, CSN_STR("embed_tokens.weight")) > 3);
    }
}

static void of_a_warp_trunk(void **state) {
    (void)state;
    assert_true(compare_all(GOLDEN "warp/vq3r-q3g.waste", CSN_STR("embed_tokens.weight")) > 3);
    assert_true(compare_all(GOLDEN "warp/vq3r-base.waste", CSN_STR("lm_head.weight")) > 3);
}

/* It is the hash of the whole payload that is stored. */
static void damage_behind_the_first_rows_is_found_with_them(void **state) {
    (void)state;
    const char *path = temp_path("m.cmf");
    caisson_error err;
    csn_source *s;
    csn_convert_plan plan;
    csn_arena arena = {0};
    csn_convert_options o = {
        .quant = csn_dtype_by_name(CSN_STR("q8_row")), .n_threads = 1, .overwrite = true};
    ASSERT_OK(csn_convert(csn_fs_os(), GOLDEN "families/llama", path, &o, &err), &err);
    ASSERT_OK(csn_source_open(csn_fs_os(), path, NULL, &s, &err), &err);
    ASSERT_OK(csn_convert_plan_make(s, NULL, &arena, &plan, &err), &err);
    csn_convert_item part = plan.items[0];
    assert_int_equal(csn_tensor_row_unit(s, &part), 1);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)(part.source->offset + part.source->nbytes - 1), SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
    csn_buf piece = CSN_BUF_INIT(1 << 24);
    uint64_t told = 0;
    const csn_tensor_watch watch = {tell, &told};
    float out[1024];
    part.shape.dim[0] = 1;
    assert_true(part.shape.dim[1] <= 1024);
    ASSERT_STATUS(csn_tensor_read_f32(s, &part, NULL, &piece, &watch, out, &err), CAISSON_E_HASH);
    csn_buf_free(&piece);
    csn_source_close(s);
    csn_arena_done(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_any_shape_is_read_as_one_row),
        cmocka_unit_test(of_a_gguf_whole_heads_of_kv_b_proj),
        cmocka_unit_test(of_a_cmf_in_every_dtype_that_has_rows),
        cmocka_unit_test(of_a_warp_trunk),
        cmocka_unit_test(damage_behind_the_first_rows_is_found_with_them),
    };
    return cmocka_run_group_tests_name("tensor", tests, temp_dir_make, temp_dir_remove);
}
