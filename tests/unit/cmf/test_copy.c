/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a model anew: compact, merge, split (facts 10.6, 11). */
#include "unit/test.h"

#include "fault/faulty_fs.h"
#include "format/cmf/shards.h"
#include "support/cmf_golden.h"
#include "support/cmf_grow.h"
#include "support/memory_fs.h"

static void fail_fault(void *ctx, const caisson_error *fault) {
    (void)ctx;
    char line[1024];
    fail_msg("%s", caisson_error_format(fault, line, sizeof(line)));
}

static void assert_sound(csn_cmf *c) {
    caisson_error err;
    uint64_t n = 0;
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, fail_fault, NULL, &n, &err), &err);
}

static caisson_status copy(csn_fs *fs, const char *from, const char *to, uint64_t max_bytes,
                           uint32_t *ret_n, caisson_error *err) {
    csn_cmf *c;
    uint32_t n = 0;
    csn_cmf_copy_options o = {.shard_max_bytes = max_bytes, .overwrite = true};
    CSN_TRY(csn_cmf_open_model(fs, from, NULL, NULL, &c, err));
    caisson_status status = csn_cmf_copy(c, fs, to, &o, &n, err);
    csn_cmf_close(c);
    if (ret_n != NULL) {
        *ret_n = n;
    }
    return status;
}

static csn_str section(csn_cmf *c, int which, csn_buf *b) {
    caisson_error err;
    ASSERT_OK(csn_cmf_read_section(c, which, b, &err), &err);
    return csn_buf_view(b);
}

static void assert_same_model(csn_fs *fs, const char *a, const char *b) {
    csn_cmf *x = NULL, *y = NULL;
    caisson_error err;
    ASSERT_OK(csn_cmf_open_model(fs, a, NULL, NULL, &x, &err), &err);
    ASSERT_OK(csn_cmf_open_model(fs, b, NULL, NULL, &y, &err), &err);
    assert_int_equal(x->dir.n, y->dir.n);
    for (uint32_t i = 0; i < x->dir.n; i++) { /* in the order of the source */
        const csn_tensor *s = &x->dir.tensors[i], *t = &y->dir.tensors[i];
        assert_true(csn_str_eq(s->name, t->name));
        assert_ptr_equal(s->dtype, t->dtype);
        assert_memory_equal(&s->shape, &t->shape, sizeof(s->shape));
        assert_int_equal(s->hash, t->hash);
    }
    for (int i = CSN_CMF_MASKS; i <= CSN_CMF_VOCAB; i++) {
        csn_buf p = {0}, q = {0};
        assert_true(csn_str_eq(section(x, i, &p), section(y, i, &q)));
        csn_buf_free(&p);
        csn_buf_free(&q);
    }
    assert_int_equal(x->n_skills, y->n_skills);
    assert_int_equal(x->chat.present, y->chat.present);
    for (uint32_t i = 0; i < y->n_files; i++) {
        assert_true(csn_cmf_file_of(y, i)->tensor_digests != NULL);
    }
    csn_cmf_close(x);
    csn_cmf_close(y);
}

static void put_golden(memory_fs *m, const char *name) {
    char path[512];
    snprintf(path, sizeof(path), CMF_GOLDEN "files/%s", name);
    csn_buf b = golden_read(path);
    memory_fs_put(m, name, b.ptr, b.len);
    csn_buf_free(&b);
}

static void a_copy_is_the_same_model(void **state) {
    (void)state;
    static const char *const names[] = {"tiny-f32.cmf",        "tiny-grown.cmf",
                                        "tiny-skills.cmf",     "tiny-masks.cmf",
                                        "tiny-moe.cmf",        "odd-section-order.cmf",
                                        "odd-no-tensors.cmf",  "tiny-loop.cmf",
                                        "tiny-skill-file.cmf", "odd-feature-bits-clear.cmf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        memory_fs m;
        caisson_error err;
        csn_cmf *c = NULL;
        memory_fs_init(&m);
        put_golden(&m, names[i]);
        ASSERT_OK(copy(&m.base, names[i], "out.cmf", 0, NULL, &err), &err);
        assert_same_model(&m.base, names[i], "out.cmf");
        ASSERT_OK(csn_cmf_open(&m.base, "out.cmf", &c, &err), &err);
        assert_sound(c);
        csn_cmf_close(c);
        assert_int_equal(m.n_open, 0);
        memory_fs_done(&m);
    }
}

