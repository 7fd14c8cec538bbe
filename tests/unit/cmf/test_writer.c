/* SPDX-License-Identifier: Apache-2.0 */
/* The streaming writer: layout, resume, faults of the file system, kills. */
#include "unit/test.h"

#include <sys/wait.h>

#include "fault/faulty_fs.h"
#include "support/cmf_golden.h"
#include "support/cmf_make.h"
#include "support/memory_fs.h"
#include "support/temp_dir.h"

#define OLD "what was there before"

static void no_fault(void *ctx, const caisson_error *fault) {
    (void)ctx;
    char line[1024];
    print_message("%s\n", caisson_error_format(fault, line, sizeof(line)));
}

static void assert_verifies(const char *path) {
    csn_cmf *c = NULL;
    caisson_error err;
    uint64_t n = 0;
    ASSERT_OK(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, no_fault, NULL, &n, &err), &err);
    assert_int_equal(n, 0);
    csn_cmf_close(c);
}

static void assert_same_file(const char *a, const char *b) {
    csn_buf x = golden_read(a);
    csn_buf y = golden_read(b);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.ptr, y.ptr, x.len);
    csn_buf_free(&x);
    csn_buf_free(&y);
}

static void put_old(const char *path) {
    caisson_error err;
    ASSERT_OK(csn_fs_write_all(csn_fs_os(), path, CSN_STR(OLD), &err), &err);
}

/* The whole, uninterrupted file. */
static const char *reference(void) {
    static char path[512];
    caisson_error err;
    if (path[0] == '\0') {
        snprintf(path, sizeof(path), "%s", temp_path("reference.cmf"));
        ASSERT_OK(cmf_make(csn_fs_os(), path, -1, NULL, &err), &err);
    }
    return path;
}

static void layout_follows_the_format(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    caisson_error err;
    ASSERT_OK(csn_cmf_open(csn_fs_os(), reference(), &c, &err), &err);
    csn_buf bytes = golden_read(reference());
    const csn_cmf_envelope *e = &c->envelope;
    assert_int_equal(e->off[CSN_CMF_HEADER], 128);
    assert_int_equal(e->off[CSN_CMF_DIR], 128 + e->len[CSN_CMF_HEADER]);
    assert_int_equal(e->off[CSN_CMF_DATA] % 4096, 0);
    assert_int_equal(e->required_features, 1 | 4); /* TENSOR_DIR, QUANT_2F for q8_2f */
    assert_int_equal(e->off[CSN_CMF_VOCAB], e->off[CSN_CMF_DATA] + e->len[CSN_CMF_DATA]);
    assert_int_equal(e->file_bytes, e->off[CSN_CMF_VOCAB] + e->len[CSN_CMF_VOCAB]);
    uint64_t end = e->off[CSN_CMF_DATA];
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        if (t->nbytes == 0) {
            continue;
        }
        assert_int_equal((t->offset - e->off[CSN_CMF_DATA]) % (t->nbytes >= 16384 ? 4096 : 64), 0);
        assert_true(t->offset >= end && t->offset - end < 4096);
        for (uint64_t k = end; k < t->offset; k++) {
            assert_int_equal(bytes.ptr[k], 0);
        }
        end = t->offset + t->nbytes;
    }
    assert_int_equal(end,
                     e->off[CSN_CMF_DATA] + e->len[CSN_CMF_DATA]); /* ends at the last payload */
    for (uint64_t k = e->off[CSN_CMF_DIR] + e->len[CSN_CMF_DIR]; k < e->off[CSN_CMF_DATA]; k++) {
        assert_int_equal(bytes.ptr[k], 0);
    }
    assert_int_equal(csn_jval_kind(csn_jval_get(c->header, "future_key")), CSN_JSON_ARRAY);
    csn_buf_free(&bytes);
    csn_cmf_close(c);
    assert_verifies(reference());
    assert_false(csn_fs_os()->ops->exists(csn_fs_os(), temp_path("reference.cmf.part")));
    assert_false(csn_fs_os()->ops->exists(csn_fs_os(), temp_path("reference.cmf.part.journal")));
}

