/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as config.json of a Hugging Face directory: through the recipe of its family. */
#include "convert/source.h"
#include "../tests/support/memory_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char weights[] = "\x02\0\0\0\0\0\0\0{}";
    memory_fs fs;
    caisson_error err;
    csn_source *s;
    memory_fs_init(&fs);
    memory_fs_put(&fs, "d/config.json", data, size);
    memory_fs_put(&fs, "d/model.safetensors", weights, sizeof(weights) - 1);
    if (csn_source_open(&fs.base, "d", NULL, &s, &err) == CAISSON_OK) {
        csn_buf text = CSN_BUF_INIT(1 << 24);
        csn_jw w = csn_jw_begin(&text, &err);
        csn_arch_write(&s->arch, &w);
        if (csn_jw_end(&w) != CAISSON_OK) {
            __builtin_trap();
        }
        csn_buf_free(&text);
        csn_source_close(s);
    }
    memory_fs_done(&fs);
    return 0;
}
