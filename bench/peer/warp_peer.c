/* SPDX-License-Identifier: Apache-2.0 */
/* The WARP engine's side of bench/peer/warp, through its public C API: built by that script against
 * headers and a library that lie outside the repository.
 *
 *   warp_peer MODEL.waste N_PROMPT N_GEN N_THREADS N_VOCAB [BUDGET_BYTES]  -> one JSON line
 *
 * The tokens of `caisson bench`, from an empty context; the first pass of each kind warms up.
 * Without a budget it brings all experts that these tokens want into the cache: `missed` counts
 * what the passes that were measured still read. N_PROMPT 0: no prompt.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "waste.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static waste_ctx *ctx;

static void check(waste_status status, const char *what) {
    if (status != 0) {
        (void)fprintf(stderr, "warp_peer: %s: %s\n", what, waste_strerror(status));
        exit(1);
    }
}

/* Tokens per second, all at once or one by one. */
static double speed(const int32_t *ids, size_t n, size_t step) {
    const float *logits;
    size_t n_vocab;
    waste_state_reset(ctx);
    double t = now();
    for (size_t i = 0; i < n; i += step) {
        check(waste_eval(ctx, ids + i, step, &logits, &n_vocab), "eval");
    }
    return (double)n / (now() - t);
}

int main(int argc, char **argv) {
    if (argc != 6 && argc != 7) {
        (void)fprintf(stderr, "usage: warp_peer MODEL N_PROMPT N_GEN N_THREADS N_VOCAB [BUDGET]\n");
        return 2;
    }
    const size_t n_prompt = strtoul(argv[2], NULL, 10);
    const size_t n_gen = strtoul(argv[3], NULL, 10);
    const size_t n = n_prompt > n_gen ? n_prompt : n_gen;
    const uint64_t n_vocab = strtoul(argv[5], NULL, 10);
    int32_t *ids = malloc(n * sizeof(*ids));
    uint64_t x = 1;
    for (size_t i = 0; ids != NULL && i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % n_vocab);
    }
    waste_cfg cfg;
    waste_cfg_init(&cfg);
    cfg.ctx_tokens = (uint32_t)n + 1;
    cfg.n_threads = atoi(argv[4]);
    cfg.ram_budget_bytes = argc == 7 ? strtoull(argv[6], NULL, 10) : waste_usable_ram() / 10 * 7;
    check(waste_open(argv[1], &cfg, &ctx), "open");
    waste_stats before;
    waste_stats after;
    if (n_prompt > 0) {
        (void)speed(ids, n_prompt, n_prompt);
    }
    (void)speed(ids, n_gen, 1);
    check(waste_get_stats(ctx, &before), "stats");
    const double pp = n_prompt > 0 ? speed(ids, n_prompt, n_prompt) : 0;
    const double tg = speed(ids, n_gen, 1);
    check(waste_get_stats(ctx, &after), "stats");
    printf("{\"pp\":%.4f,\"tg\":%.4f,\"missed\":%llu,\"bytes\":%llu,\"direct\":%d,"
           "\"version\":\"%s\"}\n",
           pp, tg, (unsigned long long)(after.experts_missed - before.experts_missed),
           (unsigned long long)(after.bytes_read - before.bytes_read), after.direct_io,
           waste_version());
    waste_close(ctx);
    free(ids);
    return 0;
}