static void the_target_is_replaced_only_at_the_end(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    caisson_error err;
    put_old(path);
    ASSERT_OK(cmf_make(csn_fs_os(), path, 5, NULL, &err), &err);
    csn_buf b = golden_read(path);
    ASSERT_STR(csn_buf_view(&b), OLD);
    csn_buf_free(&b);
    ASSERT_OK(cmf_make(csn_fs_os(), path, -1, NULL, &err), &err);
    assert_same_file(path, reference());
    (void)unlink(path);
}

static void a_stopped_conversion_goes_on(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    for (int stop = 0; stop <= CMF_MAKE_N; stop++) {
        uint32_t n_done = 99;
        caisson_error err;
        ASSERT_OK(cmf_make(csn_fs_os(), path, stop, NULL, &err), &err);
        ASSERT_OK(cmf_make(csn_fs_os(), path, -1, &n_done, &err), &err);
        assert_int_equal(n_done, stop < CMF_MAKE_N ? stop : 0); /* CMF_MAKE_N: it had finished */
        assert_same_file(path, reference());
        (void)unlink(path);
    }
}

static void a_journal_of_another_conversion_is_discarded(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    csn_cmf_plan_tensor tensors[CMF_MAKE_N];
    csn_cmf_plan plan = cmf_make_plan(tensors);
    csn_cmf_writer *w = NULL;
    uint32_t n_done = 99;
    caisson_error err;
    static const csn_str others[] = {CSN_STR("source 1, options 3"), CSN_STR("")};
    for (int i = 0; i < 4; i++) {
        ASSERT_OK(cmf_make(csn_fs_os(), path, 5, NULL, &err), &err);
        plan = cmf_make_plan(tensors);
        if (i < 2) {
            plan.fingerprint = others[i];
        } else if (i == 2) {
            tensors[1].name = CSN_STR("z.weight");
        } else {
            tensors[6].shape.dim[0] = 37; /* as many bytes, another shape */
            tensors[6].shape.dim[1] = 3;
        }
        ASSERT_OK(csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, &err), &err);
        assert_int_equal(n_done, 0);
        csn_cmf_writer_close(w, true);
        assert_false(csn_fs_os()->ops->exists(csn_fs_os(), temp_path("w.cmf.part")));
        assert_false(csn_fs_os()->ops->exists(csn_fs_os(), temp_path("w.cmf.part.journal")));
    }
}

static void a_damaged_journal_or_part_is_not_believed(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    char journal[512];
    char part[512];
    uint32_t n_done;
    caisson_error err;
    snprintf(journal, sizeof(journal), "%s", temp_path("w.cmf.part.journal"));
    snprintf(part, sizeof(part), "%s", temp_path("w.cmf.part"));
    for (long cut = 0; cut < 24 + 5 * 48; cut += 7) { /* torn at any place */
        ASSERT_OK(cmf_make(csn_fs_os(), path, 5, NULL, &err), &err);
        assert_int_equal(truncate(journal, cut), 0);
        ASSERT_OK(cmf_make(csn_fs_os(), path, -1, &n_done, &err), &err);
        assert_int_equal(n_done, cut < 24 ? 0 : (cut - 24) / 48);
        assert_same_file(path, reference());
    }
    for (long at = 0; at < 24 + 5 * 48; at += 5) { /* a byte that is not as written */
        ASSERT_OK(cmf_make(csn_fs_os(), path, 5, NULL, &err), &err);
        FILE *f = fopen(journal, "r+b");
        assert_non_null(f);
        (void)fseek(f, at, SEEK_SET);
        int old = fgetc(f);
        (void)fseek(f, at, SEEK_SET);
        (void)fputc(old ^ 0x40, f);
        (void)fclose(f);
        ASSERT_OK(cmf_make(csn_fs_os(), path, -1, &n_done, &err), &err);
        assert_int_equal(n_done, at < 24 ? 0 : (at - 24) / 48);
        assert_same_file(path, reference());
    }
    ASSERT_OK(cmf_make(csn_fs_os(), path, 5, NULL, &err), &err);
    assert_int_equal(truncate(part, 5000), 0); /* shorter than the journal says */
    ASSERT_OK(cmf_make(csn_fs_os(), path, -1, &n_done, &err), &err);
    assert_true(n_done < 5);
    assert_same_file(path, reference());
    (void)unlink(path);
}

