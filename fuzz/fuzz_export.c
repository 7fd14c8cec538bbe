/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as the header of a model that is exported. A failure leaves nothing; what comes out has
 * its weights, and a config.json, if any, that convert understands. */
#include "support/cmf_edit.h"
#include "convert/export.h"
#include "convert/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static const cmf_record tensors[] = {
    {.name = "model.embed_tokens.weight", .dtype = 2, .n_dims = 2, .dim = {8, 8}, .nbytes = 128},
    {.name = "model.layers.0.self_attn.q_proj.weight",
     .dtype = 2,
     .n_dims = 2,
     .dim = {8, 8},
     .off = 128,
     .nbytes = 128},
    {.name = "model.layers.0.self_attn.k_proj.weight",
     .dtype = 2,
     .n_dims = 2,
     .dim = {4, 8},
     .off = 256,
     .nbytes = 64},
    {.name = "model.layers.0.self_attn.v_proj.weight",
     .dtype = 2,
     .n_dims = 2,
     .dim = {4, 8},
     .off = 320,
     .nbytes = 64},
};

static void check_result(memory_fs *fs, caisson_status status) {
    caisson_error err;
    csn_source *s;
    if (status != CAISSON_OK) {
        require(!fs->base.ops->is_dir(&fs->base, "hf"));
        return;
    }
    require(memory_fs_find(fs, "hf/model.safetensors") != NULL);
    require(memory_fs_find(fs, "hf/caisson.export.part") == NULL);
    if (memory_fs_find(fs, "hf/config.json") != NULL &&
        csn_source_open(&fs->base, "hf", NULL, &s, &err) == CAISSON_OK) {
        csn_source_close(s); /* else ids of tokens or the template are not what convert takes */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memory_fs fs;
    caisson_error err;
    csn_cmf *c;
    csn_store *store;
    const csn_export_options o = {.dtype = csn_dtype_by_name(CSN_STR("f32")), .n_threads = 1};
    memory_fs_init(&fs);
    cmf_bytes b = cmf_build(csn_str_make((const char *)data, size), tensors, 4, 384);
    if (cmf_open_bytes(&fs, b, &c, &err) == CAISSON_OK) {
        if (csn_store_new(c, &(csn_store_options){.verify = true}, &store, &err) == CAISSON_OK) {
            check_result(&fs, csn_export(store, &fs.base, "hf", &o, &err));
            csn_store_free(store);
        } else {
            csn_cmf_close(c);
        }
    }
    require(fs.n_open == 0);
    free(b.p);
    memory_fs_done(&fs);
    return 0;
}
