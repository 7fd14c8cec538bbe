/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a CMF file: open, look at everything, verify; then write it again and compare what
 * our reader sees in both; then let it grow. Traps are broken promises, not bad input. */
#include "../tests/support/memory_fs.h"
#include "base/alloc.h"
#include "base/hash64.h"
#include "format/cmf/cmf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static void ignore(void *ctx, const caisson_error *fault) {
    (void)ctx;
    (void)fault;
}

static void look(csn_cmf *c, size_t size) {
    caisson_error err;
    uint64_t n_faults;
    require(csn_cmf_verify(c, NULL, NULL, ignore, NULL, &n_faults, &err) == CAISSON_OK);
    for (uint32_t i = 0; i < c->arch.n_layers && i < 64; i++) {
        (void)csn_arch_is_local(&c->arch, i);
        require(csn_arch_rotary_dim(&c->arch, i) >= 2);
    }
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        require(csn_directory_find(&c->dir, t->name) == t);
        require(t->offset <= size && t->nbytes <= size - t->offset);
        uint64_t n;
        require(csn_shape_count(&t->shape, &n));
        if (t->dtype->decode == NULL || n == 0 || n > 4096) {
            continue;
        }
        uint8_t *bytes = malloc(t->nbytes + 1); /* its own block: an overrun is seen */
        float *values = malloc(n * sizeof(float));
        require(csn_file_read_at(c->file, t->offset, bytes, t->nbytes, &err) == CAISSON_OK);
        csn_matrix m = csn_matrix_make(t->dtype, &t->shape, bytes, t->nbytes);
        require(m.rows * m.cols == n);
        t->dtype->decode(&m, 0, n, values);
        t->dtype->decode(&m, n - 1, 1, values);
        free(values);
        free(bytes);
    }
}

/* Writes c again under another name; false when it holds what we never write. */
static bool write_again(csn_cmf *c, csn_fs *fs) {
    caisson_error err;
    csn_cmf_writer *w = NULL;
    uint32_t n_done;
    csn_buf json = CSN_BUF_INIT(1 << 28);
    csn_jw jw = csn_jw_begin(&json, &err);
    csn_cmf_header_write(c, CSN_STR(""), &jw);
    require(csn_jw_end(&jw) == CAISSON_OK);
    csn_cmf_plan_tensor *list = calloc(c->dir.n + 1, sizeof(*list));
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        list[i] = (csn_cmf_plan_tensor){t->name, t->dtype, t->shape, t->nbytes};
    }
    csn_cmf_plan plan = {.tensors = list, .n = c->dir.n, .head_bytes = json.len};
    bool ok = csn_cmf_writer_new(fs, "again.cmf", &plan, &w, &n_done, &err) == CAISSON_OK;
    for (uint32_t i = 0; ok && i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        uint8_t *bytes = malloc(t->nbytes + 1);
        require(csn_file_read_at(c->file, t->offset, bytes, t->nbytes, &err) == CAISSON_OK);
        require(csn_cmf_writer_tensor(w, bytes, t->nbytes, &err) == CAISSON_OK);
        free(bytes);
    }
    if (ok) {
        require(csn_cmf_writer_finish(w, csn_buf_view(&json), CSN_STR(""), &err) == CAISSON_OK);
    } else {
        require(err.code == CAISSON_E_ARG); /* a reserved dtype */
    }
    csn_cmf_writer_close(w, true);
    csn_buf_free(&json);
    free(list);
    return ok;
}

static csn_buf arch_text(const csn_cmf *c) {
    caisson_error err;
    csn_buf b = CSN_BUF_INIT(1 << 28);
    csn_jw w = csn_jw_begin(&b, &err);
    csn_arch_write(&c->arch, &w);
    require(csn_jw_end(&w) == CAISSON_OK);
    return b;
}

/* Numbers that are not finite were there before and stay. */
static void require_number(void *ctx, const caisson_error *fault) {
    (void)ctx;
    require(fault->code == CAISSON_E_PARSE);
}

