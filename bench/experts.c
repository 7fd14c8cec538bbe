/* SPDX-License-Identifier: Apache-2.0 */
/* The expert store on a real file, without a model: lists of random experts, layer after layer, as
 * fast as they can be taken. Prints JSON; compare `gb_per_s` (demanded bytes) with
 *
 *   fio --name=x --filename=FILE --readonly --direct=1 --ioengine=io_uring --rw=randread --bs=1m
 *       --iodepth=4 --time_based --runtime=8
 *
 *   bench_experts FILE [--expert-kib 2604] [--layers 26] [--top-k 8] [--cache-mib 512] [--seconds
 * 8]
 *                 [--io 0|1|2|3] [--work-us 0] [--skew 0]
 *
 * --io: csn_expert_io. --work-us: the caller works so long on each expert. --skew s: expert k of a
 * layer is chosen in proportion to 1 / (k + 1)^s, 0 = all alike.
 */
#include <math.h>

#include "bench.h"
#include "store/experts.h"

enum { MAX_LAYERS = 256, MAX_TOP_K = 64 };

struct setup {
    csn_file *file;
    csn_expert_map map;
    uint32_t n_experts[MAX_LAYERS], layer_ids[MAX_LAYERS];
    uint32_t top_k;
    double *cumulated; /* [n_experts] of the chances */
};

static void fail(const caisson_error *err) {
    char line[512];
    (void)fprintf(stderr, "bench: %s\n", caisson_error_format(err, line, sizeof(line)));
    exit(1);
}

static void make_map(struct setup *s, const char *path, uint64_t record, uint32_t n_layers,
                     double skew) {
    caisson_error err;
    uint64_t size = 0;
    if (csn_fs_open(csn_fs_os(), path, CSN_OPEN_READ, &s->file, &err) != CAISSON_OK ||
        csn_file_size(s->file, &size, &err) != CAISSON_OK) {
        fail(&err);
    }
    uint32_t n = (uint32_t)(size / record / n_layers);
    csn_expert_piece *pieces = calloc((size_t)n * n_layers, sizeof(*pieces));
    s->cumulated = calloc(n, sizeof(double));
    if (pieces == NULL || s->cumulated == NULL || n < s->top_k) {
        (void)fprintf(stderr, "bench: the file holds too few experts\n");
        exit(1);
    }
    for (uint64_t i = 0; i < (uint64_t)n * n_layers; i++) {
        pieces[i] = (csn_expert_piece){0, i * record, record};
    }
    for (uint32_t k = 0; k < n; k++) {
        s->cumulated[k] = (k > 0 ? s->cumulated[k - 1] : 0.0) + pow(k + 1.0, -skew);
    }
    for (uint32_t l = 0; l < n_layers; l++) {
        s->n_experts[l] = n;
        s->layer_ids[l] = l;
    }
    s->map = (csn_expert_map){.files = &s->file,
                              .n_files = 1,
                              .n_layers = n_layers,
                              .n_experts = s->n_experts,
                              .layer_ids = s->layer_ids,
                              .n_pieces = 1,
                              .pieces = pieces};
}

/* top_k different experts, rising. */
static void choose(const struct setup *s, uint32_t i_layer, uint32_t *seed, uint32_t *ids) {
    uint32_t n = s->n_experts[i_layer];
    uint32_t k = 0;
    while (k < s->top_k) {
        double u = bench_random(seed) / 16777216.0 * s->cumulated[n - 1];
        uint32_t lo = 0;
        for (uint32_t hi = n - 1; lo < hi;) {
            uint32_t mid = (lo + hi) / 2;
            if (s->cumulated[mid] < u) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        uint32_t id = (lo + i_layer * 37) % n; /* other favourites in each layer */
        uint32_t at = 0;
        while (at < k && ids[at] < id) {
            at++;
        }
        if (at == k || ids[at] != id) {
            memmove(ids + at + 1, ids + at, (k - at) * sizeof(*ids));
            ids[at] = id;
            k++;
        }
    }
}

static void work(uint64_t us) {
    for (uint64_t end = csn_now_ns() + us * 1000; us > 0 && csn_now_ns() < end;) {
    }
}

static void run_list(const struct setup *s, csn_experts *e, uint32_t i_layer, uint32_t *seed,
                     uint64_t work_us) {
    uint32_t ids[MAX_TOP_K];
    caisson_error err;
    choose(s, i_layer, seed, ids);
    csn_experts_want(e, i_layer, ids, s->top_k, NULL);
    for (uint32_t i = 0; i < s->top_k; i++) {
        const uint8_t *piece;
        uint32_t id;
        if (csn_experts_take_any(e, &id, &piece, &err) != CAISSON_OK) {
            fail(&err);
        }
        work(work_us);
    }
    csn_experts_done(e);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        (void)fprintf(stderr, "bench_experts FILE [--option N ...]\n");
        return 2;
    }
    uint32_t n_layers = (uint32_t)bench_arg(argc, argv, "--layers", 26);
    struct setup s = {.top_k = (uint32_t)bench_arg(argc, argv, "--top-k", 8)};
    if (n_layers < 1 || n_layers > MAX_LAYERS || s.top_k < 1 || s.top_k > MAX_TOP_K) {
        return 2;
    }
    uint64_t record = (uint64_t)bench_arg(argc, argv, "--expert-kib", 2604) * 1024;
    make_map(&s, argv[1], record, n_layers, bench_arg(argc, argv, "--skew", 0));
    csn_expert_options o = {.cache_bytes = (uint64_t)bench_arg(argc, argv, "--cache-mib", 512)
                                           << 20,
                            .io = (csn_expert_io)bench_arg(argc, argv, "--io", 0)};
    uint64_t work_us = (uint64_t)bench_arg(argc, argv, "--work-us", 0);
    double seconds = bench_arg(argc, argv, "--seconds", 8);
    csn_experts *e;
    caisson_error err;
    if (csn_experts_new(&s.map, &o, &e, &err) != CAISSON_OK) {
        fail(&err);
    }
    uint32_t seed = 1;
    uint64_t n_tokens = 0;
    uint64_t start = csn_now_ns();
    double t = 0;
    while (t < seconds) {
        for (uint32_t l = 0; l < n_layers; l++) {
            run_list(&s, e, l, &seed, work_us);
        }
        n_tokens++;
        t = (double)(csn_now_ns() - start) * 1e-9;
    }
    csn_expert_stats st;
    csn_experts_stats_all(e, &st);
    printf("{\"io\": \"%s\", \"tokens\": %llu, \"tokens_per_s\": %.3f, \"gb_per_s\": %.3f, "
           "\"hit_rate\": %.4f, \"stall_share\": %.3f, \"read_share\": %.3f}\n",
           csn_experts_io_text(e), (unsigned long long)n_tokens, (double)n_tokens / t,
           (double)st.bytes / t * 1e-9, (double)st.hits / (double)(st.hits + st.misses),
           (double)st.stall_ns * 1e-9 / t, (double)st.read_ns * 1e-9 / t);
    csn_experts_free(e);
    return 0;
}
