/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that are read from a disk that fails: an error that names the tensor, and with it the
 * layer, and a store that works on. */
#include "unit/test.h"

#include <stdio.h>
#include <unistd.h>

#include "fault/faulty_fs.h"
#include "store/trunk.h"
#include "support/warp_golden.h"

#define CONTAINER CSN_SOURCE_DIR "/tests/golden/warp/vq3r-base.waste"

static csn_store *open_store(csn_fs *fs, bool verify) {
    caisson_error err;
    csn_warp *w;
    csn_store *store;
    csn_trunk *trunk;
    ASSERT_OK(csn_warp_open(fs, CONTAINER, NULL, &w, &err), &err);
    ASSERT_OK(csn_store_new_warp(w, &(csn_store_options){.verify = verify}, &store, &err), &err);
    ASSERT_OK(csn_trunk_new(store, false, &trunk, &err), &err);
    csn_store_set_trunk(store, trunk);
    return store;
}

static void start(csn_store *store, csn_expert_io io) {
    caisson_error err;
    csn_trunk *t = csn_store_trunk(store);
    ASSERT_OK(csn_trunk_start(t, csn_trunk_min_bytes(t), io, &err), &err);
}

static uint32_t n_parts(csn_store *store) {
    return csn_store_arch(store)->n_layers + 1;
}

/* What part i holds is what the file holds. */
static void check_part(csn_store *store, csn_store *whole, uint32_t i) {
    const csn_directory *dir = csn_store_dir(store);
    char prefix[32];
    uint32_t n = 0;
    (void)snprintf(prefix, sizeof(prefix), "model.layers.%u.", (unsigned)i);
    for (uint32_t k = 0; k < dir->n; k++) {
        const uint8_t *got = csn_trunk_address(csn_store_trunk(store), k);
        caisson_error err;
        csn_matrix want;
        bool is_of_part = i + 1 == n_parts(store)
                              ? csn_str_is(dir->tensors[k].name, "lm_head.weight")
                              : csn_str_starts(dir->tensors[k].name, csn_str_from(prefix));
        if (got != NULL && is_of_part) {
            ASSERT_OK(csn_store_matrix(whole, dir->tensors[k].name, &want, &err), &err);
            assert_memory_equal(got, want.data, want.nbytes);
            n++;
        }
    }
    assert_true(n > 0);
}

/* In the order of the part's memory. */
static const char *first_tensor_of(csn_store *store, uint32_t i) {
    static char name[160];
    const csn_directory *dir = csn_store_dir(store);
    const uint8_t *first = NULL;
    char prefix[32];
    (void)snprintf(prefix, sizeof(prefix), "model.layers.%u.", (unsigned)i);
    for (uint32_t k = 0; k < dir->n; k++) {
        const uint8_t *at = csn_trunk_address(csn_store_trunk(store), k);
        if (at != NULL && csn_str_starts(dir->tensors[k].name, csn_str_from(prefix)) &&
            (first == NULL || at < first)) {
            first = at;
            (void)snprintf(name, sizeof(name), "%.*s", CSN_STR_ARGS(dir->tensors[k].name));
        }
    }
    return name;
}

static void every_read_that_fails_names_its_layer(void **state) {
    (void)state;
    csn_store *whole = open_store(csn_fs_os(), false);
    for (int buffered = 0; buffered < 2; buffered++) {
        faulty_fs f;
        caisson_status status = CAISSON_E_IO;
        faulty_fs_init(&f, csn_fs_os());
        f.kinds = FAULTY_READ;
        for (int64_t at = 0; status != CAISSON_OK; at++) {
            caisson_error err;
            csn_store *store = open_store(&f.base, false);
            csn_trunk *t = csn_store_trunk(store);
            start(store, buffered ? CSN_EXPERT_IO_BUFFERED : CSN_EXPERT_IO_AUTO);
            f.n = 0;
            f.fail_at = at;
            status = csn_trunk_use(t, 1, 1, NULL, &err);
            f.fail_at = -1;
            if (status != CAISSON_OK) {
                ASSERT_STATUS(status, CAISSON_E_IO);
                assert_int_equal(err.sys_errno, EIO);
                assert_string_equal(err.section, "trunk");
                assert_memory_equal(err.tensor, "model.layers.1.", 15);
                assert_non_null(strstr(err.file, "trunk.bin"));
            } else {
                assert_true(at > 3);
            }
            for (uint32_t i = 0; i < n_parts(store); i++) {
                ASSERT_OK(csn_trunk_use(t, i, (i + 1) % n_parts(store), NULL, &err), &err);
                check_part(store, whole, i);
            }
            csn_store_free(store);
        }
        assert_int_equal(f.n_open, 0);
    }
    csn_store_free(whole);
}

