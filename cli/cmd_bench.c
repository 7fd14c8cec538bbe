/* SPDX-License-Identifier: Apache-2.0 */
/* bench: tokens per second of prompts and of decoding, apart, as llama-bench measures them: random
 * tokens, an empty context each time, a first pass that is not counted. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/json.h"
#include "commands.h"
#include "memory.h"
#include "open.h"
#include "term.h"

typedef struct result {
    uint32_t n;
    double mean, deviation; /* tokens per second */
    double expert_bytes;    /* read from the disk and used, of experts, for one token */
} result;

typedef struct job {
    const cli_args *args;
    const caisson_model *model;
    caisson_session *session;
    int32_t *ids; /* random, the same every time */
    uint32_t repetitions;
} job;

/* One pass over n tokens: at once (a prompt) or one by one. */
static int pass(job *j, uint32_t n, bool one_by_one, double *ret_seconds) {
    caisson_error err;
    if (caisson_session_truncate(j->session, 0, &err) != CAISSON_OK) {
        return cli_fail(j->args, &err);
    }
    uint64_t t0 = csn_now_ns();
    uint32_t step = one_by_one ? 1 : n;
    for (uint32_t i = 0; i < n; i += step) {
        if (caisson_session_eval(j->session, j->ids + i, step, NULL, NULL, &err) != CAISSON_OK) {
            return cli_fail(j->args, &err);
        }
        if (cli_interrupted()) {
            return CLI_INTERRUPTED;
        }
    }
    *ret_seconds = (double)(csn_now_ns() - t0) * 1e-9;
    return CLI_OK;
}

static int measure(job *j, uint32_t n, bool one_by_one, result *ret) {
    double sum = 0;
    double sum_squares = 0;
    uint64_t before = 0;
    *ret = (result){.n = n};
    for (uint32_t r = 0; n > 0 && r <= j->repetitions; r++) {
        double seconds = 0;
        int rc = pass(j, n, one_by_one, &seconds);
        if (rc != CLI_OK) {
            return rc;
        }
        if (r == 0) { /* warms caches and pages */
            before = cli_expert_bytes(j->model);
        } else {
            double speed = (double)n / seconds;
            sum += speed;
            sum_squares += speed * speed;
        }
    }
    double k = (double)j->repetitions;
    ret->mean = n > 0 ? sum / k : 0;
    double variance = n > 0 && k > 1 ? (sum_squares - sum * sum / k) / (k - 1) : 0;
    ret->deviation = variance > 0 ? sqrt(variance) : 0;
    uint64_t bytes = n > 0 ? cli_expert_bytes(j->model) - before : 0;
    ret->expert_bytes = n > 0 ? (double)bytes / (k * (double)n) : 0;
    return CLI_OK;
}

static void put_result(csn_jw *w, const char *key, const result *r) {
    csn_jw_key(w, csn_str_from(key));
    csn_jw_object(w);
    csn_jw_put_u64(w, "n", r->n);
    csn_jw_put_f64(w, "tokens_per_s", r->mean);
    csn_jw_put_f64(w, "stddev", r->deviation);
    csn_jw_object_end(w);
}

static int print_result(const job *j, const caisson_model *model, const result *pp,
                        const result *tg) {
    uint64_t bytes = caisson_model_bytes_per_token(model);
    uint32_t threads = caisson_session_n_threads(j->session);
    if (!cli_has(j->args, "json")) {
        printf("pp %-6u %10.2f tokens/s (+- %.2f)\ntg %-6u %10.2f tokens/s (+- %.2f)\n", pp->n,
               pp->mean, pp->deviation, tg->n, tg->mean, tg->deviation);
        printf("weights read for one token %" PRIu64 " bytes; %.2f GB/s in tg; %u threads\n", bytes,
               tg->mean * (double)bytes * 1e-9, threads);
        if (tg->expert_bytes > 0) {
            printf("experts from the disk for one token %.0f bytes; %.2f GB/s in tg\n",
                   tg->expert_bytes, tg->mean * tg->expert_bytes * 1e-9);
        }
        return CLI_OK;
    }
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(4096);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    put_result(&w, "pp", pp);
    put_result(&w, "tg", tg);
    csn_jw_put_u64(&w, "weight_bytes_per_token", bytes);
    csn_jw_put_f64(&w, "expert_bytes_per_token", tg->expert_bytes);
    csn_jw_put_u64(&w, "threads", threads);
    csn_jw_put_str(&w, "compute", csn_str_from(cli_text(j->args, "compute", "int8")));
    csn_jw_put_bool(&w, "cpu_has_fma", csn_cpu_has_fma());
    cli_put_stats(&w, model);
    csn_jw_object_end(&w);
    return cli_put_json(j->args, &w, &out, &err);
}

