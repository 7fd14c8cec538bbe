/* SPDX-License-Identifier: Apache-2.0 */
/* run: one prompt, one answer, streamed; figures on standard error. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "commands.h"
#include "memory.h"
#include "open.h"
#include "skills.h"
#include "term.h"

enum { MAX_PROMPT = 64 << 20, MAX_JSON = 1 << 30 };

typedef struct job {
    const cli_args *args;
    bool json, colour;
    const char *prompt; /* [n_prompt] as given */
    size_t n_prompt;
    cli_trace trace; /* --trace */
    csn_buf text;    /* --json: the whole answer */
    caisson_error err;
    caisson_status status;
    uint64_t start_ns, first_ns;
    cli_progress progress;
    char last; /* last byte written, to end with a newline */
} job;

static bool on_text(void *ctx, const char *text, size_t n) {
    job *j = ctx;
    cli_progress_end(&j->progress);
    if (j->first_ns == 0) {
        j->first_ns = csn_now_ns();
    }
    if (j->json) {
        j->status = csn_buf_append(&j->text, text, n, &j->err);
        return j->status == CAISSON_OK && !cli_interrupted();
    }
    cli_put_model_text(stdout, text, n);
    j->last = text[n - 1];
    return fflush(stdout) == 0 && !cli_interrupted();
}

static bool on_prompt(void *ctx, uint32_t done, uint32_t total) {
    job *j = ctx;
    cli_progress_show_late(&j->progress, "prompt", done, total);
    return !cli_interrupted();
}

/* The prompt's text: -p, -f, the argument, or a pipe. malloc'd. */
static int read_prompt(const cli_args *args, char **ret, size_t *ret_n) {
    const char *text = cli_text(args, "prompt", NULL);
    const char *path = cli_text(args, "file", NULL);
    const char *argument = args->n_positional > 1 ? args->positional[1] : NULL;
    if ((text != NULL) + (path != NULL) + (argument != NULL) > 1) {
        return cli_usage_error(args->command, "give one prompt: an argument, -p or -f");
    }
    if (text == NULL) {
        text = argument;
    }
    if (text != NULL) {
        *ret = strdup(text);
        *ret_n = strlen(text);
        return *ret != NULL ? CLI_OK : cli_fail_text(args, "out of memory");
    }
    if (path == NULL && isatty(STDIN_FILENO)) {
        return cli_usage_error(args->command,
                               "no prompt; give one as an argument, with -p, -f or through a pipe "
                               "(caisson chat is for talking)");
    }
    int rc = cli_read_text(args, path != NULL ? path : "-", MAX_PROMPT, ret, ret_n);
    if (rc == CLI_OK && *ret_n == 0) {
        free(*ret);
        *ret = NULL;
        return cli_usage_error(args->command, "no prompt: %s is empty",
                               path != NULL ? path : "standard input");
    }
    /* A pipe or file ends with a newline that nobody meant. */
    if (rc == CLI_OK && *ret_n > 0 && (*ret)[*ret_n - 1] == '\n' && !cli_has(args, "raw")) {
        (*ret)[--*ret_n] = '\0';
    }
    return rc;
}

static int make_ids(const cli_args *args, const caisson_model *model, const char *text, size_t n,
                    caisson_ids *ret) {
    caisson_error err;
    caisson_status status;
    if (cli_has(args, "raw")) {
        status = caisson_model_tokenize(model, text, n, CAISSON_TOKENIZE_PROMPT, ret, &err);
    } else {
        const char *system = cli_text(args, "system", NULL);
        if (strlen(text) != n) {
            return cli_fail_text(args, "the prompt holds a NUL byte (--raw takes it)");
        }
        caisson_message messages[2] = {{"system", system}, {"user", text}};
        caisson_chat chat = {
            .struct_size = sizeof(chat),
            .messages = system != NULL ? messages : messages + 1,
            .n_messages = system != NULL ? 2 : 1,
        };
        status = caisson_model_encode_chat(model, &chat, ret, &err);
    }
    if (status != CAISSON_OK) {
        return cli_fail(args, &err);
    }
    if (ret->n == 0) {
        return cli_fail_text(args, "the prompt is empty");
    }
    return CLI_OK;
}

