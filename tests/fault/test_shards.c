/* SPDX-License-Identifier: Apache-2.0 */
/* What changes a model in shards is killed at each write, sync, cut and rename, within shards and
 * between them. After each kill every shard is valid alone, the set opens, and it is the old model
 * or the new one; types of tensors alone change shard by shard, each the old one or the new one.
 * The same command then makes the new model of it. */
#include "unit/test.h"

#include <sys/wait.h>

#include "convert/convert.h"
#include "convert/mask_edit.h"
#include "convert/skill_add.h"
#include "fault/faulty_fs.h"
#include "support/cmf_golden.h"
#include "support/memory_fs.h"
#include "support/temp_dir.h"

enum { SHARD_BYTES = 20000, MAX_FILES = 9, TEXT = 1 << 20, PIECE = 4096 };

/* The reference's tiny file with two skills, and a mask: the shards as they are before. */
static csn_buf files[MAX_FILES];
static uint32_t n_files;

static const char *shard_path(uint32_t i) {
    char name[64];
    snprintf(name, sizeof(name), "s-%05u-of-%05u.cmf", i + 1, n_files);
    return temp_path(name);
}

static void fail_fault(void *ctx, const caisson_error *fault) {
    (void)ctx;
    char line[1024];
    fail_msg("%s", caisson_error_format(fault, line, sizeof(line)));
}

/* ---- what is done to it ---- */

static caisson_status requant(csn_fs *fs, const char *path, caisson_error *err) {
    const csn_convert_rule rule = {CSN_STR("model.layers.*_proj.weight"),
                                   csn_dtype_by_name(CSN_STR("q8_row"))};
    csn_convert_options o = {.rules = &rule, .n_rules = 1, .n_threads = 1};
    return csn_convert(fs, path, NULL, &o, err);
}

static caisson_status skill_add(csn_fs *fs, const char *path, caisson_error *err) {
    csn_skill_add_options o = {.family = CSN_SKILL_FFN, .n_threads = 1};
    return csn_skill_add(fs, path, CSN_STR("new"), temp_path("donor.cmf"), &o, err);
}

static caisson_status skill_quality(csn_fs *fs, const char *path, caisson_error *err) {
    return csn_skill_set_quality(fs, path, CSN_STR("sql"), CSN_STR("{\"metric\":\"ppl\"}"), err);
}

static caisson_status skill_remove(csn_fs *fs, const char *path, caisson_error *err) {
    return csn_skill_remove(fs, path, CSN_STR("sql"), err);
}

/* A mask that switches all off. */
static caisson_status put_mask(csn_fs *fs, const char *path, const char *name, caisson_error *err) {
    static const uint8_t zeros[4096];
    const csn_mask_put_options o = {.make_default = true};
    const csn_cmf_mask mask = {.name = csn_str_from(name),
                               .priority = CSN_STR("Normal"),
                               .sparsity = 1,
                               .ffn = zeros,
                               .heads = zeros,
                               .gates = zeros};
    csn_cmf *c;
    CSN_TRY(csn_cmf_open_model(fs, path, NULL, NULL, &c, err));
    csn_cmf_mask m = mask;
    m.n_ffn_rows = c->arch.n_layers;
    assert_true(c->arch.intermediate_size * c->arch.n_layers <= sizeof(zeros));
    caisson_status status = csn_mask_put(fs, path, c, &m, &o, err);
    csn_cmf_close(c);
    return status;
}

static caisson_status mask_put(csn_fs *fs, const char *path, caisson_error *err) {
    return put_mask(fs, path, "another", err);
}

static caisson_status mask_quality(csn_fs *fs, const char *path, caisson_error *err) {
    return csn_mask_set_quality(fs, path, CSN_STR("first"),
                                CSN_STR("{\"metric\":\"x\",\"value\":7}"), err);
}

static caisson_status mask_remove(csn_fs *fs, const char *path, caisson_error *err) {
    return csn_mask_remove(fs, path, CSN_STR("first"), err);
}

/* The dead bytes of the shard that `path` names go. */
static caisson_status compact(csn_fs *fs, const char *path, caisson_error *err) {
    csn_cmf_copy_options o = {.keeps_shard = true, .overwrite = true};
    csn_cmf *c;
    uint32_t n;
    CSN_TRY(csn_cmf_open_locked(fs, path, &c, err));
    caisson_status status = csn_cmf_copy(c, fs, path, &o, &n, err);
    csn_cmf_close(c);
    return status;
}

static const struct change {
    const char *name;
    caisson_status (*run)(csn_fs *fs, const char *path, caisson_error *err);
    bool is_by_shard; /* shards change one by one */
} changes[] = {
    {"requant", requant, true},
    {"skill add", skill_add, false},
    {"skill quality", skill_quality, false},
    {"skill remove", skill_remove, false},
    {"masks make", mask_put, false},
    {"masks measure", mask_quality, false},
    {"masks remove", mask_remove, false},
    {"compact", compact, false},
};
enum { N_CHANGES = sizeof(changes) / sizeof(changes[0]) };

