/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include <unistd.h>

#include "support/expert_bank.h"

static const csn_expert_io all_io[] = {CSN_EXPERT_IO_AUTO, CSN_EXPERT_IO_THREADS,
                                       CSN_EXPERT_IO_BUFFERED};
enum { N_IO = 3 };

static const uint32_t all_ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static csn_expert_stats stats_of(csn_experts *e) {
    csn_expert_stats s;
    csn_experts_stats_all(e, &s);
    return s;
}

/* Sizes around a disk block and a read of the store (1 MiB); the last piece of a file ends it. */
static void every_expert_has_its_own_bytes(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 4095, 4096, 4097, 13000, (1 << 20) - 1, (1 << 20) + 1};
    for (uint32_t n_pieces = 1; n_pieces <= 3; n_pieces += 2) {
        for (int s = 0; s < 7; s++) {
            expert_bank b;
            bank_make(&b, csn_fs_os(), n_pieces, sizes[s]);
            for (int k = 0; k < N_IO; k++) {
                csn_experts *e = bank_store(&b, 5, all_io[k]);
                for (uint32_t l = 0; l < (sizes[s] > 20000 ? 1 : BANK_LAYERS); l++) {
                    bank_use(&b, e, l, all_ids, BANK_EXPERTS);
                }
                csn_experts_free(e);
            }
            bank_done(&b);
        }
    }
}

static void a_list_longer_than_the_cache_reads_each_expert_once(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 5000);
    for (int k = 0; k < N_IO; k++) {
        for (uint32_t n_slots = 4; n_slots < 20; n_slots += 5) {
            csn_experts *e = bank_store(&b, n_slots, all_io[k]);
            bank_use(&b, e, 0, all_ids, BANK_EXPERTS);
            csn_expert_stats s = stats_of(e);
            assert_int_equal(s.misses, BANK_EXPERTS);
            assert_int_equal(s.hits, 0);
            assert_int_equal(s.reads, BANK_EXPERTS);
            assert_int_equal(s.bytes, BANK_EXPERTS * 8192);
            assert_int_equal(s.ahead_bytes, 0);
            bank_use(&b, e, 0, all_ids, BANK_EXPERTS); /* some may still be there: no more reads */
            assert_true(stats_of(e).reads <= 2 * BANK_EXPERTS);
            assert_int_equal(stats_of(e).hits + stats_of(e).misses, 2 * BANK_EXPERTS);
            csn_experts_free(e);
        }
    }
    bank_done(&b);
}

/* What a list will want is not pushed out by what it wants first, as long as anything else is. */
static void experts_in_memory_stay_for_the_list_that_wants_them(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 5000);
    csn_experts *e = bank_store(&b, 8, CSN_EXPERT_IO_THREADS);
    bank_use(&b, e, 0, all_ids + 12, 4);
    bank_use(&b, e, 1, all_ids, 4);
    bank_use(&b, e, 0, all_ids + 8, 8);
    csn_expert_stats s;
    csn_experts_stats(e, 0, &s);
    assert_int_equal(s.hits, 4);
    assert_int_equal(s.misses, 8);
    csn_experts_stats(e, 1, &s);
    assert_int_equal(s.misses, 4);
    csn_experts_free(e);
    bank_done(&b);
}

static void what_is_used_often_stays(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 100);
    csn_experts *e = bank_store(&b, 6, CSN_EXPERT_IO_THREADS);
    static const uint32_t hot[] = {3, 7};
    for (int i = 0; i < 4; i++) {
        bank_use(&b, e, 0, hot, 2);
    }
    bank_use(&b, e, 1, all_ids, BANK_EXPERTS); /* each of these once */
    csn_expert_stats s;
    csn_experts_stats(e, 0, &s);
    assert_int_equal(s.misses, 2);
    bank_use(&b, e, 0, hot, 2);
    csn_experts_stats(e, 0, &s);
    assert_int_equal(s.misses, 2);
    csn_experts_free(e);
    bank_done(&b);
}