/* The second of two writers is refused and disturbs nothing; a writer that is gone never blocks. */
static void two_writers_of_one_file(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    csn_cmf_plan_tensor tensors[CMF_MAKE_N];
    csn_cmf_plan plan = cmf_make_plan(tensors);
    csn_cmf_writer *w = NULL;
    uint32_t n_done = 99;
    uint64_t n;
    caisson_error err;
    ASSERT_OK(csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, &err), &err);
    for (int i = 0; i < CMF_MAKE_N; i++) {
        err = (caisson_error){0};
        ASSERT_STATUS(cmf_make(csn_fs_os(), path, -1, NULL, &err), CAISSON_E_BUSY);
        assert_string_equal(err.file, path);
        uint8_t *p = cmf_make_payload(&tensors[i], i, &n);
        ASSERT_OK(csn_cmf_writer_tensor(w, p, n, &err), &err);
        free(p);
    }
    pid_t pid = fork();
    if (pid == 0) { /* another process sees it as well */
        _exit(cmf_make(csn_fs_os(), path, -1, NULL, &err) == CAISSON_E_BUSY ? 0 : 1);
    }
    int how = 1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    ASSERT_OK(csn_cmf_writer_finish(w, CSN_STR(CMF_MAKE_HEADER), CSN_STR(CMF_MAKE_VOCAB), &err),
              &err);
    csn_cmf_writer_close(w, false);
    assert_same_file(path, reference());
    ASSERT_OK(cmf_make(csn_fs_os(), path, 3, NULL, &err), &err); /* closed: the next may begin */
    ASSERT_OK(cmf_make(csn_fs_os(), path, -1, &n_done, &err), &err);
    assert_int_equal(n_done, 3);
    assert_same_file(path, reference());
    (void)unlink(path);
}

/* Its holder finished between our open and our lock: the file is no longer the partial one. */
static void a_lock_on_a_renamed_file_is_not_ours(void **state) {
    (void)state;
    csn_fs *fs = csn_fs_os();
    const char *path = temp_path("lock"), *other = temp_path("lock2");
    csn_file *f;
    caisson_error err;
    bool is_ours = true;
    ASSERT_OK(csn_fs_open(fs, path, CSN_OPEN_CREATE_NEW, &f, &err), &err);
    ASSERT_OK(fs->ops->rename(fs, path, other, &err), &err);
    ASSERT_OK(f->ops->lock(f, &is_ours, &err), &err);
    assert_false(is_ours);
    put_old(path);
    ASSERT_OK(f->ops->lock(f, &is_ours, &err), &err);
    assert_false(is_ours);
    csn_file_close(f);
    (void)unlink(path);
    (void)unlink(other);
}

/* Tensors 1 and 5 as f32: the file is that of a plan which said so, also when a stopped run had
 * found it out. */