static double per_second(uint32_t n, uint64_t ns) {
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

static const char *finish_name(caisson_finish f) {
    static const char *const names[] = {
        [CAISSON_FINISH_EOS] = "eos",
        [CAISSON_FINISH_STOP] = "stop",
        [CAISSON_FINISH_LENGTH] = "length",
        [CAISSON_FINISH_CONTEXT] = "context",
        [CAISSON_FINISH_CANCELLED] = "cancelled",
    };
    return names[f];
}

static void print_timings(const job *j, const caisson_generation *g, double load_s, uint64_t seed,
                          bool greedy) {
    bool colour = cli_has_colour(stderr);
    cli_set_style(stderr, colour, CLI_DIM);
    uint32_t n_new = g->n_prompt - g->n_reused;
    fprintf(stderr,
            "load %.2f s | prompt %u tokens, %.1f tokens/s | decode %u tokens, %.1f tokens/s",
            load_s, g->n_prompt, per_second(n_new, g->prompt_ns), g->n_generated,
            per_second(g->n_decode, g->decode_ns));
    if (j->first_ns != 0) {
        fprintf(stderr, " | first text after %.2f s", (double)(j->first_ns - j->start_ns) * 1e-9);
    }
    if (!greedy) {
        fprintf(stderr, " | seed %" PRIu64, seed);
    }
    if (g->finish == CAISSON_FINISH_CONTEXT) {
        fputs(" | the context is full (-c)", stderr);
    } else if (g->finish == CAISSON_FINISH_LENGTH) {
        fputs(" | stopped by -n", stderr);
    }
    cli_set_style(stderr, colour, CLI_PLAIN);
    fputc('\n', stderr);
}

static int print_json(job *j, const caisson_model *model, const caisson_generation *g,
                      double load_s, uint64_t seed) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    csn_jw_object(&w);
    csn_jw_put_str(&w, "text", csn_buf_view(&j->text));
    csn_jw_put_str(&w, "finish", csn_str_from(finish_name(g->finish)));
    csn_jw_put_u64(&w, "n_prompt", g->n_prompt);
    csn_jw_put_u64(&w, "n_generated", g->n_generated);
    csn_jw_put_f64(&w, "load_s", load_s);
    csn_jw_put_f64(&w, "first_text_s",
                   j->first_ns != 0 ? (double)(j->first_ns - j->start_ns) * 1e-9 : 0);
    csn_jw_put_f64(&w, "prompt_tokens_per_s", per_second(g->n_prompt - g->n_reused, g->prompt_ns));
    csn_jw_put_f64(&w, "decode_tokens_per_s", per_second(g->n_decode, g->decode_ns));
    csn_jw_put_u64(&w, "seed", seed);
    cli_put_stats(&w, model);
    if (cli_has(j->args, "trace")) {
        csn_jw_key(&w, CSN_STR("trace"));
        cli_trace_put(&j->trace, &w);
    }
    csn_jw_object_end(&w);
    return cli_put_json(j->args, &w, &out, &err);
}

static void show_prompt(const job *j, const char *text, size_t n) {
    if (!j->json && cli_has(j->args, "raw") && !cli_has(j->args, "no-display-prompt")) {
        cli_set_style(stdout, j->colour, CLI_DIM);
        cli_put_model_text(stdout, text, n);
        cli_set_style(stdout, j->colour, CLI_PLAIN);
        fflush(stdout);
    }
}

static int generate(job *j, caisson_model *model, const caisson_ids *ids, double load_s) {
    const cli_args *args = j->args;
    caisson_session *session;
    uint64_t t0 = csn_now_ns();
    int rc = cli_new_session(args, model, CAISSON_COMPUTE_INT8, 0, &session);
    if (rc != CLI_OK) {
        return rc;
    }
    rc = cli_apply_skills(args, model, session, j->prompt, j->n_prompt);
    if (rc == CLI_OK) {
        rc = cli_apply_dynamic(args, session, &j->trace);
    }
    if (rc != CLI_OK) {
        caisson_session_free(session);
        return rc;
    }
    load_s += (double)(csn_now_ns() - t0) * 1e-9;
    const cli_value *stop = cli_get(args, "stop");
    int64_t n = cli_int(args, "n-predict", -1);
    caisson_sampling sampling = cli_sampling(args);
    caisson_generate_options o = {
        .struct_size = sizeof(o),
        .sampling = &sampling,
        .max_tokens = n > 0 ? (uint32_t)n : 0,
        .ignore_eos = cli_has(args, "ignore-eos"),
        .stop = stop->list,
        .n_stop = stop->n_list,
        .on_text = on_text,
        .on_prompt = on_prompt,
        .ctx = j,
    };
    caisson_generation g;
    caisson_error err;
    cli_progress_init(&j->progress, "tokens", j->json);
    cli_set_style(stdout, j->colour, CLI_GREEN);
    caisson_status status = caisson_generate(session, ids->id, ids->n, &o, &g, &err);
    cli_progress_end(&j->progress);
    cli_set_style(stdout, j->colour, CLI_PLAIN);
    if (!j->json && j->last != '\0' && j->last != '\n') {
        fputc('\n', stdout);
    }
    fflush(stdout);
    if (status == CAISSON_OK && j->status != CAISSON_OK) {
        status = j->status;
        err = j->err;
    }
    if (status != CAISSON_OK) {
        rc = cli_fail(args, &err);
    } else {
        if (j->json) {
            rc = print_json(j, model, &g, load_s, sampling.seed);
        } else if (cli_has(args, "trace")) {
            cli_trace_print(&j->trace, model, stderr);
        }
        print_timings(j, &g, load_s, sampling.seed, sampling.greedy);
        cli_end_experts(args, model);
        if (g.finish == CAISSON_FINISH_CANCELLED) {
            rc = cli_interrupted() ? CLI_INTERRUPTED : CLI_FAILED; /* or nobody reads any more */
        }
    }
    caisson_session_free(session);
    return rc;
}

