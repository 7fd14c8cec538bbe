/* SPDX-License-Identifier: Apache-2.0 */
/* Growing a file (facts 10.6): what changes, what must not, and who may read or write meanwhile. */
#include "unit/test.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "format/cmf/cmf_internal.h"
#include "store/store.h"
#include "support/cmf_golden.h"
#include "support/cmf_grow.h"
#include "support/temp_dir.h"

static void count_fault(void *ctx, const caisson_error *fault) {
    (void)ctx;
    char line[1024];
    print_message("%s\n", caisson_error_format(fault, line, sizeof(line)));
}

static csn_cmf *open_sound(const char *path) {
    csn_cmf *c = NULL;
    caisson_error err;
    uint64_t n = 0;
    ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, count_fault, NULL, &n, &err), &err);
    assert_int_equal(n, 0);
    return c;
}

static const char *make(const char *name) {
    caisson_error err;
    const char *path = temp_path(name);
    (void)unlink(path);
    ASSERT_OK(cmf_make(csn_fs_os(), path, -1, NULL, &err), &err);
    return path;
}

static const char *copy_golden(const char *name) {
    char from[512];
    const char *path = temp_path(name);
    snprintf(from, sizeof(from), CMF_GOLDEN "files/%s", name);
    temp_copy(from, path);
    return path;
}

/* The bytes behind the envelope are those of `old`, as far as that went. */
static void assert_grown(const char *path, const csn_buf *old) {
    csn_buf now = golden_read(path);
    assert_true(now.len > old->len);
    assert_memory_equal(now.ptr + CSN_CMF_ENVELOPE_BYTES, old->ptr + CSN_CMF_ENVELOPE_BYTES,
                        old->len - CSN_CMF_ENVELOPE_BYTES);
    csn_buf_free(&now);
}

static void earlier_bytes_never_change(void **state) {
    (void)state;
    const char *path = make("a.cmf");
    for (int k = 0; k < CMF_GROW_N_KINDS; k++) { /* one after the other, on the same file */
        caisson_error err;
        csn_buf old = golden_read(path);
        ASSERT_OK(cmf_grow(csn_fs_os(), path, (cmf_grow_kind)k, &err), &err);
        assert_grown(path, &old);
        csn_buf_free(&old);
        csn_cmf_close(open_sound(path));
    }
    csn_cmf *c = open_sound(path);
    assert_int_equal(c->dir.n, CMF_MAKE_N + 1); /* two more, one less */
    assert_non_null(csn_directory_find(&c->dir, CSN_STR("large")));
    assert_null(csn_directory_find(&c->dir, CSN_STR("b.weight")));
    const csn_tensor *t = csn_directory_find(&c->dir, CSN_STR("a.weight"));
    assert_string_equal(t->dtype->name, "f32");
    assert_int_equal(t - c->dir.tensors, 1); /* in the place of the old one */
    assert_int_equal(c->masks.n, 1);
    assert_non_null(csn_jval_get(c->header, "new_key"));
    assert_non_null(csn_jval_get(c->header, "future_key")); /* unknown keys are kept */
    assert_non_null(c->tensor_digests);
    assert_non_null(c->section_digest[CSN_CMF_MASKS]);
    assert_int_equal(c->envelope.required_features, 1 | 2 | 4);
    csn_buf vocab;
    caisson_error err;
    ASSERT_OK(csn_cmf_read_section(c, CSN_CMF_VOCAB, &vocab, &err), &err);
    ASSERT_STR(csn_buf_view(&vocab), CMF_MAKE_VOCAB);
    csn_buf_free(&vocab);
    csn_cmf_close(c);
}