static void tensors_kept_in_f32_move_those_behind(void **state) {
    (void)state;
    const csn_dtype *f32 = csn_dtype_by_name(CSN_STR("f32"));
    char want[512];
    snprintf(want, sizeof(want), "%s", temp_path("want.cmf"));
    const char *path = temp_path("w.cmf");
    for (int stop = -1; stop <= CMF_MAKE_N; stop++) { /* -1: the plan says so */
        csn_cmf_plan_tensor said[CMF_MAKE_N], found[CMF_MAKE_N];
        csn_cmf_plan plan = cmf_make_plan(said);
        (void)cmf_make_plan(found);
        said[1].dtype = said[5].dtype = f32;
        plan.tensors = stop < 0 ? said : found;
        for (int round = 0; round < 2; round++) {
            csn_cmf_writer *w = NULL;
            uint32_t n_done;
            uint64_t n;
            caisson_error err;
            ASSERT_OK(
                csn_cmf_writer_new(csn_fs_os(), stop < 0 ? want : path, &plan, &w, &n_done, &err),
                &err);
            assert_int_equal(n_done, round == 0 || stop < 0 ? 0 : stop);
            for (int i = 0; i < (int)n_done; i++) {
                assert_ptr_equal(csn_cmf_writer_dtype(w, (uint32_t)i), said[i].dtype);
            }
            for (int i = (int)n_done; i < CMF_MAKE_N; i++) {
                if (stop >= 0 && round == 0 && i == stop) {
                    break;
                }
                if (stop >= 0 && said[i].dtype != found[i].dtype) {
                    ASSERT_OK(csn_cmf_writer_keep_f32(w, &err), &err);
                }
                uint8_t *p = cmf_make_payload(&said[i], i, &n);
                ASSERT_OK(csn_cmf_writer_tensor(w, p, n, &err), &err);
                free(p);
            }
            if (stop < 0 || round == 1) {
                ASSERT_OK(csn_cmf_writer_finish(w, CSN_STR(CMF_MAKE_HEADER),
                                                CSN_STR(CMF_MAKE_VOCAB), &err),
                          &err);
            }
            csn_cmf_writer_close(w, false);
            if (stop < 0) {
                break;
            }
        }
        if (stop >= 0) {
            assert_same_file(path, want);
            assert_verifies(path);
            (void)unlink(path);
        }
    }
    (void)unlink(want);
}

static void too_little_space_is_told_first(void **state) {
    (void)state;
    faulty_fs f;
    csn_cmf_plan_tensor tensors[CMF_MAKE_N];
    csn_cmf_plan plan = cmf_make_plan(tensors);
    csn_cmf_writer *w = NULL;
    uint32_t n_done;
    caisson_error err;
    faulty_fs_init(&f, csn_fs_os());
    tensors[5].shape.dim[0] = UINT32_MAX; /* 2^32 x 384 weights: 850 GB */
    plan.vocab_bytes = UINT64_C(1) << 50;
    ASSERT_STATUS(csn_cmf_writer_new(&f.base, temp_path("w.cmf"), &plan, &w, &n_done, &err),
                  CAISSON_E_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_false(csn_fs_os()->ops->exists(csn_fs_os(), temp_path("w.cmf.part")));
    assert_int_equal(f.n_open, 0);
}

/* A payload that turns out longer than the plan thought, on a disk that has room for the plan. */
static void too_little_space_is_told_when_a_payload_is_longer(void **state) {
    (void)state;
    memory_fs f;
    caisson_error err;
    csn_cmf_plan_tensor t = {.name = CSN_STR("x"),
                             .dtype = csn_dtype_by_name(CSN_STR("u8")),
                             .shape = {.n_dims = 1, .dim = {1 << 20}},
                             .nbytes = 10};
    csn_cmf_plan plan = {.tensors = &t, .n = 1, .head_bytes = 100};
    csn_cmf_writer *w = NULL;
    uint32_t n_done;
    uint8_t *payload = calloc(1, 1 << 20);
    assert_non_null(payload);
    memory_fs_init(&f);
    f.free_bytes = (1 << 20) + (1 << 18); /* a MiB of it stays free */
    ASSERT_OK(csn_cmf_writer_new(&f.base, "w.cmf", &plan, &w, &n_done, &err), &err);
    err = (caisson_error){0};
    ASSERT_STATUS(csn_cmf_writer_tensor(w, payload, 1 << 20, &err), CAISSON_E_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_string_equal(err.file, "w.cmf");
    csn_cmf_writer_close(w, true);
    memory_fs_done(&f);
    free(payload);
}

static void plans_that_no_file_can_hold_are_refused(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    csn_cmf_plan_tensor tensors[CMF_MAKE_N];
    csn_cmf_plan plan = cmf_make_plan(tensors);
    csn_cmf_writer *w = NULL;
    uint32_t n_done;
    caisson_error err;
    tensors[2].name = tensors[1].name;
    ASSERT_STATUS(csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, &err), CAISSON_E_PARSE);
    plan = cmf_make_plan(tensors);
    tensors[2].dtype = csn_dtype_by_cmf(5);
    ASSERT_STATUS(csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, &err), CAISSON_E_ARG);
    plan = cmf_make_plan(tensors);
    tensors[2].shape.dim[1] = 33; /* q4_tiled takes it, q4tp does not */
    tensors[2].dtype = csn_dtype_by_name(CSN_STR("q4tp"));
    ASSERT_STATUS(csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, &err),
                  CAISSON_E_BOUNDS);
    plan = cmf_make_plan(tensors);
    tensors[0].shape.dim[0] = UINT64_C(1) << 32;
    ASSERT_STATUS(csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, &err), CAISSON_E_ARG);
    plan = cmf_make_plan(tensors);
    plan.head_bytes = UINT64_MAX;
    ASSERT_STATUS(csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, &err), CAISSON_E_LIMIT);
    assert_string_equal(err.file, path);
    assert_false(csn_fs_os()->ops->exists(csn_fs_os(), temp_path("w.cmf.part")));
}