/* ---- what it is ---- */

/* Header and tensors of one file; what a removal has left to be dropped is not told. */
static void tell_file(const csn_cmf *model, const csn_cmf *file, uint32_t i_file, csn_buf *out) {
    const csn_cmf_header_edit no_note = {.key = CSN_CMF_REMOVED_SKILLS};
    caisson_error err;
    csn_jw w = csn_jw_begin(out, &err);
    csn_cmf_header_edit_write(file, &no_note, 1, &w);
    ASSERT_OK(csn_jw_end(&w), &err);
    for (uint32_t i = 0; i < model->dir.n; i++) {
        const csn_tensor *t = &model->dir.tensors[i];
        csn_str id, name;
        bool is_told = t->i_file == i_file && (!csn_cmf_skill_name(model, t->name, &id, &name) ||
                                               csn_cmf_skill_of(model, t->name, &name) != NULL);
        if (is_told) {
            ASSERT_OK(csn_buf_printf(out, &err, "\n%.*s %s %016llx", CSN_STR_ARGS(t->name),
                                     t->dtype->name, (unsigned long long)t->hash),
                      &err);
        }
    }
    for (uint32_t i = 0; i_file == 0 && i < model->n_skills; i++) {
        const csn_cmf_skill *s = &model->skills[i];
        ASSERT_OK(csn_buf_printf(out, &err, "\nskill %.*s %u", CSN_STR_ARGS(s->id),
                                 (unsigned)s->n_tensors),
                  &err);
    }
    csn_buf masks = {0};
    ASSERT_OK(csn_cmf_read_section((csn_cmf *)(uintptr_t)file, CSN_CMF_MASKS, &masks, &err), &err);
    ASSERT_OK(csn_buf_append(out, masks.ptr, masks.len, &err), &err);
    csn_buf_free(&masks);
}

/* Verifies every shard by itself, opens the set, and tells what each file is: out [n_files]. */
static void look(csn_buf *out, bool *ret_is_unfinished) {
    caisson_error err = {0};
    csn_cmf *c;
    for (uint32_t i = 0; i < n_files; i++) {
        uint64_t n = 0;
        ASSERT_OK(csn_cmf_open(csn_fs_os(), shard_path(i), &c, &err), &err);
        ASSERT_OK(csn_cmf_verify(c, NULL, NULL, fail_fault, NULL, &n, &err), &err);
        csn_cmf_close(c);
    }
    ASSERT_OK(csn_cmf_open_model(csn_fs_os(), shard_path(1), NULL, NULL, &c, &err), &err);
    for (uint32_t i = 0; i < n_files; i++) {
        out[i] = CSN_BUF_INIT(TEXT);
        tell_file(c, csn_cmf_file_of(c, i), i, &out[i]);
    }
    *ret_is_unfinished = csn_jval_get(c->header, CSN_CMF_REMOVED_SKILLS) != NULL;
    csn_cmf_close(c);
}

static void forget(csn_buf *text) {
    for (uint32_t i = 0; i < n_files; i++) {
        csn_buf_free(&text[i]);
    }
}

static bool is_same(const csn_buf *a, const csn_buf *b) {
    return csn_str_eq(csn_buf_view(a), csn_buf_view(b));
}

static bool all_same(const csn_buf *a, const csn_buf *b) {
    bool same = true;
    for (uint32_t i = 0; i < n_files; i++) {
        same &= is_same(&a[i], &b[i]);
    }
    return same;
}

/* ---- the files ---- */

static void put_files(void) {
    caisson_error err;
    for (uint32_t i = 0; i < n_files; i++) {
        ASSERT_OK(csn_fs_write_all(csn_fs_os(), shard_path(i), csn_buf_view(&files[i]), &err),
                  &err);
    }
}

/* The shards of `whole`, which lies in memory. */
static void cut(csn_fs *fs, const char *whole) {
    csn_cmf_copy_options o = {.shard_max_bytes = SHARD_BYTES};
    caisson_error err = {0};
    csn_cmf *c;
    ASSERT_OK(csn_cmf_open(fs, whole, &c, &err), &err);
    ASSERT_OK(csn_cmf_copy(c, fs, "s.cmf", &o, &n_files, &err), &err);
    csn_cmf_close(c);
    assert_true(n_files >= 3 && n_files <= MAX_FILES);
    for (uint32_t i = 0; i < n_files; i++) {
        char name[64];
        snprintf(name, sizeof(name), "s-%05u-of-%05u.cmf", i + 1, n_files);
        ASSERT_OK(csn_fs_read_all(fs, name, TEXT, &files[i], &err), &err);
    }
}