static void dead_bytes_are_reclaimed(void **state) {
    (void)state;
    memory_fs m;
    caisson_error err;
    memory_fs_init(&m);
    ASSERT_OK(cmf_make(&m.base, "a.cmf", -1, NULL, &err), &err);
    for (int k = 0; k < CMF_GROW_N_KINDS; k++) {
        ASSERT_OK(cmf_grow(&m.base, "a.cmf", (cmf_grow_kind)k, &err), &err);
    }
    ASSERT_OK(copy(&m.base, "a.cmf", "b.cmf", 0, NULL, &err), &err);
    ASSERT_OK(copy(&m.base, "b.cmf", "c.cmf", 0, NULL, &err), &err);
    assert_same_model(&m.base, "a.cmf", "b.cmf");
    const memory_fs_node *a = memory_fs_find(&m, "a.cmf"), *b = memory_fs_find(&m, "b.cmf");
    const memory_fs_node *c = memory_fs_find(&m, "c.cmf");
    assert_true(b->len + 16900 + 1000 < a->len); /* a.weight as it was, masks, headers */
    assert_int_equal(b->len, c->len);            /* nothing more to gain */
    assert_memory_equal(b->bytes, c->bytes, b->len);
    memory_fs_done(&m);
}

static void split_and_merged_it_is_the_same_file(void **state) {
    (void)state;
    static const char *const names[] = {"tiny-f32.cmf", "tiny-skills.cmf", "tiny-masks.cmf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        enum { MAX = 30000 };
        memory_fs m;
        caisson_error err;
        uint32_t n = 0;
        memory_fs_init(&m);
        put_golden(&m, names[i]);
        ASSERT_OK(copy(&m.base, names[i], "whole.cmf", 0, NULL, &err), &err);
        ASSERT_OK(copy(&m.base, names[i], "s.cmf", MAX, &n, &err), &err);
        assert_true(n > 2);
        for (uint32_t k = 0; k < n; k++) {
            csn_buf path = CSN_BUF_INIT(100);
            csn_cmf *c = NULL;
            ASSERT_OK(csn_cmf_set_file_name("s.cmf", k, n, &path, &err), &err);
            ASSERT_OK(csn_cmf_open(&m.base, path.ptr, &c, &err), &err); /* alone */
            assert_sound(c);
            assert_int_equal(c->shard_no, k + 1);
            assert_int_equal(c->n_shards, n);
            assert_true(c->envelope.file_bytes <= MAX || c->dir.n == 1);
            if (k > 0) { /* facts 11 */
                assert_false(c->chat.present);
                assert_int_equal(csn_jval_len(csn_jval_get(c->header, "skills")), 0);
                assert_int_equal(c->envelope.len[CSN_CMF_MASKS], 0);
                assert_int_equal(c->envelope.len[CSN_CMF_VOCAB], 0);
            }
            csn_cmf_close(c);
            assert_same_model(&m.base, names[i], path.ptr);
            csn_buf_free(&path);
        }
        char last[64];
        snprintf(last, sizeof(last), "s-%05u-of-%05u.cmf", n, n);
        ASSERT_OK(copy(&m.base, last, "merged.cmf", 0, NULL, &err), &err);
        const memory_fs_node *a = memory_fs_find(&m, "whole.cmf");
        const memory_fs_node *b = memory_fs_find(&m, "merged.cmf");
        assert_int_equal(a->len, b->len); /* no shard block, no set stays behind */
        assert_memory_equal(a->bytes, b->bytes, a->len);
        memory_fs_done(&m);
    }
}

/* One whole file is no set of one: it has no block. */
static void a_limit_that_is_not_reached_makes_one_file(void **state) {
    (void)state;
    memory_fs m;
    caisson_error err;
    uint32_t n = 0;
    csn_cmf *c = NULL;
    memory_fs_init(&m);
    put_golden(&m, "tiny-f32.cmf");
    ASSERT_OK(copy(&m.base, "tiny-f32.cmf", "s.cmf", 1000000, &n, &err), &err);
    assert_int_equal(n, 1);
    ASSERT_OK(csn_cmf_open(&m.base, "s.cmf", &c, &err), &err);
    assert_false(c->has_shard_block);
    csn_cmf_close(c);
    memory_fs_done(&m);
}