/* A rule of recency alone would hit nothing here: the layers come round in a circle. */
static void a_circle_larger_than_the_cache_still_hits(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 100);
    csn_experts *e = bank_store(&b, 9, CSN_EXPERT_IO_THREADS);
    for (int token = 0; token < 20; token++) {
        for (uint32_t l = 0; l < BANK_LAYERS; l++) {
            bank_use(&b, e, l, all_ids, 4);
        }
    }
    csn_expert_stats s = stats_of(e); /* 12 wanted of a token, 9 slots */
    assert_true(s.hits >= 19 * 6);
    csn_experts_free(e);
    bank_done(&b);
}

static void take_any_gives_what_is_in_memory_first(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 3, 5000);
    for (int k = 0; k < N_IO; k++) {
        csn_experts *e = bank_store(&b, 8, all_io[k]);
        bank_use(&b, e, 2, all_ids + 6, 2);
        assert_true(csn_experts_fits(e, 8));
        assert_false(csn_experts_fits(e, 9));
        csn_experts_want(e, 2, all_ids, 8, NULL);
        const uint8_t *pieces[8][BANK_MAX_PIECES];
        uint32_t ids[8];
        uint32_t seen = 0;
        for (int i = 0; i < 8; i++) {
            caisson_error err;
            ASSERT_OK(csn_experts_take_any(e, &ids[i], pieces[i], &err), &err);
            seen |= 1U << ids[i];
        }
        assert_int_equal(seen, 255);
        for (int i = 0; i < 8; i++) { /* all stay good */
            bank_check(&b, 2, ids[i], pieces[i]);
        }
        csn_experts_done(e);
        assert_int_equal(stats_of(e).hits, 2);
        csn_experts_free(e);
    }
    bank_done(&b);
}

static void guesses_are_counted_apart(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 5000);
    for (int k = 0; k < N_IO; k++) {
        csn_experts *e = bank_store(&b, 16, all_io[k]);
        static const uint32_t guess[] = {9, 2, 5};
        static const uint32_t real[] = {2, 3, 9};
        csn_experts_ahead(e, 1, guess, 3);
        bank_wait(e);
        csn_expert_stats s = stats_of(e);
        assert_int_equal(s.ahead, 3);
        assert_int_equal(s.ahead_bytes, 3 * 8192);
        assert_int_equal(s.ahead_used, 0);
        bank_use(&b, e, 1, real, 3);
        s = stats_of(e);
        assert_int_equal(s.hits, 2);
        assert_int_equal(s.misses, 1);
        assert_int_equal(s.reads, 1);
        assert_int_equal(s.bytes, 8192);
        assert_int_equal(s.ahead_used, 2);
        assert_int_equal(s.ahead_used_bytes, 2 * 8192);
        csn_experts_free(e);
    }
    bank_done(&b);
}

static void a_guess_pushes_nothing_useful_out(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 100);
    csn_experts *e = bank_store(&b, 4, CSN_EXPERT_IO_THREADS);
    for (int i = 0; i < 100; i++) {
        bank_use(&b, e, 0, all_ids, 4);
    }
    csn_experts_ahead(e, 1, all_ids, 8);
    bank_wait(e);
    assert_int_equal(stats_of(e).ahead, 0);
    csn_experts_free(e);
    bank_done(&b);
}

/* Experts read on a guess over 60 lists, when guesses are right or never. */
static uint64_t count_guesses(const expert_bank *b, csn_experts *e, bool are_right) {
    uint64_t before = stats_of(e).ahead;
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t list[2] = {i * 5 % 8, 8 + i * 3 % 8};
        uint32_t other[2] = {(list[0] + 1) % 8, 8 + (list[1] + 1) % 8};
        csn_experts_ahead(e, i % BANK_LAYERS, are_right ? list : other, 2);
        bank_wait(e);
        bank_use(b, e, i % BANK_LAYERS, list, 2);
    }
    return stats_of(e).ahead - before;
}

