/* SPDX-License-Identifier: Apache-2.0 */
/* chat: a conversation. The whole of it is rendered anew for each turn, as the template wants it;
 * the session keeps what has not changed. Ctrl-C stops an answer (what came of it stays part of the
 * conversation); at the prompt it leaves. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "commands.h"
#include "conversation.h"
#include "line.h"
#include "memory.h"
#include "open.h"
#include "term.h"

enum { MAX_ANSWER = 1 << 28, MAX_LINE = 64 << 20 };

typedef struct chat {
    const cli_args *args;
    caisson_model *model;
    caisson_session *session;
    cli_reader *reader;
    cli_conversation talk;
    caisson_sampling sampling;
    uint32_t max_tokens; /* 0 = no limit */
    bool tty, colour;
    cli_progress progress; /* of the prompt of an answer */
    csn_buf answer;
    bool answer_failed;
    caisson_error err;
} chat;

/* ---- an answer ---- */

/* Appends to the answer as the conversation keeps it: without NUL bytes, which would end it there.
 */
static caisson_status keep_text(chat *c, const char *text, size_t n) {
    const char *nul;
    while ((nul = memchr(text, '\0', n)) != NULL) {
        size_t k = (size_t)(nul - text);
        CSN_TRY(csn_buf_append(&c->answer, text, k, &c->err));
        text += k + 1;
        n -= k + 1;
    }
    return csn_buf_append(&c->answer, text, n, &c->err);
}

static bool on_text(void *ctx, const char *text, size_t n) {
    chat *c = ctx;
    cli_progress_end(&c->progress);
    if (keep_text(c, text, n) != CAISSON_OK) {
        c->answer_failed = true;
        return false;
    }
    cli_put_model_text(stdout, text, n);
    return fflush(stdout) == 0 && !cli_interrupted();
}

static bool on_prompt(void *ctx, uint32_t done, uint32_t total) {
    chat *c = ctx;
    cli_progress_show_late(&c->progress, "prompt", done, total);
    return !cli_interrupted();
}

static void print_speed(const chat *c, const caisson_generation *g) {
    if (!c->tty) {
        return;
    }
    double prompt =
        g->prompt_ns > 0 ? (double)(g->n_prompt - g->n_reused) * 1e9 / (double)g->prompt_ns : 0;
    double decode = g->decode_ns > 0 ? (double)g->n_decode * 1e9 / (double)g->decode_ns : 0;
    bool colour = cli_has_colour(stderr);
    cli_set_style(stderr, colour, CLI_DIM);
    fprintf(stderr, "[%u of %u tokens of context; prompt %.1f tokens/s, decode %.1f tokens/s%s]\n",
            caisson_session_n_past(c->session), caisson_session_n_ctx(c->session), prompt, decode,
            g->finish == CAISSON_FINISH_CANCELLED ? "; stopped"
            : g->finish == CAISSON_FINISH_CONTEXT ? "; the context is full: /clear starts afresh"
            : g->finish == CAISSON_FINISH_LENGTH  ? "; stopped by n"
                                                  : "");
    cli_set_style(stderr, colour, CLI_PLAIN);
}

static caisson_status generate(chat *c, caisson_generation *ret) {
    caisson_chat what = {
        .struct_size = sizeof(what), .messages = c->talk.messages, .n_messages = c->talk.n};
    caisson_ids ids = {0};
    caisson_status status = caisson_model_encode_chat(c->model, &what, &ids, &c->err);
    if (status == CAISSON_OK) {
        const cli_value *stop = cli_get(c->args, "stop");
        caisson_generate_options o = {
            .struct_size = sizeof(o),
            .sampling = &c->sampling,
            .max_tokens = c->max_tokens,
            .stop = stop->list,
            .n_stop = stop->n_list,
            .on_text = on_text,
            .on_prompt = on_prompt,
            .ctx = c,
        };
        cli_progress_init(&c->progress, "tokens", !c->tty);
        cli_set_style(stdout, c->colour, CLI_GREEN);
        status = caisson_generate(c->session, ids.id, ids.n, &o, ret, &c->err);
        cli_progress_end(&c->progress);
        cli_set_style(stdout, c->colour, CLI_PLAIN);
    }
    caisson_ids_free(&ids);
    return status;
}

