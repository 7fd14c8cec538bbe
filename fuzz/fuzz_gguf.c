/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a GGUF file: open, look at every value and tensor, then read it as a model to
 * convert (metadata through the recipes, the tokenizer rebuilt). */
#include "convert/source.h"
#include "../tests/support/memory_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memory_fs fs;
    caisson_error err;
    csn_gguf *g;
    memory_fs_init(&fs);
    memory_fs_put(&fs, "m-00001-of-00001.gguf", data, size);
    if (csn_gguf_open(&fs.base, "m-00001-of-00001.gguf", &g, &err) == CAISSON_OK) {
        for (uint32_t i = 0; i < g->n_pairs; i++) {
            const csn_gguf_pair *p = csn_gguf_find(g, g->pairs[i].key);
            int64_t v;
            double d;
            csn_str *list;
            (void)csn_gguf_i64(p, &v);
            (void)csn_gguf_f64(p, &d);
            (void)csn_gguf_item_f64(p, p->n - 1, &d);
            (void)csn_gguf_strings(p, &g->arena, &list, &err);
        }
        for (uint32_t i = 0; i < g->dir.n; i++) {
            const csn_tensor *t = &g->dir.tensors[i];
            if (t->offset + t->nbytes > size) {
                __builtin_trap();
            }
        }
        csn_gguf_close(g);
    }
    csn_source *s;
    if (csn_source_open(&fs.base, "m-00001-of-00001.gguf", NULL, &s, &err) == CAISSON_OK) {
        csn_source_close(s);
    }
    memory_fs_done(&fs);
    return 0;
}