static int run(const cli_args *args) {
    char *text = NULL;
    size_t n = 0;
    if (cli_has(args, "n-predict") && cli_int(args, "n-predict", 0) == 0) {
        return cli_usage_error(args->command, "-n must be at least 1, or -1 for no limit");
    }
    int rc = read_prompt(args, &text, &n);
    if (rc != CLI_OK || text == NULL) {
        return rc;
    }
    job j = {.args = args,
             .json = cli_has(args, "json"),
             .prompt = text,
             .n_prompt = n,
             .text = CSN_BUF_INIT(MAX_JSON)};
    j.colour = !j.json && (cli_has(args, "color") || cli_has_colour(stdout));
    j.start_ns = csn_now_ns();
    caisson_model *model;
    rc = cli_open_model(args, args->positional[0],
                        cli_has(args, "raw") ? CLI_PART_RAW : CLI_PART_ALL, &model);
    if (rc == CLI_OK) {
        double load_s = (double)(csn_now_ns() - j.start_ns) * 1e-9;
        caisson_ids ids = {0};
        rc = make_ids(args, model, text, n, &ids);
        if (rc == CLI_OK) {
            show_prompt(&j, text, n);
            rc = generate(&j, model, &ids, load_s);
        }
        caisson_ids_free(&ids);
        caisson_model_close(model);
    }
    cli_trace_free(&j.trace);
    csn_buf_free(&j.text);
    free(text);
    return rc;
}

static const cli_option options[] = {
    {.name = "prompt", .short_name = "p", .kind = CLI_TEXT, .value = "TEXT", .help = "The prompt"},
    {.name = "file",
     .short_name = "f",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "Read the prompt from a file (- is standard input)"},
    {.name = "n-predict",
     .short_name = "n",
     .kind = CLI_INT,
     .value = "N",
     .min = -1,
     .max = 16777216,
     .help = "Stop after N tokens; -1 = no limit",
     .by_default = "-1"},
    {.name = "system", .kind = CLI_TEXT, .value = "TEXT", .help = "A system message before it"},
    {.name = "raw",
     .kind = CLI_FLAG,
     .help = "No chat template: go on from the text itself, in which special tokens count"},
    {.name = "stop",
     .kind = CLI_LIST,
     .value = "TEXT",
     .help = "Stop where this text comes up; may be given several times"},
    {.name = "ignore-eos", .kind = CLI_FLAG, .help = "Go on after an end token"},
    {.name = "color",
     .kind = CLI_FLAG,
     .help = "Colour even where standard output is not a terminal"},
    {.name = "no-display-prompt",
     .kind = CLI_FLAG,
     .help = "With --raw: do not show the prompt before its continuation"},
    {0},
};

const cli_command cli_cmd_run = {
    .name = "run",
    .summary = "Answer one prompt",
    .positionals = "MODEL [PROMPT]",
    .min_args = 1,
    .max_args = 2,
    .groups = {options, cli_blend_options, cli_dynamic_options, cli_sampling_options,
               CLI_MODEL_GROUPS, cli_memory_options, cli_signature_options, cli_verify_options,
               cli_json_options, cli_common_options},
    .details = "The prompt is an argument, -p, -f, or comes through a pipe. It is put into the "
               "model's chat template (ChatML, with a warning, if the file has none) as a user "
               "message; --raw continues the text as it is. The answer streams to standard output, "
               "the figures come last, on standard error. Text of the model cannot drive the "
               "terminal: control characters are left out there.",
    .examples = "caisson run model.cmf \"Why is the sky blue?\"\n"
                "git diff | caisson run model.cmf --system \"Write a commit message.\"\n"
                "caisson run model.cmf --raw -p \"Once upon a time\" -n 100 --temp 0",
    .run = run,
};