static void damage_is_not_copied(void **state) {
    (void)state;
    static const struct {
        int section;
        const char *name;
    } parts[] = {{CSN_CMF_DATA, "data"}, {CSN_CMF_MASKS, "masks"}, {CSN_CMF_VOCAB, "vocab"}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        memory_fs m;
        csn_cmf *c = NULL;
        caisson_error err = {0};
        memory_fs_init(&m);
        ASSERT_OK(cmf_make(&m.base, "a.cmf", -1, NULL, &err), &err);
        ASSERT_OK(cmf_grow(&m.base, "a.cmf", CMF_GROW_MASKS, &err), &err);
        ASSERT_OK(csn_cmf_open(&m.base, "a.cmf", &c, &err), &err);
        uint64_t at = c->envelope.off[parts[i].section] + c->envelope.len[parts[i].section] - 1;
        csn_cmf_close(c);
        memory_fs_find(&m, "a.cmf")->bytes[at] ^= 1;
        ASSERT_STATUS(copy(&m.base, "a.cmf", "b.cmf", 0, NULL, &err), CAISSON_E_HASH);
        assert_string_equal(err.section, parts[i].name);
        assert_null(memory_fs_find(&m, "b.cmf"));
        assert_null(memory_fs_find(&m, "b.cmf.part"));
        assert_null(memory_fs_find(&m, "b.cmf.part.journal"));
        memory_fs_done(&m);
    }
}

static void an_existing_target_is_kept_unless_told(void **state) {
    (void)state;
    memory_fs m;
    csn_cmf *c = NULL;
    caisson_error err;
    uint32_t n;
    csn_cmf_copy_options o = {.shard_max_bytes = 30000};
    memory_fs_init(&m);
    put_golden(&m, "tiny-f32.cmf");
    ASSERT_OK(copy(&m.base, "tiny-f32.cmf", "s.cmf", 30000, &n, &err), &err);
    char last[64];
    snprintf(last, sizeof(last), "s-%05u-of-%05u.cmf", n, n);
    ASSERT_OK(csn_cmf_open(&m.base, "tiny-f32.cmf", &c, &err), &err);
    for (uint32_t k = 1; k < n; k++) { /* the last alone is in the way */
        char path[64];
        snprintf(path, sizeof(path), "s-%05u-of-%05u.cmf", k, n);
        ASSERT_OK(m.base.ops->remove(&m.base, path, &err), &err);
    }
    ASSERT_STATUS(csn_cmf_copy(c, &m.base, "s.cmf", &o, &n, &err), CAISSON_E_EXISTS);
    assert_string_equal(err.file, last);
    csn_cmf_close(c);
    memory_fs_done(&m);
}

/* A set of shards replaces another of the same names, and each operation fails in turn: what opens
 * is the old model or the new one, never some shards of each. */
static void a_mixture_of_two_sets_never_opens(void **state) {
    (void)state;
    caisson_error err;
    int n_refused = 0;
    memory_fs origin;
    memory_fs_init(&origin);
    ASSERT_OK(cmf_make(&origin.base, "a.cmf", -1, NULL, &err), &err);
    ASSERT_OK(cmf_make(&origin.base, "b.cmf", -1, NULL, &err), &err);
    ASSERT_OK(cmf_grow(&origin.base, "b.cmf", CMF_GROW_HEADER, &err), &err);
    for (int64_t i = 0;; i++) {
        memory_fs m;
        faulty_fs f;
        csn_cmf *c = NULL;
        uint32_t n_old = 0, n_new = 0;
        memory_fs_init(&m);
        for (int k = 0; k < 2; k++) {
            const memory_fs_node *node = memory_fs_find(&origin, k == 0 ? "a.cmf" : "b.cmf");
            memory_fs_put(&m, node->path, node->bytes, node->len);
        }
        ASSERT_OK(copy(&m.base, "a.cmf", "s.cmf", 30000, &n_old, &err), &err);
        faulty_fs_init(&f, &m.base);
        f.fail_at = i;
        f.stays_broken = true;
        caisson_status status = copy(&f.base, "b.cmf", "s.cmf", 30000, &n_new, &err);
        char first[64];
        snprintf(first, sizeof(first), "s-00001-of-%05u.cmf", n_old);
        caisson_status opened = csn_cmf_open_model(&m.base, first, NULL, NULL, &c, &err);
        if (opened == CAISSON_OK) {
            bool is_new = csn_jval_get(c->header, "new_key") != NULL;
            csn_str set, want = {0};
            for (uint32_t k = 0; k < c->n_files; k++) {
                const csn_cmf *part = csn_cmf_file_of(c, k);
                assert_true(csn_jval_str(csn_jval_get(part->header, CSN_CMF_SHARD_SET), &set));
                want = k == 0 ? set : want;
                assert_true(csn_str_eq(set, want));
                assert_int_equal(csn_jval_get(part->header, "new_key") != NULL, is_new);
            }
            csn_cmf_close(c);
        } else {
            ASSERT_STATUS(opened, CAISSON_E_PARSE);
            n_refused++;
        }
        assert_int_equal(m.n_open, 0);
        memory_fs_done(&m);
        if (status == CAISSON_OK) {
            assert_int_equal(n_new, n_old);
            break;
        }
    }
    assert_true(n_refused > 0);
    memory_fs_done(&origin);
}