static void what_is_added_reads_back(void **state) {
    (void)state;
    caisson_error err;
    const char *path = make("a.cmf");
    ASSERT_OK(cmf_grow(csn_fs_os(), path, CMF_GROW_TENSORS, &err), &err);
    csn_cmf *c = open_sound(path);
    const csn_tensor *t = csn_directory_find(&c->dir, CSN_STR("large"));
    csn_cmf_plan_tensor plan = {.dtype = t->dtype, .shape = t->shape};
    uint64_t n;
    uint8_t *want = cmf_make_payload(&plan, 100 + 'l', &n);
    uint8_t *got = malloc(n);
    assert_int_equal(t->nbytes, n);
    assert_int_equal(t->offset % 4096, 0);
    ASSERT_OK(csn_file_read_at(c->file, t->offset, got, n, &err), &err);
    assert_memory_equal(got, want, n);
    assert_int_equal(c->n_skills, 1); /* skill.x.* */
    free(want);
    free(got);
    csn_cmf_close(c);
}

static void what_did_not_change_stays_in_place(void **state) {
    (void)state;
    caisson_error err;
    const char *path = make("a.cmf");
    csn_cmf *old = open_sound(path);
    ASSERT_OK(cmf_grow(csn_fs_os(), path, CMF_GROW_MASKS, &err), &err);
    csn_cmf *c = open_sound(path);
    assert_int_equal(c->envelope.off[CSN_CMF_DIR], old->envelope.off[CSN_CMF_DIR]);
    assert_int_equal(c->envelope.off[CSN_CMF_VOCAB], old->envelope.off[CSN_CMF_VOCAB]);
    assert_int_equal(c->envelope.dir_hash, old->envelope.dir_hash);
    csn_cmf_close(c);
    csn_cmf_append *a;
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &a, &err), &err);
    ASSERT_OK(csn_cmf_append_masks(a, (csn_str){0}, &err), &err);
    ASSERT_OK(csn_cmf_append_commit(a, &err), &err);
    csn_cmf_append_close(a);
    c = open_sound(path);
    assert_int_equal(c->envelope.len[CSN_CMF_MASKS], 0);
    assert_int_equal(c->masks.n, 0);
    assert_int_equal(c->envelope.required_features, 1 | 4);
    csn_cmf_close(c);
    csn_cmf_close(old);
}

static void an_open_reader_keeps_the_old_model(void **state) {
    (void)state;
    caisson_error err;
    const char *path = make("a.cmf");
    csn_store *store;
    csn_matrix m, again;
    uint8_t before[130 * 130];
    ASSERT_OK(csn_store_new(open_sound(path), &(csn_store_options){0}, &store, &err), &err);
    ASSERT_OK(csn_store_matrix(store, CSN_STR("a.weight"), &m, &err), &err);
    memcpy(before, m.data, sizeof(before));
    for (int k = 0; k < CMF_GROW_N_KINDS; k++) {
        ASSERT_OK(cmf_grow(csn_fs_os(), path, (cmf_grow_kind)k, &err), &err);
    }
    ASSERT_OK(csn_store_matrix(store, CSN_STR("a.weight"), &again, &err), &err);
    assert_ptr_equal(m.data, again.data);
    assert_memory_equal(before, again.data, sizeof(before));
    ASSERT_OK(csn_store_matrix(store, CSN_STR("b.weight"), &m, &err), &err); /* removed since */
    csn_store_free(store);
}

static void features_follow_the_content(void **state) {
    (void)state;
    caisson_error err;
    csn_cmf_append *a;
    const char *path = make("a.cmf");
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &a, &err), &err);
    ASSERT_OK(csn_cmf_append_remove(a, CSN_STR("c.weight"), &err), &err); /* the only q8_2f */
    ASSERT_OK(cmf_grow_header(a, "skills",
                              "[{\"id\":\"s\",\"base_dir_hash\":\"0123456789abcdef\"}]", &err),
              &err);
    ASSERT_OK(csn_cmf_append_commit(a, &err), &err);
    csn_cmf_append_close(a);
    csn_cmf *c = open_sound(path);
    assert_int_equal(c->envelope.required_features, 1 | 64);
    csn_cmf_close(c);
    path = copy_golden("tiny-loop.cmf"); /* masks, two loops */
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &a, &err), &err);
    uint32_t was = csn_cmf_append_cmf(a)->envelope.required_features;
    ASSERT_OK(cmf_grow_header(a, "note", "1", &err), &err);
    ASSERT_OK(csn_cmf_append_commit(a, &err), &err);
    csn_cmf_append_close(a);
    c = open_sound(path);
    assert_int_equal(was & 32, 32);
    assert_int_equal(c->envelope.required_features, was);
    csn_cmf_close(c);
}