static void a_part_read_ahead_in_vain_is_read_again(void **state) {
    (void)state;
    faulty_fs f;
    caisson_error err;
    faulty_fs_init(&f, csn_fs_os());
    f.kinds = FAULTY_READ;
    csn_store *store = open_store(&f.base, false);
    csn_store *whole = open_store(csn_fs_os(), false);
    csn_trunk *t = csn_store_trunk(store);
    start(store, CSN_EXPERT_IO_AUTO);
    ASSERT_OK(csn_trunk_use(t, 0, 0, NULL, &err), &err);
    f.n = 0;
    f.fail_at = 0;
    ASSERT_OK(csn_trunk_use(t, 0, 1, NULL, &err), &err);
    while (f.n == 0) {
        (void)usleep(1000);
    }
    f.fail_at = -1;
    caisson_status status = csn_trunk_use(t, 1, 2, NULL, &err); /* too early to be told apart */
    assert_true(status == CAISSON_OK || err.sys_errno == EIO);
    ASSERT_OK(csn_trunk_use(t, 1, 2, NULL, &err), &err);
    check_part(store, whole, 1);
    csn_store_free(store);
    csn_store_free(whole);
}

static void short_reads_are_put_together(void **state) {
    static const size_t shorts[] = {100, 4096, 5000};
    (void)state;
    csn_store *whole = open_store(csn_fs_os(), false);
    for (int i = 0; i < 3; i++) {
        faulty_fs f;
        caisson_error err;
        faulty_fs_init(&f, csn_fs_os());
        csn_store *store = open_store(&f.base, false);
        start(store, CSN_EXPERT_IO_AUTO);
        f.short_by = shorts[i];
        ASSERT_OK(csn_trunk_use(csn_store_trunk(store), 2, 2, NULL, &err), &err);
        check_part(store, whole, 2);
        csn_store_free(store);
    }
    csn_store_free(whole);
}

static void where_direct_reads_are_refused_the_page_cache_serves(void **state) {
    (void)state;
    csn_store *whole = open_store(csn_fs_os(), false);
    for (int kind = 0; kind < 2; kind++) { /* the open refuses; the open works, its read fails */
        faulty_fs f;
        caisson_error err;
        faulty_fs_init(&f, csn_fs_os());
        csn_store *store = open_store(&f.base, false);
        f.kinds = kind == 0 ? FAULTY_DIRECT : FAULTY_READ;
        f.n = 0;
        f.fail_at = 0;
        start(store, CSN_EXPERT_IO_AUTO);
        assert_memory_equal(csn_trunk_io_text(csn_store_trunk(store)), "buffered: ", 10);
        ASSERT_OK(csn_trunk_use(csn_store_trunk(store), 1, 1, NULL, &err), &err);
        check_part(store, whole, 1);
        csn_store_free(store);
    }
    csn_store_free(whole);
}

static bool let_go(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    (void)done;
    (void)total;
    ((faulty_fs *)ctx)->stall = false;
    return true;
}

/* The first block fails while nobody awaits the part, the others once somebody does. */
static void a_part_that_half_failed_untold_names_its_first_tensor(void **state) {
    (void)state;
    faulty_fs f;
    caisson_error err;
    faulty_fs_init(&f, csn_fs_os());
    f.kinds = FAULTY_READ;
    csn_store *store = open_store(&f.base, false);
    csn_trunk *t = csn_store_trunk(store);
    start(store, CSN_EXPERT_IO_BUFFERED);
    ASSERT_OK(csn_trunk_use(t, 0, 0, NULL, &err), &err);
    const char *first = first_tensor_of(store, 1);
    f.n = 0;
    f.fail_at = 0;
    f.stays_broken = true;
    f.stall = true;
    ASSERT_OK(csn_trunk_use(t, 0, 1, NULL, &err), &err);
    while (f.n_held < 2) {
        (void)usleep(1000);
    }
    f.stall_from = csn_directory_find(csn_store_dir(store), csn_str_from(first))->offset + 1;
    while (f.n == 0) {
        (void)usleep(1000);
    }
    (void)usleep(20000); /* the part hears of it */
    csn_progress progress = {let_go, &f};
    ASSERT_STATUS(csn_trunk_use(t, 1, 2, &progress, &err), CAISSON_E_IO);
    assert_string_equal(err.tensor, first);
    csn_store_free(store);
}

