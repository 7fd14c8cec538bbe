/* SPDX-License-Identifier: Apache-2.0 */
/* ppl: how well a model predicts a text, and with --kl how far its distributions are from those of
 * another model or another arithmetic. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "memory.h"
#include "open.h"
#include "score.h"

enum { MAX_INPUT = 1 << 28, MAX_JSON = 1 << 20 };

static int print_result(const cli_args *args, const caisson_model *model, const caisson_score *t,
                        bool has_kl) {
    double nll = t->nll / (double)t->n;
    double kl = t->kl / (double)t->n;
    double same = (double)t->n_same / (double)t->n;
    if (!cli_has(args, "json")) {
        printf("perplexity %.4f, %.6f nats a token, %" PRIu64 " tokens\n", exp(nll), nll, t->n);
        if (has_kl) {
            printf("mean KL %.6f nats, largest %.6f, same best token %.2f%%\n", kl, t->kl_max,
                   same * 100.0);
        }
        return CLI_OK;
    }
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_put_f64(&w, "ppl", exp(nll));
    csn_jw_put_f64(&w, "nll", nll);
    csn_jw_put_u64(&w, "n_tokens", t->n);
    if (has_kl) {
        csn_jw_put_f64(&w, "kl", kl);
        csn_jw_put_f64(&w, "kl_max", t->kl_max);
        csn_jw_put_f64(&w, "same_argmax", same);
    }
    if (cli_has(args, "stats")) {
        cli_put_stats(&w, model);
    }
    csn_jw_object_end(&w);
    return cli_put_json(args, &w, &out, &err);
}

/* The model of --kl and its session: --kl-compute, KV cache in f32. */
static int open_base(const cli_args *args, uint32_t n_vocab, uint32_t n_ctx, caisson_model **ret,
                     caisson_session **ret_session) {
    int rc = cli_open_model(args, cli_text(args, "kl", ""), CLI_PART_WEIGHTS, ret);
    if (rc != CLI_OK) {
        return rc;
    }
    if (caisson_model_n_vocab(*ret) != n_vocab) {
        return cli_fail_text(args, "the two models have vocabularies of %u and %u tokens", n_vocab,
                             caisson_model_n_vocab(*ret));
    }
    caisson_session_options o = cli_session_options(args, CAISSON_COMPUTE_F32, n_ctx);
    o.n_ctx = n_ctx;
    bool int8 = strcmp(cli_text(args, "kl-compute", "f32"), "int8") == 0;
    o.compute = int8 ? CAISSON_COMPUTE_INT8 : CAISSON_COMPUTE_F32;
    o.type_k = o.type_v = CAISSON_KV_F32;
    caisson_error err;
    return caisson_session_new(*ret, &o, ret_session, &err) == CAISSON_OK ? CLI_OK
                                                                          : cli_fail(args, &err);
}

static int score(const cli_args *args, caisson_model *model, const char *text, size_t n) {
    caisson_session *session = NULL;
    caisson_session *base_session = NULL;
    caisson_model *base = NULL;
    caisson_score t;
    int rc = cli_new_session(args, model, CAISSON_COMPUTE_F32, cli_score_ctx(model), &session);
    if (rc == CLI_OK && cli_has(args, "kl")) {
        rc = open_base(args, caisson_model_n_vocab(model), caisson_session_n_ctx(session), &base,
                       &base_session);
    }
    if (rc == CLI_OK) {
        rc = cli_score_text(args, session, base_session, text, n, &t);
    }
    if (rc == CLI_OK) {
        rc = print_result(args, model, &t, base_session != NULL);
    }
    caisson_session_free(base_session);
    caisson_session_free(session);
    caisson_model_close(base);
    return rc;
}

static int run(const cli_args *args) {
    char *text;
    size_t n;
    int rc = cli_read_text(args, args->positional[1], MAX_INPUT, &text, &n);
    if (rc != CLI_OK) {
        return rc;
    }
    caisson_model *model;
    rc = cli_open_model(args, args->positional[0], CLI_PART_RAW, &model);
    if (rc == CLI_OK) {
        rc = score(args, model, text, n);
        cli_end_experts(args, model);
        caisson_model_close(model);
    }
    free(text);
    return rc;
}

static const char *compute_choice(unsigned i) {
    static const char *const words[] = {"f32", "int8", NULL};
    return words[i];
}

static const cli_option options[] = {
    {.name = "kl",
     .kind = CLI_PATH,
     .value = "BASE",
     .help = "Also the mean KL divergence of MODEL's distributions from those of BASE (a .cmf with "
             "the same vocabulary; may be MODEL itself) over the scored positions"},
    {.name = "kl-compute",
     .kind = CLI_CHOICE,
     .value = "MODE",
     .choices = compute_choice,
     .help = "Arithmetic of BASE; its keys and values are kept in f32",
     .by_default = "f32"},
    {0},
};

const cli_command cli_cmd_ppl = {
    .name = "ppl",
    .summary = "Perplexity of a model on a text, and its KL divergence from another",
    .positionals = "MODEL FILE",
    .min_args = 2,
    .max_args = 2,
    .groups = {options, CLI_MODEL_GROUPS, cli_memory_options, cli_signature_options,
               cli_verify_options, cli_json_options, cli_common_options},
    .details =
        "The text (- is standard input) is tokenised as plain text and cut into windows of "
        "the context (-c, here 512 by default) that do not overlap. If the tokenizer has a "
        "BOS token each window begins with it. Every token of a window but its first is "
        "scored, given the tokens before it in the window; nll is the mean in nats, ppl is "
        "exp(nll), n_tokens counts the scored tokens.\n"
        "JSON: {\"ppl\":P, \"nll\":N, \"n_tokens\":T}, with --kl also \"kl\" (the mean, nats), "
        "\"kl_max\", \"same_argmax\"; with --stats \"experts\" and \"trunk\", as run.",
    .examples = "caisson ppl model.cmf text.txt --json\n"
                "caisson ppl model.cmf text.txt --compute int8 --kl model.cmf",
    .run = run,
};
