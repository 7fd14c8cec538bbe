/* SPDX-License-Identifier: Apache-2.0 */
/* Several files as the shards of one model: how many (1 to 4), which is named, then each one's
 * length (u32) and bytes. Opened, verified, merged, compared, grown. */
#include "../tests/support/memory_fs.h"
#include "format/cmf/cmf.h"
#include "quant/dtype.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4 };

static void require(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static void ignore(void *ctx, const caisson_error *fault) {
    (void)ctx;
    (void)fault;
}

static void name_of(uint32_t no, uint32_t count, char path[32]) {
    (void)snprintf(path, 32, "m-%05u-of-%05u.cmf", no, count);
}

/* Puts the files; returns which one is to be opened, 0 = the input is too short. */
static uint32_t put_files(memory_fs *fs, const uint8_t *data, size_t size, uint32_t *ret_count) {
    if (size < 2) {
        return 0;
    }
    uint32_t count = 1 + data[0] % MOST;
    uint32_t named = 1 + data[1] % count;
    size_t at = 2;
    for (uint32_t no = 1; no <= count && size - at >= 4; no++) {
        char path[32];
        uint32_t n;
        memcpy(&n, data + at, 4);
        at += 4;
        n = n < size - at ? n : (uint32_t)(size - at);
        name_of(no, count, path);
        memory_fs_put(fs, path, data + at, n);
        at += n;
    }
    *ret_count = count;
    return named;
}

static void look(csn_cmf *model) {
    uint64_t n_faults = 0;
    caisson_error err;
    require(model->n_files >= 1 && model->n_files <= MOST);
    for (uint32_t i = 0; i < model->dir.n; i++) {
        const csn_tensor *t = &model->dir.tensors[i];
        require(t->i_file < model->n_files && csn_directory_find(&model->dir, t->name) == t);
        csn_file *f = csn_cmf_file_of(model, t->i_file)->file;
        char byte;
        if (t->nbytes > 0) {
            require(csn_file_read_at(f, t->offset + t->nbytes - 1, &byte, 1, &err) == CAISSON_OK);
        }
    }
    (void)csn_cmf_verify(model, NULL, NULL, ignore, NULL, &n_faults, &err);
}

/* What merge makes of the shards is the same model. */
static void merge(csn_cmf *model, csn_fs *fs) {
    caisson_error err;
    csn_cmf *one = NULL;
    uint32_t n_files;
    const csn_cmf_copy_options o = {0};
    if (csn_cmf_copy(model, fs, "one.cmf", &o, &n_files, &err) != CAISSON_OK) {
        return; /* damaged, or holds what we never write */
    }
    require(csn_cmf_open_model(fs, "one.cmf", NULL, NULL, &one, &err) == CAISSON_OK);
    require(one->dir.n == model->dir.n && !one->has_shard_block);
    for (uint32_t i = 0; i < one->dir.n; i++) {
        const csn_tensor *x = &one->dir.tensors[i];
        const csn_tensor *y = csn_directory_find(&model->dir, x->name);
        require(y != NULL && x->hash == y->hash && x->nbytes == y->nbytes);
    }
    csn_cmf_close(one);
}

static void grow(csn_fs *fs, const char *path, uint32_t n_tensors) {
    caisson_error err;
    csn_cmf_append *a;
    csn_cmf *model;
    const csn_cmf_plan_tensor t = {.name = CSN_STR("fuzz.grown"),
                                   .dtype = csn_dtype_by_name(CSN_STR("f32")),
                                   .shape = {.n_dims = 1, .dim = {1}}};
    require(csn_cmf_append_begin_model(fs, path, &a, &model, &err) == CAISSON_OK);
    bool is_new = csn_directory_find(&model->dir, t.name) == NULL;
    csn_cmf_close(model);
    require(csn_cmf_append_tensor(a, &t, "abcd", 4, &err) == CAISSON_OK);
    require(csn_cmf_append_commit(a, &err) == CAISSON_OK);
    csn_cmf_append_close(a);
    if (is_new) { /* else the name may now be in two shards */
        require(csn_cmf_open_model(fs, path, NULL, NULL, &model, &err) == CAISSON_OK);
        require(model->dir.n == n_tensors + 1);
        csn_cmf_close(model);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memory_fs fs;
    caisson_error err;
    csn_cmf *model = NULL;
    uint32_t count = 0;
    char path[32];
    memory_fs_init(&fs);
    uint32_t named = put_files(&fs, data, size, &count);
    if (named > 0) {
        name_of(named, count, path);
    }
    if (named > 0 && csn_cmf_open_model(&fs.base, path, NULL, NULL, &model, &err) == CAISSON_OK) {
        uint32_t n_tensors = model->dir.n;
        look(model);
        merge(model, &fs.base);
        csn_cmf_close(model);
        grow(&fs.base, path, n_tensors);
    }
    require(fs.n_open == 0);
    memory_fs_done(&fs);
    return 0;
}
