/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files made with the format's reference: what must be read from good ones, and how bad ones
 * must be refused. */
#include "unit/test.h"

#include "base/hash64.h"
#include "support/cmf_golden.h"

struct faults {
    uint64_t n;
    caisson_error first;
};

static void count_fault(void *ctx, const caisson_error *fault) {
    struct faults *f = ctx;
    if (f->n++ == 0) {
        f->first = *fault;
    }
}

static uint64_t decoded_hash(csn_cmf *c, const csn_tensor *t) {
    caisson_error err;
    uint64_t n = 0;
    assert_true(csn_shape_count(&t->shape, &n));
    uint8_t *raw = malloc(t->nbytes + 1);
    float *values = malloc(n * 4 + 1);
    assert_non_null(raw);
    assert_non_null(values);
    ASSERT_OK(csn_file_read_at(c->file, t->offset, raw, t->nbytes, &err), &err);
    csn_matrix m = csn_matrix_make(t->dtype, &t->shape, raw, t->nbytes);
    t->dtype->decode(&m, 0, n, values);
    uint64_t h = csn_hash64(values, n * 4);
    free(raw);
    free(values);
    return h;
}

static void check_tensors(csn_cmf *c, const csn_jval *tensors) {
    assert_int_equal(c->dir.n, csn_jval_len(tensors));
    for (csn_jiter it = csn_jval_iter(tensors); csn_jiter_next(&it);) {
        const csn_tensor *t = &c->dir.tensors[it.index];
        assert_true(csn_str_eq(t->name, golden_str(it.value, "name")));
        assert_ptr_equal(csn_directory_find(&c->dir, t->name), t);
        assert_true(csn_str_is(golden_str(it.value, "dtype"), t->dtype->name));
        assert_int_equal(t->nbytes, golden_u64(it.value, "nbytes"));
        assert_true(t->hash == golden_hex(it.value, "hash"));
        if (t->nbytes > 0) {
            assert_int_equal(t->offset - c->envelope.off[CSN_CMF_DATA],
                             golden_u64(it.value, "off"));
        }
        const csn_jval *shape = csn_jval_get(it.value, "shape");
        assert_int_equal(t->shape.n_dims, csn_jval_len(shape));
        for (csn_jiter d = csn_jval_iter(shape); csn_jiter_next(&d);) {
            uint64_t dim = 0;
            csn_jval_u64(d.value, &dim);
            assert_int_equal(t->shape.dim[d.index], dim);
        }
        if (t->dtype->decode != NULL && golden_str(it.value, "decoded_f32_hash64").len > 0) {
            assert_true(decoded_hash(c, t) == golden_hex(it.value, "decoded_f32_hash64"));
        }
    }
}

/* What a note is about: the first words of its sentence. */
static void count_note(void *ctx, const caisson_error *note) {
    char *list = ctx;
    assert_int_equal(note->code, CAISSON_OK);
    assert_true(strlen(list) + strlen(note->what) + 2 < 1024);
    strcat(strcat(list, note->what), "\n");
}

static void notes_of(const char *cmf, char list[1024]) {
    char path[512];
    csn_cmf *c = NULL;
    caisson_error err;
    list[0] = '\0';
    snprintf(path, sizeof(path), CMF_GOLDEN "files/%s", cmf);
    ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
    ASSERT_OK(csn_cmf_note(c, count_note, list, &err), &err);
    csn_cmf_close(c);
}

/* The purposes of the odd files are written beside them by who made them (shared/data/cmf). */
static void what_is_odd_is_noted(void **state) {
    (void)state;
    char list[1024];
    notes_of("odd-no-hashes-flags-trailing.cmf", list);
    assert_non_null(strstr(list, "reserved flags are not 0\n"));
    assert_non_null(strstr(list, "bytes belong to nothing"));
    notes_of("odd-feature-bits-clear.cmf", list);
    assert_non_null(strstr(list, "feature bit 0"));
    assert_non_null(strstr(list, "feature bit 1"));
    notes_of("tiny-grown.cmf", list);
    assert_non_null(strstr(list, "belong to nothing"));
    const char *const clean[] = {"tiny-f32.cmf", "tiny-masks.cmf", "tiny-all-dtypes.cmf",
                                 "tiny-loop.cmf", "tiny-moe.cmf"};
    for (size_t i = 0; i < sizeof(clean) / sizeof(clean[0]); i++) {
        notes_of(clean[i], list);
        assert_string_equal(list, "");
    }
}