/* Whichever of the two is told of first, and whatever fails of it. */
static void of_two_layers_that_fail_the_one_that_is_wanted_is_named(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++) {
        faulty_fs f;
        caisson_error err;
        faulty_fs_init(&f, csn_fs_os());
        f.kinds = FAULTY_READ;
        csn_store *store = open_store(&f.base, false);
        csn_trunk *t = csn_store_trunk(store);
        start(store, i % 2 == 0 ? CSN_EXPERT_IO_AUTO : CSN_EXPERT_IO_BUFFERED);
        f.n = 0;
        f.fail_at = 0;
        f.stays_broken = true;
        for (uint32_t part = 1; part < 3; part++) {
            ASSERT_STATUS(csn_trunk_use(t, part, part + 1, NULL, &err), CAISSON_E_IO);
            assert_string_equal(err.tensor, first_tensor_of(store, part));
        }
        f.fail_at = -1;
        ASSERT_OK(csn_trunk_use(t, 1, 2, NULL, &err), &err);
        csn_store_free(store);
    }
}

/* Each time that it is read, by the digests that lie beside the trunk; without them nothing is
 * compared. */
static void with_verify_a_layer_is_compared_whenever_it_is_read(void **state) {
    (void)state;
    for (int has_digests = 0; has_digests < 2; has_digests++) {
        memory_fs fs;
        caisson_error err;
        csn_warp *w;
        csn_store *store;
        csn_trunk *t;
        memory_fs_init(&fs);
        warp_load(&fs, "vq3r-base.waste");
        ASSERT_OK(csn_warp_open(&fs.base, "m.waste", NULL, &w, &err), &err);
        if (has_digests) {
            ASSERT_OK(csn_warp_write_digests(w, NULL, &err), &err);
        }
        ASSERT_OK(csn_store_new_warp(w, &(csn_store_options){0}, &store, &err), &err);
        ASSERT_OK(csn_trunk_new(store, true, &t, &err), &err);
        csn_store_set_trunk(store, t);
        start(store, CSN_EXPERT_IO_BUFFERED);
        for (int i = 0; i < 2; i++) {
            ASSERT_OK(csn_trunk_use(t, 0, 0, NULL, &err), &err);
            ASSERT_OK(csn_trunk_use(t, 2, 2, NULL, &err), &err);
        }
        const csn_tensor *damaged =
            csn_directory_find(csn_store_dir(store), csn_str_from(first_tensor_of(store, 0)));
        warp_node(&fs, "trunk.bin")->bytes[damaged->offset + 5] ^= 1;
        ASSERT_STATUS(csn_trunk_use(t, 0, 0, NULL, &err),
                      has_digests ? CAISSON_E_HASH : CAISSON_OK);
        if (has_digests) {
            assert_string_equal(err.tensor, first_tensor_of(store, 0));
        }
        warp_node(&fs, "trunk.bin")->bytes[damaged->offset + 5] ^= 1;
        ASSERT_OK(csn_trunk_use(t, 2, 2, NULL, &err), &err);
        ASSERT_OK(csn_trunk_use(t, 0, 0, NULL, &err), &err);
        csn_store_free(store);
        memory_fs_done(&fs);
    }
}

static bool stop(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    (void)done;
    (void)total;
    return ++*(int *)ctx < 3;
}

static void a_silent_disk_and_a_host_that_gives_up(void **state) {
    (void)state;
    faulty_fs f;
    caisson_error err;
    int n_asked = 0;
    faulty_fs_init(&f, csn_fs_os());
    csn_store *store = open_store(&f.base, false);
    csn_store *whole = open_store(csn_fs_os(), false);
    csn_trunk *t = csn_store_trunk(store);
    start(store, CSN_EXPERT_IO_AUTO);
    csn_trunk_set_stall(t, 200);
    f.stall = true;
    ASSERT_STATUS(csn_trunk_use(t, 1, 2, NULL, &err), CAISSON_E_IO);
    assert_int_equal(strtoull(err.want, NULL, 10), 200);
    csn_progress progress = {stop, &n_asked};
    ASSERT_STATUS(csn_trunk_use(t, 1, 2, &progress, &err), CAISSON_E_CANCELLED);
    f.stall = false;
    csn_trunk_set_stall(t, 60000); /* a busy machine is silent, too */
    ASSERT_OK(csn_trunk_use(t, 1, 2, NULL, &err), &err);
    check_part(store, whole, 1);
    csn_store_free(store);
    csn_store_free(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_read_that_fails_names_its_layer),
        cmocka_unit_test(a_part_read_ahead_in_vain_is_read_again),
        cmocka_unit_test(short_reads_are_put_together),
        cmocka_unit_test(where_direct_reads_are_refused_the_page_cache_serves),
        cmocka_unit_test(a_part_that_half_failed_untold_names_its_first_tensor),
        cmocka_unit_test(of_two_layers_that_fail_the_one_that_is_wanted_is_named),
        cmocka_unit_test(with_verify_a_layer_is_compared_whenever_it_is_read),
        cmocka_unit_test(a_silent_disk_and_a_host_that_gives_up),
    };
    return cmocka_run_group_tests_name("fault trunk", tests, NULL, NULL);
}