static void compare(csn_cmf *a, csn_cmf *b) {
    caisson_error err;
    uint64_t n_faults;
    require(csn_cmf_verify(b, NULL, NULL, require_number, NULL, &n_faults, &err) == CAISSON_OK);
    require(a->dir.n == b->dir.n);
    for (uint32_t i = 0; i < a->dir.n; i++) {
        const csn_tensor *x = &a->dir.tensors[i];
        const csn_tensor *y = csn_directory_find(&b->dir, x->name);
        require(y != NULL && y->dtype == x->dtype && y->nbytes == x->nbytes);
        require(memcmp(&x->shape, &y->shape, sizeof(x->shape)) == 0);
        uint8_t *bytes = malloc(x->nbytes + 1);
        require(csn_file_read_at(a->file, x->offset, bytes, x->nbytes, &err) == CAISSON_OK);
        require(csn_hash64(bytes, x->nbytes) == y->hash);
        free(bytes);
    }
    csn_buf s = arch_text(a);
    csn_buf t = arch_text(b);
    require(csn_str_eq(csn_buf_view(&s), csn_buf_view(&t)));
    size_t n_added = 2; /* digests of tensors and of sections */
    require(csn_jval_len(b->header) - n_added ==
            csn_jval_len(a->header) - (csn_jval_get(a->header, "section_hashes") != NULL) -
                (csn_jval_get(a->header, CSN_CMF_TENSOR_DIGESTS) != NULL) -
                (csn_jval_get(a->header, CSN_CMF_SECTION_DIGESTS) != NULL));
    csn_buf_free(&s);
    csn_buf_free(&t);
}

/* The way verify reads a file that may be damaged anywhere. */
static void verify_damaged(csn_fs *fs) {
    caisson_error err;
    csn_file *f = NULL;
    csn_cmf *c = NULL;
    uint64_t n_faults;
    require(csn_fs_open(fs, "m.cmf", CSN_OPEN_READ, &f, &err) == CAISSON_OK);
    if (csn_cmf_open_damaged(f, ignore, NULL, &c, &err) == CAISSON_OK) {
        require(csn_cmf_verify(c, NULL, NULL, ignore, NULL, &n_faults, &err) == CAISSON_OK);
        require(csn_cmf_note(c, ignore, NULL, &err) == CAISSON_OK);
        csn_cmf_close(c);
    }
}

static uint64_t count_faults(csn_cmf *c) {
    caisson_error err;
    uint64_t n;
    require(csn_cmf_verify(c, NULL, NULL, ignore, NULL, &n, &err) == CAISSON_OK);
    return n;
}

/* Every file that opens can grow, opens again, and has no fault that it did not have. */
static void grow(csn_cmf *c, csn_fs *fs) {
    caisson_error err;
    csn_cmf_append *a = NULL;
    csn_cmf *grown = NULL;
    const csn_cmf_plan_tensor t = {.name = CSN_STR("fuzz.grown"),
                                   .dtype = csn_dtype_by_name(CSN_STR("f32")),
                                   .shape = {.n_dims = 1, .dim = {3}}};
    bool is_new = csn_directory_find(&c->dir, t.name) == NULL;
    uint64_t n_faults = count_faults(c);
    require(csn_cmf_append_begin(fs, "m.cmf", &a, &err) == CAISSON_OK);
    require(csn_cmf_append_tensor(a, &t, "abcdefghijkl", 12, &err) == CAISSON_OK);
    require(csn_cmf_append_commit(a, &err) == CAISSON_OK);
    csn_cmf_append_close(a);
    require(csn_cmf_open(fs, "m.cmf", &grown, &err) == CAISSON_OK);
    require(grown->dir.n == c->dir.n + is_new);
    require(count_faults(grown) <= n_faults);
    csn_cmf_close(grown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memory_fs fs;
    caisson_error err;
    csn_cmf *c = NULL;
    csn_cmf *again = NULL;
    memory_fs_init(&fs);
    memory_fs_put(&fs, "m.cmf", data, size);
    if (csn_cmf_open(&fs.base, "m.cmf", &c, &err) == CAISSON_OK) {
        look(c, size);
        if (write_again(c, &fs.base)) {
            require(csn_cmf_open(&fs.base, "again.cmf", &again, &err) == CAISSON_OK);
            compare(c, again);
            csn_cmf_close(again);
        }
        grow(c, &fs.base);
        csn_cmf_close(c);
    }
    verify_damaged(&fs.base);
    require(fs.n_open == 0);
    memory_fs_done(&fs);
    return 0;
}
