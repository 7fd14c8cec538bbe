/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the files of a .waste directory: for each of `names` a little-endian u32 length and
 * so many bytes; a file without bytes is not there. */
#include "base/le.h"
#include "format/warp/warp.h"
#include "text/tokenizer/tokenizer.h"
#include "../tests/support/memory_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"d/manifest.json",  "d/trunk.bin",           "d/codebooks.bin",
                                    "d/experts-L0.bin", "d/tokenizer.model",     "d/specials.json",
                                    "d/chat.json",      "d/caisson.digests.json"};

static void put_files(memory_fs *fs, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && size >= 4; i++) {
        uint32_t n = csn_get32(data);
        data += 4;
        size -= 4;
        n = n < size ? n : (uint32_t)size;
        if (n > 0) {
            memory_fs_put(fs, names[i], data, n);
        }
        data += n;
        size -= n;
    }
}

static void walk_records(csn_warp *w, const csn_warp_bank *bank) {
    caisson_error err;
    csn_warp_expert e;
    if (bank->stride > 1 << 20) {
        return;
    }
    uint8_t *record = malloc((size_t)bank->stride);
    float *row = malloc(sizeof(float) *
                        (w->expert_hidden > w->expert_width ? w->expert_hidden : w->expert_width));
    for (uint32_t i = 0; i < bank->n_experts && i < 64; i++) {
        if (csn_file_read_at(bank->file, i * bank->stride, record, (size_t)bank->stride, &err) !=
                CAISSON_OK ||
            csn_warp_record(w, bank, i, record, i % 2 == 0, &e, &err) != CAISSON_OK) {
            continue;
        }
        for (unsigned k = 0; k < CSN_WARP_N_KINDS; k++) {
            csn_vq_decode_row(&e.m[k], 0, row);
            csn_vq_decode_row(&e.m[k], e.m[k].rows - 1, row);
        }
    }
    free(row);
    free(record);
}

static void ignore(void *ctx, const caisson_error *fault) {
    (void)ctx;
    (void)fault;
}

static void walk(csn_warp *w) {
    caisson_error err;
    csn_buf json = {0};
    csn_tokenizer *t;
    for (uint32_t i = 0; i < w->dir.n; i++) {
        uint8_t *bytes = malloc((size_t)w->dir.tensors[i].nbytes);
        if (csn_directory_find(&w->dir, w->dir.tensors[i].name) != &w->dir.tensors[i] ||
            csn_warp_read_tensor(w, i, bytes, &err) != CAISSON_OK) {
            __builtin_trap(); /* what open let pass is there */
        }
        free(bytes);
    }
    for (uint32_t i = 0; i < w->n_banks; i++) {
        walk_records(w, &w->banks[i]);
    }
    if (csn_warp_read_tokenizer(w, &json, &err) == CAISSON_OK && json.len > 0 &&
        csn_tokenizer_load(csn_buf_view(&json), &t, &err) == CAISSON_OK) {
        csn_tokenizer_free(t);
    }
    csn_buf_free(&json);
    (void)csn_warp_verify(w, NULL, NULL, ignore, ignore, NULL, &err);
    if (csn_warp_use_digests(w, &err) == CAISSON_OK && w->digests != NULL) {
        (void)csn_warp_verify(w, NULL, NULL, ignore, ignore, NULL, &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memory_fs fs;
    caisson_error err;
    csn_warp *w;
    memory_fs_init(&fs);
    put_files(&fs, data, size);
    if (csn_warp_is(&fs.base, "d") && csn_warp_open(&fs.base, "d", NULL, &w, &err) == CAISSON_OK) {
        walk(w);
        csn_warp_close(w);
    }
    memory_fs_done(&fs);
    return 0;
}
