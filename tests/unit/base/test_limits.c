/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test.h"

#include <sys/resource.h>

#include "base/limits.h"
#include "support/temp_dir.h"

static char root[512];

/* A file below the root of control groups; its directories are made. NULL removes it. */
static void put(const char *path, const char *text) {
    char full[1024];
    (void)snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *p = strchr(full + strlen(root) + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        (void)mkdir(full, 0777);
        *p = '/';
    }
    if (text == NULL) {
        assert_int_equal(remove(full), 0);
        return;
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The limit of a process whose /proc/self/cgroup says so. */
static uint64_t limit_of(const char *self_text) {
    char self[640];
    (void)snprintf(self, sizeof(self), "%s/self", root);
    FILE *f = fopen(self, "w");
    assert_non_null(f);
    assert_true(fputs(self_text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return csn_cgroup_memory_limit(root, self);
}

static int make_root(void **state) {
    (void)state;
    (void)snprintf(root, sizeof(root), "%s", temp_path("cgroup"));
    return mkdir(root, 0777);
}

static int remove_root(void **state) {
    (void)state;
    char command[600];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command); // NOLINT(cert-env33-c): our own path
}

#define NONE UINT64_MAX
#define US "0::/a/b\n"

static void no_file_is_no_limit(void **state) {
    (void)state;
    assert_true(limit_of(US) == NONE);
    put("a/b/cgroup.procs", "");
    assert_true(limit_of(US) == NONE);
}

static void the_leaf_limits(void **state) {
    (void)state;
    put("a/b/memory.max", "1000\n");
    assert_int_equal(limit_of(US), 1000);
    put("a/b/memory.max", "1000"); /* no newline */
    assert_int_equal(limit_of(US), 1000);
}

static void a_parent_limits_a_leaf_without(void **state) {
    (void)state;
    put("a/b/memory.max", "max\n");
    put("a/memory.max", "2000\n");
    assert_int_equal(limit_of(US), 2000);
}

static void the_smaller_of_leaf_and_parent(void **state) {
    (void)state;
    put("a/b/memory.max", "1000\n");
    put("a/memory.max", "2000\n");
    assert_int_equal(limit_of(US), 1000);
    put("a/b/memory.max", "3000\n");
    assert_int_equal(limit_of(US), 2000);
}

static void memory_high_counts_too(void **state) {
    (void)state;
    put("a/b/memory.max", "5000\n");
    put("a/b/memory.high", "4000\n");
    assert_int_equal(limit_of(US), 4000);
    put("a/memory.high", "3000\n");
    assert_int_equal(limit_of(US), 3000);
}

static void the_root_counts_where_the_path_is_not_there(void **state) {
    (void)state;
    put("memory.max", "7000\n");
    assert_int_equal(limit_of("0::/system.slice/docker-123.scope\n"), 7000);
    assert_int_equal(limit_of("0::/\n"), 7000);
    assert_int_equal(limit_of(""), 7000); /* no line of version 2 */
    assert_int_equal(limit_of("1:name=systemd:/x\n"), 7000);
    assert_int_equal(csn_cgroup_memory_limit(root, NULL), 7000);
    assert_int_equal(csn_cgroup_memory_limit(root, "/nowhere/self"), 7000);
}

static void what_is_no_number_is_no_limit(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",        "\n",        "max\n", "none\n",  "-5\n",
        "12 34\n", "1000 kB\n", "1e9\n", "0x100\n", "99999999999999999999999\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put("a/b/memory.max", texts[i]);
        assert_true(limit_of(US) == NONE);
    }
}

static void a_path_that_leads_out_is_not_followed(void **state) {
    (void)state;
    put("memory.max", "9000\n");
    put("a/memory.max", "100\n");
    assert_int_equal(limit_of("0::/b/../a\n"), 9000);
    assert_int_equal(limit_of("0::/..\n"), 9000);
    assert_int_equal(limit_of("0::a\n"), 9000);
    put("a..b/memory.max", "50\n"); /* a name like any other */
    assert_int_equal(limit_of("0::/a..b\n"), 50);
}

static void a_slash_at_the_end_changes_nothing(void **state) {
    (void)state;
    put("a/b/memory.max", "1000\n");
    assert_int_equal(limit_of("0::/a/b/\n"), 1000);
    assert_int_equal(limit_of("0::/a/b"), 1000);
}

static void without_a_root_there_is_no_limit(void **state) {
    (void)state;
    assert_true(csn_cgroup_memory_limit(NULL, "/proc/self/cgroup") == NONE);
    assert_true(csn_cgroup_memory_limit("", "/proc/self/cgroup") == NONE);
}

static void version_1_has_a_tree_of_its_own(void **state) {
    (void)state;
    put("memory/a/b/memory.limit_in_bytes", "1000\n");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n"); /* how it says "none" */
    assert_int_equal(limit_of("4:memory:/a/b\n"), 1000);
    assert_int_equal(limit_of("11:cpu,memory:/a/b\n3:pids:/c\n"), 1000);
    assert_true(limit_of("5:memoryx,xmemory:/a/b\n") >= UINT64_C(1) << 62);
    put("memory/a/memory.limit_in_bytes", "600\n");
    assert_int_equal(limit_of("4:memory:/a/b\n"), 600);
    put("a/memory.max", "500\n"); /* both at once */
    assert_int_equal(limit_of("4:memory:/a/b\n0::/a\n"), 500);
}

static void our_own_limits_count(void **state) {
    (void)state;
    csn_memory_limit before = csn_memory_limit_get();
    assert_true(before.bytes > 0 && before.bytes < NONE);
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_DATA, &old), 0);
    struct rlimit r = {.rlim_cur = before.bytes - 4096, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &r), 0);
    struct rlimit set;
    assert_int_equal(getrlimit(RLIMIT_DATA, &set), 0);
    if (set.rlim_cur != r.rlim_cur) {
        skip(); /* qemu-user says yes and does nothing */
    }
    csn_memory_limit now = csn_memory_limit_get();
    assert_int_equal(setrlimit(RLIMIT_DATA, &old), 0);
    assert_int_equal(now.bytes, before.bytes - 4096);
    assert_string_equal(now.by, "RLIMIT_DATA");
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(no_file_is_no_limit),
        CASE(the_leaf_limits),
        CASE(a_parent_limits_a_leaf_without),
        CASE(the_smaller_of_leaf_and_parent),
        CASE(memory_high_counts_too),
        CASE(the_root_counts_where_the_path_is_not_there),
        CASE(what_is_no_number_is_no_limit),
        CASE(a_path_that_leads_out_is_not_followed),
        CASE(a_slash_at_the_end_changes_nothing),
        CASE(without_a_root_there_is_no_limit),
        CASE(version_1_has_a_tree_of_its_own),
        CASE(our_own_limits_count),
    };
    return cmocka_run_group_tests_name("base limits", tests, temp_dir_make, temp_dir_remove);
}