/* The reference's sections, read and written again, are the same bytes. */
static void masks_are_written_as_they_were_read(void **state) {
    (void)state;
    const char *const files[] = {"tiny-masks", "tiny-loop", "tiny-loop-legacy-mask", "tiny-moe",
                                 "tiny-index"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[512];
        csn_cmf *c = NULL;
        caisson_error err;
        csn_buf out = CSN_BUF_INIT(1 << 20);
        snprintf(path, sizeof(path), CMF_GOLDEN "files/%s.cmf", files[i]);
        ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
        assert_true(c->masks.n > 0);
        ASSERT_OK(csn_cmf_masks_write(&c->masks, &c->arch, &out, &err), &err);
        assert_int_equal(out.len, c->masks_section.len);
        assert_memory_equal(out.ptr, c->masks_section.ptr, out.len);
        csn_buf_free(&out);
        csn_cmf_close(c);
    }
}

/* One good file: opens, is listed as the JSON says, and verify finds nothing. */
static void check_good(const char *cmf, const csn_jval *want) {
    char path[512];
    csn_cmf *c = NULL;
    caisson_error err;
    struct faults faults = {0};
    uint64_t n = 0;
    snprintf(path, sizeof(path), CMF_GOLDEN "files/%s", cmf);
    ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
    if (csn_jval_kind(csn_jval_get(want, "tensors")) == CSN_JSON_ARRAY) {
        check_tensors(c, csn_jval_get(want, "tensors"));
        assert_int_equal(c->envelope.file_bytes, golden_u64(want, "file_bytes"));
        assert_int_equal(c->envelope.required_features, golden_u64(want, "required_features"));
    }
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, count_fault, &faults, &n, &err), &err);
    assert_int_equal(n, 0);
    csn_cmf_close(c);
}

static void good_file(void **state) {
    const char *name = *state;
    char path[512];
    char cmf[128];
    snprintf(path, sizeof(path), CMF_GOLDEN "files/%s.json", name);
    snprintf(cmf, sizeof(cmf), "%s.cmf", name);
    csn_json *doc = golden_json(path);
    check_good(cmf, csn_json_root(doc));
    csn_json_free(doc);
}

static void good_shards(void **state) {
    (void)state;
    for (int i = 1; i <= 3; i++) {
        char cmf[128];
        snprintf(cmf, sizeof(cmf), "tiny-shard-0000%d-of-00003.cmf", i);
        check_good(cmf, NULL);
    }
}

static void refuse(const char *path, const char *code, const char *section, const char *tensor) {
    csn_cmf *c = NULL;
    caisson_error err;
    caisson_status status = csn_cmf_open(csn_fs_os(), path, &c, &err);
    if (status == CAISSON_OK) {
        fail_msg("%s opened", path);
    }
    if (strcmp(caisson_status_name(status), code) != 0) {
        fail_msg("%s: %s, want %s", path, caisson_status_name(status), code);
    }
    assert_string_equal(caisson_status_name(err.code), code);
    assert_string_equal(err.file, path);
    if (section != NULL) {
        assert_string_equal(err.section, section);
    }
    if (tensor != NULL) {
        assert_string_equal(err.tensor, tensor);
    }
}

static void overlapping_payloads_are_refused(void **state) {
    (void)state;
    refuse(CMF_GOLDEN "files/odd-directory.cmf", "Bounds", "data", "model.norm.weight");
}

static void mask_tail_bits_are_refused(void **state) {
    (void)state;
    refuse(CMF_GOLDEN "files/odd-mask-tail-bits.cmf", "Parse", "masks", "a");
}

static const char *section_of(csn_str where) {
    return csn_str_is(where, "dir")                    ? "directory"
           : csn_str_starts(where, CSN_STR("tensor ")) ? NULL
           : csn_str_is(where, "envelope")             ? "envelope"
           : csn_str_is(where, "header")               ? "header"
           : csn_str_is(where, "data")                 ? "data"
           : csn_str_is(where, "masks")                ? "masks"
           : csn_str_is(where, "vocab")                ? "vocab"
                                                       : "index";
}

