/* SPDX-License-Identifier: Apache-2.0 */
/* The WARP engine's side of tests/interop/test_warp.py, through its public C API: built by that
 * script against headers and a library that lie outside the repository.
 *
 *   warp_greedy MODEL.waste N_GREEDY ID...  -> N_GREEDY lines: the likeliest token, and its lead
 *                                              over the next
 */
#include <stdio.h>
#include <stdlib.h>

#include "waste.h"

static void check(waste_status status, const char *what) {
    if (status != 0) {
        (void)fprintf(stderr, "warp_greedy: %s: %s\n", what, waste_strerror(status));
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc < 4) {
        (void)fprintf(stderr, "usage: warp_greedy MODEL N_GREEDY ID...\n");
        return 2;
    }
    waste_ctx *ctx;
    waste_cfg cfg;
    const float *logits;
    size_t n_vocab;
    waste_cfg_init(&cfg);
    cfg.ctx_tokens = 256;
    cfg.n_threads = 1;
    cfg.verify_records = 1;
    check(waste_open(argv[1], &cfg, &ctx), "open");
    for (int i = 3; i < argc; i++) {
        int32_t id = (int32_t)strtol(argv[i], NULL, 10);
        check(waste_eval(ctx, &id, 1, &logits, &n_vocab), "eval");
    }
    for (long n = strtol(argv[2], NULL, 10); n > 0; n--) {
        int32_t best = 0;
        for (size_t i = 1; i < n_vocab; i++) {
            best = logits[i] > logits[best] ? (int32_t)i : best;
        }
        float lead = 1e30f;
        for (size_t i = 0; i < n_vocab; i++) {
            float d = logits[best] - logits[i];
            lead = (int32_t)i != best && d < lead ? d : lead;
        }
        printf("%d %g\n", best, (double)lead);
        check(waste_eval(ctx, &best, 1, &logits, &n_vocab), "eval");
    }
    waste_close(ctx);
    return 0;
}