static void wrong_calls_are_refused(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    csn_cmf_plan_tensor tensors[CMF_MAKE_N];
    csn_cmf_plan plan = cmf_make_plan(tensors);
    csn_cmf_writer *w = NULL;
    uint32_t n_done;
    caisson_error err;
    uint8_t bytes[16] = {0};
    plan.n = 1;
    ASSERT_OK(csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, &err), &err);
    ASSERT_STATUS(csn_cmf_writer_finish(w, CSN_STR(CMF_MAKE_HEADER), CSN_STR(""), &err),
                  CAISSON_E_ARG);
    ASSERT_STATUS(csn_cmf_writer_tensor(w, bytes, 13, &err), CAISSON_E_ARG);
    assert_string_equal(err.tensor, "model.norm.weight");
    ASSERT_OK(csn_cmf_writer_tensor(w, bytes, 14, &err), &err);
    ASSERT_STATUS(csn_cmf_writer_tensor(w, bytes, 14, &err), CAISSON_E_ARG);
    /* a header that our reader refuses never becomes a file */
    ASSERT_STATUS(csn_cmf_writer_finish(w, CSN_STR("{\"version\":2}"), CSN_STR(""), &err),
                  CAISSON_E_PARSE);
    ASSERT_STATUS(csn_cmf_writer_finish(w, CSN_STR("[]"), CSN_STR(""), &err), CAISSON_E_ARG);
    csn_buf big = CSN_BUF_INIT(1 << 20);
    ASSERT_OK(csn_buf_str(&big, CSN_STR("{\"x\":\""), &err), &err);
    for (int i = 0; i < 5000; i++) {
        ASSERT_OK(csn_buf_char(&big, 'x', &err), &err);
    }
    ASSERT_OK(csn_buf_str(&big, CSN_STR("\"}"), &err), &err);
    ASSERT_STATUS(csn_cmf_writer_finish(w, csn_buf_view(&big), CSN_STR(""), &err), CAISSON_E_LIMIT);
    csn_buf_free(&big);
    assert_false(csn_fs_os()->ops->exists(csn_fs_os(), path));
    ASSERT_OK(csn_cmf_writer_finish(w, CSN_STR(CMF_MAKE_HEADER), CSN_STR(""), &err), &err);
    csn_cmf_writer_close(w, true); /* discard after finish leaves the file */
    assert_verifies(path);
    (void)unlink(path);
    csn_cmf_writer_close(NULL, true);
}

/* Fails the n-th operation of each kind, once or for good, until the conversion gets through. After
 * each failure the old file is whole, nothing is left open, and a resumed run gives the same bytes.
 */
