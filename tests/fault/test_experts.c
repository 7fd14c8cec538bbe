/* SPDX-License-Identifier: Apache-2.0 */
/* The expert store over files that fail: each time an error that names layer and expert, and a
 * store that works on. */
#include "unit/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "fault/faulty_fs.h"
#include "support/expert_bank.h"

static const uint32_t ids[] = {1, 4, 5, 9, 11, 12, 14, 15};
enum { N_IDS = 8 };

static void assert_names_layer_2(const caisson_error *err) {
    unsigned layer = 0;
    unsigned expert = 0;
    assert_int_equal(sscanf(err->tensor, "layer %u, expert %u", &layer, &expert), 2);
    assert_int_equal(layer, 2);
    assert_true(expert < BANK_EXPERTS);
    assert_non_null(strstr(err->file, "bank-1.bin"));
}

static void every_read_that_fails_is_an_error_and_the_next_list_works(void **state) {
    (void)state;
    for (uint32_t n_pieces = 1; n_pieces <= 3; n_pieces += 2) {
        for (int buffered = 0; buffered < 2; buffered++) {
            faulty_fs f;
            expert_bank b;
            faulty_fs_init(&f, csn_fs_os());
            f.kinds = FAULTY_READ;
            bank_make(&b, &f.base, n_pieces, 5000);
            csn_expert_io io = buffered ? CSN_EXPERT_IO_BUFFERED : CSN_EXPERT_IO_AUTO;
            caisson_status status = CAISSON_E_IO;
            for (int64_t at = 0; status != CAISSON_OK; at++) {
                caisson_error err;
                csn_experts *e = bank_store(&b, 6, io);
                f.n = 0;
                f.fail_at = at;
                status = bank_try(&b, e, 1, ids, N_IDS, &err);
                f.fail_at = -1;
                assert_true(status != CAISSON_OK || at == N_IDS * n_pieces);
                if (status != CAISSON_OK) {
                    ASSERT_STATUS(status, CAISSON_E_IO);
                    assert_int_equal(err.sys_errno, EIO);
                    assert_names_layer_2(&err);
                }
                bank_use(&b, e, 1, ids, N_IDS);
                bank_use(&b, e, 2, ids, N_IDS);
                csn_experts_free(e);
            }
            bank_done(&b);
            assert_int_equal(f.n_open, 0);
        }
    }
}

static void a_disk_that_is_gone_and_comes_back(void **state) {
    (void)state;
    faulty_fs f;
    expert_bank b;
    caisson_error err;
    faulty_fs_init(&f, csn_fs_os());
    f.kinds = FAULTY_READ;
    bank_make(&b, &f.base, 1, (1 << 20) + 1);
    f.stays_broken = true;
    for (int i = 0; i < N_IDS * 2; i += 3) {
        csn_experts *e = bank_store(&b, 4, CSN_EXPERT_IO_AUTO);
        f.n = 0;
        f.fail_at = i;
        ASSERT_STATUS(bank_try(&b, e, 1, ids, N_IDS, &err), CAISSON_E_IO);
        assert_names_layer_2(&err);
        csn_experts_ahead(e, 2, ids, N_IDS); /* fails in silence */
        bank_wait(e);                        /* a list that comes before that has the error */
        f.fail_at = -1;
        bank_use(&b, e, 2, ids, N_IDS);
        bank_use(&b, e, 1, ids, N_IDS);
        csn_experts_free(e);
    }
    bank_done(&b);
}

static void short_reads_are_put_together(void **state) {
    (void)state;
    faulty_fs f;
    expert_bank b;
    faulty_fs_init(&f, csn_fs_os());
    bank_make(&b, &f.base, 3, 20000);
    csn_experts *e = bank_store(&b, 5, CSN_EXPERT_IO_AUTO);
    static const size_t shorts[] = {700, 4096, 5000, 8192};
    for (int i = 0; i < 4; i++) {
        f.short_by = shorts[i];
        bank_use(&b, e, (uint32_t)i % BANK_LAYERS, ids, N_IDS);
    }
    csn_experts_free(e);
    bank_done(&b);
}