/* Whoever guesses badly is not asked, but listened to. */
static void wrong_guesses_are_not_read(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 100);
    csn_experts *e = bank_store(&b, 8, CSN_EXPERT_IO_THREADS);
    assert_true(count_guesses(&b, e, true) > 60);
    assert_true(count_guesses(&b, e, false) > 0);
    (void)count_guesses(&b, e, false);
    assert_int_equal(count_guesses(&b, e, false), 0);
    assert_true(count_guesses(&b, e, true) > 0);
    csn_experts_free(e);
    bank_done(&b);
}

static void who_has_all_wants_no_guess(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 100);
    csn_experts *e = bank_store(&b, 16, CSN_EXPERT_IO_THREADS);
    for (int round = 0; round < 2; round++) { /* the second has all, until it is over */
        for (uint32_t i = 0; i < BANK_LAYERS; i++) {
            assert_true(csn_experts_wants_guesses(e));
            bank_use(&b, e, i, all_ids, 2);
        }
    }
    assert_false(csn_experts_wants_guesses(e));
    bank_use(&b, e, 0, all_ids + 2, 1);
    assert_true(csn_experts_wants_guesses(e));
    for (uint32_t i = 0; i < BANK_LAYERS; i++) {
        bank_use(&b, e, i, all_ids, 2);
    }
    assert_false(csn_experts_wants_guesses(e));
    csn_experts_ahead(e, 0, all_ids + 3, 1); /* what a guess has brought would have been missed */
    bank_wait(e);
    bank_use(&b, e, 0, all_ids + 3, 1);
    assert_true(csn_experts_wants_guesses(e));
    csn_experts_free(e);
    bank_done(&b);
}

/* What the list does not want is dropped, what it wants goes on: each byte is counted once. */
static void the_list_ends_its_guesses(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 8 << 20);
    uint64_t slot = bank_slot_bytes(&b);
    for (int k = 0; k < N_IO; k++) {
        csn_experts *e = bank_store(&b, 16, all_io[k]);
        static const uint32_t guess[] = {9, 2, 5};
        csn_experts_ahead(e, 1, guess, 3);
        bank_use(&b, e, 1, all_ids + 9, 1);
        bank_wait(e);
        csn_expert_stats s = stats_of(e);
        assert_int_equal(s.bytes + s.ahead_used_bytes, slot);
        assert_true(s.ahead_bytes >= s.ahead_used_bytes);
        csn_experts_free(e);
    }
    bank_done(&b);
}

/* Lists, guesses and budgets at random, every byte compared. */
static void any_order_gives_the_same_bytes(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 3, 3000);
    uint32_t seed = 12345;
    for (int k = 0; k < N_IO; k++) {
        for (uint32_t n_slots = 4; n_slots <= 48; n_slots += 11) {
            csn_experts *e = bank_store(&b, n_slots, all_io[k]);
            for (uint32_t i = 0; i < 200; i++) {
                uint32_t ids[BANK_EXPERTS];
                uint32_t n = 0;
                for (uint32_t x = 0; x < BANK_EXPERTS; x++) {
                    seed = seed * 1664525 + 1013904223;
                    if (seed >> 30 == 0) {
                        ids[n++] = x;
                    }
                }
                bank_use(&b, e, i % BANK_LAYERS, ids, n);
                if (i % 3 != 0) {
                    csn_experts_ahead(e, (i + 1) % BANK_LAYERS, ids, n);
                }
            }
            csn_experts_free(e);
        }
    }
    bank_done(&b);
}

static void a_list_may_be_left_half_way(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, (1 << 20) + 1);
    for (int k = 0; k < N_IO; k++) {
        csn_experts *e = bank_store(&b, 5, all_io[k]);
        for (uint32_t n_taken = 0; n_taken < 4; n_taken++) {
            const uint8_t *pieces[BANK_MAX_PIECES];
            uint32_t id;
            caisson_error err;
            csn_experts_want(e, 0, all_ids, 16, NULL);
            for (uint32_t i = 0; i < n_taken; i++) {
                ASSERT_OK(csn_experts_take(e, &id, pieces, &err), &err);
            }
            csn_experts_done(e);
        }
        bank_use(&b, e, 0, all_ids + 8, 4);
        csn_experts_free(e);
    }
    bank_done(&b);
}