static void every_failed_operation_leaves_the_old_file(void **state) {
    (void)state;
    static const unsigned kinds[] = {FAULTY_OPEN,     FAULTY_READ,     FAULTY_WRITE,  FAULTY_SIZE,
                                     FAULTY_TRUNCATE, FAULTY_SYNC,     FAULTY_RENAME, FAULTY_REMOVE,
                                     FAULTY_SPACE,    FAULTY_SYNC_DIR, FAULTY_LOCK};
    const char *path = temp_path("w.cmf");
    for (size_t k = 0; k < 2 * sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (int64_t n = 0;; n++) {
            faulty_fs f;
            caisson_error err;
            assert_true(n < 1000);
            put_old(path);
            faulty_fs_init(&f, csn_fs_os());
            f.kinds = kinds[k / 2];
            f.stays_broken = k % 2 != 0;
            f.fail_at = n;
            caisson_status status = cmf_make(&f.base, path, -1, NULL, &err);
            assert_int_equal(f.n_open, 0);
            csn_buf b = golden_read(path);
            bool is_old = csn_str_is(csn_buf_view(&b), OLD);
            csn_buf_free(&b);
            if (status == CAISSON_OK) {
                assert_same_file(path, reference());
                if (f.n <= n) {
                    break; /* nothing failed */
                }
                continue; /* what failed did not matter: removing the journal at the end */
            }
            assert_int_equal(status, CAISSON_E_IO);
            assert_int_equal(err.sys_errno, EIO);
            /* only the directory's sync comes after the rename */
            assert_true(is_old || f.kinds == FAULTY_SYNC_DIR);
            ASSERT_OK(cmf_make(csn_fs_os(), path, -1, NULL, &err), &err);
            assert_same_file(path, reference());
        }
        temp_dir_clear();
        caisson_error err;
        ASSERT_OK(cmf_make(csn_fs_os(), reference(), -1, NULL, &err), &err);
    }
}

static void short_reads_and_writes_change_nothing(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    static const size_t sizes[] = {1, 7, 4096};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        faulty_fs f;
        caisson_error err;
        faulty_fs_init(&f, csn_fs_os());
        f.short_by = sizes[i];
        ASSERT_OK(cmf_make(&f.base, path, -1, NULL, &err), &err);
        assert_same_file(path, reference());
        csn_cmf *c = NULL;
        uint64_t n = 0;
        ASSERT_OK(csn_cmf_open(&f.base, path, &c, &err), &err);
        ASSERT_OK(csn_cmf_verify(c, NULL, NULL, no_fault, NULL, &n, &err), &err);
        assert_int_equal(n, 0);
        csn_cmf_close(c);
    }
    (void)unlink(path);
}

static void a_disk_that_fills_up_costs_nothing(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    for (uint64_t left = 0;; left += 4001) {
        faulty_fs f;
        caisson_error err;
        put_old(path);
        faulty_fs_init(&f, csn_fs_os());
        f.disk_left = left;
        caisson_status status = cmf_make(&f.base, path, -1, NULL, &err);
        assert_int_equal(f.n_open, 0);
        if (status == CAISSON_OK) {
            break;
        }
        assert_int_equal(status, CAISSON_E_IO);
        assert_int_equal(err.sys_errno, ENOSPC);
        csn_buf b = golden_read(path);
        ASSERT_STR(csn_buf_view(&b), OLD);
        csn_buf_free(&b);
        if (left % 3 == 0) { /* sometimes the rest is resumed, sometimes the next try goes on */
            ASSERT_OK(cmf_make(csn_fs_os(), path, -1, NULL, &err), &err);
            assert_same_file(path, reference());
        }
    }
    assert_same_file(path, reference());
    (void)unlink(path);
}

static void every_failed_allocation_leaves_the_old_file(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    for (int64_t n = 0;; n++) {
        caisson_error err;
        assert_true(n < 5000);
        put_old(path);
        csn_alloc_fail_after(n);
        caisson_status status = cmf_make(csn_fs_os(), path, -1, NULL, &err);
        csn_alloc_fail_after(-1);
        if (status == CAISSON_OK) {
            break;
        }
        assert_int_equal(status, CAISSON_E_NOMEM);
        csn_buf b = golden_read(path);
        if (!csn_str_is(csn_buf_view(&b), OLD)) { /* failed behind the rename */
            assert_same_file(path, reference());
        }
        csn_buf_free(&b);
    }
    assert_same_file(path, reference());
    (void)unlink(path);
}

