/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/str.h"

enum { MAX_PATH = 4096 };

/* One version of control groups: where its tree begins under the root, and its files. */
typedef struct hierarchy {
    const char *dir; /* "" or "/memory" */
    const char *const *files;
} hierarchy;

static const char *const v2_files[] = {"memory.max", "memory.high", NULL};
static const char *const v1_files[] = {"memory.limit_in_bytes", NULL};
static const hierarchy v2 = {"", v2_files};
static const hierarchy v1 = {"/memory", v1_files};

/* The number in a file of one line; UINT64_MAX: none, "max", or anything else. */
static uint64_t read_limit(const char *path) {
    char text[64];
    uint64_t v;
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return UINT64_MAX;
    }
    size_t n = fread(text, 1, sizeof(text), f);
    (void)fclose(f);
    if (n > 0 && text[n - 1] == '\n') {
        n--;
    }
    return csn_str_to_u64(csn_str_make(text, n), &v) ? v : UINT64_MAX;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The smallest limit of the group and of all above it, up to the root of the hierarchy. */
static uint64_t walk_up(const char *root, const hierarchy *h, const char *group) {
    char path[MAX_PATH];
    uint64_t limit = UINT64_MAX;
    size_t n_group = strlen(group);
    while (n_group > 0 && group[n_group - 1] == '/') {
        n_group--;
    }
    for (;;) {
        for (int i = 0; h->files[i] != NULL; i++) {
            int n = snprintf(path, sizeof(path), "%s%s%.*s/%s", root, h->dir, (int)n_group, group,
                             h->files[i]);
            if (n > 0 && (size_t)n < sizeof(path)) {
                limit = smaller(limit, read_limit(path));
            }
        }
        if (n_group == 0) {
            return limit;
        }
        do {
            n_group--;
        } while (n_group > 0 && group[n_group] != '/');
    }
}

static bool leads_out(const char *group) {
    for (const char *p = strstr(group, ".."); p != NULL; p = strstr(p + 2, "..")) {
        if ((p == group || p[-1] == '/') && (p[2] == '\0' || p[2] == '/')) {
            return true;
        }
    }
    return group[0] != '/';
}

/* True if the comma-separated list holds the word "memory". */
static bool names_memory(const char *list, size_t n) {
    for (size_t at = 0; at <= n;) {
        const char *comma = memchr(list + at, ',', n - at);
        size_t end = comma != NULL ? (size_t)(comma - list) : n;
        if (csn_str_is(csn_str_make(list + at, end - at), "memory")) {
            return true;
        }
        at = end + 1;
    }
    return false;
}

/* A line "0::/GROUP" is of version 2, "N:...,memory,...:/GROUP" of version 1. */
static uint64_t line_limit(const char *root, char *line) {
    line[strcspn(line, "\n")] = '\0';
    char *names = strchr(line, ':');
    char *group = names != NULL ? strchr(names + 1, ':') : NULL;
    if (group == NULL) {
        return UINT64_MAX;
    }
    size_t n_names = (size_t)(group - names) - 1;
    group++;
    if (leads_out(group)) {
        return UINT64_MAX;
    }
    if (n_names == 0) {
        return walk_up(root, &v2, group);
    }
    return names_memory(names + 1, n_names) ? walk_up(root, &v1, group) : UINT64_MAX;
}

uint64_t csn_cgroup_memory_limit(const char *root, const char *self) {
    if (root == NULL || root[0] == '\0') {
        return UINT64_MAX;
    }
    uint64_t limit = smaller(walk_up(root, &v2, ""), walk_up(root, &v1, ""));
    FILE *f = self != NULL ? fopen(self, "re") : NULL;
    if (f == NULL) {
        return limit;
    }
    char line[MAX_PATH];
    while (fgets(line, sizeof(line), f) != NULL) {
        limit = smaller(limit, line_limit(root, line));
    }
    (void)fclose(f);
    return limit;
}

static void consider(csn_memory_limit *limit, uint64_t bytes, const char *by) {
    if (bytes < limit->bytes) {
        *limit = (csn_memory_limit){bytes, by};
    }
}

static uint64_t own_limit(int resource) {
    struct rlimit r;
    return getrlimit(resource, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? (uint64_t)r.rlim_cur
                                                                       : UINT64_MAX;
}

csn_memory_limit csn_memory_limit_get(void) {
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    csn_memory_limit limit = {UINT64_MAX, "machine"};
    if (pages > 0 && page_bytes > 0) {
        consider(&limit, (uint64_t)pages * (uint64_t)page_bytes, "machine");
    }
    consider(&limit, csn_cgroup_memory_limit("/sys/fs/cgroup", "/proc/self/cgroup"),
             "control group");
    consider(&limit, own_limit(RLIMIT_AS), "RLIMIT_AS");
    consider(&limit, own_limit(RLIMIT_DATA), "RLIMIT_DATA");
    return limit;
}