static void shrinking_keeps_what_is_used(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 5000);
    csn_experts *e = bank_store(&b, 16, CSN_EXPERT_IO_AUTO);
    uint64_t slot = bank_slot_bytes(&b);
    for (int i = 0; i < 5; i++) {
        bank_use(&b, e, 0, all_ids, 4);
    }
    bank_use(&b, e, 1, all_ids, 12);
    assert_int_equal(csn_experts_shrink(e, 6 * slot), 6 * slot);
    assert_int_equal(csn_experts_shrink(e, 8 * slot), 6 * slot); /* never grows */
    assert_true(csn_experts_fits(e, 6));
    assert_false(csn_experts_fits(e, 7));
    uint64_t misses = stats_of(e).misses;
    bank_use(&b, e, 0, all_ids, 4);
    assert_int_equal(stats_of(e).misses, misses);
    bank_use(&b, e, 2, all_ids, 16);
    assert_int_equal(csn_experts_shrink(e, 0), 4 * slot);
    bank_use(&b, e, 2, all_ids, 16);
    csn_experts_free(e);
    bank_done(&b);
}

static void use_is_told_and_read_back(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 5000);
    csn_experts *e = bank_store(&b, 8, CSN_EXPERT_IO_AUTO);
    bank_use(&b, e, 0, all_ids, 2);
    bank_use(&b, e, 0, all_ids + 1, 1);
    bank_use(&b, e, 2, all_ids + 15, 1);
    csn_expert_use use[9];
    uint64_t clock;
    assert_int_equal(csn_experts_usage(e, use, 9, &clock), 3);
    assert_int_equal(clock, 4);
    uint32_t hits = 0;
    for (int i = 0; i < 3; i++) {
        hits += use[i].hits;
        if (use[i].i_layer == 0 && use[i].expert == 1) {
            assert_int_equal(use[i].hits, 2);
            assert_int_equal(use[i].last, 3);
        }
    }
    assert_int_equal(hits, 4);
    csn_experts_free(e);

    e = bank_store(&b, 8, CSN_EXPERT_IO_AUTO);
    use[3] = (csn_expert_use){.i_layer = BANK_LAYERS, .expert = 0, .hits = 9};
    use[4] = (csn_expert_use){.i_layer = 0, .expert = BANK_EXPERTS, .hits = 9};
    use[5] = use[0];
    caisson_error err;
    ASSERT_OK(csn_experts_preload(e, use, 6, &err), &err);
    assert_int_equal(csn_experts_usage(e, use, 9, &clock), 3);
    bank_use(&b, e, 0, all_ids, 2);
    bank_use(&b, e, 2, all_ids + 15, 1);
    assert_int_equal(stats_of(e).reads, 0);
    assert_int_equal(stats_of(e).hits, 3);
    csn_experts_free(e);
    bank_done(&b);
}

static caisson_status check_slowly(void *ctx, uint32_t i_layer, uint32_t expert,
                                   const uint8_t *const *pieces, caisson_error *err) {
    (void)ctx, (void)i_layer, (void)expert, (void)pieces, (void)err;
    (void)usleep(20000);
    return CAISSON_OK;
}

/* Read is not enough: what is still being checked cannot be taken. */
static void a_preload_waits_for_the_checks(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 5000);
    b.map.check = check_slowly;
    for (int k = 0; k < N_IO; k++) {
        csn_experts *e = bank_store(&b, 8, all_io[k]);
        csn_expert_use use[2] = {{.i_layer = 0, .expert = 1, .hits = 1},
                                 {.i_layer = 1, .expert = 2, .hits = 1}};
        uint64_t clock;
        caisson_error err;
        ASSERT_OK(csn_experts_preload(e, use, 2, &err), &err);
        assert_int_equal(csn_experts_usage(e, use, 2, &clock), 2);
        csn_experts_free(e);
    }
    bank_done(&b);
}