static int setup(void **state) {
    const csn_dtype *coarse = csn_dtype_by_name(CSN_STR("q4_block"));
    csn_convert_options o = {.quant = coarse, .n_threads = 1};
    caisson_error err = {0};
    memory_fs fs;
    if (temp_dir_make(state) != 0) {
        return -1;
    }
    csn_buf b = golden_read(CMF_GOLDEN "files/tiny-skills.cmf");
    memory_fs_init(&fs);
    memory_fs_put(&fs, "m.cmf", b.ptr, b.len);
    ASSERT_OK(csn_convert(&fs.base, "m.cmf", "donor.cmf", &o, &err), &err);
    ASSERT_OK(put_mask(&fs.base, "m.cmf", "first", &err), &err);
    cut(&fs.base, "m.cmf");
    memory_fs_node *donor = memory_fs_find(&fs, "donor.cmf");
    ASSERT_OK(csn_fs_write_all(csn_fs_os(), temp_path("donor.cmf"),
                               csn_str_make((const char *)donor->bytes, donor->len), &err),
              &err);
    csn_buf_free(&b);
    memory_fs_done(&fs);
    return 0;
}

static int teardown(void **state) {
    for (uint32_t i = 0; i < n_files; i++) {
        csn_buf_free(&files[i]);
    }
    return temp_dir_remove(state);
}

/* ---- kills ---- */

static bool kill_at(const struct change *change, int64_t i) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        faulty_fs f;
        caisson_error err;
        faulty_fs_init(&f, csn_fs_os());
        f.kinds = FAULTY_WRITE | FAULTY_SYNC | FAULTY_TRUNCATE | FAULTY_RENAME | FAULTY_REMOVE |
                  FAULTY_SYNC_DIR;
        f.short_by = PIECE;
        f.fail_at = i;
        f.kill = true;
        _exit(change->run(&f.base, shard_path(1), &err) == CAISSON_OK ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) || (WIFEXITED(how) && WEXITSTATUS(how) == 0));
    return WIFSIGNALED(how);
}

/* What a kill left is old or new, and becomes new. */
static void check_killed(const struct change *change, const csn_buf *old, const csn_buf *want) {
    csn_buf now[MAX_FILES];
    caisson_error err = {0};
    bool is_unfinished;
    look(now, &is_unfinished);
    bool is_new = all_same(now, want);
    for (uint32_t i = 0; change->is_by_shard && i < n_files; i++) {
        assert_true(is_same(&now[i], &old[i]) || is_same(&now[i], &want[i]));
    }
    assert_true(is_new || change->is_by_shard || all_same(now, old));
    forget(now);
    if (!is_new || is_unfinished) {
        ASSERT_OK(change->run(csn_fs_os(), shard_path(1), &err), &err);
        look(now, &is_unfinished);
        assert_true(all_same(now, want) && !is_unfinished);
        forget(now);
    }
}

static void a_killed_change_of_shards_loses_nothing(void **state) {
    (void)state;
    for (int k = 0; k < N_CHANGES; k++) {
        const struct change *change = &changes[k];
        csn_buf old[MAX_FILES], want[MAX_FILES];
        caisson_error err = {0};
        bool is_unfinished;
        put_files();
        look(old, &is_unfinished);
        ASSERT_OK(change->run(csn_fs_os(), shard_path(1), &err), &err);
        look(want, &is_unfinished);
        assert_false(is_unfinished);
        assert_int_equal(all_same(old, want), change->run == compact);
        int64_t i = 0;
        for (put_files(); kill_at(change, i); i++, put_files()) {
            check_killed(change, old, want);
        }
        print_message("%s: %d kills, 0 models lost\n", change->name, (int)i);
        assert_true(i > 3);
        forget(old);
        forget(want);
    }
}

/* A disk that is full in the last shard leaves the first ones as they were, to the byte. */
static void a_failure_in_one_shard_leaves_all_as_they_were(void **state) {
    (void)state;
    caisson_error err = {0};
    for (uint64_t left = 0;; left += 5003) {
        memory_fs m;
        faulty_fs f;
        memory_fs_init(&m);
        for (uint32_t i = 0; i < n_files; i++) {
            memory_fs_put(&m, shard_path(i), files[i].ptr, files[i].len);
        }
        faulty_fs_init(&f, &m.base);
        f.disk_left = left;
        caisson_status status = requant(&f.base, shard_path(0), &err);
        if (status == CAISSON_OK) {
            memory_fs_done(&m);
            assert_true(left > 20000);
            return;
        }
        assert_int_equal(err.sys_errno, ENOSPC);
        bool is_pointing = false; /* what is left of the disk went into envelopes */
        for (uint32_t i = 0; i < n_files; i++) {
            const memory_fs_node *node = memory_fs_find(&m, shard_path(i));
            is_pointing |= memcmp(node->bytes, files[i].ptr, 128) != 0;
        }
        for (uint32_t i = 0; i < n_files && !is_pointing; i++) {
            const memory_fs_node *node = memory_fs_find(&m, shard_path(i));
            assert_int_equal(node->len, files[i].len);
            assert_memory_equal(node->bytes, files[i].ptr, files[i].len);
        }
        assert_false(is_pointing);
        memory_fs_done(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_change_of_shards_loses_nothing),
        cmocka_unit_test(a_failure_in_one_shard_leaves_all_as_they_were),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
