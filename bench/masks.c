/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding under task masks against decoding dense, a few tokens of each in turn in one process:
 * what the machine does meanwhile falls on all alike.
 *
 *   build/dev/bench/bench_masks FILE.cmf [--threads 2] [--turns 40] [--tokens 6] [--f32 0]
 *
 * {"dense":{"tokens_per_s":T,"best":B},
 *  "TASK":{"tokens_per_s":T,"best":B,"ratio":R},...}   R: median over turns of time dense / masked
 */
#include "bench.h"
#include "engine/session.h"

enum { MAX_TASKS = 8, MAX_TURNS = 1000, CTX = 512 };

struct runner {
    csn_session *s;
    const char *name;
    double t[MAX_TURNS]; /* seconds a token */
};

static void need(caisson_status s, const caisson_error *err) {
    if (s != CAISSON_OK) {
        char line[1024];
        (void)fprintf(stderr, "%s\n", caisson_error_format(err, line, sizeof(line)));
        exit(1);
    }
}

/* Seconds a token; one more, the first, wakes the threads up and does not count. */
static double decode(csn_session *s, int n) {
    caisson_error err;
    uint64_t t0 = 0;
    if (csn_session_n_past(s) + (uint32_t)n + 1 > CTX) {
        csn_session_truncate(s, 0);
    }
    for (int i = 0; i <= n; i++) {
        int32_t id = (i * 131 + 17) % (int32_t)csn_session_n_vocab(s);
        t0 = i == 1 ? csn_now_ns() : t0;
        need(csn_session_eval(s, &id, 1, false, NULL, NULL, NULL, &err), &err);
    }
    return (double)(csn_now_ns() - t0) * 1e-9 / n;
}

static void print(struct runner *r, int n_turns, double ratio) {
    qsort(r->t, (size_t)n_turns, sizeof(r->t[0]), bench_cmp);
    printf("\"%s\":{\"tokens_per_s\":%.1f,\"best\":%.1f,\"ratio\":%.3f}", r->name,
           1 / r->t[n_turns / 2], 1 / r->t[0], ratio);
}

int main(int argc, char **argv) {
    static struct runner runners[1 + MAX_TASKS];
    static double ratios[1 + MAX_TASKS][MAX_TURNS];
    int n_turns = (int)bench_arg(argc, argv, "--turns", 40);
    int n_tokens = (int)bench_arg(argc, argv, "--tokens", 6);
    csn_cmf *c;
    csn_store *store;
    csn_model *m;
    caisson_error err;
    if (argc < 2 || n_turns < 1 || n_turns > MAX_TURNS || n_tokens < 1) {
        (void)fprintf(stderr, "usage: bench_masks FILE.cmf [--threads N] [--turns N] [--tokens N] "
                              "[--f32 1]\n");
        return 2;
    }
    need(csn_cmf_open(csn_fs_os(), argv[1], &c, &err), &err);
    need(csn_store_new(c, &(csn_store_options){0}, &store, &err), &err);
    need(csn_model_new(store, &m, &err), &err);
    uint32_t n = 1 + (c->masks.n < MAX_TASKS ? c->masks.n : MAX_TASKS);
    for (uint32_t i = 0; i < n; i++) {
        csn_session_options o = {
            .n_ctx = CTX,
            .n_threads = (unsigned)bench_arg(argc, argv, "--threads", 2),
            .compute = bench_arg(argc, argv, "--f32", 0) != 0 ? CSN_COMPUTE_F32 : CSN_COMPUTE_INT8};
        char name[64] = "";
        if (i > 0) {
            (void)snprintf(name, sizeof(name), "%.*s", CSN_STR_ARGS(c->masks.masks[i - 1].name));
        }
        o.task = name;
        need(csn_session_new(m, &o, &runners[i].s, &err), &err);
        runners[i].name = i > 0 ? strdup(name) : "dense";
        (void)decode(runners[i].s, n_tokens);
    }
    for (int k = 0; k < n_turns; k++) {
        for (uint32_t i = 0; i < n; i++) {
            runners[i].t[k] = decode(runners[i].s, n_tokens);
            ratios[i][k] = runners[0].t[k] / runners[i].t[k];
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        qsort(ratios[i], (size_t)n_turns, sizeof(double), bench_cmp);
        printf("%s", i > 0 ? ",\n " : "{");
        print(&runners[i], n_turns, ratios[i][n_turns / 2]);
        csn_session_free(runners[i].s);
    }
    puts("}");
    csn_model_free(m);
    return 0;
}