/* Files of others: without digests, grown before, with sections in any order. */
static void any_good_file_grows(void **state) {
    (void)state;
    static const char *const names[] = {
        "tiny-f32.cmf",          "tiny-grown.cmf", "tiny-skills.cmf", "tiny-masks.cmf",
        "odd-section-order.cmf", "tiny-index.cmf", "tiny-moe.cmf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        caisson_error err;
        const char *path = copy_golden(names[i]);
        csn_buf old = golden_read(path);
        csn_cmf *before = open_sound(path);
        ASSERT_OK(cmf_grow(csn_fs_os(), path, CMF_GROW_TENSORS, &err), &err);
        assert_grown(path, &old);
        csn_buf_free(&old);
        csn_cmf *c = open_sound(path);
        assert_int_equal(c->dir.n, before->dir.n + 2);
        assert_null(c->tensor_digests); /* nobody hashed the old ones */
        assert_non_null(c->section_digest[CSN_CMF_DIR]);
        for (int s = CSN_CMF_MASKS; s <= CSN_CMF_INDEX; s++) {
            assert_int_equal(c->envelope.off[s], before->envelope.off[s]);
            assert_true(csn_str_eq(c->section_hash[s], before->section_hash[s]));
        }
        csn_cmf_close(c);
        csn_cmf_close(before);
    }
}

static void a_file_without_payloads_gets_a_blob(void **state) {
    (void)state;
    caisson_error err;
    const char *path = copy_golden("odd-no-tensors.cmf");
    ASSERT_OK(cmf_grow(csn_fs_os(), path, CMF_GROW_TENSORS, &err), &err);
    csn_cmf *c = open_sound(path);
    assert_int_equal(c->dir.n, 2);
    assert_int_equal(c->envelope.off[CSN_CMF_DATA] % 4096, 0);
    assert_non_null(c->tensor_digests);
    csn_cmf_close(c);
}

/* What was damaged before is damaged behind: an unchanged section's hash is not made anew. */
static void damage_does_not_become_sound(void **state) {
    (void)state;
    caisson_error err;
    const char *path = make("a.cmf");
    csn_cmf *c = open_sound(path);
    uint64_t at = c->envelope.off[CSN_CMF_VOCAB];
    csn_cmf_close(c);
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc('!', f), '!');
    assert_int_equal(fclose(f), 0);
    ASSERT_OK(cmf_grow(csn_fs_os(), path, CMF_GROW_TENSORS, &err), &err);
    uint64_t n = 0;
    ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, count_fault, NULL, &n, &err), &err);
    assert_int_equal(n, 1);
    csn_cmf_close(c);
}

static void assert_refused(csn_cmf_append *a, caisson_status want) {
    caisson_error err;
    ASSERT_STATUS(csn_cmf_append_commit(a, &err), want);
    csn_cmf_append_close(a);
}

static void what_our_reader_would_refuse_is_never_committed(void **state) {
    (void)state;
    caisson_error err;
    csn_cmf_append *a;
    const char *path = make("a.cmf");
    csn_buf old = golden_read(path);
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &a, &err), &err);
    ASSERT_OK(csn_cmf_append_header(a, CSN_STR("{\"version\":2}"), &err), &err);
    assert_refused(a, CAISSON_E_PARSE);
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &a, &err), &err);
    ASSERT_OK(csn_cmf_append_header(a, CSN_STR("[]"), &err), &err);
    assert_refused(a, CAISSON_E_ARG);
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &a, &err), &err);
    ASSERT_OK(csn_cmf_append_masks(a, CSN_STR("no masks"), &err), &err);
    assert_refused(a, CAISSON_E_PARSE);
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &a, &err), &err);
    ASSERT_OK(cmf_grow_tensor(a, "twice", "f32", 1, 1, &err), &err);
    ASSERT_OK(cmf_grow_tensor(a, "twice", "f32", 1, 1, &err), &err);
    assert_refused(a, CAISSON_E_PARSE);
    csn_buf now = golden_read(path);
    assert_int_equal(now.len, old.len); /* nothing stays behind */
    assert_memory_equal(now.ptr, old.ptr, old.len);
    csn_buf_free(&now);
    csn_buf_free(&old);
}

