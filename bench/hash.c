/* SPDX-License-Identifier: Apache-2.0 */
/* hash64 and XXH3-128 over memory that fits the L2 cache, one thread.
 *
 *   build/dev/bench/bench_hash
 *
 * {"hash64_gb_s":H,"xxh3_gb_s":X,"hash64_plain_c_gb_s":C,"xxh3_plain_c_gb_s":D,"join_us":J}
 *                                                                    (best of many passes) */
#include "base/cpu.h"
#include "base/digest.h"
#include "base/hash64.h"
#include "bench.h"

enum { BLOCK = 64 << 10, REPEATS = 64 };

static uint8_t *memory;
static volatile uint64_t sink;

static void hash_block(void *ctx, unsigned i, unsigned n) {
    (void)ctx;
    (void)i;
    (void)n;
    for (int k = 0; k < REPEATS; k++) {
        sink = csn_hash64_piece(memory, BLOCK);
    }
}

static void digest_block(void *ctx, unsigned i, unsigned n) {
    (void)ctx;
    (void)i;
    (void)n;
    for (int k = 0; k < REPEATS; k++) {
        uint8_t d[CSN_DIGEST_BYTES];
        csn_digest_piece(memory, BLOCK, d);
        sink = d[0];
    }
}

static void join(void *ctx, unsigned i, unsigned n) {
    (void)ctx;
    (void)i;
    (void)n;
    for (uint64_t k = 0; k < REPEATS; k++) {
        sink = csn_hash64_join(0, (UINT64_C(1) << 33) + k * 1000001, NULL);
    }
}

static double gb_s(csn_pool_fn fn) {
    return (double)REPEATS * BLOCK / bench_run(NULL, fn, NULL, 0.5).best / 1e9;
}

int main(void) {
    memory = bench_alloc(BLOCK);
    for (int i = 0; i < BLOCK; i++) {
        memory[i] = (uint8_t)(i * 31);
    }
    double hash = gb_s(hash_block);
    double xxh3 = gb_s(digest_block);
    double us = bench_run(NULL, join, NULL, 0.2).best / REPEATS * 1e6;
    csn_cpu_mask(0);
    printf("{\"hash64_gb_s\":%.2f,\"xxh3_gb_s\":%.2f,\"hash64_plain_c_gb_s\":%.2f,"
           "\"xxh3_plain_c_gb_s\":%.2f,\"join_us\":%.1f}\n",
           hash, xxh3, gb_s(hash_block), gb_s(digest_block), us);
    return 0;
}