/* Answers the last message. A turn that fails is taken back, so that the next one can work. */
static int answer(chat *c) {
    caisson_generation g;
    c->answer.len = 0;
    c->answer_failed = false;
    cli_forget_interrupt();
    caisson_status status = generate(c, &g);
    csn_str text = csn_buf_view(&c->answer);
    if (text.len > 0 && text.ptr[text.len - 1] != '\n') {
        fputc('\n', stdout);
    }
    fflush(stdout);
    if (status != CAISSON_OK || c->answer_failed) {
        int rc = cli_fail(c->args, &c->err);
        cli_conversation_drop_last(&c->talk);
        if (status == CAISSON_E_CONTEXT) {
            fputs("/clear starts afresh; caisson chat -c N gives more room.\n", stderr);
        }
        return c->tty ? CLI_OK : rc;
    }
    print_speed(c, &g);
    c->sampling.seed++; /* another draw each turn, yet the same conversation from the same seed */
    if (!cli_conversation_add(&c->talk, "assistant", text.ptr, text.len)) {
        return cli_fail_text(c->args, "out of memory");
    }
    if (!c->tty && cli_interrupted()) {
        return CLI_INTERRUPTED;
    }
    cli_forget_interrupt();
    return CLI_OK;
}

/* ---- commands ---- */

typedef struct setting {
    const char *name;
    double min, max;
    const char *help;
    void (*apply)(chat *c, float v);
} setting;

static void set_temp(chat *c, float v) {
    c->sampling.greedy = v == 0.0f;
    c->sampling.temperature = v;
}
static void set_top_k(chat *c, float v) {
    c->sampling.top_k = v == 0.0f ? -1 : (int32_t)v; /* the library's 0 means its default */
}
static void set_top_p(chat *c, float v) {
    c->sampling.top_p = v < 1e-9f ? 1e-9f : v;
}
static void set_min_p(chat *c, float v) {
    c->sampling.min_p = v == 0.0f ? -1.0f : v;
}
static void set_typical_p(chat *c, float v) {
    c->sampling.typical_p = v < 1e-9f ? 1e-9f : v;
}
static void set_repeat_penalty(chat *c, float v) {
    c->sampling.repeat_penalty = v;
}
static void set_repeat_last_n(chat *c, float v) {
    c->sampling.repeat_last_n = (int32_t)v;
}
static void set_presence_penalty(chat *c, float v) {
    c->sampling.presence_penalty = v;
}
static void set_frequency_penalty(chat *c, float v) {
    c->sampling.frequency_penalty = v;
}
static void set_seed(chat *c, float v) {
    c->sampling.seed = (uint64_t)v;
}
static void set_n(chat *c, float v) {
    c->max_tokens = (uint32_t)v;
}

/* Whole numbers stay below 2^24, where f32 still counts by ones. */
static const setting settings[] = {
    {"temp", 0, 1000, "temperature, 0 = greedy", set_temp},
    {"top_k", 0, 16777216, "0 = off", set_top_k},
    {"top_p", 0, 1, "1 = off", set_top_p},
    {"min_p", 0, 1, "0 = off", set_min_p},
    {"typical_p", 0, 1, "1 = off", set_typical_p},
    {"repeat_penalty", 0.000001, 1000, "1 = off", set_repeat_penalty},
    {"repeat_last_n", -1, 16777216, "how far the penalties look back, 0 = 64, -1 = all",
     set_repeat_last_n},
    {"presence_penalty", -1000, 1000, "0 = off", set_presence_penalty},
    {"frequency_penalty", -1000, 1000, "0 = off", set_frequency_penalty},
    {"seed", 0, 16777216, "seed of the next answer", set_seed},
    {"n", 0, 16777216, "most tokens of an answer, 0 = no limit", set_n},
};

