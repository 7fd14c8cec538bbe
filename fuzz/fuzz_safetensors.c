/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a safetensors file; with a '{' in front, as an index over one good shard. */
#include "format/safetensors/safetensors.h"
#include "../tests/support/memory_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char shard[] = "\x36\0\0\0\0\0\0\0"
                                "{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}"
                                "wxyz";
    memory_fs fs;
    caisson_error err;
    csn_safetensors *s;
    bool is_index = size > 0 && data[0] == '{';
    memory_fs_init(&fs);
    memory_fs_put(&fs, is_index ? "d/model.safetensors.index.json" : "d/model.safetensors", data,
                  size);
    memory_fs_put(&fs, "d/x.safetensors", shard, sizeof(shard) - 1);
    if (csn_safetensors_open_dir(&fs.base, "d", &s, &err) == CAISSON_OK) {
        for (uint32_t i = 0; i < s->dir.n; i++) {
            const csn_tensor *t = &s->dir.tensors[i];
            uint64_t file_bytes;
            if (csn_directory_find(&s->dir, t->name) != t ||
                csn_file_size(s->files[t->i_file], &file_bytes, &err) != CAISSON_OK ||
                t->offset + t->nbytes > file_bytes) {
                __builtin_trap();
            }
        }
        csn_safetensors_close(s);
    }
    memory_fs_done(&fs);
    return 0;
}