static void where_direct_reads_are_refused_the_page_cache_serves(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) { /* the open refuses; the open works, its reads fail */
        faulty_fs f;
        expert_bank b;
        faulty_fs_init(&f, csn_fs_os());
        bank_make(&b, &f.base, 3, 5000);
        f.kinds = kind == 0 ? FAULTY_DIRECT : FAULTY_READ;
        f.stays_broken = true;
        f.fail_at = 0;
        csn_experts *e = bank_store(&b, 5, CSN_EXPERT_IO_AUTO);
        f.fail_at = -1;
        assert_non_null(strstr(csn_experts_io_text(e), "readers, 3 of 3 files buffered: "));
        assert_non_null(strstr(csn_experts_io_text(e), "injected fault"));
        bank_use(&b, e, 1, ids, N_IDS);
        csn_experts_free(e);
        bank_done(&b);
        assert_int_equal(f.n_open, 0);
    }
}

static void a_disk_that_does_not_answer_is_an_error(void **state) {
    (void)state;
    faulty_fs f;
    expert_bank b;
    caisson_error err;
    faulty_fs_init(&f, csn_fs_os());
    bank_make(&b, &f.base, 1, 5000);
    csn_expert_options o = {.cache_bytes = 12 * bank_slot_bytes(&b), .stall_ms = 200};
    csn_experts *e = NULL;
    ASSERT_OK(csn_experts_new(&b.map, &o, &e, &err), &err);
    f.stall = true;
    for (int i = 0; i < 2; i++) { /* the second time reads of the first still hang */
        ASSERT_STATUS(bank_try(&b, e, 1, ids, N_IDS, &err), CAISSON_E_IO);
        assert_names_layer_2(&err);
        assert_string_equal(err.tensor, "layer 2, expert 1");
        assert_int_equal(strtoull(err.want, NULL, 10), 200);
    }
    f.stall = false;
    caisson_status status = CAISSON_E_IO; /* a busy machine may keep us waiting too */
    for (int i = 0; i < 100 && status == CAISSON_E_IO; i++) {
        status = bank_try(&b, e, 1, ids, N_IDS, &err);
    }
    ASSERT_OK(status, &err);
    csn_experts_free(e);
    bank_done(&b);
}

static bool says_no_after_three(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    (void)done;
    (void)total;
    int *n = ctx;
    return ++*n <= 3;
}

static void a_caller_that_waits_can_be_stopped(void **state) {
    (void)state;
    faulty_fs f;
    expert_bank b;
    caisson_error err;
    faulty_fs_init(&f, csn_fs_os());
    bank_make(&b, &f.base, 1, 5000);
    csn_experts *e = bank_store(&b, 6, CSN_EXPERT_IO_AUTO);
    f.stall = true;
    int n_asked = 0;
    csn_progress progress = {says_no_after_three, &n_asked};
    const uint8_t *pieces[BANK_MAX_PIECES];
    uint32_t id;
    csn_experts_want(e, 1, ids, N_IDS, &progress);
    ASSERT_STATUS(csn_experts_take(e, &id, pieces, &err), CAISSON_E_CANCELLED);
    csn_experts_done(e);
    f.stall = false;
    bank_use(&b, e, 1, ids, N_IDS);
    bank_use(&b, e, 2, ids, N_IDS);
    csn_experts_free(e);
    bank_done(&b);
}

static _Atomic int bad_expert = -1;

static caisson_status check(void *ctx, uint32_t i_layer, uint32_t expert,
                            const uint8_t *const *pieces, caisson_error *err) {
    (void)ctx;
    assert_int_equal(pieces[0][0], bank_word(i_layer, expert, 0, 0) & 255);
    if (i_layer == 1 && (int)expert == atomic_load(&bad_expert)) {
        return CSN_FAIL(err, CAISSON_E_HASH, .what = "checksum mismatch", CSN_VALUES(1, 2));
    }
    return CAISSON_OK;
}