/* /set NAME VALUE */
static void do_set(chat *c, const char *rest) {
    size_t n_settings = sizeof(settings) / sizeof(settings[0]);
    size_t n = strcspn(rest, " \t");
    const char *value = rest + n + strspn(rest + n, " \t");
    for (size_t i = 0; i < n_settings; i++) {
        if (strlen(settings[i].name) == n && memcmp(settings[i].name, rest, n) == 0) {
            char *end;
            double v = strtod(value, &end);
            if (end == value || *end != '\0' || !(v >= settings[i].min && v <= settings[i].max)) {
                fprintf(stderr, "%s must be a number from %g to %g\n", settings[i].name,
                        settings[i].min, settings[i].max);
                return;
            }
            settings[i].apply(c, (float)v);
            fprintf(stderr, "%s = %g\n", settings[i].name, v);
            return;
        }
    }
    fputs("/set NAME VALUE, where NAME is one of\n", stderr);
    for (size_t i = 0; i < n_settings; i++) {
        fprintf(stderr, "  %-18s %s\n", settings[i].name, settings[i].help);
    }
}

static void do_help(chat *c, const char *rest) {
    (void)c;
    (void)rest;
    fputs("/system TEXT   set the system message (without TEXT: show it; /system - removes it)\n"
          "/clear         forget the conversation, keep the system message\n"
          "/save FILE     write the conversation as JSON\n"
          "/load FILE     go on from a saved conversation\n"
          "/skill ID      answer with this skill of the file from now on (none = without)\n"
          "/set NAME VALUE  change how tokens are drawn (without NAME: the list)\n"
          "/help          this text\n"
          "/quit          leave (so do Ctrl-D, and Ctrl-C at the prompt)\n"
          "A line that ends with \\ goes on in the next one. Ctrl-C stops an answer.\n",
          stderr);
}

static void do_system(chat *c, const char *rest) {
    bool has = c->talk.n > 0 && strcmp(c->talk.messages[0].role, "system") == 0;
    if (rest[0] == '\0') {
        fprintf(stderr, "system: ");
        const char *text = has ? c->talk.messages[0].content : "(none)";
        cli_put_printable(stderr, text, strlen(text));
        fputc('\n', stderr);
    } else if (!cli_conversation_set_system(&c->talk, strcmp(rest, "-") == 0 ? "" : rest)) {
        cli_fail_text(c->args, "out of memory");
    }
}

static void do_skill(chat *c, const char *rest) {
    bool is_none = rest[0] == '\0' || strcmp(rest, "none") == 0;
    if (caisson_session_set_skill(c->session, is_none ? NULL : rest, &c->err) != CAISSON_OK) {
        cli_fail(c->args, &c->err);
        return;
    }
    fputs(is_none ? "no skill" : "skill ", stderr);
    cli_put_printable(stderr, rest, is_none ? 0 : strlen(rest));
    fputc('\n', stderr);
}

static void do_clear(chat *c, const char *rest) {
    (void)rest;
    cli_conversation_clear(&c->talk, true);
    fputs("cleared\n", stderr);
}

static void do_file(chat *c, const char *path, bool save) {
    if (path[0] == '\0') {
        fprintf(stderr, "/%s needs a file name\n", save ? "save" : "load");
        return;
    }
    if (save && cli_check_target(c->args, path) != CLI_OK) {
        return;
    }
    caisson_status status = save ? cli_conversation_save(&c->talk, path, &c->err)
                                 : cli_conversation_load(&c->talk, path, &c->err);
    if (status != CAISSON_OK) {
        cli_fail(c->args, &c->err);
    } else {
        fprintf(stderr, "%s %zu messages\n", save ? "saved" : "loaded", c->talk.n);
    }
}

static void do_save(chat *c, const char *rest) {
    do_file(c, rest, true);
}

