/* SPDX-License-Identifier: Apache-2.0 */
/* hash64 over memory that fits the L2 cache, and verify of a whole file against plain reads.
 *
 *   build/dev/bench/bench_hash [FILE.cmf] [--threads 2]
 *
 * {"hash64_gb_s":H,"verify_gb_s":V,"pread_gb_s":P,"threads":2}       (best of several passes) */
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/hash64.h"
#include "bench.h"
#include "format/cmf/cmf.h"

enum { BLOCK = 256 << 10, READ = 128 << 10 };

static uint8_t *memory;
static volatile uint64_t sink;

static void hash_block(void *ctx, unsigned i, unsigned n) {
    (void)ctx;
    (void)i;
    (void)n;
    for (int k = 0; k < 64; k++) {
        sink = csn_hash64_piece(memory, BLOCK, 0);
    }
}

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

int main(int argc, char **argv) {
    unsigned n_threads = (unsigned)bench_arg(argc, argv, "--threads", 2);
    csn_pool *pool = NULL;
    caisson_error err;
    memory = bench_alloc(BLOCK);
    for (int i = 0; i < BLOCK; i++) {
        memory[i] = (uint8_t)(i * 31);
    }
    double hash = 64.0 * BLOCK / bench_run(NULL, hash_block, NULL, 0.5).best / 1e9;
    if (argc < 2 || argv[1][0] == '-') {
        printf("{\"hash64_gb_s\":%.2f}\n", hash);
        return 0;
    }
    csn_cmf *c = NULL;
    if (csn_pool_new(n_threads, &pool, &err) != CAISSON_OK ||
        csn_cmf_open(csn_fs_os(), argv[1], &c, &err) != CAISSON_OK) {
        char line[1024];
        fprintf(stderr, "%s\n", caisson_error_format(&err, line, sizeof(line)));
        return 1;
    }
    struct plain p = {.fd = open(argv[1], O_RDONLY),
                      .size = c->envelope.file_bytes,
                      .buffers = bench_alloc((size_t)n_threads * READ)};
    double best_verify = 1e9;
    double best_read = 1e9;
    for (int i = 0; i < 7; i++) { /* interleaved: the machine is shared */
        uint64_t n;
        uint64_t t0 = csn_now_ns();
        p.next = 0;
        csn_pool_run(pool, read_plain, &p);
        uint64_t t1 = csn_now_ns();
        if (csn_cmf_verify(c, pool, NULL, ignore_fault, NULL, &n, &err) != CAISSON_OK) {
            return 1;
        }
        uint64_t t2 = csn_now_ns();
        best_read = (double)(t1 - t0) < best_read ? (double)(t1 - t0) : best_read;
        best_verify = (double)(t2 - t1) < best_verify ? (double)(t2 - t1) : best_verify;
    }
    printf("{\"hash64_gb_s\":%.2f,\"verify_gb_s\":%.2f,\"pread_gb_s\":%.2f,\"threads\":%u}\n", hash,
           (double)p.size / best_verify, (double)p.size / best_read, n_threads);
    csn_cmf_close(c);
    csn_pool_free(pool);
    return 0;
}