/* A file whose fault only hashes see. Header and directory hashes are checked at open already. */
static void check_verify(const char *path, csn_str where) {
    csn_cmf *c = NULL;
    caisson_error err;
    struct faults faults = {0};
    uint64_t n = 0;
    if (csn_str_is(where, "header") || csn_str_is(where, "dir")) {
        refuse(path, "Hash", section_of(where), NULL);
        return;
    }
    ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, count_fault, &faults, &n, &err), &err);
    assert_int_equal(n, 1);
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.first.code, CAISSON_E_HASH);
    assert_string_equal(faults.first.file, path);
    assert_true(faults.first.has_offset);
    if (csn_str_starts(where, CSN_STR("tensor "))) {
        assert_string_equal(faults.first.section, "data");
        assert_true(csn_str_is(csn_str_make(where.ptr + 7, where.len - 7), faults.first.tensor));
    } else {
        assert_string_equal(faults.first.section, section_of(where));
    }
    csn_cmf_close(c);
}

static void bad_files(void **state) {
    (void)state;
    csn_json *doc = golden_json(CMF_GOLDEN "bad/bad.json");
    size_t n = 0;
    for (csn_jiter it = csn_jval_iter(csn_json_root(doc)); csn_jiter_next(&it); n++) {
        char path[512];
        char code[64];
        csn_str file = golden_str(it.value, "file");
        csn_str class_name = golden_str(it.value, "error_class");
        csn_str where = golden_str(it.value, "where");
        snprintf(path, sizeof(path), CMF_GOLDEN "bad/%.*s", CSN_STR_ARGS(file));
        if (csn_str_is(golden_str(it.value, "fails_at"), "verify")) {
            check_verify(path, where);
            continue;
        }
        /* the seed calls an unknown dtype Parse, and so do we */
        snprintf(code, sizeof(code), "%.*s", CSN_STR_ARGS(class_name));
        refuse(path, strcmp(code, "UnknownDtype") == 0 ? "Parse" : code, section_of(where), NULL);
    }
    assert_int_equal(n, 49);
    csn_json_free(doc);
}

static void hostile_payloads(void **state) {
    (void)state;
    csn_json *doc = golden_json(CMF_GOLDEN "bad/hostile/hostile.json");
    for (csn_jiter it = csn_jval_iter(csn_json_root(doc)); csn_jiter_next(&it);) {
        char path[512];
        csn_str file = golden_str(it.value, "file");
        snprintf(path, sizeof(path), CMF_GOLDEN "bad/hostile/%.*s", CSN_STR_ARGS(file));
        if (!csn_str_starts(file, CSN_STR("q8-row"))) {
            bool is_q1 = csn_str_starts(file, CSN_STR("q1"));
            refuse(path, "Bounds", is_q1 ? "data" : "directory", "w");
            continue;
        }
        csn_cmf *c = NULL;
        caisson_error err;
        ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
        csn_matrix m = csn_matrix_make(c->dir.tensors[0].dtype, &c->dir.tensors[0].shape, NULL,
                                       c->dir.tensors[0].nbytes);
        assert_int_equal(m.rows, 2);
        (void)decoded_hash(c, &c->dir.tensors[0]);
        csn_cmf_close(c);
    }
    csn_json_free(doc);
}

#define GOOD(name)                                                                                 \
    {                                                                                              \
        "opens, lists and verifies " name " (CMF 1, 2, 3, 4)", good_file, NULL, NULL, (char[]) {   \
            name                                                                                   \
        }                                                                                          \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        GOOD("tiny-f32"),
        GOOD("tiny-masks"),
        GOOD("tiny-index"),
        GOOD("tiny-moe"),
        GOOD("tiny-skills"),
        GOOD("tiny-grown"),
        GOOD("tiny-skill-file"),
        GOOD("tiny-skill-file-wrong-base"),
        GOOD("tiny-loop"),
        GOOD("tiny-loop-legacy-mask"),
        GOOD("tiny-all-dtypes"),
        GOOD("odd-feature-bits-clear"),
        GOOD("odd-json-style"),
        GOOD("odd-minimal"),
        GOOD("odd-no-hashes-flags-trailing"),
        GOOD("odd-no-tensors"),
        GOOD("odd-section-order"),
        {"writes masks as the reference does (CMF 5)", masks_are_written_as_they_were_read, NULL,
         NULL, NULL},
        {"notes flags, feature bits and stray bytes", what_is_odd_is_noted, NULL, NULL, NULL},
        {"opens each shard (CMF 10)", good_shards, NULL, NULL, NULL},
        {"refuses partly overlapping payloads (CMF 3)", overlapping_payloads_are_refused, NULL,
         NULL, NULL},
        {"refuses tail bits of masks (CMF 5)", mask_tail_bits_are_refused, NULL, NULL, NULL},
        {"refuses every bad file with its class (CMF 1.2)", bad_files, NULL, NULL, NULL},
        {"keeps hostile payloads inside their bytes (CMF 3.2)", hostile_payloads, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