static void a_cache_too_small_is_refused(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 3, 5000);
    caisson_error err;
    uint64_t four, seven, all;
    ASSERT_OK(csn_expert_min_cache(&b.map, 2, &four, &err), &err);
    ASSERT_OK(csn_expert_min_cache(&b.map, 7, &seven, &err), &err);
    ASSERT_OK(csn_expert_min_cache(&b.map, UINT32_MAX, &all, &err), &err);
    assert_int_equal(seven, four / 4 * 7);
    assert_int_equal(all, four / 4 * BANK_LAYERS * BANK_EXPERTS); /* never more than there are */
    csn_experts *e = NULL;
    csn_expert_options o = {.cache_bytes = four - 1};
    ASSERT_STATUS(csn_experts_new(&b.map, &o, &e, &err), CAISSON_E_LIMIT);
    assert_int_equal(strtoull(err.want, NULL, 10), four);
    assert_int_equal(strtoull(err.got, NULL, 10), four - 1);
    o.cache_bytes = four;
    ASSERT_OK(csn_experts_new(&b.map, &o, &e, &err), &err);
    csn_experts_free(e);
    b.pieces[7].offset = UINT64_MAX - 10;
    ASSERT_STATUS(csn_expert_min_cache(&b.map, 2, &four, &err), CAISSON_E_BOUNDS);
    ASSERT_STATUS(csn_experts_new(&b.map, &o, &e, &err), CAISSON_E_BOUNDS);
    bank_done(&b);
}

static void the_way_of_reading_is_told(void **state) {
    (void)state;
    expert_bank b;
    bank_make(&b, csn_fs_os(), 1, 5000);
    csn_expert_options o = {.cache_bytes = 4 * bank_slot_bytes(&b), .io = CSN_EXPERT_IO_URING};
    csn_experts *e = NULL;
    caisson_error err;
    caisson_status status = csn_experts_new(&b.map, &o, &e, &err);
    if (status == CAISSON_OK) {
        assert_memory_equal(csn_experts_io_text(e), "io_uring, ", 10);
        csn_experts_free(e);
    } else {
        ASSERT_STATUS(status, CAISSON_E_UNSUPPORTED);
        print_message("no io_uring here: %s\n", err.what);
    }
    e = bank_store(&b, 4, CSN_EXPERT_IO_BUFFERED);
    assert_string_equal(csn_experts_io_text(e), "4 readers, buffered");
    csn_experts_free(e);
    e = bank_store(&b, 4, CSN_EXPERT_IO_THREADS);
    assert_non_null(strstr(csn_experts_io_text(e), "4 readers, "));
    csn_experts_free(e);
    bank_done(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_expert_has_its_own_bytes),
        cmocka_unit_test(a_list_longer_than_the_cache_reads_each_expert_once),
        cmocka_unit_test(experts_in_memory_stay_for_the_list_that_wants_them),
        cmocka_unit_test(what_is_used_often_stays),
        cmocka_unit_test(a_circle_larger_than_the_cache_still_hits),
        cmocka_unit_test(take_any_gives_what_is_in_memory_first),
        cmocka_unit_test(guesses_are_counted_apart),
        cmocka_unit_test(a_guess_pushes_nothing_useful_out),
        cmocka_unit_test(wrong_guesses_are_not_read),
        cmocka_unit_test(who_has_all_wants_no_guess),
        cmocka_unit_test(the_list_ends_its_guesses),
        cmocka_unit_test(any_order_gives_the_same_bytes),
        cmocka_unit_test(a_list_may_be_left_half_way),
        cmocka_unit_test(shrinking_keeps_what_is_used),
        cmocka_unit_test(use_is_told_and_read_back),
        cmocka_unit_test(a_preload_waits_for_the_checks),
        cmocka_unit_test(a_cache_too_small_is_refused),
        cmocka_unit_test(the_way_of_reading_is_told),
    };
    return cmocka_run_group_tests_name("store experts", tests, temp_dir_make, temp_dir_remove);
}