/* A copy that was killed goes on, wherever it was; and without the first shard's part the later
 * ones are of no use. */
static void a_killed_copy_goes_on(void **state) {
    (void)state;
    caisson_error err;
    memory_fs m;
    memory_fs_init(&m);
    ASSERT_OK(cmf_make(&m.base, "a.cmf", -1, NULL, &err), &err);
    uint32_t n = 0;
    ASSERT_OK(copy(&m.base, "a.cmf", "want.cmf", 30000, &n, &err), &err);
    for (int64_t i = 0;; i += 3) {
        faulty_fs f;
        uint32_t n_now;
        faulty_fs_init(&f, &m.base);
        f.fail_at = i;
        f.stays_broken = true;
        caisson_status status = copy(&f.base, "a.cmf", "got.cmf", 30000, &n_now, &err);
        if (i % 2 == 0 && memory_fs_find(&m, "got-00001-of-00003.cmf.part") != NULL) {
            (void)m.base.ops->remove(&m.base, "got-00001-of-00003.cmf.part", &err);
        }
        ASSERT_OK(copy(&m.base, "a.cmf", "got.cmf", 30000, &n_now, &err), &err);
        assert_int_equal(n_now, n);
        for (uint32_t k = 1; k <= n; k++) {
            char a[64], b[64];
            snprintf(a, sizeof(a), "want-%05u-of-%05u.cmf", k, n);
            snprintf(b, sizeof(b), "got-%05u-of-%05u.cmf", k, n);
            const memory_fs_node *x = memory_fs_find(&m, a);
            memory_fs_node *y = memory_fs_find(&m, b);
            assert_int_equal(x->len, y->len);
            assert_memory_equal(x->bytes, y->bytes, x->len);
            memory_fs_drop(y);
        }
        if (status == CAISSON_OK) {
            break;
        }
    }
    memory_fs_done(&m);
}

static void each_failed_allocation_is_survived(void **state) {
    (void)state;
    caisson_error err;
    memory_fs m;
    memory_fs_init(&m);
    ASSERT_OK(cmf_make(&m.base, "a.cmf", -1, NULL, &err), &err);
    for (int64_t i = 0;; i++) {
        csn_alloc_fail_after(i);
        caisson_status status = copy(&m.base, "a.cmf", "b.cmf", 30000, NULL, &err);
        csn_alloc_fail_after(-1);
        assert_int_equal(m.n_open, 0);
        if (status == CAISSON_OK) {
            assert_true(i > 20);
            break;
        }
        ASSERT_STATUS(status, CAISSON_E_NOMEM);
        assert_null(memory_fs_find(&m, "b-00001-of-00003.cmf"));
    }
    memory_fs_done(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_the_same_model),
        cmocka_unit_test(dead_bytes_are_reclaimed),
        cmocka_unit_test(split_and_merged_it_is_the_same_file),
        cmocka_unit_test(a_limit_that_is_not_reached_makes_one_file),
        cmocka_unit_test(damage_is_not_copied),
        cmocka_unit_test(an_existing_target_is_kept_unless_told),
        cmocka_unit_test(a_mixture_of_two_sets_never_opens),
        cmocka_unit_test(a_killed_copy_goes_on),
        cmocka_unit_test(each_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
