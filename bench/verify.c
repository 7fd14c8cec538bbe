/* SPDX-License-Identifier: Apache-2.0 */
/* verify of a file in the page cache against plain reads of it in blocks of 128 KiB, the same
 * threads, pass by pass in turn: with hash64 alone, and with the second digest if the file has one.
 *
 *   build/dev/bench/bench_verify FILE.cmf [--threads 2] [--seconds 5]
 *
 * {"threads":2,"bytes":B,"passes":N,"pread_gb_s":P,
 *  "hash64":{"gb_s":V,"ratio":V/P,"ratio_median":M,"ratio_cpu":C,"ratio_cpu_median":D},
 *  "both":{...}}
 *
 * P and V are of the best pass, M of the median passes. C and D compare the CPU time of all threads
 * instead: what remains of the figure when other processes have the machine as well. */
#include <fcntl.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "format/cmf/cmf.h"

enum { READ = 128 << 10 };

struct plain {
    int fd;
    uint64_t size;
    _Atomic uint64_t next;
    uint8_t *buffers;
};

static void read_plain(void *ctx, unsigned i_thread, unsigned n_threads) {
    (void)n_threads;
    struct plain *p = ctx;
    for (;;) {
        uint64_t at = atomic_fetch_add(&p->next, READ);
        if (at >= p->size ||
            pread(p->fd, p->buffers + (size_t)i_thread * READ, READ, (off_t)at) < 0) {
            return;
        }
    }
}

static void ignore_fault(void *ctx, const caisson_error *fault) {
    (void)ctx;
    (void)fault;
}

/* Seconds of each pass, by the clock and of all threads' CPU time. */
struct times {
    double wall[BENCH_MAX_PASSES], cpu[BENCH_MAX_PASSES];
    int n;
    double wall0, cpu0;
};

static double cpu_now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void begin(struct times *k) {
    k->wall0 = (double)csn_now_ns() * 1e-9;
    k->cpu0 = cpu_now();
}

static double end(struct times *k) {
    k->cpu[k->n] = cpu_now() - k->cpu0;
    k->wall[k->n] = (double)csn_now_ns() * 1e-9 - k->wall0;
    return k->wall[k->n++];
}

static void sort(struct times *k) {
    qsort(k->wall, (size_t)k->n, sizeof(k->wall[0]), bench_cmp);
    qsort(k->cpu, (size_t)k->n, sizeof(k->cpu[0]), bench_cmp);
}

static int fail(const caisson_error *err) {
    char line[1024];
    (void)fprintf(stderr, "%s\n", caisson_error_format(err, line, sizeof(line)));
    return 1;
}

static bool pass(csn_cmf *c, csn_pool *pool, struct times *k, caisson_error *err) {
    uint64_t n_faults;
    begin(k);
    if (csn_cmf_verify(c, pool, NULL, ignore_fault, NULL, &n_faults, err) != CAISSON_OK) {
        return false;
    }
    (void)end(k);
    if (n_faults != 0) {
        (void)CSN_FAIL(err, CAISSON_E_HASH, .file = c->file->path, .what = "the file has faults");
        return false;
    }
    return true;
}

static void print(const char *name, struct times *k, const struct times *plain, uint64_t size) {
    int mid = k->n / 2;
    sort(k);
    printf(",\n \"%s\":{\"gb_s\":%.2f,\"ratio\":%.3f,\"ratio_median\":%.3f,\"ratio_cpu\":%.3f,"
           "\"ratio_cpu_median\":%.3f}",
           name, (double)size / k->wall[0] / 1e9, plain->wall[0] / k->wall[0],
           plain->wall[mid] / k->wall[mid], plain->cpu[0] / k->cpu[0],
           plain->cpu[mid] / k->cpu[mid]);
}

int main(int argc, char **argv) {
    static struct times plain;
    static struct times hash64;
    static struct times both;
    unsigned n_threads = (unsigned)bench_arg(argc, argv, "--threads", 2);
    double seconds = bench_arg(argc, argv, "--seconds", 5);
    csn_pool *pool = NULL;
    csn_cmf *c = NULL;
    caisson_error err;
    if (argc < 2) {
        (void)fprintf(stderr, "usage: bench_verify FILE.cmf [--threads N] [--seconds S]\n");
        return 2;
    }
    if (csn_pool_new(n_threads, &pool, &err) != CAISSON_OK ||
        csn_cmf_open(csn_fs_os(), argv[1], &c, &err) != CAISSON_OK) {
        return fail(&err);
    }
    csn_cmf without = *c; /* the same file as one without digests */
    without.tensor_digests = NULL;
    memset(without.section_digest, 0, sizeof(without.section_digest));
    struct plain p = {.fd = open(argv[1], O_RDONLY | O_CLOEXEC),
                      .size = c->envelope.file_bytes,
                      .buffers = bench_alloc((size_t)n_threads * READ)};
    double t0 = (double)csn_now_ns() * 1e-9;
    while (plain.n < BENCH_MAX_PASSES &&
           (plain.n < 3 || (double)csn_now_ns() * 1e-9 - t0 < seconds)) {
        begin(&plain);
        p.next = 0;
        csn_pool_run(pool, read_plain, &p);
        (void)end(&plain);
        if (!pass(&without, pool, &hash64, &err) ||
            (c->tensor_digests != NULL && !pass(c, pool, &both, &err))) {
            return fail(&err);
        }
    }
    sort(&plain);
    printf("{\"threads\":%u,\"bytes\":%llu,\"passes\":%d,\"pread_gb_s\":%.2f", n_threads,
           (unsigned long long)p.size, plain.n, (double)p.size / plain.wall[0] / 1e9);
    print("hash64", &hash64, &plain, p.size);
    if (both.n > 0) {
        print("both", &both, &plain, p.size);
    }
    printf("}\n");
    csn_cmf_close(c);
    csn_pool_free(pool);
    return 0;
}