static void a_record_that_fails_its_check_is_named(void **state) {
    (void)state;
    expert_bank b;
    caisson_error err;
    bank_make(&b, csn_fs_os(), 3, 5000);
    b.map.check = check;
    for (int i = 0; i < N_IDS; i++) {
        csn_experts *e = bank_store(&b, 6, CSN_EXPERT_IO_AUTO);
        atomic_store(&bad_expert, (int)ids[i]);
        csn_experts_ahead(e, 1, ids, N_IDS);
        ASSERT_STATUS(bank_try(&b, e, 1, ids, N_IDS, &err), CAISSON_E_HASH);
        char want[64];
        (void)snprintf(want, sizeof(want), "layer 2, expert %u", (unsigned)ids[i]);
        assert_string_equal(err.tensor, want);
        assert_string_equal(err.what, "checksum mismatch");
        atomic_store(&bad_expert, -1);
        bank_use(&b, e, 1, ids, N_IDS);
        csn_experts_free(e);
    }
    bank_done(&b);
}

/* The real thing: no injection, a file that another process cuts. */
static void a_file_that_is_cut_while_in_use_is_an_error(void **state) {
    (void)state;
    static const csn_expert_io kinds[] = {CSN_EXPERT_IO_AUTO, CSN_EXPERT_IO_THREADS,
                                          CSN_EXPERT_IO_BUFFERED};
    for (int k = 0; k < 3; k++) {
        for (uint32_t n_pieces = 1; n_pieces <= 3; n_pieces += 2) {
            expert_bank b;
            caisson_error err;
            bank_make(&b, csn_fs_os(), n_pieces, 5000);
            csn_experts *e = bank_store(&b, 6, kinds[k]);
            const csn_expert_piece *last = &b.pieces[(BANK_EXPERTS + 14) * n_pieces];
            assert_int_equal(truncate(bank_path(1), (off_t)last->offset + 4999), 0);
            ASSERT_STATUS(bank_try(&b, e, 1, ids, N_IDS, &err), CAISSON_E_IO);
            assert_string_equal(err.tensor, "layer 2, expert 14");
            assert_names_layer_2(&err);
            bank_use(&b, e, 1, ids, 6); /* what is there can be had */
            bank_use(&b, e, 2, ids, N_IDS);
            csn_experts_free(e);
            bank_done(&b);
        }
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    expert_bank b;
    caisson_error err;
    bank_make(&b, csn_fs_os(), 1, 5000);
    csn_expert_options o = {.cache_bytes = 8 * bank_slot_bytes(&b), .io = CSN_EXPERT_IO_THREADS};
    csn_experts *e = NULL;
    for (int64_t i = 0; e == NULL; i++) {
        csn_alloc_fail_after(i);
        caisson_status status = csn_experts_new(&b.map, &o, &e, &err);
        csn_alloc_fail_after(-1);
        assert_true(status == CAISSON_OK || status == CAISSON_E_NOMEM);
    }
    bank_use(&b, e, 1, ids, N_IDS);
    csn_experts_free(e);
    bank_done(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_read_that_fails_is_an_error_and_the_next_list_works),
        cmocka_unit_test(a_disk_that_is_gone_and_comes_back),
        cmocka_unit_test(short_reads_are_put_together),
        cmocka_unit_test(where_direct_reads_are_refused_the_page_cache_serves),
        cmocka_unit_test(a_disk_that_does_not_answer_is_an_error),
        cmocka_unit_test(a_caller_that_waits_can_be_stopped),
        cmocka_unit_test(a_record_that_fails_its_check_is_named),
        cmocka_unit_test(a_file_that_is_cut_while_in_use_is_an_error),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("fault experts", tests, temp_dir_make, temp_dir_remove);
}