/* A linear congruential generator (Knuth's MMIX constants), seed 1: the same tokens everywhere. */
static void fill_ids(int32_t *ids, uint32_t n, uint32_t n_vocab) {
    uint64_t x = 1;
    for (uint32_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % n_vocab);
    }
}

static int bench(const cli_args *args, caisson_model *model) {
    uint32_t n_pp = (uint32_t)cli_int(args, "n-prompt", 512);
    uint32_t n_tg = (uint32_t)cli_int(args, "n-gen", 128);
    uint32_t n_max = n_pp > n_tg ? n_pp : n_tg;
    job j = {
        .args = args, .model = model, .repetitions = (uint32_t)cli_int(args, "repetitions", 5)};
    int rc = cli_new_session(args, model, CAISSON_COMPUTE_INT8, n_max > 0 ? n_max : 1, &j.session);
    if (rc != CLI_OK) {
        return rc;
    }
    j.ids = malloc(((size_t)n_max + 1) * sizeof(*j.ids));
    if (j.ids == NULL) {
        rc = cli_fail_text(args, "out of memory");
    } else {
        fill_ids(j.ids, n_max, caisson_model_n_vocab(model));
        result pp, tg;
        rc = measure(&j, n_pp, false, &pp);
        if (rc == CLI_OK) {
            rc = measure(&j, n_tg, true, &tg);
        }
        if (rc == CLI_OK) {
            rc = print_result(&j, model, &pp, &tg);
            cli_end_experts(args, model);
        }
    }
    free(j.ids);
    caisson_session_free(j.session);
    return rc;
}

static int run(const cli_args *args) {
    caisson_model *model;
    int rc = cli_open_model(args, args->positional[0], CLI_PART_WEIGHTS, &model);
    if (rc == CLI_OK) {
        rc = bench(args, model);
        caisson_model_close(model);
    }
    return rc;
}

static const cli_option options[] = {
    {.name = "n-prompt",
     .short_name = "p",
     .kind = CLI_INT,
     .value = "N",
     .min = 0,
     .max = 1048576,
     .help = "Tokens of the prompt; 0 = skip",
     .by_default = "512"},
    {.name = "n-gen",
     .short_name = "n",
     .kind = CLI_INT,
     .value = "N",
     .min = 0,
     .max = 1048576,
     .help = "Tokens decoded one by one; 0 = skip",
     .by_default = "128"},
    {.name = "repetitions",
     .short_name = "r",
     .kind = CLI_INT,
     .value = "N",
     .min = 1,
     .max = 1000,
     .help = "Passes that count; one more, the first, does not",
     .by_default = "5"},
    {0},
};

const cli_command cli_cmd_bench = {
    .name = "bench",
    .summary = "Measure tokens per second of prompts and of decoding",
    .positionals = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .groups = {options, CLI_MODEL_GROUPS, cli_memory_options, cli_signature_options,
               cli_verify_options, cli_json_options, cli_common_options},
    .details =
        "Random tokens (always the same), an empty context for each pass; pp is a prompt "
        "evaluated in batches of -ub, tg is decoding one token at a time, and they are "
        "measured apart. Shown are the mean and the standard deviation of the passes.\n"
        "JSON: {\"pp\":{\"n\":512, \"tokens_per_s\":X}, \"tg\":{\"n\":128, \"tokens_per_s\":X},"
        "\"weight_bytes_per_token\":B, \"expert_bytes_per_token\":B (of tg, from the disk), "
        "\"threads\":2}",
    .examples = "caisson bench model.cmf -p 512 -n 128 -t 2 --json",
    .run = run,
};
