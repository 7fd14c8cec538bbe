/* SPDX-License-Identifier: Apache-2.0 */
/* Does verify find and name what was damaged? Flips single bits and swaps pairs of 8-byte words,
 * one at a time, in every section and tensor in turn, and puts each right again. The full count
 * takes some minutes on a file of 137 MB; the suite runs a small one
 * (tests/unit/cmf/test_digests.c).
 *
 *   build/dev/bench/bench_damage COPY.cmf [--flips 10000] [--swaps 1000] [--threads 2]
 *
 * {"flips":10000,"flips_named":N,"swaps":1000,"swaps_named":N,"parts":P}      The file is changed
 * in place: give it a copy. Sections without a digest of their own (the header) get no swaps. */
#include <fcntl.h>
#include <unistd.h>

#include "bench.h"
#include "format/cmf/cmf.h"

struct part {
    const char *section;
    csn_str tensor;
    uint64_t offset, nbytes;
    bool is_ordered; /* a digest sees the order of its words */
};

struct seen {
    uint64_t n;
    caisson_error first;
};

static uint64_t state = 1;

static uint64_t below(uint64_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 24) % n;
}

static void keep(void *ctx, const caisson_error *fault) {
    struct seen *s = ctx;
    if (s->n++ == 0) {
        s->first = *fault;
    }
}

/* Exactly one fault, and it is that part. A part that open checks is named by its error. */
static bool is_named(csn_cmf *c, const char *path, csn_pool *pool, const struct part *p) {
    struct seen s = {0};
    uint64_t n;
    caisson_error err;
    csn_cmf *again = NULL;
    if (strcmp(p->section, "header") == 0 || strcmp(p->section, "directory") == 0) {
        if (csn_cmf_open(csn_fs_os(), path, &again, &err) != CAISSON_OK) {
            /* swapped words pass the hash; what the records then say may be refused for itself */
            return strcmp(err.section, p->section) == 0 || err.tensor[0] != '\0';
        }
        c = again;
    }
    bool ok = csn_cmf_verify(c, pool, NULL, keep, &s, &n, &err) == CAISSON_OK && s.n >= 1 &&
              strcmp(s.first.section, p->section) == 0 && csn_str_is(p->tensor, s.first.tensor) &&
              s.first.offset == p->offset && s.first.n_bytes == p->nbytes;
    csn_cmf_close(again);
    return ok;
}

static bool put(int fd, uint64_t at, const void *bytes, size_t n) {
    return pwrite(fd, bytes, n, (off_t)at) == (ssize_t)n;
}
static bool get(int fd, uint64_t at, void *bytes, size_t n) {
    return pread(fd, bytes, n, (off_t)at) == (ssize_t)n;
}

/* -1: the file could not be changed. */
static int flip(csn_cmf *c, const char *path, int fd, csn_pool *pool, const struct part *p) {
    uint64_t at = p->offset + below(p->nbytes);
    uint8_t byte;
    if (!get(fd, at, &byte, 1)) {
        return -1;
    }
    uint8_t bad = (uint8_t)(byte ^ 1u << below(8));
    if (!put(fd, at, &bad, 1)) {
        return -1;
    }
    bool ok = is_named(c, path, pool, p);
    return put(fd, at, &byte, 1) ? ok : -1;
}

static int swap(csn_cmf *c, const char *path, int fd, csn_pool *pool, const struct part *p) {
    uint64_t at[2];
    uint8_t w[2][8];
    int tries = 0;
    do {
        for (int i = 0; i < 2; i++) {
            at[i] = p->offset + below(p->nbytes / 8) * 8;
            if (!get(fd, at[i], w[i], 8)) {
                return -1;
            }
        }
    } while (memcmp(w[0], w[1], 8) == 0 && ++tries < 1000);
    if (tries == 1000) {
        return 2; /* all its words are equal */
    }
    if (!put(fd, at[0], w[1], 8) || !put(fd, at[1], w[0], 8)) {
        return -1;
    }
    bool ok = is_named(c, path, pool, p);
    return put(fd, at[0], w[0], 8) && put(fd, at[1], w[1], 8) ? ok : -1;
}

static size_t list_parts(const csn_cmf *c, struct part *ret) {
    size_t n = 0;
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        if (i != CSN_CMF_DATA && c->envelope.len[i] > 0) {
            ret[n++] = (struct part){csn_cmf_section_names[i], CSN_STR(""), c->envelope.off[i],
                                     c->envelope.len[i], c->section_digest[i] != NULL};
        }
    }
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        if (t->nbytes > 0) {
            ret[n++] = (struct part){csn_cmf_section_names[CSN_CMF_DATA], t->name, t->offset,
                                     t->nbytes, c->tensor_digests != NULL};
        }
    }
    return n;
}

int main(int argc, char **argv) {
    int n_flips = (int)bench_arg(argc, argv, "--flips", 10000);
    int n_swaps = (int)bench_arg(argc, argv, "--swaps", 1000);
    csn_pool *pool = NULL;
    csn_cmf *c = NULL;
    caisson_error err;
    int fd = argc < 2 ? -1 : open(argv[1], O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        (void)fprintf(stderr,
                      "usage: bench_damage COPY.cmf [--flips N] [--swaps N] [--threads N]\n");
        return 2;
    }
    if (csn_pool_new((unsigned)bench_arg(argc, argv, "--threads", 2), &pool, &err) != CAISSON_OK ||
        csn_cmf_open(csn_fs_os(), argv[1], &c, &err) != CAISSON_OK) {
        char line[1024];
        (void)fprintf(stderr, "%s\n", caisson_error_format(&err, line, sizeof(line)));
        return 1;
    }
    struct part *parts = bench_alloc((c->dir.n + CSN_CMF_N_SECTIONS) * sizeof(*parts));
    size_t n_parts = list_parts(c, parts);
    int named[2] = {0, 0};
    int done[2] = {0, 0};
    for (int kind = 0; kind < 2; kind++) {
        size_t skipped = 0;
        for (size_t k = 0; done[kind] < (kind == 0 ? n_flips : n_swaps); k++) {
            const struct part *p = &parts[k % n_parts];
            if (skipped > n_parts) {
                break; /* nothing here can be swapped */
            }
            if (kind == 1 && (!p->is_ordered || p->nbytes < 16)) {
                skipped++;
                continue;
            }
            int r = kind == 0 ? flip(c, argv[1], fd, pool, p) : swap(c, argv[1], fd, pool, p);
            if (r < 0) {
                perror(argv[1]);
                return 1;
            }
            skipped = r == 2 ? skipped + 1 : 0;
            done[kind] += r != 2;
            named[kind] += r == 1;
            if (r == 0) {
                (void)fprintf(stderr, "not named: %s %s %.*s\n", kind == 0 ? "flip" : "swap",
                              p->section, CSN_STR_ARGS(p->tensor));
            }
        }
    }
    printf("{\"flips\":%d,\"flips_named\":%d,\"swaps\":%d,\"swaps_named\":%d,\"parts\":%zu}\n",
           done[0], named[0], done[1], named[1], n_parts);
    csn_cmf_close(c);
    csn_pool_free(pool);
    (void)close(fd);
    return named[0] == done[0] && named[1] == done[1] ? 0 : 1;
}