static void do_load(chat *c, const char *rest) {
    do_file(c, rest, false);
}

static const struct {
    const char *name;
    void (*run)(chat *c, const char *rest); /* NULL: leave */
} commands[] = {
    {"system", do_system}, {"clear", do_clear}, {"save", do_save},
    {"load", do_load},     {"skill", do_skill}, {"set", do_set},
    {"help", do_help},     {"quit", NULL},      {"exit", NULL},
};

/* A line that begins with '/'. *ret_leave: the person wants to go. */
static void run_command(chat *c, const char *line, bool *ret_leave) {
    size_t n = strcspn(line + 1, " \t");
    const char *rest = line + 1 + n + strspn(line + 1 + n, " \t");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strlen(commands[i].name) == n && memcmp(commands[i].name, line + 1, n) == 0) {
            if (commands[i].run == NULL) {
                *ret_leave = true;
            } else {
                commands[i].run(c, rest);
            }
            return;
        }
    }
    fputs("no command /", stderr);
    cli_put_printable(stderr, line + 1, n);
    fputs("; /help lists them (a message that begins with / is written as //...)\n", stderr);
}

/* ---- the loop ---- */

/* One message into *ret: lines that end with a backslash are joined. */
static cli_line read_message(chat *c, csn_buf *ret) {
    ret->len = 0;
    const char *prompt = "> ";
    for (;;) {
        const char *line;
        size_t n;
        cli_line got = cli_reader_next(c->reader, prompt, &line, &n);
        if (got == CLI_LINE_END && ret->len > 0) {
            return CLI_LINE_TEXT; /* nothing followed the backslash */
        }
        if (got != CLI_LINE_TEXT) {
            return got;
        }
        bool more = n > 0 && line[n - 1] == '\\';
        if (csn_buf_append(ret, line, more ? n - 1 : n, &c->err) != CAISSON_OK ||
            (more && csn_buf_char(ret, '\n', &c->err) != CAISSON_OK)) {
            cli_fail(c->args, &c->err);
            return CLI_LINE_END;
        }
        if (!more) {
            return CLI_LINE_TEXT;
        }
        prompt = "  ";
    }
}

static int talk(chat *c) {
    csn_buf message = CSN_BUF_INIT(MAX_LINE);
    int rc = CLI_OK;
    bool leave = false;
    while (rc == CLI_OK && !leave) {
        cli_forget_interrupt();
        cli_line got = read_message(c, &message);
        if (got == CLI_LINE_END) {
            break;
        }
        if (got == CLI_LINE_INTERRUPT) {
            rc = c->tty ? CLI_OK : CLI_INTERRUPTED;
            leave = true;
            break;
        }
        csn_str text = csn_buf_view(&message);
        if (text.len == 0) {
            continue;
        }
        if (memchr(text.ptr, '\0', text.len) != NULL) { /* messages end at the first one */
            int failed = cli_fail_text(c->args, "the message holds a NUL byte");
            rc = c->tty ? CLI_OK : failed;
            continue;
        }
        if (text.ptr[0] == '/' && (text.len < 2 || text.ptr[1] != '/')) {
            run_command(c, text.ptr, &leave);
            continue;
        }
        size_t skip = text.ptr[0] == '/' ? 1 : 0;
        if (!cli_conversation_add(&c->talk, "user", text.ptr + skip, text.len - skip)) {
            rc = cli_fail_text(c->args, "out of memory");
        } else {
            rc = answer(c);
        }
    }
    csn_buf_free(&message);
    return rc;
}

/* $XDG_STATE_HOME/caisson/chat_history, its directory made; NULL = keep none. malloc'd. */
static char *history_path(void) {
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char dir[4000];
    if (state != NULL && state[0] == '/') {
        snprintf(dir, sizeof(dir), "%s/caisson", state);
    } else if (home != NULL && home[0] == '/') {
        snprintf(dir, sizeof(dir), "%s/.local/state/caisson", home);
    } else {
        return NULL;
    }
    for (char *p = dir + 1; *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(dir, 0700);
            *p = '/';
        }
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        return NULL;
    }
    char path[4096];
    snprintf(path, sizeof(path), "%s/chat_history", dir);
    return strdup(path);
}