static void wrong_tensors_are_told(void **state) {
    (void)state;
    caisson_error err;
    csn_cmf_append *a;
    const char *path = make("a.cmf");
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &a, &err), &err);
    csn_cmf_plan_tensor t = {.name = CSN_STR("x"),
                             .dtype = csn_dtype_by_name(CSN_STR("f32")),
                             .shape = {.n_dims = 1, .dim = {2}}};
    ASSERT_STATUS(csn_cmf_append_tensor(a, &t, "1234567", 7, &err), CAISSON_E_ARG);
    assert_string_equal(err.tensor, "x");
    assert_string_equal(err.want, "8");
    ASSERT_STATUS(csn_cmf_append_remove(a, CSN_STR("nobody"), &err), CAISSON_E_MISSING);
    assert_string_equal(err.tensor, "nobody");
    ASSERT_OK(csn_cmf_append_remove(a, CSN_STR("b.weight"), &err), &err);
    ASSERT_STATUS(csn_cmf_append_remove(a, CSN_STR("b.weight"), &err), CAISSON_E_MISSING);
    csn_cmf_append_close(a);
    ASSERT_STATUS(csn_cmf_append_begin(csn_fs_os(), temp_path("absent.cmf"), &a, &err),
                  CAISSON_E_IO);
}

static void there_is_one_writer_at_a_time(void **state) {
    (void)state;
    caisson_error err;
    csn_cmf_append *a, *b;
    const char *path = make("a.cmf");
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &a, &err), &err);
    ASSERT_STATUS(csn_cmf_append_begin(csn_fs_os(), path, &b, &err), CAISSON_E_BUSY);
    assert_string_equal(err.file, path);
    csn_cmf_close(open_sound(path)); /* readers do not mind */
    csn_cmf_append_close(a);
    ASSERT_OK(csn_cmf_append_begin(csn_fs_os(), path, &b, &err), &err);
    csn_cmf_append_close(b);
}

/* One process grows the file again and again, at least GROWS times and until the other, which opens
 * it, has done so OPENS times: always the old or the new one. */
static void readers_never_see_half_an_envelope(void **state) {
    (void)state;
    enum { GROWS = 50, OPENS = 100 };
    caisson_error err;
    const char *path = make("a.cmf");
    int fds[2];
    assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char c;
        close(fds[1]);
        for (int i = 0; i < GROWS || read(fds[0], &c, 1) != 0; i++) { /* 0: the reader closed it */
            if (cmf_grow(csn_fs_os(), path, i % 2 ? CMF_GROW_MASKS : CMF_GROW_HEADER, &err) !=
                CAISSON_OK) {
                _exit(1);
            }
        }
        _exit(0);
    }
    close(fds[0]);
    for (int n = 0; n < OPENS; n++) {
        csn_cmf *c = NULL;
        ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
        csn_cmf_close(c);
    }
    close(fds[1]);
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    csn_cmf_close(open_sound(path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(earlier_bytes_never_change),
        cmocka_unit_test(what_is_added_reads_back),
        cmocka_unit_test(what_did_not_change_stays_in_place),
        cmocka_unit_test(an_open_reader_keeps_the_old_model),
        cmocka_unit_test(features_follow_the_content),
        cmocka_unit_test(any_good_file_grows),
        cmocka_unit_test(a_file_without_payloads_gets_a_blob),
        cmocka_unit_test(damage_does_not_become_sound),
        cmocka_unit_test(what_our_reader_would_refuse_is_never_committed),
        cmocka_unit_test(wrong_tensors_are_told),
        cmocka_unit_test(there_is_one_writer_at_a_time),
        cmocka_unit_test(readers_never_see_half_an_envelope),
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
