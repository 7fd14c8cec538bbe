/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a masks section (CMF 5), behind five that give the model's dimensions: what parses
 * is written again, and the second text is read as the first. */
#include "base/alloc.h"
#include "format/cmf/cmf_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static void compare(const csn_cmf_mask *a, const csn_cmf_mask *b, const csn_arch *arch) {
    uint64_t ffn = a->n_ffn_rows * csn_bit_row_bytes(arch->intermediate_size);
    require(a->n_ffn_rows == b->n_ffn_rows && csn_str_eq(a->name, b->name));
    require((a->experts == NULL) == (b->experts == NULL));
    require((a->quality == NULL) == (b->quality == NULL));
    require(memcmp(a->ffn, b->ffn, ffn) == 0);
    require(memcmp(a->heads, b->heads, arch->n_layers * csn_bit_row_bytes(arch->n_heads)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { HEAD = 5 };
    if (size < HEAD) {
        return 0;
    }
    csn_arch a = {.n_layers = 1 + data[0] % 8u,
                  .num_loops = 1 + data[1] % 3u,
                  .n_heads = 1 + data[2] % 20u,
                  .intermediate_size = 1 + data[3]};
    a.moe.present = data[4] % 2 != 0;
    a.moe.n_experts = 1 + data[4] / 2u;
    caisson_error err;
    csn_arena arena = {0};
    csn_json *doc = NULL;
    csn_json *doc_again = NULL;
    csn_cmf_masks masks;
    csn_cmf_masks again;
    csn_buf out = CSN_BUF_INIT(1 << 24);
    if (csn_cmf_parse_masks(data + HEAD, size - HEAD, &a, &arena, &doc, &masks, &err) ==
        CAISSON_OK) {
        require(csn_cmf_masks_write(&masks, &a, &out, &err) == CAISSON_OK);
        if (masks.n > 0) {
            require(csn_cmf_parse_masks((const uint8_t *)out.ptr, out.len, &a, &arena, &doc_again,
                                        &again, &err) == CAISSON_OK);
            require(again.n == masks.n && csn_str_eq(again.default_task, masks.default_task));
        }
        for (uint32_t i = 0; i < masks.n; i++) {
            compare(&masks.masks[i], &again.masks[i], &a);
        }
    }
    csn_buf_free(&out);
    csn_json_free(doc);
    csn_json_free(doc_again);
    csn_arena_done(&arena);
    return 0;
}