static void greet(const chat *c) {
    if (c->tty) {
        fprintf(stderr, "%s, context %u tokens. /help shows the commands, Ctrl-D leaves.\n",
                caisson_model_arch_name(c->model), caisson_session_n_ctx(c->session));
    }
}

static int start(chat *c) {
    const char *system = cli_text(c->args, "system", NULL);
    const char *load = cli_text(c->args, "load", NULL);
    if (load != NULL && cli_conversation_load(&c->talk, load, &c->err) != CAISSON_OK) {
        return cli_fail(c->args, &c->err);
    }
    if (system != NULL && !cli_conversation_set_system(&c->talk, system)) {
        return cli_fail_text(c->args, "out of memory");
    }
    char *path = cli_has(c->args, "no-history") ? NULL : history_path();
    c->reader = cli_reader_new(path);
    free(path);
    if (c->reader == NULL) {
        return cli_fail_text(c->args, "cannot use the terminal");
    }
    c->tty = cli_reader_is_tty(c->reader);
    cli_interrupts_end_at(c->tty ? 0 : 2);
    c->colour = cli_has(c->args, "color") || cli_has_colour(stdout);
    greet(c);
    return talk(c);
}

static int run(const cli_args *args) {
    chat c = {.args = args, .answer = CSN_BUF_INIT(MAX_ANSWER)};
    c.sampling = cli_sampling(args);
    int64_t n = cli_int(args, "n-predict", -1);
    c.max_tokens = n > 0 ? (uint32_t)n : 0;
    int rc = cli_open_model(args, args->positional[0], CLI_PART_ALL, &c.model);
    if (rc == CLI_OK) {
        rc = cli_new_session(args, c.model, CAISSON_COMPUTE_INT8, 0, &c.session);
    }
    if (rc == CLI_OK) {
        rc = start(&c);
        cli_interrupts_end_at(2);
    }
    cli_reader_free(c.reader);
    cli_conversation_free(&c.talk);
    csn_buf_free(&c.answer);
    caisson_session_free(c.session);
    if (c.model != NULL) {
        cli_end_experts(args, c.model);
    }
    caisson_model_close(c.model);
    return rc;
}

static const cli_option options[] = {
    {.name = "system", .kind = CLI_TEXT, .value = "TEXT", .help = "The system message"},
    {.name = "load",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "Go on from a conversation that /save wrote"},
    {.name = "n-predict",
     .short_name = "n",
     .kind = CLI_INT,
     .value = "N",
     .min = -1,
     .max = 16777216,
     .help = "Most tokens of one answer; -1 = no limit",
     .by_default = "-1"},
    {.name = "stop",
     .kind = CLI_LIST,
     .value = "TEXT",
     .help = "End an answer where this text comes up; may be given several times"},
    {.name = "color",
     .kind = CLI_FLAG,
     .help = "Colour even where standard output is not a terminal"},
    {.name = "no-history",
     .kind = CLI_FLAG,
     .help = "Keep no file of the lines typed (else $XDG_STATE_HOME/caisson/chat_history)"},
    {0},
};

const cli_command cli_cmd_chat = {
    .name = "chat",
    .summary = "Talk with a model",
    .positionals = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .groups = {options, cli_sampling_options, CLI_MODEL_GROUPS, cli_memory_options,
               cli_signature_options, cli_verify_options, cli_common_options},
    .details =
        "Lines are edited as in a shell, with history. Ctrl-C stops an answer, at the prompt "
        "it leaves. /help lists the commands: /system /save /load /clear /skill /set. Through a "
        "pipe each line is a message, and only the answers are written.",
    .examples = "caisson chat model.cmf --system \"Answer in one sentence.\"",
    .run = run,
};