static void killed_child(const char *path, int64_t at, unsigned delay_us) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        faulty_fs f;
        caisson_error err;
        faulty_fs_init(&f, csn_fs_os());
        f.kill = true;
        f.fail_at = at;
        if (delay_us != 0) {
            f.short_by = 997; /* many small writes, so that a kill in time hits inside one */
        }
        caisson_status status = cmf_make(&f.base, path, -1, NULL, &err);
        _exit(status == CAISSON_OK ? 0 : 1);
    }
    if (delay_us != 0) {
        (void)usleep(delay_us);
        (void)kill(pid, SIGKILL);
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) || (WIFEXITED(how) && WEXITSTATUS(how) == 0));
}

/* SIGKILL at every operation, then at random times; the file there is the old one or the whole new
 * one, and the next run gives the bytes of an uninterrupted one. */
static void a_kill_at_any_operation_is_survived(void **state) {
    (void)state;
    const char *path = temp_path("w.cmf");
    uint32_t x = 7;
    uint32_t most = 0;
    for (int64_t at = 0; at < 160; at++) {
        uint32_t n_done = 0;
        caisson_error err;
        bool at_random = at >= 120;
        x = x * 1664525u + 1013904223u;
        put_old(path);
        killed_child(path, at_random ? -1 : at, at_random ? 1 + (x >> 8) % 8000 : 0);
        csn_buf b = golden_read(path);
        if (!csn_str_is(csn_buf_view(&b), OLD)) {
            assert_same_file(path, reference());
        }
        csn_buf_free(&b);
        ASSERT_OK(cmf_make(csn_fs_os(), path, -1, &n_done, &err), &err);
        assert_same_file(path, reference());
        most = n_done > most ? n_done : most;
    }
    assert_int_equal(most, CMF_MAKE_N); /* the resume really resumes, up to the last tensor */
    (void)unlink(path);
}

/* Header and directory of an existing file through the rewriting path: unknown keys stay. */
static void a_rewritten_header_keeps_unknown_keys(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    csn_json *doc = NULL;
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(1 << 20);
    ASSERT_OK(csn_cmf_open(csn_fs_os(), CMF_GOLDEN "files/odd-json-style.cmf", &c, &err), &err);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_cmf_header_write(c, CSN_STR("F32"), &w);
    ASSERT_OK(csn_jw_end(&w), &err);
    ASSERT_OK(csn_json_parse(csn_buf_view(&out), CSN_JSON_UNIQUE, &doc, &err), &err);
    const csn_jval *root = csn_json_root(doc);
    bool b = false;
    assert_true(csn_str_is(golden_str(root, "quant_type"), "F32"));
    assert_int_equal(csn_jval_len(csn_jval_get(root, "future_key")), 2);
    assert_true(csn_jval_bool(csn_jval_get(csn_jval_get(root, "arch"), "some_new_field"), &b) && b);
    assert_null(csn_jval_get(root, "section_hashes"));
    csn_json_free(doc);
    csn_buf_free(&out);
    csn_cmf_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"layout follows the format (CMF 1, 3, 4)", layout_follows_the_format, NULL, NULL, NULL},
        cmocka_unit_test(the_target_is_replaced_only_at_the_end),
        cmocka_unit_test(a_stopped_conversion_goes_on),
        cmocka_unit_test(a_journal_of_another_conversion_is_discarded),
        cmocka_unit_test(a_damaged_journal_or_part_is_not_believed),
        cmocka_unit_test(two_writers_of_one_file),
        cmocka_unit_test(a_lock_on_a_renamed_file_is_not_ours),
        cmocka_unit_test(tensors_kept_in_f32_move_those_behind),
        cmocka_unit_test(too_little_space_is_told_first),
        cmocka_unit_test(too_little_space_is_told_when_a_payload_is_longer),
        cmocka_unit_test(plans_that_no_file_can_hold_are_refused),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(every_failed_operation_leaves_the_old_file),
        cmocka_unit_test(short_reads_and_writes_change_nothing),
        cmocka_unit_test(a_disk_that_fills_up_costs_nothing),
        cmocka_unit_test(every_failed_allocation_leaves_the_old_file),
        cmocka_unit_test(a_kill_at_any_operation_is_survived),
        {"a rewritten header keeps unknown keys (CMF 1.1)", a_rewritten_header_keeps_unknown_keys,
         NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, temp_dir_make, temp_dir_remove);
}
